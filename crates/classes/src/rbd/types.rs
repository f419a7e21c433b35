//! What the class stores and what it says, as encoded (guide §6.1).

use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::{BTreeMap, BTreeSet};
use types::{SnapId, UTime};

/// No pool.
pub const NO_POOL: i64 = -1;

/// Whom a snapshot was made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SnapNamespace {
    /// A person.
    #[default]
    User,
    /// A group's snapshot: pool and id of the group, id of its snapshot.
    Group(i64, Bytes, Bytes),
    /// Nobody any more: its name and kind before it was removed. Clones still need it.
    Trash(Bytes, u32),
    /// Mirroring.
    Mirror(MirrorNamespace),
    /// Something newer.
    Unknown,
}

impl SnapNamespace {
    const USER: u32 = 0;
    const GROUP: u32 = 1;
    const TRASH: u32 = 2;
    const MIRROR: u32 = 3;
    const UNKNOWN: u32 = u32::MAX;

    /// Its number.
    pub fn kind(&self) -> u32 {
        match self {
            SnapNamespace::User => Self::USER,
            SnapNamespace::Group(..) => Self::GROUP,
            SnapNamespace::Trash(..) => Self::TRASH,
            SnapNamespace::Mirror(_) => Self::MIRROR,
            SnapNamespace::Unknown => Self::UNKNOWN,
        }
    }

    /// Whether the snapshot was removed.
    pub fn is_trash(&self) -> bool {
        matches!(self, SnapNamespace::Trash(..))
    }
}

impl Encode for SnapNamespace {
    fn encode(&self, e: &mut Encoder) {
        e.section(1, 1, |e| {
            e.put(&self.kind());
            match self {
                SnapNamespace::User | SnapNamespace::Unknown => {}
                SnapNamespace::Group(pool, group, snap) => {
                    e.put(pool).put(group).put(snap);
                }
                SnapNamespace::Trash(name, kind) => {
                    e.put(name).put(kind);
                }
                SnapNamespace::Mirror(m) => {
                    e.put(m);
                }
            }
        });
    }
}

impl Decode for SnapNamespace {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(1, |d, _| {
            Ok(match d.get::<u32>()? {
                Self::USER => SnapNamespace::User,
                Self::GROUP => SnapNamespace::Group(d.get()?, d.get()?, d.get()?),
                Self::TRASH => SnapNamespace::Trash(d.get()?, d.get()?),
                Self::MIRROR => SnapNamespace::Mirror(d.get()?),
                _ => SnapNamespace::Unknown,
            })
        })
    }
}

/// State of a snapshot made for mirroring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MirrorNamespace {
    /// 0 primary, 1 primary demoted, 2 non-primary, 3 non-primary demoted.
    pub state: u8,
    /// Whether all of it was copied.
    pub complete: bool,
    /// Peers that have to copy it yet.
    pub peer_uuids: BTreeSet<Bytes>,
    /// Where it was copied from.
    pub primary_mirror_uuid: Bytes,
    /// What it was there; of a primary, the newest one that all peers had before it.
    pub primary_snap_id: SnapId,
    /// How far the copying came.
    pub last_copied_object: u64,
    /// Snapshots of the primary and what they are here.
    pub snap_seqs: BTreeMap<u64, u64>,
}

impl MirrorNamespace {
    /// Whether it is a copy of another cluster's snapshot.
    pub fn is_non_primary(&self) -> bool {
        matches!(self.state, 2 | 3)
    }
}

/// A snapshot as shown: SnapshotInfo V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct SnapInfo {
    pub id: SnapId,
    pub namespace: SnapNamespace,
    pub name: Bytes,
    pub image_size: u64,
    pub timestamp: UTime,
    pub child_count: u32,
}

/// A snapshot as stored under `snapshot_%016x`: cls_rbd_snap V(8,8). Older forms name the parent;
/// no cluster of ours ever wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 8, compat = 8)]
pub struct SnapRecord {
    pub id: SnapId,
    pub name: Bytes,
    pub image_size: u64,
    pub protection: u8,
    pub flags: u64,
    pub namespace: SnapNamespace,
    pub timestamp: UTime,
    /// Clones (v2) of it.
    pub child_count: u32,
    /// How much of the image's parent it shows; `None` when it has none.
    pub parent_overlap: Option<u64>,
}

impl SnapRecord {
    /// May be removed.
    pub const UNPROTECTED: u8 = 0;
    /// Must not be removed: it may have clones (v1). Between the two, 1, they are looked for.
    pub const PROTECTED: u8 = 2;

    /// As shown.
    pub fn info(self) -> SnapInfo {
        SnapInfo {
            id: self.id,
            namespace: self.namespace,
            name: self.name,
            image_size: self.image_size,
            timestamp: self.timestamp,
            child_count: self.child_count,
        }
    }
}

/// Snapshot of an image that another image is a clone of: ParentImageSpec V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ParentSpec {
    pub pool: i64,
    pub pool_namespace: Bytes,
    pub image_id: Bytes,
    pub snap: SnapId,
}

impl ParentSpec {
    /// Whether there is a parent.
    pub fn exists(&self) -> bool {
        self.pool >= 0 && !self.image_id.is_empty() && self.snap != SnapId::HEAD
    }
}

impl Default for ParentSpec {
    /// No parent.
    fn default() -> Self {
        ParentSpec {
            pool: NO_POOL,
            pool_namespace: Bytes::new(),
            image_id: Bytes::new(),
            snap: SnapId::HEAD,
        }
    }
}

/// An image's parent as stored: cls_rbd_parent V(2,2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parent {
    pub spec: ParentSpec,
    /// How much of it the image shows; `None` when only its snapshots do.
    pub head_overlap: Option<u64>,
}

impl Encode for Parent {
    fn encode(&self, e: &mut Encoder) {
        e.section(2, 2, |e| {
            e.put(&self.spec.pool).put(&self.spec.pool_namespace).put(&self.spec.image_id);
            e.put(&self.spec.snap).put(&self.head_overlap);
        });
    }
}

impl Decode for Parent {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(2, |d, v| {
            let pool = d.get()?;
            let pool_namespace = if v >= 2 { d.get()? } else { Bytes::new() };
            let spec = ParentSpec { pool, pool_namespace, image_id: d.get()?, snap: d.get()? };
            let head_overlap = if v >= 2 { d.get()? } else { Some(d.get()?) };
            Ok(Parent { spec, head_overlap })
        })
    }
}

/// An image that is a clone: ChildImageSpec V(2,1). Ordered as Ceph orders them.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct ChildSpec {
    pub pool: i64,
    pub image_id: Bytes,
    #[denc(since = 2)]
    pub pool_namespace: Bytes,
}

impl Ord for ChildSpec {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |c: &Self| (c.pool, c.pool_namespace.clone(), c.image_id.clone());
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for ChildSpec {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A group: GroupSpec V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct GroupSpec {
    pub pool: i64,
    pub group_id: Bytes,
}

impl Default for GroupSpec {
    /// No group.
    fn default() -> Self {
        GroupSpec { pool: NO_POOL, group_id: Bytes::new() }
    }
}

/// An image in a group: GroupImageSpec V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct GroupImageSpec {
    pub image_id: Bytes,
    pub pool: i64,
}

/// An image in a group and whether it is fully in it: GroupImageStatus V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct GroupImageStatus {
    pub spec: GroupImageSpec,
    /// 0 attached, 1 incomplete.
    pub state: u8,
}

/// A snapshot of an image: ImageSnapshotSpec V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ImageSnapSpec {
    pub pool: i64,
    pub image_id: Bytes,
    pub snap: SnapId,
}

/// A snapshot of a group: GroupSnapshot V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct GroupSnap {
    pub id: Bytes,
    pub name: Bytes,
    pub state: u8,
    pub snaps: Vec<ImageSnapSpec>,
}

impl GroupSnap {
    /// State before the snapshots of all images are made.
    pub const INCOMPLETE: u8 = 0;
}

/// An image in the trash: TrashImageSpec V(2,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct TrashSpec {
    /// 0 user, 1 mirroring, 2 migration, 3 removing, 4 parent of user's clones.
    pub source: u8,
    pub name: Bytes,
    pub deletion_time: UTime,
    pub deferment_end_time: UTime,
    /// 0 normal, 1 moving, 2 removing, 3 restoring.
    #[denc(since = 2)]
    pub state: u8,
}

/// How an image is migrated: MigrationSpec V(3,1), or V(3,3) when the source is named by text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationSpec {
    /// Which end this is: [`MigrationSpec::SOURCE`] or [`MigrationSpec::DESTINATION`].
    pub end: u8,
    pub pool: i64,
    pub pool_namespace: Bytes,
    pub image_name: Bytes,
    pub image_id: Bytes,
    pub snap_seqs: BTreeMap<u64, u64>,
    pub overlap: u64,
    pub flatten: bool,
    pub mirroring: bool,
    pub state: u8,
    pub state_description: Bytes,
    pub mirror_image_mode: u8,
    /// JSON that says where to import from; empty for another image.
    pub source_spec: Bytes,
}

impl MigrationSpec {
    /// The image is migrated away.
    pub const SOURCE: u8 = 1;
    /// The image is what comes of it.
    pub const DESTINATION: u8 = 2;
}

impl Encode for MigrationSpec {
    fn encode(&self, e: &mut Encoder) {
        let compat = if self.source_spec.is_empty() { 1 } else { 3 };
        e.section(3, compat, |e| {
            e.put(&self.end).put(&self.pool).put(&self.pool_namespace);
            e.put(&self.image_name).put(&self.image_id).put(&self.snap_seqs);
            e.put(&self.overlap).put(&self.flatten).put(&self.mirroring);
            e.put(&self.state).put(&self.state_description);
            e.put(&self.mirror_image_mode).put(&self.source_spec);
        });
    }
}

impl Decode for MigrationSpec {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(3, |d, v| {
            Ok(MigrationSpec {
                end: d.get()?,
                pool: d.get()?,
                pool_namespace: d.get()?,
                image_name: d.get()?,
                image_id: d.get()?,
                snap_seqs: d.get()?,
                overlap: d.get()?,
                flatten: d.get()?,
                mirroring: d.get()?,
                state: d.get()?,
                state_description: d.get()?,
                mirror_image_mode: if v >= 2 { d.get()? } else { 0 },
                source_spec: if v >= 3 { d.get()? } else { Bytes::new() },
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::check_type;

    #[test]
    fn types_are_encoded_as_ceph_does() {
        check_type::<SnapNamespace>("cls__rbd__SnapshotNamespace");
        check_type::<SnapInfo>("cls__rbd__SnapshotInfo");
        check_type::<SnapRecord>("cls_rbd_snap");
        check_type::<ParentSpec>("cls__rbd__ParentImageSpec");
        check_type::<Parent>("cls_rbd_parent");
        check_type::<ChildSpec>("cls__rbd__ChildImageSpec");
        check_type::<GroupSpec>("cls__rbd__GroupSpec");
        check_type::<GroupImageSpec>("cls__rbd__GroupImageSpec");
        check_type::<ImageSnapSpec>("cls__rbd__ImageSnapshotSpec");
    }
}

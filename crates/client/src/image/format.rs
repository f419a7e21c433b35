//! What the classes `rbd` and `lock` take and answer, as far as images need it (guide §6).

use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;
use types::{ByteString, EntityAddr, EntityName, PoolId, SnapId, UTime};

/// Feature bits of images (`include/rbd/features.h`).
pub mod feature {
    /// May be a clone, and may have clones.
    pub const LAYERING: u64 = 1;
    /// Has a stripe unit and count of its own.
    pub const STRIPING: u64 = 2;
    /// One client writes at a time.
    pub const EXCLUSIVE_LOCK: u64 = 4;
    /// Knows which objects exist.
    pub const OBJECT_MAP: u64 = 8;
    /// Knows which objects were written since the last snapshot.
    pub const FAST_DIFF: u64 = 0x10;
    /// Flattening goes through the snapshots, too.
    pub const DEEP_FLATTEN: u64 = 0x20;
    /// Writes go through a journal.
    pub const JOURNALING: u64 = 0x40;
    /// Data is in a pool of its own.
    pub const DATA_POOL: u64 = 0x80;
    /// Something is being done to it; the class sets it.
    pub const OPERATIONS: u64 = 0x100;
    /// Is being moved.
    pub const MIGRATING: u64 = 0x200;
    /// Is a mirror of another cluster's image.
    pub const NON_PRIMARY: u64 = 0x400;
    /// A client's cache holds writes.
    pub const DIRTY_CACHE: u64 = 0x800;

    /// What `rbd create` gives an image.
    pub const DEFAULT: u64 = LAYERING | EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | DEEP_FLATTEN;
    /// What we can read.
    pub(crate) const READABLE: u64 = 0x5ff;
}

/// Bits of an image's flags: its object map is not right.
pub const MAP_INVALID: u64 = 1;
/// Its object map does not tell what was written since a snapshot.
pub const FAST_DIFF_INVALID: u64 = 2;

/// A snapshot is not protected.
pub const UNPROTECTED: u8 = 0;
/// Whether clones are left is being looked after.
pub const UNPROTECTING: u8 = 1;
/// A snapshot cannot be removed.
pub const PROTECTED: u8 = 2;

/// What a snapshot is for, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SnapKind {
    /// Made by a user.
    #[default]
    User,
    /// Removed, but clones need it; the name it had.
    Trash(String),
    /// A group's or a mirror's: the number of its kind.
    Other(u32),
}

impl Encode for SnapKind {
    fn encode(&self, e: &mut Encoder) {
        e.section(1, 1, |e| match self {
            SnapKind::User => {
                e.put(&0u32);
            }
            SnapKind::Trash(name) => {
                e.put(&2u32).put(name).put(&0u32);
            }
            SnapKind::Other(kind) => {
                e.put(kind);
            }
        });
    }
}

impl Decode for SnapKind {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(1, |d, _| {
            Ok(match d.get::<u32>()? {
                0 => SnapKind::User,
                2 => SnapKind::Trash(d.get()?),
                kind => SnapKind::Other(kind),
            })
        })
    }
}

/// A snapshot as `snapshot_get` answers: SnapshotInfo V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct SnapInfo {
    pub id: SnapId,
    pub kind: SnapKind,
    pub name: String,
    pub size: u64,
    pub timestamp: UTime,
    pub child_count: u32,
}

/// The snapshot that an image is a clone of: ParentImageSpec V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ParentSpec {
    pub pool: PoolId,
    pub nspace: ByteString,
    pub image_id: String,
    pub snap: SnapId,
}

impl ParentSpec {
    /// Whether there is a parent.
    pub fn exists(&self) -> bool {
        self.pool.0 >= 0 && !self.image_id.is_empty() && self.snap <= SnapId::MAX
    }
}

/// An image that is a clone: ChildImageSpec V(2,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct ChildSpec {
    pub pool: PoolId,
    pub image_id: String,
    pub nspace: ByteString,
}

/// The group that an image is in: GroupSpec V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct GroupSpec {
    pub pool: PoolId,
    pub group_id: String,
}

impl GroupSpec {
    /// Whether there is one.
    pub fn exists(&self) -> bool {
        self.pool.0 >= 0 && !self.group_id.is_empty()
    }
}

/// Name of the locks on headers and object maps.
pub const LOCK_NAME: &str = "rbd_lock";
/// Tag of locks that librbd takes by itself.
pub const LOCK_TAG: &str = "internal";
/// How the cookie of such a lock begins; the number of the holder's watch follows.
pub const COOKIE_PREFIX: &str = "auto ";
/// One holder at a time.
pub const LOCK_EXCLUSIVE: u8 = 1;

/// Who holds a lock: locker_id_t V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct LockerId {
    pub name: EntityName,
    pub cookie: String,
}

/// From where: locker_info_t V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Locker {
    pub expiration: UTime,
    pub addr: EntityAddr,
    pub description: String,
}

/// A lock: answer of `lock.get_info` V(1,1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct LockInfo {
    pub lockers: BTreeMap<LockerId, Locker>,
    pub kind: u8,
    pub tag: String,
}

fn section(body: impl FnOnce(&mut Encoder)) -> Bytes {
    let mut e = Encoder::new();
    e.section(1, 1, body);
    e.into_bytes()
}

/// Input of `lock.get_info`.
pub fn lock_name() -> Bytes {
    section(|e| {
        e.put(LOCK_NAME);
    })
}

/// Input of `lock.lock`: exclusive, without an end.
pub fn lock_take(cookie: &str, tag: &str) -> Bytes {
    section(|e| {
        e.put(LOCK_NAME).put(&LOCK_EXCLUSIVE).put(cookie).put(tag).put("");
        e.put(&UTime::ZERO).put(&0u8);
    })
}

/// Input of `lock.unlock`.
pub fn lock_release(cookie: &str) -> Bytes {
    section(|e| {
        e.put(LOCK_NAME).put(cookie);
    })
}

/// Input of `lock.break_lock`.
pub fn lock_break(id: &LockerId) -> Bytes {
    section(|e| {
        e.put(LOCK_NAME).put(&id.name).put(&id.cookie);
    })
}

/// Input of `lock.assert_locked`.
pub fn lock_assert(cookie: &str, tag: &str) -> Bytes {
    section(|e| {
        e.put(LOCK_NAME).put(&LOCK_EXCLUSIVE).put(cookie).put(tag);
    })
}

/// Input of `lock.set_cookie`.
pub fn lock_set_cookie(cookie: &str, tag: &str, new: &str) -> Bytes {
    section(|e| {
        e.put(LOCK_NAME).put(&LOCK_EXCLUSIVE).put(cookie).put(tag).put(new);
    })
}

/// Input of `rbd.object_map_update`.
pub fn map_update(start: u64, end: u64, new: u8, current: Option<u8>) -> Bytes {
    let mut e = Encoder::with_capacity(19);
    e.put(&start).put(&end).put(&new).put(&current);
    e.into_bytes()
}

/// Name of an image's header.
pub fn header_name(id: &str) -> String {
    format!("rbd_header.{id}")
}

/// Name of an image's object map.
pub fn map_name(id: &str, snap: SnapId) -> String {
    match snap {
        SnapId::HEAD => format!("rbd_object_map.{id}"),
        snap => format!("rbd_object_map.{id}.{:016x}", snap.0),
    }
}

//! What an open image is like.

use super::format::ParentSpec;
use super::state::{Image, LockState, Snap};
use super::{ImageId, Images};
use types::{PoolId, SnapId};

/// A snapshot, as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapShown {
    /// Its id.
    pub id: SnapId,
    /// Its name.
    pub name: String,
    /// Bytes of the image then.
    pub size: u64,
    /// Whether it is protected.
    pub is_protected: bool,
    /// Whether it is in the trash: removed, but needed by clones.
    pub is_trashed: bool,
}

impl SnapShown {
    fn of(snap: &Snap) -> Self {
        SnapShown {
            id: snap.info.id,
            name: snap.info.name.clone(),
            size: snap.info.size,
            is_protected: snap.protection == super::format::PROTECTED,
            is_trashed: matches!(snap.info.kind, super::format::SnapKind::Trash(_)),
        }
    }
}

/// An open image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// Its name; empty of one in the trash.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Bytes.
    pub size: u64,
    /// log2 of the bytes of an object.
    pub order: u8,
    /// See [`feature`](super::feature).
    pub features: u64,
    /// 1: the object map is invalid; 2: fast-diff is.
    pub flags: u64,
    /// How names of data objects begin.
    pub prefix: String,
    /// Where its data is.
    pub data_pool: PoolId,
    /// Pool, id and snapshot of the image it is a clone of.
    pub parent: Option<(PoolId, String, SnapId)>,
    /// How much of that it shows, bytes.
    pub overlap: u64,
    /// Oldest first.
    pub snaps: Vec<SnapShown>,
    /// Whether we hold the exclusive lock.
    pub is_locked: bool,
    /// Whether the image cannot be used any more (we were shut out, or it was removed).
    pub is_dead: bool,
}

/// What an image is like.
pub(super) fn of(i: &Image) -> ImageInfo {
    let spec = |p: &ParentSpec| (p.pool, p.image_id.clone(), p.snap);
    ImageInfo {
        name: i.name.clone(),
        id: i.id.clone(),
        size: i.size(),
        order: i.order,
        features: i.head.features,
        flags: i.head.flags,
        prefix: i.prefix.clone(),
        data_pool: i.data_pool,
        parent: i.head.parent.as_ref().map(spec),
        overlap: i.overlap(),
        snaps: i.head.snaps.iter().map(SnapShown::of).collect(),
        is_locked: i.lock == LockState::Locked,
        is_dead: i.dead.is_some(),
    }
}

impl Images {
    /// What an image is like; `None` when it is closed.
    pub fn info(&self, image: ImageId) -> Option<ImageInfo> {
        let s = self.shared.borrow();
        let i = s.images.get(image.slot).filter(|i| i.generation == image.generation)?;
        Some(of(i))
    }

    /// Bytes of an image; `None` when it is closed.
    pub fn size(&self, image: ImageId) -> Option<u64> {
        let s = self.shared.borrow();
        let i = s.images.get(image.slot).filter(|i| i.generation == image.generation)?;
        Some(i.size())
    }
}

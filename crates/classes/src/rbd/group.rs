//! Groups of images: a group's images and snapshots (`rbd_group_header.<id>`), an image's group.
//! The directory of groups has the form of that of images.

use super::header::{change_op_features, op_feature};
use super::types::{GroupImageSpec, GroupImageStatus, GroupSnap, GroupSpec, NO_POOL};
use crate::input::args;
use crate::object::if_found;
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use types::Errno;

const IMAGE: &str = "image_";
const SNAP: &str = "snapshot_";
const GROUP_REF: &[u8] = b"rbd_group_ref";

impl GroupImageSpec {
    /// `image_%016x_<image id>`; empty without a pool, which is before all others.
    fn key(&self) -> Bytes {
        match self.pool {
            NO_POOL => Bytes::new(),
            pool => omap::key(format!("{IMAGE}{pool:016x}_"), &self.image_id),
        }
    }

    fn from_name(name: &Bytes) -> Option<Self> {
        let split = name.iter().position(|&b| b == b'_')?;
        let hex = std::str::from_utf8(name.get(..split)?).ok()?;
        let pool = u64::from_str_radix(hex, 16).ok()?.cast_signed();
        Some(GroupImageSpec { image_id: name.slice(split + 1..), pool })
    }
}

pub fn group_image_set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let status: GroupImageStatus = args(input)?;
    omap::put(o, &status.spec.key(), &status.state)?;
    Ok(Bytes::new())
}

pub fn group_image_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let spec: GroupImageSpec = args(input)?;
    omap::remove(o, &spec.key())?;
    Ok(Bytes::new())
}

pub fn group_image_list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (after, max): (GroupImageSpec, u64) = args(input)?;
    let listed = omap::list_after_key(o, IMAGE, after.key(), max)?;
    let status = |(name, state): (Bytes, Bytes)| {
        let spec = GroupImageSpec::from_name(&name).ok_or(Errno::EIO)?;
        let state = omap::stored(&state)?;
        Ok(GroupImageStatus { spec, state })
    };
    let images: Vec<_> = listed.into_iter().map(status).collect::<CallResult<_>>()?;
    Ok(denc::encode(&images))
}

/// The group of an image; EINVAL when it cannot be read.
fn group_ref(o: &mut dyn Object) -> CallResult<Option<GroupSpec>> {
    if_found(o.omap_get(GROUP_REF))?.map(|value| args(&value)).transpose()
}

pub fn image_group_add(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let group: GroupSpec = args(input)?;
    match group_ref(o)? {
        Some(old) if old == group => return Ok(Bytes::new()),
        Some(_) => return Err(Errno::EEXIST.into()),
        None => {}
    }
    change_op_features(o, op_feature::GROUP, op_feature::GROUP)?;
    omap::put(o, GROUP_REF, &group)?;
    Ok(Bytes::new())
}

pub fn image_group_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let group: GroupSpec = args(input)?;
    if group_ref(o)?.ok_or(Errno::ENOENT)? != group {
        return Err(Errno::EBADF.into());
    }
    omap::remove(o, GROUP_REF)?;
    change_op_features(o, 0, op_feature::GROUP)?;
    Ok(Bytes::new())
}

pub fn image_group_get(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    Ok(denc::encode(&group_ref(o)?.unwrap_or_default()))
}

pub fn group_snap_set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let snap: GroupSnap = args(input)?;
    if snap.name.is_empty() || snap.id.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let others = omap::list_as::<GroupSnap>(o, SNAP, b"", omap::ALL)?;
    if others.iter().any(|(_, s)| s.name == snap.name && s.id != snap.id) {
        return Err(Errno::EEXIST.into());
    }
    let key = omap::key(SNAP, &snap.id);
    if snap.state == GroupSnap::INCOMPLETE && omap::has(o, &key)? {
        return Err(Errno::EEXIST.into());
    }
    omap::put(o, &key, &snap)?;
    Ok(Bytes::new())
}

pub fn group_snap_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let id: Bytes = args(input)?;
    omap::remove(o, &omap::key(SNAP, &id))?;
    Ok(Bytes::new())
}

pub fn group_snap_get_by_id(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let id: Bytes = args(input)?;
    Ok(denc::encode(&omap::get::<GroupSnap>(o, &omap::key(SNAP, &id))?))
}

pub fn group_snap_list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (after, max): (GroupSnap, u64) = args(input)?;
    let listed = omap::list_as::<GroupSnap>(o, SNAP, &after.id, max)?;
    Ok(denc::encode(&listed.into_iter().map(|(_, snap)| snap).collect::<Vec<_>>()))
}

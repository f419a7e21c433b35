//! Images that are mirrored, and their snapshots.

use super::status;
use super::types::{Image, ImageMap};
use crate::input::{ListArgs, args};
use crate::rbd::snapshot;
use crate::rbd::types::{MirrorNamespace, SnapNamespace};
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::{Errno, SnapId};

/// Images by their id.
pub const PREFIX: &str = "image_";
/// Ids of images by the id that they have in all clusters.
const GLOBAL: &str = "global_";
const MAP: &str = "image_map_";

fn load(o: &mut dyn Object, id: &[u8]) -> CallResult<Image> {
    omap::get(o, &omap::key(PREFIX, id))
}

/// Whether an image with this global id is mirrored.
pub fn is_enabled(o: &mut dyn Object, global_id: &[u8]) -> CallResult<bool> {
    let Some(id) = omap::find::<Bytes>(o, &omap::key(GLOBAL, global_id))? else {
        return Ok(false);
    };
    let image = omap::find::<Image>(o, &omap::key(PREFIX, &id))?;
    Ok(image.is_some_and(|image| image.state == Image::ENABLED))
}

pub fn mirror_image_list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (after, max): ListArgs = args(input)?;
    let images = omap::list_as::<Image>(o, PREFIX, &after, max)?;
    let global_ids = images.into_iter().map(|(id, image)| (id, image.global_id));
    Ok(denc::encode(&global_ids.collect::<BTreeMap<_, _>>()))
}

pub fn mirror_image_get_image_id(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let global_id: Bytes = args(input)?;
    Ok(denc::encode(&omap::get::<Bytes>(o, &omap::key(GLOBAL, &global_id))?))
}

pub fn mirror_image_get(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let id: Bytes = args(input)?;
    Ok(denc::encode(&load(o, &id)?))
}

pub fn mirror_image_set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (id, image): (Bytes, Image) = args(input)?;
    let global_key = omap::key(GLOBAL, &image.global_id);
    match omap::find::<Image>(o, &omap::key(PREFIX, &id))? {
        Some(old) if old.global_id != image.global_id => return Err(Errno::EINVAL.into()),
        Some(_) => {}
        None if omap::find::<Bytes>(o, &global_key)?.is_some() => {
            return Err(Errno::EEXIST.into());
        }
        // It was disabled and removed meanwhile.
        None if image.state == Image::DISABLING => return Err(Errno::ENOENT.into()),
        None => {}
    }
    omap::put(o, &omap::key(PREFIX, &id), &image)?;
    omap::put(o, &global_key, &id)?;
    Ok(Bytes::new())
}

pub fn mirror_image_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let id: Bytes = args(input)?;
    let image = load(o, &id)?;
    if image.state != Image::DISABLING {
        return Err(Errno::EBUSY.into());
    }
    o.omap_remove(&[omap::key(PREFIX, &id), omap::key(GLOBAL, &image.global_id)])?;
    status::forget(o, &image.global_id)?;
    Ok(Bytes::new())
}

pub fn mirror_image_map_list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (after, max): ListArgs = args(input)?;
    let listed = omap::list_as::<ImageMap>(o, MAP, &after, max)?;
    Ok(denc::encode(&BTreeMap::from_iter(listed)))
}

pub fn mirror_image_map_update(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (global_id, map): (Bytes, ImageMap) = args(input)?;
    omap::put(o, &omap::key(MAP, &global_id), &map)?;
    Ok(Bytes::new())
}

pub fn mirror_image_map_remove(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let global_id: Bytes = args(input)?;
    omap::remove_any(o, &[omap::key(MAP, &global_id)])?;
    Ok(Bytes::new())
}

/// Changes a snapshot made for mirroring; EINVAL for any other. The object is the image's header.
fn change_snapshot(
    o: &mut dyn Object,
    snap: SnapId,
    change: impl FnOnce(&mut MirrorNamespace) -> CallResult<()>,
) -> CallResult<Bytes> {
    let mut record = snapshot::load(o, snap)?;
    let SnapNamespace::Mirror(mirror) = &mut record.namespace else {
        return Err(Errno::EINVAL.into());
    };
    change(mirror)?;
    snapshot::save(o, &record)?;
    Ok(Bytes::new())
}

pub fn mirror_image_snapshot_unlink_peer(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (snap, peer): (SnapId, Bytes) = args(input)?;
    change_snapshot(o, snap, |mirror| {
        if mirror.peer_uuids.remove(&peer) { Ok(()) } else { Err(Errno::ENOENT.into()) }
    })
}

pub fn mirror_image_snapshot_set_copy_progress(
    o: &mut dyn Object,
    input: &Bytes,
) -> CallResult<Bytes> {
    let (snap, complete, object): (SnapId, bool, u64) = args(input)?;
    change_snapshot(o, snap, |mirror| {
        mirror.complete = complete;
        if mirror.is_non_primary() {
            mirror.last_copied_object = object;
        }
        Ok(())
    })
}

//! What an image is a clone of: the header's key `parent`.

use super::header::{change_op_features, feature, has, must_exist, must_have, op_feature};
use super::snapshot;
use super::types::{Parent, ParentSpec};
use crate::input::{Tail, args};
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use denc::Decode;
use types::{Errno, SnapId};

pub fn parent_get(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    must_exist(o)?;
    let mut parent = None;
    if has(o, feature::LAYERING)? {
        parent = omap::find::<Parent>(o, b"parent")?;
    }
    Ok(denc::encode(&parent.unwrap_or_default().spec))
}

pub fn parent_overlap_get(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let snap: SnapId = args(input)?;
    let mut overlap: Option<u64> = None;
    if has(o, feature::LAYERING)? {
        overlap = match snap {
            SnapId::HEAD => omap::find::<Parent>(o, b"parent")?.and_then(|p| p.head_overlap),
            snap => snapshot::load(o, snap)?.parent_overlap,
        };
    }
    Ok(denc::encode(&overlap))
}

pub fn parent_attach(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (spec, overlap, Tail(reattach)): (ParentSpec, u64, Tail<bool>) = args(input)?;
    attach(o, spec, overlap, reattach == Some(true))
}

fn attach(o: &mut dyn Object, spec: ParentSpec, overlap: u64, reattach: bool) -> CallResult<Bytes> {
    must_exist(o)?;
    must_have(o, feature::LAYERING)?;
    if !spec.exists() || overlap == 0 {
        return Err(Errno::EINVAL.into());
    }
    if let Some(old) = omap::find::<Parent>(o, b"parent")?
        && (old.head_overlap.is_some() || old.spec != spec)
        && !reattach
    {
        return Err(Errno::EEXIST.into());
    }
    let size: u64 = omap::get(o, b"size")?;
    omap::put(o, b"parent", &Parent { spec, head_overlap: Some(overlap.min(size)) })?;
    Ok(Bytes::new())
}

pub fn parent_detach(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    detach(o, false)
}

fn detach(o: &mut dyn Object, old_method: bool) -> CallResult<Bytes> {
    must_exist(o)?;
    must_have(o, feature::LAYERING)?;
    let deep = has(o, feature::DEEP_FLATTEN)?;
    let mut parent: Parent = omap::get(o, b"parent")?;
    if old_method && !parent.spec.pool_namespace.is_empty() {
        return Err(Errno::EXDEV.into());
    }
    parent.head_overlap.take().ok_or(Errno::ENOENT)?;
    let mut snaps = snapshot::all(o)?;
    snaps.retain(|s| s.parent_overlap.is_some());
    if deep {
        for mut snap in snaps.drain(..) {
            snap.parent_overlap = None;
            snapshot::save(o, &snap)?;
        }
    }
    if snaps.is_empty() {
        omap::remove(o, b"parent")?;
        change_op_features(o, 0, op_feature::CLONE_CHILD)?;
    } else {
        omap::put(o, b"parent", &parent)?;
    }
    Ok(Bytes::new())
}

/// The form before Nautilus: one answer for image and overlap, without pool namespaces.
pub fn get_parent(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let snap: SnapId = args(input)?;
    must_exist(o)?;
    let mut shown = Parent::default();
    if has(o, feature::LAYERING)? {
        shown = omap::find(o, b"parent")?.unwrap_or_default();
        if !shown.spec.pool_namespace.is_empty() {
            return Err(Errno::EXDEV.into());
        }
        if snap != SnapId::HEAD {
            shown = as_seen_by(o, snap, shown)?;
        }
    }
    let ParentSpec { pool, image_id, snap, .. } = shown.spec;
    Ok(denc::encode(&((pool, image_id), snap, shown.head_overlap.unwrap_or(0))))
}

/// The image's parent with a snapshot's overlap; none when the snapshot has none.
fn as_seen_by(o: &mut dyn Object, snap: SnapId, parent: Parent) -> CallResult<Parent> {
    let record = crate::object::if_found(snapshot::load(o, snap))?;
    match record.and_then(|r| r.parent_overlap) {
        None => Ok(Parent::default()),
        Some(_) if !parent.spec.exists() => Err(Errno::EINVAL.into()),
        overlap => Ok(Parent { head_overlap: overlap, ..parent }),
    }
}

#[derive(Decode)]
struct SetParentArgs {
    pool: i64,
    image_id: Bytes,
    snap: SnapId,
    overlap: u64,
}

pub fn set_parent(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let SetParentArgs { pool, image_id, snap, overlap } = args(input)?;
    attach(o, ParentSpec { pool, pool_namespace: Bytes::new(), image_id, snap }, overlap, false)
}

pub fn remove_parent(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    detach(o, true)
}

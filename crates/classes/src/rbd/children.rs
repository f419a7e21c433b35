//! Clones of an image: of format 2 in the parent's header, of format 1 in object `rbd_children`.

use super::header::{change_op_features, op_feature};
use super::snapshot;
use super::types::ChildSpec;
use crate::input::args;
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use std::collections::BTreeSet;
use types::{Errno, SnapId};

type Children = BTreeSet<ChildSpec>;

fn key(snap: SnapId) -> String {
    format!("snap_children_{:016x}", snap.0)
}

pub fn child_attach(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (id, child): (SnapId, ChildSpec) = args(input)?;
    let mut snap = snapshot::load(o, id)?;
    if snap.namespace.is_trash() {
        return Err(Errno::ENOENT.into());
    }
    let key = key(id);
    let mut children: Children = omap::find(o, key.as_bytes())?.unwrap_or_default();
    if !children.insert(child) {
        return Err(Errno::EEXIST.into());
    }
    omap::put(o, key.as_bytes(), &children)?;
    snap.child_count = snap.child_count.checked_add(1).ok_or(Errno::EINVAL)?;
    snapshot::save(o, &snap)?;
    change_op_features(o, op_feature::CLONE_PARENT, op_feature::CLONE_PARENT)?;
    Ok(Bytes::new())
}

pub fn child_detach(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (id, child): (SnapId, ChildSpec) = args(input)?;
    let mut snap = snapshot::load(o, id)?;
    let key = key(id);
    let mut children: Children = omap::find(o, key.as_bytes())?.unwrap_or_default();
    if snap.child_count as usize != children.len() {
        return Err(Errno::EINVAL.into());
    }
    if !children.remove(&child) {
        return Err(Errno::ENOENT.into());
    }
    if children.is_empty() {
        omap::remove(o, key.as_bytes())?;
    } else {
        omap::put(o, key.as_bytes(), &children)?;
    }
    snap.child_count = u32::try_from(children.len()).map_err(|_| Errno::EINVAL)?;
    snapshot::save(o, &snap)?;
    if snap.child_count == 0 && !snapshot::all(o)?.iter().any(|s| s.id != id && s.child_count > 0) {
        change_op_features(o, 0, op_feature::CLONE_PARENT)?;
    }
    Ok(Bytes::new())
}

pub fn children_list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let id: SnapId = args(input)?;
    snapshot::load(o, id)?;
    Ok(denc::encode(&omap::get::<Children>(o, key(id).as_bytes())?))
}

/// Pool, image and snapshot of a parent; its encoding is the key.
type OldParent = (u64, Bytes, SnapId);

fn old_args(input: &Bytes) -> CallResult<(Bytes, Bytes)> {
    let (parent, child): (OldParent, Bytes) = args(input)?;
    Ok((denc::encode(&parent), child))
}

pub fn add_child(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (key, child) = old_args(input)?;
    let mut children: BTreeSet<Bytes> = omap::find(o, &key)?.unwrap_or_default();
    if !children.insert(child) {
        return Err(Errno::EEXIST.into());
    }
    omap::put(o, &key, &children)?;
    Ok(Bytes::new())
}

pub fn remove_child(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (key, child) = old_args(input)?;
    let mut children: BTreeSet<Bytes> = omap::get(o, &key)?;
    if !children.remove(&child) {
        return Err(Errno::ENOENT.into());
    }
    if children.is_empty() {
        omap::remove(o, &key)?;
    } else {
        omap::put(o, &key, &children)?;
    }
    Ok(Bytes::new())
}

pub fn get_children(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let parent: OldParent = args(input)?;
    Ok(denc::encode(&omap::get::<BTreeSet<Bytes>>(o, &denc::encode(&parent))?))
}

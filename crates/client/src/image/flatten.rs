//! Cutting a clone loose from its parent (`operation/FlattenRequest.cc`,
//! `image/DetachChildRequest.cc`).

use super::format::{ChildSpec, ParentSpec, feature, header_name};
use super::lock::NOTIFY_S;
use super::notice::Notice;
use super::script::{Desk, unless_missing};
use super::state::Shared;
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use types::{Errno, SnapId};

/// Takes everything over that the parent has, then forgets the parent.
pub async fn flatten(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    let (spec, objects) = desk.with(|s| {
        let image = s.image(slot);
        (image.head.parent.clone(), image.layout.objects(image.head.overlap))
    });
    let has_parent = desk.with(|s| s.image(slot).parent.is_some());
    let Some(spec) = spec.filter(|_| has_parent) else {
        let why = "it is no clone";
        return Err(desk.with(|s| s.error(slot, Errno::EINVAL, "flatten of", why)));
    };
    for object in 0..objects {
        desk.copy_object(slot, object).await?;
    }
    let (header, deep, snaps_have_parent) = desk.with(|s| {
        let image = s.image(slot);
        let snaps = image.head.snaps.iter().any(|s| s.overlap > 0);
        (image.header(), image.head.has(feature::DEEP_FLATTEN), snaps)
    });
    if deep || !snaps_have_parent {
        detach(desk, slot, &spec).await?;
    }
    let op = ObjectOp::new(header).call("rbd", "parent_detach", "").as_write();
    unless_missing(desk.op(op).await)?;
    // The parent is closed by the refresh that follows.
    desk.with(|s| {
        let image = s.image_mut(slot);
        image.head.overlap = 0;
        image.head_changes += 1;
        image.refresh_needed = true;
    });
    Ok(())
}

/// The last snapshot that shows the parent is about to go: then the parent may go, too.
pub async fn detach_if_last(desk: &Desk, slot: usize, snap: SnapId) -> Result<(), ClientError> {
    let spec = desk.with(|s| last_reference(s, slot, snap));
    match spec {
        Some(spec) => detach(desk, slot, &spec).await,
        None => Ok(()),
    }
}

fn last_reference(s: &Shared, slot: usize, snap: SnapId) -> Option<ParentSpec> {
    let head = &s.image(slot).head;
    let shows = head.snap(snap).is_some_and(|s| s.overlap > 0);
    let others = head.snaps.iter().any(|s| s.info.id != snap && s.overlap > 0);
    head.parent.clone().filter(|_| shows && !others && head.overlap == 0)
}

/// Takes the image off its parent's list of clones, whichever of the two it is on.
pub async fn detach(desk: &Desk, slot: usize, parent: &ParentSpec) -> Result<(), ClientError> {
    let (child, own) = desk.with(|s| {
        let image = s.image(slot);
        let (pool, nspace, image_id) = (image.pool, image.nspace.clone(), image.id.clone());
        (ChildSpec { pool, image_id, nspace }, image.meta("rbd_children".to_owned()))
    });
    let header = Object::new(parent.pool, header_name(&parent.image_id));
    let header = header.in_namespace(parent.nspace.clone());
    let input = denc::encode(&(parent.snap, &child));
    let op = ObjectOp::new(header.clone()).call("rbd", "child_detach", input).as_write();
    match desk.op(op).await {
        Ok(_) => {
            let told = Notice::HeaderUpdate.encode();
            let _ = desk.notify(header, told, NOTIFY_S).await;
            return Ok(());
        }
        Err(e) if matches!(e.errno, Errno::ENOENT | Errno::EINVAL) => {}
        Err(e) => return Err(e),
    }
    // A clone of format 1.
    let pool = parent.pool.0 as u64;
    let input = denc::encode(&(((pool, &parent.image_id), parent.snap), &child.image_id));
    let op = ObjectOp::new(own).call("rbd", "remove_child", input).as_write();
    unless_missing(desk.op(op).await).map(drop)
}

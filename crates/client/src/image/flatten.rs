//! Cutting a clone loose from its parent (`operation/FlattenRequest.cc`,
//! `image/DetachChildRequest.cc`).

use super::format::{ChildSpec, ParentSpec, SnapInfo, SnapKind, feature, header_name};
use super::header::{At, close, open};
use super::lock::NOTIFY_S;
use super::maintain::{Change, goes_on, run};
use super::notice::Notice;
use super::script::{Desk, unless_missing};
use super::snapshot::AT_A_TIME;
use super::state::Shared;
use super::{OpenImage, trash};
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use crate::reply::OpReply;
use std::cell::Cell;
use std::collections::VecDeque;
use types::{Errno, SnapId};

/// Objects that are copied at a time have no more bytes together, unless it is one.
const MAX_COPIED_BYTES: u64 = 64 << 20;
/// Images of which is remembered how far they were flattened; others begin anew.
const MAX_FLATTENED: usize = 256;

/// How many objects images have taken over from their parents, by their headers: tried again, they go on behind
/// them. What was taken over stays: an object that hides the parent's is not removed by anybody, nor is it missing in
/// older snapshots.
#[derive(Default)]
pub struct Flattened(VecDeque<(Object, ParentSpec, u64)>);

impl Flattened {
    fn objects(&self, header: &Object, parent: &ParentSpec) -> u64 {
        let known = self.0.iter().find(|(of, from, _)| of == header && from == parent);
        known.map_or(0, |(_, _, objects)| *objects)
    }

    fn note(&mut self, header: Object, parent: ParentSpec, objects: u64) {
        self.forget(&header);
        if self.0.len() >= MAX_FLATTENED {
            self.0.pop_front();
        }
        self.0.push_back((header, parent, objects));
    }

    fn forget(&mut self, header: &Object) {
        self.0.retain(|(of, ..)| of != header);
    }
}

/// Takes everything over that the parent has, then forgets the parent.
pub async fn flatten(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    let (spec, has_parent) =
        desk.with(|s| (s.image(slot).head.parent.clone(), s.image(slot).parent.is_some()));
    let Some(spec) = spec.filter(|_| has_parent) else {
        let why = "it is no clone";
        return Err(desk.with(|s| s.error(slot, Errno::EINVAL, "flatten of", why)));
    };
    copy_objects(desk, slot, &spec).await?;
    desk.with(|s| {
        s.keeps_lock(slot)?;
        if s.image(slot).head.parent.as_ref() == Some(&spec) {
            return Ok(());
        }
        // By a migration of the parent: what was copied is the same, but another image has it on its list.
        Err(s.error(slot, Errno::ESTALE, "flatten of", "its parent has become another one"))
    })?;
    let (header, deep, snaps_have_parent) = desk.with(|s| {
        let image = s.image(slot);
        let snaps = image.head.snaps.iter().any(|s| s.overlap > 0);
        (image.header(), image.head.has(feature::DEEP_FLATTEN), snaps)
    });
    let is_last = deep || !snaps_have_parent;
    if is_last {
        detach(desk, slot, &spec).await?;
    }
    let op = ObjectOp::new(header).call("rbd", "parent_detach", "").as_write();
    unless_missing(desk.op(op).await)?;
    desk.with(|s| {
        s.flattened.forget(&s.image(slot).header());
        // The parent is closed by the refresh that follows.
        let image = s.image_mut(slot);
        image.head.overlap = 0;
        image.head_changes += 1;
        image.refresh_needed = true;
        image.left_parent = is_last.then_some(spec);
    });
    Ok(())
}

/// Takes everything over that the parent has, from where it was stopped the last time.
async fn copy_objects(desk: &Desk, slot: usize, spec: &ParentSpec) -> Result<(), ClientError> {
    let (objects, object_bytes, before) = desk.with(|s| {
        let image = s.image(slot);
        let before = s.flattened.objects(&image.header(), spec);
        let layout = &image.layout;
        (layout.objects(image.head.overlap), layout.object_bytes(), before)
    });
    let at_a_time = usize::try_from(MAX_COPIED_BYTES / object_bytes).unwrap_or(1);
    let at_a_time = at_a_time.clamp(1, AT_A_TIME);
    let tickets = (before..objects).map(|object| desk.with(|s| s.copy_object(slot, object)));
    let (judged, done) = (Cell::new(before), Cell::new(before));
    let judge = |copied: Result<OpReply, ClientError>| {
        let object = judged.replace(judged.get() + 1);
        copied?;
        // Behind one that failed nothing counts.
        if done.get() == object {
            done.set(object + 1);
        }
        goes_on(desk, slot, done.get(), objects)
    };
    let copied = desk.all_of(at_a_time, tickets, judge).await;
    desk.with(|s| {
        // What was written when the lock was gone is not in the object map.
        if s.keeps_lock(slot).is_ok() {
            s.flattened.note(s.image(slot).header(), spec.clone(), done.get());
        }
    });
    copied
}

/// The last snapshot that shows the parent is about to go: then the parent, which this gives, may go, too.
pub async fn detach_if_last(
    desk: &Desk,
    slot: usize,
    snap: SnapId,
) -> Result<Option<ParentSpec>, ClientError> {
    let spec = desk.with(|s| last_reference(s, slot, snap));
    if let Some(spec) = &spec {
        detach(desk, slot, spec).await?;
    }
    Ok(spec)
}

fn last_reference(s: &Shared, slot: usize, snap: SnapId) -> Option<ParentSpec> {
    let head = &s.image(slot).head;
    let shows = head.snap(snap).is_some_and(|s| s.overlap > 0);
    let others = head.snaps.iter().any(|s| s.info.id != snap && s.overlap > 0);
    head.parent.clone().filter(|_| shows && !others && head.overlap == 0)
}

/// Takes the image off its parent's list of clones, whichever of the two it is on. The parent must stay as long as the
/// image's header names it: else the image cannot be opened.
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

/// A snapshot that was removed, but was kept for its clones, goes with the last of them: when that does not name it
/// any more. So does an image that was moved to the trash until then. That may take hours, for which nobody else should
/// have to wait, and is not given up halfway, as what is left could be restored.
pub async fn remove_if_trashed(desk: &Desk, parent: &ParentSpec) {
    match remove_trashed(&desk.for_nobody(), parent).await {
        Err(error) if error.errno != Errno::ENOENT => {
            tracing::warn!(%error, "a removed snapshot stays though no clone needs it any more");
        }
        _ => {}
    }
}

async fn remove_trashed(desk: &Desk, parent: &ParentSpec) -> Result<(), ClientError> {
    let header = Object::new(parent.pool, header_name(&parent.image_id));
    let op = ObjectOp::new(header.in_namespace(parent.nspace.clone()));
    let op = op.call("rbd", "snapshot_get", denc::encode(&parent.snap));
    let snap: SnapInfo = desk.op(op).await?.get(0)?;
    if snap.child_count > 0 || !matches!(snap.kind, SnapKind::Trash(_)) {
        return Ok(());
    }
    let image = OpenImage::by_id(parent.pool, &parent.image_id);
    let image = image.in_namespace(parent.nspace.clone());
    let slot = Box::pin(open(desk, image, At::Head, 0)).await?;
    let removed = Box::pin(run(desk, slot, Change::SnapRemove(snap.name, snap.kind))).await;
    close(desk, slot).await;
    removed?;
    Box::pin(trash::remove_parent(desk, parent)).await
}

#[cfg(test)]
mod tests {
    use super::super::ImageRequest;
    use super::super::notice::Peer;
    use super::super::stage::{End, Stage};
    use super::*;
    use crate::outcome::Outcome;

    const OBJECTS: u64 = 40;

    /// A clone of which five objects have been taken over.
    fn after_five() -> (Stage, usize, ImageRequest, End<Result<(), ClientError>>) {
        let (mut stage, slot) = Stage::locked_clone(OBJECTS);
        let (id, done) =
            stage.request(|desk| async move { run(&desk, slot, Change::Flatten).await });
        while stage.with(|s| s.works[&id].done) < 5 {
            let asked = stage.asked.pop_front().expect("it is not done");
            stage.ok(asked);
        }
        (stage, slot, id, done)
    }

    /// A large parent takes hours.
    #[test]
    fn a_parent_that_goes_with_its_last_clone_keeps_nobody_from_the_lock_and_goes_as_a_whole() {
        let (mut stage, slot) = Stage::locked_clone(OBJECTS);
        let (id, done) =
            stage.request(|desk| async move { run(&desk, slot, Change::Flatten).await });
        let looked = stage.until("rbd_header.2: rbd.snapshot_get");
        stage.be_no_clone();
        stage.has_snap(SnapKind::Trash("s".to_owned()), "formerly s", 0);
        stage.hear(slot, Notice::RequestLock(Peer { gid: 4200, handle: 1 }));
        let unlock = stage.until("rbd_header.1: lock.unlock");
        stage.ok(unlock);
        let before = stage.with(|s| s.works[&id].done);
        stage.cancel(id);
        stage.ok(looked);
        let give_back = stage.until("DeleteSnap");
        stage.answer(give_back, Outcome::PoolOp(Ok(None)));
        let remove = stage.until("rbd_header.2: rbd.snapshot_remove");
        stage.ok(remove);
        let trash = stage.until("rbd_trash: rbd.trash_get");
        assert_eq!(stage.with(|s| s.works[&id].done), before, "it is no part of the request");
        stage.fail(trash, Errno::ENOENT);
        stage.serve();
        done.take().unwrap().unwrap();
    }

    /// Its list of clones is not the one we are on.
    #[test]
    fn a_parent_that_is_another_one_in_the_end_is_not_left() {
        let (mut stage, slot) = Stage::locked_clone(2);
        let done = stage.script(|desk| async move { run(&desk, slot, Change::Flatten).await });
        let copy = stage.until("data.");
        stage.with(|s| {
            let parent = s.image_mut(slot).head.parent.as_mut().expect("it is a clone");
            parent.image_id = "3".to_owned();
        });
        stage.ok(copy);
        stage.serve();
        let error = done.take().unwrap().unwrap_err();
        assert_eq!(error.errno, Errno::ESTALE, "{error}");
    }

    /// The map that the next holder reads says of what is written now that it is not there.
    #[test]
    fn without_its_lock_nothing_more_is_taken_over() {
        let (mut stage, slot, _, done) = after_five();
        stage.with(|s| {
            let broken = s.error(slot, Errno::EBUSY, "lock of", "it was broken");
            s.lock_is_lost(slot, &broken);
        });
        stage.serve();
        assert_eq!(done.take().unwrap().unwrap_err().errno, Errno::EBUSY);
        let known = stage.with(|s| s.flattened.objects(&s.image(slot).header(), &spec_of(s, slot)));
        assert_eq!(known, 0);
    }

    fn spec_of(s: &Shared, slot: usize) -> ParentSpec {
        s.image(slot).head.parent.clone().expect("it is a clone")
    }

    /// Else one that is cut short each time would never end.
    #[test]
    fn an_image_that_is_opened_again_is_flattened_from_where_it_was() {
        let (mut stage, slot, id, done) = after_five();
        stage.cancel(id);
        stage.serve();
        assert_eq!(done.take().unwrap().unwrap_err().errno, Errno::ECANCELED);
        let closed = stage.script(|desk| async move { close(&desk, slot).await });
        stage.serve();
        closed.take().unwrap();
        stage.be_no_clone();
        let slot = stage.locked();
        stage.be_clone(slot);
        stage.script(|desk| async move { run(&desk, slot, Change::Flatten).await });
        let first = stage.until("data.").text;
        let object = first.split(['.', ':']).nth(1).expect("a number");
        assert!(u64::from_str_radix(object, 16).unwrap() >= 5, "{first}");
    }
}

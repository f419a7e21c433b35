//! Growing and shrinking (`operation/ResizeRequest.cc`, `operation/TrimRequest.cc`). Runs under the
//! lock.

use super::invalid::invalidate_map;
use super::layout::MAX_IMAGE_BYTES;
use super::maintain::{freeze, goes_on, thaw};
use super::object_map::State;
use super::script::Desk;
use super::snapshot::AT_A_TIME;
use super::write::{locked, map_request};
use crate::error::ClientError;
use crate::op::ObjectOp;
use crate::reply::OpReply;
use std::cell::Cell;
use types::{Errno, SnapId};

/// Objects that one change of an object map is for (`object_map/UpdateRequest.cc`).
pub const MAX_OBJECTS_PER_UPDATE: u64 = 256 << 10;
/// So many objects are looked at in one turn: more would keep the process from everything else.
const OBJECTS_A_TURN: u64 = 10_000;
/// Images with more objects cannot have an object map (`cls_rbd.cc`).
const MAX_MAPPED_OBJECTS: u64 = 256_000_000;

pub async fn resize(
    desk: &Desk,
    slot: usize,
    size: u64,
    allow_shrink: bool,
) -> Result<(), ClientError> {
    let old = desk.with(|s| s.image(slot).head.size);
    let why = match size {
        _ if size > MAX_IMAGE_BYTES => Some("an image cannot be that large"),
        _ if size < old && !allow_shrink => Some("it would lose data, and that is not allowed"),
        _ => None,
    };
    if let Some(why) = why {
        return Err(desk.with(|s| s.error(slot, Errno::EINVAL, "resize of", why)));
    }
    freeze(desk, slot).await?;
    let result = resize_frozen(desk, slot, size).await;
    thaw(desk, slot);
    result
}

/// The same while nothing is written.
pub async fn resize_frozen(desk: &Desk, slot: usize, size: u64) -> Result<(), ClientError> {
    let old = desk.with(|s| s.image(slot).head.size);
    if size == old {
        return Ok(());
    }
    if size > old {
        resize_map(desk, slot, size).await?;
    } else {
        trim(desk, slot, old, size).await?;
    }
    let header = desk.with(|s| s.image(slot).header());
    let op = ObjectOp::new(header).call("rbd", "set_size", denc::encode(&size)).as_write();
    desk.op(op).await?;
    desk.with(|s| {
        let image = s.image_mut(slot);
        image.head.size = size;
        image.head.overlap = image.head.overlap.min(size);
        image.head_changes += 1;
    });
    if size < old { resize_map(desk, slot, size).await } else { Ok(()) }
}

async fn resize_map(desk: &Desk, slot: usize, size: u64) -> Result<(), ClientError> {
    let (has_map, objects, object) = desk.with(|s| {
        let image = s.image(slot);
        let objects = image.layout.objects(size);
        (image.map.is_some(), objects, image.map_object(SnapId::HEAD))
    });
    if !has_map {
        return Ok(());
    }
    if objects > MAX_MAPPED_OBJECTS {
        let why = "with so many objects it cannot have an object map";
        return Err(desk.with(|s| s.error(slot, Errno::EINVAL, "resize of", why)));
    }
    let input = denc::encode(&(objects, State::Nonexistent as u8));
    let op = locked(ObjectOp::new(object)).call("rbd", "object_map_resize", input).as_write();
    match desk.op(op).await {
        Ok(_) => {}
        // The map says that something is there beyond the end; it has been wrong, then.
        Err(error) if error.errno == Errno::ESTALE => {
            invalidate_map(desk, slot, SnapId::HEAD).await?;
        }
        Err(error) => return Err(error),
    }
    desk.with(|s| {
        if let Some(map) = &mut s.image_mut(slot).map {
            map.resize(objects);
        }
    });
    Ok(())
}

/// Changes a range of the head's object map, if there is one.
async fn change_range(
    desk: &Desk,
    slot: usize,
    (start, end): (u64, u64),
    new: State,
    current: State,
) -> Result<(), ClientError> {
    let mut at = start;
    while at < end && desk.with(|s| s.image(slot).map.is_some()) {
        let until = end.min(at + MAX_OBJECTS_PER_UPDATE);
        let op = desk.with(|s| {
            let image = s.image(slot);
            let map = image.map.as_ref()?;
            let is_current = |o: &u64| match (map.get(*o), current) {
                (Some(State::Clean), State::Exists) => true,
                (Some(state), current) => state == current,
                (None, _) => false,
            };
            (at..until)
                .any(|o| is_current(&o))
                .then(|| map_request(image.map_object(SnapId::HEAD), at, until, new, Some(current)))
        });
        if let Some(op) = op {
            match desk.op(op).await {
                Ok(_) => {}
                Err(e) if matches!(e.errno, Errno::EBLOCKLISTED | Errno::EBUSY) => return Err(e),
                Err(error) => {
                    tracing::warn!(%error, "the object map is marked as invalid");
                    invalidate_map(desk, slot, SnapId::HEAD).await?;
                }
            }
            desk.with(|s| {
                if let Some(map) = &mut s.image_mut(slot).map {
                    map.change(at, until, new, Some(current));
                }
            });
        }
        at = until;
        desk.is_wanted()?;
        // Where nothing is to be changed there is no request either. To look at these takes about a millisecond.
        desk.give_way().await;
    }
    Ok(())
}

/// Removes everything from `new` on.
pub async fn trim(desk: &Desk, slot: usize, old: u64, new: u64) -> Result<(), ClientError> {
    let (layout, overlap, snaps) = desk.with(|s| {
        let image = s.image(slot);
        let overlap = if image.parent.is_some() { image.head.overlap } else { 0 };
        (image.layout, overlap, !image.head.snapc.snaps.is_empty())
    });
    let periods = new.div_ceil(layout.period());
    let from = periods * layout.stripe_count();
    let end = layout.objects(old);
    if from < end {
        change_range(desk, slot, (from, end), State::Pending, State::Exists).await?;
        let mut whole = from;
        if snaps {
            // What the parent has there must be kept for the snapshots.
            let until = layout.objects(overlap).min(end).max(from);
            copy_and_remove(desk, slot, from, until).await?;
            whole = until;
        }
        remove_objects(desk, slot, whole, end).await?;
        change_range(desk, slot, (from, end), State::Nonexistent, State::Pending).await?;
    }
    let boundary = (periods * layout.period()).min(old);
    if boundary > new {
        for run in layout.by_object(new, boundary - new) {
            let Some(first) = run.first() else { continue };
            let len: u64 = run.iter().map(|p| p.len).sum();
            // An object that begins here holds nothing else.
            let len = if first.at == 0 { layout.object_bytes() } else { len };
            desk.discard(slot, first.object, first.at, len, true).await?;
        }
    }
    Ok(())
}

async fn copy_and_remove(desk: &Desk, slot: usize, from: u64, end: u64) -> Result<(), ClientError> {
    let whole = desk.with(|s| s.image(slot).layout.object_bytes());
    for object in from..end {
        desk.discard(slot, object, 0, whole, false).await?;
        desk.is_wanted()?;
        desk.with(|s| s.goes_on(slot))?;
    }
    Ok(())
}

async fn remove_objects(desk: &Desk, slot: usize, from: u64, end: u64) -> Result<(), ClientError> {
    let existing = |object: &u64| desk.with(|s| s.image(slot).may_exist(*object));
    let at = Cell::new(from);
    let judge = |answer: Result<OpReply, ClientError>| {
        super::script::unless_missing(answer.map(drop))?;
        goes_on(desk, slot, at.get() - from, end - from)
    };
    while at.get() < end {
        let start = at.get();
        let until = end.min(start + OBJECTS_A_TURN);
        let ops = (start..until).filter(existing).map(|object| {
            at.set(object);
            desk.with(|s| {
                let image = s.image(slot);
                let snapc = image.head.snapc.clone();
                ObjectOp::new(image.data(object)).remove().with_snaps(snapc).full_try()
            })
        });
        desk.many(AT_A_TIME, ops, judge).await?;
        at.set(until);
        desk.give_way().await;
        goes_on(desk, slot, until - from, end - from)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;
    use std::time::Duration;

    /// Many turns: six for the objects, and one for each change of the map.
    const OBJECTS: u64 = 6 * OBJECTS_A_TURN;

    fn sparse() -> (Stage, usize) {
        let mut stage = Stage::new();
        stage.map = vec![State::Nonexistent; OBJECTS as usize];
        stage.header.size = OBJECTS << super::super::stage::ORDER;
        let slot = stage.locked();
        (stage, slot)
    }

    #[test]
    fn what_looks_at_many_objects_gives_way_and_can_be_canceled() {
        for canceled in [false, true] {
            let (mut stage, slot) = sparse();
            let size = stage.header.size;
            let (id, end) = stage.request(|desk| async move { trim(&desk, slot, size, 0).await });
            let mut turns = 0;
            while end.borrow().is_none() {
                assert!(stage.asked.is_empty(), "{:?}", stage.asked);
                turns += 1;
                if canceled && turns == 3 {
                    stage.cancel(id);
                }
                stage.pass(Duration::ZERO);
            }
            let errno = end.take().unwrap().err().map(|error| error.errno);
            let wanted = if canceled { (3, Some(Errno::ECANCELED)) } else { (8, None) };
            assert_eq!((turns, errno), wanted);
        }
    }

    #[test]
    fn an_object_map_that_is_not_there_takes_no_time() {
        let (mut stage, slot) = sparse();
        stage.with(|s| s.image_mut(slot).map = None);
        let size = stage.header.size;
        stage.script(|desk| async move { trim(&desk, slot, size, 0).await });
        assert_eq!(stage.asked.len(), AT_A_TIME, "objects are removed at once");
    }
}

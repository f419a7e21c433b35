//! Snapshots of an image (`operation/Snapshot*Request.cc`). All run under the lock.

use super::format::{PROTECTED, SnapInfo, SnapKind, UNPROTECTED, UNPROTECTING, feature};
use super::invalid::invalidate_map;
use super::lock::NOTIFY_S;
use super::maintain::{freeze, thaw};
use super::notice::{AsyncId, Notice, result_of};
use super::object_map::{ObjectMap, State};
use super::script::{Desk, remove_object, unless_missing};
use super::state::{Shared, Snap};
use super::write::{locked, map_request};
use crate::error::{ClientError, errno_of};
use crate::op::{Object, ObjectOp};
use bytes::Bytes;
use types::{ByteString, Errno, SnapId};

/// Requests on objects that such a procedure has in flight (`rbd_concurrent_management_ops`).
pub const AT_A_TIME: usize = 10;
/// Peers are asked to be quiet so often, [`NOTIFY_S`] each (`rbd_quiesce_notification_attempts`).
const QUIESCE_TRIES: usize = 10;
/// A snapshot's id may be outrun by another client's, so often.
const MAX_TRIES: usize = 20;

fn header_call(header: Object, method: &str, input: impl denc::Encode) -> ObjectOp {
    ObjectOp::new(header).call("rbd", method, denc::encode(&input)).as_write()
}

fn find(s: &Shared, slot: usize, name: &str, kind: &SnapKind) -> Result<Snap, ClientError> {
    let is_it = |snap: &&Snap| match (kind, &snap.info.kind) {
        (SnapKind::Trash(_), SnapKind::Trash(_)) => snap.info.name == name,
        (kind, own) => kind == own && snap.info.name == name,
    };
    let found = s.image(slot).head.snaps.iter().find(is_it).cloned();
    found.ok_or_else(|| {
        let what = format!("snapshot {name} of {}", s.image(slot).title());
        ClientError::new(Errno::ENOENT, what, "there is no such snapshot")
    })
}

fn find_user(desk: &Desk, slot: usize, name: &str) -> Result<Snap, ClientError> {
    desk.with(|s| find(s, slot, name, &SnapKind::User))
}

pub async fn create(desk: &Desk, slot: usize, name: String) -> Result<(), ClientError> {
    if desk.with(|s| find(s, slot, &name, &SnapKind::User)).is_ok() {
        let why = "there is a snapshot of that name";
        return Err(desk.with(|s| s.error(slot, Errno::EEXIST, "snapshot of", why)));
    }
    let (header, id) = desk.with(|s| {
        let request = s.new_request().0;
        (s.image(slot).header(), AsyncId { peer: s.peer(slot), request })
    });
    let result = match quiesce(desk, slot, id).await {
        Ok(()) => create_quietly(desk, slot, name).await,
        Err(error) => Err(error),
    };
    let _ = desk.notify(header, Notice::Unquiesce(id).encode(), NOTIFY_S).await;
    result
}

/// Peers with something to be made quiet (rbd-nbd) do so now. Asked again under the same id, they go on with what they
/// have begun (`ImageWatcher::notify_quiesce`).
async fn quiesce(desk: &Desk, slot: usize, id: AsyncId) -> Result<(), ClientError> {
    let header = desk.with(|s| s.image(slot).header());
    let fail = |errno, why| Err(desk.with(|s| s.error(slot, errno, "snapshot of", why)));
    for _ in 0..QUIESCE_TRIES {
        let payload = Notice::Quiesce(id).encode();
        let heard = desk.notify(header.clone(), payload, NOTIFY_S).await?;
        let mut answers = heard.replies.iter().filter_map(|(_, reply)| result_of(reply));
        // Most have nothing to be made quiet.
        let no = answers.find(|r| *r < 0 && *r != Errno::EOPNOTSUPP.wire());
        if let Some(no) = no {
            return fail(errno_of(no), "a client that has it open could not make it quiet");
        }
        if heard.missed.is_empty() {
            return Ok(());
        }
    }
    fail(Errno::ETIMEDOUT, "a client that has it open does not say that it is quiet")
}

async fn create_quietly(desk: &Desk, slot: usize, name: String) -> Result<(), ClientError> {
    freeze(desk, slot).await?;
    let result = add(desk, slot, name).await;
    thaw(desk, slot);
    result
}

async fn add(desk: &Desk, slot: usize, name: String) -> Result<(), ClientError> {
    let (header, pool) = desk.with(|s| (s.image(slot).header(), s.image(slot).data_pool));
    for _ in 0..MAX_TRIES {
        let id = desk.create_snap(pool).await?;
        let op = header_call(header.clone(), "snapshot_add", (&name, id, SnapKind::User));
        let added = match desk.op(op).await {
            Err(error) if error.reply.is_none() => look_for(desk, header.clone(), id, error).await,
            answered => answered.map(drop),
        };
        match added {
            Ok(()) => {
                desk.with(|s| note_added(s, slot, id, name));
                return map_snapshot(desk, slot, id).await;
            }
            // It may be there: an id too many costs nothing, but without its id a snapshot's data are trimmed.
            Err(error) if error.reply.is_none() => return Err(error),
            Err(error) => {
                desk.delete_snap(pool, id).await?;
                if error.errno != Errno::ESTALE {
                    return Err(error);
                }
            }
        }
    }
    let why = "others make snapshots all the time";
    Err(desk.with(|s| s.error(slot, Errno::ESTALE, "snapshot of", why)))
}

/// Nobody answered that a snapshot was added; it may have been nevertheless. What was sent before is carried out
/// before, so that whoever looks now sees it.
async fn look_for(
    desk: &Desk,
    header: Object,
    id: SnapId,
    unanswered: ClientError,
) -> Result<(), ClientError> {
    let op = ObjectOp::new(header).call("rbd", "snapshot_get", denc::encode(&id));
    match desk.op(op).await {
        Ok(_) => Ok(()),
        Err(found) if found.is_no_object() => Err(ClientError { reply: found.reply, ..unanswered }),
        Err(_) => Err(unanswered),
    }
}

/// From now on it is written with the snapshot in mind.
fn note_added(s: &mut Shared, slot: usize, id: SnapId, name: String) {
    let timestamp = s.now.wall;
    let image = s.image_mut(slot);
    let head = &mut image.head;
    let kind = SnapKind::User;
    let info = SnapInfo { id, kind, name, size: head.size, timestamp, child_count: 0 };
    head.snapc.seq = id;
    head.snapc.snaps.insert(0, id);
    let (flags, overlap) = (head.flags, head.overlap);
    head.snaps.push(Snap { info, flags, protection: UNPROTECTED, overlap });
    if image.unmarked.contains(&SnapId::HEAD) {
        image.unmarked.insert(id);
    }
    image.head_changes += 1;
}

/// The object map of a new snapshot is a copy of the head's.
async fn map_snapshot(desk: &Desk, slot: usize, id: SnapId) -> Result<(), ClientError> {
    if desk.with(|s| s.image(slot).map.is_none()) {
        return Ok(());
    }
    let (head, own, fast_diff) = desk.with(|s| {
        let image = s.image(slot);
        let fast_diff = image.head.has(feature::FAST_DIFF);
        (image.map_object(SnapId::HEAD), image.map_object(id), fast_diff)
    });
    let read = desk.op(ObjectOp::new(head.clone()).read(0, 0)).await.and_then(|r| r.bytes(0));
    let copied = match read {
        Ok(bytes) => desk.op(ObjectOp::new(own).write_full(bytes)).await.map(drop),
        Err(error) => {
            invalidate_map(desk, slot, SnapId::HEAD).await?;
            Err(error)
        }
    };
    if let Err(error) = copied {
        tracing::warn!(%error, "a snapshot has no object map");
        invalidate_map(desk, slot, id).await?;
        return unless_blocklisted(error);
    }
    if fast_diff {
        let op = locked(ObjectOp::new(head)).call("rbd", "object_map_snap_add", Bytes::new());
        if let Err(error) = desk.op(op.as_write()).await {
            invalidate_map(desk, slot, SnapId::HEAD).await?;
            return unless_blocklisted(error);
        }
        desk.with(|s| {
            if let Some(map) = &mut s.image_mut(slot).map {
                map.snapshot();
            }
        });
    }
    Ok(())
}

/// Trouble with an object map makes it invalid; the image goes on without.
fn unless_blocklisted(error: ClientError) -> Result<(), ClientError> {
    match error.errno {
        Errno::EBLOCKLISTED => Err(error),
        _ => Ok(()),
    }
}

pub async fn remove(
    desk: &Desk,
    slot: usize,
    name: &str,
    kind: &SnapKind,
) -> Result<(), ClientError> {
    let snap = desk.with(|s| find(s, slot, name, kind))?;
    let id = snap.info.id;
    let (header, pool) = desk.with(|s| (s.image(slot).header(), s.image(slot).data_pool));
    if !matches!(snap.info.kind, SnapKind::Trash(_)) {
        match desk.op(header_call(header.clone(), "snapshot_trash_add", id)).await {
            Ok(_) => {}
            Err(error) if error.errno == Errno::EEXIST => {}
            Err(error) => return Err(error),
        }
    }
    let op = ObjectOp::new(header.clone()).call("rbd", "snapshot_get", denc::encode(&id));
    let info: SnapInfo = desk.op(op).await?.get(0)?;
    if info.child_count > 0 {
        // It stays in the trash for its clones.
        let was_there = matches!(snap.info.kind, SnapKind::Trash(_));
        let why = "clones need it";
        let busy = || desk.with(|s| s.error(slot, Errno::EBUSY, "removing a snapshot of", why));
        return if was_there { Err(busy()) } else { Ok(()) };
    }
    let parent = super::flatten::detach_if_last(desk, slot, id).await?;
    unmap_snapshot(desk, slot, id).await?;
    unless_missing(desk.delete_snap(pool, id).await)?;
    desk.op(header_call(header, "snapshot_remove", id)).await?;
    desk.with(|s| {
        let image = s.image_mut(slot);
        image.head.snapc.snaps.retain(|other| *other != id);
        image.head.snaps.retain(|other| other.info.id != id);
        image.head_changes += 1;
        image.left_parent = parent.or(image.left_parent.take());
    });
    Ok(())
}

/// Removes the object map of a snapshot; what was written before it counts for the next one.
async fn unmap_snapshot(desk: &Desk, slot: usize, id: SnapId) -> Result<(), ClientError> {
    let (has_map, own, fast_diff, next, invalid) = desk.with(|s| {
        let image = s.image(slot);
        let newer = image.head.snaps.iter().map(|s| s.info.id).find(|other| *other > id);
        let invalid =
            image.head.snap(id).is_some_and(|s| s.flags & super::format::MAP_INVALID != 0);
        let fast_diff = image.head.has(feature::FAST_DIFF);
        let next = newer.unwrap_or(SnapId::HEAD);
        (image.map.is_some(), image.map_object(id), fast_diff, next, invalid)
    });
    if !has_map {
        return Ok(());
    }
    if fast_diff {
        merge_map(desk, slot, &own, next, invalid).await?;
    }
    remove_object(desk, own).await
}

async fn merge_map(
    desk: &Desk,
    slot: usize,
    own: &Object,
    next: SnapId,
    invalid: bool,
) -> Result<(), ClientError> {
    let load = ObjectOp::new(own.clone()).call("rbd", "object_map_load", "");
    let bytes = match desk.op(load).await.and_then(|r| r.bytes(0)) {
        Ok(bytes) if !invalid => bytes,
        Ok(_) => {
            invalidate_map(desk, slot, next).await?;
            return Ok(());
        }
        Err(error) if error.errno == Errno::ENOENT => return Ok(()),
        Err(error) => {
            invalidate_map(desk, slot, next).await?;
            return unless_blocklisted(error);
        }
    };
    let is_head = next == SnapId::HEAD;
    let mut op = ObjectOp::new(desk.with(|s| s.image(slot).map_object(next)));
    if is_head {
        op = locked(op);
    }
    let op = op.call("rbd", "object_map_snap_remove", bytes.clone()).as_write();
    if let Err(error) = desk.op(op).await {
        invalidate_map(desk, slot, next).await?;
        return unless_blocklisted(error);
    }
    if is_head && let Ok(snap) = denc::decode::<ObjectMap>(&bytes) {
        desk.with(|s| {
            if let Some(map) = &mut s.image_mut(slot).map {
                map.forget_snapshot(&snap);
            }
        });
    }
    Ok(())
}

pub async fn rename(desk: &Desk, slot: usize, id: SnapId, name: String) -> Result<(), ClientError> {
    let header = desk.with(|s| s.image(slot).header());
    desk.op(header_call(header, "snapshot_rename", (id, &name))).await?;
    desk.with(|s| {
        let image = s.image_mut(slot);
        if let Some(snap) = image.head.snaps.iter_mut().find(|s| s.info.id == id) {
            snap.info.name = name;
        }
        image.head_changes += 1;
    });
    Ok(())
}

async fn set_protection(
    desk: &Desk,
    slot: usize,
    id: SnapId,
    protection: u8,
) -> Result<(), ClientError> {
    let header = desk.with(|s| s.image(slot).header());
    desk.op(header_call(header, "set_protection_status", (id, protection))).await?;
    desk.with(|s| {
        let image = s.image_mut(slot);
        if let Some(snap) = image.head.snaps.iter_mut().find(|s| s.info.id == id) {
            snap.protection = protection;
        }
        image.head_changes += 1;
    });
    Ok(())
}

pub async fn protect(desk: &Desk, slot: usize, name: &str) -> Result<(), ClientError> {
    let snap = find_user(desk, slot, name)?;
    if snap.protection == PROTECTED {
        let why = "it is protected already";
        return Err(desk.with(|s| s.error(slot, Errno::EBUSY, "protecting a snapshot of", why)));
    }
    set_protection(desk, slot, snap.info.id, PROTECTED).await
}

/// Clones of format 1 are looked for in every pool, in the default namespace and the image's own.
pub async fn unprotect(desk: &Desk, slot: usize, name: &str) -> Result<(), ClientError> {
    let snap = find_user(desk, slot, name)?;
    if snap.protection == UNPROTECTED {
        let why = "it is not protected";
        return Err(desk.with(|s| s.error(slot, Errno::EINVAL, "unprotecting a snapshot of", why)));
    }
    let id = snap.info.id;
    set_protection(desk, slot, id, UNPROTECTING).await?;
    let clones = find_clones(desk, slot, id).await;
    let (protection, result) = match clones {
        Ok(false) => (UNPROTECTED, Ok(())),
        Ok(true) => {
            let why = "it has clones";
            let doing = "unprotecting a snapshot of";
            (PROTECTED, Err(desk.with(|s| s.error(slot, Errno::EBUSY, doing, why))))
        }
        Err(error) => (PROTECTED, Err(error)),
    };
    set_protection(desk, slot, id, protection).await?;
    result
}

/// Whether any pool knows of a clone of format 1.
async fn find_clones(desk: &Desk, slot: usize, id: SnapId) -> Result<bool, ClientError> {
    let (pools, key, own) = desk.with(|s| {
        let image = s.image(slot);
        let pool = image.pool.0 as u64;
        (s.pools.clone(), denc::encode(&((pool, &image.id), id)), image.nspace.clone())
    });
    for pool in pools {
        for nspace in [ByteString::default(), own.clone()] {
            let object = Object::new(pool, "rbd_children").in_namespace(nspace);
            let op = ObjectOp::new(object).call("rbd", "get_children", key.clone());
            match desk.op(op).await {
                Ok(_) => return Ok(true),
                // A pool that is not for images, or that was deleted.
                Err(e) if matches!(e.errno, Errno::ENOENT | Errno::EOPNOTSUPP) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(false)
}

pub async fn rollback(desk: &Desk, slot: usize, name: &str) -> Result<(), ClientError> {
    let snap = find_user(desk, slot, name)?;
    freeze(desk, slot).await?;
    let result = roll_back(desk, slot, &snap).await;
    thaw(desk, slot);
    result
}

async fn roll_back(desk: &Desk, slot: usize, snap: &Snap) -> Result<(), ClientError> {
    let id = snap.info.id;
    super::resize::resize_frozen(desk, slot, snap.info.size).await?;
    let (map, own) = desk.with(|s| {
        let image = s.image(slot);
        let head = image.map.as_ref().map(|_| image.map_object(SnapId::HEAD));
        (head, image.map_object(id))
    });
    let (layout, size) = desk.with(|s| (s.image(slot).layout, snap.info.size));
    // An object that neither the head has nor the snapshot need not be looked at.
    let known = match &map {
        Some(map) => claim_objects(desk, slot, map, &own, id, layout.objects(size)).await?,
        None => None,
    };
    let objects = (0..layout.objects(size)).filter(|object| match &known {
        Some((head, snap)) => head.may_exist(*object) || snap.may_exist(*object),
        None => true,
    });
    let ops = objects.map(|object| {
        desk.with(|s| {
            let image = s.image(slot);
            let snapc = image.head.snapc.clone();
            ObjectOp::new(image.data(object)).rollback(id).with_snaps(snapc)
        })
    });
    desk.many(AT_A_TIME, ops, |answer| unless_missing(answer.map(drop))).await?;
    if let Some(map) = &map {
        let is_done = roll_map_back(desk, slot, map, own, id).await?;
        match known {
            Some((_, snap)) if is_done && snap.len() >= layout.objects(size) => desk.with(|s| {
                if let Some(map) = &mut s.image_mut(slot).map {
                    *map = snap;
                }
            }),
            _ => super::lock::open_map(desk, slot).await?,
        }
    }
    Ok(())
}

/// Has the head's object map say that all exists that the head or the snapshot has, until the objects are as they
/// will be: whoever dies in between leaves a map that hides nothing. The maps as they were; `None` when one of
/// them is not known, and then the head's is not trusted from now on.
async fn claim_objects(
    desk: &Desk,
    slot: usize,
    map: &Object,
    own: &Object,
    id: SnapId,
    objects: u64,
) -> Result<Option<(ObjectMap, ObjectMap)>, ClientError> {
    let Some((head, snap)) = known_objects(desk, slot, own, id).await else {
        invalidate_map(desk, slot, SnapId::HEAD).await?;
        return Ok(None);
    };
    let is_new = |object: u64| !head.may_exist(object) && snap.may_exist(object);
    let mut at = 0;
    while at < objects {
        let most = objects.min(at + super::resize::MAX_OBJECTS_PER_UPDATE);
        let end = (at..most).find(|o| is_new(*o) != is_new(at)).unwrap_or(most);
        if is_new(at) {
            let op = map_request(map.clone(), at, end, State::Exists, None);
            desk.op(op).await?;
            // Also when it goes no further: what is stored says so now.
            desk.with(|s| {
                if let Some(map) = &mut s.image_mut(slot).map {
                    map.change(at, end, State::Exists, None);
                }
            });
        }
        at = end;
    }
    Ok(Some((head, snap)))
}

async fn known_objects(
    desk: &Desk,
    slot: usize,
    own: &Object,
    id: SnapId,
) -> Option<(ObjectMap, ObjectMap)> {
    let load = ObjectOp::new(own.clone()).call("rbd", "object_map_load", "");
    let snap = desk.op(load).await.and_then(|r| r.get::<ObjectMap>(0)).ok()?;
    desk.with(|s| {
        let image = s.image(slot);
        let own_flags = image.head.snap(id).map_or(0, |s| s.flags);
        let valid = image.map_is_valid() && own_flags & super::format::MAP_INVALID == 0;
        image.map.clone().filter(|_| valid).map(|head| (head, snap))
    })
}

/// Whether the head's object map is the snapshot's now; if not, it is marked as invalid.
async fn roll_map_back(
    desk: &Desk,
    slot: usize,
    map: &Object,
    own: Object,
    id: SnapId,
) -> Result<bool, ClientError> {
    let read = desk.op(ObjectOp::new(own).read(0, 0)).await.and_then(|r| r.bytes(0));
    let written = match read {
        Ok(bytes) => {
            let op = locked(ObjectOp::new(map.clone())).write_full(bytes);
            desk.op(op).await.map(drop)
        }
        Err(error) => {
            invalidate_map(desk, slot, id).await?;
            Err(error)
        }
    };
    match written {
        Ok(()) => Ok(true),
        Err(error) => {
            tracing::warn!(%error, "the object map could not be rolled back");
            invalidate_map(desk, slot, SnapId::HEAD).await?;
            unless_blocklisted(error).map(|()| false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Change;
    use super::super::io::Kind;
    use super::super::stage::{ORDER, Stage};
    use super::*;
    use crate::outcome::Outcome;

    /// Adds a snapshot `s` of the whole image to its header.
    fn add_snap(stage: &mut Stage) {
        stage.has_snap(SnapKind::User, "s", 0);
        stage.answers.push(("rbd.get_protection_status", denc::encode(&UNPROTECTED)));
    }

    #[test]
    fn what_a_rollback_brought_back_before_it_failed_can_be_discarded() {
        let mut stage = Stage::new();
        add_snap(&mut stage);
        let slot = stage.locked();
        // The head has nothing, the snapshot all.
        stage.map = vec![State::Exists; 4];
        let change = Change::SnapRollback("s".to_owned());
        let rolled = stage
            .script(|desk| async move { super::super::maintain::run(&desk, slot, change).await });
        let third = stage.until("data.0000000000000002");
        stage.fail(third, Errno::EIO);
        stage.serve();
        assert_eq!(rolled.take().unwrap().unwrap_err().errno, Errno::EIO);
        let discard = stage.submit(slot, Kind::Discard, 1, 1 << ORDER);
        stage.until("data.0000000000000001");
        assert_eq!(stage.end(discard), None);
    }

    #[test]
    fn a_rollback_that_is_done_leaves_the_map_of_the_snapshot() {
        let mut stage = Stage::new();
        add_snap(&mut stage);
        let slot = stage.locked();
        stage.map = vec![State::Exists, State::Nonexistent, State::Clean, State::Exists];
        let change = Change::SnapRollback("s".to_owned());
        let rolled = stage
            .script(|desk| async move { super::super::maintain::run(&desk, slot, change).await });
        stage.serve();
        rolled.take().unwrap().unwrap();
        let known = stage.with(|s| s.image(slot).map.clone()).unwrap();
        assert_eq!((0..4).map(|o| known.get(o).unwrap()).collect::<Vec<_>>(), stage.map);
    }

    /// One with a file system that is not quiet would be worth nothing.
    #[test]
    fn a_snapshot_waits_until_peers_are_quiet() {
        let mut stage = Stage::new();
        let slot = stage.locked();
        let make = |stage: &mut Stage| {
            let name = "new".to_owned();
            stage.script(|desk| async move { create(&desk, slot, name).await })
        };
        // One that has nothing to be made quiet, one that needs some time, one that fails.
        let made = make(&mut stage);
        let asked = stage.until("notify");
        stage.answer_notify(asked, Errno::EOPNOTSUPP.wire());
        stage.until("CreateSnap");
        assert!(made.take().is_none());
        let made = make(&mut stage);
        for _ in 0..3 {
            let asked = stage.until("notify");
            stage.miss_notify(asked);
        }
        let asked = stage.until("notify");
        stage.answer_notify(asked, Errno::EINVAL.wire());
        let asked = stage.until("notify");
        stage.answer_notify(asked, 0);
        assert_eq!(made.take().unwrap().unwrap_err().errno, Errno::EINVAL);
    }

    /// The OSD may have added the snapshot: without its id, what it shows would be trimmed.
    #[test]
    fn a_snapshot_that_may_be_there_keeps_its_id() {
        type Then = fn(&mut Stage, super::super::stage::Asked);
        let there: Then = |stage, asked| stage.ok(asked);
        let gone: Then = |stage, asked| stage.fail(asked, Errno::ENOENT);
        let unknown: Then = |stage, asked| stage.give_up(asked, Errno::ETIMEDOUT);
        for (then, is_made, is_deleted) in
            [(there, true, false), (gone, false, true), (unknown, false, false)]
        {
            let mut stage = Stage::new();
            let slot = stage.locked();
            let made = stage.script(|desk| async move { add(&desk, slot, "new".to_owned()).await });
            let id = stage.take("CreateSnap");
            stage.answer(id, Outcome::PoolOp(Ok(Some(7))));
            let added = stage.take("snapshot_add");
            stage.give_up(added, Errno::ETIMEDOUT);
            let looked = stage.take("snapshot_get");
            then(&mut stage, looked);
            assert_eq!(stage.is_asked("DeleteSnap"), is_deleted);
            if is_deleted {
                let deleted = stage.take("DeleteSnap");
                stage.answer(deleted, Outcome::PoolOp(Ok(None)));
            }
            stage.serve();
            let errno = made.take().expect("it has ended").err().map(|e| e.errno);
            assert_eq!(errno, (!is_made).then_some(Errno::ETIMEDOUT));
        }
    }
}

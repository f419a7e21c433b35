//! Images that wait to be removed (`librbd/api/Trash.cc`, `trash/RemoveRequest.cc`).

use super::format::{ParentSpec, header_name};
use super::script::{Desk, unless_missing};
use super::{OpenImage, lists, remove as images};
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use denc::{Decode, Encode};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{ByteString, Errno, PoolId, UTime};

/// Lists the images in the trash of a pool's namespace.
const TRASH: &str = "rbd_trash";

/// What is going on with an image in the trash (`TrashImageState`).
mod state {
    pub const NORMAL: u8 = 0;
    pub const MOVING: u8 = 1;
    pub const REMOVING: u8 = 2;
}

/// Names an image in the trash, which is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrashedImage {
    /// Its pool.
    pub pool: PoolId,
    /// Its namespace; mostly the empty one.
    pub nspace: ByteString,
    /// Its id.
    pub id: String,
    /// Also before its time there is over.
    pub force: bool,
}

/// What the trash knows of an image: TrashImageSpec V(2,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct Trashed {
    /// 0 user, 1 mirroring, 2 migration, 3 removing, 4 parent of user's clones.
    pub source: u8,
    /// The name that it had.
    pub name: String,
    /// When it came here.
    pub deletion_time: UTime,
    /// Until then it is kept.
    pub deferment_end_time: UTime,
    /// 0 normal, 1 moving, 2 removing, 3 restoring.
    #[denc(since = 2)]
    pub state: u8,
}

/// Who put an image in the trash (`TrashImageSource`).
mod source {
    pub const USER: u8 = 0;
    /// Somebody who is removing it (`rbd rm`).
    pub const REMOVING: u8 = 3;
    /// Its clones need it: it is to be removed with the last of them (`rbd_move_parent_to_trash_on_remove`).
    pub const USER_PARENT: u8 = 4;
}

/// Who was about to remove an image, and has it not open any more after so long, has died over it.
const LEFT_AFTER: Duration = Duration::from_secs(600);

fn call(spec: &TrashedImage, method: &str, input: impl Encode) -> ObjectOp {
    let object = Object::new(spec.pool, TRASH).in_namespace(spec.nspace.clone());
    ObjectOp::new(object).call("rbd", method, denc::encode(&input))
}

fn error(spec: &TrashedImage, errno: Errno, why: &'static str) -> ClientError {
    ClientError::new(errno, format!("removing image {} from the trash", spec.id), why)
}

/// What the trash knows of an image.
///
/// # Errors
/// ENOENT when it is not there.
pub async fn get(desk: &Desk, spec: &TrashedImage) -> Result<Trashed, ClientError> {
    desk.op(call(spec, "trash_get", spec.id.as_str())).await?.get(0)
}

async fn set_state(
    desk: &Desk,
    spec: &TrashedImage,
    new: u8,
    expected: u8,
) -> Result<(), ClientError> {
    let op = call(spec, "trash_state_set", (spec.id.as_str(), new, expected)).as_write();
    desk.op(op).await.map(drop)
}

/// Removes an image that is in the trash, and takes it off the list there; also from a full pool.
pub async fn remove(desk: &Desk, spec: TrashedImage) -> Result<(), ClientError> {
    let desk = &desk.full_try_if(true);
    let trashed = get(desk, &spec).await?;
    let now = desk.with(|s| s.now.wall);
    match trashed.state {
        _ if now < trashed.deferment_end_time && !spec.force => {
            return Err(error(&spec, Errno::EPERM, "its time there is not over"));
        }
        state::NORMAL | state::REMOVING => {}
        state::MOVING => {
            return Err(error(&spec, Errno::EUCLEAN, "it is not in the trash as a whole yet"));
        }
        _ => return Err(error(&spec, Errno::EBUSY, "it is being restored")),
    }
    set_state(desk, &spec, state::REMOVING, state::NORMAL).await?;
    let image = OpenImage::by_id(spec.pool, &spec.id).in_namespace(spec.nspace.clone());
    let removed = match images::remove(desk, image).await {
        // An earlier removal came so far.
        Err(error) if error.errno == Errno::ENOENT => Ok(()),
        other => other,
    };
    if removed.is_err() {
        // Else nobody could restore it.
        let _ = set_state(desk, &spec, state::NORMAL, state::REMOVING).await;
    }
    removed?;
    let op = call(&spec, "trash_remove", spec.id.as_str()).as_write();
    unless_missing(desk.op(op).await).map(drop)
}

/// Removes an image that stayed in the trash only for its clones, if none is left (`DetachChildRequest.cc`).
///
/// # Errors
/// ENOENT when it is not there.
pub async fn remove_parent(desk: &Desk, parent: &ParentSpec) -> Result<(), ClientError> {
    let (pool, nspace, id) = (parent.pool, parent.nspace.clone(), parent.image_id.clone());
    let spec = TrashedImage { pool, nspace, id, force: false };
    let trashed = get(desk, &spec).await?;
    let is_over = trashed.deferment_end_time <= desk.with(|s| s.now.wall);
    if trashed.source != source::USER_PARENT || trashed.state != state::NORMAL || !is_over {
        return Ok(());
    }
    match remove(desk, spec).await {
        // It has other snapshots.
        Err(error) if error.errno == Errno::ENOTEMPTY => Ok(()),
        other => other,
    }
}

/// What is in the trash of a pool's namespace, by id.
pub async fn list(
    desk: &Desk,
    pool: PoolId,
    nspace: &ByteString,
) -> Result<BTreeMap<String, Trashed>, ClientError> {
    let object = Object::new(pool, TRASH).in_namespace(nspace.clone());
    lists::by_key(desk, object, "trash_list", usize::MAX).await
}

/// Whether it is a user's, and its time in the trash is over. What mirrors and migrations have put there is theirs.
async fn is_due(desk: &Desk, spec: &TrashedImage, trashed: &Trashed) -> bool {
    let now = desk.with(|s| s.now.wall);
    if trashed.deferment_end_time > now || !matches!(trashed.state, state::NORMAL | state::REMOVING)
    {
        return false;
    }
    match trashed.source {
        source::USER | source::USER_PARENT => true,
        source::REMOVING => {
            trashed.deletion_time.plus(LEFT_AFTER) <= now && !is_open(desk, spec).await
        }
        _ => false,
    }
}

/// Whether somebody has it open, for all that is known.
async fn is_open(desk: &Desk, spec: &TrashedImage) -> bool {
    let header = Object::new(spec.pool, header_name(&spec.id)).in_namespace(spec.nspace.clone());
    match desk.op(ObjectOp::new(header).list_watchers()).await {
        Ok(reply) => reply.watchers(0).is_ok_and(|watchers| !watchers.is_empty()),
        Err(error) => !error.is_no_object(),
    }
}

/// Removes everything from a trash that [is due](is_due). What cannot be removed is passed over, and tried again when
/// others went: it may be what they were cloned from.
pub async fn purge(desk: &Desk, pool: PoolId, nspace: ByteString) -> Result<(), ClientError> {
    loop {
        let (mut some_went, mut result) = (false, Ok(()));
        for (id, trashed) in list(desk, pool, &nspace).await? {
            let spec = TrashedImage { pool, nspace: nspace.clone(), id, force: false };
            if !is_due(desk, &spec, &trashed).await {
                continue;
            }
            match remove(desk, spec).await {
                Ok(()) => some_went = true,
                Err(error) if error.errno == Errno::ECANCELED => return Err(error),
                Err(error) => result = result.and(Err(error)),
            }
        }
        if result.is_ok() || !some_went {
            return result;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;
    use types::Mono;
    use wire::msg::op_data::{ListWatchersOut, WatchItem};

    /// Whether a purge touches an image that came to the trash so long ago.
    fn is_touched(source: u8, ago: Duration, is_open: bool) -> bool {
        let mut stage = Stage::new();
        let deletion_time = UTime { sec: 1_000_000, nsec: 0 };
        let (name, state) = ("x".to_owned(), state::NORMAL);
        let deferment_end_time = deletion_time;
        let trashed = Trashed { source, name, deletion_time, deferment_end_time, state };
        let listed = BTreeMap::from([("1".to_owned(), trashed)]);
        stage.answers.push(("rbd.trash_list", denc::encode(&listed)));
        let addr = types::EntityAddr::default();
        let watcher = types::EntityName { kind: types::EntityType::CLIENT, num: 4200 };
        let watch = WatchItem { watcher, cookie: 1, timeout_s: 30, addr };
        let watchers = if is_open { vec![watch] } else { Vec::new() };
        stage.answers.push(("LIST_WATCHERS", denc::encode(&ListWatchersOut { watchers })));
        stage.with(|s| {
            let wall = deletion_time.plus(ago);
            s.now = io::Now { mono: Mono(1), wall };
        });
        let (pool, nspace) = (PoolId(1), ByteString::default());
        let purged = stage.script(|desk| async move { purge(&desk, pool, nspace).await });
        while let Some(asked) = stage.asked.pop_front() {
            if asked.text.contains("rbd.trash_get") {
                return true;
            }
            stage.ok(asked);
        }
        purged.take().unwrap().unwrap();
        false
    }

    #[test]
    fn a_purge_takes_what_users_have_put_in_the_trash() {
        let (now, later) = (Duration::ZERO, Duration::from_secs(3600));
        let [user, mirroring, migration, removing, parent] = [0, 1, 2, 3, 4];
        assert!(is_touched(user, now, true) && is_touched(parent, now, false));
        assert!(!is_touched(mirroring, later, false) && !is_touched(migration, later, false));
        // Somebody is at it, or was.
        assert!(!is_touched(removing, now, false) && !is_touched(removing, later, true));
        assert!(is_touched(removing, later, false));
    }
}

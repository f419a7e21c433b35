//! Removing an image (`image/RemoveRequest.cc`).

use super::format::{GroupSpec, ParentSpec, SnapKind, header_name, map_name};
use super::header::{At, close, open};
use super::maintain::{freeze, thaw, under_lock};
use super::script::{Desk, remove_object, unless_missing};
use super::state::{LockState, Snap};
use super::{ImageName, OpenImage, journal, snapshot};
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use crate::reply::OpReply;
use types::{Errno, SnapId};
use wire::msg::op_data::WatchItem;

/// Removes an image that has no snapshots, but for such as were removed and no clone needs any more, and that nobody else has open; also from a full pool, as that may be
/// how it is to get space again.
pub async fn remove(desk: &Desk, spec: OpenImage) -> Result<(), ClientError> {
    let desk = &desk.full_try_if(true);
    let wanted = OpenImage { snap: None, read_only: false, ..spec.clone() };
    let opened = Box::pin(open(desk, wanted, At::Alone, 0)).await;
    let object = |name: String| Object::new(spec.pool, name).in_namespace(spec.nspace.clone());
    let (id, name) = match opened {
        Ok(slot) => {
            let names = desk.with(|s| (s.image(slot).id.clone(), s.image(slot).name.clone()));
            let removed = remove_open(desk, slot).await;
            let parent = desk.with(|s| s.image_mut(slot).left_parent.take());
            close(desk, slot).await;
            if let Some(parent) = parent {
                super::flatten::remove_if_trashed(desk, &parent).await;
            }
            removed?;
            names
        }
        // What an earlier removal left.
        Err(error) if error.errno == Errno::ENOENT => {
            let Some((id, name)) = left_over(desk, &spec).await else { return Err(error) };
            journal::remove(desk, spec.pool, &spec.nspace, &id).await?;
            for left in [map_name(&id, SnapId::HEAD), header_name(&id)] {
                remove_object(desk, object(left)).await?;
            }
            (id, name)
        }
        Err(error) => return Err(error),
    };
    if name.is_empty() {
        return Ok(());
    }
    remove_object(desk, object(format!("rbd_id.{name}"))).await?;
    let directory = ObjectOp::new(object("rbd_directory".to_owned()));
    let op = directory.call("rbd", "dir_remove_image", denc::encode(&(&name, &id)));
    unless_missing(desk.op(op.as_write()).await).map(drop)
}

/// Removes an open image but for its names, under its lock: who opens it meanwhile writes nothing, which would stay
/// for ever.
async fn remove_open(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    // Whoever uses it is not even asked for the lock.
    refuse_watched(desk, slot).await?;
    let removed = async {
        desk.with(|s| s.image_mut(slot).removing = true);
        let removed = remove_locked(desk, slot).await;
        desk.with(|s| s.image_mut(slot).removing = false);
        removed
    };
    under_lock(desk, slot, removed).await
}

async fn remove_locked(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    let parent = empty(desk, slot).await?;
    let (pool, nspace, id) = desk.with(|s| {
        let image = s.image(slot);
        (image.pool, image.nspace.clone(), image.id.clone())
    });
    journal::remove(desk, pool, &nspace, &id).await?;
    // The lock goes with the header, and the watch: it is not to be given back, nor that to be made anew.
    let (map, header) = desk.with(|s| {
        let image = s.image_mut(slot);
        (image.closing, image.lock) = (true, LockState::Unlocked);
        image.drop_map();
        (image.map_object(SnapId::HEAD), image.header())
    });
    // Without the header nobody would find the map.
    let mut gone = remove_object(desk, map).await;
    if gone.is_ok() {
        gone = remove_object(desk, header).await;
    }
    desk.with(|s| match gone {
        Ok(()) => {
            let image = s.image_mut(slot);
            image.cookie.clear();
            image.left_parent = parent.or(image.left_parent.take());
        }
        Err(_) => s.want_no_lock(slot),
    });
    gone
}

/// Id and name of an image whose header is gone.
async fn left_over(desk: &Desk, spec: &OpenImage) -> Option<(String, String)> {
    let directory = Object::new(spec.pool, "rbd_directory").in_namespace(spec.nspace.clone());
    let directory = ObjectOp::new(directory);
    let (name, id) = match &spec.image {
        ImageName::Name(name) => (name, None),
        ImageName::This { name, id } => (name, Some(id)),
        ImageName::Id(id) => {
            let op = directory.call("rbd", "dir_get_name", denc::encode(id.as_str()));
            let name = desk.op(op).await.ok()?.get(0).ok()?;
            return Some((id.clone(), name));
        }
    };
    let op = directory.call("rbd", "dir_get_id", denc::encode(name.as_str()));
    let found: String = desk.op(op).await.ok()?.get(0).ok()?;
    id.is_none_or(|id| *id == found).then(|| (found, name.clone()))
}

async fn refuse_watched(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    let (header, own) = desk.with(|s| (s.image(slot).header(), s.peer(slot)));
    let watchers = desk.op(ObjectOp::new(header).list_watchers()).await?.watchers(0)?;
    let is_own = |w: &WatchItem| (w.watcher.num, w.cookie) == (own.gid as i64, own.handle);
    if watchers.iter().all(is_own) {
        return Ok(());
    }
    let why = "somebody has it open, or did not close it in the last 30 s (see rbd status)";
    Err(desk.with(|s| s.error(slot, Errno::EBUSY, "removing", why)))
}

/// Members of groups, and mirrored images, are named elsewhere. librbd ends the mirroring by itself, when it has come
/// to an end.
async fn refuse_connected(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    let (header, mirroring, id) = desk.with(|s| {
        let image = s.image(slot);
        (image.header(), image.meta("rbd_mirroring".to_owned()), image.id.clone())
    });
    let forgiven = |result: Result<OpReply, ClientError>| match result {
        Ok(reply) => Ok(Some(reply)),
        Err(e) if matches!(e.errno, Errno::ENOENT | Errno::EOPNOTSUPP) => Ok(None),
        Err(e) => Err(e),
    };
    let group = forgiven(desk.op(ObjectOp::new(header).call("rbd", "image_group_get", "")).await)?;
    let group: Option<GroupSpec> = group.map(|reply| reply.get(0)).transpose()?;
    let ask = ObjectOp::new(mirroring).call("rbd", "mirror_image_get", denc::encode(id.as_str()));
    let mirrored = forgiven(desk.op(ask).await)?;
    let (errno, why) = match (group, mirrored) {
        (Some(group), _) if group.exists() => {
            (Errno::EMLINK, "it is in a group: remove it there first")
        }
        (_, Some(_)) => (Errno::EBUSY, "it is mirrored: disable that first"),
        _ => return Ok(()),
    };
    Err(desk.with(|s| s.error(slot, errno, "removing", why)))
}

/// Removes what snapshots are left that were removed before and stayed for their clones. Where clones need one still,
/// or users have some, the image stays (`PreRemoveRequest.cc`).
async fn remove_left_snaps(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    let snaps = desk.with(|s| s.image(slot).head.snaps.clone());
    let mut is_needed = false;
    for snap in snaps {
        match snapshot::remove(desk, slot, &snap.info.name, &snap.info.kind).await {
            Err(error) if error.errno == Errno::EBUSY && error.reply.is_none() => is_needed = true,
            other => unless_missing(other)?,
        }
    }
    if is_needed {
        let why = "clones need snapshots of it that were removed (see rbd children --all)";
        return Err(desk.with(|s| s.error(slot, Errno::ENOTEMPTY, "removing", why)));
    }
    Ok(())
}

/// Removes everything that the image has. What it was a clone of does not know it any more.
async fn empty(desk: &Desk, slot: usize) -> Result<Option<ParentSpec>, ClientError> {
    let is_left = |snap: &Snap| matches!(snap.info.kind, SnapKind::Trash(_));
    if desk.with(|s| !s.image(slot).head.snaps.iter().all(is_left)) {
        let why = "it has snapshots";
        return Err(desk.with(|s| s.error(slot, Errno::ENOTEMPTY, "removing", why)));
    }
    refuse_watched(desk, slot).await?;
    refuse_connected(desk, slot).await?;
    remove_left_snaps(desk, slot).await?;
    freeze(desk, slot).await?;
    let size = desk.with(|s| s.image(slot).head.size);
    let trimmed = super::resize::trim(desk, slot, size, 0).await;
    thaw(desk, slot);
    trimmed?;
    let parent = desk.with(|s| s.image(slot).head.parent.clone());
    if let Some(parent) = &parent {
        super::flatten::detach(desk, slot, parent).await?;
    }
    Ok(parent)
}

#[cfg(test)]
mod tests {
    use super::super::object_map::State;
    use super::super::stage::{End, Stage};
    use super::*;
    use types::PoolId;

    fn removing(stage: &mut Stage) -> End<Result<(), ClientError>> {
        let spec = OpenImage::new(PoolId(1), "x");
        stage.script(|desk| async move { remove(&desk, spec).await })
    }

    #[test]
    fn nothing_of_a_removal_waits_for_space() {
        let mut stage = Stage::new();
        stage.map = vec![State::Exists; 4];
        let removed = removing(&mut stage);
        while removed.borrow().is_none() {
            while let Some(asked) = stage.asked.pop_front() {
                assert!(!asked.heeds_full(), "{asked:?}");
                stage.ok_unless_connected(asked);
            }
            stage.pass(std::time::Duration::ZERO);
        }
        assert!(removed.take().unwrap().is_ok());
    }
}

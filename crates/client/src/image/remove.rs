//! Removing an image (`image/RemoveRequest.cc`).

use super::format::{GroupSpec, ParentSpec, SnapKind, header_name, map_name};
use super::header::{At, close, open};
use super::maintain::{freeze, thaw, under_lock};
use super::script::{Desk, remove_object, unless_missing};
use super::state::Snap;
use super::{ImageName, OpenImage, journal, snapshot};
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use crate::reply::OpReply;
use types::{Errno, SnapId};

/// Removes an image that has no snapshots, but for such as were removed and no clone needs any more, and that nobody else has open; also from a full pool, as that may be
/// how it is to get space again.
pub async fn remove(desk: &Desk, spec: OpenImage) -> Result<(), ClientError> {
    let desk = &desk.full_try_if(true);
    let wanted = OpenImage { snap: None, read_only: false, ..spec.clone() };
    let opened = Box::pin(open(desk, wanted, At::Alone, 0)).await;
    let (id, name, parent) = match opened {
        Ok(slot) => {
            let emptied = under_lock(desk, slot, empty(desk, slot)).await;
            let names = desk.with(|s| (s.image(slot).id.clone(), s.image(slot).name.clone()));
            close(desk, slot).await;
            let parent = emptied?;
            (names.0, names.1, parent)
        }
        // What an earlier removal left.
        Err(error) if error.errno == Errno::ENOENT => match left_over(desk, &spec).await {
            Some((id, name)) => (id, name, None),
            None => return Err(error),
        },
        Err(error) => return Err(error),
    };
    let object = |name: String| Object::new(spec.pool, name).in_namespace(spec.nspace.clone());
    journal::remove(desk, spec.pool, &spec.nspace, &id).await?;
    // Without the header nobody would find the rest.
    for left in [map_name(&id, SnapId::HEAD), header_name(&id)] {
        remove_object(desk, object(left)).await?;
    }
    if let Some(parent) = parent {
        super::flatten::remove_if_trashed(desk, &parent).await;
    }
    if name.is_empty() {
        return Ok(());
    }
    remove_object(desk, object(format!("rbd_id.{name}"))).await?;
    let directory = ObjectOp::new(object("rbd_directory".to_owned()));
    let op = directory.call("rbd", "dir_remove_image", denc::encode(&(&name, &id)));
    unless_missing(desk.op(op.as_write()).await).map(drop)
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
    let doing = "removing";
    let is_left = |snap: &Snap| matches!(snap.info.kind, SnapKind::Trash(_));
    if desk.with(|s| !s.image(slot).head.snaps.iter().all(is_left)) {
        let why = "it has snapshots";
        return Err(desk.with(|s| s.error(slot, Errno::ENOTEMPTY, doing, why)));
    }
    let header = desk.with(|s| s.image(slot).header());
    let watchers = desk.op(ObjectOp::new(header).list_watchers()).await?.watchers(0)?;
    let own = desk.with(|s| s.peer(slot));
    let is_own = |w: &wire::msg::op_data::WatchItem| {
        (w.watcher.num, w.cookie) == (own.gid as i64, own.handle)
    };
    if !watchers.iter().all(is_own) {
        let why = "somebody has it open, or did not close it in the last 30 s (see rbd status)";
        return Err(desk.with(|s| s.error(slot, Errno::EBUSY, doing, why)));
    }
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

//! Opening and closing images, and reading their headers (`image/OpenRequest.cc`,
//! `image/RefreshRequest.cc`).

use super::format::{ParentSpec, SnapInfo, UNPROTECTED, feature, header_name};
use super::layout::{Layout, MAX_IMAGE_BYTES};
use super::script::Desk;
use super::state::{Header, Image, LockState, Shared, Snap};
use super::{ImageName, OpenImage};
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use types::{Errno, HashMap, PoolId, SnapId};
use wire::msg::SnapContext;

/// Clones of clones are followed so far.
const MAX_PARENTS: usize = 32;
/// The header is read again when it changes under our hands, so often.
const MAX_TRIES: usize = 20;

/// Which snapshot is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    Head,
    /// The head, for who removes it: its parent, which may be gone, is not opened.
    Alone,
    Name(String),
    Id(SnapId),
}

/// What the header says once and for all.
struct Fixed {
    order: u8,
    prefix: String,
    layout: Layout,
    data_pool: PoolId,
}

fn error(errno: Errno, title: &str, why: impl Into<std::borrow::Cow<'static, str>>) -> ClientError {
    ClientError::new(errno, format!("opening {title}"), why)
}

fn call(op: ObjectOp, method: &str, input: impl denc::Encode) -> ObjectOp {
    op.call("rbd", method, denc::encode(&input))
}

/// Id and name of an image.
async fn resolve(desk: &Desk, spec: &OpenImage) -> Result<(String, String), ClientError> {
    let object = |name: String| Object::new(spec.pool, name).in_namespace(spec.nspace.clone());
    match &spec.image {
        ImageName::This { name, id } => {
            let by_name = OpenImage { image: ImageName::Name(name.clone()), ..spec.clone() };
            let found = Box::pin(resolve(desk, &by_name)).await?;
            if found.0 == *id {
                return Ok(found);
            }
            let title = format!("image {name} in pool {}", spec.pool);
            Err(error(Errno::ENOENT, &title, "another one has that name now"))
        }
        ImageName::Name(name) => {
            let op = ObjectOp::new(object(format!("rbd_id.{name}"))).call("rbd", "get_id", "");
            match desk.op(op).await {
                Ok(reply) => Ok((reply.get(0)?, name.clone())),
                Err(e) if e.errno == Errno::ENOENT => {
                    let old = ObjectOp::new(object(format!("{name}.rbd"))).stat();
                    let why = match desk.op(old).await {
                        Ok(_) => "it is of format 1, which is not supported",
                        Err(_) => "there is no image of that name",
                    };
                    let title = format!("image {name} in pool {}", spec.pool);
                    Err(error(Errno::ENOENT, &title, why))
                }
                Err(e) => Err(e),
            }
        }
        ImageName::Id(id) => {
            let directory = ObjectOp::new(object("rbd_directory".to_owned()));
            let name = desk.op(call(directory, "dir_get_name", id.as_str())).await;
            // One in the trash has no name.
            let name = name.and_then(|reply| reply.get(0)).unwrap_or_default();
            Ok((id.clone(), name))
        }
    }
}

async fn read_fixed(desk: &Desk, header: &Object, title: &str) -> Result<Fixed, ClientError> {
    let op = ObjectOp::new(header.clone());
    let op = call(op, "get_size", SnapId::HEAD).call("rbd", "get_object_prefix", "");
    let op = call(op, "get_features", (SnapId::HEAD, true)).call("rbd", "get_data_pool", "");
    let reply = desk.op(op).await?;
    let (order, _): (u8, u64) = reply.get(0)?;
    let prefix = reply.get(1)?;
    let (features, _): (u64, u64) = reply.get(2)?;
    let data_pool = match reply.get(3)? {
        pool @ 0.. => PoolId(pool),
        _ => header.pool,
    };
    let (mut unit, mut count) = (1u64.checked_shl(order.into()).unwrap_or(0), 1u64);
    if features & feature::STRIPING != 0 {
        let op = ObjectOp::new(header.clone()).call("rbd", "get_stripe_unit_count", "");
        (unit, count) = desk.op(op).await?.get(0)?;
    }
    let layout = Layout::new(order, unit, count).ok_or_else(|| {
        let why = format!("order {order}, stripe unit {unit} and count {count} make no sense");
        error(Errno::EINVAL, title, why)
    })?;
    Ok(Fixed { order, prefix, layout, data_pool })
}

/// Opens an image; its slot.
pub async fn open(
    desk: &Desk,
    spec: OpenImage,
    at: At,
    depth: usize,
) -> Result<usize, ClientError> {
    desk.is_wanted()?;
    let (id, name) = resolve(desk, &spec).await?;
    let header = Object::new(spec.pool, header_name(&id)).in_namespace(spec.nspace.clone());
    let title = format!("image {}", if name.is_empty() { &id } else { &name });
    let fixed = read_fixed(desk, &header, &title).await?;
    let read_only = spec.read_only || !matches!(at, At::Head | At::Alone);
    let slot = desk.with(|s| {
        let mut image = new_image(s.new_generation(), &spec, (id, name), fixed, read_only);
        image.alone = at == At::Alone;
        image.full_try = desk.is_full_try();
        s.images.insert(image)
    });
    let opened = finish_open(desk, slot, at, depth).await;
    if opened.is_err() {
        close(desk, slot).await;
    }
    opened.map(|()| slot)
}

fn new_image(
    generation: u64,
    spec: &OpenImage,
    (id, name): (String, String),
    fixed: Fixed,
    read_only: bool,
) -> Image {
    Image {
        generation,
        name,
        id,
        pool: spec.pool,
        nspace: spec.nspace.clone(),
        data_pool: fixed.data_pool,
        prefix: fixed.prefix,
        order: fixed.order,
        layout: fixed.layout,
        snap: None,
        read_only,
        only_free_lock: spec.only_free_lock,
        head: Header::default(),
        parent: None,
        alone: false,
        full_try: false,
        watch: None,
        watching: false,
        lock: LockState::Unlocked,
        cookie: String::new(),
        cookie_busy: false,
        map: None,
        map_busy: HashMap::default(),
        unmarked: BTreeSet::new(),
        copyups: HashMap::default(),
        queue: VecDeque::new(),
        frozen: 0,
        refresh_needed: false,
        refreshing: false,
        refresh_failures: (0, None),
        maintaining: false,
        can_stop: None,
        progress: (0, 0),
        left_parent: None,
        removing: false,
        writes_running: 0,
        ios_running: 0,
        user_ops: 0,
        user_bytes: 0,
        flushes: Default::default(),
        lock_is_wanted: false,
        lock_news: 0,
        dead: None,
        closing: false,
        head_changes: 0,
        lock_error: None,
        holding: 0,
        scripts: 0,
        wishes: VecDeque::new(),
        asked: BTreeMap::new(),
    }
}

async fn finish_open(desk: &Desk, slot: usize, at: At, depth: usize) -> Result<(), ClientError> {
    if !desk.with(|s| s.image(slot).read_only) {
        desk.watch(slot).await?;
    }
    desk.is_wanted()?;
    refresh_to(desk, slot, Some(at), depth).await
}

/// Reads the header again, when nobody else does.
pub async fn refresh(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    refresh_to(desk, slot, None, 0).await
}

async fn refresh_to(
    desk: &Desk,
    slot: usize,
    at: Option<At>,
    depth: usize,
) -> Result<(), ClientError> {
    desk.until(move |s| {
        let image = s.image_mut(slot);
        (!std::mem::replace(&mut image.refreshing, true)).then_some(())
    })
    .await;
    let result = read_and_apply(desk, slot, at, depth).await;
    desk.with(|s| {
        s.touched = true;
        let image = s.image_mut(slot);
        image.refreshing = false;
        if let Err(error) = &result {
            image.refresh_needed = true;
            image.refresh_failures = (image.refresh_failures.0 + 1, Some(error.clone()));
            match error.errno {
                Errno::ENOENT | Errno::EBLOCKLISTED => s.die(slot, error),
                _ => s.fail_queue(slot, error, |_| true),
            }
        }
        if result.is_ok() {
            s.run_queue(slot);
        }
    });
    result
}

async fn read_and_apply(
    desk: &Desk,
    slot: usize,
    mut at: Option<At>,
    depth: usize,
) -> Result<(), ClientError> {
    for _ in 0..MAX_TRIES {
        let before = desk.with(|s| {
            s.image_mut(slot).refresh_needed = false;
            s.image(slot).head_changes
        });
        let Some(head) = read_header(desk, slot).await? else { continue };
        if let Some(at) = at.take() {
            let snap = desk.with(|s| find_snap(s, slot, &head, &at))?;
            desk.with(|s| s.image_mut(slot).snap = snap);
        }
        let parent = follow_parent(desk, slot, &head, depth).await?;
        let applied = desk.with(|s| {
            let image = s.image_mut(slot);
            if image.head_changes != before {
                return Err(parent.filter(|_| image.parent != parent));
            }
            image.head = head;
            image.mark_unmarked();
            image.parent = parent;
            Ok(())
        });
        match applied {
            Ok(()) => return Ok(()),
            // It was opened for nothing.
            Err(Some(parent)) => close_soon(desk, parent),
            Err(None) => {}
        }
    }
    Err(desk
        .with(|s| s.error(slot, Errno::EAGAIN, "reading the header of", "it changes all the time")))
}

fn find_snap(
    s: &Shared,
    slot: usize,
    head: &Header,
    at: &At,
) -> Result<Option<SnapId>, ClientError> {
    let found = match at {
        At::Head | At::Alone => return Ok(None),
        At::Id(id) => head.snap(*id),
        At::Name(name) => head
            .snaps
            .iter()
            .find(|s| s.info.name == *name && s.info.kind == super::format::SnapKind::User),
    };
    match found {
        Some(snap) => Ok(Some(snap.info.id)),
        None => Err(s.error(slot, Errno::ENOENT, "opening a snapshot of", "there is no such one")),
    }
}

/// Reads the header; `None` when a snapshot went away in the meantime.
async fn read_header(desk: &Desk, slot: usize) -> Result<Option<Header>, ClientError> {
    let (object, read_only) = desk.with(|s| (s.image(slot).header(), s.image(slot).read_only));
    let op = ObjectOp::new(object.clone());
    let op = call(op, "get_size", SnapId::HEAD);
    let op = call(op, "get_features", (SnapId::HEAD, read_only));
    let op = call(op, "get_flags", SnapId::HEAD).call("rbd", "get_snapcontext", "");
    let op = op.call("rbd", "parent_get", "");
    let op = call(op, "parent_overlap_get", SnapId::HEAD);
    let reply = desk.op(op).await?;
    let (_, size): (u8, u64) = reply.get(0)?;
    let (features, incompatible): (u64, u64) = reply.get(1)?;
    let flags = reply.get(2)?;
    let snapc: SnapContext = reply.get(3)?;
    let spec: ParentSpec = reply.get(4)?;
    let overlap: Option<u64> = reply.get(5)?;
    let broken = |why| desk.with(|s| s.error(slot, Errno::EIO, "reading the header of", why));
    if !snapc.is_valid() {
        return Err(broken("its snapshots are in disorder"));
    }
    if size > MAX_IMAGE_BYTES {
        return Err(broken("its size is beyond all reason"));
    }
    // The class lets readers see an image that is being migrated. They would have to look into the one it comes from, too.
    let incompatible = incompatible | features & feature::MIGRATING;
    if incompatible & !feature::READABLE != 0 {
        let why = "it has features that are not supported (it is being migrated, or has a cache)";
        return Err(desk.with(|s| s.error(slot, Errno::EOPNOTSUPP, "opening", why)));
    }
    let mut snaps = Vec::new();
    for id in snapc.snaps.iter().rev() {
        match read_snap(desk, &object, *id).await {
            Ok(snap) => snaps.push(snap),
            Err(e) if e.errno == Errno::ENOENT => return Ok(None),
            Err(e) => return Err(e),
        }
    }
    let parent = spec.exists().then_some(spec);
    let overlap = overlap.unwrap_or(0);
    Ok(Some(Header { size, features, flags, snapc, snaps, parent, overlap }))
}

async fn read_snap(desk: &Desk, header: &Object, id: SnapId) -> Result<Snap, ClientError> {
    let op = call(ObjectOp::new(header.clone()), "snapshot_get", id);
    let op = call(op, "parent_overlap_get", id);
    let op = call(op, "get_flags", id);
    let op = call(op, "get_protection_status", id);
    let reply = desk.op(op).await?;
    let info: SnapInfo = reply.get(0)?;
    let overlap: Option<u64> = reply.get(1)?;
    let protection = reply.get(3).unwrap_or(UNPROTECTED);
    Ok(Snap { info, flags: reply.get(2)?, protection, overlap: overlap.unwrap_or(0) })
}

/// The slot of the image that the header says is the parent, opened if need be.
async fn follow_parent(
    desk: &Desk,
    slot: usize,
    head: &Header,
    depth: usize,
) -> Result<Option<usize>, ClientError> {
    let (old, old_spec, snap, alone) = desk.with(|s| {
        let image = s.image(slot);
        (image.parent, image.head.parent.clone(), image.snap, image.alone)
    });
    let seen = match snap {
        None => head.overlap,
        Some(id) => head.snap(id).map_or(0, |s| s.overlap),
    };
    let wanted = head.parent.clone().filter(|_| seen > 0 && !alone);
    if wanted.is_some() && wanted == old_spec && old.is_some() {
        return Ok(old);
    }
    let new = match wanted {
        None => None,
        Some(_) if depth >= MAX_PARENTS => {
            let why = "it is a clone of a clone of a clone without end";
            return Err(desk.with(|s| s.error(slot, Errno::E2BIG, "opening", why)));
        }
        Some(spec) => Some(open_parent(desk, slot, spec, depth).await?),
    };
    if let Some(old) = old {
        // Reads of it may be under way.
        desk.with(|s| s.image_mut(slot).parent = None);
        close_soon(desk, old);
    }
    Ok(new)
}

/// Closes an image that nobody waits for.
fn close_soon(desk: &Desk, slot: usize) {
    desk.spawn(close_owned(desk.clone(), slot));
}

type Opening = Pin<Box<dyn Future<Output = Result<usize, ClientError>>>>;

async fn open_parent(
    desk: &Desk,
    slot: usize,
    parent: ParentSpec,
    depth: usize,
) -> Result<usize, ClientError> {
    let spec = OpenImage {
        nspace: parent.nspace,
        read_only: true,
        ..OpenImage::by_id(parent.pool, &parent.image_id)
    };
    let own = desk.clone();
    let at = At::Id(parent.snap);
    let opening: Opening = Box::pin(async move { open(&own, spec, at, depth + 1).await });
    opening.await.map_err(|e| {
        let title = desk.with(|s| s.image(slot).title());
        // The image itself is there.
        let errno = if e.errno == Errno::ENOENT { Errno::EIO } else { e.errno };
        ClientError { what: format!("opening the parent of {title}: {}", e.what), errno, ..e }
    })
}

/// Closes an image: what is under way is ended, the lock given back, the watch ended.
pub async fn close(desk: &Desk, slot: usize) {
    desk.with(|s| s.image_mut(slot).closing = true);
    desk.until(move |s| {
        let image = s.image(slot);
        let idle = image.ios_running == 0 && image.queue.is_empty() && image.is_drained();
        (idle && image.scripts == 0 && !image.maintaining && !image.refreshing).then_some(())
    })
    .await;
    let locked = desk.with(|s| {
        let image = s.image_mut(slot);
        let locked = image.lock == LockState::Locked;
        if locked {
            image.lock = LockState::Releasing;
        }
        locked
    });
    if locked {
        super::lock::release(desk, slot).await;
    }
    // A lost watch may be replaced for as long as there is a lock.
    desk.until(move |s| (s.image(slot).scripts == 0).then_some(())).await;
    if desk.with(|s| s.image(slot).watch.is_some())
        && let Err(error) = desk.unwatch(slot).await
    {
        tracing::debug!(%error, "the watch of an image ends by itself");
    }
    // Peers may have said something meanwhile.
    desk.until(move |s| (s.image(slot).scripts == 0).then_some(())).await;
    let parent = desk.with(|s| s.images.remove(slot).parent);
    if let Some(parent) = parent {
        let closing: Pin<Box<dyn Future<Output = ()>>> =
            Box::pin(close_owned(desk.clone(), parent));
        closing.await;
    }
}

async fn close_owned(desk: Desk, slot: usize) {
    close(&desk, slot).await;
}

impl Shared {
    /// Reads the header again, unless that is under way.
    pub fn want_refresh(&mut self, slot: usize) {
        let image = self.image_mut(slot);
        if image.refreshing || !image.refresh_needed || image.dead.is_some() {
            return;
        }
        self.spawn_for(slot, |desk| async move {
            if !desk.with(|s| s.image(slot).refresh_needed) {
                return;
            }
            if let Err(error) = refresh(&desk, slot).await {
                tracing::warn!(%error, "the header of an image cannot be read");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::SnapKind;
    use super::super::stage::Stage;
    use super::*;

    /// A snapshot was made here while the header was read, say.
    #[test]
    fn a_parent_that_was_opened_for_nothing_is_closed() {
        let mut stage = Stage::new();
        let (id, size) = (SnapId(1), stage.header.size);
        stage.has_snap(SnapKind::User, "s", 1);
        let slot = stage.open();
        let (pool, nspace) = (PoolId(1), Default::default());
        let parent = ParentSpec { pool, nspace, image_id: "2".to_owned(), snap: id };
        stage.answers.push(("rbd.parent_overlap_get", denc::encode(&Some(size))));
        stage.answers.push(("rbd.parent_get", denc::encode(&parent)));
        let refreshed = stage.script(|desk| async move { refresh(&desk, slot).await });
        let read = stage.until("rbd.parent_get");
        stage.ok(read);
        // The parent has none itself, nor has the image afterwards.
        stage.answers.retain(|(part, _)| !part.contains("parent"));
        let opening = stage.until("rbd_header.2: ");
        stage.ok(opening);
        stage.with(|s| s.image_mut(slot).head_changes += 1);
        stage.serve();
        assert!(refreshed.take().unwrap().is_ok());
        assert_eq!(stage.with(|s| s.images.len()), 1);
    }

    /// What it does not have yet would read as zeros, and a clone that is flattened would keep them.
    #[test]
    fn an_image_that_is_being_migrated_is_not_read_and_is_no_parent() {
        let mut stage = Stage::new();
        stage.header.features |= feature::MIGRATING;
        let spec = OpenImage { read_only: true, ..OpenImage::new(PoolId(1), "x") };
        let opened = stage.script(|desk| async move { open(&desk, spec, At::Head, 0).await });
        stage.serve();
        assert_eq!(opened.take().unwrap().unwrap_err().errno, Errno::EOPNOTSUPP);
    }

    #[test]
    fn an_image_that_nobody_wants_any_more_is_not_opened() {
        let mut stage = Stage::new();
        let spec = OpenImage::new(PoolId(1), "x");
        let (id, opened) =
            stage.request(|desk| async move { open(&desk, spec, At::Head, 0).await });
        let watch = stage.until("watch");
        stage.cancel(id);
        stage.ok(watch);
        let unwatch = stage.take("unwatch");
        assert!(stage.asked.is_empty(), "{:?}", stage.asked);
        stage.ok(unwatch);
        assert_eq!(opened.take().unwrap().unwrap_err().errno, Errno::ECANCELED);
        assert!(stage.with(|s| s.images.is_empty()));
    }
}

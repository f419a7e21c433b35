//! The exclusive lock of an image (`librbd/ManagedLock.cc`, `managed_lock/`, `exclusive_lock/`).
//!
//! It lies on the header: name `rbd_lock`, tag `internal`, cookie `auto N`, where N is the number of
//! the holder's watch on the header. Who wants it asks the holder by a notify, and the holder lets it
//! go when its writes are done. A holder whose watch is gone is dead: it is blocklisted, so that
//! nothing it has sent can still be done, and only then its lock is broken. The object map has a lock
//! of its own, which every change of the map asserts.

use super::cookie::follow_watch;
use super::format::{
    COOKIE_PREFIX, LOCK_EXCLUSIVE, LOCK_TAG, LockInfo, Locker, LockerId, feature, lock_break,
    lock_name, lock_release, lock_take,
};
use super::invalid::invalidate_map;
use super::io::Kind;
use super::notice::{Notice, Peer, result_of};
use super::object_map::ObjectMap;
use super::script::{Desk, unless_missing};
use super::state::{LockState, Shared};
use super::write::locked;
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use crate::outcome::CommandReply;
use std::time::Duration;
use types::{AddrType, EntityAddr, Errno, SnapId};

/// A notify between clients of an image is answered in this time (`Notifier::NOTIFY_TIMEOUT`).
pub const NOTIFY_S: u32 = 5;
/// Before the lock is looked at again when nobody answered.
pub const RETRY: Duration = Duration::from_secs(1);
/// A holder that said yes lets go in this time; then it is asked again.
const PATIENCE: Duration = Duration::from_secs(5);
/// What changes an image as a whole has the lock for so long before it stops as a peer wants it: one that asks again
/// at once would else keep anything from being done. Less than [`PATIENCE`].
pub const MIN_TURN: Duration = Duration::from_secs(1);
/// Who closes an image tries so often to give back a lock that it may have.
const MAX_GIVE_BACKS: u32 = 5;

impl Shared {
    /// Begins to take the lock unless that is under way.
    pub fn want_lock(&mut self, slot: usize) {
        let image = self.image_mut(slot);
        if image.lock == LockState::Unlocked && image.dead.is_none() {
            image.lock = LockState::Acquiring;
            image.lock_error = None;
            self.spawn_for(slot, |desk| acquire_script(desk, slot));
        }
    }

    /// A peer wants the lock: what is under way is ended, then the lock goes. What changes the image as a whole is
    /// ended first; if that takes long it stops ([`Shared::goes_on`]).
    pub fn hand_over(&mut self, slot: usize) {
        let image = self.image_mut(slot);
        image.lock_is_wanted = image.maintaining;
        if image.lock == LockState::Locked && !image.maintaining {
            image.lock = LockState::Releasing;
            self.spawn_for(slot, |desk| release_script(desk, slot));
        }
    }

    /// Whether a procedure that changes the image still has the lock that it began with.
    ///
    /// # Errors
    /// EBUSY when somebody has broken it: without its object map what is written would not be noted.
    pub fn keeps_lock(&self, slot: usize) -> Result<(), ClientError> {
        let image = self.image(slot);
        match image.lock {
            _ if !image.needs_lock() => Ok(()),
            LockState::Locked => Ok(()),
            _ => Err(self.error(slot, Errno::EBUSY, "change of", "its lock is lost")),
        }
    }

    /// Whether a procedure that changes the image goes on. What it has done stays done when it does not.
    ///
    /// # Errors
    /// ERESTART when it can stop, and a peer waits for the lock: whoever has it then is asked to go on. EBUSY when the
    /// lock is lost.
    pub fn goes_on(&self, slot: usize) -> Result<(), ClientError> {
        self.keeps_lock(slot)?;
        let image = self.image(slot);
        let may_stop = image.can_stop.is_some_and(|at| self.now.mono >= at);
        if image.lock_is_wanted && may_stop {
            return Err(self.error(slot, Errno::ERESTART, "change of", "its lock is wanted"));
        }
        Ok(())
    }

    /// The procedure that changed the image is over.
    pub fn end_maintaining(&mut self, slot: usize) {
        self.touched = true;
        let image = self.image_mut(slot);
        (image.maintaining, image.can_stop) = (false, None);
        if std::mem::take(&mut image.lock_is_wanted) {
            self.hand_over(slot);
        }
        self.run_queue(slot);
    }

    /// Somebody has broken our lock.
    pub fn lock_is_lost(&mut self, slot: usize, error: &ClientError) {
        let image = self.image_mut(slot);
        if image.lock == LockState::Locked {
            tracing::warn!(image = image.title(), %error, "the exclusive lock is lost");
            image.lock = LockState::Unlocked;
            image.drop_map();
            image.refresh_needed = true;
            self.touched = true;
            self.want_no_lock(slot);
        }
    }

    /// A lock that is not used may be on the header nevertheless, as an answer did not come: with a watch that lives
    /// nobody would take it away, and without one we would be shut out for it.
    pub fn want_no_lock(&mut self, slot: usize) {
        if !self.image(slot).cookie.is_empty() {
            self.spawn_for(slot, |desk| give_back(desk, slot));
        }
    }

    /// Whether a lock that is not used can be given back; nobody else is at it then.
    fn ready_to_give_back(&mut self, slot: usize) -> Option<bool> {
        let image = self.image_mut(slot);
        if image.lock != LockState::Unlocked || image.cookie.is_empty() || image.dead.is_some() {
            return Some(false);
        }
        if image.cookie_busy || !image.is_drained() {
            return None;
        }
        image.cookie_busy = true;
        Some(true)
    }

    /// Who we are among those that have the image open.
    pub fn peer(&self, slot: usize) -> Peer {
        let handle = self.image(slot).watch.map_or(0, |id| id.0);
        Peer { gid: self.gid, handle }
    }

    /// Who takes the lock is watching: else it would be taken for dead. Header, cookie, and who we are.
    fn ready_to_take(
        &mut self,
        slot: usize,
    ) -> Option<Result<(Object, String, Peer), ClientError>> {
        if let Err(dead) = self.check_alive(slot) {
            return Some(Err(dead));
        }
        let peer = self.peer(slot);
        let image = self.image_mut(slot);
        let is_ready = image.watching && !image.cookie_busy;
        let cookie = format!("{COOKIE_PREFIX}{}", peer.handle);
        is_ready.then(|| Ok((image.header(), cookie, peer)))
    }

    pub fn check_alive(&self, slot: usize) -> Result<(), ClientError> {
        match &self.image(slot).dead {
            Some(dead) => Err(dead.clone()),
            None => Ok(()),
        }
    }
}

async fn acquire_script(desk: Desk, slot: usize) {
    let result = acquire(&desk, slot).await;
    desk.with(|s| {
        s.touched = true;
        let image = s.image_mut(slot);
        match result {
            Ok(()) => {
                image.lock = LockState::Locked;
                let peer = s.peer(slot);
                announce(s, slot, Notice::AcquiredLock(peer));
            }
            Err(error) => {
                image.lock = LockState::Unlocked;
                image.drop_map();
                image.lock_error = Some(error.clone());
                if error.errno == Errno::EBLOCKLISTED {
                    s.die(slot, &error);
                }
                s.fail_queue(slot, &error, |kind| kind != Kind::Read);
                s.want_no_lock(slot);
            }
        }
        s.run_queue(slot);
    });
}

/// Tells the peers something that nobody waits for.
fn announce(s: &mut Shared, slot: usize, notice: Notice) {
    let header = s.image(slot).header();
    s.spawn_for(slot, |desk| async move {
        // A peer that did not answer looks for itself.
        let _ = desk.notify(header, notice.encode(), NOTIFY_S).await;
    });
}

async fn acquire(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    take(desk, slot).await?;
    let opened = open_taken(desk, slot).await;
    if opened.is_err() {
        let _ = let_go(desk, slot).await;
    }
    opened
}

async fn open_taken(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    // What the holder before us did we may not have heard of yet.
    super::header::refresh(desk, slot).await?;
    open_map(desk, slot).await?;
    // The watch may have been lost meanwhile, and made anew.
    follow_watch(desk, slot, &[LockState::Acquiring]).await
}

/// Takes the lock on the header, for as long as somebody waits for it: its holder may never let go.
async fn take(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    loop {
        if !desk.with(|s| s.image(slot).is_lock_wanted()) {
            let why = "nobody waits for it any more";
            return Err(desk.with(|s| s.error(slot, Errno::ECANCELED, "lock of", why)));
        }
        let (header, cookie, me) = desk.until(move |s| s.ready_to_take(slot)).await?;
        let info = lock_info(desk, header.clone()).await?;
        let Some((id, locker)) = info.lockers.first_key_value() else {
            match take_free(desk, slot, header, cookie).await {
                Err(e) if e.errno == Errno::EBUSY => continue,
                clear => return clear,
            }
        };
        let ours = id.name.num == me.gid as i64;
        if ours && id.cookie == cookie {
            desk.with(|s| s.image_mut(slot).cookie = cookie);
            return Ok(());
        }
        if !ours && desk.with(|s| s.image(slot).only_free_lock) {
            return Err(desk.with(|s| held_by_another(s, slot, id, locker)));
        }
        let handle = id.cookie.strip_prefix(COOKIE_PREFIX).and_then(|n| n.parse::<u64>().ok());
        let Some(handle) = handle.filter(|_| info.kind == LOCK_EXCLUSIVE && info.tag == LOCK_TAG)
        else {
            return Err(desk.with(|s| taken_by_hand(s, slot, id, locker)));
        };
        if is_watching(desk, header.clone(), handle, &locker.addr).await? {
            ask_for_it(desk, slot, header, me).await?;
        } else {
            break_it(desk, header, &info, ours).await?;
        }
    }
}

/// Takes the lock that nobody seems to have.
async fn take_free(
    desk: &Desk,
    slot: usize,
    header: Object,
    cookie: String,
) -> Result<(), ClientError> {
    let op = ObjectOp::new(header).call("lock", "lock", lock_take(&cookie, LOCK_TAG));
    desk.with(|s| s.image_mut(slot).cookie = cookie);
    match desk.op(op.as_write()).await {
        Ok(_) => Ok(()),
        // It was ours already: an answer that got lost.
        Err(e) if e.errno == Errno::EEXIST => Ok(()),
        // It may be ours yet.
        Err(e) if e.errno == Errno::ETIMEDOUT => Err(e),
        Err(e) => {
            desk.with(|s| s.image_mut(slot).cookie.clear());
            Err(e)
        }
    }
}

fn held_by_another(s: &Shared, slot: usize, id: &LockerId, locker: &Locker) -> ClientError {
    let (name, addr) = (id.name, locker.addr.with_kind(AddrType::ANY));
    let why = format!("{name} at {addr} has it, as '{}', and is not asked for it", id.cookie);
    ClientError::new(Errno::EBUSY, format!("lock of {}", s.image(slot).title()), why)
}

fn taken_by_hand(s: &Shared, slot: usize, id: &LockerId, locker: &Locker) -> ClientError {
    let (name, cookie, addr) = (id.name, &id.cookie, locker.addr.with_kind(AddrType::ANY));
    let why = format!("{name} at {addr} has locked it by hand, as '{cookie}' (see rbd lock ls)");
    ClientError::new(Errno::EBUSY, format!("lock of {}", s.image(slot).title()), why)
}

/// Whether the image has a lock, and somebody else holds it.
pub async fn is_held_by_another(desk: &Desk, slot: usize) -> bool {
    let (header, me, is_free) = desk.with(|s| {
        let (peer, image) = (s.peer(slot), s.image(slot));
        let is_ours = image.lock != LockState::Unlocked;
        let is_free = is_ours || image.read_only || image.dead.is_some() || !image.needs_lock();
        (image.header(), peer, is_free)
    });
    if is_free {
        return false;
    }
    let own_cookie = format!("{COOKIE_PREFIX}{}", me.handle);
    let is_own = |id: &LockerId| id.name.num == me.gid as i64 && id.cookie == own_cookie;
    let Ok(info) = lock_info(desk, header).await else { return false };
    info.lockers.first_key_value().is_some_and(|(id, _)| !is_own(id))
}

pub async fn lock_info(desk: &Desk, object: Object) -> Result<LockInfo, ClientError> {
    let op = ObjectOp::new(object).call("lock", "get_info", lock_name());
    desk.op(op).await?.get(0)
}

fn is_same(a: &EntityAddr, b: &EntityAddr) -> bool {
    (a.sock, a.nonce) == (b.sock, b.nonce)
}

/// Whether a client still watches the header: it lives.
async fn is_watching(
    desk: &Desk,
    header: Object,
    handle: u64,
    addr: &EntityAddr,
) -> Result<bool, ClientError> {
    let watchers = desk.op(ObjectOp::new(header).list_watchers()).await?.watchers(0)?;
    Ok(watchers.iter().any(|w| w.cookie == handle && is_same(&w.addr, addr)))
}

/// Asks the holder for the lock, and waits for news of it.
async fn ask_for_it(desk: &Desk, slot: usize, header: Object, me: Peer) -> Result<(), ClientError> {
    let before = desk.with(|s| s.image(slot).lock_news);
    let asked = desk.notify(header, Notice::RequestLock(me).encode(), NOTIFY_S).await?;
    let answers: Vec<i32> = asked.replies.iter().filter_map(|(_, r)| result_of(r)).collect();
    if let Some(no) = answers.iter().find(|r| **r < 0) {
        let errno = crate::error::errno_of(*no);
        let why = "the client that holds it does not let it go";
        return Err(desk.with(|s| s.error(slot, errno, "lock of", why)));
    }
    let limit = if answers.is_empty() { RETRY } else { PATIENCE };
    desk.until_or(limit, move |s| {
        let image = s.image(slot);
        (image.lock_news != before || image.dead.is_some()).then_some(())
    })
    .await;
    Ok(())
}

/// Shuts a dead holder out and takes its lock away.
async fn break_it(
    desk: &Desk,
    header: Object,
    info: &LockInfo,
    ours: bool,
) -> Result<(), ClientError> {
    // It may have let go, or somebody else was faster.
    let again = lock_info(desk, header.clone()).await?;
    let (Some((id, locker)), true) = (again.lockers.first_key_value(), again == *info) else {
        return Ok(());
    };
    // An image of our own that was closed without a word has sent all it had.
    if !ours {
        tracing::warn!(holder = %id.name, addr = %locker.addr, "blocklisting a dead lock holder");
        blocklist(desk, &locker.addr).await?;
    }
    let op = ObjectOp::new(header).call("lock", "break_lock", lock_break(id)).as_write();
    unless_missing(desk.op(op).await).map(drop)
}

/// No OSD does anything for this client any more, from the map on that we have afterwards.
async fn blocklist(desk: &Desk, addr: &EntityAddr) -> Result<(), ClientError> {
    let addr = addr.with_kind(AddrType::ANY);
    let json = format!(
        r#"{{"prefix":"osd blocklist","blocklistop":"add","addr":"{addr}","format":"json"}}"#
    );
    let CommandReply { status, outs, .. } = desk.command(json).await?;
    if status < 0 {
        let errno = crate::error::errno_of(status);
        return Err(ClientError::new(errno, format!("blocklisting {addr}"), outs));
    }
    desk.newest_map().await
}

/// Lets go of the locks on object map and header, when the cookie is certain.
async fn let_go(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    desk.until(move |s| {
        let is_busy = std::mem::replace(&mut s.image_mut(slot).cookie_busy, true);
        (!is_busy).then_some(())
    })
    .await;
    unlock(desk, slot).await
}

/// Gives back a lock that is not used, if the header has it, until the answer is clear.
async fn give_back(desk: Desk, slot: usize) {
    for tries in 0.. {
        if !desk.until(move |s| s.ready_to_give_back(slot)).await {
            return;
        }
        let Err(error) = unlock(&desk, slot).await else { break };
        if error.errno == Errno::EBLOCKLISTED {
            return desk.with(|s| s.die(slot, &error));
        }
        tracing::warn!(%error, "the exclusive lock may still be there, and is to be given back");
        if desk.with(|s| s.image(slot).closing) && tries >= MAX_GIVE_BACKS {
            return;
        }
        desk.sleep(RETRY).await;
    }
    tell_released(&desk, slot).await;
}

async fn tell_released(desk: &Desk, slot: usize) {
    let (header, peer) = desk.with(|s| (s.image(slot).header(), s.peer(slot)));
    let _ = desk.notify(header, Notice::ReleasedLock(peer).encode(), NOTIFY_S).await;
}

/// The same when the cookie is ours to change; it is free afterwards.
async fn unlock(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    let gone = unlock_both(desk, slot).await;
    desk.with(|s| {
        s.touched = true;
        let image = s.image_mut(slot);
        image.cookie_busy = false;
        if gone.is_ok() {
            image.cookie.clear();
        }
    });
    gone
}

async fn unlock_both(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    let (header, cookie, map) = desk.with(|s| {
        let image = s.image_mut(slot);
        let map = image.map.take().map(|_| image.map_object(SnapId::HEAD));
        (image.header(), image.cookie.clone(), map)
    });
    if let Some(map) = map {
        let op = ObjectOp::new(map).call("lock", "unlock", lock_release("")).as_write();
        if let Err(error) = unless_missing(desk.op(op).await) {
            tracing::warn!(%error, "the object map stays locked");
        }
    }
    let op = ObjectOp::new(header).call("lock", "unlock", lock_release(&cookie)).as_write();
    unless_missing(desk.op(op).await).map(drop)
}

async fn release_script(desk: Desk, slot: usize) {
    release(&desk, slot).await;
    desk.with(|s| s.run_queue(slot));
}

/// Gives the lock back when everything under way is over. The state is `Releasing` already.
pub async fn release(desk: &Desk, slot: usize) {
    let ready = desk.until(move |s| {
        let image = s.image(slot);
        let over = image.is_drained() && !image.maintaining;
        (over || image.dead.is_some()).then_some(image.dead.is_none())
    });
    if ready.await {
        if let Err(error) = let_go(desk, slot).await {
            tracing::warn!(%error, "the exclusive lock could not be given back");
        }
        tell_released(desk, slot).await;
    }
    desk.with(|s| {
        s.touched = true;
        let image = s.image_mut(slot);
        image.lock = LockState::Unlocked;
        image.drop_map();
        s.want_no_lock(slot);
    });
}

// ---- the object map ----

/// Locks and loads the object map, if the image has one.
pub async fn open_map(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    let (has, object, objects) = desk.with(|s| {
        let image = s.image(slot);
        let objects = image.layout.objects(image.head.size);
        (image.head.has(feature::OBJECT_MAP), image.map_object(SnapId::HEAD), objects)
    });
    if !has {
        return Ok(());
    }
    lock_map(desk, &object).await?;
    let map = load_map(desk, slot, object, objects).await?;
    desk.with(|s| s.image_mut(slot).map = Some(map));
    Ok(())
}

async fn lock_map(desk: &Desk, object: &Object) -> Result<(), ClientError> {
    const TRIES: usize = 10;
    for _ in 0..TRIES {
        let op = ObjectOp::new(object.clone()).call("lock", "lock", lock_take("", ""));
        match desk.op(op.as_write()).await {
            Ok(_) => return Ok(()),
            Err(e) if e.errno == Errno::EEXIST => return Ok(()),
            Err(e) if e.errno == Errno::EBUSY => {}
            Err(e) => return Err(e),
        }
        // Who holds the header's lock may use the map: a holder before us left this one.
        let left = unless_missing(lock_info(desk, object.clone()).await)?;
        for id in left.lockers.keys() {
            let op = ObjectOp::new(object.clone());
            let op = op.call("lock", "break_lock", lock_break(id)).as_write();
            unless_missing(desk.op(op).await)?;
        }
    }
    Err(ClientError::new(Errno::EBUSY, format!("lock of {object}"), "others take it all the time"))
}

async fn load_map(
    desk: &Desk,
    slot: usize,
    object: Object,
    objects: u64,
) -> Result<ObjectMap, ClientError> {
    let load = ObjectOp::new(object.clone()).call("rbd", "object_map_load", "");
    let loaded = desk.op(load.clone()).await.and_then(|reply| reply.get::<ObjectMap>(0));
    let begin_anew = match loaded {
        Ok(map) if map.len() >= objects => return Ok(map),
        Ok(_) => false,
        Err(e) if matches!(e.errno, Errno::ENOENT | Errno::EINVAL | Errno::EIO) => true,
        Err(e) => return Err(e),
    };
    // It is damaged or too short: it is kept from now on, but not trusted until it is made anew.
    invalidate_map(desk, slot, SnapId::HEAD).await?;
    let mut op = locked(ObjectOp::new(object));
    if begin_anew {
        op = op.truncate(0);
    }
    let input = denc::encode(&(objects, 0u8));
    desk.op(op.call("rbd", "object_map_resize", input).as_write()).await?;
    desk.op(load).await?.get(0)
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn a_lock_that_may_have_been_granted_later_is_given_back() {
        let mut stage = Stage::new();
        let slot = stage.open();
        let take = |stage: &mut Stage| {
            stage.script(|desk| async move { super::super::maintain::lock(&desk, slot).await })
        };
        let lock = take(&mut stage);
        let asked = stage.until("lock.lock");
        stage.fail(asked, Errno::ETIMEDOUT);
        assert_eq!(lock.take().unwrap().unwrap_err().errno, Errno::ETIMEDOUT);
        let own = stage.with(|s| format!("auto {}", s.peer(slot).handle));
        let unlock = stage.take("lock.unlock");
        assert!(unlock.says(&own), "{unlock:?}");
        // Neither closes the image before it is certain that the lock is gone, nor takes the lock again.
        let again = take(&mut stage);
        let closed =
            stage.script(|desk| async move { super::super::header::close(&desk, slot).await });
        stage.serve();
        stage.fail(unlock, Errno::ETIMEDOUT);
        stage.serve();
        assert!(again.take().unwrap().is_ok());
        stage.pass(RETRY);
        stage.serve();
        assert!(closed.borrow().is_some());
    }

    #[test]
    fn a_lock_that_may_not_have_been_given_back_is_so_again() {
        let mut stage = Stage::new();
        let slot = stage.locked();
        stage.with(|s| s.image_mut(slot).map = None);
        let closed =
            stage.script(|desk| async move { super::super::header::close(&desk, slot).await });
        for _ in 0..3 {
            let unlock = stage.until("rbd_header.1: lock.unlock");
            stage.fail(unlock, Errno::ETIMEDOUT);
            let told = std::mem::take(&mut stage.asked);
            told.into_iter().for_each(|asked| stage.ok(asked));
            stage.pass(RETRY);
        }
        let unlock = stage.take("rbd_header.1: lock.unlock");
        assert!(!stage.is_asked("unwatch"));
        stage.ok(unlock);
        stage.serve();
        assert!(closed.borrow().is_some());
    }

    #[test]
    fn a_lock_that_nobody_waits_for_any_more_is_not_asked_for() {
        let mut stage = Stage::new();
        let slot = stage.open();
        stage.lock_by_another();
        let (id, lock) =
            stage.request(|desk| async move { super::super::maintain::lock(&desk, slot).await });
        for _ in 0..5 {
            let ask = stage.until("notify");
            stage.answer_notify(ask, 0);
            stage.pass(PATIENCE);
        }
        assert!(lock.borrow().is_none());
        stage.cancel(id);
        assert_eq!(lock.take().unwrap().unwrap_err().errno, Errno::ECANCELED);
        let closed =
            stage.script(|desk| async move { super::super::header::close(&desk, slot).await });
        for _ in 0..5 {
            stage.serve();
            stage.pass(PATIENCE);
        }
        assert!(closed.borrow().is_some());
    }
}

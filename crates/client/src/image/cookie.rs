//! The cookie of the exclusive lock names the holder's watch on the header: when that is lost and made anew, the lock
//! follows it (`managed_lock/ReacquireRequest.cc`). Else the holder would be taken for dead.

use super::format::{COOKIE_PREFIX, LOCK_TAG, LockerId, lock_set_cookie};
use super::lock::{RETRY, lock_info};
use super::script::Desk;
use super::state::{LockState, Shared};
use crate::error::ClientError;
use crate::op::ObjectOp;
use types::Errno;

impl Shared {
    /// The cookie that the lock must have and has not, once nobody else is at it; nobody else is then.
    fn next_cookie(&mut self, slot: usize, states: &[LockState]) -> Option<Option<String>> {
        let handle = self.peer(slot).handle;
        let image = self.image_mut(slot);
        if image.cookie_busy {
            return None;
        }
        let new = format!("{COOKIE_PREFIX}{handle}");
        let is_ours = states.contains(&image.lock) && !image.cookie.is_empty();
        let is_due = is_ours && image.watching && image.dead.is_none() && image.cookie != new;
        image.cookie_busy = is_due;
        Some(is_due.then_some(new))
    }
}

/// The watch has another number now: so must the lock.
pub async fn change_cookie(desk: &Desk, slot: usize) {
    let changed = follow_watch(desk, slot, &[LockState::Locked, LockState::Releasing]).await;
    desk.with(|s| match changed {
        Ok(()) => {}
        Err(error) if error.errno == Errno::EBLOCKLISTED => s.die(slot, &error),
        Err(error) => s.lock_is_lost(slot, &error),
    });
}

/// Gives the lock, which is in one of these states, the number of the watch that there is now.
pub async fn follow_watch(
    desk: &Desk,
    slot: usize,
    states: &'static [LockState],
) -> Result<(), ClientError> {
    while let Some(new) = desk.until(move |s| s.next_cookie(slot, states)).await {
        let changed = set_cookie(desk, slot, &new).await;
        desk.with(|s| {
            s.touched = true;
            let image = s.image_mut(slot);
            image.cookie_busy = false;
            if changed.is_ok() {
                image.cookie = new;
            }
        });
        changed?;
    }
    Ok(())
}

async fn set_cookie(desk: &Desk, slot: usize, new: &str) -> Result<(), ClientError> {
    let (header, input, gid) = desk.with(|s| {
        let image = s.image(slot);
        (image.header(), lock_set_cookie(&image.cookie, LOCK_TAG, new), s.gid as i64)
    });
    loop {
        let op = ObjectOp::new(header.clone()).call("lock", "set_cookie", input.clone());
        match desk.op(op.as_write()).await {
            Err(error) if error.errno == Errno::ETIMEDOUT => {}
            clear => return clear.map(drop),
        }
        // It may have been done nevertheless.
        desk.sleep(RETRY).await;
        desk.with(|s| s.check_alive(slot))?;
        let is_it = |id: &LockerId| id.name.num == gid && id.cookie == new;
        if lock_info(desk, header.clone()).await.is_ok_and(|info| info.lockers.keys().any(is_it)) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::maintain;
    use super::super::notice::{Notice, Peer};
    use super::super::stage::Stage;
    use super::*;
    use crate::outcome::{Outcome, RequestId};

    /// The watch is lost, and another one asked for; the answer to that is left to the test.
    fn lose_watch(stage: &mut Stage, slot: usize) -> RequestId {
        let old = stage.with(|s| s.image(slot).watch.unwrap());
        let lost = super::super::stage::error(Errno::ENOTCONN);
        stage.complete(old, Outcome::WatchLost(lost));
        let unwatch = stage.take("unwatch");
        stage.ok(unwatch);
        old
    }

    fn request_lock(stage: &mut Stage, slot: usize) {
        let watch = stage.with(|s| s.image(slot).watch.unwrap());
        let payload = Notice::RequestLock(Peer { gid: 1, handle: 1 }).encode();
        stage.complete(watch, Outcome::Notified { notify_id: 1, notifier: 1, payload });
    }

    #[test]
    fn the_lock_is_given_back_under_the_cookie_it_has() {
        let mut stage = Stage::new();
        let slot = stage.locked();
        lose_watch(&mut stage, slot);
        let watch = stage.take("watch");
        stage.ok(watch);
        let set = stage.take("lock.set_cookie");
        request_lock(&mut stage, slot);
        assert!(!stage.is_asked("rbd_header.1: lock.unlock"));
        stage.ok(set);
        let unlock = stage.until("rbd_header.1: lock.unlock");
        let new = stage.with(|s| format!("auto {}", s.peer(slot).handle));
        assert!(unlock.says(&new), "{unlock:?}");
        stage.ok(unlock);
        stage.serve();
        assert!(stage.with(|s| s.image(slot).lock == LockState::Unlocked));
    }

    #[test]
    fn a_lock_whose_watch_changed_while_it_was_taken_follows_it() {
        let mut stage = Stage::new();
        let slot = stage.open();
        let lock = stage.script(|desk| async move { maintain::lock(&desk, slot).await });
        let load = stage.until("rbd.object_map_load");
        let old = lose_watch(&mut stage, slot);
        let watch = stage.take("watch");
        stage.ok(watch);
        assert!(!stage.is_asked("lock.set_cookie"), "there may be no lock yet");
        stage.ok(load);
        let set = stage.until("lock.set_cookie");
        let new = stage.with(|s| s.peer(slot).handle);
        assert!(set.says(&format!("auto {}", old.0)) && set.says(&format!("auto {new}")));
        assert!(lock.borrow().is_none());
        stage.ok(set);
        stage.serve();
        assert!(lock.take().unwrap().is_ok());
    }

    #[test]
    fn nobody_takes_a_lock_without_a_watch() {
        let mut stage = Stage::new();
        let slot = stage.open();
        lose_watch(&mut stage, slot);
        let watch = stage.take("watch");
        let lock = stage.script(|desk| async move { maintain::lock(&desk, slot).await });
        stage.serve();
        assert!(stage.with(|s| s.image(slot).lock == LockState::Acquiring));
        stage.ok(watch);
        let take = stage.until("lock.lock");
        let own = stage.with(|s| format!("auto {}", s.peer(slot).handle));
        assert!(take.says(&own), "{take:?}");
        stage.ok(take);
        stage.serve();
        assert!(lock.take().unwrap().is_ok());
    }
}

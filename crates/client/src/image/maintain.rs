//! Changes of an image as a whole: one at a time, under the lock, announced when they are done.

use super::format::SnapKind;
use super::lock::{MIN_TURN, NOTIFY_S, RETRY};
use super::notice::Notice;
use super::script::Desk;
use super::state::{LockState, Shared};
use super::wishes::{self, Answer};
use super::{flatten, resize, snapshot};
use crate::error::ClientError;

use std::future::Future;
use types::{Errno, Mono, SnapId};

/// Something to be done with an image as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Another size.
    Resize {
        /// Bytes.
        size: u64,
        /// It may become smaller, and lose what is beyond.
        allow_shrink: bool,
    },
    /// Makes a snapshot.
    SnapCreate(String),
    /// Removes a snapshot. One that clones of format 2 need stays in the trash for them.
    SnapRemove(String, SnapKind),
    /// Gives a snapshot another name.
    SnapRename(SnapId, String),
    /// Keeps a snapshot from being removed.
    SnapProtect(String),
    /// Lets a snapshot be removed, if it has no clones of format 1.
    SnapUnprotect(String),
    /// Makes the image what it was at a snapshot.
    SnapRollback(String),
    /// Takes over everything from the parent, and forgets the parent.
    Flatten,
}

/// Does it, or has the lock's holder do it. Where a peer wants the lock meanwhile, that one has it next, and is asked
/// to go on (`Operations.cc:C_InvokeAsyncRequest`).
pub async fn run(desk: &Desk, slot: usize, change: Change) -> Result<(), ClientError> {
    let mut forgiven = None;
    loop {
        if let Some(wish) = wishes::wish_of(&change) {
            match wishes::ask_holder(desk, slot, wish).await {
                Answer::Done(result) => return result,
                Answer::Here { again: true } => forgiven = wishes::error_when_done(&change),
                Answer::Here { again: false } => {}
            }
        }
        match run_here(desk, slot, change.clone()).await {
            Err(error) if has_stopped(&error) => {
                // Time for the peer to take the lock; whoever has it then may do the rest.
                desk.sleep(RETRY).await;
                forgiven = wishes::error_when_done(&change);
            }
            Err(error) if Some(error.errno) == forgiven => return Ok(()),
            result => return result,
        }
        desk.is_wanted()?;
    }
}

/// Does it.
pub async fn run_here(desk: &Desk, slot: usize, change: Change) -> Result<(), ClientError> {
    // What clones have left of a snapshot that was removed before is removed without a word to a journal
    // (`DetachChildRequest.cc`).
    let is_left = matches!(change, Change::SnapRemove(_, SnapKind::Trash(_)));
    let refuse = || match refuse(desk, slot) {
        Err(error) if error.errno == Errno::EOPNOTSUPP && is_left => Ok(()),
        other => other,
    };
    refuse()?;
    // Once more by the header as it is under the lock.
    let done = async {
        refuse()?;
        let can_stop = matches!(change, Change::Flatten | Change::Resize { .. });
        desk.with(|s| {
            let from = s.now.mono.after(MIN_TURN);
            let image = s.image_mut(slot);
            (image.can_stop, image.progress) = (can_stop.then_some(from), (0, 0));
        });
        do_it(desk, slot, change).await
    };
    let result = under_lock(desk, slot, done).await;
    // Whoever wants the lock has it meanwhile.
    if let Some(parent) = desk.with(|s| s.image_mut(slot).left_parent.take()) {
        flatten::remove_if_trashed(desk, &parent).await;
    }
    result
}

/// Says how far what changes the image is: steps that are done, of so many; and whether it goes on.
///
/// # Errors
/// ECANCELED when nobody wants it any more, and those of [`Shared::goes_on`].
pub fn goes_on(desk: &Desk, slot: usize, done: u64, steps: u64) -> Result<(), ClientError> {
    desk.progress(done, steps)?;
    desk.with(|s| {
        s.image_mut(slot).progress = (done, steps);
        s.goes_on(slot)
    })
}

async fn do_it(desk: &Desk, slot: usize, change: Change) -> Result<(), ClientError> {
    match change {
        Change::Resize { size, allow_shrink } => {
            resize::resize(desk, slot, size, allow_shrink).await
        }
        Change::SnapCreate(name) => snapshot::create(desk, slot, name).await,
        Change::SnapRemove(name, kind) => snapshot::remove(desk, slot, &name, &kind).await,
        Change::SnapRename(id, name) => snapshot::rename(desk, slot, id, name).await,
        Change::SnapProtect(name) => snapshot::protect(desk, slot, &name).await,
        Change::SnapUnprotect(name) => snapshot::unprotect(desk, slot, &name).await,
        Change::SnapRollback(name) => snapshot::rollback(desk, slot, &name).await,
        Change::Flatten => flatten::flatten(desk, slot).await,
    }
}

/// Waits until nothing else changes the image and the lock, if it has one, is ours; then does
/// `change`, and tells the peers that the header is another one.
pub async fn under_lock<T>(
    desk: &Desk,
    slot: usize,
    change: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    hold(desk, slot).await?;
    let result = change.await;
    // What stopped has not come to the header, and somebody waits for the lock.
    if !result.as_ref().is_err_and(has_stopped) {
        tell_peers(desk, slot).await;
    }
    desk.with(|s| s.end_maintaining(slot));
    result
}

/// Whether a procedure ended by [`Shared::goes_on`]; of an OSD the number means something else.
fn has_stopped(error: &ClientError) -> bool {
    error.errno == Errno::ERESTART && error.reply.is_none()
}

/// Tells the peers that the header is another one. Also after a failure: something may be done.
async fn tell_peers(desk: &Desk, slot: usize) {
    let header = desk.with(|s| s.image(slot).header());
    let told = desk.notify(header, Notice::HeaderUpdate.encode(), NOTIFY_S).await;
    if let Err(error) = told {
        tracing::debug!(%error, "peers were not told of a changed header");
    }
}

/// Takes the lock, if the image has one.
pub async fn lock(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    refuse(desk, slot)?;
    hold(desk, slot).await?;
    desk.with(|s| s.end_maintaining(slot));
    refuse(desk, slot)
}

/// What is to be done next to hold an image.
enum Step {
    Held,
    /// Something else of ours changes the image.
    WaitForUs,
    WaitForLock,
    Failed(ClientError),
}

fn refuse(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    desk.with(|s| match s.image(slot).refusal() {
        Some((errno, why)) => Err(s.error(slot, errno, "change of", why)),
        None => Ok(()),
    })
}

async fn hold(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    desk.with(|s| s.image_mut(slot).holding += 1);
    let held = wait_to_hold(desk, slot).await;
    desk.with(|s| s.image_mut(slot).holding -= 1);
    held
}

async fn wait_to_hold(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    let (failures, mut since) = desk.with(|s| (s.image(slot).refresh_failures.0, s.now.mono));
    loop {
        let step = move |s: &mut Shared| next_step(s, slot, failures);
        match desk.until_wanted(slot, Some(since), step).await? {
            Step::Held => return Ok(()),
            Step::Failed(error) => return Err(error),
            Step::WaitForUs => {
                since = desk.until_wanted(slot, None, move |s| s.is_left_alone(slot)).await?;
                continue;
            }
            Step::WaitForLock => {}
        }
        let failed = desk.until_wanted(slot, Some(since), move |s| {
            let image = s.image_mut(slot);
            match image.lock {
                LockState::Acquiring => None,
                LockState::Unlocked => Some(image.lock_error.take()),
                _ => Some(None),
            }
        });
        if let Some(error) = failed.await? {
            return Err(error);
        }
    }
}

impl Shared {
    /// The time when nothing of ours changes the image as a whole (any more).
    pub fn is_left_alone(&self, slot: usize) -> Option<Mono> {
        let image = self.image(slot);
        (!image.maintaining || image.dead.is_some()).then_some(self.now.mono)
    }
}

/// `failures`: so often the header could not be read before.
fn next_step(s: &mut Shared, slot: usize, failures: u64) -> Option<Step> {
    let image = s.image_mut(slot);
    if let Some(dead) = &image.dead {
        return Some(Step::Failed(dead.clone()));
    }
    if image.maintaining {
        return Some(Step::WaitForUs);
    }
    if image.refreshing {
        return None;
    }
    if image.refresh_needed {
        if let (count, Some(error)) = &image.refresh_failures
            && *count != failures
        {
            return Some(Step::Failed(error.clone()));
        }
        s.want_refresh(slot);
        return None;
    }
    if image.needs_lock() && image.lock != LockState::Locked {
        if image.lock == LockState::Unlocked {
            s.want_lock(slot);
            return Some(Step::WaitForLock);
        }
        return None;
    }
    image.maintaining = true;
    Some(Step::Held)
}

/// Keeps writes from being begun, and waits until those that were are over.
pub async fn freeze(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    desk.with(|s| s.image_mut(slot).frozen += 1);
    let dead = desk.until(move |s| {
        let image = s.image(slot);
        (image.is_drained() || image.dead.is_some()).then(|| image.dead.clone())
    });
    match dead.await {
        None => Ok(()),
        Some(error) => {
            thaw(desk, slot);
            Err(error)
        }
    }
}

/// Lets writes begin again.
pub fn thaw(desk: &Desk, slot: usize) {
    desk.with(|s| {
        s.touched = true;
        s.image_mut(slot).frozen -= 1;
        s.run_queue(slot);
    });
}

#[cfg(test)]
mod tests {
    use super::super::feature;
    use super::super::io::Kind;
    use super::super::notice::{AsyncId, Peer, Wish};
    use super::super::snapshot::AT_A_TIME;
    use super::super::stage::Stage;
    use super::*;
    use crate::outcome::Outcome;
    use std::time::Duration;

    #[test]
    fn a_header_that_cannot_be_read_ends_what_waits_for_it() {
        let mut stage = Stage::new();
        let slot = stage.locked();
        stage.with(|s| s.image_mut(slot).refresh_needed = true);
        let change = Change::SnapCreate("s".to_owned());
        let made = stage.script(|desk| async move { run(&desk, slot, change).await });
        let read = stage.until("rbd.get_snapcontext");
        stage.fail(read, Errno::EIO);
        assert_eq!(made.take().unwrap().unwrap_err().errno, Errno::EIO);
        assert!(stage.asked.is_empty(), "{:?}", stage.asked);
        // Once it can be read again, all is well.
        let lock = stage.script(|desk| async move { lock(&desk, slot).await });
        stage.serve();
        assert!(lock.take().unwrap().is_ok());
    }

    const OBJECTS: u64 = 40;

    /// Whoever writes has the lock at once, and does the rest.
    #[test]
    fn a_flatten_stops_where_the_lock_is_wanted_and_the_next_holder_goes_on() {
        let (mut stage, slot) = Stage::locked_clone(OBJECTS);
        let (id, done) =
            stage.request(|desk| async move { run(&desk, slot, Change::Flatten).await });
        // The header first.
        let read = stage.take("rbd.parent_get");
        stage.ok(read);
        stage.hear(slot, Notice::RequestLock(Peer { gid: 4200, handle: 1 }));
        for _ in 0..5 {
            let asked = stage.asked.pop_front().expect("an object");
            stage.ok(asked);
        }
        assert_eq!(stage.asked.len(), AT_A_TIME, "it has just begun, and goes on");
        stage.pass(MIN_TURN);
        let unlock = stage.until("rbd_header.1: lock.unlock");
        let copied = stage.with(|s| s.works[&id].done);
        assert!(copied < OBJECTS / 2, "{copied} objects before the lock goes");
        stage.ok(unlock);
        stage.lock_by_another();
        stage.serve();
        assert!(done.borrow().is_none());
        stage.pass(RETRY);
        // That one has to give it away, too.
        let ends = [(Errno::ERESTART.wire(), false), (0, true)];
        let mut before = None;
        for (result, is_over) in ends {
            let ask = stage.until("notify");
            let wish = stage.with(|s| *s.image(slot).asked.keys().next().expect("a wish"));
            assert_ne!(before.replace(wish), Some(wish), "it is another request");
            stage.answer_notify(ask, 0);
            stage.hear(slot, Notice::AsyncComplete { id: wish, result });
            stage.pass(RETRY);
            stage.serve_but("notify");
            assert_eq!(done.borrow().is_some(), is_over);
        }
        assert!(done.take().unwrap().is_ok());
    }

    /// Time that each answer takes where a client flattens an image that another writes to all the time.
    const ANSWER: Duration = Duration::from_millis(100);

    /// Flattens what krbd writes to: that does nothing for others, gives the lock away when it is asked for it, and
    /// asks for it again at once.
    fn flatten_beside_krbd(patience: Option<Duration>) {
        let (mut stage, slot) = Stage::locked_clone(OBJECTS);
        stage.told.clear();
        stage.with(|s| s.config.patience = patience);
        let krbd = Peer { gid: 4200, handle: 1 };
        let done = stage.script(|desk| async move { run(&desk, slot, Change::Flatten).await });
        let mut turns = 0;
        while done.borrow().is_none() {
            let has_it =
                |s: &mut Shared| s.image(slot).maintaining && !s.image(slot).lock_is_wanted;
            if stage.with(has_it) {
                turns += 1;
                assert!(turns < OBJECTS, "it does not come to an end");
                stage.hear(slot, Notice::RequestLock(krbd));
            }
            let Some(asked) = stage.asked.pop_front() else {
                stage.pass(RETRY);
                continue;
            };
            if asked.text == "rbd_header.1: lock.unlock" {
                stage.lock_by_another();
            }
            if asked.text != "notify" {
                stage.ok(asked);
            } else {
                match Notice::decode(&stage.told.remove(0)).unwrap() {
                    Notice::Wish(..) => stage.answer_notify(asked, Errno::EOPNOTSUPP.wire()),
                    Notice::RequestLock(_) => {
                        stage.unlock_by_another();
                        stage.answer_notify(asked, 0);
                        stage.hear(slot, Notice::ReleasedLock(krbd));
                    }
                    _ => stage.ok(asked),
                }
            }
            stage.pass(ANSWER);
        }
        assert!(turns > 1);
        done.take().unwrap().unwrap();
    }

    /// Each time it comes further: that is what patience is for.
    #[test]
    fn a_flatten_ends_though_its_lock_is_wanted_back_at_once_each_time() {
        for patience in [None, Some(3 * MIN_TURN)] {
            flatten_beside_krbd(patience);
        }
    }

    /// A snapshot is made every hour, say, and it takes days.
    #[test]
    fn what_has_run_for_longer_than_patience_lasts_gives_its_lock_away_and_goes_on() {
        let (mut stage, slot) = Stage::locked_clone(OBJECTS);
        let patience = Duration::from_secs(3);
        stage.with(|s| s.config.patience = Some(patience));
        let done = stage.script(|desk| async move { run(&desk, slot, Change::Flatten).await });
        let read = stage.take("rbd.parent_get");
        stage.ok(read);
        for _ in 0..10 {
            stage.pass(MIN_TURN);
            let asked = stage.asked.pop_front().expect("an object");
            stage.ok(asked);
        }
        stage.hear(slot, Notice::RequestLock(Peer { gid: 4200, handle: 1 }));
        let unlock = stage.until("rbd_header.1: lock.unlock");
        stage.ok(unlock);
        stage.serve();
        assert!(done.borrow().is_none(), "{:?}", done.take());
        // Who had it has gone.
        stage.pass(RETRY);
        stage.serve();
        done.take().unwrap().unwrap();
    }

    /// Somebody had us flatten the image, and somebody else wants to write to it.
    #[test]
    fn who_asked_for_what_stopped_is_told_to_ask_again() {
        let (mut stage, slot) = Stage::locked_clone(OBJECTS);
        let peer = Peer { gid: 4201, handle: 1 };
        let id = AsyncId { peer, request: 7 };
        stage.hear(slot, Notice::Wish(id, Wish::Flatten));
        stage.hear(slot, Notice::RequestLock(Peer { gid: 4200, handle: 1 }));
        stage.pass(MIN_TURN);
        stage.serve();
        assert_eq!(stage.with(|s| s.image(slot).lock), LockState::Unlocked);
        let stopped = Notice::AsyncComplete { id, result: Errno::ERESTART.wire() };
        assert!(stage.told.contains(&stopped.encode()), "{:?}", stage.told);
        assert!(stage.with(|s| s.image(slot).wishes.is_empty()), "it may be asked for again");
    }

    /// What it has removed is gone, the size is as before.
    #[test]
    fn a_resize_stops_where_the_lock_is_wanted() {
        let (mut stage, slot) = Stage::locked_clone(OBJECTS);
        stage.with(|s| s.image_mut(slot).map = None);
        let change = Change::Resize { size: 0, allow_shrink: true };
        stage.script(|desk| async move { run(&desk, slot, change).await });
        let read = stage.take("rbd.parent_get");
        stage.ok(read);
        assert!(stage.is_asked("DELETE"));
        stage.hear(slot, Notice::RequestLock(Peer { gid: 4200, handle: 1 }));
        stage.pass(MIN_TURN);
        while let Some(asked) = stage.asked.pop_front() {
            assert!(!asked.text.contains("set_size"), "{asked:?}");
            stage.ok(asked);
        }
        assert_eq!(stage.with(|s| s.image(slot).lock), LockState::Unlocked);
        assert_eq!(stage.with(|s| s.image(slot).frozen), 0);
    }

    #[test]
    fn what_clones_left_of_a_snapshot_is_removed_also_where_there_is_a_journal() {
        let mut stage = Stage::new();
        let (kind, name) = (SnapKind::Trash("s".to_owned()), "formerly s");
        stage.has_snap(kind.clone(), name, 0);
        let change = Change::SnapRemove(name.to_owned(), kind);
        stage.header.features |= feature::JOURNALING;
        let slot = stage.open();
        let removed = stage.script(|desk| async move { run_here(&desk, slot, change).await });
        let give_back = stage.until("DeleteSnap");
        stage.answer(give_back, Outcome::PoolOp(Ok(None)));
        let remove = stage.until("rbd.snapshot_remove");
        stage.ok(remove);
        stage.serve();
        removed.take().unwrap().unwrap();
    }

    #[test]
    fn what_has_a_journal_or_is_not_primary_by_the_time_is_not_written() {
        let cases =
            [(feature::JOURNALING, Errno::EOPNOTSUPP), (feature::NON_PRIMARY, Errno::EROFS)];
        for (new, errno) in cases {
            let mut stage = Stage::new();
            let slot = stage.open();
            let write = stage.submit(slot, Kind::Write, 1, 100);
            let change = Change::SnapCreate("s".to_owned());
            let made = stage.script(|desk| async move { run_here(&desk, slot, change).await });
            stage.header.features |= new;
            let take = stage.until("lock.lock");
            stage.ok(take);
            while let Some(asked) = stage.asked.pop_front() {
                assert!(!asked.text.contains("data.") && !asked.text.contains("add"), "{asked:?}");
                stage.ok(asked);
            }
            assert_eq!(stage.end(write), Some(Err(errno)));
            assert_eq!(made.take().unwrap().unwrap_err().errno, errno);
            let write = stage.submit(slot, Kind::Write, 1, 100);
            assert_eq!(stage.end(write), Some(Err(errno)));
        }
    }
}

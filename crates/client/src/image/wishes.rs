//! Who does not hold the lock of an image has its holder change it: the holder goes on writing meanwhile
//! (`librbd/ImageWatcher.cc`, `Operations.cc:C_InvokeAsyncRequest`).
//!
//! The holder answers the notify of a [`Wish`] at once, tells by others from time to time how far it is, and how it
//! ended. If it says nothing for [`SILENCE`] it is asked again, under the same [`AsyncId`]: it knows then that it did
//! so already.
//! While it does something that may take hours it does nothing else for others: they take the lock for it.
//! When nobody answers, the wish is no holder's business (any more), and who has it takes the lock.

use super::format::SnapKind;
use super::lock::{NOTIFY_S, RETRY, is_held_by_another};
use super::maintain::{self, Change};
use super::notice::{AsyncId, Notice, Wish, response, result_of};
use super::script::Desk;
use super::state::{LockState, Shared};
use crate::error::{ClientError, errno_of};
use bytes::Bytes;
use std::time::Duration;
use types::{Errno, Mono};

/// So many requests of peers are remembered, as they may be sent again.
const MAX_WISHES: usize = 64;
/// A holder that says nothing for so long is asked again (`rbd_request_timed_out_seconds`).
const SILENCE: Duration = Duration::from_secs(30);
/// So often a peer is told how far that is which it asked for.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// What is known of a wish that the holder took on.
#[derive(Debug, Default)]
pub struct Asked {
    /// How it ended.
    result: Option<i32>,
    /// How far it is: done, of so much.
    progress: (u64, u64),
    /// Counts what the holder said.
    heard: u64,
    /// When it last did, or since when it is asked.
    heard_at: Mono,
}

/// What comes of asking the holder.
pub enum Answer {
    /// It has done it, or refused.
    Done(Result<(), ClientError>),
    /// It is to be done here. Whether a holder may have done it, or part of it, before.
    Here { again: bool },
}

/// A change as a wish; `None` when nobody does it for others.
pub fn wish_of(change: &Change) -> Option<Wish> {
    let name = String::clone;
    Some(match change {
        Change::Flatten => Wish::Flatten,
        Change::Resize { size, allow_shrink } => {
            Wish::Resize { size: *size, allow_shrink: *allow_shrink }
        }
        Change::SnapCreate(n) => Wish::SnapCreate { name: name(n), kind: SnapKind::User },
        Change::SnapRemove(n, kind) => Wish::SnapRemove { name: name(n), kind: kind.clone() },
        Change::SnapRename(snap, n) => Wish::SnapRename { snap: *snap, name: name(n) },
        Change::SnapProtect(n) => Wish::SnapProtect { name: name(n), kind: SnapKind::User },
        Change::SnapUnprotect(n) => Wish::SnapUnprotect { name: name(n), kind: SnapKind::User },
        Change::SnapRollback(_) => return None,
    })
}

/// What a change says that was done before.
pub fn error_when_done(change: &Change) -> Option<Errno> {
    match change {
        Change::Flatten | Change::SnapUnprotect(_) => Some(Errno::EINVAL),
        Change::SnapCreate(_) | Change::SnapRename(..) => Some(Errno::EEXIST),
        Change::SnapRemove(..) => Some(Errno::ENOENT),
        Change::SnapProtect(_) => Some(Errno::EBUSY),
        Change::Resize { .. } | Change::SnapRollback(_) => None,
    }
}

// ---- asking ----

/// Asks whoever holds the lock, if it is somebody else, and waits until it is done.
pub async fn ask_holder(desk: &Desk, slot: usize, wish: Wish) -> Answer {
    let mut id = new_id(desk, slot);
    let mut again = false;
    let answer = loop {
        // A holder may put us off for ever.
        let heard_at =
            desk.with(|s| s.image(slot).asked.get(&id).map_or(s.now.mono, |a| a.heard_at));
        if let Err(error) = desk.wait_on(slot, heard_at) {
            break Answer::Done(Err(error));
        }
        match ask_once(desk, slot, id, &wish).await {
            Turn::Done(result) => break Answer::Done(result),
            Turn::Nobody => break Answer::Here { again },
            Turn::Silent => again = true,
            Turn::Later => desk.sleep(RETRY).await,
            Turn::Anew => {
                desk.sleep(RETRY).await;
                forget_id(desk, slot, id);
                id = new_id(desk, slot);
            }
        }
    };
    forget_id(desk, slot, id);
    desk.with(|s| s.image_mut(slot).refresh_needed = true);
    answer
}

fn new_id(desk: &Desk, slot: usize) -> AsyncId {
    desk.with(|s| {
        let (request, heard_at) = (s.new_ticket().0, s.now.mono);
        let id = AsyncId { peer: s.peer(slot), request };
        s.image_mut(slot).asked.insert(id, Asked { heard_at, ..Asked::default() });
        id
    })
}

fn forget_id(desk: &Desk, slot: usize, id: AsyncId) {
    desk.with(|s| s.image_mut(slot).asked.remove(&id));
}

/// What comes of asking once.
enum Turn {
    Done(Result<(), ClientError>),
    Nobody,
    /// It was taken on, and nothing was heard of it since.
    Silent,
    Later,
    /// The holder has stopped, as it has to give the lock away: the next one is asked.
    Anew,
}

async fn ask_once(desk: &Desk, slot: usize, id: AsyncId, wish: &Wish) -> Turn {
    if !is_held_by_another(desk, slot).await {
        return Turn::Nobody;
    }
    let header = desk.with(|s| s.image(slot).header());
    let payload = Notice::Wish(id, wish.clone()).encode();
    let Ok(heard) = desk.notify(header, payload, NOTIFY_S).await else { return Turn::Nobody };
    match heard.replies.iter().find_map(|(_, reply)| result_of(reply)) {
        None => Turn::Nobody,
        Some(0) => wait_for(desk, slot, id).await,
        Some(r) if r == Errno::ERESTART.wire() => Turn::Later,
        Some(r) if r == Errno::EOPNOTSUPP.wire() => Turn::Nobody,
        Some(r) => Turn::Done(Err(refused(desk, slot, r))),
    }
}

fn refused(desk: &Desk, slot: usize, result: i32) -> ClientError {
    let why = "the client that holds its lock could not do it";
    desk.with(|s| s.error(slot, errno_of(result), "change of", why))
}

/// Waits until the holder is done.
async fn wait_for(desk: &Desk, slot: usize, id: AsyncId) -> Turn {
    let mut heard = desk.with(|s| s.image(slot).asked.get(&id).map_or(0, |a| a.heard));
    loop {
        let news = desk.until_or(SILENCE, move |s| {
            let image = s.image(slot);
            let Some(asked) = image.asked.get(&id).filter(|_| image.dead.is_none()) else {
                return Some((None, (0, 0), heard));
            };
            let is_new = asked.result.is_some() || asked.heard != heard;
            is_new.then_some((asked.result, asked.progress, asked.heard))
        });
        let Some((result, (done, steps), now_heard)) = news.await else {
            return match desk.is_wanted() {
                Ok(()) => Turn::Silent,
                Err(error) => Turn::Done(Err(error)),
            };
        };
        match result {
            Some(0) => return Turn::Done(Ok(())),
            Some(r) if r == Errno::ERESTART.wire() => return Turn::Anew,
            Some(r) => return Turn::Done(Err(refused(desk, slot, r))),
            // The image is dead.
            None if now_heard == heard => return Turn::Nobody,
            None => {}
        }
        heard = now_heard;
        if let Err(error) = desk.progress(done, steps) {
            return Turn::Done(Err(error));
        }
    }
}

impl Shared {
    /// The holder says how far it is with what somebody asked for.
    pub fn on_async_progress(&mut self, slot: usize, id: AsyncId, done: u64, steps: u64) -> Bytes {
        self.heard_of(slot, id, |asked| asked.progress = (done, steps))
    }

    /// The holder has done what somebody asked for.
    pub fn on_async_complete(&mut self, slot: usize, id: AsyncId, result: i32) -> Bytes {
        self.heard_of(slot, id, |asked| asked.result = Some(result))
    }

    /// Only who asked answers.
    fn heard_of(&mut self, slot: usize, id: AsyncId, note: impl FnOnce(&mut Asked)) -> Bytes {
        let now = self.now.mono;
        let Some(asked) = self.image_mut(slot).asked.get_mut(&id) else { return Bytes::new() };
        note(asked);
        asked.heard += 1;
        asked.heard_at = now;
        response(0)
    }
}

// ---- being asked ----

impl Shared {
    /// A peer wants something done. Only who holds the lock answers; what it does not do, the peer
    /// does after it got the lock.
    pub fn on_wish(&mut self, slot: usize, id: AsyncId, wish: Wish) -> Bytes {
        let peer = self.peer(slot);
        let image = self.image_mut(slot);
        if image.lock != LockState::Locked || image.closing {
            return Bytes::new();
        }
        if image.removing {
            return response(Errno::EROFS.wire());
        }
        if id.peer == peer {
            return response(Errno::ERESTART.wire());
        }
        if matches!(wish, Wish::Other(_)) {
            return response(Errno::EOPNOTSUPP.wire());
        }
        if let Some((_, ended)) = image.wishes.iter().find(|(old, _)| *old == id) {
            // It did not hear how it ended.
            if let Some(result) = *ended {
                self.spawn_for(slot, |desk| async move { tell(&desk, slot, id, result).await });
            }
            return response(0);
        }
        // It would wait for what may take hours: the peer takes the lock for it, and that goes on afterwards.
        if image.can_stop.is_some() && wish != Wish::Flatten {
            return response(Errno::EOPNOTSUPP.wire());
        }
        if image.wishes.len() >= MAX_WISHES {
            image.wishes.pop_front();
        }
        image.wishes.push_back((id, None));
        self.spawn_for(slot, |desk| fulfil(desk, slot, id, wish));
        self.spawn_for(slot, |desk| tell_progress(desk, slot, id));
        response(0)
    }
}

/// Does what a peer has asked for, and tells it.
async fn fulfil(desk: Desk, slot: usize, id: AsyncId, wish: Wish) {
    let change = match wish {
        Wish::Flatten => Change::Flatten,
        Wish::Resize { size, allow_shrink } => Change::Resize { size, allow_shrink },
        Wish::SnapCreate { name, kind: SnapKind::User } => Change::SnapCreate(name),
        Wish::SnapRemove { name, kind } => Change::SnapRemove(name, kind),
        Wish::SnapRename { snap, name } => Change::SnapRename(snap, name),
        Wish::SnapProtect { name, .. } => Change::SnapProtect(name),
        Wish::SnapUnprotect { name, .. } => Change::SnapUnprotect(name),
        Wish::SnapCreate { .. } | Wish::Other(_) => {
            return tell(&desk, slot, id, Errno::EOPNOTSUPP.wire()).await;
        }
    };
    let result = match do_for_peer(&desk, slot, change).await {
        Ok(()) => 0,
        Err(error) => {
            tracing::info!(%error, "what a peer asked for failed");
            error.errno.wire()
        }
    };
    tell(&desk, slot, id, result).await;
}

/// Does it when nothing else of ours changes the image, for as long as we hold the lock.
async fn do_for_peer(desk: &Desk, slot: usize, change: Change) -> Result<(), ClientError> {
    let shows_parent = || desk.with(|s| s.image(slot).head.overlap > 0);
    let is_clone = shows_parent();
    desk.until(move |s| s.is_left_alone(slot)).await;
    // Somebody had us flatten it before.
    if change == Change::Flatten && is_clone && !shows_parent() {
        return Ok(());
    }
    let is_ours = desk.with(|s| s.image(slot).lock == LockState::Locked && !s.image(slot).closing);
    if !is_ours {
        let why = "its lock is given away";
        return Err(desk.with(|s| s.error(slot, Errno::ERESTART, "change of", why)));
    }
    maintain::run_here(desk, slot, change).await
}

/// Tells a peer from time to time how far that is which it asked for: else it would not wait for it any longer.
async fn tell_progress(desk: Desk, slot: usize, id: AsyncId) {
    let is_over = move |s: &mut Shared| {
        let is_under_way = |(of, ended): &(AsyncId, Option<i32>)| *of == id && ended.is_none();
        (!s.image(slot).wishes.iter().any(is_under_way)).then_some(())
    };
    while desk.until_or(TELL_EVERY, is_over).await.is_none() {
        let (header, (offset, total)) =
            desk.with(|s| (s.image(slot).header(), s.image(slot).progress));
        let notice = Notice::AsyncProgress { id, offset, total: total.max(1) };
        let _ = desk.notify(header, notice.encode(), NOTIFY_S).await;
    }
}

async fn tell(desk: &Desk, slot: usize, id: AsyncId, result: i32) {
    let header = desk.with(|s| {
        let image = s.image_mut(slot);
        if result == Errno::ERESTART.wire() {
            // It may be asked for again.
            image.wishes.retain(|(old, _)| *old != id);
        } else if let Some(wish) = image.wishes.iter_mut().find(|(old, _)| *old == id) {
            wish.1 = Some(result);
        }
        image.header()
    });
    let notice = Notice::AsyncComplete { id, result };
    let _ = desk.notify(header, notice.encode(), NOTIFY_S).await;
}

#[cfg(test)]
mod tests {
    use super::super::notice::Peer;
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn a_holder_that_puts_us_off_for_ever_is_not_asked_when_nobody_wants_it_any_more() {
        let mut stage = Stage::new();
        let slot = stage.open();
        stage.lock_by_another();
        let (id, done) =
            stage.request(|desk| async move { maintain::run(&desk, slot, Change::Flatten).await });
        for _ in 0..5 {
            let ask = stage.until("notify");
            stage.answer_notify(ask, Errno::ERESTART.wire());
            stage.pass(RETRY);
        }
        assert!(done.borrow().is_none());
        stage.cancel(id);
        let ask = stage.until("notify");
        stage.answer_notify(ask, Errno::ERESTART.wire());
        stage.pass(RETRY);
        assert_eq!(done.take().unwrap().unwrap_err().errno, Errno::ECANCELED);
    }

    /// A holder that says it will do it later, or nothing; one that does nothing for others and keeps the lock, or
    /// says nothing of that either.
    #[test]
    fn a_holder_that_does_nothing_is_not_waited_for_longer_than_patience_lasts() {
        let later = Errno::ERESTART.wire();
        let unknown = Errno::EOPNOTSUPP.wire();
        let patience = Duration::from_secs(120);
        for (to_wish, to_request) in
            [(Some(later), None), (Some(0), None), (Some(unknown), Some(0)), (None, None)]
        {
            let mut stage = Stage::new();
            let slot = stage.open();
            stage.lock_by_another();
            stage.with(|s| s.config.patience = Some(patience));
            let done = stage
                .script(|desk| async move { maintain::run(&desk, slot, Change::Flatten).await });
            let mut waited = Duration::ZERO;
            while done.borrow().is_none() {
                assert!(waited <= patience + SILENCE, "{to_wish:?} {to_request:?}");
                while let Some(asked) = stage.asked.pop_front() {
                    let answer = match asked.text == "notify" {
                        false => None,
                        true => match Notice::decode(&stage.told.remove(0)).unwrap() {
                            Notice::Wish(..) => to_wish,
                            Notice::RequestLock(_) => to_request,
                            _ => None,
                        },
                    };
                    match answer {
                        Some(result) => stage.answer_notify(asked, result),
                        None => stage.ok(asked),
                    }
                }
                stage.pass(RETRY);
                waited += RETRY;
            }
            assert!(waited >= patience);
            assert_eq!(done.take().unwrap().unwrap_err().errno, Errno::EBUSY);
        }
    }

    /// It may take days, with several holders one after the other.
    #[test]
    fn a_holder_that_stops_after_a_long_time_leaves_all_patience_to_the_next_one() {
        let mut stage = Stage::new();
        let slot = stage.open();
        stage.lock_by_another();
        let patience = Duration::from_secs(120);
        stage.with(|s| s.config.patience = Some(patience));
        let done =
            stage.script(|desk| async move { maintain::run(&desk, slot, Change::Flatten).await });
        let wish_of = |stage: &Stage| stage.with(|s| *s.image(slot).asked.keys().next().unwrap());
        let ask = stage.until("notify");
        let id = wish_of(&stage);
        stage.answer_notify(ask, 0);
        for step in 0..10 {
            stage.pass(SILENCE / 2);
            stage.hear(slot, Notice::AsyncProgress { id, offset: step, total: 10 });
        }
        stage.hear(slot, Notice::AsyncComplete { id, result: Errno::ERESTART.wire() });
        stage.pass(RETRY);
        assert!(done.borrow().is_none(), "{:?}", done.take());
        let ask = stage.until("notify");
        let next = wish_of(&stage);
        assert_ne!(next, id);
        stage.answer_notify(ask, 0);
        stage.hear(slot, Notice::AsyncComplete { id: next, result: 0 });
        stage.serve();
        done.take().unwrap().unwrap();
    }

    /// A task of the mon flattens an image, and somebody types `rbd flatten`.
    #[test]
    fn who_wants_a_flatten_that_is_under_way_is_told_how_far_it_is_and_when_it_is_done() {
        let (mut stage, slot) = Stage::locked_clone(40);
        stage.with(|s| s.config.patience = Some(Duration::from_secs(3)));
        let done =
            stage.script(|desk| async move { maintain::run(&desk, slot, Change::Flatten).await });
        let read = stage.take("rbd.parent_get");
        stage.ok(read);
        let id = AsyncId { peer: Peer { gid: 4201, handle: 1 }, request: 7 };
        stage.hear(slot, Notice::Wish(id, Wish::Flatten));
        let mut told = Vec::new();
        while done.borrow().is_none() {
            // Its header shows no parent afterwards.
            if stage.is_asked("rbd.parent_detach") {
                stage.be_no_clone();
            }
            let asked = stage.asked.pop_front().expect("it is not done");
            stage.ok(asked);
            stage.pass(Duration::from_secs(4));
            told.extend(stage.told.drain(..).map(|bytes| Notice::decode(&bytes).unwrap()));
        }
        stage.serve();
        told.extend(stage.told.drain(..).map(|bytes| Notice::decode(&bytes).unwrap()));
        let says = |notice: &Notice| match notice {
            Notice::AsyncProgress { id: of, offset, .. } if *of == id => Some((*offset, None)),
            Notice::AsyncComplete { id: of, result } if *of == id => Some((40, Some(*result))),
            _ => None,
        };
        let said: Vec<_> = told.iter().filter_map(says).collect();
        assert!(said.len() > 3 && said.is_sorted(), "{said:?}");
        assert_eq!(said.iter().filter_map(|(_, result)| *result).collect::<Vec<_>>(), [0]);
        done.take().unwrap().unwrap();
    }
}

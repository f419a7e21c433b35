//! What peers say by notifies on the header, and what becomes of a lost watch
//! (`librbd/ImageWatcher.cc`).

use super::io::Kind;
use super::maintain;
use super::notice::{AsyncId, Notice, Wish, response};
use super::script::Desk;
use super::state::{LockState, Shared};
use crate::error::ClientError;
use crate::outcome::{Outcome, RequestId};
use bytes::Bytes;
use std::time::Duration;
use types::Errno;

/// So many requests of peers are remembered, as they may be sent again.
const MAX_WISHES: usize = 64;
/// Before a lost watch is tried again.
const RETRY: Duration = Duration::from_secs(1);

impl Shared {
    /// Something happened to the watch of an image.
    pub fn on_watch(&mut self, slot: usize, watch: RequestId, outcome: Outcome) {
        match outcome {
            Outcome::Notified { notify_id, payload, .. } => {
                let answer = self.on_notified(slot, &payload);
                self.acks.push((watch, notify_id, answer));
            }
            Outcome::WatchLost(error) => self.on_watch_lost(slot, &error),
            other => tracing::debug!(?other, "an event that a watch does not have"),
        }
    }

    /// What is answered.
    fn on_notified(&mut self, slot: usize, payload: &Bytes) -> Bytes {
        let notice = match Notice::decode(payload) {
            Ok(notice) => notice,
            Err(error) => {
                tracing::debug!(%error, "a notify that is malformed");
                return Bytes::new();
            }
        };
        self.touched = true;
        match notice {
            Notice::HeaderUpdate => {
                self.image_mut(slot).refresh_needed = true;
                self.want_refresh(slot);
                response(0)
            }
            Notice::AcquiredLock(_) | Notice::ReleasedLock(_) => {
                self.image_mut(slot).lock_news += 1;
                Bytes::new()
            }
            Notice::RequestLock(peer) => {
                if peer == self.peer(slot) || self.image(slot).lock != LockState::Locked {
                    return Bytes::new();
                }
                self.hand_over(slot);
                response(0)
            }
            Notice::Wish(id, wish) => self.on_wish(slot, id, wish),
            // We have nothing that could be made quiet, and ask nobody to do things for us.
            Notice::Quiesce(_)
            | Notice::Unquiesce(_)
            | Notice::AsyncProgress { .. }
            | Notice::AsyncComplete { .. } => Bytes::new(),
        }
    }

    /// A peer wants something done. Only who holds the lock answers; what it does not do, the peer
    /// does after it got the lock.
    fn on_wish(&mut self, slot: usize, id: AsyncId, wish: Wish) -> Bytes {
        let peer = self.peer(slot);
        let image = self.image_mut(slot);
        if image.lock != LockState::Locked || image.closing {
            return Bytes::new();
        }
        if id.peer == peer {
            return response(Errno::ERESTART.wire());
        }
        if matches!(wish, Wish::Other(_)) {
            return response(Errno::EOPNOTSUPP.wire());
        }
        if let Some((_, ended)) = image.wishes.iter().find(|(old, _)| *old == id) {
            return response(ended.unwrap_or(0));
        }
        if image.wishes.len() >= MAX_WISHES {
            image.wishes.pop_front();
        }
        image.wishes.push_back((id, None));
        self.spawn_for(slot, |desk| maintain::fulfil(desk, slot, id, wish));
        response(0)
    }

    fn on_watch_lost(&mut self, slot: usize, error: &ClientError) {
        tracing::warn!(image = self.image(slot).title(), %error, "the watch is lost");
        let image = self.image_mut(slot);
        // Notifies may have been missed.
        image.refresh_needed = true;
        image.lock_news += 1;
        let closing = image.closing;
        self.touched = true;
        if !closing {
            self.spawn_for(slot, |desk| watch_anew(desk, slot));
        }
    }
}

async fn watch_anew(desk: Desk, slot: usize) {
    if let Err(error) = desk.unwatch(slot).await {
        tracing::debug!(%error, "the lost watch was gone");
    }
    loop {
        let error = match desk.watch(slot).await {
            Ok(()) => break,
            Err(error) => error,
        };
        let over = desk.with(|s| {
            let fatal = matches!(error.errno, Errno::ENOENT | Errno::EBLOCKLISTED);
            if fatal {
                s.die(slot, &error);
                s.fail_queue(slot, &error, |kind| kind != Kind::Read);
            }
            fatal || s.image(slot).closing || s.image(slot).dead.is_some()
        });
        if over {
            return;
        }
        desk.sleep(RETRY).await;
    }
    super::lock::change_cookie(&desk, slot).await;
    desk.with(|s| {
        s.image_mut(slot).refresh_needed = true;
        s.want_refresh(slot);
    });
}

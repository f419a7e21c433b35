//! What peers say by notifies on the header, and what becomes of a lost watch
//! (`librbd/ImageWatcher.cc`).

use super::io::Kind;
use super::notice::{Notice, response};
use super::script::Desk;
use super::state::{LockState, Shared};
use crate::error::ClientError;
use crate::outcome::{Outcome, RequestId};
use bytes::Bytes;
use std::time::Duration;
use types::Errno;

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
                if self.image(slot).removing {
                    return response(Errno::EROFS.wire());
                }
                self.hand_over(slot);
                response(0)
            }
            Notice::Wish(id, wish) => self.on_wish(slot, id, wish),
            Notice::AsyncProgress { id, offset, total } => {
                self.on_async_progress(slot, id, offset, total)
            }
            Notice::AsyncComplete { id, result } => self.on_async_complete(slot, id, result),
            // We have nothing that could be made quiet.
            Notice::Quiesce(_) | Notice::Unquiesce(_) => Bytes::new(),
        }
    }

    fn on_watch_lost(&mut self, slot: usize, error: &ClientError) {
        let image = self.image_mut(slot);
        // Notifies may have been missed.
        image.refresh_needed = true;
        image.lock_news += 1;
        image.watching = false;
        let is_needed = image.needs_watch();
        self.touched = true;
        if is_needed {
            tracing::warn!(image = self.image(slot).title(), %error, "the watch is lost");
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
            fatal || !s.image(slot).needs_watch() || s.image(slot).dead.is_some()
        });
        if over {
            return;
        }
        desk.sleep(RETRY).await;
    }
    super::cookie::change_cookie(&desk, slot).await;
    desk.with(|s| {
        s.image_mut(slot).refresh_needed = true;
        s.want_refresh(slot);
    });
}

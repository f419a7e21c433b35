//! Memory for long messages while they are received.
//!
//! A peer that sends the beginning of one makes us keep all that came of it until the rest does. Of links whose
//! policy says so ([`Policy::shares_room`](super::Policy::shares_room)) all together may take so much
//! ([`Messenger::limit_receiving`]): a message gets room when its length is known, before anything behind that is
//! read, as Ceph throttles it (`msg/async/ProtocolV2.cc: throttle_bytes`). Where there is none, nothing more is
//! received from its link until its turn comes. One that is longer than all there is goes alone.
//!
//! Nobody waits for ever: a peer that has room and does not send its message, while another one waits, is
//! disconnected. A lossy one sends it again. It is heard all the time: one that is paused meanwhile
//! ([`Messenger::pause`]) stops when its message is here.

use super::{CloseWhy, Effects, LinkId, Messenger, MsgrEvent, Now};
use std::collections::VecDeque;
use std::time::Duration;
use types::Mono;

/// While others wait for room, a message must be here after this, ...
const PATIENCE: Duration = Duration::from_secs(30);
/// ... and a second more for so many of its bytes.
const SLOWEST_BYTES_PER_S: usize = 1 << 20;
/// How often that is looked at.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// What all links together have.
#[derive(Debug)]
pub(super) struct Room {
    limit_bytes: usize,
    taken_bytes: usize,
    /// Who waits; some may be gone, or paused: these come again when they are heard again.
    line: VecDeque<LinkId>,
    /// Who has got room, and goes on with the next [`Messenger::tick`].
    pub next: Vec<LinkId>,
    check_at: Option<Mono>,
}

impl Default for Room {
    fn default() -> Self {
        let (line, next) = (VecDeque::new(), Vec::new());
        Room { limit_bytes: usize::MAX, taken_bytes: 0, line, next, check_at: None }
    }
}

impl Room {
    /// When [`Messenger::tick`] has something to do here.
    pub fn deadline(&self) -> Option<Mono> {
        if self.next.is_empty() { self.check_at } else { Some(Mono::default()) }
    }

    /// Whether a link has got room, and does not know it yet.
    pub fn is_next(&self, id: LinkId) -> bool {
        self.next.contains(&id)
    }

    fn take(&mut self, bytes: usize) -> bool {
        let all = self.taken_bytes.saturating_add(bytes);
        let may = self.taken_bytes == 0 || all <= self.limit_bytes;
        if may {
            self.taken_bytes = all;
        }
        may
    }
}

/// What one link has.
#[derive(Debug, Default)]
pub(super) struct Share {
    taken_bytes: usize,
    /// Its next message has so many, and waits.
    pub wants_bytes: usize,
    in_line: bool,
    /// Since when it has what it has: from the next look on if it is not known.
    since: Option<Mono>,
}

impl Share {
    /// Whether it has room for a message.
    pub fn is_some(&self) -> bool {
        self.taken_bytes > 0
    }
}

impl Messenger {
    /// Long messages that links with [`Policy::shares_room`](super::Policy::shares_room) are in the middle of
    /// may take so many bytes in all.
    pub fn limit_receiving(&mut self, bytes: usize) {
        self.room.limit_bytes = bytes;
        self.give_room();
    }

    /// Bytes of long messages that such links are in the middle of.
    pub fn receiving_bytes(&self) -> usize {
        self.room.taken_bytes
    }

    /// A long message begins.
    pub(super) fn wants_room(&mut self, now: Now, id: LinkId, bytes: usize, fx: &mut Effects) {
        self.leave_room(id);
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if !link.policy.shares_room {
            link.read_on();
            return;
        }
        link.room.wants_bytes = bytes;
        if !link.paused && self.room.line.is_empty() && self.room.take(bytes) {
            let taken_bytes = bytes;
            link.room = Share { taken_bytes, since: Some(now.mono), ..Share::default() };
            link.read_on();
            return;
        }
        self.stand_in_line(id);
        if let Some(link) = self.links.get_mut(&id) {
            link.sync_receiving(fx);
        }
    }

    /// A link that waits is heard, or would be.
    pub(super) fn stand_in_line(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if link.room.wants_bytes > 0 && !std::mem::replace(&mut link.room.in_line, true) {
            self.room.line.push_back(id);
            self.room.check_at.get_or_insert_default();
            self.give_room();
        }
    }

    /// A link has read its message, or ends.
    pub(super) fn leave_room(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            let before = std::mem::take(&mut link.room);
            self.take_back(&before);
        }
    }

    pub(super) fn take_back(&mut self, share: &Share) {
        if share.taken_bytes > 0 {
            self.room.taken_bytes = self.room.taken_bytes.saturating_sub(share.taken_bytes);
            self.give_room();
        }
    }

    /// Those that are next get room while there is some.
    fn give_room(&mut self) {
        while let Some(&id) = self.room.line.front() {
            if let Some(link) = self.links.get_mut(&id) {
                let bytes = link.room.wants_bytes;
                if bytes > 0 && !link.paused {
                    if !self.room.take(bytes) {
                        return;
                    }
                    link.room = Share { taken_bytes: bytes, ..Share::default() };
                    self.room.next.push(id);
                }
                link.room.in_line = false;
            }
            self.room.line.pop_front();
        }
    }

    /// Those that have got room go on, and who keeps others waiting is disconnected.
    pub(super) fn tick_room(&mut self, now: Now, fx: &mut Effects, out: &mut Vec<MsgrEvent>) {
        if self.room.check_at.is_some_and(|at| at <= now.mono) {
            self.room.check_at = None;
            if !self.room.line.is_empty() {
                self.room.check_at = Some(now.mono.after(CHECK_EVERY));
                self.end_slow(now, fx, out);
            }
        }
        for id in std::mem::take(&mut self.room.next) {
            let Some(link) = self.links.get_mut(&id).filter(|link| link.room.is_some()) else {
                continue;
            };
            link.room.since = Some(now.mono);
            link.sync_receiving(fx);
            if let Some(transport) = &mut link.transport {
                transport.wire.give_room();
                let conn = transport.conn;
                self.drain(now, conn, fx, out);
            }
        }
    }

    fn end_slow(&mut self, now: Now, fx: &mut Effects, out: &mut Vec<MsgrEvent>) {
        let mut slow = Vec::new();
        for (id, link) in self.links.iter_mut().filter(|(_, link)| link.room.taken_bytes > 0) {
            let since = *link.room.since.get_or_insert(now.mono);
            let more = link.room.taken_bytes.div_ceil(SLOWEST_BYTES_PER_S) as u64;
            let patience = PATIENCE.saturating_add(Duration::from_secs(more));
            if now.mono.since(since) >= patience {
                slow.push(*id);
            }
        }
        slow.sort_unstable();
        for id in slow {
            let why =
                "it sent the rest of a long message too slowly while others waited for memory";
            self.fail(now, id, CloseWhy::Timeout(why), fx, out);
        }
    }
}

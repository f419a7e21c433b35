//! Messages of other OSDs that are ahead of us: they wait for the map that they were sent with.
//!
//! Sessions between OSDs lose nothing, and everything relies on that: of a lost message somebody would wait for the
//! answer for ever. Where more come than can be kept, because no map does, the session with whoever has sent most
//! ends therefore: both sides hear of it, and what relied on it begins anew ([`Daemon::session_lost`]).

use crate::daemon::Daemon;
use io::Effects;
use std::collections::{BTreeMap, VecDeque};
use types::testing::{Probe, hit};
use types::{Epoch, OsdId};
use wire::msg::Message;

/// They take one part of so many of the memory for requests.
const MEMORY_PART: usize = 2;

/// Each weighs so much beside its bytes.
const MESSAGE_BYTES: usize = size_of::<(OsdId, Message)>() + 1024;

/// What waits, in the order it came.
#[derive(Debug, Default)]
pub(crate) struct Early {
    line: VecDeque<(OsdId, Message)>,
    bytes: usize,
}

fn weight(message: &Message) -> usize {
    MESSAGE_BYTES + message.front.len() + message.data.len()
}

impl Early {
    fn push(&mut self, from: OsdId, message: Message) {
        self.bytes += weight(&message);
        self.line.push_back((from, message));
    }

    /// Whoever has most here, if all together have more than they may.
    fn who_has_too_much(&self, most: usize) -> Option<OsdId> {
        if self.bytes <= most {
            return None;
        }
        let mut of_each: BTreeMap<OsdId, usize> = BTreeMap::new();
        for (from, message) in &self.line {
            *of_each.entry(*from).or_default() += weight(message);
        }
        of_each.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(osd, _)| osd)
    }

    fn forget(&mut self, osd: OsdId) {
        self.line.retain(|(from, _)| *from != osd);
        self.bytes = self.line.iter().map(|(_, message)| weight(message)).sum();
    }
}

impl Daemon {
    /// Whether our map is at least the sender's; if not, the message waits for it.
    pub(crate) fn has_map(&mut self, from: OsdId, epoch: Epoch, message: &Message) -> bool {
        if epoch <= self.maps.epoch() {
            return true;
        }
        self.mon.wants_map = true;
        self.early.push(from, message.clone());
        false
    }

    /// A message has come that may have had to wait.
    pub(crate) fn bound_early(&mut self, fx: &mut Effects) {
        let most = self.limits.request_bytes / MEMORY_PART;
        let Some(osd) = self.early.who_has_too_much(most) else { return };
        hit(Probe::EarlyTooMuch);
        self.break_session(osd, "too much of it waits for a newer map", fx);
    }

    /// What came by a session is void.
    pub(crate) fn forget_early(&mut self, osd: OsdId) {
        self.early.forget(osd);
    }

    /// A new map is here: what waited for it goes on, in the order it came.
    pub(crate) fn release_waiting(&mut self, fx: &mut Effects) {
        self.release_ops(fx);
        self.end_needless_backoffs();
        for (from, message) in std::mem::take(&mut self.early).line {
            self.on_peer_message(from, &message, fx);
        }
        for message in std::mem::take(&mut self.mon.orders) {
            self.on_mon_message(&message, fx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_sent_most_is_named_when_it_is_too_much() {
        let message = |bytes: usize| Message { data: vec![0; bytes].into(), ..Message::default() };
        let (a, b) = (OsdId(1), OsdId(2));
        let mut early = Early::default();
        for (osd, bytes) in [(a, 60_000), (b, 50_000), (b, 30_000), (a, 10_000)] {
            early.push(osd, message(bytes));
        }
        assert_eq!(early.who_has_too_much(200_000), None);
        assert_eq!(early.who_has_too_much(150_000), Some(b));
        early.forget(b);
        assert_eq!((early.line.len(), early.bytes), (2, 70_000 + 2 * MESSAGE_BYTES));
        // Short ones count as well.
        (0..1000).for_each(|_| early.push(b, message(0)));
        assert_eq!(early.who_has_too_much(1 << 20), Some(b));
    }
}

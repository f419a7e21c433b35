//! The memory of the process, kept to `osd_memory_target`.
//!
//! Half of it is the store's ([`crate::options::Limits::store_bytes`]), also when it changes. Blocks that clients read may take an eighth
//! beyond that, less all buffers for disk and network, which a burst of long reads makes 130 MiB more within
//! a second: logs of PGs, sessions and what the allocator holds back do with the rest. When all takes more
//! than three quarters, blocks give way by as much as is more, for a while. By no more: what they free the
//! allocator keeps for a while, so that the process seems to need it.

use crate::daemon::Daemon;
use crate::op::ClientOp;
use admin::Answer;
use io::{Effects, Memory};
use pg::{Dup, LogEntry};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use store::{Held, MemoryUse, Outside};
use wire::LinkId;

/// Of the target blocks may take so much beyond the store's half, one part of so many.
const BEYOND_PART: u64 = 8;
/// And of the target so much, one part of so many, is left to bursts.
const BURST_PART: u64 = 4;
/// What was too much is thought to be so again; a part of so many less with each second.
const DECAY_PART: u64 = 8;

/// Each second what there should be comes nearer to a lowered target by one part of so many.
const FOLLOWED_PART: u64 = 16;

/// Beside what is in hand, what clients are in the middle of sending may take so much, one part of so many of it.
const RECEIVING_PART: usize = 4;

/// Of what may be in hand, one part of so many is left to clients whatever other OSDs send.
const OWN_PART: usize = 4;

/// What a request takes besides its message: itself, where it waits, and what it has made so far.
pub(crate) const REQUEST_BYTES: usize = 2 << 10;
const _: () = assert!(size_of::<ClientOp>() <= REQUEST_BYTES);

/// What the name of an object takes, about.
const NAME_BYTES: usize = 48;

/// How much more than the store's half blocks may take.
#[derive(Debug, Default)]
pub(crate) struct Beyond {
    /// Bytes more than there should be, of late.
    over: u64,
    /// What there should be. It follows a lowered target slowly: what is freed for that stays with the process for
    /// some seconds, and blocks are not to go for it.
    target: u64,
}

impl Beyond {
    /// Bytes that blocks may take beyond the store's budget, or must leave of it.
    fn bytes(&mut self, memory: Memory, target: u64) -> i64 {
        self.target = target.max(self.target - self.target / FOLLOWED_PART);
        let target = self.target;
        let over = memory.resident.saturating_sub(target - target / BURST_PART);
        self.over = over.max(self.over - self.over.div_ceil(DECAY_PART));
        (target / BEYOND_PART) as i64 - self.over as i64
    }
}

/// What came with requests and is in hand, and whether more of it is taken in.
#[derive(Debug, Default)]
pub(crate) struct InHand {
    /// Bytes of clients' requests.
    pub own: usize,
    /// Bytes of writes that other OSDs lead.
    pub replica: usize,
    /// Nothing is received from clients.
    pub paused: bool,
    /// Nothing is received from these, each of which has too much in hand by itself.
    pub crowding: BTreeSet<LinkId>,
}

impl InHand {
    /// Whether clients should be received from, where there may be `limit` bytes. What other OSDs send
    /// is always taken, and ends by itself. However much that is, a part is left to clients: OSDs that
    /// lead many writes would else keep one from leading any.
    fn should_pause(&self, limit: usize) -> bool {
        let (all, own) = match self.paused {
            true => (limit / 4 * 3, limit / OWN_PART / 2),
            false => (limit, limit / OWN_PART),
        };
        self.own + self.replica > all && self.own > own
    }

    /// Bytes that clients may bring yet.
    fn free(&self, limit: usize) -> usize {
        let all = limit.saturating_sub(self.own + self.replica);
        all.max((limit / OWN_PART).saturating_sub(self.own))
    }

    /// Whether a client with so many bytes in hand has too much of them: no more than is left to all
    /// others, so that one that does not take its answers keeps nobody else waiting, nor do several
    /// (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998).
    fn crowds(&self, bytes: usize, limit: usize) -> bool {
        bytes > self.free(limit)
    }

    /// Whether one that had too much may bring more.
    fn has_calmed(&self, bytes: usize, limit: usize) -> bool {
        bytes <= self.free(limit) / 2
    }
}

impl Daemon {
    /// What clients may be in the middle of sending, by the settings.
    pub(crate) fn limit_receiving(&mut self) {
        self.msgr.limit_receiving(self.limits.request_bytes / RECEIVING_PART);
    }

    /// A client brought a request of so many bytes. Nothing more is received from one that has too much in
    /// hand.
    pub(crate) fn take_in(&mut self, link: LinkId, bytes: usize, fx: &mut Effects) {
        self.in_hand.own += bytes;
        let Some(session) = self.sessions.get_mut(link) else { return };
        session.bytes += bytes;
        let crowds = self.in_hand.crowds(session.bytes, self.limits.request_bytes);
        if crowds && self.in_hand.crowding.insert(link) {
            self.msgr.pause(link, fx);
        }
    }

    /// It has ended.
    pub(crate) fn let_go(&mut self, link: LinkId, bytes: usize) {
        self.in_hand.own -= bytes;
        // A client that has left is not known any more; its requests may be.
        if let Some(session) = self.sessions.get_mut(link) {
            session.bytes -= bytes;
        }
    }

    /// Receives nothing from clients while too many bytes of requests are in hand. Once a turn: requests
    /// end in many ways.
    pub(crate) fn check_request_memory(&mut self, fx: &mut Effects) {
        let limit = self.limits.request_bytes;
        let pause = self.in_hand.should_pause(limit);
        if pause != self.in_hand.paused {
            self.in_hand.paused = pause;
            for link in self.sessions.links() {
                if pause {
                    self.msgr.pause(link, fx);
                } else if !self.in_hand.crowding.contains(&link) {
                    self.msgr.resume(link, fx);
                }
            }
        }
        if !pause && !self.in_hand.crowding.is_empty() {
            self.hear_calmed(fx);
        }
    }

    /// Receives from clients again that had too much in hand.
    fn hear_calmed(&mut self, fx: &mut Effects) {
        let limit = self.limits.request_bytes;
        for link in self.in_hand.crowding.clone() {
            // One that has left is forgotten here, too.
            let bytes = self.sessions.get(link).map_or(0, |session| session.bytes);
            if self.in_hand.has_calmed(bytes, limit) {
                self.in_hand.crowding.remove(&link);
                self.msgr.resume(link, fx);
            }
        }
    }

    /// The process takes so much.
    pub(crate) fn on_memory(&mut self, memory: Memory) {
        self.perf.memory = memory;
        let target = self.admin.settings.uint("osd_memory_target");
        let beyond = self.beyond.bytes(memory, target);
        let beyond = isize::try_from(beyond).unwrap_or(0);
        let buffers = usize::try_from(memory.buffers).unwrap_or(usize::MAX);
        self.store.set_outside(Outside { beyond, buffers });
    }

    /// What `dump_mempools` shows: what is known of the process's memory, under Ceph's names
    /// (`src/include/mempool.h`) for what is most like it there.
    pub(crate) fn mempools(&self) -> Answer {
        let MemoryUse { blocks, nodes, records, rows, outlines, log, direct, changes } =
            self.store.memory();
        let InHand { own, replica, .. } = &self.in_hand;
        let rooms = self.read_room.bytes() + self.write_room.bytes() + self.msgr.receiving_bytes();
        let requests = (own + replica + rooms) as u64;
        let bytes = self.perf.memory.buffers.saturating_sub(log.bytes + direct.bytes);
        let buffers = Held { items: bytes / io::BLOCK_BYTES as u64, bytes };
        let pools = [
            ("bluestore_cache_data", blocks),
            ("bluestore_cache_onode", records),
            ("bluestore_cache_meta", nodes),
            ("bluestore_cache_other", outlines),
            ("bluestore_Extent", rows),
            ("bluestore_txc", changes),
            ("bluestore_writing_deferred", log),
            ("bluestore_writing", direct),
            // Other buffers, in use or waiting to be used again.
            ("buffer_anon", buffers),
            // Requests in hand, what is being read for them, and those that are being received.
            ("osd", Held { items: self.ops.len() as u64, bytes: requests }),
            ("osd_pglog", self.log_memory()),
        ];
        let shown = |Held { items, bytes }| json!({ "items": items, "bytes": bytes });
        let by_pool: Map<String, Value> =
            pools.iter().map(|(name, held)| ((*name).to_owned(), shown(*held))).collect();
        let total = pools.iter().fold(Held::default(), |sum, (_, held)| Held {
            items: sum.items + held.items,
            bytes: sum.bytes + held.bytes,
        });
        Answer::json(json!({ "mempool": { "by_pool": by_pool, "total": shown(total) } }))
    }

    /// The logs of all PGs, and the requests that they remember.
    fn log_memory(&self) -> Held {
        let counts = self.pgs.values().map(|host| (host.pg.log().len(), host.pg.log().dup_count()));
        let (entries, dups) = counts.fold((0, 0), |(e, d), (more, dups)| (e + more, d + dups));
        let bytes = entries * (size_of::<LogEntry>() + NAME_BYTES) + dups * size_of::<Dup>();
        Held { items: (entries + dups) as u64, bytes: bytes as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn clients_wait_for_what_all_sent_but_not_for_ever() {
        let pause = |own, replica, paused| {
            InHand { own, replica, paused, ..InHand::default() }.should_pause(100)
        };
        assert!(!pause(100, 0, false) && pause(101, 0, false));
        assert!(!pause(30, 70, false) && pause(30, 71, false));
        assert!(pause(76, 0, true) && !pause(75, 0, true));
        assert!(pause(13, 63, true) && !pause(13, 62, true));
        // Other OSDs keep more in hand here than there should be.
        assert!(!pause(25, 1000, false) && pause(26, 1000, false));
        assert!(pause(13, 1000, true) && !pause(12, 1000, true));
    }

    #[test]
    fn a_client_has_no_more_in_hand_than_is_left_to_others() {
        let with = |own, replica| InHand { own, replica, ..InHand::default() };
        let crowds = |own, replica, bytes| with(own, replica).crowds(bytes, 100);
        assert!(!crowds(50, 0, 50) && crowds(51, 0, 51));
        // One that has half of it, and a second one.
        assert!(!crowds(75, 0, 25) && crowds(76, 0, 26));
        // Other OSDs keep all of it.
        assert!(!crowds(12, 1000, 12) && crowds(13, 1000, 13));
        let calmed = |own, bytes| with(own, 0).has_calmed(bytes, 100);
        assert!(calmed(33, 33) && !calmed(34, 34) && calmed(100, 0));
    }

    #[test]
    fn blocks_give_way_by_what_is_too_much_and_for_a_while() {
        let mut beyond = Beyond::default();
        let mut beyond = |mib: u64| {
            beyond.bytes(Memory { resident: mib * MIB, buffers: 0 }, 512 * MIB) / MIB as i64
        };
        assert_eq!((beyond(30), beyond(384)), (64, 64));
        assert_eq!(beyond(384 + 80), 64 - 80);
        // The allocator has not given back what they freed: that is no reason to free more.
        assert_eq!(beyond(384 + 80), 64 - 80);
        assert_eq!(beyond(300), 64 - 70);
        assert_eq!(beyond(384 + 65), 64 - 65);
        assert_eq!((0..300).map(|_| beyond(300)).last(), Some(64));
    }

    /// The process has for some seconds what the store frees at once.
    #[test]
    fn blocks_do_not_go_for_what_a_lowered_target_frees() {
        let mut beyond = Beyond::default();
        let mut beyond = |resident: u64, target: u64| {
            beyond.bytes(Memory { resident: resident * MIB, buffers: 0 }, target * MIB) / MIB as i64
        };
        assert_eq!(beyond(760, 1024), 128);
        for _ in 0..4 {
            assert!(beyond(570, 512) > 0);
        }
        assert_eq!((0..300).map(|_| beyond(380, 512)).last(), Some(64));
        assert_eq!(beyond(700, 1024), 128);
    }
}

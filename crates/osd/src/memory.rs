//! The memory of the process, kept to `osd_memory_target`.
//!
//! Half of it is the store's ([`crate::OsdConfig::store_bytes`]). Blocks that clients read may take an eighth
//! beyond that, less all buffers for disk and network, which a burst of long reads makes 130 MiB more within
//! a second: logs of PGs, sessions and what the allocator holds back do with the rest. When all takes more
//! than three quarters, blocks give way by as much as is more, for a while. By no more: what they free the
//! allocator keeps for a while, so that the process seems to need it.

use crate::daemon::Daemon;
use admin::Answer;
use io::Memory;
use pg::{Dup, LogEntry};
use serde_json::{Map, Value, json};
use store::{Held, MemoryUse, Outside};

/// Of the target blocks may take so much beyond the store's half, one part of so many.
const BEYOND_PART: u64 = 8;
/// And of the target so much, one part of so many, is left to bursts.
const BURST_PART: u64 = 4;
/// What was too much is thought to be so again; a part of so many less with each second.
const DECAY_PART: u64 = 8;

/// What the name of an object takes, about.
const NAME_BYTES: usize = 48;

/// How much more than the store's half blocks may take.
#[derive(Debug, Default)]
pub(crate) struct Beyond {
    /// Bytes more than there should be, of late.
    over: u64,
}

impl Beyond {
    /// Bytes that blocks may take beyond the store's budget, or must leave of it.
    fn bytes(&mut self, memory: Memory, target: u64) -> i64 {
        let over = memory.resident.saturating_sub(target - target / BURST_PART);
        self.over = over.max(self.over - self.over.div_ceil(DECAY_PART));
        (target / BEYOND_PART) as i64 - self.over as i64
    }
}

impl Daemon {
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
        let requests = self.request_bytes as u64;
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
            // Requests in hand.
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
}

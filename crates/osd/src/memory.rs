//! The memory of the process, kept to `osd_memory_target`.
//!
//! The store's budget is half of it ([`crate::OsdConfig::store_bytes`]); requests, logs of PGs, sessions and what
//! the allocator holds back take what they need. What all of that leaves has blocks that clients read
//! (`store::store::blocks`), and when it is more than there is, they give way. Ceph's counterpart is
//! `bluestore_cache_autotune`.

use crate::daemon::Daemon;

/// Of the target so much, one part of so many, is left for what comes before it is next looked at: requests and
/// answers of 4 MiB, with buffers that are used again (`io::buf`), can be 150 MiB within a second.
const SPARE_PART: u64 = 4;
/// What was needed beside the store is thought to be needed again; a part of so many less with each second.
const DECAY_PART: u64 = 8;

/// What is known of the memory of the process.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The most, of late, that was not the store's.
    others: u64,
}

impl Memory {
    /// Bytes that the store may take beyond its budget, or must leave of it, when the process takes
    /// `resident`, the store `in_use` of them.
    fn beyond(&mut self, resident: u64, in_use: u64, budget: u64, target: u64) -> i64 {
        let others = resident.saturating_sub(in_use);
        self.others = others.max(self.others - self.others / DECAY_PART);
        let goal = target - target / SPARE_PART;
        goal as i64 - budget as i64 - self.others as i64
    }
}

impl Daemon {
    /// The process takes so many bytes.
    pub(crate) fn on_memory(&mut self, resident: u64) {
        self.perf.resident_bytes = resident;
        let (in_use, budget) = (self.store.memory_in_use(), self.store.memory_budget());
        let target = self.admin.settings.uint("osd_memory_target");
        let beyond = self.memory.beyond(resident, in_use as u64, budget as u64, target);
        self.store.set_memory_beyond(isize::try_from(beyond).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn blocks_get_what_is_left_and_give_way() {
        let mut memory = Memory::default();
        let mut beyond = |resident: u64, in_use: u64| {
            memory.beyond(resident * MIB, in_use * MIB, 256 * MIB, 512 * MIB) / MIB as i64
        };
        assert_eq!(beyond(30, 10), 384 - 256 - 20);
        // What the store takes itself, blocks too, changes nothing.
        assert_eq!(beyond(400, 380), 384 - 256 - 20);
        // A burst of requests: more than there is, and still remembered a moment later.
        assert_eq!(beyond(604, 380), 384 - 256 - 224);
        assert_eq!(beyond(400, 380), 384 - 256 - (224 - 28));
        assert_eq!((0..100).map(|_| beyond(400, 380)).last(), Some(384 - 256 - 20));
    }
}

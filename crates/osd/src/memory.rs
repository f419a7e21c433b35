//! The memory of the process, kept to `osd_memory_target`.
//!
//! Half of it is the store's ([`crate::OsdConfig::store_bytes`]). Blocks that clients read may take a sixteenth
//! beyond that, less what of the store's memory waits in buffers to be used again: requests, logs of PGs,
//! sessions and what the allocator holds back do with the rest. When all takes more than three quarters,
//! blocks give way by as much as is more, for a while: a burst of long reads takes 130 MiB within a second.
//! By no more: what they free the allocator keeps for seconds, so that the process seems to need it.

use crate::daemon::Daemon;
use io::Memory;

/// Of the target blocks may take so much beyond the store's half, one part of so many.
const BEYOND_PART: u64 = 16;
/// And of the target so much, one part of so many, is left to bursts.
const BURST_PART: u64 = 4;
/// What was too much is thought to be so again; a part of so many less with each second.
const DECAY_PART: u64 = 8;

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
        (target / BEYOND_PART) as i64 - (self.over + memory.spare) as i64
    }
}

impl Daemon {
    /// The process takes so much.
    pub(crate) fn on_memory(&mut self, memory: Memory) {
        self.perf.resident_bytes = memory.resident;
        let target = self.admin.settings.uint("osd_memory_target");
        let beyond = self.beyond.bytes(memory, target);
        self.store.set_memory_beyond(isize::try_from(beyond).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn blocks_give_way_by_what_is_too_much_and_for_a_while() {
        let (mut beyond, spare) = (Beyond::default(), 0);
        let mut beyond =
            |mib: u64| beyond.bytes(Memory { resident: mib * MIB, spare }, 512 * MIB) / MIB as i64;
        assert_eq!((beyond(30), beyond(384)), (32, 32));
        assert_eq!(beyond(384 + 80), 32 - 80);
        // The allocator has not given back what they freed: that is no reason to free more.
        assert_eq!(beyond(384 + 80), 32 - 80);
        assert_eq!(beyond(300), 32 - 70);
        assert_eq!(beyond(384 + 65), 32 - 65);
        assert_eq!((0..300).map(|_| beyond(300)).last(), Some(32));
    }

    #[test]
    fn buffers_that_wait_count() {
        let memory = Memory { resident: 300 * MIB, spare: 100 * MIB };
        assert_eq!(Beyond::default().bytes(memory, 512 * MIB), -68 * MIB as i64);
    }
}

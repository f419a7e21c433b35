//! The memory of the process, kept to `osd_memory_target`.
//!
//! Half of it is the store's ([`crate::OsdConfig::store_bytes`]). Blocks that clients read may take an eighth
//! beyond that: requests, logs of PGs, sessions and what the allocator holds back do with the rest, which
//! in bursts of 4 MiB is 200 MiB of 512. When they do not, blocks give way by as much as is too much, for a
//! while. By no more: what they free the allocator keeps for seconds, so that the process seems to need it.

use crate::daemon::Daemon;

/// Of the target blocks may take so much beyond the store's half, one part of so many.
const BEYOND_PART: u64 = 8;
/// What was too much is thought to be so again; a part of so many less with each second.
const DECAY_PART: u64 = 8;

/// What is known of the memory of the process.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Bytes beyond the target, of late.
    over: u64,
}

impl Memory {
    /// Bytes that blocks may take beyond the store's budget, or must leave of it, when the process takes
    /// `resident`.
    fn beyond(&mut self, resident: u64, target: u64) -> i64 {
        let over = resident.saturating_sub(target);
        self.over = over.max(self.over - self.over.div_ceil(DECAY_PART));
        (target / BEYOND_PART) as i64 - self.over as i64
    }
}

impl Daemon {
    /// The process takes so many bytes.
    pub(crate) fn on_memory(&mut self, resident: u64) {
        self.perf.resident_bytes = resident;
        let target = self.admin.settings.uint("osd_memory_target");
        let beyond = self.memory.beyond(resident, target);
        self.store.set_memory_beyond(isize::try_from(beyond).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn blocks_give_way_by_what_is_too_much_and_for_a_while() {
        let mut memory = Memory::default();
        let mut beyond = |resident: u64| memory.beyond(resident * MIB, 512 * MIB) / MIB as i64;
        assert_eq!((beyond(30), beyond(512)), (64, 64));
        assert_eq!(beyond(512 + 80), 64 - 80);
        // The allocator has not given back what they freed: that is no reason to free more.
        assert_eq!(beyond(512 + 80), 64 - 80);
        assert_eq!(beyond(500), 64 - 70);
        assert_eq!(beyond(512 + 65), 64 - 65);
        assert_eq!((0..300).map(|_| beyond(500)).last(), Some(64));
    }
}

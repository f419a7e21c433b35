//! Whether the data is there that the last big writes put beside the log.
//!
//! What a mount and a check do alike: they read the data of all transactions that wait for a decision
//! ([`Replay::undecided`]), and have the blocks that are not what they should be.

use super::replay::{Missing, Replay};
use crate::codec::block_crc;
use crate::store::inflight::MAX_IO_BLOCKS;
use crate::wal::format::Direct;
use io::BLOCK_BYTES;

/// Reads at a time.
pub(crate) const VERIFIES_IN_FLIGHT: usize = 16;

/// A part of the data to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    check: usize,
    /// Blocks of the run before it.
    skip: u64,
    pub start: u64,
    pub blocks: u64,
}

/// One run of data.
struct Check {
    txn: u64,
    direct: Direct,
    /// Blocks asked for.
    asked: u64,
    /// What stands there, by block; nothing where it could not be read.
    found: Vec<Option<u32>>,
}

/// Data being looked at.
#[derive(Default)]
pub(crate) struct Verify {
    checks: Vec<Check>,
    /// The first that is not wholly asked for.
    next: usize,
}

impl Verify {
    /// All that decides about transactions at the end of the log.
    pub fn new(replay: &Replay) -> Verify {
        let check = |(txn, direct): (u64, &Direct)| {
            let found = vec![None; direct.run.len as usize];
            Check { txn, direct: direct.clone(), asked: 0, found }
        };
        Verify { checks: replay.undecided().map(check).collect(), next: 0 }
    }

    /// The next part to be read, if any is left.
    pub fn next(&mut self) -> Option<Part> {
        let check = self.checks.get_mut(self.next)?;
        let (run, skip) = (check.direct.run, check.asked);
        let blocks = MAX_IO_BLOCKS.min(u64::from(run.len) - skip);
        check.asked += blocks;
        let part = Part { check: self.next, skip, start: run.start + skip, blocks };
        self.next += usize::from(check.asked == u64::from(run.len));
        Some(part)
    }

    /// A part was read.
    pub fn read(&mut self, part: Part, bytes: &[u8]) {
        let Some(check) = self.checks.get_mut(part.check) else { return };
        let found = check.found.iter_mut().skip(part.skip as usize);
        for (found, block) in found.zip(bytes.chunks_exact(BLOCK_BYTES)) {
            *found = Some(block_crc(block));
        }
    }

    /// The blocks that do not hold what was written there. What could not be read may have been
    /// acknowledged: it counts, and whoever reads it is told.
    pub fn missing(&self) -> Missing {
        let mut missing = Missing::new();
        for check in &self.checks {
            let places = check.direct.missing(&check.found);
            if !places.is_empty() {
                missing.entry(check.txn).or_default().extend(places);
            }
        }
        missing
    }
}

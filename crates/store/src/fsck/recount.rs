//! Counting anew what accounts have, as a part of a mount: the rows of a check, and nothing else of it.

use super::{Fsck, FsckReport, Phase};
use crate::accounts::AccountSums;
use crate::config::{Config, Devices};
use crate::mount::replay::Replay;
use crate::store::inflight::Io;
use crate::superblock::Superblock;
use io::Effects;
use std::collections::BTreeMap;

/// Objects that are kept in mind at a time, each with its account: 0.3 GiB, while no cache has any memory yet. Of
/// stores with more, the records of objects are read several times.
const OBJECTS_AT_A_TIME: usize = 8 << 20;

/// What came of it.
pub(crate) struct Recounted {
    pub replay: Replay,
    /// `None`: something is damaged, so that it cannot be known.
    pub accounts: Option<BTreeMap<u64, AccountSums>>,
    pub next_token: u64,
}

impl Fsck {
    /// Prepares to count in a store of which the log has been replayed.
    pub(crate) fn recount(
        (devices, config): (Devices, &Config),
        (sb, replay): (Superblock, Replay),
        first_token: u64,
    ) -> Fsck {
        let mut fsck = Fsck::new(devices, false, config).objects_at_a_time(OBJECTS_AT_A_TIME);
        (fsck.rows.only_counts, fsck.io) = (true, Io::new(first_token));
        (fsck.sb, fsck.replay) = (Some(sb), Some(replay));
        fsck.rows.set_blocks(fsck.root().2);
        fsck.phase = Phase::Rows;
        fsck.begin_keys();
        fsck
    }

    /// Issues the first reads. `Some` when there is nothing to be read.
    pub(crate) fn start_recount(&mut self, fx: &mut Effects) -> Option<FsckReport> {
        self.step_rows(fx)
    }

    /// Nodes of the tree that have been read.
    pub(crate) fn nodes(&self) -> u64 {
        self.walk.nodes
    }

    /// It is over; `report` is what was found by the way.
    pub(crate) fn recounted(mut self, report: &FsckReport) -> Recounted {
        let replay = self.replay.take().expect("a recount keeps what it was given");
        // Blocks that nobody has are no harm; those that are free have damaged bitmaps.
        let fits = self.rows.seen_blocks() <= replay.alloc.data_blocks();
        let is_whole = fits && !self.incomplete && !report.is_damaged();
        Recounted {
            accounts: is_whole.then(|| self.rows.accounts().iter().collect()),
            replay,
            next_token: self.io.next_token(),
        }
    }
}

//! How many objects are on their way at once because clients wait for them.
//!
//! What recovers in turn is bounded by `osd_recovery_max_active`. What a client waits for is in nobody's turn, and after an
//! outage clients may wait for objects of hundreds of PGs at once. Of each a part of some MiB may be in memory: here while
//! the store is busy, or in the session with another OSD, which is given up when too much stands there. So there is one
//! bound for all PGs that this OSD leads. Each may have one object on its way whatever the others have, so that none waits
//! for a copy of another that answers slowly.

use crate::daemon::Daemon;
use crate::host::PgHost;
use crate::recover::Transfers;
use types::PgId;

/// Objects that are on their way at once because somebody waits for them.
const URGENT_AT_ONCE: usize = 32;

impl PgHost {
    /// Counts again what is on its way, if we lead it; it is a part of `all`.
    pub(crate) fn count_moving(&mut self, all: &mut usize) {
        let leads = self.started && self.pg.is_primary();
        let count = || self.pg.moving_count() + self.giving_up.fetching_count();
        let now = if leads { count() } else { 0 };
        *all = *all - std::mem::replace(&mut self.moving, now) + now;
    }
}

impl Transfers {
    /// Whether something is on its way from here. One that waits for a good copy, to be pulled first, is in nobody's way.
    fn pushes_something(&self) -> bool {
        self.sending.values().any(|sending| !sending.waits_for_repair)
    }
}

impl Daemon {
    /// Counts again what is on its way for a PG.
    pub(crate) fn count_moving(&mut self, pgid: PgId) {
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.count_moving(&mut self.moving);
        }
    }

    /// Whether one more object may be on its way, of a PG that has others, because somebody waits for it.
    pub(crate) fn may_move_more(&self) -> bool {
        self.moving < URGENT_AT_ONCE
    }

    /// Whether a PG may pull, and push, one more object because a client waits for it.
    pub(crate) fn may_hurry(&self, host: &PgHost) -> (bool, bool) {
        let more = self.may_move_more();
        let pulls = more || host.pg.pulling().next().is_none();
        (pulls, more || !host.transfers.pushes_something())
    }
}

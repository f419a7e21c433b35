//! A disk without space for data.
//!
//! The mon stops writes by the ratios of the map, with what it heard last. What comes in the meantime,
//! and what no ratio stops, meets the end of the disk here. Two rules keep that from being more than a
//! wait: what frees space never stands behind what needs it, and what is left (the store's reserve) is
//! for records, maps and deletions.
//!
//! * As the primary, a write without space waits, or fails with ENOSPC if it asked for that.
//! * As a replica, a write that the primary has already taken is logged without its data when there is
//!   no room for it: the object is missing here from then on, and is brought when there is space
//!   ([`RepAck::missed`](peer::RepAck)). The primary answers its client when enough others have the
//!   data.
//! * Either way the mon is told at once that this OSD is full, so that clients hold their writes.
//!   That ends when there is room for what was refused, and [`AGAIN_PERCENT`] more.

use crate::daemon::Daemon;
use types::testing::{Probe, hit};

/// Space that must be there before more data is taken again, as a part of the disk.
const AGAIN_PERCENT: u64 = 1;
/// Of the reserve a replica leaves this part to others when it takes a write.
const RESERVE_SHARE: u64 = 4;
/// Writes up to this size, with their records, are taken from the reserve: what frees space is no
/// larger.
const SMALL_BYTES: u64 = 4096;
/// What a write takes beside its data, at most mostly.
const SLACK_BYTES: u64 = 64 << 10;

/// Whether there is space for data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Space {
    #[default]
    Enough,
    /// Not before so many bytes are available.
    Lacking { bytes: u64 },
}

impl Daemon {
    /// Data of so many bytes could not be taken.
    pub(crate) fn lacks_space(&mut self, bytes: u64) {
        hit(Probe::NoSpace);
        self.perf.no_space += 1;
        let wanted = bytes + SLACK_BYTES + self.store.usage().total / 100 * AGAIN_PERCENT;
        match &mut self.space {
            Space::Lacking { bytes } => *bytes = wanted.max(*bytes),
            Space::Enough => {
                tracing::warn!("osd.{}: no space for {bytes} bytes: it is full", self.cfg.id);
                self.space = Space::Lacking { bytes: wanted };
                self.report_soon();
            }
        }
    }

    /// Whether this OSD takes no more data, whatever the map says.
    pub(crate) fn is_full(&self) -> bool {
        self.space != Space::Enough
    }

    /// Whether this part of the disk or more is in use.
    pub(crate) fn uses(&self, ratio: f64) -> bool {
        let usage = self.store.usage();
        usage.total.saturating_sub(usage.available) as f64 >= ratio * usage.total as f64
    }

    /// Whether data of so many bytes that a primary has taken must be left out here.
    pub(crate) fn must_leave_out(&self, bytes: u64) -> bool {
        let usage = self.store.usage();
        bytes > SMALL_BYTES && usage.available + usage.reserve / RESERVE_SHARE < bytes + SLACK_BYTES
    }

    /// Called often: whether space has run out, or is there again. (The store tells whoever waits.)
    pub(crate) fn look_at_space(&mut self) {
        let over = self.uses(self.limits.failsafe_full_ratio);
        match self.space {
            Space::Enough if over => self.lacks_space(0),
            Space::Lacking { bytes } if !over && self.store.usage().available >= bytes => {
                tracing::info!("osd.{}: there is space again", self.cfg.id);
                self.space = Space::Enough;
                self.report_soon();
            }
            _ => {}
        }
    }
}

//! The version of a PG's log.

use crate::Epoch;
use std::fmt;

/// Version of one write in a PG: the epoch it was made in, then a counter that never goes back.
///
/// Ordered by epoch first (`eversion_t`), shown as `epoch'version`. On the wire the version stands
/// before the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Eversion {
    /// The OSDMap epoch in which the primary made the write.
    pub epoch: Epoch,
    /// Counts the writes of the PG.
    pub version: u64,
}

impl Eversion {
    /// Before every write.
    pub const ZERO: Eversion = Eversion { epoch: Epoch(0), version: 0 };
    /// After every write.
    pub const MAX: Eversion = Eversion { epoch: Epoch(u32::MAX), version: u64::MAX };

    /// `epoch'version`
    pub fn new(epoch: Epoch, version: u64) -> Self {
        Eversion { epoch, version }
    }
}

impl fmt::Display for Eversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.epoch, self.version)
    }
}

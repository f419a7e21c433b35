//! What an OSD knows about its copy of a PG, and what happened to the PG before.

use crate::intervals::PastIntervals;
use crate::missing::Lack;
use crate::scrub::ScrubRecord;
use denc::{Decode, Encode};
use types::{Epoch, Eversion, HObject, PgId};

/// What is known about the life of a PG as a whole; merged between its holders.
///
/// All epochs; "interval" is a span of epochs in which up and acting set did not change
/// (Ceph `pg_history_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct History {
    /// The pool's (or split's) epoch: there is nothing older.
    pub epoch_created: Epoch,
    /// Newest epoch in which the PG went active on all of the acting set.
    pub last_epoch_started: Epoch,
    /// First epoch of the interval of `last_epoch_started`.
    pub last_interval_started: Epoch,
    /// Newest epoch in which every copy was complete where CRUSH wants it.
    pub last_epoch_clean: Epoch,
    /// First epoch of the interval of `last_epoch_clean`.
    pub last_interval_clean: Epoch,
    /// First epoch of the current interval.
    pub same_interval_since: Epoch,
    /// First epoch of the current up set.
    pub same_up_since: Epoch,
    /// First epoch of the current acting primary.
    pub same_primary_since: Epoch,
    /// Its scrubs.
    #[denc(since = 2)]
    pub scrub: ScrubRecord,
}

impl History {
    /// A PG that was created in `epoch` and has no past.
    pub fn created(epoch: Epoch) -> Self {
        History {
            epoch_created: epoch,
            same_interval_since: epoch,
            same_up_since: epoch,
            same_primary_since: epoch,
            ..History::default()
        }
    }

    /// Takes over what `other` knows and we do not. Returns whether anything changed.
    pub fn merge(&mut self, other: &History) -> bool {
        let before = *self;
        if other.last_epoch_started > self.last_epoch_started {
            self.last_epoch_started = other.last_epoch_started;
            self.last_interval_started = other.last_interval_started;
        }
        if other.last_epoch_clean > self.last_epoch_clean {
            self.last_epoch_clean = other.last_epoch_clean;
            self.last_interval_clean = other.last_interval_clean;
        }
        self.epoch_created = self.epoch_created.max(other.epoch_created);
        self.scrub.merge(&other.scrub);
        *self != before
    }
}

/// Sums over the objects of a PG, kept exact with every write. After a split they are a guess until
/// the primary has counted again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct ObjectSums {
    /// Sum of the sizes of heads and clones, in bytes (a clone counts what it does not share).
    pub bytes: i64,
    /// Heads (without whiteouts) and clones.
    pub objects: i64,
    /// Clones.
    pub clones: i64,
    /// Heads that are only there for their clones.
    pub whiteouts: i64,
    /// Objects with omap keys.
    pub omap_objects: i64,
    /// They are a guess.
    #[denc(since = 2)]
    pub approximate: bool,
}

impl ObjectSums {
    /// Adds a difference.
    pub fn add(&mut self, delta: &ObjectSums) {
        self.bytes += delta.bytes;
        self.objects += delta.objects;
        self.clones += delta.clones;
        self.whiteouts += delta.whiteouts;
        self.omap_objects += delta.omap_objects;
        self.approximate |= delta.approximate;
    }

    /// What has been added since `before`.
    pub fn since(&self, before: &ObjectSums) -> ObjectSums {
        ObjectSums {
            bytes: self.bytes - before.bytes,
            objects: self.objects - before.objects,
            clones: self.clones - before.clones,
            whiteouts: self.whiteouts - before.whiteouts,
            omap_objects: self.omap_objects - before.omap_objects,
            approximate: false,
        }
    }

    /// A guess at each of so many equal parts.
    pub(crate) fn part(&self, parts: i64) -> ObjectSums {
        ObjectSums {
            bytes: self.bytes / parts,
            objects: self.objects / parts,
            clones: self.clones / parts,
            whiteouts: self.whiteouts / parts,
            omap_objects: self.omap_objects / parts,
            approximate: true,
        }
    }
}

/// The state of one OSD's copy (Ceph `pg_info_t`).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct PgInfo {
    /// Which PG.
    pub pgid: PgId,
    /// Newest write in the log.
    pub last_update: Eversion,
    /// The log reaches back to just after this version.
    pub log_tail: Eversion,
    /// Newest user-visible version given out.
    pub last_user_version: u64,
    /// The activation this copy took part in last.
    pub last_epoch_started: Epoch,
    /// First epoch of that activation's interval.
    pub last_interval_started: Epoch,
    /// Objects before this one are complete; [`HObject::max`] unless a backfill is under way.
    pub last_backfill: HObject,
    /// The life of the PG as this copy knows it.
    pub history: History,
    /// Sums over the objects.
    pub sums: ObjectSums,
    /// This copy is on its OSD and logs all that is written to it since this epoch, or longer. Zero: not known.
    #[denc(since = 2)]
    pub there_since: Epoch,
}

impl PgInfo {
    /// An empty, complete copy.
    pub fn new(pgid: PgId, history: History) -> Self {
        PgInfo {
            pgid,
            last_update: Eversion::ZERO,
            log_tail: Eversion::ZERO,
            last_user_version: 0,
            last_epoch_started: Epoch::ZERO,
            last_interval_started: Epoch::ZERO,
            last_backfill: HObject::max(),
            history,
            sums: ObjectSums::default(),
            there_since: Epoch::ZERO,
        }
    }

    /// What an OSD answers that has no copy at all: it would have to be backfilled.
    pub fn absent(pgid: PgId) -> Self {
        let mut info = PgInfo::new(pgid, History::default());
        info.last_backfill = HObject::min();
        info
    }

    /// Nothing was ever written to this copy.
    pub fn is_empty(&self) -> bool {
        self.last_update.version == 0
    }

    /// No backfill is under way: every object the log does not list as missing is here.
    pub fn is_complete(&self) -> bool {
        self.last_backfill.max
    }

    /// There is no copy, or none of an object yet: it says nothing of what was written before it.
    pub fn has_nothing(&self) -> bool {
        self.last_backfill == HObject::min()
    }

    /// There is no copy (see [`PgInfo::absent`]).
    pub fn is_absent(&self) -> bool {
        self.history.epoch_created == Epoch::ZERO
    }
}

/// What one OSD tells another about its copy.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Notify {
    /// The copy.
    pub info: PgInfo,
    /// Intervals since the PG was last clean.
    pub past: PastIntervals,
    /// What the copy is missing.
    pub lack: Lack,
}

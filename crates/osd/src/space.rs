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
//! * Either way the mon is told at once that this OSD is full, so that clients hold their writes, and
//!   so are the OSDs it shares PGs with ([`RepAck::full`](peer::RepAck), heartbeats): as primaries of
//!   those they hold writes as if the space was lacking with them, whether or not there is a mon.
//!   That ends when there is room for what was refused, and [`AGAIN_PERCENT`] more.
//! * Nor is it brought objects that it misses. Writes of these wait, but for deletions.
//! * What a primary misses itself it pulls as long as there is room for it as for a replica's writes. What did not
//!   fit waits, with its requests, until there is room for just that ([`pg::PullSize`]); others that clients want
//!   are pulled, and what nobody waits for as long as few did not fit.

use crate::daemon::Daemon;
use crate::host::{OpId, PgHost};
use crate::takes::Takes;
use admin::{Answer, Args, CommandError};
use io::Effects;
use types::testing::{Probe, hit};
use types::{HObject, OsdId, PgId};

/// Space that must be there before more data is taken again, as a part of the disk.
const AGAIN_PERCENT: u64 = 1;
/// Of the reserve a replica leaves so much to others when it takes a write.
const LARGE_LEAVE_PERCENT: u64 = 75;
/// The same for small ones.
const SMALL_LEAVE_PERCENT: u64 = 50;
/// The same for what belongs to freeing space, as its primary says. The rest is for log entries of what is left out,
/// maps, and deletions.
const FREEING_LEAVE_PERCENT: u64 = 25;
/// What frees space is no larger than this, with its records.
pub(crate) const SMALL_BYTES: u64 = 4096;
/// What a write takes beside its data, at most mostly.
const SLACK_BYTES: u64 = 64 << 10;
/// The same for a small one.
const SMALL_SLACK_BYTES: u64 = 4096;

/// When so many objects were pulled that did not fit, only what somebody waits for is tried. (What each takes shows
/// when it has come.)
const UNFITTING_AT_MOST: usize = 16;

/// Transactions that the store was too busy for take less than this of the disk: they stand in memory.
const QUEUED_AT_MOST_BYTES: u64 = 1 << 30;

/// Whether there is space for data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Space {
    #[default]
    Enough,
    /// Not before so many bytes are available.
    Lacking { bytes: u64 },
}

/// How full a disk is said to be. Source: Ceph `osd/OSD.h: OSDService::s_names`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Fullness {
    /// As full as it is.
    #[default]
    None,
    /// No backfill begins here.
    Backfillfull,
    /// The mon and other OSDs are told so; what they send all the same is taken.
    Full,
    /// It is not.
    Failsafe,
}

/// How full a disk is to be taken for, whatever it is: for tests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Injected {
    fullness: Fullness,
    /// That ends after so many refusals.
    refusals: Option<u64>,
}

impl Injected {
    /// Something is refused for that.
    fn count(&mut self) {
        if let Some(left) = &mut self.refusals {
            *left = left.saturating_sub(1);
            if *left == 0 {
                *self = Injected::default();
            }
        }
    }
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
        self.space != Space::Enough || self.injected.fullness >= Fullness::Full
    }

    /// Whether no backfill may begin, whatever the map says.
    pub(crate) fn is_backfillfull(&self) -> bool {
        self.is_full() || self.injected.fullness >= Fullness::Backfillfull
    }

    /// `injectfull`: has the disk taken for full, so many times or until told otherwise. Source: Ceph
    /// `osd/OSD.cc: TestOpsSocketHook::test_ops`.
    pub(crate) fn inject_full(&mut self, args: &Args) -> Result<Answer, CommandError> {
        let count = args.int("count").and_then(|n| u64::try_from(n).ok());
        let fullness = match &*args.text("type") {
            "none" => Fullness::None,
            "backfillfull" => Fullness::Backfillfull,
            "" | "full" => Fullness::Full,
            "failsafe" => Fullness::Failsafe,
            "nearfull" => {
                let why = "the mon takes a disk for nearly full by what is used of it: see 'ceph osd \
                           set-nearfull-ratio'";
                return Err(CommandError::unsupported(why));
            }
            _ => {
                let why = "Invalid type use (none, nearfull, backfillfull, full, failsafe)";
                return Err(CommandError::invalid(why));
            }
        };
        let fullness = if count == Some(0) { Fullness::None } else { fullness };
        tracing::warn!("osd.{}: its disk is taken for: {fullness:?}", self.cfg.id);
        self.injected = Injected { fullness, refusals: count };
        // What waits for space is tried again.
        self.retry_blocked = true;
        self.report_soon();
        Ok(Answer::ok())
    }

    /// Whether this part of the disk or more is in use.
    pub(crate) fn uses(&self, ratio: f64) -> bool {
        let usage = self.store.usage();
        usage.total.saturating_sub(usage.available) as f64 >= ratio * usage.total as f64
    }

    /// Whether a write of so many bytes, with so many of data, that a primary has taken must be left out
    /// here. What brings no data never is: it may be what frees space, as may what [`frees`](Takes::Nothing) by what
    /// its primary says, which finds more room than others.
    pub(crate) fn must_leave_out(&mut self, data: u64, bytes: u64, frees: bool) -> bool {
        if data == 0 && bytes <= SMALL_BYTES {
            return false;
        }
        if self.injected.fullness >= Fullness::Failsafe {
            self.count_injected();
            return true;
        }
        !self.has_room_for(data, bytes, frees)
    }

    fn has_room_for(&self, data: u64, bytes: u64, frees: bool) -> bool {
        let (kept_percent, slack) = match data <= SMALL_BYTES {
            _ if frees => (FREEING_LEAVE_PERCENT, SMALL_SLACK_BYTES),
            true => (SMALL_LEAVE_PERCENT, SMALL_SLACK_BYTES),
            false => (LARGE_LEAVE_PERCENT, SLACK_BYTES),
        };
        let is_full = self.injected.fullness >= Fullness::Failsafe;
        let (spare, wanted) = (self.store.spare_bytes(kept_percent), bytes + slack);
        let is_plenty = spare >= wanted + QUEUED_AT_MOST_BYTES;
        !is_full && (is_plenty || spare >= wanted + self.queued_bytes())
    }

    /// Whether objects are pulled that nobody waits for.
    pub(crate) fn pulls_in_turn(&self) -> bool {
        let counts = self.unfitting.iter().filter_map(|p| self.pgs.get(p));
        counts.map(|h| h.pg.unfitting().len()).sum::<usize>() < UNFITTING_AT_MOST
    }

    /// What did not fit is pulled again as far as there is room for it.
    fn retry_unfitting(&mut self) {
        let mut granted = 0;
        for pgid in self.unfitting.iter().copied().collect::<Vec<_>>() {
            let Some(host) = self.pgs.get(&pgid) else { continue };
            let mut again: Vec<HObject> = Vec::new();
            for (object, size) in host.pg.unfitting() {
                if !host.pg.missing().contains(object) {
                    again.push(object.clone());
                } else if self.has_room_for(size.data, granted + size.all, false) {
                    granted += size.all;
                    again.push(object.clone());
                }
            }
            if again.len() == host.pg.unfitting().len() {
                self.unfitting.remove(&pgid);
            }
            let Some(host) = self.pgs.get_mut(&pgid).filter(|_| !again.is_empty()) else {
                continue;
            };
            host.dirty = true;
            again.iter().for_each(|object| host.pg.may_pull_again(object));
            self.note_recovering(pgid);
        }
    }

    /// What transactions will take for which the store was too busy yet.
    fn queued_bytes(&self) -> u64 {
        if self.blocked.is_empty() && self.fetches.is_empty() {
            return 0;
        }
        hit(Probe::QueuesSummed);
        self.pgs.values().map(|h| h.queue.bytes()).sum()
    }

    /// Whether a write must wait for space here, or with another member of its PG, though our store has some.
    pub(crate) fn must_wait_for_space(&mut self, id: OpId, pgid: PgId) -> bool {
        let injected = self.injected.fullness >= Fullness::Full;
        if !(injected || self.has_full_member(pgid)) || !self.needs_space(id, Takes::AsBefore) {
            return false;
        }
        if injected {
            self.count_injected();
        }
        true
    }

    /// Something was refused because the disk is taken for full.
    fn count_injected(&mut self) {
        self.injected.count();
        self.retry_blocked |= self.injected.fullness == Fullness::None;
    }

    /// Another OSD says whether it has space for data.
    pub(crate) fn heard_of_space(&mut self, from: OsdId, full: bool) {
        // What waits for its space is tried again at the next tick, and what makes some where it has none.
        if full {
            self.peer_space_changed |= self.full_peers.insert(from);
        } else if !self.full_peers.is_empty() {
            self.peer_space_changed |= self.full_peers.remove(&from);
        }
    }

    /// Whether a member of a PG has no space for data.
    pub(crate) fn has_full_member(&self, pgid: PgId) -> bool {
        let is_full =
            |h: &PgHost| h.pg.mapping().acting.iter().any(|o| self.full_peers.contains(o));
        !self.full_peers.is_empty() && self.pgs.get(&pgid).is_some_and(is_full)
    }

    /// Called often: whether space has run out, or is there again. (The store tells whoever waits for its
    /// own; who waits for that of another OSD is told here.)
    pub(crate) fn look_at_space(&mut self, fx: &mut Effects) {
        let peer_space_changed = std::mem::take(&mut self.peer_space_changed);
        if std::mem::take(&mut self.retry_blocked) || peer_space_changed {
            self.on_writable(fx);
        }
        if peer_space_changed {
            self.release_all(fx);
        }
        self.retry_unfitting();
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

//! Scrub: the hands of [`pg::scrub`].
//!
//! * this module: what is scrubbed when, and who takes part (reservations);
//! * `primary`: the course of a scrub on the primary, and repairs;
//! * `scan`: listing the objects of a chunk and reading them, on every member;
//! * `list`: what was found, for clients that ask;
//! * `own`: the check of the OSD's own records;
//! * `show`: what is scrubbed when, for people;
//! * `inject`: commands of tests that change one copy.
//!
//! An OSD takes part in `osd_max_scrubs` scrubs at most, as primary or as replica. One slice of one
//! object is read at a time, so that clients' requests are never behind more than that. A client's write
//! to an object of the chunk at hand is not kept waiting: the chunk gives way, a few times.

mod inject;
mod list;
mod options;
mod own;
mod primary;
mod scan;
mod show;

pub(crate) use list::list_wrong;
pub use options::ScrubSettings;

use crate::daemon::Daemon;
use crate::host::PgHost;
use io::Effects;
use maps::{OsdMapFlags, PoolFlags};
use peer::{Reserve, ScrubOrder, ScrubReserve};
use pg::StateBits;
use pg::scrub::{Due, Kind, Phase, Scrub, Starter, Verdict, due};
use scan::Scan;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::Transaction;
use types::testing::{Probe, hit};
use types::{HObject, Mono, OsdId, PgId};
use wire::msg::Payload;

/// A replica's reservation ends when it hears nothing of the scrub for so long, in seconds.
const GRANT_S: u64 = 600;
/// A primary gives up when it does not get its reservations for so long, in seconds.
const RESERVE_S: u64 = 60;
/// And when it does not get all lists of a chunk for so long, in seconds: writes may wait for them.
const LISTS_S: u64 = 3600;
/// And when the PG has been recovering for so long before the next chunk, in seconds: others have no place while it
/// waits.
const RECOVERY_S: u64 = 300;
/// And when the earlier writes of a chunk, or recovery, do not end for so long, in seconds: later writes wait.
const DRAIN_S: u64 = 30;
/// When a member has no room for a scrub, it is tried again after at least so long, in milliseconds.
const REFUSED_MS: u64 = 300;
/// A PG that could not be scrubbed is tried again after so long, in seconds.
const FAILED_S: u64 = 60;

/// What is scrubbed of a PG.
#[derive(Debug, Default)]
pub struct Scrubbing {
    /// As the primary.
    running: Option<Box<Scrub>>,
    /// Since when.
    began: Mono,
    /// When the chunk at hand was chosen.
    chunk_began: Mono,
    /// Our part of the chunk.
    scan: Option<Box<Scan>>,
    /// Names what is being fetched for the choice of a chunk.
    choosing: Option<u64>,
    /// As a replica: who scrubs, and until when we wait for it to go on.
    granted: Option<(OsdId, Mono)>,
    /// An operator wants this.
    requested: Option<Kind>,
    not_before: Mono,
    /// What the last scrub of this interval found and did not repair.
    wrong: Option<BTreeMap<HObject, Verdict>>,
}

impl Scrubbing {
    /// The interval is over. What an operator wants is begun anew.
    pub fn interrupted(&mut self) {
        let running = self.running.take().map(|s| s.kind());
        let asked = running.filter(|k| k.starter == Starter::Operator);
        *self = Scrubbing { requested: self.requested.or(asked), ..Scrubbing::default() };
    }

    /// Whether writes of this object wait for a chunk.
    pub fn holds(&self, head: &HObject) -> bool {
        self.running.as_ref().is_some_and(|s| s.holds(head))
    }

    /// A client's write waits: whether the chunk gives way.
    pub fn give_way(&mut self, now: Mono, settings: &ScrubSettings) -> bool {
        let later = now.after(Duration::from_millis(settings.give_way_ms));
        let given =
            self.running.as_mut().is_some_and(|s| s.give_way(later, settings.max_preemptions));
        if given {
            self.scan = None;
        }
        given
    }

    /// Whether a scrub of ours still asks others to take part.
    fn is_reserving(&self) -> bool {
        self.running.as_deref().is_some_and(|s| matches!(s.phase(), Phase::Reserving(_)))
    }

    /// Whether a scrub of ours has waited for the same thing for too long.
    fn stands_still(&self, now: Mono) -> bool {
        let Some(scrub) = self.running.as_deref() else { return false };
        let (since, most_s) = match scrub.phase() {
            Phase::Reserving(_) => (self.began, RESERVE_S),
            Phase::Between(at) => (self.began.max(*at), RECOVERY_S),
            Phase::Draining => (self.chunk_began, DRAIN_S),
            Phase::Scanning(_) => (self.chunk_began, LISTS_S),
            Phase::Over => return false,
        };
        now.since(since) >= Duration::from_secs(most_s)
    }

    fn is_busy(&self) -> bool {
        self.running.is_some() || self.scan.is_some()
    }
}

impl PgHost {
    /// What scrub adds to the state.
    pub fn scrub_bits(&self) -> StateBits {
        let mut bits = StateBits::default();
        if !self.pg.is_primary() {
            return bits;
        }
        if self.pg.info().history.scrub.errors() > 0 {
            bits |= StateBits::INCONSISTENT;
        }
        if let Some(scrub) = &self.scrub.running {
            bits |= StateBits::SCRUBBING;
            if scrub.kind().deep {
                bits |= StateBits::DEEP_SCRUB;
            }
            if scrub.kind().repair {
                bits |= StateBits::REPAIR;
            }
        }
        bits
    }
}

/// What the OSD has under way.
#[derive(Debug, Default)]
pub struct Scrubs {
    /// PGs with something to do.
    busy: BTreeSet<PgId>,
    /// Something is due then.
    wake: Option<Mono>,
    /// Counts fetches.
    last_fetch: u64,
    own: own::OwnCheck,
    /// Changes of single copies, see `inject`.
    injected: Vec<(PgId, Transaction)>,
}

impl Scrubs {
    /// When something is due.
    pub fn next_deadline(&self) -> Option<Mono> {
        self.wake
    }

    /// Whether [`Daemon::scrub`] has something to do.
    pub fn has_work(&self) -> bool {
        !self.busy.is_empty() || !self.injected.is_empty() || self.wake.is_some()
    }

    /// A PG is not here any more.
    pub fn forget(&mut self, pgid: PgId) {
        self.busy.remove(&pgid);
    }

    fn wake_at(&mut self, at: Mono) {
        self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
    }
}

impl Daemon {
    /// Goes on with everything that is under way.
    pub(crate) fn scrub(&mut self, fx: &mut Effects) {
        for (pgid, txn) in std::mem::take(&mut self.scrubs.injected) {
            self.submit(pgid, txn, Vec::new(), fx);
        }
        self.scrubs.wake = None;
        self.check_own(fx);
        if self.scrubs.busy.is_empty() {
            return;
        }
        for pgid in self.scrubs.busy.clone() {
            self.scan_chunk(pgid, fx);
            self.lead_scrub(pgid, fx);
            if !self.pgs.get(&pgid).is_some_and(|h| h.scrub.is_busy()) {
                self.scrubs.busy.remove(&pgid);
            }
        }
    }

    /// An operator wants PGs scrubbed.
    pub(crate) fn on_scrub_order(&mut self, m: &ScrubOrder, fx: &mut Effects) {
        for pgid in &m.pgs {
            self.request_scrub(*pgid, Kind::asked(m.deep, m.repair));
        }
        if m.deep {
            self.ask_for_own_check();
        }
        self.begin_scrubs(fx);
    }

    /// Notes that an operator wants a scrub. Whether we lead the PG.
    pub(crate) fn request_scrub(&mut self, pgid: PgId, kind: Kind) -> bool {
        let leads = |h: &&mut PgHost| h.pg.is_primary();
        let Some(host) = self.pgs.get_mut(&pgid).filter(leads) else { return false };
        host.scrub.requested = Some(host.scrub.requested.map_or(kind, |k| k.and(kind)));
        host.scrub.not_before = Mono::default();
        true
    }

    /// How many scrubs this OSD takes part in, beside that of one PG.
    fn scrubs_beside(&self, pgid: Option<PgId>) -> usize {
        let takes_part = |h: &PgHost| h.scrub.running.is_some() || h.scrub.granted.is_some();
        self.pgs.iter().filter(|(p, h)| Some(**p) != pgid && takes_part(h)).count()
    }

    /// Begins what is asked for, or due.
    pub(crate) fn begin_scrubs(&mut self, fx: &mut Effects) {
        self.end_stale_scrubs(fx);
        if self.is_up() {
            self.begin_own_check();
        }
        while self.is_up() && self.scrubs_beside(None) < self.limits.scrub.max_scrubs {
            let Some((pgid, kind)) = self.next_scrub() else { return };
            self.begin_scrub(pgid, kind, fx);
        }
    }

    /// The PG that is to be scrubbed next: what operators want first, then what is late, then what
    /// has been due for the longest time.
    fn next_scrub(&self) -> Option<(PgId, Kind)> {
        let now = self.now.mono;
        let mut best = None;
        for (pgid, host) in &self.pgs {
            let s = &host.scrub;
            let free = s.running.is_none() && s.granted.is_none() && s.not_before <= now;
            if !free || !host.started || !host.pg.is_primary() {
                continue;
            }
            let (kind, rank) = match s.requested {
                Some(kind) => (kind, (0, types::UTime::ZERO)),
                None => match self.due_scrub(*pgid, host) {
                    Some(due) => (due.kind, (1 + u8::from(!due.late), due.since)),
                    None => continue,
                },
            };
            let settled = host.deleted.is_empty();
            let clean = || settled && host.pg.state().has(StateBits::CLEAN) && host.pg.accepts_io();
            if best.as_ref().is_none_or(|(r, _, _)| rank < *r) && clean() {
                best = Some((rank, *pgid, kind));
            }
        }
        best.map(|(_, pgid, kind)| (pgid, kind))
    }

    fn due_scrub(&self, pgid: PgId, host: &PgHost) -> Option<Due> {
        let settings = &self.limits.scrub;
        if !self.recovering.is_empty() && !settings.during_recovery {
            return None;
        }
        let map = self.maps.current();
        let pool = map.pool(pgid.pool)?;
        let intervals = settings.intervals_of(pool);
        let may =
            |map_flag, pool_flag| !map.flags.contains(map_flag) && !pool.flags.contains(pool_flag);
        let light = may(OsdMapFlags::NOSCRUB, PoolFlags::NOSCRUB);
        let deep = may(OsdMapFlags::NODEEP_SCRUB, PoolFlags::NODEEP_SCRUB);
        let (record, now) = (&host.pg.info().history.scrub, self.now.wall);
        let due = due(pgid, record, pool.create_time, now, &intervals, (light, deep))?;
        (due.late || settings.is_time(now)).then_some(due)
    }

    fn begin_scrub(&mut self, pgid: PgId, kind: Kind, fx: &mut Effects) {
        let (epoch, me, now) = (self.maps.epoch(), self.cfg.id, self.now.mono);
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let interval = host.interval();
        let acting = host.pg.mapping().acting.iter().copied().filter(|o| o.is_some());
        let scrub = Scrub::new(kind, me, acting);
        tracing::debug!("osd.{me}: pg {pgid} {} starts", kind.name());
        let others: Vec<OsdId> = scrub.others().collect();
        host.scrub.requested = None;
        host.scrub.began = now;
        host.scrub.running = Some(Box::new(scrub));
        host.dirty = true;
        for osd in others {
            let ask = ScrubReserve { pgid, epoch, interval, what: Reserve::Ask };
            self.send_peer(osd, ask.encode(), fx);
        }
        self.scrubs.busy.insert(pgid);
        self.scrubs.wake_at(now);
        self.report_soon();
    }

    pub(crate) fn on_scrub_reserve(&mut self, from: OsdId, m: &ScrubReserve, fx: &mut Effects) {
        let full = |d: &Daemon| d.scrubs_beside(Some(m.pgid)) >= d.limits.scrub.max_scrubs;
        if m.what == Reserve::Ask && full(self) {
            self.give_place(m.pgid, fx);
        }
        let full = full(self);
        let until = self.now.mono.after(Duration::from_secs(GRANT_S));
        let epoch = self.maps.epoch();
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if !host.started || host.interval() != m.interval {
            return;
        }
        match m.what {
            Reserve::Ask => {
                let leads = host.pg.mapping().acting_primary == Some(from);
                // It would make no list before all is removed, and writes of the chunk would wait for that.
                let room = leads && !full && host.deleted.is_empty();
                host.scrub.granted = room.then_some((from, until));
                let what = if room { Reserve::Grant } else { Reserve::Refuse };
                self.send_peer(from, ScrubReserve { epoch, what, ..*m }.encode(), fx);
            }
            Reserve::Grant => {
                if let Some(scrub) = &mut host.scrub.running {
                    scrub.granted(from);
                }
            }
            Reserve::Refuse => {
                if host.scrub.is_reserving() {
                    self.put_off(m.pgid, Duration::from_millis(REFUSED_MS), fx);
                }
            }
            Reserve::Release => {
                if host.scrub.granted.is_some_and(|(osd, _)| osd == from) {
                    host.scrub.granted = None;
                    host.scrub.scan = None;
                }
            }
        }
    }

    /// A scrub of ours that is still asking for reservations is put off for the one of `pgid`, if that PG
    /// comes first in order: else two primaries that ask each other could refuse each other for ever.
    fn give_place(&mut self, pgid: PgId, fx: &mut Effects) {
        let mut pgs = self.pgs.iter();
        let ours = pgs.rfind(|(p, h)| **p > pgid && h.scrub.is_reserving()).map(|(p, _)| *p);
        if let Some(ours) = ours {
            self.put_off(ours, Duration::from_millis(REFUSED_MS), fx);
        }
    }

    /// A scrub ends before its time, and begins anew later.
    fn put_off(&mut self, pgid: PgId, delay: Duration, fx: &mut Effects) {
        let not_before = self.now.mono.after(delay);
        let Some(scrub) = self.end_scrub(pgid, fx) else { return };
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.scrub.not_before = not_before;
        if scrub.kind().starter == Starter::Operator {
            let asked = host.scrub.requested;
            host.scrub.requested = Some(asked.map_or(scrub.kind(), |k| k.and(scrub.kind())));
        }
    }

    /// Ends a scrub as the primary: members are released, and writes that waited go on.
    fn end_scrub(&mut self, pgid: PgId, fx: &mut Effects) -> Option<Box<Scrub>> {
        self.release_members(pgid, fx);
        let host = self.pgs.get_mut(&pgid)?;
        let scrub = host.scrub.running.take()?;
        host.scrub.scan = None;
        host.dirty = true;
        self.release_writes(pgid, scrub.chunk(), fx);
        self.report_soon();
        Some(scrub)
    }

    /// Tells those who take part in a scrub of ours that it is over.
    pub(crate) fn release_members(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get(&pgid) else { return };
        let Some(scrub) = host.scrub.running.as_deref() else { return };
        let (epoch, interval) = (self.maps.epoch(), host.interval());
        for osd in scrub.others().collect::<Vec<_>>() {
            let release = ScrubReserve { pgid, epoch, interval, what: Reserve::Release };
            self.send_peer(osd, release.encode(), fx);
        }
    }

    /// Reservations of primaries that are silent, and scrubs of ours that do not go on: these come again later.
    fn end_stale_scrubs(&mut self, fx: &mut Effects) {
        let now = self.now.mono;
        let mut stale = Vec::new();
        for (pgid, host) in &mut self.pgs {
            // While we are at our own list, the primary waits for us.
            let scans = host.scrub.scan.is_some();
            if !scans && host.scrub.granted.is_some_and(|(_, until)| until <= now) {
                host.scrub.granted = None;
            }
            if host.scrub.stands_still(now) {
                stale.push(*pgid);
            }
        }
        for pgid in stale {
            hit(Probe::ScrubPutOff);
            self.put_off(pgid, Duration::from_secs(FAILED_S), fx);
        }
    }
}

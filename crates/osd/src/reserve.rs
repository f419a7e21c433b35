//! Which PGs may recover and be filled now.
//!
//! A PG takes a place on its primary first, then one on each copy that gets objects, in the order of
//! their ids, and keeps them until nothing is left to do or its interval ends
//! (`osd_max_backfills` places of each kind; see [`pg::Reserver`]). A copy without space refuses, and
//! is asked again later. The flags of the map hold PGs back (`norecover`, `nobackfill`,
//! `norebalance`). An object that a client waits for is brought in any case.
//!
//! Messages are lost only with a session, and then the PG peers again: both sides forget the places.

use crate::daemon::Daemon;
use crate::host::PgHost;
use io::Effects;
use maps::{OsdMap, OsdMapFlags, OsdState};
use peer::{Place, RecoveryOrder, RecoveryPlace};
use pg::{Forced, Gate, Need, Reserver, StateBits, Turn};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{Epoch, Mono, OsdId, PgId};
use wire::msg::Payload;

/// A copy that was too full is asked again after this.
const FULL_RETRY_MS: u64 = 5_000;

/// Where a PG that we lead stands on its way to its places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Stand {
    /// It wants none.
    #[default]
    Idle,
    /// It waits for its place here.
    Here,
    /// It waits for `asked`'s answer; `left` come after that.
    There { asked: OsdId, left: VecDeque<OsdId> },
    /// It has all.
    Held,
    /// A copy has no space.
    Full { until: Mono },
}

/// The places of a PG that we lead, and what the operator wants.
#[derive(Debug, Default)]
pub struct Course {
    stand: Stand,
    /// What the places are for.
    need: Need,
    priority: u8,
    /// Copies where it has a place.
    got: Vec<OsdId>,
    pub(crate) forced: Forced,
}

impl Course {
    /// What a PG's state shows of it.
    pub(crate) fn bits(&self) -> StateBits {
        let mut bits = StateBits::default();
        if self.forced.recovery {
            bits |= StateBits::FORCED_RECOVERY;
        }
        if self.forced.backfill {
            bits |= StateBits::FORCED_BACKFILL;
        }
        bits
    }

    pub(crate) fn stand_text(&self) -> String {
        match &self.stand {
            Stand::Idle => "none".into(),
            Stand::Here => "waits for a place here".into(),
            Stand::There { asked, .. } => format!("waits for a place on osd.{asked}"),
            Stand::Held => "held".into(),
            Stand::Full { .. } => "a copy has no space".into(),
        }
    }
}

/// Who gets a place that another OSD's PG asked for here.
#[derive(Clone, Copy, Debug)]
struct Guest {
    primary: OsdId,
    interval: Epoch,
    backfill: bool,
}

/// The places of this OSD.
#[derive(Debug)]
pub struct Places {
    /// For PGs that we lead.
    here: Reserver<PgId>,
    /// For PGs that bring objects here.
    guests: Reserver<PgId>,
    known: BTreeMap<PgId, Guest>,
}

impl Places {
    /// With so many of each kind.
    pub(crate) fn new(places: usize) -> Self {
        let known = BTreeMap::new();
        Places { here: Reserver::new(places), guests: Reserver::new(places), known }
    }

    /// Takes over a changed setting.
    pub(crate) fn set_number(&mut self, places: usize) {
        self.here.set_places(places);
        self.guests.set_places(places);
    }

    /// PGs of ours that have their place here.
    pub(crate) fn holders(&self) -> impl Iterator<Item = PgId> + '_ {
        self.here.holders()
    }

    /// For `dump_recovery_reservations`: PGs in progress and waiting, of ours and of others.
    pub(crate) fn lists(&self) -> [Vec<PgId>; 4] {
        [
            self.here.holders().collect(),
            self.here.waiters().collect(),
            self.guests.holders().collect(),
            self.guests.waiters().collect(),
        ]
    }
}

/// Whether the flags hold a PG's work back: `norebalance` does while no copy is lacking.
fn is_held(flags: OsdMapFlags, host: &PgHost) -> bool {
    let acting = host.pg.mapping().acting.iter().filter(|o| o.is_some()).count();
    let lacking = acting < host.pg.rules().size as usize;
    let backfill = flags.contains(OsdMapFlags::NOBACKFILL)
        || (flags.contains(OsdMapFlags::NOREBALANCE) && !lacking);
    flags.contains(OsdMapFlags::NORECOVER) || (host.need == Need::Backfill && backfill)
}

/// Whether a member has not even space for single objects.
fn some_full(map: &OsdMap, host: &PgHost) -> bool {
    let filled = host.pg.backfills().map(|(osd, _)| osd);
    let mut all = host.pg.mapping().acting.iter().copied().filter(|o| o.is_some()).chain(filled);
    all.any(|osd| map.state(osd).contains(OsdState::FULL))
}

/// The copies that get objects.
fn receivers(host: &PgHost) -> VecDeque<OsdId> {
    let mut all: Vec<OsdId> = match host.need {
        Need::Backfill => host.pg.backfills().map(|(osd, _)| osd).collect(),
        _ => host.pg.receivers().collect(),
    };
    all.sort_unstable();
    all.into()
}

fn pool_priority(map: &OsdMap, pgid: PgId) -> i64 {
    map.pool(pgid.pool).and_then(|p| p.opts.int("recovery_priority")).unwrap_or(0)
}

impl Daemon {
    /// Looks what a PG needs, and lets it go on or wait.
    pub(crate) fn set_gate(&mut self, pgid: PgId, fx: &mut Effects) {
        let map = self.maps.current().clone();
        let (now, pulls_in_turn) = (self.now.mono, self.pulls_in_turn());
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let need = if is_held(map.flags, host) { Need::Nothing } else { host.need };
        if let Stand::Full { until } = host.course.stand
            && (until <= now || need != host.course.need)
        {
            host.course.stand = Stand::Idle;
        }
        let is_full = some_full(&map, host) || (!pulls_in_turn && !host.pg.missing().is_empty());
        if need == Need::Recovery && host.pg.degraded_count() > 0 && is_full {
            self.give_back(pgid, fx);
            self.stand_full(pgid, need);
        } else if need == Need::Nothing {
            self.give_back(pgid, fx);
        } else if need != self.course_need(pgid) {
            self.give_back(pgid, fx);
            self.ask_here(pgid, need, pool_priority(&map, pgid), fx);
        }
        self.show_gate(pgid);
    }

    fn course_need(&self, pgid: PgId) -> Need {
        let held =
            |h: &PgHost| if h.course.stand == Stand::Idle { Need::Nothing } else { h.course.need };
        self.pgs.get(&pgid).map_or(Need::Nothing, held)
    }

    fn stand_full(&mut self, pgid: PgId, need: Need) {
        let until = self.now.mono.after(Duration::from_millis(FULL_RETRY_MS));
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.course.stand = Stand::Full { until };
            host.course.need = need;
        }
    }

    fn show_gate(&mut self, pgid: PgId) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let gate = match host.course.stand {
            Stand::Held => Gate::Open,
            Stand::Full { .. } => Gate::TooFull,
            Stand::Idle | Stand::Here | Stand::There { .. } => Gate::Wait,
        };
        if host.pg.gate() != gate {
            host.pg.set_gate(gate);
            host.dirty = true;
            self.report_soon();
        }
    }

    fn ask_here(&mut self, pgid: PgId, need: Need, pool: i64, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let course = &mut host.course;
        course.need = need;
        course.priority = match need {
            Need::Backfill => host.pg.backfill_priority(pool, course.forced),
            _ => host.pg.recovery_priority(pool, course.forced),
        };
        course.stand = Stand::Here;
        self.places.here.ask(pgid, course.priority);
        self.take_turns(fx);
    }

    /// Gives back all places of a PG that we lead.
    pub(crate) fn give_back(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let course = &mut host.course;
        if course.stand == Stand::Idle {
            return;
        }
        let asked = match course.stand {
            Stand::There { asked, .. } => Some(asked),
            _ => None,
        };
        course.stand = Stand::Idle;
        let there: Vec<OsdId> = course.got.drain(..).chain(asked).collect();
        for osd in there {
            self.say_place(pgid, osd, Place::Release, fx);
        }
        self.places.here.release(&pgid);
        self.take_turns(fx);
    }

    fn say_place(&mut self, pgid: PgId, to: OsdId, what: Place, fx: &mut Effects) {
        let Some(interval) = self.pgs.get(&pgid).map(PgHost::interval) else { return };
        let epoch = self.maps.epoch();
        self.send_peer(to, RecoveryPlace { pgid, epoch, interval, what }.encode(), fx);
    }

    /// Places that have become free are given away.
    fn take_turns(&mut self, fx: &mut Effects) {
        while let Some(turn) = self.places.here.next_turn() {
            match turn {
                Turn::Granted(pgid) => {
                    if let Some(host) = self.pgs.get_mut(&pgid) {
                        let left = receivers(host);
                        self.ask_next(pgid, left, fx);
                    }
                }
                Turn::Preempted(pgid) => self.lost_place(pgid, fx),
            }
        }
        while let Some(turn) = self.places.guests.next_turn() {
            let (pgid, what) = match turn {
                Turn::Granted(pgid) => (pgid, Place::Grant),
                Turn::Preempted(pgid) => (pgid, Place::Revoke),
            };
            let Some(guest) = self.places.known.get(&pgid).copied() else { continue };
            if what == Place::Revoke {
                self.places.known.remove(&pgid);
            }
            self.say_place(pgid, guest.primary, what, fx);
        }
    }

    fn ask_next(&mut self, pgid: PgId, mut left: VecDeque<OsdId>, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let course = &mut host.course;
        match left.pop_front() {
            Some(asked) => {
                let backfill = course.need == Need::Backfill;
                let ask = Place::Ask { priority: course.priority, backfill };
                course.stand = Stand::There { asked, left };
                self.say_place(pgid, asked, ask, fx);
            }
            None => course.stand = Stand::Held,
        }
        self.show_gate(pgid);
    }

    /// Another PG was more urgent: this one stands in line again.
    fn lost_place(&mut self, pgid: PgId, fx: &mut Effects) {
        let pool = pool_priority(self.maps.current(), pgid);
        let need = self.course_need(pgid);
        self.give_back(pgid, fx);
        if need != Need::Nothing {
            self.ask_here(pgid, need, pool, fx);
        }
        self.show_gate(pgid);
    }

    /// An interval of a PG ended, or the PG is to be removed: whatever places it had, here and as
    /// somebody's guest. Who was told so by the map as well need not hear it.
    pub(crate) fn forget_places(&mut self, pgid: PgId, fx: &mut Effects) {
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.course = Course { forced: host.course.forced, ..Course::default() };
        }
        self.places.here.release(&pgid);
        self.places.guests.release(&pgid);
        self.places.known.remove(&pgid);
        self.take_turns(fx);
    }

    pub(crate) fn on_place(&mut self, from: OsdId, m: &RecoveryPlace, fx: &mut Effects) {
        let now = |h: &&PgHost| h.started && h.interval() == m.interval;
        if self.pgs.get(&m.pgid).filter(now).is_none() {
            return;
        }
        match m.what {
            Place::Ask { priority, backfill } => self.on_guest(from, m, priority, backfill, fx),
            Place::Release => {
                let its = |g: &Guest| g.primary == from && g.interval == m.interval;
                if self.places.known.get(&m.pgid).is_some_and(its) {
                    self.places.known.remove(&m.pgid);
                    self.places.guests.release(&m.pgid);
                    self.take_turns(fx);
                }
            }
            Place::Grant => self.on_granted(from, m.pgid, fx),
            Place::Revoke => {
                if self.is_at(m.pgid, from) {
                    self.lost_place(m.pgid, fx);
                }
            }
            Place::TooFull => self.no_space_there(m.pgid, from, fx),
        }
    }

    /// A copy that gets objects has no space for them: it is asked again after a while.
    pub(crate) fn no_space_there(&mut self, pgid: PgId, osd: OsdId, fx: &mut Effects) {
        if self.is_at(pgid, osd) {
            let need = self.course_need(pgid);
            self.give_back(pgid, fx);
            self.stand_full(pgid, need);
            self.show_gate(pgid);
        }
    }

    /// Whether a PG that we lead has a place on `osd`, or has asked for one.
    fn is_at(&self, pgid: PgId, osd: OsdId) -> bool {
        let Some(host) = self.pgs.get(&pgid) else { return false };
        let asked = matches!(host.course.stand, Stand::There { asked, .. } if asked == osd);
        asked || host.course.got.contains(&osd)
    }

    fn on_granted(&mut self, from: OsdId, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        match std::mem::take(&mut host.course.stand) {
            Stand::There { asked, left } if asked == from => {
                host.course.got.push(from);
                self.ask_next(pgid, left, fx);
            }
            // It crossed with a Release.
            other => host.course.stand = other,
        }
    }

    fn on_guest(
        &mut self,
        from: OsdId,
        m: &RecoveryPlace,
        priority: u8,
        backfill: bool,
        fx: &mut Effects,
    ) {
        if self.is_full() || (backfill && self.has_no_space_to_be_filled()) {
            self.say_place(m.pgid, from, Place::TooFull, fx);
            return;
        }
        let guest = Guest { primary: from, interval: m.interval, backfill };
        self.places.guests.release(&m.pgid);
        self.places.known.insert(m.pgid, guest);
        self.places.guests.ask(m.pgid, priority);
        self.take_turns(fx);
    }

    fn has_no_space_to_be_filled(&self) -> bool {
        let map = self.maps.current();
        let state = map.state(self.cfg.id);
        let ratio = f64::from(map.backfillfull_ratio);
        self.is_backfillfull()
            || state.contains(OsdState::BACKFILLFULL)
            || state.contains(OsdState::FULL)
            || (ratio > 0.0 && self.uses(ratio))
    }

    /// Called often: when space has run out, those who fill this OSD stop.
    pub(crate) fn stop_filling_when_full(&mut self, fx: &mut Effects) {
        if self.places.known.is_empty() || !self.has_no_space_to_be_filled() {
            return;
        }
        let filling: Vec<(PgId, OsdId)> = self
            .places
            .known
            .iter()
            .filter(|(_, g)| g.backfill || self.is_full())
            .map(|(pgid, g)| (*pgid, g.primary))
            .collect();
        for (pgid, primary) in filling {
            self.places.known.remove(&pgid);
            self.places.guests.release(&pgid);
            self.say_place(pgid, primary, Place::TooFull, fx);
        }
        self.take_turns(fx);
    }

    /// An operator wants PGs recovered first.
    pub(crate) fn on_recovery_order(&mut self, m: &RecoveryOrder, fx: &mut Effects) {
        for pgid in &m.pgs {
            let Some(host) = self.pgs.get_mut(pgid).filter(|h| h.pg.is_primary()) else { continue };
            let forced = &mut host.course.forced;
            let flag = if m.backfill { &mut forced.backfill } else { &mut forced.recovery };
            *flag = !m.cancel;
            host.dirty = true;
            let need = self.course_need(*pgid);
            if need != Need::Nothing {
                // With another priority from the first place on.
                self.lost_place(*pgid, fx);
            }
        }
        self.report_soon();
    }

    /// Nothing is left to be done: what was forced is done.
    pub(crate) fn recovery_is_over(&mut self, pgid: PgId, fx: &mut Effects) {
        self.give_back(pgid, fx);
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.course.forced = Forced::default();
        }
    }
}

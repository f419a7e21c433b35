//! Read leases: no OSD serves reads of an interval that is over.
//!
//! An OSD that is cut off from the others goes on as primary until it hears that it is not any more.
//! Writes cannot come through then, but a read would show what a newer primary has changed since. So
//! a primary reads only while every other member of the acting set has *promised* it to begin no
//! interval without it:
//!
//! * the primary asks (`LeaseAsk`) when it serves reads and its promise is half over; it counts
//!   [`LEASE`] from when it asked;
//! * the member answers (`LeaseGrant`), and counts [`LEASE`] and a margin from when it answers. The
//!   answer names the member's map: the promise says nothing of intervals that ended before it, so
//!   that the primary uses it only when it has that map;
//! * when an interval ends, its members remember how long its primary may read ([`Priors`]), and tell
//!   the next primary with every message of peering. That one serves nobody before (state `wait`).
//!
//! Nobody waits for a primary that surely does not read any more: one that stopped in order, that
//! has been started again, or that takes part in the new interval. An OSD that starts knows nothing
//! of its promises, and assumes the longest for each primary of the intervals since its PG was clean: so no PG
//! becomes clean before they are over.
//!
//! One promise serves all PGs of a pair of OSDs, and none is asked for without reads. (Ceph's leases
//! are per PG, `osd/PeeringState.cc: calc_prior_readable_until_ub, proc_lease`.)
//!
//! Time is each OSD's own monotonic clock, which counts what its machine sleeps (`uring`); only durations
//! are told. The margin covers clocks that run at different speeds, up to 7 %. A virtual machine that is
//! paused by its hypervisor has no clock that tells: what it reads in the rest of its promises, when it goes on,
//! may be old.

use maps::OsdMap;
use pg::PastIntervals;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Epoch, HObject, Mono, OsdId, PgId};

/// How long a promise holds for whoever asked. All OSDs must agree on it.
pub const LEASE: Duration = Duration::from_millis(700);
/// How much longer it binds whoever gave it.
const MARGIN: Duration = Duration::from_millis(50);
/// A question without an answer is asked again after so long.
const ASK_AGAIN: Duration = Duration::from_millis(175);

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    until: Mono,
    epoch: Epoch,
    asked: Option<Mono>,
}

/// The promises an OSD has, and those it gave.
#[derive(Debug)]
pub struct Leases {
    started: Mono,
    held: BTreeMap<OsdId, Held>,
    given: BTreeMap<OsdId, Mono>,
    /// Objects whose reads wait for promises, and whether the first of the object's queue does.
    pub waiting: BTreeMap<(PgId, HObject), bool>,
    /// Requests on whole PGs that wait for them.
    pub waiting_pgs: BTreeSet<PgId>,
    /// When a PG in state `wait` may serve, or become clean, at the earliest.
    pub wake_at: Option<Mono>,
}

/// Whether reads may be served, and whom to ask.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Every member's promise holds.
    pub holds: bool,
    /// These are to be asked.
    pub ask: SmallVec<[OsdId; 4]>,
}

impl Leases {
    /// Of an OSD that starts.
    pub fn new(started: Mono) -> Self {
        Leases {
            started,
            held: BTreeMap::new(),
            given: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waiting_pgs: BTreeSet::new(),
            wake_at: None,
        }
    }

    /// Whether the promises of `members` hold for a primary with the map `epoch`. Whoever is to be
    /// asked counts as asked.
    pub fn standing(
        &mut self,
        members: impl Iterator<Item = OsdId>,
        now: Mono,
        epoch: Epoch,
    ) -> Standing {
        let mut standing = Standing { holds: true, ask: SmallVec::new() };
        for osd in members {
            let held = self.held.entry(osd).or_default();
            standing.holds &= now < held.until && held.epoch <= epoch;
            let half = held.until.since(now) < LEASE / 2;
            if half && held.asked.is_none_or(|at| now.since(at) >= ASK_AGAIN) {
                held.asked = Some(now);
                standing.ask.push(osd);
            }
        }
        standing
    }

    /// A promise came, to what was asked at `asked`.
    pub fn granted(&mut self, by: OsdId, asked: Mono, epoch: Epoch) {
        let held = self.held.entry(by).or_default();
        let until = asked.after(LEASE);
        if until > held.until {
            *held = Held { until, epoch, asked: None };
        }
    }

    /// Whether reads of a PG wait for promises.
    pub fn is_laggy(&self, pgid: PgId) -> bool {
        let first = (pgid, HObject::min());
        self.waiting_pgs.contains(&pgid)
            || self.waiting.range(first..).next().is_some_and(|((p, _), _)| *p == pgid)
    }

    /// A PG waits until then for an earlier primary.
    pub fn wake_by(&mut self, over_at: Mono) {
        let wake = self.wake_at.get_or_insert(over_at);
        *wake = (*wake).min(over_at);
    }

    /// A PG is not here any more.
    pub fn forget(&mut self, pgid: PgId) {
        self.waiting.retain(|(p, _), _| *p != pgid);
        self.waiting_pgs.remove(&pgid);
    }

    /// Gives a promise.
    pub fn give(&mut self, to: OsdId, now: Mono) {
        self.given.insert(to, now.after(LEASE + MARGIN));
    }

    /// How long a primary may go on to read by our promises.
    pub fn bound(&self, primary: OsdId) -> Mono {
        let unknown = self.started.after(LEASE + MARGIN);
        self.given.get(&primary).copied().unwrap_or_default().max(unknown)
    }
}

/// A primary of an interval that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prior {
    /// Who.
    pub osd: OsdId,
    /// The last epoch in which it was.
    pub epoch: Epoch,
    /// It reads until then at most, by our clock.
    pub until: Mono,
}

/// Primaries of a PG's earlier intervals that may still read.
#[derive(Clone, Debug, Default)]
pub struct Priors {
    all: Vec<Prior>,
    /// They take part in the current interval.
    aware: BTreeSet<OsdId>,
}

impl Priors {
    /// What an OSD that starts knows of a PG that has been through `past` since it was last clean: each
    /// member may still lead and read by a promise of the life before, also if the PG was active since
    /// then, as it may have waited for that one. (Who led an interval that is left out there is a member
    /// of the later one that stands for it.)
    pub fn of_life_before(past: &PastIntervals, me: OsdId, leases: &Leases) -> Self {
        let mut priors = Priors::default();
        for interval in past.iter() {
            let others = interval.acting.iter().filter(|osd| osd.is_some() && **osd != me);
            for osd in others {
                priors.add(Prior { osd: *osd, epoch: interval.last, until: leases.bound(*osd) });
            }
        }
        priors
    }

    /// Adds one.
    pub fn add(&mut self, prior: Prior) {
        if self.aware.contains(&prior.osd) {
            return;
        }
        match self.all.iter_mut().find(|p| p.osd == prior.osd) {
            Some(known) => {
                known.until = known.until.max(prior.until);
                known.epoch = known.epoch.max(prior.epoch);
            }
            None => self.all.push(prior),
        }
    }

    /// Adds those of another PG.
    pub fn join(&mut self, other: &Priors) {
        other.all.iter().for_each(|prior| self.add(*prior));
    }

    /// A new interval begins.
    pub fn new_interval(&mut self, now: Mono) {
        self.aware.clear();
        self.all.retain(|p| p.until > now);
    }

    /// An OSD has shown that it knows of the current interval.
    pub fn is_aware(&mut self, osd: OsdId) {
        self.aware.insert(osd);
        self.all.retain(|p| p.osd != osd);
    }

    /// Forgets those that do not live any more by the map.
    pub fn retain_alive(&mut self, map: &OsdMap) {
        self.all.retain(|p| may_live(map, p));
    }

    /// Those that may still read.
    pub fn left(&self, now: Mono) -> impl Iterator<Item = &Prior> {
        self.all.iter().filter(move |p| p.until > now)
    }

    /// From when on nobody else reads.
    pub fn over_at(&self) -> Mono {
        self.all.iter().map(|p| p.until).max().unwrap_or_default()
    }
}

/// Whether the process that was primary then may still run: it has neither stopped in order nor
/// been started again.
fn may_live(map: &OsdMap, prior: &Prior) -> bool {
    map.osd(prior.osd)
        .is_none_or(|o| o.info.up_from <= prior.epoch && o.xinfo.dead_epoch <= prior.epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Mono {
        Mono(1_000_000_000 + ms * 1_000_000)
    }

    fn standing(l: &mut Leases, now: Mono) -> (bool, usize) {
        let s = l.standing([OsdId(1), OsdId(2)].into_iter(), now, Epoch(10));
        (s.holds, s.ask.len())
    }

    #[test]
    fn a_promise_of_every_member_is_needed_and_counts_from_the_question() {
        let mut l = Leases::new(ms(0));
        assert_eq!(standing(&mut l, ms(0)), (false, 2));
        // They are asked already.
        assert_eq!(standing(&mut l, ms(1)), (false, 0));
        l.granted(OsdId(1), ms(0), Epoch(10));
        assert_eq!(standing(&mut l, ms(2)), (false, 0));
        l.granted(OsdId(2), ms(0), Epoch(10));
        assert_eq!(standing(&mut l, ms(300)), (true, 0));
        // It is renewed in time, without a wait.
        assert_eq!(standing(&mut l, ms(400)), (true, 2));
        l.granted(OsdId(1), ms(400), Epoch(10));
        assert_eq!(standing(&mut l, ms(699)), (true, 1));
        assert_eq!(standing(&mut l, ms(700)), (false, 0));
    }

    #[test]
    fn a_promise_under_a_newer_map_is_of_no_use_before_we_have_it() {
        let mut l = Leases::new(ms(0));
        l.granted(OsdId(1), ms(0), Epoch(11));
        let one = |l: &mut Leases, e| l.standing([OsdId(1)].into_iter(), ms(1), Epoch(e)).holds;
        assert!(!one(&mut l, 10) && one(&mut l, 11));
    }

    #[test]
    fn what_is_given_binds_longer_than_what_is_had() {
        let mut l = Leases::new(ms(0));
        // Whoever has just started may have promised anything in the life before.
        assert!(l.bound(OsdId(1)) >= ms(0).after(LEASE));
        l.give(OsdId(1), ms(500));
        assert!(l.bound(OsdId(1)) > ms(500).after(LEASE));
        assert!(l.bound(OsdId(2)) < ms(1000));
    }

    #[test]
    fn whoever_starts_remembers_who_may_read_by_promises_of_the_life_before() {
        let (me, mut past) = (OsdId(3), PastIntervals::default());
        for (epoch, acting) in [(5, [1, 3]), (10, [4, 3]), (15, [3, 2])] {
            let acting: pg::OsdSet = acting.into_iter().map(OsdId).collect();
            let (first, last) = (Epoch(epoch), Epoch(epoch + 4));
            let primary = acting.first().copied();
            let (up, maybe_went_rw, follows) = (acting.clone(), true, false);
            past.push(pg::Interval { first, last, acting, up, primary, maybe_went_rw, follows });
        }
        let leases = Leases::new(ms(0));
        let p = Priors::of_life_before(&past, me, &leases);
        let left = |now| p.left(now).map(|p| (p.osd.0, p.epoch.0)).collect::<Vec<_>>();
        assert_eq!(left(ms(749)), [(1, 9), (4, 14), (2, 19)]);
        assert_eq!((left(ms(750)), p.over_at()), (Vec::new(), ms(750)));
    }

    #[test]
    fn nobody_waits_for_a_primary_that_takes_part() {
        let mut p = Priors::default();
        let prior = |osd, until| Prior { osd: OsdId(osd), epoch: Epoch(5), until: ms(until) };
        p.add(prior(1, 100));
        p.add(prior(2, 300));
        p.add(prior(1, 200));
        assert_eq!(p.over_at(), ms(300));
        p.is_aware(OsdId(2));
        p.add(prior(2, 900));
        assert_eq!(p.over_at(), ms(200));
        assert_eq!((p.left(ms(199)).count(), p.left(ms(200)).count()), (1, 0));
        p.new_interval(ms(150));
        p.add(prior(2, 400));
        assert_eq!(p.over_at(), ms(400));
    }
}

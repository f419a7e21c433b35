//! Unfound objects that the operator gives up (`ceph pg ID mark_unfound_lost revert|delete`).
//!
//! Deleting is a logged write like any other. Going back takes three steps, each of which may be cut
//! off by a new interval without harm: the newest older state is brought to the primary if another
//! copy has it; a log entry says that the object has a new version, which every copy misses; when all
//! have that entry, the primary gives its older state the new version, and recovery brings it to the
//! others. Source: Ceph `osd/PrimaryLogPG.cc: mark_all_unfound_lost`.

use crate::daemon::{Daemon, Waiter};
use crate::host::{PgHost, Then};
use crate::object::ObjectMeta;
use admin::{Answer, Args, CommandError};
use io::Effects;
use peer::{Pull, View};
use pg::GiveUp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::{Miss, ReadSet, StoreError, SubmitError};
use types::testing::{Probe, hit};
use types::{Epoch, Eversion, HObject, Mono, OsdId, PgId};
use wire::msg::Payload;

/// Objects that are worked on in one turn.
const AT_ONCE: usize = 64;
/// What cannot be read for that is tried again after so long, in seconds.
const UNREADABLE_S: u64 = 60;

/// Where the giving up of an object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is to be deleted.
    Delete,
    /// An older state is to be brought from another copy.
    Fetch(OsdId, Eversion),
    /// It is on its way from there, asked for at this map.
    Fetching(OsdId, Eversion, Epoch),
    /// The older state is here; that it counts is to be logged.
    Log,
    /// That is logged as this version, but not on all copies.
    Logged(Eversion),
    /// The older state gets this version.
    Stamp(Eversion),
}

/// Objects of a PG that are given up.
#[derive(Debug, Default)]
pub struct GivingUp {
    steps: BTreeMap<HObject, Step>,
    /// Those whose next step may be done, and those whose older state is to be fetched.
    ready: BTreeSet<HObject>,
    to_fetch: BTreeSet<HObject>,
    /// Those whose older state is on its way.
    fetching_older: BTreeSet<HObject>,
    /// Those that are logged, by their versions.
    logged: BTreeMap<Eversion, HObject>,
    /// Those of which no client was ever told, and the clones, and their versions, that may have to go with them: as
    /// the log said when that was found out. It may be trimmed since.
    never_acknowledged: BTreeMap<HObject, Vec<(HObject, Eversion)>>,
    /// Those that cannot be read, and when they are tried again.
    later: BTreeMap<HObject, Mono>,
    /// The number of what is being fetched from the store, and the object that it is for.
    fetching: Option<(u64, HObject)>,
    /// What was fetched, for the next step.
    reads: ReadSet,
    /// Whoever might have what is unfound and was never heard of is to be asked.
    asks: bool,
}

impl GivingUp {
    /// Whether an older state of the object is awaited.
    pub(crate) fn wants(&self, object: &HObject) -> bool {
        matches!(self.steps.get(object), Some(Step::Fetching(..)))
    }

    /// Whether what comes is that.
    pub(crate) fn wants_version(&self, object: &HObject, version: Eversion, exists: bool) -> bool {
        let wanted = self.steps.get(object);
        exists && matches!(wanted, Some(Step::Fetching(_, of, _)) if *of == version)
    }

    /// The older state has come.
    pub(crate) fn is_here(&mut self, object: &HObject) {
        self.set(object, Some(Step::Log));
    }

    /// How many older states are on their way.
    pub(crate) fn fetching_count(&self) -> usize {
        self.fetching_older.len()
    }

    /// The next object that something can be done for, and what. One may always be on its way.
    fn next(
        &self,
        may_fetch: bool,
        more: bool,
        fits: impl Fn(&HObject) -> bool,
    ) -> Option<(HObject, Step)> {
        let may_fetch = may_fetch && (more || self.fetching_older.is_empty());
        let fetch = || match may_fetch {
            true => self.to_fetch.iter().find(|object| fits(object)),
            false => None,
        };
        let object = self.ready.first().or_else(fetch)?;
        Some((object.clone(), *self.steps.get(object)?))
    }

    /// The one that is logged as this version is logged everywhere.
    fn is_logged(&mut self, version: Eversion) {
        if let Some(object) = self.logged.get(&version).cloned() {
            self.set(&object, Some(Step::Stamp(version)));
        }
    }

    /// There was no space for it.
    pub(crate) fn fetch_later(&mut self, object: &HObject, from: OsdId, version: Eversion) {
        self.set(object, Some(Step::Fetch(from, version)));
    }

    /// A fetch has ended: the object that it was for. Nobody waits for one that began before a new interval.
    fn fetched(&mut self, fetch: u64) -> Option<HObject> {
        let (_, object) = self.fetching.take_if(|(awaited, _)| *awaited == fetch)?;
        Some(object)
    }

    /// The next step for an object; `None`: that was the last one, and nothing of it is remembered.
    fn set(&mut self, object: &HObject, step: Option<Step>) {
        self.ready.remove(object);
        self.to_fetch.remove(object);
        self.fetching_older.remove(object);
        self.later.remove(object);
        let before = match step {
            Some(step) => self.steps.insert(object.clone(), step),
            None => {
                self.never_acknowledged.remove(object);
                self.steps.remove(object)
            }
        };
        if let Some(Step::Logged(version)) = before {
            self.logged.remove(&version);
        }
        match step {
            None => false,
            Some(Step::Fetch(..)) => self.to_fetch.insert(object.clone()),
            Some(Step::Fetching(..)) => self.fetching_older.insert(object.clone()),
            Some(Step::Logged(version)) => self.logged.insert(version, object.clone()).is_none(),
            Some(Step::Delete | Step::Log | Step::Stamp(_)) => self.ready.insert(object.clone()),
        };
    }

    /// What the next step for an object needs cannot be read.
    fn is_unreadable(&mut self, object: &HObject, until: Mono) {
        match self.steps.get(object) {
            // There is no older state that could be kept.
            Some(Step::Stamp(_)) => self.set(object, Some(Step::Delete)),
            Some(_) => {
                self.ready.remove(object);
                self.later.insert(object.clone(), until);
            }
            None => {}
        }
    }

    /// What was put off until now is tried again.
    fn try_again(&mut self, now: Mono) {
        let due: Vec<_> = self.later.extract_if(.., |_, until| *until <= now).collect();
        self.ready.extend(due.into_iter().map(|(object, _)| object));
    }

    /// The clones, and their versions, that go with an object that goes back to a version.
    pub(crate) fn clones_that_go(
        &self,
        object: &HObject,
        to: Eversion,
    ) -> Vec<(HObject, Eversion)> {
        let clones = self.never_acknowledged.get(object).into_iter().flatten();
        clones.filter(|(_, made)| *made > to).cloned().collect()
    }
}

fn first_step(plan: GiveUp, me: OsdId) -> Step {
    match plan {
        GiveUp::Delete => Step::Delete,
        GiveUp::Revert { from, .. } if from == me => Step::Log,
        GiveUp::Revert { from, to } => Step::Fetch(from, to),
    }
}

impl PgHost {
    fn give_up(&mut self, object: HObject, revert: bool, me: OsdId) {
        let plan = self.pg.give_up_unfound(&object, revert);
        let pgid = self.pg.info().pgid;
        tracing::warn!("osd.{me}: pg {pgid}: {object} is given up: {plan}");
        // What was asked for may never come.
        let may_begin = matches!(
            self.giving_up.steps.get(&object),
            None | Some(Step::Fetch(..) | Step::Fetching(..))
        );
        if may_begin {
            self.giving_up.set(&object, Some(first_step(plan, me)));
        }
    }
}

impl Daemon {
    /// What a PG lacks of which no client was told that it was written, is given up without an order.
    pub(crate) fn give_up_unacknowledged(&mut self, pgid: PgId) {
        let me = self.cfg.id;
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if !host.pg.may_give_up() {
            return;
        }
        for object in host.pg.newly_never_acknowledged() {
            if !host.giving_up.steps.contains_key(&object) {
                hit(Probe::WriteTakenBack);
                tracing::warn!(
                    "osd.{me}: pg {pgid}: the last write of {object} was never acknowledged, and its data are \
                     nowhere: it is taken back"
                );
                let clones = host.pg.clones_made_after(&object, Eversion::ZERO);
                host.giving_up.never_acknowledged.insert(object.clone(), clones);
                host.give_up(object, true, me);
                self.giving_up.insert(pgid);
            }
        }
    }

    /// The command.
    pub(crate) fn mark_unfound_lost(&mut self, args: &Args) -> Result<Answer, CommandError> {
        let (me, map) = (self.cfg.id, self.maps.current().clone());
        let pgid = args.pgid("pgid").ok_or_else(|| CommandError::invalid("no pgid specified"))?;
        let mode = args.text("mulcmd");
        if mode != "revert" && mode != "delete" {
            return Err(CommandError::invalid("mode must be 'revert' or 'delete'"));
        }
        self.queried(args)?;
        let Some(host) = self.pgs.get_mut(&pgid) else {
            return Err(CommandError::not_found(format_args!("pg {pgid} is not here")));
        };
        if !host.pg.may_give_up() {
            return Err(CommandError::new(
                types::Errno::EAGAIN,
                format_args!("pg {pgid} is {}, neither active nor peered", host.pg.state()),
            ));
        }
        let unfound: Vec<HObject> = host.pg.unfound().cloned().collect();
        if unfound.is_empty() {
            return Ok(Answer::message("pg has no unfound objects"));
        }
        if !host.pg.unfound_is_lost(&View(&map)) {
            host.giving_up.asks = true;
            self.giving_up.insert(pgid);
            return Err(CommandError::invalid(format_args!(
                "pg has {} unfound objects but we haven't probed all sources, not marking lost; \
                 'ceph pg {pgid} query' says which under might_have_unfound. Those that are up are asked \
                 now: try again",
                unfound.len()
            )));
        }
        let count = unfound.len();
        for object in unfound {
            host.give_up(object, mode == "revert", me);
        }
        tracing::warn!("osd.{me}: pg {pgid}: {count} unfound objects are given up: {mode}");
        self.giving_up.insert(pgid);
        let said = format_args!("pg has {count} objects unfound and apparently lost marking");
        Ok(Answer::message(said))
    }

    /// Goes on with what is given up, a bounded number of objects a turn.
    pub(crate) fn go_on_giving_up(&mut self, fx: &mut Effects) {
        let mut left = AT_ONCE;
        let may_fetch = self.pulls_in_turn();
        for pgid in self.giving_up.iter().copied().collect::<Vec<_>>() {
            if self.pgs.get_mut(&pgid).is_some_and(|h| std::mem::take(&mut h.giving_up.asks)) {
                self.run_pg(pgid, fx, |pg, ctx, out| pg.ask_for_unfound(ctx.map, out));
            }
            let Some(host) = self.pgs.get(&pgid).filter(|h| !h.giving_up.steps.is_empty()) else {
                self.giving_up.remove(&pgid);
                continue;
            };
            if host.giving_up.fetching.is_some() || !host.is_settled() || !host.pg.may_give_up() {
                continue;
            }
            self.forget_what_was_found(pgid);
            while let Some((object, step)) = self.next_given_up(pgid, may_fetch) {
                if left == 0 {
                    return;
                }
                left -= 1;
                let decided = matches!(step, Step::Logged(_) | Step::Stamp(_));
                let unfound = |h: &PgHost| h.pg.is_unfound(&object);
                if !decided && !self.pgs.get(&pgid).is_some_and(unfound) {
                    // Somebody has it after all.
                    self.set_step(pgid, &object, None);
                    continue;
                }
                if !self.give_up_step(pgid, object, step, fx) {
                    break;
                }
            }
        }
    }

    fn next_given_up(&self, pgid: PgId, may_fetch: bool) -> Option<(HObject, Step)> {
        let host = self.pgs.get(&pgid)?;
        let fits = |object: &HObject| !host.pg.is_unfitting(object);
        host.giving_up.next(may_fetch, self.may_move_more(), fits)
    }

    /// Somebody has what is on its way in an older state, or who was asked for that is gone. Then another one that has
    /// it is asked. If there is none, an operator has to decide again: it may come back.
    fn forget_what_was_found(&mut self, pgid: PgId) {
        let (me, now, map) = (self.cfg.id, self.now.mono, self.maps.current().clone());
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.giving_up.try_again(now);
        let mut next = Vec::new();
        for object in &host.giving_up.fetching_older {
            let Some(Step::Fetching(from, wanted, asked)) = host.giving_up.steps.get(object) else {
                continue;
            };
            let began_anew = map.osd(*from).is_none_or(|o| o.info.up_from > *asked);
            if !host.pg.is_unfound(object) {
                next.push((object.clone(), None));
            } else if began_anew || !host.pg.hears_of(*from) {
                let plan = host.pg.give_up_unfound(object, true);
                let is_as_new = matches!(plan, GiveUp::Revert { to, .. } if to >= *wanted);
                let decided = host.giving_up.never_acknowledged.contains_key(object);
                next.push((object.clone(), (is_as_new || decided).then(|| first_step(plan, me))));
                hit(Probe::OlderSourceLost);
                let pgid = host.pg.pgid();
                tracing::warn!(
                    "osd.{me}: pg {pgid}: osd.{from} went down, which was to send version {wanted} of {object}"
                );
            }
        }
        for (object, step) in next {
            self.set_step(pgid, &object, step);
        }
        self.count_moving(pgid);
    }

    /// `false`: the store wants time, or something to be read first.
    fn give_up_step(&mut self, pgid: PgId, object: HObject, step: Step, fx: &mut Effects) -> bool {
        let fetched = self.pgs.get_mut(&pgid).map(|h| std::mem::take(&mut h.giving_up.reads));
        let reads = fetched.unwrap_or_default();
        match step {
            Step::Delete => {
                if let Err(why) = self.write_given_up(pgid, &object, true, &reads, fx) {
                    return self.give_up_later(pgid, object, why, fx);
                }
                self.set_step(pgid, &object, None);
            }
            Step::Log => match self.write_given_up(pgid, &object, false, &reads, fx) {
                Ok(version) => self.set_step(pgid, &object, Some(Step::Logged(version))),
                Err(why) => return self.give_up_later(pgid, object, why, fx),
            },
            Step::Fetch(from, need) => {
                let Some(host) = self.pgs.get(&pgid) else { return false };
                let (epoch, interval) = (self.maps.epoch(), host.interval());
                self.set_step(pgid, &object, Some(Step::Fetching(from, need, epoch)));
                let whole = Pull::whole(pgid, epoch, interval, object, need);
                let pull = Pull { urgent: true, ..whole };
                self.send_peer(from, pull.encode(), fx);
            }
            Step::Stamp(version) => return self.stamp_older(pgid, object, version, fx),
            Step::Fetching(..) | Step::Logged(_) => {}
        }
        self.note_recovering(pgid);
        self.report_soon();
        true
    }

    /// The store could not take the change yet. Gives `false`, as [`Daemon::give_up_step`] does.
    fn give_up_later(
        &mut self,
        pgid: PgId,
        object: HObject,
        why: SubmitError,
        fx: &mut Effects,
    ) -> bool {
        match why {
            SubmitError::Miss(miss) => self.fetch_for_giving_up(pgid, object, miss, fx),
            SubmitError::Invalid(why) => panic!("pg {pgid}: an object cannot be given up: {why}"),
            SubmitError::NoSpace | SubmitError::Busy => {}
        }
        false
    }

    fn fetch_for_giving_up(&mut self, pgid: PgId, object: HObject, miss: Miss, fx: &mut Effects) {
        self.fetch(miss, Waiter::GiveUp(pgid), fx);
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.giving_up.fetching = Some((self.last_fetch, object));
        }
    }

    fn set_step(&mut self, pgid: PgId, object: &HObject, step: Option<Step>) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.dirty = true;
        host.giving_up.set(object, step);
        self.count_moving(pgid);
    }

    /// Gives the older state that is here the version that counts now.
    fn stamp_older(
        &mut self,
        pgid: PgId,
        object: HObject,
        version: Eversion,
        fx: &mut Effects,
    ) -> bool {
        let key = object.to_key();
        let Some(host) = self.pgs.get_mut(&pgid) else { return false };
        let stat = match self.store.stat(&key) {
            Ok(stat) => stat,
            Err(miss) => {
                self.fetch_for_giving_up(pgid, object, miss, fx);
                return false;
            }
        };
        let meta = stat.and_then(|s| ObjectMeta::decode(&s.meta).ok());
        let Some(meta) = meta else {
            tracing::error!("osd.{}: pg {pgid}: nothing is left of {object}", self.cfg.id);
            self.set_step(pgid, &object, Some(Step::Delete));
            return true;
        };
        let mut txn = host.transaction();
        txn.set_meta(&key, denc::encode(&ObjectMeta { version, ..meta }));
        let ops = host.pg.arrival_ops(&object, version);
        host.put_meta(&mut txn, ops);
        host.pg.arrived(&object, version);
        let interval = host.interval();
        self.set_step(pgid, &object, None);
        self.submit(pgid, txn, [Then::Pulled(pgid, interval, object)], fx);
        true
    }

    /// All copies know that an object is given up: `head`, or a clone of it, which requests of the head may
    /// wait for.
    pub(crate) fn give_up_committed(
        &mut self,
        pgid: PgId,
        version: Eversion,
        head: &HObject,
        fx: &mut Effects,
    ) {
        self.unstall(pgid, head, false);
        self.call_back(pgid, head, fx);
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.giving_up.is_logged(version);
        self.note_recovering(pgid);
        self.report_soon();
    }

    /// Another copy does not have the older state that it said it has.
    pub(crate) fn nothing_to_go_back_to(&mut self, pgid: PgId, from: OsdId, object: &HObject) {
        let me = self.cfg.id;
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.pg.has_nothing_older(from, object);
        let step = first_step(host.pg.give_up_unfound(object, true), me);
        self.set_step(pgid, object, Some(step));
    }

    pub(crate) fn give_up_fetched(
        &mut self,
        pgid: PgId,
        fetch: u64,
        result: Result<ReadSet, StoreError>,
    ) {
        let later = self.now.mono.after(Duration::from_secs(UNREADABLE_S));
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let Some(object) = host.giving_up.fetched(fetch) else { return };
        match result {
            Ok(reads) => host.giving_up.reads.merge(reads),
            Err(why) => {
                let id = self.cfg.id;
                tracing::error!("osd.{id}: pg {pgid}: {object}, which is given up: {why}");
                self.perf.read_errors += 1;
                host.giving_up.is_unreadable(&object, later);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::SnapId;

    /// Else the same clones would be removed a second time when the object is given up again, for another reason.
    #[test]
    fn what_was_taken_back_is_forgotten_with_its_last_step() {
        let at = |n| Eversion::new(Epoch(1), n);
        let head = HObject::min().head();
        let clones = vec![(head.at_snap(SnapId(3)), at(5)), (head.at_snap(SnapId(4)), at(7))];
        let mut giving_up = GivingUp::default();
        giving_up.never_acknowledged.insert(head.clone(), clones.clone());
        giving_up.set(&head, Some(Step::Log));
        assert_eq!(giving_up.clones_that_go(&head, at(5)), clones[1..]);
        giving_up.set(&head, None);
        assert!(giving_up.clones_that_go(&head, Eversion::ZERO).is_empty());
    }

    /// The older states of all others would be deleted with it, and it would be tried again and again.
    #[test]
    fn only_what_cannot_be_read_is_deleted_and_that_is_not_tried_at_once_again() {
        let at = |n| Eversion::new(Epoch(1), n);
        let [bad, good] = [1, 2].map(|hash| HObject { hash, ..HObject::min().head() });
        let mut giving_up = GivingUp::default();
        giving_up.set(&bad, Some(Step::Stamp(at(1))));
        giving_up.set(&good, Some(Step::Stamp(at(2))));
        let later = Mono(7);
        let next = |giving_up: &GivingUp| giving_up.next(true, true, |_| true);
        giving_up.is_unreadable(&bad, later);
        assert_eq!(giving_up.steps[&good], Step::Stamp(at(2)));
        assert_eq!(giving_up.steps[&bad], Step::Delete);
        giving_up.is_unreadable(&bad, later);
        assert_eq!(next(&giving_up), Some((good.clone(), Step::Stamp(at(2)))));
        giving_up.set(&good, None);
        giving_up.try_again(Mono(6));
        assert_eq!(next(&giving_up), None);
        giving_up.try_again(later);
        assert_eq!(next(&giving_up), Some((bad, Step::Delete)));
    }

    /// The disk was slow to say that it cannot read one object; meanwhile there was a new interval. The older state of
    /// another one, which was being fetched by then, was deleted for that.
    #[test]
    fn a_fetch_of_an_earlier_interval_says_nothing_of_what_is_fetched_now() {
        let [first, second] = [1, 2].map(|hash| HObject { hash, ..HObject::min().head() });
        let mut giving_up = GivingUp { fetching: Some((7, first)), ..GivingUp::default() };
        assert_eq!(giving_up.fetched(6), None);
        giving_up = GivingUp { fetching: Some((8, second.clone())), ..GivingUp::default() };
        assert_eq!(giving_up.fetched(7), None);
        assert_eq!(giving_up.fetched(8), Some(second));
        assert_eq!(giving_up.fetched(8), None);
    }

    /// All of them were asked for at once, and each step looked at all that were on their way.
    #[test]
    fn older_states_of_many_objects_are_fetched_a_few_at_a_time() {
        const OBJECTS: u64 = 1000;
        const AT_ONCE: usize = 32;
        let at = |n| Eversion::new(Epoch(1), n);
        let named = |i: u64| HObject { hash: i as u32, ..HObject::min().head() };
        let mut giving_up = GivingUp::default();
        for i in 0..OBJECTS {
            giving_up.set(&named(i), Some(Step::Fetch(OsdId(2), at(i + 1))));
        }
        let mut steps = 0;
        for round in 0.. {
            while let Some((object, step)) =
                giving_up.next(true, giving_up.fetching_count() < AT_ONCE, |_| true)
            {
                steps += 1;
                let next = match step {
                    Step::Fetch(from, version) => Some(Step::Fetching(from, version, Epoch(1))),
                    Step::Log => Some(Step::Logged(at(OBJECTS + steps))),
                    _ => None,
                };
                giving_up.set(&object, next);
                assert!(giving_up.fetching_count() <= AT_ONCE);
            }
            assert!(giving_up.next(false, true, |_| true).is_none(), "all wait");
            assert!(round > 0 || giving_up.fetching_count() == AT_ONCE);
            // One object comes at a time.
            let come = giving_up.fetching_older.first().cloned();
            come.iter().for_each(|object| giving_up.is_here(object));
            let logged = giving_up.logged.keys().copied().collect::<Vec<_>>();
            logged.into_iter().for_each(|version| giving_up.is_logged(version));
            if giving_up.steps.is_empty() {
                break;
            }
        }
        assert_eq!(steps, 3 * OBJECTS, "to ask, to log, to stamp");
        assert!(giving_up.logged.is_empty() && giving_up.ready.is_empty());
    }
}

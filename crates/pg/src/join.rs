//! Two PGs become one, when the pool's `pg_num` shrinks. Source: Ceph `osd/PG.cc: merge_from`,
//! `osd/PeeringState.cc: merge_from`, `mon/OSDMonitor.cc: prepare_pg_ready_to_merge`.
//!
//! First the mon announces it (`pg_num_pending`): the *source* and its *target* begin an interval in
//! which they take no requests (state `premerge`). When both are clean on the same OSDs, their last
//! versions are in the map that merges them. Every OSD merges its copies by itself: the result is
//! whole if both were, up to just those versions; any other copy is worth nothing, and is filled.
//!
//! The two logs cannot be compared, so that the merged one begins anew, behind both: its version is
//! the sum of theirs. Only what is remembered of requests goes on, renumbered.

use crate::info::PgInfo;
use crate::intervals::PoolRules;
use crate::log::{DUPS_TRACKED, Dup, PgLog};
use crate::missing::Missing;
use crate::persist::{MetaOp, put_dup, put_tail, remove_all_log};
use crate::pg::Pg;
use types::{Eversion, HObject, PgId};

/// The PG that one goes into, in a pool of so many.
fn target_of(mut seed: u32, pg_num: u32) -> u32 {
    while seed >= pg_num && seed > 0 {
        seed &= !(1 << seed.ilog2());
    }
    seed
}

impl PoolRules {
    /// Whether a PG is about to be merged with another.
    pub fn is_premerge(&self, pgid: PgId) -> bool {
        let pending = self.pg_num_pending;
        if pending == 0 || pending >= self.pg_num {
            return false;
        }
        let mut sources = pending..self.pg_num;
        sources.contains(&pgid.seed) || sources.any(|s| target_of(s, pending) == pgid.seed)
    }
}

impl Pg {
    /// Whether this PG waits to be merged, and takes no requests.
    pub fn is_premerge(&self) -> bool {
        self.rules.is_premerge(self.info.pgid)
    }

    /// Merges the source into this one, before the map is taken in that does so. `versions` are those
    /// that source and target must have for the copies to count. Answers what changes in this PG's
    /// records; those of the source are to be removed.
    pub fn merge(
        &mut self,
        source: Option<&Pg>,
        versions: Option<(Eversion, Eversion)>,
    ) -> Vec<MetaOp> {
        let whole = |pg: &Pg, v: Eversion| {
            pg.info.is_complete() && pg.missing.is_empty() && pg.info.last_update == v
        };
        self.info_dirty = true;
        match (source, versions) {
            (Some(source), Some((of_source, of_target)))
                if whole(source, of_source) && whole(self, of_target) =>
            {
                self.take_over(source);
            }
            _ => self.become_worthless(),
        }
        let mut meta: Vec<_> = remove_all_log().into();
        meta.push(put_tail(self.log.tail()));
        meta.extend(self.log.dups().map(put_dup));
        meta
    }

    fn take_over(&mut self, source: &Pg) {
        let (ours, theirs) = (self.info.last_update, source.info.last_update);
        let head = Eversion::new(ours.epoch.max(theirs.epoch), ours.version + theirs.version);
        let mut dups: Vec<Dup> = self.all_requests().chain(source.all_requests()).collect();
        dups.sort_by_key(|d| (d.version, d.reqid));
        let spare = dups.len().saturating_sub(DUPS_TRACKED as usize);
        dups.drain(..spare);
        // Each has a version of its own below the new head, in the old order.
        let first = head.version + 1 - dups.len() as u64;
        for (version, dup) in (first..).zip(&mut dups) {
            dup.version = Eversion::new(head.epoch, version);
        }
        self.log = PgLog::from_parts(head, Vec::new(), dups).expect("a log without entries");
        let epoch = self.epoch;
        let i = &mut self.info;
        (i.last_update, i.log_tail, i.there_since) = (head, head, epoch);
        i.last_user_version = i.last_user_version.max(source.info.last_user_version);
        i.sums.add(&source.info.sums);
        // Both were clean up to now: nothing before counts any more.
        let h = &mut i.history;
        (h.last_epoch_started, h.last_epoch_clean) = (epoch, epoch);
        (h.last_interval_started, h.last_interval_clean) =
            (h.same_interval_since, h.same_interval_since);
        (i.last_epoch_started, i.last_interval_started) = (epoch, h.same_interval_since);
        self.past.clear();
    }

    fn become_worthless(&mut self) {
        self.log = PgLog::default();
        self.missing = Missing::default();
        let PgInfo { pgid, history, .. } = self.info.clone();
        let (last_backfill, there_since) = (HObject::min(), self.epoch);
        self.info = PgInfo { last_backfill, there_since, ..PgInfo::new(pgid, history) };
    }

    fn all_requests(&self) -> impl Iterator<Item = Dup> {
        let entries = self.log.entries().filter(|e| e.has_reqid()).map(|e| e.to_dup());
        self.log.dups().cloned().chain(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::LogEntry;
    use crate::info::History;
    use crate::intervals::{Mapping, PastIntervals};
    use types::{Epoch, OsdId, PoolId, ReqId};

    fn entry(seed: u32, n: u64) -> LogEntry {
        let object = HObject { hash: seed, name: format!("o{n}").into(), ..HObject::min() };
        let reqid = ReqId { tid: n, inc: seed as i32 + 1, ..ReqId::default() };
        LogEntry { reqid, ..LogEntry::of(object, Eversion::new(Epoch(3), n)) }
    }

    fn pg(seed: u32, writes: u64) -> Pg {
        let pgid = PgId::new(PoolId(1), seed);
        let rules = PoolRules { size: 3, min_size: 2, pg_num: 2, pg_num_pending: 1 };
        let (history, past) = (History::created(Epoch(1)), PastIntervals::default());
        let mut pg = Pg::create(OsdId(0), pgid, history, past, Epoch(9), Mapping::default(), rules);
        for n in 1..=writes {
            pg.log.append(entry(seed, n));
        }
        pg.log.trim(Eversion::new(Epoch(3), writes / 2));
        (pg.info.last_update, pg.info.log_tail) = (pg.log.head(), pg.log.tail());
        pg.info.sums.objects = writes as i64;
        pg
    }

    #[test]
    fn two_whole_copies_make_one_that_remembers_every_request() {
        let (mut target, source) = (pg(0, 40), pg(1, 25));
        let versions = (source.last_update(), target.last_update());
        let meta = target.merge(Some(&source), Some(versions));
        assert_eq!(target.last_update(), Eversion::new(Epoch(3), 65));
        assert_eq!(target.log.tail(), target.log.head());
        assert!(target.info.is_complete() && target.info.sums.objects == 65);
        for (part, n) in (1..=40).map(|n| (0, n)).chain((1..=25).map(|n| (1, n))) {
            let reqid = ReqId { tid: n, inc: part + 1, ..ReqId::default() };
            let dup = target.log.find_request(&reqid).expect("it is remembered");
            assert_eq!((dup.reqid, dup.user_version), (reqid, n));
        }
        let rows = meta.iter().filter(|op| matches!(op, MetaOp::Put(..))).count();
        let keys: std::collections::BTreeSet<_> = meta
            .iter()
            .filter_map(|op| if let MetaOp::Put(k, _) = op { Some(k.clone()) } else { None })
            .collect();
        assert_eq!(
            (rows, keys.len()),
            (66, 66),
            "65 requests and the tail, each under its own key"
        );
    }

    /// The tail of a log was moved back, by a longer log of another copy.
    #[test]
    fn entries_that_came_back_are_remembered_once() {
        let (mut target, source) = (pg(0, 40), pg(1, 25));
        let whole: Vec<_> = pg(0, 40).log.dups().map(|d| d.version).collect();
        let older = || (1..=20).map(|n| entry(0, n)).collect();
        target.log.extend_tail(Eversion::ZERO, older());
        assert_eq!((target.log.len(), target.log.dup_count()), (40, 0));
        target.log.trim(Eversion::new(Epoch(3), 20));
        assert!(target.log.dups().map(|d| d.version).eq(whole));
        let found = |n| target.log.find_request(&entry(0, n).reqid).is_some();
        assert!((1..=40).all(found));
        target.log.extend_tail(Eversion::ZERO, older());
        let versions = (source.last_update(), target.last_update());
        target.merge(Some(&source), Some(versions));
        assert_eq!(target.log.dup_count(), 65);
    }

    #[test]
    fn copies_that_are_not_what_the_map_names_are_worth_nothing() {
        let at = |pg: &Pg| pg.last_update();
        let older = |v: Eversion| Eversion::new(v.epoch, v.version - 1);
        type Case<'a> = &'a dyn Fn(&mut Pg, &mut Pg) -> (Eversion, Eversion);
        let cases: [Case<'_>; 5] = [
            &|s, t| (older(at(s)), at(t)),
            &|s, t| (at(s), older(at(t))),
            &|s, t| {
                s.info.last_backfill = HObject::min();
                (at(s), at(t))
            },
            &|s, t| {
                t.missing.set(HObject::min(), at(t), Eversion::ZERO);
                (at(s), at(t))
            },
            &|s, t| {
                t.info.last_backfill = HObject::min();
                (at(s), at(t))
            },
        ];
        for case in cases {
            let (mut target, mut source) = (pg(0, 40), pg(1, 25));
            let versions = case(&mut source, &mut target);
            target.merge(Some(&source), Some(versions));
            assert!(
                !target.info.is_complete() && target.log.is_empty() && target.missing.is_empty()
            );
            assert_eq!(target.info.last_epoch_started, Epoch::ZERO);
        }
        let mut alone = pg(0, 40);
        alone.merge(None, Some((Eversion::ZERO, alone.last_update())));
        assert!(!alone.info.is_complete());
    }

    #[test]
    fn who_takes_part_in_a_merge() {
        let is = |seed, pg_num, pg_num_pending| {
            let rules = PoolRules { size: 3, min_size: 2, pg_num, pg_num_pending };
            rules.is_premerge(PgId::new(PoolId(1), seed))
        };
        assert!(is(7, 8, 7) && is(3, 8, 7) && !is(1, 8, 7) && !is(6, 8, 7));
        assert!(is(4, 5, 4) && is(0, 5, 4) && !is(2, 5, 4));
        assert!(!is(7, 8, 8) && !is(0, 1, 1));
    }
}

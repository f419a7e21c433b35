//! One PG becomes several, when the pool's `pg_num` grows. Source: Ceph `osd/PG.cc: split_into`,
//! `osd/PeeringState.cc: split_into`.
//!
//! Objects stand in the order of their reversed hash, so that each part is a range of what there was
//! and nothing of them moves. What is divided are the records: the log by hash, missing objects,
//! remembered requests. Every copy does this by itself at the same epoch. All parts keep tail and
//! head of the log, so that copies compare as they did before; the parts peer as PGs of their own,
//! whose past intervals are those of the one they come from.

use crate::entry::LogEntry;
use crate::info::{ObjectSums, PgInfo};
use crate::missing::Missing;
use crate::persist::{
    InfoRecord, Loaded, LogRecord, MetaOp, log_key, put_dup, put_missing, put_tail,
    remove_all_missing,
};
use crate::pg::{Fx, Pg};
use types::{Epoch, HObject, PgId};

impl Pg {
    /// Splits the children off, before the map of epoch `created` is taken in that splits: they are as
    /// old as this one and lie where it lies, until they take in that map, too. `home` says to which
    /// PG objects of a hash belong from now on.
    ///
    /// The second answer is what changes in this PG's records; [`Pg::records`] are a child's.
    pub fn split_off(
        &mut self,
        children: &[PgId],
        created: Epoch,
        home: impl Fn(u32) -> PgId,
    ) -> (Vec<Pg>, Vec<MetaOp>) {
        let mut meta = Vec::new();
        if !self.info.is_complete() {
            // What a cursor within the parent says of a child is not worth working out: a backfill
            // that begins again only compares what is there.
            self.info.last_backfill = HObject::min();
            self.missing = Missing::default();
            meta.push(remove_all_missing());
        }
        let parts = i64::try_from(children.len()).unwrap_or(i64::MAX).saturating_add(1);
        self.info.sums = self.info.sums.part(parts);
        let born = children.iter().map(|child| self.split_one(*child, created, &home)).collect();
        self.info_dirty = true;
        (born, meta)
    }

    fn split_one(&mut self, pgid: PgId, created: Epoch, home: &impl Fn(u32) -> PgId) -> Pg {
        let goes = |hash: u32| home(hash) == pgid;
        let log = self.log.split_off(goes);
        let (missing, left): (Vec<_>, Vec<_>) = self
            .missing
            .iter()
            .map(|(object, item)| (object.clone(), *item))
            .partition(|(object, _)| goes(object.hash));
        self.missing = left.into_iter().collect();
        let mut info = PgInfo { pgid, ..self.info.clone() };
        info.history.epoch_created = created;
        let record = InfoRecord {
            info,
            past: self.past.clone(),
            epoch: self.epoch,
            pg_num: self.rules.pg_num,
        };
        let missing = missing.into_iter().collect();
        let loaded = Loaded { record, log, missing, deleted: Vec::new() };
        let new = Pg::restore(self.me, loaded, self.mapping.clone(), self.rules);
        Pg { info_dirty: true, ..new }
    }

    /// All records of a new copy but its info: a copy is there when that is there.
    pub fn records(&self) -> Vec<MetaOp> {
        let (sums, last_user_version) = (self.info.sums, self.info.last_user_version);
        let record = |entry: &LogEntry| LogRecord { entry: entry.clone(), sums, last_user_version };
        let put = |e: &LogEntry| MetaOp::Put(log_key(e.version), denc::encode(&record(e)));
        let log = self.log.entries().map(put);
        let dups = self.log.dups().map(put_dup);
        let missing = self.missing.iter().map(|(object, item)| put_missing(object, item));
        [put_tail(self.log.tail())].into_iter().chain(log).chain(dups).chain(missing).collect()
    }

    /// The sums are counted anew.
    pub fn set_sums(&mut self, sums: ObjectSums, fx: &mut Fx) {
        self.info.sums = sums;
        self.info_dirty = true;
        self.flush_info(fx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::History;
    use crate::intervals::{Mapping, PastIntervals, PoolRules};
    use crate::merge::{LogSegment, merge_log, peer_missing};
    use crate::missing::MissingItem;
    use crate::persist::{Loaded, load};
    use bytes::Bytes;
    use std::collections::BTreeMap;
    use types::{Eversion, OsdId, PoolId, ReqId};

    const POOL: PoolId = PoolId(1);

    fn entry(epoch: u32, n: u64) -> LogEntry {
        // Hashes of all four PGs, in no order.
        let hash = (n as u32).wrapping_mul(0x9E37_79B9) >> 7;
        let object = HObject { pool: POOL, hash, name: format!("o{n}").into(), ..HObject::min() };
        let reqid = ReqId { tid: n, inc: 1, ..ReqId::default() };
        LogEntry { reqid, ..LogEntry::of(object, Eversion::new(Epoch(epoch), n)) }
    }

    /// A copy with these writes, of which the first ten are trimmed.
    fn copy(versions: impl Iterator<Item = (u32, u64)>) -> Pg {
        let rules = PoolRules { size: 3, min_size: 2, pg_num: 1, pg_num_pending: 1 };
        let (history, past) = (History::created(Epoch(1)), PastIntervals::default());
        let pgid = PgId::new(POOL, 0);
        let mut pg = Pg::create(OsdId(0), pgid, history, past, Epoch(7), Mapping::default(), rules);
        for (epoch, n) in versions {
            pg.log.append(entry(epoch, n));
        }
        pg.log.trim(Eversion::new(Epoch(3), 10));
        (pg.info.last_update, pg.info.log_tail) = (pg.log.head(), pg.log.tail());
        pg.info.last_user_version = 99;
        pg.info.sums.objects = 80;
        pg
    }

    fn home(hash: u32) -> PgId {
        PgId::new(POOL, hash % 4)
    }

    fn children() -> Vec<PgId> {
        (1..4).map(|seed| PgId::new(POOL, seed)).collect()
    }

    fn split(pg: &mut Pg) -> Vec<Pg> {
        pg.split_off(&children(), Epoch(8), home).0
    }

    /// As it is loaded after a restart, from the records of before and those the split changed.
    fn stored(rows: &BTreeMap<Bytes, Bytes>, pg: &Pg) -> Loaded {
        let mut rows = rows.clone();
        pg.records().into_iter().chain([pg.info_record()]).for_each(|op| match op {
            MetaOp::Put(k, v) => drop(rows.insert(k, v)),
            other => panic!("{other:?}"),
        });
        let belongs = |pgid: PgId, pg_num, hash: u32| hash % pg_num == pgid.seed;
        load(&rows.into_iter().collect::<Vec<_>>(), &belongs).expect("it is whole")
    }

    #[test]
    fn every_part_has_its_objects_and_the_bounds_of_the_whole() {
        let mut pg = copy((1..=60).map(|n| (3, n)));
        let whole = pg.log.clone();
        let item = MissingItem::new(pg.log.head(), Eversion::ZERO);
        for e in whole.entries().take(20) {
            pg.missing.set(e.object.clone(), item.need, item.have);
        }
        let mut rows = BTreeMap::new();
        for op in pg.records() {
            if let MetaOp::Put(k, v) = op {
                rows.insert(k, v);
            }
        }
        let mut parts = split(&mut pg);
        parts.push(pg);
        let (mut entries, mut missing, mut dups) = (0, 0, 0);
        for part in &mut parts {
            let pgid = part.pgid();
            part.rules.pg_num = 4;
            assert!(part.log.entries().all(|e| home(e.object.hash) == pgid));
            assert!(part.missing.iter().all(|(o, _)| home(o.hash) == pgid));
            assert_eq!((part.log.tail(), part.log.head()), (whole.tail(), whole.head()));
            assert_eq!(part.info.last_update, whole.head());
            assert!(part.info.sums.approximate && part.info.sums.objects == 20);
            entries += part.log.len();
            missing += part.missing.len();
            dups += part.log.dup_count();
            for n in 1..=60 {
                let known = part.log.find_request(&entry(3, n).reqid).is_some();
                assert_eq!(known, home(entry(3, n).object.hash) == pgid, "request {n} of {pgid}");
            }
            // The parent keeps the rows that it had; a child begins with none.
            let before = if pgid.seed == 0 { rows.clone() } else { BTreeMap::new() };
            let loaded = stored(&before, part);
            assert!(loaded.log.entries().eq(part.log.entries()));
            assert_eq!((loaded.log.tail(), loaded.log.head()), (whole.tail(), whole.head()));
            assert_eq!(loaded.missing, part.missing);
            assert_eq!(loaded.record.info, part.info);
        }
        assert_eq!((entries, missing, dups), (50, 20, 10));
    }

    #[test]
    fn copies_that_differ_find_to_each_other_as_the_whole_would_have() {
        // The authority went on in epoch 6 after (3, 40); the other has (4, 41..=45) beyond that.
        let ours = || copy((1..=40).map(|n| (3, n)).chain((41..=43).map(|n| (6, n))));
        let theirs = || copy((1..=40).map(|n| (3, n)).chain((41..=45).map(|n| (4, n))));
        let (mut auth, mut other) = (ours(), theirs());
        (auth.info.last_epoch_started, other.info.last_epoch_started) = (Epoch(6), Epoch(4));
        let mut auths = split(&mut auth);
        auths.push(auth);
        let mut others = split(&mut other);
        others.push(other);
        let (mut divergent, mut added) = (0, 0);
        for (auth, other) in auths.iter().zip(&mut others) {
            let since = Eversion::new(Epoch(3), 25);
            // The authority learns what the other lacks.
            let mut info = other.info.clone();
            let seg = LogSegment::after(&other.log, since);
            assert!(seg.is_well_formed());
            let lacks = peer_missing(&auth.log, &mut info, &seg, Missing::default()).unwrap();
            // And the other takes over the log.
            let seg = LogSegment::after(&auth.log, info.last_update);
            let (log, info, missing) = (&mut other.log, &mut other.info, &mut other.missing);
            let merged = merge_log(log, info, missing, &auth.info, &seg).unwrap();
            assert!(other.log.entries().eq(auth.log.entries()));
            assert_eq!(
                (other.log.head(), other.info.last_update),
                (auth.log.head(), auth.log.head())
            );
            assert_eq!(other.missing, lacks);
            assert_eq!(other.info.last_epoch_started, Epoch(6), "it counts as much from now on");
            divergent += merged.divergent.len();
            added += merged.added.iter().filter(|v| v.epoch == Epoch(6)).count();
        }
        assert_eq!((divergent, added), (5, 3));
    }

    #[test]
    fn a_copy_that_was_being_filled_is_filled_anew() {
        let mut pg = copy((1..=60).map(|n| (3, n)));
        pg.info.last_backfill = entry(3, 30).object;
        pg.missing.set(entry(3, 50).object, pg.log.head(), Eversion::ZERO);
        let (born, meta) = pg.split_off(&children(), Epoch(8), home);
        assert_eq!(meta, [remove_all_missing()]);
        for part in born.iter().chain([&pg]) {
            assert!(part.info.last_backfill.is_min() && part.missing.is_empty());
        }
    }
}

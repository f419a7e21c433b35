//! Counting the objects of a PG that was split: until then its sums are a guess.
//!
//! The primary goes through its objects in order, some at a time, when it misses none. Writes go on
//! meanwhile: of an object that is counted already the difference is added. The exact sums reach the
//! other copies with the next write; a new primary that has not heard of them counts again.

use crate::daemon::{Daemon, Waiter};
use crate::host::PgHost;
use crate::object::{ObjectMeta, SNAPSET_ATTR, SnapSet, key_range};
use io::Effects;
use pg::ObjectSums;
use store::{Miss, ObjectStat, ReadSet, Store, StoreError};
use types::testing::{Probe, hit};
use types::{HObject, ObjectKey, PgId};

/// Batches (of `osd_backfill_scan_max` objects) in one turn.
const BATCHES_PER_TURN: usize = 2;

/// How far counting has come.
#[derive(Debug)]
pub struct Recount {
    /// Objects before this one are counted.
    cursor: ObjectKey,
    sums: ObjectSums,
    /// Something must be fetched first.
    waiting: bool,
}

impl Recount {
    /// Counts up to `at_once` stored objects. Whether there are more.
    ///
    /// # Errors
    /// What must be fetched first. What is counted by then stays counted: the next page may take the place of
    /// the one before.
    fn go_on(&mut self, store: &Store, end: &ObjectKey, at_once: usize) -> Result<bool, Miss> {
        let at_once = at_once.max(1);
        let mut listed = store.list(&self.cursor, end, at_once + 1)?;
        let next = (listed.len() > at_once).then(|| listed.pop()).flatten();
        for (key, stat) in listed {
            self.cursor = key;
            self.sums.add(&count_object(store, &self.cursor, &stat)?);
        }
        let more = next.is_some();
        self.cursor = next.map_or_else(|| end.clone(), |(key, _)| key);
        Ok(more)
    }
}

impl PgHost {
    /// A write changes an object.
    pub fn note_counted(&mut self, object: &HObject, delta: &ObjectSums) {
        if let Some(count) = self.recount.as_mut().filter(|c| object.to_key() < c.cursor) {
            count.sums.add(delta);
        }
    }

    fn can_be_counted(&self) -> bool {
        let ready = self.pg.accepts_io() && self.pg.missing().is_empty() && self.is_settled();
        ready && self.recount.as_ref().is_none_or(|c| !c.waiting)
    }
}

impl Daemon {
    /// A PG we lead went active.
    pub(crate) fn note_recount(&mut self, pgid: PgId) {
        if self.pgs.get(&pgid).is_some_and(|h| h.pg.info().sums.approximate) {
            self.recounting.insert(pgid);
        }
    }

    /// Goes on with counting.
    pub(crate) fn recount(&mut self, fx: &mut Effects) {
        let mut left = BATCHES_PER_TURN;
        for pgid in self.recounting.iter().copied().collect::<Vec<_>>() {
            while left > 0 && self.recount_some(pgid, fx) {
                left -= 1;
            }
        }
        self.goes_on |= left == 0;
    }

    /// Counts some objects of a PG. Whether there is more to do at once.
    fn recount_some(&mut self, pgid: PgId, fx: &mut Effects) -> bool {
        let at_once = self.limits.scan_objects;
        let wanted = |h: &&mut PgHost| h.pg.is_primary() && h.pg.info().sums.approximate;
        let Some(host) = self.pgs.get_mut(&pgid).filter(wanted) else {
            self.recounting.remove(&pgid);
            return false;
        };
        if !host.can_be_counted() {
            return false;
        }
        let (first, end) = key_range(pgid, host.pg.rules().pg_num.max(1));
        let new = || Recount { cursor: first, sums: ObjectSums::default(), waiting: false };
        let count = host.recount.get_or_insert_with(new);
        match count.go_on(&self.store, &end, at_once) {
            Ok(true) => true,
            Ok(false) => {
                let sums = count.sums;
                host.recount = None;
                self.recounting.remove(&pgid);
                self.run_pg(pgid, fx, |pg, _, out| pg.set_sums(sums, out));
                false
            }
            Err(miss) => {
                count.waiting = true;
                self.fetch(miss, Waiter::Recount(pgid), fx);
                false
            }
        }
    }

    pub(crate) fn recount_fetched(&mut self, pgid: PgId, result: Result<ReadSet, StoreError>) {
        if let Err(why) = result {
            // The sums stay a guess until the PG goes active again.
            tracing::error!("osd.{}: pg {pgid} cannot be counted: {why}", self.cfg.id);
            self.perf.read_errors += 1;
            self.recounting.remove(&pgid);
        }
        if let Some(count) = self.pgs.get_mut(&pgid).and_then(|h| h.recount.as_mut()) {
            count.waiting = false;
        }
    }
}

/// A head and its clones, which stand in its record. What is damaged counts as nothing.
fn count_object(store: &Store, key: &ObjectKey, stat: &ObjectStat) -> Result<ObjectSums, Miss> {
    hit(Probe::ObjectCounted);
    let mut sums = ObjectSums::default();
    let is_head = key.decode().is_ok_and(|object| object.is_head());
    let Some(meta) = ObjectMeta::decode(&stat.meta).ok().filter(|_| is_head) else {
        return Ok(sums);
    };
    if meta.whiteout {
        sums.whiteouts += 1;
    } else {
        sums.objects += 1;
        sums.bytes += stat.size as i64;
    }
    if !meta.has_clones {
        return Ok(sums);
    }
    let stored = store.attr(key, SNAPSET_ATTR)?;
    let set: SnapSet = stored.and_then(|b| denc::decode(&b).ok()).unwrap_or_default();
    for clone in set.clones.values() {
        sums.objects += 1;
        sums.clones += 1;
        sums.bytes += clone.size.saturating_sub(clone.overlap.bytes()) as i64;
    }
    Ok(sums)
}

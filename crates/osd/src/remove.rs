//! Removing a PG: its pool is gone, or its copy here is not needed any more. In the background, a
//! few objects at a time.

use crate::daemon::{Daemon, Waiter};
use crate::host::{PgHost, Then, account, meta_object, put_meta, sequencer};
use crate::object::{ObjectMeta, key_range};
use crate::trim::{own_indexes, remove_rows_of};
use io::Effects;
use pg::{MetaOp, PgMsg};
use store::{ObjectStat, ReadSet, StoreError, SubmitError, Transaction};
use types::{ObjectKey, OsdId, PgId};

/// Messages held for a PG that comes back while its old copy is being removed.
const HELD_MESSAGES: usize = 256;

/// A PG on its way out.
#[derive(Debug)]
pub struct Removal {
    first: ObjectKey,
    end: ObjectKey,
    reads: ReadSet,
    /// First of all the records say that this copy is worth nothing: what is half removed must never
    /// be taken for a whole copy after a crash.
    mark: Option<MetaOp>,
    /// Objects are gone; only the records are left.
    records_left: bool,
    held: Vec<(OsdId, PgMsg)>,
    /// Snapshot indexes that go with it.
    indexes: Vec<ObjectKey>,
}

impl Removal {
    /// Keeps a message until the old copy is gone.
    pub fn hold(&mut self, from: OsdId, msg: PgMsg) {
        if self.held.len() < HELD_MESSAGES {
            self.held.push((from, msg));
        }
    }
}

impl Daemon {
    /// Takes a PG, and its requests, out of everything that the OSD has under way: it is removed, or goes
    /// into another one.
    pub(crate) fn forget_pg(&mut self, pgid: PgId, fx: &mut Effects) -> Option<PgHost> {
        self.drop_ops(pgid);
        let host = self.pgs.remove(&pgid);
        self.forget_places(pgid, fx);
        for pgs in [
            &mut self.recovering,
            &mut self.recovered,
            &mut self.urgent,
            &mut self.giving_up,
            &mut self.trimming,
            &mut self.recounting,
        ] {
            pgs.remove(&pgid);
        }
        self.scrubs.forget(pgid);
        self.leases.forget(pgid);
        host
    }

    pub(crate) fn begin_removal(&mut self, pgid: PgId, fx: &mut Effects) {
        if let Some(host) = self.pgs.get_mut(&pgid).filter(|h| h.is_splitting()) {
            host.doomed = true;
            self.drop_ops(pgid);
            return;
        }
        let Some(mut host) = self.forget_pg(pgid, fx) else { return };
        // Nobody waits any more for what still had to be written.
        let unwritten = host.queue.iter().flat_map(|queued| &queued.then);
        self.in_hand.replica -= unwritten.map(Then::replica_bytes).sum::<usize>();
        let pg_num = host.pg.rules().pg_num.max(1);
        let (first, end) = key_range(pgid, pg_num);
        host.pg.mark_unfilled();
        let removal = Removal {
            first,
            end,
            reads: ReadSet::new(),
            mark: Some(host.pg.info_record()),
            records_left: false,
            held: Vec::new(),
            indexes: own_indexes(pgid, pg_num),
        };
        self.removals.insert(pgid, removal);
        self.go_on_removing(pgid, fx);
    }

    /// The next step of a removal.
    pub(crate) fn go_on_removing(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(removal) = self.removals.get_mut(&pgid) else { return };
        if removal.records_left {
            self.end_removal(pgid, fx);
            return;
        }
        let mut txn = Transaction::new(sequencer(pgid));
        txn.account = account(pgid);
        txn.may_use_reserve = true;
        if let Some(mark) = &removal.mark {
            put_meta(&mut txn, &meta_object(pgid).to_key(), [mark.clone()]);
            self.submit_removal(pgid, txn, false, fx);
            return;
        }
        let at_once = self.limits.remove_objects;
        let listed = match self.store.list(&removal.first, &removal.end, at_once) {
            Ok(listed) => listed,
            Err(miss) => {
                self.fetch(miss, Waiter::Removal(pgid), fx);
                return;
            }
        };
        for (key, stat) in &listed {
            txn.remove(key);
            remove_rows(&mut txn, key, stat);
        }
        let last = listed.len() < at_once;
        if last {
            // The records go with the last objects, so that an unfinished removal is found again.
            for index in &removal.indexes {
                txn.remove(index);
            }
            txn.remove(&meta_object(pgid).to_key());
        }
        self.submit_removal(pgid, txn, last, fx);
    }

    /// The removal that deletes objects of a PG: of the PG itself, or of one it was split from.
    pub(crate) fn removal_of(&mut self, pgid: PgId) -> Option<&mut Removal> {
        if self.removals.is_empty() {
            return None;
        }
        let pg_num = self.maps.current().pool(pgid.pool).map_or(1, |p| p.pg_num.max(1));
        let (first, end) = key_range(pgid, pg_num);
        let same = |p: &PgId, r: &Removal| {
            *p == pgid || (p.pool == pgid.pool && r.first < end && first < r.end)
        };
        self.removals.iter_mut().find(|(p, r)| same(p, r)).map(|(_, r)| r)
    }

    fn submit_removal(&mut self, pgid: PgId, txn: Transaction, last: bool, fx: &mut Effects) {
        let Some(removal) = self.removals.get_mut(&pgid) else { return };
        match self.store.submit(self.now, &txn, &removal.reads) {
            Ok(id) => {
                removal.reads = ReadSet::new();
                removal.mark = None;
                removal.records_left = last;
                self.durable.insert(id, [Then::Removed(pgid)].into());
            }
            Err(SubmitError::Miss(miss)) => self.fetch(miss, Waiter::Removal(pgid), fx),
            Err(SubmitError::Busy | SubmitError::NoSpace) => {
                self.blocked.push(Waiter::Removal(pgid));
            }
            Err(SubmitError::Invalid(why)) => {
                fx.exit(1, format!("osd.{}: pg {pgid} cannot be removed: {why}", self.cfg.id));
            }
        }
    }

    pub(crate) fn removal_fetched(
        &mut self,
        pgid: PgId,
        result: Result<ReadSet, StoreError>,
        fx: &mut Effects,
    ) {
        let Some(removal) = self.removals.get_mut(&pgid) else { return };
        match result {
            Ok(reads) => {
                removal.reads.merge(reads);
                self.go_on_removing(pgid, fx);
            }
            Err(why) => {
                // Its space stays lost until the store is made anew; nothing else depends on it.
                tracing::error!("osd.{}: pg {pgid} cannot be removed: {why}", self.cfg.id);
                self.perf.read_errors += 1;
            }
        }
    }

    fn end_removal(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(removal) = self.removals.remove(&pgid) else { return };
        for (from, msg) in removal.held {
            self.on_peering(from, msg, fx);
        }
    }
}

/// Takes a clone out of the snapshot index, which other PGs may share.
fn remove_rows(txn: &mut Transaction, key: &ObjectKey, stat: &ObjectStat) {
    if let Ok(object) = key.decode()
        && !object.is_head()
        && let Ok(meta) = ObjectMeta::decode(&stat.meta)
    {
        remove_rows_of(txn, &object, key, &meta.snaps);
    }
}

//! Removing a PG: its pool is gone, or its copy here is not needed any more. In the background, a
//! few objects at a time. To other OSDs the PG is not here from the start. When the map brings it back, the removal ends
//! with the step that is under way, and the new copy is filled upon what is left.

use crate::daemon::{Daemon, Waiter};
use crate::host::{PgHost, Then, account, meta_object, put_meta, sequencer};
use crate::object::{ObjectMeta, key_range};
use crate::trim::{own_indexes, remove_rows_of};
use io::Effects;
use pg::{MetaOp, PgMsg};
use std::collections::VecDeque;
use store::{Invalid, ObjectStat, ReadSet, StoreError, SubmitError, Transaction};
use types::testing::{Probe, hit};
use types::{ObjectKey, OsdId, PgId};

/// Messages held for a PG that comes back while its old copy is being removed.
const HELD_MESSAGES: usize = 256;

/// A PG on its way out.
#[derive(Debug)]
pub struct Removal {
    first: ObjectKey,
    end: ObjectKey,
    reads: ReadSet,
    step: Step,
    held: VecDeque<(OsdId, PgMsg)>,
    /// No step is under way, and the PG may come back.
    gives_way: bool,
    /// The copy is what is left of an import. Not all of its objects may have their rows in the snapshot indexes: those
    /// of clones that came whole are there, but older programs wrote none. So no other copy makes use of its objects.
    is_import: bool,
    /// Temporaries of objects that were on their way.
    parts: Vec<ObjectKey>,
    /// Snapshot indexes that go with it.
    indexes: Vec<ObjectKey>,
    /// Objects removed in one transaction: fewer when they have turned out to be too much for one.
    at_once: usize,
}

/// What is to be done next.
#[derive(Debug)]
enum Step {
    /// First of all the records say that this copy is worth nothing: what is half removed must never
    /// be taken for a whole copy after a crash.
    Mark(MetaOp),
    /// What came of objects on their way goes: so many of the temporaries are left.
    Parts(usize),
    /// Objects go, from this one on; with the last of them the records, so that an unfinished removal is
    /// found again. What is removed is passed over by each listing until the store's next checkpoint, so that
    /// none begins anew at the first.
    Objects(ObjectKey),
    /// Nothing: something cannot be read. It is tried again when the OSD starts, or ends when the PG comes
    /// back.
    Stuck,
    /// The records go, and the objects stay: another PG that shares them comes, as a copy that is to be filled,
    /// and finds them.
    Records,
    /// It is done.
    Over,
}

impl Removal {
    fn new(pgid: PgId, pg_num: u32, step: Step, parts: Vec<ObjectKey>, at_once: usize) -> Self {
        let (first, end) = key_range(pgid, pg_num);
        let indexes = own_indexes(pgid, pg_num);
        let (reads, held) = (ReadSet::new(), VecDeque::new());
        let (gives_way, is_import) = (false, false);
        Removal { first, end, reads, step, held, gives_way, is_import, parts, indexes, at_once }
    }

    /// Keeps a message until the removal gives way, or is over. The newest count.
    pub fn hold(&mut self, from: OsdId, msg: PgMsg) {
        if self.held.len() >= HELD_MESSAGES {
            self.held.pop_front();
        }
        self.held.push_back((from, msg));
    }

    /// Whether the PG itself comes back, for which it gives way.
    fn is_in_the_way(&self, pgid: PgId) -> bool {
        let may_give_way = match self.step {
            Step::Objects(_) => !self.is_import,
            Step::Stuck => true,
            _ => false,
        };
        may_give_way && self.held.iter().any(|(_, msg)| msg.pgid == pgid)
    }
}

impl Daemon {
    /// Takes a PG, and its requests, out of everything that the OSD has under way: it is removed, or goes
    /// into another one.
    pub(crate) fn forget_pg(&mut self, pgid: PgId, fx: &mut Effects) -> Option<PgHost> {
        self.drop_ops(pgid);
        let host = self.pgs.remove(&pgid);
        self.moving -= host.as_ref().map_or(0, |h| h.moving);
        self.forget_places(pgid, fx);
        for pgs in [
            &mut self.recovering,
            &mut self.recovered,
            &mut self.urgent,
            &mut self.giving_up,
            &mut self.recounting,
        ] {
            pgs.remove(&pgid);
        }
        self.trimming.remove(pgid);
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
        host.pg.mark_unfilled();
        let parts = host.transfers.take_gathering();
        let step = Step::Mark(host.pg.info_record());
        let pg_num = host.pg.rules().pg_num.max(1);
        let removal = Removal::new(pgid, pg_num, step, parts, self.limits.remove_objects);
        self.removals.insert(pgid, removal);
        self.go_on_removing(pgid, fx);
    }

    /// A start finds a PG whose import was broken off: objects of it may be half there. Its record says so until the
    /// last of them is gone.
    pub(crate) fn remove_broken_off(&mut self, pgid: PgId, pg_num: u32, fx: &mut Effects) {
        let id = self.cfg.id;
        tracing::warn!(
            "osd.{id}: pg {pgid}: its import was broken off; what came of it is removed"
        );
        let at_once = self.limits.remove_objects;
        let removal = Removal::new(pgid, pg_num.max(1), Step::Parts(0), Vec::new(), at_once);
        let removal = Removal { is_import: true, ..removal };
        self.removals.insert(pgid, removal);
        self.go_on_removing(pgid, fx);
    }

    /// The next step of a removal.
    pub(crate) fn go_on_removing(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(removal) = self.removals.get_mut(&pgid) else { return };
        if removal.is_in_the_way(pgid) {
            return self.give_way(pgid, fx);
        }
        let mut txn = Transaction::new(sequencer(pgid));
        txn.account = account(pgid);
        txn.may_use_reserve = true;
        let records = meta_object(pgid).to_key();
        let at_once = removal.at_once.max(1);
        let from = match &removal.step {
            Step::Objects(from) => from,
            Step::Parts(0) => &removal.first,
            Step::Mark(mark) => {
                put_meta(&mut txn, &records, [mark.clone()]);
                let parts = removal.parts.len();
                return self.submit_removal(pgid, txn, Step::Parts(parts), fx);
            }
            Step::Parts(left) => {
                let keep = left.saturating_sub(at_once);
                let some = removal.parts.iter().take(*left).skip(keep);
                some.for_each(|temporary| _ = txn.remove(temporary));
                return self.submit_removal(pgid, txn, Step::Parts(keep), fx);
            }
            Step::Records => {
                txn.remove(&records);
                return self.submit_removal(pgid, txn, Step::Over, fx);
            }
            Step::Stuck => return,
            Step::Over => return self.end_removal(pgid, fx),
        };
        let listed = match self.store.list(from, &removal.end, at_once) {
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
        let is_last = listed.len() < at_once;
        if is_last {
            for index in &removal.indexes {
                txn.remove(index);
            }
            txn.remove(&records);
        }
        let next = match listed.into_iter().next_back() {
            Some((last, _)) if !is_last => Step::Objects(last),
            _ => Step::Over,
        };
        self.submit_removal(pgid, txn, next, fx);
    }

    /// Messages are held that make a copy of the PG. If by now no newer map has taken that back, the copy finds the
    /// objects that are left, and the removal ends: it may need minutes, in which nobody could use the PG.
    fn give_way(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(removal) = self.removals.get_mut(&pgid) else { return };
        removal.gives_way = true;
        let held = std::mem::take(&mut removal.held).into_iter();
        let (own, others): (Vec<_>, Vec<_>) = held.partition(|(_, msg)| msg.pgid == pgid);
        for (from, msg) in own.into_iter().chain(others) {
            self.on_peering(from, msg, fx);
        }
        if let Some(removal) = self.removals.get_mut(&pgid) {
            removal.gives_way = false;
            self.go_on_removing(pgid, fx);
        }
    }

    /// A message makes a copy of a PG. Whether no removal of an old one is in its way any more: that gives way when
    /// the step that is under way is done, and holds the message until then.
    pub(crate) fn removal_has_given_way(
        &mut self,
        from: OsdId,
        msg: &PgMsg,
        fx: &mut Effects,
    ) -> bool {
        let pgid = msg.pgid;
        let Some(removal) = self.removals.get_mut(&pgid) else { return true };
        if removal.gives_way {
            hit(Probe::RemovalGaveWay);
            self.removals.remove(&pgid);
            // The old records go before the copy has any.
            self.leftovers.note(meta_object(pgid));
            return true;
        }
        removal.hold(from, msg.clone());
        if matches!(removal.step, Step::Stuck) {
            self.go_on_removing(pgid, fx);
        }
        false
    }

    /// The removal of another PG, which it was split from or is joined with, that deletes objects of this one.
    pub(crate) fn removal_beside(&mut self, pgid: PgId, fx: &mut Effects) -> Option<&mut Removal> {
        if self.removals.is_empty() {
            return None;
        }
        let pg_num = self.maps.current().pool(pgid.pool).map_or(1, |p| p.pg_num.max(1));
        let (first, end) = key_range(pgid, pg_num);
        let shares = |p: &PgId, r: &Removal| {
            *p != pgid && p.pool == pgid.pool && r.first < end && first < r.end
        };
        let (&of, removal) = self.removals.iter_mut().find(|(p, r)| shares(p, r))?;
        if matches!(removal.step, Step::Stuck) {
            removal.step = Step::Records;
            self.go_on_removing(of, fx);
        }
        self.removals.get_mut(&of)
    }

    fn submit_removal(&mut self, pgid: PgId, txn: Transaction, next: Step, fx: &mut Effects) {
        let Some(removal) = self.removals.get_mut(&pgid) else { return };
        match self.store.submit(self.now, &txn, &removal.reads) {
            Ok(id) => {
                removal.reads = ReadSet::new();
                removal.step = next;
                self.durable.insert(id, [Then::Removed(pgid)].into());
            }
            Err(SubmitError::Miss(miss)) => self.fetch(miss, Waiter::Removal(pgid), fx),
            Err(SubmitError::Busy | SubmitError::NoSpace) => {
                self.blocked.push(Waiter::Removal(pgid));
            }
            // What they leave to others that share their blocks is more than the log takes.
            Err(SubmitError::Invalid(Invalid::TooLarge { .. })) if removal.at_once > 1 => {
                removal.at_once /= 2;
                self.go_on_removing(pgid, fx);
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
                tracing::error!("osd.{}: pg {pgid} cannot be removed: {why}", self.cfg.id);
                self.perf.read_errors += 1;
                let tried_all = matches!(removal.step, Step::Records);
                removal.step = Step::Stuck;
                if !removal.held.is_empty() && !removal.is_in_the_way(pgid) && !tried_all {
                    removal.step = Step::Records;
                }
                removal.reads = ReadSet::new();
                self.go_on_removing(pgid, fx);
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

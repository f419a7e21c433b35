//! Removing a PG: its pool is gone, or its copy here is not needed any more. In the background, a
//! few objects at a time. To other OSDs the PG is not here from the start. When the map brings it back, the removal ends
//! with the step that is under way, and the new copy is filled upon what is left.
//!
//! When the PG was split meanwhile, and a part of it comes back, the removal becomes one of each part, of which one gives
//! way. The parts were never here, and have no records: an object of the OSD's own says of each what is still to be
//! removed ([`rest_object`]), from before the records go that said so of all.

use crate::daemon::{Daemon, Waiter};
use crate::host::{PgHost, Then, account, meta_object, put_meta, sequencer};
use crate::object::{key_range, own_object};
use crate::trim::{drop_clone_rows, own_indexes};
use io::Effects;
use maps::PgIdExt;
use pg::{Body, MetaOp, PgMsg};
use std::collections::VecDeque;
use std::mem::discriminant;
use store::{Invalid, ReadSet, StoreError, SubmitError, Transaction};
use types::testing::{Probe, hit};
use types::{HObject, ObjectKey, OsdId, PgId};

const REST_PREFIX: &str = "removal/";

/// Says that what is here of a PG, in a pool of so many, is to be removed. The PG itself is not here.
fn rest_object(pgid: PgId, pg_num: u32) -> HObject {
    own_object(format!("{REST_PREFIX}{pgid}/{pg_num}"))
}

/// What an object of the OSD's own says of that.
pub fn rest_of_object(object: &HObject) -> Option<(PgId, u32)> {
    let name = std::str::from_utf8(&object.name).ok()?;
    let (pgid, pg_num) = name.strip_prefix(REST_PREFIX)?.split_once('/')?;
    Some((pgid.parse().ok()?, pg_num.parse().ok().filter(|n| *n > 0)?))
}

/// A PG on its way out.
#[derive(Debug)]
pub struct Removal {
    first: ObjectKey,
    end: ObjectKey,
    /// PGs of its pool when it was last here.
    pg_num: u32,
    /// What says that it is to be removed. It goes with the last object.
    records: HObject,
    reads: ReadSet,
    step: Step,
    /// Messages for what comes back: the newest of each kind, PG and sender, so that nobody waits for an answer in
    /// vain.
    held: VecDeque<(OsdId, PgMsg)>,
    /// No step is under way, and the PG may come back.
    gives_way: bool,
    /// The copy is what is left of an import. Not all of its objects may have their rows in the snapshot indexes: those
    /// of clones that came whole are there, but older programs wrote none. So no other copy makes use of its objects.
    is_import: bool,
    /// What says so cannot be written.
    cannot_divide: bool,
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
    /// In its place there is one of each of these PGs, of so many in their pool: no object before this one is left.
    Divided(Vec<PgId>, u32, ObjectKey),
    /// The records go, and the objects stay: another PG that shares them comes, as a copy that is to be filled,
    /// and finds them.
    Records,
    /// It is done.
    Over,
}

/// Whether objects may be of both of these PGs, each in a pool of so many: one is a part of the other.
fn share_objects((a, of_a): (PgId, u32), (b, of_b): (PgId, u32)) -> bool {
    a.pool == b.pool && (a.contains_hash(b.seed, of_a) || b.contains_hash(a.seed, of_b))
}

impl Removal {
    fn new(pgid: PgId, pg_num: u32, step: Step, parts: Vec<ObjectKey>, at_once: usize) -> Self {
        let (first, end) = key_range(pgid, pg_num);
        let indexes = own_indexes(pgid, pg_num);
        let (reads, held) = (ReadSet::new(), VecDeque::new());
        let (gives_way, is_import, cannot_divide) = (false, false, false);
        let records = meta_object(pgid);
        Removal {
            first,
            end,
            pg_num,
            records,
            reads,
            step,
            held,
            gives_way,
            is_import,
            cannot_divide,
            parts,
            indexes,
            at_once,
        }
    }

    /// One of a PG that is not here, as [`rest_object`] says.
    fn of_rest(pgid: PgId, pg_num: u32, at_once: usize) -> Self {
        let records = rest_object(pgid, pg_num);
        Removal { records, ..Removal::new(pgid, pg_num, Step::Parts(0), Vec::new(), at_once) }
    }

    /// Keeps a message until the removal gives way, or is over.
    fn hold(&mut self, from: OsdId, msg: PgMsg) {
        let kind = |msg: &PgMsg| {
            let query = match &msg.body {
                Body::Query(query, _) => Some(discriminant(query)),
                _ => None,
            };
            (msg.pgid, discriminant(&msg.body), query)
        };
        self.held.retain(|(osd, held)| *osd != from || kind(held) != kind(&msg));
        self.held.push_back((from, msg));
    }

    fn holds_for(&self, pgid: PgId) -> bool {
        self.held.iter().any(|(_, msg)| msg.pgid == pgid)
    }

    /// Whether it may end here, with objects left.
    fn may_give_way(&self) -> bool {
        match self.step {
            Step::Objects(_) => !self.is_import,
            Step::Stuck => true,
            _ => false,
        }
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
            &mut self.unfitting,
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

    /// A start finds what is to be removed of PGs that are not here. What is here of them all the same was brought by
    /// somebody else, and stays.
    pub(crate) fn go_on_with_rests(&mut self, rests: Vec<(PgId, u32)>, fx: &mut Effects) {
        let ahead = self.ahead.values().flatten().map(|l| (l.record.info.pgid, l.record.pg_num));
        let here = self.pgs.iter().map(|(pgid, host)| (*pgid, host.pg.rules().pg_num));
        let mut here: Vec<_> = here.chain(ahead).map(|(p, n)| (p, n.max(1))).collect();
        here.extend(self.removals.iter().map(|(pgid, removal)| (*pgid, removal.pg_num)));
        for (pgid, pg_num) in rests {
            let rest = Removal::of_rest(pgid, pg_num, self.limits.remove_objects);
            if here.iter().any(|other| share_objects(*other, (pgid, pg_num))) {
                self.leftovers.note(rest.records);
                continue;
            }
            self.removals.insert(pgid, rest);
            self.go_on_removing(pgid, fx);
        }
    }

    /// The PGs that there are now in place of one that is being removed, if it was split.
    fn parts_of_removed(&self, pgid: PgId) -> Vec<PgId> {
        let now = self.maps.current().pool(pgid.pool).map_or(0, |pool| pool.pg_num);
        let before = self.removals.get(&pgid).map_or(now, |removal| removal.pg_num);
        let children = pgid.split_children(before, now);
        if children.is_empty() { children } else { [pgid].into_iter().chain(children).collect() }
    }

    /// Who waits for objects of a PG that is being removed has them, if that may end here. Whether this is the next
    /// step.
    fn makes_way(&mut self, pgid: PgId, fx: &mut Effects) -> bool {
        let waited_for = |r: &&Removal| r.may_give_way() && !r.held.is_empty();
        let Some(removal) = self.removals.get(&pgid).filter(waited_for) else { return false };
        let parts = self.parts_of_removed(pgid);
        match parts.iter().any(|part| removal.holds_for(*part)) {
            true if removal.cannot_divide => false,
            true => {
                self.divide_removal(pgid, parts, fx);
                true
            }
            false if removal.holds_for(pgid) => {
                self.give_way(pgid, fx);
                true
            }
            false => false,
        }
    }

    /// A part comes back of a PG that is being removed: of the others the objects are to go all the same.
    fn divide_removal(&mut self, pgid: PgId, parts: Vec<PgId>, fx: &mut Effects) {
        let Some(pool) = self.maps.current().pool(pgid.pool) else { return };
        let pg_num = pool.pg_num;
        let Some(removal) = self.removals.get(&pgid) else { return };
        let from = match &removal.step {
            Step::Objects(from) => from.clone(),
            _ => removal.first.clone(),
        };
        let mut txn = removal_transaction(pgid);
        txn.remove(&removal.records.to_key());
        for part in &parts {
            txn.touch(&rest_object(*part, pg_num).to_key());
        }
        self.submit_removal(pgid, txn, Step::Divided(parts, pg_num, from), fx);
    }

    /// It is written down what is to be removed of the parts.
    fn removal_is_divided(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(removal) = self.removals.remove(&pgid) else { return };
        let Step::Divided(parts, pg_num, from) = removal.step else { return };
        hit(Probe::RemovalSplit);
        for part in &parts {
            let mut rest = Removal::of_rest(*part, pg_num, removal.at_once);
            rest.step = Step::Objects(from.clone().clamp(rest.first.clone(), rest.end.clone()));
            self.removals.insert(*part, rest);
        }
        for (from, msg) in removal.held {
            self.on_peering(from, msg, fx);
        }
        for part in parts {
            self.go_on_removing(part, fx);
        }
    }

    /// The next step of a removal.
    pub(crate) fn go_on_removing(&mut self, pgid: PgId, fx: &mut Effects) {
        if self.makes_way(pgid, fx) {
            return;
        }
        let Some(removal) = self.removals.get_mut(&pgid) else { return };
        let mut txn = removal_transaction(pgid);
        let records = removal.records.to_key();
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
            Step::Stuck | Step::Divided(..) => return,
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
            drop_clone_rows(&mut txn, key, &stat.meta);
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
            let records = removal.records.clone();
            self.removals.remove(&pgid);
            // The old records go before the copy has any.
            self.leftovers.note(records);
            return true;
        }
        removal.hold(from, msg.clone());
        if matches!(removal.step, Step::Stuck) {
            self.go_on_removing(pgid, fx);
        }
        false
    }

    /// The removal of another PG, which it was split from or is joined with, that deletes objects of this one.
    fn removal_beside(&self, pgid: PgId) -> Option<PgId> {
        if self.removals.is_empty() {
            return None;
        }
        let pg_num = self.maps.current().pool(pgid.pool).map_or(1, |p| p.pg_num.max(1));
        let shares =
            |p: PgId, r: &Removal| p != pgid && share_objects((p, r.pg_num), (pgid, pg_num));
        self.removals.iter().find(|(p, r)| shares(**p, r)).map(|(p, _)| *p)
    }

    /// Whether such a removal keeps a PG from being made.
    pub(crate) fn is_removed_beside(&mut self, pgid: PgId, fx: &mut Effects) -> bool {
        let Some(of) = self.removal_beside(pgid) else { return false };
        self.leave_what_is_stuck(of, fx);
        self.removal_beside(pgid).is_some()
    }

    /// Holds a message of a PG while such a removal is under way, which makes way for it if it can. Whether it does.
    pub(crate) fn hold_for_removal_beside(
        &mut self,
        from: OsdId,
        msg: &PgMsg,
        fx: &mut Effects,
    ) -> bool {
        let Some(of) = self.removal_beside(msg.pgid) else { return false };
        let Some(removal) = self.removals.get_mut(&of) else { return false };
        removal.hold(from, msg.clone());
        self.leave_what_is_stuck(of, fx);
        true
    }

    /// Somebody waits for a removal, which cannot go on: it ends here.
    fn leave_what_is_stuck(&mut self, pgid: PgId, fx: &mut Effects) {
        let is_joined = self.parts_of_removed(pgid).is_empty();
        let Some(removal) = self.removals.get_mut(&pgid) else { return };
        if matches!(removal.step, Step::Stuck) {
            if is_joined && !removal.holds_for(pgid) {
                removal.step = Step::Records;
            }
            self.go_on_removing(pgid, fx);
        }
    }

    fn submit_removal(&mut self, pgid: PgId, txn: Transaction, next: Step, fx: &mut Effects) {
        let Some(removal) = self.removals.get_mut(&pgid) else { return };
        match self.store.submit(self.now, &txn, &removal.reads) {
            Ok(id) => {
                removal.reads = ReadSet::new();
                removal.step = next;
                match removal.step {
                    // It has no data, and what is before it is durable, so that nothing behind it can be without it.
                    Step::Divided(..) => self.removal_is_divided(pgid, fx),
                    _ => drop(self.durable.insert(id, [Then::Removed(pgid)].into())),
                }
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
                // Nothing is left but to divide it, which was tried.
                removal.cannot_divide |= matches!(removal.step, Step::Stuck);
                removal.step = Step::Stuck;
                removal.reads = ReadSet::new();
                match removal.held.is_empty() || tried_all {
                    true => self.go_on_removing(pgid, fx),
                    false => self.leave_what_is_stuck(pgid, fx),
                }
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

fn removal_transaction(pgid: PgId) -> Transaction {
    let mut txn = Transaction::new(sequencer(pgid));
    txn.account = account(pgid);
    txn.may_use_reserve = true;
    txn
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PoolId;

    /// Its neighbours in the order of objects would wait for a removal, too.
    #[test]
    fn only_a_pg_and_its_parts_share_objects() {
        let pg = |seed| PgId::new(PoolId(1), seed);
        for seed in 0..12 {
            let with: Vec<_> =
                (0..4).filter(|p| share_objects((pg(*p), 4), (pg(seed), 12))).collect();
            assert_eq!(with, [seed % 4]);
            let with: Vec<_> =
                (0..12).filter(|p| share_objects((pg(seed), 12), (pg(*p), 12))).collect();
            assert_eq!(with, [seed]);
        }
        assert!(!share_objects((PgId::new(PoolId(2), 0), 1), (pg(0), 1)));
    }

    #[test]
    fn what_is_left_of_a_removal_is_told_by_a_name() {
        let rest = (PgId::new(PoolId(7), 0x2a), 64);
        assert_eq!(rest_of_object(&rest_object(rest.0, rest.1)), Some(rest));
        for name in ["removal/7.2a", "removal/7.2a/0", "removal/7.2a/x", "pg/7.2a"] {
            assert_eq!(rest_of_object(&own_object(name)), None, "{name}");
        }
    }
}

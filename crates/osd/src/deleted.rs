//! Objects that a PG's log has deleted while this copy was away, and that are still in the store: thousands of them,
//! perhaps, and each has to be looked up first.
//!
//! They are noted on the disk with the log ([`pg::put_deleted`]), and go a few at a time whenever nothing else of
//! the PG waits for the store. Peering, writes and what recovery brings go first; nobody waits for all of them but who
//! looks at all objects (listings, scrubs, trimming: [`PgHost::is_settled`]). When the PG is divided, each part has its
//! own; when it goes into another one, that has them from then on. Before anything is done to one of
//! these objects, or looked at of it, it goes ([`Daemon::remove_first`], and [`Daemon::enqueue`] of all that a
//! transaction changes): else what is gone would be found, or what is new be removed.

use crate::daemon::Daemon;
use crate::host::{PgHost, Queued, put_meta};
use io::Effects;
use pg::forget_deleted;
use std::collections::{BTreeMap, BTreeSet};
use store::Transaction;
use types::testing::{Probe, hit};
use types::{HObject, ObjectKey, PgId};

/// Objects that the log has deleted, in one transaction: of large ones that share blocks with clones each may
/// leave a MiB of rows.
const DELETES_AT_ONCE: usize = 8;

impl PgHost {
    /// Whether the store has what the log says of an object and its clones. What is to be removed of them is not there
    /// any more when this is so after [`Daemon::remove_first`].
    #[inline]
    pub fn is_settled_for(&self, head: &HObject) -> bool {
        self.queue.is_empty() || self.removes_only_others_than(head)
    }

    fn removes_only_others_than(&self, head: &HObject) -> bool {
        let is_other = |key: &ObjectKey| key.decode().is_ok_and(|o| o.head() != *head);
        let apart = |txn: &Transaction| txn.objects().iter().all(|k| *k == self.key || is_other(k));
        self.queue.iter().rev().all(|queued| queued.removes && apart(&queued.txn))
    }

    /// Whether nothing but removals waits.
    pub fn only_removes(&self) -> bool {
        self.queue.iter().rev().all(|queued| queued.removes)
    }

    /// Whether an object, or a clone of it, is one of those that are still to be removed.
    #[inline]
    pub fn has_deleted_of(&self, head: &HObject) -> bool {
        !self.deleted.is_empty() && self.deleted.range(head.versions()).next().is_some()
    }

    /// Whether the store has what the log says, and nothing else.
    pub fn is_settled(&self) -> bool {
        self.queue.is_empty() && self.deleted.is_empty()
    }

    /// Puts some of what is still to be removed into the queue.
    fn queue_removals(&mut self, objects: &[HObject]) {
        let remove = |some: &[HObject]| {
            let mut txn = self.transaction();
            some.iter().for_each(|object| _ = txn.remove(&object.to_key()));
            put_meta(&mut txn, &self.key, some.iter().map(forget_deleted));
            txn
        };
        let mut queued = Queued { removes: true, ..Queued::divisible(objects, remove) };
        queued.txn.account = crate::host::account(self.pg.pgid());
        self.queue.push_back(queued);
    }

    /// The next of them go, if nothing else waits. Whether there are any.
    pub fn queue_next_removals(&mut self, at_once: usize) -> bool {
        if !self.queue.is_empty() || self.deleted.is_empty() {
            return false;
        }
        let mut some = Vec::new();
        while some.len() < at_once
            && let Some(object) = self.deleted.pop_first()
        {
            some.push(object);
        }
        self.queue_removals(&some);
        true
    }

    /// The PG is divided: takes out those that go to another one from now on.
    pub fn divide_deleted(
        &mut self,
        home: impl Fn(u32) -> PgId,
    ) -> BTreeMap<PgId, BTreeSet<HObject>> {
        let ours = self.pg.pgid();
        let mut all: BTreeMap<PgId, BTreeSet<HObject>> = BTreeMap::new();
        for object in std::mem::take(&mut self.deleted) {
            all.entry(home(object.hash)).or_default().insert(object);
        }
        self.deleted = all.remove(&ours).unwrap_or_default();
        all
    }

    /// Whether a transaction changes one of them.
    #[inline]
    pub fn has_deleted(&self, txn: &Transaction) -> bool {
        let is_one = |object| self.deleted.contains(&object);
        !self.deleted.is_empty() && txn.objects().iter().any(|k| k.decode().is_ok_and(is_one))
    }

    /// What this transaction changes goes before it.
    pub fn queue_removals_for(&mut self, txn: &Transaction) {
        if self.deleted.is_empty() {
            return;
        }
        let touched = txn.objects().iter().filter_map(|key| key.decode().ok());
        let touched: Vec<_> = touched.filter_map(|object| self.deleted.take(&object)).collect();
        if !touched.is_empty() {
            hit(Probe::DeletedMadeAnew);
            self.queue_removals(&touched);
        }
    }
}

impl Daemon {
    /// How many objects are removed in one transaction.
    pub(crate) fn deletes_at_once(&self) -> usize {
        self.limits.remove_objects.clamp(1, DELETES_AT_ONCE)
    }

    /// Removes objects that the PG's log has deleted, and that are noted.
    pub(crate) fn remove_deleted(&mut self, pgid: PgId, deleted: Vec<HObject>, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.deleted.extend(deleted);
        if !host.deleted.is_empty() && !host.queue_stalled {
            self.pump_queue(pgid, fx);
        }
    }

    /// Somebody is about to look at an object: it and its clones stand first among what is to be removed. Whoever looks
    /// waits for the PG's queue.
    pub(crate) fn remove_first(&mut self, pgid: PgId, head: &HObject, fx: &mut Effects) {
        let at_once = self.deletes_at_once();
        let Some(host) = self.pgs.get_mut(&pgid).filter(|h| h.has_deleted_of(head)) else { return };
        let its: Vec<_> = host.deleted.range(head.versions()).cloned().collect();
        hit(Probe::DeletedLookedAt);
        its.iter().for_each(|object| _ = host.deleted.remove(object));
        its.chunks(at_once).for_each(|some| host.queue_removals(some));
        if !host.queue_stalled {
            self.pump_queue(pgid, fx);
        }
    }
}

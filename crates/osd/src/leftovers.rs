//! What a start finds that was broken off: temporaries of objects that were on their way (`arriving`), records of a
//! split that was not done, what a benchmark wrote. It is removed a few objects at a time, while everything else goes on.
//! Nobody waits for that, and what cannot be removed stays until the next start: nobody reads it.
//!
//! No PG's records are removed while it is there. A split that is done at last removes itself what it finds of the one
//! before, and so does a PG that is made anew.

use crate::daemon::{Daemon, Waiter};
use crate::host::{OWN_ACCOUNT, Thens, account_of, pg_of_meta_object};
use crate::mapstate::map_transaction;
use crate::remove::rest_of_object;
use io::Effects;
use std::fmt::Display;
use store::{Invalid, ReadSet, StoreError, SubmitError};
use types::{HObject, PgId};

/// Objects that are still to be removed.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    objects: Vec<HObject>,
    /// In one transaction: fewer when something is wrong with one of them, or they have turned out to be too much.
    at_once: usize,
    reads: ReadSet,
}

impl Leftovers {
    /// One more that nobody needs.
    pub fn note(&mut self, object: HObject) {
        self.objects.push(object);
    }

    /// The last ones, as many as go in one transaction: of one account, and which that is.
    fn next(&self) -> (&[HObject], u64) {
        let account = self.objects.last().map_or(OWN_ACCOUNT, account_of);
        let some = self.objects.iter().rev().take(self.at_once);
        let count = some.take_while(|object| account_of(object) == account).count();
        let from = self.objects.len().saturating_sub(count);
        (self.objects.get(from..).unwrap_or_default(), account)
    }
}

impl Daemon {
    /// Begins to remove what was found.
    pub(crate) fn begin_with_leftovers(&mut self, mut objects: Vec<HObject>, fx: &mut Effects) {
        let at_once = self.deletes_at_once();
        objects.sort_by_key(account_of);
        self.leftovers = Leftovers { objects, at_once, reads: ReadSet::new() };
        self.remove_leftovers(fx);
    }

    fn remove_leftovers(&mut self, fx: &mut Effects) {
        loop {
            let (some, account) = self.leftovers.next();
            if some.is_empty() {
                return;
            }
            let count = some.len();
            let is_used = |o: &&HObject| {
                pg_of_meta_object(o).is_some_and(|pgid| self.pgs.contains_key(&pgid))
            };
            let mut txn = map_transaction();
            txn.account = account;
            some.iter().filter(|o| !is_used(o)).for_each(|o| _ = txn.remove(&o.to_key()));
            let Leftovers { objects, at_once, reads } = &mut self.leftovers;
            match self.store.submit(self.now, &txn, reads) {
                Ok(_) => {
                    objects.truncate(objects.len() - count);
                    *reads = ReadSet::new();
                }
                Err(SubmitError::Miss(miss)) => return self.fetch(miss, Waiter::Leftovers, fx),
                Err(SubmitError::Busy | SubmitError::NoSpace) => {
                    self.blocked.push(Waiter::Leftovers);
                    return;
                }
                Err(SubmitError::Invalid(Invalid::TooLarge { .. })) if count > 1 => {
                    *at_once = count / 2;
                }
                Err(SubmitError::Invalid(why)) => self.leave_leftover(&why),
            }
        }
    }

    pub(crate) fn leftovers_fetched(
        &mut self,
        result: Result<ReadSet, StoreError>,
        fx: &mut Effects,
    ) {
        match result {
            Ok(reads) => self.leftovers.reads.merge(reads),
            // One of several.
            Err(_) if self.leftovers.at_once > 1 => self.leftovers.at_once = 1,
            Err(why) => {
                self.perf.read_errors += 1;
                self.leave_leftover(&why);
            }
        }
        self.remove_leftovers(fx);
    }

    /// The last one cannot be removed.
    fn leave_leftover(&mut self, why: &dyn Display) {
        let at_once = self.deletes_at_once();
        let Leftovers { objects, .. } = &mut self.leftovers;
        if let Some(object) = objects.pop() {
            let id = self.cfg.id;
            tracing::error!(
                "osd.{id}: {object}, which was left when it ended last, cannot be removed, and takes space: {why}"
            );
        }
        (self.leftovers.at_once, self.leftovers.reads) = (at_once, ReadSet::new());
    }

    /// A PG is made anew: what is left of records of one with its name goes first.
    pub(crate) fn remove_left_records(&mut self, pgid: PgId, fx: &mut Effects) {
        let leftovers = &mut self.leftovers.objects;
        let is_its = |o: &HObject| {
            pg_of_meta_object(o) == Some(pgid) || rest_of_object(o).is_some_and(|r| r.0 == pgid)
        };
        let its: Vec<_> = leftovers.extract_if(.., |o| is_its(o)).collect();
        if its.is_empty() {
            return;
        }
        let Some(host) = self.pgs.get(&pgid) else { return };
        let mut txn = host.transaction();
        its.iter().for_each(|object| _ = txn.remove(&object.to_key()));
        self.submit(pgid, txn, Thens::new(), fx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::own_object;

    #[test]
    fn what_goes_in_one_transaction_is_of_one_pool() {
        let names = [
            "arriving/7.1.2",
            "pg/3.1",
            "arriving/3/7.1.2",
            "arriving/4/7.2.1",
            "arriving/4/7.3.1",
        ];
        let objects = names.map(own_object).to_vec();
        let mut left = Leftovers { objects, at_once: 9, reads: ReadSet::new() };
        let mut seen = Vec::new();
        while let (some @ [_, ..], account) = left.next() {
            let count = some.len();
            seen.push((count, account));
            left.objects.truncate(left.objects.len() - count);
        }
        assert_eq!(seen, [(2, 4), (1, 3), (2, 0)]);
    }
}

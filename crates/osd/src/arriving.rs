//! The temporaries in which parts of objects gather until the last one is here (see `part`), and what becomes of
//! them when that will not come: when a part is refused, when the object is deleted or comes in one piece, when who sent
//! it is down, when the interval ends, when the PG goes. They are removed then, in order with the PG's other transactions
//! and a few at a time. What a crash leaves is removed after the next start (`leftovers`).
//!
//! No two temporaries ever have the same name. So one may be removed in any queue and at any time, by who has split off
//! the PG that the object is in now, or has found it at a start: it is never the one in which parts gather anew. And each
//! part gives the temporary another name, which only one can be given that is there: nothing goes on with nothing.

use crate::daemon::Daemon;
use crate::host::{Queued, Thens};
use crate::object::{META_POOL, own_object};
use crate::recover::Transfers;
use io::Effects;
use maps::OsdMap;
use peer::{Push, PushCursor};
use pg::{EntryKind, LogRecord};
use smallvec::SmallVec;
use store::Transaction;
use types::testing::{Probe, hit};
use types::{HObject, ObjectKey, OsdId, PgId, PoolId};

const PREFIX: &[u8] = b"arriving/";

/// Where parts of an object gather until the last one is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Temporary {
    /// The newest transaction that was durable when the OSD started. What is left of an earlier life came in an
    /// earlier one.
    start: u64,
    number: u64,
    parts: u64,
    /// Of the object: what compression does to it is counted by pool, also when it is removed after a crash.
    pool: PoolId,
}

impl Temporary {
    /// The first one since a start, see [`Temporary::start`].
    pub fn first(start: u64) -> Self {
        Temporary { start, number: 0, parts: 1, pool: PoolId(0) }
    }

    /// One for another object, of this pool.
    fn another(self, pool: PoolId) -> Self {
        Temporary { number: self.number + 1, parts: 1, pool, ..self }
    }

    /// The same with one part more.
    pub fn with_next(self) -> Self {
        Temporary { parts: self.parts + 1, ..self }
    }

    /// Its name.
    pub fn key(self) -> ObjectKey {
        let Temporary { start, number, parts, pool } = self;
        let name = [PREFIX, format!("{pool}/{start:x}.{number:x}.{parts:x}").as_bytes()].concat();
        let temporary = own_object(name);
        debug_assert_eq!(temporary.pool, META_POOL);
        temporary.to_key()
    }
}

/// Where a part goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is all of its object, and goes where that is to be.
    Object,
    /// It is the first of several, and begins this one.
    Begins(Temporary),
    /// It comes to those that have gathered there.
    GoesOn(Temporary),
    /// The same, and is the last one.
    Ends(Temporary),
}

/// Whether one of the OSD's own objects is such a temporary.
pub(crate) fn is_temporary(object: &HObject) -> bool {
    object.name.starts_with(PREFIX)
}

impl Transfers {
    /// Where a part goes. `None`: those before it are not here.
    pub(crate) fn place_of(&self, from: OsdId, m: &Push, new: &mut Temporary) -> Option<Place> {
        let first = m.from == PushCursor::default();
        if !m.exists || (first && m.next.done) {
            return Some(Place::Object);
        }
        if first {
            *new = new.another(m.object.pool);
            return Some(Place::Begins(*new));
        }
        let before = *self.gathering.get(&(from, m.object.clone()))?;
        Some(if m.next.done { Place::Ends(before) } else { Place::GoesOn(before) })
    }

    /// Notes where a part from there goes. If it is the first one, others that have gathered before go.
    pub(crate) fn note_part(&mut self, txn: &mut Transaction, from: OsdId, m: &Push, place: Place) {
        let (gathering, of) = (&mut self.gathering, (from, m.object.clone()));
        let left = match place {
            Place::Object => gathering.remove(&of),
            Place::Begins(temporary) => gathering.insert(of, temporary),
            Place::GoesOn(before) => {
                gathering.insert(of, before.with_next());
                None
            }
            Place::Ends(_) => {
                gathering.remove(&of);
                None
            }
        };
        left.iter().for_each(|temporary| _ = txn.remove(&temporary.key()));
    }

    /// As a replica: the primary has deleted objects. No part of them will come any more, and those that wait to be
    /// looked at are of no use.
    pub(crate) fn give_up_deleted(
        &mut self,
        primary: OsdId,
        records: &[LogRecord],
    ) -> SmallVec<[ObjectKey; 1]> {
        let Transfers { gathering, receiving, waiting, .. } = self;
        if gathering.is_empty() && waiting.is_empty() {
            return SmallVec::new();
        }
        let deleted = records.iter().filter(|r| r.entry.kind == EntryKind::Delete);
        let gone = deleted.filter_map(|record| {
            let of = (primary, record.entry.object.clone());
            waiting.remove(&of);
            receiving.remove(&of);
            gathering.remove(&of)
        });
        gone.map(Temporary::key).collect()
    }

    /// The temporaries that are there. The parts in them are of no use any more.
    pub(crate) fn take_gathering(&mut self) -> Vec<ObjectKey> {
        std::mem::take(&mut self.gathering).into_values().map(Temporary::key).collect()
    }
}

impl Daemon {
    /// What came of an object from there is of no use, and no more of it is wanted from there.
    pub(crate) fn give_up_parts(
        &mut self,
        pgid: PgId,
        from: OsdId,
        object: &HObject,
        fx: &mut Effects,
    ) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let Transfers { gathering, receiving, .. } = &mut host.transfers;
        let of = (from, object.clone());
        receiving.remove(&of);
        if let Some(temporary) = gathering.remove(&of) {
            hit(Probe::PartsGivenUp);
            let mut txn = host.transaction();
            txn.remove(&temporary.key());
            self.submit(pgid, txn, Thens::new(), fx);
        }
    }

    /// Who sent parts is down by this map, and was no member: the interval goes on without the rest of them.
    pub(crate) fn give_up_parts_of_gone(&mut self, pgid: PgId, map: &OsdMap, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let Transfers { receiving, waiting, .. } = &mut host.transfers;
        waiting.retain(|(from, _), _| map.is_up(*from));
        let gone = receiving.keys().filter(|(from, _)| !map.is_up(*from)).cloned();
        for (from, object) in gone.collect::<Vec<_>>() {
            self.give_up_parts(pgid, from, &object, fx);
        }
    }

    /// All that was on its way to this copy is forgotten.
    pub(crate) fn give_up_all_parts(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let all = host.transfers.take_gathering();
        for some in all.chunks(self.deletes_at_once()) {
            hit(Probe::PartsGivenUp);
            let Some(host) = self.pgs.get(&pgid) else { return };
            let remove = |some: &[ObjectKey]| {
                let mut txn = host.transaction();
                some.iter().for_each(|temporary| _ = txn.remove(temporary));
                txn
            };
            self.enqueue(pgid, Queued::divisible(some, remove), fx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg::{LogEntry, ObjectSums};
    use std::collections::BTreeSet;
    use types::{Epoch, Eversion};

    /// What is removed late, by whoever it may be, is not what parts gather in.
    #[test]
    fn no_name_comes_twice() {
        let mut names = BTreeSet::new();
        for start in [0x11, 0x111] {
            let each = std::iter::successors(Some(Temporary::first(start)), |t| {
                Some(t.another(PoolId(3)))
            });
            for first in each.take(20) {
                let second = first.with_next();
                names.extend([first, second, second.with_next()].map(Temporary::key));
            }
        }
        assert_eq!(names.len(), 120);
        assert!(names.iter().all(|key| is_temporary(&key.decode().unwrap())));
    }

    /// The part waited on, and began a temporary that nobody would ever finish.
    #[test]
    fn a_part_that_waits_goes_with_its_object() {
        let (primary, object) = (OsdId(1), HObject::min());
        let of = |osd| (OsdId(osd), object.clone());
        let part = Push::absent(PgId::default(), Epoch(1), Epoch(1), object.clone());
        let mut transfers = Transfers::default();
        transfers.waiting.extend([(of(1), part.clone()), (of(2), part)]);
        let entry = LogEntry::of(object.clone(), Eversion::new(Epoch(1), 1));
        let mut record = LogRecord { entry, sums: ObjectSums::default(), last_user_version: 0 };
        transfers.give_up_deleted(primary, std::slice::from_ref(&record));
        assert_eq!(transfers.waiting.len(), 2, "it was written");
        record.entry.kind = EntryKind::Delete;
        assert!(transfers.give_up_deleted(primary, &[record]).is_empty());
        assert!(transfers.waiting.keys().eq([&of(2)]));
    }
}

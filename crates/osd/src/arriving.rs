//! The temporaries in which parts of objects gather until the last one is here (see `part`), and what becomes of
//! them when that will not come: when a part is refused, when the object is deleted or comes in one piece, when who sent
//! it is down, when the interval ends, when the PG goes. They are removed then, in order with the PG's other transactions and a few at a time.
//! What a crash leaves is removed at the next start (`boot`).

use crate::daemon::Daemon;
use crate::host::{PgHost, Thens};
use crate::object::{META_POOL, own_object};
use crate::recover::Transfers;
use io::Effects;
use maps::OsdMap;
use peer::{Push, PushCursor};
use pg::{EntryKind, LogRecord};
use store::Transaction;
use types::testing::{Probe, hit};
use types::{HObject, ObjectKey, OsdId, PgId};

const PREFIX: &[u8] = b"arriving/";

/// Where the parts of an object gather until the last one is here. Its key would be too long for some if it
/// were made of the object's key, which is escaped already.
pub(crate) fn temporary(object: &HObject) -> ObjectKey {
    let mut name = PREFIX.to_vec();
    name.extend_from_slice(&denc::encode(object));
    let temporary = own_object(name);
    debug_assert_eq!(temporary.pool, META_POOL);
    temporary.to_key()
}

/// Whether one of the OSD's own objects is such a temporary.
pub(crate) fn is_temporary(object: &HObject) -> bool {
    object.name.starts_with(PREFIX)
}

/// Whether a part is all of its object: it goes where that is to be.
pub(crate) fn is_all(m: &Push) -> bool {
    !m.exists || (m.from == PushCursor::default() && m.next.done)
}

impl PgHost {
    /// Notes where a part goes. If it is all of its object, parts of it that have gathered before go.
    pub(crate) fn note_part(&mut self, txn: &mut Transaction, m: &Push) {
        let gathering = &mut self.transfers.gathering;
        if is_all(m) {
            if gathering.remove(&m.object) {
                txn.remove(&temporary(&m.object));
            }
        } else if m.next.done {
            gathering.remove(&m.object);
        } else if !gathering.contains(&m.object) {
            gathering.insert(m.object.clone());
        }
    }

    /// As a replica: objects are deleted. No part of them will come any more.
    pub(crate) fn give_up_deleted(&mut self, records: &[LogRecord]) -> Vec<ObjectKey> {
        let Transfers { gathering, receiving, .. } = &mut self.transfers;
        if gathering.is_empty() {
            return Vec::new();
        }
        let deleted = records.iter().filter(|r| r.entry.kind == EntryKind::Delete);
        let gone = deleted.map(|r| &r.entry.object).filter(|o| gathering.remove(*o));
        gone.inspect(|object| receiving.retain(|(_, o), _| o != *object)).map(temporary).collect()
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
        receiving.remove(&(from, object.clone()));
        // It may come from somebody else by now.
        if receiving.keys().all(|(_, o)| o != object) && gathering.remove(object) {
            hit(Probe::PartsGivenUp);
            let mut txn = host.transaction();
            txn.remove(&temporary(object));
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
        for some in removals(&host.transaction(), &all, self.limits.remove_objects) {
            hit(Probe::PartsGivenUp);
            self.submit(pgid, some, Thens::new(), fx);
        }
    }
}

/// Transactions like this one that remove objects, each not too many of them.
pub(crate) fn removals(
    like: &Transaction,
    objects: &[ObjectKey],
    at_once: usize,
) -> impl Iterator<Item = Transaction> {
    objects.chunks(at_once.max(1)).map(|some| {
        let mut txn = like.clone();
        some.iter().for_each(|object| _ = txn.remove(object));
        txn
    })
}

impl Transfers {
    /// The temporaries that are there. The parts in them are of no use any more.
    pub(crate) fn take_gathering(&mut self) -> Vec<ObjectKey> {
        std::mem::take(&mut self.gathering).iter().map(temporary).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{PoolId, SnapId};

    /// The longest names that are let in, of the byte that is escaped.
    #[test]
    fn parts_of_any_object_have_somewhere_to_gather() {
        let object = HObject {
            pool: PoolId(1),
            hash: 7,
            nspace: vec![0; 256].into(),
            key: vec![0; 2047].into(),
            name: vec![0; 2048].into(),
            snap: SnapId(u64::MAX - 2),
            max: false,
        };
        let temporary = temporary(&object);
        assert!(temporary.as_bytes().len() <= store::MAX_NAME_BYTES, "{temporary:?}");
        assert!(is_temporary(&temporary.decode().unwrap()));
    }

    /// The largest transaction has 4 MiB on a store of 256 MiB, and these names alone have 20.
    #[test]
    fn however_many_they_are_they_go_in_small_transactions() {
        let name = |i: u32| [&i.to_be_bytes()[..], &[b'x'; 2000]].concat();
        let all: Vec<_> = (0..10_000).map(|i| own_object(name(i)).to_key()).collect();
        let sizes = |at_once| -> Vec<usize> {
            removals(&Transaction::new(1), &all, at_once).map(|txn| txn.objects().len()).collect()
        };
        assert_eq!((sizes(30).len(), sizes(30).iter().max()), (334, Some(&30)));
        assert_eq!([sizes(0).len(), sizes(1).len()], [10_000; 2]);
    }
}

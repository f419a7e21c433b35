//! What a tool needs to know about the store of an OSD that does not run.

use crate::object::ObjectMeta;
use crate::{host, mapstate, object, trim};
use bytes::Bytes;
use maps::{OsdMap, PgIdExt};
use pg::{MissingItem, ObjectRow};
use std::collections::BTreeMap;
use store::Transaction;
use types::{Epoch, Eversion, HObject, ObjectKey, PgId, PoolId};

pub use crate::host::{OWN_ACCOUNT, store_accounts};
pub use crate::trim::{drop_clone_rows, put_clone_rows};

/// The objects of a PG in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgObjects {
    /// Its info, log and missing objects. A PG is there when this is there.
    pub meta: ObjectKey,
    /// Its indexes of snapshots; may be missing. In pools of very many PGs they are others', too, and
    /// not named here: see [`put_clone_rows`].
    pub snaps: Vec<ObjectKey>,
    /// The first of clients' objects.
    pub first: ObjectKey,
    /// Behind the last of them.
    pub end: ObjectKey,
}

/// Which objects a PG has, in a pool of so many.
pub fn objects_of(pgid: PgId, pg_num: u32) -> PgObjects {
    let (first, end) = object::key_range(pgid, pg_num);
    PgObjects { meta: meta_object(pgid), snaps: trim::own_indexes(pgid, pg_num), first, end }
}

/// A PG's own object: [`PgObjects::meta`].
pub fn meta_object(pgid: PgId) -> ObjectKey {
    host::meta_object(pgid).to_key()
}

/// The PGs that one splits into while its pool grows.
pub fn children_of(pgid: PgId, old_pg_num: u32, new_pg_num: u32) -> Vec<PgId> {
    pgid.split_children(old_pg_num, new_pg_num)
}

/// The PGs that one may have split from, the nearest first.
pub fn ancestors_of(pgid: PgId) -> impl Iterator<Item = PgId> {
    std::iter::successors(Some(pgid), |pgid| (pgid.seed > 0).then(|| pgid.parent())).skip(1)
}

/// An empty transaction upon objects of a PG: what they take is counted as the OSD counts it.
pub fn transaction(pgid: PgId) -> Transaction {
    let mut txn = Transaction::new(0);
    txn.account = host::account(pgid);
    txn
}

/// The object that holds the maps.
pub fn map_object() -> ObjectKey {
    mapstate::map_object().to_key()
}

/// Its omap key that says which maps there are.
pub fn map_range_key() -> Bytes {
    Bytes::from_static(mapstate::RANGE_KEY)
}

/// The omap key of the newest full map, from the value of [`map_range_key`].
pub fn newest_map_key(range: &Bytes) -> Option<Bytes> {
    let (_, newest): (Epoch, Epoch) = denc::decode(range).ok()?;
    Some(mapstate::full_key(newest))
}

/// The omap key of [`PgObjects::meta`] that says which is the newest map that the PG has taken in.
pub fn info_key() -> Bytes {
    Bytes::from_static(pg::INFO_KEY)
}

/// The row of [`PgObjects::meta`] that says that the PG is being brought into the store, in a pool of so many: until it
/// goes, an OSD that starts removes the PG.
pub fn import_row(pg_num: u32) -> (Bytes, Bytes) {
    pg::put_import(pg_num)
}

/// The key of [`import_row`].
pub fn import_key() -> Bytes {
    Bytes::from_static(pg::IMPORT_KEY)
}

/// What [`import_row`] says.
pub fn import_pg_num(value: &Bytes) -> Option<u32> {
    denc::decode(value).ok()
}

/// The record of an object that is not whole yet: of a version that no other copy has, so that nobody takes it for one.
pub fn record_of_half() -> Bytes {
    denc::encode(&ObjectMeta::default())
}

/// That map's epoch, from the value of [`info_key`].
pub fn epoch_of(info: &Bytes) -> Option<Epoch> {
    let record: pg::InfoRecord = denc::decode(info).ok()?;
    Some(record.epoch)
}

/// How many PGs the pool had by that map, from the value of [`info_key`]; old records do not say.
pub fn pg_num_of(info: &Bytes) -> Option<u32> {
    let record: pg::InfoRecord = denc::decode(info).ok()?;
    Some(record.pg_num).filter(|pg_num| *pg_num != 0)
}

/// Clients' objects that a PG comes without, since they are damaged, and what it says of them: so that it does not
/// believe that it has them.
#[derive(Debug, Default)]
pub struct Lost {
    objects: BTreeMap<HObject, Known>,
}

#[derive(Debug)]
struct Known {
    need: Eversion,
    is_deleted: bool,
}

/// Older than anything: the version of an object of which nothing is known but that it was there. Any copy is as new.
const SOME_VERSION: Eversion = Eversion { epoch: Epoch(1), version: 1 };

impl Lost {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Adds one, with what can be read of its record. What is no client's object is passed over.
    pub fn add(&mut self, key: &ObjectKey, meta: &Bytes) {
        let Some(object) = key.decode().ok().filter(|object| object.pool.0 >= 0) else { return };
        let need = ObjectMeta::decode(meta).map_or(SOME_VERSION, |meta| meta.version);
        self.objects.insert(object, Known { need, is_deleted: false });
    }

    /// Takes in a row of the PG's own object: it may say which version an object must have, or that it is deleted.
    /// Rows come in the order of their keys, so that the log's newest entry is the last one.
    pub fn note_row(&mut self, key: &Bytes, value: &Bytes) {
        if self.is_empty() {
            return;
        }
        let Some(row) = pg::object_row(key, value) else { return };
        let Some(known) = self.objects.get_mut(row.object()) else { return };
        match row {
            ObjectRow::Log(entry) if entry.changes_object() => {
                known.need = known.need.max(entry.version);
                known.is_deleted = !entry.leaves_object();
            }
            ObjectRow::Log(_) => {}
            ObjectRow::Missing(_, item) => known.need = known.need.max(item.need),
            ObjectRow::Deleted(_) => known.is_deleted = true,
        }
    }

    /// The rows of the PG's own object that say that they are missing, and to be brought from another copy.
    pub fn into_rows(self) -> impl Iterator<Item = (Bytes, Bytes)> {
        let lost = self.objects.into_iter().filter(|(_, known)| !known.is_deleted);
        let item = |known: Known| MissingItem::new(known.need, Eversion::ZERO);
        lost.map(move |(object, known)| (pg::missing_key(&object), denc::encode(&item(known))))
    }
}

/// The omap key of a full map.
pub fn map_key(epoch: Epoch) -> Bytes {
    mapstate::full_key(epoch)
}

/// Number of PGs of a pool in a full map.
pub fn pg_num(map: &Bytes, pool: PoolId) -> Option<u32> {
    let map: OsdMap = denc::decode(map).ok()?;
    Some(map.pool(pool)?.pg_num)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg::{EntryKind, LogEntry, LogRecord, ObjectSums};

    fn object(name: &str) -> HObject {
        HObject { pool: PoolId(1), name: name.into(), ..HObject::min() }
    }

    fn at(version: u64) -> Eversion {
        Eversion::new(Epoch(3), version)
    }

    fn put(rows: &mut BTreeMap<Bytes, Bytes>, version: u64, kind: EntryKind, name: &str) {
        let entry = LogEntry { kind, ..LogEntry::of(object(name), at(version)) };
        let record = LogRecord { entry, sums: ObjectSums::default(), last_user_version: version };
        rows.insert(pg::log_key(at(version)), denc::encode(&record));
    }

    /// A copy that comes without an object says that it is missing, in the version that it must have.
    #[test]
    fn what_is_lost_is_missing_unless_it_is_deleted() {
        let mut lost = Lost::default();
        let meta =
            |version| denc::encode(&ObjectMeta { version: at(version), ..ObjectMeta::default() });
        lost.add(&object("old").to_key(), &meta(7));
        for name in ["written", "deleted", "again", "nothing known", "behind", "left"] {
            lost.add(&object(name).to_key(), &Bytes::new());
        }
        lost.add(&object::own_object("index").to_key(), &Bytes::new());
        let mut rows = BTreeMap::new();
        for (version, kind, name) in [
            (20, EntryKind::Delete, "again"),
            (21, EntryKind::Modify, "written"),
            (22, EntryKind::Modify, "again"),
            (23, EntryKind::Error, "written"),
            (24, EntryKind::Delete, "deleted"),
        ] {
            put(&mut rows, version, kind, name);
        }
        let item = MissingItem::new(at(30), at(9));
        rows.insert(pg::missing_key(&object("behind")), denc::encode(&item));
        let pg::MetaOp::Put(key, value) = pg::put_deleted(&object("left")) else { panic!() };
        rows.insert(key, value);
        rows.iter().for_each(|(key, value)| lost.note_row(key, value));
        let missing: BTreeMap<Bytes, Bytes> = lost.into_rows().collect();
        let needs = [
            ("again", at(22)),
            ("behind", at(30)),
            ("nothing known", SOME_VERSION),
            ("old", at(7)),
            ("written", at(21)),
        ];
        let needs = needs.map(|(name, need)| {
            let item = MissingItem::new(need, Eversion::ZERO);
            (pg::missing_key(&object(name)), denc::encode(&item))
        });
        assert_eq!(missing, BTreeMap::from(needs));
    }
}

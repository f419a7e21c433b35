//! What a tool needs to know about the store of an OSD that does not run.

use crate::{host, mapstate, object, trim};
use bytes::Bytes;
use maps::OsdMap;
use types::{Epoch, ObjectKey, PgId, PoolId};

/// The objects of a PG in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgObjects {
    /// Its info, log and missing objects. A PG is there when this is there.
    pub meta: ObjectKey,
    /// Its indexes of snapshots; may be missing. In pools of very many PGs they are others', too, and
    /// not named here: trimming then finds rows for it only of what is written later.
    pub snaps: Vec<ObjectKey>,
    /// The first of clients' objects.
    pub first: ObjectKey,
    /// Behind the last of them.
    pub end: ObjectKey,
}

/// Which objects a PG has, in a pool of so many.
pub fn objects_of(pgid: PgId, pg_num: u32) -> PgObjects {
    let (first, end) = object::key_range(pgid, pg_num);
    let meta = host::meta_object(pgid).to_key();
    PgObjects { meta, snaps: trim::own_indexes(pgid, pg_num), first, end }
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

/// That map's epoch, from the value of [`info_key`].
pub fn epoch_of(info: &Bytes) -> Option<Epoch> {
    let record: pg::InfoRecord = denc::decode(info).ok()?;
    Some(record.epoch)
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

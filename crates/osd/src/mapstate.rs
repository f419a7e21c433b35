//! The OSD's maps: the newest one, the recent ones, and how they are kept.
//!
//! Every epoch is taken in one by one, since intervals are made of them. Incrementals and full maps
//! are kept as omap keys of one object, in one sequence of their own.

use crate::compress::PoolCompression;
use crate::object::own_object;
use bytes::Bytes;
use maps::{Incremental, MapError, OsdMap, SnapSet};
use std::collections::BTreeMap;
use std::rc::Rc;
use store::Transaction;
use types::{Epoch, HObject, HashMap, PoolId, SnapId};
use wire::msg::{MOsdMap, SnapContext};

/// Decoded maps kept in memory.
const RECENT_MAPS: usize = 64;
/// Encoded incrementals kept in memory, to share them.
const RECENT_INCREMENTALS: usize = 256;
/// Maps in one message (`osd_map_message_max`).
pub const MAPS_PER_MESSAGE: usize = 40;
/// Epochs kept on disk at least (`osd_map_cache_size` and then some).
pub const MIN_KEPT_EPOCHS: u32 = 500;

/// The sequencer of transactions that store maps.
pub const MAP_SEQUENCER: u64 = u64::MAX;

/// What the interpreter must know of a pool's snapshots.
#[derive(Clone, Debug, Default)]
pub struct PoolSnaps {
    /// Snapshots are the pool's own; the context of writes is the pool's.
    pub own: Option<SnapContext>,
    /// Snapshots that an old cluster removed.
    unknown: SnapSet,
    /// These, and what was removed and is not purged yet.
    removed: SnapSet,
}

impl PoolSnaps {
    fn of(map: &OsdMap, id: PoolId) -> Self {
        let Some(pool) = map.pool(id) else { return PoolSnaps::default() };
        let own = pool.is_pool_snaps_mode().then(|| {
            let (seq, snaps) = pool.snap_context();
            SnapContext { seq, snaps: snaps.into_iter().collect() }
        });
        let unknown = pool.removed_snaps.clone();
        let mut removed = unknown.clone();
        if let Some(queue) = map.removed_snaps_queue.get(&id) {
            removed.union_with(queue);
        }
        PoolSnaps { own, unknown, removed }
    }

    /// Whether nothing is to be found at a snapshot. One that clients made and removed is there until what
    /// it alone held is trimmed (`find_object_context`).
    pub fn is_unknown(&self, snap: SnapId) -> bool {
        if self.own.is_some() { self.is_removed(snap) } else { self.unknown.contains(snap) }
    }

    /// Whether a snapshot is removed.
    pub fn is_removed(&self, snap: SnapId) -> bool {
        match &self.own {
            Some(own) => snap <= own.seq && !own.snaps.contains(&snap),
            None => self.removed.contains(snap),
        }
    }

    /// Whether no snapshot is.
    pub fn none_removed(&self) -> bool {
        self.own.is_none() && self.removed.is_empty()
    }
}

/// The maps.
#[derive(Debug)]
pub struct Maps {
    current: Rc<OsdMap>,
    recent: BTreeMap<Epoch, Rc<OsdMap>>,
    incrementals: BTreeMap<Epoch, Bytes>,
    oldest: Epoch,
    snaps: HashMap<PoolId, Rc<PoolSnaps>>,
}

impl Default for Maps {
    fn default() -> Self {
        Maps {
            current: Rc::new(OsdMap::default()),
            recent: BTreeMap::new(),
            incrementals: BTreeMap::new(),
            oldest: Epoch::ZERO,
            snaps: HashMap::default(),
        }
    }
}

/// What a message brought.
#[derive(Debug, Default)]
pub struct Taken {
    /// The new epochs, in order.
    pub maps: Vec<Rc<OsdMap>>,
    /// Maps were skipped: the first of `maps` does not follow the one before.
    pub gap: bool,
    /// The message begins too late: ask the mon from our epoch on.
    pub behind: bool,
    /// What is wrong with the map after those.
    pub damaged: Option<MapError>,
    /// What is to be stored, in order: each map by itself, since those of a large cluster are too much for
    /// one transaction.
    pub txns: Vec<Transaction>,
}

impl Maps {
    /// The newest map; epoch 0 before the first.
    pub fn current(&self) -> &Rc<OsdMap> {
        &self.current
    }

    /// Its epoch.
    pub fn epoch(&self) -> Epoch {
        self.current.epoch
    }

    /// The oldest epoch kept.
    pub fn oldest(&self) -> Epoch {
        self.oldest
    }

    /// A recent map from memory.
    pub fn get(&self, epoch: Epoch) -> Option<&Rc<OsdMap>> {
        if epoch == self.current.epoch { Some(&self.current) } else { self.recent.get(&epoch) }
    }

    /// Takes in a map loaded from disk; they come in order.
    pub fn loaded(&mut self, map: OsdMap) {
        if self.oldest == Epoch::ZERO {
            self.oldest = map.epoch;
        }
        self.advance(map);
    }

    /// Sets the oldest epoch that is on disk.
    pub fn set_oldest(&mut self, oldest: Epoch) {
        self.oldest = oldest;
    }

    fn advance(&mut self, map: OsdMap) -> Rc<OsdMap> {
        let map = Rc::new(map);
        self.current = map.clone();
        self.recent.insert(map.epoch, map.clone());
        while self.recent.len() > RECENT_MAPS {
            self.recent.pop_first();
        }
        self.snaps.clear();
        map
    }

    /// Snapshot rules of a pool by the newest map.
    pub fn pool_snaps(&mut self, pool: PoolId) -> Rc<PoolSnaps> {
        let map = &self.current;
        self.snaps.entry(pool).or_insert_with(|| Rc::new(PoolSnaps::of(map, pool))).clone()
    }

    /// What is compressed in a pool.
    pub fn pool_compression(&self, pool: PoolId) -> PoolCompression {
        self.current.pool(pool).map(PoolCompression::of).unwrap_or_default()
    }

    /// Takes in a message of the mon, or of anybody who shares maps.
    ///
    /// Only the mon may make us skip epochs: it does so when it has none of them any more, which is
    /// when every PG was clean after them.
    ///
    /// The answer says what was taken in even when a later map is damaged: it is then in
    /// [`Taken::damaged`].
    pub fn take(&mut self, m: &MOsdMap, from_mon: bool) -> Taken {
        let mut taken = Taken::default();
        let newest = m.last().unwrap_or_default();
        if newest <= self.epoch() {
            return taken;
        }
        let next = self.epoch().next();
        let follows = m.incrementals.contains_key(&next) || m.fulls.contains_key(&next);
        if !follows {
            let first = m.fulls.iter().find(|(e, _)| **e > self.epoch());
            let may_skip = from_mon || self.epoch() == Epoch::ZERO;
            let Some((epoch, bytes)) = first.filter(|_| may_skip) else {
                taken.behind = true;
                return taken;
            };
            taken.gap = self.epoch() != Epoch::ZERO;
            self.take_one(*epoch, |_| decode_full(*epoch, bytes), true, &mut taken);
        }
        while taken.damaged.is_none() && self.epoch() < newest {
            let next = self.epoch().next();
            if let Some(bytes) = m.incrementals.get(&next) {
                self.take_one(next, |maps| maps.apply(next, bytes), false, &mut taken);
            } else if let Some(bytes) = m.fulls.get(&next) {
                self.take_one(next, |_| decode_full(next, bytes), false, &mut taken);
            } else {
                break;
            }
        }
        taken
    }

    fn take_one(
        &mut self,
        epoch: Epoch,
        make: impl FnOnce(&mut Maps) -> Result<(OsdMap, Bytes), MapError>,
        is_oldest: bool,
        taken: &mut Taken,
    ) {
        match make(self) {
            Ok((map, full)) => {
                if is_oldest || self.oldest == Epoch::ZERO {
                    self.oldest = epoch;
                }
                let mut txn = map_transaction();
                txn.omap_set(&map_key(), vec![(key(FULL, epoch), full)]);
                if let Some(inc) = self.incrementals.get(&epoch) {
                    txn.omap_set(&map_key(), vec![(key(INCREMENTAL, epoch), inc.clone())]);
                }
                put_newest(&mut txn, self.oldest, epoch);
                taken.txns.push(txn);
                taken.maps.push(self.advance(map));
            }
            Err(why) => taken.damaged = Some(why),
        }
    }

    fn apply(&mut self, epoch: Epoch, bytes: &Bytes) -> Result<(OsdMap, Bytes), MapError> {
        let inc: Incremental = denc::decode(bytes).map_err(MapError::from)?;
        let mut map = (*self.current).clone();
        map.apply(&inc)?;
        let (full, crc) = map.encode_with_crc();
        if crc != inc.full_crc {
            return Err(MapError::WrongFullCrc { epoch, wanted: inc.full_crc, actual: crc });
        }
        self.incrementals.insert(epoch, Bytes::copy_from_slice(bytes));
        while self.incrementals.len() > RECENT_INCREMENTALS {
            self.incrementals.pop_first();
        }
        Ok((map, full))
    }

    /// What brings somebody who has `have` up to date, or closer to it: incrementals from memory, or
    /// the newest full map.
    pub fn share(&self, have: Epoch) -> Option<MOsdMap> {
        if have >= self.epoch() {
            return None;
        }
        let mut m = MOsdMap {
            fsid: self.current.fsid,
            oldest: self.oldest,
            newest: self.epoch(),
            ..MOsdMap::default()
        };
        let from = have.next();
        let connected = self.incrementals.contains_key(&from);
        if connected && have != Epoch::ZERO {
            let range = self.incrementals.range(from..).take(MAPS_PER_MESSAGE);
            m.incrementals.extend(range.map(|(e, b)| (*e, b.clone())));
        } else {
            m.fulls.insert(self.epoch(), denc::encode(&*self.current));
        }
        Some(m)
    }

    /// Forgets maps on disk before `needed`, in bounded steps.
    pub fn trim(&mut self, needed: Epoch, txn: &mut Transaction) -> bool {
        const STEP: u32 = 64;
        let spare = Epoch(self.epoch().0.saturating_sub(MIN_KEPT_EPOCHS));
        let to = needed.min(spare).min(Epoch(self.oldest.0.saturating_add(STEP)));
        if to <= self.oldest || self.oldest == Epoch::ZERO {
            return false;
        }
        let object = map_key();
        for kind in [FULL, INCREMENTAL] {
            txn.omap_remove_range(&object, key(kind, Epoch::ZERO), key(kind, to));
        }
        self.oldest = to;
        put_newest(txn, to, self.epoch());
        true
    }
}

const FULL: u8 = b'f';
const INCREMENTAL: u8 = b'i';
/// Key of the record of which epochs there are: `u32 oldest, u32 newest`.
pub const RANGE_KEY: &[u8] = b"range";

/// The object that holds the maps: omap `f` + epoch (u32 BE) -> full map, `i` + epoch -> incremental.
pub fn map_object() -> HObject {
    own_object("osdmap")
}

/// A transaction of the OSD's own objects: in order with those of maps, and always possible.
pub(crate) fn map_transaction() -> Transaction {
    let mut txn = Transaction::new(MAP_SEQUENCER);
    txn.may_use_reserve = true;
    txn
}

fn map_key() -> types::ObjectKey {
    map_object().to_key()
}

fn key(kind: u8, epoch: Epoch) -> Bytes {
    let mut out = [kind; 5];
    out[1..].copy_from_slice(&epoch.0.to_be_bytes());
    Bytes::copy_from_slice(&out)
}

/// Key of a full map in [`map_object`].
pub fn full_key(epoch: Epoch) -> Bytes {
    key(FULL, epoch)
}

fn decode_full(epoch: Epoch, bytes: &Bytes) -> Result<(OsdMap, Bytes), MapError> {
    let map: OsdMap = denc::decode(bytes).map_err(MapError::from)?;
    if map.epoch != epoch {
        return Err(MapError::OtherFullMap);
    }
    Ok((map, Bytes::copy_from_slice(bytes)))
}

fn put_newest(txn: &mut Transaction, oldest: Epoch, newest: Epoch) {
    let value = denc::encode(&(oldest, newest));
    txn.omap_set(&map_key(), vec![(Bytes::from_static(RANGE_KEY), value)]);
}

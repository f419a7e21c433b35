//! Encoded maps at hand: the newest epochs, and whatever was asked for lately.

use super::keys;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use types::Epoch;

/// Bytes of maps that are kept in memory.
const MAX_BYTES: usize = 32 << 20;

/// One encoded map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MapKey {
    Full(Epoch),
    Incremental(Epoch),
}

impl MapKey {
    /// Of which version.
    pub fn epoch(self) -> Epoch {
        match self {
            MapKey::Full(epoch) | MapKey::Incremental(epoch) => epoch,
        }
    }

    /// Where it stands in the store.
    pub fn key(self) -> String {
        match self {
            MapKey::Full(epoch) => keys::full(epoch),
            MapKey::Incremental(epoch) => keys::incremental(epoch),
        }
    }
}

/// Bounded by bytes; what came first goes first.
#[derive(Debug, Default)]
pub(crate) struct MapCache {
    maps: BTreeMap<MapKey, Bytes>,
    order: VecDeque<MapKey>,
    bytes: usize,
}

impl MapCache {
    /// A map, if it is at hand.
    pub fn get(&self, key: MapKey) -> Option<&Bytes> {
        self.maps.get(&key)
    }

    /// Keeps a map.
    pub fn put(&mut self, key: MapKey, bytes: Bytes) {
        self.bytes += bytes.len();
        if let Some(old) = self.maps.insert(key, bytes) {
            self.bytes -= old.len();
        } else {
            self.order.push_back(key);
        }
        while self.bytes > MAX_BYTES && self.order.len() > 1 {
            if let Some(old) = self.order.pop_front().and_then(|k| self.maps.remove(&k)) {
                self.bytes -= old.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_bounded_by_bytes() {
        let mut cache = MapCache::default();
        for n in 0..100 {
            cache.put(MapKey::Full(Epoch(n)), Bytes::from(vec![0; 1 << 20]));
        }
        assert!(cache.bytes <= MAX_BYTES);
        assert!(cache.get(MapKey::Full(Epoch(99))).is_some());
        assert!(cache.get(MapKey::Full(Epoch(0))).is_none());
        assert!(cache.get(MapKey::Incremental(Epoch(99))).is_none());
    }
}

//! Large tables of what is known of places on a device.
//!
//! A hash table that is full becomes one of twice the size, all at once; and one in which entries come and go
//! puts itself in order now and then. With the millions of entries that fit into the memory of a large OSD that
//! takes tenths of a second, in the middle of a write. So there are many small ones: of four million entries each
//! has four thousand, which takes a tenth of a millisecond.

use types::HashMap;

/// A power of two.
const PARTS: usize = 1024;

/// Values by their places.
#[derive(Debug)]
pub(crate) struct PlaceMap<V> {
    parts: Box<[HashMap<u64, V>]>,
    len: usize,
}

impl<V> Default for PlaceMap<V> {
    fn default() -> Self {
        PlaceMap::with_room(0)
    }
}

impl<V> PlaceMap<V> {
    /// With room for so many, if they are spread evenly.
    pub fn with_room(expected: usize) -> Self {
        let room = expected / PARTS;
        let part = |_| HashMap::with_capacity_and_hasher(room, Default::default());
        PlaceMap { parts: (0..PARTS).map(part).collect(), len: 0 }
    }

    /// Neighbours are in different parts.
    fn part(&mut self, place: u64) -> &mut HashMap<u64, V> {
        &mut self.parts[place as usize % PARTS]
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn get(&self, place: u64) -> Option<&V> {
        self.parts[place as usize % PARTS].get(&place)
    }

    pub fn get_mut(&mut self, place: u64) -> Option<&mut V> {
        self.part(place).get_mut(&place)
    }

    /// Gives what it replaces.
    pub fn insert(&mut self, place: u64, value: V) -> Option<V> {
        let old = self.part(place).insert(place, value);
        self.len += usize::from(old.is_none());
        old
    }

    pub fn remove(&mut self, place: u64) -> Option<V> {
        let old = self.part(place).remove(&place);
        self.len -= usize::from(old.is_some());
        old
    }

    /// Gives all memory back.
    pub fn clear(&mut self) {
        *self = PlaceMap::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_count_of_what_it_holds() {
        let mut map = PlaceMap::with_room(10);
        for place in 0..1000 {
            assert_eq!(map.insert(place, place), None);
        }
        assert_eq!(map.insert(5, 7), Some(5));
        assert_eq!((map.get(5), map.get(1000), map.len()), (Some(&7), None, 1000));
        for place in 0..1000 {
            assert!(!map.is_empty());
            assert!(map.remove(place).is_some() && map.remove(place).is_none());
        }
        assert!(map.is_empty());
    }

    /// Whatever is done to it touches few of its entries.
    #[test]
    fn no_part_is_large() {
        let mut map = PlaceMap::default();
        (0..1_000_000).for_each(|n| _ = map.insert(n * 3, n));
        let largest = map.parts.iter().map(HashMap::capacity).max();
        assert!(largest.is_some_and(|most| most < 4096), "{largest:?}");
    }
}

//! The newest logged content of each block that is not in place.
//!
//! A large hash table in which entries come and go puts itself in order now and then, all at once:
//! with the half million entries of a large log that takes 20 ms, in the middle of a write. So there
//! are many small ones.

use super::Pending;
use types::HashMap;

/// A power of two.
const PARTS: usize = 128;

/// Logged blocks by their places.
#[derive(Debug)]
pub(super) struct Overlay {
    parts: Vec<HashMap<u64, Pending>>,
    len: usize,
}

impl Overlay {
    /// With room for so many, if they are spread evenly.
    pub fn new(expected: usize) -> Self {
        let room = expected / PARTS;
        let part = |_| HashMap::with_capacity_and_hasher(room, Default::default());
        Overlay { parts: (0..PARTS).map(part).collect(), len: 0 }
    }

    /// Neighbours are in different parts.
    fn part(&self, place: u64) -> &HashMap<u64, Pending> {
        &self.parts[place as usize % PARTS]
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn get(&self, place: u64) -> Option<Pending> {
        self.part(place).get(&place).copied()
    }

    /// Gives what it replaces.
    pub fn insert(&mut self, place: u64, pending: Pending) -> Option<Pending> {
        let old = self.parts[place as usize % PARTS].insert(place, pending);
        self.len += usize::from(old.is_none());
        old
    }

    pub fn remove(&mut self, place: u64) -> Option<Pending> {
        let old = self.parts[place as usize % PARTS].remove(&place);
        self.len -= usize::from(old.is_some());
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_count_of_what_it_holds() {
        let pending = |seq| Pending { seq, index: 0, crc: 0, txn: 1 };
        let mut overlay = Overlay::new(10);
        for place in 0..1000 {
            assert_eq!(overlay.insert(place, pending(place)), None);
        }
        assert_eq!(overlay.insert(5, pending(7)), Some(pending(5)));
        assert_eq!((overlay.get(5), overlay.get(1000)), (Some(pending(7)), None));
        for place in 0..1000 {
            assert!(!overlay.is_empty());
            assert!(overlay.remove(place).is_some() && overlay.remove(place).is_none());
        }
        assert!(overlay.is_empty());
    }
}

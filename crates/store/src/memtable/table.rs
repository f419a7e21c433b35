//! An ordered map that begins small.
//!
//! Each transaction has a layer of its own, with a handful of rows. The first node of a `BTreeMap` is memory
//! for eleven of them, which is more than the allocator has at hand quickly.

use std::borrow::Borrow;
use std::collections::{BTreeMap, btree_map};
use std::ops::{Bound, RangeBounds};
use std::{slice, vec};

/// So many entries are a short list.
const FEW: usize = 4;

/// An ordered map.
#[derive(Clone, Debug)]
pub(crate) enum Table<K, V> {
    /// In order.
    Few(Vec<(K, V)>),
    Many(BTreeMap<K, V>),
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table::Few(Vec::new())
    }
}

impl<K: Ord, V> Table<K, V> {
    pub fn len(&self) -> usize {
        match self {
            Table::Few(few) => few.len(),
            Table::Many(many) => many.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        match self {
            Table::Few(few) => find(few, key).ok().and_then(|at| few.get(at)).map(|(_, v)| v),
            Table::Many(many) => many.get(key),
        }
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        match self {
            Table::Few(few) => find(few, key).ok().and_then(|at| few.get_mut(at)).map(|(_, v)| v),
            Table::Many(many) => many.get_mut(key),
        }
    }

    /// Gives what it replaces.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let few = match self {
            Table::Many(many) => return many.insert(key, value),
            Table::Few(few) => few,
        };
        match find(few, &key) {
            Ok(at) => return few.get_mut(at).map(|(_, old)| std::mem::replace(old, value)),
            Err(at) if few.len() < FEW => {
                few.reserve_exact(FEW - few.len());
                few.insert(at, (key, value));
            }
            Err(_) => {
                let mut many: BTreeMap<K, V> = few.drain(..).collect();
                many.insert(key, value);
                *self = Table::Many(many);
            }
        }
        None
    }

    /// The entries in `keys`, in order.
    pub fn range<Q: Ord + ?Sized, R: RangeBounds<Q>>(&self, keys: R) -> Entries<'_, K, V>
    where
        K: Borrow<Q> + Ord,
    {
        match self {
            Table::Few(few) => {
                let (from, to) = bounds(few, &keys);
                Entries::Few(few.get(from..to).unwrap_or_default().iter())
            }
            Table::Many(many) => Entries::Many(many.range(keys)),
        }
    }

    /// All entries, in order.
    pub fn iter(&self) -> Entries<'_, K, V> {
        self.range::<K, _>(..)
    }

    /// Removes the entries in `keys`; gives them to `f`.
    pub fn remove_range(&mut self, keys: impl RangeBounds<K>, mut f: impl FnMut(K, V)) {
        match self {
            Table::Few(few) => {
                let (from, to) = bounds(few, &keys);
                few.drain(from..to.max(from)).for_each(|(key, value)| f(key, value));
            }
            Table::Many(many) => {
                many.extract_if(keys, |_, _| true).for_each(|(key, value)| f(key, value));
            }
        }
    }
}

fn find<K: Borrow<Q>, V, Q: Ord + ?Sized>(few: &[(K, V)], key: &Q) -> Result<usize, usize> {
    few.binary_search_by(|(k, _)| k.borrow().cmp(key))
}

/// Where the entries in `keys` begin and end.
fn bounds<K: Borrow<Q>, V, Q: Ord + ?Sized>(
    few: &[(K, V)],
    keys: &impl RangeBounds<Q>,
) -> (usize, usize) {
    let below = |key: &Q| few.partition_point(|(k, _)| k.borrow() < key);
    let up_to = |key: &Q| few.partition_point(|(k, _)| k.borrow() <= key);
    let from = match keys.start_bound() {
        Bound::Included(key) => below(key),
        Bound::Excluded(key) => up_to(key),
        Bound::Unbounded => 0,
    };
    let to = match keys.end_bound() {
        Bound::Included(key) => up_to(key),
        Bound::Excluded(key) => below(key),
        Bound::Unbounded => few.len(),
    };
    (from, to)
}

/// Entries in order.
pub(crate) enum Entries<'a, K, V> {
    Few(slice::Iter<'a, (K, V)>),
    Many(btree_map::Range<'a, K, V>),
}

impl<'a, K, V> Iterator for Entries<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Entries::Few(few) => few.next().map(|(key, value)| (key, value)),
            Entries::Many(many) => many.next(),
        }
    }
}

impl<K, V> DoubleEndedIterator for Entries<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Entries::Few(few) => few.next_back().map(|(key, value)| (key, value)),
            Entries::Many(many) => many.next_back(),
        }
    }
}

impl<'a, K: Ord, V> IntoIterator for &'a Table<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Entries<'a, K, V>;

    fn into_iter(self) -> Entries<'a, K, V> {
        self.iter()
    }
}

/// Entries in order, owned.
#[derive(Debug)]
pub(crate) enum Owned<K, V> {
    Few(vec::IntoIter<(K, V)>),
    Many(btree_map::IntoIter<K, V>),
}

impl<K, V> Default for Owned<K, V> {
    fn default() -> Self {
        Owned::Many(btree_map::IntoIter::default())
    }
}

impl<K, V> Owned<K, V> {
    pub fn is_empty(&self) -> bool {
        match self {
            Owned::Few(few) => few.len() == 0,
            Owned::Many(many) => many.len() == 0,
        }
    }
}

impl<K, V> Iterator for Owned<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        match self {
            Owned::Few(few) => few.next(),
            Owned::Many(many) => many.next(),
        }
    }
}

impl<K, V> IntoIterator for Table<K, V> {
    type Item = (K, V);
    type IntoIter = Owned<K, V>;

    fn into_iter(self) -> Owned<K, V> {
        match self {
            Table::Few(few) => Owned::Few(few.into_iter()),
            Table::Many(many) => Owned::Many(many.into_iter()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_what_a_map_is() {
        let mut rng = fastrand::Rng::with_seed(2);
        for round in 0..2000 {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for n in 0..rng.u32(..12) {
                let (a, b) = (rng.u8(..10), rng.u8(..10));
                let span = (Bound::Excluded(a.min(b)), Bound::Included(a.max(b)));
                match rng.u8(..8) {
                    0 => {
                        let mut gone = Vec::new();
                        table.remove_range(a.min(b)..a.max(b), |k, v| gone.push((k, v)));
                        let expected = map.extract_if(a.min(b)..a.max(b), |_, _| true);
                        assert_eq!(gone, expected.collect::<Vec<_>>());
                    }
                    1 => {
                        assert_eq!(table.get_mut(&a), map.get_mut(&a));
                        if let (Some(x), Some(y)) = (table.get_mut(&a), map.get_mut(&a)) {
                            (*x, *y) = (n, n);
                        }
                    }
                    _ => assert_eq!(table.insert(a, n), map.insert(a, n)),
                }
                assert_eq!((table.len(), table.is_empty()), (map.len(), map.is_empty()));
                assert_eq!(table.get(&b), map.get(&b));
                assert!(table.iter().eq(map.iter()), "{round}");
                assert!(table.range(b..).eq(map.range(b..)));
                assert!(table.range(..=b).rev().eq(map.range(..=b).rev()));
                if a != b {
                    assert!(table.range::<u8, _>(span).eq(map.range::<u8, _>(span)));
                }
            }
            let mut all = table.into_iter();
            assert_eq!(all.is_empty(), map.is_empty());
            assert!(all.by_ref().eq(map));
            assert!(all.is_empty());
        }
    }
}

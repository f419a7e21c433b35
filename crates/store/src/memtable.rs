//! Changes that are not in the tree yet.
//!
//! A memtable is a layer over the layers below it (an older memtable, the tree): rows that were put,
//! patched or deleted, and ranges deleted as a whole. Invariants: ranges do not overlap or touch, and a
//! range hides the layers below, never the rows of its own layer: deleting a range first drops the
//! layer's own rows in it, and what is put later stands above it.

use crate::codec::{Decoded, Malformed};
use crate::keys::Key;
use crate::patch::Patch;
use crate::rows::Shard;
use bytes::Bytes;
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

/// What becomes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is this.
    Put(Bytes),
    /// Some of it is different from what the layers below have.
    Patch(Patch),
    /// It is not there.
    Delete,
}

impl Change {
    fn bytes(&self) -> usize {
        match self {
            Change::Put(value) => value.len(),
            Change::Patch(patch) => patch.heap_bytes(),
            Change::Delete => 0,
        }
    }
}

impl From<Option<Bytes>> for Change {
    fn from(value: Option<Bytes>) -> Self {
        value.map_or(Change::Delete, Change::Put)
    }
}

/// A row as a memtable holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub change: Change,
    /// The last transaction that had a part in it.
    pub txn: u64,
}

/// A deleted range; it starts at its key in the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub end: Key,
    /// The last transaction that had a part in it.
    pub txn: u64,
}

/// What a layer says about a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    Row(&'a Row),
    /// A deleted range covers the key.
    Deleted {
        txn: u64,
    },
    /// Ask the layer below.
    Below,
}

/// Estimated memory of a row beside its bytes.
const ROW_OVERHEAD_BYTES: usize = 120;

/// One layer of changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memtable {
    rows: BTreeMap<Key, Row>,
    ranges: BTreeMap<Key, Range>,
    bytes: usize,
    /// There was a patch at some time.
    has_patches: bool,
}

fn row_bytes(key: &[u8], change: &Change) -> usize {
    key.len() + change.bytes() + ROW_OVERHEAD_BYTES
}

impl Memtable {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.ranges.is_empty()
    }

    /// Estimated memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Rows and ranges.
    pub fn len(&self) -> usize {
        self.rows.len() + self.ranges.len()
    }

    /// Whether there may be patches among the rows.
    pub fn has_patches(&self) -> bool {
        self.has_patches
    }

    pub fn rows(&self) -> &BTreeMap<Key, Row> {
        &self.rows
    }

    pub fn ranges(&self) -> &BTreeMap<Key, Range> {
        &self.ranges
    }

    pub fn put(&mut self, key: Key, value: Option<Bytes>, txn: u64) {
        self.put_change(key, Change::from(value), txn);
    }

    fn put_change(&mut self, key: Key, change: Change, txn: u64) {
        self.bytes += row_bytes(&key, &change);
        let key_len = key.len();
        if let Some(old) = self.rows.insert(key, Row { change, txn }) {
            self.bytes -= key_len + old.change.bytes() + ROW_OVERHEAD_BYTES;
        }
    }

    /// Changes something of a row, here or in a layer below.
    pub fn patch(&mut self, key: Key, patch: Patch, txn: u64) -> Decoded<()> {
        let deleted = Malformed("a patch of a row that is not there");
        self.has_patches = true;
        let covered = self.covering(&key).is_some();
        match self.rows.entry(key) {
            btree_map::Entry::Vacant(_) if covered => Err(deleted),
            btree_map::Entry::Vacant(place) => {
                let change = Change::Patch(patch);
                self.bytes += row_bytes(place.key(), &change);
                place.insert(Row { change, txn });
                Ok(())
            }
            btree_map::Entry::Occupied(mut place) => {
                let row = place.get_mut();
                let before = row.change.bytes();
                match &mut row.change {
                    Change::Put(value) => *value = Shard::patched(value, &patch)?,
                    Change::Patch(earlier) => earlier.add(&patch),
                    Change::Delete => return Err(deleted),
                }
                row.txn = txn;
                self.bytes = self.bytes - before + row.change.bytes();
                Ok(())
            }
        }
    }

    /// Deletes `from..to`.
    pub fn delete_range(&mut self, from: Key, to: Key, txn: u64) {
        assert!(from < to, "a deleted range is not empty");
        let span = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
        let mut freed = 0;
        for (key, row) in self.rows.extract_if(span, |_, _| true) {
            freed += row_bytes(&key, &row.change);
        }
        self.bytes -= freed;
        self.add_range(from, to, txn);
    }

    fn add_range(&mut self, mut from: Key, mut to: Key, mut txn: u64) {
        // Ranges that overlap or touch become one.
        if let Some((start, range)) = self.ranges.range::<Key, _>(..=&from).next_back()
            && range.end >= from
        {
            from = start.clone();
        }
        let span = (Bound::Included(from.clone()), Bound::Included(to.clone()));
        let merged: Vec<(Key, Range)> = self.ranges.extract_if(span, |_, _| true).collect();
        for (start, range) in merged {
            self.bytes -= start.len() + range.end.len() + ROW_OVERHEAD_BYTES;
            to = to.max(range.end);
            txn = txn.max(range.txn);
        }
        self.bytes += from.len() + to.len() + ROW_OVERHEAD_BYTES;
        self.ranges.insert(from, Range { end: to, txn });
    }

    /// The range that covers `key`: its end and transaction.
    pub fn covering(&self, key: &[u8]) -> Option<&Range> {
        if self.ranges.is_empty() {
            return None;
        }
        let span = (Bound::Unbounded, Bound::Included(key));
        let (_, range) = self.ranges.range::<[u8], _>(span).next_back()?;
        (key < range.end.as_slice()).then_some(range)
    }

    pub fn get(&self, key: &[u8]) -> Found<'_> {
        if let Some(row) = self.rows.get(key) {
            return Found::Row(row);
        }
        match self.covering(key) {
            Some(range) => Found::Deleted { txn: range.txn },
            None => Found::Below,
        }
    }

    /// The first row at or after `from`.
    pub fn row_from(&self, from: &[u8]) -> Option<(&Key, &Row)> {
        self.rows.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).next()
    }

    /// Rows from `from` on, in order.
    pub fn rows_from(&self, from: &[u8]) -> std::collections::btree_map::Range<'_, Key, Row> {
        self.rows.range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
    }

    /// The first key at or after `from` that this layer changes. Within a deleted range every key
    /// is changed.
    pub fn change_from(&self, from: &[u8]) -> Option<Key> {
        if self.covering(from).is_some() {
            return Some(Key::from_slice(from));
        }
        let row = self.row_from(from).map(|(key, _)| key);
        let span = (Bound::Included(from), Bound::Unbounded);
        let range = self.ranges.range::<[u8], _>(span).next().map(|(start, _)| start);
        match (row, range) {
            (Some(a), Some(b)) => Some(a.min(b).clone()),
            (a, b) => a.or(b).cloned(),
        }
    }

    /// Whether one deleted range covers all of `from..to` (`None`: to the end of all keys).
    pub fn covers(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        match (self.covering(from), to) {
            (Some(range), Some(to)) => range.end.as_slice() >= to,
            _ => false,
        }
    }

    /// Whether a deleted range touches `from..to`.
    pub fn deletes_in(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        if self.covering(from).is_some() {
            return true;
        }
        let span = (Bound::Included(from), Bound::Unbounded);
        let next = self.ranges.range::<[u8], _>(span).next();
        next.is_some_and(|(start, _)| to.is_none_or(|to| start.as_slice() < to))
    }

    /// Puts the changes of `above` on top of this layer, as of transaction `txn`.
    pub fn absorb(&mut self, above: Memtable, txn: u64) -> Decoded<()> {
        for (from, range) in above.ranges {
            self.delete_range(from, range.end, txn);
        }
        for (key, row) in above.rows {
            match row.change {
                Change::Patch(patch) => self.patch(key, patch, txn)?,
                change => self.put_change(key, change, txn),
            }
        }
        Ok(())
    }
}

/// A memtable on its way out: its memory is given back in slices.
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    rows: btree_map::IntoIter<Key, Row>,
    ranges: btree_map::IntoIter<Key, Range>,
}

impl From<Memtable> for Garbage {
    fn from(table: Memtable) -> Self {
        Garbage { rows: table.rows.into_iter(), ranges: table.ranges.into_iter() }
    }
}

impl Garbage {
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0 && self.ranges.len() == 0
    }

    /// Drops up to `n` rows and as many ranges.
    pub fn shrink(&mut self, n: usize) {
        self.rows.by_ref().take(n).for_each(drop);
        self.ranges.by_ref().take(n).for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(n: u8) -> Key {
        Key::from_slice(&[n])
    }

    #[test]
    fn a_range_hides_what_is_below_and_before_it() {
        let mut m = Memtable::default();
        m.put(key(5), Some(Bytes::from_static(b"old")), 1);
        m.delete_range(key(3), key(7), 2);
        assert_eq!(m.get(&[5]), Found::Deleted { txn: 2 });
        m.put(key(5), Some(Bytes::from_static(b"new")), 3);
        assert!(matches!(m.get(&[5]), Found::Row(Row { txn: 3, .. })));
        assert_eq!(m.get(&[7]), Found::Below);
        m.delete_range(key(7), key(9), 4);
        assert_eq!(m.ranges().len(), 1);
        assert!(m.covers(&[3], Some(&[9])));
        assert!(!m.covers(&[3], None));
        assert_eq!(m.change_from(&[0]), Some(key(3)));
        assert_eq!(m.change_from(&[8]), Some(key(8)));
        assert_eq!(m.change_from(&[9]), None);
    }

    #[test]
    fn only_what_may_be_there_is_patched() {
        let mut patch = Patch::default();
        patch.set(3, 4);
        let mut m = Memtable::default();
        m.put(key(1), None, 1);
        m.delete_range(key(3), key(5), 1);
        assert!(m.patch(key(1), patch.clone(), 2).is_err());
        assert!(m.patch(key(4), patch.clone(), 2).is_err());
        assert!(m.patch(key(5), patch.clone(), 2).is_ok() && m.has_patches());
        let bytes = m.bytes();
        m.put(key(5), Some(Bytes::from_static(b"whole")), 3);
        assert_eq!(m.bytes(), bytes + 5);
        // It is no row of extents.
        assert!(m.patch(key(5), patch, 4).is_err());
    }

    proptest! {
        /// Against a plain map of what each key of 0..40 looks like.
        #[test]
        fn behaves_like_a_map(ops in proptest::collection::vec((0u8..3, 0u8..40, 1u8..9), 0..60)) {
            let mut m = Memtable::default();
            let mut plain: Vec<Option<Option<u8>>> = vec![None; 50];
            for (op, at, n) in ops {
                match op {
                    0 => {
                        m.put(key(at), Some(Bytes::from(vec![n])), 1);
                        plain[usize::from(at)] = Some(Some(n));
                    }
                    1 => {
                        m.put(key(at), None, 1);
                        plain[usize::from(at)] = Some(None);
                    }
                    _ => {
                        m.delete_range(key(at), key(at + n), 1);
                        plain[usize::from(at)..usize::from(at + n)].fill(Some(None));
                    }
                }
            }
            for (i, want) in plain.iter().enumerate() {
                let got = match m.get(&[i as u8]) {
                    Found::Row(Row { change: Change::Put(v), .. }) => Some(Some(v[0])),
                    Found::Row(_) => Some(None),
                    Found::Deleted { .. } => Some(None),
                    Found::Below => None,
                };
                prop_assert_eq!(got, *want);
            }
            let mut bytes: usize = m.rows().iter().map(|(k, r)| row_bytes(k, &r.change)).sum();
            bytes += m.ranges().iter().map(|(k, r)| k.len() + r.end.len() + ROW_OVERHEAD_BYTES).sum::<usize>();
            prop_assert_eq!(m.bytes(), bytes);
        }
    }
}

//! Changes that are not in the tree yet.
//!
//! A memtable is a layer over the layers below it (an older memtable, the tree): rows that were put,
//! patched or deleted, and ranges deleted as a whole. Invariants: ranges do not overlap or touch, and a
//! range hides the layers below, never the rows of its own layer: deleting a range first drops the
//! layer's own rows in it, and what is put later stands above it. A shard is patched or among the rows that
//! were put or deleted, never both: a patch of a row that was put changes it there.

mod patches;
mod table;

use crate::codec::{Decoded, Malformed};
use crate::keys::{self, Key, ShardId};
use crate::patch::Patch;
use crate::rows::Shard;
use bytes::Bytes;
use io::BLOCK_BYTES;
use patches::Patches;
use std::borrow::Cow;
use std::iter::Peekable;
use std::ops::Bound;
use table::{Entries, Owned, Table};

/// What becomes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// It is this.
    Put(&'a Bytes),
    /// Some of it is different from what the layers below have.
    Patch(Patch),
    /// It is not there.
    Delete,
}

/// What a layer changes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed<'a> {
    pub key: Cow<'a, Key>,
    pub change: Change<'a>,
    /// The last transaction that had a part in it.
    pub txn: u64,
}

/// A row that was put, or deleted (`None`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub value: Option<Bytes>,
    /// The last transaction that had a part in it.
    pub txn: u64,
}

impl Row {
    fn change(&self) -> Change<'_> {
        self.value.as_ref().map_or(Change::Delete, Change::Put)
    }
}

/// A deleted range; it starts at its key in the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub end: Key,
    /// The last transaction that had a part in it.
    pub txn: u64,
}

/// What a layer says about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    Put {
        value: &'a Bytes,
        txn: u64,
    },
    /// Some of the row is different from what the layers below have.
    Patched {
        patch: Patch,
        txn: u64,
    },
    Deleted {
        txn: u64,
    },
    /// Ask the layer below.
    Below,
}

/// Bytes of a row from which on it may not fit into a node of one block.
const LONG_ROW_BYTES: usize = BLOCK_BYTES - 64;
/// Bytes of a key of which a node of one block may not hold as many as an inner node must.
pub(crate) const LONG_KEY_BYTES: usize = 200;

/// Estimated memory of a row beside its bytes.
const ROW_OVERHEAD_BYTES: usize = 120;

/// One layer of changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memtable {
    rows: Table<Key, Row>,
    /// Whether a shard may be among the rows. Where blocks are written over in place there is none, and
    /// looking for it would be a search through all of them for each block.
    has_shards: bool,
    /// Of shards that are not among the rows.
    patches: Patches,
    ranges: Table<Key, Range>,
    /// Estimated memory of rows and ranges.
    bytes: usize,
    long: Long,
}

/// What may need tree nodes of several blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Long {
    /// Rows that do not fit into a node of one block.
    pub rows: usize,
    /// Bytes of those rows.
    pub row_bytes: usize,
    /// Bytes of keys of which fewer than an inner node's least number fit into one block.
    pub key_bytes: usize,
}

impl Long {
    /// Whether there may be something long about a row.
    #[inline]
    fn may_be(key: usize, value: usize) -> bool {
        key >= LONG_KEY_BYTES || value >= LONG_ROW_BYTES - LONG_KEY_BYTES
    }

    /// Of one row.
    fn of(key: usize, value: usize) -> Long {
        let row = key.saturating_add(value);
        let (is_long, has_long_key) = (row >= LONG_ROW_BYTES, key >= LONG_KEY_BYTES);
        Long {
            rows: usize::from(is_long),
            row_bytes: if is_long { row } else { 0 },
            key_bytes: if has_long_key { key } else { 0 },
        }
    }

    #[inline]
    pub fn plus(self, other: Long) -> Long {
        Long {
            rows: self.rows + other.rows,
            row_bytes: self.row_bytes + other.row_bytes,
            key_bytes: self.key_bytes + other.key_bytes,
        }
    }

    fn remove(&mut self, other: Long) {
        self.rows -= other.rows;
        self.row_bytes -= other.row_bytes;
        self.key_bytes -= other.key_bytes;
    }
}

/// Bytes of key and value.
fn row_lens(key: &[u8], value: Option<&Bytes>) -> (usize, usize) {
    (key.len(), value.map_or(0, Bytes::len))
}

impl Memtable {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.patches.is_empty() && self.ranges.is_empty()
    }

    /// Estimated memory.
    pub fn bytes(&self) -> usize {
        self.bytes + self.patches.blocks() * patches::PATCHED_BLOCK_BYTES
    }

    /// What of it may need nodes of several blocks.
    pub fn long(&self) -> Long {
        self.long
    }

    /// Rows, patched blocks and ranges.
    pub fn len(&self) -> usize {
        self.rows.len() + self.patches.blocks() + self.ranges.len()
    }

    /// Rows that were put or deleted.
    pub fn rows(&self) -> &Table<Key, Row> {
        &self.rows
    }

    pub fn patches(&self) -> &Patches {
        &self.patches
    }

    pub fn ranges(&self) -> &Table<Key, Range> {
        &self.ranges
    }

    pub fn put(&mut self, key: Key, value: Option<Bytes>, txn: u64) {
        if let Some(id) = keys::shard_of(&key) {
            self.has_shards = true;
            if !self.patches.is_empty() {
                self.patches.remove(id);
            }
        }
        let (key_len, len) = row_lens(&key, value.as_ref());
        self.count((key_len, len));
        if let Some(old) = self.rows.insert(key, Row { value, txn }) {
            self.uncount((key_len, old.value.map_or(0, |value| value.len())));
        }
    }

    fn count(&mut self, (key, value): (usize, usize)) {
        self.bytes += key + value + ROW_OVERHEAD_BYTES;
        if Long::may_be(key, value) {
            self.long = self.long.plus(Long::of(key, value));
        }
    }

    fn uncount(&mut self, (key, value): (usize, usize)) {
        self.bytes -= key + value + ROW_OVERHEAD_BYTES;
        if Long::may_be(key, value) {
            self.long.remove(Long::of(key, value));
        }
    }

    /// Changes something of a shard's row, here or in a layer below.
    pub fn patch(&mut self, id: ShardId, patch: &Patch, txn: u64) -> Decoded<()> {
        let deleted = Malformed("a patch of a row that is not there");
        let key = keys::shard(id.0, id.1);
        let covered = self.covering(&key).is_some();
        let row = if self.has_shards { self.rows.get_mut(&key) } else { None };
        match row {
            Some(Row { value: None, .. }) => return Err(deleted),
            Some(Row { value: Some(value), txn: last }) => {
                // The row's length stays.
                Shard::patch(value, patch)?;
                *last = txn;
            }
            None if covered => return Err(deleted),
            None => self.patches.add(id, patch, txn),
        }
        Ok(())
    }

    /// Deletes `from..to`.
    pub fn delete_range(&mut self, from: Key, to: Key, txn: u64) {
        assert!(from < to, "a deleted range is not empty");
        let span = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
        let mut rows = std::mem::take(&mut self.rows);
        rows.remove_range(span, |key, row| self.uncount(row_lens(&key, row.value.as_ref())));
        self.rows = rows;
        self.patches.remove_range(keys::first_shard(&from), keys::first_shard(&to));
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
        let mut freed = 0;
        self.ranges.remove_range(span, |start, range| {
            freed += start.len() + range.end.len() + ROW_OVERHEAD_BYTES;
            to = std::mem::take(&mut to).max(range.end);
            txn = txn.max(range.txn);
        });
        self.bytes -= freed;
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
        let shard = if self.patches.is_empty() { None } else { keys::shard_of(key) };
        let row = if shard.is_none() || self.has_shards { self.rows.get(key) } else { None };
        match row {
            Some(Row { value: Some(value), txn }) => return Found::Put { value, txn: *txn },
            Some(Row { value: None, txn }) => return Found::Deleted { txn: *txn },
            None => {}
        }
        if let Some((patch, txn)) = shard.and_then(|id| self.patches.get(id)) {
            return Found::Patched { patch, txn };
        }
        match self.covering(key) {
            Some(range) => Found::Deleted { txn: range.txn },
            None => Found::Below,
        }
    }

    /// What is changed from `from` on, row by row, in order.
    pub fn rows_from(&self, from: &[u8]) -> Changes<'_> {
        let rows = self.rows.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        Changes { rows: rows.peekable(), patches: self.patches.from(keys::first_shard(from)) }
    }

    /// The first key at or after `from` that this layer changes. Within a deleted range every key
    /// is changed.
    pub fn change_from(&self, from: &[u8]) -> Option<Key> {
        if self.covering(from).is_some() {
            return Some(Key::from_slice(from));
        }
        let span = (Bound::Included(from), Bound::Unbounded);
        let row = self.rows.range::<[u8], _>(span).next().map(|(key, _)| key.clone());
        let range = self.ranges.range::<[u8], _>(span).next().map(|(start, _)| start.clone());
        let patch = self.patches.from(keys::first_shard(from)).peek();
        let patch = patch.map(|(id, number)| keys::shard(id, number));
        [row, range, patch].into_iter().flatten().min()
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
        for (id, patch, _) in above.patches.all() {
            self.patch(id, &patch, txn)?;
        }
        for (key, row) in above.rows {
            self.put(key, row.value, txn);
        }
        Ok(())
    }
}

/// Rows that a layer changes, in order.
pub(crate) struct Changes<'a> {
    rows: Peekable<Entries<'a, Key, Row>>,
    patches: patches::Shards<'a>,
}

impl<'a> Iterator for Changes<'a> {
    type Item = Changed<'a>;

    fn next(&mut self) -> Option<Changed<'a>> {
        let row = self.rows.peek().map(|(key, _)| keys::first_shard(key));
        let is_patch = match (self.patches.peek(), row) {
            (None, _) => false,
            // A row before a shard is before, or is, the first shard that is not before the row.
            (Some(id), Some(Some(first))) => id < first,
            (Some(_), _) => true,
        };
        if is_patch {
            let (id, patch, txn) = self.patches.next()?;
            let key = Cow::Owned(keys::shard(id.0, id.1));
            return Some(Changed { key, change: Change::Patch(patch), txn });
        }
        let (key, row) = self.rows.next()?;
        Some(Changed { key: Cow::Borrowed(key), change: row.change(), txn: row.txn })
    }
}

/// A memtable on its way out: its memory is given back in slices.
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    rows: Owned<Key, Row>,
    patches: patches::Blocks,
    ranges: Owned<Key, Range>,
}

impl From<Memtable> for Garbage {
    fn from(table: Memtable) -> Self {
        Garbage {
            rows: table.rows.into_iter(),
            patches: table.patches.into_blocks(),
            ranges: table.ranges.into_iter(),
        }
    }
}

impl Garbage {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.patches.is_empty() && self.ranges.is_empty()
    }

    /// Drops up to `n` rows, and as many patched blocks and ranges.
    pub fn shrink(&mut self, n: usize) {
        self.rows.by_ref().take(n).for_each(drop);
        self.patches.shrink(n);
        self.ranges.by_ref().take(n).for_each(drop);
    }
}

#[cfg(test)]
mod tests;

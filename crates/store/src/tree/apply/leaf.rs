//! Merging a leaf with the changes of its range.

use super::super::filter::Filter;
use super::super::node::{Entry, Node, PagePtr, Payload};
use super::fill::entry_bytes;
use crate::keys::{self, Key};
use crate::memtable::{Change, Changed, Memtable};
use crate::rows::Shard;
use io::BLOCK_BYTES;
use std::sync::Arc;

/// From this on a leaf being merged gives up its first part.
const STREAM_BYTES: usize = 4 * BLOCK_BYTES;

/// A leaf being merged with the changes of its range.
pub(super) struct LeafJob {
    pub old: Option<Arc<Node>>,
    /// Where the first old leaf is, and what is known of it.
    pub place: Option<(PagePtr, Filter)>,
    at: usize,
    /// Something is different from that leaf.
    pub changed: bool,
    /// The smallest key that may come here: the separator of the first new leaf.
    pub lower: Key,
    pub upper: Option<Key>,
    /// Whether deleted ranges touch the old leaf.
    deletes: bool,
    /// A new key came behind all old ones.
    pub appended: bool,
    /// A new key came before an old one.
    pub inserted: bool,
    pub pending: Vec<Entry>,
    pub pending_bytes: usize,
    /// Last key of the new leaf before.
    pub last: Option<Key>,
}

impl LeafJob {
    pub fn new(
        old: Option<(PagePtr, Filter, Arc<Node>)>,
        lower: Key,
        upper: Option<Key>,
        changes: &Memtable,
    ) -> Self {
        let deletes = changes.deletes_in(&lower, upper.as_deref());
        let (place, old) = old.map(|(ptr, filter, node)| ((ptr, filter), node)).unzip();
        LeafJob {
            old,
            place,
            at: 0,
            changed: false,
            lower,
            upper,
            deletes,
            appended: false,
            inserted: false,
            pending: Vec::new(),
            pending_bytes: 0,
            last: None,
        }
    }

    /// Takes in the next leaf.
    pub fn go_on(&mut self, node: Arc<Node>, upper: Option<Key>, changes: &Memtable) {
        self.deletes = changes.deletes_in(&node.key(0), upper.as_deref());
        (self.old, self.at, self.upper) = (Some(node), 0, upper);
        (self.changed, self.inserted) = (true, true);
    }

    /// Merges; true when the end of the leaf's range is reached. An error is what cannot be.
    pub fn merge(
        &mut self,
        changes: &Memtable,
        pos: &mut Option<Key>,
        budget: &mut usize,
    ) -> Result<bool, &'static str> {
        let Some(from) = pos.clone() else {
            return Ok(self.take_old_until(None, changes, budget));
        };
        let mut rows = changes.rows_from(&from);
        loop {
            let next = rows.next().filter(|c| self.upper.as_ref().is_none_or(|u| *c.key < *u));
            let Some(Changed { key, change, .. }) = next else {
                return Ok(self.take_old_until(None, changes, budget));
            };
            if !self.take_old_until(Some(&key), changes, budget) {
                return Ok(false);
            }
            let replaced = self.old.as_ref().is_some_and(|old| old.is_key(self.at, &key));
            let value = match change {
                Change::Put(value) => Some(value.clone()),
                Change::Delete => None,
                Change::Patch(patch) => {
                    let old = self.old.as_ref().filter(|_| replaced).map(|n| n.value(self.at));
                    let old = old.ok_or("a row that was patched is not there")?;
                    Some(Shard::patched(old, &patch).map_err(|why| why.0)?)
                }
            };
            self.at += usize::from(replaced);
            self.changed |= replaced || value.is_some();
            if let Some(value) = value {
                if !replaced {
                    let inside = self.old.as_ref().is_some_and(|old| self.at < old.count());
                    self.inserted |= inside;
                    self.appended |= !inside;
                }
                self.push((Key::clone(&key), Payload::Value(value)));
            }
            *pos = Some(keys::after(&key));
            *budget = budget.saturating_sub(1);
            if *budget == 0 || self.is_long() {
                return Ok(false);
            }
        }
    }

    /// Enough for a first new leaf. An unchanged leaf gives nothing away: it may yet stay.
    pub fn is_long(&self) -> bool {
        self.changed && self.pending_bytes >= STREAM_BYTES
    }

    /// Takes over the old entries below `end` that are not deleted; true when all are.
    fn take_old_until(
        &mut self,
        end: Option<&Key>,
        changes: &Memtable,
        budget: &mut usize,
    ) -> bool {
        let Some(node) = self.old.clone() else { return true };
        let end = end.map_or(node.count(), |end| node.search(end).0);
        while self.at < end {
            if self.is_long() {
                return false;
            }
            let key = node.key(self.at);
            if self.deletes && changes.covering(&key).is_some() {
                self.changed = true;
            } else {
                self.push((key, Payload::Value(node.value(self.at))));
            }
            self.at += 1;
            *budget = budget.saturating_sub(1);
        }
        true
    }

    fn push(&mut self, entry: Entry) {
        self.pending_bytes += entry_bytes(&entry);
        self.pending.push(entry);
    }
}

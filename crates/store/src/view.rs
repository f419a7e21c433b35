//! Reading the ordered space: memtables over the tree.

use crate::gaps::{Gaps, Passing};
use crate::memtable::{Change, Changes, Found, Memtable};
use crate::patch::Patch;
use crate::rows::Shard;
use crate::tree::cache::PageCache;
use crate::tree::range::{RangeNodes, RangeSearch};
use crate::tree::{Cursor, Tree, TreeMiss};
use bytes::Bytes;
use smallvec::SmallVec;
use std::iter::Peekable;
use std::ops::Bound;

type Rows<'a> = Peekable<Changes<'a>>;

/// The layers at one moment.
#[derive(Clone)]
pub(crate) struct View<'a> {
    /// Newest first.
    pub layers: SmallVec<[&'a Memtable; 3]>,
    pub tree: Tree,
    pub pages: &'a PageCache,
    /// Told the transaction of every change that an answer depends on.
    pub watch: Option<&'a dyn Fn(u64)>,
    /// Told what scans find to be removed from the newest layer on.
    pub gaps: Option<&'a Gaps>,
}

impl<'a> View<'a> {
    fn note(&self, txn: u64) {
        if let Some(watch) = self.watch {
            watch(txn);
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TreeMiss> {
        self.get_below(0, key)
    }

    /// What the layers from `first` on have.
    fn get_below(&self, first: usize, key: &[u8]) -> Result<Option<Bytes>, TreeMiss> {
        for (i, layer) in self.layers.iter().enumerate().skip(first) {
            match layer.get(key) {
                Found::Put { value, txn } => {
                    self.note(txn);
                    return Ok(Some(value.clone()));
                }
                Found::Patched { patch, txn } => {
                    self.note(txn);
                    return self.patched(i + 1, key, &patch).map(Some);
                }
                Found::Deleted { txn } => {
                    self.note(txn);
                    return Ok(None);
                }
                Found::Below => {}
            }
        }
        self.tree.get(self.pages, key)
    }

    /// The row of the layers from `first` on, with what a patch above them changes.
    fn patched(&self, first: usize, key: &[u8], patch: &Patch) -> Result<Bytes, TreeMiss> {
        let damaged = |what| TreeMiss::Damaged { block: 0, what };
        let row =
            self.get_below(first, key)?.ok_or(damaged("a row that was patched is not there"))?;
        Shard::patched(row, patch).map_err(|why| damaged(why.0))
    }

    /// What the memtables change of a row that the tree has.
    pub fn patch(&self, key: &[u8]) -> Patch {
        let mut patch = Patch::default();
        for layer in &self.layers {
            match layer.get(key) {
                Found::Patched { patch: earlier, txn } => {
                    self.note(txn);
                    patch.add_below(&earlier);
                }
                Found::Put { txn, .. } | Found::Deleted { txn } => self.note(txn),
                Found::Below => {}
            }
        }
        patch
    }

    /// Calls `f` with every row of `from..to` in order, until it answers false.
    pub fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        f: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<(), TreeMiss> {
        if from >= to {
            return Ok(());
        }
        let mut passing = Passing::new(self.gaps);
        let scanned = self.scan_rows(from, to, &mut passing, f);
        passing.end();
        scanned
    }

    fn scan_rows(
        &self,
        from: &[u8],
        to: &[u8],
        passing: &mut Passing<'_>,
        f: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<(), TreeMiss> {
        self.note_ranges(from, to);
        let mut tree = Cursor::new(self.tree, self.pages, to);
        tree.seek(from)?;
        let mut heads: SmallVec<[Rows<'a>; 3]> =
            self.layers.iter().map(|l| l.rows_from(from).peekable()).collect();
        loop {
            // The smallest key, from the newest layer that has it.
            let mut least: Option<(&[u8], usize)> = None;
            for (i, rows) in heads.iter_mut().enumerate() {
                if let Some(changed) = rows.peek()
                    && least.is_none_or(|(l, _)| changed.key.as_slice() < l)
                {
                    least = Some((&changed.key, i));
                }
            }
            let in_tree = tree.key().filter(|key| least.is_none_or(|(l, _)| *key < l));
            let (key, source) = match (in_tree, least) {
                (Some(key), _) => (key, self.layers.len()),
                (None, Some(least)) => least,
                (None, None) => return Ok(()),
            };
            if key >= to {
                return Ok(());
            }
            if let Some(end) = self.hidden_until(key, source, passing)? {
                let end = crate::keys::Key::from_slice(end);
                self.skip_to(source, &end, &mut heads, &mut tree)?;
                continue;
            }
            if source == self.layers.len() {
                passing.end();
                if !f(key, &tree.value()) {
                    return Ok(());
                }
                tree.next()?;
                continue;
            }
            let key = crate::keys::Key::from_slice(key);
            if !self.take(source, &key, &mut heads, passing, f)? {
                return Ok(());
            }
            if tree.key() == Some(&key) {
                tree.next()?;
            }
        }
    }

    /// Gives the row `key` of layer `source` to `f` and drops it from all layers' heads.
    fn take(
        &self,
        source: usize,
        key: &[u8],
        heads: &mut [Rows<'a>],
        passing: &mut Passing<'_>,
        f: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<bool, TreeMiss> {
        let mut go_on = true;
        for (i, rows) in heads.iter_mut().enumerate() {
            let Some(changed) = rows.next_if(|c| c.key.as_slice() == key) else { continue };
            if i != source {
                continue;
            }
            self.note(changed.txn);
            match changed.change {
                Change::Put(value) => {
                    passing.end();
                    go_on = f(key, value);
                }
                Change::Patch(_) => {
                    passing.end();
                    go_on = self.get(key)?.is_none_or(|value| f(key, &value));
                }
                Change::Delete if source == 0 => passing.over(key, changed.txn)?,
                Change::Delete => passing.also(changed.txn),
            }
        }
        Ok(go_on)
    }

    /// The end of the deleted range that hides `key` of layer `source`.
    fn hidden_until(
        &self,
        key: &[u8],
        source: usize,
        passing: &mut Passing<'_>,
    ) -> Result<Option<&'a [u8]>, TreeMiss> {
        let mut until = None;
        for (i, layer) in self.layers.iter().take(source).enumerate() {
            let Some(range) = layer.covering(key) else { continue };
            until = until.max(Some(range.end.as_slice()));
            match i {
                0 => passing.over(key, range.txn)?,
                _ => passing.also(range.txn),
            }
        }
        Ok(until)
    }

    /// Moves the layers from `source` down to the first key at or after `to`.
    fn skip_to(
        &self,
        source: usize,
        to: &[u8],
        heads: &mut [Rows<'a>],
        tree: &mut Cursor<'_>,
    ) -> Result<(), TreeMiss> {
        match self.layers.get(source).zip(heads.get_mut(source)) {
            Some((layer, rows)) => *rows = layer.rows_from(to).peekable(),
            None => tree.seek(to)?,
        }
        Ok(())
    }

    /// The nodes that the rows of `from..to` are in; not in memory are at most `most` of those it names.
    /// What deletions hide is not looked for.
    pub fn nodes_of(&self, from: &[u8], to: &[u8], most: usize) -> Result<RangeNodes, TreeMiss> {
        let hides = |layer: &&Memtable, start: &[u8], end: &[u8]| {
            layer.covering(start).is_some_and(|range| range.end.as_slice() >= end)
        };
        let hidden = |start: &[u8], end: &[u8]| self.layers.iter().any(|l| hides(l, start, end));
        let search = RangeSearch { pages: self.pages, hidden: &hidden, most };
        self.tree.nodes_of(&search, from, to)
    }

    fn note_ranges(&self, from: &[u8], to: &[u8]) {
        if self.watch.is_none() {
            return;
        }
        for layer in &self.layers {
            if let Some(range) = layer.covering(from) {
                self.note(range.txn);
            }
            let span = (Bound::Included(from), Bound::Excluded(to));
            for (_, range) in layer.ranges().range::<[u8], _>(span) {
                self.note(range.txn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{self, Key};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(n: u8) -> Key {
        Key::from_slice(&[n])
    }

    #[test]
    fn patches_change_the_row_of_whatever_layer_has_it() {
        let shard = |crcs: [u32; 3]| {
            let mut shard = Shard::default();
            for (i, crc) in crcs.into_iter().enumerate() {
                shard.slots[i] = crate::rows::Slot::plain(100 + i as u64, crc);
            }
            shard.encode()
        };
        let patch = |slot, crc| {
            let mut patch = Patch::default();
            patch.set(slot, crc);
            patch
        };
        let mut layers = [Memtable::default(), Memtable::default(), Memtable::default()];
        let (here, nothing) = (keys::shard(5, 1), keys::shard(6, 1));
        layers[2].put(here.clone(), Some(shard([1, 2, 3])), 1);
        layers[1].patch((5, 1), &patch(0, 7), 2).unwrap();
        layers[1].patch((5, 1), &patch(1, 8), 3).unwrap();
        layers[0].patch((5, 1), &patch(1, 9), 4).unwrap();
        layers[0].patch((6, 1), &patch(1, 9), 4).unwrap();
        let pages = PageCache::new(0);
        let layers = layers.iter().collect();
        let by = std::cell::RefCell::new(Vec::new());
        let watch = |txn| by.borrow_mut().push(txn);
        let view =
            View { layers, tree: Tree::default(), pages: &pages, watch: Some(&watch), gaps: None };
        assert_eq!(view.get(&here), Ok(Some(shard([7, 9, 3]))));
        assert_eq!(by.take(), [4, 3, 1]);
        assert_eq!(view.patch(&here).slots(), [(0, 7), (1, 9)]);
        let mut seen = Vec::new();
        let all = view.scan(&[0], &nothing, &mut |k, v| {
            seen.push((k.to_vec(), v.clone()));
            true
        });
        assert_eq!((all, seen), (Ok(()), vec![(here.to_vec(), shard([7, 9, 3]))]));
        // There is nothing that could be patched.
        assert!(matches!(view.get(&nothing), Err(TreeMiss::Damaged { .. })));
    }

    proptest! {
        /// Three memtables over an empty tree against one map.
        #[test]
        fn layers_read_like_one_map(
            ops in proptest::collection::vec((0u8..3, 0u8..3, 0u8..40, 1u8..9), 0..80),
            from in 0u8..40, len in 0u8..40,
        ) {
            let mut layers = [Memtable::default(), Memtable::default(), Memtable::default()];
            let mut plain: BTreeMap<u8, u8> = BTreeMap::new();
            for layer in (0..3u8).rev() {
                for (_, op, at, n) in ops.iter().filter(|o| o.0 == layer) {
                    let m = &mut layers[usize::from(layer)];
                    match op {
                        0 => {
                            m.put(key(*at), Some(Bytes::from(vec![*n])), 1);
                            plain.insert(*at, *n);
                        }
                        1 => {
                            m.put(key(*at), None, 1);
                            plain.remove(at);
                        }
                        _ => {
                            m.delete_range(key(*at), key(at + n), 1);
                            plain.retain(|k, _| !(*at..at + n).contains(k));
                        }
                    }
                }
            }
            let pages = PageCache::new(0);
            let layers = layers.iter().collect();
            let view = View { layers, tree: Tree::default(), pages: &pages, watch: None, gaps: None };
            for k in 0..50u8 {
                let got = view.get(&[k]).unwrap();
                prop_assert_eq!(got.map(|v| v[0]), plain.get(&k).copied());
            }
            let mut got = Vec::new();
            view.scan(&[from], &[from + len], &mut |k, v| { got.push((k[0], v[0])); true }).unwrap();
            let want: Vec<_> = plain.range(from..from + len).map(|(k, v)| (*k, *v)).collect();
            prop_assert_eq!(got, want);
        }
    }
}

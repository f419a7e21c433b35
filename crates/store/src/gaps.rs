//! What was removed row by row, and turns out to be a range.
//!
//! Whoever removes a row does not know what stands beside it: each is a mark of its own in the memtable, over
//! a row in the tree, until the next checkpoint. An omap that is used as a queue (a log of changes, a list of
//! what is to be deleted) loses its first keys in this way, thousands of them, and each listing from its
//! beginning would go through all that is not there any more. But a scan that goes through it knows: nothing is
//! to be seen between the first of these rows and the last. So it notes that, and the memtable forgets the marks
//! and deletes the range ([`crate::plan::Rows::close_gaps`]). To any reader the store stays what it was; the next
//! scan takes one step, the memtable has less memory and the checkpoint less to do.

use crate::keys::{self, Key};
use crate::tree::TreeMiss;
use std::cell::{Cell, RefCell};

/// Fewer rows than this are not worth a range.
const LEAST_ROWS: usize = 16;
/// A scan passes over so many removed rows and then says what it knows; it is tried again, and begins behind them.
/// That many take a millisecond, and as long again to be forgotten.
const MOST_ROWS: usize = 4096;
/// Gaps that wait to be closed. What is not noted is found by the next scan.
const MOST_GAPS: usize = 64;

/// Rows that are not there, with nothing between them that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub from: Key,
    last: Key,
    rows: usize,
    /// The last transaction that had a part in it.
    pub txn: u64,
}

impl Gap {
    /// The first key behind it.
    pub fn to(&self) -> Key {
        keys::after(&self.last)
    }
}

/// The gaps that scans found.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    found: RefCell<Vec<Gap>>,
    passed: Cell<u64>,
}

impl Gaps {
    /// Removed rows that scans passed over.
    pub fn passed(&self) -> u64 {
        self.passed.get()
    }

    pub fn is_empty(&mut self) -> bool {
        self.found.get_mut().is_empty()
    }

    pub fn take(&mut self) -> Vec<Gap> {
        std::mem::take(self.found.get_mut())
    }
}

/// What one scan passes over.
pub(crate) struct Passing<'a> {
    gaps: Option<&'a Gaps>,
    gap: Option<Gap>,
    rows: usize,
}

impl<'a> Passing<'a> {
    /// `None`: nothing is noted.
    pub fn new(gaps: Option<&'a Gaps>) -> Self {
        Passing { gaps, gap: None, rows: 0 }
    }

    /// Passes over a row that the newest layer removed.
    pub fn over(&mut self, key: &[u8], txn: u64) -> Result<(), TreeMiss> {
        let Some(gaps) = self.gaps else { return Ok(()) };
        gaps.passed.set(gaps.passed.get() + 1);
        self.rows += 1;
        let first = || Gap { from: Key::from_slice(key), last: Key::new(), rows: 0, txn };
        let gap = self.gap.get_or_insert_with(first);
        gap.last.clear();
        gap.last.extend_from_slice(key);
        gap.rows += 1;
        gap.txn = gap.txn.max(txn);
        if self.rows >= MOST_ROWS && gap.rows >= LEAST_ROWS { Err(TreeMiss::Again) } else { Ok(()) }
    }

    /// Something older is not to be seen either, and `txn` had a part in that.
    pub fn also(&mut self, txn: u64) {
        if let Some(gap) = &mut self.gap {
            gap.txn = gap.txn.max(txn);
        }
    }

    /// Here is a row, or the scan's end.
    pub fn end(&mut self) {
        let Some(gap) = self.gap.take().filter(|gap| gap.rows >= LEAST_ROWS) else { return };
        if let Some(gaps) = self.gaps {
            let mut found = gaps.found.borrow_mut();
            if found.len() < MOST_GAPS {
                found.push(gap);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::Memtable;
    use crate::plan::Rows;
    use crate::tree::Tree;
    use crate::tree::cache::PageCache;
    use bytes::Bytes;
    use std::collections::BTreeMap;

    fn key(n: u16) -> Key {
        Key::from_slice(&n.to_be_bytes())
    }

    fn rows() -> Rows {
        let (tree, pages) = (Tree::default(), PageCache::new(0));
        let (active, frozen) = (Memtable::default(), None);
        Rows { active, frozen, tree, pages, gaps: Gaps::default() }
    }

    fn scan(rows: &Rows, from: u16, max: usize) -> Result<Vec<(u16, u8)>, TreeMiss> {
        let mut out = Vec::new();
        rows.view().scan(&key(from), &key(u16::MAX), &mut |key, value| {
            out.push((u16::from_be_bytes(key.try_into().unwrap()), value[0]));
            out.len() < max
        })?;
        Ok(out)
    }

    /// Keys come and go, in stretches as in a queue and one by one; now and then the layer is frozen, and put
    /// away.
    #[test]
    fn closing_gaps_changes_nothing_that_can_be_seen() {
        let mut closed = 0;
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut rows, mut plain) = (rows(), BTreeMap::new());
            for txn in 1..60 {
                let (at, len) = (rng.u16(..400), rng.u16(1..60));
                let mut changes = Memtable::default();
                match rng.u8(..8) {
                    0..3 => (at..at + len).for_each(|n| {
                        changes.put(key(n), Some(Bytes::from(vec![txn as u8])), 0);
                        plain.insert(n, txn as u8);
                    }),
                    3..6 => (at..at + len).for_each(|n| {
                        changes.put(key(n), None, 0);
                        plain.remove(&n);
                    }),
                    6 => {
                        changes.delete_range(key(at), key(at + len), 0);
                        plain.retain(|n, _| !(at..at + len).contains(n));
                    }
                    _ => {
                        rows.close_gaps();
                        let mut below = rows.frozen.take().unwrap_or_default();
                        below.absorb(std::mem::take(&mut rows.active), 0).unwrap();
                        rows.frozen = Some(below);
                    }
                }
                rows.absorb(changes, txn).unwrap();
                let (from, max) = (rng.u16(..400), rng.usize(1..100));
                let want: Vec<_> = plain.range(from..).take(max).map(|(k, v)| (*k, *v)).collect();
                assert_eq!(scan(&rows, from, max), Ok(want), "seed {seed}");
                if rng.bool() {
                    let (len, bytes) = (rows.active.len(), rows.active.bytes());
                    let found = !rows.gaps.is_empty();
                    rows.close_gaps();
                    // What a checkpoint needs of space is less, too.
                    assert!(!found || (rows.active.len() < len && rows.active.bytes() < bytes));
                    closed += usize::from(found);
                    let all: Vec<_> = plain.iter().map(|(k, v)| (*k, *v)).collect();
                    assert_eq!(scan(&rows, 0, usize::MAX), Ok(all), "seed {seed}");
                }
            }
        }
        assert!(closed > 500, "{closed} gaps");
    }

    #[test]
    fn what_was_removed_is_passed_over_once_and_in_parts() {
        let mut rows = rows();
        let removed = 3 * MOST_ROWS as u16 + 5;
        (0..removed).for_each(|n| rows.active.put(key(n), None, 1));
        (removed..removed + 9).for_each(|n| rows.active.put(key(n), Some(vec![7].into()), 2));
        for part in 1..4 {
            assert_eq!(scan(&rows, 0, 9), Err(TreeMiss::Again));
            rows.close_gaps();
            let passed = rows.gaps.passed();
            assert!(passed < (part * MOST_ROWS + 10) as u64, "{passed}");
        }
        assert_eq!(scan(&rows, 0, 9).unwrap()[0], (removed, 7));
        rows.close_gaps();
        let passed = rows.gaps.passed();
        assert_eq!(scan(&rows, 0, 9).unwrap().len(), 9);
        assert_eq!(rows.gaps.passed(), passed + 5);
    }

    /// Whoever builds on what is not there depends on the last one who removed some of it.
    #[test]
    fn a_gap_is_the_work_of_the_last_who_had_a_part_in_it() {
        let mut rows = rows();
        (0..20).for_each(|n| rows.active.put(key(2 * n), None, if n == 7 { 9 } else { 3 }));
        let mut below = Memtable::default();
        below.put(key(11), None, 12);
        below.put(key(60), None, 13);
        rows.frozen = Some(below);
        assert_eq!(scan(&rows, 0, 9), Ok(vec![]));
        let gap = Gap { from: key(0), last: key(38), rows: 20, txn: 13 };
        assert_eq!(rows.gaps.take(), [gap]);
    }
}

//! How entries are divided among nodes.

use super::super::node::{Entry, MAX_NODE_BLOCKS, NodeSize};
use io::BLOCK_BYTES;
use smallvec::{SmallVec, smallvec};

/// Bytes of the longest node.
const MAX_NODE_BYTES: usize = MAX_NODE_BLOCKS as usize * BLOCK_BYTES;

pub(super) fn entry_bytes((key, payload): &Entry) -> usize {
    key.len() + payload.len() + 4
}

/// How many of the first entries fill one node.
pub(super) fn dense_end(entries: &[Entry]) -> usize {
    Cuts::dense(1).end(entries)
}

/// Where entries are cut into nodes.
#[derive(Clone, Copy)]
pub(super) struct Cuts {
    /// A node with fewer entries may have more than one block.
    min: usize,
    /// A node of so many bytes takes no more.
    target: usize,
}

impl Cuts {
    /// Each node but the last is full.
    pub fn dense(min: usize) -> Self {
        Cuts { min, target: BLOCK_BYTES }
    }

    /// The fewest nodes that hold `entries`, each with as much as the others.
    pub fn even(entries: &[Entry], min: usize) -> Self {
        let dense = Cuts::dense(min);
        let (mut rest, mut nodes) = (entries, 0usize);
        while !rest.is_empty() {
            rest = rest.get(dense.fill(rest)..).unwrap_or_default();
            nodes += 1;
        }
        if nodes < 2 {
            return dense;
        }
        let bytes: usize = entries.iter().map(entry_bytes).sum();
        Cuts { min: min.min(entries.len().div_ceil(nodes)), target: bytes / nodes }
    }

    /// How many of the first entries make a node.
    pub fn end(self, entries: &[Entry]) -> usize {
        let count = self.fill(entries);
        let is_last = count == entries.len();
        if self.min == 1 || is_last || NodeSize::of(&entries[..count]).bytes() <= BLOCK_BYTES {
            return count;
        }
        // Long keys of children: the next node's goes up to its parent, so it had better be a short one.
        let ends = (count.div_ceil(2).max(2)..=count).rev();
        ends.min_by_key(|end| entries[*end].0.len()).unwrap_or(count)
    }

    fn fill(self, entries: &[Entry]) -> usize {
        let mut size = NodeSize::default();
        for entry in entries {
            let next = size.with(entry);
            let is_full = next.bytes() > BLOCK_BYTES || size.bytes() >= self.target;
            let is_longest = next.bytes() > MAX_NODE_BYTES;
            if size.count() > 0 && is_longest || is_full && size.count() >= self.min {
                break;
            }
            size = next;
        }
        size.count()
    }
}

/// Cuts entries into nodes: evenly, or each but the last full (`dense`).
pub(super) fn split(entries: Vec<Entry>, min: usize, dense: bool) -> SmallVec<[Vec<Entry>; 2]> {
    if entries.is_empty() {
        return SmallVec::new();
    }
    if NodeSize::of(&entries).bytes() <= BLOCK_BYTES {
        return smallvec![entries];
    }
    let cuts = if dense { Cuts::dense(min) } else { Cuts::even(&entries, min) };
    let mut out = SmallVec::new();
    let mut rest = entries.into_iter();
    while rest.len() > 0 {
        let count = cuts.end(rest.as_slice());
        out.push(rest.by_ref().take(count).collect());
    }
    out
}

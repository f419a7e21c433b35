//! How entries are divided among nodes.

use super::super::node::{Entry, NodeSize};
use io::BLOCK_BYTES;
use smallvec::{SmallVec, smallvec};

pub(super) fn entry_bytes((key, payload): &Entry) -> usize {
    key.len() + payload.len() + 4
}

/// How many of the first entries fill one node.
pub(super) fn dense_end(entries: &[Entry]) -> usize {
    fill_end(entries, 1, BLOCK_BYTES)
}

/// How many of the first entries make a node of up to `target` bytes, and of one block unless
/// there are fewer than `min`.
pub(super) fn fill_end(entries: &[Entry], min: usize, target: usize) -> usize {
    let mut size = NodeSize::default();
    for entry in entries {
        let next = size.with(entry);
        let full = next.bytes() > BLOCK_BYTES || size.bytes() >= target;
        if full && size.count() >= min {
            break;
        }
        size = next;
    }
    size.count()
}

/// Cuts entries into nodes: evenly, or each but the last full (`dense`).
pub(super) fn split(entries: Vec<Entry>, min: usize, dense: bool) -> SmallVec<[Vec<Entry>; 2]> {
    if entries.is_empty() {
        return SmallVec::new();
    }
    if NodeSize::of(&entries).bytes() <= BLOCK_BYTES {
        return smallvec![entries];
    }
    let target = if dense { BLOCK_BYTES } else { even_target(&entries, min) };
    let mut out = SmallVec::new();
    let mut rest = entries.into_iter();
    while rest.len() > 0 {
        let count = fill_end(rest.as_slice(), min, target);
        out.push(rest.by_ref().take(count).collect());
    }
    out
}

/// The size of each of the fewest nodes that hold `entries`.
pub(super) fn even_target(entries: &[Entry], min: usize) -> usize {
    let (mut rest, mut nodes) = (entries, 0usize);
    while !rest.is_empty() {
        let n = fill_end(rest, min, BLOCK_BYTES);
        rest = rest.get(n..).unwrap_or_default();
        nodes += 1;
    }
    let bytes: usize = entries.iter().map(entry_bytes).sum();
    if nodes < 2 { BLOCK_BYTES } else { bytes / nodes }
}

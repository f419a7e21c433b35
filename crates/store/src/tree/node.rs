//! Nodes of the tree as bytes.
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 4 | magic `LoTN` |
//! | 4 | 1 | format, 2 |
//! | 5 | 1 | level, 0 for a leaf |
//! | 6 | 2 | number of entries |
//! | 8 | 2 | length of the node in blocks, 1 to 16 |
//! | 10 | 2 | length of the prefix |
//! | 12 | 4 | bytes used, from the start of the node |
//! | 16 | 8 | generation of the checkpoint that wrote it |
//! | 24 | 8 | block where it was written |
//! | 32 | p | prefix that all keys share |
//! | 32+p | 2n | offset of each entry |
//! | .. | .. | entries: key length (2), the key's rest, and the payload |
//!
//! The payload of a leaf's entry is length (2) and value; of an inner node's entry block (8), blocks
//! (2) and crc32c (4) of the child, and length (1) and bytes of its [`Filter`]; a length of 255: there
//! is none. Nodes of format 1 have no filters and no lengths of them. Numbers are little-endian. The
//! crc32c over all blocks of a node is kept by its parent (the root's by the superblock), so a node
//! that was not written, or was written elsewhere, shows.
//!
//! Keys ascend strictly. An inner entry's key is at most the first key of its child and above the
//! last key of the child before it; the first child also takes all smaller keys.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use super::filter::{Filter, MAX_FILTER_BYTES, may_hold};
use crate::codec::{Decoded, Malformed, Reader, put_at};
use crate::keys::Key;
use bytes::Bytes;
use io::{AlignedBuf, BLOCK_BYTES};
use std::cmp::Ordering;

const MAGIC: u32 = u32::from_le_bytes(*b"LoTN");
const FORMAT: u8 = 2;
/// The format without filters.
const FORMAT_PLAIN: u8 = 1;
const HEADER_BYTES: usize = 32;
/// Bytes of an entry beside key and payload: its offset and key length.
const ENTRY_BYTES: usize = 4;
/// Payload of an inner entry, without its filter and the length of that.
const CHILD_BYTES: usize = 14;
/// In place of the length of a filter: there is none.
const NO_FILTER: u8 = 255;
const _: () = assert!(MAX_FILTER_BYTES < NO_FILTER as usize);
/// Longest node: two keys of the greatest length must fit an inner node.
pub(crate) const MAX_NODE_BLOCKS: u16 = 16;
/// Greatest height of a tree; a deeper one is damaged.
pub(crate) const MAX_LEVEL: u8 = 24;

/// Where a node is and what it must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PagePtr {
    pub block: u64,
    pub blocks: u16,
    pub crc: u32,
}

/// A node that has been checked: every offset in it is good.
#[derive(Debug)]
pub(crate) struct Node {
    bytes: Bytes,
    level: u8,
    has_filters: bool,
    count: usize,
    prefix: usize,
}

/// The payload of an entry to be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Value(Bytes),
    Child(PagePtr, Filter),
}

impl Payload {
    /// Bytes that it takes.
    pub fn len(&self) -> usize {
        match self {
            Payload::Value(v) => v.len().saturating_add(2),
            Payload::Child(_, filter) => {
                let filter = filter.0.as_ref().map_or(0, Bytes::len);
                CHILD_BYTES.saturating_add(1).saturating_add(filter)
            }
        }
    }
}

/// An entry to be built.
pub(crate) type Entry = (Key, Payload);

impl Node {
    /// Checks a node read from the disk, whose checksum is known to be right.
    pub fn parse(bytes: Bytes) -> Decoded<Node> {
        let mut r = Reader::new(&bytes);
        let (magic, format) = (r.u32()?, r.u8()?);
        if magic != MAGIC || ![FORMAT, FORMAT_PLAIN].contains(&format) {
            return Err(Malformed("not a tree node of a known format"));
        }
        let level = r.u8()?;
        let count = usize::from(r.u16()?);
        let blocks = usize::from(r.u16()?);
        let prefix = usize::from(r.u16()?);
        if blocks.checked_mul(BLOCK_BYTES) != Some(bytes.len()) || level > MAX_LEVEL {
            return Err(Malformed("a tree node of impossible size"));
        }
        let has_filters = level > 0 && format == FORMAT;
        let node = Node { bytes, level, has_filters, count, prefix };
        if count == 0 || node.slot_offset(count) > node.bytes.len() {
            return Err(Malformed("a tree node with an impossible number of entries"));
        }
        node.check_entries()?;
        Ok(node)
    }

    fn check_entries(&self) -> Decoded<()> {
        let mut last: Option<&[u8]> = None;
        for i in 0..self.count {
            let (suffix, _) = self.raw_entry(i).ok_or(Malformed("a damaged tree entry"))?;
            if last.is_some_and(|l| l >= suffix) {
                return Err(Malformed("tree keys out of order"));
            }
            last = Some(suffix);
        }
        Ok(())
    }

    fn slot_offset(&self, i: usize) -> usize {
        HEADER_BYTES.saturating_add(self.prefix).saturating_add(i.saturating_mul(2))
    }

    /// Key suffix and payload (without its length) of entry `i`.
    fn raw_entry(&self, i: usize) -> Option<(&[u8], &[u8])> {
        let slot = self.bytes.get(self.slot_offset(i)..)?.first_chunk::<2>()?;
        let entry = self.bytes.get(usize::from(u16::from_le_bytes(*slot))..)?;
        let (len, rest) = entry.split_first_chunk::<2>()?;
        let (suffix, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        if self.level > 0 {
            let filter = if self.has_filters { filter_bytes(*rest.get(CHILD_BYTES)?) } else { 0 };
            return Some((suffix, rest.get(..CHILD_BYTES.checked_add(filter)?)?));
        }
        let (len, rest) = rest.split_first_chunk::<2>()?;
        Some((suffix, rest.get(..usize::from(u16::from_le_bytes(*len)))?))
    }

    pub fn level(&self) -> u8 {
        self.level
    }

    /// Number of entries, at least 1.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Memory it takes.
    pub fn memory(&self) -> usize {
        self.bytes.len().saturating_add(128)
    }

    /// The block where it was written.
    pub fn block(&self) -> u64 {
        self.header_u64(24)
    }

    fn header_u64(&self, at: usize) -> u64 {
        let field = self.bytes.get(at..).and_then(|b| b.first_chunk::<8>());
        field.map_or(0, |b| u64::from_le_bytes(*b))
    }

    /// All its bytes, as they stand on the disk.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    fn prefix(&self) -> &[u8] {
        let end = HEADER_BYTES.saturating_add(self.prefix);
        self.bytes.get(HEADER_BYTES..end).unwrap_or_default()
    }

    fn suffix(&self, i: usize) -> &[u8] {
        self.raw_entry(i).map_or(&[], |(suffix, _)| suffix)
    }

    /// The key of entry `i`.
    pub fn key(&self, i: usize) -> Key {
        let mut key = Key::from_slice(self.prefix());
        key.extend_from_slice(self.suffix(i));
        key
    }

    /// Whether there is an entry `i`, and this is its key.
    pub fn is_key(&self, i: usize, key: &[u8]) -> bool {
        i < self.count && key.strip_prefix(self.prefix()).is_some_and(|rest| rest == self.suffix(i))
    }

    /// Overwrites `key` with the key of entry `i`.
    pub fn key_into(&self, i: usize, key: &mut Key) {
        key.clear();
        key.extend_from_slice(self.prefix());
        key.extend_from_slice(self.suffix(i));
    }

    /// The value of entry `i` of a leaf; it shares the node's memory.
    pub fn value(&self, i: usize) -> Bytes {
        match self.raw_entry(i) {
            Some((_, value)) if self.level == 0 => self.bytes.slice_ref(value),
            _ => Bytes::new(),
        }
    }

    /// The child of entry `i` of an inner node.
    pub fn child(&self, i: usize) -> PagePtr {
        let payload = match self.raw_entry(i) {
            Some((_, payload)) if self.level > 0 => payload,
            _ => &[],
        };
        let mut r = Reader::new(payload);
        let fields = (|| Ok::<_, Malformed>((r.u64()?, r.u16()?, r.u32()?)))();
        let (block, blocks, crc) = fields.unwrap_or_default();
        PagePtr { block, blocks, crc }
    }

    /// What is known of the child of entry `i` of an inner node.
    pub fn filter(&self, i: usize) -> Filter {
        Filter(self.raw_filter(i).map(|filter| self.bytes.slice_ref(filter)))
    }

    /// Whether the child of entry `i`, a leaf, may hold a row of this key.
    pub fn may_hold(&self, i: usize, key: &[u8]) -> bool {
        may_hold(self.raw_filter(i), key)
    }

    fn raw_filter(&self, i: usize) -> Option<&[u8]> {
        let (_, payload) = self.raw_entry(i).filter(|_| self.has_filters)?;
        let (len, filter) = payload.get(CHILD_BYTES..)?.split_first()?;
        (*len != NO_FILTER).then_some(filter)
    }

    /// The index of the first entry whose key is not below `key`, and whether it equals it.
    pub fn search(&self, key: &[u8]) -> (usize, bool) {
        let prefix = self.prefix();
        let head = key.get(..prefix.len().min(key.len())).unwrap_or_default();
        match head.cmp(prefix) {
            Ordering::Less => return (0, false),
            Ordering::Greater => return (self.count, false),
            Ordering::Equal => {}
        }
        let rest = key.get(prefix.len()..).unwrap_or_default();
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let mid = low.midpoint(high);
            match self.suffix(mid).cmp(rest) {
                Ordering::Less => low = mid.saturating_add(1),
                Ordering::Equal => return (mid, true),
                Ordering::Greater => high = mid,
            }
        }
        (low, false)
    }

    /// The index of the child that `key` belongs to.
    pub fn child_index(&self, key: &[u8]) -> usize {
        let (at, exact) = self.search(key);
        if exact { at } else { at.saturating_sub(1) }
    }
}

/// Bytes of a filter and its length, by that.
fn filter_bytes(len: u8) -> usize {
    if len == NO_FILTER { 1 } else { usize::from(len).saturating_add(1) }
}

/// Length of the prefix two keys share.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// The shortest key that is above `left` and not above `right`.
pub(crate) fn separator(left: &[u8], right: &[u8]) -> Key {
    let keep = common_prefix(left, right).saturating_add(1);
    Key::from_slice(right.get(..keep.min(right.len())).unwrap_or_default())
}

/// Adds up the size of a node while entries are added to it, in ascending order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeSize<'a> {
    count: usize,
    first: &'a [u8],
    prefix: usize,
    bytes: usize,
}

impl<'a> NodeSize<'a> {
    /// The size with one more entry.
    #[must_use]
    pub fn with(mut self, (key, payload): &'a Entry) -> Self {
        if self.count == 0 {
            self.first = key;
            self.prefix = key.len();
        } else {
            let head = self.first.get(..self.prefix).unwrap_or_default();
            self.prefix = common_prefix(head, key);
        }
        self.count = self.count.saturating_add(1);
        let entry = ENTRY_BYTES.saturating_add(key.len()).saturating_add(payload.len());
        self.bytes = self.bytes.saturating_add(entry);
        self
    }

    /// The size of a node of all these entries.
    pub fn of(entries: &'a [Entry]) -> Self {
        entries.iter().fold(NodeSize::default(), NodeSize::with)
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn bytes(&self) -> usize {
        let shared = self.prefix.saturating_mul(self.count.saturating_sub(1));
        HEADER_BYTES.saturating_add(self.bytes).saturating_sub(shared)
    }

    /// Blocks a node of this size takes.
    pub fn blocks(&self) -> u16 {
        u16::try_from(self.bytes().div_ceil(BLOCK_BYTES)).unwrap_or(u16::MAX)
    }
}

/// The checksum a parent keeps of a node.
pub(crate) fn node_crc(bytes: &[u8]) -> u32 {
    denc::crc32c(0xffff_ffff, bytes)
}

/// Builds a node of entries, whose size is given, that will stand at `block`.
///
/// # Panics
/// When the entries are not in order, none, or too many for the longest node.
pub(crate) fn build(
    level: u8,
    (entries, size): (&[Entry], NodeSize<'_>),
    block: u64,
    generation: u64,
) -> (PagePtr, Node) {
    for pair in entries.windows(2) {
        if let [(a, _), (b, _)] = pair {
            assert!(a < b, "tree keys ascend");
        }
    }
    let blocks = size.blocks();
    assert_eq!(size.count(), entries.len(), "the size is that of the entries");
    assert!(!entries.is_empty() && blocks <= MAX_NODE_BLOCKS, "a node has a bounded size");
    let mut buf = AlignedBuf::zeroed(usize::from(blocks).saturating_mul(BLOCK_BYTES));
    let count = entries.len();
    let used = fill(buf.as_mut_slice(), entries, size.prefix);
    let out = buf.as_mut_slice();
    put_at(out, 0, MAGIC.to_le_bytes());
    put_at(out, 4, [FORMAT, level]);
    put_at(out, 6, (count as u16).to_le_bytes());
    put_at(out, 8, blocks.to_le_bytes());
    put_at(out, 10, (size.prefix as u16).to_le_bytes());
    put_at(out, 12, (used as u32).to_le_bytes());
    put_at(out, 16, generation.to_le_bytes());
    put_at(out, 24, block.to_le_bytes());
    let bytes = buf.freeze();
    let crc = node_crc(&bytes);
    let has_filters = level > 0;
    let node = Node { bytes, level, has_filters, count, prefix: size.prefix };
    (PagePtr { block, blocks, crc }, node)
}

/// Writes prefix, offsets and entries; gives the bytes used.
fn fill(out: &mut [u8], entries: &[Entry], prefix: usize) -> usize {
    let mut at = HEADER_BYTES;
    let mut put = |at: &mut usize, bytes: &[u8]| {
        let end = at.saturating_add(bytes.len());
        out.get_mut(*at..end).expect("the size was added up before").copy_from_slice(bytes);
        *at = end;
    };
    if let Some((key, _)) = entries.first() {
        put(&mut at, key.get(..prefix).unwrap_or_default());
    }
    let mut slot = at;
    at = at.saturating_add(entries.len().saturating_mul(2));
    for (key, payload) in entries {
        put(&mut slot, &(at as u16).to_le_bytes());
        let suffix = key.get(prefix..).unwrap_or_default();
        put(&mut at, &(suffix.len() as u16).to_le_bytes());
        put(&mut at, suffix);
        match payload {
            Payload::Value(value) => {
                put(&mut at, &(value.len() as u16).to_le_bytes());
                put(&mut at, value);
            }
            Payload::Child(ptr, filter) => {
                put(&mut at, &ptr.block.to_le_bytes());
                put(&mut at, &ptr.blocks.to_le_bytes());
                put(&mut at, &ptr.crc.to_le_bytes());
                let len =
                    filter.0.as_ref().map(|f| u8::try_from(f.len()).expect("filters are short"));
                put(&mut at, &[len.unwrap_or(NO_FILTER)]);
                put(&mut at, filter.0.as_deref().unwrap_or_default());
            }
        }
    }
    at
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn leaf_entries() -> impl Strategy<Value = Vec<Entry>> {
        let bytes = |n| proptest::collection::vec(any::<u8>(), 0..n);
        proptest::collection::btree_map(bytes(20), bytes(100), 1..30).prop_map(
            |m: BTreeMap<Vec<u8>, Vec<u8>>| {
                m.into_iter()
                    .map(|(k, v)| (Key::from_slice(&k), Payload::Value(v.into())))
                    .collect()
            },
        )
    }

    proptest! {
        #[test]
        fn leaves_hold_what_was_put_in(entries in leaf_entries(), probe in proptest::collection::vec(any::<u8>(), 0..9)) {
            let (ptr, built) = build(0, (&entries, NodeSize::of(&entries)), 77, 5);
            let node = Node::parse(built.bytes().clone()).unwrap();
            prop_assert_eq!(node_crc(node.bytes()), ptr.crc);
            prop_assert_eq!((node.block(), node.header_u64(16), node.count()), (77, 5, entries.len()));
            for (i, (k, v)) in entries.iter().enumerate() {
                prop_assert_eq!(&node.key(i), k);
                prop_assert_eq!(&Payload::Value(node.value(i)), v);
                prop_assert_eq!(node.search(k), (i, true));
            }
            let want = entries.partition_point(|(k, _)| k.as_slice() < probe.as_slice());
            prop_assert_eq!(node.search(&probe).0, want);
        }

        #[test]
        fn damaged_nodes_never_panic(entries in leaf_entries(), level in 0u8..2,
                                     damage in proptest::collection::vec((0usize..4096, any::<u8>()), 1..20)) {
            let (_, built) = build(0, (&entries, NodeSize::of(&entries)), 77, 5);
            let mut bytes = built.bytes().to_vec();
            bytes[5] = level;
            for (at, value) in damage {
                bytes[at % 200] = value;
                bytes[at] = value;
            }
            if let Ok(node) = Node::parse(bytes.into()) {
                for i in 0..node.count() {
                    let _ = (node.key(i), node.value(i), node.child(i), node.filter(i));
                    let _ = node.search(&node.key(i));
                }
            }
        }
    }

    #[test]
    fn children_and_their_places() {
        let ptr = |n: u64| PagePtr { block: n, blocks: 1, crc: n as u32 };
        let filter = |n: u64| Filter((n > 1).then(|| vec![n as u8; n as usize].into()));
        let entries: Vec<Entry> = [(&b"b"[..], 1), (b"d", 2), (b"f", 3)]
            .map(|(k, n)| (Key::from_slice(k), Payload::Child(ptr(n), filter(n))))
            .to_vec();
        let (_, node) = build(1, (&entries, NodeSize::of(&entries)), 9, 1);
        let node = Node::parse(node.bytes().clone()).unwrap();
        for (key, child) in [(&b"a"[..], 1), (b"b", 1), (b"c", 1), (b"d", 2), (b"z", 3)] {
            let at = node.child_index(key);
            assert_eq!((node.child(at), node.filter(at)), (ptr(child), filter(child)));
        }
    }

    #[test]
    fn nodes_without_filters_are_read() {
        let mut bytes = vec![0u8; BLOCK_BYTES];
        bytes[..12].copy_from_slice(&[b'L', b'o', b'T', b'N', 1, 1, 2, 0, 1, 0, 0, 0]);
        for (i, at) in [40u16, 57].into_iter().enumerate() {
            bytes[32 + 2 * i..][..2].copy_from_slice(&at.to_le_bytes());
            bytes[usize::from(at)..][..4].copy_from_slice(&[1, 0, 1 + i as u8, 200 + i as u8]);
        }
        let node = Node::parse(bytes.into()).unwrap();
        assert_eq!((node.child(0).block, node.child(1).block), (200, 201));
        assert_eq!(node.filter(1), Filter::default());
        assert!(node.may_hold(1, &[1, 7]));
    }

    #[test]
    fn separators_are_short() {
        assert_eq!(separator(b"abc", b"abf").as_slice(), b"abf");
        assert_eq!(separator(b"abc", b"b").as_slice(), b"b");
        assert_eq!(separator(b"ab", b"abcd").as_slice(), b"abc");
    }
}

//! What an operation lacks, and what was fetched for it.

use crate::blob::Blob;
use crate::error::StoreError;
use crate::keys::ShardId;
use crate::rows::Slot;
use crate::store::outlines::BriefCrc;
use crate::tree::TreeMiss;
use crate::tree::node::{Node, PagePtr};
use bytes::Bytes;
use io::BLOCK_BYTES;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use types::ObjectKey;

/// Something that must be read from a device.
#[derive(Clone, Debug)]
pub(crate) enum Want {
    Page(PagePtr),
    /// Blocks that stand together on the device, and their checksums.
    Data {
        object: ObjectKey,
        /// Byte offset of the first one in the object.
        offset: u64,
        /// Bytes of the object that each one is further on: 0 when together they are one blob.
        step: u64,
        start: u64,
        crcs: SmallVec<[u32; 4]>,
    },
    /// Blocks of a shard that stand together on the device, as its outline has them.
    Outlined {
        shard: ShardId,
        start: u64,
        crcs: SmallVec<[BriefCrc; 4]>,
    },
    /// A block in the ring of the log.
    Log {
        object: ObjectKey,
        offset: u64,
        seq: u64,
        block: u64,
        /// Where it belongs.
        place: u64,
        crc: u32,
    },
}

impl Want {
    /// Whether what it stands for has these blocks, too.
    fn has(&self, other: &Want) -> bool {
        let within = |start: u64, len: usize, from: u64, all: usize| {
            from <= start && start + len as u64 <= from + all as u64
        };
        match (self, other) {
            (Want::Data { start: from, crcs: all, .. }, Want::Data { start, crcs, .. }) => {
                within(*start, crcs.len(), *from, all.len())
            }
            (Want::Outlined { start: from, crcs: all, .. }, Want::Outlined { start, crcs, .. }) => {
                within(*start, crcs.len(), *from, all.len())
            }
            (Want::Log { block: own, seq: at, .. }, Want::Log { block, seq, .. }) => {
                (own, at) == (block, seq)
            }
            _ => false,
        }
    }
}

/// What an operation needs that is not in memory. [`crate::Store::fetch`] gets it; then the
/// operation is run again from its beginning.
#[derive(Debug)]
pub struct Miss {
    pub(crate) wants: WantList,
    /// The answer is known already: the operation fails.
    pub(crate) problem: Option<StoreError>,
    /// The store's epoch when it was found: later, the places may be something else.
    pub(crate) epoch: u64,
    /// What is fetched is not kept in memory for others.
    pub(crate) once: bool,
    /// Some of what was wanted is kept in memory.
    pub(crate) partly: bool,
}

impl Miss {
    /// Adds what another part of the operation lacks, so that one fetch gets all.
    pub fn merge(&mut self, other: Miss) {
        if self.epoch != other.epoch {
            // One of them is stale: fetching gives nothing, and the operation finds out anew.
            self.epoch = u64::MAX;
        }
        self.wants.merge(other.wants);
        self.problem = self.problem.take().or(other.problem);
        self.once &= other.once;
        self.partly |= other.partly;
    }

    /// The same for one who will not read it again: what is fetched is not kept in memory for others.
    pub fn not_kept(self) -> Miss {
        Miss { once: true, ..self }
    }

    /// Bytes of data that it fetches.
    pub fn bytes(&self) -> usize {
        let blocks = self.wants.iter().map(|want| match want {
            Want::Page(_) => 0,
            Want::Data { crcs, .. } => crcs.len(),
            Want::Outlined { crcs, .. } => crcs.len(),
            Want::Log { .. } => 1,
        });
        blocks.sum::<usize>() * BLOCK_BYTES
    }

    /// How many reads it stands for.
    pub fn reads(&self) -> usize {
        self.wants.len()
    }
}

/// What must be read, each node of the tree once: many rows are in one.
#[derive(Debug, Default)]
pub(crate) struct WantList {
    wants: Vec<Want>,
    /// The nodes among them, where there are more than [`FEW`].
    known: Option<Box<Known>>,
}

/// Boxed, since each answer has room for a miss, and hardly any has so many nodes.
#[derive(Debug, Default)]
struct Known(BTreeSet<PagePtr>);

/// So many are looked through for one that is known.
const FEW: usize = 16;

impl Deref for WantList {
    type Target = [Want];

    fn deref(&self) -> &[Want] {
        &self.wants
    }
}

impl IntoIterator for WantList {
    type Item = Want;
    type IntoIter = std::vec::IntoIter<Want>;

    fn into_iter(self) -> Self::IntoIter {
        self.wants.into_iter()
    }
}

impl WantList {
    pub fn push(&mut self, want: Want) {
        match want {
            Want::Page(ptr) if self.knows(ptr) => {}
            want => self.wants.push(want),
        }
    }

    /// Whether a node is among them; if not, it is going to be.
    fn knows(&mut self, ptr: PagePtr) -> bool {
        let mut known = self.wants.iter().filter_map(|want| match want {
            Want::Page(ptr) => Some(*ptr),
            _ => None,
        });
        if self.wants.len() <= FEW {
            return known.any(|known| known == ptr);
        }
        let all = self.known.get_or_insert_with(|| Box::new(Known(known.collect())));
        !all.0.insert(ptr)
    }

    /// Parts of an operation that follow one another may want parts of one block.
    fn merge(&mut self, other: WantList) {
        for want in other {
            if !self.wants.last().is_some_and(|last| last.has(&want)) {
                self.push(want);
            }
        }
    }
}

/// Collects what is missing, so that one fetch gets all of it.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    pub wants: WantList,
    /// The answer is known already: the operation fails.
    pub problem: Option<StoreError>,
    /// What is kept in memory is not looked at.
    pub from_disk: bool,
    /// What is fetched is not kept.
    pub once: bool,
    /// Something was found that is kept.
    pub partly: bool,
    /// Nothing may be missing, but the operation is to be tried again.
    again: bool,
    /// The checksums of blocks in memory that follow what is wanted last, on the device and in the object.
    at_hand: Vec<u32>,
}

/// Nodes that are asked for together when values of many are wanted: others want the disk, too.
pub(crate) const MAX_PAGES: usize = 256;
/// Blocks in memory between two that are wanted are read with them, up to so many: one read of all takes
/// less than two.
const MAX_AT_HAND: usize = 16;

impl Wants {
    /// What is wanted is wanted from the disk, and not to be kept.
    pub fn once() -> Self {
        Wants { once: true, ..Wants::from_disk() }
    }

    /// What is wanted is wanted from the disk.
    pub fn from_disk() -> Self {
        Wants { from_disk: true, ..Wants::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.wants.is_empty() && self.problem.is_none() && !self.again
    }

    /// Whether there is enough for one fetch.
    pub fn is_full(&self) -> bool {
        self.wants.len() >= MAX_PAGES
    }

    /// Adds what the tree lacks.
    pub fn tree(&mut self, miss: TreeMiss) {
        match miss {
            TreeMiss::Pages(ptrs) => {
                ptrs.into_iter().for_each(|ptr| self.wants.push(Want::Page(ptr)));
            }
            TreeMiss::Damaged { block, what } => self.damaged(block, what),
            TreeMiss::Again => self.again = true,
        }
    }

    /// Adds a problem.
    pub fn damaged(&mut self, block: u64, what: &'static str) {
        self.problem.get_or_insert(StoreError::BadMetadata { block, what });
    }

    /// Adds a block of an object that is in its place on the device.
    pub fn data(&mut self, object: &ObjectKey, offset: u64, step: u64, slot: Slot) {
        if self.follows(object, offset, step, slot)
            && let Some(Want::Data { crcs, .. }) = self.wants.wants.last_mut()
        {
            crcs.extend(self.at_hand.drain(..));
            crcs.push(slot.crc);
            return;
        }
        self.at_hand.clear();
        let crcs = SmallVec::from_slice(&[slot.crc]);
        let (object, start) = (object.clone(), slot.phys);
        self.wants.push(Want::Data { object, offset, step, start, crcs });
    }

    /// Notes a block as [`Wants::data`] would add it, that is in memory.
    pub fn at_hand(&mut self, object: &ObjectKey, offset: u64, step: u64, slot: Slot) {
        if self.at_hand.len() < MAX_AT_HAND && self.follows(object, offset, step, slot) {
            self.at_hand.push(slot.crc);
        } else {
            self.at_hand.clear();
        }
    }

    /// Whether a block comes right after what is wanted last, and what is at hand behind that.
    fn follows(&self, object: &ObjectKey, offset: u64, step: u64, slot: Slot) -> bool {
        let Some(Want::Data { object: o, start, crcs, offset: first, step: s }) = self.wants.last()
        else {
            return false;
        };
        let blocks = (crcs.len() + self.at_hand.len()) as u64;
        (*start + blocks, *first + blocks * step, *s) == (slot.phys, offset, step) && o == object
    }

    /// Adds a block of which an outline knows where it is, and its brief checksum.
    pub fn outlined(&mut self, id: ShardId, place: u64, crc: BriefCrc) {
        if let Some(Want::Outlined { shard, start, crcs }) = self.wants.wants.last_mut()
            && *shard == id
            && *start + crcs.len() as u64 == place
        {
            crcs.push(crc);
            return;
        }
        let crcs = SmallVec::from_slice(&[crc]);
        self.wants.push(Want::Outlined { shard: id, start: place, crcs });
    }

    /// The bytes of a blob have their checksums, but cannot be unpacked.
    pub fn bad_blob(&mut self, object: &ObjectKey, offset: u64, blob: &Blob) {
        let (object, block) = (object.clone(), blob.start());
        self.problem.get_or_insert(StoreError::BadBlock { object, offset, block });
    }

    /// Adds what another part of the operation lacks.
    pub fn merge(&mut self, other: Miss) {
        self.again = true;
        self.at_hand.clear();
        self.wants.merge(other.wants);
        self.problem = self.problem.take().or(other.problem);
    }
}

impl From<TreeMiss> for Wants {
    fn from(miss: TreeMiss) -> Self {
        let mut wants = Wants::default();
        wants.tree(miss);
        wants
    }
}

/// Blocks that were read and verified, and their checksums.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    pub start: u64,
    pub crcs: SmallVec<[u32; 4]>,
    pub data: Bytes,
}

/// What was fetched for an operation. It keeps the store from dropping it, so an operation that is
/// run again with all that was fetched for it so far ([`ReadSet::merge`]) gets further each time.
#[derive(Clone, Debug, Default)]
pub struct ReadSet {
    pub(crate) pages: SmallVec<[Arc<Node>; 4]>,
    /// In the order of their places.
    blocks: SmallVec<[Fetched; 2]>,
    /// The longest entry of `blocks`.
    longest: u64,
}

impl ReadSet {
    /// Nothing fetched yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.blocks.is_empty()
    }

    /// Adds what was fetched later.
    pub fn merge(&mut self, other: ReadSet) {
        if self.is_empty() {
            *self = other;
            return;
        }
        self.pages.extend(other.pages);
        for fetched in other.blocks {
            self.add(fetched);
        }
    }

    pub(crate) fn add(&mut self, fetched: Fetched) {
        self.longest = self.longest.max(fetched.crcs.len() as u64);
        let at = self.blocks.partition_point(|f| f.start <= fetched.start);
        self.blocks.insert(at, fetched);
    }

    /// The blocks in it.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Fetched> {
        self.blocks.iter()
    }

    /// Where the wanted content of a block is: which fetched run, which block of it.
    pub(crate) fn find(&self, slot: Slot) -> Option<(usize, usize)> {
        self.find_block(slot.phys, |crc| crc == slot.crc)
    }

    /// The same for a block of which only the brief checksum is known, and its whole checksum.
    pub(crate) fn find_outlined(&self, place: u64, crc: BriefCrc) -> Option<((usize, usize), u32)> {
        let (run, at) = self.find_block(place, |c| BriefCrc::of(c) == crc)?;
        Some(((run, at), *self.blocks[run].crcs.get(at)?))
    }

    fn find_block(&self, place: u64, is_it: impl Fn(u32) -> bool) -> Option<(usize, usize)> {
        let end = self.blocks.partition_point(|f| f.start <= place);
        for (i, fetched) in self.blocks.iter().enumerate().take(end).rev() {
            let at = (place - fetched.start) as usize;
            if fetched.crcs.get(at).is_some_and(|crc| is_it(*crc)) {
                return Some((i, at));
            }
            if fetched.start + self.longest <= place {
                break;
            }
        }
        None
    }

    /// One fetched run.
    pub(crate) fn run(&self, run: usize) -> &Bytes {
        &self.blocks[run].data
    }

    /// Bytes of one fetched run.
    pub(crate) fn bytes(&self, run: usize, from: usize, to: usize) -> Bytes {
        self.blocks[run].data.slice(from..to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::BLOCK_BYTES;

    #[test]
    fn a_fetched_block_is_found_by_place_and_checksum() {
        let mut rs = ReadSet::new();
        let data = Bytes::from(vec![0; 3 * BLOCK_BYTES]);
        let add = |rs: &mut ReadSet, start, crcs: &[u32]| {
            let data = data.slice(..crcs.len() * BLOCK_BYTES);
            rs.add(Fetched { start, crcs: SmallVec::from_slice(crcs), data });
        };
        add(&mut rs, 10, &[1, 2, 3]);
        add(&mut rs, 12, &[9]);
        add(&mut rs, 20, &[5]);
        let slot = Slot::plain;
        assert_eq!(rs.find(slot(11, 2)), Some((0, 1)));
        assert_eq!(rs.find(slot(12, 3)), Some((0, 2)));
        assert_eq!(rs.find(slot(12, 9)), Some((1, 0)));
        assert_eq!(rs.find(slot(12, 7)), None);
        assert_eq!(rs.find(slot(9, 1)), None);
        assert_eq!(rs.find(slot(20, 5)), Some((2, 0)));
    }

    #[test]
    fn neighbours_become_one_read() {
        let mut wants = Wants::default();
        let key = ObjectKey::from_bytes(b"o");
        for i in 0..3u32 {
            wants.data(&key, u64::from(i) * 4096, 4096, Slot::plain(100 + u64::from(i), i));
        }
        wants.data(&key, 9 * 4096, 4096, Slot::plain(103, 0));
        assert_eq!(wants.wants.len(), 2);
    }

    #[test]
    fn a_few_blocks_at_hand_are_read_with_their_neighbours() {
        let key = ObjectKey::from_bytes(b"o");
        // Of blocks that stand one after the other those of `wanted` are wanted, the others at hand.
        let reads = |blocks: u64, wanted: &[u64], place: &dyn Fn(u64) -> u64| {
            let mut wants = Wants::default();
            for n in 0..blocks {
                let slot = Slot::plain(place(n), n as u32);
                match wanted.contains(&n) {
                    true => wants.data(&key, n * 4096, 4096, slot),
                    false => wants.at_hand(&key, n * 4096, 4096, slot),
                }
            }
            let crcs = |want: Want| match want {
                Want::Data { start, crcs, .. } => (start, crcs.to_vec()),
                other => panic!("{other:?}"),
            };
            wants.wants.into_iter().map(crcs).collect::<Vec<_>>()
        };
        let straight = |n: u64| 100 + n;
        assert_eq!(reads(6, &[1, 4], &straight), [(101, vec![1, 2, 3, 4])]);
        let far = MAX_AT_HAND as u64 + 2;
        assert_eq!(reads(20, &[0, far - 1], &straight)[0].1.len() as u64, far);
        let two = [(100, vec![0]), (100 + far, vec![far as u32])];
        assert_eq!(reads(20, &[0, far], &straight), two);
        // What is at hand stands elsewhere: it is not between them.
        let aside = |n: u64| if n == 1 { 50 } else { 100 + n.min(1) + n.saturating_sub(2) };
        assert_eq!(reads(3, &[0, 2], &aside), [(100, vec![0]), (101, vec![2])]);
    }
}

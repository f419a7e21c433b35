//! What is kept of rows of extents that are not in memory.
//!
//! The rows of a device take 1.2 GiB of memory for each TiB, most of it the checksums of 4 KiB blocks.
//! An outline takes half of that (0.58 GiB): where the blocks of a shard stand, if they are one run that
//! belongs to its object alone, and one checksum for each two of them. It is enough to overwrite blocks
//! ([`crate::patch`]), and to read one, together with its neighbour.
//!
//! An outline says what the newest layer of the rows says. Which checksums of pairs are known changes:
//! an overwrite of one block of two leaves their checksum unknown until the row is seen again.

use super::miss::ReadSet;
use crate::keys::{self, SHARD_BLOCKS, ShardId};
use crate::memtable::Memtable;
use crate::patch::Patch;
use crate::plan::Rows;
use crate::rows::Shard;
use io::BLOCK_BYTES;
use std::cell::RefCell;
use std::sync::LazyLock;
use types::{HashTable, fixed_hash};

/// Pairs of a shard.
const PAIRS: usize = SHARD_BLOCKS as usize / 2;
/// Shards that are kept and forgotten together: 1 MiB of an object.
const CHUNK_SHARDS: usize = 8;
/// Blocks of a chunk.
const CHUNK_BLOCKS: usize = CHUNK_SHARDS * SHARD_BLOCKS as usize;
/// Rounds of the clock that a chunk stays without being used.
const LIVES: u8 = 7;
/// What finds a chunk takes about so much memory: an entry of a table that is two thirds full.
const FINDING_BYTES: usize = 8;
/// Memory of a chunk whose shards stand behind each other, as they mostly do; it is counted so for all.
const CHUNK_BYTES: usize = size_of::<Chunk>() + size_of::<Crcs>() + FINDING_BYTES;

/// The checksum of each pair. By itself, so that it takes exactly the memory that it needs.
type Crcs = [u32; CHUNK_BLOCKS / 2];
type ChunkId = (u64, u32);

/// The blocks of one shard: a run of slots, whose blocks stand behind each other.
#[derive(Clone, Copy, Default)]
struct Span {
    /// Which of the pairs are known.
    known: u16,
    first: u8,
    /// Slots of the run; 0: there is no outline.
    len: u8,
}

impl Span {
    fn has(&self, slot: usize) -> bool {
        let first = usize::from(self.first);
        (first..first + usize::from(self.len)).contains(&slot)
    }
}

/// Where the first slot of each shard stands, or would.
enum Places {
    /// All shards stand behind each other, and the chunk's first slot here.
    Run(u64),
    Each(Box<[u64; CHUNK_SHARDS]>),
}

impl Places {
    fn get(&self, shard: usize) -> u64 {
        match self {
            Places::Run(first) => first.wrapping_add(shard as u64 * SHARD_BLOCKS),
            Places::Each(firsts) => firsts[shard],
        }
    }
}

struct Chunk {
    /// Its id is of both.
    object: u64,
    number: u32,
    /// So many times the clock passes it by, unless it is of use until then.
    lives: u8,
    spans: [Span; CHUNK_SHARDS],
    places: Places,
    crcs: Box<Crcs>,
}

const _: () = assert!(size_of::<Chunk>() == 72);

impl Chunk {
    fn new((object, number): ChunkId) -> Self {
        let crcs = Box::new([0; CHUNK_BLOCKS / 2]);
        let (spans, places) = (Default::default(), Places::Run(0));
        Chunk { object, number, lives: LIVES, spans, places, crcs }
    }

    fn id(&self) -> ChunkId {
        (self.object, self.number)
    }

    /// Takes the encoded row of a shard.
    fn note(&mut self, shard: usize, row: &[u8]) {
        self.spans[shard] = Span::default();
        let Some((start, first, len)) = Shard::single_run(row) else { return };
        let mut crcs = [0; SHARD_BLOCKS as usize];
        let all = 0..SHARD_BLOCKS as usize;
        if !matches!(Shard::visit(row, all, |i, slot| crcs[i] = slot.crc), Ok(true)) {
            return;
        }
        self.put_place(shard, start.wrapping_sub(u64::from(first)));
        let mut span = Span { known: 0, first, len };
        let known = &mut self.crcs[shard * PAIRS..][..PAIRS];
        for (i, (two, pair)) in crcs.chunks_exact(2).zip(known).enumerate() {
            if span.has(2 * i) && span.has(2 * i + 1) {
                *pair = joined(two[0], two[1]);
                span.known |= 1 << i;
            }
        }
        self.spans[shard] = span;
    }

    /// Where the first slot of a shard stands, which has no outline at the moment.
    fn put_place(&mut self, shard: usize, first: u64) {
        let is_alone = self.spans.iter().all(|span| span.len == 0);
        match &mut self.places {
            places if is_alone => {
                *places = Places::Run(first.wrapping_sub(shard as u64 * SHARD_BLOCKS));
            }
            Places::Each(firsts) => firsts[shard] = first,
            places if places.get(shard) == first => {}
            places => {
                let mut firsts = std::array::from_fn(|shard| places.get(shard));
                firsts[shard] = first;
                *places = Places::Each(Box::new(firsts));
            }
        }
    }

    fn place(&self, shard: usize, slot: usize) -> Option<u64> {
        let first = self.places.get(shard);
        self.spans[shard].has(slot).then(|| first.wrapping_add(slot as u64))
    }

    fn pair(&self, shard: usize, slot: usize) -> Option<Pair> {
        let pair = slot / 2;
        let start = self.place(shard, 2 * pair)?;
        let known = self.spans[shard].known >> pair & 1 == 1;
        known.then(|| Pair { start, crc: self.crcs[shard * PAIRS + pair] })
    }

    fn patch(&mut self, shard: usize, patch: &Patch) {
        for (slot, _) in patch.slots() {
            self.spans[shard].known &= !(1 << (slot / 2));
        }
    }
}

/// Two blocks that are read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// Place of the first one.
    pub start: u64,
    /// crc32c of both.
    pub crc: u32,
}

#[derive(Default)]
struct Chunks {
    /// Which chunk has which id.
    index: HashTable<u32>,
    chunks: Vec<Chunk>,
    hand: usize,
    max: usize,
}

/// The outlines of shards that were used last, in a byte budget.
#[derive(Default)]
pub(crate) struct Outlines(RefCell<Chunks>);

/// What a block of zeros makes of each byte of a checksum that comes before it.
static SHIFTS: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
    let mut bits = [0u32; 32];
    for (i, bit) in bits.iter_mut().enumerate() {
        *bit = denc::crc32c(1 << i, &[0; BLOCK_BYTES]);
    }
    let shifted = |byte: usize, value: usize| {
        let set = (0..8).filter(|i| value >> i & 1 == 1);
        set.fold(0, |crc, i| crc ^ bits[byte * 8 + i])
    };
    std::array::from_fn(|byte| std::array::from_fn(|value| shifted(byte, value)))
});

/// The checksum of two blocks from those of each (crc32c is linear; each began with all bits set).
fn joined(first: u32, second: u32) -> u32 {
    let bytes = (first ^ u32::MAX).to_le_bytes();
    let shifted = SHIFTS.iter().zip(bytes).fold(0, |crc, (table, b)| crc ^ table[usize::from(b)]);
    shifted ^ second
}

fn chunk_of((id, number): ShardId) -> (ChunkId, usize) {
    let shards = CHUNK_SHARDS as u32;
    ((id, number / shards), (number % shards) as usize)
}

impl Chunks {
    fn find(&self, id: ChunkId) -> Option<usize> {
        if self.chunks.is_empty() {
            return None;
        }
        let found = self.index.find(fixed_hash(&id), |&i| self.chunks[i as usize].id() == id);
        found.map(|i| *i as usize)
    }

    /// Whether there is an outline of a shard, which is not used by that.
    fn has(&self, id: ShardId) -> bool {
        let (chunk, shard) = chunk_of(id);
        self.find(chunk).is_some_and(|i| self.chunks[i].spans[shard].len > 0)
    }

    /// The chunk of a shard that is of use now, and which of its shards that is.
    fn used(&mut self, id: ShardId) -> Option<(&mut Chunk, usize)> {
        let (chunk, shard) = chunk_of(id);
        let chunk = self.find(chunk).map(|i| &mut self.chunks[i])?;
        chunk.lives = LIVES;
        Some((chunk, shard))
    }

    /// The same, if there is an outline of that shard.
    fn known(&mut self, id: ShardId) -> Option<(&mut Chunk, usize)> {
        self.used(id).filter(|(chunk, shard)| chunk.spans[*shard].len > 0)
    }

    fn has_room(&self) -> bool {
        self.chunks.len() < self.max
    }

    /// Makes room for a chunk. When all have theirs, each wish moves the clock by one only: where more
    /// is used at random than there is room for, it is best to keep what is there.
    fn admit(&mut self, id: ChunkId) -> bool {
        if self.has_room() {
            if self.chunks.capacity() < self.max {
                self.reserve();
            }
            self.chunks.push(Chunk::new(id));
            self.add_index(id, self.chunks.len() - 1);
            return true;
        }
        let at = self.hand;
        self.hand = (self.hand + 1) % self.chunks.len().max(1);
        let Some(old) = self.chunks.get_mut(at) else { return false };
        if old.lives > 0 {
            old.lives -= 1;
            return false;
        }
        let old = std::mem::replace(old, Chunk::new(id));
        self.remove_index(old.id(), at);
        self.add_index(id, at);
        true
    }

    /// Growing bit by bit would take twice the memory at times, and long to find places for all anew.
    fn reserve(&mut self) {
        let more = self.max - self.chunks.len();
        self.chunks.reserve_exact(more);
        self.index.reserve(more, |i| fixed_hash(&self.chunks[*i as usize].id()));
    }

    fn pop(&mut self) {
        if let Some(last) = self.chunks.pop() {
            self.remove_index(last.id(), self.chunks.len());
        }
    }

    fn add_index(&mut self, id: ChunkId, at: usize) {
        let chunks = &self.chunks;
        let hash = |i: &u32| fixed_hash(&chunks[*i as usize].id());
        self.index.insert_unique(fixed_hash(&id), at as u32, hash);
    }

    fn remove_index(&mut self, id: ChunkId, at: usize) {
        if let Ok(entry) = self.index.find_entry(fixed_hash(&id), |i| *i as usize == at) {
            entry.remove();
        }
    }
}

impl Outlines {
    /// Outlines that take up to so much memory.
    pub fn new(bytes: usize) -> Self {
        Outlines(RefCell::new(Chunks { max: bytes / CHUNK_BYTES, ..Chunks::default() }))
    }

    /// From now on they take up to so much memory.
    pub fn set_room(&mut self, bytes: usize) {
        let all = self.0.get_mut();
        all.max = bytes / CHUNK_BYTES;
        while all.chunks.len() > all.max {
            all.pop();
        }
        all.hand = all.hand.min(all.chunks.len().saturating_sub(1));
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.0.borrow().chunks.len() * CHUNK_BYTES
    }

    /// Learns what is to be known of a shard whose row had to be read; and of those whose rows came with
    /// it, as long as there is room. Nothing new while the tree still fits into memory.
    pub fn learn(&self, rows: &Rows, id: ShardId, read: &ReadSet) {
        self.learn_one(rows, id, |all, chunk| all.admit(chunk));
        let leaves = read.pages.iter().filter(|node| node.level() == 0);
        let keys = leaves.flat_map(|leaf| (0..leaf.count()).map(|i| leaf.key(i)));
        for other in keys.filter_map(|key| keys::shard_of(&key)) {
            if !self.0.borrow().has(other) {
                self.learn_one(rows, other, |all, chunk| all.has_room() && all.admit(chunk));
            }
        }
    }

    fn learn_one(&self, rows: &Rows, id: ShardId, admit: impl Fn(&mut Chunks, ChunkId) -> bool) {
        let (chunk, _) = chunk_of(id);
        let is_there = self.0.borrow().find(chunk).is_some()
            || rows.pages.is_full() && admit(&mut self.0.borrow_mut(), chunk);
        // What was read may be old; the layers know.
        if is_there && let Ok((Some(row), _)) = rows.get(&keys::shard(id.0, id.1)) {
            self.note(id, &row);
        }
    }

    /// Notes the row of a shard, as the newest layer has it, if there is room.
    fn note(&self, id: ShardId, row: &[u8]) {
        if let Some((chunk, shard)) = self.0.borrow_mut().used(id) {
            chunk.note(shard, row);
        }
    }

    /// Notes what a transaction changes. The rows of an object go as a range, with the object: its id is
    /// never used again.
    pub fn absorb(&self, changes: &Memtable) {
        if self.0.borrow().chunks.is_empty() {
            return;
        }
        for (key, row) in changes.rows() {
            match (keys::shard_of(key), &row.value) {
                (Some(id), Some(row)) => self.note(id, row),
                (Some(id), None) => self.forget(id),
                (None, _) => {}
            }
        }
        for (id, patch, _) in changes.patches().all() {
            self.patch(id, &patch);
        }
    }

    fn patch(&self, id: ShardId, patch: &Patch) {
        if let Some((chunk, shard)) = self.0.borrow_mut().used(id) {
            chunk.patch(shard, patch);
        }
    }

    /// Notes what a checkpoint made of a row, if it is known; `above`: what was changed since.
    pub fn merged(&self, id: ShardId, row: &[u8], above: &Patch) {
        if let Some((chunk, shard)) = self.0.borrow_mut().known(id) {
            chunk.note(shard, row);
            chunk.patch(shard, above);
        }
    }

    /// Knows nothing of a shard from now on.
    pub fn forget(&self, id: ShardId) {
        if let Some((chunk, shard)) = self.0.borrow_mut().used(id) {
            chunk.spans[shard] = Span::default();
        }
    }

    /// Place of each block of a shard that is there, by slot.
    pub fn places(&self, id: ShardId) -> Option<impl Fn(u8) -> Option<u64> + use<>> {
        let mut all = self.0.borrow_mut();
        let (chunk, shard) = all.known(id)?;
        let (span, first) = (chunk.spans[shard], chunk.places.get(shard));
        Some(move |slot: u8| span.has(slot.into()).then(|| first.wrapping_add(slot.into())))
    }

    /// The pair that a slot belongs to, if its checksum is known.
    pub fn pair(&self, id: ShardId, slot: u8) -> Option<Pair> {
        let mut all = self.0.borrow_mut();
        let (chunk, shard) = all.known(id)?;
        chunk.pair(shard, slot.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::block_crc;
    use crate::rows::Slot;

    fn note(known: &Outlines, id: ShardId, row: &[u8]) {
        let (chunk, _) = chunk_of(id);
        let mut all = known.0.borrow_mut();
        if all.find(chunk).is_none() {
            all.admit(chunk);
        }
        drop(all);
        known.note(id, row);
    }

    fn row(first: usize, len: usize, place: u64) -> Vec<u8> {
        let mut shard = Shard::default();
        for i in 0..len {
            shard.slots[first + i] = Slot::plain(place + i as u64, crc(first + i));
        }
        shard.encode().to_vec()
    }

    fn block(i: usize) -> Vec<u8> {
        (0..BLOCK_BYTES).map(|n| (n * 7 + i * 31) as u8).collect()
    }

    fn crc(i: usize) -> u32 {
        block_crc(&block(i))
    }

    fn patch(slot: u8) -> Patch {
        let mut patch = Patch::default();
        patch.set(slot, 1);
        patch
    }

    #[test]
    fn a_pair_has_the_checksum_of_its_bytes() {
        let known = Outlines::new(1 << 20);
        note(&known, (7, 3), &row(3, 6, 1 << 40));
        let pair = known.pair((7, 3), 5).unwrap();
        assert_eq!(pair.start, (1 << 40) + 1);
        assert_eq!(pair.crc, block_crc(&[block(4), block(5)].concat()));
        // The others of these are not there.
        assert_eq!((known.pair((7, 3), 3), known.pair((7, 3), 8)), (None, None));
        let places = known.places((7, 3)).unwrap();
        assert_eq!((places(2), places(3), places(9)), (None, Some(1 << 40), None));
        assert!(known.places((7, 4)).is_none() && known.places((8, 3)).is_none());
    }

    #[test]
    fn a_change_is_never_missed() {
        let known = Outlines::new(1 << 20);
        let id = (7, 3);
        note(&known, id, &row(0, 32, 100));
        known.patch(id, &patch(5));
        assert!(known.pair(id, 4).is_none() && known.pair(id, 6).is_some());
        // A checkpoint saw that, and not what came since.
        known.merged(id, &row(0, 32, 100), &patch(9));
        assert!(known.pair(id, 4).is_some() && known.pair(id, 9).is_none());
        known.note(id, &row(0, 32, 500));
        assert_eq!(known.pair(id, 9).unwrap().start, 508);
        known.forget(id);
        assert!(known.places(id).is_none());
        known.merged(id, &row(0, 32, 100), &Patch::default());
        assert!(known.places(id).is_none(), "what a checkpoint wrote may be old");
    }

    #[test]
    fn shards_stand_anywhere() {
        let known = Outlines::new(1 << 20);
        // Together, elsewhere, and together with the first ones again.
        let firsts = [100, 132, 5000, 196];
        for (number, first) in (8..).zip(firsts) {
            note(&known, (7, number), &row(4, 28, first + 4));
        }
        for (number, first) in (8..).zip(firsts) {
            let places = known.places((7, number)).unwrap();
            assert_eq!(
                (places(3), places(4), places(31)),
                (None, Some(first + 4), Some(first + 31))
            );
            assert_eq!(known.pair((7, number), 7).unwrap().start, first + 6);
        }
        // One that is alone says where all are.
        (9..12).for_each(|number| known.forget((7, number)));
        note(&known, (7, 8), &row(0, 32, 9000));
        note(&known, (7, 9), &row(0, 32, 9032));
        assert_eq!(known.pair((7, 9), 0).unwrap().start, 9032);
        assert!(matches!(known.0.borrow().chunks[0].places, Places::Run(9000)));
    }

    #[test]
    fn blocks_that_others_refer_to_have_no_outline() {
        let known = Outlines::new(1 << 20);
        let mut shard = Shard::decode(&row(0, 32, 100)).unwrap();
        shard.slots.iter_mut().for_each(|s| s.shared = true);
        note(&known, (1, 1), &shard.encode());
        assert!(known.places((1, 1)).is_none());
        shard.slots.iter_mut().for_each(|s| s.shared = false);
        shard.slots[9].phys = 1000;
        note(&known, (1, 1), &shard.encode());
        assert!(known.places((1, 1)).is_none());
    }

    #[test]
    fn it_keeps_to_its_budget_and_what_is_used() {
        let known = Outlines::new(10 * CHUNK_BYTES);
        for n in 0..1000 {
            note(&known, (n, 0), &row(0, 32, 100 + n));
            assert!(known.places((0, 0)).is_some());
            assert!(known.bytes() <= 10 * CHUNK_BYTES);
        }
        let there: Vec<_> = (0..1000).filter(|n| known.places((*n, 0)).is_some()).collect();
        assert!(there.len() == 10 && there[0] == 0 && there[1] > 500, "{there:?}");
        let none = Outlines::new(0);
        note(&none, (1, 1), &row(0, 32, 100));
        assert!(none.places((1, 1)).is_none() && none.bytes() == 0);
    }
}

//! What is kept of rows of extents that are not in memory.
//!
//! The rows of a device take 1.2 GiB of memory for each TiB, most of it the checksums of 4 KiB blocks.
//! An outline takes half of that: where the blocks of a shard stand, if they are one run that belongs to
//! its object alone, and one checksum for each two of them. It is enough to overwrite blocks
//! ([`crate::patch`]), and to read one, together with its neighbour.
//!
//! An outline says what the newest layer of the rows says. Which checksums of pairs are known changes:
//! an overwrite of one block of two leaves their checksum unknown until the row is seen again.

use super::onodes::ShardId;
use crate::keys::{self, SHARD_BLOCKS};
use crate::memtable::{Change, Memtable};
use crate::patch::Patch;
use crate::plan::Rows;
use crate::rows::Shard;
use io::BLOCK_BYTES;
use std::cell::RefCell;
use std::sync::LazyLock;
use types::HashMap;

/// Pairs of a shard.
const PAIRS: usize = SHARD_BLOCKS as usize / 2;
/// Shards that are kept and forgotten together: 1 MiB of an object.
const CHUNK_SHARDS: usize = 8;
/// Rounds of the clock that a chunk stays without being used.
const LIVES: u8 = 7;
/// What finds a chunk takes about so much memory: an entry of a table that is two thirds full, and one
/// of the clock.
const FINDING_BYTES: usize = 48;
/// Memory of a chunk.
const CHUNK_BYTES: usize = size_of::<Chunk>() + FINDING_BYTES;

/// One shard. The place is cut in two so that nothing is wasted on alignment.
#[derive(Clone, Copy, Default)]
struct Outline {
    pairs: [u32; PAIRS],
    place_low: u32,
    place_high: u16,
    /// Which of the pairs are known.
    known: u16,
    first: u8,
    /// Blocks of the run; 0: there is no outline.
    len: u8,
}

const _: () = assert!(size_of::<Outline>() == 76);

type ChunkId = (u64, u32);

struct Chunk {
    id: ChunkId,
    /// So many times the clock passes it by, unless it is of use until then.
    lives: u8,
    shards: [Outline; CHUNK_SHARDS],
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
    by_id: HashMap<ChunkId, u32>,
    #[expect(
        clippy::vec_box,
        reason = "what is there is not copied when it grows, nor kept twice"
    )]
    chunks: Vec<Box<Chunk>>,
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

impl Outline {
    /// Of an encoded row.
    fn of(row: &[u8]) -> Outline {
        let Some((start, first, len)) = Shard::single_run(row) else { return Outline::default() };
        let mut crcs = [0; SHARD_BLOCKS as usize];
        let all = 0..SHARD_BLOCKS as usize;
        if !matches!(Shard::visit(row, all, |i, slot| crcs[i] = slot.crc), Ok(true)) {
            return Outline::default();
        }
        let mut out = Outline { first, len, ..Outline::default() };
        (out.place_low, out.place_high) = (start as u32, (start >> 32) as u16);
        for (i, two) in crcs.chunks_exact(2).enumerate() {
            if out.has(2 * i) && out.has(2 * i + 1) {
                out.pairs[i] = joined(two[0], two[1]);
                out.known |= 1 << i;
            }
        }
        out
    }

    fn has(&self, slot: usize) -> bool {
        let first = usize::from(self.first);
        (first..first + usize::from(self.len)).contains(&slot)
    }

    fn place(&self, slot: usize) -> Option<u64> {
        let start = u64::from(self.place_high) << 32 | u64::from(self.place_low);
        self.has(slot).then(|| start + slot as u64 - u64::from(self.first))
    }

    fn patch(&mut self, patch: &Patch) {
        for (slot, _) in patch.slots() {
            self.known &= !(1 << (slot / 2));
        }
    }
}

fn chunk_of((id, number): ShardId) -> (ChunkId, usize) {
    let shards = CHUNK_SHARDS as u32;
    ((id, number / shards), (number % shards) as usize)
}

impl Chunks {
    fn shard(&mut self, id: ShardId) -> Option<&mut Outline> {
        if self.chunks.is_empty() {
            return None;
        }
        let (chunk, at) = chunk_of(id);
        let index = *self.by_id.get(&chunk)?;
        let chunk = &mut self.chunks[index as usize];
        chunk.lives = LIVES;
        Some(&mut chunk.shards[at])
    }

    /// Makes room for a chunk. When all have theirs, each wish moves the clock by one only: where more
    /// is used at random than there is room for, it is best to keep what is there.
    fn admit(&mut self, id: ChunkId) -> bool {
        let new = Chunk { id, lives: LIVES, shards: Default::default() };
        let index = if self.chunks.len() < self.max {
            self.chunks.push(Box::new(new));
            self.chunks.len() - 1
        } else {
            let index = self.hand;
            self.hand = (self.hand + 1) % self.chunks.len().max(1);
            let Some(old) = self.chunks.get_mut(index) else { return false };
            if old.lives > 0 {
                old.lives -= 1;
                return false;
            }
            self.by_id.remove(&old.id);
            **old = new;
            index
        };
        self.by_id.insert(id, index as u32);
        true
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
            if let Some(last) = all.chunks.pop() {
                all.by_id.remove(&last.id);
            }
        }
        all.hand = all.hand.min(all.chunks.len().saturating_sub(1));
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.0.borrow().chunks.len() * CHUNK_BYTES
    }

    /// Learns what is to be known of a shard whose row had to be read; and, when its chunk is new, of the
    /// others there, whose rows have mostly come with it. Nothing while the tree still fits into memory.
    pub fn learn(&self, rows: &Rows, id: ShardId) {
        let (chunk, _) = chunk_of(id);
        let is_known = self.0.borrow().by_id.contains_key(&chunk);
        let has_room = is_known || rows.pages.is_full() && self.0.borrow_mut().admit(chunk);
        if !has_room {
            return;
        }
        let first = chunk.1 * CHUNK_SHARDS as u32;
        let new = first..first + CHUNK_SHARDS as u32;
        for number in if is_known { id.1..id.1 + 1 } else { new } {
            if let Ok((Some(row), _)) = rows.get(&keys::shard(id.0, number)) {
                self.note((id.0, number), &row);
            }
        }
    }

    /// Notes the row of a shard, as the newest layer has it, if there is room.
    fn note(&self, id: ShardId, row: &[u8]) {
        if let Some(outline) = self.0.borrow_mut().shard(id) {
            *outline = Outline::of(row);
        }
    }

    /// Notes what a transaction changes. The rows of an object go as a range, with the object: its id is
    /// never used again.
    pub fn absorb(&self, changes: &Memtable) {
        if self.0.borrow().chunks.is_empty() {
            return;
        }
        for (key, row) in changes.rows() {
            if let Some(id) = keys::shard_of(key) {
                self.change(id, &row.change);
            }
        }
    }

    fn change(&self, id: ShardId, change: &Change) {
        let mut all = self.0.borrow_mut();
        let Some(outline) = all.shard(id) else { return };
        match change {
            Change::Put(row) => *outline = Outline::of(row),
            Change::Patch(patch) => outline.patch(patch),
            Change::Delete => *outline = Outline::default(),
        }
    }

    /// Notes what a checkpoint made of a row, if it is known; `above`: what was changed since.
    pub fn merged(&self, id: ShardId, row: &[u8], above: &Patch) {
        if let Some(outline) = self.0.borrow_mut().shard(id).filter(|o| o.len > 0) {
            *outline = Outline::of(row);
            outline.patch(above);
        }
    }

    /// Knows nothing of a shard from now on.
    pub fn forget(&self, id: ShardId) {
        self.change(id, &Change::Delete);
    }

    /// Place of each block of a shard that is there, by slot.
    pub fn places(&self, id: ShardId) -> Option<impl Fn(u8) -> Option<u64> + use<>> {
        let mut all = self.0.borrow_mut();
        let outline = all.shard(id).filter(|o| o.len > 0).map(|o| *o)?;
        Some(move |slot: u8| outline.place(usize::from(slot)))
    }

    /// The pair that a slot belongs to, if its checksum is known.
    pub fn pair(&self, id: ShardId, slot: u8) -> Option<Pair> {
        let mut all = self.0.borrow_mut();
        let outline = all.shard(id)?;
        let pair = usize::from(slot / 2);
        let start = outline.place(2 * pair)?;
        let known = outline.known >> pair & 1 == 1;
        known.then(|| Pair { start, crc: outline.pairs[pair] })
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
        if !all.by_id.contains_key(&chunk) {
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
        known.change(id, &Change::Patch(patch(5)));
        assert!(known.pair(id, 4).is_none() && known.pair(id, 6).is_some());
        // A checkpoint saw that, and not what came since.
        known.merged(id, &row(0, 32, 100), &patch(9));
        assert!(known.pair(id, 4).is_some() && known.pair(id, 9).is_none());
        known.change(id, &Change::Put(row(0, 32, 500).into()));
        assert_eq!(known.pair(id, 9).unwrap().start, 508);
        known.change(id, &Change::Delete);
        assert!(known.places(id).is_none());
        known.merged(id, &row(0, 32, 100), &Patch::default());
        assert!(known.places(id).is_none(), "what a checkpoint wrote may be old");
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

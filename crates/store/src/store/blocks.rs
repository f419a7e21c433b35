//! Objects' data that was read, kept in memory in a byte budget.
//!
//! A block is found by its place and what its checksum must be, as everything that is read. What is written
//! to a place ends what is known of it ([`BlockCache::forget`]), before the write begins: [`super::inflight`]
//! lets no read and write of a place meet, so that nothing older can come later.
//!
//! Blocks stand in *chunks* of memory in the order in which they came, and go chunk by chunk, the oldest
//! first: so memory that is given back is whole, whatever size it is wanted in next. What was used more than
//! once since it came, or since it was last carried over, is carried over into the newest chunk, up to half
//! of each chunk, so that room for so many chunks costs copies of at most as many.
//!
//! Where others must go for it, only one in some reads is kept. What is read often is soon among these all
//! the same, and whoever goes through more than there is room for, again and again, finds most of what is
//! kept, where he would find nothing if it always went for the next (Qureshi et al., "Adaptive insertion
//! policies for high performance caching", ISCA 2007).

use crate::places::PlaceMap;
use bytes::{Bytes, BytesMut};
use io::BLOCK_BYTES;
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::VecDeque;

/// Blocks of a chunk.
const CHUNK_BLOCKS: usize = 16;
/// Bytes that what is known of a block takes beside it.
const ENTRY_BYTES: usize = 96;
/// Bytes of memory that a chunk takes with all that is known of it.
const CHUNK_BYTES: usize = CHUNK_BLOCKS * (BLOCK_BYTES + ENTRY_BYTES);
/// Blocks of a chunk that are carried over at most.
const CARRIED: usize = CHUNK_BLOCKS / 2;
/// Times that a block must have been used to be carried over.
const CARRIED_USES: u8 = 2;
/// A read of more blocks is a long one.
pub(crate) const LONG_BLOCKS: u64 = 32;
/// Of the short reads that find no room, one of so many is kept.
const SHORT_KEPT: u32 = 4;
/// And of the long ones.
const LONG_KEPT: u32 = 16;

#[derive(Debug)]
struct Entry {
    /// Blocks that came together, and which of them it is.
    piece: Bytes,
    at: u8,
    crc: u32,
    /// The number of its chunk.
    chunk: u64,
    /// Times that it was wanted since it came there, as far as they count.
    uses: Cell<u8>,
}

/// A block that is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept<'a> {
    /// Blocks that came together.
    pub piece: &'a Bytes,
    /// Which of them it is.
    pub at: usize,
    /// Its checksum.
    pub crc: u32,
}

impl Kept<'_> {
    /// Its bytes.
    pub fn bytes(&self) -> Bytes {
        self.piece.slice(self.at * BLOCK_BYTES..(self.at + 1) * BLOCK_BYTES)
    }
}

/// The cache of blocks.
#[derive(Debug, Default)]
pub(crate) struct BlockCache {
    entries: PlaceMap<Entry>,
    /// The places of the blocks of each chunk, the oldest first. Boxed, as there are many: growing a large
    /// table would take long.
    chunks: VecDeque<Box<SmallVec<[u64; CHUNK_BLOCKS]>>>,
    /// The number of the oldest chunk.
    oldest: u64,
    /// What is left of the newest chunk's memory.
    rest: BytesMut,
    /// Memory of a chunk that went, for the next one.
    spare: BytesMut,
    /// Chunks, at most.
    room: usize,
    /// Short and long reads that found no room.
    refused: (u32, u32),
    hits: Cell<u64>,
}

impl BlockCache {
    /// From now on it is to take so many bytes, at most. Until [`BlockCache::give_back`] has made that so, nothing is
    /// added.
    pub fn set_room(&mut self, bytes: usize) {
        self.room = bytes / CHUNK_BYTES;
    }

    /// Gives back what it takes beyond its room, about so many bytes of it at most. Whether that was all.
    pub fn give_back(&mut self, bytes: usize) -> bool {
        let most = (bytes / CHUNK_BYTES).max(1);
        for _ in 0..self.over().min(most) {
            self.drop_oldest();
            self.spare = BytesMut::new();
        }
        self.over() == 0
    }

    /// Chunks for which there is no room any more.
    fn over(&self) -> usize {
        self.chunks.len().saturating_sub(self.room)
    }

    /// Memory taken, but for that of one chunk which waits to be used again.
    pub fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES
    }

    /// Blocks in it.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Blocks that were found.
    pub fn hits(&self) -> u64 {
        self.hits.get()
    }

    /// The block at `place`, if it is the wanted one.
    pub fn get(&self, place: u64, is_it: impl FnOnce(u32) -> bool) -> Option<Kept<'_>> {
        let entry = self.entries.get(place).filter(|entry| is_it(entry.crc))?;
        entry.uses.set(CARRIED_USES.min(entry.uses.get() + 1));
        self.hits.set(self.hits.get() + 1);
        Some(Kept { piece: &entry.piece, at: entry.at.into(), crc: entry.crc })
    }

    /// Whether what a read of so many blocks brings is to be kept.
    pub fn keeps(&mut self, blocks: u64) -> bool {
        let fits =
            self.chunks.len() as u64 + blocks.div_ceil(CHUNK_BLOCKS as u64) <= self.room as u64;
        if fits || self.room == 0 {
            return fits;
        }
        let (refused, one_in) = match blocks {
            0..=LONG_BLOCKS => (&mut self.refused.0, SHORT_KEPT),
            _ => (&mut self.refused.1, LONG_KEPT),
        };
        *refused = refused.wrapping_add(1);
        refused.is_multiple_of(one_in)
    }

    /// Keeps verified blocks that stand one after the other from `place` on.
    pub fn put(&mut self, place: u64, crcs: &[u32], data: &[u8]) {
        if self.room == 0 || self.over() > 0 {
            return;
        }
        let is_new = |all: &Self, at: usize| {
            let known = all.entries.get(place + at as u64);
            known.is_none_or(|known| known.crc != crcs[at])
        };
        let mut next = 0;
        while next < crcs.len() {
            if !is_new(self, next) {
                next += 1;
                continue;
            }
            let end = crcs.len().min(next + self.make_room());
            let piece = next..(next + 1..end).find(|at| !is_new(self, *at)).unwrap_or(end);
            let bytes = &data[piece.start * BLOCK_BYTES..piece.end * BLOCK_BYTES];
            self.append(place + next as u64, &crcs[piece.clone()], bytes);
            next = piece.end;
        }
    }

    /// Knows nothing of so many blocks from `place` on.
    pub fn forget(&mut self, place: u64, blocks: u64) {
        if self.entries.is_empty() {
            return;
        }
        for place in place..place + blocks {
            self.entries.remove(place);
        }
    }

    /// Gives all memory back.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.oldest += self.chunks.len() as u64;
        self.chunks.clear();
        (self.rest, self.spare) = Default::default();
    }

    /// Makes room for one block, or for some; says for how many.
    fn make_room(&mut self) -> usize {
        while self.left_in_newest() == 0 && self.chunks.len() >= self.room.max(1) {
            self.drop_oldest();
        }
        match self.left_in_newest() {
            0 => CHUNK_BLOCKS,
            left => left,
        }
    }

    fn left_in_newest(&self) -> usize {
        self.chunks.back().map_or(0, |newest| CHUNK_BLOCKS - newest.len())
    }

    /// Adds blocks that stand one after the other, no more than there is room for in one chunk.
    fn append(&mut self, first: u64, crcs: &[u32], data: &[u8]) {
        if self.left_in_newest() == 0 {
            self.chunks.push_back(Box::default());
            self.rest = std::mem::take(&mut self.spare);
            if self.rest.capacity() < CHUNK_BLOCKS * BLOCK_BYTES {
                self.rest = BytesMut::with_capacity(CHUNK_BLOCKS * BLOCK_BYTES);
            }
        }
        let chunk = self.oldest + self.chunks.len() as u64 - 1;
        self.rest.extend_from_slice(data);
        let piece = self.rest.split().freeze();
        for ((place, crc), at) in (first..).zip(crcs).zip(0..) {
            let entry = Entry { piece: piece.clone(), at, crc: *crc, chunk, uses: Cell::new(0) };
            self.entries.insert(place, entry);
        }
        if let Some(newest) = self.chunks.back_mut() {
            newest.extend(first..first + crcs.len() as u64);
        }
    }

    /// Ends the oldest chunk, except for some of what was used.
    fn drop_oldest(&mut self) {
        let Some(places) = self.chunks.pop_front() else { return };
        let number = self.oldest;
        self.oldest += 1;
        let mut carried = 0;
        let mut last = None;
        for place in *places {
            // Others are at that place by now, in a newer chunk.
            let Some(entry) = self.entries.get(place).filter(|e| e.chunk == number) else {
                continue;
            };
            if entry.uses.get() == CARRIED_USES && carried < CARRIED && !self.chunks.is_empty() {
                carried += 1;
                let (crc, at) = (entry.crc, usize::from(entry.at) * BLOCK_BYTES);
                let piece = entry.piece.clone();
                self.append(place, &[crc], &piece[at..at + BLOCK_BYTES]);
                last = Some(piece);
            } else {
                last = self.entries.remove(place).map(|entry| entry.piece);
            }
        }
        self.reuse(last);
    }

    /// Keeps the memory of a chunk for the next one, if nobody else holds any of it.
    fn reuse(&mut self, last: Option<Bytes>) {
        let Some(Ok(mut memory)) = last.map(Bytes::try_into_mut) else { return };
        memory.clear();
        if memory.try_reclaim(CHUNK_BLOCKS * BLOCK_BYTES) {
            self.spare = memory;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 8;

    fn block(n: u64) -> Vec<u8> {
        vec![n as u8; BLOCK_BYTES]
    }

    fn cache() -> BlockCache {
        let mut cache = BlockCache::default();
        cache.set_room(ROOM * CHUNK_BYTES);
        cache
    }

    fn put(cache: &mut BlockCache, n: u64) {
        cache.put(n, &[n as u32], &block(n));
        assert!(cache.bytes() <= ROOM * CHUNK_BYTES);
    }

    fn has(cache: &BlockCache, n: u64) -> bool {
        let found = cache.get(n, |crc| crc == n as u32);
        found.inspect(|kept| assert_eq!(kept.bytes()[..], block(n))).is_some()
    }

    #[test]
    fn what_was_used_stays_and_the_rest_goes_in_the_order_it_came() {
        let mut cache = cache();
        let all = (ROOM * CHUNK_BLOCKS) as u64;
        for n in 0..all {
            put(&mut cache, n);
        }
        assert!((0..all).step_by(2).all(|n| has(&cache, n)), "all of it has room");
        assert!((0..all).step_by(4).all(|n| has(&cache, n)));
        for n in all..all * 3 / 2 {
            put(&mut cache, n);
        }
        let (stayed, gone): (Vec<u64>, Vec<u64>) = (0..all / 2).partition(|n| has(&cache, *n));
        assert!(stayed.iter().all(|n| n % 4 == 0) && stayed.len() == all as usize / 8);
        assert_eq!(gone.len(), all as usize * 3 / 8);
        assert!(has(&cache, all * 3 / 2 - 1));
    }

    /// However much was used, room is made by copying no more than what it is made for.
    #[test]
    fn of_what_is_all_in_use_half_goes() {
        let mut cache = cache();
        let all = (ROOM * CHUNK_BLOCKS) as u64;
        for n in 0..all {
            put(&mut cache, n);
            assert!(has(&cache, n) && has(&cache, n));
        }
        cache.set_room(ROOM / 2 * CHUNK_BYTES);
        assert!(!cache.give_back(CHUNK_BYTES) && cache.bytes() >= (ROOM - 1) * CHUNK_BYTES);
        while !cache.give_back(CHUNK_BYTES) {}
        assert_eq!(cache.bytes(), ROOM / 2 * CHUNK_BYTES);
        assert_eq!((0..all).filter(|n| has(&cache, *n)).count(), all as usize / 2);
        cache.set_room(0);
        while !cache.give_back(usize::MAX) {}
        assert_eq!((cache.bytes(), cache.entries.len()), (0, 0));
        put(&mut cache, 1);
        assert!(!has(&cache, 1));
    }

    #[test]
    fn what_was_written_over_is_not_known() {
        let mut cache = cache();
        cache.put(10, &[10, 11, 12], &[block(10), block(11), block(12)].concat());
        assert!((10..13).all(|n| has(&cache, n)));
        assert!(cache.get(11, |crc| crc == 99).is_none(), "it is another one that is wanted");
        cache.forget(11, 5);
        assert!(has(&cache, 10) && !has(&cache, 11) && !has(&cache, 12));
        // A chunk goes whose blocks are known from a newer one.
        put(&mut cache, 11);
        for n in 100..100 + ((ROOM - 1) * CHUNK_BLOCKS) as u64 {
            put(&mut cache, n);
        }
        cache.forget(11, 1);
        put(&mut cache, 11);
        assert!(has(&cache, 11));
        cache.clear();
        assert!(!has(&cache, 11) && cache.bytes() == 0);
    }

    #[test]
    fn reads_are_kept_where_there_is_room_and_some_of_them_otherwise() {
        let mut cache = cache();
        let (short, long) = (LONG_BLOCKS, LONG_BLOCKS + 1);
        assert!((0..10).all(|_| cache.keeps(short) && cache.keeps(long)));
        for n in 0..(ROOM * CHUNK_BLOCKS) as u64 {
            put(&mut cache, n);
        }
        assert_eq!((0..10 * SHORT_KEPT).filter(|_| cache.keeps(short)).count(), 10);
        assert_eq!((0..10 * LONG_KEPT).filter(|_| cache.keeps(long)).count(), 10);
        cache.set_room(0);
        assert!((0..2 * LONG_KEPT).all(|_| !cache.keeps(long) && !cache.keeps(short)));
    }

    /// Blocks that came together stand together, as far as they were not known before.
    #[test]
    fn a_long_run_is_kept_in_long_pieces() {
        let mut cache = cache();
        put(&mut cache, 30);
        let blocks: Vec<u64> = (10..60).collect();
        let crcs: Vec<u32> = blocks.iter().map(|n| *n as u32).collect();
        let data: Vec<u8> = blocks.iter().flat_map(|n| block(*n)).collect();
        cache.put(10, &crcs, &data);
        assert!(blocks.iter().all(|n| has(&cache, *n)));
        let piece = |n| {
            let kept = cache.get(n, |_| true).unwrap();
            (kept.piece.len() / BLOCK_BYTES, kept.at)
        };
        // One block stood in the first chunk; then to its end, up to the known one, and so on.
        assert_eq!([10, 24, 25, 29, 30].map(piece), [(15, 0), (15, 14), (5, 0), (5, 4), (1, 0)]);
        assert_eq!([31, 41, 42, 57, 58].map(piece), [(11, 0), (11, 10), (16, 0), (16, 15), (2, 0)]);
    }

    /// Memory of chunks is used again, if nobody holds what was in it.
    #[test]
    fn a_chunk_that_goes_leaves_its_memory_to_the_next_one() {
        let mut cache = cache();
        let all = (ROOM * CHUNK_BLOCKS) as u64;
        (0..=all).for_each(|n| put(&mut cache, n));
        let held = cache.get(CHUNK_BLOCKS as u64, |_| true).unwrap().bytes();
        let memory = |cache: &BlockCache, n| cache.get(n, |_| true).unwrap().bytes().as_ptr();
        let first = memory(&cache, 2 * CHUNK_BLOCKS as u64);
        (all + 1..all + 3 * CHUNK_BLOCKS as u64).for_each(|n| put(&mut cache, n));
        assert_eq!(memory(&cache, all + 2 * CHUNK_BLOCKS as u64), first);
        assert_eq!(held[..], block(CHUNK_BLOCKS as u64));
    }
}

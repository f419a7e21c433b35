//! What is kept of rows of extents that are not in memory.
//!
//! The rows of a device take 1.2 GiB of memory for each TiB, most of it the checksums of 4 KiB blocks.
//! An outline says where the blocks of a shard stand, if they are one run that belongs to its object alone,
//! which takes 0.06 GiB for each TiB: enough to overwrite blocks ([`crate::patch`]). And as far as there is
//! room, it has a brief checksum of each of them ([`BriefCrc`]), which takes 0.88 GiB more: enough to read
//! blocks.
//!
//! An outline says what the newest layer of the rows says.

mod chunk;

use super::miss::ReadSet;
use crate::keys::{self, ShardId};
use crate::memtable::Memtable;
use crate::patch::Patch;
use crate::plan::Rows;
pub(crate) use chunk::BriefCrc;
use chunk::{CHUNK_SHARDS, Chunk, ChunkId, LIVES, Sums};
use std::cell::RefCell;
use types::{HashTable, fixed_hash};

/// What finds a chunk takes about so much memory: an entry of a table that is two thirds full.
const FINDING_BYTES: usize = 8;
/// Memory of a chunk whose shards stand behind each other, as they mostly do; it is counted so for all.
const CHUNK_BYTES: usize = size_of::<Chunk>() + FINDING_BYTES;
/// Memory of its checksums.
const SUMS_BYTES: usize = size_of::<Sums>();
/// One part of so many of the memory is for chunks without checksums.
const CHUNKS_PART: usize = 8;
/// The table of chunks grows by one part of so many at least.
const GROWTH_PART: usize = 8;

#[derive(Default)]
struct Chunks {
    /// Which chunk has which id.
    index: HashTable<u32>,
    chunks: Vec<Chunk>,
    /// How many of them have memory for checksums.
    with_sums: usize,
    hand: usize,
    room_bytes: usize,
}

/// The outlines of shards that were used last, in a byte budget.
#[derive(Default)]
pub(crate) struct Outlines(RefCell<Chunks>);

fn chunk_of((id, number): ShardId) -> (ChunkId, usize) {
    let shards = CHUNK_SHARDS as u32;
    ((id, number / shards), (number % shards) as usize)
}

impl Chunks {
    fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES + self.with_sums * SUMS_BYTES
    }

    fn has_room_for_sums(&self) -> bool {
        self.bytes() + SUMS_BYTES <= self.room_bytes
    }

    /// So many chunks there may be.
    fn most(&self) -> usize {
        self.room_bytes / CHUNKS_PART / CHUNK_BYTES
    }

    fn find(&self, id: ChunkId) -> Option<usize> {
        if self.chunks.is_empty() {
            return None;
        }
        let found = self.index.find(fixed_hash(&id), |&i| self.chunks[i as usize].id() == id);
        found.map(|i| *i as usize)
    }

    /// Whether nothing more is to be known of a shard, which is not used by that.
    fn is_complete(&self, id: ShardId) -> bool {
        let (chunk, shard) = chunk_of(id);
        let has_room = self.has_room_for_sums();
        self.find(chunk).is_some_and(|i| self.chunks[i].is_complete(shard, has_room))
    }

    /// The chunk of a shard that is of use now, and which of its shards that is.
    fn used(&mut self, id: ShardId) -> Option<(&mut Chunk, usize)> {
        let (chunk, shard) = chunk_of(id);
        let chunk = self.find(chunk).map(|i| &mut self.chunks[i])?;
        chunk.lives = LIVES;
        Some((chunk, shard))
    }

    /// Makes room for what is to be known of a chunk, as far as there is any; `at_cost`: others may have to
    /// go for it. False if there is none.
    ///
    /// When all have theirs, each wish moves the clock by one only: where more is used at random than there
    /// is room for, it is best to keep what is there.
    fn admit(&mut self, id: ChunkId, at_cost: bool) -> bool {
        let is_new = self.find(id).is_none();
        if is_new && self.chunks.len() < self.most() {
            self.push(id);
        } else if is_new {
            let Some(at) = self.unused(at_cost) else { return false };
            self.replace(at, id);
        }
        let Some(at) = self.find(id) else { return false };
        if self.chunks[at].has_sums() {
            return true;
        }
        if self.has_room_for_sums() {
            self.with_sums += 1;
            self.chunks[at].give_sums(Sums::new());
        } else if !is_new && let Some(other) = self.unused(at_cost) {
            // It keeps what is needed to overwrite its blocks.
            if let Some(sums) = self.chunks[other].take_sums() {
                self.chunks[at].give_sums(sums);
            }
        }
        true
    }

    /// The chunk that the clock stands at, if that was not used for long; it moves on by one.
    fn unused(&mut self, at_cost: bool) -> Option<usize> {
        if !at_cost {
            return None;
        }
        let at = self.hand;
        self.hand = (self.hand + 1) % self.chunks.len().max(1);
        let chunk = self.chunks.get_mut(at)?;
        chunk.lives = chunk.lives.saturating_sub(1);
        (chunk.lives == 0).then_some(at)
    }

    fn push(&mut self, id: ChunkId) {
        if self.chunks.len() == self.chunks.capacity() {
            self.reserve();
        }
        self.chunks.push(Chunk::new(id));
        self.add_index(id, self.chunks.len() - 1);
        if self.bytes() > self.room_bytes {
            self.shrink();
        }
    }

    /// Growing bit by bit would take twice the memory at times, and long to find places for all anew. But the
    /// room may have grown only a little since the last time.
    fn reserve(&mut self) {
        let len = self.chunks.len();
        let more = self.most().saturating_sub(len).max(len / GROWTH_PART);
        self.chunks.reserve_exact(more);
        self.index.reserve(more, |i| fixed_hash(&self.chunks[*i as usize].id()));
    }

    fn replace(&mut self, at: usize, id: ChunkId) {
        let mut old = std::mem::replace(&mut self.chunks[at], Chunk::new(id));
        if let Some(sums) = old.take_sums() {
            self.chunks[at].give_sums(sums);
        }
        self.remove_index(old.id(), at);
        self.add_index(id, at);
    }

    /// Gives memory back until all keeps to the budget: that of checksums first, wherever the clock stands.
    fn shrink(&mut self) {
        let mut left = self.chunks.len();
        while self.bytes() > self.room_bytes && self.with_sums > 0 && left > 0 {
            left -= 1;
            let sums = self.chunks.get_mut(self.hand).and_then(Chunk::take_sums);
            self.with_sums -= usize::from(sums.is_some());
            self.hand = (self.hand + 1) % self.chunks.len().max(1);
        }
        while self.chunks.len() > self.most() {
            self.pop();
        }
        self.hand = self.hand.min(self.chunks.len().saturating_sub(1));
    }

    fn pop(&mut self) {
        if let Some(mut last) = self.chunks.pop() {
            self.with_sums -= usize::from(last.take_sums().is_some());
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
        Outlines(RefCell::new(Chunks { room_bytes: bytes, ..Chunks::default() }))
    }

    /// From now on they take up to so much memory.
    pub fn set_room(&mut self, bytes: usize) {
        let all = self.0.get_mut();
        all.room_bytes = bytes;
        if all.bytes() > bytes {
            all.shrink();
        }
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.0.borrow().bytes()
    }

    /// Chunks of outlines of neighbours.
    pub fn len(&self) -> usize {
        self.0.borrow().chunks.len()
    }

    /// Learns what is to be known of a shard whose row had to be read; and of those whose rows came with
    /// it, as long as there is room. Nothing new while the tree still fits into memory.
    pub fn learn(&self, rows: &Rows, id: ShardId, read: &ReadSet) {
        self.learn_one(rows, id, true);
        let leaves = read.pages.iter().filter(|node| node.level() == 0);
        let keys = leaves.flat_map(|leaf| (0..leaf.count()).map(|i| leaf.key(i)));
        for other in keys.filter_map(|key| keys::shard_of(&key)) {
            if !self.0.borrow().is_complete(other) {
                self.learn_one(rows, other, false);
            }
        }
    }

    fn learn_one(&self, rows: &Rows, id: ShardId, at_cost: bool) {
        let (chunk, _) = chunk_of(id);
        let admitted = rows.pages.is_full() && self.0.borrow_mut().admit(chunk, at_cost);
        if !admitted && self.0.borrow().find(chunk).is_none() {
            return;
        }
        // What was read may be old; the layers know.
        if let Ok((Some(row), _)) = rows.get(&keys::shard(id.0, id.1)) {
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

    /// Knows nothing of a shard from now on.
    pub fn forget(&self, id: ShardId) {
        if let Some((chunk, shard)) = self.0.borrow_mut().used(id) {
            chunk.forget(shard);
        }
    }

    /// Place of each block of a shard that is there, by slot.
    pub fn places(&self, id: ShardId) -> Option<impl Fn(u8) -> Option<u64> + use<>> {
        let mut all = self.0.borrow_mut();
        let (chunk, shard) = all.used(id)?;
        let (span, first) = (chunk.span(shard)?, chunk.first(shard));
        Some(move |slot: u8| span.has(slot).then(|| first.wrapping_add(slot.into())))
    }

    /// The checksum of the block in a slot, if it is known.
    pub fn sum(&self, id: ShardId, slot: u8) -> Option<BriefCrc> {
        let mut all = self.0.borrow_mut();
        let (chunk, shard) = all.used(id)?;
        chunk.sum(shard, slot)
    }
}

#[cfg(test)]
mod tests;

//! Blocks for tree nodes.
//!
//! Nodes stand together in chunks of 1 MiB, in the order in which a checkpoint makes them, so that it writes
//! long runs, and the next one reads long ones. What changes at random leaves single blocks everywhere; so
//! there is as much room in the chunks as there are nodes, and the one with the most room is filled next. A
//! chunk is only a habit: when no empty one is to be had, single blocks do, and what a chunk does not use is
//! given back when data needs it. Which blocks hold nodes is not recorded: mounting finds them by walking
//! the inner nodes. So making room for nodes never changes the tree that is being written.

use super::bits::masks;
use super::{Allocator, Group, REGION_WORDS, Round, Run};
use crate::tree::apply::PageSpace;
use std::collections::{BTreeMap, BTreeSet};

const CHUNK_BLOCKS: u64 = 256;
const CHUNK_WORDS: usize = (CHUNK_BLOCKS / 64) as usize;
/// Room is told in parts of so many blocks: chunks change their place among the others less often.
const RANK_BLOCKS: u64 = 16;
/// Room that chunks may have, whatever the number of nodes.
const MIN_SPARE_BLOCKS: u64 = 8 * CHUNK_BLOCKS;
/// Chunks with room that are looked at before a new one is taken.
const SEARCH_CHUNKS: usize = 8;
/// Where no more than so many blocks are left each node goes where it fits best.
const TIGHT_BLOCKS: u64 = 1024;

#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// Blocks that are ours.
    owned: [u64; CHUNK_WORDS],
    /// Blocks that hold nodes; all of them are ours.
    used: [u64; CHUNK_WORDS],
}

impl Chunk {
    fn spare(&self) -> u64 {
        let words = self.owned.iter().zip(&self.used);
        words.map(|(o, u)| u64::from((o & !u).count_ones())).sum()
    }

    /// All blocks but those that are ours and not used.
    fn busy(&self) -> [u64; CHUNK_WORDS] {
        let mut busy = [0; CHUNK_WORDS];
        for (b, (o, u)) in busy.iter_mut().zip(self.owned.iter().zip(&self.used)) {
            *b = !(o & !u);
        }
        busy
    }

    /// The first of `len` contiguous blocks that are ours and not used.
    fn find(&self, len: u64) -> Option<u64> {
        super::ClearRuns::new(&self.busy()).find(|(_, l)| *l >= len).map(|(start, _)| start)
    }
}

/// 0 for no room at all.
fn rank(spare: u64) -> u64 {
    spare.div_ceil(RANK_BLOCKS)
}

/// The chunks.
#[derive(Debug, Default)]
pub(super) struct Pages {
    chunks: BTreeMap<u64, Chunk>,
    /// Chunks with spare blocks: how much room, and the chunk.
    roomy: BTreeSet<(u64, u64)>,
    /// The chunk that is being filled.
    current: u64,
    used: u64,
    spare: u64,
}

impl Pages {
    pub fn used(&self) -> u64 {
        self.used
    }

    pub fn spare(&self) -> u64 {
        self.spare
    }

    /// Changes one chunk and the sums over all.
    fn change(&mut self, number: u64, f: impl FnOnce(&mut Chunk)) {
        let chunk = self.chunks.entry(number).or_default();
        let count = |c: &Chunk| u64::from(c.used.iter().map(|w| w.count_ones()).sum::<u32>());
        let (spare, used) = (chunk.spare(), count(chunk));
        f(chunk);
        let (before, since) = (rank(spare), rank(chunk.spare()));
        if before != since {
            self.roomy.remove(&(before, number));
            if since > 0 {
                self.roomy.insert((since, number));
            }
        }
        self.spare = self.spare - spare + chunk.spare();
        self.used = self.used - used + count(chunk);
        if chunk.owned.iter().all(|w| *w == 0) {
            self.chunks.remove(&number);
        }
    }

    /// Changes the chunks that a run touches; `f` gets the words of the chunk and a mask for each.
    fn change_run(&mut self, start: u64, len: u64, f: impl Fn(&mut Chunk, usize, u64)) {
        let mut at = start;
        while at < start + len {
            let number = at / CHUNK_BLOCKS;
            let end = ((number + 1) * CHUNK_BLOCKS).min(start + len);
            let base = number * CHUNK_BLOCKS;
            self.change(number, |chunk| {
                masks(at - base, end - at).for_each(|(word, mask)| f(chunk, word, mask));
            });
            at = end;
        }
    }

    pub fn own(&mut self, start: u64, len: u64) {
        self.change_run(start, len, |chunk, word, mask| chunk.owned[word] |= mask);
    }

    fn occupy(&mut self, start: u64, len: u64) {
        self.change_run(start, len, |chunk, word, mask| {
            assert_eq!(chunk.owned[word] & !chunk.used[word] & mask, mask, "a node's block");
            chunk.used[word] |= mask;
        });
    }

    fn vacate(&mut self, start: u64, len: u64) {
        self.change_run(start, len, |chunk, word, mask| {
            assert_eq!(chunk.used[word] & mask, mask, "a node's block is freed once");
            chunk.used[word] &= !mask;
        });
    }

    /// `len` blocks in this chunk.
    fn find_in(&self, number: u64, len: u64) -> Option<u64> {
        let at = self.chunks.get(&number)?.find(len)?;
        Some(number * CHUNK_BLOCKS + at)
    }

    /// `len` blocks in one of the `limit` chunks with the most room.
    fn find(&mut self, len: u64, limit: usize) -> Option<u64> {
        let mut roomy = self.roomy.range((rank(len), 0)..).rev().take(limit);
        let (number, block) = roomy.find_map(|(_, n)| Some((*n, self.find_in(*n, len)?)))?;
        self.current = number;
        Some(block)
    }

    /// Whether all these blocks hold nodes.
    fn are_nodes(&self, start: u64, len: u64) -> bool {
        (start..start + len).all(|block| {
            let (number, at) = (block / CHUNK_BLOCKS, block % CHUNK_BLOCKS);
            let chunk = self.chunks.get(&number);
            chunk.is_some_and(|c| c.used[(at / 64) as usize] >> (at % 64) & 1 == 1)
        })
    }

    /// Spare blocks of one chunk, taken out of it, as runs.
    fn strip(&mut self, number: u64) -> Vec<Run> {
        let Some(busy) = self.chunks.get(&number).map(Chunk::busy) else { return Vec::new() };
        self.change(number, |chunk| chunk.owned = chunk.used);
        let base = number * CHUNK_BLOCKS;
        super::ClearRuns::new(&busy).map(|(start, len)| Run::new(base + start, len)).collect()
    }
}

impl PageSpace for Allocator {
    fn alloc_page(&mut self, blocks: u16) -> Option<u64> {
        let len = u64::from(blocks);
        let block = self.place_for(len).or_else(|| self.place_in_stretch(len))?;
        self.pages.occupy(block, len);
        Some(block)
    }
}

impl Allocator {
    fn place_for(&mut self, len: u64) -> Option<u64> {
        if self.room_for_data() <= TIGHT_BLOCKS {
            return self.tightest(len);
        }
        let has_room = self.pages.spare >= self.pages.used.max(MIN_SPARE_BLOCKS);
        let looked_at = if has_room { SEARCH_CHUNKS } else { 0 };
        let found = self.pages.find_in(self.pages.current, len);
        let found = found.or_else(|| self.pages.find(len, looked_at));
        let found = found.or_else(|| self.new_chunk(len));
        let found = found.or_else(|| self.pages.find(len, usize::MAX));
        found.or_else(|| self.scattered(len))
    }

    /// Takes an empty, aligned 1 MiB.
    fn new_chunk(&mut self, len: u64) -> Option<u64> {
        if len > CHUNK_BLOCKS {
            return None;
        }
        let mut searched = 0;
        let mut round = Round::from(super::region_of(self.pages.current * CHUNK_BLOCKS));
        let may_do = |group: Group| u64::from(group.longest) >= CHUNK_BLOCKS;
        while let Some(region) = self.next_region(&mut round, may_do) {
            if u64::from(self.regions[region].bound()) < CHUNK_BLOCKS {
                continue;
            }
            let chunks = self.words_of(region).chunks_exact(CHUNK_WORDS);
            let free = chunks.enumerate().find(|(_, words)| words.iter().all(|w| *w == 0));
            if let Some((n, _)) = free {
                let per_region = (REGION_WORDS / CHUNK_WORDS) as u64;
                let number = region as u64 * per_region + n as u64;
                self.take(number * CHUNK_BLOCKS, CHUNK_BLOCKS);
                self.pages.own(number * CHUNK_BLOCKS, CHUNK_BLOCKS);
                self.pages.current = number;
                return Some(number * CHUNK_BLOCKS);
            }
            searched += 1;
            if searched >= super::SEARCH_REGIONS {
                break;
            }
        }
        None
    }

    /// The shortest run of blocks that is long enough: what is left must do for long nodes, too.
    fn tightest(&mut self, len: u64) -> Option<u64> {
        let mut best: Option<Run> = None;
        let mut look = |words: &[u64], base: u64| {
            for (start, l) in super::ClearRuns::new(words).filter(|(_, l)| *l >= len) {
                if best.is_none_or(|b| u64::from(b.len) > l) {
                    best = Some(Run::new(base + start, l));
                }
            }
        };
        for (_, number) in &self.pages.roomy {
            if let Some(chunk) = self.pages.chunks.get(number) {
                look(&chunk.busy(), number * CHUNK_BLOCKS);
            }
        }
        let mut round = Round::from(0);
        while let Some(region) = self.next_region(&mut round, |g| u64::from(g.longest) >= len) {
            if u64::from(self.regions[region].bound()) >= len {
                look(self.words_of(region), region as u64 * super::REGION_BLOCKS);
            }
        }
        let block = best?.start;
        if self.used.all(block, 1, false) {
            self.take(block, len);
            self.pages.own(block, len);
        }
        Some(block)
    }

    /// Any free blocks that stand together.
    fn scattered(&mut self, len: u64) -> Option<u64> {
        let run = self.find_whole(0, len as u16)?;
        self.take(run.start, len);
        self.pages.own(run.start, len);
        Some(run.start)
    }

    /// Whether all these blocks hold nodes of a tree.
    pub fn are_nodes(&self, start: u64, len: u64) -> bool {
        self.pages.are_nodes(start, len)
    }

    /// Frees the blocks of a node. Nothing may be in flight on them.
    pub fn free_page(&mut self, start: u64, blocks: u16) {
        self.pages.vacate(start, u64::from(blocks));
        let last = start + u64::from(blocks) - 1;
        for number in start / CHUNK_BLOCKS..=last / CHUNK_BLOCKS {
            let chunk = self.pages.chunks.get(&number);
            if chunk.is_some_and(|c| c.used.iter().all(|w| *w == 0)) {
                self.return_chunk(number);
            }
        }
    }

    fn return_chunk(&mut self, number: u64) {
        for run in self.pages.strip(number) {
            self.give_back(run.start, u64::from(run.len));
        }
    }

    /// Gives all blocks that chunks hold and no node uses back to data.
    pub(super) fn return_spare_pages(&mut self) {
        while let Some(number) = self.pages.roomy.first().map(|(_, n)| *n) {
            self.return_chunk(number);
        }
    }

    /// Mount: the blocks of a node of the tree. False when they are taken already.
    pub fn adopt_page(&mut self, start: u64, blocks: u16) -> bool {
        let len = u64::from(blocks);
        let limit = self.regions.len() as u64 * super::REGION_BLOCKS;
        if len == 0 || start >= limit || start + len > limit || !self.used.all(start, len, false) {
            return false;
        }
        self.take(start, len);
        self.pages.own(start, len);
        self.pages.occupy(start, len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_stand_together_and_give_everything_back() {
        let mut a = Allocator::new(10_000);
        a.take(0, 3);
        let pages: Vec<u64> = (0..300).map(|_| a.alloc_page(1).unwrap()).collect();
        assert!(pages.windows(2).filter(|w| w[0] + 1 == w[1]).count() >= 298);
        let long = a.alloc_page(16).unwrap();
        assert_eq!(a.page_blocks(), 316);
        assert_eq!(a.free_blocks() + 316, 9997);
        pages.iter().for_each(|p| a.free_page(*p, 1));
        a.free_page(long, 16);
        assert_eq!((a.page_blocks(), a.free_blocks(), a.free), (0, 9997, 9997));
    }

    /// Of large devices there are hundreds of thousands.
    #[test]
    fn a_place_is_not_looked_for_in_one_region_after_the_other() {
        let group = super::super::GROUP_REGIONS as u64 * super::super::REGION_BLOCKS;
        // Two groups are said to be of no use, which they are not.
        let misled = || {
            let mut a = Allocator::new(3 * group);
            (a.groups[0].longest, a.groups[1].longest) = (0, 9);
            a
        };
        assert_eq!(misled().new_chunk(1), Some(2 * group));
        assert_eq!(misled().tightest(9), Some(group));
        assert_eq!(misled().tightest(10), Some(2 * group));
    }

    #[test]
    fn the_last_block_can_hold_a_node_and_spare_blocks_can_hold_data() {
        let mut a = Allocator::new(2000);
        a.take(0, 3);
        let page = a.alloc_page(1).unwrap();
        let left = a.free_blocks();
        assert_eq!(left, 1996);
        a.alloc(left - 1).unwrap();
        assert!(a.alloc_page(2).is_none());
        assert!(a.alloc_page(1).is_some());
        assert!(a.alloc_page(1).is_none());
        a.free_page(page, 1);
        assert!(a.alloc(1).is_some());
    }
}

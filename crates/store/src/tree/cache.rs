//! Nodes in memory, in a byte budget.
//!
//! A node is found by where it is and what its checksum must be: a node of an older tree at the
//! same place is never mistaken for the wanted one. Nodes that somebody holds (an operation that is
//! to be run again, the checkpoint) are not thrown out.

use super::node::{Node, PagePtr};
use crate::places::PlaceMap;
use io::BLOCK_BYTES;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

struct Slot {
    node: Arc<Node>,
    crc: u32,
    /// Tells its entry in the clock from those of slots that were at the same block before.
    stamp: u64,
    /// Rounds of the clock that it stays without being used.
    lives: Cell<u8>,
}

/// Lives of a node that was just used; inner nodes are worth more, every lookup needs them.
const LEAF_LIVES: u8 = 1;
const INNER_LIVES: u8 = 4;

/// Entries of the clock that are looked at when a node is forgotten.
const SWEPT: usize = 8;
/// Entries of the clock that room is made for beforehand, at most.
const MOST_RESERVED: usize = 1 << 22;

fn lives_of(node: &Node) -> u8 {
    if node.level() == 0 { LEAF_LIVES } else { INNER_LIVES }
}

/// The page cache: a clock over a byte budget.
pub(crate) struct PageCache {
    slots: PlaceMap<Slot>,
    clock: VecDeque<(u64, u64)>,
    stamp: u64,
    bytes: usize,
    budget: usize,
    hits: Cell<u64>,
    misses: Cell<u64>,
}

impl PageCache {
    pub fn new(budget: usize) -> Self {
        let mut cache = PageCache {
            slots: PlaceMap::default(),
            clock: VecDeque::new(),
            stamp: 0,
            bytes: 0,
            budget,
            hits: Cell::new(0),
            misses: Cell::new(0),
        };
        cache.make_room(budget);
        cache
    }

    /// Makes room in the clock for the nodes of a budget. Growing it would take long where it is large; what
    /// is not used takes no memory.
    pub fn make_room(&mut self, budget: usize) {
        let nodes = (budget / BLOCK_BYTES).min(MOST_RESERVED);
        self.clock.reserve(nodes.saturating_sub(self.clock.len()));
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Nodes in it.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nodes are thrown out for others, or soon will be.
    pub fn is_full(&self) -> bool {
        self.bytes >= self.budget - self.budget / 8
    }

    /// From the next node on it keeps to another budget, or from [`PageCache::evict`] on.
    pub fn set_budget(&mut self, budget: usize) {
        self.budget = budget;
    }

    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.get(), self.misses.get())
    }

    pub fn get(&self, ptr: PagePtr) -> Option<Arc<Node>> {
        match self.slots.get(ptr.block) {
            Some(slot) if slot.crc == ptr.crc => {
                slot.lives.set(lives_of(&slot.node));
                self.hits.set(self.hits.get() + 1);
                Some(slot.node.clone())
            }
            _ => {
                self.misses.set(self.misses.get() + 1);
                None
            }
        }
    }

    /// Whether a node is there, without counting as a use.
    pub fn contains(&self, ptr: PagePtr) -> bool {
        self.slots.get(ptr.block).is_some_and(|slot| slot.crc == ptr.crc)
    }

    pub fn insert(&mut self, ptr: PagePtr, node: Arc<Node>) {
        let lives = Cell::new(lives_of(&node));
        self.bytes += node.memory();
        if let Some(slot) = self.slots.get_mut(ptr.block) {
            self.bytes -= slot.node.memory();
            *slot = Slot { node, crc: ptr.crc, stamp: slot.stamp, lives };
        } else {
            self.stamp += 1;
            let stamp = self.stamp;
            self.slots.insert(ptr.block, Slot { node, crc: ptr.crc, stamp, lives });
            self.clock.push_back((ptr.block, stamp));
        }
        self.evict();
    }

    /// Forgets the node at `block`: the block is going to be something else.
    pub fn forget(&mut self, block: u64) {
        if let Some(slot) = self.slots.remove(block) {
            self.bytes -= slot.node.memory();
        }
        // Entries of forgotten slots are skipped by the clock; where there are too many, some are swept out. As more
        // than half of all are such, it is enough to look at a few each time.
        for _ in 0..SWEPT {
            if self.clock.len() <= self.slots.len() * 2 + 64 {
                return;
            }
            let Some((block, stamp)) = self.clock.pop_front() else { return };
            if self.slots.get(block).is_some_and(|slot| slot.stamp == stamp) {
                self.clock.push_back((block, stamp));
            }
        }
    }

    /// Throws out all that nobody holds.
    pub fn clear(&mut self) {
        let budget = std::mem::take(&mut self.budget);
        self.evict();
        self.budget = budget;
    }

    /// Throws out what is more than the budget, as far as nobody holds it.
    pub fn evict(&mut self) {
        let mut left = self.clock.len() * (usize::from(INNER_LIVES) + 1);
        while self.bytes > self.budget && left > 0 {
            left -= 1;
            let Some((block, stamp)) = self.clock.pop_front() else { return };
            let Some(slot) = self.slots.get(block).filter(|s| s.stamp == stamp) else { continue };
            let lives = slot.lives.get();
            if lives > 0 || Arc::strong_count(&slot.node) > 1 {
                slot.lives.set(lives.saturating_sub(1));
                self.clock.push_back((block, stamp));
                continue;
            }
            self.bytes -= slot.node.memory();
            self.slots.remove(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::{NodeSize, Payload, build};
    use super::*;
    use crate::keys::Key;
    use bytes::Bytes;

    fn page(block: u64) -> (PagePtr, Arc<Node>) {
        let entry = [(Key::from_slice(&block.to_be_bytes()), Payload::Value(Bytes::new()))];
        let (ptr, node) = build(0, (&entry, NodeSize::of(&entry)), block, 1);
        (ptr, Arc::new(node))
    }

    #[test]
    fn keeps_to_its_budget_but_never_drops_what_is_held() {
        let (ptr, held) = page(1);
        let mut cache = PageCache::new(held.memory() * 3);
        cache.insert(ptr, held.clone());
        for block in 2..50 {
            let (p, n) = page(block);
            cache.insert(p, n);
        }
        assert!(cache.bytes <= held.memory() * 3 && cache.is_full());
        assert!(cache.get(ptr).is_some());
        drop(held);
        for block in 50..60 {
            let (p, n) = page(block);
            cache.insert(p, n);
        }
        assert!(cache.get(ptr).is_none());
    }

    /// A checkpoint forgets as many nodes as it makes, and nothing is thrown out while there is room.
    #[test]
    fn the_clock_stays_as_short_as_what_is_kept_and_is_never_gone_through_as_a_whole() {
        let mut cache = PageCache::new(usize::MAX / 2);
        let kept = 1000;
        for block in 1..20 * kept {
            let (ptr, node) = page(block as u64);
            cache.insert(ptr, node);
            let before = cache.clock.len();
            if block > kept {
                cache.forget((block - kept) as u64);
            }
            assert!(before - cache.clock.len() <= SWEPT);
            assert!(cache.clock.len() <= 3 * kept, "{}", cache.clock.len());
        }
        let known = |block: usize| cache.get(page(block as u64).0).is_some();
        assert!((19 * kept..20 * kept).all(known));
    }

    #[test]
    fn another_node_at_the_same_place_is_not_the_wanted_one() {
        let (ptr, node) = page(1);
        let mut cache = PageCache::new(1 << 20);
        cache.insert(ptr, node);
        assert!(!cache.is_full());
        assert!(cache.get(PagePtr { crc: ptr.crc ^ 1, ..ptr }).is_none());
        cache.forget(1);
        assert!(cache.get(ptr).is_none());
        assert_eq!(cache.bytes, 0);
    }
}

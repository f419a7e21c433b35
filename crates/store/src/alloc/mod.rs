//! Which blocks of the data device are in use.
//!
//! A bitmap says what must not be given out: data, tree nodes, the fixed areas, and blocks that were freed
//! but may not be used again yet. All but the data is little, or stands together, and is noted a second time
//! ([`SparseBits`]); what is left is what the store's own records say (one row per [`REGION_BLOCKS`], written
//! by checkpoints). So a block takes a bit of memory: 32 MiB for a TiB.
//!
//! A freed block is *quarantined* until the transaction that freed it can no more be lost, which
//! the log must know (see `wal`), and until no disk operation on it is in flight. Otherwise a crash
//! could bring back the object that the block belonged to, with somebody else's bytes.
//!
//! Big writes get long runs, found region by region (a summary skips the full ones). Small writes
//! into a hole of a large object get the block of an empty 128 KiB window that corresponds to their
//! place in the object's 128 KiB, so that neighbours written later can come to stand beside it.

mod bits;
mod pages;
mod stretches;

pub(crate) use bits::{Bits, Run, push_run};
pub(crate) use stretches::{STRETCH_BLOCKS, stretches_for};

use crate::rows::{REGION_BLOCKS, REGION_WORDS, RegionBits, encode_bitmap};
use bits::{ClearRuns, SparseBits};
use bytes::Bytes;
use pages::Pages;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stretches::Stretches;

/// Blocks of the window that a small write into an empty place gets a block of.
const WINDOW_BLOCKS: u64 = 32;
/// Regions that are searched for one allocation before what was seen so far is taken.
const SEARCH_REGIONS: usize = 64;

/// What is known of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Region {
    /// Free blocks.
    free: u16,
    /// No free run is longer.
    longest: u16,
    /// It was searched for an empty window in vain, and nothing was freed since.
    no_window: bool,
}

impl Region {
    const EMPTY: Region =
        Region { free: REGION_BLOCKS as u16, longest: REGION_BLOCKS as u16, no_window: false };

    /// No free run is longer.
    fn bound(self) -> u16 {
        self.longest.min(self.free)
    }

    fn may_have_window(self) -> bool {
        !self.no_window && u64::from(self.bound()) >= WINDOW_BLOCKS
    }
}

/// Regions that are passed over together: of large devices there are hundreds of thousands.
const GROUP_REGIONS: usize = 256;

/// What is known of all regions of a group. It is brought up to date when it is looked at.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// No free run is longer.
    longest: u16,
    may_have_window: bool,
}

impl Group {
    const EMPTY: Group = Group { longest: REGION_BLOCKS as u16, may_have_window: true };
}

/// A way through all regions, once.
struct Round {
    from: usize,
    passed: usize,
}

impl Round {
    fn from(region: usize) -> Self {
        Round { from: region, passed: 0 }
    }
}

/// The allocator.
#[derive(Debug)]
pub(crate) struct Allocator {
    used: Bits,
    /// Blocks among them that do not hold data.
    aside: SparseBits,
    /// Mount: a block of a fixed area that a bitmap row says is data.
    clash: Option<u64>,
    regions: Vec<Region>,
    groups: Vec<Group>,
    free: u64,
    data_blocks: u64,
    /// Region where the last long run was found.
    cursor: usize,
    /// Region where the last window was found.
    window: usize,
    /// Regions whose bitmap row differs from the last checkpoint's.
    dirty: BTreeSet<u32>,
    /// Regions whose row the running checkpoint will write; a bitmap that changed since the
    /// checkpoint's moment is kept as it was then.
    frozen: BTreeMap<u32, Option<Box<RegionBits>>>,
    quarantine: VecDeque<(u64, Run)>,
    quarantined: u64,
    pages: Pages,
    stretches: Stretches,
}

fn region_of(block: u64) -> usize {
    (block / REGION_BLOCKS) as usize
}

impl Allocator {
    /// A device of `total` blocks, all free.
    pub fn new(total: u64) -> Self {
        let regions = total.div_ceil(REGION_BLOCKS);
        let mut alloc = Allocator {
            used: Bits::new(regions * REGION_BLOCKS),
            aside: SparseBits::default(),
            clash: None,
            regions: vec![Region::EMPTY; regions as usize],
            groups: vec![Group::EMPTY; (regions as usize).div_ceil(GROUP_REGIONS)],
            free: regions * REGION_BLOCKS,
            data_blocks: 0,
            cursor: 0,
            window: 0,
            dirty: BTreeSet::new(),
            frozen: BTreeMap::new(),
            quarantine: VecDeque::new(),
            quarantined: 0,
            pages: Pages::default(),
            stretches: Stretches::default(),
        };
        let rest = regions * REGION_BLOCKS - total;
        if rest > 0 {
            alloc.take(total, rest);
        }
        alloc
    }

    /// Blocks that can be given out, for data or for nodes.
    pub fn free_blocks(&self) -> u64 {
        self.room_for_data() + self.stretches.blocks()
    }

    /// Blocks that can be given out for data.
    pub fn room_for_data(&self) -> u64 {
        self.free + self.pages.spare()
    }

    /// Blocks that hold data.
    pub fn data_blocks(&self) -> u64 {
        self.data_blocks
    }

    /// Blocks that hold tree nodes.
    pub fn page_blocks(&self) -> u64 {
        self.pages.used()
    }

    /// Blocks that were freed and wait to be reusable.
    pub fn quarantined(&self) -> u64 {
        self.quarantined
    }

    /// Regions whose bitmap rows wait to be written.
    pub fn dirty_regions(&self) -> u64 {
        (self.dirty.len() + self.frozen.len()) as u64
    }

    /// Takes blocks, not for data; for good, if nobody gives them back: superblocks and log.
    pub fn take(&mut self, start: u64, len: u64) {
        self.occupy(start, len);
        self.aside.set(start, len);
    }

    fn give_back(&mut self, start: u64, len: u64) {
        self.aside.clear(start, len);
        self.vacate(start, len);
    }

    fn occupy(&mut self, start: u64, len: u64) {
        self.used.set(start, len);
        self.free -= len;
        self.each_region(start, len, |region, n| region.free -= n);
    }

    fn vacate(&mut self, start: u64, len: u64) {
        self.used.clear(start, len);
        self.free += len;
        self.each_region(start, len, |region, n| {
            region.free += n;
            region.longest = region.free;
            region.no_window = false;
        });
        for region in region_of(start)..=region_of(start + len - 1) {
            let group = &mut self.groups[region / GROUP_REGIONS];
            group.longest = group.longest.max(self.regions[region].longest);
            group.may_have_window = true;
        }
    }

    /// If a group of regions begins here and none of them is what `may_do` asks for, how many they are.
    fn pass_over(&mut self, region: usize, may_do: impl Fn(Group) -> bool) -> Option<usize> {
        if !region.is_multiple_of(GROUP_REGIONS) {
            return None;
        }
        let group = &mut self.groups[region / GROUP_REGIONS];
        let end = self.regions.len().min(region + GROUP_REGIONS);
        if may_do(*group) {
            let regions = &self.regions[region..end];
            group.longest = regions.iter().map(|r| r.bound()).max().unwrap_or(0);
            group.may_have_window = regions.iter().any(|r| r.may_have_window());
        }
        (!may_do(*group)).then_some(end - region)
    }

    /// The next region of a round of which it is not known that it, and all of its group, are not what
    /// `may_do` asks for.
    fn next_region(&mut self, round: &mut Round, may_do: impl Fn(Group) -> bool) -> Option<usize> {
        let count = self.regions.len();
        while round.passed < count {
            let region = (round.from + round.passed) % count;
            match self.pass_over(region, &may_do) {
                Some(n) => round.passed += n,
                None => {
                    round.passed += 1;
                    return Some(region);
                }
            }
        }
        None
    }

    fn each_region(&mut self, start: u64, len: u64, f: impl Fn(&mut Region, u16)) {
        let mut at = start;
        while at < start + len {
            let end = (at / REGION_BLOCKS + 1) * REGION_BLOCKS;
            let n = end.min(start + len) - at;
            f(&mut self.regions[region_of(at)], n as u16);
            at += n;
        }
    }

    fn words_of(&self, region: usize) -> &[u64] {
        &self.used.words()[region * REGION_WORDS..(region + 1) * REGION_WORDS]
    }

    /// The blocks of a region that hold data.
    fn data_of(&self, region: usize) -> RegionBits {
        let first = region * REGION_WORDS;
        std::array::from_fn(|i| self.data_word((first + i) as u64))
    }

    /// Notes that which blocks of these ones' regions hold data is about to change.
    fn touch(&mut self, start: u64, len: u64) {
        let last = region_of(start + len - 1);
        for region in region_of(start)..=last {
            if let Some(None) = self.frozen.get(&(region as u32)) {
                let before = Box::new(self.data_of(region));
                self.frozen.insert(region as u32, Some(before));
            }
            self.dirty.insert(region as u32);
        }
    }

    fn take_data(&mut self, run: Run) {
        let len = u64::from(run.len);
        self.touch(run.start, len);
        self.occupy(run.start, len);
        self.data_blocks += len;
    }

    /// Takes `len` blocks for data, in as few runs as can be found quickly. On failure nothing is
    /// taken.
    pub fn alloc(&mut self, len: u64) -> Option<SmallVec<[Run; 4]>> {
        if len > self.free {
            if len > self.room_for_data() {
                return None;
            }
            self.return_spare_pages();
        }
        let mut out = SmallVec::new();
        let mut left = len;
        while left > 0 {
            let run = self.find(left.min(REGION_BLOCKS) as u16).expect("there are free blocks");
            let run = Run::new(run.start, u64::from(run.len).min(left));
            self.take_data(run);
            left -= u64::from(run.len);
            out.push(run);
        }
        Some(out)
    }

    /// A free run of `want` blocks, or the longest one seen when none is found quickly.
    fn find(&mut self, want: u16) -> Option<Run> {
        let mut best: Option<Run> = None;
        let mut searched = 0;
        let mut round = Round::from(self.cursor);
        loop {
            // Runs of less are not looked for.
            let least = match best {
                None => 1,
                Some(best) if searched < SEARCH_REGIONS => best.len + 1,
                Some(best) => u32::from(want).max(best.len + 1),
            };
            let may_do = |group: Group| u32::from(group.longest) >= least;
            let Some(region) = self.next_region(&mut round, may_do) else { break };
            if u32::from(self.regions[region].bound()) < least {
                continue;
            }
            searched += 1;
            let Some(run) = self.find_in(region, want) else { continue };
            if run.len >= u32::from(want) {
                self.cursor = region;
                return Some(run);
            }
            if best.is_none_or(|b| run.len > b.len) {
                best = Some(run);
            }
            if searched >= SEARCH_REGIONS * 4 {
                break;
            }
        }
        if let Some(run) = best {
            self.cursor = region_of(run.start);
        }
        best
    }

    /// The first free run of `want` blocks in a region, or else its longest.
    fn find_in(&mut self, region: usize, want: u16) -> Option<Run> {
        let mut longest: Option<(u64, u64)> = None;
        for (start, len) in ClearRuns::new(self.words_of(region)) {
            if longest.is_none_or(|(_, l)| len > l) {
                longest = Some((start, len));
                if len >= u64::from(want) {
                    break;
                }
            }
        }
        let base = region as u64 * REGION_BLOCKS;
        match longest {
            Some((start, len)) => {
                if len < u64::from(want) {
                    self.regions[region].longest = len as u16;
                }
                Some(Run::new(base + start, len))
            }
            None => {
                self.regions[region].longest = 0;
                None
            }
        }
    }

    /// Takes just these blocks, if they are free.
    pub fn alloc_at(&mut self, start: u64, len: u64) -> Option<Run> {
        let limit = self.regions.len() as u64 * REGION_BLOCKS;
        if start + len > limit || !self.used.all(start, len, false) {
            return None;
        }
        let run = Run::new(start, len);
        self.take_data(run);
        Some(run)
    }

    /// Takes `len` blocks that begin `at` blocks into an empty window.
    pub fn alloc_in_window(&mut self, at: u64, len: u64) -> Option<Run> {
        assert!(at + len <= WINDOW_BLOCKS, "a window is 32 blocks");
        let mut searched = 0;
        let mut round = Round::from(self.window);
        while let Some(region) = self.next_region(&mut round, |group| group.may_have_window) {
            if !self.regions[region].may_have_window() {
                continue;
            }
            searched += 1;
            if searched > SEARCH_REGIONS {
                break;
            }
            let halves = self.words_of(region).iter().flat_map(|w| [*w as u32, (*w >> 32) as u32]);
            let Some(window) = halves.enumerate().find_map(|(i, half)| (half == 0).then_some(i))
            else {
                self.regions[region].no_window = true;
                continue;
            };
            self.window = region;
            let base = region as u64 * REGION_BLOCKS + window as u64 * WINDOW_BLOCKS;
            return self.alloc_at(base + at, len);
        }
        None
    }

    /// Takes back an allocation of a transaction that did not come about.
    pub fn undo(&mut self, run: Run) {
        let len = u64::from(run.len);
        assert!(self.is_data(run), "what is taken back is what was taken");
        self.touch(run.start, len);
        self.data_blocks -= len;
        self.vacate(run.start, len);
    }

    /// Frees blocks on behalf of `txn`; they stay quarantined.
    pub fn free_data(&mut self, run: Run, txn: u64) {
        let len = u64::from(run.len);
        assert!(self.used.all(run.start, len, true), "what is freed was in use");
        self.touch(run.start, len);
        self.aside.set(run.start, len);
        self.data_blocks -= len;
        self.quarantined += len;
        self.quarantine.push_back((txn, run));
    }

    /// The oldest quarantined run, if `recorded` covers its transaction and it is not `busy`. It
    /// stays unused until [`Allocator::reuse`].
    pub fn pop_quarantine(&mut self, recorded: u64, busy: impl Fn(Run) -> bool) -> Option<Run> {
        let (txn, run) = *self.quarantine.front()?;
        if txn > recorded || busy(run) {
            return None;
        }
        self.quarantine.pop_front();
        Some(run)
    }

    /// Runs in quarantine.
    pub fn quarantine_len(&self) -> usize {
        self.quarantine.len()
    }

    /// Whether `recorded` covers the transaction of the oldest quarantined run.
    pub fn has_releasable(&self, recorded: u64) -> bool {
        self.quarantine.front().is_some_and(|(txn, _)| *txn <= recorded)
    }

    /// Makes a run from [`Allocator::pop_quarantine`] free.
    pub fn reuse(&mut self, run: Run) {
        self.quarantined -= u64::from(run.len);
        self.give_back(run.start, u64::from(run.len));
    }

    /// From now on, what changes belongs to the next checkpoint.
    pub fn freeze(&mut self) {
        assert!(self.frozen.is_empty(), "one checkpoint at a time");
        self.frozen = std::mem::take(&mut self.dirty).into_iter().map(|r| (r, None)).collect();
    }

    /// The next bitmap row of the running checkpoint, as it was when it was frozen; `None` in place
    /// of an empty bitmap.
    pub fn pop_frozen(&mut self) -> Option<(u32, Option<Bytes>)> {
        let (region, before) = self.frozen.pop_first()?;
        let bits = before.map_or_else(|| self.data_of(region as usize), |before| *before);
        let row = bits.iter().any(|w| *w != 0).then(|| encode_bitmap(&bits));
        Some((region, row))
    }

    /// Mount: the row of a region as the last checkpoint wrote it, each region once. False when it cannot be.
    pub fn load_region(&mut self, region: u32, bits: &RegionBits) -> bool {
        let from = region as usize * REGION_WORDS;
        let Some(words) = self.used.words_mut().get_mut(from..from + REGION_WORDS) else {
            return false;
        };
        for (i, (word, data)) in words.iter_mut().zip(bits).enumerate() {
            let both = *word & data;
            if both != 0 {
                let block = (from + i) as u64 * 64 + u64::from(both.trailing_zeros());
                self.clash.get_or_insert(block);
            }
            *word |= data;
        }
        true
    }

    /// Mount: what the log says was taken or freed since. False when it cannot be.
    pub fn replay(&mut self, run: Run, taken: bool) -> bool {
        let len = u64::from(run.len);
        let limit = self.regions.len() as u64 * REGION_BLOCKS;
        if len == 0 || run.start >= limit || run.end() > limit {
            return false;
        }
        let is_possible =
            if taken { self.used.all(run.start, len, false) } else { self.is_data(run) };
        if !is_possible {
            return false;
        }
        self.touch(run.start, len);
        if taken {
            self.used.set(run.start, len)
        } else {
            self.used.clear(run.start, len)
        }
        true
    }

    /// Mount: all bitmaps are as they should be. Gives a block where data stands in a fixed area.
    pub fn finish_load(&mut self) -> Result<(), u64> {
        if let Some(block) = self.clash {
            return Err(block);
        }
        self.data_blocks = self.used.count() - self.aside.count();
        let words = self.used.words().chunks_exact(REGION_WORDS);
        for (region, words) in self.regions.iter_mut().zip(words) {
            let used: u32 = words.iter().map(|word| word.count_ones()).sum();
            region.free = (REGION_BLOCKS - u64::from(used)) as u16;
        }
        self.free = self.regions.iter().map(|region| u64::from(region.free)).sum();
        Ok(())
    }

    /// Whether all blocks of a run hold data.
    pub fn is_data(&self, run: Run) -> bool {
        bits::masks(run.start, run.len.into())
            .all(|(word, mask)| self.data_word(word as u64) & mask == mask)
    }

    /// 64 blocks from block `word * 64` on: those that hold data.
    pub fn data_word(&self, word: u64) -> u64 {
        let used = self.used.words().get(word as usize).copied().unwrap_or(0);
        if used == 0 { 0 } else { used & !self.aside.word(word as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::decode_bitmap;

    #[test]
    fn long_runs_come_in_one_piece_and_all_space_can_be_had() {
        let mut a = Allocator::new(20_000);
        a.take(0, 16);
        let runs = a.alloc(1024).unwrap();
        assert_eq!(runs.len(), 1);
        let left = a.free_blocks();
        let rest = a.alloc(left).unwrap();
        assert_eq!(rest.iter().map(|r| u64::from(r.len)).sum::<u64>(), left);
        assert_eq!(a.free_blocks(), 0);
        assert!(a.alloc(1).is_none());
        a.undo(runs[0]);
        assert_eq!(a.free_blocks(), 1024);
    }

    #[test]
    fn a_freed_block_waits_for_its_transaction() {
        let mut a = Allocator::new(10_000);
        let run = a.alloc(10).unwrap()[0];
        a.free_data(run, 5);
        assert_eq!((a.quarantined(), a.data_blocks()), (10, 0));
        assert!(a.pop_quarantine(4, |_| false).is_none());
        assert!(a.pop_quarantine(5, |_| true).is_none());
        let run = a.pop_quarantine(5, |_| false).unwrap();
        a.reuse(run);
        assert_eq!(a.free_blocks(), 10_000);
    }

    #[test]
    fn neighbours_in_an_object_become_neighbours_on_the_disk() {
        let mut a = Allocator::new(10_000);
        let first = a.alloc_in_window(7, 1).unwrap();
        let other = a.alloc_in_window(3, 1).unwrap();
        assert_eq!((first.start % 32, other.start % 32), (7, 3));
        assert_ne!(first.start / 32, other.start / 32);
        assert!(a.alloc_at(first.start + 1, 1).is_some());
        assert!(a.alloc_at(first.start, 1).is_none());
    }

    #[test]
    fn a_checkpoint_writes_the_bitmap_of_its_moment() {
        let mut a = Allocator::new(10_000);
        let run = a.alloc(10).unwrap()[0];
        a.freeze();
        a.alloc(100).unwrap();
        let (region, row) = a.pop_frozen().unwrap();
        assert_eq!(region, 0);
        let bits = decode_bitmap(&row.unwrap()).unwrap();
        assert_eq!(bits.iter().map(|w| w.count_ones()).sum::<u32>(), 10);
        assert!(a.pop_frozen().is_none());
        a.freeze();
        a.free_data(run, 1);
        let (_, row) = a.pop_frozen().unwrap();
        let bits = decode_bitmap(&row.unwrap()).unwrap();
        assert_eq!(bits.iter().map(|w| w.count_ones()).sum::<u32>(), 110);
    }

    #[test]
    fn loading_gives_back_the_same_state() {
        let mut a = Allocator::new(20_000);
        a.take(0, 16);
        let run = a.alloc(9000).unwrap()[0];
        a.freeze();
        let mut b = Allocator::new(20_000);
        b.take(0, 16);
        while let Some((region, row)) = a.pop_frozen() {
            assert!(b.load_region(region, &decode_bitmap(&row.unwrap()).unwrap()));
        }
        assert!(b.replay(Run::new(run.start, 5), false));
        assert!(!b.replay(Run::new(run.start, 5), false));
        assert!(!b.replay(Run::new(run.start + 5, 5), true));
        assert!(!b.replay(Run::new(u64::MAX - 3, 2), true));
        b.finish_load().unwrap();
        assert_eq!(b.data_blocks(), 8995);
        assert_eq!(b.free_blocks(), a.free_blocks() + 5);
    }

    /// Of large devices there are hundreds of thousands of regions.
    #[test]
    fn regions_that_are_known_to_be_of_no_use_are_not_looked_at_one_by_one() {
        let regions = 64 * GROUP_REGIONS;
        let mut a = Allocator::new(regions as u64 * REGION_BLOCKS);
        // Every second block is taken.
        a.used.words_mut().fill(0x5555_5555_5555_5555);
        a.regions.iter_mut().for_each(|region| region.free = REGION_BLOCKS as u16 / 2);
        a.free /= 2;
        for _ in 0..regions / SEARCH_REGIONS {
            assert_eq!(a.find(8).unwrap().len, 1);
            assert_eq!(a.alloc_in_window(0, 1), None);
        }
        let groups = (0..regions).step_by(GROUP_REGIONS);
        for first in groups {
            let longer = a.pass_over(first, |group| group.longest > 1);
            let window = a.pass_over(first, |group| group.may_have_window);
            assert_eq!((longer, window), (Some(GROUP_REGIONS), Some(GROUP_REGIONS)));
        }
        // What is freed far away is found.
        let far = (regions as u64 - 3) * REGION_BLOCKS;
        (1..32).step_by(2).for_each(|at| a.occupy(far + at, 1));
        a.vacate(far, 32);
        a.cursor = 0;
        assert_eq!(a.alloc_in_window(5, 1), Some(Run::new(far + 5, 1)));
        assert_eq!(a.find(8), Some(Run::new(far + 6, 26)));
    }
}

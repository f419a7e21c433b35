//! Stretches: blocks that stand together and are kept for long tree nodes.
//!
//! Rows and keys that are long make nodes of up to 16 blocks, and those must stand together. Where free space
//! has come apart into single blocks there is no such place, however much of it there is; a checkpoint that
//! finds none could not go on, nor could anything be removed. So as many stretches of 16 blocks are kept from
//! data as the next checkpoints may need (`store::space` says how many), and a transaction that needs one more
//! than can be found is refused.
//!
//! Stretches are the last resort: nodes go where all others go as long as there is such a place. A stretch
//! is filled from its beginning, by long nodes only, until the next one does not fit. So of the nodes of any
//! two successive stretches the blocks are more than 16, and `n` blocks need no more than `n / 8 + 1`.

use super::{Allocator, Round, Run, region_of};
use crate::tree::node::MAX_NODE_BLOCKS;

pub(crate) const STRETCH_BLOCKS: u64 = MAX_NODE_BLOCKS as u64;

/// Stretches that suffice for long nodes of so many blocks together.
pub(crate) fn stretches_for(blocks: u64) -> u64 {
    if blocks == 0 { 0 } else { 2 * blocks / STRETCH_BLOCKS + 1 }
}

/// What is kept.
#[derive(Debug, Default)]
pub(super) struct Stretches {
    /// Where the stretches begin.
    kept: Vec<u64>,
    /// What is left of the one that is being filled.
    open: Option<Run>,
    /// Region where the last one was found.
    cursor: usize,
}

impl Stretches {
    /// Blocks that are kept and hold nothing.
    pub fn blocks(&self) -> u64 {
        self.kept.len() as u64 * STRETCH_BLOCKS + self.open.map_or(0, |rest| u64::from(rest.len))
    }
}

impl Allocator {
    pub fn kept_stretches(&self) -> u64 {
        self.stretches.kept.len() as u64
    }

    /// Keeps at least `count` stretches; false when there are not so many to be had.
    pub fn keep_stretches(&mut self, count: u64) -> bool {
        while self.kept_stretches() < count {
            let mut found = self.find_stretch();
            if found.is_none() && self.pages.spare() >= STRETCH_BLOCKS {
                self.return_spare_pages();
                found = self.find_stretch();
            }
            let Some(start) = found else { return false };
            self.take(start, STRETCH_BLOCKS);
            self.stretches.kept.push(start);
        }
        true
    }

    /// Gives back all stretches but `count`; true when there were more.
    pub fn give_up_stretches(&mut self, count: u64) -> bool {
        let kept = &mut self.stretches.kept;
        let given_up = kept.split_off(kept.len().min(usize::try_from(count).unwrap_or(usize::MAX)));
        let rest = self.stretches.open.take();
        let given_up =
            given_up.into_iter().map(|start| Run::new(start, STRETCH_BLOCKS)).chain(rest);
        given_up.map(|run| self.give_back(run.start, u64::from(run.len))).count() > 0
    }

    /// The first free stretch from where the last one was.
    fn find_stretch(&mut self) -> Option<u64> {
        let run = self.find_whole(self.stretches.cursor, STRETCH_BLOCKS as u16)?;
        self.stretches.cursor = region_of(run.start);
        Some(run.start)
    }

    /// The first free run of `want` blocks from region `from` on, wherever it is.
    pub(super) fn find_whole(&mut self, from: usize, want: u16) -> Option<Run> {
        let mut round = Round::from(from);
        while let Some(region) = self.next_region(&mut round, |group| group.longest >= want) {
            if self.regions[region].bound() < want {
                continue;
            }
            if let Some(run) = self.find_in(region, want).filter(|run| run.len >= want.into()) {
                return Some(run);
            }
        }
        None
    }

    /// A place for a node of `len` blocks for which there is no other; the blocks are those of nodes from now on.
    pub(super) fn place_in_stretch(&mut self, len: u64) -> Option<u64> {
        assert!((1..=STRETCH_BLOCKS).contains(&len), "a node has a bounded size");
        let is_long = len > 1;
        if let Some(rest) = self.stretches.open.take() {
            if is_long && u64::from(rest.len) >= len {
                return Some(self.fill_stretch(rest, len));
            }
            self.pages.own(rest.start, u64::from(rest.len));
            if !is_long {
                return Some(rest.start);
            }
        }
        let whole = Run::new(self.stretches.kept.pop()?, STRETCH_BLOCKS);
        if is_long {
            return Some(self.fill_stretch(whole, len));
        }
        self.pages.own(whole.start, STRETCH_BLOCKS);
        Some(whole.start)
    }

    fn fill_stretch(&mut self, run: Run, len: u64) -> u64 {
        self.pages.own(run.start, len);
        let rest = Run::new(run.start + len, u64::from(run.len) - len);
        self.stretches.open = (rest.len > 0).then_some(rest);
        run.start
    }
}

#[cfg(test)]
mod tests {
    use super::super::REGION_BLOCKS;
    use super::*;
    use crate::tree::apply::PageSpace;

    /// Free are single blocks, and one run of `len`.
    fn in_pieces(len: u64) -> Allocator {
        let mut a = Allocator::new(4 * REGION_BLOCKS);
        (0..2 * REGION_BLOCKS - 50).for_each(|pair| a.take(2 * pair, 1));
        a.take(4 * REGION_BLOCKS - 100, 100 - len);
        a
    }

    #[test]
    fn long_nodes_find_place_among_single_blocks_and_nothing_gets_lost() {
        let mut a = in_pieces(40);
        let free = a.free_blocks();
        assert!(!a.keep_stretches(3));
        assert!(a.keep_stretches(2));
        assert_eq!((a.free_blocks(), a.room_for_data()), (free, free - 32));
        // Data takes all that it can have.
        assert!(a.alloc(free - 31).is_none());
        a.alloc(free - 32).unwrap();
        let long = [a.alloc_page(9).unwrap(), a.alloc_page(7).unwrap(), a.alloc_page(2).unwrap()];
        assert_eq!((long[1], a.free_blocks()), (long[0] + 9, 14));
        // What is left of a stretch does for single nodes at last.
        let single: Vec<u64> = (0..14).map(|_| a.alloc_page(1).unwrap()).collect();
        assert_eq!((a.free_blocks(), a.alloc_page(1)), (0, None));
        single.iter().for_each(|block| a.free_page(*block, 1));
        long.iter().zip([9, 7, 2]).for_each(|(block, len)| a.free_page(*block, len));
        assert_eq!((a.free_blocks(), a.room_for_data(), a.page_blocks()), (32, 32, 0));
    }

    #[test]
    fn what_is_kept_no_more_is_for_data_again() {
        let mut a = in_pieces(32);
        let free = a.free_blocks();
        assert!(a.keep_stretches(2) && a.keep_stretches(1));
        assert!(a.give_up_stretches(1) && !a.give_up_stretches(1));
        assert_eq!(a.room_for_data(), free - 16);
        assert!(a.give_up_stretches(0));
        assert!(a.alloc(free).is_some());
    }

    #[test]
    fn stretches_suffice_for_long_nodes_of_any_lengths() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let lens: Vec<u16> = (0..rng.usize(1..40)).map(|_| rng.u16(2..=16)).collect();
            let blocks = lens.iter().map(|len| u64::from(*len)).sum();
            let mut a = Allocator::new(REGION_BLOCKS);
            assert!(a.keep_stretches(stretches_for(blocks)));
            a.alloc(a.room_for_data()).unwrap();
            assert!(lens.iter().all(|len| a.alloc_page(*len).is_some()), "{lens:?}");
        }
    }
}

//! Which block is read or written next.

use super::options::Rw;
use io::Rng;

/// What is done with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Read,
    Write,
    /// The object is written as a whole.
    Fill,
    /// The object is removed.
    Remove,
}

/// This write is under way.
const FLYING: u32 = 1 << 31;

/// The blocks of a job.
pub(super) struct Blocks {
    rw: Rw,
    mix_read_percent: u32,
    count: u64,
    rng: Rng,
    next_read: u64,
    next_write: u64,
    /// How often each block was written, if that is to be verified. Two writes of one block are never
    /// under way at the same time then.
    writes: Vec<u32>,
}

impl Blocks {
    pub fn new(rw: Rw, mix_read_percent: u32, count: u64, verify: bool, rng: Rng) -> Self {
        let counters = if verify { usize::try_from(count).unwrap_or(usize::MAX) } else { 0 };
        let writes = vec![0; counters];
        Blocks { rw, mix_read_percent, count, rng, next_read: 0, next_write: 0, writes }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// What is done next, with which block.
    pub fn next(&mut self) -> (Act, u64) {
        let reads = match (self.rw.reads(), self.rw.writes()) {
            (true, true) => self.rng.u32(0..100) < self.mix_read_percent,
            (reads, _) => reads,
        };
        let place = if reads { &mut self.next_read } else { &mut self.next_write };
        let block = if self.rw.is_random() {
            self.rng.u64(0..self.count)
        } else {
            let block = *place;
            *place = (block + 1) % self.count;
            block
        };
        if reads { (Act::Read, block) } else { (Act::Write, self.without_flying(block)) }
    }

    /// The next block from here on of which no write is under way. There is one: there are at least
    /// as many blocks as operations at a time.
    fn without_flying(&self, block: u64) -> u64 {
        let is_free = |b: &u64| self.writes.get(*b as usize).is_none_or(|w| w & FLYING == 0);
        (block..self.count).chain(0..block).find(is_free).unwrap_or(block)
    }

    /// A write of this block begins; which one of this block, if that is to be verified.
    pub fn write_begins(&mut self, block: u64) -> Option<u32> {
        let writes = self.writes.get_mut(block as usize)?;
        *writes = (*writes + 1) | FLYING;
        Some(*writes & !FLYING)
    }

    /// It is over.
    pub fn write_ends(&mut self, block: u64) {
        if let Some(writes) = self.writes.get_mut(block as usize) {
            *writes &= !FLYING;
        }
    }

    /// How often this block was written.
    pub fn written(&self, block: u64) -> u32 {
        self.writes.get(block as usize).map_or(0, |w| w & !FLYING)
    }

    /// The first block from here on that was written, if that was noted.
    pub fn next_written(&self, from: u64) -> Option<u64> {
        let rest = self.writes.get(from as usize..)?;
        let at = rest.iter().position(|writes| *writes > 0)?;
        Some(from + at as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(rw: Rw, mix: u32, count: u64, verify: bool) -> Blocks {
        Blocks::new(rw, mix, count, verify, Rng::with_seed(1))
    }

    #[test]
    fn one_behind_the_other_and_round_again() {
        let mut b = blocks(Rw::Write, 50, 3, false);
        let all: Vec<_> = (0..4).map(|_| b.next()).collect();
        assert_eq!(all, [0, 1, 2, 0].map(|n| (Act::Write, n)));
        assert_eq!((b.write_begins(0), b.next_written(0)), (None, None));
    }

    #[test]
    fn a_mixture_is_one() {
        let mut b = blocks(Rw::Randmixed, 70, 1000, false);
        let all: Vec<_> = (0..10_000).map(|_| b.next()).collect();
        let reads = all.iter().filter(|(act, _)| *act == Act::Read).count();
        assert!((6800..7200).contains(&reads), "{reads}");
        assert!(all.iter().all(|(_, block)| *block < 1000));
        let mut b = blocks(Rw::Mixed, 50, 1000, false);
        let all: Vec<_> = (0..100).map(|_| b.next()).collect();
        for act in [Act::Read, Act::Write] {
            let of: Vec<u64> = all.iter().filter(|(a, _)| *a == act).map(|(_, b)| *b).collect();
            assert!(of.iter().zip(0..).all(|(block, n)| *block == n), "{of:?}");
        }
    }

    #[test]
    fn a_block_that_is_being_written_is_left_alone() {
        let mut b = blocks(Rw::Randwrite, 0, 4, true);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let (_, block) = b.next();
            assert_eq!(b.write_begins(block), Some(1));
            seen.push(block);
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
        b.write_ends(2);
        assert_eq!(b.next(), (Act::Write, 2));
        assert_eq!((b.write_begins(2), b.written(2), b.written(3)), (Some(2), 2, 1));
        assert_eq!((b.next_written(3), b.next_written(4)), (Some(3), None));
    }
}

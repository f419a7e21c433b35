//! A batch of the log, and the memory of what it holds.

use super::Pieces;
use super::format::{self, Header};
use bytes::Bytes;
use io::{AlignedBuf, BLOCK_BYTES};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Blocks of a batch whose content is in one piece of memory, and leaves it together.
const GROUP_BLOCKS: usize = 8;
/// One bit for each block of such a group.
type Group = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Open,
    Sealed,
    Writing,
    Durable,
}

/// One batch.
pub(super) struct Batch {
    pub seq: u64,
    /// Blocks of the endless log before it; known when it is sealed.
    pub at: u64,
    pub head_blocks: u64,
    pub state: State,
    pub records: Vec<u8>,
    pub count: u32,
    /// Place of each logged block.
    pub blocks: Vec<u64>,
    /// Contents of the blocks; empty where that is only in the log.
    pub pieces: Vec<Bytes>,
    /// Which blocks of each group were neither in place nor replaced for good when it was durable.
    wanted: SmallVec<[Group; 4]>,
    /// How many of them count as kept in memory.
    pub kept: usize,
    /// How many of these are not wanted any more, and wait for others of their group.
    pub spent: usize,
    /// Blocks that are neither in place nor replaced for good.
    pub live: u32,
    pub txns: Vec<u64>,
    /// Disk writes of it that are in flight.
    pub writes: u32,
    /// What its header calls decided.
    pub decided: u64,
}

impl Batch {
    pub fn new(seq: u64) -> Self {
        Batch {
            seq,
            at: 0,
            head_blocks: 1,
            state: State::Open,
            records: Vec::new(),
            count: 0,
            blocks: Vec::new(),
            pieces: Vec::new(),
            wanted: SmallVec::new(),
            kept: 0,
            spent: 0,
            live: 0,
            txns: Vec::new(),
            writes: 0,
            decided: 0,
        }
    }

    pub fn total_blocks(&self) -> u64 {
        format::head_blocks(self.records.len()).max(self.head_blocks) + self.blocks.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The batch as it is written: header and records, then its blocks, which are not copied if a
    /// disk can take them as they are. Gives the header's crc too.
    pub fn assemble(&mut self, header: &Header) -> (u32, VecDeque<Bytes>) {
        let mut head = AlignedBuf::for_overwrite(self.head_blocks as usize * BLOCK_BYTES);
        let out = head.as_mut_slice();
        let crc = header.encode(out);
        let records = std::mem::take(&mut self.records);
        let end = format::HEADER_BYTES + records.len();
        out[format::HEADER_BYTES..end].copy_from_slice(&records);
        out[end..].fill(0);
        for group in self.pieces.chunks_mut(GROUP_BLOCKS) {
            self.wanted.push(Group::MAX >> (GROUP_BLOCKS - group.len()));
            align(group);
        }
        (crc, std::iter::once(head.freeze()).chain(self.pieces.iter().cloned()).collect())
    }

    /// The content of no block is wanted any more.
    pub fn drop_pieces(&mut self) {
        self.pieces = Vec::new();
        (self.kept, self.spent) = (0, 0);
    }

    /// The content of a block is not wanted any more; that of its group goes when none of it is.
    pub fn drop_piece(&mut self, index: usize) {
        let group = index / GROUP_BLOCKS;
        let Some(wanted) = self.wanted.get_mut(group) else { return };
        *wanted &= !(1 << (index % GROUP_BLOCKS));
        let is_over = *wanted == 0;
        let mut pieces = self.pieces.iter_mut().skip(group * GROUP_BLOCKS).take(GROUP_BLOCKS);
        if is_over {
            let dropped = pieces.map(|piece| drop(std::mem::take(piece))).count();
            self.kept -= dropped;
            self.spent -= dropped.saturating_sub(1);
        } else if pieces.next().is_some_and(|piece| !piece.is_empty()) {
            self.spent += 1;
        }
    }
}

/// Copies what a disk cannot take as it is, all of it into one piece of memory.
fn align(pieces: &mut [Bytes]) {
    let copied = pieces.iter().filter(|p| !AlignedBuf::is_aligned(p)).count();
    if copied == 0 {
        return;
    }
    let mut all = AlignedBuf::for_overwrite(copied * BLOCK_BYTES);
    let blocks = all.as_mut_slice().chunks_exact_mut(BLOCK_BYTES);
    for (block, piece) in blocks.zip(pieces.iter().filter(|p| !AlignedBuf::is_aligned(p))) {
        block.copy_from_slice(piece);
    }
    let mut all = all.freeze();
    for piece in pieces.iter_mut().filter(|p| !AlignedBuf::is_aligned(p)) {
        *piece = all.split_to(BLOCK_BYTES);
    }
}

/// Takes so many blocks from the front of `pieces`.
pub(super) fn take_blocks(pieces: &mut VecDeque<Bytes>, blocks: usize) -> Pieces {
    let mut left = blocks * BLOCK_BYTES;
    let mut out = Pieces::new();
    while left > 0 {
        let mut piece = pieces.pop_front().expect("as many blocks as there are");
        if piece.len() > left {
            pieces.push_front(piece.split_off(left));
        }
        left -= piece.len();
        out.push(piece);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::logged::LoggedBlocks;
    use crate::superblock::LogPos;
    use crate::wal::{Content, Wal, WalPlace};
    use types::Uuid;

    const BLOCKS: u64 = 21;

    /// A log with one durable batch of blocks, placed from 100 on; every third one is aligned.
    fn log() -> Wal {
        let place = WalPlace { dev: 0, base: 16, blocks: 1024 };
        let mut wal = Wal::new(Uuid::default(), place, 1, LogPos { seq: 1, at: 0 }, 1 << 20);
        let mut blocks = LoggedBlocks::default();
        for n in 0..BLOCKS {
            let content = vec![n as u8; BLOCK_BYTES + 8];
            let content = match n % 3 {
                0 => AlignedBuf::copy_of(&content[..BLOCK_BYTES]).freeze(),
                _ => Bytes::from(content).slice(8..),
            };
            blocks.insert(100 + n, 0, content);
        }
        wal.append(7, b"record", blocks);
        wal.seal();
        let issue = wal.issue(0, 0).unwrap();
        let all: Vec<u8> = issue.writes.iter().flat_map(|(_, data)| data.concat()).collect();
        let expected = (0..BLOCKS).flat_map(|n| vec![n as u8; BLOCK_BYTES]);
        assert!(all[BLOCK_BYTES..].iter().copied().eq(expected));
        assert_eq!(wal.written(issue.seq), [7]);
        wal.set_recorded(7);
        wal
    }

    fn in_memory(wal: &Wal) -> Vec<u64> {
        let known = (100..100 + BLOCKS).filter_map(|place| Some((place, wal.pending(place)?)));
        let held = known.filter(|(_, p)| matches!(wal.content(*p), Content::Memory(_)));
        held.map(|(place, _)| place).collect()
    }

    #[test]
    fn what_is_done_with_leaves_memory_group_by_group() {
        let mut rng = fastrand::Rng::with_seed(3);
        for in_round in [false, true] {
            let mut wal = log();
            if in_round {
                wal.keep_before(2);
            }
            let mut left: Vec<u64> = (100..100 + BLOCKS).collect();
            rng.shuffle(&mut left);
            while let Some(place) = left.pop() {
                wal.in_place(&[(place, 1)]);
                let groups = left.iter().map(|place| (place - 100) / GROUP_BLOCKS as u64);
                let groups: std::collections::BTreeSet<u64> = groups.collect();
                let len = |g: &u64| (BLOCKS - g * GROUP_BLOCKS as u64).min(GROUP_BLOCKS as u64);
                let held: u64 = groups.iter().map(len).sum();
                // While it is put in place only what still has to be counts.
                let counted = if in_round { left.len() as u64 } else { held };
                assert_eq!(wal.cached_bytes() as u64, counted * BLOCK_BYTES as u64);
                left.sort_unstable();
                assert_eq!(in_memory(&wal), left, "what is not in place is at hand");
                rng.shuffle(&mut left);
            }
        }
    }

    #[test]
    fn a_logged_block_is_wanted_until_something_newer_is_there() {
        let mut wal = log();
        // The first block is the header's.
        let wanted = |wal: &Wal| (0..=BLOCKS + 2).filter_map(|at| wal.wanted_at(at)).collect();
        let all: Vec<u64> = wanted(&wal);
        assert_eq!(all, (100..100 + BLOCKS).collect::<Vec<_>>());
        wal.in_place(&[(101, 1)]);
        let mut blocks = LoggedBlocks::default();
        blocks.insert(100, 0, Bytes::from(vec![9; BLOCK_BYTES]));
        wal.append(8, b"record", blocks);
        wal.seal();
        let rest: Vec<u64> = wanted(&wal);
        assert_eq!(rest, (102..100 + BLOCKS).chain([100]).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_part_of_the_log_is_given_up_bit_by_bit_and_nothing_that_is_read() {
        let place = WalPlace { dev: 0, base: 16, blocks: 1024 };
        let mut wal = Wal::new(Uuid::default(), place, 1, LogPos { seq: 1, at: 0 }, 1 << 20);
        for txn in 1..=100 {
            wal.append(txn, b"record", LoggedBlocks::default());
            wal.seal();
            let issue = wal.issue(0, 0).unwrap();
            assert_eq!(wal.written(issue.seq), [txn]);
        }
        let to = LogPos { seq: 91, at: 90 };
        wal.begin_read(75);
        assert_eq!((wal.release(to, 60), wal.tail()), (60, LogPos { seq: 61, at: 60 }));
        assert_eq!(wal.used_blocks(), 40);
        assert_eq!((wal.release(to, 60), wal.tail()), (14, LogPos { seq: 75, at: 74 }));
        assert_eq!(wal.release(to, 60), 0);
        wal.end_read(75);
        assert_eq!((wal.release(to, 60), wal.tail()), (16, to));
        assert_eq!(wal.release(to, 60), 0);
    }

    #[test]
    fn what_was_done_with_before_its_round_counts_no_more_in_it() {
        let mut wal = log();
        wal.in_place(&[(100, 1), (101, 1), (110, 1)]);
        assert_eq!(wal.cached_bytes(), BLOCKS as usize * BLOCK_BYTES);
        wal.keep_before(2);
        assert_eq!(wal.cached_bytes(), (BLOCKS as usize - 3) * BLOCK_BYTES);
        wal.budget = 0;
        wal.keep_before(2);
        let rest: Vec<_> = (100..100 + BLOCKS).map(|place| (place, 1)).collect();
        wal.in_place(&rest);
        assert_eq!((wal.cached_bytes(), wal.has_pending()), (0, false));
    }
}

//! Content of logged blocks that has left memory, read back for a round of putting in place.
//!
//! What goes first from memory is what is oldest, and that is what a round puts in place next: so it
//! stands close together in the log, and long reads bring it back for a small part of what a read for each
//! block would cost. Where most of it was written over since, only the parts that are still wanted are read. What cannot be read so, or does not have its checksum, is left to
//! [`super::writeback`], which reads single blocks and knows what to do when they are damaged.

use super::inflight::MAX_IO_BLOCKS;
use super::{Ended, Store};
use crate::codec::block_crc;
use crate::wal::{Content, Gone, Pending, split_ring};
use bytes::Bytes;
use io::disk::DiskError;
use io::{BLOCK_BYTES, Effects};
use std::collections::{BTreeMap, VecDeque};

/// Blocks of one read: as much as there is memory at hand for.
const READ_BLOCKS: u64 = 16;
/// Reads at a time.
const READS: usize = 16;
const _: () = assert!(READ_BLOCKS <= MAX_IO_BLOCKS);

/// What was read back, until the round is over.
#[derive(Debug, Default)]
pub(crate) struct Reloaded {
    /// By first block in the ring.
    pieces: BTreeMap<u64, Bytes>,
    /// What is still to be read: first block in the ring, and how many.
    queue: VecDeque<(u64, u64)>,
    /// The first batch that is read.
    seq: u64,
    reading: usize,
}

impl Reloaded {
    /// Whether all that was asked for has come.
    pub fn is_complete(&self) -> bool {
        self.reading == 0 && self.queue.is_empty()
    }

    /// Whether nothing was asked for.
    pub fn is_unused(&self) -> bool {
        self.is_complete() && self.pieces.is_empty()
    }

    /// The content of a block of the ring, if it is as it was written.
    pub fn content(&self, block: u64, pending: Pending) -> Option<Bytes> {
        let (first, piece) = self.pieces.range(..=block).next_back()?;
        let from = usize::try_from(block - first).ok()?.checked_mul(BLOCK_BYTES)?;
        let to = from.checked_add(BLOCK_BYTES)?;
        let bytes = (to <= piece.len()).then(|| piece.slice(from..to))?;
        (block_crc(&bytes) == pending.crc).then_some(bytes)
    }
}

impl Store {
    /// Reads parts of the log.
    pub(super) fn reload(&mut self, gone: &Gone, fx: &mut Effects) {
        self.wal.set_reloaded(gone.blocks as usize * BLOCK_BYTES);
        self.writeback.reloaded.seq = gone.seq;
        let ring = self.wal.place.blocks;
        let parts = gone.parts.iter().map(|part| (part.start, part.end - part.start));
        for (first, _, blocks) in parts.flat_map(|(at, len)| split_ring(at, len, ring)) {
            let starts = (first..first + blocks).step_by(READ_BLOCKS as usize);
            let reads = starts.map(|at| (at, READ_BLOCKS.min(first + blocks - at)));
            self.writeback.reloaded.queue.extend(reads);
        }
        self.go_on_reloading(fx);
    }

    fn go_on_reloading(&mut self, fx: &mut Effects) {
        while self.writeback.reloaded.reading < READS {
            let Some((block, blocks)) = self.writeback.reloaded.queue.pop_front() else { break };
            self.writeback.reloaded.reading += 1;
            self.counters.in_place_reads += 1;
            // Nothing of it is overwritten meanwhile.
            self.wal.begin_read(self.writeback.reloaded.seq);
            let (dev, at) = (self.log_dev(), self.wal.place.base + block);
            self.io.read(fx, dev, at, blocks, Ended::Reload { block });
        }
    }

    /// A part of the log was read back.
    pub(super) fn reload_read(
        &mut self,
        block: u64,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) {
        let reloaded = &mut self.writeback.reloaded;
        self.wal.end_read(reloaded.seq);
        reloaded.reading -= 1;
        match result {
            Ok(bytes) => drop(reloaded.pieces.insert(block, bytes)),
            Err(_) => self.counters.read_errors += 1,
        }
        self.go_on_reloading(fx);
        self.work_left = true;
    }

    /// The round is over.
    pub(super) fn drop_reloaded(&mut self) {
        self.writeback.reloaded = Reloaded::default();
        self.wal.set_reloaded(0);
    }

    /// The content of a logged block, if it is in memory.
    pub(super) fn content_at_hand(&self, pending: Pending) -> Option<Bytes> {
        match self.wal.content(pending) {
            Content::Memory(bytes) => Some(bytes),
            Content::Log { block, .. } => self.writeback.reloaded.content(block, pending),
        }
    }
}

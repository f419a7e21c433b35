//! Content of logged blocks that has left memory, read back for a round of putting in place.
//!
//! What goes first from memory is what is oldest, and that is what a round puts in place next: so it
//! stands in one piece in the log, and long reads bring it back for a small part of what a read for each
//! block would cost. What cannot be read so, or does not have its checksum, is left to
//! [`super::writeback`], which reads single blocks and knows what to do when they are damaged.

use super::inflight::MAX_IO_BLOCKS;
use super::{Ended, Store};
use crate::codec::block_crc;
use crate::wal::{Content, Pending, split_ring};
use bytes::Bytes;
use io::disk::DiskError;
use io::{BLOCK_BYTES, Effects};
use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks of one read.
const READ_BLOCKS: u64 = 256;
const _: () = assert!(READ_BLOCKS <= MAX_IO_BLOCKS);

/// What was read back, until the round is over.
#[derive(Debug, Default)]
pub(crate) struct Reloaded {
    /// By first block in the ring.
    pieces: BTreeMap<u64, Bytes>,
    reading: usize,
}

impl Reloaded {
    /// Whether all that was asked for has come.
    pub fn is_complete(&self) -> bool {
        self.reading == 0
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
    /// Reads this part of the endless log, of which `seq` is the first batch.
    pub(super) fn reload(&mut self, log: Range<u64>, seq: u64, fx: &mut Effects) {
        let len = log.end - log.start;
        self.wal.set_reloaded(len as usize * BLOCK_BYTES);
        for (first, _, blocks) in split_ring(log.start, len, self.wal.place.blocks) {
            for block in (first..first + blocks).step_by(READ_BLOCKS as usize) {
                let blocks = READ_BLOCKS.min(first + blocks - block);
                self.writeback.reloaded.reading += 1;
                self.counters.in_place_reads += 1;
                // What is needed again can be read again: nothing is overwritten meanwhile.
                self.wal.begin_read(seq);
                let (dev, at) = (self.log_dev(), self.wal.place.base + block);
                self.io.read(fx, dev, at, blocks, Ended::Reload { block, seq });
            }
        }
    }

    /// A part of the log was read back.
    pub(super) fn reload_read(&mut self, block: u64, seq: u64, result: Result<Bytes, DiskError>) {
        self.wal.end_read(seq);
        self.writeback.reloaded.reading -= 1;
        match result {
            Ok(bytes) => drop(self.writeback.reloaded.pieces.insert(block, bytes)),
            Err(_) => self.counters.read_errors += 1,
        }
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

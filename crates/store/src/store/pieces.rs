//! The bytes of a read, put together of blocks that were found here and there.

use bytes::Bytes;
use denc::KnownCrc;
use io::BLOCK_BYTES;
use std::ops::Range;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Contiguous bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte.
    pub offset: u64,
    /// Number of bytes, not 0.
    pub len: u64,
    /// The bytes, verified; `None` for a hole, which reads as zeros.
    pub data: Option<Bytes>,
    /// Their checksum, if it is at hand.
    pub crc: KnownCrc,
}

/// Where a block's content was found.
pub(super) enum Source<'a> {
    Hole,
    /// In a run of bytes in memory that may hold its neighbours, too: so many blocks from its beginning.
    Run {
        bytes: &'a Bytes,
        at: usize,
    },
    Block(Bytes),
    Missing,
}

/// A piece being put together of blocks that follow each other in memory.
enum Growing<'a> {
    None,
    Hole { from: u64 },
    Run { from: u64, bytes: &'a Bytes, first: usize, blocks: usize },
}

/// A read in progress: cuts to the wanted range and joins neighbours.
pub(super) struct Reading<'a> {
    range: Range<u64>,
    pieces: Vec<Piece>,
    growing: Growing<'a>,
}

impl<'a> Reading<'a> {
    /// Reads these bytes of an object.
    pub fn new(range: Range<u64>) -> Self {
        Reading { range, pieces: Vec::new(), growing: Growing::None }
    }

    /// What came of it.
    pub fn done(mut self) -> Vec<Piece> {
        self.finish(self.range.end);
        self.pieces
    }

    /// Adds a block; a hole goes on until the next block.
    pub fn add(&mut self, block: u64, source: Source<'a>) {
        if let (Growing::Run { bytes: run, first, blocks, .. }, Source::Run { bytes, at }) =
            (&mut self.growing, &source)
            && run.as_ptr() == bytes.as_ptr()
            && *first + *blocks == *at
        {
            *blocks += 1;
            return;
        }
        let from = block * BLOCK;
        self.finish(from);
        self.growing = match source {
            Source::Hole => Growing::Hole { from },
            Source::Run { bytes, at } => Growing::Run { from, bytes, first: at, blocks: 1 },
            Source::Block(bytes) => {
                self.push(from, Some(bytes), BLOCK);
                Growing::None
            }
            Source::Missing => Growing::None,
        };
    }

    /// Ends the growing piece; a hole ends at `until`.
    fn finish(&mut self, until: u64) {
        match std::mem::replace(&mut self.growing, Growing::None) {
            Growing::None => {}
            Growing::Hole { from } => self.push(from, None, until - from.min(until)),
            Growing::Run { from, bytes, first, blocks } => {
                let bytes = bytes.slice(first * BLOCK_BYTES..(first + blocks) * BLOCK_BYTES);
                self.push(from, Some(bytes), blocks as u64 * BLOCK);
            }
        }
    }

    /// Adds a piece, cut to the wanted range.
    fn push(&mut self, from: u64, data: Option<Bytes>, len: u64) {
        let (offset, end) = (from.max(self.range.start), (from + len).min(self.range.end));
        if offset >= end {
            return;
        }
        let cut = (offset - from) as usize..(end - from) as usize;
        let data = data.map(|d| d.slice(cut));
        self.pieces.push(Piece { offset, len: end - offset, data, crc: KnownCrc::NONE });
    }
}

//! The bytes of a read, put together of blocks that were found here and there.

use super::Store;
use super::blocks::Kept;
use super::miss::ReadSet;
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
    /// In a run of contiguous bytes in memory: which (for joining), offset, and its bytes.
    Fetched {
        run: usize,
        at: usize,
    },
    Direct {
        start: u64,
        at: usize,
    },
    /// In a blob: which, and which block of its content.
    Unpacked {
        blob: usize,
        at: usize,
    },
    /// In a piece of memory of the cache.
    Kept(Kept<'a>),
    Block(Bytes),
    Missing,
}

/// A piece being put together of blocks that follow each other in memory.
enum Growing<'a> {
    None,
    Hole { from: u64 },
    Fetched { from: u64, run: usize, first: usize, blocks: usize },
    Direct { from: u64, start: u64, first: usize, blocks: usize },
    Kept { from: u64, piece: &'a Bytes, first: usize, blocks: usize },
    Unpacked { from: u64, blob: usize, first: usize, blocks: usize },
}

/// A read in progress: cuts to the wanted range and joins neighbours.
pub(super) struct Reading<'a> {
    store: &'a Store,
    fetched: &'a ReadSet,
    /// The contents of blobs.
    unpacked: Vec<Bytes>,
    range: Range<u64>,
    pieces: Vec<Piece>,
    growing: Growing<'a>,
}

impl<'a> Reading<'a> {
    /// Reads these bytes of an object. `unpacked`: the contents of its blobs.
    pub fn new(
        store: &'a Store,
        fetched: &'a ReadSet,
        unpacked: Vec<Bytes>,
        range: Range<u64>,
    ) -> Self {
        Reading { store, fetched, unpacked, range, pieces: Vec::new(), growing: Growing::None }
    }

    /// What came of it.
    pub fn done(mut self) -> Vec<Piece> {
        self.finish(self.range.end);
        self.pieces
    }

    /// Adds a block; a hole goes on until the next block.
    pub fn add(&mut self, block: u64, source: Source<'a>) {
        match (&mut self.growing, &source) {
            (Growing::Fetched { run, first, blocks, .. }, Source::Fetched { run: r, at })
                if *run == *r && *first + *blocks == *at =>
            {
                *blocks += 1;
                return;
            }
            (Growing::Direct { start, first, blocks, .. }, Source::Direct { start: s, at })
                if *start == *s && *first + *blocks == *at =>
            {
                *blocks += 1;
                return;
            }
            (Growing::Kept { piece, first, blocks, .. }, Source::Kept(kept))
                if piece.as_ptr() == kept.piece.as_ptr() && *first + *blocks == kept.at =>
            {
                *blocks += 1;
                return;
            }
            (Growing::Unpacked { blob, first, blocks, .. }, Source::Unpacked { blob: b, at })
                if *blob == *b && *first + *blocks == *at =>
            {
                *blocks += 1;
                return;
            }
            _ => {}
        }
        let from = block * BLOCK;
        self.finish(from);
        self.growing = match source {
            Source::Hole => Growing::Hole { from },
            Source::Fetched { run, at } => Growing::Fetched { from, run, first: at, blocks: 1 },
            Source::Direct { start, at } => Growing::Direct { from, start, first: at, blocks: 1 },
            Source::Unpacked { blob, at } => Growing::Unpacked { from, blob, first: at, blocks: 1 },
            Source::Kept(Kept { piece, at, .. }) => {
                Growing::Kept { from, piece, first: at, blocks: 1 }
            }
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
            Growing::Fetched { from, run, first, blocks } => {
                let (a, b) = (first * BLOCK_BYTES, (first + blocks) * BLOCK_BYTES);
                let bytes = self.fetched.bytes(run, a, b);
                self.push(from, Some(bytes), blocks as u64 * BLOCK);
            }
            Growing::Direct { from, start, first, blocks } => {
                let (a, b) = (first * BLOCK_BYTES, (first + blocks) * BLOCK_BYTES);
                let run = self.store.direct.run(start).map(|(_, data)| data.slice(a..b));
                self.push(from, run, blocks as u64 * BLOCK);
            }
            Growing::Kept { from, piece, first, blocks } => {
                let bytes = piece.slice(first * BLOCK_BYTES..(first + blocks) * BLOCK_BYTES);
                self.push(from, Some(bytes), blocks as u64 * BLOCK);
            }
            Growing::Unpacked { from, blob, first, blocks } => {
                let (a, b) = (first * BLOCK_BYTES, (first + blocks) * BLOCK_BYTES);
                let bytes = self.unpacked.get(blob).map(|content| content.slice(a..b));
                self.push(from, bytes, blocks as u64 * BLOCK);
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

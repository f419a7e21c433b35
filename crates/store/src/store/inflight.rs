//! Disk operations in flight.
//!
//! `io::disk` leaves operations in flight unordered, so two that overlap and of which one is a write
//! must never be in flight together. [`Io`] knows what is in flight on the data device and insists.

use bytes::Bytes;
use io::disk::{DevId, DiskOp, DiskToken, WriteMode};
use io::{BLOCK_BYTES, Effects};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use types::HashMap;
use types::testing::{Bug, planted};

/// The device of data and metadata.
pub(crate) const DATA: DevId = DevId(0);

/// The longest read or write of one operation.
pub(crate) const MAX_IO_BLOCKS: u64 = 1024;

/// Ranges of blocks that operations are in flight on.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    by_start: BTreeMap<(u64, u64), u64>,
    longest: u64,
}

impl Ranges {
    fn insert(&mut self, start: u64, len: u64, token: u64) {
        self.longest = self.longest.max(len);
        self.by_start.insert((start, token), start + len);
    }

    fn remove(&mut self, start: u64, token: u64) {
        self.by_start.remove(&(start, token)).expect("an operation that is in flight");
        if self.by_start.is_empty() {
            self.longest = 0;
        }
    }

    /// Whether anything is in flight on these blocks.
    pub fn overlaps(&self, start: u64, len: u64) -> bool {
        if self.by_start.is_empty() {
            return false;
        }
        let first = (start.saturating_sub(self.longest), 0);
        self.by_start.range(first..(start + len, 0)).any(|(_, end)| *end > start)
    }
}

/// An operation in flight, with what its end means.
#[derive(Debug)]
struct Flight<T> {
    what: T,
    /// Start on the data device, and whether it writes.
    range: Option<(u64, bool)>,
}

/// All operations in flight. `T` says what the end of one means.
#[derive(Debug)]
pub(crate) struct Io<T> {
    next: u64,
    flights: HashMap<DiskToken, Flight<T>>,
    pub reads: Ranges,
    pub writes: Ranges,
}

impl<T> Io<T> {
    /// Tokens are numbered from `next` on.
    pub fn new(next: u64) -> Self {
        Io {
            next,
            flights: HashMap::default(),
            reads: Ranges::default(),
            writes: Ranges::default(),
        }
    }

    /// The next token, for whoever goes on after this.
    pub fn next_token(&self) -> u64 {
        self.next
    }

    /// Number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    fn start(&mut self, what: T, range: Option<(u64, bool)>) -> DiskToken {
        let token = DiskToken(self.next);
        self.next += 1;
        self.flights.insert(token, Flight { what, range });
        token
    }

    /// Reads blocks.
    pub fn read(&mut self, fx: &mut Effects, dev: DevId, block: u64, blocks: u64, what: T) {
        let mut range = None;
        if dev == DATA {
            assert!(
                !self.writes.overlaps(block, blocks),
                "a read of blocks that are being written"
            );
            self.reads.insert(block, blocks, self.next);
            range = Some((block, false));
        }
        let token = self.start(what, range);
        let (offset, len) = (block * BLOCK_BYTES as u64, blocks as usize * BLOCK_BYTES);
        fx.disk.push((token, DiskOp::Read { dev, offset, len }));
    }

    /// Writes blocks.
    pub fn write(
        &mut self,
        fx: &mut Effects,
        (dev, block): (DevId, u64),
        data: SmallVec<[Bytes; 4]>,
        mode: WriteMode,
        what: T,
    ) {
        let len: usize = data.iter().map(Bytes::len).sum();
        assert!(len > 0 && len.is_multiple_of(BLOCK_BYTES), "whole blocks are written");
        let mut range = None;
        if dev == DATA {
            let blocks = (len / BLOCK_BYTES) as u64;
            let busy = self.reads.overlaps(block, blocks) || self.writes.overlaps(block, blocks);
            assert!(!busy, "a write to blocks that are in use");
            self.writes.insert(block, blocks, self.next);
            range = Some((block, true));
        }
        let token = self.start(what, range);
        let offset = block * BLOCK_BYTES as u64;
        let skipped = mode == WriteMode::Durable && planted(Bug::SkippedFlush);
        let mode = if skipped { WriteMode::Plain } else { mode };
        fx.disk.push((token, DiskOp::Write { dev, offset, data, mode }));
    }

    /// Flushes a device.
    pub fn flush(&mut self, fx: &mut Effects, dev: DevId, what: T) {
        let token = self.start(what, None);
        fx.disk.push((token, DiskOp::Flush { dev }));
    }

    /// Tells the data device that blocks are not needed.
    pub fn discard(&mut self, fx: &mut Effects, block: u64, blocks: u64, what: T) {
        self.writes.insert(block, blocks, self.next);
        let token = self.start(what, Some((block, true)));
        let blocks = blocks + u64::from(planted(Bug::DiscardTooLong));
        let (offset, len) = (block * BLOCK_BYTES as u64, blocks * BLOCK_BYTES as u64);
        fx.disk.push((token, DiskOp::Discard { dev: DATA, offset, len }));
    }

    /// An operation ended. `None` for one that is not ours.
    pub fn done(&mut self, token: DiskToken) -> Option<T> {
        let flight = self.flights.remove(&token)?;
        match flight.range {
            Some((start, true)) => self.writes.remove(start, token.0),
            Some((start, false)) => self.reads.remove(start, token.0),
            None => {}
        }
        Some(flight.what)
    }

    /// Whether no operation at all is in flight on these blocks of the data device.
    pub fn is_idle(&self, start: u64, len: u64) -> bool {
        !self.reads.overlaps(start, len) && !self.writes.overlaps(start, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_seen() {
        let mut io: Io<u8> = Io::new(1);
        let mut fx = Effects::new();
        io.read(&mut fx, DATA, 10, 5, 1);
        io.read(&mut fx, DATA, 12, 1, 2);
        assert!(!io.is_idle(14, 1) && io.is_idle(15, 100) && io.is_idle(0, 10));
        assert_eq!(io.done(DiskToken(1)), Some(1));
        assert!(!io.is_idle(12, 1) && io.is_idle(13, 5));
        assert_eq!(io.done(DiskToken(2)), Some(2));
        assert_eq!(io.done(DiskToken(2)), None);
        assert!(io.is_idle(0, 100));
    }

    #[test]
    #[should_panic(expected = "in use")]
    fn a_write_over_a_read_is_refused() {
        let mut io: Io<u8> = Io::new(1);
        let mut fx = Effects::new();
        io.read(&mut fx, DATA, 10, 5, 1);
        let data = smallvec::smallvec![Bytes::from_static(&[0; BLOCK_BYTES])];
        io.write(&mut fx, (DATA, 14), data, WriteMode::Plain, 2);
    }
}

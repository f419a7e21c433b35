//! Reading the log from its oldest needed batch to its end.
//!
//! The end is where the next batch is missing or damaged. A batch that was being written when the
//! power went is dropped: nobody was told that it is durable. A batch that was durable and rots
//! later must not be dropped. What tells them apart is a later batch, or the superblock, that says
//! that it was durable; so when a batch is bad the log behind it is searched for such a witness.
//! (The batch behind the last one is a witness too: see `Config::mark_interval_ms`.)
//!
//! When only logged blocks of a proven batch are bad, the batch counts and the blocks are reported
//! as bad when they are read.
//!
//! Much more is read than is needed. What the device cannot read is read again block by block, and a block
//! that stays unreadable counts only where a batch is to be: there nobody knows whether one was acknowledged,
//! and the scan ends. Behind the end of the log it is no witness. A batch whose checksums are right is as it was
//! written: if it cannot be decoded, it is of a newer program or of a wrong one, and never taken for unfinished.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use super::format::{BadRecords, Entry, HEADER_BYTES, Header, decode_records};
use crate::codec::{Malformed, block_crc};
use crate::config::WalPlace;
use crate::superblock::LogPos;
use bytes::{Bytes, BytesMut};
use io::BLOCK_BYTES;
use io::disk::DiskError;
use std::collections::{BTreeMap, VecDeque};
use types::Uuid;

/// Blocks of one read.
const CHUNK_BLOCKS: u64 = 256;
/// Reads in flight or waiting to be used.
const CHUNKS_AHEAD: usize = 4;
/// How far behind a bad batch a witness is searched; more than can be in flight at once.
pub(super) const WITNESS_BLOCKS: u64 = 16 * 1024;
/// Blocks that are read again one by one, in flight at a time.
const AGAIN_IN_FLIGHT: usize = 16;
/// With more unreadable blocks than that the device is given up: each may take it seconds.
const MOST_UNREADABLE: usize = 256;
/// What stands for a block that cannot be read.
static NOTHING: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// A read the scan needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanRead {
    /// Place in the endless log, for [`Scan::loaded`].
    pub at: u64,
    /// Block of the ring.
    pub block: u64,
    pub blocks: u64,
}

/// A block of the log that cannot be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostBlock {
    /// Place in the endless log.
    pub at: u64,
    /// Block of the device.
    pub block: u64,
    pub error: DiskError,
}

/// A good batch.
#[derive(Debug)]
pub(crate) struct ScannedBatch {
    pub header: Header,
    /// The checksum of the header.
    pub crc: u32,
    pub entries: Vec<Entry>,
    /// Logged blocks whose checksum is wrong though the batch was durable.
    pub bad_blocks: Vec<u32>,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Scanned {
    /// Reads are needed first.
    Wait,
    Batch(Box<ScannedBatch>),
    /// The log ends here; a new batch can go there. `stale_life`: the last life of batches behind it
    /// that do not count.
    End {
        stale_life: Option<u64>,
    },
    /// A batch that was durable is damaged.
    Rot {
        seq: u64,
        block: u64,
        what: &'static str,
    },
    /// A batch may be there, in a block that cannot be read.
    Unreadable {
        seq: u64,
        block: u64,
        error: DiskError,
    },
    /// A batch is as it was written, but this program cannot read it.
    Unknown {
        seq: u64,
        block: u64,
        why: BadRecords,
    },
}

/// What is known about batches that were durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Witness {
    /// The superblock's word: this batch was durable.
    pub durable_seq: u64,
    /// Generation of the superblock; a log that knows a newer one proves that the newest
    /// superblock is lost.
    pub generation: u64,
}

enum Mode {
    Batches,
    /// Searching behind `bad` for a witness; up to `next` without success.
    Search {
        bad: Bad,
        next: u64,
    },
    Over,
}

struct Bad {
    what: &'static str,
    candidate: Option<Box<ScannedBatch>>,
    /// A block of it that cannot be read.
    unreadable: Option<Unreadable>,
}

/// A block that cannot be read: its place in the endless log, and why.
type Unreadable = (u64, DiskError);

/// Why the next batch does not count.
enum NotNext {
    /// It was never finished, as far as can be seen.
    Bad(Bad),
    Unknown(BadRecords),
}

impl From<&'static str> for NotNext {
    fn from(what: &'static str) -> Self {
        NotNext::Bad(Bad { what, candidate: None, unreadable: None })
    }
}

/// The scan.
pub(crate) struct Scan {
    store: Uuid,
    place: WalPlace,
    witness: Witness,
    start: u64,
    next: LogPos,
    life: u64,
    last_crc: Option<u32>,
    mode: Mode,
    chunks: BTreeMap<u64, Bytes>,
    asked: u64,
    flying: usize,
    /// Blocks of reads that failed, to be read one by one.
    again: VecDeque<u64>,
    /// Those of them that cannot be read.
    unreadable: BTreeMap<u64, DiskError>,
    /// Reading must get as far as this for the scan to go on.
    need: u64,
    stale_life: Option<u64>,
}

impl Scan {
    /// Starts at the batch `from`, of life `life` or a later one.
    pub fn new(store: Uuid, place: WalPlace, from: LogPos, life: u64, witness: Witness) -> Self {
        Scan {
            store,
            place,
            witness,
            start: from.at,
            next: from,
            life,
            last_crc: None,
            mode: Mode::Batches,
            chunks: BTreeMap::new(),
            asked: from.at,
            flying: 0,
            again: VecDeque::new(),
            unreadable: BTreeMap::new(),
            need: from.at.saturating_add(1),
            stale_life: None,
        }
    }

    fn limit(&self) -> u64 {
        self.start.saturating_add(self.place.blocks)
    }

    /// The next read to issue.
    pub fn wants(&mut self) -> Option<ScanRead> {
        if matches!(self.mode, Mode::Over) || self.has_given_up() {
            return None;
        }
        if !self.again.is_empty() {
            let at = self.again.pop_front_if(|_| self.flying < AGAIN_IN_FLIGHT)?;
            self.flying = self.flying.saturating_add(1);
            return Some(ScanRead { at, block: at.checked_rem(self.place.blocks)?, blocks: 1 });
        }
        let busy = self.flying.saturating_add(self.chunks.len());
        let far = self.asked >= self.need.max(self.next.at.saturating_add(1));
        if self.asked >= self.limit() {
            return None;
        }
        if busy >= CHUNKS_AHEAD && far {
            return None;
        }
        let at = self.asked;
        let block = at.checked_rem(self.place.blocks)?;
        let around = self.place.blocks.saturating_sub(block);
        let blocks = CHUNK_BLOCKS.min(around).min(self.limit().saturating_sub(at));
        self.asked = at.saturating_add(blocks);
        self.flying = self.flying.saturating_add(1);
        Some(ScanRead { at, block, blocks })
    }

    /// A read of [`Scan::wants`] ended.
    pub fn loaded(&mut self, at: u64, bytes: Bytes) {
        self.flying = self.flying.saturating_sub(1);
        self.chunks.insert(at, bytes);
    }

    /// A read of [`Scan::wants`] of so many blocks failed.
    pub fn failed(&mut self, at: u64, blocks: u64, error: DiskError) {
        self.flying = self.flying.saturating_sub(1);
        if blocks > 1 {
            self.again.extend(at..at.saturating_add(blocks));
            return;
        }
        self.unreadable.insert(at, error);
        self.chunks.insert(at, Bytes::from_static(&NOTHING));
    }

    fn has_given_up(&self) -> bool {
        self.unreadable.len() > MOST_UNREADABLE
    }

    /// The blocks that could not be read.
    pub fn unreadable(&self) -> impl Iterator<Item = LostBlock> {
        let lost = |(at, error): (&u64, &DiskError)| LostBlock {
            at: *at,
            block: self.ring_block(*at),
            error: *error,
        };
        self.unreadable.iter().map(lost)
    }

    /// The first of these blocks that cannot be read.
    fn first_unreadable(&self, at: u64, n: u64) -> Option<Unreadable> {
        let (at, error) = self.unreadable.range(at..at.saturating_add(n)).next()?;
        Some((*at, *error))
    }

    fn stopped_by(&mut self, (at, error): Unreadable) -> Scanned {
        self.mode = Mode::Over;
        Scanned::Unreadable { seq: self.next.seq, block: self.ring_block(at), error }
    }

    /// Forgets what lies before `at`.
    fn trim(&mut self, at: u64) {
        while let Some((from, bytes)) = self.chunks.first_key_value() {
            if from.saturating_add((bytes.len() / BLOCK_BYTES) as u64) > at {
                return;
            }
            self.chunks.pop_first();
        }
    }

    /// `n` blocks from `at` on, if they are there.
    fn get(&mut self, at: u64, n: u64) -> Option<Bytes> {
        let end = at.saturating_add(n);
        self.need = self.need.max(end);
        let (first, chunk) = self.chunks.range(..=at).next_back()?;
        let offset = usize::try_from(at.saturating_sub(*first)).ok()?.checked_mul(BLOCK_BYTES)?;
        let len = usize::try_from(n).ok()?.checked_mul(BLOCK_BYTES)?;
        if chunk.len() >= offset.saturating_add(len) {
            return Some(chunk.slice(offset..offset.saturating_add(len)));
        }
        let mut out = BytesMut::with_capacity(len.min(chunk.len().saturating_mul(4)));
        out.extend_from_slice(chunk.get(offset..)?);
        let mut next = first.saturating_add((chunk.len() / BLOCK_BYTES) as u64);
        while out.len() < len {
            let chunk = self.chunks.get(&next)?;
            let take = chunk.len().min(len.saturating_sub(out.len()));
            out.extend_from_slice(chunk.get(..take)?);
            next = next.saturating_add((chunk.len() / BLOCK_BYTES) as u64);
        }
        Some(out.freeze())
    }

    /// Goes on with what was read.
    pub fn next(&mut self) -> Scanned {
        let next = self.go_on();
        match self.unreadable.last_key_value() {
            Some((at, error)) if self.has_given_up() && matches!(next, Scanned::Wait) => {
                self.stopped_by((*at, *error))
            }
            _ => next,
        }
    }

    fn go_on(&mut self) -> Scanned {
        loop {
            match &mut self.mode {
                Mode::Over => return self.end(),
                Mode::Batches => match self.next_batch() {
                    Some(Ok(batch)) if batch.header.generation > self.witness.generation => {
                        return self.outdated(&batch.header);
                    }
                    Some(Ok(batch)) => return Scanned::Batch(batch),
                    Some(Err(NotNext::Bad(bad))) => {
                        let next = self.next.at;
                        self.mode = Mode::Search { bad, next };
                    }
                    Some(Err(NotNext::Unknown(why))) => {
                        self.mode = Mode::Over;
                        let block = self.ring_block(self.next.at);
                        return Scanned::Unknown { seq: self.next.seq, block, why };
                    }
                    None => return Scanned::Wait,
                },
                Mode::Search { .. } => {
                    if let Some(out) = self.search() {
                        return out;
                    }
                }
            }
        }
    }

    /// The newest superblock is lost.
    fn outdated(&mut self, header: &Header) -> Scanned {
        self.mode = Mode::Over;
        let what = "it knows a newer superblock than the newest that was found";
        Scanned::Rot { seq: header.seq, block: self.ring_block(header.at), what }
    }

    fn end(&mut self) -> Scanned {
        self.mode = Mode::Over;
        Scanned::End { stale_life: self.stale_life }
    }

    fn next_batch(&mut self) -> Option<Result<Box<ScannedBatch>, NotNext>> {
        let at = self.next.at;
        if at >= self.limit() {
            return Some(Err("nothing is there".into()));
        }
        let cannot_be_read = |unreadable| {
            let bad = Bad { what: "it cannot be read", candidate: None, unreadable };
            Some(Err(NotNext::Bad(bad)))
        };
        let head = self.get(at, 1)?;
        if let Some(block) = self.first_unreadable(at, 1) {
            return cannot_be_read(Some(block));
        }
        let (header, crc) = match Header::decode(&head) {
            Ok(found) if self.follows(&found.0) => found,
            Ok(_) => return Some(Err("another batch stands in its place".into())),
            Err(Malformed(what)) => return Some(Err(what.into())),
        };
        let total = header.blocks();
        if at.saturating_add(total) > self.limit() {
            return Some(Err("it is longer than the log".into()));
        }
        let bytes = self.get(at, total)?;
        if let Some(block) = self.first_unreadable(at, u64::from(header.head_blocks)) {
            return cannot_be_read(Some(block));
        }
        let unreadable = self.first_unreadable(at, total);
        Some(check_batch(header, crc, &bytes).and_then(|batch| {
            let batch = Box::new(batch);
            if unreadable.is_none() && batch.bad_blocks.is_empty() {
                self.accept(&batch);
                return Ok(batch);
            }
            let what = "a logged block is damaged";
            Err(NotNext::Bad(Bad { what, candidate: Some(batch), unreadable }))
        }))
    }

    fn follows(&self, header: &Header) -> bool {
        let chained = match self.last_crc {
            Some(crc) if header.life == self.life => header.prev_crc == crc,
            Some(_) => header.life > self.life && header.prev_crc == 0,
            None => header.life >= self.life,
        };
        header.store == self.store
            && header.seq == self.next.seq
            && header.at == self.next.at
            && chained
    }

    fn accept(&mut self, batch: &ScannedBatch) {
        let header = &batch.header;
        self.life = header.life;
        self.last_crc = Some(batch.crc);
        self.next.seq = self.next.seq.saturating_add(1);
        self.next.at = self.next.at.saturating_add(header.blocks());
        self.need = self.next.at.saturating_add(1);
        self.trim(self.next.at);
    }

    /// Looks for a witness behind a bad batch.
    fn search(&mut self) -> Option<Scanned> {
        let missing = self.next.seq;
        let proven = self.witness.durable_seq >= missing;
        let limit = self.limit().min(self.next.at.saturating_add(WITNESS_BLOCKS));
        loop {
            let Mode::Search { next, bad } = &mut self.mode else { return None };
            if proven {
                return self.proven();
            }
            let at = *next;
            if at >= limit {
                return Some(match bad.unreadable {
                    Some(block) => self.stopped_by(block),
                    None => self.end(),
                });
            }
            *next = at.saturating_add(1);
            let Some(block) = self.get(at, 1) else {
                if let Mode::Search { next, .. } = &mut self.mode {
                    *next = at;
                }
                return Some(Scanned::Wait);
            };
            let Ok((header, _)) = Header::decode(&block) else { continue };
            if header.store != self.store {
                continue;
            }
            // Of a later lap, too: where it stands now the log was released, for which there had to be a
            // newer superblock.
            if header.generation > self.witness.generation {
                return Some(self.outdated(&header));
            }
            if header.at == at && header.seq >= missing {
                self.stale_life = self.stale_life.max(Some(header.life));
                if header.durable_seq >= missing {
                    return self.proven();
                }
            }
        }
    }

    /// The bad batch was durable: it counts if only logged blocks are bad.
    fn proven(&mut self) -> Option<Scanned> {
        let Mode::Search { bad, .. } = std::mem::replace(&mut self.mode, Mode::Over) else {
            return None;
        };
        match bad.candidate {
            Some(batch) => {
                self.mode = Mode::Batches;
                self.accept(&batch);
                Some(Scanned::Batch(batch))
            }
            None => {
                let block = self.ring_block(self.next.at);
                Some(Scanned::Rot { seq: self.next.seq, block, what: bad.what })
            }
        }
    }

    /// The block of the device where a place of the endless log is.
    fn ring_block(&self, at: u64) -> u64 {
        self.place.base.saturating_add(at.checked_rem(self.place.blocks).unwrap_or(0))
    }
}

/// Checks everything behind the header.
fn check_batch(header: Header, crc: u32, bytes: &Bytes) -> Result<ScannedBatch, NotNext> {
    let malformed = |what| NotNext::Unknown(BadRecords::Malformed(what));
    let head = (header.head_blocks as usize).saturating_mul(BLOCK_BYTES);
    let end = HEADER_BYTES.saturating_add(header.record_bytes as usize);
    let records = bytes.get(HEADER_BYTES..end).ok_or("a batch ends too early")?;
    if denc::crc32c(0xffff_ffff, records) != header.record_crc {
        return Err("its records have a wrong checksum".into());
    }
    let entries = decode_records(records, header.records).map_err(NotNext::Unknown)?;
    let data = bytes.get(head..).ok_or(malformed("a batch ends too early"))?;
    let crcs = entries.iter().flat_map(|entry| match entry {
        Entry::Txn(record) => record.blocks.iter().map(|(_, crc)| *crc).collect(),
        Entry::Dropped(_) => Vec::new(),
    });
    let mut bad_blocks = Vec::new();
    let mut blocks = data.chunks_exact(BLOCK_BYTES);
    for (i, crc) in crcs.enumerate() {
        let block = blocks.next().ok_or(malformed("a batch lacks logged blocks"))?;
        if block_crc(block) != crc {
            bad_blocks.push(i as u32);
        }
    }
    if blocks.next().is_some() {
        return Err(malformed("a batch has too many logged blocks"));
    }
    Ok(ScannedBatch { header, crc, entries, bad_blocks })
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::super::format::tests::sample_header;
    use super::*;

    fn scan(found: Header, witness: Witness) -> Scanned {
        let place = WalPlace { dev: 0, base: 100, blocks: 8 };
        let from = LogPos { seq: 5, at: 16 };
        let mut scan = Scan::new(found.store, place, from, 3, witness);
        while let Some(read) = scan.wants() {
            let mut bytes = vec![0; read.blocks as usize * BLOCK_BYTES];
            // In the place of the second batch.
            found.encode(bytes.get_mut(BLOCK_BYTES..2 * BLOCK_BYTES).expect("it is read"));
            scan.loaded(read.at, bytes.into());
        }
        scan.next()
    }

    #[test]
    fn a_later_lap_of_the_log_knows_that_a_superblock_is_lost() {
        let header = Header { at: 25, seq: 70, generation: 4, ..sample_header() };
        let witness = Witness { durable_seq: 4, generation: 3 };
        let found = scan(header, witness);
        assert!(matches!(found, Scanned::Rot { seq: 70, block: 101, .. }), "{found:?}");
        // One before says nothing.
        let header = Header { at: 9, seq: 2, generation: 3, ..header };
        assert!(matches!(scan(header, witness), Scanned::End { .. }));
    }
}

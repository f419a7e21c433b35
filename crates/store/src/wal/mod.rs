//! The log: a ring of blocks that takes batches, at most one a turn as a rule.
//!
//! Batches are numbered and follow each other in an endless log of blocks, of which the ring holds
//! the part that is still needed. A batch holds the records of transactions, of one turn or a few,
//! and, for small writes, the new blocks. It is needed until its records are in the tree and its blocks in
//! place (or something newer is), and a superblock says so.
//!
//! **Order.** Batches are written in order but complete in any; a batch counts as durable only with
//! all before it, since replay stops at the first that is missing.
//!
//! **Decided** is a transaction that can no more be lost: its batch is durable, so is the data it
//! wrote beside the log, and so are all before it in its sequencer. **Recorded** is one that a
//! durable batch calls decided. Replay verifies the data of what is not recorded. Hence the rule on
//! which everything rests: *nothing that a decided transaction made obsolete is overwritten, and
//! none of its own blocks is put in place, before it is recorded*. Otherwise verification could
//! find its data missing and drop what was acknowledged.
//! And should the disk lose the batch that recorded it, the log still tells what was written over
//! (`Replay::unfinished`).
//!
//! **The overlay** finds the newest logged content of each block that is not in place.

mod batch;
pub(crate) mod format;
mod oldest;
mod restore;
mod ring;
pub(crate) mod scan;

pub(crate) use oldest::{Gone, Oldest};
pub(crate) use ring::split_ring;

use crate::config::WalPlace;
use crate::places::PlaceMap;
use crate::plan::logged::LoggedBlocks;
use crate::superblock::LogPos;
use batch::{Batch, State, take_blocks};
use bytes::Bytes;
use format::Header;
use io::BLOCK_BYTES;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use types::Uuid;

/// A batch is closed when it has so many blocks.
const BATCH_BLOCKS: u64 = 512;
/// Entries of the overlay that room is made for at once.
const OVERLAY_BLOCKS: u64 = 512 * 1024;
/// A transaction takes at most so many.
const TXN_BLOCKS: u64 = 4096;
/// Of the largest transaction this part is kept for what copies of it have more.
const COPIES_SHARE: u64 = 8;
/// Blocks in flight before the next batch waits. With the largest batch this is less than the
/// distance in which a scan looks for a witness.
const WRITING_BLOCKS: u64 = 2 * TXN_BLOCKS;
const _: () = assert!(TXN_BLOCKS + WRITING_BLOCKS < scan::WITNESS_BLOCKS);

/// Blocks of the ring that only batches without transactions may use: half of them those that only say what
/// is decided, the other half those of mounts. A mount without room would be none.
fn spare_blocks(ring: u64) -> u64 {
    (ring / 8).clamp(8, 64)
}

/// A logged block on its way to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// The batch that holds it.
    pub seq: u64,
    /// Which of the batch's blocks.
    pub index: u32,
    pub crc: u32,
    /// The transaction that wrote it.
    pub txn: u64,
}

/// Where the content of a logged block is.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Memory(Bytes),
    /// In this block of the ring, of batch `seq`.
    Log {
        seq: u64,
        block: u64,
    },
}

/// Whether a transaction can go into the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Yes,
    /// When older batches are no more needed.
    Later,
    /// It is larger than [`Wal::max_txn_blocks`].
    Never {
        blocks: u64,
    },
}

/// Whole blocks that are written one behind the other.
pub(crate) type Pieces = SmallVec<[Bytes; 4]>;

/// A batch ready to be written.
pub(crate) struct Issue {
    pub seq: u64,
    /// First block of the ring and pieces; two when the batch goes around the end of the ring.
    pub writes: SmallVec<[(u64, Pieces); 2]>,
}

/// The log.
pub(crate) struct Wal {
    store: Uuid,
    pub life: u64,
    pub place: WalPlace,
    /// From the oldest that is needed to the open one. Boxed, so that room for all that the log can
    /// hold is small: growing a large table would take long.
    batches: VecDeque<Box<Batch>>,
    /// Where the oldest needed batch stands.
    tail: LogPos,
    /// Where the open batch will stand.
    next_at: u64,
    /// The next batch to be written.
    next_issue: u64,
    durable_seq: u64,
    recorded: u64,
    last_crc: u32,
    writing: usize,
    writing_blocks: u64,
    overlay: PlaceMap<Pending>,
    /// Blocks that were replaced (batch and index), each with the transaction that did it.
    replaced: VecDeque<(u64, u64, u32)>,
    cached: usize,
    /// What of it is not wanted any more, in batches that are being put in place.
    spent: usize,
    /// Memory of content that was read back.
    reloaded: usize,
    budget: usize,
    /// Batches before this have no buffers, or keep them.
    cached_from: u64,
    /// Batches before this are being put in place, or are.
    kept_before: u64,
    /// Batches before this have no live blocks.
    settled: u64,
    /// Blocks being read back, by batch.
    reading: BTreeMap<u64, u32>,
}

impl Wal {
    /// A log whose next batch is `next`. [`Wal::restore`] puts back the batches before it.
    pub fn new(store: Uuid, place: WalPlace, life: u64, next: LogPos, budget: usize) -> Self {
        // These would take long to grow, too.
        let expected = place.blocks.min(OVERLAY_BLOCKS) as usize;
        let mut batches = VecDeque::with_capacity(expected);
        batches.push_back(Box::new(Batch::new(next.seq)));
        Wal {
            store,
            life,
            place,
            batches,
            tail: next,
            next_at: next.at,
            next_issue: next.seq,
            durable_seq: next.seq - 1,
            recorded: 0,
            last_crc: 0,
            writing: 0,
            writing_blocks: 0,
            overlay: PlaceMap::with_room(expected),
            replaced: VecDeque::new(),
            cached: 0,
            spent: 0,
            reloaded: 0,
            budget,
            cached_from: next.seq,
            kept_before: 0,
            settled: next.seq,
            reading: BTreeMap::new(),
        }
    }

    fn index_of(&self, seq: u64) -> usize {
        (seq - self.tail.seq) as usize
    }

    fn batch(&self, seq: u64) -> &Batch {
        &self.batches[self.index_of(seq)]
    }

    fn batch_mut(&mut self, seq: u64) -> &mut Batch {
        let index = self.index_of(seq);
        &mut self.batches[index]
    }

    fn open(&mut self) -> &mut Batch {
        self.batches.back_mut().expect("there is always an open batch")
    }

    /// Blocks of the ring in use, with those that batches not written yet will take.
    pub fn used_blocks(&self) -> u64 {
        let open = self.batches.back().filter(|b| !b.is_empty()).map_or(0, |b| b.total_blocks());
        self.next_at - self.tail.at + open
    }

    /// Where the endless log ends when all that was appended is written.
    pub fn end_at(&self) -> u64 {
        self.tail.at + self.used_blocks()
    }

    /// The largest transaction.
    pub fn max_txn_blocks(&self) -> u64 {
        TXN_BLOCKS.min(self.place.blocks / 4)
    }

    /// The largest one that no other store has taken yet. Who copies it adds what it trims and frees itself,
    /// and must not fail by that.
    pub fn max_first_txn_blocks(&self) -> u64 {
        let max = self.max_txn_blocks();
        max - max / COPIES_SHARE
    }

    /// Blocks that transactions may use.
    pub fn usable_blocks(&self) -> u64 {
        self.place.blocks - spare_blocks(self.place.blocks)
    }

    /// Whether a record of this size with so many blocks can be appended, if a transaction may have `max`.
    pub fn fits(&self, record_bytes: usize, blocks: usize, max: u64) -> Fit {
        let alone = format::head_blocks(record_bytes) + blocks as u64;
        if alone > max {
            return Fit::Never { blocks: alone };
        }
        // At most the open batch is closed and this begins a new one.
        if self.used_blocks() + alone <= self.usable_blocks() { Fit::Yes } else { Fit::Later }
    }

    /// Appends the record of `txn` and its blocks to the open batch.
    pub fn append(&mut self, txn: u64, record: &[u8], blocks: LoggedBlocks) {
        let alone = format::head_blocks(record.len()) + blocks.len() as u64;
        let limit = BATCH_BLOCKS.min(self.place.blocks / 4);
        if !self.open().is_empty() && self.open().total_blocks() + alone > limit {
            self.seal();
        }
        let batch = self.open();
        let seq = batch.seq;
        batch.records.extend_from_slice(record);
        batch.count += 1;
        batch.txns.push(txn);
        for (place, crc, content) in blocks {
            let batch = self.open();
            let index = batch.blocks.len() as u32;
            batch.blocks.push(place);
            batch.live += 1;
            batch.pieces.push(content);
            if let Some(old) = self.overlay.insert(place, Pending { seq, index, crc, txn }) {
                self.replaced.push_back((txn, old.seq, old.index));
            }
        }
    }

    /// The block at `place` was freed by `txn`: what is logged of it goes nowhere.
    pub fn forget(&mut self, place: u64, txn: u64) {
        if let Some(old) = self.overlay.remove(place) {
            self.replaced.push_back((txn, old.seq, old.index));
        }
    }

    /// Whether any logged block waits to be put in place.
    pub fn has_pending(&self) -> bool {
        !self.overlay.is_empty()
    }

    /// The logged content of the block at `place`, if it is not in place yet.
    pub fn pending(&self, place: u64) -> Option<Pending> {
        if self.overlay.is_empty() { None } else { self.overlay.get(place).copied() }
    }

    /// Where the content of a logged block is.
    pub fn content(&self, pending: Pending) -> Content {
        let batch = self.batch(pending.seq);
        match batch.pieces.get(pending.index as usize).filter(|piece| !piece.is_empty()) {
            Some(piece) => Content::Memory(piece.clone()),
            None => {
                let at = batch.at + batch.head_blocks + u64::from(pending.index);
                Content::Log { seq: batch.seq, block: at % self.place.blocks }
            }
        }
    }

    /// Where the block at this place of the endless log is to be put, if its content is that of a logged block and
    /// nothing newer is there.
    pub fn wanted_at(&self, at: u64) -> Option<u64> {
        let after = self.batches.partition_point(|b| b.state != State::Open && b.at <= at);
        let batch = self.batches.get(after.checked_sub(1)?)?;
        let index = usize::try_from(at.checked_sub(batch.at + batch.head_blocks)?).ok()?;
        let place = *batch.blocks.get(index)?;
        let newest = self.pending(place)?;
        (newest.seq == batch.seq && newest.index as usize == index).then_some(place)
    }

    /// Whether the open batch has transactions.
    pub fn has_open(&self) -> bool {
        self.batches.back().is_some_and(|b| !b.is_empty())
    }

    /// Blocks of the open batch.
    pub fn open_blocks(&self) -> u64 {
        self.batches.back().map_or(0, |b| b.total_blocks())
    }

    /// Closes the open batch, so that what comes next is in another one. Gives the position of what
    /// comes next.
    pub fn seal(&mut self) -> LogPos {
        let at = self.next_at;
        let batch = self.open();
        batch.at = at;
        batch.head_blocks = format::head_blocks(batch.records.len());
        batch.state = State::Sealed;
        let (seq, total) = (batch.seq + 1, batch.total_blocks());
        self.next_at += total;
        self.batches.push_back(Box::new(Batch::new(seq)));
        LogPos { seq, at: self.next_at }
    }

    /// How many batches without transactions can be closed.
    pub fn room_for_marks(&self) -> u64 {
        let ring = self.place.blocks;
        (ring - spare_blocks(ring) / 2).saturating_sub(self.used_blocks())
    }

    /// The position behind all batches that are closed; the open one will stand there.
    pub fn end(&self) -> LogPos {
        let seq = self.batches.back().map_or(self.tail.seq, |b| b.seq);
        LogPos { seq, at: self.next_at }
    }

    /// Batches that are being written.
    pub fn writing(&self) -> usize {
        self.writing
    }

    /// The next closed batch, as bytes. `decided` and `generation` go into its header.
    pub fn issue(&mut self, decided: u64, generation: u64) -> Option<Issue> {
        let seq = self.next_issue;
        let batch = self.batch(seq);
        let crowded = self.writing_blocks + batch.total_blocks() > WRITING_BLOCKS;
        if batch.state != State::Sealed || (self.writing > 0 && crowded) {
            return None;
        }
        let (store, life, prev_crc) = (self.store, self.life, self.last_crc);
        let durable_seq = self.durable_seq;
        let ring = self.place.blocks;
        let batch = self.batch_mut(seq);
        let header = Header {
            store,
            life,
            seq,
            at: batch.at,
            record_bytes: batch.records.len() as u32,
            record_crc: denc::crc32c(0xffff_ffff, &batch.records),
            head_blocks: batch.head_blocks as u32,
            data_blocks: batch.blocks.len() as u32,
            prev_crc,
            records: batch.count,
            durable_seq,
            decided,
            generation,
        };
        let (crc, mut pieces) = batch.assemble(&header);
        batch.state = State::Writing;
        batch.decided = decided;
        let (at, total) = (batch.at, batch.total_blocks());
        let writes: SmallVec<[_; 2]> = split_ring(at, total, ring)
            .map(|(block, _, len)| (block, take_blocks(&mut pieces, len as usize)))
            .collect();
        batch.writes = writes.len() as u32;
        batch.kept = batch.blocks.len();
        let cached = batch.kept * BLOCK_BYTES;
        self.cached += cached;
        self.last_crc = crc;
        self.next_issue += 1;
        self.writing += 1;
        self.writing_blocks += total;
        Some(Issue { seq, writes })
    }

    /// One write of batch `seq` completed. Gives the transactions whose batches are durable now.
    pub fn written(&mut self, seq: u64) -> Vec<u64> {
        let batch = self.batch_mut(seq);
        assert!(batch.state == State::Writing && batch.writes > 0, "the batch is being written");
        batch.writes -= 1;
        if batch.writes > 0 {
            return Vec::new();
        }
        batch.state = State::Durable;
        let blocks = batch.total_blocks();
        self.writing -= 1;
        self.writing_blocks -= blocks;
        let mut txns = Vec::new();
        while self.durable_seq + 1 < self.next_issue
            && self.batch(self.durable_seq + 1).state == State::Durable
        {
            self.durable_seq += 1;
            let batch = self.batch_mut(self.durable_seq);
            txns.append(&mut batch.txns);
            if batch.live == 0 {
                self.drop_buffer(self.durable_seq);
            }
            self.recorded = self.recorded.max(self.batch(self.durable_seq).decided);
        }
        self.evict();
        txns
    }

    /// The last batch that is durable with all before it.
    pub fn durable_seq(&self) -> u64 {
        self.durable_seq
    }

    /// All transactions up to this one are called decided by a durable batch.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    fn drop_buffer(&mut self, seq: u64) {
        let batch = self.batch_mut(seq);
        // The blocks of a batch that is not written are nowhere else.
        if batch.state != State::Durable {
            return;
        }
        self.drop_content(seq, Batch::drop_pieces);
    }

    /// Counts what `f` drops of a batch's content.
    fn drop_content(&mut self, seq: u64, f: impl FnOnce(&mut Batch)) {
        let batch = self.batch_mut(seq);
        let (kept, spent) = (batch.kept, batch.spent);
        f(batch);
        let (kept_now, spent_now) = (batch.kept, batch.spent);
        self.cached -= (kept - kept_now) * BLOCK_BYTES;
        if seq < self.kept_before {
            self.spent = self.spent + spent_now * BLOCK_BYTES - spent * BLOCK_BYTES;
        }
    }

    /// Memory that the content of logged blocks takes. What is in place, and has to wait for others of its
    /// group to leave, does not count: that is less than what a round takes on, and gone when it is over.
    pub fn cached_bytes(&self) -> usize {
        self.cached - self.spent + self.reloaded
    }

    /// So much is read back, beside what is kept.
    pub fn set_reloaded(&mut self, bytes: usize) {
        self.reloaded = bytes;
    }

    /// What all of it is not to exceed.
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// Keeps to another budget from now on.
    pub fn set_budget(&mut self, budget: usize) {
        self.budget = budget;
        self.evict();
    }

    /// The batches before `seq` are being put in place: their content stays in memory, if it is there.
    pub fn keep_before(&mut self, seq: u64) {
        let first = self.index_of(self.kept_before.max(self.tail.seq));
        let batches = self.batches.iter().skip(first);
        let spent: usize = batches.take_while(|b| b.seq < seq).map(|b| b.spent).sum();
        self.spent += spent * BLOCK_BYTES;
        self.kept_before = self.kept_before.max(seq);
    }

    /// Keeps to the memory budget: the oldest durable batches' buffers go first, but for those that are
    /// just being put in place.
    fn evict(&mut self) {
        self.cached_from = self.cached_from.max(self.tail.seq).max(self.kept_before);
        while self.cached_bytes() > self.budget && self.cached_from <= self.durable_seq {
            self.drop_buffer(self.cached_from);
            self.cached_from += 1;
        }
    }

    /// A block of a batch is in place, or replaced for good: nobody needs its content any more.
    fn settle(&mut self, seq: u64, index: u32) {
        let batch = self.batch_mut(seq);
        batch.live -= 1;
        if batch.state != State::Durable {
            return;
        }
        if batch.live == 0 {
            self.drop_buffer(seq);
        } else {
            self.drop_content(seq, |batch| batch.drop_piece(index as usize));
        }
    }

    /// What recorded transactions replaced is gone for good.
    pub fn settle_replaced(&mut self) {
        while let Some(&(txn, seq, index)) = self.replaced.front() {
            if txn > self.recorded {
                return;
            }
            self.replaced.pop_front();
            self.settle(seq, index);
        }
    }

    /// The content that batches hold for these places (each with the batch's number) is in place.
    pub fn in_place(&mut self, blocks: &[(u64, u64)]) {
        // Where each stands in memory is far from the next. Looks that do not wait for one another are
        // many times faster.
        let held: SmallVec<[_; 32]> =
            blocks.iter().map(|(place, _)| self.pending(*place)).collect();
        for (&(place, seq), pending) in blocks.iter().zip(held) {
            // What replaced it meanwhile settles the batch when it is recorded.
            if let Some(pending) = pending.filter(|p| p.seq == seq) {
                self.overlay.remove(place);
                self.settle(seq, pending.index);
            }
        }
    }

    /// The first batch with a block that is neither in place nor replaced for good; or the first
    /// that is not durable, whose number could be given to another one after a crash.
    pub fn blocks_pos(&mut self) -> LogPos {
        self.settled = self.settled.max(self.tail.seq);
        while self.settled <= self.durable_seq && self.batch(self.settled).live == 0 {
            self.settled += 1;
        }
        let batch = self.batch(self.settled);
        match batch.state {
            State::Open => self.end(),
            _ => LogPos { seq: batch.seq, at: batch.at },
        }
    }

    /// The oldest batch that is needed.
    pub fn tail(&self) -> LogPos {
        self.tail
    }

    /// Notes that a block of batch `seq` is being read back: it must not be overwritten.
    pub fn begin_read(&mut self, seq: u64) {
        *self.reading.entry(seq).or_insert(0) += 1;
    }

    /// The reading ended.
    pub fn end_read(&mut self, seq: u64) {
        let count = self.reading.get_mut(&seq).expect("a read that began");
        *count -= 1;
        if *count == 0 {
            self.reading.remove(&seq);
        }
    }

    /// Whether something of the oldest batch is being read back.
    fn is_being_read(&self) -> bool {
        self.reading.contains_key(&self.tail.seq)
    }

    /// A durable superblock says that the batches before `to` are not needed: the oldest of them go, up to so
    /// many, as far as they are not being read. Gives how many.
    pub fn release(&mut self, to: LogPos, max: usize) -> usize {
        assert!(to.seq <= self.durable_seq + 1, "only old batches go");
        for released in 0..max {
            if self.tail.seq >= to.seq || self.is_being_read() {
                return released;
            }
            self.drop_buffer(self.tail.seq);
            let batch = self.batches.pop_front().expect("a batch before the open one");
            assert_eq!(batch.live, 0, "a batch with a block that is not in place is needed");
            self.tail = LogPos { seq: batch.seq + 1, at: batch.at + batch.total_blocks() };
        }
        max
    }
}

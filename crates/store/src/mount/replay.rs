//! Replaying the log over the tree.
//!
//! Transactions are applied in order, but only when it is known that none of them is to be passed
//! over: when a later batch calls them decided, or, at the end of the log, when the data they wrote
//! beside it has been verified ([`Replay::undecided`], [`Replay::finish`]).

use crate::accounts::Accounts;
use crate::alloc::{Allocator, Run};
use crate::memtable::Memtable;
use crate::superblock::{LogPos, Superblock, Totals};
use crate::wal::format::{Direct, Entry, Record};
use crate::wal::scan::ScannedBatch;
use crate::wal::{Pending, Wal};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Places that do not hold what a transaction that waits wrote beside the log, by transaction.
pub(crate) type Missing = BTreeMap<u64, Vec<u64>>;

/// A transaction that is read and not applied.
struct Waiting {
    seq: u64,
    /// Index of its first block in the batch.
    first_block: u32,
    record: Box<Record<'static>>,
}

/// What the log changes in what the tree says.
pub(crate) struct Replay {
    pub wal: Wal,
    pub changes: Memtable,
    pub alloc: Allocator,
    pub totals: Totals,
    pub accounts: Accounts,
    pub next_id: u64,
    pub next_txn: u64,
    /// Transactions that are passed over.
    pub dropped: BTreeSet<u64>,
    rows: LogPos,
    blocks: LogPos,
    total_blocks: u64,
    decided: u64,
    waiting: VecDeque<Waiting>,
    last: Option<LastBatch>,
    /// What cannot be: found by the last [`Replay::batch`] or [`Replay::finish`].
    problem: Option<(u64, &'static str)>,
}

#[derive(Clone, Copy)]
struct LastBatch {
    life: u64,
    decided: u64,
    has_txns: bool,
}

impl Replay {
    /// Replays over what `sb` points to; `wal` is empty, `alloc` has the bitmaps of the tree.
    pub fn new(sb: &Superblock, wal: Wal, alloc: Allocator) -> Self {
        Replay {
            wal,
            changes: Memtable::default(),
            alloc,
            totals: sb.totals,
            accounts: Accounts::default(),
            next_id: sb.next_id,
            next_txn: sb.next_txn,
            dropped: BTreeSet::new(),
            rows: sb.rows,
            blocks: sb.blocks,
            total_blocks: sb.total_blocks,
            // Not what the superblock implies: a later batch may say that some are passed over.
            decided: 0,
            waiting: VecDeque::new(),
            last: None,
            problem: None,
        }
    }

    /// Takes in the next batch. An error names a batch and what cannot be.
    pub fn batch(&mut self, batch: ScannedBatch) -> Result<(), (u64, &'static str)> {
        let seq = batch.header.seq;
        let mut places = Vec::new();
        let mut has_txns = false;
        for entry in batch.entries {
            match entry {
                Entry::Dropped(txns) => self.dropped.extend(txns),
                Entry::Txn(record) => {
                    has_txns = true;
                    let first_block = places.len() as u32;
                    places.extend(record.blocks.iter().map(|(place, _)| *place));
                    self.waiting.push_back(Waiting { seq, first_block, record });
                }
            }
        }
        self.wal.restore(&batch.header, batch.crc, places);
        let h = &batch.header;
        self.last = Some(LastBatch { life: h.life, decided: h.decided, has_txns });
        self.decided = self.decided.max(h.decided);
        self.apply_decided();
        self.problem.take().map_or(Ok(()), Err)
    }

    fn apply_decided(&mut self) {
        while self.waiting.front().is_some_and(|w| w.record.txn <= self.decided) {
            if let Some(waiting) = self.waiting.pop_front() {
                self.apply(waiting);
            }
        }
    }

    fn apply(&mut self, waiting: Waiting) {
        let Waiting { seq, first_block, record } = waiting;
        let record = *record;
        self.next_txn = self.next_txn.max(record.txn + 1);
        if self.dropped.contains(&record.txn) {
            return;
        }
        if !self.is_possible(&record) {
            self.problem.get_or_insert((seq, "it names a block behind the end of the device"));
            return;
        }
        for run in record.freed.iter() {
            if self.wal.has_pending() {
                (run.start..run.end()).for_each(|place| self.wal.restore_freed(place));
            }
        }
        if seq >= self.blocks.seq {
            for (i, (place, crc)) in record.blocks.iter().enumerate() {
                let index = first_block + i as u32;
                let pending = Pending { seq, index, crc: *crc, txn: record.txn };
                self.wal.restore_block(*place, pending);
            }
        }
        if seq < self.rows.seq {
            return;
        }
        let mut fits = |runs: &[Run], taken| {
            let ok = runs.iter().all(|run| self.alloc.replay(*run, taken));
            if !ok {
                let what =
                    if taken { "it takes a block that is in use" } else { "it frees a free block" };
                self.problem.get_or_insert((seq, what));
            }
        };
        fits(&record.taken, true);
        fits(&record.freed, false);
        self.next_id = self.next_id.max(record.next_id);
        self.totals.add(record.delta);
        self.accounts.add(record.account, record.counts);
        if let Err(why) = self.changes.absorb(record.changes.into_owned(), record.txn) {
            self.problem.get_or_insert((seq, why.0));
        }
    }

    /// Whether all blocks that a record names are on the device.
    fn is_possible(&self, record: &Record<'_>) -> bool {
        let runs = record.taken.iter().chain(record.freed.iter());
        runs.chain(record.direct.iter().map(|d| &d.run)).all(|run| run.end() <= self.total_blocks)
            && record.blocks.iter().all(|(place, _)| *place < self.total_blocks)
    }

    /// Data beside the log that decides whether the last transactions count: of each transaction,
    /// in order. Only of records that are possible.
    pub fn undecided(&self) -> impl Iterator<Item = (u64, &Direct)> {
        let possible = self.waiting.iter().filter(|w| self.is_possible(&w.record));
        possible.flat_map(|w| w.record.direct.iter().map(|d| (w.record.txn, d)))
    }

    /// The log is at its end. Transactions whose data is not there, and all behind them in their
    /// sequencers, are passed over.
    pub fn finish(&mut self, missing: &Missing) -> Result<(), (u64, &'static str)> {
        loop {
            let unfinished = self.unfinished(missing);
            if unfinished.is_empty() {
                break;
            }
            let mut ended = BTreeSet::new();
            for record in self.waiting.iter().map(|w| &w.record) {
                if unfinished.contains(&record.txn) || ended.contains(&record.sequencer) {
                    ended.insert(record.sequencer);
                    self.dropped.insert(record.txn);
                }
            }
        }
        self.decided = u64::MAX;
        self.apply_decided();
        self.problem.take().map_or(Ok(()), Err)
    }

    /// Transactions that cannot count: data of theirs is not there, and nothing that counts replaces it.
    ///
    /// A block that a later one freed or has in the log need not be there. That one may have been put
    /// in place, or something else into the freed block, and a disk that lost the batch by which they
    /// were all recorded must not take with it what was acknowledged. If the later one was never
    /// acknowledged, this does no harm: it counts, or what it replaces is looked at after all.
    fn unfinished(&self, missing: &Missing) -> BTreeSet<u64> {
        let mut out = BTreeSet::new();
        if missing.is_empty() {
            return out;
        }
        let looked_for: BTreeSet<u64> = missing.values().flatten().copied().collect();
        let mut replaced = BTreeSet::new();
        let counting = self.waiting.iter().filter(|w| !self.dropped.contains(&w.record.txn));
        for record in counting.rev().map(|w| &w.record) {
            replaced.extend(record.blocks.iter().map(|(place, _)| *place));
            for run in record.freed.iter() {
                replaced.extend(looked_for.range(run.start..run.end()));
            }
            let mut places = missing.get(&record.txn).into_iter().flatten();
            if places.any(|place| !replaced.contains(place)) {
                out.insert(record.txn);
            }
        }
        out
    }

    /// The life to go on in. A new one begins with a batch that says what is decided, unless the
    /// last batch says just that and nothing of its life or a later one stands behind it: then the last
    /// life can go on, so that mounts alone do not fill the log. `news`: something was decided at the end
    /// of the log.
    pub fn life(&self, sb: &Superblock, stale: Option<u64>, news: bool) -> u64 {
        let says_it = |l: &LastBatch| {
            let is_last = stale.is_none_or(|stale| stale < l.life);
            !l.has_txns && l.decided + 1 >= self.next_txn && !news && is_last
        };
        match self.last {
            Some(l) if says_it(&l) => l.life,
            last => sb.life.max(last.map_or(0, |l| l.life)).max(stale.unwrap_or(0)) + 1,
        }
    }

    /// Number of transactions that wait for a decision.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

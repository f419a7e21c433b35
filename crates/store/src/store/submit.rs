//! Taking transactions.

use super::miss::{Miss, ReadSet};
use super::space::{Purpose, Room};
use super::{Life, Store, TxnId};
use crate::alloc::Run;
use crate::error::SubmitError;
use crate::plan::{Context, Outcome, PlanError, plan};
use crate::store::direct::DirectWrites;
use crate::store::onodes::Known;
use crate::txn::{Invalid, Op, Transaction};
use crate::wal::Fit;
use crate::wal::format::Record;
use io::{BLOCK_BYTES, Now};
use std::borrow::Cow;

/// Of the largest transaction, one part of so many is for the content of short writes. With more data than that
/// short ones, too, go to fresh places.
const SHORT_WRITES_SHARE: u64 = 4;
/// What a change of an object's bytes takes of the log for rows of extents, and a block that it writes, at most.
const CHANGE_ROW_BYTES: u64 = 512;
const BLOCK_ROW_BYTES: u64 = 16;

/// Memory for a record is kept for the next one, up to so much.
const KEPT_RECORD_BYTES: usize = 64 << 10;

impl Store {
    /// Takes a transaction: on success all its changes are visible at once, and
    /// [`super::StoreEvent::Durable`] follows when they survive any crash.
    ///
    /// # Errors
    /// Nothing has changed; the error says what to do.
    pub fn submit(
        &mut self,
        now: Now,
        txn: &Transaction,
        fetched: &ReadSet,
    ) -> Result<TxnId, SubmitError> {
        // The last turn may have been long ago.
        self.now = now.mono;
        txn.check().map_err(SubmitError::Invalid)?;
        let data_bytes = txn.data_bytes();
        if self.life != Life::Running || self.must_wait(data_bytes) {
            return Err(self.busy());
        }
        let context = Context {
            rows: &self.rows,
            onodes: &self.onodes,
            shards: &self.shards,
            outlines: &self.outlines,
            wal: &self.wal,
            direct: &self.direct,
            kept: &self.blocks,
            txns: &self.txns,
            fetched,
            small_write_bytes: self.small_write_bytes(data_bytes),
            codec: &self.codec,
            arena: &self.arena,
        };
        let outcome = match plan(context, &mut self.alloc, txn, self.next_id) {
            Ok(outcome) => outcome,
            Err(why) => return Err(self.refuse(why)),
        };
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        self.record_of(&outcome, txn).encode(&mut record);
        let checked = self.check_room(&outcome, record.len(), txn.may_use_reserve);
        let taken = match checked {
            Ok(()) => {
                self.counters.data_bytes += data_bytes;
                Ok(self.take(txn, outcome, &record))
            }
            Err(why) => {
                self.undo(&outcome.taken);
                Err(why)
            }
        };
        if record.capacity() <= KEPT_RECORD_BYTES {
            self.record = record;
        }
        taken
    }

    /// Writes shorter than this go into the log; a small log holds less. Of a transaction with so much data none
    /// do: its whole blocks, at least.
    fn small_write_bytes(&self, data_bytes: u64) -> u64 {
        if self.is_much(data_bytes) {
            return BLOCK_BYTES as u64;
        }
        let share = self.wal.place.blocks * BLOCK_BYTES as u64 / 64;
        (self.config.small_write_bytes as u64).min(share)
    }

    fn is_much(&self, data_bytes: u64) -> bool {
        data_bytes > self.max_first_transaction_bytes() / SHORT_WRITES_SHARE
    }

    /// Whether the log does not take a transaction of another store, encoded in so many bytes with its data, as far
    /// as can be told beforehand.
    pub fn is_too_large(&self, txn: &Transaction, bytes: u64) -> bool {
        let max = self.max_first_transaction_bytes();
        let most_of_ends = txn.ops().len() as u64 * (CHANGE_ROW_BYTES + 2 * BLOCK_BYTES as u64);
        // Nearly all are far from it.
        if bytes.saturating_add(most_of_ends) <= max {
            return false;
        }
        bytes.saturating_sub(txn.data_bytes()).saturating_add(self.logged_data_bytes(txn)) > max
    }

    /// What the data of a transaction takes of the log, at most, as far as it can be told without what is stored:
    /// how much clones take cannot.
    pub fn logged_data_bytes(&self, txn: &Transaction) -> u64 {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let part_of_block = |at: u64| if at.is_multiple_of(BLOCK) { 0 } else { BLOCK };
        let ends = |op: &Op| match op {
            Op::Write { offset, data, .. } => {
                let end = offset.saturating_add(data.len() as u64);
                CHANGE_ROW_BYTES + part_of_block(*offset) + part_of_block(end)
            }
            Op::Zero { .. } | Op::Truncate { .. } | Op::CloneRange { .. } => {
                CHANGE_ROW_BYTES + 2 * BLOCK
            }
            _ => 0,
        };
        let data = txn.data_bytes();
        let short = if self.is_much(data) { 0 } else { data };
        let rows = data / BLOCK * BLOCK_ROW_BYTES;
        short + rows + txn.ops().iter().map(ends).sum::<u64>()
    }

    fn record_of<'a>(&self, outcome: &'a Outcome, txn: &Transaction) -> Record<'a> {
        Record {
            txn: self.txns.next(),
            sequencer: txn.sequencer,
            next_id: outcome.next_id,
            delta: outcome.delta,
            account: txn.account,
            counts: outcome.counts,
            changes: Cow::Borrowed(&outcome.changes),
            taken: Cow::Borrowed(&outcome.taken),
            freed: Cow::Borrowed(&outcome.freed),
            blocks: outcome.blocks.sums().collect(),
            direct: outcome.direct_records(),
        }
    }

    fn busy(&mut self) -> SubmitError {
        self.counters.submit_busy += 1;
        self.blocked = true;
        SubmitError::Busy
    }

    fn no_space(&mut self, later: bool) -> SubmitError {
        if later {
            self.pressure = true;
            return self.busy();
        }
        // Some give up, others wait until something was removed.
        self.blocked = true;
        self.counters.submit_no_space += 1;
        SubmitError::NoSpace
    }

    fn refuse(&mut self, why: PlanError) -> SubmitError {
        match why {
            PlanError::Invalid(why) => SubmitError::Invalid(why),
            PlanError::Conflict => self.busy(),
            PlanError::NoSpace { short } => {
                let later = self.give_up_stretches() || self.will_have(short);
                self.no_space(later)
            }
            PlanError::Miss(wants) => {
                self.counters.submit_misses += 1;
                let miss: Miss = self.miss(wants);
                SubmitError::Miss(miss)
            }
        }
    }

    /// Whether writers are so far ahead that this one has to wait.
    fn must_wait(&mut self, data_bytes: u64) -> bool {
        let flying = self.direct.bytes();
        if flying > 0 && flying + data_bytes > self.config.direct_inflight_bytes {
            return true;
        }
        self.holds_writers()
    }

    fn check_room(
        &mut self,
        outcome: &Outcome,
        record_bytes: usize,
        may_use_reserve: bool,
    ) -> Result<(), SubmitError> {
        let max = match may_use_reserve {
            true => self.wal.max_txn_blocks(),
            false => self.wal.max_first_txn_blocks(),
        };
        match self.wal.fits(record_bytes, outcome.blocks.len(), max) {
            Fit::Yes => {}
            Fit::Later => {
                self.pressure = true;
                return Err(self.busy());
            }
            Fit::Never { blocks } => {
                return Err(SubmitError::Invalid(Invalid::TooLarge { blocks, max }));
            }
        }
        let frees = outcome.delta.objects < 0 || !outcome.freed.is_empty();
        let purpose = match (may_use_reserve, outcome.taken.is_empty() && frees) {
            (false, _) => Purpose::Ordinary,
            (true, false) => Purpose::Upkeep,
            (true, true) => Purpose::Removal,
        };
        match self.room_for(&outcome.changes, purpose) {
            Room::Yes => Ok(()),
            Room::Later => Err(self.no_space(true)),
            Room::No => Err(self.no_space(false)),
        }
    }

    fn undo(&mut self, taken: &[Run]) {
        for run in taken {
            self.alloc.undo(*run);
        }
    }

    /// Makes an outcome part of the store.
    fn take(&mut self, txn: &Transaction, outcome: Outcome, record: &[u8]) -> TxnId {
        let data = DirectWrites::completions(&outcome.direct);
        let id = self.txns.begin(txn.sequencer, data, self.now);
        self.counters.transactions += 1;
        self.counters.overwrites_unseen += outcome.unseen;
        self.counters.logged_blocks += outcome.blocks.len() as u64;
        self.dirty_since.get_or_insert(self.now);
        self.next_id = outcome.next_id;
        self.totals.add(outcome.delta);
        self.accounts.add(txn.account, outcome.counts);
        if self.wal.has_pending() {
            for run in &outcome.freed {
                (run.start..run.end()).for_each(|place| self.wal.forget(place, id));
            }
        }
        for run in outcome.freed {
            self.alloc.free_data(run, id);
        }
        let end = self.wal.end_at();
        self.wal.append(id, record, outcome.blocks);
        self.pace.spend(self.wal.end_at() - end);
        for (object, onode) in outcome.onodes {
            self.onodes.put(object, Known { onode, txn: id });
        }
        self.shards.absorb(&outcome.changes, id);
        self.outlines.absorb(&outcome.changes);
        let absorbed = self.rows.absorb(outcome.changes, id);
        absorbed.expect("a plan patches rows that are there");
        self.direct.add(id, outcome.direct);
        TxnId(id)
    }
}

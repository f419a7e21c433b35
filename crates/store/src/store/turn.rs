//! The turn: completions in, group commit and a slice of background work out.

use super::inflight::DATA;
use super::memory::STEP_BYTES;
use super::{Ended, Life, Store, StoreEvent, TxnId};
use crate::memtable::Garbage;
use crate::store::txns::Decided;
use bytes::Bytes;
use io::disk::{DiskDone, DiskError, WriteMode};
use io::{BLOCK_BYTES, Effects, Now};
use smallvec::{SmallVec, smallvec};
use std::time::Duration;
use types::Mono;

/// Freed runs that are looked at in one turn.
const RELEASES_PER_TURN: usize = 256;
/// Rows of an applied memtable that are dropped in one turn.
const GARBAGE_PER_TURN: usize = 128;
/// Shortest run that is worth a discard.
const DISCARD_BLOCKS: u32 = 16;
/// Discards in flight at most: some devices do few in a second, and flushes would wait behind them.
const DISCARDS_IN_FLIGHT: usize = 16;

impl Store {
    /// Takes in the end of a disk operation. False when it is not one of the store's.
    pub fn handle(&mut self, now: Now, done: DiskDone, fx: &mut Effects) -> bool {
        self.now = now.mono;
        let Some(what) = self.io.done(done.token) else { return false };
        if self.life == Life::Dead {
            return true;
        }
        match what {
            Ended::Batch { seq } => self.batch_written(seq, done.result),
            Ended::Direct { start } => self.direct_written(start, done.result),
            Ended::DirectFlush { txns } => self.direct_flushed(txns, done.result),
            Ended::Fetch { id, part } => self.fetched(id, part, done.result),
            Ended::CheckpointRead { ptrs } => self.checkpoint_read(ptrs, done.result, fx),
            Ended::CheckpointWrite { blocks } => self.checkpoint_written(blocks, done.result),
            Ended::InPlaceRead { group, index, seq } => {
                self.in_place_read(group, index, seq, done.result, fx);
            }
            Ended::InPlaceWrite { group } => self.in_place_written(group, done.result),
            Ended::Reload { block } => self.reload_read(block, done.result, fx),
            Ended::CommitFlush => self.commit_flushed(done.result, fx),
            Ended::CommitSuper => self.commit_written(done.result),
            Ended::Discard { run } => {
                self.discarding -= 1;
                self.work_left |= self.alloc.quarantine_len() > 0;
                self.alloc.reuse(run);
                self.unblock();
            }
        }
        true
    }

    /// Ends the turn: writes what was submitted, and goes on with background work.
    pub fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        self.now = now.mono;
        if matches!(self.life, Life::Dead | Life::Closed) {
            return;
        }
        self.work_left = false;
        self.rows.close_gaps();
        self.note_placed();
        self.check_due();
        self.step_memory();
        self.issue_direct(fx);
        self.issue_batches(fx);
        self.release(fx);
        if !self.garbage.is_empty() {
            self.garbage.shrink(GARBAGE_PER_TURN);
        }
        self.step_writeback(fx);
        self.step_checkpoint(fx);
        self.step_commit(fx);
        self.give_credit();
        if self.outlines.bytes() > 0 || self.blocks.bytes() > 0 {
            self.share_memory();
            self.work_left |= !self.blocks.give_back(STEP_BYTES);
        }
        self.let_go();
        if self.mark_wanted {
            // What the steps above want recorded should not wait for another turn.
            self.issue_batches(fx);
        }
        self.finish_closing();
    }

    /// When [`Store::end_turn`] must be called if nothing else happens.
    pub fn next_deadline(&self) -> Option<Mono> {
        if matches!(self.life, Life::Dead | Life::Closed) {
            return None;
        }
        if self.work_left || !self.garbage.is_empty() {
            return Some(Mono(0));
        }
        let interval = Duration::from_millis(self.config.checkpoint_interval_ms);
        let dirty = self.dirty_since.map(|since| since.after(interval));
        let mark = self.mark_due.filter(|_| self.lets_go() && self.may_mark(true));
        [mark, dirty].into_iter().flatten().min()
    }

    /// Starts putting everything in place and into the tree when the store has been dirty long
    /// enough.
    fn check_due(&mut self) {
        let interval = Duration::from_millis(self.config.checkpoint_interval_ms);
        let due = self.dirty_since.is_some_and(|since| since.after(interval) <= self.now);
        if due || self.flush_wanted {
            self.dirty_since = None;
            self.flush_wanted = false;
            self.checkpoint_wanted = true;
            self.drain_until = self.wal.end().seq + u64::from(self.wal.has_open());
        }
    }

    /// Asks the store to close: no more transactions are taken, and when all is in place
    /// [`StoreEvent::Unmounted`] comes.
    pub fn unmount(&mut self) {
        if self.life == Life::Running {
            self.life = Life::Closing;
            self.work_left = true;
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.life == Life::Closing
    }

    /// Asks for everything to be put in place and applied to the tree soon.
    pub fn flush_soon(&mut self) {
        self.flush_wanted = true;
        self.work_left = true;
    }

    /// Whether everything is durable, in place and in the tree, and nothing is under way: what
    /// [`Store::flush_soon`] comes to when no more is submitted.
    pub fn is_at_rest(&self) -> bool {
        let settled = self.txns.in_flight() == 0 && !self.wal.has_pending();
        let in_tree = self.rows.active.is_empty() && self.rows.frozen.is_none();
        settled && in_tree && self.checkpoint.is_none() && self.commit.is_none()
    }

    /// Whether a batch can be closed now.
    fn lets_go(&self) -> bool {
        let (blocks, writing) = (self.wal.open_blocks(), self.wal.writing());
        self.gather.lets_go(blocks, writing, &self.config)
    }

    /// Whether somebody wants the log to be told what is decided, though it is told nothing else.
    fn wants_mark(&self) -> bool {
        let due = self.mark_due.is_some_and(|due| due <= self.now);
        let unannounced = self.txns.decided() > self.announced;
        unannounced && (due || self.mark_wanted) && self.may_mark(due)
    }

    /// Whether it is worth a block of the log. What is on its way is decided one by one, and each of them
    /// could be told: so not before at least half of it is, or a checkpoint waits for just that, or it is
    /// `due`. Where the log is full the last block is for telling of the last one, or whoever waits for it
    /// would wait for ever.
    fn may_mark(&self, due: bool) -> bool {
        let room = self.wal.room_for_marks();
        let (decided, left) = (self.txns.decided(), self.txns.in_flight() as u64);
        if left == 0 || room == 0 {
            return room > 0;
        }
        let half = decided - self.announced >= left;
        let is_full = self.wal.used_blocks() >= self.wal.usable_blocks();
        let waits = || self.checkpoint.as_ref().is_some_and(|c| c.waits_for(decided));
        room > 1 && (half || (due && !is_full) || waits())
    }

    fn issue_direct(&mut self, fx: &mut Effects) {
        if self.direct.is_quiet() {
            return;
        }
        for write in self.direct.take_queue() {
            self.counters.direct_writes += 1;
            self.counters.direct_bytes += write.data.len() as u64;
            let what = Ended::Direct { start: write.start };
            let mode = if write.durable { WriteMode::Durable } else { WriteMode::Plain };
            self.write_data(write.start, smallvec![write.data], mode, what, fx);
        }
        if self.direct.wants_flush() {
            self.counters.direct_flushes += 1;
            let txns = self.direct.take_unflushed();
            self.io.flush(fx, DATA, Ended::DirectFlush { txns });
        }
    }

    /// Writes objects' data. What was known of these blocks ends.
    pub(super) fn write_data(
        &mut self,
        start: u64,
        data: SmallVec<[Bytes; 4]>,
        mode: WriteMode,
        what: Ended,
        fx: &mut Effects,
    ) {
        let bytes: usize = data.iter().map(Bytes::len).sum();
        self.blocks.forget(start, (bytes / BLOCK_BYTES) as u64);
        self.io.write(fx, (DATA, start), data, mode, what);
    }

    /// Writes the turn's batch, or lets it grow until one that is in flight is done.
    fn issue_batches(&mut self, fx: &mut Effects) {
        let max = self.config.wal_inflight_batches.max(1);
        if (self.wal.has_open() || self.wants_mark()) && self.lets_go() {
            self.wal.seal();
        }
        while self.wal.writing() < max {
            let (decided, generation) = (self.txns.decided(), self.sb.generation);
            let Some(issue) = self.wal.issue(decided, generation) else { break };
            self.announced = decided;
            self.mark_wanted = false;
            self.mark_due = None;
            self.counters.log_batches += 1;
            self.gather.issued(issue.seq, self.now);
            let dev = self.log_dev();
            for (block, pieces) in issue.writes {
                self.counters.log_bytes += pieces.iter().map(|p| p.len() as u64).sum::<u64>();
                let at = (dev, self.wal.place.base + block);
                let what = Ended::Batch { seq: issue.seq };
                self.io.write(fx, at, pieces, WriteMode::Durable, what);
            }
        }
    }

    fn batch_written(&mut self, seq: u64, result: Result<Bytes, DiskError>) {
        if !self.must("writing to the log", result) {
            return;
        }
        self.gather.written(seq, self.now);
        let mut decided = Vec::new();
        for txn in self.wal.written(seq) {
            self.txns.logged(txn, &mut decided);
        }
        self.wal.settle_replaced();
        self.work_left = true;
        self.decided(decided);
    }

    fn direct_written(&mut self, start: u64, result: Result<Bytes, DiskError>) {
        if !self.must("writing data", result) {
            return;
        }
        let mut decided = Vec::new();
        if let Some(txn) = self.direct.done(start) {
            self.txns.data_done(txn, &mut decided);
        }
        self.decided(decided);
        self.unblock();
    }

    fn direct_flushed(&mut self, txns: Vec<u64>, result: Result<Bytes, DiskError>) {
        if !self.must("flushing data", result) {
            return;
        }
        let mut decided = Vec::new();
        for txn in txns {
            self.txns.data_done(txn, &mut decided);
        }
        self.decided(decided);
    }

    fn decided(&mut self, decided: Vec<Decided>) {
        if decided.is_empty() {
            return;
        }
        for d in &decided {
            self.counters.durable += 1;
            self.counters.durable_ns += self.now.since(d.submitted).as_nanos() as u64;
        }
        let txns = decided.into_iter().map(|d| TxnId(d.txn)).collect();
        self.events.push_back(StoreEvent::Durable { txns });
        if self.txns.decided() > self.announced && self.mark_due.is_none() {
            let interval = Duration::from_millis(self.config.mark_interval_ms);
            self.mark_due = Some(self.now.after(interval));
        }
        self.unblock();
    }

    /// Takes what was freed out of quarantine. True when there was something.
    fn end_quarantine(&mut self, fx: &mut Effects) -> bool {
        let mut freed = false;
        if self.alloc.quarantine_len() == 0 {
            return freed;
        }
        for _ in 0..RELEASES_PER_TURN {
            // Whoever waits for space does not wait for discards.
            let discards = self.config.discard && !self.pressure;
            if discards && self.discarding >= DISCARDS_IN_FLIGHT {
                return freed;
            }
            let io = &self.io;
            let busy = |run: crate::alloc::Run| !io.is_idle(run.start, u64::from(run.len));
            let Some(run) = self.alloc.pop_quarantine(self.wal.recorded(), busy) else {
                return freed;
            };
            freed = true;
            if discards && run.len >= DISCARD_BLOCKS {
                self.discarding += 1;
                self.counters.discarded_bytes += u64::from(run.len) * BLOCK_BYTES as u64;
                self.io.discard(fx, run.start, u64::from(run.len), Ended::Discard { run });
            } else {
                self.alloc.reuse(run);
            }
        }
        self.work_left |= self.alloc.has_releasable(self.wal.recorded());
        freed
    }

    /// Gives blocks back that can be used again.
    fn release(&mut self, fx: &mut Effects) {
        let mut freed = self.end_quarantine(fx);
        for _ in 0..RELEASES_PER_TURN {
            let Some(ptr) = self.old_pages.front().copied() else { break };
            if !self.io.is_idle(ptr.block, u64::from(ptr.blocks)) {
                break;
            }
            freed = true;
            self.old_pages.pop_front();
            self.old_page_blocks -= u64::from(ptr.blocks);
            self.rows.pages.forget(ptr.block);
            self.alloc.free_page(ptr.block, ptr.blocks);
        }
        self.work_left |= freed && !self.old_pages.is_empty();
        if freed {
            self.epoch += 1;
            self.unblock();
        }
        let unrecorded = self.wal.recorded() < self.txns.decided();
        let waiting = self.pressure && self.alloc.quarantined() > 0;
        if unrecorded && (waiting || self.is_closing()) {
            self.mark_wanted = true;
        }
        self.release_log();
    }

    fn finish_closing(&mut self) {
        if !self.is_closing() || !self.sb.clean || self.io.in_flight() > 0 {
            return;
        }
        self.garbage = Garbage::default();
        self.life = Life::Closed;
        self.events.push_back(StoreEvent::Unmounted);
    }
}

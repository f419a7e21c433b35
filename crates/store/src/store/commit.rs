//! Commits: bringing into force what was written.
//!
//! Everything the new superblock relies on has been written when a commit begins: the nodes of a
//! finished checkpoint, and the blocks of the batches it says are in place. A flush makes that
//! durable, then both copies of the older superblock slot are overwritten, durably. Only then is the
//! old tree given up, and the log that is no more needed.

use super::checkpoint::Checkpoint;
use super::inflight::DATA;
use super::{Ended, Store};
use crate::superblock::{LogPos, Superblock, place, places_of};
use bytes::Bytes;
use io::Effects;
use io::disk::{DiskError, WriteMode};
use smallvec::smallvec;
use types::testing::{Bug, planted};

/// Batches of the log that are given up in one turn. A large log has a hundred thousand, which takes tens of
/// milliseconds.
const BATCHES_PER_TURN: usize = 256;

/// A running commit.
pub(crate) struct Commit {
    next: Superblock,
    checkpoint: Option<Checkpoint>,
    writes_left: usize,
}

impl Commit {
    /// The checkpoint whose tree is being committed.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }
}

fn earlier(a: LogPos, b: LogPos) -> LogPos {
    if a.seq <= b.seq { a } else { b }
}

impl Store {
    /// Begins a commit when there is something to commit.
    pub(super) fn step_commit(&mut self, fx: &mut Effects) {
        if self.commit.is_some() {
            return;
        }
        let ready = self.checkpoint.as_ref().is_some_and(Checkpoint::is_ready);
        let round_done = std::mem::take(&mut self.round_done);
        let crowded = self.wal.used_blocks() >= self.low_mark();
        if !ready && !round_done && !crowded {
            return;
        }
        let blocks = self.wal.blocks_pos();
        let frees_log = earlier(self.sb.rows, blocks).seq > self.needed_log().seq;
        if !ready && !frees_log {
            return;
        }
        let mut next = self.sb.clone();
        next.generation += 1;
        next.life = self.wal.life;
        next.blocks = blocks;
        next.durable_seq = self.wal.durable_seq();
        if let Some(c) = self.checkpoint.as_ref().filter(|_| ready) {
            (next.root, next.root_level) = (c.apply.new.root, c.apply.new.level);
            (next.rows, next.totals) = (c.rows, c.totals);
            (next.next_id, next.next_txn) = (c.next_id, c.next_txn);
        }
        let end = self.wal.end();
        let all = next.rows == end && next.blocks == end && !self.wal.has_open();
        next.clean = self.is_closing() && all && self.txns.in_flight() == 0;
        let checkpoint = if ready { self.checkpoint.take() } else { None };
        self.commit = Some(Commit { next, checkpoint, writes_left: 0 });
        self.io.flush(fx, DATA, Ended::CommitFlush);
    }

    /// Everything the commit relies on is durable.
    pub(super) fn commit_flushed(&mut self, result: Result<Bytes, DiskError>, fx: &mut Effects) {
        if !self.must("flushing before a superblock", result) {
            return;
        }
        let commit = self.commit.as_mut().expect("a commit is running");
        if planted(Bug::UnflushedCounted) {
            commit.next.blocks = self.wal.blocks_pos();
        }
        for index in places_of(commit.next.generation) {
            commit.writes_left += 1;
            let at = (DATA, place(index, commit.next.total_blocks));
            let data = smallvec![commit.next.encode(index)];
            self.io.write(fx, at, data, WriteMode::Durable, Ended::CommitSuper);
        }
    }

    /// A copy of the superblock is durable.
    pub(super) fn commit_written(&mut self, result: Result<Bytes, DiskError>) {
        if !self.must("writing a superblock", result) {
            return;
        }
        let commit = self.commit.as_mut().expect("a commit is running");
        commit.writes_left -= 1;
        if commit.writes_left > 0 {
            return;
        }
        let commit = self.commit.take().expect("a commit is running");
        self.sb = commit.next;
        self.counters.superblocks += 1;
        if let Some(checkpoint) = commit.checkpoint {
            self.finish_checkpoint(checkpoint);
        }
        self.pressure = false;
        self.work_left = true;
        self.release_log();
        self.unblock();
    }

    /// The part of the log that the superblock does not need ends here.
    fn needed_log(&self) -> LogPos {
        earlier(self.sb.rows, self.sb.blocks)
    }

    /// Gives up some of the part of the log that the superblock does not need, unless it is being read.
    pub(super) fn release_log(&mut self) {
        let to = self.needed_log();
        if to.seq <= self.wal.tail().seq {
            return;
        }
        let released = self.wal.release(to, BATCHES_PER_TURN);
        if released > 0 {
            self.work_left |= released == BATCHES_PER_TURN;
            self.epoch += 1;
            self.unblock();
        }
    }
}

//! How fast writers may go.
//!
//! A log takes a burst at its own speed. When it is mostly full, writers must come down to the speed
//! at which it is emptied: that of the disk behind it. If they were stopped when it is full, and let
//! go when a commit has freed a large part of it, they would stand still for seconds; so they are
//! let through one by one as the work that will free the log goes on.
//!
//! What is [`Store::kept_log`] falls steadily: it counts the part of the log that a running round or
//! checkpoint has done with as given up, though only a commit really gives it up. Up to `low` writers
//! are free. From there on they get *credit* for each block that goes: several blocks for one at
//! first, fewer and fewer towards `high`, where it is one for one. So the speed of a burst falls
//! smoothly to the speed of the disk, and the log is never quite full.

use super::inflight::DATA;
use super::{Life, Store, StoreEvent};
use io::BLOCK_BYTES;

/// Memory that a block of the log takes beside its content, at most: where it is to go, and half of what is
/// known of a batch, which has a block besides.
const INDEX_BYTES: u64 = 192;
/// Memory for that, whatever is configured.
const LEAST_INDEX_BYTES: u64 = 16 << 20;

/// How much of a log of `blocks` is used: of a large one on a device of its own no more than has room in
/// memory, of which there are `budget` bytes.
fn used_part(blocks: u64, budget: usize) -> u64 {
    blocks.min((budget as u64).max(LEAST_INDEX_BYTES) / INDEX_BYTES)
}

/// Credit is counted in this part of a block.
const PER_BLOCK: i64 = 16;
/// Blocks that may be logged for one that goes, just above `low`.
const MOST_PER_BLOCK: i64 = 8;
/// Writers who were stopped go on when there is credit for so many blocks: each for himself would
/// cost a batch each.
const OPEN_BLOCKS: i64 = 16;
/// Credit does not grow beyond so many blocks.
const MOST_BLOCKS: i64 = 256;

/// What writers may do while the log is mostly full.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// In parts of a block; below 0 after a large transaction.
    credit: i64,
    /// Writers wait for credit.
    closed: bool,
    /// Up to where the endless log is done with, as far as credit was given.
    given: u64,
}

impl Pace {
    /// A writer used so many blocks of the log.
    pub fn spend(&mut self, blocks: u64) {
        self.credit -= (blocks as i64).saturating_mul(PER_BLOCK);
    }

    /// The log is done with up to `to`; for each block that is new, `parts` of credit.
    fn earn(&mut self, to: u64, parts: i64) {
        let blocks = to.saturating_sub(self.given);
        self.given = self.given.max(to);
        let more = i64::try_from(blocks).unwrap_or(i64::MAX).saturating_mul(parts);
        self.credit = self.credit.saturating_add(more).min(MOST_BLOCKS * PER_BLOCK);
    }

    /// Whether there is credit. Who was stopped waits until there is some for several.
    fn may_go(&mut self) -> bool {
        self.closed = match self.closed {
            true => self.credit < OPEN_BLOCKS * PER_BLOCK,
            false => self.credit <= 0,
        };
        !self.closed
    }
}

impl Store {
    /// Whether whoever has something to write has to wait, whatever it is. If so,
    /// [`StoreEvent::Writable`] follows.
    pub fn holds_writers(&mut self) -> bool {
        let holds = self.life == Life::Running && !self.may_add();
        self.held |= holds;
        holds
    }

    /// Tells who was held that it is over, if it is.
    pub(super) fn let_go(&mut self) {
        if self.held && self.may_add() {
            self.held = false;
            self.events.push_back(StoreEvent::Writable);
            // What is submitted behind the end of this turn must not wait for chance to bring the next.
            self.work_left = true;
        }
    }

    /// Whether rows and log have room for one more writer.
    fn may_add(&mut self) -> bool {
        self.may_add_rows() && self.may_add_log() && self.may_add_content()
    }

    /// Paces writers by what of the log's content has to be kept in memory. Only a log on a device of its
    /// own takes more than that in a burst: it is the faster one, and reading back what has left memory is
    /// not in the way of what is written to places. On one device nothing would be gained by it.
    fn may_add_content(&mut self) -> bool {
        if self.wal.place.dev != DATA.0 {
            return true;
        }
        let (kept, budget) = (self.wal.cached_bytes(), self.wal.budget());
        let most = budget - budget / 16;
        // Who was held goes on with others, and long before nobody empties memory any more.
        let open = (OPEN_BLOCKS as usize * BLOCK_BYTES).min(budget / 16);
        kept == 0 || kept + if self.held { open } else { 0 } < most
    }

    /// Paces writers by the progress of the running checkpoint, so that they slow down instead of
    /// coming to a halt when the memtable is full.
    pub(super) fn may_add_rows(&mut self) -> bool {
        let (limit, bytes) = (self.rows_limit, self.rows.active.bytes());
        match self.running_checkpoint() {
            _ if bytes < limit / 4 => true,
            Some(checkpoint) => bytes < limit / 4 + checkpoint.progress(limit - limit / 4),
            None => {
                if bytes >= self.config.memtable_bytes / 2 {
                    self.pressure = true;
                }
                bytes < limit + limit / 2
            }
        }
    }

    /// Up to where the endless log is done with: what is before it, the next commits will give up.
    fn log_done(&mut self) -> u64 {
        let blocks = self.wal.blocks_pos().at;
        let blocks = self.writeback.progress(blocks);
        let from = self.sb.rows.at;
        let rows = match self.running_checkpoint() {
            Some(c) => from + c.progress((c.rows.at - from.min(c.rows.at)) as usize) as u64,
            None => from,
        };
        blocks.min(rows).max(self.wal.tail().at)
    }

    /// Blocks of the log that are used, as a rule.
    pub(super) fn log_blocks(&self) -> u64 {
        used_part(self.wal.place.blocks, self.wal.budget())
    }

    /// From how full a log on writers need credit.
    pub(super) fn low_mark(&self) -> u64 {
        self.marks().0
    }

    /// The same, and where they get no more than goes.
    fn marks(&self) -> (u64, u64) {
        let usable = used_part(self.wal.usable_blocks(), self.wal.budget());
        (usable - usable / 4, usable - usable / 8)
    }

    /// Blocks of the log that are needed, but for those that what goes on has done with.
    fn kept_log(&mut self) -> u64 {
        self.wal.end_at() - self.log_done()
    }

    /// Gives credit for what was done since the last time. Below the low mark nobody needs any.
    pub(super) fn give_credit(&mut self) {
        let (low, high) = self.marks();
        if self.wal.used_blocks() < low {
            return;
        }
        let kept = self.kept_log();
        let room = high.saturating_sub(kept) as i64;
        let span = (high - low).max(1) as i64;
        let parts = PER_BLOCK + (MOST_PER_BLOCK - 1) * PER_BLOCK * room.min(span) / span;
        // Beyond the high mark less comes in than goes out.
        let parts = if kept > high { PER_BLOCK / 2 } else { parts };
        let done = self.log_done();
        self.pace.earn(done, parts);
    }

    /// Paces writers by what becomes of the log once it is mostly used.
    pub(super) fn may_add_log(&mut self) -> bool {
        let (low, _) = self.marks();
        if self.wal.used_blocks() < low || self.kept_log() < low {
            self.pace.closed = false;
            self.pace.credit = self.pace.credit.max(0);
            return true;
        }
        self.pace.may_go()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_large_log_as_much_is_used_as_has_room_in_memory() {
        assert_eq!(used_part(1000, 0), 1000);
        assert_eq!(used_part(1 << 18, 64 << 20), 1 << 18);
        // 50 GB.
        assert_eq!(used_part(12_207_031, 64 << 20), 349_525);
        assert_eq!(used_part(12_207_031, 4 << 30), 12_207_031);
    }

    #[test]
    fn writers_who_were_stopped_go_on_together() {
        let mut pace = Pace::default();
        pace.earn(2, PER_BLOCK);
        assert!(pace.may_go());
        pace.spend(3);
        assert!(!pace.may_go());
        pace.earn(2 + OPEN_BLOCKS as u64, PER_BLOCK);
        assert!(!pace.may_go(), "a block is still owed");
        pace.earn(3 + OPEN_BLOCKS as u64, PER_BLOCK);
        assert!(pace.may_go());
        pace.spend(OPEN_BLOCKS as u64 - 1);
        assert!(pace.may_go());
        // What was given is not given again, and there is a bound to it.
        pace.earn(1, PER_BLOCK);
        assert_eq!(pace.credit, PER_BLOCK);
        pace.earn(u64::MAX, 8 * PER_BLOCK);
        assert_eq!(pace.credit, MOST_BLOCKS * PER_BLOCK);
    }
}

//! Reads of much data wait while much is being read, and while their client does not take what it
//! asked for before. Requests for data are small: a single receive can bring hundreds of them.
//!
//! Data that is read is bounded from the fetch to the answer by [`LongReads::bytes`], and from there on by
//! what may wait to be sent to each client ([`wire::messenger::Policy::send_limit_bytes`]).
//!
//! A client that is stuck must not be in the way of others: a read goes on when a write of its object
//! waits for it. Who waits for whom on an object stays as it was: a read sees nothing of a later write.

use crate::daemon::Daemon;
use crate::host::OpId;
use crate::op::Origin;
use crate::tracker::Mark;
use io::Effects;
use std::collections::VecDeque;
use store::ReadSet;
use types::HObject;
use types::testing::{Probe, hit};

/// Reads of less are let through: in the memory of one of this length stand many of them.
const LONG_BYTES: usize = 64 << 10;

/// Of the memory for requests, one part of so many is for data that is being read.
const PART: usize = 4;

/// A read that waits.
#[derive(Debug)]
struct Waiting {
    op: OpId,
    attempt: u32,
    bytes: usize,
    head: HObject,
    /// A write waits for it.
    is_in_the_way: bool,
}

/// Long reads of clients: those under way, and those that wait.
#[derive(Debug, Default)]
pub(crate) struct LongReads {
    /// Bytes of those under way.
    pub bytes: usize,
    waiting: VecDeque<Waiting>,
    /// One of those that wait is the next one as soon as there is room.
    lacks_room: bool,
    /// This one goes on in any case.
    let_through: Option<OpId>,
    /// Those that wait are to be looked at.
    pub is_due: bool,
}

impl LongReads {
    /// So much was read, or is not read after all.
    pub fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.is_due |= bytes > 0;
    }

    /// A write waits for the reads of this object.
    pub fn make_way(&mut self, head: &HObject) {
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.head == *head) {
            waiting.is_in_the_way = true;
            self.is_due = true;
        }
    }

    /// One that is longer than all that may be goes alone.
    fn has_room(&self, bytes: usize, limit: usize) -> bool {
        !self.lacks_room && (self.bytes == 0 || self.bytes + bytes <= limit / PART)
    }
}

impl Daemon {
    /// Whether a read that must fetch so much goes on at once. If not, it is run again when it may.
    pub(crate) fn may_fetch(&mut self, id: OpId, bytes: usize) -> bool {
        if bytes < LONG_BYTES {
            return true;
        }
        let Some(op) = self.ops.get_mut(&id).filter(|op| op.origin == Origin::Client) else {
            return true;
        };
        let reads = &mut self.long_reads;
        let backed_up = self.msgr.is_backed_up(op.link);
        let has_room = || reads.has_room(bytes, self.limits.request_bytes);
        if reads.let_through == Some(id) || (!backed_up && has_room()) {
            op.reading_bytes += bytes;
            reads.bytes += bytes;
            return true;
        }
        hit(Probe::LongReadWaited);
        op.trace.mark(self.now.mono, Mark::WaitingForMemory);
        reads.lacks_room |= !backed_up;
        let (attempt, head) = (op.attempt, op.head());
        reads.waiting.push_back(Waiting { op: id, attempt, bytes, head, is_in_the_way: false });
        false
    }

    /// Runs those that wait and may go on, in the order they came.
    pub(crate) fn start_long_reads(&mut self, fx: &mut Effects) {
        while std::mem::take(&mut self.long_reads.is_due) {
            self.long_reads.lacks_room = false;
            let mut at = 0;
            // They stay in the line meanwhile: what is run may find one in the way.
            while let Some(waiting) = self.long_reads.waiting.get(at) {
                let Waiting { op: id, attempt, bytes, is_in_the_way, .. } = *waiting;
                let has_room = self.long_reads.has_room(bytes, self.limits.request_bytes);
                // One that is over, or began anew, waits no more.
                let op = self.ops.get(&id).filter(|op| op.attempt == attempt);
                let backed_up = op.is_some_and(|op| self.msgr.is_backed_up(op.link));
                if op.is_some() && !is_in_the_way && (backed_up || !has_room) {
                    self.long_reads.lacks_room |= !backed_up;
                    at += 1;
                    continue;
                }
                self.long_reads.waiting.remove(at);
                // It finds out anew what it lacks: that may be elsewhere by now.
                self.long_reads.let_through = Some(id);
                self.op_fetched(id, attempt, Ok(ReadSet::new()), fx);
                self.long_reads.let_through = None;
            }
        }
    }
}

//! Reads of much data wait while much is being read, and while their client does not take what it
//! asked for before. Requests for data are small: a single receive can bring hundreds of them.
//!
//! Data that is read is bounded from the fetch to the answer by [`LongReads::bytes`], and from there on by
//! what may wait to be sent to each client ([`wire::messenger::Policy::send_limit_bytes`]).
//!
//! A client that is stuck must not be in the way of others: writes of the same object pass its reads, and
//! these see what was written. They do not pass those of their own client, which relies on the order; nor
//! one that may go on as soon as writes that passed it are committed.

use crate::daemon::Daemon;
use crate::host::OpId;
use crate::op::Origin;
use crate::tracker::Mark;
use io::Effects;
use std::collections::VecDeque;
use store::ReadSet;
use types::HObject;
use types::testing::{Probe, hit};
use wire::LinkId;

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
    link: LinkId,
    /// It goes on as soon as nothing of its object is being written, which nobody passes any more.
    is_next: bool,
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

    /// A client writes an object: its own reads of it that wait go first. How many no write may pass
    /// any more.
    pub fn make_way(&mut self, head: &HObject, link: LinkId) -> u32 {
        let own = |w: &&mut Waiting| w.head == *head && w.link == link && !w.is_next;
        let mut count = 0;
        for waiting in self.waiting.iter_mut().filter(own) {
            waiting.is_next = true;
            count += 1;
        }
        self.is_due |= count > 0;
        count
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
        let (attempt, head, link) = (op.attempt, op.head(), op.link);
        let pgid = op.pgid();
        if let Some(queue) = self.queue_of(pgid, &head) {
            queue.parked += 1;
        }
        let waiting = Waiting { op: id, attempt, bytes, head, link, is_next: false };
        self.long_reads.waiting.push_back(waiting);
        false
    }

    /// Runs those that wait and may go on, in the order they came.
    pub(crate) fn start_long_reads(&mut self, fx: &mut Effects) {
        while std::mem::take(&mut self.long_reads.is_due) {
            self.long_reads.lacks_room = false;
            let mut at = 0;
            // They stay in the line meanwhile: what is run may find one in the way.
            while let Some(waiting) = self.long_reads.waiting.get(at) {
                let (id, attempt) = (waiting.op, waiting.attempt);
                if !self.may_go_on(at) {
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

    /// Whether one that waits need wait no longer.
    fn may_go_on(&mut self, at: usize) -> bool {
        let Some(waiting) = self.long_reads.waiting.get(at) else { return false };
        let (bytes, was_next) = (waiting.bytes, waiting.is_next);
        let attempt = waiting.attempt;
        let Some(op) = self.ops.get_mut(&waiting.op).filter(|op| op.attempt == attempt) else {
            // It is over, or began anew, and waits no more.
            return true;
        };
        let backed_up = self.msgr.is_backed_up(op.link);
        if !was_next && (backed_up || !self.long_reads.has_room(bytes, self.limits.request_bytes)) {
            self.long_reads.lacks_room |= !backed_up;
            return false;
        }
        let host = self.pgs.get_mut(&op.pgid());
        let Some(queue) = host.and_then(|host| host.objects.get_mut(&waiting.head)) else {
            return true;
        };
        let is_written = queue.writing > 0;
        if !was_next {
            queue.parked -= 1;
        }
        if is_written && op.reading_bytes == 0 {
            // What is its turn must not be taken by others meanwhile.
            op.reading_bytes = bytes;
            self.long_reads.bytes += bytes;
        }
        if let Some(waiting) = self.long_reads.waiting.get_mut(at) {
            waiting.is_next = true;
        }
        !is_written
    }
}

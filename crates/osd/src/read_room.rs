//! What clients read waits while much is being read, and while they do not take what they asked for
//! before. Requests for data are small: a single receive can bring thousands of them.
//!
//! Data that is read is bounded from the fetch to the answer by [`ReadRoom::bytes`], long reads and short ones
//! apart so that neither wait for the other; what is answered without a fetch by [`TURN_BYTES`]; and from
//! there on by what may wait to be sent to each client ([`wire::messenger::Policy::send_limit_bytes`]). The
//! runner does not receive from a client for which more waits.
//!
//! A client that is stuck must not be in the way of others: writes of the same object pass its reads, and
//! these see what was written. They do not pass those of their own client, which relies on the order; nor
//! one that may go on as soon as writes that passed it are committed.

use crate::daemon::Daemon;
use crate::host::OpId;
use crate::op::{self, Ops, Origin};
use crate::tracker::Mark;
use io::Effects;
use std::collections::{BTreeMap, VecDeque};
use store::ReadSet;
use types::HObject;
use types::testing::{Probe, hit};
use wire::LinkId;

/// Reads of so much and more are long. Short ones have room of their own: in the memory of a long one stand
/// many of them.
const LONG_BYTES: usize = 64 << 10;

/// Of the memory for requests, one part of so many is for long reads under way, and one for short ones.
const PART: usize = 4;

/// Answers of one turn: the runner says only between turns that a client does not take them.
const TURN_BYTES: usize = 4 << 20;

/// What a read waits with.
#[derive(Debug)]
struct Read {
    /// What it must fetch; 0 when it has yet to find out.
    bytes: usize,
    head: HObject,
    link: LinkId,
}

type Waiting = op::Waiting<Read>;

/// Reads of clients: those under way, and those that wait.
#[derive(Debug, Default)]
pub(crate) struct ReadRoom {
    /// Bytes of those under way, short ones and long ones.
    under_way: [usize; 2],
    /// Bytes that were answered in this turn.
    answered: usize,
    /// Those that wait for room, short ones and long ones.
    lines: [VecDeque<Waiting>; 2],
    /// Those whose turn has come: they go on as soon as nothing of their objects is being written, which
    /// nobody passes any more.
    next: VecDeque<Waiting>,
    /// Clients that do not take what they are sent, and what they wait for.
    stuck: BTreeMap<LinkId, VecDeque<Waiting>>,
    /// This one goes on in any case.
    let_through: Option<OpId>,
    /// Those that wait are to be looked at.
    is_due: bool,
}

fn class_of(bytes: usize) -> usize {
    usize::from(bytes >= LONG_BYTES)
}

impl ReadRoom {
    /// Bytes of reads under way.
    pub fn bytes(&self) -> usize {
        self.under_way.iter().sum()
    }

    /// Whether [`Daemon::start_waiting_reads`] has something to do.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// Those that wait are looked at again: something changed that they may wait for.
    pub fn look_again(&mut self) {
        self.is_due |= !self.next.is_empty() || self.lines.iter().any(|line| !line.is_empty());
    }

    /// Whether a client does not take what it is sent.
    fn is_stuck(&self, link: LinkId) -> bool {
        self.stuck.contains_key(&link)
    }

    fn take(&mut self, bytes: usize) {
        self.under_way[class_of(bytes)] += bytes;
    }

    /// So much was read, or is not read after all: what one read had taken.
    pub fn give_back(&mut self, bytes: usize) {
        self.under_way[class_of(bytes)] -= bytes;
        if bytes > 0 {
            self.look_again();
        }
    }

    /// A read was answered with so much.
    pub fn answered(&mut self, bytes: usize) {
        self.answered += bytes;
    }

    /// The turn is over.
    pub fn end_turn(&mut self) {
        if std::mem::take(&mut self.answered) >= TURN_BYTES {
            self.look_again();
        }
    }

    /// A client writes an object: its own reads of it that wait go first. How many no write may pass
    /// any more.
    pub fn make_way(&mut self, head: &HObject, link: LinkId, ops: &Ops) -> u32 {
        let own = |w: &Waiting| w.wants.link == link && w.wants.head == *head && w.is_current(ops);
        let before = self.next.len();
        for line in self.lines.iter_mut().chain(self.stuck.get_mut(&link)) {
            if line.iter().any(own) {
                let (found, others) = std::mem::take(line).into_iter().partition(own);
                *line = others;
                self.next.extend::<VecDeque<Waiting>>(found);
            }
        }
        let count = self.next.len() - before;
        self.is_due |= count > 0;
        u32::try_from(count).expect("no more than there are requests")
    }

    /// One that is longer than all that may be goes alone.
    fn has_room(&self, bytes: usize, limit: usize) -> bool {
        let taken = self.under_way[class_of(bytes)];
        taken == 0 || taken + bytes <= limit / PART
    }

    fn park(&mut self, waiting: Waiting) {
        match self.stuck.get_mut(&waiting.wants.link) {
            Some(line) => line.push_back(waiting),
            None => self.lines[class_of(waiting.wants.bytes)].push_back(waiting),
        }
    }

    /// The next one of a line that may go on. Those of stuck clients wait elsewhere.
    fn pop(&mut self, class: usize, limit: usize) -> Option<Waiting> {
        while let Some(first) = self.lines[class].front() {
            let (bytes, link) = (first.wants.bytes, first.wants.link);
            let is_stuck = self.is_stuck(link);
            if !is_stuck && (self.answered >= TURN_BYTES || !self.has_room(bytes, limit)) {
                return None;
            }
            let first = self.lines[class].pop_front()?;
            if !is_stuck {
                return Some(first);
            }
            self.park(first);
        }
        None
    }

    /// Whether no answers are wanted now: of this client, or of any.
    fn is_over(&self, link: LinkId) -> bool {
        self.answered >= TURN_BYTES || self.is_stuck(link)
    }
}

impl Daemon {
    /// A client does not take what it is sent, or does so again.
    pub(crate) fn on_backlog(&mut self, link: LinkId, over: bool) {
        match over {
            true => drop(self.read_room.stuck.entry(link).or_default()),
            false => self.forget_backlog(link),
        }
    }

    /// What a client waits for goes on: it takes what it is sent, or its link has ended.
    pub(crate) fn forget_backlog(&mut self, link: LinkId) {
        for waiting in self.read_room.stuck.remove(&link).unwrap_or_default() {
            self.read_room.park(waiting);
        }
        self.read_room.look_again();
    }

    /// Whether a request that only reads waits, rather than being answered now. It is run again. One for which
    /// something was fetched holds that until it is answered, and does not wait.
    pub(crate) fn must_answer_later(&mut self, id: OpId) -> bool {
        if self.read_room.answered < TURN_BYTES && self.read_room.stuck.is_empty() {
            return false;
        }
        let Some(op) = self.ops.get(&id) else { return false };
        let later = op.origin == Origin::Client
            && op.reads.is_empty()
            && self.read_room.is_over(op.link)
            && self.read_room.let_through != Some(id);
        if later {
            self.park(id, 0);
        }
        later
    }

    /// Whether a read that must fetch so much goes on at once. If not, it is run again when it may.
    pub(crate) fn may_fetch(&mut self, id: OpId, bytes: usize) -> bool {
        let Some(op) = self.ops.get_mut(&id) else { return true };
        let room = &mut self.read_room;
        // Nobody goes before those that wait already.
        let is_first = room.lines[class_of(bytes)].is_empty();
        let may = is_first && room.has_room(bytes, self.limits.request_bytes);
        if (may && !room.is_over(op.link)) || room.let_through == Some(id) {
            assert_eq!(op.reading_bytes, 0, "what a read had taken was given back");
            op.reading_bytes = bytes;
            room.take(bytes);
            return true;
        }
        self.park(id, bytes);
        false
    }

    fn park(&mut self, id: OpId, bytes: usize) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        hit(Probe::ReadWaitedForRoom);
        op.trace.mark(self.now.mono, Mark::WaitingForMemory);
        op.is_reading = true;
        let (attempt, link, pgid) = (op.attempt, op.link, op.pgid());
        // A request to a PG stands in no object's queue, whatever object its client names in it.
        let head = if op.request.is_for_pg() { HObject::min() } else { op.head() };
        if let Some(queue) = self.queue_of(pgid, &head) {
            queue.parked += 1;
        }
        self.read_room.park(Waiting { op: id, attempt, wants: Read { bytes, head, link } });
    }

    /// Runs those that wait and may go on, in the order they came.
    pub(crate) fn start_waiting_reads(&mut self, fx: &mut Effects) {
        while std::mem::take(&mut self.read_room.is_due) {
            for _ in 0..self.read_room.next.len() {
                // What is run may add to them.
                let Some(waiting) = self.read_room.next.pop_front() else { break };
                if self.is_written(&waiting) {
                    self.read_room.next.push_back(waiting);
                } else {
                    self.go_on_reading(&waiting, true, fx);
                }
            }
            for class in [0, 1] {
                while let Some(waiting) = self.read_room.pop(class, self.limits.request_bytes) {
                    self.have_turn(waiting, fx);
                }
            }
        }
    }

    /// The turn of one has come: no write passes it any more.
    fn have_turn(&mut self, waiting: Waiting, fx: &mut Effects) {
        // One that is over, or began anew, waits no more.
        let Some(op) = self.ops.get_mut(&waiting.op).filter(|op| op.attempt == waiting.attempt)
        else {
            return;
        };
        let host = self.pgs.get_mut(&op.pgid());
        if let Some(queue) = host.and_then(|host| host.objects.get_mut(&waiting.wants.head)) {
            queue.parked -= 1;
            if queue.writing > 0 {
                // What is its turn must not be taken by others meanwhile.
                op.reading_bytes = waiting.wants.bytes;
                self.read_room.take(waiting.wants.bytes);
                self.read_room.next.push_back(waiting);
                return;
            }
        }
        self.go_on_reading(&waiting, waiting.wants.bytes > 0, fx);
    }

    /// Whether its object is being written.
    fn is_written(&mut self, waiting: &Waiting) -> bool {
        let op = self.ops.get(&waiting.op).filter(|op| op.attempt == waiting.attempt);
        let Some(pgid) = op.map(|op| op.pgid()) else { return false };
        self.queue_of(pgid, &waiting.wants.head).is_some_and(|queue| queue.writing > 0)
    }

    /// It finds out anew what it lacks: that may be elsewhere by now. One that had yet to find out at all may
    /// have to wait again.
    fn go_on_reading(&mut self, waiting: &Waiting, let_through: bool, fx: &mut Effects) {
        self.read_room.let_through = let_through.then_some(waiting.op);
        self.op_fetched(waiting.op, waiting.attempt, Ok(ReadSet::new()), fx);
        self.read_room.let_through = None;
    }
}

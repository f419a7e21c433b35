//! Memory that writes take beside what came with them: sources of COPY_FROM, and what WRITESAME repeats. A
//! request of a few bytes can ask for 128 MiB of either.
//!
//! A request takes room before the bytes are there, and keeps it until it is answered. Where there is none it
//! waits, first come, first served. How much it needs may turn out only on the way (an omap's length is known
//! when all of it is here). If there is no room for more, it gives back all that it has and begins anew when
//! there is room for what it needs, so that of several which have a part nobody waits for the others. One that
//! needs more than all goes alone. What reads a source takes nothing here ([`crate::read_room`] has room for
//! it), so that no copy waits for one that waits.

use crate::daemon::Daemon;
use crate::host::OpId;
use crate::op::Waiting;
use crate::tracker::Mark;
use io::Effects;
use std::collections::VecDeque;
use store::ReadSet;
use types::testing::{Probe, hit};

/// Of the memory for requests, one part of so many may be taken.
const PART: usize = 4;

/// What is taken, and who waits.
#[derive(Debug, Default)]
pub(crate) struct WriteRoom {
    /// Bytes.
    taken: usize,
    /// With what each needs, in bytes.
    line: VecDeque<Waiting<usize>>,
    /// Those that wait are to be looked at.
    is_due: bool,
}

impl WriteRoom {
    /// Bytes that are taken.
    pub fn bytes(&self) -> usize {
        self.taken
    }

    /// Whether [`Daemon::start_waiting_writes`] has something to do.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// Whether somebody waits.
    pub fn is_waited_for(&self) -> bool {
        !self.line.is_empty()
    }

    /// Those that wait are looked at again: who was first may be over.
    pub fn look_again(&mut self) {
        self.is_due |= self.is_waited_for();
    }

    /// A request is over, or begins anew: what it had taken.
    pub fn give_back(&mut self, bytes: usize) {
        if bytes > 0 {
            self.taken -= bytes;
            self.look_again();
        }
    }

    /// Whether one that has taken `held` may take `need` in all.
    fn has_room(&self, held: usize, need: usize, limit: usize) -> bool {
        let others = self.taken - held;
        others == 0 || others.saturating_add(need) <= limit / PART
    }
}

impl Daemon {
    /// Whether a request may take so much in all. If not, it has nothing any more, and is run again when it
    /// may.
    pub(crate) fn take_room(&mut self, id: OpId, attempt: u32, need: usize) -> bool {
        let limit = self.limits.request_bytes;
        let Some(op) = self.ops.get_mut(&id).filter(|op| op.attempt == attempt) else {
            return false;
        };
        let held = op.room_bytes;
        if need <= held {
            return true;
        }
        // Nobody new goes before those that wait already.
        let is_next = held > 0 || !self.write_room.is_waited_for();
        if is_next && self.write_room.has_room(held, need, limit) {
            op.room_bytes = need;
            self.write_room.taken += need - held;
            return true;
        }
        hit(Probe::WriteWaitedForRoom);
        // One that finds out little by little does not begin anew with each of them.
        let waiting = Waiting { op: id, attempt, wants: need.max(held.saturating_mul(2)) };
        match held {
            0 => self.write_room.line.push_back(waiting),
            // It came before them.
            _ => self.write_room.line.push_front(waiting),
        }
        self.leave_room(id);
        false
    }

    /// What a request needs does not come, while others wait: it begins anew behind them.
    pub(crate) fn lose_room(&mut self, id: OpId, attempt: u32) {
        if self.ops.get(&id).is_some_and(|op| op.attempt == attempt) {
            self.write_room.line.push_back(Waiting { op: id, attempt, wants: 0 });
            self.leave_room(id);
        }
    }

    /// A request waits in line, and holds nothing.
    fn leave_room(&mut self, id: OpId) {
        self.mark_op(id, Mark::WaitingForMemory);
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.copies = Vec::new();
        self.write_room.give_back(std::mem::take(&mut op.room_bytes));
    }

    /// Runs those that wait and may go on, in order.
    pub(crate) fn start_waiting_writes(&mut self, fx: &mut Effects) {
        if !std::mem::take(&mut self.write_room.is_due) {
            return;
        }
        let limit = self.limits.request_bytes;
        while let Some(first) = self.write_room.line.front() {
            let is_current = first.is_current(&self.ops);
            if is_current && !self.write_room.has_room(0, first.wants, limit) {
                return;
            }
            let Some(Waiting { op: id, attempt, wants: need }) = self.write_room.line.pop_front()
            else {
                return;
            };
            if let Some(op) = self.ops.get_mut(&id).filter(|_| is_current) {
                op.room_bytes = need;
                self.write_room.taken += need;
                self.op_fetched(id, attempt, Ok(ReadSet::new()), fx);
            }
        }
    }
}

//! Putting logged blocks in place.
//!
//! Works in rounds: the blocks of the oldest batches, in the order of their places, neighbours
//! joined into one write. A block is written only when the transaction that wrote it last is
//! recorded (see `wal`), with the newest content it has. Content that is not in memory any more is
//! read back from the log and verified; content that rotted there is given up, and reads of the
//! block will tell.
//!
//! A block that is being read is put off until the read is done.

use super::inflight::DATA;
use super::{Ended, Store};
use crate::codec::block_crc;
use crate::wal::{Content, Pending};
use bytes::Bytes;
use io::Effects;
use io::disk::DiskError;
use smallvec::SmallVec;
use std::collections::VecDeque;
use types::HashMap;

/// Blocks of a round.
const ROUND_BLOCKS: usize = 4096;
/// Blocks of one write.
const GROUP_BLOCKS: usize = 64;
/// Groups being read or written at a time.
const GROUPS: usize = 32;
/// Blocks that one slice prepares.
const SLICE_BLOCKS: usize = 128;
/// How often a logged block is read back before it is given up.
const READ_TRIES: u32 = 3;
/// Most and least credit that writers can have.
const CREDIT: std::ops::RangeInclusive<i64> = -64..=256;

/// One block of a group.
#[derive(Debug)]
struct Member {
    place: u64,
    pending: Pending,
    content: Option<Bytes>,
}

#[derive(Debug)]
struct Group {
    members: Vec<Member>,
    reading: usize,
}

/// The state of putting in place.
#[derive(Debug, Default)]
pub(crate) struct WriteBack {
    /// What is left of the round, in order.
    queue: VecDeque<u64>,
    /// Blocks that were being read when their turn came.
    put_off: Vec<u64>,
    groups: HashMap<u64, Group>,
    next_group: u64,
    /// How often reading back the block of a place failed.
    failures: HashMap<u64, u32>,
    running: bool,
    /// Blocks that writers may log while the log is nearly full.
    credit: i64,
}

impl WriteBack {
    /// Whether a round is under way.
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// What writers may still log; see `Store::may_add_log`.
    pub fn credit(&self) -> i64 {
        self.credit
    }

    /// A writer logged blocks.
    pub fn spend(&mut self, blocks: u64) {
        self.earn(-(blocks as i64));
    }

    fn earn(&mut self, blocks: i64) {
        self.credit = (self.credit + blocks).clamp(*CREDIT.start(), *CREDIT.end());
    }
}

impl Store {
    fn wants_writeback(&mut self) -> bool {
        if !self.wal.has_pending() {
            return false;
        }
        let full = self.wal.used_blocks() >= self.wal.place.blocks * 2 / 5;
        let draining = self.wal.blocks_pos().seq < self.drain_until;
        full || draining || self.pressure || self.is_closing()
    }

    /// One slice of the running round, or the beginning of one.
    pub(super) fn step_writeback(&mut self, fx: &mut Effects) {
        if !self.writeback.running {
            if !self.wants_writeback() {
                return;
            }
            let max = ROUND_BLOCKS.min(self.wal.place.blocks as usize / 8);
            let mut places = self.wal.oldest_blocks(max);
            if places.is_empty() {
                // What is logged is not recorded yet.
                self.mark_wanted = true;
                return;
            }
            places.sort_unstable();
            self.writeback.queue = places.into();
            self.writeback.running = true;
            self.writeback.earn(*CREDIT.end() / 4);
        }
        let put_off = std::mem::take(&mut self.writeback.put_off);
        for place in put_off.into_iter().rev() {
            self.writeback.queue.push_front(place);
        }
        let mut budget = SLICE_BLOCKS;
        while budget > 0 && self.writeback.groups.len() < GROUPS {
            let Some(members) = self.next_members() else { break };
            budget = budget.saturating_sub(members.len().max(1));
            if !members.is_empty() {
                self.start_group(members, fx);
            }
        }
        if !self.writeback.queue.is_empty() && self.writeback.groups.len() < GROUPS {
            self.work_left = true;
        }
        self.finish_round();
    }

    /// The next blocks that stand together and may be written; empty when the next one may not.
    fn next_members(&mut self) -> Option<Vec<Member>> {
        let mut members: Vec<Member> = Vec::new();
        while let Some(&place) = self.writeback.queue.front() {
            let joins = members.last().is_none_or(|m| m.place + 1 == place);
            if !joins || members.len() >= GROUP_BLOCKS {
                break;
            }
            self.writeback.queue.pop_front();
            let pending = self.wal.pending(place).filter(|p| p.txn <= self.wal.recorded());
            let Some(pending) = pending else { break };
            if !self.io.is_idle(place, 1) {
                self.writeback.put_off.push(place);
                break;
            }
            let content = match self.wal.content(pending) {
                Content::Memory(bytes) => Some(bytes),
                Content::Log { .. } => None,
            };
            members.push(Member { place, pending, content });
        }
        if members.is_empty() && self.writeback.queue.is_empty() { None } else { Some(members) }
    }

    fn start_group(&mut self, members: Vec<Member>, fx: &mut Effects) {
        let group = self.writeback.next_group;
        self.writeback.next_group += 1;
        let mut reading = 0;
        for (index, member) in members.iter().enumerate() {
            if member.content.is_some() {
                continue;
            }
            let Content::Log { seq, block } = self.wal.content(member.pending) else { continue };
            reading += 1;
            self.counters.in_place_reads += 1;
            self.wal.begin_read(seq);
            let dev = self.log_dev();
            let what = Ended::InPlaceRead { group, index, seq };
            self.io.read(fx, dev, self.wal.place.base + block, 1, what);
        }
        self.writeback.groups.insert(group, Group { members, reading });
        if reading == 0 {
            self.write_group(group, fx);
        }
    }

    /// A logged block was read back.
    pub(super) fn in_place_read(
        &mut self,
        id: u64,
        index: usize,
        seq: u64,
        result: Result<Bytes, DiskError>,
        fx: &mut Effects,
    ) {
        self.wal.end_read(seq);
        let group = self.writeback.groups.get_mut(&id).expect("a group that is being read");
        group.reading -= 1;
        let ready = group.reading == 0;
        let member = &mut group.members[index];
        let (place, pending) = (member.place, member.pending);
        match result {
            Ok(bytes) if block_crc(&bytes) == pending.crc => member.content = Some(bytes),
            Ok(_) => {
                self.counters.bad_blocks += 1;
                self.give_up(place, pending);
            }
            Err(_) => {
                self.counters.read_errors += 1;
                let failures = self.writeback.failures.entry(place).or_insert(0);
                *failures += 1;
                if *failures >= READ_TRIES {
                    self.give_up(place, pending);
                }
            }
        }
        if ready {
            self.write_group(id, fx);
        }
        self.work_left = true;
    }

    /// The log cannot give a block's content back. Its place keeps older bytes, which do not have
    /// the block's checksum: whoever reads it is told.
    fn give_up(&mut self, place: u64, pending: Pending) {
        self.writeback.failures.remove(&place);
        self.wal.in_place(place, pending.seq);
    }

    /// Writes what of a group is still wanted.
    fn write_group(&mut self, id: u64, fx: &mut Effects) {
        let Some(group) = self.writeback.groups.remove(&id) else { return };
        let mut run: Vec<(Member, Bytes)> = Vec::new();
        for mut member in group.members {
            // Something newer may have come while it was read back.
            let current = self.wal.pending(member.place) == Some(member.pending);
            let Some(content) = member.content.take().filter(|_| current) else { continue };
            if !self.io.is_idle(member.place, 1) {
                self.writeback.put_off.push(member.place);
                continue;
            }
            if run.last().is_some_and(|(m, _)| m.place + 1 != member.place) {
                self.write_run(std::mem::take(&mut run), fx);
            }
            run.push((member, content));
        }
        if !run.is_empty() {
            self.write_run(run, fx);
        }
    }

    fn write_run(&mut self, run: Vec<(Member, Bytes)>, fx: &mut Effects) {
        let group = self.writeback.next_group;
        self.writeback.next_group += 1;
        let start = run[0].0.place;
        let (members, data): (Vec<Member>, SmallVec<[Bytes; 4]>) = run.into_iter().unzip();
        self.counters.in_place_writes += 1;
        self.counters.in_place_blocks += members.len() as u64;
        self.writeback.groups.insert(group, Group { members, reading: 0 });
        self.io.write(fx, (DATA, start), data, false, Ended::InPlaceWrite { group });
    }

    /// A group is in place.
    pub(super) fn in_place_written(&mut self, id: u64, result: Result<Bytes, DiskError>) {
        if !self.must("putting data in place", result) {
            return;
        }
        let group = self.writeback.groups.remove(&id).expect("a group that is being written");
        self.writeback.earn(group.members.len() as i64 * 5 / 4 + 1);
        for member in group.members {
            self.wal.in_place(member.place, member.pending.seq);
        }
        self.work_left = true;
        self.unblock();
    }

    fn finish_round(&mut self) {
        let wb = &mut self.writeback;
        if wb.running && wb.queue.is_empty() && wb.put_off.is_empty() && wb.groups.is_empty() {
            wb.running = false;
            self.round_done = true;
            self.work_left = true;
        }
    }
}

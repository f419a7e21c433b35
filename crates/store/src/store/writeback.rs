//! Putting logged blocks in place.
//!
//! Works in rounds: the blocks of the oldest batches, in the order of their places, neighbours
//! joined into one write. A block is written only when the transaction that wrote it last is
//! recorded (see `wal`), with the newest content it has. Content that is not in memory any more is
//! read back from the log (see `reload`) and verified; content that rotted there is given up, and reads of the
//! block will tell.
//!
//! A block that is being read is put off until the read is done.

use super::reload::Reloaded;
use super::{Ended, Store};
use crate::codec::block_crc;
use crate::wal::{Content, Oldest, Pending};
use bytes::Bytes;
use io::disk::{DiskError, WriteMode};
use io::{BLOCK_BYTES, Effects};
use smallvec::SmallVec;
use std::collections::VecDeque;
use types::HashMap;

/// Blocks of a round.
const ROUND_BLOCKS: usize = 4096;
/// Blocks of one write.
const GROUP_BLOCKS: usize = 64;
/// Groups being read or written at a time, at most.
const GROUPS: usize = 32;
/// And while nothing is urgent.
const CALM_GROUPS: usize = 16;
/// Blocks that one slice prepares.
const SLICE_BLOCKS: usize = 128;
/// How often a logged block is read back before it is given up.
const READ_TRIES: u32 = 3;

/// What [`Store::crowded`] goes up to.
const CROWDED: u64 = 1000;

/// How far `at` is from `from` to `to`, of [`CROWDED`].
fn part_of(at: u64, from: u64, to: u64) -> u64 {
    let span = to.saturating_sub(from).max(1);
    (at.saturating_sub(from) * CROWDED / span).min(CROWDED)
}

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
    /// What was put in place in this turn: places and batches.
    placed: Vec<(u64, u64)>,
    /// How often reading back the block of a place failed, and which content it was.
    failures: HashMap<u64, (Pending, u32)>,
    /// What of the round's content had left memory.
    pub(super) reloaded: Reloaded,
    running: bool,
    /// The log that this round covers, as places of the endless log.
    covers: (u64, u64),
    /// Blocks of this round, and how many of them are done with.
    blocks: u64,
    done: u64,
}

impl WriteBack {
    /// How much of the log before `to` the running round has done with, as a place of the endless
    /// log. It works in the order of places on the disk, so that no batch is done with until the
    /// end; this is its part of the way there.
    pub fn progress(&self, to: u64) -> u64 {
        let (from, until) = self.covers;
        if !self.running || to >= until { to } else { to.max(from + self.part_done()) }
    }

    /// The part of the log it covers that corresponds to what is done.
    fn part_done(&self) -> u64 {
        let (from, until) = self.covers;
        let covered = u128::from(until.saturating_sub(from));
        (covered * u128::from(self.done) / u128::from(self.blocks)) as u64
    }

    /// Places that are being written, or read for that.
    fn under_way(&self) -> impl Iterator<Item = u64> {
        self.groups.values().flat_map(|group| group.members.iter().map(|m| m.place))
    }
}

impl Store {
    fn wants_writeback(&mut self) -> bool {
        if !self.wal.has_pending() {
            return false;
        }
        let draining = self.wal.blocks_pos().seq < self.drain_until;
        self.crowded() > 0 || draining || self.pressure || self.is_closing()
    }

    /// How crowded the log is, from 0, where it is left alone, to [`CROWDED`], where writers begin to be
    /// held back, or its content to leave memory: that would have to be read again to be put in place.
    fn crowded(&self) -> u64 {
        let (used, kept) = (self.wal.used_blocks(), self.wal.cached_bytes() as u64);
        let (log, memory) = (self.log_blocks(), self.wal.budget() as u64);
        let on_disk = part_of(used, log * 2 / 5, self.low_mark());
        on_disk.max(part_of(kept, memory / 2, memory - memory / 8))
    }

    /// Whether somebody waits for what is put in place.
    fn is_urgent(&self) -> bool {
        self.is_closing() || self.pressure || self.crowded() >= CROWDED
    }

    /// Groups that may be under way. Each of them is in the way of those who wait for the disk, so
    /// there are no more than keep the log from filling up: few at first, all of them where writers
    /// begin to be held back. They go in bursts, each begun when the one before it has ended: a burst
    /// costs little more than one group, since nobody is woken for its parts. The first ones also wait
    /// until no batch is on its way to the log.
    fn groups(&self) -> usize {
        if self.is_urgent() {
            return GROUPS;
        }
        let crowded = self.crowded();
        let in_the_way = self.wal.writing() > 0 && crowded < CROWDED / 4;
        if !self.writeback.groups.is_empty() || in_the_way {
            return 0;
        }
        let more = (GROUPS - CALM_GROUPS) as u64 * crowded / CROWDED;
        CALM_GROUPS + more as usize
    }

    /// One slice of the running round, or the beginning of one.
    pub(super) fn step_writeback(&mut self, fx: &mut Effects) {
        if !self.writeback.running {
            if !self.wants_writeback() {
                // What keeps memory may have been replaced, by what is not recorded yet.
                self.mark_wanted |= self.held && self.wal.recorded() < self.txns.decided();
                return;
            }
            if !self.begin_round(fx) {
                // What is logged is not recorded yet.
                self.mark_wanted = true;
                return;
            }
        }
        if !self.writeback.reloaded.is_complete() {
            return;
        }
        let put_off = std::mem::take(&mut self.writeback.put_off);
        for place in put_off.into_iter().rev() {
            self.writeback.queue.push_front(place);
        }
        let (mut budget, groups) = (SLICE_BLOCKS, self.groups());
        let mut ahead = self.look_ahead(groups.saturating_sub(self.writeback.groups.len()));
        while budget > 0 && self.writeback.groups.len() < groups {
            let Some(members) = self.next_members(&mut ahead) else { break };
            budget = budget.saturating_sub(members.len().max(1));
            if !members.is_empty() {
                self.start_group(members, fx);
            }
        }
        if !self.writeback.queue.is_empty() && self.writeback.groups.len() < groups {
            self.work_left = true;
        }
        self.finish_round();
    }

    /// Takes up the oldest blocks. False when there are none that may be put in place.
    fn begin_round(&mut self, fx: &mut Effects) -> bool {
        let from = self.wal.blocks_pos().at.max(self.writeback.covers.0);
        let max = self.round_blocks();
        // What the last round left under way is nothing for this one.
        let mut begun: Vec<u64> = self.writeback.under_way().collect();
        begun.sort_unstable();
        let Oldest { mut places, until, gone } =
            self.wal.oldest_blocks(max + begun.len(), self.reload_blocks());
        places.retain(|place| begun.binary_search(place).is_err());
        if places.is_empty() {
            return false;
        }
        places.sort_unstable();
        self.writeback.covers = (from, until.at);
        self.wal.keep_before(until.seq);
        (self.writeback.blocks, self.writeback.done) = ((places.len() + begun.len()) as u64, 0);
        self.writeback.queue = places.into();
        self.writeback.running = true;
        if gone.blocks > 0 {
            self.reload(&gone, fx);
        }
        true
    }

    /// A round frees its part of the log only at its end, and may have to bring all of it back into
    /// memory: small parts, so that there is room beyond where writers are paced (see `pace`).
    fn round_blocks(&self) -> usize {
        let memory = self.wal.budget() / BLOCK_BYTES / 4;
        ROUND_BLOCKS.min(self.wal.place.blocks as usize / 16).min(memory).max(1)
    }

    /// Blocks of the log that a round reads back, dead ones between those that are wanted among them.
    fn reload_blocks(&self) -> u64 {
        (self.wal.budget() / BLOCK_BYTES / 2).max(1) as u64
    }

    /// What is known of the next blocks of the queue. They are far from each other in memory, and looks
    /// that do not wait for one another are many times faster.
    fn look_ahead(
        &self,
        blocks: usize,
    ) -> impl Iterator<Item = (Option<Pending>, Option<Bytes>)> + use<> {
        let next = self.writeback.queue.iter().take(blocks);
        let pending: SmallVec<[_; GROUPS]> = next.map(|place| self.recorded(*place)).collect();
        let content = |p: &Option<Pending>| p.and_then(|p| self.content_at_hand(p));
        let contents: SmallVec<[_; GROUPS]> = pending.iter().map(content).collect();
        pending.into_iter().zip(contents)
    }

    /// The newest logged content of a block, if it may be put in place.
    fn recorded(&self, place: u64) -> Option<Pending> {
        self.wal.pending(place).filter(|p| p.txn <= self.wal.recorded())
    }

    /// The next blocks that stand together and may be written; empty when the next one may not. `ahead`:
    /// what is known of them already.
    fn next_members(
        &mut self,
        ahead: &mut impl Iterator<Item = (Option<Pending>, Option<Bytes>)>,
    ) -> Option<Vec<Member>> {
        let mut members: Vec<Member> = Vec::new();
        while let Some(&place) = self.writeback.queue.front() {
            let joins = members.last().is_none_or(|m| m.place + 1 == place);
            if !joins || members.len() >= GROUP_BLOCKS {
                break;
            }
            self.writeback.queue.pop_front();
            let (pending, content) = ahead.next().unwrap_or_else(|| {
                let pending = self.recorded(place);
                (pending, pending.and_then(|p| self.content_at_hand(p)))
            });
            let Some(pending) = pending else {
                self.writeback.done += 1;
                break;
            };
            if !self.io.is_idle(place, 1) {
                self.writeback.put_off.push(place);
                break;
            }
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
            Ok(bytes) if block_crc(&bytes) == pending.crc => {
                member.content = Some(bytes);
                self.writeback.failures.remove(&place);
            }
            Ok(_) => {
                self.counters.bad_blocks += 1;
                self.give_up(place, pending);
            }
            Err(_) => {
                self.counters.read_errors += 1;
                let failures = self.writeback.failures.entry(place).or_insert((pending, 0));
                if failures.0 != pending {
                    *failures = (pending, 0);
                }
                failures.1 += 1;
                if failures.1 >= READ_TRIES {
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
        self.wal.in_place(&[(place, pending.seq)]);
    }

    /// Writes what of a group is still wanted.
    fn write_group(&mut self, id: u64, fx: &mut Effects) {
        let Some(group) = self.writeback.groups.remove(&id) else { return };
        let mut run: Vec<(Member, Bytes)> = Vec::new();
        for mut member in group.members {
            // Something newer may have come while it was read back.
            let current = self.wal.pending(member.place) == Some(member.pending);
            let Some(content) = member.content.take().filter(|_| current) else {
                self.writeback.done += 1;
                continue;
            };
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
        let mode = if self.is_urgent() { WriteMode::Plain } else { WriteMode::Lazy };
        self.write_data(start, data, mode, Ended::InPlaceWrite { group }, fx);
    }

    /// A group is in place.
    pub(super) fn in_place_written(&mut self, id: u64, result: Result<Bytes, DiskError>) {
        if !self.must("putting data in place", result) {
            return;
        }
        let group = self.writeback.groups.remove(&id).expect("a group that is being written");
        self.writeback.done += group.members.len() as u64;
        let placed = group.members.iter().map(|member| (member.place, member.pending.seq));
        self.writeback.placed.extend(placed);
        if !self.writeback.failures.is_empty() {
            // Also what was read back with others in the end.
            let failures = &mut self.writeback.failures;
            for member in &group.members {
                failures.remove(&member.place);
            }
        }
    }

    /// Notes all of the turn that is in place.
    pub(super) fn note_placed(&mut self) {
        if self.writeback.placed.is_empty() {
            return;
        }
        self.wal.in_place(&self.writeback.placed);
        self.writeback.placed.clear();
        self.unblock();
    }

    fn finish_round(&mut self) {
        let wb = &mut self.writeback;
        // What is under way need not have ended, the next round goes on beside it; but what was read
        // back stays until all of its round has.
        let is_over = wb.groups.is_empty() || wb.reloaded.is_unused();
        if wb.running && wb.queue.is_empty() && wb.put_off.is_empty() && is_over {
            wb.running = false;
            wb.covers.0 += wb.part_done();
            self.drop_reloaded();
            self.round_done = true;
            self.work_left = true;
        }
    }
}

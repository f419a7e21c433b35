//! Requests on one object, in order: when each may run, and what becomes of an attempt.
//!
//! See [`crate::op`] for the rules.

use crate::daemon::{Daemon, Waiter};
use crate::host::{OpId, PgHost};
use crate::ops::{self, Reader, Scene, Stop};
use crate::tracker::Mark;
use io::Effects;
use maps::{OsdMap, PgPool};
use pg::Readiness;
use store::{ReadSet, StoreError};
use types::testing::{Bug, Probe, hit, planted};
use types::{Errno, HObject, PgId};
use wire::msg::op::OpCode;
use wire::msg::{MOsdOp, MOsdOpReply};

/// What became of an attempt to run a request.
enum Ran {
    /// It was answered, is a write on its way, or stands aside.
    Done,
    /// It waits for the disk, and others may pass that do not conflict.
    Fetching,
    /// It waits, and so does everything behind it.
    Stalled,
}

impl Daemon {
    /// Runs the reads for COPY_FROM that stand aside of the queue.
    pub(crate) fn pump_urgent(&mut self, pgid: PgId, head: &HObject, fx: &mut Effects) {
        while let Some(host) = self.pgs.get_mut(&pgid) {
            if host.has_deleted_of(head) {
                self.remove_first(pgid, head, fx);
                continue;
            }
            let is_settled = host.is_settled_for(head);
            let Some(queue) = host.objects.get_mut(head).filter(|_| is_settled) else { return };
            if queue.writing > 0 {
                return;
            }
            let Some(&first) = queue.urgent.front() else { return };
            if host.pg.readiness(head) == Readiness::Missing {
                hit(Probe::MissingWaited);
                self.wait_for_recovery(first, pgid, head, fx);
                return;
            }
            if self.read_must_wait(pgid, head, false, fx) {
                return;
            }
            let id = self.queue_of(pgid, head).and_then(|q| q.urgent.pop_front());
            let Some(id) = id else { return };
            let ran = self.attempt(id, pgid, fx);
            let Some(queue) = self.queue_of(pgid, head) else { return };
            match ran {
                Ran::Done => {}
                Ran::Fetching => queue.reading += 1,
                Ran::Stalled => {
                    queue.urgent.push_front(id);
                    return;
                }
            }
        }
    }

    /// A request that was applied already is answered as then; one in flight is joined. This is
    /// looked up when a request is about to run, not when it arrives: its first sending may stand
    /// in the same queue.
    ///
    /// # Errors
    /// It is one, but something must be done first.
    fn answer_duplicate(&mut self, id: OpId, pgid: PgId, fx: &mut Effects) -> Result<bool, Stop> {
        let Some(op) = self.ops.get_mut(&id) else { return Ok(true) };
        let Some(host) = self.pgs.get_mut(&pgid) else { return Ok(true) };
        let Some(dup) = host.pg.log().find_request(&op.reqid) else { return Ok(false) };
        if planted(Bug::DupApplied) {
            return Ok(false);
        }
        if let Some(write) = host.in_flight.get_mut(dup.version) {
            hit(Probe::DuplicateInFlight);
            op.trace.mark(self.now.mono, Mark::WaitingForDuplicate);
            write.duplicates.push(id);
            return Ok(true);
        }
        hit(Probe::DuplicateAnswered);
        if dup.result >= 0 {
            self.follow_stored_watches(id, pgid, fx)?;
        }
        let Some(op) = self.ops.get(&id) else { return Ok(true) };
        let epoch = self.maps.epoch();
        let mut reply = MOsdOpReply::answer(&op.request, epoch);
        reply.result = dup.result;
        for (op, ret) in reply.ops.iter_mut().zip(&dup.op_returns) {
            op.rval = ret.rval;
            if !ret.outdata.is_empty() {
                op.outdata.push(ret.outdata.clone());
            }
        }
        let reply = reply.with_versions(dup.version, dup.user_version);
        self.reply_op(id, reply);
        Ok(true)
    }

    /// Runs them when what the log has deleted of the object is gone.
    fn look_after_removal(&mut self, pgid: PgId, head: &HObject, fx: &mut Effects) {
        self.remove_first(pgid, head, fx);
        self.pump_object(pgid, head, fx);
    }

    /// Runs the requests on an object as far as they may.
    pub(crate) fn pump_object(&mut self, pgid: PgId, head: &HObject, fx: &mut Effects) {
        loop {
            let somebody_is_full = self.has_full_member(pgid);
            let Some(host) = self.pgs.get_mut(&pgid) else { return };
            if host.has_deleted_of(head) {
                return self.look_after_removal(pgid, head, fx);
            }
            let (is_settled, log_is_full) = (host.is_settled_for(head), host.must_wait_for_log());
            let Some(queue) = host.objects.get_mut(head) else { return };
            if queue.is_idle() {
                host.objects.remove(head);
                return;
            }
            if !queue.urgent.is_empty() && queue.writing == 0 {
                self.pump_urgent(pgid, head, fx);
                if self.queue_of(pgid, head).is_some_and(|q| !q.urgent.is_empty() && q.writing == 0)
                {
                    // They wait until reads may be served, and for the PG's transactions.
                    return;
                }
                continue;
            }
            if queue.stalled.is_some() {
                return;
            }
            let Some(&id) = queue.waiting.front() else { return };
            let Some(op) = self.ops.get(&id) else {
                queue.waiting.pop_front();
                continue;
            };
            if op.class.writes && queue.parked > 0 {
                queue.parked -= self.read_room.make_way(head, op.link, &self.ops);
            }
            let blocked = if op.class.writes {
                queue.reading > queue.parked || (op.class.reads && queue.writing > 0)
            } else {
                queue.writing > 0 && !planted(Bug::ReadOfUncommitted)
            };
            let (now, settings) = (self.now.mono, &self.limits.scrub);
            let holds = op.class.writes && host.scrub.holds(head);
            let held = holds && !host.scrub.give_way(now, settings);
            let may_run = is_settled && !(log_is_full && op.class.writes);
            if blocked || held || !may_run {
                if !may_run && !std::mem::replace(&mut queue.behind_queue, true) {
                    host.behind_queue.push(head.clone());
                }
                self.mark_op(id, Mark::WaitingForObject);
                return;
            }
            let usable = match host.pg.readiness(head) {
                Readiness::Ready => true,
                Readiness::Degraded => {
                    !op.class.writes
                        || host.make_way(head)
                        || (somebody_is_full
                            && removes(&op.request, self.maps.current())
                            && !host.pg.is_on_its_way(head))
                }
                Readiness::Missing => planted(Bug::MissingServedAbsent) && !op.class.writes,
            };
            if !usable {
                hit(Probe::MissingWaited);
                self.wait_for_recovery(id, pgid, head, fx);
                return;
            }
            match self.attempt(id, pgid, fx) {
                Ran::Done => self.leave_queue(id, pgid, head),
                Ran::Fetching => {
                    self.leave_queue(id, pgid, head);
                    if let Some(q) = self.queue_of(pgid, head) {
                        q.reading += 1;
                    }
                }
                Ran::Stalled => return self.stall(id, pgid, head),
            }
        }
    }

    /// The first request of a queue waits for its object, and all behind it: that may take days.
    fn wait_for_recovery(&mut self, id: OpId, pgid: PgId, head: &HObject, fx: &mut Effects) {
        self.mark_op(id, Mark::WaitingForRecovery);
        self.want_object(pgid, head, fx);
        let queue = self.pgs.get(&pgid).and_then(|host| host.objects.get(head));
        for id in queue.into_iter().flat_map(|queue| queue.waiting.iter().rev()) {
            // Before one that does already all do.
            if !self.ops.get_mut(id).is_some_and(|op| op.stand_alone()) {
                return;
            }
        }
    }

    pub(crate) fn queue_of(
        &mut self,
        pgid: PgId,
        head: &HObject,
    ) -> Option<&mut crate::host::ObjectQueue> {
        self.pgs.get_mut(&pgid)?.objects.get_mut(head)
    }

    fn leave_queue(&mut self, id: OpId, pgid: PgId, head: &HObject) {
        let Some(queue) = self.queue_of(pgid, head) else { return };
        // Others may have been put before it while it waited for the disk.
        if let Some(at) = queue.waiting.iter().position(|other| *other == id) {
            queue.waiting.remove(at);
        }
    }

    /// Runs a request once.
    fn attempt(&mut self, id: OpId, pgid: PgId, fx: &mut Effects) -> Ran {
        let Some(op) = self.ops.get(&id) else { return Ran::Done };
        let (writes, is_shut_out) = (op.class.writes, self.is_shut_out(op));
        if writes {
            match self.answer_duplicate(id, pgid, fx) {
                Ok(false) => {}
                Ok(true) => return Ran::Done,
                Err(stop) => return self.op_stopped(id, pgid, stop, fx),
            }
        }
        // It may have been shut out while it waited: whoever took its lock relies on that.
        if is_shut_out {
            self.refuse_op(id, Errno::EBLOCKLISTED);
            return Ran::Done;
        }
        if !writes && self.read_lapsed(id, pgid, fx) {
            return Ran::Stalled;
        }
        if !writes && self.must_answer_later(id) {
            return Ran::Fetching;
        }
        if writes && self.store.holds_writers() {
            return self.wait_for_store(id);
        }
        let somebody_is_full = self.has_full_member(pgid);
        let (snaps, compression) =
            (self.maps.pool_snaps(pgid.pool), self.maps.pool_compression(pgid.pool));
        let Some(host) = self.pgs.get_mut(&pgid) else { return Ran::Done };
        let Some(op) = self.ops.get_mut(&id) else { return Ran::Done };
        op.attempt += 1;
        op.trace.mark(self.now.mono, Mark::Started);
        let pg = &host.pg;
        // What a write takes from a clone, every copy must take from its own. Of the head itself some
        // copies may only note that they miss it.
        let head = op.head();
        let map = self.maps.current();
        let is_ready = |o: &HObject| match pg.readiness(o) {
            Readiness::Ready => true,
            Readiness::Degraded if op.class.writes && *o == head => {
                pg.write_readiness(o) == Readiness::Ready
                    || (somebody_is_full && removes(&op.request, map))
            }
            Readiness::Degraded => !op.class.writes,
            Readiness::Missing => planted(Bug::MissingServedAbsent) && !op.class.writes,
        };
        let scene = Scene {
            request: &op.request,
            head_key: op.head_key.get_or_insert_with(|| head.to_key()),
            writes: op.class.writes,
            sender: op.sender,
            snaps: &snaps,
            compression,
            is_ready: &is_ready,
            copies: &op.copies,
            room_bytes: op.room_bytes,
            now: self.now.wall,
            next_notify_id: u64::from(self.maps.epoch().0) << 32 | (self.next_notify & 0xffff_ffff),
        };
        let reader = Reader { store: &self.store, set: &op.reads };
        let ran = ops::run(reader, &scene, crate::host::sequencer(pgid));
        match ran {
            Ok(finished) => self.op_finished((id, writes), pgid, finished, fx),
            Err(stop) => self.op_stopped(id, pgid, stop, fx),
        }
    }

    /// A write comes while the store holds writers: it would be told so only after all its work.
    fn wait_for_store(&mut self, id: OpId) -> Ran {
        hit(Probe::StoreBusy);
        if let Some(op) = self.ops.get_mut(&id) {
            op.attempt += 1;
            op.trace.mark(self.now.mono, Mark::WaitingForStore);
            self.blocked.push(Waiter::Op(id, op.attempt));
        }
        Ran::Stalled
    }

    /// Whether a read has to wait because another OSD might serve the PG by now.
    fn read_lapsed(&mut self, id: OpId, pgid: PgId, fx: &mut Effects) -> bool {
        let Some(head) = self.ops.get(&id).map(|op| op.head()) else { return false };
        let lapsed = self.read_must_wait(pgid, &head, true, fx);
        if lapsed {
            self.mark_op(id, Mark::WaitingForReadable);
        }
        lapsed
    }

    fn op_stopped(&mut self, id: OpId, pgid: PgId, stop: Stop, fx: &mut Effects) -> Ran {
        let now = self.now.mono;
        let Some(op) = self.ops.get_mut(&id) else { return Ran::Done };
        match stop {
            Stop::Miss(miss) => {
                hit(Probe::StoreMissed);
                op.trace.mark(now, Mark::WaitingForRead);
                let write = op.class.writes;
                op.is_reading = !write;
                let waiter = Waiter::Op(id, op.attempt);
                let miss = if self.limits.keep_reads { miss } else { miss.not_kept() };
                if write || self.may_fetch(id, miss.bytes()) {
                    self.fetch(miss, waiter, fx);
                }
                if write { Ran::Stalled } else { Ran::Fetching }
            }
            Stop::NotReady(clone) => {
                op.trace.mark(now, Mark::WaitingForRecovery);
                let writes = op.class.writes;
                self.want_object(pgid, &clone, fx);
                if writes {
                    return Ran::Stalled;
                }
                self.stand_aside(id, pgid, &clone);
                Ran::Done
            }
            Stop::Copy(source, made) => {
                self.begin_copy(id, source, made);
                Ran::Stalled
            }
            Stop::Room(need) => {
                let attempt = op.attempt;
                // What it asks for covers the whole run: it does not ask twice.
                if self.take_room(id, attempt, need) {
                    self.attempt(id, pgid, fx)
                } else {
                    Ran::Stalled
                }
            }
            Stop::Fail(e) | Stop::Refuse(e) => self.op_failed(id, pgid, e.wire(), fx),
            Stop::Result(n) => self.op_failed(id, pgid, n, fx),
        }
    }

    /// A request waits for an object that we lack, or another copy. The latter is not brought it where
    /// there is no space ([`Daemon::look_at_space`]).
    pub(crate) fn want_object(&mut self, pgid: PgId, object: &HObject, fx: &mut Effects) {
        let Some(host) = self.pgs.get(&pgid) else { return };
        if host.pg.readiness(object) == Readiness::Missing || !self.has_full_member(pgid) {
            // Before a head its clones are brought.
            let first = host.pg.comes_first(object).unwrap_or(object).clone();
            self.hurry(pgid, object);
            self.hurry_steps(pgid, &first, fx);
        }
    }

    fn op_failed(&mut self, id: OpId, pgid: PgId, result: i32, fx: &mut Effects) -> Ran {
        let Some(op) = self.ops.get(&id) else { return Ran::Done };
        let ops = op.request.ops.iter().map(wire::msg::ReplyOp::from).collect();
        let writes = op.class.writes;
        let finished =
            ops::Finished { result, ops, user_version: 0, effects: Vec::new(), change: None };
        self.op_finished((id, writes), pgid, finished, fx)
    }

    fn op_finished(
        &mut self,
        (id, writes): (OpId, bool),
        pgid: PgId,
        finished: ops::Finished,
        fx: &mut Effects,
    ) -> Ran {
        if !writes {
            self.finish_read(id, pgid, finished, fx);
            return Ran::Done;
        }
        match self.begin_write(id, pgid, finished, fx) {
            Ok(()) => Ran::Done,
            Err(()) => Ran::Stalled,
        }
    }

    fn finish_read(&mut self, id: OpId, pgid: PgId, mut finished: ops::Finished, fx: &mut Effects) {
        debug_assert!(finished.change.is_none(), "what was taken for a read changes something");
        let Some(op) = self.ops.get(&id) else { return };
        let epoch = self.maps.epoch();
        let mut reply = MOsdOpReply::answer(&op.request, epoch);
        reply.result = finished.result;
        reply.ops = std::mem::take(&mut finished.ops);
        let mut reply = reply.with_versions(types::Eversion::ZERO, finished.user_version);
        if finished.result == Errno::ENOENT.wire() {
            self.set_enoent_versions(pgid, &mut reply);
        }
        let out: usize = reply.ops.iter().map(wire::msg::ReplyOp::len).sum();
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.io.reads += 1;
            host.io.read_bytes += out as u64;
        }
        if finished.result >= 0 {
            // A notify's id counts all effects before it.
            self.next_notify += finished.effects.len() as u64;
            let failed =
                self.carry_out_effects(id, pgid, finished.effects, finished.user_version, fx);
            if let Some(e) = failed {
                reply.result = e.wire();
                if let Some(first) = reply.ops.first_mut() {
                    first.rval = e.wire();
                }
            }
        }
        self.reply_op(id, reply);
    }

    /// On ENOENT the client is told how far the PG is, so that it can order what it saw.
    pub(crate) fn set_enoent_versions(&self, pgid: PgId, reply: &mut MOsdOpReply) {
        if let Some(host) = self.pgs.get(&pgid) {
            reply.bad_replay_version = host.pg.info().last_update;
            reply.user_version = host.pg.info().last_user_version;
        }
    }

    /// Bytes came for a request, or writes are taken again: run it once more.
    pub(crate) fn op_fetched(
        &mut self,
        id: OpId,
        attempt: u32,
        result: Result<ReadSet, StoreError>,
        fx: &mut Effects,
    ) {
        let Some(op) = self.ops.get_mut(&id).filter(|op| op.attempt == attempt) else { return };
        self.read_room.give_back(std::mem::take(&mut op.reading_bytes));
        let (pgid, head, was_reading) = (op.pgid(), op.head(), op.is_reading);
        if was_reading && self.sessions.has_left(op) {
            self.end_abandoned(id, fx);
            return;
        }
        let failed = match result {
            Ok(reads) => {
                op.reads.merge(reads);
                false
            }
            Err(error) => {
                tracing::error!("osd.{}: {}: {error}", self.cfg.id, op.request.object);
                self.perf.read_errors += 1;
                if self.metadata_is_damaged(pgid, &error, fx) {
                    return;
                }
                let mended = self.begin_repair(pgid, &error, fx).is_some();
                if mended && !(was_reading && planted(Bug::RepairAnsweredEio)) {
                    self.wait_for_repair(id, pgid, &head, fx);
                    return;
                }
                true
            }
        };
        if self.is_pg_op(id) {
            if failed {
                self.refuse_op(id, Errno::EIO)
            } else {
                self.run_pg_op(id, pgid, fx)
            }
            return;
        }
        if failed {
            self.unstall(pgid, &head, was_reading);
            match self.op_failed(id, pgid, Errno::EIO.wire(), fx) {
                // The store does not even take the note of it in the log: it runs again later, and fails again.
                Ran::Stalled => return self.stall(id, pgid, &head),
                _ if was_reading => {}
                _ => self.leave_queue(id, pgid, &head),
            }
        } else if was_reading {
            self.rerun_read(id, pgid, &head, fx);
            return;
        } else {
            self.unstall(pgid, &head, false);
        }
        self.pump_object(pgid, &head, fx);
    }

    /// What a request reads is damaged here, and on its way from another copy: the request is the
    /// first of its queue until that has come.
    fn wait_for_repair(&mut self, id: OpId, pgid: PgId, head: &HObject, fx: &mut Effects) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.trace.mark(self.now.mono, Mark::WaitingForRecovery);
        // What was fetched may be of what is replaced now.
        op.reads = ReadSet::new();
        let was_reading = std::mem::take(&mut op.is_reading);
        self.unstall(pgid, head, was_reading);
        if was_reading && let Some(queue) = self.queue_of(pgid, head) {
            queue.waiting.push_front(id);
        }
        self.pump_object(pgid, head, fx);
    }

    fn rerun_read(&mut self, id: OpId, pgid: PgId, head: &HObject, fx: &mut Effects) {
        match self.attempt(id, pgid, fx) {
            // It may be one that waits now, and in the way of a write that was here before.
            Ran::Fetching => self.pump_object(pgid, head, fx),
            Ran::Done => {
                self.unstall(pgid, head, true);
                self.pump_object(pgid, head, fx);
            }
            Ran::Stalled => {
                // It needs something that takes longer: back to the head of the queue.
                self.unstall(pgid, head, true);
                if let Some(op) = self.ops.get_mut(&id) {
                    op.is_reading = false;
                }
                if let Some(queue) = self.queue_of(pgid, head) {
                    queue.waiting.push_front(id);
                    queue.stalled = Some(id);
                }
            }
        }
    }

    /// The first request of an object waits for the disk, the store, or the end of the lease.
    fn stall(&mut self, id: OpId, pgid: PgId, head: &HObject) {
        if let Some(queue) = self.queue_of(pgid, head) {
            queue.stalled = Some(id);
        }
    }

    /// The first request of a queue can go on, or a read is over.
    pub(crate) fn unstall(&mut self, pgid: PgId, head: &HObject, was_reading: bool) {
        if let Some(queue) = self.queue_of(pgid, head) {
            if was_reading {
                queue.reading = queue.reading.saturating_sub(1);
            } else {
                queue.stalled = None;
            }
        }
    }

    /// Everything that waits may go on. Who makes something usable runs what waits for just that; this, once
    /// a tick, sees to it that nobody waits for ever should that be forgotten somewhere.
    pub(crate) fn pump_all(&mut self, fx: &mut Effects) {
        let waiting = |h: &&PgHost| !h.objects.is_empty() && h.pg.accepts_io();
        let pgs: Vec<PgId> = self.pgs.iter().filter(|(_, h)| waiting(h)).map(|(p, _)| *p).collect();
        for pgid in pgs {
            for head in self.awaited(pgid) {
                self.call_back(pgid, &head, fx);
                self.pump_object(pgid, &head, fx);
            }
        }
    }

    /// The objects on which something waits, in their order.
    fn awaited(&self, pgid: PgId) -> Vec<HObject> {
        let Some(host) = self.pgs.get(&pgid) else { return Vec::new() };
        let waits = host.objects.iter();
        let waits = waits.filter(|(_, q)| !q.awaits_nothing());
        let mut heads: Vec<_> = waits.map(|(o, _)| o.clone()).collect();
        heads.sort_unstable();
        heads
    }

    /// A copy has space again: what waits for objects that it lacks goes on.
    pub(crate) fn release_all(&mut self, fx: &mut Effects) {
        let waiting = |h: &&PgHost| !h.objects.is_empty() && h.pg.accepts_io();
        let pgs: Vec<PgId> = self.pgs.iter().filter(|(_, h)| waiting(h)).map(|(p, _)| *p).collect();
        for pgid in pgs {
            for head in self.awaited(pgid) {
                self.release_object(pgid, &head, fx);
            }
        }
    }

    /// All transactions of a PG have been handed over: what waited for them goes on.
    pub(crate) fn queue_empty(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if host.behind_queue.is_empty() || !host.pg.accepts_io() {
            return;
        }
        for head in std::mem::take(&mut host.behind_queue) {
            if let Some(queue) = self.queue_of(pgid, &head) {
                queue.behind_queue = false;
            }
            self.pump_object(pgid, &head, fx);
        }
    }
}

/// Whether a request leaves nothing of an object. Where there is no space to bring the object to a copy
/// that misses it, this does not wait for it: the space may be what others wait for. (Should that copy
/// serve by itself later, without knowing of the deletion, then the object is unfound, as nobody can go
/// back; its client had asked for nothing else than that it is gone.)
fn removes(request: &MOsdOp, map: &OsdMap) -> bool {
    let no_snaps = |p: &PgPool| p.snaps.is_empty() && request.snapc.snaps.is_empty();
    let deletes = |op: &wire::msg::OsdOp| op.code == OpCode::DELETE;
    request.ops.iter().all(deletes) && map.pool(request.pgid.pgid.pool).is_some_and(no_snaps)
}

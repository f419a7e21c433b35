//! Client requests: from arrival to answer.
//!
//! Order: requests on one object run in the order they came. Reads of an object run together; a
//! write waits for reads that wait for the disk, and a read waits until earlier writes of the object
//! are committed on every copy, so that nobody sees what might be lost. Writes that read nothing
//! follow each other without waiting.

use crate::daemon::{Daemon, Waiter};
use crate::host::OpId;
use crate::mapstate::PoolSnaps;
use crate::ops::{
    self, Class, CopiedObject, CopySource, ListRange, Reader, Scene, Sender, Stop, check_request,
    classify,
};
use crate::tracker::{Mark, Trace, Tracked};
use crate::write::Answer;
use io::Effects;
use maps::{OsdMapFlags, PgIdExt, PoolFlags};
use pg::Readiness;
use std::rc::Rc;
use store::{ReadSet, StoreError};
use types::{Errno, HObject, OsdId, PgId, PoolId, ReqId};
use wire::LinkId;
use wire::msg::{MOsdOp, MOsdOpReply, Message, OpCode, Payload, flags};

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client.
    Client,
    /// Another OSD that copies an object.
    Peer(OsdId),
    /// This OSD, for the same reason.
    Own,
}

/// A request.
pub struct ClientOp {
    /// Where it comes from.
    pub origin: Origin,
    /// On which connection it came, if a client's.
    pub link: LinkId,
    /// Its transaction id.
    pub tid: u64,
    /// Who sent it.
    pub sender: Sender,
    /// What it asks for.
    pub request: MOsdOp,
    /// What makes it the same over resends.
    pub reqid: ReqId,
    /// What it does.
    pub class: Class,
    /// Its life.
    pub trace: Trace,
    /// What was fetched for it.
    pub reads: ReadSet,
    /// Other objects that were fetched for it.
    pub copies: Vec<(CopySource, Result<CopiedObject, Errno>)>,
    /// Bytes it counts for in the memory budget.
    pub bytes: usize,
    /// It counts as a read in its object's queue.
    pub is_reading: bool,
    /// Counts its attempts: what was fetched for an earlier one is of no interest.
    pub attempt: u32,
    /// It stands in [`Daemon::waiting_ops`].
    pub waits_for_map: bool,
    /// A write in flight: what is answered when it is committed.
    pub answer: Option<Answer>,
}

impl ClientOp {
    /// The object whose queue it stands in.
    pub fn head(&self) -> HObject {
        self.request.object.head()
    }

    /// The PG it is for.
    pub fn pgid(&self) -> PgId {
        self.request.pgid.pgid
    }
}

/// What became of an attempt to run a request.
enum Ran {
    /// It was answered, or is a write on its way.
    Done,
    /// It waits for the disk, and others may pass that do not conflict.
    Fetching,
    /// It waits, and so does everything behind it.
    Stalled,
}

impl Daemon {
    pub(crate) fn on_osd_op(&mut self, link: LinkId, message: &Message, fx: &mut Effects) {
        let request: MOsdOp = match message.decode() {
            Ok(request) => request,
            Err(why) => {
                self.refuse_link(link, format!("a malformed OSD_OP: {why}"), fx);
                return;
            }
        };
        let Some(session) = self.sessions.get(link) else { return };
        let sender = session.sender;
        let origin = Origin::Client;
        self.new_op(origin, link, message.header.tid, sender, request, message.len(), fx);
        self.check_request_memory(fx);
    }

    /// Takes in a request.
    #[expect(clippy::too_many_arguments, reason = "the parts of one thing, put together once")]
    pub(crate) fn new_op(
        &mut self,
        origin: Origin,
        link: LinkId,
        tid: u64,
        sender: Sender,
        request: MOsdOp,
        bytes: usize,
        fx: &mut Effects,
    ) {
        let reqid = if request.reqid == ReqId::default() {
            ReqId { name: sender.name, inc: request.client_inc as i32, tid }
        } else {
            request.reqid
        };
        self.last_op += 1;
        let id = OpId(self.last_op);
        self.request_bytes += bytes;
        self.perf.op_in_bytes += bytes as u64;
        let op = ClientOp {
            origin,
            link,
            tid,
            sender,
            class: classify(&request),
            request,
            reqid,
            trace: Trace::begin(self.now),
            reads: ReadSet::new(),
            copies: Vec::new(),
            bytes,
            is_reading: false,
            attempt: 0,
            waits_for_map: false,
            answer: None,
        };
        self.ops.insert(id, Box::new(op));
        self.start_op(id, fx);
    }

    /// Takes up a request: for the first time, or after what it waited for has come.
    pub(crate) fn start_op(&mut self, id: OpId, fx: &mut Effects) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        if op.request.epoch > self.maps.epoch() {
            op.trace.mark(self.now.mono, Mark::WaitingForMap);
            op.waits_for_map = true;
            self.waiting_ops.push(id);
            self.mon.wants_map = true;
            return;
        }
        op.waits_for_map = false;
        if op.origin == Origin::Client {
            let (link, theirs) = (op.link, op.request.epoch);
            self.share_map(link, theirs);
        }
        let Some(op) = self.ops.get(&id) else { return };
        let pgid = op.pgid();
        let leads = self.pgs.get(&pgid).filter(|h| h.started && h.pg.is_primary());
        let Some(host) = leads else {
            // Not ours: the client sends it again when its map changes.
            self.drop_op(id);
            return;
        };
        let since = host.pg.info().history.same_primary_since;
        if op.request.epoch < since || self.was_split(op) {
            self.drop_op(id);
            return;
        }
        if let Err(e) = self.admit(id) {
            self.refuse_op(id, e);
            return;
        }
        if self.must_hold_for_space(id, fx) {
            return;
        }
        self.queue_op(id, pgid, fx);
    }

    /// The client has not heard yet that its object is in another PG.
    fn was_split(&self, op: &ClientOp) -> bool {
        let Some(pool) = self.maps.current().pool(op.pgid().pool) else { return true };
        let pg_op = op.request.is_for_pg();
        !pg_op && !op.pgid().contains_hash(op.request.object.hash, pool.pg_num)
    }

    /// What is refused whatever the state of the PG (guide §5.8).
    fn admit(&self, id: OpId) -> Result<(), Errno> {
        let Some(op) = self.ops.get(&id) else { return Ok(()) };
        if !op.request.is_for_pg() {
            check_request(&op.request, op.class.writes)?;
        }
        if self.maps.current().is_blocklisted(&op.sender.addr) {
            return Err(Errno::EBLOCKLISTED);
        }
        Ok(())
    }

    /// Whether a write must wait, or was refused, because the cluster or the pool is full.
    fn must_hold_for_space(&mut self, id: OpId, _fx: &mut Effects) -> bool {
        let Some(op) = self.ops.get(&id) else { return true };
        let map = self.maps.current();
        let Some(pool) = map.pool(op.pgid().pool) else { return false };
        let quota = pool.flags.contains(PoolFlags::FULL_QUOTA);
        let full =
            quota || pool.flags.contains(PoolFlags::FULL) || map.flags.contains(OsdMapFlags::FULL);
        let exempt = op.request.has_flag(flags::FULL_FORCE) || only_frees(&op.request);
        if !op.class.writes || !full || exempt {
            return false;
        }
        if op.request.has_flag(flags::FULL_TRY) {
            self.refuse_op(id, if quota { Errno::EDQUOT } else { Errno::ENOSPC });
        } else {
            // The client holds writes itself from this map on, and sends this one again.
            self.drop_op(id);
        }
        true
    }

    fn queue_op(&mut self, id: OpId, pgid: PgId, fx: &mut Effects) {
        let (now, limit) = (self.now.mono, crate::config::WAITING_OPS_PER_PG);
        let Some(op) = self.ops.get_mut(&id) else { return };
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if !host.pg.accepts_io() {
            op.trace.mark(now, Mark::WaitingForActive);
            host.waiting.push_back(id);
            if host.waiting.len() > limit {
                let newest = host.waiting.pop_back();
                newest.into_iter().for_each(|id| self.send_back(id, fx));
            }
            return;
        }
        if op.request.is_for_pg() {
            self.run_pg_op(id, pgid, fx);
            return;
        }
        let head = match self.ops.get(&id) {
            Some(op) => op.head(),
            None => return,
        };
        let urgent = self.ops.get(&id).is_some_and(|op| op.origin != Origin::Client);
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let queue = host.objects.entry(head.clone()).or_default();
        if urgent {
            queue.urgent.push_back(id);
            self.pump_urgent(pgid, &head, fx);
        } else {
            queue.waiting.push_back(id);
        }
        self.pump_object(pgid, &head, fx);
    }

    /// Runs the reads for COPY_FROM that stand aside of the queue.
    fn pump_urgent(&mut self, pgid: PgId, head: &HObject, fx: &mut Effects) {
        while let Some(queue) = self.queue_of(pgid, head) {
            if queue.writing > 0 {
                return;
            }
            let Some(id) = queue.urgent.pop_front() else { return };
            if let Ran::Fetching = self.attempt(id, pgid, fx)
                && let Some(queue) = self.queue_of(pgid, head)
            {
                queue.reading += 1;
            }
        }
    }

    /// A request that was applied already is answered as then; one in flight is joined. This is
    /// looked up when a request is about to run, not when it arrives: its first sending may stand
    /// in the same queue.
    fn answer_duplicate(&mut self, id: OpId, pgid: PgId) -> bool {
        let Some(op) = self.ops.get_mut(&id) else { return true };
        let Some(host) = self.pgs.get_mut(&pgid) else { return true };
        let Some(dup) = host.pg.log().find_request(&op.reqid) else { return false };
        if let Some(write) = host.in_flight.get_mut(dup.version) {
            op.trace.mark(self.now.mono, Mark::WaitingForDuplicate);
            write.duplicates.push(id);
            return true;
        }
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
        true
    }

    /// Runs the requests on an object as far as they may.
    pub(crate) fn pump_object(&mut self, pgid: PgId, head: &HObject, fx: &mut Effects) {
        loop {
            let Some(host) = self.pgs.get_mut(&pgid) else { return };
            let Some(queue) = host.objects.get_mut(head) else { return };
            if queue.is_idle() {
                host.objects.remove(head);
                return;
            }
            if !queue.urgent.is_empty() && queue.writing == 0 {
                self.pump_urgent(pgid, head, fx);
                continue;
            }
            if queue.stalled {
                return;
            }
            let Some(&id) = queue.waiting.front() else { return };
            let Some(op) = self.ops.get_mut(&id) else {
                queue.waiting.pop_front();
                continue;
            };
            let blocked = if op.class.writes {
                queue.reading > 0 || (op.class.reads && queue.writing > 0)
            } else {
                queue.writing > 0
            };
            if blocked || !host.queue.is_empty() {
                op.trace.mark(self.now.mono, Mark::WaitingForObject);
                return;
            }
            let ready = host.pg.readiness(head);
            let usable = match ready {
                Readiness::Ready => true,
                Readiness::Degraded => !op.class.writes,
                Readiness::Missing => false,
            };
            if !usable {
                op.trace.mark(self.now.mono, Mark::WaitingForRecovery);
                host.pg.hurry(head);
                return;
            }
            match self.attempt(id, pgid, fx) {
                Ran::Done => self.leave_queue(pgid, head),
                Ran::Fetching => {
                    self.leave_queue(pgid, head);
                    if let Some(q) = self.queue_of(pgid, head) {
                        q.reading += 1;
                    }
                }
                Ran::Stalled => {
                    if let Some(q) = self.queue_of(pgid, head) {
                        q.stalled = true;
                    }
                    return;
                }
            }
        }
    }

    fn queue_of(&mut self, pgid: PgId, head: &HObject) -> Option<&mut crate::host::ObjectQueue> {
        self.pgs.get_mut(&pgid)?.objects.get_mut(head)
    }

    fn leave_queue(&mut self, pgid: PgId, head: &HObject) {
        if let Some(queue) = self.queue_of(pgid, head) {
            queue.waiting.pop_front();
        }
    }

    /// Runs a request once.
    fn attempt(&mut self, id: OpId, pgid: PgId, fx: &mut Effects) -> Ran {
        let writes = self.ops.get(&id).is_some_and(|op| op.class.writes);
        if writes && self.answer_duplicate(id, pgid) {
            return Ran::Done;
        }
        // It may have been shut out while it waited: whoever took its lock relies on that.
        if let Err(errno) = self.admit(id) {
            self.refuse_op(id, errno);
            return Ran::Done;
        }
        let snaps = self.maps.pool_snaps(pgid.pool);
        let Some(host) = self.pgs.get_mut(&pgid) else { return Ran::Done };
        let Some(op) = self.ops.get_mut(&id) else { return Ran::Done };
        op.attempt += 1;
        op.trace.mark(self.now.mono, Mark::Started);
        let pg = &host.pg;
        // What a write takes from a clone, every copy must take from its own.
        let is_ready = |o: &HObject| match pg.readiness(o) {
            Readiness::Ready => true,
            Readiness::Degraded => !op.class.writes,
            Readiness::Missing => false,
        };
        let scene = Scene {
            request: &op.request,
            sender: op.sender,
            snaps: &snaps,
            is_ready: &is_ready,
            copies: &op.copies,
            now: self.now.wall,
            next_notify_id: u64::from(self.maps.epoch().0) << 32 | (self.next_notify & 0xffff_ffff),
        };
        let reader = Reader { store: &self.store, set: &op.reads };
        let ran = ops::run(reader, &scene, crate::host::sequencer(pgid));
        match ran {
            Ok(finished) => self.op_finished(id, pgid, finished, fx),
            Err(stop) => self.op_stopped(id, pgid, stop, fx),
        }
    }

    fn op_stopped(&mut self, id: OpId, pgid: PgId, stop: Stop, fx: &mut Effects) -> Ran {
        let now = self.now.mono;
        let Some(op) = self.ops.get_mut(&id) else { return Ran::Done };
        match stop {
            Stop::Miss(miss) => {
                op.trace.mark(now, Mark::WaitingForRead);
                let write = op.class.writes;
                op.is_reading = !write;
                let waiter = Waiter::Op(id, op.attempt);
                self.fetch(miss, waiter, fx);
                if write { Ran::Stalled } else { Ran::Fetching }
            }
            Stop::NotReady(object) => {
                op.trace.mark(now, Mark::WaitingForRecovery);
                if let Some(host) = self.pgs.get_mut(&pgid) {
                    host.pg.hurry(&object);
                }
                Ran::Stalled
            }
            Stop::Copy(source) => {
                self.begin_copy(id, source, fx);
                Ran::Stalled
            }
            Stop::Fail(e) => self.op_failed(id, pgid, e.wire(), fx),
            Stop::Result(n) => self.op_failed(id, pgid, n, fx),
        }
    }

    fn op_failed(&mut self, id: OpId, pgid: PgId, result: i32, fx: &mut Effects) -> Ran {
        let Some(op) = self.ops.get(&id) else { return Ran::Done };
        let ops = op.request.ops.iter().map(wire::msg::ReplyOp::from).collect();
        let finished =
            ops::Finished { result, ops, user_version: 0, effects: Vec::new(), change: None };
        self.op_finished(id, pgid, finished, fx)
    }

    fn op_finished(
        &mut self,
        id: OpId,
        pgid: PgId,
        finished: ops::Finished,
        fx: &mut Effects,
    ) -> Ran {
        let Some(op) = self.ops.get(&id) else { return Ran::Done };
        if !op.class.writes {
            self.finish_read(id, pgid, finished, fx);
            return Ran::Done;
        }
        match self.begin_write(id, pgid, finished, fx) {
            Ok(()) => Ran::Done,
            Err(()) => Ran::Stalled,
        }
    }

    fn finish_read(&mut self, id: OpId, pgid: PgId, mut finished: ops::Finished, fx: &mut Effects) {
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
        let (pgid, head, was_reading) = (op.pgid(), op.head(), op.is_reading);
        let failed = match result {
            Ok(reads) => {
                op.reads.merge(reads);
                false
            }
            Err(error) => {
                tracing::error!("osd.{}: {}: {error}", self.cfg.id, op.request.object);
                self.perf.read_errors += 1;
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
            self.op_failed(id, pgid, Errno::EIO.wire(), fx);
            if !was_reading {
                self.leave_queue(pgid, &head);
            }
        } else if was_reading {
            self.rerun_read(id, pgid, &head, fx);
            return;
        } else {
            self.unstall(pgid, &head, false);
        }
        self.pump_object(pgid, &head, fx);
    }

    fn rerun_read(&mut self, id: OpId, pgid: PgId, head: &HObject, fx: &mut Effects) {
        match self.attempt(id, pgid, fx) {
            Ran::Fetching => {}
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
                    queue.stalled = true;
                }
            }
        }
    }

    /// The first request of a queue can go on, or a read is over.
    pub(crate) fn unstall(&mut self, pgid: PgId, head: &HObject, was_reading: bool) {
        if let Some(queue) = self.queue_of(pgid, head) {
            if was_reading {
                queue.reading = queue.reading.saturating_sub(1);
            } else {
                queue.stalled = false;
            }
        }
    }

    /// Everything that waits in a PG's queues may go on: recovery came along, or its transactions.
    pub(crate) fn pump_all(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let mut heads: Vec<_> = host
            .objects
            .iter()
            .filter(|(_, q)| !q.waiting.is_empty())
            .map(|(o, _)| o.clone())
            .collect();
        heads.sort_unstable();
        for head in heads {
            self.pump_object(pgid, &head, fx);
        }
    }

    /// All transactions of a PG have been handed over.
    pub(crate) fn queue_empty(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get(&pgid) else { return };
        if !host.objects.is_empty() && host.pg.accepts_io() {
            self.pump_all(pgid, fx);
        }
    }

    // ---- ends ----

    pub(crate) fn reply_op(&mut self, id: OpId, reply: MOsdOpReply) {
        let Some(mut op) = self.take_op(id) else { return };
        let out: usize = reply.ops.iter().map(wire::msg::ReplyOp::len).sum();
        match op.origin {
            Origin::Client => self.msgr.send(op.link, reply.encode().with_tid(op.tid)),
            Origin::Peer(osd) => {
                self.copies.answers.push((Some(osd), op.tid, reply));
                return;
            }
            Origin::Own => {
                self.copies.answers.push((None, op.tid, reply));
                return;
            }
        }
        op.trace.mark(self.now.mono, Mark::Done);
        let latency = op.trace.age(self.now.mono);
        self.perf.op_done(op.class.writes, latency, out as u64);
        let ended = Tracked::new(&op.request, op.sender, op.tid, op.trace);
        self.history.ended(self.now.mono, &self.limits.history, ended);
    }

    pub(crate) fn refuse_op(&mut self, id: OpId, error: Errno) {
        let Some(op) = self.ops.get(&id) else { return };
        let reply = MOsdOpReply::refuse(&op.request, self.maps.epoch(), error);
        self.reply_op(id, reply);
    }

    /// Forgets a request without an answer: the client sends it again.
    pub(crate) fn drop_op(&mut self, id: OpId) {
        self.take_op(id);
    }

    /// Forgets a request that finds no room to wait. Its connection is closed: only then does the
    /// client send it again.
    fn send_back(&mut self, id: OpId, fx: &mut Effects) {
        if let Some(op) = self.take_op(id)
            && op.origin == Origin::Client
        {
            let why = format!("too many requests wait for pg {}", op.pgid());
            self.refuse_link(op.link, why, fx);
        }
    }

    fn take_op(&mut self, id: OpId) -> Option<Box<ClientOp>> {
        let op = self.ops.remove(&id)?;
        self.request_bytes -= op.bytes;
        Some(op)
    }

    /// Receives nothing from clients while too many bytes of requests are in flight.
    pub(crate) fn check_request_memory(&mut self, fx: &mut Effects) {
        let limit = self.limits.request_bytes;
        let pause = if self.clients_paused {
            self.request_bytes > limit / 4 * 3
        } else {
            self.request_bytes > limit
        };
        if pause == self.clients_paused {
            return;
        }
        self.clients_paused = pause;
        for link in self.sessions.links() {
            if pause {
                self.msgr.pause(link, fx);
            } else {
                self.msgr.resume(link, fx);
            }
        }
    }

    /// The requests of a PG, in the order they came; but not those that wait for a newer map.
    fn ops_of(&self, pgid: PgId) -> Vec<OpId> {
        let here = |op: &ClientOp| op.pgid() == pgid && !op.waits_for_map;
        let mut ids: Vec<_> =
            self.ops.iter().filter(|(_, op)| here(op)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// A PG's interval is over, and we do not lead it any more: clients hear of it by the map.
    pub(crate) fn drop_ops(&mut self, pgid: PgId) {
        self.ops_of(pgid).into_iter().for_each(|id| self.drop_op(id));
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.forget_requests();
        }
    }

    /// A PG goes through peering, and we lead it still: clients wait for their answers and send
    /// nothing again, so that everything stands in line for when it is active, in the order it came.
    /// A write that is in the log by then is recognised there.
    pub(crate) fn requeue_ops(&mut self, pgid: PgId) {
        let ids = self.ops_of(pgid);
        for id in &ids {
            let Some(op) = self.ops.get_mut(id) else { continue };
            op.attempt += 1;
            op.is_reading = false;
            op.answer = None;
            op.reads = ReadSet::new();
            op.trace.mark(self.now.mono, Mark::WaitingForActive);
        }
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.forget_requests();
            host.waiting = ids.into();
        }
    }

    // ---- PG operations ----

    fn run_pg_op(&mut self, id: OpId, pgid: PgId, fx: &mut Effects) {
        let Some(pool) = self.maps.current().pool(pgid.pool) else { return };
        let pg_num = pool.pg_num;
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.trace.mark(self.now.mono, Mark::Started);
        let range = ListRange::of(pgid, pg_num);
        let reader = Reader { store: &self.store, set: &op.reads };
        let mut reply = MOsdOpReply::answer(&op.request, self.maps.epoch());
        for (i, sub) in op.request.ops.iter().enumerate() {
            let listed = match sub.code {
                OpCode::PGNLS => {
                    let nspace = &op.request.object.nspace;
                    ops::list_objects(reader, sub, nspace, &range)
                }
                OpCode::PGNLS_FILTER => Err(Stop::Fail(Errno::EINVAL)),
                _ => Err(Stop::Fail(Errno::EOPNOTSUPP)),
            };
            match listed {
                Ok((result, out)) => {
                    reply.ops[i].outdata.push(denc::encode(&out));
                    reply.ops[i].rval = result;
                    reply.result = result;
                }
                Err(Stop::Miss(miss)) => {
                    op.trace.mark(self.now.mono, Mark::WaitingForRead);
                    op.is_reading = false;
                    op.attempt += 1;
                    let waiter = Waiter::Op(id, op.attempt);
                    self.fetch(miss, waiter, fx);
                    return;
                }
                Err(Stop::Fail(e)) => {
                    reply.result = e.wire();
                    break;
                }
                Err(_) => {
                    reply.result = Errno::EIO.wire();
                    break;
                }
            }
        }
        self.reply_op(id, reply);
    }

    /// Bytes came for a listing.
    pub(crate) fn is_pg_op(&self, id: OpId) -> bool {
        self.ops.get(&id).is_some_and(|op| op.request.is_for_pg())
    }

    /// Snapshot rules of a pool.
    pub(crate) fn pool_snaps(&mut self, pool: PoolId) -> Rc<PoolSnaps> {
        self.maps.pool_snaps(pool)
    }
}

/// Whether a request can only make things smaller: it is let through when the cluster is full.
fn only_frees(request: &MOsdOp) -> bool {
    let frees = |code: OpCode| {
        matches!(
            code,
            OpCode::DELETE
                | OpCode::OMAPCLEAR
                | OpCode::OMAPRMKEYS
                | OpCode::OMAPRMKEYRANGE
                | OpCode::RMXATTR
                | OpCode::WATCH
        ) || !code.is_write()
    };
    request.ops.iter().all(|op| frees(op.code))
}

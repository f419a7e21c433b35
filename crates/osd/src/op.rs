//! Client requests: from arrival to answer.
//!
//! Order: requests on one object run in the order they came. Reads of an object run together; a
//! write waits for reads that wait for the disk, and a read waits until earlier writes of the object
//! are committed on every copy, so that nobody sees what might be lost. Writes that read nothing
//! follow each other without waiting. A read of a clone that is missing stands aside ([`crate::aside`]).

use crate::daemon::Daemon;
use crate::host::OpId;
use crate::memory::REQUEST_BYTES;
use crate::ops::{Class, CopiedObject, CopySource, Sender, check_request, classify};
use crate::takes::Takes;
use crate::tracker::{Mark, Trace, Tracked};
use crate::write::Answer;
use io::Effects;
use maps::{OsdMapFlags, PgIdExt, PoolFlags};
use peer::mapping;
use store::ReadSet;
use types::{Errno, HObject, HashMap, ObjectKey, OsdId, PgId, ReqId};
use wire::LinkId;
use wire::msg::{MOsdOp, MOsdOpReply, Message, Payload, flags};

/// Operations of a request for a PG as such; clients send one.
const MAX_PG_OPS: usize = 16;

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
    /// What it takes of the disk, as far as is known.
    pub takes: Takes,
    /// Its life.
    pub trace: Trace,
    /// What was fetched for it.
    pub reads: ReadSet,
    /// Other objects that were fetched for it.
    pub copies: Vec<(CopySource, Result<CopiedObject, Errno>)>,
    /// Bytes it counts for in the memory budget.
    pub bytes: usize,
    /// What it counts for in [`ReadRoom`](crate::read_room::ReadRoom).
    pub reading_bytes: usize,
    /// What it counts for in [`WriteRoom`](crate::write_room::WriteRoom).
    pub room_bytes: usize,
    /// It counts as a read in its object's queue.
    pub is_reading: bool,
    /// Counts its attempts: what was fetched for an earlier one is of no interest.
    pub attempt: u32,
    /// The key of its object's head, from the first attempt on.
    pub head_key: Option<ObjectKey>,
    /// It stands in [`Daemon::waiting_ops`], for a newer map or for its PG to be made.
    pub waits_for_map: bool,
    /// What it brought has memory of its own.
    pub stands_alone: bool,
    /// A write in flight: what is answered when it is committed.
    pub answer: Option<Answer>,
}

/// All requests.
pub type Ops = HashMap<OpId, Box<ClientOp>>;

impl ClientOp {
    /// The object whose queue it stands in.
    pub fn head(&self) -> HObject {
        self.request.object.head()
    }

    /// Whether it reads an object for COPY_FROM.
    pub fn is_for_copy(&self) -> bool {
        matches!(self.origin, Origin::Peer(_) | Origin::Own)
    }

    /// It waits for what may take long, and keeps only its own input meanwhile. Whether it did not yet.
    pub fn stand_alone(&mut self) -> bool {
        let is_new = !std::mem::replace(&mut self.stands_alone, true);
        if is_new {
            self.request.stand_alone();
        }
        is_new
    }

    /// The PG it is for.
    pub fn pgid(&self) -> PgId {
        self.request.pgid.pgid
    }
}

/// An attempt to run a request, which waits for room.
#[derive(Debug)]
pub(crate) struct Waiting<W> {
    pub op: OpId,
    pub attempt: u32,
    /// What it asks for.
    pub wants: W,
}

impl<W> Waiting<W> {
    /// Whether it still waits: it is not over, and did not begin anew.
    pub fn is_current(&self, ops: &Ops) -> bool {
        ops.get(&self.op).is_some_and(|op| op.attempt == self.attempt)
    }
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
        self.perf.op_in_bytes += bytes as u64;
        let bytes = bytes + REQUEST_BYTES;
        self.take_in(link, bytes, fx);
        let op = ClientOp {
            origin,
            link,
            tid,
            sender,
            class: classify(&request),
            takes: Takes::by_ops(&request),
            request,
            reqid,
            trace: Trace::begin(self.now),
            reads: ReadSet::new(),
            copies: Vec::new(),
            bytes,
            reading_bytes: 0,
            room_bytes: 0,
            is_reading: false,
            attempt: 0,
            head_key: None,
            waits_for_map: false,
            stands_alone: false,
            answer: None,
        };
        self.ops.insert(id, Box::new(op));
        self.start_op(id, fx);
    }

    /// Takes up a request: for the first time, or after what it waited for has come.
    pub(crate) fn start_op(&mut self, id: OpId, fx: &mut Effects) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        if self.backoffs.hold(op) {
            self.drop_op(id);
            return;
        }
        if op.request.epoch > self.maps.epoch() {
            op.trace.mark(self.now.mono, Mark::WaitingForMap);
            op.stand_alone();
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
        if self.was_split(op) {
            self.drop_op(id);
            return;
        }
        let leads = self.pgs.get(&pgid).filter(|h| h.started && h.pg.is_primary());
        let Some(host) = leads else {
            if self.will_lead(pgid) {
                self.hold_for_pg(id, fx);
            } else if self.is_for_any_copy(op) {
                // Its client sends it to the primary then, and would wait for us for ever.
                self.refuse_op(id, Errno::EAGAIN);
            } else {
                // Not ours: the client sends it again when its map changes.
                self.drop_op(id);
            }
            return;
        };
        let since = host.pg.info().history.same_primary_since;
        if op.request.epoch < since {
            self.drop_op(id);
            return;
        }
        if let Err(e) = self.admit(op) {
            self.refuse_op(id, e);
            return;
        }
        self.pacer.client_came(self.now.mono);
        if self.must_hold_for_space(id) {
            return;
        }
        self.queue_op(id, pgid, fx);
    }

    /// Whether the map says that we lead a PG, though it is not here: it is about to be made. A
    /// client sends nothing again then, as the map does not change for it.
    pub(crate) fn will_lead(&self, pgid: PgId) -> bool {
        let map = self.maps.current();
        map.pool(pgid.pool).is_some() && mapping(map, pgid).acting_primary == Some(self.cfg.id)
    }

    /// Whether its client lets any copy of the PG answer it, and chose ours.
    fn is_for_any_copy(&self, op: &ClientOp) -> bool {
        let anywhere = flags::BALANCE_READS | flags::LOCALIZE_READS;
        let (map, pgid) = (self.maps.current(), op.pgid());
        !op.class.writes
            && op.request.flags & anywhere != 0
            && mapping(map, pgid).acting.contains(&self.cfg.id)
    }

    /// A request waits for its PG to be made; see [`Daemon::release_ops`].
    fn hold_for_pg(&mut self, id: OpId, fx: &mut Effects) {
        if !self.may_hold(id, self.waiting_ops.len()) {
            self.send_back(id, fx);
            return;
        }
        if let Some(op) = self.ops.get_mut(&id) {
            op.trace.mark(self.now.mono, Mark::WaitingForActive);
            op.stand_alone();
            op.waits_for_map = true;
            self.waiting_ops.push(id);
        }
    }

    /// A new map is here, or a PG was made: what waited for it goes on, in the order it came.
    pub(crate) fn release_ops(&mut self, fx: &mut Effects) {
        for id in std::mem::take(&mut self.waiting_ops) {
            self.start_op(id, fx);
        }
    }

    /// The client has not heard yet that its object is in another PG, or that the PG is gone.
    fn was_split(&self, op: &ClientOp) -> bool {
        let Some(pool) = self.maps.current().pool(op.pgid().pool) else { return true };
        if op.request.is_for_pg() {
            return op.pgid().seed >= pool.pg_num;
        }
        !op.pgid().contains_hash(op.request.object.hash, pool.pg_num)
    }

    /// What is refused whatever the state of the PG (guide §5.8).
    fn admit(&self, op: &ClientOp) -> Result<(), Errno> {
        if !op.request.is_for_pg() {
            check_request(&op.request, op.class.writes)?;
        } else if op.request.ops.len() > MAX_PG_OPS {
            return Err(Errno::E2BIG);
        }
        if op.request.data_left_out {
            return Err(Errno::EMSGSIZE);
        }
        if self.is_shut_out(op) { Err(Errno::EBLOCKLISTED) } else { Ok(()) }
    }

    /// Whether its sender is on the blocklist.
    pub(crate) fn is_shut_out(&self, op: &ClientOp) -> bool {
        self.maps.current().is_blocklisted(&op.sender.addr)
    }

    /// Whether a write must wait, or was refused, because the cluster or the pool is full.
    pub(crate) fn must_hold_for_space(&mut self, id: OpId) -> bool {
        let Some(op) = self.ops.get(&id) else { return true };
        let map = self.maps.current();
        let Some(pool) = map.pool(op.pgid().pool) else { return false };
        let quota = pool.flags.contains(PoolFlags::FULL_QUOTA);
        let full =
            quota || pool.flags.contains(PoolFlags::FULL) || map.flags.contains(OsdMapFlags::FULL);
        if !full || !self.needs_space(id, Takes::More) {
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

    /// Whether a request is a write that is to be held when there is no space, if it takes so much.
    pub(crate) fn needs_space(&self, id: OpId, least: Takes) -> bool {
        let Some(op) = self.ops.get(&id) else { return false };
        op.class.writes && !op.request.has_flag(flags::FULL_FORCE) && op.takes >= least
    }

    /// A request waits until its PG as a whole serves.
    fn hold_in_pg(&mut self, id: OpId, pgid: PgId, why: Mark, fx: &mut Effects) {
        self.mark_op(id, why);
        let waiting = self.pgs.get(&pgid).map_or(0, |host| host.waiting.len());
        if !self.may_hold(id, waiting) {
            self.send_back(id, fx);
        } else if let Some(host) = self.pgs.get_mut(&pgid) {
            host.waiting.push_back(id);
            self.ops.get_mut(&id).into_iter().for_each(|op| _ = op.stand_alone());
        }
    }

    fn queue_op(&mut self, id: OpId, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get(&pgid) else { return };
        if !host.pg.accepts_io() {
            self.hold_in_pg(id, pgid, Mark::WaitingForActive, fx);
            return;
        }
        // What came earlier and waits goes first.
        if !host.waiting.is_empty() || self.waits_for_prior(pgid) {
            self.hold_in_pg(id, pgid, Mark::WaitingForReadable, fx);
            return;
        }
        let Some(op) = self.ops.get(&id) else { return };
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if op.request.is_for_pg() {
            self.run_pg_op(id, pgid, fx);
            return;
        }
        let head = op.head();
        let queue = host.objects.entry(head.clone()).or_default();
        if op.is_for_copy() {
            if queue.waiting_copies(&self.ops) >= crate::config::WAITING_COPIES_PER_OBJECT {
                self.send_back(id, fx);
                return;
            }
            queue.urgent.push_back(id);
            self.pump_urgent(pgid, &head, fx);
        } else {
            queue.waiting.push_back(id);
        }
        self.pump_object(pgid, &head, fx);
    }

    pub(crate) fn reply_op(&mut self, id: OpId, reply: MOsdOpReply) {
        let Some(mut op) = self.take_op(id) else { return };
        let out: usize = reply.ops.iter().map(wire::msg::ReplyOp::len).sum();
        match op.origin {
            Origin::Client => {
                self.read_room.answered(out);
                self.msgr.send(op.link, reply.encode().with_tid(op.tid));
            }
            origin => {
                self.copies.answers.push((origin, op.tid, reply));
                return;
            }
        }
        op.trace.mark(self.now.mono, Mark::Done);
        let latency = op.trace.age(self.now.mono);
        self.perf.op_done(op.class.writes, latency, out as u64);
        if self.images_io.is_asked_for() {
            let brought = || op.request.ops.iter().map(|sub| sub.indata.len() as u64).sum();
            let bytes = if op.class.writes { brought() } else { out as u64 };
            self.images_io.count(&op.request.object, op.class.writes, bytes, latency);
        }
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

    /// Forgets a request that finds no room to wait. Its client holds it until there is. The connection of one that
    /// cannot is closed: only then does it send the request again. An OSD that copies is told.
    pub(crate) fn send_back(&mut self, id: OpId, fx: &mut Effects) {
        let Some(op) = self.ops.get(&id) else { return };
        if op.origin != Origin::Client {
            self.refuse_op(id, Errno::EAGAIN);
            return;
        }
        if self.knows_backoffs(op) {
            self.back_off(id);
            return;
        }
        let (link, why) = (op.link, format!("too many requests wait for pg {}", op.pgid()));
        self.drop_op(id);
        self.refuse_link(link, why, fx);
    }

    fn take_op(&mut self, id: OpId) -> Option<Box<ClientOp>> {
        let op = self.ops.remove(&id)?;
        self.let_go(op.link, op.bytes);
        self.read_room.give_back(op.reading_bytes);
        self.write_room.give_back(op.room_bytes);
        Some(op)
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
        self.end_backoffs(pgid);
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.forget_requests();
        }
    }

    /// Requests of a PG whose objects are another PG's now: clients send them there.
    pub(crate) fn drop_moved_ops(&mut self, pgid: PgId) {
        self.end_backoffs(pgid);
        for id in self.ops_of(pgid) {
            if self.ops.get(&id).is_some_and(|op| self.was_split(op)) {
                self.drop_op(id);
            }
        }
    }

    /// A PG goes through peering, and we lead it still: clients wait for their answers and send
    /// nothing again, so that everything stands in line for when it is active, in the order it came.
    /// A write that is in the log by then is recognised there. What had begun when its client was told to hold it comes
    /// again.
    pub(crate) fn requeue_ops(&mut self, pgid: PgId) {
        let mut ids = self.ops_of(pgid);
        for id in &ids {
            let has_gone = |op: &ClientOp| self.sessions.has_left(op) || self.backoffs.hold(op);
            if self.ops.get(id).is_some_and(|op| has_gone(op)) {
                self.drop_op(*id);
            }
            let Some(op) = self.ops.get_mut(id) else { continue };
            op.attempt += 1;
            op.is_reading = false;
            self.read_room.give_back(std::mem::take(&mut op.reading_bytes));
            self.write_room.give_back(std::mem::take(&mut op.room_bytes));
            op.answer = None;
            op.reads = ReadSet::new();
            op.copies = Vec::new();
            op.trace.mark(self.now.mono, Mark::WaitingForActive);
        }
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.forget_requests();
            ids.retain(|id| self.ops.contains_key(id));
            host.waiting = ids.into();
        }
    }
}

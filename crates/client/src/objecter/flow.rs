//! A request's way: submitted, aimed, sent, ended.

use super::target::{Aim, Target, Verdict};
use super::{Cx, Due, Objecter, Op, PoolCheck, Purpose, Request, Session};
use crate::error::{Busy, ClientError};
use crate::mon::{Asker, MonRequest, Question};
use crate::op::ObjectOp;
use crate::outcome::RequestId;
use std::time::Duration;
use types::{Epoch, Errno, SnapId, UTime};
use wire::msg::{MOsdOp, Payload, flags};

impl Objecter {
    /// Takes a request on, or gives it back when there is no room.
    pub fn submit(&mut self, cx: &mut Cx<'_>, id: RequestId, op: ObjectOp) -> Result<(), Busy> {
        let cost = op.cost();
        if !self.has_room(cost) {
            return Err(Busy(Box::new(op)));
        }
        self.begin_user(cx, id, op, cost);
        Ok(())
    }

    pub(super) fn begin_user(&mut self, cx: &mut Cx<'_>, id: RequestId, op: ObjectOp, cost: usize) {
        self.begin_op(cx, Purpose::User(id), op, cost);
    }

    /// A request whose end nobody waits for.
    pub(super) fn begin_quietly(&mut self, cx: &mut Cx<'_>, op: ObjectOp) {
        self.begin_op(cx, Purpose::Quiet, op, 0);
    }

    fn begin_op(&mut self, cx: &mut Cx<'_>, purpose: Purpose, op: ObjectOp, cost: usize) {
        let writes = op.is_write();
        let flags = op.wire_flags();
        let mtime = match op.mtime {
            Some(mtime) => mtime,
            None if writes => cx.now.wall,
            None => UTime::ZERO,
        };
        let timeout = op.timeout.or(self.default_timeout);
        // What is written is always the head.
        let snap = if writes { SnapId::HEAD } else { op.snap };
        let request = Request { ops: op.ops, snap, snapc: op.snapc, mtime };
        let target = Target::new(Aim::Object(op.object), flags);
        let tid = self.begin(cx, purpose, request, target, cost);
        self.limit(cx, tid, timeout);
    }

    /// Sets the time limit of a request that may have ended already.
    pub(super) fn limit(&mut self, cx: &mut Cx<'_>, tid: u64, timeout: Option<Duration>) {
        if let (Some(timeout), Some(op)) = (timeout, self.ops.get_mut(&tid)) {
            let at = cx.now.mono.after(timeout);
            op.timer = Some((at, cx.timers.set(at, Due::Op(tid))));
        }
    }

    pub(super) fn begin(
        &mut self,
        cx: &mut Cx<'_>,
        purpose: Purpose,
        request: Request,
        target: Target,
        cost: usize,
    ) -> u64 {
        let op = Box::new(Op {
            purpose,
            request,
            target,
            session: None,
            sent: false,
            attempts: 0,
            sent_at: cx.now.mono,
            pool_bound: None,
            turned_away: 0,
            cost,
            timer: None,
        });
        if op.purpose.is_bounded() {
            self.in_flight.0 = self.in_flight.0.saturating_add(1);
            self.in_flight.1 = self.in_flight.1.saturating_add(cost);
        }
        self.enter(cx, op)
    }

    /// Gives a request its number, aims and sends it.
    pub(super) fn enter(&mut self, cx: &mut Cx<'_>, op: Box<Op>) -> u64 {
        self.last_tid = self.last_tid.saturating_add(1);
        self.ops.insert(self.last_tid, op);
        let tid = self.last_tid;
        self.place(cx, tid);
        tid
    }

    /// Aims a request by the newest map, and sends it if nothing hinders.
    pub(super) fn place(&mut self, cx: &mut Cx<'_>, tid: u64) {
        let Some(op) = self.ops.get_mut(&tid) else {
            return self.place_tell(cx, tid);
        };
        let Some(view) = &mut self.view else {
            cx.mon.want_osdmap(Epoch::ZERO);
            return;
        };
        match op.target.aim_at(view, false) {
            Verdict::Same | Verdict::Send => {
                self.assign(cx, tid);
                self.send(cx, tid);
            }
            Verdict::NoPool => self.check_pool(cx, tid),
            Verdict::PoolBroken => {
                self.fail(cx, tid, Errno::EIO, "the pool is marked as broken (flag eio)");
            }
        }
    }

    /// Moves a request to the session of the OSD it is aimed at.
    pub(super) fn assign(&mut self, cx: &mut Cx<'_>, tid: u64) {
        let Some(op) = self.ops.get_mut(&tid) else {
            return;
        };
        let addrs = |osd| self.view.as_ref().and_then(|v| v.map.client_addrs(osd));
        let wanted = op.target.osd.and_then(|osd| Some((osd, addrs(osd)?)));
        let to = wanted.as_ref().map(|(osd, _)| *osd);
        if op.session != to {
            if let Some(old) = op.session.and_then(|osd| self.sessions.get_mut(&osd)) {
                old.ops.remove(&tid);
            }
            op.session = to;
            op.sent = false;
        }
        if let Some((osd, addrs)) = wanted {
            let session = self.sessions.entry(osd).or_insert_with(|| {
                self.to_dial.insert(osd, cx.now.mono);
                Session::new(addrs.clone(), cx.now.mono)
            });
            session.ops.insert(tid);
        }
    }

    /// Sends a request unless something hinders.
    pub(super) fn send(&mut self, cx: &mut Cx<'_>, tid: u64) {
        let Some(op) = self.ops.get_mut(&tid) else {
            return self.send_tell(cx, tid);
        };
        let Some(view) = &self.view else {
            return;
        };
        let session = op.session.and_then(|osd| self.sessions.get(&osd));
        let Some(session) = session.filter(|_| !op.target.paused) else {
            // Only a newer map can help.
            cx.mon.want_osdmap(view.map.epoch.next());
            return;
        };
        let Some(link) = session.link() else {
            return;
        };
        let object = op.target.object(op.request.snap);
        if session.backoffs.holds(op.target.pgid, &object) {
            return;
        }
        let retry = if op.attempts > 0 { flags::RETRY } else { 0 };
        let locator_hash = match op.target.aim {
            Aim::Object(_) => -1,
            Aim::Pg { hash, .. } => i64::from(hash),
        };
        let message = MOsdOp {
            pgid: op.target.pgid,
            object,
            locator_pool: op.target.pool(),
            locator_hash,
            epoch: view.map.epoch,
            flags: op.target.flags | retry,
            mtime: op.request.mtime,
            ops: op.request.ops.clone(),
            snapc: op.request.snapc.clone(),
            retry_attempt: op.attempts,
            ..MOsdOp::default()
        };
        op.sent = true;
        op.sent_at = cx.now.mono;
        op.attempts = op.attempts.saturating_add(1);
        cx.msgr.send(link, message.encode().with_tid(tid));
    }

    /// Takes a request off all books.
    pub(super) fn remove(&mut self, cx: &mut Cx<'_>, tid: u64) -> Option<Box<Op>> {
        let op = self.ops.remove(&tid)?;
        if let Some(session) = op.session.and_then(|osd| self.sessions.get_mut(&osd)) {
            session.ops.remove(&tid);
        }
        if let Some((_, timer)) = op.timer {
            cx.timers.cancel(timer);
        }
        if op.purpose.is_bounded() {
            self.in_flight.0 = self.in_flight.0.saturating_sub(1);
            self.in_flight.1 = self.in_flight.1.saturating_sub(op.cost);
        }
        Some(op)
    }

    /// Ends a request that no OSD answered.
    pub(super) fn fail(&mut self, cx: &mut Cx<'_>, tid: u64, errno: Errno, why: &'static str) {
        let Some(op) = self.remove(cx, tid) else {
            return;
        };
        let error = ClientError::new(errno, op.describe(), why);
        self.end(cx, op.purpose, Err(error));
    }

    /// The time limit of a request has come.
    pub fn time_out(&mut self, cx: &mut Cx<'_>, tid: u64) {
        let waits = self.ops.get(&tid).map(|op| self.waits_for(op));
        let Some(op) = self.remove(cx, tid) else {
            return self.time_out_tell(cx, tid);
        };
        let why = waits.map_or(String::new(), |w| format!("it waited {w}"));
        let error = ClientError::new(Errno::ETIMEDOUT, op.describe(), why);
        self.end(cx, op.purpose, Err(error));
    }

    /// The user does not want a request any more. Whether there was one.
    pub fn cancel(&mut self, cx: &mut Cx<'_>, id: RequestId) -> bool {
        let is_it = |op: &Op| match op.purpose {
            Purpose::User(other) | Purpose::List(other, _) => other == id,
            _ => false,
        };
        let found = self.ops.iter().find(|(_, op)| is_it(op)).map(|(tid, _)| *tid);
        if let Some(tid) = found {
            self.fail(cx, tid, Errno::ECANCELED, "cancelled; a write may have happened or not");
        }
        found.is_some()
    }
}

// ---- pools that are not there ----

impl Objecter {
    /// The pool of a request is not in the map: is it gone, or is the map old?
    pub(super) fn check_pool(&mut self, cx: &mut Cx<'_>, tid: u64) {
        let epoch = self.epoch();
        self.assign(cx, tid);
        let Some(op) = self.ops.get(&tid) else {
            return;
        };
        if op.attempts > 0 {
            // It was there when the request was sent first.
            return self.fail(cx, tid, Errno::ENOENT, "the pool was deleted");
        }
        match op.pool_bound {
            Some(bound) if bound <= epoch => {
                self.fail(cx, tid, Errno::ENOENT, "there is no such pool");
            }
            Some(_) => cx.mon.want_osdmap(epoch.next()),
            None if self.pool_check.is_pending(tid) => {}
            None => {
                self.pool_check.queued.push(tid);
                self.ask_for_pools(cx);
            }
        }
    }

    pub(super) fn ask_for_pools(&mut self, cx: &mut Cx<'_>) {
        if self.pool_check.asked.is_some() || self.pool_check.queued.is_empty() {
            return;
        }
        self.pool_check.asked = Some(std::mem::take(&mut self.pool_check.queued));
        let question = Question::GetVersion("osdmap".to_owned());
        let what = "version of the osdmap".to_owned();
        cx.mon.ask(MonRequest { asker: Asker::MapCheck, question, what }, cx.msgr);
    }

    /// The mon said what the newest map is.
    pub fn on_map_check(&mut self, cx: &mut Cx<'_>, newest: Epoch) {
        for tid in self.pool_check.asked.take().unwrap_or_default() {
            if let Some(op) = self.ops.get_mut(&tid) {
                op.pool_bound = Some(newest);
                self.place(cx, tid);
            }
        }
        self.ask_for_pools(cx);
    }
}

impl PoolCheck {
    pub(super) fn is_pending(&self, tid: u64) -> bool {
        let asked = self.asked.iter().flatten();
        asked.chain(&self.queued).any(|t| *t == tid)
    }
}

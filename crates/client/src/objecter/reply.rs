//! What OSDs answer.

use super::session::in_range;
use super::{Cx, Objecter, Op, Purpose};
use crate::error::{ClientError, errno_of};
use crate::outcome::Outcome;
use crate::reply::OpReply;
use types::{Errno, OsdId};
use wire::LinkId;
use wire::msg::{BackoffOp, MOsdBackoff, MOsdOpReply, Payload, flags};

/// After so many EAGAINs the user gets it: the cluster does not know who serves the object.
const MAX_TURNED_AWAY: u32 = 100;

type Answer = Result<OpReply, ClientError>;

impl Objecter {
    /// The answer to a request. Stale ones are dropped.
    pub fn on_reply(&mut self, cx: &mut Cx<'_>, from: OsdId, tid: u64, reply: MOsdOpReply) {
        let Some(op) = self.ops.get(&tid).filter(|op| op.session == Some(from)) else {
            return;
        };
        let attempt = op.attempts.saturating_sub(1);
        if reply.retry_attempt >= 0 && reply.retry_attempt != attempt {
            tracing::debug!(tid, attempt, answered = reply.retry_attempt, "a stale reply");
            return;
        }
        if reply.result == Errno::EAGAIN.wire() && op.turned_away < MAX_TURNED_AWAY {
            return self.try_primary(cx, tid);
        }
        let Some(op) = self.remove(cx, tid) else {
            return;
        };
        let epoch = reply.epoch;
        let answer = judge(&op, from, reply);
        self.end(cx, op.purpose, answer);
        if epoch > self.epoch() && !self.ops.is_empty() {
            cx.mon.want_osdmap(self.next_epoch());
        }
    }

    /// The OSD cannot say: again, as a new request, to the primary.
    fn try_primary(&mut self, cx: &mut Cx<'_>, tid: u64) {
        let Some(mut op) = self.ops.remove(&tid) else {
            return;
        };
        if let Some(session) = op.session.and_then(|osd| self.sessions.get_mut(&osd)) {
            session.ops.remove(&tid);
        }
        op.target.flags &= !(flags::BALANCE_READS | flags::LOCALIZE_READS);
        op.target.reset();
        op.session = None;
        op.sent = false;
        op.attempts = 0;
        op.turned_away = op.turned_away.saturating_add(1);
        let limit = op.timer.take().map(|(at, timer)| {
            cx.timers.cancel(timer);
            at
        });
        let register = match op.purpose {
            Purpose::Register(cookie) => Some(cookie),
            _ => None,
        };
        let tid = self.enter(cx, op);
        if let (Some(at), Some(op)) = (limit, self.ops.get_mut(&tid)) {
            op.timer = Some((at, cx.timers.set(at, super::Due::Op(tid))));
        }
        if let Some(linger) = register.and_then(|cookie| self.lingers.get_mut(&cookie)) {
            linger.register_tid = Some(tid);
        }
    }

    /// Tells whoever waits for a request how it ended.
    pub(super) fn end(&mut self, cx: &mut Cx<'_>, purpose: Purpose, answer: Answer) {
        match purpose {
            Purpose::User(id) => cx.complete(id, Outcome::Op(answer)),
            Purpose::List(id, from) => cx.complete(id, Outcome::Page(from.page(answer))),
            Purpose::Register(cookie) => self.on_registered(cx, cookie, answer),
            Purpose::Ping { cookie, generation, sent } => {
                self.on_pinged(cx, cookie, generation, sent, answer);
            }
            Purpose::Quiet => {
                if let Err(error) = answer {
                    tracing::debug!(%error, "a request nobody waits for failed");
                }
            }
        }
    }

    /// An OSD asks for patience, or ends it. Whether it may ask for that much.
    pub fn on_backoff(
        &mut self,
        cx: &mut Cx<'_>,
        from: OsdId,
        link: LinkId,
        m: MOsdBackoff,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(&from) else {
            return true;
        };
        match m.op {
            BackoffOp::Block => {
                let (begin, end) = (m.begin.clone(), m.end.clone());
                if !session.backoffs.add(m.pgid, m.id, begin, end) {
                    return false;
                }
                let ack = MOsdBackoff { op: BackoffOp::AckBlock, ..m };
                // The OSD may have dropped what is in the range: it is sent again when it unblocks.
                cx.msgr.send(link, ack.encode());
            }
            BackoffOp::Unblock => {
                session.backoffs.remove(m.id);
                let tids: Vec<u64> = session.ops.iter().copied().collect();
                let concerned = |op: &&mut Box<Op>| {
                    let object = op.target.object(op.request.snap);
                    op.target.pgid == m.pgid && in_range(&object, &m.begin, &m.end)
                };
                for tid in tids {
                    if self.ops.get_mut(&tid).filter(concerned).is_some() {
                        self.send(cx, tid);
                    }
                }
            }
            BackoffOp::AckBlock => {}
        }
        true
    }
}

fn judge(op: &Op, from: OsdId, reply: MOsdOpReply) -> Answer {
    let redirected = reply.redirect.is_some();
    let result = reply.result;
    let missing = reply.ops.len() != op.request.ops.len();
    let reply = OpReply::from(reply);
    if result < 0 {
        let mut error = ClientError::new(errno_of(result), op.describe(), "");
        error.reply = Some(Box::new(reply));
        return Err(error);
    }
    if redirected {
        let why = format!("osd.{from} redirects to another pool; cache tiers are not supported");
        return Err(ClientError::new(Errno::EOPNOTSUPP, op.describe(), why));
    }
    if missing {
        let why = format!("osd.{from} answered other operations than were asked");
        return Err(ClientError::new(Errno::EIO, op.describe(), why));
    }
    Ok(reply)
}

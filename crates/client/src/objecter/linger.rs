//! Watches and notifies: requests that outlive their answer.
//!
//! A watch is registered by a write, stays at the PG's primary, and is kept alive by pings. When the
//! link is lost or the PG's OSDs change, it is registered again (RECONNECT); an OSD that does not
//! know it any more says so, and then the watch is lost for good: notifies may have been missed, so
//! the user must look for himself. A notify is one request whose result comes later as a message; it
//! is sent again from the start until that comes.
//!
//! Time limits are those of requests on objects (`op_timeout`), over all registrations together: for a watch
//! until it is registered the first time, for a notify until its result is there.

use super::target::{Aim, Target, Verdict};
use super::{Cx, Due, Objecter, Purpose, Request};
use crate::error::{ClientError, errno_of};
use crate::op::{Object, ObjectOp};
use crate::outcome::{NotifyResult, Outcome, RequestId};
use crate::reply::OpReply;
use bytes::Bytes;
use io::TimerId;
use maps::OsdMapFlags;
use std::time::Duration;
use types::{Errno, Mono, OsdId, SnapId, UTime};
use wire::msg::op::{self, OpCode, watch_op};
use wire::msg::op_data::{NotifyAckIn, NotifyIn, NotifyReplies};
use wire::msg::{MWatchNotify, Ops, OsdOp, SnapContext, WatchEvent, flags};

/// How long an OSD waits for answers to a notify that does not say it (`osd_default_notify_timeout`).
const DEFAULT_NOTIFY_S: u32 = 30;

/// What is kept.
#[derive(Debug)]
enum Kind {
    Watch { timeout_s: u32 },
    Notify { timeout_s: u32, payload: Bytes, notify_id: Option<u64> },
}

#[derive(Debug)]
pub(super) struct Linger {
    kind: Kind,
    pub target: Target,
    registered: bool,
    /// Counts the reconnects.
    generation: u32,
    /// The request that registers it.
    pub register_tid: Option<u64>,
    /// A ping without an answer yet.
    ping_tid: Option<u64>,
    /// When the last ping that was answered well was sent.
    valid_since: Mono,
    /// The watch was lost.
    lost: Option<Errno>,
    /// Its time limit, for as long as it has one.
    timer: Option<TimerId>,
}

/// A watch, as its user sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watcher {
    /// It was good at this time.
    Alive(Mono),
    /// It is lost.
    Lost(Errno),
}

impl Linger {
    fn new(kind: Kind, object: Object, now: Mono) -> Self {
        let flag = match kind {
            // A watch takes no space. One that is not registered again as the pool is full would be lost, and who
            // holds a lock by it be taken for dead.
            Kind::Watch { .. } => flags::WRITE | flags::FULL_TRY,
            Kind::Notify { .. } => flags::READ,
        };
        let flags = flag | flags::ONDISK | flags::KNOWN_IF_REDIRECTED;
        Linger {
            kind,
            target: Target::new(Aim::Object(object), flags),
            registered: false,
            generation: 0,
            register_tid: None,
            ping_tid: None,
            valid_since: now,
            lost: None,
            timer: None,
        }
    }

    /// How long it takes when all is well, beside what any request takes.
    fn patience(&self) -> Duration {
        let secs = match self.kind {
            Kind::Watch { .. } => 0,
            Kind::Notify { timeout_s: 0, .. } => DEFAULT_NOTIFY_S,
            Kind::Notify { timeout_s, .. } => timeout_s,
        };
        Duration::from_secs(u64::from(secs))
    }

    pub fn is_alive(&self) -> bool {
        self.lost.is_none()
    }

    fn is_watch(&self) -> bool {
        matches!(self.kind, Kind::Watch { .. })
    }

    /// The operation that registers it, or registers it again.
    fn operation(&mut self, cookie: u64) -> OsdOp {
        match &self.kind {
            Kind::Watch { .. } if self.registered => {
                self.generation = self.generation.saturating_add(1);
                watch(cookie, watch_op::RECONNECT, self.generation, 0)
            }
            Kind::Watch { timeout_s } => watch(cookie, watch_op::WATCH, 0, *timeout_s),
            Kind::Notify { timeout_s, payload, .. } => {
                let ask = NotifyIn { timeout_s: *timeout_s, payload: payload.clone() };
                OsdOp::new(OpCode::NOTIFY, op::Notify { cookie }).with_indata(denc::encode(&ask))
            }
        }
    }
}

fn watch(cookie: u64, op: u8, generation: u32, timeout_s: u32) -> OsdOp {
    OsdOp::new(OpCode::WATCH, op::Watch { cookie, version: 0, op, generation, timeout_s })
}

/// Ends a watch. It takes no space, so that it goes also to a pool that is full.
fn end_of_watch(object: Object, cookie: u64) -> ObjectOp {
    ObjectOp::new(object).op(watch(cookie, watch_op::UNWATCH, 0, 0)).full_try()
}

/// An OSD that knows no such object knows no such watch.
fn normalized(errno: Errno) -> Errno {
    if errno == Errno::ENOENT { Errno::ENOTCONN } else { errno }
}

// ---- for the user ----

impl Objecter {
    pub fn watch(&mut self, cx: &mut Cx<'_>, id: RequestId, object: Object, timeout_s: u32) {
        let kind = Kind::Watch { timeout_s };
        self.begin_linger(cx, id, Linger::new(kind, object, cx.now.mono));
    }

    pub fn notify(
        &mut self,
        cx: &mut Cx<'_>,
        id: RequestId,
        object: Object,
        payload: Bytes,
        timeout_s: u32,
    ) {
        let kind = Kind::Notify { timeout_s, payload, notify_id: None };
        self.begin_linger(cx, id, Linger::new(kind, object, cx.now.mono));
    }

    fn begin_linger(&mut self, cx: &mut Cx<'_>, id: RequestId, mut linger: Linger) {
        if let Some(limit) = self.default_timeout {
            let at = cx.now.mono.after(limit.saturating_add(linger.patience()));
            linger.timer = Some(cx.timers.set(at, Due::Linger(id.0)));
        }
        self.lingers.insert(id.0, linger);
        self.register(cx, id.0);
    }

    /// Ends a watch, also a lost one. `None` when there is none.
    pub fn unwatch(&mut self, cx: &mut Cx<'_>, id: RequestId, watch_id: RequestId) -> Option<()> {
        let linger = self.remove_linger(cx, watch_id.0)?;
        let Aim::Object(object) = linger.target.aim else {
            return None;
        };
        self.begin_user(cx, id, end_of_watch(object, watch_id.0), 0);
        Some(())
    }

    /// Answers a notify that came to a watch.
    pub fn notify_ack(&mut self, cx: &mut Cx<'_>, watch_id: RequestId, id: u64, reply: Bytes) {
        let Some(linger) = self.lingers.get(&watch_id.0) else {
            return;
        };
        let ack = NotifyAckIn { notify_id: id, cookie: watch_id.0, reply };
        let args = op::Watch { cookie: id, ..op::Watch::default() };
        let op = OsdOp::new(OpCode::NOTIFY_ACK, args).with_indata(denc::encode(&ack));
        let flags = flags::READ | flags::ONDISK | flags::KNOWN_IF_REDIRECTED;
        let target = Target::new(linger.target.aim.clone(), flags);
        let request = Request::read(Ops::from_iter([op]));
        let tid = self.begin(cx, Purpose::Quiet, request, target, 0);
        self.limit(cx, tid, self.default_timeout);
    }

    pub fn watcher(&self, id: RequestId) -> Option<Watcher> {
        let linger = self.lingers.get(&id.0).filter(|l| l.is_watch())?;
        Some(linger.lost.map_or(Watcher::Alive(linger.valid_since), Watcher::Lost))
    }
}

// ---- keeping them ----

impl Objecter {
    /// Takes a linger and its requests off the books.
    fn remove_linger(&mut self, cx: &mut Cx<'_>, cookie: u64) -> Option<Linger> {
        let linger = self.lingers.remove(&cookie)?;
        for tid in linger.register_tid.into_iter().chain(linger.ping_tid) {
            self.remove(cx, tid);
        }
        if let Some(timer) = linger.timer {
            cx.timers.cancel(timer);
        }
        Some(linger)
    }

    /// The time limit of a watch that is not registered, or of a notify, has come.
    pub fn time_out_linger(&mut self, cx: &mut Cx<'_>, cookie: u64) {
        let registration = self.lingers.get(&cookie).and_then(|l| l.register_tid);
        let registration = registration.and_then(|tid| self.ops.get(&tid));
        let waits = registration.map(|op| format!("it waited {}", self.waits_for(op)));
        let Some(linger) = self.remove_linger(cx, cookie) else {
            return;
        };
        let (id, aim) = (RequestId(cookie), &linger.target.aim);
        let verb = if linger.is_watch() { "watch" } else { "notify" };
        let why = waits.unwrap_or_else(|| "the OSD has not said that it is over".to_owned());
        let error = ClientError::new(Errno::ETIMEDOUT, format!("{verb} of {aim}"), why);
        if !linger.is_watch() {
            return cx.complete(id, Outcome::NotifyDone(Err(error)));
        }
        cx.complete(id, Outcome::Watching(Err(error)));
        // It may be registered nevertheless: then others would think that somebody is there.
        if let Aim::Object(object) = linger.target.aim {
            self.begin_quietly(cx, end_of_watch(object, cookie));
        }
    }

    /// Registers a watch or notify, for the first time or again.
    pub(super) fn register(&mut self, cx: &mut Cx<'_>, cookie: u64) {
        let Some(linger) = self.lingers.get_mut(&cookie).filter(|l| l.is_alive()) else {
            return;
        };
        if let Some(view) = &mut self.view {
            linger.target.aim_at(view, true);
        }
        if let Kind::Notify { notify_id, .. } = &mut linger.kind {
            // It will be another one, and may be complete before its number is known.
            *notify_id = None;
        }
        let op = linger.operation(cookie);
        let target = Target::new(linger.target.aim.clone(), linger.target.flags);
        let is_watch = linger.is_watch();
        let old = [linger.register_tid.take(), linger.ping_tid.take()];
        for tid in old.into_iter().flatten() {
            self.remove(cx, tid);
        }
        let mtime = if is_watch { cx.now.wall } else { UTime::ZERO };
        let (ops, snapc) = (Ops::from_iter([op]), SnapContext::default());
        let request = Request { ops, snap: SnapId::HEAD, snapc, mtime };
        let tid = self.begin(cx, Purpose::Register(cookie), request, target, 0);
        // It may have failed at once and taken the linger with it.
        if let Some(linger) = self.lingers.get_mut(&cookie)
            && self.ops.contains_key(&tid)
        {
            linger.register_tid = Some(tid);
        }
    }

    /// The session with an OSD is gone: what lingers there is registered anew.
    pub(super) fn register_all_of(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        let there = self.lingers.iter().filter(|(_, l)| l.is_alive() && l.target.osd == Some(osd));
        let cookies: Vec<u64> = there.map(|(cookie, _)| *cookie).collect();
        for cookie in cookies {
            self.register(cx, cookie);
        }
    }

    /// All watches that are not lost, and notifies.
    pub(super) fn living_lingers(&self) -> impl Iterator<Item = u64> {
        self.lingers.iter().filter(|(_, l)| l.is_alive()).map(|(cookie, _)| *cookie)
    }

    /// Which watches and notifies the newest map moves.
    pub(super) fn moved_lingers(&mut self) -> Vec<u64> {
        let Some(view) = &mut self.view else {
            return Vec::new();
        };
        let mut moved = Vec::new();
        for (cookie, linger) in self.lingers.iter_mut().filter(|(_, l)| l.is_alive()) {
            if linger.target.aim_at(view, true) != Verdict::Same {
                moved.push(*cookie);
            }
        }
        moved
    }

    pub(super) fn on_registered(
        &mut self,
        cx: &mut Cx<'_>,
        cookie: u64,
        answer: Result<OpReply, ClientError>,
    ) {
        let Some(linger) = self.lingers.get_mut(&cookie) else {
            return;
        };
        let id = RequestId(cookie);
        linger.register_tid = None;
        let first = !std::mem::replace(&mut linger.registered, answer.is_ok());
        match (&mut linger.kind, answer) {
            (Kind::Watch { .. }, Ok(_)) => {
                linger.valid_since = cx.now.mono;
                if let Some(timer) = linger.timer.take() {
                    cx.timers.cancel(timer);
                }
                if first {
                    cx.complete(id, Outcome::Watching(Ok(())));
                }
            }
            (Kind::Watch { .. }, Err(error)) if first => {
                self.remove_linger(cx, cookie);
                cx.complete(id, Outcome::Watching(Err(error)));
            }
            (Kind::Watch { .. }, Err(error)) => self.lose(cx, cookie, error.errno),
            (Kind::Notify { notify_id, .. }, Ok(reply)) => {
                *notify_id = reply.bytes(0).ok().and_then(|b| denc::decode(&b).ok());
            }
            (Kind::Notify { .. }, Err(error)) => {
                self.remove_linger(cx, cookie);
                cx.complete(id, Outcome::NotifyDone(Err(error)));
            }
        }
    }

    /// A watch is over; the user is told once.
    fn lose(&mut self, cx: &mut Cx<'_>, cookie: u64, errno: Errno) {
        let Some(linger) = self.lingers.get_mut(&cookie).filter(|l| l.is_alive()) else {
            return;
        };
        let errno = normalized(errno);
        linger.lost = Some(errno);
        let old = [linger.register_tid.take(), linger.ping_tid.take()];
        let error = ClientError::new(
            errno,
            format!("watch of {}", linger.target.aim),
            "the cluster has dropped it; notifies may have been missed",
        );
        for tid in old.into_iter().flatten() {
            self.remove(cx, tid);
        }
        cx.complete(RequestId(cookie), Outcome::WatchLost(error));
    }

    pub(super) fn ping_watches(&mut self, cx: &mut Cx<'_>) {
        let paused = |m: &maps::OsdMap| m.flags.contains(OsdMapFlags::PAUSERD);
        if self.map().is_none_or(|m| paused(m)) {
            return;
        }
        let due = self
            .lingers
            .iter()
            .filter(|(_, l)| l.is_watch() && l.is_alive() && l.registered && l.ping_tid.is_none());
        let due: Vec<(u64, u32, Aim)> =
            due.map(|(c, l)| (*c, l.generation, l.target.aim.clone())).collect();
        for (cookie, generation, aim) in due {
            let op = watch(cookie, watch_op::PING, generation, 0);
            let flags = flags::READ | flags::ONDISK | flags::KNOWN_IF_REDIRECTED;
            let purpose = Purpose::Ping { cookie, generation, sent: cx.now.mono };
            let request = Request::read(Ops::from_iter([op]));
            let tid = self.begin(cx, purpose, request, Target::new(aim, flags), 0);
            if let Some(linger) = self.lingers.get_mut(&cookie)
                && self.ops.contains_key(&tid)
            {
                linger.ping_tid = Some(tid);
            }
        }
    }

    /// A registration or ping is not on its way any more.
    pub(super) fn forget(&mut self, tid: u64) {
        for linger in self.lingers.values_mut() {
            for own in [&mut linger.register_tid, &mut linger.ping_tid] {
                own.take_if(|own| *own == tid);
            }
        }
    }

    pub(super) fn on_pinged(
        &mut self,
        cx: &mut Cx<'_>,
        cookie: u64,
        generation: u32,
        sent: Mono,
        answer: Result<OpReply, ClientError>,
    ) {
        let Some(linger) = self.lingers.get_mut(&cookie) else {
            return;
        };
        linger.ping_tid = None;
        if linger.generation != generation {
            return;
        }
        match answer {
            Ok(_) => linger.valid_since = sent,
            Err(error) => self.lose(cx, cookie, error.errno),
        }
    }

    /// A message about a watch or notify.
    pub fn on_watch_notify(&mut self, cx: &mut Cx<'_>, m: MWatchNotify) {
        let Some(linger) = self.lingers.get_mut(&m.cookie) else {
            return;
        };
        let id = RequestId(m.cookie);
        match (m.event, &linger.kind) {
            (WatchEvent::Disconnect, Kind::Watch { .. }) => {
                self.lose(cx, m.cookie, Errno::ENOTCONN);
            }
            (WatchEvent::Notify, Kind::Watch { .. }) if linger.is_alive() => {
                let (notify_id, notifier) = (m.notify_id, m.notifier_gid);
                cx.complete(id, Outcome::Notified { notify_id, notifier, payload: m.payload });
            }
            (WatchEvent::NotifyComplete, Kind::Notify { notify_id, .. })
                if notify_id.is_none_or(|n| n == m.notify_id) =>
            {
                let what = format!("notify of {}", linger.target.aim);
                self.remove_linger(cx, m.cookie);
                cx.complete(id, Outcome::NotifyDone(notify_result(&m, what)));
            }
            _ => {}
        }
    }
}

/// Missing answers are part of the result; any other trouble is an error.
fn notify_result(m: &MWatchNotify, what: String) -> Result<NotifyResult, ClientError> {
    if m.return_code < 0 && m.return_code != Errno::ETIMEDOUT.wire() {
        return Err(ClientError::new(errno_of(m.return_code), what, ""));
    }
    match denc::decode::<NotifyReplies>(&m.data) {
        Ok(all) => {
            Ok(NotifyResult { replies: all.replies.into_iter().collect(), missed: all.missed })
        }
        Err(e) => {
            let why = format!("the OSD's answer is malformed: {e}");
            Err(ClientError::new(Errno::EIO, what, why))
        }
    }
}

//! Commands to one OSD (`ceph tell osd.N`), as `Objecter::submit_command`: they go with the requests of
//! its session and are sent again when the link was lost, so that one may be carried out twice. When the
//! OSD is down there is nobody to ask. They have the time limit of requests on objects.

use super::session::Session;
use super::{Cx, Due, Objecter};
use crate::error::ClientError;
use crate::outcome::{CommandReply, Outcome, RequestId};
use bytes::Bytes;
use io::TimerId;
use std::borrow::Cow;
use types::{Epoch, Errno, OsdId};
use wire::msg::{MCommand, MCommandReply, Payload};

/// A command without an answer.
#[derive(Debug)]
pub(super) struct Tell {
    id: RequestId,
    osd: OsdId,
    json: String,
    input: Bytes,
    pub sent: bool,
    /// Its time limit.
    timer: Option<TimerId>,
}

impl Tell {
    fn describe(&self) -> String {
        format!("command {} to osd.{}", self.json, self.osd)
    }
}

impl Objecter {
    /// Asks an OSD for a command.
    pub fn tell(
        &mut self,
        cx: &mut Cx<'_>,
        id: RequestId,
        osd: OsdId,
        (json, input): (String, Bytes),
    ) {
        self.last_tid = self.last_tid.saturating_add(1);
        let tid = self.last_tid;
        let at = self.default_timeout.map(|limit| cx.now.mono.after(limit));
        let timer = at.map(|at| cx.timers.set(at, Due::Op(tid)));
        self.tells.insert(tid, Tell { id, osd, json, input, sent: false, timer });
        self.place_tell(cx, tid);
    }

    /// Puts a command on the session of its OSD, and sends it when there is a link.
    pub(super) fn place_tell(&mut self, cx: &mut Cx<'_>, tid: u64) {
        let Some(osd) = self.tells.get(&tid).map(|t| t.osd) else { return };
        let Some(view) = &self.view else {
            cx.mon.want_osdmap(Epoch::ZERO);
            return;
        };
        let Some(addrs) = view.map.client_addrs(osd).cloned() else {
            let why = format!("osd.{osd} is not up");
            return self.fail_tell(cx, tid, Errno::ENXIO, why);
        };
        let session = self.sessions.entry(osd).or_insert_with(|| {
            self.to_dial.insert(osd, cx.now.mono);
            Session::new(addrs, cx.now.mono)
        });
        session.ops.insert(tid);
        self.send_tell(cx, tid);
    }

    /// Sends a command when there is a link.
    pub(super) fn send_tell(&mut self, cx: &mut Cx<'_>, tid: u64) {
        let Some(tell) = self.tells.get_mut(&tid).filter(|t| !t.sent) else { return };
        let link = self.sessions.get(&tell.osd).and_then(Session::link);
        let Some(link) = link else { return };
        tell.sent = true;
        let fsid = cx.mon.fsid().unwrap_or_default();
        let command = MCommand { fsid, cmd: vec![tell.json.clone()], data: tell.input.clone() };
        cx.msgr.send(link, command.encode().with_tid(tid));
    }

    /// Takes a command off all books.
    fn remove_tell(&mut self, cx: &mut Cx<'_>, tid: u64) -> Option<Tell> {
        let tell = self.tells.remove(&tid)?;
        if let Some(session) = self.sessions.get_mut(&tell.osd) {
            session.ops.remove(&tid);
        }
        if let Some(timer) = tell.timer {
            cx.timers.cancel(timer);
        }
        Some(tell)
    }

    fn fail_tell(
        &mut self,
        cx: &mut Cx<'_>,
        tid: u64,
        errno: Errno,
        why: impl Into<Cow<'static, str>>,
    ) {
        let Some(tell) = self.remove_tell(cx, tid) else { return };
        let error = ClientError::new(errno, tell.describe(), why);
        cx.complete(tell.id, Outcome::Command(Err(error)));
    }

    /// The time limit of a command has come.
    pub(super) fn time_out_tell(&mut self, cx: &mut Cx<'_>, tid: u64) {
        self.fail_tell(cx, tid, Errno::ETIMEDOUT, "the OSD did not answer in time");
    }

    /// An OSD answers.
    pub fn on_told(&mut self, cx: &mut Cx<'_>, from: OsdId, tid: u64, reply: MCommandReply) {
        if self.tells.get(&tid).is_none_or(|t| t.osd != from || !t.sent) {
            return;
        }
        let Some(tell) = self.remove_tell(cx, tid) else { return };
        let MCommandReply { result: status, outs, data } = reply;
        cx.complete(tell.id, Outcome::Command(Ok(CommandReply { status, outs, data })));
    }
}

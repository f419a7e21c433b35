//! The sessions with all OSDs: dialled, lost, closed, and looked after.

use super::session::{Connection, Session};
use super::{Cx, Due, Objecter, Op, SLOW, TICK};
use io::Effects;
use types::{EntityType, OsdId};
use wire::msg::{MPing, Payload};
use wire::{CloseWhy, Dial, LinkId, Policy};

impl Objecter {
    pub fn on_open(&mut self, cx: &mut Cx<'_>, link: LinkId) {
        let session = self.links.get(&link).and_then(|osd| self.sessions.get_mut(osd));
        if let Some(session) = session {
            session.set_open(cx.now.mono);
        }
    }

    /// The link of a session ended: dial again, and send everything again when it is there.
    pub fn on_closed(&mut self, cx: &mut Cx<'_>, link: LinkId, why: &CloseWhy) {
        let Some(osd) = self.links.remove(&link) else {
            return;
        };
        let spread = self.rng.f64();
        let Some(session) = self.sessions.get_mut(&osd) else {
            return;
        };
        tracing::debug!(%osd, %why, "a session with an OSD ended");
        let due = session.lose_link(cx.now.mono, spread);
        let tids: Vec<u64> = session.ops.iter().copied().collect();
        self.unsend(cx, &tids);
        self.register_all_of(cx, osd);
        if self.sessions.get(&osd).is_none_or(|s| s.ops.is_empty()) {
            self.sessions.remove(&osd);
        } else {
            self.to_dial.insert(osd, due);
            // Perhaps it is down, and the map knows.
            cx.mon.want_osdmap(self.next_epoch());
        }
    }

    /// What was sent counts as not sent; what is not sent again by itself is over.
    pub(super) fn unsend(&mut self, cx: &mut Cx<'_>, tids: &[u64]) {
        for tid in tids {
            if let Some(tell) = self.tells.get_mut(tid) {
                tell.sent = false;
            }
            let Some(op) = self.ops.get_mut(tid) else {
                continue;
            };
            op.sent = false;
            if !op.purpose.is_resent() {
                self.remove(cx, *tid);
                self.forget(*tid);
            }
        }
    }

    /// Dials what is to be dialled, and closes what is to be closed.
    pub fn end_turn(&mut self, cx: &mut Cx<'_>, fx: &mut Effects) {
        for link in self.to_close.drain(..) {
            cx.msgr.close(link, fx);
        }
        while let Some((&osd, _)) = self.to_dial.iter().find(|(_, at)| **at <= cx.now.mono) {
            self.to_dial.remove(&osd);
            let Some(session) = self.sessions.get_mut(&osd) else {
                continue;
            };
            let dial = Dial::new(session.addrs.clone(), EntityType::OSD, Policy::lossy_client());
            let link = cx.msgr.dial(cx.now, dial, fx);
            session.connection = Connection::Link(link);
            let tids: Vec<u64> = session.ops.iter().copied().collect();
            self.links.insert(link, osd);
            for tid in tids {
                self.send(cx, tid);
            }
        }
    }

    /// Ends the session with an OSD that is down or elsewhere. Its requests are homeless.
    pub(super) fn close_session(&mut self, osd: OsdId) -> Vec<u64> {
        let Some(session) = self.sessions.remove(&osd) else {
            return Vec::new();
        };
        self.to_dial.remove(&osd);
        if let Some(link) = session.link() {
            self.links.remove(&link);
            self.to_close.push(link);
        }
        for tid in &session.ops {
            if let Some(op) = self.ops.get_mut(tid) {
                op.session = None;
                op.sent = false;
            }
            if let Some(tell) = self.tells.get_mut(tid) {
                tell.sent = false;
            }
        }
        session.ops.into_iter().collect()
    }

    /// Every few seconds: pings watches, and asks after OSDs that do not answer.
    pub fn tick(&mut self, cx: &mut Cx<'_>) {
        cx.timers.set(cx.now.mono.after(TICK), Due::Tick);
        self.ping_watches(cx);
        let is_slow = |op: &Op| op.sent && cx.now.mono.since(op.sent_at) >= SLOW;
        let mut slow: Vec<OsdId> =
            self.ops.values().filter(|op| is_slow(op)).filter_map(|op| op.session).collect();
        slow.sort_unstable();
        slow.dedup();
        let homeless = self.ops.values().any(|op| op.session.is_none());
        // Who is told something may be down.
        if homeless || !slow.is_empty() || !self.tells.is_empty() {
            cx.mon.want_osdmap(self.next_epoch());
        }
        for osd in slow {
            if let Some(link) = self.sessions.get(&osd).and_then(Session::link) {
                cx.msgr.send(link, MPing {}.encode());
            }
        }
    }
}

//! Opening, failing and ending of links; their timers.

use super::policy::{BACKOFF_MAX, BACKOFF_MIN};
use super::{
    CloseWhy, ConnId, Due, Effects, Link, LinkId, Messenger, MsgrEvent, Now, State, mark_dirty,
};
use io::net::{CloseReason, NetOp};

impl Messenger {
    /// Deals with every deadline that has come.
    pub fn tick(&mut self, now: Now, fx: &mut Effects, out: &mut Vec<MsgrEvent>) {
        for (id, why) in std::mem::take(&mut self.doomed) {
            if let Some(link) = self.links.get_mut(&id) {
                link.doomed = false;
                if why == CloseWhy::Overflow && !link.is_over_bounds() {
                    continue; // A connection came just in time.
                }
                self.give_up(now, id, why, fx, out);
            }
        }
        self.tick_room(now, fx, out);
        while let Some((id, due)) = self.timers.pop(now.mono) {
            match due {
                Due::Life => self.on_life(now, id, fx, out),
                Due::Ack => self.on_ack_due(id),
            }
        }
    }

    fn on_ack_due(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.ack_timer = None;
        if link.is_open() && link.session.has_untold() {
            link.tell = true;
            mark_dirty(&mut self.dirty, link);
        }
    }

    fn on_life(&mut self, now: Now, id: LinkId, fx: &mut Effects, out: &mut Vec<MsgrEvent>) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.life = None;
        match link.state {
            State::Opening => {
                let why = CloseWhy::Timeout("the handshake took longer than 10 s");
                self.fail(now, id, why, fx, out);
            }
            State::Backoff => self.connect(now, id, fx),
            State::Standby => {
                let why = CloseWhy::Timeout("the peer did not come back to its session");
                self.give_up(now, id, why, fx, out);
            }
            State::Open => self.check(now, id, fx, out),
        }
    }

    /// An open link: is a keepalive due, or was there silence for too long?
    fn check(&mut self, now: Now, id: LinkId, fx: &mut Effects, out: &mut Vec<MsgrEvent>) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if link.transport.as_ref().is_some_and(|t| t.is_stopped) {
            // It is us who do not listen.
            link.last_recv = now.mono;
        }
        let silent = now.mono.since(link.last_recv);
        if link.policy.keepalive.is_some_and(|k| silent >= k.timeout) {
            let why = CloseWhy::Timeout("the peer does not answer keepalives");
            return self.fail(now, id, why, fx, out);
        }
        let idle = now.mono.since(link.last_traffic());
        if link.policy.idle_timeout.is_some_and(|t| idle >= t) {
            let why = CloseWhy::Timeout("the connection was idle for too long");
            return self.fail(now, id, why, fx, out);
        }
        let since = now.mono.since(link.last_keepalive);
        if link.policy.keepalive.is_some_and(|k| since >= k.interval) {
            link.last_keepalive = now.mono;
            if let Some(wire) = link.wire() {
                wire.keepalive(now.wall);
            }
            mark_dirty(&mut self.dirty, link);
        }
        let next = link.next_check();
        self.set_life(id, next);
    }

    /// The session is open on the present connection.
    pub(super) fn set_open(&mut self, now: Now, id: LinkId, fx: &mut Effects) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.state = State::Open;
        link.backoff = BACKOFF_MIN;
        link.last_recv = now.mono;
        link.last_sent = now.mono;
        link.last_keepalive = now.mono;
        let next = link.next_check();
        mark_dirty(&mut self.dirty, link);
        let conn = link.transport.as_ref().map(|t| t.conn);
        if let (Some(conn), Some(bytes)) = (conn, link.policy.send_limit_bytes) {
            fx.net.push(NetOp::LimitSend { conn, bytes });
        }
        let shares = link.policy.shares_room;
        if let Some(wire) = link.wire().filter(|_| shares) {
            wire.ask_for_room();
        }
        link.sync_receiving(fx);
        self.set_life(id, next);
    }

    /// Tells the owner of a link that is open for the first time.
    pub(super) fn announce(&mut self, id: LinkId, out: &mut Vec<MsgrEvent>) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let Some(peer) = &link.peer else {
            return;
        };
        if !link.opened {
            link.opened = true;
            if !link.is_dialled() {
                self.handshakes = self.handshakes.saturating_sub(1);
            }
            let peer = peer.clone();
            out.push(MsgrEvent::Open { link: id, peer });
        }
    }

    pub(super) fn on_closed(
        &mut self,
        now: Now,
        conn: ConnId,
        why: CloseReason,
        fx: &mut Effects,
        out: &mut Vec<MsgrEvent>,
    ) {
        let Some(id) = self.conns.remove(&conn) else {
            return;
        };
        self.fail(now, id, CloseWhy::Net(why), fx, out);
    }

    /// A link's connection failed. One line in the log; then a lossless link waits for the next
    /// connection, any other ends.
    pub(super) fn fail(
        &mut self,
        now: Now,
        id: LinkId,
        why: CloseWhy,
        fx: &mut Effects,
        out: &mut Vec<MsgrEvent>,
    ) {
        let Some(link) = self.links.get(&id) else {
            return;
        };
        log_closed(link, &why);
        // A dialled link that was never open has no session to lose, but an owner who wants one.
        let stays = !link.session.lossy && (link.is_dialled() || link.opened);
        if !stays {
            return self.end(id, why, fx, out);
        }
        let state = if link.is_dialled() { State::Backoff } else { State::Standby };
        self.lose_transport(id, &why, fx);
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.state = state;
        let wait = if state == State::Standby {
            link.policy.standby_timeout
        } else {
            let wait = link.backoff;
            link.backoff = link.backoff.saturating_mul(2).min(BACKOFF_MAX);
            wait
        };
        self.set_life(id, Some(now.mono.after(wait)));
    }

    /// The session is given up. A link that was dialled lossless begins a new one, any other ends.
    fn give_up(
        &mut self,
        now: Now,
        id: LinkId,
        why: CloseWhy,
        fx: &mut Effects,
        out: &mut Vec<MsgrEvent>,
    ) {
        let Some(link) = self.links.get(&id) else {
            return;
        };
        let again = link.is_dialled() && link.opened && !link.session.lossy;
        if again {
            self.fail(now, id, why, fx, out);
            self.renew(id, out);
        } else {
            log_closed(link, &why);
            self.end(id, why, fx, out);
        }
    }

    /// Removes a link and tells its owner, if he knows of it.
    pub(super) fn end(
        &mut self,
        id: LinkId,
        why: CloseWhy,
        fx: &mut Effects,
        out: &mut Vec<MsgrEvent>,
    ) {
        let Some(mut link) = self.remove_link(id) else {
            return;
        };
        self.drop_transport(&mut link, false, fx);
        if link.opened || link.is_dialled() {
            out.push(MsgrEvent::Closed { link: id, why });
        }
    }

    /// The session is lost, the link goes on: it gets a new id and an empty session. Whatever
    /// connection it has stays.
    pub(super) fn renew(&mut self, old: LinkId, out: &mut Vec<MsgrEvent>) -> LinkId {
        let (renewed, cookie) = (self.new_link_id(), self.new_cookie());
        let Some(mut link) = self.links.remove(&old) else {
            return old;
        };
        link.id = renewed;
        link.session.reset();
        link.session.client_cookie = cookie;
        link.dirty = false;
        link.doomed = false;
        link.tell = false;
        if let Some(timer) = link.ack_timer.take() {
            self.timers.cancel(timer);
        }
        if let Some((at, timer)) = link.life {
            self.timers.cancel(timer);
            link.life = Some((at, self.timers.set(at, (renewed, Due::Life))));
        }
        if let Some(t) = &link.transport {
            self.conns.insert(t.conn, renewed);
        }
        if let Some(key) = &link.key {
            self.sessions.insert(key.clone(), renewed);
        }
        mark_dirty(&mut self.dirty, &mut link);
        self.links.insert(renewed, link);
        out.push(MsgrEvent::Reset { link: old, renewed });
        renewed
    }

    /// Takes a link out of all books but its connection's socket.
    pub(super) fn remove_link(&mut self, id: LinkId) -> Option<Link> {
        let mut link = self.links.remove(&id)?;
        let life = link.life.take().map(|(_, timer)| timer);
        for timer in [life, link.ack_timer.take()].into_iter().flatten() {
            self.timers.cancel(timer);
        }
        if let Some(key) = link.key.take()
            && self.sessions.get(&key) == Some(&id)
        {
            self.sessions.remove(&key);
        }
        if !link.is_dialled() && !link.opened {
            self.handshakes = self.handshakes.saturating_sub(1);
        }
        self.take_back(&link.room);
        Some(link)
    }

    /// Closes a link's connection if it has one.
    fn lose_transport(&mut self, id: LinkId, why: &CloseWhy, fx: &mut Effects) {
        self.leave_room(id);
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if let Some(t) = link.transport.take()
            && self.conns.remove(&t.conn).is_some()
        {
            debug_assert!(!matches!(why, CloseWhy::Net(_)), "it is closed already");
            let (conn, drain) = (t.conn, false);
            fx.net.push(NetOp::Close { conn, drain });
        }
    }

    /// Closes the connection of a link that was taken out; what it has to say is sent first, its
    /// messages only on request.
    pub(super) fn drop_transport(&mut self, link: &mut Link, messages: bool, fx: &mut Effects) {
        let Some(conn) = link.transport.as_ref().map(|t| t.conn) else {
            return;
        };
        if self.conns.remove(&conn).is_none() {
            return; // The network closed it.
        }
        if !messages {
            link.state = State::Opening;
        }
        let data = link.write(&mut self.writer);
        let drain = !data.is_empty() || messages;
        if !data.is_empty() {
            fx.net.push(NetOp::Send { conn, data });
        }
        fx.net.push(NetOp::Close { conn, drain });
    }
}

/// The one line about a connection that ended.
fn log_closed(link: &Link, why: &CloseWhy) {
    let peer = link.peer_text();
    let at_rest = link.transport.as_ref().is_some_and(|t| t.wire.is_at_rest());
    match why {
        CloseWhy::Protocol(error) => tracing::warn!(%peer, %error, "closing a connection"),
        // Clients come and go, and a daemon that is down is dialled again and again.
        CloseWhy::Net(reason) if at_rest || link.is_dialled() => {
            tracing::debug!(%peer, %reason, "a connection ended");
        }
        CloseWhy::Net(reason) => tracing::info!(%peer, %reason, "a connection broke off"),
        why => tracing::info!(%peer, %why, "closing a connection"),
    }
}

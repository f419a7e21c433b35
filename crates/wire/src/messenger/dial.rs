//! The dialling end: connecting, idents, what the acceptor may answer.

use super::policy::{BACKOFF_MAX, Dial, HANDSHAKE_TIMEOUT};
use super::{
    CloseWhy, Connection, Effects, Link, LinkId, Messenger, MsgrEvent, Now, Origin, PeerInfo,
    State, Transport, mark_dirty,
};
use crate::ProtocolError;
use crate::connection::auth::{AuthName, NoneRequest};
use crate::frame::{
    ClientIdent, FEATURES_REQUIRED, FEATURES_SUPPORTED, Hello, IDENT_LOSSY, ServerIdent,
    SessionReconnect,
};
use io::net::{ConnId, NetOp};
use std::sync::Arc;
use types::{AddrType, AddrVec, EntityAddr, EntityName};

impl Messenger {
    /// Dials a daemon. [`MsgrEvent::Open`] follows, or for a lossy link [`MsgrEvent::Closed`];
    /// messages can be queued at once. A lossless link is dialled until it is closed.
    ///
    /// When there is a lossless session with that peer already, because it dialled us, its link is
    /// given; from then on this end dials too.
    pub fn dial(&mut self, now: Now, dial: Dial, fx: &mut Effects) -> LinkId {
        if let Some(id) = self.session_with(&dial) {
            self.dial_too(now, id, dial, fx);
            return id;
        }
        let id = self.new_link_id();
        let target = dial.target.v2().filter(|a| !a.is_blank()).copied();
        let mut link = Link::new(id, Origin::Dialled(Box::new(dial.clone())), dial.policy);
        if !link.session.lossy {
            link.session.client_cookie = self.new_cookie();
            if !dial.my_addrs.is_empty() {
                let key = (dial.my_addrs, dial.target);
                self.sessions.insert(key.clone(), id);
                link.key = Some(key);
            }
        }
        self.links.insert(id, link);
        match target {
            Some(_) => self.connect(now, id, fx),
            None => self.doomed.push((id, CloseWhy::NoAddress)),
        }
        id
    }

    /// The lossless session with the peer that is to be dialled.
    fn session_with(&self, dial: &Dial) -> Option<LinkId> {
        if dial.policy.lossy || dial.my_addrs.is_empty() {
            return None;
        }
        let key = (dial.my_addrs.clone(), dial.target.clone());
        let id = *self.sessions.get(&key)?;
        let lossless = self.links.get(&id).is_some_and(|l| !l.session.lossy);
        lossless.then_some(id)
    }

    fn dial_too(&mut self, now: Now, id: LinkId, dial: Dial, fx: &mut Effects) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.policy = dial.policy.clone();
        link.origin = Origin::Dialled(Box::new(dial));
        if link.state == State::Standby {
            self.connect(now, id, fx);
        }
    }

    /// Makes a connection for a dialled link.
    pub(super) fn connect(&mut self, now: Now, id: LinkId, fx: &mut Effects) {
        let global_seq = self.next_global_seq(0);
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let Origin::Dialled(dial) = &link.origin else {
            return;
        };
        let Some((target, sock)) = dial.target.v2().and_then(|a| Some((*a, a.sock?))) else {
            return;
        };
        let me = &self.me;
        let request = NoneRequest::new(dial.expected, me.entity, &me.id, me.global_id);
        let wire = Connection::dial(me.entity, dial.expected, target, request);
        let conn = fx.connect(sock);
        link.session.global_seq = global_seq;
        if link.session.server_cookie != 0 {
            link.session.connect_seq = link.session.connect_seq.saturating_add(1);
        }
        link.state = State::Opening;
        link.transport =
            Some(Transport { conn, connected: false, peer: Some(sock), wire, is_stopped: false });
        self.conns.insert(conn, id);
        self.set_life(id, Some(now.mono.after(HANDSHAKE_TIMEOUT)));
    }

    pub(super) fn on_connected(&mut self, conn: ConnId) {
        if let Some(link) = self.conns.get(&conn).and_then(|id| self.links.get_mut(id)) {
            if let Some(transport) = &mut link.transport {
                transport.connected = true;
            }
            mark_dirty(&mut self.dirty, link);
        }
    }

    /// The first daemon tells where it sees us; that is our address from then on.
    pub(super) fn on_hello(&mut self, hello: &Hello) {
        if self.learned.is_some() {
            return;
        }
        self.learned = hello.peer_addr.sock.map(|mut sock| {
            sock.set_port(0);
            EntityAddr { kind: AddrType::ANY, nonce: self.me.nonce, sock: Some(sock) }
        });
    }

    /// Authenticated: a new session, or on with the old one.
    pub(super) fn send_ident(&mut self, id: LinkId) -> Result<(), CloseWhy> {
        let learned = self.learned;
        let (num, nonce) = (self.me.num, self.me.nonce);
        let Some(link) = self.links.get_mut(&id) else {
            return Ok(());
        };
        let (Origin::Dialled(dial), Some(transport)) = (&link.origin, &mut link.transport) else {
            return Ok(());
        };
        let addrs = if dial.my_addrs.is_empty() {
            let unknown = EntityAddr { kind: AddrType::ANY, nonce, sock: None };
            AddrVec(vec![learned.unwrap_or(unknown)])
        } else {
            dial.my_addrs.clone()
        };
        let session = &link.session;
        if session.server_cookie != 0 {
            let ask = SessionReconnect {
                addrs,
                client_cookie: session.client_cookie,
                server_cookie: session.server_cookie,
                global_seq: session.global_seq,
                connect_seq: session.connect_seq,
                msg_seq: session.in_seq(),
            };
            transport.wire.session_reconnect(&ask)?;
        } else {
            let ident = ClientIdent {
                addrs,
                target: dial.target.v2().copied().unwrap_or_default(),
                gid: num,
                global_seq: session.global_seq,
                supported: dial.features,
                required: FEATURES_REQUIRED,
                flags: if session.lossy { IDENT_LOSSY } else { 0 },
                cookie: session.client_cookie,
            };
            transport.wire.client_ident(&ident)?;
        }
        mark_dirty(&mut self.dirty, link);
        Ok(())
    }

    pub(super) fn on_server_ident(
        &mut self,
        now: Now,
        id: LinkId,
        ident: &ServerIdent,
        fx: &mut Effects,
        out: &mut Vec<MsgrEvent>,
    ) -> Result<(), CloseWhy> {
        let Some(link) = self.links.get_mut(&id) else {
            return Ok(());
        };
        let (Origin::Dialled(dial), Some(transport)) = (&link.origin, &mut link.transport) else {
            return Ok(());
        };
        check_server(dial, ident)?;
        let lossy = ident.flags & IDENT_LOSSY != 0;
        let reconnecting = link.session.server_cookie != 0;
        if reconnecting || (link.session.lossy && !lossy) || (!lossy && ident.cookie == 0) {
            return Err(ProtocolError::SessionKind {
                theirs: if lossy { "lossy" } else { "lossless" },
                ours: if link.session.lossy { "lossy" } else { "lossless" },
            }
            .into());
        }
        // The server decides.
        link.session.lossy = lossy;
        link.session.server_cookie = ident.cookie;
        link.session.peer_global_seq = ident.global_seq;
        link.session.begin();
        transport.wire.set_ready();
        link.peer = Some(Arc::new(PeerInfo {
            name: EntityName { kind: dial.expected, num: ident.gid },
            auth_name: AuthName::default(),
            global_id: transport.wire.global_id(),
            addrs: ident.addrs.clone(),
            socket: transport.peer,
            features: ident.supported & dial.features,
            listen: None,
            lossy,
        }));
        self.set_open(now, id, fx);
        self.announce(id, out);
        Ok(())
    }

    /// There is no such session at the peer: begin a new one, on the same connection.
    pub(super) fn on_session_reset(
        &mut self,
        id: LinkId,
        full: bool,
        out: &mut Vec<MsgrEvent>,
    ) -> Result<(), CloseWhy> {
        self.check_reconnecting(id, "an answer to CLIENT_IDENT was due")?;
        let mut id = id;
        if full {
            id = self.renew(id, out);
        }
        let Some(link) = self.links.get_mut(&id) else {
            return Ok(());
        };
        link.session.server_cookie = 0;
        link.session.connect_seq = 0;
        self.send_ident(id)
    }

    pub(super) fn on_session_retry(&mut self, id: LinkId, seen: u64) -> Result<(), CloseWhy> {
        self.check_reconnecting(id, "an answer to CLIENT_IDENT was due")?;
        self.ask_again(id, |session| session.connect_seq = seen.saturating_add(1))
    }

    pub(super) fn on_session_retry_global(
        &mut self,
        id: LinkId,
        seen: u64,
    ) -> Result<(), CloseWhy> {
        self.check_reconnecting(id, "an answer to CLIENT_IDENT was due")?;
        let global_seq = self.next_global_seq(seen);
        self.ask_again(id, |session| session.global_seq = global_seq)
    }

    fn ask_again(
        &mut self,
        id: LinkId,
        change: impl FnOnce(&mut super::session::Session),
    ) -> Result<(), CloseWhy> {
        if let Some(link) = self.links.get_mut(&id) {
            change(&mut link.session);
        }
        self.send_ident(id)
    }

    /// The session goes on: what the peer did not receive is sent again.
    pub(super) fn on_reconnect_ok(
        &mut self,
        now: Now,
        id: LinkId,
        received: u64,
        fx: &mut Effects,
    ) -> Result<(), CloseWhy> {
        self.check_reconnecting(id, "SERVER_IDENT was due")?;
        if let Some(link) = self.links.get_mut(&id) {
            link.session.resume(received)?;
            if let Some(wire) = link.wire() {
                wire.set_ready();
            }
        }
        self.set_open(now, id, fx);
        Ok(())
    }

    /// The peer dials us at the same moment, and its connection is to be the one.
    pub(super) fn on_wait(
        &mut self,
        now: Now,
        id: LinkId,
        fx: &mut Effects,
    ) -> Result<(), CloseWhy> {
        let Some(link) = self.links.get_mut(&id) else {
            return Ok(());
        };
        if link.session.lossy {
            return Err(ProtocolError::SessionKind { theirs: "lossless", ours: "lossy" }.into());
        }
        link.state = State::Backoff;
        if let Some(t) = link.transport.take() {
            self.conns.remove(&t.conn);
            let (conn, drain) = (t.conn, false);
            fx.net.push(NetOp::Close { conn, drain });
        }
        self.set_life(id, Some(now.mono.after(BACKOFF_MAX)));
        Ok(())
    }

    /// The answers to SESSION_RECONNECT are nothing for who sent CLIENT_IDENT.
    fn check_reconnecting(&self, id: LinkId, due: &'static str) -> Result<(), ProtocolError> {
        let link = self.links.get(&id);
        if link.is_some_and(|l| l.session.server_cookie != 0) {
            return Ok(());
        }
        Err(ProtocolError::Unexpected { tag: crate::frame::Tag::SessionReconnectOk, phase: due })
    }
}

/// Is this whom we wanted, and can we talk to each other?
fn check_server(dial: &Dial, ident: &ServerIdent) -> Result<(), ProtocolError> {
    let target = dial.target.v2().copied().unwrap_or_default();
    if !ident.addrs.0.contains(&target) {
        let text = format!("{target} was dialled, {} answers", ident.addrs);
        return Err(ProtocolError::WrongAddress(text));
    }
    let missing = (ident.required & !FEATURES_SUPPORTED) | (FEATURES_REQUIRED & !ident.supported);
    if missing != 0 {
        return Err(ProtocolError::MissingFeatures { missing });
    }
    Ok(())
}

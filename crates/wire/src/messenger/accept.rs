//! The accepting end: whom to serve, and what an ident means for the sessions there are.
//!
//! The rules are those of `ProtocolV2::handle_client_ident`, `handle_reconnect` and
//! `handle_existing_connection`. Sessions are found by our address and the peer's. An older
//! connection attempt (smaller global_seq or connect_seq) never displaces a newer one. When two
//! peers dial each other at the same moment, the one with the smaller address wins.

use super::link::SessionKey;
use super::policy::{GlobalIds, HANDSHAKE_TIMEOUT, MAX_HANDSHAKES, Policy};
use super::{
    CloseWhy, ConnId, Connection, Effects, Link, LinkId, ListenId, Messenger, MsgrEvent, Now,
    Origin, PeerAddr, PeerInfo, State, Transport, mark_dirty,
};
use crate::ProtocolError;
use crate::connection::auth::AuthName;
use crate::frame::{
    ClientIdent, FEATURES_REQUIRED, FEATURES_SUPPORTED, IDENT_LOSSY, ServerIdent, SessionReconnect,
};
use io::net::NetOp;
use std::cmp::Ordering;
use std::net::SocketAddr;
use std::sync::Arc;
use types::{AddrType, AddrVec, EntityAddr, EntityName, EntityType};

/// A peer that asks for a new session and may have one.
struct Guest {
    terms: Terms,
    peer: Arc<PeerInfo>,
    ident: ClientIdent,
}

/// What a listener says to a peer.
struct Terms {
    policy: Policy,
    addrs: AddrVec,
    listen: ListenId,
    kind: EntityType,
}

impl Messenger {
    pub(super) fn on_accepted(
        &mut self,
        now: Now,
        listen: ListenId,
        conn: ConnId,
        peer: PeerAddr,
        fx: &mut Effects,
    ) {
        let peer = match peer {
            PeerAddr::Tcp(sock) => Some(sock),
            PeerAddr::Unix => None,
        };
        if self.handshakes >= MAX_HANDSHAKES {
            let error = ProtocolError::TooManyHandshakes(self.handshakes);
            tracing::warn!(peer = ?peer, %error, "closing a connection");
            fx.net.push(NetOp::Close { conn, drain: false });
            return;
        }
        self.handshakes = self.handshakes.saturating_add(1);
        let id = self.new_link_id();
        let seen = EntityAddr { kind: AddrType::MSGR2, nonce: 0, sock: peer };
        let wire = Connection::accept(self.me.entity, seen);
        // The real policy is known when the peer's kind is.
        let mut link = Link::new(id, Origin::Accepted(listen), Policy::stateless_server());
        link.transport = Some(Transport { conn, connected: true, peer, wire, is_stopped: false });
        mark_dirty(&mut self.dirty, &mut link);
        self.links.insert(id, link);
        self.conns.insert(conn, id);
        self.set_life(id, Some(now.mono.after(HANDSHAKE_TIMEOUT)));
    }

    /// What the listener of a link says to its peer.
    fn terms(&self, id: LinkId) -> Result<Terms, ProtocolError> {
        let link = self.links.get(&id);
        let kind = link
            .and_then(|l| l.transport.as_ref())
            .map_or(EntityType::default(), |t| t.wire.peer_entity());
        let listen = link.and_then(|link| match &link.origin {
            Origin::Accepted(listen) => Some(*listen),
            Origin::Dialled(_) => None,
        });
        let terms = listen.and_then(|listen| {
            let config = &self.listeners.get(&listen)?.config;
            Some(Terms {
                policy: config.policy(kind)?.clone(),
                addrs: config.addrs.clone(),
                listen,
                kind,
            })
        });
        terms.ok_or(ProtocolError::NotServed(kind))
    }

    pub(super) fn on_auth(
        &mut self,
        id: LinkId,
        name: AuthName,
        global_id: u64,
        out: &mut Vec<MsgrEvent>,
    ) -> Result<(), CloseWhy> {
        let listen = self.terms(id)?.listen;
        let global_ids = self.listeners.get(&listen).map(|l| l.config.global_ids);
        let Some(link) = self.links.get_mut(&id) else {
            return Ok(());
        };
        link.auth_name = name.clone();
        if global_ids == Some(GlobalIds::Assigned) && global_id == 0 {
            out.push(MsgrEvent::WantsGlobalId { link: id, name });
            return Ok(());
        }
        if let Some(wire) = link.wire() {
            wire.auth_done(global_id);
        }
        mark_dirty(&mut self.dirty, link);
        Ok(())
    }

    // ---- new sessions ----

    pub(super) fn on_client_ident(
        &mut self,
        now: Now,
        id: LinkId,
        ident: ClientIdent,
        fx: &mut Effects,
        out: &mut Vec<MsgrEvent>,
    ) -> Result<(), CloseWhy> {
        let terms = self.terms(id)?;
        let peer = self.check_client(id, &terms, &ident)?;
        let guest = Guest { terms, peer, ident };
        let old = match guest.key() {
            Some(key) => self.sessions.get(&key).copied(),
            None => None,
        };
        let Some(old) = old else {
            self.open_new(now, id, &guest, fx, out);
            return Ok(());
        };
        match self.meet(old, &guest)? {
            Meeting::Replace => {
                if let Some(link) = self.links.get(&old) {
                    tracing::debug!(peer = %link.peer_text(), "replaced by a newer connection");
                }
                self.end(old, CloseWhy::Replaced, fx, out);
                self.open_new(now, id, &guest, fx, out);
            }
            Meeting::PeerReset => {
                let renewed = self.renew(old, out);
                self.adopt(id, renewed, fx);
                self.enter(now, renewed, &guest, fx, out);
            }
            Meeting::Join => {
                self.adopt(id, old, fx);
                self.enter(now, old, &guest, fx, out);
            }
            Meeting::Wait => {
                if let Some(link) = self.links.get_mut(&id) {
                    if let Some(wire) = link.wire() {
                        wire.wait();
                    }
                    mark_dirty(&mut self.dirty, link);
                }
            }
        }
        Ok(())
    }

    /// Who the peer is, when it may come in.
    fn check_client(
        &mut self,
        id: LinkId,
        terms: &Terms,
        ident: &ClientIdent,
    ) -> Result<Arc<PeerInfo>, ProtocolError> {
        let Some(link) = self.links.get_mut(&id) else {
            return Err(ProtocolError::NoAddress);
        };
        let socket = link.transport.as_ref().and_then(|t| t.peer);
        let addrs = with_seen_ip(&ident.addrs, socket);
        if addrs.0.first().is_none_or(EntityAddr::is_blank) {
            return Err(ProtocolError::NoAddress);
        }
        if !terms.addrs.0.contains(&ident.target) {
            let text = format!("it wants {}, this is {}", ident.target, terms.addrs);
            return Err(ProtocolError::WrongAddress(text));
        }
        let missing = FEATURES_REQUIRED & !ident.supported;
        if missing != 0
            && let Some(wire) = link.wire()
        {
            wire.missing_features(missing);
        }
        let missing = missing | (ident.required & !FEATURES_SUPPORTED);
        if missing != 0 {
            return Err(ProtocolError::MissingFeatures { missing });
        }
        if !terms.policy.lossy && (ident.flags & IDENT_LOSSY != 0 || ident.cookie == 0) {
            return Err(ProtocolError::SessionKind { theirs: "lossy", ours: "lossless" });
        }
        let global_id = link.wire().map_or(0, |w| w.global_id());
        let as_num = i64::try_from(global_id).unwrap_or(-1);
        let by_ident = terms.kind != EntityType::CLIENT && ident.gid >= 0;
        Ok(Arc::new(PeerInfo {
            name: EntityName { kind: terms.kind, num: if by_ident { ident.gid } else { as_num } },
            auth_name: link.auth_name.clone(),
            global_id,
            addrs,
            socket,
            features: ident.supported & FEATURES_SUPPORTED,
            listen: Some(terms.listen),
            lossy: terms.policy.lossy,
        }))
    }

    /// A CLIENT_IDENT meets a session with the same peer.
    fn meet(&self, old: LinkId, guest: &Guest) -> Result<Meeting, ProtocolError> {
        let (terms, ident) = (&guest.terms, &guest.ident);
        let Some(existing) = self.links.get(&old) else {
            return Ok(Meeting::Replace);
        };
        let session = &existing.session;
        if session.peer_global_seq > ident.global_seq {
            return Err(ProtocolError::Stale {
                global_seq: ident.global_seq,
                newest: session.peer_global_seq,
            });
        }
        if session.lossy || terms.policy.lossy {
            return Ok(Meeting::Replace);
        }
        let same = session.client_cookie == ident.cookie;
        let begun = session.was_used() || (!same && session.server_cookie != 0);
        if begun {
            return Ok(Meeting::PeerReset);
        }
        // Either the peer did not see our SERVER_IDENT and asks again, or this is the first time.
        // We may be dialling it at the same moment.
        let dialling =
            existing.is_dialled() && matches!(existing.state, State::Opening | State::Backoff);
        Ok(match race(existing, &terms.addrs) {
            Ordering::Greater if dialling => Meeting::Wait,
            _ => Meeting::Join,
        })
    }

    fn open_new(
        &mut self,
        now: Now,
        id: LinkId,
        guest: &Guest,
        fx: &mut Effects,
        out: &mut Vec<MsgrEvent>,
    ) {
        let key = guest.key();
        if let Some(key) = &key {
            self.sessions.insert(key.clone(), id);
        }
        if let Some(link) = self.links.get_mut(&id) {
            link.key = key;
            link.policy = guest.terms.policy.clone();
            link.session.lossy = guest.terms.policy.lossy;
        }
        self.enter(now, id, guest, fx, out);
    }

    /// The session of `id` begins on its present connection.
    fn enter(
        &mut self,
        now: Now,
        id: LinkId,
        guest: &Guest,
        fx: &mut Effects,
        out: &mut Vec<MsgrEvent>,
    ) {
        let global_seq = self.next_global_seq(0);
        let cookie = self.new_cookie();
        let gid = self.me.num;
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let session = &mut link.session;
        session.client_cookie = guest.ident.cookie;
        session.server_cookie = if session.lossy { 0 } else { cookie };
        session.connect_seq = 0;
        session.peer_global_seq = guest.ident.global_seq;
        session.begin();
        let answer = ServerIdent {
            addrs: guest.terms.addrs.clone(),
            gid,
            global_seq,
            supported: FEATURES_SUPPORTED,
            required: FEATURES_REQUIRED,
            flags: if session.lossy { IDENT_LOSSY } else { 0 },
            cookie: session.server_cookie,
        };
        if let Some(wire) = link.wire() {
            wire.server_ident(&answer);
        }
        link.peer = Some(guest.peer.clone());
        self.set_open(now, id, fx);
        self.announce(id, out);
    }

    /// Moves the connection of `from` to `into`; whatever `into` had is closed. `from` is no more.
    fn adopt(&mut self, from: LinkId, into: LinkId, fx: &mut Effects) {
        let Some(mut newcomer) = self.remove_link(from) else {
            return;
        };
        self.leave_room(into);
        let Some(transport) = newcomer.transport.take() else {
            return;
        };
        let Some(link) = self.links.get_mut(&into) else {
            return;
        };
        self.conns.insert(transport.conn, into);
        link.auth_name = newcomer.auth_name;
        if let Some(old) = link.transport.replace(transport)
            && self.conns.remove(&old.conn).is_some()
        {
            tracing::debug!(peer = %link.peer_text(), "the session moves to a newer connection");
            let (conn, drain) = (old.conn, false);
            fx.net.push(NetOp::Close { conn, drain });
        }
    }

    // ---- old sessions ----

    pub(super) fn on_reconnect(
        &mut self,
        now: Now,
        id: LinkId,
        ask: SessionReconnect,
        fx: &mut Effects,
        out: &mut Vec<MsgrEvent>,
    ) -> Result<(), CloseWhy> {
        let terms = self.terms(id)?;
        let socket = self.links.get(&id).and_then(|l| l.transport.as_ref()?.peer);
        let key = (terms.addrs.clone(), with_seen_ip(&ask.addrs, socket));
        let old = self.sessions.get(&key).copied();
        let verdict = match old.and_then(|old| self.links.get(&old)) {
            Some(existing) => judge(existing, &terms, &ask),
            None => Verdict::Reset { full: true },
        };
        if let (Verdict::GoOn, Some(old)) = (verdict, old) {
            self.adopt(id, old, fx);
            return self.go_on(now, old, &ask, fx);
        }
        if let (Verdict::Broken, Some(old)) = (verdict, old) {
            self.renew(old, out);
        }
        let Some(link) = self.links.get_mut(&id) else {
            return Ok(());
        };
        if let Some(wire) = link.wire() {
            match verdict {
                Verdict::Reset { full } => wire.session_reset(full),
                Verdict::Broken | Verdict::GoOn => wire.session_reset(true),
                Verdict::RetryGlobal(seq) => wire.session_retry_global(seq),
                Verdict::Retry(seq) => wire.session_retry(seq),
                Verdict::Wait => wire.wait(),
            }
        }
        mark_dirty(&mut self.dirty, link);
        Ok(())
    }

    fn go_on(
        &mut self,
        now: Now,
        id: LinkId,
        ask: &SessionReconnect,
        fx: &mut Effects,
    ) -> Result<(), CloseWhy> {
        if let Some(link) = self.links.get_mut(&id) {
            let session = &mut link.session;
            session.connect_seq = ask.connect_seq;
            session.peer_global_seq = ask.global_seq;
            session.resume(ask.msg_seq)?;
            let in_seq = session.in_seq();
            if let Some(wire) = link.wire() {
                wire.reconnect_ok(in_seq);
            }
        }
        self.set_open(now, id, fx);
        Ok(())
    }
}

impl Guest {
    /// Where its session is registered; `None` when it need not be found again.
    fn key(&self) -> Option<SessionKey> {
        let policy = &self.terms.policy;
        let found_again = policy.registered || !policy.lossy;
        found_again.then(|| (self.terms.addrs.clone(), self.peer.addrs.clone()))
    }
}

/// What a CLIENT_IDENT means for a session with the same peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meeting {
    /// The session ends, a new link begins.
    Replace,
    /// The peer lost the session: it begins anew.
    PeerReset,
    /// The session is still to begin, on this connection.
    Join,
    /// Our own dial goes on, the peer waits for it.
    Wait,
}

/// What a SESSION_RECONNECT is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    GoOn,
    Reset {
        full: bool,
    },
    /// It is the session, but what the peer says of it cannot be.
    Broken,
    RetryGlobal(u64),
    Retry(u64),
    Wait,
}

fn judge(existing: &Link, terms: &Terms, ask: &SessionReconnect) -> Verdict {
    let session = &existing.session;
    let same_kind = existing.peer.as_ref().is_none_or(|p| p.name.kind == terms.kind);
    if session.lossy || !same_kind || session.client_cookie != ask.client_cookie {
        return Verdict::Reset { full: true };
    }
    if session.server_cookie == 0 {
        // We dialled, and never saw the SERVER_IDENT that opened the session.
        return Verdict::Reset { full: false };
    }
    if session.server_cookie != ask.server_cookie {
        return Verdict::Reset { full: true };
    }
    if session.peer_global_seq > ask.global_seq {
        return Verdict::RetryGlobal(session.peer_global_seq);
    }
    if session.connect_seq > ask.connect_seq {
        return Verdict::Retry(session.connect_seq);
    }
    let dialling = existing.is_dialled() && existing.state == State::Opening;
    if session.connect_seq == ask.connect_seq
        && dialling
        && race(existing, &terms.addrs) == Ordering::Greater
    {
        return Verdict::Wait;
    }
    if ask.msg_seq > session.sent_seq() {
        return Verdict::Broken;
    }
    Verdict::GoOn
}

/// Two ends dial each other: `Greater` when our own dial is the one that stays.
fn race(existing: &Link, my_addrs: &AddrVec) -> Ordering {
    let Origin::Dialled(dial) = &existing.origin else {
        return Ordering::Less;
    };
    dial.target.v2().cmp(&my_addrs.v2())
}

/// A peer that does not know its own ip gets the one its socket has.
fn with_seen_ip(addrs: &AddrVec, socket: Option<SocketAddr>) -> AddrVec {
    let Some(seen) = socket else {
        return addrs.clone();
    };
    let fix = |addr: &EntityAddr| {
        let unknown = addr.ip().is_none_or(|ip| ip.is_unspecified());
        let port = addr.sock.map_or(0, |s| s.port());
        EntityAddr {
            sock: if unknown { Some(SocketAddr::new(seen.ip(), port)) } else { addr.sock },
            ..*addr
        }
    };
    AddrVec(addrs.0.iter().map(fix).collect())
}

//! One link: a conversation with a peer, over one connection after the other.

use super::policy::{BACKOFF_MIN, Dial, Policy};
use super::room::Share;
use super::session::Session;
use super::{LinkId, MsgrEvent, PeerInfo};
use crate::ProtocolError;
use crate::connection::auth::AuthName;
use crate::connection::{ConnEvent, Connection};
use crate::frame::FrameWriter;
use io::net::{ConnId, ListenId, NetOp, SendBuf};
use io::{Effects, TimerId};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use types::{AddrVec, Mono};

/// Our addresses and the peer's: what makes two connections the same conversation.
pub(super) type SessionKey = (AddrVec, AddrVec);

/// How a link came about.
#[derive(Debug)]
pub(super) enum Origin {
    /// By [`super::Messenger::dial`]; it is dialled again when lossless.
    Dialled(Box<Dial>),
    /// The peer connected.
    Accepted(ListenId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A connection is being made, from TCP's connect to the open session.
    Opening,
    /// Messages flow.
    Open,
    /// Dialled and lossless: without a connection until the next try.
    Backoff,
    /// Accepted and lossless: without a connection until the peer comes back.
    Standby,
}

/// The connection under a link.
#[derive(Debug)]
pub(super) struct Transport {
    pub conn: ConnId,
    /// Whether bytes can be sent.
    pub connected: bool,
    pub peer: Option<SocketAddr>,
    pub wire: Connection,
    /// Nothing is received from it.
    pub is_stopped: bool,
}

#[derive(Debug)]
pub(super) struct Link {
    pub id: LinkId,
    pub origin: Origin,
    pub policy: Policy,
    pub state: State,
    pub transport: Option<Transport>,
    pub session: Session,
    /// Known from the first open session on.
    pub peer: Option<Arc<PeerInfo>>,
    pub auth_name: AuthName,
    /// Where it is registered.
    pub key: Option<SessionKey>,
    /// The owner was told of it by [`MsgrEvent::Open`].
    pub opened: bool,
    pub paused: bool,
    /// What its long messages have of the memory for them.
    pub room: Share,
    /// It is in the list of links to look after at the turn's end.
    pub dirty: bool,
    /// It is in the list of links to be given up.
    pub doomed: bool,
    /// An ACK is to be written at the turn's end.
    pub tell: bool,
    pub backoff: Duration,
    /// What [`State`] waits for.
    pub life: Option<(Mono, TimerId)>,
    pub ack_timer: Option<TimerId>,
    pub last_recv: Mono,
    pub last_sent: Mono,
    pub last_keepalive: Mono,
}

impl Link {
    pub fn new(id: LinkId, origin: Origin, policy: Policy) -> Self {
        Link {
            id,
            origin,
            session: Session::new(policy.lossy),
            policy,
            state: State::Opening,
            transport: None,
            peer: None,
            auth_name: AuthName::default(),
            key: None,
            opened: false,
            paused: false,
            room: Share::default(),
            dirty: false,
            doomed: false,
            tell: false,
            backoff: BACKOFF_MIN,
            life: None,
            ack_timer: None,
            last_recv: Mono::default(),
            last_sent: Mono::default(),
            last_keepalive: Mono::default(),
        }
    }

    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub fn is_dialled(&self) -> bool {
        matches!(self.origin, Origin::Dialled(_))
    }

    pub fn wire(&mut self) -> Option<&mut Connection> {
        self.transport.as_mut().map(|t| &mut t.wire)
    }

    /// The peer, for people.
    pub fn peer_text(&self) -> String {
        let socket = self.transport.as_ref().and_then(|t| t.peer);
        match (&self.peer, socket, &self.origin) {
            (Some(peer), ..) => format!("{} at {}", peer.name, peer.addrs),
            (None, Some(socket), _) => socket.to_string(),
            (None, None, Origin::Dialled(dial)) => dial.target.to_string(),
            (None, None, Origin::Accepted(_)) => "a local peer".to_owned(),
        }
    }

    /// Whether the queue is over its bounds. The queue of an open lossy link is written at the
    /// turn's end and has none.
    pub fn is_over_bounds(&self) -> bool {
        if self.session.lossy && self.is_open() {
            return false;
        }
        let (bytes, messages) = self.session.queued();
        bytes > self.policy.max_queued_bytes || messages > self.policy.max_queued_messages
    }

    /// Takes messages out of what was received, up to the first event that is none.
    pub fn pump(&mut self, out: &mut Vec<MsgrEvent>) -> Result<Option<ConnEvent>, ProtocolError> {
        let Some(transport) = &mut self.transport else {
            return Ok(None);
        };
        loop {
            match transport.wire.next_event()? {
                Some(ConnEvent::Message(message)) => {
                    self.session.acked(message.header.ack_seq)?;
                    if self.session.receive(message.header.seq, message.len())? {
                        out.push(MsgrEvent::Message { link: self.id, message });
                    }
                }
                Some(ConnEvent::Ack(seq)) => self.session.acked(seq)?,
                other => return Ok(other),
            }
        }
    }

    /// There is room for its long message.
    pub fn read_on(&mut self) {
        if let Some(wire) = self.wire() {
            wire.give_room();
        }
    }

    /// Whether nothing is received: from one that waits for room, or is paused. The rest of a message that has room
    /// is received all the same: it would keep the room for as long as the pause lasts.
    fn must_stop(&self) -> bool {
        self.room.wants_bytes > 0 || (self.paused && !self.room.is_some())
    }

    /// Tells the network whether to receive, if that changed.
    pub fn sync_receiving(&mut self, fx: &mut Effects) {
        let stop = self.must_stop();
        if let Some(transport) = &mut self.transport
            && transport.is_stopped != stop
        {
            transport.is_stopped = stop;
            let conn = transport.conn;
            fx.net.push(match stop {
                true => NetOp::PauseRecv { conn },
                false => NetOp::ResumeRecv { conn },
            });
        }
    }

    /// Whether there is something to do at the turn's end.
    pub fn wants_turn(&self) -> bool {
        let wire = self.transport.as_ref().map(|t| &t.wire);
        let wire_wants = wire.is_some_and(|w| w.has_tx() || (w.wants_fill() && !self.must_stop()));
        wire_wants || self.tell || (self.is_open() && self.session.has_unwritten())
    }

    /// Everything to be sent on the present connection.
    pub fn write(&mut self, w: &mut FrameWriter) -> SendBuf {
        let open = self.is_open();
        if !self.transport.as_ref().is_some_and(|t| t.connected) {
            return SendBuf::new();
        }
        if let Some(wire) = self.wire()
            && wire.has_tx()
        {
            w.raw(&wire.take_tx());
        }
        if open {
            self.session.write(w);
            if std::mem::take(&mut self.tell) {
                self.session.write_ack(w);
            }
        }
        w.take()
    }

    /// Hands to the network what is to be sent, and the buffer to receive into.
    pub fn flush(&mut self, now: Mono, w: &mut FrameWriter, fx: &mut Effects) {
        let Some(conn) = self.transport.as_ref().map(|t| t.conn) else {
            return;
        };
        let data = self.write(w);
        if !data.is_empty() {
            self.last_sent = now;
            fx.net.push(NetOp::Send { conn, data });
        }
        // Last in the turn, when all bytes that came are read: the next ones belong into it. Of one that is
        // not heard it takes no memory yet.
        if !self.must_stop()
            && let Some((buf, from)) = self.wire().and_then(Connection::take_fill)
        {
            fx.net.push(NetOp::Fill { conn, buf, from });
        }
    }

    /// When an open link is to be looked at again: a keepalive is due, or patience ends.
    pub fn next_check(&self) -> Option<Mono> {
        let idle = self.policy.idle_timeout.map(|t| self.last_traffic().after(t));
        let keepalive = self.policy.keepalive.map(|k| {
            let next = self.last_keepalive.after(k.interval);
            next.min(self.last_recv.after(k.timeout))
        });
        match (idle, keepalive) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    pub fn last_traffic(&self) -> Mono {
        self.last_recv.max(self.last_sent)
    }
}

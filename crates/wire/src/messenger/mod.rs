//! All connections of a process.
//!
//! A [`Messenger`] turns [`NetEvent`]s into [`MsgrEvent`]s: links that open and close, and their
//! messages. Its owner is a core ([`io::Core`]): it hands every network event to
//! [`Messenger::handle`], calls [`Messenger::tick`] when [`Messenger::next_deadline`] has come, and
//! [`Messenger::end_turn`] once a turn, which sends everything queued in one piece per connection.
//!
//! ```
//! use io::{Effects, Now, Rng, net::NetEvent};
//! use types::{AddrVec, EntityType};
//! use wire::msg::{MPing, Payload};
//! use wire::{Dial, Identity, Messenger, MsgrEvent, Policy};
//!
//! struct Client { msgr: Messenger, events: Vec<MsgrEvent> }
//!
//! impl Client {
//!     fn on_net(&mut self, now: Now, event: NetEvent, fx: &mut Effects) {
//!         let mut events = std::mem::take(&mut self.events);
//!         let not_ours = self.msgr.handle(now, event, fx, &mut events);
//!         assert!(not_ours.is_none());
//!         for event in events.drain(..) {
//!             if let MsgrEvent::Open { link, .. } = event {
//!                 self.msgr.send(link, MPing {}.encode());
//!             }
//!         }
//!         self.events = events;
//!     }
//! }
//! let msgr = Messenger::new(Identity::client("admin", 7), Rng::with_seed(1));
//! let mut client = Client { msgr, events: Vec::new() };
//! let (now, mut fx) = (Now::default(), Effects::new());
//! let osd = AddrVec::msgr2("127.0.0.1:6800".parse().unwrap(), 9);
//! let link = client.msgr.dial(now, Dial::new(osd, EntityType::OSD, Policy::lossy_client()), &mut fx);
//! client.msgr.end_turn(now, &mut fx);
//! # let _ = link;
//! ```
//!
//! **Links.** A [`LinkId`] names one session. A lossy link ends with its connection
//! ([`MsgrEvent::Closed`]); its owner dials again. A lossless link outlives connections: the end
//! that dialled dials again, with growing pauses, and what was not acknowledged is sent again. When
//! the peer lost the session (it started anew, or gave up) the link goes on under a new id
//! ([`MsgrEvent::Reset`]), so that an answer to a message of the old session is never sent into the
//! new one. Messages to an id that ended are dropped; its last event is on the way.
//!
//! **Order.** Events of a link come in order. Messages arrive in the order they were sent.
//!
//! **Faults.** Whatever a peer sends, at worst its own connection is closed, with one log line.
//! Bounds: time of the handshake, number of handshakes, length of frames, queued messages, and what
//! messages that are being received take (`room`).

mod accept;
mod dial;
mod life;
mod link;
mod policy;
mod room;
mod session;

pub use policy::{
    ACK_DELAY, ACK_MAX_BYTES, ACK_MAX_MESSAGES, BACKOFF_MAX, BACKOFF_MIN, Dial, GlobalIds,
    HANDSHAKE_TIMEOUT, IDLE_TIMEOUT, Identity, Keepalive, ListenerConfig, MAX_HANDSHAKES, Policy,
};

use crate::ProtocolError;
use crate::connection::auth::AuthName;
use crate::connection::{ConnEvent, Connection};
use crate::frame::FrameWriter;
use crate::msg::{Message, OutMessage};
use io::net::{CloseReason, ConnId, ListenAddr, ListenId, NetEvent, NetOp, PeerAddr};
use io::{Effects, Now, Rng, Timers};
use link::{Link, Origin, SessionKey, State, Transport};
use room::Room;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use types::{AddrVec, EntityAddr, EntityName, Errno, HashMap, Mono};

/// Names one session with one peer. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Who is at the other end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its name: kind as in HELLO; a client's number is its global id, a daemon's as it says.
    pub name: EntityName,
    /// As whom it authenticated; empty for a peer that was dialled.
    pub auth_name: AuthName,
    /// The global id of the end that dialled.
    pub global_id: u64,
    /// Its addresses. A client's first one is its identity for watches and blocklists.
    pub addrs: AddrVec,
    /// Where the socket comes from or leads to.
    pub socket: Option<SocketAddr>,
    /// Feature bits that both ends have.
    pub features: u64,
    /// The listening socket it came in by; `None` for a peer that was dialled.
    pub listen: Option<ListenId>,
    /// Whether the link ends with its connection.
    pub lossy: bool,
}

/// Why a link ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseWhy {
    /// The connection ended.
    #[error("{0}")]
    Net(CloseReason),
    /// The peer broke the protocol.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    /// Something took too long.
    #[error("{0}")]
    Timeout(&'static str),
    /// The same peer connected again.
    #[error("replaced by a newer connection of the same peer")]
    Replaced,
    /// More messages were queued than the policy allows.
    #[error("too many messages wait for it")]
    Overflow,
    /// There is no msgr2 address to dial.
    #[error("it has no msgr2 address")]
    NoAddress,
}

/// Something that happened to a link, or a listening socket.
#[derive(Debug)]
pub enum MsgrEvent {
    /// A socket is ready to accept.
    Listening {
        /// Which.
        listen: ListenId,
        /// The address it got.
        addr: Option<SocketAddr>,
    },
    /// A socket could not be made.
    ListenFailed {
        /// Which.
        listen: ListenId,
        /// Positive error number.
        errno: i32,
    },
    /// A client of a mon has no global id yet: [`Messenger::assign_global_id`] answers, also in a
    /// later turn. The link is not open yet.
    WantsGlobalId {
        /// The link to come.
        link: LinkId,
        /// As whom it authenticates.
        name: AuthName,
    },
    /// The session is open, for the first time.
    Open {
        /// The link.
        link: LinkId,
        /// Who is there.
        peer: Arc<PeerInfo>,
    },
    /// A message.
    Message {
        /// From where.
        link: LinkId,
        /// What.
        message: Message,
    },
    /// The peer does not take what it is sent, more than [`Policy::send_limit_bytes`] waits; or it does so
    /// again, and half of that has gone.
    Backlog {
        /// The link.
        link: LinkId,
        /// Whether it is too much.
        over: bool,
    },
    /// Lossless: the session is over, and with it every message not received yet, in both
    /// directions. The link goes on as a new session under a new id.
    Reset {
        /// The id up to here. No further event has it.
        link: LinkId,
        /// The id from now on.
        renewed: LinkId,
    },
    /// The link ended. No further event has its id.
    Closed {
        /// Which.
        link: LinkId,
        /// Why.
        why: CloseWhy,
    },
}

#[derive(Debug)]
struct Listener {
    config: ListenerConfig,
}

/// What a link's timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// The next step of the link's state: give up, dial again, check.
    Life,
    /// Acknowledge what was received.
    Ack,
}

/// All connections of a process. See the module's text.
pub struct Messenger {
    me: Identity,
    /// Our address as the first daemon we dialled saw it.
    learned: Option<EntityAddr>,
    rng: Rng,
    listeners: HashMap<ListenId, Listener>,
    links: HashMap<LinkId, Link>,
    conns: HashMap<ConnId, LinkId>,
    sessions: HashMap<SessionKey, LinkId>,
    timers: Timers<(LinkId, Due)>,
    writer: FrameWriter,
    /// Links with something to do at the turn's end.
    dirty: Vec<LinkId>,
    /// Links whose queue went over its bounds, or that cannot be dialled.
    doomed: Vec<(LinkId, CloseWhy)>,
    room: Room,
    /// Accepted links that are not open yet.
    handshakes: usize,
    last_link: u64,
    global_seq: u64,
}

impl fmt::Debug for Messenger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (entity, links) = (self.me.entity.name(), self.links.len());
        write!(f, "Messenger({entity}, {links} links)")
    }
}

impl Messenger {
    /// Of a process with this identity. `rng` gives the cookies of lossless sessions.
    pub fn new(me: Identity, rng: Rng) -> Self {
        Messenger {
            me,
            learned: None,
            rng,
            listeners: HashMap::default(),
            links: HashMap::default(),
            conns: HashMap::default(),
            sessions: HashMap::default(),
            timers: Timers::default(),
            writer: FrameWriter::new(),
            dirty: Vec::new(),
            doomed: Vec::new(),
            room: Room::default(),
            handshakes: 0,
            last_link: 0,
            global_seq: 0,
        }
    }

    // ---- getters ----

    /// What this process is.
    pub fn identity(&self) -> &Identity {
        &self.me
    }

    /// Our address as the first daemon we dialled saw it: a client's identity for watches and
    /// blocklists. `None` before.
    pub fn learned_addr(&self) -> Option<EntityAddr> {
        self.learned
    }

    /// Who is at the other end; `None` before [`MsgrEvent::Open`] and after the end.
    pub fn peer(&self, link: LinkId) -> Option<&Arc<PeerInfo>> {
        self.links.get(&link)?.peer.as_ref()
    }

    /// Whether messages flow right now. A lossless link may be between two connections.
    pub fn is_connected(&self, link: LinkId) -> bool {
        self.links.get(&link).is_some_and(Link::is_open)
    }

    /// Bytes and number of messages that wait to be sent or acknowledged.
    pub fn queued(&self, link: LinkId) -> (usize, usize) {
        let link = self.links.get(&link);
        link.map_or((0, 0), |link| link.session.queued())
    }

    /// How many links there are, those not open yet included.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// When [`Messenger::tick`] is to be called.
    pub fn next_deadline(&self) -> Option<Mono> {
        if !self.doomed.is_empty() {
            return Some(Mono::default());
        }
        let timers = self.timers.next();
        match self.room.deadline() {
            None => timers,
            Some(at) => Some(timers.map_or(at, |timer| timer.min(at))),
        }
    }

    // ---- mutators ----

    /// A client learned its global id from the mon: it is presented from now on.
    pub fn set_global_id(&mut self, global_id: u64) {
        self.me.global_id = global_id;
        self.me.num = i64::try_from(global_id).unwrap_or(-1);
    }

    /// Accepts connections; [`MsgrEvent::Listening`] or [`MsgrEvent::ListenFailed`] follows.
    pub fn listen(
        &mut self,
        listen: ListenId,
        addr: ListenAddr,
        config: ListenerConfig,
        fx: &mut Effects,
    ) {
        self.listeners.insert(listen, Listener { config });
        fx.net.push(NetOp::Listen { listen, addr });
    }

    /// The addresses a listening socket states.
    pub fn listen_addrs(&self, listen: ListenId) -> Option<&AddrVec> {
        self.listeners.get(&listen).map(|l| &l.config.addrs)
    }

    /// Queues a message. It leaves at the turn's end, or when the link has a connection. On a link
    /// that ended it is dropped.
    pub fn send(&mut self, link: LinkId, message: OutMessage) {
        let Some(link) = self.links.get_mut(&link) else {
            return;
        };
        link.session.push(message);
        mark_dirty(&mut self.dirty, link);
        if link.is_over_bounds() && !link.doomed {
            link.doomed = true;
            self.doomed.push((link.id, CloseWhy::Overflow));
        }
    }

    /// Ends a link; what is queued on an open one is sent first. No event follows.
    pub fn close(&mut self, link: LinkId, fx: &mut Effects) {
        if let Some(mut link) = self.remove_link(link) {
            self.drop_transport(&mut link, true, fx);
        }
    }

    /// Ends all links.
    pub fn close_all(&mut self, fx: &mut Effects) {
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        links.into_iter().for_each(|link| self.close(link, fx));
    }

    /// Receives nothing more from the peer: back-pressure. Messages at hand still come, and so does a long one that
    /// is being received and has room.
    pub fn pause(&mut self, link: LinkId, fx: &mut Effects) {
        self.set_paused(link, true, fx);
    }

    /// Receives again.
    pub fn resume(&mut self, link: LinkId, fx: &mut Effects) {
        self.set_paused(link, false, fx);
    }

    fn set_paused(&mut self, link: LinkId, paused: bool, fx: &mut Effects) {
        let Some(link) = self.links.get_mut(&link) else {
            return;
        };
        if link.paused == paused {
            return;
        }
        link.paused = paused;
        link.sync_receiving(fx);
        mark_dirty(&mut self.dirty, link);
        if !paused {
            let id = link.id;
            self.stand_in_line(id);
        }
    }

    /// Answers [`MsgrEvent::WantsGlobalId`]. Does nothing when the link ended meanwhile.
    pub fn assign_global_id(&mut self, link: LinkId, global_id: u64) {
        self.answer_auth(link, |wire| wire.auth_done(global_id));
    }

    /// Answers [`MsgrEvent::WantsGlobalId`] with a refusal.
    pub fn refuse_global_id(&mut self, link: LinkId, error: Errno) {
        self.answer_auth(link, |wire| wire.auth_refused(error));
    }

    fn answer_auth(&mut self, link: LinkId, answer: impl FnOnce(&mut Connection)) {
        let Some(link) = self.links.get_mut(&link) else {
            return;
        };
        if let Some(wire) = link.wire()
            && wire.is_auth_pending()
        {
            answer(wire);
            mark_dirty(&mut self.dirty, link);
        }
    }

    /// The turn's end: everything queued is handed to the network, one send per connection.
    pub fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            if let Some(link) = self.links.get_mut(&id) {
                link.dirty = false;
                link.flush(now.mono, &mut self.writer, fx);
            }
        }
        self.dirty = dirty;
    }

    // ---- inputs ----

    /// Takes in a network event. Gives it back when it is about a connection or a listening socket
    /// of somebody else; also one about a connection that ended here in the meantime.
    pub fn handle(
        &mut self,
        now: Now,
        event: NetEvent,
        fx: &mut Effects,
        out: &mut Vec<MsgrEvent>,
    ) -> Option<NetEvent> {
        match event {
            NetEvent::Received { conn, data } if self.conns.contains_key(&conn) => {
                self.on_received(now, conn, |wire| wire.feed(data), fx, out);
            }
            NetEvent::Filled { conn, buf } if self.conns.contains_key(&conn) => {
                self.on_received(now, conn, |wire| wire.filled(buf), fx, out);
            }
            NetEvent::Closed { conn, why } if self.conns.contains_key(&conn) => {
                self.on_closed(now, conn, why, fx, out);
            }
            NetEvent::Backlog { conn, over } if self.conns.contains_key(&conn) => {
                self.on_backlog(conn, over, out);
            }
            NetEvent::Connected { conn, .. } if self.conns.contains_key(&conn) => {
                self.on_connected(conn);
            }
            NetEvent::Accepted { listen, conn, peer } if self.listeners.contains_key(&listen) => {
                self.on_accepted(now, listen, conn, peer, fx);
            }
            NetEvent::Listening { listen, addr } if self.listeners.contains_key(&listen) => {
                self.on_listening(listen, addr);
                out.push(MsgrEvent::Listening { listen, addr });
            }
            NetEvent::ListenFailed { listen, errno } if self.listeners.contains_key(&listen) => {
                self.listeners.remove(&listen);
                out.push(MsgrEvent::ListenFailed { listen, errno });
            }
            other => return Some(other),
        }
        None
    }

    fn on_backlog(&mut self, conn: ConnId, over: bool, out: &mut Vec<MsgrEvent>) {
        let link = self.conns.get(&conn).and_then(|id| self.links.get(id));
        if let Some(link) = link.filter(|link| link.is_open()) {
            out.push(MsgrEvent::Backlog { link: link.id, over });
        }
    }

    fn on_listening(&mut self, listen: ListenId, addr: Option<SocketAddr>) {
        let nonce = self.me.nonce;
        if let (Some(l), Some(addr)) = (self.listeners.get_mut(&listen), addr)
            && l.config.addrs.is_empty()
        {
            l.config.addrs = AddrVec::msgr2(addr, nonce);
        }
    }

    fn on_received(
        &mut self,
        now: Now,
        conn: ConnId,
        take_in: impl FnOnce(&mut Connection),
        fx: &mut Effects,
        out: &mut Vec<MsgrEvent>,
    ) {
        let Some(link) = self.conns.get(&conn).and_then(|id| self.links.get_mut(id)) else {
            return;
        };
        link.last_recv = now.mono;
        if let Some(wire) = link.wire() {
            take_in(wire);
        }
        self.drain(now, conn, fx, out);
    }

    /// Works off what was received on a connection. An ident may move it to another link.
    fn drain(&mut self, now: Now, conn: ConnId, fx: &mut Effects, out: &mut Vec<MsgrEvent>) {
        while let Some(&id) = self.conns.get(&conn) {
            let Some(link) = self.links.get_mut(&id) else {
                return;
            };
            let event = match link.pump(out) {
                Ok(None) => return self.after_drain(now, id, fx),
                Ok(Some(event)) => event,
                Err(error) => return self.fail(now, id, error.into(), fx, out),
            };
            if let Err(why) = self.on_conn_event(now, id, event, fx, out) {
                return self.fail(now, id, why, fx, out);
            }
        }
    }

    fn after_drain(&mut self, now: Now, id: LinkId, fx: &mut Effects) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if link.session.must_tell() {
            link.tell = true;
        } else if link.session.has_untold() && link.ack_timer.is_none() {
            let at = now.mono.after(ACK_DELAY);
            link.ack_timer = Some(self.timers.set(at, (id, Due::Ack)));
        }
        if link.wants_turn() {
            mark_dirty(&mut self.dirty, link);
        }
        // One that is next has not been told yet of its room: what comes meanwhile was on its way before.
        let has_read = link.room.is_some() && link.wire().is_none_or(|wire| !wire.has_room());
        if has_read && !self.room.is_next(id) {
            self.leave_room(id);
            if let Some(link) = self.links.get_mut(&id) {
                link.sync_receiving(fx);
            }
        }
    }

    fn on_conn_event(
        &mut self,
        now: Now,
        id: LinkId,
        event: ConnEvent,
        fx: &mut Effects,
        out: &mut Vec<MsgrEvent>,
    ) -> Result<(), CloseWhy> {
        match event {
            ConnEvent::Auth { name, global_id } => self.on_auth(id, name, global_id, out)?,
            ConnEvent::ClientIdent(ident) => self.on_client_ident(now, id, ident, fx, out)?,
            ConnEvent::Reconnect(ask) => self.on_reconnect(now, id, ask, fx, out)?,
            ConnEvent::Hello(hello) => self.on_hello(&hello),
            ConnEvent::Authenticated { .. } => self.send_ident(id)?,
            ConnEvent::ServerIdent(ident) => self.on_server_ident(now, id, &ident, fx, out)?,
            ConnEvent::MissingFeatures(missing) => {
                return Err(ProtocolError::MissingFeatures { missing }.into());
            }
            ConnEvent::SessionReset { full } => self.on_session_reset(id, full, out)?,
            ConnEvent::SessionRetry(seq) => self.on_session_retry(id, seq)?,
            ConnEvent::SessionRetryGlobal(seq) => self.on_session_retry_global(id, seq)?,
            ConnEvent::ReconnectOk(seq) => self.on_reconnect_ok(now, id, seq, fx)?,
            ConnEvent::Wait => self.on_wait(now, id, fx)?,
            ConnEvent::WantsRoom(bytes) => self.wants_room(now, id, bytes, fx),
            // Taken out by `Link::pump`.
            ConnEvent::Message(_) | ConnEvent::Ack(_) => {}
        }
        Ok(())
    }

    // ---- bookkeeping ----

    fn new_link_id(&mut self) -> LinkId {
        self.last_link = self.last_link.saturating_add(1);
        LinkId(self.last_link)
    }

    /// The number of our next connection attempt, after all so far and after `seen`.
    fn next_global_seq(&mut self, seen: u64) -> u64 {
        self.global_seq = self.global_seq.max(seen).saturating_add(1);
        self.global_seq
    }

    /// A cookie: random, not 0.
    fn new_cookie(&mut self) -> u64 {
        self.rng.u64(1..)
    }

    fn set_life(&mut self, id: LinkId, at: Option<Mono>) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if let Some((_, timer)) = link.life.take() {
            self.timers.cancel(timer);
        }
        link.life = at.map(|at| (at, self.timers.set(at, (id, Due::Life))));
    }
}

/// Puts a link on the list of those with something to do at the turn's end.
fn mark_dirty(dirty: &mut Vec<LinkId>, link: &mut Link) {
    if !link.dirty {
        link.dirty = true;
        dirty.push(link.id);
    }
}

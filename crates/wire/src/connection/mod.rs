//! One TCP connection: from the banner over authentication to an open session.
//!
//! ```text
//! dialler                              acceptor
//!   banner, HELLO  ----------------->
//!                  <-----------------  banner, HELLO
//!   AUTH_REQUEST   ----------------->                    } again after
//!                  <-----------------  AUTH_BAD_METHOD   } AUTH_BAD_METHOD
//!                  <-----------------  AUTH_DONE, AUTH_SIGNATURE
//!   AUTH_SIGNATURE ----------------->
//!   ident          ----------------->  CLIENT_IDENT or SESSION_RECONNECT
//!                  <-----------------  SERVER_IDENT, SESSION_RECONNECT_OK, or a refusal
//!   MESSAGE, ACK, KEEPALIVE2, KEEPALIVE2_ACK both ways
//! ```
//!
//! [`Connection`] does all this for its owner up to the decisions that need more than one
//! connection: which global id a client gets, and what an ident means for the sessions there are.
//! Those come out as a [`ConnEvent`], and the owner calls back. It is a pure state machine: received
//! bytes in through [`Connection::feed`], events out of [`Connection::next_event`], frames to send
//! in [`Connection::take_tx`]. Any error ends the connection.

pub mod auth;

mod banner;

use crate::ProtocolError;
use crate::frame::{
    AuthBadMethod, AuthDone, AuthRequest, ClientIdent, Frame, FrameReader, Hello, ServerIdent,
    SessionReconnect, Tag, put_control,
};
use crate::msg::{Header, Message};
use auth::{AuthName, METHOD_NONE, MODE_CRC, NO_SIGNATURE, NoneRequest};
use banner::BannerReader;
use bytes::Bytes;
use denc::{Decode, Encode};
use io::AlignedBuf;
use types::{AddrType, EntityAddr, EntityType, Errno, UTime};

/// AUTH_REQUESTs on one connection.
const MAX_AUTH_ATTEMPTS: u32 = 8;
/// Idents on one connection: resets and retries need a few.
const MAX_IDENT_ROUNDS: u32 = 16;
/// Something the owner has to see to.
#[derive(Debug)]
pub enum ConnEvent {
    /// The peer of a dialled connection told where it sees us.
    Hello(Hello),
    /// Acceptor: the peer wants to authenticate; [`Connection::auth_done`] or
    /// [`Connection::auth_refused`] answers.
    Auth {
        /// As whom.
        name: AuthName,
        /// The global id it says it has; 0 for none.
        global_id: u64,
    },
    /// Dialler: authenticated; [`Connection::client_ident`] or
    /// [`Connection::session_reconnect`] goes on.
    Authenticated {
        /// The global id the peer knows us by.
        global_id: u64,
    },
    /// Acceptor: a new session is asked for.
    ClientIdent(ClientIdent),
    /// Acceptor: an old session is to go on.
    Reconnect(SessionReconnect),
    /// Dialler: the new session is open.
    ServerIdent(ServerIdent),
    /// Dialler: feature bits are missing here.
    MissingFeatures(u64),
    /// Dialler: there is no such session.
    SessionReset {
        /// Whether the session's messages are lost.
        full: bool,
    },
    /// Dialler: try again with a connect_seq after this one.
    SessionRetry(u64),
    /// Dialler: try again with a global_seq after this one.
    SessionRetryGlobal(u64),
    /// Dialler: the old session goes on; the peer received messages up to this one.
    ReconnectOk(u64),
    /// Dialler: the peer dials us; wait for that.
    Wait,
    /// A message.
    Message(Message),
    /// The peer received messages up to this one.
    Ack(u64),
    /// A long message of so many bytes begins: it is read when there is [`Connection::give_room`].
    WantsRoom(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The peer's banner is due.
    Banner,
    /// HELLO is due.
    Hello,
    /// AUTH_REQUEST is due (acceptor), or the answer to ours (dialler).
    Auth,
    /// The owner has to answer an AUTH_REQUEST.
    AuthPending,
    /// AUTH_SIGNATURE is due.
    Signature,
    /// An ident is due (acceptor), or the answer to ours (dialler).
    Ident,
    /// The session is open.
    Ready,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Banner => "its banner was due",
            Phase::Hello => "HELLO was due",
            Phase::Auth | Phase::AuthPending => "authentication was due",
            Phase::Signature => "AUTH_SIGNATURE was due",
            Phase::Ident => "an ident or the answer to one was due",
            Phase::Ready => "the session is open",
        }
    }
}

/// Which end of a connection this is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Side {
    /// We dialled a daemon of this kind, to authenticate thus.
    Dialler {
        expected: EntityType,
        request: NoneRequest,
    },
    Acceptor,
}

/// One end of one connection. See the module's text.
#[derive(Debug)]
pub struct Connection {
    side: Side,
    phase: Phase,
    reader: FrameReader,
    banner: BannerReader,
    tx: Vec<u8>,
    peer_entity: EntityType,
    /// Dialler: what AUTH_DONE said.
    global_id: u64,
    auth_attempts: u32,
    ident_rounds: u32,
}

impl Connection {
    /// The dialling end: `me` dials a daemon of kind `expected` at `target`.
    pub fn dial(
        me: EntityType,
        expected: EntityType,
        target: EntityAddr,
        request: NoneRequest,
    ) -> Self {
        Self::new(Side::Dialler { expected, request }, me, target)
    }

    /// The accepting end, at a daemon of kind `me`; the peer is seen at `peer`.
    pub fn accept(me: EntityType, peer: EntityAddr) -> Self {
        Self::new(Side::Acceptor, me, peer)
    }

    fn new(side: Side, me: EntityType, peer: EntityAddr) -> Self {
        let mut c = Connection {
            side,
            phase: Phase::Banner,
            reader: FrameReader::without_messages(),
            banner: BannerReader::default(),
            tx: Vec::with_capacity(128),
            peer_entity: EntityType::default(),
            global_id: 0,
            auth_attempts: 0,
            ident_rounds: 0,
        };
        banner::write(&mut c.tx);
        // The peer's banner need not be awaited: it has revision 1 or is refused.
        let hello = Hello { entity: me, peer_addr: EntityAddr { kind: AddrType::MSGR2, ..peer } };
        c.control(Tag::Hello, &hello);
        c
    }

    // ---- state ----

    /// Whether messages can be sent.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Whether this end dialled.
    pub fn is_dialler(&self) -> bool {
        self.side != Side::Acceptor
    }

    /// What the peer said it is in HELLO; 0 before.
    pub fn peer_entity(&self) -> EntityType {
        self.peer_entity
    }

    /// Whether the peer is neither in the middle of a frame nor of the handshake.
    pub fn is_at_rest(&self) -> bool {
        self.is_ready() && self.reader.is_between_frames()
    }

    /// What the connection waits for, for people: "HELLO was due".
    pub fn phase_name(&self) -> &'static str {
        self.phase.name()
    }

    // ---- bytes ----

    /// Takes in received bytes; [`Connection::next_event`] is then called until it gives `None`.
    pub fn feed(&mut self, data: Bytes) {
        self.reader.feed(data);
    }

    /// Takes back the buffer of [`Connection::take_fill`].
    pub fn filled(&mut self, buf: AlignedBuf) {
        self.reader.filled(buf);
    }

    /// See [`FrameReader::take_fill`].
    pub fn take_fill(&mut self) -> Option<(AlignedBuf, usize)> {
        self.reader.take_fill()
    }

    /// See [`FrameReader::wants_fill`].
    pub fn wants_fill(&self) -> bool {
        self.reader.wants_fill()
    }

    /// See [`FrameReader::ask_for_room`].
    pub fn ask_for_room(&mut self) {
        self.reader.ask_for_room();
    }

    /// See [`FrameReader::give_room`].
    pub fn give_room(&mut self) {
        self.reader.give_room();
    }

    /// See [`FrameReader::has_room`].
    pub fn has_room(&self) -> bool {
        self.reader.has_room()
    }

    /// Control frames to send, before any message.
    pub fn take_tx(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.tx)
    }

    /// Whether [`Connection::take_tx`] has anything.
    pub fn has_tx(&self) -> bool {
        !self.tx.is_empty()
    }

    fn control<T: Encode + ?Sized>(&mut self, tag: Tag, payload: &T) {
        put_control(&mut self.tx, tag, payload);
    }

    /// What happens next, `None` when more bytes are needed.
    ///
    /// # Errors
    /// When the peer breaks the protocol; the connection must then be closed.
    pub fn next_event(&mut self) -> Result<Option<ConnEvent>, ProtocolError> {
        if self.phase == Phase::Banner {
            if !self.banner.read(&mut self.reader)? {
                return Ok(None);
            }
            self.phase = Phase::Hello;
        }
        loop {
            if self.phase == Phase::AuthPending {
                return if self.reader.has_bytes() {
                    Err(ProtocolError::OutOfTurn)
                } else {
                    Ok(None)
                };
            }
            let Some(frame) = self.reader.next_frame()? else {
                return Ok(self.reader.wants_room().map(ConnEvent::WantsRoom));
            };
            if let Some(event) = self.on_frame(&frame)? {
                return Ok(Some(event));
            }
        }
    }

    // ---- frames ----

    fn on_frame(&mut self, frame: &Frame) -> Result<Option<ConnEvent>, ProtocolError> {
        let tag = frame.tag();
        match (tag, self.phase) {
            (Tag::Message, Phase::Ready) => message_of(frame).map(|m| Some(ConnEvent::Message(m))),
            (Tag::Ack, Phase::Ready) => payload(frame).map(|seq| Some(ConnEvent::Ack(seq))),
            (Tag::Keepalive2, Phase::Ready) => {
                let stamp: UTime = payload(frame)?;
                self.control(Tag::Keepalive2Ack, &stamp);
                Ok(None)
            }
            (Tag::Keepalive2Ack, Phase::Ready) => payload::<UTime>(frame).map(|_| None),
            (Tag::Hello, Phase::Hello) => self.on_hello(payload(frame)?),
            (Tag::AuthSignature, Phase::Signature) => self.on_signature(frame),
            _ => match &self.side {
                Side::Dialler { .. } => self.on_answer(tag, frame),
                Side::Acceptor => self.on_request(tag, frame),
            },
        }
    }

    fn unexpected(&self, tag: Tag) -> ProtocolError {
        ProtocolError::Unexpected { tag, phase: self.phase.name() }
    }

    fn on_hello(&mut self, hello: Hello) -> Result<Option<ConnEvent>, ProtocolError> {
        self.peer_entity = hello.entity;
        self.phase = Phase::Auth;
        let Side::Dialler { expected, request } = &self.side else {
            return Ok(None);
        };
        if hello.entity != *expected {
            return Err(ProtocolError::WrongEntity { wanted: *expected, got: hello.entity });
        }
        let request = AuthRequest {
            method: METHOD_NONE,
            modes: vec![MODE_CRC],
            payload: denc::encode(request),
        };
        self.control(Tag::AuthRequest, &request);
        Ok(Some(ConnEvent::Hello(hello)))
    }

    fn on_signature(&mut self, frame: &Frame) -> Result<Option<ConnEvent>, ProtocolError> {
        if !auth::is_no_signature(&frame.segment(0)) {
            return Err(ProtocolError::Signature);
        }
        self.phase = Phase::Ident;
        let global_id = self.global_id;
        Ok(match self.side {
            Side::Dialler { .. } => Some(ConnEvent::Authenticated { global_id }),
            Side::Acceptor => None,
        })
    }

    /// Frames that only a dialler gets.
    fn on_answer(&mut self, tag: Tag, frame: &Frame) -> Result<Option<ConnEvent>, ProtocolError> {
        let event = match (tag, self.phase) {
            (Tag::AuthDone, Phase::Auth) => {
                let done: AuthDone = payload(frame)?;
                if done.con_mode != MODE_CRC {
                    return Err(ProtocolError::ConMode(done.con_mode));
                }
                self.global_id = done.global_id;
                self.phase = Phase::Signature;
                self.control(Tag::AuthSignature, &Raw(&NO_SIGNATURE));
                return Ok(None);
            }
            (Tag::AuthBadMethod, Phase::Auth) => {
                let bad: AuthBadMethod = payload(frame)?;
                return Err(ProtocolError::AuthRefused {
                    method: bad.method,
                    result: bad.result,
                    allowed: bad.allowed_methods,
                });
            }
            (Tag::ServerIdent, Phase::Ident) => ConnEvent::ServerIdent(payload(frame)?),
            (Tag::IdentMissingFeatures, Phase::Ident) => {
                ConnEvent::MissingFeatures(payload(frame)?)
            }
            (Tag::SessionReset, Phase::Ident) => ConnEvent::SessionReset { full: payload(frame)? },
            (Tag::SessionRetry, Phase::Ident) => ConnEvent::SessionRetry(payload(frame)?),
            (Tag::SessionRetryGlobal, Phase::Ident) => {
                ConnEvent::SessionRetryGlobal(payload(frame)?)
            }
            (Tag::SessionReconnectOk, Phase::Ident) => ConnEvent::ReconnectOk(payload(frame)?),
            (Tag::Wait, Phase::Ident) => ConnEvent::Wait,
            _ => return Err(self.unexpected(tag)),
        };
        Ok(Some(event))
    }

    /// Frames that only an acceptor gets.
    fn on_request(&mut self, tag: Tag, frame: &Frame) -> Result<Option<ConnEvent>, ProtocolError> {
        match (tag, self.phase) {
            (Tag::AuthRequest, Phase::Auth) => self.on_auth_request(&payload(frame)?),
            (Tag::ClientIdent, Phase::Ident) => {
                self.count_ident()?;
                payload(frame).map(|ident| Some(ConnEvent::ClientIdent(ident)))
            }
            (Tag::SessionReconnect, Phase::Ident) => {
                self.count_ident()?;
                payload(frame).map(|reconnect| Some(ConnEvent::Reconnect(reconnect)))
            }
            _ => Err(self.unexpected(tag)),
        }
    }

    fn count_ident(&mut self) -> Result<(), ProtocolError> {
        self.ident_rounds = self.ident_rounds.saturating_add(1);
        if self.ident_rounds > MAX_IDENT_ROUNDS {
            return Err(ProtocolError::IdentRounds(MAX_IDENT_ROUNDS));
        }
        Ok(())
    }

    fn on_auth_request(
        &mut self,
        request: &AuthRequest,
    ) -> Result<Option<ConnEvent>, ProtocolError> {
        self.auth_attempts = self.auth_attempts.saturating_add(1);
        if self.auth_attempts > MAX_AUTH_ATTEMPTS {
            return Err(ProtocolError::AuthAttempts(MAX_AUTH_ATTEMPTS));
        }
        if request.method != METHOD_NONE || !request.modes.contains(&MODE_CRC) {
            self.bad_method(request.method, Errno::EOPNOTSUPP);
            return Ok(None);
        }
        let none: NoneRequest = denc::decode(&request.payload)
            .map_err(|error| ProtocolError::Payload { tag: Tag::AuthRequest, error })?;
        self.phase = Phase::AuthPending;
        Ok(Some(ConnEvent::Auth {
            name: AuthName {
                kind: EntityType(u8::try_from(none.entity).unwrap_or(0)),
                id: none.id,
            },
            global_id: none.global_id,
        }))
    }

    fn bad_method(&mut self, method: u32, error: Errno) {
        let answer = AuthBadMethod {
            method,
            result: error.wire(),
            allowed_methods: vec![METHOD_NONE],
            allowed_modes: vec![MODE_CRC],
        };
        self.control(Tag::AuthBadMethod, &answer);
    }

    // ---- the owner's answers ----

    /// Answers [`ConnEvent::Auth`]: the peer is authenticated and has this global id.
    ///
    /// # Panics
    /// When there was no such event.
    pub fn auth_done(&mut self, global_id: u64) {
        assert_eq!(self.phase, Phase::AuthPending, "nobody asked");
        let done = AuthDone { global_id, con_mode: MODE_CRC, payload: Bytes::new() };
        self.control(Tag::AuthDone, &done);
        self.control(Tag::AuthSignature, &Raw(&NO_SIGNATURE));
        self.global_id = global_id;
        self.phase = Phase::Signature;
    }

    /// Answers [`ConnEvent::Auth`]: no. The peer may try again.
    ///
    /// # Panics
    /// When there was no such event.
    pub fn auth_refused(&mut self, error: Errno) {
        assert_eq!(self.phase, Phase::AuthPending, "nobody asked");
        self.bad_method(METHOD_NONE, error);
        self.phase = Phase::Auth;
    }

    /// The global id agreed on; 0 before.
    pub fn global_id(&self) -> u64 {
        self.global_id
    }

    /// Whether an [`ConnEvent::Auth`] waits for its answer.
    pub fn is_auth_pending(&self) -> bool {
        self.phase == Phase::AuthPending
    }

    /// Dialler: asks for a new session.
    ///
    /// # Errors
    /// When that was done too often on this connection.
    pub fn client_ident(&mut self, ident: &ClientIdent) -> Result<(), ProtocolError> {
        self.count_ident()?;
        self.control(Tag::ClientIdent, ident);
        Ok(())
    }

    /// Dialler: asks to go on with a session.
    ///
    /// # Errors
    /// When that was done too often on this connection.
    pub fn session_reconnect(&mut self, ask: &SessionReconnect) -> Result<(), ProtocolError> {
        self.count_ident()?;
        self.control(Tag::SessionReconnect, ask);
        Ok(())
    }

    /// Acceptor: the new session is open.
    pub fn server_ident(&mut self, ident: &ServerIdent) {
        self.control(Tag::ServerIdent, ident);
        self.set_ready();
    }

    /// Acceptor: the old session goes on; messages up to `in_seq` were received.
    pub fn reconnect_ok(&mut self, in_seq: u64) {
        self.control(Tag::SessionReconnectOk, &in_seq);
        self.set_ready();
    }

    /// Acceptor: there is no such session; the peer may ask for a new one.
    pub fn session_reset(&mut self, full: bool) {
        self.control(Tag::SessionReset, &full);
    }

    /// Acceptor: try again with a later connect_seq.
    pub fn session_retry(&mut self, connect_seq: u64) {
        self.control(Tag::SessionRetry, &connect_seq);
    }

    /// Acceptor: try again with a later global_seq.
    pub fn session_retry_global(&mut self, global_seq: u64) {
        self.control(Tag::SessionRetryGlobal, &global_seq);
    }

    /// Acceptor: we are dialling you.
    pub fn wait(&mut self) {
        self.control(Tag::Wait, &());
    }

    /// Acceptor: feature bits are missing there.
    pub fn missing_features(&mut self, missing: u64) {
        self.control(Tag::IdentMissingFeatures, &missing);
    }

    /// Asks whether the peer is there.
    pub fn keepalive(&mut self, stamp: UTime) {
        self.control(Tag::Keepalive2, &stamp);
    }

    /// The session is open: messages can be sent and received.
    ///
    /// # Panics
    /// When no ident was due.
    pub fn set_ready(&mut self) {
        assert_eq!(self.phase, Phase::Ident, "a session opens after an ident");
        self.phase = Phase::Ready;
        self.reader.allow_messages();
    }
}

/// Bytes as they are.
struct Raw<'a>(&'a [u8]);

impl Encode for Raw<'_> {
    fn encode(&self, e: &mut denc::Encoder) {
        e.put_raw(self.0);
    }
}

/// The payload of a control frame; what a newer peer appends is ignored.
fn payload<T: Decode>(frame: &Frame) -> Result<T, ProtocolError> {
    let error = |error| ProtocolError::Payload { tag: frame.tag(), error };
    denc::decode(&frame.segment(0)).map_err(error)
}

/// The message of a MESSAGE frame.
///
/// # Errors
/// When its first segment is not a message header.
pub fn message_of(frame: &Frame) -> Result<Message, ProtocolError> {
    Ok(Message {
        header: Header::parse(frame.head())?,
        front: frame.segment(1),
        middle: frame.segment(2),
        data: frame.segment(3),
        data_crc: frame.data_crc(),
        data_left_out: frame.left_out_bytes() > 0,
    })
}

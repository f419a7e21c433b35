//! A messenger against a peer that follows a script, to reach every answer to an ident.

use crate::hostile::Victim;
use crate::virtual_net::note;
use bytes::Bytes;
use io::net::{ConnId, NetEvent, NetOp, PeerAddr};
use io::{Effects, Now, Rng};
use types::{AddrVec, EntityAddr, EntityType};
use wire::connection::auth::NoneRequest;
use wire::connection::{ConnEvent, Connection};
use wire::frame::{
    ClientIdent, FEATURES_REQUIRED, FEATURES_SUPPORTED, FrameWriter, IDENT_LOSSY, ServerIdent,
    SessionReconnect,
};
use wire::{Dial, Identity, LinkId, Messenger, MsgrEvent, OutMessage, Policy};

fn here() -> EntityAddr {
    EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), 1)
}

fn there() -> EntityAddr {
    EntityAddr::msgr2("127.0.0.1:6801".parse().unwrap(), 2)
}

/// What goes out to a connection, in order.
fn sent(fx: &mut Effects, conn: ConnId) -> Bytes {
    let mut bytes = Vec::new();
    for op in &mut fx.net {
        if let NetOp::Send { conn: c, data } = op
            && *c == conn
        {
            data.drain(..).for_each(|piece| bytes.extend_from_slice(&piece));
        }
    }
    bytes.into()
}

/// Reads up what the other end said, without its messages; `None` when that was nothing.
fn last_event(end: &mut Connection, bytes: Bytes) -> Option<ConnEvent> {
    let mut last = None;
    if !bytes.is_empty() {
        end.feed(bytes);
    }
    while let Some(event) = end.next_event().expect("our own end keeps to the protocol") {
        last = Some(event);
        if end.is_auth_pending() {
            break;
        }
    }
    last
}

/// A daemon, and scripted diallers of it.
pub struct Stage {
    pub daemon: Victim,
}

impl Stage {
    pub fn new() -> Self {
        Stage { daemon: Victim::osd() }
    }

    /// A peer of that kind that is authenticated and has to identify itself.
    pub fn peer(&mut self, kind: EntityType) -> Connection {
        let fx = &mut self.daemon.fx;
        let conn = fx.new_conn();
        let peer = PeerAddr::Tcp("127.0.0.1:45678".parse().unwrap());
        self.daemon.conn = conn;
        let listen = crate::network::LISTEN;
        self.daemon.handle(NetEvent::Accepted { listen, conn, peer });
        let request = NoneRequest::new(EntityType::OSD, kind, "7", 4100);
        let mut end = Connection::dial(kind, EntityType::OSD, here(), request);
        for _ in 0..2 {
            self.exchange(&mut end);
        }
        let event = self.exchange(&mut end);
        assert!(event.is_none(), "{event:?}");
        end
    }

    /// Says what the peer has to say; gives the last event of the answer.
    fn exchange(&mut self, end: &mut Connection) -> Option<ConnEvent> {
        let tx = end.take_tx();
        if !tx.is_empty() {
            self.daemon.take_in(tx.into());
        }
        let answer = sent(&mut self.daemon.fx, self.daemon.conn);
        match last_event(end, answer) {
            Some(ConnEvent::Hello(_) | ConnEvent::Authenticated { .. }) | None => None,
            event => event,
        }
    }

    pub fn ident(&mut self, end: &mut Connection, ident: &ClientIdent) -> Option<ConnEvent> {
        end.client_ident(ident).unwrap();
        self.exchange(end)
    }

    fn ask(&mut self, end: &mut Connection, ask: &SessionReconnect) -> Option<ConnEvent> {
        end.session_reconnect(ask).unwrap();
        self.exchange(end)
    }

    /// What the daemon was told since the last call, in words.
    pub fn story(&mut self) -> Vec<String> {
        let word = |e: MsgrEvent| match e {
            MsgrEvent::Open { peer, .. } => format!("open {}", peer.name),
            MsgrEvent::Closed { why, .. } => format!("closed: {why}"),
            MsgrEvent::Reset { .. } => "reset".to_owned(),
            MsgrEvent::Message { message, .. } => format!("note {}", message.header.tid),
            other => format!("{other:?}"),
        };
        self.daemon.out.drain(..).map(word).collect()
    }

    /// Frames of messages with these numbers.
    fn say(&mut self, seqs: &[u64], ack_seq: u64) {
        let mut w = FrameWriter::new();
        for &seq in seqs {
            write(&mut w, &note(seq, 10), seq, ack_seq);
        }
        self.daemon.take_in(w.take().concat().into());
    }
}

pub fn write(w: &mut FrameWriter, m: &OutMessage, seq: u64, ack_seq: u64) {
    w.message(&m.header(seq, ack_seq), &m.front, &m.middle, (&m.data, m.data_crc));
}

pub fn lossless_ident(global_seq: u64, cookie: u64) -> ClientIdent {
    ClientIdent {
        addrs: AddrVec(vec![there()]),
        target: here(),
        gid: 7,
        global_seq,
        supported: FEATURES_SUPPORTED,
        required: FEATURES_REQUIRED,
        flags: 0,
        cookie,
    }
}

fn reconnect(cookies: (u64, u64), global_seq: u64, connect_seq: u64) -> SessionReconnect {
    SessionReconnect {
        addrs: AddrVec(vec![there()]),
        client_cookie: cookies.0,
        server_cookie: cookies.1,
        global_seq,
        connect_seq,
        msg_seq: 0,
    }
}

/// An open lossless session with client cookie 5 and messages 1 to 3 received.
fn opened() -> (Stage, Connection, u64) {
    let mut stage = Stage::new();
    let mut end = stage.peer(EntityType::OSD);
    let Some(ConnEvent::ServerIdent(ident)) = stage.ident(&mut end, &lossless_ident(10, 5)) else {
        panic!("no SERVER_IDENT");
    };
    assert_eq!((ident.flags, ident.addrs), (0, AddrVec(vec![here()])));
    stage.say(&[1, 2, 2, 1, 3], 0);
    assert_eq!(stage.story(), ["open osd.7", "note 1", "note 2", "note 3"]);
    (stage, end, ident.cookie)
}

#[test]
fn a_lossy_client_that_wants_to_resume_is_reset_and_may_begin_anew() {
    let mut stage = Stage::new();
    let mut end = stage.peer(EntityType::CLIENT);
    let answer = stage.ask(&mut end, &reconnect((5, 6), 1, 1));
    assert!(matches!(answer, Some(ConnEvent::SessionReset { full: true })), "{answer:?}");
    // A bootstrap client says "lossless" and has a cookie; the server decides.
    let answer = stage.ident(&mut end, &lossless_ident(2, 5));
    let Some(ConnEvent::ServerIdent(ident)) = answer else { panic!("{answer:?}") };
    assert_eq!((ident.flags, ident.cookie), (IDENT_LOSSY, 0));
    assert_eq!(stage.story(), ["open client.4100"]);
}

#[test]
fn a_session_goes_on_where_it_was() {
    let (mut stage, _, cookie) = opened();
    let mut end = stage.peer(EntityType::OSD);
    let answer = stage.ask(&mut end, &reconnect((5, cookie), 11, 1));
    assert!(matches!(answer, Some(ConnEvent::ReconnectOk(3))), "{answer:?}");
    end.set_ready();
    stage.say(&[2, 3, 4], 0);
    assert_eq!(stage.story(), ["note 4"]);
}

#[test]
fn old_attempts_have_to_try_again() {
    let (mut stage, _, cookie) = opened();
    let mut end = stage.peer(EntityType::OSD);
    let answer = stage.ask(&mut end, &reconnect((5, cookie), 9, 1));
    assert!(matches!(answer, Some(ConnEvent::SessionRetryGlobal(10))), "{answer:?}");
    let answer = stage.ask(&mut end, &reconnect((5, cookie), 11, 4));
    assert!(matches!(answer, Some(ConnEvent::ReconnectOk(3))), "{answer:?}");
    let mut end = stage.peer(EntityType::OSD);
    let answer = stage.ask(&mut end, &reconnect((5, cookie), 12, 3));
    assert!(matches!(answer, Some(ConnEvent::SessionRetry(4))), "{answer:?}");
    // A stale CLIENT_IDENT is thrown out, and does no harm.
    let mut end = stage.peer(EntityType::OSD);
    assert!(stage.ident(&mut end, &lossless_ident(3, 5)).is_none());
    assert!(stage.daemon.is_closed() && stage.story().is_empty());
}

#[test]
fn sessions_nobody_knows_are_reset() {
    let (mut stage, _, cookie) = opened();
    for cookies in [(6, cookie), (5, cookie ^ 1)] {
        let mut end = stage.peer(EntityType::OSD);
        let answer = stage.ask(&mut end, &reconnect(cookies, 11, 1));
        assert!(matches!(answer, Some(ConnEvent::SessionReset { full: true })), "{answer:?}");
    }
    assert!(stage.story().is_empty());
    // The right cookies, but it received what was never sent.
    let mut end = stage.peer(EntityType::OSD);
    let mut ask = reconnect((5, cookie), 11, 1);
    ask.msg_seq = 99;
    let answer = stage.ask(&mut end, &ask);
    assert!(matches!(answer, Some(ConnEvent::SessionReset { full: true })), "{answer:?}");
    assert_eq!(stage.story(), ["reset"]);
    let answer = stage.ident(&mut end, &lossless_ident(12, 9));
    assert!(matches!(answer, Some(ConnEvent::ServerIdent(_))), "{answer:?}");
    stage.say(&[1], 0);
    assert_eq!(stage.story(), ["note 1"]);
}

#[test]
fn idents_cannot_go_on_for_ever() {
    let (mut stage, ..) = opened();
    let mut end = stage.peer(EntityType::OSD);
    let asks = (0..100).take_while(|_| {
        let unknown = reconnect((1, 2), 11, 1);
        end.session_reconnect(&unknown).is_ok() && stage.exchange(&mut end).is_some()
    });
    assert!(asks.count() <= 16);
}

#[test]
fn a_gap_or_a_false_acknowledgement_ends_the_connection_only() {
    for (seqs, ack_seq) in [([5], 0), ([4], 1)] {
        let (mut stage, _, cookie) = opened();
        stage.say(&seqs, ack_seq);
        assert!(stage.daemon.is_closed());
        assert!(stage.story().is_empty(), "the session waits for its peer");
        let mut end = stage.peer(EntityType::OSD);
        let answer = stage.ask(&mut end, &reconnect((5, cookie), 11, 1));
        assert!(matches!(answer, Some(ConnEvent::ReconnectOk(3))), "{answer:?}");
    }
}

#[test]
fn idents_that_cannot_be_served() {
    let good = lossless_ident(1, 5);
    let refused = |change: &dyn Fn(&mut ClientIdent)| {
        let mut stage = Stage::new();
        let mut end = stage.peer(EntityType::OSD);
        let mut ident = good.clone();
        change(&mut ident);
        let answer = stage.ident(&mut end, &ident);
        assert!(stage.daemon.is_closed() && stage.daemon.out.is_empty(), "{ident:?}");
        answer
    };
    let missing = 1 << 59;
    let answer = refused(&|i| i.supported &= !missing);
    assert!(matches!(answer, Some(ConnEvent::MissingFeatures(m)) if m == missing), "{answer:?}");
    assert!(refused(&|i| i.required |= 1 << 62).is_none());
    assert!(refused(&|i| i.target.nonce ^= 1).is_none());
    assert!(refused(&|i| i.addrs = AddrVec::default()).is_none());
    assert!(refused(&|i| i.flags = IDENT_LOSSY).is_none());
    assert!(refused(&|i| i.cookie = 0).is_none());
}

#[test]
fn an_unknown_ip_is_the_one_of_the_socket() {
    let mut stage = Stage::new();
    let mut end = stage.peer(EntityType::CLIENT);
    let mut ident = lossless_ident(1, 0);
    let any = EntityAddr::msgr2("0.0.0.0:0".parse().unwrap(), 77);
    ident.addrs = AddrVec(vec![any.with_kind(types::AddrType::ANY)]);
    stage.ident(&mut end, &ident);
    let MsgrEvent::Open { peer, .. } = &stage.daemon.out[0] else { panic!() };
    assert_eq!(peer.addrs.to_string(), "127.0.0.1:0/77");
}

/// A messenger that dials, and what a scripted acceptor answers.
struct Dialler {
    msgr: Messenger,
    fx: Effects,
    out: Vec<MsgrEvent>,
    link: LinkId,
    conn: ConnId,
    end: Connection,
    now: Now,
}

impl Dialler {
    /// Dialled, authenticated, and about to be answered.
    fn new(policy: Policy) -> Self {
        let mut fx = Effects::new();
        let me = Identity::daemon(EntityType::OSD, 1, 2);
        let mut msgr = Messenger::new(me, Rng::with_seed(4));
        let dial = Dial::new(AddrVec(vec![here()]), EntityType::OSD, policy);
        let dial = dial.from_addrs(AddrVec(vec![there()]));
        let link = msgr.dial(Now::default(), dial, &mut fx);
        let mut d = Dialler {
            msgr,
            fx,
            out: Vec::new(),
            link,
            conn: ConnId(0),
            end: Connection::accept(EntityType::OSD, EntityAddr::default()),
            now: Now::default(),
        };
        d.connected();
        d
    }

    /// The newest connection is made, and authenticated. Gives the ident.
    fn connected(&mut self) -> ConnEvent {
        let connects = self.fx.net.iter().filter_map(|op| match op {
            NetOp::Connect { conn, .. } => Some(*conn),
            _ => None,
        });
        self.conn = connects.last().expect("a dial");
        self.end = Connection::accept(EntityType::OSD, EntityAddr::default());
        let local = "127.0.0.1:40000".parse().unwrap();
        self.event(NetEvent::Connected { conn: self.conn, local });
        for _ in 0..5 {
            match self.exchange() {
                Some(ConnEvent::Auth { global_id, .. }) => self.end.auth_done(global_id),
                Some(event @ (ConnEvent::ClientIdent(_) | ConnEvent::Reconnect(_))) => {
                    return event;
                }
                _ => {}
            }
        }
        panic!("no ident");
    }

    fn event(&mut self, event: NetEvent) {
        self.msgr.handle(self.now, event, &mut self.fx, &mut self.out);
        self.msgr.end_turn(self.now, &mut self.fx);
    }

    fn exchange(&mut self) -> Option<ConnEvent> {
        let (conn, data) = (self.conn, Bytes::from(self.end.take_tx()));
        if !data.is_empty() {
            self.event(NetEvent::Received { conn, data });
        }
        let said = sent(&mut self.fx, conn);
        last_event(&mut self.end, said)
    }

    fn server_ident(&mut self, change: impl FnOnce(&mut ServerIdent)) {
        let mut ident = ServerIdent {
            addrs: AddrVec(vec![here()]),
            gid: 0,
            global_seq: 1,
            supported: FEATURES_SUPPORTED,
            required: FEATURES_REQUIRED,
            flags: 0,
            cookie: 9,
        };
        change(&mut ident);
        self.end.server_ident(&ident);
        self.exchange();
    }

    /// The connection breaks, and is dialled again.
    fn again(&mut self) -> SessionReconnect {
        let (conn, why) = (self.conn, io::net::CloseReason::Eof);
        self.event(NetEvent::Closed { conn, why });
        self.now.mono = self.msgr.next_deadline().unwrap();
        self.msgr.tick(self.now, &mut self.fx, &mut self.out);
        match self.connected() {
            ConnEvent::Reconnect(ask) => ask,
            event => panic!("{event:?}"),
        }
    }

    fn open() -> Self {
        let mut d = Self::new(Policy::lossless_peer());
        d.server_ident(|_| {});
        assert!(d.msgr.is_connected(d.link));
        d.out.clear();
        d
    }
}

#[test]
fn a_dialler_tries_again_as_it_is_told() {
    let mut d = Dialler::open();
    let ask = d.again();
    assert_eq!((ask.server_cookie, ask.connect_seq, ask.msg_seq), (9, 1, 0));
    d.end.session_retry(7);
    let Some(ConnEvent::Reconnect(ask)) = d.exchange() else { panic!() };
    assert_eq!(ask.connect_seq, 8);
    d.end.session_retry_global(50);
    let Some(ConnEvent::Reconnect(ask)) = d.exchange() else { panic!() };
    assert_eq!(ask.global_seq, 51);
    d.end.reconnect_ok(0);
    d.exchange();
    assert!(d.msgr.is_connected(d.link) && d.out.is_empty());
}

#[test]
fn a_dialler_whose_session_is_gone_begins_anew() {
    let mut d = Dialler::open();
    let old = d.again();
    d.end.session_reset(true);
    let Some(ConnEvent::ClientIdent(ident)) = d.exchange() else { panic!() };
    assert_ne!(ident.cookie, old.client_cookie);
    let [MsgrEvent::Reset { link, renewed }] = d.out[..] else { panic!("{:?}", d.out) };
    assert_eq!(link, d.link);
    d.server_ident(|i| i.cookie = 10);
    assert!(d.msgr.is_connected(renewed));
    // Half a reset: the acceptor never saw our SERVER_IDENT. Nothing is lost.
    d.link = renewed;
    d.out.clear();
    let old = d.again();
    d.end.session_reset(false);
    let Some(ConnEvent::ClientIdent(ident)) = d.exchange() else { panic!() };
    assert_eq!(ident.cookie, old.client_cookie);
    assert!(d.out.is_empty());
}

#[test]
fn a_dialler_that_has_to_wait_waits_and_dials_again() {
    let mut d = Dialler::new(Policy::lossless_peer());
    d.end.wait();
    d.exchange();
    assert_eq!(d.msgr.next_deadline().unwrap().0, 15_000_000_000);
    d.now.mono = d.msgr.next_deadline().unwrap();
    d.msgr.tick(d.now, &mut d.fx, &mut d.out);
    assert!(matches!(d.connected(), ConnEvent::ClientIdent(_)));
}

#[test]
fn answers_a_dialler_does_not_take() {
    let bad: [&dyn Fn(&mut ServerIdent); 4] = [
        &|i| i.addrs = AddrVec(vec![there()]),
        &|i| i.required |= 1 << 62,
        &|i| i.supported &= !FEATURES_REQUIRED,
        &|i| i.cookie = 0,
    ];
    for change in bad {
        let mut d = Dialler::new(Policy::lossy_client());
        d.server_ident(|i| {
            i.flags = 0;
            change(i);
        });
        assert!(matches!(d.out[..], [MsgrEvent::Closed { .. }]), "{:?}", d.out);
    }
    // Lossless where lossy was asked for; resume where nothing was.
    let mut d = Dialler::new(Policy::lossy_client());
    d.server_ident(|_| {});
    assert!(matches!(d.out[..], [MsgrEvent::Closed { .. }]), "{:?}", d.out);
    let mut d = Dialler::new(Policy::lossy_client());
    d.end.session_retry(1);
    d.exchange();
    assert!(matches!(d.out[..], [MsgrEvent::Closed { .. }]), "{:?}", d.out);
    // A lossless link only loses the connection, and goes on trying.
    let mut d = Dialler::new(Policy::lossless_peer());
    d.end.reconnect_ok(4);
    d.exchange();
    assert!(d.out.is_empty() && d.msgr.next_deadline().is_some());
    assert!(d.fx.net.iter().any(|op| matches!(op, NetOp::Close { .. })));
}

#[test]
fn a_server_that_wants_it_lossy_gets_it_lossy() {
    let mut d = Dialler::new(Policy::lossless_peer());
    d.server_ident(|i| {
        i.flags = IDENT_LOSSY;
        i.cookie = 0;
    });
    let [MsgrEvent::Open { peer, .. }] = &d.out[..] else { panic!() };
    assert!(peer.lossy);
    let (conn, why) = (d.conn, io::net::CloseReason::Eof);
    d.event(NetEvent::Closed { conn, why });
    assert!(matches!(d.out[1], MsgrEvent::Closed { .. }));
    assert_eq!(d.msgr.link_count(), 0);
}

#[test]
fn a_message_before_the_session_is_open_ends_the_connection() {
    let mut stage = Stage::new();
    stage.peer(EntityType::CLIENT);
    stage.say(&[1], 0);
    assert!(stage.daemon.is_closed() && stage.daemon.out.is_empty());
}

//! Bytes that no honest peer sends: the connection ends with one line in the log, nothing else.

use crate::network::LISTEN;
use crate::vectors::streams;
use bytes::Bytes;
use denc::KnownCrc;
use io::net::{ConnId, ListenAddr, NetEvent, NetOp, PeerAddr};
use io::{Effects, Now, Rng};
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tracing::{Event, Level, Metadata, Subscriber, field::Visit, span};
use types::{AddrVec, EntityAddr, EntityType};
use wire::connection::{ConnEvent, Connection};
use wire::frame::{FrameReader, FrameWriter, Tag};
use wire::msg::Header;
use wire::{CloseWhy, Identity, ListenerConfig, Messenger, MsgrEvent, fuzz_frames, fuzz_messages};

/// Keeps log lines that an operator sees.
#[derive(Clone, Default)]
struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    spans: Arc<AtomicUsize>,
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl Subscriber for Log {
    fn enabled(&self, m: &Metadata<'_>) -> bool {
        *m.level() <= Level::INFO
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1 + self.spans.fetch_add(1, Ordering::Relaxed) as u64)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(format!("{} ", event.metadata().level()));
        event.record(&mut text);
        self.lines.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// A daemon with one connection, which says what a test makes it say.
pub struct Victim {
    pub msgr: Messenger,
    pub fx: Effects,
    pub out: Vec<MsgrEvent>,
    pub conn: ConnId,
    pub now: Now,
}

impl Victim {
    /// A daemon of that kind at those addresses, and a peer that has just connected.
    fn new(kind: EntityType, addrs: AddrVec) -> Self {
        let mut fx = Effects::new();
        let mut msgr = Messenger::new(Identity::daemon(kind, 0, 1), Rng::with_seed(1));
        let config = if kind == EntityType::MON {
            ListenerConfig::mon(addrs)
        } else {
            ListenerConfig::osd(addrs)
        };
        let sock = "127.0.0.1:6800".parse().unwrap();
        msgr.listen(LISTEN, ListenAddr::Tcp(sock), config, &mut fx);
        let (conn, now) = (fx.new_conn(), Now::default());
        let peer = PeerAddr::Tcp("127.0.0.1:45678".parse().unwrap());
        let mut out = Vec::new();
        let accepted = NetEvent::Accepted { listen: LISTEN, conn, peer };
        assert!(msgr.handle(now, accepted, &mut fx, &mut out).is_none());
        Victim { msgr, fx, out, conn, now }
    }

    pub fn osd() -> Self {
        let addrs = AddrVec::msgr2("127.0.0.1:6800".parse().unwrap(), 1);
        Self::new(EntityType::OSD, addrs)
    }

    pub fn is_closed(&self) -> bool {
        let conn = self.conn;
        let closes = |op: &NetOp| matches!(op, NetOp::Close { conn: c, .. } if *c == conn);
        self.fx.net.iter().any(closes)
    }

    /// Feeds bytes as a network would, until the daemon closes the connection.
    /// The handshake with a mon comes byte by byte: a client waits for its global id.
    fn say(&mut self, bytes: &Bytes, piece: usize) {
        const HANDSHAKE_BYTES: usize = 600;
        let is_mon = self.msgr.identity().entity == EntityType::MON;
        let slow = if is_mon { bytes.len().min(HANDSHAKE_BYTES) } else { 0 };
        let (first, rest) = bytes.split_at(slow);
        for chunk in first.chunks(1).chain(rest.chunks(piece)) {
            if self.is_closed() {
                return;
            }
            self.take_in(bytes.slice_ref(chunk));
        }
    }

    pub fn take_in(&mut self, mut data: Bytes) {
        let conn = self.conn;
        let fill = self.fx.net.iter().rposition(|op| matches!(op, NetOp::Fill { .. }));
        if let Some(i) = fill {
            let NetOp::Fill { mut buf, from, .. } = self.fx.net.remove(i) else { unreachable!() };
            let n = data.len().min(buf.len() - from);
            buf.as_mut_slice()[from..from + n].copy_from_slice(&data.split_to(n));
            if from + n < buf.len() {
                let from = from + n;
                self.fx.net.push(NetOp::Fill { conn, buf, from });
                return;
            }
            self.handle(NetEvent::Filled { conn, buf });
        }
        if !data.is_empty() && !self.is_closed() {
            self.handle(NetEvent::Received { conn, data });
        }
    }

    pub fn handle(&mut self, event: NetEvent) {
        self.msgr.handle(self.now, event, &mut self.fx, &mut self.out);
        let asks = self.out.iter().filter_map(|e| match e {
            MsgrEvent::WantsGlobalId { link, .. } => Some(*link),
            _ => None,
        });
        let asks: Vec<_> = asks.collect();
        asks.into_iter().for_each(|link| self.msgr.assign_global_id(link, 4100));
        self.msgr.end_turn(self.now, &mut self.fx);
    }
}

/// Runs a scene; gives the lines it logged.
fn logged(scene: impl FnOnce()) -> Vec<String> {
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), scene);
    log.lines.lock().unwrap().clone()
}

/// The peer says this, and is thrown out with one line that contains `reason`.
fn thrown_out(bytes: impl Into<Bytes>, reason: &str) {
    let bytes = bytes.into();
    for piece in [1, 7, 1 << 20] {
        let lines = logged(|| {
            let mut victim = Victim::osd();
            victim.say(&bytes, piece);
            assert!(victim.is_closed(), "{reason}");
            assert!(victim.out.is_empty());
            assert_eq!(victim.msgr.link_count(), 0);
            // Whatever else comes is for nobody.
            let (conn, data) = (victim.conn, bytes.clone());
            let late = NetEvent::Received { conn, data };
            let back = victim.msgr.handle(victim.now, late, &mut victim.fx, &mut victim.out);
            assert!(back.is_some());
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("127.0.0.1:45678"), "{lines:?}");
        assert!(lines[0].contains(reason), "{lines:?}");
    }
}

fn banner() -> Vec<u8> {
    let mut b = b"ceph v2\n\x10\0".to_vec();
    b.extend([1u64.to_le_bytes(), 0u64.to_le_bytes()].concat());
    b
}

/// A frame preamble with a right checksum.
fn preamble(tag: u8, segments: u8, lens: [u32; 4]) -> Vec<u8> {
    let mut p = vec![tag, segments];
    for len in lens {
        p.extend(len.to_le_bytes());
        p.extend(8u16.to_le_bytes());
    }
    p.extend([0; 2]);
    p.extend(denc::crc32c(0, &p).to_le_bytes());
    p
}

#[test]
fn not_even_a_banner() {
    thrown_out("GET / HTTP/1.1\r\n\r\n", "does not start with the banner");
    thrown_out(b"ceph v027".as_slice(), "does not start with the banner");
    thrown_out(b"ceph v2\n\x0f\0".as_slice(), "a banner payload of 15 bytes");
    thrown_out(b"ceph v2\n\xff\xff".as_slice(), "a banner payload of 65535 bytes");
    let mut old = banner();
    old[10] = 0;
    thrown_out(old, "msgr2 features do not match");
    let mut newer = banner();
    newer[18] = 0x80;
    thrown_out(newer, "msgr2 features do not match");
}

#[test]
fn frames_that_are_none() {
    let with = |p: Vec<u8>| [banner(), p].concat();
    thrown_out(with(vec![0xff; 32]), "bad checksum of a frame's preamble");
    thrown_out(with(preamble(99, 1, [4, 0, 0, 0])), "unknown frame tag 99");
    thrown_out(with(preamble(1, 7, [4, 0, 0, 0])), "a frame of 7 segments");
    thrown_out(with(preamble(1, 1, [u32::MAX, 0, 0, 0])), "at most 65536 are taken");
    thrown_out(with(preamble(17, 4, [41, u32::MAX, 1, 1])), "at most 201326592 are taken");
    // Data alone would be passed over, later.
    thrown_out(with(preamble(17, 4, [41, 1, 1, u32::MAX])), "while the session was not open");
    thrown_out(with(preamble(17, 4, [u32::MAX; 4])), "at most 201326592 are taken");
    thrown_out(with(preamble(17, 3, [41, 0, 0, 0])), "last segment is empty");
    thrown_out(with(preamble(16, 1, [0; 4])), "a Wait frame while HELLO was due");
    let mut hello = preamble(1, 1, [3, 0, 0, 0]);
    hello.extend([8, 1, 1]);
    let crc = denc::crc32c(u32::MAX, &hello[32..]);
    hello.extend(crc.to_le_bytes());
    thrown_out(with(hello.clone()), "Hello frame: cannot decode");
    hello[33] ^= 1;
    thrown_out(with(hello), "bad checksum of segment 0 of a Hello frame");
}

#[test]
fn half_a_handshake_and_then_silence_or_the_end() {
    let lines = logged(|| {
        let mut victim = Victim::osd();
        victim.say(&banner()[..9].to_vec().into(), 100);
        let conn = victim.conn;
        let why = io::net::CloseReason::Eof;
        victim.handle(NetEvent::Closed { conn, why });
        assert!(!victim.is_closed() && victim.msgr.link_count() == 0);
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    let lines = logged(|| {
        let mut victim = Victim::osd();
        victim.say(&banner().into(), 100);
        victim.now.mono = victim.msgr.next_deadline().unwrap();
        victim.msgr.tick(victim.now, &mut victim.fx, &mut victim.out);
        assert!(victim.is_closed() && victim.out.is_empty());
        assert_eq!(victim.msgr.next_deadline(), None);
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("handshake took longer"), "{lines:?}");
}

/// A victim for a captured conversation: the addresses are those the client wants.
fn victim_of(stream: &crate::vectors::Stream) -> Victim {
    let mut reader = FrameReader::new();
    reader.feed(stream.bytes.slice(26..));
    while let Ok(Some(frame)) = reader.next_frame() {
        if frame.tag() == Tag::ClientIdent {
            let ident: wire::frame::ClientIdent = denc::decode(&frame.segment(0)).unwrap();
            return Victim::new(stream.server(), AddrVec(vec![ident.target]));
        }
    }
    Victim::new(stream.server(), AddrVec(vec![EntityAddr::default()]))
}

#[test]
fn a_messenger_serves_every_captured_client() {
    for stream in streams("none-").iter().filter(|s| s.is_c2s()) {
        // An MDS is not served here; and a Ceph OSD that wants a lossy link is none of ours.
        if stream.server() == EntityType::MDS || stream.name == "none-rados-cp/4-osd-c2s.bin" {
            continue;
        }
        for piece in [100, 40_000] {
            let lines = logged(|| {
                let mut victim = victim_of(stream);
                victim.say(&stream.bytes, piece);
                assert!(!victim.is_closed(), "{}", stream.name);
                let opened = victim.out.iter().find_map(|e| match e {
                    MsgrEvent::Open { peer, .. } => Some(peer.clone()),
                    _ => None,
                });
                let peer = opened.unwrap();
                assert!(peer.name.kind == EntityType::CLIENT && peer.name.num > 4000);
                let addr = peer.addrs.0[0].to_string();
                assert!(addr.starts_with("127.0.0.1:0/"), "{addr}");
                let messages = |e: &MsgrEvent| matches!(e, MsgrEvent::Message { .. });
                assert!(victim.out.iter().any(messages));
            });
            assert!(lines.is_empty(), "{lines:?}");
        }
    }
}

/// Else clients in the middle of large writes take memory that there is not.
#[test]
fn nothing_is_received_into_memory_from_who_is_paused() {
    let stream = streams("none-").into_iter().find(|s| s.is_c2s()).unwrap();
    let mut victim = victim_of(&stream);
    victim.say(&stream.bytes, 40_000);
    let link = victim.out.iter().find_map(|e| match e {
        MsgrEvent::Open { link, .. } => Some(*link),
        _ => None,
    });
    let link = link.unwrap();
    victim.msgr.pause(link, &mut victim.fx);
    let mut w = FrameWriter::new();
    let header = Header { seq: 1 << 40, kind: 42, ..Header::default() };
    let data = [Bytes::from(vec![7; 1 << 20])];
    w.message(&header, &Bytes::new(), &Bytes::new(), (&data, KnownCrc::NONE));
    let frame: Bytes = w.take().concat().into();
    // It was on its way.
    victim.take_in(frame.slice(..1000));
    let fills = |v: &Victim| v.fx.net.iter().any(|op| matches!(op, NetOp::Fill { .. }));
    assert!(!fills(&victim) && !victim.is_closed());
    victim.msgr.resume(link, &mut victim.fx);
    victim.msgr.tick(victim.now, &mut victim.fx, &mut victim.out);
    victim.msgr.end_turn(victim.now, &mut victim.fx);
    assert!(fills(&victim));
    let before = victim.out.len();
    victim.take_in(frame.slice(1000..));
    assert!(matches!(&victim.out[before..], [MsgrEvent::Message { .. }]));
}

#[test]
fn mutated_conversations_end_in_one_line_or_go_on() {
    let clients: Vec<_> = streams("").into_iter().filter(|s| s.is_c2s()).collect();
    let mut thrown = 0;
    for seed in 0..4000 {
        let mut rng = Rng::with_seed(seed);
        let stream = &clients[rng.usize(..clients.len())];
        let mut bytes = stream.bytes.to_vec();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..bytes.len().min(4000));
            match rng.u8(..4) {
                0 => bytes[at] ^= 1 << rng.u8(..8),
                1 => bytes[at] = rng.u8(..),
                2 => drop(bytes.drain(at..(at + rng.usize(..40)).min(bytes.len()))),
                _ => drop(bytes.splice(at..at, (0..rng.usize(..40)).map(|_| 0xff))),
            }
        }
        let piece = 1 << rng.u32(4..16);
        let mut closed = false;
        let lines = logged(|| {
            let mut victim = victim_of(stream);
            victim.say(&bytes.clone().into(), piece);
            closed = victim.is_closed();
            let ended = |e: &MsgrEvent| matches!(e, MsgrEvent::Closed { .. });
            let ends = victim.out.iter().filter(|e| ended(e)).count();
            assert!(ends <= usize::from(closed));
            for event in &victim.out {
                if let MsgrEvent::Closed { why, .. } = event {
                    assert!(matches!(why, CloseWhy::Protocol(_)), "{why:?}");
                }
            }
        });
        assert_eq!(lines.len(), usize::from(closed), "seed {seed}: {lines:?}");
        thrown += usize::from(closed);
    }
    assert!(thrown > 3000, "{thrown}");
}

#[test]
fn mutated_captures_do_not_panic_a_dialler() {
    let servers: Vec<_> = streams("").into_iter().filter(|s| !s.is_c2s()).collect();
    for seed in 0..2000 {
        let mut rng = Rng::with_seed(seed);
        let stream = &servers[rng.usize(..servers.len())];
        let mut bytes = stream.bytes.to_vec();
        let at = rng.usize(..bytes.len().min(3000));
        bytes[at] ^= rng.u8(1..);
        let request = wire::connection::auth::NoneRequest::new(
            stream.server(),
            EntityType::CLIENT,
            "admin",
            1,
        );
        let to = EntityAddr::default();
        let mut c = Connection::dial(EntityType::CLIENT, stream.server(), to, request);
        c.feed(bytes.into());
        loop {
            match c.next_event() {
                Ok(Some(ConnEvent::ServerIdent(_))) => c.set_ready(),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
    }
}

#[test]
fn fuzz_entries_take_captures_and_their_mutations() {
    for stream in streams("") {
        for seed in 0..20 {
            let mut rng = Rng::with_seed(seed);
            let mut bytes = stream.bytes.to_vec();
            for _ in 0..seed {
                let at = rng.usize(..bytes.len());
                bytes[at] = rng.u8(..);
            }
            bytes.insert(0, rng.u8(..));
            fuzz_frames(&bytes);
            // The frames alone, without the banner.
            bytes.drain(1..27);
            fuzz_frames(&bytes);
        }
    }
}

#[test]
fn fuzz_messages_takes_mutated_fronts() {
    let messages = crate::vectors::json("enc/live-messages.json");
    for (i, m) in messages.as_array().unwrap().iter().enumerate() {
        let part = |name: &str| crate::vectors::unhex(m[name].as_str().unwrap());
        let (front, data) = (part("front"), part("data"));
        let mut rng = Rng::with_seed(i as u64);
        for mutations in 0..8 {
            let mut bytes = (front.len() as u16).to_le_bytes().to_vec();
            bytes.extend(&front);
            bytes.extend(data.iter().take(5000));
            for _ in 0..mutations {
                let at = rng.usize(..bytes.len());
                bytes[at] = if rng.bool() { 0xff } else { rng.u8(..) };
            }
            fuzz_messages(&bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        fuzz_frames(&bytes);
        fuzz_messages(&bytes);
        let mut victim = Victim::osd();
        victim.say(&bytes.clone().into(), 64);
        let mut victim = Victim::osd();
        victim.say(&[banner(), bytes].concat().into(), 64);
    }
}

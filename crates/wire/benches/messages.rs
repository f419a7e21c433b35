//! How long the hot path takes: a 4 KiB write decoded and answered, a 4 KiB read answered.
//!
//! `cargo bench -p wire`. One line per step: nanoseconds per message, the best of several rounds.
#![allow(clippy::disallowed_methods)] // A benchmark reads the clock.

use bytes::Bytes;
use io::net::{ListenAddr, ListenId, NetEvent, NetOp, PeerAddr};
use io::{Effects, Now, Rng};
use std::hint::black_box;
use std::time::Instant;
use types::{
    AddrVec, EntityAddr, EntityType, Epoch, Eversion, HObject, PgId, PoolId, ShardId, SnapId, SpgId,
};
use wire::connection::auth::NoneRequest;
use wire::connection::{ConnEvent, Connection, message_of};
use wire::frame::{FrameReader, FrameWriter};
use wire::msg::{MOsdOp, MOsdOpReply, OpArgs, OpCode, OsdOp, Payload, flags, op};
use wire::{Identity, ListenerConfig, Message, Messenger, MsgrEvent};

const MESSAGES: usize = 200_000;
const ROUNDS: usize = 7;

fn measure(what: &str, mut step: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..MESSAGES {
            step();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / MESSAGES as f64);
    }
    println!("{what:<58} {best:>8.0} ns");
}

/// What librbd sends for a write: an allocation hint that may fail, and the write.
fn write_request(len: usize) -> MOsdOp {
    let object = HObject {
        pool: PoolId(2),
        hash: 0x0c9e_0747,
        name: "rbd_data.1f2a6b8b4567.0000000000000123".into(),
        snap: SnapId::HEAD,
        ..HObject::min()
    };
    let extent = op::Extent { offset: 8192, length: len as u64, ..Default::default() };
    let hint = OsdOp::new(OpCode::SETALLOCHINT, op::AllocHint::default());
    let write = OsdOp::new(OpCode::WRITE, extent).with_indata(vec![7; len]);
    MOsdOp {
        pgid: SpgId { pgid: PgId::new(PoolId(2), 7), shard: ShardId::NONE },
        locator_pool: PoolId(2),
        object,
        epoch: Epoch(10),
        flags: flags::ONDISK | flags::WRITE | flags::KNOWN_IF_REDIRECTED,
        ops: [hint.with_flags(op::op_flags::FAILOK), write].into_iter().collect(),
        ..MOsdOp::default()
    }
}

fn on_the_wire(request: MOsdOp) -> Bytes {
    let out = request.encode().with_tid(77);
    let mut w = FrameWriter::new();
    w.message(&out.header(1, 0), &out.front, &out.middle, (&out.data, out.data_crc));
    w.take().concat().into()
}

fn read(reader: &mut FrameReader, bytes: &Bytes) -> Message {
    reader.feed(bytes.clone());
    let frame = reader.next_frame().ok().flatten().expect("a whole frame");
    message_of(&frame).expect("a message")
}

fn send(w: &mut FrameWriter, reply: MOsdOpReply) {
    let out = reply.encode().with_tid(77);
    w.message(&out.header(1, 1), &out.front, &out.middle, (&out.data, out.data_crc));
    black_box(w.take());
}

/// An OSD's messenger with one client, whose session is open.
struct Served {
    msgr: Messenger,
    fx: Effects,
    out: Vec<MsgrEvent>,
    conn: io::net::ConnId,
}

impl Served {
    fn new() -> Self {
        let addr = EntityAddr::msgr2(([127, 0, 0, 1], 6800).into(), 1);
        let (listen, mut fx) = (ListenId(1), Effects::new());
        let me = Identity::daemon(EntityType::OSD, 0, 1);
        let mut msgr = Messenger::new(me, Rng::with_seed(1));
        let config = ListenerConfig::osd(AddrVec(vec![addr]));
        msgr.listen(listen, ListenAddr::Tcp(([127, 0, 0, 1], 6800).into()), config, &mut fx);
        let conn = fx.new_conn();
        let mut served = Served { msgr, fx, out: Vec::new(), conn };
        let peer = PeerAddr::Tcp(([127, 0, 0, 1], 40000).into());
        served.event(NetEvent::Accepted { listen, conn, peer });
        let (client, osd) = (EntityType::CLIENT, EntityType::OSD);
        let request = NoneRequest::new(osd, client, "admin", 4100);
        let mut end = Connection::dial(client, osd, addr, request);
        while served.out.is_empty() {
            let data = end.take_tx().into();
            served.event(NetEvent::Received { conn, data });
            end.feed(served.sent());
            while let Ok(Some(event)) = end.next_event() {
                if let ConnEvent::Authenticated { .. } = event {
                    end.client_ident(&ident(addr)).expect("one ident");
                }
            }
        }
        served.out.clear();
        served
    }

    fn event(&mut self, event: NetEvent) {
        self.msgr.handle(Now::default(), event, &mut self.fx, &mut self.out);
        self.msgr.end_turn(Now::default(), &mut self.fx);
    }

    fn sent(&mut self) -> Bytes {
        let sent = self.fx.net.drain(..).filter_map(|op| match op {
            NetOp::Send { data, .. } => Some(data.concat()),
            _ => None,
        });
        sent.collect::<Vec<_>>().concat().into()
    }

    /// One turn of an OSD that answers every write at once.
    fn turn(&mut self, data: &Bytes) {
        let (conn, data) = (self.conn, data.clone());
        let received = NetEvent::Received { conn, data };
        self.msgr.handle(Now::default(), received, &mut self.fx, &mut self.out);
        for event in self.out.drain(..) {
            if let MsgrEvent::Message { link, message } = event {
                let request: MOsdOp = message.decode().expect("a request");
                let reply = MOsdOpReply::answer(&request, Epoch(10));
                let reply = reply.with_versions(Eversion::new(Epoch(10), 5), 5);
                self.msgr.send(link, reply.encode().with_tid(message.header.tid));
            }
        }
        self.msgr.end_turn(Now::default(), &mut self.fx);
        black_box(&self.fx.net);
        self.fx.net.clear();
    }
}

fn ident(target: EntityAddr) -> wire::frame::ClientIdent {
    wire::frame::ClientIdent {
        addrs: AddrVec(vec![EntityAddr::msgr2(([127, 0, 0, 1], 0).into(), 9)]),
        target,
        gid: 4100,
        global_seq: 1,
        supported: wire::frame::FEATURES_SUPPORTED,
        required: wire::frame::FEATURES_REQUIRED,
        flags: wire::frame::IDENT_LOSSY,
        cookie: 0,
    }
}

/// `count` writes in one received piece, numbered from `seq`.
fn pieces(count: u64, seq: &mut u64) -> Bytes {
    let mut w = FrameWriter::new();
    let out = write_request(4096).encode().with_tid(77);
    for _ in 0..count {
        *seq += 1;
        w.message(&out.header(*seq, 0), &out.front, &out.middle, (&out.data, out.data_crc));
    }
    w.take().concat().into()
}

/// Whole turns of a messenger; the time is that of one message.
fn measure_turns(what: &str, per_turn: u64) {
    let mut best = f64::MAX;
    let mut served = Served::new();
    let mut seq = 0;
    for _ in 0..ROUNDS {
        let turns: Vec<Bytes> = (0..2048 / per_turn).map(|_| pieces(per_turn, &mut seq)).collect();
        let start = Instant::now();
        turns.iter().for_each(|data| served.turn(data));
        best = best.min(start.elapsed().as_nanos() as f64 / 2048.0);
    }
    println!("{what:<58} {best:>8.0} ns");
}

fn main() {
    let bytes = on_the_wire(write_request(4096));
    let mut reader = FrameReader::new();
    let mut w = FrameWriter::new();
    let message = read(&mut reader, &bytes);
    let request: MOsdOp = message.decode().expect("a request");
    println!("{} bytes on the wire, front {}", bytes.len(), message.front.len());

    measure("4 KiB write: frame to message, checksums verified", || {
        black_box(read(&mut reader, black_box(&bytes)));
    });
    measure("4 KiB write: message to MOsdOp", || {
        black_box(black_box(&message).decode::<MOsdOp>().expect("a request"));
    });
    measure("write reply: answer, encode, frame", || {
        let version = Eversion::new(Epoch(10), 5);
        let reply = MOsdOpReply::answer(black_box(&request), Epoch(10));
        send(&mut w, reply.with_versions(version, 5));
    });
    measure("4 KiB write: all of it, bytes to bytes", || {
        let message = read(&mut reader, black_box(&bytes));
        let request: MOsdOp = message.decode().expect("a request");
        let reply = MOsdOpReply::answer(&request, Epoch(10));
        send(&mut w, reply.with_versions(Eversion::new(Epoch(10), 5), 5));
    });
    let data = Bytes::from(vec![9; 4096]);
    let mut read_request = write_request(0);
    read_request.ops = [OsdOp::new(OpCode::READ, OpArgs::default())].into_iter().collect();
    measure("4 KiB read reply: answer, encode, frame, checksum", || {
        let mut reply = MOsdOpReply::answer(black_box(&read_request), Epoch(10));
        if let Some(op) = reply.ops.first_mut() {
            op.outdata.push(data.clone());
        }
        send(&mut w, reply);
    });
    measure("crc32c of 4 KiB alone", || {
        black_box(denc::crc32c(black_box(u32::MAX), black_box(&data)));
    });
    measure_turns("Messenger: 4 KiB write in, reply out, one a turn", 1);
    measure_turns("Messenger: 4 KiB write in, reply out, 32 a turn", 32);
}

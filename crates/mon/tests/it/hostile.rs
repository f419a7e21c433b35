//! Bytes and messages that nobody should send.

use crate::cluster::{Cluster, FSID, as_osd, mon_addr};
use bytes::Bytes;
use io::net::{ConnId, NetOp};
use io::{Core, Effects, Event, Now};
use peer::{OsdAlive, OsdBoot, OsdGoingDown, OsdPgTemp, OsdReport, OsdSpace};
use smallvec::smallvec;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{AddrVec, Epoch, Mono, OsdId, Uuid};
use wire::msg::{
    MMonCommand, MMonSubscribe, MPoolOp, OutMessage, Payload, Subscription, kind, pool_op,
};

/// Dials, sends bytes, and does so again.
struct Noise {
    rng: io::Rng,
    conn: Option<ConnId>,
    left: u32,
}

impl Core for Noise {
    fn handle(&mut self, _: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Net(io::net::NetEvent::Connected { conn, .. }) => {
                let mut data = match self.rng.u8(0..4) {
                    // A banner, and then nonsense.
                    0 => b"ceph v2\n\x10\0".to_vec(),
                    1 => [&b"ceph v2\n\x10\0\x01\0\0\0\0\0\0\0"[..], &[0; 8]].concat(),
                    _ => Vec::new(),
                };
                let more = self.rng.usize(0..400);
                data.extend((0..more).map(|_| self.rng.u8(..)));
                fx.net.push(NetOp::Send { conn, data: smallvec![Bytes::from(data)] });
                fx.net.push(NetOp::Close { conn, drain: true });
                self.conn = None;
            }
            Event::Net(io::net::NetEvent::Closed { .. }) => self.conn = None,
            _ => {}
        }
    }
    fn end_turn(&mut self, _: Now, fx: &mut Effects) {
        if self.conn.is_none() && self.left > 0 {
            self.left -= 1;
            self.conn = Some(fx.connect(mon_addr()));
        }
    }
    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

#[test]
fn garbage_on_the_port_ends_only_its_own_connection() {
    let mut c = Cluster::new(4, 1);
    let boot = |_: &[_], seed| {
        Box::new(Noise { rng: io::Rng::with_seed(seed), conn: None, left: 300 }) as Box<dyn Core>
    };
    let node = c.world.add_node(&[], false, Box::new(boot));
    c.world.start(node);
    c.pass(Duration::from_secs(20));
    assert_eq!(c.json("status")["osdmap"]["num_up_osds"], 1);
    assert!(c.world.exit_of(c.mon).is_none());
}

/// Messages with random contents, of every type that the mon knows, from a client and from an OSD.
#[test]
fn messages_of_nonsense_end_only_their_own_session() {
    let mut c = Cluster::new(5, 1);
    let kinds = [
        kind::STATFS,
        kind::MON_SUBSCRIBE,
        kind::AUTH,
        kind::MON_GET_VERSION,
        kind::POOLOP,
        kind::MON_COMMAND,
        kind::GETPOOLSTATS,
        kind::COMMAND,
        kind::LOG,
        kind::GET_CONFIG,
        OsdBoot::TYPE,
        OsdAlive::TYPE,
        OsdPgTemp::TYPE,
        OsdGoingDown::TYPE,
        OsdReport::TYPE,
        kind::MGR_OPEN,
        kind::OSD_MAP,
        0x7777,
    ];
    let mut rng = io::Rng::with_seed(9);
    for me in [wire::Identity::client("x", 9), as_osd(7), as_osd(0)] {
        let (node, client) = c.add_client(me);
        for round in 0..200 {
            let length = rng.usize(0..80);
            let front: Vec<u8> = (0..length).map(|_| rng.u8(..) & rng.u8(..)).collect();
            let mut message = OutMessage::new::<MMonCommand>(front);
            message.kind = kinds[round % kinds.len()];
            message.version = 1;
            message.compat = 1;
            c.world.with_core(node, |_, _, _| client.borrow_mut().say(message));
            c.pass(Duration::from_millis(60));
        }
        assert!(client.borrow().sessions > 1, "it was disconnected");
        c.world.crash(node);
    }
    assert!(c.world.exit_of(c.mon).is_none());
    c.run_until(Duration::from_secs(20), |c| c.json("status")["osdmap"]["num_up_osds"] == 1);
}

fn boot_of(id: i32, cluster: Uuid, uuid: Uuid) -> OsdBoot {
    let addrs = AddrVec::msgr2("10.0.0.99:6800".parse().expect("an address"), 5);
    OsdBoot {
        hb_back_addrs: AddrVec::default(),
        hb_front_addrs: AddrVec::default(),
        was_alive: false,
        cluster,
        osd: OsdId(id),
        uuid,
        client_addrs: addrs.clone(),
        cluster_addrs: addrs,
        newest_map: Epoch::ZERO,
        store_bytes: 1 << 40,
        device_class: "no such\nclass".into(),
        location: vec![("ho st".into(), "\u{0}".into()), ("osd".into(), "x".into())],
        metadata: BTreeMap::new(),
        durable_txn: 0,
    }
}

#[test]
fn osds_that_do_not_belong_here_stay_out_of_the_map() {
    let mut c = Cluster::new(6, 1);
    c.run_until(Duration::from_secs(3), |c| c.json("status")["osdmap"]["num_up_osds"] == 1);
    let (node, client) = c.add_client(as_osd(0));
    let space = OsdSpace { total: u64::MAX, available: u64::MAX, ..OsdSpace::default() };
    let report = |osd| OsdReport {
        compressed: Vec::new(),
        osd: OsdId(osd),
        up_from: Epoch(1),
        space,
        pgs_held: u32::MAX,
        commit_latency_us: 0,
        slow_requests: u32::MAX,
        oldest_request_s: u32::MAX,
        pgs: Vec::new(),
        durable_txn: 0,
        wall: types::UTime::ZERO,
        full: true,
        images: None,
        seq: 1,
        options: Vec::new(),
        own_damage: "x".repeat(1 << 20),
        pools: None,
    };
    let wants = vec![(types::PgId::new(types::PoolId(9), 9), vec![OsdId(-5), OsdId(i32::MAX)])];
    let said = [
        // Another cluster, another disk under a known number, a number beyond all.
        boot_of(0, Uuid([1; 16]), Uuid([9; 16])).encode(),
        boot_of(0, FSID, Uuid([9; 16])).encode(),
        boot_of(i32::MAX, FSID, Uuid([9; 16])).encode(),
        boot_of(-1, FSID, Uuid([9; 16])).encode(),
        OsdAlive { osd: OsdId(0), want: Epoch(u32::MAX) }.encode(),
        OsdAlive { osd: OsdId(3), want: Epoch(1) }.encode(),
        OsdPgTemp { epoch: Epoch(u32::MAX), wants: wants.clone() }.encode(),
        OsdPgTemp { epoch: Epoch(2), wants }.encode(),
        OsdGoingDown { osd: OsdId(0), up_from: Epoch(1) }.encode(),
        report(0).encode(),
        report(-1).encode(),
    ];
    for message in said {
        c.world.with_core(node, |_, _, _| client.borrow_mut().say(message));
        c.pass(Duration::from_millis(100));
    }
    c.world.crash(node);
    c.run_until(Duration::from_secs(10), |c| c.json("status")["osdmap"]["num_up_osds"] == 1);
    assert_eq!(c.json("status")["osdmap"]["num_osds"], 1);
}

#[test]
fn odd_requests_are_answered() {
    let mut c = Cluster::new(7, 1);
    let long = "x".repeat(5_000_000);
    for (text, result) in [
        ("{", -22),
        ("[]", -22),
        ("", -22),
        (r#"{"prefix":"nosuch"}"#, -22),
        (r#"{"prefix":"config get"}"#, -22),
        (r#"{"prefix":"auth get","entity":"a b"}"#, -22),
        (long.as_str(), -22),
    ] {
        let ack = c.ask(text);
        assert_eq!(ack.result, result, "{}", ack.outs);
        assert!(!ack.outs.is_empty());
    }
    let what = ["osdmap", "monmap", "nosuch"]
        .map(|w| (w.to_owned(), Subscription { start: u64::MAX, flags: 7 }));
    let subscribe = MMonSubscribe { what: what.into_iter().collect(), ..Default::default() };
    c.on_client(|c| c.say(subscribe.encode()));
    for op in [0, pool_op::CREATE, pool_op::DELETE, pool_op::CREATE_SNAP, u32::MAX] {
        let m = MPoolOp { fsid: FSID, op, pool: 77, crush_rule: 99, ..MPoolOp::default() };
        c.on_client(|c| c.say(m.encode()));
    }
    assert_eq!(c.json("status")["pgmap"]["num_pools"], 0);
    let replies = c.client.borrow().all::<wire::msg::MPoolOpReply>();
    assert_eq!(replies.len(), 5);
    assert!(replies.iter().all(|r| r.code < 0));
}

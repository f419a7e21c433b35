//! Lossy links: clients of mons and OSDs, on the virtual network.

use crate::virtual_net::{Net, is_note, note};
use io::net::{ListenAddr, ListenId};
use std::time::Duration;
use types::{AddrVec, EntityType};
use wire::messenger::{GlobalIds, HANDSHAKE_TIMEOUT, IDLE_TIMEOUT};
use wire::{Dial, Identity, LinkId, ListenerConfig, MsgrEvent, Policy};

pub const LISTEN: ListenId = ListenId(1);

/// An OSD that listens on a port; gives its node and addresses.
pub fn osd(net: &mut Net, id: u32, port: u16) -> (usize, AddrVec) {
    let sock = ([127, 0, 0, 1], port).into();
    let addrs = AddrVec::msgr2(sock, 100 + id);
    let node = net.add(Identity::daemon(EntityType::OSD, id, 100 + id));
    let config = ListenerConfig::osd(addrs.clone());
    net.act(node, |m, _, fx| m.listen(LISTEN, ListenAddr::Tcp(sock), config, fx));
    net.settle();
    (node, addrs)
}

fn mon(net: &mut Net) -> (usize, AddrVec) {
    let sock = ([127, 0, 0, 1], 3300).into();
    let addrs = AddrVec::msgr2(sock, 0);
    let node = net.add(Identity::daemon(EntityType::MON, 0, 0));
    let config = ListenerConfig::mon(addrs.clone());
    net.act(node, |m, _, fx| m.listen(LISTEN, ListenAddr::Tcp(sock), config, fx));
    net.settle();
    (node, addrs)
}

pub fn client(net: &mut Net, id: u64) -> usize {
    let node = net.add(Identity::client("admin", 7 + id as u32));
    net.nodes[node].msgr.set_global_id(id);
    node
}

fn dial_osd(net: &mut Net, node: usize, addrs: &AddrVec) -> LinkId {
    let dial = Dial::new(addrs.clone(), EntityType::OSD, Policy::lossy_client());
    net.act(node, |m, now, fx| m.dial(now, dial, fx))
}

#[test]
fn messages_of_all_sizes_come_whole_and_in_order() {
    let sizes = [0, 1, 500, 2048, 4096, 65_535, 65_536, 70_001, 1 << 20, 3, (4 << 20) + 1];
    for seed in 0..30 {
        let mut net = Net::new(seed);
        net.max_piece = [17, 1500, 70_000, 400_000][seed as usize % 4];
        if net.max_piece < 1000 && seed > 3 {
            continue; // Slow, and once is enough.
        }
        let (server, addrs) = osd(&mut net, 0, 6800);
        let me = client(&mut net, 4123);
        let link = dial_osd(&mut net, me, &addrs);
        for (tid, &size) in sizes.iter().enumerate() {
            net.send(me, link, note(tid as u64, size));
        }
        net.settle();
        assert_eq!(net.story(server), ["open client.4123"]);
        assert_eq!(net.story(me), ["open osd.0"]);
        let back = net.link(server);
        for (tid, &size) in sizes.iter().enumerate() {
            net.send(server, back, note(tid as u64, size));
        }
        net.settle();
        for node in [server, me] {
            let log = std::mem::take(&mut net.nodes[node].log);
            let mut messages = log.iter().filter_map(|e| match e {
                MsgrEvent::Message { message, .. } => Some(message),
                _ => None,
            });
            for (tid, &size) in sizes.iter().enumerate() {
                let m = messages.next().expect("a message is missing");
                assert!(is_note(m, tid as u64, size), "note {tid} of seed {seed}");
            }
            assert!(messages.next().is_none());
        }
        if net.max_piece < 70_000 {
            assert!(net.fills >= 6, "big data goes straight into aligned buffers");
        }
    }
}

#[test]
fn big_data_received_in_pieces_is_aligned_for_the_disk() {
    let mut net = Net::new(5);
    net.max_piece = 20_000;
    let (server, addrs) = osd(&mut net, 0, 6800);
    let me = client(&mut net, 1);
    let link = dial_osd(&mut net, me, &addrs);
    for tid in 0..20 {
        net.send(me, link, note(tid, 256 << 10));
    }
    net.settle();
    let mut seen = 0;
    for event in &net.nodes[server].log {
        if let MsgrEvent::Message { message, .. } = event {
            assert!(io::AlignedBuf::is_aligned(&message.data));
            seen += 1;
        }
    }
    assert_eq!((seen, net.fills), (20, 20));
}

#[test]
fn a_mon_gives_global_ids_and_the_client_keeps_its_own() {
    let mut net = Net::new(1);
    let (server, addrs) = mon(&mut net);
    let me = net.add(Identity::client("admin", 77));
    let dial = Dial::new(addrs.clone(), EntityType::MON, Policy::mon_client());
    let again = dial.clone();
    let link = net.act(me, |m, now, fx| m.dial(now, dial, fx));
    net.send(me, link, note(1, 10));
    net.settle();
    assert_eq!(net.story(server), ["id for admin"]);
    let pending = net.link(server);
    net.act(server, |m, _, _| m.assign_global_id(pending, 4100));
    net.settle();
    assert_eq!(net.story(server), ["id for admin", "open client.4100"]);
    assert_eq!(net.tids(server), [1]);
    let peer = net.nodes[me].msgr.peer(link).unwrap().clone();
    assert_eq!((peer.global_id, peer.name.to_string()), (4100, "mon.0".into()));
    // The next connection presents it.
    net.nodes[me].msgr.set_global_id(4100);
    net.act(me, |m, _, fx| m.close(link, fx));
    net.act(me, |m, now, fx| m.dial(now, again, fx));
    net.settle();
    let story = net.story(server);
    assert_eq!(story[2..], ["closed: closed by the peer", "open client.4100"]);
    let link = net.link(server);
    let seen = net.nodes[server].msgr.peer(link).unwrap();
    let learned = net.nodes[me].msgr.learned_addr().unwrap();
    assert_eq!(seen.addrs.0, [learned]);
    assert_eq!(learned.to_string(), "127.0.0.1:0/77");
    assert_eq!(seen.auth_name.id, "admin");
}

#[test]
fn a_refused_global_id_ends_the_link() {
    let mut net = Net::new(1);
    let (server, addrs) = mon(&mut net);
    let me = net.add(Identity::client("admin", 77));
    let dial = Dial::new(addrs, EntityType::MON, Policy::mon_client());
    net.act(me, |m, now, fx| m.dial(now, dial, fx));
    net.settle();
    let pending = net.link(server);
    net.act(server, |m, _, _| m.refuse_global_id(pending, types::Errno::EACCES));
    net.settle();
    assert_eq!(net.story(me).len(), 1);
    assert!(net.story(me)[0].contains("result -13"), "{:?}", net.story(me));
    assert_eq!(net.nodes[server].msgr.link_count(), 0);
}

#[test]
fn a_second_connection_of_a_client_replaces_the_first() {
    let mut net = Net::new(1);
    let (server, addrs) = osd(&mut net, 0, 6800);
    let me = client(&mut net, 5);
    let first = dial_osd(&mut net, me, &addrs);
    net.settle();
    let second = dial_osd(&mut net, me, &addrs);
    net.settle();
    assert_ne!(first, second);
    let replaced = "closed: replaced by a newer connection of the same peer";
    assert_eq!(net.story(server), ["open client.5", replaced, "open client.5"]);
    assert_eq!(net.nodes[server].msgr.link_count(), 1);
    // Another client of the same host is somebody else.
    let other = client(&mut net, 6);
    dial_osd(&mut net, other, &addrs);
    net.settle();
    assert_eq!(net.nodes[server].msgr.link_count(), 2);
}

#[test]
fn a_mon_serves_several_connections_of_one_client() {
    let mut net = Net::new(1);
    let (server, addrs) = mon(&mut net);
    let me = client(&mut net, 5);
    for _ in 0..3 {
        let dial = Dial::new(addrs.clone(), EntityType::MON, Policy::mon_client());
        net.act(me, |m, now, fx| m.dial(now, dial, fx));
        net.settle();
    }
    assert_eq!(net.nodes[server].msgr.link_count(), 3);
}

#[test]
fn nobody_there_and_the_wrong_one_there() {
    let mut net = Net::new(1);
    let (_, addrs) = osd(&mut net, 0, 6800);
    let me = client(&mut net, 5);
    let nowhere = AddrVec::msgr2("127.0.0.1:1".parse().unwrap(), 0);
    dial_osd(&mut net, me, &nowhere);
    net.settle();
    assert!(net.story(me)[0].starts_with("closed: Connection refused"));
    // A mon is wanted, an OSD answers.
    let dial = Dial::new(addrs.clone(), EntityType::MON, Policy::mon_client());
    net.act(me, |m, now, fx| m.dial(now, dial, fx));
    net.settle();
    assert!(net.story(me)[1].contains("is a"), "{:?}", net.story(me));
    // Another process has the port now.
    let mut older = addrs.clone();
    older.0[0].nonce += 1;
    dial_osd(&mut net, me, &older);
    net.settle();
    assert_eq!(net.story(me).len(), 3);
    // No msgr2 address at all.
    dial_osd(&mut net, me, &AddrVec::default());
    net.pass(Duration::ZERO);
    assert_eq!(net.story(me)[3], "closed: it has no msgr2 address");
    assert_eq!(net.nodes[me].msgr.link_count(), 0);
}

#[test]
fn a_kind_that_is_not_served_is_refused() {
    let mut net = Net::new(1);
    let sock = ([127, 0, 0, 1], 6800).into();
    let addrs = AddrVec::msgr2(sock, 1);
    let server = net.add(Identity::daemon(EntityType::OSD, 0, 1));
    let config = ListenerConfig {
        policies: vec![(EntityType::OSD, Policy::lossless_peer())],
        addrs: addrs.clone(),
        global_ids: GlobalIds::Echoed,
    };
    net.act(server, |m, _, fx| m.listen(LISTEN, ListenAddr::Tcp(sock), config, fx));
    net.settle();
    let me = client(&mut net, 5);
    dial_osd(&mut net, me, &addrs);
    net.settle();
    assert!(net.story(server).is_empty());
    assert_eq!(net.story(me), ["closed: closed by the peer"]);
}

#[test]
fn an_address_that_was_not_given_is_taken_from_the_socket() {
    let mut net = Net::new(1);
    let server = net.add(Identity::daemon(EntityType::OSD, 3, 42));
    let any = ListenAddr::Tcp("127.0.0.1:0".parse().unwrap());
    let config = ListenerConfig::osd(AddrVec::default());
    net.act(server, |m, _, fx| m.listen(LISTEN, any, config, fx));
    net.settle();
    let addrs = net.nodes[server].msgr.listen_addrs(LISTEN).unwrap().clone();
    assert_eq!(addrs.to_string(), "v2:127.0.0.1:50000/42");
    let me = client(&mut net, 5);
    dial_osd(&mut net, me, &addrs);
    net.settle();
    assert_eq!(net.story(me), ["open osd.3"]);
}

#[test]
fn a_handshake_that_takes_too_long_is_given_up_by_both_ends() {
    let mut net = Net::new(1);
    let (server, addrs) = osd(&mut net, 0, 6800);
    let me = client(&mut net, 5);
    dial_osd(&mut net, me, &addrs);
    net.kill(server);
    // Nothing is heard of it any more, not even a reset.
    net.nodes[me].log.clear();
    net.pass(HANDSHAKE_TIMEOUT);
    assert_eq!(net.story(me).len(), 1);

    let mut net = Net::new(2);
    let (server, addrs) = mon(&mut net);
    let me = net.add(Identity::client("admin", 77));
    let dial = Dial::new(addrs, EntityType::MON, Policy::mon_client());
    net.act(me, |m, now, fx| m.dial(now, dial, fx));
    net.settle();
    // The mon never answers WantsGlobalId.
    net.pass(HANDSHAKE_TIMEOUT + Duration::from_secs(1));
    assert_eq!(net.nodes[server].msgr.link_count(), 0);
    assert_eq!(net.story(me).len(), 1);
    // A late answer is for nobody.
    let pending = net.link(server);
    net.act(server, |m, _, _| m.assign_global_id(pending, 9));
}

#[test]
fn keepalives_keep_a_quiet_connection_and_find_a_dead_one() {
    let mut net = Net::new(1);
    let (server, addrs) = mon(&mut net);
    let me = client(&mut net, 5);
    let dial = Dial::new(addrs, EntityType::MON, Policy::mon_client());
    let link = net.act(me, |m, now, fx| m.dial(now, dial, fx));
    net.pass(IDLE_TIMEOUT * 3);
    assert_eq!(net.story(me), ["open mon.0"]);
    // The mon hangs: nothing comes any more, nothing is closed either.
    let back = net.link(server);
    net.act(server, |m, _, fx| m.pause(back, fx));
    net.pass(Duration::from_secs(29));
    assert!(net.nodes[me].msgr.is_connected(link));
    net.pass(Duration::from_secs(12));
    assert_eq!(net.story(me)[1], "closed: the peer does not answer keepalives");
}

#[test]
fn an_idle_connection_is_closed() {
    let mut net = Net::new(1);
    let (server, addrs) = osd(&mut net, 0, 6800);
    let me = client(&mut net, 5);
    let link = dial_osd(&mut net, me, &addrs);
    for tid in 0..5 {
        net.pass(IDLE_TIMEOUT - Duration::from_secs(1));
        net.send(me, link, note(tid, 10));
    }
    assert_eq!(net.story(me), ["open osd.0"]);
    net.pass(IDLE_TIMEOUT + Duration::from_secs(1));
    assert_eq!(net.nodes[server].msgr.link_count(), 0);
    assert_eq!(net.nodes[me].msgr.link_count(), 0);
    assert_eq!(net.tids(server), [0, 1, 2, 3, 4]);
}

#[test]
fn a_paused_link_receives_nothing_until_it_is_resumed() {
    let mut net = Net::new(1);
    let (server, addrs) = osd(&mut net, 0, 6800);
    let me = client(&mut net, 5);
    let link = dial_osd(&mut net, me, &addrs);
    net.settle();
    let back = net.link(server);
    net.act(server, |m, _, fx| m.pause(back, fx));
    net.send(me, link, note(1, 100_000));
    net.settle();
    assert!(net.tids(server).is_empty());
    net.act(server, |m, _, fx| m.resume(back, fx));
    net.settle();
    assert_eq!(net.tids(server), [1]);
}

#[test]
fn a_link_that_is_paused_for_long_is_not_taken_for_dead() {
    let mut net = Net::new(1);
    let (_, addrs) = mon(&mut net);
    let me = client(&mut net, 5);
    let dial = Dial::new(addrs, EntityType::MON, Policy::mon_client());
    let link = net.act(me, |m, now, fx| m.dial(now, dial, fx));
    net.settle();
    net.act(me, |m, _, fx| m.pause(link, fx));
    net.pass(Duration::from_secs(200));
    net.act(me, |m, _, fx| m.resume(link, fx));
    net.pass(Duration::from_secs(200));
    assert_eq!(net.story(me), ["open mon.0"]);
}

#[test]
fn close_sends_what_is_queued() {
    let mut net = Net::new(1);
    let (server, addrs) = osd(&mut net, 0, 6800);
    let me = client(&mut net, 5);
    let link = dial_osd(&mut net, me, &addrs);
    net.settle();
    net.act(me, |m, _, fx| {
        for tid in 0..5 {
            m.send(link, note(tid, 3000));
        }
        m.close(link, fx);
        m.send(link, note(9, 1)); // For nobody.
    });
    net.settle();
    assert_eq!(net.tids(server), [0, 1, 2, 3, 4]);
    assert_eq!(net.story(me), ["open osd.0"]);
    assert_eq!(net.story(server)[1..], ["closed: closed by the peer"]);
}

#[test]
fn too_much_for_a_link_that_does_not_open_ends_it() {
    let mut net = Net::new(1);
    let (_, addrs) = osd(&mut net, 0, 6800);
    let me = client(&mut net, 5);
    let policy = Policy { max_queued_messages: 10, ..Policy::lossy_client() };
    let dial = Dial::new(addrs, EntityType::OSD, policy);
    let link = net.act(me, |m, now, fx| m.dial(now, dial, fx));
    let mut log = Vec::new();
    net.act(me, |m, now, fx| {
        (0..11).for_each(|tid| m.send(link, note(tid, 0)));
        assert!(m.next_deadline().is_some_and(|d| d <= now.mono));
        m.tick(now, fx, &mut log);
    });
    let [MsgrEvent::Closed { link: gone, why }] = log.as_slice() else {
        panic!("{log:?}");
    };
    assert_eq!((*gone, why), (link, &wire::CloseWhy::Overflow));
    assert_eq!(net.nodes[me].msgr.link_count(), 0);
}

#[test]
fn a_lost_connection_is_told_once() {
    let mut net = Net::new(1);
    let (server, addrs) = osd(&mut net, 0, 6800);
    let me = client(&mut net, 5);
    dial_osd(&mut net, me, &addrs);
    net.settle();
    net.cut(0);
    net.pass(Duration::from_secs(60));
    for node in [server, me] {
        assert_eq!(net.story(node).len(), 2, "{:?}", net.story(node));
        assert!(net.story(node)[1].starts_with("closed: Connection reset"));
        assert_eq!(net.nodes[node].msgr.link_count(), 0);
    }
}

#[test]
fn one_send_per_connection_and_turn() {
    let mut net = Net::new(1);
    let (_, addrs) = osd(&mut net, 0, 6800);
    let me = client(&mut net, 5);
    let link = dial_osd(&mut net, me, &addrs);
    net.settle();
    let n = &mut net.nodes[me];
    for tid in 0..50 {
        n.msgr.send(link, note(tid, 4096));
    }
    n.msgr.end_turn(net.now, &mut n.fx);
    let ops = std::mem::take(&mut n.fx.net);
    let [io::net::NetOp::Send { data, .. }] = ops.as_slice() else {
        panic!("{ops:?}");
    };
    // Head, data, tail and next head, data, ...
    assert_eq!(data.len(), 101);
    assert!(n.msgr.next_deadline().is_some());
}

//! Lossless links between OSDs: whatever happens to connections, no message is lost, doubled or out
//! of order.

use crate::network::osd;
use crate::virtual_net::{Cut, Net, note};
use io::Rng;
use std::time::Duration;
use types::{AddrVec, EntityType};
use wire::{Dial, LinkId, Policy};

fn dial(net: &mut Net, node: usize, from: &AddrVec, to: &AddrVec) -> LinkId {
    let dial = Dial::new(to.clone(), EntityType::OSD, Policy::lossless_peer());
    let dial = dial.from_addrs(from.clone());
    net.act(node, |m, now, fx| m.dial(now, dial, fx))
}

/// Two OSDs, the first dials the second; `messages` each way, more of them after a pause.
struct Pair {
    net: Net,
    nodes: [usize; 2],
    link: LinkId,
    sent: [u64; 2],
}

impl Pair {
    fn new(seed: u64, cuts: Vec<Cut>) -> Self {
        let mut net = Net::new(seed);
        let (a, a_addrs) = osd(&mut net, 0, 6800);
        let (b, b_addrs) = osd(&mut net, 1, 6801);
        net.cuts = cuts;
        let link = dial(&mut net, a, &a_addrs, &b_addrs);
        Pair { net, nodes: [a, b], link, sent: [0; 2] }
    }

    fn send(&mut self, side: usize, len: usize) {
        self.sent[side] += 1;
        let message = note(self.sent[side], len);
        let link = if side == 0 { self.link } else { self.net.link(self.nodes[1]) };
        self.net.send(self.nodes[side], link, message);
    }

    /// Some traffic both ways, with cuts wherever they fall.
    fn talk(&mut self, rounds: u64, len: usize) {
        for round in 0..rounds {
            self.send(0, len);
            if !self.net.story(self.nodes[1]).is_empty() {
                self.send(1, len);
            }
            if round % 2 == 1 {
                self.net.pass(Duration::from_millis(7));
            } else {
                let steps = self.net.rng.usize(..6);
                for _ in 0..steps {
                    self.net.step();
                }
            }
        }
        self.net.pass(Duration::from_secs(40));
    }

    /// Everything arrived once and in order, and nobody was told of any trouble.
    fn check(&mut self, what: impl std::fmt::Debug) {
        // A cut may have come with the last keepalive.
        self.net.pass(Duration::from_secs(5));
        let [a, b] = self.nodes;
        let all = |n: u64| (1..=n).collect::<Vec<_>>();
        assert_eq!(self.net.tids(b), all(self.sent[0]), "to b, {what:?}");
        assert_eq!(self.net.tids(a), all(self.sent[1]), "to a, {what:?}");
        assert_eq!(self.net.story(a), ["open osd.1"], "{what:?}");
        assert_eq!(self.net.story(b), ["open osd.0"], "{what:?}");
        for (node, link) in [(a, self.link), (b, self.net.link(b))] {
            let msgr = &self.net.nodes[node].msgr;
            assert!(msgr.is_connected(link), "{what:?}");
            assert_eq!(msgr.queued(link), (0, 0), "not all acknowledged, {what:?}");
        }
    }

    fn received(&self, connection: usize) -> [u64; 2] {
        self.net.made[connection].map(|end| self.net.received(end))
    }
}

#[test]
fn without_faults() {
    let mut pair = Pair::new(1, vec![]);
    pair.talk(50, 100);
    pair.check("no faults");
    assert_eq!(pair.net.made.len(), 1);
}

#[test]
fn a_connection_may_be_cut_at_any_byte() {
    let mut whole = Pair::new(1, vec![]);
    whole.talk(6, 20);
    let totals = whole.received(0);
    assert!(totals.iter().all(|&n| n > 1000), "{totals:?}");
    for at_acceptor in [false, true] {
        for bytes in 0..totals[usize::from(at_acceptor)] {
            let cut = Cut { connection: 0, at_acceptor, bytes };
            let mut pair = Pair::new(bytes, vec![cut]);
            pair.talk(6, 20);
            pair.check(cut);
            assert_eq!(pair.net.made.len(), 2, "{cut:?}");
        }
    }
}

#[test]
fn the_reconnect_may_be_cut_at_any_byte_too() {
    for bytes in 0..900 {
        for at_acceptor in [false, true] {
            let first = Cut { connection: 0, at_acceptor: bytes % 3 == 0, bytes: 420 + bytes };
            let second = Cut { connection: 1, at_acceptor, bytes };
            let mut pair = Pair::new(bytes, vec![first, second]);
            pair.talk(6, 20);
            pair.check((first, second));
        }
    }
}

#[test]
fn many_cuts_at_random_with_large_messages() {
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let count = rng.usize(1..6);
        let cuts = (0..count).map(|connection| Cut {
            connection,
            at_acceptor: rng.bool(),
            bytes: rng.u64(..400_000) >> rng.u32(..9),
        });
        let mut pair = Pair::new(seed, cuts.collect());
        pair.net.max_piece = 1 << rng.u32(4..18);
        pair.talk(12, 90_000 >> rng.u32(..12));
        pair.check(seed);
    }
}

#[test]
fn an_end_that_hangs_up_in_the_middle_of_everything() {
    // The acceptor's side of the connection ends without an error there: the dialler comes back
    // while the acceptor still believes in the old connection.
    for seed in 0..200 {
        let mut pair = Pair::new(seed, vec![]);
        for round in 0..4 {
            pair.talk_a_little();
            pair.net.cut_one_side(round % pair.net.made.len(), 0);
        }
        pair.talk(4, 50);
        pair.check(seed);
    }
}

impl Pair {
    fn talk_a_little(&mut self) {
        self.send(0, 300);
        if !self.net.story(self.nodes[1]).is_empty() {
            self.send(1, 300);
        }
        let steps = self.net.rng.usize(..30);
        for _ in 0..steps {
            self.net.step();
        }
    }
}

#[test]
fn the_pauses_between_dials_grow() {
    let mut pair = Pair::new(1, vec![]);
    pair.talk(2, 10);
    pair.net.unreachable = true;
    pair.net.cut(0);
    pair.send(0, 10);
    let mut dials = Vec::new();
    for second in 0..100u64 {
        let before = pair.net.refused;
        pair.net.pass(Duration::from_secs(1));
        if pair.net.refused > before {
            dials.push(second);
        }
    }
    // After 0.2, 0.6, 1.4, 3.0, 6.2, 12.6, 25.4 s, then every 15 s.
    assert_eq!(dials, [0, 1, 2, 6, 12, 25, 40, 55, 70, 85]);
    pair.net.unreachable = false;
    pair.net.pass(Duration::from_secs(16));
    pair.check("back again");
}

#[test]
fn a_peer_that_lost_the_session_resets_it_and_the_link_goes_on() {
    let mut net = Net::new(3);
    let (a, a_addrs) = osd(&mut net, 0, 6800);
    let (b, b_addrs) = osd(&mut net, 1, 6801);
    let first = dial(&mut net, a, &a_addrs, &b_addrs);
    net.send(a, first, note(1, 10));
    net.settle();
    assert_eq!(net.tids(b), [1]);
    // The acceptor's owner closes the session; the dialler dials again and is told.
    let back = net.link(b);
    net.act(b, |m, _, fx| m.close(back, fx));
    net.pass(Duration::from_secs(1));
    assert_eq!(net.story(a), ["open osd.1", "reset"]);
    assert_eq!(net.story(b), ["open osd.0", "open osd.0"]);
    let renewed = net.link(a);
    assert_ne!(renewed, first);
    net.send(a, first, note(2, 10)); // The old session: for nobody.
    net.send(a, renewed, note(3, 10));
    net.settle();
    assert_eq!(net.tids(b), [1, 3]);
}

#[test]
fn a_dialler_that_lost_the_session_resets_it_at_the_acceptor() {
    let mut net = Net::new(3);
    let (a, a_addrs) = osd(&mut net, 0, 6800);
    let (b, b_addrs) = osd(&mut net, 1, 6801);
    let first = dial(&mut net, a, &a_addrs, &b_addrs);
    net.send(a, first, note(1, 10));
    net.settle();
    let old = net.link(b);
    net.act(a, |m, _, fx| m.close(first, fx));
    let second = dial(&mut net, a, &a_addrs, &b_addrs);
    net.send(a, second, note(2, 10));
    net.pass(Duration::from_secs(1));
    assert_eq!(net.story(b), ["open osd.0", "reset"]);
    assert_ne!(net.link(b), old);
    assert_eq!(net.tids(b), [1, 2]);
    let back = net.link(b);
    net.send(b, old, note(7, 10)); // For nobody.
    net.send(b, back, note(8, 10));
    net.settle();
    assert_eq!(net.tids(a), [8]);
}

#[test]
fn a_session_whose_peer_does_not_come_back_expires() {
    let mut net = Net::new(3);
    let (a, a_addrs) = osd(&mut net, 0, 6800);
    let (b, b_addrs) = osd(&mut net, 1, 6801);
    dial(&mut net, a, &a_addrs, &b_addrs);
    net.settle();
    net.kill(a);
    net.pass(Policy::lossless_peer().standby_timeout + Duration::from_secs(1));
    let story = net.story(b);
    assert_eq!(story[1], "closed: the peer did not come back to its session");
    assert_eq!(net.nodes[b].msgr.link_count(), 0);
}

#[test]
fn an_overfull_queue_resets_a_dialled_link_and_ends_an_accepted_one() {
    let mut net = Net::new(3);
    let (a, a_addrs) = osd(&mut net, 0, 6800);
    let (b, b_addrs) = osd(&mut net, 1, 6801);
    let policy = Policy { max_queued_bytes: 1 << 20, ..Policy::lossless_peer() };
    let to_b = Dial::new(b_addrs, EntityType::OSD, policy).from_addrs(a_addrs);
    let link = net.act(a, |m, now, fx| m.dial(now, to_b, fx));
    net.settle();
    net.unreachable = true;
    net.cut(0);
    net.settle();
    for tid in 0..10 {
        net.send(a, link, note(tid, 200 << 10));
    }
    net.pass(Duration::from_secs(1));
    assert_eq!(net.story(a), ["open osd.1", "reset"]);
    net.unreachable = false;
    net.pass(Duration::from_secs(20));
    assert_eq!(net.story(b), ["open osd.0", "reset"]);
    let renewed = net.link(a);
    net.send(a, renewed, note(77, 10));
    net.settle();
    assert_eq!(net.tids(b), [77]);
}

#[test]
fn acknowledgements_are_few_when_messages_go_one_way() {
    let mut pair = Pair::new(9, vec![]);
    pair.net.settle();
    for _ in 0..1000 {
        pair.send(0, 10);
        pair.net.settle();
    }
    pair.net.pass(Duration::from_secs(1));
    pair.check("one way");
    // Handshake about 500 bytes; an ACK is 44: one each 64 messages, not one each message.
    let [to_dialler, _] = pair.received(0);
    assert!(to_dialler < 500 + 44 * 24, "{to_dialler}");
}

#[test]
fn many_messages_are_acknowledged_without_delay() {
    let mut pair = Pair::new(9, vec![]);
    pair.net.settle();
    for (messages, len) in [(500, 10), (20, 1 << 20)] {
        for _ in 0..messages {
            pair.send(0, len);
        }
        pair.net.settle();
        // No time has passed, so nothing but their number or size can have been the reason.
        let (bytes, left) = pair.net.nodes[pair.nodes[0]].msgr.queued(pair.link);
        assert!(left < 100 && bytes < 6 << 20, "{left} messages, {bytes} bytes");
    }
}

//! Two OSDs that dial each other, which they should not do: still one session, nothing lost.

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

#[test]
fn both_dial_and_one_session_comes_of_it() {
    for seed in 0..1000 {
        let mut rng = Rng::with_seed(seed);
        let mut net = Net::new(seed);
        net.max_piece = 1 << rng.u32(2..12);
        let (a, a_addrs) = osd(&mut net, 0, 6800);
        let (b, b_addrs) = osd(&mut net, 1, 6801);
        for _ in 0..rng.usize(..4) {
            net.cuts.push(Cut {
                connection: rng.usize(..4),
                at_acceptor: rng.bool(),
                bytes: rng.u64(..1500),
            });
        }
        let from_a = dial(&mut net, a, &a_addrs, &b_addrs);
        for _ in 0..rng.usize(..20) {
            net.step();
        }
        let from_b = dial(&mut net, b, &b_addrs, &a_addrs);
        for tid in 1..=5 {
            net.send(a, from_a, note(tid, 50));
            net.send(b, from_b, note(tid, 50));
            for _ in 0..rng.usize(..20) {
                net.step();
            }
        }
        net.pass(Duration::from_secs(120));
        for (node, link) in [(a, from_a), (b, from_b)] {
            let msgr = &net.nodes[node].msgr;
            assert!(msgr.is_connected(link), "seed {seed}");
            assert_eq!(msgr.queued(link), (0, 0), "seed {seed}");
            assert_eq!(msgr.link_count(), 1, "seed {seed}");
            assert_eq!(net.tids(node), [1, 2, 3, 4, 5], "seed {seed}");
            assert_eq!(net.story(node).len(), 1, "seed {seed}: {:?}", net.story(node));
        }
    }
}

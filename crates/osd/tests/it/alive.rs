//! OSDs that fall silent, and primaries that are cut off.

use crate::admin::ask;
use crate::basic;
use crate::client::{TestClient, object};
use crate::cluster::{Cluster, Options, output};
use io::Core;
use sim::{NodeId, Shared, World};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use types::{AddrVec, OsdId, PoolId};
use wire::msg::OsdOp;

const SECOND: Duration = Duration::from_secs(1);

fn cluster(seed: u64) -> Cluster {
    let mut c = Cluster::new(seed, 3, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 8));
    c.wait_clean();
    c
}

fn write(text: &str) -> Vec<OsdOp> {
    vec![basic::write_full(text.as_bytes())]
}

fn read() -> Vec<OsdOp> {
    vec![basic::read(0, 100)]
}

fn primary_of(c: &Cluster, name: &str) -> usize {
    let mon = c.mon.borrow();
    let pgid = mon.map.object_to_pg(PoolId(1), b"", b"", name.as_bytes()).expect("a PG");
    let pgid = mon.map.raw_pg_to_pg(pgid).expect("a PG");
    mon.map.pg_to_up_acting(pgid).acting_primary.expect("a primary").0 as usize
}

/// Another client, which nothing cuts off.
fn second_client(c: &mut Cluster, seed: u64) -> (NodeId, Rc<RefCell<TestClient>>) {
    let mons = AddrVec::msgr2(SocketAddr::new(World::ip(NodeId(0)), 3300), 0);
    let client = Rc::new(RefCell::new(TestClient::new(mons, 78, seed)));
    let shared = client.clone();
    let boot = Box::new(move |_: &[_], _| Box::new(Shared(shared.clone())) as Box<dyn Core>);
    let node = c.world.add_node(&[], false, boot);
    c.world.start(node);
    (node, client)
}

#[test]
fn a_silent_osd_is_marked_down_and_the_others_serve() {
    for seed in 1..6 {
        let mut c = cluster(seed);
        c.call(object(1, "a"), write("one"), true);
        let osd = primary_of(&c, "a");
        let node = c.osds[osd];
        c.world.isolate(node, &[], true);
        let before = c.world.now();
        let reply = c.call(object(1, "a"), write("two"), true);
        let took = c.world.now() - before;
        assert_eq!(reply.result, 0);
        assert!(took < 5 * SECOND, "seed {seed}: {took:?}");
        assert!(c.mon.borrow().map.is_down(OsdId(osd as i32)));
        // The cable is put back: the OSD hears what became of it, and joins again.
        c.world.isolate(node, &[], false);
        c.wait_clean();
        assert_eq!(output(&c.call(object(1, "a"), read(), false), 0), &b"two"[..]);
    }
}

#[test]
fn nobody_is_accused_in_peace() {
    let mut c = cluster(3);
    let epoch = c.mon.borrow().map.epoch;
    // Broken connections to the mon are another matter.
    c.on_mon(|m| m.notices_deaths = false);
    c.world.set_faults(sim::Faults {
        break_ppm: 1000,
        slow_disk_ppm: 10_000,
        ..sim::Faults::default()
    });
    c.pass(60 * SECOND);
    assert_eq!(c.mon.borrow().map.epoch, epoch);
}

/// An object's primary, which has promises of the others, is cut off from everybody but the first client. Another
/// client is where the others are.
struct Island {
    old: usize,
    node: NodeId,
    client: NodeId,
    other_node: NodeId,
    other: Rc<RefCell<TestClient>>,
}

impl Island {
    fn make(c: &mut Cluster, seed: u64) -> Self {
        c.call(object(1, "a"), write("0"), true);
        let old = primary_of(c, "a");
        let (node, client) = (c.osds[old], c.client_node);
        let (other_node, other) = second_client(c, seed);
        c.pass(SECOND);
        // It has the others' promises.
        assert_eq!(c.call(object(1, "a"), read(), false).result, 0);
        c.world.isolate(node, &[client], true);
        c.world.isolate(client, &[node], true);
        Island { old, node, client, other_node, other }
    }

    /// They know of their promises only what is stored.
    fn start_others_anew(&self, c: &mut Cluster) {
        let others = (0..3).filter(|osd| *osd != self.old);
        others.clone().for_each(|osd| c.crash(osd));
        others.for_each(|osd| c.start(osd));
    }

    /// The other client writes.
    fn write(&self, c: &mut Cluster, text: &str) -> u64 {
        let (other, ops) = (self.other.clone(), write(text));
        let did = c.world.with_core(self.other_node, move |_, _, _| {
            other.borrow_mut().request(object(1, "a"), ops, true)
        });
        did.expect("it runs")
    }

    fn is_written(&self, tid: u64) -> bool {
        self.other.borrow().done.contains_key(&tid)
    }

    /// The first client reads for so long, and looks so often: how many reads were answered, and of them with something
    /// old. One that is sent after the write of "1" was acknowledged must show it.
    fn read_on(&self, c: &mut Cluster, tid: u64, time: Duration, step: Duration) -> (u32, u32) {
        let limit = c.world.now() + time;
        let (mut reads, mut stale) = (0, 0);
        let mut asked = None;
        while c.world.now() < limit {
            let is_written = self.is_written(tid);
            let (is_new, read_tid) = *asked.get_or_insert_with(|| {
                (is_written, c.on_client(|c| c.request(object(1, "a"), read(), false)))
            });
            c.pass(step);
            if let Some(reply) = c.client.borrow_mut().done.remove(&read_tid) {
                reads += 1;
                stale += u32::from(is_new && output(&reply, 0) != b"1"[..]);
                asked = None;
            }
        }
        (reads, stale)
    }
}

/// The old primary is cut off from everybody but one client, which has not heard of anything.
/// Whatever that one reads must be as new as what others were told is written.
#[test]
fn a_primary_that_is_cut_off_serves_nothing_old() {
    for seed in 1..30 {
        let mut c = cluster(seed);
        let island = Island::make(&mut c, seed);
        // How the others find out: by silence, or by the mon at once.
        let told = seed % 2 == 0;
        if told {
            c.on_mon(|m| m.mark_down(OsdId(island.old as i32)));
        }
        if seed % 4 == 0 {
            c.pass(Duration::from_millis(20));
            island.start_others_anew(&mut c);
        }
        let written = island.write(&mut c, "1");
        let (reads, stale) = island.read_on(&mut c, written, 8 * SECOND, Duration::from_millis(5));
        assert!(island.is_written(written), "seed {seed}: the write came through");
        assert!(reads > 0, "seed {seed}: the island's primary served at first");
        assert_eq!(stale, 0, "seed {seed}");
        c.world.isolate(island.node, &[], false);
        c.world.isolate(island.client, &[], false);
        c.wait_clean();
    }
}

/// The old primary is an island with a client that reads. The PG has gone on without it, and the others start anew,
/// before its promises are over: they forgot these, and by what they have stored all was well.
#[test]
fn who_starts_after_a_primary_was_cut_off_waits_for_what_it_may_read() {
    let mut seeds = Vec::new();
    for seed in 1..25 {
        let mut c = cluster(seed);
        let island = Island::make(&mut c, seed);
        // Two copies are enough from the same map on: soon the PG is clean.
        c.on_mon(|m| {
            m.mark_down(OsdId(island.old as i32));
            m.set_size(1, 2);
        });
        c.pass(Duration::from_millis(40 + 10 * (seed % 8)));
        island.start_others_anew(&mut c);
        let written = island.write(&mut c, "1");
        let (_, stale) = island.read_on(&mut c, written, 3 * SECOND, Duration::from_millis(2));
        if stale > 0 {
            seeds.push(seed);
        }
        assert!(island.is_written(written), "seed {seed}: nobody serves");
    }
    assert!(seeds.is_empty(), "something old was read with seeds {seeds:?}");
}

#[test]
fn how_long_clients_wait_for_a_primary_that_goes() {
    for seed in 1..12 {
        eprintln!("seed {seed}");
        let mut c = cluster(seed);
        c.call(object(1, "a"), write("0"), true);
        assert_eq!(c.call(object(1, "a"), read(), false).result, 0);
        let osd = primary_of(&c, "a");
        let node = c.osds[osd];
        c.off[osd] = true;
        let in_order = seed % 2 == 0;
        if in_order {
            c.world.stop(node);
        } else {
            c.crash(osd);
        }
        let before = c.world.now();
        assert_eq!(output(&c.call(object(1, "a"), read(), false), 0), &b"0"[..]);
        let took = c.world.now() - before;
        let most = Duration::from_millis(if in_order { 300 } else { 1000 });
        assert!(took < most, "seed {seed}: {took:?} of {most:?}");
    }
}

/// In the middle of an upgrade, the mon's maps may have more in them than an OSD knows: what it makes of an
/// incremental is not what the mon made of it.
#[test]
fn maps_of_a_newer_mon_are_followed_by_whole_ones() {
    let mut c = cluster(11);
    let before = c.mon.borrow().map.epoch;
    c.on_mon(|m| m.is_of_tomorrow = true);
    for round in 0..3 {
        let wanted = c.mon.borrow().map.epoch.next();
        c.on_mon(|m| m.set_min_size(1, 1 + round % 2));
        c.run_until(20 * SECOND, |c| {
            (0..3).all(|osd| ask(c, osd, "status")["newest_map"].as_u64() >= Some(wanted.0.into()))
        });
        assert_eq!(c.call(object(1, "a"), write("new"), true).result, 0);
    }
    // Each of them asks once for each map, at most.
    let mon = c.mon.borrow();
    assert!(mon.fulls_asked <= 3 * (mon.map.epoch.0 - before.0), "{}", mon.fulls_asked);
}

/// Nobody is marked up meanwhile, and so no further map comes, which would have it ask again.
#[test]
fn many_maps_of_a_newer_mon_are_followed_to_the_newest() {
    const EPOCHS: [u32; 2] = [3, 60];
    for (seed, epochs) in (11..).zip(EPOCHS) {
        let mut c = cluster(seed);
        let before = c.mon.borrow().map.epoch;
        c.off[2] = true;
        c.crash(2);
        c.run_until(20 * SECOND, |c| c.mon.borrow().map.is_down(OsdId(2)));
        c.on_mon(|m| (m.is_of_tomorrow, m.no_up) = (true, true));
        for round in 0..epochs {
            c.on_mon(|m| m.set_min_size(1, 1 + (round % 2) as u8));
            c.pass(Duration::from_millis(20));
        }
        c.pass(5 * SECOND);
        let newest = c.mon.borrow().map.epoch;
        c.on_mon(|m| (m.fulls_asked, m.subscriptions) = (0, 0));
        c.start(2);
        c.run_until(20 * SECOND, |c| c.mon.borrow().newest_at_boot(OsdId(2)) == Some(newest));
        let mon = c.mon.borrow();
        assert_eq!(mon.map.epoch, newest);
        let (asked, missed) = ((mon.fulls_asked, mon.subscriptions), newest.0 - before.0);
        assert!(asked.0 <= 1 + missed / 40 && asked.1 <= 2, "{missed} epochs: {asked:?}");
    }
}

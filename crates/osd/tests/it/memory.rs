//! What OSDs have in hand, against the memory that they may use.

use crate::admin::{answer, ask};
use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::Cluster;
use serde_json::json;
use std::time::Duration;
use types::testing::{Probe, hits_of};
use types::{HObject, OsdId};

const MIB: u64 = 1 << 20;

/// Bytes that came with requests.
fn in_hand(c: &mut Cluster, osd: i32) -> u64 {
    let pools = ask(c, osd, "dump_mempools");
    pools["mempool"]["by_pool"]["osd"]["bytes"].as_u64().expect("bytes")
}

/// A cluster whose OSDs have 8 MiB for requests.
fn small_cluster() -> Cluster {
    let options = [("osd_memory_target".to_owned(), "32M".to_owned())].into();
    let mut c = Cluster::with_disks(3, &[512 * MIB; 3], &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 8));
    c.wait_clean();
    c
}

/// Objects that an OSD leads, or that it does not lead.
fn objects(c: &Cluster, count: usize, osd: OsdId, leads: bool) -> Vec<HObject> {
    let client = c.client.borrow();
    let all = (0..).map(|i| object(1, &format!("o{i}")));
    all.filter(|o| (client.primary_of(o) == osd) == leads).take(count).collect()
}

/// Starts writes of 1 MiB.
fn start_writes(c: &mut Cluster, objects: &[HObject]) {
    let data = vec![7; MIB as usize];
    for target in objects {
        c.on_client(|c| c.request(target.clone(), vec![write_full(&data)], true));
    }
}

#[test]
fn clients_wait_while_writes_that_others_lead_fill_the_memory() {
    // A quarter of the memory for requests is left to clients in any case.
    let mut c = small_cluster();
    let slow = c.osds[0];
    c.world.set_slow_disks(slow, 10_000);
    let others = objects(&c, 12, OsdId(0), false);
    start_writes(&mut c, &others);
    c.run_until(Duration::from_secs(1), |c| in_hand(c, 0) >= 12 * MIB);

    let own = objects(&c, 4, OsdId(0), true);
    start_writes(&mut c, &own[..1]);
    c.run_until(Duration::from_secs(1), |c| in_hand(c, 0) >= 13 * MIB);
    start_writes(&mut c, &own[1..]);
    let tid = c.on_client(|c| c.command(OsdId(0), json!({ "prefix": "version" }).to_string()));
    c.pass(Duration::from_millis(500));
    assert!(answer(&c, tid).is_none(), "it came after more than there should be in hand");

    c.world.set_slow_disks(slow, 1);
    c.run_until(Duration::from_secs(60), |c| answer(c, tid).is_some());
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
    for osd in 0..3 {
        assert_eq!(in_hand(&mut c, osd), 0, "osd.{osd}");
    }
}

#[test]
fn clients_are_heard_again_when_what_fills_the_memory_is_another_osds() {
    let mut c = small_cluster();
    let slow = c.osds[0];
    c.world.set_slow_disks(slow, 10_000);
    let own = objects(&c, 12, OsdId(0), true);
    start_writes(&mut c, &own);
    c.pass(Duration::from_millis(500));
    // Nobody sends them again.
    let (gone, _) = c.change_client();
    c.world.crash(gone);
    c.on_mon(|m| m.set_affinity(OsdId(0), 0));
    let leads = |c: &Cluster| own.iter().any(|o| c.client.borrow().primary_of(o) == OsdId(0));
    c.run_until(Duration::from_secs(60), |c| !leads(c));
    c.world.set_slow_disks(slow, 1);
    c.run_until(Duration::from_secs(60), |c| c.mon.borrow().all_clean());
    assert_eq!(in_hand(&mut c, 0), 0);
}

/// A cluster in which a client has asked OSD 0 for 100 MiB, half of them in so many parts each, and
/// takes nothing of it.
fn with_stuck_reader(parts: u64) -> Cluster {
    let mut c = small_cluster();
    let all = objects(&c, 100, OsdId(0), true);
    start_writes(&mut c, &all);
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
    // What was written is not in memory afterwards.
    c.crash(0);
    let leads = |c: &Cluster| c.client.borrow().primary_of(&all[0]) == OsdId(0);
    c.run_until(Duration::from_secs(60), |c| !leads(c));
    c.start(0);
    c.run_until(Duration::from_secs(60), |c| leads(c));
    c.wait_clean();
    c.call(all[0].clone(), vec![read(0, 1)], false);

    c.pause_client(OsdId(0), true);
    // All that is asked for comes in one receive.
    c.on_client(|c| {
        for (i, target) in all.iter().enumerate() {
            let parts = if i < 50 { 1 } else { parts };
            let part = |i| read(MIB / parts * i, MIB / parts);
            c.request(target.clone(), (0..parts).map(part).collect(), false);
        }
    });
    c
}

/// The client takes what it asked for, and everything is answered: the last 100 requests are reads.
fn check_unstuck(c: &mut Cluster) {
    c.pause_client(OsdId(0), false);
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
    let client = c.client.borrow();
    for reply in client.done.values().rev().take(100) {
        let bytes: usize = reply.ops.iter().map(|op| op.len()).sum();
        assert_eq!((reply.result, bytes), (0, MIB as usize));
    }
    drop(client);
    assert!(hits_of(Probe::LongReadWaited) > 0);
    c.run_until(Duration::from_secs(10), |c| in_hand(c, 0) == 0);
}

#[test]
fn reads_wait_for_clients_that_do_not_take_what_they_asked_for() {
    let mut c = with_stuck_reader(1);
    let reader = c.osds[0];
    let mut most = 0;
    for _ in 0..1000 {
        c.pass(Duration::from_millis(1));
        most = most.max(c.world.unsent_bytes(reader) as u64);
    }
    // What may be unsent, and what was being read by then.
    assert!((16 * MIB..=20 * MIB).contains(&most), "{most}");
    check_unstuck(&mut c);
}

#[test]
fn reads_that_wait_for_their_client_outlast_an_interval() {
    let mut c = with_stuck_reader(1);
    c.pass(Duration::from_secs(1));
    c.crash(1);
    let is_up = |c: &Cluster| c.client.borrow().map.is_up(OsdId(1));
    c.run_until(Duration::from_secs(60), |c| !is_up(c));
    c.pass(Duration::from_secs(1));
    check_unstuck(&mut c);
}

#[test]
fn a_write_does_not_wait_for_reads_of_a_client_that_is_stuck() {
    // Of a read in two parts each one may have to wait.
    for parts in [1, 2] {
        let mut c = with_stuck_reader(parts);
        c.pass(Duration::from_secs(1));
        let all = objects(&c, 100, OsdId(0), true);
        let stuck = c.change_client();
        for target in all {
            c.on_client(|c| c.request(target, vec![write_full(b"new")], true));
            c.run_until(Duration::from_secs(10), |c| c.client.borrow().outstanding() == 0);
        }
        // What was asked for before is answered as it was then.
        (c.client_node, c.client) = stuck;
        check_unstuck(&mut c);
    }
}

//! PGs that are being removed, and come back meanwhile.

use crate::admin::ask;
use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, Options, output};
use std::time::Duration;
use types::testing::{Probe, hits_of, take_hits};
use types::{HObject, OsdId};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const OBJECTS: usize = 600;
const WHOLE: u32 = 0x10000;
/// Who gives its PGs away, and gets them back.
const AWAY: usize = 0;

fn name(i: usize) -> HObject {
    object(1, &format!("{i}{}", "x".repeat(1000)))
}

fn content(i: usize) -> Vec<u8> {
    format!("data of {i}").into_bytes()
}

#[track_caller]
fn assert_reads(c: &mut Cluster, i: usize) {
    let got = c.call(name(i), vec![read(0, 0)], false);
    assert_eq!((got.result, &output(&got, 0)[..]), (0, &content(i)[..]), "object {i}");
}

/// A disk is slow, and its OSD is out: all its PGs are being removed.
fn give_away(seed: u64, affinity: u32) -> Cluster {
    let options = Options::from([("osd_target_transaction_size".into(), "1".into())]);
    let mut c = Cluster::new(seed, 3, &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 4));
    c.on_mon(|m| m.set_affinity(OsdId(AWAY as i32), affinity));
    c.wait_clean();
    for i in 0..OBJECTS {
        c.on_client(|cl| cl.request(name(i), vec![write_full(&content(i))], true));
    }
    c.run_until(MINUTE, |c| c.client.borrow().outstanding() == 0);
    c.on_mon(|m| m.set_weight(OsdId(AWAY as i32), 0));
    c.run_until(MINUTE, |c| removing(c) > 0);
    let node = c.osds[AWAY];
    c.world.set_slow_disks(node, 3000);
    c
}

fn removing(c: &mut Cluster) -> u64 {
    ask(c, AWAY as i32, "perf dump")["osd"]["numpg_removing"].as_u64().expect("a count")
}

fn is_empty(c: &mut Cluster) -> bool {
    let perf = ask(c, AWAY as i32, "perf dump");
    ["numpg", "numpg_removing"].iter().all(|of| perf["osd"][of] == 0)
}

/// What is being removed of it is wanted again, and read.
fn assert_comes_back_at_once(c: &mut Cluster, seed: u64) {
    c.pass(SECOND);
    assert!(removing(c) > 0, "seed {seed}: they are still there");
    c.on_mon(|m| m.set_weight(OsdId(AWAY as i32), WHOLE));
    c.pass(SECOND);
    let before = c.world.now();
    for i in 0..20 {
        assert_reads(c, i);
    }
    let waited = c.world.now() - before;
    assert!(waited < 5 * SECOND, "seed {seed}: {waited:?}");
}

/// It has all objects by itself, in the end.
fn assert_has_everything(c: &mut Cluster) {
    let node = c.osds[AWAY];
    c.world.set_slow_disks(node, 1);
    c.wait_clean();
    for off in [1, 2] {
        c.off[off] = true;
        c.crash(off);
        c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(off as i32)));
        (0..OBJECTS).for_each(|i| assert_reads(c, i));
        c.start(off);
        c.wait_clean();
    }
}

/// Its removal went on to the last object first, and nobody could use the PG meanwhile. In some the OSD leads what
/// comes back.
#[test]
fn a_pg_comes_back_at_once_while_it_is_being_removed() {
    for (seed, affinity) in (0..4).zip([0, WHOLE].into_iter().cycle()) {
        take_hits();
        let mut c = give_away(seed, affinity);
        assert_comes_back_at_once(&mut c, seed);
        assert!(hits_of(Probe::RemovalGaveWay) > 0, "seed {seed}");
        assert_has_everything(&mut c);
    }
}

/// The PGs are split meanwhile. The parts come back, and what is left of one stays no other's.
#[test]
fn parts_of_a_pg_come_back_at_once_while_it_is_being_removed() {
    for (seed, affinity) in (0..4).zip([0, WHOLE].into_iter().cycle()) {
        take_hits();
        let mut c = give_away(seed, affinity);
        c.on_mon(|m| m.set_pg_num(1, 8, 8));
        assert_comes_back_at_once(&mut c, seed);
        assert!(hits_of(Probe::RemovalSplit) > 0, "seed {seed}");
        assert!(hits_of(Probe::RemovalGaveWay) > 0, "seed {seed}");
        assert_has_everything(&mut c);
    }
}

/// They come back, and go again, also what a crash has left. In some it crashes in between.
#[test]
fn parts_of_a_pg_that_come_back_and_go_again_are_removed_to_the_last_object() {
    take_hits();
    for seed in 0..8 {
        let mut c = give_away(seed, 0);
        let node = c.osds[AWAY];
        c.on_mon(|m| m.set_pg_num(1, 16, 16));
        c.pass(SECOND);
        c.on_mon(|m| m.set_weight(OsdId(AWAY as i32), WHOLE));
        c.pass(Duration::from_millis(400 * seed));
        if seed % 2 == 1 {
            c.crash(AWAY);
            c.start(AWAY);
            c.run_until(MINUTE, |c| c.mon.borrow().map.is_up(OsdId(AWAY as i32)));
        }
        c.on_mon(|m| m.set_weight(OsdId(AWAY as i32), 0));
        c.pass(SECOND);
        c.world.set_slow_disks(node, 1);
        c.wait_clean();
        c.run_until(MINUTE, is_empty);
        let left = ask(&mut c, AWAY as i32, "store usage")["objects"].as_u64();
        assert!(left < Some(20), "seed {seed}: {left:?} objects");
    }
    let hits = [Probe::RemovalSplit, Probe::RemovalGaveWay].map(hits_of);
    assert!(hits.iter().all(|n| *n > 0), "{hits:?}");
}

/// The map takes it back before the copy is made: nothing of it may stay behind.
#[test]
fn a_pg_that_comes_back_and_goes_again_is_removed_to_the_last_object() {
    for seed in 0..4 {
        let mut c = give_away(seed, 0);
        let node = c.osds[AWAY];
        c.on_mon(|m| m.set_weight(OsdId(AWAY as i32), WHOLE));
        c.pass(Duration::from_millis(50 * seed));
        c.on_mon(|m| m.set_weight(OsdId(AWAY as i32), 0));
        c.pass(SECOND);
        c.world.set_slow_disks(node, 1);
        c.wait_clean();
        c.run_until(MINUTE, |c| removing(c) == 0);
        let left = ask(&mut c, AWAY as i32, "store usage")["objects"].as_u64();
        assert!(left < Some(20), "seed {seed}: {left:?} objects");
    }
}

//! What an OSD takes over when it comes back, in transactions that its store can take.

use crate::admin::ask;
use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, Options, output};
use std::time::Duration;
use types::testing::{Probe, hits_of, take_hits};
use types::{OsdId, PgId, PoolId, SnapId};
use wire::msg::op::{Extent, OpCode, Pgls, Watch, watch_op};
use wire::msg::op_data::{ListWatchersOut, PgnlsOut};
use wire::msg::{OsdOp, SnapContext};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Their logs are large enough for what is to come in one piece.
const DISK_BYTES: u64 = 256 << 20;
const AWAY: usize = 2;
const ONLY_PG: PgId = PgId { pool: PoolId(1), seed: 0 };

/// Three OSDs with one PG. The third has a copy, and does not lead.
fn cluster(seed: u64, options: &[(&str, &str)]) -> Cluster {
    let options: Options =
        options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let mut c = Cluster::with_disks(seed, &[DISK_BYTES; 3], &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 1));
    c.on_mon(|m| m.set_affinity(OsdId(AWAY as i32), 0));
    c.wait_clean();
    c
}

fn change_all(c: &mut Cluster, names: impl Iterator<Item = String>, op: impl Fn() -> OsdOp) {
    for name in names {
        c.on_client(|cl| cl.request(object(1, &name), vec![op()], true));
    }
    c.run_until(MINUTE, |c| c.client.borrow().outstanding() == 0);
}

fn leave(c: &mut Cluster) {
    c.off[AWAY] = true;
    c.crash(AWAY);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(AWAY as i32)));
}

fn delete() -> OsdOp {
    OsdOp::new(OpCode::DELETE, Extent::default())
}

/// They are removed a few at a time, and what a crash leaves of them is removed at the next start.
#[test]
fn what_was_deleted_meanwhile_is_removed_in_parts() {
    take_hits();
    for seed in 1..9 {
        let mut c = cluster(seed, &[("osd_target_transaction_size", "1")]);
        let names = |n: std::ops::Range<u32>| n.map(|i| format!("{i}{}", "x".repeat(100)));
        change_all(&mut c, names(0..1000), || write_full(b"before"));
        c.off[AWAY] = true;
        let node = c.osds[AWAY];
        // What it has is in its places, so that it must be read before it can be removed.
        c.world.stop(node);
        c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(AWAY as i32)));
        change_all(&mut c, names(0..1000), delete);
        change_all(&mut c, names(0..20), || write_full(b"anew"));
        let before = hits_of(Probe::DeleteRecovered);
        c.start(AWAY);
        c.run_until(MINUTE, |_| hits_of(Probe::DeleteRecovered) > before);
        c.world.run_for(Duration::from_micros(100 * seed));
        leave(&mut c);
        c.start(AWAY);
        c.pass(Duration::from_secs(1));
        c.wait_clean();
        crate::scrub::scrub(&mut c, ONLY_PG, true, false);
        // A scrub that finds what the log has deleted removes it.
        assert_eq!(hits_of(Probe::ScrubFoundError), 0);
    }
    assert!(hits_of(Probe::DeletesLeft) > 0, "a crash came between two parts");
}

fn long_name(i: u32) -> String {
    format!("{i}{}", "x".repeat(1000))
}

/// An OSD is back of whose 300 objects all but the first were deleted meanwhile. Its disk is slow.
fn back_with_much_to_remove() -> Cluster {
    back_after_deletions(300)
}

/// (The log reaches back that far. With more it would be filled.)
fn back_after_deletions(objects: u32) -> Cluster {
    let mut c = cluster(1, &[]);
    change_all(&mut c, (0..objects).map(long_name), || write_full(&[1; 10_000]));
    c.off[AWAY] = true;
    let node = c.osds[AWAY];
    c.world.stop(node);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(AWAY as i32)));
    change_all(&mut c, (1..objects).map(long_name), delete);
    c.world.set_slow_disks(node, 3000);
    take_hits();
    c.start(AWAY);
    c.run_until(10 * MINUTE, |c| {
        c.client.borrow().map.pg_to_up_acting(ONLY_PG).acting.contains(&OsdId(AWAY as i32))
    });
    c
}

/// One that comes back has much to remove, and its disk is slow. Nobody who reads waits for that.
#[test]
fn reads_do_not_wait_until_all_that_was_deleted_is_removed() {
    let mut c = back_with_much_to_remove();
    let got = c.call(object(1, &long_name(0)), vec![read(0, 0)], false);
    assert_eq!((got.result, output(&got, 0).len()), (0, 10_000));
    let objects = |c: &mut Cluster| ask(c, AWAY as i32, "store usage")["objects"].as_u64();
    let left = objects(&mut c).expect("a number");
    assert!(left > 100, "{left} objects are left");
    c.world.set_slow_disks(c.osds[AWAY], 1);
    c.wait_clean();
    c.run_until(MINUTE, |c| objects(c) < Some(100));
}

/// Nor does who writes, or asks when it leads. What is still to be removed is not found, and what is made anew under its
/// name stays.
#[test]
fn writes_and_peering_do_not_wait_until_all_that_was_deleted_is_removed() {
    let mut c = back_with_much_to_remove();
    let name = |i: u32| object(1, &long_name(i));
    for i in [0, 280, 290] {
        assert_eq!(c.call(name(i), vec![write_full(b"anew")], true).result, 0);
    }
    (0..2).for_each(|osd| c.on_mon(|m| m.set_affinity(OsdId(osd), 0)));
    c.on_mon(|m| m.set_affinity(OsdId(AWAY as i32), 0x10000));
    c.run_until(MINUTE, |c| c.client.borrow().primary_of(&name(0)) == OsdId(AWAY as i32));
    for i in [0, 280, 290] {
        let got = c.call(name(i), vec![read(0, 0)], false);
        assert_eq!((got.result, &output(&got, 0)[..]), (0, &b"anew"[..]));
    }
    assert_eq!(c.call(name(270), vec![read(0, 0)], false).result, -types::Errno::ENOENT.0);
    let objects = |c: &mut Cluster| ask(c, AWAY as i32, "store usage")["objects"].as_u64();
    let left = objects(&mut c).expect("a number");
    assert!(left > 100, "{left} objects are left");
    assert!(hits_of(Probe::DeletedMadeAnew) > 0 && hits_of(Probe::DeletedLookedAt) > 0);
    // A listing waits for all of it: it would name what is gone.
    let all = OsdOp::new(OpCode::PGNLS, Pgls { count: 1000, start_epoch: 0 });
    let all = all.with_indata(denc::encode(&types::HObject::min()));
    let listing = c.on_client(|cl| cl.request_of_pg(ONLY_PG, all));
    c.pass(Duration::from_secs(1));
    // Who wants one object does not wait behind it.
    assert_eq!(c.call(name(0), vec![write_full(b"later")], true).result, 0);
    assert_eq!(&output(&c.call(name(0), vec![read(0, 0)], false), 0)[..], b"later");
    assert!(!c.client.borrow().done.contains_key(&listing));
    c.world.set_slow_disks(c.osds[AWAY], 1);
    let listed = c.wait_for(listing);
    let listed: PgnlsOut = denc::decode(&output(&listed, 0)).expect("a listing");
    assert_eq!(listed.entries.len(), 3);
    c.wait_clean();
    c.run_until(MINUTE, |c| objects(c) < Some(100));
    crate::scrub::scrub(&mut c, ONLY_PG, true, false);
    assert_eq!(hits_of(Probe::ScrubFoundError), 0);
}

/// Whoever wants to take over from it does not wait.
#[test]
fn the_watch_of_a_dead_client_ends_before_all_that_was_deleted_is_removed() {
    let mut c = back_with_much_to_remove();
    let target = object(1, &long_name(0));
    let args = Watch { cookie: 1, op: watch_op::WATCH, timeout_s: 30, ..Watch::default() };
    let watch = OsdOp::new(OpCode::WATCH, args);
    assert_eq!(c.call(target.clone(), vec![watch], true).result, 0);
    let (dead, _) = c.change_client();
    c.world.crash(dead);
    (0..2).for_each(|osd| c.on_mon(|m| m.set_affinity(OsdId(osd), 0)));
    c.on_mon(|m| m.set_affinity(OsdId(AWAY as i32), 0x10000));
    c.run_until(MINUTE, |c| c.client.borrow().primary_of(&target) == OsdId(AWAY as i32));
    c.on_mon(|m| m.blocklist(sim::World::ip(dead)));
    let watchers = |c: &mut Cluster| {
        let list = OsdOp::new(OpCode::LIST_WATCHERS, Extent::default());
        let got = c.call(target.clone(), vec![list], false);
        denc::decode::<ListWatchersOut>(&output(&got, 0)).expect("watchers").watchers.len()
    };
    c.run_until(MINUTE, |c| watchers(c) == 0);
    let left = ask(&mut c, AWAY as i32, "store usage")["objects"].as_u64().expect("a number");
    assert!(left > 100, "{left} objects are left");
}

/// It would make no list before all is removed, and writes of the objects at hand would wait for that.
#[test]
fn nothing_is_scrubbed_until_all_that_was_deleted_is_removed() {
    let mut c = back_with_much_to_remove();
    c.wait_clean();
    let ordered = c.on_mon(|m| m.order_scrub(ONLY_PG, true, false));
    assert!(ordered);
    let begin = c.world.now();
    let mut longest = Duration::ZERO;
    let scrubs = |c: &mut Cluster| c.mon.borrow().stats[&ONLY_PG].scrub.changes;
    let before = scrubs(&mut c);
    while c.world.now() - begin < 5 * SECOND {
        let before = c.world.now();
        let done = c.call(object(1, &long_name(0)), vec![write_full(b"anew")], true);
        assert_eq!(done.result, 0);
        longest = longest.max(c.world.now() - before);
    }
    let left = objects_of(&mut c, AWAY);
    assert!(left > 50, "{left} objects are left");
    assert!(longest < 3 * SECOND, "{longest:?}");
    assert_eq!(scrubs(&mut c), before);
    c.world.set_slow_disks(c.osds[AWAY], 1);
    c.run_until(MINUTE, |c| scrubs(c) > before);
}

fn objects_of(c: &mut Cluster, osd: usize) -> u64 {
    ask(c, osd as i32, "store usage")["objects"].as_u64().expect("a number")
}

/// The PG is split, and both parts have their share of it; they are merged again, and it is all one's. What a crash
/// leaves of it is whose it was.
#[test]
fn what_is_still_to_be_removed_is_divided_with_the_pg_and_joined_again() {
    for merges in [false, true] {
        let mut c = back_after_deletions(320);
        let name = |i: u32| object(1, &long_name(i));
        let pg_num = |c: &Cluster| c.client.borrow().map.pool(PoolId(1)).map_or(0, |p| p.pg_num);
        // It takes part, and has noted what is to be removed.
        assert_eq!(c.call(name(0), vec![write_full(b"anew")], true).result, 0);
        c.on_mon(|m| m.set_pg_num(1, 2, 1));
        c.run_until(MINUTE, |c| pg_num(c) == 2);
        let asked: Vec<_> = (280..290)
            .map(|i| c.on_client(|cl| cl.request(name(i), vec![write_full(b"anew")], true)))
            .collect();
        let all_done =
            |c: &mut Cluster| asked.iter().all(|tid| c.client.borrow().done.contains_key(tid));
        c.run_until(8 * SECOND, all_done);
        let left = objects_of(&mut c, AWAY);
        assert!(left > 100, "{left} objects are left");
        if merges {
            c.wait_clean();
            c.on_mon(|m| m.merge_to(1, 1));
            c.run_until(MINUTE, |c| pg_num(c) == 1);
            assert_eq!(c.call(name(291), vec![write_full(b"anew")], true).result, 0);
            let left = objects_of(&mut c, AWAY);
            assert!(left > 30, "{left} objects are left");
        }
        leave(&mut c);
        c.world.set_slow_disks(c.osds[AWAY], 1);
        c.start(AWAY);
        c.run_until(MINUTE, |c| c.mon.borrow().map.is_up(OsdId(AWAY as i32)));
        c.wait_clean();
        c.run_until(MINUTE, |c| objects_of(c, AWAY) < 50);
        for pgid in (0..pg_num(&c)).map(|seed| PgId::new(PoolId(1), seed)) {
            crate::scrub::scrub(&mut c, pgid, true, false);
        }
        assert_eq!(hits_of(Probe::ScrubFoundError), 0);
        assert!(hits_of(Probe::DeletesLeft) > 0);
    }
}

/// What is in flight is not trimmed, and a copy takes all of a log over in one transaction.
#[test]
fn a_log_takes_no_more_writes_than_a_copy_can_take_over() {
    const WRITES: u32 = 2_000;
    let mut c = Cluster::new(1, 3, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 1));
    c.wait_clean();
    let leader = c.client.borrow().primary_of(&object(1, "0")).0;
    let slow = c.osds[(leader as usize + 1) % 3];
    c.world.set_slow_disks(slow, 3_000);
    for i in 0..WRITES {
        let name = format!("{i}{}", "x".repeat(1000));
        c.on_client(|cl| cl.request(object(1, &name), vec![write_full(b"content")], true));
    }
    c.pass(Duration::from_millis(200));
    let query = serde_json::json!({ "prefix": "query", "pgid": ONLY_PG.to_string() });
    let log = crate::admin::tell(&mut c, leader, &query).2["info"]["stats"]["log_size"].as_u64();
    assert!(matches!(log, Some(50..700)), "{log:?} entries");
    c.world.set_slow_disks(slow, 1);
    c.run_until(MINUTE, |c| c.client.borrow().outstanding() == 0);
    assert!(c.client.borrow().done.values().all(|reply| reply.result == 0));
}

/// Each of them removes thousands of rows of snapshot indexes with it.
#[test]
fn clones_that_are_too_much_for_one_transaction_are_removed_one_by_one() {
    let mut c = Cluster::new(1, 4, &Options::new());
    c.on_mon(|m| m.set_weight(OsdId(3), 0));
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 1));
    c.on_mon(|m| m.set_affinity(OsdId(AWAY as i32), 0));
    c.wait_clean();
    const SNAPS: u64 = 100;
    let name = |i: u32| object(1, &format!("{i}{}", "x".repeat(1900)));
    let snapc = |newest: u64| {
        let snaps: Vec<_> = (1..=newest).rev().map(SnapId).collect();
        SnapContext { seq: SnapId(newest), snaps: snaps.into() }
    };
    for i in 0..16 {
        for newest in [0, SNAPS] {
            let got = c.write_under(name(i), vec![write_full(b"data")], snapc(newest), 0);
            assert_eq!(got.result, 0);
        }
    }
    leave(&mut c);
    for snap in 1..=SNAPS {
        c.on_mon(|m| m.remove_snap(1, SnapId(snap)));
    }
    // They are trimmed when the PG is clean again, each in one write.
    c.on_mon(|m| m.set_weight(OsdId(AWAY as i32), 0));
    c.on_mon(|m| m.set_weight(OsdId(3), 0x10000));
    c.pass(Duration::from_secs(1));
    c.wait_clean();
    c.wait_trimmed(PoolId(1));
    take_hits();
    c.start(AWAY);
    c.on_mon(|m| m.set_weight(OsdId(AWAY as i32), 0x10000));
    c.on_mon(|m| m.set_weight(OsdId(3), 0));
    c.pass(Duration::from_secs(1));
    c.wait_clean();
    assert_eq!(hits_of(Probe::BackfillBegan), 0, "it has what it had");
    assert!(hits_of(Probe::RemovalDivided) > 0, "the log is too large");
    let record = crate::scrub::scrub(&mut c, ONLY_PG, true, false);
    assert_eq!(record.errors(), 0, "{record:?}");
}

/// However long names and logs are: a copy that comes back, or is new, takes the log over.
#[test]
fn a_log_of_long_names_fits_into_a_transaction() {
    let mut c = cluster(1, &[("osd_min_pg_log_entries", "100000")]);
    let names = |n: std::ops::Range<u32>| n.map(|i| format!("{i}{}", "x".repeat(1000)));
    change_all(&mut c, names(0..200), || write_full(b"before"));
    leave(&mut c);
    change_all(&mut c, names(0..3000), || write_full(b"after"));
    c.start(AWAY);
    c.pass(Duration::from_secs(1));
    c.wait_clean();
    let record = crate::scrub::scrub(&mut c, ONLY_PG, true, false);
    assert_eq!(record.errors(), 0, "{record:?}");
}

/// The log of who takes it over is small.
#[test]
fn a_log_fits_into_a_transaction_of_whoever_takes_it_over() {
    const SMALL: OsdId = OsdId(3);
    let disks = [1 << 30, 1 << 30, 1 << 30, 64 << 20];
    let options = [("osd_min_pg_log_entries".to_owned(), "100000".to_owned())];
    let mut c = Cluster::with_disks(1, &disks, &Options::from(options));
    c.on_mon(|m| m.set_weight(SMALL, 0));
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 1));
    c.wait_clean();
    // They have told each other.
    c.pass(Duration::from_secs(10));
    let names = |n: std::ops::Range<u32>| n.map(|i| format!("{i}{}", "x".repeat(1000)));
    change_all(&mut c, names(0..2000), || write_full(b"data"));
    // Logs are trimmed with what is written when all this is committed.
    (0..3).for_each(|_| change_all(&mut c, names(0..1), || write_full(b"data")));
    c.on_mon(|m| m.set_weight(SMALL, 0x10000));
    c.on_mon(|m| m.set_weight(OsdId(0), 0));
    c.run_until(MINUTE, |c| {
        let acting = c.mon.borrow().map.pg_to_up_acting(ONLY_PG).acting;
        acting.contains(&SMALL) && c.mon.borrow().all_clean()
    });
}

/// The mon has no map any more as old as the PGs of an OSD, which ends again before it is up.
#[test]
fn pgs_older_than_all_maps_are_not_forgotten() {
    let mut c = Cluster::new(1, 3, &Default::default());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 8));
    c.wait_clean();
    let away = OsdId(AWAY as i32);
    change_all(&mut c, (0..50).map(|i| i.to_string()), || write_full(b"before"));
    leave(&mut c);
    c.on_mon(|m| m.set_weight(away, 0));
    c.pass(Duration::from_secs(1));
    c.wait_clean();
    for _ in 0..10 {
        c.on_mon(|m| m.set_affinity(away, 0));
        c.pass(Duration::from_millis(200));
    }
    c.on_mon(|m| (m.oldest, m.no_up) = (m.map.epoch, true));
    c.start(AWAY);
    c.pass(Duration::from_secs(2));
    c.crash(AWAY);
    c.on_mon(|m| m.no_up = false);
    c.start(AWAY);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_up(away));
    take_hits();
    c.on_mon(|m| m.set_weight(away, 0x10000));
    c.pass(Duration::from_secs(1));
    c.wait_clean();
    assert_eq!(hits_of(Probe::BackfillBegan), 0, "it has what it had");
}

/// However many objects are removed at once.
#[test]
fn a_pool_with_long_names_can_be_removed() {
    let options = [("osd_target_transaction_size".to_owned(), "4096".to_owned())];
    let mut c = Cluster::new(1, 3, &Options::from(options));
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 1));
    c.on_mon(|m| m.create_pool(2, "other", 3, 2, 1));
    c.wait_clean();
    let names = (0..700).map(|i| format!("{i}{}", "x".repeat(2000)));
    change_all(&mut c, names, || write_full(b"data"));
    c.on_mon(|m| m.delete_pool(1));
    c.pass(Duration::from_secs(5));
    c.wait_clean();
    assert!(c.osds.iter().all(|node| c.world.exit_of(*node).is_none()));
}

/// Each map alone is small enough for the store; all that come at once are not.
#[test]
fn many_large_maps_at_once_are_stored() {
    let mut c = Cluster::new(1, 3, &Default::default());
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 8));
    c.wait_clean();
    let away = OsdId(AWAY as i32);
    for i in 0..1000u32 {
        c.on_mon(|m| m.blocklist(std::net::Ipv4Addr::from(0x0a00_0000 + i).into()));
    }
    c.pass(Duration::from_secs(1));
    leave(&mut c);
    for i in 0..50 {
        c.on_mon(|m| m.set_affinity(away, 0x10000 - i));
        c.pass(Duration::from_millis(20));
    }
    c.start(AWAY);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_up(away));
    c.wait_clean();
}

/// It had grown while a copy was away, and nobody writes any more. So it is when a setting makes all logs shorter.
#[test]
fn a_log_is_trimmed_when_its_bound_moves_though_no_write_comes() {
    const ENTRIES: u32 = 2_200;
    let mut c = cluster(1, &[]);
    let entries = |c: &mut Cluster| {
        let leader = c.client.borrow().primary_of(&object(1, "0")).0;
        let query = serde_json::json!({ "prefix": "query", "pgid": ONLY_PG.to_string() });
        let query = crate::admin::tell(c, leader, &query).2;
        // Entries and what is remembered of those before.
        let all = [0, 1, 2]
            .map(|osd| ask(c, osd, "dump_mempools")["mempool"]["by_pool"]["osd_pglog"].clone());
        assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
        query["info"]["stats"]["log_size"].as_u64().expect("a number")
    };
    leave(&mut c);
    change_all(&mut c, (0..ENTRIES).map(|i| format!("{}", i % 10)), || write_full(b"content"));
    c.start(AWAY);
    c.pass(Duration::from_secs(1));
    c.wait_clean();
    c.pass(Duration::from_secs(2));
    assert_eq!(entries(&mut c), 2_000);
    for osd in 0..3 {
        let (var, val) = ("osd_target_pg_log_entries_per_osd", "300");
        let set = serde_json::json!({ "prefix": "config set", "var": var, "val": [val] });
        assert_eq!(crate::admin::tell(&mut c, osd, &set).0, 0);
    }
    c.pass(Duration::from_secs(2));
    assert_eq!(entries(&mut c), 300);
    // So it is on the disks.
    for osd in 0..3 {
        c.crash(osd);
        c.start(osd);
    }
    c.pass(Duration::from_secs(5));
    c.wait_clean();
    assert_eq!(entries(&mut c), 300);
}

//! What came of objects whose last part will not come takes no space any longer.

use crate::admin::ask;
use crate::basic::write_full;
use crate::client::object;
use crate::cluster::{Cluster, Options};
use crate::scrub::scrub;
use maps::OsdMapFlags;
use pg::StateBits;
use std::collections::BTreeSet;
use std::time::Duration;
use types::testing::{Probe, hits_of, take_hits};
use types::{HObject, OsdId, PgId, PoolId};
use wire::msg::OsdOp;
use wire::msg::op::{Extent, OpCode};
use wire::msg::op_data::xattr_op;

const MINUTE: Duration = Duration::from_secs(60);
const BYTES: usize = 2 << 20;

fn slow(more: &[(&str, &str)]) -> Options {
    let chunk = [("osd_recovery_max_chunk", "8192")];
    chunk.iter().chain(more).map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn stop(c: &mut Cluster, osd: usize) {
    c.off[osd] = true;
    let node = c.osds[osd];
    c.world.stop(node);
    c.run_until(MINUTE, |c| c.world.exit_of(node).is_some());
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(osd as i32)));
}

fn usage(c: &mut Cluster, osd: usize) -> (u64, u64) {
    let usage = ask(c, osd as i32, "store usage");
    let number = |name: &str| usage[name].as_u64().expect("a number");
    (number("data_bytes"), number("objects"))
}

/// osd.2 was away, does not lead, and is brought an object in many parts. Some of them are here.
fn half_way(c: &mut Cluster, target: &HObject) {
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 1));
    c.on_mon(|m| m.set_affinity(OsdId(2), 0));
    c.wait_clean();
    stop(c, 2);
    assert_eq!(c.call(target.clone(), vec![write_full(&[1; BYTES])], true).result, 0);
    c.start(2);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_up(OsdId(2)));
    c.run_until(MINUTE, |c| usage(c, 2).0 > 100_000);
    assert!(usage(c, 2).0 < BYTES as u64 / 2);
}

/// Recovery does not go on in the next interval, or not at once.
#[test]
fn an_interval_ends_while_an_object_is_on_its_way() {
    for seed in 0..4 {
        let mut c = Cluster::new(seed, 3, &slow(&[]));
        half_way(&mut c, &object(1, "large"));
        c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
        let follower = 1 - c.client.borrow().primary_of(&object(1, "large")).0 as usize;
        stop(&mut c, follower);
        c.pass(Duration::from_millis(100));
        assert!(usage(&mut c, 2).0 < 10_000, "seed {seed}");
        c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
        c.start(follower);
        c.wait_clean();
        assert!(usage(&mut c, 2).0 >= BYTES as u64);
    }
}

/// Objects that go to the child, and one that stays: their parts gather with the parent.
#[test]
fn a_pg_splits_while_an_object_is_on_its_way() {
    let mut homes = BTreeSet::new();
    for seed in 0..6 {
        let mut c = Cluster::new(seed, 3, &slow(&[]));
        let target = object(1, &format!("{seed}"));
        half_way(&mut c, &target);
        take_hits();
        c.on_mon(|m| m.set_pg_num(1, 2, 1));
        c.pass(Duration::from_secs(1));
        homes.insert(c.client.borrow().pg_of(&target));
        c.wait_clean();
        assert!(hits_of(Probe::PartsGivenUp) > 0, "seed {seed}");
        let (bytes, _) = usage(&mut c, 2);
        assert!((BYTES as u64..BYTES as u64 + 100_000).contains(&bytes), "seed {seed}: {bytes}");
        for off in [0, 1] {
            stop(&mut c, off);
        }
        c.on_mon(|m| m.set_min_size(1, 1));
        let got = c.call(target, vec![crate::basic::read(0, 0)], false);
        assert!(crate::cluster::output(&got, 0) == vec![1; BYTES], "seed {seed}");
    }
    assert_eq!(homes.len(), 2);
}

/// What is written now osd.0 alone has, which is down and no member any more; the two others lead PG 1.0 with its log.
pub fn only_one_that_left_has(c: &mut Cluster, write: impl FnOnce(&mut Cluster)) {
    let pgid = PgId::new(PoolId(1), 0);
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 1, 1));
    c.wait_clean();
    let acting = |c: &Cluster| c.mon.borrow().stats[&pgid].acting.len();
    let is = |c: &Cluster, bit| StateBits(c.mon.borrow().stats[&pgid].state).has(bit);
    stop(c, 1);
    stop(c, 2);
    write(c);
    c.run_until(MINUTE, |c| acting(c) == 1 && is(c, StateBits::ACTIVE));
    c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
    c.start(1);
    c.start(2);
    c.run_until(MINUTE, |c| acting(c) == 3 && is(c, StateBits::ACTIVE));
    stop(c, 0);
    c.run_until(MINUTE, |c| is(c, StateBits::RECOVERY_UNFOUND));
    c.on_mon(|m| m.set_weight(OsdId(0), 0));
    c.on_mon(|m| m.set_size(1, 2));
    c.pass(Duration::from_secs(1));
    c.run_until(MINUTE, |c| acting(c) == 2 && is(c, StateBits::RECOVERY_UNFOUND));
    c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
}

/// Who alone has an object, and is no member any more, goes down again half way. The interval goes on.
#[test]
fn a_source_that_is_no_member_goes_while_an_object_is_on_its_way() {
    let mut c = Cluster::new(2, 3, &slow(&[]));
    let target = object(1, "large");
    only_one_that_left_has(&mut c, |c| {
        assert_eq!(c.call(target.clone(), vec![write_full(&[1; BYTES])], true).result, 0);
    });
    c.start(0);
    let primary = c.client.borrow().primary_of(&target).0 as usize;
    c.run_until(MINUTE, |c| usage(c, primary).0 > 100_000);
    assert!(usage(&mut c, primary).0 < BYTES as u64 / 2);
    let interval = |c: &Cluster| c.mon.borrow().stats[&PgId::new(PoolId(1), 0)].mapping_epoch;
    let since = interval(&c);
    stop(&mut c, 0);
    c.run_until(MINUTE, |c| usage(c, primary).0 < 10_000);
    assert_eq!(interval(&c), since, "the same interval");
    c.start(0);
    c.wait_clean();
    assert!(usage(&mut c, primary).0 >= BYTES as u64);
}

/// The copy itself is not wanted any more.
#[test]
fn a_pg_goes_while_an_object_is_on_its_way() {
    for pool_goes in [true, false] {
        let mut c = Cluster::new(3, 4, &slow(&[]));
        c.on_mon(|m| m.set_weight(OsdId(3), 0));
        half_way(&mut c, &object(1, "large"));
        let empty = |c: &mut Cluster| usage(c, 2).0 < 10_000;
        if pool_goes {
            c.on_mon(|m| m.delete_pool(1));
        } else {
            c.on_mon(|m| m.set_weight(OsdId(3), 0x10000));
            c.on_mon(|m| m.set_weight(OsdId(2), 0));
            c.pass(Duration::from_secs(1));
            c.wait_clean();
        }
        c.run_until(MINUTE, empty);
    }
}

/// A copy is filled with an object that is deleted, or becomes a small one, before it is there.
#[test]
fn an_object_shrinks_while_it_is_on_its_way() {
    let delete = || OsdOp::new(OpCode::DELETE, Extent::default());
    for (seed, change) in [(0, delete()), (1, write_full(b"small")), (2, delete())] {
        let mut c = Cluster::new(seed, 3, &slow(&[]));
        c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
        c.wait_clean();
        let target = object(1, "large");
        assert_eq!(c.call(target.clone(), vec![write_full(&[1; BYTES])], true).result, 0);
        let pgid = c.client.borrow().pg_of(&target);
        let acting = c.mon.borrow().map.pg_to_up_acting(pgid).acting;
        let new = (0..3).find(|osd| !acting.contains(&OsdId(*osd))).expect("one without it");
        c.on_mon(|m| m.set_weight(acting[1], 0));
        c.run_until(MINUTE, |c| usage(c, new as usize).0 > 100_000);
        take_hits();
        assert_eq!(c.call(target.clone(), vec![change], true).result, 0);
        c.run_until(MINUTE, |c| usage(c, new as usize).0 < 10_000);
        c.wait_clean();
        assert_eq!(hits_of(Probe::PartsGivenUp), 0, "not only when the interval ended");
    }
}

/// A copy that is half filled was away. What it has is brought up to date, and deleted meanwhile.
#[test]
fn objects_are_deleted_while_a_half_filled_copy_is_brought_up_to_date() {
    let mut c = Cluster::new(1, 3, &slow(&[("osd_backfill_scan_max", "2")]));
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
    c.wait_clean();
    let target = |i: usize| object(1, &format!("o{i}"));
    let write_all = |c: &mut Cluster, op: OsdOp| {
        (0..40).for_each(|i| _ = c.on_client(|cl| cl.request(target(i), vec![op.clone()], true)));
        c.run_until(MINUTE, |c| c.client.borrow().outstanding() == 0);
    };
    write_all(&mut c, write_full(b"small"));
    let pgid = c.client.borrow().pg_of(&target(0));
    let acting = c.mon.borrow().map.pg_to_up_acting(pgid).acting;
    let new = (0..3).find(|osd| !acting.contains(&OsdId(*osd))).expect("one without it") as usize;
    let before = usage(&mut c, new).1;
    c.on_mon(|m| m.set_weight(acting[1], 0));
    c.run_until(MINUTE, |c| usage(c, new).1 > before + 10);
    stop(&mut c, new);
    write_all(&mut c, write_full(&[2; 200_000]));
    c.on_mon(|m| m.set_flags(OsdMapFlags::NOBACKFILL));
    c.start(new);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_up(OsdId(new as i32)));
    c.run_until(MINUTE, |c| usage(c, new).0 > 100_000);
    write_all(&mut c, OsdOp::new(OpCode::DELETE, Extent::default()));
    c.pass(Duration::from_millis(100));
    assert!(usage(&mut c, new).0 < 10_000);
}

/// A copy has no room for all of an object: it needs what there is for other things.
#[test]
fn a_part_is_refused() {
    take_hits();
    let mut c = Cluster::with_disks(1, &[64 << 20, 64 << 20, 24 << 20], &slow(&[]));
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 1));
    c.on_mon(|m| m.set_affinity(OsdId(2), 0));
    c.wait_clean();
    stop(&mut c, 2);
    let target = object(1, "large");
    assert_eq!(c.call(target.clone(), vec![write_full(&[1; 22 << 20])], true).result, 0);
    c.start(2);
    c.run_until(MINUTE, |_| hits_of(Probe::PushRefused) > 0);
    c.pass(Duration::from_millis(10));
    assert!(usage(&mut c, 2).0 < 10_000, "{:?}", usage(&mut c, 2));
}

/// An object is on its way when an OSD crashes, and is deleted while that is away.
#[test]
fn what_a_crash_leaves_is_removed() {
    let mut c = Cluster::new(1, 3, &slow(&[]));
    half_way(&mut c, &object(1, "large"));
    c.off[2] = true;
    c.crash(2);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(2)));
    let delete = OsdOp::new(OpCode::DELETE, Extent::default());
    assert_eq!(c.call(object(1, "large"), vec![delete], true).result, 0);
    c.start(2);
    c.pass(Duration::from_secs(1));
    c.wait_clean();
    assert!(usage(&mut c, 2).0 < 10_000);
}

/// Attributes that take many parts change while the object is on its way, before and behind the cursor, each once.
#[test]
fn attributes_change_while_they_are_on_their_way() {
    const ATTRS: usize = 300;
    take_hits();
    for seed in 0..6 {
        let omap_chunk = [("osd_recovery_max_omap_chunk", "1000")];
        let mut c = Cluster::new(seed, 3, &slow(&omap_chunk));
        c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
        c.wait_clean();
        let target = object(1, "large");
        let set = |i: usize, n: u8| {
            let name = format!("attr{:03}", i * 7 % ATTRS);
            xattr_op(OpCode::SETXATTR, name.as_bytes(), &[n; 300], 0, 0)
        };
        let ops = (0..ATTRS).map(|i| set(i, 1)).chain([write_full(&[1; BYTES / 8])]).collect();
        assert_eq!(c.call(target.clone(), ops, true).result, 0);
        let pgid = c.client.borrow().pg_of(&target);
        let acting = c.mon.borrow().map.pg_to_up_acting(pgid).acting;
        c.on_mon(|m| m.set_weight(acting[1], 0));
        let mut n = 0;
        c.run_until(MINUTE, |c| {
            if n < ATTRS {
                c.on_client(|cl| cl.request(target.clone(), vec![set(n, 2)], true));
            }
            n += 1;
            n > ATTRS && c.mon.borrow().all_clean()
        });
        c.run_until(MINUTE, |c| c.client.borrow().outstanding() == 0);
        c.wait_clean();
        let scrubbed = scrub(&mut c, pgid, true, false);
        assert_eq!(scrubbed.errors(), 0, "seed {seed}: {scrubbed:?}");
    }
    let hits = [Probe::AttrsDivided, Probe::WriteBesidePush].map(hits_of);
    assert!(hits.iter().all(|n| *n > 30), "{hits:?}");
}

/// osd.2 crashes while objects are on their way to it. What has come of them is in its place, and is in no memory when it
/// starts again.
fn crash_half_way(c: &mut Cluster, target: &HObject) {
    let primary = c.osds[c.client.borrow().primary_of(target).0 as usize];
    c.world.set_paused(primary, true);
    c.pass(Duration::from_secs(40));
    assert!(usage(c, 2).0 > 500_000);
    c.off[2] = true;
    c.crash(2);
    c.world.set_paused(primary, false);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(2)));
}

/// Objects with so many attributes that no two stand beside each other in the tree.
fn write_with_attrs(c: &mut Cluster, i: u8, bytes: usize) {
    let attr = |n: u8| xattr_op(OpCode::SETXATTR, &[n], &[i; 1000], 0, 0);
    let ops = std::iter::once(write_full(&vec![i + 1; bytes])).chain((0..20).map(attr)).collect();
    assert_eq!(c.call(object(1, &format!("o{i}")), ops, true).result, 0);
}

/// The disk is so slow that what a crash has left is still there when the objects come anew, and goes while they come.
#[test]
fn what_is_removed_late_is_not_what_comes_anew() {
    const OBJECTS: u8 = 60;
    let options = [
        ("osd_heartbeat_grace", "1000"),
        ("osd_target_transaction_size", "1"),
        ("osd_recovery_max_active", "64"),
    ];
    for seed in 0..3 {
        let mut c = Cluster::new(seed, 3, &slow(&options));
        c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 1));
        c.on_mon(|m| m.set_affinity(OsdId(2), 0));
        c.wait_clean();
        stop(&mut c, 2);
        (0..OBJECTS).for_each(|i| write_with_attrs(&mut c, i, 60_000));
        c.start(2);
        c.run_until(MINUTE, |c| usage(c, 2).0 > 600_000);
        crash_half_way(&mut c, &object(1, "o0"));
        let node = c.osds[2];
        c.world.set_slow_disks(node, 300);
        c.start(2);
        c.run_until(10 * MINUTE, |c| c.mon.borrow().map.is_up(OsdId(2)));
        c.run_until(10 * MINUTE, |c| c.mon.borrow().all_clean());
        c.world.set_slow_disks(node, 1);
        let pgid = c.client.borrow().pg_of(&object(1, "o0"));
        let record = crate::scrub::scrub(&mut c, pgid, true, false);
        assert_eq!(record.errors(), 0, "seed {seed}: {record:?}");
        let objects = usage(&mut c, 0).1;
        c.run_until(MINUTE, |c| usage(c, 2).1 == objects);
    }
}

/// What was left cannot be looked up. It takes space until the next start, and that is all.
#[test]
fn an_osd_starts_also_if_what_was_left_cannot_be_removed() {
    let mut c = Cluster::new(1, 3, &slow(&[("osd_heartbeat_grace", "1000")]));
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 1));
    c.on_mon(|m| m.set_affinity(OsdId(2), 0));
    c.wait_clean();
    stop(&mut c, 2);
    (0..5).for_each(|i| write_with_attrs(&mut c, i, BYTES));
    c.start(2);
    c.run_until(MINUTE, |c| usage(c, 2).0 > 600_000);
    crash_half_way(&mut c, &object(1, "o0"));
    c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
    let node = c.osds[2];
    c.world.set_slow_disks(node, 1000);
    let is_up = |c: &mut Cluster| c.mon.borrow().map.is_up(OsdId(2));
    c.start(2);
    c.run_until(MINUTE, is_up);
    c.world.set_unreadable(node, true);
    c.pass(Duration::from_secs(5));
    c.world.set_unreadable(node, false);
    c.world.set_slow_disks(node, 1);
    let left = usage(&mut c, 2).0;
    assert!(left > 100_000, "{left} bytes are left");
    let errors = ask(&mut c, 2, "perf dump")["osd"]["read_errors"].as_u64().expect("a count");
    assert!((1..=5).contains(&errors), "{errors} read errors");
    c.crash(2);
    c.start(2);
    c.pass(Duration::from_secs(5));
    c.run_until(MINUTE, is_up);
    assert!(usage(&mut c, 2).0 < 10_000);
    c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
    c.wait_clean();
}

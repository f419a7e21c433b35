//! What came of objects whose last part will not come takes no space any longer.

use crate::admin::ask;
use crate::basic::write_full;
use crate::client::object;
use crate::cluster::{Cluster, Options};
use maps::OsdMapFlags;
use pg::StateBits;
use std::time::Duration;
use types::testing::{Probe, hits_of, take_hits};
use types::{HObject, OsdId, PgId, PoolId};
use wire::msg::OsdOp;
use wire::msg::op::{Extent, OpCode};

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

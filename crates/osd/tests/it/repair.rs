//! Damaged blocks: found when they are read, and repaired from another copy while the client waits.

use crate::admin::{ask, tell};
use crate::basic::{read, with_pool, write_full};
use crate::client::object;
use crate::cluster::{Cluster, Options, output};
use maps::OsdMapFlags;
use pg::StateBits;
use serde_json::json;
use std::time::Duration;
use types::testing::{Probe, hits_of, take_hits};
use types::{Errno, HObject, OsdId, SnapId};
use wire::msg::op::{Extent, OpCode};
use wire::msg::{OsdOp, SnapContext};

const MINUTE: Duration = Duration::from_secs(60);
const NAME: &str = "precious";
/// More than goes through the log, so that it is read from its place.
const BYTES: usize = 200_000;

/// Bytes of which each block begins with its number, and with `mark`.
pub fn content(mark: u8) -> Vec<u8> {
    let mut data = vec![mark; BYTES];
    for (i, block) in data.chunks_mut(4096).enumerate() {
        let head = begins(mark, i);
        let len = head.len().min(block.len());
        block[..len].copy_from_slice(&head[..len]);
    }
    data
}

fn begins(mark: u8, block: usize) -> [u8; 16] {
    let mut head = [mark; 16];
    head[..8].copy_from_slice(&(block as u64 + 0x1234_5678).to_le_bytes());
    head
}

fn write(offset: u64, data: &[u8]) -> OsdOp {
    let args = Extent { offset, length: data.len() as u64, ..Extent::default() };
    OsdOp::new(OpCode::WRITE, args).with_indata(data.to_vec())
}

/// The primary first, then the others.
fn holders(c: &Cluster, target: &HObject) -> Vec<usize> {
    let first = c.client.borrow().primary_of(target).0 as usize;
    std::iter::once(first).chain((0..c.osds.len()).filter(|i| *i != first)).collect()
}

/// Damages block `block` of the content with this mark on an OSD's disk.
pub fn damage(c: &mut Cluster, osd: usize, mark: u8, block: usize) {
    let node = c.osds[osd];
    let hit = c.world.disk(node, 0).damage(&begins(mark, block));
    assert!(!hit.is_empty(), "osd.{osd} has no such block");
}

#[track_caller]
pub fn assert_reads(c: &mut Cluster, target: &HObject, data: &[u8]) {
    let got = c.call(target.clone(), vec![read(0, 0)], false);
    assert_eq!(got.result, 0);
    assert!(output(&got, 0) == data, "other bytes");
}

fn cluster(seed: u64) -> (Cluster, HObject, Vec<usize>) {
    let mut c = with_pool(seed, 3, 3);
    let target = object(1, NAME);
    assert_eq!(c.call(target.clone(), vec![write_full(&content(1))], true).result, 0);
    let holders = holders(&c, &target);
    (c, target, holders)
}

#[test]
fn a_read_of_a_damaged_block_is_served_and_the_copy_repaired() {
    for seed in 0..5 {
        let (mut c, target, holders) = cluster(seed);
        damage(&mut c, holders[0], 1, 3);
        // Several at once wait for the same repair.
        let reads: Vec<_> = (0..4)
            .map(|_| c.on_client(|cl| cl.request(target.clone(), vec![read(0, 0)], false)))
            .collect();
        for tid in reads {
            let got = c.wait_for(tid);
            assert_eq!(got.result, 0);
            assert!(output(&got, 0) == content(1));
        }
        c.wait_clean();
        // It does not lean on the others any more.
        damage(&mut c, holders[1], 1, 5);
        damage(&mut c, holders[2], 1, 5);
        assert_reads(&mut c, &target, &content(1));
    }
}

#[test]
fn a_block_that_the_device_cannot_read_is_repaired_too() {
    let (mut c, target, holders) = cluster(1);
    let node = c.osds[holders[0]];
    let at = c.world.disk(node, 0).damage(&begins(1, 7));
    at.iter().for_each(|at| c.world.disk(node, 0).make_bad(*at, 5));
    assert_reads(&mut c, &target, &content(1));
    c.wait_clean();
}

#[test]
fn the_only_good_copy_repairs_all_others() {
    for seed in 0..5 {
        let (mut c, target, holders) = cluster(seed);
        damage(&mut c, holders[0], 1, 0);
        damage(&mut c, holders[1], 1, 0);
        assert_reads(&mut c, &target, &content(1));
        // The mon hears of it a moment later.
        c.pass(Duration::from_millis(200));
        c.wait_clean();
        damage(&mut c, holders[2], 1, 0);
        // Each of the others can lead without it.
        for off in [holders[0], holders[2]] {
            c.off[off] = true;
            c.crash(off);
            assert_reads(&mut c, &target, &content(1));
            c.start(off);
            c.wait_clean();
        }
    }
}

#[test]
fn without_a_good_copy_a_read_fails_and_all_else_goes_on() {
    let (mut c, target, holders) = cluster(2);
    holders.iter().for_each(|osd| damage(&mut c, *osd, 1, 9));
    for _ in 0..2 {
        let got = c.call(target.clone(), vec![read(0, 0)], false);
        assert_eq!(got.result, -Errno::EIO.0);
    }
    let got = c.call(target.clone(), vec![read(0, 4096)], false);
    assert_eq!(output(&got, 0), content(1)[..4096], "what is whole can be read");
    assert_eq!(c.call(target.clone(), vec![write_full(&content(2))], true).result, 0);
    assert_reads(&mut c, &target, &content(2));
    c.wait_clean();
    // All copies are good again: what is damaged from now on is repaired.
    damage(&mut c, holders[0], 2, 9);
    assert_reads(&mut c, &target, &content(2));
}

/// What fails is logged, too, and that has to wait: the disk is taken for full by the time it has been read.
#[test]
fn a_write_that_fails_on_a_full_disk_is_answered() {
    let mut c = with_pool(3, 1, 1);
    let target = object(1, NAME);
    assert_eq!(c.call(target.clone(), vec![write_full(&content(1))], true).result, 0);
    damage(&mut c, 0, 1, 2);
    let full = |fullness| json!({ "prefix": "injectfull", "type": fullness });
    c.world.set_slow_disks(c.osds[0], 200);
    let ops = vec![write(2 * 4096 + 100, b"inside")];
    let tid = c.on_client(|cl| cl.request(target.clone(), ops, true));
    c.pass(Duration::from_millis(1));
    assert_eq!(tell(&mut c, 0, &full("full")).0, 0);
    // (The mon has not heard of it yet: clients hold their writes then.)
    c.pass(Duration::from_millis(30));
    c.world.set_slow_disks(c.osds[0], 1);
    assert_eq!(tell(&mut c, 0, &full("none")).0, 0);
    assert_eq!(c.wait_for(tid).result, -Errno::EIO.0);
    assert_eq!(c.call(target.clone(), vec![write_full(&content(2))], true).result, 0);
    assert_reads(&mut c, &target, &content(2));
}

/// Both copies of an object are damaged. Its primary ends while it waits for the other one, of which it does not know
/// that; it comes back, after something else has happened.
fn interrupted_repair(
    seed: u64,
    happens: impl Fn(&mut Cluster, &[usize]),
) -> (Cluster, HObject, Vec<usize>) {
    let mut c = with_pool(seed, 2, 2);
    let target = object(1, NAME);
    assert_eq!(c.call(target.clone(), vec![write_full(&content(1))], true).result, 0);
    let holders = holders(&c, &target);
    let [first, other] = [holders[0], holders[1]].map(|osd| c.osds[osd]);
    holders.iter().for_each(|osd| damage(&mut c, *osd, 1, 9));
    let part = vec![read(0, 4096)];
    assert_eq!(c.call(target.clone(), part, false).result, 0, "it has a promise");
    take_hits();
    c.world.isolate(other, &[], true);
    c.on_client(|cl| cl.request(target.clone(), vec![read(0, 0)], false));
    c.run_until(MINUTE, |_| hits_of(Probe::DamageFound) > 0);
    c.pass(Duration::from_millis(50));
    c.crash(holders[0]);
    happens(&mut c, &holders);
    c.world.isolate(other, &[], false);
    c.start(holders[0]);
    c.run_until(MINUTE, |c| c.world.is_up(first));
    c.wait_clean();
    assert_eq!(c.call(target.clone(), vec![read(0, 0)], false).result, -Errno::EIO.0);
    (c, target, holders)
}

/// What can be read of either is all that there is, as it was before: it became unfound, and giving it up deleted it.
#[test]
fn what_was_to_be_repaired_when_the_primary_ended_does_not_become_unfound() {
    for seed in 0..5 {
        let (mut c, target, _) = interrupted_repair(seed, |_, _| {});
        let part = vec![read(0, 4096)];
        assert_eq!(output(&c.call(target.clone(), part, false), 0), content(1)[..4096]);
        assert_eq!(c.call(target.clone(), vec![write_full(&content(2))], true).result, 0);
        assert_reads(&mut c, &target, &content(2));
        c.wait_clean();
    }
}

/// The other one leads when the first comes back: a write of what is whole was held, as the first one had noted that its
/// copy is damaged, and left it out.
#[test]
fn what_is_damaged_on_every_copy_can_be_written_whoever_leads() {
    for seed in 0..5 {
        let (mut c, target, holders) = interrupted_repair(seed, |c, holders| {
            c.on_mon(|m| m.set_affinity(OsdId(holders[0] as i32), 0));
        });
        assert_eq!(c.client.borrow().primary_of(&target), OsdId(holders[1] as i32));
        assert_eq!(c.call(target.clone(), vec![write(100, b"inside")], true).result, 0);
        assert_eq!(c.call(target.clone(), vec![write_full(&content(2))], true).result, 0);
        assert_reads(&mut c, &target, &content(2));
        c.wait_clean();
    }
}

#[test]
fn a_write_into_a_damaged_block_is_done_on_every_copy() {
    for seed in 0..5 {
        for bad in 0..3 {
            let (mut c, target, holders) = cluster(seed);
            damage(&mut c, holders[bad], 1, 2);
            let at = 2 * 4096 + 100;
            assert_eq!(c.call(target.clone(), vec![write(at, b"inside")], true).result, 0);
            let mut wanted = content(1);
            wanted[at as usize..][..6].copy_from_slice(b"inside");
            assert_reads(&mut c, &target, &wanted);
            c.wait_clean();
            for off in [holders[0], holders[1]] {
                c.off[off] = true;
                c.crash(off);
                assert_reads(&mut c, &target, &wanted);
                c.start(off);
                c.wait_clean();
            }
        }
    }
}

#[test]
fn a_damaged_clone_is_repaired_for_whoever_reads_the_snapshot() {
    let (mut c, target, holders) = cluster(3);
    let snapc = SnapContext { seq: SnapId(1), snaps: vec![SnapId(1)].into() };
    let ops = vec![write_full(&content(2))];
    assert_eq!(c.write_under(target.clone(), ops, snapc, 0).result, 0);
    damage(&mut c, holders[0], 1, 4);
    let old = HObject { snap: SnapId(1), ..target.clone() };
    assert_reads(&mut c, &old, &content(1));
    assert_reads(&mut c, &target, &content(2));
    c.wait_clean();
}

/// A copy that is to be filled anew gets a good object, though the one that fills it is damaged.
#[test]
fn recovery_meets_damage_and_goes_around_it() {
    for seed in 0..5 {
        let (mut c, target, holders) = cluster(seed);
        c.off[holders[2]] = true;
        c.crash(holders[2]);
        let wanted = content(2);
        assert_eq!(c.call(target.clone(), vec![write_full(&wanted)], true).result, 0);
        damage(&mut c, holders[0], 2, 11);
        c.start(holders[2]);
        c.run_until(Duration::from_secs(60), |c| c.world.is_up(c.osds[holders[2]]));
        c.wait_clean();
        for off in [holders[0], holders[1]] {
            c.off[off] = true;
            c.crash(off);
            assert_reads(&mut c, &target, &wanted);
            c.start(off);
            c.wait_clean();
        }
    }
}

/// What a copy has of an object is damaged where it is not written. What was changed comes beside that (proof,
/// seed 116: the OSD ended again and again), and the damage is found by whoever reads it.
#[test]
fn what_was_changed_is_put_upon_a_damaged_copy() {
    for seed in 0..4 {
        let (mut c, target, holders) = cluster(seed);
        let away = holders[1];
        // It is in its place, and not checked when the store is mounted.
        c.pass(MINUTE);
        c.off[away] = true;
        c.crash(away);
        c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(away as i32)));
        let mut wanted = content(1);
        for at in [10, 20_000] {
            wanted[at..at + 3].copy_from_slice(b"new");
            assert_eq!(c.call(target.clone(), vec![write(at as u64, b"new")], true).result, 0);
        }
        for block in [0, 7] {
            damage(&mut c, away, 1, block);
        }
        take_hits();
        c.start(away);
        c.run_until(MINUTE, |_| hits_of(Probe::ChangesSent) > 0);
        c.wait_clean();
        let pgid = c.client.borrow().pg_of(&target);
        let record = crate::scrub::scrub(&mut c, pgid, true, true);
        assert_eq!((record.errors(), record.objects_repaired), (0, 1), "{record:?}");
        for off in holders.iter().filter(|o| **o != away) {
            damage(&mut c, *off, 1, 9);
        }
        assert_reads(&mut c, &target, &wanted);
    }
}

/// What is left of a PG cannot be read when it is to be removed; later the PG comes back.
#[test]
fn a_pg_that_could_not_be_removed_can_come_back() {
    let mut c = Cluster::new(1, 3, &Default::default());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 4));
    // It has copies, and does not lead: who leads has all in memory.
    c.on_mon(|m| m.set_affinity(OsdId(0), 0));
    c.wait_clean();
    for i in 0..400 {
        let target = object(1, &format!("{i}{}", "x".repeat(1000)));
        c.on_client(|cl| cl.request(target, vec![write_full(b"data")], true));
    }
    c.run_until(MINUTE, |c| c.client.borrow().outstanding() == 0);
    let node = c.osds[0];
    c.world.stop(node);
    c.run_until(MINUTE, |c| c.world.exit_of(node).is_some());
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(0)));
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_up(OsdId(0)));
    c.wait_clean();
    c.on_mon(|m| m.set_weight(OsdId(0), 0));
    c.world.set_unreadable(node, true);
    c.pass(MINUTE);
    c.wait_clean();
    c.world.set_unreadable(node, false);
    let errors = ask(&mut c, 0, "perf dump")["osd"]["read_errors"].clone();
    assert_eq!(errors, 1);
    c.on_mon(|m| m.set_weight(OsdId(0), 0x10000));
    c.pass(Duration::from_secs(1));
    c.wait_clean();
}

/// Of the only copy nothing can be read, not even which version it is: it is tried, and not again and again.
#[test]
fn what_cannot_be_looked_up_is_not_pushed_without_end() {
    let mut c = Cluster::new(1, 2, &Default::default());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
    c.on_mon(|m| m.set_affinity(OsdId(1), 0));
    c.wait_clean();
    c.off[1] = true;
    c.crash(1);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(1)));
    for i in 0..400 {
        let target = object(1, &format!("{i}{}", "x".repeat(1000)));
        c.on_client(|cl| cl.request(target, vec![write_full(b"")], true));
    }
    c.run_until(MINUTE, |c| c.client.borrow().outstanding() == 0);
    // It starts anew, and has nothing in memory.
    let node = c.osds[0];
    c.world.stop(node);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(0)));
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_up(OsdId(0)));
    c.pass(Duration::from_secs(1));
    c.world.set_unreadable(node, true);
    c.start(1);
    c.pass(Duration::from_secs(20));
    let errors = ask(&mut c, 0, "perf dump")["osd"]["read_errors"].as_u64().expect("a count");
    assert!((1..1000).contains(&errors), "{errors} read errors");
    c.world.set_unreadable(node, false);
    // Who comes back is given all.
    c.off[1] = true;
    c.crash(1);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(1)));
    c.start(1);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_up(OsdId(1)));
    c.pass(Duration::from_secs(1));
    c.wait_clean();
}

/// What the store knows of a PG's objects cannot be read, on who fills the other one or on that: the PG kept its places
/// for ever, and nothing but the log of the OSD said why.
#[test]
fn a_backfill_that_can_list_no_objects_gives_its_places_back_and_comes_again() {
    let options = [("osd_target_pg_log_entries_per_osd", "1"), ("osd_min_pg_log_entries", "10")];
    let options = options.map(|(name, value)| (name.to_string(), value.to_string())).into();
    for bad in 0..2 {
        let mut c = Cluster::new(1, 2, &options);
        c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
        c.on_mon(|m| m.set_affinity(OsdId(1), 0));
        c.wait_clean();
        let write_all = |c: &mut Cluster| {
            for i in 0..400 {
                let target = object(1, &format!("{i}{}", "x".repeat(1000)));
                c.on_client(|cl| cl.request(target, vec![write_full(b"")], true));
            }
            c.run_until(MINUTE, |c| c.client.borrow().outstanding() == 0);
        };
        write_all(&mut c);
        c.off[1] = true;
        let [first, other] = [c.osds[0], c.osds[1]];
        c.world.stop(other);
        c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(1)));
        write_all(&mut c);
        // Neither has anything in memory when it starts anew.
        c.on_mon(|m| m.set_flags(OsdMapFlags::NOBACKFILL));
        c.world.stop(first);
        c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(0)));
        c.run_until(MINUTE, |c| c.mon.borrow().map.is_up(OsdId(0)));
        c.start(1);
        let states = |c: &Cluster| c.mon.borrow().states();
        c.run_until(MINUTE, |c| states(c).contains("backfill"));
        take_hits();
        c.world.set_unreadable(c.osds[bad], true);
        c.on_mon(|m| m.set_flags(OsdMapFlags::default()));
        c.run_until(MINUTE, |c| states(c).contains("backfill_unfound"));
        for osd in 0..2 {
            let places = ask(&mut c, osd, "dump_recovery_reservations").to_string();
            assert!(!places.contains("1.0"), "{places}");
        }
        assert_eq!(hits_of(Probe::NotListed), 1);
        c.world.set_unreadable(c.osds[bad], false);
        c.wait_clean();
    }
}

/// More of them than may be on their way at once. Each kept one of these places for ever, and the PG those of its
/// OSDs.
#[test]
fn a_backfill_goes_on_past_what_nobody_can_read() {
    const OBJECTS: u8 = 40;
    const DAMAGED: u8 = 9;
    let options = [("osd_recovery_max_active", "3"), ("osd_max_backfills", "1")];
    let options = options.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let mut c = Cluster::new(1, 2, &options);
    c.on_mon(|m| m.set_weight(OsdId(1), 0));
    c.on_mon(|m| m.create_pool(1, "rbd", 1, 1, 1));
    c.wait_clean();
    let name = |i: u8| object(1, &format!("o{i}"));
    for i in 0..OBJECTS {
        assert_eq!(c.call(name(i), vec![write_full(&content(100 + i))], true).result, 0);
    }
    c.pass(MINUTE);
    (0..DAMAGED).for_each(|i| damage(&mut c, 0, 100 + i, 3));
    c.on_mon(|m| m.set_weight(OsdId(0), 0));
    c.on_mon(|m| m.set_weight(OsdId(1), 0x10000));
    let states = |c: &Cluster| c.mon.borrow().states();
    c.run_until(MINUTE, |c| states(c).contains("backfill_unfound"));
    let objects = ask(&mut c, 1, "store usage")["objects"].as_u64().expect("a number");
    assert!(objects >= u64::from(OBJECTS - DAMAGED), "{objects} came");
    for osd in 0..2 {
        let places = ask(&mut c, osd, "dump_recovery_reservations").to_string();
        assert!(!places.contains("1.0"), "{places}");
    }
    assert_reads(&mut c, &name(DAMAGED), &content(100 + DAMAGED));
    let got = c.call(name(0), vec![read(0, 0)], false);
    assert_eq!(got.result, -Errno::EIO.0);
    for i in 0..DAMAGED {
        assert_eq!(c.call(name(i), vec![write_full(&content(i))], true).result, 0);
    }
    c.wait_clean();
    assert_eq!(c.client.borrow().primary_of(&name(0)), OsdId(1));
    for i in 0..OBJECTS {
        let mark = if i < DAMAGED { i } else { 100 + i };
        assert_reads(&mut c, &name(i), &content(mark));
    }
}

/// Its listing was tried again with each tick, and the backfill waited for it for ever.
#[test]
fn a_copy_with_records_that_make_no_sense_is_filled() {
    const OBJECTS: usize = 20;
    let mut c = Cluster::new(7, 3, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
    c.wait_clean();
    let name = |i: usize| object(1, &format!("o{i}"));
    for i in 0..OBJECTS {
        assert_eq!(c.call(name(i), vec![write_full(&content(1))], true).result, 0);
    }
    let pgid = c.client.borrow().pg_of(&name(0));
    let acting = c.client.borrow().map.pg_to_up_acting(pgid).acting;
    let new = (0..3).map(OsdId).find(|osd| !acting.contains(osd)).expect("a third one");
    c.on_mon(|m| m.set_flags(OsdMapFlags::NOBACKFILL));
    c.on_mon(|m| m.set_weight(acting[1], 0));
    c.run_until(MINUTE, |c| {
        let mon = c.mon.borrow();
        let stat = &mon.stats[&pgid];
        let filling = stat.up.contains(&new) && !stat.acting.contains(&new);
        filling && StateBits(stat.state).has(StateBits::ACTIVE)
    });
    // One that is to come, and one that nobody has.
    for objname in ["o3", "ghost"] {
        let set = serde_json::json!({
            "prefix": "setomapval", "pool": "rbd", "objname": objname, "key": "k", "val": "v"
        });
        let (result, outs, _) = crate::admin::tell(&mut c, new.0, &set);
        assert_eq!(result, 0, "{outs}");
    }
    c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
    c.pass(Duration::from_secs(1));
    c.wait_clean();
    let record = crate::scrub::scrub(&mut c, pgid, true, false);
    assert_eq!(record.errors(), 0, "{record:?}");
}

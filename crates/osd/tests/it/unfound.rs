//! Objects of which no reachable copy has the newest version: they wait, everything else goes on;
//! they are found, or given up.

use crate::admin::ask;
use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, Options, output};
use crate::{arriving, repair};
use maps::OsdMapFlags;
use pg::StateBits;
use serde_json::Value;
use std::time::Duration;
use types::testing::{Probe, hits_of, take_hits};
use types::{Errno, HObject, OsdId, PgId, SnapId};
use wire::msg::op::{Extent, OpCode, Snap};
use wire::msg::{MCommandReply, OsdOp, SnapContext};

const SECOND: Duration = Duration::from_secs(1);
const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

fn stop(c: &mut Cluster, osd: usize) {
    c.off[osd] = true;
    c.crash(osd);
    c.run_until(10 * SECOND, |c| c.mon.borrow().map.is_down(OsdId(osd as i32)));
}

fn start(c: &mut Cluster, osd: usize) {
    c.start(osd);
    c.run_until(10 * SECOND, |c| c.mon.borrow().map.is_up(OsdId(osd as i32)));
}

#[track_caller]
fn write(c: &mut Cluster, target: &HObject, text: &str) {
    let ops = vec![write_full(text.as_bytes())];
    assert_eq!(c.call(target.clone(), ops, true).result, 0);
}

#[track_caller]
fn assert_reads(c: &mut Cluster, target: &HObject, text: &str) {
    let got = c.call(target.clone(), vec![read(0, 100)], false);
    assert_eq!((got.result, &output(&got, 0)[..]), (0, text.as_bytes()), "{target}");
}

fn state(c: &Cluster, pgid: PgId) -> StateBits {
    c.mon.borrow().stats.get(&pgid).map(|s| StateBits(s.state)).unwrap_or_default()
}

/// Asks the primary of a PG.
#[track_caller]
fn tell(c: &mut Cluster, pgid: PgId, words: &str) -> (i32, String, Value) {
    let primary = c.client.borrow().map.pg_to_up_acting(pgid).acting_primary.expect("a primary");
    let text = format!(r#"{{"prefix": "pg", "pgid": "{pgid}", {words}}}"#);
    let tid = c.on_client(|cl| cl.command(primary, text));
    let is = move |m: &wire::msg::Message| m.header.tid == tid;
    c.run_until(10 * SECOND, |c| c.client.borrow().other.iter().any(is));
    let mut client = c.client.borrow_mut();
    let at = client.other.iter().position(is).expect("it is there");
    let reply: MCommandReply = client.other.remove(at).decode().expect("an answer");
    let data: Vec<u8> = reply.data.to_vec();
    (reply.result, reply.outs, serde_json::from_slice(&data).unwrap_or_default())
}

/// Some objects have the state "newer" on the OSD that is down now only, and "old" on the other one,
/// which leads. Gives the OSDs (with "newer", with "old"), and the objects that are unfound.
fn lose(seed: u64, osds: i32, size: u8) -> (Cluster, Vec<usize>, usize, Vec<HObject>) {
    let mut c = Cluster::new(seed, osds, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", size, 1, 4));
    c.wait_clean();
    let all: Vec<HObject> = NAMES.iter().map(|n| object(1, n)).collect();
    all.iter().for_each(|o| write(&mut c, o, "old"));
    let old = (seed % osds as u64) as usize;
    let new: Vec<usize> = (0..osds as usize).filter(|o| *o != old).collect();
    stop(&mut c, old);
    let lost: Vec<HObject> = all[..8].to_vec();
    lost.iter().for_each(|o| write(&mut c, o, "newer"));
    c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
    start(&mut c, old);
    // It takes part again, and has the log, but not the objects.
    c.run_until(20 * SECOND, |c| {
        let mon = c.mon.borrow();
        let active = |s: &peer::PgStat| {
            StateBits(s.state).has(StateBits::ACTIVE) && s.acting.len() == usize::from(size)
        };
        mon.stats.len() == 4 && mon.stats.values().all(active)
    });
    for osd in &new {
        stop(&mut c, *osd);
    }
    let pgs: Vec<PgId> = lost.iter().map(|o| c.client.borrow().pg_of(o)).collect();
    c.run_until(20 * SECOND, |c| pgs.iter().all(|p| state(c, *p).has(StateBits::RECOVERY_UNFOUND)));
    (c, new, old, lost)
}

#[test]
fn unfound_objects_wait_and_are_found_when_their_osd_comes_back() {
    for seed in 0..4 {
        let (mut c, new, _, lost) = lose(seed, 2, 2);
        let pgid = c.client.borrow().pg_of(&lost[0]);
        let shown = state(&c, pgid);
        assert!(shown.has(StateBits::ACTIVE) && shown.has(StateBits::UNDERSIZED), "{shown}");
        assert!(!shown.has(StateBits::RECOVERY_WAIT), "{shown}");
        let unfound: u64 = c.mon.borrow().stats.values().map(|s| s.unfound).sum();
        assert_eq!(unfound, lost.len() as u64);
        let (_, _, listed) = tell(&mut c, pgid, r#""cmd": "list_unfound""#);
        let here = lost.iter().filter(|o| c.client.borrow().pg_of(o) == pgid).count();
        assert_eq!(listed["num_unfound"], here);
        let down = serde_json::json!([{"osd": new[0].to_string(), "status": "osd is down"}]);
        assert_eq!(listed["might_have_unfound"], down);
        let (_, _, query) = tell(&mut c, pgid, r#""cmd": "query""#);
        assert_eq!(query["recovery_state"][0]["might_have_unfound"], down);
        // Who wants one of them waits, reading or writing; the others serve.
        let reads = c.on_client(|cl| cl.request(lost[0].clone(), vec![read(0, 100)], false));
        let ops = vec![write_full(b"newer")];
        let writes = c.on_client(|cl| cl.request(lost[1].clone(), ops, true));
        for name in &NAMES[8..] {
            assert_reads(&mut c, &object(1, name), "old");
            write(&mut c, &object(1, name), "while");
        }
        c.pass(5 * SECOND);
        assert!(!c.client.borrow().done.contains_key(&reads), "nobody can know");
        assert!(!c.client.borrow().done.contains_key(&writes), "nobody can know");
        // The operator is not believed while the OSD may come back.
        let (result, outs, _) =
            tell(&mut c, pgid, r#""cmd": "mark_unfound_lost", "mulcmd": "revert""#);
        assert!(result == -Errno::EINVAL.0 && outs.contains("haven't probed all"), "{outs}");
        c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
        start(&mut c, new[0]);
        assert_eq!(output(&c.wait_for(reads), 0), b"newer"[..]);
        assert_eq!(c.wait_for(writes).result, 0);
        c.wait_clean();
        assert_reads(&mut c, &lost[1], "newer");
        lost[2..].iter().for_each(|o| assert_reads(&mut c, o, "newer"));
        NAMES[8..].iter().for_each(|n| assert_reads(&mut c, &object(1, n), "while"));
    }
}

/// A PG's primary lacks many objects, and clients wait for all of them. What waits for one is not looked at again
/// whenever another one comes.
#[test]
fn many_requests_wait_for_objects_that_come_one_by_one() {
    const OBJECTS: usize = 300;
    let mut c = Cluster::new(4, 3, &Options::new());
    let all: Vec<HObject> = (0..OBJECTS).map(|i| object(1, &format!("o{i}"))).collect();
    arriving::only_one_that_left_has(&mut c, |c| {
        for target in &all {
            c.on_client(|cl| cl.request(target.clone(), vec![write_full(b"new")], true));
        }
        c.run_until(60 * SECOND, |c| c.client.borrow().outstanding() == 0);
    });
    take_hits();
    let before = c.world.now();
    for target in &all {
        c.on_client(|cl| cl.request(target.clone(), vec![read(0, 100)], false));
    }
    c.pass(SECOND);
    assert_eq!(c.client.borrow().outstanding(), OBJECTS, "nobody has them");
    c.start(0);
    c.run_until(60 * SECOND, |c| c.client.borrow().outstanding() == 0);
    assert_eq!(hits_of(Probe::Pulled), OBJECTS as u64);
    // When it came, and with each tick.
    let ticks = 2 * ((c.world.now() - before).as_secs() + 1);
    let looks = hits_of(Probe::MissingWaited);
    assert!(looks <= (ticks + 2) * OBJECTS as u64, "{looks} looks at {OBJECTS} requests");
}

/// Its objects are no longer missing in a PG that has been split off: what waits for one of them in the PG
/// that it was in must not run there (proof, seed 150000134).
#[test]
fn who_waits_for_an_unfound_object_goes_with_it_when_its_pg_splits() {
    for seed in 0..4 {
        let (mut c, new, _, lost) = lose(seed, 2, 2);
        let append = |text: &'static str| {
            let args = Extent { length: text.len() as u64, ..Extent::default() };
            OsdOp::new(OpCode::APPEND, args).with_indata(text.as_bytes())
        };
        let asked: Vec<u64> = lost
            .iter()
            .map(|o| c.on_client(|cl| cl.request(o.clone(), vec![append("er")], true)))
            .collect();
        c.pass(SECOND);
        c.on_mon(|m| m.set_pg_num(1, 8, 4));
        c.pass(5 * SECOND);
        assert!(asked.iter().all(|tid| !c.client.borrow().done.contains_key(tid)));
        c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
        for osd in new {
            start(&mut c, osd);
        }
        c.wait_clean();
        asked.into_iter().for_each(|tid| assert_eq!(c.wait_for(tid).result, 0));
        lost.iter().for_each(|o| assert_reads(&mut c, o, "newerer"));
    }
}

fn give_up(c: &mut Cluster, new: &[usize], lost: &[HObject], how: &str) {
    for osd in new {
        c.on_mon(|m| m.mark_lost(OsdId(*osd as i32)));
    }
    c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
    let mut pgs: Vec<PgId> = lost.iter().map(|o| c.client.borrow().pg_of(o)).collect();
    pgs.sort();
    pgs.dedup();
    // The primaries hear of it with the map.
    c.pass(SECOND);
    for pgid in pgs {
        let words = format!(r#""cmd": "mark_unfound_lost", "mulcmd": "{how}""#);
        let (result, outs, _) = tell(c, pgid, &words);
        assert!(result == 0 && outs.contains("objects unfound and apparently lost"), "{outs}");
    }
    c.run_until(20 * SECOND, |c| c.mon.borrow().stats.values().all(|s| s.unfound == 0));
}

#[test]
fn unfound_objects_that_are_given_up_go_back_and_stay_there() {
    for seed in 0..4 {
        let (mut c, new, old, lost) = lose(seed, 2, 2);
        let reads = c.on_client(|cl| cl.request(lost[0].clone(), vec![read(0, 100)], false));
        give_up(&mut c, &new, &lost, "revert");
        assert_eq!(output(&c.wait_for(reads), 0), b"old"[..], "who waited gets what there is");
        lost.iter().for_each(|o| assert_reads(&mut c, o, "old"));
        write(&mut c, &lost[3], "later");
        let bytes = NAMES.len() as i64 * 3 + 2;
        let is_counted = |c: &mut Cluster| {
            let mon = c.mon.borrow();
            mon.stats.values().map(|s| s.sums.bytes).sum::<i64>() == bytes
                && mon.stats.values().all(|s| !s.sums.approximate)
        };
        // The OSD that was given up comes back after all: what it has counts no more.
        start(&mut c, new[0]);
        c.wait_clean();
        c.run_until(20 * SECOND, is_counted);
        stop(&mut c, old);
        assert_reads(&mut c, &lost[0], "old");
        assert_reads(&mut c, &lost[3], "later");
    }
}

/// With too few copies to serve, nothing is filled while an object is unfound: it must be possible to give it
/// up then too (proof, seed 80003253: the PG stayed peered for ever).
#[test]
fn what_is_unfound_can_be_given_up_where_too_few_copies_are_left_to_serve() {
    for (seed, how) in (0..4).zip(["revert", "delete"].into_iter().cycle()) {
        let (mut c, new, old, lost) = lose(seed, 2, 2);
        let pgid = c.client.borrow().pg_of(&lost[0]);
        c.on_mon(|m| m.set_min_size(1, 2));
        c.run_until(20 * SECOND, |c| state(c, pgid).has(StateBits::PEERED));
        let reads = c.on_client(|cl| cl.request(lost[0].clone(), vec![read(0, 100)], false));
        give_up(&mut c, &new, &lost, how);
        assert!(!c.client.borrow().done.contains_key(&reads), "one copy serves nobody");
        start(&mut c, new[0]);
        c.wait_clean();
        let result = if how == "revert" { 0 } else { -Errno::ENOENT.0 };
        assert_eq!(c.wait_for(reads).result, result);
        c.on_mon(|m| m.set_min_size(1, 1));
        stop(&mut c, old);
        for target in &lost {
            let got = c.call(target.clone(), vec![read(0, 100)], false);
            assert_eq!(got.result, result, "{target}");
            assert!(result < 0 || output(&got, 0) == b"old"[..], "{target}");
        }
        NAMES[8..].iter().for_each(|n| assert_reads(&mut c, &object(1, n), "old"));
    }
}

#[test]
fn unfound_objects_that_are_given_up_are_deleted_everywhere() {
    for seed in 0..4 {
        let (mut c, new, old, lost) = lose(seed, 2, 2);
        let reads = c.on_client(|cl| cl.request(lost[0].clone(), vec![read(0, 100)], false));
        give_up(&mut c, &new, &lost, "delete");
        assert_eq!(c.wait_for(reads).result, -Errno::ENOENT.0);
        write(&mut c, &lost[3], "anew");
        start(&mut c, new[0]);
        c.wait_clean();
        for off in [new[0], old] {
            for target in &lost {
                let stat = vec![OsdOp::new(OpCode::STAT, Extent::default())];
                let result = c.call(target.clone(), stat, false).result;
                assert_eq!(result, if *target == lost[3] { 0 } else { -Errno::ENOENT.0 });
            }
            assert_reads(&mut c, &lost[3], "anew");
            stop(&mut c, off);
            assert_reads(&mut c, &lost[3], "anew");
            start(&mut c, off);
            c.wait_clean();
        }
    }
}

/// The only copy of a clone rots; its head, which says "second", is whole on both OSDs. Gives the clone.
pub fn lose_clone(seed: u64) -> (Cluster, HObject) {
    let (old, new) = (seed as usize % 2, 1 - seed as usize % 2);
    let mut c = Cluster::new(seed, 2, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
    c.wait_clean();
    let target = object(1, "a");
    let pgid = c.client.borrow().pg_of(&target);
    let full = |mark| vec![write_full(&repair::content(mark))];
    assert_eq!(c.call(target.clone(), full(1), true).result, 0);
    stop(&mut c, old);
    // Else the clone could be made of the head that is there.
    assert_eq!(c.call(target.clone(), full(3), true).result, 0);
    let snapc = SnapContext { seq: SnapId(1), snaps: [SnapId(1)].into_iter().collect() };
    let ops = vec![write_full(b"second")];
    assert_eq!(c.write_under(target.clone(), ops, snapc, 0).result, 0);
    repair::damage(&mut c, new, 3, 3);
    start(&mut c, old);
    c.run_until(20 * SECOND, |c| state(c, pgid).has(StateBits::RECOVERY_UNFOUND));
    (c, target.at_snap(SnapId(1)))
}

/// The operator does not wait for it any more.
pub fn give_up_clone(c: &mut Cluster, clone: &HObject) {
    give_up(c, &[], &[clone.head()], "revert");
}

/// An image in use stood still as soon as a backup read what its snapshot shows and nobody has. Who waits for that
/// goes on when it is given up (proof, seed 60010919: they waited for ever).
#[test]
fn who_waits_for_an_unfound_clone_is_in_nobodys_way() {
    for seed in 0..2 {
        let (mut c, clone) = lose_clone(seed);
        let backup = c.on_client(|cl| cl.request(clone.clone(), vec![read(0, 100)], false));
        c.pass(SECOND);
        write(&mut c, &clone.head(), "third");
        assert_reads(&mut c, &clone.head(), "third");
        assert!(!c.client.borrow().done.contains_key(&backup), "it is for the operator to decide");
        give_up_clone(&mut c, &clone);
        assert_eq!(c.wait_for(backup).result, -Errno::ENOENT.0);
    }
}

/// A rollback changes the head by what the clone shows: later writes come after it.
#[test]
fn a_rollback_to_an_unfound_clone_keeps_its_place() {
    let (mut c, clone) = lose_clone(2);
    let back = OsdOp::new(OpCode::ROLLBACK, Snap { snapid: 1 });
    let rolled = c.on_client(|cl| cl.request(clone.head(), vec![back], true));
    let ops = vec![write_full(b"later")];
    let later = c.on_client(|cl| cl.request(clone.head(), ops, true));
    c.pass(SECOND);
    assert_eq!(c.client.borrow().outstanding(), 2);
    give_up_clone(&mut c, &clone);
    let results = (c.wait_for(rolled).result, c.wait_for(later).result);
    assert_eq!(results, (-Errno::EIO.0, 0), "what it would go back to is lost");
    assert_reads(&mut c, &clone.head(), "later");
}

/// Clones may be unfound for days, and who reads them asks again and again.
#[test]
fn who_has_left_waits_for_no_clone() {
    let (mut c, clone) = lose_clone(3);
    let leads = c.client.borrow().primary_of(&clone).0;
    let waiting = |c: &mut Cluster| ask(c, leads, "dump_ops_in_flight")["num_ops"].clone();
    c.on_client(|cl| cl.request(clone, vec![read(0, 100)], false));
    c.run_until(10 * SECOND, |c| waiting(c) == 1);
    let (gone, _) = c.change_client();
    c.world.crash(gone);
    c.run_until(60 * SECOND, |c| waiting(c) == 0);
}

/// Replicas are brought what a snapshot shows before the object's newer state, whatever somebody waits for: else the
/// loss of the primary is the loss of what the snapshot shows.
#[test]
fn an_object_that_is_waited_for_comes_after_its_clone() {
    for seed in 0..4 {
        let (old, new) = (seed as usize % 2, 1 - seed as usize % 2);
        let mut c = Cluster::new(seed, 2, &Options::new());
        c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
        c.wait_clean();
        let target = object(1, "a");
        write(&mut c, &target, "first");
        stop(&mut c, old);
        let write_after_snap = |c: &mut Cluster, text: &str| {
            let snapc = SnapContext { seq: SnapId(1), snaps: [SnapId(1)].into_iter().collect() };
            let ops = vec![write_full(text.as_bytes())];
            assert_eq!(c.write_under(target.clone(), ops, snapc, 0).result, 0);
        };
        write_after_snap(&mut c, "second");
        c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
        start(&mut c, old);
        write_after_snap(&mut c, "third");
        stop(&mut c, new);
        assert_reads(&mut c, &HObject { snap: SnapId(1), ..target.clone() }, "first");
        assert_reads(&mut c, &target, "third");
    }
}

/// Three OSDs with a state of an object each, the oldest one of which the primary has, and no recovery.
fn with_three_states(seed: u64, target: &HObject) -> (Cluster, [usize; 3]) {
    let mut c = Cluster::new(seed, 3, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 1, 1));
    c.wait_clean();
    write(&mut c, target, "oldest");
    let first = c.client.borrow().primary_of(target).0 as usize;
    let others: Vec<usize> = (0..3).filter(|o| *o != first).collect();
    let (middle, newest) = (others[0], others[1]);
    stop(&mut c, first);
    write(&mut c, target, "middle");
    stop(&mut c, middle);
    write(&mut c, target, "newest");
    c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
    start(&mut c, first);
    start(&mut c, middle);
    (c, [first, middle, newest])
}

/// With three copies another one may have a newer state than the primary has: that is the one to go
/// back to.
#[test]
fn what_is_given_up_goes_back_to_the_newest_state_that_any_copy_has() {
    for seed in 0..6 {
        let target = object(1, "a");
        let (mut c, [first, middle, newest]) = with_three_states(seed, &target);
        let pgid = c.client.borrow().pg_of(&target);
        c.run_until(20 * SECOND, |c| {
            let mon = c.mon.borrow();
            let stat = &mon.stats[&pgid];
            StateBits(stat.state).has(StateBits::ACTIVE) && stat.acting.len() == 3
        });
        stop(&mut c, newest);
        c.run_until(20 * SECOND, |c| state(c, pgid).has(StateBits::RECOVERY_UNFOUND));
        assert_eq!(c.client.borrow().primary_of(&target).0 as usize, first);
        give_up(&mut c, &[newest], std::slice::from_ref(&target), "revert");
        assert_reads(&mut c, &target, "middle");
        start(&mut c, newest);
        c.wait_clean();
        for off in [first, middle] {
            stop(&mut c, off);
            assert_reads(&mut c, &target, "middle");
            start(&mut c, off);
            c.wait_clean();
        }
    }
}

/// An older state was to come from an OSD that went down: it was awaited for ever, and a second order changed nothing.
/// What that OSD has is not given up either: it comes back.
#[test]
fn an_older_state_is_not_awaited_from_an_osd_that_went_down() {
    for seed in 0..4 {
        take_hits();
        let target = object(1, "a");
        let (mut c, [first, middle, newest]) = with_three_states(seed, &target);
        let pgid = c.client.borrow().pg_of(&target);
        let is_active_on = |c: &Cluster, copies: usize| {
            let mon = c.mon.borrow();
            let stat = &mon.stats[&pgid];
            StateBits(stat.state).has(StateBits::ACTIVE) && stat.acting.len() == copies
        };
        c.run_until(20 * SECOND, |c| is_active_on(c, 3));
        stop(&mut c, newest);
        // Only one acts: the others go without a new interval.
        c.on_mon(|m| m.set_size(1, 1));
        c.run_until(20 * SECOND, |c| {
            is_active_on(c, 1) && state(c, pgid).has(StateBits::RECOVERY_UNFOUND)
        });
        assert_eq!(c.client.borrow().primary_of(&target).0 as usize, first);
        c.on_mon(|m| m.mark_lost(OsdId(newest as i32)));
        c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
        c.pass(SECOND);
        let node = c.osds[middle];
        c.world.set_slow_disks(node, 100_000);
        let words = r#""cmd": "mark_unfound_lost", "mulcmd": "revert""#;
        let (result, outs, _) = tell(&mut c, pgid, words);
        assert_eq!(result, 0, "{outs}");
        c.pass(SECOND / 100);
        c.world.set_slow_disks(node, 1);
        match seed % 2 {
            0 => stop(&mut c, middle),
            _ => {
                c.crash(middle);
                c.pass(SECOND / 100);
            }
        }
        if seed % 2 == 0 {
            c.pass(SECOND);
            let (result, outs, _) = tell(&mut c, pgid, words);
            assert!(result == -Errno::EINVAL.0 && outs.contains("haven't probed all"), "{outs}");
        }
        start(&mut c, middle);
        c.pass(SECOND);
        assert!(hits_of(Probe::OlderSourceLost) > 0, "seed {seed}");
        let (_, outs, _) = tell(&mut c, pgid, words);
        assert!(outs.contains("unfound"), "{outs}");
        c.run_until(20 * SECOND, |c| c.mon.borrow().stats.values().all(|s| s.unfound == 0));
        assert_reads(&mut c, &target, "middle");
    }
}

/// The newest version is on the primary only, and cannot be read there. It was pushed to nobody: the
/// PG was neither clean nor did it say why, and a write waited for ever.
#[test]
fn the_only_copy_of_a_version_is_damaged_and_the_object_goes_back() {
    for seed in 0..4 {
        let mut c = Cluster::new(seed, 3, &Options::new());
        c.on_mon(|m| m.create_pool(1, "rbd", 3, 1, 1));
        c.wait_clean();
        let target = object(1, "a");
        let pgid = c.client.borrow().pg_of(&target);
        let write_all = |c: &mut Cluster, mark: u8| {
            let ops = vec![write_full(&repair::content(mark))];
            assert_eq!(c.call(target.clone(), ops, true).result, 0);
        };
        write_all(&mut c, 1);
        let first = c.client.borrow().primary_of(&target).0 as usize;
        let others: Vec<usize> = (0..3).filter(|o| *o != first).collect();
        others.iter().for_each(|osd| stop(&mut c, *osd));
        write_all(&mut c, 2);
        repair::damage(&mut c, first, 2, 9);
        others.iter().for_each(|osd| start(&mut c, *osd));
        c.run_until(20 * SECOND, |c| state(c, pgid).has(StateBits::RECOVERY_UNFOUND));
        let reads = c.on_client(|cl| cl.request(target.clone(), vec![read(0, 0)], false));
        c.pass(5 * SECOND);
        assert!(!c.client.borrow().done.contains_key(&reads), "that is for the operator to decide");
        give_up(&mut c, &[], std::slice::from_ref(&target), "revert");
        assert!(output(&c.wait_for(reads), 0) == repair::content(1), "what is left");
        write_all(&mut c, 3);
        c.wait_clean();
        repair::assert_reads(&mut c, &target, &repair::content(3));
    }
}

/// The only good copy of an object is found to be damaged when it is on its way to a copy that is being
/// filled (proof, seed 140015150: it stayed on its way for ever, and the backfill with it).
#[test]
fn a_backfill_goes_on_when_what_it_had_come_to_is_given_up() {
    for (seed, how) in (0..4).zip(["delete", "revert"].into_iter().cycle()) {
        let mut c = Cluster::new(seed, 3, &Options::new());
        c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
        c.wait_clean();
        let target = object(1, "a");
        let pgid = c.client.borrow().pg_of(&target);
        let acting = c.client.borrow().map.pg_to_up_acting(pgid).acting;
        let (first, second) = (acting[0].0 as usize, acting[1].0 as usize);
        let write = |c: &mut Cluster, mark: u8| {
            let ops = vec![write_full(&repair::content(mark))];
            assert_eq!(c.call(target.clone(), ops, true).result, 0);
        };
        write(&mut c, 1);
        stop(&mut c, second);
        write(&mut c, 2);
        c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER | OsdMapFlags::NOBACKFILL));
        start(&mut c, second);
        c.on_mon(|m| m.set_weight(OsdId(second as i32), 0));
        c.run_until(20 * SECOND, |c| {
            let mon = c.mon.borrow();
            let stat = mon.stats.get(&pgid).expect("it was clean");
            let state = StateBits(stat.state);
            let remapped = state.has(StateBits::ACTIVE) && state.has(StateBits::REMAPPED);
            remapped && stat.acting[..] == acting[..]
        });
        repair::damage(&mut c, first, 2, 0);
        // Listing is faster than reading.
        let node = c.osds[first];
        c.world.set_slow_disks(node, 200);
        c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
        c.run_until(20 * SECOND, |c| {
            c.mon.borrow().stats.get(&pgid).is_some_and(|s| s.unfound == 1)
        });
        c.world.set_slow_disks(node, 1);
        give_up(&mut c, &[], std::slice::from_ref(&target), how);
        c.wait_clean();
        let got = c.call(target.clone(), vec![read(0, 100)], false);
        assert_eq!(got.result, if how == "revert" { 0 } else { -Errno::ENOENT.0 });
    }
}

//! Disks that are full to the last byte: nothing stops, nothing acknowledged is lost, and deletions
//! bring everything back.

use crate::admin::{ask, tell};
use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, Options, output};
use maps::OsdMapFlags;
use pg::StateBits;
use serde_json::json;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;
use types::testing::{Probe, hits_of, take_hits};
use types::{Errno, HObject, OsdId, SnapId, UTime};
use wire::msg::op::{Extent, OpCode};
use wire::msg::op_data::CallIn;
use wire::msg::{OsdOp, SnapContext, flags};

const MIB: u64 = 1 << 20;
const LARGE_BYTES: usize = 300_000;
/// A replica takes so much from its store's reserve.
const SMALL_BYTES: usize = 4096;
const LARGE_ONE_IN: usize = 4;
const IN_FLIGHT: usize = 32;
/// Small writes that come when it is full.
const MORE: usize = 200;
const MORE_FROM: usize = 1_000_001;
/// So long without an answer, nobody goes on.
const STANDSTILL: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(60);

pub fn name(i: usize) -> HObject {
    object(1, &format!("object-{i}"))
}

/// One of some objects is large.
fn content(i: usize) -> Vec<u8> {
    let bytes = if i.is_multiple_of(LARGE_ONE_IN) { LARGE_BYTES } else { SMALL_BYTES };
    (0..bytes).map(|b| (b / 4096 + i * 7 + 1) as u8).collect()
}

fn remove() -> OsdOp {
    OsdOp::new(OpCode::DELETE, Extent::default())
}

/// Nothing but the end of the disk stops anybody.
pub fn cluster(seed: u64, disks: &[u64]) -> Cluster {
    let options = Options::from([("osd_failsafe_full_ratio".into(), "1".into())]);
    let mut c = Cluster::with_disks(seed, disks, &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 8));
    c.wait_clean();
    c
}

/// Asks for an object to be written.
fn write(c: &mut Cluster, i: usize) -> u64 {
    c.on_client(|cl| cl.request(name(i), vec![write_full(&content(i))], true))
}

fn is_full(c: &Cluster, osd: i32) -> bool {
    c.mon.borrow().reports.get(&OsdId(osd)).is_some_and(|r| r.full)
}

/// Sends writes of objects, a few at a time, until `until`. Which are answered.
fn fill(c: &mut Cluster, until: impl Fn(&Cluster, usize) -> bool) -> (Vec<usize>, Vec<u64>) {
    fill_under(c, &SnapContext::default(), until)
}

/// The same when there are these snapshots.
fn fill_under(
    c: &mut Cluster,
    snapc: &SnapContext,
    until: impl Fn(&Cluster, usize) -> bool,
) -> (Vec<usize>, Vec<u64>) {
    let (mut done, mut flying) = (Vec::new(), BTreeMap::new());
    let mut next = 0;
    let end = c.world.now() + PATIENCE;
    while !until(c, done.len()) {
        assert!(c.world.now() < end, "{} answered, {} sent", done.len(), next);
        while flying.len() < IN_FLIGHT {
            let (ops, snapc) = (vec![write_full(&content(next))], snapc.clone());
            let tid = c.on_client(|cl| cl.request_with(name(next), ops, flags::WRITE, snapc));
            flying.insert(tid, next);
            next += 1;
        }
        c.pass(Duration::from_millis(1));
        let mut client = c.client.borrow_mut();
        flying.retain(|tid, i| match client.done.remove(tid) {
            None => true,
            Some(reply) => {
                assert_eq!(reply.result, 0, "object {i}");
                done.push(*i);
                false
            }
        });
    }
    (done, flying.into_keys().collect())
}

#[track_caller]
fn assert_whole(c: &mut Cluster, objects: &[usize]) {
    for i in objects {
        let got = c.call(name(*i), vec![read(0, 0)], false);
        assert_eq!(got.result, 0, "object {i}");
        assert!(output(&got, 0) == content(*i), "object {i} has other bytes");
    }
}

/// osd.2 has what it left out: it serves with either of the others away.
#[track_caller]
fn assert_small_one_has(c: &mut Cluster, objects: &[usize]) {
    for off in [0, 1] {
        c.off[off] = true;
        c.crash(off);
        assert_whole(c, objects);
        c.start(off);
        c.wait_clean();
    }
}

/// Deletes most objects, one by one: what waits then goes on by itself. What is kept.
#[track_caller]
fn make_room<'a>(c: &mut Cluster, done: &'a [usize], flying: Vec<u64>) -> &'a [usize] {
    let (gone, kept) = done.split_at(done.len() * 2 / 3);
    for i in gone {
        assert_eq!(c.call(name(*i), vec![remove()], true).result, 0, "object {i}");
    }
    for tid in flying {
        assert_eq!(c.wait_for(tid).result, 0);
    }
    kept
}

#[test]
fn a_full_replica_logs_writes_and_is_brought_them_later() {
    for seed in 0..2 {
        let mut c = cluster(seed, &[64 * MIB, 64 * MIB, 30 * MIB]);
        let (done, flying) = fill(&mut c, |c, _| is_full(c, 2));
        // Its primaries hear of it and take no more, though they have room: its reserve is for deletions.
        let more: Vec<u64> =
            (0..MORE).map(|i| write(&mut c, MORE_FROM + i * LARGE_ONE_IN)).collect();
        c.pass(Duration::from_secs(10));
        let waits = |tid: &&u64| !c.client.borrow().done.contains_key(tid);
        let waiting: Vec<u64> = flying.iter().chain(&more).filter(waits).copied().collect();
        assert!(waiting.len() > MORE / 2, "seed {seed}: {} wait", waiting.len());
        assert_whole(&mut c, &done);
        let kept = make_room(&mut c, &done, waiting);
        c.run_until(PATIENCE, |c| !is_full(c, 2));
        c.wait_clean();
        assert_whole(&mut c, kept);
        assert_small_one_has(&mut c, kept);
    }
}

#[test]
fn when_all_are_full_writes_wait_or_fail_as_they_asked() {
    // In the last one a deletion needs the store's reserve.
    for seed in [0, 1, 2, 12] {
        let mut c = cluster(seed, &[32 * MIB; 3]);
        // The last one may have a little room left that nobody can use without the others.
        let progress = Cell::new((0, c.world.now()));
        let (done, flying) = fill(&mut c, |c, done| {
            let now = c.world.now();
            if done != progress.get().0 {
                progress.set((done, now));
            }
            let stands_still = now - progress.get().1 > STANDSTILL;
            let full = (0..3).filter(|osd| is_full(c, *osd)).count();
            full == 3 || full == 2 && stands_still
        });
        let asked = flags::WRITE | flags::FULL_TRY;
        let write = || vec![write_full(&content(9))];
        let tries: Vec<u64> = (0..20)
            .map(|i| name(1_000_000 + i))
            .map(|o| c.on_client(|cl| cl.request_with(o, write(), asked, SnapContext::default())))
            .collect();
        c.run_until(PATIENCE, |c| {
            let client = c.client.borrow();
            let refused = |tid| client.done.get(tid).is_some_and(|r| r.result == -Errno::ENOSPC.0);
            tries.iter().any(refused)
        });
        assert_whole(&mut c, &done);
        let kept = make_room(&mut c, &done, flying);
        c.run_until(PATIENCE, |c| (0..3).all(|osd| !is_full(c, osd)));
        c.wait_clean();
        assert_whole(&mut c, kept);
    }
}

fn call(class: &str, method: &str, input: Vec<u8>) -> OsdOp {
    CallIn { class: class.to_owned(), method: method.to_owned(), input: input.into() }.into_op()
}

/// Fills an object of a clone, if it is not there.
fn copy_up() -> OsdOp {
    call("rbd", "copyup", vec![5; LARGE_BYTES])
}

pub fn lock(cookie: u8, description: usize) -> OsdOp {
    let mut input = denc::Encoder::new();
    input.section(1, 1, |e| {
        const SHARED: u8 = 2;
        e.put_bytes(b"name");
        e.put(&SHARED);
        [&[cookie][..], b"tag", &vec![b'd'; description]].into_iter().for_each(|b| e.put_bytes(b));
        e.put(&UTime::ZERO).put(&0u8);
    });
    call("lock", "lock", input.into_bytes().to_vec())
}

/// Of an image of 256 GiB.
const MAPPED_OBJECTS: u64 = 1 << 16;

fn resize_map(objects: u64) -> OsdOp {
    let mut input = denc::Encoder::new();
    input.put(&objects).put(&0u8);
    call("rbd", "object_map_resize", input.into_bytes().to_vec())
}

/// Some objects are in another state.
fn update_map(from: u64, to: u64, state: u8) -> OsdOp {
    let mut input = denc::Encoder::new();
    input.put(&from).put(&to).put(&state).put(&None::<u8>);
    call("rbd", "object_map_update", input.into_bytes().to_vec())
}

/// What methods write took the reserve, which is for deletions and records.
#[test]
fn methods_that_write_wait_for_space_and_removals_do_not() {
    let mut c = cluster(7, &[32 * MIB; 3]);
    let map = object(1, "object map");
    assert_eq!(c.call(map.clone(), vec![resize_map(MAPPED_OBJECTS)], true).result, 0);
    let (done, flying) = fill(&mut c, |c, _| (0..3).any(|osd| is_full(c, osd)));
    c.pass(STANDSTILL);
    let clone = |i: usize| object(1, &format!("clone-{i}"));
    let copied: Vec<u64> = (0..IN_FLIGHT)
        .map(|i| c.on_client(|cl| cl.request(clone(i), vec![copy_up()], true)))
        .collect();
    c.pass(STANDSTILL);
    let waits = |c: &Cluster| {
        let client = c.client.borrow();
        copied.iter().filter(|tid| !client.done.contains_key(tid)).count()
    };
    assert_eq!(waits(&c), IN_FLIGHT, "there is no space");
    let tries = |c: &mut Cluster, o: HObject, op: OsdOp| {
        Errno(-c.write_under(o, vec![op], SnapContext::default(), flags::FULL_TRY).result)
    };
    assert_eq!(tries(&mut c, clone(IN_FLIGHT), copy_up()), Errno::ENOSPC);
    // What removes an image locks its header, and the like.
    assert_eq!(tries(&mut c, object(1, "header"), lock(1, 100)), Errno(0));
    assert_eq!(tries(&mut c, object(1, "header"), lock(2, 10_000)), Errno::ENOSPC);
    // Then it notes in the image's object map what is there no more: all of it, or a few objects of many.
    assert_eq!(tries(&mut c, map.clone(), update_map(0, MAPPED_OBJECTS, 2)), Errno(0));
    assert_eq!(tries(&mut c, map.clone(), update_map(7, 9, 0)), Errno(0));
    // The map of an image that is made larger has to wait.
    assert_eq!(tries(&mut c, map, resize_map(2 * MAPPED_OBJECTS)), Errno::ENOSPC);
    make_room(&mut c, &done, flying);
    for tid in copied {
        assert_eq!(c.wait_for(tid).result, 0);
    }
    c.wait_clean();
    let got = c.call(clone(0), vec![read(0, 0)], false);
    assert!(output(&got, 0)[..] == [5; LARGE_BYTES]);
}

/// Where the cluster is to take no more, though the disks have some space left.
#[test]
fn methods_that_add_data_are_refused_when_the_cluster_is_full() {
    let mut c = cluster(8, &[64 * MIB; 3]);
    assert_eq!(c.call(name(0), vec![write_full(&[b'a'; LARGE_BYTES])], true).result, 0);
    let map = object(1, "object map");
    assert_eq!(c.call(map.clone(), vec![resize_map(MAPPED_OBJECTS)], true).result, 0);
    c.on_mon(|m| m.set_flags(OsdMapFlags::FULL));
    c.pass(Duration::from_secs(1));
    let tries = |c: &mut Cluster, o: HObject, op: OsdOp| {
        Errno(-c.write_under(o, vec![op], SnapContext::default(), flags::FULL_TRY).result)
    };
    assert_eq!(tries(&mut c, name(1), copy_up()), Errno::ENOSPC);
    // It is there: nothing is to be copied.
    assert_eq!(tries(&mut c, name(0), copy_up()), Errno(0));
    // An object map of the same length is as large as it was.
    assert_eq!(tries(&mut c, map.clone(), resize_map(MAPPED_OBJECTS)), Errno(0));
    assert_eq!(tries(&mut c, map, resize_map(2 * MAPPED_OBJECTS)), Errno::ENOSPC);
    assert_eq!(tries(&mut c, object(1, "header"), lock(1, 100)), Errno(0));
    assert_eq!(tries(&mut c, name(0), remove()), Errno(0));
}

/// Replicas leave out what their primary has; it goes away before it could bring it to them. What nobody was
/// told is done does not stand in anybody's way, and is done when its client asks again. In some there is a snapshot:
/// what replaces something makes a clone of it.
#[test]
fn what_only_a_primary_had_room_for_is_done_again_when_it_goes() {
    types::testing::take_hits();
    for seed in 0..6 {
        let mut c = cluster(seed, &[256 * MIB, 32 * MIB, 32 * MIB]);
        // Half of the large ones replace something.
        let old: Vec<_> = (0..600).step_by(2 * LARGE_ONE_IN).collect();
        for i in &old {
            let ops = vec![write_full(b"old")];
            assert_eq!(c.call(name(*i), ops, true).result, 0);
        }
        let snapc = match seed % 2 {
            0 => SnapContext::default(),
            _ => SnapContext { seq: SnapId(1), snaps: vec![SnapId(1)].into() },
        };
        let both_full = |c: &Cluster, _| is_full(c, 1) && is_full(c, 2);
        let (done, flying) = fill_under(&mut c, &snapc, both_full);
        let all = done.len() + flying.len();
        c.pass(Duration::from_secs(2));
        c.off[0] = true;
        c.crash(0);
        c.run_until(PATIENCE, |c| c.mon.borrow().map.is_down(OsdId(0)));
        let (gone, _) = done.split_at(done.len() * 2 / 3);
        make_room(&mut c, &done, flying);
        let kept: Vec<_> = (0..all).filter(|i| !gone.contains(i)).collect();
        assert_whole(&mut c, &kept);
        c.start(0);
        c.wait_clean();
        assert_whole(&mut c, &kept);
        for i in old.iter().filter(|i| !snapc.snaps.is_empty() && **i < all) {
            let at_snap = name(*i).at_snap(SnapId(1));
            let got = c.call(at_snap, vec![read(0, 0)], false);
            assert_eq!((got.result, &output(&got, 0)[..]), (0, &b"old"[..]), "object {i}");
        }
    }
    assert!(types::testing::hits_of(types::testing::Probe::WriteTakenBack) > 0);
}

#[test]
fn a_disk_that_is_taken_for_full_takes_nothing_until_it_is_not() {
    types::testing::take_hits();
    let mut c = cluster(3, &[64 * MIB; 3]);
    let say = |c: &mut Cluster, fullness: &str| {
        let command = json!({ "prefix": "injectfull", "type": fullness });
        tell(c, 1, &command)
    };
    assert_eq!(say(&mut c, "half").0, -Errno::EINVAL.0);
    assert_eq!(say(&mut c, "failsafe").0, 0);
    let flying: Vec<u64> = (0..IN_FLIGHT).map(|i| write(&mut c, i)).collect();
    c.run_until(PATIENCE, |c| is_full(c, 1));
    assert!(types::testing::hits_of(types::testing::Probe::WriteLeftOut) > 0);
    c.pass(Duration::from_secs(5));
    let waiting = flying.iter().filter(|tid| !c.client.borrow().done.contains_key(tid)).count();
    assert!(waiting > 0, "its own writes wait");
    assert_eq!(say(&mut c, "none").0, 0);
    flying.into_iter().for_each(|tid| assert_eq!(c.wait_for(tid).result, 0));
    c.run_until(PATIENCE, |c| !is_full(c, 1));
    c.wait_clean();
    let all: Vec<_> = (0..IN_FLIGHT).collect();
    assert_whole(&mut c, &all);
    // So many times, and no more.
    let once = json!({ "prefix": "injectfull", "type": "failsafe", "count": 1 });
    assert_eq!(tell(&mut c, 1, &once).0, 0);
    let again: Vec<u64> = (0..IN_FLIGHT).map(|i| write(&mut c, i)).collect();
    again.into_iter().for_each(|tid| assert_eq!(c.wait_for(tid).result, 0));
    c.wait_clean();
    assert_whole(&mut c, &all);
}

/// What a copy has missed is more than its disk can hold. Writes of what it lacks wait for space, and
/// deletions make it.
#[test]
fn a_copy_without_space_for_what_it_missed_stops_nobody_from_making_some() {
    for seed in 0..2 {
        types::testing::take_hits();
        let mut c = cluster(seed, &[96 * MIB, 96 * MIB, 30 * MIB]);
        c.off[2] = true;
        c.crash(2);
        c.run_until(PATIENCE, |c| c.mon.borrow().map.is_down(OsdId(2)));
        let (done, flying) = fill(&mut c, |_, done| done > 400);
        flying.into_iter().for_each(|tid| assert_eq!(c.wait_for(tid).result, 0));
        c.start(2);
        c.run_until(PATIENCE, |c| is_full(c, 2));
        assert!(types::testing::hits_of(types::testing::Probe::PushRefused) > 0);
        // Some of them it has.
        let (again, rest) = done.split_at(200);
        let again: Vec<u64> = again.iter().map(|i| write(&mut c, *i)).collect();
        c.pass(Duration::from_secs(10));
        let waits = |tid: &&u64| !c.client.borrow().done.contains_key(tid);
        let waiting: Vec<u64> = again.iter().filter(waits).copied().collect();
        assert!(!waiting.is_empty(), "seed {seed}: nothing waits for space");
        let kept = make_room(&mut c, rest, waiting);
        c.run_until(PATIENCE, |c| !is_full(c, 2));
        c.wait_clean();
        assert_whole(&mut c, kept);
        assert_small_one_has(&mut c, kept);
    }
}

/// A full OSD leads PGs of which it misses some objects, and clients want those. It took its reserve for them, which is
/// for deletions and records: without that it could not even say that its PGs are active.
#[test]
fn what_a_full_primary_misses_waits_for_space_and_deletions_do_not() {
    let mut c = cluster(3, &[64 * MIB; 3]);
    [0, 2].iter().for_each(|osd| c.on_mon(|m| m.set_affinity(OsdId(*osd), 0)));
    c.wait_clean();
    let (here, missed) = ([0, 1, 2], [100, 101, 102, 103]);
    let write_some = |c: &mut Cluster, some: &[usize]| {
        let tids: Vec<u64> = some.iter().map(|i| write(c, *i)).collect();
        tids.into_iter().for_each(|tid| assert_eq!(c.wait_for(tid).result, 0));
    };
    write_some(&mut c, &here);
    c.off[1] = true;
    c.crash(1);
    c.run_until(PATIENCE, |c| c.mon.borrow().map.is_down(OsdId(1)));
    write_some(&mut c, &missed);
    c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
    c.start(1);
    c.run_until(PATIENCE, |c| {
        let mon = c.mon.borrow();
        let leads = |s: &peer::PgStat| s.acting.first() == Some(&OsdId(1));
        mon.stats.values().all(|s| StateBits(s.state).has(StateBits::ACTIVE) && leads(s))
    });
    let say = |c: &mut Cluster, fullness: &str| {
        let command = json!({ "prefix": "injectfull", "type": fullness });
        assert_eq!(tell(c, 1, &command).0, 0);
    };
    take_hits();
    say(&mut c, "failsafe");
    let ask = |i| (i, c.on_client(|cl| cl.request(name(i), vec![read(0, 0)], false)));
    let asked = missed.map(ask);
    c.pass(STANDSTILL);
    assert_eq!(c.client.borrow().outstanding(), missed.len(), "there is no space for them");
    let refused = hits_of(Probe::PullRefused);
    assert!((1..=missed.len() as u64).contains(&refused), "{refused} times");
    assert_eq!(c.call(name(0), vec![remove()], true).result, 0);
    say(&mut c, "none");
    for (i, tid) in asked {
        let got = c.wait_for(tid);
        assert!(got.result == 0 && output(&got, 0) == content(i), "object {i}");
    }
    c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
    c.run_until(PATIENCE, |c| !is_full(c, 1));
    c.wait_clean();
    assert_whole(&mut c, &[1, 2, 100, 101, 102, 103]);
}

/// The mon has heard that the primary is full: another one that has everything leads, and clients wait for nothing.
#[test]
fn what_a_full_primary_misses_is_read_from_another() {
    for full_before in [true, false] {
        let mut c = cluster(4, &[64 * MIB; 3]);
        [0, 2].iter().for_each(|osd| c.on_mon(|m| m.set_affinity(OsdId(*osd), 0)));
        c.wait_clean();
        c.off[1] = true;
        c.crash(1);
        c.run_until(PATIENCE, |c| c.mon.borrow().map.is_down(OsdId(1)));
        let missed = [100, 101, 102, 103];
        let tids = missed.map(|i| write(&mut c, i));
        tids.into_iter().for_each(|tid| assert_eq!(c.wait_for(tid).result, 0));
        c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
        if full_before {
            c.on_mon(|m| m.set_full(OsdId(1), true));
            c.start(1);
        } else {
            start_to_lead(&mut c);
            c.on_mon(|m| m.set_full(OsdId(1), true));
        }
        let command = json!({ "prefix": "injectfull", "type": "failsafe" });
        c.run_until(PATIENCE, |c| c.mon.borrow().map.is_up(OsdId(1)));
        assert_eq!(tell(&mut c, 1, &command).0, 0);
        for i in missed {
            let got = c.call(name(i), vec![read(0, 0)], false);
            assert!(got.result == 0 && output(&got, 0) == content(i), "object {i}");
        }
        let command = json!({ "prefix": "injectfull", "type": "none" });
        assert_eq!(tell(&mut c, 1, &command).0, 0);
        c.on_mon(|m| m.set_full(OsdId(1), false));
        c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
        c.wait_clean();
        assert_whole(&mut c, &missed);
        let leads = |s: &peer::PgStat| s.acting.first() == Some(&OsdId(1));
        c.run_until(PATIENCE, |c| c.mon.borrow().stats.values().all(leads));
    }
}

const LONG_BYTES: usize = 4 * MIB as usize;

/// osd.1, which leads all PGs, has room for 2.5 MiB and is away. How many objects it has: those of [`name`].
fn nearly_full_and_away(pg_num: u32) -> (Cluster, usize) {
    let options = [("osd_failsafe_full_ratio", "1"), ("osd_recovery_max_chunk", "524288")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut c = Cluster::with_disks(3, &[256 * MIB, 64 * MIB, 256 * MIB], &Options::from(options));
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 1));
    c.on_mon(|m| m.create_pool(2, "other", 3, 2, pg_num));
    [0, 2].iter().for_each(|osd| c.on_mon(|m| m.set_affinity(OsdId(*osd), 0)));
    c.wait_clean();
    // What is pulled may take a quarter of the reserve.
    let room = |c: &mut Cluster| {
        let usage = ask(c, 1, "store usage");
        let bytes = |name: &str| usage[name].as_u64().expect("a number");
        bytes("available_bytes") + bytes("reserve_bytes") / 4
    };
    let mut objects = 0;
    while room(&mut c) > 5 * MIB / 2 {
        let done = c.call(name(objects), vec![write_full(&[1; LARGE_BYTES])], true);
        assert_eq!(done.result, 0);
        objects += 1;
    }
    c.off[1] = true;
    c.crash(1);
    c.run_until(PATIENCE, |c| c.mon.borrow().map.is_down(OsdId(1)));
    (c, objects)
}

fn start_to_lead(c: &mut Cluster) {
    c.start(1);
    c.run_until(PATIENCE, |c| {
        let mon = c.mon.borrow();
        let leads = |s: &peer::PgStat| s.acting.first() == Some(&OsdId(1));
        mon.stats.values().all(|s| StateBits(s.state).has(StateBits::ACTIVE) && leads(s))
    });
}

/// A part of it always had room, which the parts before it took: it was pulled again and again. Then nothing else was
/// pulled any more.
#[test]
fn a_full_primary_does_not_pull_again_and_again_what_comes_in_parts() {
    let (mut c, objects) = nearly_full_and_away(1);
    let put = |c: &mut Cluster, o: &HObject, bytes: usize| {
        assert_eq!(c.call(o.clone(), vec![write_full(&vec![2; bytes])], true).result, 0);
    };
    let [long, short, in_turn] = ["long", "short", "in turn"].map(|name| object(1, name));
    put(&mut c, &long, LONG_BYTES);
    put(&mut c, &short, SMALL_BYTES);
    put(&mut c, &in_turn, SMALL_BYTES);
    c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
    take_hits();
    start_to_lead(&mut c);
    let asked = c.on_client(|cl| cl.request(long, vec![read(0, 0)], false));
    c.run_until(PATIENCE, |_| hits_of(Probe::PullRefused) > 0);
    assert!(output(&c.call(short, vec![read(0, 0)], false), 0)[..] == [2; SMALL_BYTES]);
    c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
    let pgid = c.client.borrow().pg_of(&in_turn);
    c.run_until(PATIENCE, |c| {
        let stat = &c.mon.borrow().stats[&pgid];
        stat.degraded == 1 && StateBits(stat.state).has(StateBits::RECOVERY_TOOFULL)
    });
    c.pass(STANDSTILL);
    assert!(!c.client.borrow().done.contains_key(&asked), "there is no space for it");
    let refused = hits_of(Probe::PullRefused);
    assert!((1..=2).contains(&refused), "{refused} times");
    for i in 0..objects / 2 {
        assert_eq!(c.call(name(i), vec![remove()], true).result, 0);
    }
    let got = c.wait_for(asked);
    assert!(got.result == 0 && output(&got, 0)[..] == [2; LONG_BYTES]);
    c.wait_clean();
}

/// So many do not fit that nothing else is tried; then nobody wants them any more.
#[test]
fn what_did_not_fit_is_forgotten_with_its_pool() {
    const LONG_OF_EACH_PG: usize = 5;
    let (mut c, _) = nearly_full_and_away(4);
    let (mut long_ones, mut of_pg) = (Vec::new(), BTreeMap::<_, usize>::new());
    for long in (0..).map(|i| object(2, &format!("long-{i}"))) {
        // A copy that misses more than ten does not lead.
        let count = of_pg.entry(c.client.borrow().pg_of(&long)).or_default();
        *count += 1;
        if *count <= LONG_OF_EACH_PG {
            assert_eq!(c.call(long.clone(), vec![write_full(&[2; LONG_BYTES])], true).result, 0);
            long_ones.push(long);
        } else if of_pg.len() == 4 && of_pg.values().all(|count| *count >= LONG_OF_EACH_PG) {
            break;
        }
    }
    let short = object(1, "short");
    let done = c.call(short.clone(), vec![write_full(&[2; SMALL_BYTES])], true);
    assert_eq!(done.result, 0);
    let pgid = c.client.borrow().pg_of(&short);
    c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
    take_hits();
    start_to_lead(&mut c);
    // What is waited for comes first.
    for long in long_ones {
        c.on_client(|cl| cl.request(long, vec![read(0, 0)], false));
    }
    c.run_until(PATIENCE, |_| hits_of(Probe::PullRefused) >= 16);
    c.on_mon(|m| m.set_flags(OsdMapFlags::NONE));
    // How long they are shows little by little; then nothing is pulled again.
    let (mut refused, mut since) = (0, c.world.now());
    c.run_until(2 * PATIENCE, |c| {
        let (count, now) = (hits_of(Probe::PullRefused), c.world.now());
        if refused != count {
            (refused, since) = (count, now);
        }
        now - since > STANDSTILL
    });
    assert_eq!(c.mon.borrow().stats[&pgid].degraded, 1, "after {refused} that did not fit");
    c.on_mon(|m| m.delete_pool(2));
    c.wait_clean();
}

/// What waits in the PGs is added up only where space is scarce: each copy of each write would.
#[test]
fn on_disks_with_space_nobody_counts_what_waits() {
    let mut c = Cluster::with_disks(49, &[4 << 30; 2], &Options::default());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 8));
    c.wait_clean();
    for i in 0..20 {
        let data = vec![i; 64 << 10];
        assert_eq!(c.call(object(1, &format!("o{i}")), vec![write_full(&data)], true).result, 0);
    }
    // So that reads go to the disk, and are under way while writes come.
    for osd in [0, 1] {
        c.crash(osd);
        c.start(osd);
    }
    c.wait_clean();
    take_hits();
    for round in 0..20 {
        c.on_client(|client| {
            client.request(object(1, &format!("o{round}")), vec![read(0, 64 << 10)], false);
            client.request(object(1, &format!("n{round}")), vec![write_full(b"new")], true);
        });
        c.run_until(PATIENCE, |c| c.client.borrow().outstanding() == 0);
    }
    assert_eq!(hits_of(Probe::QueuesSummed), 0);
}

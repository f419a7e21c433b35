//! COPY_FROM where the source is near: the object itself, or nothing at all; or where it cannot be had now.

use crate::admin::ask;
use crate::basic::{read, with_pool, write_full};
use crate::client::object;
use crate::cluster::{Cluster, output};
use crate::repair;
use crate::unfound::{give_up_clone, lose_clone};
use maps::OsdMapFlags;
use pg::StateBits;
use serde_json::Value;
use std::time::Duration;
use types::testing::{Probe, hits_of};
use types::{ByteString, Errno, OsdId, PoolId, SnapId};
use wire::msg::op::{CopyFrom, Extent, OpCode, WriteSame};
use wire::msg::op_data::{CopyFromIn, StatOut};
use wire::msg::{MOsdOpReply, ObjectLocator, OsdOp, SnapContext, flags};

pub fn copy_from(pool: i64, name: &str, snap: SnapId) -> OsdOp {
    let locator = ObjectLocator { pool: PoolId(pool), ..ObjectLocator::default() };
    let input = CopyFromIn { source: ByteString::from(name), locator };
    let args = CopyFrom { snapid: snap.0, ..CopyFrom::default() };
    OsdOp::new(OpCode::COPY_FROM, args).with_indata(denc::encode(&input))
}

fn write(c: &mut Cluster, name: &str, op: OsdOp, snaps: &[SnapId]) -> i32 {
    let seq = snaps.first().copied().unwrap_or_default();
    let snapc = SnapContext { seq, snaps: snaps.into() };
    c.write_under(object(1, name), vec![op], snapc, 0).result
}

#[test]
fn an_object_becomes_a_snapshot_of_itself() {
    let mut c = with_pool(1, 3, 3);
    assert_eq!(write(&mut c, "a", write_full(b"old"), &[]), 0);
    assert_eq!(write(&mut c, "a", write_full(b"new"), &[SnapId(1)]), 0);
    assert_eq!(write(&mut c, "a", copy_from(1, "a", SnapId(1)), &[SnapId(1)]), 0);
    let got = c.call(object(1, "a"), vec![read(0, 0)], false);
    assert_eq!(output(&got, 0), b"old"[..]);
    // Snapshot 2 has no clone: it shows the head, and to copy that changes nothing.
    assert_eq!(write(&mut c, "a", copy_from(1, "a", SnapId(2)), &[SnapId(1)]), 0);
    let got = c.call(object(1, "a"), vec![read(0, 0)], false);
    assert_eq!(output(&got, 0), b"old"[..]);
    assert_eq!(write(&mut c, "a", copy_from(1, "a", SnapId::HEAD), &[]), -Errno::EINVAL.0);
}

/// The answer is there before the request has been put aside to wait for it.
#[test]
fn a_source_in_no_pool_holds_nobody_up() {
    let mut c = with_pool(2, 3, 3);
    let ops = [copy_from(99, "x", SnapId::HEAD), write_full(b"later"), read(0, 0)];
    let tids = ops.map(|op| {
        let is_write = op.code.is_write();
        c.on_client(|c| c.request(object(1, "a"), vec![op], is_write))
    });
    let [copied, written, got] = tids.map(|tid| c.wait_for(tid));
    assert_eq!((copied.result, written.result), (-Errno::ENOENT.0, 0));
    assert_eq!(output(&got, 0), b"later"[..]);
}

/// The primary of the source was away when that was written, and has not brought it yet.
#[test]
fn a_source_that_its_primary_misses_is_brought_first() {
    let mut c = with_pool(6, 3, 3);
    assert_eq!(write(&mut c, "s", write_full(b"old"), &[]), 0);
    let (primary, pgid) = {
        let client = c.client.borrow();
        (client.primary_of(&object(1, "s")), client.pg_of(&object(1, "s")))
    };
    let away = primary.0 as usize;
    c.off[away] = true;
    c.crash(away);
    c.run_until(Duration::from_secs(10), |c| c.mon.borrow().map.is_down(primary));
    let beside = (0..).map(|i| format!("n{i}"));
    let new = beside.into_iter().find(|n| c.client.borrow().pg_of(&object(1, n)) == pgid);
    let new = new.expect("some name falls there");
    for name in ["s", &new] {
        assert_eq!(write(&mut c, name, write_full(b"newer"), &[]), 0);
    }
    c.on_mon(|m| m.set_flags(OsdMapFlags::NORECOVER));
    c.start(away);
    c.run_until(Duration::from_secs(20), |c| {
        let (mon, client) = (c.mon.borrow(), c.client.borrow());
        let stat = &mon.stats[&pgid];
        let is_active = StateBits(stat.state).has(StateBits::ACTIVE) && stat.acting.len() == 3;
        is_active && client.map.pg_to_up_acting(pgid).acting_primary == Some(primary)
    });
    let waited = hits_of(Probe::MissingWaited);
    for (source, target) in [("s", "t"), (&new, "u")] {
        assert_eq!(write(&mut c, target, copy_from(1, source, SnapId::HEAD), &[]), 0);
        let got = c.call(object(1, target), vec![read(0, 0)], false);
        assert_eq!(output(&got, 0), b"newer"[..], "{target}");
    }
    assert!(hits_of(Probe::MissingWaited) >= waited + 2, "they were there already");
}

/// The clone is found damaged by one copy, and is on its way from elsewhere when the next one asks for it.
#[test]
fn a_source_that_is_being_repaired_holds_nobody_up() {
    let mut c = with_pool(7, 3, 3);
    assert_eq!(write(&mut c, "s", write_full(&repair::content(1)), &[]), 0);
    assert_eq!(write(&mut c, "s", write_full(b"new"), &[SnapId(1)]), 0);
    let primary = c.client.borrow().primary_of(&object(1, "s")).0 as usize;
    let slow = |c: &mut Cluster, times: u64| {
        for osd in (0..3).filter(|osd| *osd != primary) {
            let node = c.osds[osd];
            c.world.set_slow_disks(node, times);
        }
    };
    repair::damage(&mut c, primary, 1, 3);
    slow(&mut c, 1000);
    let copy = |c: &mut Cluster, target: &str| {
        let op = copy_from(1, "s", SnapId(1));
        c.on_client(|c| c.request(object(1, target), vec![op], true))
    };
    let damage_found = hits_of(Probe::DamageFound);
    let mut tids = vec![copy(&mut c, "t")];
    c.run_until(Duration::from_secs(5), |_| hits_of(Probe::DamageFound) > damage_found);
    tids.push(copy(&mut c, "u"));
    let epoch = c.mon.borrow().map.epoch;
    c.pass(Duration::from_millis(20));
    slow(&mut c, 1);
    for (tid, target) in tids.into_iter().zip(["t", "u"]) {
        assert_eq!(c.wait_for(tid).result, 0);
        repair::assert_reads(&mut c, &object(1, target), &repair::content(1));
    }
    assert_eq!(c.mon.borrow().map.epoch, epoch, "a new map made it be asked for again");
}

/// The source's other requests stood behind the one that copies.
#[test]
fn a_source_that_is_unfound_holds_nobody_up() {
    let (mut c, clone) = lose_clone(0);
    let head = clone.head();
    let source = copy_from(1, "a", clone.snap);
    let copied = c.on_client(|cl| cl.request(object(1, "t"), vec![source], true));
    let leads = c.client.borrow().primary_of(&head).0;
    let waiting = |c: &mut Cluster| {
        let shown = ask(c, leads, "dump_ops_in_flight");
        let ops = shown["ops"].as_array().expect("a list").clone();
        let is_read =
            |op: &&Value| op["description"].as_str().is_some_and(|d| d.contains("[stat]"));
        ops.iter().filter(is_read).count()
    };
    c.run_until(Duration::from_secs(10), |c| waiting(c) == 1);
    // None of these maps says anything of its PG.
    let epoch = c.mon.borrow().map.epoch.0;
    for i in 0..50 {
        c.on_mon(|m| m.set_flags([OsdMapFlags::NOSCRUB, OsdMapFlags::NONE][i % 2]));
        c.pass(Duration::from_millis(20));
    }
    assert!(c.client.borrow().map.epoch.0 >= epoch + 50);
    c.pass(Duration::from_secs(1));
    assert_eq!(waiting(&mut c), 1);
    assert_eq!(c.call(head.clone(), vec![write_full(b"third")], true).result, 0);
    assert_eq!(output(&c.call(head, vec![read(0, 0)], false), 0), b"third"[..]);
    assert!(!c.client.borrow().done.contains_key(&copied), "nobody has what is to be copied");
    give_up_clone(&mut c, &clone);
    assert_eq!(c.wait_for(copied).result, -Errno::ENOENT.0);
}

#[test]
fn a_copy_is_as_old_as_its_source() {
    let mut c = with_pool(3, 3, 3);
    let stat = || OsdOp::new(OpCode::STAT, Extent::default());
    let mtime = |reply: &MOsdOpReply, i| {
        denc::decode::<StatOut>(&output(reply, i)).expect("what STAT answers").mtime
    };
    assert_eq!(write(&mut c, "a", write_full(b"old"), &[]), 0);
    let source = c.call(object(1, "a"), vec![stat()], false);
    c.pass(std::time::Duration::from_secs(1));
    let ops = vec![copy_from(1, "a", SnapId::HEAD), stat()];
    let copied = c.write_under(object(1, "b"), ops, SnapContext::default(), flags::RETURNVEC);
    assert_eq!(mtime(&copied, 1), mtime(&source, 0));
    let later = c.call(object(1, "b"), vec![stat()], false);
    assert_eq!(mtime(&later, 0), mtime(&source, 0));
}

/// More requests wait for the source's PG than may. Nothing else comes to pass when it serves again: no map
/// is new then.
#[test]
fn a_source_whose_pg_has_no_room_to_wait_is_asked_for_again() {
    const WAITING: usize = 8192;
    // Memory for all of them.
    let options = [("osd_memory_target".to_owned(), "256M".to_owned())].into();
    let mut c = Cluster::new(4, 3, &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 1, 1));
    c.on_mon(|m| m.create_pool(2, "other", 3, 3, 1));
    c.wait_clean();
    assert_eq!(c.call(object(2, "s"), vec![write_full(b"source")], true).result, 0);
    let away = (0..3).find(|i| {
        let client = c.client.borrow();
        [1, 2].iter().all(|pool| client.primary_of(&object(*pool, "s")) != OsdId(*i))
    });
    let away = away.expect("two OSDs lead two PGs") as usize;
    c.off[away] = true;
    c.crash(away);
    c.run_until(Duration::from_secs(20), |c| c.mon.borrow().map.is_down(OsdId(away as i32)));
    c.on_client(|c| {
        c.know_no_backoffs();
        for _ in 0..WAITING {
            c.request(object(2, "s"), vec![read(0, 1)], false);
        }
    });
    c.pass(Duration::from_secs(1));
    let source = copy_from(2, "s", SnapId::HEAD);
    let tid = c.on_client(|c| c.request(object(1, "t"), vec![source], true));
    let refused = hits_of(Probe::CopyRefused);
    c.run_until(Duration::from_secs(5), |_| hits_of(Probe::CopyRefused) > refused);
    // It is active again as soon as it may be smaller.
    let epoch = c.mon.borrow().map.epoch;
    c.on_mon(|m| m.set_min_size(2, 1));
    c.run_until(Duration::from_secs(5), |c| c.client.borrow().done.contains_key(&tid));
    assert!(c.mon.borrow().map.epoch <= epoch.next().next(), "a new map made it be sent again");
    assert_eq!(c.wait_for(tid).result, 0);
    let got = c.call(object(1, "t"), vec![read(0, 0)], false);
    assert_eq!(output(&got, 0), b"source"[..]);
}

#[test]
fn what_is_repeated_has_a_bound() {
    let mut c = with_pool(5, 3, 3);
    let same = |times: u64| {
        let args = WriteSame { offset: 0, length: times << 12, data_length: 4 << 10 };
        OsdOp::new(OpCode::WRITESAME, args).with_indata(vec![3; 4 << 10])
    };
    assert_eq!(write(&mut c, "a", same(300), &[]), 0);
    let got = c.call(object(1, "a"), vec![read(0, 0)], false);
    assert_eq!(output(&got, 0), vec![3; 300 << 12]);
    // Three times the largest object, in one request.
    let ops = (0..3).map(|_| same(32 << 10)).collect();
    let refused = c.write_under(object(1, "a"), ops, SnapContext::default(), 0);
    assert_eq!(refused.result, -Errno::EFBIG.0);
}

//! Requests, objects and values that are too large for a transaction of some member's log.

use crate::basic::{read, write_full};
use crate::cluster::{Cluster, Options, output};
use crate::full::{cluster, lock, name};
use crate::scrub::scrub;
use std::time::Duration;
use types::testing::{Probe, hits_of, take_hits};
use types::{Errno, HObject, OsdId, SnapId};
use wire::msg::op::{Extent, OpCode};
use wire::msg::op_data::{Values, xattr_op};
use wire::msg::{OpArgs, OsdOp, SnapContext};

const MIB: u64 = 1 << 20;
const VALUE_BYTES: usize = 5_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// What the primary's log can just take is no more than what its replicas' can, which add something of
/// their own, or have smaller logs: those leave it out and are brought it.
#[test]
fn a_write_too_large_for_a_replicas_log_ends_nobody() {
    let omap = |bytes: usize| {
        let value = |n: usize| (format!("key{n}").into(), vec![7; VALUE_BYTES].into());
        let values: Values = (0..bytes / VALUE_BYTES).map(value).collect();
        OsdOp::new(OpCode::OMAPSETVALS, Extent::default()).with_indata(denc::encode(&values))
    };
    // Logs of 4 MiB, of which a transaction may have a quarter; one of 32 MiB.
    for (seed, disks) in [(41, [64 * MIB; 3]), (42, [512 * MIB, 64 * MIB, 64 * MIB])] {
        let mut c = cluster(seed, &disks);
        let mut taken = 0;
        let mut refused = 0;
        for i in 0..24 {
            // Around the limit of the small logs, and below that of the large one.
            let bytes = if i % 2 == 0 { 830_000 + i * 10_000 } else { 5_000_000 + i * 100_000 };
            let set = vec![omap(bytes)];
            match c.call(name(i), set, true).result {
                0 => taken += 1,
                r => {
                    assert_eq!(Errno(-r), Errno::EMSGSIZE);
                    refused += 1;
                }
            }
        }
        assert!(taken >= 4 && refused >= 4, "{taken} taken, {refused} refused");
        c.wait_clean();
    }
}

/// One that has a small log must be brought all values, one by one; attributes and the header come together.
#[test]
fn no_value_is_longer_than_what_every_log_takes() {
    let mut c = cluster(45, &[512 * MIB, 64 * MIB, 64 * MIB]);
    // They have told each other.
    c.pass(Duration::from_secs(10));
    let omap = |bytes: usize| {
        let values: Values = [("key".into(), vec![7; bytes].into())].into();
        OsdOp::new(OpCode::OMAPSETVALS, Extent::default()).with_indata(denc::encode(&values))
    };
    let header = |bytes: usize| {
        OsdOp::new(OpCode::OMAPSETHEADER, Extent::default()).with_indata(vec![8; bytes])
    };
    let leads = |o: &HObject| c.client.borrow().primary_of(o) == OsdId(0);
    let led: Vec<HObject> = (0..100).map(name).filter(leads).take(2).collect();
    // Logs of 4 MiB take 896 KiB at once.
    for op in [omap(700 << 10), header(700 << 10), omap(2 << 20), header(2 << 20)] {
        let result = c.call(led[0].clone(), vec![op], true).result;
        assert_eq!(Errno(-result), Errno::EMSGSIZE);
    }
    // Each is let in, and both are more than a transaction may be.
    c.off[1] = true;
    c.crash(1);
    c.run_until(PATIENCE, |c| c.mon.borrow().map.is_down(OsdId(1)));
    for op in [omap(600 << 10), header(600 << 10)] {
        assert_eq!(c.call(led[1].clone(), vec![op], true).result, 0);
    }
    c.start(1);
    c.wait_clean();
}

/// A method adds what comes to what is there: many short inputs make a long value.
#[test]
fn no_method_makes_a_value_longer_than_every_log_takes() {
    let mut c = cluster(46, &[64 * MIB; 3]);
    let mut locked = 0;
    let refused = loop {
        match c.call(name(0), vec![lock(locked, 100 << 10)], true).result {
            0 => locked += 1,
            why => break Errno(-why),
        }
    };
    // Three quarters of the 896 KiB that the logs take at once.
    assert_eq!((locked, refused), (6, Errno::EMSGSIZE));
}

/// What was written of a large object while a copy was away, in many small pieces, is more than its log takes at
/// once: the object is brought whole.
#[test]
fn many_pieces_of_a_large_object_end_nobody() {
    const PIECE: u64 = 8 << 10;
    const OBJECT: u64 = 16 * MIB;
    let options = Options::from([("osd_recovery_read_cost".into(), "0".into())]);
    let mut c = Cluster::with_disks(44, &[512 * MIB; 2], &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
    c.wait_clean();
    let data = vec![1; OBJECT as usize];
    assert_eq!(c.call(name(0), vec![write_full(&data)], true).result, 0);
    c.off[1] = true;
    c.crash(1);
    let at: Vec<u64> = (0..OBJECT).step_by(3 * PIECE as usize / 2).collect();
    for some in at.chunks(100) {
        let piece = |&offset: &u64| {
            let extent = Extent { offset, length: PIECE, ..Extent::default() };
            OsdOp::new(OpCode::WRITE, extent).with_indata(vec![2_u8; PIECE as usize])
        };
        assert_eq!(c.call(name(0), some.iter().map(piece).collect(), true).result, 0);
    }
    c.off[1] = false;
    c.start(1);
    c.wait_clean();
    c.off[0] = true;
    c.crash(0);
    let got = c.call(name(0), vec![read(0, OBJECT)], false);
    let wrong = output(&got, 0).chunks(3 * PIECE as usize / 2).position(|part| {
        part.iter().enumerate().any(|(i, b)| *b != if i < PIECE as usize { 2 } else { 1 })
    });
    assert_eq!(wrong, None);
}

fn set_attr(i: usize, bytes: usize) -> OsdOp {
    xattr_op(OpCode::SETXATTR, format!("attr{i:02}").as_bytes(), &vec![i as u8; bytes], 0, 0)
}

/// Attributes of an object are let in one by one; together they are several times what the log of a copy that was
/// away takes at once. Others push it, and it pulls.
#[test]
fn attributes_of_any_sum_end_nobody() {
    let mut c = cluster(46, &[512 * MIB, 64 * MIB, 64 * MIB]);
    // They have told each other.
    c.pass(Duration::from_secs(10));
    let leads = |o: &HObject| c.client.borrow().primary_of(o) == OsdId(1);
    let target = (0..100).map(name).find(leads).expect("one that osd.1 leads");
    let few = [write_full(b"data"), set_attr(99, 100)].to_vec();
    assert_eq!(c.call(target.clone(), few, true).result, 0);
    for away in [2, 1] {
        take_hits();
        c.off[away] = true;
        c.crash(away);
        c.run_until(PATIENCE, |c| c.mon.borrow().map.is_down(OsdId(away as i32)));
        for i in 0..30 {
            // 600 KiB alone is as much as may be.
            let bytes = if i == 7 { 600 << 10 } else { (100 << 10) + away };
            assert_eq!(c.call(target.clone(), vec![set_attr(i, bytes)], true).result, 0);
        }
        let remove = xattr_op(OpCode::RMXATTR, b"attr99", b"", 0, 0);
        assert_eq!(c.call(target.clone(), vec![remove], true).result, 0);
        c.start(away);
        c.wait_clean();
        assert!(hits_of(Probe::AttrsDivided) > 3);
    }
    // What osd.1 pulled; the others' copies are the same.
    let got = c.call(target.clone(), vec![OsdOp::new(OpCode::GETXATTRS, OpArgs::default())], false);
    let attrs: Values = denc::decode(&output(&got, 0)).expect("attributes");
    assert_eq!(attrs.len(), 30);
    for (i, value) in attrs.values().enumerate() {
        assert!(value.iter().all(|b| *b == i as u8));
        assert_eq!(value.len(), if i == 7 { 600 << 10 } else { (100 << 10) + 1 });
    }
    let pgid = c.client.borrow().pg_of(&target);
    let record = scrub(&mut c, pgid, false, false);
    assert_eq!((record.errors(), record.changes > 0), (0, true));
}

/// Short writes take whole blocks of a log, and a clone all rows of its object: a replica whose log is too small
/// for that is brought the object.
#[test]
fn what_becomes_too_large_for_a_replicas_log_ends_nobody() {
    let mut c = cluster(47, &[512 * MIB, 64 * MIB, 64 * MIB]);
    let leads = |o: &HObject| c.client.borrow().primary_of(o) == OsdId(0);
    let led: Vec<HObject> = (0..100).map(name).filter(leads).take(2).collect();
    let piece = |i: usize| {
        let extent = Extent { offset: i as u64 * 20_000 + 1, length: 100, ..Extent::default() };
        OsdOp::new(OpCode::WRITE, extent).with_indata(vec![i as u8; 100])
    };
    // 40 KB, in 400 blocks.
    let pieces = (0..400).map(piece).collect();
    assert_eq!(c.call(led[0].clone(), pieces, true).result, 0);
    c.wait_clean();
    for i in 0..5 {
        let value = |n: usize| (format!("key{i}.{n:03}").into(), vec![7; VALUE_BYTES].into());
        let values: Values = (0..100).map(value).collect();
        let set = OsdOp::new(OpCode::OMAPSETVALS, Extent::default());
        let set = vec![set.with_indata(denc::encode(&values))];
        assert_eq!(c.call(led[1].clone(), set, true).result, 0);
    }
    let snapc = SnapContext { seq: SnapId(1), snaps: vec![SnapId(1)].into() };
    let reply = c.write_under(led[1].clone(), vec![write_full(b"newer")], snapc, 0);
    assert_eq!(reply.result, 0);
    c.wait_clean();
    c.off[0] = true;
    c.crash(0);
    let got = c.call(led[0].clone(), vec![read(399 * 20_000 + 1, 100)], false);
    assert_eq!(output(&got, 0), [399_usize as u8; 100][..]);
    assert_eq!(output(&c.call(led[1].clone(), vec![read(0, 0)], false), 0), b"newer"[..]);
}

/// They are more than a log takes at once: 20 MiB, in pieces that go through the log when they come alone.
#[test]
fn a_request_of_many_short_writes_is_taken() {
    const PIECE: usize = 20 << 10;
    let mut c = Cluster::with_disks(48, &[512 * MIB; 2], &Options::default());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
    c.wait_clean();
    let piece = |i: usize| {
        let offset = (i * 2 * PIECE) as u64;
        let extent = Extent { offset, length: PIECE as u64, ..Extent::default() };
        OsdOp::new(OpCode::WRITE, extent).with_indata(vec![i as u8 | 1; PIECE])
    };
    assert_eq!(c.call(name(0), (0..1024).map(piece).collect(), true).result, 0);
    c.wait_clean();
    for off in [0, 1] {
        c.start(1 - off);
        c.wait_clean();
        c.off[off] = true;
        c.crash(off);
        for i in [0, 1, 500, 1023] {
            let got = c.call(name(0), vec![read((i * 2 * PIECE) as u64, 2 * PIECE as u64)], false);
            let got = output(&got, 0);
            assert!(got[..PIECE].iter().all(|b| *b == i as u8 | 1), "piece {i}");
            assert!(got[PIECE..].iter().all(|b| *b == 0), "behind piece {i}");
        }
    }
}

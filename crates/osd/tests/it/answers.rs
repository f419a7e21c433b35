//! Answers to odd requests, each as real Ceph 16.2.15 gives it (found with `bench/beside`).

use crate::basic::{read, with_pool, write_full};
use crate::client::object;
use crate::cluster::{Cluster, output};
use std::time::Duration;
use types::testing::{Probe, hits_of, take_hits};
use types::{Errno, HObject, SnapId};
use wire::msg::op::{Checksum, Extent, Pgls, Snap, Watch, WriteSame, checksum_kind, watch_op};
use wire::msg::op_data::{ListWatchersOut, StatOut, xattr_op};
use wire::msg::{MOsdOpReply, OpCode, OsdOp, SnapContext, flags};

fn extent(code: OpCode, offset: u64, length: u64) -> OsdOp {
    OsdOp::new(code, Extent { offset, length, ..Extent::default() })
}

fn write_at(offset: u64, data: &'static [u8]) -> OsdOp {
    extent(OpCode::WRITE, offset, data.len() as u64).with_indata(data)
}

/// A write that knows of snapshots up to `seq`.
fn write(c: &mut Cluster, ops: Vec<OsdOp>, seq: u64, more: u32) -> MOsdOpReply {
    let snaps = (1..=seq).rev().map(SnapId).collect();
    let snapc = SnapContext { seq: SnapId(seq), snaps };
    c.write_under(object(1, "a"), ops, snapc, more)
}

fn size(c: &mut Cluster) -> u64 {
    let got = c.call(object(1, "a"), vec![extent(OpCode::STAT, 0, 0)], false);
    denc::decode::<StatOut>(&output(&got, 0)).expect("a size").size
}

#[test]
fn a_rollback_sees_snapshots_as_they_were_before_the_request() {
    let mut c = with_pool(1, 3, 3);
    let rollback = |snap| OsdOp::new(OpCode::ROLLBACK, Snap { snapid: snap });
    assert_eq!(write(&mut c, vec![write_full(b"old")], 0, 0).result, 0);
    // The first operation makes the clone of snapshot 1; the second one takes back nothing.
    assert_eq!(write(&mut c, vec![write_full(b"newer"), rollback(1)], 1, 0).result, 0);
    assert_eq!(size(&mut c), 5);
    assert_eq!(write(&mut c, vec![write_full(b"newest"), rollback(1)], 1, 0).result, 0);
    assert_eq!(size(&mut c), 3);
    // The head is what snapshot 9 sees: what was deleted stays so.
    let delete = OsdOp::new(OpCode::DELETE, Extent::default());
    assert_eq!(write(&mut c, vec![delete, rollback(9)], 1, 0).result, 0);
    let got = c.call(object(1, "a"), vec![read(0, 0)], false);
    assert_eq!(got.result, -Errno::ENOENT.0);
}

/// It would take the object away from those who watch it.
#[test]
fn a_rollback_to_nothing_leaves_what_is_watched() {
    let mut c = with_pool(1, 3, 3);
    let rollback = || OsdOp::new(OpCode::ROLLBACK, Snap { snapid: 1 });
    let watch = |op| {
        OsdOp::new(OpCode::WATCH, Watch { cookie: 9, version: 0, op, generation: 0, timeout_s: 60 })
    };
    assert_eq!(write(&mut c, vec![write_full(b"later")], 2, 0).result, 0);
    assert_eq!(write(&mut c, vec![watch(watch_op::WATCH)], 2, 0).result, 0);
    assert_eq!(write(&mut c, vec![rollback()], 2, 0).result, -Errno::EBUSY.0);
    assert_eq!(size(&mut c), 5);
    assert_eq!(write(&mut c, vec![watch(watch_op::UNWATCH)], 2, 0).result, 0);
    assert_eq!(write(&mut c, vec![rollback()], 2, 0).result, 0);
    let got = c.call(object(1, "a"), vec![read(0, 0)], false);
    assert_eq!(got.result, -Errno::ENOENT.0);
}

/// What it alone held is trimmed; what the head shows it shows.
#[test]
fn a_removed_snapshot_shows_what_there_is_yet() {
    let mut c = with_pool(1, 3, 3);
    assert_eq!(write(&mut c, vec![write_full(b"first")], 0, 0).result, 0);
    c.on_mon(|m| m.remove_snap(1, SnapId(1)));
    let queued = |c: &mut Cluster| !c.mon.borrow().map.removed_snaps_queue.is_empty();
    c.run_until(Duration::from_secs(10), queued);
    let at_snap = HObject { snap: SnapId(1), ..object(1, "a") };
    let got = c.call(at_snap.clone(), vec![read(0, 0)], false);
    assert_eq!((got.result, output(&got, 0).as_ref()), (0, b"first".as_ref()));
    let rollback = OsdOp::new(OpCode::ROLLBACK, Snap { snapid: 1 });
    assert_eq!(write(&mut c, vec![rollback], 0, 0).result, 0);
    assert_eq!(size(&mut c), 5);
    // Such a snapshot gets no clone any more.
    assert_eq!(write(&mut c, vec![write_full(b"second")], 1, 0).result, 0);
    assert_eq!(c.call(at_snap, vec![read(0, 0)], false).result, -Errno::ENOENT.0);
}

#[test]
fn a_writer_behind_the_snapshots_is_told_if_it_asks() {
    let mut c = with_pool(2, 3, 3);
    assert_eq!(write(&mut c, vec![write_full(b"x")], 3, 0).result, 0);
    let late =
        |c: &mut Cluster, seq| write(c, vec![write_full(b"y")], seq, flags::ORDERSNAP).result;
    assert_eq!(late(&mut c, 2), -Errno::EOLDSNAPC.0);
    assert_eq!(late(&mut c, 3), 0);
    assert_eq!(write(&mut c, vec![write_full(b"y")], 2, 0).result, 0);
}

#[test]
fn what_a_request_makes_it_does_not_read() {
    let mut c = with_pool(3, 3, 3);
    for op in [read(0, 2), OsdOp::new(OpCode::GETXATTRS, Extent::default())] {
        let reply = write(&mut c, vec![write_full(b"new"), op], 0, flags::RETURNVEC);
        assert_eq!(reply.result, -Errno::ENOENT.0);
    }
    assert_eq!(write(&mut c, vec![write_full(b"old one")], 0, 0).result, 0);
    let ops = vec![extent(OpCode::TRUNCATE, 4, 0), read(0, 0)];
    let reply = write(&mut c, ops, 0, flags::RETURNVEC);
    assert_eq!(output(&reply, 1), b"old "[..]);
}

#[test]
fn each_operation_of_a_write_has_its_own_result() {
    let mut c = with_pool(4, 3, 3);
    let compare = xattr_op(OpCode::CMPXATTR, b"x", b"1", 1, 1);
    assert_eq!(write(&mut c, vec![xattr_op(OpCode::SETXATTR, b"x", b"1", 0, 0)], 0, 0).result, 0);
    let reply = write(&mut c, vec![compare, write_full(b"x")], 0, 0);
    let results: Vec<_> = reply.ops.iter().map(|op| op.rval).collect();
    assert_eq!((reply.result, &results[..]), (0, &[1, 0][..]));
}

#[test]
fn a_write_that_knows_no_truncation_stays_within_the_object() {
    let mut c = with_pool(5, 3, 3);
    assert_eq!(write(&mut c, vec![write_full(&[7; 100])], 0, 0).result, 0);
    // It comes before the truncation that it knows of, which makes the object longer, too.
    let args = Extent { offset: 0, length: 1, truncate_size: 120, truncate_seq: 2 };
    let known = OsdOp::new(OpCode::WRITE, args).with_indata(&b"x"[..]);
    assert_eq!(write(&mut c, vec![known], 0, 0).result, 0);
    assert_eq!(size(&mut c), 120);
    assert_eq!(write(&mut c, vec![write_at(119, b"abc")], 0, 0).result, 0);
    assert_eq!(size(&mut c), 120);
    let trim = OsdOp::new(OpCode::TRIMTRUNC, Extent { truncate_size: 50, ..Extent::default() });
    assert_eq!(write(&mut c, vec![trim], 0, 0).result, 0);
    assert_eq!(size(&mut c), 50);
}

/// Clients of CephFS write so to a new file, of which there may be an object already (`PrimaryLogPG::do_osd_ops`).
#[test]
fn a_truncation_to_no_size_is_none() {
    let mut c = with_pool(5, 3, 3);
    assert_eq!(write(&mut c, vec![extent(OpCode::CREATE, 0, 0)], 0, 0).result, 0);
    let none = |code, length| {
        let args = Extent { offset: 0, length, truncate_size: u64::MAX, truncate_seq: 1 };
        OsdOp::new(code, args)
    };
    let first = none(OpCode::WRITE, 3).with_indata(&b"abc"[..]);
    assert_eq!(write(&mut c, vec![first], 0, 0).result, 0);
    assert_eq!(size(&mut c), 3);
    assert_eq!(write(&mut c, vec![write_at(3, b"def")], 0, 0).result, 0);
    assert_eq!(size(&mut c), 6);
    let got = c.call(object(1, "a"), vec![none(OpCode::SPARSE_READ, 6)], false);
    assert_eq!(got.result, 0);
}

#[test]
fn odd_ranges() {
    let mut c = with_pool(6, 3, 3);
    let most = 128 << 20;
    assert_eq!(write(&mut c, vec![write_full(b"abcd")], 0, 0).result, 0);
    let too_big = [extent(OpCode::TRUNCATE, most, 0), extent(OpCode::TRUNCATE, 0, most + 1)];
    for op in too_big {
        assert_eq!(write(&mut c, vec![op], 0, 0).result, -Errno::EFBIG.0);
    }
    // Nothing is there to be zeroed, so the end does not matter.
    assert_eq!(write(&mut c, vec![extent(OpCode::ZERO, most - 1, 100)], 0, 0).result, 0);

    let mut ask = |op: OsdOp| c.call(object(1, "a"), vec![op], false);
    let sum = |offset, length, chunk_size| {
        let args = Checksum { offset, length, chunk_size, kind: checksum_kind::CRC32C };
        OsdOp::new(OpCode::CHECKSUM, args).with_indata(denc::encode(&0u32))
    };
    let beyond = ask(sum(4, 8, 8));
    assert_eq!((beyond.result, output(&beyond, 0).len()), (0, 0));
    assert_eq!(output(&ask(sum(0, 0, 0)), 0)[..4], [1, 0, 0, 0]);
    assert_eq!(ask(sum(0, 0, 4)).result, -Errno::EINVAL.0);
    assert_eq!(ask(sum(0, 8, 8)).result, -Errno::EINVAL.0);
    assert_eq!(ask(sum(1, 0, 0)).result, 0);
    // All that is given is compared, beyond what is spoken of with zeros.
    let compare = |length| extent(OpCode::CMPEXT, 0, length).with_indata(&b"abcd"[..]);
    assert_eq!(ask(compare(4)).result, 0);
    assert_eq!(ask(compare(1 << 40)).result, 0);
    assert_eq!(ask(compare(2)).result, -4095 - 2);
    assert_eq!(ask(extent(OpCode::LIST_SNAPS, 0, 0)).result, -Errno::EINVAL.0);
}

/// A few bytes that ask for gigabytes: in one answer, and in one message to each replica.
#[test]
fn what_one_request_may_come_to_is_bounded() {
    let mut c = with_pool(1, 3, 3);
    let most = (128 << 20) - 1;
    assert_eq!(write(&mut c, vec![write_full(b"a")], 0, 0).result, 0);
    let truncate = OsdOp::new(OpCode::TRUNCATE, Extent { offset: most, ..Extent::default() });
    assert_eq!(write(&mut c, vec![truncate], 0, 0).result, 0);
    let got = c.call(object(1, "a"), vec![read(0, 0)], false);
    assert_eq!((got.result, got.ops[0].len() as u64), (0, most));
    let got = c.call(object(1, "a"), vec![read(0, 0); 40], false);
    assert_eq!(got.result, -Errno::E2BIG.0);

    // And as much to be reckoned for few bytes.
    let sums = |chunk_size| {
        let length = (64 << 20) / u64::from(chunk_size) * u64::from(chunk_size);
        let kind = checksum_kind::CRC32C;
        let args = Checksum { offset: 0, length, chunk_size, kind };
        OsdOp::new(OpCode::CHECKSUM, args).with_indata(vec![0; 4])
    };
    for (chunk, result) in [(1, -Errno::E2BIG.0), (4096, 0)] {
        assert_eq!(c.call(object(1, "a"), vec![sums(chunk)], false).result, result);
    }
    assert_eq!(c.call(object(1, "a"), vec![sums(4096); 9], false).result, -Errno::E2BIG.0);
    let page = OsdOp::new(OpCode::PGNLS, Pgls { count: 1, start_epoch: 0 });
    let page = page.with_indata(denc::encode(&HObject::min()));
    for (pages, result) in [(17, -Errno::E2BIG.0), (16, 0)] {
        let pgid = c.client.borrow().pg_of(&object(1, "a"));
        let of_pg = HObject { hash: pgid.seed, ..object(1, "") };
        let ops = vec![page.clone(); pages];
        let listed =
            c.on_client(|cl| cl.request_with(of_pg, ops, flags::READ, SnapContext::default()));
        let got = c.wait_for(listed);
        // 1: that was all.
        assert_eq!(got.result.min(0), result);
    }
    let keys: Vec<Vec<u8>> = (0..1_000_000).map(|i| format!("{i:020}").into_bytes()).collect();
    let many = OsdOp::new(OpCode::OMAPGETVALSBYKEYS, Extent::default());
    let many = many.with_indata(denc::encode(&keys));
    assert_eq!(c.call(object(1, "a"), vec![many], false).result, -Errno::EMSGSIZE.0);

    let same = |length| {
        let args = WriteSame { offset: 0, length, data_length: 4096 };
        OsdOp::new(OpCode::WRITESAME, args).with_indata(vec![7; 4096])
    };
    assert_eq!(write(&mut c, vec![same(8 << 20), write_at(5, b"bytes")], 0, 0).result, 0);
    for ops in [vec![same(128 << 20); 2], vec![same(128 << 20), write_full(&vec![1; 20 << 20])]] {
        assert_eq!(write(&mut c, ops, 0, 0).result, -Errno::EMSGSIZE.0);
    }
    c.wait_clean();
}

/// Its clone serves more snapshots than there was room for: every write failed, for ever.
#[test]
fn what_was_not_written_for_thousands_of_snapshots_can_be_written() {
    let mut c = with_pool(1, 3, 3);
    assert_eq!(write(&mut c, vec![write_full(b"old")], 0, 0).result, 0);
    assert_eq!(write(&mut c, vec![write_full(b"newer")], 5000, 0).result, 0);
    for snap in [1, 2500, 5000] {
        let old = HObject { snap: SnapId(snap), ..object(1, "a") };
        let got = c.call(old, vec![read(0, 0)], false);
        assert_eq!((got.result, &output(&got, 0)[..]), (0, &b"old"[..]));
    }
    c.wait_clean();
}

/// There is room for hundreds of them, and the next one hears why it has none; the object is written as ever.
#[test]
fn watchers_that_are_too_many_are_told_so() {
    let mut c = with_pool(1, 3, 3);
    assert_eq!(write(&mut c, vec![write_full(b"old")], 0, 0).result, 0);
    let watch = |cookie: u64, op| {
        let watch = Watch { cookie, version: 0, op, generation: 0, timeout_s: 600 };
        OsdOp::new(OpCode::WATCH, watch)
    };
    // As large as addresses of a client's memory.
    let cookie = |i: u64| 94_000_000_000_000 + i;
    let refused = (0..2000).find(|i| {
        let result = write(&mut c, vec![watch(cookie(*i), watch_op::WATCH)], 0, 0).result;
        assert!(result == 0 || result == -Errno::EUSERS.0, "watch {i}: {result}");
        result < 0
    });
    let room = refused.expect("not any number of them");
    assert!(room > 500, "{room}");
    assert_eq!(write(&mut c, vec![write_full(b"newer")], 900, 0).result, 0);
    assert_eq!(write(&mut c, vec![watch(cookie(9), watch_op::UNWATCH)], 900, 0).result, 0);
    assert_eq!(write(&mut c, vec![watch(cookie(room), watch_op::WATCH)], 900, 0).result, 0);
    let primary = c.client.borrow().primary_of(&object(1, "a")).0 as usize;
    c.off[primary] = true;
    c.crash(primary);
    let list = OsdOp::new(OpCode::LIST_WATCHERS, Extent::default());
    let got = c.call(object(1, "a"), vec![list], false);
    let listed: ListWatchersOut = denc::decode(&output(&got, 0)).expect("watchers");
    let listed: Vec<u64> = listed.watchers.iter().map(|w| w.cookie).collect();
    let wanted: Vec<u64> = (0..=room).filter(|i| *i != 9).map(cookie).collect();
    assert_eq!(listed, wanted);
}

/// librbd's deep copy writes each piece of an object by an operation of its own, however many they are.
#[test]
fn a_request_may_have_as_many_operations_as_its_count_can_tell() {
    let mut c = with_pool(1, 3, 3);
    let o = object(1, "pieces");
    let pieces = u64::from(u16::MAX);
    let written = c.call(o.clone(), (0..pieces).map(|i| write_at(2 * i, b"x")).collect(), true);
    assert_eq!(written.result, 0);
    let got = c.call(o, (0..pieces).map(|i| read(2 * i, 1)).collect(), false);
    assert_eq!((got.result, got.ops.len() as u64), (0, pieces));
    assert!((0..got.ops.len()).all(|i| output(&got, i)[..] == *b"x"));
}

/// Each of them alone is looked for again when the one before has been read.
#[test]
fn what_many_operations_lack_is_fetched_together() {
    const PIECE_BYTES: u64 = 512;
    const PIECES: u64 = 2048;
    let mut c = with_pool(2, 1, 1);
    let o = object(1, "pieces");
    let data: Vec<u8> = (0..PIECES * PIECE_BYTES).map(|i| (i / PIECE_BYTES) as u8).collect();
    assert_eq!(c.call(o.clone(), vec![write_full(&data)], true).result, 0);
    // Nothing of it is in memory.
    c.crash(0);
    c.start(0);
    c.wait_clean();
    take_hits();
    let reads = (0..PIECES).map(|i| read(i * PIECE_BYTES, PIECE_BYTES)).collect();
    let got = c.call(o, reads, false);
    assert_eq!(got.result, 0);
    let pieces = data.chunks(PIECE_BYTES as usize).enumerate();
    pieces.for_each(|(i, piece)| assert!(output(&got, i) == piece, "piece {i}"));
    let missed = hits_of(Probe::StoreMissed);
    assert!((1..5).contains(&missed), "it was begun anew {missed} times");
}

//! COPY_FROM where the source is near: the object itself, or nothing at all.

use crate::basic::{read, with_pool, write_full};
use crate::client::object;
use crate::cluster::{Cluster, output};
use types::{ByteString, Errno, PoolId, SnapId};
use wire::msg::op::{CopyFrom, Extent, OpCode};
use wire::msg::op_data::{CopyFromIn, StatOut};
use wire::msg::{MOsdOpReply, ObjectLocator, OsdOp, SnapContext, flags};

fn copy_from(pool: i64, name: &str, snap: SnapId) -> OsdOp {
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

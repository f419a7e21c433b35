//! Our own client against the cluster.

use super::cluster::{is_foreign, pattern, shared};
use client::{ClientError, Object, ObjectOp, OpReply, Outcome};
use loligo::SyncClient;
use std::collections::BTreeMap;
use types::{ByteString, Errno, PoolId, SnapId};
use wire::msg::op::{Extent, Xattr};
use wire::msg::op_data::Keys;
use wire::msg::{OpArgs, OpCode, OsdOp, SnapContext};

fn errno(result: Result<OpReply, ClientError>) -> Errno {
    result.expect_err("it fails").errno
}

/// The next event of a request or watch.
fn event(client: &mut SyncClient, id: client::RequestId) -> Outcome {
    client.wait(id).unwrap()
}

#[test]
fn objects_are_written_read_and_compared() {
    let pool = shared().pool("own-objects");
    let mut c = pool.cluster.client();
    let id = c.pool(&pool.name).unwrap();
    let x = || ObjectOp::new(Object::new(id, "x"));
    let data = pattern(300_000, 5);
    let first = c.op(x().create(true).write_full(data.clone()).set_xattr("k", b"v")).unwrap();
    let reply = c.op(x().read(0, 0).stat().get_xattrs()).unwrap();
    assert!(reply.bytes(0).unwrap() == data);
    assert_eq!(reply.stat(1).unwrap().size, 300_000);
    assert_eq!(reply.values(2).unwrap()[&ByteString::from("k")], "v");
    assert_eq!(reply.user_version, first.user_version);
    assert_eq!(errno(c.op(x().create(true))), Errno::EEXIST);
    let sum = c.op(x().checksum_crc32c(0, 300_000, 100_000, u32::MAX)).unwrap();
    let expected: Vec<u64> =
        data.chunks(100_000).map(|c| u64::from(denc::crc32c(u32::MAX, c))).collect();
    assert_eq!(sum.checksums(0).unwrap(), expected);

    let error = c.op(x().compare(0, &b"not this"[..]).write(0, "never")).unwrap_err();
    assert_eq!(error.mismatch_offset(), Some(0));
    assert_eq!(errno(c.op(x().assert_version(first.user_version + 7).stat())), Errno::EOVERFLOW);
    c.op(x().zero(1000, 200_000).truncate(250_000).append("end")).unwrap();
    let sparse = c.op(x().sparse_read(0, 300_000)).unwrap().sparse(0).unwrap();
    let covered: u64 = sparse.extents.map.values().sum();
    assert_eq!(covered, sparse.data.len() as u64);
    assert!(c.get(Object::new(id, "x")).unwrap().ends_with(b"end"));
    c.op(x().write_same(0, 8, "ab")).unwrap();
    assert_eq!(c.op(x().read(0, 10)).unwrap().bytes(0).unwrap()[..8], b"abababab"[..]);
    c.op(x().remove()).unwrap();
    assert_eq!(errno(c.op(x().stat())), Errno::ENOENT);
    // One operation may fail without the others.
    let reply = c.op(x().create(true).may_fail().set_xattr("again", b"")).unwrap();
    assert_eq!(reply.ops.len(), 2);
    c.close().unwrap();
}

#[test]
fn omap_is_read_in_pages() {
    let pool = shared().pool("own-omap");
    let mut c = pool.cluster.client();
    let id = c.pool(&pool.name).unwrap();
    let x = || ObjectOp::new(Object::new(id, "x"));
    let values = (0..50).map(|i| (ByteString::from(format!("k{i:02}")), format!("{i}").into()));
    let values: BTreeMap<ByteString, bytes::Bytes> = values.collect();
    c.op(x().set_omap(&values).set_omap_header("header")).unwrap();
    let page = c.op(x().omap_values("k09", "k", 5).omap_header().omap_keys("k47", 10)).unwrap();
    let out = page.omap_values(0).unwrap();
    assert_eq!((out.values.len(), out.more), (5, true));
    assert_eq!(out.values.keys().next().unwrap().to_string(), "k10");
    assert_eq!(page.bytes(1).unwrap(), "header");
    assert_eq!(page.omap_keys(2).unwrap().keys.len(), 2);
    let some: Keys = ["k03", "nope"].into_iter().map(ByteString::from).collect();
    let found = c.op(x().omap_values_of(&some)).unwrap().values(0).unwrap();
    assert_eq!((found.len(), &found[&ByteString::from("k03")][..]), (1, &b"3"[..]));
    c.op(x().remove_omap_keys(&some).remove_omap_range("k10", "k40")).unwrap();
    let left = c.op(x().omap_keys("", 100)).unwrap().omap_keys(0).unwrap();
    assert_eq!(left.keys.len(), 50 - 1 - 30);
    c.op(x().clear_omap()).unwrap();
    assert!(c.op(x().omap_keys("", 100)).unwrap().omap_keys(0).unwrap().keys.is_empty());
    c.close().unwrap();
}

#[test]
fn own_snapshots_keep_what_was() {
    let pool = shared().pool("own-snaps");
    let mut c = pool.cluster.client();
    let id = c.pool(&pool.name).unwrap();
    let x = || ObjectOp::new(Object::new(id, "x"));
    c.op(x().write_full("first")).unwrap();
    let make = c.call(move |now, c| c.create_own_snap(now, id)).unwrap();
    let Outcome::PoolOp(Ok(Some(snap))) = event(&mut c, make) else { panic!() };
    let snapc = SnapContext { seq: SnapId(snap), snaps: [SnapId(snap)].into_iter().collect() };
    c.op(x().write_full("second").with_snaps(snapc.clone())).unwrap();
    let then = c.op(x().read(0, 0).at_snap(SnapId(snap))).unwrap();
    assert_eq!(then.bytes(0).unwrap(), "first");
    let clones = c.op(x().list_snaps()).unwrap().snaps(0).unwrap();
    assert_eq!((clones.clones.len(), clones.clones[0].size), (2, 5));
    c.op(x().rollback(SnapId(snap)).with_snaps(snapc)).unwrap();
    assert_eq!(c.get(Object::new(id, "x")).unwrap(), "first");
    let drop = c.call(move |now, c| c.delete_own_snap(now, id, SnapId(snap))).unwrap();
    assert!(matches!(event(&mut c, drop), Outcome::PoolOp(Ok(None))));
    c.close().unwrap();
}

#[test]
fn a_watch_hears_what_another_client_says() {
    let pool = shared().pool("own-watch");
    let (mut watcher, mut notifier) = (pool.cluster.client(), pool.cluster.client());
    let id = watcher.pool(&pool.name).unwrap();
    notifier.pool(&pool.name).unwrap();
    let bell = move || Object::new(id, "bell");
    watcher.put(bell(), "").unwrap();
    let watch = watcher.call(move |now, c| c.watch(now, bell(), 0)).unwrap();
    assert!(matches!(event(&mut watcher, watch), Outcome::Watching(Ok(()))));
    let listed = watcher.op(ObjectOp::new(bell()).list_watchers()).unwrap().watchers(0).unwrap();
    let me = watcher.call(|_, c| c.global_id()).unwrap();
    assert_eq!((listed.len(), listed[0].watcher.num, listed[0].cookie), (1, me as i64, watch.0));

    let said = notifier.call(move |now, c| c.notify(now, bell(), "ding", 10)).unwrap();
    let Outcome::Notified { notify_id, payload, notifier: from } = event(&mut watcher, watch)
    else {
        panic!()
    };
    let other = notifier.call(|_, c| c.global_id()).unwrap();
    assert_eq!((&payload[..], from), (&b"ding"[..], other));
    watcher.call(move |now, c| c.notify_ack(now, watch, notify_id, "dong".into())).unwrap();
    let Outcome::NotifyDone(Ok(result)) = event(&mut notifier, said) else { panic!() };
    assert_eq!(result.replies, [((me, watch.0), "dong".into())]);
    assert!(result.missed.is_empty());

    // Removing the object ends the watch.
    notifier.op(ObjectOp::new(bell()).remove()).unwrap();
    let Outcome::WatchLost(error) = event(&mut watcher, watch) else { panic!() };
    assert_eq!(error.errno, Errno::ENOTCONN);
    watcher.close().unwrap();
    notifier.close().unwrap();
}

#[test]
fn commands_and_lookups_are_answered() {
    let mut c = shared().client();
    let reply = c.command(&serde_json::json!({"prefix": "status", "format": "json"})).unwrap();
    assert_eq!(reply.status, 0);
    assert!(serde_json::from_slice::<serde_json::Value>(&reply.data).is_ok());
    let reply = c.command(&serde_json::json!({"prefix": "no such command"})).unwrap();
    assert_eq!(reply.status, -22);
    assert_eq!(c.pool("no such pool").unwrap_err().errno, Errno::ENOENT);
    let nowhere = Object::new(PoolId(999_999), "x");
    assert_eq!(c.get(nowhere).unwrap_err().errno, Errno::ENOENT);
    let stats = c.call(|now, c| c.statfs(now, None)).unwrap();
    let Outcome::Statfs(Ok(stats)) = event(&mut c, stats) else { panic!() };
    assert!(stats.kb > 0 && stats.kb_avail <= stats.kb);
    c.close().unwrap();
}

#[test]
fn many_requests_go_at_once_and_in_order() {
    let pool = shared().pool("own-many");
    let mut c = pool.cluster.client();
    let id = c.pool(&pool.name).unwrap();
    let log = || Object::new(id, "log");
    // More than may be in flight: the calls wait.
    let all: Vec<_> = (0..3000u32)
        .map(|i| c.submit(ObjectOp::new(log()).append(i.to_le_bytes().to_vec())).unwrap())
        .collect();
    for id in all {
        assert!(matches!(event(&mut c, id), Outcome::Op(Ok(_))));
    }
    let expected: Vec<u8> = (0..3000u32).flat_map(u32::to_le_bytes).collect();
    assert!(c.get(log()).unwrap() == expected);
    c.close().unwrap();
}

/// Operations as no well-behaved client sends them: Ceph's errors, and nothing is applied.
#[test]
fn malformed_operations_are_refused_as_a_whole() {
    if is_foreign() {
        // An OSD of Ceph 16.2 aborts on some of these.
        return;
    }
    let pool = shared().pool("own-malformed");
    let mut c = pool.cluster.client();
    let id = c.pool(&pool.name).unwrap();
    let x = || ObjectOp::new(Object::new(id, "x"));
    c.op(x().write_full("before")).unwrap();
    let range = |offset, length| Extent { offset, length, ..Extent::default() };
    let lies = |name_len, value_len| Xattr { name_len, value_len, ..Xattr::default() };
    let raw = |code, args: OpArgs, data: &'static [u8]| OsdOp::new(code, args).with_indata(data);
    let garbage = b"\xff\xff\xff\xffgarbage";
    let unknown_write = OpCode(0x22ff);
    let cases = [
        (raw(unknown_write, OpArgs::default(), b""), Errno::EOPNOTSUPP),
        (raw(OpCode::SETXATTR, lies(5000, 0).into(), b"short"), Errno::ENAMETOOLONG),
        (raw(OpCode::SETXATTR, lies(20, 0).into(), b"short"), Errno::EINVAL),
        (raw(OpCode::SETXATTR, lies(2, u32::MAX).into(), b"_short"), Errno::EINVAL),
        (raw(OpCode::OMAPSETVALS, OpArgs::default(), garbage), Errno::EINVAL),
        (raw(OpCode::OMAPRMKEYS, OpArgs::default(), garbage), Errno::EINVAL),
        (raw(OpCode::WRITE, range(0, 100).into(), b"ten bytes."), Errno::EINVAL),
        (raw(OpCode::WRITE, range(u64::MAX, 10).into(), b"ten bytes."), Errno::EFBIG),
        (raw(OpCode::WRITE, range(128 << 20, 10).into(), b"ten bytes."), Errno::EFBIG),
        (raw(OpCode::TRUNCATE, range(u64::MAX, 0).into(), b""), Errno::EFBIG),
        (raw(OpCode::ZERO, range(u64::MAX - 5, 100).into(), b""), Errno::EFBIG),
        (raw(OpCode::CALL, OpArgs([0xff; 28]), b"x"), Errno::EINVAL),
    ];
    let mut others = Vec::new();
    for (bad, wanted) in cases {
        let shown = format!("{bad:?}");
        // The good part before it must not happen either.
        let got = errno(c.op(x().write_full("after").set_xattr("k", b"v").op(bad)));
        if got != wanted {
            others.push((shown, wanted, got));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
    assert_eq!(c.get(Object::new(id, "x")).unwrap(), "before");
    assert!(c.op(x().get_xattrs()).unwrap().values(0).unwrap().is_empty());
    c.close().unwrap();
}

//! What the mon is told of what each pool takes on an OSD.

use crate::basic::{with_pool, write_full};
use crate::client::object;
use crate::cluster::Cluster;
use peer::PoolUsage;
use std::time::Duration;
use types::{OsdId, PoolId, SnapId};
use wire::msg::op::{Extent, OpCode};
use wire::msg::{OsdOp, SnapContext};

const KIB: u64 = 1 << 10;
const MINUTE: Duration = Duration::from_secs(60);

/// What an OSD last reported of the pool: allocated, and stored.
fn reported(c: &Cluster, osd: i32) -> Option<(u64, u64)> {
    let mon = c.mon.borrow();
    let pools = mon.reports.get(&OsdId(osd))?.pools.clone();
    let mine = pools.expect("it knows").into_iter().find(|p| p.pool == PoolId(1));
    let PoolUsage { allocated, stored, .. } = mine.unwrap_or_default();
    Some((allocated, stored))
}

#[track_caller]
fn wait_for(c: &mut Cluster, osds: &[i32], wanted: (u64, u64)) {
    let seen = |c: &Cluster| osds.iter().map(|osd| reported(c, *osd)).collect::<Vec<_>>();
    let mut last = Vec::new();
    c.run_until(MINUTE, |c| {
        last = seen(c);
        last.iter().all(|seen| *seen == Some(wanted))
    });
    assert_eq!(seen(c), vec![Some(wanted); osds.len()], "{last:?}");
}

fn extent(op: OpCode, offset: u64, length: u64) -> OsdOp {
    OsdOp::new(op, Extent { offset, length, ..Extent::default() })
}

#[test]
fn what_is_discarded_trimmed_moved_and_removed_is_not_reported_any_more() {
    let mut c = with_pool(1, 3, 2);
    let all = [0, 1, 2];
    let sums = |c: &Cluster| {
        all.iter().filter_map(|osd| reported(c, *osd)).fold((0, 0), |s, o| (s.0 + o.0, s.1 + o.1))
    };
    let until = |c: &mut Cluster, wanted: (u64, u64)| {
        c.run_until(MINUTE, |c| sums(c) == wanted);
    };
    for name in ["a", "b", "c", "d"] {
        let whole = write_full(&vec![7; 256 << 10]);
        assert_eq!(c.call(object(1, name), vec![whole], true).result, 0);
    }
    until(&mut c, (2048 * KIB, 2048 * KIB));
    // A hole in the middle, and an end that fills a part of its block.
    let hole = extent(OpCode::ZERO, 64 * KIB, 128 * KIB);
    assert_eq!(c.call(object(1, "a"), vec![hole], true).result, 0);
    let cut = extent(OpCode::TRUNCATE, 100 * KIB + 1, 0);
    assert_eq!(c.call(object(1, "b"), vec![cut], true).result, 0);
    until(&mut c, (2 * (1024 - 128 - 152) * KIB, 2 * ((1024 - 128 - 156) * KIB + 1)));
    let (base, stored) = sums(&c);
    // A clone is stored, but takes no more than what differs.
    let write = write_full(&vec![8; 256 << 10]);
    let snapc = SnapContext { seq: SnapId(1), snaps: [SnapId(1)].into_iter().collect() };
    let part = extent(OpCode::WRITE, 0, 4096).with_indata(vec![9; 4096]);
    assert_eq!(c.write_under(object(1, "d"), vec![part], snapc, 0).result, 0);
    until(&mut c, (base + 8 * KIB, stored + 512 * KIB));
    c.on_mon(|m| m.remove_snap(1, SnapId(1)));
    until(&mut c, (base, stored));
    // In more PGs, on other OSDs.
    c.on_mon(|m| m.set_pg_num(1, 16, 16));
    c.run_until(MINUTE, |c| c.client.borrow().map.pool(PoolId(1)).is_some_and(|p| p.pg_num == 16));
    c.wait_clean();
    until(&mut c, (base, stored));
    c.on_mon(|m| m.set_weight(OsdId(2), 0));
    wait_for(&mut c, &[2], (0, 0));
    until(&mut c, (base, stored));
    // What is found again after a crash.
    c.crash(0);
    c.start(0);
    c.run_until(MINUTE, |c| c.world.is_up(c.osds[0]));
    c.wait_clean();
    assert_eq!(c.call(object(1, "c"), vec![write], true).result, 0);
    until(&mut c, (base, stored));
    c.on_mon(|m| m.delete_pool(1));
    wait_for(&mut c, &all, (0, 0));
}

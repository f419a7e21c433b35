//! Compression by the pool's options: on every copy, by hints, and what the mon is told of it.

use crate::basic::{read, with_pool, write_full};
use crate::client::object;
use crate::cluster::{Cluster, output};
use peer::PoolCompressed;
use std::time::Duration;
use types::{OsdId, PoolId};
use wire::msg::OsdOp;
use wire::msg::op::{AllocHint, OpCode};

const BYTES: usize = 512 << 10;
const COMPRESSIBLE: u32 = 256;
const INCOMPRESSIBLE: u32 = 512;

fn text() -> Vec<u8> {
    (0..BYTES as u32).map(|i| (i / 50 % 200) as u8).collect()
}

fn hint(flags: u32) -> OsdOp {
    OsdOp::new(OpCode::SETALLOCHINT, AllocHint { flags, ..AllocHint::default() })
}

/// What an OSD last reported of the pool.
fn reported(c: &Cluster, osd: usize) -> PoolCompressed {
    let mon = c.mon.borrow();
    let report = mon.reports.get(&OsdId(osd as i32));
    let pools = report.map(|r| r.compressed.clone()).unwrap_or_default();
    pools.into_iter().find(|p| p.pool == PoolId(1)).unwrap_or_default()
}

#[track_caller]
fn wait_for(c: &mut Cluster, osds: &[usize], original: u64) {
    c.run_until(Duration::from_secs(60), |c| {
        osds.iter().all(|osd| reported(c, *osd).original == original)
    });
}

fn compressed(seed: u64, mode: &str) -> Cluster {
    let mut c = with_pool(seed, 3, 3);
    let options = [("compression_mode", mode), ("compression_algorithm", "zstd")];
    c.on_mon(|m| m.set_pool_options(1, &options));
    c.run_until(Duration::from_secs(10), |c| {
        let map = &c.client.borrow().map;
        map.pool(PoolId(1)).is_some_and(|p| !p.opts.0.is_empty())
    });
    c
}

#[test]
fn every_copy_is_compressed_also_one_that_is_recovered() {
    let mut c = compressed(1, "aggressive");
    c.off[2] = true;
    c.crash(2);
    assert_eq!(c.call(object(1, "a"), vec![write_full(&text())], true).result, 0);
    wait_for(&mut c, &[0, 1], BYTES as u64);
    c.start(2);
    c.run_until(Duration::from_secs(60), |c| c.world.is_up(c.osds[2]));
    c.wait_clean();
    wait_for(&mut c, &[0, 1, 2], BYTES as u64);
    for osd in 0..3 {
        let sums = reported(&c, osd);
        assert!(sums.allocated < BYTES as u64 / 4 && sums.stored <= sums.allocated, "{sums:?}");
    }
    let got = c.call(object(1, "a"), vec![read(0, 0)], false);
    assert!(output(&got, 0) == text());
    let remove = OsdOp::new(OpCode::DELETE, wire::msg::op::Extent::default());
    assert_eq!(c.call(object(1, "a"), vec![remove], true).result, 0);
    wait_for(&mut c, &[0, 1, 2], 0);
}

#[test]
fn hints_decide_where_the_mode_leaves_it_to_them() {
    for (mode, flags, wanted) in [
        ("passive", 0, false),
        ("passive", COMPRESSIBLE, true),
        ("aggressive", INCOMPRESSIBLE, false),
        ("aggressive", 0, true),
        ("force", INCOMPRESSIBLE, true),
    ] {
        let mut c = compressed(2, mode);
        let ops = vec![hint(flags), write_full(&text())];
        assert_eq!(c.call(object(1, "a"), ops, true).result, 0);
        // Something that is compressed for certain tells when the reports are of after both.
        c.on_mon(|m| m.set_pool_options(1, &[("compression_mode", "force")]));
        c.pass(Duration::from_secs(1));
        assert_eq!(c.call(object(1, "b"), vec![write_full(&text()[..65_536])], true).result, 0);
        let first = if wanted { BYTES as u64 } else { 0 };
        wait_for(&mut c, &[0, 1, 2], first + 65_536);
    }
}

//! What is discarded gives its space back, and what was never written takes none.

use super::cluster::{Cluster, is_foreign};
use super::images::{Images, MIB};
use loligo::wait::Deadline;
use std::time::Duration;

/// The OSDs report every some seconds.
const PATIENCE: Duration = Duration::from_secs(60);
const COPIES: u64 = 3;
const TIB: u64 = 1 << 40;

/// Bytes of the pool, without copies.
fn stored(i: &Images) -> u64 {
    let df = i.pool.cluster.ask("df");
    let pools = df["pools"].as_array().unwrap();
    let mine = pools.iter().find(|p| p["name"] == i.pool.name.as_str()).unwrap();
    mine["stats"]["stored"].as_u64().unwrap()
}

/// Bytes of data on all OSDs, as their stores count them.
fn on_disk(i: &Images) -> u64 {
    let df = i.pool.cluster.ask("osd df");
    df["summary"]["total_kb_used_data"].as_u64().unwrap() << 10
}

fn used(i: &Images) -> u64 {
    i.json("du x")["images"][0]["used_size"].as_u64().unwrap()
}

/// Waits until the statistics of pool and OSDs say so, to a MiB of each copy.
fn wait_for(i: &Images, pool: u64, data: u64, base: u64) {
    let near = |value: u64, wanted: u64| value.abs_diff(wanted) <= COPIES * MIB;
    let mut last = (0, 0);
    let seen = Deadline::after(PATIENCE).until(Duration::from_millis(200), || {
        last = (stored(i), on_disk(i));
        near(last.0, pool) && near(last.1, base + COPIES * data)
    });
    let wanted = (pool, base + COPIES * data);
    assert!(seen, "the pool has {} and the OSDs {} bytes, wanted are {wanted:?}", last.0, last.1);
}

#[test]
fn discarded_space_comes_back() {
    if is_foreign() {
        return;
    }
    // Its own, so that nobody else's data is counted.
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(3, "1G")));
    let i = Images::on(cluster, "rbd-space");
    i.ok("create x --size 64M");
    let base = on_disk(&i);
    i.ok("bench --io-type write --io-size 1M --io-threads 4 --io-total 64M --io-pattern seq x");
    wait_for(&i, 64 * MIB, 64 * MIB, base);
    assert_eq!(used(&i), 64 * MIB);

    // Whole objects, by a discard and by zeroes that are written.
    i.qemu_io_ok("x", &["discard 0 24M", "write -z -u 24M 8M", "read -P 0 0 32M"]);
    wait_for(&i, 32 * MIB, 32 * MIB, base);
    assert_eq!(used(&i), 32 * MIB);

    // The ends and middles of objects: those are as long as before, or shorter, but have holes.
    let holes = ["discard 33M 1M", "write -z -u 37M 1M", "discard 43M 1M", "read -P 0 33M 1M"];
    i.qemu_io_ok("x", &holes);
    wait_for(&i, 31 * MIB, 29 * MIB, base);

    // A snapshot keeps its own, until it is removed.
    i.ok("snap create --no-progress x@s");
    i.qemu_io_ok("x", &["discard 0 64M"]);
    let then = i.content("x@s");
    assert!(then.iter().any(|byte| *byte != 0) && i.content("x").iter().all(|byte| *byte == 0));
    assert_eq!(used(&i), 32 * MIB, "this is the snapshot's");
    wait_for(&i, 31 * MIB, 29 * MIB, base);
    i.ok("snap rm --no-progress x@s");
    wait_for(&i, 0, 0, base);

    i.ok("rm --no-progress x");
    wait_for(&i, 0, 0, base);
}

#[test]
fn ten_tebibytes_take_no_space() {
    let i = Images::new("rbd-big");
    i.ok("create x --size 10T");
    assert_eq!(used(&i), 0);
    i.fails("create too-big --size 2000T", super::images::EINVAL);
    // Both ends, and a stretch in the middle; nothing is there to be read.
    i.qemu_io_ok("x", &["read -P 0 0 64M", "read -P 0 5T 1G", "read -P 0 10485696M 64M"]);
    i.qemu_io_ok("x", &["write -P 7 7T 4k", "read -P 7 7T 4k"]);
    assert_eq!(used(&i), 4 * MIB);
    let diff = i.json("diff --whole-object x");
    assert_eq!(diff, serde_json::json!([{"offset": 7 * TIB, "length": 4 * MIB, "exists": "true"}]));
    let names = i.pool.ls();
    assert_eq!(names.iter().filter(|name| name.starts_with("rbd_data")).count(), 1);
    i.ok("rm --no-progress x");
}

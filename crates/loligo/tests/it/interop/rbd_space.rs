//! What is discarded gives its space back, and what was never written takes none: on the disks, and as `df` shows
//! it of the pool.

use super::cluster::{Cluster, Pool, is_foreign};
use super::images::{Images, MIB};
use loligo::wait::Deadline;
use std::time::Duration;

/// The OSDs report every some seconds.
const PATIENCE: Duration = Duration::from_secs(60);
const COPIES: u64 = 3;
const TIB: u64 = 1 << 40;

/// Bytes of the pool: without copies, and what they take on all OSDs.
fn in_pool(pool: &Pool) -> (u64, u64) {
    let df = pool.cluster.ask("df");
    let pools = df["pools"].as_array().unwrap();
    let mine = pools.iter().find(|p| p["name"] == pool.name.as_str()).unwrap();
    let n = |name: &str| mine["stats"][name].as_u64().unwrap();
    (n("stored"), n("bytes_used"))
}

/// What `rados df` says that the pool takes.
fn in_rados_df(pool: &Pool) -> u64 {
    let df = pool.cluster.rados().args(["df", "-f", "json"]).json();
    let pools = df["pools"].as_array().unwrap();
    let mine = pools.iter().find(|p| p["name"] == pool.name.as_str()).unwrap();
    let size = &mine["size_bytes"];
    size.as_str().map_or(size.as_u64(), |text| text.parse().ok()).unwrap()
}

/// Bytes of data on all OSDs, as their stores count them.
fn on_disk(i: &Images) -> u64 {
    let df = i.pool.cluster.ask("osd df");
    df["summary"]["total_kb_used_data"].as_u64().unwrap() << 10
}

fn used(i: &Images) -> u64 {
    i.json("du x")["images"][0]["used_size"].as_u64().unwrap()
}

/// Waits until the statistics of pool and OSDs say so, to half a MiB of each copy: each clone has `stored` bytes for
/// itself, and they share `data` on each OSD.
fn wait_for(i: &Images, stored: u64, data: u64, base: u64) {
    let near = |value: u64, wanted: u64| value.abs_diff(wanted) <= COPIES * MIB / 2;
    let wanted = (stored, COPIES * data, base + COPIES * data);
    let mut last = (0, 0, 0);
    let seen = Deadline::after(PATIENCE).until(Duration::from_millis(200), || {
        let (stored, used) = in_pool(&i.pool);
        last = (stored, used, on_disk(i));
        near(last.0, wanted.0) && near(last.1, wanted.1) && near(last.2, wanted.2)
    });
    assert!(seen, "stored, used by the pool, and on all disks: {last:?}, wanted are {wanted:?}");
    let in_rados_df = in_rados_df(&i.pool);
    assert!(near(in_rados_df, wanted.1), "rados df: {in_rados_df}");
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

    // The ends and middles of objects: those are as long as before, but have holes.
    let holes = ["discard 33M 1M", "write -z -u 37M 1M", "discard 43M 1M", "read -P 0 33M 1M"];
    i.qemu_io_ok("x", &holes);
    wait_for(&i, 29 * MIB, 29 * MIB, base);

    // A clone of an object is stored whole, and takes what differs.
    i.ok("snap create --no-progress x@s");
    i.qemu_io_ok("x", &["write 48M 4k", "write 52M 4k"]);
    wait_for(&i, 37 * MIB, 29 * MIB, base);

    // A snapshot keeps its own, until it is removed.
    i.qemu_io_ok("x", &["discard 0 64M"]);
    let then = i.content("x@s");
    assert!(then.iter().any(|byte| *byte != 0) && i.content("x").iter().all(|byte| *byte == 0));
    assert_eq!(used(&i), 32 * MIB, "this is the snapshot's");
    wait_for(&i, 29 * MIB, 29 * MIB, base);
    i.ok("snap rm --no-progress x@s");
    wait_for(&i, 0, 0, base);

    i.ok("rm --no-progress x");
    wait_for(&i, 0, 0, base);

    // Objects of other clients, in a pool that had none, to the byte: what is stored, and the blocks for it.
    let pool = cluster.pool("bytes");
    let becomes = |wanted: (u64, u64)| {
        let is_so = || in_pool(&pool) == wanted;
        let seen = Deadline::after(PATIENCE).until(Duration::from_millis(200), is_so);
        assert!(seen, "stored and used are {:?}, not {wanted:?}", in_pool(&pool));
    };
    pool.put("whole", &vec![7; 10 << 20]);
    pool.put("small", b"hello");
    becomes((10 * MIB + 5, COPIES * (10 * MIB + 4096)));
    assert_eq!(in_rados_df(&pool), COPIES * (10 * MIB + 4096));
    pool.ok("rm whole");
    becomes((5, COPIES * 4096));
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

//! `loligo bench`: it loads what it is told to and nothing else, and what it wrote is there.

use super::cluster::{BINARY, Cluster, Pool, shared};
use super::images::{Images, MIB};
use super::tool::Tool;
use client::image::OpenImage;
use serde_json::Value;

/// Exit code of what is refused for the sake of data.
const REFUSED: i32 = 5;

fn bench(cluster: &Cluster, line: &str) -> Tool {
    Tool::new(BINARY).env("CEPH_CONF", cluster.conf()).arg("bench").args(line.split(' '))
}

fn measured(pool: &Pool, line: &str) -> Value {
    let (what, more) = line.split_once(' ').unwrap();
    let line = format!("{what} --pool {} {more} --json", pool.name);
    let said = bench(pool.cluster, &line).json();
    for key in ["seconds", "longest_gap_ms", "cpu_us_per_operation", "cpu_cores"] {
        assert!(said[key].as_f64() > Some(0.0), "{key}: {said}");
    }
    let latency = &said["all"]["latency_us"];
    let steps = ["p50", "p99", "p99.9", "max"].map(|key| latency[key].as_f64().unwrap());
    assert!(steps.is_sorted() && steps[0] > 0.0 && latency["mean"].as_f64() > Some(0.0), "{said}");
    let all = said["all"]["operations"].as_u64().unwrap();
    assert!(all > 0 && said["size_bytes"].as_u64() > Some(0), "{said}");
    let sum = |list: &Value, key: &str| -> u64 {
        let value = |v: &Value| if key.is_empty() { v.as_u64() } else { v[key].as_u64() };
        list.as_array().unwrap().iter().map(|v| value(v).unwrap()).sum()
    };
    assert_eq!(sum(&said["by_second"], ""), all, "{said}");
    assert_eq!(sum(&said["all"]["histogram"], "operations"), all, "{said}");
    let sides = ["read", "write"].map(|side| said[side]["operations"].as_u64().unwrap_or(0));
    assert_eq!(sides[0] + sides[1], all, "{said}");
    said
}

/// Whether this is a verified block that belongs here: by what its documentation says.
fn is_verified(block: &[u8], place: u64) -> bool {
    let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
    let its_place = u64::from(word(8)) | u64::from(word(12)) << 32;
    let sum = denc::crc32c(place as u32, &block[32..]);
    block.starts_with(b"LOLIGOBN") && its_place == place && word(16) > 0 && word(28) == sum
}

#[test]
fn objects_are_written_read_and_removed() {
    let pool = shared().pool("bench-rados");
    let keep = "--object-prefix mine --no-cleanup";
    let write = "rados --rw write --bs 4k --iodepth 16 --size 1M --verify";
    let said = measured(&pool, &format!("{write} {keep}"));
    assert_eq!(
        (&said["write"]["operations"], &said["verified_blocks"]),
        (&256.into(), &256.into())
    );
    assert_eq!((&said["damaged_blocks"], said.get("read")), (&0.into(), None));
    let names = pool.ls();
    assert_eq!(names.len(), 256);
    for n in [0u64, 7, 255] {
        let name = format!("mine.0.{n:016x}");
        assert!(names.contains(&name) && is_verified(&pool.get(&name), n * 4096), "{name}");
    }
    let read = "rados --rw randread --bs 4k --iodepth 8 --size 1M --runtime 1 --no-fill";
    let said = measured(&pool, &format!("{read} --object-prefix mine"));
    assert_eq!((&said["hole_bytes"], said.get("write")), (&0.into(), None));
    // They were there, and stay, unless the contrary is asked for.
    assert_eq!(pool.ls().len(), 256);
    measured(&pool, &format!("{read} --object-prefix mine --cleanup"));
    assert!(pool.ls().is_empty(), "{:?}", pool.ls());
    let error = bench(pool.cluster, &format!("{read} --object-prefix none --pool {}", pool.name));
    assert!(error.fails(1).contains("none.0."));

    let mixed = "rados --rw randrw --rwmixread 70 --bs 4k --iodepth 16 --size 1M --runtime 1";
    let said = measured(&pool, &format!("{mixed} --object-size 64k --numjobs 2 --verify"));
    let [reads, writes] = ["read", "write"].map(|s| said[s]["operations"].as_f64().unwrap());
    let share = reads / (reads + writes);
    assert!((0.5..0.9).contains(&share), "{share}: {said}");
    assert!(said["verified_blocks"].as_u64() > Some(0) && said["damaged_blocks"] == 0, "{said}");
    assert!(pool.ls().is_empty(), "{:?}", pool.ls());
    bench(pool.cluster, "rados --pool nowhere --rw write").fails(1);
}

#[test]
fn an_image_is_written_and_read() {
    let i = Images::new("bench-rbd");
    i.ok("create x --size 16M");
    let said = measured(&i.pool, "rbd --image x --rw write --bs 1M --iodepth 4 --verify");
    assert_eq!((&said["write"]["operations"], &said["verified_blocks"]), (&16.into(), &16.into()));
    let content = i.content("x");
    let blocks = content.chunks(MIB as usize);
    assert!((0..).zip(blocks).all(|(n, block)| is_verified(block, n * MIB)));

    let said = measured(&i.pool, "rbd --image x --rw randwrite --bs 4k --iodepth 32 --verify");
    assert_eq!(said["write"]["operations"], 4096);
    let content = i.content("x");
    let blocks = (0..).zip(content.chunks(4096));
    let verified = blocks.filter(|(n, block)| is_verified(block, n * 4096)).count();
    assert!(verified > 2000 && said["verified_blocks"] == verified, "{verified}: {said}");

    let said = measured(&i.pool, "rbd --image x --rw randread --bs 4k --iodepth 32 --runtime 1");
    assert_eq!(said["hole_bytes"], 0);
    let mixed = "rbd --image x --rw randrw --rwmixread 70 --bs 16k --iodepth 8 --runtime 1";
    let said = measured(&i.pool, &format!("{mixed} --verify"));
    assert!(said["verified_blocks"].as_u64() > Some(0), "{said}");
    measured(&i.pool, "rbd --image x --rw read --bs 1M --iodepth 4 --numjobs 2");
    i.ok("object-map check --no-progress x");
    assert_eq!(i.json("lock ls x"), serde_json::json!([]));

    // For people.
    let line = format!("rbd --pool {} --image x --rw randwrite --size 1M", i.pool.name);
    let ran = bench(i.pool.cluster, &line).run();
    let said = String::from_utf8_lossy(&ran.out);
    assert!(said.contains("write: ") && said.contains("p99.9") && said.contains("CPU"), "{said}");
    assert!(ran.err.contains("writing over the first 1 MiB of image"), "{ran:?}");
}

#[test]
fn an_image_that_somebody_has_locked_is_left_alone() {
    let i = Images::new("bench-locked");
    i.ok("create x --size 8M");
    let pool = &i.pool.name;
    let on = |line: &str| bench(i.pool.cluster, &format!("rbd --pool {pool} {line}"));
    i.ok("lock add x mine");
    let why = on("--image x --rw randwrite --size 1M").fails(REFUSED);
    assert!(why.contains("mine") && why.contains("left alone"), "{why}");
    measured(&i.pool, "rbd --image x --rw randread --size 1M");
    let locker = i.json("lock ls x")[0]["locker"].as_str().unwrap().to_owned();
    // Other tests of the shared cluster look at its blocklist.
    i.ok(&format!("lock rm x mine {locker} --rbd_blocklist_on_break_lock=false"));

    let mut holder = i.pool.cluster.client();
    let id = holder.pool(pool).unwrap();
    let open = holder.open_image(OpenImage::new(id, "x")).unwrap();
    holder.write_image(open, 0, &b"precious"[..]).unwrap();
    on("--image x --rw write").fails(REFUSED);
    assert!(holder.image_info(open).unwrap().is_locked);
    holder.close_image(open).unwrap();
    holder.close().unwrap();
    assert!(i.content("x").starts_with(b"precious"));

    let why = on("--image x --rw write --numjobs 2").fails(1);
    assert!(why.contains("exclusive-lock") && why.contains("--iodepth"), "{why}");
    on("--image x --rw write --size 9M").fails(1);
    on("--image y --rw randread").fails(1);
    assert!(i.content("x").starts_with(b"precious"));
    i.ok("create shared --size 8M --image-feature layering");
    let line = "rbd --image shared --rw randwrite --bs 4k --iodepth 8 --numjobs 2 --verify";
    assert_eq!(measured(&i.pool, line)["all"]["operations"], 2048);
}

//! A damaged block under a running OSD: `rados get` gets what was put, and the copy is whole again.
//! And compression, set by `ceph` and shown by it.

use super::cluster::{Cluster, is_foreign, shared};
use loligo::wait::Deadline;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const BLOCK: usize = 4096;

/// Text that compresses well, different in every block.
fn lines(len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for n in 0.. {
        if out.len() >= len {
            break;
        }
        out.extend(format!("{n:09} is the number of this line of the object; ").bytes());
    }
    out.truncate(len);
    out
}

/// Damages the blocks of a disk that hold just these bytes, in their places and in the log.
pub fn damage(disk: &Path, block: &[u8]) {
    let file = File::options().read(true).write(true).open(disk).unwrap();
    let mut image = vec![0; 1 << 20];
    let mut hit = 0;
    for at in (0..file.metadata().unwrap().len()).step_by(image.len()) {
        let read = file.read_at(&mut image, at).unwrap();
        for (i, found) in image[..read].chunks_exact(BLOCK).enumerate() {
            if found == block {
                let at = at + (i * BLOCK) as u64 + 77;
                file.write_all_at(&[found[77] ^ 1], at).unwrap();
                hit += 1;
            }
        }
    }
    file.sync_all().unwrap();
    assert!(hit > 0, "{} does not hold the block", disk.display());
}

#[test]
fn a_damaged_block_is_served_from_another_copy_and_repaired() {
    if is_foreign() {
        return;
    }
    let c = Cluster::start(3, "256M");
    let rados = || c.rados().args(["-p", "rbd"]);
    let data = lines(300_000);
    rados().args(["put", "precious", "-"]).stdin(data.clone()).ok();
    let acting = c.ask("osd map rbd precious")["acting"].as_array().unwrap().clone();
    let osds: Vec<u64> = acting.iter().map(|o| o.as_u64().unwrap()).collect();
    let disk = |osd: u64| c.dir().join(format!("osd.{osd}/block"));
    let block = |n: usize| &data[n * BLOCK..(n + 1) * BLOCK];
    damage(&disk(osds[0]), block(10));
    let primary = format!("osd.{}", osds[0]);
    // What was read before comes from the disk again.
    let get = || {
        c.ceph().args(["daemon", &primary, "cache", "drop"]).ok();
        rados().args(["get", "precious", "-"])
    };
    assert!(get().ok() == data);
    c.wait_until_clean(Duration::from_secs(30));
    let perf = c.ceph().args(["daemon", &primary, "perf", "dump"]).json();
    assert_eq!(perf["osd"]["repairs"], 1, "{}", perf["osd"]);
    // It does not lean on the others any more.
    damage(&disk(osds[1]), block(20));
    damage(&disk(osds[2]), block(20));
    assert!(get().ok() == data);
    // And it is the good copy that they are repaired from, when it is damaged elsewhere.
    damage(&disk(osds[0]), block(30));
    let said = get().fails(1);
    assert!(said.contains("Input/output error"), "no copy is whole: {said}");
    rados().args(["put", "precious", "-"]).stdin(data.clone()).ok();
    assert!(rados().args(["get", "precious", "-"]).ok() == data);
    c.wait_until_clean(Duration::from_secs(30));
}

#[test]
fn pools_are_compressed_as_ceph_says() {
    if is_foreign() {
        return;
    }
    let pool = shared().pool("compressed");
    let set = |name: &str, value: &str| {
        shared().ceph().args(["osd", "pool", "set", &pool.name, name, value]).ok();
    };
    let data = lines(4 << 20);
    pool.put("plain", &data);
    set("compression_algorithm", "zstd");
    set("compression_mode", "aggressive");
    pool.put("packed", &data);
    pool.put("small", &lines(100));
    assert!(pool.get("packed") == data && pool.get("plain") == data);
    assert_eq!(pool.get("small"), lines(100));
    let stats = || {
        let df = shared().ceph().args(["df", "detail", "-f", "json"]).json();
        let pools = df["pools"].as_array().unwrap().clone();
        pools.into_iter().find(|p| p["name"] == pool.name.as_str()).unwrap()["stats"].clone()
    };
    let mut last = stats();
    let shown = Deadline::after(Duration::from_secs(30)).until(Duration::from_millis(200), || {
        last = stats();
        last["compress_under_bytes"] == 3 * (4u64 << 20)
    });
    assert!(shown, "{last}");
    let used = last["compress_bytes_used"].as_u64().unwrap();
    assert!(used > 0 && used < 3 << 20, "{last}");
    let table = shared().ceph().args(["df", "detail"]).text();
    assert!(table.contains("USED COMPR") && table.contains(" 12 MiB"), "{table}");
    // Overwritten in the middle, cut off, and removed.
    let edge = pool.name.clone();
    let write = shared().rados().args(["-p", &edge, "put", "packed", "-", "--offset", "70000"]);
    write.stdin(b"inside".to_vec()).ok();
    let mut wanted = data.clone();
    wanted[70_000..70_006].copy_from_slice(b"inside");
    assert!(pool.get("packed") == wanted);
    pool.ok("truncate packed 1000000");
    assert!(pool.get("packed") == wanted[..1_000_000]);
    pool.ok("rm packed");
    let gone = Deadline::after(Duration::from_secs(30))
        .until(Duration::from_millis(200), || stats()["compress_under_bytes"] == 0);
    assert!(gone, "{}", stats());
}

//! fio's rbd engine: what it reads is what it wrote.
//!
//! With seconds for the benchmarks ([`bulk::seconds`]) every combination runs, else some.

use super::bulk;
use super::images::Images;
use super::tool::Tool;
use std::time::Duration;

/// Bytes of an operation, as fio takes them; the last is a mixture of sizes and odd places.
const SIZES: [&str; 6] = ["4k", "16k", "64k", "256k", "1M", "4M"];
const DEPTHS: [u32; 4] = [1, 8, 32, 128];
/// Runs in less than a second each.
const SHORT: [(&str, &str, u32); 7] = [
    ("write", "4k", 1),
    ("randwrite", "4k", 128),
    ("write", "16k", 32),
    ("randwrite", "64k", 8),
    ("randwrite", "1M", 8),
    ("write", "4M", 4),
    ("randwrite", "4M", 128),
];

/// One run that writes a part of the image and reads all that was written.
fn verified(i: &Images, rw: &str, size: &str, depth: u32, more: &[&str]) {
    let fio = Tool::new("fio").env("CEPH_CONF", i.pool.cluster.conf());
    let image = ["--name=x", "--ioengine=rbd", "--clientname=admin", "--rbdname=x"];
    let fio = fio.args(image).arg(format!("--pool={}", i.pool.name)).arg(format!("--rw={rw}"));
    // The state would be a file in the working directory.
    let verify = ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0"];
    let load = [format!("--bs={size}"), format!("--iodepth={depth}")];
    let ran = fio.args(verify).args(load).args(more).args(["--output-format=json"]);
    let said = ran.limit(Duration::from_secs(600)).json();
    let job = &said["jobs"][0];
    assert_eq!(job["error"], 0, "{job}");
    let (wrote, read) = (&job["write"]["total_ios"], &job["read"]["total_ios"]);
    assert!(wrote.as_u64() > Some(0) && read.as_u64() >= wrote.as_u64(), "{wrote}, {read}");
}

#[test]
fn fio_finds_what_it_wrote() {
    let i = Images::new("rbd-fio");
    i.ok("create x --size 64M");
    if bulk::seconds() > 2 {
        for rw in ["write", "randwrite"] {
            for size in SIZES {
                for depth in DEPTHS {
                    let of = if size == "4k" { "--size=16M" } else { "--size=64M" };
                    verified(&i, rw, size, depth, &[of]);
                }
            }
        }
    }
    for (rw, size, depth) in SHORT {
        let of = match size {
            "4k" if depth == 1 => "--size=1M",
            "4k" | "16k" => "--size=4M",
            "4M" => "--size=64M",
            _ => "--size=16M",
        };
        verified(&i, rw, size, depth, &[of]);
    }
    i.ok("object-map check --no-progress x");
}

#[test]
fn fio_mixes_reads_writes_and_trims() {
    let i = Images::new("rbd-fio-mix");
    i.ok("create x --size 64M");
    i.ok("snap create --no-progress x@before");
    let odd = ["--bsrange=512-128k", "--bs_unaligned", "--size=16M"];
    verified(&i, "randwrite", "4k", 32, &odd);
    verified(&i, "randrw", "8k", 32, &["--size=8M", "--rwmixread=50"]);
    // Each block is dropped before it is written. With more at once fio does not wait for the one
    // before it sends the other, and librbd may reorder them: so it does with real Ceph.
    verified(&i, "trimwrite", "64k", 1, &["--size=8M"]);
    assert!(i.content("x@before").iter().all(|byte| *byte == 0));
    i.ok("object-map check --no-progress x");
}

//! Much at once through the real `rados`: benchmarks, export and import.

use super::cluster::{Pool, pattern, shared};
use std::time::Duration;

/// The default `--memory` of an OSD, and something for code and what the allocator holds back.
const MEMORY_LIMIT_BYTES: u64 = (512 + 128) << 20;

/// Seconds of each benchmark; the full list of the acceptance wants 10.
pub fn seconds() -> u32 {
    let given = std::env::var("LOLIGO_IT_BENCH_SECONDS").ok();
    given.and_then(|s| s.parse().ok()).unwrap_or(1)
}

fn bench(pool: &Pool, mode: &str, more: &[&str]) -> String {
    let limit = Duration::from_secs(180);
    let text =
        pool.rados().args(["bench", &seconds().to_string(), mode]).args(more).limit(limit).text();
    for line in ["Total time run", "Average IOPS", "Average Latency"] {
        assert!(text.contains(line), "{text}");
    }
    text
}

/// Write, read in order, read anywhere (both compare what they read), clean up.
fn bench_all(block: &str, threads: &str) {
    let pool = shared().pool("bench");
    let written = bench(&pool, "write", &["-b", block, "-t", threads, "--no-cleanup"]);
    let objects = pool.ls().len();
    assert!(objects > 1, "{written}");
    // What was written is checked when it is read.
    for mode in ["seq", "rand"] {
        let read = bench(&pool, mode, &["-t", threads]);
        assert!(!read.contains("mismatch"), "{read}");
    }
    for (osd, bytes) in shared().osd_memory() {
        assert!(bytes < MEMORY_LIMIT_BYTES, "{osd} has {bytes} bytes resident under load");
    }
    pool.rados().arg("cleanup").limit(Duration::from_secs(180)).ok();
    assert!(pool.ls().is_empty(), "{:?}", pool.ls());
}

#[test]
fn bench_4k() {
    bench_all("4096", "16");
}

#[test]
fn bench_4k_256_at_a_time() {
    bench_all("4096", "256");
}

#[test]
fn bench_128k() {
    bench_all("131072", "16");
}

#[test]
fn bench_128k_256_at_a_time() {
    bench_all("131072", "256");
}

#[test]
fn bench_4m() {
    bench_all("4194304", "16");
}

#[test]
fn bench_4m_256_at_a_time() {
    bench_all("4194304", "256");
}

#[test]
fn a_pool_is_exported_and_imported() {
    let (from, to) = (shared().pool("export"), shared().pool("import"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pool.dump");
    for i in 0..20u8 {
        from.put(&format!("o{i}"), &pattern(usize::from(i) * 40_000, i));
    }
    from.ok("setxattr o3 colour blue");
    from.ok("setomapval o4 key value");
    from.ok("setomapheader o4 header");
    from.rados().args(["-N", "ns", "put", "inner", "-"]).stdin("in a namespace").ok();
    from.rados().arg("export").arg(&file).ok();
    to.rados().arg("import").arg(&file).ok();
    assert_eq!(from.ls(), to.ls());
    for i in 0..20u8 {
        assert!(to.get(&format!("o{i}")) == pattern(usize::from(i) * 40_000, i), "o{i}");
    }
    assert_eq!(to.ok("getxattr o3 colour"), "blue");
    assert!(to.ok("listomapvals o4").contains("value"));
    assert!(to.ok("getomapheader o4").contains("header"));
    assert_eq!(to.rados().args(["-N", "ns", "get", "inner", "-"]).text(), "in a namespace");
}

//! `ceph tell osd.N bench`.

use crate::admin::{answer, ask, tell};
use crate::basic::{read, with_pool, write_full};
use crate::client::object;
use crate::cluster::{Cluster, output};
use serde_json::{Value, json};
use std::time::Duration;
use types::{Errno, OsdId};

const MIB: u64 = 1 << 20;

fn bench(count: u64, size: u64) -> Value {
    json!({ "prefix": "bench", "count": count, "size": size })
}

/// What the store holds beside its records.
fn objects(c: &mut Cluster) -> (u64, u64) {
    let usage = ask(c, 0, "store usage");
    let number = |name: &str| usage[name].as_u64().expect("a number");
    (number("objects"), number("object_bytes"))
}

fn set(c: &mut Cluster, name: &str, value: &str) {
    let set = json!({ "prefix": "config set", "var": name, "val": [value] });
    assert_eq!(tell(c, 0, &set).0, 0);
}

/// Begins one that takes a while. The number of the command.
fn begin_long(c: &mut Cluster) -> u64 {
    set(c, "osd_bench_small_size_max_iops", "100000");
    c.on_client(|cl| cl.command(OsdId(0), bench(32 * MIB, 4096).to_string()))
}

#[test]
fn it_measures_and_leaves_nothing() {
    let mut c = with_pool(11, 1, 1);
    c.call(object(1, "a"), vec![write_full(b"abc")], true);
    let before = objects(&mut c);
    let over_and_over = json!({
        "prefix": "bench", "count": MIB, "size": 65536, "object_size": 131_072, "object_num": 2,
    });
    for (command, written, size) in [
        (bench(8 * MIB, MIB), 8 * MIB, MIB),
        (bench(100_000, 4096), 102_400, 4096),
        (over_and_over, MIB, 65536),
    ] {
        let (result, outs, said) = tell(&mut c, 0, &command);
        assert_eq!(result, 0, "{outs}");
        assert_eq!((&said["bytes_written"], &said["blocksize"]), (&json!(written), &json!(size)));
        let number = |name: &str| said[name].as_f64().expect("a number");
        assert!(number("elapsed_sec") > 0.0);
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
        assert!(close(number("bytes_per_sec") * number("elapsed_sec"), written as f64), "{said}");
        assert!(close(number("iops") * size as f64, number("bytes_per_sec")), "{said}");
        assert_eq!(objects(&mut c), before, "{command}");
    }
    assert_eq!(output(&c.call(object(1, "a"), vec![read(0, 0)], false), 0), b"abc"[..]);
}

#[test]
fn what_would_take_too_long_or_too_much_is_refused() {
    let mut c = with_pool(12, 1, 1);
    let beyond_all = json!({
        "prefix": "bench", "count": MIB, "size": 65536, "object_size": i64::MAX, "object_num": i64::MAX,
    });
    for (command, error, word) in [
        (beyond_all, Errno::ENOSPC, "are free"),
        (bench(0, 4096), Errno::EINVAL, "cannot be 0"),
        (bench(4096, 0), Errno::EINVAL, "cannot be 0"),
        (json!({ "prefix": "bench", "count": -1 }), Errno::EINVAL, "cannot be -1"),
        (bench(MIB, 65 * MIB), Errno::EINVAL, "osd_bench_max_block_size"),
        (bench(100 * MIB, 4096), Errno::EINVAL, "osd_bench_small_size_max_iops"),
        (bench(u64::MAX >> 1, MIB), Errno::EINVAL, "osd_bench_large_size_max_throughput"),
        (bench(2800 * MIB, MIB), Errno::ENOSPC, "are free"),
    ] {
        let (result, outs, _) = tell(&mut c, 0, &command);
        assert!(result == -error.0 && outs.contains(word), "{command}: {result} {outs}");
    }
    set(&mut c, "osd_bench_small_size_max_iops", "100000");
    assert_eq!(tell(&mut c, 0, &bench(8 * MIB, 4096)).0, 0);
}

#[test]
fn there_is_one_at_a_time_and_clients_go_on() {
    let mut c = with_pool(13, 1, 1);
    let first = begin_long(&mut c);
    let (result, outs, _) = tell(&mut c, 0, &bench(MIB, MIB));
    assert_eq!((result, &*outs), (-Errno::EBUSY.0, "a bench is under way"));
    assert!(answer(&c, first).is_none(), "it runs");
    assert_eq!(c.call(object(1, "a"), vec![write_full(b"abc")], true).result, 0);
    c.run_until(Duration::from_secs(60), |c| answer(c, first).is_some());
    assert_eq!(answer(&c, first).map(|a| a.result), Some(0));
    assert_eq!(tell(&mut c, 0, &bench(MIB, MIB)).0, 0);
}

#[test]
fn what_a_crash_left_behind_goes_at_the_next_start() {
    let mut c = with_pool(14, 1, 1);
    let before = objects(&mut c);
    begin_long(&mut c);
    c.run_until(Duration::from_secs(10), |c| objects(c).0 > before.0);
    c.crash(0);
    c.start(0);
    c.wait_clean();
    c.run_until(Duration::from_secs(10), |c| objects(c) == before);
}

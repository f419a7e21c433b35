//! What is told of a test.

use super::Kind;
use super::load::Measured;
use serde_json::{Value, json};
use std::time::Duration;
use store::Counters;

/// Bytes that a store wrote to its disks.
fn written(c: &Counters) -> u64 {
    let in_blocks = c.in_place_blocks.saturating_add(c.superblocks.saturating_mul(2));
    [c.log_bytes, c.direct_bytes, c.node_bytes, in_blocks.saturating_mul(io::BLOCK_BYTES as u64)]
        .into_iter()
        .fold(0, u64::saturating_add)
}

/// Bytes written to the disks for each byte of data, the merging into place included.
fn amplification(m: &Measured) -> Option<f64> {
    let data = m.after.data_bytes.saturating_sub(m.before.data_bytes);
    let all = written(&m.after).saturating_sub(written(&m.before));
    (data > 0).then(|| all as f64 / data as f64)
}

/// The latency that this share of the operations stayed below, in microseconds.
fn percentile(sorted: &[u64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).map_or(0.0, |ns| *ns as f64 / 1e3)
}

struct Figures {
    per_second: f64,
    mib_per_second: f64,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    cpu_us: f64,
    amplification: Option<f64>,
    /// Of writes only: reads are not timed so, and nobody turns them away.
    turn_us: Option<f64>,
    wait_us: Option<f64>,
}

fn figures(m: &Measured) -> Figures {
    let n = m.latencies_ns.len().max(1) as f64;
    let seconds = m.seconds.max(1e-9);
    let of_writes =
        |time: Duration| (m.test.kind == Kind::Write).then_some(time.as_secs_f64() * 1e6);
    Figures {
        per_second: m.latencies_ns.len() as f64 / seconds,
        mib_per_second: m.bytes as f64 / seconds / f64::from(1 << 20),
        mean_us: m.latencies_ns.iter().sum::<u64>() as f64 / n / 1e3,
        p50_us: percentile(&m.latencies_ns, 0.5),
        p99_us: percentile(&m.latencies_ns, 0.99),
        max_us: percentile(&m.latencies_ns, 1.0),
        cpu_us: m.cpu_seconds * 1e6 / n,
        amplification: amplification(m),
        turn_us: of_writes(m.longest_turn),
        wait_us: of_writes(m.longest_wait),
    }
}

pub(super) fn print_head() {
    println!(
        "{:<28}{:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>7} {:>8} {:>8} {:>8}",
        "",
        "op/s",
        "MiB/s",
        "mean us",
        "p50 us",
        "p99 us",
        "max us",
        "CPU us",
        "written",
        "turn us",
        "wait us"
    );
}

pub(super) fn print(m: &Measured) {
    let f = figures(m);
    let written = f.amplification.map_or_else(|| "-".to_owned(), |a| format!("{a:.2}x"));
    let aged = if m.test.aged { ", aged" } else { "" };
    let micros = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
    println!(
        "{:<28}{:>8.0} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>9.1} {:>7.1} {:>8} {:>8} {:>8}",
        format!("{}{aged}", m.test.name),
        f.per_second,
        f.mib_per_second,
        f.mean_us,
        f.p50_us,
        f.p99_us,
        f.max_us,
        f.cpu_us,
        written,
        micros(f.turn_us),
        micros(f.wait_us),
    );
}

/// What the figures are of.
pub(super) fn print_foot() {
    println!(
        "CPU us: until the last operation ended; written: until all was in place, for each byte of data"
    );
}

pub(super) fn as_json(m: &Measured) -> Value {
    let f = figures(m);
    let c = |get: fn(&Counters) -> u64| get(&m.after).saturating_sub(get(&m.before));
    json!({
        "id": m.test.id, "name": m.test.name, "aged": m.test.aged,
        "block_bytes": m.test.bytes, "depth": m.test.depth,
        "operations": m.latencies_ns.len(), "seconds": m.seconds,
        "per_second": f.per_second, "mib_per_second": f.mib_per_second,
        "latency_us": {"mean": f.mean_us, "p50": f.p50_us, "p99": f.p99_us, "max": f.max_us},
        "cpu_us": f.cpu_us, "write_amplification": f.amplification,
        "longest_turn_us": f.turn_us, "longest_wait_us": f.wait_us,
        "longest_pause_us": m.longest_pause.as_secs_f64() * 1e6,
        "by_second": m.by_second, "drain_seconds": m.drain_seconds,
        "resident_bytes": m.resident_bytes,
        "written": {"log": c(|c| c.log_bytes), "beside": c(|c| c.direct_bytes),
            "nodes": c(|c| c.node_bytes),
            "in_place": c(|c| c.in_place_blocks) * io::BLOCK_BYTES as u64},
        "writes": {"log": c(|c| c.log_batches), "beside": c(|c| c.direct_writes),
            "in_place": c(|c| c.in_place_writes)},
        "checkpoints": c(|c| c.checkpoints), "superblocks": c(|c| c.superblocks),
        "nodes_read": c(|c| c.nodes_read), "overwrites_unseen": c(|c| c.overwrites_unseen),
        "outlined_blocks_read": c(|c| c.outlined_blocks_read),
        "in_place_reads": c(|c| c.in_place_reads),
    })
}

#[cfg(test)]
mod tests {
    use super::super::TESTS;
    use super::*;

    #[test]
    fn figures_are_what_was_measured() {
        let before = Counters { data_bytes: 4096, log_bytes: 8192, ..Counters::default() };
        let after = Counters {
            data_bytes: 4096 * 3,
            log_bytes: 8192 * 3,
            in_place_blocks: 2,
            ..Counters::default()
        };
        let m = Measured {
            test: TESTS[3],
            latencies_ns: (1..=100).map(|n| n * 1000).collect(),
            bytes: 100 << 20,
            seconds: 0.5,
            cpu_seconds: 0.001,
            drain_seconds: 0.0,
            longest_turn: Duration::ZERO,
            longest_wait: Duration::ZERO,
            longest_pause: Duration::ZERO,
            by_second: Vec::new(),
            resident_bytes: 0,
            before,
            after,
        };
        let f = figures(&m);
        assert_eq!((f.per_second, f.p50_us, f.p99_us, f.max_us), (200.0, 51.0, 100.0, 100.0));
        assert_eq!((f.mean_us, f.cpu_us, f.mib_per_second), (50.5, 10.0, 200.0));
        // Each write twice into the log (with its header block), once in place.
        assert_eq!(f.amplification, Some(3.0));
        assert_eq!(percentile(&[], 0.5), 0.0);
        let of = |kind| {
            let test = *TESTS.iter().find(|test| test.kind == kind).unwrap();
            figures(&Measured { test, ..m.clone() }).turn_us
        };
        assert_eq!((of(Kind::Write), of(Kind::Read)), (Some(0.0), None));
    }
}

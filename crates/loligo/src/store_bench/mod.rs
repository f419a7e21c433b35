//! `loligo store bench`: what a store makes of a disk.
//!
//! A store is made on the file or device, filled with objects of 4 MiB, and read and written in the
//! ways that are listed in [`TESTS`], one after the other, by the same runner that an OSD has, but
//! without messages and PGs. A write counts when it is durable. To compare with the disk itself, run
//! fio on the same file (then of the size that the bench gave it) or device:
//!
//! | test | fio `--direct=1 --ioengine=io_uring --time_based --runtime=N` and |
//! |---|---|
//! | `write 4M` | `--rw=write --bs=4M --iodepth=4` |
//! | `read 4M` | `--rw=randread --bs=4M --iodepth=4` |
//! | `read 4k QD1`, `QD32` | `--rw=randread --bs=4k --iodepth=1`, `32` |
//! | `durable write 4k QD1` | `--rw=randwrite --bs=4k --iodepth=1 --fsync=1`, and with `--sync=1` instead |
//! | `durable write 4k QD32` | `--rw=randwrite --bs=4k --iodepth=32` (fio's are not flushed) |

mod load;

use crate::cli::StoreBench;
use crate::disks::Disks;
use crate::failure::{Exit, Failure};
use crate::sizes::Bytes;
use crate::store_tool::{NewStore, mkfs};
use load::{Load, Measured};
use serde_json::{Value, json};
use store::{Config, Counters};
use types::{OsdId, Uuid};
use uring::Open;

/// What is done to the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Read,
}

/// One test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Test {
    pub name: &'static str,
    pub kind: Kind,
    /// Bytes of one operation.
    pub bytes: u64,
    /// Operations at a time.
    pub depth: usize,
    /// Objects are written one after the other, each once: how the store is filled.
    pub fill: bool,
}

/// Bytes of each object.
pub(crate) const OBJECT_BYTES: u64 = 4 << 20;

const fn test(name: &'static str, kind: Kind, bytes: u64, depth: usize) -> Test {
    Test { name, kind, bytes, depth, fill: false }
}

/// All of them, in the order in which they are run.
pub(crate) const TESTS: [Test; 6] = [
    Test { fill: true, ..test("write 4M", Kind::Write, OBJECT_BYTES, 4) },
    test("read 4M", Kind::Read, OBJECT_BYTES, 4),
    test("read 4k QD1", Kind::Read, 4096, 1),
    test("read 4k QD32", Kind::Read, 4096, 32),
    test("durable write 4k QD1", Kind::Write, 4096, 1),
    test("durable write 4k QD32", Kind::Write, 4096, 32),
];

/// The objects take no more than this part of the device, in percent.
const FILL_PERCENT: u64 = 50;
/// And no more than this, unless asked for.
const MAX_SPAN_BYTES: u64 = 8 << 30;

/// Carries out `loligo store bench`.
///
/// # Errors
/// When a store cannot be made there, or fails.
pub fn run(args: &StoreBench) -> Result<Exit, Failure> {
    let is_new = !args.path.exists();
    if is_new && args.size.is_none() {
        let why = format!("{} does not exist", args.path.display());
        return Err(Failure::new("cannot measure", why)
            .advise("Name a block device, or say how large a file to make with --size."));
    }
    mkfs(&NewStore {
        path: &args.path,
        wal: args.wal.as_deref(),
        cluster: Uuid::from_random(0),
        osd: OsdId(0),
        bytes: args.size.map(|b| b.0),
        force: args.force,
    })?;
    let measured = measure(args);
    if is_new {
        // It was made for this, and holds nothing anybody wants.
        let _ = std::fs::remove_file(&args.path);
    }
    let (span, measured) = measured?;
    if args.json {
        let tests: Vec<Value> = measured.iter().map(as_json).collect();
        let out = json!({"path": args.path, "span_bytes": span, "seconds": args.seconds,
            "tests": tests});
        println!("{out:#}");
    } else {
        println!("{} in objects of {}", Bytes(span), Bytes(OBJECT_BYTES));
        println!(
            "{:<24}{:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>7} {:>8}",
            "", "op/s", "MiB/s", "mean us", "p50 us", "p99 us", "max us", "CPU us", "written"
        );
        measured.iter().for_each(print);
    }
    Ok(Exit::Done)
}

fn measure(args: &StoreBench) -> Result<(u64, Vec<Measured>), Failure> {
    let disks = Disks::open(&args.path, args.wal.as_deref(), Open::Existing)?;
    let room = disks.devices.data.bytes / 100 * FILL_PERCENT;
    let span = args.span.map_or(room.min(MAX_SPAN_BYTES), |b| b.0.min(room));
    let objects = (span / OBJECT_BYTES).max(1);
    let memory = usize::try_from(args.memory.0).unwrap_or(usize::MAX);
    let config = Config::for_memory(memory);
    let mut load = Load::new(disks.devices.clone(), config, objects, args.seconds);
    let options = uring::Options { handle_signals: false, ..uring::Options::default() };
    let exit = uring::run(&mut load, disks.open, None, &options)
        .map_err(|e| Failure::new("cannot work on the store's disk", e).exit(Exit::Machine))?;
    if exit.code != 0 {
        return Err(Failure::new("the store failed while it was measured", exit.why));
    }
    Ok((objects * OBJECT_BYTES, load.measured))
}

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
}

fn figures(m: &Measured) -> Figures {
    let n = m.latencies_ns.len().max(1) as f64;
    let per_second = m.latencies_ns.len() as f64 / m.seconds.max(1e-9);
    Figures {
        per_second,
        mib_per_second: per_second * m.test.bytes as f64 / f64::from(1 << 20),
        mean_us: m.latencies_ns.iter().sum::<u64>() as f64 / n / 1e3,
        p50_us: percentile(&m.latencies_ns, 0.5),
        p99_us: percentile(&m.latencies_ns, 0.99),
        max_us: percentile(&m.latencies_ns, 1.0),
        cpu_us: m.cpu_seconds * 1e6 / n,
        amplification: amplification(m),
    }
}

fn print(m: &Measured) {
    let f = figures(m);
    let written = f.amplification.map_or_else(|| "-".to_owned(), |a| format!("{a:.2}x"));
    println!(
        "{:<24}{:>9.0} {:>9.1} {:>8.1} {:>8.1} {:>8.1} {:>9.1} {:>7.1} {:>8}",
        m.test.name,
        f.per_second,
        f.mib_per_second,
        f.mean_us,
        f.p50_us,
        f.p99_us,
        f.max_us,
        f.cpu_us,
        written
    );
}

fn as_json(m: &Measured) -> Value {
    let f = figures(m);
    json!({
        "name": m.test.name, "block_bytes": m.test.bytes, "depth": m.test.depth,
        "operations": m.latencies_ns.len(), "seconds": m.seconds,
        "per_second": f.per_second, "mib_per_second": f.mib_per_second,
        "latency_us": {"mean": f.mean_us, "p50": f.p50_us, "p99": f.p99_us, "max": f.max_us},
        "cpu_us": f.cpu_us, "write_amplification": f.amplification,
        "drain_seconds": m.drain_seconds,
    })
}

#[cfg(test)]
mod tests {
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
            test: TESTS[4],
            latencies_ns: (1..=100).map(|n| n * 1000).collect(),
            seconds: 0.5,
            cpu_seconds: 0.001,
            drain_seconds: 0.0,
            before,
            after,
        };
        let f = figures(&m);
        assert_eq!((f.per_second, f.p50_us, f.p99_us, f.max_us), (200.0, 51.0, 100.0, 100.0));
        assert_eq!((f.mean_us, f.cpu_us), (50.5, 10.0));
        // Each write twice into the log (with its header block), once in place.
        assert_eq!(f.amplification, Some(3.0));
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}

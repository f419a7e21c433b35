//! `loligo store bench`: what a store makes of a disk.
//!
//! A store is made on the file or device, filled with objects of 4 MiB, and read and written in the
//! ways that are listed in [`TESTS`], one after the other, by the same runner that an OSD has, but
//! without messages and PGs. A write counts when it is durable. `bench/store-against-fio` does it by
//! turns with fio on the same file:
//!
//! | test | fio `--direct=1 --ioengine=io_uring --time_based --runtime=N` and |
//! |---|---|
//! | `write 4M` | `--rw=write --bs=4M --iodepth=4` |
//! | `read 4M` | `--rw=randread --bs=4M --iodepth=4` |
//! | `read 4k QD1`, `QD32` | `--rw=randread --bs=4k --iodepth=1`, `32` |
//! | `durable write 4k QD1` | `--rw=randwrite --bs=4k --iodepth=1 --fsync=1`, and with `--sync=dsync` instead |
//! | `durable write 4k QD32` | `--rw=randwrite --bs=4k --iodepth=32` (fio's are not flushed) |
//!
//! Of the figures, `turn` is the most CPU time that one turn of the loop took, `wait` the longest time
//! for which the store turned writers away: the two ways in which its background work can hold up
//! those who write. The rest of the longest latency is the disk's.

mod crash;
mod figures;
mod load;

use crate::cli::StoreBench;
use crate::disks::Disks;
use crate::failure::{Exit, Failure};
use crate::sizes::Bytes;
use crate::store_tool::{NewStore, is_there, mkfs};
use figures::{as_json, print, print_foot, print_head};
use load::{Load, Measured};
use serde_json::{Value, json};
use store::{Config, Devices};
use types::{OsdId, Uuid};
use uring::Open;

/// What is done to the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Read,
}

/// When a test ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Each object was written once, one after the other: how the store is filled.
    Filled,
    /// The time is over.
    Time,
    /// So many times the bytes of all objects were written.
    Written {
        /// How many times.
        times: u64,
    },
    /// Little of the log is left, or the time is over. Nothing is put in place then: a crash comes.
    LogFull,
}

/// One test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Test {
    /// For the command line.
    pub id: &'static str,
    pub name: &'static str,
    pub kind: Kind,
    /// Bytes of one operation; 0: [`AGEING_BYTES`], by turns at random.
    pub bytes: u64,
    /// Operations at a time.
    pub depth: usize,
    pub until: Until,
    /// It comes after the ageing.
    pub aged: bool,
}

/// Bytes of each object, unless asked for otherwise.
pub(crate) const OBJECT_BYTES: u64 = 4 << 20;
/// Sizes of the writes that age a store.
pub(crate) const AGEING_BYTES: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

const fn test(
    id: &'static str,
    name: &'static str,
    kind: Kind,
    (bytes, depth): (u64, usize),
) -> Test {
    Test { id, name, kind, bytes, depth, until: Until::Time, aged: false }
}

/// How a store is filled; always the first.
const FILL: Test =
    Test { until: Until::Filled, ..test("fill", "write 4M", Kind::Write, (OBJECT_BYTES, 4)) };

/// All others, in the order in which they are run.
const TESTS: [Test; 6] = [
    test("read4m", "read 4M", Kind::Read, (OBJECT_BYTES, 4)),
    test("read4k-q1", "read 4k QD1", Kind::Read, (4096, 1)),
    test("read4k-q32", "read 4k QD32", Kind::Read, (4096, 32)),
    test("write4k-q1", "durable write 4k QD1", Kind::Write, (4096, 1)),
    test("write4k-q32", "durable write 4k QD32", Kind::Write, (4096, 32)),
    test("write4m", "overwrite 4M", Kind::Write, (OBJECT_BYTES, 4)),
];

/// What comes between the tests and their repetition on an aged store.
const AGEING: Test = test("age", "ageing", Kind::Write, (0, 32));
/// What comes before a crash.
const CRASH: Test =
    Test { until: Until::LogFull, ..test("crash", "write 4k, crash", Kind::Write, (4096, 32)) };

/// What is to be run, in this order.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub tests: Vec<Test>,
    pub object_bytes: u64,
    /// Bytes of all objects, if there is room.
    pub span: Option<u64>,
    /// Seconds of each test.
    pub seconds: u64,
}

/// The tests that `args` ask for.
fn plan(args: &StoreBench) -> Result<Plan, Failure> {
    let known = |id: &String| TESTS.iter().any(|t| t.id == id) || id == FILL.id;
    if let Some(id) = args.tests.iter().find(|id| !known(id)) {
        let ids: Vec<&str> = [FILL].iter().chain(&TESTS).map(|t| t.id).collect();
        return Err(Failure::new("cannot measure", format!("there is no test `{id}`"))
            .advise(format!("There are {}.", ids.join(", "))));
    }
    let object_bytes = args.object_size.map_or(OBJECT_BYTES, |b| b.0);
    let block = io::BLOCK_BYTES as u64;
    if object_bytes < block || !object_bytes.is_multiple_of(block) {
        let why = format!("objects cannot have {object_bytes} bytes");
        return Err(Failure::new("cannot measure", why).advise("Name a multiple of 4K."));
    }
    let wanted = |t: &&Test| match args.tests.as_slice() {
        [] => !args.crash,
        ids => ids.iter().any(|id| id == t.id),
    };
    let some: Vec<Test> = TESTS.iter().filter(wanted).copied().collect();
    let fill_depth = usize::try_from(OBJECT_BYTES / object_bytes).map_or(64, |n| n.clamp(4, 64));
    let mut tests = vec![Test { bytes: object_bytes, depth: fill_depth, ..FILL }];
    tests.extend(&some);
    if let Some(times) = args.age {
        tests.push(Test { until: Until::Written { times }, ..AGEING });
        tests.extend(some.iter().map(|t| Test { aged: true, ..*t }));
    }
    tests.extend(args.crash.then_some(CRASH));
    for t in &mut tests {
        t.bytes = t.bytes.min(object_bytes);
    }
    Ok(Plan { tests, object_bytes, span: args.span.map(|b| b.0), seconds: args.seconds })
}

/// Of the room that the new store has, the objects take no more than this, in percent.
const MOST_PERCENT: u64 = 95;
/// The objects take no more than this part of the device, in percent, unless asked for.
const FILL_PERCENT: u64 = 50;
/// And no more than this.
const MAX_SPAN_BYTES: u64 = 8 << 30;

/// How many objects there will be on a device with so much room.
pub(crate) fn objects(plan: &Plan, device_bytes: u64, available: u64) -> u64 {
    let usual = (device_bytes / 100 * FILL_PERCENT).min(MAX_SPAN_BYTES);
    let span = plan.span.unwrap_or(usual).min(available / 100 * MOST_PERCENT);
    (span / plan.object_bytes).max(1)
}

/// Carries out `loligo store bench`.
///
/// # Errors
/// When a store cannot be made there, or fails.
pub fn run(args: &StoreBench) -> Result<Exit, Failure> {
    let plan = plan(args)?;
    let is_new = !is_there(&args.path)?;
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
    let outcome = measure(args, plan);
    if is_new {
        // It was made for this, and holds nothing anybody wants.
        let _ = std::fs::remove_file(&args.path);
    }
    report(args, &outcome?);
    Ok(Exit::Done)
}

/// Everything that was found out.
struct Outcome {
    objects: u64,
    object_bytes: u64,
    measured: Vec<Measured>,
    mount: Option<crash::Mounted>,
}

fn measure(args: &StoreBench, plan: Plan) -> Result<Outcome, Failure> {
    let memory = usize::try_from(args.memory.0).unwrap_or(usize::MAX);
    // It is the device that is measured.
    let config = Config { block_cache_bytes: 0, ..Config::for_memory(memory) };
    let object_bytes = plan.object_bytes;
    let disks = Disks::open(&args.path, args.wal.as_deref(), Open::Existing)?;
    let devices: Devices = disks.devices.clone();
    // As for an OSD.
    uring::keep_freed_memory();
    uring::avoid_huge_pages();
    let mut load = Load::new(devices, config.clone(), plan);
    let options = uring::Options { handle_signals: false, ..uring::Options::default() };
    let exit = uring::run(&mut load, disks.open, None, &options)
        .map_err(|e| Failure::new("cannot work on the store's disk", e).exit(Exit::Machine))?;
    if exit.code != 0 {
        return Err(Failure::new("the store failed while it was measured", exit.why));
    }
    let (objects, measured) = (load.objects, load.measured);
    let mount = || crash::mount(&args.path, args.wal.as_deref(), &config);
    let mount = args.crash.then(mount).transpose()?;
    Ok(Outcome { objects, object_bytes, measured, mount })
}

fn report(args: &StoreBench, o: &Outcome) {
    let span = o.objects * o.object_bytes;
    if args.json {
        let tests: Vec<Value> = o.measured.iter().map(as_json).collect();
        let mount = o.mount.as_ref().map(crash::Mounted::as_json);
        let out = json!({"path": args.path, "span_bytes": span, "object_bytes": o.object_bytes,
            "memory_bytes": args.memory.0, "seconds": args.seconds, "tests": tests,
            "mount": mount});
        println!("{out:#}");
        return;
    }
    println!("{} in objects of {}", Bytes(span), Bytes(o.object_bytes));
    print_head();
    o.measured.iter().for_each(print);
    print_foot();
    if let Some(mount) = &o.mount {
        println!("{mount}");
    }
}

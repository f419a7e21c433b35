//! Whole clusters under faults, as many seeds as you like.
//!
//! `cargo run -p proof -- --seeds 300` runs clusters of the real mon, OSDs and clients on simulated
//! machines. Each seed draws a cluster, a load and faults. First, whatever happens, nothing that a
//! client hears may be wrong: each object's history must be linearizable, snapshots too. Then all
//! faults end, and within a bound everything must be answered, active, clean, and equal in all
//! copies. A failure names the command that repeats it, event for event. For many seeds there is a
//! profile: `cargo run --profile proof -p proof -- --seeds 20000`.

mod faults;
mod hot_path;
mod linear;
mod load;
mod object;
mod plan;
mod planted;
mod rig;
mod run;

use clap::Parser;
use plan::{Kind, Plan};
use run::{Report, run};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use types::testing::Probe;

/// Simulated clusters under faults, every history checked
#[derive(Debug, Parser)]
#[command(
    name = "proof",
    after_help = "For many seeds: cargo run --profile proof -p proof -- --seeds 20000, four times as fast"
)]
struct Cli {
    /// How many seeds
    #[arg(long, default_value_t = 100)]
    seeds: u64,

    /// The first of them
    #[arg(long, default_value_t = 1)]
    first: u64,

    /// Only this one, saying what goes wrong when
    #[arg(long, value_name = "SEED")]
    only: Option<u64>,

    /// Leave out faults of these kinds
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    without: Vec<String>,

    /// Pass over seeds that draw no faults of this kind
    #[arg(long, value_name = "KIND")]
    with: Option<String>,

    /// At most so many turns of the first phase
    #[arg(long)]
    turns: Option<u32>,

    /// Log of the daemons, too
    #[arg(long)]
    trace: bool,

    /// Failures after which no more seeds are begun
    #[arg(long, default_value_t = 3)]
    failures: usize,

    /// Plant bugs (one, or `all`), and run seeds until each is found
    #[arg(long, value_name = "BUG")]
    planted: Option<String>,

    /// Seconds after which no more seeds are begun
    #[arg(long)]
    seconds: Option<u64>,

    /// Run only this load, without faults: its instructions are to be counted
    #[arg(long, value_enum, value_name = "LOAD")]
    hot_path: Option<hot_path::HotPath>,

    /// Operations of it
    #[arg(long, default_value_t = 1000, requires = "hot_path")]
    operations: u64,
}

/// Blocks and messages come and go: with the system's allocator a tenth of the time goes there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

thread_local! {
    /// What the panic hook saw.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a plan; a panic is a failure like any other.
fn run_caught(plan: &Plan, loud: bool) -> Report {
    match catch_unwind(AssertUnwindSafe(|| run(plan, loud))) {
        Ok(report) => report,
        Err(_) => {
            let failure = Some(PANIC.with_borrow(Clone::clone));
            Report { failure, ..Report::default() }
        }
    }
}

fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        PANIC.with_borrow_mut(|text| *text = info.to_string());
    }));
}

/// What all runs came to.
#[derive(Default)]
struct Sums {
    seeds: u64,
    seconds: f64,
    events: u64,
    checked: u64,
    unreadable: u64,
    faults: BTreeMap<&'static str, u64>,
    probes: BTreeMap<Probe, u64>,
    failures: Vec<(u64, String)>,
}

impl Sums {
    fn add(&mut self, seed: u64, report: Report) {
        self.seeds += 1;
        self.seconds += report.time.as_secs_f64();
        self.events += report.events;
        self.checked += report.checked;
        self.unreadable += report.unreadable;
        report.faults.iter().for_each(|(k, n)| *self.faults.entry(k).or_default() += n);
        report.probes.iter().for_each(|(k, n)| *self.probes.entry(*k).or_default() += n);
        self.failures.extend(report.failure.map(|why| (seed, why)));
    }

    fn print(&self) {
        println!(
            "{} seeds, {:.2} simulated hours, {} events, {} operations checked",
            self.seeds,
            self.seconds / 3600.0,
            self.events,
            self.checked
        );
        let mut faults: Vec<_> = self.faults.iter().map(|(k, n)| (*n, *k)).collect();
        faults.sort_unstable_by(|a, b| b.cmp(a));
        println!("faults:");
        faults.iter().for_each(|(n, k)| println!("{n:10} {k}"));
        if self.unreadable > 0 {
            println!(
                "{:10} reads met no good copy (rot; the good ones were away)",
                self.unreadable
            );
        }
        println!("rare paths:");
        for probe in Probe::ALL {
            let n = self.probes.get(probe).copied().unwrap_or(0);
            println!("{n:10} {}{}", probe.what(), if n == 0 { "   <- never" } else { "" });
        }
    }
}

fn plan_of(seed: u64, cli: &Cli) -> Plan {
    let mut plan = Plan::new(seed);
    for name in &cli.without {
        if let Some(kind) = Kind::parse(name) {
            plan.kinds.remove(&kind);
        }
    }
    plan.turns = cli.turns.map_or(plan.turns, |t| t.min(plan.turns));
    plan
}

/// Whether a seed draws what is looked for.
fn is_wanted(seed: u64, cli: &Cli) -> bool {
    cli.with.as_deref().and_then(Kind::parse).is_none_or(|kind| Plan::new(seed).has(kind))
}

/// The smallest plan that still fails, of those with fewer kinds of faults and fewer turns.
fn shrink(mut plan: Plan, budget: u32) -> (Plan, String) {
    let mut story = run_caught(&plan, false).failure.unwrap_or_default();
    let mut tries = 0;
    let mut fails = |plan: &Plan| {
        tries += 1;
        if tries > budget { None } else { run_caught(plan, false).failure }
    };
    for kind in plan.kinds.clone() {
        let mut fewer = plan.clone();
        fewer.kinds.remove(&kind);
        if let Some(why) = fails(&fewer) {
            (plan, story) = (fewer, why);
        }
    }
    while plan.turns > 1 {
        let fewer = Plan { turns: plan.turns * 3 / 4, ..plan.clone() };
        let Some(why) = fails(&fewer) else { break };
        (plan, story) = (fewer, why);
    }
    (plan, story)
}

/// Runs of a plan that looking for a smaller one may take.
const SHRINK_RUNS: u32 = 40;

fn replay_line(plan: &Plan) -> String {
    let drawn = Plan::new(plan.seed);
    let without: Vec<_> = drawn.kinds.difference(&plan.kinds).map(|k| format!("{k:?}")).collect();
    let mut line = format!("cargo run -p proof -- --only {}", plan.seed);
    if !without.is_empty() {
        line += &format!(" --without {}", without.join(","));
    }
    if plan.turns != drawn.turns {
        line += &format!(" --turns {}", plan.turns);
    }
    line
}

fn tell_failure(plan: Plan) {
    let seed = plan.seed;
    let (plan, story) = shrink(plan, SHRINK_RUNS);
    println!("\nseed {seed} FAILED, with {:?}, {} turns:\n{story}", plan.kinds, plan.turns);
    println!("again: {}", replay_line(&plan));
}

fn run_all(cli: &Cli) -> Sums {
    #[expect(clippy::disallowed_methods, reason = "how long people wait is real time")]
    let begun = std::time::Instant::now();
    let next = AtomicU64::new(cli.first);
    let end = cli.first + cli.seeds;
    let stop = AtomicBool::new(false);
    let sums = Mutex::new(Sums::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    if !is_wanted(seed, cli) {
                        continue;
                    }
                    let report = run_caught(&plan_of(seed, cli), false);
                    let mut sums = sums.lock().expect("nobody panics with it");
                    if let Some(why) = &report.failure {
                        let first = why.lines().next().unwrap_or_default();
                        eprintln!("seed {seed} failed: {first}");
                    }
                    sums.add(seed, report);
                    if cli.seconds.is_some_and(|s| begun.elapsed().as_secs() >= s) {
                        stop.store(true, Ordering::Relaxed);
                    }
                    if sums.seeds.is_multiple_of(100) {
                        eprintln!("{} of {} seeds", sums.seeds, cli.seeds);
                    }
                    stop.fetch_or(sums.failures.len() >= cli.failures, Ordering::Relaxed);
                }
            });
        }
    });
    sums.into_inner().expect("nobody panics with it")
}

fn run_one(seed: u64, cli: &Cli) -> ExitCode {
    let plan = plan_of(seed, cli);
    println!("{plan:?}");
    let report = run(&plan, true);
    println!("{} events, fingerprint {:016x}", report.events, report.fingerprint);
    let failure = report.failure.clone();
    let mut sums = Sums::default();
    sums.add(seed, report);
    sums.print();
    if let Some(why) = failure {
        println!("\nFAILED: {why}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(load) = cli.hot_path {
        hot_path::run(load, cli.operations);
        return ExitCode::SUCCESS;
    }
    let mut kinds = cli.without.iter().chain(&cli.with);
    if let Some(unknown) = kinds.find(|n| Kind::parse(n).is_none()) {
        eprintln!("there is no kind of fault `{unknown}`; there are {:?}", Kind::ALL);
        return ExitCode::from(2);
    }
    if cli.trace {
        let level = tracing_subscriber::filter::LevelFilter::TRACE;
        tracing_subscriber::fmt().with_max_level(level).without_time().init();
    }
    if let Some(seed) = cli.only {
        if let Some(bug) = cli.planted.as_deref().and_then(planted::parse) {
            types::testing::plant(Some(bug));
        }
        return run_one(seed, &cli);
    }
    keep_panics();
    if let Some(name) = &cli.planted {
        return planted::find(name, &cli);
    }
    let sums = run_all(&cli);
    sums.print();
    for (seed, _) in &sums.failures {
        tell_failure(plan_of(*seed, &cli));
    }
    if sums.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

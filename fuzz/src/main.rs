//! Damaged bytes for every decoder.
//!
//! `cargo run -p fuzz` takes the samples of each decoder (the corpus in `vectors/`, and encodings of
//! our own), damages and mixes them, and feeds them in. Nothing may panic, take long, or ask for
//! memory by a length it was told. All is repeatable: the same seed gives the same inputs, and a
//! failure names the command that shows it again.
//!
//! There is no coverage feedback, so that it runs on a stable toolchain; samples of every type and
//! damage at the places that matter (lengths, counts, versions, ends) make up for much of it.

mod classes;
mod corpus;
mod disk;
mod mutate;
mod ours;
mod targets;

use clap::Parser;
use io::Rng;
use loligo::wait::Deadline;
use mutate::mutate;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;
use targets::{TARGETS, Target};

/// Address space of the process: a decoder that believes a length of gigabytes ends here.
const ADDRESS_SPACE_BYTES: u64 = 4 << 30;
/// One input that takes longer is a failure, too; generous, since machines are shared.
const SLOW: Duration = Duration::from_secs(5);
/// Inputs between two looks at the clock.
const BATCH: u64 = 64;

/// Feed damaged bytes to decoders
#[derive(Debug, Parser)]
#[command(name = "fuzz")]
struct Cli {
    /// Decoders; all if none is named
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,

    /// Seconds for each
    #[arg(long, default_value_t = 3)]
    seconds: u64,

    /// Seed of everything
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Only this input
    #[arg(long, value_name = "N")]
    only: Option<u64>,

    /// Feed a file as it is
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Say which input comes next: for a process that is ended from outside
    #[arg(long)]
    trace: bool,

    /// List the decoders
    #[arg(long)]
    list: bool,
}

/// What the panic hook says.
static CURRENT: Mutex<String> = Mutex::new(String::new());

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.list {
        TARGETS.iter().for_each(|t| println!("{:10} {}", t.name, t.what));
        return ExitCode::SUCCESS;
    }
    if let Some(unknown) = cli.targets.iter().find(|n| !TARGETS.iter().any(|t| t.name == **n)) {
        eprintln!("there is no decoder `{unknown}`; --list shows them");
        return ExitCode::from(2);
    }
    prepare();
    let wanted = |t: &&Target| cli.targets.is_empty() || cli.targets.iter().any(|n| n == t.name);
    for target in TARGETS.iter().filter(wanted) {
        if let Err(why) = run(target, &cli) {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn prepare() {
    let old = getrlimit(Resource::As);
    let limit = old.maximum.map_or(ADDRESS_SPACE_BYTES, |max| max.min(ADDRESS_SPACE_BYTES));
    // Without the limit the search goes on, only less strictly.
    let _ = setrlimit(Resource::As, Rlimit { current: Some(limit), maximum: old.maximum });
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default(info);
        if let Ok(current) = CURRENT.lock() {
            eprintln!("it is {current}");
        }
        // Whatever the profile does with panics: this is the end.
        std::process::exit(1);
    }));
}

fn say_current(what: String) {
    if let Ok(mut current) = CURRENT.lock() {
        *current = what;
    }
}

fn run(target: &Target, cli: &Cli) -> Result<(), String> {
    if let Some(path) = &cli.file {
        let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        say_current(format!("{} on {}", target.name, path.display()));
        (target.feed)(&bytes);
        return Ok(());
    }
    let samples = (target.samples)();
    if samples.is_empty() {
        return Err(format!("{} has no samples: is `vectors/` there?", target.name));
    }
    if let Some(only) = cli.only {
        return one(target, cli, &samples, only);
    }
    // As they are: a decoder that refuses its own samples is not tested by damaged ones.
    say_current(format!("a sample of {}, as it is", target.name));
    let accepted = samples.iter().filter(|s| (target.feed)(s)).count();
    if accepted == 0 {
        return Err(format!("{} accepts none of its {} samples", target.name, samples.len()));
    }
    let deadline = Deadline::after(Duration::from_secs(cli.seconds));
    let mut n = 0;
    while !deadline.is_over() {
        for i in n..n + BATCH {
            one(target, cli, &samples, i)?;
        }
        n += BATCH;
    }
    let samples = samples.len();
    println!(
        "{:10} {n} inputs from {samples} samples ({accepted} accepted as they are)",
        target.name
    );
    Ok(())
}

/// Feeds the input of this number.
fn one(target: &Target, cli: &Cli, samples: &[Vec<u8>], n: u64) -> Result<(), String> {
    let again = format!("`cargo run -p fuzz -- {} --seed {} --only {n}`", target.name, cli.seed);
    if cli.trace {
        eprintln!("{again}");
    }
    let mut rng = Rng::with_seed(cli.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n));
    let input = mutate(&mut rng, samples);
    let took = Deadline::after(SLOW);
    say_current(again.clone());
    (target.feed)(&input);
    if took.is_over() {
        return Err(format!(
            "an input of {} bytes took {:?}: {again}",
            input.len(),
            took.elapsed()
        ));
    }
    Ok(())
}

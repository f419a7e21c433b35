//! The check of the check: bugs are planted, and each must be found.

use crate::{Cli, is_wanted, plan_of, run_caught};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use types::testing::{Bug, plant};

/// Clients see nothing of this one: recovery looks at the blocks as well (`osd::share`, and its test).
const UNSEEN: Bug = Bug::OverlapTooWide;

/// The bug of this name.
pub fn parse(name: &str) -> Option<Bug> {
    Bug::ALL.iter().copied().find(|b| format!("{b:?}").eq_ignore_ascii_case(name))
}

/// By what a bug was found.
struct Found {
    seed: u64,
    by: String,
}

/// Runs seeds with a bug until one shows it.
fn seek(bug: Bug, cli: &Cli) -> Option<Found> {
    plant(Some(bug));
    let mut seeds = (cli.first..cli.first + cli.seeds).filter(|seed| is_wanted(*seed, cli));
    let found = seeds.find_map(|seed| {
        let failure = run_caught(&plan_of(seed, cli), false).failure?;
        Some(Found { seed, by: summary(&failure) })
    });
    plant(None);
    found
}

/// What showed it, in a line.
fn summary(failure: &str) -> String {
    let mut lines = failure.lines();
    let first = lines.next().unwrap_or_default();
    // The message of a panic stands behind its place.
    let line = match first.strip_prefix("panicked at ") {
        Some(place) => {
            let file = place.split(':').next().unwrap_or_default();
            format!("assert in `{file}`: {}", lines.next().unwrap_or_default())
        }
        None => first.to_owned(),
    };
    line.replace('|', "/").chars().take(160).collect()
}

/// Plants one bug, or all of them, and prints the list of what found each.
pub fn find(name: &str, cli: &Cli) -> ExitCode {
    let bugs: Vec<Bug> = match (name, parse(name)) {
        ("all", _) => Bug::ALL.iter().copied().filter(|b| *b != UNSEEN).collect(),
        (_, Some(bug)) => vec![bug],
        _ => {
            eprintln!("there is no bug `{name}`; there are {:?}", Bug::ALL);
            return ExitCode::from(2);
        }
    };
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = seek(*bug, cli);
                    let at = result.as_ref().map_or("not found".into(), |f| f.seed.to_string());
                    eprintln!("{bug:?}: {at}");
                    found.lock().expect("nobody panics with it").push((*bug, result));
                }
            });
        }
    });
    let mut found = found.into_inner().expect("nobody panics with it");
    found.sort_by_key(|(bug, _)| *bug);
    println!("| planted bug | what it does | seed | what showed it |\n|---|---|---|---|");
    for (bug, result) in &found {
        match result {
            Some(f) => println!("| `{bug:?}` | {} | {} | {} |", bug.what(), f.seed, f.by),
            None => {
                println!("| `{bug:?}` | {} | **none** | not in {} seeds |", bug.what(), cli.seeds)
            }
        }
    }
    let all = found.iter().all(|(_, result)| result.is_some());
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

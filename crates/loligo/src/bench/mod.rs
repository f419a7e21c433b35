//! `loligo bench`: our own client as a load, with fio's words.
//!
//! Each job is a [`client::Client`] of its own in a core of its own, on a thread of its own
//! ([`job`]): an operation is submitted and its end taken in the loop that also sends and receives,
//! without a channel or another thread between. Latency is from the turn of the loop in which an
//! operation was submitted to the one that took its answer in.

mod blocks;
mod content;
mod figures;
mod job;
mod options;
mod target;

use crate::failure::{Context, Exit, Failure};
use crate::sizes::Bytes;
use crate::sync_client::entropy;
use figures::{Measured, as_json, as_text};
use job::{Arena, Job};
pub use options::BenchArgs;
use options::{Plan, What};
use std::sync::Arc;

/// Carries out `loligo bench`.
///
/// # Errors
/// When the load makes no sense, a job failed, or what was read back is not what was written.
pub fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    let plan = Arc::new(Plan::of(&args.command, entropy())?);
    if let Some(warning) = warning(&plan) {
        eprintln!("{warning}");
    }
    let measured = measure(&plan)?;
    if args.command.load().json {
        println!("{:#}", as_json(&measured, &plan));
    } else {
        print!("{}", as_text(&measured, &plan));
    }
    Ok(Exit::Done)
}

/// What is going to be overwritten, or removed.
fn warning(plan: &Plan) -> Option<String> {
    match &plan.what {
        What::Image { name } => {
            let part =
                plan.size.map_or("all".to_owned(), |size| format!("the first {}", Bytes(size)));
            let text = format!("writing over {part} of image {}/{name}", plan.pool);
            plan.rw.writes().then_some(text)
        }
        What::Objects { prefix, fill, cleanup, .. } => {
            let which = format!("objects {prefix}.* in pool {}", plan.pool);
            let end = "removing them at the end";
            match (*fill || plan.rw.writes(), *cleanup) {
                (true, true) => Some(format!("writing {which}, and {end}")),
                (true, false) => Some(format!("writing {which}")),
                (false, true) => Some(format!("reading {which}, and {end}")),
                (false, false) => None,
            }
        }
    }
}

/// Runs all jobs to their end.
fn measure(plan: &Arc<Plan>) -> Result<Measured, Failure> {
    // As for an OSD: freed memory is needed again at once.
    uring::keep_freed_memory();
    uring::avoid_huge_pages();
    let arena = Arc::new(Arena::default());
    let mut threads = Vec::new();
    for number in 0..plan.jobs {
        let (plan, arena) = (plan.clone(), arena.clone());
        let run = move || Job::run(plan, number, arena);
        let thread = std::thread::Builder::new().name(format!("job-{number}")).spawn(run);
        threads.push(thread.context(|| "cannot start a thread".into())?);
    }
    let mut all = Measured::default();
    let mut failed = None;
    for thread in threads {
        match thread.join() {
            Ok(Ok(measured)) => all.merge(&measured),
            Ok(Err(why)) => failed = failed.or(Some(why)),
            Err(_) => failed = failed.or(Some(Failure::new("cannot measure", "a job panicked"))),
        }
    }
    match failed.or(arena.first_failure()) {
        Some(why) => Err(why),
        None => Ok(all),
    }
}

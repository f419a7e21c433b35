//! `loligo dev stop`: ends the daemons in good order.

use super::layout;
use super::process::{self, Ended};
use super::state::{Lock, State};
use crate::cli::DevWhere;
use crate::failure::{Exit, Failure};
use serde_json::json;

/// Carries out `loligo dev stop`.
///
/// # Errors
/// When a daemon does not end.
pub fn run(place: &DevWhere) -> Result<Exit, Failure> {
    let layout = layout(place)?;
    let state = State::existing(&layout)?;
    let _lock = Lock::take(&layout)?;
    let mut daemons = state.daemons();
    // OSDs first: they tell the monitor that they go.
    daemons.reverse();
    let mut ends = Vec::new();
    for daemon in daemons {
        let end = process::stop(&layout, daemon)?;
        if end == Ended::Killed && !place.json {
            eprintln!("{daemon} did not end by itself and was killed; its log says more");
        }
        ends.push((daemon, end));
    }
    let stopped = ends.iter().filter(|(_, e)| *e != Ended::WasNot).count();
    if place.json {
        let word = |e: Ended| match e {
            Ended::WasNot => "did not run",
            Ended::Orderly => "stopped",
            Ended::Killed => "killed",
        };
        let all: serde_json::Map<_, _> =
            ends.iter().map(|(d, e)| (d.to_string(), word(*e).into())).collect();
        println!("{}", json!({"dir": layout.dir(), "daemons": all}));
    } else if stopped == 0 {
        println!("The cluster in {} was not running.", layout.dir().display());
    } else {
        println!("Stopped {stopped} daemons of the cluster in {}.", layout.dir().display());
    }
    Ok(Exit::Done)
}

//! `loligo dev stop`: ends the daemons in good order.

use super::layout;
use super::layout::DaemonId;
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
    let (ends, failed) = stop_all(daemons, |daemon| {
        let end = process::stop(&layout, daemon)?;
        if end == Ended::Killed && !place.json {
            eprintln!("{daemon} did not end by itself and was killed; its log says more");
        }
        Ok(end)
    });
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
    let mut failed = failed.into_iter();
    let first = failed.next();
    failed.for_each(|why| eprintln!("loligo: {why}"));
    first.map_or(Ok(Exit::Done), Err)
}

/// Stops them all, also when some do not end.
fn stop_all(
    daemons: Vec<DaemonId>,
    mut stop: impl FnMut(DaemonId) -> Result<Ended, Failure>,
) -> (Vec<(DaemonId, Ended)>, Vec<Failure>) {
    let (mut ends, mut failed) = (Vec::new(), Vec::new());
    for daemon in daemons {
        match stop(daemon) {
            Ok(end) => ends.push((daemon, end)),
            Err(why) => failed.push(why),
        }
    }
    (ends, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_does_not_end_keeps_no_other_running() {
        let osds = [DaemonId::Osd(0), DaemonId::Osd(1), DaemonId::Osd(2)];
        let (ends, failed) = stop_all(osds.to_vec(), |daemon| match daemon {
            DaemonId::Osd(1) => Err(Failure::new("cannot stop osd.1", "its disk may hang")),
            _ => Ok(Ended::Orderly),
        });
        assert_eq!(ends, [(osds[0], Ended::Orderly), (osds[2], Ended::Orderly)]);
        assert_eq!(failed.len(), 1);
    }
}

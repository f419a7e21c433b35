//! `loligo mon`: wires the monitor's core to its cluster store and the runner.

use super::{prepare, run_core};
use crate::cli::MonArgs;
use crate::failure::{Exit, Failure};

/// The monitor's data folder holds its cluster store under this name.
pub const STORE: &str = "store.redb";

/// Runs a monitor to its end.
///
/// # Errors
/// When it cannot start, or stopped for a reason.
pub fn run(args: &MonArgs) -> Result<Exit, Failure> {
    let _pid_file = prepare(&args.daemon)?;
    let _ = run_core;
    Err(Failure::new("cannot run a monitor", "this build has none"))
}

//! `loligo osd`: wires an OSD's core to its disk and the runner.

use super::{prepare, run_core};
use crate::cli::OsdArgs;
use crate::failure::{Exit, Failure};

/// Runs an OSD to its end.
///
/// # Errors
/// When it cannot start, or stopped for a reason.
pub fn run(args: &OsdArgs) -> Result<Exit, Failure> {
    let _pid_file = prepare(&args.daemon)?;
    let _ = run_core;
    Err(Failure::new("cannot run an OSD", "this build has none"))
}

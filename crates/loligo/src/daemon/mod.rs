//! What both daemons' processes do: leave the terminal, hold the pid file, run a core to its end.

pub mod mon;
pub mod osd;
pub mod pid;

use crate::cli::DaemonArgs;
use crate::failure::{Context, Exit, Failure};
use io::Core;
use io::kv::ClusterStore;
use pid::PidFile;

/// Prepares the process. The pid file is held as long as what is given back lives.
fn prepare(args: &DaemonArgs) -> Result<Option<PidFile>, Failure> {
    if args.detached {
        // It fails for a process that leads its group, which is as good.
        let _ = rustix::process::setsid();
    }
    args.pid_file.as_deref().map(PidFile::take).transpose()
}

/// Runs a daemon to its end.
fn run_core(
    name: &str,
    core: &mut dyn Core,
    devices: Vec<uring::Device>,
    kv: Option<Box<dyn ClusterStore>>,
) -> Result<Exit, Failure> {
    let ended = uring::run(core, devices, kv, &uring::Options::default());
    let exit = ended.context(|| format!("{name} cannot run")).map_err(|f| f.exit(Exit::Machine))?;
    if exit.code == 0 {
        tracing::info!("{name}: {}", exit.why);
        return Ok(Exit::Done);
    }
    Err(Failure::new(format!("{name} has stopped"), exit.why))
}

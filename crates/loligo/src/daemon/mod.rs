//! What both daemons' processes do: leave the terminal, hold the pid file, run a core to its end.

mod crash;
pub mod mon;
pub mod osd;
pub mod pid;

use crate::cli::DaemonArgs;
use crate::conf::ClientConf;
use crate::failure::{Context, Exit, Failure};
use crate::sync_client::entropy;
use io::Core;
use io::kv::ClusterStore;
use pid::PidFile;
use types::AddrVec;

/// Prepares the process of `name`. The pid file is held as long as what is given back lives.
fn prepare(args: &DaemonArgs, name: &str, mons: Vec<AddrVec>) -> Result<Option<PidFile>, Failure> {
    if args.detached {
        // It fails for a process that leads its group, which is as good.
        let _ = rustix::process::setsid();
    }
    let pid_file = args.pid_file.as_deref().map(PidFile::take).transpose()?;
    if let Some(dir) = &args.crash_dir {
        crash::note_panics(dir, name);
        crash::post_all(dir, &ClientConf { fsid: None, mons })?;
    }
    Ok(pid_file)
}

/// Tells this life of a daemon from others at the same address; never 0.
fn nonce() -> u32 {
    (entropy() >> 32) as u32 | 1
}

/// Runs a daemon's core to its end.
fn run_core(
    name: &str,
    core: &mut dyn Core,
    devices: Vec<uring::Device>,
    kv: Option<Box<dyn ClusterStore>>,
) -> Result<io::Exit, Failure> {
    uring::keep_freed_memory();
    uring::avoid_huge_pages();
    let ended = uring::run(core, devices, kv, &uring::Options::default());
    let exit = ended.context(|| format!("cannot run {name}")).map_err(|f| f.exit(Exit::Machine))?;
    if exit.code == 0 {
        tracing::info!("{name}: {}", exit.why);
    }
    Ok(exit)
}

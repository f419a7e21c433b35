//! What both daemons' processes do: leave the terminal, hold the pid file, run a core to its end.

mod crash;
pub mod mon;
pub mod osd;
pub mod pid;

use crate::cli::DaemonArgs;
use crate::conf::ClientConf;
use crate::failure::{Context, Exit, Failure};
use crate::sync_client::entropy;
use admin::settings::{SettingError, Settings, Source};
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

/// That a daemon has the options that it is given, and can be set like that.
fn check_settings(
    who: &str,
    given: &[(String, String)],
    mut known: Settings,
) -> Result<(), Failure> {
    for (name, value) in given {
        let why = match known.set(Source::File, name, value) {
            Ok(_) => continue,
            Err(SettingError::Unknown(_)) => format!("{who} has no such option"),
            Err(why) => why.to_string(),
        };
        return Err(Failure::new(format!("--set {name}={value}"), why).advise(
            "`ceph daemon ... config show` lists the options, `config help` explains one.",
        ));
    }
    Ok(())
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
    let options =
        uring::Options { reopen_log: Some(crate::logging::reopen), ..uring::Options::default() };
    let ended = uring::run(core, devices, kv, &options);
    let exit = ended.context(|| format!("cannot run {name}")).map_err(|f| f.exit(Exit::Machine))?;
    if exit.code == 0 {
        tracing::info!("{name}: {}", exit.why);
    }
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_a_daemon_has_not_are_refused() {
        let said = |name: &str, value: &str| {
            let given = [(name.to_owned(), value.to_owned())];
            check_settings("a mon", &given, ::mon::known_settings()).map_err(|f| f.to_string())
        };
        assert_eq!(said("osd_pool_default_size", "2"), Ok(()));
        assert!(said("osd_pool_default_sise", "2").unwrap_err().contains("has no such option"));
        assert!(said("osd_pool_default_size", "x").unwrap_err().contains("=x"));
    }
}

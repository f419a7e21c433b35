//! The daemons of a development cluster as processes.

use super::layout::{DaemonId, Layout, MON_NAME};
use super::state::{DEFAULT_COPIES, State};
use crate::daemon::pid;
use crate::failure::{Context, Failure};
use crate::wait::Deadline;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What a cluster for trying things out allows, and one with precious data should not.
const MON_OPTIONS: [&str; 4] = [
    "mon_allow_pool_delete=true",
    "mon_allow_pool_size_one=true",
    // That the disk of who tries it out is well filled is nothing to warn of (as in Ceph's vstart.sh).
    "mon_data_avail_warn=2",
    "mon_data_avail_crit=1",
];
/// How often is looked whether a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time for an orderly end.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// Time for the kernel to end a killed process.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A daemon that this command started.
#[derive(Debug)]
pub struct Started {
    /// Which.
    pub daemon: DaemonId,
    child: Child,
    /// Where its log began.
    log_from: u64,
}

/// The process of a daemon, if it runs.
pub fn running(layout: &Layout, daemon: DaemonId) -> Option<Pid> {
    pid::holder(&layout.pid(daemon))
}

/// Starts a daemon, detached from this terminal. What it says goes to its log, panics and last words as well.
///
/// # Errors
/// When there is no process to be had.
pub fn start(layout: &Layout, state: &State, daemon: DaemonId) -> Result<Started, Failure> {
    let what = || format!("cannot start {daemon}");
    let log_path = layout.log(daemon);
    let log = OpenOptions::new().create(true).append(true).open(&log_path).context(what)?;
    let log_from = log.metadata().map_or(0, |m| m.len());
    let program = std::env::current_exe().context(what)?;
    let mut command = Command::new(&program);
    match daemon {
        DaemonId::Mon => {
            command.args(["mon", "--name", MON_NAME, "--addr", &state.mon_addr().to_string()]);
            command.args(MON_OPTIONS.iter().flat_map(|option| ["--set", option]));
            // A pool of more copies than there are OSDs would take no write.
            let copies = state.copies();
            if copies < DEFAULT_COPIES {
                command.args(["--set", &format!("osd_pool_default_size={copies}")]);
            }
        }
        DaemonId::Osd(id) => {
            let namespace = state.namespace(id);
            if let Some((name, _)) = &namespace {
                command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(&program);
            }
            command.args(["osd", "--id", &id.to_string()]);
            command.args(["--mon", &state.mon_addr().to_string()]);
            if let Some((_, addr)) = namespace {
                command.args(["--addr", &addr.to_string()]);
            }
            // Each OSD is a host of its own for CRUSH: copies go to different OSDs.
            command.args(["--host", &format!("host{id}")]);
        }
    }
    command.args(["--fsid", &state.fsid, "--detached", "--data"]).arg(layout.data(daemon));
    command.arg("--pid-file").arg(layout.pid(daemon));
    command.arg("--admin-socket").arg(layout.admin_socket(daemon));
    command.arg("--crash-dir").arg(layout.crashes());
    command.arg("--log").arg(&log_path);
    let child = command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone().context(what)?)
        .stderr(log)
        .spawn()
        .context(what)?;
    Ok(Started { daemon, child, log_from })
}

impl Started {
    /// Why it has ended already, if it has.
    pub fn failure(&mut self, layout: &Layout) -> Option<Failure> {
        let status = self.child.try_wait().ok().flatten()?;
        let log = layout.log(self.daemon);
        let said = said_last(&log, self.log_from);
        let why = if said.is_empty() { format!("it ended at once ({status})") } else { said };
        let mut failure = Failure::new(format!("cannot start {}", self.daemon), why)
            .advise(format!("Its log is {}.", log.display()));
        failure.exit = match status.code() {
            Some(4) => crate::Exit::Machine,
            Some(5) => crate::Exit::Refused,
            _ => crate::Exit::Failed,
        };
        Some(failure)
    }
}

/// What a daemon said at its end: its `loligo: ...` line and what follows, or its last lines.
fn said_last(log: &Path, from: u64) -> String {
    const MAX_BYTES: u64 = 16 << 10;
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(log) {
        let end = file.metadata().map_or(0, |m| m.len());
        let from = from.max(end.saturating_sub(MAX_BYTES));
        if file.seek(SeekFrom::Start(from)).is_ok() {
            let _ = file.take(MAX_BYTES).read_to_end(&mut text);
        }
    }
    let text = String::from_utf8_lossy(&text);
    if let Some((_, said)) = text.rsplit_once("loligo: ") {
        return said.trim_end().to_owned();
    }
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n  ")
}

/// How a daemon was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It did not run.
    WasNot,
    /// In good order.
    Orderly,
    /// It had to be killed.
    Killed,
}

/// Ends a daemon. Only a process that holds the daemon's pid file is ever signalled.
///
/// # Errors
/// When it does not end.
pub fn stop(layout: &Layout, daemon: DaemonId) -> Result<Ended, Failure> {
    let Some(pid) = running(layout, daemon) else {
        return Ok(Ended::WasNot);
    };
    let what = || format!("cannot stop {daemon} (process {})", pid.as_raw_nonzero());
    let gone = || running(layout, daemon) != Some(pid);
    // False when it has just ended by itself.
    let tell = |signal| match kill_process(pid, signal) {
        Err(rustix::io::Errno::SRCH) => Ok(false),
        told => told.map(|()| true).context(what),
    };
    if !tell(Signal::TERM)? {
        return Ok(Ended::Orderly);
    }
    if Deadline::after(STOP_LIMIT).until(LOOK_EVERY, gone) {
        return Ok(Ended::Orderly);
    }
    if !tell(Signal::KILL)? {
        return Ok(Ended::Orderly);
    }
    if Deadline::after(KILL_LIMIT).until(LOOK_EVERY, gone) {
        return Ok(Ended::Killed);
    }
    Err(Failure::new(what(), "it does not end, not even when killed; its disk may hang"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its pid file may be held a moment longer, by what it has started.
    #[test]
    fn a_daemon_that_ends_by_itself_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().to_owned());
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let path = layout.pid(DaemonId::Osd(0));
        let _held = pid::PidFile::take(&path).unwrap();
        std::fs::write(&path, format!("{pid}\n")).unwrap();
        assert_eq!(stop(&layout, DaemonId::Osd(0)).unwrap(), Ended::Orderly);
        assert_eq!(stop(&layout, DaemonId::Osd(1)).unwrap(), Ended::WasNot);
    }
}

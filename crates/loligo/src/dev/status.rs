//! `loligo dev status`: what runs, how the cluster is, and how to use it.

use super::health::Health;
use super::layout::{DaemonId, Layout};
use super::process;
use super::state::State;
use super::{layout, layout::MON_NAME};
use crate::SyncClient;
use crate::cli::DevWhere;
use crate::conf::ClientConf;
use crate::failure::{Exit, Failure};
use crate::files::quoted;
use crate::sizes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// How long the monitor may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Carries out `loligo dev status`.
///
/// # Errors
/// When there is no cluster.
pub fn run(place: &DevWhere) -> Result<Exit, Failure> {
    let layout = layout(place)?;
    let state = State::existing(&layout)?;
    show(&layout, &state, place, None)
}

/// What is known of a process.
struct Process {
    daemon: DaemonId,
    pid: Option<i32>,
    memory: u64,
}

fn look_at(layout: &Layout, daemon: DaemonId) -> Process {
    let pid = process::running(layout, daemon).map(|p| p.as_raw_nonzero().get());
    let memory = pid.and_then(|pid| uring::resident_bytes(u32::try_from(pid).ok()?));
    Process { daemon, pid, memory: memory.unwrap_or(0) }
}

fn ask(layout: &Layout) -> Result<Health, String> {
    let conf = ClientConf::load(&layout.conf()).map_err(|e| e.to_string())?;
    let mut client = SyncClient::connect(&conf, PATIENCE).map_err(|e| e.to_string())?;
    let health = Health::ask(&mut client).map_err(|e| e.to_string());
    let _ = client.close();
    health
}

/// Shows the cluster; `started`: how long it took to start it just now.
///
/// # Errors
/// When it cannot be printed.
pub fn show(
    layout: &Layout,
    state: &State,
    place: &DevWhere,
    started: Option<Duration>,
) -> Result<Exit, Failure> {
    let processes: Vec<Process> = state.daemons().into_iter().map(|d| look_at(layout, d)).collect();
    let mon_runs = processes.iter().any(|p| p.daemon == DaemonId::Mon && p.pid.is_some());
    let health = if mon_runs { ask(layout) } else { Err("the monitor does not run".to_owned()) };
    if place.json {
        println!("{:#}", as_json(layout, state, &processes, &health, started));
    } else {
        print!("{}", as_text(layout, &processes, &health, started));
    }
    Ok(verdict(&processes, &health))
}

fn verdict(processes: &[Process], health: &Result<Health, String>) -> Exit {
    if processes.iter().any(|p| p.pid.is_none()) {
        return Exit::NotRunning;
    }
    if health.is_ok() { Exit::Done } else { Exit::Failed }
}

fn as_json(
    layout: &Layout,
    state: &State,
    processes: &[Process],
    health: &Result<Health, String>,
    started: Option<Duration>,
) -> Value {
    let daemons: serde_json::Map<String, Value> = processes
        .iter()
        .map(|p| {
            let value = json!({
                "running": p.pid.is_some(), "pid": p.pid, "resident_bytes": p.memory,
                "data": layout.data(p.daemon), "log": layout.log(p.daemon),
                "admin_socket": layout.admin_socket(p.daemon),
            });
            (p.daemon.to_string(), value)
        })
        .collect();
    let cluster = match health {
        Err(why) => json!({"error": why}),
        Ok(h) => json!({
            "status": h.status, "checks": h.checks, "osds": h.osds, "osds_up": h.osds_up,
            "pools": h.pools, "pgs": h.pgs, "clean": h.is_clean(),
            "pgs_by_state": h.pg_states.iter().cloned().collect::<BTreeMap<_, _>>(),
            "bytes_free": h.bytes.0, "bytes_total": h.bytes.1,
        }),
    };
    let mut all = json!({
        "dir": layout.dir(), "conf": layout.conf(), "fsid": state.fsid,
        "mon": state.mon_addr().to_string(), "daemons": daemons, "cluster": cluster,
    });
    if let Some(took) = started {
        all["start_seconds"] = took.as_secs_f64().into();
    }
    all
}

fn as_text(
    layout: &Layout,
    processes: &[Process],
    health: &Result<Health, String>,
    started: Option<Duration>,
) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_text(&mut out, layout, processes, health, started);
    out
}

fn write_text(
    out: &mut String,
    layout: &Layout,
    processes: &[Process],
    health: &Result<Health, String>,
    started: Option<Duration>,
) -> std::fmt::Result {
    let dir = layout.dir().display();
    if let Some(took) = started {
        let how = if health.as_ref().is_ok_and(Health::is_clean) { "up and clean" } else { "up" };
        writeln!(out, "The cluster in {dir} is {how} after {:.1} s.", took.as_secs_f64())?;
    } else {
        writeln!(out, "Cluster in {dir}")?;
    }
    match health {
        Err(why) => writeln!(out, "  health   unknown: {why}")?,
        Ok(h) => {
            writeln!(out, "  health   {}", h.status)?;
            for check in &h.checks {
                writeln!(out, "           {check}")?;
            }
            writeln!(out, "  OSDs     {} up of {}", h.osds_up, h.osds)?;
            writeln!(out, "  PGs      {}", h.pg_summary())?;
            let (free, total) = (Bytes(h.bytes.0), Bytes(h.bytes.1));
            writeln!(out, "  space    {free} free of {total}")?;
        }
    }
    for p in processes {
        match p.pid {
            Some(pid) => {
                let name = p.daemon.to_string();
                writeln!(out, "  {name:8} process {pid}, {} of memory", Bytes(p.memory))?;
            }
            None => writeln!(out, "  {:8} does not run", p.daemon.to_string())?,
        }
    }
    let (program, dir) = (program(), quoted(layout.dir()));
    if processes.iter().any(|p| p.pid.is_none()) {
        return writeln!(out, "Start it: {program} dev start --dir {dir}");
    }
    let conf = quoted(&layout.conf());
    writeln!(out, "\nUse it with Ceph's own tools:")?;
    writeln!(out, "  CEPH_CONF={conf} rados -p rbd put greeting /etc/hostname")?;
    writeln!(out, "  CEPH_CONF={conf} rados -p rbd get greeting -")?;
    writeln!(out, "  CEPH_CONF={conf} ceph -s")?;
    writeln!(out, "  CEPH_CONF={conf} ceph daemon osd.0 status")?;
    writeln!(out, "or, for all that follows in this shell: export CEPH_CONF={conf}")?;
    writeln!(out, "Stop it: {program} dev stop --dir {dir}")?;
    writeln!(out, "Logs are in {dir}: mon.{MON_NAME}.log, osd.0.log, ...")
}

/// How this program can be called again: it need not be in the PATH.
fn program() -> String {
    std::env::current_exe().map_or_else(|_| "loligo".to_owned(), |path| quoted(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_that_does_not_answer_is_no_success() {
        let process = |pid| Process { daemon: DaemonId::Mon, pid, memory: 0 };
        let (silent, well) = (Err("timed out".to_owned()), Ok(Health::default()));
        assert_eq!(verdict(&[process(Some(1))], &silent), Exit::Failed);
        assert_eq!(verdict(&[process(Some(1))], &well), Exit::Done);
        assert_eq!(verdict(&[process(Some(1)), process(None)], &well), Exit::NotRunning);
    }
}

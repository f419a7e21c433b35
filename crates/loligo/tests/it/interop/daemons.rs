//! Daemons as processes: what they bear, and how they end.

use super::cluster::{BINARY, Cluster, free_port, is_foreign};
use loligo::wait::Deadline;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

const FSID: &str = "7b1a4d3e-0000-4000-8000-000000000001";
const LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Refused for the sake of data.
const REFUSED: i32 = 5;

/// A monitor in a folder, without clients and OSDs.
struct Mon {
    dir: PathBuf,
    child: Child,
}

impl Mon {
    fn command(dir: &Path) -> Command {
        let mut mon = Command::new(BINARY);
        mon.args(["mon", "--addr", &format!("127.0.0.1:{}", free_port())]);
        mon.arg("--data").arg(dir.join("mon"));
        mon.arg("--admin-socket").arg(dir.join("asok")).stdin(Stdio::null()).stdout(Stdio::null());
        mon
    }

    /// Starts one and waits until it serves.
    fn start(dir: &Path, change: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut mon = Mon::command(dir);
        mon.args(["--fsid", FSID]);
        change(&mut mon);
        // One that was here before may have left it.
        let _ = std::fs::remove_file(dir.join("asok"));
        let mut mon = Mon { dir: dir.to_owned(), child: mon.spawn().unwrap() };
        mon.wait_until("it serves", |mon| mon.dir.join("asok").exists());
        mon
    }

    fn wait_until(&mut self, what: &str, mut is_so: impl FnMut(&Mon) -> bool) {
        let seen = Deadline::after(LIMIT).until(LOOK_EVERY, || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "it has ended before {what}: {ended:?}");
            is_so(self)
        });
        assert!(seen, "{what}: not within {LIMIT:?}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// An orderly end.
    fn end(mut self) {
        self.signal(Signal::TERM);
        assert!(ended(&mut self.child).success());
    }
}

impl Drop for Mon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ended(child: &mut Child) -> ExitStatus {
    let status = Deadline::after(LIMIT).poll(LOOK_EVERY, || child.try_wait().unwrap());
    status.expect("it does not end")
}

/// Writing there fails for want of space.
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// It says when it has made a cluster and when it serves, and in the end that it stops.
#[test]
fn a_daemon_whose_log_cannot_be_written_goes_on() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    Mon::start(dir.path(), |mon| mon.stderr(full())).end();
    Mon::start(dir.path(), |mon| mon.args(["--log", "/dev/full"]).stderr(full())).end();
}

#[test]
fn a_hangup_ends_no_daemon_and_opens_its_log_anew() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mon = Mon::start(dir.path(), |mon| mon.stderr(Stdio::null()));
    mon.signal(Signal::HUP);
    mon.end();
    let (log, old) = (dir.path().join("log"), dir.path().join("log.1"));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let mut mon = Mon::start(dir.path(), |mon| mon.arg("--log").arg(&log));
    mon.wait_until("it says that it serves", |_| read(&log).contains("serves on"));
    std::fs::rename(&log, &old).unwrap();
    mon.signal(Signal::HUP);
    mon.wait_until("it has a new log", |_| log.exists());
    mon.end();
    assert!(read(&old).contains("serves on") && !read(&log).contains("serves on"));
    assert!(read(&log).contains("mon.a: "), "{}", read(&log));
}

#[test]
fn daemons_open_their_logs_anew_when_they_are_told() {
    if is_foreign() {
        return;
    }
    let c = Cluster::start(1, "256M");
    let daemon =
        |name: &str, line: &str| c.ceph().args(["daemon", name]).args(line.split(' ')).limit(LIMIT);
    for name in ["osd.0", "mon.a"] {
        let log = c.dir().join(format!("{name}.log"));
        std::fs::rename(&log, log.with_extension("old")).unwrap();
        daemon(name, "log reopen").ok();
        assert!(log.exists());
        // The panic is said on stderr.
        daemon(name, "config set debug_asok_assert_abort true").ok();
        daemon(name, "assert").run();
        let said = || std::fs::read_to_string(&log).unwrap().contains("`assert` was asked for");
        assert!(Deadline::after(LIMIT).until(LOOK_EVERY, said), "{}", c.troubles());
    }
}

#[test]
fn a_daemon_that_cannot_say_why_it_ends_has_its_exit_code() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // There is no cluster, and it is not told to make one.
    let mut mon = Mon::command(dir.path()).stderr(full()).spawn().unwrap();
    assert_eq!(ended(&mut mon).code(), Some(REFUSED));
}

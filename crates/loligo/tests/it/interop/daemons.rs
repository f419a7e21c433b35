//! Daemons as processes: what they bear, and how they end.

use super::cluster::{BINARY, free_port, is_foreign};
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
    fn start(dir: &Path, change: impl FnOnce(&mut Command)) -> Self {
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
    Mon::start(dir.path(), |mon| drop(mon.stderr(full()))).end();
    let log = |mon: &mut Command| drop(mon.args(["--log", "/dev/full"]).stderr(full()));
    Mon::start(dir.path(), log).end();
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

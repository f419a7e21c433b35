//! Running programs, with a limit on their time.

use loligo::wait::Deadline;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fmt;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// A program that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A program to be run.
pub struct Tool {
    command: Command,
    shown: String,
    stdin: Vec<u8>,
    keep_stdin: bool,
    limit: Duration,
}

/// What it did.
pub struct Ran {
    shown: String,
    pub status: ExitStatus,
    pub out: Vec<u8>,
    pub err: String,
}

impl Tool {
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let shown = program.as_ref().to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        Tool { command, shown, stdin: Vec::new(), keep_stdin: false, limit: LIMIT }
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.shown += &format!(" {}", arg.as_ref().to_string_lossy());
        self.command.arg(arg);
        self
    }

    pub fn args(self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        args.into_iter().fold(self, Tool::arg)
    }

    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Its stdin stays open until [`Running::end_stdin`].
    pub fn open_stdin(mut self) -> Self {
        self.keep_stdin = true;
        self
    }

    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Starts it, to be waited for later.
    pub fn start(mut self) -> Running {
        let command =
            self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run {}: {e}; ./check installs it", self.shown));
        let mut stdin = child.stdin.take().unwrap();
        let (bytes, keep) = (self.stdin, self.keep_stdin);
        let feeder = std::thread::spawn(move || {
            // A program may end without reading everything.
            let _ = stdin.write_all(&bytes);
            keep.then_some(stdin)
        });
        Running {
            shown: self.shown,
            out: Some(reader(child.stdout.take().unwrap())),
            err: Some(reader(child.stderr.take().unwrap())),
            child,
            deadline: Deadline::after(self.limit),
            feeder: Some(feeder),
        }
    }

    /// Runs it to its end.
    pub fn run(self) -> Ran {
        self.start().wait()
    }

    /// Runs it; it must succeed. Gives its output.
    pub fn ok(self) -> Vec<u8> {
        let ran = self.run();
        assert!(ran.status.success(), "{ran:?}");
        ran.out
    }

    /// Runs it; it must succeed. Gives its output as text.
    pub fn text(self) -> String {
        String::from_utf8(self.ok()).unwrap()
    }

    /// Runs it; it must succeed. Gives its output as JSON.
    pub fn json(self) -> serde_json::Value {
        let ran = self.run();
        assert!(ran.status.success(), "{ran:?}");
        serde_json::from_slice(&ran.out).unwrap_or_else(|e| panic!("no JSON: {e}: {ran:?}"))
    }

    /// Runs it; it must fail with this exit code. Gives what it wrote to stderr.
    pub fn fails(self, code: i32) -> String {
        let ran = self.run();
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        ran.err
    }
}

fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

/// A program that runs.
pub struct Running {
    shown: String,
    child: Child,
    out: Option<JoinHandle<Vec<u8>>>,
    err: Option<JoinHandle<Vec<u8>>>,
    deadline: Deadline,
    feeder: Option<JoinHandle<Option<ChildStdin>>>,
}

impl Running {
    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends its stdin, and waits for it to end.
    pub fn end_stdin(mut self) -> Ran {
        drop(self.feeder.take().map(JoinHandle::join));
        self.wait()
    }

    /// Asks it to end, however long it has run, and waits for that.
    pub fn end(mut self) -> Ran {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        self.deadline = Deadline::after(LIMIT);
        self.wait()
    }

    /// Ends it the hard way.
    pub fn kill(mut self) -> Ran {
        let _ = self.child.kill();
        self.collect()
    }

    pub fn wait(mut self) -> Ran {
        let deadline = self.deadline;
        if !deadline.until(LOOK_EVERY, || !self.is_running()) {
            let limit = deadline.limit();
            let _ = self.child.kill();
            let ran = self.collect();
            panic!("it did not end within {limit:?}: {ran:?}");
        }
        self.collect()
    }

    fn collect(&mut self) -> Ran {
        let status = self.child.wait().unwrap();
        let all = |handle: &mut Option<JoinHandle<Vec<u8>>>| handle.take().unwrap().join().unwrap();
        let (out, err) = (all(&mut self.out), all(&mut self.err));
        let err = String::from_utf8_lossy(&err).into_owned();
        Ran { shown: std::mem::take(&mut self.shown), status, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl fmt::Debug for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4000;
        let out = String::from_utf8_lossy(&self.out[..self.out.len().min(SHOWN)]);
        write!(f, "`{}`: {}\n--- stdout\n{out}\n--- stderr\n{}", self.shown, self.status, self.err)
    }
}

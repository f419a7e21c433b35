//! Where log lines go.
//!
//! A line that cannot be written (the disk is full, nobody reads) is lost, and ends nobody: data do not depend on it.
//! The next one that can be written says how many are missing.
//!
//! Whoever gives the file another name (logrotate) asks for it to be opened anew, as with Ceph: by SIGHUP, or by
//! `log reopen` on the admin socket. Until it can be opened, lines go to the old one.

use crate::failure::{Context, Failure};
use clap::Args;
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tracing_subscriber::filter::LevelFilter;

/// Options about the log, good for every command.
#[derive(Clone, Debug, Args)]
pub struct Logging {
    /// Append the log to FILE; without it, log lines go to stderr
    #[arg(long, global = true, value_name = "FILE", help_heading = "Log")]
    pub log: Option<PathBuf>,

    /// How much to log: off, error, warn, info or debug
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Log")]
    pub log_level: Option<LevelFilter>,
}

/// The log of this process.
static LOG: OnceLock<Log> = OnceLock::new();

/// Starts the log. `default`: what is logged unless the command line says otherwise.
///
/// # Errors
/// When the file cannot be opened.
pub fn start(logging: &Logging, default: LevelFilter) -> Result<(), Failure> {
    let log = Log::open(logging.log.as_deref())?;
    let log = LOG.get_or_init(|| log);
    let level = logging.log_level.unwrap_or(default);
    let lines = tracing_subscriber::fmt().with_max_level(level).with_target(false).with_ansi(false);
    // What the library has to say itself it says by `eprintln!`, which panics where stderr cannot be written.
    lines.log_internal_errors(false).with_writer(move || log).init();
    Ok(())
}

/// From now on SIGHUP opens the log anew. It does not end the process, also where the log goes to stderr: somebody
/// closed a terminal.
///
/// # Errors
/// When there is no thread to wait for it.
pub fn reopen_on_hangup() -> Result<(), Failure> {
    let what = || "cannot listen for SIGHUP".to_owned();
    let mut hangups = Signals::new([SIGHUP]).context(what)?;
    let listen = move || hangups.forever().for_each(|_| reopen());
    let thread = std::thread::Builder::new().name("log".to_owned()).spawn(listen);
    thread.map(drop).context(what)
}

/// Opens the log's file anew, if it goes to one.
pub fn reopen() {
    let Some(log) = LOG.get() else { return };
    if let Err(failure) = log.reopen() {
        tracing::warn!("{failure}; it goes on where it was");
    }
}

/// A log. It is written line by line.
struct Log {
    /// `None`: it goes to stderr.
    path: Option<PathBuf>,
    out: Mutex<Out>,
}

struct Out {
    /// `None`: stderr.
    file: Option<File>,
    lost: Option<Lost>,
}

/// Lines that could not be written since the last one that could.
struct Lost {
    lines: u64,
    why: std::io::Error,
}

impl Log {
    fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let file = path.map(open).transpose()?;
        let out = Mutex::new(Out { file, lost: None });
        Ok(Log { path: path.map(Path::to_owned), out })
    }

    fn reopen(&self) -> Result<(), Failure> {
        let Some(path) = &self.path else { return Ok(()) };
        let new = open(path)?;
        let mut out = self.out();
        // Then panics and last words go there, too, and are not to stay behind.
        if out.file.as_ref().is_some_and(is_stderr) {
            let what = || format!("stderr cannot go to the new {}", path.display());
            rustix::stdio::dup2_stderr(&new).context(what)?;
        }
        out.file = Some(new);
        Ok(())
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        // Who panicked here has left nothing half done.
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.context(|| format!("cannot open the log {}", path.display()))
}

/// Whether what goes to stderr goes to this file.
fn is_stderr(file: &File) -> bool {
    let id = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    let (file, stderr) = (id(file.as_fd()), id(std::io::stderr().as_fd()));
    file.is_ok() && file == stderr
}

impl Write for &Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.out().write_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Out {
    fn write_line(&mut self, line: &[u8]) {
        let missing = self.lost.as_ref().map(|lost| {
            let Lost { lines, why } = lost;
            format!("({lines} lines that belong here could not be written: {why})\n")
        });
        let noted = missing.map_or(Ok(()), |note| self.put(note.as_bytes()));
        match noted.and_then(|()| self.put(line)) {
            Ok(()) => self.lost = None,
            Err(why) => {
                let before = self.lost.as_ref().map_or(0, |lost| lost.lines);
                self.lost = Some(Lost { lines: before.saturating_add(1), why });
            }
        }
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => std::io::stderr().write_all(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path) -> Option<File> {
        Some(OpenOptions::new().create(true).append(true).open(path).unwrap())
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_when_one_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut out = Out { file: file("/dev/full".as_ref()), lost: None };
        out.write_line(b"one\n");
        out.write_line(b"two\n");
        // There is room again.
        out.file = file(&path);
        out.write_line(b"three\n");
        out.write_line(b"four\n");
        let said = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].starts_with("(2 lines ") && lines[0].contains("No space"), "{said}");
        assert_eq!(lines[1..], ["three", "four"]);
    }

    #[test]
    fn a_log_that_got_another_name_goes_on_in_a_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, path, old) =
            (dir.path().join("logs"), dir.path().join("logs/log"), dir.path().join("logs/log.1"));
        std::fs::create_dir(&folder).unwrap();
        let log = Log::open(Some(&path)).unwrap();
        let write = |line: &str| (&log).write_all(line.as_bytes()).unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        write("one\n");
        std::fs::rename(&path, &old).unwrap();
        write("two\n");
        log.reopen().unwrap();
        write("three\n");
        assert_eq!((&*read(&old), &*read(&path)), ("one\ntwo\n", "three\n"));
        // It cannot be opened: no line is lost.
        let elsewhere = dir.path().join("elsewhere");
        std::fs::rename(&folder, &elsewhere).unwrap();
        assert!(log.reopen().unwrap_err().what.contains("cannot open the log"));
        write("four\n");
        assert_eq!(read(&elsewhere.join("log")), "three\nfour\n");
    }
}

//! Where log lines go.
//!
//! A line that cannot be written (the disk is full, nobody reads) is lost, and ends nobody: data do not depend on it.
//! The next one that can be written says how many are missing.

use crate::failure::{Context, Failure};
use clap::Args;
use std::fs::{File, OpenOptions};
use std::io::Write;
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

/// A log. It is written line by line.
struct Log {
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
        let open = |path: &Path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.context(|| format!("cannot open the log {}", path.display()))
        };
        Ok(Log { out: Mutex::new(Out { file: path.map(open).transpose()?, lost: None }) })
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        // Who panicked here has left nothing half done.
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
}

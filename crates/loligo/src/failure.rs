//! How a command ends, and what people are told when it ends badly.

use rustix::io::Errno;
use std::any::Any;
use std::fmt;
use std::io::{Error, ErrorKind};

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was done.
    Done,
    /// It failed.
    Failed,
    /// What it is about does not run, or not all of it.
    NotRunning,
    /// This machine cannot: a port is taken, the disk is full, the kernel has no io_uring.
    Machine,
    /// It was refused for the sake of data: they are another cluster's, damaged, or in use.
    Refused,
    /// A store was read to its end, and is damaged.
    Damaged,
}

impl Exit {
    /// The process's exit code. 2 is clap's: the command line makes no sense.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::NotRunning => 3,
            Exit::Machine => 4,
            Exit::Refused => 5,
            Exit::Damaged => 6,
        }
    }
}

/// Why a command could not be done: what happened to what, why, and what to do.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What happened, to what: `cannot start osd.0 in /x/osd.0`.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do.
    pub advice: Option<String>,
}

impl Failure {
    /// A plain failure.
    pub fn new(what: impl Into<String>, why: impl fmt::Display) -> Self {
        let (what, why) = (what.into(), why.to_string());
        Failure { exit: Exit::Failed, what, why, advice: None }
    }

    /// With what to do about it.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// With another exit code.
    #[must_use]
    pub fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        match &self.advice {
            Some(advice) => write!(f, "\n  {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// Says what was being done when something failed.
pub trait Context<T> {
    /// The failure of doing `what`.
    ///
    /// # Errors
    /// When it failed.
    fn context(self, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: fmt::Display + 'static> Context<T> for Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|e| Failure::new(what(), &e).exit(exit_of(&e)))
    }
}

/// How a command ends that failed by this.
fn exit_of(e: &dyn Any) -> Exit {
    let by_std = e.downcast_ref::<Error>().map(Error::kind);
    match by_std.or_else(|| e.downcast_ref::<Errno>().map(|e| e.kind())) {
        Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => Exit::Machine,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_not_the_commands_fault() {
        let exit = |e: Result<(), Error>| e.context(String::new).unwrap_err().exit;
        assert_eq!(exit(Err(ErrorKind::StorageFull.into())), Exit::Machine);
        assert_eq!(exit(Err(Error::from(Errno::DQUOT))), Exit::Machine);
        assert_eq!(exit(Err(ErrorKind::PermissionDenied.into())), Exit::Failed);
        let full: Result<(), Errno> = Err(Errno::NOSPC);
        assert_eq!(full.context(String::new).unwrap_err().exit, Exit::Machine);
        let other: Result<(), &str> = Err("no");
        assert_eq!(other.context(String::new).unwrap_err().exit, Exit::Failed);
    }
}

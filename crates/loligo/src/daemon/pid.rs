//! Pid files that cannot lie.
//!
//! A daemon holds a lock on its pid file as long as it lives; the kernel drops the lock however the
//! process ends. So a file without a lock is left over, whatever number it holds, and a number in a
//! locked file is that of a process of ours.

use crate::failure::{Context, Exit, Failure};
use crate::wait::Deadline;
use rustix::fs::FlockOperation;
use rustix::process::Pid;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

/// How long something that lasts a moment may last.
const LOOK: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(5);

/// A pid file that this process holds.
#[derive(Debug)]
pub struct PidFile {
    _file: File,
}

impl PidFile {
    /// Takes a pid file for this process.
    ///
    /// # Errors
    /// When another process holds it, or it cannot be written.
    pub fn take(path: &Path) -> Result<Self, Failure> {
        let what = || format!("cannot take the pid file {}", path.display());
        let mut file = open(path).context(what)?;
        // Somebody who only looks holds it for a moment, see `holder`.
        let mine = Deadline::after(LOOK).until(PAUSE, || {
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
        if !mine {
            let pid = read(&mut file).map_or(String::new(), |p| format!(" (process {p})"));
            return Err(Failure::new(what(), format!("the daemon runs already{pid}"))
                .advise("Stop that one first, or give this one another folder.")
                .exit(Exit::Refused));
        }
        file.set_len(0).context(what)?;
        let text = format!("{}\n", std::process::id());
        std::io::Seek::rewind(&mut file).context(what)?;
        file.write_all(text.as_bytes()).context(what)?;
        Ok(PidFile { _file: file })
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn read(file: &mut File) -> Option<i32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok().filter(|pid| *pid > 0)
}

/// The process that holds a pid file, if one does.
pub fn holder(path: &Path) -> Option<Pid> {
    // Whoever has just taken it has not written its number yet.
    let look = || match look_at(path) {
        Look::Held(None) => None,
        Look::Held(Some(pid)) => Some(Some(pid)),
        Look::Free => Some(None),
    };
    Deadline::after(LOOK).poll(PAUSE, look).flatten()
}

enum Look {
    Free,
    Held(Option<Pid>),
}

fn look_at(path: &Path) -> Look {
    let Ok(mut file) = File::open(path) else {
        return Look::Free;
    };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return Look::Free;
    }
    Look::Held(read(&mut file).and_then(Pid::from_raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_file_names_its_holder_and_a_left_over_one_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pid");
        assert_eq!(holder(&path), None);
        std::fs::write(&path, "1\n").unwrap();
        assert_eq!(holder(&path), None, "left over");
        let held = PidFile::take(&path).unwrap();
        let me = Pid::from_raw(std::process::id() as i32);
        assert_eq!(holder(&path), me);
        let failure = PidFile::take(&path).unwrap_err();
        assert_eq!(failure.exit, Exit::Refused);
        drop(held);
        assert_eq!(holder(&path), None);
    }
}

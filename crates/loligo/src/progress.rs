//! What a waiting person sees.

use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Nothing is shown of what takes less than this.
const QUIET: Duration = Duration::from_millis(700);

/// Shows on stderr what is waited for: one line that changes on a terminal, else a line a change.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    shown: String,
}

impl Progress {
    /// Nothing shown yet.
    pub fn new() -> Self {
        Progress { terminal: std::io::stderr().is_terminal(), shown: String::new() }
    }

    /// Says what is waited for, and for how long already.
    pub fn waiting(&mut self, what: &str, since: Duration) {
        if since < QUIET {
            return;
        }
        let mut err = std::io::stderr();
        if self.terminal {
            let _ = write!(err, "\r\x1b[2K... {what} ({:.0} s)", since.as_secs_f64());
            let _ = err.flush();
        } else if self.shown != what {
            let _ = writeln!(err, "... {what}");
        }
        what.clone_into(&mut self.shown);
    }

    /// The wait is over.
    pub fn clear(&mut self) {
        if self.terminal && !self.shown.is_empty() {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
        self.shown.clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

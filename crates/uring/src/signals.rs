//! SIGTERM and SIGINT: somebody wants the end of this process.
//!
//! A run is woken by them through a socket. One that comes while no run listens, between two lives of a daemon, is
//! not forgotten: a flag of the process says so, and the next run begins with it.

use signal_hook::SigId;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

const SIGNALS: [i32; 2] = [libc::SIGTERM, libc::SIGINT];

/// Whether one came since the first run that listened for them.
static WANTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Whether this process was asked to end (SIGTERM, SIGINT) since its first run that listens for that.
pub fn is_stop_wanted() -> bool {
    WANTED.get().is_some_and(|wanted| wanted.load(Ordering::Relaxed))
}

/// Listens for them as long as it lives.
pub(crate) struct Signals {
    /// Gets a byte for each.
    pub stream: UnixStream,
    ids: Vec<SigId>,
}

impl Signals {
    pub fn new() -> std::io::Result<Self> {
        if WANTED.get().is_none() {
            let wanted = Arc::new(AtomicBool::new(false));
            for signal in SIGNALS {
                signal_hook::flag::register(signal, wanted.clone())?;
            }
            // Another thread's is as good.
            let _ = WANTED.set(wanted);
        }
        let (stream, theirs) = UnixStream::pair()?;
        let mut signals = Signals { stream, ids: Vec::new() };
        for signal in SIGNALS {
            signals.ids.push(signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?);
        }
        Ok(signals)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

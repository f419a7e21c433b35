//! The clocks of the machine; nothing else reads them.

use io::Now;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use types::{Mono, UTime};

/// The clock of one run.
pub(super) struct Clock {
    start: Duration,
}

impl Clock {
    /// It begins now, at nought.
    pub fn start() -> Self {
        Clock { start: read(ClockId::Boottime) }
    }

    /// Time since the start. What a machine sleeps counts (which `CLOCK_MONOTONIC`, and so `Instant`, leaves out):
    /// the others have not waited for it, and a promise of theirs that it holds is over when it wakes.
    pub fn mono(&self) -> Mono {
        Mono(read(ClockId::Boottime).saturating_sub(self.start).as_nanos() as u64)
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        Now { mono: self.mono(), wall: UTime::from_unix(read(ClockId::Realtime)) }
    }
}

/// Since the clock's own beginning; nought before that.
fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

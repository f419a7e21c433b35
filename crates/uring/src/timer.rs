//! The core's deadline as timeouts in the ring.
//!
//! A timeout given to each wait would be set up and taken down with every turn, which costs more
//! than the turn's clock readings and table look-ups together. So a timeout stays in the ring until
//! it is over. One that turns out to be earlier than the deadline by then wakes the runner for
//! nothing, which is rare: deadlines mostly move away.

use io_uring::types::Timespec;
use std::collections::BTreeSet;
use types::Mono;

/// The timeouts in the ring.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    armed: BTreeSet<Mono>,
}

impl Timers {
    /// Whether a timeout for `deadline` is lacking; it counts as set from now on.
    pub fn lacks(&mut self, deadline: Mono) -> bool {
        let lacks = self.armed.first().is_none_or(|first| deadline < *first);
        if lacks {
            self.armed.insert(deadline);
        }
        lacks
    }

    /// The timeout for `deadline` is over.
    pub fn over(&mut self, deadline: Mono) {
        self.armed.remove(&deadline);
    }
}

/// The time from `now` to `deadline`, for the kernel.
pub(crate) fn until(now: Mono, deadline: Mono) -> Box<Timespec> {
    Box::new(Timespec::from(deadline.since(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_earlier_deadline_needs_a_timeout_of_its_own() {
        let mut timers = Timers::default();
        assert!(timers.lacks(Mono(500)));
        assert!(!timers.lacks(Mono(500)) && !timers.lacks(Mono(700)));
        assert!(timers.lacks(Mono(100)));
        timers.over(Mono(100));
        // The one behind it is still set.
        assert!(!timers.lacks(Mono(600)) && timers.lacks(Mono(400)));
        timers.over(Mono(400));
        timers.over(Mono(500));
        assert!(timers.lacks(Mono(600)));
    }
}

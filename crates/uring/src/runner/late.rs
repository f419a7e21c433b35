//! Notices when the thread was held up: others take it for dead then, and its log should say why.

use std::time::Duration;
use types::Mono;

/// Shorter than this nobody needs to know of.
const LONG: Duration = Duration::from_secs(1);

/// What held the thread up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// A turn of the core, and starting what it wants.
    Turn(Duration),
    /// It was not woken when it should be: the kernel had not yet taken what was submitted, or it got no core.
    Sleep(Duration),
}

/// Says it, if there is something to say.
pub(super) fn tell_late(late: Option<Late>) {
    match late {
        None => {}
        Some(Late::Turn(took)) => tracing::warn!("a turn of the daemon took {took:.1?}"),
        Some(Late::Sleep(late)) => tracing::warn!(
            "the daemon was held up for {late:.1?}: the kernel did not return, or gave it no core"
        ),
    }
}

/// When a turn began, and when it is to end its sleep.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    wake_at: Option<Mono>,
}

impl Lateness {
    /// A turn that began at `began` is over, and the thread sleeps until `wake_at`, at the latest.
    pub fn sleeps(&mut self, began: Mono, now: Mono, wake_at: Option<Mono>) -> Option<Late> {
        self.wake_at = wake_at.map(|at| at.max(now));
        let took = now.since(began);
        (took >= LONG).then_some(Late::Turn(took))
    }

    /// It is awake.
    pub fn wakes(&mut self, now: Mono) -> Option<Late> {
        let late = now.since(self.wake_at.take()?);
        (late >= LONG).then_some(Late::Sleep(late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_turn_or_a_sleep_that_is_too_long_is_noticed() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.wakes(Mono(5 * S)), None);
        assert_eq!(lateness.sleeps(Mono(5 * S), Mono(5 * S + 1), Some(Mono(8 * S))), None);
        // Something else came before.
        assert_eq!(lateness.wakes(Mono(6 * S)), None);
        let long = Late::Turn(Duration::from_secs(2));
        assert_eq!(lateness.sleeps(Mono(6 * S), Mono(8 * S), Some(Mono(7 * S))), Some(long));
        assert_eq!(lateness.wakes(Mono(9 * S - 1)), None);
        assert_eq!(lateness.sleeps(Mono(9 * S), Mono(9 * S), Some(Mono(10 * S))), None);
        let late = Late::Sleep(Duration::from_secs(4));
        assert_eq!(lateness.wakes(Mono(14 * S)), Some(late));
        // Nothing was to be done at any time.
        assert_eq!(lateness.sleeps(Mono(14 * S), Mono(14 * S), None), None);
        assert_eq!(lateness.wakes(Mono(99 * S)), None);
    }
}

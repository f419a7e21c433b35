//! Waiting: by looking again and again until a deadline. The only place of the project, tests
//! included, that lets a thread sleep.

use std::time::{Duration, Instant};

/// A point in time that is not waited beyond.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    start: Instant,
    limit: Duration,
}

impl Deadline {
    /// So long from now.
    #[expect(clippy::disallowed_methods, reason = "this is no core: it waits in real time")]
    pub fn after(limit: Duration) -> Self {
        Deadline { start: Instant::now(), limit }
    }

    /// How long ago it was set.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// How long is left.
    pub fn left(&self) -> Duration {
        self.limit.saturating_sub(self.elapsed())
    }

    /// Whether it has passed.
    pub fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// The limit it was set with.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Looks until there is something, every `pause`; `None` when the deadline passes before.
    #[expect(clippy::disallowed_methods, reason = "see above")]
    pub fn poll<T>(&self, pause: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            if self.is_over() {
                return None;
            }
            std::thread::sleep(pause.min(self.left()));
        }
    }

    /// Waits until it has passed.
    pub fn sleep(&self) {
        self.poll(self.limit, || None::<()>);
    }

    /// Looks until it is so.
    pub fn until(&self, pause: Duration, mut look: impl FnMut() -> bool) -> bool {
        self.poll(pause, || look().then_some(())).is_some()
    }
}

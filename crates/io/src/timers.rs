//! A core's deadlines.

use std::collections::BTreeMap;
use types::Mono;

/// Names a deadline so that it can be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId {
    at: Mono,
    seq: u64,
}

/// Deadlines in order, each with what is due. Equal deadlines come in the order they were set.
#[derive(Debug)]
pub struct Timers<K> {
    due: BTreeMap<TimerId, K>,
    seq: u64,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Timers { due: BTreeMap::new(), seq: 0 }
    }
}

impl<K> Timers<K> {
    /// Sets a deadline.
    pub fn set(&mut self, at: Mono, what: K) -> TimerId {
        self.seq += 1;
        let id = TimerId { at, seq: self.seq };
        self.due.insert(id, what);
        id
    }

    /// Removes a deadline; `None` when it has passed already.
    pub fn cancel(&mut self, id: TimerId) -> Option<K> {
        self.due.remove(&id)
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Mono> {
        self.due.first_key_value().map(|(id, _)| id.at)
    }

    /// Takes out the earliest deadline that `now` has reached.
    pub fn pop(&mut self, now: Mono) -> Option<K> {
        let entry = self.due.first_entry()?;
        if entry.key().at <= now { Some(entry.remove()) } else { None }
    }

    /// How many deadlines are set.
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fire_in_order_and_can_be_cancelled() {
        let mut t = Timers::default();
        let late = t.set(Mono(20), 'c');
        t.set(Mono(10), 'a');
        t.set(Mono(10), 'b');
        assert_eq!(t.next(), Some(Mono(10)));
        assert_eq!(t.pop(Mono(9)), None);
        assert_eq!((t.pop(Mono(30)), t.pop(Mono(30))), (Some('a'), Some('b')));
        assert_eq!((t.cancel(late), t.cancel(late)), (Some('c'), None));
        assert_eq!(t.next(), None);
    }
}

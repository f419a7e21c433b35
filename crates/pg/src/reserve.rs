//! Whose turn it is to recover: places for a bounded number of PGs, the most urgent first.
//!
//! An OSD has two sets of places: one for PGs that it leads, and one for PGs that bring objects to it.
//! A primary takes its own place first, and then one on each copy that gets objects, in the order of
//! their ids: so no two PGs wait for each other. Source: Ceph `common/AsyncReserver.h`,
//! `osd/PeeringState.cc: get_recovery_priority, get_backfill_priority`.

use crate::pg::Pg;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What a holder, or somebody who waits, is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn<K> {
    /// It has a place.
    Granted(K),
    /// It has lost its place to somebody more urgent, and does not wait either.
    Preempted(K),
}

/// Places, who holds them, and who waits for one.
#[derive(Clone, Debug)]
pub struct Reserver<K> {
    places: usize,
    held: BTreeMap<K, u8>,
    /// By urgency, then by arrival.
    line: BTreeSet<(Reverse<u8>, u64, K)>,
    waiting: BTreeMap<K, (u8, u64)>,
    arrivals: u64,
}

impl<K: Copy + Ord> Reserver<K> {
    /// With so many places.
    pub fn new(places: usize) -> Self {
        Reserver {
            places,
            held: BTreeMap::new(),
            line: BTreeSet::new(),
            waiting: BTreeMap::new(),
            arrivals: 0,
        }
    }

    /// Changes the number of places. Nobody loses one by that.
    pub fn set_places(&mut self, places: usize) {
        self.places = places;
    }

    /// Somebody wants a place, or is now more or less urgent than it was.
    pub fn ask(&mut self, key: K, priority: u8) {
        if let Some(held) = self.held.get_mut(&key) {
            *held = priority;
            return;
        }
        let arrival = match self.waiting.get(&key).copied() {
            Some((old, arrival)) => {
                self.line.remove(&(Reverse(old), arrival, key));
                arrival
            }
            None => {
                self.arrivals += 1;
                self.arrivals
            }
        };
        self.waiting.insert(key, (priority, arrival));
        self.line.insert((Reverse(priority), arrival, key));
    }

    /// Somebody needs no place any more.
    pub fn release(&mut self, key: &K) {
        self.held.remove(key);
        if let Some((priority, arrival)) = self.waiting.remove(key) {
            self.line.remove(&(Reverse(priority), arrival, *key));
        }
    }

    /// Whether it has a place.
    pub fn holds(&self, key: &K) -> bool {
        self.held.contains_key(key)
    }

    /// Everybody who has a place.
    pub fn holders(&self) -> impl Iterator<Item = K> + '_ {
        self.held.keys().copied()
    }

    /// Everybody who waits, the next one first.
    pub fn waiters(&self) -> impl Iterator<Item = K> + '_ {
        self.line.iter().map(|(_, _, key)| *key)
    }

    /// What happens next, if anything does: ask until nothing does.
    pub fn next_turn(&mut self) -> Option<Turn<K>> {
        let (Reverse(priority), arrival, key) = *self.line.first()?;
        if self.held.len() < self.places {
            self.line.remove(&(Reverse(priority), arrival, key));
            self.waiting.remove(&key);
            self.held.insert(key, priority);
            return Some(Turn::Granted(key));
        }
        let least = self.held.iter().min_by_key(|(_, held)| **held);
        let (last, _) = least.filter(|(_, held)| **held < priority)?;
        let last = *last;
        self.held.remove(&last);
        Some(Turn::Preempted(last))
    }
}

/// What an operator wants done first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forced {
    /// `ceph pg force-recovery`
    pub recovery: bool,
    /// `ceph pg force-backfill`
    pub backfill: bool,
}

const FORCED_RECOVERY: i64 = 255;
const FORCED_BACKFILL: i64 = 254;
/// Least and greatest priority of a kind of work.
const INACTIVE: (i64, i64) = (220, 253);
const RECOVERY: (i64, i64) = (180, 219);
const DEGRADED_BACKFILL: (i64, i64) = (140, 179);
const BACKFILL: (i64, i64) = (100, 139);

fn within(range: (i64, i64), more: i64) -> u8 {
    u8::try_from(range.0.saturating_add(more).clamp(range.0, range.1)).unwrap_or(u8::MAX)
}

impl Pg {
    /// How urgent its recovery is; `pool`: the pool's `recovery_priority`.
    pub fn recovery_priority(&self, pool: i64, forced: Forced) -> u8 {
        let (acting, min_size) = (self.acting_count() as i64, i64::from(self.rules.min_size));
        match forced.recovery {
            true => within((FORCED_RECOVERY, FORCED_RECOVERY), 0),
            false if acting < min_size => within(INACTIVE, min_size - acting + pool),
            false => within(RECOVERY, pool),
        }
    }

    /// How urgent its backfill is.
    pub fn backfill_priority(&self, pool: i64, forced: Forced) -> u8 {
        let (acting, min_size) = (self.acting_count() as i64, i64::from(self.rules.min_size));
        let lacking = i64::from(self.rules.size) - acting;
        match forced.backfill {
            true => within((FORCED_BACKFILL, FORCED_BACKFILL), 0),
            false if acting < min_size => within(INACTIVE, min_size - acting + pool),
            false if lacking > 0 => within(DEGRADED_BACKFILL, lacking + pool),
            false => within(BACKFILL, pool),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(r: &mut Reserver<u32>) -> Vec<Turn<u32>> {
        std::iter::from_fn(|| r.next_turn()).collect()
    }

    #[test]
    fn the_most_urgent_comes_first_and_else_who_came_first() {
        let mut r = Reserver::new(2);
        (0..4).for_each(|k| r.ask(k, 100));
        assert_eq!(turns(&mut r), [Turn::Granted(0), Turn::Granted(1)]);
        r.ask(4, 100);
        r.ask(3, 100);
        r.release(&0);
        assert_eq!(turns(&mut r), [Turn::Granted(2)]);
        assert_eq!(r.waiters().collect::<Vec<_>>(), [3, 4], "asking again keeps the place in line");
        r.release(&3);
        r.release(&1);
        assert_eq!(turns(&mut r), [Turn::Granted(4)]);
    }

    #[test]
    fn who_is_more_urgent_takes_a_place_from_the_least_urgent() {
        let mut r = Reserver::new(2);
        r.ask(0, 100);
        r.ask(1, 140);
        turns(&mut r);
        r.ask(2, 180);
        assert_eq!(turns(&mut r), [Turn::Preempted(0), Turn::Granted(2)]);
        r.ask(0, 100);
        r.ask(3, 140);
        assert_eq!(turns(&mut r), [], "equals wait");
        // An operator forces one that waits.
        r.ask(0, 254);
        assert_eq!(turns(&mut r), [Turn::Preempted(1), Turn::Granted(0)]);
        assert!(r.holds(&0) && r.holds(&2) && !r.holds(&1));
    }

    #[test]
    fn fewer_places_take_none_away_at_once() {
        let mut r = Reserver::new(3);
        (0..4).for_each(|k| r.ask(k, 100));
        turns(&mut r);
        r.set_places(1);
        r.release(&0);
        assert_eq!(turns(&mut r), []);
        r.release(&1);
        r.release(&2);
        assert_eq!(turns(&mut r), [Turn::Granted(3)]);
    }
}

//! I/O and recovery per second, over the last seconds.

use peer::PgStat;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{Mono, PoolId};

/// Rates are over this time.
const WINDOW: Duration = Duration::from_secs(10);

/// Counters that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub recovered_objects: u64,
    pub recovered_bytes: u64,
}

impl Counts {
    /// Those of a PG.
    pub fn of(stat: &PgStat) -> Self {
        Counts {
            reads: stat.io.reads,
            read_bytes: stat.io.read_bytes,
            writes: stat.io.writes,
            write_bytes: stat.io.write_bytes,
            recovered_objects: stat.recovered_objects,
            recovered_bytes: stat.recovered_bytes,
        }
    }

    fn with(&self, other: &Counts, f: impl Fn(u64, u64) -> u64) -> Counts {
        Counts {
            reads: f(self.reads, other.reads),
            read_bytes: f(self.read_bytes, other.read_bytes),
            writes: f(self.writes, other.writes),
            write_bytes: f(self.write_bytes, other.write_bytes),
            recovered_objects: f(self.recovered_objects, other.recovered_objects),
            recovered_bytes: f(self.recovered_bytes, other.recovered_bytes),
        }
    }

    /// Adds others.
    pub fn add(&mut self, other: &Counts) {
        *self = self.with(other, u64::saturating_add);
    }

    /// How much they have grown.
    pub fn since(&self, before: &Counts) -> Counts {
        self.with(before, u64::saturating_sub)
    }
}

/// What happened in a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rate {
    pub counts: Counts,
    pub seconds: f64,
}

impl Rate {
    /// Per second.
    pub fn per_second(&self, count: u64) -> u64 {
        if self.seconds > 0.0 { (count as f64 / self.seconds) as u64 } else { 0 }
    }

    /// Whether clients did anything.
    pub fn has_io(&self) -> bool {
        self.counts.reads + self.counts.writes > 0
    }

    /// Whether anything was recovered.
    pub fn has_recovery(&self) -> bool {
        self.counts.recovered_objects + self.counts.recovered_bytes > 0
    }
}

/// The counters of each pool.
type Totals = BTreeMap<PoolId, Counts>;

/// Samples of the counters.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    samples: VecDeque<(Mono, Totals)>,
}

impl Rates {
    /// Notes where the counters stand.
    pub fn sample(&mut self, now: Mono, totals: &Totals) {
        self.samples.push_back((now, totals.clone()));
        // The oldest one kept is just older than the window.
        while self.samples.get(1).is_some_and(|(at, _)| now.since(*at) >= WINDOW) {
            self.samples.pop_front();
        }
    }

    /// These counts of a pool are from before the window.
    pub fn discount(&mut self, pool: PoolId, counts: &Counts) {
        for (_, totals) in &mut self.samples {
            totals.entry(pool).or_default().add(counts);
        }
    }

    fn ends(&self) -> Option<(f64, &Totals, &Totals)> {
        let ((from, first), (to, last)) = (self.samples.front()?, self.samples.back()?);
        Some((to.since(*from).as_secs_f64(), first, last))
    }

    /// Of one pool.
    pub fn pool(&self, pool: PoolId) -> Rate {
        let Some((seconds, first, last)) = self.ends() else { return Rate::default() };
        let before = first.get(&pool).copied().unwrap_or_default();
        let counts = last.get(&pool).copied().unwrap_or_default().since(&before);
        Rate { counts, seconds }
    }

    /// Of all pools.
    pub fn total(&self) -> Rate {
        let Some((seconds, _, last)) = self.ends() else { return Rate::default() };
        let mut counts = Counts::default();
        for pool in last.keys() {
            counts.add(&self.pool(*pool).counts);
        }
        Rate { counts, seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_the_window() {
        let mut rates = Rates::default();
        let pool = PoolId(1);
        let at = |sec: u64| Mono(sec * 1_000_000_000);
        for sec in 0..=30 {
            let counts = Counts { writes: sec * sec, write_bytes: sec * 100, ..Counts::default() };
            rates.sample(at(sec), &BTreeMap::from([(pool, counts)]));
        }
        let rate = rates.pool(pool);
        assert_eq!((rate.seconds, rate.counts.write_bytes), (10.0, 1000));
        assert_eq!(rate.per_second(rate.counts.write_bytes), 100);
        assert_eq!(rates.total(), rate);
        rates.discount(pool, &Counts { writes: 5, ..Counts::default() });
        assert_eq!(rates.pool(pool).counts.writes, rate.counts.writes, "both ends move");
        assert!(!rates.pool(PoolId(2)).has_io());
    }
}

//! When a PG is to be scrubbed.

use super::{Kind, ScrubRecord, Starter};
use std::time::Duration;
use types::{PgId, UTime, times};

/// How often (Ceph: `osd_scrub_min_interval` and its relatives).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intervals {
    /// From here on a scrub is due, at times that are allowed.
    pub min: Duration,
    /// From here on it is late.
    pub max: Duration,
    /// From here on a deep scrub is due.
    pub deep: Duration,
    /// Up to this part of `min` is added, by PG, so that they do not all come at once.
    pub randomize: f64,
    /// This part of light scrubs is deep, for the same reason.
    pub deep_randomize: f64,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Which scrub.
    pub kind: Kind,
    /// Since when: the longest due is first.
    pub since: UTime,
    /// It is done at any hour.
    pub late: bool,
}

/// What may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Light scrubs.
    pub light: bool,
    /// Deep ones.
    pub deep: bool,
}

/// A number of 0..1 that a PG and its last scrub decide: everybody who looks comes to the same.
fn dice(pgid: PgId, record: &ScrubRecord, salt: u64) -> f64 {
    let mut x = (pgid.pool.0 as u64) << 32 ^ u64::from(pgid.seed) ^ salt << 56;
    x ^= record.changes.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The finisher of SplitMix64.
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    (x >> 11) as f64 / (1u64 << 53) as f64
}

/// When a PG is to be scrubbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// From here on a light scrub is due.
    pub light_at: UTime,
    /// From here on a light scrub is late.
    pub late_at: UTime,
    /// From here on a deep scrub is due.
    pub deep_at: UTime,
}

/// Clocks of OSDs may differ by so much without anything being wrong.
const CLOCKS_DIFFER: Duration = Duration::from_secs(300);

/// A stamp of a scrub. One that is yet to come is of a clock that was wrong, and says nothing: a PG that has such a
/// one would not be scrubbed until then.
pub fn credible(stamp: UTime, now: UTime) -> UTime {
    if stamp > now.plus(CLOCKS_DIFFER) { UTime::ZERO } else { stamp }
}

impl Plan {
    /// Of a PG that was made at `created`.
    pub fn of(
        pgid: PgId,
        record: &ScrubRecord,
        created: UTime,
        now: UTime,
        intervals: &Intervals,
    ) -> Self {
        let created = credible(created, now);
        let last = credible(record.last_scrub_stamp, now).max(created);
        let last_deep = credible(record.last_deep_scrub_stamp, now).max(created);
        let spread = times(intervals.min, intervals.randomize * dice(pgid, record, 1));
        Plan {
            light_at: last.plus(intervals.min.saturating_add(spread)),
            late_at: last.plus(intervals.max),
            deep_at: last_deep.plus(intervals.deep),
        }
    }
}

/// What is due of a PG that was made at `created`, if anything. `allowed`: light, deep.
pub fn due(
    pgid: PgId,
    record: &ScrubRecord,
    created: UTime,
    now: UTime,
    intervals: &Intervals,
    allowed: (bool, bool),
) -> Option<Due> {
    let allowed = Allowed { light: allowed.0, deep: allowed.1 };
    let plan = Plan::of(pgid, record, created, now, intervals);
    if allowed.deep && now >= plan.deep_at {
        // It is late when a light one would be as well.
        let late = now >= plan.deep_at.plus(intervals.max);
        return Some(Due {
            kind: Kind { deep: true, ..Kind::periodic() },
            since: plan.deep_at,
            late,
        });
    }
    if !allowed.light || now < plan.light_at {
        return None;
    }
    let deep = allowed.deep && dice(pgid, record, 2) < intervals.deep_randomize;
    let late = now >= plan.late_at;
    let kind = Kind { deep, starter: Starter::Schedule, repair: false };
    Some(Due { kind, since: plan.light_at, late })
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PoolId;

    const DAY: u32 = 86_400;

    fn intervals() -> Intervals {
        let days = |n: u32| Duration::from_secs(u64::from(n * DAY));
        Intervals { min: days(1), max: days(7), deep: days(7), randomize: 0.5, deep_randomize: 0.0 }
    }

    fn at(day: u32) -> UTime {
        UTime { sec: 100 * DAY + day * DAY, nsec: 0 }
    }

    fn look(record: &ScrubRecord, now: UTime, allowed: (bool, bool)) -> Option<Due> {
        due(PgId::new(PoolId(1), 3), record, at(0), now, &intervals(), allowed)
    }

    #[test]
    fn a_new_pg_is_scrubbed_after_a_day_and_deeply_after_a_week() {
        let new = ScrubRecord::default();
        assert_eq!(look(&new, at(0), (true, true)), None);
        let light = look(&new, at(2), (true, true)).expect("it is due");
        assert!(!light.kind.deep && !light.late && light.since >= at(1) && light.since < at(2));
        let deep = look(&new, at(7), (true, true)).expect("it is due");
        assert!(deep.kind.deep && deep.since == at(7));
        assert!(look(&new, at(8), (true, false)).expect("late").late);
    }

    #[test]
    fn intervals_without_bounds_never_come() {
        let longest = Duration::MAX;
        for (min, randomize) in [(longest, 0.5), (types::LONGEST, 1e15), (longest, f64::MAX)] {
            let never =
                Intervals { min, max: longest, deep: longest, randomize, deep_randomize: 1.0 };
            for seed in 0..64 {
                let (pgid, new) = (PgId::new(PoolId(1), seed), ScrubRecord::default());
                let now = UTime { sec: u32::MAX - 1, nsec: 0 };
                assert_eq!(due(pgid, &new, at(0), now, &never, (true, true)), None);
            }
        }
    }

    #[test]
    fn a_stamp_of_a_clock_that_was_ahead_puts_nothing_off() {
        let ahead = at(1000);
        let record = |light, deep| ScrubRecord {
            last_scrub_stamp: light,
            last_deep_scrub_stamp: deep,
            ..ScrubRecord::default()
        };
        let both = (true, true);
        assert!(look(&record(ahead, at(8)), at(9), both).is_some_and(|d| !d.kind.deep));
        assert!(look(&record(at(9), ahead), at(9), both).is_some_and(|d| d.kind.deep));
        // As far as the clocks of two OSDs may be apart.
        let soon = at(9).plus(CLOCKS_DIFFER);
        assert_eq!(look(&record(soon, soon), at(9), both), None);
        // The pool was made by a clock that was wrong.
        let (pgid, new) = (PgId::new(PoolId(1), 3), ScrubRecord::default());
        assert!(due(pgid, &new, ahead, at(9), &intervals(), both).is_some());
    }

    #[test]
    fn flags_leave_the_other_kind_alone() {
        let new = ScrubRecord::default();
        assert_eq!(look(&new, at(30), (false, false)), None);
        assert!(!look(&new, at(30), (true, false)).expect("light").kind.deep);
        assert!(look(&new, at(30), (false, true)).expect("deep").kind.deep);
        assert_eq!(look(&new, at(3), (false, true)), None);
    }

    #[test]
    fn pgs_that_were_made_together_come_one_after_the_other() {
        let new = ScrubRecord::default();
        let times: std::collections::BTreeSet<_> = (0..64)
            .filter_map(|seed| {
                let pgid = PgId::new(PoolId(1), seed);
                due(pgid, &new, at(0), at(2), &intervals(), (true, true)).map(|d| d.since)
            })
            .collect();
        assert!(times.len() > 60, "{}", times.len());
        let middle = at(1).plus(Duration::from_secs(u64::from(DAY / 4)));
        let early = times.iter().filter(|t| **t < middle).count();
        assert!((16..48).contains(&early), "{early} of 64 are in the first half");
    }
}

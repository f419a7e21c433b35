//! What is told of a run.

use super::options::{Plan, What};
use crate::sizes::Bytes;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// Latencies, counted by size with an error of at most one in 64. Counting allocates nothing.
pub(super) struct Histogram {
    counts: Vec<u64>,
    number: u64,
    sum_ns: u128,
    max_ns: u64,
}

/// log2 of the parts that each power of two is divided into.
const PART_BITS: u32 = 6;
const PARTS: u64 = 1 << PART_BITS;
/// Numbers below [`PARTS`] are counted each; every power of two from there on has [`PARTS`] parts.
const COUNTERS: usize = ((64 - PART_BITS as usize) + 1) << PART_BITS;

/// Which counter counts `ns`.
fn counter(ns: u64) -> usize {
    let Some(shift) = (64 - PART_BITS).checked_sub(ns.leading_zeros() + 1) else {
        return ns as usize;
    };
    (u64::from(shift) * PARTS + (ns >> shift)) as usize
}

/// The least number that this counter counts.
fn least(counter: usize) -> u64 {
    let n = counter as u64;
    if n < PARTS {
        return n;
    }
    let shift = n / PARTS - 1;
    (n - shift * PARTS) << shift
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; COUNTERS], number: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    pub fn add(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(counter(ns)) {
            *count += 1;
        }
        self.number += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.number += other.number;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / self.number.max(1) as f64 / 1e3
    }

    /// The latency that this share of the operations stayed below.
    fn percentile_us(&self, share: f64) -> f64 {
        let wanted = (self.number as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (n, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return least(n + 1).min(self.max_ns) as f64 / 1e3;
            }
        }
        self.max_ns as f64 / 1e3
    }

    /// How many took less than each of 1, 2, 5, 10, ... microseconds, and not less than the one
    /// before. From the first one that counts to the last.
    fn steps(&self) -> Vec<(u64, u64)> {
        let bounds = (0..u64::from(u64::MAX.ilog10()) - 3)
            .flat_map(|decade| [1, 2, 5].map(|n| n * 10u64.pow(decade as u32)));
        let mut steps: Vec<(u64, u64)> = bounds.map(|us| (us, 0)).collect();
        for (n, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let at = steps.partition_point(|(us, _)| us * 1000 <= least(n));
            if let Some(step) = steps.get_mut(at) {
                step.1 += count;
            }
        }
        let last = steps.iter().rposition(|(_, count)| *count > 0).map_or(0, |n| n + 1);
        steps.truncate(last);
        let first = steps.iter().position(|(_, count)| *count > 0).unwrap_or(0);
        steps.split_off(first)
    }
}

/// What one job measured, or all together.
#[derive(Default)]
pub(super) struct Measured {
    pub reads: Histogram,
    pub writes: Histogram,
    /// From the beginning to the end of the last operation.
    pub time: Duration,
    /// The longest time in which no operation of a job ended; of several jobs, that of one of them.
    pub longest_gap: Duration,
    /// Operations that ended in each second.
    pub by_second: Vec<u64>,
    /// Bytes that were worked on.
    pub size_bytes: u64,
    /// Bytes that were read where nothing was ever written.
    pub hole_bytes: u64,
    /// CPU time of the process at the beginning and at the end.
    pub cpu: Option<(Duration, Duration)>,
    /// Blocks that were read back.
    pub verified: u64,
    /// Those of them that were not what was written.
    pub damaged: u64,
}

impl Measured {
    pub fn merge(&mut self, other: &Measured) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.time = self.time.max(other.time);
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        let seconds = self.by_second.len().max(other.by_second.len());
        self.by_second.resize(seconds, 0);
        for (sum, more) in self.by_second.iter_mut().zip(&other.by_second) {
            *sum += more;
        }
        self.size_bytes += other.size_bytes;
        self.hole_bytes += other.hole_bytes;
        self.cpu = match (self.cpu, other.cpu) {
            (Some((from, to)), Some((begin, end))) => Some((from.min(begin), to.max(end))),
            (one, other) => one.or(other),
        };
        self.verified += other.verified;
        self.damaged += other.damaged;
    }

    fn operations(&self) -> u64 {
        self.reads.number + self.writes.number
    }

    fn seconds(&self) -> f64 {
        self.time.as_secs_f64().max(1e-9)
    }

    fn cpu_seconds(&self) -> f64 {
        self.cpu.map_or(0.0, |(from, to)| to.saturating_sub(from).as_secs_f64())
    }

    fn cpu_us(&self) -> f64 {
        self.cpu_seconds() * 1e6 / self.operations().max(1) as f64
    }
}

fn per_second(h: &Histogram, m: &Measured) -> f64 {
    h.number as f64 / m.seconds()
}

fn mib_per_second(h: &Histogram, m: &Measured, plan: &Plan) -> f64 {
    per_second(h, m) * plan.block_bytes as f64 / f64::from(1 << 20)
}

const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

fn side_as_json(h: &Histogram, m: &Measured, plan: &Plan) -> Value {
    let mut latency = json!({"mean": h.mean_us()});
    for (name, share) in PERCENTILES {
        latency[name] = h.percentile_us(share).into();
    }
    latency["max"] = (h.max_ns as f64 / 1e3).into();
    let step = |(us, n): (u64, u64)| json!({"below_us": us, "operations": n});
    let steps: Vec<Value> = h.steps().into_iter().map(step).collect();
    json!({
        "operations": h.number, "iops": per_second(h, m),
        "mib_per_second": mib_per_second(h, m, plan), "latency_us": latency, "histogram": steps,
    })
}

/// For programs.
pub(super) fn as_json(m: &Measured, plan: &Plan) -> Value {
    let mut both = Histogram::default();
    both.merge(&m.reads);
    both.merge(&m.writes);
    let mut out = json!({
        "pool": plan.pool, "rw": plan.rw.to_string(), "block_bytes": plan.block_bytes,
        "iodepth": plan.depth, "numjobs": plan.jobs, "size_bytes": m.size_bytes,
        "seconds": m.seconds(),
    });
    match &plan.what {
        What::Image { name } => out["image"] = name.as_str().into(),
        What::Objects { prefix, object_bytes, .. } => {
            out["object_prefix"] = prefix.as_str().into();
            out["object_bytes"] = (*object_bytes).into();
        }
    }
    out["all"] = side_as_json(&both, m, plan);
    for (name, does, side) in
        [("read", plan.rw.reads(), &m.reads), ("write", plan.rw.writes(), &m.writes)]
    {
        if does {
            out[name] = side_as_json(side, m, plan);
        }
    }
    out["longest_gap_ms"] = (m.longest_gap.as_secs_f64() * 1e3).into();
    out["by_second"] = m.by_second.clone().into();
    out["cpu_us_per_operation"] = m.cpu_us().into();
    out["cpu_cores"] = (m.cpu_seconds() / m.seconds()).into();
    out["hole_bytes"] = m.hole_bytes.into();
    if plan.verify {
        out["verified_blocks"] = m.verified.into();
        out["damaged_blocks"] = m.damaged.into();
    }
    out
}

/// A time in a unit that people read at a glance.
fn shown(us: f64) -> String {
    match us {
        ..1e3 => format!("{us:.0} us"),
        1e3..1e6 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}

fn shown_bound(us: u64) -> String {
    match us {
        0..1000 => format!("{us} us"),
        1000..1_000_000 => format!("{} ms", us / 1000),
        _ => format!("{} s", us / 1_000_000),
    }
}

fn side_as_text(out: &mut String, name: &str, h: &Histogram, m: &Measured, plan: &Plan) {
    const BAR: f64 = 40.0;
    let _ = writeln!(
        out,
        "{name}: {:.0} op/s, {:.1} MiB/s, {} operations in {:.2} s",
        per_second(h, m),
        mib_per_second(h, m, plan),
        h.number,
        m.seconds(),
    );
    let _ = write!(out, "  latency: mean {}", shown(h.mean_us()));
    for (name, share) in PERCENTILES {
        let _ = write!(out, ", {name} {}", shown(h.percentile_us(share)));
    }
    let _ = writeln!(out, ", max {}", shown(h.max_ns as f64 / 1e3));
    for (us, count) in h.steps() {
        let share = count as f64 / h.number.max(1) as f64;
        let bar = "#".repeat((share * BAR).round() as usize);
        let line = format!("  below {:>7} {:>6.2} %  {bar}", shown_bound(us), share * 100.0);
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// For people.
pub(super) fn as_text(m: &Measured, plan: &Plan) -> String {
    let mut out = String::new();
    if plan.rw.reads() {
        side_as_text(&mut out, "read", &m.reads, m, plan);
    }
    if plan.rw.writes() {
        side_as_text(&mut out, "write", &m.writes, m, plan);
    }
    let gap = shown(m.longest_gap.as_secs_f64() * 1e6);
    let of = if plan.jobs > 1 { " of one job" } else { "" };
    let _ = writeln!(out, "longest time without the end of an operation{of}: {gap}");
    let cores = m.cpu_seconds() / m.seconds();
    let _ = writeln!(out, "CPU of this process: {:.1} us/op, {cores:.2} cores", m.cpu_us());
    if m.hole_bytes > 0 {
        let holes = Bytes(m.hole_bytes);
        let _ = writeln!(out, "{holes} of what was read was never written, and came from no disk");
    }
    if plan.verify {
        let _ = writeln!(out, "verified: {} blocks, {} damaged", m.verified, m.damaged);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::options::Rw;

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn every_number_has_a_counter_that_is_close_to_it() {
        for ns in
            (0..5000).chain((13..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, 3 << (bit - 1)]))
        {
            let n = counter(ns);
            assert!(n < COUNTERS && least(n) <= ns, "{ns}: {n}");
            assert!(ns - least(n) <= ns / PARTS, "{ns}: {}", least(n));
            assert!(n + 1 >= COUNTERS || least(n + 1) > ns, "{ns}");
        }
        assert_eq!(counter(u64::MAX), COUNTERS - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_numbers() {
        let mut h = Histogram::default();
        (1..=1000).for_each(|n| h.add(us(n)));
        let close = |got: f64, wanted: f64| assert!((got / wanted - 1.0).abs() < 0.02, "{got}");
        close(h.percentile_us(0.5), 500.0);
        close(h.percentile_us(0.99), 990.0);
        close(h.percentile_us(0.999), 999.0);
        assert_eq!((h.mean_us(), h.percentile_us(1.0), h.number), (500.5, 1000.0, 1000));
        let mut all = Histogram::default();
        all.merge(&h);
        all.add(us(3_000_000));
        assert_eq!((all.number, all.percentile_us(1.0)), (1001, 3e6));
        assert_eq!(Histogram::default().percentile_us(0.5), 0.0);
    }

    #[test]
    fn steps_go_from_the_first_to_the_last_that_counts() {
        let mut h = Histogram::default();
        for n in [3, 4, 30, 1500] {
            h.add(us(n));
        }
        let steps = [(5, 2), (10, 0), (20, 0), (50, 1), (100, 0), (200, 0), (500, 0), (1000, 0)];
        assert_eq!(h.steps()[..8], steps);
        assert_eq!(h.steps()[8..], [(2000, 1)]);
        assert_eq!(Histogram::default().steps(), []);
    }

    fn plan() -> Plan {
        Plan {
            mons: Vec::new(),
            pool: "p".into(),
            what: What::Image { name: "i".into() },
            rw: Rw::Randmixed,
            mix_read_percent: 70,
            block_bytes: 4096,
            depth: 32,
            jobs: 1,
            runtime: None,
            size: None,
            verify: true,
            run: 1,
        }
    }

    #[test]
    fn jobs_are_put_together() {
        let mut one = Measured {
            time: Duration::from_secs(2),
            longest_gap: us(125),
            by_second: vec![1, 1],
            cpu: Some((us(5), us(25))),
            verified: 3,
            ..Measured::default()
        };
        one.writes.add(us(150));
        let mut all = Measured::default();
        all.merge(&one);
        one.cpu = Some((us(7), us(45)));
        one.by_second = vec![1, 1, 3];
        one.reads.add(us(900));
        all.merge(&one);
        assert_eq!((all.by_second.clone(), all.operations()), (vec![2, 2, 3], 3));
        let json = as_json(&all, &plan());
        assert_eq!((&json["rw"], &json["image"]), (&"randrw".into(), &"i".into()));
        assert_eq!((&json["all"]["iops"], &json["write"]["iops"]), (&1.5.into(), &1.0.into()));
        assert_eq!(json["read"]["latency_us"]["max"], 900.0);
        assert_eq!(json["longest_gap_ms"], 0.125);
        assert!((json["cpu_us_per_operation"].as_f64().unwrap() - 40.0 / 3.0).abs() < 1e-6);
        assert_eq!(json["verified_blocks"], 6);
        let text = as_text(&all, &plan());
        assert!(text.contains("write: 1 op/s, 0.0 MiB/s, 2 operations in 2.00 s"), "{text}");
        assert!(text.contains("mean 150 us, p50 150 us"), "{text}");
        assert!(text.contains("below  200 us 100.00 %  ###"), "{text}");
    }
}

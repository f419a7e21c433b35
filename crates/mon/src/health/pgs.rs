//! Checks of placement groups.

use super::{Checks, Severity};
use crate::cluster::Cluster;
use crate::commands::scrubs;
use crate::pgmap::{PgEntry, Sums};
use crate::show::{list, since};
use admin::units::timespan;
use io::Now;
use pg::StateBits;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{PgId, UTime};
use wire::msg::ObjectStatSum;

/// What a state means for those who use the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Consequence {
    Unavailable,
    Degraded,
    BackfillFull,
    RecoveryFull,
    Damaged,
}

impl Consequence {
    fn code(self) -> (&'static str, Severity, &'static str) {
        use Consequence as C;
        match self {
            C::Unavailable => ("PG_AVAILABILITY", Severity::Warn, "Reduced data availability"),
            C::Degraded => ("PG_DEGRADED", Severity::Warn, "Degraded data redundancy"),
            C::BackfillFull => (
                "PG_BACKFILL_FULL",
                Severity::Warn,
                "Low space hindering backfill (add storage if this doesn't resolve itself)",
            ),
            C::RecoveryFull => ("PG_RECOVERY_FULL", Severity::Err, "Full OSDs blocking recovery"),
            C::Damaged => ("PG_DAMAGED", Severity::Err, "Possible data damage"),
        }
    }

    fn hint(self) -> &'static str {
        use Consequence as C;
        match self {
            C::Unavailable => {
                "clients of these PGs wait; 'ceph pg ID query' and 'ceph osd blocked-by' say for \
                 which OSDs: start those"
            }
            C::Degraded => {
                "copies are missing; they come back with their OSDs, or are made elsewhere when \
                 those are out"
            }
            C::BackfillFull => "add OSDs or delete data",
            C::RecoveryFull => "add OSDs or delete data; until then copies stay missing",
            C::Damaged => {
                "inconsistent: 'rados list-inconsistent-obj ID' says which copies are bad, and 'ceph pg \
                 repair ID' replaces them by good ones; unfound: no good copy is known, start the \
                 OSDs that were down last, see 'ceph pg ID query'"
            }
        }
    }
}

/// States that count at once, and what they mean.
const AT_ONCE: [(StateBits, &str, Consequence); 9] = [
    (StateBits::INCONSISTENT, "inconsistent", Consequence::Damaged),
    (StateBits::INCOMPLETE, "incomplete", Consequence::Unavailable),
    (StateBits::SNAPTRIM_ERROR, "snaptrim_error", Consequence::Damaged),
    (StateBits::RECOVERY_UNFOUND, "recovery_unfound", Consequence::Damaged),
    (StateBits::BACKFILL_UNFOUND, "backfill_unfound", Consequence::Damaged),
    (StateBits::BACKFILL_TOOFULL, "backfill_toofull", Consequence::BackfillFull),
    (StateBits::RECOVERY_TOOFULL, "recovery_toofull", Consequence::RecoveryFull),
    (StateBits::DEGRADED, "degraded", Consequence::Degraded),
    (StateBits::DOWN, "down", Consequence::Unavailable),
];

/// PGs for which a state means the same. They come in order, and there may be a hundred thousand: only as many are
/// described as are shown.
#[derive(Default)]
struct Bad {
    counts: BTreeMap<&'static str, usize>,
    pgs: usize,
    last: Option<PgId>,
    lines: Vec<String>,
}

impl Bad {
    fn add(&mut self, pgid: PgId, what: &'static str, most: usize, line: impl FnOnce() -> String) {
        *self.counts.entry(what).or_default() += 1;
        if self.last != Some(pgid) {
            self.last = Some(pgid);
            self.pgs += 1;
            if self.lines.len() < most {
                self.lines.push(line());
            }
        }
    }
}

/// Where a PG has been stuck, and since when it is not well any more; `stale` is that of a stale one.
fn stuck(
    state: StateBits,
    entry: &PgEntry,
    stale: UTime,
) -> impl Iterator<Item = (&'static str, Consequence, UTime)> + use<> {
    use Consequence as C;
    let s = entry.stamps;
    let active = state.has(StateBits::ACTIVE);
    let kinds = [
        (state.has(StateBits::PEERING), "peering", C::Unavailable, s.peered),
        (!state.has(StateBits::CLEAN), "unclean", C::Degraded, s.clean),
        (state.has(StateBits::UNDERSIZED), "undersized", C::Degraded, s.fullsized),
        (!active, "inactive", C::Unavailable, s.active),
        (state.has(StateBits::STALE), "stale", C::Unavailable, stale),
    ];
    kinds.into_iter().filter(|k| k.0).map(|(_, what, means, since)| (what, means, since))
}

pub(super) fn check(c: &Cluster, now: Now, sums: &Sums, checks: &mut Checks) {
    unfound(c, sums, checks);
    scrub_errors(sums, checks);
    not_scrubbed(c, now, checks);
    let mut by = all_bad(c, now);
    if sums.total.num_objects_degraded > 0 {
        by.entry(Consequence::Degraded).or_default();
    }
    for (means, bad) in by {
        let states = bad.counts.iter().map(|(what, n)| {
            let plural = if *n == 1 { "" } else { "s" };
            format!("{n} pg{plural} {what}")
        });
        let degraded = (means == Consequence::Degraded).then(|| degraded(&sums.total)).flatten();
        let parts: Vec<String> = degraded.into_iter().chain(states).collect();
        let (code, severity, words) = means.code();
        let count = bad.counts.values().sum();
        let check =
            checks.add(code, severity, count, format_args!("{words}: {}", parts.join(", ")));
        let more = bad.pgs - bad.lines.len();
        check.detail(bad.lines);
        if more > 0 {
            check.detail([format!("{more} more pgs are also unhealthy")]);
        }
        check.hint(means.hint());
    }
}

fn max_detail(c: &Cluster) -> usize {
    usize::try_from(c.settings.uint("mon_health_max_detail")).unwrap_or(usize::MAX)
}

fn all_bad(c: &Cluster, now: Now) -> BTreeMap<Consequence, Bad> {
    let (map, most) = (c.map(), max_detail(c));
    let threshold = c.settings.duration("mon_pg_stuck_threshold");
    let mut all: BTreeMap<Consequence, Bad> = BTreeMap::new();
    for (pgid, entry) in c.pgmap.all(map) {
        let state = c.pgmap.state(map, entry);
        let Some(entry) = entry else {
            if let Some(lasts) = unknown(c, now, threshold, pgid) {
                let lasts = timespan(lasts);
                let line = || {
                    format!(
                        "pg {pgid} is stuck inactive for {lasts}, current state unknown, last acting []"
                    )
                };
                all.entry(Consequence::Unavailable).or_default().add(pgid, "inactive", most, line);
            }
            continue;
        };
        for (_, what, means) in AT_ONCE.iter().filter(|(bits, _, _)| state.has(*bits)) {
            let line = || {
                let unfound = match entry.stat.unfound {
                    0 => String::new(),
                    n => format!(", {n} unfound"),
                };
                format!("pg {pgid} is {state}, acting {}{unfound}", list(&entry.stat.acting))
            };
            all.entry(*means).or_default().add(pgid, what, most, line);
        }
        let stale = c.pgmap.stale_since(entry).unwrap_or(now.wall);
        for (what, means, well_until) in stuck(state, entry, stale) {
            // One that never was well counts from when it was first heard of.
            let from = if well_until.is_zero() { entry.stamps.change } else { well_until };
            let lasts = since(now.wall, from.max(c.started.wall));
            let line = || {
                format!(
                    "pg {pgid} is stuck {what} for {}, current state {state}, last acting {}",
                    timespan(lasts),
                    list(&entry.stat.acting)
                )
            };
            if lasts >= threshold {
                all.entry(means).or_default().add(pgid, what, most, line);
            }
        }
    }
    all
}

/// Of a PG that nobody reports, when it has been so for long.
fn unknown(c: &Cluster, now: Now, threshold: Duration, pgid: PgId) -> Option<Duration> {
    let made = c.map().pool(pgid.pool).map(|p| p.create_time).unwrap_or_default();
    let lasts = since(now.wall, made.max(c.started.wall));
    (lasts >= threshold).then_some(lasts)
}

/// `5/66 objects degraded (7.576%)`
pub(crate) fn degraded(sum: &ObjectStatSum) -> Option<String> {
    ratio_text(sum.num_objects_degraded, sum.num_object_copies, "degraded")
}

/// The same of any part and whole; nothing when there is no part.
pub(crate) fn ratio_text(part: i64, whole: i64, word: &str) -> Option<String> {
    if part <= 0 || whole <= 0 {
        return None;
    }
    let percent = part as f64 / whole as f64 * 100.0;
    Some(format!("{part}/{whole} objects {word} ({percent:.3}%)"))
}

fn scrub_errors(sums: &Sums, checks: &mut Checks) {
    let errors = sums.total.num_scrub_errors;
    if errors > 0 {
        let count = usize::try_from(errors).unwrap_or(usize::MAX);
        checks
            .add("OSD_SCRUB_ERRORS", Severity::Err, count, format_args!("{errors} scrub errors"))
            .hint("see PG_DAMAGED for the PGs, and what to do");
    }
}

/// PGs whose scrubs are very late.
fn not_scrubbed(c: &Cluster, now: Now, checks: &mut Checks) {
    let seconds = |name: &str| types::seconds(c.settings.float(name));
    let kinds = [
        ("scrub", "osd_scrub_max_interval", "scrub_max_interval", "mon_warn_pg_not_scrubbed_ratio"),
        (
            "deep-scrub",
            "osd_deep_scrub_interval",
            "deep_scrub_interval",
            "mon_warn_pg_not_deep_scrubbed_ratio",
        ),
    ];
    for (kind, option, own, ratio) in kinds {
        let ratio = c.settings.float(ratio);
        if ratio <= 0.0 {
            continue;
        }
        let (mut lines, mut n, most) = (Vec::new(), 0, max_detail(c));
        for (pgid, entry) in c.pgmap.reported() {
            let Some(pool) = c.map().pool(pgid.pool) else { continue };
            let interval = pool.opts.duration(own).unwrap_or_else(|| seconds(option));
            let scrubs = scrubs(c, pgid, Some(entry));
            let last = if kind == "scrub" {
                scrubs.last_scrub_stamp
            } else {
                scrubs.last_deep_scrub_stamp
            };
            let last = pg::scrub::credible(last, now.wall);
            if since(now.wall, last) > types::times(interval, 1.0 + ratio) {
                n += 1;
                if lines.len() < most {
                    lines.push(format!("pg {pgid} not {kind}bed since {last}"));
                }
            }
        }
        let more = n - lines.len();
        let code = if kind == "scrub" { "PG_NOT_SCRUBBED" } else { "PG_NOT_DEEP_SCRUBBED" };
        if n > 0 {
            checks
                .add(code, Severity::Warn, n, format_args!("{n} pgs not {kind}bed in time"))
                .detail(lines)
                .detail((more > 0).then(|| format!("{more} more pgs... ")))
                .hint(
                    "are 'noscrub' or 'nodeep-scrub' set, or OSDs down for long? 'ceph osd \
                     deep-scrub all' asks for all at once; osd_max_scrubs allows more at a time",
                );
        }
    }
}

fn unfound(c: &Cluster, sums: &Sums, checks: &mut Checks) {
    let total = &sums.total;
    let Some(text) = ratio_text(total.num_objects_unfound, total.num_objects, "unfound") else {
        return;
    };
    let with = c.pgmap.reported().filter(|(_, e)| e.stat.unfound > 0);
    let lines: Vec<String> =
        with.map(|(pgid, e)| format!("pg {pgid} has {} unfound objects", e.stat.unfound)).collect();
    let count = usize::try_from(total.num_objects_unfound).unwrap_or(usize::MAX);
    checks
        .add("OBJECT_UNFOUND", Severity::Warn, count, text)
        .detail(lines)
        .hint("start the OSDs that were down last: their copies may be the good ones");
}

//! The same as tables.

use super::value::scrubs;
use crate::cluster::Cluster;
use crate::pgmap::{PgEntry, stat_sum};
use crate::show::{list, since};
use admin::units::Bytes;
use admin::{Align, TextTable};
use io::Now;
use peer::PgStat;
use std::time::Duration;
use types::{OsdId, PgId};
use wire::msg::{ObjectStatSum, PoolStat};

/// PGs, and what is known of them.
pub(super) type Pgs<'a> = [(PgId, Option<&'a PgEntry>)];

/// What stands below tables with figures of omap.
pub(super) const NOTE: &str = "\n* NOTE: Omap statistics are gathered during deep scrub and may be inaccurate soon afterwards \
     depending on utilization. See http://docs.ceph.com/en/latest/dev/placement-group/#omap-statistics \
     for further details.\n";

const COUNTS: [&str; 10] = [
    "OBJECTS",
    "MISSING_ON_PRIMARY",
    "DEGRADED",
    "MISPLACED",
    "UNFOUND",
    "BYTES",
    "OMAP_BYTES*",
    "OMAP_KEYS*",
    "LOG",
    "DISK_LOG",
];

/// The figures under [`COUNTS`].
fn counts(s: &ObjectStatSum, log: i64) -> [String; 10] {
    [
        s.num_objects,
        s.num_objects_missing_on_primary,
        s.num_objects_degraded,
        s.num_objects_misplaced,
        s.num_objects_unfound,
        s.num_bytes,
        s.num_omap_bytes,
        s.num_omap_keys,
        log,
        log,
    ]
    .map(|n| n.to_string())
}

fn sum_of(c: &Cluster, pgid: PgId, entry: Option<&PgEntry>) -> ObjectStatSum {
    let pair = entry.zip(c.map().pool(pgid.pool));
    pair.map(|(e, pool)| stat_sum(e, pool)).unwrap_or_default()
}

/// `pg dump pgs`
pub(super) fn pgs(c: &Cluster, all: &Pgs<'_>) -> String {
    let mut table = TextTable::new()
        .column("PG_STAT", Align::Left, Align::Left)
        .columns(&COUNTS, Align::Left, Align::Right)
        .columns(&["STATE", "STATE_STAMP"], Align::Left, Align::Left)
        .columns(&["VERSION", "REPORTED"], Align::Left, Align::Right)
        .column("UP", Align::Left, Align::Left)
        .column("UP_PRIMARY", Align::Left, Align::Right)
        .column("ACTING", Align::Left, Align::Left)
        .columns(&["ACTING_PRIMARY", "LAST_SCRUB"], Align::Left, Align::Right)
        .column("SCRUB_STAMP", Align::Left, Align::Left)
        .column("LAST_DEEP_SCRUB", Align::Left, Align::Right)
        .column("DEEP_SCRUB_STAMP", Align::Left, Align::Left)
        .column("SNAPTRIMQ_LEN", Align::Left, Align::Right);
    for &(pgid, entry) in all {
        let stat = entry.map(|e| &e.stat);
        let log = stat.map_or(0, |s| i64::try_from(s.log_entries).unwrap_or(i64::MAX));
        let mut row = vec![pgid.to_string()];
        row.extend(counts(&sum_of(c, pgid, entry), log));
        let scrubs = scrubs(c, pgid, entry);
        let (epoch, seq) = (stat.map_or(0, |s| s.epoch.0), entry.map_or(0, |e| e.seq));
        row.extend([
            c.pgmap.state(c.map(), entry).to_string(),
            entry.map(|e| e.stamps.change).unwrap_or_default().to_string(),
            stat.map(|s| s.last_update).unwrap_or_default().to_string(),
            format!("{epoch}:{seq}"),
        ]);
        row.extend(mapping(stat));
        row.extend([
            scrubs.last_scrub.to_string(),
            scrubs.last_scrub_stamp.to_string(),
            scrubs.last_deep_scrub.to_string(),
            scrubs.last_deep_scrub_stamp.to_string(),
            stat.map_or(0, |s| s.snaps_to_trim).to_string(),
        ]);
        table.row(row);
    }
    table.to_string()
}

/// `pg dump pgs_brief`, `pg dump_stuck`
pub(super) fn brief(c: &Cluster, all: &Pgs<'_>) -> String {
    let mut table = TextTable::new()
        .columns(&["PG_STAT", "STATE"], Align::Left, Align::Left)
        .column("UP", Align::Left, Align::Left)
        .column("UP_PRIMARY", Align::Left, Align::Right)
        .column("ACTING", Align::Left, Align::Left)
        .column("ACTING_PRIMARY", Align::Left, Align::Right);
    for &(pgid, entry) in all {
        let stat = entry.map(|e| &e.stat);
        let mut row = vec![pgid.to_string(), c.pgmap.state(c.map(), entry).to_string()];
        row.extend(mapping(stat));
        table.row(row);
    }
    table.to_string()
}

/// The columns UP, UP_PRIMARY, ACTING, ACTING_PRIMARY.
fn mapping(stat: Option<&PgStat>) -> [String; 4] {
    [
        list(stat.map(|s| &s.up[..]).unwrap_or_default()),
        stat.map_or(-1, |s| s.up_primary).to_string(),
        list(stat.map(|s| &s.acting[..]).unwrap_or_default()),
        stat.map_or(-1, |s| s.acting_primary).to_string(),
    ]
}

/// Since when, in the largest fitting units: `88s`, `2m`, `3h`.
fn age(lasts: Duration) -> String {
    // Up to two minutes Ceph counts seconds.
    match lasts.as_secs() {
        s if s < 120 => format!("{s}s"),
        _ => admin::units::timespan(lasts),
    }
}

/// `pg ls`
pub(super) fn ls(c: &Cluster, now: Now, all: &Pgs<'_>) -> String {
    let mut table = TextTable::new()
        .column("PG", Align::Left, Align::Left)
        .columns(
            &[
                "OBJECTS",
                "DEGRADED",
                "MISPLACED",
                "UNFOUND",
                "BYTES",
                "OMAP_BYTES*",
                "OMAP_KEYS*",
                "LOG",
            ],
            Align::Left,
            Align::Right,
        )
        .column("STATE", Align::Left, Align::Left)
        .columns(&["SINCE", "VERSION", "REPORTED"], Align::Left, Align::Right)
        .columns(&["UP", "ACTING", "SCRUB_STAMP", "DEEP_SCRUB_STAMP"], Align::Left, Align::Left);
    for &(pgid, entry) in all {
        let stat = entry.map(|e| &e.stat);
        let s = sum_of(c, pgid, entry);
        let change = entry.map(|e| e.stamps.change).unwrap_or_default();
        let set = |osds: Option<&[OsdId]>, primary: Option<i32>| {
            format!("{}p{}", list(osds.unwrap_or_default()), primary.unwrap_or(-1))
        };
        let numbers = [
            s.num_objects,
            s.num_objects_degraded,
            s.num_objects_misplaced,
            s.num_objects_unfound,
            s.num_bytes,
            s.num_omap_bytes,
            s.num_omap_keys,
            stat.map_or(0, |s| i64::try_from(s.log_entries).unwrap_or(i64::MAX)),
        ];
        let mut row = vec![pgid.to_string()];
        row.extend(numbers.map(|n| n.to_string()));
        let scrubs = scrubs(c, pgid, entry);
        let (epoch, seq) = (stat.map_or(0, |s| s.epoch.0), entry.map_or(0, |e| e.seq));
        row.extend([
            c.pgmap.state(c.map(), entry).to_string(),
            age(since(now.wall, change)),
            stat.map(|s| s.last_update).unwrap_or_default().to_string(),
            format!("{epoch}:{seq}"),
            set(stat.map(|s| &s.up[..]), stat.map(|s| s.up_primary)),
            set(stat.map(|s| &s.acting[..]), stat.map(|s| s.acting_primary)),
            scrubs.last_scrub_stamp.to_string(),
            scrubs.last_deep_scrub_stamp.to_string(),
        ]);
        table.row(row);
    }
    table.to_string()
}

/// `pg dump pools`
pub(super) fn pools(c: &Cluster, headings: bool) -> String {
    let sums = c.pgmap.sums(c.map());
    let rows: Vec<(String, PoolStat)> =
        sums.pools.iter().rev().map(|(id, s)| (id.to_string(), *s)).collect();
    count_table("POOLID", &rows, headings)
}

/// The last line of `pg dump`: what all PGs add up to.
pub(super) fn sum(c: &Cluster, headings: bool) -> String {
    let sums = c.pgmap.sums(c.map());
    let mut all = PoolStat { log_size: sums.log_size, ..PoolStat::default() };
    all.stats.sum = sums.total;
    count_table("PG_STAT", &[("sum".into(), all)], headings)
}

/// In the long dump Ceph prints these tables without headings, as narrow as they are then.
fn count_table(first: &str, rows: &[(String, PoolStat)], headings: bool) -> String {
    let name = |text| if headings { text } else { "" };
    let mut table = TextTable::new().column(name(first), Align::Left, Align::Left).columns(
        &COUNTS.map(name),
        Align::Left,
        Align::Right,
    );
    for (name, stat) in rows {
        let mut row = vec![name.clone()];
        row.extend(counts(&stat.stats.sum, stat.log_size));
        table.row(row);
    }
    table.to_string()
}

fn sizes(sum: &crate::pgmap::OsdSum) -> [String; 4] {
    [sum.used(), sum.available, sum.used(), sum.total].map(|bytes| Bytes(bytes).to_string())
}

const SIZES: [&str; 4] = ["USED", "AVAIL", "USED_RAW", "TOTAL"];

/// `pg dump osds`
pub(super) fn osds(c: &Cluster) -> String {
    let mut table = TextTable::new()
        .column("OSD_STAT", Align::Left, Align::Left)
        .columns(&SIZES, Align::Left, Align::Right)
        .columns(&["HB_PEERS", "PG_SUM", "PRIMARY_PG_SUM"], Align::Left, Align::Right);
    let pgs = c.pgmap.pgs_by_osd();
    let all: Vec<_> = c.pgmap.osds().collect();
    for (id, stat) in all.iter().rev() {
        let figures = super::value::Osds::one(c, *id, stat);
        let (holds, leads) = pgs.get(id).copied().unwrap_or_default();
        let mut row = vec![id.to_string()];
        row.extend(sizes(&figures.sum));
        row.extend([list(&figures.peers), holds.to_string(), leads.to_string()]);
        table.row(row);
    }
    let mut row = vec!["sum".to_owned()];
    row.extend(sizes(&super::value::Osds::all(c).sum));
    row.extend([String::new(), String::new(), String::new()]);
    table.row(row);
    table.to_string()
}

/// What all OSDs add up to, alone.
pub(super) fn osd_sum(c: &Cluster) -> String {
    let mut table = TextTable::new().column("OSD_STAT", Align::Left, Align::Left).columns(
        &SIZES,
        Align::Left,
        Align::Right,
    );
    let mut row = vec!["sum".to_owned()];
    row.extend(sizes(&super::value::Osds::all(c).sum));
    table.row(row);
    table.to_string()
}

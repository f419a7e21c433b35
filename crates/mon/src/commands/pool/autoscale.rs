//! How many PGs pools should have by what they hold, as Ceph's autoscaler reckons (`pg_autoscaler/module.py`).
//!
//! It is advice: nothing here changes a number of PGs by itself, whatever `pg_autoscale_mode` is.

use super::stats::sum;
use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, read};
use admin::units::Bytes;
use admin::{Align, Answer, TextTable};
use maps::{PgPool, PoolFlags, PoolOpt, PoolOptKey};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::{OsdId, PoolId};

pub(super) const COMMANDS: &[CommandDef] = &[read(
    "osd pool autoscale-status",
    "osd",
    "shows how many PGs pools should have by what they hold; nothing changes them by itself",
    status,
)];

/// PGs that an OSD should have: Ceph's default of `mon_target_pg_per_osd`.
const PGS_PER_OSD: f64 = 100.0;
/// The fewest PGs of a pool that says nothing else.
const LEAST_PGS: u32 = 32;
/// A number of PGs is to be changed when it is wrong by more than this factor.
const THRESHOLD: f64 = 3.0;

/// What pools share that take their OSDs from below one bucket.
#[derive(Default)]
struct Root {
    /// Raw bytes of its OSDs.
    capacity: u64,
    osds: usize,
    target_ratio: f64,
    target_bytes: f64,
}

/// What is said of a pool.
struct Row<'a> {
    id: PoolId,
    name: &'a str,
    pool: &'a PgPool,
    root: i32,
    capacity: u64,
    logical: u64,
    target_bytes: u64,
    target_ratio: f64,
    effective_target_ratio: f64,
    /// Of the capacity, of what is there and of what is to be expected.
    actual_ratio: f64,
    ratio: f64,
    raw_used: f64,
    bias: f64,
    ideal: u32,
    last: u32,
}

impl Row<'_> {
    fn copies(&self) -> f64 {
        f64::from(self.pool.size)
    }

    fn would_adjust(&self) -> bool {
        let (now, then) = (f64::from(self.pool.pg_num_target), f64::from(self.last));
        (then > now * THRESHOLD || then < now / THRESHOLD) && self.ratio <= 1.0
    }

    fn is_bulk(&self) -> bool {
        self.pool.flags.contains(PoolFlags::BULK)
    }

    fn json(&self) -> Value {
        json!({
            "actual_capacity_ratio": self.actual_ratio,
            "actual_raw_used": self.logical as f64 * self.copies(),
            "bias": self.bias,
            "bulk": self.is_bulk(),
            "capacity_ratio": self.ratio,
            "crush_root_id": self.root,
            "effective_target_ratio": self.effective_target_ratio,
            "logical_used": self.logical,
            "pg_autoscale_mode": self.pool.pg_autoscale_mode.name(),
            "pg_num_final": self.last,
            "pg_num_ideal": self.ideal,
            "pg_num_target": self.pool.pg_num_target,
            "pool_id": self.id.0,
            "pool_name": self.name,
            "raw_used": self.raw_used,
            "raw_used_rate": self.copies(),
            "subtree_capacity": self.capacity,
            "target_bytes": self.target_bytes,
            "target_ratio": self.target_ratio,
            "would_adjust": self.would_adjust(),
        })
    }

    fn cells(&self) -> [String; 13] {
        let some = |is: bool, text: String| if is { text } else { String::new() };
        [
            self.name.to_owned(),
            Bytes(self.logical).to_string(),
            some(self.target_bytes > 0, Bytes(self.target_bytes).to_string()),
            format!("{:.1}", self.copies()),
            Bytes(self.capacity).to_string(),
            format!("{:.4}", self.ratio),
            some(self.target_ratio > 0.0, format!("{:.4}", self.target_ratio)),
            some(self.effective_target_ratio > 0.0, format!("{:.4}", self.effective_target_ratio)),
            format!("{:.1}", self.bias),
            self.pool.pg_num_target.to_string(),
            some(self.would_adjust(), self.last.to_string()),
            self.pool.pg_autoscale_mode.name().to_owned(),
            if self.is_bulk() { "True" } else { "False" }.to_owned(),
        ]
    }
}

/// An option of a pool that is a number; 0 when it is not set.
fn number(pool: &PgPool, name: &str) -> f64 {
    let value = PoolOptKey::from_name(name).and_then(|key| pool.opts.0.get(&key));
    match value {
        Some(PoolOpt::Int(n)) => *n as f64,
        Some(PoolOpt::Double(x)) => *x,
        Some(PoolOpt::Str(_)) | None => 0.0,
    }
}

/// Bytes that a pool is said to hold one day. A share of the cluster that is said, too, counts instead.
fn target_bytes(pool: &PgPool) -> f64 {
    if number(pool, "target_size_ratio") > 0.0 { 0.0 } else { number(pool, "target_size_bytes") }
}

/// The power of two that is nearest to a number, of two as near ones the larger.
fn nearest_power_of_two(n: u32) -> u32 {
    let above = n.checked_next_power_of_two().unwrap_or(1 << 31);
    let below = above / 2;
    if n.saturating_sub(below) < above.saturating_sub(n) { below.max(1) } else { above }
}

fn rows(c: &Cluster) -> Vec<Row<'_>> {
    let map = c.map();
    let root_of = |pool: &PgPool| map.crush().rule(map.rule_of(pool)?)?.takes().next();
    let mut roots: BTreeMap<i32, Root> = BTreeMap::new();
    for pool in map.pools.values() {
        let Some(id) = root_of(pool) else { continue };
        let root = roots.entry(id).or_insert_with(|| {
            let osds = map.crush().devices_below(id).into_iter().map(OsdId);
            let osds: Vec<OsdId> = osds.filter(|osd| map.is_in(*osd)).collect();
            let capacity = c.pgmap.osd_sum(osds.iter().copied()).total;
            Root { capacity, osds: osds.len(), ..Root::default() }
        });
        root.target_ratio += number(pool, "target_size_ratio");
        root.target_bytes += target_bytes(pool) * f64::from(pool.size);
    }
    let all = map.pools.iter().filter_map(|(id, pool)| {
        let root = root_of(pool)?;
        row_of(c, *id, root, roots.get(&root)?)
    });
    all.collect()
}

/// `None`: there are no OSDs whose room it could take.
fn row_of<'a>(c: &'a Cluster, id: PoolId, root_id: i32, root: &Root) -> Option<Row<'a>> {
    let map = c.map();
    let pool = map.pool(id)?;
    if root.capacity == 0 {
        return None;
    }
    let (capacity, copies) = (root.capacity as f64, f64::from(pool.size));
    let logical = u64::try_from(sum(c, id).num_bytes).unwrap_or(0);
    let target_bytes = target_bytes(pool);
    let raw_used = target_bytes.max(logical as f64) * copies;
    let target_ratio = number(pool, "target_size_ratio");
    let share = if root.target_ratio > 0.0 { target_ratio / root.target_ratio } else { 0.0 };
    let effective_target_ratio = share * (1.0 - (root.target_bytes / capacity).min(1.0));
    let ratio = (raw_used / capacity).max(effective_target_ratio);
    let set = |name: &str| Some(number(pool, name)).filter(|n| *n > 0.0);
    let has_bias =
        PoolOptKey::from_name("pg_autoscale_bias").is_some_and(|k| pool.opts.0.contains_key(&k));
    let bias = if has_bias { number(pool, "pg_autoscale_bias") } else { 1.0 };
    let ideal = ratio * root.osds as f64 * PGS_PER_OSD / copies.max(1.0) * bias;
    let ideal = ideal as u32;
    let least = set("pg_num_min").map_or(LEAST_PGS, |n| n as u32);
    let most = set("pg_num_max").map_or(u32::MAX, |n| n as u32);
    Some(Row {
        id,
        name: map.pool_name(id).unwrap_or_default(),
        pool,
        root: root_id,
        capacity: root.capacity,
        logical,
        target_bytes: target_bytes as u64,
        target_ratio,
        effective_target_ratio,
        actual_ratio: logical as f64 * copies / capacity,
        ratio,
        raw_used,
        bias,
        ideal,
        last: nearest_power_of_two(ideal).max(least).min(most),
    })
}

fn status(c: &Cluster, call: &Call) -> Reply {
    let rows = rows(c);
    Ok(Answer::either(
        call.format(),
        || rows.iter().map(Row::json).collect(),
        || {
            let numbers = [
                "SIZE",
                "TARGET SIZE",
                "RATE",
                "RAW CAPACITY",
                "RATIO",
                "TARGET RATIO",
                "EFFECTIVE RATIO",
                "BIAS",
                "PG_NUM",
                "NEW PG_NUM",
            ];
            let mut table = TextTable::new()
                .column("POOL", Align::Left, Align::Left)
                .columns(&numbers, Align::Right, Align::Right)
                .columns(&["AUTOSCALE", "BULK"], Align::Left, Align::Left);
            rows.iter().for_each(|row| table.row(row.cells()));
            table.to_string()
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_power_of_two() {
        let pairs =
            [(0, 1), (1, 1), (2, 2), (5, 4), (6, 8), (11, 8), (12, 16), (u32::MAX, 1 << 31)];
        for (n, power) in pairs {
            assert_eq!(nearest_power_of_two(n), power, "{n}");
        }
    }
}

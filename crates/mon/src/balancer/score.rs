//! How evenly data lie on OSDs, as `ceph balancer eval` says it: 0 is perfect, 1 as bad as can be. Source:
//! Ceph `pybind/mgr/balancer/module.py: calc_stats, calc_eval`.

use super::upmap::weights;
use crate::pgmap::PgMap;
use maps::OsdMap;
use std::collections::{BTreeMap, BTreeSet};
use types::{OsdId, PoolId};

/// PGs, objects and bytes.
type Amount = [f64; 3];

/// What lies below one root of the CRUSH tree.
#[derive(Default)]
struct Root {
    /// The share of each OSD.
    shares: BTreeMap<OsdId, f64>,
    held: BTreeMap<OsdId, Amount>,
}

/// The score of these pools, with PGs where the map wants them.
pub(crate) fn score(map: &OsdMap, pgmap: &PgMap, pools: &BTreeSet<PoolId>) -> f64 {
    let placer = pgmap.placer(map);
    let mut roots: BTreeMap<i32, Root> = BTreeMap::new();
    let mut seen: BTreeSet<u32> = BTreeSet::new();
    for (&id, pool) in map.pools.iter().filter(|(id, _)| pools.contains(id)) {
        let Some(number) = map.rule_of(pool) else { continue };
        let rule = map.crush().rule(number);
        let Some(take) = rule.and_then(|r| r.takes().next()) else { continue };
        let root = roots.entry(take).or_default();
        if seen.insert(number) {
            root.shares.extend(weights(map, number));
        }
        for pgid in pool.pgs(id) {
            let sums = pgmap.get(pgid).map(|e| e.stat.sums).unwrap_or_default();
            for osd in placer.up_acting(pgid).up.iter().filter(|osd| osd.is_some()) {
                let held = root.held.entry(*osd).or_default();
                let more = [1.0, sums.objects as f64, sums.bytes as f64];
                held.iter_mut().zip(more).for_each(|(sum, n)| *sum += n);
            }
        }
    }
    let all: f64 = roots.values().map(Root::score).sum();
    if roots.is_empty() { 0.0 } else { all / roots.len() as f64 }
}

impl Root {
    fn score(&self) -> f64 {
        let of = |kind: usize| {
            let amount = |held: &Amount| held.get(kind).copied().unwrap_or_default();
            let total: f64 = self.held.values().map(amount).sum();
            let count = self.shares.len().max(1) as f64;
            let average = total / count;
            let over = |(osd, share): (&OsdId, &f64)| {
                let adjusted = self.held.get(osd).map_or(0.0, amount) / share / count;
                // The more it has, the worse, but never more than its share.
                let excess = (adjusted - average) / average;
                if excess > 0.0 {
                    share * libm::erf(excess / std::f64::consts::SQRT_2)
                } else {
                    0.0
                }
            };
            if total > 0.0 { self.shares.iter().map(over).sum() } else { 0.0 }
        };
        (of(0) + of(1) + of(2)) / 3.0
    }
}

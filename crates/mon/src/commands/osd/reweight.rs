//! Weights of OSDs evened out: by how full they are, or by how many PGs they have.

use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, read, write};
use crate::pgmap::Placer;
use admin::units::stream;
use admin::{Answer, CommandError};
use maps::{Incremental, OsdMap, WEIGHT_IN};
use serde_json::json;
use std::collections::BTreeMap;
use types::{OsdId, PoolId};

pub(super) const COMMANDS: &[CommandDef] = &[
    write(
        "osd reweight-by-utilization [oload:Int] [max_change:Float] [max_osds:Int] \
         [no_increasing:Choices,--no-increasing]",
        "osd",
        "takes weight from OSDs that are fuller than others",
        by_utilization,
    ),
    read(
        "osd test-reweight-by-utilization [oload:Int] [max_change:Float] [max_osds:Int] \
         [no_increasing:Bool]",
        "osd",
        "shows what reweight-by-utilization would do",
        test_by_utilization,
    ),
    write(
        "osd reweight-by-pg [oload:Int] [max_change:Float] [max_osds:Int] [pools:Poolname]...",
        "osd",
        "takes weight from OSDs that have more PGs than others",
        by_utilization,
    ),
    read(
        "osd test-reweight-by-pg [oload:Int] [max_change:Float] [max_osds:Int] \
         [pools:Poolname]...",
        "osd",
        "shows what reweight-by-pg would do",
        test_by_utilization,
    ),
];

/// How many PGs each OSD has that is up and in.
pub(super) struct Spread {
    counts: BTreeMap<OsdId, usize>,
    /// PGs it would have if each place were thrown with dice, by weight.
    pub baseline_dev: f64,
}

impl Spread {
    /// Of all PGs of some pools.
    pub fn of(placer: Placer<'_>, counted: &dyn Fn(PoolId) -> bool) -> Self {
        let map = placer.map;
        let serving = map.in_osds().filter(|&id| map.is_up(id));
        let mut counts: BTreeMap<OsdId, usize> = serving.map(|id| (id, 0)).collect();
        for (&pool, p) in map.pools.iter().filter(|(id, _)| counted(**id)) {
            for pgid in p.pgs(pool) {
                for osd in placer.up_acting(pgid).up {
                    if let Some(n) = counts.get_mut(&osd) {
                        *n += 1;
                    }
                }
            }
        }
        let each = 1.0 / counts.len().max(1) as f64;
        let total: usize = counts.values().sum();
        // Ceph computes this in single precision.
        let baseline_dev = f64::from((total as f64 * each * (1.0 - each)).sqrt() as f32);
        Spread { counts, baseline_dev }
    }

    fn total(&self) -> usize {
        self.counts.values().sum()
    }

    /// PGs of an OSD on average.
    pub fn mean(&self) -> f64 {
        self.total() as f64 / self.counts.len().max(1) as f64
    }

    /// The standard deviation from that.
    pub fn dev(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.counts.values().map(|&n| (n as f64 - mean).powi(2)).sum();
        (squares / self.counts.len().max(1) as f64).sqrt()
    }

    /// The first OSD with the least, and the first with the most.
    pub fn ends(&self) -> ((OsdId, usize), (OsdId, usize)) {
        let none = (OsdId(-1), 0);
        let min = self.counts.iter().min_by_key(|(_, n)| **n);
        let max = self.counts.iter().rev().max_by_key(|(_, n)| **n);
        let take = |e: Option<(&OsdId, &usize)>| e.map_or(none, |(id, n)| (*id, *n));
        (take(min), take(max))
    }
}

/// How much it is of the mean.
pub(super) fn share(n: usize, mean: f64) -> String {
    // Ceph divides and prints what the processor gives.
    if mean == 0.0 { "-nan".to_owned() } else { stream(n as f64 / mean) }
}

/// What `reweight-by-utilization` is to do.
struct Plan {
    oload: i64,
    max_change: f64,
    max_osds: usize,
    mean: f64,
    overload: f64,
    before: Spread,
    after: Spread,
    /// OSD, use, old and new weight.
    changes: Vec<(OsdId, f64, u32, u32)>,
}

/// The pools that count; none are all of them.
fn pools(c: &Cluster, call: &Call) -> Result<Vec<PoolId>, CommandError> {
    let unknown = |name: &str| format!("pool '{name}' does not exist");
    let found = |name: &str| {
        c.map().pool_by_name(name).ok_or_else(|| CommandError::not_found(unknown(name)))
    };
    call.args.list("pools").iter().map(|name| found(name)).collect()
}

/// How full OSDs are, on average and each.
fn fullness(c: &Cluster) -> (f64, Vec<(OsdId, f64)>) {
    let osds = c.map().in_osds();
    let uses = osds.filter_map(|id| Some((id, c.pgmap.osd(id)?.fullness())));
    (c.pgmap.osd_sum(c.map().in_osds()).used_ratio(), uses.collect())
}

/// How many PGs there are for each unit of CRUSH weight, on average and on each OSD.
fn pgs_by_weight(map: &OsdMap, spread: &Spread) -> (f64, Vec<(OsdId, f64)>) {
    let weighty = spread.counts.iter().filter_map(|(&id, &pgs)| {
        let weight = crate::show::weight(map.crush().item_weight(id.0)?);
        (weight > 0.0).then_some((id, pgs as f64, weight))
    });
    let weighty: Vec<_> = weighty.collect();
    let weight: f64 = weighty.iter().map(|(_, _, weight)| weight).sum();
    let pgs: f64 = weighty.iter().map(|(_, pgs, _)| pgs).sum();
    let mean = if weight > 0.0 { pgs / weight } else { 0.0 };
    (mean, weighty.into_iter().map(|(id, pgs, weight)| (id, pgs / weight)).collect())
}

fn plan(c: &Cluster, call: &Call) -> Result<Plan, CommandError> {
    let oload = call.args.int("oload").unwrap_or(120);
    let max_change = call.args.float("max_change").unwrap_or(0.05);
    let max_osds = call.args.int("max_osds").unwrap_or(4);
    if oload <= 100 {
        let text = format!(
            "You must give a percentage higher than 100. The reweighting threshold \
                            will be calculated as <average-utilization> times <input-percentage>. \
                            For example, an argument of 200 would reweight OSDs which are twice as \
                            utilized as the average OSD.\nYou gave {oload}"
        );
        return Err(CommandError::invalid(text));
    }
    let bad = || CommandError::invalid(format_args!("max_osds {max_osds} must be positive"));
    let max_osds = usize::try_from(max_osds).ok().filter(|n| *n > 0).ok_or_else(bad)?;
    if max_change <= 0.0 {
        return Err(CommandError::invalid(format_args!(
            "max_change {max_change} must be positive"
        )));
    }
    let increase = !call.args.has("no_increasing");
    let map = c.map();
    let pools = pools(c, call)?;
    let counted = |id| pools.is_empty() || pools.contains(&id);
    let before = Spread::of(c.pgmap.placer(map), &counted);
    let (mean, mut uses) = match call.args.prefix().ends_with("by-pg") {
        true => pgs_by_weight(map, &before),
        false => fullness(c),
    };
    let overload = mean * oload as f64 / 100.0;
    uses.sort_by(|a, b| (b.1 - mean).abs().total_cmp(&(a.1 - mean).abs()));
    let mut changes = Vec::new();
    for (id, used) in uses {
        let old = map.weight(id);
        let one = f64::from(WEIGHT_IN);
        let new = if used > overload {
            // As much less as it is too full, but not by more than allowed.
            (f64::from(old) * mean / used).max(f64::from(old) - max_change * one)
        } else if used < mean && old < WEIGHT_IN && increase && used > 0.0 {
            (f64::from(old) * mean / used).min(f64::from(old) + max_change * one).min(one)
        } else {
            continue;
        };
        // Zero would mean out.
        let new = new.max(1.0) as u32;
        if new != old && changes.len() < max_osds {
            changes.push((id, used, old, new));
        }
    }
    let mut next = OsdMap::clone(map);
    changes.iter().for_each(|(id, _, _, new)| next.set_weight(*id, *new));
    let after = Spread::of(c.pgmap.placer(&next), &counted);
    Ok(Plan { oload, max_change, max_osds, mean, overload, before, after, changes })
}

fn test_by_utilization(c: &Cluster, call: &Call) -> Reply {
    Ok(show_plan(call, &plan(c, call)?).with_message("no change"))
}

fn by_utilization(c: &mut Cluster, call: &Call) -> Reply {
    let plan = plan(c, call)?;
    let answer = show_plan(call, &plan);
    if plan.changes.is_empty() {
        return Ok(answer.with_message("no change"));
    }
    c.change(|inc: &mut Incremental, _| {
        inc.new_weight.extend(plan.changes.iter().map(|(id, _, _, new)| (*id, *new)));
    })?;
    Ok(answer)
}

fn show_plan(call: &Call, p: &Plan) -> Answer {
    let (before, after) = (&p.before, &p.after);
    let ((min, least), (max, most)) = before.ends();
    let of = |spread: &Spread, id: OsdId| spread.counts.get(&id).copied().unwrap_or(0);
    let moved: usize = after.counts.iter().map(|(id, n)| n.saturating_sub(of(before, *id))).sum();
    let (total, mean) = (before.total(), before.mean());
    let new_mean = after.mean();
    let json = || {
        let reweights = p.changes.iter().map(|(id, _, old, new)| {
            let (old, new) = (crate::show::weight(*old), crate::show::weight(*new));
            json!({"osd": id.0, "weight": old, "new_weight": new})
        });
        json!({
            "overload_min": p.oload, "max_change": p.max_change, "max_change_osds": p.max_osds,
            "average_utilization": p.mean, "overload_utilization": p.overload,
            "reweights": reweights.collect::<Vec<_>>(),
            "utilization": {
                "moved_pgs": moved, "total_pgs": total, "avg_pgs": mean,
                "std_dev": before.dev(), "expected_baseline_std_dev": before.baseline_dev,
                "new_std_dev": after.dev(),
                "min_osd": min.0, "min_osd_pgs": least, "new_min_osd_pgs": of(after, min),
                "max_osd": max.0, "max_osd_pgs": most, "new_max_osd_pgs": of(after, max),
            },
        })
    };
    let text = || {
        let percent = if total > 0 { moved as f64 * 100.0 / total as f64 } else { 0.0 };
        let end = |id: OsdId, n: usize| {
            let new = of(after, id);
            let (a, b) = (share(n, mean), share(new, new_mean));
            format!("osd.{id} with {n} -> {new} pgs ({a} -> {b} * mean)\n")
        };
        let mut out = format!(
            "moved {moved} / {total} ({}%)\navg {}\nstddev {} -> {} (expected baseline {})\n",
            stream(percent),
            stream(mean),
            stream(before.dev()),
            stream(after.dev()),
            stream(before.baseline_dev)
        );
        out.push_str(&format!("min {}max {}\n", end(min, least), end(max, most)));
        out.push_str(&format!(
            "oload {}\nmax_change {}\nmax_change_osds {}\naverage_utilization {:.4}\n\
             overload_utilization {:.4}\n",
            p.oload,
            stream(p.max_change),
            p.max_osds,
            p.mean,
            p.overload
        ));
        for (id, _, old, new) in &p.changes {
            let (old, new) = (crate::show::weight(*old), crate::show::weight(*new));
            out.push_str(&format!("osd.{id} weight {old:.4} -> {new:.4}\n"));
        }
        out
    };
    Answer::either(call.format(), json, text)
}

//! How OSDs fare: latency, who is waited for, how PGs are spread.

use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, read, write};
use admin::units::stream;
use admin::{Align, Answer, CommandError, TextTable};
use maps::{Incremental, OsdMap, WEIGHT_IN};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::OsdId;

pub(super) const COMMANDS: &[CommandDef] = &[
    read("osd perf", "osd", "shows the latency of OSDs' disks", perf),
    read("osd blocked-by", "osd", "shows which OSDs peering waits for", blocked_by),
    read("osd utilization", "osd", "shows how evenly PGs are spread over OSDs", utilization),
    read("osd last-stat-seq <id:OsdName>", "osd", "shows an OSD's last report", last_stat_seq),
    read("osd status [bucket:String]", "osd", "shows OSDs with their use", status),
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
];

fn perf(c: &Cluster, call: &Call) -> Reply {
    let us = |s: &crate::pgmap::OsdStat| u64::from(s.commit_latency_us);
    let all: Vec<_> = c.pgmap.osds().map(|(id, s)| (id, us(s))).collect();
    Ok(Answer::either(
        call.format(),
        || {
            let infos = all
                .iter()
                .rev()
                .map(|(id, us)| json!({"id": id.0, "perf_stats": latency_json(*us)}));
            let infos: Vec<Value> = infos.collect();
            json!({"pg_ready": true, "osdstats": {"osd_perf_infos": infos}})
        },
        || {
            let mut table = TextTable::new().columns(
                &["osd", "commit_latency(ms)", "apply_latency(ms)"],
                Align::Left,
                Align::Right,
            );
            for (id, us) in all.iter().rev() {
                table.row([id.to_string(), (us / 1000).to_string(), (us / 1000).to_string()]);
            }
            table.to_string()
        },
    ))
}

/// Our OSDs apply a write when it is durable: both times are the same.
pub(in crate::commands) fn latency_json(us: u64) -> Value {
    let (ms, ns) = (us / 1000, us * 1000);
    json!({
        "commit_latency_ms": ms, "apply_latency_ms": ms,
        "commit_latency_ns": ns, "apply_latency_ns": ns,
    })
}

fn blocked_by(c: &Cluster, call: &Call) -> Reply {
    let mut counts: BTreeMap<OsdId, usize> = BTreeMap::new();
    for (_, entry) in c.pgmap.reported() {
        for id in &entry.stat.blocked_by {
            *counts.entry(*id).or_default() += 1;
        }
    }
    Ok(Answer::either(
        call.format(),
        || {
            let infos = counts.iter().map(|(id, n)| json!({"id": id.0, "num_blocked": n}));
            let infos: Vec<Value> = infos.collect();
            json!({"pg_ready": true, "osd_blocked_by": {"osd_blocked_by_infos": infos}})
        },
        || {
            let mut table =
                TextTable::new().columns(&["osd", "num_blocked"], Align::Left, Align::Right);
            counts.iter().for_each(|(id, n)| table.row([id.to_string(), n.to_string()]));
            table.to_string()
        },
    ))
}

/// How many PGs each OSD that is in has.
struct Spread {
    counts: BTreeMap<OsdId, usize>,
    /// PGs it would have if each place were thrown with dice, by weight.
    baseline_dev: f64,
}

impl Spread {
    fn of(map: &OsdMap) -> Self {
        let mut counts: BTreeMap<OsdId, usize> = map.in_osds().map(|id| (id, 0)).collect();
        for (&pool, p) in &map.pools {
            for pgid in p.pgs(pool) {
                for osd in map.pg_to_up_acting(pgid).up {
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

    fn mean(&self) -> f64 {
        self.total() as f64 / self.counts.len().max(1) as f64
    }

    fn dev(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.counts.values().map(|&n| (n as f64 - mean).powi(2)).sum();
        (squares / self.counts.len().max(1) as f64).sqrt()
    }

    /// The first OSD with the least, and the first with the most.
    fn ends(&self) -> ((OsdId, usize), (OsdId, usize)) {
        let none = (OsdId(-1), 0);
        let min = self.counts.iter().min_by_key(|(_, n)| **n);
        let max = self.counts.iter().rev().max_by_key(|(_, n)| **n);
        let take = |e: Option<(&OsdId, &usize)>| e.map_or(none, |(id, n)| (*id, *n));
        (take(min), take(max))
    }
}

/// How much it is of the mean.
fn share(n: usize, mean: f64) -> String {
    // Ceph divides and prints what the processor gives.
    if mean == 0.0 { "-nan".to_owned() } else { stream(n as f64 / mean) }
}

fn utilization(c: &Cluster, call: &Call) -> Reply {
    let s = Spread::of(c.map());
    let ((min, least), (max, most)) = s.ends();
    let mean = s.mean();
    Ok(Answer::either(
        call.format(),
        || {
            json!({
                "avg_pgs": mean, "std_dev": s.dev(), "expected_baseline_std_dev": s.baseline_dev,
                "min_osd": min.0, "min_osd_pgs": least, "max_osd": max.0, "max_osd_pgs": most,
            })
        },
        || {
            format!(
                "avg {}\nstddev {} (expected baseline {})\nmin osd.{min} with {least} pgs ({} * \
                 mean)\nmax osd.{max} with {most} pgs ({} * mean)\n",
                stream(mean),
                stream(s.dev()),
                stream(s.baseline_dev),
                share(least, mean),
                share(most, mean)
            )
        },
    ))
}

fn last_stat_seq(c: &Cluster, call: &Call) -> Reply {
    let id = call.osd("id")?;
    // Ceph's sequence begins anew with each start of the OSD: the epoch stands above it.
    let seq = c.pgmap.osd(id).map_or(0, |s| (u64::from(s.up_from.0) << 32) | s.seq);
    Ok(Answer::either(call.format(), || seq.into(), || format!("{seq}\n")))
}

fn status(c: &Cluster, call: &Call) -> Reply {
    let map = c.map();
    let below = match call.args.str("bucket") {
        None => None,
        Some(name) => {
            let id = map.crush().item_id(&name).filter(|id| *id < 0);
            let none = || CommandError::not_found("Bucket not found");
            Some(map.crush().devices_below(id.ok_or_else(none)?))
        }
    };
    let mut table = TextTable::new()
        .column("ID", Align::Center, Align::Right)
        .column("HOST", Align::Center, Align::Left)
        .columns(&["USED", "AVAIL"], Align::Center, Align::Right)
        .column("STATE", Align::Center, Align::Left);
    for id in map.existing_osds().filter(|id| below.as_ref().is_none_or(|b| b.contains(&id.0))) {
        let host = c.state.osd_metadata.get(&id).and_then(|m| m.get("hostname"));
        let stat = c.pgmap.osd(id);
        let bytes = |n: u64| admin::units::Bytes(n).to_string();
        table.row([
            id.to_string(),
            host.cloned().unwrap_or_default(),
            bytes(stat.map_or(0, crate::pgmap::OsdStat::used)),
            bytes(stat.map_or(0, |s| s.space.available)),
            crate::show::join(map.state(id).sorted_names(), ","),
        ]);
    }
    Ok(Answer::text(table))
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
    let max_osds = usize::try_from(max_osds).ok().filter(|n| *n > 0);
    let max_osds = max_osds.ok_or_else(|| CommandError::invalid("max_osds must be positive"))?;
    if max_change <= 0.0 {
        return Err(CommandError::invalid("max_change must be positive"));
    }
    let increase = !call.args.has("no_increasing");
    let map = c.map();
    let mean = c.pgmap.osd_sum(map.in_osds()).used_ratio();
    let overload = mean * oload as f64 / 100.0;
    let mut uses: Vec<(OsdId, f64)> =
        map.in_osds().filter_map(|id| Some((id, c.pgmap.osd(id)?.fullness()))).collect();
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
        let new = new.max(0.0) as u32;
        if new != old && changes.len() < max_osds {
            changes.push((id, used, old, new));
        }
    }
    let mut next = OsdMap::clone(map);
    changes.iter().for_each(|(id, _, _, new)| next.set_weight(*id, *new));
    let (before, after) = (Spread::of(map), Spread::of(&next));
    Ok(Plan { oload, max_change, max_osds, mean, overload, before, after, changes })
}

fn test_by_utilization(c: &Cluster, call: &Call) -> Reply {
    Ok(show_plan(call, &plan(c, call)?))
}

fn by_utilization(c: &mut Cluster, call: &Call) -> Reply {
    let plan = plan(c, call)?;
    let answer = show_plan(call, &plan);
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
    let message = match p.changes.is_empty() {
        true => "no change".to_owned(),
        false => format!("{} OSDs get another weight", p.changes.len()),
    };
    Answer::either(call.format(), json, text).with_message(message)
}

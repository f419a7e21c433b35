//! How OSDs fare: latency, who is waited for, how PGs are spread.

use super::reweight::{Spread, share};
use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, read};
use admin::units::stream;
use admin::{Align, Answer, CommandError, TextTable};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::OsdId;

pub(super) const COMMANDS: &[CommandDef] = &[
    read("osd perf", "osd", "shows the latency of OSDs' disks", perf),
    read("osd blocked-by", "osd", "shows which OSDs peering waits for", blocked_by),
    read("osd utilization", "osd", "shows how evenly PGs are spread over OSDs", utilization),
    read("osd last-stat-seq <id:OsdName>", "osd", "shows an OSD's last report", last_stat_seq),
    read("osd status [bucket:String]", "osd", "shows OSDs with their use", status),
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

fn utilization(c: &Cluster, call: &Call) -> Reply {
    let s = Spread::of(c.pgmap.placer(c.map()), &|_| true);
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
    let seq = c.pgmap.osd(id).map_or(0, |s| peer::stat_seq(s.up_from, s.seq));
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

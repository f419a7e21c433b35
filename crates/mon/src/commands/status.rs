//! `status`, `health`, `report`: how it all is.

use super::{Call, CommandDef, Reply, progress, read, write};
use crate::cluster::Cluster;
use crate::pgmap::{Rate, Sums};
use crate::show::monmap;
use crate::show::osdmap::{stat_json, stat_line};
use crate::state::Mute;
use admin::units::{Bytes, Si, parse_timespan, timespan};
use admin::{Answer, CommandError};
use io::Now;
use serde_json::{Map, Value, json};
use std::time::Duration;
use types::UTime;

/// A single mon elects nobody; a first election ends with this in Ceph.
pub(super) const ELECTION_EPOCH: u32 = 3;

pub(super) const COMMANDS: &[CommandDef] = &[
    read("status", "mon", "shows how the cluster is", status),
    read("health [detail:Choices,detail]", "mon", "shows what is wrong", health),
    write(
        "health mute <code:String> [ttl:String] [sticky:Bool]",
        "mon",
        "silences an alert, for a time if one is given",
        mute,
    ),
    write("health unmute [code:String]", "mon", "lets alerts sound again", unmute),
    read("version", "mon", "shows the version of the mon", version),
    read("fsid", "mon", "shows the cluster's id", fsid),
    read("report [tags:String]...", "mon", "shows all maps and states in one", report),
    read("pg stat", "pg", "shows the states of all PGs in a line", pg_stat),
];

fn fsid(c: &Cluster, call: &Call) -> Reply {
    let fsid = c.state.fsid.to_string();
    Ok(Answer::either(call.format(), || json!({ "fsid": fsid }), || format!("{fsid}\n")))
}

fn version(_: &Cluster, call: &Call) -> Reply {
    let version = admin::common::version_line();
    let json = || json!({ "version": version });
    Ok(Answer::either(call.format(), json, || format!("{version}\n")))
}

fn health(c: &Cluster, call: &Call) -> Reply {
    let health = c.health(call.now);
    let detail = call.args.has("detail");
    Ok(Answer::either(call.format(), || health.json(detail), || health.text(detail) + "\n"))
}

fn mute(c: &mut Cluster, call: &Call) -> Reply {
    let code = call.args.text("code");
    let sticky = call.args.flag("sticky");
    let until = match call.args.str("ttl") {
        Some(ttl) => {
            let ttl = parse_timespan(&ttl).ok_or_else(|| {
                CommandError::invalid(format_args!("not a valid duration: {ttl}"))
            })?;
            call.now.wall.plus(ttl)
        }
        None => UTime::ZERO,
    };
    let sums = c.pgmap.sums(c.map());
    let checks = c.checks(call.now, &sums);
    let check = checks.0.get(&*code);
    if check.is_none() && !sticky {
        let text = format!("health alert {code} is not currently raised");
        return Err(CommandError::not_found(text));
    }
    let summary = check.map(|c| c.summary.clone()).unwrap_or_default();
    let count = check.map_or(0, |c| c.count);
    c.mute(&code, Mute { until, sticky, summary, count });
    Ok(Answer::ok())
}

fn unmute(c: &mut Cluster, call: &Call) -> Reply {
    let codes: Vec<String> = match call.args.str("code") {
        Some(code) => vec![code.into_owned()],
        None => c.state.mutes.keys().cloned().collect(),
    };
    codes.iter().for_each(|code| c.unmute(code));
    Ok(Answer::ok())
}

fn status(c: &Cluster, call: &Call) -> Reply {
    let sums = c.pgmap.sums(c.map());
    let (now, sums) = (call.now, &sums);
    Ok(Answer::either(call.format(), || status_json(c, now, sums), || status_text(c, now, sums)))
}

fn uptime(c: &Cluster, now: Now) -> Duration {
    now.mono.since(c.started.mono)
}

fn status_json(c: &Cluster, now: Now, sums: &Sums) -> Value {
    let map = c.map();
    let monmap = &c.state.monmap;
    json!({
        "fsid": c.state.fsid.to_string(),
        "health": c.health_of(now, sums).json(false),
        "election_epoch": ELECTION_EPOCH,
        "quorum": [0],
        "quorum_names": [c.name],
        "quorum_age": uptime(c, now).as_secs(),
        "monmap": {
            "epoch": monmap.epoch.0,
            "min_mon_release_name": monmap.min_mon_release.name(),
            "num_mons": monmap.mons.len(),
        },
        "osdmap": stat_json(map, sums.count(pg::StateBits::REMAPPED)),
        "pgmap": pgmap_json(c, sums),
        "fsmap": {"epoch": 1, "by_rank": [], "up:standby": 0},
        "mgrmap": {"available": true, "num_standbys": 0, "modules": [], "services": {}},
        "servicemap": {
            "epoch": 1, "modified": map.created.to_string(), "services": {},
        },
        "progress_events": progress::by_id(c, now, sums),
    })
}

fn pgmap_json(c: &Cluster, sums: &Sums) -> Value {
    let states = sums.by_count().into_iter();
    let states = states.map(|(state, n)| json!({"state_name": state.to_string(), "count": n}));
    let space = c.pgmap.osd_sum(c.map().in_osds());
    let value = json!({
        "pgs_by_state": states.collect::<Vec<_>>(),
        "num_pgs": sums.num_pgs,
        "num_pools": sums.pools.len(),
        "num_objects": sums.total.num_objects,
        "data_bytes": sums.total.num_bytes,
        "bytes_used": space.used(),
        "bytes_avail": space.available,
        "bytes_total": space.total,
    });
    let mut out = value.as_object().cloned().unwrap_or_default();
    let ratio = |n: usize| n as f64 / sums.num_pgs.max(1) as f64;
    if sums.unknown > 0 {
        out.insert("unknown_pgs_ratio".into(), ratio(sums.unknown).into());
    }
    if sums.inactive() > 0 {
        out.insert("inactive_pgs_ratio".into(), ratio(sums.inactive()).into());
    }
    out.extend(recovery_json(&sums.total));
    let rate = c.pgmap.rates.total();
    out.extend(recovery_rate_json(&rate));
    out.extend(io_rate_json(&rate));
    Value::Object(out)
}

/// Objects that are not as they should be.
pub(super) fn recovery_json(sum: &wire::msg::ObjectStatSum) -> Map<String, Value> {
    let mut out = Map::new();
    let kinds = [
        ("degraded", sum.num_objects_degraded, sum.num_object_copies),
        ("misplaced", sum.num_objects_misplaced, sum.num_object_copies),
        ("unfound", sum.num_objects_unfound, sum.num_objects),
    ];
    for (word, part, whole) in kinds.into_iter().filter(|k| k.1 > 0 && k.2 > 0) {
        out.insert(format!("{word}_objects"), part.into());
        out.insert(format!("{word}_total"), whole.into());
        out.insert(format!("{word}_ratio"), (part as f64 / whole as f64).into());
    }
    out
}

/// The same as texts.
pub(super) fn recovery_texts(sum: &wire::msg::ObjectStatSum) -> Vec<String> {
    use crate::health::ratio_text;
    let kinds = [
        ratio_text(sum.num_objects_degraded, sum.num_object_copies, "degraded"),
        ratio_text(sum.num_objects_misplaced, sum.num_object_copies, "misplaced"),
        ratio_text(sum.num_objects_unfound, sum.num_objects, "unfound"),
    ];
    kinds.into_iter().flatten().collect()
}

/// Recovery per second.
pub(super) fn recovery_rate_json(rate: &Rate) -> Map<String, Value> {
    let mut out = Map::new();
    if rate.has_recovery() {
        let (objects, bytes) = (rate.counts.recovered_objects, rate.counts.recovered_bytes);
        out.insert("recovering_objects_per_sec".into(), rate.per_second(objects).into());
        out.insert("recovering_bytes_per_sec".into(), rate.per_second(bytes).into());
        out.insert("recovering_keys_per_sec".into(), 0.into());
        out.insert("num_objects_recovered".into(), objects.into());
        out.insert("num_bytes_recovered".into(), bytes.into());
        out.insert("num_keys_recovered".into(), 0.into());
    }
    out
}

/// `280 KiB/s, 11 objects/s`
pub(super) fn recovery_rate_text(rate: &Rate) -> Option<String> {
    rate.has_recovery().then(|| {
        let bytes = Bytes(rate.per_second(rate.counts.recovered_bytes));
        let objects = Si(rate.per_second(rate.counts.recovered_objects));
        format!("{bytes}/s, {objects} objects/s")
    })
}

/// Client I/O per second.
pub(super) fn io_rate_json(rate: &Rate) -> Map<String, Value> {
    let mut out = Map::new();
    let n = &rate.counts;
    if n.reads > 0 {
        out.insert("read_bytes_sec".into(), rate.per_second(n.read_bytes).into());
    }
    if n.writes > 0 {
        out.insert("write_bytes_sec".into(), rate.per_second(n.write_bytes).into());
    }
    if rate.has_io() {
        out.insert("read_op_per_sec".into(), rate.per_second(n.reads).into());
        out.insert("write_op_per_sec".into(), rate.per_second(n.writes).into());
    }
    out
}

/// `102 B/s rd, 986 KiB/s wr, 0 op/s rd, 475 op/s wr`
pub(super) fn io_rate_text(rate: &Rate) -> Option<String> {
    if !rate.has_io() {
        return None;
    }
    let n = &rate.counts;
    let mut out = String::new();
    if n.reads > 0 {
        out.push_str(&format!("{}/s rd, ", Bytes(rate.per_second(n.read_bytes))));
    }
    if n.writes > 0 {
        out.push_str(&format!("{}/s wr, ", Bytes(rate.per_second(n.write_bytes))));
    }
    let (reads, writes) = (Si(rate.per_second(n.reads)), Si(rate.per_second(n.writes)));
    out.push_str(&format!("{reads} op/s rd, {writes} op/s wr"));
    Some(out)
}

fn status_text(c: &Cluster, now: Now, sums: &Sums) -> String {
    let health = c.health_of(now, sums);
    let mut out = format!("  cluster:\n    id:     {}\n", c.state.fsid);
    out.push_str(&format!("    health: {}\n", health.status().name()));
    for line in health.summaries() {
        out.push_str(&format!("            {line}\n"));
    }
    let up = timespan(Duration::from_secs(uptime(c, now).as_secs()));
    let remapped = sums.count(pg::StateBits::REMAPPED);
    let remapped = match remapped {
        0 => String::new(),
        n => format!("; {n} remapped pgs"),
    };
    out.push_str(&format!(
        " \n  services:\n    mon: {} daemons, quorum {} (age {up})\n    mgr: {}(active, since {up})\n",
        c.state.monmap.mons.len(),
        c.name,
        c.name
    ));
    out.push_str(&format!("    osd: {}{remapped}\n", stat_line(c.map(), now.wall)));
    out.push_str(" \n  data:\n");
    out.push_str(&data_text(c, sums));
    let rate = c.pgmap.rates.total();
    let client = io_rate_text(&rate).map(|t| format!("    client:   {t}\n"));
    let recovery = recovery_rate_text(&rate).map(|t| format!("    recovery: {t}\n"));
    if client.is_some() || recovery.is_some() {
        out.push_str(" \n  io:\n");
        out.extend(client.into_iter().chain(recovery));
    }
    if let Some(text) = progress::text(c, now, sums) {
        out.push_str(&format!(" \n  progress:\n    {text}\n"));
    }
    out.push_str(" \n");
    out
}

fn data_text(c: &Cluster, sums: &Sums) -> String {
    let space = c.pgmap.osd_sum(c.map().in_osds());
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    let mut out = format!(
        "    pools:   {} pools, {} pgs\n    objects: {} objects, {}\n    usage:   {} used, {} / {} \
         avail\n    pgs:     ",
        sums.pools.len(),
        sums.num_pgs,
        Si(count(sums.total.num_objects)),
        Bytes(count(sums.total.num_bytes)),
        Bytes(space.used()),
        Bytes(space.available),
        Bytes(space.total)
    );
    let percent = |n: usize| n as f64 / sums.num_pgs.max(1) as f64 * 100.0;
    let mut lines = Vec::new();
    if sums.unknown > 0 {
        lines.push(format!("{:.3}% pgs unknown", percent(sums.unknown)));
    }
    if sums.inactive() > 0 {
        lines.push(format!("{:.3}% pgs not active", percent(sums.inactive())));
    }
    lines.extend(recovery_texts(&sums.total));
    let states = sums.by_count();
    let width = states.iter().map(|(_, n)| n.to_string().len()).max().unwrap_or(1);
    lines.extend(states.iter().map(|(state, n)| format!("{n:<width$} {state}")));
    out.push_str(&lines.join("\n             "));
    out.push('\n');
    out
}

fn pg_stat(c: &Cluster, call: &Call) -> Reply {
    let sums = c.pgmap.sums(c.map());
    let space = c.pgmap.osd_sum(c.map().in_osds());
    let rate = c.pgmap.rates.total();
    let json = || {
        let states = sums.states.iter();
        let states = states.map(|(s, n)| json!({"name": s.to_string(), "num": n}));
        let value = json!({
            "num_pg_by_state": states.collect::<Vec<_>>(),
            "num_pgs": sums.num_pgs,
            "num_bytes": sums.total.num_bytes,
            "total_bytes": space.total,
            "total_avail_bytes": space.available,
            "total_used_bytes": space.used(),
            "total_used_raw_bytes": space.used(),
        });
        let mut out = value.as_object().cloned().unwrap_or_default();
        let mut io = io_rate_json(&rate);
        io.retain(|key, _| key.ends_with("bytes_sec"));
        out.extend(io);
        if rate.has_io() {
            let ops = rate.per_second(rate.counts.reads + rate.counts.writes);
            out.insert("io_sec".into(), ops.into());
        }
        out.extend(recovery_json(&sums.total));
        out.extend(recovery_rate_json(&rate));
        json!({"pg_ready": true, "pg_summary": out})
    };
    Ok(Answer::either(call.format(), json, || pg_stat_text(&sums, &space, &rate)))
}

fn pg_stat_text(sums: &Sums, space: &crate::pgmap::OsdSum, rate: &Rate) -> String {
    let states = sums.states.iter().map(|(s, n)| format!("{n} {s}"));
    let mut out = format!(
        "{} pgs: {}; {} data, {} used, {} / {} avail",
        sums.num_pgs,
        crate::show::join(states, ", "),
        Bytes(u64::try_from(sums.total.num_bytes).unwrap_or(0)),
        Bytes(space.used()),
        Bytes(space.available),
        Bytes(space.total)
    );
    if rate.has_io() {
        let n = &rate.counts;
        let mut parts = Vec::new();
        if n.reads > 0 {
            parts.push(format!("{}/s rd", Bytes(rate.per_second(n.read_bytes))));
        }
        if n.writes > 0 {
            parts.push(format!("{}/s wr", Bytes(rate.per_second(n.write_bytes))));
        }
        parts.push(format!("{} op/s", Si(rate.per_second(n.reads + n.writes))));
        out.push_str(&format!("; {}", parts.join(", ")));
    }
    for text in recovery_texts(&sums.total) {
        out.push_str(&format!("; {text}"));
    }
    if let Some(text) = recovery_rate_text(rate) {
        out.push_str(&format!("; {text} recovering"));
    }
    out.push('\n');
    out
}

fn report(c: &Cluster, call: &Call) -> Reply {
    let sums = c.pgmap.sums(c.map());
    let map = c.map();
    let value = json!({
        "cluster_fingerprint": c.state.fsid.to_string(),
        "version": &*admin::common::VERSION,
        "commit": "",
        "timestamp": call.now.wall.to_string(),
        "tag": call.args.list("tags").join(" "),
        "health": c.health_of(call.now, &sums).json(true),
        "monmap_first_committed": 1,
        "monmap_last_committed": c.state.monmap.epoch.0,
        "monmap": monmap::json(&c.state.monmap),
        "quorum": [0],
        "osdmap": crate::show::osdmap::json(map),
        "osdmap_first_committed": c.state.first_epoch.0,
        "osdmap_last_committed": map.epoch.0,
        "crushmap": crate::show::crush::json(map.crush()),
        "osd_metadata": c.state.osd_metadata.iter().map(|(id, meta)| {
            json!({"id": id.0, "metadata": meta})
        }).collect::<Vec<_>>(),
        "num_pg": sums.num_pgs,
        "num_pg_active": sums.active,
        "num_pg_unknown": sums.unknown,
        "num_osd": map.existing_osds().count(),
        "pgmap": pgmap_json(c, &sums),
    });
    let text = admin::json::print(&value, admin::Format::Json);
    let crc = denc::crc32c(u32::MAX, text.as_bytes());
    Ok(Answer::json(value).with_message(format_args!("report {crc}")))
}

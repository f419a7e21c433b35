//! `pg dump` in all its forms.

use super::json::{Fields, Part};
use super::table;
use super::value::{self, Osds, pool_stat_json};
use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, read};
use crate::pgmap::PgEntry;
use admin::{Answer, Format};
use serde_json::{Map, Value, json};
use types::PgId;
use wire::msg::PoolStat;

pub(super) const COMMANDS: &[CommandDef] = &[
    read(
        "pg dump [dumpcontents:Choices,all|summary|sum|delta|pools|osds|pgs|pgs_brief]...",
        "pg",
        "shows all PGs, or a part of what is known of them",
        dump,
    ),
    read(
        "pg dump_json [dumpcontents:Choices,all|summary|sum|pools|osds|pgs]...",
        "pg",
        "the same, as JSON",
        dump_json,
    ),
    read("pg dump_pools_json", "pg", "shows what pools hold, as JSON", dump_pools_json),
];

/// All PGs of the map.
pub(super) fn all(c: &Cluster) -> Vec<(PgId, Option<&PgEntry>)> {
    c.pgmap.all(c.map()).collect()
}

/// What was asked for; everything if nothing was said.
fn contents(call: &Call) -> Vec<String> {
    let asked: Vec<String> = call.args.list("dumpcontents").iter().map(|w| w.to_string()).collect();
    if asked.is_empty() { vec!["all".to_owned()] } else { asked }
}

fn head(c: &Cluster, call: &Call) -> Map<String, Value> {
    let value = json!({
        "version": c.pgmap.version, "stamp": call.now.wall.to_string(),
        "last_osdmap_epoch": 0, "last_pg_scan": 0,
    });
    value.as_object().cloned().unwrap_or_default()
}

fn head_text(c: &Cluster, call: &Call) -> String {
    format!(
        "version {}\nstamp {}\nlast_osdmap_epoch 0\nlast_pg_scan 0\n",
        c.pgmap.version, call.now.wall
    )
}

/// The sums of everything.
fn sums_json(c: &Cluster) -> Map<String, Value> {
    let sums = c.pgmap.sums(c.map());
    let mut all = PoolStat {
        log_size: sums.log_size,
        ondisk_log_size: sums.log_size,
        up: sums.up,
        acting: sums.acting,
        ..PoolStat::default()
    };
    all.stats.sum = sums.total;
    let mut out = Map::new();
    out.insert("pg_stats_sum".into(), pool_stat_json(&all).into());
    out.insert("osd_stats_sum".into(), Osds::all(c).json().into());
    out.insert("pg_stats_delta".into(), delta_json(c));
    out
}

/// What happened lately.
fn delta_json(c: &Cluster) -> Value {
    let rate = c.pgmap.rates.total();
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut all = PoolStat::default();
    let sum = &mut all.stats.sum;
    sum.num_rd = count(rate.counts.reads);
    sum.num_rd_kb = count(rate.counts.read_bytes >> 10);
    sum.num_wr = count(rate.counts.writes);
    sum.num_wr_kb = count(rate.counts.write_bytes >> 10);
    sum.num_objects_recovered = count(rate.counts.recovered_objects);
    sum.num_bytes_recovered = count(rate.counts.recovered_bytes);
    let mut out = pool_stat_json(&all);
    out.insert("stamp_delta".into(), format!("{:.6}", rate.seconds).into());
    out.into()
}

/// Everything, or only the sums.
fn map_json<'a>(c: &'a Cluster, call: &Call, everything: bool) -> Part<'a> {
    let mut out = Fields::default();
    out.extend(head(c, call));
    out.extend(sums_json(c));
    if everything {
        out.put("pg_stats", Part::Pgs(c, all(c)));
        out.value("pool_stats", value::pools_json(c));
        out.value("osd_stats", value::osds_json(c));
        out.value("pool_statfs", value::pool_statfs_json(c));
    }
    Part::Object(out)
}

fn dump_json(c: &Cluster, call: &Call) -> Reply {
    let (fields, said) = dumped(c, call, &contents(call));
    Ok(fields.answer(call.format(), Format::Json).with_message(said))
}

fn dumped<'a>(c: &'a Cluster, call: &Call, what: &[String]) -> (Fields<'a>, String) {
    let has = |word: &str| what.iter().any(|w| w == word);
    let mut out = Fields::default();
    out.value("pg_ready", true);
    if has("all") {
        out.put("pg_map", map_json(c, call, true));
        return (out, "dumped all".into());
    }
    if has("summary") || has("sum") {
        out.put("pg_map", map_json(c, call, false));
    }
    if has("delta") {
        out.value("delta", json!({"pg_stats_delta": delta_json(c)}));
    }
    if has("pools") {
        out.value("pool_stats", value::pools_json(c));
    }
    if has("osds") {
        out.value("osd_stats", value::osds_json(c));
        out.value("pool_statfs", value::pool_statfs_json(c));
    }
    if has("pgs") {
        out.put("pg_stats", Part::Pgs(c, all(c)));
    }
    if has("pgs_brief") {
        out.put("pg_stats", Part::Brief(c));
    }
    (out, format!("dumped {}", what.join(",")))
}

fn dump(c: &Cluster, call: &Call) -> Reply {
    let what = contents(call);
    if call.format().is_json() {
        let (fields, said) = dumped(c, call, &what);
        return Ok(fields.answer(call.format(), Format::JsonPretty).with_message(said));
    }
    let has = |word: &str| what.iter().any(|w| w == word);
    let mut out = String::new();
    let said = if has("all") { "dumped all".into() } else { format!("dumped {}", what.join(",")) };
    if has("all") {
        out.push_str(&head_text(c, call));
        out.push_str(&table::pgs(c, &all(c)));
        out.push_str(&table::pools(c, false));
        out.push_str(&table::sum(c, false));
        out.push_str(&table::osds(c));
        out.push_str(table::NOTE);
        return Ok(Answer::text(out).with_message(said));
    }
    let mut note = false;
    if has("summary") || has("sum") {
        out.push_str(&head_text(c, call));
        out.push_str(&table::sum(c, true));
        out.push_str(&table::osd_sum(c));
        note = true;
    }
    if has("pgs") {
        out.push_str(&table::pgs(c, &all(c)));
        note = true;
    }
    if has("pgs_brief") {
        out.push_str(&table::brief(c, &all(c)));
    }
    if has("pools") {
        out.push_str(&table::pools(c, true));
        note = true;
    }
    if has("osds") {
        out.push_str(&table::osds(c));
    }
    if note {
        out.push_str(table::NOTE);
    }
    Ok(Answer::text(out).with_message(said))
}

fn dump_pools_json(c: &Cluster, _: &Call) -> Reply {
    let value = json!({"pg_ready": true, "pool_stats": value::pools_json(c)});
    Ok(Answer::json_line(value).with_message("dumped pools"))
}

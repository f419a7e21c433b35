//! What goes on in pools; quotas; the autoscaler's view.

use crate::cluster::Cluster;
use crate::commands::status::{
    io_rate_json, io_rate_text, recovery_json, recovery_rate_json, recovery_rate_text,
    recovery_texts,
};
use crate::commands::{Call, CommandDef, Reply, read, write};
use admin::units::{Bytes, Si, parse_iec, parse_si};
use admin::{Align, Answer, CommandError, TextTable};
use serde_json::{Value, json};
use types::PoolId;
use wire::msg::ObjectStatSum;

pub(super) const COMMANDS: &[CommandDef] = &[
    read("osd pool stats [pool_name:Poolname]", "osd", "shows what goes on in pools", stats),
    write(
        "osd pool set-quota <pool:Poolname> <field:Choices,max_objects|max_bytes> <val:String>",
        "osd",
        "limits how much a pool may hold; 0: no limit",
        set_quota,
    ),
    read("osd pool get-quota <pool:Poolname>", "osd", "shows the limits of a pool", get_quota),
    read("osd pool autoscale-status", "osd", "shows the numbers of PGs of pools", autoscale_status),
];

fn sum(c: &Cluster, id: PoolId) -> ObjectStatSum {
    c.pgmap.pool_stat(c.map(), id).map(|s| s.stats.sum).unwrap_or_default()
}

fn stats(c: &Cluster, call: &Call) -> Reply {
    let map = c.map();
    let ids: Vec<PoolId> = match call.args.str("pool_name").filter(|n| !n.is_empty()) {
        Some(name) => vec![c.pool_id(&name)?],
        None => map.pools.keys().copied().collect(),
    };
    let message = if map.pools.is_empty() { "there are no pools!" } else { "" };
    let answer = Answer::either(
        call.format(),
        || {
            let all = ids.iter().map(|&id| {
                let rate = c.pgmap.rates.pool(id);
                json!({
                    "pool_name": map.pool_name(id), "pool_id": id.0,
                    "recovery": recovery_json(&sum(c, id)),
                    "recovery_rate": recovery_rate_json(&rate),
                    "client_io_rate": io_rate_json(&rate),
                })
            });
            Value::Array(all.collect())
        },
        || ids.iter().map(|&id| stats_text(c, id)).collect(),
    );
    // Ceph says that there are none only where it prints for people.
    Ok(if call.format().is_json() { answer } else { answer.with_message(message) })
}

fn stats_text(c: &Cluster, id: PoolId) -> String {
    let rate = c.pgmap.rates.pool(id);
    let mut lines: Vec<String> = recovery_texts(&sum(c, id));
    lines.extend(recovery_rate_text(&rate).map(|t| format!("recovery io {t}")));
    lines.extend(io_rate_text(&rate).map(|t| format!("client io {t}")));
    if lines.is_empty() {
        lines.push("nothing is going on".into());
    }
    let name = c.map().pool_name(id).unwrap_or_default();
    format!("pool {name} id {id}\n  {}\n\n", lines.join("\n  "))
}

fn set_quota(c: &mut Cluster, call: &Call) -> Reply {
    let (name, field, text) =
        (call.args.text("pool"), call.args.text("field"), call.args.text("val"));
    let id = c.pool_id(&name)?;
    let objects = field == "max_objects";
    let parsed = if objects { parse_si(&text) } else { parse_iec(&text) };
    let bad =
        |why: String| CommandError::invalid(format_args!("error parsing value '{text}': {why}"));
    let value = parsed.map_err(|e| bad(e.to_string()))?;
    let value = u64::try_from(value).map_err(|_| bad("it is negative".into()))?;
    c.edit_pool(id, |pool, _| {
        match objects {
            true => pool.quota_max_objects = value,
            false => pool.quota_max_bytes = value,
        }
        Ok(())
    })?;
    Ok(Answer::message(format_args!("set-quota {field} = {value} for pool {name}")))
}

fn get_quota(c: &Cluster, call: &Call) -> Reply {
    let name = call.args.text("pool");
    let id = c.pool_id(&name)?;
    let Some(pool) = c.map().pool(id) else { return Ok(Answer::ok()) };
    let (max_objects, max_bytes) = (pool.quota_max_objects, pool.quota_max_bytes);
    let sum = sum(c, id);
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    let (objects, bytes) = (count(sum.num_objects), count(sum.num_bytes));
    Ok(Answer::either(
        call.format(),
        || {
            json!({
                "pool_name": name, "pool_id": id.0, "quota_max_objects": max_objects,
                "current_num_objects": objects, "quota_max_bytes": max_bytes,
                "current_num_bytes": bytes,
            })
        },
        || {
            let objects_text = match max_objects {
                0 => "N/A".to_owned(),
                max => {
                    format!("{} objects  (current num objects: {objects} objects)", Si(max))
                }
            };
            let bytes_text = match max_bytes {
                0 => "N/A".to_owned(),
                max => format!("{}  (current num bytes: {bytes} bytes)", Bytes(max)),
            };
            format!(
                "quotas for pool '{name}':\n  max objects: {objects_text}\n  max bytes  : \
                 {bytes_text}\n"
            )
        },
    ))
}

/// The columns of Ceph's module; the numbers of PGs are not changed automatically yet, so that
/// `NEW PG_NUM` stays empty.
fn autoscale_status(c: &Cluster, call: &Call) -> Reply {
    let map = c.map();
    let raw = c.pgmap.osd_sum(map.in_osds()).total;
    let opt = |id: PoolId, name: &str| {
        let key = maps::PoolOptKey::from_name(name)?;
        map.pool(id)?.opts.0.get(&key).map(crate::show::pool::option_text)
    };
    let share = |id: PoolId, size: u8| {
        let bytes = sum(c, id).num_bytes.max(0) as f64 * f64::from(size);
        if raw == 0 { 0.0 } else { bytes / raw as f64 }
    };
    Ok(Answer::either(
        call.format(),
        || {
            let all = map.pools.iter().map(|(id, p)| {
                json!({
                    "pool_id": id.0, "pool_name": map.pool_name(*id),
                    "pg_autoscale_mode": p.pg_autoscale_mode.name(),
                    "logical_used": sum(c, *id).num_bytes, "raw_capacity": raw,
                    "raw_used_rate": f64::from(p.size), "capacity_ratio": share(*id, p.size),
                    "pg_num_target": p.pg_num_target, "would_adjust": false,
                    "bulk": p.flags.contains(maps::PoolFlags::BULK),
                })
            });
            Value::Array(all.collect())
        },
        || {
            let mut table = TextTable::new()
                .column("POOL", Align::Left, Align::Left)
                .columns(
                    &[
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
                    ],
                    Align::Right,
                    Align::Right,
                )
                .columns(&["AUTOSCALE", "BULK"], Align::Left, Align::Left);
            for (id, p) in &map.pools {
                table.row([
                    map.pool_name(*id).unwrap_or_default().to_owned(),
                    Bytes(u64::try_from(sum(c, *id).num_bytes).unwrap_or(0)).to_string(),
                    opt(*id, "target_size_bytes").unwrap_or_default(),
                    format!("{:.1}", f64::from(p.size)),
                    Bytes(raw).to_string(),
                    format!("{:.4}", share(*id, p.size)),
                    opt(*id, "target_size_ratio").unwrap_or_default(),
                    String::new(),
                    opt(*id, "pg_autoscale_bias").unwrap_or_else(|| "1.0".into()),
                    p.pg_num.to_string(),
                    String::new(),
                    p.pg_autoscale_mode.name().to_owned(),
                    if p.flags.contains(maps::PoolFlags::BULK) { "True" } else { "False" }.into(),
                ]);
            }
            table.to_string()
        },
    ))
}

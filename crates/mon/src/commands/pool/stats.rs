//! What goes on in pools; quotas.

use crate::cluster::Cluster;
use crate::commands::status::{
    io_rate_json, io_rate_text, recovery_json, recovery_rate_json, recovery_rate_text,
    recovery_texts,
};
use crate::commands::{Call, CommandDef, Reply, read, write};
use admin::units::{Bytes, Si, parse_iec, parse_si};
use admin::{Answer, CommandError};
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
];

pub(super) fn sum(c: &Cluster, id: PoolId) -> ObjectStatSum {
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

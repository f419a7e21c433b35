//! `osd pool get`.

use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, read};
use crate::show::pool::{CSUM_TYPES, option_json, option_text};
use admin::{Answer, CommandError};
use maps::{OsdMap, PgPool, PoolFlags, PoolOpt, PoolOptKey};
use serde_json::{Map, Value};
use types::{Errno, PoolId};

pub(super) const COMMANDS: &[CommandDef] = &[read(
    "osd pool get <pool:Poolname> <var:Choices,size|min_size|pg_num|pgp_num|crush_rule|\
     hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|\
     hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|target_max_objects|\
     target_max_bytes|cache_target_dirty_ratio|cache_target_dirty_high_ratio|\
     cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|erasure_code_profile|\
     min_read_recency_for_promote|all|min_write_recency_for_promote|fast_read|\
     hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|\
     deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|\
     compression_algorithm|compression_required_ratio|compression_max_blob_size|\
     compression_min_blob_size|csum_type|csum_min_block|csum_max_block|allow_ec_overwrites|\
     fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|\
     target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|\
     bulk|*>",
    "osd",
    "shows a setting of a pool, or all",
    get,
)];

/// Settings that every pool has, before the options.
const FIRST: [&str; 12] = [
    "size",
    "min_size",
    "pg_num",
    "pgp_num",
    "crush_rule",
    "hashpspool",
    "nodelete",
    "nopgchange",
    "nosizechange",
    "write_fadvise_dontneed",
    "noscrub",
    "nodeep-scrub",
];

/// All settings, in the order of `get all`.
const ALL: [&str; 39] = {
    let mut all = [""; 39];
    let mut i = 0;
    while i < FIRST.len() {
        all[i] = FIRST[i];
        i += 1;
    }
    let rest = [
        "use_gmt_hitset",
        "erasure_code_profile",
        "fast_read",
        "scrub_min_interval",
        "scrub_max_interval",
        "deep_scrub_interval",
        "recovery_priority",
        "recovery_op_priority",
        "scrub_priority",
        "compression_mode",
        "compression_algorithm",
        "compression_required_ratio",
        "compression_max_blob_size",
        "compression_min_blob_size",
        "csum_type",
        "csum_max_block",
        "csum_min_block",
        "allow_ec_overwrites",
        "fingerprint_algorithm",
        "pg_autoscale_mode",
        "pg_num_min",
        "pg_num_max",
        "target_size_bytes",
        "target_size_ratio",
        "pg_autoscale_bias",
        "dedup_tier",
        "bulk",
    ];
    while i < all.len() {
        all[i] = rest[i - FIRST.len()];
        i += 1;
    }
    all
};

/// The flag that a setting shows.
pub(super) fn flag(var: &str) -> Option<PoolFlags> {
    match var {
        "hashpspool"
        | "nodelete"
        | "nopgchange"
        | "nosizechange"
        | "write_fadvise_dontneed"
        | "noscrub"
        | "nodeep-scrub"
        | "bulk" => PoolFlags::from_name(var),
        "allow_ec_overwrites" => Some(PoolFlags::EC_OVERWRITES),
        _ => None,
    }
}

/// Settings of erasure-coded pools only.
fn is_of_erasure(var: &str) -> bool {
    matches!(var, "erasure_code_profile" | "allow_ec_overwrites")
}

/// Settings of cache tiers only.
pub(super) fn is_of_tier(var: &str) -> bool {
    let prefixes = ["hit_set_", "target_max_", "cache_", "min_read_", "min_write_"];
    prefixes.iter().any(|p| var.starts_with(p))
}

/// A setting as text and as JSON; `None` when it is not set.
fn value(map: &OsdMap, pool: &PgPool, var: &str) -> Option<(String, Value)> {
    let number = |n: u64| Some((n.to_string(), n.into()));
    let text = |t: &str| Some((t.to_owned(), t.into()));
    if let Some(flag) = flag(var) {
        let on = pool.flags.contains(flag);
        return Some((on.to_string(), on.into()));
    }
    match var {
        "size" => number(pool.size.into()),
        "min_size" => number(pool.min_size.into()),
        "pg_num" => number(pool.pg_num.into()),
        "pgp_num" => number(pool.pgp_num.into()),
        "crush_rule" => {
            let name = map.crush().rule_name(pool.crush_rule.into());
            match name {
                Some(name) => text(name),
                None => number(pool.crush_rule.into()),
            }
        }
        "use_gmt_hitset" => {
            Some((u8::from(pool.use_gmt_hitset).to_string(), pool.use_gmt_hitset.into()))
        }
        "erasure_code_profile" => text(&pool.erasure_code_profile),
        "fast_read" => number(pool.fast_read.into()),
        "pg_autoscale_mode" => text(pool.pg_autoscale_mode.name()),
        var => {
            let option = pool.opts.get(var)?;
            match (var, option) {
                ("csum_type", PoolOpt::Int(n)) => {
                    let name = usize::try_from(*n).ok().and_then(|n| CSUM_TYPES.get(n));
                    text(name.copied().unwrap_or("unknown"))
                }
                ("dedup_tier", PoolOpt::Int(n)) => match map.pool_name(PoolId(*n)) {
                    Some(name) => text(name),
                    None => Some((n.to_string(), (*n).into())),
                },
                _ => Some((option_text(option), option_json(option))),
            }
        }
    }
}

fn get(c: &Cluster, call: &Call) -> Reply {
    let (name, var) = (call.args.text("pool"), call.args.text("var"));
    let id = c.pool_id(&name)?;
    let map = c.map();
    let Some(pool) = map.pool(id) else { return Ok(Answer::ok()) };
    let all = var == "all";
    if !all {
        if !is_setting(&var) {
            let text = format!("pool '{name}': invalid variable: '{var}'");
            return Err(CommandError::invalid(text));
        }
        check_applies(&name, pool, &var)?;
    }
    let shown: Vec<(&str, (String, Value))> = match all {
        true => {
            let vars = ALL.iter().filter(|v| pool.is_erasure() || !is_of_erasure(v));
            vars.filter_map(|v| Some((*v, value(map, pool, v)?))).collect()
        }
        false => {
            let value = value(map, pool, &var).ok_or_else(|| {
                CommandError::not_found(format_args!("option '{var}' is not set on pool '{name}'"))
            })?;
            vec![(&var, value)]
        }
    };
    Ok(Answer::either(
        call.format(),
        || {
            let mut out = Map::new();
            out.insert("pool".into(), name.as_ref().into());
            out.insert("pool_id".into(), id.0.into());
            out.extend(shown.iter().map(|(var, (_, json))| ((*var).to_owned(), json.clone())));
            out.into()
        },
        || shown.iter().map(|(var, (text, _))| format!("{var}: {text}\n")).collect(),
    ))
}

/// Whether pools of any kind have the setting.
fn is_setting(var: &str) -> bool {
    ALL.contains(&var) || is_of_tier(var) || PoolOptKey::from_name(var).is_some()
}

/// That pools of this kind have the setting.
pub(super) fn check_applies(name: &str, pool: &PgPool, var: &str) -> Result<(), CommandError> {
    let kind = match () {
        () if is_of_tier(var) => "tier",
        () if is_of_erasure(var) && !pool.is_erasure() => "erasure",
        () => return Ok(()),
    };
    let text = format!("pool '{name}' is not a {kind} pool: variable not applicable");
    Err(CommandError::new(Errno::EACCES, text))
}

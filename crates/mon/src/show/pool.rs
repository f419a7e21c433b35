//! Pools.

use crate::show::join;
use maps::{OsdMap, PgPool, PoolOpt};
use serde_json::{Map, Value, json};
use types::PoolId;

/// Checksum algorithms by number (`Checksummer::CSumType`).
pub(crate) const CSUM_TYPES: [&str; 7] =
    ["none", "none", "xxhash32", "xxhash64", "crc32c", "crc32c_16", "crc32c_8"];

/// An option's value as JSON.
pub(crate) fn option_json(value: &PoolOpt) -> Value {
    match value {
        PoolOpt::Str(s) => s.as_str().into(),
        PoolOpt::Int(n) => (*n).into(),
        PoolOpt::Double(x) => (*x).into(),
    }
}

/// An option's value as text.
pub(crate) fn option_text(value: &PoolOpt) -> String {
    match value {
        PoolOpt::Str(s) => s.clone(),
        PoolOpt::Int(n) => n.to_string(),
        PoolOpt::Double(x) => admin::units::stream(*x),
    }
}

/// Everything of a pool (`pg_pool_t::dump`), without its id and name.
pub(crate) fn json(pool: &PgPool) -> Map<String, Value> {
    let mut all = shape(pool);
    all.extend(numbers(pool));
    all
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// What it is and how it is spread.
fn shape(pool: &PgPool) -> Map<String, Value> {
    let merge = &pool.last_pg_merge_meta;
    object(json!({
        "create_time": pool.create_time.to_string(),
        "flags": pool.flags.0,
        "flags_names": pool.flags.to_string(),
        "type": pool.kind.0,
        "size": pool.size,
        "min_size": pool.min_size,
        "crush_rule": pool.crush_rule,
        "peering_crush_bucket_count": 0,
        "peering_crush_bucket_target": 0,
        "peering_crush_bucket_barrier": 0,
        "peering_crush_bucket_mandatory_member": crush::ITEM_NONE,
        "object_hash": pool.object_hash,
        "pg_autoscale_mode": pool.pg_autoscale_mode.name(),
        "pg_num": pool.pg_num,
        "pg_placement_num": pool.pgp_num,
        "pg_placement_num_target": pool.pgp_num_target,
        "pg_num_target": pool.pg_num_target,
        "pg_num_pending": pool.pg_num_pending,
        "last_pg_merge_meta": {
            "source_pgid": merge.source_pgid.to_string(),
            "ready_epoch": merge.ready_epoch.0,
            "last_epoch_started": merge.last_epoch_started.0,
            "last_epoch_clean": merge.last_epoch_clean.0,
            "source_version": merge.source_version.to_string(),
            "target_version": merge.target_version.to_string(),
        },
        "last_change": pool.last_change.to_string(),
        "last_force_op_resend": pool.last_force_op_resend.to_string(),
        "last_force_op_resend_prenautilus": pool.last_force_op_resend_prenautilus.to_string(),
        "last_force_op_resend_preluminous": pool.last_force_op_resend_preluminous.to_string(),
        "auid": 0,
        "snap_mode": if pool.is_pool_snaps_mode() { "pool" } else { "selfmanaged" },
        "snap_seq": pool.snap_seq.0,
        "snap_epoch": pool.snap_epoch.0,
        "pool_snaps": pool.snaps.values().map(|s| json!({
            "snapid": s.id.0, "stamp": s.stamp.to_string(), "name": s.name,
        })).collect::<Vec<_>>(),
        "removed_snaps": pool.removed_snaps.to_string(),
    }))
}

/// Limits, cache tiers, options.
fn numbers(pool: &PgPool) -> Map<String, Value> {
    let options: Map<String, Value> =
        pool.opts.by_name().into_iter().map(|(n, v)| (n.to_owned(), option_json(v))).collect();
    object(json!({
        "quota_max_bytes": pool.quota_max_bytes,
        "quota_max_objects": pool.quota_max_objects,
        "tiers": pool.tiers.iter().map(|t| t.0).collect::<Vec<_>>(),
        "tier_of": pool.tier_of.0,
        "read_tier": pool.read_tier.0,
        "write_tier": pool.write_tier.0,
        "cache_mode": "none",
        "target_max_bytes": pool.target_max_bytes,
        "target_max_objects": pool.target_max_objects,
        "cache_target_dirty_ratio_micro": pool.cache_target_dirty_ratio_micro,
        "cache_target_dirty_high_ratio_micro": pool.cache_target_dirty_high_ratio_micro,
        "cache_target_full_ratio_micro": pool.cache_target_full_ratio_micro,
        "cache_min_flush_age": pool.cache_min_flush_age,
        "cache_min_evict_age": pool.cache_min_evict_age,
        "erasure_code_profile": pool.erasure_code_profile,
        "hit_set_params": {"type": "none"},
        "hit_set_period": pool.hit_set_period,
        "hit_set_count": pool.hit_set_count,
        "use_gmt_hitset": pool.use_gmt_hitset,
        "min_read_recency_for_promote": pool.min_read_recency_for_promote,
        "min_write_recency_for_promote": pool.min_write_recency_for_promote,
        "hit_set_grade_decay_rate": pool.hit_set_grade_decay_rate,
        "hit_set_search_last_n": pool.hit_set_search_last_n,
        "grade_table": [],
        "stripe_width": pool.stripe_width,
        "expected_num_objects": pool.expected_num_objects,
        "fast_read": pool.fast_read,
        "options": options,
        "application_metadata": pool.application_metadata,
    }))
}

/// One pool in `osd pool ls detail` and `osd dump`: a line, and one for each snapshot.
pub(crate) fn text(map: &OsdMap, id: PoolId, pool: &PgPool) -> String {
    let name = map.pool_name(id).unwrap_or_default();
    let mut out = format!("pool {id} '{name}' {}", line(pool));
    out.push('\n');
    for snap in pool.snaps.values() {
        out.push_str(&format!("\tsnap {} '{}' {}\n", snap.id.0, snap.name, snap.stamp));
    }
    if let Some(queue) = map.removed_snaps_queue.get(&id) {
        out.push_str(&format!("\tremoved_snaps_queue {queue}\n"));
    }
    out
}

fn line(pool: &PgPool) -> String {
    let mut out = pool.kind.name().to_owned();
    let mut add = |text: String| {
        out.push(' ');
        out.push_str(&text);
    };
    if pool.is_erasure() {
        add(format!("profile {}", pool.erasure_code_profile));
    }
    add(format!("size {} min_size {} crush_rule {}", pool.size, pool.min_size, pool.crush_rule));
    add(format!("object_hash rjenkins pg_num {} pgp_num {}", pool.pg_num, pool.pgp_num));
    if pool.pg_num_target != pool.pg_num {
        add(format!("pg_num_target {}", pool.pg_num_target));
    }
    if pool.pgp_num_target != pool.pgp_num {
        add(format!("pgp_num_target {}", pool.pgp_num_target));
    }
    if pool.pg_num_pending != pool.pg_num {
        add(format!("pg_num_pending {}", pool.pg_num_pending));
    }
    add(format!("autoscale_mode {}", pool.pg_autoscale_mode.name()));
    add(format!("last_change {}", pool.last_change));
    let resend = [
        pool.last_force_op_resend,
        pool.last_force_op_resend_prenautilus,
        pool.last_force_op_resend_preluminous,
    ];
    if resend.iter().any(|e| e.0 > 0) {
        add(format!("lfor {}", join(resend, "/")));
    }
    if pool.flags.0 != 0 {
        add(format!("flags {}", pool.flags));
    }
    if pool.quota_max_bytes > 0 {
        add(format!("max_bytes {}", pool.quota_max_bytes));
    }
    if pool.quota_max_objects > 0 {
        add(format!("max_objects {}", pool.quota_max_objects));
    }
    add(format!("stripe_width {}", pool.stripe_width));
    if pool.expected_num_objects > 0 {
        add(format!("expected_num_objects {}", pool.expected_num_objects));
    }
    if pool.fast_read {
        add("fast_read 1".into());
    }
    for (name, value) in pool.opts.by_name() {
        add(format!("{name} {}", option_text(value)));
    }
    if !pool.application_metadata.is_empty() {
        add(format!("application {}", join(pool.application_metadata.keys(), ",")));
    }
    out
}

//! The OSDMap: `osd dump`, `osd info`, `osd stat`.

use super::addr::{addrvec_json, legacy};
use super::{ids, join, list, pool, since, weight};
use maps::{OsdMap, OsdMapFlags, OsdState, Release};
use serde_json::{Map, Value, json};
use types::{OsdId, PoolId, UTime};

/// The oldest client that can work with this map (`get_min_compat_client`).
pub(crate) fn min_compat_client(map: &OsdMap) -> Release {
    let crush = map.crush();
    let upmaps = !map.pg_upmap.is_empty() || !map.pg_upmap_items.is_empty();
    let t = &crush.tunables;
    match () {
        () if upmaps || crush.choose_args().next().is_some() => Release::LUMINOUS,
        () if t.chooseleaf_stable != 0 => Release::JEWEL,
        () if crush.buckets().any(|b| b.algorithm() == crush::Algorithm::Straw2) => Release(8),
        () if t.chooseleaf_vary_r != 0 => Release(6),
        () if t.chooseleaf_descend_once != 0 => Release(2),
        () => Release(1),
    }
}

/// All of the map.
pub(crate) fn json(map: &OsdMap) -> Map<String, Value> {
    let mut all = head(map);
    let pools = map.pools.iter().map(|(id, p)| with_name(map, *id, "pool", pool::json(p)));
    all.insert("pools".into(), pools.collect());
    all.insert("osds".into(), map.existing_osds().map(|id| osd_json(map, id)).collect());
    let xinfos: Vec<Value> = map.existing_osds().filter_map(|id| xinfo_json(map, id)).collect();
    all.insert("osd_xinfo".into(), xinfos.into());
    all.extend(tail(map));
    all
}

/// A pool's JSON with id and name before it.
pub(crate) fn with_name(map: &OsdMap, id: PoolId, key: &str, pool: Map<String, Value>) -> Value {
    let mut all = Map::new();
    all.insert(key.to_owned(), id.0.into());
    all.insert("pool_name".into(), map.pool_name(id).unwrap_or_default().into());
    all.extend(pool);
    all.into()
}

fn head(map: &OsdMap) -> Map<String, Value> {
    let mut flags: Vec<&str> = map.flags.names().collect();
    flags.sort_unstable();
    object(json!({
        "epoch": map.epoch.0,
        "fsid": map.fsid.to_string(),
        "created": map.created.to_string(),
        "modified": map.modified.to_string(),
        "last_up_change": map.last_up_change.to_string(),
        "last_in_change": map.last_in_change.to_string(),
        "flags": map.flags.to_string(),
        "flags_num": map.flags.0,
        "flags_set": flags,
        "crush_version": map.crush_version,
        "full_ratio": f64::from(map.full_ratio),
        "backfillfull_ratio": f64::from(map.backfillfull_ratio),
        "nearfull_ratio": f64::from(map.nearfull_ratio),
        "cluster_snapshot": map.cluster_snapshot,
        "pool_max": map.pool_max,
        "max_osd": map.max_osd(),
        "require_min_compat_client": map.require_min_compat_client.name(),
        "min_compat_client": min_compat_client(map).name(),
        "require_osd_release": map.require_osd_release.name(),
    }))
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn snaps_json(of: &std::collections::BTreeMap<PoolId, maps::SnapSet>) -> Value {
    let of = of.iter().map(|(pool, snaps)| {
        let intervals = snaps.intervals();
        let intervals = intervals.map(|(start, len)| json!({"begin": start.0, "length": len}));
        json!({"pool": pool.0, "snaps": intervals.collect::<Vec<_>>()})
    });
    of.collect()
}

fn tail(map: &OsdMap) -> Map<String, Value> {
    let node_flags = map.crush_node_flags.iter().map(|(&id, flags)| {
        let name = map.crush().item_name(id).map_or_else(|| id.to_string(), str::to_owned);
        (name, Value::from(flags.sorted_names()))
    });
    let class_flags = map.device_class_flags.iter().map(|(&class, flags)| {
        let name = map.crush().class_name(class).map_or_else(|| class.to_string(), str::to_owned);
        (name, Value::from(flags.sorted_names()))
    });
    let blocklist =
        map.blocklist.iter().map(|(a, until)| (a.addr().to_string(), until.to_string().into()));
    object(json!({
        "pg_upmap": map.pg_upmap.iter().map(|(pg, osds)| {
            json!({"pgid": pg.to_string(), "osds": ids(osds)})
        }).collect::<Vec<_>>(),
        "pg_upmap_items": map.pg_upmap_items.iter().map(|(pg, items)| {
            let mappings = items.iter().map(|(f, t)| json!({"from": f.0, "to": t.0}));
            json!({"pgid": pg.to_string(), "mappings": mappings.collect::<Vec<_>>()})
        }).collect::<Vec<_>>(),
        "pg_temp": map.pg_temp.iter().map(|(pg, osds)| {
            json!({"pgid": pg.to_string(), "osds": ids(osds)})
        }).collect::<Vec<_>>(),
        // One flat list, as Ceph has it.
        "primary_temp": map.primary_temp.iter().flat_map(|(pg, osd)| {
            [Value::from(pg.to_string()), Value::from(osd.0)]
        }).collect::<Vec<_>>(),
        "blocklist": Value::Object(blocklist.collect()),
        "range_blocklist": {},
        "erasure_code_profiles": map.erasure_code_profiles,
        "removed_snaps_queue": snaps_json(&map.removed_snaps_queue),
        "new_removed_snaps": snaps_json(&map.new_removed_snaps),
        "new_purged_snaps": snaps_json(&map.new_purged_snaps),
        "crush_node_flags": Value::Object(node_flags.collect()),
        "device_class_flags": Value::Object(class_flags.collect()),
        "stretch_mode": {
            "stretch_mode_enabled": false, "stretch_bucket_count": 0, "degraded_stretch_mode": 0,
            "recovering_stretch_mode": 0, "stretch_mode_bucket": 0,
        },
    }))
}

/// One OSD (`dump_osd`).
pub(crate) fn osd_json(map: &OsdMap, id: OsdId) -> Value {
    let Some(osd) = map.osd(id) else { return Value::Null };
    let info = &osd.info;
    json!({
        "osd": id.0,
        "uuid": osd.uuid.to_string(),
        "up": u8::from(map.is_up(id)),
        "in": u8::from(map.is_in(id)),
        "weight": weight(map.weight(id)),
        "primary_affinity": weight(map.primary_affinity(id)),
        "last_clean_begin": info.last_clean_begin.0,
        "last_clean_end": info.last_clean_end.0,
        "up_from": info.up_from.0,
        "up_thru": info.up_thru.0,
        "down_at": info.down_at.0,
        "lost_at": info.lost_at.0,
        "public_addrs": addrvec_json(&osd.client_addrs),
        "cluster_addrs": addrvec_json(&osd.cluster_addrs),
        "heartbeat_back_addrs": addrvec_json(&osd.hb_back_addrs),
        "heartbeat_front_addrs": addrvec_json(&osd.hb_front_addrs),
        "public_addr": legacy(&osd.client_addrs),
        "cluster_addr": legacy(&osd.cluster_addrs),
        "heartbeat_back_addr": legacy(&osd.hb_back_addrs),
        "heartbeat_front_addr": legacy(&osd.hb_front_addrs),
        "state": map.state(id).sorted_names(),
    })
}

fn xinfo_json(map: &OsdMap, id: OsdId) -> Option<Value> {
    let x = &map.osd(id)?.xinfo;
    Some(json!({
        "osd": id.0,
        "down_stamp": x.down_stamp.to_string(),
        "laggy_probability": x.laggy_probability(),
        "laggy_interval": x.laggy_interval,
        "features": x.features,
        "old_weight": weight(x.old_weight),
        "last_purged_snaps_scrub": x.last_purged_snaps_scrub.to_string(),
        "dead_epoch": x.dead_epoch.0,
    }))
}

/// One OSD as a line (`print_osd`).
pub(crate) fn osd_line(map: &OsdMap, id: OsdId) -> String {
    let Some(osd) = map.osd(id) else { return String::new() };
    let info = &osd.info;
    let up = if map.is_up(id) { "up  " } else { "down" };
    let r#in = if map.is_in(id) { "in " } else { "out" };
    let number = |w| admin::units::stream(weight(w));
    let mut out = format!("osd.{id} {up} {in} weight {}", number(map.weight(id)));
    let affinity = map.primary_affinity(id);
    if affinity != maps::DEFAULT_PRIMARY_AFFINITY {
        out.push_str(&format!(" primary_affinity {}", number(affinity)));
    }
    out.push_str(&format!(
        " up_from {} up_thru {} down_at {} last_clean_interval [{},{})",
        info.up_from, info.up_thru, info.down_at, info.last_clean_begin, info.last_clean_end
    ));
    if info.lost_at.0 > 0 {
        out.push_str(&format!(" lost_at {}", info.lost_at));
    }
    let state = join(map.state(id).sorted_names(), ",");
    out.push_str(&format!(" {} {} {state}", osd.client_addrs, osd.cluster_addrs));
    if !osd.uuid.is_nil() {
        out.push_str(&format!(" {}", osd.uuid));
    }
    out.push('\n');
    out
}

/// All of the map for people (`OSDMap::print`).
pub(crate) fn text(map: &OsdMap) -> String {
    let ratio = |r: f32| admin::units::stream(f64::from(r));
    let mut out = format!(
        "epoch {}\nfsid {}\ncreated {}\nmodified {}\nflags {}\ncrush_version {}\nfull_ratio {}\n\
         backfillfull_ratio {}\nnearfull_ratio {}\n",
        map.epoch,
        map.fsid,
        map.created,
        map.modified,
        map.flags,
        map.crush_version,
        ratio(map.full_ratio),
        ratio(map.backfillfull_ratio),
        ratio(map.nearfull_ratio)
    );
    if map.require_min_compat_client != Release::UNKNOWN {
        let client = map.require_min_compat_client;
        out.push_str(&format!("require_min_compat_client {client}\n"));
    }
    out.push_str(&format!(
        "min_compat_client {}\nrequire_osd_release {}\nstretch_mode_enabled false\n",
        min_compat_client(map),
        map.require_osd_release
    ));
    for (id, p) in &map.pools {
        out.push_str(&pool::text(map, *id, p));
    }
    out.push_str(&format!("max_osd {}\n", map.max_osd()));
    for id in map.existing_osds() {
        out.push_str(&osd_line(map, id));
    }
    for (pg, osds) in &map.pg_upmap {
        out.push_str(&format!("pg_upmap {pg} {}\n", list(osds)));
    }
    for (pg, items) in &map.pg_upmap_items {
        let pairs = items.iter().flat_map(|(from, to)| [from, to]);
        out.push_str(&format!("pg_upmap_items {pg} {}\n", list(pairs)));
    }
    for (pg, osds) in &map.pg_temp {
        out.push_str(&format!("pg_temp {pg} {}\n", list(osds)));
    }
    for (pg, osd) in &map.primary_temp {
        out.push_str(&format!("primary_temp {pg} {osd}\n"));
    }
    for (addr, until) in &map.blocklist {
        out.push_str(&format!("blocklist {} expires {until}\n", addr.addr()));
    }
    out
}

/// Flags that operators set; the others are always there and not worth a word.
pub(crate) fn shown_flags(map: &OsdMap) -> OsdMapFlags {
    map.flags.without(OsdMapFlags::FRESH)
}

/// How many OSDs there are, and of them up and in.
pub(crate) struct Counts {
    pub osds: usize,
    pub up: usize,
    pub r#in: usize,
}

/// Counts OSDs.
pub(crate) fn counts(map: &OsdMap) -> Counts {
    Counts {
        osds: map.existing_osds().count(),
        up: map.up_osds().count(),
        r#in: map.in_osds().count(),
    }
}

/// `osd stat` in JSON, and the `osdmap` of `status`.
pub(crate) fn stat_json(map: &OsdMap, remapped: usize) -> Value {
    let n = counts(map);
    json!({
        "epoch": map.epoch.0,
        "num_osds": n.osds,
        "num_up_osds": n.up,
        "osd_up_since": map.last_up_change.sec,
        "num_in_osds": n.r#in,
        "osd_in_since": map.last_in_change.sec,
        "num_remapped_pgs": remapped,
    })
}

/// `3 osds: 3 up (since 5s), 3 in (since 5m)`
pub(crate) fn stat_line(map: &OsdMap, now: UTime) -> String {
    let n = counts(map);
    let since = |then: UTime| match then.is_zero() {
        true => String::new(),
        false => format!(" (since {})", admin::units::timespan(since(now, then))),
    };
    format!(
        "{} osds: {} up{}, {} in{}",
        n.osds,
        n.up,
        since(map.last_up_change),
        n.r#in,
        since(map.last_in_change)
    )
}

/// The word for an OSD's state in trees.
pub(crate) fn status(map: &OsdMap, id: OsdId) -> &'static str {
    let state = map.state(id);
    match () {
        () if !state.contains(OsdState::EXISTS) => "DNE",
        () if state.contains(OsdState::UP) => "up",
        () if state.contains(OsdState::DESTROYED) => "destroyed",
        () => "down",
    }
}

//! The monmap.

use super::addr::{addrvec_json, legacy};
use maps::MonMap;
use serde_json::{Map, Value, json};
use types::UTime;

/// `2026-11-20T12:24:01.739915Z`
fn zulu(t: UTime) -> String {
    t.to_string().replace("+0000", "Z")
}

/// `mon dump` without the quorum, and the `monmap` of other answers.
pub(crate) fn json(map: &MonMap) -> Map<String, Value> {
    let mons = map.ranks.iter().enumerate().filter_map(|(rank, name)| {
        let mon = map.mons.get(name)?;
        Some(json!({
            "rank": rank,
            "name": mon.name,
            "public_addrs": addrvec_json(&mon.addrs),
            "addr": legacy(&mon.addrs),
            "public_addr": legacy(&mon.addrs),
            "priority": mon.priority,
            "weight": mon.weight,
            "crush_location": location(mon),
        }))
    });
    let value = json!({
        "epoch": map.epoch.0,
        "fsid": map.fsid.to_string(),
        "modified": zulu(map.last_changed),
        "created": zulu(map.created),
        "min_mon_release": map.min_mon_release.0,
        "min_mon_release_name": map.min_mon_release.name(),
        "election_strategy": map.strategy,
        "disallowed_leaders: ": super::join(&map.disallowed_leaders, ","),
        "stretch_mode": map.stretch_mode_enabled,
        "tiebreaker_mon": map.tiebreaker_mon,
        "removed_ranks: ": super::join(&map.removed_ranks, ","),
        "features": {
            "persistent": map.persistent_features.names().collect::<Vec<_>>(),
            "optional": map.optional_features.names().collect::<Vec<_>>(),
        },
        "mons": mons.collect::<Vec<_>>(),
    });
    value.as_object().cloned().unwrap_or_default()
}

fn location(mon: &maps::MonInfo) -> String {
    let pairs = mon.crush_loc.iter().map(|(k, v)| format!("{k}={v}"));
    format!("{{{}}}", super::join(pairs, ","))
}

/// `mon dump` for people.
pub(crate) fn text(map: &MonMap) -> String {
    let mut out = format!(
        "epoch {}\nfsid {}\nlast_changed {}\ncreated {}\nmin_mon_release {} ({})\nelection_strategy: {}\n",
        map.epoch,
        map.fsid,
        map.last_changed,
        map.created,
        map.min_mon_release.0,
        map.min_mon_release,
        map.strategy
    );
    for (rank, name) in map.ranks.iter().enumerate() {
        if let Some(mon) = map.mons.get(name) {
            out.push_str(&format!("{rank}: {} mon.{name}\n", mon.addrs));
        }
    }
    out
}

//! Consequences of a change of the OSDMap that belong into the same epoch.
//!
//! `pg_temp`, `primary_temp` and upmaps that no longer make sense go; pools get the fullness of
//! their OSDs.

use maps::{Incremental, OsdList, OsdMap, OsdState, PoolFlags};
use std::collections::BTreeSet;
use types::OsdId;

/// Completes an incremental; `map` is what it leads to so far.
pub(crate) fn tidy(inc: &mut Incremental, map: &OsdMap) {
    // A promise for somebody who goes down in the same epoch is void.
    inc.new_up_thru.retain(|osd, _| map.is_up(*osd));
    temps(inc, map);
    upmaps(inc, map);
    pool_fullness(inc, map);
}

fn temps(inc: &mut Incremental, map: &OsdMap) {
    for (pgid, osds) in &map.pg_temp {
        let none_up = !osds.iter().any(|&o| map.is_up(o));
        let needless = || {
            let mut without = map.pg_to_up_acting(*pgid);
            let acting: OsdList = std::mem::take(&mut without.acting);
            acting == without.up && !map.primary_temp.contains_key(pgid)
        };
        if !map.pg_exists(*pgid) || none_up || needless() {
            inc.new_pg_temp.insert(*pgid, OsdList::new());
        }
    }
    for (pgid, osd) in &map.primary_temp {
        if !map.pg_exists(*pgid) || map.is_down(*osd) {
            inc.new_primary_temp.insert(*pgid, OsdId(-1));
        }
    }
}

/// Upmaps that cannot be or change nothing: of PGs that are gone, to OSDs that are gone or out, of
/// another number of copies than the pool has, from OSDs that CRUSH does not choose (any more).
fn upmaps(inc: &mut Incremental, map: &OsdMap) {
    let good = |osd: &OsdId| map.exists(*osd) && map.is_in(*osd);
    for (pgid, osds) in &map.pg_upmap {
        let size = map.pool(pgid.pool).map_or(0, |p| usize::from(p.size));
        let fits = osds.len() == size && osds.iter().all(good);
        if !map.pg_exists(*pgid) || !fits || *osds == map.pg_to_raw(*pgid) {
            inc.new_pg_upmap.remove(pgid);
            inc.old_pg_upmap.insert(*pgid);
        }
    }
    for (pgid, items) in &map.pg_upmap_items {
        let raw = map.pg_to_raw(*pgid);
        let mut kept = items.clone();
        kept.retain(|(from, to)| raw.contains(from) && good(to));
        if !map.pg_exists(*pgid) || kept.is_empty() {
            inc.new_pg_upmap_items.remove(pgid);
            inc.old_pg_upmap_items.insert(*pgid);
        } else if kept.len() < items.len() {
            inc.new_pg_upmap_items.insert(*pgid, kept);
        }
    }
}

/// A pool is as full as the fullest OSD its rule can choose.
fn pool_fullness(inc: &mut Incremental, map: &OsdMap) {
    let kinds = [
        (OsdState::FULL, PoolFlags::FULL),
        (OsdState::BACKFILLFULL, PoolFlags::BACKFILLFULL),
        (OsdState::NEARFULL, PoolFlags::NEARFULL),
    ];
    let with = |state: OsdState| -> BTreeSet<i32> {
        map.in_osds().filter(|&id| map.state(id).contains(state)).map(|id| id.0).collect()
    };
    let full: Vec<(PoolFlags, BTreeSet<i32>)> =
        kinds.iter().map(|&(state, flag)| (flag, with(state))).collect();
    for (&id, pool) in &map.pools {
        let rule = map.crush().find_rule(pool.crush_rule, pool.kind.0, pool.size);
        let takes = rule.and_then(|r| map.crush().rule(r)).into_iter().flat_map(crush::Rule::takes);
        let osds: BTreeSet<i32> = match full.iter().all(|(_, osds)| osds.is_empty()) {
            true => BTreeSet::new(),
            false => takes.flat_map(|take| map.crush().devices_below(take)).collect(),
        };
        let over_quota = pool.flags.contains(PoolFlags::FULL_QUOTA);
        let all = PoolFlags::FULL | PoolFlags::BACKFILLFULL | PoolFlags::NEARFULL;
        let strongest = match over_quota {
            true => Some(PoolFlags::FULL),
            false => full.iter().find(|(_, of)| !of.is_disjoint(&osds)).map(|(flag, _)| *flag),
        };
        let flags = pool.flags.without(all).with(strongest.unwrap_or(PoolFlags::NONE));
        if flags != pool.flags {
            let mut changed = pool.clone();
            changed.flags = flags;
            inc.new_pools.insert(id, changed);
        }
    }
}

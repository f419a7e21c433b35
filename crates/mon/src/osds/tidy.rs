//! Consequences of a change of the OSDMap that belong into the same epoch.
//!
//! `pg_temp`, `primary_temp`, upmaps and queues of snapshots that no longer make sense go; pools get the fullness of
//! their OSDs.

use super::osds_that_are;
use super::room::Room;
use crate::cluster::Cluster;
use crate::pgmap::Placer;
use crate::pools::is_merged_next;
use maps::{Incremental, OsdList, OsdMap, OsdState, PgPool, PoolFlags};
use std::collections::{BTreeMap, BTreeSet};
use types::{OsdId, PgId};

impl Cluster {
    /// Completes what is drafted.
    pub fn tidy(&mut self) {
        let map = self.map().clone();
        let placer = self.pgmap.placer(&map);
        let tidied = self.draft.edit(&self.state.osdmap, |inc, _| {
            tidy(inc, placer);
            Ok(())
        });
        tidied.expect("clearing away what is void can always be applied");
        self.note_numbers();
    }
}

/// Completes an incremental; the placer's map is what it leads to so far. Where there are many upmaps, CRUSH is not asked
/// for all of them at each change.
fn tidy(inc: &mut Incremental, placer: Placer<'_>) {
    let map = placer.map;
    // A promise for somebody who goes down in the same epoch is void.
    inc.new_up_thru.retain(|osd, _| map.is_up(*osd));
    temps(inc, placer);
    upmaps(inc, placer);
    snaps(inc, map);
    pool_fullness(inc, map);
    group_flags(inc, map);
}

/// Flags of buckets and device classes that are gone go with them: others will get their numbers.
fn group_flags(inc: &mut Incremental, map: &OsdMap) {
    let crush = map.crush();
    for &node in map.crush_node_flags.keys().filter(|node| crush.bucket(**node).is_none()) {
        inc.new_crush_node_flags.insert(node, OsdState::NONE);
    }
    for &class in map.device_class_flags.keys().filter(|class| crush.class_name(**class).is_none())
    {
        inc.new_device_class_flags.insert(class, OsdState::NONE);
    }
}

fn temps(inc: &mut Incremental, placer: Placer<'_>) {
    let map = placer.map;
    for (pgid, osds) in &map.pg_temp {
        let none_up = !osds.iter().any(|&o| map.is_up(o));
        let needless = || {
            let mut without = placer.up_acting(*pgid);
            let acting: OsdList = std::mem::take(&mut without.acting);
            acting == without.up && !map.primary_temp.contains_key(pgid)
        };
        if !map.pg_exists(*pgid) || none_up || needless() {
            inc.new_pg_temp.insert(*pgid, OsdList::new());
        }
    }
    for (pgid, osd) in &map.primary_temp {
        let at = placer.up_acting(*pgid);
        let needless = at.acting == at.up && at.up_primary == Some(*osd);
        // One that does not act has no copy to lead with; the acting set has only OSDs that are up.
        if !at.acting.contains(osd) || needless {
            inc.new_primary_temp.insert(*pgid, OsdId(-1));
        }
    }
}

/// Upmaps that do not hold any more (`clean_pg_upmaps`): the PG is gone, or about to be merged, for which
/// both must lie where CRUSH wants them; an OSD cannot be chosen by the pool's rule, copies would share a
/// failure domain, or CRUSH does the same by itself.
fn upmaps(inc: &mut Incremental, placer: Placer<'_>) {
    let map = placer.map;
    let pgs = map.pg_upmap.keys().chain(map.pg_upmap_items.keys());
    let rooms = Room::of(map, pgs.map(|pgid| pgid.pool).collect::<BTreeSet<_>>());
    let stays = |pgid: PgId| map.pg_exists(pgid) && !is_merged_next(map, pgid);
    let room = |pgid: &PgId| rooms.get(&pgid.pool).filter(|_| stays(*pgid));
    for (pgid, osds) in &map.pg_upmap {
        let holds = |room: &Room| room.takes(osds) && placer.raw(*pgid) != *osds;
        if !room(pgid).is_some_and(holds) {
            inc.new_pg_upmap.remove(pgid);
            inc.old_pg_upmap.insert(*pgid);
        }
    }
    for (pgid, items) in &map.pg_upmap_items {
        let left =
            room(pgid).map(|room| room.exchanges(placer.raw(*pgid), items)).unwrap_or_default();
        if left.is_empty() {
            inc.new_pg_upmap_items.remove(pgid);
            inc.old_pg_upmap_items.insert(*pgid);
        } else if left != *items {
            inc.new_pg_upmap_items.insert(*pgid, left);
        }
    }
}

/// Removed snapshots of pools that are gone: no PG will ever say that it has trimmed them. Just what is queued, since
/// clients assert that.
fn snaps(inc: &mut Incremental, map: &OsdMap) {
    let queues = map.removed_snaps_queue.iter();
    for (pool, queue) in queues.filter(|(pool, _)| !map.pools.contains_key(pool)) {
        inc.new_purged_snaps.entry(*pool).or_default().union_with(queue);
    }
}

/// A pool is as full as the fullest OSD its rule can choose.
fn pool_fullness(inc: &mut Incremental, map: &OsdMap) {
    let kinds = [
        (OsdState::FULL, PoolFlags::FULL),
        (OsdState::BACKFILLFULL, PoolFlags::BACKFILLFULL),
        (OsdState::NEARFULL, PoolFlags::NEARFULL),
    ];
    let with =
        |state: OsdState| -> BTreeSet<i32> { osds_that_are(state, map).map(|id| id.0).collect() };
    let full: Vec<(PoolFlags, BTreeSet<i32>)> =
        kinds.iter().map(|&(state, flag)| (flag, with(state))).collect();
    let none_full = full.iter().all(|(_, osds)| osds.is_empty());
    // There may be thousands of pools, and few rules.
    let mut by_rule: BTreeMap<u32, Option<PoolFlags>> = BTreeMap::new();
    let fullest = |rule: u32| {
        let takes = map.crush().rule(rule).into_iter().flat_map(crush::Rule::takes);
        let osds: BTreeSet<i32> = takes.flat_map(|take| map.crush().devices_below(take)).collect();
        full.iter().find(|(_, of)| !of.is_disjoint(&osds)).map(|(flag, _)| *flag)
    };
    let all = PoolFlags::FULL | PoolFlags::BACKFILLFULL | PoolFlags::NEARFULL;
    for (&id, pool) in &map.pools {
        let rule = map.rule_of(pool).filter(|_| !none_full);
        let strongest = match pool.flags.contains(PoolFlags::FULL_QUOTA) {
            true => Some(PoolFlags::FULL),
            false => rule.and_then(|rule| *by_rule.entry(rule).or_insert_with(|| fullest(rule))),
        };
        let flags = pool.flags.without(all).with(strongest.unwrap_or(PoolFlags::NONE));
        if flags != pool.flags {
            let mut changed = PgPool::clone(pool);
            changed.flags = flags;
            inc.new_pools.insert(id, changed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crush::{CrushMap, Location, WEIGHT_ONE};
    use maps::{FreshOsdMap, PoolType, WEIGHT_IN};
    use types::{PoolId, UTime, Uuid};

    /// Four OSDs on three hosts, and a pool with two copies on different hosts.
    fn map() -> OsdMap {
        let fsid = Uuid::from_random(7);
        let now = UTime { sec: 1_700_000_000, nsec: 0 };
        let mut map =
            OsdMap::fresh(&FreshOsdMap { fsid, now, failure_domain: "host".into() }).unwrap();
        let mut crush = CrushMap::clone(map.crush());
        let mut inc = Incremental::after(&map);
        inc.new_max_osd = Some(4);
        for id in 0..4 {
            let host = format!("host=h{}", id.min(2));
            let place = Location::parse(&[host.as_str(), "root=default"]).unwrap();
            crush.insert_item(id, WEIGHT_ONE, &format!("osd.{id}"), &place).unwrap();
            inc.new_weight.insert(OsdId(id), WEIGHT_IN);
        }
        inc.set_crush(&crush);
        let pool = PgPool::new(PoolType::REPLICATED, 2, 1, 0, 8);
        inc.new_pools.insert(PoolId(1), pool);
        inc.new_pool_names.insert(PoolId(1), "p".into());
        map.apply(&inc).unwrap();
        map
    }

    /// What is left of an upmap.
    fn left(map: &OsdMap, pgid: PgId, osds: &[i32]) -> bool {
        let mut map = map.clone();
        map.pg_upmap.insert(pgid, osds.iter().map(|id| OsdId(*id)).collect());
        let mut inc = Incremental::after(&map);
        tidy(&mut inc, Placer::plain(&map));
        !inc.old_pg_upmap.contains(&pgid)
    }

    #[test]
    fn upmaps_go_that_do_not_hold() {
        let mut map = map();
        let pgid = PgId::new(PoolId(1), 0);
        let raw: Vec<i32> = map.pg_to_raw(pgid).iter().map(|o| o.0).collect();
        let good: Vec<i32> = if raw == [0, 1] { vec![1, 0] } else { vec![0, 1] };
        assert!(left(&map, pgid, &good));
        assert!(!left(&map, pgid, &raw), "CRUSH does the same");
        assert!(!left(&map, pgid, &[0]), "too few");
        assert!(!left(&map, pgid, &[2, 3]), "one host");
        assert!(!left(&map, pgid, &[0, 9]), "no such OSD");
        assert!(!left(&map, PgId::new(PoolId(1), 8), &good), "no such PG");
        assert!(!left(&map, PgId::new(PoolId(2), 0), &good), "no such pool");
        let mut fewer = map.clone();
        let pool = fewer.pools.get_mut(&PoolId(1)).unwrap();
        let (source, target) = (pool.pg_num - 1, pool.pg_num / 2 - 1);
        pool.pg_num_target = source;
        for seed in [source, target] {
            let pgid = PgId::new(PoolId(1), seed);
            let raw: Vec<i32> = map.pg_to_raw(pgid).iter().map(|o| o.0).collect();
            let good = if raw == [0, 1] { [1, 0] } else { [0, 1] };
            assert!(left(&map, pgid, &good) && !left(&fewer, pgid, &good), "{pgid} is merged next");
        }
        assert!(left(&fewer, pgid, &good), "others stay");
        map.set_weight(OsdId(1), 0);
        assert!(!left(&map, pgid, &good), "an OSD that is out");
    }

    #[test]
    fn exchanges_go_that_make_no_difference() {
        let mut map = map();
        let pgid = PgId::new(PoolId(1), 0);
        let raw = map.pg_to_raw(pgid);
        let host = |id: OsdId| id.0.min(2);
        let other = (0..4).map(OsdId).find(|id| raw.iter().all(|r| host(*r) != host(*id)));
        let (from, other) = (raw[0], other.unwrap());
        let absent = (0..4).map(OsdId).find(|id| !raw.contains(id) && *id != other).unwrap();
        map.pg_upmap_items.insert(pgid, vec![(absent, other), (from, other)]);
        let mut inc = Incremental::after(&map);
        tidy(&mut inc, Placer::plain(&map));
        assert_eq!(inc.new_pg_upmap_items.get(&pgid), Some(&vec![(from, other)]));
        map.pg_upmap_items.insert(pgid, vec![(absent, other)]);
        let mut inc = Incremental::after(&map);
        tidy(&mut inc, Placer::plain(&map));
        assert!(inc.old_pg_upmap_items.contains(&pgid));
    }

    /// The next bucket gets the number of the one that is gone.
    #[test]
    fn flags_go_with_their_bucket() {
        let mut bench = crate::commands::bench::Bench::new();
        let mut run = |text: &str| {
            let (r, outs, _) = bench.run(&serde_json::from_str(text).unwrap());
            assert_eq!(r, 0, "{text}: {outs}");
            bench.c.map().crush_node_flags.len()
        };
        let add = r#"{"prefix": "osd crush add-bucket", "name": "h", "type": "host"}"#;
        let flag = r#"{"prefix": "osd set-group", "flags": "noout,noup", "who": ["h"]}"#;
        let remove = r#"{"prefix": "osd crush rm", "name": "h"}"#;
        assert_eq!([add, flag, remove, add].map(&mut run), [0, 1, 0, 0]);
    }
}

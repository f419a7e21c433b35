//! Full OSDs and pools over their quota get their bits in the map.

use crate::cluster::Cluster;
use crate::log::Level;
use crate::pgmap::Sums;
use io::Now;
use maps::{OsdMap, OsdState, PgPool, PoolFlags};
use types::{OsdId, PoolId};

/// The bits of which at most one is set.
const BITS: OsdState = OsdState(OsdState::FULL.0 | OsdState::BACKFILLFULL.0 | OsdState::NEARFULL.0);

/// The limits as they count: in order, also when they are not (`check_health` warns of that).
fn limits(map: &OsdMap) -> (f64, f64, f64) {
    let near = f64::from(map.nearfull_ratio);
    let back = f64::from(map.backfillfull_ratio).max(near);
    (near, back, f64::from(map.full_ratio).max(back))
}

/// The OSDs that are in this state, as far as they count: what is down or out is written to by nobody.
pub(crate) fn osds_that_are(state: OsdState, map: &OsdMap) -> impl Iterator<Item = OsdId> {
    map.in_osds().filter(move |&id| map.is_up(id) && map.state(id).contains(state))
}

impl Cluster {
    /// Sets and clears the bits of OSDs by what they reported.
    pub fn full_osds(&mut self, now: Now) {
        let map = self.map().clone();
        let (near, back, full) = limits(&map);
        for id in map.up_osds().collect::<Vec<OsdId>>() {
            let stat = self.pgmap.living_osd(&map, id).cloned().filter(|s| s.space.total > 0);
            let Some(stat) = stat else { continue };
            let wanted = match stat.fullness() {
                _ if stat.full => OsdState::FULL,
                f if full > 0.0 && f >= full => OsdState::FULL,
                f if back > 0.0 && f >= back => OsdState::BACKFILLFULL,
                f if near > 0.0 && f >= near => OsdState::NEARFULL,
                _ => OsdState::NONE,
            };
            let turn = OsdState((map.state(id).0 & BITS.0) ^ wanted.0);
            if turn == OsdState::NONE || self.draft.touches(id) {
                continue;
            }
            if self.change(|inc, _| inc.toggle_state(id, turn)).is_ok() {
                let percent = stat.fullness() * 100.0;
                let text = match wanted.names().next() {
                    Some(word) => format!("osd.{id} is {word}: {percent:.1} % used"),
                    None => format!("osd.{id} has space again: {percent:.1} % used"),
                };
                self.say(now, Level::Warn, text);
            }
        }
    }

    /// Sets and clears the flags of pools by their quotas.
    pub fn quotas(&mut self, now: Now, sums: &Sums) {
        let map = self.map().clone();
        for (&id, pool) in &map.pools {
            let over = over_quota(pool, id, sums);
            if over == pool.flags.contains(PoolFlags::FULL_QUOTA) {
                continue;
            }
            // What nobody has told of yet (the mon has just started) counts for nothing in the sums.
            if !over && pool.pgs(id).any(|pgid| self.pgmap.get(pgid).is_none()) {
                continue;
            }
            let both = PoolFlags::FULL_QUOTA | PoolFlags::FULL;
            let done = self.edit_pool(id, |pool, _| {
                // Whether it is full for another reason, `tidy` says.
                pool.flags = if over { pool.flags.with(both) } else { pool.flags.without(both) };
                Ok(())
            });
            if done.is_ok() {
                let name = map.pool_name(id).unwrap_or_default();
                let what = if over { "is full (reached quota)" } else { "no longer out of quota" };
                let (objects, bytes) = (pool.quota_max_objects, pool.quota_max_bytes);
                let text = format!(
                    "pool '{name}' {what}: max_objects {objects}, max_bytes {bytes} (0: no limit)"
                );
                self.say(now, Level::Warn, text);
            }
        }
    }
}

fn over_quota(pool: &PgPool, id: PoolId, sums: &Sums) -> bool {
    let Some(stat) = sums.pools.get(&id) else { return false };
    let reached = |max: u64, now: i64| max > 0 && u64::try_from(now).unwrap_or(0) >= max;
    let sum = &stat.stats.sum;
    reached(pool.quota_max_bytes, sum.num_bytes) || reached(pool.quota_max_objects, sum.num_objects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;
    use serde_json::json;

    #[test]
    fn an_osd_that_says_that_it_is_full_is_full_whatever_the_ratios_are() {
        let mut bench = Bench::new();
        let osd = OsdId(1);
        let mut says = |full: bool| {
            bench.full = full.then_some(osd).into_iter().collect();
            bench.again();
            let now = bench.now();
            bench.c.full_osds(now);
            bench.commit();
            bench.c.map().state(osd).contains(OsdState::FULL)
        };
        assert_eq!([says(false), says(true), says(false)], [false, true, false]);
    }

    /// Nothing is written to it, and it says nothing any more.
    #[test]
    fn a_full_osd_that_is_down_keeps_nobody_from_writing() {
        let mut bench = Bench::new();
        bench.run(&json!({"prefix": "osd pool create", "pool": "a", "pg_num": 8}));
        let pool = bench.c.pool_id("a").unwrap();
        let is_full = |bench: &Bench| bench.c.map().pools[&pool].flags.contains(PoolFlags::FULL);
        bench.full = [OsdId(1)].into();
        bench.again();
        let now = bench.now();
        bench.c.full_osds(now);
        bench.commit();
        assert!(is_full(&bench));
        bench.stop(OsdId(1));
        assert!(!is_full(&bench));
    }

    /// The sums of a mon that has just started are those of nothing.
    #[test]
    fn a_pool_over_its_quota_stays_closed_until_all_of_it_is_heard_of() {
        let mut bench = Bench::new();
        bench.run(&json!({"prefix": "osd pool create", "pool": "a", "pg_num": 8}));
        let quota = json!({"prefix": "osd pool set-quota", "pool": "a", "field": "max_objects", "val": "10"});
        bench.run(&quota);
        let pool = bench.c.pool_id("a").unwrap();
        let mut holds = |objects: i64, is_heard: bool| {
            if is_heard {
                bench.write(json!({pool.0.to_string(): [objects, 1]}).as_object().unwrap());
            } else {
                bench.c.pgmap = crate::pgmap::PgMap::default();
            }
            let sums = bench.c.pgmap.sums(bench.c.map());
            bench.c.quotas(bench.now(), &sums);
            bench.commit();
            bench.c.map().pools[&pool].flags.contains(PoolFlags::FULL_QUOTA)
        };
        let said = [holds(5, true), holds(20, true), holds(20, false), holds(5, true)];
        assert_eq!(said, [false, true, true, false]);
    }
}

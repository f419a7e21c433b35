//! The balancer: CRUSH gives OSDs their shares by chance, some too much, some too little. It moves single PGs
//! from the ones to the others, a few at a time, while nothing else is wrong. Source: Ceph
//! `pybind/mgr/balancer/module.py`.

mod score;
mod upmap;

pub(crate) use score::score;
pub(crate) use upmap::Changes;

use crate::cluster::Cluster;
use crate::log::Level;
use crate::pgmap::{Sums, chooses_alike};
use admin::CommandError;
use io::Now;
use maps::{Incremental, OsdMap, PgPool, PoolFlags, Release, Shared};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{Epoch, Errno, PoolId};
use upmap::{Limits, optimize};

/// Plans that are kept.
pub(crate) const MAX_PLANS: usize = 100;
/// There is nothing to be moved.
pub(crate) const NOTHING_BETTER: &str = "Unable to find further optimization, or pool(s) pg_num is \
    decreasing, or distribution is already perfect";

/// What it remembers. Only in memory.
#[derive(Debug, Default)]
pub(crate) struct Balancer {
    /// When it last looked, and what came of it.
    pub last: Option<(Now, String)>,
    /// What operators had it work out, by name.
    pub plans: BTreeMap<String, Plan>,
    /// Where it found nothing to do.
    done: Option<Done>,
}

/// A search that found nothing: the next one would find nothing either, as long as nothing changes that it goes by.
#[derive(Debug)]
struct Done {
    map: Arc<OsdMap>,
    pools: BTreeSet<PoolId>,
    limits: Limits,
}

impl Done {
    fn holds(&self, map: &OsdMap, pools: &BTreeSet<PoolId>, limits: Limits) -> bool {
        self.limits == limits && self.pools == *pools && place_alike(&self.map, map)
    }
}

/// Whether two maps place all PGs alike, and would let the same ones be moved.
fn place_alike(a: &OsdMap, b: &OsdMap) -> bool {
    let pool = |(id, p): (&PoolId, &Shared<PgPool>)| {
        let pgs = (p.pg_num, p.pgp_num, p.pg_num_target, p.pg_num_pending);
        (*id, p.kind, p.size, p.crush_rule, pgs, p.flags.contains(PoolFlags::HASHPSPOOL))
    };
    chooses_alike(a, b)
        && (a.pools.is_same(&b.pools) || a.pools.iter().map(pool).eq(b.pools.iter().map(pool)))
        && a.pg_upmap == b.pg_upmap
        && a.pg_upmap_items == b.pg_upmap_items
}

/// What could be done.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The map it is for.
    pub epoch: Epoch,
    pub pools: BTreeSet<PoolId>,
    pub changes: Changes,
}

/// The map as it would be.
pub(crate) fn with(map: &OsdMap, changes: &Changes) -> OsdMap {
    let mut map = map.clone();
    for (pgid, items) in changes {
        if items.is_empty() {
            map.pg_upmap_items.remove(pgid);
        } else {
            map.pg_upmap_items.insert(*pgid, items.clone());
        }
    }
    map
}

fn put(inc: &mut Incremental, changes: &Changes) {
    for (pgid, items) in changes {
        inc.old_pg_upmap_items.remove(pgid);
        inc.new_pg_upmap_items.remove(pgid);
        if items.is_empty() {
            inc.old_pg_upmap_items.insert(*pgid);
        } else {
            inc.new_pg_upmap_items.insert(*pgid, items.clone());
        }
    }
}

impl Cluster {
    /// By itself, every now and then.
    pub fn balance(&mut self, now: Now, sums: &Sums) {
        let on = self.settings.bool("mgr/balancer/active")
            && self.settings.str("mgr/balancer/mode") == "upmap";
        let pause = self.settings.duration("mgr/balancer/sleep_interval");
        let rests =
            self.balancer.last.as_ref().is_some_and(|(at, _)| now.mono.since(at.mono) < pause);
        if !on || rests || self.map().pools.is_empty() {
            return;
        }
        let pools = self.balanced_pools();
        let plan = self.plan(sums, pools.clone());
        if plan.as_ref().is_err_and(|why| why.errno == Errno::EALREADY) {
            let (map, limits) = (self.map().clone(), self.balancer_limits());
            self.balancer.done = Some(Done { map, pools, limits });
        }
        let result = plan.and_then(|plan| self.carry_out(now, &plan));
        let text = match result {
            Ok(()) => "Optimization plan created successfully".to_owned(),
            Err(why) => why.to_string(),
        };
        self.balancer.last = Some((now, text));
    }

    /// The pools that the balancer looks after.
    pub fn balanced_pools(&self) -> BTreeSet<PoolId> {
        let chosen = self.settings.str("mgr/balancer/pool_ids").split(',');
        let chosen: BTreeSet<PoolId> =
            chosen.filter_map(|id| id.parse().ok().map(PoolId)).collect();
        let all = self.map().pools.keys().copied();
        all.filter(|id| chosen.is_empty() || chosen.contains(id)).collect()
    }

    /// What could be done for these pools.
    ///
    /// # Errors
    /// Why nothing can, in Ceph's words.
    pub fn plan(&self, sums: &Sums, pools: BTreeSet<PoolId>) -> Result<Plan, CommandError> {
        let again = |why| CommandError::new(Errno::EAGAIN, why);
        if let Some(why) = self.unrest(sums) {
            return Err(again(why));
        }
        let map = self.map();
        if map.require_min_compat_client < Release::LUMINOUS {
            return Err(CommandError::not_permitted(format_args!(
                "min_compat_client \"{}\" < \"luminous\", which is required for pg-upmap. Try \"ceph \
                 osd set-require-min-compat-client luminous\" before using this mode",
                map.require_min_compat_client
            )));
        }
        let limits = self.balancer_limits();
        let is_done = self.balancer.done.as_ref().is_some_and(|d| d.holds(map, &pools, limits));
        let changes =
            if is_done { Changes::new() } else { optimize(self.pgmap.placer(map), &pools, limits) };
        match changes.is_empty() {
            true => Err(CommandError::new(Errno::EALREADY, NOTHING_BETTER)),
            false => Ok(Plan { epoch: map.epoch, pools, changes }),
        }
    }

    fn balancer_limits(&self) -> Limits {
        let number = |name| self.settings.uint(name);
        Limits {
            max_deviation: number("mgr/balancer/upmap_max_deviation") as f64,
            changes: usize::try_from(number("mgr/balancer/upmap_max_optimizations")).unwrap_or(1),
        }
    }

    /// Why PGs are not to be moved now.
    fn unrest(&self, sums: &Sums) -> Option<String> {
        let part = |n: f64, of: f64| if of > 0.0 { n / of } else { 0.0 };
        let (pgs, copies) = (sums.num_pgs as f64, sums.total.num_object_copies as f64);
        let unknown = part(sums.unknown as f64, pgs);
        let inactive = part(sums.inactive() as f64, pgs);
        let degraded = part(sums.total.num_objects_degraded as f64, copies);
        let misplaced = part(sums.total.num_objects_misplaced as f64, copies);
        let most = self.settings.float("target_max_misplaced_ratio");
        let later = "try again later";
        if unknown > 0.0 {
            return Some(format!("Some PGs ({unknown:.6}) are unknown; {later}"));
        }
        if degraded > 0.0 {
            return Some(format!("Some objects ({degraded:.6}) are degraded; {later}"));
        }
        if inactive > 0.0 {
            return Some(format!("Some PGs ({inactive:.6}) are inactive; {later}"));
        }
        let text =
            || format!("Too many objects ({misplaced:.6} > {most:.6}) are misplaced; {later}");
        (misplaced >= most).then(text)
    }

    /// Carries a plan out.
    ///
    /// # Errors
    /// When the map cannot be changed so.
    pub fn carry_out(&mut self, now: Now, plan: &Plan) -> Result<(), CommandError> {
        self.change(|inc, _| put(inc, &plan.changes))?;
        let n = plan.changes.len();
        self.say(now, Level::Info, format!("balancer: {n} PGs get other OSDs, for equal shares"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;
    use serde_json::json;

    /// To place all PGs again and again takes seconds where there are many.
    #[test]
    fn a_search_that_found_nothing_is_not_made_again_until_placement_changes() {
        let mut bench = Bench::new();
        let done = |bench: &mut Bench, cmd: serde_json::Value| {
            let (r, outs, _) = bench.run(&cmd);
            assert_eq!(r, 0, "{cmd}: {outs}");
        };
        done(
            &mut bench,
            json!({"prefix": "osd pool create", "pool": "p", "pg_num": 64, "size": 2}),
        );
        let plan = |bench: &Bench| {
            let sums = bench.c.pgmap.sums(bench.c.map());
            bench.c.plan(&sums, bench.c.balanced_pools()).map_err(|why| why.text)
        };
        bench.c.settings.set(admin::Source::File, "mgr/balancer/upmap_max_deviation", "1").unwrap();
        assert!(plan(&bench).is_ok(), "CRUSH does not give equal shares");
        // As if it had found nothing.
        let (map, pools) = (bench.c.map().clone(), bench.c.balanced_pools());
        bench.c.balancer.done = Some(Done { map, pools, limits: bench.c.balancer_limits() });
        assert_eq!(plan(&bench).unwrap_err(), NOTHING_BETTER);
        done(&mut bench, json!({"prefix": "osd pool mksnap", "pool": "p", "snap": "s"}));
        assert_eq!(plan(&bench).unwrap_err(), NOTHING_BETTER, "that moves no PG");
        done(&mut bench, json!({"prefix": "osd reweight", "id": 0, "weight": 0.9}));
        assert!(plan(&bench).is_ok());
        done(&mut bench, json!({"prefix": "osd reweight", "id": 0, "weight": 1.0}));
        assert_eq!(plan(&bench).unwrap_err(), NOTHING_BETTER, "all is as it was");
        bench.c.settings.set(admin::Source::File, "mgr/balancer/upmap_max_deviation", "2").unwrap();
        let limits = bench.c.balancer_limits();
        assert!(!bench.c.balancer.done.as_ref().unwrap().holds(
            bench.c.map(),
            &bench.c.balanced_pools(),
            limits
        ));
    }

    #[test]
    fn it_remembers_that_it_found_nothing() {
        let mut bench = Bench::new();
        let (r, outs, _) =
            bench.run(&json!({"prefix": "osd pool create", "pool": "p", "pg_num": 16}));
        assert_eq!(r, 0, "{outs}");
        let sums = bench.c.pgmap.sums(bench.c.map());
        bench.c.balance(bench.now(), &sums);
        assert!(bench.c.balancer.done.is_some(), "three copies on three OSDs");
    }
}

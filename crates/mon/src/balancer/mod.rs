//! The balancer: CRUSH gives OSDs their shares by chance, some too much, some too little. It moves single PGs
//! from the ones to the others, a few at a time, while nothing else is wrong. Source: Ceph
//! `pybind/mgr/balancer/module.py`.

mod score;
mod upmap;

pub(crate) use score::score;
pub(crate) use upmap::Changes;

use crate::cluster::Cluster;
use crate::log::Level;
use crate::pgmap::Sums;
use admin::CommandError;
use io::Now;
use maps::{Incremental, OsdMap, Release};
use std::collections::{BTreeMap, BTreeSet};
use types::{Epoch, PoolId};
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
        let result = self.plan(sums, pools).and_then(|plan| self.carry_out(now, &plan));
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
        let again = |why| CommandError::new(types::Errno::EAGAIN, why);
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
        let number = |name| self.settings.uint(name);
        let limits = Limits {
            max_deviation: number("mgr/balancer/upmap_max_deviation") as f64,
            changes: usize::try_from(number("mgr/balancer/upmap_max_optimizations")).unwrap_or(1),
        };
        let changes = optimize(map, &pools, limits);
        match changes.is_empty() {
            true => Err(CommandError::new(types::Errno::EALREADY, NOTHING_BETTER)),
            false => Ok(Plan { epoch: map.epoch, pools, changes }),
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

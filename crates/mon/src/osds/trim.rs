//! Removed snapshots of which nothing is left, and old maps.

use crate::cluster::Cluster;
use crate::state::Pruned;
use crate::store::keys;
use maps::{OsdMap, SnapSet};
use types::{Epoch, PoolId};

/// Old maps are removed when there are so many too many.
const TRIM_AT_LEAST: u32 = 50;
/// Old maps that are removed with one commit.
const TRIM_AT_MOST: u32 = 500;

impl Cluster {
    /// Takes removed snapshots off the map that nothing is left of in any PG of their pool, by the map that is
    /// committed: PGs that are about to be merged count.
    pub fn purge_snaps(&mut self) {
        let map = self.state.osdmap.clone();
        let stays = |id: &PoolId| self.map().pools.contains_key(id);
        let purged: Vec<_> = map
            .removed_snaps_queue
            .iter()
            .filter(|(id, _)| stays(id))
            .filter_map(|(&id, queue)| Some((id, self.trimmed_everywhere(&map, id, queue)?)))
            .collect();
        if !purged.is_empty() {
            let done = self.change(|inc, _| inc.new_purged_snaps.extend(purged));
            debug_assert!(done.is_ok());
        }
    }

    /// Of these snapshots those of which nothing is left in any PG of the pool, if there are any.
    fn trimmed_everywhere(&self, map: &OsdMap, pool: PoolId, queue: &SnapSet) -> Option<SnapSet> {
        let pgs = map.pool(pool)?.pgs(pool);
        // Mostly there is one that has trimmed nothing yet, and be it the first.
        let trimmed = |pgid| self.pgmap.trimmed(map, pgid).filter(|trimmed| !trimmed.is_empty());
        let each: Option<Vec<&SnapSet>> = pgs.map(trimmed).collect();
        let mut each = each?;
        // The one that is behind first: mostly it has trimmed nothing, and the others need not be looked at,
        // which may have trimmed thousands.
        each.sort_by_key(|trimmed| trimmed.intervals().count());
        let mut each = each.into_iter();
        let mut gone = each.next()?.clone();
        gone.intersect(queue);
        for trimmed in each {
            if gone.is_empty() {
                break;
            }
            gone.intersect(trimmed);
        }
        (!gone.is_empty()).then_some(gone)
    }

    /// Removes maps that nobody needs any more: every PG was clean after them, and they are not
    /// among the newest ones.
    pub fn trim_maps(&mut self) {
        let first = self.state.first_epoch;
        let newest = self.state.osdmap.epoch;
        let wanted = Epoch(newest.0.saturating_sub(self.number("mon_min_osdmap_epochs")));
        if wanted.0 < first.0.saturating_add(TRIM_AT_LEAST) {
            return;
        }
        self.renew_orders(wanted);
        let Some(needed) = self.oldest_needed() else { return };
        let to = needed.min(wanted);
        if to.0 < first.0.saturating_add(TRIM_AT_LEAST) {
            return;
        }
        let to = to.min(Epoch(first.0.saturating_add(TRIM_AT_MOST)));
        // The oldest one is there as a whole.
        let to = self.state.pruned.whole(first, to);
        if to <= first {
            return;
        }
        for epoch in (first.0..to.0).map(Epoch) {
            self.draft.remove(keys::full(epoch));
            self.draft.remove(keys::incremental(epoch));
        }
        self.draft.put(keys::OSDMAP, denc::encode(&(to, newest)));
        self.state.first_epoch = to;
    }

    /// Keeps of old maps that cannot be removed, as PGs have not been clean for long, most only as changes:
    /// nobody needs them whole but who has none (`OSDMonitor::do_prune`).
    pub fn prune_maps(&mut self) {
        let (first, newest) = self.kept_maps();
        let many = newest.0.saturating_sub(first.0) > self.number("mon_osdmap_full_prune_min");
        if !many || !self.settings.bool("mon_osdmap_full_prune_enabled") {
            return;
        }
        let mut pruned = self.state.pruned;
        if pruned.to <= first {
            let every = self.number("mon_osdmap_full_prune_interval");
            pruned = Pruned { to: first.next(), every };
        }
        let end = newest.0.saturating_sub(self.number("mon_min_osdmap_epochs"));
        let end = end.min(pruned.to.0.saturating_add(TRIM_AT_MOST));
        if end < pruned.to.0.saturating_add(TRIM_AT_LEAST) {
            return;
        }
        let from = std::mem::replace(&mut pruned.to, Epoch(end));
        for epoch in (from.0..end).map(Epoch) {
            if pruned.whole(first, epoch) != epoch {
                self.draft.remove(keys::full(epoch));
            }
        }
        self.draft.put(keys::OSDMAP_PRUNED, denc::encode(&pruned));
        self.state.pruned = pruned;
    }

    fn number(&self, option: &str) -> u32 {
        u32::try_from(self.settings.uint(option)).unwrap_or(u32::MAX)
    }

    /// The oldest map that a PG may still need; `None` when not all PGs have been heard of.
    fn oldest_needed(&self) -> Option<Epoch> {
        let map = &self.state.osdmap;
        let mut oldest = map.epoch;
        for (pgid, entry) in self.pgmap.all(map) {
            oldest = oldest.min(match entry {
                Some(entry) => entry.stat.last_epoch_clean,
                None => self.newborns.get(&pgid)?.info().history.epoch_created,
            });
        }
        Some(self.oldest_creation().map_or(oldest, |created| oldest.min(created)))
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::bench::Bench;
    use maps::{OsdMap, SnapSet};
    use serde_json::json;
    use std::sync::Arc;
    use types::PgId;

    fn done(bench: &mut Bench, cmd: serde_json::Value) {
        let (r, outs, _) = bench.run(&cmd);
        assert_eq!(r, 0, "{cmd}: {outs}");
    }

    /// The last PG of a pool has not trimmed what all others have.
    #[test]
    fn what_a_merged_pg_has_not_trimmed_is_not_purged() {
        let mut bench = Bench::new();
        done(&mut bench, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8}));
        for prefix in ["osd pool mksnap", "osd pool rmsnap"] {
            done(&mut bench, json!({"prefix": prefix, "pool": "p", "snap": "s"}));
        }
        let id = bench.c.pool_id("p").unwrap();
        let removed: SnapSet = bench.c.map().removed_snaps_queue[&id].clone();
        let purged = |bench: &mut Bench| {
            bench.c.purge_snaps();
            let purged =
                !bench.c.draft.is_empty() && !bench.c.map().removed_snaps_queue.contains_key(&id);
            bench.commit();
            purged
        };
        let (source, target) = (PgId::new(id, 7), PgId::new(id, 3));
        (0..7).for_each(|seed| _ = bench.trimmed.insert(PgId::new(id, seed), removed.clone()));
        bench.again();
        assert!(!purged(&mut bench), "one PG has it");
        // The map that merges it is drafted.
        let ready_epoch = bench.c.state.osdmap.epoch;
        let merge = |pool: &mut maps::PgPool, _: &maps::OsdMap| {
            (pool.pg_num, pool.pg_num_pending, pool.pg_num_target) = (7, 7, 7);
            pool.last_pg_merge_meta.source_pgid = source;
            pool.last_pg_merge_meta.ready_epoch = ready_epoch;
            Ok(())
        };
        bench.c.edit_pool(id, merge).unwrap();
        // The one it went into has not been heard of since.
        bench.lost.insert(target);
        bench.trimmed.remove(&target);
        assert!(!purged(&mut bench) && bench.c.state.osdmap.epoch > ready_epoch);
        assert!(!purged(&mut bench), "by what was said before the merge");
        bench.lost.clear();
        bench.again();
        assert!(!purged(&mut bench), "it has what the other had");
        bench.trimmed.insert(target, removed);
        bench.again();
        assert!(purged(&mut bench));
    }

    /// Nothing will ever be heard of their PGs, and every map would have them.
    #[test]
    fn snapshots_go_with_their_pool() {
        let mut bench = Bench::new();
        let queue = |bench: &mut Bench, pool: &str| {
            done(bench, json!({"prefix": "osd pool create", "pool": pool, "pg_num": 8}));
            for prefix in ["osd pool mksnap", "osd pool rmsnap"] {
                done(bench, json!({"prefix": prefix, "pool": pool, "snap": "s"}));
            }
            let id = bench.c.pool_id(pool).unwrap();
            (id, bench.c.map().removed_snaps_queue[&id].clone())
        };
        let (gone, queued) = queue(&mut bench, "gone");
        let (stays, other) = queue(&mut bench, "stays");
        // In the same epoch one more is removed.
        done(&mut bench, json!({"prefix": "osd pool mksnap", "pool": "gone", "snap": "t"}));
        let removed = bench.c.remove_pool_snap(gone, "t").unwrap();
        assert!(removed && bench.c.map().removed_snaps_queue[&gone] != queued);
        let all = bench.c.map().removed_snaps_queue[&gone].clone();
        bench.c.delete_pool(gone).unwrap();
        bench.commit();
        let map = bench.c.map();
        assert_eq!(*map.removed_snaps_queue, [(stays, other.clone())].into());
        // Clients assert that they were queued.
        assert_eq!(map.new_purged_snaps, [(gone, all.clone())].into());
        // What an earlier version has left goes with the next epoch.
        let mut old = OsdMap::clone(&bench.c.state.osdmap);
        old.removed_snaps_queue.insert(gone, all.clone());
        bench.c.state.osdmap = Arc::new(old);
        done(&mut bench, json!({"prefix": "osd set", "key": "noscrub"}));
        assert_eq!(*bench.c.map().removed_snaps_queue, [(stays, other)].into());
        assert_eq!(bench.c.map().new_purged_snaps, [(gone, all)].into());
    }
}

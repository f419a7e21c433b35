//! Removed snapshots of which nothing is left, and old maps.

use crate::cluster::Cluster;
use crate::store::keys;
use maps::{OsdMap, SnapSet};
use types::{Epoch, PoolId};

/// Old maps are removed when there are so many too many.
const TRIM_AT_LEAST: u32 = 50;
/// Old maps that are removed with one commit.
const TRIM_AT_MOST: u32 = 500;

impl Cluster {
    /// Takes removed snapshots off the map that nothing is left of in any PG of their pool.
    pub fn purge_snaps(&mut self) {
        let map = self.map().clone();
        let purged: Vec<_> = map
            .removed_snaps_queue
            .iter()
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
        let each: Option<Vec<&SnapSet>> =
            pgs.map(|pgid| self.pgmap.get(pgid).map(|entry| &entry.stat.trimmed)).collect();
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
        let Some(needed) = self.oldest_needed() else { return };
        let first = self.state.first_epoch;
        let newest = self.state.osdmap.epoch;
        let kept = u32::try_from(self.settings.uint("mon_min_osdmap_epochs")).unwrap_or(u32::MAX);
        let to = needed.min(Epoch(newest.0.saturating_sub(kept)));
        if to.0 < first.0.saturating_add(TRIM_AT_LEAST) {
            return;
        }
        let to = to.min(Epoch(first.0.saturating_add(TRIM_AT_MOST)));
        for epoch in (first.0..to.0).map(Epoch) {
            self.draft.remove(keys::full(epoch));
            self.draft.remove(keys::incremental(epoch));
        }
        self.draft.put(keys::OSDMAP, denc::encode(&(to, newest)));
        self.state.first_epoch = to;
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

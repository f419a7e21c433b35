//! Old things in the maps and old maps.

use crate::cluster::Cluster;
use crate::store::keys;
use io::Now;
use maps::BlocklistAddr;
use types::Epoch;

/// Old maps are removed when there are so many too many.
const TRIM_AT_LEAST: u32 = 50;
/// Old maps that are removed with one commit.
const TRIM_AT_MOST: u32 = 500;

impl Cluster {
    /// Lets clients back whose time on the blocklist is over.
    pub fn expire_blocklist(&mut self, now: Now) {
        let map = self.map();
        let over = map.blocklist.iter().filter(|(_, until)| **until <= now.wall);
        let over: Vec<BlocklistAddr> = over.map(|(addr, _)| *addr).collect();
        if !over.is_empty() {
            let done = self.change(|inc, _| inc.old_blocklist.extend(over));
            debug_assert!(done.is_ok());
        }
    }

    /// Takes removed snapshots off the map that nothing is left of in any PG of their pool.
    pub fn purge_snaps(&mut self) {
        let map = self.map().clone();
        let purged = map.removed_snaps_queue.iter().filter_map(|(pool, queue)| {
            let mut gone = queue.clone();
            for (_, entry) in self.pgmap.all(&map).filter(|(pgid, _)| pgid.pool == *pool) {
                gone.intersect(&entry?.stat.trimmed);
            }
            (!gone.is_empty()).then_some((*pool, gone))
        });
        let purged: Vec<_> = purged.collect();
        if !purged.is_empty() {
            let done = self.change(|inc, _| inc.new_purged_snaps.extend(purged));
            debug_assert!(done.is_ok());
        }
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

//! OSDs that stay down are marked out, so that their data is copied elsewhere.

use crate::cluster::Cluster;
use crate::log::Level;
use io::Now;
use maps::{OsdMapFlags, OsdState, WEIGHT_OUT};
use std::time::Duration;
use types::OsdId;

impl Cluster {
    /// Notes since when OSDs are down.
    pub fn watch_down(&mut self, now: Now) {
        let map = self.map().clone();
        self.down_since.retain(|&id, _| map.exists(id) && map.is_down(id));
        for id in map.existing_osds().filter(|&id| map.is_down(id)) {
            self.down_since.entry(id).or_insert(now.mono);
        }
    }

    /// Marks those out that have been down for too long.
    pub fn auto_out(&mut self, now: Now) {
        self.watch_down(now);
        let after = self.settings.duration("mon_osd_down_out_interval");
        if after == Duration::ZERO || self.map().flags.contains(OsdMapFlags::NOOUT) {
            return;
        }
        let late: Vec<OsdId> = self
            .down_since
            .iter()
            .filter(|(_, since)| now.mono.since(**since) >= after)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            if self.may_mark_out(id) {
                self.mark_out(now, id, &format!("has been down for {} seconds", after.as_secs()));
            }
        }
    }

    pub(super) fn may_mark_out(&self, id: OsdId) -> bool {
        let map = self.map();
        if map.is_out(id)
            || map.effective_flags(id).contains(OsdState::NOOUT)
            || self.draft.touches(id)
        {
            return false;
        }
        let osds = map.existing_osds().count().max(1);
        let share = map.in_osds().count() as f64 / osds as f64;
        if share < self.settings.float("mon_osd_min_in_ratio") {
            tracing::debug!("osd.{id} stays in: only {share:.2} of the OSDs are in");
            return false;
        }
        !self.whole_subtree_down(id)
    }

    /// Whether everything below the bucket of the limiting type is down: then it is the bucket's
    /// fault (power, a switch), and copying all that elsewhere would not help.
    fn whole_subtree_down(&self, id: OsdId) -> bool {
        let map = self.map();
        let crush = map.crush();
        let limit = crush.type_id(self.settings.str("mon_osd_down_out_subtree_limit"));
        let Some(limit) = limit.and_then(|l| u16::try_from(l).ok()) else { return false };
        let Some(bucket) = crush.ancestor_of_type(id.0, limit) else { return false };
        let mut below = crush.devices_below(bucket).into_iter().map(OsdId);
        below.all(|osd| map.is_down(osd))
    }

    pub(super) fn mark_out(&mut self, now: Now, id: OsdId, why: &str) {
        let done = self.change(|inc, map| {
            inc.new_weight.insert(id, WEIGHT_OUT);
            if !map.state(id).contains(OsdState::AUTOOUT) {
                inc.toggle_state(id, OsdState::AUTOOUT);
            }
            if let Some(osd) = map.osd(id) {
                let old_weight = map.weight(id);
                inc.new_xinfo.insert(id, maps::OsdXInfo { old_weight, ..osd.xinfo });
            }
        });
        if done.is_ok() {
            self.say(now, Level::Info, format!("Marking osd.{id} out ({why})"));
        }
    }
}

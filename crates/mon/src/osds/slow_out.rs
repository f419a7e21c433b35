//! OSDs whose disks stay slow are marked out, if the operator wants that: every write waits for the
//! slowest of its copies.

use crate::cluster::Cluster;
use io::Now;
use maps::OsdMapFlags;
use std::collections::BTreeSet;
use std::time::Duration;
use types::OsdId;

/// A disk is slow only if it is so many times slower than the middle one: when all are, that is load.
const TIMES_SLOWER: u64 = 4;

impl Cluster {
    /// OSDs whose disks are slow now, by what they reported last.
    fn slow_now(&self) -> BTreeSet<OsdId> {
        let limit_ms = self.settings.uint("mon_warn_on_slow_commit_ms");
        let map = self.map();
        let mut all: Vec<(u64, OsdId)> = self
            .pgmap
            .living(map)
            .filter(|(id, s)| map.is_in(*id) && s.commit_latency_us > 0)
            .map(|(id, s)| (u64::from(s.commit_latency_us), id))
            .collect();
        all.sort_unstable();
        // The lower middle: of two, one may be slow.
        let middle = all.get(all.len().saturating_sub(1) / 2).map_or(0, |(us, _)| *us);
        let least = (limit_ms * 1000).max(middle.saturating_mul(TIMES_SLOWER));
        let slow = all.into_iter().filter(|(us, _)| limit_ms > 0 && *us >= least);
        slow.map(|(_, id)| id).collect()
    }

    /// Marks one out whose disk has been slow for too long. The next one only when what was on it has
    /// been copied.
    pub fn slow_out(&mut self, now: Now, calm: bool) {
        let slow = self.slow_now();
        self.slow_since.retain(|id, _| slow.contains(id));
        for id in slow {
            self.slow_since.entry(id).or_insert(now.mono);
        }
        let after = self.settings.duration("mon_osd_slow_disk_out_interval");
        if after == Duration::ZERO || self.map().flags.contains(OsdMapFlags::NOOUT) || !calm {
            return;
        }
        let late = |since: &types::Mono| now.mono.since(*since) >= after;
        let late: Vec<OsdId> =
            self.slow_since.iter().filter(|(_, since)| late(since)).map(|(id, _)| *id).collect();
        if let Some(id) = late.into_iter().find(|id| self.may_mark_out(*id)) {
            let why = format!("its disk has been slow for {} seconds", after.as_secs());
            self.mark_out(now, id, &why);
        }
    }
}

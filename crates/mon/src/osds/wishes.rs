//! What OSDs ask for: to be known alive, and that others act for their PGs.

use crate::cluster::Cluster;
use maps::{OsdList, OsdMap, UpActing};
use peer::{OsdAlive, OsdPgTemp};
use std::collections::BTreeSet;
use types::{OsdId, PgId};

impl Cluster {
    /// Promises in the map that an OSD is alive.
    pub fn alive(&mut self, wish: &OsdAlive) {
        let map = self.map();
        let Some(osd) = map.osd(wish.osd).filter(|_| map.is_up(wish.osd)) else { return };
        let known = wish.want <= self.state.osdmap.epoch && wish.want >= osd.info.up_from;
        if osd.info.up_thru >= wish.want || !known {
            return;
        }
        let _ = self.change(|inc, _| {
            inc.new_up_thru.insert(wish.osd, wish.want);
        });
    }

    /// Lets other OSDs act for PGs. A wish is void when the PG's mapping changed since the map it
    /// is based on, or that map is long gone; its OSD then asks again.
    pub fn pg_temp(&mut self, sender: OsdId, wish: &OsdPgTemp) {
        let map = self.map().clone();
        if map.is_down(sender) {
            return;
        }
        let Some(base) = self.recent_map(wish.epoch).cloned() else {
            tracing::debug!("osd.{sender}: pg_temp based on epoch {} is void", wish.epoch);
            return;
        };
        let mut temps = Vec::new();
        for (pgid, wanted) in &wish.wants {
            let now = map.pg_to_up_acting(*pgid);
            let leads = now.acting_primary == Some(sender);
            if !map.pg_exists(*pgid) || !leads || now != base.pg_to_up_acting(*pgid) {
                continue;
            }
            temps.extend(temp_of(&map, *pgid, &now, wanted).map(|osds| (*pgid, osds)));
        }
        if !temps.is_empty() {
            // At once: each change tries the whole map.
            let _ = self.change(|inc, _| inc.new_pg_temp.extend(temps));
        }
    }
}

/// What `pg_temp` becomes (empty: none); `None` when it stays or the wish makes no sense.
fn temp_of(map: &OsdMap, pgid: PgId, now: &UpActing, wanted: &[OsdId]) -> Option<OsdList> {
    let real: Vec<OsdId> = wanted.iter().copied().filter(|o| o.is_some()).collect();
    let distinct: BTreeSet<OsdId> = real.iter().copied().collect();
    let can_shift = map.pool(pgid.pool).is_none_or(maps::PgPool::can_shift);
    if (can_shift && distinct.len() != real.len()) || !real.iter().all(|&o| map.is_up(o)) {
        return None;
    }
    let none = real.is_empty() || wanted == now.up.as_slice();
    let osds: OsdList = if none { OsdList::new() } else { wanted.iter().copied().collect() };
    let before = map.pg_temp.get(&pgid).cloned().unwrap_or_default();
    (osds != before).then_some(osds)
}

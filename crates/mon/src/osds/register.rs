//! Ids of OSDs: giving them out, and taking them back.

use crate::cluster::Cluster;
use admin::CommandError;
use maps::{Incremental, OsdMap, OsdState, OsdXInfo, WEIGHT_IN};
use types::{Errno, OsdId, Uuid};

/// The lowest id that nobody has.
pub(crate) fn free_id(map: &OsdMap) -> OsdId {
    let free = map.osd_ids().find(|&id| !map.exists(id));
    free.unwrap_or(OsdId(map.max_osd()))
}

/// The CRUSH weight of a disk of so many bytes: TiB, four decimals, never nothing.
pub(crate) fn rounded_tib(bytes: u64) -> f64 {
    let tib = bytes as f64 / (1u64 << 40) as f64;
    ((tib * 10_000.0).round() / 10_000.0).max(0.0001)
}

impl Cluster {
    /// An id as it may be used: not too high.
    ///
    /// # Errors
    /// ERANGE.
    pub fn check_osd_id(&self, id: OsdId) -> Result<(), CommandError> {
        let max = self.settings.uint("mon_max_osd");
        if id.index().is_none_or(|i| i as u64 >= max) {
            let text = format!(
                "osd.{id} is beyond the largest id, {} ('mon_max_osd' says so)",
                max.saturating_sub(1)
            );
            return Err(CommandError::new(Errno::ERANGE, text));
        }
        Ok(())
    }
}

/// Makes room for an id. One that was there before has nothing of what that one had: peering must know it.
pub(super) fn make_room(inc: &mut Incremental, map: &OsdMap, id: OsdId) {
    if id.0 >= inc.new_max_osd.unwrap_or(map.max_osd()) {
        inc.new_max_osd = Some(id.0.saturating_add(1));
    } else {
        inc.new_lost.insert(id, map.epoch);
    }
}

/// `osd new`: puts an OSD that does not exist into the map, in and new. Giving it a weight is what
/// makes it exist.
pub(crate) fn register(inc: &mut Incremental, map: &OsdMap, id: OsdId, uuid: Uuid) {
    make_room(inc, map, id);
    inc.new_weight.insert(id, WEIGHT_IN);
    inc.toggle_state(id, OsdState::NEW);
    inc.new_uuid.insert(id, uuid);
}

/// Gives an id whose data is gone a new disk.
pub(crate) fn recreate(inc: &mut Incremental, map: &OsdMap, id: OsdId, uuid: Uuid) {
    let state = map.state(id);
    if state.contains(OsdState::DESTROYED) {
        inc.toggle_state(id, OsdState::DESTROYED);
    }
    if !state.contains(OsdState::NEW) {
        inc.toggle_state(id, OsdState::NEW);
    }
    inc.new_uuid.insert(id, uuid);
    let xinfo = map.osd(id).map(|o| o.xinfo).unwrap_or_default();
    inc.new_xinfo.insert(id, OsdXInfo { dead_epoch: Default::default(), ..xinfo });
}

/// `osd destroy`: the data is gone, the id stays.
pub(crate) fn destroy(inc: &mut Incremental, map: &OsdMap, id: OsdId) {
    let state = map.state(id);
    if !state.contains(OsdState::DESTROYED) {
        inc.toggle_state(id, OsdState::DESTROYED);
    }
    inc.new_uuid.insert(id, Uuid::NIL);
    // Nobody needs to wait for what it might have known.
    inc.new_lost.insert(id, map.osd(id).map(|o| o.info.down_at).unwrap_or_default());
}

/// `osd rm`: nothing is left of it but its place in CRUSH.
pub(crate) fn remove(inc: &mut Incremental, map: &OsdMap, id: OsdId) {
    // Turning EXISTS over wipes everything. What this draft has made of it is turned back.
    inc.toggle_state(id, map.state(id));
    inc.new_weight.remove(&id);
    inc.new_uuid.remove(&id);
    inc.new_lost.remove(&id);
    inc.new_xinfo.remove(&id);
    inc.new_primary_affinity.remove(&id);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_rounded_as_ceph_rounds_them() {
        assert_eq!(rounded_tib(1 << 40), 1.0);
        assert_eq!(rounded_tib(6 << 30), 0.0059);
        assert_eq!(rounded_tib(1 << 20), 0.0001);
        assert_eq!(rounded_tib(4_000_787_030_016), 3.6387);
    }

    /// Made and removed before it was ever in a map.
    #[test]
    fn one_that_a_draft_makes_and_removes_was_never_there() {
        let mut bench = crate::commands::bench::Bench::new();
        let id = OsdId(7);
        let before = bench.c.map().clone();
        bench
            .c
            .change(|inc, map| {
                make_room(inc, map, id);
                inc.toggle_state(id, OsdState::EXISTS | OsdState::NEW);
            })
            .unwrap();
        assert!(bench.c.map().exists(id));
        bench.c.change(|inc, map| remove(inc, map, id)).unwrap();
        bench.commit();
        assert!(!bench.c.map().exists(id) && !before.exists(id));
    }
}

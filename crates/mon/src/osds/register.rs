//! Ids of OSDs: giving them out, and taking them back.

use crate::cluster::Cluster;
use crate::store::keys;
use admin::CommandError;
use maps::{Incremental, OsdMap, OsdState, OsdXInfo, WEIGHT_IN};
use types::{Errno, OsdId, Uuid};

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

    /// The lowest id that nobody has.
    pub fn free_id(&self) -> OsdId {
        let map = self.map();
        let free = map.osd_ids().find(|&id| !map.exists(id) && !self.is_leaving(id));
        free.unwrap_or(OsdId(map.max_osd()))
    }

    /// Whether what is drafted removes an OSD: nothing of this draft would be left of who comes under its number.
    pub fn is_leaving(&self, id: OsdId) -> bool {
        self.state.osdmap.exists(id) && !self.map().exists(id)
    }

    /// Notes which numbers OSDs have had.
    pub(super) fn note_numbers(&mut self) {
        let map = self.map().clone();
        let numbers = &mut self.state.osd_numbers;
        let known = numbers.len();
        numbers.extend(map.existing_osds());
        if numbers.len() > known {
            self.draft.put(keys::OSD_NUMBERS, denc::encode(numbers));
        }
    }

    /// Whether an OSD with this number was there before.
    pub fn had(&self, id: OsdId) -> bool {
        self.state.osd_numbers.contains(&id)
    }
}

/// Makes room for an id. Who comes under one that was `had` before has nothing of what was there: peering must
/// know it.
pub(super) fn make_room(inc: &mut Incremental, map: &OsdMap, id: OsdId, had: bool) {
    if id.0 >= inc.new_max_osd.unwrap_or(map.max_osd()) {
        inc.new_max_osd = Some(id.0.saturating_add(1));
    }
    if had {
        // Before it comes up, which it may do in this epoch.
        inc.new_lost.insert(id, inc.epoch.prev());
    }
}

/// `osd new`: puts an OSD that does not exist into the map, in and new. Giving it a weight is what
/// makes it exist.
pub(crate) fn register(inc: &mut Incremental, map: &OsdMap, id: OsdId, uuid: Uuid, had: bool) {
    make_room(inc, map, id, had);
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
    use std::collections::BTreeSet;

    #[test]
    fn weights_are_rounded_as_ceph_rounds_them() {
        assert_eq!(rounded_tib(1 << 40), 1.0);
        assert_eq!(rounded_tib(6 << 30), 0.0059);
        assert_eq!(rounded_tib(1 << 20), 0.0001);
        assert_eq!(rounded_tib(4_000_787_030_016), 3.6387);
    }

    /// With the first map that has them: they outlive the OSD, and this life of the mon.
    #[test]
    fn numbers_are_written_down() {
        let mut bench = crate::commands::bench::Bench::new();
        let id = OsdId(7);
        let uuid = Uuid::from_random(7);
        bench.c.change(|inc, map| register(inc, map, id, uuid, false)).unwrap();
        bench.c.tidy();
        let committed = bench.c.state.osdmap.clone();
        let closed = bench.c.draft.close(&committed, bench.now().wall);
        let numbers = closed.batch.changes.iter().find(|(key, _)| key == keys::OSD_NUMBERS);
        let (_, value) = numbers.expect("they are written");
        let numbers: BTreeSet<OsdId> = denc::decode(value.as_ref().unwrap()).unwrap();
        assert_eq!(numbers, [0, 1, 2, 7].map(OsdId).into());
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
                make_room(inc, map, id, false);
                inc.toggle_state(id, OsdState::EXISTS | OsdState::NEW);
            })
            .unwrap();
        assert!(bench.c.map().exists(id));
        bench.c.change(|inc, map| remove(inc, map, id)).unwrap();
        bench.commit();
        assert!(!bench.c.map().exists(id) && !before.exists(id));
    }
}

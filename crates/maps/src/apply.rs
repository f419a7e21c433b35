//! Applying an incremental (`OSDMap::apply_incremental`).
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::error::MapError;
use crate::flags::{OsdMapFlags, OsdState, Release};
use crate::incremental::Incremental;
use crate::osd_info::{DEFAULT_PRIMARY_AFFINITY, Osd};
use crate::osdmap::{MAX_OSDS, OsdMap};
use crate::snaps::SnapSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Epoch, OsdId, PoolId};

impl OsdMap {
    /// Makes this map the next one. Byte for byte what Ceph makes of the same incremental.
    ///
    /// # Errors
    /// When the incremental is for another epoch or cluster, names OSDs that are not there, or
    /// holds a damaged map. The map is then as it was. The checksum of the result is not compared
    /// here, see [`OsdMap::apply_checked`].
    pub fn apply(&mut self, inc: &Incremental) -> Result<(), MapError> {
        self.check(inc)?;
        if !inc.fullmap.is_empty() {
            let full: OsdMap = denc::decode(&inc.fullmap)?;
            if full.epoch != inc.epoch || full.fsid != inc.fsid {
                return Err(MapError::OtherFullMap);
            }
            *self = full;
            return Ok(());
        }
        let crush = match inc.crush.is_empty() {
            true => None,
            false => Some(denc::decode(&inc.crush)?),
        };
        self.epoch = inc.epoch;
        self.fsid = inc.fsid;
        self.modified = inc.modified;
        self.apply_cluster(inc);
        self.apply_pools(inc);
        self.apply_weights(inc);
        self.apply_profiles(inc);
        self.apply_states(inc);
        self.apply_osd_details(inc);
        self.apply_placement(inc);
        for (&addr, &until) in &inc.new_blocklist {
            self.blocklist.entry(addr).or_insert(until);
        }
        for addr in &inc.old_blocklist {
            self.blocklist.remove(addr);
        }
        replace_flags(&mut self.crush_node_flags, &inc.new_crush_node_flags);
        replace_flags(&mut self.device_class_flags, &inc.new_device_class_flags);
        self.apply_requirements(inc);
        if let Some(crush) = crush {
            self.set_crush(Arc::new(crush));
            self.crush_version = self.crush_version.wrapping_add(1);
        }
        Ok(())
    }

    /// Applies an incremental that came from elsewhere, and compares the checksum of the result.
    ///
    /// # Errors
    /// As [`OsdMap::apply`]; also when the checksum is another one than the incremental says. The
    /// caller must then ask for a full map.
    pub fn apply_checked(&mut self, inc: &Incremental) -> Result<(), MapError> {
        let mut next = self.clone();
        next.apply(inc)?;
        let (_, actual) = next.encode_with_crc();
        if actual != inc.full_crc {
            return Err(MapError::WrongFullCrc { epoch: inc.epoch, wanted: inc.full_crc, actual });
        }
        *self = next;
        Ok(())
    }

    /// Whether everything the incremental names is there.
    fn check(&self, inc: &Incremental) -> Result<(), MapError> {
        if self.epoch != inc.epoch.prev() || inc.epoch == Epoch::ZERO {
            let (map, inc) = (self.epoch, inc.epoch);
            return Err(MapError::WrongEpoch { map, inc });
        }
        if inc.epoch != Epoch(1) && self.fsid != inc.fsid {
            let (map, inc) = (self.fsid, inc.fsid);
            return Err(MapError::WrongCluster { map, inc });
        }
        if !inc.fullmap.is_empty() {
            return Ok(());
        }
        let max_osd = inc.new_max_osd.unwrap_or(self.max_osd());
        if usize::try_from(max_osd).map_or(true, |n| n > MAX_OSDS) {
            return Err(MapError::BadMaxOsd(max_osd));
        }
        let named = (inc.new_up_client.keys())
            .chain(inc.new_up_cluster.keys())
            .chain(inc.new_state.keys())
            .chain(inc.new_weight.keys())
            .chain(inc.new_primary_affinity.keys())
            .chain(inc.new_up_thru.keys())
            .chain(inc.new_last_clean_interval.keys())
            .chain(inc.new_lost.keys())
            .chain(inc.new_uuid.keys())
            .chain(inc.new_xinfo.keys());
        for &id in named {
            if !(0..max_osd).contains(&id.0) {
                return Err(MapError::NoSuchOsd { id: id.0, max_osd });
            }
        }
        let without = |id: &&OsdId| {
            !(inc.new_hb_back_up.contains_key(id) && inc.new_hb_front_up.contains_key(id))
        };
        match inc.new_up_client.keys().find(without) {
            Some(id) => Err(MapError::NoHeartbeatAddrs(id.0)),
            None => Ok(()),
        }
    }

    fn apply_cluster(&mut self, inc: &Incremental) {
        if let Some(flags) = inc.new_flags {
            self.flags = flags;
        }
        if let Some(max) = inc.new_max_osd {
            self.set_max_osd(max);
        }
        if let Some(max) = inc.new_pool_max {
            self.pool_max = max as i32;
        }
    }

    fn apply_pools(&mut self, inc: &Incremental) {
        for (&id, pool) in &inc.new_pools {
            let mut pool = pool.clone();
            pool.last_change = inc.epoch;
            self.pools.insert(id, pool.into());
        }
        self.new_removed_snaps = inc.new_removed_snaps.clone();
        self.new_purged_snaps = inc.new_purged_snaps.clone();
        for (&pool, snaps) in &inc.new_removed_snaps {
            let queue = self.removed_snaps_queue.entry(pool).or_default();
            queue.union_with(snaps);
        }
        for (pool, snaps) in &inc.new_purged_snaps {
            subtract(&mut self.removed_snaps_queue, *pool, snaps);
        }
        for (&id, name) in &inc.new_pool_names {
            self.pool_names.insert(id, name.clone());
        }
        for id in &inc.old_pools {
            self.pools.remove(id);
            self.pool_names.remove(id);
        }
    }

    fn apply_weights(&mut self, inc: &Incremental) {
        for (&id, &weight) in &inc.new_weight {
            self.set_weight(id, weight);
        }
        for (&id, &affinity) in &inc.new_primary_affinity {
            self.set_primary_affinity(id, affinity);
        }
    }

    fn apply_profiles(&mut self, inc: &Incremental) {
        for name in &inc.old_erasure_code_profiles {
            self.erasure_code_profiles.remove(name);
        }
        for (name, profile) in &inc.new_erasure_code_profiles {
            let (name, profile) = (name.clone(), profile.clone());
            self.erasure_code_profiles.insert(name, profile);
        }
    }

    /// Down and gone before up: an OSD may do both in one epoch.
    fn apply_states(&mut self, inc: &Incremental) {
        for (&id, &flags) in &inc.new_state {
            let turned = if flags == OsdState::NONE { OsdState::UP } else { flags };
            let old = self.state(id);
            let both = |flag| old.contains(flag) && turned.contains(flag);
            if both(OsdState::UP)
                && let Some(osd) = self.osd_mut(id)
            {
                osd.info.down_at = inc.epoch;
                osd.xinfo.down_stamp = inc.modified;
            }
            let gone = both(OsdState::EXISTS);
            if gone {
                if let Some(osd) = self.osd_mut(id) {
                    *osd = Osd::default();
                }
                self.set_primary_affinity(id, DEFAULT_PRIMARY_AFFINITY);
            }
            if let Some(state) = self.state_mut(id) {
                state.0 = if gone { 0 } else { state.0 ^ turned.0 };
            }
        }
        for (&id, client) in &inc.new_up_client {
            if let Some(state) = self.state_mut(id) {
                let up = OsdState::EXISTS | OsdState::UP;
                *state = state.with(up).without(OsdState::STOP);
            }
            if let Some(osd) = self.osd_mut(id) {
                osd.client_addrs = client.clone();
                osd.info.up_from = inc.epoch;
                if let Some(addrs) = inc.new_hb_back_up.get(&id) {
                    osd.hb_back_addrs = addrs.clone();
                }
                if let Some(addrs) = inc.new_hb_front_up.get(&id) {
                    osd.hb_front_addrs = addrs.clone();
                }
            }
        }
        for (&id, cluster) in &inc.new_up_cluster {
            if let Some(osd) = self.osd_mut(id) {
                osd.cluster_addrs = cluster.clone();
            }
        }
    }

    fn apply_osd_details(&mut self, inc: &Incremental) {
        self.change(&inc.new_up_thru, |osd, &epoch| osd.info.up_thru = epoch);
        self.change(&inc.new_last_clean_interval, |osd, &(begin, end)| {
            osd.info.last_clean_begin = begin;
            osd.info.last_clean_end = end;
        });
        self.change(&inc.new_lost, |osd, &epoch| osd.info.lost_at = epoch);
        self.change(&inc.new_xinfo, |osd, &xinfo| osd.xinfo = xinfo);
        self.change(&inc.new_uuid, |osd, &uuid| osd.uuid = uuid);
    }

    fn change<T>(&mut self, changes: &BTreeMap<OsdId, T>, set: impl Fn(&mut Osd, &T)) {
        for (&id, value) in changes {
            if let Some(osd) = self.osd_mut(id) {
                set(osd, value);
            }
        }
    }

    fn apply_placement(&mut self, inc: &Incremental) {
        for (&pg, osds) in &inc.new_pg_temp {
            if osds.is_empty() {
                self.pg_temp.remove(&pg);
            } else {
                self.pg_temp.insert(pg, osds.clone());
            }
        }
        for (&pg, &osd) in &inc.new_primary_temp {
            if osd.0 == -1 {
                self.primary_temp.remove(&pg);
            } else {
                self.primary_temp.insert(pg, osd);
            }
        }
        for (&pg, osds) in &inc.new_pg_upmap {
            self.pg_upmap.insert(pg, osds.clone());
        }
        for pg in &inc.old_pg_upmap {
            self.pg_upmap.remove(pg);
        }
        for (&pg, items) in &inc.new_pg_upmap_items {
            self.pg_upmap_items.insert(pg, items.clone());
        }
        for pg in &inc.old_pg_upmap_items {
            self.pg_upmap_items.remove(pg);
        }
    }

    fn apply_requirements(&mut self, inc: &Incremental) {
        self.cluster_snapshot_epoch = match inc.cluster_snapshot.is_empty() {
            true => Epoch::ZERO,
            false => inc.epoch,
        };
        self.cluster_snapshot = inc.cluster_snapshot.clone();
        let set = |ratio: &mut f32, new: Option<f32>| *ratio = new.unwrap_or(*ratio);
        set(&mut self.nearfull_ratio, inc.new_nearfull_ratio);
        set(&mut self.full_ratio, inc.new_full_ratio);
        set(&mut self.backfillfull_ratio, inc.new_backfillfull_ratio);
        if let Some(client) = inc.new_require_min_compat_client
            && client > Release::UNKNOWN
        {
            self.require_min_compat_client = client;
        }
        if let Some(release) = inc.new_require_osd_release
            && release > Release::UNKNOWN
        {
            self.require_osd_release = release;
            if release >= Release::LUMINOUS {
                let legacy = OsdMapFlags::REQUIRE_JEWEL
                    | OsdMapFlags::REQUIRE_KRAKEN
                    | OsdMapFlags::REQUIRE_LUMINOUS;
                let flags = self.flags.without(legacy);
                self.flags = flags.with(OsdMapFlags::RECOVERY_DELETES);
            }
        }
        if !inc.new_last_up_change.is_zero() {
            self.last_up_change = inc.new_last_up_change;
        }
        if !inc.new_last_in_change.is_zero() {
            self.last_in_change = inc.new_last_in_change;
        }
    }
}

fn subtract(queues: &mut BTreeMap<PoolId, SnapSet>, pool: PoolId, snaps: &SnapSet) {
    if let Some(queue) = queues.get_mut(&pool) {
        queue.subtract(snaps);
        if queue.is_empty() {
            queues.remove(&pool);
        }
    }
}

/// Sets flags by key; none removes the entry.
fn replace_flags(flags: &mut BTreeMap<i32, OsdState>, new: &BTreeMap<i32, OsdState>) {
    for (&key, &value) in new {
        if value == OsdState::NONE {
            flags.remove(&key);
        } else {
            flags.insert(key, value);
        }
    }
}

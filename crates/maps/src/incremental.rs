//! Changes from one OSDMap to the next (`OSDMap::Incremental`; guide §4.2).
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::flags::{OsdMapFlags, OsdState, Release};
use crate::osd_info::OsdXInfo;
use crate::osdmap::{BlocklistAddr, EcProfiles, OsdList, OsdMap};
use crate::osdmap_codec::{CRC_SEED, NEWEST_READ, OUTER, check_version, take_outer};
use crate::pool::PgPool;
use crate::snaps::SnapSet;
use bytes::Bytes;
use crush::CrushMap;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder, crc32c};
use std::collections::{BTreeMap, BTreeSet};
use types::{AddrVec, Epoch, OsdId, PgId, PoolId, UTime, Uuid};

/// What changes with an epoch. How a mon changes the map: [`Incremental::new`], set the fields,
/// apply it to a copy of the map, put the checksum of the result into [`Incremental::full_crc`],
/// and encode it.
///
/// A new one changes nothing. See [`OsdMap::apply`] for what each field does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Incremental {
    /// The cluster.
    pub fsid: Uuid,
    /// The epoch that it leads to.
    pub epoch: Epoch,
    /// When it was made.
    pub modified: UTime,
    /// The highest pool id ever used.
    pub new_pool_max: Option<i64>,
    /// All flags.
    pub new_flags: Option<OsdMapFlags>,
    /// Replaces everything if it is not empty: an encoded [`OsdMap`].
    pub fullmap: Bytes,
    /// A new CRUSH map if it is not empty: an encoded [`CrushMap`].
    pub crush: Bytes,
    /// The number of OSD ids.
    pub new_max_osd: Option<i32>,
    /// New and changed pools.
    pub new_pools: BTreeMap<PoolId, PgPool>,
    /// New names of pools.
    pub new_pool_names: BTreeMap<PoolId, String>,
    /// Pools that are deleted.
    pub old_pools: BTreeSet<PoolId>,
    /// OSDs that come up: where clients reach them.
    pub new_up_client: BTreeMap<OsdId, AddrVec>,
    /// Flags of OSDs that are turned over; no flag means [`OsdState::UP`].
    pub new_state: BTreeMap<OsdId, OsdState>,
    /// Weights.
    pub new_weight: BTreeMap<OsdId, u32>,
    /// PGs that other OSDs serve for a time; empty ends that.
    pub new_pg_temp: BTreeMap<PgId, OsdList>,
    /// PGs that have another primary for a time; -1 ends that.
    pub new_primary_temp: BTreeMap<PgId, OsdId>,
    /// Primary affinities, 16.16.
    pub new_primary_affinity: BTreeMap<OsdId, u32>,
    /// New and changed erasure-code profiles.
    pub new_erasure_code_profiles: EcProfiles,
    /// Profiles that are removed.
    pub old_erasure_code_profiles: Vec<String>,
    /// PGs whose OSDs are said explicitly.
    pub new_pg_upmap: BTreeMap<PgId, OsdList>,
    /// Explicit mappings that end.
    pub old_pg_upmap: BTreeSet<PgId>,
    /// PGs in which OSDs are exchanged: from, to.
    pub new_pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    /// Exchanges that end.
    pub old_pg_upmap_items: BTreeSet<PgId>,
    /// Snapshots that are removed.
    pub new_removed_snaps: BTreeMap<PoolId, SnapSet>,
    /// Removed snapshots that are purged everywhere.
    pub new_purged_snaps: BTreeMap<PoolId, SnapSet>,
    /// When an OSD last went up or down; zero leaves it.
    pub new_last_up_change: UTime,
    /// When an OSD last went in or out; zero leaves it.
    pub new_last_in_change: UTime,
    /// OSDs that come up: where OSDs send heartbeats on the cluster network.
    pub new_hb_back_up: BTreeMap<OsdId, AddrVec>,
    /// See [`crate::OsdInfo::up_thru`].
    pub new_up_thru: BTreeMap<OsdId, Epoch>,
    /// See [`crate::OsdInfo::last_clean_begin`].
    pub new_last_clean_interval: BTreeMap<OsdId, (Epoch, Epoch)>,
    /// See [`crate::OsdInfo::lost_at`].
    pub new_lost: BTreeMap<OsdId, Epoch>,
    /// Clients that are blocklisted, and until when. Does not change an entry that is there.
    pub new_blocklist: BTreeMap<BlocklistAddr, UTime>,
    /// Blocklist entries that end.
    pub old_blocklist: Vec<BlocklistAddr>,
    /// OSDs that come up: where OSDs reach them.
    pub new_up_cluster: BTreeMap<OsdId, AddrVec>,
    /// Of a feature that is gone.
    pub cluster_snapshot: String,
    /// Uuids of OSDs' disks.
    pub new_uuid: BTreeMap<OsdId, Uuid>,
    /// More of OSDs.
    pub new_xinfo: BTreeMap<OsdId, OsdXInfo>,
    /// OSDs that come up: where OSDs send heartbeats on the public network.
    pub new_hb_front_up: BTreeMap<OsdId, AddrVec>,
    /// The features that [`Incremental::full_crc`] was computed with.
    pub encode_features: u64,
    /// See [`OsdMap::nearfull_ratio`].
    pub new_nearfull_ratio: Option<f32>,
    /// See [`OsdMap::full_ratio`].
    pub new_full_ratio: Option<f32>,
    /// See [`OsdMap::backfillfull_ratio`].
    pub new_backfillfull_ratio: Option<f32>,
    /// See [`OsdMap::require_min_compat_client`].
    pub new_require_min_compat_client: Option<Release>,
    /// See [`OsdMap::require_osd_release`].
    pub new_require_osd_release: Option<Release>,
    /// Flags of all OSDs below a CRUSH bucket; none removes the entry.
    pub new_crush_node_flags: BTreeMap<i32, OsdState>,
    /// Flags of all OSDs of a device class; none removes the entry.
    pub new_device_class_flags: BTreeMap<i32, OsdState>,
    /// The checksum of the map that results ([`OsdMap::encode_with_crc`]).
    pub full_crc: u32,
}

/// What the mons of 16.2 write into `encode_features`: those of their features that change how a
/// map is encoded.
pub const ENCODE_FEATURES: u64 = 0x0f00_0880_1021_2a04;

impl Incremental {
    /// An incremental that changes nothing but the epoch.
    pub fn new(fsid: Uuid, epoch: Epoch) -> Self {
        Incremental { fsid, epoch, encode_features: ENCODE_FEATURES, ..Incremental::default() }
    }

    /// The incremental for the epoch after a map's.
    pub fn after(map: &OsdMap) -> Self {
        Incremental::new(map.fsid, map.epoch.next())
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self
            == Incremental {
                modified: self.modified,
                encode_features: self.encode_features,
                full_crc: self.full_crc,
                ..Incremental::new(self.fsid, self.epoch)
            }
    }

    /// Brings a new CRUSH map.
    pub fn set_crush(&mut self, crush: &CrushMap) {
        self.crush = denc::encode(crush);
    }

    /// Turns flags of an OSD over, on top of what this incremental turns already.
    pub fn toggle_state(&mut self, id: OsdId, flags: OsdState) {
        let pending = self.new_state.entry(id).or_default();
        pending.0 ^= flags.0;
        if pending.0 == 0 {
            // An entry without flags would mean UP.
            self.new_state.remove(&id);
        }
    }

    /// Marks an OSD down. The map must have it up.
    pub fn mark_down(&mut self, id: OsdId) {
        self.toggle_state(id, OsdState::UP);
    }

    /// Brings an OSD up at its addresses.
    pub fn mark_up(&mut self, id: OsdId, addrs: OsdAddrs) {
        self.new_up_client.insert(id, addrs.client);
        self.new_up_cluster.insert(id, addrs.cluster);
        self.new_hb_back_up.insert(id, addrs.hb_back);
        self.new_hb_front_up.insert(id, addrs.hb_front);
    }
}

/// All addresses of an OSD that comes up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdAddrs {
    /// For clients.
    pub client: AddrVec,
    /// For OSDs.
    pub cluster: AddrVec,
    /// For heartbeats on the cluster network.
    pub hb_back: AddrVec,
    /// For heartbeats on the public network.
    pub hb_front: AddrVec,
}

const CLIENT: (u8, u8) = (8, 1);
const OSD: (u8, u8) = (9, 1);
/// "Unchanged" where a release would stand.
const NO_RELEASE: Release = Release(0xff);
/// "Unchanged" where a ratio would stand.
const NO_RATIO: f32 = -1.0;

impl Encode for Incremental {
    fn encode(&self, e: &mut Encoder) {
        let start = e.len();
        e.section(OUTER.0, OUTER.1, |e| {
            e.section(CLIENT.0, CLIENT.1, |e| self.encode_client(e));
            e.section(OSD.0, OSD.1, |e| self.encode_osd(e));
            e.put(&0u32).put(&self.full_crc);
        });
        // The checksum stands between what it is over.
        let at = e.len().saturating_sub(8);
        let before = e.as_slice().get(start..at).unwrap_or_default();
        let crc = crc32c(crc32c(CRC_SEED, before), &self.full_crc.to_le_bytes());
        e.patch_u32(at, crc);
    }
}

impl Incremental {
    fn encode_client(&self, e: &mut Encoder) {
        e.put(&self.fsid).put(&self.epoch).put(&self.modified);
        e.put(&self.new_pool_max.unwrap_or(-1));
        let flags = self.new_flags.map(|f| f.0 as i32);
        e.put(&flags.unwrap_or(-1));
        e.put(&self.fullmap).put(&self.crush);
        e.put(&self.new_max_osd.unwrap_or(-1));
        e.put(&self.new_pools).put(&self.new_pool_names).put(&self.old_pools);
        e.put(&self.new_up_client).put(&self.new_state).put(&self.new_weight);
        e.put(&self.new_pg_temp).put(&self.new_primary_temp);
        e.put(&self.new_primary_affinity);
        e.put(&self.new_erasure_code_profiles).put(&self.old_erasure_code_profiles);
        e.put(&self.new_pg_upmap).put(&self.old_pg_upmap);
        e.put(&self.new_pg_upmap_items).put(&self.old_pg_upmap_items);
        e.put(&self.new_removed_snaps).put(&self.new_purged_snaps);
        e.put(&self.new_last_up_change).put(&self.new_last_in_change);
    }

    fn encode_osd(&self, e: &mut Encoder) {
        e.put(&self.new_hb_back_up).put(&self.new_up_thru);
        e.put(&self.new_last_clean_interval).put(&self.new_lost);
        e.put(&self.new_blocklist).put(&self.old_blocklist);
        e.put(&self.new_up_cluster).put(&self.cluster_snapshot);
        e.put(&self.new_uuid).put(&self.new_xinfo).put(&self.new_hb_front_up);
        e.put(&self.encode_features);
        for ratio in [self.new_nearfull_ratio, self.new_full_ratio, self.new_backfillfull_ratio] {
            e.put(&ratio.unwrap_or(NO_RATIO));
        }
        e.put(&self.new_require_min_compat_client.unwrap_or(NO_RELEASE));
        e.put(&self.new_require_osd_release.unwrap_or(NO_RELEASE));
        e.put(&self.new_crush_node_flags).put(&self.new_device_class_flags);
    }
}

impl Decode for Incremental {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (head_crc, body) = take_outer(d)?;
        let mut b = Decoder::new(&body);
        let mut inc = b.section(NEWEST_READ, decode_client)?;
        b.section(NEWEST_READ, |d, v| decode_osd(&mut inc, d, v))?;
        let before = body.get(..b.position()).unwrap_or_default();
        let inc_crc: u32 = b.get()?;
        let after = body.get(b.position()..).unwrap_or_default();
        inc.full_crc = b.get()?;
        if inc_crc != crc32c(crc32c(head_crc, before), after) {
            return Err(b.invalid("an incremental OSDMap with a wrong checksum"));
        }
        Ok(inc)
    }
}

fn decode_client(d: &mut Decoder<'_>, v: u8) -> Result<Incremental, DecodeError> {
    check_version(d, v, CLIENT.0)?;
    let mut inc = Incremental::new(d.get()?, d.get()?);
    inc.modified = d.get()?;
    inc.new_pool_max = Some(d.get::<i64>()?).filter(|&n| n != -1);
    let flags: i32 = d.get()?;
    inc.new_flags = u32::try_from(flags).ok().map(OsdMapFlags);
    inc.fullmap = d.get()?;
    inc.crush = d.get()?;
    inc.new_max_osd = Some(d.get::<i32>()?).filter(|&n| n >= 0);
    inc.new_pools = d.get()?;
    inc.new_pool_names = d.get()?;
    inc.old_pools = d.get()?;
    inc.new_up_client = d.get()?;
    inc.new_state = d.get()?;
    inc.new_weight = d.get()?;
    inc.new_pg_temp = d.get()?;
    inc.new_primary_temp = d.get()?;
    inc.new_primary_affinity = d.get()?;
    inc.new_erasure_code_profiles = d.get()?;
    inc.old_erasure_code_profiles = d.get()?;
    inc.new_pg_upmap = d.get()?;
    inc.old_pg_upmap = d.get()?;
    inc.new_pg_upmap_items = d.get()?;
    inc.old_pg_upmap_items = d.get()?;
    inc.new_removed_snaps = d.get()?;
    inc.new_purged_snaps = d.get()?;
    inc.new_last_up_change = d.get()?;
    inc.new_last_in_change = d.get()?;
    Ok(inc)
}

fn decode_osd(inc: &mut Incremental, d: &mut Decoder<'_>, v: u8) -> Result<(), DecodeError> {
    check_version(d, v, OSD.0)?;
    inc.new_hb_back_up = d.get()?;
    inc.new_up_thru = d.get()?;
    inc.new_last_clean_interval = d.get()?;
    inc.new_lost = d.get()?;
    inc.new_blocklist = d.get()?;
    inc.old_blocklist = d.get()?;
    inc.new_up_cluster = d.get()?;
    inc.cluster_snapshot = d.get()?;
    inc.new_uuid = d.get()?;
    inc.new_xinfo = d.get()?;
    inc.new_hb_front_up = d.get()?;
    inc.encode_features = d.get()?;
    let mut ratio = || d.get::<f32>().map(|r| Some(r).filter(|&r| r >= 0.0));
    inc.new_nearfull_ratio = ratio()?;
    inc.new_full_ratio = ratio()?;
    inc.new_backfillfull_ratio = ratio()?;
    let mut release = || d.get::<Release>().map(|r| Some(r).filter(|&r| r != NO_RELEASE));
    inc.new_require_min_compat_client = release()?;
    inc.new_require_osd_release = release()?;
    inc.new_crush_node_flags = d.get()?;
    inc.new_device_class_flags = d.get()?;
    Ok(())
}

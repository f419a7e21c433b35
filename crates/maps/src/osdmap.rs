//! The map of OSDs, pools and placement (`OSDMap`).
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::error::MapError;
use crate::flags::{OsdMapFlags, OsdState, PoolFlags, Release};
use crate::osd_info::{DEFAULT_PRIMARY_AFFINITY, Osd, WEIGHT_IN};
use crate::pool::{PgPool, StringMap};
use crate::shared::Shared;
use crate::snaps::SnapSet;
use bytes::Bytes;
use crush::CrushMap;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use types::{AddrType, AddrVec, EntityAddr, Epoch, OsdId, PgId, PoolId, SnapId, UTime, Uuid};

/// OSD ids are below this; bounds the memory that bytes from outside claim.
pub const MAX_OSDS: usize = 1 << 20;

/// The OSDs of a PG, in order; [`OsdId::NONE`] is a hole.
pub type OsdList = SmallVec<[OsdId; 8]>;
/// Profiles of erasure codes by name.
pub type EcProfiles = BTreeMap<String, StringMap>;

/// One version of the cluster's map.
///
/// Per-OSD vectors all have [`OsdMap::max_osd`] entries. Copies share their large parts ([`Shared`]). The encoding is that of 16.2 with all
/// features (guide §4.1), byte for byte; later sections' unknown tails are skipped.
#[derive(Clone, Debug, PartialEq)]
pub struct OsdMap {
    /// The cluster.
    pub fsid: Uuid,
    /// The version.
    pub epoch: Epoch,
    /// When the cluster was created.
    pub created: UTime,
    /// When this version was made.
    pub modified: UTime,
    /// The pools.
    pub pools: Shared<BTreeMap<PoolId, Shared<PgPool>>>,
    /// Their names.
    pub pool_names: Shared<BTreeMap<PoolId, String>>,
    /// The highest pool id ever used; ids are never used again.
    pub pool_max: i32,
    /// Flags.
    pub flags: OsdMapFlags,
    pub(crate) states: Vec<OsdState>,
    pub(crate) weights: Vec<u32>,
    /// Empty as long as every OSD has the default.
    pub(crate) primary_affinity: Vec<u32>,
    pub(crate) osds: Shared<Vec<Shared<Osd>>>,
    /// PGs that other OSDs serve for a time.
    pub pg_temp: Shared<BTreeMap<PgId, OsdList>>,
    /// PGs that have another primary for a time.
    pub primary_temp: Shared<BTreeMap<PgId, OsdId>>,
    pub(crate) crush: Arc<CrushMap>,
    /// `crush`, encoded.
    pub(crate) crush_bytes: Bytes,
    /// Profiles of erasure codes.
    pub erasure_code_profiles: EcProfiles,
    /// PGs whose OSDs are said explicitly.
    pub pg_upmap: Shared<BTreeMap<PgId, OsdList>>,
    /// PGs in which some OSDs are exchanged for others: from, to.
    pub pg_upmap_items: Shared<BTreeMap<PgId, Vec<(OsdId, OsdId)>>>,
    /// Counts changes of the CRUSH map.
    pub crush_version: i32,
    /// Snapshots removed in just this epoch.
    pub new_removed_snaps: BTreeMap<PoolId, SnapSet>,
    /// Snapshots that were purged in just this epoch.
    pub new_purged_snaps: BTreeMap<PoolId, SnapSet>,
    /// When an OSD last went up or down.
    pub last_up_change: UTime,
    /// When an OSD last went in or out.
    pub last_in_change: UTime,
    /// Clients that may not do anything, and until when.
    pub blocklist: Shared<BTreeMap<BlocklistAddr, UTime>>,
    /// Of the last `cluster snapshot`, a feature that is gone.
    pub cluster_snapshot_epoch: Epoch,
    /// Of the last `cluster snapshot`, a feature that is gone.
    pub cluster_snapshot: String,
    /// From this fill on an OSD counts as nearly full.
    pub nearfull_ratio: f32,
    /// From this fill on an OSD takes no writes.
    pub full_ratio: f32,
    /// From this fill on an OSD takes no backfill.
    pub backfillfull_ratio: f32,
    /// Clients must be able to do what this release's could.
    pub require_min_compat_client: Release,
    /// OSDs must be of this release.
    pub require_osd_release: Release,
    /// Removed snapshots that are not purged everywhere yet.
    pub removed_snaps_queue: Shared<BTreeMap<PoolId, SnapSet>>,
    /// Flags (noup, noout, ..) of all OSDs below a CRUSH bucket.
    pub crush_node_flags: BTreeMap<i32, OsdState>,
    /// Flags (noup, noout, ..) of all OSDs of a device class.
    pub device_class_flags: BTreeMap<i32, OsdState>,
}

impl Default for OsdMap {
    fn default() -> Self {
        OsdMap {
            fsid: Uuid::NIL,
            epoch: Epoch::ZERO,
            created: UTime::ZERO,
            modified: UTime::ZERO,
            pools: Shared::default(),
            pool_names: Shared::default(),
            pool_max: 0,
            flags: OsdMapFlags::NONE,
            states: Vec::new(),
            weights: Vec::new(),
            primary_affinity: Vec::new(),
            osds: Shared::default(),
            pg_temp: Shared::default(),
            primary_temp: Shared::default(),
            crush: Arc::new(CrushMap::empty()),
            crush_bytes: denc::encode(&CrushMap::empty()),
            erasure_code_profiles: EcProfiles::new(),
            pg_upmap: Shared::default(),
            pg_upmap_items: Shared::default(),
            crush_version: 1,
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            last_up_change: UTime::ZERO,
            last_in_change: UTime::ZERO,
            blocklist: Shared::default(),
            cluster_snapshot_epoch: Epoch::ZERO,
            cluster_snapshot: String::new(),
            nearfull_ratio: 0.0,
            full_ratio: 0.0,
            backfillfull_ratio: 0.0,
            require_min_compat_client: Release::UNKNOWN,
            require_osd_release: Release::UNKNOWN,
            removed_snaps_queue: Shared::default(),
            crush_node_flags: BTreeMap::new(),
            device_class_flags: BTreeMap::new(),
        }
    }
}

/// OSDs.
impl OsdMap {
    /// OSD ids are below this.
    pub fn max_osd(&self) -> i32 {
        i32::try_from(self.osds.len()).unwrap_or(i32::MAX)
    }

    /// Makes room for OSDs below `max`, or cuts off those above (`set_max_osd`).
    pub fn set_max_osd(&mut self, max: i32) {
        let n = usize::try_from(max).unwrap_or(0);
        self.states.resize(n, OsdState::ABSENT);
        self.weights.resize(n, 0);
        self.osds.resize(n, Shared::default());
        if !self.primary_affinity.is_empty() {
            self.primary_affinity.resize(n, DEFAULT_PRIMARY_AFFINITY);
        }
    }

    /// The state of an OSD; no flags for an id beyond the map.
    pub fn state(&self, id: OsdId) -> OsdState {
        let state = id.index().and_then(|i| self.states.get(i));
        state.copied().unwrap_or_default()
    }

    /// Whether the id is in use.
    pub fn exists(&self, id: OsdId) -> bool {
        self.state(id).contains(OsdState::EXISTS)
    }

    /// Whether the OSD exists and is up.
    pub fn is_up(&self, id: OsdId) -> bool {
        self.state(id).contains(OsdState::EXISTS | OsdState::UP)
    }

    /// Whether the OSD is not up.
    pub fn is_down(&self, id: OsdId) -> bool {
        !self.is_up(id)
    }

    /// Whether the OSD exists and is not out.
    pub fn is_in(&self, id: OsdId) -> bool {
        self.exists(id) && self.weight(id) > 0
    }

    /// Whether the OSD is out or does not exist.
    pub fn is_out(&self, id: OsdId) -> bool {
        !self.is_in(id)
    }

    /// The 16.16 weight of an OSD: [`WEIGHT_IN`], 0 for out, between for `osd reweight`.
    pub fn weight(&self, id: OsdId) -> u32 {
        let weight = id.index().and_then(|i| self.weights.get(i));
        weight.copied().unwrap_or(0)
    }

    /// All weights by id, as CRUSH wants them.
    pub fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// Sets a weight (`set_weight`): above 0 the OSD exists, and is neither new nor out by time.
    pub fn set_weight(&mut self, id: OsdId, weight: u32) {
        let Some(i) = id.index() else { return };
        if let (Some(w), Some(state), Some(osd)) =
            (self.weights.get_mut(i), self.states.get_mut(i), self.osds.get_mut(i))
        {
            *w = weight;
            if weight > 0 {
                let gone = OsdState::AUTOOUT | OsdState::NEW;
                *state = state.with(OsdState::EXISTS).without(gone);
                osd.xinfo.old_weight = 0;
            }
        }
    }

    /// How readily an OSD becomes primary, 16.16.
    pub fn primary_affinity(&self, id: OsdId) -> u32 {
        let affinity = id.index().and_then(|i| self.primary_affinity.get(i));
        affinity.copied().unwrap_or(DEFAULT_PRIMARY_AFFINITY)
    }

    /// Sets it; the first time for any OSD, every OSD gets an entry.
    pub fn set_primary_affinity(&mut self, id: OsdId, affinity: u32) {
        if self.primary_affinity.is_empty() {
            self.primary_affinity = vec![DEFAULT_PRIMARY_AFFINITY; self.osds.len()];
        }
        if let Some(a) = id.index().and_then(|i| self.primary_affinity.get_mut(i)) {
            *a = affinity;
        }
    }

    /// Addresses, epochs and uuid of an OSD below [`OsdMap::max_osd`].
    pub fn osd(&self, id: OsdId) -> Option<&Osd> {
        self.osds.get(id.index()?).map(|osd| &**osd)
    }

    pub(crate) fn osd_mut(&mut self, id: OsdId) -> Option<&mut Osd> {
        self.osds.get_mut(id.index()?).map(|osd| &mut **osd)
    }

    pub(crate) fn state_mut(&mut self, id: OsdId) -> Option<&mut OsdState> {
        self.states.get_mut(id.index()?)
    }

    /// Where clients reach an OSD that is up.
    pub fn client_addrs(&self, id: OsdId) -> Option<&AddrVec> {
        let up = self.osd(id).filter(|_| self.is_up(id))?;
        Some(&up.client_addrs)
    }

    /// Where OSDs reach an OSD that is up.
    pub fn cluster_addrs(&self, id: OsdId) -> Option<&AddrVec> {
        let up = self.osd(id).filter(|_| self.is_up(id))?;
        Some(&up.cluster_addrs)
    }

    /// The OSD that has an address, if it is up (`find_osd_on_ip`, `identify_osd`).
    pub fn osd_by_addr(&self, addr: &EntityAddr) -> Option<OsdId> {
        self.up_osds().find(|&id| {
            self.osd(id).is_some_and(|osd| {
                osd.client_addrs.0.contains(addr) || osd.cluster_addrs.0.contains(addr)
            })
        })
    }

    /// The OSD with a uuid.
    pub fn osd_by_uuid(&self, uuid: &Uuid) -> Option<OsdId> {
        let has = |&id: &OsdId| self.osd(id).is_some_and(|osd| osd.uuid == *uuid);
        self.existing_osds().find(has)
    }

    /// All ids below [`OsdMap::max_osd`].
    pub fn osd_ids(&self) -> impl Iterator<Item = OsdId> + use<> {
        (0..self.max_osd()).map(OsdId)
    }

    /// The OSDs that exist, ascending.
    pub fn existing_osds(&self) -> impl Iterator<Item = OsdId> {
        self.osd_ids().filter(|&id| self.exists(id))
    }

    /// The OSDs that are up, ascending.
    pub fn up_osds(&self) -> impl Iterator<Item = OsdId> {
        self.osd_ids().filter(|&id| self.is_up(id))
    }

    /// The OSDs that are in, ascending.
    pub fn in_osds(&self) -> impl Iterator<Item = OsdId> {
        self.osd_ids().filter(|&id| self.is_in(id))
    }

    /// The flags of an OSD (noup, nodown, noin, noout) together with those of its device class and
    /// of every bucket above it (`get_osd_crush_node_flags`, `is_noout`).
    pub fn effective_flags(&self, id: OsdId) -> OsdState {
        let mut flags = self.state(id);
        if let Some(class) = self.crush.item_class(id.0)
            && let Some(class) = self.crush.class_id(class)
        {
            flags |= self.device_class_flags.get(&class).copied().unwrap_or_default();
        }
        if !self.crush_node_flags.is_empty() {
            for bucket in self.crush.ancestors(id.0) {
                let of_bucket = self.crush_node_flags.get(&bucket.id());
                flags |= of_bucket.copied().unwrap_or_default();
            }
        }
        flags
    }
}

/// Pools, CRUSH, blocklist.
impl OsdMap {
    /// A pool.
    pub fn pool(&self, id: PoolId) -> Option<&PgPool> {
        self.pools.get(&id).map(|pool| &**pool)
    }

    /// A pool's name.
    pub fn pool_name(&self, id: PoolId) -> Option<&str> {
        self.pool_names.get(&id).map(String::as_str)
    }

    /// The pool of a name.
    pub fn pool_by_name(&self, name: &str) -> Option<PoolId> {
        let found = self.pool_names.iter().find(|(_, n)| n.as_str() == name);
        found.map(|(&id, _)| id)
    }

    /// Whether a PG exists (`pg_exists`).
    pub fn pg_exists(&self, pg: PgId) -> bool {
        self.pool(pg.pool).is_some_and(|pool| pg.seed < pool.pg_num)
    }

    /// The CRUSH map.
    pub fn crush(&self) -> &Arc<CrushMap> {
        &self.crush
    }

    /// The CRUSH map, encoded.
    pub fn crush_bytes(&self) -> &Bytes {
        &self.crush_bytes
    }

    /// Puts another CRUSH map in place. The version is not changed.
    pub fn set_crush(&mut self, crush: Arc<CrushMap>) {
        self.crush_bytes = denc::encode(&*crush);
        self.crush = crush;
    }

    /// Whether a snapshot was removed and is not purged everywhere yet (`in_removed_snaps_queue`).
    pub fn in_removed_snaps_queue(&self, pool: PoolId, snap: SnapId) -> bool {
        let queue = self.removed_snaps_queue.get(&pool);
        queue.is_some_and(|snaps| snaps.contains(snap))
    }

    /// Whether a client may do nothing: its address is listed, or its whole host.
    pub fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        if self.blocklist.is_empty() {
            return false;
        }
        let exact = BlocklistAddr::new(*addr);
        let listed = |a: &BlocklistAddr| self.blocklist.contains_key(a);
        listed(&exact) || addr.ip().is_some_and(|ip| listed(&BlocklistAddr::host(ip)))
    }

    /// Whether any of a client's addresses is blocklisted.
    pub fn any_blocklisted(&self, addrs: &AddrVec) -> bool {
        addrs.0.iter().any(|addr| self.is_blocklisted(addr))
    }
}

/// A blocklisted address: always of type ANY; port and nonce 0 stand for the whole host.
///
/// Ordered as Ceph orders addresses, which is by their bytes in memory, so that the encoding is
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlocklistAddr(EntityAddr);

impl BlocklistAddr {
    /// The entry for one instance of a client.
    pub fn new(addr: EntityAddr) -> Self {
        BlocklistAddr(addr.with_kind(AddrType::ANY))
    }

    /// The entry for a whole host.
    pub fn host(ip: IpAddr) -> Self {
        BlocklistAddr(EntityAddr {
            kind: AddrType::ANY,
            nonce: 0,
            sock: Some(SocketAddr::new(ip, 0)),
        })
    }

    /// The address.
    pub fn addr(&self) -> &EntityAddr {
        &self.0
    }

    /// What Ceph compares: type and nonce as they lie in memory, then the socket address.
    fn memory(&self) -> ([u8; 8], SmallVec<[u8; 28]>) {
        let [a, b, c, d] = self.0.kind.0.to_le_bytes();
        let [e, f, g, h] = self.0.nonce.to_le_bytes();
        let mut sock = SmallVec::new();
        match self.0.sock {
            None => {}
            Some(SocketAddr::V4(s)) => {
                sock.extend_from_slice(&[2, 0]);
                sock.extend_from_slice(&s.port().to_be_bytes());
                sock.extend_from_slice(&s.ip().octets());
            }
            Some(SocketAddr::V6(s)) => {
                sock.extend_from_slice(&[10, 0]);
                sock.extend_from_slice(&s.port().to_be_bytes());
                sock.extend_from_slice(&s.flowinfo().to_le_bytes());
                sock.extend_from_slice(&s.ip().octets());
                sock.extend_from_slice(&s.scope_id().to_le_bytes());
            }
        }
        ([a, b, c, d, e, f, g, h], sock)
    }
}

impl Ord for BlocklistAddr {
    fn cmp(&self, other: &Self) -> Ordering {
        self.memory().cmp(&other.memory())
    }
}

impl PartialOrd for BlocklistAddr {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Encode for BlocklistAddr {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.0);
    }
}

impl Decode for BlocklistAddr {
    /// Keeps the type that stands there, so that old maps are written as they were.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.get().map(BlocklistAddr)
    }
}

/// Fullness and requirements.
impl OsdMap {
    /// Whether a pool takes no writes but those that say they may: it is full or over its quota,
    /// or the whole cluster is full.
    pub fn is_full(&self, pool: PoolId) -> bool {
        let full = PoolFlags::FULL | PoolFlags::FULL_QUOTA;
        self.flags.contains(OsdMapFlags::FULL)
            || self.pool(pool).is_some_and(|pool| pool.flags.intersects(full))
    }

    /// Whether clients hold their reads.
    pub fn reads_paused(&self) -> bool {
        self.flags.contains(OsdMapFlags::PAUSERD)
    }

    /// Whether clients hold their writes to a pool (`target_should_be_paused`); those with
    /// FULL_TRY or FULL_FORCE go through when it is only full.
    pub fn writes_paused(&self, pool: PoolId) -> bool {
        self.flags.contains(OsdMapFlags::PAUSEWR) || self.is_full(pool)
    }

    /// The oldest release of clients that can use this map (`get_min_compat_client`), whatever
    /// [`OsdMap::require_min_compat_client`] says.
    pub fn min_compat_client(&self) -> Release {
        let upmaps = !self.pg_upmap.is_empty() || !self.pg_upmap_items.is_empty();
        if upmaps || self.crush.has_incompat_choose_args() {
            return Release::LUMINOUS;
        }
        let crush = Release::from_name(self.crush.min_required_version());
        let crush = crush.unwrap_or(Release::UNKNOWN);
        let firefly = Release(6);
        let erasure = self.pools.values().any(|pool| pool.is_erasure());
        let rules = self.crush.has_v2_rules() || self.crush.has_v3_rules();
        let affinity = self.primary_affinity.iter().any(|&a| a != DEFAULT_PRIMARY_AFFINITY);
        if erasure || rules || affinity { crush.max(firefly) } else { crush }
    }

    /// Sets the three ratios of a new map.
    ///
    /// # Errors
    /// When they are not in order: nearfull, backfillfull, full, none above 1.
    pub fn check_ratios(&self) -> Result<(), MapError> {
        let (near, back, full) = (self.nearfull_ratio, self.backfillfull_ratio, self.full_ratio);
        if 0.0 <= near && near <= back && back <= full && full <= 1.0 {
            Ok(())
        } else {
            Err(MapError::BadRatios { near, back, full })
        }
    }

    /// Whether every OSD that is in has full weight; then CRUSH rejects none by chance.
    pub fn all_weights_full(&self) -> bool {
        self.weights.iter().all(|&w| w == WEIGHT_IN || w == 0)
    }
}

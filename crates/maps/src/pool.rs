//! Pools (`pg_pool_t`).
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::flags::PoolFlags;
use crate::pgid::{pg_num_mask, stable_mod};
use crate::pool_opts::PoolOpts;
use crate::snaps::SnapSet;
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use types::{Epoch, Eversion, PgId, PoolId, SnapId, UTime};

/// How a pool keeps its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct PoolType(pub u8);

impl PoolType {
    /// Copies.
    pub const REPLICATED: PoolType = PoolType(crush::RULE_REPLICATED);
    /// Erasure-coded shards.
    pub const ERASURE: PoolType = PoolType(crush::RULE_ERASURE);

    /// The word Ceph prints.
    pub fn name(self) -> &'static str {
        match self {
            PoolType::REPLICATED => "replicated",
            PoolType::ERASURE => "erasure",
            _ => "???",
        }
    }
}

/// What the autoscaler does with a pool's `pg_num`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct PgAutoscaleMode(pub u8);

impl PgAutoscaleMode {
    /// Nothing.
    pub const OFF: PgAutoscaleMode = PgAutoscaleMode(0);
    /// It warns.
    pub const WARN: PgAutoscaleMode = PgAutoscaleMode(1);
    /// It changes it.
    pub const ON: PgAutoscaleMode = PgAutoscaleMode(2);

    /// The word Ceph prints.
    pub fn name(self) -> &'static str {
        match self {
            PgAutoscaleMode::OFF => "off",
            PgAutoscaleMode::WARN => "warn",
            PgAutoscaleMode::ON => "on",
            _ => "???",
        }
    }

    /// The mode of a word.
    pub fn from_name(name: &str) -> Option<Self> {
        let modes = [Self::OFF, Self::WARN, Self::ON];
        modes.into_iter().find(|mode| mode.name() == name)
    }
}

/// A snapshot of a whole pool: V(2,2){u64 id, utime stamp, str name}.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 2)]
pub struct PoolSnap {
    /// Its id.
    pub id: SnapId,
    /// When it was made.
    pub stamp: UTime,
    /// Its name.
    pub name: String,
}

/// What the last merge of two PGs left behind: V(1,1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct PgMergeMeta {
    /// The PG that was merged into its parent.
    pub source_pgid: PgId,
    /// When both were ready.
    pub ready_epoch: Epoch,
    /// `last_epoch_started` of both.
    pub last_epoch_started: Epoch,
    /// `last_epoch_clean` of both.
    pub last_epoch_clean: Epoch,
    /// The version of the source.
    pub source_version: Eversion,
    /// The version of the target.
    pub target_version: Eversion,
}

/// Parameters of hit sets, which only cache tiers have: V(1,1){u8 kind, ..}.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HitSetParams {
    /// 0 is none.
    pub kind: u8,
    /// What the kind adds; kept as it came.
    pub rest: Bytes,
}

impl Encode for HitSetParams {
    fn encode(&self, e: &mut Encoder) {
        e.section(1, 1, |e| {
            e.put(&self.kind);
            e.put_raw(&self.rest);
        });
    }
}

impl Decode for HitSetParams {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(1, |d, _| Ok(HitSetParams { kind: d.get()?, rest: d.take(d.remaining())? }))
    }
}

/// A field that is not used any more: written as zeros, read as whatever stands there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unused<const BYTES: usize>;

impl<const BYTES: usize> Encode for Unused<BYTES> {
    fn encode(&self, e: &mut Encoder) {
        e.put_raw(&[0; BYTES]);
    }
}

impl<const BYTES: usize> Decode for Unused<BYTES> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.skip(BYTES).map(|()| Unused)
    }
}

/// A map from text to text: properties, profiles, application metadata.
pub type StringMap = BTreeMap<String, String>;

/// A pool: V(29,5), the fields in the order of the wire (guide §4.3).
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[denc(v = 29, compat = 5)]
pub struct PgPool {
    /// Copies or shards.
    pub kind: PoolType,
    /// How many copies or shards.
    pub size: u8,
    /// The ruleset of its CRUSH rule.
    pub crush_rule: u8,
    /// How names are hashed; 2 is rjenkins, the only one used.
    pub object_hash: u8,
    /// How many PGs it has.
    pub pg_num: u32,
    /// How many different placements its PGs have.
    pub pgp_num: u32,
    #[doc(hidden)]
    pub unused_lpg: Unused<8>,
    /// The epoch that last changed the pool; set when an incremental is applied.
    pub last_change: Epoch,
    /// The newest snapshot id ever given out.
    pub snap_seq: SnapId,
    /// The epoch that last changed its snapshots.
    pub snap_epoch: Epoch,
    /// The snapshots of the whole pool.
    pub snaps: BTreeMap<SnapId, PoolSnap>,
    /// Removed snapshots, in clusters before Octopus.
    pub removed_snaps: SnapSet,
    /// An owner, of a feature that is gone; 0.
    pub auid: u64,
    /// Flags.
    pub flags: PoolFlags,
    #[doc(hidden)]
    pub unused_crash_replay: Unused<4>,
    /// As many copies or shards must be there for a PG to work.
    pub min_size: u8,
    /// Bytes the pool may hold; 0 for no limit.
    pub quota_max_bytes: u64,
    /// Objects the pool may hold; 0 for no limit.
    pub quota_max_objects: u64,
    /// Pools that are tiers of this one.
    pub tiers: BTreeSet<PoolId>,
    /// The pool this is a tier of; -1 for none.
    pub tier_of: PoolId,
    /// 0 is none.
    pub cache_mode: u8,
    /// The tier that reads go to; -1 for none.
    pub read_tier: PoolId,
    /// The tier that writes go to; -1 for none.
    pub write_tier: PoolId,
    /// Not used by anything.
    pub properties: StringMap,
    /// Cache tiers only.
    pub hit_set_params: HitSetParams,
    /// Cache tiers only, in seconds.
    pub hit_set_period: u32,
    /// Cache tiers only.
    pub hit_set_count: u32,
    /// Bytes of data in one stripe of an erasure-coded pool; else 0.
    pub stripe_width: u32,
    /// Cache tiers only.
    pub target_max_bytes: u64,
    /// Cache tiers only.
    pub target_max_objects: u64,
    /// Cache tiers only, in millionths.
    pub cache_target_dirty_ratio_micro: u32,
    /// Cache tiers only, in millionths.
    pub cache_target_full_ratio_micro: u32,
    /// Cache tiers only, in seconds.
    pub cache_min_flush_age: u32,
    /// Cache tiers only, in seconds.
    pub cache_min_evict_age: u32,
    /// The profile an erasure-coded pool was made with; else empty.
    pub erasure_code_profile: String,
    /// For clients before Luminous, see `last_force_op_resend`.
    pub last_force_op_resend_preluminous: Epoch,
    /// Cache tiers only.
    pub min_read_recency_for_promote: u32,
    /// What was said when the pool was created.
    pub expected_num_objects: u64,
    /// Cache tiers only, in millionths.
    pub cache_target_dirty_high_ratio_micro: u32,
    /// Cache tiers only.
    pub min_write_recency_for_promote: u32,
    /// Cache tiers only.
    pub use_gmt_hitset: bool,
    /// Reads of an erasure-coded pool ask all shards.
    pub fast_read: bool,
    /// Cache tiers only.
    pub hit_set_grade_decay_rate: u32,
    /// Cache tiers only.
    pub hit_set_search_last_n: u32,
    /// Options that most pools do not have.
    pub opts: PoolOpts,
    /// For clients before Nautilus, see `last_force_op_resend`.
    pub last_force_op_resend_prenautilus: Epoch,
    /// Which applications use the pool, e.g. `{"rbd": {}}`.
    pub application_metadata: BTreeMap<String, StringMap>,
    /// When it was created.
    pub create_time: UTime,
    /// What `pg_num` shall become.
    pub pg_num_target: u32,
    /// What `pgp_num` shall become.
    pub pgp_num_target: u32,
    /// `pg_num` while a merge is prepared: already without the PG to be merged.
    pub pg_num_pending: u32,
    #[doc(hidden)]
    pub unused_merge: Unused<8>,
    /// Clients resend ops they sent before this epoch.
    pub last_force_op_resend: Epoch,
    /// What the autoscaler does.
    pub pg_autoscale_mode: PgAutoscaleMode,
    /// What the last merge left behind.
    pub last_pg_merge_meta: PgMergeMeta,
}

/// `object_hash`: Bob Jenkins' hash (`CEPH_STR_HASH_RJENKINS`).
pub const OBJECT_HASH_RJENKINS: u8 = 2;
/// Separates the namespace from the name in what is hashed.
const NSPACE_SEPARATOR: u8 = 0x1f;
/// "No pool" in the tier fields.
const NO_POOL: PoolId = PoolId(-1);

impl Default for PgPool {
    fn default() -> Self {
        PgPool::new(PoolType::REPLICATED, 0, 0, 0, 0)
    }
}

impl PgPool {
    /// A pool as a new 16.2 cluster makes it. Only what is given is set; the caller sets flags,
    /// times and the profile.
    pub fn new(kind: PoolType, size: u8, min_size: u8, crush_rule: u8, pg_num: u32) -> Self {
        PgPool {
            kind,
            size,
            crush_rule,
            object_hash: OBJECT_HASH_RJENKINS,
            pg_num,
            pgp_num: pg_num,
            unused_lpg: Unused,
            last_change: Epoch::ZERO,
            snap_seq: SnapId(0),
            snap_epoch: Epoch::ZERO,
            snaps: BTreeMap::new(),
            removed_snaps: SnapSet::new(),
            auid: 0,
            flags: PoolFlags::HASHPSPOOL,
            unused_crash_replay: Unused,
            min_size,
            quota_max_bytes: 0,
            quota_max_objects: 0,
            tiers: BTreeSet::new(),
            tier_of: NO_POOL,
            cache_mode: 0,
            read_tier: NO_POOL,
            write_tier: NO_POOL,
            properties: StringMap::new(),
            hit_set_params: HitSetParams::default(),
            hit_set_period: 0,
            hit_set_count: 0,
            stripe_width: 0,
            target_max_bytes: 0,
            target_max_objects: 0,
            cache_target_dirty_ratio_micro: 400_000,
            cache_target_full_ratio_micro: 800_000,
            cache_min_flush_age: 0,
            cache_min_evict_age: 0,
            erasure_code_profile: String::new(),
            last_force_op_resend_preluminous: Epoch::ZERO,
            min_read_recency_for_promote: 0,
            expected_num_objects: 0,
            cache_target_dirty_high_ratio_micro: 600_000,
            min_write_recency_for_promote: 0,
            use_gmt_hitset: true,
            fast_read: false,
            hit_set_grade_decay_rate: 0,
            hit_set_search_last_n: 0,
            opts: PoolOpts::default(),
            last_force_op_resend_prenautilus: Epoch::ZERO,
            application_metadata: BTreeMap::new(),
            create_time: UTime::ZERO,
            pg_num_target: pg_num,
            pgp_num_target: pg_num,
            pg_num_pending: pg_num,
            unused_merge: Unused,
            last_force_op_resend: Epoch::ZERO,
            pg_autoscale_mode: PgAutoscaleMode::OFF,
            last_pg_merge_meta: PgMergeMeta::default(),
        }
    }

    /// Whether it is erasure-coded.
    pub fn is_erasure(&self) -> bool {
        self.kind == PoolType::ERASURE
    }

    /// Whether OSDs move up in a mapping when one before them is missing: yes for copies, no for
    /// shards, which are different from each other (`can_shift_osds`).
    pub fn can_shift(&self) -> bool {
        !self.is_erasure()
    }

    /// Whether any write must be a multiple of the stripe and at the end of an object
    /// (`requires_aligned_append`).
    pub fn requires_aligned_append(&self) -> bool {
        self.is_erasure() && !self.flags.contains(PoolFlags::EC_OVERWRITES)
    }

    /// Whether omap is possible: not on shards (`supports_omap`).
    pub fn supports_omap(&self) -> bool {
        !self.is_erasure()
    }

    /// Whether it is a tier or has one.
    pub fn has_tiers(&self) -> bool {
        !self.tiers.is_empty() || self.tier_of != NO_POOL
    }

    /// All PGs, in the order of their seeds.
    pub fn pgs(&self, pool: PoolId) -> impl Iterator<Item = PgId> {
        (0..self.pg_num).map(move |seed| PgId::new(pool, seed))
    }

    /// Whether snapshots are of the whole pool (`is_pool_snaps_mode`).
    pub fn is_pool_snaps_mode(&self) -> bool {
        self.flags.contains(PoolFlags::POOL_SNAPS)
    }

    /// Whether clients make snapshots by themselves (`is_unmanaged_snaps_mode`).
    pub fn is_selfmanaged_snaps_mode(&self) -> bool {
        self.flags.contains(PoolFlags::SELFMANAGED_SNAPS)
    }

    /// Whether a snapshot does not exist, by what the pool itself says: in a pool with snapshots
    /// of its own, any that is not listed; else one that an old cluster removed
    /// (`is_removed_snap`). What was removed since then stands in the map's queue.
    pub fn is_removed_snap(&self, snap: SnapId) -> bool {
        if self.is_pool_snaps_mode() {
            snap <= self.snap_seq && !self.snaps.contains_key(&snap)
        } else {
            self.removed_snaps.contains(snap)
        }
    }

    /// The pool snapshot of a name.
    pub fn snap_by_name(&self, name: &str) -> Option<&PoolSnap> {
        self.snaps.values().find(|snap| snap.name == name)
    }

    /// The snapshot context that writes to a pool with its own snapshots get: `snap_seq` and the
    /// snapshots, newest first (`get_snap_context`).
    pub fn snap_context(&self) -> (SnapId, SmallVec<[SnapId; 2]>) {
        (self.snap_seq, self.snaps.keys().rev().copied().collect())
    }

    /// The raw 32-bit hash of a name, which chooses the PG (`hash_key`). `key` is the locator key;
    /// empty means that the name counts.
    pub fn hash_key(&self, nspace: &[u8], key: &[u8], name: &[u8]) -> u32 {
        let word = if key.is_empty() { name } else { key };
        if nspace.is_empty() {
            return crush::str_hash_rjenkins(word);
        }
        let mut hashed: SmallVec<[u8; 128]> = SmallVec::from_slice(nspace);
        hashed.push(NSPACE_SEPARATOR);
        hashed.extend_from_slice(word);
        crush::str_hash_rjenkins(&hashed)
    }

    /// The PG a raw hash belongs to (`raw_pg_to_pg`).
    pub fn raw_pg_to_pg(&self, raw: PgId) -> PgId {
        let seed = stable_mod(raw.seed, self.pg_num, pg_num_mask(self.pg_num));
        PgId::new(raw.pool, seed)
    }

    /// The number that CRUSH places a PG by (`raw_pg_to_pps`).
    pub fn raw_pg_to_pps(&self, raw: PgId) -> u32 {
        let seed = stable_mod(raw.seed, self.pgp_num, pg_num_mask(self.pgp_num));
        let pool = raw.pool.0 as u32;
        if self.flags.contains(PoolFlags::HASHPSPOOL) {
            crush::hash2(seed, pool)
        } else {
            seed.wrapping_add(pool)
        }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn pool_snapshots() {
        let mut pool = PgPool::new(PoolType::REPLICATED, 3, 2, 0, 8);
        pool.flags |= PoolFlags::POOL_SNAPS;
        for id in [1, 3] {
            let id = SnapId(id);
            let name = format!("s{id}");
            pool.snaps.insert(id, PoolSnap { id, name, ..PoolSnap::default() });
        }
        pool.snap_seq = SnapId(4);
        let (seq, snaps) = pool.snap_context();
        assert_eq!((seq, snaps.as_slice()), (SnapId(4), &[SnapId(3), SnapId(1)][..]));
        assert!(pool.is_removed_snap(SnapId(2)) && !pool.is_removed_snap(SnapId(3)));
        assert!(!pool.is_removed_snap(SnapId(5)), "not given out yet");
        assert_eq!(pool.snap_by_name("s3").map(|s| s.id), Some(SnapId(3)));
    }
}

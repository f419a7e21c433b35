//! Statistics of pools (`osd/osd_types.h`).

use denc::{Decode, DecodeError, Decoder, Encode, Encoder};

macro_rules! counters {
    ($name:ident, V($v:literal, $compat:literal), $doc:literal, { $($field:ident: $t:ty,)* }) => {
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
        #[denc(v = $v, compat = $compat)]
        pub struct $name {
            $(#[doc = concat!("`", stringify!($field), "`")] pub $field: $t,)*
        }
    };
}

counters!(ObjectStatSum, V(20, 14), "object_stat_sum_t V(20,14): what the objects of a PG or pool \
    add up to. Field names are Ceph's; `_kb` is KiB.", {
    num_bytes: i64,
    num_objects: i64,
    num_object_clones: i64,
    num_object_copies: i64,
    num_objects_missing_on_primary: i64,
    num_objects_degraded: i64,
    num_objects_unfound: i64,
    num_rd: i64,
    num_rd_kb: i64,
    num_wr: i64,
    num_wr_kb: i64,
    num_scrub_errors: i64,
    num_objects_recovered: i64,
    num_bytes_recovered: i64,
    num_keys_recovered: i64,
    num_shallow_scrub_errors: i64,
    num_deep_scrub_errors: i64,
    num_objects_dirty: i64,
    num_whiteouts: i64,
    num_objects_omap: i64,
    num_objects_hit_set_archive: i64,
    num_objects_misplaced: i64,
    num_bytes_hit_set_archive: i64,
    num_flush: i64,
    num_flush_kb: i64,
    num_evict: i64,
    num_evict_kb: i64,
    num_promote: i64,
    num_flush_mode_high: i32,
    num_flush_mode_low: i32,
    num_evict_mode_some: i32,
    num_evict_mode_full: i32,
    num_objects_pinned: i64,
    num_objects_missing: i64,
    num_legacy_snapsets: i64,
    num_large_omap_objects: i64,
    num_objects_manifest: i64,
    num_omap_bytes: i64,
    num_omap_keys: i64,
    num_objects_repaired: i64,
});

counters!(StoreStatfs, V(1, 1), "store_statfs_t V(1,1): space of a store, bytes.", {
    total: i64,
    available: i64,
    internally_reserved: i64,
    allocated: i64,
    data_stored: i64,
    data_compressed: i64,
    data_compressed_allocated: i64,
    data_compressed_original: i64,
    omap_allocated: i64,
    internal_metadata: i64,
});

/// object_stat_collection_t V(2,2): `object_stat_sum_t, u32 0` (categories, no longer used).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectStatCollection {
    /// The sums.
    pub sum: ObjectStatSum,
}

impl Encode for ObjectStatCollection {
    fn encode(&self, e: &mut Encoder) {
        e.section(2, 2, |e| {
            e.put(&self.sum).put(&0u32);
        });
    }
}

impl Decode for ObjectStatCollection {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(2, |d, _| Ok(ObjectStatCollection { sum: d.get()? }))
    }
}

/// pool_stat_t V(7,5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 7, compat = 5)]
pub struct PoolStat {
    /// What the objects add up to.
    pub stats: ObjectStatCollection,
    /// Log entries.
    pub log_size: i64,
    /// Log entries on disk.
    pub ondisk_log_size: i64,
    /// PG copies up.
    pub up: i32,
    /// PG copies acting.
    pub acting: i32,
    /// Space used on the OSDs.
    #[denc(since = 7)]
    pub store_stats: StoreStatfs,
    /// How many OSDs reported [`PoolStat::store_stats`].
    #[denc(since = 7)]
    pub num_store_stats: u32,
}

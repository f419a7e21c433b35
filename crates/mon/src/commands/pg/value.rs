//! Statistics of pools and OSDs as JSON, with Ceph's field names in Ceph's order.

use crate::cluster::Cluster;
use crate::pgmap::{OsdStat, OsdSum, PgEntry};
use pg::scrub::ScrubRecord;
use serde_json::{Map, Value, json};
use types::{OsdId, PgId, PoolId, UTime};
use wire::msg::{ObjectStatSum, PoolStat, StoreStatfs};

/// `object_stat_sum_t`
pub(super) fn sum_fields(s: &ObjectStatSum) -> [(&'static str, i64); 40] {
    [
        ("num_bytes", s.num_bytes),
        ("num_objects", s.num_objects),
        ("num_object_clones", s.num_object_clones),
        ("num_object_copies", s.num_object_copies),
        ("num_objects_missing_on_primary", s.num_objects_missing_on_primary),
        ("num_objects_missing", s.num_objects_missing),
        ("num_objects_degraded", s.num_objects_degraded),
        ("num_objects_misplaced", s.num_objects_misplaced),
        ("num_objects_unfound", s.num_objects_unfound),
        ("num_objects_dirty", s.num_objects_dirty),
        ("num_whiteouts", s.num_whiteouts),
        ("num_read", s.num_rd),
        ("num_read_kb", s.num_rd_kb),
        ("num_write", s.num_wr),
        ("num_write_kb", s.num_wr_kb),
        ("num_scrub_errors", s.num_scrub_errors),
        ("num_shallow_scrub_errors", s.num_shallow_scrub_errors),
        ("num_deep_scrub_errors", s.num_deep_scrub_errors),
        ("num_objects_recovered", s.num_objects_recovered),
        ("num_bytes_recovered", s.num_bytes_recovered),
        ("num_keys_recovered", s.num_keys_recovered),
        ("num_objects_omap", s.num_objects_omap),
        ("num_objects_hit_set_archive", s.num_objects_hit_set_archive),
        ("num_bytes_hit_set_archive", s.num_bytes_hit_set_archive),
        ("num_flush", s.num_flush),
        ("num_flush_kb", s.num_flush_kb),
        ("num_evict", s.num_evict),
        ("num_evict_kb", s.num_evict_kb),
        ("num_promote", s.num_promote),
        ("num_flush_mode_high", s.num_flush_mode_high.into()),
        ("num_flush_mode_low", s.num_flush_mode_low.into()),
        ("num_evict_mode_some", s.num_evict_mode_some.into()),
        ("num_evict_mode_full", s.num_evict_mode_full.into()),
        ("num_objects_pinned", s.num_objects_pinned),
        ("num_legacy_snapsets", s.num_legacy_snapsets),
        ("num_large_omap_objects", s.num_large_omap_objects),
        ("num_objects_manifest", s.num_objects_manifest),
        ("num_omap_bytes", s.num_omap_bytes),
        ("num_omap_keys", s.num_omap_keys),
        ("num_objects_repaired", s.num_objects_repaired),
    ]
}

fn sum_json(s: &ObjectStatSum) -> Value {
    sum_fields(s).into_iter().map(|(name, n)| (name.to_owned(), Value::from(n))).collect()
}

/// `store_statfs_t`
fn statfs_json(s: &StoreStatfs) -> Map<String, Value> {
    let fields = [
        ("total", s.total),
        ("available", s.available),
        ("internally_reserved", s.internally_reserved),
        ("allocated", s.allocated),
        ("data_stored", s.data_stored),
        ("data_compressed", s.data_compressed),
        ("data_compressed_allocated", s.data_compressed_allocated),
        ("data_compressed_original", s.data_compressed_original),
        ("omap_allocated", s.omap_allocated),
        ("internal_metadata", s.internal_metadata),
    ];
    fields.into_iter().map(|(name, n)| (name.to_owned(), Value::from(n))).collect()
}

/// `pool_stat_t`
pub(super) fn pool_stat_json(s: &PoolStat) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("stat_sum".into(), sum_json(&s.stats.sum));
    out.insert("store_stats".into(), statfs_json(&s.store_stats).into());
    out.insert("log_size".into(), s.log_size.into());
    out.insert("ondisk_log_size".into(), s.ondisk_log_size.into());
    out.insert("up".into(), s.up.into());
    out.insert("acting".into(), s.acting.into());
    out.insert("num_store_stats".into(), s.num_store_stats.into());
    out
}

/// `{"poolid": 2, "num_pg": 16, ..}`
pub(super) fn pools_json(c: &Cluster) -> Value {
    let sums = c.pgmap.sums(c.map());
    let pool = |(id, stat): (&PoolId, &PoolStat)| {
        let mut out = Map::new();
        out.insert("poolid".into(), id.0.into());
        out.insert("num_pg".into(), c.map().pool(*id).map_or(0, |p| p.pg_num).into());
        out.extend(pool_stat_json(stat));
        Value::Object(out)
    };
    sums.pools.iter().rev().map(pool).collect()
}

/// What is known of a PG's scrubs. Of one that never was, Ceph shows when the PG was made.
pub(crate) fn scrubs(c: &Cluster, pgid: PgId, entry: Option<&PgEntry>) -> ScrubRecord {
    let made = c.map().pool(pgid.pool).map_or(UTime::ZERO, |p| p.create_time);
    let mut record = entry.map(|e| e.stat.scrub).unwrap_or_default();
    let stamps = [
        &mut record.last_scrub_stamp,
        &mut record.last_deep_scrub_stamp,
        &mut record.last_clean_scrub_stamp,
    ];
    stamps.into_iter().filter(|s| s.is_zero()).for_each(|s| *s = made);
    record
}

/// The figures of one OSD, or of all.
pub(super) struct Osds {
    pub up_from: u32,
    pub seq: u64,
    pub pgs: u64,
    pub sum: OsdSum,
    pub peers: Vec<i32>,
    pub latency_us: u64,
}

impl Osds {
    pub fn one(c: &Cluster, id: OsdId, stat: &OsdStat) -> Self {
        // Every OSD that is up hears of every other one through the mon.
        let peers = c.map().up_osds().filter(|o| *o != id).map(|o| o.0).collect();
        Osds {
            up_from: stat.up_from.0,
            seq: peer::stat_seq(stat.up_from, stat.seq),
            pgs: stat.pgs_held.into(),
            sum: c.pgmap.osd_sum([id]),
            peers,
            latency_us: stat.commit_latency_us.into(),
        }
    }

    pub fn all(c: &Cluster) -> Self {
        let each = || c.pgmap.osds().map(|(_, s)| s);
        Osds {
            up_from: 0,
            seq: 0,
            pgs: each().map(|s| u64::from(s.pgs_held)).sum(),
            sum: c.pgmap.osd_sum(c.pgmap.osds().map(|(id, _)| id)),
            peers: Vec::new(),
            latency_us: each().map(|s| u64::from(s.commit_latency_us)).sum(),
        }
    }

    /// `osd_stat_t`
    pub fn json(&self) -> Map<String, Value> {
        let (sum, kib) = (&self.sum, |bytes: u64| bytes >> 10);
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let statfs = StoreStatfs {
            total: signed(sum.total),
            available: signed(sum.available),
            allocated: signed(sum.data),
            data_stored: signed(sum.data),
            omap_allocated: signed(sum.omap),
            internal_metadata: signed(sum.meta),
            ..StoreStatfs::default()
        };
        let value = json!({
            "up_from": self.up_from, "seq": self.seq, "num_pgs": self.pgs, "num_osds": sum.osds,
            "num_per_pool_osds": sum.per_pool, "num_per_pool_omap_osds": 0,
            "kb": kib(sum.total), "kb_used": kib(sum.used()), "kb_used_data": kib(sum.data),
            "kb_used_omap": kib(sum.omap), "kb_used_meta": kib(sum.meta),
            "kb_avail": kib(sum.available),
            "statfs": statfs_json(&statfs),
            "hb_peers": self.peers,
            "snap_trim_queue_len": 0, "num_snap_trimming": 0, "num_shards_repaired": 0,
            "op_queue_age_hist": {"histogram": [], "upper_bound": 1},
            "perf_stat": crate::commands::osd::latency_json(self.latency_us),
            "alerts": [], "network_ping_times": [],
        });
        value.as_object().cloned().unwrap_or_default()
    }
}

/// What each pool takes on each OSD.
pub(super) fn pool_statfs_json(c: &Cluster) -> Value {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let mut all = Vec::new();
    for (id, stat) in c.pgmap.osds() {
        for usage in stat.pools.iter().flatten() {
            let packed = stat.compressed.iter().find(|p| p.pool == usage.pool);
            let packed = packed.copied().unwrap_or_default();
            let statfs = StoreStatfs {
                allocated: signed(usage.allocated),
                data_stored: signed(usage.stored),
                data_compressed: signed(packed.stored),
                data_compressed_allocated: signed(packed.allocated),
                data_compressed_original: signed(packed.original),
                ..StoreStatfs::default()
            };
            all.push(((usage.pool, id), statfs));
        }
    }
    all.sort_by_key(|(place, _)| *place);
    let one = |((pool, osd), statfs): ((PoolId, OsdId), StoreStatfs)| {
        let mut out = Map::new();
        out.insert("poolid".into(), pool.0.into());
        out.insert("osd".into(), osd.0.into());
        out.extend(statfs_json(&statfs));
        Value::Object(out)
    };
    all.into_iter().map(one).collect()
}

/// All OSDs that report.
pub(super) fn osds_json(c: &Cluster) -> Value {
    let all: Vec<_> = c.pgmap.osds().collect();
    let one = |(id, stat): &(OsdId, &OsdStat)| {
        let mut out = Map::new();
        out.insert("osd".into(), id.0.into());
        out.extend(Osds::one(c, *id, stat).json());
        Value::Object(out)
    };
    all.iter().rev().map(one).collect()
}

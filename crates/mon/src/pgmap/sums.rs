//! Sums over PGs and OSDs.

use super::{OsdStat, PgEntry, PgMap};
use maps::{OsdMap, PgPool};
use peer::{PoolCompressed, PoolUsage};
use pg::StateBits;
use std::collections::BTreeMap;
use types::{OsdId, PoolId};
use wire::msg::{ObjectStatSum, PoolStat, StoreStatfs};

/// What all PGs add up to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub pools: BTreeMap<PoolId, PoolStat>,
    pub total: ObjectStatSum,
    /// PGs by state.
    pub states: BTreeMap<StateBits, usize>,
    pub num_pgs: usize,
    pub unknown: usize,
    pub active: usize,
    pub log_size: i64,
    pub up: i32,
    pub acting: i32,
}

impl Sums {
    /// PGs that are known and do not serve.
    pub fn inactive(&self) -> usize {
        self.num_pgs - self.active - self.unknown
    }

    /// PGs in a state that has these bits.
    pub fn count(&self, bits: StateBits) -> usize {
        self.states.iter().filter(|(s, _)| s.has(bits)).map(|(_, n)| n).sum()
    }

    /// States with their counts, the most frequent first.
    pub fn by_count(&self) -> Vec<(StateBits, usize)> {
        let mut states: Vec<_> = self.states.iter().map(|(s, n)| (*s, *n)).collect();
        states.sort_by(|a, b| b.1.cmp(&a.1).then(b.0.cmp(&a.0)));
        states
    }
}

fn clamp(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A PG's part.
pub(crate) fn stat_sum(entry: &PgEntry, pool: &PgPool) -> ObjectStatSum {
    let s = &entry.stat;
    ObjectStatSum {
        num_bytes: s.sums.bytes,
        num_objects: s.sums.objects,
        num_object_clones: s.sums.clones,
        num_object_copies: s.sums.objects.saturating_mul(i64::from(pool.size)),
        num_objects_degraded: clamp(s.degraded),
        num_objects_misplaced: clamp(s.misplaced),
        num_objects_unfound: clamp(s.unfound),
        num_rd: clamp(s.io.reads),
        num_rd_kb: clamp(s.io.read_bytes >> 10),
        num_wr: clamp(s.io.writes),
        num_wr_kb: clamp(s.io.write_bytes >> 10),
        num_objects_recovered: clamp(s.recovered_objects),
        num_bytes_recovered: clamp(s.recovered_bytes),
        num_objects_dirty: s.sums.objects,
        num_whiteouts: s.sums.whiteouts,
        num_objects_omap: s.sums.omap_objects,
        num_scrub_errors: clamp(s.scrub.errors()),
        num_shallow_scrub_errors: clamp(s.scrub.shallow_errors),
        num_deep_scrub_errors: clamp(s.scrub.deep_errors),
        num_omap_bytes: clamp(s.scrub.omap_bytes),
        num_omap_keys: clamp(s.scrub.omap_entries),
        num_objects_repaired: clamp(s.scrub.objects_repaired),
        ..ObjectStatSum::default()
    }
}

/// Adds up what PGs have; the counters of I/O come from elsewhere.
fn add(to: &mut ObjectStatSum, s: &ObjectStatSum) {
    let pairs = [
        (&mut to.num_bytes, s.num_bytes),
        (&mut to.num_objects, s.num_objects),
        (&mut to.num_object_clones, s.num_object_clones),
        (&mut to.num_object_copies, s.num_object_copies),
        (&mut to.num_objects_degraded, s.num_objects_degraded),
        (&mut to.num_objects_misplaced, s.num_objects_misplaced),
        (&mut to.num_objects_unfound, s.num_objects_unfound),
        (&mut to.num_objects_dirty, s.num_objects_dirty),
        (&mut to.num_whiteouts, s.num_whiteouts),
        (&mut to.num_objects_omap, s.num_objects_omap),
        (&mut to.num_rd, s.num_rd),
        (&mut to.num_rd_kb, s.num_rd_kb),
        (&mut to.num_wr, s.num_wr),
        (&mut to.num_wr_kb, s.num_wr_kb),
        (&mut to.num_objects_recovered, s.num_objects_recovered),
        (&mut to.num_bytes_recovered, s.num_bytes_recovered),
        (&mut to.num_scrub_errors, s.num_scrub_errors),
        (&mut to.num_shallow_scrub_errors, s.num_shallow_scrub_errors),
        (&mut to.num_deep_scrub_errors, s.num_deep_scrub_errors),
        (&mut to.num_omap_bytes, s.num_omap_bytes),
        (&mut to.num_omap_keys, s.num_omap_keys),
        (&mut to.num_objects_repaired, s.num_objects_repaired),
    ];
    for (sum, more) in pairs {
        *sum = sum.saturating_add(more);
    }
}

impl PgMap {
    /// Adds everything up.
    pub fn sums(&self, map: &OsdMap) -> Sums {
        let mut sums = Sums::default();
        let (packed, used) = (self.compressed(map, |_| true), self.used(map, |_| true));
        for (&id, pool) in &map.pools {
            let mut stat = PoolStat::default();
            for pgid in pool.pgs(id) {
                self.add_pg(map, pool, self.pgs.get(&pgid), &mut stat, &mut sums);
            }
            self.finish_pool((id, pool), packed.get(&id), used.as_ref(), &mut stat);
            add(&mut sums.total, &stat.stats.sum);
            sums.log_size += stat.log_size;
            sums.up += stat.up;
            sums.acting += stat.acting;
            sums.pools.insert(id, stat);
        }
        sums
    }

    fn add_pg(
        &self,
        map: &OsdMap,
        pool: &PgPool,
        entry: Option<&PgEntry>,
        stat: &mut PoolStat,
        sums: &mut Sums,
    ) {
        let state = self.state(map, entry);
        *sums.states.entry(state).or_default() += 1;
        sums.num_pgs += 1;
        if state.has(StateBits::ACTIVE) {
            sums.active += 1;
        }
        let Some(entry) = entry else {
            sums.unknown += 1;
            return;
        };
        let mut own = stat_sum(entry, pool);
        own.num_rd = 0;
        own.num_rd_kb = 0;
        own.num_wr = 0;
        own.num_wr_kb = 0;
        own.num_objects_recovered = 0;
        own.num_bytes_recovered = 0;
        add(&mut stat.stats.sum, &own);
        stat.log_size += clamp(entry.stat.log_entries);
        stat.ondisk_log_size += clamp(entry.stat.log_entries);
        stat.up += i32::try_from(entry.stat.up.len()).unwrap_or(0);
        stat.acting += i32::try_from(entry.stat.acting.len()).unwrap_or(0);
    }

    fn finish_pool(
        &self,
        (id, pool): (PoolId, &PgPool),
        packed: Option<&PoolCompressed>,
        used: Option<&Used>,
        stat: &mut PoolStat,
    ) {
        let totals = self.totals(id);
        let sum = &mut stat.stats.sum;
        sum.num_rd = clamp(totals.reads);
        sum.num_rd_kb = clamp(totals.read_bytes >> 10);
        sum.num_wr = clamp(totals.writes);
        sum.num_wr_kb = clamp(totals.write_bytes >> 10);
        sum.num_objects_recovered = clamp(totals.recovered_objects);
        sum.num_bytes_recovered = clamp(totals.recovered_bytes);
        let raw = |bytes: i64| (bytes.max(0) as f64 * copies(pool, sum)) as i64;
        let packed = packed.copied().unwrap_or_default();
        let (osds, allocated, data_stored) = match used {
            Some(used) => {
                let (osds, usage) = used.get(&id).copied().unwrap_or_default();
                (osds, clamp(usage.allocated), clamp(usage.stored))
            }
            // Not all OSDs say how much each pool takes: it is as many copies as there are.
            None => {
                let stored = raw(sum.num_bytes);
                let saved = clamp(packed.original).saturating_sub(clamp(packed.allocated)).max(0);
                (self.osds.len(), stored.saturating_sub(saved).max(0), stored)
            }
        };
        stat.store_stats = StoreStatfs {
            allocated,
            data_stored,
            data_compressed: clamp(packed.stored),
            data_compressed_allocated: clamp(packed.allocated),
            data_compressed_original: clamp(packed.original),
            // As the last deep scrubs have found it: no OSD counts it by pool.
            omap_allocated: raw(sum.num_omap_bytes),
            ..StoreStatfs::default()
        };
        stat.num_store_stats = u32::try_from(osds).unwrap_or(u32::MAX);
    }

    /// The last reports that tell what pools take; of OSDs that are down too, for what they hold comes back with them.
    /// When they are out as well, it is made anew elsewhere, and would count twice.
    fn holders<'a>(&'a self, map: &'a OsdMap) -> impl Iterator<Item = &'a OsdStat> {
        let gone = |id: OsdId| map.is_down(id) && !map.is_in(id);
        self.osds.iter().filter(move |(id, _)| !gone(**id)).map(|(_, osd)| osd)
    }

    /// What these pools take. `None` unless all OSDs that are in say so.
    fn used(&self, map: &OsdMap, wanted: impl Fn(PoolId) -> bool) -> Option<Used> {
        let says = |id: OsdId| self.osds.get(&id).is_none_or(|osd| osd.pools.is_some());
        if !map.in_osds().all(says) {
            return None;
        }
        let mut sums = Used::new();
        let all = self.holders(map).filter_map(|osd| osd.pools.as_ref()).flatten();
        for part in all.filter(|part| wanted(part.pool)) {
            let (osds, sum) = sums.entry(part.pool).or_default();
            *osds += 1;
            sum.allocated = sum.allocated.saturating_add(part.allocated);
            sum.stored = sum.stored.saturating_add(part.stored);
        }
        Some(sums)
    }

    /// What compression does for these pools, on all OSDs.
    fn compressed(
        &self,
        map: &OsdMap,
        wanted: impl Fn(PoolId) -> bool,
    ) -> BTreeMap<PoolId, PoolCompressed> {
        let mut sums = BTreeMap::new();
        let all = self.holders(map).flat_map(|osd| &osd.compressed);
        for part in all.filter(|part| wanted(part.pool)) {
            let sum = sums.entry(part.pool);
            let sum =
                sum.or_insert(PoolCompressed { pool: part.pool, ..PoolCompressed::default() });
            sum.original = sum.original.saturating_add(part.original);
            sum.allocated = sum.allocated.saturating_add(part.allocated);
            sum.stored = sum.stored.saturating_add(part.stored);
        }
        sums
    }

    /// Statistics of one pool, as `rados df` wants them.
    pub fn pool_stat(&self, map: &OsdMap, id: PoolId) -> Option<PoolStat> {
        let pool = map.pool(id)?;
        let mut stat = PoolStat::default();
        let mut sums = Sums::default();
        for pgid in pool.pgs(id) {
            self.add_pg(map, pool, self.pgs.get(&pgid), &mut stat, &mut sums);
        }
        let (packed, used) = (self.compressed(map, |p| p == id), self.used(map, |p| p == id));
        self.finish_pool((id, pool), packed.get(&id), used.as_ref(), &mut stat);
        Some(stat)
    }

    /// Space of these OSDs.
    pub fn osd_sum(&self, osds: impl IntoIterator<Item = OsdId>) -> OsdSum {
        let mut sum = OsdSum::default();
        for stat in osds.into_iter().filter_map(|id| self.osds.get(&id)) {
            sum.add(stat);
        }
        sum
    }

    /// For each OSD, how many PGs it serves and how many of them it leads.
    pub fn pgs_by_osd(&self) -> BTreeMap<OsdId, (usize, usize)> {
        let mut counts: BTreeMap<OsdId, (usize, usize)> = BTreeMap::new();
        for entry in self.pgs.values() {
            for osd in entry.stat.acting.iter().filter(|o| o.is_some()) {
                counts.entry(*osd).or_default().0 += 1;
            }
            if entry.stat.acting_primary >= 0 {
                counts.entry(OsdId(entry.stat.acting_primary)).or_default().1 += 1;
            }
        }
        counts
    }
}

/// What pools take, and on how many OSDs.
type Used = BTreeMap<PoolId, (usize, PoolUsage)>;

/// How many copies there are of each of a pool's objects.
pub(crate) fn copies(pool: &PgPool, sum: &ObjectStatSum) -> f64 {
    f64::from(pool.size) * present(sum)
}

/// The share of copies that are there.
pub(crate) fn present(sum: &ObjectStatSum) -> f64 {
    if sum.num_object_copies <= 0 {
        return 1.0;
    }
    let there = sum.num_object_copies - sum.num_objects_degraded;
    there.max(0) as f64 / sum.num_object_copies as f64
}

/// Space of several OSDs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OsdSum {
    pub osds: usize,
    /// Of them, those that say what each pool takes.
    pub per_pool: usize,
    pub total: u64,
    pub available: u64,
    pub data: u64,
    pub omap: u64,
    pub meta: u64,
}

impl OsdSum {
    fn add(&mut self, stat: &OsdStat) {
        let s = &stat.space;
        self.osds += 1;
        self.per_pool += usize::from(stat.pools.is_some());
        self.total = self.total.saturating_add(s.total);
        self.available = self.available.saturating_add(s.available);
        self.data = self.data.saturating_add(s.data);
        self.omap = self.omap.saturating_add(s.omap);
        self.meta = self.meta.saturating_add(s.meta);
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.total.saturating_sub(self.available)
    }

    /// The share in use.
    pub fn used_ratio(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.used() as f64 / self.total as f64 }
    }
}

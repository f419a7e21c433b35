//! What OSDs report: the state of every PG, space, I/O. Only in memory; a mon that starts anew
//! hears it all again.
//!
//! A PG's statistics come from its primary. One that nobody has reported is `unknown`; one whose
//! reporter is down since then is `stale`.

mod placer;
mod rates;
mod report;
pub(crate) mod space;
mod sums;

pub(crate) use placer::{Placer, chooses_alike};
pub(crate) use rates::{Counts, Rate, Rates};
pub(crate) use sums::{OsdSum, Sums, copies, stat_sum};

use maps::{OsdMap, PgIdExt, SnapSet};
use peer::{OptionSaid, OsdSpace, PgStat, PoolCompressed, PoolUsage};
use pg::StateBits;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use types::{Epoch, Mono, OsdId, PgId, PoolId, UTime};

/// When a PG was last in a good state, and when it came into it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamps {
    pub fresh: UTime,
    pub change: UTime,
    pub active: UTime,
    pub peered: UTime,
    pub clean: UTime,
    pub became_active: UTime,
    pub became_peered: UTime,
    pub unstale: UTime,
    pub undegraded: UTime,
    pub fullsized: UTime,
}

/// A PG as it was last reported.
#[derive(Clone, Debug)]
pub(crate) struct PgEntry {
    pub stat: PgStat,
    pub stamps: Stamps,
    /// Who reported it.
    pub by: OsdId,
    /// Counts reports.
    pub seq: u64,
    /// The map in which another PG was last merged into it, as far as this mon saw that.
    merged_in: Epoch,
    /// How far the counters of each reporter have been added up.
    seen: Vec<(OsdId, Epoch, Counts)>,
}

/// An OSD as it last reported itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct OsdStat {
    pub up_from: Epoch,
    pub space: OsdSpace,
    pub pgs_held: u32,
    pub commit_latency_us: u32,
    pub slow_requests: u32,
    pub oldest_request_s: u32,
    pub at: Mono,
    /// The number that the OSD gave its report.
    pub seq: u32,
    pub compressed: Vec<PoolCompressed>,
    /// What each pool takes on it, if it says that.
    pub pools: Option<Vec<PoolUsage>>,
    /// How far its clock is ahead of ours, in milliseconds, give or take the way of its report.
    pub clock_ahead_ms: i64,
    /// It says itself that it takes no more data.
    pub full: bool,
    /// What it found damaged of its own records.
    pub own_damage: String,
    /// Its options that are not left to their defaults.
    pub options: Vec<OptionSaid>,
}

impl OsdStat {
    /// Bytes in use, for whatever.
    pub fn used(&self) -> u64 {
        self.space.total.saturating_sub(self.space.available)
    }

    /// How full it is, from 0 to 1.
    pub fn fullness(&self) -> f64 {
        if self.space.total == 0 { 0.0 } else { self.used() as f64 / self.space.total as f64 }
    }
}

/// Recovery that goes on, for its progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    pub since: UTime,
    /// Copies that were missing or misplaced at worst.
    pub most: i64,
}

/// Recoveries that are over and still shown.
const COMPLETED: usize = 10;

/// Recovery that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovered {
    pub since: UTime,
    pub until: UTime,
}

/// Everything reported.
#[derive(Debug, Default)]
pub(crate) struct PgMap {
    pgs: BTreeMap<PgId, PgEntry>,
    osds: BTreeMap<OsdId, OsdStat>,
    /// Counters of each pool, added up since this mon started.
    totals: BTreeMap<PoolId, Counts>,
    pub rates: Rates,
    pub recovery: Option<Recovery>,
    /// The newest last.
    pub completed: VecDeque<Recovered>,
    /// Counts changes.
    pub version: u64,
    /// OSDs that have reported PGs and are down, and since when.
    silent: BTreeMap<OsdId, UTime>,
    placed: Placed,
    known: placer::Known,
}

/// PGs that have no OSD by the map: nobody reports them, while whoever led them last lives. To find them takes
/// a walk over all PGs, which is made in steps.
#[derive(Debug, Default)]
struct Placed {
    /// With the time when it was found.
    homeless: BTreeMap<PgId, UTime>,
    /// The next PG to be looked at.
    next: Option<PgId>,
    /// The map at the beginning of the walk that goes on, or of the last one.
    epoch: Epoch,
}

/// PGs that are placed in one step: some milliseconds.
const PLACED_AT_ONCE: usize = 1024;

impl Placed {
    fn step(
        &mut self,
        now: UTime,
        map: &OsdMap,
        pgs: &BTreeMap<PgId, PgEntry>,
        known: &mut placer::Known,
    ) {
        if self.next.is_none() && self.epoch == map.epoch {
            return;
        }
        if self.next.is_none() {
            self.epoch = map.epoch;
        }
        let from = self.next.map_or(Bound::Unbounded, Bound::Included);
        let mut rest = pgs.range((from, Bound::Unbounded)).map(|(pgid, _)| *pgid);
        for pgid in rest.by_ref().take(PLACED_AT_ONCE) {
            let placer = known.placer(map);
            let raw = placer.raw(pgid);
            if placer.known(pgid).is_none() {
                known.keep(pgid, raw.clone());
            }
            if map.raw_to_up_acting(pgid, raw).acting_primary.is_none() {
                self.homeless.entry(pgid).or_insert(now);
            } else {
                self.homeless.remove(&pgid);
            }
        }
        self.next = rest.next();
    }
}

impl PgMap {
    /// All PGs of the map, with what is known of them.
    pub fn all<'a>(
        &'a self,
        map: &'a OsdMap,
    ) -> impl Iterator<Item = (PgId, Option<&'a PgEntry>)> + 'a {
        let ids = map.pools.iter().flat_map(|(&id, pool)| pool.pgs(id));
        ids.map(|pgid| (pgid, self.pgs.get(&pgid)))
    }

    /// Places the PGs of a map; of the committed one, or one that is much like it, in no time.
    pub fn placer<'a>(&'a self, map: &'a OsdMap) -> Placer<'a> {
        self.known.placer(map)
    }

    /// What is known of a PG.
    pub fn get(&self, pgid: PgId) -> Option<&PgEntry> {
        self.pgs.get(&pgid)
    }

    /// PGs that have been reported.
    pub fn reported(&self) -> impl Iterator<Item = (PgId, &PgEntry)> {
        self.pgs.iter().map(|(id, e)| (*id, e))
    }

    /// A PG's state, `stale` added when nobody speaks for it any more: its primary is down, or it has no OSDs.
    pub fn state(&self, map: &OsdMap, entry: Option<&PgEntry>) -> StateBits {
        let Some(entry) = entry else { return StateBits::default() };
        let mut bits = StateBits(entry.stat.state);
        if map.is_down(entry.by) || self.placed.homeless.contains_key(&entry.stat.pgid) {
            bits |= StateBits::STALE;
        }
        bits
    }

    /// Since when a PG is stale. One without I/O may not have been reported for hours when that begins. Nothing of one
    /// that is not, or only by a map that is not committed.
    pub fn stale_since(&self, entry: &PgEntry) -> Option<UTime> {
        let silent = self.silent.get(&entry.by);
        let homeless = self.placed.homeless.get(&entry.stat.pgid);
        silent.into_iter().chain(homeless).min().map(|since| entry.stamps.unstale.max(*since))
    }

    /// An OSD's last report.
    pub fn osd(&self, id: OsdId) -> Option<&OsdStat> {
        self.osds.get(&id)
    }

    /// All OSDs that have reported.
    pub fn osds(&self) -> impl Iterator<Item = (OsdId, &OsdStat)> {
        self.osds.iter().map(|(id, s)| (*id, s))
    }

    /// What OSDs that are up have said since they came up: what one said in its last life, of another
    /// disk perhaps, says nothing of how it is.
    pub fn living<'a>(
        &'a self,
        map: &'a OsdMap,
    ) -> impl Iterator<Item = (OsdId, &'a OsdStat)> + 'a {
        self.osds().filter(|(id, s)| is_of_this_life(map, *id, s))
    }

    /// The same of one OSD.
    pub fn living_osd(&self, map: &OsdMap, id: OsdId) -> Option<&OsdStat> {
        self.osd(id).filter(|s| is_of_this_life(map, id, s))
    }

    /// Whether every PG, and every OSD that is up, has been heard of.
    pub fn is_whole(&self, map: &OsdMap, sums: &Sums) -> bool {
        sums.unknown == 0 && map.up_osds().all(|id| self.living_osd(map, id).is_some())
    }

    /// Counters of a pool since this mon started.
    pub fn totals(&self, pool: PoolId) -> Counts {
        self.totals.get(&pool).copied().unwrap_or_default()
    }

    /// Of which removed snapshots nothing is left in a PG. What was reported before another PG was merged into
    /// it says nothing of what that one holds.
    pub fn trimmed(&self, map: &OsdMap, pgid: PgId) -> Option<&SnapSet> {
        let entry = self.get(pgid)?;
        let last = &map.pool(pgid.pool)?.last_pg_merge_meta;
        let is_target = last.ready_epoch > Epoch::ZERO && last.source_pgid.parent() == pgid;
        // They were ready in the map before.
        let last = if is_target { last.ready_epoch.next() } else { Epoch::ZERO };
        (entry.stat.epoch >= last.max(entry.merged_in)).then_some(&entry.stat.trimmed)
    }

    /// Forgets pools, PGs and OSDs that are gone, and notes which do not report any more.
    pub fn follow(&mut self, old: &OsdMap, map: &OsdMap) {
        for (&id, pool) in &map.pools {
            let before = old.pool(id).map_or(0, |old| old.pg_num);
            for source in (pool.pg_num..before).map(|seed| PgId::new(id, seed)) {
                let target = source.merge_target(before, pool.pg_num);
                if let Some(entry) = target.and_then(|target| self.pgs.get_mut(&target)) {
                    entry.merged_in = map.epoch;
                }
            }
        }
        self.pgs.retain(|pgid, _| map.pg_exists(*pgid));
        self.placed.homeless.retain(|pgid, _| map.pg_exists(*pgid));
        self.silent.retain(|id, _| map.is_down(*id));
        for entry in self.pgs.values().filter(|entry| map.is_down(entry.by)) {
            self.silent.entry(entry.by).or_insert(map.modified);
        }
        self.totals.retain(|pool, _| map.pools.contains_key(pool));
        self.osds.retain(|id, _| map.exists(*id));
        self.version += 1;
    }

    /// Every so often: notes where the counters stand, and how far recovery is. Gives what all adds up to.
    pub fn tick(&mut self, now: io::Now, map: &Arc<OsdMap>) -> Sums {
        self.known.follow(map);
        self.placed.step(now.wall, map, &self.pgs, &mut self.known);
        self.rates.sample(now.mono, &self.totals);
        let sums = self.sums(map);
        let work = sums.total.num_objects_degraded + sums.total.num_objects_misplaced;
        if let (..=0, Some(done)) = (work, self.recovery) {
            self.completed.push_back(Recovered { since: done.since, until: now.wall });
            if self.completed.len() > COMPLETED {
                self.completed.pop_front();
            }
        }
        self.recovery = match (work, self.recovery) {
            (..=0, _) => None,
            (work, None) => Some(Recovery { since: now.wall, most: work }),
            (work, Some(r)) => Some(Recovery { most: r.most.max(work), ..r }),
        };
        sums
    }
}

fn is_of_this_life(map: &OsdMap, id: OsdId, stat: &OsdStat) -> bool {
    map.is_up(id) && map.osd(id).is_some_and(|osd| osd.info.up_from == stat.up_from)
}

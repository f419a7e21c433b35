//! Taking in what an OSD reports.

use super::{Counts, OsdStat, PgEntry, PgMap, Stamps};
use io::Now;
use maps::OsdMap;
use peer::{OsdReport, PgStat};
use pg::StateBits;
use types::{Epoch, OsdId, PgId, UTime};

/// Reporters of a PG whose counters are remembered; more only come by primaries changing all the
/// time.
const MAX_SEEN: usize = 16;

impl PgMap {
    /// Takes in a report. Answers the PGs that it speaks of, unless it is void: from before a
    /// restart.
    pub fn report(&mut self, now: Now, map: &OsdMap, report: OsdReport) -> Vec<PgId> {
        let up_from = map.osd(report.osd).map(|o| o.info.up_from);
        if map.is_down(report.osd) || up_from != Some(report.up_from) {
            return Vec::new();
        }
        let stat = OsdStat {
            up_from: report.up_from,
            space: report.space,
            pgs_held: report.pgs_held,
            commit_latency_us: report.commit_latency_us,
            slow_requests: report.slow_requests,
            oldest_request_s: report.oldest_request_s,
            at: now.mono,
            seq: report.seq,
            compressed: report.compressed,
            pools: report.pools,
            clock_ahead_ms: unix_ms(report.wall) - unix_ms(now.wall),
            full: report.full,
            own_damage: report.own_damage,
            options: report.options,
        };
        self.osds.insert(report.osd, stat);
        self.version += 1;
        let mut known = Vec::new();
        for stat in report.pgs {
            if map.pg_exists(stat.pgid) {
                known.push(stat.pgid);
                self.pg_stat(now.wall, report.osd, report.up_from, stat);
            }
        }
        known
    }

    fn pg_stat(&mut self, now: UTime, by: OsdId, up_from: Epoch, stat: PgStat) {
        let counts = Counts::of(&stat);
        let pool = stat.pgid.pool;
        match self.pgs.get_mut(&stat.pgid) {
            // A former primary that does not know yet.
            Some(e) if e.by != by && stat.mapping_epoch < e.stat.mapping_epoch => {}
            Some(e) => {
                let totals = self.totals.entry(pool).or_default();
                totals.add(&e.count(by, up_from, counts));
                e.update(now, by, stat);
            }
            None => {
                // What it counted before we heard of it is no I/O of now.
                self.totals.entry(pool).or_default().add(&counts);
                self.rates.discount(pool, &counts);
                let mut entry = PgEntry {
                    stat: PgStat { state: 0, ..stat.clone() },
                    stamps: Stamps { change: stat.state_since, ..Stamps::default() },
                    by,
                    seq: 0,
                    merged_in: Epoch::ZERO,
                    seen: vec![(by, up_from, counts)],
                };
                entry.update(now, by, stat.clone());
                self.pgs.insert(stat.pgid, entry);
            }
        }
    }
}

fn unix_ms(at: UTime) -> i64 {
    i64::try_from(at.as_duration().as_millis()).unwrap_or(i64::MAX / 2)
}

impl PgEntry {
    /// How much a reporter's counters have grown.
    fn count(&mut self, by: OsdId, up_from: Epoch, counts: Counts) -> Counts {
        let place = self.seen.iter_mut().find(|(id, from, _)| (*id, *from) == (by, up_from));
        match place {
            Some((_, _, seen)) => {
                let grown = counts.since(seen);
                *seen = counts;
                grown
            }
            None => {
                if self.seen.len() >= MAX_SEEN {
                    self.seen.remove(0);
                }
                self.seen.retain(|(id, _, _)| *id != by);
                self.seen.push((by, up_from, counts));
                counts
            }
        }
    }

    fn update(&mut self, now: UTime, by: OsdId, stat: PgStat) {
        let (before, after) = (StateBits(self.stat.state), StateBits(stat.state));
        let s = &mut self.stamps;
        let active = |b: StateBits| b.has(StateBits::ACTIVE);
        let peered = |b: StateBits| active(b) || b.has(StateBits::PEERED);
        // A new primary may date the state from when it last was primary itself. What was reported
        // since then says otherwise.
        let is_void = before.0 != 0 && stat.state_since < s.fresh;
        let since = if is_void { now } else { stat.state_since };
        s.fresh = now;
        s.unstale = now;
        if before != after {
            s.change = since;
        }
        if active(after) && !active(before) {
            s.became_active = since;
        }
        if peered(after) && !peered(before) {
            s.became_peered = since;
        }
        // PGs are reported when they change: one that was well was so until then.
        let until = |stamp: &mut UTime, well: &dyn Fn(StateBits) -> bool| match () {
            () if well(after) => *stamp = now,
            () if well(before) && before.0 != 0 => *stamp = since,
            () => {}
        };
        until(&mut s.active, &active);
        until(&mut s.peered, &peered);
        until(&mut s.clean, &|b| b.has(StateBits::CLEAN));
        until(&mut s.undegraded, &|b| !b.has(StateBits::DEGRADED));
        until(&mut s.fullsized, &|b| !b.has(StateBits::UNDERSIZED));
        self.by = by;
        self.seq += 1;
        self.stat = stat;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PoolId;

    fn stat(state: StateBits, since: u32) -> PgStat {
        PgStat {
            pgid: PgId::new(PoolId(1), 0),
            state: state.0,
            state_since: UTime { sec: since, nsec: 0 },
            epoch: Epoch(1),
            last_update: types::Eversion::ZERO,
            log_tail: types::Eversion::ZERO,
            log_entries: 0,
            log_dups: 0,
            up: Vec::new(),
            acting: Vec::new(),
            up_primary: 0,
            acting_primary: 0,
            mapping_epoch: Epoch(1),
            created: Epoch(1),
            last_epoch_clean: Epoch(1),
            sums: Default::default(),
            degraded: 0,
            misplaced: 0,
            unfound: 0,
            io: Default::default(),
            recovered_objects: 0,
            recovered_bytes: 0,
            blocked_by: Vec::new(),
            trimmed: Default::default(),
            snaps_to_trim: 0,
            scrub: Default::default(),
        }
    }

    /// A PG without I/O is not reported for hours; when it then stops being clean it has not been
    /// unclean for hours.
    #[test]
    fn a_pg_was_well_until_its_state_changed() {
        let mut pgmap = PgMap::default();
        let mut clean = StateBits::ACTIVE;
        clean |= StateBits::CLEAN;
        let mut degraded = StateBits::ACTIVE;
        degraded |= StateBits::UNDERSIZED;
        degraded |= StateBits::DEGRADED;
        let at = |sec| UTime { sec, nsec: 0 };
        pgmap.pg_stat(at(100), OsdId(0), Epoch(1), stat(clean, 90));
        pgmap.pg_stat(at(9001), OsdId(0), Epoch(1), stat(degraded, 9000));
        let stamps = |pgmap: &PgMap| pgmap.reported().next().unwrap().1.stamps;
        let s = stamps(&pgmap);
        assert_eq!([s.clean, s.undegraded, s.fullsized], [at(9000); 3]);
        assert_eq!((s.active, s.change, s.became_active), (at(9001), at(9000), at(90)));
        pgmap.pg_stat(at(9500), OsdId(0), Epoch(1), stat(degraded, 9000));
        assert_eq!(stamps(&pgmap).clean, at(9000), "it stays so");
    }

    #[test]
    fn a_new_primary_does_not_know_since_when() {
        let mut pgmap = PgMap::default();
        let (mut clean, mut degraded) = (StateBits::ACTIVE, StateBits::ACTIVE);
        clean |= StateBits::CLEAN;
        degraded |= StateBits::DEGRADED;
        let at = |sec| UTime { sec, nsec: 0 };
        pgmap.pg_stat(at(100), OsdId(0), Epoch(1), stat(degraded, 99));
        pgmap.pg_stat(at(200), OsdId(1), Epoch(1), stat(clean, 199));
        // The first one leads again; to it the PG never was anything else.
        let mut again = stat(degraded, 99);
        again.mapping_epoch = Epoch(2);
        pgmap.pg_stat(at(300), OsdId(0), Epoch(1), again);
        let s = pgmap.reported().next().unwrap().1.stamps;
        assert_eq!([s.clean, s.change, s.undegraded], [at(300); 3]);
    }
}

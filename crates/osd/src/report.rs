//! What the mon hears of the OSD, and everything that goes by the clock.

use crate::config::{ASK_AGAIN_MS, REPORT_DELAY_MS, REPORT_INTERVAL_S, TICK_MS};
use crate::daemon::{Daemon, Life};
use crate::host::{OWN_ACCOUNT, PgHost};
use crate::mapstate::map_transaction;
use crate::tracker::tracked_text;
use admin::{Answer, CommandError};
use io::{Effects, Now};
use maps::SnapSet;
use peer::{
    OptionSaid, OsdAlive, OsdPgTemp, OsdReport, OsdSpace, PgStat, PoolCompressed, PoolUsage,
};
use pg::StateBits;
use std::time::Duration;
use types::{Epoch, Errno, OsdId, PgId, PoolId};
use wire::msg::Payload;

/// The mon keeps every map since the one a PG was last known to be clean in: PGs are reported at least
/// once in so many epochs.
const FRESH_EPOCHS: u32 = 50;

/// Options that are not left to their defaults.
fn options(settings: &admin::Settings) -> Vec<OptionSaid> {
    let one = |(name, said): (&str, Vec<(admin::Source, String)>)| OptionSaid {
        name: name.to_owned(),
        said: said.into_iter().map(|(source, value)| (source.name().to_owned(), value)).collect(),
    };
    settings.said().map(one).collect()
}

impl Daemon {
    /// A PG changed: the mon hears of it soon.
    pub(crate) fn report_soon(&mut self) {
        let at = self.now.mono.after(Duration::from_millis(REPORT_DELAY_MS));
        self.report_soon.get_or_insert(at);
    }

    /// Whether [`Daemon::tick`] has something to do.
    pub(crate) fn is_tick_due(&self) -> bool {
        let now = self.now.mono;
        self.next_tick <= now
            || self.next_report <= now
            || self.report_soon.is_some_and(|at| at <= now)
            || self.mon.wishes_changed
            || self.mon.wants_map
    }

    /// Everything that is due.
    pub(crate) fn tick(&mut self, fx: &mut Effects) {
        let now = self.now.mono;
        if self.mon.wishes_changed {
            self.send_wishes();
        }
        if self.report_soon.is_some_and(|at| at <= now) || self.next_report <= now {
            self.send_report();
        }
        if self.mon.wants_map {
            // What would come is known, where whole maps are awaited.
            match self.mon.wants_full {
                true => self.mon.wants_map = false,
                false => self.subscribe(),
            }
        }
        if self.next_tick > now {
            return;
        }
        self.next_tick = now.after(Duration::from_millis(TICK_MS));
        // A file keeps its blocks: what it gave back to its file system somebody else may take, and a
        // later write would have no space.
        self.store.set_discard(self.limits.discard && self.store.devices().data.is_block);
        self.ask_for_full_map();
        self.trimming.look_again();
        self.look_at_space(fx);
        if !matches!(self.life, Life::Loading(_)) && self.listens() {
            self.dial_mon(fx);
        }
        self.beat(fx);
        self.retry_reads(fx);
        let long_ago = Duration::from_millis(ASK_AGAIN_MS);
        if now.since(self.mon.asked_at) >= long_ago {
            self.mon.asked_at = now;
            self.say_to_mon();
            self.ask_again(fx);
        }
        if let Life::Leaving { until } = self.life
            && until <= now
        {
            self.close_store();
        }
        self.tick_watches(fx);
        self.retry_listings(fx);
        self.pump_all(fx);
        self.back_off_stuck();
        self.end_needless_backoffs();
        self.tick_copies();
        self.begin_scrubs(fx);
        self.stop_filling_when_full(fx);
        self.gates_due = true;
        self.trim_idle_logs(fx);
        self.keep_records_fresh(fx);
        self.trim_maps(fx);
    }

    /// Sends what PGs wish of the mon.
    fn send_wishes(&mut self) {
        self.mon.wishes_changed = false;
        self.mon.asked_at = self.now.mono;
        let up_thru = self.pgs.values().filter_map(|h| h.wish.up_thru).max();
        if let Some(want) = up_thru {
            self.send_mon(OsdAlive { osd: self.cfg.id, want }.encode());
        }
        let wants: Vec<(PgId, Vec<OsdId>)> = self
            .pgs
            .iter()
            .filter_map(|(p, h)| Some((*p, h.wish.pg_temp.as_ref()?.to_vec())))
            .collect();
        if !wants.is_empty() {
            self.send_mon(OsdPgTemp { epoch: self.maps.epoch(), wants }.encode());
        }
    }

    fn send_report(&mut self) {
        let now = self.now.mono;
        self.next_report = now.after(Duration::from_secs(REPORT_INTERVAL_S));
        self.report_soon = None;
        if !self.is_up() || !self.mon.open {
            return;
        }
        let (epoch, at) = (self.maps.epoch(), self.now);
        let mut pgs = Vec::new();
        for host in self.pgs.values_mut().filter(|h| h.started && h.pg.is_primary()) {
            if !host.dirty && host.reported_epoch.0 + FRESH_EPOCHS > epoch.0 {
                continue;
            }
            let queue = self.maps.current().removed_snaps_queue.get(&host.pg.pgid().pool);
            let mut stat = pg_stat(host, epoch, at, queue);
            if self.leases.is_laggy(stat.pgid) {
                stat.state |= StateBits::LAGGY.0;
            }
            // These end by themselves.
            let state = StateBits(stat.state);
            host.dirty = state.has(StateBits::LAGGY) || state.has(StateBits::WAIT);
            if state.has(StateBits::WAIT) {
                let over_at = host.priors.over_at();
                self.report_soon = Some(self.report_soon.map_or(over_at, |at| at.min(over_at)));
            }
            host.reported_epoch = epoch;
            pgs.push(stat);
        }
        let usage = self.store.usage();
        let (slow_requests, oldest) = self.slow_requests();
        let report = OsdReport {
            osd: self.cfg.id,
            up_from: self.up_from,
            space: OsdSpace {
                total: usage.total,
                available: usage.available,
                data: usage.data,
                omap: 0,
                meta: usage.system + usage.log + usage.metadata,
            },
            pgs_held: u32::try_from(self.pgs.len()).unwrap_or(u32::MAX),
            commit_latency_us: self.commit_latency_us(),
            slow_requests,
            oldest_request_s: u32::try_from(oldest.as_secs()).unwrap_or(u32::MAX),
            pgs,
            compressed: self.store.compressed().map(pool_compressed).collect(),
            durable_txn: self.store.durable_txn(),
            wall: self.now.wall,
            full: self.is_full(),
            own_damage: self.own_damage().to_owned(),
            images: self.images_io.report(now),
            options: options(&self.admin.settings),
            seq: self.reports.wrapping_add(1),
            pools: self.store.by_account().map(pools_usage),
        };
        self.reports = report.seq;
        self.send_mon(report.encode());
    }

    /// `flush_pg_stats`: the mon hears at once how everything is. Answers the report's number.
    pub(crate) fn flush_report(&mut self) -> Result<Answer, CommandError> {
        if !self.is_up() || !self.mon.open {
            let why = "this OSD is not up, or has no connection to the mon";
            return Err(CommandError::new(Errno::EAGAIN, why));
        }
        self.send_report();
        Ok(Answer::json(peer::stat_seq(self.up_from, self.reports).into()))
    }

    /// How many requests are slow, and the age of the oldest. The log hears which it is, now and then.
    fn slow_requests(&mut self) -> (u32, Duration) {
        const SAY_EVERY: Duration = Duration::from_secs(30);
        let (now, least) = (self.now.mono, self.limits.complaint);
        let slow = self.ops.values().filter(|op| op.trace.age(now) >= least);
        let count = u32::try_from(slow.clone().count()).unwrap_or(u32::MAX);
        let Some(oldest) = slow.max_by_key(|op| op.trace.age(now)) else {
            return (0, Duration::ZERO);
        };
        let age = oldest.trace.age(now);
        if now >= self.say_slow_at {
            let what = tracked_text(&oldest.request, oldest.sender, oldest.tid, &oldest.trace);
            tracing::warn!(
                "osd.{}: {count} slow requests, the oldest for {age:?}: {what}",
                self.cfg.id
            );
            self.say_slow_at = now.after(SAY_EVERY);
        }
        (count, age)
    }

    /// Mean time from submit to durable since the last report.
    fn commit_latency_us(&mut self) -> u32 {
        let c = self.store.counters();
        let (count, ns) = std::mem::replace(&mut self.reported_commits, (c.durable, c.durable_ns));
        let mean_ns = (c.durable_ns - ns).checked_div(c.durable - count).unwrap_or(0);
        u32::try_from(mean_ns / 1000).unwrap_or(u32::MAX)
    }

    /// Rewrites records of PGs that have not been written for many epochs, so that old maps can go.
    fn keep_records_fresh(&mut self, fx: &mut Effects) {
        const STALE_EPOCHS: u32 = 100;
        let epoch = self.maps.epoch().0;
        let stale = |h: &PgHost| h.started && h.stored_epoch.0 + STALE_EPOCHS < epoch;
        let pgids: Vec<_> = self.pgs.iter().filter(|(_, h)| stale(h)).map(|(p, _)| *p).collect();
        for pgid in pgids.into_iter().take(16) {
            let Some(host) = self.pgs.get_mut(&pgid) else { continue };
            host.stored_epoch = host.pg.epoch();
            let mut txn = host.transaction();
            let record = host.pg.info_record();
            host.put_meta(&mut txn, [record]);
            self.submit(pgid, txn, Vec::new(), fx);
        }
    }

    fn trim_maps(&mut self, fx: &mut Effects) {
        let recorded = self.pgs.values().map(|h| h.stored_epoch);
        let needed = recorded.chain(self.ahead.keys().copied()).min();
        let needed = needed.unwrap_or_else(|| self.maps.epoch());
        let mut txn = map_transaction();
        if self.maps.trim(needed, &mut txn) {
            self.submit_maps(txn, fx);
        }
    }
}

/// What is the OSD's own is in no pool.
fn pools_usage(accounts: Vec<store::AccountUsage>) -> Vec<PoolUsage> {
    let of_pools = accounts.into_iter().filter(|a| a.account != OWN_ACCOUNT);
    let usage = |a: store::AccountUsage| PoolUsage {
        pool: PoolId(a.account as i64),
        allocated: a.allocated,
        stored: a.stored,
    };
    of_pools.map(usage).collect()
}

fn pool_compressed(c: store::Compressed) -> PoolCompressed {
    let store::Compressed { account, original, allocated, stored } = c;
    PoolCompressed { pool: PoolId(account as i64), original, allocated, stored }
}

fn pg_stat(host: &mut PgHost, epoch: Epoch, now: Now, removed: Option<&SnapSet>) -> PgStat {
    let (pg, info) = (&host.pg, host.pg.info());
    let mut state = pg.state();
    state |= host.trim_bits(removed);
    if pg.accepts_io() && host.priors.left(now.mono).next().is_some() {
        state |= StateBits::WAIT;
    }
    state |= host.scrub_bits();
    state |= host.course.bits();
    let trimmed = host.trimmer.done().clone();
    let snaps_to_trim = removed.map_or(0, SnapSet::len).saturating_sub(trimmed.len());
    if host.reported.0 != state.0 {
        host.reported = (state.0, now.wall);
    }
    let mapping = pg.mapping();
    let number = |o: Option<OsdId>| o.map_or(-1, |o| o.0);
    let (lacking, misplaced) = pg.copies_lacking();
    // It is clean now, not only when its interval began.
    let is_clean = pg.state().has(StateBits::CLEAN);
    let last_epoch_clean = if is_clean { epoch } else { info.history.last_epoch_clean };
    PgStat {
        pgid: pg.pgid(),
        state: state.0,
        state_since: host.reported.1,
        epoch,
        last_update: info.last_update,
        log_tail: info.log_tail,
        log_entries: pg.log().len() as u64,
        log_dups: pg.log().dup_count() as u64,
        up: mapping.up.to_vec(),
        acting: mapping.acting.to_vec(),
        up_primary: number(mapping.up_primary),
        acting_primary: number(mapping.acting_primary),
        mapping_epoch: info.history.same_interval_since,
        created: info.history.epoch_created,
        last_epoch_clean,
        sums: info.sums,
        degraded: pg.degraded_count() + lacking,
        misplaced,
        unfound: pg.unfound_count() as u64,
        io: host.io,
        recovered_objects: host.recovered.0,
        recovered_bytes: host.recovered.1,
        blocked_by: pg.blocked_by(),
        trimmed,
        snaps_to_trim: u32::try_from(snaps_to_trim).unwrap_or(u32::MAX),
        scrub: info.history.scrub,
    }
}

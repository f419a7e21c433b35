//! What is scrubbed when, for people.

use crate::daemon::Daemon;
use admin::Answer;
use pg::scrub::Plan;
use serde_json::{Value, json};
use types::UTime;

impl Daemon {
    /// `dump_scrubs`: the PGs that this OSD leads, and when they are next, the first one first.
    pub(crate) fn planned_scrubs(&self) -> Answer {
        let map = self.maps.current();
        let mut all: Vec<(UTime, Value)> = Vec::new();
        for (pgid, host) in self.pgs.iter().filter(|(_, h)| h.started && h.pg.is_primary()) {
            let Some(pool) = map.pool(pgid.pool) else { continue };
            let intervals = self.limits.scrub.intervals_of(pool);
            let record = &host.pg.info().history.scrub;
            let plan = Plan::of(*pgid, record, pool.create_time, self.now.wall, &intervals);
            let forced = host.scrub.requested.is_some();
            let at = if forced { UTime::ZERO } else { plan.light_at.min(plan.deep_at) };
            let shown = json!({
                "pgid": pgid.to_string(),
                "sched_time": at.to_string(),
                "deadline": plan.late_at.to_string(),
                "forced": forced,
                "deep_sched_time": plan.deep_at.to_string(),
                "running": host.scrub.running.is_some(),
            });
            all.push((at, shown));
        }
        all.sort_by_key(|(at, _)| *at);
        Answer::json(all.into_iter().map(|(_, shown)| shown).collect())
    }

    /// `dump_scrub_reservations`
    pub(crate) fn scrub_reservations(&self) -> Answer {
        let count =
            |is: fn(&crate::host::PgHost) -> bool| self.pgs.values().filter(|h| is(h)).count();
        Answer::json(json!({
            "scrubs_local": count(|h| h.scrub.running.is_some()),
            "scrubs_remote": count(|h| h.scrub.granted.is_some()),
            "osd_max_scrubs": self.limits.scrub.max_scrubs,
        }))
    }
}

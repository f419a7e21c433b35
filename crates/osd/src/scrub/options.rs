//! What the options of scrub come to.

use admin::settings::Settings;
use maps::PgPool;
use pg::scrub::Intervals;
use std::time::Duration;
use store::ScrubLimits;
use types::UTime;

/// What they come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScrubSettings {
    /// Scrubs that this OSD takes part in.
    pub max_scrubs: usize,
    /// Also while something is being recovered.
    pub during_recovery: bool,
    hours: (u64, u64),
    days: (u64, u64),
    /// How often.
    pub intervals: Intervals,
    /// Objects that are compared at once.
    pub chunk_objects: usize,
    /// The same, at least.
    pub chunk_objects_min: usize,
    /// Bytes that a chunk of a deep scrub reads, unless one object has more.
    pub chunk_bytes: u64,
    /// Between two chunks.
    pub sleep: Duration,
    /// Times that a chunk gives way to a client's write.
    pub max_preemptions: u32,
    /// For how long, in milliseconds.
    pub give_way_ms: u64,
    /// Scrubs that were due repair what is certain.
    pub auto_repair: bool,
    /// But no more than this, beside what checksums prove.
    pub auto_repair_errors: u64,
    /// What is read at once.
    pub slice: ScrubLimits,
}

impl ScrubSettings {
    /// As the settings say.
    pub fn of(settings: &Settings) -> Self {
        let count = |name| usize::try_from(settings.uint(name)).unwrap_or(usize::MAX);
        let seconds = |name| types::seconds(settings.float(name));
        ScrubSettings {
            max_scrubs: count("osd_max_scrubs"),
            during_recovery: settings.bool("osd_scrub_during_recovery"),
            hours: (settings.uint("osd_scrub_begin_hour"), settings.uint("osd_scrub_end_hour")),
            days: (
                settings.uint("osd_scrub_begin_week_day"),
                settings.uint("osd_scrub_end_week_day"),
            ),
            intervals: Intervals {
                min: seconds("osd_scrub_min_interval"),
                max: seconds("osd_scrub_max_interval"),
                deep: seconds("osd_deep_scrub_interval"),
                randomize: settings.float("osd_scrub_interval_randomize_ratio"),
                deep_randomize: settings.float("osd_deep_scrub_randomize_ratio"),
            },
            chunk_objects: count("osd_scrub_chunk_max"),
            chunk_objects_min: count("osd_scrub_chunk_min"),
            chunk_bytes: 16 << 20,
            sleep: seconds("osd_scrub_sleep"),
            max_preemptions: settings.uint("osd_scrub_max_preemptions") as u32,
            give_way_ms: 20,
            auto_repair: settings.bool("osd_scrub_auto_repair"),
            auto_repair_errors: settings.uint("osd_scrub_auto_repair_num_errors"),
            slice: ScrubLimits {
                data_bytes: settings.uint("osd_deep_scrub_stride"),
                omap_entries: count("osd_deep_scrub_keys"),
                ..ScrubLimits::default()
            },
        }
    }

    /// Those of a pool, which may have its own.
    pub fn intervals_of(&self, pool: &PgPool) -> Intervals {
        let own = |name: &str| pool.opts.duration(name);
        Intervals {
            min: own("scrub_min_interval").unwrap_or(self.intervals.min),
            max: own("scrub_max_interval").unwrap_or(self.intervals.max),
            deep: own("deep_scrub_interval").unwrap_or(self.intervals.deep),
            ..self.intervals
        }
    }

    /// Whether scrubs may begin at this time of the week.
    pub fn is_time(&self, now: UTime) -> bool {
        let within = |(begin, end): (u64, u64), at: u64| match begin.cmp(&end) {
            std::cmp::Ordering::Less => begin <= at && at < end,
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Greater => at >= begin || at < end,
        };
        let hours = u64::from(now.sec) / 3600;
        // The first day of all time was a Thursday.
        within(self.hours, hours % 24) && within(self.days, (hours / 24 + 4) % 7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(hours: (u64, u64), days: (u64, u64)) -> ScrubSettings {
        let all = Settings::new([admin::options::OSD]);
        ScrubSettings { hours, days, ..ScrubSettings::of(&all) }
    }

    #[test]
    fn hours_and_days_go_around() {
        // 2026-11-22, a Sunday, 03:15 UTC.
        let sunday = UTime { sec: 1_795_317_300, nsec: 0 };
        let at = |hours, days| settings(hours, days).is_time(sunday);
        assert!(at((0, 0), (0, 0)) && at((3, 4), (0, 0)) && at((22, 6), (0, 0)));
        assert!(!at((4, 6), (0, 0)) && !at((22, 3), (0, 0)));
        assert!(at((0, 0), (0, 1)) && at((0, 0), (6, 1)) && !at((0, 0), (1, 6)));
    }
}

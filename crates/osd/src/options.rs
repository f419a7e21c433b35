//! What the options of the OSD ([`admin::options::OSD`]) come to.

use crate::scrub::ScrubSettings;
use admin::settings::Settings;
use std::time::Duration;

/// How much at a time. The defaults suit NVMe; tests make them small to meet every boundary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Memory for the store's caches and log: half of the OSD's.
    pub store_bytes: usize,
    /// Bytes of client requests in flight, beyond which no more are received: a quarter of the OSD's
    /// memory.
    pub request_bytes: usize,
    /// Entries of all PGs' logs together.
    pub log_entries: usize,
    /// No PG's log is kept shorter than this.
    pub min_log_entries: usize,
    /// Entries of a PG's log that are trimmed at once.
    pub log_trim_entries: usize,
    /// Objects that are pulled or pushed at the same time, of all PGs.
    pub recovery_objects: usize,
    /// Share of the time that recovery may take while clients are at work.
    pub recovery_share: f64,
    /// PGs that recover at the same time, of each kind.
    pub max_backfills: usize,
    /// Bytes of one push message.
    pub push_bytes: u64,
    /// Bytes that a disk reads in one piece while it does one read more.
    pub read_cost_bytes: u64,
    /// Omap bytes of one push message.
    pub push_omap_bytes: usize,
    /// Omap entries of one push message.
    pub push_omap_entries: usize,
    /// Objects compared at once by a backfill.
    pub scan_objects: usize,
    /// Objects of one page of a listing.
    pub list_entries: usize,
    /// Objects removed in one transaction when a whole PG goes.
    pub remove_objects: usize,
    /// PGs that trim snapshots at the same time.
    pub trim_pgs: usize,
    /// Objects that a PG trims at the same time.
    pub trim_objects: usize,
    /// What is kept of ended requests.
    pub history: HistoryLimits,
    /// From here on a request counts as blocked.
    pub complaint: Duration,
    /// An OSD as full as this is full.
    pub failsafe_full_ratio: f64,
    /// What clients read is kept in memory.
    pub keep_reads: bool,
    /// The disk is told which space is free.
    pub discard: bool,
    /// How often other OSDs are asked whether they are there.
    pub heartbeat_interval: Duration,
    /// How long an answer may take.
    pub heartbeat_grace: Duration,
    /// How many are asked at least.
    pub heartbeat_peers: usize,
    /// Scrubs.
    pub scrub: ScrubSettings,
}

/// What is kept of ended requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// How many.
    pub ops: usize,
    /// For how long they are shown.
    pub duration: Duration,
    /// How many slow ones.
    pub slow_ops: usize,
    /// From here on a request is slow.
    pub slow: Duration,
}

impl Limits {
    /// As the settings say.
    pub fn of(settings: &Settings) -> Self {
        let count = |name| usize::try_from(settings.uint(name)).unwrap_or(usize::MAX);
        let seconds = |name| types::seconds(settings.float(name));
        Limits {
            store_bytes: count("osd_memory_target") / 2,
            request_bytes: count("osd_memory_target") / 4,
            log_entries: count("osd_target_pg_log_entries_per_osd"),
            min_log_entries: count("osd_min_pg_log_entries"),
            log_trim_entries: count("osd_pg_log_trim_min"),
            recovery_objects: count("osd_recovery_max_active"),
            recovery_share: settings.float("osd_recovery_share"),
            max_backfills: count("osd_max_backfills"),
            push_bytes: settings.uint("osd_recovery_max_chunk"),
            read_cost_bytes: settings.uint("osd_recovery_read_cost"),
            push_omap_bytes: count("osd_recovery_max_omap_chunk"),
            push_omap_entries: count("osd_recovery_max_omap_entries_per_chunk"),
            scan_objects: count("osd_backfill_scan_max"),
            list_entries: count("osd_max_pgls"),
            remove_objects: count("osd_target_transaction_size"),
            trim_pgs: count("osd_max_trimming_pgs"),
            trim_objects: count("osd_pg_max_concurrent_snap_trims"),
            history: HistoryLimits {
                ops: count("osd_op_history_size"),
                duration: settings.duration("osd_op_history_duration"),
                slow_ops: count("osd_op_history_slow_op_size"),
                slow: seconds("osd_op_history_slow_op_threshold"),
            },
            complaint: seconds("osd_op_complaint_time"),
            failsafe_full_ratio: settings.float("osd_failsafe_full_ratio"),
            keep_reads: settings.bool("bluestore_default_buffered_read"),
            discard: settings.bool("bdev_enable_discard"),
            heartbeat_interval: seconds("osd_heartbeat_interval"),
            heartbeat_grace: seconds("osd_heartbeat_grace"),
            heartbeat_peers: count("osd_heartbeat_min_peers"),
            scrub: ScrubSettings::of(settings),
        }
    }
}

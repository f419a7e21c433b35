//! Options of the OSD, by Ceph's names where they exist.

use crate::scrub::ScrubSettings;
use admin::settings::{MOST_SECONDS, OptionDef, OptionKind, Settings};
use std::time::Duration;

use OptionKind::{Bool, Float, Secs, Size, Str, Uint};

/// More memory than machines have; multiples of it still fit 64 bits.
const MOST_MEMORY_BYTES: f64 = (64u64 << 40) as f64;

/// The options this OSD heeds.
pub const OSD: &[OptionDef] = &[
    admin::common::ASSERT,
    OptionDef::new(
        "osd_memory_target",
        Size,
        "512M",
        "memory the OSD may use: half for the store, a quarter for requests in flight; data that was \
         read has what of nine sixteenths nobody else needs",
    )
    .within(32.0 * 1048576.0, MOST_MEMORY_BYTES)
    .basic(),
    OptionDef::new(
        "osd_target_pg_log_entries_per_osd",
        Uint,
        "200000",
        "entries of all PG logs together",
    )
    .at_least(1.0),
    OptionDef::new("osd_min_pg_log_entries", Uint, "250", "no PG's log is trimmed below this")
        .at_least(1.0),
    OptionDef::new("osd_pg_log_trim_min", Uint, "64", "log entries that are trimmed at once")
        .at_least(1.0),
    OptionDef::new(
        "osd_recovery_max_active",
        Uint,
        "16",
        "objects that are pulled or pushed at the same time",
    )
    .within(1.0, 4096.0),
    OptionDef::new(
        "osd_recovery_share",
        Float,
        "0.2",
        "share of the OSD's time that recovery may take while clients are at work; without clients it \
         takes all",
    )
    .within(0.01, 1.0)
    .basic(),
    OptionDef::new(
        "osd_max_backfills",
        Uint,
        "2",
        "PGs that recover or are filled at the same time: so many that the OSD leads, and so many that \
         get objects here",
    )
    .within(1.0, 1024.0)
    .basic(),
    // In small extents it all goes through the receiver's log.
    OptionDef::new("osd_recovery_max_chunk", Size, "8M", "data of one push message")
        .within(4096.0, 12582912.0),
    OptionDef::new(
        "osd_recovery_read_cost",
        Size,
        "32K",
        "so much a disk reads in one piece while it does one read more: when what was changed of an object \
         costs more than the whole, the whole is sent",
    )
    .within(0.0, 67108864.0),
    // It must fit into the smallest log.
    OptionDef::new("osd_recovery_max_omap_chunk", Size, "512K", "omap bytes of one push message")
        .within(16.0, 67108864.0)
        .dev(),
    OptionDef::new(
        "osd_recovery_max_omap_entries_per_chunk",
        Uint,
        "8096",
        "omap entries of one push message",
    )
    .at_least(1.0),
    OptionDef::new("osd_backfill_scan_max", Uint, "512", "objects a backfill compares at once")
        .within(2.0, 65536.0),
    OptionDef::new(
        "osd_target_transaction_size",
        Uint,
        "64",
        "objects removed in one transaction when a whole PG goes",
    )
    .within(1.0, 4096.0),
    OptionDef::new(
        "osd_max_trimming_pgs",
        Uint,
        "2",
        "PGs that free what removed snapshots held, at the same time",
    )
    .within(1.0, 1024.0),
    OptionDef::new(
        "osd_pg_max_concurrent_snap_trims",
        Uint,
        "2",
        "objects that a PG trims at the same time",
    )
    .within(1.0, 1024.0),
    OptionDef::new(
        "osd_bench_small_size_max_iops",
        Uint,
        "100",
        "writes below 1 MiB that `ceph tell osd.N bench` may make in a second of `osd_bench_duration`",
    ),
    OptionDef::new(
        "osd_bench_large_size_max_throughput",
        Size,
        "100M",
        "bytes of larger writes that it may write in a second of `osd_bench_duration`",
    ),
    OptionDef::new("osd_bench_max_block_size", Size, "64M", "bytes of its largest write")
        .within(1.0, 67108864.0),
    OptionDef::new("osd_bench_duration", Uint, "30", "seconds for which it may write"),
    OptionDef::new("osd_op_history_size", Uint, "20", "ended requests that are kept to be shown")
        .within(0.0, 10_000.0),
    OptionDef::new("osd_op_history_duration", Secs, "600", "for how long they are shown"),
    OptionDef::new(
        "osd_op_history_slow_op_size",
        Uint,
        "20",
        "slow requests that are kept to be shown",
    )
    .within(0.0, 10_000.0),
    OptionDef::new(
        "osd_op_history_slow_op_threshold",
        Float,
        "10",
        "a request is kept as slow from so many seconds on",
    )
    .within(0.0, MOST_SECONDS),
    OptionDef::new(
        "osd_op_complaint_time",
        Float,
        "30",
        "a request counts as blocked from so many seconds on",
    )
    .within(0.0, MOST_SECONDS),
    OptionDef::new(
        "osd_failsafe_full_ratio",
        Float,
        "0.97",
        "an OSD that is as full as this counts as full, whatever 'ceph osd set-full-ratio' says",
    )
    .within(0.1, 1.0),
    OptionDef::new(
        "bluestore_default_buffered_read",
        Bool,
        "true",
        "keep in memory what clients read, if they do not say that they read it once",
    ),
    OptionDef::new(
        "bdev_enable_discard",
        Bool,
        "false",
        "tell the disk which space is free; a store in a file keeps the file's blocks, so that a full \
         file system never stops it",
    )
    .basic(),
    OptionDef::new(
        "osd_heartbeat_interval",
        Float,
        "1",
        "how often other OSDs are asked whether they are there, in seconds",
    )
    .within(0.1, 60.0),
    OptionDef::new(
        "osd_heartbeat_grace",
        Float,
        "3",
        "an OSD that does not answer for so many seconds is reported to the mon as failed",
    )
    .within(0.5, 3600.0)
    .basic(),
    OptionDef::new(
        "osd_heartbeat_min_peers",
        Uint,
        "10",
        "other OSDs that are asked at least, beside those with the same PGs",
    )
    .within(1.0, 1000.0),
    OptionDef::new("osd_objectstore", Str, "loligo", "the kind of store").at_start(),
];

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

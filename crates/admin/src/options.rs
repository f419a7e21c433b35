//! The options of OSDs, by Ceph's names where they exist: here for OSDs, which heed them, and for the mon, which
//! explains them, checks what is set, and says what they are when nobody has set them.

use crate::settings::{MOST_SECONDS, OptionDef, OptionKind};

use OptionKind::{Bool, Float, Secs, Size, Str, Uint};

/// More memory than machines have; multiples of it still fit 64 bits.
const MOST_MEMORY_BYTES: f64 = (64u64 << 40) as f64;

/// The mon heeds it, too.
pub const HEARTBEAT_GRACE: OptionDef = OptionDef::new(
    "osd_heartbeat_grace",
    Float,
    "3",
    "an OSD that does not answer for so many seconds is reported as failed, and marked down",
)
.within(0.5, 3600.0)
.basic();

/// The mon heeds it, too: it warns of late scrubs.
pub const SCRUB_MAX_INTERVAL: OptionDef = OptionDef::new(
    "osd_scrub_max_interval",
    Float,
    "604800",
    "a scrub is late when the last one was so long ago, in seconds",
)
.within(0.0, MOST_SECONDS);

/// The mon heeds it, too.
pub const DEEP_SCRUB_INTERVAL: OptionDef = OptionDef::new(
    "osd_deep_scrub_interval",
    Float,
    "604800",
    "a PG is scrubbed deeply so often, in seconds",
)
.within(0.0, MOST_SECONDS);

/// The options that OSDs heed.
pub const OSD: &[OptionDef] = &[
    crate::common::ASSERT,
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
    OptionDef::new("osd_max_pgls", Uint, "1024", "objects listed in one answer, at most")
        .within(1.0, 1024.0),
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
    HEARTBEAT_GRACE,
    OptionDef::new(
        "osd_heartbeat_min_peers",
        Uint,
        "10",
        "other OSDs that are asked at least, beside those with the same PGs",
    )
    .within(1.0, 1000.0),
    OptionDef::new("osd_objectstore", Str, "loligo", "the kind of store").at_start(),
    // Of scrub, with Ceph's defaults unless said otherwise.
    OptionDef::new("osd_max_scrubs", Uint, "1", "scrubs that an OSD takes part in")
        .within(1.0, 64.0),
    OptionDef::new(
        "osd_scrub_during_recovery",
        Bool,
        "false",
        "scrubs that are due begin while this OSD recovers PGs",
    ),
    OptionDef::new(
        "osd_scrub_begin_hour",
        Uint,
        "0",
        "scrubs begin from this hour on (UTC), unless they are late",
    )
    .within(0.0, 23.0),
    OptionDef::new(
        "osd_scrub_end_hour",
        Uint,
        "0",
        "scrubs begin before this hour (UTC); the same as the first: at any",
    )
    .within(0.0, 24.0),
    OptionDef::new("osd_scrub_begin_week_day", Uint, "0", "from this day on; 0 is Sunday")
        .within(0.0, 6.0),
    OptionDef::new("osd_scrub_end_week_day", Uint, "0", "before this day").within(0.0, 7.0),
    OptionDef::new(
        "osd_scrub_min_interval",
        Float,
        "86400",
        "a PG is scrubbed so often, in seconds",
    )
    .within(0.0, MOST_SECONDS),
    SCRUB_MAX_INTERVAL,
    DEEP_SCRUB_INTERVAL,
    OptionDef::new(
        "osd_scrub_interval_randomize_ratio",
        Float,
        "0.5",
        "up to this part of osd_scrub_min_interval is added to it",
    )
    .within(0.0, 100.0),
    OptionDef::new(
        "osd_deep_scrub_randomize_ratio",
        Float,
        "0.15",
        "this part of light scrubs is deep",
    )
    .within(0.0, 1.0),
    OptionDef::new("osd_scrub_chunk_max", Uint, "25", "objects that are compared at once")
        .within(1.0, 1024.0),
    OptionDef::new("osd_scrub_chunk_min", Uint, "5", "the same, when clients write to them")
        .within(1.0, 1024.0),
    OptionDef::new("osd_scrub_sleep", Float, "0", "seconds between two chunks").within(0.0, 3600.0),
    OptionDef::new(
        "osd_scrub_max_preemptions",
        Uint,
        "5",
        "times that a chunk gives way to a client's write",
    )
    .within(0.0, 30.0),
    OptionDef::new(
        "osd_scrub_auto_repair",
        Bool,
        "true",
        "scrubs that were due repair copies that are certain to be bad: by their checksums, or because \
         most copies agree. (Ceph's default is false: it cannot tell.) What an operator begins repairs \
         nothing unless it is told to",
    ),
    OptionDef::new(
        "osd_scrub_auto_repair_num_errors",
        Uint,
        "5",
        "no more errors than this are repaired by such a scrub, beside those that checksums prove",
    ),
    OptionDef::new("osd_deep_scrub_stride", Size, "512K", "data read at once by a deep scrub")
        .within(4096.0, 67_108_864.0),
    OptionDef::new(
        "osd_deep_scrub_keys",
        Uint,
        "1024",
        "omap entries read at once by a deep scrub",
    )
    .at_least(1.0),
];

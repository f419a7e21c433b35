//! Settings of OSDs under test.

use io::Rng;
use std::collections::BTreeMap;

/// Small numbers meet every boundary: logs that are trimmed before a copy is back, objects in many
/// parts, listings of few objects. Sometimes none: the defaults count too.
pub fn small_options(rng: &mut Rng) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    if rng.u8(0..4) == 0 {
        return options;
    }
    let mut set = |name: &str, value: u64| drop(options.insert(name.into(), value.to_string()));
    set("osd_target_pg_log_entries_per_osd", 1);
    set("osd_min_pg_log_entries", rng.u64(1..60));
    set("osd_pg_log_trim_min", rng.u64(1..10));
    set("osd_recovery_max_active", rng.u64(1..6));
    set("osd_recovery_max_chunk", rng.u64(4096..80_000));
    set("osd_recovery_read_cost", 0);
    set("osd_recovery_max_omap_chunk", rng.u64(16..5000));
    set("osd_recovery_max_omap_entries_per_chunk", rng.u64(1..8));
    set("osd_backfill_scan_max", rng.u64(2..12));
    set("osd_max_pgls", rng.u64(1..8));
    set("osd_target_transaction_size", rng.u64(1..6));
    if rng.bool() {
        options.insert("bdev_enable_discard".into(), "true".into());
    }
    options
}

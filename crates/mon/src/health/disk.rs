//! Checks of the disk that the mon's own store lies on. Source: Ceph `mon/HealthMonitor.cc`.
//!
//! Ceph's mon does not start when less is free than `mon_data_avail_crit`. Ours is the only one, and what makes room, as
//! to delete pools and snapshots, needs it: it goes on until a commit fails, and starts whatever is free. Its store reuses
//! the room of old maps, so that it grows only while PGs are not clean for long, or the cluster grows.

use super::{Checks, Severity};
use crate::cluster::Cluster;
use admin::units::Bytes;

pub(super) fn check(c: &Cluster, checks: &mut Checks) {
    let Some(space) = c.space else { return };
    let name = &c.name;
    let percent = |bytes: u64| bytes.saturating_mul(100).checked_div(space.disk_bytes);
    let limit = |option| c.settings.uint(option);
    if let Some(free) = percent(space.available_bytes) {
        let (warn, crit) = (limit("mon_data_avail_warn"), limit("mon_data_avail_crit"));
        let found = if free <= crit {
            Some(("MON_DISK_CRIT", Severity::Err, "very low"))
        } else {
            (free <= warn).then_some(("MON_DISK_LOW", Severity::Warn, "low"))
        };
        if let Some((code, severity, how)) = found {
            checks
                .add(code, severity, 1, format_args!("mon {name} is {how} on available space"))
                .detail([format!("mon.{name} has {free}% avail")])
                .hint(
                    "make room where its store lies; when there is none it ends, and nothing in the cluster \
                     changes until it is started again",
                );
        }
    }
    let most = limit("mon_data_size_warn");
    if space.store_bytes >= most {
        checks
            .add("MON_DISK_BIG", Severity::Warn, 1, format_args!("mon {name} is using a lot of disk space"))
            .detail([format!(
                "mon.{name} is {} >= mon_data_size_warn ({})",
                Bytes(space.store_bytes),
                Bytes(most)
            )])
            .hint("old maps are kept while PGs are not clean: see 'ceph health detail' for why they are not");
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::bench::Bench;
    use io::kv::KvSpace;

    #[test]
    fn a_disk_of_the_mon_that_fills_is_told_of_in_time() {
        const GIB: u64 = 1 << 30;
        let mut bench = Bench::new();
        let mut texts = |store_gib: u64, available_gib: u64| {
            let (store_bytes, available_bytes) = (store_gib * GIB, available_gib * GIB);
            bench.c.space = Some(KvSpace { store_bytes, disk_bytes: 100 * GIB, available_bytes });
            let health = bench.c.health(bench.now()).text(true);
            let about = |line: &&str| line.contains("MON_DISK") || line.contains("    mon.a ");
            health.lines().filter(about).map(|line| line.trim().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(texts(1, 31), Vec::<String>::new());
        let low = ["[WRN] MON_DISK_LOW: mon a is low on available space", "mon.a has 30% avail"];
        assert_eq!(texts(1, 30), low);
        let crit =
            ["[ERR] MON_DISK_CRIT: mon a is very low on available space", "mon.a has 5% avail"];
        assert_eq!(texts(1, 5), crit);
        let big = [
            "[WRN] MON_DISK_BIG: mon a is using a lot of disk space",
            "mon.a is 15 GiB >= mon_data_size_warn (15 GiB)",
        ];
        assert_eq!(texts(15, 80), big);
    }
}

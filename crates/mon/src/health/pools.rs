//! Checks of pools.

use super::{Checks, Severity};
use crate::cluster::Cluster;
use crate::pgmap::Sums;
use maps::{OsdMap, PgPool, PoolFlags};
use types::PoolId;

pub(super) fn check(c: &Cluster, sums: &Sums, checks: &mut Checks) {
    let map = c.map();
    full(map, checks);
    if c.settings.bool("mon_warn_on_pool_no_redundancy") {
        let lonely = names(map, |_, p| p.size == 1);
        let lines = lonely.iter().map(|n| format!("pool '{n}' has no replicas configured"));
        if !lonely.is_empty() {
            let summary = format!("{} pool(s) have no replicas configured", lonely.len());
            checks
                .add("POOL_NO_REDUNDANCY", Severity::Warn, lonely.len(), summary)
                .detail(lines)
                .hint("one lost disk loses data; 'ceph osd pool set POOL size 3'");
        }
    }
    if c.settings.bool("mon_warn_on_pool_pg_num_not_power_of_two") {
        let odd = |p: &PgPool| !p.pg_num.is_power_of_two();
        let mut lines = Vec::new();
        for (id, pool) in map.pools.iter().filter(|(_, p)| odd(p)) {
            let name = map.pool_name(*id).unwrap_or_default();
            lines.push(format!("pool '{name}' pg_num {} is not a power of two", pool.pg_num));
        }
        if !lines.is_empty() {
            let summary = format!("{} pool(s) have non-power-of-two pg_num", lines.len());
            checks
                .add("POOL_PG_NUM_NOT_POWER_OF_TWO", Severity::Warn, lines.len(), summary)
                .detail(lines)
                .hint(
                    "PGs differ in size by a factor of two; make pools with pg_num 16, 32, 64, ..",
                );
        }
    }
    smaller_pgp_num(map, checks);
    if c.settings.bool("mon_warn_on_pool_no_app") {
        application(map, sums, checks);
    }
    too_many(c, map, checks);
}

fn names(map: &OsdMap, is: impl Fn(PoolId, &PgPool) -> bool) -> Vec<String> {
    let found = map.pools.iter().filter(|(id, p)| is(**id, p));
    found.map(|(id, _)| map.pool_name(*id).unwrap_or_default().to_owned()).collect()
}

/// Pools whose PGs are not placed each by itself, though nobody is at work on it.
fn smaller_pgp_num(map: &OsdMap, checks: &mut Checks) {
    let smaller = |p: &PgPool| p.pg_num > p.pgp_num && p.pgp_num_target < p.pg_num_target;
    let lines = map.pools.iter().filter(|(_, p)| smaller(p)).map(|(id, p)| {
        let name = map.pool_name(*id).unwrap_or_default();
        format!("pool {name} pg_num {} > pgp_num {}", p.pg_num, p.pgp_num)
    });
    let lines: Vec<String> = lines.collect();
    if !lines.is_empty() {
        let summary = format!("{} pools have pg_num > pgp_num", lines.len());
        checks
            .add("SMALLER_PGP_NUM", Severity::Warn, lines.len(), summary)
            .detail(lines)
            .hint("PGs lie on each other's OSDs; 'ceph osd pool set POOL pgp_num PG_NUM'");
    }
}

fn full(map: &OsdMap, checks: &mut Checks) {
    let kinds = [
        (PoolFlags::FULL, "POOL_FULL", "full"),
        (PoolFlags::BACKFILLFULL, "POOL_BACKFILLFULL", "backfillfull"),
        (PoolFlags::NEARFULL, "POOL_NEARFULL", "nearfull"),
    ];
    for (flag, code, word) in kinds {
        let of = names(map, |_, p| p.flags.contains(flag));
        if of.is_empty() {
            continue;
        }
        let lines = of.iter().map(|name| {
            let quota = map.pool_by_name(name).and_then(|id| map.pool(id));
            let quota = quota.is_some_and(|p| p.flags.contains(PoolFlags::FULL_QUOTA));
            match (flag, quota) {
                (PoolFlags::FULL, true) => format!("pool '{name}' is full (running out of quota)"),
                (PoolFlags::FULL, false) => format!("pool '{name}' is full (no space)"),
                _ => format!("pool '{name}' is {word}"),
            }
        });
        let lines: Vec<String> = lines.collect();
        checks
            .add(code, Severity::Warn, of.len(), format_args!("{} pool(s) {word}", of.len()))
            .detail(lines)
            .hint("delete data, add OSDs, or raise the quota with 'ceph osd pool set-quota'");
    }
}

fn application(map: &OsdMap, sums: &Sums, checks: &mut Checks) {
    let used = |id: &PoolId| sums.pools.get(id).is_some_and(|s| s.stats.sum.num_objects > 0);
    let without = names(map, |id, p| p.application_metadata.is_empty() && used(&id));
    if without.is_empty() {
        return;
    }
    let summary = format!("{} pool(s) do not have an application enabled", without.len());
    checks
        .add("POOL_APP_NOT_ENABLED", Severity::Warn, without.len(), summary)
        .detail(without.iter().map(|n| format!("application not enabled on pool '{n}'")))
        .hint(
            "'ceph osd pool application enable POOL APP' says what it is for: 'rbd', 'cephfs', \
             'rgw', or a word of yours",
        );
}

fn too_many(c: &Cluster, map: &OsdMap, checks: &mut Checks) {
    let max = c.settings.uint("mon_max_pg_per_osd");
    let copies: u64 = map.pools.values().map(|p| u64::from(p.pg_num) * u64::from(p.size)).sum();
    let osds = map.in_osds().count() as u64;
    let each = copies.checked_div(osds).unwrap_or(0);
    if each > max {
        let summary = format!("too many PGs per OSD ({each} > max {max})");
        let count = usize::try_from(each).unwrap_or(usize::MAX);
        checks
            .add("TOO_MANY_PGS", Severity::Warn, count, summary)
            .hint("add OSDs, or make pools with fewer PGs");
    }
}

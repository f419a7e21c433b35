//! How many PGs a pool has: what operators want, and the way there in steps.
//!
//! A wish only sets a target. Whenever everything is well the numbers go towards it
//! ([`Cluster::adjust_pgs`]; with Ceph its mgr does this, `mgr/DaemonServer.cc: adjust_pgs`): first
//! `pg_num`, which splits PGs where they lie, then `pgp_num`, which moves them, by as much as keeps the
//! misplaced share of all objects small.

use crate::cluster::Cluster;
use crate::pgmap::Sums;
use admin::CommandError;
use maps::{OsdMap, PgPool, PoolOpt, PoolOptKey};
use pg::StateBits;
use types::{Epoch, Errno, PgId, PoolId};

impl Cluster {
    /// Sets the `pg_num` that a pool is to have. `false` when it is that already.
    ///
    /// # Errors
    /// In Ceph's words (`OSDMonitor::prepare_command_pool_set`).
    pub fn want_pg_num(&mut self, id: PoolId, n: i64) -> Result<bool, CommandError> {
        let Some(pool) = self.map().pool(id).cloned() else { return Ok(false) };
        if n == i64::from(pool.pg_num_target) {
            return Ok(false);
        }
        let max = self.settings.uint("mon_max_pool_pg_num");
        let wanted = u32::try_from(n).ok().filter(|n| *n > 0 && u64::from(*n) <= max);
        let wanted = wanted.ok_or_else(|| {
            CommandError::new(
                Errno::ERANGE,
                format_args!(
                    "'pg_num' must be greater than 0 and less than or equal to {max} (you may adjust \
                     'mon max pool pg num' for higher values)"
                ),
            )
        })?;
        if self.state.creating.contains_key(&id) {
            let text = "cannot adjust pg_num while initial PGs are being created";
            return Err(CommandError::new(Errno::EBUSY, text));
        }
        if wanted < pool.pg_num {
            return Err(CommandError::unsupported(format_args!(
                "the pool has {} PGs, and OSDs cannot merge PGs yet",
                pool.pg_num
            )));
        }
        self.check_pg_num(id, &pool, wanted)?;
        check_bounds(&pool, n)?;
        self.edit_pool(id, |p, _| {
            // pgp_num follows, unless it was set to something else.
            if p.pg_num_target == p.pgp_num_target {
                p.pgp_num_target = wanted;
            }
            p.pg_num_target = wanted;
            Ok(())
        })?;
        self.adjust_pgs();
        Ok(true)
    }

    /// Sets the `pgp_num` that a pool is to have.
    ///
    /// # Errors
    /// In Ceph's words.
    pub fn want_pgp_num(&mut self, id: PoolId, n: i64, at_once: bool) -> Result<(), CommandError> {
        self.edit_pool(id, |p, _| {
            let pgp_num = u32::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| {
                let text = format!("specified pgp_num must > 0, but you set to {n}");
                CommandError::invalid(text)
            })?;
            if pgp_num > p.pg_num_target {
                let text = format!("specified pgp_num {n} > pg_num {}", p.pg_num_target);
                return Err(CommandError::invalid(text));
            }
            p.pgp_num_target = pgp_num;
            if at_once {
                p.pgp_num = pgp_num.min(p.pg_num);
            }
            Ok(())
        })?;
        self.adjust_pgs();
        Ok(())
    }

    /// Whether the OSDs can bear a pool with so many PGs.
    fn check_pg_num(&self, id: PoolId, pool: &PgPool, pg_num: u32) -> Result<(), CommandError> {
        let more = pg_num.saturating_sub(pool.pg_num_target);
        self.check_pg_load(self.map(), u64::from(more) * u64::from(pool.size)).map_err(|e| {
            let text = format!("pool id {id} pg_num {pg_num} size {} {e}", pool.size);
            CommandError::new(Errno::ERANGE, text)
        })
    }

    /// Brings the numbers of PGs a step nearer to their targets, where everything is well.
    pub fn adjust_pgs(&mut self) {
        let map = self.map().clone();
        let off = |p: &PgPool| p.pg_num != p.pg_num_target || p.pgp_num != p.pgp_num_target;
        let ids: Vec<_> = map.pools.iter().filter(|(_, p)| off(p)).map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return;
        }
        let sums = self.pgmap.sums(&map);
        for id in ids {
            let Some(pool) = map.pool(id) else { continue };
            if self.state.creating.contains_key(&id) || !self.all_serve(&map, id, pool) {
                continue;
            }
            let pg_num = self.next_pg_num(pool);
            // Never both in one map: PGs are split where they lie.
            let pgp_num = if pg_num == pool.pg_num { self.next_pgp_num(pool, &sums) } else { None };
            let epoch = self.state.osdmap.epoch.next();
            if pg_num != pool.pg_num {
                self.pg_num_changed.insert(id, epoch);
            }
            let edited = self.edit_pool(id, |p, _| {
                (p.pg_num, p.pg_num_pending) = (pg_num, pg_num);
                p.pgp_num = pgp_num.unwrap_or(p.pgp_num);
                p.last_change = epoch;
                Ok(())
            });
            debug_assert!(edited.is_ok(), "a pool that was just there");
        }
    }

    /// Whether every PG of a pool is active since the pool got the number of PGs it has.
    fn all_serve(&self, map: &OsdMap, id: PoolId, pool: &PgPool) -> bool {
        let since = self.pg_num_changed.get(&id).copied().unwrap_or(Epoch::ZERO);
        pool.pgs(id).all(|pgid| self.serves(map, pgid, since))
    }

    fn serves(&self, map: &OsdMap, pgid: PgId, since: Epoch) -> bool {
        let entry = self.pgmap.get(pgid);
        let state = self.pgmap.state(map, entry);
        let active = state.has(StateBits::ACTIVE) || state.has(StateBits::PEERED);
        let fresh = entry.is_some_and(|e| e.stat.mapping_epoch >= since);
        active && fresh && !state.has(StateBits::STALE)
    }

    /// The next `pg_num` on the way to the target.
    fn next_pg_num(&self, pool: &PgPool) -> u32 {
        let gap = pool.pg_num.saturating_sub(pool.pgp_num);
        let most = u32::try_from(self.settings.uint("mgr_max_pg_num_change")).unwrap_or(u32::MAX);
        let to = pool.pg_num.saturating_add(most.saturating_sub(gap));
        pool.pg_num_target.min(to).max(pool.pg_num)
    }

    /// The next `pgp_num` on the way to the target, if it may move now.
    fn next_pgp_num(&self, pool: &PgPool, sums: &Sums) -> Option<u32> {
        let target = pool.pgp_num_target.min(pool.pg_num);
        let total = &sums.total;
        let is_well = sums.unknown == 0 && sums.inactive() == 0 && total.num_objects_degraded <= 0;
        if target == pool.pgp_num || !is_well {
            return None;
        }
        let copies = total.num_object_copies.max(1) as f64;
        let misplaced = total.num_objects_misplaced.max(0) as f64 / copies;
        let room = self.settings.float("target_max_misplaced_ratio") - misplaced;
        if room <= 0.0 {
            return None;
        }
        let step = ((f64::from(pool.pg_num) * room) as u32).max(1);
        let (low, high) = (pool.pgp_num.saturating_sub(step), pool.pgp_num.saturating_add(step));
        Some(target.clamp(low.max(1), high))
    }
}

/// The pool's own bounds.
fn check_bounds(pool: &PgPool, n: i64) -> Result<(), CommandError> {
    let bound = |name: &str| match PoolOptKey::from_name(name).and_then(|k| pool.opts.0.get(&k)) {
        Some(PoolOpt::Int(n)) if *n != 0 => Some(*n),
        _ => None,
    };
    if let Some(min) = bound("pg_num_min").filter(|min| n < *min) {
        return Err(CommandError::invalid(format_args!("specified pg_num {n} < pg_num_min {min}")));
    }
    if let Some(max) = bound("pg_num_max").filter(|max| n > *max) {
        return Err(CommandError::invalid(format_args!("specified pg_num {n} < pg_num_max {max}")));
    }
    Ok(())
}

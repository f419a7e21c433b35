//! How many PGs a pool has: what operators want, and the way there in steps.
//!
//! A wish only sets a target. Whenever everything is well the numbers go towards it
//! ([`Cluster::adjust_pgs`]; with Ceph its mgr does this, `mgr/DaemonServer.cc: adjust_pgs`): first
//! `pg_num`, which splits PGs where they lie, then `pgp_num`, which moves them, by as much as keeps the
//! misplaced share of all objects small. Downwards `pgp_num` comes first: PGs are merged when they lie on
//! the same OSDs, one after the other. A merge begins with `pg_num_pending`: the two PGs take no requests
//! then. It ends when both are clean, or is given up for a while when one cannot be.

use crate::cluster::Cluster;
use crate::pgmap::Sums;
use admin::CommandError;
use maps::{OsdMap, PgIdExt, PgMergeMeta, PgPool};
use pg::StateBits;
use std::cell::OnceCell;
use std::time::Duration;
use types::{Epoch, Errno, Mono, PgId, PoolId};

/// How long two PGs may be quiet until they are merged.
const QUIET_AT_MOST: Duration = Duration::from_secs(5);
/// How long a merge that did not come about is not tried again.
const GIVE_UP_FOR: Duration = Duration::from_secs(5);

/// The last step of a pool, since this mon started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Step {
    /// The epoch in which PGs became more, fewer, quiet or not quiet any more.
    epoch: Epoch,
    at: Mono,
    /// No merge begins before.
    not_before: Mono,
}

fn is_merging(pool: &PgPool) -> bool {
    pool.pg_num_pending < pool.pg_num
}

/// Whether a PG is one of the two that are merged next.
pub(crate) fn is_merged_next(map: &OsdMap, pgid: PgId) -> bool {
    let fewer = |p: &&PgPool| p.pg_num_target < p.pg_num || is_merging(p);
    map.pool(pgid.pool).filter(fewer).is_some_and(|pool| {
        let (source, target) = participants(pgid.pool, pool);
        pgid == source || pgid == target
    })
}

/// The PG that is merged next, and the one it goes into.
fn participants(id: PoolId, pool: &PgPool) -> (PgId, PgId) {
    let source = PgId::new(id, pool.pg_num.saturating_sub(1));
    (source, source.parent())
}

impl Cluster {
    /// Sets the `pg_num` that a pool is to have. `false` when it is that already.
    ///
    /// # Errors
    /// In Ceph's words (`OSDMonitor::prepare_command_pool_set`).
    pub fn want_pg_num(&mut self, now: Mono, id: PoolId, n: i64) -> Result<bool, CommandError> {
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
        if wanted > pool.pg_num {
            self.check_pg_num(id, &pool, wanted)?;
        }
        check_bounds(&pool, n)?;
        self.edit_pool(id, |p, _| {
            // pgp_num follows, unless it was set to something else.
            if p.pg_num_target == p.pgp_num_target {
                p.pgp_num_target = wanted;
            }
            p.pg_num_target = wanted;
            Ok(())
        })?;
        self.adjust_pgs(now);
        Ok(true)
    }

    /// Sets the `pgp_num` that a pool is to have.
    ///
    /// # Errors
    /// In Ceph's words.
    pub fn want_pgp_num(
        &mut self,
        now: Mono,
        id: PoolId,
        n: i64,
        at_once: bool,
    ) -> Result<(), CommandError> {
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
        self.adjust_pgs(now);
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
    pub fn adjust_pgs(&mut self, now: Mono) {
        let map = self.map().clone();
        let off = |p: &PgPool| {
            p.pg_num != p.pg_num_target || p.pgp_num != p.pgp_num_target || is_merging(p)
        };
        let ids: Vec<_> = map.pools.iter().filter(|(_, p)| off(p)).map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return;
        }
        let sums = OnceCell::new();
        for id in ids {
            let Some(pool) = map.pool(id) else { continue };
            let step = self.steps.get(&id).copied().unwrap_or_default();
            let next = if is_merging(pool) {
                self.end_of_merge(now, &map, id, pool, &step)
            } else if self.state.creating.contains_key(&id) || !self.all_serve(&map, id, pool) {
                None
            } else {
                self.next_step(now, &map, id, pool, &sums)
            };
            if let Some(next) = next {
                self.make_step(now, id, pool, next);
            }
        }
    }

    /// Whether a report of these PGs may bring a merge further. All else waits for the next tick:
    /// [`Cluster::adjust_pgs`] looks at every PG.
    pub fn is_of_merge(&self, reported: impl IntoIterator<Item = PgId>) -> bool {
        reported.into_iter().any(|pgid| is_merged_next(&self.state.osdmap, pgid))
    }

    fn make_step(&mut self, now: Mono, id: PoolId, old: &PgPool, mut next: PgPool) {
        let epoch = self.state.osdmap.epoch.next();
        let step = self.steps.entry(id).or_default();
        if (next.pg_num, next.pg_num_pending) != (old.pg_num, old.pg_num_pending) {
            (step.epoch, step.at) = (epoch, now);
            force_resends(old, &mut next, epoch);
        }
        if is_merging(old) && next.pg_num == old.pg_num {
            step.not_before = now.after(GIVE_UP_FOR);
        }
        next.last_change = epoch;
        let edited = self.edit_pool(id, |p, _| {
            *p = next;
            Ok(())
        });
        debug_assert!(edited.is_ok(), "a pool that was just there");
    }

    /// The next step of a pool whose PGs all serve. Never two kinds in one map.
    fn next_step(
        &self,
        now: Mono,
        map: &OsdMap,
        id: PoolId,
        pool: &PgPool,
        sums: &OnceCell<Sums>,
    ) -> Option<PgPool> {
        let mut next = pool.clone();
        let pg_num = self.next_pg_num(pool);
        if pg_num > pool.pg_num {
            (next.pg_num, next.pg_num_pending) = (pg_num, pg_num);
        } else if pool.pg_num_target < pool.pg_num && self.can_merge(now, map, id, pool) {
            next.pg_num_pending = pool.pg_num.saturating_sub(1);
        } else {
            next.pgp_num = self.next_pgp_num(map, pool, sums)?;
        }
        Some(next)
    }

    /// Whether the last PG and the one it goes into are clean on the same OSDs.
    fn can_merge(&self, now: Mono, map: &OsdMap, id: PoolId, pool: &PgPool) -> bool {
        let pending = pool.pg_num.saturating_sub(1);
        let step = self.steps.get(&id).copied().unwrap_or_default();
        if pending == 0 || pool.pgp_num > pending || now < step.not_before {
            return false;
        }
        let (source, target) = participants(id, pool);
        let bits = StateBits(StateBits::CLEAN.0 | StateBits::ACTIVE.0);
        let clean = |pgid| self.serves(map, pgid, Epoch::ZERO, bits);
        let (s, t) = (map.pg_to_up_acting(source), map.pg_to_up_acting(target));
        clean(source) && clean(target) && s.acting == t.acting && s.up == s.acting && t.up == s.up
    }

    /// Two PGs are quiet, or about to be: the pool after they are merged, or as it was before.
    fn end_of_merge(
        &self,
        now: Mono,
        map: &OsdMap,
        id: PoolId,
        pool: &PgPool,
        step: &Step,
    ) -> Option<PgPool> {
        let (source, target) = participants(id, pool);
        let quiet = |pgid| {
            let bits = StateBits(StateBits::CLEAN.0 | StateBits::PREMERGE.0);
            self.serves(map, pgid, step.epoch, bits).then(|| self.pgmap.get(pgid)).flatten()
        };
        let mut next = pool.clone();
        if let (Some(s), Some(t)) = (quiet(source), quiet(target))
            && s.stat.acting == t.stat.acting
        {
            next.pg_num = pool.pg_num_pending;
            next.last_pg_merge_meta = PgMergeMeta {
                source_pgid: source,
                ready_epoch: self.state.osdmap.epoch,
                last_epoch_started: s.stat.mapping_epoch.max(t.stat.mapping_epoch),
                last_epoch_clean: s.stat.last_epoch_clean.min(t.stat.last_epoch_clean),
                source_version: s.stat.last_update,
                target_version: t.stat.last_update,
            };
            return Some(next);
        }
        // Clients wait: not for a recovery that may take long, nor for ever.
        let peered = StateBits::PEERED;
        let hopeless = |pgid| {
            self.serves(map, pgid, step.epoch, peered)
                && !self.serves(map, pgid, step.epoch, StateBits::CLEAN)
        };
        if hopeless(source) || hopeless(target) || now >= step.at.after(QUIET_AT_MOST) {
            next.pg_num_pending = pool.pg_num;
            return Some(next);
        }
        None
    }

    /// Whether every PG of a pool is active. One that is new was not heard of before.
    fn all_serve(&self, map: &OsdMap, id: PoolId, pool: &PgPool) -> bool {
        pool.pgs(id).all(|pgid| self.serves(map, pgid, Epoch::ZERO, StateBits::default()))
    }

    /// Whether a PG was reported to be active or peered, and all of `bits`, in an interval that began
    /// in `since` or later.
    fn serves(&self, map: &OsdMap, pgid: PgId, since: Epoch, bits: StateBits) -> bool {
        let entry = self.pgmap.get(pgid);
        let state = self.pgmap.state(map, entry);
        let active = state.has(StateBits::ACTIVE) || state.has(StateBits::PEERED);
        let fresh = entry.is_some_and(|e| e.stat.mapping_epoch >= since);
        active && fresh && state.has(bits) && !state.has(StateBits::STALE)
    }

    /// The next `pg_num` on the way to the target.
    fn next_pg_num(&self, pool: &PgPool) -> u32 {
        let gap = pool.pg_num.saturating_sub(pool.pgp_num);
        let most = u32::try_from(self.settings.uint("mgr_max_pg_num_change")).unwrap_or(u32::MAX);
        let to = pool.pg_num.saturating_add(most.saturating_sub(gap));
        pool.pg_num_target.min(to).max(pool.pg_num)
    }

    /// The next `pgp_num` on the way to the target, if it may move now.
    fn next_pgp_num(&self, map: &OsdMap, pool: &PgPool, sums: &OnceCell<Sums>) -> Option<u32> {
        let target = pool.pgp_num_target.min(pool.pg_num).min(pool.pg_num_target);
        if target == pool.pgp_num {
            return None;
        }
        let sums = sums.get_or_init(|| self.pgmap.sums(map));
        let total = &sums.total;
        let is_well = sums.unknown == 0 && sums.inactive() == 0 && total.num_objects_degraded <= 0;
        if !is_well {
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
        let next = target.clamp(low.max(1), high);
        // Not far ahead of merges, so that not all PGs that are left to merge lie on few OSDs.
        let ahead = ((f64::from(pool.pg_num) * room) as u32).max(8);
        let next = next.max(pool.pg_num.saturating_sub(ahead).min(pool.pgp_num));
        (next != pool.pgp_num).then_some(next)
    }
}

/// Clients see by themselves that the number of PGs changes, unless they are too old: those are told to send again
/// what the OSDs drop with the interval. Linux' own client is of before Nautilus in this, and sees no merge.
fn force_resends(old: &PgPool, next: &mut PgPool, epoch: Epoch) {
    next.last_force_op_resend_preluminous = epoch;
    if is_merging(old) || is_merging(next) {
        next.last_force_op_resend_prenautilus = epoch;
    }
}

/// The pool's own bounds.
fn check_bounds(pool: &PgPool, n: i64) -> Result<(), CommandError> {
    let bound = |name: &str| pool.opts.int(name).filter(|n| *n != 0);
    if let Some(min) = bound("pg_num_min").filter(|min| n < *min) {
        return Err(CommandError::invalid(format_args!("specified pg_num {n} < pg_num_min {min}")));
    }
    if let Some(max) = bound("pg_num_max").filter(|max| n > *max) {
        return Err(CommandError::invalid(format_args!("specified pg_num {n} < pg_num_max {max}")));
    }
    Ok(())
}

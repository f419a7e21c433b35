//! Snapshots: of whole pools, and ids for clients that make their own.
//!
//! A pool is in one of two modes from its first snapshot on (`prepare_pool_op`). Ids of removed
//! snapshots go into `new_removed_snaps` of the epoch, from where clients and OSDs learn of it.

use crate::cluster::Cluster;
use admin::CommandError;
use io::Now;
use maps::{PgPool, PoolFlags, PoolSnap};
use types::{Epoch, Errno, PoolId, SnapId};

fn other_mode(what: &str) -> CommandError {
    CommandError::invalid(format_args!("the pool has {what} snapshots; it cannot have both kinds"))
}

impl Cluster {
    /// Makes a snapshot of a pool. Whether it is new.
    pub fn make_pool_snap(
        &mut self,
        now: Now,
        id: PoolId,
        name: &str,
    ) -> Result<bool, CommandError> {
        self.edit_snaps(id, |pool, epoch| {
            if pool.is_selfmanaged_snaps_mode() {
                return Err(other_mode("self-managed"));
            }
            if pool.snap_by_name(name).is_some() {
                return Ok((false, None));
            }
            pool.flags |= PoolFlags::POOL_SNAPS;
            pool.snap_seq = SnapId(pool.snap_seq.0.saturating_add(1));
            pool.snap_epoch = epoch;
            let snap = pool.snap_seq;
            let entry = PoolSnap { id: snap, stamp: now.wall, name: name.to_owned() };
            pool.snaps.insert(snap, entry);
            Ok((true, None))
        })
    }

    /// Removes a snapshot of a pool. Whether it was there.
    pub fn remove_pool_snap(&mut self, id: PoolId, name: &str) -> Result<bool, CommandError> {
        self.edit_snaps(id, |pool, epoch| {
            if pool.is_selfmanaged_snaps_mode() {
                return Err(other_mode("self-managed"));
            }
            let Some(snap) = pool.snap_by_name(name).map(|s| s.id) else {
                return Ok((false, None));
            };
            pool.snaps.remove(&snap);
            pool.snap_seq = SnapId(pool.snap_seq.0.saturating_add(1));
            pool.snap_epoch = epoch;
            Ok((true, Some(snap)))
        })
    }

    /// Gives out an id for a client's own snapshot.
    pub fn make_own_snap(&mut self, id: PoolId) -> Result<SnapId, CommandError> {
        self.edit_snaps(id, |pool, epoch| {
            if pool.is_pool_snaps_mode() {
                return Err(other_mode("pool"));
            }
            // The first id is 2: 1 stands for the state before every snapshot.
            pool.flags |= PoolFlags::SELFMANAGED_SNAPS;
            pool.snap_seq = SnapId(pool.snap_seq.0.max(1).saturating_add(1));
            pool.snap_epoch = epoch;
            Ok((pool.snap_seq, None))
        })
    }

    /// A client's own snapshot is not wanted any more.
    pub fn remove_own_snap(&mut self, id: PoolId, snap: SnapId) -> Result<(), CommandError> {
        let map = self.map();
        let queued = map.in_removed_snaps_queue(id, snap)
            || map.new_removed_snaps.get(&id).is_some_and(|s| s.contains(snap));
        self.edit_snaps(id, |pool, epoch| {
            if pool.is_pool_snaps_mode() {
                return Err(other_mode("pool"));
            }
            if !pool.is_selfmanaged_snaps_mode() {
                return Err(CommandError::unsupported("the pool has no self-managed snapshots"));
            }
            if snap > pool.snap_seq || snap.0 == 0 {
                let text = format!("there is no snapshot {} in the pool", snap.0);
                return Err(CommandError::new(Errno::ENOENT, text));
            }
            if queued {
                return Ok(((), None));
            }
            pool.snap_seq = SnapId(pool.snap_seq.0.saturating_add(1));
            pool.snap_epoch = epoch;
            Ok(((), Some(snap)))
        })
    }

    /// Changes a pool's snapshots; a removed one is announced in the same epoch.
    fn edit_snaps<R>(
        &mut self,
        id: PoolId,
        edit: impl FnOnce(&mut PgPool, Epoch) -> Result<(R, Option<SnapId>), CommandError>,
    ) -> Result<R, CommandError> {
        self.edit(|inc, map| {
            let pool = map.pool(id);
            let mut pool = pool
                .cloned()
                .ok_or_else(|| CommandError::not_found(format_args!("no pool {id}")))?;
            let (result, removed) = edit(&mut pool, inc.epoch)?;
            if map.pool(id) != Some(&pool) {
                inc.new_pools.insert(id, pool);
            }
            if let Some(snap) = removed {
                inc.new_removed_snaps.entry(id).or_default().insert(snap);
            }
            Ok(result)
        })
    }
}

//! Merging PGs, when a map has fewer of them for their pool (see `pg::Pg::merge`).
//!
//! The objects stay where they are: the target's range of keys grows by the source's. One transaction,
//! behind all others of both, removes the source's records and begins the target's log anew, with the
//! new epoch in its info; after a crash before it, it is done again when its maps are gone through. What the
//! source still has to remove is noted for the target in some before it.

use crate::daemon::Daemon;
use crate::host::{PgHost, Queued, meta_object};
use crate::object::key_range;
use crate::split::{Parts, take_in};
use io::Effects;
use maps::{OsdMap, PgIdExt};
use pg::{forget_deleted_range, put_deleted};
use std::rc::Rc;
use store::Transaction;
use types::{Eversion, PgId};

impl Daemon {
    /// PGs that go into this one by a map.
    pub(crate) fn sources_by(&self, pgid: PgId, map: &OsdMap) -> Vec<PgId> {
        let (Some(host), Some(pool)) = (self.pgs.get(&pgid), map.pool(pgid.pool)) else {
            return Vec::new();
        };
        let (old, new) = (host.pg.rules().pg_num, pool.pg_num);
        if host.pg.epoch() >= map.epoch || new >= old || pgid.seed >= new {
            return Vec::new();
        }
        let all = (new..old).map(|seed| PgId::new(pgid.pool, seed));
        all.filter(|source| source.merge_target(old, new) == Some(pgid)).collect()
    }

    /// Takes in the next epoch, in which PGs go into this one. Without `old` it is a later one (see
    /// [`Daemon::skip_to`]).
    pub(crate) fn merge_pgs(
        &mut self,
        pgid: PgId,
        sources: &[PgId],
        old: Option<&Rc<OsdMap>>,
        new: &Rc<OsdMap>,
        fx: &mut Effects,
    ) {
        for part in [pgid].iter().chain(sources) {
            if let Some(old) = old {
                self.note_interval_end(*part, old);
            }
        }
        let mut gone: Vec<(PgId, PgHost)> = Vec::new();
        for source in sources {
            gone.extend(self.forget_pg(*source, fx).map(|host| (*source, host)));
        }
        // What it gets is in nobody's range.
        self.end_backoffs(pgid);
        let share = self.split_share();
        let versions = old.and_then(|_| merged_versions(sources, new));
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let source = gone.first().map(|(_, host)| &host.pg).filter(|_| sources.len() == 1);
        let meta = host.pg.merge(source, versions);
        take_in(&mut host.pg, old, new);
        let whole = host.pg.info().is_complete();
        tracing::debug!("osd.{}: {sources:?} go into pg {pgid}, whole: {whole}", self.cfg.id);
        host.stored_epoch = new.epoch;
        host.backlog.clear();
        host.trim_to = Eversion::ZERO;
        host.trimmer = Default::default();
        let (ahead, mut txn) = take_over_deleted(host, &mut gone, share);
        for (source, _) in &gone {
            txn.remove(&meta_object(*source).to_key());
        }
        let info = host.pg.info_record();
        host.put_meta(&mut txn, meta.into_iter().chain([info]));
        let mut unborn = Vec::new();
        for (source, old_host) in gone {
            host.priors.join(&old_host.priors);
            // What it still had to write comes first, and so does what makes it.
            host.queue.append(old_host.queue);
            host.transfers.gathering.extend(old_host.transfers.gathering);
            host.unborn += old_host.unborn;
            unborn.extend((old_host.unborn > 0).then_some(source));
        }
        host.priors.retain_alive(new);
        unborn.into_iter().for_each(|source| self.redirect_births(source, pgid));
        for txn in ahead.into_iter().chain([txn]) {
            self.enqueue(pgid, Queued::of(txn), fx);
        }
        if self.pgs.get(&pgid).is_some_and(|h| h.started) {
            self.start_at(new, pgid, fx);
        }
    }

    /// Who waits for the birth of a PG that is merged before it was born.
    fn redirect_births(&mut self, from: PgId, to: PgId) {
        for host in self.pgs.values_mut() {
            for queued in host.queue.iter_mut() {
                queued.births.iter_mut().filter(|p| **p == from).for_each(|p| *p = to);
            }
        }
    }
}

/// What is still to be removed of the sources is noted for the target: ahead, in transactions of bounded size, of which
/// the last one is to have all the rest. After a crash before that they are another PG's, and not loaded.
fn take_over_deleted(
    host: &mut PgHost,
    gone: &mut [(PgId, PgHost)],
    share: u64,
) -> (Vec<Transaction>, Transaction) {
    let pgid = host.pg.pgid();
    let mut parts = Parts::new(host, share);
    for (source, old) in gone {
        let deleted = std::mem::take(&mut old.deleted);
        // What such a merge has left that was not done.
        let (first, end) = key_range(*source, old.pg.rules().pg_num.max(1));
        parts.put(pgid, forget_deleted_range(&first, &end));
        deleted.iter().for_each(|object| parts.put(pgid, put_deleted(object)));
        parts.host.deleted.extend(deleted);
    }
    (parts.done, parts.txn)
}

/// The versions of source and target with which copies count.
fn merged_versions(sources: &[PgId], map: &OsdMap) -> Option<(Eversion, Eversion)> {
    let [source] = sources else { return None };
    let meta = &map.pool(source.pool)?.last_pg_merge_meta;
    (meta.source_pgid == *source).then_some((meta.source_version, meta.target_version))
}

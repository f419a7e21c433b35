//! Splitting PGs, when a map has more of them for their pool.
//!
//! The objects stay where they are: a PG is a range of keys. The records are divided in transactions
//! of the parent, in order with its writes, of which the last makes the children: it puts their info
//! and the parent's new one, both of the new epoch. After a crash before it nothing has happened (what
//! was written ahead is removed); the parent's info is of an older epoch, so that the split is done
//! again when its maps are gone through. The children's own transactions wait until it is submitted.

use crate::daemon::Daemon;
use crate::host::{PgHost, Queued, meta_object, put_meta};
use crate::object::key_range;
use io::Effects;
use maps::{OsdMap, PgIdExt, pg_num_mask, stable_mod};
use peer::{View, mapping, pool_rules};
use pg::{MetaOp, Pg, forget_deleted_range, put_deleted};
use std::rc::Rc;
use store::Transaction;
use types::PgId;

/// Part of the largest transaction that one of a split may take.
const SHARE_OF_TRANSACTION: u64 = 8;

/// Whether objects of a hash belong to a PG, in a pool of so many.
pub fn belongs(pgid: PgId, pg_num: u32, hash: u32) -> bool {
    pgid.contains_hash(hash, pg_num)
}

impl Daemon {
    /// The PGs that a PG here splits off by a map; none when it does not split.
    pub(crate) fn children_by(&self, pgid: PgId, map: &OsdMap) -> Vec<PgId> {
        let (Some(host), Some(pool)) = (self.pgs.get(&pgid), map.pool(pgid.pool)) else {
            return Vec::new();
        };
        if host.pg.epoch() >= map.epoch {
            return Vec::new();
        }
        pgid.split_children(host.pg.rules().pg_num, pool.pg_num)
    }

    /// Takes in the next epoch, in which the PG splits. Without `old` it is a later one (see
    /// [`Daemon::skip_to`]).
    pub(crate) fn split_pg(
        &mut self,
        pgid: PgId,
        children: &[PgId],
        old: Option<&Rc<OsdMap>>,
        new: &Rc<OsdMap>,
        fx: &mut Effects,
    ) {
        if let Some(old) = old {
            self.note_interval_end(pgid, old);
        }
        let share = self.split_share();
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.priors.retain_alive(new);
        let pg_num = pool_rules(new, pgid.pool).pg_num;
        let home = |hash| PgId::new(pgid.pool, stable_mod(hash, pg_num, pg_num_mask(pg_num)));
        let (mut born, mut meta) = host.pg.split_off(children, new.epoch, home);
        let mut deleted = host.divide_deleted(home);
        for child in children {
            let (first, end) = key_range(*child, pg_num);
            meta.push(forget_deleted_range(&first, &end));
        }
        take_in(&mut host.pg, old, new);
        host.stored_epoch = new.epoch;
        let (started, priors) = (host.started, host.priors.clone());
        let mut parts = Parts::new(host, share);
        for child in &mut born {
            take_in(child, old, new);
            // What a split that was not finished may have left.
            parts.txn.remove(&meta_object(child.pgid()).to_key());
            let its = deleted.get(&child.pgid()).into_iter().flatten();
            for op in child.records().into_iter().chain(its.map(put_deleted)) {
                parts.put(child.pgid(), op);
            }
        }
        let Parts { host, mut done, mut txn, .. } = parts;
        for child in &born {
            put_meta(&mut txn, &meta_object(child.pgid()).to_key(), [child.info_record()]);
        }
        meta.push(host.pg.info_record());
        host.put_meta(&mut txn, meta);
        done.push(txn);
        tracing::debug!("osd.{}: pg {pgid} splits into {children:?}", self.cfg.id);
        for child in born {
            let mut host = PgHost::new(child);
            (host.started, host.priors) = (started, priors.clone());
            host.unborn = 1;
            host.deleted = deleted.remove(&host.pg.pgid()).unwrap_or_default();
            self.pgs.insert(host.pg.pgid(), host);
        }
        let last = done.len() - 1;
        for (i, txn) in done.into_iter().enumerate() {
            let births = if i == last { children.to_vec() } else { Vec::new() };
            self.enqueue(pgid, Queued { births, ..Queued::of(txn) }, fx);
        }
        self.forget_moved(pgid);
        for part in [pgid].iter().chain(children).filter(|_| started) {
            self.start_at(new, *part, fx);
        }
    }

    /// Bytes of records in one transaction.
    pub(crate) fn split_share(&self) -> u64 {
        self.store.max_transaction_bytes() / SHARE_OF_TRANSACTION
    }

    /// Watches and requests of objects that are not this PG's any more: clients send them again, to
    /// where they belong.
    fn forget_moved(&mut self, pgid: PgId) {
        self.drop_moved_ops(pgid);
        if let Some(host) = self.pgs.get_mut(&pgid) {
            let pg_num = host.pg.rules().pg_num;
            host.watches.retain(|object| pgid.contains_hash(object.hash, pg_num));
        }
    }

    /// The PG's records are there: its own transactions may follow.
    pub(crate) fn is_born(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.unborn = host.unborn.saturating_sub(1);
        if !host.queue_stalled {
            self.pump_queue(pgid, fx);
        }
    }
}

/// The PG goes to the new map; nothing is said to anybody yet.
pub fn take_in(pg: &mut Pg, old: Option<&Rc<OsdMap>>, new: &Rc<OsdMap>) {
    let (to, rules) = (mapping(new, pg.pgid()), pool_rules(new, pg.pgid().pool));
    match old {
        Some(old) => pg.catch_up(&View(old), &View(new), to, rules),
        None => pg.skip_to(new.epoch, to, rules),
    }
}

/// Records on their way into transactions of bounded size.
pub struct Parts<'a> {
    share: u64,
    bytes: u64,
    pub host: &'a mut PgHost,
    pub done: Vec<Transaction>,
    pub txn: Transaction,
}

impl<'a> Parts<'a> {
    /// In transactions of this PG, of so many bytes each, about.
    pub fn new(host: &'a mut PgHost, share: u64) -> Self {
        let txn = host.transaction();
        Parts { share, bytes: 0, host, done: Vec::new(), txn }
    }

    /// Changes a record of a PG.
    pub fn put(&mut self, pgid: PgId, op: MetaOp) {
        if let MetaOp::Put(key, value) = &op {
            self.bytes += (key.len() + value.len()) as u64;
        }
        put_meta(&mut self.txn, &meta_object(pgid).to_key(), [op]);
        if self.bytes > self.share {
            self.bytes = 0;
            let next = self.host.transaction();
            self.done.push(std::mem::replace(&mut self.txn, next));
        }
    }
}

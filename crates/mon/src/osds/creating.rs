//! PGs of new pools: ordered from their primaries until somebody reports them.
//!
//! An OSD that was told to make a PG may have taken writes and failed before it could report. Who is
//! told next must hear of that interval. So the mon keeps for every PG that nobody has reported a
//! copy of the PG machine that holds no data, and lets it see each map: its history and past
//! intervals go with the order. Nothing of that is stored; a mon that starts sees the old maps again
//! (`Mon::recall`), which are kept for as long as such PGs need them. Where nothing can have been written, as in a pool
//! whose rule finds no OSD, they are not needed: such PGs begin anew now and then (`Cluster::renew_orders`).

use crate::cluster::Cluster;
use crate::state::Creating;
use crate::store::keys;
use admin::CommandError;
use io::Now;
use maps::OsdMap;
use peer::{OsdReport, PgCreate, PgCreates, View, mapping, pool_rules};
use pg::{History, PastIntervals, Pg};
use std::collections::{BTreeMap, BTreeSet};
use types::{Epoch, OsdId, PgId, PoolId};
use wire::LinkId;

impl Cluster {
    /// Orders all PGs of a pool that the draft creates.
    pub fn order_pgs(&mut self, pool: PoolId, created: Epoch, pg_num: u32) {
        let creating = Creating { created, left: (0..pg_num).collect() };
        self.draft.put(keys::creating(pool), denc::encode(&creating));
        self.state.creating.insert(pool, creating);
    }

    /// Orders a PG that nobody has any more to be made anew, empty. To one that somebody has nothing
    /// happens: who was to make it says that it is there.
    ///
    /// # Errors
    /// EBUSY while other PGs of the pool are being made.
    pub fn order_lost_pg(&mut self, pgid: PgId) -> Result<(), CommandError> {
        if self.state.creating.contains_key(&pgid.pool) {
            let text = format!("other PGs of pool {} are being created, try again", pgid.pool);
            return Err(CommandError::busy(text));
        }
        let created = self.edit(|inc, map| {
            let pool = map.pool(pgid.pool).cloned();
            let mut pool = pool.ok_or_else(|| CommandError::not_found("the pool is gone"))?;
            // What clients have asked of the lost one they ask again.
            pool.last_force_op_resend = inc.epoch;
            pool.last_force_op_resend_prenautilus = inc.epoch;
            pool.last_force_op_resend_preluminous = inc.epoch;
            inc.new_pools.insert(pgid.pool, pool);
            Ok(inc.epoch)
        })?;
        let creating = Creating { created, left: [pgid.seed].into() };
        self.draft.put(keys::creating(pgid.pool), denc::encode(&creating));
        self.state.creating.insert(pgid.pool, creating);
        Ok(())
    }

    /// The PGs of a pool that goes are not wanted any more.
    pub fn forget_orders(&mut self, pool: PoolId) {
        if self.state.creating.remove(&pool).is_some() {
            self.draft.remove(keys::creating(pool));
        }
        self.newborns.retain(|pgid, _| pgid.pool != pool);
    }

    /// Takes in an OSD's report.
    pub fn report(&mut self, now: Now, link: LinkId, mut report: OsdReport) {
        // Reports are about the map that is there, not about the one to come.
        let map = self.state.osdmap.clone();
        let since = map.osd(report.osd).map(|o| o.info.up_from);
        if map.is_up(report.osd) && since == Some(report.up_from) {
            self.claim(report.osd, link);
            self.mark_store(&report);
            if let Some(counts) = report.images.take() {
                self.images.report(now.mono, report.osd, counts);
            }
        }
        let known = self.pgmap.report(now, &map, report);
        self.created(known);
    }

    /// These PGs exist.
    fn created(&mut self, known: Vec<PgId>) {
        let mut changed = BTreeSet::new();
        for pgid in known {
            if let Some(creating) = self.state.creating.get_mut(&pgid.pool)
                && creating.left.remove(&pgid.seed)
            {
                changed.insert(pgid.pool);
                self.newborns.remove(&pgid);
            }
        }
        for pool in changed {
            let left = self.state.creating.get(&pool).filter(|c| !c.left.is_empty());
            match left.map(denc::encode) {
                Some(bytes) => self.draft.put(keys::creating(pool), bytes),
                None => self.forget_orders(pool),
            }
        }
    }

    /// Lets pools begin anew, of which no PG that is left can have taken a write, when they are older than `since`: what
    /// was before says nothing to whoever will make their PGs. Ceph keeps all maps for such a pool.
    pub fn renew_orders(&mut self, since: Epoch) {
        let map = self.state.osdmap.clone();
        for (&pool, creating) in &mut self.state.creating {
            let ids = || creating.left.iter().map(|&seed| PgId::new(pool, seed));
            let untouched = |pgid| self.newborns.get(&pgid).is_some_and(is_untouched);
            if creating.created >= since || !ids().all(untouched) {
                continue;
            }
            self.newborns.extend(ids().map(|pgid| (pgid, newborn(&map, pgid))));
            creating.created = map.epoch;
            self.draft.put(keys::creating(pool), denc::encode(&*creating));
        }
    }

    /// The oldest map that PGs nobody has reported need after a restart of the mon.
    pub fn oldest_creation(&self) -> Option<Epoch> {
        self.state.creating.values().map(|c| c.created).min()
    }

    /// Shows PGs that nobody has reported a map that followed `old`. Answers who has to hear of it:
    /// the primaries of those that are new or whose interval changed.
    pub fn advance_newborns(&mut self, old: &OsdMap, map: &OsdMap) -> BTreeSet<OsdId> {
        for (pgid, pg) in &mut self.newborns {
            pg.catch_up(&View(old), &View(map), mapping(map, *pgid), pool_rules(map, pgid.pool));
        }
        for (&pool, creating) in self.state.creating.iter().filter(|(_, c)| c.created == map.epoch)
        {
            for &seed in &creating.left {
                let pgid = PgId::new(pool, seed);
                self.newborns.insert(pgid, newborn(map, pgid));
            }
        }
        let changed =
            self.newborns.values().filter(|pg| pg.info().history.same_interval_since == map.epoch);
        changed.filter_map(|pg| pg.mapping().acting_primary).collect()
    }

    /// What each OSD is to create, by the committed map.
    pub fn orders(&self) -> BTreeMap<OsdId, PgCreates> {
        let epoch = self.state.osdmap.epoch;
        let mut orders: BTreeMap<OsdId, PgCreates> = BTreeMap::new();
        for (&pgid, pg) in &self.newborns {
            if let Some(osd) = pg.mapping().acting_primary {
                let new = || PgCreates { epoch, pgs: Vec::new() };
                let (history, past) = (pg.info().history, pg.past().clone());
                orders.entry(osd).or_insert_with(new).pgs.push(PgCreate { pgid, history, past });
            }
        }
        orders
    }
}

/// Whether nobody can have written to a PG that nobody has reported.
fn is_untouched(pg: &Pg) -> bool {
    pg.mapping().acting_primary.is_none() && !pg.past().iter().any(|i| i.maybe_went_rw)
}

fn newborn(map: &OsdMap, pgid: PgId) -> Pg {
    let history = History::created(map.epoch);
    let (to, rules) = (mapping(map, pgid), pool_rules(map, pgid.pool));
    Pg::create(OsdId::NONE, pgid, history, PastIntervals::default(), map.epoch, to, rules)
}

//! PGs of new pools: ordered from their primaries until somebody reports them.

use crate::cluster::Cluster;
use crate::state::Creating;
use crate::store::keys;
use io::Now;
use maps::OsdMap;
use peer::{OsdReport, PgCreate, PgCreates};
use std::collections::BTreeMap;
use types::{Epoch, OsdId, PgId, PoolId};

impl Cluster {
    /// Orders all PGs of a pool that the draft creates.
    pub fn order_pgs(&mut self, pool: PoolId, created: Epoch, pg_num: u32) {
        let creating = Creating { created, left: (0..pg_num).collect() };
        self.draft.put(keys::creating(pool), denc::encode(&creating));
        self.state.creating.insert(pool, creating);
    }

    /// The PGs of a pool that goes are not wanted any more.
    pub fn forget_orders(&mut self, pool: PoolId) {
        if self.state.creating.remove(&pool).is_some() {
            self.draft.remove(keys::creating(pool));
        }
    }

    /// Takes in an OSD's report.
    pub fn report(&mut self, now: Now, report: OsdReport) {
        // Reports are about the map that is there, not about the one to come.
        let map = self.state.osdmap.clone();
        let known = self.pgmap.report(now, &map, report);
        self.created(known);
    }

    /// These PGs exist.
    fn created(&mut self, known: Vec<PgId>) {
        let mut changed = std::collections::BTreeSet::new();
        for pgid in known {
            if let Some(creating) = self.state.creating.get_mut(&pgid.pool)
                && creating.left.remove(&pgid.seed)
            {
                changed.insert(pgid.pool);
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

    /// What each OSD is to create, by the committed map.
    pub fn orders(&self) -> BTreeMap<OsdId, PgCreates> {
        let map: &OsdMap = &self.state.osdmap;
        let mut orders: BTreeMap<OsdId, PgCreates> = BTreeMap::new();
        for (&pool, creating) in &self.state.creating {
            for &seed in &creating.left {
                let pgid = PgId::new(pool, seed);
                let (_, primary) = map.pg_to_acting(pgid);
                if let Some(osd) = primary.filter(|_| map.pg_exists(pgid)) {
                    let new = || PgCreates { epoch: map.epoch, pgs: Vec::new() };
                    let order = orders.entry(osd).or_insert_with(new);
                    order.pgs.push(PgCreate { pgid, created: creating.created });
                }
            }
        }
        orders
    }
}

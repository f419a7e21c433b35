//! Scrubs that operators ordered.
//!
//! An OSD has such an order in memory only. The mon remembers it, too, until the PG has been scrubbed, and
//! tells each new primary. (In Ceph an order is lost with the primary that had it.) A mon that starts anew has
//! forgotten it.

use crate::cluster::Cluster;
use crate::pgmap::PgEntry;
use peer::ScrubOrder;
use std::collections::BTreeMap;
use types::{Epoch, OsdId, PgId, UTime};

/// Which scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScrubKind {
    pub deep: bool,
    pub repair: bool,
}

impl ScrubKind {
    fn and(self, other: Self) -> Self {
        ScrubKind { deep: self.deep || other.deep, repair: self.repair || other.repair }
    }

    /// The last scrub like this, as far as it was reported. A repair reads everything.
    fn last(self, entry: Option<&PgEntry>) -> Last {
        let record = entry.map(|e| e.stat.scrub).unwrap_or_default();
        let stamp = if self.deep || self.repair {
            record.last_deep_scrub_stamp
        } else {
            record.last_scrub_stamp
        };
        Last { changes: record.changes, stamp }
    }
}

/// A scrub that was reported.
#[derive(Clone, Copy, Debug)]
struct Last {
    changes: u64,
    stamp: UTime,
}

impl Last {
    /// Whether another one has come after it. Each counts, and a clock that was set back makes the later stamp
    /// the smaller one; that the stamp is another tells a deep scrub from a light one.
    fn is_over(self, now: Last) -> bool {
        now.changes > self.changes && now.stamp != self.stamp
    }
}

/// What was ordered of a PG.
#[derive(Clone, Copy, Debug)]
struct Order {
    kind: ScrubKind,
    /// The last such scrub before, as soon as one has heard of the PG: a mon that has just started has not.
    before: Option<Last>,
    /// In which interval of the PG its primary was told, as far as that was reported.
    told: Option<Epoch>,
}

impl Order {
    /// Whether a scrub like this was reported since.
    fn is_done(&self, entry: Option<&PgEntry>) -> bool {
        self.before.is_some_and(|before| before.is_over(self.kind.last(entry)))
    }
}

/// The orders that are not done yet, as of the last look: one for each PG at most.
#[derive(Debug, Default)]
pub(crate) struct Scrubs {
    orders: BTreeMap<PgId, Order>,
    /// Somebody may have to be told.
    look: bool,
    /// How often the primary of a PG was worked out.
    #[cfg(test)]
    placed: u64,
}

impl Scrubs {
    /// Orders a scrub of a PG, beside what is ordered already and not done yet. (Done orders stand here until
    /// somebody looks again: a light scrub behind a repair is not one more repair.)
    fn order(&mut self, pgid: PgId, kind: ScrubKind, entry: Option<&PgEntry>) {
        let open = self.orders.get(&pgid).filter(|o| !o.is_done(entry));
        let kind = open.map_or(kind, |o| o.kind.and(kind));
        let before = entry.map(|_| kind.last(entry));
        self.orders.insert(pgid, Order { kind, before, told: None });
        self.look = true;
    }

    /// Time has passed: PGs may be scrubbed, or led by others.
    pub fn look_again(&mut self) {
        self.look = !self.orders.is_empty();
    }
}

impl Cluster {
    /// Lets PGs be scrubbed.
    pub fn order_scrubs(&mut self, kind: ScrubKind, pgs: impl IntoIterator<Item = PgId>) {
        for pgid in pgs {
            self.scrubs.order(pgid, kind, self.pgmap.get(pgid));
        }
    }

    /// Who is to be told now, and what.
    pub fn scrub_orders(&mut self) -> Vec<(OsdId, ScrubOrder)> {
        if !std::mem::take(&mut self.scrubs.look) {
            return Vec::new();
        }
        let (map, pgmap) = (self.map().clone(), &self.pgmap);
        let is_open = |pgid: &PgId, order: &mut Order| {
            map.pg_exists(*pgid) && !order.is_done(pgmap.get(*pgid))
        };
        self.scrubs.orders.retain(is_open);
        let placer = pgmap.placer(&map);
        let mut due = BTreeMap::<(OsdId, ScrubKind), Vec<PgId>>::new();
        for (pgid, order) in &mut self.scrubs.orders {
            // One that leads since then has the PG ready when it reports it. To place PGs takes long where all are
            // ordered.
            let entry = pgmap.get(*pgid);
            if order.before.is_none() {
                // What is reported later may be after the scrub.
                let Some(entry) = entry else { continue };
                order.before = Some(order.kind.last(Some(entry)));
            }
            let since = entry.map(|e| e.stat.mapping_epoch);
            if order.told.is_some_and(|told| since.is_none_or(|since| since <= told)) {
                continue;
            }
            #[cfg(test)]
            {
                self.scrubs.placed += 1;
            }
            let primary = placer.up_acting(*pgid).acting_primary;
            let Some(osd) = primary.filter(|osd| self.osd_links.contains_key(osd)) else {
                continue;
            };
            let reported = entry.filter(|e| e.by == osd).map(|e| e.stat.mapping_epoch);
            if order.told.is_some_and(|told| reported.is_none_or(|r| r <= told)) {
                continue;
            }
            order.told = Some(reported.unwrap_or_default());
            due.entry((osd, order.kind)).or_default().push(*pgid);
        }
        let order = |((osd, ScrubKind { deep, repair }), pgs)| {
            (osd, ScrubOrder { epoch: map.epoch, pgs, deep, repair })
        };
        due.into_iter().map(order).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;
    use serde_json::json;

    fn told(bench: &mut Bench, pgid: PgId) -> Vec<OsdId> {
        bench.c.scrubs.look_again();
        let orders = bench.c.scrub_orders();
        assert!(orders.iter().all(|(_, order)| order.deep && order.pgs == [pgid]), "{orders:?}");
        orders.into_iter().map(|(osd, _)| osd).collect()
    }

    #[test]
    fn a_clock_that_was_ahead_does_not_keep_an_order_open() {
        let mut bench = Bench::new();
        bench.run(&json!({"prefix": "osd pool create", "pool": "a", "pg_num": 8}));
        let now = bench.now().wall;
        bench.deep_scrubbed = now.plus(std::time::Duration::from_secs(86_400 * 365));
        bench.deep_scrubs = 7;
        bench.again();
        (0..3).for_each(|id| _ = bench.c.osd_links.insert(OsdId(id), wire::LinkId(id as u64)));
        let pgid = PgId::new(bench.c.pool_id("a").unwrap(), 0);
        assert_eq!(bench.run(&json!({"prefix": "pg deep-scrub", "pgid": pgid.to_string()})).0, 0);
        assert_eq!(told(&mut bench, pgid).len(), 1);
        // A light one is not what was ordered.
        bench.deep_scrubs = 8;
        bench.again();
        assert_eq!(told(&mut bench, pgid), []);
        assert_eq!(bench.c.scrubs.orders.len(), 1);
        (bench.deep_scrubs, bench.deep_scrubbed) = (9, now);
        bench.again();
        assert_eq!(told(&mut bench, pgid), []);
        assert!(bench.c.scrubs.orders.is_empty());
    }

    #[test]
    fn each_new_primary_is_told_until_it_is_done() {
        let mut bench = Bench::new();
        bench.run(&json!({"prefix": "osd pool create", "pool": "a", "pg_num": 8}));
        let pgid = PgId::new(bench.c.pool_id("a").unwrap(), 0);
        (0..3).for_each(|id| _ = bench.c.osd_links.insert(OsdId(id), wire::LinkId(id as u64)));
        assert_eq!(bench.run(&json!({"prefix": "pg deep-scrub", "pgid": pgid.to_string()})).0, 0);
        let first = told(&mut bench, pgid);
        assert_eq!(first.len(), 1);
        assert_eq!(told(&mut bench, pgid), [], "it was told");
        bench.stop(first[0]);
        let second = told(&mut bench, pgid);
        assert!(second.len() == 1 && second != first, "{first:?} {second:?}");
        (bench.deep_scrubs, bench.deep_scrubbed) = (1, bench.now().wall);
        bench.again();
        bench.c.scrubs.look_again();
        assert!(bench.c.scrub_orders().is_empty() && bench.c.scrubs.orders.is_empty());
    }

    /// An order for all PGs stands for days.
    #[test]
    fn who_was_told_is_not_looked_for_again() {
        let mut bench = Bench::new();
        bench.run(&json!({"prefix": "osd pool create", "pool": "a", "pg_num": 64}));
        (0..3).for_each(|id| _ = bench.c.osd_links.insert(OsdId(id), wire::LinkId(id as u64)));
        bench.run(&json!({"prefix": "osd deep-scrub", "who": "all"}));
        let orders = bench.c.scrub_orders();
        let pgs: usize = orders.iter().map(|(_, order)| order.pgs.len()).sum();
        assert_eq!((pgs, bench.c.scrubs.placed), (64, 64));
        for _ in 0..10 {
            bench.again();
            bench.c.scrubs.look_again();
            assert!(bench.c.scrub_orders().is_empty());
        }
        assert_eq!((bench.c.scrubs.orders.len(), bench.c.scrubs.placed), (64, 64));
    }

    /// The first report says how the PG was before, if the scrub is begun after it.
    #[test]
    fn an_order_to_a_mon_that_has_not_heard_of_the_pg_is_carried_out() {
        let mut bench = Bench::new();
        bench.run(&json!({"prefix": "osd pool create", "pool": "a", "pg_num": 8}));
        (bench.deep_scrubs, bench.deep_scrubbed) = (7, bench.now().wall);
        (0..3).for_each(|id| _ = bench.c.osd_links.insert(OsdId(id), wire::LinkId(id as u64)));
        bench.c.pgmap = Default::default();
        let pgid = PgId::new(bench.c.pool_id("a").unwrap(), 0);
        let deep = ScrubKind { deep: true, repair: false };
        bench.c.order_scrubs(deep, [pgid]);
        assert_eq!(told(&mut bench, pgid), []);
        bench.again();
        assert_eq!(told(&mut bench, pgid).len(), 1);
        bench.again();
        assert_eq!(told(&mut bench, pgid), []);
        assert_eq!(bench.c.scrubs.orders.len(), 1);
        (bench.deep_scrubs, bench.deep_scrubbed) =
            (8, bench.now().wall.plus(std::time::Duration::from_secs(9)));
        bench.again();
        assert_eq!(told(&mut bench, pgid), []);
        assert!(bench.c.scrubs.orders.is_empty());
    }

    #[test]
    fn a_scrub_behind_a_repair_that_is_done_repairs_nothing() {
        let mut bench = Bench::new();
        bench.run(&json!({"prefix": "osd pool create", "pool": "a", "pg_num": 8}));
        let pgid = PgId::new(bench.c.pool_id("a").unwrap(), 0);
        (0..3).for_each(|id| _ = bench.c.osd_links.insert(OsdId(id), wire::LinkId(id as u64)));
        let order = |bench: &mut Bench, word: &str| {
            let prefix = format!("pg {word}");
            assert_eq!(bench.run(&json!({"prefix": prefix, "pgid": pgid.to_string()})).0, 0);
            let orders = bench.c.scrub_orders();
            let [(_, order)] = orders.as_slice() else { panic!("{orders:?}") };
            (order.deep, order.repair)
        };
        assert_eq!(order(&mut bench, "repair"), (false, true));
        // One that is open counts on.
        assert_eq!(order(&mut bench, "deep-scrub"), (true, true));
        // It is done, and nobody has looked since.
        (bench.deep_scrubs, bench.deep_scrubbed) = (1, bench.now().wall);
        bench.again();
        assert_eq!(order(&mut bench, "scrub"), (false, false));
    }
}

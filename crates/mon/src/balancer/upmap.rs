//! Which PGs to move so that every OSD has its share, by exceptions from CRUSH (upmaps). Pools of one rule
//! are looked at together. Source of the aims: Ceph `osd/OSDMap.cc: calc_pg_upmaps`; the search is ours: the
//! pair of OSDs that are farthest apart exchanges a PG first.

use crate::osds::Room;
use crate::pools::is_merged_next;
use maps::{OsdList, OsdMap, exchange};
use std::collections::{BTreeMap, BTreeSet};
use types::{OsdId, PgId, PoolId};

/// What changes: the exchanges of a PG from now on; empty: what CRUSH says.
pub(crate) type Changes = BTreeMap<PgId, Vec<(OsdId, OsdId)>>;

/// How far it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Copies of PGs that an OSD may have beside its share.
    pub max_deviation: f64,
    /// PGs that are moved at most.
    pub changes: usize,
}

/// What to change.
pub(crate) fn optimize(map: &OsdMap, pools: &BTreeSet<PoolId>, limits: Limits) -> Changes {
    let mut by_rule: BTreeMap<u8, Vec<PoolId>> = BTreeMap::new();
    for (id, pool) in map.pools.iter().filter(|(id, _)| pools.contains(id)) {
        by_rule.entry(pool.crush_rule).or_default().push(*id);
    }
    let mut changes = Changes::new();
    for pools in by_rule.values() {
        let mut group = Group::of(map, pools);
        while changes.len() < limits.changes && group.worst() > limits.max_deviation {
            let Some((pgid, items)) = group.improve() else { break };
            changes.insert(pgid, items);
        }
    }
    // A PG may have gone there and back.
    changes.retain(|pgid, items| map.pg_upmap_items.get(pgid).map_or(&[][..], |i| i) != *items);
    changes
}

/// Where the exchanges lead, beginning with what CRUSH says.
fn exchanged(raw: &OsdList, items: &[(OsdId, OsdId)]) -> OsdList {
    let mut osds = raw.clone();
    for (from, to) in items {
        exchange(&mut osds, *from, *to);
    }
    osds
}

/// A PG that may be moved.
struct Placed {
    raw: OsdList,
    items: Vec<(OsdId, OsdId)>,
    osds: OsdList,
}

/// Pools of one rule, and what their OSDs have of them.
struct Group<'a> {
    map: &'a OsdMap,
    rooms: BTreeMap<PoolId, Room>,
    /// Copies that each OSD should have, by its weight.
    shares: BTreeMap<OsdId, f64>,
    copies: BTreeMap<OsdId, u32>,
    pgs: BTreeMap<PgId, Placed>,
}

impl<'a> Group<'a> {
    fn of(map: &'a OsdMap, pools: &[PoolId]) -> Self {
        let rooms =
            pools.iter().filter_map(|id| Some((*id, Room::of(map, map.pool(*id)?)))).collect();
        let (shares, copies) = (BTreeMap::new(), BTreeMap::new());
        let mut group = Group { map, rooms, shares, copies, pgs: BTreeMap::new() };
        pools.iter().for_each(|id| group.add(*id));
        group
    }

    fn add(&mut self, id: PoolId) {
        let Some(pool) = self.map.pool(id) else { return };
        let weights = weights(self.map, id);
        let all = f64::from(pool.pg_num) * f64::from(pool.size);
        for (osd, weight) in &weights {
            *self.shares.entry(*osd).or_default() += all * weight;
            self.copies.entry(*osd).or_default();
        }
        for pgid in pool.pgs(id) {
            let raw = self.map.pg_to_raw(pgid);
            let items = self.map.pg_upmap_items.get(&pgid).cloned().unwrap_or_default();
            let by_hand = self.map.pg_upmap.get(&pgid);
            let osds = by_hand.cloned().unwrap_or_else(|| exchanged(&raw, &items));
            osds.iter().for_each(|osd| *self.copies.entry(*osd).or_default() += 1);
            let is_whole = osds.len() == usize::from(pool.size);
            if by_hand.is_none() && is_whole && !is_merged_next(self.map, pgid) {
                self.pgs.insert(pgid, Placed { raw, items, osds });
            }
        }
    }

    /// How many copies an OSD has too many; negative: too few.
    fn deviation(&self, osd: OsdId) -> f64 {
        let copies = self.copies.get(&osd).copied().unwrap_or_default();
        f64::from(copies) - self.shares.get(&osd).copied().unwrap_or_default()
    }

    fn worst(&self) -> f64 {
        self.shares.keys().map(|osd| self.deviation(*osd).abs()).fold(0.0, f64::max)
    }

    /// Moves the PG that helps most. Gives it, with its exchanges.
    fn improve(&mut self) -> Option<(PgId, Vec<(OsdId, OsdId)>)> {
        let mut order: Vec<(f64, OsdId)> =
            self.shares.keys().map(|osd| (self.deviation(*osd), *osd)).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (much, from) in &order {
            // Closer than one copy they would change places for ever.
            for (_, to) in order.iter().rev().take_while(|(little, _)| much - little > 1.0) {
                let mut pgs = self.pgs.iter();
                let found =
                    pgs.find_map(|(pgid, pg)| Some((*pgid, self.moved(*pgid, pg, *from, *to)?)));
                if let Some((pgid, items)) = found {
                    self.apply(pgid, items.clone(), *from, *to);
                    return Some((pgid, items));
                }
            }
        }
        None
    }

    /// The exchanges that bring a copy from one OSD to another, if the PG may be there.
    fn moved(
        &self,
        pgid: PgId,
        pg: &Placed,
        from: OsdId,
        to: OsdId,
    ) -> Option<Vec<(OsdId, OsdId)>> {
        if !pg.osds.contains(&from) || pg.osds.contains(&to) {
            return None;
        }
        let wanted: OsdList =
            pg.osds.iter().map(|osd| if *osd == from { to } else { *osd }).collect();
        if !self.rooms.get(&pgid.pool)?.takes(self.map, &wanted) {
            return None;
        }
        let mut items = pg.items.clone();
        match items.iter().position(|(_, osd)| *osd == from) {
            Some(at) if items.get(at).is_some_and(|(origin, _)| *origin == to) => {
                items.remove(at);
            }
            Some(at) => items.get_mut(at)?.1 = to,
            None => items.push((from, to)),
        }
        (exchanged(&pg.raw, &items) == wanted).then_some(items)
    }

    fn apply(&mut self, pgid: PgId, items: Vec<(OsdId, OsdId)>, from: OsdId, to: OsdId) {
        if let Some(pg) = self.pgs.get_mut(&pgid) {
            pg.osds = exchanged(&pg.raw, &items);
            pg.items = items;
        }
        self.copies.entry(from).and_modify(|n| *n = n.saturating_sub(1));
        *self.copies.entry(to).or_default() += 1;
    }
}

/// The share of a pool's copies that each OSD should have; they add up to 1.
pub(super) fn weights(map: &OsdMap, pool: PoolId) -> BTreeMap<OsdId, f64> {
    let rule = map.pool(pool).and_then(|p| map.rule_of(p));
    let shares = rule.map(|rule| map.crush().rule_weights(rule)).unwrap_or_default();
    let full = f64::from(maps::WEIGHT_IN);
    let weighted = shares.into_iter().map(|(id, share)| {
        let osd = OsdId(id);
        (osd, share * f64::from(map.weight(osd)) / full)
    });
    let weighted: BTreeMap<OsdId, f64> = weighted.filter(|(_, w)| *w > 0.0).collect();
    let sum: f64 = weighted.values().sum();
    weighted.into_iter().map(|(osd, weight)| (osd, weight / sum)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;
    use serde_json::json;

    /// Twelve OSDs on four hosts, of which two have twice the weight, and a pool of three copies.
    fn uneven() -> Bench {
        let mut bench = Bench::new();
        let mut run = |cmd: serde_json::Value| {
            let (status, outs, _) = bench.run(&cmd);
            assert_eq!(status, 0, "{cmd}: {outs}");
        };
        for id in 3..12 {
            run(json!({"prefix": "osd new", "uuid": format!("00000000-0000-4000-8000-{id:012}")}));
        }
        for id in 0..12 {
            let weight = if id < 2 { 2.0 } else { 1.0 };
            let args = [format!("host=h{}", id % 4), "root=default".into()];
            let verb = if id < 3 { "osd crush set" } else { "osd crush add" };
            run(json!({"prefix": verb, "id": id, "weight": weight, "args": args}));
            run(json!({"prefix": "osd in", "ids": [id.to_string()]}));
        }
        run(json!({"prefix": "osd pool create", "pool": "a", "pg_num": 128, "size": 3}));
        bench
    }

    fn deviation(map: &OsdMap, pool: PoolId) -> f64 {
        Group::of(map, &[pool]).worst()
    }

    #[test]
    fn every_osd_gets_its_share_and_no_host_two_copies() {
        let bench = uneven();
        let map = bench.c.map().clone();
        let pool = bench.c.pool_id("a").unwrap();
        let before = deviation(&map, pool);
        let limits = Limits { max_deviation: 1.0, changes: 1000 };
        let changes = optimize(&map, &[pool].into(), limits);
        let after = super::super::with(&map, &changes);
        assert!(before > 4.0 && deviation(&after, pool) <= 1.0, "{before}");
        let room = Room::of(&after, after.pool(pool).unwrap());
        for pgid in after.pools[&pool].pgs(pool) {
            let items = after.pg_upmap_items.get(&pgid).cloned().unwrap_or_default();
            let osds = exchanged(&after.pg_to_raw(pgid), &items);
            assert!(room.takes(&after, &osds), "{pgid} {osds:?}");
            assert_eq!(room.exchanges(&after, pgid, &items), items, "nothing is in vain");
        }
        assert_eq!(optimize(&after, &[pool].into(), limits), Changes::new(), "it is good now");
    }

    #[test]
    fn it_stops_where_it_was_told_to() {
        let bench = uneven();
        let map = bench.c.map().clone();
        let pools: BTreeSet<PoolId> = map.pools.keys().copied().collect();
        let few = optimize(&map, &pools, Limits { max_deviation: 1.0, changes: 3 });
        assert_eq!(few.len(), 3);
        let content = Limits { max_deviation: 1000.0, changes: 1000 };
        assert_eq!(optimize(&map, &pools, content), Changes::new());
    }
}

//! Which PGs to move so that every OSD has its share, by exceptions from CRUSH (upmaps). Pools of one rule
//! are looked at together. Source of the aims: Ceph `osd/OSDMap.cc: calc_pg_upmaps`; the search is ours: the
//! OSD that is farthest above its share gives a PG to the one farthest below it that may have one of its PGs.
//! One of the two is farther from its share than the limit says: between others nothing is moved, also where nothing
//! can be done for those beyond it.
//!
//! To find that nothing can be moved takes a look at each copy, and for each as many looks at domains as a PG has
//! copies: OSDs are sorted within their domains, and in all but those of the other copies the first one will do.

use crate::osds::{Domain, Room};
use crate::pgmap::Placer;
use crate::pools::is_merged_next;
use maps::{OsdList, OsdMap, exchange};
use std::collections::{BTreeMap, BTreeSet};
use types::{OsdId, PgId, PoolId};

/// What changes: the exchanges of a PG from now on; empty: what CRUSH says.
pub(crate) type Changes = BTreeMap<PgId, Exchanges>;
/// From, to.
type Exchanges = Vec<(OsdId, OsdId)>;

/// OSDs that are considered for PGs in one search, at most: some tenths of a second. With more than this the best move
/// may not be found, but some is.
const MAX_LOOKS: usize = 1_000_000;

/// How far it goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// Copies of PGs that an OSD may have beside its share.
    pub max_deviation: f64,
    /// PGs that are moved at most.
    pub changes: usize,
}

/// What to change.
pub(crate) fn optimize(placer: Placer<'_>, pools: &BTreeSet<PoolId>, limits: Limits) -> Changes {
    let map = placer.map;
    let mut by_rule: BTreeMap<u32, Vec<PoolId>> = BTreeMap::new();
    for (id, pool) in map.pools.iter().filter(|(id, _)| pools.contains(id)) {
        if let Some(rule) = map.rule_of(pool) {
            by_rule.entry(rule).or_default().push(*id);
        }
    }
    let mut changes = Changes::new();
    for (rule, pools) in by_rule {
        let mut group = Group::of(placer, rule, &pools);
        while changes.len() < limits.changes
            && let Some((pgid, items)) = group.improve(limits.max_deviation)
        {
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
    items: Exchanges,
    osds: OsdList,
}

/// A PG's way to another OSD.
struct Move {
    /// How far that OSD is from its share.
    little: f64,
    pgid: PgId,
    to: OsdId,
    items: Exchanges,
}

/// OSDs of a failure domain with their deviations, the least first. Of domains the one with the least first.
type Takers = Vec<(Domain, Vec<(f64, OsdId)>)>;

/// Pools of one rule, and what their OSDs have of them.
struct Group<'a> {
    placer: Placer<'a>,
    map: &'a OsdMap,
    rooms: BTreeMap<PoolId, Room>,
    /// Copies that each OSD should have, by its weight.
    shares: BTreeMap<OsdId, f64>,
    copies: BTreeMap<OsdId, u32>,
    pgs: BTreeMap<PgId, Placed>,
    /// Of these PGs those that each OSD has.
    held: BTreeMap<OsdId, BTreeSet<PgId>>,
    /// See [`MAX_LOOKS`].
    looks: usize,
}

impl<'a> Group<'a> {
    fn of(placer: Placer<'a>, rule: u32, pools: &[PoolId]) -> Self {
        let map = placer.map;
        let mut group = Group {
            placer,
            map,
            rooms: Room::of(map, pools.iter().copied()),
            shares: BTreeMap::new(),
            copies: BTreeMap::new(),
            pgs: BTreeMap::new(),
            held: BTreeMap::new(),
            looks: 0,
        };
        let weights = weights(map, rule);
        pools.iter().for_each(|id| group.add(*id, &weights));
        group
    }

    fn add(&mut self, id: PoolId, weights: &BTreeMap<OsdId, f64>) {
        let Some(pool) = self.map.pool(id) else { return };
        let all = f64::from(pool.pg_num) * f64::from(pool.size);
        for (osd, weight) in weights {
            *self.shares.entry(*osd).or_default() += all * weight;
            self.copies.entry(*osd).or_default();
        }
        for pgid in pool.pgs(id) {
            let raw = self.placer.raw(pgid);
            let items = self.map.pg_upmap_items.get(&pgid).cloned().unwrap_or_default();
            let by_hand = self.map.pg_upmap.get(&pgid);
            let osds = by_hand.cloned().unwrap_or_else(|| exchanged(&raw, &items));
            osds.iter().for_each(|osd| *self.copies.entry(*osd).or_default() += 1);
            let is_whole = osds.len() == usize::from(pool.size);
            if by_hand.is_none() && is_whole && !is_merged_next(self.map, pgid) {
                for osd in &osds {
                    self.held.entry(*osd).or_default().insert(pgid);
                }
                self.pgs.insert(pgid, Placed { raw, items, osds });
            }
        }
    }

    /// How many copies an OSD has too many; negative: too few.
    fn deviation(&self, osd: OsdId) -> f64 {
        let copies = self.copies.get(&osd).copied().unwrap_or_default();
        f64::from(copies) - self.shares.get(&osd).copied().unwrap_or_default()
    }

    /// Moves the PG that helps most. Gives it, with its exchanges.
    fn improve(&mut self, max_deviation: f64) -> Option<(PgId, Exchanges)> {
        let mut order: Vec<(f64, OsdId)> =
            self.shares.keys().map(|osd| (self.deviation(*osd), *osd)).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let takers = self.takers(&order);
        self.looks = MAX_LOOKS;
        let (least, _) = *order.last()?;
        for (much, from) in order {
            let below = takes_below(much, max_deviation);
            if least >= below {
                break;
            }
            if let Some(best) = self.best_move(from, below, &takers) {
                self.apply(best.pgid, best.items.clone(), from, best.to);
                return Some((best.pgid, best.items));
            }
        }
        None
    }

    /// Who could take PGs. `order` has who has too much first.
    fn takers(&self, order: &[(f64, OsdId)]) -> Takers {
        let mut by_domain: BTreeMap<Domain, Vec<(f64, OsdId)>> = BTreeMap::new();
        // All pools have the same rule.
        let Some(places) = self.rooms.values().next().map(Room::places) else { return Vec::new() };
        for (much, osd) in order.iter().rev() {
            if let Some(domain) = places.domain(*osd) {
                by_domain.entry(domain).or_default().push((*much, *osd));
            }
        }
        let mut takers: Takers = by_domain.into_iter().collect();
        let least = |osds: &[(f64, OsdId)]| osds.first().map_or(f64::MAX, |(little, _)| *little);
        takers.sort_by(|a, b| least(&a.1).total_cmp(&least(&b.1)));
        takers
    }

    /// Of all PGs of an OSD the one that can go to who has the least, if that is `below` this.
    fn best_move(&mut self, from: OsdId, below: f64, takers: &Takers) -> Option<Move> {
        let mut best: Option<Move> = None;
        for pgid in self.held.get(&from)? {
            let Some(pg) = self.pgs.get(pgid) else { continue };
            let Some(room) = self.rooms.get(&pgid.pool) else { continue };
            let others = pg.osds.iter().filter(|osd| **osd != from);
            let taken: Vec<_> = others.filter_map(|osd| room.places().domain(*osd)).collect();
            let free = takers.iter().filter(|(domain, _)| !taken.contains(domain));
            for (little, to) in free.flat_map(|(_, osds)| osds) {
                let beats = best.as_ref().is_none_or(|best| *little < best.little);
                if !beats || *little >= below || self.looks == 0 {
                    break;
                }
                self.looks -= 1;
                if let Some(items) = moved(room, pg, from, *to) {
                    best = Some(Move { little: *little, pgid: *pgid, to: *to, items });
                    break;
                }
            }
        }
        best
    }

    fn apply(&mut self, pgid: PgId, items: Exchanges, from: OsdId, to: OsdId) {
        if let Some(pg) = self.pgs.get_mut(&pgid) {
            pg.osds = exchanged(&pg.raw, &items);
            pg.items = items;
        }
        self.held.entry(from).or_default().remove(&pgid);
        self.held.entry(to).or_default().insert(pgid);
        self.copies.entry(from).and_modify(|n| *n = n.saturating_sub(1));
        *self.copies.entry(to).or_default() += 1;
    }
}

/// An OSD that is so far above its share gives to those that are below this: closer than one copy they would change
/// places for ever. It gives within the limit only to those that are not.
fn takes_below(much: f64, max_deviation: f64) -> f64 {
    let below = much - 1.0;
    if much > max_deviation { below } else { below.min(-max_deviation) }
}

/// The exchanges that bring a copy from one OSD to another, if the PG may be there.
fn moved(room: &Room, pg: &Placed, from: OsdId, to: OsdId) -> Option<Exchanges> {
    if pg.osds.contains(&to) {
        return None;
    }
    let wanted: OsdList = pg.osds.iter().map(|osd| if *osd == from { to } else { *osd }).collect();
    if !room.takes(&wanted) {
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

/// The share of all copies by a rule that each OSD should have; they add up to 1.
pub(super) fn weights(map: &OsdMap, rule: u32) -> BTreeMap<OsdId, f64> {
    let full = f64::from(maps::WEIGHT_IN);
    let weighted = map.crush().rule_weights(rule).into_iter().map(|(id, share)| {
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
        let rule = map.rule_of(map.pool(pool).unwrap()).unwrap();
        worst(&Group::of(Placer::plain(map), rule, &[pool]))
    }

    fn worst(group: &Group<'_>) -> f64 {
        group.shares.keys().map(|osd| group.deviation(*osd).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn every_osd_gets_its_share_and_no_host_two_copies() {
        let bench = uneven();
        let map = bench.c.map().clone();
        let pool = bench.c.pool_id("a").unwrap();
        let before = deviation(&map, pool);
        let limits = Limits { max_deviation: 1.0, changes: 1000 };
        let changes = optimize(Placer::plain(&map), &[pool].into(), limits);
        let after = super::super::with(&map, &changes);
        assert!(before > 4.0 && deviation(&after, pool) <= 1.0, "{before}");
        let room = Room::of(&after, [pool]).remove(&pool).unwrap();
        for pgid in after.pools[&pool].pgs(pool) {
            let items = after.pg_upmap_items.get(&pgid).cloned().unwrap_or_default();
            let osds = exchanged(&after.pg_to_raw(pgid), &items);
            assert!(room.takes(&osds), "{pgid} {osds:?}");
            assert_eq!(room.exchanges(after.pg_to_raw(pgid), &items), items, "nothing is in vain");
        }
        assert_eq!(
            optimize(Placer::plain(&after), &[pool].into(), limits),
            Changes::new(),
            "it is good now"
        );
    }

    #[test]
    fn it_stops_where_it_was_told_to() {
        let bench = uneven();
        let map = bench.c.map().clone();
        let pools: BTreeSet<PoolId> = map.pools.keys().copied().collect();
        let few = optimize(Placer::plain(&map), &pools, Limits { max_deviation: 1.0, changes: 3 });
        assert_eq!(few.len(), 3);
        let content = Limits { max_deviation: 1000.0, changes: 1000 };
        assert_eq!(optimize(Placer::plain(&map), &pools, content), Changes::new());
    }

    /// OSDs on hosts of their own, in racks of so many, and a pool with a copy in each of three racks.
    fn racks(sizes: &[i32], pg_num: u32) -> (OsdMap, PoolId) {
        let now = types::UTime { sec: 1_700_000_000, nsec: 0 };
        let fsid = types::Uuid::from_random(7);
        let fresh = maps::FreshOsdMap { fsid, now, failure_domain: "rack".into() };
        let mut map = OsdMap::fresh(&fresh).unwrap();
        let mut crush = crush::CrushMap::clone(map.crush());
        let mut inc = maps::Incremental::after(&map);
        let racks = sizes.iter().enumerate().flat_map(|(rack, n)| (0..*n).map(move |_| rack));
        for (id, rack) in (0..).zip(racks) {
            let words = [format!("host=h{id}"), format!("rack=r{rack}"), "root=default".into()];
            let place = crush::Location::parse(&words).unwrap();
            crush.insert_item(id, crush::WEIGHT_ONE, &format!("osd.{id}"), &place).unwrap();
            inc.new_weight.insert(OsdId(id), maps::WEIGHT_IN);
        }
        inc.new_max_osd = Some(sizes.iter().sum());
        inc.set_crush(&crush);
        let (id, pool) =
            (PoolId(1), maps::PgPool::new(maps::PoolType::REPLICATED, 3, 2, 0, pg_num));
        inc.new_pools.insert(id, pool);
        inc.new_pool_names.insert(id, "p".into());
        map.apply(&inc).unwrap();
        (map, id)
    }

    /// A rack with few OSDs has as many copies as one with many: that cannot be mended, and to see it must not take a
    /// look at each pair of OSDs and each PG.
    #[test]
    fn that_nothing_helps_is_seen_in_a_few_looks_at_each_copy() {
        let (map, pool) = racks(&[4, 8, 12], 128);
        let mut group = Group::of(Placer::plain(&map), 0, &[pool]);
        while group.improve(0.0).is_some() {}
        assert!(worst(&group) > 10.0, "{}", worst(&group));
        let (looks, copies) = (MAX_LOOKS - group.looks, 3 * 128);
        assert!(looks <= copies, "{looks} looks for {copies} copies");
        // Within their racks all are equal.
        for rack in [0..4, 4..12, 12..24] {
            let copies = || rack.clone().map(|id| group.copies[&OsdId(id)]);
            assert!(copies().max().unwrap() - copies().min().unwrap() <= 1, "{:?}", group.copies);
        }
    }

    /// Those of the small rack have too many copies, and nobody elsewhere may take one. That is no reason to move
    /// copies between others.
    #[test]
    fn nothing_is_moved_between_two_that_are_near_their_shares() {
        let (map, pool) = racks(&[4, 8, 12], 128);
        let (mut group, limit) = (Group::of(Placer::plain(&map), 0, &[pool]), 5.0);
        let deviations = |group: &Group<'_>| {
            let all = group.shares.keys().map(|osd| (*osd, group.deviation(*osd)));
            all.collect::<BTreeMap<_, _>>()
        };
        let mut before = deviations(&group);
        let near = |all: &BTreeMap<OsdId, f64>| all.values().filter(|d| d.abs() <= limit).count();
        assert!(near(&before) > 8, "{before:?}");
        let mut moves = 0;
        while group.improve(limit).is_some() {
            let after = deviations(&group);
            let changed = before.iter().filter(|(osd, was)| after[osd] != **was);
            let farthest = changed.map(|(_, was)| was.abs()).fold(0.0, f64::max);
            assert!(farthest > limit, "{before:?} {after:?}");
            (before, moves) = (after, moves + 1);
        }
        assert!(moves > 0);
        // In each rack those beyond the limit are as near to it as the others let them.
        for rack in [0..4, 4..12, 12..24] {
            let all: Vec<f64> = rack.map(|id| before[&OsdId(id)]).collect();
            let most = all.iter().copied().fold(f64::MIN, f64::max);
            let least = all.iter().copied().fold(f64::MAX, f64::min);
            let is_done = (most <= limit && least >= -limit) || most - least <= 1.0;
            assert!(is_done, "{all:?}");
        }
    }
}

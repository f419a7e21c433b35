//! Which OSDs PGs have. To ask CRUSH for all of them takes seconds where there are 80,000, and what it says seldom
//! changes: of the committed map it is remembered.

use maps::{OsdList, OsdMap, PgPool, PoolFlags, UpActing};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{PgId, PoolId};

/// What CRUSH says by one map, as far as it was asked.
#[derive(Debug, Default)]
pub(super) struct Known {
    map: Option<Arc<OsdMap>>,
    raw: BTreeMap<PgId, OsdList>,
}

impl Known {
    /// Another map: forgets what CRUSH may say otherwise by it.
    pub fn follow(&mut self, map: &Arc<OsdMap>) {
        let Some(old) = self.map.replace(map.clone()) else { return };
        if Arc::ptr_eq(&old, map) {
            return;
        }
        if !chooses_alike(&old, map) {
            self.raw.clear();
            return;
        }
        if old.pools.is_same(&map.pools) {
            return;
        }
        let changed = |id: &PoolId| !places_alike(old.pools.get(id), map.pools.get(id));
        let changed: BTreeSet<PoolId> = old.pools.keys().copied().filter(changed).collect();
        if !changed.is_empty() {
            self.raw.retain(|pgid, _| !changed.contains(&pgid.pool));
        }
    }

    /// Remembers what it says of a PG by the map that was followed last.
    pub fn keep(&mut self, pgid: PgId, raw: OsdList) {
        self.raw.insert(pgid, raw);
    }

    pub fn placer<'a>(&'a self, map: &'a OsdMap) -> Placer<'a> {
        let of = self.map.as_deref();
        let of = of.filter(|of| std::ptr::eq(*of, map) || chooses_alike(of, map));
        Placer { map, known: of.map(|of| (of, &self.raw)) }
    }
}

/// Whether CRUSH has the same to choose from.
pub(crate) fn chooses_alike(a: &OsdMap, b: &OsdMap) -> bool {
    (Arc::ptr_eq(a.crush(), b.crush()) || a.crush_bytes() == b.crush_bytes())
        && a.weights() == b.weights()
        && a.existing_osds().eq(b.existing_osds())
}

/// Whether CRUSH is asked the same for a pool's PGs.
fn places_alike(a: Option<&maps::Shared<PgPool>>, b: Option<&maps::Shared<PgPool>>) -> bool {
    let asked = |p: &PgPool| {
        let pgs = (p.pg_num, p.pgp_num);
        (p.kind, p.size, p.crush_rule, pgs, p.flags.contains(PoolFlags::HASHPSPOOL))
    };
    a.zip(b).is_some_and(|(a, b)| a.is_same(b) || asked(a) == asked(b))
}

/// Places the PGs of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placer<'a> {
    pub map: &'a OsdMap,
    /// By a map by which it places all PGs alike of pools that are alike.
    known: Option<(&'a OsdMap, &'a BTreeMap<PgId, OsdList>)>,
}

impl<'a> Placer<'a> {
    /// One that asks CRUSH each time.
    #[cfg(test)]
    pub fn plain(map: &'a OsdMap) -> Self {
        Placer { map, known: None }
    }

    /// What CRUSH gives for a PG ([`OsdMap::pg_to_raw`]).
    pub fn raw(&self, pgid: PgId) -> OsdList {
        self.known(pgid).cloned().unwrap_or_else(|| self.map.pg_to_raw(pgid))
    }

    pub fn known(&self, pgid: PgId) -> Option<&'a OsdList> {
        let (of, raw) = self.known?;
        let pool = |map: &'a OsdMap| map.pools.get(&pgid.pool);
        raw.get(&pgid)
            .filter(|_| std::ptr::eq(of, self.map) || places_alike(pool(of), pool(self.map)))
    }

    /// The OSDs of a PG ([`OsdMap::pg_to_up_acting`]).
    pub fn up_acting(&self, pgid: PgId) -> UpActing {
        self.map.raw_to_up_acting(pgid, self.raw(pgid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;
    use serde_json::json;
    use std::time::Duration;

    fn done(bench: &mut Bench, cmd: serde_json::Value) {
        let (r, outs, _) = bench.run(&cmd);
        assert_eq!(r, 0, "{cmd}: {outs}");
    }

    /// How many PGs CRUSH need not be asked for. For each it would say just that.
    fn known(bench: &Bench) -> usize {
        let map = bench.c.map();
        let placer = bench.c.pgmap.placer(map);
        let all: Vec<PgId> = map.pools.iter().flat_map(|(id, p)| p.pgs(*id)).collect();
        for pgid in &all {
            assert_eq!(placer.raw(*pgid), map.pg_to_raw(*pgid), "{pgid}");
            assert_eq!(placer.up_acting(*pgid), map.pg_to_up_acting(*pgid), "{pgid}");
        }
        all.iter().filter(|pgid| placer.known(**pgid).is_some()).count()
    }

    #[test]
    fn what_crush_says_is_known_until_it_says_otherwise() {
        let mut bench = Bench::new();
        for pool in ["a", "b"] {
            done(&mut bench, json!({"prefix": "osd pool create", "pool": pool, "pg_num": 16}));
        }
        assert_eq!(known(&bench), 0);
        bench.sleep(Duration::from_secs(1));
        assert_eq!(known(&bench), 32);
        // These move PGs, if any, by what the map says beside CRUSH.
        done(&mut bench, json!({"prefix": "osd set", "key": "noscrub"}));
        done(&mut bench, json!({"prefix": "osd primary-affinity", "id": 0, "weight": 0.3}));
        done(&mut bench, json!({"prefix": "osd pool mksnap", "pool": "a", "snap": "s"}));
        bench.stop(types::OsdId(2));
        assert_eq!(known(&bench), 32);
        bench.start(types::OsdId(2));
        let set = |var: &str, val: &str| json!({"prefix": "osd pool set", "pool": "a", "var": var, "val": val});
        done(&mut bench, set("size", "2"));
        assert_eq!(known(&bench), 16, "those of the other pool");
        bench.sleep(Duration::from_secs(1));
        assert_eq!(known(&bench), 32);
        done(&mut bench, json!({"prefix": "osd reweight", "id": 0, "weight": 0.5}));
        assert_eq!(known(&bench), 0);
        bench.sleep(Duration::from_secs(1));
        let weight = json!({"prefix": "osd crush reweight", "name": "osd.1", "weight": 3.0});
        done(&mut bench, weight);
        assert_eq!(known(&bench), 0);
        // What was a plan only is not remembered.
        bench.sleep(Duration::from_secs(1));
        let mut other = OsdMap::clone(bench.c.map());
        other.set_weight(types::OsdId(0), maps::WEIGHT_IN);
        let pgid = PgId::new(bench.c.pool_id("a").unwrap(), 3);
        assert_eq!(bench.c.pgmap.placer(&other).raw(pgid), other.pg_to_raw(pgid));
        assert!(bench.c.pgmap.placer(&other).known(pgid).is_none());
        assert_eq!(known(&bench), 32);
    }

    /// There may be thousands of upmaps, and each change looks at all of them.
    #[test]
    fn changes_judge_upmaps_by_what_is_known() {
        let mut bench = Bench::new();
        done(&mut bench, json!({"prefix": "osd pool create", "pool": "a", "pg_num": 16}));
        bench.sleep(Duration::from_secs(1));
        let pgid = PgId::new(bench.c.pool_id("a").unwrap(), 3);
        let mut other = bench.c.map().pg_to_raw(pgid);
        other.rotate_left(1);
        bench.c.change(|inc, _| _ = inc.new_pg_upmap.insert(pgid, other.clone())).unwrap();
        bench.commit();
        assert_eq!(bench.c.map().pg_upmap.get(&pgid), Some(&other));
        // It would be in vain, if CRUSH said the same.
        bench.c.pgmap.known.keep(pgid, other);
        done(&mut bench, json!({"prefix": "osd set", "key": "noscrub"}));
        assert_eq!(bench.c.map().pg_upmap.get(&pgid), None);
    }
}

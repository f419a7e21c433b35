//! From object to PG to OSDs, bit for bit as every client computes it (guide §4.4).
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::flags::OsdState;
use crate::osd_info::DEFAULT_PRIMARY_AFFINITY;
use crate::osdmap::{OsdList, OsdMap};
use crate::pool::PgPool;
use types::{OsdId, PgId, PoolId};

/// Which OSDs have a PG.
///
/// `up` is what CRUSH and the upmaps give; `acting` is who serves the PG, which differs only while
/// data moves. In erasure-coded pools the place in the list is the shard and holes are
/// [`OsdId::NONE`]; in replicated pools there are no holes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpActing {
    /// Who should have the PG.
    pub up: OsdList,
    /// The primary of `up`.
    pub up_primary: Option<OsdId>,
    /// Who serves the PG.
    pub acting: OsdList,
    /// Who answers clients.
    pub acting_primary: Option<OsdId>,
}

/// Puts one OSD in the place of another, as an upmap says it. Whether that made a difference: nobody has a
/// PG twice.
pub fn exchange(osds: &mut OsdList, from: OsdId, to: OsdId) -> bool {
    if osds.contains(&to) {
        return false;
    }
    let place = osds.iter_mut().find(|osd| **osd == from);
    place.map(|osd| *osd = to).is_some()
}

fn first_osd(osds: &[OsdId]) -> Option<OsdId> {
    osds.iter().copied().find(|osd| osd.is_some())
}

impl OsdMap {
    /// The raw PG of an object: its full 32-bit hash as the seed. `None` when there is no such
    /// pool. `key` is the locator key; empty means that the name counts (`object_locator_to_pg`).
    pub fn object_to_pg(
        &self,
        pool: PoolId,
        nspace: &[u8],
        key: &[u8],
        name: &[u8],
    ) -> Option<PgId> {
        let hash = self.pool(pool)?.hash_key(nspace, key, name);
        Some(PgId::new(pool, hash))
    }

    /// The PG that a raw PG belongs to (`raw_pg_to_pg`).
    pub fn raw_pg_to_pg(&self, raw: PgId) -> Option<PgId> {
        Some(self.pool(raw.pool)?.raw_pg_to_pg(raw))
    }

    /// The rule by which CRUSH places a pool's PGs; `None` when there is none that fits.
    pub fn rule_of(&self, pool: &PgPool) -> Option<u32> {
        self.crush.find_rule(pool.crush_rule, pool.kind.0, pool.size)
    }

    /// What CRUSH gives for a PG, before upmaps and the state of OSDs (`pg_to_raw_osds`).
    pub fn pg_to_raw(&self, pg: PgId) -> OsdList {
        let pool = self.pool(pg.pool);
        pool.map_or_else(OsdList::new, |pool| self.raw_osds(pool, pg).0)
    }

    /// The OSDs of a PG; of one that does not exist, none (`pg_to_up_acting_osds`).
    pub fn pg_to_up_acting(&self, pg: PgId) -> UpActing {
        let Some(pool) = self.pool(pg.pool).filter(|pool| pg.seed < pool.pg_num) else {
            return UpActing::default();
        };
        let (raw, pps) = self.raw_osds(pool, pg);
        self.up_acting(pool, pg, raw, pps)
    }

    /// The same, when what CRUSH gives is known ([`OsdMap::pg_to_raw`]).
    pub fn raw_to_up_acting(&self, pg: PgId, raw: OsdList) -> UpActing {
        let Some(pool) = self.pool(pg.pool).filter(|pool| pg.seed < pool.pg_num) else {
            return UpActing::default();
        };
        self.up_acting(pool, pg, raw, pool.raw_pg_to_pps(pg))
    }

    fn up_acting(&self, pool: &PgPool, pg: PgId, mut up: OsdList, pps: u32) -> UpActing {
        self.apply_upmap(pg, &mut up);
        self.retain(pool, &mut up, OsdState::EXISTS | OsdState::UP);
        let mut up_primary = first_osd(&up);
        self.apply_primary_affinity(pool, pps, &mut up, &mut up_primary);

        let mut acting = self.pg_temp.get(&pg).cloned().unwrap_or_default();
        self.retain(pool, &mut acting, OsdState::EXISTS | OsdState::UP);
        let temp_primary = self.primary_temp.get(&pg).copied();
        let mut acting_primary = temp_primary.or_else(|| first_osd(&acting));
        if acting.is_empty() {
            acting = up.clone();
            acting_primary = acting_primary.or(up_primary);
        }
        UpActing { up, up_primary, acting, acting_primary }
    }

    /// The acting set and primary only (`pg_to_acting_osds`).
    pub fn pg_to_acting(&self, pg: PgId) -> (OsdList, Option<OsdId>) {
        let all = self.pg_to_up_acting(pg);
        (all.acting, all.acting_primary)
    }

    /// CRUSH's result without OSDs that do not exist, and the number it was placed by.
    fn raw_osds(&self, pool: &PgPool, pg: PgId) -> (OsdList, u32) {
        let pps = pool.raw_pg_to_pps(pg);
        let rule = self.rule_of(pool);
        let mut osds = OsdList::new();
        if let Some(rule) = rule {
            let args = self.crush.choose_args_for(pg.pool.0);
            let size = usize::from(pool.size);
            let mapping = self.crush.do_rule(rule, pps, size, &self.weights, args);
            osds.extend(mapping.into_iter().map(OsdId));
        }
        self.retain(pool, &mut osds, OsdState::EXISTS);
        (osds, pps)
    }

    /// Takes out OSDs that are not in this state. Copies move up; of a shard the place stays empty.
    fn retain(&self, pool: &PgPool, osds: &mut OsdList, state: OsdState) {
        if pool.can_shift() {
            osds.retain(|osd| self.state(*osd).contains(state));
        } else {
            for osd in osds.iter_mut() {
                if !self.state(*osd).contains(state) {
                    *osd = OsdId::NONE;
                }
            }
        }
    }

    /// Whether an upmap to this OSD is void, since it is marked out.
    fn is_marked_out(&self, osd: OsdId) -> bool {
        let weight = osd.index().and_then(|i| self.weights.get(i));
        weight == Some(&0)
    }

    fn apply_upmap(&self, pg: PgId, osds: &mut OsdList) {
        if let Some(explicit) = self.pg_upmap.get(&pg) {
            if explicit.iter().any(|&osd| self.is_marked_out(osd)) {
                return;
            }
            osds.clone_from(explicit);
        }
        for &(from, to) in self.pg_upmap_items.get(&pg).into_iter().flatten() {
            if !self.is_marked_out(to) {
                exchange(osds, from, to);
            }
        }
    }

    /// Lets OSDs of lower affinity pass on being primary, by chance but always alike.
    fn apply_primary_affinity(
        &self,
        pool: &PgPool,
        pps: u32,
        osds: &mut OsdList,
        primary: &mut Option<OsdId>,
    ) {
        if self.primary_affinity.is_empty() {
            return;
        }
        let affinity = |osd: OsdId| self.primary_affinity(osd);
        let real = |osd: &&OsdId| osd.is_some();
        let plain = |osd: &OsdId| affinity(*osd) == DEFAULT_PRIMARY_AFFINITY;
        if osds.iter().filter(real).all(plain) {
            return;
        }
        let passes = |osd: OsdId| {
            let a = affinity(osd);
            a < DEFAULT_PRIMARY_AFFINITY && crush::hash2(pps, osd.0 as u32) >> 16 >= a
        };
        let takes = |osd: &OsdId| osd.is_some() && !passes(*osd);
        let willing = osds.iter().position(takes);
        // When all pass, it is the first one after all.
        let Some(chosen) = willing.or_else(|| osds.iter().position(|osd| osd.is_some())) else {
            return;
        };
        *primary = osds.get(chosen).copied();
        if pool.can_shift()
            && let Some(front) = osds.get_mut(..=chosen)
        {
            front.rotate_right(1);
        }
    }
}

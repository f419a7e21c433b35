//! An OSDMap with the eyes of peering.

use maps::{OsdMap, OsdState};
use pg::{MapView, Mapping, PoolRules};
use types::{Epoch, OsdId, PgId, PoolId};

/// A map as peering sees it.
pub struct View<'a>(pub &'a OsdMap);

impl MapView for View<'_> {
    fn epoch(&self) -> Epoch {
        self.0.epoch
    }
    fn exists(&self, osd: OsdId) -> bool {
        self.0.exists(osd)
    }
    fn is_up(&self, osd: OsdId) -> bool {
        self.0.is_up(osd)
    }
    fn up_from(&self, osd: OsdId) -> Epoch {
        self.0.osd(osd).map_or(Epoch::ZERO, |o| o.info.up_from)
    }
    fn up_thru(&self, osd: OsdId) -> Epoch {
        self.0.osd(osd).map_or(Epoch::ZERO, |o| o.info.up_thru)
    }
    fn lost_at(&self, osd: OsdId) -> Epoch {
        self.0.osd(osd).map_or(Epoch::ZERO, |o| o.info.lost_at)
    }
    fn is_full(&self, osd: OsdId) -> bool {
        self.0.state(osd).contains(OsdState::FULL)
    }
}

/// Up and acting set of a PG by a map.
pub fn mapping(map: &OsdMap, pgid: PgId) -> Mapping {
    let ua = map.pg_to_up_acting(pgid);
    Mapping {
        up: ua.up.iter().copied().collect(),
        up_primary: ua.up_primary,
        acting: ua.acting.iter().copied().collect(),
        acting_primary: ua.acting_primary,
    }
}

/// The pool's rules for PGs by a map; those of a pool that is gone are all zero.
pub fn pool_rules(map: &OsdMap, pool: PoolId) -> PoolRules {
    let rules = |p: &maps::PgPool| PoolRules {
        size: u32::from(p.size),
        min_size: u32::from(p.min_size),
        pg_num: p.pg_num,
        pg_num_pending: p.pg_num_pending,
    };
    let none = PoolRules { size: 0, min_size: 0, pg_num: 0, pg_num_pending: 0 };
    map.pool(pool).map_or(none, rules)
}

//! The small world's map: what peering asks of the cluster's.

use pg::*;
use std::collections::{BTreeMap, BTreeSet};
use types::*;

/// One epoch of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Map {
    pub epoch: u32,
    pub up: BTreeSet<i32>,
    pub up_from: BTreeMap<i32, u32>,
    pub up_thru: BTreeMap<i32, u32>,
    pub full: BTreeSet<i32>,
    pub pg_temp: Vec<i32>,
    pub order: Vec<i32>,
    pub size: u32,
    pub min_size: u32,
}

impl MapView for Map {
    fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }
    fn exists(&self, _: OsdId) -> bool {
        true
    }
    fn is_up(&self, osd: OsdId) -> bool {
        self.up.contains(&osd.0)
    }
    fn up_from(&self, osd: OsdId) -> Epoch {
        Epoch(self.up_from.get(&osd.0).copied().unwrap_or(0))
    }
    fn up_thru(&self, osd: OsdId) -> Epoch {
        Epoch(self.up_thru.get(&osd.0).copied().unwrap_or(0))
    }
    fn lost_at(&self, _: OsdId) -> Epoch {
        Epoch::ZERO
    }
    fn is_full(&self, osd: OsdId) -> bool {
        self.full.contains(&osd.0)
    }
}

impl Map {
    pub fn mapping(&self) -> Mapping {
        let live = |ids: &[i32]| -> OsdSet {
            ids.iter().filter(|o| self.up.contains(o)).map(|o| OsdId(*o)).collect()
        };
        let mut up = live(&self.order);
        up.truncate(self.size as usize);
        let mut acting = live(&self.pg_temp);
        if acting.is_empty() {
            acting = up.clone();
        }
        let (p, a) = (up.first().copied(), acting.first().copied());
        Mapping { up, up_primary: p, acting, acting_primary: a }
    }

    pub fn rules(&self) -> PoolRules {
        PoolRules { size: self.size, min_size: self.min_size, pg_num: 1, pg_num_pending: 1 }
    }
}

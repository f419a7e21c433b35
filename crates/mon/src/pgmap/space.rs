//! How much a pool can still take.

use super::PgMap;
use maps::{OsdMap, PgPool};
use types::OsdId;

impl PgMap {
    /// Raw bytes that can still be written through a rule before the first of its OSDs is full
    /// (`get_rule_avail`).
    pub fn rule_available(&self, map: &OsdMap, rule: u32) -> u64 {
        let shares = map.crush().rule_weights(rule);
        let full = f64::from(map.full_ratio);
        let room = shares.iter().filter_map(|(&id, &share)| {
            let id = OsdId(id);
            let space = self.osd(id).filter(|_| map.is_in(id))?.space;
            if space.total == 0 || share <= 0.0 {
                return None;
            }
            let unusable = space.total as f64 * (1.0 - full);
            Some((space.available as f64 - unusable).max(0.0) / share)
        });
        room.min_by(f64::total_cmp).map_or(0, |bytes| bytes as u64)
    }

    /// The same for a pool.
    pub fn pool_available_raw(&self, map: &OsdMap, pool: &PgPool) -> u64 {
        let rule = map.rule_of(pool);
        rule.map_or(0, |rule| self.rule_available(map, rule))
    }
}

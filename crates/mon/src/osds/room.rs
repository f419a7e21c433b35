//! Which OSDs may hold the copies of a pool's PGs together.

use crush::Op;
use maps::{OsdMap, PgPool, exchange};
use std::collections::BTreeSet;
use types::{OsdId, PgId};

/// Where the rule of a pool can put copies.
pub(crate) struct Room {
    size: usize,
    osds: BTreeSet<OsdId>,
    /// The type of bucket that no two copies share; 0 for none.
    domain: u16,
}

impl Room {
    pub fn of(map: &OsdMap, pool: &PgPool) -> Self {
        let crush = map.crush();
        let number = map.rule_of(pool);
        let weights = number.map(|number| crush.rule_weights(number)).unwrap_or_default();
        let weighty = weights.into_iter().filter(|(_, w)| *w > 0.0).map(|(id, _)| OsdId(id));
        let steps = number.and_then(|n| crush.rule(n)).map(|r| &r.steps[..]).unwrap_or_default();
        let chooses = |op: Op| {
            matches!(
                op,
                Op::CHOOSE_FIRSTN | Op::CHOOSE_INDEP | Op::CHOOSELEAF_FIRSTN | Op::CHOOSELEAF_INDEP
            )
        };
        // A rule that chooses in several steps may well put copies side by side.
        let domain = match steps.iter().filter(|s| chooses(s.op)).collect::<Vec<_>>()[..] {
            [step] => u16::try_from(step.arg2).unwrap_or(0),
            _ => 0,
        };
        let osds = weighty.filter(|&id| map.is_in(id)).collect();
        Room { size: pool.size.into(), osds, domain }
    }

    /// Whether these OSDs can have a PG.
    pub fn takes(&self, map: &OsdMap, osds: &[OsdId]) -> bool {
        let distinct: BTreeSet<_> = osds
            .iter()
            .map(|id| match self.domain {
                0 => Some(id.0),
                kind => map.crush().ancestor_of_type(id.0, kind),
            })
            .collect();
        osds.len() == self.size
            && osds.iter().all(|id| self.osds.contains(id))
            && distinct.len() == osds.len()
    }

    /// The exchanges that make a difference, if they lead to OSDs that can have the PG.
    pub fn exchanges(
        &self,
        map: &OsdMap,
        pgid: PgId,
        items: &[(OsdId, OsdId)],
    ) -> Vec<(OsdId, OsdId)> {
        let mut osds = map.pg_to_raw(pgid);
        let mut left = items.to_vec();
        left.retain(|(from, to)| exchange(&mut osds, *from, *to));
        // One that CRUSH finds no full set for is left as it is.
        let full = osds.len() == self.size;
        if full && !self.takes(map, &osds) { Vec::new() } else { left }
    }
}

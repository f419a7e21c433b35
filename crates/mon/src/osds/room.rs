//! Which OSDs may hold the copies of a pool's PGs together.

use crush::{Bucket, CrushMap, ItemId, Op};
use maps::{OsdList, OsdMap, PgPool, exchange};
use std::collections::BTreeMap;
use std::rc::Rc;
use types::{OsdId, PoolId};

/// What no two copies of a PG may share: the bucket of the rule's type that an OSD stands below, or the OSD itself.
/// `None`: it stands below none.
pub(crate) type Domain = Option<ItemId>;

/// Where a rule can put copies: its OSDs that are in, and the domain of each.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<OsdId, Domain>);

impl Places {
    /// Of a rule.
    fn of(map: &OsdMap, rule: u32) -> Self {
        let crush = map.crush();
        let weighty = crush.rule_weights(rule).into_iter().filter(|(_, w)| *w > 0.0);
        let osds = weighty.map(|(id, _)| OsdId(id)).filter(|&id| map.is_in(id));
        Places(match domain_type(crush, rule) {
            0 => osds.map(|id| (id, Some(id.0))).collect(),
            kind => {
                let parents = crush.parents();
                let above = |id: &ItemId| parents.get(id).copied();
                let bucket = |id: OsdId| {
                    let mut ancestors =
                        std::iter::successors(above(&id.0), |bucket| above(&bucket.id()));
                    ancestors.find(|bucket| bucket.kind() == kind).map(Bucket::id)
                };
                osds.map(|id| (id, bucket(id))).collect()
            }
        })
    }

    /// The domain of an OSD that can be chosen.
    pub fn domain(&self, id: OsdId) -> Option<Domain> {
        self.0.get(&id).copied()
    }
}

/// The type of bucket that no two copies share; 0 for none.
fn domain_type(crush: &CrushMap, rule: u32) -> u16 {
    let steps = crush.rule(rule).map(|r| &r.steps[..]).unwrap_or_default();
    let chooses = |op: Op| {
        matches!(
            op,
            Op::CHOOSE_FIRSTN | Op::CHOOSE_INDEP | Op::CHOOSELEAF_FIRSTN | Op::CHOOSELEAF_INDEP
        )
    };
    // A rule that chooses in several steps may well put copies side by side.
    match steps.iter().filter(|s| chooses(s.op)).collect::<Vec<_>>()[..] {
        [step] => u16::try_from(step.arg2).unwrap_or(0),
        _ => 0,
    }
}

/// Where the copies of a pool's PGs can be.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    size: usize,
    places: Rc<Places>,
}

impl Room {
    /// Of these pools, as far as there are such.
    pub fn of(map: &OsdMap, pools: impl IntoIterator<Item = PoolId>) -> BTreeMap<PoolId, Room> {
        // There may be thousands of pools, and few rules.
        let mut by_rule: BTreeMap<u32, Rc<Places>> = BTreeMap::new();
        let mut room = |pool: &PgPool| {
            let places = map.rule_of(pool).map(|rule| {
                let places = by_rule.entry(rule);
                places.or_insert_with(|| Rc::new(Places::of(map, rule))).clone()
            });
            Room { size: pool.size.into(), places: places.unwrap_or_default() }
        };
        pools.into_iter().filter_map(|id| Some((id, room(map.pool(id)?)))).collect()
    }

    /// Where the pool's rule can put copies.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Whether these OSDs can have a PG.
    pub fn takes(&self, osds: &[OsdId]) -> bool {
        let domains = osds.iter().map(|id| self.places.domain(*id));
        let Some(domains) = domains.collect::<Option<Vec<Domain>>>() else { return false };
        let is_new = |(at, domain): (usize, &Domain)| !domains.iter().take(at).any(|d| d == domain);
        osds.len() == self.size && domains.iter().enumerate().all(is_new)
    }

    /// The exchanges that make a difference, if they lead to OSDs that can have the PG for which CRUSH gives these.
    pub fn exchanges(&self, mut osds: OsdList, items: &[(OsdId, OsdId)]) -> Vec<(OsdId, OsdId)> {
        let mut left = items.to_vec();
        left.retain(|(from, to)| exchange(&mut osds, *from, *to));
        // One that CRUSH finds no full set for is left as it is.
        let full = osds.len() == self.size;
        if full && !self.takes(&osds) { Vec::new() } else { left }
    }
}

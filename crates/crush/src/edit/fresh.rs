//! The map a new cluster starts with.

use super::{Result, RuleMode};
use crate::location::Location;
use crate::map::{CrushMap, RULE_REPLICATED};

/// The types of a new map; a type's number is its place (`build_crush_types`).
pub(super) const TYPES: [&str; 12] = [
    "osd",
    "host",
    "chassis",
    "rack",
    "row",
    "pdu",
    "pod",
    "room",
    "datacenter",
    "zone",
    "region",
    "root",
];

impl CrushMap {
    /// No types, buckets or rules, and the default tunables.
    pub fn empty() -> Self {
        CrushMap::default()
    }

    /// The map of a new cluster (`OSDMap::build_simple_crush_map`): the default types, the empty
    /// root `default` and the rule `replicated_rule`, whose failure domain is given by its type's
    /// name (`osd_crush_chooseleaf_type`; `host` unless configured otherwise).
    ///
    /// # Errors
    /// When there is no such type.
    pub fn fresh(failure_domain: &str) -> Result<Self> {
        let mut map = CrushMap::empty();
        for (kind, name) in TYPES.into_iter().enumerate() {
            map.set_type_name(kind as i32, name);
        }
        map.add_bucket("default", "root", &Location::default())?;
        let mode = RuleMode::Firstn;
        map.add_simple_rule(
            "replicated_rule",
            "default",
            failure_domain,
            None,
            mode,
            RULE_REPLICATED,
        )?;
        Ok(map)
    }
}

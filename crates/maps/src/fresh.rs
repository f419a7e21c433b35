//! The OSDMap a new cluster starts with.

use crate::flags::{OsdMapFlags, Release};
use crate::osdmap::{EcProfiles, OsdMap};
use crush::{CrushError, CrushMap};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Epoch, UTime, Uuid};

/// What a new cluster's configuration decides.
#[derive(Clone, Debug)]
pub struct FreshOsdMap {
    /// The cluster.
    pub fsid: Uuid,
    /// The present.
    pub now: UTime,
    /// The type of bucket that the first rule spreads over (`osd_crush_chooseleaf_type`).
    pub failure_domain: String,
}

impl OsdMap {
    /// The map of epoch 1, as a mon of 16.2 makes it: no OSDs, no pools, the default CRUSH map and
    /// erasure-code profile.
    ///
    /// # Errors
    /// When there is no such failure domain.
    pub fn fresh(config: &FreshOsdMap) -> Result<OsdMap, CrushError> {
        let mut map = OsdMap {
            fsid: config.fsid,
            epoch: Epoch(1),
            created: config.now,
            modified: config.now,
            flags: OsdMapFlags::FRESH,
            erasure_code_profiles: default_profiles(),
            nearfull_ratio: 0.85,
            full_ratio: 0.95,
            backfillfull_ratio: 0.9,
            require_min_compat_client: Release::LUMINOUS,
            require_osd_release: Release::PACIFIC,
            ..OsdMap::default()
        };
        map.set_crush(Arc::new(CrushMap::fresh(&config.failure_domain)?));
        Ok(map)
    }
}

/// `osd_pool_default_erasure_code_profile`
fn default_profiles() -> EcProfiles {
    let words = [("k", "2"), ("m", "2"), ("plugin", "jerasure"), ("technique", "reed_sol_van")];
    let profile = words.map(|(k, v)| (k.to_owned(), v.to_owned()));
    BTreeMap::from([("default".to_owned(), BTreeMap::from(profile))])
}

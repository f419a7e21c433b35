//! What a new cluster starts with, against what a real mon made.

use crate::samples::{full, full_bytes};
use maps::{FreshOsdMap, OsdMap};

#[test]
fn the_first_map_is_that_of_a_real_mon() {
    let real = full(1);
    let config = FreshOsdMap {
        fsid: real.fsid,
        now: real.created,
        // The sample cluster's configuration: osd_crush_chooseleaf_type = 0.
        failure_domain: "osd".into(),
    };
    let mut ours = OsdMap::fresh(&config).unwrap();
    ours.modified = real.modified;
    assert_eq!(crush::decompile(ours.crush()), crush::decompile(real.crush()));
    assert_eq!(ours, real);
    assert_eq!(denc::encode(&ours), full_bytes(1));
}

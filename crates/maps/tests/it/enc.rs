//! The built-in instances of `ceph-dencoder`.

use crate::samples::{json, unhex};
use denc::{Decode, Encode};
use maps::{Incremental, MgrMap, MonMap, OsdInfo, OsdMap, OsdXInfo, PgPool, PoolSnap};

fn round_trip<T: Encode + Decode>(kind: &str) {
    let file = json(&format!("enc/{kind}.json"));
    for test in file["tests"].as_array().unwrap() {
        if test["roundtrip_same"] != true {
            continue;
        }
        let bytes = unhex(test["hex"].as_str().unwrap());
        let value: T =
            denc::decode_all(&bytes).unwrap_or_else(|e| panic!("{kind} {}: {e}", test["test"]));
        assert_eq!(denc::encode(&value), bytes, "{kind} {}", test["test"]);
    }
}

#[test]
fn instances_encode_to_the_same_bytes() {
    round_trip::<OsdMap>("OSDMap");
    round_trip::<Incremental>("OSDMap__Incremental");
    round_trip::<PgPool>("pg_pool_t");
    round_trip::<OsdInfo>("osd_info_t");
    round_trip::<OsdXInfo>("osd_xinfo_t");
    round_trip::<PoolSnap>("pool_snap_info_t");
}

#[test]
fn monitor_and_manager_maps_encode_to_the_same_bytes() {
    round_trip::<MonMap>("MonMap");
    let messages = json("enc/live-messages.json");
    let mut seen = 0;
    for message in messages.as_array().unwrap() {
        let front = unhex(message["front"].as_str().unwrap());
        match message["type"].as_str().unwrap() {
            "MGR_MAP" => {
                let map: MgrMap = denc::decode_all(&front).unwrap();
                assert_eq!(denc::encode(&map), front);
                assert!(map.available && map.active_name == "x", "{}", map.active_name);
            }
            "MON_MAP" => {
                let map: MonMap = denc::decode_all(&front.slice(4..)).unwrap();
                assert_eq!(denc::encode(&map), front.slice(4..));
                assert_eq!(map.rank_of("a"), Some(0));
            }
            _ => continue,
        }
        seen += 1;
    }
    assert_eq!(seen, 2);
}

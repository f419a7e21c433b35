//! Reading `vectors/`.

use bytes::Bytes;
use crush::CrushMap;
use std::path::PathBuf;

/// The folder of sample files.
pub fn vectors() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors"))
}

/// The names of the sample maps in `vectors/crush`.
pub const MAPS: [&str; 7] = [
    "m1-flat-straw2",
    "m2-racks-straw2",
    "m3-classes",
    "m4-legacy-algs",
    "m5-legacy-algs-jewel",
    "m6-choose-args",
    "m7-racks-hammer",
];

pub fn read(path: &str) -> Bytes {
    let path = vectors().join(path);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).into()
}

pub fn text(path: &str) -> String {
    String::from_utf8(read(path).to_vec()).unwrap()
}

/// The bytes of a sample map.
pub fn bin(name: &str) -> Bytes {
    read(&format!("crush/{name}.bin"))
}

pub fn map(name: &str) -> CrushMap {
    denc::decode_all(&bin(name)).unwrap()
}

#[test]
fn every_sample_encodes_to_the_same_bytes() {
    for name in MAPS {
        assert_eq!(denc::encode(&map(name)), bin(name), "{name}");
    }
    let json: serde_json::Value = serde_json::from_str(&text("enc/CrushWrapper.json")).unwrap();
    for test in json["tests"].as_array().unwrap() {
        let bytes: Bytes = unhex(test["hex"].as_str().unwrap()).into();
        let map: CrushMap = denc::decode_all(&bytes).unwrap();
        assert_eq!(denc::encode(&map), bytes);
    }
}

#[test]
fn what_a_map_asks_of_clients() {
    let dump: serde_json::Value = serde_json::from_str(&text("cli/osd_crush_dump.json")).unwrap();
    assert_eq!(dump["tunables"]["minimum_required_version"], "jewel");
    for (name, version) in
        [("m1-flat-straw2", "jewel"), ("m4-legacy-algs", "hammer"), ("m7-racks-hammer", "hammer")]
    {
        assert_eq!(map(name).min_required_version(), version, "{name}");
    }
    assert!(map("m6-choose-args").has_incompat_choose_args());
    assert!(!map("m1-flat-straw2").has_incompat_choose_args());
    assert_eq!(map("m7-racks-hammer").tunables.profile(), "hammer");
    assert_eq!(map("m4-legacy-algs").tunables.profile(), "argonaut");
}

fn unhex(s: &str) -> Vec<u8> {
    let digit = |i: usize| u8::from_str_radix(&s[i..i + 2], 16).unwrap();
    (0..s.len()).step_by(2).map(digit).collect()
}

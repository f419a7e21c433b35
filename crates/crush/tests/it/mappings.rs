//! The mapper against tables made by `crushtool --test --show-mappings`.

use crate::samples::{map, read, text};
use crate::sha256::sha256;
use crush::WEIGHT_ONE;

/// Map, table, rule, results, and `--weight OSD W`.
type Case = (&'static str, &'static str, u32, usize, &'static [(usize, f64)]);

const RACKS_OUT: &[(usize, f64)] = &[(2, 0.0), (7, 0.25), (20, 0.5), (30, 0.0)];
const CASES: [Case; 23] = [
    ("m1-flat-straw2", "firstn3", 0, 3, &[]),
    ("m1-flat-straw2", "indep4", 1, 4, &[]),
    ("m1-flat-straw2", "firstn3-reweight", 0, 3, &[(0, 0.5), (3, 0.0), (5, 0.1)]),
    ("m2-racks-straw2", "host3", 0, 3, &[]),
    ("m2-racks-straw2", "rack3", 1, 3, &[]),
    ("m2-racks-straw2", "ec6", 2, 6, &[]),
    ("m2-racks-straw2", "two4", 3, 4, &[]),
    ("m2-racks-straw2", "twoi6", 4, 6, &[]),
    ("m2-racks-straw2", "host3-reweight", 0, 3, RACKS_OUT),
    ("m2-racks-straw2", "ec6-reweight", 2, 6, RACKS_OUT),
    ("m3-classes", "hdd3", 0, 3, &[]),
    ("m3-classes", "ssd2", 1, 2, &[]),
    ("m3-classes", "ssdec4", 2, 4, &[]),
    ("m3-classes", "mix3", 3, 3, &[]),
    ("m4-legacy-algs", "leg3", 0, 3, &[]),
    ("m4-legacy-algs", "legi4", 1, 4, &[]),
    ("m5-legacy-algs-jewel", "leg3", 0, 3, &[]),
    ("m5-legacy-algs-jewel", "legi4", 1, 4, &[]),
    ("m6-choose-args", "r3", 0, 3, &[]),
    ("m6-choose-args", "e4", 1, 4, &[]),
    ("m7-racks-hammer", "host3", 0, 3, &[]),
    ("m7-racks-hammer", "ec6", 2, 6, &[]),
    ("m7-racks-hammer", "two4", 3, 4, &[]),
];

/// `CRUSH rule 0 x 17 [3,1,2]`
pub fn parse_mapping(line: &str) -> Option<(u32, Vec<i32>)> {
    let rest = line.strip_prefix("CRUSH rule ")?;
    let (_, rest) = rest.split_once(" x ")?;
    let (x, list) = rest.split_once(" [")?;
    let list = list.trim_end().strip_suffix(']')?;
    let items = list.split(',').filter(|s| !s.is_empty());
    Some((x.parse().ok()?, items.map(|s| s.parse().unwrap()).collect()))
}

#[test]
fn all_tables_of_crushtool_are_met() {
    for (name, table, rule, results, reweighted) in CASES {
        let map = map(name);
        let mut weights = vec![WEIGHT_ONE; map.max_devices() as usize];
        for &(osd, weight) in reweighted {
            weights[osd] = (weight * f64::from(WEIGHT_ONE)) as u32;
        }
        // `--test` uses the choose_args of pool 0, which only one sample has.
        let args = map.choose_args_for(0);
        let mut rows = 0;
        for line in text(&format!("crush/{name}.{table}.map")).lines() {
            let Some((x, expected)) = parse_mapping(line) else {
                continue;
            };
            let got = map.do_rule(rule, x, results, &weights, args);
            assert_eq!(got.as_slice(), expected, "{name} {table} x {x}");
            rows += 1;
        }
        assert_eq!(rows, 1024, "{name} {table}");
    }
}

#[test]
fn the_logarithm_and_the_hashes_are_the_samples() {
    let json: serde_json::Value =
        serde_json::from_slice(&read("hash/crush-ln-and-hashes.json")).unwrap();
    let all: Vec<u8> = (0..=u16::MAX).flat_map(|x| crush::crush_ln(x).to_le_bytes()).collect();
    assert_eq!(sha256(&all), json["sha256"].as_str().unwrap());
    let value = |v: &serde_json::Value| {
        u64::from_str_radix(v.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    };
    for (x, ln) in json["samples"].as_object().unwrap() {
        assert_eq!(crush::crush_ln(x.parse().unwrap()), value(ln));
    }
    for (n, key) in [(2, "hash32_2"), (3, "hash32_3"), (4, "hash32_4")] {
        for (args, hash) in json[key].as_object().unwrap() {
            let a: Vec<u32> = args.split(',').map(|s| s.parse().unwrap()).collect();
            let got = match n {
                2 => crush::hash2(a[0], a[1]),
                3 => crush::hash3(a[0], a[1], a[2]),
                _ => crush::hash4(a[0], a[1], a[2], a[3]),
            };
            assert_eq!(u64::from(got), value(hash), "{key} {args}");
        }
    }
    for (name, hash) in json["str_hash"].as_object().unwrap() {
        let got = crush::str_hash_rjenkins(name.as_bytes());
        assert_eq!(u64::from(got), value(hash), "{name:?}");
    }
}

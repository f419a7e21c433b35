//! PGs and objects against `osdmaptool --test-map-pgs-dump-all` and the mon's `osd map`.

use crate::samples::{full, read, text, vectors};
use maps::{OsdMap, OsdState, UpActing};
use types::{OsdId, PgId, PoolId};

/// `([0,2147483647,1], p0)`
fn parse_set(s: &str) -> (Vec<OsdId>, Option<OsdId>) {
    let (list, primary) = s.trim_matches(|c| c == '(' || c == ')').split_once("], p").unwrap();
    let items = list.trim_start_matches('[').split(',').filter(|s| !s.is_empty());
    let osd = |s: &str| match s {
        "NONE" => OsdId::NONE,
        number => OsdId(number.parse().unwrap()),
    };
    (items.map(osd).collect(), Some(osd(primary)).filter(|p| p.0 >= 0))
}

/// `2.0 raw ([0], p0) up ([1], p1) acting ([0], p0)`
fn check_line(map: &OsdMap, line: &str) {
    let (pg, rest) = line.split_once(" raw ").unwrap();
    let (raw, rest) = rest.split_once(" up ").unwrap();
    let (up, acting) = rest.split_once(" acting ").unwrap();
    let pg: PgId = pg.parse().unwrap();
    let ((raw, _), (up, up_primary), (acting, acting_primary)) =
        (parse_set(raw), parse_set(up), parse_set(acting));
    assert_eq!(map.pg_to_raw(pg).as_slice(), raw, "{line}");
    let expected = UpActing { up: up.into(), up_primary, acting: acting.into(), acting_primary };
    assert_eq!(map.pg_to_up_acting(pg), expected, "{line}");
}

pub fn check_table(map: &OsdMap, table: &str) -> usize {
    let lines = table.lines().filter(|line| line.contains(" raw "));
    let rows: Vec<_> = lines.collect();
    rows.iter().for_each(|line| check_line(map, line));
    assert_eq!(rows.len() as u32, map.pools.values().map(|p| p.pg_num).sum::<u32>());
    rows.len()
}

#[test]
fn every_pg_of_the_chain_is_where_osdmaptool_says() {
    let mut rows = 0;
    for file in std::fs::read_dir(vectors().join("osdmap/chain")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|e| e == "pgs") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let epoch = name.strip_prefix("full.").unwrap().parse().unwrap();
            rows += check_table(&full(epoch), &std::fs::read_to_string(&path).unwrap());
        }
    }
    assert!(rows > 2000, "{rows}");
}

/// `--mark-up-in`, then `--mark-out`: what the tool does to a map without running OSDs.
fn mark_up_in(map: &OsdMap, out: &[i32]) -> OsdMap {
    let mut map = map.clone();
    let mut inc = maps::Incremental::after(&map);
    for id in map.osd_ids() {
        // A weight makes them exist.
        inc.new_weight.insert(id, maps::WEIGHT_IN);
        inc.new_state.insert(id, OsdState::UP);
    }
    map.apply(&inc).unwrap();
    let mut inc = maps::Incremental::after(&map);
    for &id in out {
        inc.new_weight.insert(OsdId(id), maps::WEIGHT_OUT);
    }
    map.apply(&inc).unwrap();
    map
}

#[test]
fn every_pg_of_synthetic_maps_is_where_osdmaptool_says() {
    let map: OsdMap = denc::decode_all(&read("osdmap/synth/simple24.bin")).unwrap();
    let table = |name: &str| text(&format!("osdmap/synth/simple24.{name}.pgs"));
    let rows = check_table(&mark_up_in(&map, &[]), &table("up-in"))
        + check_table(&mark_up_in(&map, &[5]), &table("up-in.out5"));
    assert!(rows > 1000, "{rows}");
}

#[test]
fn every_object_is_in_the_pg_the_mon_says() {
    let map: OsdMap = denc::decode_all(&read("hash/osdmap-e84.bin")).unwrap();
    let mut rows = 0;
    for line in text("hash/objects.tsv").lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let name: String = serde_json::from_str(fields[1]).unwrap();
        let hash = u32::from_str_radix(fields[2], 16).unwrap();
        for (pool, pg) in [2, 3, 5, 6].into_iter().zip(&fields[3..]) {
            let pool = PoolId(pool);
            let raw = map.object_to_pg(pool, fields[0].as_bytes(), b"", name.as_bytes());
            assert_eq!(raw, Some(PgId::new(pool, hash)), "{line}");
            assert_eq!(map.raw_pg_to_pg(raw.unwrap()), pg.parse().ok(), "{line}");
        }
        rows += 1;
    }
    assert_eq!(rows, 1000);
}

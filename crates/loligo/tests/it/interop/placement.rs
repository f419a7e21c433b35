//! Ceph's own tools place everything as our code does, on maps from the running mon.

use super::cluster::shared;
use super::tool::Tool;
use crush::CrushMap;
use maps::OsdMap;
use types::{OsdId, PgId, PoolId};

/// `([0,2147483647,1], p0)`
fn parse_set(s: &str) -> (Vec<OsdId>, Option<OsdId>) {
    let (list, primary) = s.trim_matches(|c| c == '(' || c == ')').split_once("], p").unwrap();
    let items = list.trim_start_matches('[').split(',').filter(|s| !s.is_empty());
    let osds = items.map(|s| OsdId(s.parse().unwrap_or(OsdId::NONE.0))).collect();
    (osds, Some(OsdId(primary.parse().unwrap())).filter(|p| p.0 >= 0))
}

#[test]
fn osdmaptool_places_pgs_as_we_do() {
    let pools = [shared().pool("place-a"), shared().pool("place-b")];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("osdmap");
    shared().ceph().args(["osd", "getmap", "-o"]).arg(&file).ok();
    let bytes: bytes::Bytes = std::fs::read(&file).unwrap().into();
    let map: OsdMap = denc::decode_all(&bytes).unwrap();
    assert!(denc::encode(&map) == bytes, "re-encodes to other bytes");

    let tool = || Tool::new("osdmaptool").arg(&file);
    let printed = tool().arg("--print").text();
    assert!(printed.contains(&map.fsid.to_string()), "{printed}");
    let table = tool().arg("--test-map-pgs-dump-all").text();
    let mut lines = 0;
    for line in table.lines().filter(|l| l.contains(" raw ")) {
        let (pg, rest) = line.split_once(" raw ").unwrap();
        let (_, rest) = rest.split_once(" up ").unwrap();
        let (up, acting) = rest.split_once(" acting ").unwrap();
        let pg: PgId = pg.trim().parse().unwrap();
        let ours = map.pg_to_up_acting(pg);
        assert_eq!((ours.up.to_vec(), ours.up_primary), parse_set(up), "{line}");
        assert_eq!((ours.acting.to_vec(), ours.acting_primary), parse_set(acting), "{line}");
        lines += 1;
    }
    assert_eq!(lines, map.pools.values().map(|p| p.pg_num).sum::<u32>());

    for name in ["a", "some object", "ü"] {
        let pool = map.pool_by_name(&pools[0].name).unwrap();
        check_object(&map, pool, &pools[0].name, name);
    }
}

/// `ceph osd map` says what we say.
fn check_object(map: &OsdMap, pool: PoolId, pool_name: &str, name: &str) {
    let said = shared().ceph().args(["osd", "map", pool_name, name, "-f", "json"]).json();
    let raw = map.object_to_pg(pool, b"", b"", name.as_bytes()).unwrap();
    let pg = map.raw_pg_to_pg(raw).unwrap();
    assert_eq!(said["raw_pgid"], raw.to_string());
    assert_eq!(said["pgid"], pg.to_string());
    let up: Vec<i64> = map.pg_to_up_acting(pg).up.iter().map(|o| i64::from(o.0)).collect();
    assert_eq!(said["up"], serde_json::json!(up));
}

#[test]
fn crushtool_maps_as_we_do() {
    const MAX_X: u32 = 1023;
    let dir = tempfile::tempdir().unwrap();
    let (file, text) = (dir.path().join("crush"), dir.path().join("crush.txt"));
    shared().ceph().args(["osd", "getcrushmap", "-o"]).arg(&file).ok();
    let bytes: bytes::Bytes = std::fs::read(&file).unwrap().into();
    let map: CrushMap = denc::decode_all(&bytes).unwrap();
    assert!(denc::encode(&map) == bytes, "re-encodes to other bytes");
    let weights = vec![0x10000; 64];
    for size in 1..=3usize {
        let table = Tool::new("crushtool")
            .arg("-i")
            .arg(&file)
            .args(["--test", "--show-mappings", "--rule", "0", "--min-x", "0"])
            .args(["--max-x", &MAX_X.to_string(), "--num-rep", &size.to_string()])
            .text();
        let rows: Vec<&str> = table.lines().filter(|l| l.starts_with("CRUSH rule")).collect();
        assert_eq!(rows.len() as u32, MAX_X + 1);
        for (x, row) in (0..).zip(rows) {
            let ours = map.do_rule(0, x, size, &weights, None);
            let ours: Vec<String> = ours.into_iter().map(|o: i32| o.to_string()).collect();
            assert_eq!(row, format!("CRUSH rule 0 x {x} [{}]", ours.join(",")));
        }
    }
    // It can be decompiled, compiled, and given back.
    Tool::new("crushtool").arg("-d").arg(&file).arg("-o").arg(&text).ok();
    let again = dir.path().join("again");
    Tool::new("crushtool").arg("-c").arg(&text).arg("-o").arg(&again).ok();
    shared().ceph().args(["osd", "setcrushmap", "-i"]).arg(&again).ok();
    shared().ceph().args(["osd", "getcrushmap", "-o"]).arg(&file).ok();
    let back: CrushMap = denc::decode_all(&std::fs::read(&file).unwrap().into()).unwrap();
    assert_eq!(back.do_rule(0, 7, 3, &weights, None), map.do_rule(0, 7, 3, &weights, None));
}

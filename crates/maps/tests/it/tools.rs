//! Ceph's own tools on maps we encode. Tests that need one pass where it is not installed;
//! `./check` installs it.

use crate::placement::check_table;
use crush::{Location, RULE_ERASURE, RuleMode};
use maps::{
    FreshOsdMap, Incremental, MonMap, OsdAddrs, OsdMap, PgPool, PoolFlags, PoolType, WEIGHT_IN,
};
use proptest::prelude::*;
use std::process::Command;
use types::{AddrVec, OsdId, PgId, PoolId, UTime, Uuid};

/// Attempts to run a tool, should it hang.
const ATTEMPTS: usize = 5;
/// `timeout` gives this when the time is over.
const TIMED_OUT: Option<i32> = Some(124);

/// What a tool prints for a file with these bytes; `None` when it is not installed.
fn run(tool: &str, content: &[u8], args: &[&str]) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    if !std::env::split_paths(&path).any(|dir| dir.join(tool).is_file()) {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("map");
    std::fs::write(&path, content).unwrap();
    for _ in 0..ATTEMPTS {
        let mut command = Command::new("timeout");
        command.args(["10", tool]).arg(&path).args(args);
        let output = command.output().unwrap();
        if output.status.code() == TIMED_OUT {
            continue;
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tool}: {text}{errors}");
        return Some(text);
    }
    panic!("{tool} hangs");
}

const NOW: UTime = UTime { sec: 1_795_177_442, nsec: 470_535_000 };

/// A choice of everything that decides where PGs are.
#[derive(Clone, Debug)]
struct Plan {
    hosts: Vec<u8>,
    /// Per OSD: up, in, weight below 1.0, affinity.
    osds: Vec<(bool, bool, Option<u16>, Option<u16>)>,
    replicated: (u8, u32, u32),
    erasure: (u8, u32),
    upmap: Vec<(u32, Vec<u8>)>,
    upmap_items: Vec<(u32, Vec<(u8, u8)>)>,
    pg_temp: Vec<(u32, Vec<u8>)>,
    primary_temp: Vec<(u32, u8)>,
    weight_set: bool,
}

const MAX_OSDS: u8 = 12;

fn plan() -> impl Strategy<Value = Plan> {
    let osd = (
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.9),
        prop::option::weighted(0.2, any::<u16>()),
        prop::option::weighted(0.3, any::<u16>()),
    );
    let list = || prop::collection::vec(0..MAX_OSDS, 1..4);
    let pairs = prop::collection::vec((0..MAX_OSDS, 0..MAX_OSDS), 1..3);
    (
        (
            prop::collection::vec(0..5u8, 3..MAX_OSDS as usize),
            prop::collection::vec(osd, MAX_OSDS as usize),
            (1..5u8, 1..40u32, 1..40u32),
            (3..6u8, 1..20u32),
        ),
        (
            prop::collection::vec((0..40u32, list()), 0..4),
            prop::collection::vec((0..40u32, pairs), 0..4),
            prop::collection::vec((0..40u32, list()), 0..4),
            prop::collection::vec((0..40u32, 0..MAX_OSDS), 0..3),
            any::<bool>(),
        ),
    )
        .prop_map(|((hosts, osds, replicated, erasure), rest)| {
            let (upmap, upmap_items, pg_temp, primary_temp, weight_set) = rest;
            Plan {
                hosts,
                osds,
                replicated,
                erasure,
                upmap,
                upmap_items,
                pg_temp,
                primary_temp,
                weight_set,
            }
        })
}

fn addrs(osd: i32, port: u16) -> AddrVec {
    AddrVec::msgr2(([127, 0, 0, 1], port).into(), 1000 + osd as u32)
}

/// Two pools on some OSDs, made as a mon makes them.
fn build(plan: &Plan) -> OsdMap {
    let config =
        FreshOsdMap { fsid: Uuid::from_random(9), now: NOW, failure_domain: "host".into() };
    let mut map = OsdMap::fresh(&config).unwrap();
    let mut crush = (**map.crush()).clone();
    let mut inc = Incremental::after(&map);
    inc.new_max_osd = Some(plan.hosts.len() as i32);
    for (osd, host) in plan.hosts.iter().enumerate() {
        let id = osd as i32;
        let loc = Location::parse(&[&format!("host=h{host}"), "root=default"]).unwrap();
        let weight = WEIGHT_IN + 1000 * id as u32;
        crush.insert_item(id, weight, &format!("osd.{id}"), &loc).unwrap();
        let (up, is_in, weight, affinity) = plan.osds[osd];
        if up {
            inc.mark_up(
                OsdId(id),
                OsdAddrs {
                    client: addrs(id, 6800),
                    cluster: addrs(id, 6801),
                    hb_back: addrs(id, 6802),
                    hb_front: addrs(id, 6803),
                },
            );
        }
        let weight = weight.map_or(WEIGHT_IN, u32::from);
        inc.new_weight.insert(OsdId(id), if is_in { weight } else { 0 });
        inc.new_uuid.insert(OsdId(id), Uuid::from_random(osd as u128));
        if let Some(affinity) = affinity {
            inc.new_primary_affinity.insert(OsdId(id), u32::from(affinity));
        }
    }
    let indep = RuleMode::Indep;
    crush.add_simple_rule("ec", "default", "osd", None, indep, RULE_ERASURE).unwrap();
    if plan.weight_set {
        crush.create_weight_set(crush::COMPAT_CHOOSE_ARGS, 1).unwrap();
        let item = plan.hosts.len() as i32 / 2;
        crush.reweight_in_weight_set(crush::COMPAT_CHOOSE_ARGS, item, &[WEIGHT_IN / 3]).unwrap();
    }
    inc.set_crush(&crush);
    let (size, pg_num, pgp_num) = plan.replicated;
    let mut pool = PgPool::new(PoolType::REPLICATED, size, 1, 0, pg_num);
    pool.pgp_num = pgp_num.min(pg_num);
    inc.new_pools.insert(PoolId(1), pool);
    let (size, pg_num) = plan.erasure;
    let mut pool = PgPool::new(PoolType::ERASURE, size, 2, 1, pg_num);
    pool.flags |= PoolFlags::EC_OVERWRITES;
    inc.new_pools.insert(PoolId(2), pool);
    inc.new_pool_names.insert(PoolId(1), "copies".into());
    inc.new_pool_names.insert(PoolId(2), "shards".into());
    inc.new_pool_max = Some(2);
    map.apply(&inc).unwrap();
    map.apply(&remapping(plan, &map)).unwrap();
    map
}

fn remapping(plan: &Plan, map: &OsdMap) -> Incremental {
    let mut inc = Incremental::after(map);
    let pg = |seed: u32| PgId::new(PoolId(1 + i64::from(seed % 2)), seed / 2);
    // Only OSDs of the map: the tool writes beyond its arrays for others.
    let osd = |n: u8| OsdId(i32::from(n) % map.max_osd());
    let list = |osds: &[u8]| osds.iter().map(|&n| osd(n)).collect();
    let exists = |osds: &[u8]| osds.iter().all(|&n| map.exists(osd(n)));
    for (seed, osds) in plan.upmap.iter().filter(|(_, osds)| exists(osds)) {
        inc.new_pg_upmap.insert(pg(*seed), list(osds));
    }
    for (seed, pairs) in &plan.upmap_items {
        let pairs = pairs.iter().filter(|(_, to)| exists(&[*to]));
        let items = pairs.map(|&(from, to)| (osd(from), osd(to))).collect();
        inc.new_pg_upmap_items.insert(pg(*seed), items);
    }
    for (seed, osds) in &plan.pg_temp {
        inc.new_pg_temp.insert(pg(*seed), list(osds));
    }
    for &(seed, primary) in &plan.primary_temp {
        inc.new_primary_temp.insert(pg(seed), osd(primary));
    }
    inc
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn pgs_are_where_osdmaptool_says(plan in plan()) {
        let map = build(&plan);
        let bytes = denc::encode(&map);
        let read: OsdMap = denc::decode_all(&bytes).unwrap();
        prop_assert_eq!(&read, &map);
        if let Some(table) = run("osdmaptool", &bytes, &["--test-map-pgs-dump-all"]) {
            check_table(&map, &table);
        }
    }
}

#[test]
fn osdmaptool_prints_a_map_of_ours() {
    let plan = Plan {
        hosts: vec![0, 1, 2],
        osds: vec![(true, true, None, None); 3],
        replicated: (3, 8, 8),
        erasure: (3, 4),
        upmap: vec![],
        upmap_items: vec![],
        pg_temp: vec![(0, vec![1])],
        primary_temp: vec![],
        weight_set: false,
    };
    let mut map = build(&plan);
    let mut inc = Incremental::after(&map);
    let client = types::EntityAddr::msgr2(([10, 0, 0, 1], 0).into(), 77);
    inc.new_blocklist.insert(maps::BlocklistAddr::new(client), NOW);
    map.apply(&inc).unwrap();
    assert!(
        map.is_blocklisted(&client) && map.is_blocklisted(&client.with_kind(types::AddrType::ANY))
    );
    assert!(!map.is_blocklisted(&types::EntityAddr { nonce: 78, ..client }));
    let Some(text) = run("osdmaptool", &denc::encode(&map), &["--print"]) else {
        return;
    };
    for line in [
        "epoch 4",
        "created 2026-11-20T12:24:02.470535+0000",
        "flags sortbitwise,recovery_deletes,purged_snapdirs,pglog_hardlimit",
        &format!("min_compat_client {}", map.min_compat_client()),
        "require_osd_release pacific",
        "pool 1 'copies' replicated size 3 min_size 1 crush_rule 0 object_hash rjenkins pg_num 8 \
         pgp_num 8 autoscale_mode off last_change 2 flags hashpspool stripe_width 0",
        "max_osd 3",
        "pg_temp 1.0 [1]",
        &format!("blocklist 10.0.0.1:0/77 expires {NOW}"),
    ] {
        assert!(text.lines().any(|l| l.starts_with(line)), "{line}\nin\n{text}");
    }
    assert!(text.contains("exists,up 00000000-0000-4000-8000-000000000002"), "{text}");
}

#[test]
fn monmaptool_prints_a_map_of_ours() {
    let mons = [("b", 3301), ("a", 3300)]
        .map(|(name, port)| (name.to_owned(), AddrVec::msgr2(([127, 0, 0, 1], port).into(), 0)));
    let map = MonMap::fresh(Uuid::from_random(3), NOW, mons);
    assert_eq!(map.ranks, ["a", "b"]);
    let Some(text) = run("monmaptool", &denc::encode(&map), &["--print"]) else {
        return;
    };
    for line in [
        "epoch 1",
        "fsid 00000000-0000-4000-8000-000000000003",
        "min_mon_release 16 (pacific)",
        "election_strategy: 1",
        "0: v2:127.0.0.1:3300/0 mon.a",
        "1: v2:127.0.0.1:3301/0 mon.b",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\nin\n{text}");
    }
}

//! Clusters of 1,000 OSDs, 10,000 pools and 80,000 PGs: the mon does one thing at a time, and whoever waits for it
//! meanwhile, waits.

use super::super::bench::Bench;
use maps::{Incremental, OsdAddrs, OsdMap, PgPool, PoolType, WEIGHT_IN};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use types::{OsdId, PoolId};

/// OSDs, twenty on a host, and pools of eight PGs.
pub(crate) fn large(osds: i32, pools: i64) -> Bench {
    let mut bench = Bench::new();
    let mut map = OsdMap::clone(&bench.c.state.osdmap);
    let mut crush = crush::CrushMap::clone(map.crush());
    let mut inc = Incremental::after(&map);
    inc.new_max_osd = Some(osds);
    for id in 0..osds {
        let words = [format!("host=h{}", id / 20), "root=default".to_owned()];
        let place = crush::Location::parse(&words).unwrap();
        crush.create_or_move_item(id, crush::WEIGHT_ONE, &format!("osd.{id}"), &place).unwrap();
        inc.new_weight.insert(OsdId(id), WEIGHT_IN);
        if !map.is_up(OsdId(id)) {
            inc.mark_up(OsdId(id), addrs(&map));
        }
    }
    inc.set_crush(&crush);
    for id in (1..=pools).map(PoolId) {
        let mut pool = PgPool::new(PoolType::REPLICATED, 3, 2, 0, 8);
        pool.application_metadata.insert("rbd".into(), BTreeMap::new());
        inc.new_pools.insert(id, pool);
        inc.new_pool_names.insert(id, format!("pool-{id}"));
    }
    inc.new_pool_max = Some(pools);
    map.apply(&inc).unwrap();
    bench.c.state.osdmap = Arc::new(map);
    bench.again();
    bench
}

/// Those of an OSD of the real cluster.
fn addrs(map: &OsdMap) -> OsdAddrs {
    let osd = map.osd(OsdId(0)).unwrap();
    OsdAddrs {
        client: osd.client_addrs.clone(),
        cluster: osd.cluster_addrs.clone(),
        hb_back: osd.hb_back_addrs.clone(),
        hb_front: osd.hb_front_addrs.clone(),
    }
}

#[allow(clippy::disallowed_methods, reason = "it measures")]
fn timed<R>(what: &str, f: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let r = f();
    println!("{:9.2} ms {what}", start.elapsed().as_secs_f64() * 1e3);
    r
}

/// `cargo test --release -p mon --lib -- --ignored --nocapture what_takes_long`
#[test]
#[ignore = "a measurement"]
fn what_takes_long_in_a_large_cluster() {
    let mut bench = timed("(to build)", || large(1000, 10_000));
    timed("an edit of a pool", || {
        let edit = |pool: &mut PgPool, _: &OsdMap| {
            pool.min_size = 1;
            Ok(())
        };
        bench.c.edit_pool(PoolId(77), edit).unwrap()
    });
    timed("an edit of a flag", || {
        bench.c.change(|inc, map| inc.new_flags = Some(map.flags)).unwrap()
    });
    timed("tidying", || bench.c.change(crate::osds::tidy::tidy).unwrap());
    let committed = bench.c.state.osdmap.clone();
    let now = bench.now().wall;
    let new = timed("closing", || bench.c.draft.close(&committed, now).osdmap.unwrap());
    println!("{} bytes", new.full_bytes.len());
    timed("encoding", || new.map.encode_with_crc());
    timed("taking it", || bench.c.take_map(new.map));
    timed("sums", || bench.c.pgmap.sums(bench.c.map()));
    timed("checks", || bench.c.health(bench.now()));
    let (now, map) = (bench.now(), bench.c.state.osdmap.clone());
    timed("a tick that places PGs", || bench.c.pgmap.tick(now, &map));
    (0..80).for_each(|_| _ = bench.c.pgmap.tick(now, &map));
    timed("a tick that does not", || bench.c.pgmap.tick(now, &map));
    for cmd in [
        json!({"prefix": "status"}),
        json!({"prefix": "health"}),
        json!({"prefix": "df"}),
        json!({"prefix": "osd df"}),
        json!({"prefix": "osd df", "output_method": "tree"}),
        json!({"prefix": "osd tree"}),
        json!({"prefix": "osd dump"}),
        json!({"prefix": "osd dump", "format": "json"}),
        json!({"prefix": "osd pool ls", "detail": "detail"}),
        json!({"prefix": "osd pool stats"}),
        json!({"prefix": "pg stat"}),
        json!({"prefix": "pg ls"}),
        json!({"prefix": "pg dump"}),
        json!({"prefix": "pg dump", "format": "json"}),
        json!({"prefix": "pg dump", "dumpcontents": ["pgs_brief"], "format": "json"}),
        json!({"prefix": "pg dump", "dumpcontents": ["pools"], "format": "json"}),
        json!({"prefix": "pg dump", "dumpcontents": ["osds"], "format": "json"}),
        json!({"prefix": "pg dump_stuck"}),
        json!({"prefix": "balancer eval"}),
        json!({"prefix": "balancer status"}),
        json!({"prefix": "balancer optimize", "plan": "x"}),
        json!({"prefix": "osd ok-to-stop", "ids": ["3"]}),
        json!({"prefix": "osd safe-to-destroy", "ids": ["3"]}),
        json!({"prefix": "osd blocked-by"}),
        json!({"prefix": "osd utilization"}),
        json!({"prefix": "osd test-reweight-by-utilization"}),
        json!({"prefix": "osd pool autoscale-status"}),
        json!({"prefix": "progress"}),
        json!({"prefix": "osd perf"}),
        json!({"prefix": "osd metadata"}),
        json!({"prefix": "osd crush dump"}),
        json!({"prefix": "osd getmap"}),
        json!({"prefix": "config dump"}),
        json!({"prefix": "osd pool create", "pool": "one", "pg_num": 8}),
    ] {
        let (r, _, out) = timed(&cmd.to_string(), || bench.run_alone(&cmd));
        println!("             {r}, {} bytes", out.len());
    }
    let now = bench.now();
    let sums = bench.c.pgmap.sums(bench.c.map());
    timed("balance", || bench.c.balance(now, &sums));
    timed("purge_snaps", || bench.c.purge_snaps());
    timed("trim_maps", || bench.c.trim_maps());
    timed("adjust_pgs", || bench.c.adjust_pgs(now.mono));
    timed("quotas", || bench.c.quotas(now, &sums));
    timed("full_osds", || bench.c.full_osds(now));
}

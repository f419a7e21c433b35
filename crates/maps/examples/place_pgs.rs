//! Times the computation of all PGs of a pool: 1000 PGs, size 3, 200 OSDs in 20 hosts in 4 racks,
//! with one core. `cargo run --release -p maps --example place_pgs`

use crush::{CrushError, Location, RuleMode};
use maps::{FreshOsdMap, Incremental, OsdMap, PgPool, PoolType, WEIGHT_IN};
use std::hint::black_box;
use std::time::Instant;
use types::{OsdId, PoolId, UTime, Uuid};

const OSDS: i32 = 200;
const PGS: u32 = 1000;
const ROUNDS: u32 = 50;

fn build() -> Result<OsdMap, CrushError> {
    let mut map = OsdMap::fresh(&FreshOsdMap {
        fsid: Uuid::from_random(1),
        now: UTime::ZERO,
        failure_domain: "host".into(),
    })?;
    let mut crush = (**map.crush()).clone();
    let mut inc = Incremental::after(&map);
    inc.new_max_osd = Some(OSDS);
    for osd in 0..OSDS {
        let host = osd / 10;
        let words = [
            ("host".to_owned(), format!("h{host}")),
            ("rack".to_owned(), format!("r{}", host / 5)),
            ("root".to_owned(), "default".to_owned()),
        ];
        let loc: Location = words.into_iter().collect();
        crush.create_or_move_item(osd, WEIGHT_IN * 4, &format!("osd.{osd}"), &loc)?;
        let id = OsdId(osd);
        inc.mark_up(id, maps::OsdAddrs::default());
        inc.new_weight.insert(id, WEIGHT_IN);
    }
    let erasure = crush::RULE_ERASURE;
    crush.add_simple_rule("ec", "default", "host", None, RuleMode::Indep, erasure)?;
    inc.set_crush(&crush);
    let copies = PgPool::new(PoolType::REPLICATED, 3, 2, 0, PGS);
    let shards = PgPool::new(PoolType::ERASURE, 12, 9, 1, PGS);
    inc.new_pools.extend([(PoolId(1), copies), (PoolId(2), shards)]);
    map.apply(&inc).expect("the incremental fits its map");
    Ok(map)
}

/// The mean time for all PGs of a pool, in microseconds.
#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn time(map: &OsdMap, pool: PoolId) -> f64 {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        for pg in map.pools[&pool].pgs(pool) {
            black_box(map.pg_to_up_acting(black_box(pg)));
        }
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
}

fn main() -> Result<(), CrushError> {
    let map = build()?;
    for (pool, what) in [(1, "3 copies"), (2, "12 shards")] {
        let micros = time(&map, PoolId(pool));
        let each = micros / f64::from(PGS);
        println!("{PGS} PGs of {what} on {OSDS} OSDs: {micros:.0} us, {each:.2} us each");
    }
    Ok(())
}

//! A change of a map costs what it changes, however large the map is.

use crate::samples::full;
use maps::{Incremental, OsdMap, PgPool, PoolType, WEIGHT_IN};
use types::{OsdId, PoolId};

fn with_pools(pools: i64) -> OsdMap {
    let mut map = full(72);
    let mut inc = Incremental::after(&map);
    for id in (10..10 + pools).map(PoolId) {
        inc.new_pools.insert(id, PgPool::new(PoolType::REPLICATED, 3, 2, 0, 8));
        inc.new_pool_names.insert(id, format!("pool-{id}"));
    }
    map.apply(&inc).unwrap();
    map
}

fn changed(map: &OsdMap, change: impl FnOnce(&mut Incremental)) -> OsdMap {
    let mut inc = Incremental::after(map);
    change(&mut inc);
    let mut next = map.clone();
    next.apply(&inc).unwrap();
    next
}

#[test]
fn what_a_change_leaves_is_shared() {
    let map = with_pools(1000);
    let same_osds = |next: &OsdMap| {
        map.osd_ids()
            .filter(|id| std::ptr::eq(map.osd(*id).unwrap(), next.osd(*id).unwrap()))
            .count()
    };
    let weight = changed(&map, |inc| _ = inc.new_weight.insert(OsdId(1), WEIGHT_IN / 2));
    assert!(weight.pools.is_same(&map.pools) && weight.pool_names.is_same(&map.pool_names));
    let up_thru = changed(&map, |inc| _ = inc.new_up_thru.insert(OsdId(1), inc.epoch));
    assert!(up_thru.pools.is_same(&map.pools));
    assert_eq!(same_osds(&up_thru), map.max_osd() as usize - 1);
    let id = PoolId(500);
    let pool = changed(&map, |inc| {
        let mut pool = map.pool(id).unwrap().clone();
        pool.min_size = 1;
        inc.new_pools.insert(id, pool);
    });
    let copied = map.pools.iter().filter(|(id, p)| !p.is_same(&pool.pools[id]));
    assert_eq!(copied.map(|(id, _)| *id).collect::<Vec<_>>(), [id]);
    assert!(pool.pool_names.is_same(&map.pool_names) && pool.blocklist.is_same(&map.blocklist));
    assert_eq!(same_osds(&pool), map.max_osd() as usize);
    // The old one is as it was.
    assert_eq!((map.pool(id).unwrap().min_size, pool.pool(id).unwrap().min_size), (2, 1));
    assert_ne!(map, pool);
}

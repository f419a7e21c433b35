//! What `bench/beside --what commands` found beside real Ceph, and texts alone (`golden`) do not show.

use super::behaviour::{done, json_of, say, with_pool};
use super::bench::Bench;
use serde_json::json;
use types::OsdId;

#[test]
fn an_osd_that_never_started_is_not_missed() {
    let mut bench = Bench::new();
    let down = |bench: &mut Bench| {
        let health = json_of(bench, json!({"prefix": "health"}));
        health["checks"]["OSD_DOWN"]["summary"]["message"].as_str().map(str::to_owned)
    };
    done(&mut bench, json!({"prefix": "osd create"}));
    done(&mut bench, json!({"prefix": "osd in", "ids": ["3"]}));
    assert_eq!(down(&mut bench), None);
    let (_, _, versions) = bench.run(&json!({"prefix": "osd versions"}));
    assert!(!String::from_utf8_lossy(&versions).contains("unknown"), "{versions:?}");
    bench.stop(OsdId(0));
    assert_eq!(down(&mut bench).unwrap(), "1 osds down");
    done(&mut bench, json!({"prefix": "osd create"}));
    let (r, outs) = say(&mut bench, json!({"prefix": "osd rm", "ids": ["3", "9", "4"]}));
    assert_eq!((r, &*outs), (0, "removed osd.3osd.9 does not exist. , osd.4"));
}

#[test]
fn pgs_that_are_not_placed_each_by_itself_are_told() {
    let mut bench = with_pool();
    let told = |bench: &mut Bench| {
        let health = json_of(bench, json!({"prefix": "health", "detail": "detail"}));
        health["checks"]["SMALLER_PGP_NUM"]["detail"][0]["message"].as_str().map(str::to_owned)
    };
    assert_eq!(told(&mut bench), None);
    let pgp_num =
        |n: &str| json!({"prefix": "osd pool set", "pool": "p", "var": "pgp_num_actual", "val": n});
    done(&mut bench, json!({"prefix": "osd pool set", "pool": "p", "var": "pgp_num", "val": "4"}));
    done(&mut bench, pgp_num("4"));
    assert_eq!(told(&mut bench).unwrap(), "pool p pg_num 16 > pgp_num 4");
}

#[test]
fn a_lost_pg_is_made_anew() {
    let mut bench = with_pool();
    let pgid = "2.3".parse().unwrap();
    let force = |sure: bool| json!({"prefix": "osd force-create-pg", "pgid": "2.3", "yes_i_really_mean_it": sure});
    assert_eq!(say(&mut bench, force(false)).0, -1);
    assert!(bench.c.state.creating.is_empty());
    let (r, outs) = say(&mut bench, force(true));
    assert_eq!((r, &*outs), (0, "pg 2.3 now creating, ok"));
    // The bench's OSDs report it at once, as those do that have it.
    assert!(bench.c.state.creating.is_empty());
    bench.lost.insert(pgid);
    assert_eq!(say(&mut bench, force(true)).1, "pg 2.3 now creating, ok");
    assert_eq!(say(&mut bench, force(true)).1, "pg 2.3 already creating");
    let ordered = bench.c.orders();
    let primary = bench.c.map().pg_to_up_acting(pgid).acting_primary.unwrap();
    assert_eq!(ordered[&primary].pgs.iter().map(|p| p.pgid).collect::<Vec<_>>(), [pgid]);
    bench.lost.clear();
    bench.again();
    assert!(bench.c.state.creating.is_empty() && bench.c.newborns.is_empty());
}

#[test]
fn a_pool_is_renamed_twice_in_vain() {
    let mut bench = with_pool();
    let rename = json!({"prefix": "osd pool rename", "srcpool": "p", "destpool": "q"});
    assert_eq!(say(&mut bench, rename.clone()).1, "pool 'p' renamed to 'q'");
    let (r, outs) = say(&mut bench, rename);
    assert_eq!(r, 0);
    assert_eq!(outs, "pool 'p' does not exist; pool 'q' does -- assuming successful rename");
}

#[test]
fn an_osd_that_is_down_does_not_count_when_weights_are_set_by_pgs() {
    let mut bench = with_pool();
    done(&mut bench, json!({"prefix": "osd create"}));
    done(&mut bench, json!({"prefix": "osd in", "ids": ["3"]}));
    let all = json_of(&mut bench, json!({"prefix": "osd utilization"}));
    assert_eq!(all["avg_pgs"], 16, "{all}");
    let (r, outs) = say(&mut bench, json!({"prefix": "osd test-reweight-by-pg", "oload": 101}));
    assert_eq!((r, &*outs), (0, "no change"));
    let place = |weight: f64| json!({"prefix": "osd crush add", "id": 3, "weight": weight, "args": ["host=h0"]});
    let said = |bench: &mut Bench, weight| {
        say(bench, place(weight)).1.split(' ').next().unwrap().to_owned()
    };
    assert_eq!((said(&mut bench, 1.0), said(&mut bench, 2.0)), ("add".into(), "set".into()));
}

#[test]
fn an_osd_that_is_named_twice_is_marked_down_once() {
    let mut bench = with_pool();
    let (r, outs) = say(&mut bench, json!({"prefix": "osd down", "ids": ["1", "1"]}));
    assert_eq!((r, outs.trim()), (0, "marked down osd.1."));
    assert!(bench.c.map().is_down(types::OsdId(1)));
}

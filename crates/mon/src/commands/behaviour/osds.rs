//! OSDs: their life, their weights, their disks.

use super::{done, json_of, say, with_pool};
use crate::commands::bench::Bench;
use serde_json::json;
use std::time::Duration;
use types::OsdId;

#[test]
fn stopping_some_and_more() {
    let mut bench = with_pool();
    let ask = |bench: &mut Bench, max: i64| {
        json_of(bench, json!({"prefix": "osd ok-to-stop", "ids": ["0"], "max": max}))
    };
    assert_eq!(ask(&mut bench, 3)["osds"], json!([0]), "min_size is 2");
    let set = json!({"prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "1"});
    done(&mut bench, set);
    let all = ask(&mut bench, 3);
    assert_eq!((&all["osds"], &all["ok_to_stop"]), (&json!([0, 1]), &json!(true)));
    assert_eq!(ask(&mut bench, 1)["osds"], json!([0]));
}

#[test]
fn osds_with_many_pgs_lose_weight() {
    let mut bench = with_pool();
    done(
        &mut bench,
        json!({"prefix": "osd pool set", "pool": "p", "var": "size", "val": "1",
        "yes_i_really_mean_it": true}),
    );
    let test = json!({"prefix": "osd test-reweight-by-pg", "oload": 101, "max_osds": 3});
    let plan = json_of(&mut bench, test);
    let changes = plan["reweights"].as_array().unwrap().clone();
    assert!(!changes.is_empty(), "{plan}");
    assert!(bench.c.map().weights().iter().all(|w| *w == maps::WEIGHT_IN), "it was a test");
    let act = json!({"prefix": "osd reweight-by-pg", "oload": 101, "max_osds": 3});
    done(&mut bench, act);
    for change in &changes {
        let id = types::OsdId(change["osd"].as_i64().unwrap() as i32);
        let weight = f64::from(bench.c.map().weight(id)) / 65536.0;
        assert!((change["new_weight"].as_f64().unwrap() - weight).abs() < 1e-9);
        assert!((0.94..1.0).contains(&weight), "by no more than max_change: {weight}");
    }
}

#[test]
fn a_purged_osd_leaves_nothing() {
    let mut bench = with_pool();
    done(&mut bench, json!({"prefix": "auth get-or-create", "entity": "osd.2"}));
    bench.stop(types::OsdId(2));
    let purge = json!({"prefix": "osd purge", "id": 2});
    assert_eq!(say(&mut bench, purge.clone()).0, -11, "its data may be needed");
    let mut purge = purge;
    purge["yes_i_really_mean_it"] = true.into();
    done(&mut bench, purge);
    let map = bench.c.map();
    assert!(!map.exists(types::OsdId(2)) && !map.crush().is_placed(2));
    assert!(map.crush().item_name(2).is_none());
    assert!(!bench.c.state.auth.contains_key("osd.2"));
    assert!(!bench.c.state.osd_metadata.contains_key(&types::OsdId(2)));
}

#[test]
fn a_destroyed_osd_gets_a_new_disk() {
    let mut bench = with_pool();
    bench.stop(types::OsdId(1));
    done(&mut bench, json!({"prefix": "osd destroy", "id": 1, "yes_i_really_mean_it": true}));
    let tree = json_of(&mut bench, json!({"prefix": "osd tree", "states": ["destroyed"]}));
    assert_eq!(tree["nodes"].as_array().map(Vec::len), Some(3), "{tree}");
    let uuid = "11111111-2222-3333-4444-555555555555";
    let new = json!({"prefix": "osd new", "uuid": uuid, "id": 1});
    assert_eq!(json_of(&mut bench, new), json!({"osdid": 1}));
    let map = bench.c.map();
    assert_eq!(map.osd(types::OsdId(1)).unwrap().uuid.to_string(), uuid);
    assert!(!map.state(types::OsdId(1)).contains(maps::OsdState::DESTROYED));
}

/// What comes under a number that was taken before must not be taken for who had it.
#[test]
fn a_number_that_is_taken_again_is_marked_so() {
    let mut bench = with_pool();
    let lost_at =
        |bench: &Bench, id| bench.c.map().osd(OsdId(id)).expect("it is there").info.lost_at;
    assert_eq!(lost_at(&bench, 1), types::Epoch::ZERO, "the first of its number");
    for id in [1, 2] {
        bench.stop(OsdId(id));
    }
    let sure = "yes_i_really_mean_it";
    done(&mut bench, json!({"prefix": "osd destroy", "id": 1, sure: true}));
    done(&mut bench, json!({"prefix": "osd purge", "id": 2, sure: true}));
    let gone = bench.c.map().epoch;
    for id in [1, 2] {
        let uuid = format!("11111111-2222-3333-4444-55555555555{id}");
        json_of(&mut bench, json!({"prefix": "osd new", "uuid": uuid, "id": id}));
        assert!(lost_at(&bench, id) > types::Epoch::ZERO, "osd.{id}");
    }
    assert!(lost_at(&bench, 2) > gone);
}

#[test]
fn a_slow_disk_is_named() {
    let mut bench = with_pool();
    let health =
        |bench: &mut Bench| json_of(bench, json!({"prefix": "health", "detail": "detail"}));
    bench.commit_us.extend([(OsdId(0), 2_000), (OsdId(1), 900_000), (OsdId(2), 3_000)]);
    bench.sleep(Duration::from_secs(1));
    bench.write(&Default::default());
    let check = health(&mut bench)["checks"]["OSD_SLOW_DISK"].clone();
    let detail = check["detail"][0]["message"].as_str().unwrap_or_default().to_owned();
    assert!(detail.contains("osd.1 (") && detail.contains("900 ms"), "{check}");
    assert!(detail.contains("the median is 3 ms"), "{detail}");
    bench.commit_us.insert(OsdId(1), 4_000);
    bench.write(&Default::default());
    assert!(health(&mut bench)["checks"]["OSD_SLOW_DISK"].is_null());
}

#[test]
fn damaged_records_of_an_osd_are_shown_until_it_is_made_anew() {
    let mut bench = with_pool();
    let check = |bench: &mut Bench| {
        json_of(bench, json!({"prefix": "health", "detail": "detail"}))["checks"]["OSD_RECORDS_DAMAGED"].clone()
    };
    assert!(check(&mut bench).is_null());
    bench.own_damage.insert(OsdId(1), "a tree node does not have its checksum".into());
    bench.write(&Default::default());
    let shown = check(&mut bench);
    assert_eq!(shown["severity"], "HEALTH_ERR");
    let detail = shown["detail"][0]["message"].as_str().unwrap_or_default().to_owned();
    assert!(detail.starts_with("osd.1 (") && detail.contains("a tree node"), "{shown}");
    bench.own_damage.clear();
    bench.write(&Default::default());
    assert!(check(&mut bench).is_null());
}

#[test]
fn a_disk_that_stays_slow_is_taken_out_if_the_operator_wants_that() {
    let mut bench = Bench::new();
    let slow = OsdId(1);
    let is_in = |bench: &Bench, id: OsdId| bench.c.map().is_in(id);
    let times = |slow_us: u32| [(OsdId(0), 900), (slow, slow_us), (OsdId(2), 1100)].into();
    let look = |bench: &mut Bench, calm: bool| {
        bench.again();
        let now = bench.now();
        bench.c.slow_out(now, calm);
        bench.commit();
    };
    bench.commit_us = times(800_000);
    look(&mut bench, true);
    bench.sleep(Duration::from_secs(3600));
    look(&mut bench, true);
    assert!(is_in(&bench, slow), "it is off by default");
    let set = |bench: &mut Bench, name: &str, value: &str| {
        bench.c.settings.set(admin::settings::Source::File, name, value).unwrap();
    };
    set(&mut bench, "mon_osd_slow_disk_out_interval", "120");
    // While data is being copied anyway, while a flag says no, and when it was fast in between.
    look(&mut bench, false);
    say(&mut bench, json!({"prefix": "osd set", "key": "noout"}));
    look(&mut bench, true);
    say(&mut bench, json!({"prefix": "osd unset", "key": "noout"}));
    say(&mut bench, json!({"prefix": "osd add-noout", "ids": ["1"]}));
    look(&mut bench, true);
    say(&mut bench, json!({"prefix": "osd rm-noout", "ids": ["1"]}));
    bench.commit_us = times(5000);
    look(&mut bench, true);
    bench.commit_us = times(800_000);
    look(&mut bench, true);
    bench.sleep(Duration::from_secs(100));
    look(&mut bench, true);
    assert!(is_in(&bench, slow), "not yet");
    bench.sleep(Duration::from_secs(30));
    look(&mut bench, true);
    assert!(!is_in(&bench, slow));
    // Of two that are left no other one goes: too few would be in.
    bench.commit_us = [(OsdId(0), 900), (OsdId(2), 900_000)].into();
    look(&mut bench, true);
    bench.sleep(Duration::from_secs(300));
    look(&mut bench, true);
    assert!(is_in(&bench, OsdId(2)));
}

#[test]
fn when_all_disks_are_slow_that_is_load() {
    let mut bench = Bench::new();
    bench.commit_us = [(OsdId(0), 700_000), (OsdId(1), 800_000), (OsdId(2), 900_000)].into();
    let source = admin::settings::Source::File;
    bench.c.settings.set(source, "mon_osd_slow_disk_out_interval", "60").unwrap();
    for _ in 0..10 {
        bench.again();
        let now = bench.now();
        bench.c.slow_out(now, true);
        bench.commit();
        bench.sleep(Duration::from_secs(60));
    }
    assert_eq!(bench.c.map().in_osds().count(), 3);
}

//! OSDs: their life, their weights, their disks.

use super::{done, json_of, say, with_pool};
use crate::commands::bench::Bench;
use crate::osds::{BootAnswer, remove};
use maps::OsdState;
use peer::OsdBoot;
use serde_json::json;
use std::time::Duration;
use types::{AddrVec, Epoch, OsdId, Uuid};
use wire::LinkId;

/// An OSD says that it is there.
fn boot(bench: &mut Bench, id: OsdId, uuid: Uuid) -> BootAnswer {
    let addrs = AddrVec::msgr2("10.0.0.7:6800".parse().unwrap(), id.0.unsigned_abs() + 1);
    let boot = OsdBoot {
        cluster: bench.c.state.fsid,
        osd: id,
        uuid,
        client_addrs: addrs.clone(),
        cluster_addrs: addrs.clone(),
        hb_back_addrs: addrs.clone(),
        hb_front_addrs: addrs,
        was_alive: false,
        newest_map: Epoch(1),
        store_bytes: 1 << 40,
        device_class: String::new(),
        location: Vec::new(),
        metadata: Default::default(),
        durable_txn: u64::MAX,
    };
    let now = bench.now();
    let answer = bench.c.boot(now, LinkId(u64::from(id.0.unsigned_abs())), &boot);
    bench.commit();
    answer
}

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

fn lost_at(bench: &Bench, id: i32) -> Epoch {
    bench.c.map().osd(OsdId(id)).expect("it is there").info.lost_at
}

/// What comes under a number that was taken before must not be taken for who had it.
#[test]
fn a_number_that_is_taken_again_is_marked_so() {
    let mut bench = with_pool();
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

/// Numbers need not be given out in order. What nobody ever had is nothing that was lost.
#[test]
fn a_number_that_nobody_had_has_lost_nothing() {
    let mut bench = with_pool();
    for id in [9, 7] {
        assert_eq!(boot(&mut bench, OsdId(id), Uuid([id as u8; 16])), BootAnswer::Up);
        assert_eq!(lost_at(&bench, id), Epoch::ZERO, "osd.{id}");
    }
    json_of(&mut bench, json!({"prefix": "osd new", "uuid": Uuid([5; 16]).to_string(), "id": 5}));
    assert_eq!(lost_at(&bench, 5), Epoch::ZERO);
}

/// Also when there was no room for it meanwhile. The draft that it comes with has begun already.
#[test]
fn a_number_that_is_taken_again_was_lost_before_it_comes_up() {
    let mut bench = with_pool();
    let (id, sure) = (OsdId(9), "yes_i_really_mean_it");
    done(&mut bench, json!({"prefix": "osd set", "key": "noin"}));
    assert_eq!(boot(&mut bench, id, Uuid([1; 16])), BootAnswer::Up);
    for (life, max) in [(2, 10), (3, 3)] {
        bench.stop(id);
        done(&mut bench, json!({"prefix": "osd purge", "id": 9, sure: true}));
        done(&mut bench, json!({"prefix": "osd setmaxosd", "newmax": max}));
        let ratio = 0.8 + f32::from(life) / 100.0;
        bench.c.change(|inc, _| inc.new_nearfull_ratio = Some(ratio)).unwrap();
        assert_eq!(boot(&mut bench, id, Uuid([life; 16])), BootAnswer::Up);
        let info = bench.c.map().osd(id).expect("it is there").info;
        assert!(Epoch::ZERO < info.lost_at && info.lost_at < info.up_from, "{max}: {info:?}");
    }
    bench.stop(id);
    let (r, outs) = say(&mut bench, json!({"prefix": "osd purge-new", "id": 9, sure: true}));
    assert!(r == -1 && outs.contains("was started before"), "{r} {outs}");
}

/// A clean PG without I/O is not reported for hours. That is no sign of anything, then or when its primary stops.
#[test]
fn pgs_are_stale_since_their_primary_is_down() {
    let mut bench = with_pool();
    bench.pass(Duration::from_secs(3 * 3600));
    bench.stop_unheard(OsdId(1));
    let stuck = |bench: &mut Bench| {
        let checks = &json_of(bench, json!({"prefix": "health", "detail": "detail"}))["checks"];
        let list = json_of(bench, json!({"prefix": "pg dump_stuck", "stuckops": ["stale"]}));
        let pgs = list["stuck_pg_stats"].as_array().cloned().unwrap();
        (checks["PG_AVAILABILITY"]["detail"][0]["message"].to_string(), pgs)
    };
    assert_eq!(stuck(&mut bench), ("null".into(), Vec::new()));
    bench.pass(Duration::from_secs(61));
    let (why, pgs) = stuck(&mut bench);
    assert!(why.contains("is stuck stale for 61s"), "{why}");
    assert!(!pgs.is_empty());
    assert_ne!(pgs[0]["last_unstale"], pgs[0]["last_fresh"]);
    bench.again();
    assert_eq!(stuck(&mut bench).1, Vec::<serde_json::Value>::new());
}

/// While it is filled it is in the PG's up set only.
#[test]
fn an_osd_has_the_pgs_that_it_serves() {
    let mut bench = with_pool();
    let pgid = types::PgId::new(bench.c.pool_id("p").unwrap(), 3);
    let up = bench.c.map().pg_to_up_acting(pgid).up.to_vec();
    let by_osd = json!({"prefix": "pg ls-by-osd", "osd": up[2].0.to_string()});
    assert_eq!(json_of(&mut bench, by_osd.clone())["pg_stats"].as_array().map(Vec::len), Some(16));
    let serving = up[..2].iter().copied().collect();
    bench.c.change(|inc, _| drop(inc.new_pg_temp.insert(pgid, serving))).unwrap();
    bench.commit();
    let pgs = json_of(&mut bench, by_osd);
    let pgs: Vec<_> = pgs["pg_stats"].as_array().unwrap().iter().map(|pg| &pg["pgid"]).collect();
    assert!(pgs.len() == 15 && !pgs.contains(&&pgid.to_string().into()), "{pgs:?}");
}

/// One removes it, and another one wants a number, before the next epoch.
#[test]
fn a_number_is_not_given_out_while_it_is_taken_back() {
    let mut bench = with_pool();
    let leaves = OsdId(1);
    bench.stop(leaves);
    bench.c.change(|inc, map| remove(inc, map, leaves)).unwrap();
    let new = |n: u8| json!({"prefix": "osd new", "uuid": Uuid([n; 16]).to_string()});
    let given = json_of(&mut bench, new(1));
    assert_eq!(given, json!({"osdid": 3}));
    assert!(bench.c.map().exists(OsdId(3)) && !bench.c.map().exists(leaves));
    bench.stop(OsdId(2));
    bench.c.change(|inc, map| remove(inc, map, OsdId(2))).unwrap();
    let mut wanted = new(2);
    wanted["id"] = 2.into();
    let (r, outs) = say(&mut bench, wanted.clone());
    assert!(r == -11 && outs.contains("osd.2 is being removed"), "{r} {outs}");
    done(&mut bench, wanted);
    assert_eq!(json_of(&mut bench, new(3)), json!({"osdid": 1}));
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

/// A new disk under a number: whatever was of the old one, it is filled, and missed when it dies.
#[test]
fn a_replaced_osd_comes_in_and_is_missed() {
    let id = OsdId(1);
    for was_out in [true, false] {
        for flag in [false, true] {
            let mut bench = with_pool();
            bench.stop(id);
            if was_out {
                done(&mut bench, json!({"prefix": "osd out", "ids": ["1"]}));
            }
            let sure = json!({"prefix": "osd destroy", "id": 1, "yes_i_really_mean_it": true});
            done(&mut bench, sure);
            if flag {
                done(&mut bench, json!({"prefix": "osd set", "key": "noin"}));
            }
            assert_eq!(boot(&mut bench, id, Uuid([9; 16])), BootAnswer::Up);
            let map = bench.c.map().clone();
            assert_eq!(map.is_in(id), !(flag && was_out), "out: {was_out}, noin: {flag}");
            assert_eq!(map.state(id).contains(OsdState::NEW), flag);
            if map.is_out(id) {
                continue;
            }
            bench.stop(id);
            let health = json_of(&mut bench, json!({"prefix": "health"}));
            assert!(health["checks"]["OSD_DOWN"].is_object(), "{health}");
            let purge = json!({"prefix": "osd purge-new", "id": 1, "yes_i_really_mean_it": true});
            let (r, outs) = say(&mut bench, purge);
            assert!(r == -1 && outs.contains("was started before"), "{outs}");
        }
    }
}

/// One that was given out for a new disk, and not started since, holds nothing.
#[test]
fn an_osd_that_was_only_given_out_again_may_go() {
    let mut bench = with_pool();
    bench.stop(OsdId(1));
    done(&mut bench, json!({"prefix": "osd destroy", "id": 1, "yes_i_really_mean_it": true}));
    let uuid = Uuid([9; 16]).to_string();
    done(&mut bench, json!({"prefix": "osd new", "uuid": uuid, "id": 1}));
    let health = json_of(&mut bench, json!({"prefix": "health"}));
    assert!(health["checks"]["OSD_DOWN"].is_object(), "its copies are missed: {health}");
    let purge = json!({"prefix": "osd purge-new", "id": 1, "yes_i_really_mean_it": true});
    done(&mut bench, purge);
}

/// Its disk is still in the host, which starts again.
#[test]
fn a_store_that_is_gone_comes_back_when_it_is_asked_for() {
    let id = OsdId(1);
    for how in ["destroy", "purge", "rm"] {
        let mut bench = with_pool();
        let uuid = bench.c.map().osd(id).unwrap().uuid;
        bench.stop(id);
        let command = match how {
            "rm" => json!({"prefix": "osd rm", "ids": ["1"]}),
            _ => json!({"prefix": format!("osd {how}"), "id": 1, "yes_i_really_mean_it": true}),
        };
        done(&mut bench, command);
        let BootAnswer::Refused(why) = boot(&mut bench, id, uuid) else { panic!("{how}") };
        assert!(why.contains(&format!("'ceph osd new {uuid} 1'")), "{why}");
        // Under another number, too.
        assert!(matches!(boot(&mut bench, OsdId(7), uuid), BootAnswer::Refused(_)));
        let text = uuid.to_string();
        done(&mut bench, json!({"prefix": "osd new", "uuid": text, "id": 1}));
        assert_eq!(boot(&mut bench, id, uuid), BootAnswer::Up, "{how}");
        assert!(bench.c.map().is_up(id) && bench.c.map().is_in(id));
        assert!(bench.c.state.gone.is_empty());
    }
}

#[test]
fn of_stores_that_are_gone_the_first_are_forgotten() {
    let mut bench = with_pool();
    let before = bench.c.map().clone();
    let of = |n: u16| {
        let [a, b] = n.to_be_bytes();
        Uuid([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, a, b])
    };
    for n in 0..1001 {
        bench.pass(Duration::from_secs(1));
        let mut map = maps::OsdMap::clone(&before);
        let mut inc = maps::Incremental::after(&map);
        inc.new_uuid.insert(OsdId(1), of(n));
        map.apply(&inc).unwrap();
        let now = bench.now();
        bench.c.note_gone(now, OsdId(1), &map);
    }
    let gone = &bench.c.state.gone;
    assert_eq!(gone.len(), 1000);
    assert!(!gone.contains_key(&of(0).to_string()) && gone.contains_key(&of(1).to_string()));
}

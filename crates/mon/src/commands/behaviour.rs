//! What commands about OSDs and pools do, beside what the real mon's answers show.

use super::bench::Bench;
use bytes::Bytes;
use serde_json::{Value, json};
use std::time::Duration;
use types::OsdId;

/// Result and message of a command.
pub(super) fn say(bench: &mut Bench, cmd: Value) -> (i32, String) {
    let (r, outs, _) = bench.run(&cmd);
    (r, outs)
}

pub(super) fn done(bench: &mut Bench, cmd: Value) {
    let (r, outs) = say(bench, cmd.clone());
    assert_eq!(r, 0, "{cmd}: {outs}");
}

pub(super) fn json_of(bench: &mut Bench, mut cmd: Value) -> Value {
    cmd["format"] = "json".into();
    let (_, _, out) = bench.run(&cmd);
    serde_json::from_slice(&out).unwrap()
}

pub(super) fn with_pool() -> Bench {
    let mut bench = Bench::new();
    done(&mut bench, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 16}));
    bench
}

#[test]
fn what_osds_cannot_do_yet_is_refused() {
    let mut bench = with_pool();
    let erasure = json!({"prefix": "osd pool create", "pool": "e", "pool_type": "erasure"});
    let (r, outs) = say(&mut bench, erasure);
    assert!(r == -95 && outs.contains("erasure"), "{outs}");
    // Nobody is connected who could scrub.
    for command in ["pg scrub", "pg repair"] {
        let (r, outs) = say(&mut bench, json!({"prefix": command, "pgid": ["2.0"]}));
        assert!(r < 0 && !outs.is_empty(), "{command}: {r} {outs}");
    }
    let force = json!({"prefix": "pg force-recovery", "pgid": ["2.0"]});
    assert_eq!(say(&mut bench, force), (0, "pg 2.0 doesn't require recovery; ".into()));
    assert_eq!(bench.c.map().pools.len(), 1);
}

/// What a daemon leaves behind when it crashes.
fn post_crash(bench: &mut Bench, id: &str, entity: &str, age: Duration) -> (i32, String) {
    let at = types::UTime::from_unix(bench.now().wall.as_duration().saturating_sub(age));
    let stamp = at.to_string().replace("+0000", "Z");
    let meta = json!({
        "crash_id": id, "timestamp": stamp, "entity_name": entity, "utsname_hostname": "h1",
        "process_name": "loligo-osd", "backtrace": ["a", "b"],
    });
    let (r, outs, _) = bench.run_with(&json!({"prefix": "crash post"}), meta.to_string().into());
    (r, outs)
}

#[test]
fn crashes_are_kept_until_somebody_has_looked_at_them() {
    const HOUR: Duration = Duration::from_secs(3600);
    let mut bench = Bench::new();
    let health = |bench: &mut Bench| {
        let health = json_of(bench, json!({"prefix": "health", "detail": "detail"}));
        health["checks"]["RECENT_CRASH"]["summary"]["message"].as_str().map(str::to_owned)
    };
    let names = |bench: &mut Bench, command: &str| {
        let all = json_of(bench, json!({ "prefix": command }));
        let name = |crash: &Value| crash["crash_id"].as_str().unwrap().to_owned();
        all.as_array().unwrap().iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(health(&mut bench), None);
    for (id, entity, hours) in [("x1", "osd.0", 1), ("x2", "osd.1", 80), ("x3", "osd.1", 24 * 20)] {
        // A daemon may say so twice.
        for _ in 0..2 {
            assert_eq!(post_crash(&mut bench, id, entity, HOUR * hours), (0, String::new()));
        }
    }
    assert_eq!(health(&mut bench).unwrap(), "2 daemons have recently crashed");
    let (_, _, stat) = bench.run(&json!({"prefix": "crash stat"}));
    let said = "3 crashes recorded\n2 older than 1 days old:\nx2\nx3\n2 older than 3 days old:\nx2\nx3\n\
                1 older than 7 days old:\nx3\n";
    assert_eq!(stat, said);
    let stat = json_of(&mut bench, json!({"prefix": "crash stat"}));
    let old = json!({"1": ["x2", "x3"], "3": ["x2", "x3"], "7": ["x3"]});
    assert_eq!(stat, json!({"crashes": 3, "older_than_days": old}));
    let report = json_of(&mut bench, json!({"prefix": "crash json_report", "hours": "100"}));
    assert_eq!(report, json!({"loligo-osd": 2}));

    done(&mut bench, json!({"prefix": "crash archive", "id": "x1"}));
    // The mon starts again.
    bench.commit();
    bench.again();
    assert_eq!(names(&mut bench, "crash ls-new"), ["x2", "x3"]);
    assert_eq!(names(&mut bench, "crash ls"), ["x1", "x2", "x3"]);
    let (_, _, table) = bench.run(&json!({"prefix": "crash ls"}));
    let lines = ["ID  ENTITY  NEW", "x1  osd.0", "x2  osd.1    *"];
    let table = String::from_utf8(table.to_vec()).unwrap();
    assert!(table.lines().zip(lines).all(|(a, b)| a.trim_end() == b), "{table}");
    assert_eq!(health(&mut bench).unwrap(), "1 daemons have recently crashed");
    done(&mut bench, json!({"prefix": "crash archive-all"}));
    assert_eq!(health(&mut bench), None);
    done(&mut bench, json!({"prefix": "crash prune", "keep": "7"}));
    assert_eq!(names(&mut bench, "crash ls"), ["x1", "x2"]);
    done(&mut bench, json!({"prefix": "crash rm", "id": "x2"}));
    done(&mut bench, json!({"prefix": "crash rm", "id": "x2"}));
    bench.commit();
    bench.again();
    assert_eq!(names(&mut bench, "crash ls"), ["x1"]);
    assert_eq!(
        json_of(&mut bench, json!({"prefix": "crash info", "id": "x1"}))["backtrace"][1],
        "b"
    );
}

#[test]
fn crashes_that_make_no_sense_are_refused() {
    let mut bench = Bench::new();
    for text in [
        "",
        "junk",
        "[]",
        "{}",
        r#"{"crash_id": "x"}"#,
        r#"{"crash_id": "x", "timestamp": "soon"}"#,
    ] {
        let (r, outs, _) = bench.run_with(&json!({"prefix": "crash post"}), text.into());
        assert!(r == -22 && outs.starts_with("malformed crash metadata: "), "{text}: {r} {outs}");
    }
    let big =
        json!({"crash_id": "x", "timestamp": "2026-11-20T12:24:02Z", "a": "b".repeat(70_000)});
    let (r, outs, _) = bench.run_with(&json!({"prefix": "crash post"}), big.to_string().into());
    assert!(r == -22 && outs.contains("bytes"), "{outs}");
    for command in ["crash info", "crash archive"] {
        let (r, outs) = say(&mut bench, json!({"prefix": command, "id": "nope"}));
        assert_eq!((r, outs.as_str()), (-22, "crash info: nope not found"));
    }
    assert_eq!(say(&mut bench, json!({"prefix": "crash prune", "keep": "x"})).0, -22);
    // Those of a daemon that crashes all the time do not fill the mon's store.
    for i in 0..400 {
        post_crash(&mut bench, &format!("x{i:03}"), "osd.0", Duration::from_secs(400 - i));
    }
    let all = json_of(&mut bench, json!({"prefix": "crash ls"}));
    assert_eq!((all.as_array().unwrap().len(), &all[0]["crash_id"]), (300, &json!("x100")));
}

#[test]
fn pools_get_more_pgs_step_by_step() {
    let mut bench = with_pool();
    let set = |var: &str, val: &str| json!({"prefix": "osd pool set", "pool": "p", "var": var, "val": val});
    assert_eq!(say(&mut bench, set("pg_num", "16")), (0, String::new()), "it has them");
    for (val, error) in [("0", -34), ("-3", -34), ("65537", -34), ("many", -22)] {
        let (r, outs) = say(&mut bench, set("pg_num", val));
        assert!(r == error && !outs.is_empty(), "{val}: {r} {outs}");
    }
    let (_, outs) = say(&mut bench, set("pg_num", "500"));
    let text = "pool id 2 pg_num 500 size 3 would mean 1500 total pgs, which exceeds max 1200";
    assert!(outs.starts_with(text), "{outs}");
    let (r, outs) = say(&mut bench, set("pgp_num", "17"));
    assert_eq!((r, &*outs), (-22, "specified pgp_num 17 > pg_num 16"));
    done(&mut bench, set("pg_num_max", "64"));
    let (r, outs) = say(&mut bench, set("pg_num", "65"));
    assert_eq!((r, &*outs), (-22, "specified pg_num 65 < pg_num_max 64"));
    bench.c.settings.set(admin::Source::File, "mgr_max_pg_num_change", "10").unwrap();
    assert_eq!(say(&mut bench, set("pg_num", "64")), (0, "set pool 2 pg_num to 64".into()));
    let numbers = |bench: &mut Bench| {
        let p = bench.c.map().pools.values().next().unwrap().clone();
        (p.pg_num, p.pgp_num, p.pg_num_target, p.pgp_num_target)
    };
    assert_eq!(numbers(&mut bench), (26, 16, 64, 64), "the first step is made at once");
    let mut before = 26;
    let mut steps = 0;
    while numbers(&mut bench) != (64, 64, 64, 64) {
        bench.c.adjust_pgs(types::Mono(0));
        bench.commit();
        let (pg_num, pgp_num, _, _) = numbers(&mut bench);
        assert!(pgp_num <= pg_num && pg_num - pgp_num <= 10 && pg_num >= before);
        (before, steps) = (pg_num, steps + 1);
        assert!(steps < 100, "it comes to an end");
    }
    assert!(steps > 5, "in steps: {steps}");
}

#[test]
fn pools_get_fewer_pgs_one_by_one() {
    let mut bench = with_pool();
    let set = json!({"prefix": "osd pool set", "pool": "p", "var": "pg_num", "val": "11"});
    assert_eq!(say(&mut bench, set), (0, "set pool 2 pg_num to 11".into()));
    let pool = |bench: &mut Bench| bench.c.map().pools.values().next().unwrap().clone();
    let mut steps = 0;
    loop {
        let before = pool(&mut bench);
        if (before.pg_num, before.pgp_num) == (11, 11) {
            break;
        }
        bench.c.adjust_pgs(types::Mono(0));
        bench.commit();
        let now = pool(&mut bench);
        assert!(now.pgp_num <= now.pg_num_pending && now.pg_num_pending + 1 >= now.pg_num);
        if now.pg_num < before.pg_num {
            assert_eq!((before.pg_num_pending, now.pg_num + 1), (now.pg_num, before.pg_num));
            assert_eq!(now.last_pg_merge_meta.source_pgid.seed, now.pg_num);
        }
        steps += 1;
        assert!(steps < 100, "it comes to an end");
    }
    assert_eq!(pool(&mut bench).pg_num_pending, 11);
}

#[test]
fn one_copy_needs_leave() {
    let mut bench = with_pool();
    let allow = |bench: &mut Bench, yes: &str| {
        bench.c.settings.set(admin::Source::File, "mon_allow_pool_size_one", yes).unwrap();
    };
    let create = json!({"prefix": "osd pool create", "pool": "one", "size": 1});
    let mut set = json!({"prefix": "osd pool set", "pool": "p", "var": "size", "val": "1"});
    allow(&mut bench, "false");
    assert_eq!(say(&mut bench, create.clone()).0, -1);
    set["yes_i_really_mean_it"] = true.into();
    let (r, outs) = say(&mut bench, set.clone());
    assert!(r == -1 && outs.contains("disabled by default"), "{outs}");
    allow(&mut bench, "true");
    done(&mut bench, create);
    set["yes_i_really_mean_it"] = false.into();
    assert_eq!(say(&mut bench, set.clone()).0, -1, "it must be said twice");
    set["yes_i_really_mean_it"] = true.into();
    done(&mut bench, set);
}

#[test]
fn pools_are_deleted_only_where_that_is_allowed() {
    let mut bench = with_pool();
    done(&mut bench, json!({"prefix": "osd crush weight-set create", "pool": "p", "mode": "flat"}));
    let rm = json!({
        "prefix": "osd pool rm", "pool": "p", "pool2": "p", "yes_i_really_really_mean_it": true,
    });
    bench.c.settings.set(admin::Source::File, "mon_allow_pool_delete", "false").unwrap();
    let (r, outs) = say(&mut bench, rm.clone());
    assert!(r == -1 && outs.contains("mon_allow_pool_delete"), "{outs}");
    bench.c.settings.set(admin::Source::File, "mon_allow_pool_delete", "true").unwrap();
    done(&mut bench, rm);
    assert!(bench.c.map().pools.is_empty());
    assert_eq!(bench.c.map().crush().choose_args().count(), 0, "its weight-set is gone too");
}

/// A mon that printed one in a table ended, and again after each start.
#[test]
fn names_and_values_have_a_greatest_length() {
    let mut bench = with_pool();
    let long = |n: usize| "x".repeat(n);
    let set = |n| json!({"prefix": "config set", "who": "mgr", "name": "mgr/x", "value": long(n)});
    let (r, outs) = say(&mut bench, set((64 << 10) + 1));
    assert!(r == -22 && outs.contains("may have 65536"), "{outs}");
    done(&mut bench, set(64 << 10));
    assert!(bench.run(&json!({"prefix": "config dump"})).2.len() > 2 << 16);
    let add = |n| json!({"prefix": "osd crush add-bucket", "name": long(n), "type": "host"});
    let (r, outs) = say(&mut bench, add(1025));
    assert!(r == -22 && outs.contains("may have 1024"), "{outs}");
    done(&mut bench, add(1024));
    assert!(bench.run(&json!({"prefix": "osd tree"})).2.len() > 1024);
}

#[test]
fn the_crush_map_comes_and_goes_as_bytes() {
    let mut bench = with_pool();
    let get = json!({"prefix": "osd getcrushmap"});
    let (r, version, bytes) = bench.run(&get);
    assert_eq!(r, 0);
    let set =
        json!({"prefix": "osd setcrushmap", "prior_version": version.parse::<i64>().unwrap()});
    let mut crush: crush::CrushMap = denc::decode_all(&bytes).unwrap();
    crush.reweight_item(0, 0x2_0000).unwrap();
    let changed = denc::encode(&crush);
    let (r, next, _) = bench.run_with(&set, changed.clone());
    assert_eq!((r, next.parse::<i64>().ok()), (0, version.parse::<i64>().ok().map(|v| v + 1)));
    assert_eq!(bench.run(&get).2, changed);
    let (r, again, _) = bench.run_with(&set, changed.clone());
    assert_eq!((r, again), (0, next), "the answer was lost, the command came again");
    let (r, outs, _) = bench.run_with(&set, bytes);
    assert_eq!(r, -1, "{outs}");
    for bad in [Bytes::new(), Bytes::from_static(b"garbage"), changed.slice(..changed.len() / 2)] {
        let (r, outs, _) = bench.run_with(&json!({"prefix": "osd setcrushmap"}), bad);
        assert!(r == -22 && outs.contains("parse"), "{outs}");
    }
    let mut ruleless = crush.clone();
    ruleless.remove_rule(0).unwrap();
    let input = denc::encode(&ruleless);
    let (r, outs, _) = bench.run_with(&json!({"prefix": "osd setcrushmap"}), input);
    assert!(r == -2 && outs.contains("crush_rule 0"), "{outs}");
    // Its pool would have no OSD any more.
    let text = crush::decompile(&crush).replace("\tmin_size 1\n", "\tmin_size 9\n");
    let input = denc::encode(&crush::compile(&text).unwrap());
    let (r, outs, _) = bench.run_with(&json!({"prefix": "osd setcrushmap"}), input);
    assert!(r == -22 && outs.contains("sizes 9 to 10"), "{outs}");
    assert_eq!(bench.run(&get).2, changed);
}

#[test]
fn pgs_without_osds_are_stale_until_they_have_some() {
    let mut bench = with_pool();
    let set = |bench: &mut Bench, rule: &str| {
        let set = json!({"prefix": "osd pool set", "pool": "p", "var": "crush_rule", "val": rule});
        done(bench, set);
        let map = bench.c.state.osdmap.clone();
        bench.c.pgmap.tick(bench.now(), &map);
        bench.pass(Duration::from_secs(61));
        json_of(bench, json!({"prefix": "health"}))["checks"]["PG_AVAILABILITY"].clone()
    };
    // There are no racks.
    let rule = json!({
        "prefix": "osd crush rule create-replicated", "name": "nowhere", "root": "default",
        "type": "rack",
    });
    done(&mut bench, rule);
    let check = set(&mut bench, "nowhere");
    assert!(check["summary"]["message"].to_string().contains("16 pgs stale"), "{check}");
    let states = &json_of(&mut bench, json!({"prefix": "pg stat"}))["pg_summary"];
    assert_eq!(states["num_pg_by_state"][0]["name"], "stale+active+clean", "{states}");
    assert!(set(&mut bench, "replicated_rule").is_null());
}

#[test]
fn scrubs_that_never_are_late_need_no_time_that_there_is() {
    let mut bench = with_pool();
    let late = |bench: &mut Bench| {
        let checks = &json_of(bench, json!({"prefix": "health"}))["checks"];
        ["PG_NOT_SCRUBBED", "PG_NOT_DEEP_SCRUBBED"].map(|code| !checks[code].is_null())
    };
    bench.pass(Duration::from_secs(30 * 86_400));
    assert_eq!(late(&mut bench), [true, true]);
    for var in ["scrub_max_interval", "deep_scrub_interval"] {
        let set = json!({"prefix": "osd pool set", "pool": "p", "var": var, "val": "1.5e19"});
        done(&mut bench, set);
    }
    assert_eq!(late(&mut bench), [false, false]);
    let ratio = "mon_warn_pg_not_scrubbed_ratio";
    let (r, outs) = say(
        &mut bench,
        json!({"prefix": "config set", "who": "mon", "name": ratio, "value": "1e14"}),
    );
    assert!(r == -22 && outs.contains("exceeds maximum"), "{outs}");
}

fn crush_with_device(bench: &Bench, id: i32) -> crush::CrushMap {
    let mut crush = bench.c.map().crush().as_ref().clone();
    let place = [("host", "far"), ("root", "default")];
    let place = place.iter().map(|&(kind, name)| (kind.to_owned(), name.to_owned())).collect();
    crush.insert_item(id, 0x1_0000, &format!("osd.{id}"), &place).unwrap();
    crush
}

#[test]
fn a_crush_map_has_only_devices_that_an_osd_can_be() {
    let mut bench = with_pool();
    let set = json!({"prefix": "osd setcrushmap"});
    for id in [2_000_000_000, maps::MAX_OSDS as i32, i32::MAX - 2] {
        let input = denc::encode(&crush_with_device(&bench, id));
        let (r, outs, _) = bench.run_with(&set, input);
        assert!(r == -22 && outs.contains(&format!("device {id},")), "{outs}");
    }
    let last = maps::MAX_OSDS as i32 - 1;
    let (r, outs, _) = bench.run_with(&set, denc::encode(&crush_with_device(&bench, last)));
    assert_eq!(r, 0, "{outs}");
    let orphan = &json_of(&mut bench, json!({"prefix": "health", "detail": "detail"}))["checks"];
    let lines = orphan["OSD_ORPHAN"]["detail"].as_array().expect("it is one");
    let named = lines.iter().any(|l| l["message"].to_string().contains(&format!("osd.{last} ")));
    assert!(lines.len() == 2 && named, "one and a hint: {lines:?}");
    let dump = json_of(&mut bench, json!({"prefix": "osd crush dump"}));
    let ids: Vec<i64> =
        dump["devices"].as_array().unwrap().iter().flat_map(|d| d["id"].as_i64()).collect();
    assert!(ids.len() < 20 && ids.last() == Some(&i64::from(last)), "{ids:?}");
}

#[test]
fn a_map_that_has_such_a_device_already_is_served_and_mended() {
    let mut bench = with_pool();
    let crush = crush_with_device(&bench, 2_000_000_000);
    let mut map = maps::OsdMap::clone(&bench.c.state.osdmap);
    map.set_crush(std::sync::Arc::new(crush));
    bench.c.state.osdmap = std::sync::Arc::new(map);
    let checks = json_of(&mut bench, json!({"prefix": "health"}));
    assert_eq!(checks["checks"]["OSD_ORPHAN"]["summary"]["count"], 1, "{checks}");
    let dump = json_of(&mut bench, json!({"prefix": "osd crush dump"}));
    assert!(dump["devices"].as_array().unwrap().len() < 20);
    done(&mut bench, json!({"prefix": "osd crush reweight", "name": "osd.0", "weight": 2.0}));
    done(&mut bench, json!({"prefix": "osd crush rm", "name": "osd.2000000000"}));
    assert!(bench.c.map().crush().max_devices() < 20);
}

#[test]
fn straw_buckets_become_straw2() {
    let mut bench = with_pool();
    let text = crush::decompile(bench.c.map().crush());
    let old_text = text.replace("\talg straw2\n", "\talg straw\n");
    // Weights that are no thousandths, and classes whose numbers are not the order they stand in.
    let edited = |text: &str| {
        let mut crush = crush::compile(text).unwrap();
        crush.reweight_item(0, 0x1_2345).unwrap();
        for (id, class) in [(0, "first"), (1, "second"), (0, "second")] {
            crush.remove_device_class(id).unwrap();
            crush.set_device_class(id, class).unwrap();
        }
        crush
    };
    let (old, new) = (edited(&old_text), edited(&text));
    assert!(old.buckets().filter(|b| b.algorithm() == crush::Algorithm::Straw).count() > 3);
    let (r, outs, _) = bench.run_with(&json!({"prefix": "osd setcrushmap"}), denc::encode(&old));
    assert_eq!(r, 0, "{outs}");
    done(&mut bench, json!({"prefix": "osd crush set-all-straw-buckets-to-straw2"}));
    assert!(**bench.c.map().crush() == new, "nothing else is changed");
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

#[test]
fn a_daemons_options_are_shown_as_it_has_them() {
    let mut bench = with_pool();
    let said = |all: &[(&str, &str)]| all.iter().map(|(f, v)| ((*f).into(), (*v).into())).collect();
    let option =
        |name: &str, all: &[(&str, &str)]| peer::OptionSaid { name: name.into(), said: said(all) };
    let options = vec![
        option("osd_max_backfills", &[("file", "1"), ("mon", "3"), ("override", "3")]),
        option("osd_memory_target", &[("file", "536870912")]),
    ];
    bench.options.insert(OsdId(1), options);
    bench.again();
    let show = |who: &str| json!({"prefix": "config show", "who": who});
    let (_, _, out) = bench.run(&show("osd.1"));
    let out = String::from_utf8(out.to_vec()).unwrap();
    let rows: Vec<Vec<&str>> = out.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "VALUE", "SOURCE", "OVERRIDES", "IGNORES"]);
    assert_eq!(rows[1], ["osd_max_backfills", "3", "override", "(mon[3]),file[1]"]);
    assert_eq!(rows[2], ["osd_memory_target", "536870912", "file"]);
    let overrides = json!([{"source": "mon", "value": "3"}, {"source": "file", "value": "1"}]);
    assert_eq!(json_of(&mut bench, show("osd.1"))[0]["overrides"], overrides);
    assert_eq!(json_of(&mut bench, show("osd.0")), json!([]), "all are defaults");
    let key = |key: &str| json!({"prefix": "config show", "who": "osd.1", "key": key});
    assert_eq!(bench.run(&key("osd_max_backfills")).2, "3\n");
    assert_eq!(bench.run(&key("osd_op_complaint_time")).2, "30.000000\n", "a default");
    assert_eq!(say(&mut bench, key("nosuch")).0, -2);
    let (r, outs) = say(&mut bench, show("osd.99"));
    assert_eq!((r, &*outs), (-2, "no config state for daemon osd.99"));
    let all = json_of(&mut bench, json!({"prefix": "config show-with-defaults", "who": "osd.1"}));
    let one = |name: &str| all.as_array().unwrap().iter().find(|o| o["name"] == name).cloned();
    assert_eq!(one("osd_memory_target").unwrap()["source"], "file");
    assert_eq!(one("osd_op_complaint_time").unwrap()["source"], "default");
}

#[test]
fn the_configuration_goes_back_to_an_earlier_version() {
    let mut bench = with_pool();
    let set = |name: &str, value: &str| json!({"prefix": "config set", "who": "osd", "name": name, "value": value});
    let reset = |num: i64| json!({"prefix": "config reset", "num": num});
    let log = json!({"prefix": "config log"});
    assert_eq!(
        json_of(&mut bench, log.clone())[0],
        json!({
            "version": 1, "timestamp": "0.000000", "name": "", "changes": [],
        })
    );
    done(&mut bench, set("osd_max_backfills", "2"));
    done(&mut bench, set("osd_max_backfills", "3"));
    done(&mut bench, set("osd_op_complaint_time", "20"));
    assert_eq!(say(&mut bench, reset(4)), (0, "config is already at version 4".into()));
    for none in [-1, 5] {
        assert_eq!(say(&mut bench, reset(none)).0, -22);
    }
    done(&mut bench, reset(2));
    let dump = json!({"prefix": "config dump"});
    let now = json_of(&mut bench, dump.clone());
    assert_eq!((now.as_array().unwrap().len(), &now[0]["value"]), (1, &json!("2")));
    let newest = &json_of(&mut bench, log.clone())[0];
    assert_eq!((&newest["version"], &newest["name"]), (&json!(5), &json!("reset to 2")));
    assert_eq!(newest["changes"].as_array().unwrap().len(), 2);
    // That can be taken back, too.
    done(&mut bench, reset(4));
    assert_eq!(json_of(&mut bench, dump.clone()).as_array().unwrap().len(), 2);
    done(&mut bench, reset(1));
    assert_eq!(json_of(&mut bench, dump), json!([]));
    assert_eq!(json_of(&mut bench, log).as_array().unwrap().last().unwrap()["version"], 1);
}

#[test]
fn a_pg_that_peers_again_is_led_by_another_for_a_moment() {
    let mut bench = with_pool();
    let pgid = "2.3".parse().unwrap();
    let before = bench.c.map().pg_to_up_acting(pgid);
    done(&mut bench, json!({"prefix": "pg repeer", "pgid": "2.3"}));
    let after = bench.c.map().pg_to_up_acting(pgid);
    assert_eq!(after.up, before.up);
    assert_eq!(after.acting_primary, Some(before.acting[1]));
    let mut same: Vec<_> = after.acting.to_vec();
    same.sort();
    let mut all: Vec<_> = before.acting.to_vec();
    all.sort();
    assert_eq!(same, all, "no copy is left out");
    let (r, outs) = say(&mut bench, json!({"prefix": "osd pg-temp", "pgid": "2.3", "id": ["0"]}));
    assert_eq!((r, &*outs), (-22, "num of osds (1) < pool min size (2)"));
}

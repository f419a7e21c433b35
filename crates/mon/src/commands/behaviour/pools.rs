//! Pools and their PGs.

use super::{done, json_of, say, with_pool};
use crate::commands::bench::Bench;
use serde_json::json;
use std::time::Duration;

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
        // Linux' own client goes by this, and by nothing else that a merge changes.
        let goes_or_is_merged =
            (now.pg_num, now.pg_num_pending) != (before.pg_num, before.pg_num_pending);
        let forced = now.last_force_op_resend_prenautilus == bench.c.map().epoch;
        assert_eq!(forced, goes_or_is_merged);
        if now.pg_num < before.pg_num {
            assert_eq!((before.pg_num_pending, now.pg_num + 1), (now.pg_num, before.pg_num));
            assert_eq!(now.last_pg_merge_meta.source_pgid.seed, now.pg_num);
        }
        steps += 1;
        assert!(steps < 100, "it comes to an end");
    }
    assert_eq!(pool(&mut bench).pg_num_pending, 11);
}

/// With many PGs in the cluster it takes long to look whether a pool can go a step further: each second, and when one of
/// the PGs that are merged was heard of, but not with every report.
#[test]
fn only_reports_of_pgs_that_are_merged_bring_a_merge_further() {
    let mut bench = with_pool();
    let pool = bench.c.pool_id("p").unwrap();
    let of_merge = |bench: &Bench| -> Vec<u32> {
        let is_of_merge = |seed: &u32| bench.c.is_of_merge([types::PgId::new(pool, *seed)]);
        (0..16).filter(is_of_merge).collect()
    };
    assert_eq!(of_merge(&bench), [0_u32; 0]);
    done(&mut bench, json!({"prefix": "osd pool set", "pool": "p", "var": "pg_num", "val": "11"}));
    assert_eq!(of_merge(&bench), [7, 15]);
}

/// What was asked of two PGs that were to be merged was dropped, and so it is when they are not.
#[test]
fn a_merge_that_does_not_come_about_is_no_end_for_old_clients() {
    let mut bench = with_pool();
    let set = json!({"prefix": "osd pool set", "pool": "p", "var": "pg_num", "val": "15"});
    done(&mut bench, set);
    let pool = |bench: &Bench| bench.c.map().pools.values().next().unwrap().clone();
    let is_quiet = |bench: &Bench| pool(bench).pg_num_pending == 15;
    let last = types::PgId::new(bench.c.pool_id("p").unwrap(), 15);
    for _ in 0..100 {
        bench.c.adjust_pgs(types::Mono(0));
        if is_quiet(&bench) {
            // It never becomes quiet.
            bench.lost.insert(last);
        }
        bench.commit();
        if is_quiet(&bench) {
            break;
        }
    }
    assert!(is_quiet(&bench));
    let begun = pool(&bench).last_force_op_resend_prenautilus;
    let set = json!({"prefix": "osd set", "key": "noscrub"});
    done(&mut bench, set);
    let later = types::Mono(0).after(Duration::from_secs(3600));
    bench.c.adjust_pgs(later);
    bench.commit();
    let now = pool(&bench);
    assert_eq!((now.pg_num, now.pg_num_pending), (16, 16));
    assert_eq!(now.last_force_op_resend_prenautilus, bench.c.map().epoch);
    assert!(bench.c.map().epoch > begun);
}

/// Ceph's clients forget a name that goes from one pool to another within one epoch.
#[test]
fn a_name_does_not_pass_from_pool_to_pool_in_one_epoch() {
    let mut bench = with_pool();
    done(&mut bench, json!({"prefix": "osd pool create", "pool": "q", "pg_num": 8}));
    let [p, q] = ["p", "q"].map(|name| bench.c.pool_id(name).unwrap());
    let rename = |c: &mut crate::cluster::Cluster, id, to: &str| {
        c.change(|inc, _| _ = inc.new_pool_names.insert(id, to.into())).unwrap();
    };
    rename(&mut bench.c, p, "other");
    let to_p = json!({"prefix": "osd pool rename", "srcpool": "q", "destpool": "p"});
    assert_eq!(say(&mut bench, to_p.clone()), (-17, "pool 'p' already exists".into()));
    assert_eq!(bench.c.map().pool_by_name("other"), Some(p));
    done(&mut bench, to_p);
    assert_eq!(bench.c.map().pool_by_name("p"), Some(q));
    bench.c.delete_pool(q).unwrap();
    let create = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8});
    assert_eq!(say(&mut bench, create.clone()), (0, "pool 'p' already exists".into()));
    assert_eq!(bench.c.map().pool_by_name("p"), None);
    assert_eq!(say(&mut bench, create), (0, "pool 'p' created".into()));
    // A pool may get back the name that it has.
    rename(&mut bench.c, p, "p2");
    let back = json!({"prefix": "osd pool rename", "srcpool": "p2", "destpool": "other"});
    done(&mut bench, back);
    assert_eq!(bench.c.map().pool_by_name("other"), Some(p));
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

#[test]
fn pgs_without_osds_are_stale_until_they_have_some() {
    let mut bench = with_pool();
    let set = |bench: &mut Bench, rule: &str| {
        let set = json!({"prefix": "osd pool set", "pool": "p", "var": "crush_rule", "val": rule});
        done(bench, set);
        let map = bench.c.state.osdmap.clone();
        bench.c.pgmap.tick(bench.now(), &map);
        let check = |bench: &mut Bench| {
            json_of(bench, json!({"prefix": "health"}))["checks"]["PG_AVAILABILITY"].clone()
        };
        assert!(check(bench).is_null(), "not for long yet");
        bench.pass(Duration::from_secs(61));
        check(bench)
    };
    // There are no racks.
    let rule = json!({
        "prefix": "osd crush rule create-replicated", "name": "nowhere", "root": "default",
        "type": "rack",
    });
    done(&mut bench, rule);
    // So long ago they were last reported.
    bench.pass(Duration::from_secs(3 * 3600));
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

/// There may be a hundred thousand.
#[test]
fn of_many_pgs_some_are_named() {
    let mut bench = with_pool();
    bench.c.settings.set(admin::Source::File, "mon_health_max_detail", "5").unwrap();
    let detail = |bench: &mut Bench, code: &str| {
        let health = json_of(bench, json!({"prefix": "health", "detail": "detail"}));
        let check = &health["checks"][code];
        let lines = check["detail"].as_array().unwrap().iter();
        let lines: Vec<String> = lines.map(|l| l["message"].as_str().unwrap().to_owned()).collect();
        (check["summary"]["count"].clone(), lines.len(), lines[5].clone())
    };
    bench.pass(Duration::from_secs(30 * 86_400));
    let late = detail(&mut bench, "PG_NOT_SCRUBBED");
    assert_eq!(late, (json!(16), 7, "11 more pgs... ".into()));
    for id in 0..3 {
        bench.stop(types::OsdId(id));
    }
    bench.pass(Duration::from_secs(100));
    let (count, lines, more) = detail(&mut bench, "PG_AVAILABILITY");
    assert!(count.as_i64().unwrap() >= 16 && lines == 7, "{count} {lines}");
    assert_eq!(more, "11 more pgs are also unhealthy");
}

/// The numbers are those of Ceph's module for the same pools.
#[test]
fn the_number_of_pgs_that_fits_a_pool_is_reckoned() {
    let mut bench = with_pool();
    let status = |bench: &mut Bench| {
        json_of(bench, json!({"prefix": "osd pool autoscale-status"}))[0].clone()
    };
    let before = status(&mut bench);
    assert_eq!((&before["pg_num_target"], &before["pg_num_ideal"]), (&json!(16), &json!(0)));
    assert_eq!((&before["pg_num_final"], &before["would_adjust"]), (&json!(32), &json!(false)));
    assert_eq!(before["crush_root_id"], -1);
    let set = |var: &str, val: &str| json!({"prefix": "osd pool set", "pool": "p", "var": var, "val": val});
    done(&mut bench, set("target_size_ratio", "0.5"));
    // All that is asked for is this pool: three OSDs of 100 PGs each, in three copies.
    let after = status(&mut bench);
    let ratios = ["target_ratio", "effective_target_ratio"].map(|name| after[name].as_f64());
    assert_eq!(ratios, [Some(0.5), Some(1.0)]);
    assert_eq!((&after["pg_num_ideal"], &after["pg_num_final"]), (&json!(100), &json!(128)));
    assert_eq!(after["would_adjust"], true);
    done(&mut bench, set("pg_num_max", "64"));
    assert_eq!(status(&mut bench)["pg_num_final"], 64);
    done(&mut bench, set("pg_autoscale_bias", "0.5"));
    assert_eq!(status(&mut bench)["pg_num_ideal"], 50);
    let (_, _, table) = bench.run(&json!({"prefix": "osd pool autoscale-status"}));
    let table = String::from_utf8_lossy(&table);
    assert!(table.lines().count() == 2 && table.contains("NEW PG_NUM"), "{table}");
}

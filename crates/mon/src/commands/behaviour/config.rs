//! The configuration, and what may be a name or a value.

use super::{done, json_of, say, with_pool};
use crate::commands::bench::Bench;
use serde_json::{Value, json};
use types::OsdId;

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

/// What is said of an option is what OSDs make of it, and what they would pass over is refused.
#[test]
fn options_are_explained_and_checked_as_osds_have_them() {
    let mut bench = with_pool();
    bench.options.insert(OsdId(1), Vec::new());
    bench.again();
    let of_osds = osd::known_settings();
    for def in of_osds.defs() {
        let key = |prefix: &str| json!({"prefix": prefix, "key": def.name, "who": "osd.1"});
        assert_eq!(bench.run(&key("config help")).2, def.describe_text());
        let value = of_osds.show(def.name).unwrap();
        for prefix in ["config get", "config show"] {
            let (r, outs, out) = bench.run(&key(prefix));
            assert_eq!(
                (r, &*outs, &*out),
                (0, "", format!("{value}\n").as_bytes()),
                "{}",
                def.name
            );
        }
        let mut set = |value: f64| {
            let set = json!({"prefix": "config set", "who": "osd", "name": def.name, "value": format!("{value}")});
            say(&mut bench, set)
        };
        for (least, most) in
            [(def.min, def.min.map(|min| min - 1.0)), (def.max, def.max.map(|max| max + 1.0))]
        {
            let Some((good, bad)) = least.zip(most) else { continue };
            assert_eq!(set(good), (0, String::new()), "{} = {good}", def.name);
            assert_eq!(set(bad).0, -22, "{} = {bad}", def.name);
        }
        done(&mut bench, json!({"prefix": "config rm", "who": "osd", "name": def.name}));
    }
    let all = json_of(&mut bench, json!({"prefix": "config show-with-defaults", "who": "osd.1"}));
    let names = all.as_array().unwrap().iter().map(|option| option["name"].as_str().unwrap());
    assert!(names.eq(of_osds.defs().map(|def| def.name)), "these, and no others");
}

#[test]
fn options_that_nobody_heeds_are_kept_and_it_is_said() {
    let mut bench = with_pool();
    let mut noted = |who: &str, name: &str| {
        let (r, outs) = say(
            &mut bench,
            json!({"prefix": "config set", "who": who, "name": name, "value": "1"}),
        );
        assert_eq!(r, 0, "{outs}");
        outs
    };
    for (who, name, whom) in [
        ("osd", "osd_scrub_load_threshold", "OSD"),
        ("osd.1", "mon_max_osd", "OSD"),
        ("osd/class:ssd", "debug_osd", "OSD"),
        ("mon", "osd_max_backfills", "mon"),
        ("mds", "mds_client_prealloc_inos", "mds"),
        ("mds", "mds_cache_memory_limit", "mds"),
        ("osd", "bluestore_cache_autotune", "OSD"),
        ("global", "filestore_queue_max_ops", "daemon"),
        ("global", "osd_scrub_load_threshold", "daemon"),
    ] {
        let note = format!(
            "no {whom} of this cluster heeds '{name}': whatever it is set to changes nothing there"
        );
        assert_eq!(noted(who, name), note);
    }
    for (who, name) in [
        ("osd", "osd_max_backfills"),
        ("mon", "mon_max_osd"),
        ("global", "osd_max_backfills"),
        ("global", "mon_max_osd"),
        ("global", "rbd_cache"),
        ("global", "mon_client_hunt_parallel"),
        ("client", "osd_scrub_load_threshold"),
        ("client.x", "rbd_cache"),
        ("client.rgw.a", "rgw_enable_usage_log"),
        ("client", "client_cache_size"),
    ] {
        assert_eq!(noted(who, name), "", "{who} {name}");
    }
    let get = json!({"prefix": "config get", "who": "osd.1", "key": "osd_scrub_sleep_hdd"});
    assert_eq!(say(&mut bench, get).0, -2, "there is no such option");
    let get = json!({"prefix": "config get", "who": "osd.1", "key": "osd_scrub_cost"});
    let (r, outs, out) = bench.run(&get);
    assert!(r == 0 && outs.starts_with("no OSD ") && !out.is_empty(), "{outs}");
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

/// `balancer` and `progress` set options of the mgr as `config set mgr` does.
#[test]
fn what_other_commands_set_is_in_the_log_and_goes_back() {
    let mut bench = with_pool();
    let commands = [
        json!({"prefix": "balancer off"}),
        json!({"prefix": "balancer mode", "mode": "none"}),
        json!({"prefix": "progress off"}),
    ];
    commands.into_iter().for_each(|cmd| done(&mut bench, cmd));
    let log = json_of(&mut bench, json!({"prefix": "config log"}));
    let named = |n: usize| log[n]["changes"][0]["name"].as_str().unwrap_or_default().to_owned();
    let expected = ["mgr/progress/enabled", "mgr/balancer/mode", "mgr/balancer/active"];
    assert_eq!([0, 1, 2].map(named), expected.map(|name| format!("mgr/{name}")));
    done(&mut bench, json!({"prefix": "config reset", "num": 1}));
    assert_eq!(json_of(&mut bench, json!({"prefix": "config dump"})), json!([]));
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

const OPTION: &str = "osd_max_backfills";

fn set(who: &str, value: &str) -> Value {
    json!({"prefix": "config set", "who": who, "name": OPTION, "value": value})
}

fn unset(who: &str) -> Value {
    json!({"prefix": "config rm", "who": who, "name": OPTION})
}

fn get(bench: &mut Bench, who: &str) -> String {
    let (r, outs, out) = bench.run(&json!({"prefix": "config get", "who": who, "key": OPTION}));
    assert_eq!(r, 0, "{outs}");
    String::from_utf8(out.to_vec()).unwrap().trim().to_owned()
}

/// osd.0 of class ssd on h0 in r0, the others elsewhere.
#[test]
fn options_with_masks_are_for_whom_they_fit() {
    let mut bench = with_pool();
    for cmd in [
        json!({"prefix": "osd crush add-bucket", "name": "r0", "type": "rack"}),
        json!({"prefix": "osd crush move", "name": "r0", "args": ["root=default"]}),
        json!({"prefix": "osd crush add-bucket", "name": "h0", "type": "host"}),
        json!({"prefix": "osd crush move", "name": "h0", "args": ["rack=r0"]}),
        json!({"prefix": "osd crush set", "id": 0, "weight": 1.0, "args": ["host=h0"]}),
        json!({"prefix": "osd crush rm-device-class", "ids": ["0"]}),
        json!({"prefix": "osd crush set-device-class", "class": "ssd", "ids": ["0"]}),
    ] {
        done(&mut bench, cmd);
    }
    // Each one is more specific than the one before.
    let steps = [
        ("class:ssd", "2"),
        ("osd", "3"),
        ("osd/class:ssd", "4"),
        ("osd/root:default", "5"),
        ("osd/rack:r0", "6"),
        ("host:h0/osd", "7"),
        ("osd/class:ssd/host:h0", "8"),
        ("osd.0", "9"),
        ("osd.0/class:ssd", "10"),
    ];
    for (who, value) in steps {
        done(&mut bench, set(who, value));
        assert_eq!(get(&mut bench, "osd.0"), value, "{who}");
    }
    assert_eq!(get(&mut bench, "osd.1"), "5", "it is elsewhere below the root");
    done(&mut bench, set("osd/host:nowhere", "20"));
    assert_eq!(get(&mut bench, "osd.0"), "10");
    // Which is which does not depend on the order they are named in.
    for who in ["class:ssd/osd.0", "osd.0", "osd/host:h0/class:ssd"] {
        done(&mut bench, unset(who));
    }
    assert_eq!(get(&mut bench, "osd.0"), "7");
    // Parts of names count, too.
    done(&mut bench, set("client.a", "30"));
    let clients = ["client.a", "client.a.b", "client.ab"];
    assert_eq!(clients.map(|who| get(&mut bench, who)), ["30", "30", "2"]);
}

#[test]
fn masks_are_shown_as_ceph_shows_them() {
    let mut bench = with_pool();
    let all =
        ["osd/host:h", "client.a", "class:ssd/osd/host:h", "osd.0/rack:r", "osd", "class:ssd"];
    all.iter().for_each(|who| done(&mut bench, set(who, "3")));
    let shown = json_of(&mut bench, json!({"prefix": "config dump"}));
    let field = |entry: &Value, name: &str| entry[name].as_str().unwrap_or("-").to_owned();
    let row = |entry: &Value| [field(entry, "section"), field(entry, "mask")].join(" ");
    let rows: Vec<String> = shown.as_array().unwrap().iter().map(row).collect();
    let expected = [
        "global class:ssd",
        "osd ",
        "osd host:h",
        "osd host:h/class:ssd",
        "osd.0 rack:r",
        "client.a ",
    ];
    assert_eq!(rows, expected);
    let both = &shown[3];
    let places = [&both["location_type"], &both["location_value"], &both["device_class"]];
    assert_eq!(places, ["host", "h", "ssd"]);
}

#[test]
fn masks_that_fit_nobody_are_refused() {
    let mut bench = with_pool();
    for who in [
        "osd/",
        "osd/shelf:1",
        "osd/class:",
        "osd/rack:a/host:b",
        "osd/mon",
        "osd/class:a/class:b",
        "x",
        "osd/x",
    ] {
        let text = format!("unrecognized config target '{who}'");
        assert_eq!(say(&mut bench, set(who, "1")), (-22, text));
    }
}

/// A client is where its host is.
#[test]
fn masks_fit_clients_by_their_hosts() {
    let mut bench = with_pool();
    let host = bench.c.map().crush().parent(0).unwrap().id();
    let name = bench.c.map().crush().item_name(host).unwrap().to_owned();
    for (who, value) in [("client/root:default", "1s"), ("client/host:elsewhere", "2s")] {
        let set = json!({"prefix": "config set", "who": who, "name": "rados_osd_op_timeout", "value": value});
        done(&mut bench, set);
    }
    let told = |bench: &Bench, host: &str| {
        let told = crate::commands::config::told(&bench.c, "client.x", host);
        told.get("rados_osd_op_timeout").cloned()
    };
    assert!(told(&bench, &name).is_some_and(|value| value.starts_with('1')));
    assert!(told(&bench, "elsewhere").is_some_and(|value| value.starts_with('2')));
    assert_eq!(told(&bench, "nowhere"), None);
}

/// The type of a mask may go from the CRUSH map; what was set can be taken back all the same.
#[test]
fn a_mask_that_makes_no_sense_any_more_can_be_removed() {
    let mut bench = with_pool();
    bench.c.put_config("osd/shelf:1/box:2", "osd_max_backfills", Some("3"));
    bench.commit();
    assert_eq!(json_of(&mut bench, json!({"prefix": "config dump"}))[0]["mask"], "shelf:1/box:2");
    done(
        &mut bench,
        json!({"prefix": "config rm", "who": "osd/shelf:1/box:2", "name": "osd_max_backfills"}),
    );
    assert_eq!(json_of(&mut bench, json!({"prefix": "config dump"})), json!([]));
}

/// The mon is the mgr, too: what is set for one of them goes before what is set for everybody.
#[test]
fn what_is_for_everybody_is_not_more_than_what_is_for_the_mgr() {
    let mut bench = with_pool();
    let name = "mgr/balancer/sleep_interval";
    let set = |bench: &mut Bench, who: &str, value: &str| {
        bench.c.put_config(who, name, Some(value));
        bench.c.own_config()[name].clone()
    };
    assert_eq!(set(&mut bench, "global", "1"), "1");
    assert_eq!(set(&mut bench, "mgr", "2"), "2");
    assert_eq!(set(&mut bench, "mon", "3"), "3");
    assert_eq!(set(&mut bench, "mgr.a", "4"), "4");
    assert_eq!(set(&mut bench, "osd", "5"), "4");
}

#[test]
fn what_is_left_of_a_configuration_file_is_one_section_each() {
    let mut bench = with_pool();
    let file = "[osd]\nnosuch_b = 2\n[global]\nmon host = 10.0.0.1\nosd_max_backfills = 2\nfsid = x\n[osd]\n\
                nosuch_a = 1\n";
    let left = bench.run_with(&json!({"prefix": "config assimilate-conf"}), file.into()).2;
    assert_eq!(
        String::from_utf8_lossy(&left),
        "\n[global]\n\tfsid = x\n\tmon_host = 10.0.0.1\n\n[osd]\n\tnosuch_a = 1\n\tnosuch_b = 2\n"
    );
}

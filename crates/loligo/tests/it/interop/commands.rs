//! The real `ceph`: every command answers, in text and in JSON with Ceph's field names.

use super::cluster::shared;
use serde_json::Value;
use std::sync::Mutex;

/// Tests that change OSDs or the CRUSH map go one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Commands that only look, and pointers into their JSON that must be there.
const LOOKS: &[(&str, &[&str])] = &[
    (
        "status",
        &[
            "/fsid",
            "/health/status",
            "/health/checks",
            "/quorum/0",
            "/quorum_names/0",
            "/monmap/epoch",
            "/monmap/num_mons",
            "/osdmap/epoch",
            "/osdmap/num_osds",
            "/osdmap/num_up_osds",
            "/osdmap/num_in_osds",
            "/pgmap/pgs_by_state",
            "/pgmap/num_pgs",
            "/pgmap/num_pools",
            "/pgmap/bytes_total",
            "/pgmap/bytes_avail",
            "/fsmap/epoch",
            "/mgrmap/available",
            "/servicemap/epoch",
        ],
    ),
    ("health", &["/status", "/checks"]),
    ("health detail", &["/status", "/checks", "/mutes"]),
    (
        "df",
        &[
            "/stats/total_bytes",
            "/stats/total_avail_bytes",
            "/stats_by_class",
            "/pools/0/name",
            "/pools/0/stats/stored",
            "/pools/0/stats/objects",
            "/pools/0/stats/max_avail",
        ],
    ),
    ("df detail", &["/pools/0/stats/quota_objects"]),
    ("osd tree", &["/nodes/0/id", "/nodes/0/name", "/nodes/0/children", "/stray"]),
    (
        "osd dump",
        &[
            "/epoch",
            "/fsid",
            "/flags",
            "/pools/0/pool_name",
            "/pools/0/pg_num",
            "/osds/0/osd",
            "/osds/0/up",
            "/osds/0/public_addrs/addrvec",
            "/max_osd",
            "/full_ratio",
        ],
    ),
    ("osd stat", &["/epoch", "/num_osds", "/num_up_osds", "/num_in_osds"]),
    (
        "osd df",
        &[
            "/nodes/0/name",
            "/nodes/0/kb",
            "/nodes/0/utilization",
            "/nodes/0/pgs",
            "/summary/total_kb",
        ],
    ),
    ("osd df tree", &["/nodes/0/children"]),
    ("osd ls", &["/0"]),
    ("osd find 0", &["/osd", "/addrs", "/crush_location/root"]),
    ("osd metadata 0", &["/id", "/hostname"]),
    ("osd crush tree", &["/nodes/0/type"]),
    ("osd crush dump", &["/devices/0/name", "/types/0/name", "/buckets/0/items", "/rules/0/steps"]),
    ("osd crush rule ls", &["/0"]),
    ("osd crush rule dump", &["/0/rule_name", "/0/steps/0/op"]),
    ("osd pool ls", &["/0"]),
    ("osd pool ls detail", &["/0/pool_name", "/0/size", "/0/application_metadata"]),
    ("osd pool stats", &["/0/pool_name", "/0/client_io_rate"]),
    ("osd perf", &["/osdstats/osd_perf_infos"]),
    ("pg stat", &["/pg_summary/num_pg_by_state", "/pg_summary/num_pgs"]),
    ("pg dump", &["/pg_map/pg_stats/0/pgid", "/pg_map/osd_stats/0/osd"]),
    ("pg dump pgs_brief", &["/pg_stats/0/acting_primary"]),
    ("pg ls", &["/pg_stats/0/state"]),
    ("mon dump", &["/epoch", "/fsid", "/mons/0/public_addrs/addrvec"]),
    ("mon stat", &["/num_mons", "/leader"]),
    ("quorum_status", &["/quorum_leader_name", "/monmap/mons"]),
    ("versions", &["/mon", "/osd", "/overall"]),
    ("config dump", &[]),
    ("time-sync-status", &["/timechecks"]),
    ("features", &["/client/0/features"]),
];

#[test]
fn commands_that_look_answer_in_text_and_json() {
    let _pool = shared().pool("looks");
    for (command, fields) in LOOKS {
        let text = shared().ceph().args(command.split(' ')).text();
        // A dump of the configuration may be empty but for its header.
        assert!(!text.trim().is_empty() || fields.is_empty(), "`ceph {command}` says nothing");
        let json = shared().ask(command);
        for field in *fields {
            assert!(json.pointer(field).is_some(), "`ceph {command}` lacks {field}: {json:#}");
        }
    }
    let blocked = shared().ceph().args(["osd", "blocklist", "ls"]).run();
    assert!(blocked.err.contains("listed 0 entries"), "{blocked:?}");
    let status = shared().ceph().arg("-s").text();
    for word in ["cluster:", "health:", "services:", "mon:", "osd:", "data:", "pools:", "pgs:"] {
        assert!(status.contains(word), "{status}");
    }
}

#[test]
fn pgs_are_found_and_asked() {
    // Others move OSDs, and PGs with them.
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let pool = shared().pool("pgs");
    pool.put("x", b"x");
    let place = shared().ask(&format!("osd map {} x", pool.name));
    let pg = place["pgid"].as_str().unwrap();
    let map = shared().ask(&format!("pg map {pg}"));
    assert_eq!(map["acting"], place["acting"]);
    assert_eq!(map["up"], place["up"]);
    let query = shared().ceph().args(["pg", pg, "query"]).json();
    assert_eq!(query["acting"], place["acting"], "{query:#}");
    assert_eq!(query["state"], "active+clean");
    let ls = shared().ask(&format!("pg ls-by-pool {}", pool.name));
    assert_eq!(ls["pg_stats"].as_array().unwrap().len(), 8);
}

#[test]
fn pools_live_and_die() {
    let c = shared();
    let name = format!("it-life-{}", std::process::id());
    let pool = |words: &str| c.ceph().args(["osd", "pool"]).args(words.split(' '));
    let created = pool(&format!("create {name} 4 4")).run();
    assert!(created.err.contains(&format!("pool '{name}' created")), "{created:?}");
    let again = pool(&format!("create {name} 4 4")).run();
    assert!(again.status.success() && again.err.contains("already exists"), "{again:?}");
    let get = |var: &str| c.ask(&format!("osd pool get {name} {var}"))[var].clone();
    assert_eq!((get("size"), get("pg_num")), (3.into(), 4.into()));
    pool(&format!("set {name} size 2")).ok();
    pool(&format!("set {name} min_size 1")).ok();
    assert_eq!((get("size"), get("min_size")), (2.into(), 1.into()));
    assert_eq!(pool(&format!("get {name} size")).text().trim(), "size: 2");
    let err = pool(&format!("set {name} size 99")).fails(22);
    assert!(err.contains("EINVAL"), "{err}");
    let err = pool(&format!("get {name} nonsense")).fails(22);
    assert!(err.contains("EINVAL") || err.contains("invalid"), "{err}");

    pool(&format!("application enable {name} it")).ok();
    let apps = c.ask(&format!("osd pool application get {name}"));
    assert_eq!(apps, serde_json::json!({"it": {}}));
    pool(&format!("set-quota {name} max_objects 10")).ok();
    let quota = c.ask(&format!("osd pool get-quota {name}"));
    assert_eq!(quota["quota_max_objects"], 10);
    pool(&format!("set-quota {name} max_objects 0")).ok();

    let renamed = format!("{name}-renamed");
    pool(&format!("rename {name} {renamed}")).ok();
    let pools = c.ask("osd pool ls");
    let has = |n: &str| pools.as_array().unwrap().iter().any(|p| p == n);
    assert!(has(&renamed) && !has(&name), "{pools}");
    pool(&format!("mksnap {renamed} s")).ok();
    pool(&format!("rmsnap {renamed} s")).ok();
    let err = pool(&format!("delete {renamed} {renamed}")).fails(1);
    assert!(err.contains("EPERM") && err.contains("--yes-i-really-really-mean-it"), "{err}");
    pool(&format!("delete {renamed} {renamed} --yes-i-really-really-mean-it")).ok();
    let err = pool(&format!("get {renamed} size")).fails(2);
    assert!(err.contains("ENOENT"), "{err}");
}

#[test]
fn a_quota_stops_writes_and_deletes_go_on() {
    let pool = shared().pool("quota");
    for i in 0..5 {
        pool.put(&format!("o{i}"), b"x");
    }
    let quota = |n: &str| {
        let words = ["osd", "pool", "set-quota", &pool.name, "max_objects", n];
        shared().ceph().args(words).ok();
    };
    quota("3");
    let is_full = |wanted: bool| {
        let all = shared().ask("osd dump");
        let own = |p: &&Value| p["pool_name"] == pool.name.as_str();
        let flags =
            all["pools"].as_array().unwrap().iter().find(own).unwrap()["flags_names"].clone();
        flags.as_str().unwrap().split(',').any(|f| f == "full_quota") == wanted
    };
    let deadline = || loligo::wait::Deadline::after(std::time::Duration::from_secs(60));
    let every = std::time::Duration::from_millis(200);
    assert!(deadline().until(every, || is_full(true)), "the quota is not noticed");
    // A write waits; a delete that says so does not.
    let mut write = pool.rados().args(["put", "more", "-"]).stdin("x").start();
    for i in 0..3 {
        pool.ok(&format!("rm o{i} --force-full"));
    }
    assert!(write.is_running());
    quota("0");
    assert!(deadline().until(every, || is_full(false)), "the end of the quota is not noticed");
    assert!(write.wait().status.success());
    assert_eq!(pool.ls(), ["more", "o3", "o4"]);
}

fn osd_node(id: i64) -> Value {
    let tree = shared().ask("osd tree");
    let nodes = tree["nodes"].as_array().unwrap().iter().chain(tree["stray"].as_array().unwrap());
    nodes.into_iter().find(|n| n["id"] == id).cloned().unwrap()
}

#[test]
fn flags_are_set_and_unset() {
    let c = shared();
    for flag in ["noout", "noscrub", "nobackfill"] {
        c.ceph().args(["osd", "set", flag]).ok();
        let flags = c.ask("osd dump")["flags"].as_str().unwrap().to_owned();
        assert!(flags.split(',').any(|f| f == flag), "{flags}");
        c.ceph().args(["osd", "unset", flag]).ok();
        let flags = c.ask("osd dump")["flags"].as_str().unwrap().to_owned();
        assert!(!flags.split(',').any(|f| f == flag), "{flags}");
    }
    assert!(c.ceph().args(["osd", "set", "nonsense"]).run().status.code() == Some(22));
}

#[test]
fn osds_go_out_and_in_and_are_reweighted() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let c = shared();
    c.ceph().args(["osd", "reweight", "2", "0.9"]).ok();
    let weight = osd_node(2)["reweight"].as_f64().unwrap();
    assert!((weight - 0.9).abs() < 0.01, "{weight}");
    c.ceph().args(["osd", "out", "2"]).ok();
    assert_eq!(osd_node(2)["reweight"], 0);
    c.ceph().args(["osd", "in", "2"]).ok();
    c.ceph().args(["osd", "reweight", "2", "1"]).ok();
    assert_eq!(osd_node(2)["reweight"].as_f64(), Some(1.0));
    c.ceph().args(["osd", "primary-affinity", "1", "0.5"]).ok();
    assert_eq!(osd_node(1)["primary_affinity"].as_f64(), Some(0.5));
    c.ceph().args(["osd", "primary-affinity", "1", "1"]).ok();
    c.wait_until_clean(std::time::Duration::from_secs(120));
}

#[test]
fn the_crush_map_is_edited() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let c = shared();
    let crush = |words: &str| c.ceph().args(["osd", "crush"]).args(words.split(' '));
    crush("add-bucket it-rack rack").ok();
    crush("move it-rack root=default").ok();
    let tree = c.ask("osd tree");
    let nodes = tree["nodes"].as_array().unwrap();
    let named = |n: &str| nodes.iter().find(|x| x["name"] == n).cloned();
    let rack = named("it-rack").unwrap();
    let root = named("default").unwrap();
    assert!(root["children"].as_array().unwrap().contains(&rack["id"]), "{tree:#}");
    assert_eq!(rack["type"], "rack");

    let before = osd_node(0)["crush_weight"].as_f64().unwrap();
    crush("reweight osd.0 0.5").ok();
    assert_eq!(osd_node(0)["crush_weight"].as_f64(), Some(0.5));
    crush(&format!("reweight osd.0 {before}")).ok();

    crush("rule create-replicated it-rule default osd").ok();
    let rules = c.ask("osd crush rule ls");
    assert!(rules.as_array().unwrap().contains(&"it-rule".into()), "{rules}");
    let rule = c.ask("osd crush rule dump it-rule");
    let ops: Vec<_> = rule["steps"].as_array().unwrap().iter().map(|s| s["op"].clone()).collect();
    assert_eq!(ops.first(), Some(&"take".into()));
    assert_eq!(ops.last(), Some(&"emit".into()));
    crush("rule rm it-rule").ok();
    crush("rm it-rack").ok();
    let err = crush("rm it-rack").run();
    assert!(err.status.success() || err.err.contains("does not"), "{err:?}");
    c.wait_until_clean(std::time::Duration::from_secs(120));
}

#[test]
fn options_are_set_shown_and_removed() {
    let c = shared();
    c.ceph().args(["config", "set", "osd", "osd_max_backfills", "7"]).ok();
    assert_eq!(c.ceph().args(["config", "get", "osd.0", "osd_max_backfills"]).text().trim(), "7");
    let dump = c.ask("config dump");
    let own = |o: &&Value| o["name"] == "osd_max_backfills" && o["section"] == "osd";
    assert_eq!(dump.as_array().unwrap().iter().find(own).unwrap()["value"], "7");
    c.ceph().args(["config", "rm", "osd", "osd_max_backfills"]).ok();
    let dump = c.ask("config dump");
    assert!(!dump.as_array().unwrap().iter().any(|o| own(&o)), "{dump}");
    let err = c.ceph().args(["config", "set", "osd", "osd_max_backfills", "many"]).fails(22);
    assert!(err.contains("EINVAL"), "{err}");
    let err = c.ceph().args(["config", "set", "osd", "no_such_option", "1"]).fails(22);
    assert!(err.contains("EINVAL") && err.contains("no_such_option"), "{err}");
}

#[test]
fn nonsense_gets_einval_and_never_hangs() {
    let c = shared();
    for words in [&["frobnicate"][..], &["osd", "frobnicate"], &["osd", "pool", "create"]] {
        let ran = c.ceph().args(words).run();
        assert_eq!(ran.status.code(), Some(22), "{ran:?}");
    }
    let err = c.ceph().args(["osd", "pool", "get", "no-such-pool", "size"]).fails(2);
    assert!(err.contains("ENOENT") && err.contains("no-such-pool"), "{err}");
    let err = c.ceph().args(["pg", "map", "999.0"]).run();
    assert!(!err.status.success() || err.err.contains("does not"), "{err:?}");
}

//! Scrub as `ceph` and `rados` order it, show it, and list what it found.

use super::cluster::{Cluster, is_foreign, pattern};
use super::tool::Tool;
use loligo::wait::Deadline;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

fn text(v: &Value) -> String {
    v.as_str().unwrap_or_default().to_owned()
}

/// What a command says, wherever it does.
fn said(tool: Tool) -> String {
    let ran = tool.run();
    assert!(ran.status.success(), "{ran:?}");
    format!("{}{}", String::from_utf8_lossy(&ran.out), ran.err)
}

fn pg(c: &Cluster, pgid: &str) -> Value {
    let all = c.ask("pg dump pgs");
    let pgs = all["pg_stats"].as_array().unwrap();
    pgs.iter().find(|p| p["pgid"] == pgid).unwrap_or_else(|| panic!("no {pgid} in {all}")).clone()
}

/// Orders a scrub of a PG and waits for its end.
#[track_caller]
fn scrub(c: &Cluster, order: &str, pgid: &str) -> Value {
    let deep = order != "scrub";
    let stamp = if deep { "last_deep_scrub_stamp" } else { "last_scrub_stamp" };
    let before = text(&pg(c, pgid)[stamp]);
    let answer = said(c.ceph().args(["pg", order, pgid]));
    assert!(answer.contains(&format!("instructing pg {pgid} on osd.")), "{answer}");
    let mut last = Value::Null;
    let ended = Deadline::after(LIMIT).until(PAUSE, || {
        last = pg(c, pgid);
        text(&last[stamp]) > before && !text(&last["state"]).contains("scrubbing")
    });
    assert!(ended, "{order} does not end: {last}");
    last
}

/// Of `rados list-inconsistent-obj`: name, errors, errors of all copies, errors by OSD.
type Listed = (String, Value, Value, Vec<(i64, Value)>);

fn listed(c: &Cluster, pgid: &str) -> Vec<Listed> {
    let all = c.rados().args(["list-inconsistent-obj", pgid, "--format=json"]).json();
    let one = |o: &Value| {
        let shards = o["shards"].as_array().unwrap().iter();
        let shards = shards.map(|s| (s["osd"].as_i64().unwrap(), s["errors"].clone()));
        (
            text(&o["object"]["name"]),
            o["errors"].clone(),
            o["union_shard_errors"].clone(),
            shards.collect(),
        )
    };
    all["inconsistents"].as_array().unwrap().iter().map(one).collect()
}

fn inconsistent_pgs(c: &Cluster) -> Vec<String> {
    let all = c.rados().args(["list-inconsistent-pg", "rbd"]).json();
    all.as_array().unwrap().iter().map(text).collect()
}

/// When each PG was last deep-scrubbed.
pub fn stamps(c: &Cluster) -> BTreeMap<String, String> {
    let dump = c.ask("pg dump pgs");
    let pgs = dump["pg_stats"].as_array().unwrap().iter();
    pgs.map(|p| (text(&p["pgid"]), text(&p["last_deep_scrub_stamp"]))).collect()
}

/// Reads and compares everything, twice: what the first scrub finds is repaired, the second finds
/// nothing. There is one pool.
pub fn scrub_all(c: &Cluster, limit: Duration) {
    for order in ["repair", "deep-scrub"] {
        let newest = stamps(c).values().max().cloned().unwrap_or_default();
        c.ceph().args(["osd", "pool", order, "rbd"]).ok();
        let scrubbed = || stamps(c).values().all(|s| *s > newest);
        let over = Deadline::after(limit).until(PAUSE, scrubbed);
        assert!(over, "{order} of all PGs does not end: {:?}", stamps(c));
        c.wait_until_clean(limit);
    }
    let errors = || c.ask("status")["health"]["checks"]["OSD_SCRUB_ERRORS"].is_object();
    assert!(Deadline::after(LIMIT).until(PAUSE, || !errors()), "scrub errors stay");
}

#[test]
fn bad_copies_are_listed_and_repaired() {
    if is_foreign() {
        return;
    }
    let c = Cluster::start(3, "256M");
    let put = |name: &str, data: Vec<u8>| {
        c.rados().args(["-p", "rbd", "put", name, "-"]).stdin(data).ok();
    };
    let data = pattern(300_000, 9);
    put("precious", data.clone());
    c.rados().args(["-p", "rbd", "setomapval", "precious", "key", "value"]).ok();
    c.rados().args(["-p", "rbd", "setxattr", "precious", "attr", "value"]).ok();
    let map = c.ask("osd map rbd precious");
    let pgid = text(&map["pgid"]);
    let osds: Vec<i64> =
        map["acting"].as_array().unwrap().iter().map(|o| o.as_i64().unwrap()).collect();

    let why = c.rados().args(["list-inconsistent-obj", &pgid]).fails(1);
    assert!(why.contains("No scrub information available"), "{why}");
    let clean = scrub(&c, "deep-scrub", &pgid);
    assert_eq!(clean["state"], "active+clean");
    assert_eq!((listed(&c, &pgid), inconsistent_pgs(&c)), (vec![], vec![]));
    assert_eq!(clean["stat_sum"]["num_omap_keys"], 1);

    // A damaged block on one replica, another omap on the other.
    super::repair::damage(
        &c.dir().join(format!("osd.{}/block", osds[1])),
        &data[10 * 4096..11 * 4096],
    );
    let daemon = |osd: i64, command: &[&str]| {
        c.ceph().args(["daemon", &format!("osd.{osd}")]).args(command).ok();
    };
    daemon(osds[2], &["setomapval", "rbd", "precious", "key", "other"]);
    let deep = scrub(&c, "deep-scrub", &pgid);
    assert_eq!(deep["state"], "active+clean+inconsistent");
    assert_eq!(deep["stat_sum"]["num_deep_scrub_errors"], 2, "{deep}");
    assert_eq!(inconsistent_pgs(&c), [pgid.as_str()]);
    let wrong = listed(&c, &pgid);
    let [(name, errors, union, shards)] = wrong.as_slice() else { panic!("{wrong:?}") };
    assert_eq!((name.as_str(), errors), ("precious", &serde_json::json!(["omap_digest_mismatch"])));
    assert_eq!(*union, serde_json::json!(["read_error"]));
    let of = |osd: i64| &shards.iter().find(|s| s.0 == osd).unwrap().1;
    assert_eq!(*of(osds[1]), serde_json::json!(["read_error"]));
    assert_eq!(*of(osds[0]), serde_json::json!([]));

    // What the operator is told.
    let told = Deadline::after(LIMIT).until(PAUSE, || {
        let health = c.ceph().args(["health", "detail"]).text();
        health.contains("OSD_SCRUB_ERRORS: 2 scrub errors")
            && health.contains("PG_DAMAGED: Possible data damage: 1 pg inconsistent")
            && health.contains(&format!("pg {pgid} is active+clean+inconsistent, acting ["))
    });
    assert!(told, "{}", c.ceph().args(["health", "detail"]).text());

    let repaired = scrub(&c, "repair", &pgid);
    assert_eq!(repaired["stat_sum"]["num_scrub_errors"], 0, "{repaired}");
    c.wait_until_clean(LIMIT);
    assert_eq!(scrub(&c, "deep-scrub", &pgid)["state"], "active+clean");
    assert_eq!(listed(&c, &pgid), []);
    assert!(!c.ceph().args(["health", "detail"]).text().contains("SCRUB_ERRORS"));

    // A light scrub sees what is missing.
    daemon(osds[0], &["rmobj", "rbd", "precious"]);
    let light = scrub(&c, "scrub", &pgid);
    assert_eq!(light["stat_sum"]["num_shallow_scrub_errors"], 1, "{light}");
    let wrong = listed(&c, &pgid);
    let missing = serde_json::json!(["missing"]);
    assert!(wrong.len() == 1 && wrong[0].2 == missing, "{wrong:?}");
    scrub(&c, "repair", &pgid);
    c.wait_until_clean(LIMIT);
    assert_eq!(scrub(&c, "deep-scrub", &pgid)["state"], "active+clean");
    assert!(c.rados().args(["-p", "rbd", "get", "precious", "-"]).ok() == data);
    let value = c.rados().args(["-p", "rbd", "getomapval", "precious", "key"]).text();
    assert!(value.contains("value"), "{value}");

    // Everything at once.
    let stamps = |c: &Cluster| {
        let all = c.ask("pg dump pgs");
        let pgs = all["pg_stats"].as_array().unwrap().clone();
        pgs.iter().map(|p| text(&p["last_deep_scrub_stamp"])).min().unwrap()
    };
    let newest = text(&pg(&c, &pgid)["last_deep_scrub_stamp"]);
    c.ceph().args(["osd", "pool", "deep-scrub", "rbd"]).ok();
    let all = Deadline::after(LIMIT).until(PAUSE, || stamps(&c) > newest);
    assert!(all, "{}", c.ceph().args(["pg", "dump", "pgs_brief"]).text());
    let answer = said(c.ceph().args(["osd", "scrub", "0"]));
    assert!(answer.contains("instructed osd(s) 0 to scrub"), "{answer}");
}

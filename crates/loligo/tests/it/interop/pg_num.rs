//! A pool gets more PGs, and fewer again, by `ceph osd pool set` while `rados bench` writes and reads, and an OSD is
//! killed meanwhile. Nothing is lost, and all that counts objects agrees.

use super::cluster::{Cluster, is_foreign};
use loligo::wait::Deadline;
use serde_json::Value;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const POOL: &str = "few";

fn number(c: &Cluster, var: &str) -> u64 {
    let line = format!("osd pool get {POOL} {var}");
    c.ask(&line)[var].as_u64().unwrap()
}

fn set(c: &Cluster, var: &str, to: u64) {
    let ran = c.ceph().args(["osd", "pool", "set", POOL, var, &to.to_string()]).run();
    assert!(ran.status.success() && ran.err.contains(&format!("{var} to {to}")), "{ran:?}");
}

/// Waits until the pool has what was wanted, and everything is clean.
#[track_caller]
fn settle(c: &Cluster, pg_num: u64) {
    let mut last = (0, 0);
    let there = Deadline::after(PATIENCE).until(LOOK_EVERY, || {
        last = (number(c, "pg_num"), number(c, "pgp_num"));
        last == (pg_num, pg_num)
    });
    assert!(there, "pg_num and pgp_num are {last:?}, not {pg_num}");
    c.wait_until_clean(PATIENCE);
}

fn pgs(c: &Cluster) -> Vec<Value> {
    let all = c.ask(&format!("pg ls-by-pool {POOL}"));
    all["pg_stats"].as_array().unwrap().clone()
}

/// What lists and what counts agree; after a deep scrub as well.
#[track_caller]
fn agree(c: &Cluster, pg_num: u64) {
    let listed = c.rados().args(["-p", POOL, "ls"]).text().lines().count() as u64;
    let counted = || -> u64 {
        let counts = pgs(c).iter().map(|p| p["stat_sum"]["num_objects"].as_u64().unwrap()).sum();
        let df = c.ask("df")["pools"].as_array().unwrap().clone();
        let pool = df.iter().find(|p| p["name"] == POOL).unwrap();
        assert!(pool["stats"]["objects"].is_u64(), "{pool}");
        if pool["stats"]["objects"] == counts { counts } else { u64::MAX }
    };
    let same = Deadline::after(PATIENCE).until(LOOK_EVERY, || counted() == listed);
    assert!(same, "{listed} objects are listed, {} counted", counted());
    assert_eq!(pgs(c).len() as u64, pg_num);
    let stamps = |c: &Cluster| -> Vec<String> {
        pgs(c).iter().map(|p| p["last_deep_scrub_stamp"].to_string()).collect()
    };
    let before = stamps(c);
    c.ceph().args(["osd", "pool", "deep-scrub", POOL]).ok();
    let scrubbed = Deadline::after(PATIENCE)
        .until(LOOK_EVERY, || stamps(c).iter().zip(&before).all(|(now, then)| now > then));
    assert!(scrubbed, "a deep scrub does not end");
    let wrong = c.rados().args(["list-inconsistent-pg", POOL]).json();
    assert_eq!(wrong, Value::Array(Vec::new()));
    assert_eq!(counted(), listed, "a scrub changes no count");
}

#[test]
fn pgs_split_and_merge_under_load() {
    if is_foreign() {
        return;
    }
    let c = Cluster::start(4, "2G");
    // So that PGs move in few steps.
    c.ceph().args(["config", "set", "global", "target_max_misplaced_ratio", "0.5"]).ok();
    c.ceph().args(["osd", "pool", "create", POOL, "4", "4"]).ok();
    c.ceph().args(["osd", "pool", "application", "enable", POOL, "it"]).ok();
    c.wait_until_clean(PATIENCE);
    let bench = |line: &str| c.rados().args(["-p", POOL, "bench"]).args(line.split(' '));
    bench("2 write -b 4096 -t 16 --no-cleanup --run-name base").ok();
    let writing = bench("5 write -b 4096 -t 16 --no-cleanup --run-name w").start();
    let reading = bench("5 rand -t 16 --run-name base").start();
    set(&c, "pg_num", 16);
    let splits = || number(&c, "pg_num") > 4;
    assert!(Deadline::after(PATIENCE).until(LOOK_EVERY, splits), "nothing splits");
    c.kill("osd.1");
    c.dev("start").ok();
    set(&c, "pg_num", 32);
    for ran in [writing.wait(), reading.wait()] {
        assert!(ran.status.success(), "{ran:?}");
    }
    settle(&c, 32);
    // `seq` compares what it reads.
    for run in ["base", "w"] {
        bench(&format!("60 seq -t 16 --run-name {run}")).ok();
    }
    agree(&c, 32);
    let writing = bench("5 write -b 4096 -t 16 --no-cleanup --run-name m").start();
    let reading = bench("5 rand -t 16 --run-name w").start();
    set(&c, "pg_num", 26);
    let merges = || number(&c, "pg_num") < 32;
    assert!(Deadline::after(PATIENCE).until(LOOK_EVERY, merges), "nothing is merged");
    c.kill("osd.2");
    c.dev("start").ok();
    for ran in [writing.wait(), reading.wait()] {
        assert!(ran.status.success(), "{ran:?}");
    }
    settle(&c, 26);
    for run in ["base", "w", "m"] {
        bench(&format!("60 seq -t 16 --run-name {run}")).ok();
    }
    c.kill_all();
    c.dev("start").ok();
    c.wait_until_clean(PATIENCE);
    bench("60 seq -t 16 --run-name m").ok();
    agree(&c, 26);
}

//! Two OSDs that go one after the other: objects of which nobody has the newest state. What `ceph`
//! says of them, that everything else goes on, that they are found again, and how they are given up.

use super::cluster::Cluster;
use loligo::wait::Deadline;
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Written in the state that is lost; the others stay as they were.
const LOST: [&str; 2] = ["a", "b"];
const KEPT: [&str; 2] = ["c", "d"];

fn until(what: &str, f: impl FnMut() -> bool) {
    assert!(Deadline::after(PATIENCE).until(LOOK_EVERY, f), "{what}");
}

/// An OSD that the test stops and starts by itself: a cluster that is not clean is no reason to wait.
pub struct Osd<'a> {
    c: &'a Cluster,
    id: u32,
    command: Vec<String>,
    child: Option<Child>,
}

impl<'a> Osd<'a> {
    pub fn new(c: &'a Cluster, id: u32) -> Self {
        let pid = c.pid(&format!("osd.{id}")).as_raw_nonzero();
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let words = line.split(|b| *b == 0).filter(|w| !w.is_empty());
        let command = words.map(|w| String::from_utf8(w.to_vec()).unwrap()).collect();
        Osd { c, id, command, child: None }
    }

    fn is_up(&self) -> bool {
        let dump = self.c.ask("osd dump");
        let is_me = |o: &&Value| o["osd"] == self.id;
        dump["osds"].as_array().unwrap().iter().find(is_me).unwrap()["up"] == 1
    }

    pub fn kill(&mut self) {
        match &mut self.child {
            Some(child) => {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            None => self.c.kill(&format!("osd.{}", self.id)),
        }
        until("the mon does not notice", || !self.is_up());
    }

    pub fn start(&mut self) {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        self.child = Some(child);
        until("the OSD does not come back", || self.is_up());
    }
}

impl Drop for Osd<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn put(c: &Cluster, pool: &str, name: &str, text: &str) {
    c.rados().args(["-p", pool, "put", name, "-"]).stdin(text).ok();
}

fn get(c: &Cluster, pool: &str, name: &str) -> String {
    c.rados().args(["-p", pool, "get", name, "-"]).text()
}

fn ceph(c: &Cluster, line: &str) -> String {
    c.ceph().args(line.split(' ')).text()
}

/// Every PG of the pools is active with two copies.
fn all_active(c: &Cluster) -> bool {
    let stats = c.ask("pg ls");
    let good = |s: &Value| {
        let acting = s["acting"].as_array().unwrap().len();
        s["state"].as_str().unwrap().starts_with("active") && acting == 2
    };
    stats["pg_stats"].as_array().unwrap().iter().all(good)
}

fn pgid(c: &Cluster, pool: &str) -> String {
    c.ask(&format!("pg ls-by-pool {pool}"))["pg_stats"][0]["pgid"].as_str().unwrap().to_owned()
}

/// The state `text` of the lost objects is on `only` alone, which is down then; `other` leads.
fn lose(c: &Cluster, pools: &[&str], only: &mut Osd<'_>, other: &mut Osd<'_>, text: &str) {
    other.kill();
    for pool in pools {
        LOST.iter().for_each(|name| put(c, pool, name, text));
    }
    ceph(c, "osd set norecover");
    other.start();
    until("not active again", || all_active(c));
    only.kill();
    let shown = || ceph(c, "pg ls recovery_unfound");
    until("nothing is unfound", || pools.iter().all(|p| shown().contains(&pgid(c, p))));
}

#[test]
fn unfound_objects_wait_are_found_and_can_be_given_up() {
    let c = Cluster::start(2, "1G");
    let pools = ["back", "gone"];
    for pool in pools {
        ceph(&c, &format!("osd pool create {pool} 1 1 replicated --size 2"));
        ceph(&c, &format!("osd pool set {pool} min_size 1"));
        ceph(&c, &format!("osd pool application enable {pool} it"));
    }
    c.wait_until_clean(PATIENCE);
    for pool in pools {
        LOST.iter().chain(&KEPT).for_each(|name| put(&c, pool, name, "old"));
    }
    let (mut first, mut second) = (Osd::new(&c, 0), Osd::new(&c, 1));
    lose(&c, &pools, &mut first, &mut second, "new");

    let health = ceph(&c, "health detail");
    assert!(health.contains("[WRN] OBJECT_UNFOUND: 4/8 objects unfound (50.000%)"), "{health}");
    assert!(health.contains("pg 2.0 has 2 unfound objects"), "{health}");
    assert!(health.contains("[ERR] PG_DAMAGED: Possible data damage: 2 pgs recovery_unfound"));
    assert!(
        health.contains(
            "pg 2.0 is active+recovery_unfound+undersized+degraded, acting [1], 2 unfound"
        )
    );
    assert_eq!(ceph(&c, "pg debug unfound_objects_exist"), "TRUE\n");
    assert!(ceph(&c, "-s").contains("4/8 objects unfound (50.000%)"));
    let listed = c.ceph().args(["pg", "2.0", "list_unfound"]).json();
    assert_eq!(listed["num_unfound"], 2);
    let lost = &listed["objects"][0];
    assert!(lost["need"] != lost["have"] && lost["have"] != "0'0", "{lost}");
    let might = serde_json::json!([{"osd": "0", "status": "osd is down"}]);
    assert_eq!(listed["might_have_unfound"], might);
    let query = c.ceph().args(["pg", "2.0", "query"]).json();
    assert_eq!(query["recovery_state"][0]["might_have_unfound"], might);

    // Who wants one waits; the others are served.
    let mut waiting = Command::new("timeout");
    waiting.args(["2", "rados", "-p", "back", "get", "a", "/dev/null"]);
    let status = waiting.env("CEPH_CONF", c.conf()).status().unwrap();
    assert_eq!(status.code(), Some(124), "an unfound object was read");
    put(&c, "back", "c", "while");
    assert_eq!(get(&c, "back", "c"), "while");
    let no = c.ceph().args(["pg", "2.0", "mark_unfound_lost", "revert"]).fails(22);
    assert!(no.contains("haven't probed all sources, not marking lost"), "{no}");

    // It is found.
    ceph(&c, "osd unset norecover");
    first.start();
    c.wait_until_clean(PATIENCE);
    assert_eq!((get(&c, "back", "a"), get(&c, "gone", "b")), ("new".into(), "new".into()));

    // It is given up.
    lose(&c, &pools, &mut first, &mut second, "newest");
    ceph(&c, "osd unset norecover");
    ceph(&c, "osd lost 0 --yes-i-really-mean-it");
    for (pool, how) in [("back", "revert"), ("gone", "delete")] {
        let mut give_up = || {
            let id = pgid(&c, pool);
            let ran = c.ceph().args(["pg", &id, "mark_unfound_lost", how]).run();
            ran.status.success() && ran.err.contains("objects unfound and apparently lost marking")
        };
        until("cannot be given up", &mut give_up);
    }
    let gone = || ceph(&c, "pg debug unfound_objects_exist") == "FALSE\n";
    until("still unfound", gone);
    assert_eq!((get(&c, "back", "a"), get(&c, "back", "c")), ("new".into(), "while".into()));
    let mut left: Vec<String> =
        c.rados().args(["-p", "gone", "ls"]).text().lines().map(str::to_owned).collect();
    left.sort();
    assert_eq!(left, KEPT);
    first.start();
    c.wait_until_clean(PATIENCE);
    assert_eq!(get(&c, "back", "b"), "new");
    ceph(&c, "pg scrub 2.0");
    let health = ceph(&c, "health");
    assert!(!health.contains("OBJECT_UNFOUND"), "{health}");
}

//! Work on images in the background: `ceph rbd task`, and `rbd trash purge schedule`.

use super::cluster::{Pool, pattern};
use super::images::{ENOENT, EOPNOTSUPP, Images, MIB};
use loligo::wait::Deadline;
use serde_json::{Value, json};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Takes a task on; gives its id.
fn add(i: &Images, what: &str, image: &str) -> String {
    let spec = format!("{}/{image}", i.pool.name);
    let ceph = i.pool.cluster.ceph().args(["rbd", "task", "add"]).args(what.split(' '));
    ceph.arg(spec).json()["id"].as_str().expect("an id").to_owned()
}

fn task(i: &Images, id: &str) -> Option<Value> {
    let list = i.pool.cluster.ask("rbd task list");
    list.as_array().unwrap().iter().find(|task| task["id"] == id).cloned()
}

fn wait(i: &Images, id: &str) {
    let gone = Deadline::after(Duration::from_secs(60)).until(LOOK_EVERY, || task(i, id).is_none());
    assert!(gone, "{:?}", task(i, id));
}

/// A clone `name` of `parent@s`.
fn clone(i: &Images, name: &str) {
    i.ok(&format!("clone --rbd-default-clone-format 2 parent@s {name}"));
}

#[test]
fn images_are_flattened_and_removed_in_the_background() {
    let i = Images::new("rbd-tasks");
    let data = pattern(9 * MIB as usize + 5000, 4);
    i.import("parent", &data);
    i.ok("snap create --no-progress parent@s");
    clone(&i, "idle");
    clone(&i, "busy");
    // Whoever writes keeps the lock: librbd flattens the image for us meanwhile.
    let line = "bench --io-type write --io-size 4K --io-threads 2 --io-total 1G --io-pattern rand";
    let mut writer = i.rbd(&format!("{line} busy")).start();
    let locked = || i.json("lock ls busy").as_array().is_some_and(|locks| !locks.is_empty());
    assert!(Deadline::after(Duration::from_secs(30)).until(LOOK_EVERY, locked));
    let lock = i.json("lock ls busy");
    let busy = add(&i, "flatten", "busy");
    let idle = add(&i, "flatten", "idle");
    wait(&i, &busy);
    assert!(writer.is_running() && i.json("lock ls busy") == lock);
    wait(&i, &idle);
    writer.kill();
    for image in ["idle", "busy"] {
        assert_eq!(i.json(&format!("info {image}")).get("parent"), None);
        i.ok(&format!("object-map check --no-progress {image}"));
    }
    assert!(i.content("idle") == data);
    assert_eq!(i.json("children parent"), json!([]));
    // A snapshot that only a clone needs goes with the clone.
    clone(&i, "last");
    i.ok("snap rm --no-progress parent@s");
    assert_eq!(i.json("snap ls --all parent").as_array().unwrap().len(), 1);
    wait(&i, &add(&i, "flatten", "last"));
    assert_eq!(i.json("snap ls --all parent"), json!([]));
    wait(&i, &add(&i, "remove", "idle"));
    i.ok("trash mv last");
    let id = i.json("trash ls")[0]["id"].as_str().unwrap().to_owned();
    wait(&i, &add(&i, "trash remove", &id));
    assert_eq!(i.json("trash ls"), json!([]));
    assert_eq!(i.names("ls"), ["busy", "parent"]);
}

/// What its parent does not have itself yet stands in the image that it comes from: the clone was filled with zeros.
#[test]
fn a_clone_is_not_flattened_while_its_parent_migrates() {
    let i = Images::new("rbd-task-migration");
    let data = pattern(9 * MIB as usize, 4);
    i.import("parent", &data);
    i.ok("snap create --no-progress parent@s");
    clone(&i, "x");
    i.ok("migration prepare parent moved");
    let refused = |what: &[&str], image: &str| {
        let ceph = i.pool.cluster.ceph().args(["rbd", "task", "add"]).args(what);
        ceph.arg(format!("{}/{image}", i.pool.name)).fails(EOPNOTSUPP);
    };
    refused(&["flatten"], "x");
    refused(&["migration", "execute"], "moved");
    i.ok("migration execute --no-progress moved");
    i.ok("migration commit --force --no-progress moved");
    assert!(i.content("x") == data);
    wait(&i, &add(&i, "flatten", "x"));
    assert!(i.content("x") == data);
    assert_eq!(i.json("info x").get("parent"), None);
}

/// With what stands in its journal, of which its pool need not be that of the image.
#[test]
fn an_image_with_a_journal_is_removed_with_it() {
    let i = Images::new("rbd-task-journal");
    let other = Images::new("rbd-task-entries");
    let features = "--image-feature exclusive-lock,journaling";
    i.ok(&format!("create x --size 16M {features} --journal-pool {}", other.pool.name));
    i.ok(&format!("create y --size 16M {features}"));
    i.ok("trash mv y");
    let id = i.json("trash ls")[0]["id"].as_str().unwrap().to_owned();
    i.ok("bench --io-type write --io-size 4K --io-threads 2 --io-total 1M x");
    let objects = |pool: &Pool| pool.ls();
    let is_entry = |name: &String| name.starts_with("journal_data.");
    assert!(objects(&other.pool).iter().any(is_entry));
    assert!(objects(&i.pool).iter().any(|name| name.starts_with("journal.")));
    wait(&i, &add(&i, "remove", "x"));
    wait(&i, &add(&i, "trash remove", &id));
    let is_of_image =
        |name: &String| !["rbd_directory", "rbd_trash", "rbd_info"].contains(&&**name);
    assert_eq!(objects(&i.pool).into_iter().filter(is_of_image).collect::<Vec<_>>(), [""; 0]);
    assert!(!objects(&other.pool).iter().any(is_entry));
}

#[test]
fn a_task_waits_for_whoever_uses_the_image() {
    let i = Images::new("rbd-task-waits");
    i.ok("create x --size 16M");
    let line = "bench --io-type write --io-size 4K --io-threads 1 --io-total 1G --io-pattern rand";
    let writer = i.rbd(&format!("{line} x")).start();
    let watched = || i.json("status x")["watchers"].as_array().is_some_and(|w| !w.is_empty());
    assert!(Deadline::after(Duration::from_secs(30)).until(LOOK_EVERY, watched));
    let id = add(&i, "remove", "x");
    let tried = || task(&i, &id).is_some_and(|task| task["retry_attempts"] == 1);
    assert!(Deadline::after(Duration::from_secs(60)).until(LOOK_EVERY, tried));
    let task = task(&i, &id).unwrap();
    assert!(task["retry_message"].is_string() && task["retry_time"].is_string(), "{task}");
    assert_eq!(task["message"], format!("Removing image {}/x", i.pool.name));
    assert_eq!(add(&i, "remove", "x"), id, "the same task");
    let ceph = |args: [&str; 4]| i.pool.cluster.ceph().args(args);
    ceph(["rbd", "task", "cancel", &id]).ok();
    ceph(["rbd", "task", "cancel", &id]).fails(ENOENT);
    writer.kill();
    assert_eq!(i.names("ls"), ["x"]);
}

#[test]
fn trashes_are_emptied_by_a_schedule() {
    let i = Images::new("rbd-purge");
    // Schedules are for pools that are for images.
    let enable = ["osd", "pool", "application", "enable", &i.pool.name, "rbd"];
    i.pool.cluster.ceph().args(enable).arg("--yes-i-really-mean-it").ok();
    i.ok(&format!("namespace create {}/n", i.pool.name));
    for (name, until) in [("old", ""), ("n/old", ""), ("kept", " --expires-at tomorrow")] {
        i.ok(&format!("create {}/{name} --size 8M", i.pool.name));
        i.ok(&format!("trash mv {}/{name}{until}", i.pool.name));
    }
    let pool = format!("--pool {}", i.pool.name);
    i.ok(&format!("trash purge schedule add {pool} 1m"));
    i.ok(&format!("trash purge schedule add {pool} --namespace n 1h 00:07"));
    let line = |nspace: &str, interval: &str, start: &str| {
        let items = json!([{"interval": interval, "start_time": start}]);
        json!({"pool": i.pool.name, "namespace": nspace, "items": items})
    };
    let listed = json!([line("-", "1m", ""), line("n", "1h", "00:07:00")]);
    assert_eq!(i.json(&format!("trash purge schedule ls {pool} -R")), listed);
    let next = || i.json(&format!("trash purge schedule status {pool}"));
    let both = || next().as_array().is_some_and(|lines| lines.len() == 2);
    assert!(Deadline::after(Duration::from_secs(70)).until(LOOK_EVERY, both), "{}", next());
    // At the next full minute.
    let left = || i.names(&format!("trash ls --all {}", i.pool.name));
    let gone = || left() == ["kept"];
    assert!(Deadline::after(Duration::from_secs(90)).until(LOOK_EVERY * 5, gone), "{:?}", left());
    assert_eq!(i.names(&format!("trash ls {}/n", i.pool.name)), ["old"], "not yet");
    i.ok(&format!("trash purge schedule rm {pool}"));
    i.ok(&format!("trash purge schedule rm {pool} --namespace n 1h 00:07"));
    assert_eq!(i.json(&format!("trash purge schedule ls {pool} -R")), json!([]));
}

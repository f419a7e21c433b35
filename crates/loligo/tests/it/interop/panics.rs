//! A daemon panics: what it leaves, and who hears of it.

use super::cluster::Cluster;
use loligo::wait::Deadline;
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Crashes that nobody has looked at, of a daemon.
fn crashes_of(c: &Cluster, daemon: &str) -> Vec<Value> {
    let new = c.ask("crash ls-new");
    let all = new.as_array().expect("a list");
    all.iter().filter(|crash| crash["entity_name"] == daemon).cloned().collect()
}

#[test]
fn a_daemon_that_panics_is_heard_of() {
    let c = Cluster::start(3, "1G");
    let daemon = |daemon: &str, line: &str| {
        c.ceph().args(["daemon", daemon]).args(line.split(' ')).limit(PATIENCE)
    };
    let refused = daemon("osd.0", "assert").text();
    assert!(refused.contains("debug_asok_assert_abort"), "{refused}");
    assert_eq!(c.ask("crash ls").as_array().map(Vec::len), Some(0));
    for name in ["osd.0", "mon.a"] {
        daemon(name, "config set debug_asok_assert_abort true").ok();
        daemon(name, "assert").run();
        let gone = || c.pid_of(name).is_none();
        assert!(Deadline::after(PATIENCE).until(LOOK_EVERY, gone), "{name} goes on");
        if name == "mon.a" {
            c.dev("start").ok();
        }
        // Others tell of an OSD that does not run.
        let heard = || !crashes_of(&c, name).is_empty();
        assert!(Deadline::after(PATIENCE).until(LOOK_EVERY, heard), "{}", c.troubles());
        let crash = crashes_of(&c, name).remove(0);
        assert_eq!(crash["assert_msg"], "`assert` was asked for");
        assert!(crash["backtrace"].as_array().is_some_and(|lines| lines.len() > 5), "{crash}");
        let health = c.ceph().args(["health", "detail"]).text();
        assert!(
            health.contains("RECENT_CRASH") && health.contains(&format!("{name} crashed on host"))
        );
    }
    notes_of_any_kind_are_heard_of_or_refused(&c);
    c.ceph().args(["crash", "archive-all"]).ok();
    c.wait_until_clean(PATIENCE);
    let health = c.ceph().args(["health", "detail"]).text();
    assert!(!health.contains("RECENT_CRASH"), "{health}");
    assert_eq!(c.ask("crash ls").as_array().map(Vec::len), Some(3));
}

/// What an older build has left: a long one, and what is no note at all.
fn notes_of_any_kind_are_heard_of_or_refused(c: &Cluster) {
    let crashes = c.dir().join("crash");
    let long = json!({
        "crash_id": "long", "entity_name": "osd.7",
        "timestamp": c.ask("crash ls")[0]["timestamp"],
        "assert_msg": "x".repeat(1 << 20), "backtrace": vec!["y".repeat(1000); 200],
    });
    for (name, meta) in [("long", long), ("none", json!({"crash_id": "none"}))] {
        let half = crashes.join(format!(".{name}"));
        std::fs::create_dir(&half).unwrap();
        std::fs::write(half.join("meta"), meta.to_string()).unwrap();
        std::fs::rename(&half, crashes.join(name)).unwrap();
    }
    let filed = || crashes.join("posted/long").exists() && crashes.join("refused/none").exists();
    assert!(Deadline::after(PATIENCE).until(LOOK_EVERY, filed), "{}", c.troubles());
    let heard = crashes_of(c, "osd.7");
    assert!(heard[0]["assert_msg"].as_str().is_some_and(|said| said.starts_with("xxx")));
}

//! What commands do, beside what the real mon's answers show.

mod config;
mod crashes;
mod crush;
mod osds;
mod pools;

use super::bench::Bench;
use serde_json::{Value, json};

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

/// ceph-csi looks for these words, and names the addresses one by one then.
#[test]
fn ranges_of_addresses_are_no_command() {
    let mut bench = with_pool();
    let range = json!({"prefix": "osd blocklist", "range": "range", "blocklistop": "add", "addr": "10.0.0.0/24"});
    let (r, outs) = say(&mut bench, range);
    assert!(r == -95 && outs.starts_with("invalid command: "), "{outs}");
}

#[test]
fn modules_that_every_mgr_has_are_listed_and_others_cannot_be_enabled() {
    let mut bench = with_pool();
    let ls = json_of(&mut bench, json!({"prefix": "mgr module ls"}));
    let always_on = [
        "balancer",
        "crash",
        "devicehealth",
        "orchestrator",
        "pg_autoscaler",
        "progress",
        "rbd_support",
        "status",
        "telemetry",
        "volumes",
    ];
    assert_eq!(ls["always_on_modules"], json!(always_on));
    let dump = json_of(&mut bench, json!({"prefix": "mgr dump"}));
    assert_eq!(dump["always_on_modules"]["pacific"], json!(always_on));
    for force in ["", "--force"] {
        let mut enable = json!({"prefix": "mgr module enable", "module": "prometheus"});
        if !force.is_empty() {
            enable["force"] = force.into();
        }
        let (r, outs) = say(&mut bench, enable);
        assert!(
            r == -2 && outs.starts_with("all mgr daemons do not support module 'prometheus'"),
            "{outs}"
        );
    }
    let (r, outs) = say(&mut bench, json!({"prefix": "telemetry on", "license": "sharing-1-0"}));
    assert!(r == -95 && outs.contains("stays off"), "{outs}");
}

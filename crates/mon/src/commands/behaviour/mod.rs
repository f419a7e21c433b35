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

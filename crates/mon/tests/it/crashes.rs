//! The power of the mon fails around each of its commits: what was answered stays, and what stays
//! makes sense.

use crate::cluster::{Cluster, Cut};
use serde_json::Value;
use std::time::Duration;

/// Commands that each change something of their own, and how that is seen.
const CHANGES: [(&str, &str, &str); 5] = [
    (
        r#"{"prefix":"config set","who":"osd","name":"osd_max_backfills","value":"7"}"#,
        "config dump",
        "osd_max_backfills",
    ),
    (r#"{"prefix":"config-key set","key":"a/b","val":"hello"}"#, "config-key dump", "hello"),
    (
        r#"{"prefix":"auth get-or-create","entity":"client.foo","caps":["mon","allow r"]}"#,
        "auth ls",
        "client.foo",
    ),
    (r#"{"prefix":"health mute","code":"NOSUCH","ttl":"10m","sticky":true}"#, "health", "NOSUCH"),
    (r#"{"prefix":"config rm","who":"osd","name":"osd_max_backfills"}"#, "config dump", ""),
];

/// Runs the changes with a cut, and checks after the restart that what was answered is there.
/// Answers whether the cut happened.
fn run(cut: Cut) -> bool {
    let mut c = Cluster::with(3, 2, Some(cut), &[]);
    c.run_until(Duration::from_secs(10), |c| {
        c.json("status")["osdmap"]["num_up_osds"].as_u64() == Some(2)
    });
    for (command, show, sees) in CHANGES {
        let ack = c.ask(command);
        assert_eq!(ack.result, 0, "{command}: {}", ack.outs);
        // Whatever happened between: the answer said that it is done.
        let shown: Value = c.json(show);
        assert!(shown.to_string().contains(sees), "{cut:?}: {command} was answered, and {shown}");
    }
    let happened = c.cut.borrow().is_none();
    c.world.crash(c.mon);
    c.world.start(c.mon);
    for (_, show, sees) in &CHANGES[1..4] {
        let shown = c.json(show);
        assert!(shown.to_string().contains(sees), "{cut:?}: {shown} after a restart");
    }
    happened
}

#[test]
fn what_was_answered_survives_a_cut_at_every_commit() {
    let mut cuts = 0;
    for number in 1..40 {
        let before = run(Cut::Before(number));
        let after = run(Cut::After(number));
        cuts += u32::from(before) + u32::from(after);
        if !before && !after {
            break;
        }
    }
    assert!(cuts > 12, "{cuts} cuts");
}

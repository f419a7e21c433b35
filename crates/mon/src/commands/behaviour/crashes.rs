//! Crashes that daemons report.

use super::{done, json_of, say};
use crate::commands::bench::Bench;
use serde_json::{Value, json};
use std::time::Duration;

/// What a daemon leaves behind when it crashes.
fn post_crash(bench: &mut Bench, id: &str, entity: &str, age: Duration) -> (i32, String) {
    let at = types::UTime::from_unix(bench.now().wall.as_duration().saturating_sub(age));
    let stamp = at.to_string().replace("+0000", "Z");
    let meta = json!({
        "crash_id": id, "timestamp": stamp, "entity_name": entity, "utsname_hostname": "h1",
        "process_name": "loligo-osd", "backtrace": ["a", "b"],
    });
    let (r, outs, _) = bench.run_with(&json!({"prefix": "crash post"}), meta.to_string().into());
    (r, outs)
}

#[test]
fn crashes_are_kept_until_somebody_has_looked_at_them() {
    const HOUR: Duration = Duration::from_secs(3600);
    let mut bench = Bench::new();
    let health = |bench: &mut Bench| {
        let health = json_of(bench, json!({"prefix": "health", "detail": "detail"}));
        health["checks"]["RECENT_CRASH"]["summary"]["message"].as_str().map(str::to_owned)
    };
    let names = |bench: &mut Bench, command: &str| {
        let all = json_of(bench, json!({ "prefix": command }));
        let name = |crash: &Value| crash["crash_id"].as_str().unwrap().to_owned();
        all.as_array().unwrap().iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(health(&mut bench), None);
    for (id, entity, hours) in [("x1", "osd.0", 1), ("x2", "osd.1", 80), ("x3", "osd.1", 24 * 20)] {
        // A daemon may say so twice.
        for _ in 0..2 {
            assert_eq!(post_crash(&mut bench, id, entity, HOUR * hours), (0, String::new()));
        }
    }
    assert_eq!(health(&mut bench).unwrap(), "2 daemons have recently crashed");
    let (_, _, stat) = bench.run(&json!({"prefix": "crash stat"}));
    let said = "3 crashes recorded\n2 older than 1 days old:\nx2\nx3\n2 older than 3 days old:\nx2\nx3\n\
                1 older than 7 days old:\nx3\n";
    assert_eq!(stat, said);
    let stat = json_of(&mut bench, json!({"prefix": "crash stat"}));
    let old = json!({"1": ["x2", "x3"], "3": ["x2", "x3"], "7": ["x3"]});
    assert_eq!(stat, json!({"crashes": 3, "older_than_days": old}));
    let report = json_of(&mut bench, json!({"prefix": "crash json_report", "hours": "100"}));
    assert_eq!(report, json!({"loligo-osd": 2}));

    done(&mut bench, json!({"prefix": "crash archive", "id": "x1"}));
    // The mon starts again.
    bench.commit();
    bench.again();
    assert_eq!(names(&mut bench, "crash ls-new"), ["x2", "x3"]);
    assert_eq!(names(&mut bench, "crash ls"), ["x1", "x2", "x3"]);
    let (_, _, table) = bench.run(&json!({"prefix": "crash ls"}));
    let lines = ["ID  ENTITY  NEW", "x1  osd.0", "x2  osd.1    *"];
    let table = String::from_utf8(table.to_vec()).unwrap();
    assert!(table.lines().zip(lines).all(|(a, b)| a.trim_end() == b), "{table}");
    assert_eq!(health(&mut bench).unwrap(), "1 daemons have recently crashed");
    done(&mut bench, json!({"prefix": "crash archive-all"}));
    assert_eq!(health(&mut bench), None);
    done(&mut bench, json!({"prefix": "crash prune", "keep": "7"}));
    assert_eq!(names(&mut bench, "crash ls"), ["x1", "x2"]);
    done(&mut bench, json!({"prefix": "crash rm", "id": "x2"}));
    done(&mut bench, json!({"prefix": "crash rm", "id": "x2"}));
    bench.commit();
    bench.again();
    assert_eq!(names(&mut bench, "crash ls"), ["x1"]);
    assert_eq!(
        json_of(&mut bench, json!({"prefix": "crash info", "id": "x1"}))["backtrace"][1],
        "b"
    );
}

#[test]
fn crashes_that_make_no_sense_are_refused() {
    let mut bench = Bench::new();
    for text in [
        "",
        "junk",
        "[]",
        "{}",
        r#"{"crash_id": "x"}"#,
        r#"{"crash_id": "x", "timestamp": "soon"}"#,
    ] {
        let (r, outs, _) = bench.run_with(&json!({"prefix": "crash post"}), text.into());
        assert!(r == -22 && outs.starts_with("malformed crash metadata: "), "{text}: {r} {outs}");
    }
    let big =
        json!({"crash_id": "x", "timestamp": "2026-11-20T12:24:02Z", "a": "b".repeat(70_000)});
    let (r, outs, _) = bench.run_with(&json!({"prefix": "crash post"}), big.to_string().into());
    assert!(r == -22 && outs.contains("bytes"), "{outs}");
    for command in ["crash info", "crash archive"] {
        let (r, outs) = say(&mut bench, json!({"prefix": command, "id": "nope"}));
        assert_eq!((r, outs.as_str()), (-22, "crash info: nope not found"));
    }
    assert_eq!(say(&mut bench, json!({"prefix": "crash prune", "keep": "x"})).0, -22);
    // Those of a daemon that crashes all the time do not fill the mon's store.
    for i in 0..400 {
        post_crash(&mut bench, &format!("x{i:03}"), "osd.0", Duration::from_secs(400 - i));
    }
    let all = json_of(&mut bench, json!({"prefix": "crash ls"}));
    assert_eq!((all.as_array().unwrap().len(), &all[0]["crash_id"]), (300, &json!("x100")));
}

//! The answers of a real mon 16.2.15 to a long script of commands, against ours.
//!
//! `vectors/osd-commands.jsonl` has a command with its answer in each line: `m` says what must be
//! the same: `=` and `+` all of it, `~` and `shape` only which fields the JSON has and how a table is headed,
//! `-` nothing but that there is an answer. `vectors/start.osdmap` is the map the real cluster
//! started from: three OSDs on three hosts. Here they report as soon as the map changes.
//!
//! What differs on purpose is in [`KNOWN`]; an entry there that does not differ any more is an
//! error too.

use super::bench::Bench;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use types::OsdId;

const COMMANDS: &str = include_str!("../../vectors/osd-commands.jsonl");
/// The same of what has little to do with OSDs; the map is another one.
const OTHER_COMMANDS: &str = include_str!("../../vectors/other-commands.jsonl");

/// Commands that we answer otherwise, which time of theirs (0: whenever), and why.
const KNOWN: &[Known] = &[
    ("pg ls", 1, "a list without PGs is there, and empty"),
    ("pg ls down", 0, "a list without PGs is there, and empty"),
    ("osd pool set p1 hit_set_type bloom", 0, "we say why"),
    ("osd pool set p1 hit_set_period 100", 0, "we say why"),
    ("osd pool set p1 hit_set_count 4", 0, "we say why"),
    ("osd pool set p1 hit_set_fpp 0.1", 0, "we say why"),
    ("osd pool set p1 target_max_bytes 100", 0, "we say why"),
    ("osd pool set p1 target_max_objects 100", 0, "we say why"),
    ("osd pool set p1 cache_target_dirty_ratio 0.5", 0, "we say why"),
    ("osd pool set p1 cache_target_dirty_ratio 5", 0, "we say why"),
    ("osd pool set p1 cache_min_flush_age 5", 0, "we say why"),
    ("osd pool set p1 min_read_recency_for_promote 1", 0, "we say why"),
    ("osd pool set-quota p1 max_bytes abc", 0, "other words for a wrong number"),
    ("osd set full", 0, "we say which flags there are"),
    ("osd unset full", 0, "we say which flags there are"),
    ("osd primary-affinity 1 0.5", 0, "Ceph prints the numbers of stream flags"),
    ("osd primary-affinity 1 1.0", 0, "Ceph prints the numbers of stream flags"),
    ("osd crush move h0 bad", 0, "we say which word is wrong"),
    ("osd crush set 0 1.0 host", 0, "we say which word is wrong"),
    ("osd crush rule rm rsx", 0, "Ceph does not find a rule by its new name"),
    ("osd crush rule ls", 0, "Ceph does not find a rule by its new name"),
    ("osd crush rule create-erasure ecr", 1, "as the other rule is gone"),
    ("osd destroy 3", 0, "all PGs are clean here"),
    ("osd status", 0, "OSDs do not count their I/O each"),
    ("mds fail a", 0, "we say it once"),
];

/// A command as it is typed.
fn as_typed(cmd: &Value) -> String {
    let word = |(name, value): (&String, &Value)| match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => crate::show::join(list.iter().filter_map(Value::as_str), " "),
        Value::Bool(_) => format!("--{}", name.replace('_', "-")),
        other => other.to_string(),
    };
    crate::show::join(cmd.as_object().unwrap().iter().map(word), " ")
}

/// Text without what differs from run to run: epochs, times, ages.
fn plain(text: &str) -> String {
    let mut before = String::new();
    let words = text.split_inclusive([' ', '\n']).map(|word| {
        let (bare, end) = match word.strip_suffix([' ', '\n']) {
            Some(bare) => (bare, &word[bare.len()..]),
            None => (word, ""),
        };
        let is_number = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_digit());
        let shown = if is_stamp(bare) {
            "TIME".to_owned()
        } else if bare.strip_prefix('e').is_some_and(|n| n.parse::<u32>().is_ok()) {
            "eN".to_owned()
        } else if is_number && matches!(before.as_str(), "last_change" | "epoch") {
            "N".to_owned()
        } else if before == "(since" {
            "AGE".to_owned()
        } else {
            bare.to_owned()
        };
        before = bare.to_owned();
        shown + end
    });
    words.collect()
}

fn is_stamp(text: &str) -> bool {
    text.ends_with("+0000") && text.parse::<f64>().is_err() && text.contains('T')
}

/// JSON without what differs from run to run.
fn settled(value: &Value) -> Value {
    const VARYING: [&str; 9] = [
        "epoch",
        "last_change",
        "snap_epoch",
        "osd_up_since",
        "osd_in_since",
        "last_force_op_resend",
        "last_force_op_resend_prenautilus",
        "last_force_op_resend_preluminous",
        "quorum_age",
    ];
    match value {
        Value::Object(map) => {
            let fields = map.iter().map(|(k, v)| {
                let v = if VARYING.contains(&k.as_str()) { Value::from("N") } else { settled(v) };
                (k.clone(), v)
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.iter().map(settled).collect(),
        Value::String(s) if is_stamp(s) => "TIME".into(),
        // Fractions are compared as they are printed.
        Value::Number(n) if n.is_f64() && n.as_f64().is_some_and(|x| x.fract() == 0.0) => {
            Value::from(n.as_f64().unwrap_or_default() as i64)
        }
        other => other.clone(),
    }
}

/// Which fields there are, of what kind; of arrays the first element stands for all.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            // What OSDs do not report yet: how long pings take.
            let absent = ["network_ping_times"];
            let fields = map.iter().map(|(k, v)| match absent.contains(&k.as_str()) {
                true => (k.clone(), Value::Null),
                false => (k.clone(), shape(v)),
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.first().map(shape).into_iter().collect(),
        Value::String(_) => "".into(),
        Value::Number(_) => 0.into(),
        other => Value::Bool(!other.is_null()),
    }
}

/// Whether two values are the same, also in the order of fields. With `loose`, an array without
/// elements is as good as any.
fn same(a: &Value, b: &Value, loose: bool) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            let empty = loose && (a.is_empty() || b.is_empty());
            empty || (a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, loose)))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|((ka, a), (kb, b))| ka == kb && same(a, b, loose))
        }
        (a, b) => a == b,
    }
}

/// What an answer has that the real one has not, or the other way round.
fn differences(bench: &mut Bench, line: &Value) -> Vec<String> {
    let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
    let mode = text("m");
    let mut cmd = line["cmd"].clone();
    let (r, outs, out) = bench.run(&cmd);
    let mut diffs = Vec::new();
    if mode == "-" {
        return diffs;
    }
    if i64::from(r) != line.get("r").and_then(Value::as_i64).unwrap_or(0)
        || plain(&outs) != plain(text("outs"))
    {
        let theirs = (line.get("r"), text("outs"));
        diffs.push(format!("answer\n  real {theirs:?}\n  ours {:?}", (r, &outs)));
    }
    let ours = String::from_utf8_lossy(&out).into_owned();
    if let Some(theirs) = line.get("out").and_then(Value::as_str) {
        let head = |text: &str| {
            text.lines()
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .fold(String::new(), |all, w| all + " " + w)
        };
        let differs = match mode {
            "~" => text("out").contains("  ") && head(theirs) != head(&ours),
            // How many empty lines follow is all the same.
            _ => plain(theirs).trim_end_matches('\n') != plain(&ours).trim_end_matches('\n'),
        };
        if differs {
            diffs.push(format!("plain\n--- real\n{theirs}\n--- ours\n{ours}"));
        }
    }
    if let Some(theirs) = line.get("json") {
        cmd["format"] = "json".into();
        let (_, _, out) = bench.run(&cmd);
        let ours: Value = serde_json::from_slice(&out).unwrap_or(Value::Null);
        let loose = mode == "~" || line.get("shape").is_some();
        let (theirs, ours) = match loose {
            true => (shape(theirs), shape(&ours)),
            false => (settled(theirs), settled(&ours)),
        };
        if !same(&theirs, &ours, loose) {
            diffs.push(format!("json\n  real {theirs}\n  ours {ours}"));
        }
    }
    diffs
}

/// One of [`KNOWN`].
type Known = (&'static str, usize, &'static str);

/// Goes through a script: what differs and should not, what differs on purpose, and how many commands
/// there are.
fn go_through(script: &str) -> (Vec<String>, BTreeSet<Known>, usize) {
    let mut bench = Bench::new();
    let mut found = Vec::new();
    let mut differing = BTreeSet::new();
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for line in script.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if let Some(seconds) = line.get("sleep").and_then(Value::as_f64) {
            bench.sleep(types::seconds(seconds));
        } else if let Some(id) = line.get("stop").and_then(Value::as_i64) {
            bench.stop(OsdId(id as i32));
        } else if let Some(pools) = line.get("write").and_then(Value::as_object) {
            bench.write(pools);
        } else {
            let cli = as_typed(&line["cmd"]);
            let time = times.entry(cli.clone()).or_default();
            *time += 1;
            let known = KNOWN.iter().find(|(k, n, _)| *k == cli && (*n == 0 || n == time));
            for diff in differences(&mut bench, &line) {
                match known {
                    Some(known) => drop(differing.insert(*known)),
                    None => found.push(format!("## {cli}: {diff}")),
                }
            }
        }
    }
    (found, differing, times.values().sum())
}

#[test]
fn answers_are_those_of_a_real_mon() {
    let (mut found, mut differing, asked) = go_through(COMMANDS);
    let (more, others, _) = go_through(OTHER_COMMANDS);
    found.extend(more);
    differing.extend(others);
    assert!(asked > 500);
    for known in KNOWN {
        assert!(differing.contains(known), "{known:?} is as it should be; it is no difference");
    }
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
}

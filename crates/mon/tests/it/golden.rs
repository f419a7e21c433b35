//! What a real Ceph 16.2.15 cluster answered to a script of commands, and what this mon answers.
//!
//! `vectors/commands.jsonl` has a line per command: how it is compared, the command as it went over
//! the wire, and result, message and output of the real cluster (three OSDs on three hosts, in the
//! CRUSH map of `vectors/start.crush`). The commands change the cluster, so they are said in order.
//!
//! `=`: all must be equal. `~`: result, message, and the shape of the output. `+`: a change, and `!`:
//! bytes: result and message. Times, addresses, ids of clusters and epochs are masked.

use crate::cluster::{Cluster, FSID};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use wire::msg::{MMonCommand, Payload};

#[derive(Deserialize)]
struct Entry {
    mode: String,
    cmd: Value,
    r: i32,
    outs: String,
    out: String,
}

/// Replaces what differs between any two clusters.
fn mask(text: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    let end = |word: &mut String, out: &mut String| {
        out.push_str(&mask_word(word));
        word.clear();
    };
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || "-:.+_".contains(c) {
            word.push(c);
        } else {
            end(&mut word, &mut out);
            out.push(c);
        }
    }
    end(&mut word, &mut out);
    // Epochs, where they are named.
    for name in [
        "last_change ",
        "epoch ",
        "epoch\": ",
        "epoch\":",
        "last_change\": ",
        "last_change\":",
        " e",
    ] {
        out = mask_after(&out, name);
    }
    out
}

fn mask_after(text: &str, name: &str) -> String {
    let mut parts = text.split(name);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        out.push_str(name);
        if rest.len() < part.len() {
            out.push('#');
        }
        out.push_str(rest);
    }
    out
}

fn mask_word(word: &str) -> String {
    let hex = |w: &str| w.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let digit = |w: &str| w.starts_with(|c: char| c.is_ascii_digit());
    if word.len() == 36 && hex(word) {
        return "UUID".into();
    }
    if word.len() > 18 && digit(word) && word.contains('T') && word.contains(':') {
        return "TIME".into();
    }
    if digit(word) && word.matches('.').count() == 3 && word.contains(':')
        || word.starts_with("v2:")
        || word.starts_with("v1:")
    {
        return "ADDR".into();
    }
    word.to_owned()
}

/// Names and types without values; of a list, those of its first element.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), shape(v))).collect(),
        Value::Array(list) => list.iter().take(1).map(shape).collect(),
        Value::String(_) => "text".into(),
        Value::Number(_) => 0.into(),
        Value::Bool(_) | Value::Null => Value::Null,
    }
}

/// The first lines that differ; how many newlines are at the end is no matter.
fn differs(ours: &str, theirs: &str) -> Result<(), String> {
    // What to do about it is our addition to each alert.
    let ours: Vec<&str> = ours.lines().filter(|l| !l.trim_start().starts_with("=> ")).collect();
    let (ours, theirs) = (ours.join("\n"), theirs.trim_end_matches('\n'));
    let ours = ours.trim_end_matches('\n');
    if ours == theirs {
        return Ok(());
    }
    let same = ours.lines().zip(theirs.lines()).take_while(|(a, b)| a == b).count();
    let lines = |text: &str| text.lines().skip(same).take(6).collect::<Vec<_>>().join("\n");
    Err(format!("line {same}\n{}\nnot\n{}", lines(ours), lines(theirs)))
}

fn compare(entry: &Entry, r: i32, outs: &str, out: &str) -> Result<(), String> {
    if r != entry.r {
        return Err(format!("result {r}, not {}: {outs:?}, not {:?}", entry.r, entry.outs));
    }
    // That nobody heeds an option is our addition.
    let outs = if outs.contains(" of this cluster heeds ") { "" } else { outs };
    if mask(outs) != mask(&entry.outs) {
        return Err(format!("message {outs:?}, not {:?}", entry.outs));
    }
    match entry.mode.as_str() {
        "=" => differs(&mask(out), &mask(&entry.out)),
        "~" => {
            let read = |text: &str| serde_json::from_str::<Value>(text).ok();
            match (read(out), read(&entry.out)) {
                (Some(a), Some(b)) if shape(&a) != shape(&b) => {
                    Err(format!("shape\n{}\nnot\n{}", shape(&a), shape(&b)))
                }
                (None, Some(_)) => Err(format!("no JSON: {out}")),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn command(c: &mut Cluster, text: String, data: Vec<u8>) -> (i32, String, String) {
    let m = MMonCommand {
        fsid: FSID,
        cmd: vec![text.clone()],
        data: data.into(),
        ..Default::default()
    };
    let tid = c.on_client(|c| c.say(m.encode()));
    c.run_until(Duration::from_secs(20), |c| c.client.borrow().acks.contains_key(&tid));
    let ack = c.client.borrow_mut().acks.remove(&tid).expect("it is there");
    let out = String::from_utf8(ack.data.to_vec()).unwrap_or_else(|_| "base64:".into());
    (ack.result, ack.outs, out)
}

/// As in the configuration file of the real cluster.
const OPTIONS: [(&str, &str); 3] = [
    ("mon_allow_pool_delete", "true"),
    ("osd_crush_update_on_start", "false"),
    ("osd_pool_default_min_size", "2"),
];

fn start() -> Cluster {
    let mut c = Cluster::with(8, 3, None, &OPTIONS);
    let crush = include_bytes!("../../vectors/start.crush");
    c.run_until(Duration::from_secs(5), |c| c.json("status")["osdmap"]["num_up_osds"] == 3);
    for set in [
        r#"{"prefix":"osd pool create","pool":"first"}"#,
        r#"{"prefix":"osd pool delete","pool":"first","pool2":"first","yes_i_really_really_mean_it":true}"#,
    ] {
        let (r, outs, _) = command(&mut c, set.to_owned(), Vec::new());
        assert_eq!(r, 0, "{set}: {outs}");
    }
    let (r, outs, _) = command(&mut c, r#"{"prefix":"osd setcrushmap"}"#.into(), crush.to_vec());
    assert_eq!(r, 0, "{outs}");
    c.pass(Duration::from_secs(5));
    c
}

#[test]
fn answers_are_those_of_a_real_cluster() {
    let path = std::env::var("MON_GOLDEN").ok();
    let text = match &path {
        Some(path) => std::fs::read_to_string(path).expect("it can be read"),
        None => include_str!("../../vectors/commands.jsonl").to_owned(),
    };
    let mut c = start();
    let mut wrong = 0;
    for line in text.lines() {
        let entry: Entry = serde_json::from_str(line).expect("an entry");
        // A text is sent as it is: one that is no command.
        let text = entry.cmd.as_str().map_or_else(|| entry.cmd.to_string(), str::to_owned);
        let (r, outs, out) = command(&mut c, text, Vec::new());
        let compared = compare(&entry, r, &outs, &out);
        if let Err(why) = &compared {
            wrong += 1;
            println!("## {} {}\n{why}\n", entry.mode, entry.cmd);
        } else if path.is_some() {
            println!("ok {line}");
        }
        let changes = !["=", "~", "!"].contains(&entry.mode.as_str());
        c.pass(Duration::from_millis(if changes { 1500 } else { 0 }));
    }
    assert_eq!(wrong, 0, "answers differ");
}

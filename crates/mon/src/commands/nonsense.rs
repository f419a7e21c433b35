//! Whatever is asked, the answer is an answer: no panic, a text with every error, JSON where JSON was
//! asked for, and a map that can be stored and read.

use super::bench::Bench;
use super::table;
use admin::command::{Param, ParamKind};
use io::Rng;
use serde_json::{Map, Value, json};

const COMMANDS: usize = 4000;

fn pick<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[rng.usize(..of.len())]
}

/// A value for a parameter, mostly of its kind.
fn value(rng: &mut Rng, param: &Param) -> Value {
    const NAMES: &[&str] = &[
        "p1",
        "p2",
        "a b",
        "default",
        "h0",
        "h1",
        "h9",
        "osd.0",
        "osd.2",
        "0",
        "1",
        "2",
        "9",
        "all",
        "replicated_rule",
        "rr",
        "hdd",
        "ssd",
        "nosuch",
        "",
        "host=h0",
        "root=default",
        "host=h7",
        "rack=r1",
        "osd",
        "host",
        "rack",
        "3",
        "16",
        "0.5",
        "true",
        "k=2",
        "m=1",
        "noout",
        "noup,nodown",
        "size",
        "~",
        "default~hdd",
        "ä",
        "-1",
        "99999999999999999999",
    ];
    const INTS: &[i64] =
        &[-1, 0, 1, 2, 3, 8, 16, 100, 4096, 65536, 1 << 31, 1 << 40, i64::MAX, i64::MIN];
    const FLOATS: &[f64] = &[-1.0, 0.0, 0.5, 1.0, 2.5, 100.0, 1e6, 1e18, 1e308];
    const PGS: &[&str] = &["2.0", "2.3", "3.1", "2.ff", "99.0", "2", "x", "2.3s0"];
    const ADDRS: &[&str] = &["1.2.3.4:0/5", "1.2.3.4", "[::1]:7/1", "x", "v2:1.2.3.4:1/2"];
    const UUIDS: &[&str] = &[
        "11111111-2222-3333-4444-555555555555",
        "11111111-2222-3333-4444-555555555556",
        "00000000-0000-0000-0000-000000000000",
        "1",
    ];
    if rng.u8(..20) == 0 {
        return pick(rng, &[json!(null), json!([]), json!({}), json!("x"), json!(1e300)]).clone();
    }
    match param.kind {
        ParamKind::Bool => rng.bool().into(),
        ParamKind::Choices => match rng.u8(..10) {
            0 => "bad".into(),
            _ => pick(rng, &param.choices).as_str().into(),
        },
        ParamKind::Int => (*pick(rng, INTS)).into(),
        ParamKind::Float => (*pick(rng, FLOATS)).into(),
        ParamKind::OsdName => match rng.bool() {
            true => rng.i64(-1..6).into(),
            false => (*pick(rng, &["0", "osd.1", "osd.2", "osd.", "2147483647"])).into(),
        },
        ParamKind::Pgid => (*pick(rng, PGS)).into(),
        ParamKind::EntityAddr | ParamKind::IPAddr => (*pick(rng, ADDRS)).into(),
        ParamKind::UUID => (*pick(rng, UUIDS)).into(),
        ParamKind::Poolname => (*pick(rng, &["p1", "p2", "p3", "nosuch", ""])).into(),
        ParamKind::String | ParamKind::Objectname | ParamKind::Name => (*pick(rng, NAMES)).into(),
    }
}

fn command(rng: &mut Rng, prefix: &str, params: &[Param]) -> Value {
    let mut cmd = Map::new();
    cmd.insert("prefix".into(), prefix.into());
    for param in params {
        if rng.u8(..10) < if param.required { 1 } else { 5 } {
            continue;
        }
        let value = match param.many {
            true => (0..rng.usize(..4)).map(|_| value(rng, param)).collect(),
            false => value(rng, param),
        };
        cmd.insert(param.name.clone(), value);
    }
    cmd.into()
}

#[test]
fn nonsense_is_answered() {
    let mut bench = Bench::new();
    let mut rng = Rng::with_seed(5);
    let table = table();
    let specs: Vec<_> = table.specs().collect();
    let (mut good, mut bad) = (0, 0);
    let mut problems = std::collections::BTreeSet::new();
    for n in 0..COMMANDS {
        if n % 50 == 0 {
            for pool in ["p1", "p2"] {
                bench.run(&json!({"prefix": "osd pool create", "pool": pool, "pg_num": 8}));
            }
            bench.run(&json!({"prefix": "osd in", "ids": ["all"]}));
            bench.sleep(std::time::Duration::from_secs(1));
        }
        let spec = pick(&mut rng, &specs);
        let mut cmd = command(&mut rng, &spec.prefix, &spec.params);
        let wants_json = rng.bool();
        if wants_json {
            cmd["format"] = "json".into();
        }
        let (r, outs, out) = bench.run(&cmd);
        match r {
            0 => good += 1,
            _ => bad += 1,
        }
        // Ceph has nothing to add to these either.
        let silent = ["config help", "config-key get"].contains(&&*spec.prefix);
        if r != 0 && outs.is_empty() && !silent {
            problems.insert(format!("no reason: {cmd} -> {r}"));
        }
        assert!((-200..=0).contains(&r), "{cmd} -> {r}");
        let answers_json = spec.def.perm == "r" && wants_json && r == 0 && !out.is_empty();
        if answers_json && !is_never_json(&spec.prefix) {
            let parsed = serde_json::from_slice::<Value>(&out);
            if parsed.is_err() {
                problems.insert(format!("{cmd} -> {}", String::from_utf8_lossy(&out)));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(good > COMMANDS / 5 && bad > COMMANDS / 5, "{good} good, {bad} bad");
}

/// Maps as bytes, and what Ceph prints as text in every format.
fn is_never_json(prefix: &str) -> bool {
    const TEXTS: &[&str] = &[
        "osd getmap",
        "osd getcrushmap",
        "mon getmap",
        "osd status",
        "osd get-require-min-compat-client",
        "osd pool application get",
        "pg debug",
        "config get",
        "config generate-minimal-conf",
        "config-key get",
    ];
    TEXTS.contains(&prefix)
}

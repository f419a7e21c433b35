//! `ceph rbd trash purge schedule`: when trashes are emptied, see `crate::tasks`.

use super::level::{LevelSpec, item};
use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, look};
use crate::tasks::{Answer as Seen, Item, Level, Question};
use admin::{Answer, CommandError};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use types::{PoolId, UTime};

pub(super) const COMMANDS: &[CommandDef] = &[
    look(
        "rbd trash purge schedule add <level_spec:String> <interval:String> [start_time:String]",
        "mgr",
        "empties trashes every so often",
        ask,
        add,
    ),
    look(
        "rbd trash purge schedule remove <level_spec:String> [interval:String] [start_time:String]",
        "mgr",
        "empties trashes less often, or never",
        ask,
        remove,
    ),
    look(
        "rbd trash purge schedule list [level_spec:String]",
        "mgr",
        "lists how often trashes are emptied",
        ask,
        list,
    ),
    look(
        "rbd trash purge schedule status [level_spec:String]",
        "mgr",
        "lists when trashes are emptied next",
        ask,
        status,
    ),
];

fn ask(c: &Cluster, call: &Call) -> Result<Option<Question>, CommandError> {
    let level = LevelSpec::parse(c, &call.args.text("level_spec"), false)?;
    Ok(level.question())
}

fn level(c: &Cluster, call: &Call, seen: &Seen) -> Result<Level, CommandError> {
    LevelSpec::parse(c, &call.args.text("level_spec"), false)?.settle(seen)
}

fn add(c: &mut Cluster, call: &Call, seen: &Seen) -> Reply {
    let level = level(c, call, seen)?;
    if let Some(item) = item(call)? {
        c.add_purge(call.now, &level, item);
    }
    Ok(Answer::ok())
}

fn remove(c: &mut Cluster, call: &Call, seen: &Seen) -> Reply {
    let level = level(c, call, seen)?;
    // Of a level without a schedule anything can be removed.
    if c.state.purges.contains_key(&level.key()) {
        let item = item(call)?;
        c.remove_purge(call.now, &level, item);
    }
    Ok(Answer::ok())
}

fn shown(items: &BTreeSet<Item>) -> Value {
    let line = |i: &Item| json!({"interval": i.interval(), "start_time": i.start()});
    items.iter().map(line).collect()
}

/// What is at a level or below it; when nothing is at the level itself, also what it follows.
fn list(c: &mut Cluster, call: &Call, seen: &Seen) -> Reply {
    let asked = level(c, call, seen)?;
    let levels: Vec<Level> = c.state.purges.keys().filter_map(|key| Level::from_key(key)).collect();
    let above = levels.iter().filter(|l| **l == asked || asked.is_below(l));
    // The nearest one: of levels that lie in each other, the last in order.
    let nearest = above.max().cloned().unwrap_or_else(|| asked.clone());
    let wanted = |l: &&Level| **l == asked || **l == nearest || l.is_below(&asked);
    let lines = levels.iter().filter(wanted).filter_map(|l| {
        let (key, name) = (l.key(), l.name(c.map())?);
        let schedule = shown(c.state.purges.get(&key)?);
        Some((key, json!({"name": name, "schedule": schedule})))
    });
    Ok(Answer::json(Value::Object(Map::from_iter(lines))))
}

fn status(c: &mut Cluster, call: &Call, seen: &Seen) -> Reply {
    let asked = level(c, call, seen)?;
    let scheduled = c.purges.scheduled().into_iter().filter(|(_, place)| asked.has(place));
    let line = |(at, (pool, nspace)): (UTime, &(PoolId, String))| {
        let at = at.to_string().replace('T', " ");
        json!({
            "schedule_time": at.split('.').next(), "pool_id": pool.to_string(),
            "pool_name": c.map().pool_name(*pool), "namespace": nspace,
        })
    };
    let scheduled: Value = scheduled.map(line).collect();
    Ok(Answer::json(json!({"scheduled": scheduled})))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;
    use crate::tasks::Found;
    use std::time::Duration;

    fn bench() -> (Bench, PoolId) {
        let mut bench = Bench::new();
        let pool = bench.make_pool_of_images("p");
        let found = Found { namespaces: vec!["n".to_owned()], ..Found::default() };
        bench.images.insert(Question::Namespaces(pool), found);
        (bench, pool)
    }

    fn run(bench: &mut Bench, what: &str, args: &Value) -> Result<Value, (i32, String)> {
        let mut cmd = args.clone();
        cmd["prefix"] = format!("rbd trash purge schedule {what}").into();
        match bench.run(&cmd) {
            (0, _, out) if out.is_empty() => Ok(Value::Null),
            (0, _, out) => Ok(serde_json::from_slice(&out).unwrap()),
            (r, outs, _) => Err((r, outs)),
        }
    }

    #[test]
    fn schedules_of_all_levels() {
        let (mut bench, pool) = bench();
        for (level, interval, start) in [
            ("", "1d", None),
            ("p/", "3h", None),
            ("p/", "15m", Some("2026-01-01T00:07:00")),
            ("p/n/", "15m", Some("10:30+02:00")),
        ] {
            let args = json!({"level_spec": level, "interval": interval, "start_time": start});
            assert_eq!(run(&mut bench, "add", &args), Ok(Value::Null));
        }
        let every = |interval: &str, start: Option<&str>| json!({"interval": interval, "start_time": start});
        let of_pool = json!({
            "name": "p/", "schedule": [every("15m", Some("00:07:00")), every("3h", None)],
        });
        let of_nspace = json!({"name": "p/n/", "schedule": [every("15m", Some("10:30:00+02:00"))]});
        let of_all = json!({"name": "", "schedule": [every("1d", None)]});
        let (key, nspace_key) = (pool.to_string(), format!("{pool}/n"));
        let all = json!({"": of_all, &key: of_pool, &nspace_key: of_nspace});
        assert_eq!(run(&mut bench, "list", &json!({})).unwrap(), all);
        let below = json!({&key: of_pool, &nspace_key: of_nspace});
        assert_eq!(run(&mut bench, "list", &json!({"level_spec": "p/"})).unwrap(), below);
        // What it follows.
        let unnamed = json!({&key: of_pool});
        assert_eq!(run(&mut bench, "list", &json!({"level_spec": "p//"})).unwrap(), unnamed);
        let remove = |level: &str, interval: Option<&str>, start: Option<&str>| json!({"level_spec": level, "interval": interval, "start_time": start});
        // One that differs in its start is another one.
        for args in [
            remove("p/", Some("99m"), None),
            remove("p/", Some("15m"), None),
            remove("p/", Some("3h"), None),
            remove("p/", Some("15m"), Some("00:07")),
            remove("", None, None),
        ] {
            run(&mut bench, "remove", &args).unwrap();
        }
        let left = json!({&nspace_key: of_nspace});
        assert_eq!(run(&mut bench, "list", &json!({})).unwrap(), left);
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_the_words_of_ceph() {
        let (mut bench, _) = bench();
        let create = json!({"prefix": "osd pool create", "pool": "plain", "pg_num": 8});
        assert_eq!(bench.run(&create).0, 0);
        for (level, why) in [
            ("p", "failed to parse p"),
            ("no/", "pool no does not exist"),
            ("plain/", "plain is not an RBD pool"),
            ("p/x/", "namespace x does not exist"),
            ("p/i", "invalid name p/i: image level is not allowed"),
            ("p/x/y/z", "failed to parse p/x/y/z"),
            ("/", "failed to parse /"),
        ] {
            let args = json!({"level_spec": level, "interval": "1d"});
            let refused = Err((-22, format!("Invalid level spec {level}: {why}")));
            for what in ["add", "remove", "list", "status"] {
                assert_eq!(run(&mut bench, what, &args), refused, "{what}");
            }
        }
        let args = json!({"level_spec": "", "interval": "5x"});
        let text = "Invalid interval (5x)".to_owned();
        assert_eq!(run(&mut bench, "add", &args), Err((-22, text)));
        let args = json!({"level_spec": "", "interval": "1d", "start_time": "nonsense"});
        let text = "Invalid start time nonsense: Unknown string format: nonsense".to_owned();
        assert_eq!(run(&mut bench, "add", &args), Err((-22, text)));
        assert_eq!(run(&mut bench, "list", &json!({})), Ok(json!({})));
        // Where there is nothing to remove, nobody looks at what.
        let odd = json!({"level_spec": "", "interval": "5x"});
        assert_eq!(run(&mut bench, "remove", &odd), Ok(Value::Null));
        run(&mut bench, "add", &json!({"level_spec": "", "interval": "1d"})).unwrap();
        let text = "Invalid interval (5x)".to_owned();
        assert_eq!(run(&mut bench, "remove", &odd), Err((-22, text)));
    }

    #[test]
    fn a_trash_is_emptied_when_its_time_has_come() {
        let (mut bench, pool) = bench();
        assert!(bench.c.pools_to_ask(bench.now()).is_empty(), "nobody wants to know");
        let hourly = json!({"level_spec": "p/", "interval": "1h"});
        run(&mut bench, "add", &hourly).unwrap();
        assert_eq!(bench.c.pools_to_ask(bench.now()), [pool]);
        assert!(bench.c.pools_to_ask(bench.now()).is_empty(), "not again at once");
        bench.c.found_namespaces(bench.now(), pool, &["n".to_owned()]);
        let status = run(&mut bench, "status", &json!({})).unwrap();
        let at = status["scheduled"][0]["schedule_time"].as_str().unwrap().to_owned();
        assert!(at.ends_with(":00:00"), "{at}");
        let line = |nspace: &str| json!({"schedule_time": at, "pool_id": pool.to_string(), "pool_name": "p", "namespace": nspace});
        assert_eq!(status["scheduled"], json!([line(""), line("n")]));
        let of_n = run(&mut bench, "status", &json!({"level_spec": "p/n/"})).unwrap();
        assert_eq!(of_n["scheduled"], json!([line("n")]));
        assert_eq!(bench.c.begin_purge(bench.now()), None);
        bench.sleep(Duration::from_secs(3600));
        let place = |nspace: &str| Some((pool, nspace.to_owned()));
        assert_eq!(bench.c.begin_purge(bench.now()), place(""));
        assert_eq!(bench.c.begin_purge(bench.now()), None, "one at a time");
        bench.c.purge_ended(bench.now(), Ok(()));
        // A change of the schedule does not lose what is due.
        run(&mut bench, "add", &json!({"level_spec": "p/n/", "interval": "1d"})).unwrap();
        assert_eq!(bench.c.begin_purge(bench.now()), place("n"));
        bench.c.purge_ended(bench.now(), Ok(()));
        assert_eq!(bench.c.begin_purge(bench.now()), None);
        // Of a pool that is gone nothing is left.
        let (sure, twice) = ("yes_i_really_really_mean_it", "p");
        let gone = json!({"prefix": "osd pool delete", "pool": "p", "pool2": twice, sure: true});
        assert_eq!(bench.run(&gone).0, 0);
        bench.sleep(Duration::from_secs(61));
        assert!(bench.c.pools_to_ask(bench.now()).is_empty());
        assert!(bench.c.state.purges.is_empty() && bench.c.purges.scheduled().is_empty());
    }
}

//! `ceph rbd mirror snapshot schedule`: there is no schedule of mirror snapshots, and none can be added, as
//! nobody here takes them; `rbd mirror image snapshot` does. What asks for schedules learns that there are none.

use super::level::{LevelSpec, item};
use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, look};
use crate::tasks::{Answer as Seen, Question};
use admin::{Answer, CommandError};
use serde_json::json;

pub(super) const COMMANDS: &[CommandDef] = &[
    look(
        "rbd mirror snapshot schedule add <level_spec:String> <interval:String> [start_time:String]",
        "mgr",
        "not supported: mirror snapshots are taken by `rbd mirror image snapshot` only",
        ask,
        add,
    ),
    look(
        "rbd mirror snapshot schedule remove <level_spec:String> [interval:String] [start_time:String]",
        "mgr",
        "does nothing, as there are no schedules of mirror snapshots",
        ask,
        remove,
    ),
    look(
        "rbd mirror snapshot schedule list [level_spec:String]",
        "mgr",
        "lists how often mirror snapshots are taken: never",
        ask,
        list,
    ),
    look(
        "rbd mirror snapshot schedule status [level_spec:String]",
        "mgr",
        "lists when mirror snapshots are taken next: never",
        ask,
        status,
    ),
];

fn level_spec(c: &Cluster, call: &Call) -> Result<LevelSpec, CommandError> {
    LevelSpec::parse(c, &call.args.text("level_spec"), true)
}

fn ask(c: &Cluster, call: &Call) -> Result<Option<Question>, CommandError> {
    Ok(level_spec(c, call)?.question())
}

fn add(c: &mut Cluster, call: &Call, seen: &Seen) -> Reply {
    level_spec(c, call)?.settle(seen)?;
    item(call)?;
    let text = "mirror snapshots are not taken by a schedule here; let something run \
        `rbd mirror image snapshot` every so often";
    Err(CommandError::unsupported(text))
}

fn remove(c: &mut Cluster, call: &Call, seen: &Seen) -> Reply {
    level_spec(c, call)?.settle(seen)?;
    Ok(Answer::ok())
}

fn list(c: &mut Cluster, call: &Call, seen: &Seen) -> Reply {
    level_spec(c, call)?.settle(seen)?;
    Ok(Answer::json(json!({})))
}

fn status(c: &mut Cluster, call: &Call, seen: &Seen) -> Reply {
    level_spec(c, call)?.settle(seen)?;
    Ok(Answer::json(json!({"scheduled_images": []})))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;
    use crate::tasks::Found;
    use serde_json::Value;

    fn run(bench: &mut Bench, what: &str, args: &Value) -> (i32, String, Vec<u8>) {
        let mut cmd = args.clone();
        cmd["prefix"] = format!("rbd mirror snapshot schedule {what}").into();
        let (r, text, out) = bench.run(&cmd);
        (r, text, out.to_vec())
    }

    #[test]
    fn there_is_no_schedule_and_none_can_be_added() {
        let mut bench = Bench::new();
        let pool = bench.make_pool_of_images("p");
        let image = Question::Image(pool, String::new(), "a".to_owned());
        bench.images.insert(image, Found::default());
        bench.images.insert(Question::Namespaces(pool), Found::default());
        for level in ["", "p/", "p/a"] {
            let args = json!({"level_spec": level, "interval": "1h"});
            let (r, text, _) = run(&mut bench, "add", &args);
            assert_eq!(r, -95, "{text}");
            assert!(text.contains("`rbd mirror image snapshot`"), "{text}");
            assert_eq!(run(&mut bench, "remove", &args).0, 0);
            let (r, _, out) = run(&mut bench, "list", &args);
            assert_eq!((r, out.trim_ascii()), (0, &b"{}"[..]));
            let (r, _, out) = run(&mut bench, "status", &args);
            let shown: Value = serde_json::from_slice(&out).unwrap();
            assert_eq!((r, shown), (0, json!({"scheduled_images": []})));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_the_words_of_ceph() {
        let mut bench = Bench::new();
        let pool = bench.make_pool_of_images("p");
        bench.images.insert(Question::Namespaces(pool), Found::default());
        for (level, why) in [
            ("no/", "pool no does not exist"),
            ("p/b", "image b does not exist"),
            ("p/x/", "namespace x does not exist"),
            ("p/a@s", "failed to parse p/a@s"),
        ] {
            for what in ["add", "remove", "list", "status"] {
                let args = json!({"level_spec": level, "interval": "1h"});
                let (r, text, _) = run(&mut bench, what, &args);
                assert_eq!((r, text), (-22, format!("Invalid level spec {level}: {why}")));
            }
        }
        let args = json!({"level_spec": "p/", "interval": "1x"});
        let (r, text, _) = run(&mut bench, "add", &args);
        assert_eq!((r, text.as_str()), (-22, "Invalid interval (1x)"));
    }
}

//! `crash`: what daemons that crashed have left behind (`pybind/mgr/crash/module.py`).

use super::{Call, CommandDef, Reply, read, write};
use crate::cluster::Cluster;
use crate::crashes::Crash;
use admin::table::{Align, TextTable};
use admin::{Answer, CommandError};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;
use types::{Errno, UTime};

pub(super) const COMMANDS: &[CommandDef] = &[
    read("crash ls", "mgr", "lists crashes of daemons", |c, call| list(c, call, false)),
    read("crash ls-new", "mgr", "lists crashes that were not archived", |c, call| {
        list(c, call, true)
    }),
    read("crash info <id:String>", "mgr", "shows a crash", info),
    read("crash stat", "mgr", "counts crashes by age", stat),
    read("crash json_report <hours:String>", "mgr", "counts crashes by program", json_report),
    write("crash post", "mgr", "adds a crash: -i FILE, JSON", post),
    write("crash rm <id:String>", "mgr", "removes a crash", rm),
    write("crash prune <keep:String>", "mgr", "removes crashes that are so many days old", prune),
    write("crash archive <id:String>", "mgr", "notes that somebody has looked at a crash", archive),
    write("crash archive-all", "mgr", "notes that somebody has looked at all crashes", archive_all),
];

const DAY: Duration = Duration::from_secs(24 * 3600);

fn invalid(text: impl std::fmt::Display) -> CommandError {
    CommandError::new(Errno::EINVAL, text.to_string())
}

fn ago(call: &Call, time: Duration) -> UTime {
    UTime::from_unix(call.now.wall.as_duration().saturating_sub(time))
}

fn list(c: &Cluster, call: &Call, new: bool) -> Reply {
    let shown = || c.crashes.iter().filter(move |(_, crash)| !new || crash.is_new());
    Ok(Answer::either(
        call.format(),
        || shown().map(|(_, crash)| Value::from(crash.facts.clone())).collect(),
        || {
            let mut table = TextTable::new()
                .column("ID", Align::Left, Align::Left)
                .column("ENTITY", Align::Left, Align::Left)
                .column("NEW", Align::Left, Align::Center);
            for (id, crash) in shown() {
                table.row([id.as_str(), crash.entity(), if crash.is_new() { "*" } else { "" }]);
            }
            if shown().next().is_none() { String::new() } else { table.to_string() }
        },
    ))
}

fn find<'a>(c: &'a Cluster, id: &str) -> Result<&'a Crash, CommandError> {
    c.crashes.get(id).ok_or_else(|| invalid(format_args!("crash info: {id} not found")))
}

fn info(c: &Cluster, call: &Call) -> Reply {
    Ok(Answer::json(find(c, &call.args.text("id"))?.facts.clone().into()))
}

fn stat(c: &Cluster, call: &Call) -> Reply {
    let count = c.crashes.iter().count();
    let old = |days: u32| -> Vec<&String> {
        let before = ago(call, DAY * days);
        c.crashes.iter().filter(|(_, crash)| crash.stamp <= before).map(|(id, _)| id).collect()
    };
    let ages = [1, 3, 7].map(|days| (days, old(days)));
    Ok(Answer::either(
        call.format(),
        || json!({"crashes": count, "older_than_days": BTreeMap::from(ages.clone())}),
        || {
            let mut text = format!("{count} crashes recorded\n");
            for (days, ids) in ages.iter().filter(|(_, ids)| !ids.is_empty()) {
                let _ = writeln!(text, "{} older than {days} days old:", ids.len());
                ids.iter().for_each(|id| text.extend([id, "\n"]));
            }
            text
        },
    ))
}

fn json_report(c: &Cluster, call: &Call) -> Reply {
    let hours: u64 =
        call.args.text("hours").parse().map_err(|_| invalid("<hours> argument must be integer"))?;
    let since = ago(call, Duration::from_secs(hours.saturating_mul(3600)));
    let mut counts = BTreeMap::new();
    for (_, crash) in c.crashes.iter().filter(|(_, crash)| crash.stamp > since) {
        *counts.entry(crash.process()).or_insert(0u64) += 1;
    }
    let counts = counts.into_iter().map(|(name, count)| (name.to_owned(), Value::from(count)));
    Ok(Answer::json(counts.collect::<Map<_, _>>().into()))
}

fn post(c: &mut Cluster, call: &Call) -> Reply {
    /// What a crash may take.
    const MAX_BYTES: usize = 64 << 10;
    let bad = |why: String| invalid(format_args!("malformed crash metadata: {why}"));
    if call.input.len() > MAX_BYTES {
        return Err(bad(format!("it has more than {MAX_BYTES} bytes")));
    }
    let (id, crash) = Crash::parse(&call.input).map_err(bad)?;
    c.add_crash(call.now, id, crash);
    Ok(Answer::ok())
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    c.remove_crash(&call.args.text("id"));
    Ok(Answer::ok())
}

fn prune(c: &mut Cluster, call: &Call) -> Reply {
    let days: u32 =
        call.args.text("keep").parse().map_err(|_| invalid("keep argument must be integer"))?;
    c.prune_crashes(ago(call, DAY.saturating_mul(days)));
    Ok(Answer::ok())
}

fn archive(c: &mut Cluster, call: &Call) -> Reply {
    let id = call.args.text("id").into_owned();
    find(c, &id)?;
    c.archive_crashes(call.now, |other| other == id);
    Ok(Answer::ok())
}

fn archive_all(c: &mut Cluster, call: &Call) -> Reply {
    c.archive_crashes(call.now, |_| true);
    Ok(Answer::ok())
}

//! Work that goes on: `ceph progress`, and what `ceph -s` says of it (Ceph's module `progress`).

use super::{Call, CommandDef, Reply, read, write};
use crate::cluster::Cluster;
use crate::pgmap::Sums;
use crate::show::since;
use admin::Answer;
use admin::units::timespan;
use io::Now;
use serde_json::{Map, Value, json};
use std::time::Duration;
use types::UTime;

pub(super) const COMMANDS: &[CommandDef] = &[
    read("progress", "mgr", "shows work that goes on", progress),
    read("progress json", "mgr", "shows work that goes on", progress_json),
    write("progress on", "mgr", "shows work that goes on also in the status", on),
    write("progress off", "mgr", "shows no more of work that goes on", off),
    write("progress clear", "mgr", "forgets work that is over", clear),
];

/// Whether anything is shown.
const ENABLED: &str = "mgr/progress/enabled";

/// Something that goes on.
struct Event {
    id: String,
    message: String,
    refs: Value,
    since: UTime,
    /// The share that is done.
    done: f64,
    left: Option<Duration>,
}

impl Event {
    /// For people: what, for how long, and a bar.
    fn text(&self, now: Now) -> String {
        const WIDTH: usize = 28;
        let full = (self.done * WIDTH as f64) as usize;
        let bar = format!("{}{}", "=".repeat(full), ".".repeat(WIDTH - full));
        let left = match self.left {
            Some(left) => format!(" (remaining: {})", timespan(left)),
            None => String::new(),
        };
        let lasts = timespan(since(now.wall, self.since));
        format!("{} ({lasts})\n      [{bar}]{left}", self.message)
    }
}

/// The time that is left when it goes on as fast as so far.
fn left_of(now: Now, began: UTime, done: f64) -> Option<Duration> {
    let lasted = since(now.wall, began).as_secs_f64();
    (done > 0.0).then(|| lasted * (1.0 - done) / done).and_then(sensible)
}

fn sensible(seconds: f64) -> Option<Duration> {
    (seconds.is_finite() && seconds < 1e9).then(|| types::seconds(seconds))
}

fn recovery(c: &Cluster, now: Now, sums: &Sums) -> Option<Event> {
    let recovery = c.pgmap.recovery?;
    let work = sums.total.num_objects_degraded + sums.total.num_objects_misplaced;
    if work <= 0 || recovery.most <= 0 {
        return None;
    }
    let done = 1.0 - work as f64 / recovery.most as f64;
    let rate = c.pgmap.rates.total();
    let per_second = rate.counts.recovered_objects as f64 / rate.seconds.max(0.001);
    // As fast as in the last seconds; when nothing moved then, as fast as since it began.
    let left = match rate.counts.recovered_objects {
        0 => left_of(now, recovery.since, done),
        _ => sensible(work as f64 / per_second),
    };
    Some(Event {
        id: "recovery".to_owned(),
        message: "Global Recovery Event".to_owned(),
        refs: json!([["global", ""]]),
        since: recovery.since,
        done: done.clamp(0.0, 1.0),
        left,
    })
}

fn events(c: &Cluster, now: Now, sums: &Sums) -> Vec<Event> {
    if !c.settings.bool(ENABLED) {
        return Vec::new();
    }
    let task = c.tasks.running().and_then(|task| {
        let (began, done) = task.running?;
        Some(Event {
            id: task.record.id.clone(),
            message: task.record.message.clone(),
            refs: task.record.refs(),
            since: began,
            done: done.clamp(0.0, 1.0),
            left: left_of(now, began, done),
        })
    });
    recovery(c, now, sums).into_iter().chain(task).collect()
}

/// What goes on, for people; `None` when nothing does.
pub(super) fn text(c: &Cluster, now: Now, sums: &Sums) -> Option<String> {
    let lines: Vec<String> = events(c, now, sums).iter().map(|event| event.text(now)).collect();
    (!lines.is_empty()).then(|| lines.join("\n    "))
}

/// The same as `ceph -s` has it in JSON.
pub(super) fn by_id(c: &Cluster, now: Now, sums: &Sums) -> Value {
    let shown = events(c, now, sums).into_iter().map(|event| {
        let value = json!({
            "message": event.text(now), "progress": event.done, "add_to_ceph_s": true,
        });
        (event.id, value)
    });
    Value::Object(Map::from_iter(shown))
}

fn progress(c: &Cluster, call: &Call) -> Reply {
    match text(c, call.now, &c.pgmap.sums(c.map())) {
        Some(text) => Ok(Answer::text(text + "\n")),
        None => Ok(Answer::message("Nothing in progress")),
    }
}

fn seconds(at: UTime) -> f64 {
    f64::from(at.sec) + f64::from(at.nsec) / 1e9
}

fn progress_json(c: &Cluster, call: &Call) -> Reply {
    let going = events(c, call.now, &c.pgmap.sums(c.map())).into_iter().map(|event| {
        json!({
            "id": event.id, "message": event.message, "refs": event.refs, "add_to_ceph_s": true,
            "progress": event.done, "started_at": seconds(event.since),
            "time_remaining": event.left.map(|left| left.as_secs_f64()),
        })
    });
    let over = c.pgmap.completed.iter().map(|done| {
        json!({
            "id": "recovery", "message": "Global Recovery Event", "refs": [["global", ""]],
            "started_at": seconds(done.since), "finished_at": seconds(done.until),
        })
    });
    let (events, completed): (Value, Value) = (going.collect(), over.collect());
    Ok(Answer::json(json!({"events": events, "completed": completed})))
}

/// Keeps the setting, as `ceph config set mgr` does.
fn turn(c: &mut Cluster, call: &Call, on: bool) -> Reply {
    let word = if on { "enabled" } else { "disabled" };
    if c.settings.bool(ENABLED) == on {
        return Ok(Answer::message(format_args!("progress already {word}!")));
    }
    c.set_config(call, "mgr", ENABLED, Some(if on { "true" } else { "false" }));
    Ok(Answer::message(format_args!("progress {word}")))
}

fn on(c: &mut Cluster, call: &Call) -> Reply {
    turn(c, call, true)
}

fn off(c: &mut Cluster, call: &Call) -> Reply {
    turn(c, call, false)
}

fn clear(c: &mut Cluster, _: &Call) -> Reply {
    c.pgmap.completed.clear();
    Ok(Answer::ok())
}

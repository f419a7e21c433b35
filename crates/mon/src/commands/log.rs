//! `log`: the cluster's log.

use super::{Call, CommandDef, Reply, read, write};
use crate::cluster::Cluster;
use crate::log::Level;
use crate::show::addr::addrvec_json;
use admin::Answer;
use serde_json::json;

pub(super) const COMMANDS: &[CommandDef] = &[
    write("log <logtext:String>...", "mon", "adds a line to the cluster's log", add),
    read(
        "log last [num:Int,1] [level:Choices,debug|info|sec|warn|error] \
         [channel:Choices,*|cluster|audit|cephadm]",
        "mon",
        "shows the last lines of the cluster's log",
        last,
    ),
];

fn add(c: &mut Cluster, call: &Call) -> Reply {
    let text = call.args.list("logtext").join(" ");
    c.log.add(call.now.wall, call.from.clone(), Level::Info, text);
    Ok(Answer::ok())
}

fn last(c: &Cluster, call: &Call) -> Reply {
    let count = usize::try_from(call.args.int("num").unwrap_or(20)).unwrap_or(20);
    let level = Level::from_name(&call.args.text("level")).unwrap_or(Level::Info);
    let entries = c.log.last(count, level);
    Ok(Answer::either(
        call.format(),
        || {
            let shown = entries.iter().map(|e| {
                json!({
                    "name": e.who.name, "rank": e.who.rank.to_string(),
                    "addrs": addrvec_json(&e.who.addrs), "stamp": e.stamp.to_string(), "seq": e.seq,
                    "channel": "cluster", "priority": format!("[{}]", e.level.tag()),
                    "message": e.text,
                })
            });
            shown.collect()
        },
        || {
            let shown = entries.iter().map(|e| {
                format!(
                    "{} {} ({}) {} : cluster [{}] {}\n",
                    e.stamp,
                    e.who.name,
                    e.who.rank,
                    e.seq,
                    e.level.tag(),
                    e.text
                )
            });
            shown.collect()
        },
    ))
}

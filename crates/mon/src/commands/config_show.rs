//! `config show`: what options daemons really have, wherever they were set.
//!
//! OSDs report theirs (`peer::OptionSaid`); the mon, which is the mgr as well, knows its own. What nobody has said
//! anything of is at its default, if the daemon has such an option at all.
//! Ceph's form of it is in `mgr/DaemonServer.cc`.

use super::config::normal;
use super::{Call, CommandDef, Reply, read};
use crate::cluster::Cluster;
use crate::options::of_daemons;
use admin::{Align, Answer, CommandError, TextTable};
use peer::OptionSaid;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::OsdId;

pub(super) const COMMANDS: &[CommandDef] = &[
    read(
        "config show <who:String> [key:String]",
        "config",
        "shows the options of a daemon that are not left to their defaults",
        show,
    ),
    read(
        "config show-with-defaults <who:String>",
        "config",
        "shows all options of a daemon",
        show_with_defaults,
    ),
];

/// What counts of an option, and what it overrides: where it was said, and what.
type Said = Vec<(String, String)>;

/// What was said of a daemon's options.
fn said_of(c: &Cluster, who: &str) -> Option<BTreeMap<String, Said>> {
    let (kind, id) = who.split_once('.')?;
    match kind {
        "mon" | "mgr" if id == c.name => {
            let own = c.settings.said().map(|(name, said)| {
                let said = said.into_iter().map(|(source, v)| (source.name().to_owned(), v));
                (name.to_owned(), said.collect())
            });
            Some(own.collect())
        }
        "osd" => {
            let id = OsdId(id.parse().ok()?);
            let (_, stat) = c.pgmap.osds().find(|(osd, _)| *osd == id)?;
            let said = stat.options.iter();
            Some(said.map(|OptionSaid { name, said }| (name.clone(), said.clone())).collect())
        }
        _ => None,
    }
}

fn options(c: &Cluster, call: &Call) -> Result<BTreeMap<String, Said>, CommandError> {
    let who = call.args.text("who");
    if !who.contains('.') {
        return Err(CommandError::invalid("invalid daemon name: use <type>.<id>"));
    }
    said_of(c, &who)
        .ok_or_else(|| CommandError::not_found(format_args!("no config state for daemon {who}")))
}

/// The options that the daemon has, at their defaults.
fn defaults(call: &Call) -> impl Iterator<Item = (&'static str, String)> {
    let who = call.args.text("who");
    let kind = who.split('.').next().unwrap_or_default();
    let all = of_daemons(kind).unwrap_or_default().iter();
    all.filter_map(|def| Some((def.name, def.show_default()?)))
}

fn show(c: &Cluster, call: &Call) -> Reply {
    let options = options(c, call)?;
    let Some(key) = call.args.str("key") else { return Ok(listing(call, &options)) };
    let key = normal(&key);
    let said = options.get(&key).and_then(|said| said.last()).map(|(_, value)| value.clone());
    let default = || defaults(call).find(|(name, _)| *name == key).map(|(_, value)| value);
    match said.or_else(default) {
        Some(value) => Ok(Answer::text(format_args!("{value}\n"))),
        None => Err(CommandError::not_found(format_args!("unrecognized key '{key}'"))),
    }
}

fn show_with_defaults(c: &Cluster, call: &Call) -> Reply {
    let said = options(c, call)?;
    let default = |(name, value): (&str, _)| (name.to_owned(), vec![("default".to_owned(), value)]);
    let mut all: BTreeMap<String, Said> = defaults(call).map(default).collect();
    all.extend(said);
    Ok(listing(call, &all))
}

fn listing(call: &Call, options: &BTreeMap<String, Said>) -> Answer {
    let counting = options.iter().filter_map(|(name, said)| {
        let (last, overridden) = said.split_last()?;
        Some((name, last, overridden))
    });
    let json = || {
        let shown = counting.clone().map(|(name, (source, value), overridden)| {
            let mut one = json!({ "name": name, "value": value, "source": source });
            if !overridden.is_empty() {
                let overrides = overridden.iter().rev();
                let overrides = overrides.map(|(from, v)| json!({ "source": from, "value": v }));
                one["overrides"] = overrides.collect::<Value>();
            }
            one
        });
        shown.collect()
    };
    let text = || {
        let columns = ["NAME", "VALUE", "SOURCE", "OVERRIDES", "IGNORES"];
        let mut table = TextTable::new().columns(&columns, Align::Left, Align::Left);
        for (name, (source, value), overridden) in counting.clone() {
            let one = |(from, v): &(String, String)| match v == value {
                true => format!("({from}[{v}])"),
                false => format!("{from}[{v}]"),
            };
            let overrides = overridden.iter().rev().map(one).collect::<Vec<_>>().join(",");
            table.row([name.clone(), value.clone(), source.clone(), overrides, String::new()]);
        }
        table.to_string()
    };
    Answer::either(call.format(), json, text)
}

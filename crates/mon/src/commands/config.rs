//! `config`: the cluster's configuration database.
//!
//! An option may be set for `global`, for a kind of daemon or client (`osd`), or for one (`osd.3`),
//! each perhaps only where a mask fits (`osd/class:ssd`, `osd/host:node1`). The more specific one
//! wins.

use super::config_who::{
    Place, mask_json, new_section, parse_who, place, resolve, section_of, split_mask,
};
use super::{Call, CommandDef, Reply, read, write};
use crate::cluster::Cluster;
use crate::options::unheeded;
use crate::session::Session;
use crate::state::{ConfigChange, ConfigDiff};
use crate::store::keys;
use admin::settings::OptionDef;
use admin::{Align, Answer, CommandError, Format, TextTable};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[CommandDef] = &[
    write(
        "config set <who:String> <name:String> <value:String> [force:Bool]",
        "config",
        "sets an option of daemons or clients",
        set,
    ),
    write("config rm <who:String> <name:String>", "config", "takes `config set` back", rm),
    read("config get <who:String> [key:String]", "config", "shows what somebody is told", get),
    read("config dump", "config", "shows all that is set", dump),
    read("config help <key:String>", "config", "explains an option", help),
    read("config ls", "config", "lists the options there are", ls),
    read("config log [num:Int]", "config", "shows the last changes", log),
    write(
        "config assimilate-conf",
        "config",
        "takes over the options of a configuration file (-i FILE)",
        assimilate,
    ),
    read(
        "config generate-minimal-conf",
        "config",
        "makes a configuration file for clients",
        minimal,
    ),
    write(
        "config reset <num:Int,0>",
        "config",
        "goes back to what was set at an earlier version, as `config log` counts them",
        reset,
    ),
];

/// The version of a configuration in which nothing was ever set.
const EMPTY_VERSION: u64 = 1;

/// What a session is told.
pub(crate) fn config_for(c: &Cluster, session: &Session) -> BTreeMap<String, String> {
    told(c, &session.entity(), &session.hostname)
}

/// What somebody on a host is told.
pub(super) fn told(c: &Cluster, entity: &str, hostname: &str) -> BTreeMap<String, String> {
    let place = place(c, entity, hostname);
    resolve(c, &[entity], &place).into_iter().map(|(name, (value, _))| (name, value)).collect()
}

impl Cluster {
    /// What the mon itself is told, as the mgr and as a mon.
    pub fn own_config(&self) -> BTreeMap<String, String> {
        let [mgr, mon] = ["mgr", "mon"].map(|kind| format!("{kind}.{}", self.name));
        let all = resolve(self, &[&mgr, &mon], &Place::new());
        all.into_iter().map(|(name, (value, _))| (name, value)).collect()
    }

    /// Sets (or with `None` removes) an option. It has to be noted in the log.
    pub fn put_config(&mut self, who: &str, name: &str, value: Option<&str>) -> ConfigDiff {
        let of = self.state.config.entry(who.to_owned()).or_default();
        let before = match value {
            Some(value) => of.insert(name.to_owned(), value.to_owned()),
            None => of.remove(name),
        };
        if of.is_empty() {
            self.state.config.remove(who);
        }
        match value {
            Some(value) => self.draft.put(keys::config(who, name), value.to_owned()),
            None => self.draft.remove(keys::config(who, name)),
        }
        self.draft.config_changed = true;
        self.config_serial += 1;
        let after = value.map(str::to_owned);
        ConfigDiff { who: who.to_owned(), name: name.to_owned(), before, after }
    }

    /// Sets (or with `None` removes) an option by a command, which is in the log then and can be taken back.
    pub(super) fn set_config(&mut self, call: &Call, who: &str, name: &str, value: Option<&str>) {
        let change = self.put_config(who, name, value);
        self.log_config(call, String::new(), vec![change]);
    }

    /// The value of an option that nobody has set.
    pub fn default_of(&self, name: &str) -> Option<String> {
        self.known.get(name)?.show_default()
    }

    /// The newest version of the configuration: as many changes, and the empty one.
    fn config_version(&self) -> u64 {
        self.state.config_log.keys().next_back().copied().unwrap_or(EMPTY_VERSION)
    }

    /// Notes a change. It has a name when the command was no change of one option.
    fn log_config(&mut self, call: &Call, name: String, diff: Vec<ConfigDiff>) {
        const KEPT: usize = 1000;
        let number = self.config_version() + 1;
        let change = ConfigChange { stamp: call.now.wall, name, diff };
        self.draft.put(keys::config_log(number), denc::encode(&change));
        self.state.config_log.insert(number, change);
        while self.state.config_log.len() > KEPT {
            if let Some((old, _)) = self.state.config_log.pop_first() {
                self.draft.remove(keys::config_log(old));
            }
        }
    }
}

/// What a daemon or client must know before it can ask the mon.
const BEFORE_THE_MON: &[&str] = &["fsid", "host", "keyring", "mon_data", "mon_host"];

fn set(c: &mut Cluster, call: &Call) -> Reply {
    let (who, name) = (call.args.text("who"), normal(&call.args.text("name")));
    let value = call.args.text("value");
    if BEFORE_THE_MON.contains(&&*name) {
        let text = format!("{name} is special and cannot be stored by the mon");
        return Err(CommandError::invalid(text));
    }
    let text = match c.known.get(&name) {
        None if call.args.flag("force") || name.starts_with("mgr/") => value.into_owned(),
        None => {
            let text = format!("unrecognized config option '{name}'");
            return Err(CommandError::invalid(text));
        }
        Some(def) => {
            let parsed = def.parse(&value);
            let bad = |e| CommandError::invalid(format_args!("error parsing value: {e}"));
            parsed.map_err(bad)?.show(def.kind)
        }
    };
    let who = new_section(c, &who).ok_or_else(|| unrecognized(&who))?;
    if c.state.config.get(&who).and_then(|of| of.get(&name)) != Some(&text) {
        c.set_config(call, &who, &name, Some(&text));
    }
    let kind = parse_who(&who).map_or("", |who| who.kind);
    Ok(unheeded(kind, &name).map_or_else(Answer::ok, Answer::message))
}

fn unrecognized(who: &str) -> CommandError {
    CommandError::invalid(format_args!("unrecognized config target '{who}'"))
}

/// Options may be written with blanks or dashes.
pub(super) fn normal(name: &str) -> String {
    name.replace([' ', '-'], "_")
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    let (who, name) = (call.args.text("who"), normal(&call.args.text("name")));
    // One whose type of bucket is gone goes too.
    let parsed = parse_who(&who).ok_or_else(|| unrecognized(&who))?;
    let who = if c.state.config.contains_key(&*who) { who.into() } else { section_of(&parsed) };
    if c.state.config.get(&who).is_some_and(|of| of.contains_key(&name)) {
        c.set_config(call, &who, &name, None);
    }
    Ok(Answer::ok())
}

fn get(c: &Cluster, call: &Call) -> Reply {
    let who = call.args.text("who");
    let good = parse_who(&who).filter(|w| w.masks.is_empty() && !w.kind.is_empty());
    let unknown = || CommandError::invalid(format_args!("unrecognized entity '{who}'"));
    let of = good.ok_or_else(unknown)?;
    let session = c.sessions.values().find(|s| s.entity() == who);
    let host = session.map(|s| s.hostname.clone()).unwrap_or_default();
    let all = resolve(c, &[&who], &place(c, &who, &host));
    let Some(key) = call.args.str("key") else {
        return Ok(listing(c, call.format(), &all));
    };
    let key = normal(&key);
    if key == "fsid" {
        return Ok(Answer::text(format_args!("{}\n", c.state.fsid)));
    }
    let value = all.get(&key).map(|(value, _)| value.clone()).or_else(|| c.default_of(&key));
    let note = unheeded(of.kind, &key).unwrap_or_default();
    match value {
        Some(value) => Ok(Answer::text(format_args!("{value}\n")).with_message(note)),
        None => Err(CommandError::not_found(format_args!("unrecognized key '{key}'"))),
    }
}

fn level(def: Option<OptionDef>) -> &'static str {
    def.map_or("unknown", |d| d.level.name())
}

fn listing(c: &Cluster, format: Format, all: &BTreeMap<String, (String, String)>) -> Answer {
    let json = || {
        let shown = all.iter().map(|(name, (value, section))| {
            let def = c.known.get(name);
            let runtime = def.is_none_or(|d| d.runtime);
            let (who, mask) = split_mask(section);
            let entry = json!({
                "value": value, "section": who, "mask": mask_json(&mask),
                "can_update_at_runtime": runtime,
            });
            (name.clone(), entry)
        });
        Value::Object(shown.collect())
    };
    Answer::either(format, json, || {
        let mut table = table();
        for (name, (value, section)) in all {
            let def = c.known.get(name);
            let ro = if def.is_none_or(|d| d.runtime) { "" } else { "*" };
            let (who, mask) = split_mask(section);
            table.row([who, mask, level(def).into(), name.clone(), value.clone(), ro.into()]);
        }
        table.to_string()
    })
}

fn table() -> TextTable {
    TextTable::new().columns(
        &["WHO", "MASK", "LEVEL", "OPTION", "VALUE", "RO"],
        Align::Left,
        Align::Left,
    )
}

/// Something that is set.
struct Shown<'a> {
    who: String,
    mask: String,
    name: &'a str,
    value: &'a str,
}

/// All that is set, in the order Ceph shows it: an option with all its masks.
fn all_set(c: &Cluster) -> Vec<Shown<'_>> {
    const ORDER: [&str; 6] = ["global", "mon", "mgr", "osd", "mds", "client"];
    let mut all = Vec::new();
    for (section, options) in &c.state.config {
        for (name, value) in options {
            let (who, mask) = split_mask(section);
            all.push(Shown { who, mask, name, value });
        }
    }
    all.sort_by_cached_key(|shown| {
        let kind = shown.who.split('.').next().unwrap_or_default();
        let place = ORDER.iter().position(|k| *k == kind).unwrap_or(ORDER.len());
        (place, shown.who.clone(), shown.name, shown.mask.clone())
    });
    all
}

fn dump(c: &Cluster, call: &Call) -> Reply {
    let json = || {
        let entries = all_set(c).into_iter().map(|Shown { who, mask, name, value }| {
            let def = c.known.get(name);
            let mut entry = json!({
                "section": who, "name": name, "value": value, "level": level(def),
                "can_update_at_runtime": def.is_none_or(|d| d.runtime), "mask": mask,
            });
            entry.as_object_mut().into_iter().for_each(|entry| entry.extend(mask_json(&mask)));
            entry
        });
        entries.collect()
    };
    let text = || {
        let mut table = table();
        for Shown { who, mask, name, value } in all_set(c) {
            let indent = match (who.as_str(), who.contains('.')) {
                ("global", _) => "",
                (_, false) => "  ",
                (_, true) => "    ",
            };
            let def = c.known.get(name);
            let ro = if def.is_none_or(|d| d.runtime) { "" } else { "*" };
            let (who, level) = (format!("{indent}{who}"), level(def).to_owned());
            table.row([who, mask, level, name.to_owned(), value.to_owned(), ro.into()]);
        }
        table.to_string()
    };
    Ok(Answer::either(call.format(), json, text))
}

fn help(c: &Cluster, call: &Call) -> Reply {
    let key = normal(&call.args.text("key"));
    let def = c.known.get(&key).ok_or_else(|| CommandError::not_found(""))?;
    Ok(Answer::either(
        call.format(),
        || {
            let mut value = def.describe();
            value["name"] = key.as_str().into();
            value
        },
        || def.describe_text(),
    ))
}

fn ls(c: &Cluster, call: &Call) -> Reply {
    let names: Vec<&str> = c.known.names().collect();
    Ok(Answer::either(call.format(), || names.clone().into(), || names.join("\n") + "\n"))
}

/// Takes back all that was changed since a version.
fn reset(c: &mut Cluster, call: &Call) -> Reply {
    let newest = c.config_version();
    let version = call.args.int("num").and_then(|n| u64::try_from(n).ok());
    // Of what is older than the log we do not know what was set.
    let oldest = c.state.config_log.keys().next().map_or(newest, |first| first - 1);
    let known = version.filter(|v| (oldest..=newest).contains(&(*v).max(EMPTY_VERSION)));
    let Some(version) = known else {
        return Err(CommandError::invalid(
            "must specify a valid historical version to revert to; see 'ceph config log' for a list \
             of avialable configuration historical versions",
        ));
    };
    if version == newest {
        return Ok(Answer::message(format_args!("config is already at version {version}")));
    }
    let mut before = BTreeMap::new();
    for change in c.state.config_log.range(version + 1..).rev().map(|(_, change)| change) {
        for diff in &change.diff {
            before.insert((diff.who.clone(), diff.name.clone()), diff.before.clone());
        }
    }
    let is = |c: &Cluster, who: &str, name: &str| c.state.config.get(who)?.get(name).cloned();
    before.retain(|(who, name), value| is(c, who, name) != *value);
    let put = |((who, name), value): (&(String, String), &Option<String>)| {
        c.put_config(who, name, value.as_deref())
    };
    let changes = before.iter().map(put).collect();
    c.log_config(call, format!("reset to {version}"), changes);
    Ok(Answer::ok())
}

fn log(c: &Cluster, call: &Call) -> Reply {
    let count = usize::try_from(call.args.int("num").unwrap_or(10)).unwrap_or(0);
    let empty = ConfigChange::default();
    // A log that is whole begins with the empty configuration.
    let is_whole = c.state.config_log.keys().next().is_none_or(|first| *first == EMPTY_VERSION + 1);
    let first = is_whole.then_some((&EMPTY_VERSION, &empty));
    let newest = c.state.config_log.iter().rev().chain(first).take(count);
    let json = || {
        let entries = newest.clone().map(|(number, change)| {
            let changes = change.diff.iter().map(|ConfigDiff { who, name, before, after }| {
                let mut out = Map::new();
                out.insert("name".into(), format!("{who}/{name}").into());
                if let Some(before) = before {
                    out.insert("previous_value".into(), before.as_str().into());
                }
                if let Some(after) = after {
                    out.insert("new_value".into(), after.as_str().into());
                }
                Value::Object(out)
            });
            json!({
                "version": number, "timestamp": change.stamp.to_string(), "name": change.name,
                "changes": changes.collect::<Vec<_>>(),
            })
        });
        entries.collect()
    };
    let text = || {
        let mut out = String::new();
        for (number, change) in newest.clone() {
            let name = &change.name;
            let named = if name.is_empty() { String::new() } else { format!(" {name} ---") };
            out.push_str(&format!("--- {number} --- {} ---{named}\n", change.stamp));
            for ConfigDiff { who, name, before, after } in &change.diff {
                if let Some(before) = before {
                    out.push_str(&format!("- {who}/{name} = {before}\n"));
                }
                if let Some(after) = after {
                    out.push_str(&format!("+ {who}/{name} = {after}\n"));
                }
            }
        }
        out
    };
    Ok(Answer::either(call.format(), json, text))
}

fn minimal(c: &Cluster, _call: &Call) -> Reply {
    let fsid = c.state.fsid;
    let mons =
        c.state.monmap.mons.values().map(|m| format!("[{}]", crate::show::join(&m.addrs.0, ",")));
    let mons = crate::show::join(mons, " ");
    Ok(Answer::text(format_args!(
        "# minimal ceph.conf for {fsid}\n[global]\n\tfsid = {fsid}\n\tmon_host = {mons}\n\
         \tauth_client_required = none\n\tauth_cluster_required = none\n\
         \tauth_service_required = none\n"
    )))
}

/// `[section]`, `name = value`; what is not known stays in the answer.
fn assimilate(c: &mut Cluster, call: &Call) -> Reply {
    let text = String::from_utf8_lossy(&call.input).into_owned();
    let mut section = "global".to_owned();
    let mut changes = Vec::new();
    let mut rest: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name.trim().to_owned();
            continue;
        }
        let Some((name, value)) = line.split_once('=') else { continue };
        let (name, value) = (normal(name.trim()), value.trim());
        let bootstrap = ["fsid", "mon_host", "keyring", "admin_socket", "host"];
        let def = c.known.get(&name).filter(|_| !bootstrap.contains(&name.as_str()));
        let good = def.and_then(|d| Some(d.parse(value).ok()?.show(d.kind)));
        match good.zip(new_section(c, &section)) {
            Some((value, who)) => changes.push(c.put_config(&who, &name, Some(&value))),
            None => {
                let of = rest.entry(section.clone()).or_default();
                of.insert(name, value.to_owned());
            }
        }
    }
    if !changes.is_empty() {
        c.log_config(call, String::new(), changes);
    }
    let section = |(section, options): (String, BTreeMap<String, String>)| {
        let lines = options.into_iter().map(|(name, value)| format!("\t{name} = {value}\n"));
        format!("\n[{section}]\n{}", lines.collect::<String>())
    };
    Ok(Answer::text(rest.into_iter().map(section).collect::<String>()))
}

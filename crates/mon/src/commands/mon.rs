//! `mon`, `quorum_status`, `versions`, `features`: the mon itself, and what runs where.

use super::status::ELECTION_EPOCH;
use super::tell::quorum_status;
use super::{Call, CommandDef, Reply, map_of, read, write};
use crate::cluster::Cluster;
use crate::show::{join, list, monmap};
use admin::{Answer, CommandError, Format};
use maps::MonFeatures;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::EntityType;

pub(super) const COMMANDS: &[CommandDef] = &[
    read("mon stat", "mon", "shows the mons in a line", stat),
    read("mon dump [epoch:Int,0]", "mon", "shows the monmap", dump),
    read("mon getmap [epoch:Int,0]", "mon", "gives out the monmap in binary", getmap),
    read("mon metadata [id:String]", "mon", "shows facts about mons", metadata),
    read("mon count-metadata <property:String>", "mon", "counts mons by a fact", count_metadata),
    read("mon versions", "mon", "counts mons by version", mon_versions),
    read(
        "mon feature ls [with_value:Choices,--with-value]",
        "mon",
        "shows features of mons",
        feature_ls,
    ),
    write(
        "mon feature set <feature_name:String> [yes_i_really_mean_it:Bool]",
        "mon",
        "does nothing: all features are set",
        feature_set,
    ),
    read("mon ok-to-stop <ids:String>...", "mon", "says whether mons may stop", ok_to_stop),
    read("mon ok-to-add-offline", "mon", "says whether a mon may be added", ok_to_add_offline),
    read("mon ok-to-rm <id:String>", "mon", "says whether a mon may be removed", ok_to_rm),
    write(
        "mon add <name:String> <addr:IPAddr> [location:String,good=loc]...",
        "mon",
        "adds a mon (there can be only one so far)",
        add,
    ),
    write("mon rm <name:String>", "mon", "removes a mon", rm),
    super::old(write("mon remove <name:String>", "mon", "removes a mon", rm)),
    write("mon set-rank <name:String> <rank:Int>", "mon", "sets a mon's rank", set_rank),
    write("mon enable-msgr2", "mon", "does nothing: mons speak nothing else", nothing),
    write("mon scrub", "mon", "does nothing: the store has checksums of its own", nothing),
    read("quorum_status", "mon", "shows the quorum", show_quorum),
    read("time-sync-status", "mon", "shows how the clocks of mons differ", time_sync),
    read("versions", "mon", "counts daemons by version", versions),
    read("features", "mon", "counts daemons and clients by features", features),
    read("node ls [type:Choices,all|osd|mon|mds|mgr]", "mon", "lists daemons by host", node_ls),
    read("service dump", "mon", "shows services that registered", service_dump),
    read("service status", "mon", "shows how those services are", service_status),
];

fn show_quorum(c: &Cluster, call: &Call) -> Reply {
    Ok(Answer::json_line(quorum_status(c, call.now)))
}

fn stat(c: &Cluster, call: &Call) -> Reply {
    let map = &c.state.monmap;
    let json = || {
        json!({
            "epoch": map.epoch.0, "min_mon_release_name": map.min_mon_release.name(),
            "num_mons": map.mons.len(), "leader": c.name,
            "quorum": [{"rank": 0, "name": c.name}],
        })
    };
    let text = || {
        let mons = map.mons.values().map(|m| format!("{}={}", m.name, m.addrs));
        format!(
            "e{}: {} mons at {{{}}} removed_ranks: {{{}}}, election epoch {ELECTION_EPOCH}, leader \
             0 {}, quorum 0 {}\n",
            map.epoch,
            map.mons.len(),
            join(mons, ","),
            join(&map.removed_ranks, ","),
            c.name,
            c.name
        )
    };
    Ok(Answer::either(call.format(), json, text))
}

/// Of the monmap only the newest version is kept.
fn check_epoch(c: &Cluster, call: &Call) -> Result<(), CommandError> {
    let epoch = i64::from(c.state.monmap.epoch.0);
    match call.args.int("epoch") {
        Some(wanted) if wanted != 0 && wanted != epoch => {
            Err(CommandError::not_found(format_args!("there is no map for epoch {wanted}")))
        }
        _ => Ok(()),
    }
}

fn dump(c: &Cluster, call: &Call) -> Reply {
    check_epoch(c, call)?;
    let map = &c.state.monmap;
    let json = || {
        let mut out = monmap::json(map);
        out.insert("quorum".into(), json!([0]));
        Value::Object(out)
    };
    let answer = Answer::either(call.format(), json, || monmap::text(map));
    Ok(answer.with_message(format_args!("dumped monmap epoch {}", map.epoch)))
}

fn getmap(c: &Cluster, call: &Call) -> Reply {
    check_epoch(c, call)?;
    let map = &c.state.monmap;
    let answer = Answer::raw(denc::encode(map));
    Ok(answer.with_message(format_args!("got monmap epoch {}", map.epoch)))
}

impl Cluster {
    /// Facts about the mon, as it would report them to itself.
    pub fn own_metadata(&self) -> BTreeMap<String, String> {
        let mut facts = self.metadata.clone();
        let own = [
            ("addrs", self.addrs.to_string()),
            ("ceph_release", admin::common::RELEASE.to_owned()),
            ("ceph_version", admin::common::version_line()),
            ("ceph_version_short", admin::common::VERSION.to_owned()),
        ];
        facts.extend(own.map(|(k, v)| (k.to_owned(), v)));
        facts
    }
}

fn named(name: &str, facts: &BTreeMap<String, String>) -> Value {
    let facts = facts.iter().map(|(k, v)| (k.clone(), v.as_str().into()));
    Value::Object([("name".to_owned(), name.into())].into_iter().chain(facts).collect())
}

fn metadata(c: &Cluster, call: &Call) -> Reply {
    let facts = c.own_metadata();
    match call.args.str("id") {
        None => Ok(Answer::json(json!([named(&c.name, &facts)]))),
        Some(id) if id == c.name => Ok(Answer::json(map_of(&facts))),
        Some(_) => Err(CommandError::not_found("requested mon not found")),
    }
}

fn count_metadata(c: &Cluster, call: &Call) -> Reply {
    let property = call.args.text("property");
    let value = c.own_metadata().remove(&*property).unwrap_or_else(|| "unknown".into());
    Ok(Answer::json(json!({ value: 1 })))
}

fn mon_versions(_: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(json!({ admin::common::version_line(): 1 })))
}

fn versions(c: &Cluster, _: &Call) -> Reply {
    let own = admin::common::version_line();
    let mut osds: BTreeMap<String, u64> = BTreeMap::new();
    for id in c.map().up_osds() {
        let facts = c.state.osd_metadata.get(&id);
        let version = facts.and_then(|f| f.get("ceph_version")).unwrap_or(&own);
        *osds.entry(version.clone()).or_default() += 1;
    }
    let mut overall = osds.clone();
    *overall.entry(own.clone()).or_default() += 2;
    Ok(Answer::json(json!({
        "mon": {&own: 1}, "mgr": {&own: 1}, "osd": osds, "mds": {}, "overall": overall,
    })))
}

fn features(c: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(feature_map(c)))
}

/// How many mons, OSDs and clients have which features.
pub(super) fn feature_map(c: &Cluster) -> Value {
    let mut clients: BTreeMap<u64, u64> = BTreeMap::new();
    let sessions = c.sessions.values().filter(|s| s.peer.name.kind == EntityType::CLIENT);
    sessions.for_each(|s| *clients.entry(s.peer.features).or_default() += 1);
    let entry = |features: u64, num: u64| json!({"features": format!("{features:#x}"), "release": "luminous", "num": num});
    let ours = crate::osds::FEATURES;
    let osds = c.map().up_osds().count() as u64;
    let mut out = Map::new();
    out.insert("mon".into(), json!([entry(ours, 1)]));
    if osds > 0 {
        out.insert("osd".into(), json!([entry(ours, osds)]));
    }
    if !clients.is_empty() {
        let all: Vec<Value> = clients.into_iter().map(|(f, n)| entry(f, n)).collect();
        out.insert("client".into(), all.into());
    }
    out.insert("mgr".into(), json!([entry(ours, 1)]));
    Value::Object(out)
}

fn feature_ls(c: &Cluster, call: &Call) -> Reply {
    let map = &c.state.monmap;
    let names = |features: MonFeatures| -> Vec<String> {
        let shown = |(name, one): (&str, MonFeatures)| match call.args.has("with_value") {
            true => format!("{name}({})", one.0),
            false => name.to_owned(),
        };
        features.each().map(shown).collect()
    };
    let (persistent, optional) = (names(map.persistent_features), names(map.optional_features));
    let json = || {
        json!({
            "all": {"supported": persistent, "persistent": persistent},
            "monmap": {
                "persistent": persistent, "optional": optional, "required": persistent,
            },
        })
    };
    let text = || {
        let value = list(&persistent);
        format!(
            "all features\n\tsupported: {value}\n\tpersistent: {value}\non current monmap (epoch \
             {})\n\tpersistent: {value}\n\trequired: {value}\n",
            map.epoch
        )
    };
    Ok(Answer::either(call.format(), json, text))
}

/// All there are have been set since the cluster was made.
fn feature_set(_: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("feature_name");
    if !MonFeatures::FRESH.names().any(|known| known == name) {
        return Err(CommandError::not_found(format_args!("unknown feature '{name}'")));
    }
    if !call.sure() {
        return Err(CommandError::not_permitted(format_args!(
            "please specify '--yes-i-really-mean-it' if you really, **really** want to set feature \
             'mon_feature_t([{name}])' in the monmap."
        )));
    }
    Ok(Answer::message(format_args!("setting feature 'mon_feature_t([{name}])'")))
}

fn ok_to_stop(c: &Cluster, call: &Call) -> Reply {
    let ids = call.args.list("ids");
    let stopping = list(&ids);
    if ids.iter().any(|id| *id == c.name) {
        let text =
            format!("not enough monitors would be available () after stopping mons {stopping}");
        return Err(CommandError::busy(text));
    }
    let text = format!("quorum should be preserved ({}) after stopping {stopping}", c.name);
    Ok(Answer::message(text))
}

fn ok_to_add_offline(_: &Cluster, _: &Call) -> Reply {
    let text = "adding a monitor may break quorum (until that monitor starts)";
    Err(CommandError::busy(text))
}

fn ok_to_rm(c: &Cluster, call: &Call) -> Reply {
    let id = call.args.text("id");
    if id == c.name {
        return Err(CommandError::busy(format_args!("removing mon.{id} would break quorum")));
    }
    Ok(Answer::message(format_args!("mon.{id} does not exist")))
}

fn add(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("name");
    if let Some(mon) = c.state.monmap.mons.get(&*name) {
        let text = format!("mon.{name} already exists at address {}", mon.addrs);
        return Err(CommandError::exists(text));
    }
    let text = format!(
        "mon.{name} is not added: the embedded cluster store serves one mon, on one machine"
    );
    Err(CommandError::unsupported(text))
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("name");
    if !c.state.monmap.mons.contains_key(&*name) {
        let text = format!("mon.{name} does not exist or has already been removed");
        return Ok(Answer::message(text));
    }
    Err(CommandError::invalid("error: refusing removal of last monitor "))
}

fn set_rank(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("name");
    if !c.state.monmap.mons.contains_key(&*name) {
        return Err(CommandError::not_found(format_args!("mon.{name} does not exist in monmap")));
    }
    match call.args.int("rank") {
        Some(0) => Ok(Answer::ok()),
        rank => {
            let rank = rank.unwrap_or(-1);
            Err(CommandError::invalid(format_args!("mon.{name} cannot have the rank {rank}")))
        }
    }
}

fn nothing(_: &mut Cluster, _: &Call) -> Reply {
    Ok(Answer::ok())
}

fn time_sync(_: &Cluster, _: &Call) -> Reply {
    let checks = json!({"epoch": ELECTION_EPOCH, "round": 0, "round_status": "finished"});
    Ok(Answer::json(json!({ "timechecks": checks })))
}

fn service_dump(c: &Cluster, _: &Call) -> Reply {
    let modified = c.map().created.to_string();
    Ok(Answer::json(json!({"epoch": 1, "modified": modified, "services": {}})))
}

fn service_status(_: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(json!({})))
}

fn node_ls(c: &Cluster, call: &Call) -> Reply {
    let host = |facts: &BTreeMap<String, String>| facts.get("hostname").cloned();
    let own = host(&c.own_metadata()).unwrap_or_default();
    let mut osds: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for (id, facts) in c.state.osd_metadata.iter().filter(|(id, _)| c.map().exists(**id)) {
        osds.entry(host(facts).unwrap_or_default()).or_default().push(id.0);
    }
    let (mon, mgr) = (json!({&own: [c.name]}), json!({&own: [c.name]}));
    let value = match &*call.args.text("type") {
        "osd" => json!(osds),
        "mon" => mon,
        "mgr" => mgr,
        "mds" => json!({}),
        _ => json!({"mon": mon, "osd": osds, "mgr": mgr}),
    };
    let indented = call.format() != Format::Json;
    Ok(if indented { Answer::json(value) } else { Answer::json_line(value) })
}

//! `mgr` and what its modules answer: this mon is the mgr as well.

use super::{Call, CommandDef, Reply, map_of, read, write};
use crate::cluster::Cluster;
use crate::show::addr::{addrvec_json, legacy};
use admin::{Answer, CommandError};
use serde_json::json;
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[CommandDef] = &[
    read("mgr stat", "mgr", "shows the mgr in a few words", stat),
    read("mgr dump [epoch:Int,0]", "mgr", "shows the mgrmap", dump),
    read("mgr services", "mgr", "lists what the mgr's modules serve", services),
    read("mgr versions", "mgr", "counts mgrs by version", versions),
    read("mgr metadata [who:String]", "mgr", "shows facts about mgrs", metadata),
    read("mgr count-metadata <property:String>", "mgr", "counts mgrs by a fact", count_metadata),
    read("mgr module ls", "mgr", "lists modules", module_ls),
    write(
        "mgr module enable <module:String> [force:Choices,--force]",
        "mgr",
        "enables a module",
        enable,
    ),
    write("mgr module disable <module:String>", "mgr", "disables a module", disable),
    write("mgr fail [who:String]", "mgr", "has another mgr take over", fail),
];

/// The modules that no mgr of this release is without. The mon does itself what they do, or says that it is not done:
/// `orchestrator` has nobody to order about, `pg_autoscaler` only advises, `telemetry` is off, `volumes` has no file
/// systems.
const ALWAYS_ON: &[&str] = &[
    "balancer",
    "crash",
    "devicehealth",
    "orchestrator",
    "pg_autoscaler",
    "progress",
    "rbd_support",
    "status",
    "telemetry",
    "volumes",
];

fn stat(c: &Cluster, _: &Call) -> Reply {
    let map = c.mgrmap();
    Ok(Answer::json(json!({
        "epoch": map.epoch.0, "available": map.available, "active_name": map.active_name,
        "num_standby": map.standbys.len(),
    })))
}

fn dump(c: &Cluster, call: &Call) -> Reply {
    let map = c.mgrmap();
    let epoch = i64::from(map.epoch.0);
    if let Some(wanted) = call.args.int("epoch").filter(|e| *e != 0 && *e != epoch) {
        return Err(CommandError::not_found(format_args!("there is no map for epoch {wanted}")));
    }
    Ok(Answer::json(json!({
        "epoch": map.epoch.0,
        "active_gid": map.active_gid,
        "active_name": map.active_name,
        "active_addrs": addrvec_json(&map.active_addrs),
        "active_addr": legacy(&map.active_addrs),
        "active_change": map.active_change.to_string(),
        "active_mgr_features": map.active_mgr_features,
        "available": map.available,
        "standbys": [],
        "modules": [],
        "available_modules": [],
        "services": {},
        "always_on_modules": {"pacific": ALWAYS_ON},
        "last_failure_osd_epoch": map.last_failure_osd_epoch.0,
        "active_clients": [],
    })))
}

fn services(_: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(json!({})))
}

fn versions(_: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(json!({ admin::common::version_line(): 1 })))
}

fn facts(c: &Cluster) -> BTreeMap<String, String> {
    let mut facts = c.own_metadata();
    facts.insert("addrs".into(), c.mgr_addrs.to_string());
    // Ceph says only the host of the address here.
    let ip = c.mgr_addrs.0.first().and_then(|addr| addr.ip());
    facts.extend(ip.map(|ip| ("addr".to_owned(), ip.to_string())));
    facts
}

fn metadata(c: &Cluster, call: &Call) -> Reply {
    let facts = facts(c);
    match call.args.str("who") {
        Some(who) if who == c.name => Ok(Answer::json(map_of(&facts))),
        Some(who) => {
            let text = format!("no metadata for mgr.{who}: there is none of that name");
            Err(CommandError::not_found(text))
        }
        None => {
            let mut named = map_of(&facts).as_object().cloned().unwrap_or_default();
            named.shift_insert(0, "name".into(), c.name.as_str().into());
            Ok(Answer::json(json!([named])))
        }
    }
}

fn count_metadata(c: &Cluster, call: &Call) -> Reply {
    let property = call.args.text("property");
    let value = facts(c).remove(&*property).unwrap_or_else(|| "unknown".into());
    Ok(Answer::json(json!({ value: 1 })))
}

fn module_ls(_: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(json!({
        "always_on_modules": ALWAYS_ON, "enabled_modules": [], "disabled_modules": [],
    })))
}

fn is_always_on(module: &str) -> bool {
    ALWAYS_ON.contains(&module)
}

fn enable(_: &mut Cluster, call: &Call) -> Reply {
    let module = call.args.text("module");
    if is_always_on(&module) {
        let text = format!("module '{module}' is already enabled (always-on)");
        return Ok(Answer::message(text));
    }
    Err(CommandError::not_found(format_args!(
        "all mgr daemons do not support module '{module}', and --force does not change that: the mgr is built into the \
         mon, with its modules {}",
        crate::show::join(ALWAYS_ON, ", ")
    )))
}

fn disable(_: &mut Cluster, call: &Call) -> Reply {
    let module = call.args.text("module");
    if is_always_on(&module) {
        let text = format!("module '{module}' cannot be disabled (always-on)");
        return Err(CommandError::invalid(text));
    }
    Ok(Answer::message(format_args!("module '{module}' is already disabled")))
}

fn fail(c: &mut Cluster, call: &Call) -> Reply {
    match call.args.str("who").filter(|who| *who != c.name) {
        Some(who) => Ok(Answer::message(format_args!("Daemon not found '{who}', already failed?"))),
        None => {
            let text = format!("mgr.{0} is mon.{0} itself, there is no other to take over", c.name);
            Err(CommandError::unsupported(text))
        }
    }
}

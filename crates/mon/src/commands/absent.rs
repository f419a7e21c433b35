//! Commands of modules of Ceph's mgr that do nothing here: tools ask, and are told so in Ceph's words.

use super::{Call, CommandDef, Reply, read, write};
use crate::cluster::Cluster;
use admin::{Answer, CommandError};
use serde_json::{Value, json};

/// A command that would need an orchestrator.
const fn orchestrated(sig: &'static str) -> CommandDef {
    read(sig, "mgr", "there is no orchestrator", no_orchestrator)
}

/// A command of the module `insights`.
const fn insights(sig: &'static str) -> CommandDef {
    read(sig, "mgr", "there is no module for it", no_insights)
}

pub(super) const COMMANDS: &[CommandDef] = &[
    orchestrated("orch status [detail:Bool]"),
    orchestrated(
        "orch ls [service_type:String] [service_name:String] [export:Bool] [refresh:Bool]",
    ),
    orchestrated(
        "orch ps [hostname:String] [service_name:String] [daemon_type:String] [daemon_id:String] \
         [refresh:Bool]",
    ),
    orchestrated("orch host ls"),
    orchestrated("orch device ls [hostname:String]... [refresh:Bool] [wide:Bool]"),
    orchestrated("nfs cluster ls"),
    orchestrated("nfs cluster info [cluster_id:String]"),
    insights("insights"),
    insights("insights prune-health <hours:String>"),
    read("telemetry status", "mgr", "shows that nothing is reported to anybody", telemetry_status),
    write("telemetry off", "mgr", "nothing is reported to anybody anyway", telemetry_off),
    write("telemetry on [license:String]", "mgr", "there are no reports", telemetry_on),
];

fn no_orchestrator(_: &Cluster, _: &Call) -> Reply {
    Err(CommandError::not_found("No orchestrator configured (try `ceph orch set backend`)"))
}

fn no_insights(_: &Cluster, call: &Call) -> Reply {
    let prefix = call.args.text("prefix");
    Err(CommandError::unsupported(format_args!(
        "Module 'insights' is not enabled/loaded (required by command '{prefix}'): use `ceph mgr module enable \
         insights` to enable it"
    )))
}

/// In the form of Ceph's module.
fn telemetry_status(_: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(json!({
        "channel_basic": false, "channel_crash": false, "channel_device": false, "channel_ident": false,
        "contact": Value::Null, "description": Value::Null, "device_url": "", "enabled": false, "interval": 24,
        "last_opt_revision": 1, "last_upload": Value::Null, "leaderboard": false, "log_level": "",
        "log_to_cluster": false, "log_to_cluster_level": "info", "log_to_file": false,
        "organization": Value::Null, "proxy": Value::Null, "url": "",
    })))
}

fn telemetry_off(_: &mut Cluster, _: &Call) -> Reply {
    Ok(Answer::ok())
}

fn telemetry_on(_: &mut Cluster, _: &Call) -> Reply {
    let text = "this cluster makes no reports that could be sent to anybody; telemetry stays off";
    Err(CommandError::unsupported(text))
}

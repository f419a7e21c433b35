//! `device`: what Ceph's mgr knows of disks and their health.
//!
//! OSDs do not report what disks they stand on, so that there are no devices: tools get empty lists, and are
//! told of each that it is not there.

use super::{Call, CommandDef, Reply, read, write};
use crate::cluster::Cluster;
use admin::{Answer, CommandError};
use serde_json::{Value, json};

pub(super) const COMMANDS: &[CommandDef] = &[
    read("device ls", "mgr", "lists devices whose health is watched", ls),
    read("device ls-by-daemon <who:String>", "mgr", "lists devices of a daemon", ls_by_daemon),
    read("device ls-by-host <host:String>", "mgr", "lists devices of a host", ls_by_host),
    read("device ls-lights", "mgr", "lists devices with a light on", ls_lights),
    read("device info <devid:String>", "mgr", "shows a device", not_there),
    read(
        "device get-health-metrics <devid:String> [sample:String]",
        "mgr",
        "shows what a device said of its health",
        not_there,
    ),
    read(
        "device query-daemon-health-metrics <who:String>",
        "mgr",
        "asks a daemon for the health of its devices",
        query,
    ),
    write("device check-health", "mgr", "looks at the health of devices", done),
    write(
        "device rm-life-expectancy <devid:String>",
        "mgr",
        "forgets how long a device will last",
        done,
    ),
    read(
        "device scrape-daemon-health-metrics <who:String>",
        "mgr",
        "keeps what a daemon says of its devices",
        nothing,
    ),
    read(
        "device scrape-health-metrics [devid:String]",
        "mgr",
        "keeps what devices say of their health",
        scrape,
    ),
];

/// A heading without lines, or an empty list.
fn none(call: &Call, heading: &str) -> Reply {
    Ok(Answer::either(call.format(), || json!([]), || format!("{heading}\n")))
}

fn ls(_: &Cluster, call: &Call) -> Reply {
    none(call, "DEVICE  HOST:DEV  DAEMONS  WEAR  LIFE EXPECTANCY")
}

fn ls_by_daemon(_: &Cluster, call: &Call) -> Reply {
    none(call, "DEVICE  HOST:DEV  EXPECTED FAILURE")
}

fn ls_by_host(_: &Cluster, call: &Call) -> Reply {
    none(call, "DEVICE  DEV  DAEMONS  EXPECTED FAILURE")
}

fn ls_lights(_: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(json!({"fault": [], "ident": []})))
}

fn no_device(devid: &str) -> CommandError {
    CommandError::not_found(format_args!("device {devid} not found"))
}

fn not_there(_: &Cluster, call: &Call) -> Reply {
    Err(no_device(&call.args.text("devid")))
}

fn query(_: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(Value::Object(serde_json::Map::new())))
}

fn nothing(_: &Cluster, _: &Call) -> Reply {
    Ok(Answer::ok())
}

fn done(_: &mut Cluster, _: &Call) -> Reply {
    Ok(Answer::ok())
}

fn scrape(_: &Cluster, call: &Call) -> Reply {
    call.args.str("devid").map_or_else(|| Ok(Answer::ok()), |devid| Err(no_device(&devid)))
}

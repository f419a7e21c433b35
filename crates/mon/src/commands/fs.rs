//! `fs` and `mds`: there are no file systems, and tools that look for some are told so.

use super::{Call, CommandDef, Reply, read, write};
use crate::cluster::Cluster;
use crate::show::list;
use admin::{Answer, CommandError};
use serde_json::{Map, Value, json};

pub(super) const COMMANDS: &[CommandDef] = &[
    read("fs ls", "fs", "lists file systems", ls),
    read("fs dump [epoch:Int,0]", "mds", "shows the fsmap", dump),
    read("fs get <fs_name:String>", "fs", "shows a file system", get),
    read("fs status [fs:String]", "mgr", "shows how file systems are", status),
    read("fs feature ls", "mds", "lists what clients of file systems can do", feature_ls),
    read("fs volume ls", "mgr", "lists volumes", volume_ls),
    write("fs fail <fs_name:String>", "fs", "takes a file system down", fail),
    write("fs rm <fs_name:String> [yes_i_really_mean_it:Bool]", "fs", "removes a file system", rm),
    read("mds stat", "mds", "shows the metadata servers in a line", mds_stat),
    read("mds versions", "mds", "counts metadata servers by version", no_counts),
    read(
        "mds count-metadata <property:String>",
        "mds",
        "counts metadata servers by a fact",
        no_counts,
    ),
    read("mds metadata [who:String]", "mds", "shows facts about metadata servers", mds_metadata),
    read(
        "mds ok-to-stop <ids:String>...",
        "mds",
        "says whether metadata servers may stop",
        mds_ok_to_stop,
    ),
    write("mds fail <role_or_gid:String>", "mds", "takes a metadata server down", mds_fail),
    write("mds repaired <role:String>", "mds", "marks a rank as repaired", mds_repaired),
];

/// The one version of the fsmap.
const EPOCH: i64 = 1;

/// What metadata servers would have to understand.
const INCOMPAT: &[(u64, &str)] = &[
    (1, "base v0.20"),
    (2, "client writeable ranges"),
    (3, "default file layouts on dirs"),
    (4, "dir inode in separate object"),
    (5, "mds uses versioned encoding"),
    (6, "dirfrag is stored in omap"),
    (8, "no anchor table"),
    (9, "file layout v2"),
    (10, "snaprealm v2"),
];

/// Features of clients, by their bits.
const CLIENT_FEATURES: &[&str] = &[
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "jewel",
    "kraken",
    "luminous",
    "mimic",
    "reply_encoding",
    "reclaim_client",
    "lazy_caps_wanted",
    "multi_reconnect",
    "deleg_ino",
    "metric_collect",
    "alternate_name",
    "notify_session_state",
    "op_getvxattr",
    "32bits_retry_fwd",
];

fn ls(_: &Cluster, call: &Call) -> Reply {
    let text = || "No filesystems enabled\n".to_owned();
    Ok(Answer::either(call.format(), || json!([]), text))
}

fn fsmap() -> Value {
    let incompat = INCOMPAT.iter().map(|(id, name)| (format!("feature_{id}"), (*name).into()));
    json!({
        "epoch": EPOCH,
        "default_fscid": -1,
        "compat": {
            "compat": {}, "ro_compat": {}, "incompat": Value::Object(incompat.collect()),
        },
        "feature_flags": {"enable_multiple": true, "ever_enabled_multiple": true},
        "standbys": [],
        "filesystems": [],
    })
}

fn fsmap_text() -> String {
    let incompat = INCOMPAT.iter().map(|(id, name)| format!("{id}={name}"));
    format!(
        "e{EPOCH}\nenable_multiple, ever_enabled_multiple: 1,1\ndefault compat: compat={{}},\
         rocompat={{}},incompat={{{}}}\nlegacy client fscid: -1\n \nNo filesystems configured\n",
        crate::show::join(incompat, ",")
    )
}

fn dump(_: &Cluster, call: &Call) -> Reply {
    match call.args.int("epoch") {
        Some(wanted) if wanted != EPOCH => {
            Err(CommandError::not_found(format_args!("there is no fsmap of epoch {wanted}")))
        }
        _ => {
            let answer = Answer::either(call.format(), fsmap, fsmap_text);
            Ok(answer.with_message(format_args!("dumped fsmap epoch {EPOCH}")))
        }
    }
}

fn get(_: &Cluster, call: &Call) -> Reply {
    let name = call.args.text("fs_name");
    Err(CommandError::not_found(format_args!("filesystem '{name}' not found")))
}

fn status(_: &Cluster, call: &Call) -> Reply {
    match call.args.str("fs") {
        Some(name) => Err(CommandError::invalid(format_args!("Invalid filesystem: {name}"))),
        None => Ok(Answer::either(call.format(), || json!({}), String::new)),
    }
}

fn feature_ls(_: &Cluster, call: &Call) -> Reply {
    let numbered = || CLIENT_FEATURES.iter().enumerate();
    let json = || numbered().map(|(n, name)| json!({"index": n, "name": name})).collect();
    let text = || numbered().map(|(n, name)| format!("{n} {name}\n")).collect();
    Ok(Answer::either(call.format(), json, text))
}

fn volume_ls(_: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(json!([])))
}

fn fail(_: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("fs_name");
    Err(CommandError::not_found(format_args!("Filesystem not found: '{name}'")))
}

fn rm(_: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("fs_name");
    Ok(Answer::message(format_args!("filesystem '{name}' does not exist")))
}

fn mds_stat(_: &Cluster, call: &Call) -> Reply {
    let json = || {
        json!({
            "fsmap": fsmap(), "mdsmap_first_committed": EPOCH, "mdsmap_last_committed": EPOCH,
        })
    };
    Ok(Answer::either(call.format(), json, String::new))
}

fn no_counts(_: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(Value::Object(Map::new())))
}

/// What Ceph says of a metadata server that it does not find.
fn no_mds(name: &str) -> String {
    format!("MDS named '{name}' does not exist, or is not up")
}

fn mds_metadata(_: &Cluster, call: &Call) -> Reply {
    match call.args.str("who") {
        Some(who) => Err(CommandError::invalid(no_mds(&who))),
        None => Ok(Answer::json(Value::Array(Vec::new()))),
    }
}

fn mds_ok_to_stop(_: &Cluster, call: &Call) -> Reply {
    let ids = call.args.list("ids");
    Ok(Answer::message(format_args!("should be safe to stop {}", list(ids))))
}

fn mds_fail(_: &mut Cluster, call: &Call) -> Reply {
    Ok(Answer::message(no_mds(&call.args.text("role_or_gid"))))
}

fn mds_repaired(_: &mut Cluster, _: &Call) -> Reply {
    Err(CommandError::not_found("No filesystem selected"))
}

//! Flags and limits of the cluster, and of groups of OSDs.

use super::{means_all, osd_id};
use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, old, read, write};
use admin::units::stream;
use admin::{Answer, CommandError};
use maps::{OsdMapFlags, OsdState, Release};
use std::collections::BTreeSet;
use types::OsdId;

pub(super) const COMMANDS: &[CommandDef] = &[
    write(
        "osd set <key:Choices,pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|\
         noscrub|nodeep-scrub|notieragent|nosnaptrim|pglog_hardlimit> [yes_i_really_mean_it:Bool]",
        "osd",
        "sets a flag of the cluster",
        set,
    ),
    write(
        "osd unset <key:Choices,pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|\
         noscrub|nodeep-scrub|notieragent|nosnaptrim>",
        "osd",
        "takes a flag of the cluster back",
        unset,
    ),
    write("osd pause", "osd", "lets clients wait with reads and writes", pause),
    write("osd unpause", "osd", "lets clients read and write again", unpause),
    write(
        "osd set-group <flags:String> <who:String>...",
        "osd",
        "sets flags (noup, nodown, noin, noout) of OSDs, buckets or device classes",
        set_group,
    ),
    write(
        "osd unset-group <flags:String> <who:String>...",
        "osd",
        "takes flags of OSDs, buckets or device classes back",
        unset_group,
    ),
    old(write("osd add-noup <ids:String>...", "osd", "see set-group", single)),
    old(write("osd add-nodown <ids:String>...", "osd", "see set-group", single)),
    old(write("osd add-noin <ids:String>...", "osd", "see set-group", single)),
    old(write("osd add-noout <ids:String>...", "osd", "see set-group", single)),
    old(write("osd rm-noup <ids:String>...", "osd", "see unset-group", single)),
    old(write("osd rm-nodown <ids:String>...", "osd", "see unset-group", single)),
    old(write("osd rm-noin <ids:String>...", "osd", "see unset-group", single)),
    old(write("osd rm-noout <ids:String>...", "osd", "see unset-group", single)),
    write(
        "osd set-full-ratio <ratio:Float,0.0|1.0>",
        "osd",
        "from this fill on OSDs take no writes",
        set_ratio,
    ),
    write(
        "osd set-backfillfull-ratio <ratio:Float,0.0|1.0>",
        "osd",
        "from this fill on OSDs take no backfill",
        set_ratio,
    ),
    write(
        "osd set-nearfull-ratio <ratio:Float,0.0|1.0>",
        "osd",
        "from this fill on health warns",
        set_ratio,
    ),
    write(
        "osd require-osd-release <release:Choices,luminous|mimic|nautilus|octopus|pacific> \
         [yes_i_really_mean_it:Bool]",
        "osd",
        "sets the oldest release of OSDs",
        require_osd_release,
    ),
    read(
        "osd get-require-min-compat-client",
        "osd",
        "shows the oldest release of clients",
        get_min_compat_client,
    ),
    write(
        "osd set-require-min-compat-client <version:String> [yes_i_really_mean_it:Bool]",
        "osd",
        "sets the oldest release of clients",
        set_min_compat_client,
    ),
];

fn flags(key: &str) -> Result<OsdMapFlags, CommandError> {
    let flags = if key == "pause" { Some(OsdMapFlags::PAUSE) } else { OsdMapFlags::from_name(key) };
    flags.ok_or_else(|| CommandError::invalid(format_args!("unrecognized flag '{key}'")))
}

/// Sets or clears flags of the cluster.
fn turn(c: &mut Cluster, flags: OsdMapFlags, on: bool) -> Reply {
    c.change(|inc, map| {
        let now = if on { map.flags.with(flags) } else { map.flags.without(flags) };
        if now != map.flags {
            inc.new_flags = Some(now);
        }
    })?;
    let word = if on { "set" } else { "unset" };
    Ok(Answer::message(format_args!("{flags} is {word}")))
}

fn set(c: &mut Cluster, call: &Call) -> Reply {
    turn(c, flags(&call.args.text("key"))?, true)
}

fn unset(c: &mut Cluster, call: &Call) -> Reply {
    turn(c, flags(&call.args.text("key"))?, false)
}

fn pause(c: &mut Cluster, _: &Call) -> Reply {
    turn(c, OsdMapFlags::PAUSE, true)
}

fn unpause(c: &mut Cluster, _: &Call) -> Reply {
    turn(c, OsdMapFlags::PAUSE, false)
}

/// The flags a group of OSDs can have.
fn group_flags(text: &str) -> Result<OsdState, CommandError> {
    let known = OsdState::NOUP | OsdState::NODOWN | OsdState::NOIN | OsdState::NOOUT;
    let mut flags = OsdState::NONE;
    for word in text.split([',', ' ']).filter(|w| !w.is_empty()) {
        let flag = OsdState::from_name(word).filter(|f| known.contains(*f));
        let bad = || {
            let must = "must be one of {noup,nodown,noin,noout}";
            CommandError::invalid(format_args!("unrecognized flag '{word}', {must}"))
        };
        flags |= flag.ok_or_else(bad)?;
    }
    if flags == OsdState::NONE {
        return Err(CommandError::invalid("must specify flag(s) {noup,nodwon,noin,noout}"));
    }
    Ok(flags)
}

/// Whom a command is about.
#[derive(Default)]
struct Group {
    osds: BTreeSet<OsdId>,
    nodes: BTreeSet<i32>,
    classes: BTreeSet<i32>,
    /// What could not be understood.
    problems: String,
}

fn group(c: &Cluster, words: &[std::borrow::Cow<'_, str>]) -> Group {
    let (map, crush) = (c.map(), c.map().crush());
    let mut group = Group::default();
    for word in words {
        if means_all(word) {
            group.osds = map.existing_osds().collect();
            break;
        }
        if let Ok(id) = osd_id(word) {
            group.osds.insert(id);
        } else if let Some(id) = crush.item_id(word) {
            group.nodes.insert(id);
        } else if let Some(class) = crush.class_id(word) {
            group.classes.insert(class);
        } else {
            let text = "unable to parse osd id or crush node or device class";
            group.problems.push_str(&format!("{text}: \"{word}\". "));
        }
    }
    group
}

fn turn_group(c: &mut Cluster, flags: OsdState, group: &Group, on: bool) -> Reply {
    if group.osds.is_empty() && group.nodes.is_empty() && group.classes.is_empty() {
        let problems = match group.problems.as_str() {
            "" => "no OSD, CRUSH node or device class is named",
            problems => problems,
        };
        return Err(CommandError::invalid(problems));
    }
    let mut said = group.problems.clone();
    let next = |now: OsdState| if on { now.with(flags) } else { now.without(flags) };
    c.change(|inc, map| {
        for &id in &group.osds {
            if !map.exists(id) {
                said.push_str(&format!("osd.{id} does not exist. "));
                continue;
            }
            let now = map.state(id);
            let turned = OsdState(now.0 ^ next(now).0);
            if turned != OsdState::NONE {
                inc.toggle_state(id, turned);
            }
        }
        for &node in &group.nodes {
            let now = map.crush_node_flags.get(&node).copied().unwrap_or_default();
            inc.new_crush_node_flags.insert(node, next(now));
        }
        for &class in &group.classes {
            let now = map.device_class_flags.get(&class).copied().unwrap_or_default();
            inc.new_device_class_flags.insert(class, next(now));
        }
    })?;
    Ok(Answer::message(said))
}

fn set_group(c: &mut Cluster, call: &Call) -> Reply {
    let flags = group_flags(&call.args.text("flags"))?;
    let group = group(c, &call.args.list("who"));
    turn_group(c, flags, &group, true)
}

fn unset_group(c: &mut Cluster, call: &Call) -> Reply {
    let flags = group_flags(&call.args.text("flags"))?;
    let group = group(c, &call.args.list("who"));
    turn_group(c, flags, &group, false)
}

/// `osd add-noout 1`, as it was before `set-group`.
fn single(c: &mut Cluster, call: &Call) -> Reply {
    let word = call.args.prefix().rsplit(' ').next().unwrap_or_default().to_owned();
    let (verb, flag) = word.split_once('-').unwrap_or_default();
    let flags = group_flags(flag)?;
    let group = group(c, &call.args.list("ids"));
    turn_group(c, flags, &group, verb == "add")
}

fn set_ratio(c: &mut Cluster, call: &Call) -> Reply {
    let ratio = call.args.float("ratio").unwrap_or_default();
    let prefix = call.args.prefix().to_owned();
    c.change(|inc, _| {
        let place = match prefix.as_str() {
            "osd set-full-ratio" => &mut inc.new_full_ratio,
            "osd set-backfillfull-ratio" => &mut inc.new_backfillfull_ratio,
            _ => &mut inc.new_nearfull_ratio,
        };
        *place = Some(ratio as f32);
    })?;
    Ok(Answer::message(format_args!("{prefix} {}", stream(ratio))))
}

fn require_osd_release(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("release");
    let release = Release::from_name(&name)
        .ok_or_else(|| CommandError::invalid(format_args!("unrecognized release '{name}'")))?;
    let now = c.map().require_osd_release;
    if release < now {
        let text = "require_osd_release cannot be lowered once it has been set";
        return Err(CommandError::not_permitted(text));
    }
    if release > now {
        c.change(|inc, _| inc.new_require_osd_release = Some(release))?;
    }
    Ok(Answer::ok())
}

fn get_min_compat_client(c: &Cluster, _: &Call) -> Reply {
    Ok(Answer::text(format_args!("{}\n", c.map().require_min_compat_client)))
}

fn set_min_compat_client(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("version");
    let release = Release::from_name(&name)
        .ok_or_else(|| CommandError::invalid(format_args!("version {name} is not recognized")))?;
    let needed = c.map().min_compat_client();
    if release < needed {
        let text = format!(
            "osdmap current utilizes features that require {needed}; cannot set \
             require_min_compat_client below that to {release}"
        );
        return Err(CommandError::not_permitted(text));
    }
    c.change(|inc, map| {
        if map.require_min_compat_client != release {
            inc.new_require_min_compat_client = Some(release);
        }
    })?;
    Ok(Answer::message(format_args!("set require_min_compat_client to {release}")))
}

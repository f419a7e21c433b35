//! Rules.

use super::Call;
use crate::cluster::{Cluster, crush_error};
use crate::commands::{CommandDef, Reply, write};
use admin::{Answer, CommandError};
use crush::{CrushMap, RULE_ERASURE, RULE_REPLICATED, RuleMode};

pub(super) const COMMANDS: &[CommandDef] = &[
    write(
        "osd crush rule create-simple <name:String,good=crush> <root:String,good=crush> \
         <type:String,good=crush> [mode:Choices,firstn|indep]",
        "osd",
        "makes a rule that spreads copies over buckets of a type",
        create_simple,
    ),
    write(
        "osd crush rule create-replicated <name:String,good=crush> <root:String,good=crush> \
         <type:String,good=crush> [class:String,good=crush]",
        "osd",
        "the same, on OSDs of a device class only if one is given",
        create_replicated,
    ),
    write(
        "osd crush rule create-erasure <name:String,good=crush> [profile:String,good=loc]",
        "osd",
        "makes a rule for a profile of an erasure code",
        create_erasure,
    ),
    write("osd crush rule rm <name:String,good=crush>", "osd", "removes a rule", rm),
    write(
        "osd crush rule rename <srcname:String,good=crush> <dstname:String,good=crush>",
        "osd",
        "renames a rule",
        rename,
    ),
];

/// What a new rule does.
struct New<'a> {
    name: &'a str,
    root: &'a str,
    kind: &'a str,
    class: Option<&'a str>,
    mode: RuleMode,
}

/// Adds a rule unless there is one of the name. Its number if it is new.
fn add(crush: &mut CrushMap, new: &New<'_>, rule_kind: u8) -> Result<Option<u32>, CommandError> {
    if crush.rule_id(new.name).is_some() {
        return Ok(None);
    }
    let New { name, root, kind, class, mode } = *new;
    crush.add_simple_rule(name, root, kind, class, mode, rule_kind).map(Some).map_err(crush_error)
}

fn create(c: &mut Cluster, new: &New<'_>) -> Reply {
    let number = c.edit_crush(|crush| add(crush, new, RULE_REPLICATED))?;
    Ok(match number {
        Some(_) => Answer::ok(),
        None => Answer::message(format_args!("rule {} already exists", new.name)),
    })
}

fn create_simple(c: &mut Cluster, call: &Call) -> Reply {
    let (name, root, kind) =
        (call.args.text("name"), call.args.text("root"), call.args.text("type"));
    let mode = RuleMode::from_name(&call.args.text("mode")).unwrap_or(RuleMode::Firstn);
    create(c, &New { name: &name, root: &root, kind: &kind, class: None, mode })
}

fn create_replicated(c: &mut Cluster, call: &Call) -> Reply {
    let (name, root, kind) =
        (call.args.text("name"), call.args.text("root"), call.args.text("type"));
    let class = call.args.str("class").filter(|class| !class.is_empty());
    let class = class.as_deref();
    create(c, &New { name: &name, root: &root, kind: &kind, class, mode: RuleMode::Firstn })
}

fn create_erasure(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("name");
    if c.map().crush().rule_id(&name).is_some() {
        return Ok(Answer::message(format_args!("rule {name} already exists")));
    }
    let of = call.args.str("profile").filter(|p| !p.is_empty()).unwrap_or("default".into());
    let profile = c.map().erasure_code_profiles.get(&*of).cloned().ok_or_else(|| {
        CommandError::not_found(format_args!("unknown erasure code profile '{of}'"))
    })?;
    let get = |key: &str, default: &str| {
        let value = profile.get(key).filter(|v| !v.is_empty());
        value.map_or_else(|| default.to_owned(), Clone::clone)
    };
    let (root, kind, class) = (
        get("crush-root", "default"),
        get("crush-failure-domain", "host"),
        get("crush-device-class", ""),
    );
    let shards = |key: &str| get(key, "2").parse::<u8>().unwrap_or(2);
    let width = shards("k").saturating_add(shards("m"));
    let class = Some(class.as_str()).filter(|c| !c.is_empty());
    let new = New { name: &name, root: &root, kind: &kind, class, mode: RuleMode::Indep };
    let number = c.edit_crush(|crush| {
        let number = add(crush, &new, RULE_ERASURE)?;
        if let Some(number) = number {
            crush.set_rule_max_size(number, width).map_err(crush_error)?;
        }
        Ok(number)
    })?;
    Ok(Answer::message(match number {
        Some(number) => format!("created rule {name} at {number}"),
        None => format!("rule {name} already exists"),
    }))
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("name");
    let Some(number) = c.map().crush().rule_id(&name) else {
        return Ok(Answer::message(format_args!("rule {name} does not exist")));
    };
    let ruleset = c.map().crush().rule(number).map(|r| r.ruleset);
    if c.map().pools.values().any(|p| Some(p.crush_rule) == ruleset) {
        let text = format!("crush ruleset {name} {number} is in use");
        return Err(CommandError::busy(text));
    }
    c.edit_crush(|crush| crush.remove_rule(number).map_err(crush_error))?;
    Ok(Answer::ok())
}

fn rename(c: &mut Cluster, call: &Call) -> Reply {
    let (src, dst) = (call.args.text("srcname"), call.args.text("dstname"));
    if src.is_empty() || dst.is_empty() {
        let text = "must specify both source rule name and destination rule name";
        return Err(CommandError::invalid(text));
    }
    c.edit_crush(|crush| match (crush.rule_id(&src), crush.rule_id(&dst)) {
        (None, Some(_)) => Ok(()),
        _ => crush.rename_rule(&src, &dst).map_err(crush_error),
    })?;
    // Ceph says the same the first time: it looks again after the commit.
    Ok(Answer::message(format_args!("already renamed to '{dst}'")))
}

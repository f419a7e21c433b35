//! Buckets and devices: adding, moving, removing, weights.

use super::{Call, item, location, not_there, weight};
use crate::cluster::{Cluster, crush_error};
use crate::commands::{CommandDef, Reply, old, write};
use admin::units::stream;
use admin::{Answer, CommandError};
use crush::{CrushError, CrushMap};
use types::OsdId;

pub(super) const COMMANDS: &[CommandDef] = &[
    write(
        "osd crush add-bucket <name:String,good=crush> <type:String> [args:String,good=loc]...",
        "osd",
        "makes a bucket, at a place if one is given",
        add_bucket,
    ),
    write(
        "osd crush rename-bucket <srcname:String,good=crush> <dstname:String,good=crush>",
        "osd",
        "renames a bucket",
        rename_bucket,
    ),
    write(
        "osd crush set <id:OsdName> <weight:Float,0.0> <args:String,good=loc>...",
        "osd",
        "sets weight and place of an OSD",
        set,
    ),
    write(
        "osd crush add <id:OsdName> <weight:Float,0.0> <args:String,good=loc>...",
        "osd",
        "adds an OSD, with weight and place",
        set,
    ),
    write(
        "osd crush create-or-move <id:OsdName> <weight:Float,0.0> <args:String,good=loc>...",
        "osd",
        "adds an OSD, or moves it with the weight it has",
        create_or_move,
    ),
    write(
        "osd crush move <name:String,good=crush> <args:String,good=loc>...",
        "osd",
        "moves a bucket or OSD to another place",
        move_item,
    ),
    write(
        "osd crush swap-bucket <source:String,good=crush> <dest:String,good=crush> \
         [yes_i_really_mean_it:Bool]",
        "osd",
        "exchanges what two buckets contain",
        swap_bucket,
    ),
    write(
        "osd crush link <name:String> <args:String,good=loc>...",
        "osd",
        "lets a bucket stand in one more place",
        link,
    ),
    write(
        "osd crush rm <name:String,good=crush> [ancestor:String,good=crush]",
        "osd",
        "removes a bucket or OSD from everywhere, or from below a bucket",
        rm,
    ),
    old(write(
        "osd crush remove <name:String,good=crush> [ancestor:String,good=crush]",
        "osd",
        "see rm",
        rm,
    )),
    write(
        "osd crush unlink <name:String,good=crush> [ancestor:String,good=crush]",
        "osd",
        "takes a bucket or OSD from its place, or from below a bucket",
        rm,
    ),
    write("osd crush reweight-all", "osd", "adds up the weights of all buckets anew", reweight_all),
    write(
        "osd crush reweight <name:String,good=crush> <weight:Float,0.0>",
        "osd",
        "sets the weight of an OSD",
        reweight,
    ),
    write(
        "osd crush reweight-subtree <name:String,good=crush> <weight:Float,0.0>",
        "osd",
        "sets the weight of all OSDs below a bucket",
        reweight_subtree,
    ),
];

fn add_bucket(c: &mut Cluster, call: &Call) -> Reply {
    let (name, kind) = (call.args.text("name"), call.args.text("type"));
    let place = location(call)?;
    let message = c.edit_crush(|crush| {
        if crush.item_id(&name).is_some() {
            return Ok(format!("bucket '{name}' already exists"));
        }
        match crush.type_id(&kind) {
            None => {
                let text = format!("type '{kind}' does not exist");
                return Err(CommandError::invalid(text));
            }
            Some(0) => return Err(CommandError::invalid("type may not be osd")),
            Some(_) => {}
        }
        crush.add_bucket(&name, &kind, &place).map_err(crush_error)?;
        Ok(match place.is_empty() {
            true => format!("added bucket {name} type {kind} to crush map"),
            false => format!("added bucket {name} type {kind} to location {place}"),
        })
    })?;
    Ok(Answer::message(message))
}

fn rename_bucket(c: &mut Cluster, call: &Call) -> Reply {
    let (src, dst) = (call.args.text("srcname"), call.args.text("dstname"));
    let message = c.edit_crush(|crush| match crush.rename_bucket(&src, &dst) {
        Ok(()) => Ok(format!("renamed bucket {src} into {dst}")),
        // It looks as if it had been done before.
        Err(e @ CrushError::RenameDone { .. }) => Ok(e.to_string()),
        Err(e) => Err(crush_error(e)),
    })?;
    Ok(Answer::message(message))
}

/// An OSD that is in the OSDMap.
fn existing_osd(c: &Cluster, call: &Call, dot: &str) -> Result<OsdId, CommandError> {
    let id = call.osd("id")?;
    if !c.map().exists(id) {
        let text = format!("osd.{id} does not exist{dot} before updating the crush map");
        return Err(CommandError::not_found(text));
    }
    Ok(id)
}

fn set(c: &mut Cluster, call: &Call) -> Reply {
    let id = existing_osd(c, call, ". Create it")?;
    let (typed, fixed) = weight(call)?;
    let place = location(call)?;
    let name = format!("osd.{id}");
    let adds = call.args.prefix() == "osd crush add";
    let (word, changed) = c.edit_crush(|crush| {
        if !adds && !crush.is_placed(id.0) {
            let text = format!(
                "unable to set item id {id} name '{name}' weight {} at location \
                                {place}: does not exist",
                stream(typed)
            );
            return Err(CommandError::not_found(text));
        }
        match adds && !crush.is_placed(id.0) {
            true => crush.insert_item(id.0, fixed, &name, &place).map(|()| ("add", true)),
            false => crush.update_item(id.0, fixed, &name, &place).map(|changed| ("set", changed)),
        }
        .map_err(crush_error)
    })?;
    let end = if changed { " to crush map" } else { ": no change" };
    Ok(Answer::message(format_args!(
        "{word} item id {id} name '{name}' weight {} at location {place}{end}",
        stream(typed)
    )))
}

fn create_or_move(c: &mut Cluster, call: &Call) -> Reply {
    let id = existing_osd(c, call, ".  create it")?;
    let (typed, fixed) = weight(call)?;
    let place = location(call)?;
    let name = format!("osd.{id}");
    let changed = c.edit_crush(|crush| {
        crush.create_or_move_item(id.0, fixed, &name, &place).map_err(crush_error)
    })?;
    let word = if changed { "updating" } else { "updated" };
    Ok(Answer::message(format_args!(
        "create-or-move {word} item name '{name}' weight {} at location {place} to crush map",
        stream(typed)
    )))
}

/// Whether an item stands at a place already.
fn stands_at(crush: &CrushMap, id: i32, place: &crush::Location) -> bool {
    crush.weight_at(id, place).is_some()
}

fn move_item(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("name");
    let place = location(call)?;
    let (id, moved) = c.edit_crush(|crush| {
        let id = crush.item_id(&name);
        let id =
            id.ok_or_else(|| CommandError::not_found(format_args!("item {name} does not exist")))?;
        if stands_at(crush, id, &place) {
            return Ok((id, false));
        }
        match id >= 0 {
            true => {
                let weight = crush.item_weight(id).unwrap_or(0);
                crush.create_or_move_item(id, weight, &name, &place).map(|_| ())
            }
            false => crush.move_bucket(id, &place),
        }
        .map_err(crush_error)?;
        Ok((id, true))
    })?;
    let word = if moved { "moved" } else { "no need to move" };
    Ok(Answer::message(format_args!(
        "{word} item id {id} name '{name}' to location {place} in crush map"
    )))
}

fn swap_bucket(c: &mut Cluster, call: &Call) -> Reply {
    let (src, dst) = (call.args.text("source"), call.args.text("dest"));
    c.edit_crush(|crush| {
        let id = |which: &str, name: &str| {
            let none =
                || CommandError::not_found(format_args!("{which} item {name} does not exist"));
            crush.item_id(name).ok_or_else(none)
        };
        let (a, b) = (id("source", &src)?, id("dest", &dst)?);
        if crush.is_placed(a) && !call.sure() {
            return Err(CommandError::not_permitted(format_args!(
                "source item {src} is not an orphan bucket; pass --yes-i-really-mean-it to \
                 proceed anyway"
            )));
        }
        crush.swap_buckets(a, b).map_err(crush_error)
    })?;
    Ok(Answer::message(format_args!("swapped bucket of {src} to {dst}")))
}

fn link(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("name");
    let place = location(call)?;
    let (id, done) = c.edit_crush(|crush| {
        let id = crush.item_id(&name);
        let id =
            id.ok_or_else(|| CommandError::not_found(format_args!("item {name} does not exist")))?;
        if stands_at(crush, id, &place) {
            return Ok((id, false));
        }
        crush.link_bucket(id, &place).map_err(crush_error)?;
        Ok((id, true))
    })?;
    let word = if done { "linked" } else { "no need to move" };
    let text = format!("{word} item id {id} name '{name}' to location {place} in crush map");
    Ok(Answer::message(text))
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("name");
    let unlink = call.args.prefix().ends_with("unlink");
    let ancestor = call.args.str("ancestor");
    let message = c.edit_crush(|crush| {
        let Some(id) = crush.item_id(&name) else {
            return Ok(not_there(&name).text);
        };
        let done = match &ancestor {
            None => crush.remove_item(id, unlink),
            Some(ancestor) => {
                let below = crush.item_id(ancestor).ok_or_else(|| {
                    let text =
                        format!("ancestor item '{ancestor}' does not appear in the crush map");
                    CommandError::not_found(text)
                })?;
                crush.remove_item_under(id, below, unlink)
            }
        };
        match done {
            Ok(()) => Ok(format!("removed item id {id} name '{name}' from crush map")),
            Err(e @ CrushError::NotEmpty { .. }) => {
                Err(CommandError::new(e.errno(), admin::strerror(e.errno())))
            }
            Err(_) if ancestor.is_some() => {
                Ok(format!("item {id} does not appear in that position"))
            }
            Err(e) => Err(crush_error(e)),
        }
    })?;
    Ok(Answer::message(message))
}

fn reweight_all(c: &mut Cluster, _: &Call) -> Reply {
    c.edit_crush(|crush| crush.reweight_all().map_err(crush_error))?;
    Ok(Answer::message("reweighted crush hierarchy"))
}

fn reweight(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("name");
    let (typed, fixed) = weight(call)?;
    let id = c.edit_crush(|crush| {
        let id = item(crush, &name)?;
        if id < 0 {
            let text = format!("device '{name}' is not a leaf in the crush map");
            return Err(CommandError::invalid(text));
        }
        crush.reweight_item(id, fixed).map_err(crush_error)?;
        Ok(id)
    })?;
    let text = format!("reweighted item id {id} name '{name}' to {} in crush map", stream(typed));
    Ok(Answer::message(text))
}

fn reweight_subtree(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("name");
    let (typed, fixed) = weight(call)?;
    let id = c.edit_crush(|crush| {
        let id = item(crush, &name)?;
        if id >= 0 {
            let text = format!("device '{name}' is not a subtree in the crush map");
            return Err(CommandError::invalid(text));
        }
        crush.reweight_subtree(id, fixed).map_err(crush_error)?;
        Ok(id)
    })?;
    let text =
        format!("reweighted subtree id {id} name '{name}' to {} in crush map", stream(typed));
    Ok(Answer::message(text))
}

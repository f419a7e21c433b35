//! Device classes.

use super::Call;
use crate::cluster::{Cluster, crush_error};
use crate::commands::osd::osd_id;
use crate::commands::{CommandDef, Reply, write};
use admin::{Answer, CommandError};
use crush::CrushError;
use types::OsdId;

pub(super) const COMMANDS: &[CommandDef] = &[
    write(
        "osd crush class create <class:String,good=class>",
        "osd",
        "makes a device class",
        create,
    ),
    write(
        "osd crush class rm <class:String,good=class>",
        "osd",
        "removes a device class, also from its OSDs",
        rm,
    ),
    write(
        "osd crush class rename <srcname:String,good=class> <dstname:String,good=class>",
        "osd",
        "renames a device class",
        rename,
    ),
    write(
        "osd crush set-device-class <class:String> <ids:String>...",
        "osd",
        "gives OSDs a device class",
        set_device_class,
    ),
    write(
        "osd crush rm-device-class <ids:String>...",
        "osd",
        "takes the device class of OSDs away",
        rm_device_class,
    ),
];

fn create(c: &mut Cluster, call: &Call) -> Reply {
    let class = call.args.text("class");
    let message =
        c.edit_crush(|crush| match crush.create_class(&class).map_err(crush_error)? {
            true => {
                let id = crush.class_id(&class).unwrap_or(-1);
                Ok(format!("created class {class} with id {id} to crush map"))
            }
            false => Ok(format!("class '{class}' already exists")),
        })?;
    Ok(Answer::message(message))
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    let class = call.args.text("class");
    let message = c.edit_crush(|crush| {
        let Some(id) = crush.class_id(&class) else { return Ok(String::new()) };
        crush.remove_class(&class).map_err(|e| match e {
            CrushError::ClassInUse(_) => {
                let text = format!("class '{class}' {e}");
                CommandError::new(e.errno(), text)
            }
            e => crush_error(e),
        })?;
        Ok(format!("removed class {class} with id {id} from crush map"))
    })?;
    Ok(Answer::message(message))
}

fn rename(c: &mut Cluster, call: &Call) -> Reply {
    let (src, dst) = (call.args.text("srcname"), call.args.text("dstname"));
    c.edit_crush(|crush| {
        crush.rename_class(&src, &dst).map_err(|e| {
            let why = admin::strerror(e.errno());
            let text = format!("fail to rename '{src}' to '{dst}' : {why}");
            CommandError::new(e.errno(), text)
        })
    })?;
    Ok(Answer::message(format_args!("rename class '{src}' to '{dst}'")))
}

/// The OSDs a command names, and what was wrong with those that are left out.
fn named(c: &Cluster, call: &Call) -> Result<(Vec<OsdId>, String), CommandError> {
    let map = c.map();
    let mut osds = Vec::new();
    let mut problems = String::new();
    for word in call.args.list("ids") {
        if matches!(&*word, "any" | "all" | "*") {
            return Ok((map.existing_osds().collect(), problems));
        }
        let id = osd_id(&word).map_err(|why| {
            CommandError::invalid(format_args!("{why}, unable to parse osd id:\"{word}\". "))
        })?;
        match map.exists(id) {
            true => osds.push(id),
            false => problems.push_str(&format!("osd.{id} does not exist. ")),
        }
    }
    Ok((osds, problems))
}

fn set_device_class(c: &mut Cluster, call: &Call) -> Reply {
    let class = call.args.text("class");
    let (osds, problems) = named(c, call)?;
    let (said, done) = c.edit_crush(|crush| {
        let ids: Vec<_> = osds.iter().map(|osd| osd.0).collect();
        let done = crush.set_device_classes(&ids, &class).map_err(crush_error)?;
        let mut said = String::new();
        let mut new = done.iter().peekable();
        for id in ids {
            if new.next_if_eq(&&id).is_none() {
                said.push_str(&format!(
                    "osd.{id} already set to class {class}. set-device-class item id {id} name \
                     'osd.{id}' device_class '{class}': no change. "
                ));
            }
        }
        Ok((said, done))
    })?;
    let done = crate::show::join(done, ",");
    Ok(Answer::message(format_args!("{said}{problems}set osd(s) {done} to class '{class}'")))
}

fn rm_device_class(c: &mut Cluster, call: &Call) -> Reply {
    let (osds, problems) = named(c, call)?;
    let (said, done) = c.edit_crush(|crush| {
        let with_class = |osd: &OsdId| crush.item_class(osd.0).is_some();
        let (had, had_none): (Vec<_>, Vec<_>) = osds.into_iter().partition(with_class);
        let said: String =
            had_none.iter().map(|id| format!("osd.{id} belongs to no class, ")).collect();
        let ids: Vec<_> = had.iter().map(|osd| osd.0).collect();
        let done = crush.remove_device_classes(&ids).map_err(crush_error)?;
        Ok((said, done))
    })?;
    let done = crate::show::join(done, ",");
    Ok(Answer::message(format_args!("{said}{problems}done removing class of osd(s): {done}")))
}

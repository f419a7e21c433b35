//! Ids of OSDs: giving them out, and taking them back.

use super::check_exists;
use super::safe::check_destroy;
use crate::cluster::{Cluster, crush_error};
use crate::commands::{Call, CommandDef, Reply, old, write};
use crate::osds::{destroy, recreate, register, remove};
use admin::command::flags;
use admin::{Answer, CommandError};
use maps::OsdState;
use serde_json::json;
use types::{Errno, OsdId, Uuid};

pub(super) const COMMANDS: &[CommandDef] = &[
    write(
        "osd new <uuid:UUID> [id:OsdName]",
        "osd",
        "gives out an id for a new OSD, or the id of one that is destroyed",
        new,
    ),
    old(write("osd create [uuid:UUID] [id:OsdName]", "osd", "gives out an id", create)),
    write("osd setmaxosd <newmax:Int,0>", "osd", "sets how many ids OSDs may have", setmaxosd),
    write(
        "osd lost <id:OsdName> [yes_i_really_mean_it:Bool]",
        "osd",
        "nobody shall wait for what an OSD knows; THIS CAN LOSE DATA",
        lost,
    ),
    write(
        "osd destroy <id:OsdName> [force:Bool] [yes_i_really_mean_it:Bool]",
        "osd",
        "marks an OSD's data as gone; its id and place stay for the disk that replaces it",
        destroy_checked,
    ),
    write(
        "osd purge <id:OsdName> [force:Bool] [yes_i_really_mean_it:Bool]",
        "osd",
        "removes everything about an OSD: data, id and place",
        purge_checked,
    ),
    write(
        "osd destroy-actual <id:OsdName> [yes_i_really_mean_it:Bool]",
        "osd",
        "destroy, without a look at its PGs",
        destroy_sure,
    )
    .with_flags(flags::HIDDEN),
    write(
        "osd purge-actual <id:OsdName> [yes_i_really_mean_it:Bool]",
        "osd",
        "purge, without a look at its PGs",
        purge_sure,
    )
    .with_flags(flags::HIDDEN),
    write(
        "osd purge-new <id:OsdName> [yes_i_really_mean_it:Bool]",
        "osd",
        "purge, of an OSD that never was started",
        purge_new,
    ),
];

fn id_answer(call: &Call, id: OsdId) -> Answer {
    Answer::either(call.format(), || json!({"osdid": id.0}), || format!("{id}\n"))
}

/// Gives out an id: the one that has this disk already, the wanted one, or the lowest free one.
fn give_out(c: &mut Cluster, uuid: Uuid, wanted: Option<OsdId>) -> Result<OsdId, CommandError> {
    let map = c.map().clone();
    if let Some(has) = map.osd_by_uuid(&uuid).filter(|_| !uuid.is_nil()) {
        return match wanted {
            Some(id) if id != has => Err(CommandError::exists(format_args!(
                "uuid {uuid} already in use for different id {has}"
            ))),
            _ => Ok(has),
        };
    }
    let id = wanted.unwrap_or_else(|| c.free_id());
    c.check_osd_id(id)?;
    let destroyed = map.state(id).contains(OsdState::DESTROYED);
    if map.exists(id) && !destroyed {
        return Err(CommandError::exists(format_args!(
            "id {id} already in use and does not match uuid {uuid}"
        )));
    }
    if c.is_leaving(id) {
        let text = format!("osd.{id} is being removed just now; try again");
        return Err(CommandError::new(Errno::EAGAIN, text));
    }
    c.forget_gone(&uuid);
    let had = c.had(id);
    c.edit(|inc, map| {
        match destroyed {
            true => recreate(inc, map, id, uuid),
            false => register(inc, map, id, uuid, had),
        }
        Ok(id)
    })
}

fn new(c: &mut Cluster, call: &Call) -> Reply {
    let uuid = call.args.uuid("uuid").unwrap_or_default();
    if uuid.is_nil() {
        return Err(CommandError::invalid("the uuid must not be zero"));
    }
    let id = give_out(c, uuid, call.args.osd("id"))?;
    Ok(id_answer(call, id))
}

fn create(c: &mut Cluster, call: &Call) -> Reply {
    let uuid = call.args.uuid("uuid").unwrap_or_default();
    let id = give_out(c, uuid, call.args.osd("id"))?;
    Ok(id_answer(call, id))
}

fn setmaxosd(c: &mut Cluster, call: &Call) -> Reply {
    let wanted = call.args.int("newmax").unwrap_or_default();
    let limit = c.settings.uint("mon_max_osd");
    let max = i32::try_from(wanted).ok().filter(|n| u64::try_from(*n).is_ok_and(|n| n <= limit));
    let max = max.ok_or_else(|| {
        let text = format!("cannot set max_osd to {wanted} which is > conf.mon_max_osd ({limit})");
        CommandError::new(Errno::ERANGE, text)
    })?;
    c.edit(|inc, map| {
        if let Some(used) = map.existing_osds().find(|id| id.0 >= max) {
            return Err(CommandError::busy(format_args!(
                "cannot shrink max_osd to {max} because osd.{used} (and possibly others) still in \
                 use"
            )));
        }
        if map.max_osd() != max {
            inc.new_max_osd = Some(max);
        }
        Ok(())
    })?;
    Ok(Answer::message(format_args!("set new max_osd = {max}")))
}

fn lost(c: &mut Cluster, call: &Call) -> Reply {
    let id = call.osd("id")?;
    if !call.sure() {
        let text = "are you SURE?  this might mean real, permanent data loss.  pass \
                    --yes-i-really-mean-it if you really do.";
        return Err(CommandError::not_permitted(text));
    }
    let epoch = c.edit(|inc, map| {
        check_exists(map, id)?;
        if map.is_up(id) {
            return Err(CommandError::busy(format_args!("osd.{id} is not down")));
        }
        let epoch = map.osd(id).map(|o| o.info.down_at).unwrap_or_default();
        inc.new_lost.insert(id, epoch);
        Ok(epoch)
    })?;
    c.forget_mark(id);
    Ok(Answer::message(format_args!("marked osd lost in epoch {epoch}")))
}

/// That an OSD is down.
fn check_down(c: &Cluster, id: OsdId) -> Result<(), CommandError> {
    match c.map().is_up(id) {
        true => Err(CommandError::busy(format_args!("osd.{id} is not `down`."))),
        false => Ok(()),
    }
}

/// That no data is lost, or that the operator says it does not matter.
fn check_safe(c: &Cluster, call: &Call) -> Result<OsdId, CommandError> {
    let id = call.osd("id")?;
    if !call.sure() && !call.args.flag("force") {
        check_destroy(c, id)?;
    }
    Ok(id)
}

/// That the operator is sure.
fn check_sure(call: &Call) -> Result<OsdId, CommandError> {
    let id = call.osd("id")?;
    if call.sure() {
        return Ok(id);
    }
    Err(CommandError::not_permitted(
        "Are you SURE?  Did you verify with 'ceph osd safe-to-destroy'?  This will mean real, \
         permanent data loss, as well as deletion of cephx and lockbox keys. Pass \
         --yes-i-really-mean-it if you really do.",
    ))
}

fn destroy_checked(c: &mut Cluster, call: &Call) -> Reply {
    let id = check_safe(c, call)?;
    destroy_it(c, call, id)
}

fn destroy_sure(c: &mut Cluster, call: &Call) -> Reply {
    let id = check_sure(call)?;
    destroy_it(c, call, id)
}

fn destroy_it(c: &mut Cluster, call: &Call, id: OsdId) -> Reply {
    check_exists(c.map(), id)?;
    check_down(c, id)?;
    if !c.map().state(id).contains(OsdState::DESTROYED) {
        let before = c.map().clone();
        c.change(|inc, map| destroy(inc, map, id))?;
        c.note_gone(call.now, id, &before);
        c.forget_key(id);
    }
    Ok(Answer::message(format_args!("destroyed osd.{id}")))
}

fn purge_checked(c: &mut Cluster, call: &Call) -> Reply {
    let id = check_safe(c, call)?;
    purge_it(c, call, id)
}

fn purge_sure(c: &mut Cluster, call: &Call) -> Reply {
    let id = check_sure(call)?;
    purge_it(c, call, id)
}

fn purge_new(c: &mut Cluster, call: &Call) -> Reply {
    let id = check_sure(call)?;
    let map = c.map();
    // A destroyed one waits for a new disk: nothing of it was started either. NEW stays with an OSD that was started
    // and that a flag keeps out.
    let was_started = map.osd(id).is_some_and(|osd| osd.info.up_from > osd.info.lost_at);
    let is_new = map.state(id).contains(OsdState::NEW) && !was_started;
    if map.exists(id) && !is_new && !map.state(id).contains(OsdState::DESTROYED) {
        let text = format!("osd.{id} was started before; use 'ceph osd purge {id}'");
        return Err(CommandError::not_permitted(text));
    }
    purge_it(c, call, id)
}

fn purge_it(c: &mut Cluster, call: &Call, id: OsdId) -> Reply {
    let map = c.map();
    let placed = map.crush().is_placed(id.0) || map.crush().item_name(id.0).is_some();
    if !map.exists(id) && !placed {
        return Ok(Answer::message(format_args!("osd.{id} does not exist")));
    }
    check_down(c, id)?;
    if placed {
        c.edit_crush(|crush| {
            crush.remove_device_class(id.0).map_err(crush_error)?;
            match crush.is_placed(id.0) {
                true => crush.remove_item(id.0, false).map_err(crush_error),
                false => Ok(()),
            }
        })?;
    }
    if c.map().exists(id) {
        let before = c.map().clone();
        c.change(|inc, map| remove(inc, map, id))?;
        c.note_gone(call.now, id, &before);
        c.forget_osd(id);
    }
    Ok(Answer::message(format_args!("purged osd.{id}")))
}

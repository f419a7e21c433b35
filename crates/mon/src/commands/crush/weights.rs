//! Weight-sets: other weights for single pools, or for all that have none of their own.

use super::Call;
use crate::cluster::{Cluster, crush_error};
use crate::commands::{CommandDef, Reply, write};
use admin::{Answer, CommandError};
use crush::{COMPAT_CHOOSE_ARGS, weight_from_f64};
use maps::Release;
use types::PoolId;

pub(super) const COMMANDS: &[CommandDef] = &[
    write(
        "osd crush weight-set create-compat",
        "osd",
        "makes the weight-set for pools without one",
        create_compat,
    ),
    write(
        "osd crush weight-set create <pool:Poolname> <mode:Choices,flat|positional>",
        "osd",
        "makes a weight-set for a pool; positional: with weights for each copy",
        create,
    ),
    write("osd crush weight-set rm <pool:Poolname>", "osd", "removes the weight-set of a pool", rm),
    write(
        "osd crush weight-set rm-compat",
        "osd",
        "removes the weight-set for pools without one",
        rm_compat,
    ),
    write(
        "osd crush weight-set reweight <pool:Poolname> <item:String> <weight:Float,0.0>...",
        "osd",
        "sets an item's weight in the weight-set of a pool",
        reweight,
    ),
    write(
        "osd crush weight-set reweight-compat <item:String> <weight:Float,0.0>...",
        "osd",
        "sets an item's weight in the weight-set for pools without one",
        reweight_compat,
    ),
];

fn create_compat(c: &mut Cluster, _: &Call) -> Reply {
    c.edit_crush(|crush| {
        if crush.choose_args().any(|(id, _)| id == COMPAT_CHOOSE_ARGS) {
            return Ok(Answer::message("compat weight-set already created"));
        }
        crush.create_weight_set(COMPAT_CHOOSE_ARGS, 1).map_err(crush_error)?;
        Ok(Answer::ok())
    })
}

fn create(c: &mut Cluster, call: &Call) -> Reply {
    let client = c.map().require_min_compat_client;
    if client != Release::UNKNOWN && client < Release::LUMINOUS {
        return Err(CommandError::not_permitted(format_args!(
            "require_min_compat_client {client} < luminous, which is required for per-pool \
             weight-sets. Try 'ceph osd set-require-min-compat-client luminous' before using the \
             new interface"
        )));
    }
    let id = pool(c, call)?;
    let size = c.map().pool(id).map_or(1, |p| usize::from(p.size));
    let positions = if call.args.text("mode") == "positional" { size } else { 1 };
    c.edit_crush(|crush| {
        if crush.choose_args().any(|(set, _)| set == id.0) {
            return Ok(());
        }
        crush.create_weight_set(id.0, positions).map_err(crush_error)
    })?;
    Ok(Answer::ok())
}

/// The pool whose weights a command is about.
fn pool(c: &Cluster, call: &Call) -> Result<PoolId, CommandError> {
    let name = call.args.text("pool");
    let unknown = || CommandError::not_found(format_args!("pool '{name}' not found"));
    c.map().pool_by_name(&name).ok_or_else(unknown)
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    let id = pool(c, call)?;
    remove(c, id.0)
}

fn rm_compat(c: &mut Cluster, _: &Call) -> Reply {
    remove(c, COMPAT_CHOOSE_ARGS)
}

fn remove(c: &mut Cluster, id: i64) -> Reply {
    c.edit_crush(|crush| {
        crush.remove_weight_set(id);
        Ok(())
    })?;
    Ok(Answer::ok())
}

fn reweight(c: &mut Cluster, call: &Call) -> Reply {
    let id = pool(c, call)?;
    set(c, call, id.0, &format!("no weight-set for pool '{}'", call.args.text("pool")))
}

fn reweight_compat(c: &mut Cluster, call: &Call) -> Reply {
    set(c, call, COMPAT_CHOOSE_ARGS, "compat weight-set does not exist")
}

fn set(c: &mut Cluster, call: &Call, id: i64, missing: &str) -> Reply {
    let name = call.args.text("item");
    let weights = call.args.floats("weight").into_iter().map(weight_from_f64);
    let weights = weights.collect::<Result<Vec<u32>, _>>().map_err(CommandError::invalid)?;
    c.edit_crush(|crush| {
        let args = crush.choose_args().find(|(set, _)| *set == id).map(|(_, args)| args);
        let positions = args.ok_or_else(|| CommandError::not_found(missing))?.positions();
        if positions != weights.len() {
            let text = format!("must specify exactly {positions} weight values");
            return Err(CommandError::invalid(text));
        }
        let unknown = || CommandError::not_found(format_args!("item '{name}' does not exist"));
        let item = crush.item_id(&name).ok_or_else(unknown)?;
        crush.reweight_in_weight_set(id, item, &weights).map_err(crush_error)
    })?;
    Ok(Answer::ok())
}

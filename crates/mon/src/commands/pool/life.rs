//! Making, naming and deleting pools; their snapshots; listings.

use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, old, read, write};
use crate::pools::NewPool;
use crate::show::osdmap::with_name;
use crate::show::pool;
use admin::{Answer, CommandError};
use maps::{PgAutoscaleMode, PoolOpt};
use serde_json::{Value, json};
use types::PoolId;

pub(super) const COMMANDS: &[CommandDef] = &[
    read("osd pool ls [detail:Choices,detail]", "osd", "lists pools", ls),
    old(read("osd lspools", "osd", "lists pools with their ids", lspools)),
    write(
        "osd pool create <pool:Poolname> [pg_num:Int,0] [pgp_num:Int,0] \
         [pool_type:Choices,replicated|erasure] [erasure_code_profile:String,good=crush] \
         [rule:String] [expected_num_objects:Int,0] [size:Int,0] [pg_num_min:Int,0] \
         [pg_num_max:Int,0] [autoscale_mode:Choices,on|off|warn] [bulk:Bool] \
         [target_size_bytes:Int,0] [target_size_ratio:Float,0.0]",
        "osd",
        "makes a pool",
        create,
    ),
    write(
        "osd pool rm <pool:Poolname> [pool2:Poolname] [yes_i_really_really_mean_it:Bool] \
         [yes_i_really_really_mean_it_not_faking:Bool]",
        "osd",
        "deletes a pool with all that is in it",
        rm,
    ),
    old(write(
        "osd pool delete <pool:Poolname> [pool2:Poolname] [yes_i_really_really_mean_it:Bool] \
         [yes_i_really_really_mean_it_not_faking:Bool]",
        "osd",
        "see rm",
        rm,
    )),
    write(
        "osd pool rename <srcpool:Poolname> <destpool:Poolname>",
        "osd",
        "renames a pool",
        rename,
    ),
    write("osd pool mksnap <pool:Poolname> <snap:String>", "osd", "makes a snapshot", mksnap),
    write("osd pool rmsnap <pool:Poolname> <snap:String>", "osd", "removes a snapshot", rmsnap),
    write(
        "osd tier add <pool:Poolname> <tierpool:Poolname> \
         [force_nonempty:Choices,--force-nonempty]",
        "osd",
        "makes a cache tier",
        tier,
    ),
    write("osd tier rm <pool:Poolname> <tierpool:Poolname>", "osd", "ends a cache tier", tier),
    old(write("osd tier remove <pool:Poolname> <tierpool:Poolname>", "osd", "see rm", tier)),
    old(write("osd tier remove-overlay <pool:Poolname>", "osd", "see rm-overlay", tier)),
    write(
        "osd tier cache-mode <pool:Poolname> \
         <mode:Choices,writeback|proxy|readproxy|readonly|none> [yes_i_really_mean_it:Bool]",
        "osd",
        "says what a cache tier does",
        tier,
    ),
    write(
        "osd tier set-overlay <pool:Poolname> <overlaypool:Poolname>",
        "osd",
        "lets clients go to a cache tier",
        tier,
    ),
    write("osd tier rm-overlay <pool:Poolname>", "osd", "lets clients go to the pool", tier),
    write(
        "osd tier add-cache <pool:Poolname> <tierpool:Poolname> <size:Int,0>",
        "osd",
        "makes a cache tier of a size",
        tier,
    ),
];

fn tier(_: &mut Cluster, _: &Call) -> Reply {
    Err(CommandError::unsupported(
        "there are no cache tiers here; a faster device can take the log of an OSD's store",
    ))
}

fn ls(c: &Cluster, call: &Call) -> Reply {
    let map = c.map();
    if call.args.has("detail") {
        return Ok(Answer::either(
            call.format(),
            || {
                let all = map.pools.iter();
                all.map(|(id, p)| with_name(map, *id, "pool_id", pool::json(p))).collect()
            },
            || {
                let all = map.pools.iter().map(|(id, p)| pool::text(map, *id, p));
                all.chain(["\n".to_owned()]).collect()
            },
        ));
    }
    let names: Vec<&str> = map.pools.keys().filter_map(|id| map.pool_name(*id)).collect();
    Ok(Answer::either(
        call.format(),
        || names.clone().into(),
        || names.iter().map(|n| format!("{n}\n")).collect(),
    ))
}

fn lspools(c: &Cluster, call: &Call) -> Reply {
    let pools = || c.map().pool_names.iter();
    Ok(Answer::either(
        call.format(),
        || {
            let all = pools().map(|(id, name)| json!({"poolnum": id.0, "poolname": name}));
            Value::Array(all.collect())
        },
        || pools().map(|(id, name)| format!("{id} {name}\n")).collect(),
    ))
}

/// The rule a new pool is to have, and how many objects are expected.
///
/// For pools with copies the words on the command line are one place off: the rule stands where
/// the profile would, the number of objects where the rule would.
fn rule(c: &Cluster, call: &Call) -> Result<(Option<u32>, u64), CommandError> {
    let rule = call.args.str("rule").filter(|r| !r.is_empty());
    let shifted = call.args.str("erasure_code_profile").filter(|r| !r.is_empty());
    let expected = u64::try_from(call.args.int("expected_num_objects").unwrap_or(0)).unwrap_or(0);
    let (rule, expected) = match (shifted, rule) {
        (Some(rule), Some(number)) => {
            let bad = |_| {
                CommandError::invalid(format_args!(
                    "error parsing integer value '{number}': Expected option value to be integer, \
                     got '{number}'"
                ))
            };
            let expected = number.parse::<u64>().map_err(bad)?;
            (Some(rule), expected)
        }
        (Some(rule), None) => (Some(rule), expected),
        (None, rule) => (rule, expected),
    };
    let Some(rule) = rule else { return Ok((None, expected)) };
    let number = c.map().crush().rule_id(&rule).ok_or_else(|| {
        CommandError::not_found(format_args!("specified rule {rule} doesn't exist"))
    })?;
    Ok((Some(number), expected))
}

/// Options of a new pool that were given and are not zero.
fn options(call: &Call) -> Vec<(&'static str, PoolOpt)> {
    let int = |name: &'static str| {
        let n = call.args.int(name).filter(|n| *n > 0);
        n.map(|n| (name, PoolOpt::Int(n)))
    };
    let ratio = call.args.float("target_size_ratio").filter(|r| *r > 0.0);
    let ratio = ratio.map(|r| ("target_size_ratio", PoolOpt::Double(r)));
    let ints = ["pg_num_min", "pg_num_max", "target_size_bytes"];
    ints.into_iter().filter_map(int).chain(ratio).collect()
}

fn create(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("pool").into_owned();
    if c.has_pool_name(&name, None) {
        return Ok(Answer::message(format_args!("pool '{name}' already exists")));
    }
    if call.args.text("pool_type") == "erasure" {
        return Err(CommandError::unsupported(
            "erasure-coded pools cannot be made yet: OSDs do not do erasure coding; make a \
             replicated pool",
        ));
    }
    let (rule, expected_num_objects) = rule(c, call)?;
    let autoscale = call.args.str("autoscale_mode");
    let new = NewPool {
        name: name.clone(),
        pg_num: call.args.int("pg_num"),
        pgp_num: call.args.int("pgp_num"),
        rule,
        size: call.args.int("size"),
        expected_num_objects,
        autoscale: autoscale.and_then(|mode| PgAutoscaleMode::from_name(&mode)),
        bulk: call.args.flag("bulk"),
        options: options(call),
    };
    let made = c.create_pool(call.now, &new)?;
    let word = if made.is_some() { "created" } else { "already exists" };
    Ok(Answer::message(format_args!("pool '{name}' {word}")))
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    let name = call.args.text("pool").into_owned();
    let Some(id) = c.map().pool_by_name(&name) else {
        return Ok(Answer::message(format_args!("pool '{name}' does not exist")));
    };
    let sure = call.args.flag("yes_i_really_really_mean_it")
        || call.args.flag("yes_i_really_really_mean_it_not_faking");
    if call.args.text("pool2") != name || !sure {
        return Err(CommandError::not_permitted(format_args!(
            "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool {name}.  If you are \
             *ABSOLUTELY CERTAIN* that is what you want, pass the pool name *twice*, followed by \
             --yes-i-really-really-mean-it."
        )));
    }
    c.delete_pool(id)?;
    Ok(Answer::message(format_args!("pool '{name}' removed")))
}

fn rename(c: &mut Cluster, call: &Call) -> Reply {
    let (src, dst) = (call.args.text("srcpool"), call.args.text("destpool").into_owned());
    if c.map().pool_by_name(&src).is_none() && c.map().pool_by_name(&dst).is_some() {
        // Whoever asks again has not heard the first answer.
        return Ok(Answer::message(format_args!(
            "pool '{src}' does not exist; pool '{dst}' does -- assuming successful rename"
        )));
    }
    let id: PoolId = c.pool_id(&src)?;
    crate::pools::check_name(&dst)?;
    if dst == src || c.has_pool_name(&dst, Some(id)) {
        return Err(CommandError::exists(format_args!("pool '{dst}' already exists")));
    }
    c.change(|inc, _| _ = inc.new_pool_names.insert(id, dst.clone()))?;
    Ok(Answer::message(format_args!("pool '{src}' renamed to '{dst}'")))
}

fn mksnap(c: &mut Cluster, call: &Call) -> Reply {
    let (pool, snap) = (call.args.text("pool"), call.args.text("snap"));
    let id = c.pool_id(&pool)?;
    Ok(Answer::message(match c.make_pool_snap(call.now, id, &snap)? {
        true => format!("created pool {pool} snap {snap}"),
        false => format!("pool {pool} snap {snap} already exists"),
    }))
}

fn rmsnap(c: &mut Cluster, call: &Call) -> Reply {
    let (pool, snap) = (call.args.text("pool"), call.args.text("snap"));
    let id = c.pool_id(&pool)?;
    Ok(Answer::message(match c.remove_pool_snap(id, &snap)? {
        true => format!("removed pool {pool} snap {snap}"),
        false => format!("pool {pool} snap {snap} does not exist"),
    }))
}

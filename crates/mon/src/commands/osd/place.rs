//! PGs placed by hand: for a time, or against CRUSH.

use super::check_exists;
use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, write};
use crate::show::list;
use admin::{Answer, CommandError};
use maps::{OsdList, OsdMap, Release};
use types::{OsdId, PgId};

pub(super) const COMMANDS: &[CommandDef] = &[
    write(
        "osd pg-temp <pgid:Pgid> [id:OsdName]...",
        "osd",
        "lets other OSDs serve a PG for a time",
        pg_temp,
    ),
    write(
        "osd primary-temp <pgid:Pgid> <id:OsdName>",
        "osd",
        "lets another OSD lead a PG for a time",
        primary_temp,
    ),
    write("osd pg-upmap <pgid:Pgid> <id:OsdName>...", "osd", "says which OSDs have a PG", pg_upmap),
    write("osd rm-pg-upmap <pgid:Pgid>", "osd", "leaves a PG to CRUSH again", rm_pg_upmap),
    write(
        "osd pg-upmap-items <pgid:Pgid> <id:OsdName>...",
        "osd",
        "exchanges OSDs of a PG: FROM TO [FROM TO ..]",
        pg_upmap_items,
    ),
    write(
        "osd rm-pg-upmap-items <pgid:Pgid>",
        "osd",
        "takes back what pg-upmap-items said",
        rm_pg_upmap_items,
    ),
    write(
        "osd force-create-pg <pgid:Pgid> [yes_i_really_mean_it:Bool]",
        "osd",
        "makes a lost PG anew, empty",
        force_create_pg,
    ),
];

/// The PG a command is about.
fn pgid(map: &OsdMap, call: &Call) -> Result<PgId, CommandError> {
    let text = call.args.text("pgid");
    let pgid = call.args.pgid("pgid");
    let pgid = pgid.ok_or_else(|| CommandError::invalid(format_args!("invalid pgid '{text}'")))?;
    if !map.pg_exists(pgid) {
        return Err(CommandError::not_found(format_args!("pg {pgid} does not exist")));
    }
    Ok(pgid)
}

/// The OSDs a command names, all of which exist.
fn osds(map: &OsdMap, call: &Call) -> Result<Vec<OsdId>, CommandError> {
    let osds = call.args.osds("id");
    let osds = osds.ok_or_else(|| CommandError::invalid("unable to parse osd id value"))?;
    osds.iter().try_for_each(|&id| check_exists(map, id))?;
    Ok(osds)
}

fn pg_temp(c: &mut Cluster, call: &Call) -> Reply {
    let message = c.edit(|inc, map| {
        let pgid = pgid(map, call)?;
        let osds: OsdList = osds(map, call)?.into_iter().collect();
        let least = map.pool(pgid.pool).map_or(0, |pool| usize::from(pool.min_size));
        if !osds.is_empty() && osds.len() < least {
            let text = format!("num of osds ({}) < pool min size ({least})", osds.len());
            return Err(CommandError::invalid(text));
        }
        let message = match osds.is_empty() {
            true => format!("done cleaning up pg_temp of {pgid}"),
            false => format!("set {pgid} pg_temp mapping to {}", list(&osds)),
        };
        if map.pg_temp.get(&pgid).map(|o| &o[..]).unwrap_or_default() != &osds[..] {
            inc.new_pg_temp.insert(pgid, osds);
        }
        Ok(message)
    })?;
    Ok(Answer::message(message))
}

fn primary_temp(c: &mut Cluster, call: &Call) -> Reply {
    let id = call.osd("id")?;
    let pgid = c.edit(|inc, map| {
        let pgid = pgid(map, call)?;
        check_exists(map, id)?;
        if map.primary_temp.get(&pgid) != Some(&id) {
            inc.new_primary_temp.insert(pgid, id);
        }
        Ok(pgid)
    })?;
    Ok(Answer::message(format_args!("set {pgid} primary_temp mapping to {id}")))
}

/// That all clients understand upmaps.
fn check_clients(map: &OsdMap) -> Result<(), CommandError> {
    let client = map.require_min_compat_client;
    if client >= Release::LUMINOUS {
        return Ok(());
    }
    Err(CommandError::not_permitted(format_args!(
        "min_compat_client {client} < luminous, which is required for pg-upmap. Try 'ceph osd \
         set-require-min-compat-client luminous' before using the new interface"
    )))
}

fn pg_upmap(c: &mut Cluster, call: &Call) -> Reply {
    let message = c.edit(|inc, map| {
        check_clients(map)?;
        let pgid = pgid(map, call)?;
        let named = osds(map, call)?;
        let size = map.pool(pgid.pool).map_or(0, |p| usize::from(p.size));
        if named.len() > size {
            let text = format!("num of osds ({}) > pool size ({size})", named.len());
            return Err(CommandError::invalid(text));
        }
        let mut message = String::new();
        let mut osds = OsdList::new();
        for id in named {
            match osds.contains(&id) {
                true => message.push_str(&format!("osd.{id} already exists, ")),
                false => osds.push(id),
            }
        }
        message.push_str(&format!("set {pgid} pg_upmap mapping to {}", list(&osds)));
        if map.pg_upmap.get(&pgid) != Some(&osds) {
            inc.old_pg_upmap.remove(&pgid);
            inc.new_pg_upmap.insert(pgid, osds);
        }
        Ok(message)
    })?;
    Ok(Answer::message(message))
}

fn rm_pg_upmap(c: &mut Cluster, call: &Call) -> Reply {
    let pgid = c.edit(|inc, map| {
        check_clients(map)?;
        let pgid = pgid(map, call)?;
        inc.new_pg_upmap.remove(&pgid);
        if map.pg_upmap.contains_key(&pgid) {
            inc.old_pg_upmap.insert(pgid);
        }
        Ok(pgid)
    })?;
    Ok(Answer::message(format_args!("clear {pgid} pg_upmap mapping")))
}

/// `[0->1,1->2]`, and what was wrong with pairs that are left out.
fn pairs(
    map: &OsdMap,
    pgid: PgId,
    call: &Call,
) -> Result<(Vec<(OsdId, OsdId)>, String), CommandError> {
    let named = call.args.osds("id").unwrap_or_default();
    if !named.len().is_multiple_of(2) || named.is_empty() {
        let text = "you must specify pairs of osd ids to be remapped";
        return Err(CommandError::invalid(text));
    }
    let size = map.pool(pgid.pool).map_or(0, |p| usize::from(p.size));
    if named.len() / 2 > size {
        let text = format!("num of osd pairs ({}) > pool size ({size})", named.len() / 2);
        return Err(CommandError::invalid(text));
    }
    let mut pairs = Vec::new();
    let mut problems = String::new();
    for pair in named.chunks_exact(2) {
        let &[from, to] = pair else { continue };
        if from == to {
            problems.push_str(&format!("from osd.{from} == to osd.{to}, "));
            continue;
        }
        check_exists(map, from)?;
        check_exists(map, to)?;
        match pairs.contains(&(from, to)) {
            true => problems.push_str(&format!("osd.{from} -> osd.{to} already exists, ")),
            false => pairs.push((from, to)),
        }
    }
    if pairs.is_empty() {
        let text = format!("{problems}no valid upmap items(pairs) is specified");
        return Err(CommandError::invalid(text));
    }
    Ok((pairs, problems))
}

fn pg_upmap_items(c: &mut Cluster, call: &Call) -> Reply {
    let message = c.edit(|inc, map| {
        check_clients(map)?;
        let pgid = pgid(map, call)?;
        let (pairs, problems) = pairs(map, pgid, call)?;
        let shown = list(pairs.iter().map(|(from, to)| format!("{from}->{to}")));
        if map.pg_upmap_items.get(&pgid) != Some(&pairs) {
            inc.old_pg_upmap_items.remove(&pgid);
            inc.new_pg_upmap_items.insert(pgid, pairs);
        }
        Ok(format!("{problems}set {pgid} pg_upmap_items mapping to {shown}"))
    })?;
    Ok(Answer::message(message))
}

fn rm_pg_upmap_items(c: &mut Cluster, call: &Call) -> Reply {
    let pgid = c.edit(|inc, map| {
        check_clients(map)?;
        let pgid = pgid(map, call)?;
        inc.new_pg_upmap_items.remove(&pgid);
        if map.pg_upmap_items.contains_key(&pgid) {
            inc.old_pg_upmap_items.insert(pgid);
        }
        Ok(pgid)
    })?;
    Ok(Answer::message(format_args!("clear {pgid} pg_upmap_items mapping")))
}

fn force_create_pg(c: &mut Cluster, call: &Call) -> Reply {
    let text = call.args.text("pgid");
    let pgid = call.args.pgid("pgid");
    let pgid = pgid.ok_or_else(|| CommandError::invalid(format_args!("invalid pgid '{text}'")))?;
    if !c.map().pg_exists(pgid) {
        return Err(CommandError::not_found(format_args!("pg {pgid} should not exist")));
    }
    if !call.sure() {
        return Err(CommandError::not_permitted(
            "This command will recreate a lost (as in data lost) PG with data in it, such that the \
             cluster will give up ever trying to recover the lost data.  Do this only if you are \
             certain that all copies of the PG are in fact lost and you are willing to accept that \
             the data is permanently destroyed.  Pass --yes-i-really-mean-it to proceed.",
        ));
    }
    if c.state.creating.get(&pgid.pool).is_some_and(|c| c.left.contains(&pgid.seed)) {
        return Ok(Answer::message(format_args!("pg {pgid} already creating")));
    }
    c.order_lost_pg(pgid)?;
    Ok(Answer::message(format_args!("pg {pgid} now creating, ok")))
}

//! PGs placed by hand: for a time, or against CRUSH.

use super::{check_exists, osd_id};
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
        "osd primary-temp <pgid:Pgid> <id:String>",
        "osd",
        "lets another OSD of a PG's acting set lead it for a time, and with -1 not any more",
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

/// The OSD that is to lead; -1 for whoever does so by itself.
fn leader(call: &Call) -> Result<Option<OsdId>, CommandError> {
    match &*call.args.text("id") {
        "-1" => Ok(None),
        word => osd_id(word).map(Some).map_err(CommandError::invalid),
    }
}

fn primary_temp(c: &mut Cluster, call: &Call) -> Reply {
    let leader = leader(call)?;
    let id = leader.unwrap_or(OsdId(-1));
    let pgid = c.edit(|inc, map| {
        let pgid = pgid(map, call)?;
        if let Some(id) = leader {
            check_exists(map, id)?;
            // One without a copy would lead with nothing.
            if !map.pg_to_up_acting(pgid).acting.contains(&id) {
                let text = format!("osd.{id} is not in acting set for pg {pgid}");
                return Err(CommandError::invalid(text));
            }
        }
        if map.primary_temp.get(&pgid) != leader.as_ref() {
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

#[cfg(test)]
mod tests {
    use crate::commands::bench::Bench;
    use serde_json::json;
    use types::{OsdId, PgId};

    /// A pool of two copies on three OSDs: a PG, who acts for it, and who does not.
    fn pool(bench: &mut Bench) -> (PgId, OsdId, OsdId, OsdId) {
        let cmd = json!({"prefix": "osd pool create", "pool": "a", "pg_num": 8, "size": 2});
        let (r, outs, _) = bench.run(&cmd);
        assert_eq!(r, 0, "{outs}");
        let pgid = PgId::new(bench.c.pool_id("a").unwrap(), 3);
        let acting = bench.c.map().pg_to_up_acting(pgid).acting;
        let other = (0..3).map(OsdId).find(|id| !acting.contains(id)).unwrap();
        (pgid, acting[0], acting[1], other)
    }

    /// What is said when this OSD is to lead, and which one does so by the map then.
    fn lead(bench: &mut Bench, pgid: PgId, id: &str) -> (i32, String, Option<OsdId>) {
        let cmd = json!({"prefix": "osd primary-temp", "pgid": pgid.to_string(), "id": id});
        let (r, outs, _) = bench.run(&cmd);
        (r, outs, bench.c.map().primary_temp.get(&pgid).copied())
    }

    /// An OSD without a copy would answer that there are no objects, and take writes on top of nothing.
    #[test]
    fn only_an_osd_of_the_acting_set_leads_for_a_time() {
        let mut bench = Bench::new();
        let (pgid, _, second, other) = pool(&mut bench);
        let no = format!("osd.{other} is not in acting set for pg {pgid}");
        assert_eq!(lead(&mut bench, pgid, &format!("osd.{other}")), (-22, no, None));
        let yes = |id: OsdId| format!("set {pgid} primary_temp mapping to {id}");
        assert_eq!(lead(&mut bench, pgid, &second.to_string()), (0, yes(second), Some(second)));
        assert_eq!(lead(&mut bench, pgid, "-1"), (0, yes(OsdId(-1)), None));
    }

    #[test]
    fn whoever_leads_for_a_time_does_so_while_it_acts_and_would_not_anyway() {
        let mut bench = Bench::new();
        let (pgid, first, second, other) = pool(&mut bench);
        let temp = |bench: &mut Bench, id: OsdId| lead(bench, pgid, &id.to_string()).2;
        assert_eq!(temp(&mut bench, second), Some(second));
        let id = json!([first.0, other.0]);
        let others = json!({"prefix": "osd pg-temp", "pgid": pgid.to_string(), "id": id});
        assert_eq!(bench.run(&others).0, 0);
        assert_eq!(bench.c.map().primary_temp.get(&pgid), None);
        assert_eq!(bench.c.map().pg_to_up_acting(pgid).acting_primary, Some(first));
        let none = json!({"prefix": "osd pg-temp", "pgid": pgid.to_string(), "id": []});
        assert_eq!(bench.run(&none).0, 0);
        assert_eq!(temp(&mut bench, first), None);
    }
}

//! What the OSDMap and the OSDs' own words say.

use super::check_exists;
use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, map, read};
use crate::show::addr::addrvec_json;
use crate::show::osdmap::{self, shown_flags, stat_json, stat_line};
use crate::show::tree::{self, Filter};
use crate::show::{id_or_none, ids, list};
use admin::{Align, Answer, CommandError, TextTable};
use maps::OsdMap;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::OsdId;

pub(super) const COMMANDS: &[CommandDef] = &[
    read("osd stat", "osd", "counts OSDs", stat),
    map("osd dump [epoch:Int,0]", "shows all of the OSDMap", dump),
    read("osd info [id:OsdName]", "osd", "shows what the map says of one or all OSDs", info),
    map(
        "osd tree [epoch:Int,0] [states:Choices,up|down|in|out|destroyed]...",
        "shows the OSDs in their hierarchy",
        osd_tree,
    ),
    map(
        "osd tree-from [epoch:Int,0] <bucket:String> \
         [states:Choices,up|down|in|out|destroyed]...",
        "shows the OSDs below a bucket",
        tree_from,
    ),
    map("osd ls [epoch:Int,0]", "lists the ids of OSDs", ls),
    map("osd ls-tree [epoch:Int,0] <name:String>", "lists the OSDs below a bucket", ls_tree),
    map("osd getmap [epoch:Int,0]", "gives the OSDMap as bytes", getmap),
    read("osd getmaxosd", "osd", "shows how many ids OSDs may have", getmaxosd),
    read("osd find <id:OsdName>", "osd", "shows where an OSD is", find),
    read(
        "osd metadata [id:OsdName]",
        "osd",
        "shows what one or all OSDs say of themselves",
        metadata,
    ),
    read(
        "osd count-metadata <property:String>",
        "osd",
        "counts OSDs by a property of theirs",
        count_metadata,
    ),
    read("osd versions", "osd", "counts OSDs by their version", versions),
    read("osd numa-status", "osd", "shows on which NUMA nodes OSDs run", numa_status),
    read(
        "osd map <pool:Poolname> <object:Objectname> [nspace:String]",
        "osd",
        "shows which PG and OSDs an object belongs to",
        osd_map,
    ),
];

fn stat(c: &Cluster, call: &Call) -> Reply {
    let map = c.map();
    let remapped = || c.pgmap.sums(map).count(pg::StateBits::REMAPPED);
    Ok(Answer::either(
        call.format(),
        || stat_json(map, remapped()),
        || {
            let mut out = stat_line(map, call.now.wall);
            out.push_str(&format!("; epoch: e{}", map.epoch));
            match remapped() {
                0 => {}
                n => out.push_str(&format!("; {n} remapped pgs")),
            }
            out.push('\n');
            let flags = shown_flags(map);
            if flags.0 != 0 {
                out.push_str(&format!("flags {flags}\n"));
            }
            out
        },
    ))
}

fn dump(_: &Cluster, call: &Call, map: &OsdMap) -> Reply {
    Ok(Answer::either(call.format(), || osdmap::json(map).into(), || osdmap::text(map)))
}

fn info(c: &Cluster, call: &Call) -> Reply {
    let map = c.map();
    if !call.args.has("id") {
        return Ok(Answer::either(
            call.format(),
            || map.existing_osds().map(|id| osdmap::osd_json(map, id)).collect(),
            || map.existing_osds().map(|id| osdmap::osd_line(map, id)).collect(),
        ));
    }
    let id = call.osd("id")?;
    if !map.exists(id) {
        return Err(CommandError::invalid(format_args!("osd.{id} does not exist")));
    }
    Ok(Answer::either(call.format(), || osdmap::osd_json(map, id), || osdmap::osd_line(map, id)))
}

/// Which OSDs to show.
fn filter(call: &Call) -> Result<Filter, CommandError> {
    let words: Vec<String> = call.args.list("states").iter().map(|w| w.to_string()).collect();
    let given = |of: &[&str]| of.iter().filter(|w| words.iter().any(|x| x == *w)).count() > 1;
    let alternatives = [&["up", "down", "destroyed"][..], &["in", "out"]];
    for (of, text) in
        alternatives.into_iter().zip(["'up', 'down' and 'destroyed'", "'in' and 'out'"])
    {
        if given(of) {
            return Err(CommandError::invalid(format_args!("can specify only one of {text}")));
        }
    }
    Ok(Filter(words))
}

fn osd_tree(c: &Cluster, call: &Call, map: &OsdMap) -> Reply {
    show_tree(c, call, map, None)
}

fn show_tree(c: &Cluster, call: &Call, map: &OsdMap, from: Option<i32>) -> Reply {
    let filter = filter(call)?;
    Ok(Answer::either(
        call.format(),
        || tree::osd_json(map, &c.pool_names(), from, &filter),
        || tree::osd_text(map, from, &filter),
    ))
}

fn tree_from(c: &Cluster, call: &Call, map: &OsdMap) -> Reply {
    let name = call.args.text("bucket");
    let id = map
        .crush()
        .item_id(&name)
        .ok_or_else(|| CommandError::not_found(format_args!("bucket '{name}' does not exist")))?;
    if id >= 0 {
        return Err(CommandError::invalid(format_args!("\"{name}\" is not a bucket")));
    }
    show_tree(c, call, map, Some(id))
}

/// Ids, one a line.
fn id_list(call: &Call, osds: Vec<i32>) -> Answer {
    Answer::either(
        call.format(),
        || osds.clone().into(),
        || osds.iter().map(|id| format!("{id}\n")).collect(),
    )
}

fn ls(_: &Cluster, call: &Call, map: &OsdMap) -> Reply {
    Ok(id_list(call, map.existing_osds().map(|id| id.0).collect()))
}

fn ls_tree(_: &Cluster, call: &Call, map: &OsdMap) -> Reply {
    let name = call.args.text("name");
    let crush = map.crush();
    let root = crush
        .item_id(&name)
        .ok_or_else(|| CommandError::not_found(format_args!("\"{name}\" does not exist")))?;
    Ok(id_list(call, crush.devices_below(root).into_iter().collect()))
}

fn getmap(_: &Cluster, _: &Call, map: &OsdMap) -> Reply {
    let (bytes, _) = map.encode_with_crc();
    Ok(Answer::raw(bytes).with_message(format_args!("got osdmap epoch {}", map.epoch)))
}

fn getmaxosd(c: &Cluster, call: &Call) -> Reply {
    let (max, epoch) = (c.map().max_osd(), c.map().epoch);
    Ok(Answer::either(
        call.format(),
        || json!({"epoch": epoch.0, "max_osd": max}),
        || format!("max_osd = {max} in epoch {epoch}\n"),
    ))
}

fn find(c: &Cluster, call: &Call) -> Reply {
    let map = c.map();
    let id = call.osd("id")?;
    check_exists(map, id)?;
    let Some(osd) = map.osd(id) else { return Ok(Answer::ok()) };
    let mut out = Map::new();
    out.insert("osd".into(), id.0.into());
    out.insert("addrs".into(), addrvec_json(&osd.client_addrs));
    out.insert("osd_fsid".into(), osd.uuid.to_string().into());
    let said = c.state.osd_metadata.get(&id);
    let mut copy = |key: &str, as_key: &str| {
        if let Some(text) = said.and_then(|m| m.get(key)).filter(|t| !t.is_empty()) {
            out.insert(as_key.into(), text.as_str().into());
        }
    };
    copy("hostname", "host");
    for key in ["pod_name", "pod_namespace", "container_name"] {
        copy(key, key);
    }
    let path: BTreeMap<&str, &str> = map.crush().location_path(id.0).into_iter().collect();
    out.insert("crush_location".into(), json!(path));
    Ok(Answer::json(out.into()))
}

/// What an OSD said of itself, its id before it.
fn metadata_json(id: OsdId, said: &BTreeMap<String, String>) -> Value {
    let mut out = Map::new();
    out.insert("id".into(), id.0.into());
    out.extend(said.iter().map(|(k, v)| (k.clone(), v.as_str().into())));
    out.into()
}

fn metadata(c: &Cluster, call: &Call) -> Reply {
    let map = c.map();
    if !call.args.has("id") {
        let all = map.existing_osds().map(|id| match c.state.osd_metadata.get(&id) {
            Some(said) => metadata_json(id, said),
            None => json!({"id": id.0}),
        });
        return Ok(Answer::json(all.collect()));
    }
    let id = call.osd("id")?;
    check_exists(map, id)?;
    let said = c.state.osd_metadata.get(&id);
    let said = said.ok_or_else(|| CommandError::not_found("no metadata; has it ever booted?"))?;
    Ok(Answer::json(metadata_json(id, said)))
}

/// How many OSDs have each value of a property, of those that have ever said something of themselves.
fn count(c: &Cluster, property: &str) -> Answer {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for id in c.map().existing_osds() {
        let Some(said) = c.state.osd_metadata.get(&id) else { continue };
        let value = said.get(property).map_or("unknown", String::as_str);
        *counts.entry(value).or_default() += 1;
    }
    Answer::json(json!(counts))
}

fn count_metadata(c: &Cluster, call: &Call) -> Reply {
    Ok(count(c, &call.args.text("property")))
}

fn versions(c: &Cluster, _: &Call) -> Reply {
    Ok(count(c, "ceph_version"))
}

fn numa_status(c: &Cluster, call: &Call) -> Reply {
    let map = c.map();
    let host = |id: OsdId| {
        let said = c.state.osd_metadata.get(&id).and_then(|m| m.get("hostname"));
        said.map(String::as_str).unwrap_or_default()
    };
    Ok(Answer::either(
        call.format(),
        || map.up_osds().map(|id| json!({"osd": id.0, "host": host(id)})).collect(),
        || {
            let mut table = TextTable::new()
                .column("OSD", Align::Left, Align::Right)
                .column("HOST", Align::Left, Align::Left)
                .columns(&["NETWORK", "STORAGE", "AFFINITY"], Align::Left, Align::Right)
                .column("CPUS", Align::Left, Align::Left);
            for id in map.up_osds() {
                let row = [&id.to_string(), host(id), "-", "-", "-", "-"];
                table.row(row);
            }
            table.to_string()
        },
    ))
}

fn osd_map(c: &Cluster, call: &Call) -> Reply {
    let map = c.map();
    let (pool, object) = (call.args.text("pool"), call.args.text("object"));
    let nspace = call.args.text("nspace");
    let id = map
        .pool_by_name(&pool)
        .ok_or_else(|| CommandError::not_found(format_args!("pool {pool} does not exist")))?;
    let raw = map.object_to_pg(id, nspace.as_bytes(), b"", object.as_bytes());
    let Some((raw, pgid)) = raw.and_then(|raw| Some((raw, map.raw_pg_to_pg(raw)?))) else {
        return Err(CommandError::not_found(format_args!("pool {pool} does not exist")));
    };
    let at = map.pg_to_up_acting(pgid);
    let name = match nspace.is_empty() {
        true => object.into_owned(),
        false => format!("{nspace}/{object}"),
    };
    let (up_primary, acting_primary) = (id_or_none(at.up_primary), id_or_none(at.acting_primary));
    Ok(Answer::either(
        call.format(),
        || {
            json!({
                "epoch": map.epoch.0, "pool": pool, "pool_id": id.0, "objname": name,
                "raw_pgid": raw.to_string(), "pgid": pgid.to_string(),
                "up": ids(&at.up), "up_primary": up_primary,
                "acting": ids(&at.acting), "acting_primary": acting_primary,
            })
        },
        || {
            format!(
                "osdmap e{} pool '{pool}' ({id}) object '{name}' -> pg {raw} ({pgid}) -> up ({}, \
                 p{up_primary}) acting ({}, p{acting_primary})\n",
                map.epoch,
                list(&at.up),
                list(&at.acting)
            )
        },
    ))
}

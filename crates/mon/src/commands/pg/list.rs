//! Lists of PGs, and where one is.

use super::dump::all;
use super::json::{Fields, Part};
use super::table;
use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, read};
use crate::pgmap::PgEntry;
use crate::show::{ids, list, since};
use admin::{Answer, CommandError, Format};
use pg::StateBits;
use serde_json::json;
use std::time::Duration;
use types::{Errno, OsdId, PgId, PoolId, UTime};

pub(super) const COMMANDS: &[CommandDef] = &[
    read("pg ls [pool:Int] [states:String]...", "pg", "lists PGs, of a pool, in states", ls),
    read(
        "pg ls-by-pool <poolstr:String> [states:String]...",
        "pg",
        "lists the PGs of a pool",
        ls_by_pool,
    ),
    read(
        "pg ls-by-osd <osd:OsdName> [pool:Int] [states:String]...",
        "pg",
        "lists the PGs an OSD serves",
        ls_by_osd,
    ),
    read(
        "pg ls-by-primary <osd:OsdName> [pool:Int] [states:String]...",
        "pg",
        "lists the PGs an OSD leads",
        ls_by_primary,
    ),
    read(
        "pg dump_stuck [stuckops:Choices,inactive|unclean|stale|undersized|degraded]... \
         [threshold:Int]",
        "pg",
        "lists PGs that have not been well for some seconds",
        dump_stuck,
    ),
    read("pg map <pgid:Pgid>", "pg", "shows which OSDs a PG is on", pg_map),
    read(
        "pg debug <debugop:Choices,unfound_objects_exist|degraded_pgs_exist>",
        "pg",
        "says whether there are unfound objects or degraded PGs",
        debug,
    ),
    read("pg getmap", "pg", "gives the statistics as bytes", getmap),
];

/// States by their names, as Ceph lists them.
const STATES: [(StateBits, &str); 30] = [
    (StateBits::STALE, "stale"),
    (StateBits::CREATING, "creating"),
    (StateBits::ACTIVE, "active"),
    (StateBits::ACTIVATING, "activating"),
    (StateBits::CLEAN, "clean"),
    (StateBits::RECOVERY_WAIT, "recovery_wait"),
    (StateBits::RECOVERY_TOOFULL, "recovery_toofull"),
    (StateBits::RECOVERING, "recovering"),
    (StateBits::FORCED_RECOVERY, "forced_recovery"),
    (StateBits::DOWN, "down"),
    (StateBits::RECOVERY_UNFOUND, "recovery_unfound"),
    (StateBits::BACKFILL_UNFOUND, "backfill_unfound"),
    (StateBits::UNDERSIZED, "undersized"),
    (StateBits::DEGRADED, "degraded"),
    (StateBits::REMAPPED, "remapped"),
    (StateBits::PREMERGE, "premerge"),
    (StateBits::SCRUBBING, "scrubbing"),
    (StateBits::DEEP_SCRUB, "deep"),
    (StateBits::INCONSISTENT, "inconsistent"),
    (StateBits::PEERING, "peering"),
    (StateBits::REPAIR, "repair"),
    (StateBits::BACKFILL_WAIT, "backfill_wait"),
    (StateBits::BACKFILLING, "backfilling"),
    (StateBits::FORCED_BACKFILL, "forced_backfill"),
    (StateBits::BACKFILL_TOOFULL, "backfill_toofull"),
    (StateBits::INCOMPLETE, "incomplete"),
    (StateBits::PEERED, "peered"),
    (StateBits::SNAPTRIM, "snaptrim"),
    (StateBits::SNAPTRIM_WAIT, "snaptrim_wait"),
    (StateBits::SNAPTRIM_ERROR, "snaptrim_error"),
];

/// The states that were asked for: a PG must have one of them. Empty for all PGs.
fn states(call: &Call) -> Result<Vec<StateBits>, CommandError> {
    let mut wanted = Vec::new();
    for word in call.args.list("states") {
        if word == "all" {
            return Ok(Vec::new());
        }
        let found = STATES.iter().find(|(_, name)| *name == word);
        // Nothing is known of a PG that nobody has reported.
        let unknown = (word == "unknown").then_some(StateBits::default());
        wanted.push(found.map(|(bits, _)| *bits).or(unknown).ok_or_else(|| {
            let names = crate::show::join(STATES.iter().map(|(_, name)| name), "+");
            let text = "is not a valid pg state, available choices:";
            CommandError::invalid(format_args!("'{word}' {text} {names}"))
        })?);
    }
    Ok(wanted)
}

/// PGs that pass, as `pg ls` shows them.
fn show(c: &Cluster, call: &Call, of: impl Fn(PgId, Option<&PgEntry>) -> bool) -> Reply {
    let states = states(call)?;
    let pool = call.args.int("pool").map(PoolId);
    if let Some(id) = pool.filter(|id| c.map().pool(*id).is_none()) {
        return Err(CommandError::not_found(format_args!("pool {id} does not exist")));
    }
    let mut pgs = all(c);
    pgs.retain(|&(pgid, entry)| {
        let state = c.pgmap.state(c.map(), entry);
        let wanted = |s: &StateBits| if s.0 == 0 { state.0 == 0 } else { state.has(*s) };
        (states.is_empty() || states.iter().any(wanted))
            && pool.is_none_or(|pool| pgid.pool == pool)
            && of(pgid, entry)
    });
    Ok(match pgs.is_empty() {
        _ if call.format().is_json() => json(c, call, "pg_stats", pgs),
        true => Answer::default(),
        false => Answer::text(table::ls(c, call.now, &pgs) + table::NOTE),
    })
}

fn json(c: &Cluster, call: &Call, name: &str, pgs: Vec<(PgId, Option<&PgEntry>)>) -> Answer {
    let mut out = Fields::default();
    out.value("pg_ready", true);
    out.put(name, Part::Pgs(c, pgs));
    out.answer(call.format(), Format::JsonPretty)
}

fn ls(c: &Cluster, call: &Call) -> Reply {
    show(c, call, |_, _| true)
}

fn ls_by_pool(c: &Cluster, call: &Call) -> Reply {
    let name = call.args.text("poolstr");
    let id = c
        .map()
        .pool_by_name(&name)
        .ok_or_else(|| CommandError::not_found(format_args!("pool {name} does not exist")))?;
    show(c, call, |pgid, _| pgid.pool == id)
}

fn up_osd(c: &Cluster, call: &Call) -> Result<OsdId, CommandError> {
    let id = call.osd("osd")?;
    match c.map().is_up(id) {
        true => Ok(id),
        false => Err(CommandError::new(Errno::EAGAIN, format_args!("osd {id} is not up"))),
    }
}

fn ls_by_osd(c: &Cluster, call: &Call) -> Reply {
    let id = up_osd(c, call)?;
    show(c, call, |_, e| e.is_some_and(|e| e.stat.acting.contains(&id)))
}

fn ls_by_primary(c: &Cluster, call: &Call) -> Reply {
    let id = up_osd(c, call)?;
    show(c, call, |_, e| e.is_some_and(|e| e.stat.acting_primary == id.0))
}

/// In which ways a PG can be stuck: whether it is now, and when it last was not.
fn stuck_since(c: &Cluster, now: UTime, word: &str, entry: Option<&PgEntry>) -> Option<UTime> {
    let state = c.pgmap.state(c.map(), entry);
    let s = entry.map(|e| e.stamps).unwrap_or_default();
    let stale = || entry.and_then(|e| c.pgmap.stale_since(e)).unwrap_or(now);
    let (is, well) = match word {
        "inactive" => (!state.has(StateBits::ACTIVE), s.active),
        "unclean" => (!state.has(StateBits::CLEAN), s.clean),
        "stale" => (state.has(StateBits::STALE), stale()),
        "undersized" => (state.has(StateBits::UNDERSIZED), s.fullsized),
        _ => (state.has(StateBits::DEGRADED), s.undegraded),
    };
    is.then_some(well)
}

fn dump_stuck(c: &Cluster, call: &Call) -> Reply {
    let mut words = call.args.list("stuckops");
    if words.is_empty() {
        words.push("unclean".into());
    }
    let threshold = match call.args.int("threshold") {
        Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        None => c.settings.duration("mon_pg_stuck_threshold"),
    };
    let mut pgs = all(c);
    pgs.retain(|(_, entry)| {
        let mut well = words.iter().filter_map(|word| stuck_since(c, call.now.wall, word, *entry));
        well.any(|well| since(call.now.wall, well) >= threshold)
    });
    let answer = match pgs.is_empty() {
        _ if call.format().is_json() => json(c, call, "stuck_pg_stats", pgs),
        true => Answer::default(),
        false => Answer::text(table::brief(c, &pgs)),
    };
    Ok(answer.with_message("ok"))
}

fn pg_map(c: &Cluster, call: &Call) -> Reply {
    let map = c.map();
    let text = call.args.text("pgid");
    let raw = call.args.pgid("pgid");
    let raw = raw.ok_or_else(|| CommandError::invalid(format_args!("invalid pgid '{text}'")))?;
    let pgid = map
        .raw_pg_to_pg(raw)
        .ok_or_else(|| CommandError::not_found(format_args!("pg '{raw}' does not exist")))?;
    let at = map.pg_to_up_acting(pgid);
    Ok(Answer::either(
        call.format(),
        || {
            json!({
                "epoch": map.epoch.0, "raw_pgid": raw.to_string(), "pgid": pgid.to_string(),
                "up": ids(&at.up), "acting": ids(&at.acting),
            })
        },
        || {
            let (up, acting) = (list(&at.up), list(&at.acting));
            format!("osdmap e{} pg {raw} ({pgid}) -> up {up} acting {acting}\n", map.epoch)
        },
    ))
}

fn debug(c: &Cluster, call: &Call) -> Reply {
    let sums = c.pgmap.sums(c.map());
    let yes = match &*call.args.text("debugop") {
        "unfound_objects_exist" => sums.total.num_objects_unfound > 0,
        _ => sums.total.num_objects_degraded > 0,
    };
    Ok(Answer::text(if yes { "TRUE\n" } else { "FALSE\n" }))
}

fn getmap(_: &Cluster, _: &Call) -> Reply {
    Err(CommandError::unsupported(
        "the statistics have no form as bytes here; use 'ceph pg dump -f json'",
    ))
}

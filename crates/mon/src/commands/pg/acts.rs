//! What a PG can be told: to scrub, to repair, to be recovered first. What OSDs cannot do yet is
//! refused, rather than promised and not kept.

use crate::cluster::Cluster;
use crate::commands::osd::osd_id;
use crate::commands::{Call, CommandDef, Reply, write};
use crate::scrubs::ScrubKind;
use admin::{Answer, CommandError};
use maps::OsdList;
use peer::RecoveryOrder;
use pg::StateBits;
use std::collections::{BTreeMap, BTreeSet};
use types::{Errno, OsdId, PgId};

pub(super) const COMMANDS: &[CommandDef] = &[
    write("pg scrub <pgid:Pgid>", "pg", "compares the copies of a PG", scrub_one),
    write("pg deep-scrub <pgid:Pgid>", "pg", "compares the copies of a PG byte by byte", scrub_one),
    write("pg repair <pgid:Pgid>", "pg", "replaces bad copies in a PG by good ones", scrub_one),
    write("pg repeer <pgid:Pgid>", "pg", "lets a PG peer again", repeer),
    write("pg force-recovery <pgid:Pgid>...", "pg", "recovers PGs first", force),
    write("pg force-backfill <pgid:Pgid>...", "pg", "backfills PGs first", force),
    write("pg cancel-force-recovery <pgid:Pgid>...", "pg", "takes force-recovery back", force),
    write("pg cancel-force-backfill <pgid:Pgid>...", "pg", "takes force-backfill back", force),
    write("osd pool scrub <who:Poolname>...", "osd", "scrubs pools", scrub_pools),
    write("osd pool deep-scrub <who:Poolname>...", "osd", "deep-scrubs pools", scrub_pools),
    write("osd pool repair <who:Poolname>...", "osd", "repairs pools", scrub_pools),
    write("osd pool force-recovery <who:Poolname>...", "osd", "recovers pools first", force_pools),
    write("osd pool force-backfill <who:Poolname>...", "osd", "backfills pools first", force_pools),
    write(
        "osd pool cancel-force-recovery <who:Poolname>...",
        "osd",
        "takes force-recovery back",
        force_pools,
    ),
    write(
        "osd pool cancel-force-backfill <who:Poolname>...",
        "osd",
        "takes force-backfill back",
        force_pools,
    ),
    write("osd scrub <who:String>", "osd", "scrubs the PGs an OSD leads", scrub_osds),
    write("osd deep-scrub <who:String>", "osd", "deep-scrubs the PGs an OSD leads", scrub_osds),
    write("osd repair <who:String>", "osd", "repairs the PGs an OSD leads", scrub_osds),
    write("osd stop <ids:String>...", "osd", "asks OSDs to stop", stop),
];

fn check_pg(c: &Cluster, text: &str) -> Result<(), CommandError> {
    let pgid: Result<PgId, ()> = text.parse();
    let pgid = pgid.map_err(|()| CommandError::invalid(format_args!("invalid pgid '{text}'")))?;
    match c.map().pg_exists(pgid) {
        true => Ok(()),
        false => Err(CommandError::not_found(format_args!("pg {pgid} does not exist"))),
    }
}

/// Begins a new interval: another of its OSDs is asked to lead for a moment. When they have agreed, it
/// asks for the usual order again.
fn repeer(c: &mut Cluster, call: &Call) -> Reply {
    let text = call.args.text("pgid");
    if call.args.pgid("pgid").is_some_and(|pgid| !c.map().pg_exists(pgid)) {
        return Err(CommandError::not_found(format_args!("pg '{text}' does not exist")));
    }
    let again = |why: String| CommandError::new(Errno::EAGAIN, why);
    c.edit(|inc, map| {
        let Some(pgid) = call.args.pgid("pgid") else { return Ok(()) };
        let mapping = map.pg_to_up_acting(pgid);
        if mapping.acting_primary.is_none() {
            return Err(again(format!("pg {pgid} currently has no primary")));
        }
        let mut others: OsdList = mapping.acting.iter().copied().collect();
        if others.len() < 2 {
            return Err(again(format!("pg {pgid} has no OSD but its primary that could lead it")));
        }
        others.rotate_left(1);
        match map.pg_temp.contains_key(&pgid) {
            true => inc.new_pg_temp.insert(pgid, OsdList::new()),
            false => inc.new_pg_temp.insert(pgid, others),
        };
        Ok(())
    })?;
    Ok(Answer::ok())
}

/// What is to be forced, or no longer.
#[derive(Clone, Copy)]
struct Force {
    backfill: bool,
    cancel: bool,
}

impl Force {
    fn of(call: &Call) -> (Force, String) {
        let word = call.args.prefix().rsplit(' ').next().unwrap_or_default().to_owned();
        let (backfill, cancel) = (word.ends_with("backfill"), word.starts_with("cancel"));
        (Force { backfill, cancel }, word)
    }

    /// Why there is nothing to be done about a PG, in Ceph's words (`mgr/DaemonServer.cc`).
    fn pointless(self, state: StateBits) -> Option<&'static str> {
        use StateBits as S;
        let any = |all: &[S]| all.iter().any(|s| state.has(*s));
        match (self.backfill, self.cancel) {
            (false, false) if !any(&[S::DEGRADED, S::RECOVERY_WAIT, S::RECOVERING]) => {
                Some("doesn't require recovery")
            }
            (false, false) if any(&[S::FORCED_RECOVERY]) => Some("recovery already forced"),
            (true, false)
                if !any(&[S::DEGRADED, S::BACKFILL_WAIT, S::BACKFILLING, S::BACKFILL_TOOFULL]) =>
            {
                Some("doesn't require backfilling")
            }
            (true, false) if any(&[S::FORCED_BACKFILL]) => Some("backfill already forced"),
            (false, true) if !any(&[S::FORCED_RECOVERY]) => Some("recovery not forced"),
            (true, true) if !any(&[S::FORCED_BACKFILL]) => Some("backfill not forced"),
            _ => None,
        }
    }
}

/// The PGs by their primaries, and those that have none.
fn by_primary(
    c: &Cluster,
    pgs: impl IntoIterator<Item = PgId>,
) -> (BTreeMap<OsdId, Vec<PgId>>, Vec<PgId>) {
    let (mut by, mut without) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
    for pgid in pgs {
        match c.map().pg_to_up_acting(pgid).acting_primary {
            Some(osd) => by.entry(osd).or_default().push(pgid),
            None => without.push(pgid),
        }
    }
    (by, without)
}

/// Orders it of the primaries, and says what was ordered and what was not.
fn order_force(c: &mut Cluster, force: Force, word: &str, pgs: &[PgId]) -> String {
    let mut said = Vec::new();
    let useful = pgs.iter().copied().filter(|pgid| {
        let why = force.pointless(c.pgmap.state(c.map(), c.pgmap.get(*pgid)));
        said.extend(why.map(|why| format!("pg {pgid} {why}; ")));
        why.is_none()
    });
    let (by, without) = by_primary(c, useful);
    let epoch = c.map().epoch;
    said.extend(without.iter().map(|pgid| format!("pg {pgid} has no primary osd; ")));
    for (osd, pgs) in by {
        if !c.osd_links.contains_key(&osd) {
            said.push(format!("osd.{osd} is not currently connected; "));
            continue;
        }
        let names = crate::show::join(pgs.iter().map(PgId::to_string), ",");
        said.push(format!("instructing pg(s) [{names}] on osd.{osd} to {word}; "));
        let Force { backfill, cancel } = force;
        c.recovery_orders.push((osd, RecoveryOrder { epoch, pgs, backfill, cancel }));
    }
    said.concat()
}

fn force(c: &mut Cluster, call: &Call) -> Reply {
    let (force, word) = Force::of(call);
    let mut named = BTreeSet::new();
    for text in call.args.list("pgid") {
        let bad = |()| CommandError::invalid(format_args!("invalid pgid '{text}'"));
        named.insert(text.parse::<PgId>().map_err(bad)?);
    }
    let (pgs, unknown): (Vec<PgId>, Vec<PgId>) =
        named.into_iter().partition(|pgid| c.map().pg_exists(*pgid));
    let mut said: String = unknown.iter().map(|p| format!("pg {p} does not exist; ")).collect();
    said.push_str(&order_force(c, force, &word, &pgs));
    let answer = Answer::message(said);
    Ok(if unknown.is_empty() { answer } else { answer.with_errno(Errno::ENOENT) })
}

fn force_pools(c: &mut Cluster, call: &Call) -> Reply {
    let (force, word) = Force::of(call);
    let mut pgs = Vec::new();
    for name in call.args.list("who") {
        let id = c.pool_id(&name)?;
        pgs.extend(c.map().pool(id).into_iter().flat_map(|p| p.pgs(id)));
    }
    Ok(Answer::message(order_force(c, force, &word, &pgs)))
}

/// `scrub`, `deep-scrub` or `repair`, by the last word of a command.
fn scrub_word(call: &Call) -> String {
    call.args.prefix().rsplit(' ').next().unwrap_or_default().to_owned()
}

/// Lets the primaries of PGs scrub them, when what the command changes is committed: nothing. Who does
/// not lead yet, or is not connected, is told later.
fn order(c: &mut Cluster, word: &str, pgs: impl IntoIterator<Item = PgId>) {
    let kind = ScrubKind { deep: word == "deep-scrub", repair: word == "repair" };
    c.order_scrubs(kind, pgs);
}

fn scrub_one(c: &mut Cluster, call: &Call) -> Reply {
    let text = call.args.text("pgid");
    check_pg(c, &text)?;
    let Some(pgid) = call.args.pgid("pgid") else {
        return Err(CommandError::invalid(format_args!("invalid pgid '{text}'")));
    };
    let again = |why: String| Err(CommandError::new(Errno::EAGAIN, why));
    let Some(osd) = c.map().pg_to_up_acting(pgid).acting_primary else {
        return again(format!("pg {pgid} has no primary osd"));
    };
    let word = scrub_word(call);
    if !c.osd_links.contains_key(&osd) {
        return again(format!("pg {pgid} primary osd.{osd} is not currently connected"));
    }
    order(c, &word, [pgid]);
    Ok(Answer::message(format_args!("instructing pg {pgid} on osd.{osd} to {word}")))
}

fn scrub_pools(c: &mut Cluster, call: &Call) -> Reply {
    let mut all = Vec::new();
    for name in call.args.list("who") {
        let id = c.pool_id(&name)?;
        all.extend(c.map().pool(id).into_iter().flat_map(|p| p.pgs(id)));
    }
    order(c, &scrub_word(call), all);
    Ok(Answer::ok())
}

fn scrub_osds(c: &mut Cluster, call: &Call) -> Reply {
    let who = call.args.text("who");
    let wanted: BTreeSet<OsdId> = if matches!(&*who, "*" | "any" | "all") {
        c.map().up_osds().collect()
    } else {
        let id = osd_id(&who).map_err(CommandError::invalid)?;
        if !c.map().exists(id) {
            return Err(CommandError::not_found(format_args!("osd.{id} does not exist")));
        }
        if c.map().is_down(id) {
            return Err(CommandError::new(Errno::EAGAIN, format_args!("osd.{id} is not up")));
        }
        BTreeSet::from([id])
    };
    let map = c.map().clone();
    let all = map.pools.iter().flat_map(|(id, pool)| pool.pgs(*id));
    let placer = c.pgmap.placer(&map);
    let leads = |pgid: &PgId| placer.up_acting(*pgid).acting_primary;
    let led: Vec<PgId> = all.filter(|p| leads(p).is_some_and(|o| wanted.contains(&o))).collect();
    let word = scrub_word(call);
    order(c, &word, led);
    let (told, lost): (Vec<OsdId>, Vec<OsdId>) =
        wanted.iter().partition(|o| c.osd_links.contains_key(*o));
    let names = |osds: &[OsdId]| osds.iter().map(|o| o.0.to_string()).collect::<Vec<_>>().join(",");
    let mut said = format!("instructed osd(s) {} to {word}", names(&told));
    if !lost.is_empty() {
        said.push_str(&format!(" (osd(s) {} were not connected)", names(&lost)));
    }
    Ok(Answer::message(said))
}

fn stop(_: &mut Cluster, _: &Call) -> Reply {
    Err(CommandError::unsupported(
        "OSDs are not stopped from here; send SIGTERM to the daemon ('systemctl stop' where it is a \
         service)",
    ))
}

//! What a PG can be told. Scrub, repair and priorities come with a later version of the OSDs: until
//! then they are refused, rather than promised and not kept.

use crate::cluster::Cluster;
use crate::commands::osd::osd_id;
use crate::commands::{Call, CommandDef, Reply, write};
use admin::CommandError;
use types::PgId;

pub(super) const COMMANDS: &[CommandDef] = &[
    write("pg scrub <pgid:Pgid>", "pg", "compares the copies of a PG", one),
    write("pg deep-scrub <pgid:Pgid>", "pg", "compares the copies of a PG byte by byte", one),
    write("pg repair <pgid:Pgid>", "pg", "repairs a PG", one),
    write("pg repeer <pgid:Pgid>", "pg", "lets a PG peer again", one),
    write("pg force-recovery <pgid:Pgid>...", "pg", "recovers PGs first", many),
    write("pg force-backfill <pgid:Pgid>...", "pg", "backfills PGs first", many),
    write("pg cancel-force-recovery <pgid:Pgid>...", "pg", "takes force-recovery back", many),
    write("pg cancel-force-backfill <pgid:Pgid>...", "pg", "takes force-backfill back", many),
    write("osd pool scrub <who:Poolname>...", "osd", "scrubs pools", pools),
    write("osd pool deep-scrub <who:Poolname>...", "osd", "deep-scrubs pools", pools),
    write("osd pool repair <who:Poolname>...", "osd", "repairs pools", pools),
    write("osd pool force-recovery <who:Poolname>...", "osd", "recovers pools first", pools),
    write("osd pool force-backfill <who:Poolname>...", "osd", "backfills pools first", pools),
    write(
        "osd pool cancel-force-recovery <who:Poolname>...",
        "osd",
        "takes force-recovery back",
        pools,
    ),
    write(
        "osd pool cancel-force-backfill <who:Poolname>...",
        "osd",
        "takes force-backfill back",
        pools,
    ),
    write("osd scrub <who:String>", "osd", "scrubs the PGs an OSD leads", osds),
    write("osd deep-scrub <who:String>", "osd", "deep-scrubs the PGs an OSD leads", osds),
    write("osd repair <who:String>", "osd", "repairs the PGs an OSD leads", osds),
    write("osd stop <ids:String>...", "osd", "asks OSDs to stop", stop),
];

/// Why it is not done.
fn refusal(call: &Call) -> CommandError {
    let what = call.args.prefix();
    CommandError::unsupported(format_args!(
        "'{what}' is not done: OSDs cannot do that yet. Every block is checked against its checksum \
         when it is read, and PGs peer and recover by themselves"
    ))
}

fn check_pg(c: &Cluster, text: &str) -> Result<(), CommandError> {
    let pgid: Result<PgId, ()> = text.parse();
    let pgid = pgid.map_err(|()| CommandError::invalid(format_args!("invalid pgid '{text}'")))?;
    match c.map().pg_exists(pgid) {
        true => Ok(()),
        false => Err(CommandError::not_found(format_args!("pg {pgid} does not exist"))),
    }
}

fn one(c: &mut Cluster, call: &Call) -> Reply {
    check_pg(c, &call.args.text("pgid"))?;
    Err(refusal(call))
}

fn many(c: &mut Cluster, call: &Call) -> Reply {
    call.args.list("pgid").iter().try_for_each(|text| check_pg(c, text))?;
    Err(refusal(call))
}

fn pools(c: &mut Cluster, call: &Call) -> Reply {
    for name in call.args.list("who") {
        c.pool_id(&name)?;
    }
    Err(refusal(call))
}

fn osds(c: &mut Cluster, call: &Call) -> Reply {
    let who = call.args.text("who");
    if !matches!(&*who, "*" | "any" | "all") {
        let id = osd_id(&who).map_err(CommandError::invalid)?;
        if !c.map().exists(id) {
            return Err(CommandError::not_found(format_args!("osd.{id} does not exist")));
        }
    }
    Err(refusal(call))
}

fn stop(_: &mut Cluster, _: &Call) -> Reply {
    Err(CommandError::unsupported(
        "OSDs are not stopped from here; send SIGTERM to the daemon ('systemctl stop' where it is a \
         service)",
    ))
}

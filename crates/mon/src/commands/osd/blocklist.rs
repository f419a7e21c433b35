//! Clients that may not do anything any more.

use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, old, read, write};
use admin::units::stream;
use admin::{Answer, CommandError};
use maps::BlocklistAddr;
use serde_json::{Value, json};

pub(super) const COMMANDS: &[CommandDef] = &[
    write(
        "osd blocklist [range:Choices,range] <blocklistop:Choices,add|rm> <addr:EntityAddr> \
         [expire:Float,0.0]",
        "osd",
        "shuts a client out (add), for some seconds, or lets it in again (rm)",
        blocklist,
    ),
    read("osd blocklist ls", "osd", "lists clients that are shut out", ls),
    write("osd blocklist clear", "osd", "lets all clients in again", clear),
    old(write(
        "osd blacklist <blacklistop:Choices,add|rm> <addr:EntityAddr> [expire:Float,0.0]",
        "osd",
        "see blocklist",
        blocklist,
    )),
    old(read("osd blacklist ls", "osd", "see blocklist", ls)),
    old(write("osd blacklist clear", "osd", "see blocklist", clear)),
];

/// The longest an entry may last: longer ones would not fit in a time stamp.
const MAX_EXPIRE_S: f64 = 100.0 * 365.25 * 86_400.0;

fn blocklist(c: &mut Cluster, call: &Call) -> Reply {
    if call.args.has("range") {
        // By these words ceph-csi knows that it has to name the addresses one by one.
        return Err(CommandError::unsupported(
            "invalid command: ranges of addresses cannot be blocklisted yet; add the addresses one by one",
        ));
    }
    let text = call.args.text("addr");
    let addr = call
        .args
        .addr("addr")
        .ok_or_else(|| CommandError::invalid(format_args!("unable to parse address {text}")))?;
    let addr = BlocklistAddr::new(addr);
    let op = call.args.str("blocklistop").unwrap_or_else(|| call.args.text("blacklistop"));
    if op == "rm" {
        return remove(c, addr);
    }
    let default = c.settings.float("mon_osd_blocklist_default_expire");
    let expire = call.args.float("expire").unwrap_or(default);
    if !(0.0..=MAX_EXPIRE_S).contains(&expire) {
        let text = format!("an entry may last from 0 to {MAX_EXPIRE_S} seconds");
        return Err(CommandError::invalid(text));
    }
    let until = call.now.wall.plus(types::seconds(expire));
    c.fence(addr, until)?;
    let message = format!("blocklisting {} until {until} ({} sec)", addr.addr(), stream(expire));
    Ok(Answer::message(message))
}

fn remove(c: &mut Cluster, addr: BlocklistAddr) -> Reply {
    let there = c.map().blocklist.contains_key(&addr);
    if !there {
        return Ok(Answer::message(format_args!("{} isn't blocklisted", addr.addr())));
    }
    c.unfence([addr].into())?;
    Ok(Answer::message(format_args!("un-blocklisting {}", addr.addr())))
}

fn ls(c: &Cluster, call: &Call) -> Reply {
    let answer = Answer::either(
        call.format(),
        || {
            let entries = c.fences().map(|(addr, until)| {
                json!({"addr": addr.addr().to_string(), "until": until.to_string()})
            });
            Value::Array(entries.collect())
        },
        || c.fences().map(|(addr, until)| format!("{} {until}\n", addr.addr())).collect(),
    );
    Ok(answer.with_message(format_args!("listed {} entries", c.map().blocklist.len())))
}

fn clear(c: &mut Cluster, _: &Call) -> Reply {
    let all = c.map().blocklist.keys().copied().collect();
    c.unfence(all)?;
    Ok(Answer::message(" removed all blocklist entries"))
}

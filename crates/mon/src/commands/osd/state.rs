//! Taking OSDs in and out, down, away; their weights.

use super::{check_exists, means_all, osd_id};
use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, old, write};
use crate::osds::remove;
use crate::store::keys;
use admin::units::stream;
use admin::{Answer, CommandError};
use maps::{Incremental, OsdMap, OsdState, OsdXInfo, WEIGHT_IN, WEIGHT_OUT};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use types::{Errno, OsdId};

pub(super) const COMMANDS: &[CommandDef] = &[
    write("osd in <ids:String>...", "osd", "gives OSDs data", mark_in),
    write("osd out <ids:String>...", "osd", "has the data of OSDs moved elsewhere", mark_out),
    write(
        "osd down <ids:String>... [definitely_dead:Bool]",
        "osd",
        "marks OSDs down; those that run come up again",
        mark_down,
    ),
    old(write("osd rm <ids:String>...", "osd", "forgets OSDs that are down", rm)),
    write(
        "osd reweight <id:OsdName> <weight:Float,0.0|1.0>",
        "osd",
        "sets which part of an OSD's CRUSH weight counts",
        reweight,
    ),
    write(
        "osd reweightn <weights:String>",
        "osd",
        "the same for several: {\"ID\": \"WEIGHT * 65536\", ..}",
        reweightn,
    ),
    write(
        "osd primary-affinity <id:OsdName> <weight:Float,0.0|1.0>",
        "osd",
        "sets how readily an OSD leads PGs",
        primary_affinity,
    ),
];

/// What is done to each OSD of a list.
type Step = fn(&mut Incremental, &OsdMap, OsdId, bool) -> Result<Option<String>, String>;

/// Goes through a list of OSDs. `of_all` says whom `all` means. A step says what it did, nothing
/// when there was nothing to say, or why it cannot be, which makes the answer an EBUSY.
fn each(c: &mut Cluster, call: &Call, of_all: fn(&OsdMap, OsdId) -> bool, step: Step) -> Reply {
    let words = call.args.list("ids");
    let all = words.first().is_some_and(|w| means_all(w));
    let mut said = String::new();
    let mut errno = None;
    c.edit(|inc, map| {
        let listed: Vec<Result<OsdId, String>> = match all {
            true => map.existing_osds().filter(|&id| of_all(map, id)).map(Ok).collect(),
            false => words.iter().map(|w| osd_id(w)).collect(),
        };
        let mut seen = BTreeSet::new();
        for id in listed {
            match id {
                // Said twice: the map that steps go by does not know yet what the first one did.
                Ok(id) if !seen.insert(id) => {}
                Err(why) => {
                    said.push_str(&format!("{why}invalid osd id-1"));
                    errno = Some(Errno::EINVAL);
                }
                Ok(id) if !map.exists(id) => {
                    said.push_str(&format!("osd.{id} does not exist. "));
                }
                Ok(id) => match step(inc, map, id, !all) {
                    Ok(text) => said.push_str(&text.unwrap_or_default()),
                    Err(why) => {
                        said.push_str(&why);
                        errno = Some(Errno::EBUSY);
                    }
                },
            }
        }
        Ok(())
    })?;
    let answer = Answer::message(said);
    Ok(match errno {
        Some(errno) => answer.with_errno(errno),
        None => answer,
    })
}

fn xinfo(inc: &Incremental, map: &OsdMap, id: OsdId) -> OsdXInfo {
    let pending = inc.new_xinfo.get(&id).copied();
    pending.or_else(|| map.osd(id).map(|o| o.xinfo)).unwrap_or_default()
}

fn mark_in(c: &mut Cluster, call: &Call) -> Reply {
    each(c, call, OsdMap::is_out, |inc, map, id, explicit| {
        if map.is_in(id) {
            return Ok(explicit.then(|| format!("osd.{id} is already in. ")));
        }
        let x = xinfo(inc, map, id);
        let weight = if x.old_weight > 0 { x.old_weight } else { WEIGHT_IN };
        inc.new_weight.insert(id, weight);
        if x.old_weight > 0 {
            inc.new_xinfo.insert(id, OsdXInfo { old_weight: 0, ..x });
        }
        Ok(Some(format!("marked in osd.{id}. ")))
    })
}

fn mark_out(c: &mut Cluster, call: &Call) -> Reply {
    each(c, call, OsdMap::is_in, |inc, map, id, explicit| {
        if map.is_out(id) {
            return Ok(explicit.then(|| format!("osd.{id} is already out. ")));
        }
        inc.new_weight.insert(id, WEIGHT_OUT);
        let x = xinfo(inc, map, id);
        inc.new_xinfo.insert(id, OsdXInfo { old_weight: map.weight(id), ..x });
        Ok(Some(format!("marked out osd.{id}. ")))
    })
}

fn mark_down(c: &mut Cluster, call: &Call) -> Reply {
    let step: Step = match call.args.flag("definitely_dead") {
        false => down,
        true => |inc, map, id, explicit| {
            let said = down(inc, map, id, explicit)?;
            let x = xinfo(inc, map, id);
            if x.dead_epoch < map.osd(id).map_or(x.dead_epoch, |o| o.info.up_from) {
                inc.new_xinfo.insert(id, OsdXInfo { dead_epoch: inc.epoch, ..x });
            }
            Ok(said)
        },
    };
    each(c, call, OsdMap::is_up, step)
}

fn down(
    inc: &mut Incremental,
    map: &OsdMap,
    id: OsdId,
    explicit: bool,
) -> Result<Option<String>, String> {
    if map.is_down(id) {
        return Ok(explicit.then(|| format!("osd.{id} is already down. ")));
    }
    inc.mark_down(id);
    Ok(Some(format!("marked down osd.{id}. ")))
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    let before = c.map().clone();
    let answer = each(c, call, OsdMap::is_down, |inc, map, id, explicit| {
        if map.is_up(id) {
            let text = format!("osd.{id} is still up; must be down before removal. ");
            return if explicit { Err(text) } else { Ok(None) };
        }
        let is_first = !inc.new_state.values().any(|turned| turned.contains(OsdState::EXISTS));
        remove(inc, map, id);
        Ok(Some(format!("{}osd.{id}", if is_first { "removed " } else { ", " })))
    })?;
    for id in before.existing_osds() {
        if !c.map().exists(id) {
            c.note_gone(call.now, id, &before);
            c.forget_osd(id);
        }
    }
    Ok(answer)
}

impl Cluster {
    /// An OSD that is removed: what it said of itself goes too.
    pub(super) fn forget_osd(&mut self, id: OsdId) {
        self.forget_key(id);
        self.forget_mark(id);
        if self.state.osd_metadata.remove(&id).is_some() {
            self.draft.remove(keys::osd(id));
        }
    }

    /// An OSD whose data is gone: nobody shall come with its key.
    pub(super) fn forget_key(&mut self, id: OsdId) {
        let entity = format!("osd.{id}");
        if self.state.auth.remove(&entity).is_some() {
            self.draft.remove(format!("{}{entity}", keys::AUTH));
        }
    }
}

/// A part of one, as the map has it.
fn part(weight: f64) -> u32 {
    (weight.clamp(0.0, 1.0) * f64::from(WEIGHT_IN)) as u32
}

fn reweight(c: &mut Cluster, call: &Call) -> Reply {
    let id = call.osd("id")?;
    let text = call.args.float("weight").unwrap_or_default();
    let weight = part(text);
    c.edit(|inc, map| {
        check_exists(map, id)?;
        if map.weight(id) != weight {
            inc.new_weight.insert(id, weight);
        }
        Ok(())
    })?;
    Ok(Answer::message(format_args!("reweighted osd.{id} to {} ({weight:x})", stream(text))))
}

/// `{"0":"39321","1":"65536"}`
fn parse_weights(map: &OsdMap, text: &str) -> Option<BTreeMap<OsdId, u32>> {
    let Ok(Value::Object(pairs)) = serde_json::from_str::<Value>(text) else { return None };
    let pair = |(id, weight): (&String, &Value)| -> Option<(OsdId, u32)> {
        let id = osd_id(id).ok().filter(|id| map.exists(*id))?;
        Some((id, weight.as_str()?.parse().ok()?))
    };
    pairs.iter().map(pair).collect()
}

fn reweightn(c: &mut Cluster, call: &Call) -> Reply {
    let text = call.args.text("weights").into_owned();
    c.edit(|inc, map| {
        let weights = parse_weights(map, &text).ok_or_else(|| {
            CommandError::invalid(format_args!("unable to parse 'weights' value '{text}'"))
        })?;
        if weights.values().any(|w| *w > WEIGHT_IN) {
            return Err(CommandError::invalid("weights are from 0 to 65536"));
        }
        inc.new_weight.extend(weights);
        Ok(())
    })?;
    Ok(Answer::message(format_args!("reweighted: {text}")))
}

fn primary_affinity(c: &mut Cluster, call: &Call) -> Reply {
    let id = call.osd("id")?;
    let text = call.args.float("weight").unwrap_or_default();
    let affinity = part(text);
    c.edit(|inc, map| {
        check_exists(map, id)?;
        inc.new_primary_affinity.insert(id, affinity);
        Ok(())
    })?;
    let text = format!("set osd.{id} primary-affinity to {} ({affinity:x})", stream(text));
    Ok(Answer::message(text))
}

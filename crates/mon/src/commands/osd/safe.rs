//! May an OSD be stopped, may it be thrown away?

use super::{means_all, osd_id};
use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, read};
use crate::pgmap::PgEntry;
use admin::{Answer, CommandError};
use maps::PgPool;
use pg::StateBits;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use types::{Errno, OsdId, PgId};

pub(super) const COMMANDS: &[CommandDef] = &[
    read(
        "osd ok-to-stop <ids:String>... [max:Int]",
        "osd",
        "says whether all data stays available while these OSDs are stopped; with max, how many more \
         beside them could be",
        ok_to_stop,
    ),
    read(
        "osd safe-to-destroy <ids:String>...",
        "osd",
        "says whether these OSDs hold nothing that is needed",
        safe_to_destroy,
    ),
];

/// The OSDs a command names.
fn named(c: &Cluster, call: &Call) -> Result<BTreeSet<OsdId>, CommandError> {
    let words = call.args.list("ids");
    if words.iter().any(|w| means_all(w)) {
        return Ok(c.map().existing_osds().collect());
    }
    let id = |word: &str| {
        let bad = |why| CommandError::invalid(format_args!("{why}invalid osd id '{word}'"));
        osd_id(word).map_err(bad)
    };
    words.iter().map(|w| id(w)).collect()
}

/// `0,2`
fn list(osds: &BTreeSet<OsdId>) -> String {
    crate::show::join(osds, ",")
}

/// PGs by what would become of them.
#[derive(Default)]
struct Outlook {
    ok: usize,
    degraded: Vec<PgId>,
    more_degraded: Vec<PgId>,
    already_inactive: Vec<PgId>,
    inactive: Vec<PgId>,
}

impl Outlook {
    fn not_ok(&self) -> usize {
        self.already_inactive.len() + self.inactive.len()
    }

    /// A PG that these OSDs serve. Its last report may be older than the map, which tells who of the others is up.
    fn add(&mut self, c: &Cluster, entry: &PgEntry, pool: &PgPool, osds: &BTreeSet<OsdId>) {
        let map = c.map();
        let acting = entry.stat.acting.iter().filter(|o| o.is_some());
        let (go, mut stay): (Vec<OsdId>, Vec<OsdId>) = acting.partition(|o| osds.contains(o));
        let pgid = entry.stat.pgid;
        if go.is_empty() {
            return;
        }
        stay.retain(|o| map.is_up(*o));
        let state = c.pgmap.state(map, Some(entry));
        if !state.has(StateBits::ACTIVE) || state.has(StateBits::STALE) {
            self.already_inactive.push(pgid);
        } else if stay.len() < usize::from(pool.min_size) {
            self.inactive.push(pgid);
        } else {
            self.ok += 1;
            match state.has(StateBits::DEGRADED) {
                true => self.more_degraded.push(pgid),
                false => self.degraded.push(pgid),
            }
        }
    }

    fn json(&self, osds: &BTreeSet<OsdId>) -> Value {
        let mut out = Map::new();
        out.insert("ok_to_stop".into(), (self.not_ok() == 0).into());
        out.insert("osds".into(), osds.iter().map(|o| o.0).collect());
        out.insert("num_ok_pgs".into(), self.ok.into());
        out.insert("num_not_ok_pgs".into(), self.not_ok().into());
        let lists = [
            ("bad_already_inactive", &self.already_inactive),
            ("bad_become_inactive", &self.inactive),
            ("ok_become_degraded", &self.degraded),
            ("ok_become_more_degraded", &self.more_degraded),
        ];
        for (name, pgs) in lists.into_iter().filter(|(_, pgs)| !pgs.is_empty()) {
            out.insert(name.into(), pgs.iter().map(PgId::to_string).collect());
        }
        out.into()
    }
}

/// What becomes of all PGs without some OSDs.
fn outlook(c: &Cluster, osds: &BTreeSet<OsdId>) -> Result<Outlook, CommandError> {
    let map = c.map();
    let mut outlook = Outlook::default();
    let mut unknown = 0;
    for (pgid, entry) in c.pgmap.all(map) {
        match (entry, map.pool(pgid.pool)) {
            (Some(entry), Some(pool)) => {
                outlook.add(c, entry, pool, osds);
            }
            _ => unknown += 1,
        }
    }
    if unknown > 0 {
        let text = format!("{unknown} pgs have unknown state; cannot draw any conclusions");
        return Err(CommandError::new(Errno::EAGAIN, text));
    }
    Ok(outlook)
}

/// Adds neighbours, the nearest in the hierarchy first, as long as all data stays available; it does without these.
fn grow(c: &Cluster, osds: &mut BTreeSet<OsdId>, max: usize) {
    let (map, crush) = (c.map(), c.map().crush());
    let Some(first) = osds.first().copied() else { return };
    // For the others nothing changes with one more.
    let mut served: BTreeMap<OsdId, Vec<&PgEntry>> = BTreeMap::new();
    for (_, entry) in c.pgmap.reported() {
        for id in entry.stat.acting.iter().filter(|id| id.is_some()) {
            served.entry(*id).or_default().push(entry);
        }
    }
    let stays_ok = |id: OsdId, osds: &BTreeSet<OsdId>| {
        let mut outlook = Outlook::default();
        for &entry in served.get(&id).into_iter().flatten() {
            if let Some(pool) = map.pool(entry.stat.pgid.pool) {
                outlook.add(c, entry, pool, osds);
            }
        }
        outlook.not_ok() == 0
    };
    let above: Vec<i32> = crush.ancestors(first.0).map(crush::Bucket::id).collect();
    for id in above.into_iter().flat_map(|bucket| crush.devices_below(bucket)).map(OsdId) {
        if osds.len() >= max {
            return;
        }
        if map.exists(id) && osds.insert(id) && !stays_ok(id, osds) {
            osds.remove(&id);
        }
    }
}

fn ok_to_stop(c: &Cluster, call: &Call) -> Reply {
    let mut osds = named(c, call)?;
    let max = call.args.int("max").unwrap_or(1);
    let max = usize::try_from(max).unwrap_or(0);
    if max > 1 && osds.len() > max {
        return Err(CommandError::invalid("more OSDs are named than max says"));
    }
    let mut found = outlook(c, &osds)?;
    if found.not_ok() == 0 && osds.len() < max {
        grow(c, &mut osds, max);
        found = outlook(c, &osds)?;
    }
    let answer = Answer::json_line(found.json(&osds));
    Ok(match found.not_ok() {
        0 => answer,
        n => answer
            .with_message(format_args!(
                "unsafe to stop osd(s) at this time ({n} PGs are or would become offline)"
            ))
            .with_errno(Errno::EBUSY),
    })
}

/// OSDs by whether something of them may be needed.
#[derive(Default)]
struct Verdict {
    safe: BTreeSet<OsdId>,
    active: BTreeSet<OsdId>,
    missing_stats: BTreeSet<OsdId>,
    stored_pgs: BTreeSet<OsdId>,
    mapped: usize,
}

/// How many PGs each OSD serves or is to serve.
fn mapped_pgs(c: &Cluster) -> BTreeMap<OsdId, usize> {
    let mut mapped = BTreeMap::new();
    for (_, entry) in c.pgmap.reported() {
        let (acting, up) = (&entry.stat.acting, &entry.stat.up);
        let only_up = up.iter().filter(|id| !acting.contains(id));
        acting.iter().chain(only_up).for_each(|id| *mapped.entry(*id).or_default() += 1);
    }
    mapped
}

fn verdict(c: &Cluster, osds: &BTreeSet<OsdId>) -> Result<Verdict, CommandError> {
    let map = c.map();
    let sums = c.pgmap.sums(map);
    if sums.unknown > 0 {
        let text = format!("{} pgs have unknown state; cannot draw any conclusions", sums.unknown);
        return Err(CommandError::new(Errno::EAGAIN, text));
    }
    let mut good = StateBits::ACTIVE;
    good |= StateBits::CLEAN;
    let all_clean = sums.count(good) == sums.num_pgs;
    let mut verdict = Verdict::default();
    let mapped_pgs = mapped_pgs(c);
    for &id in osds {
        let mapped = mapped_pgs.get(&id).copied().unwrap_or(0);
        let stat = c.pgmap.living_osd(map, id);
        let set = match stat {
            _ if !map.exists(id) => &mut verdict.safe,
            _ if mapped > 0 => {
                verdict.mapped += mapped;
                &mut verdict.active
            }
            _ if all_clean => &mut verdict.safe,
            None => &mut verdict.missing_stats,
            Some(stat) if stat.pgs_held > 0 => &mut verdict.stored_pgs,
            Some(_) => &mut verdict.safe,
        };
        set.insert(id);
    }
    Ok(verdict)
}

impl Verdict {
    /// Why not all of them can go.
    fn refusal(&self) -> Option<CommandError> {
        if self.active.is_empty() && self.missing_stats.is_empty() && self.stored_pgs.is_empty() {
            return None;
        }
        let mut text = String::new();
        if !self.safe.is_empty() {
            text.push_str(&format!(
                "OSD(s) {} are safe to destroy without reducing data durability. ",
                list(&self.safe)
            ));
        }
        if !self.active.is_empty() {
            let (osds, n) = (list(&self.active), self.mapped);
            text.push_str(&format!("OSD(s) {osds} have {n} pgs currently mapped to them. "));
        }
        if !self.missing_stats.is_empty() {
            text.push_str(&format!(
                "OSD(s) {} have no reported stats, and not all PGs are active+clean; we cannot \
                 draw any conclusions. ",
                list(&self.missing_stats)
            ));
        }
        if !self.stored_pgs.is_empty() {
            text.push_str(&format!(
                "OSD(s) {} last reported they still store some PG data, and not all PGs are \
                 active+clean; we cannot be sure they aren't still needed.",
                list(&self.stored_pgs)
            ));
        }
        let busy = !self.active.is_empty() || !self.stored_pgs.is_empty();
        Some(CommandError::new(if busy { Errno::EBUSY } else { Errno::EAGAIN }, text))
    }
}

fn safe_to_destroy(c: &Cluster, call: &Call) -> Reply {
    let osds = named(c, call)?;
    let verdict = verdict(c, &osds)?;
    if call.format().is_json() {
        let ids = |osds: &BTreeSet<OsdId>| osds.iter().map(|o| o.0).collect::<Vec<_>>();
        return Ok(Answer::json(json!({
            "safe_to_destroy": ids(&verdict.safe),
            "active": ids(&verdict.active),
            "missing_stats": ids(&verdict.missing_stats),
            "stored_pgs": ids(&verdict.stored_pgs),
        })));
    }
    match verdict.refusal() {
        Some(refusal) => Err(refusal),
        None => Ok(Answer::message(format_args!(
            "OSD(s) {} are safe to destroy without reducing data durability.",
            list(&osds)
        ))),
    }
}

/// That nothing is lost with an OSD.
///
/// # Errors
/// Why that cannot be said.
pub(super) fn check_destroy(c: &Cluster, id: OsdId) -> Result<(), CommandError> {
    let refusal = match verdict(c, &BTreeSet::from([id])) {
        Ok(verdict) => verdict.refusal(),
        Err(e) => Some(e),
    };
    match refusal {
        None => Ok(()),
        Some(e) => Err(CommandError::new(
            e.errno,
            format_args!(
                "{}\nYou can proceed by passing --force, but be warned that this will likely mean \
                 real, permanent data loss.",
                e.text
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::bench::Bench;
    use serde_json::json;
    use types::OsdId;

    /// What a PG's primary said last may be older than the map.
    #[test]
    fn who_is_down_by_the_map_keeps_nothing_available() {
        let mut bench = Bench::new();
        let pool = json!({"prefix": "osd pool create", "pool": "a", "pg_num": 8});
        assert_eq!(bench.run(&pool).0, 0);
        let may_stop = |bench: &mut Bench, id: i32| {
            let (r, _, out) =
                bench.run(&json!({"prefix": "osd ok-to-stop", "ids": [id.to_string()]}));
            let out: serde_json::Value = serde_json::from_slice(&out).unwrap();
            (r, out["bad_already_inactive"].as_array().map_or(0, Vec::len))
        };
        assert_eq!(may_stop(&mut bench, 0), (0, 0));
        bench.stop_unheard(OsdId(1));
        let (r, stale) = may_stop(&mut bench, 0);
        assert_eq!(r, -16);
        let map = bench.c.map();
        let led = bench.c.pgmap.all(map).filter_map(|(_, e)| e).filter(|e| e.by == OsdId(1));
        assert_eq!(stale, led.count());
        assert!(stale > 0);
    }
}

//! One seed: safety under faults first; then everything works again and must become whole.

mod listing;
mod trimmed;

use crate::faults::Faults;
use crate::load::{Load, MAX_SNAPS, READER};
use crate::object::Action;
use crate::plan::{Kind, Plan};
use crate::rig::{Rig, TICK};
use client::{ClientError, Completion, Outcome, RequestId};
use io::Rng;
use serde_json::Value;
use sim::FaultCounts;
use std::collections::BTreeMap;
use std::time::Duration;
use types::testing::{Probe, hits_of, take_hits};
use types::{OsdId, PoolId, SnapId};

/// Until all requests are answered once everything works again.
const ANSWERED_WITHIN: Duration = Duration::from_secs(120);
/// Until all PGs are active and clean once everything works again.
const CLEAN_WITHIN: Duration = Duration::from_secs(180);
/// Until all PGs have been scrubbed once they are clean.
const SCRUBBED_WITHIN: Duration = Duration::from_secs(120);
/// Times in a row that unfound objects are given up.
const GIVEN_UP_AT_MOST: u32 = 4;

/// What a run was.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was wrong, if anything.
    pub failure: Option<String>,
    /// Simulated time.
    pub time: Duration,
    /// Events.
    pub events: u64,
    /// Equal for two runs that were the same.
    pub fingerprint: u64,
    /// Requests whose answers were checked.
    pub checked: u64,
    /// Reads that failed because no good copy could be reached.
    pub unreadable: u64,
    /// What went wrong, by kind.
    pub faults: FaultCounts,
    /// Rare paths that were taken.
    pub probes: BTreeMap<Probe, u64>,
}

/// What is not well though everything works again.
#[derive(Debug)]
enum Unwell {
    /// Something that must never be.
    Wrong(String),
    /// It takes too long.
    Waits(String),
}

impl From<String> for Unwell {
    fn from(why: String) -> Self {
        Unwell::Wrong(why)
    }
}

impl From<Unwell> for String {
    fn from(unwell: Unwell) -> Self {
        match unwell {
            Unwell::Wrong(why) | Unwell::Waits(why) => why,
        }
    }
}

struct Run {
    rig: Rig,
    plan: Plan,
    rng: Rng,
    load: Load,
    faults: Faults,
    pool: PoolId,
    /// Snapshots that are being made.
    making: Vec<RequestId>,
    /// Others that are being removed.
    removing: Vec<RequestId>,
    /// Unfound objects were given up.
    given_up: bool,
    loud: bool,
}

/// Runs a plan. Panics of the product are the caller's.
pub fn run(plan: &Plan, loud: bool) -> Report {
    take_hits();
    let mut run = Run::new(plan, loud);
    let failure = run.all().err();
    let world = &run.rig.world;
    Report {
        failure,
        time: world.now(),
        events: world.events(),
        fingerprint: world.fingerprint(),
        checked: run.load.answered,
        unreadable: run.load.unreadable,
        faults: world.counts().clone(),
        probes: take_hits(),
    }
}

impl Run {
    fn new(plan: &Plan, loud: bool) -> Self {
        let mut rig = Rig::new(plan.seed, plan.osds, plan.clients, plan.disk_bytes, &plan.options);
        let up = rig
            .wait(Duration::from_secs(30), 20 * TICK, |rig| rig.osds_up() == rig.osds.len() as u64);
        assert!(up, "the OSDs did not come up");
        let (size, pg_num) = (plan.size, plan.pg_num);
        rig.ask(&format!(
            r#"{{"prefix":"osd pool create","pool":"p","pg_num":{pg_num},"size":{size},"autoscale_mode":"off"}}"#
        ));
        rig.ask(&crate::faults::pool_set("min_size", plan.min_size.into()));
        if let Some(algorithm) = plan.compression {
            for (var, val) in [("compression_mode", "force"), ("compression_algorithm", algorithm)]
            {
                rig.ask(&format!(
                    r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{val}"}}"#
                ));
            }
        }
        if plan.has(Kind::MapStorms) {
            // The balancer moves PGs, too, all the time.
            for (name, value) in [("sleep_interval", 1), ("upmap_max_deviation", 1)] {
                let option =
                    format!(r#""who":"mgr","name":"mgr/balancer/{name}","value":"{value}""#);
                rig.ask(&format!(r#"{{"prefix":"config set",{option}}}"#));
            }
        }
        let pool = PoolId(1);
        let mut run = Run {
            load: Load::new(plan, pool),
            faults: Faults::new(plan, loud),
            rng: Rng::with_seed(plan.seed ^ 0x10ad),
            plan: plan.clone(),
            rig,
            pool,
            making: Vec::new(),
            removing: Vec::new(),
            given_up: false,
            loud,
        };
        run.wait_pgs_clean()
            .unwrap_or_else(|why| panic!("at the beginning: {}", String::from(why)));
        run
    }

    fn all(&mut self) -> Result<(), String> {
        self.faults.begin(&mut self.rig);
        for _ in 0..self.plan.turns {
            self.issue();
            self.snapshots();
            self.begin_listing();
            // Often so short that faults meet what has just been sent.
            let longest_us = if self.rng.bool() { 1500 } else { self.plan.turn_ms * 1000 };
            let pause = Duration::from_micros(self.rng.u64(0..longest_us));
            let step = self.faults.next_step(self.rig.world.now());
            self.rig.pass(step.map_or(pause, |step| step.min(pause)));
            self.hear()?;
            self.faults.turn(&mut self.rig);
            self.replace_clients();
        }
        let is_whole = self.heal()?;
        self.load.healed();
        self.faults.rot_when_whole(&mut self.rig);
        self.read_everything(is_whole)?;
        self.scrub(is_whole)?;
        self.no_damage_by_itself()?;
        self.everything_is_counted()?;
        self.no_clone_is_left(is_whole)
    }

    /// Each block of data on an OSD is counted under its own pool, whatever happened to it.
    fn everything_is_counted(&mut self) -> Result<(), String> {
        let stats = self.rig.ask(r#"{"prefix":"df","format":"json"}"#)["stats"].clone();
        let is_so = stats["num_osds"] == stats["num_per_pool_osds"];
        if is_so { Ok(()) } else { Err(format!("OSDs do not know what pools take: {stats}")) }
    }

    fn issue(&mut self) {
        for _ in 0..self.rng.usize(0..=self.plan.burst) {
            let client = self.rng.usize(0..self.plan.clients);
            // Each has its own share: one that is cut off does not stop the others.
            let share = self.plan.window / self.plan.clients;
            if client != READER && self.load.open_of(client) >= share {
                continue;
            }
            let Some((object, op, request)) = self.load.next(client, &mut self.rng) else {
                continue;
            };
            let now = self.rig.world.now();
            let sent = self.rig.as_user(client, |now, c| c.submit(now, request));
            if let Ok(id) = sent {
                self.load.sent(object, op, id, now);
            }
        }
    }

    fn snapshots(&mut self) {
        let (pool, operator) = (self.pool, self.rig.operator());
        if self.rng.u8(..) < 16 && self.load.snaps().len() + self.making.len() < MAX_SNAPS {
            let id = self.rig.as_user(operator, |now, c| c.create_own_snap(now, pool));
            self.making.push(id);
        }
        if self.rng.u8(..) < 16 && self.making.is_empty() {
            let snaps = self.load.removable_snaps();
            if !snaps.is_empty() {
                let snap = snaps[self.rng.usize(0..snaps.len())];
                self.load.forget_snap(snap, self.rig.world.now());
                let id =
                    self.rig.as_user(operator, |now, c| c.delete_own_snap(now, pool, SnapId(snap)));
                self.removing.push(id);
            }
        }
    }

    /// Takes what the clients heard.
    fn hear(&mut self) -> Result<(), String> {
        let now = self.rig.world.now();
        for client in 0..self.plan.clients {
            for Completion { id, outcome } in self.rig.done(client) {
                match outcome {
                    Outcome::Op(outcome) => self.load.answer(client, id, outcome, now)?,
                    Outcome::Page(page) => self.page_came(client, id, page)?,
                    _ => {}
                }
            }
        }
        let operator = self.rig.operator();
        for Completion { id, outcome } in self.rig.done(operator) {
            match outcome {
                Outcome::PoolOp(result) => self.pool_op_answered(id, result)?,
                Outcome::Command(Ok(reply)) if self.loud && reply.status < 0 => {
                    eprintln!("a command failed: {} {}", reply.status, reply.outs);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn pool_op_answered(
        &mut self,
        id: RequestId,
        result: Result<Option<u64>, ClientError>,
    ) -> Result<(), String> {
        let is_making = self.making.contains(&id);
        self.making.retain(|other| *other != id);
        self.removing.retain(|other| *other != id);
        match result {
            Ok(Some(snap)) if is_making => self.load.snap_made(snap),
            Err(why) if !is_making => return Err(format!("a snapshot is not removed: {why}")),
            _ => {}
        }
        Ok(())
    }

    /// Whether snapshots are being made or removed.
    fn awaits_mon(&self) -> bool {
        !self.making.is_empty() || !self.removing.is_empty()
    }

    fn replace_clients(&mut self) {
        if self.plan.has(Kind::ClientCrashes) && self.rng.u8(..) < 8 {
            let client = self.rng.usize(0..self.plan.clients);
            self.load.abandon(client);
            self.rig.done(client);
            self.rig.replace_user(client);
            self.rig.world.count("client crash", 1);
        }
    }

    /// Everything works again: everything is answered, and all PGs become clean. False: objects had to be
    /// given up of which only the bad disk had the newest version.
    fn heal(&mut self) -> Result<bool, String> {
        self.faults.end_all(&mut self.rig);
        self.excused(Self::wait_answered)?;
        self.faults.settle_pg_num(&mut self.rig);
        self.excused(Self::wait_clean)?;
        self.excused(Self::wait_trimmed)?;
        Ok(!self.given_up)
    }

    /// Waits for something. If it waits for unfound objects, these are given up; what they go back to may be
    /// damaged as well.
    fn excused(&mut self, wait: impl Fn(&mut Self) -> Result<(), Unwell>) -> Result<(), String> {
        for _ in 0..GIVEN_UP_AT_MOST {
            match wait(self) {
                Err(Unwell::Waits(_)) if !self.awaits_mon() && self.only_bad_disk_had_it() => {
                    if !self.given_up {
                        self.load.check()?;
                    }
                    self.given_up = true;
                    self.give_up_unfound()?;
                }
                // What was acknowledged is not among it: the histories go on being checked.
                Err(Unwell::Waits(_)) if !self.awaits_mon() && self.only_left_out() => {
                    self.give_up_unfound()?;
                }
                other => return Ok(other?),
            }
        }
        Ok(wait(self)?)
    }

    fn wait_answered(&mut self) -> Result<(), Unwell> {
        let end = self.rig.world.now() + ANSWERED_WITHIN;
        while self.load.open() > 0 || self.awaits_mon() {
            if self.rig.world.now() > end {
                let clients = 0..self.plan.clients;
                let waits: Vec<_> =
                    clients.map(|c| self.rig.as_user(c, |_, c| c.waiting())).collect();
                return Err(Unwell::Waits(format!(
                    "{} requests are not answered {ANSWERED_WITHIN:?} after everything works \
                     again: {waits:?}\n{}{}",
                    self.load.open(),
                    self.load.tell_open(),
                    self.pgs()
                )));
            }
            self.rig.pass(10 * TICK);
            self.hear()?;
        }
        Ok(())
    }

    /// As an operator would: unfound objects go back to older states. Up to now nothing may have gone wrong.
    /// From now on somebody may notice: another copy of an acknowledged write may have taken one more that
    /// nobody else has, and was thrown away with it.
    fn give_up_unfound(&mut self) -> Result<(), String> {
        for stat in self.pg_stats() {
            if !has_unfound(&stat) {
                continue;
            }
            let (pgid, primary) = (&stat["pgid"], &stat["acting_primary"]);
            let osd = primary.as_i64().and_then(|id| i32::try_from(id).ok()).unwrap_or(-1);
            let what = r#""cmd":"mark_unfound_lost","mulcmd":"revert""#;
            let json = format!(r#"{{"prefix":"pg","pgid":{pgid},{what}}}"#);
            let mut reply = self.rig.tell(OsdId(osd), &json);
            for _ in 0..5 {
                if reply.status < 0 {
                    // It asks others first.
                    self.rig.pass(1000 * TICK);
                    reply = self.rig.tell(OsdId(osd), &json);
                }
            }
            if reply.status < 0 {
                return Err(format!("osd.{osd} does not give up {pgid}: {}", reply.outs));
            }
            self.rig.world.count("unfound objects given up", 1);
        }
        Ok(())
    }

    /// Whether all that is left is unfound where disks were without space: who had the data of a write that others
    /// left out lost them before they were durable.
    fn only_left_out(&mut self) -> bool {
        let rest = self.unclean_pgs();
        let it_is = self.plan.has(Kind::Full) && !rest.is_empty() && rest.iter().all(has_lost);
        self.rig.world.count("what all had left out is nowhere", u64::from(it_is));
        it_is
    }

    /// Whether all that is left is for the operator to decide: objects that are unfound because the
    /// copy on the bad disk, the only one of its version, is damaged.
    fn only_bad_disk_had_it(&mut self) -> bool {
        let Some(bad_osd) = self.faults.bad_osd() else { return false };
        let rest = self.unclean_pgs();
        let unfound: Vec<bool> = rest.iter().map(|s| self.bad_disk_was_asked(bad_osd, s)).collect();
        let pgids: Vec<_> = rest.iter().map(|s| s["pgid"].clone()).collect();
        let waits_for_others = self.load.open_objects().into_iter().any(|object| {
            let words = format!(r#""pool":"p","object":"object{object}","format":"json""#);
            let at = self.rig.ask(&format!(r#"{{"prefix":"osd map",{words}}}"#));
            !pgids.contains(&at["pgid"])
        });
        let it_is = !rest.is_empty() && unfound.into_iter().all(|is| is) && !waits_for_others;
        self.rig.world.count("only copy of a version damaged", u64::from(it_is));
        it_is
    }

    /// Whether objects of a PG are unfound though the OSD with the bad disk is in it, or was asked for them.
    fn bad_disk_was_asked(&mut self, bad_osd: usize, stat: &Value) -> bool {
        if !has_lost(stat) {
            return false;
        }
        if stat["acting"].as_array().is_some_and(|a| a.contains(&bad_osd.into())) {
            return true;
        }
        let primary = stat["acting_primary"].as_i64().and_then(|id| i32::try_from(id).ok());
        let query = format!(r#"{{"prefix":"pg","pgid":{},"cmd":"query"}}"#, stat["pgid"]);
        let reply = self.rig.tell(OsdId(primary.unwrap_or(-1)), &query);
        let said: Value = serde_json::from_slice(&reply.data).unwrap_or_default();
        let sources = said["recovery_state"][0]["might_have_unfound"].as_array();
        let asked = serde_json::json!({ "osd": bad_osd.to_string(), "status": "already probed" });
        sources.is_some_and(|all| all.contains(&asked))
    }

    fn unclean_pgs(&mut self) -> Vec<Value> {
        let mut all = self.pg_stats();
        all.retain(|s| !has_words(s, &["active", "clean"]));
        all
    }

    fn pg_stats(&mut self) -> Vec<Value> {
        let stats = self.rig.ask(r#"{"prefix":"pg ls","format":"json"}"#);
        stats["pg_stats"].as_array().cloned().unwrap_or_default()
    }

    fn pgs(&mut self) -> String {
        let one = |s: &Value| {
            format!(
                "  {} {} up {} acting {} errors {}\n",
                s["pgid"], s["state"], s["up"], s["acting"], s["stat_sum"]["num_scrub_errors"]
            )
        };
        self.pg_stats().iter().map(one).collect()
    }

    /// All OSDs are up and all PGs clean. A copy whose OSD is not up is one that scrub does not see, and
    /// that serves reads when it is.
    fn wait_clean(&mut self) -> Result<(), Unwell> {
        let end = self.rig.world.now() + CLEAN_WITHIN;
        loop {
            self.wait_pgs_clean()?;
            let up = self.rig.osds_up();
            if up == self.plan.osds as u64 {
                // Whoever came up last may not have been in a report yet.
                self.rig.pass(200 * TICK);
                return self.wait_pgs_clean();
            }
            if self.rig.world.now() > end {
                let why = format!("only {up} OSDs are up {CLEAN_WITHIN:?} after the faults");
                return Err(Unwell::Waits(why));
            }
            self.rig.pass(100 * TICK);
            self.hear()?;
        }
    }

    fn wait_pgs_clean(&mut self) -> Result<(), Unwell> {
        let end = self.rig.world.now() + CLEAN_WITHIN;
        loop {
            let (size, osds) = (self.plan.size, self.plan.osds as u64);
            let stats = self.pg_stats();
            let state_ok = |s: &Value| has_words(s, &["active", "clean"]);
            let full = |s: &Value| s["acting"].as_array().map(Vec::len) == Some(usize::from(size));
            if stats.len() == self.faults.pg_num() as usize
                && stats.iter().all(|s| state_ok(s) && full(s))
                && self.rig.running() as u64 == osds
            {
                return Ok(());
            }
            if self.rig.world.now() > end {
                return Err(Unwell::Waits(format!(
                    "not clean {CLEAN_WITHIN:?} after everything works again:\n{}",
                    self.pgs()
                )));
            }
            self.rig.pass(100 * TICK);
            self.hear()?;
        }
    }

    /// Reads all heads and snapshots; the answers belong to the history, which must be right unless
    /// something was given up.
    fn read_everything(&mut self, is_whole: bool) -> Result<(), String> {
        for object in self.load.objects() {
            let snaps: Vec<_> = self.load.snaps().iter().map(|s| Some(*s)).chain([None]).collect();
            for snap in snaps {
                let (object, op, request) = self.load.request(0, object, Action::Read(snap));
                let now = self.rig.world.now();
                let sent = self.rig.as_user(0, |now, c| c.submit(now, request));
                let id = sent.map_err(|e| e.to_string())?;
                self.load.sent(object, op, id, now);
            }
        }
        self.list(READER);
        let end = self.rig.world.now() + ANSWERED_WITHIN;
        while self.load.open() > 0 {
            if self.rig.world.now() > end {
                return Err(format!("a last read or listing is not answered\n{}", self.pgs()));
            }
            self.rig.pass(TICK);
            self.hear()?;
        }
        if is_whole { self.load.check() } else { Ok(()) }
    }

    /// All copies of all PGs are compared, and found equal; after rot, once they were repaired.
    fn scrub(&mut self, is_whole: bool) -> Result<(), String> {
        if self.plan.has_bad_blocks() {
            self.scrub_all("repair")?;
            self.wait_clean()?;
        }
        self.scrub_all("deep-scrub")?;
        let bad = |s: &Value| s["stat_sum"]["num_scrub_errors"].as_u64() != Some(0);
        if self.pg_stats().iter().any(bad) {
            return Err(format!("scrub found inconsistencies:\n{}", self.pgs()));
        }
        let Some(bad_osd) = self.faults.bad_osd() else { return Ok(()) };
        self.read_all_of(bad_osd, is_whole)
    }

    /// What scrub called good on the bad disk is good: nothing of it must need repair when it is
    /// read. So its OSD leads wherever it can.
    fn read_all_of(&mut self, bad_osd: usize, is_whole: bool) -> Result<(), String> {
        for osd in (0..self.plan.osds).filter(|o| *o != bad_osd) {
            self.rig.ask(&crate::faults::affinity(osd, 0.0));
        }
        self.wait_clean()?;
        let before = hits_of(Probe::DamageFound);
        self.read_everything(is_whole)?;
        match hits_of(Probe::DamageFound) - before {
            0 => Ok(()),
            n => Err(format!("{n} objects were damaged after scrub had found everything good")),
        }
    }

    /// Where no disk is bad nothing is ever found to be damaged, nor repaired.
    fn no_damage_by_itself(&self) -> Result<(), String> {
        let signs = [Probe::DamageFound, Probe::RestartForRepair, Probe::ScrubFoundError];
        let seen: Vec<_> = signs.into_iter().filter(|sign| hits_of(*sign) > 0).collect();
        if self.plan.has_bad_blocks() || seen.is_empty() {
            return Ok(());
        }
        Err(format!("no disk is bad, and yet there was damage: {seen:?}"))
    }

    fn scrub_all(&mut self, how: &str) -> Result<(), String> {
        let stamps = |stats: Vec<Value>| -> BTreeMap<String, String> {
            let one = |s: &Value| (s["pgid"].to_string(), s["last_deep_scrub_stamp"].to_string());
            stats.iter().map(one).collect()
        };
        // Stamps are wall-clock times: let the clock go on.
        let before = stamps(self.pg_stats());
        let end = self.rig.world.now() + SCRUBBED_WITHIN;
        self.rig.ask(&format!(r#"{{"prefix":"osd pool {how}","who":["p"]}}"#));
        loop {
            let after = stamps(self.pg_stats());
            if before.iter().all(|(pg, stamp)| after.get(pg).is_some_and(|s| s != stamp)) {
                return Ok(());
            }
            if self.rig.world.now() > end {
                return Err(format!("not scrubbed within {SCRUBBED_WITHIN:?}:\n{}", self.pgs()));
            }
            self.rig.pass(200 * TICK);
        }
    }
}

/// Whether objects of a PG are unfound, and nothing else keeps it.
fn has_lost(stat: &Value) -> bool {
    has_unfound(stat) && (has_words(stat, &["active"]) || has_words(stat, &["peered"]))
}

/// Whether a PG's state says that objects of it are unfound.
fn has_unfound(stat: &Value) -> bool {
    has_words(stat, &["recovery_unfound"]) || has_words(stat, &["backfill_unfound"])
}

/// Whether a PG's state has all these words.
fn has_words(stat: &Value, words: &[&str]) -> bool {
    let state = stat["state"].as_str().unwrap_or_default();
    words.iter().all(|word| state.split('+').any(|w| w == *word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_run() {
        for seed in 1..6 {
            let plan = Plan::new(seed);
            let (one, other) = (run(&plan, false), run(&plan, false));
            assert_eq!(one.failure, None);
            assert!(one.checked > 50 && one.events > 1000);
            assert_eq!(one.fingerprint, other.fingerprint);
            assert_eq!((one.events, one.checked), (other.events, other.checked));
            assert_eq!((one.faults, one.probes), (other.faults, other.probes));
        }
    }

    /// Seeds with all that shows it are rare: only a disk that rots, and objects of many blocks.
    #[test]
    fn a_read_that_fails_when_all_is_whole_is_found() {
        let rotten = |seed| {
            let kinds = [Kind::Rot].into();
            let plan =
                Plan { osds: 3, size: 3, min_size: 2, slot_bytes: 20_000, ..Plan::new(seed) };
            Plan { kinds, turns: 60, options: BTreeMap::new(), ..plan }
        };
        types::testing::plant(Some(types::testing::Bug::RepairAnsweredEio));
        let found = (1..30).find_map(|seed| Some((seed, run(&rotten(seed), false).failure?)));
        types::testing::plant(None);
        let (seed, why) = found.expect("some seed shows it");
        assert!(why.contains("cannot be read"), "{why}");
        assert_eq!(run(&rotten(seed), false).failure, None);
    }

    /// A check that finds nothing is no check.
    #[test]
    fn a_planted_bug_is_found() {
        types::testing::plant(Some(types::testing::Bug::CloneSkipped));
        let found = (1..30).any(|seed| run(&Plan::new(seed), false).failure.is_some());
        types::testing::plant(None);
        assert!(found);
    }
}

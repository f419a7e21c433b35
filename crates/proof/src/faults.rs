//! What goes wrong in the first phase, and how it is made good.

mod operator;
mod sequence;

pub use operator::{affinity, pool_set};

use crate::object::looks_like_slots;
use crate::plan::{Kind, Plan};
use crate::rig::Rig;
use io::Rng;
use sim::{BadDisk, NodeId};
use std::time::Duration;
use types::OsdId;
use types::testing::{Probe, hits_of};

/// Below this place of a disk stand the store's head and its log. A store whose log rots is lost as a
/// whole, which is no fault that other copies of single objects mend.
const SAFE_BYTES: u64 = (4 << 20) + (64 << 10);
/// Data that was written to its place while its record was on the way to the log says, after a crash,
/// whether that record was: until the log goes on, which it has after so many writes, a bit that rots
/// there is a write that never was. That a bad disk may lose its newest write is no fault that others mend
/// when it is the first to serve again.
const DECIDED_WRITES: u64 = 32;
/// Faults that end by themselves do so within this.
const LONGEST_MS: u64 = 4000;

/// Bits that are flipped when all is whole.
const LAST_ROTS: u32 = 10;

/// What ends a fault.
#[derive(Clone, Copy, Debug)]
enum Heal {
    Cut(NodeId, NodeId),
    Silence(NodeId, NodeId),
    Island(NodeId),
    Pause(NodeId),
    Slow(NodeId),
    Start(usize),
    Mon,
    Flag(&'static str),
    Full,
    /// No disk is taken for full any more.
    Inject,
}

/// The faults of a seed.
pub struct Faults {
    plan: Plan,
    rng: Rng,
    heals: Vec<(Duration, Heal)>,
    /// What goes wrong next in faults of several steps.
    steps: Vec<(Duration, sequence::Step)>,
    /// One of those goes on until then.
    sequence_until: Duration,
    /// The one OSD whose disk is bad.
    bad_osd: usize,
    recoveries: u64,
    /// Says what it does.
    loud: bool,
}

fn is_hit(at: u64, block: &[u8]) -> bool {
    at >= SAFE_BYTES && looks_like_slots(block)
}

impl Faults {
    /// The faults of this plan.
    pub fn new(plan: &Plan, loud: bool) -> Self {
        let mut rng = Rng::with_seed(plan.seed ^ 0x000f_a017);
        let bad_osd = rng.usize(0..plan.osds);
        Faults {
            plan: plan.clone(),
            rng,
            heals: Vec::new(),
            steps: Vec::new(),
            sequence_until: Duration::ZERO,
            bad_osd,
            recoveries: 0,
            loud,
        }
    }

    /// How many PGs there should be in the end.
    pub fn pg_num(&self) -> u32 {
        self.plan.pg_num
    }

    /// What is there from the beginning.
    pub fn begin(&mut self, rig: &mut Rig) {
        let (plan, rng) = (&self.plan, &mut self.rng);
        let mut ppm = |kind: Kind, most: u32| if plan.has(kind) { rng.u32(1..most) } else { 0 };
        rig.world.set_faults(sim::Faults {
            break_ppm: ppm(Kind::Breaks, 2000),
            slow_disk_ppm: ppm(Kind::SlowDisks, 50_000),
            delay_ppm: ppm(Kind::Delays, 20_000),
        });
        if plan.has(Kind::Misdirects) {
            let (misdirected_ppm, lost_ppm) = (rng.u32(1000..100_000), rng.u32(1000..100_000));
            let bad = BadDisk { misdirected_ppm, lost_ppm, hits: is_hit };
            rig.world.set_bad_disk(rig.osds[self.bad_osd], Some(bad));
        }
        if plan.has(Kind::Skew) {
            for node in rig.osds.clone().into_iter().chain([rig.mon]) {
                let skew = Duration::from_millis(rng.u64(0..20_000));
                rig.world.set_skew(node, skew);
                rig.world.count("clock skewed", 1);
            }
        }
    }

    /// The OSD whose disk is bad in this seed, if there is one.
    pub fn bad_osd(&self) -> Option<usize> {
        let rots = [Kind::Rot, Kind::Misdirects, Kind::Replaces].iter().any(|k| self.plan.has(*k));
        rots.then_some(self.bad_osd)
    }

    fn say(&self, rig: &Rig, what: std::fmt::Arguments<'_>) {
        if self.loud {
            eprintln!("{:.6} {what}", rig.world.now().as_secs_f64());
        }
    }

    /// One turn: what is due ends, and what the seed says happens.
    pub fn turn(&mut self, rig: &mut Rig) {
        self.steps_due(rig);
        self.end_due(rig);
        for kind in Kind::ALL {
            if self.plan.has(kind) && self.rng.u8(..) < self.plan.rate {
                self.happen(kind, rig);
            }
        }
    }

    fn end_due(&mut self, rig: &mut Rig) {
        let now = rig.world.now();
        let (due, rest) = std::mem::take(&mut self.heals).into_iter().partition(|(t, _)| *t <= now);
        self.heals = rest;
        let due: Vec<(Duration, Heal)> = due;
        due.into_iter().for_each(|(_, heal)| self.heal(heal, rig));
    }

    fn heal(&mut self, heal: Heal, rig: &mut Rig) {
        self.say(rig, format_args!("ends: {heal:?}"));
        match heal {
            Heal::Cut(a, b) => rig.world.set_cut(a, b, false),
            Heal::Silence(a, b) => rig.world.set_silent(a, b, false),
            Heal::Island(node) => rig.world.isolate(node, &[], false),
            Heal::Pause(node) => rig.world.set_paused(node, false),
            Heal::Slow(node) => rig.world.set_slow_disks(node, 1),
            Heal::Start(osd) => rig.start(osd),
            Heal::Mon => {
                if !rig.world.is_up(rig.mon) {
                    rig.world.start(rig.mon);
                }
            }
            Heal::Flag(flag) => {
                rig.command(format!(r#"{{"prefix":"osd unset","key":"{flag}"}}"#));
            }
            Heal::Full => set_ratios(rig, 0.85, 0.90, 0.95),
            Heal::Inject => {
                for osd in 0..rig.osds.len() {
                    inject_full(rig, osd, "none", 0);
                }
            }
        }
    }

    /// Everything that goes on ends; all that was changed is as it was. Only the number of PGs stays
    /// about as it is: each merge takes its time.
    pub fn end_all(&mut self, rig: &mut Rig) {
        self.steps.clear();
        let all = std::mem::take(&mut self.heals);
        all.into_iter().for_each(|(_, heal)| self.heal(heal, rig));
        self.end_replacement(rig);
        rig.world.set_faults(sim::Faults::default());
        rig.world.set_bad_disk(rig.osds[self.bad_osd], None);
        let n = rig.osds.len();
        (0..n).for_each(|osd| rig.start(osd));
        let (size, min_size) = (self.plan.size, self.plan.min_size);
        let mut commands: Vec<String> = Vec::new();
        for osd in 0..n {
            commands.push(format!(r#"{{"prefix":"osd in","ids":["{osd}"]}}"#));
            commands.push(format!(r#"{{"prefix":"osd reweight","id":{osd},"weight":1.0}}"#));
            commands.push(affinity(osd, 1.0));
        }
        if self.plan.has(Kind::Resizes) {
            // Not otherwise: with the size min_size is changed, too, and for a moment a bad disk's copy
            // could serve alone.
            for (var, val) in [("size", size), ("min_size", min_size)] {
                commands.push(pool_set(var, val.into()));
            }
        }
        commands.into_iter().for_each(|c| _ = rig.command(c));
    }

    fn for_a_while(&mut self, rig: &Rig, heal: Heal) {
        let ms = match self.rng.u32(0..3) {
            0 => self.rng.u64(1..50),
            1 => self.rng.u64(1..500),
            _ => self.rng.u64(1..LONGEST_MS),
        };
        self.heals.push((rig.world.now() + Duration::from_millis(ms), heal));
    }

    fn osd(&mut self, rig: &Rig) -> (usize, NodeId) {
        let osd = self.rng.usize(0..rig.osds.len());
        (osd, rig.osds[osd])
    }

    /// Any machine but this one.
    fn other(&mut self, rig: &Rig, but: NodeId) -> NodeId {
        let users = (0..=rig.operator()).map(|u| rig.user_node(u));
        let all = rig.osds.iter().copied().chain([rig.mon]).chain(users);
        let all: Vec<_> = all.filter(|n| *n != but).collect();
        all[self.rng.usize(0..all.len())]
    }

    fn happen(&mut self, kind: Kind, rig: &mut Rig) {
        let at = self.osd(rig);
        self.say(rig, format_args!("{kind:?} at osd.{}", at.0));
        match kind {
            Kind::Partitions | Kind::OneWay | Kind::Islands | Kind::Sessions => {
                self.cut_off(kind, rig, at)
            }
            Kind::Crashes
            | Kind::Blackouts
            | Kind::Stops
            | Kind::RecoveryCrashes
            | Kind::Pauses
            | Kind::Replaces
            | Kind::MonCrashes => self.end_process(kind, rig, at),
            Kind::Rot
            | Kind::Full
            | Kind::SlowDisks
            | Kind::MapStorms
            | Kind::Flags
            | Kind::Resizes
            | Kind::PgNums
            | Kind::Scrubs => self.disturb(kind, rig),
            Kind::Lags | Kind::Branches => self.begin_sequence(kind, rig, at),
            // Those are everywhere, or another's.
            Kind::Breaks | Kind::Delays | Kind::Misdirects | Kind::Skew | Kind::ClientCrashes => {}
        }
    }

    /// What the network does.
    fn cut_off(&mut self, kind: Kind, rig: &mut Rig, (osd, node): (usize, NodeId)) {
        match kind {
            Kind::Partitions => {
                let other = self.other(rig, node);
                rig.world.set_cut(node, other, true);
                rig.world.count("partition", 1);
                self.for_a_while(rig, Heal::Cut(node, other));
            }
            Kind::OneWay => {
                let other = self.other(rig, node);
                let (from, to) = if self.rng.bool() { (node, other) } else { (other, node) };
                rig.world.set_silent(from, to, true);
                rig.world.count("one-way silence", 1);
                self.for_a_while(rig, Heal::Silence(from, to));
            }
            Kind::Sessions => {
                let (other, _) = self.osd(rig);
                let json = format!(r#"{{"prefix":"break_session","osd":{other}}}"#);
                rig.tell_later(OsdId(osd as i32), &json);
                rig.world.count("session lost", 1);
            }
            Kind::Islands => {
                // With a client that hears of nothing either, or alone.
                let reader = self.rng.bool();
                let client = if reader { 0 } else { self.rng.usize(0..rig.operator()) };
                let client = rig.user_node(client);
                let friends = if self.rng.u8(0..4) > 0 { vec![client] } else { vec![] };
                if !friends.is_empty() {
                    rig.world.isolate(client, &[node], true);
                }
                rig.world.isolate(node, &friends, true);
                rig.world.count("island", 1);
                if self.rng.bool() {
                    rig.command(format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#));
                }
                let end = rig.world.now() + Duration::from_millis(self.rng.u64(200..LONGEST_MS));
                self.heals.push((end, Heal::Island(node)));
                self.heals.push((end, Heal::Island(client)));
            }
            _ => {}
        }
    }

    /// What processes and machines do.
    fn end_process(&mut self, kind: Kind, rig: &mut Rig, (osd, node): (usize, NodeId)) {
        match kind {
            Kind::Crashes => {
                self.crash(rig, osd, "crash");
                // A rack: several at the same moment.
                while self.rng.u8(0..3) == 0 {
                    let (osd, _) = self.osd(rig);
                    self.crash(rig, osd, "crash with others");
                }
            }
            Kind::Blackouts if self.rng.u8(..) < 120 => {
                (0..rig.osds.len()).for_each(|osd| _ = rig.crash(osd));
                rig.world.count("blackout", 1);
                for osd in 0..rig.osds.len() {
                    // Some are back at once.
                    match self.rng.bool() {
                        true => rig.start(osd),
                        false => self.for_a_while(rig, Heal::Start(osd)),
                    }
                }
            }
            Kind::Stops if rig.world.is_up(node) => {
                rig.wanted[osd] = crate::rig::Wanted::Off;
                rig.world.stop(node);
                rig.world.count("ordered stop", 1);
                self.for_a_while(rig, Heal::Start(osd));
            }
            Kind::RecoveryCrashes => {
                let recovered = hits_of(Probe::Pushed) + hits_of(Probe::Pulled);
                if recovered > self.recoveries {
                    self.recoveries = recovered;
                    self.crash(rig, osd, "crash during recovery");
                }
            }
            Kind::Pauses => {
                rig.world.set_paused(node, true);
                rig.world.count("process hung", 1);
                self.for_a_while(rig, Heal::Pause(node));
            }
            Kind::Replaces if self.rng.u8(..) < 120 => self.lose_disk(rig),
            Kind::MonCrashes if rig.world.is_up(rig.mon) => {
                rig.world.crash(rig.mon);
                rig.world.count("mon crash", 1);
                self.for_a_while(rig, Heal::Mon);
            }
            _ => {}
        }
    }

    /// What disks and operators do.
    fn disturb(&mut self, kind: Kind, rig: &mut Rig) {
        match kind {
            Kind::Rot => self.rot(rig),
            Kind::Full if self.rng.bool() => {
                // What comes before the others hear of it is left out, or waits.
                let fullness = ["failsafe", "failsafe", "full"][self.rng.usize(0..3)];
                for osd in 0..rig.osds.len() {
                    if self.rng.u8(0..3) > 0 {
                        inject_full(rig, osd, fullness, self.rng.u32(1..20));
                        rig.world.count("disk without space", 1);
                    }
                }
                self.for_a_while(rig, Heal::Inject);
            }
            Kind::Full => {
                let full = self.rng.u32(0..3) == 0;
                let tiny = 0.01;
                match full {
                    true => set_ratios(rig, tiny, tiny, tiny),
                    false => set_ratios(rig, tiny, tiny, 0.95),
                }
                rig.world.count(if full { "cluster full" } else { "cluster nearly full" }, 1);
                self.for_a_while(rig, Heal::Full);
            }
            Kind::SlowDisks => {
                let (_, node) = self.osd(rig);
                rig.world.set_slow_disks(node, self.rng.u64(5..100));
                rig.world.count("slow disk", 1);
                self.for_a_while(rig, Heal::Slow(node));
            }
            Kind::MapStorms => self.map_storm(rig),
            Kind::PgNums => self.change_pg_num(rig),
            Kind::Flags => {
                let all = ["noout", "noin", "nobackfill", "norecover", "norebalance", "nodown"];
                let flag = all[self.rng.usize(0..all.len())];
                rig.command(format!(r#"{{"prefix":"osd set","key":"{flag}"}}"#));
                rig.world.count("flag set", 1);
                self.for_a_while(rig, Heal::Flag(flag));
            }
            Kind::Resizes => {
                let size = self.rng.u8(2..=3);
                let min_size = self.rng.u8(self.plan.min_size.min(size)..=size);
                rig.command(pool_set("size", size.into()));
                rig.command(pool_set("min_size", min_size.into()));
                rig.world.count("size changed", 1);
            }
            Kind::Scrubs => {
                let what = ["scrub", "deep-scrub", "repair"][self.rng.usize(0..3)];
                rig.command(format!(r#"{{"prefix":"osd pool {what}","who":["p"]}}"#));
                rig.world.count("scrub ordered", 1);
            }
            _ => {}
        }
    }

    fn rot(&mut self, rig: &mut Rig) {
        let node = rig.osds[self.bad_osd];
        let rot = rig.world.disk(node, 0).rot(is_hit, DECIDED_WRITES, &mut self.rng);
        rig.world.count("bit flipped", u64::from(rot.is_some()));
    }

    /// Where a disk rots it does so when all is whole, too: the good copies are there, and nobody may notice.
    pub fn rot_when_whole(&mut self, rig: &mut Rig) {
        if self.plan.has(Kind::Rot) {
            (0..LAST_ROTS).for_each(|_| self.rot(rig));
        }
    }

    fn crash(&mut self, rig: &mut Rig, osd: usize, what: &'static str) {
        if rig.crash(osd) {
            rig.world.count(what, 1);
            self.for_a_while(rig, Heal::Start(osd));
        }
    }
}

fn inject_full(rig: &mut Rig, osd: usize, fullness: &str, count: u32) {
    let json = format!(r#"{{"prefix":"injectfull","type":"{fullness}","count":{count}}}"#);
    rig.tell_later(OsdId(osd as i32), &json);
}

fn set_ratios(rig: &mut Rig, nearfull: f64, backfillfull: f64, full: f64) {
    let all = [("nearfull", nearfull), ("backfillfull", backfillfull), ("full", full)];
    for (name, ratio) in all {
        rig.command(format!(r#"{{"prefix":"osd set-{name}-ratio","ratio":{ratio}}}"#));
    }
}

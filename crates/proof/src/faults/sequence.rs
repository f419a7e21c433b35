//! Faults of several steps: what one mistake needs to become an error that a client sees.

use super::{Faults, Heal, LONGEST_MS};
use crate::load::READER;
use crate::plan::Kind;
use crate::rig::Rig;
use sim::NodeId;
use std::time::Duration;

/// What goes wrong next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The power of all fails, and this OSD's machine is back last.
    Blackout(usize),
    /// The power of an OSD fails, which is alone.
    CrashAlone(usize),
    /// The OSD that lost its disk gets an empty one as soon as the cluster knows that its data are gone.
    NewDisk,
}

impl Faults {
    /// How long until something goes wrong that others have prepared.
    pub fn next_step(&self, now: Duration) -> Option<Duration> {
        self.steps.iter().map(|(at, _)| at.saturating_sub(now)).min()
    }

    pub(super) fn steps_due(&mut self, rig: &mut Rig) {
        let now = rig.world.now();
        let (due, rest) = std::mem::take(&mut self.steps).into_iter().partition(|(t, _)| *t <= now);
        self.steps = rest;
        let due: Vec<(Duration, Step)> = due;
        for (_, step) in due {
            self.say(rig, format_args!("next: {step:?}"));
            match step {
                Step::Blackout(last) => self.lagging_blackout(rig, last),
                Step::CrashAlone(osd) => self.crash(rig, osd, "crash of a branch"),
                Step::NewDisk => self.new_disk(rig),
            }
        }
    }

    pub(super) fn begin_sequence(&mut self, kind: Kind, rig: &mut Rig, at: (usize, NodeId)) {
        if !self.steps.is_empty() || rig.world.now() < self.sequence_until {
            return;
        }
        // Whoever leads where most happens.
        let at = rig.busiest().map_or(at, |osd| (osd, rig.osds[osd]));
        match kind {
            Kind::Lags => self.lag(rig, at),
            Kind::Branches => self.branch(rig, at),
            _ => {}
        }
    }

    /// What the others have acknowledged and not flushed will be lost, and the one that has it is
    /// away when they serve again.
    fn lag(&mut self, rig: &mut Rig, (last, _): (usize, NodeId)) {
        let now = rig.world.now();
        let end = now + Duration::from_millis(self.rng.u64(5..60));
        for osd in (0..rig.osds.len()).filter(|o| *o != last) {
            let node = rig.osds[osd];
            // Most of what is written until then is not durable.
            rig.world.set_slow_disks(node, self.rng.u64(200..2000));
            self.heals.push((end, Heal::Slow(node)));
        }
        self.steps.push((end, Step::Blackout(last)));
    }

    fn lagging_blackout(&mut self, rig: &mut Rig, last: usize) {
        (0..rig.osds.len()).for_each(|osd| _ = rig.crash(osd));
        rig.world.count("blackout while disks lag", 1);
        (0..rig.osds.len()).filter(|o| *o != last).for_each(|osd| rig.start(osd));
        let back = Duration::from_millis(self.rng.u64(900..LONGEST_MS));
        self.sequence_until = rig.world.now() + back;
        self.heals.push((self.sequence_until, Heal::Start(last)));
    }

    /// An OSD and all clients but one hear nothing of the rest. Its log grows, and when it is back
    /// the others have gone on with a shorter one. The clients are back later: what they sent does
    /// not follow it.
    fn branch(&mut self, rig: &mut Rig, (osd, node): (usize, NodeId)) {
        let now = rig.world.now();
        let clients = rig.operator();
        let outside = if self.rng.bool() { READER } else { self.rng.usize(0..clients) };
        let friends: Vec<_> =
            (0..clients).filter(|c| *c != outside).map(|c| rig.user_node(c)).collect();
        // The others wait until its leases have ended; then they may have done a little, or more.
        let end = now + Duration::from_millis(self.rng.u64(800..2000));
        for friend in &friends {
            rig.world.isolate(*friend, &[node], true);
            let later = Duration::from_millis(self.rng.u64(0..1500));
            self.heals.push((end + later, Heal::Island(*friend)));
        }
        rig.world.isolate(node, &friends, true);
        rig.command(format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#));
        rig.world.count("branch", 1);
        self.heals.push((end, Heal::Island(node)));
        // Time to see what came of it.
        self.sequence_until = end + Duration::from_millis(500);
        if self.rng.bool() {
            self.steps.push((end, Step::CrashAlone(osd)));
        }
    }

    /// An OSD dies with its disk.
    pub(super) fn lose_disk(&mut self, rig: &mut Rig) {
        if rig.lose_disk(self.bad_osd) {
            rig.world.count("disk lost", 1);
            // An empty store has given no leases: those of the old one have ended by then.
            let back = Duration::from_millis(self.rng.u64(1000..LONGEST_MS));
            self.steps.push((rig.world.now() + back, Step::NewDisk));
        }
    }

    fn new_disk(&mut self, rig: &mut Rig) {
        let Some(osd) = rig.diskless() else { return };
        if rig.is_destroyed(osd) {
            rig.replace_disk();
            rig.world.count("OSD with a new disk", 1);
            return;
        }
        free_number(rig, osd);
        self.steps.push((rig.world.now() + Duration::from_millis(300), Step::NewDisk));
    }

    /// There are no other faults any more.
    pub(super) fn end_replacement(&mut self, rig: &mut Rig) {
        let Some(osd) = rig.diskless() else { return };
        let freed = rig.wait(Duration::from_secs(60), Duration::from_millis(300), |rig| {
            let is_free = rig.is_destroyed(osd);
            if !is_free {
                free_number(rig, osd);
            }
            is_free
        });
        assert!(freed, "osd.{osd} could not be destroyed");
        rig.replace_disk();
    }
}

/// As an operator does it.
fn free_number(rig: &mut Rig, osd: usize) {
    rig.command(format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#));
    let sure = r#""yes_i_really_mean_it":true"#;
    rig.command(format!(r#"{{"prefix":"osd destroy-actual","id":{osd},{sure}}}"#));
}

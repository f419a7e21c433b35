//! How much time recovery takes from clients: by measure.
//!
//! Recovery goes in small steps: reading a part of an object here, making one durable here. While
//! clients are at work on this OSD, a step begins only when the steps before it have used no more than
//! their share of the time (`osd_recovery_share`): after a step that is known to take 2 ms, at a share
//! of a fifth, 10 ms pass before the next. Each OSD sees to itself only: who sends waits before it
//! reads, who receives waits before it answers. Without clients nothing waits. What a client waits for
//! is never held.

use crate::daemon::Daemon;
use io::Effects;
use peer::{Hurry, Pull, PushAck};
use std::time::Duration;
use types::{Epoch, HObject, Mono, OsdId, PgId};
use wire::msg::Payload;

/// After so long without a request clients count as idle.
const REST_MS: u64 = 250;
/// No step makes the next one wait for longer.
const LONGEST_PAUSE_MS: u64 = 500;
/// What a step is taken to need before one was measured.
const FIRST_GUESS: Duration = Duration::from_millis(1);
/// Data of one step while clients are at work.
pub(crate) const STEP_BYTES: u64 = 512 << 10;
/// Objects that an OSD moves at the same time while clients are at work.
pub(crate) const BUSY_OBJECTS: usize = 2;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Read,
    Write,
}

/// Measures steps, and says when the next may begin.
#[derive(Debug)]
pub struct Pacer {
    share: f64,
    /// Mean time of a read and of a write.
    means: [Duration; 2],
    next: Mono,
    client_at: Option<Mono>,
}

impl Pacer {
    pub(crate) fn new(share: f64) -> Self {
        Pacer { share, means: [FIRST_GUESS; 2], next: Mono::default(), client_at: None }
    }

    pub(crate) fn set_share(&mut self, share: f64) {
        self.share = share;
    }

    /// A client wants something of this OSD.
    pub(crate) fn client_came(&mut self, now: Mono) {
        self.client_at = Some(now);
    }

    /// Whether clients are at work.
    pub(crate) fn clients_work(&self, now: Mono) -> bool {
        self.client_at.is_some_and(|at| now.since(at) < Duration::from_millis(REST_MS))
    }

    /// Whether a step may begin.
    pub(crate) fn may_begin(&self, now: Mono) -> bool {
        self.share >= 1.0 || now >= self.next || !self.clients_work(now)
    }

    /// A step begins.
    pub(crate) fn begins(&mut self, now: Mono, step: Step) {
        if !self.clients_work(now) {
            return;
        }
        let cycle = types::times(self.means[step as usize], 1.0 / self.share.clamp(0.01, 1.0));
        let cycle = cycle.min(Duration::from_millis(LONGEST_PAUSE_MS));
        self.next = self.next.max(now).after(cycle);
    }

    /// A step took so long.
    pub(crate) fn took(&mut self, step: Step, time: Duration) {
        let mean = &mut self.means[step as usize];
        *mean = (*mean * 7 + time) / 8;
    }

    /// When what waits may go on, at the latest.
    fn wake_at(&self) -> Mono {
        let idle = self.client_at.map(|at| at.after(Duration::from_millis(REST_MS)));
        idle.map_or(self.next, |at| at.min(self.next))
    }

    /// Mean times of reads and writes.
    pub(crate) fn means(&self) -> [Duration; 2] {
        self.means
    }
}

/// A step that waits for its time.
#[derive(Debug)]
pub(crate) enum Held {
    /// A part of an object is to be read and sent.
    Part(PgId, Epoch, OsdId, HObject),
    /// A part is here: the answer that asks for more.
    Ack(OsdId, PushAck),
    /// The same where we asked for the object.
    Pull(OsdId, Pull),
}

impl Held {
    fn object(&self) -> (PgId, &HObject) {
        match self {
            Held::Part(pgid, _, _, object) => (*pgid, object),
            Held::Ack(_, ack) => (ack.pgid, &ack.object),
            Held::Pull(_, pull) => (pull.pgid, &pull.object),
        }
    }

    /// From where the object comes, if it is one that comes here.
    fn source(&self) -> Option<OsdId> {
        match self {
            Held::Part(..) => None,
            Held::Ack(from, _) | Held::Pull(from, _) => Some(*from),
        }
    }
}

impl Daemon {
    /// When held steps are due.
    pub(crate) fn next_step(&self) -> Option<Mono> {
        // While it is not up nothing goes on: it would only turn round and round.
        let waits = self.is_up() && (!self.held.is_empty() || self.paced_pulls);
        waits.then(|| self.pacer.wake_at())
    }

    /// Lets held steps go on whose time has come.
    pub(crate) fn release_held(&mut self, fx: &mut Effects) {
        while self.pacer.may_begin(self.now.mono)
            && let Some(held) = self.held.pop_front()
        {
            self.go_on_with(held, fx);
        }
    }

    fn go_on_with(&mut self, held: Held, fx: &mut Effects) {
        let urgent = self.is_hurried(&held);
        match held {
            Held::Part(pgid, interval, to, object) => {
                let same = |h: &crate::host::PgHost| h.interval() == interval;
                if self.pgs.get(&pgid).is_some_and(same) {
                    self.begin_part(pgid, to, object, fx);
                }
            }
            Held::Ack(to, ack) => {
                if ack.next.done
                    && let Some(host) = self.pgs.get_mut(&ack.pgid)
                {
                    host.transfers.has_come(to, &ack.object);
                }
                self.pacer.begins(self.now.mono, Step::Write);
                self.send_peer(to, ack.encode(), fx);
            }
            Held::Pull(to, pull) => {
                self.pacer.begins(self.now.mono, Step::Write);
                self.send_peer(to, Pull { urgent, ..pull }.encode(), fx);
            }
        }
    }

    /// Whether a client waits for what has come.
    fn is_hurried(&self, held: &Held) -> bool {
        let (pgid, object) = held.object();
        let host = held.source().zip(self.pgs.get(&pgid));
        host.is_some_and(|(from, host)| host.transfers.is_urgent(from, object))
    }

    /// A part of an object is durable here: the answer leaves now (at once, or because a client waits
    /// for it), or when there is time.
    pub(crate) fn answer_part(&mut self, held: Held, since: Mono, at_once: bool, fx: &mut Effects) {
        let now = self.now.mono;
        self.pacer.took(Step::Write, now.since(since));
        let at_once = at_once || self.is_hurried(&held);
        if at_once || (self.held.is_empty() && self.pacer.may_begin(now)) {
            self.go_on_with(held, fx);
        } else {
            self.held.push_back(held);
        }
    }

    /// A client waits for an object that is on its way: nothing holds it any more, here or at the
    /// other end.
    pub(crate) fn hurry_steps(&mut self, pgid: PgId, object: &HObject, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let (unaware, interval) = (host.transfers.hurry(object), host.interval());
        for osd in unaware {
            let hurry = Hurry { pgid, interval, object: object.clone() };
            self.send_peer(osd, hurry.encode(), fx);
        }
        self.release_steps(pgid, object, fx);
    }

    /// The other end says so.
    pub(crate) fn on_hurry(&mut self, m: &Hurry, fx: &mut Effects) {
        if let Some(host) = self.pgs.get_mut(&m.pgid).filter(|h| h.interval() == m.interval) {
            host.transfers.hurry(&m.object);
            self.release_steps(m.pgid, &m.object, fx);
        }
    }

    fn release_steps(&mut self, pgid: PgId, object: &HObject, fx: &mut Effects) {
        let its = |h: &Held| h.object() == (pgid, object);
        while let Some(at) = self.held.iter().position(its) {
            if let Some(held) = self.held.remove(at) {
                self.go_on_with(held, fx);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Mono {
        Mono(n * 1_000_000)
    }

    #[test]
    fn steps_take_their_share_while_clients_work_and_all_of_it_else() {
        let mut p = Pacer::new(0.2);
        (0..64).for_each(|_| p.took(Step::Write, Duration::from_millis(4)));
        assert!(p.may_begin(ms(0)));
        p.begins(ms(0), Step::Write);
        assert!(p.may_begin(ms(0)), "nobody else is there");
        let mut steps = 0;
        for now in 0..1000 {
            p.client_came(ms(now));
            if p.may_begin(ms(now)) {
                p.begins(ms(now), Step::Write);
                steps += 1;
            }
        }
        // 4 ms each of 1000 ms.
        assert!((48..=51).contains(&steps), "{steps}");
        assert!(!p.may_begin(ms(1000)) || p.wake_at() <= ms(1020));
        assert!(p.may_begin(ms(999 + REST_MS)), "the clients are gone");
    }

    #[test]
    fn a_slow_disk_makes_recovery_slow_but_does_not_stop_it() {
        let mut p = Pacer::new(0.01);
        (0..64).for_each(|_| p.took(Step::Read, Duration::from_secs(5)));
        p.client_came(ms(10));
        p.begins(ms(10), Step::Read);
        p.client_came(ms(500));
        assert!(!p.may_begin(ms(509)) && p.may_begin(ms(510)));
    }
}

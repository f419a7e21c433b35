//! OSDs that fall silent, and a mon that hears nobody.
//!
//! A session that ends says that its OSD died only if it spoke just before: a process that is killed has its
//! sockets closed at once. After a silence it says nothing, since an OSD that was cut off for a while has given its
//! session up, and the end of that one may arrive before the next one begins. So:
//!
//! * Whose session ends in silence, or soon after one, has `mon_osd_reconnect_grace` to open another one.
//! * Whose session this mon gives up is waited for as if it still were there: `mon_osd_report_timeout` since it was
//!   last heard. (If it is dead the other OSDs say so much sooner.)
//! * When nobody is heard it is this mon that is cut off. That time counts for nothing, as if it had stood still: what
//!   others did meanwhile it hears later, and what they did not do is no sign of anything.
//! * For silence nobody is marked down when too few are left (`mon_osd_min_up_ratio`).

use crate::cluster::Cluster;
use io::Now;
use std::time::Duration;
use types::{Mono, OsdId};
use wire::{CloseWhy, LinkId};

/// From so long a silence on, what happens to a session is no sign of anything. OSDs report every 5 s.
const LONG_SILENCE: Duration = Duration::from_secs(10);

/// An OSD whose session ended in silence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    /// When it was last heard.
    heard: Mono,
    /// Until when it may come back.
    until: Mono,
}

impl Cluster {
    /// Somebody speaks. Whether it is an OSD that had been silent is remembered.
    pub fn heard(&mut self, now: Now, link: LinkId) {
        let Some(session) = self.sessions.get_mut(&link).filter(|s| s.osd().is_some()) else {
            return;
        };
        if now.mono.since(session.heard) >= LONG_SILENCE {
            session.silent_until = Some(now.mono);
        }
        session.heard = now.mono;
        if let Some(time) = self.cut_off(now) {
            let seconds = time.as_secs_f64();
            tracing::warn!("this mon was cut off from all OSDs for {seconds:.1} s");
            self.missed(now, time);
        }
        self.last_heard = Some(now.mono);
    }

    /// For how long no OSD was heard, if that is a long time. Not before the first one was heard: whoever does not
    /// come to a mon that has just started is missed.
    pub fn cut_off(&self, now: Now) -> Option<Duration> {
        let silence = now.mono.since(self.last_heard?.max(self.woke));
        let misses = silence >= LONG_SILENCE && self.map().up_osds().next().is_some();
        misses.then_some(silence)
    }

    /// For how long an OSD that is up was not heard, if this mon had a session with it.
    pub fn silence(&self, now: Now, id: OsdId) -> Option<Duration> {
        let session = self.osd_links.get(&id).and_then(|link| self.sessions.get(link));
        let heard = session.map(|s| s.heard).or_else(|| self.awaited.get(&id).map(|a| a.heard));
        Some(now.mono.since(heard?.max(self.woke)))
    }

    /// A session has just ended. Whether its OSD may come back, and until when.
    pub fn session_ended(&mut self, now: Now, link: LinkId, why: &CloseWhy) {
        let grace = self.settings.duration("mon_osd_reconnect_grace");
        let timeout = self.settings.duration("mon_osd_report_timeout");
        let Some(session) = self.sessions.get_mut(&link) else { return };
        let (heard, back) = (session.heard, now.mono.after(grace));
        let broken = session.silent_until.is_some_and(|at| now.mono.since(at) < grace);
        let until = match why {
            CloseWhy::Timeout(_) if timeout == Duration::ZERO => Some(Mono(u64::MAX)),
            CloseWhy::Timeout(_) => Some(back.max(heard.after(timeout))),
            _ => (broken || now.mono.since(heard) >= LONG_SILENCE).then_some(back),
        };
        session.awaited = until.map(|until| Awaited { heard, until });
    }

    /// Whether it was this mon that heard nothing, lately: who waited for it in vain has given up the session, lives, and
    /// dials again.
    pub(super) fn waited_in_vain(&self, now: Now, link: LinkId) -> bool {
        let grace = self.settings.duration("mon_osd_reconnect_grace");
        let opened = self.sessions.get(&link).map(|session| session.opened.mono);
        opened.is_some_and(|at| at < self.woke) && now.mono.since(self.woke) < grace
    }

    /// This mon stood still for so long: its process was stopped, or its store hung. What others did meanwhile it
    /// hears now, and not in the order in which they did it.
    pub fn stood_still(&mut self, now: Now, time: Duration) {
        tracing::warn!("this mon stood still for {:.1} s", time.as_secs_f64());
        self.missed(now, time);
    }

    /// What happened in that time was not heard.
    fn missed(&mut self, now: Now, time: Duration) {
        self.woke = now.mono;
        self.down_since.values_mut().for_each(|since| *since = since.after(time));
        self.awaited.values_mut().for_each(|awaited| awaited.until = awaited.until.after(time));
        self.identities.stood_still(time);
    }

    /// Whether enough OSDs are up for one of them to be marked down for its silence.
    pub(super) fn enough_are_up(&self) -> bool {
        let map = self.map();
        let (up, all) = (map.up_osds().count() as f64, map.existing_osds().count().max(1) as f64);
        up / all >= self.settings.float("mon_osd_min_up_ratio")
    }

    /// Marks OSDs down that do not come back after a start of the mon or a silence, or do not report.
    pub fn silent_osds(&mut self, now: Now) {
        let grace = self.settings.duration("mon_osd_reconnect_grace");
        let timeout = self.settings.duration("mon_osd_report_timeout");
        let map = self.map().clone();
        for id in map.up_osds() {
            if self.draft.touches(id) || !self.may_mark_down(id) {
                continue;
            }
            let session = self.osd_links.get(&id).and_then(|link| self.sessions.get(link));
            let why = if let Some(session) = session {
                let said = self.pgmap.living_osd(&map, id).map(|s| s.at);
                let silence = now.mono.since(said.unwrap_or(session.opened.mono).max(self.woke));
                let is_over = timeout > Duration::ZERO && silence >= timeout;
                is_over.then(|| format!("no report for {} s", silence.as_secs()))
            } else {
                let until = self.awaited.get(&id).map_or(Mono::default(), |awaited| awaited.until);
                let is_over = now.mono >= until.max(self.woke.after(grace));
                is_over.then(|| "it has no session with this mon".to_owned())
            };
            if let Some(why) = why.filter(|_| self.enough_are_up()) {
                self.mark_down(now, id, &why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;
    use crate::osds::down::testing::{connect, dial};
    use io::net::CloseReason;

    const REPORT_EVERY: Duration = Duration::from_secs(5);
    const FIN: CloseWhy = CloseWhy::Net(CloseReason::Eof);

    /// The sessions of OSDs, as [`connect`] makes them.
    fn link(id: i32) -> LinkId {
        LinkId(100 + u64::try_from(id).unwrap())
    }

    fn with_sessions() -> Bench {
        let mut bench = Bench::new();
        (0..3).for_each(|id| connect(&mut bench, OsdId(id)));
        bench
    }

    /// Time passes in which only these sessions are spoken on.
    fn pass(bench: &mut Bench, time: Duration, speak: &[LinkId]) {
        let end = bench.now().mono.after(time);
        while bench.now().mono < end {
            bench.pass(REPORT_EVERY.min(end.since(bench.now().mono)));
            let now = bench.now();
            speak.iter().for_each(|link| bench.c.heard(now, *link));
            if bench.c.cut_off(now).is_none() {
                bench.c.silent_osds(now);
            }
        }
    }

    fn ends(bench: &mut Bench, id: i32, why: &CloseWhy) {
        let now = bench.now();
        bench.c.session_ended(now, link(id), why);
        assert!(!bench.c.session_closed(now, link(id)));
    }

    fn is_up(bench: &Bench, id: i32) -> bool {
        bench.c.map().is_up(OsdId(id))
    }

    /// It was cut off for a while and has given up; or what it had said before it gave up arrives before that.
    #[test]
    fn a_session_that_ends_in_silence_is_waited_for_and_one_that_spoke_is_not() {
        let mut bench = with_sessions();
        let grace = bench.c.settings.duration("mon_osd_reconnect_grace");
        pass(&mut bench, Duration::from_secs(60), &[link(0), link(1)]);
        ends(&mut bench, 2, &FIN);
        let now = bench.now();
        bench.c.heard(now, link(1));
        ends(&mut bench, 1, &FIN);
        assert_eq!((is_up(&bench, 1), is_up(&bench, 2)), (false, true));
        // It is back in time, or not.
        dial(&mut bench, OsdId(2), LinkId(200), 1);
        bench.c.claim(OsdId(2), LinkId(200));
        pass(&mut bench, grace * 2, &[link(0)]);
        assert!(is_up(&bench, 2));
        let now = bench.now();
        bench.c.heard(now, LinkId(200));
        bench.c.session_ended(now, LinkId(200), &FIN);
        bench.c.session_closed(now, LinkId(200));
        assert!(is_up(&bench, 2), "what it had said before it gave up has just arrived");
        pass(&mut bench, grace - Duration::from_secs(1), &[link(0)]);
        assert!(is_up(&bench, 2));
        pass(&mut bench, Duration::from_secs(1), &[link(0)]);
        assert!(!is_up(&bench, 2));
    }

    /// `mon_osd_report_timeout` is longer than a session is kept.
    #[test]
    fn a_session_that_the_mon_gives_up_is_no_sooner_an_end_than_the_missing_reports() {
        let mut bench = with_sessions();
        let timeout = bench.c.settings.duration("mon_osd_report_timeout");
        let kept = Duration::from_secs(300);
        pass(&mut bench, kept, &[link(0), link(1)]);
        ends(&mut bench, 2, &CloseWhy::Timeout("silence"));
        pass(&mut bench, timeout - kept - REPORT_EVERY, &[link(0), link(1)]);
        assert!(is_up(&bench, 2));
        let health = bench.run(&serde_json::json!({"prefix": "health", "detail": "detail"}));
        assert!(String::from_utf8_lossy(&health.2).contains("OSD_SILENT"), "{health:?}");
        pass(&mut bench, REPORT_EVERY, &[link(0), link(1)]);
        assert!(!is_up(&bench, 2));
    }

    /// As if it had stood still.
    #[test]
    fn a_mon_that_hears_nobody_accuses_nobody() {
        let mut bench = with_sessions();
        let grace = bench.c.settings.duration("mon_osd_reconnect_grace");
        pass(&mut bench, REPORT_EVERY, &[0, 1, 2].map(link));
        pass(&mut bench, Duration::from_secs(300), &[]);
        (0..3).for_each(|id| ends(&mut bench, id, &CloseWhy::Timeout("silence")));
        pass(&mut bench, Duration::from_secs(3000), &[]);
        assert_eq!(bench.c.map().up_osds().count(), 3);
        let again = [LinkId(200), LinkId(201)];
        for (id, link) in [OsdId(0), OsdId(1)].into_iter().zip(again) {
            dial(&mut bench, id, link, 1);
            bench.c.claim(id, link);
        }
        pass(&mut bench, grace * 2, &again);
        assert!(is_up(&bench, 2));
    }

    /// As Ceph's `can_mark_down`.
    #[test]
    fn silence_takes_no_more_down_than_the_ratio_allows() {
        let mut bench = Bench::new();
        bench.c.settings.set(admin::settings::Source::File, "mon_osd_min_up_ratio", "0.6").unwrap();
        let all = bench.c.map().existing_osds().count();
        bench.pass(Duration::from_secs(3600));
        let now = bench.now();
        bench.c.silent_osds(now);
        let up = bench.c.map().up_osds().count();
        assert!(up > 0 && (up as f64) < 0.6 * all as f64, "{up} of {all}");
        assert!((up + 1) as f64 >= 0.6 * all as f64, "{up} of {all}");
    }
}

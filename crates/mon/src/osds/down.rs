//! OSDs that stop or vanish.

use crate::cluster::Cluster;
use crate::log::Level;
use io::Now;
use maps::{OsdMapFlags, OsdState};
use peer::OsdGoingDown;
use std::ops::Bound;
use types::OsdId;
use wire::{LinkId, PeerInfo};

impl Cluster {
    /// Whether flags allow to mark an OSD down.
    pub fn may_mark_down(&self, id: OsdId) -> bool {
        let map = self.map();
        !map.flags.contains(OsdMapFlags::NODOWN)
            && !map.effective_flags(id).contains(OsdState::NODOWN)
    }

    /// An OSD stops in order: it is down at once, and surely dead from now on.
    pub fn going_down(&mut self, now: Now, m: &OsdGoingDown) {
        let id = m.osd;
        let map = self.map();
        let since = map.osd(id).map(|o| o.info.up_from);
        if map.is_down(id) || since != Some(m.up_from) || self.draft.touches(id) {
            return;
        }
        if !self.may_mark_down(id) {
            tracing::debug!("osd.{id} stops, but the flag nodown keeps it up");
            return;
        }
        self.save_mark(id);
        let done = self.change(|inc, map| {
            inc.mark_down(id);
            let epoch = inc.epoch;
            inc.new_last_clean_interval.insert(id, (m.up_from, epoch));
            if let Some(osd) = map.osd(id) {
                let xinfo = maps::OsdXInfo { dead_epoch: epoch, down_stamp: now.wall, ..osd.xinfo };
                inc.new_xinfo.insert(id, xinfo);
            }
        });
        if done.is_ok() {
            self.say(now, Level::Info, format!("osd.{id} marked itself down"));
        }
    }

    /// A session ended. If it was the one an OSD that is up speaks through, the OSD is down, unless it may come back
    /// (`silence`). Whether it has to be looked at again after the commit.
    pub fn session_closed(&mut self, now: Now, link: LinkId) -> bool {
        self.identities.session_closed(link);
        let Some(id) = self.sessions.get(&link).and_then(|s| s.osd()) else {
            self.sessions.remove(&link);
            return false;
        };
        let current = self.osd_links.get(&id) == Some(&link);
        let newer = self.newer_session(link);
        let lives = newer.is_some() || self.waited_in_vain(now, link);
        if current && !lives && self.map().is_up(id) && self.may_mark_down(id) {
            if self.draft.touches(id) {
                return true;
            }
            match self.sessions.get(&link).and_then(|session| session.awaited) {
                Some(awaited) => drop(self.awaited.insert(id, awaited)),
                None => self.mark_down(now, id, "its session ended"),
            }
        }
        if current {
            match newer {
                Some(newer) => self.osd_links.insert(id, newer),
                None => self.osd_links.remove(&id),
            };
        }
        self.sessions.remove(&link);
        false
    }

    /// A newer session of the same process: its address tells it from the next one.
    fn newer_session(&self, link: LinkId) -> Option<LinkId> {
        let peer = &self.sessions.get(&link)?.peer;
        let is_same = |other: &PeerInfo| other.name == peer.name && other.addrs == peer.addrs;
        let after = (Bound::Excluded(link), Bound::Unbounded);
        let newest = self.sessions.range(after).rfind(|(_, session)| is_same(&session.peer));
        newest.map(|(newest, _)| *newest)
    }

    /// Marks an OSD down that is up.
    pub fn mark_down(&mut self, now: Now, id: OsdId, why: &str) {
        self.save_mark(id);
        let done = self.change(|inc, map| {
            inc.mark_down(id);
            if let Some(osd) = map.osd(id) {
                let xinfo = maps::OsdXInfo { down_stamp: now.wall, ..osd.xinfo };
                inc.new_xinfo.insert(id, xinfo);
            }
        });
        if done.is_ok() {
            self.say(now, Level::Warn, format!("osd.{id} marked down: {why}"));
        }
    }
}

/// Sessions, for tests.
#[cfg(test)]
pub(super) mod testing {
    use crate::commands::bench::Bench;
    use crate::session::Session;
    use std::sync::Arc;
    use types::{AddrVec, EntityName, OsdId};
    use wire::{LinkId, PeerInfo};

    /// An OSD has a session: 100 and its number.
    pub fn connect(bench: &mut Bench, id: OsdId) {
        let link = LinkId(u64::from(id.0.unsigned_abs()) + 100);
        dial(bench, id, link, 1);
        bench.c.osd_links.insert(id, link);
    }

    /// A process, known by this number, opens a session.
    pub fn dial(bench: &mut Bench, id: OsdId, link: LinkId, nonce: u32) {
        let peer = PeerInfo {
            name: EntityName::osd(id),
            auth_name: Default::default(),
            global_id: 0,
            addrs: AddrVec::msgr2("10.0.0.7:0".parse().unwrap(), nonce),
            socket: None,
            features: 0,
            listen: None,
            lossy: true,
        };
        bench.c.sessions.insert(link, Session::new(bench.now(), Arc::new(peer)));
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{connect, dial};
    use crate::commands::bench::Bench;
    use std::time::Duration;
    use types::OsdId;
    use wire::LinkId;

    /// What ended is not the process, if it has dialled again already; if another one has, it is.
    #[test]
    fn a_process_with_a_newer_session_is_not_dead() {
        let mut bench = Bench::new();
        let id = OsdId(1);
        connect(&mut bench, id);
        dial(&mut bench, id, LinkId(200), 1);
        let now = bench.now();
        assert!(!bench.c.session_closed(now, LinkId(101)));
        assert_eq!(
            (bench.c.map().is_up(id), bench.c.osd_links.get(&id)),
            (true, Some(&LinkId(200)))
        );
        dial(&mut bench, id, LinkId(201), 2);
        assert!(!bench.c.session_closed(now, LinkId(200)));
        assert!(bench.c.map().is_down(id));
    }

    /// Nobody could be heard meanwhile.
    #[test]
    fn what_a_mon_misses_while_it_stands_still_is_no_silence() {
        let mut bench = Bench::new();
        let grace = bench.c.settings.duration("mon_osd_reconnect_grace");
        (0..3).for_each(|id| connect(&mut bench, OsdId(id)));
        bench.again();
        bench.stop(OsdId(2));
        let now = bench.now();
        bench.c.auto_out(now);
        let still = Duration::from_secs(2000);
        bench.pass(still);
        let now = bench.now();
        bench.c.stood_still(now, still);
        bench.c.silent_osds(now);
        bench.c.auto_out(now);
        bench.c.session_closed(now, LinkId(100));
        assert_eq!(bench.c.map().up_osds().count(), 2);
        assert!(bench.c.map().is_in(OsdId(2)));
        // One that dials after that and goes is gone; so is one that does not dial.
        dial(&mut bench, OsdId(1), LinkId(300), 1);
        bench.c.claim(OsdId(1), LinkId(300));
        bench.c.session_closed(now, LinkId(101));
        assert!(bench.c.map().is_up(OsdId(1)));
        bench.c.session_closed(now, LinkId(300));
        assert!(bench.c.map().is_down(OsdId(1)) && bench.c.map().is_up(OsdId(0)));
        bench.pass(grace);
        let now = bench.now();
        bench.c.silent_osds(now);
        assert!(bench.c.map().is_down(OsdId(0)));
    }

    /// It has come up, and not had the time to report.
    #[test]
    fn the_silence_of_a_last_life_is_no_silence() {
        let mut bench = Bench::new();
        let back = OsdId(1);
        bench.stop(back);
        bench.pass(Duration::from_secs(1000));
        bench.again();
        for id in [0, 1, 2] {
            connect(&mut bench, OsdId(id));
        }
        bench.comes_up_and_says_nothing(back);
        bench.pass(Duration::from_secs(1));
        let now = bench.now();
        bench.c.silent_osds(now);
        assert!(bench.c.map().is_up(back));
        // Nor for ever.
        bench.pass(Duration::from_secs(1000));
        let now = bench.now();
        bench.c.silent_osds(now);
        assert!(bench.c.map().is_down(back));
    }
}

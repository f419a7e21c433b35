//! OSDs that stop, vanish, or fall silent.

use crate::cluster::Cluster;
use crate::log::Level;
use io::Now;
use maps::{OsdMapFlags, OsdState};
use peer::OsdGoingDown;
use std::time::Duration;
use types::OsdId;
use wire::LinkId;

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

    /// A session ended. If it was the one an OSD that is up speaks through, the OSD is down.
    /// Whether it has to be looked at again after the commit.
    pub fn session_closed(&mut self, now: Now, link: LinkId) -> bool {
        self.identities.session_closed(link);
        let Some(id) = self.sessions.get(&link).and_then(|s| s.osd()) else {
            self.sessions.remove(&link);
            return false;
        };
        let current = self.osd_links.get(&id) == Some(&link);
        if current && self.map().is_up(id) && self.may_mark_down(id) {
            if self.draft.touches(id) {
                return true;
            }
            self.mark_down(now, id, "its session ended");
        }
        if current {
            self.osd_links.remove(&id);
        }
        self.sessions.remove(&link);
        false
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

    /// Marks OSDs down that do not come back after a start of the mon, or do not report.
    pub fn silent_osds(&mut self, now: Now) {
        let grace = self.settings.duration("mon_osd_reconnect_grace");
        let timeout = self.settings.duration("mon_osd_report_timeout");
        let map = self.map().clone();
        for id in map.up_osds() {
            if self.draft.touches(id) || !self.may_mark_down(id) {
                continue;
            }
            let session = self.osd_links.get(&id).and_then(|link| self.sessions.get(link));
            let Some(session) = session else {
                if now.mono.since(self.started.mono) >= grace {
                    self.mark_down(now, id, "it has no session with this mon");
                }
                continue;
            };
            let said = self.pgmap.living_osd(&map, id).map(|s| s.at);
            let silence = now.mono.since(said.unwrap_or(session.opened.mono));
            if timeout > Duration::ZERO && silence >= timeout {
                self.mark_down(now, id, &format!("no report for {} s", silence.as_secs()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::bench::Bench;
    use crate::session::Session;
    use std::sync::Arc;
    use std::time::Duration;
    use types::{EntityName, OsdId};
    use wire::{LinkId, PeerInfo};

    fn connect(bench: &mut Bench, id: OsdId) {
        let link = LinkId(u64::from(id.0.unsigned_abs()) + 100);
        let peer = PeerInfo {
            name: EntityName::osd(id),
            auth_name: Default::default(),
            global_id: 0,
            addrs: Default::default(),
            socket: None,
            features: 0,
            listen: None,
            lossy: true,
        };
        bench.c.sessions.insert(link, Session::new(bench.now(), Arc::new(peer)));
        bench.c.osd_links.insert(id, link);
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

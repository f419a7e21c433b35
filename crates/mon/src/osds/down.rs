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
        let up: Vec<OsdId> = self.map().up_osds().collect();
        for id in up {
            if self.draft.touches(id) || !self.may_mark_down(id) {
                continue;
            }
            let started = now.mono.since(self.started.mono);
            if !self.osd_links.contains_key(&id) && started >= grace {
                self.mark_down(now, id, "it has no session with this mon");
                continue;
            }
            let silence = self.pgmap.osd(id).map_or(started, |s| now.mono.since(s.at));
            if timeout > Duration::ZERO && silence >= timeout {
                self.mark_down(now, id, &format!("no report for {} s", silence.as_secs()));
            }
        }
    }
}

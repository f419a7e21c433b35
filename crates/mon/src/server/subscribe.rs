//! Subscriptions: maps and settings, sent when they are newer than what somebody has.

use super::Server;
use super::history::{Batch, MAPS_PER_MESSAGE};
use crate::commands::config_for;
use crate::log::{ENTRIES_PER_MESSAGE, MLog};
use crate::session::Session;
use crate::store::MapKey;
use io::Now;
use maps::MgrMap;
use std::collections::{BTreeMap, VecDeque};
use types::Epoch;
use wire::LinkId;
use wire::msg::{
    MConfig, MMgrMap, MMonGetOsdMap, MMonMap, MMonSubscribe, MOsdMap, PaxosHeader, Payload,
};

impl Server {
    pub(super) fn subscribe(&mut self, now: Now, link: LinkId, m: MMonSubscribe) {
        let (log_seq, newest) = (self.cluster.log.seq, self.cluster.state.osdmap.epoch);
        let returns = m.what.get("monmap").is_some_and(|has| has.start > 0);
        let Some(session) = self.cluster.sessions.get_mut(&link) else { return };
        if !m.hostname.is_empty() && session.hostname != m.hostname {
            session.hostname = m.hostname;
            session.config_serial = 0;
        }
        for (what, wish) in m.what {
            // Whoever asks for its settings anew, gets them anew.
            if what == "config" {
                session.config = None;
            }
            // Of the log it wants what is to come.
            if what.starts_with("log-") && !session.subs.contains_key(&what) {
                session.log_seq = log_seq;
            }
            if session.subs.len() < MAX_SUBSCRIPTIONS || session.subs.contains_key(&what) {
                session.subs.insert(what, wish);
            }
        }
        if returns {
            session.goes_on_with_osdmaps(newest);
        }
        self.serve(now, link);
    }

    /// Sends everybody what is new.
    pub(super) fn serve_all(&mut self, now: Now) {
        let links: Vec<LinkId> = self.cluster.sessions.keys().copied().collect();
        links.into_iter().for_each(|link| self.serve(now, link));
    }

    /// Sends one peer what is new to it.
    pub(super) fn serve(&mut self, now: Now, link: LinkId) {
        if !self.takes(link) {
            return;
        }
        self.serve_monmap(link);
        self.serve_config(link);
        self.serve_mgrmap(link);
        self.serve_osdmap(now, link);
    }

    fn session(&mut self, link: LinkId) -> Option<&mut Session> {
        self.cluster.sessions.get_mut(&link)
    }

    fn serve_monmap(&mut self, link: LinkId) {
        let epoch = self.cluster.state.monmap.epoch;
        if self.session(link).is_some_and(|s| s.wants("monmap", epoch)) {
            self.send_monmap(link);
            self.session(link).into_iter().for_each(|s| s.sent("monmap", epoch));
        }
    }

    pub(super) fn send_monmap(&mut self, link: LinkId) {
        let monmap = denc::encode(&self.cluster.state.monmap);
        self.send(link, MMonMap { monmap }.encode());
    }

    fn serve_config(&mut self, link: LinkId) {
        let serial = self.cluster.config_serial;
        let Some(session) = self.cluster.sessions.get(&link) else { return };
        let has = session.config.is_some() && session.config_serial == serial;
        if has || !session.subs.contains_key("config") {
            return;
        }
        let config = config_for(&self.cluster, session);
        let same = session.config.as_ref() == Some(&config);
        self.session(link).into_iter().for_each(|s| s.config_serial = serial);
        if same {
            return;
        }
        self.send(link, MConfig { config: config.clone() }.encode());
        if let Some(session) = self.session(link) {
            session.config = Some(config);
            if session.subs.get("config").is_some_and(|s| s.is_onetime()) {
                session.subs.remove("config");
            }
        }
    }

    fn serve_mgrmap(&mut self, link: LinkId) {
        let epoch = self.cluster.state.mgr_epoch;
        if self.cluster.mgr_addrs.is_empty()
            || !self.session(link).is_some_and(|s| s.wants("mgrmap", epoch))
        {
            return;
        }
        let mgrmap = denc::encode(&self.cluster.mgrmap());
        self.send(link, MMgrMap { mgrmap }.encode());
        self.session(link).into_iter().for_each(|s| s.sent("mgrmap", epoch));
    }

    /// Sends everybody who follows the log what is new in it.
    pub(super) fn serve_log(&mut self) {
        let newest = self.cluster.log.seq;
        if newest == self.log_served {
            return;
        }
        self.log_served = newest;
        let links: Vec<LinkId> = self.cluster.sessions.keys().copied().collect();
        links.into_iter().for_each(|link| self.serve_log_to(link));
    }

    /// Sends a follower of the log what is new to it, of what is still there.
    pub(super) fn serve_log_to(&mut self, link: LinkId) {
        let (newest, fsid) = (self.cluster.log.seq, self.cluster.state.fsid);
        let session = self.cluster.sessions.get_mut(&link).filter(|session| !session.is_stalled);
        let Some(session) = session else { return };
        let Some(level) = session.log_level() else { return };
        let entries = self.cluster.log.after(session.log_seq, level);
        session.log_seq = newest;
        for entries in entries.chunks(ENTRIES_PER_MESSAGE) {
            let version = entries.last().map_or(newest, |entry| entry.seq);
            let paxos = PaxosHeader { version };
            self.send(link, MLog { paxos, fsid, entries: entries.to_vec() }.encode());
        }
    }

    fn serve_osdmap(&mut self, now: Now, link: LinkId) {
        let (oldest, newest) = self.cluster.kept_maps();
        let Some(session) = self.cluster.sessions.get_mut(&link) else { return };
        let Some(sub) = session.subs.get("osdmap").copied() else { return };
        let start = Epoch(u32::try_from(sub.start).unwrap_or(u32::MAX));
        if start > newest || session.is_reading {
            return;
        }
        let is_osd = session.osd().is_some();
        if start == Epoch::ZERO || (start < oldest && !is_osd) {
            session.sent_osdmap(newest, newest);
            let fsid = self.cluster.state.fsid;
            let fulls = BTreeMap::from([(newest, self.newest_full.clone())]);
            let m = MOsdMap { fsid, fulls, oldest, newest, ..MOsdMap::default() };
            self.send(link, m.encode());
            return;
        }
        session.is_reading = true;
        let mut keys = VecDeque::new();
        let mut from = start;
        if start < oldest {
            // The maps between are gone because every PG was clean after them: it may skip them.
            keys.push_back(MapKey::Full(oldest));
            from = oldest.next();
        }
        let to = newest.0.min(from.0.saturating_add(MAPS_PER_MESSAGE - 1));
        keys.extend((from.0..=to).map(|e| MapKey::Incremental(Epoch(e))));
        self.go_on(now, Batch { link, is_asked: false, keys, found: BTreeMap::new() });
    }

    /// Sends what there is of the maps that somebody names: an OSD that cannot make the next one of its own and of
    /// an incremental. (Source: Ceph `OSDMonitor::preprocess_get_osdmap`.) While something is read for
    /// the session already, the question is dropped: it comes again.
    pub(super) fn get_osdmap(&mut self, now: Now, link: LinkId, m: &MMonGetOsdMap) {
        let (oldest, newest) = self.cluster.kept_maps();
        let Some(session) = self.cluster.sessions.get_mut(&link) else { return };
        if std::mem::replace(&mut session.is_reading, true) {
            return;
        }
        let there = |first: Epoch, last: Epoch| first.max(oldest).0..=last.min(newest).0;
        let fulls = there(m.full_first, m.full_last).map(|e| MapKey::Full(Epoch(e)));
        let incrementals = there(m.inc_first, m.inc_last).map(|e| MapKey::Incremental(Epoch(e)));
        let keys = fulls.chain(incrementals).take(MAPS_PER_MESSAGE as usize).collect();
        self.go_on(now, Batch { link, is_asked: true, keys, found: BTreeMap::new() });
    }
}

/// Names in one peer's subscriptions, at most.
const MAX_SUBSCRIPTIONS: usize = 64;

impl crate::cluster::Cluster {
    /// The oldest and the newest map there is.
    pub fn kept_maps(&self) -> (Epoch, Epoch) {
        (self.state.first_epoch, self.state.osdmap.epoch)
    }

    /// The mgr is this mon.
    pub fn mgrmap(&self) -> MgrMap {
        MgrMap {
            active_addrs: self.mgr_addrs.clone(),
            active_gid: MGR_GID,
            available: true,
            active_name: self.name.clone(),
            active_change: self.started.wall,
            active_mgr_features: crate::osds::FEATURES,
            ..MgrMap::without_managers(self.state.mgr_epoch)
        }
    }
}

/// The mgr's global id: below those of clients.
const MGR_GID: u64 = 4099;

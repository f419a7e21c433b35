//! Who is connected, and what they are subscribed to.

use crate::log::Level;
use crate::osds::Awaited;
use io::Now;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{EntityType, Epoch, Mono, OsdId};
use wire::PeerInfo;
use wire::msg::Subscription;

/// One connected peer.
#[derive(Debug)]
pub(crate) struct Session {
    pub peer: Arc<PeerInfo>,
    pub opened: Now,
    /// When it last said something.
    pub heard: Mono,
    /// When it said something after it had been silent for long, if it ever was.
    pub silent_until: Option<Mono>,
    /// It ended, and that is no sign that its OSD has.
    pub awaited: Option<Awaited>,
    pub subs: BTreeMap<String, Subscription>,
    /// The newest map it was sent.
    pub osd_epoch: Epoch,
    /// Old maps are being read for it.
    pub is_reading: bool,
    /// The configuration it was sent last.
    pub config: Option<BTreeMap<String, String>>,
    /// As of when, see [`Cluster::config_serial`](crate::cluster::Cluster::config_serial).
    pub config_serial: u64,
    pub hostname: String,
    /// The newest entry of the log that it knows of.
    pub log_seq: u64,
    /// It does not take what it was sent: nothing more is sent to it that it did not just ask for. All that
    /// it is subscribed to counts, so that it is sent what it missed when it reads again.
    pub is_stalled: bool,
}

impl Session {
    pub fn new(now: Now, peer: Arc<PeerInfo>) -> Self {
        Session {
            peer,
            opened: now,
            heard: now.mono,
            silent_until: None,
            awaited: None,
            subs: BTreeMap::new(),
            osd_epoch: Epoch::ZERO,
            is_reading: false,
            config: None,
            config_serial: 0,
            hostname: String::new(),
            log_seq: 0,
            is_stalled: false,
        }
    }

    /// Whether it is subscribed to this and has not had this version.
    pub fn wants(&self, what: &str, epoch: Epoch) -> bool {
        self.subs.get(what).is_some_and(|s| s.start <= u64::from(epoch.0))
    }

    /// It was sent this version.
    pub fn sent(&mut self, what: &str, epoch: Epoch) {
        let Some(sub) = self.subs.get_mut(what) else { return };
        sub.start = u64::from(epoch.0) + 1;
        if sub.is_onetime() {
            self.subs.remove(what);
        }
    }

    /// How important entries of the log must be for it; `None`: it does not want any.
    pub fn log_level(&self) -> Option<Level> {
        self.subs.keys().find_map(|what| Level::from_name(what.strip_prefix("log-")?))
    }

    /// It was sent OSDMaps up to this one.
    pub fn sent_osdmap(&mut self, last: Epoch, newest: Epoch) {
        self.osd_epoch = last;
        if last >= newest {
            self.sent("osdmap", last);
            if self.osd().is_none() {
                // Clients ask for one map at a time, and again after 10 s when an OSD does not
                // answer. Told of every change they go on at once when it is marked down.
                let next = Subscription { start: u64::from(last.0) + 1, flags: 0 };
                self.subs.entry("osdmap".into()).or_insert(next);
            }
        } else if let Some(sub) = self.subs.get_mut("osdmap") {
            sub.start = u64::from(last.0) + 1;
        }
    }

    /// A client is back after its session was lost. It had its map and does not ask for one: it is sent
    /// the newest change, by which it sees whether it has missed any, and those that follow. (librados
    /// takes a session for lost, too, when an answer to its keepalive comes at the wrong moment.)
    pub fn goes_on_with_osdmaps(&mut self, newest: Epoch) {
        if self.osd().is_none() {
            let next = Subscription { start: u64::from(newest.0), flags: 0 };
            self.subs.entry("osdmap".into()).or_insert(next);
        }
    }

    /// The OSD it is the session of.
    pub fn osd(&self) -> Option<OsdId> {
        let name = self.peer.name;
        if name.kind != EntityType::OSD {
            return None;
        }
        i32::try_from(name.num).ok().map(OsdId).filter(|id| id.index().is_some())
    }

    /// As whom it authenticated: `client.admin`, `osd.3`.
    pub fn entity(&self) -> String {
        match self.osd() {
            Some(id) => format!("osd.{id}"),
            None => {
                let auth = &self.peer.auth_name;
                format!("{}.{}", auth.kind.name(), auth.id)
            }
        }
    }
}

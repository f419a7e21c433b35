//! Who is connected, and what they are subscribed to.

use io::Now;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{EntityType, Epoch, OsdId};
use wire::PeerInfo;
use wire::msg::Subscription;

/// One connected peer.
#[derive(Debug)]
pub(crate) struct Session {
    pub peer: Arc<PeerInfo>,
    pub opened: Now,
    pub subs: BTreeMap<String, Subscription>,
    /// The newest map it was sent.
    pub osd_epoch: Epoch,
    /// The configuration it was sent last.
    pub config: Option<BTreeMap<String, String>>,
    pub hostname: String,
}

impl Session {
    pub fn new(now: Now, peer: Arc<PeerInfo>) -> Self {
        Session {
            peer,
            opened: now,
            subs: BTreeMap::new(),
            osd_epoch: Epoch::ZERO,
            config: None,
            hostname: String::new(),
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

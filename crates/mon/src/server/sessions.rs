//! Who comes and goes.

use super::Server;
use crate::session::Session;
use io::Now;
use std::sync::Arc;
use types::EntityType;
use wire::{LinkId, PeerInfo};

impl Server {
    pub(super) fn session_opened(&mut self, now: Now, link: LinkId, peer: Arc<PeerInfo>) {
        tracing::debug!("{} connected", peer.name);
        self.cluster.sessions.insert(link, Session::new(now, peer));
        self.cluster.heard(now, link);
    }

    pub(super) fn session_closed(&mut self, now: Now, link: LinkId) {
        if self.cluster.session_closed(now, link) {
            self.closed.insert(link);
        }
    }

    /// A peer does not take what it is sent, or does so again.
    pub(super) fn backlog(&mut self, now: Now, link: LinkId, over: bool) {
        let Some(session) = self.cluster.sessions.get_mut(&link) else { return };
        session.is_stalled = over;
        if !over {
            self.serve(now, link);
            self.serve_log_to(link);
        }
    }

    /// Whether a peer takes what it is sent.
    pub(super) fn takes(&self, link: LinkId) -> bool {
        self.cluster.sessions.get(&link).is_some_and(|session| !session.is_stalled)
    }

    /// The OSD whose session this is, as it says.
    pub(super) fn osd_of(&self, link: LinkId) -> Option<types::OsdId> {
        let session = self.cluster.sessions.get(&link)?;
        session.osd().filter(|_| session.peer.name.kind == EntityType::OSD)
    }

    /// What had to wait for a commit: sessions that ended, OSDs that boot.
    pub(super) fn look_again(&mut self, now: Now) {
        for link in std::mem::take(&mut self.closed) {
            self.session_closed(now, link);
        }
        for (_, (link, boot)) in std::mem::take(&mut self.boots) {
            if self.cluster.sessions.contains_key(&link) {
                self.boot(now, link, boot);
            }
        }
    }
}

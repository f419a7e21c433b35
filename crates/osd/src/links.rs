//! Whom the OSD talks to: clients, other OSDs; and whose an event is.

use crate::admin::Asker;
use crate::alive::heartbeat_listener;
use crate::boot::EXIT_CANNOT_LISTEN;
use crate::daemon::Daemon;
use crate::object::client_addr;
use crate::ops::Sender;
use admin::{Answer, Args, CommandError};
use denc::DecodeError;
use io::Effects;
use io::net::{ListenAddr, ListenId};
use peer::{
    BackfillProgress, BackfillProgressAck, Hurry, LeaseAsk, LeaseGrant, PgPeering, PgTrim, Pull,
    Push, PushAck, RecoveryPlace, RepAck, RepOp, Scan, ScanReply, ScrubAsk, ScrubList,
    ScrubReserve,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use types::{AddrVec, EntityType, Epoch, Errno, HashMap, OsdId};
use wire::messenger::{Dial, ListenerConfig, Policy};
use wire::msg::{
    MCommand, MOsdBackoff, MOsdMap, MOsdOp, MOsdOpReply, MPing, Message, OutMessage, Payload,
};
use wire::{LinkId, MsgrEvent, PeerInfo};

/// The socket clients connect to.
pub const PUBLIC: ListenId = ListenId(1);
/// The socket other OSDs connect to.
pub const CLUSTER: ListenId = ListenId(2);
/// The admin socket.
pub const ADMIN: ListenId = ListenId(3);
/// The socket for heartbeats on the OSDs' network.
pub const HB_BACK: ListenId = ListenId(4);
/// The socket for heartbeats on the clients' network.
pub const HB_FRONT: ListenId = ListenId(5);

/// Messages that wait for a connection to another OSD, at most, in bytes.
const PENDING_PEER_BYTES: usize = 256 << 20;

/// A client.
#[derive(Clone, Debug)]
pub struct Session {
    /// Who it is.
    pub sender: Sender,
    /// The newest map it was sent.
    pub shared: Epoch,
    /// Bytes of its requests in hand.
    pub bytes: usize,
}

/// All clients.
#[derive(Debug, Default)]
pub struct Sessions {
    all: BTreeMap<LinkId, Session>,
}

impl Sessions {
    /// A client.
    pub fn get(&self, link: LinkId) -> Option<&Session> {
        self.all.get(&link)
    }

    /// The same, to change what is known of it.
    pub fn get_mut(&mut self, link: LinkId) -> Option<&mut Session> {
        self.all.get_mut(&link)
    }

    /// All links.
    pub fn links(&self) -> Vec<LinkId> {
        self.all.keys().copied().collect()
    }
}

/// Another OSD.
#[derive(Debug, Default)]
struct PeerLink {
    /// Its address by the newest map.
    addrs: AddrVec,
    link: Option<LinkId>,
    pending: VecDeque<OutMessage>,
    pending_bytes: usize,
    /// There were more of them than may be, and all are gone.
    has_lost: bool,
    /// It dialled us from an address that our map does not know yet.
    is_ahead: bool,
}

impl PeerLink {
    /// Keeps a message until there is a connection. When there are too many, that begins with PGs that do all of it
    /// again: without some of what they said they would wait for ever.
    fn keep(&mut self, message: OutMessage) {
        self.pending_bytes += message.len();
        self.pending.push_back(message);
        if self.pending_bytes > PENDING_PEER_BYTES {
            self.has_lost = true;
        }
        if self.has_lost {
            self.pending.clear();
            self.pending_bytes = 0;
        }
    }
}

/// All other OSDs. Of two, the one with the smaller id dials.
#[derive(Debug, Default)]
pub struct PeerLinks {
    all: BTreeMap<OsdId, PeerLink>,
    by_link: HashMap<LinkId, OsdId>,
}

impl PeerLinks {
    /// Which OSD a link leads to.
    pub fn osd_of(&self, link: LinkId) -> Option<OsdId> {
        self.by_link.get(&link).copied()
    }
}

impl Daemon {
    /// Opens the sockets; with their addresses the OSD can join.
    pub(crate) fn open_sockets(&mut self, fx: &mut Effects) {
        let osd = || ListenerConfig::osd(AddrVec::default());
        self.msgr.listen(PUBLIC, ListenAddr::Tcp(self.cfg.public), osd(), fx);
        self.msgr.listen(CLUSTER, ListenAddr::Tcp(self.cfg.cluster_net), osd(), fx);
        for (listen, at) in [(HB_BACK, self.cfg.cluster_net), (HB_FRONT, self.cfg.public)] {
            let any_port = std::net::SocketAddr::new(at.ip(), 0);
            self.msgr.listen(listen, ListenAddr::Tcp(any_port), heartbeat_listener(), fx);
        }
    }

    pub(crate) fn on_msgr_event(&mut self, event: MsgrEvent, fx: &mut Effects) {
        match event {
            MsgrEvent::Listening { listen, .. } => {
                let addrs = self.msgr.listen_addrs(listen).cloned().unwrap_or_default();
                match listen {
                    PUBLIC => self.client_addrs = addrs,
                    CLUSTER => self.cluster_addrs = addrs,
                    HB_BACK => self.hb_back_addrs = addrs,
                    _ => self.hb_front_addrs = addrs,
                }
            }
            MsgrEvent::ListenFailed { listen, errno } => self.listen_failed(listen, errno, fx),
            MsgrEvent::WantsGlobalId { .. } => {}
            MsgrEvent::Open { link, peer } => self.on_open(link, &peer, fx),
            MsgrEvent::Message { link, message } => self.on_message(link, &message, fx),
            MsgrEvent::Backlog { link, over } => self.on_backlog(link, over),
            MsgrEvent::Reset { link, renewed } => self.on_reset(link, renewed, fx),
            MsgrEvent::Closed { link, why } => {
                self.forget_backlog(link);
                if !self.heartbeat_closed(link, &why) {
                    self.on_closed(link, fx);
                }
            }
        }
    }

    fn listen_failed(&mut self, listen: ListenId, errno: i32, fx: &mut Effects) {
        let (what, at) = match listen {
            PUBLIC => ("clients", self.cfg.public),
            CLUSTER => ("other OSDs", self.cfg.cluster_net),
            HB_BACK => ("heartbeats", self.cfg.cluster_net),
            _ => ("heartbeats", self.cfg.public),
        };
        let error = std::io::Error::from_raw_os_error(errno);
        fx.exit(
            EXIT_CANNOT_LISTEN,
            format!(
                "osd.{}: cannot listen for {what} on {at}: {error}. Is another daemon using the \
                 port? Port 0 takes any free one",
                self.cfg.id
            ),
        );
    }

    fn on_open(&mut self, link: LinkId, peer: &Arc<PeerInfo>, fx: &mut Effects) {
        if self.mon.link == Some(link) {
            self.mon_opened(fx);
            return;
        }
        if self.heartbeat_opened(link, peer) {
            return;
        }
        if peer.name.kind == EntityType::OSD {
            self.peer_opened(link, peer, fx);
            return;
        }
        let sender = Sender { name: peer.name, addr: client_addr(&peer.addrs) };
        self.sessions.all.insert(link, Session { sender, shared: Epoch::ZERO, bytes: 0 });
        if self.in_hand.paused {
            self.msgr.pause(link, fx);
        }
    }

    fn on_closed(&mut self, link: LinkId, fx: &mut Effects) {
        if self.mon.link == Some(link) {
            self.mon_closed();
            return;
        }
        if let Some(osd) = self.peers.by_link.remove(&link) {
            if let Some(peer) = self.peers.all.get_mut(&osd).filter(|p| p.link == Some(link)) {
                peer.link = None;
            }
            self.dial_peers(fx);
            self.session_lost(osd, fx);
            return;
        }
        if let Some(session) = self.sessions.all.remove(&link) {
            let now = self.now.mono;
            self.pgs.values_mut().for_each(|h| h.watches.link_closed(now, link));
            self.backoffs.forget(link);
            if session.bytes > 0 {
                self.abandon_ops_of(link, fx);
            }
        }
    }

    /// A client sent what cannot be: its connection ends, with one line in the log.
    pub(crate) fn refuse_link(&mut self, link: LinkId, why: String, fx: &mut Effects) {
        let peer = self.msgr.peer(link).map(|p| p.name.to_string()).unwrap_or_default();
        tracing::warn!("osd.{}: {peer} is disconnected: {why}", self.cfg.id);
        self.msgr.close(link, fx);
        self.forget_backlog(link);
        self.on_closed(link, fx);
    }

    fn on_message(&mut self, link: LinkId, message: &Message, fx: &mut Effects) {
        if let Some(osd) = self.peers.osd_of(link) {
            self.on_peer_message(osd, message, fx);
        } else if self.mon.link == Some(link) {
            self.on_mon_message(message, fx);
        } else if !self.heartbeat_message(link, message, fx) {
            self.on_client_message(link, message, fx);
        }
    }

    fn on_client_message(&mut self, link: LinkId, message: &Message, fx: &mut Effects) {
        match message.header.kind {
            MOsdOp::TYPE => self.on_osd_op(link, message, fx),
            MCommand::TYPE => self.on_command(link, message, fx),
            MOsdBackoff::TYPE => self.on_backoff(link, message, fx),
            MPing::TYPE => {}
            // Maps, too, which only the mon and other OSDs may bring.
            other => tracing::debug!("osd.{}: message of type {other} ignored", self.cfg.id),
        }
    }

    /// Sends a client the maps it lacks, once.
    pub(crate) fn share_map(&mut self, link: LinkId, theirs: Epoch) {
        let ours = self.maps.epoch();
        let Some(session) = self.sessions.get_mut(link) else { return };
        let have = theirs.max(session.shared);
        if have >= ours {
            return;
        }
        if let Some(m) = self.maps.share(have) {
            session.shared = m.last().unwrap_or(ours);
            self.msgr.send(link, m.encode());
        }
    }

    // ---- other OSDs ----

    /// After a new map: links to OSDs that are gone end, links to new ones begin.
    pub(crate) fn update_peers(&mut self, fx: &mut Effects) {
        let map = self.maps.current().clone();
        let gone = |(osd, p): &(&OsdId, &PeerLink)| !map.is_up(**osd) && !p.is_ahead;
        let gone: Vec<_> = self.peers.all.iter().filter(gone).map(|(osd, _)| *osd).collect();
        for osd in gone {
            self.forget_peer(osd, fx);
        }
        let me = self.cfg.id;
        for osd in map.up_osds().filter(|o| *o != me) {
            let addrs = map.cluster_addrs(osd).cloned().unwrap_or_default();
            if self.peers.all.get(&osd).is_some_and(|p| p.addrs != addrs) {
                self.forget_peer(osd, fx);
            }
            let peer = self.peers.all.entry(osd).or_default();
            peer.addrs = addrs;
            peer.is_ahead = false;
        }
        self.dial_peers(fx);
    }

    fn forget_peer(&mut self, osd: OsdId, fx: &mut Effects) {
        let Some(peer) = self.peers.all.remove(&osd) else { return };
        self.heard_of_space(osd, false);
        if let Some(link) = peer.link {
            self.peers.by_link.remove(&link);
            self.msgr.close(link, fx);
        }
    }

    pub(crate) fn dial_peers(&mut self, fx: &mut Effects) {
        if !self.is_up() {
            return;
        }
        let mut lost = Vec::new();
        for (osd, peer) in &mut self.peers.all {
            if self.cfg.id < *osd && peer.link.is_none() {
                let dial = Dial::new(peer.addrs.clone(), EntityType::OSD, Policy::lossless_peer())
                    .from_addrs(self.cluster_addrs.clone());
                let link = self.msgr.dial(self.now, dial, fx);
                peer.link = Some(link);
                self.peers.by_link.insert(link, *osd);
                lost.extend(flush_pending(&mut self.msgr, peer).then_some(*osd));
            }
        }
        lost.into_iter().for_each(|osd| self.session_lost(osd, fx));
    }

    /// Another OSD dialled us, or answered.
    fn peer_opened(&mut self, link: LinkId, info: &PeerInfo, fx: &mut Effects) {
        let Ok(id) = i32::try_from(info.name.num) else { return };
        let osd = OsdId(id);
        if self.peers.osd_of(link) == Some(osd) {
            return;
        }
        let known = self.peers.all.get(&osd).is_some_and(|p| p.addrs == info.addrs);
        if !known && self.maps.epoch() != Epoch::ZERO {
            // Its map is newer than ours, or it is a ghost: the map will tell.
            self.mon.wants_map = true;
        }
        let peer = self.peers.all.entry(osd).or_default();
        if !known {
            peer.addrs = info.addrs.clone();
            peer.is_ahead = true;
        }
        if let Some(old) = peer.link.replace(link)
            && old != link
        {
            self.peers.by_link.remove(&old);
            self.msgr.close(old, fx);
        }
        self.peers.by_link.insert(link, osd);
        if flush_pending(&mut self.msgr, peer) {
            self.session_lost(osd, fx);
        }
    }

    /// A session with another OSD is over though the OSD goes on: messages may be lost, and what
    /// depends on them begins anew.
    fn on_reset(&mut self, link: LinkId, renewed: LinkId, fx: &mut Effects) {
        let Some(osd) = self.peers.by_link.remove(&link) else { return };
        self.peers.by_link.insert(renewed, osd);
        if let Some(peer) = self.peers.all.get_mut(&osd) {
            peer.link = Some(renewed);
        }
        tracing::warn!("osd.{}: the session with osd.{osd} was lost", self.cfg.id);
        self.perf.lost_sessions += 1;
        self.session_lost(osd, fx);
    }

    /// Ends the session with another OSD, of which something is lost: it hears of that, as it would if the OSD had
    /// started again.
    pub(crate) fn break_session(&mut self, osd: OsdId, why: &str, fx: &mut Effects) {
        let Some(peer) = self.peers.all.get_mut(&osd) else { return };
        tracing::warn!("osd.{}: the session with osd.{osd} ends: {why}", self.cfg.id);
        self.perf.lost_sessions += 1;
        if let Some(link) = peer.link.take() {
            self.peers.by_link.remove(&link);
            self.msgr.close(link, fx);
        }
        self.forget_early(osd);
        self.dial_peers(fx);
        self.session_lost(osd, fx);
    }

    /// `break_session`.
    pub(crate) fn break_session_command(
        &mut self,
        args: &Args,
        asker: Asker,
        fx: &mut Effects,
    ) -> Result<(), CommandError> {
        let known = |osd: &OsdId| self.peers.all.get(osd).is_some_and(|p| p.link.is_some());
        let named = args.int("osd").and_then(|n| i32::try_from(n).ok()).map(OsdId);
        let Some(osd) = named.filter(known) else {
            let why =
                "there is no session with such an OSD: it is down, or shares no PG with this one";
            return Err(CommandError::new(Errno::ENOTCONN, why));
        };
        self.break_session(osd, "somebody ordered it", fx);
        self.answer_command(asker, Ok(Answer::ok()), fx);
        Ok(())
    }

    /// Sends a message to another OSD: now, or when there is a connection.
    pub(crate) fn send_peer(&mut self, to: OsdId, message: OutMessage, fx: &mut Effects) {
        debug_assert_ne!(to, self.cfg.id);
        let peer = self.peers.all.get_mut(&to);
        let link = peer.as_ref().and_then(|p| p.link);
        tracing::trace!("osd.{} -> osd.{to}: {:#x} on {link:?}", self.cfg.id, message.kind);
        let Some(peer) = peer else {
            // Not up by our map: what we say is void, it will be said again in the next interval.
            return;
        };
        match peer.link {
            Some(link) => self.msgr.send(link, message),
            None => {
                peer.keep(message);
                self.dial_peers(fx);
            }
        }
    }

    pub(crate) fn on_peer_message(&mut self, from: OsdId, message: &Message, fx: &mut Effects) {
        tracing::trace!("osd.{} <- osd.{from}: {:#x}", self.cfg.id, message.header.kind);
        if message.header.kind == MOsdMap::TYPE {
            self.on_map_message(false, message, fx);
            return;
        }
        let result = match message.header.kind {
            PgPeering::TYPE => message.decode().map(|m: PgPeering| {
                if self.has_map(from, m.msg.epoch, message) {
                    let (pgid, epoch) = (m.msg.pgid, m.msg.epoch);
                    self.hear_of_priors(pgid, from, epoch, &m.readers);
                    let was_here = self.pgs.contains_key(&pgid);
                    self.on_peering(from, m.msg, fx);
                    if !was_here {
                        self.hear_of_priors(pgid, from, epoch, &m.readers);
                    }
                }
            }),
            RepOp::TYPE => message.decode().map(|m: RepOp| {
                if self.has_map(from, m.epoch, message) {
                    self.on_rep_op(from, m, fx);
                }
            }),
            PgTrim::TYPE => message.decode().map(|m: PgTrim| {
                if self.has_map(from, m.epoch, message) {
                    self.on_pg_trim(from, &m, fx);
                }
            }),
            RepAck::TYPE => message.decode().map(|m: RepAck| self.on_rep_ack(from, m, fx)),
            LeaseAsk::TYPE => message.decode().map(|m: LeaseAsk| self.on_lease_ask(from, &m, fx)),
            LeaseGrant::TYPE => {
                message.decode().map(|m: LeaseGrant| self.on_lease_grant(from, &m, fx))
            }
            Pull::TYPE => message.decode().map(|m: Pull| {
                if self.has_map(from, m.epoch, message) {
                    self.on_pull(from, m, fx);
                }
            }),
            Push::TYPE => message.decode().map(|m: Push| {
                if self.has_map(from, m.epoch, message) {
                    self.on_push(from, m, fx);
                }
            }),
            PushAck::TYPE => message.decode().map(|m: PushAck| self.on_push_ack(from, m, fx)),
            Hurry::TYPE => message.decode().map(|m: Hurry| self.on_hurry(&m, fx)),
            ScrubReserve::TYPE => message.decode().map(|m: ScrubReserve| {
                if self.has_map(from, m.epoch, message) {
                    self.on_scrub_reserve(from, &m, fx);
                }
            }),
            ScrubAsk::TYPE => message.decode().map(|m: ScrubAsk| {
                if self.has_map(from, m.epoch, message) {
                    self.on_scrub_ask(from, m);
                }
            }),
            ScrubList::TYPE => message.decode().map(|m: ScrubList| self.on_scrub_list(from, m, fx)),
            MOsdOp::TYPE => message.decode().map(|m: MOsdOp| {
                if self.has_map(from, m.epoch, message) {
                    self.on_peer_request(from, message.header.tid, m, fx);
                }
            }),
            MOsdOpReply::TYPE => message.decode().map(|m: MOsdOpReply| {
                self.on_copy_reply(message.header.tid, m, fx);
            }),
            _ => self.on_recovery_message(from, message, fx),
        };
        self.bound_early(fx);
        if let Err(why) = result {
            let kind = message.header.kind;
            tracing::error!("osd.{}: osd.{from} sent a bad message {kind:#x}: {why}", self.cfg.id);
            self.perf.odd_messages += 1;
        }
    }

    /// Messages of backfill and of its turns.
    fn on_recovery_message(
        &mut self,
        from: OsdId,
        message: &Message,
        fx: &mut Effects,
    ) -> Result<(), DecodeError> {
        match message.header.kind {
            RecoveryPlace::TYPE => message.decode().map(|m: RecoveryPlace| {
                if self.has_map(from, m.epoch, message) {
                    self.on_place(from, &m, fx);
                }
            }),
            Scan::TYPE => message.decode().map(|m: Scan| {
                if self.has_map(from, m.epoch, message) {
                    self.on_scan(from, m, fx);
                }
            }),
            ScanReply::TYPE => message.decode().map(|m: ScanReply| self.on_scan_reply(from, m)),
            BackfillProgress::TYPE => message.decode().map(|m: BackfillProgress| {
                if self.has_map(from, m.epoch, message) {
                    self.on_progress(from, m, fx);
                }
            }),
            BackfillProgressAck::TYPE => {
                message.decode().map(|m: BackfillProgressAck| self.on_progress_ack(from, m, fx))
            }
            _ => Ok(()),
        }
    }
}

/// Whether something of it is lost.
fn flush_pending(msgr: &mut wire::Messenger, peer: &mut PeerLink) -> bool {
    let Some(link) = peer.link else { return false };
    peer.pending.drain(..).for_each(|m| msgr.send(link, m));
    peer.pending_bytes = 0;
    std::mem::take(&mut peer.has_lost)
}

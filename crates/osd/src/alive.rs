//! Who lives: heartbeats on their connections, failures told to the mon, leases asked and given.
//!
//! The rules are in [`crate::heartbeat`] and [`crate::lease`].

use crate::daemon::{Daemon, Life};
use crate::heartbeat::{End, Target};
use crate::host::{OpId, PgHost};
use crate::lease::Prior;
use crate::links::{HB_BACK, HB_FRONT};
use crate::tracker::Mark;
use io::Effects;
use io::net::CloseReason;
use peer::{Heartbeat, LeaseAsk, LeaseGrant, OsdFailure, PriorReader};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::testing::{Bug, Probe, hit, planted};
use types::{AddrVec, EntityType, Epoch, HObject, Mono, OsdId, PgId};
use wire::messenger::{Dial, ListenerConfig, Policy};
use wire::msg::{MOsdMap, Message, Payload};
use wire::{CloseWhy, LinkId, PeerInfo};

const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOBUFS: i32 = 105;
const ECONNREFUSED: i32 = 111;

/// What a heartbeat socket serves: other OSDs, on connections that are worth nothing.
pub(crate) fn heartbeat_listener() -> ListenerConfig {
    let policies = vec![(EntityType::OSD, Policy::stateless_server())];
    ListenerConfig { policies, ..ListenerConfig::osd(AddrVec::default()) }
}

impl Daemon {
    // ---- heartbeats ----

    /// Looks after heartbeats; called often.
    pub(crate) fn beat(&mut self, fx: &mut Effects) {
        if !self.is_up() {
            return;
        }
        let now = self.now.mono;
        for verdict in self.heartbeats.look(now, self.limits.heartbeat_grace) {
            tracing::debug!("osd.{}: {verdict:?}", self.cfg.id);
            let failure = OsdFailure {
                reporter: self.cfg.id,
                target: verdict.osd,
                up_from: verdict.up_from,
                silent_ms: u64::try_from(verdict.silent.as_millis()).unwrap_or(u64::MAX),
                what: verdict.what,
            };
            self.send_mon(failure.encode());
        }
        if !self.heartbeats.is_due(now) {
            return;
        }
        self.choose_targets(fx);
        for (osd, net, addrs) in self.heartbeats.to_dial() {
            let dial = Dial::new(addrs, EntityType::OSD, Policy::lossy_client())
                .from_addrs(self.cluster_addrs.clone());
            let link = self.msgr.dial(self.now, dial, fx);
            self.heartbeats.dialled(osd, net, link);
        }
        for link in self.heartbeats.ask(now, self.limits.heartbeat_interval) {
            let (epoch, full) = (self.maps.epoch(), self.is_full());
            let txn_bytes = self.store.max_first_transaction_bytes();
            let ask = Heartbeat { answer: false, asked_ns: now.0, epoch, full, txn_bytes };
            self.msgr.send(link, ask.encode());
        }
    }

    /// Asks those it shares PGs with, and its neighbours by number until there are enough.
    fn choose_targets(&mut self, fx: &mut Effects) {
        let map = self.maps.current().clone();
        let me = self.cfg.id;
        let mut chosen = BTreeSet::new();
        for host in self.pgs.values() {
            let mapping = host.pg.mapping();
            chosen.extend(mapping.up.iter().chain(&mapping.acting).copied());
        }
        chosen.retain(|osd| *osd != me && map.is_up(*osd));
        let up: Vec<OsdId> = map.up_osds().collect();
        let behind = up.iter().filter(|o| **o > me).chain(up.iter().filter(|o| **o < me));
        for osd in behind {
            if chosen.len() >= self.limits.heartbeat_peers {
                break;
            }
            chosen.insert(*osd);
        }
        let target = |osd: OsdId| {
            let info = map.osd(osd)?;
            let addrs = [info.hb_back_addrs.clone(), info.hb_front_addrs.clone()];
            Some((osd, Target { up_from: info.info.up_from, addrs }))
        };
        let targets: BTreeMap<_, _> = chosen.into_iter().filter_map(target).collect();
        for link in self.heartbeats.set_targets(targets) {
            self.msgr.close(link, fx);
        }
    }

    /// Whether a connection is one of heartbeats: then it is dealt with here.
    pub(crate) fn heartbeat_opened(&mut self, link: LinkId, peer: &PeerInfo) -> bool {
        let incoming = [Some(HB_BACK), Some(HB_FRONT)].contains(&peer.listen);
        if incoming && let Ok(id) = i32::try_from(peer.name.num) {
            self.asked_by.insert(link, OsdId(id));
        }
        incoming || self.heartbeats.is_ours(link)
    }

    /// See [`Daemon::heartbeat_opened`].
    pub(crate) fn heartbeat_closed(&mut self, link: LinkId, why: &CloseWhy) -> bool {
        let end = match why {
            CloseWhy::Net(CloseReason::Os(ECONNREFUSED)) => End::Refused,
            CloseWhy::Net(CloseReason::Os(ENFILE | EMFILE | ENOBUFS | ENOMEM)) => End::Ours,
            _ => End::Other,
        };
        self.heartbeats.closed(link, end) || self.asked_by.remove(&link).is_some()
    }

    /// See [`Daemon::heartbeat_opened`].
    pub(crate) fn heartbeat_message(
        &mut self,
        link: LinkId,
        message: &Message,
        fx: &mut Effects,
    ) -> bool {
        let asked_by = self.asked_by.get(&link).copied();
        if asked_by.is_none() && !self.heartbeats.is_ours(link) {
            return false;
        }
        if message.header.kind == MOsdMap::TYPE {
            self.on_map_message(false, message, fx);
        } else if message.header.kind == Heartbeat::TYPE {
            match message.decode::<Heartbeat>() {
                Ok(m) if m.answer => {
                    self.heartbeats.answered(link, Mono(m.asked_ns), self.now.mono);
                    self.heartbeats.told_of_log(link, m.txn_bytes);
                }
                Ok(m) => self.answer_heartbeat(link, asked_by, &m),
                Err(why) => tracing::error!("osd.{}: a bad heartbeat: {why}", self.cfg.id),
            }
        }
        true
    }

    /// Whoever asks with an old map gets the newer ones: it may have been marked down.
    fn answer_heartbeat(&mut self, link: LinkId, from: Option<OsdId>, m: &Heartbeat) {
        let (ours, full) = (self.maps.epoch(), self.is_full());
        let txn_bytes = self.store.max_first_transaction_bytes();
        let answer = Heartbeat { answer: true, epoch: ours, full, txn_bytes, ..*m };
        self.msgr.send(link, answer.encode());
        if let Some(from) = from {
            self.heard_of_space(from, m.full);
        }
        if let Some(maps) = self.maps.share(m.epoch) {
            self.msgr.send(link, maps.encode());
        }
        self.mon.wants_map |= m.epoch > ours;
    }

    // ---- leases: the side that reads ----

    /// Whether reads of a PG may be served; asks for what is lacking.
    fn may_read(&mut self, pgid: PgId, fx: &mut Effects) -> bool {
        let Some(host) = self.pgs.get(&pgid) else { return false };
        let me = self.cfg.id;
        let acting = host.pg.mapping().acting.clone();
        let members = acting.into_iter().filter(|osd| osd.is_some() && *osd != me);
        let standing = self.leases.standing(members, self.now.mono, self.maps.epoch());
        let ask = LeaseAsk { asked_ns: self.now.mono.0, up_from: self.up_from };
        for osd in standing.ask {
            self.send_peer(osd, ask.encode(), fx);
        }
        // Whoever has said that it stops is not waited for any more.
        standing.holds && matches!(self.life, Life::Up)
    }

    /// Whether a read of an object must wait for promises; it is taken up again when they are here.
    /// `is_first`: it is the first of its object's queue, which stands still meanwhile.
    pub(crate) fn read_must_wait(
        &mut self,
        pgid: PgId,
        head: &HObject,
        is_first: bool,
        fx: &mut Effects,
    ) -> bool {
        let wait = !self.may_read(pgid, fx) && !planted(Bug::ReadWithoutLease);
        if wait {
            hit(Probe::LeaseWaited);
            *self.leases.waiting.entry((pgid, head.clone())).or_default() |= is_first;
            self.pgs.get_mut(&pgid).into_iter().for_each(|h| h.dirty = true);
        }
        wait
    }

    /// The same for a request on a whole PG.
    pub(crate) fn pg_read_must_wait(&mut self, id: OpId, pgid: PgId, fx: &mut Effects) -> bool {
        let wait = !self.may_read(pgid, fx);
        if wait && let Some(host) = self.pgs.get_mut(&pgid) {
            host.waiting.push_back(id);
            host.dirty = true;
            self.leases.waiting_pgs.insert(pgid);
            self.mark_op(id, Mark::WaitingForReadable);
        }
        wait
    }

    pub(crate) fn on_lease_grant(&mut self, from: OsdId, m: &LeaseGrant, fx: &mut Effects) {
        self.leases.granted(from, Mono(m.asked_ns), m.epoch);
        self.mon.wants_map |= m.epoch > self.maps.epoch();
        self.retry_reads(fx);
    }

    /// Promises or a map came, or it is time to ask again: reads that waited are tried again.
    pub(crate) fn retry_reads(&mut self, fx: &mut Effects) {
        if self.leases.waiting.is_empty() && self.leases.waiting_pgs.is_empty() {
            return;
        }
        for ((pgid, head), is_first) in std::mem::take(&mut self.leases.waiting) {
            self.pgs.get_mut(&pgid).into_iter().for_each(|h| h.dirty = true);
            if is_first {
                self.unstall(pgid, &head, false);
            }
            self.pump_object(pgid, &head, fx);
        }
        for pgid in std::mem::take(&mut self.leases.waiting_pgs) {
            self.release_pg(pgid, fx);
        }
    }

    // ---- leases: the side that promises ----

    pub(crate) fn on_lease_ask(&mut self, from: OsdId, m: &LeaseAsk, fx: &mut Effects) {
        let map = self.maps.current();
        let known = map.osd(from).map_or(Epoch::ZERO, |o| o.info.up_from);
        if known < m.up_from {
            // We do not know yet that it is up; it asks again.
            self.mon.wants_map = true;
        } else if self.is_up() && map.is_up(from) && known == m.up_from {
            self.leases.give(from, self.now.mono);
            let grant = LeaseGrant { asked_ns: m.asked_ns, epoch: self.maps.epoch() };
            self.send_peer(from, grant.encode(), fx);
        }
    }

    /// What goes with every message of peering: who may still read, and for how long.
    pub(crate) fn prior_readers(&self, pgid: PgId) -> Vec<PriorReader> {
        let now = self.now.mono;
        let Some(host) = self.pgs.get(&pgid) else { return Vec::new() };
        let told = |p: &Prior| {
            let left = p.until.since(now).as_millis() + 1;
            PriorReader {
                osd: p.osd,
                epoch: p.epoch,
                left_ms: u32::try_from(left).unwrap_or(u32::MAX),
            }
        };
        host.priors.left(now).map(told).collect()
    }

    /// A member of the current interval says who may still read.
    pub(crate) fn hear_of_priors(
        &mut self,
        pgid: PgId,
        from: OsdId,
        epoch: Epoch,
        told: &[PriorReader],
    ) {
        let (now, me) = (self.now.mono, self.cfg.id);
        let map = self.maps.current().clone();
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if epoch >= host.interval() {
            host.priors.is_aware(from);
        }
        for p in told.iter().filter(|p| p.osd != me) {
            let until = now.after(Duration::from_millis(p.left_ms.into()));
            host.priors.add(Prior { osd: p.osd, epoch: p.epoch, until });
        }
        host.priors.retain_alive(&map);
    }

    /// Whether requests wait because an earlier primary may still read.
    pub(crate) fn waits_for_prior(&mut self, pgid: PgId) -> bool {
        let Some(host) = self.pgs.get(&pgid) else { return false };
        let over_at = host.priors.over_at();
        let waits = over_at > self.now.mono;
        if waits {
            hit(Probe::IntervalWaited);
            self.leases.wake_by(over_at);
        }
        waits
    }

    /// PGs whose time has come: they serve, or become clean.
    pub(crate) fn end_waits(&mut self, fx: &mut Effects) {
        let now = self.now.mono;
        if self.leases.wake_at.is_none_or(|at| at > now) {
            return;
        }
        self.leases.wake_at = None;
        let waits = |h: &PgHost| !h.waiting.is_empty() && h.pg.accepts_io();
        let pgids: Vec<_> = self.pgs.iter().filter(|(_, h)| waits(h)).map(|(p, _)| *p).collect();
        for pgid in pgids {
            self.release_pg(pgid, fx);
        }
        let unclean = self.pgs.iter().filter(|(_, h)| h.pg.awaits_clean());
        for pgid in unclean.map(|(p, _)| *p).collect::<Vec<_>>() {
            self.run_pg(pgid, fx, |pg, _, out| pg.recovered(out));
        }
        self.report_soon();
    }

    /// What waited for a PG as a whole goes on, in the order it came.
    pub(crate) fn release_pg(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        for id in std::mem::take(&mut host.waiting) {
            self.start_op(id, fx);
        }
        self.end_needless_backoffs_of(pgid);
    }
}

//! Heartbeats: which other OSDs answer.
//!
//! Every OSD asks its peers (those it shares PGs with, and some more) at an interval, over two
//! connections of its own making: one to the peer's address for OSDs (back), one to that for clients
//! (front). A peer that leaves a question unanswered for longer than the grace is reported to the
//! mon, and again from time to time while that lasts; when it answers after all, that is reported
//! too. Source: Ceph `osd/OSD.cc: heartbeat_check, maybe_update_heartbeat_peers`.
//!
//! No I/O here: [`crate::alive`] dials and sends.

use peer::FailureKind;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{AddrVec, Epoch, HashMap, Mono, OsdId};
use wire::LinkId;

/// Questions without an answer that are remembered of a connection.
const MAX_UNANSWERED: usize = 64;
/// A failure that lasts is reported again after so long: the mon may have started anew.
const REPORT_AGAIN: Duration = Duration::from_secs(5);

/// Which of a peer's two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Net {
    /// Where OSDs reach it.
    Back,
    /// Where clients reach it.
    Front,
}

/// Both.
pub const NETS: [Net; 2] = [Net::Back, Net::Front];

/// How a connection ended, or why it could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer's host refuses connections.
    Refused,
    /// This OSD had nothing to make it with: nothing was asked, and nothing is known of the peer.
    Ours,
    /// Otherwise.
    Other,
}

/// A peer as the map shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Since when it is up.
    pub up_from: Epoch,
    /// Its addresses, as [`NETS`].
    pub addrs: [AddrVec; 2],
}

#[derive(Debug, Default)]
struct Channel {
    link: Option<LinkId>,
    /// When the questions were asked that have no answer yet, the oldest first.
    unanswered: VecDeque<Mono>,
    /// How long the last answer took.
    round_trip: Option<Duration>,
    /// The peer's host refuses connections.
    refused: bool,
    /// It was answered since the peer was last reported.
    answered: bool,
}

#[derive(Debug)]
struct Peer {
    target: Target,
    channels: [Channel; 2],
    /// When it was last reported as failed.
    reported: Option<Mono>,
    /// The largest transaction that it takes; 0: unknown.
    txn_bytes: u64,
}

impl Peer {
    /// For how long it has owed an answer.
    fn silence(&self, now: Mono) -> Duration {
        let oldest = self.channels.iter().filter_map(|c| c.unanswered.front()).min();
        oldest.map_or(Duration::ZERO, |at| now.since(*at))
    }
}

/// What is to be told to the mon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// About whom.
    pub osd: OsdId,
    /// See [`Target`].
    pub up_from: Epoch,
    /// What.
    pub what: FailureKind,
    /// For how long it has owed an answer.
    pub silent: Duration,
}

/// All peers.
#[derive(Debug, Default)]
pub struct Heartbeats {
    peers: BTreeMap<OsdId, Peer>,
    by_link: HashMap<LinkId, (OsdId, Net)>,
    next_ask: Mono,
    looked_at: Option<Mono>,
    /// The largest transaction that all of them take, as far as they said: also of those with whom we share no PGs
    /// yet, since what is written now may have to come to them.
    txn_bytes: Option<u64>,
}

impl Heartbeats {
    /// Sets whom to ask. Answers links that are to be closed.
    pub fn set_targets(&mut self, mut wanted: BTreeMap<OsdId, Target>) -> Vec<LinkId> {
        let by_link = &mut self.by_link;
        let mut closed = Vec::new();
        self.peers.retain(|osd, peer| {
            let same = wanted.get(osd) == Some(&peer.target);
            if same {
                wanted.remove(osd);
            } else {
                closed.extend(peer.channels.iter().filter_map(|c| c.link));
            }
            same
        });
        for link in &closed {
            by_link.remove(link);
        }
        for (osd, target) in wanted {
            let (channels, reported, txn_bytes) = (Default::default(), None, 0);
            self.peers.insert(osd, Peer { target, channels, reported, txn_bytes });
        }
        self.look_at_logs();
        closed
    }

    /// A peer says how large a transaction it takes.
    pub fn told_of_log(&mut self, link: LinkId, txn_bytes: u64) {
        let peer = self.by_link.get(&link).and_then(|(osd, _)| self.peers.get_mut(osd));
        if let Some(peer) = peer
            && std::mem::replace(&mut peer.txn_bytes, txn_bytes) != txn_bytes
        {
            self.look_at_logs();
        }
    }

    fn look_at_logs(&mut self) {
        let known = self.peers.values().map(|peer| peer.txn_bytes).filter(|bytes| *bytes > 0);
        self.txn_bytes = known.min();
    }

    /// The largest transaction that all peers take; `None` if nobody said.
    pub fn txn_bytes(&self) -> Option<u64> {
        self.txn_bytes
    }

    /// Connections that are lacking.
    pub fn to_dial(&self) -> Vec<(OsdId, Net, AddrVec)> {
        let lacks = |(osd, peer): (&OsdId, &Peer)| {
            let lacking = NETS.into_iter().zip(&peer.channels).filter(|(_, c)| c.link.is_none());
            lacking
                .map(|(net, _)| (*osd, net, peer.target.addrs[net as usize].clone()))
                .collect::<Vec<_>>()
        };
        self.peers.iter().flat_map(lacks).collect()
    }

    /// A connection is on its way.
    pub fn dialled(&mut self, osd: OsdId, net: Net, link: LinkId) {
        if let Some(peer) = self.peers.get_mut(&osd) {
            peer.channels[net as usize].link = Some(link);
            self.by_link.insert(link, (osd, net));
        }
    }

    /// Whose connection this is.
    pub fn is_ours(&self, link: LinkId) -> bool {
        self.by_link.contains_key(&link)
    }

    /// A connection ended or could not be made. Whether it was one of these.
    pub fn closed(&mut self, link: LinkId, end: End) -> bool {
        let Some((osd, net)) = self.by_link.remove(&link) else { return false };
        if let Some(peer) = self.peers.get_mut(&osd) {
            let channel = &mut peer.channels[net as usize];
            channel.link = None;
            channel.refused = end == End::Refused;
            if end == End::Ours {
                channel.unanswered.clear();
            }
        }
        true
    }

    /// When something is to be done next.
    pub fn is_due(&self, now: Mono) -> bool {
        self.next_ask <= now
    }

    /// The time to ask has come: the connections to ask on. A question counts as asked also when
    /// there is no connection.
    pub fn ask(&mut self, now: Mono, interval: Duration) -> Vec<LinkId> {
        self.next_ask = now.after(interval);
        let mut links = Vec::new();
        for channel in self.peers.values_mut().flat_map(|p| &mut p.channels) {
            if channel.unanswered.len() < MAX_UNANSWERED {
                channel.unanswered.push_back(now);
            }
            links.extend(channel.link);
        }
        links
    }

    /// A question was answered.
    pub fn answered(&mut self, link: LinkId, asked: Mono, now: Mono) {
        let Some((osd, net)) = self.by_link.get(&link) else { return };
        let Some(peer) = self.peers.get_mut(osd) else { return };
        let channel = &mut peer.channels[*net as usize];
        while channel.unanswered.pop_front_if(|at| *at <= asked).is_some() {}
        channel.round_trip = Some(now.since(asked));
        channel.refused = false;
        channel.answered = true;
    }

    /// The session with the mon is new: what was reported is reported again.
    pub fn forget_reports(&mut self) {
        self.peers.values_mut().for_each(|p| p.reported = None);
    }

    /// Looks at all peers: what the mon has to hear.
    ///
    /// When we have not looked for half the grace we were the ones who stood still (stopped, starved
    /// of CPU), and nothing is known of others: their time begins anew.
    pub fn look(&mut self, now: Mono, grace: Duration) -> Vec<Verdict> {
        let last = self.looked_at.replace(now);
        if last.is_some_and(|last| now.since(last) > grace / 2) {
            for channel in self.peers.values_mut().flat_map(|p| &mut p.channels) {
                channel.unanswered.clear();
            }
        }
        let mut verdicts = Vec::new();
        for (osd, peer) in &mut self.peers {
            let silent = peer.silence(now);
            let refused = peer.channels.iter().any(|c| c.refused && c.link.is_none());
            let failed = refused || silent > grace;
            // That it owes nothing may be because we stood still, or could not ask.
            let answers = peer.channels.iter().all(|c| c.answered);
            let again = peer.reported.is_none_or(|at| now.since(at) >= REPORT_AGAIN);
            let what = match (failed, peer.reported) {
                (true, _) if again && refused => FailureKind::Refused,
                (true, _) if again => FailureKind::Silent,
                (false, Some(_)) if answers => FailureKind::Answers,
                _ => continue,
            };
            peer.channels.iter_mut().for_each(|c| c.answered = false);
            peer.reported = failed.then_some(now);
            verdicts.push(Verdict { osd: *osd, up_from: peer.target.up_from, what, silent });
        }
        verdicts
    }

    /// For each peer: since when it owes an answer, and how long the last answers took.
    pub fn peers(&self) -> impl Iterator<Item = (OsdId, Option<Mono>, [Option<Duration>; 2])> {
        self.peers.iter().map(|(osd, p)| {
            let owes = p.channels.iter().filter_map(|c| c.unanswered.front().copied()).min();
            (*osd, owes, [p.channels[0].round_trip, p.channels[1].round_trip])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const GRACE: Duration = Duration::from_secs(3);

    fn at(tenths: u64) -> Mono {
        Mono(1 + tenths * 100_000_000)
    }

    fn target(up_from: u32) -> Target {
        Target { up_from: Epoch(up_from), addrs: Default::default() }
    }

    /// Asks one peer over two connections.
    fn one() -> Heartbeats {
        let mut h = Heartbeats::default();
        assert!(h.set_targets(BTreeMap::from([(OsdId(1), target(5))])).is_empty());
        for (i, (osd, net, _)) in h.to_dial().into_iter().enumerate() {
            h.dialled(osd, net, LinkId(i as u64));
        }
        h
    }

    /// Asks and looks for a while; `answers` says which links answer.
    fn pass(h: &mut Heartbeats, tenths: std::ops::Range<u64>, answers: &[u64]) -> Vec<Verdict> {
        let mut said = Vec::new();
        for t in tenths.step_by(5) {
            let asked = if h.is_due(at(t)) { h.ask(at(t), SECOND) } else { Vec::new() };
            for link in asked.into_iter().filter(|l| answers.contains(&l.0)) {
                h.answered(link, at(t), at(t + 1));
            }
            said.extend(h.look(at(t), GRACE));
        }
        said
    }

    #[test]
    fn silence_on_either_network_is_a_failure_and_its_end_is_told() {
        for silent in [0, 1] {
            let mut h = one();
            assert_eq!(pass(&mut h, 0..100, &[0, 1]), []);
            let said = pass(&mut h, 100..140, &[1 - silent]);
            assert_eq!(said.iter().map(|v| v.what).collect::<Vec<_>>(), [FailureKind::Silent]);
            assert!(said[0].silent > GRACE && said[0].up_from == Epoch(5));
            // It is told again, not all the time.
            assert_eq!(pass(&mut h, 140..240, &[1 - silent]).len(), 2);
            let said = pass(&mut h, 240..260, &[0, 1]);
            assert_eq!(said.iter().map(|v| v.what).collect::<Vec<_>>(), [FailureKind::Answers]);
        }
    }

    #[test]
    fn a_refused_connection_is_told_at_once() {
        let mut h = one();
        assert_eq!(pass(&mut h, 0..20, &[0, 1]), []);
        assert!(h.closed(LinkId(0), End::Other) && !h.closed(LinkId(9), End::Refused));
        assert_eq!(h.look(at(20), GRACE), []);
        h.dialled(OsdId(1), Net::Back, LinkId(7));
        assert!(h.closed(LinkId(7), End::Refused));
        assert_eq!(h.look(at(21), GRACE)[0].what, FailureKind::Refused);
    }

    #[test]
    fn who_cannot_be_dialled_for_want_of_descriptors_is_not_silent() {
        for (end, accused) in [(End::Ours, false), (End::Other, true)] {
            let mut h = one();
            assert_eq!(pass(&mut h, 0..20, &[0, 1]), []);
            assert!(h.closed(LinkId(0), End::Other) && h.closed(LinkId(1), End::Other));
            let mut said = Vec::new();
            for t in (20..100).step_by(5) {
                if h.is_due(at(t)) {
                    for (osd, net, _) in h.to_dial() {
                        h.dialled(osd, net, LinkId(t * 2 + net as u64));
                    }
                    for link in h.ask(at(t), SECOND) {
                        assert!(h.closed(link, end));
                    }
                }
                said.extend(h.look(at(t), GRACE));
            }
            assert_eq!(!said.is_empty(), accused, "{said:?}");
        }
    }

    #[test]
    fn whoever_stood_still_himself_accuses_nobody() {
        let mut h = one();
        assert_eq!(pass(&mut h, 0..20, &[0, 1]), []);
        h.ask(at(20), SECOND);
        // Ten seconds later nothing has been received yet.
        assert_eq!(h.look(at(120), GRACE), []);
        assert_eq!(pass(&mut h, 120..200, &[0, 1]), []);
    }

    #[test]
    fn whoever_stood_still_himself_acquits_nobody() {
        for answering in [&[][..], &[1]] {
            let mut h = one();
            assert_eq!(pass(&mut h, 0..20, &[0, 1]), []);
            let said = pass(&mut h, 20..60, answering);
            assert_eq!(said.iter().map(|v| v.what).collect::<Vec<_>>(), [FailureKind::Silent]);
            // Ten seconds later what it owed is forgotten, not paid.
            let said = pass(&mut h, 160..180, answering);
            assert_eq!(said, []);
            let said = pass(&mut h, 180..200, &[0, 1]);
            assert_eq!(said.iter().map(|v| v.what).collect::<Vec<_>>(), [FailureKind::Answers]);
        }
    }

    #[test]
    fn a_new_life_of_a_peer_begins_without_debts() {
        let mut h = one();
        assert_eq!(pass(&mut h, 0..40, &[]).len(), 1);
        let closed = h.set_targets(BTreeMap::from([(OsdId(1), target(9))]));
        assert_eq!(closed, [LinkId(0), LinkId(1)]);
        assert_eq!(pass(&mut h, 40..60, &[]), []);
        assert!(h.set_targets(BTreeMap::new()).is_empty() && h.peers().next().is_none());
    }
}

//! Simulated connections: ordered bytes, cut and delayed as the seed says.

use super::{DELAY_MS, Due, NodeId, World};
use bytes::{Bytes, BytesMut};
use io::AlignedBuf;
use io::Event;
use io::net::{CloseReason, ConnId, ListenAddr, ListenId, NetEvent, NetOp, PeerAddr, SendLimit};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use types::Mono;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    /// The other end: its node, and its name there.
    pub peer: Option<(NodeId, ConnId)>,
    /// Nothing is handed to the core.
    pub paused: bool,
    /// Bytes that have arrived and are not handed over.
    pub arrived: VecDeque<Bytes>,
    /// The next bytes go here.
    pub fill: Option<(AlignedBuf, usize)>,
    /// Bytes taken out of `arrived` of which the other end does not know yet.
    pub taken_bytes: usize,
    /// Bytes sent by this end that the other one's core has not been handed.
    pub unsent_bytes: usize,
    pub send_limit: SendLimit,
    /// Bytes sent by this end arrive no earlier than this: order is kept.
    pub last_arrival: Mono,
}

impl End {
    pub fn new(peer: Option<(NodeId, ConnId)>) -> Self {
        End {
            peer,
            paused: false,
            arrived: VecDeque::new(),
            fill: None,
            taken_bytes: 0,
            unsent_bytes: 0,
            send_limit: SendLimit::default(),
            last_arrival: Mono::default(),
        }
    }

    /// What to hand to the core next: a filled buffer, or bytes.
    fn take(&mut self) -> Option<Handed> {
        if self.paused || self.send_limit.is_over() {
            return None;
        }
        while let Some((mut buf, from)) = self.fill.take() {
            let Some(mut data) = self.arrived.pop_front() else {
                self.fill = Some((buf, from));
                return None;
            };
            let n = data.len().min(buf.len() - from);
            buf.as_mut_slice()[from..from + n].copy_from_slice(&data.split_to(n));
            self.taken_bytes += n;
            if !data.is_empty() {
                self.arrived.push_front(data);
            }
            if from + n == buf.len() {
                return Some(Handed::Filled(buf));
            }
            self.fill = Some((buf, from + n));
        }
        let data = self.arrived.pop_front()?;
        self.taken_bytes += data.len();
        Some(Handed::Bytes(data))
    }
}

enum Handed {
    Bytes(Bytes),
    Filled(AlignedBuf),
}

/// What a receive gives at most.
const RECEIVE_BYTES: usize = 256 << 10;

/// Cuts what is sent into pieces, at places the seed gives. The pieces share one allocation, as those
/// of a real receive buffer do.
fn cut(pieces: &[Bytes], rng: &mut io::Rng) -> Vec<Bytes> {
    let mut all = BytesMut::new();
    pieces.iter().for_each(|p| all.extend_from_slice(p));
    let mut all = all.freeze();
    let mut out = Vec::new();
    while !all.is_empty() {
        // Mostly as much as there is, sometimes small pieces, sometimes single bytes.
        let most = all.len().min(RECEIVE_BYTES);
        let n = match rng.u32(..16) {
            0 => 1,
            1..4 => rng.usize(1..=most.min(100)),
            4..8 => rng.usize(1..=most.min(5000)),
            _ => most,
        };
        out.push(all.split_to(n));
    }
    out
}

impl World {
    pub(super) fn net_op(&mut self, node: NodeId, op: NetOp) {
        match op {
            NetOp::Listen { listen, addr } => self.listen(node, listen, addr),
            NetOp::Connect { conn, addr } => self.connect(node, conn, addr),
            NetOp::Send { conn, data } => self.send(node, conn, &data),
            NetOp::Fill { conn, buf, from } => {
                if let Some(end) = self.nodes[node.0].ends.get_mut(&conn) {
                    end.fill = Some((buf, from));
                    self.at(node, Duration::ZERO, Due::HandOver(conn));
                }
            }
            NetOp::PauseRecv { conn } => {
                if let Some(end) = self.nodes[node.0].ends.get_mut(&conn) {
                    end.paused = true;
                }
            }
            NetOp::ResumeRecv { conn } => {
                if let Some(end) = self.nodes[node.0].ends.get_mut(&conn) {
                    end.paused = false;
                    self.at(node, Duration::ZERO, Due::HandOver(conn));
                }
            }
            NetOp::LimitSend { conn, bytes } => {
                if let Some(end) = self.nodes[node.0].ends.get_mut(&conn) {
                    end.send_limit.set(bytes);
                }
            }
            NetOp::Close { conn, .. } => self.close(node, conn),
        }
    }

    fn listen(&mut self, node: NodeId, listen: ListenId, addr: ListenAddr) {
        let addr = match addr {
            ListenAddr::Unix(_) => None,
            ListenAddr::Tcp(addr) => {
                let port = if addr.port() == 0 { self.new_port() } else { addr.port() };
                self.nodes[node.0].listening.insert(port, listen);
                Some(SocketAddr::new(Self::ip(node), port))
            }
        };
        self.at(node, Duration::ZERO, Due::Net(NetEvent::Listening { listen, addr }));
    }

    fn new_port(&mut self) -> u16 {
        self.next_port = self.next_port.checked_add(1).unwrap_or(40_000);
        self.next_port
    }

    fn latency(&mut self) -> Duration {
        let micros = match self.rng.u32(..100) {
            0 => self.rng.u64(1000..20_000),
            1..10 => self.rng.u64(100..1000),
            _ => self.rng.u64(15..100),
        };
        Duration::from_micros(micros)
    }

    fn connect(&mut self, node: NodeId, conn: ConnId, addr: SocketAddr) {
        let target = (0..self.nodes.len()).map(NodeId).find(|n| Self::ip(*n) == addr.ip());
        self.nodes[node.0].ends.insert(conn, End::new(None));
        if target.is_some_and(|t| self.cuts.contains(&(node, t))) {
            const EHOSTUNREACH: i32 = 113;
            self.dial_fails(node, conn, EHOSTUNREACH);
            return;
        }
        match target.filter(|t| self.is_up(*t)) {
            Some(to) => {
                let wait = self.latency();
                self.at(to, wait, Due::Dial { from: node, conn, addr });
            }
            None => self.refuse(node, conn),
        }
    }

    pub(super) fn dialled(&mut self, node: NodeId, from: NodeId, conn: ConnId, addr: SocketAddr) {
        let listen = self.nodes[node.0].listening.get(&addr.port()).copied();
        let still = self.nodes[from.0].ends.contains_key(&conn);
        let (Some(listen), true) = (listen.filter(|_| self.is_up(node)), still) else {
            self.refuse(from, conn);
            return;
        };
        let local = SocketAddr::new(Self::ip(from), self.new_port());
        let accepted = self.nodes[node.0].fx.new_conn();
        self.nodes[node.0].ends.insert(accepted, End::new(Some((from, conn))));
        if let Some(end) = self.nodes[from.0].ends.get_mut(&conn) {
            end.peer = Some((node, accepted));
        }
        let wait = self.latency();
        self.at(from, wait, Due::Net(NetEvent::Connected { conn, local }));
        // Nothing the dialler sends may arrive before it knows that it is connected.
        let peer = PeerAddr::Tcp(local);
        self.give(node, vec![Event::Net(NetEvent::Accepted { listen, conn: accepted, peer })]);
    }

    fn send(&mut self, node: NodeId, conn: ConnId, data: &[Bytes]) {
        let Some((to, there)) = self.nodes[node.0].ends.get(&conn).and_then(|e| e.peer) else {
            return;
        };
        if self.rng.u32(..1_000_000) < self.faults.break_ppm {
            self.count("connection broken", 1);
            self.break_conn(node, conn);
            return;
        }
        let bytes = data.iter().map(Bytes::len).sum::<usize>();
        self.note_unsent(node, conn, |unsent| unsent + bytes);
        for piece in cut(data, &mut self.rng) {
            let mut wait = self.latency();
            if self.faults.delay_ppm > 0 && self.rng.u32(..1_000_000) < self.faults.delay_ppm {
                wait += Duration::from_millis(self.rng.u64(1..DELAY_MS));
                self.count("message delayed", 1);
            }
            let Some(end) = self.nodes[node.0].ends.get_mut(&conn) else { return };
            let at = self.now.after(wait).max(end.last_arrival);
            end.last_arrival = at;
            self.at_time(to, at, Due::Arrive(node, there, piece));
        }
    }

    pub(super) fn arrive(&mut self, node: NodeId, conn: ConnId, data: Bytes) {
        if let Some(end) = self.nodes[node.0].ends.get_mut(&conn) {
            end.arrived.push_back(data);
            self.hand_over(node, conn);
        }
    }

    /// Gives a core the bytes that have arrived, piece by piece.
    pub(super) fn hand_over(&mut self, node: NodeId, conn: ConnId) {
        while let Some(end) = self.nodes[node.0].ends.get_mut(&conn) {
            let handed = end.take();
            let taken = std::mem::take(&mut end.taken_bytes);
            if let Some((sender, there)) = end.peer {
                self.note_unsent(sender, there, |unsent| unsent - taken);
            }
            let event = match handed {
                Some(Handed::Bytes(data)) => NetEvent::Received { conn, data },
                Some(Handed::Filled(buf)) => NetEvent::Filled { conn, buf },
                None => return,
            };
            self.give(node, vec![Event::Net(event)]);
        }
    }

    /// What is unsent on a connection changes; its core is told of it if it is to be.
    fn note_unsent(&mut self, node: NodeId, conn: ConnId, change: impl FnOnce(usize) -> usize) {
        let Some(end) = self.nodes[node.0].ends.get_mut(&conn) else { return };
        end.unsent_bytes = change(end.unsent_bytes);
        let Some(over) = end.send_limit.note(end.unsent_bytes) else { return };
        self.at(node, Duration::ZERO, Due::Net(NetEvent::Backlog { conn, over }));
        self.at(node, Duration::ZERO, Due::HandOver(conn));
    }

    /// Bytes that a machine sent and that nobody has received.
    pub fn unsent_bytes(&self, node: NodeId) -> usize {
        self.nodes[node.0].ends.values().map(|end| end.unsent_bytes).sum()
    }

    fn close(&mut self, node: NodeId, conn: ConnId) {
        let Some(end) = self.nodes[node.0].ends.remove(&conn) else { return };
        if let Some((to, there)) = end.peer {
            // What the peer still sends reaches nobody, least of all the machine's next life, whose
            // connections have the same numbers: it may hear of the end much later.
            if let Some(theirs) = self.nodes[to.0].ends.get_mut(&there) {
                theirs.peer = None;
            }
            let wait = self.latency();
            let at = self.now.after(wait).max(end.last_arrival);
            self.at_time(to, at, Due::PeerClosed(node, there, CloseReason::Eof));
        }
    }

    pub(super) fn peer_closed(&mut self, node: NodeId, conn: ConnId, why: CloseReason) {
        self.hand_over(node, conn);
        if self.nodes[node.0].ends.remove(&conn).is_some() {
            self.give(node, vec![Event::Net(NetEvent::Closed { conn, why })]);
        }
    }

    /// A connection breaks: both ends see it, and what was on its way is lost.
    pub(super) fn break_conn(&mut self, node: NodeId, conn: ConnId) {
        const ECONNRESET: i32 = 104;
        let Some(end) = self.nodes[node.0].ends.get_mut(&conn) else { return };
        let peer = end.peer.take();
        let why = CloseReason::Os(ECONNRESET);
        let wait = self.latency();
        self.at(node, wait, Due::PeerClosed(node, conn, why));
        if let Some((to, there)) = peer {
            if let Some(end) = self.nodes[to.0].ends.get_mut(&there) {
                end.peer = None;
            }
            let lost = |n: NodeId, due: &Due| {
                let Due::Arrive(_, c, _) = due else { return false };
                (n, *c) == (to, there) || (n, *c) == (node, conn)
            };
            self.due.retain(|_, (n, _, due)| !lost(*n, due));
            // A machine whose power fails repeats nothing of what did not get through.
            self.held.retain(|(n, _, due)| !lost(*n, due));
            let wait = self.latency();
            self.at(to, wait, Due::PeerClosed(node, there, why));
        }
    }

    pub(super) fn refuse(&mut self, from: NodeId, conn: ConnId) {
        const ECONNREFUSED: i32 = 111;
        self.dial_fails(from, conn, ECONNREFUSED);
    }

    fn dial_fails(&mut self, from: NodeId, conn: ConnId, errno: i32) {
        if self.nodes[from.0].ends.remove(&conn).is_some() {
            let why = CloseReason::Os(errno);
            self.at(from, Duration::from_micros(20), Due::Net(NetEvent::Closed { conn, why }));
        }
    }
}

//! A network of messengers in one process: carries out their `NetOp`s, makes `NetEvent`s of them,
//! cuts bytes into pieces and connections off, all from a seed.

use bytes::{Bytes, BytesMut};
use io::net::{CloseReason, ConnId, ListenAddr, ListenId, NetEvent, NetOp, PeerAddr};
use io::{AlignedBuf, Effects, Now, Rng};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use types::{Mono, UTime};
use wire::{Identity, Message, Messenger, MsgrEvent, OutMessage, Payload};

pub const ECONNRESET: i32 = 104;
const ECONNREFUSED: i32 = 111;

/// A message of our own range: its tid, and any data.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    pub data: Bytes,
}

impl Payload for Note {
    const TYPE: u16 = wire::msg::kind::OURS_FROM + 1;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn decode(m: &Message) -> Result<Self, denc::DecodeError> {
        let data = m.data.clone();
        Ok(Note { data })
    }

    fn encode(self) -> OutMessage {
        OutMessage::new::<Self>(Bytes::from_static(b"note")).with_data(self.data)
    }
}

/// Note number `tid`, with data of that many bytes that can be checked.
pub fn note(tid: u64, len: usize) -> OutMessage {
    let byte = |i: usize| (i as u64).wrapping_mul(31).wrapping_add(tid) as u8;
    let data: Vec<u8> = (0..len).map(byte).collect();
    Note { data: data.into() }.encode().with_tid(tid)
}

/// Whether a message is exactly `note(tid, len)`.
pub fn is_note(m: &Message, tid: u64, len: usize) -> bool {
    let want = note(tid, len).into_message();
    m.header.tid == tid && m.front == want.front && m.data == want.data
}

/// One end of a connection.
#[derive(Default)]
struct End {
    other: Option<(usize, ConnId)>,
    /// Bytes on the way to this end.
    inflow: VecDeque<Bytes>,
    fill: Option<(AlignedBuf, usize)>,
    paused: bool,
    /// The other end closed after these bytes.
    eof: bool,
    /// What this end received so far.
    received: u64,
}

pub struct Node {
    pub msgr: Messenger,
    pub fx: Effects,
    /// Everything its messenger said, in order.
    pub log: Vec<MsgrEvent>,
    queue: VecDeque<NetEvent>,
    up: bool,
}

/// When a connection is cut: the n-th one made, when one end received so many bytes.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub connection: usize,
    pub at_acceptor: bool,
    pub bytes: u64,
}

pub struct Net {
    pub nodes: Vec<Node>,
    pub now: Now,
    pub rng: Rng,
    pub cuts: Vec<Cut>,
    /// Pieces are at most so long.
    pub max_piece: usize,
    /// Connections made so far, with the ends: dialler, acceptor.
    pub made: Vec<[(usize, ConnId); 2]>,
    /// Events handed over, by kind.
    pub fills: usize,
    ends: BTreeMap<(usize, ConnId), End>,
    listeners: BTreeMap<SocketAddr, (usize, ListenId)>,
    /// No connection can be made for now.
    pub unreachable: bool,
    /// Connections that could not be made.
    pub refused: usize,
}

impl Net {
    pub fn new(seed: u64) -> Self {
        Net {
            nodes: Vec::new(),
            now: Now { mono: Mono(1_000_000_000), wall: UTime { sec: 1, nsec: 0 } },
            rng: Rng::with_seed(seed),
            cuts: Vec::new(),
            max_piece: 1 << 16,
            made: Vec::new(),
            fills: 0,
            ends: BTreeMap::new(),
            listeners: BTreeMap::new(),
            unreachable: false,
            refused: 0,
        }
    }

    pub fn add(&mut self, me: Identity) -> usize {
        let seed = self.rng.u64(..);
        self.nodes.push(Node {
            msgr: Messenger::new(me, Rng::with_seed(seed)),
            fx: Effects::new(),
            log: Vec::new(),
            queue: VecDeque::new(),
            up: true,
        });
        self.nodes.len() - 1
    }

    /// Lets a node do something, then carries out what it wants.
    pub fn act<T>(
        &mut self,
        node: usize,
        act: impl FnOnce(&mut Messenger, Now, &mut Effects) -> T,
    ) -> T {
        let now = self.now;
        let n = &mut self.nodes[node];
        let result = act(&mut n.msgr, now, &mut n.fx);
        self.end_turn(node);
        result
    }

    pub fn send(&mut self, node: usize, link: wire::LinkId, message: OutMessage) {
        self.act(node, |msgr, _, _| msgr.send(link, message));
    }

    /// The process of a node ends without a word; its sockets close.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].up = false;
        self.nodes[node].queue.clear();
        self.listeners.retain(|_, (n, _)| *n != node);
        let mine: Vec<_> = self.ends.keys().filter(|(n, _)| *n == node).copied().collect();
        for key in mine {
            self.close(key, false);
        }
    }

    fn end_turn(&mut self, node: usize) {
        let n = &mut self.nodes[node];
        n.msgr.end_turn(self.now, &mut n.fx);
        for op in std::mem::take(&mut n.fx.net) {
            self.carry_out(node, op);
        }
    }

    fn carry_out(&mut self, node: usize, op: NetOp) {
        match op {
            NetOp::Listen { listen, addr } => {
                let ListenAddr::Tcp(mut addr) = addr else {
                    panic!("only TCP here");
                };
                if addr.port() == 0 {
                    addr.set_port(50_000 + self.listeners.len() as u16);
                }
                self.listeners.insert(addr, (node, listen));
                let addr = Some(addr);
                self.nodes[node].queue.push_back(NetEvent::Listening { listen, addr });
            }
            NetOp::Connect { conn, addr } => self.connect(node, conn, addr),
            NetOp::Send { conn, data } => {
                let early =
                    |e: &NetEvent| matches!(e, NetEvent::Connected { conn: c, .. } if *c == conn);
                assert!(!self.nodes[node].queue.iter().any(early), "sent before it is connected");
                let Some(other) = self.ends.get(&(node, conn)).and_then(|e| e.other) else {
                    return;
                };
                if let Some(end) = self.ends.get_mut(&other) {
                    assert!(data.iter().all(|piece| !piece.is_empty()));
                    end.inflow.extend(data);
                }
            }
            NetOp::Fill { conn, buf, from } => {
                if let Some(end) = self.ends.get_mut(&(node, conn)) {
                    assert!(from < buf.len() && end.fill.is_none());
                    self.fills += 1;
                    end.fill = Some((buf, from));
                }
            }
            NetOp::PauseRecv { conn } => self.set_paused(node, conn, true),
            NetOp::ResumeRecv { conn } => self.set_paused(node, conn, false),
            NetOp::LimitSend { .. } => {}
            NetOp::Close { conn, drain } => self.close((node, conn), drain),
        }
    }

    fn set_paused(&mut self, node: usize, conn: ConnId, paused: bool) {
        if let Some(end) = self.ends.get_mut(&(node, conn)) {
            end.paused = paused;
        }
    }

    fn connect(&mut self, node: usize, conn: ConnId, addr: SocketAddr) {
        let listener = self.listeners.get(&addr).copied();
        let (false, Some((server, listen))) = (self.unreachable, listener) else {
            let why = CloseReason::Os(ECONNREFUSED);
            self.refused += 1;
            self.nodes[node].queue.push_back(NetEvent::Closed { conn, why });
            return;
        };
        let theirs = self.nodes[server].fx.new_conn();
        let (a, b) = ((node, conn), (server, theirs));
        for (end, other) in [(a, b), (b, a)] {
            let fresh = End { other: Some(other), ..End::default() };
            self.ends.insert(end, fresh);
        }
        self.made.push([a, b]);
        let port = 40_000 + self.made.len() as u16;
        let local = SocketAddr::from(([127, 0, 0, 1], port));
        self.nodes[node].queue.push_back(NetEvent::Connected { conn, local });
        self.nodes[server].queue.push_back(NetEvent::Accepted {
            listen,
            conn: theirs,
            peer: PeerAddr::Tcp(local),
        });
    }

    /// One end closes: the other gets what is on the way (`drain`), then the end.
    fn close(&mut self, key: (usize, ConnId), drain: bool) {
        let Some(end) = self.ends.remove(&key) else {
            return;
        };
        if let Some(other) = end.other.and_then(|o| self.ends.get_mut(&o)) {
            other.other = None;
            other.eof = true;
            if !drain && self.rng.bool() {
                other.inflow.clear();
            }
        }
    }

    /// The network loses a connection: both ends get an error.
    pub fn cut(&mut self, connection: usize) {
        for key in self.made[connection] {
            if self.ends.remove(&key).is_some() {
                let conn = key.1;
                let why = CloseReason::Os(ECONNRESET);
                self.nodes[key.0].queue.push_back(NetEvent::Closed { conn, why });
            }
        }
    }

    /// Only one end of a connection learns that it is gone; the other one hears nothing more.
    pub fn cut_one_side(&mut self, connection: usize, side: usize) {
        let (key, silent) = (self.made[connection][side], self.made[connection][1 - side]);
        if self.ends.remove(&key).is_some() {
            let conn = key.1;
            let why = CloseReason::Os(ECONNRESET);
            self.nodes[key.0].queue.push_back(NetEvent::Closed { conn, why });
        }
        if let Some(end) = self.ends.get_mut(&silent) {
            end.inflow.clear();
            end.other = None;
        }
    }

    /// How many bytes an end of a connection received.
    pub fn received(&self, key: (usize, ConnId)) -> u64 {
        self.ends.get(&key).map_or(0, |e| e.received)
    }

    /// One end that has something to receive, chosen by the seed.
    fn pick(&mut self) -> Option<(usize, ConnId)> {
        let ready = |e: &End| !e.paused && (!e.inflow.is_empty() || e.eof);
        let ends: Vec<_> = self.ends.iter().filter(|(_, e)| ready(e)).map(|(k, _)| *k).collect();
        if ends.is_empty() {
            return None;
        }
        Some(ends[self.rng.usize(..ends.len())])
    }

    /// Moves a piece of bytes to an end, as one event, if it makes one.
    fn deliver(&mut self, key: (usize, ConnId)) {
        let budget = self.cut_budget(key);
        if budget == Some(0) {
            return self.spend_cut(key);
        }
        let limit = self.rng.usize(1..=self.max_piece);
        let Some(end) = self.ends.get_mut(&key) else {
            return;
        };
        let conn = key.1;
        let limit = budget.map_or(limit, |b| limit.min(b as usize));
        let mut piece = BytesMut::new();
        let room = end.fill.as_ref().map_or(limit, |(buf, from)| limit.min(buf.len() - from));
        while piece.len() < room
            && let Some(front) = end.inflow.front_mut()
        {
            let n = front.len().min(room - piece.len());
            piece.extend_from_slice(&front.split_to(n));
            if front.is_empty() {
                end.inflow.pop_front();
            }
        }
        end.received += piece.len() as u64;
        let queue = &mut self.nodes[key.0].queue;
        if piece.is_empty() {
            assert!(end.eof);
            let why = CloseReason::Eof;
            queue.push_back(NetEvent::Closed { conn, why });
            self.ends.remove(&key);
        } else if let Some((mut buf, from)) = end.fill.take() {
            buf.as_mut_slice()[from..from + piece.len()].copy_from_slice(&piece);
            let from = from + piece.len();
            if from == buf.len() {
                queue.push_back(NetEvent::Filled { conn, buf });
            } else {
                end.fill = Some((buf, from));
            }
        } else {
            let data = piece.freeze();
            queue.push_back(NetEvent::Received { conn, data });
        }
        if self.cut_budget(key) == Some(0) {
            self.spend_cut(key);
        }
    }

    fn cut_of(&self, key: (usize, ConnId)) -> Option<usize> {
        self.cuts.iter().position(|cut| {
            let made = self.made.get(cut.connection);
            made.is_some_and(|ends| ends[usize::from(cut.at_acceptor)] == key)
        })
    }

    fn cut_budget(&self, key: (usize, ConnId)) -> Option<u64> {
        let cut = self.cuts[self.cut_of(key)?];
        let received = self.ends.get(&key).map_or(cut.bytes, |e| e.received);
        Some(cut.bytes.saturating_sub(received))
    }

    fn spend_cut(&mut self, key: (usize, ConnId)) {
        if let Some(i) = self.cut_of(key) {
            let cut = self.cuts.remove(i);
            self.cut(cut.connection);
        }
    }

    /// Lets a node handle all its events and end its turn.
    fn turn(&mut self, node: usize) {
        let now = self.now;
        let n = &mut self.nodes[node];
        for event in n.queue.drain(..) {
            n.msgr.handle(now, event, &mut n.fx, &mut n.log);
        }
        self.end_turn(node);
    }

    /// One step: bytes move, or a node has its turn. `false` when nothing can happen without time.
    pub fn step(&mut self) -> bool {
        let mut busy: Vec<usize> = (0..self.nodes.len()).collect();
        busy.retain(|&i| self.nodes[i].up && !self.nodes[i].queue.is_empty());
        // Events gather until their node has its turn.
        let end = self.pick();
        match (busy.is_empty(), end) {
            (true, None) => false,
            (false, end) if end.is_none() || self.rng.bool() => {
                let node = busy[self.rng.usize(..busy.len())];
                self.turn(node);
                true
            }
            (_, Some(end)) => {
                if self.nodes[end.0].queue.len() < 4 {
                    self.deliver(end);
                } else {
                    self.turn(end.0);
                }
                true
            }
            (false, None) => unreachable!(),
        }
    }

    /// Until nothing can happen without time passing.
    pub fn settle(&mut self) {
        for _ in 0..2_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the network never comes to rest");
    }

    /// Lets time pass, with everything that is due.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now.mono.after(time);
        loop {
            self.settle();
            let up = self.nodes.iter().filter(|n| n.up);
            let due = up.filter_map(|n| n.msgr.next_deadline()).min();
            let Some(due) = due.filter(|&due| due <= end) else {
                break;
            };
            self.now.mono = self.now.mono.max(due);
            for i in 0..self.nodes.len() {
                let now = self.now;
                let n = &mut self.nodes[i];
                if n.up && n.msgr.next_deadline().is_some_and(|d| d <= now.mono) {
                    n.msgr.tick(now, &mut n.fx, &mut n.log);
                    self.end_turn(i);
                }
            }
        }
        self.now.mono = end;
    }

    /// The tids of all messages a node received, in order.
    pub fn tids(&self, node: usize) -> Vec<u64> {
        let tid = |e: &MsgrEvent| match e {
            MsgrEvent::Message { message, .. } => Some(message.header.tid),
            _ => None,
        };
        self.nodes[node].log.iter().filter_map(tid).collect()
    }

    /// What a node was told, in words, without messages.
    pub fn story(&self, node: usize) -> Vec<String> {
        let word = |e: &MsgrEvent| match e {
            MsgrEvent::Message { .. } | MsgrEvent::Listening { .. } | MsgrEvent::Backlog { .. } => {
                None
            }
            MsgrEvent::Open { peer, .. } => Some(format!("open {}", peer.name)),
            MsgrEvent::Closed { why, .. } => Some(format!("closed: {why}")),
            MsgrEvent::Reset { .. } => Some("reset".to_owned()),
            MsgrEvent::WantsGlobalId { name, .. } => Some(format!("id for {}", name.id)),
            MsgrEvent::ListenFailed { .. } => Some("listen failed".to_owned()),
        };
        self.nodes[node].log.iter().filter_map(word).collect()
    }

    /// The link a node was told of last.
    pub fn link(&self, node: usize) -> wire::LinkId {
        let id = |e: &MsgrEvent| match e {
            MsgrEvent::Open { link, .. } | MsgrEvent::WantsGlobalId { link, .. } => Some(*link),
            MsgrEvent::Reset { renewed, .. } => Some(*renewed),
            _ => None,
        };
        self.nodes[node].log.iter().rev().find_map(id).expect("no link")
    }
}

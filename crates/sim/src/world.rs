//! The machine room: nodes, what runs on them, and time.

mod disks;
mod net;

use crate::disk::SimDisk;
use crate::work::Work;
use bytes::Bytes;
use disks::InFlight;
use io::kv::ClusterStore;
use io::net::{CloseReason, ConnId, ListenId, NetEvent};
use io::{Core, Effects, Event, Exit, Now, Rng};
use kv::Memory;
use net::End;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use types::{Mono, UTime};

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// Makes the core of a node when it boots, from what is on its disks. It is given the devices and
/// a seed.
pub type Boot = Box<dyn FnMut(&[io::disk::DeviceInfo], u64) -> Box<dyn Core>>;

/// How hard the world is. All per million events or operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A connection breaks when something is sent on it.
    pub break_ppm: u32,
    /// A disk operation takes up to 100 times as long.
    pub slow_disk_ppm: u32,
    /// A piece of what is sent takes up to [`DELAY_MS`] longer; other connections overtake it.
    pub delay_ppm: u32,
}

/// How long a delayed piece may take.
pub const DELAY_MS: u64 = 300;

/// How a bad disk treats writes of blocks that [`BadDisk::hits`] accepts. Both per million writes.
#[derive(Clone, Copy, Debug)]
pub struct BadDisk {
    /// The write goes to another such block instead.
    pub misdirected_ppm: u32,
    /// The write is not done at all.
    pub lost_ppm: u32,
    /// Which blocks, by their place in bytes and what they hold.
    pub hits: fn(u64, &[u8]) -> bool,
}

/// How often what went wrong, by kind.
pub type FaultCounts = BTreeMap<&'static str, u64>;

/// What is going to happen.
#[derive(Debug)]
enum Due {
    Boot,
    Timer,
    Net(NetEvent),
    /// Bytes of a machine arrive at this end of a connection.
    Arrive(NodeId, ConnId, Bytes),
    /// A core may be given what has arrived at this end. Not at once when it asks: it would have its
    /// next turn in the midst of this one, and send before what this one sends.
    HandOver(ConnId),
    /// The other end is gone, after the bytes before; a machine says so.
    PeerClosed(NodeId, ConnId, CloseReason),
    /// A dial arrives.
    Dial {
        from: NodeId,
        conn: ConnId,
        addr: SocketAddr,
    },
    DiskDone(u64),
}

struct Node {
    boot: Boot,
    core: Option<Box<dyn Core>>,
    fx: Effects,
    disks: Vec<SimDisk>,
    kv: Option<Memory>,
    in_flight: BTreeMap<u64, InFlight>,
    ends: BTreeMap<ConnId, End>,
    listening: BTreeMap<u16, ListenId>,
    /// Counts boots: what was due for an earlier life is void.
    life: u64,
    timer: Option<Mono>,
    exit: Option<Exit>,
    /// What its wall clock is ahead.
    skew: Duration,
    bad_disk: Option<BadDisk>,
    /// Nothing can be read from its disks.
    unreadable: bool,
    /// Its disks take so many times as long.
    slow: u64,
    work: Work,
}

/// Machines, a network between them, and a clock.
pub struct World {
    rng: Rng,
    now: Mono,
    seq: u64,
    /// Steps since the clock last went on.
    still: u64,
    nodes: Vec<Node>,
    due: BTreeMap<(Mono, u64), (NodeId, u64, Due)>,
    faults: Faults,
    /// Pairs of nodes that cannot reach each other.
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// From the first node nothing reaches the second, and neither is told.
    silent: BTreeSet<(NodeId, NodeId)>,
    /// Machines whose processes are stopped, as by SIGSTOP.
    paused: BTreeSet<NodeId>,
    /// What will arrive when the silence or the pause is over, in order.
    held: Vec<(NodeId, u64, Due)>,
    /// The newest of what was sent between two machines and has arrived.
    newest: BTreeMap<(NodeId, NodeId), u64>,
    counts: FaultCounts,
    next_port: u16,
    disk_ops: u64,
    events: u64,
    /// Hash over all events: two runs of a seed are the same run if it is the same.
    fingerprint: u64,
}

/// Steps at one moment after which it counts as an endless loop.
const MAX_STILL: u64 = 1_000_000;

/// Wall-clock time at the start of a world: 2026-01-01.
const START_SEC: u32 = 1_767_225_600;

impl World {
    /// An empty world.
    pub fn new(seed: u64) -> Self {
        World {
            rng: Rng::with_seed(seed),
            now: Mono(1),
            seq: 0,
            still: 0,
            nodes: Vec::new(),
            due: BTreeMap::new(),
            faults: Faults::default(),
            cuts: BTreeSet::new(),
            silent: BTreeSet::new(),
            paused: BTreeSet::new(),
            held: Vec::new(),
            newest: BTreeMap::new(),
            counts: FaultCounts::new(),
            next_port: 40_000,
            disk_ops: 0,
            events: 0,
            fingerprint: seed,
        }
    }

    /// Sets how hard it is from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// What a node's cluster store holds, if it has one.
    pub fn kv(&self, node: NodeId) -> Option<&Memory> {
        self.nodes.get(node.0)?.kv.as_ref()
    }

    /// Adds a machine with these disks (bytes each) and perhaps a cluster store. It is off.
    pub fn add_node(&mut self, disks: &[u64], with_kv: bool, boot: Boot) -> NodeId {
        self.nodes.push(Node {
            boot,
            core: None,
            fx: Effects::new(),
            disks: disks.iter().map(|b| SimDisk::new(*b)).collect(),
            kv: with_kv.then(Memory::default),
            in_flight: BTreeMap::new(),
            ends: BTreeMap::new(),
            listening: BTreeMap::new(),
            life: 0,
            timer: None,
            exit: None,
            skew: Duration::ZERO,
            bad_disk: None,
            unreadable: false,
            slow: 1,
            work: Work::default(),
        });
        NodeId(self.nodes.len() - 1)
    }

    /// What a machine runs from its next start on. Gives what it ran so far.
    pub fn set_boot(&mut self, node: NodeId, boot: Boot) -> Boot {
        std::mem::replace(&mut self.nodes[node.0].boot, boot)
    }

    /// A machine that is off gets an empty disk in place of one.
    pub fn replace_disk(&mut self, node: NodeId, disk: usize, bytes: u64) {
        assert!(!self.is_up(node), "a disk is replaced while the machine is off");
        self.nodes[node.0].disks[disk] = SimDisk::new(bytes);
    }

    /// The node that is added next.
    pub(crate) fn next_node(&self) -> NodeId {
        NodeId(self.nodes.len())
    }

    /// The address of a machine.
    pub fn ip(node: NodeId) -> IpAddr {
        let n = u8::try_from(node.0 + 1).expect("fewer than 255 machines");
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))
    }

    /// The source of randomness, for scenarios.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        self.now.since(Mono(1))
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Equal for two runs that were the same.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// A disk of a machine.
    pub fn disk(&mut self, node: NodeId, disk: usize) -> &mut SimDisk {
        &mut self.nodes[node.0].disks[disk]
    }

    /// Whether a machine runs.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.nodes[node.0].core.is_some()
    }

    /// How the core of a machine ended, if it ended by itself.
    pub fn exit_of(&self, node: NodeId) -> Option<&Exit> {
        self.nodes[node.0].exit.as_ref()
    }

    /// What the wall clock of a machine is ahead, from now on.
    pub fn set_skew(&mut self, node: NodeId, skew: Duration) {
        self.nodes[node.0].skew = skew;
    }

    /// Two machines cannot reach each other, or can again.
    pub fn set_cut(&mut self, a: NodeId, b: NodeId, cut: bool) {
        if !cut {
            self.cuts.remove(&(a, b));
            self.cuts.remove(&(b, a));
            return;
        }
        self.cuts.extend([(a, b), (b, a)]);
        let to_b = |e: &End| e.peer.is_some_and(|(peer, _)| peer == b);
        let ends = self.nodes[a.0].ends.iter();
        let all: Vec<_> = ends.filter(|(_, e)| to_b(e)).map(|(c, _)| *c).collect();
        for conn in all {
            self.break_conn(a, conn);
        }
    }

    /// From `from` nothing reaches `to` any more, as with a pulled cable: connections stay open, and
    /// nobody is told. When it is over everything arrives that was sent meanwhile, as with TCP.
    pub fn set_silent(&mut self, from: NodeId, to: NodeId, silent: bool) {
        if silent {
            self.silent.insert((from, to));
            return;
        }
        self.silent.remove(&(from, to));
        self.release();
    }

    /// Lets what was held come through, as far as it now does.
    fn release(&mut self) {
        let now = self.now;
        for (node, life, due) in std::mem::take(&mut self.held) {
            self.seq += 1;
            self.due.insert((now, self.seq), (node, life, due));
        }
    }

    /// Stops the process of a machine, as SIGSTOP does, or lets it go on: its connections stay open,
    /// and when it goes on everything is there that came meanwhile.
    pub fn set_paused(&mut self, node: NodeId, paused: bool) {
        if paused {
            self.paused.insert(node);
        } else if self.paused.remove(&node) {
            self.release();
        }
    }

    /// Makes the first disk of a machine a bad one, or a good one again.
    pub fn set_bad_disk(&mut self, node: NodeId, bad: Option<BadDisk>) {
        self.nodes[node.0].bad_disk = bad;
    }

    /// From the disks of a machine nothing can be read any more, or again.
    pub fn set_unreadable(&mut self, node: NodeId, unreadable: bool) {
        self.nodes[node.0].unreadable = unreadable;
    }

    /// The disks of a machine take so many times as long from now on; 1: as ever.
    pub fn set_slow_disks(&mut self, node: NodeId, times: u64) {
        self.nodes[node.0].slow = times;
    }

    /// What a machine has done so far.
    pub fn work(&self, node: NodeId) -> Work {
        self.nodes[node.0].work
    }

    /// What went wrong so far, by kind.
    pub fn counts(&self) -> &FaultCounts {
        &self.counts
    }

    /// Something went wrong, so many times.
    pub fn count(&mut self, what: &'static str, times: u64) {
        if times > 0 {
            *self.counts.entry(what).or_default() += times;
        }
    }

    /// No machine but these hears of this one, and it hears of none but these.
    pub fn isolate(&mut self, node: NodeId, but: &[NodeId], silent: bool) {
        let others = (0..self.nodes.len()).map(NodeId).filter(|n| *n != node && !but.contains(n));
        for other in others.collect::<Vec<_>>() {
            self.set_silent(node, other, silent);
            self.set_silent(other, node, silent);
        }
    }

    /// Whether something does not get through.
    fn is_lost(&self, to: NodeId, due: &Due) -> bool {
        match due {
            Due::Arrive(from, ..) | Due::PeerClosed(from, ..) | Due::Dial { from, .. } => {
                self.silent.contains(&(*from, to))
            }
            Due::Boot | Due::Timer | Due::Net(_) | Due::HandOver(_) | Due::DiskDone(_) => false,
        }
    }

    /// Switches a machine on.
    pub fn start(&mut self, node: NodeId) {
        assert!(!self.is_up(node), "a machine is started once");
        // Its connections have the same numbers as those it dialled in its last life.
        let old_dial = |due: &Due| matches!(due, Due::Dial { from, .. } if *from == node);
        self.due.retain(|_, (_, _, due)| !old_dial(due));
        self.held.retain(|(_, _, due)| !old_dial(due));
        let n = &mut self.nodes[node.0];
        n.life += 1;
        n.exit = None;
        self.at(node, Duration::ZERO, Due::Boot);
    }

    /// The power of a machine fails.
    pub fn crash(&mut self, node: NodeId) {
        self.set_paused(node, false);
        let conns: Vec<_> = self.nodes[node.0].ends.keys().copied().collect();
        for conn in conns {
            self.break_conn(node, conn);
        }
        let n = &mut self.nodes[node.0];
        n.life += 1;
        n.core = None;
        n.fx = Effects::new();
        n.ends.clear();
        n.listening.clear();
        n.timer = None;
        if let Some(kv) = &mut n.kv {
            kv.crash();
        }
        self.crash_disks(node);
    }

    /// Asks the core of a machine for an orderly end.
    pub fn stop(&mut self, node: NodeId) {
        self.give(node, vec![Event::Stop]);
    }

    /// Lets a core do something outside the events: a test's hand on its own client.
    pub fn with_core<R>(
        &mut self,
        node: NodeId,
        f: impl FnOnce(&mut dyn Core, Now, &mut Effects) -> R,
    ) -> Option<R> {
        let now = self.clock(node);
        let n = &mut self.nodes[node.0];
        let core = n.core.as_mut()?;
        let result = f(core.as_mut(), now, &mut n.fx);
        self.give(node, Vec::new());
        Some(result)
    }

    /// Runs until nothing is due, `until` answers true, or `limit` has passed. Answers what `until`
    /// answered last.
    pub fn run(&mut self, limit: Duration, mut until: impl FnMut(&mut World) -> bool) -> bool {
        let end = self.now.after(limit);
        loop {
            if until(self) {
                return true;
            }
            match self.due.first_key_value() {
                Some(((at, _), _)) if *at <= end => self.step(),
                _ => {
                    self.now = end;
                    return until(self);
                }
            }
        }
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        self.run(time, |_| false);
    }

    fn clock(&self, node: NodeId) -> Now {
        let start = UTime { sec: START_SEC, nsec: 0 };
        let wall = start.plus(self.now() + self.nodes[node.0].skew);
        Now { mono: self.now, wall }
    }

    fn at(&mut self, node: NodeId, after: Duration, due: Due) {
        self.at_time(node, self.now.after(after), due);
    }

    fn at_time(&mut self, node: NodeId, at: Mono, due: Due) {
        self.seq += 1;
        let life = self.nodes[node.0].life;
        self.due.insert((at, self.seq), (node, life, due));
    }

    fn step(&mut self) {
        let Some(((at, seq), (node, life, due))) = self.due.pop_first() else { return };
        self.still = if at > self.now { 0 } else { self.still + 1 };
        assert!(self.still < MAX_STILL, "machine {} goes round and round", node.0);
        self.now = self.now.max(at);
        if self.paused.contains(&node) || (!self.silent.is_empty() && self.is_lost(node, &due)) {
            self.held.push((node, life, due));
            return;
        }
        if life != self.nodes[node.0].life {
            self.void(node, due);
            return;
        }
        match due {
            Due::Boot => self.boot(node),
            Due::Timer => {
                let n = &mut self.nodes[node.0];
                if n.timer.is_some_and(|t| t <= self.now) {
                    n.timer = None;
                    self.give(node, vec![Event::Timer]);
                }
            }
            Due::Net(event) => self.give(node, vec![Event::Net(event)]),
            Due::Arrive(from, conn, data) => {
                let newest = self.newest.entry((from, node)).or_default();
                let overtaken = u64::from(seq < *newest);
                *newest = seq.max(*newest);
                self.count("message overtaken", overtaken);
                self.arrive(node, conn, data);
            }
            Due::HandOver(conn) => self.hand_over(node, conn),
            Due::PeerClosed(_, conn, why) => self.peer_closed(node, conn, why),
            Due::Dial { from, conn, addr } => self.dialled(node, from, conn, addr),
            Due::DiskDone(id) => self.disk_done(node, id),
        }
    }

    /// Something was due for a machine that has crashed since.
    fn void(&mut self, node: NodeId, due: Due) {
        if let Due::Dial { from, conn, .. } = due {
            let _ = node;
            self.refuse(from, conn);
        }
    }

    fn boot(&mut self, node: NodeId) {
        let seed = self.rng.u64(..);
        let n = &mut self.nodes[node.0];
        let devices: Vec<_> = n.disks.iter().map(SimDisk::info).collect();
        n.core = Some((n.boot)(&devices, seed));
        self.give(node, vec![Event::Start]);
    }

    /// One turn of a core, and one for each time that its cluster store answers it.
    fn give(&mut self, node: NodeId, events: Vec<Event>) {
        let mut answers = self.turn(node, events);
        while !answers.is_empty() {
            answers = self.turn(node, answers);
        }
    }

    fn turn(&mut self, node: NodeId, events: Vec<Event>) -> Vec<Event> {
        let now = self.clock(node);
        let n = &mut self.nodes[node.0];
        let Some(core) = n.core.as_mut() else { return Vec::new() };
        for event in events {
            self.events += 1;
            let mark = (node.0 as u64) << 56 ^ self.now.0 ^ event_kind(&event);
            self.fingerprint =
                (self.fingerprint.rotate_left(5) ^ mark).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            core.handle(now, event, &mut n.fx);
        }
        core.end_turn(now, &mut n.fx);
        let deadline = core.next_deadline();
        self.set_timer(node, deadline);
        self.carry_out(node)
    }

    fn set_timer(&mut self, node: NodeId, deadline: Option<Mono>) {
        let n = &mut self.nodes[node.0];
        if deadline.is_some() && n.timer.is_none_or(|t| deadline.is_some_and(|d| d < t)) {
            n.timer = deadline;
            let at = deadline.unwrap_or_default().max(self.now);
            self.at_time(node, at, Due::Timer);
        }
    }

    /// Does what a core asked for. Gives what its cluster store answers.
    fn carry_out(&mut self, node: NodeId) -> Vec<Event> {
        let n = &mut self.nodes[node.0];
        n.work.count(&n.fx);
        let net = std::mem::take(&mut n.fx.net);
        let disk = std::mem::take(&mut n.fx.disk);
        let kv_ops = std::mem::take(&mut n.fx.kv);
        let exit = n.fx.exit.take();
        // What is logged here goes to no file.
        n.fx.reopen_log = false;
        for op in net {
            self.net_op(node, op);
        }
        for (token, op) in disk {
            self.disk_op(node, token, op);
        }
        let mut answers = Vec::new();
        if let Some(kv) = &mut self.nodes[node.0].kv {
            kv_ops.into_iter().for_each(|(token, op)| kv.submit(token, op));
            answers.extend(std::iter::from_fn(|| kv.poll()).map(Event::Kv));
        }
        if let Some(exit) = exit {
            self.crash(node);
            self.nodes[node.0].exit = Some(exit);
            return Vec::new();
        }
        answers
    }
}

fn event_kind(event: &Event) -> u64 {
    match event {
        Event::Start => 1,
        Event::Timer => 2,
        Event::Stop => 3,
        Event::Memory(memory) => 8 ^ memory.resident << 8,
        Event::Disk(d) => 4 ^ d.token.0 << 8,
        Event::Kv(k) => 5 ^ k.token.0 << 8,
        Event::Net(NetEvent::Received { conn, data }) => {
            6 ^ conn.0 << 8 ^ (data.len() as u64) << 32
        }
        Event::Net(_) => 7,
    }
}

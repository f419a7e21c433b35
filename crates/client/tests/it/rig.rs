//! A client, fake mons, fake OSDs, and the maps between them.

use crate::peer::{PeerCore, PeerState, Script, Shared, SharedScript};
use bytes::Bytes;
use client::{Client, ClientConfig, ClientCore, Completion, Object, Outcome, RequestId};
use io::Now;
use maps::{
    FreshOsdMap, Incremental, MonMap, OsdAddrs, OsdMap, OsdState, PgPool, PoolType, WEIGHT_IN,
};
use sim::{Boot, NodeId, World};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use types::{AddrVec, EntityType, Epoch, OsdId, PgId, PoolId, SnapId, UTime, Uuid};
use wire::LinkId;
use wire::msg::{
    MConfig, MMonCommand, MMonCommandAck, MMonGetVersion, MMonGetVersionReply, MMonMap,
    MMonSubscribe, MOsdMap, MOsdOp, MOsdOpReply, MPoolOp, MPoolOpReply, Message, OutMessage,
    PaxosHeader, Payload, kind,
};

pub const POOL: PoolId = PoolId(2);
pub const PG_NUM: u32 = 8;
pub const MON_PORT: u16 = 3300;
pub const OSD_PORT: u16 = 6800;

pub fn fsid() -> Uuid {
    Uuid::from_random(7)
}

pub fn object(name: &str) -> Object {
    Object::new(POOL, name)
}

/// The cluster's maps, and who wants them.
pub struct Maps {
    pub now: OsdMap,
    pub fulls: BTreeMap<Epoch, Bytes>,
    pub incs: BTreeMap<Epoch, Bytes>,
    pub monmap: Bytes,
    /// Who (mon, link) wants maps: the next epoch, and whether once.
    subs: BTreeMap<(usize, LinkId), (u64, bool)>,
    /// Answered with CONFIG and MON_MAP; maps and versions come if so.
    pub answers_versions: bool,
    pub commands_seen: Vec<String>,
    pub answers_commands: bool,
    /// What subscriptions have asked for.
    pub asked: Vec<(u64, u8)>,
    pub next_snap: u64,
}

type Action = Box<dyn FnOnce(Now, &mut Client)>;
/// What the client's user is to do.
type Actions = Rc<RefCell<VecDeque<Action>>>;
/// What has ended.
type Ends = Rc<RefCell<Vec<Completion>>>;

pub struct Rig {
    pub world: World,
    pub mons: Vec<(NodeId, Shared)>,
    pub osds: Vec<(NodeId, Shared)>,
    pub osd_scripts: Vec<SharedScript>,
    pub client: NodeId,
    pub maps: Rc<RefCell<Maps>>,
    actions: Actions,
    done: Ends,
    limits: Rc<Cell<Limits>>,
}

/// The time limits that the client is given when it boots: of requests on objects, and to the mon.
#[derive(Clone, Copy, Default)]
struct Limits {
    op: Option<Duration>,
    mon: Option<Duration>,
}

/// The raw hash of an object's name.
pub fn hash_of(name: &str) -> u32 {
    PgPool::new(PoolType::REPLICATED, 3, 2, 0, 1).hash_key(b"", b"", name.as_bytes())
}

pub fn osd_addr(node: NodeId) -> SocketAddr {
    SocketAddr::new(World::ip(node), OSD_PORT)
}

fn fresh_maps(mons: &[SocketAddr]) -> Maps {
    let now = UTime { sec: 1_767_225_600, nsec: 0 };
    let named = |(i, a): (usize, &SocketAddr)| (format!("m{i}"), AddrVec::msgr2(*a, 0));
    let monmap = MonMap::fresh(fsid(), now, mons.iter().enumerate().map(named));
    let config = FreshOsdMap { fsid: fsid(), now, failure_domain: "osd".into() };
    let map = OsdMap::fresh(&config).unwrap();
    let fulls = BTreeMap::from([(map.epoch, map.encode_with_crc().0)]);
    Maps {
        now: map,
        fulls,
        incs: BTreeMap::new(),
        monmap: denc::encode(&monmap),
        subs: BTreeMap::new(),
        answers_versions: true,
        commands_seen: Vec::new(),
        answers_commands: true,
        asked: Vec::new(),
        next_snap: 1,
    }
}

impl Maps {
    /// The next epoch.
    pub fn change(&mut self, edit: impl FnOnce(&mut Incremental, &OsdMap)) {
        let mut inc = Incremental::after(&self.now);
        edit(&mut inc, &self.now);
        self.now.apply(&inc).unwrap();
        let (full, crc) = self.now.encode_with_crc();
        inc.full_crc = crc;
        self.fulls.insert(self.now.epoch, full);
        self.incs.insert(self.now.epoch, denc::encode(&inc));
    }

    /// A message with the newest full map, or with the incrementals from an epoch on.
    pub fn message(&self, from: u64) -> MOsdMap {
        let from = Epoch(from as u32);
        let mut m = MOsdMap {
            fsid: fsid(),
            oldest: Epoch(1),
            newest: self.now.epoch,
            ..MOsdMap::default()
        };
        if from == Epoch::ZERO {
            m.fulls.extend(self.fulls.iter().next_back().map(|(e, b)| (*e, b.clone())));
        } else {
            m.incrementals.extend(self.incs.range(from..).map(|(e, b)| (*e, b.clone())));
        }
        m
    }

    fn due(&mut self) -> Vec<((usize, LinkId), OutMessage)> {
        let newest = u64::from(self.now.epoch.0);
        let mut out = Vec::new();
        for (link, (next, _)) in self.subs.iter().filter(|(_, (next, _))| *next <= newest) {
            out.push((*link, self.message(*next).encode()));
        }
        self.subs.retain(|_, (next, once)| *next > newest || !*once);
        self.subs.values_mut().for_each(|(next, _)| *next = (*next).max(newest + 1));
        out
    }

    /// What a mon says.
    fn answer(&mut self, mon: usize, state: &mut PeerState, link: LinkId, m: &Message) {
        match m.header.kind {
            kind::MON_SUBSCRIBE => {
                let ask: MMonSubscribe = m.decode().unwrap();
                state.outbox.push((link, MMonMap { monmap: self.monmap.clone() }.encode()));
                state.outbox.push((link, MConfig::default().encode()));
                if let Some(sub) = ask.what.get("osdmap") {
                    self.asked.push((sub.start, sub.flags));
                    self.subs.insert((mon, link), (sub.start, sub.is_onetime()));
                }
                let due = self.due().into_iter();
                state
                    .outbox
                    .extend(due.filter(|(to, _)| *to == (mon, link)).map(|(_, m)| (link, m)));
            }
            kind::MON_GET_VERSION if self.answers_versions => {
                let ask: MMonGetVersion = m.decode().unwrap();
                let newest = u64::from(self.now.epoch.0);
                let reply = MMonGetVersionReply { handle: ask.handle, newest, oldest: 1 };
                state.outbox.push((link, reply.encode().with_tid(m.header.tid)));
            }
            kind::MON_COMMAND => {
                let ask: MMonCommand = m.decode().unwrap();
                assert_eq!(ask.fsid, fsid());
                self.commands_seen.push(ask.cmd[0].clone());
                if self.answers_commands {
                    let (outs, data) = (format!("did {}", ask.cmd[0]), ask.data.clone());
                    let ack = MMonCommandAck { outs, data, ..MMonCommandAck::default() };
                    state.outbox.push((link, ack.encode().with_tid(m.header.tid)));
                }
            }
            kind::POOLOP => {
                let ask: MPoolOp = m.decode().unwrap();
                let id = self.next_snap;
                self.next_snap += 1;
                let epoch = self.now.epoch.next();
                let paxos = PaxosHeader { version: u64::from(epoch.0) };
                let data = (ask.op == 0x21).then(|| denc::encode(&id));
                let code = if ask.pool == 99 { -2 } else { 0 };
                let reply = MPoolOpReply { paxos, fsid: fsid(), code, epoch, data };
                state.outbox.push((link, reply.encode().with_tid(m.header.tid)));
            }
            _ => state.inbox.push_back((link, m.clone())),
        }
    }
}

impl Rig {
    /// One mon, so many OSDs, and pool 2 with 8 PGs, PG n on OSDs n, n+1, n+2 (modulo their
    /// number). Everything is up, the client has begun.
    pub fn new(osds: usize) -> Self {
        let mut rig = Rig::with_mons(1, osds, 1);
        rig.start();
        rig
    }

    pub fn with_mons(mons: usize, osds: usize, seed: u64) -> Self {
        let mut world = World::new(seed);
        let mon_addr = |i: usize| SocketAddr::new(World::ip(NodeId(i)), MON_PORT);
        let mon_addrs: Vec<_> = (0..mons).map(mon_addr).collect();
        let maps = Rc::new(RefCell::new(fresh_maps(&mon_addrs)));
        let mons: Vec<_> = (0..mons).map(|i| add_mon(&mut world, i, mon_addr(i), &maps)).collect();
        let osd_scripts: Vec<SharedScript> = (0..osds).map(|_| Rc::default()).collect();
        let osds: Vec<_> = osd_scripts
            .iter()
            .enumerate()
            .map(|(i, script)| {
                add_osd(&mut world, i as u32, NodeId(mons.len() + i), script.clone())
            })
            .collect();
        let (actions, done) = (Rc::default(), Rc::default());
        let limits = Rc::<Cell<Limits>>::default();
        let user = (Rc::clone(&actions), Rc::clone(&done));
        let client = add_client(&mut world, mon_addrs, user, Rc::clone(&limits));
        let rig = Rig { world, mons, osds, osd_scripts, client, maps, actions, done, limits };
        rig.boot_osds();
        rig.make_pool(POOL, "rbd", PG_NUM);
        rig
    }

    pub fn start(&mut self) {
        let daemons = self.mons.iter().chain(&self.osds).map(|(n, _)| *n);
        let all: Vec<NodeId> = daemons.chain([self.client]).collect();
        all.into_iter().for_each(|n| self.world.start(n));
        self.run();
    }

    fn boot_osds(&self) {
        let osds: Vec<_> = self.osds.iter().map(|(n, _)| *n).collect();
        self.maps.borrow_mut().change(|inc, _| {
            inc.new_max_osd = Some(osds.len() as i32);
            for (i, node) in osds.iter().enumerate() {
                let id = OsdId(i as i32);
                inc.mark_up(id, addrs(*node, 1));
                inc.new_weight.insert(id, WEIGHT_IN);
            }
        });
    }

    pub fn make_pool(&self, id: PoolId, name: &str, pg_num: u32) {
        let osds = self.osds.len() as i32;
        self.maps.borrow_mut().change(|inc, _| {
            inc.new_pool_max = Some(id.0);
            inc.new_pools.insert(id, PgPool::new(PoolType::REPLICATED, 3, 2, 0, pg_num));
            inc.new_pool_names.insert(id, name.to_owned());
            for seed in 0..pg_num {
                let three = (0..3.min(osds)).map(|i| OsdId((seed as i32 + i) % osds)).collect();
                inc.new_pg_upmap.insert(PgId::new(id, seed), three);
            }
        });
    }

    // ---- the mon's side ----

    /// Makes the next map. The mons tell who subscribed.
    pub fn change(&mut self, edit: impl FnOnce(&mut Incremental, &OsdMap)) {
        self.maps.borrow_mut().change(edit);
        self.publish();
    }

    pub fn publish(&mut self) {
        self.publish_quietly();
        self.run();
    }

    /// Makes and publishes the next map without letting time pass.
    pub fn change_quietly(&mut self, edit: impl FnOnce(&mut Incremental, &OsdMap)) {
        self.maps.borrow_mut().change(edit);
        self.publish_quietly();
    }

    fn publish_quietly(&mut self) {
        let due = self.maps.borrow_mut().due();
        for (i, (node, state)) in self.mons.clone().into_iter().enumerate() {
            let mut state_mut = state.borrow_mut();
            let links = state_mut.links.clone();
            let own = due.iter().filter(|((mon, link), _)| *mon == i && links.contains(link));
            state_mut.outbox.extend(own.map(|((_, link), m)| (*link, m.clone())));
            drop(state_mut);
            self.nudge(node);
        }
    }

    /// The acting set of a PG from now on.
    pub fn remap(&mut self, seed: u32, osds: &[i32]) {
        let list = osds.iter().map(|o| OsdId(*o)).collect();
        self.change(|inc, _| {
            inc.new_pg_upmap.insert(PgId::new(POOL, seed), list);
        });
    }

    pub fn mark_down(&mut self, osd: i32) {
        self.change(|inc, _| {
            inc.new_state.insert(OsdId(osd), OsdState::UP);
        });
    }

    // ---- time ----

    pub fn nudge(&mut self, node: NodeId) {
        self.world.with_core(node, |_, _, _| ());
    }

    /// Long enough for everything that is under way on the network.
    pub fn run(&mut self) {
        self.world.run_for(Duration::from_millis(200));
    }

    pub fn run_secs(&mut self, secs: u64) {
        self.world.run_for(Duration::from_secs(secs));
    }

    // ---- the client's side ----

    /// Does something with the client, and lets the network carry it.
    pub fn act<R: 'static>(&mut self, f: impl FnOnce(Now, &mut Client) -> R + 'static) -> R {
        let result = self.do_now(f);
        self.run();
        result
    }

    /// Starts the client alone.
    pub fn start_client(&mut self) {
        self.world.start(self.client);
        self.world.run_for(Duration::ZERO);
    }

    pub fn do_now<R: 'static>(&mut self, f: impl FnOnce(Now, &mut Client) -> R + 'static) -> R {
        let slot = Rc::new(RefCell::new(None));
        let into = slot.clone();
        self.actions.borrow_mut().push_back(Box::new(move |now, client| {
            *into.borrow_mut() = Some(f(now, client));
        }));
        self.nudge(self.client);
        slot.borrow_mut().take().expect("the client runs")
    }

    pub fn submit(&mut self, op: client::ObjectOp) -> RequestId {
        self.act(move |now, c| c.submit(now, op).unwrap())
    }

    /// What has ended since the last time.
    pub fn done(&mut self) -> Vec<Completion> {
        self.done.take()
    }

    /// How one request ended; the others' ends stay.
    pub fn outcome(&mut self, id: RequestId) -> Outcome {
        let mut done = self.done.borrow_mut();
        let at = done.iter().position(|c| c.id == id);
        done.remove(at.unwrap_or_else(|| panic!("request {id:?} has not ended"))).outcome
    }

    pub fn is_pending(&self, id: RequestId) -> bool {
        !self.done.borrow().iter().any(|c| c.id == id)
    }

    // ---- an OSD's side ----

    /// The next request that an OSD received.
    pub fn request(&mut self, osd: usize) -> Asked {
        self.try_request(osd).unwrap_or_else(|| panic!("osd.{osd} received nothing"))
    }

    pub fn try_request(&mut self, osd: usize) -> Option<Asked> {
        let mut state = self.osds[osd].1.borrow_mut();
        let at = state.inbox.iter().position(|(_, m)| m.header.kind == kind::OSD_OP)?;
        let (link, m) = state.inbox.remove(at)?;
        Some(Asked { osd, link, tid: m.header.tid, op: m.decode().unwrap() })
    }

    /// The next message of another kind, and the link it came by.
    pub fn other_message(&mut self, osd: usize) -> Option<(LinkId, Message)> {
        let mut state = self.osds[osd].1.borrow_mut();
        let at = state.inbox.iter().position(|(_, m)| m.header.kind != kind::OSD_OP)?;
        state.inbox.remove(at)
    }

    pub fn osd_says(&mut self, osd: usize, link: LinkId, message: OutMessage) {
        self.osds[osd].1.borrow_mut().outbox.push((link, message));
        self.nudge(self.osds[osd].0);
        self.run();
    }

    pub fn reply(&mut self, to: &Asked, change: impl FnOnce(&mut MOsdOpReply)) {
        let mut reply = MOsdOpReply::answer(&to.op, self.maps.borrow().now.epoch);
        reply.user_version = 1;
        change(&mut reply);
        self.osd_says(to.osd, to.link, reply.encode().with_tid(to.tid));
    }

    /// An OSD closes all its connections.
    pub fn hang_up(&mut self, osd: usize) {
        let state = self.osds[osd].1.clone();
        let links = state.borrow().links.clone();
        state.borrow_mut().close.extend(links);
        self.nudge(self.osds[osd].0);
        self.run();
    }

    pub fn set_script(&mut self, osd: usize, script: Script) {
        *self.osd_scripts[osd].borrow_mut() = Some(script);
    }

    /// The PG and primary of an object in the newest map.
    pub fn place(&self, name: &str) -> (PgId, usize) {
        let map = &self.maps.borrow().now;
        let raw = map.object_to_pg(POOL, b"", b"", name.as_bytes()).unwrap();
        let pg = map.raw_pg_to_pg(raw).unwrap();
        (pg, map.pg_to_acting(pg).1.unwrap().0 as usize)
    }

    /// The name of an object of this PG.
    pub fn name_in(&self, seed: u32) -> String {
        self.names_in(seed, 1).remove(0)
    }

    /// The name of an object of PG 0, whoever has it.
    pub fn name_of_pg0(&self) -> String {
        let map = &self.maps.borrow().now;
        let is_in = |name: &String| {
            let raw = map.object_to_pg(POOL, b"", b"", name.as_bytes()).unwrap();
            map.raw_pg_to_pg(raw).unwrap().seed == 0
        };
        (0..).map(|i| format!("o{i}")).find(is_in).unwrap()
    }

    /// The client is given this time limit when it boots.
    pub fn mon_timeout(&mut self, limit: Duration) {
        self.limits.set(Limits { mon: Some(limit), ..self.limits.get() });
    }

    /// One mon and three OSDs, and a client whose requests on objects have this time limit.
    pub fn with_op_timeout(limit: Duration) -> Self {
        let mut rig = Rig::with_mons(1, 3, 1);
        rig.limits.set(Limits { op: Some(limit), ..Limits::default() });
        rig.start();
        rig
    }

    pub fn names_in(&self, seed: u32, n: usize) -> Vec<String> {
        let names = (0..).map(|i| format!("o{i}"));
        names.filter(|name| self.place(name).0.seed == seed).take(n).collect()
    }
}

/// A request as an OSD received it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub osd: usize,
    pub link: LinkId,
    pub tid: u64,
    pub op: MOsdOp,
}

impl Asked {
    pub fn name(&self) -> String {
        self.op.object.name.to_string()
    }
}

pub fn addrs(node: NodeId, nonce: u32) -> OsdAddrs {
    let client = AddrVec::msgr2(osd_addr(node), nonce);
    OsdAddrs { cluster: client.clone(), hb_back: client.clone(), hb_front: client.clone(), client }
}

fn add_mon(
    world: &mut World,
    id: usize,
    addr: SocketAddr,
    maps: &Rc<RefCell<Maps>>,
) -> (NodeId, Shared) {
    let state = Shared::default();
    let (shared, maps) = (state.clone(), Rc::clone(maps));
    let boot: Boot = Box::new(move |_, seed| {
        let maps = Rc::clone(&maps);
        let script: Script = Box::new(move |state, link, m| {
            maps.borrow_mut().answer(id, state, link, &m);
        });
        let script: SharedScript = Rc::new(RefCell::new(Some(script)));
        let (kind, at) = (EntityType::MON, (addr, 0));
        Box::new(PeerCore::new(kind, id as u32, at, shared.clone(), script, seed))
    });
    (world.add_node(&[], false, boot), state)
}

fn add_osd(world: &mut World, id: u32, node: NodeId, script: SharedScript) -> (NodeId, Shared) {
    let state = Shared::default();
    let shared = state.clone();
    let mut nonce = 0;
    let boot: Boot = Box::new(move |_, seed| {
        nonce += 1;
        let at = (osd_addr(node), nonce);
        Box::new(PeerCore::new(EntityType::OSD, id, at, shared.clone(), script.clone(), seed))
    });
    assert_eq!(world.add_node(&[], false, boot), node);
    (node, state)
}

fn add_client(
    world: &mut World,
    mons: Vec<SocketAddr>,
    (actions, done): (Actions, Ends),
    limits: Rc<Cell<Limits>>,
) -> NodeId {
    let boot: Boot = Box::new(move |_, seed| {
        let mons = mons.iter().map(|a| AddrVec::msgr2(*a, 0)).collect();
        let config = ClientConfig {
            max_ops: 64,
            max_bytes: 1 << 20,
            op_timeout: limits.get().op,
            mon_timeout: limits.get().mon,
            ..ClientConfig::new(mons)
        };
        let (actions, done) = (Rc::clone(&actions), Rc::clone(&done));
        Box::new(ClientCore::new(Client::new(config, seed), move |now, client: &mut Client, _| {
            let todo: Vec<Action> = actions.borrow_mut().drain(..).collect();
            todo.into_iter().for_each(|action| action(now, client));
            done.borrow_mut().extend(std::iter::from_fn(|| client.poll()));
            None
        }))
    });
    world.add_node(&[], false, boot)
}

/// A snapshot context: the newest id, then the ids.
pub fn snapc(seq: u64, snaps: &[u64]) -> wire::msg::SnapContext {
    let snaps = snaps.iter().map(|s| SnapId(*s)).collect();
    wire::msg::SnapContext { seq: SnapId(seq), snaps }
}

//! A whole cluster in one process: a mon, OSDs on simulated disks, clients.

use crate::client::TestClient;
use crate::mon::TestMon;
use bytes::Bytes;
use io::Core;
use osd::{EXIT_REPAIR, EXIT_RESTART};
use sim::{NodeId, Shared, SimOsd, World};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use types::{AddrVec, Epoch, OsdId, PgId, PoolId, Uuid};
use wire::msg::{MOsdOpReply, OsdOp, SnapContext, flags};

pub const FSID: Uuid = Uuid([7; 16]);
const DISK_BYTES: u64 = 64 << 20;

/// What the OSDs' configuration files say.
pub type Options = BTreeMap<String, String>;

pub struct Cluster {
    pub world: World,
    pub mon_node: NodeId,
    pub mon: Rc<RefCell<TestMon>>,
    pub osds: Vec<NodeId>,
    pub client_node: NodeId,
    pub client: Rc<RefCell<TestClient>>,
    /// OSDs that the scenario keeps off.
    pub off: Vec<bool>,
}

impl Cluster {
    /// A running cluster of `osds` OSDs, each on a host of its own.
    pub fn new(seed: u64, osds: i32, options: &Options) -> Self {
        Cluster::with_disks(seed, &vec![DISK_BYTES; osds as usize], options)
    }

    /// One with disks of these sizes.
    pub fn with_disks(seed: u64, disks: &[u64], options: &Options) -> Self {
        if std::env::var_os("OSD_TRACE").is_some() {
            let level = tracing_subscriber::filter::LevelFilter::TRACE;
            let logs = tracing_subscriber::fmt().with_max_level(level).without_time();
            let _ = logs.with_test_writer().try_init();
        }
        let mut world = World::new(seed);
        let mon_addr = SocketAddr::new(World::ip(NodeId(0)), 3300);
        let count = disks.len() as i32;
        let mon = Rc::new(RefCell::new(TestMon::new(FSID, mon_addr, count, count)));
        let mons = AddrVec::msgr2(mon_addr, 0);
        let shared = mon.clone();
        let boot = Box::new(move |_: &[_], _| Box::new(Shared(shared.clone())) as Box<dyn Core>);
        let mon_node = world.add_node(&[], false, boot);
        let osd = |(id, bytes): (i32, &u64)| {
            add_osd(&mut world, OsdId(id), mons.clone(), *bytes, options)
        };
        let osds: Vec<_> = (0..).zip(disks).map(osd).collect();
        let (client_node, client) = add_client(&mut world, mons, 77, seed);
        world.start(mon_node);
        osds.iter().for_each(|n| world.start(*n));
        world.start(client_node);
        world.run(Duration::from_secs(1), |w| w.is_up(mon_node) && w.is_up(client_node));
        let off = vec![false; osds.len()];
        Cluster { world, mon_node, mon, osds, client_node, client, off }
    }

    /// Does something as the mon.
    pub fn on_mon<R>(&mut self, f: impl FnOnce(&mut TestMon) -> R) -> R {
        let mon = self.mon.clone();
        let did = self.world.with_core(self.mon_node, |_, _, _| f(&mut mon.borrow_mut()));
        did.expect("the mon runs")
    }

    /// Goes on with another client. Gives the one so far.
    pub fn change_client(&mut self) -> (NodeId, Rc<RefCell<TestClient>>) {
        let mons = AddrVec::msgr2(SocketAddr::new(World::ip(self.mon_node), 3300), 0);
        let (node, client) = add_client(&mut self.world, mons, 78, 78);
        self.world.start(node);
        let has_map =
            self.world.run(Duration::from_secs(1), |_| client.borrow().map.epoch > Epoch::ZERO);
        assert!(has_map, "it hears of the cluster");
        let before = std::mem::replace(&mut self.client_node, node);
        (before, std::mem::replace(&mut self.client, client))
    }

    /// Does something as the client.
    pub fn on_client<R>(&mut self, f: impl FnOnce(&mut TestClient) -> R) -> R {
        let client = self.client.clone();
        let did = self.world.with_core(self.client_node, |_, _, _| f(&mut client.borrow_mut()));
        did.expect("the client runs")
    }

    /// The client takes nothing more from an OSD, or again.
    pub fn pause_client(&mut self, osd: OsdId, paused: bool) {
        let client = self.client.clone();
        let did = self.world.with_core(self.client_node, |_, _, fx| {
            client.borrow_mut().pause(osd, paused, fx);
        });
        did.expect("the client runs");
    }

    /// Runs until `until`, starting OSDs again that asked for it. Panics after `limit`.
    #[track_caller]
    pub fn run_until(&mut self, limit: Duration, mut until: impl FnMut(&mut Cluster) -> bool) {
        let end = self.world.now() + limit;
        loop {
            if until(self) {
                return;
            }
            let now = self.world.now();
            if now >= end {
                let states = self.mon.borrow().states();
                panic!("not reached after {limit:?}; the PGs:\n{states}");
            }
            self.pass(Duration::from_millis(1));
        }
    }

    /// Lets time pass, and starts OSDs again that asked for it.
    pub fn pass(&mut self, time: Duration) {
        let exited: Vec<_> =
            self.osds.iter().copied().filter(|n| self.world.exit_of(*n).is_some()).collect();
        for node in exited {
            self.restart_exited(node);
        }
        self.world.run_for(time);
    }

    fn restart_exited(&mut self, node: NodeId) {
        let exit = self.world.exit_of(node).expect("it exited").clone();
        let index = self.osds.iter().position(|n| *n == node).expect("an OSD");
        assert!([0, EXIT_RESTART, EXIT_REPAIR].contains(&exit.code), "osd.{index} ended: {exit:?}");
        if !self.off[index] {
            self.world.start(node);
        }
    }

    /// Runs one request to its answer.
    #[track_caller]
    pub fn call(&mut self, object: types::HObject, ops: Vec<OsdOp>, write: bool) -> MOsdOpReply {
        let tid = self.on_client(|c| c.request(object, ops, write));
        self.wait_for(tid)
    }

    /// Runs one write, by a client that knows of snapshots, to its answer.
    #[track_caller]
    pub fn write_under(
        &mut self,
        object: types::HObject,
        ops: Vec<OsdOp>,
        snapc: SnapContext,
        more_flags: u32,
    ) -> MOsdOpReply {
        let kind = flags::WRITE | more_flags;
        let tid = self.on_client(|c| c.request_with(object, ops, kind, snapc));
        self.wait_for(tid)
    }

    /// Lists objects of a PG.
    #[track_caller]
    pub fn list(&mut self, pgid: PgId, op: OsdOp) -> MOsdOpReply {
        let tid = self.on_client(|c| c.request_of_pg(pgid, op));
        self.wait_for(tid)
    }

    #[track_caller]
    pub fn wait_for(&mut self, tid: u64) -> MOsdOpReply {
        self.run_until(Duration::from_secs(60), |c| c.client.borrow().done.contains_key(&tid));
        self.client.borrow_mut().done.remove(&tid).expect("it is there")
    }

    #[track_caller]
    pub fn wait_clean(&mut self) {
        self.run_until(Duration::from_secs(120), |c| c.mon.borrow().all_clean());
    }

    /// Nothing is left of a pool's removed snapshots.
    #[track_caller]
    pub fn wait_trimmed(&mut self, pool: PoolId) {
        self.run_until(Duration::from_secs(60), |c| {
            c.mon.borrow().map.removed_snaps_queue.get(&pool).is_none_or(|q| q.is_empty())
        });
    }

    pub fn crash(&mut self, osd: usize) {
        let node = self.osds[osd];
        self.world.crash(node);
    }

    /// An OSD that is off gets an empty disk.
    pub fn replace_disk(&mut self, osd: usize) {
        let mons = vec![AddrVec::msgr2(SocketAddr::new(World::ip(self.mon_node), 3300), 0)];
        let options = Options::new();
        let (id, disk_bytes) = (OsdId(osd as i32), DISK_BYTES);
        let sim_osd = SimOsd { id, cluster: FSID, mons, disk_bytes, options };
        self.world.replace_osd_disk(self.osds[osd], sim_osd, 1);
    }

    pub fn start(&mut self, osd: usize) {
        self.off[osd] = false;
        let node = self.osds[osd];
        if !self.world.is_up(node) {
            self.world.start(node);
        }
    }
}

fn add_client(
    world: &mut World,
    mons: AddrVec,
    nonce: u32,
    seed: u64,
) -> (NodeId, Rc<RefCell<TestClient>>) {
    let client = Rc::new(RefCell::new(TestClient::new(mons, nonce, seed)));
    let shared = client.clone();
    let boot = Box::new(move |_: &[_], _| Box::new(Shared(shared.clone())) as Box<dyn Core>);
    (world.add_node(&[], false, boot), client)
}

fn add_osd(
    world: &mut World,
    id: OsdId,
    mons: AddrVec,
    disk_bytes: u64,
    options: &Options,
) -> NodeId {
    let (mons, options) = (vec![mons], options.clone());
    world.add_osd(SimOsd { id, cluster: FSID, mons, disk_bytes, options })
}

/// The output of the operation `i` of an answer.
pub fn output(reply: &MOsdOpReply, i: usize) -> Bytes {
    let parts = &reply.ops[i].outdata;
    parts.iter().flat_map(|b| b.iter().copied()).collect::<Vec<_>>().into()
}

//! A mon, OSDs and a client in a simulated world.

use crate::client::TestClient;
use io::kv::KvOp;
use io::{Core, Effects, Event, Now};
use mon::{Mon, MonConfig, NewCluster};
use osd::{EXIT_REPAIR, EXIT_RESTART};
use serde_json::Value;
use sim::{NodeId, Shared, SimOsd, World};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use types::{AddrVec, EntityType, Mono, OsdId, Uuid};
use wire::msg::{MMonCommandAck, MPoolOp, Payload, pool_op};

pub const FSID: Uuid = Uuid([7; 16]);
const DISK_BYTES: u64 = 64 << 20;
/// A command is answered within this.
const PATIENCE: Duration = Duration::from_secs(30);

/// When the power of the mon fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The commit of this number never reaches the store.
    Before(u32),
    /// It is in the store, and nobody hears of it.
    After(u32),
}

/// A mon whose power fails around a commit.
struct Fragile {
    mon: Mon,
    cut: Rc<RefCell<Option<Cut>>>,
    commits: Rc<RefCell<u32>>,
    /// A commit hangs; the power fails at this time.
    dies_at: Option<Mono>,
}

/// How long a commit hangs before the power fails: enough for a message that should not have left
/// to arrive, and for what goes by the clock to be due.
const HANG: Duration = Duration::from_millis(1500);

impl Fragile {
    fn look(&mut self, now: Now, fx: &mut Effects) {
        let is_commit = |op: &KvOp| matches!(op, KvOp::Commit { .. });
        if !fx.kv.iter().any(|(_, op)| is_commit(op)) {
            return;
        }
        *self.commits.borrow_mut() += 1;
        let number = *self.commits.borrow();
        let cut = *self.cut.borrow();
        match cut {
            Some(Cut::Before(n)) if n == number => {
                fx.kv.retain(|(_, op)| !is_commit(op));
                self.dies_at = Some(now.mono.after(HANG));
            }
            Some(Cut::After(n)) if n == number => fx.exit(CUT, "power cut"),
            _ => return,
        }
        self.cut.borrow_mut().take();
    }
}

/// The exit code of a mon whose power failed.
pub const CUT: i32 = 99;

impl Core for Fragile {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        let before = fx.kv.len();
        self.mon.handle(now, event, fx);
        if fx.kv.len() > before {
            self.look(now, fx);
        }
    }
    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        if self.dies_at.is_some_and(|at| at <= now.mono) {
            fx.exit(CUT, "power cut");
            return;
        }
        let before = fx.kv.len();
        self.mon.end_turn(now, fx);
        if fx.kv.len() > before {
            self.look(now, fx);
        }
    }
    fn next_deadline(&self) -> Option<Mono> {
        self.mon.next_deadline().into_iter().chain(self.dies_at).min()
    }
}

pub struct Cluster {
    pub world: World,
    pub mon: NodeId,
    pub osds: Vec<NodeId>,
    pub client_node: NodeId,
    pub client: Rc<RefCell<TestClient>>,
    /// When the mon's power fails; taken when it did.
    pub cut: Rc<RefCell<Option<Cut>>>,
    /// OSDs that the scenario keeps off.
    pub off: Vec<bool>,
}

pub fn mon_addr() -> SocketAddr {
    SocketAddr::new(World::ip(NodeId(0)), 3300)
}

impl Cluster {
    /// A mon that serves, and OSDs that boot.
    pub fn new(seed: u64, osds: usize) -> Self {
        Self::with(seed, osds, None, &[])
    }

    /// The same, with a mon whose power may fail, and that has options.
    pub fn with(seed: u64, osds: usize, cut: Option<Cut>, options: &[(&str, &str)]) -> Self {
        if std::env::var_os("MON_TRACE").is_some() {
            let level = tracing_subscriber::filter::LevelFilter::DEBUG;
            let logs = tracing_subscriber::fmt().with_max_level(level).without_time();
            let _ = logs.with_test_writer().try_init();
        }
        let mut world = World::new(seed);
        let cut = Rc::new(RefCell::new(cut));
        let commits = Rc::new(RefCell::new(0));
        let mon = add_mon(&mut world, cut.clone(), commits, options);
        let osds: Vec<_> = (0..osds).map(|id| add_osd(&mut world, id)).collect();
        let addrs = AddrVec::msgr2(mon_addr(), 0);
        let me = wire::Identity::client("admin", 77);
        let client = Rc::new(RefCell::new(TestClient::new(addrs, FSID, me, seed)));
        let client_node = add_shared(&mut world, client.clone());
        let off = vec![false; osds.len()];
        world.start(mon);
        osds.iter().for_each(|n| world.start(*n));
        world.start(client_node);
        world.run_for(Duration::from_millis(1));
        Cluster { world, mon, osds, client_node, client, cut, off }
    }

    /// Adds a client of its own.
    pub fn add_client(&mut self, me: wire::Identity) -> (NodeId, Rc<RefCell<TestClient>>) {
        self.add_client_of(AddrVec::msgr2(mon_addr(), 0), EntityType::MON, me)
    }

    /// The same, of somebody else than the mon.
    pub fn add_client_of(
        &mut self,
        addrs: AddrVec,
        kind: EntityType,
        me: wire::Identity,
    ) -> (NodeId, Rc<RefCell<TestClient>>) {
        let mut client = TestClient::new(addrs, FSID, me, 5);
        client.kind = kind;
        let client = Rc::new(RefCell::new(client));
        let node = add_shared(&mut self.world, client.clone());
        self.world.start(node);
        self.world.run_for(Duration::from_millis(1));
        (node, client)
    }

    /// Does something as the client.
    pub fn on_client<R>(&mut self, f: impl FnOnce(&mut TestClient) -> R) -> R {
        let client = self.client.clone();
        let did = self.world.with_core(self.client_node, |_, _, _| f(&mut client.borrow_mut()));
        did.expect("the client runs")
    }

    /// Lets time pass, and starts again what ended in order to be started again.
    pub fn pass(&mut self, time: Duration) {
        for (index, node) in self.osds.clone().into_iter().enumerate() {
            let Some(exit) = self.world.exit_of(node) else { continue };
            assert!(
                [0, EXIT_RESTART, EXIT_REPAIR].contains(&exit.code),
                "osd.{index} ended: {exit:?}"
            );
            if !self.off[index] {
                self.world.start(node);
            }
        }
        if let Some(exit) = self.world.exit_of(self.mon) {
            assert!([0, CUT].contains(&exit.code), "the mon ended: {exit:?}");
            self.world.start(self.mon);
        }
        self.world.run_for(time);
    }

    /// Runs until `until`.
    #[track_caller]
    pub fn run_until(&mut self, limit: Duration, mut until: impl FnMut(&mut Cluster) -> bool) {
        let end = self.world.now() + limit;
        while !until(self) {
            assert!(self.world.now() < end, "not reached after {limit:?}");
            self.pass(Duration::from_millis(1));
        }
    }

    /// Asks until there is an answer: also after the mon was started again.
    #[track_caller]
    pub fn ask(&mut self, json: &str) -> MMonCommandAck {
        let end = self.world.now() + PATIENCE;
        loop {
            assert!(self.world.now() < end, "no answer to {json}");
            let tid = self.on_client(|c| c.command(json));
            let sessions = self.client.borrow().sessions;
            loop {
                if let Some(ack) = self.client.borrow_mut().acks.remove(&tid) {
                    return ack;
                }
                let lost = sessions > 0 && self.client.borrow().sessions > sessions;
                if lost || self.world.now() >= end {
                    break;
                }
                self.pass(Duration::from_millis(1));
            }
        }
    }

    /// The JSON that a command answers.
    #[track_caller]
    pub fn json(&mut self, prefix: &str) -> Value {
        let ack = self.ask(&format!(r#"{{"prefix":"{prefix}","format":"json"}}"#));
        assert_eq!(ack.result, 0, "{prefix}: {}", ack.outs);
        serde_json::from_slice(&ack.data).expect("JSON")
    }

    /// Makes a pool of 32 PGs, as librados does.
    pub fn create_pool(&mut self, name: &str) {
        let name = name.to_owned();
        let op =
            MPoolOp { fsid: FSID, op: pool_op::CREATE, crush_rule: -1, name, ..MPoolOp::default() };
        self.on_client(|c| c.say(op.encode()));
    }

    /// PGs that are active and clean, and all PGs.
    pub fn clean(&mut self) -> (u64, u64) {
        let stat = self.json("pg stat");
        let stat = &stat["pg_summary"];
        let states = stat["num_pg_by_state"].as_array().expect("a list");
        let clean = states.iter().filter(|s| s["name"] == "active+clean");
        let clean = clean.map(|s| s["num"].as_u64().unwrap_or(0)).sum();
        (clean, stat["num_pgs"].as_u64().unwrap_or(0))
    }

    /// Waits until there are so many PGs and all are active and clean.
    #[track_caller]
    pub fn wait_clean(&mut self, pgs: u64) {
        let limit = Duration::from_secs(60);
        self.run_until(limit, |c| c.clean() == (pgs, pgs));
    }

    pub fn crash_osd(&mut self, osd: usize) {
        self.off[osd] = true;
        let node = self.osds[osd];
        if self.world.is_up(node) {
            self.world.crash(node);
        }
    }

    pub fn start_osd(&mut self, osd: usize) {
        self.off[osd] = false;
        let node = self.osds[osd];
        if !self.world.is_up(node) {
            self.world.start(node);
        }
    }

    /// The power of everything fails, and comes back.
    pub fn crash_all(&mut self) {
        self.world.crash(self.mon);
        (0..self.osds.len()).for_each(|osd| self.crash_osd(osd));
        self.world.start(self.mon);
        (0..self.osds.len()).for_each(|osd| self.start_osd(osd));
    }
}

fn add_shared(world: &mut World, client: Rc<RefCell<TestClient>>) -> NodeId {
    let boot = Box::new(move |_: &[_], _| Box::new(Shared(client.clone())) as Box<dyn Core>);
    world.add_node(&[], false, boot)
}

fn add_mon(
    world: &mut World,
    cut: Rc<RefCell<Option<Cut>>>,
    commits: Rc<RefCell<u32>>,
    options: &[(&str, &str)],
) -> NodeId {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let options: BTreeMap<String, String> = options.iter().map(own).collect();
    let boot = move |_: &[io::disk::DeviceInfo], seed: u64| {
        let new = NewCluster { failure_domain: "osd".to_owned(), ..NewCluster::new(FSID) };
        let mut cfg = MonConfig::new("a", mon_addr()).with_new_cluster(new);
        cfg.options = options.clone();
        let (cut, commits) = (cut.clone(), commits.clone());
        Box::new(Fragile { mon: Mon::new(cfg, seed), cut, commits, dies_at: None }) as Box<dyn Core>
    };
    world.add_node(&[], true, Box::new(boot))
}

fn add_osd(world: &mut World, id: usize) -> NodeId {
    world.add_osd(SimOsd {
        id: OsdId(i32::try_from(id).expect("few")),
        cluster: FSID,
        mons: vec![AddrVec::msgr2(mon_addr(), 0)],
        disk_bytes: DISK_BYTES,
        options: BTreeMap::new(),
    })
}

/// A daemon's identity, for clients that say what only daemons may say.
pub fn as_osd(id: u32) -> wire::Identity {
    wire::Identity::daemon(EntityType::OSD, id, 1234)
}

//! A cluster: the real mon, real OSDs and real clients, each on a simulated machine.

use client::{Client, ClientConfig, CommandReply, Completion, Outcome, RequestId, Waiting};
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
use types::testing::{Probe, hit};
use types::{AddrVec, Mono, OsdId, Uuid};

const FSID: Uuid = Uuid([7; 16]);

/// The simulated time in which a turn of the scenario passes at least.
pub const TICK: Duration = Duration::from_millis(1);

/// A client, and what came of its requests.
pub struct User {
    client: Client,
    done: Vec<Completion>,
}

impl User {
    fn new(name: &str, nonce: u32, seed: u64) -> Self {
        let mons = vec![AddrVec::msgr2(mon_addr(), 0)];
        let config = ClientConfig { nonce, hostname: name.to_owned(), ..ClientConfig::new(mons) };
        User { client: Client::new(config, seed), done: Vec::new() }
    }
}

impl Core for User {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => self.client.start(now),
            Event::Net(event) => drop(self.client.handle(now, event, fx)),
            Event::Timer => self.client.tick(now, fx),
            Event::Stop | Event::Disk(_) | Event::Kv(_) | Event::Memory(_) => {}
        }
    }
    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        self.client.end_turn(now, fx);
        self.done.extend(std::iter::from_fn(|| self.client.poll()));
    }
    fn next_deadline(&self) -> Option<Mono> {
        self.client.next_deadline()
    }
}

/// A machine with a client. Each boot is another client.
struct UserNode {
    node: NodeId,
    user: Rc<RefCell<User>>,
}

/// What an OSD's machine should be doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It runs, and is started again when it has exited in order to be.
    On,
    /// The scenario keeps it off.
    Off,
}

/// A cluster.
pub struct Rig {
    /// The machines.
    pub world: World,
    /// The mon's.
    pub mon: NodeId,
    /// The OSDs', by number.
    pub osds: Vec<NodeId>,
    /// What each OSD should do.
    pub wanted: Vec<Wanted>,
    /// What the OSDs are like, and how many new disks each has been given.
    sim_osds: Vec<(SimOsd, u8)>,
    /// This one is off until it gets a new disk.
    diskless: Option<usize>,
    users: Vec<UserNode>,
}

fn mon_addr() -> SocketAddr {
    SocketAddr::new(World::ip(NodeId(0)), 3300)
}

impl Rig {
    /// A cluster of so many OSDs and clients; the last client is the operator's.
    pub fn new(
        seed: u64,
        osds: usize,
        users: usize,
        disk_bytes: u64,
        osd_options: &BTreeMap<String, String>,
    ) -> Self {
        let mut world = World::new(seed);
        let mon = add_mon(&mut world);
        let sim_osd = |id| SimOsd {
            id: OsdId(i32::try_from(id).expect("few OSDs")),
            cluster: FSID,
            mons: vec![AddrVec::msgr2(mon_addr(), 0)],
            disk_bytes,
            options: osd_options.clone(),
        };
        let sim_osds: Vec<_> = (0..osds).map(|id| (sim_osd(id), 0)).collect();
        let osds: Vec<_> = sim_osds.iter().map(|(osd, _)| world.add_osd(osd.clone())).collect();
        let users: Vec<_> = (0..=users).map(|i| add_user(&mut world, i)).collect();
        let wanted = vec![Wanted::On; osds.len()];
        let mut rig = Rig { world, mon, osds, wanted, sim_osds, diskless: None, users };
        let all = rig.osds.iter().chain(rig.users.iter().map(|u| &u.node));
        let all: Vec<_> = std::iter::once(&rig.mon).chain(all).copied().collect();
        all.into_iter().for_each(|n| rig.world.start(n));
        rig.world.run_for(TICK);
        rig
    }

    /// Does something as a client.
    pub fn as_user<R>(&mut self, user: usize, f: impl FnOnce(Now, &mut Client) -> R) -> R {
        let UserNode { node, user } = &self.users[user];
        let user = user.clone();
        let did = self.world.with_core(*node, |_, now, _| f(now, &mut user.borrow_mut().client));
        did.expect("clients run")
    }

    /// Requests of a client that have ended.
    pub fn done(&mut self, user: usize) -> Vec<Completion> {
        std::mem::take(&mut self.users[user].user.borrow_mut().done)
    }

    /// The OSD that most requests of clients wait for.
    pub fn busiest(&mut self) -> Option<usize> {
        let mut requests = BTreeMap::<OsdId, usize>::new();
        for user in 0..self.operator() {
            for (_, what) in self.as_user(user, |_, c| c.waiting()) {
                if let Waiting::Reply(osd) = what {
                    *requests.entry(osd).or_default() += 1;
                }
            }
        }
        let (osd, _) = requests.into_iter().max_by_key(|(_, n)| *n)?;
        usize::try_from(osd.0).ok()
    }

    /// The machine of a client.
    pub fn user_node(&self, user: usize) -> NodeId {
        self.users[user].node
    }

    /// The operator's number among the clients.
    pub fn operator(&self) -> usize {
        self.users.len() - 1
    }

    /// A client's process dies, and another one begins: what it had asked for it will never hear.
    pub fn replace_user(&mut self, user: usize) {
        let node = self.users[user].node;
        self.world.crash(node);
        self.world.start(node);
        self.world.run_for(Duration::ZERO);
    }

    /// Asks for a command, without waiting.
    pub fn command(&mut self, json: String) -> RequestId {
        self.as_user(self.operator(), |now, c| c.command(now, json, ""))
    }

    /// Lets time pass, and starts what has exited in order to be started again.
    pub fn pass(&mut self, time: Duration) {
        for i in 0..self.osds.len() {
            let node = self.osds[i];
            let Some(exit) = self.world.exit_of(node) else { continue };
            let known = [0, EXIT_RESTART, EXIT_REPAIR].contains(&exit.code);
            assert!(known, "osd.{i} ended: {exit:?}");
            if exit.code == EXIT_REPAIR {
                hit(Probe::RestartForRepair);
            }
            if self.wanted[i] == Wanted::On {
                self.world.start(node);
            }
        }
        if let Some(exit) = self.world.exit_of(self.mon) {
            panic!("the mon ended: {exit:?}");
        }
        self.world.run_for(time);
    }

    /// Lets time pass until `until` answers true. False: it did not within `limit`.
    pub fn wait(
        &mut self,
        limit: Duration,
        tick: Duration,
        mut until: impl FnMut(&mut Rig) -> bool,
    ) -> bool {
        let end = self.world.now() + limit;
        while !until(self) {
            if self.world.now() >= end {
                return false;
            }
            self.pass(tick);
        }
        true
    }

    /// The answer of a command of an OSD. For times without faults.
    pub fn tell(&mut self, osd: OsdId, json: &str) -> CommandReply {
        let id = self.tell_later(osd, json);
        self.answer_of(id, json)
    }

    /// Asks an OSD for a command, without waiting.
    pub fn tell_later(&mut self, osd: OsdId, json: &str) -> RequestId {
        self.as_user(self.operator(), |now, c| c.tell(now, osd, json, ""))
    }

    /// The answer of a command, as JSON. For times without faults.
    pub fn ask(&mut self, json: &str) -> Value {
        let id = self.command(json.to_owned());
        let reply = self.answer_of(id, json);
        assert_eq!(reply.status, 0, "{json}: {}", reply.outs);
        serde_json::from_slice(&reply.data).unwrap_or(Value::Null)
    }

    fn answer_of(&mut self, id: RequestId, json: &str) -> CommandReply {
        const PATIENCE: Duration = Duration::from_secs(60);
        let mut answer = None;
        let operator = self.operator();
        let answered = self.wait(PATIENCE, TICK, |rig| {
            let is_it = |c: Completion| if c.id == id { Some(c.outcome) } else { None };
            answer = rig.done(operator).into_iter().find_map(is_it);
            answer.is_some()
        });
        assert!(answered, "no answer to {json}");
        match answer {
            Some(Outcome::Command(Ok(reply))) => reply,
            other => panic!("{json}: {other:?}"),
        }
    }

    /// How many OSDs the mon calls up. For times without faults.
    pub fn osds_up(&mut self) -> u64 {
        let status = self.ask(r#"{"prefix":"status","format":"json"}"#);
        status["osdmap"]["num_up_osds"].as_u64().expect("a status counts them")
    }

    /// Cuts the power of an OSD, if it runs.
    pub fn crash(&mut self, osd: usize) -> bool {
        let node = self.osds[osd];
        let up = self.world.is_up(node);
        if up {
            self.world.crash(node);
        }
        self.wanted[osd] = Wanted::Off;
        up
    }

    /// Starts an OSD, unless it runs or has no disk.
    pub fn start(&mut self, osd: usize) {
        if self.diskless == Some(osd) {
            return;
        }
        self.wanted[osd] = Wanted::On;
        let node = self.osds[osd];
        if !self.world.is_up(node) && self.world.exit_of(node).is_none() {
            self.world.start(node);
        }
    }

    /// An OSD dies with its disk. False: it does not run, another one's disk is not replaced yet, or the operator
    /// does not know that its number is taken again.
    pub fn lose_disk(&mut self, osd: usize) -> bool {
        let is_up = self.world.is_up(self.osds[osd]);
        if !is_up || self.diskless.is_some() || self.is_destroyed(osd) {
            return false;
        }
        self.crash(osd);
        self.diskless = Some(osd);
        true
    }

    /// The OSD without a disk.
    pub fn diskless(&self) -> Option<usize> {
        self.diskless
    }

    /// It gets an empty one, and starts.
    pub fn replace_disk(&mut self) {
        let Some(osd) = self.diskless.take() else { return };
        let (sim_osd, disks) = &mut self.sim_osds[osd];
        *disks += 1;
        self.world.replace_osd_disk(self.osds[osd], sim_osd.clone(), *disks);
        self.start(osd);
    }

    /// Whether the operator knows that this OSD is `destroyed`.
    pub fn is_destroyed(&mut self, osd: usize) -> bool {
        let operator = self.operator();
        let map = self.as_user(operator, |_, c| c.map().cloned());
        map.is_some_and(|m| m.state(OsdId(osd as i32)).contains(maps::OsdState::DESTROYED))
    }

    /// OSDs that run.
    pub fn running(&self) -> usize {
        self.osds.iter().filter(|n| self.world.is_up(**n)).count()
    }
}

fn add_mon(world: &mut World) -> NodeId {
    let boot = |_: &[io::disk::DeviceInfo], seed: u64| {
        let new = NewCluster { failure_domain: "osd".to_owned(), ..NewCluster::new(FSID) };
        let cfg = MonConfig::new("a", mon_addr()).with_new_cluster(new);
        Box::new(Mon::new(cfg, seed)) as Box<dyn Core>
    };
    world.add_node(&[], true, Box::new(boot))
}

fn add_user(world: &mut World, number: usize) -> UserNode {
    let name = format!("host{number}");
    let user = Rc::new(RefCell::new(User::new(&name, 1, number as u64)));
    let (shared, mut life) = (user.clone(), 0);
    let boot = move |_: &[io::disk::DeviceInfo], seed: u64| {
        life += 1;
        *shared.borrow_mut() = User::new(&name, life, seed);
        Box::new(Shared(shared.clone())) as Box<dyn Core>
    };
    let node = world.add_node(&[], false, Box::new(boot));
    UserNode { node, user }
}

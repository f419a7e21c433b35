//! A mon, OSDs, and clients with images in a simulated world.

use bytes::Bytes;
use client::image::{
    Change, CreateImage, ImageDone, ImageId, ImageOutcome, ImageRequest, Images, OpenImage,
};
use client::{Client, ClientConfig, ClientError, Completion, ObjectOp, Outcome, RequestId};
use io::{Core, Effects, Event, Now};
use mon::{Mon, MonConfig, NewCluster};
use osd::{EXIT_REPAIR, EXIT_RESTART};
use sim::{NodeId, Shared, SimOsd, World};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use types::{AddrVec, Mono, OsdId, PoolId, Uuid};

const FSID: Uuid = Uuid([7; 16]);
const DISK_BYTES: u64 = 128 << 20;
/// Everything is answered within this, also when a dead client's watch must time out before.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A client with images.
pub struct Host {
    pub client: Client,
    pub images: Images,
    pub done: BTreeMap<ImageRequest, ImageOutcome>,
    /// Of requests past the images.
    pub plain: BTreeMap<RequestId, Outcome>,
    /// Counts its boots.
    pub life: u64,
}

impl Host {
    fn collect(&mut self, now: Now) {
        while let Some(completion) = self.client.poll() {
            if let Some(Completion { id, outcome }) =
                self.images.take(now, &mut self.client, completion)
            {
                self.plain.insert(id, outcome);
            }
        }
        while let Some(ImageDone { id, outcome }) = self.images.poll() {
            let old = self.done.insert(id, outcome);
            assert!(old.is_none(), "{id:?} ended twice");
        }
    }
}

impl Core for Host {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => self.client.start(now),
            Event::Net(event) => drop(self.client.handle(now, event, fx)),
            Event::Timer => {
                self.client.tick(now, fx);
                self.images.tick(now, &mut self.client);
            }
            _ => {}
        }
    }
    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        self.collect(now);
        self.client.end_turn(now, fx);
    }
    fn next_deadline(&self) -> Option<Mono> {
        let both = [self.client.next_deadline(), self.images.next_deadline()];
        both.into_iter().flatten().min()
    }
}

pub struct Cluster {
    pub world: World,
    pub osds: Vec<NodeId>,
    /// OSDs that the scenario keeps off.
    pub off: Vec<bool>,
    pub nodes: Vec<NodeId>,
    pub hosts: Vec<Rc<RefCell<Host>>>,
    pub pool: PoolId,
    pub data_pool: PoolId,
}

fn mon_addr() -> SocketAddr {
    SocketAddr::new(World::ip(NodeId(0)), 3300)
}

fn new_host(seed: u64, life: u64) -> Host {
    let config = ClientConfig::new(vec![AddrVec::msgr2(mon_addr(), 0)]);
    Host {
        client: Client::new(config, seed),
        images: Images::new(seed ^ 1),
        done: BTreeMap::new(),
        plain: BTreeMap::new(),
        life,
    }
}

impl Cluster {
    /// A running cluster with pools for images.
    pub fn new(seed: u64, osds: usize, hosts: usize) -> Self {
        if std::env::var_os("IMAGE_TRACE").is_some() {
            let level = tracing_subscriber::filter::LevelFilter::DEBUG;
            let logs = tracing_subscriber::fmt().with_max_level(level).without_time();
            let _ = logs.with_test_writer().try_init();
        }
        let mut world = World::new(seed);
        let boot = move |_: &[io::disk::DeviceInfo], seed: u64| {
            let new = NewCluster { failure_domain: "osd".to_owned(), ..NewCluster::new(FSID) };
            let cfg = MonConfig::new("a", mon_addr()).with_new_cluster(new);
            Box::new(Mon::new(cfg, seed)) as Box<dyn Core>
        };
        let mon = world.add_node(&[], true, Box::new(boot));
        let osds: Vec<_> = (0..osds).map(|id| add_osd(&mut world, id)).collect();
        let mut c = Cluster {
            world,
            off: vec![false; osds.len()],
            osds,
            nodes: Vec::new(),
            hosts: Vec::new(),
            pool: PoolId(0),
            data_pool: PoolId(0),
        };
        for i in 0..hosts {
            let host = Rc::new(RefCell::new(new_host(i as u64 + 1, 0)));
            let shared = host.clone();
            let boot = move |_: &[io::disk::DeviceInfo], seed: u64| {
                let life = shared.borrow().life + 1;
                *shared.borrow_mut() = new_host(seed, life);
                Box::new(Shared(shared.clone())) as Box<dyn Core>
            };
            c.nodes.push(c.world.add_node(&[], false, Box::new(boot)));
            c.hosts.push(host);
        }
        c.world.start(mon);
        c.osds.clone().into_iter().chain(c.nodes.clone()).for_each(|n| c.world.start(n));
        c.world.run_for(Duration::from_millis(1));
        c.pool = c.create_pool("rbd");
        c.data_pool = c.create_pool("data");
        c
    }

    fn create_pool(&mut self, name: &str) -> PoolId {
        let size = self.osds.len().min(3);
        let json =
            format!(r#"{{"prefix":"osd pool create","pool":"{name}","pg_num":8,"size":{size}}}"#);
        self.command(0, json);
        let name = name.to_owned();
        let id = self.act(0, |now, host| host.client.lookup_pool(now, &name));
        match self.plain(0, id) {
            Outcome::Pool(Ok(pool)) => pool,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn command(&mut self, host: usize, json: String) -> Bytes {
        let id = self.act(host, |now, h| h.client.command(now, json, ""));
        match self.plain(host, id) {
            Outcome::Command(Ok(reply)) if reply.status == 0 => reply.data,
            other => panic!("{other:?}"),
        }
    }

    /// Does something as a host.
    pub fn act<R>(&mut self, host: usize, f: impl FnOnce(Now, &mut Host) -> R) -> R {
        let shared = self.hosts[host].clone();
        let node = self.nodes[host];
        self.world.with_core(node, |_, now, _| f(now, &mut shared.borrow_mut())).expect("it runs")
    }

    /// Lets time pass, and starts OSDs again that asked for it.
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
        self.world.run_for(time);
    }

    /// Runs until `until` gives something.
    #[track_caller]
    pub fn wait<T>(
        &mut self,
        limit: Duration,
        mut until: impl FnMut(&mut Cluster) -> Option<T>,
    ) -> T {
        let end = self.world.now() + limit;
        loop {
            if let Some(met) = until(self) {
                return met;
            }
            let waits = || {
                let waiting = |h: &Rc<RefCell<Host>>| format!("{:?}", h.borrow().client.waiting());
                self.hosts.iter().map(waiting).collect::<Vec<_>>().join("\n")
            };
            assert!(self.world.now() < end, "not reached after {limit:?}; waits:\n{}", waits());
            self.pass(Duration::from_millis(1));
        }
    }

    #[track_caller]
    pub fn plain(&mut self, host: usize, id: RequestId) -> Outcome {
        self.wait(PATIENCE, |c| c.hosts[host].borrow_mut().plain.remove(&id))
    }

    /// The end of a request on images.
    #[track_caller]
    pub fn end(&mut self, host: usize, id: ImageRequest) -> ImageOutcome {
        self.wait(PATIENCE, |c| c.hosts[host].borrow_mut().done.remove(&id))
    }

    #[track_caller]
    pub fn done(&mut self, host: usize, id: ImageRequest) -> Result<(), ClientError> {
        match self.end(host, id) {
            ImageOutcome::Done(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// A request on an object, past the images.
    #[track_caller]
    pub fn op(&mut self, host: usize, op: ObjectOp) -> Result<client::OpReply, ClientError> {
        let id = self.act(host, |now, h| h.client.submit(now, op).expect("there is room"));
        match self.plain(host, id) {
            Outcome::Op(result) => result,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn open(&mut self, host: usize, spec: OpenImage) -> Result<ImageId, ClientError> {
        let id = self.act(host, |now, h| h.images.open(now, &mut h.client, spec));
        match self.end(host, id) {
            ImageOutcome::Opened(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// Makes an image and opens it.
    #[track_caller]
    pub fn made(&mut self, host: usize, spec: CreateImage) -> ImageId {
        let open = OpenImage::new(spec.pool, &spec.name);
        let id = self.act(host, |now, h| h.images.create(now, &mut h.client, spec));
        match self.end(host, id) {
            ImageOutcome::Created(result) => drop(result.expect("it is made")),
            other => panic!("{other:?}"),
        }
        self.open(host, open).expect("it is opened")
    }

    #[track_caller]
    pub fn write(
        &mut self,
        host: usize,
        image: ImageId,
        at: u64,
        data: &[u8],
    ) -> Result<(), ClientError> {
        let data = Bytes::copy_from_slice(data);
        let id = self.act(host, |now, h| h.images.write(now, &mut h.client, image, at, data));
        self.done(host, id.expect("there is room"))
    }

    #[track_caller]
    pub fn discard(
        &mut self,
        host: usize,
        image: ImageId,
        at: u64,
        len: u64,
    ) -> Result<(), ClientError> {
        let id = self.act(host, |now, h| h.images.discard(now, &mut h.client, image, at, len));
        self.done(host, id.expect("there is room"))
    }

    #[track_caller]
    pub fn read(
        &mut self,
        host: usize,
        image: ImageId,
        at: u64,
        len: u64,
    ) -> Result<Bytes, ClientError> {
        let id = self.act(host, |now, h| h.images.read(now, &mut h.client, image, at, len));
        match self.end(host, id.expect("there is room")) {
            ImageOutcome::Read(result) => result.map(client::image::ReadData::into_bytes),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn change(
        &mut self,
        host: usize,
        image: ImageId,
        change: Change,
    ) -> Result<(), ClientError> {
        let id = self.act(host, |now, h| h.images.change(now, &mut h.client, image, change));
        self.done(host, id)
    }

    pub fn lock(&mut self, host: usize, image: ImageId) -> Result<(), ClientError> {
        let id = self.act(host, |now, h| h.images.lock(now, &mut h.client, image));
        self.done(host, id)
    }

    #[track_caller]
    pub fn close(&mut self, host: usize, image: ImageId) {
        let id = self.act(host, |now, h| h.images.close(now, &mut h.client, image));
        self.done(host, id).expect("it is closed");
    }

    #[track_caller]
    pub fn remove(&mut self, host: usize, spec: OpenImage) -> Result<(), ClientError> {
        let id = self.act(host, |now, h| h.images.remove(now, &mut h.client, spec));
        self.done(host, id)
    }

    pub fn info(&mut self, host: usize, image: ImageId) -> client::image::ImageInfo {
        self.hosts[host].borrow().images.info(image).expect("it is open")
    }

    /// Names of all objects of a pool.
    pub fn objects(&mut self, pool: PoolId) -> Vec<String> {
        let mut cursor = client::ListCursor::new(pool, None);
        let mut names = Vec::new();
        while !cursor.is_end() {
            let id = self.act(0, |now, h| h.client.list(now, cursor, 1000));
            match self.plain(0, id) {
                Outcome::Page(Ok(page)) => {
                    names.extend(page.objects.iter().map(|o| o.name.to_lossy().into_owned()));
                    cursor = page.next;
                }
                other => panic!("{other:?}"),
            }
        }
        names.sort();
        names
    }

    pub fn crash_osd(&mut self, osd: usize) {
        let node = self.osds[osd];
        self.off[osd] = true;
        if self.world.is_up(node) {
            self.world.crash(node);
        }
    }

    pub fn start_osd(&mut self, osd: usize) {
        let node = self.osds[osd];
        self.off[osd] = false;
        if !self.world.is_up(node) {
            self.world.start(node);
        }
    }

    /// The power of a host fails; it comes back without its images.
    pub fn restart_host(&mut self, host: usize) {
        let node = self.nodes[host];
        self.world.crash(node);
        self.world.start(node);
        self.world.run_for(Duration::from_millis(1));
    }
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

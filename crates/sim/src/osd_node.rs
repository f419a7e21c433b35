//! An OSD as a node: makes its store when it boots for the first time, then runs on it.

use crate::world::{Boot, NodeId, World};
use io::disk::{DeviceInfo, DiskDone};
use io::{Core, Effects, Event, Now};
use osd::{Osd, OsdConfig};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use store::{Config, Devices, Identity, Mkfs};
use types::{AddrVec, Mono, OsdId, Uuid};

/// Bytes of the store's log: little, so that it goes around often.
const WAL_BYTES: u64 = 4 << 20;
/// The log of a large disk has one of so many bytes of it.
const WAL_SHARE: u64 = 16;

/// What is known of an OSD before it boots.
#[derive(Clone, Debug)]
pub struct SimOsd {
    /// Its number.
    pub id: OsdId,
    /// Its cluster.
    pub cluster: Uuid,
    /// Where mons are.
    pub mons: Vec<AddrVec>,
    /// Bytes of its disk.
    pub disk_bytes: u64,
    /// What its configuration file says, beside a memory target of 64 MiB.
    pub options: BTreeMap<String, String>,
}

impl SimOsd {
    fn config(&self, node: NodeId, seed: u64) -> OsdConfig {
        let any_port = SocketAddr::new(World::ip(node), 0);
        let mut options = self.options.clone();
        options.entry("osd_memory_target".into()).or_insert_with(|| "64M".into());
        OsdConfig {
            id: self.id,
            cluster: self.cluster,
            mons: self.mons.clone(),
            public: any_port,
            cluster_net: any_port,
            admin_socket: None,
            location: Vec::new(),
            device_class: "ssd".to_owned(),
            metadata: BTreeMap::default(),
            nonce: (seed as u32) | 1,
            was_alive: false,
            options,
        }
    }
}

impl World {
    /// Adds an OSD on a disk of its own; it is off.
    pub fn add_osd(&mut self, osd: SimOsd) -> NodeId {
        let node = self.next_node();
        let disk_bytes = osd.disk_bytes;
        self.add_node(&[disk_bytes], false, boot(node, osd, 0))
    }

    /// An OSD that is off gets an empty disk, its so-manieth after the first.
    pub fn replace_osd_disk(&mut self, node: NodeId, osd: SimOsd, nth: u8) {
        self.replace_disk(node, 0, osd.disk_bytes);
        drop(self.set_boot(node, boot(node, osd, nth)));
    }
}

/// What the machine of an OSD runs that has its `nth` disk after the first.
fn boot(node: NodeId, osd: SimOsd, nth: u8) -> Boot {
    let made = Rc::new(Cell::new(false));
    let mut store = [osd.id.0 as u8 + 1; 16];
    store[15] ^= nth;
    Box::new(move |devices: &[DeviceInfo], seed: u64| {
        let data = devices.first().expect("an OSD has a disk").clone();
        let devices = Devices { data, wal: None };
        let cfg = osd.config(node, seed);
        Box::new(Booting::new(cfg, devices, seed, Uuid(store), made.clone())) as Box<dyn Core>
    })
}

/// Makes a store, then runs an OSD on it; on later boots only the latter.
struct Booting {
    stage: Stage,
    cfg: OsdConfig,
    devices: Devices,
    seed: u64,
    made: Rc<Cell<bool>>,
}

enum Stage {
    Making(Box<Mkfs>),
    Running(Box<Osd>),
}

impl Booting {
    fn new(cfg: OsdConfig, devices: Devices, seed: u64, store: Uuid, made: Rc<Cell<bool>>) -> Self {
        let stage = if made.get() {
            Stage::Running(Box::new(Osd::new(cfg.clone(), devices.clone(), seed)))
        } else {
            let identity = Identity { cluster: cfg.cluster, osd: cfg.id, store };
            let wal_bytes = WAL_BYTES.max(devices.data.bytes / WAL_SHARE);
            let config = Config { wal_bytes, ..Config::for_memory(cfg.store_bytes()) };
            // The power may have gone while it was made: half of it is there then.
            let mkfs = Mkfs::new(devices.clone(), identity, &config, true).expect("a store fits");
            Stage::Making(Box::new(mkfs))
        };
        Booting { stage, cfg, devices, seed, made }
    }

    fn mkfs_done(&mut self, now: Now, done: DiskDone, fx: &mut Effects) {
        let Stage::Making(mkfs) = &mut self.stage else { return };
        if let Some(result) = mkfs.handle(done, fx) {
            result.expect("mkfs works");
            self.made.set(true);
            let mut osd = Osd::new(self.cfg.clone(), self.devices.clone(), self.seed);
            osd.handle(now, Event::Start, fx);
            self.stage = Stage::Running(Box::new(osd));
        }
    }
}

impl Core for Booting {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        match (&mut self.stage, event) {
            (Stage::Making(mkfs), Event::Start) => mkfs.start(fx),
            (Stage::Making(_), Event::Disk(done)) => self.mkfs_done(now, done, fx),
            (Stage::Making(_), _) => {}
            (Stage::Running(osd), event) => osd.handle(now, event, fx),
        }
    }
    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        if let Stage::Running(osd) = &mut self.stage {
            osd.end_turn(now, fx);
        }
    }
    fn next_deadline(&self) -> Option<Mono> {
        match &self.stage {
            Stage::Running(osd) => osd.next_deadline(),
            Stage::Making(_) => None,
        }
    }
}

//! The object storage daemon.
//!
//! An [`Osd`] is an [`io::Core`]: it mounts its store, reads what it has, joins the cluster through
//! the mon, and serves. The rules of the PGs are in crate `pg`, of storing in `store`, of speaking
//! in `wire`; here they are brought together:
//!
//! * [`daemon`]: the state, and how events find their way;
//! * `links`, `mon_link`: sessions with clients and other OSDs, and with the mon;
//! * `op`, `object_queue`, `pg_op`, `ops`, `write`, `replica`: a client's request from the socket to the answer;
//! * `memory`, `read_room`, `write_room`: what requests may take of it; `copy`: the sources of copies; `aside`: reads of
//!   clones that are missing;
//! * `queue`: the stored writes of each PG, in order;
//! * `peering`, `recover`, `part`, `remove`: what becomes of PGs when maps change;
//! * `split`, `merge`: PGs become more or fewer, when their pool's `pg_num` changes; `recount`: their sums, counted anew;
//! * `reserve`, `pace`: whose turn it is to recover, and how fast;
//! * `unfound`: giving up objects that nobody has;
//! * `trim`: freeing what removed snapshots held;
//! * `alive`, `heartbeat`, `lease`: who of the others lives, and who may read;
//! * `scrub`: comparing copies, and replacing bad ones;
//! * `boot`, `mapstate`: loading, joining, leaving, maps;
//! * `report`, `admin`, `tracker`, `perf`: saying what it does.

mod abandon;
mod admin;
mod alive;
mod arriving;
mod aside;
mod backoff;
mod boot;
mod compress;
mod config;
mod copy;
mod daemon;
mod deleted;
mod disk_bench;
mod early;
mod effects;
mod heartbeat;
mod host;
mod image_io;
mod lease;
mod leftovers;
mod links;
mod listing;
mod log_trim;
mod mapstate;
mod memory;
mod merge;
mod mon_link;
mod object;
mod object_queue;
pub mod offline;
mod op;
mod ops;
pub mod options;
mod pace;
mod part;
mod peering;
mod perf;
mod pg_op;
mod push;
mod queue;
mod read_room;
mod recount;
mod recover;
mod remove;
mod repair;
mod replica;
mod report;
mod reserve;
mod scrub;
mod share;
mod space;
mod split;
mod takes;
mod tracker;
mod trim;
mod unfound;
mod urgent;
mod watch;
mod write;
mod write_room;

pub use boot::{EXIT_CANNOT_LISTEN, EXIT_REPAIR, EXIT_RESTART, EXIT_WRONG_STORE};
pub use config::{OsdConfig, known_settings};

use daemon::Daemon;
use io::{Core, Effects, Event, Now, Rng};
use store::{Config, Devices, Expect, Mount};
use types::Mono;

/// An OSD, from its first event to its exit.
pub struct Osd(Stage);

enum Stage {
    Mounting {
        mount: Box<Mount>,
        cfg: Box<OsdConfig>,
        rng: Rng,
        stop: bool,
    },
    Running(Box<Daemon>),
    /// It has asked to exit.
    Over,
}

impl Osd {
    /// An OSD with its store on `devices`; the seed is for jitter and identifiers.
    pub fn new(cfg: OsdConfig, devices: Devices, seed: u64) -> Self {
        let expect = Expect { cluster: Some(cfg.cluster), osd: Some(cfg.id), ..Expect::default() };
        let account_of = Some(host::store_accounts());
        let config = Config { account_of, ..Config::for_memory(cfg.store_bytes()) };
        let mount = Box::new(Mount::new(devices, expect, config));
        let (cfg, rng) = (Box::new(cfg), Rng::with_seed(seed));
        Osd(Stage::Mounting { mount, cfg, rng, stop: false })
    }
}

impl Core for Osd {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        let Stage::Mounting { mount, cfg, rng, stop } = &mut self.0 else {
            if let Stage::Running(daemon) = &mut self.0 {
                daemon.handle(now, event, fx);
            }
            return;
        };
        let mounted = match event {
            Event::Start => {
                mount.start(fx);
                None
            }
            Event::Disk(done) => mount.handle(done, fx),
            Event::Stop => {
                *stop = true;
                None
            }
            Event::Net(_) | Event::Kv(_) | Event::Timer | Event::Memory(_) => None,
        };
        match mounted {
            None => {}
            Some(Err(why)) => {
                let code = if why.is_of_device() { 1 } else { EXIT_WRONG_STORE };
                fx.exit(code, format!("osd.{}: its store cannot be mounted: {why}", cfg.id));
                self.0 = Stage::Over;
            }
            Some(Ok(store)) => {
                for what in mount.warnings() {
                    tracing::warn!("osd.{}: {what}", cfg.id);
                }
                let mut daemon = Box::new(Daemon::new((**cfg).clone(), store, now, rng.fork()));
                let stop = *stop;
                daemon.start(now, fx);
                if stop {
                    daemon.handle(now, Event::Stop, fx);
                }
                self.0 = Stage::Running(daemon);
            }
        }
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        if let Stage::Running(daemon) = &mut self.0 {
            daemon.end_turn(now, fx);
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        match &self.0 {
            Stage::Running(daemon) => daemon.next_deadline(),
            Stage::Mounting { .. } | Stage::Over => None,
        }
    }
}

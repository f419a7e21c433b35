//! The runner on a seed: whole clusters in one process, on simulated disks, network and clock.
//!
//! The cores are the ones that run on the real machine; only the runner differs. Everything that the
//! contracts of crate `io` leave open is drawn from the seed, within them and at their edges: in
//! which order disk operations end, how bytes of a connection are cut and delayed, what of unflushed
//! data a crash leaves (each 512-byte sector on its own), what discarded blocks read as, which connections
//! break. The same seed gives the same run, event for event.
//!
//! [`World`] is the machine room; [`SimDisk`] is one disk; [`SimOsd`] is an OSD with its store.

#[cfg(test)]
mod callers;
mod disk;
#[cfg(test)]
mod flushes;
#[cfg(test)]
mod lives;
mod options;
mod osd_node;
mod shared;
#[cfg(test)]
mod turns;
mod work;
mod world;

pub use disk::{CrashLeft, SimDisk};
pub use options::small_options;
pub use osd_node::SimOsd;
pub use shared::Shared;
pub use work::Work;
pub use world::{BadDisk, Boot, DELAY_MS, FaultCounts, Faults, NodeId, World};

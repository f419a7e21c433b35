//! The mon: keeps the cluster's state, and answers as mon and as mgr.
//!
//! [`Mon`] is a core ([`io::Core`]) over a cluster store ([`io::kv`]). What must not be forgotten is
//! `state`; every change is made in a draft (`draft`) together with what it does to the store, and
//! nothing that tells of it leaves before it is committed (`server`). Commands and messages are
//! carried out on `cluster::Cluster`, which has no connections; so is what goes by the clock.
//!
//! What OSDs report (`pgmap`) is only in memory. `health` and `show` are functions of the state.

mod balancer;
mod cluster;
mod commands;
mod config;
mod crashes;
mod draft;
mod health;
mod images;
mod kv;
mod log;
mod mon;
mod options;
mod osds;
mod pgmap;
mod pools;
mod scrubs;
mod server;
mod session;
mod show;
mod state;
mod store;
mod tasks;

pub use config::{MonConfig, NewCluster};
pub use mon::{EXIT_CANNOT_LISTEN, EXIT_NO_SPACE, EXIT_WRONG_STORE, Mon, known_settings};

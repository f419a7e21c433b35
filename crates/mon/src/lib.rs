//! The mon: keeps the cluster's state.

mod cluster;
mod commands;
mod config;
mod draft;
mod health;
mod log;
mod options;
mod osds;
mod pgmap;
mod pools;
mod session;
mod show;
mod state;
mod store;

pub use config::{MonConfig, NewCluster};

//! Pools: making and deleting them, and their snapshots.

mod create;
mod messages;
mod snaps;

pub(crate) use create::NewPool;
pub(crate) use snaps::SnapError;

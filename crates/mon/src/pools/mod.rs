//! Pools: making and deleting them, and their snapshots.

mod create;
mod messages;
mod snaps;

pub(crate) use create::{MAX_SIZE, NewPool, check_name};

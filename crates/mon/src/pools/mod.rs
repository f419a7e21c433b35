//! Pools: making and deleting them, and their snapshots.

mod create;
mod messages;
mod pg_num;
mod snaps;

pub(crate) use pg_num::{Step, is_merged_next};

pub(crate) use create::{MAX_SIZE, NewPool, check_name};

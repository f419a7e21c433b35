//! Whole PGs in a small world: OSDs that crash and restart, a mon, a network, a checking client.

mod chaos;
mod world;

//! Whole PGs in a small world: OSDs that crash and restart, a mon, a network, a checking client.
#![allow(clippy::unwrap_used)]

mod chaos;
mod clients;
mod late;
mod map;
mod moves;
mod net;
mod state;
mod world;
mod writes;

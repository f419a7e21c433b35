//! The client against a scripted cluster in the simulated world: fake mons and OSDs that say what a
//! test wants them to say. Each rule of the objecter has its own test.
#![allow(clippy::unwrap_used)]

mod faults;
mod images;
mod lingers;
mod listing;
mod maps;
mod mons;
mod objects;
mod peer;
mod rig;
mod targets;
mod tells;

//! The store as its owner sees it, on a simulated disk.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod accounts;
mod compress;
mod conformance;
mod crash;
mod device;
mod disk;
mod enumerate;
mod faults;
mod forge;
mod r#gen;
mod kept;
mod label;
mod life;
mod log;
mod pace;
mod resized;
mod rig;
mod rot;
mod sample;
mod scrub;
mod space;

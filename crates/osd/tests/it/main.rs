//! Whole OSDs in a simulated world.

mod admin;
mod alive;
mod answers;
mod arriving;
mod away;
mod basic;
mod budget;
mod chaos;
mod client;
mod cluster;
mod compress;
mod copy;
mod disk_bench;
mod full;
mod load;
mod memory;
mod model;
mod mon;
mod pace;
mod repair;
mod reserve;
mod scrub;
mod share;
mod split;
mod trim;
mod unfound;

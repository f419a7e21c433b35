//! The mon from outside: with real OSDs and a client in a simulated world, and against what a real
//! Ceph cluster answered.

mod client;
mod cluster;
mod crashes;
mod golden;
mod hostile;
mod identities;
mod life;
mod maps;
mod roles;

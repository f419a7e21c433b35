//! Images on whole simulated clusters: the real mon and OSDs, and clients with images.

mod basic;
mod cluster;
mod fsx;
mod locks;
mod trash;

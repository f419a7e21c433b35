//! Against Ceph: the whole history of a real cluster, tables made by its tools, and the tools.
#![allow(missing_docs, clippy::unwrap_used)]

mod chain;
mod damage;
mod enc;
mod fresh;
mod placement;
mod samples;
mod sharing;
mod tools;

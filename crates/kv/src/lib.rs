//! Cluster stores: what keeps the mon's state ([`io::kv::ClusterStore`]).
//!
//! [`Embedded`] is the default: one mon, one file, no set-up. [`Memory`] is the model that tests and
//! the simulator use. Both pass the same conformance test (`tests/it`), which a store across the
//! network has to pass too.

mod embedded;
mod memory;

pub use embedded::{Embedded, OpenError, Unusable};
pub use memory::Memory;

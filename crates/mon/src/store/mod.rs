//! The cluster store: what stands where, reading it when a mon starts, making a new cluster.

mod fresh;
pub(crate) mod keys;
mod load;
mod map_cache;

pub(crate) use fresh::fresh;
pub(crate) use load::{Loaded, Loader};
pub(crate) use map_cache::{MapCache, MapKey};

use denc::{Decode, Encode};
use types::Uuid;

/// The format of the keys and values; a mon refuses a newer one.
pub(crate) const FORMAT: u32 = 1;

/// Whose store it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub(crate) struct ClusterRecord {
    /// See [`FORMAT`].
    pub format: u32,
    /// The cluster.
    pub fsid: Uuid,
    /// By which version it was made.
    pub made_by: String,
}

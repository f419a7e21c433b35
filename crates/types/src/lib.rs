//! The words every other crate speaks: ids, epochs, versions, times, addresses, and the names and
//! order of objects.
//!
//! This crate has no behaviour beyond construction, comparison and display. How a type looks on
//! the wire stands in `denc`; how it is stored stands in `store`.

mod addr;
mod errno;
mod ids;
mod object;
pub mod testing;
mod time;
mod uuid;
mod version;

pub use addr::{AddrType, AddrVec, EntityAddr};
pub use errno::Errno;
pub use ids::{
    ClientId, EntityName, EntityType, Epoch, OsdId, PgId, PoolId, ReqId, ShardId, SnapId, SpgId,
};
pub use object::{ByteString, HObject, ObjectKey, ObjectKeyError};
pub use time::{LONGEST, Mono, NANOS_PER_SEC, ParseTimeError, UTime, seconds, times};
pub use uuid::{ParseUuidError, Uuid};
pub use version::Eversion;

/// A hash map with a fixed hasher, so that a run is repeatable from its seed.
///
/// Keys come from authenticated storage clients; resistance against chosen collisions is given up
/// for replay. Nothing may depend on its iteration order.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, foldhash::fast::FixedState>;
/// See [`HashMap`].
pub type HashSet<K> = hashbrown::HashSet<K, foldhash::fast::FixedState>;

/// The table below a [`HashMap`], for entries whose keys stand elsewhere; [`fixed_hash`] is of these.
pub use hashbrown::HashTable;

/// The hash of a key in a [`HashMap`].
pub fn fixed_hash(key: &impl std::hash::Hash) -> u64 {
    std::hash::BuildHasher::hash_one(&foldhash::fast::FixedState::default(), key)
}

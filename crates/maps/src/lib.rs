//! The cluster's maps: OSDs and pools, monitors, managers; and where each object is.
//!
//! [`OsdMap`] is the state of the cluster that everyone shares. A mon changes it by an
//! [`Incremental`] for each epoch; everyone else applies those ([`OsdMap::apply`]). All encodings
//! are those of Ceph 16.2 byte for byte, since full maps and incrementals carry checksums over
//! their bytes that clients compare. From an object's name to its PG to its OSDs goes
//! [`OsdMap::object_to_pg`], [`OsdMap::raw_pg_to_pg`] and [`OsdMap::pg_to_up_acting`], bit for bit
//! as clients compute it.
//!
//! How a mon makes the next map:
//!
//! ```
//! use maps::{FreshOsdMap, Incremental, OsdMap, OsdMapFlags};
//! use types::{UTime, Uuid};
//!
//! let config = FreshOsdMap {
//!     fsid: Uuid::from_random(7),
//!     now: UTime { sec: 1_700_000_000, nsec: 0 },
//!     failure_domain: "host".into(),
//! };
//! let map = OsdMap::fresh(&config).unwrap();
//!
//! let mut inc = Incremental::after(&map);
//! inc.new_flags = Some(map.flags | OsdMapFlags::NOOUT);
//! let mut next = map.clone();
//! next.apply(&inc).unwrap();
//! let (full_bytes, crc) = next.encode_with_crc();
//! inc.full_crc = crc;
//! let inc_bytes = denc::encode(&inc);
//!
//! // Everyone else:
//! let mut theirs = map;
//! theirs.apply_checked(&denc::decode_all(&inc_bytes).unwrap()).unwrap();
//! assert_eq!(denc::encode(&theirs), full_bytes);
//! ```

mod apply;
mod error;
mod flags;
mod fresh;
mod incremental;
mod mgrmap;
mod monmap;
mod osd_info;
mod osdmap;
mod osdmap_codec;
mod pgid;
mod placement;
mod pool;
mod pool_opts;
mod shared;
mod snaps;

pub use error::MapError;
pub use flags::{OsdMapFlags, OsdState, PoolFlags, Release};
pub use fresh::FreshOsdMap;
pub use incremental::{ENCODE_FEATURES, Incremental, OsdAddrs};
pub use mgrmap::{MgrMap, ModuleInfo, ModuleOption, StandbyInfo};
pub use monmap::{ELECTION_CLASSIC, MonFeatures, MonInfo, MonMap};
pub use osd_info::{DEFAULT_PRIMARY_AFFINITY, Osd, OsdInfo, OsdXInfo, WEIGHT_IN, WEIGHT_OUT};
pub use osdmap::{BlocklistAddr, EcProfiles, MAX_OSDS, OsdList, OsdMap};
pub use pgid::{PgIdExt, pg_num_mask, stable_mod};
pub use placement::{UpActing, exchange};
pub use pool::{
    HitSetParams, OBJECT_HASH_RJENKINS, PgAutoscaleMode, PgMergeMeta, PgPool, PoolSnap, PoolType,
    StringMap, Unused,
};
pub use pool_opts::{PoolOpt, PoolOptKey, PoolOptKind, PoolOpts};
pub use shared::Shared;
pub use snaps::SnapSet;

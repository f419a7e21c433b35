//! CRUSH: which devices hold what, computed by everyone alike.
//!
//! A [`CrushMap`] is a hierarchy of weighted [`Bucket`]s with devices as leaves, and [`Rule`]s that
//! choose devices from it. [`CrushMap::do_rule`] maps a number to devices, bit for bit as Ceph
//! 16.2 and its clients do. A map has a binary form (its `denc` encoding), a text form
//! ([`compile`], [`decompile`]), and can be edited with the semantics of Ceph's commands. This
//! crate knows nothing of pools or of the state of OSDs; the caller passes the devices' weights.
//!
//! ```
//! use crush::{CrushMap, Location, WEIGHT_ONE};
//!
//! let mut map = CrushMap::fresh("host").unwrap();
//! for osd in 0..3 {
//!     let place = Location::parse(&[&format!("host=h{osd}"), "root=default"]).unwrap();
//!     map.insert_item(osd, WEIGHT_ONE, &format!("osd.{osd}"), &place).unwrap();
//! }
//! let mapping = map.do_rule(0, 0x1234, 2, &[WEIGHT_ONE; 3], None);
//! assert_eq!(mapping.len(), 2);
//! ```
//!
//! Decoding accepts only maps that everything here can work on (see [`CrushMap`]), and edits keep
//! them so. Deviations from Ceph, all in what it does wrong or crashes on: items leave tree
//! buckets without a trace, sums of list and tree buckets stay right in a reweight, a device of
//! another weight is refused by a uniform bucket, and renaming a bucket renames its shadows.

mod bucket;
mod choose;
mod codec;
mod edit;
mod error;
mod features;
mod hash;
mod ln;
mod location;
mod map;
mod mapper;
mod query;
mod straw;
mod text;

pub use bucket::{Algorithm, Bucket, MAX_TREE_ITEMS, Weights};
pub use edit::{RuleMode, weight_from_f64};
pub use error::CrushError;
pub use hash::{hash1, hash2, hash3, hash4, hash5, str_hash_rjenkins};
pub use ln::crush_ln;
pub use location::{Location, LocationError, is_valid_name};
pub use map::{
    COMPAT_CHOOSE_ARGS, ChooseArg, ChooseArgs, CrushMap, ITEM_NONE, ItemId, MAX_BUCKET_WEIGHT,
    MAX_BUCKETS, MAX_DEPTH, MAX_DEVICE_WEIGHT, MAX_RULES, MAX_WAYS, Op, RULE_ERASURE,
    RULE_REPLICATED, Rule, Step, Tunables, WEIGHT_ONE,
};
pub use mapper::{INLINE, Mapping};
pub use text::{CompileError, compile, decompile};

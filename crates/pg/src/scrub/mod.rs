//! Scrub: comparing the copies of a PG, deciding which is right, and saying what is wrong.
//!
//! * [`Scrub`] is the course of one scrub on the primary: reservations, then chunk by chunk in hash
//!   order. Writes of a chunk's objects wait while it is compared; a chunk begins when earlier ones are
//!   committed on every copy. Everything ends with the interval.
//! * [`judge`] looks at the copies of one object: which one is right, which are to be replaced, and
//!   whether that is certain.
//! * [`due`] says when a PG is to be scrubbed.
//!
//! The words and bits are those that `rados list-inconsistent-obj` shows (Ceph:
//! `include/rados/rados_types.hpp: err_t, obj_err_t`; `PGBackend.cc: be_select_auth_object,
//! be_compare_scrubmaps`).

mod course;
mod due;
mod judge;
mod repair;

pub use course::{Chunk, Course, Kind, Phase, Scrub, Starter};
pub use due::{Due, Intervals, Plan, credible, due};
pub use judge::{CopyVerdict, Source, Verdict, judge};

use bytes::Bytes;
use denc::{Decode, Encode};
use types::{ByteString, Eversion, HObject, UTime};

/// What is wrong with one copy.
pub mod copy_error {
    /// The object is not there.
    pub const MISSING: u64 = 1 << 1;
    /// Its record cannot be read.
    pub const STAT: u64 = 1 << 2;
    /// Its data cannot be read, or does not have its checksum.
    pub const READ: u64 = 1 << 3;
    /// Its data is other than what is known to be right.
    pub const DATA_DIGEST: u64 = 1 << 9;
    /// Its omap is other than what is known to be right.
    pub const OMAP_DIGEST: u64 = 1 << 10;
    /// Its size is other than what is known to be right.
    pub const SIZE: u64 = 1 << 11;
    /// It has no record.
    pub const INFO_MISSING: u64 = 1 << 14;
    /// Its record makes no sense.
    pub const INFO_CORRUPTED: u64 = 1 << 15;
    /// What only a deep scrub finds.
    pub const DEEP: u64 = READ | DATA_DIGEST | OMAP_DIGEST;
    /// A copy with one of these is nobody's source.
    pub const UNUSABLE: u64 = MISSING | STAT | READ | INFO_MISSING | INFO_CORRUPTED;
}

/// In what copies differ.
pub mod object_error {
    /// Their records.
    pub const INFO: u64 = 1 << 1;
    /// Their data.
    pub const DATA_DIGEST: u64 = 1 << 4;
    /// Their omaps.
    pub const OMAP_DIGEST: u64 = 1 << 5;
    /// Their sizes.
    pub const SIZE: u64 = 1 << 6;
    /// The values of their attributes.
    pub const ATTR_VALUE: u64 = 1 << 7;
    /// The names of their attributes.
    pub const ATTR_NAME: u64 = 1 << 8;
    /// What only a deep scrub finds.
    pub const DEEP: u64 = DATA_DIGEST | OMAP_DIGEST;
}

/// What a deep scrub makes of an object's contents: Ceph's digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Digests {
    /// crc32c of the data.
    pub data: u32,
    /// crc32c of the omap.
    pub omap: u32,
    /// Entries of the omap.
    pub omap_entries: u64,
    /// Bytes of the omap.
    pub omap_bytes: u64,
}

/// One copy of an object, as its holder found it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ScrubObject {
    /// Which.
    pub object: HObject,
    /// Its version, by its record.
    pub version: Eversion,
    /// Its size in bytes.
    pub size: u64,
    /// What the OSD keeps with it.
    pub meta: Bytes,
    /// Its attributes, by name.
    pub attrs: Vec<(ByteString, Bytes)>,
    /// Of a deep scrub, if all of it could be read.
    pub digests: Option<Digests>,
    /// What is wrong with it by itself: see [`copy_error`].
    pub errors: u64,
}

impl ScrubObject {
    /// What its attributes and record take of memory, about.
    pub fn bytes(&self) -> usize {
        let attrs = self.attrs.iter().map(|(name, value)| name.len() + value.len());
        attrs.sum::<usize>() + self.meta.len()
    }
}

/// What is known of a PG's scrubs; part of its history, and so known to every holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ScrubRecord {
    /// Counts the changes of this record: the larger one is the newer.
    pub changes: u64,
    /// The PG's newest write when it was last scrubbed.
    pub last_scrub: Eversion,
    /// When that was; zero: never.
    pub last_scrub_stamp: UTime,
    /// The same of deep scrubs.
    pub last_deep_scrub: Eversion,
    /// The same of deep scrubs.
    pub last_deep_scrub_stamp: UTime,
    /// When a scrub last found nothing.
    pub last_clean_scrub_stamp: UTime,
    /// Errors that a light scrub sees, and that are not repaired.
    pub shallow_errors: u64,
    /// Errors that only a deep scrub sees, and that are not repaired.
    pub deep_errors: u64,
    /// Entries of omaps, as of the last deep scrub.
    pub omap_entries: u64,
    /// Bytes of omaps, as of the last deep scrub.
    pub omap_bytes: u64,
    /// Objects that were repaired, ever.
    pub objects_repaired: u64,
}

impl ScrubRecord {
    /// Errors that are not repaired.
    pub fn errors(&self) -> u64 {
        self.shallow_errors + self.deep_errors
    }

    /// Takes over what is newer. Returns whether anything changed.
    pub fn merge(&mut self, other: &ScrubRecord) -> bool {
        let newer = other.changes > self.changes;
        if newer {
            *self = *other;
        }
        newer
    }
}

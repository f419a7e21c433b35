//! What can go wrong, in words for the operator.

use crate::txn::Invalid;
use io::disk::DiskError;
use std::fmt;
use types::{ObjectKey, OsdId, Uuid};

/// A read failed. Only what was asked for is affected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A block of an object does not have its checksum: it rotted, or a write was lost or went
    /// elsewhere.
    #[error(
        "4 KiB at {offset} of object {object:?} (block {block} of the device) do not have their \
         checksum; fetch the object from another OSD"
    )]
    BadBlock {
        /// The object.
        object: ObjectKey,
        /// Byte offset in the object.
        offset: u64,
        /// Block on the device.
        block: u64,
    },
    /// A piece of the store's metadata is damaged.
    #[error(
        "metadata at block {block} of the device is damaged: {what}; run `loligo store fsck`, and \
         rebuild this OSD from the others if it names damage"
    )]
    BadMetadata {
        /// Block on the device.
        block: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The device did not give the bytes.
    #[error("reading block {block} failed: {error}")]
    Io {
        /// The object whose data was to be read, if it was an object's data.
        object: Option<ObjectKey>,
        /// Block on the device.
        block: u64,
        /// The device's error.
        error: DiskError,
    },
}

impl StoreError {
    /// The object whose data is damaged or cannot be read, if it is one object's data: another copy
    /// of the object repairs it.
    pub fn object(&self) -> Option<&ObjectKey> {
        match self {
            StoreError::BadBlock { object, .. } => Some(object),
            StoreError::Io { object, .. } => object.as_ref(),
            StoreError::BadMetadata { .. } => None,
        }
    }
}

/// The store cannot go on; the process must end without touching the device again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} failed: {why}; what the device holds is unknown, the OSD must be restarted")]
pub struct Fatal {
    /// What was being done.
    pub what: &'static str,
    /// How it failed.
    pub why: String,
}

/// A transaction was not taken. Nothing has changed.
#[derive(Debug)]
pub enum SubmitError {
    /// Something must be read first: [`crate::Store::fetch`] it and submit again.
    Miss(crate::Miss),
    /// The device is full. Removals still work when they are marked so. Whoever can wait for room
    /// submits again after [`crate::StoreEvent::Writable`].
    NoSpace,
    /// Writers are ahead of the device: submit again after [`crate::StoreEvent::Writable`].
    Busy,
    /// It can never be carried out.
    Invalid(Invalid),
}

/// A device cannot be made into a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MkfsError {
    /// It holds something.
    #[error(
        "{path} holds {what}; nothing was changed. To destroy that and make a store, use --force"
    )]
    InUse {
        /// The device.
        path: String,
        /// What was found.
        what: String,
    },
    /// It is too small.
    #[error("{path} has {bytes} bytes; a store with this log takes at least {min}")]
    TooSmall {
        /// The device.
        path: String,
        /// Its size.
        bytes: u64,
        /// The least.
        min: u64,
    },
    /// The device failed.
    #[error("{path}: {what} failed: {error}")]
    Io {
        /// The device.
        path: String,
        /// What was being done.
        what: &'static str,
        /// Its error.
        error: DiskError,
    },
}

/// What it takes to read a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// How its superblock is laid out.
    pub number: u16,
    /// A bit for each thing that came later.
    pub features: u32,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "format {}", self.number)?;
        if self.features > 0 { write!(f, " with features {}", self.features) } else { Ok(()) }
    }
}

/// A store cannot be mounted. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    /// There is no store.
    #[error("{path} does not hold a store; `loligo store mkfs` makes one")]
    NoStore {
        /// The device.
        path: String,
    },
    /// A store of another cluster.
    #[error("{path} belongs to cluster {found}, not to {wanted}; is it the right disk?")]
    OtherCluster {
        /// The device.
        path: String,
        /// Its cluster.
        found: Uuid,
        /// Ours.
        wanted: Uuid,
    },
    /// A store of another OSD.
    #[error("{path} belongs to osd.{found}, not to osd.{wanted}; is it the right disk?")]
    OtherOsd {
        /// The device.
        path: String,
        /// Its OSD.
        found: OsdId,
        /// Ours.
        wanted: OsdId,
    },
    /// Another store.
    #[error("{path} holds store {found}, not {wanted}; data and log must belong together")]
    OtherStore {
        /// The device.
        path: String,
        /// The one found.
        found: Uuid,
        /// The one wanted.
        wanted: Uuid,
    },
    /// The log's device is missing or not wanted.
    #[error("{path}: {what}")]
    LogDevice {
        /// The device.
        path: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// The device shrank.
    #[error("{path} has {bytes} bytes, the store on it was made for {min}")]
    TooSmall {
        /// The device.
        path: String,
        /// Its size.
        bytes: u64,
        /// The store's.
        min: u64,
    },
    /// A newer program made it, or has had it since.
    #[error("{path} holds a store of {found}, this program knows {known}; use a newer one")]
    Newer {
        /// The device.
        path: String,
        /// What it takes to read it.
        found: Format,
        /// Ours.
        known: Format,
    },
    /// Something is damaged that must not be.
    #[error(
        "the store on {path} is damaged: {place}: {what}. Nothing was changed. Run `loligo store \
         fsck {path}` to see how far it goes; then make the store anew and let the other OSDs fill it"
    )]
    Damaged {
        /// The device.
        path: String,
        /// Where.
        place: String,
        /// What.
        what: String,
    },
    /// The device failed.
    #[error("{path}: {what} failed: {error}")]
    Io {
        /// The device.
        path: String,
        /// What was being done, with the block.
        what: String,
        /// Its error.
        error: DiskError,
    },
    /// A newer program wrote the log, and the superblock does not say so.
    #[error(
        "{path} holds a log of a newer program: batch {seq} has a record of kind {kind}, which this one does \
         not know; use a newer one"
    )]
    NewerLog {
        /// The log's device.
        path: String,
        /// Number of the batch.
        seq: u64,
        /// The kind.
        kind: u8,
    },
    /// Writing the first log entry of this mount failed.
    #[error("{path}: writing to the log failed: {error}")]
    Log {
        /// The device.
        path: String,
        /// Its error.
        error: DiskError,
    },
}

impl MountError {
    /// Whether it is the device that failed, and not what is on it that must not be used.
    pub fn is_of_device(&self) -> bool {
        matches!(self, MountError::Io { .. } | MountError::Log { .. })
    }
}

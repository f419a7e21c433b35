//! Disks: what is durable when.
//!
//! A device is an array of bytes that is read and written in multiples of [`crate::BLOCK_BYTES`] at
//! such offsets, past every cache of the kernel.
//!
//! **Durability.** A completed [`DiskOp::Write`] is visible to every later read, and it is durable
//! when it was asked for as [`WriteMode::Durable`], or when a [`DiskOp::Flush`] that was *submitted after
//! the write completed* has completed. Anything else may, after a crash, be there, be absent, or be
//! torn: each 512-byte sector on its own is old or new.
//!
//! **Order.** Operations in flight together are unordered, also when they overlap; a core never has
//! two in flight that overlap and of which one is a write.
//!
//! **Errors.** An error of a flush or of a durable write means that the device's state is unknown:
//! the core ends the process ([`crate::Effects::exit`]) and never retries. A failed or short read is
//! reported as an error, never as fewer bytes.

use bytes::Bytes;
use smallvec::SmallVec;

/// Which of a core's devices: the shell gives them in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DevId(pub u8);

/// Names an operation in flight; chosen by the core, unique until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskToken(pub u64);

/// How late the completion of a [`WriteMode::Lazy`] write may be told.
pub const LAZY_MS: u64 = 1;

/// What the completion of a write means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// The bytes are on stable storage.
    Durable,
    /// Reads see the bytes.
    Plain,
    /// The same, of a write that nobody waits for: it goes to the device behind what somebody waits for,
    /// and its completion is told [`LAZY_MS`] late at most, together with others, where each by itself
    /// would cost as much as a request.
    Lazy,
}

/// What to do.
#[derive(Debug)]
pub enum DiskOp {
    /// Read `len` bytes.
    Read {
        /// The device.
        dev: DevId,
        /// First byte, a multiple of the block size.
        offset: u64,
        /// Number of bytes, a multiple of the block size, not 0.
        len: usize,
    },
    /// Write the pieces one after the other from `offset` on. A piece that is not aligned in memory
    /// is copied by the runner; only the total must be a multiple of the block size.
    Write {
        /// The device.
        dev: DevId,
        /// First byte, a multiple of the block size.
        offset: u64,
        /// The bytes.
        data: SmallVec<[Bytes; 4]>,
        /// What its completion means, and how soon it is told.
        mode: WriteMode,
    },
    /// Make every completed write durable.
    Flush {
        /// The device.
        dev: DevId,
    },
    /// These bytes are not needed any more; they read as anything until written again. A hint: its
    /// failure is no error.
    Discard {
        /// The device.
        dev: DevId,
        /// First byte, a multiple of the block size.
        offset: u64,
        /// Number of bytes, a multiple of the block size.
        len: u64,
    },
}

/// How an operation ended.
#[derive(Debug)]
pub struct DiskDone {
    /// The operation's token.
    pub token: DiskToken,
    /// The bytes of a read, nothing for the others.
    pub result: Result<Bytes, DiskError>,
}

/// The device failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// The kernel's error number, positive.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
    /// Fewer bytes were transferred than asked for.
    #[error("only {done} of {wanted} bytes were transferred")]
    Short {
        /// Bytes transferred.
        done: usize,
        /// Bytes asked for.
        wanted: usize,
    },
}

/// A device as the shell found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Path, for messages.
    pub path: String,
    /// Usable bytes, a multiple of the block size.
    pub bytes: u64,
    /// Whether it is a block device (else a regular file).
    pub is_block: bool,
}

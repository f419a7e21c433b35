//! The object store of one OSD.
//!
//! A [`Store`] keeps objects (bytes, attributes, an omap with a header, and a small record of the
//! owner's) on a file or block device, optionally with its log on a faster one. It is a state
//! machine: it asks for disk operations through [`io::Effects`] and never touches a disk itself.
//!
//! * [`Mkfs`] makes a store, [`Mount`] opens one, [`Fsck`] checks one that nobody has open, and
//!   [`MountReadOnly`] opens one, damaged or not, to get out what it still holds.
//! * A [`Transaction`] changes several objects at once: after a crash it happened as a whole or not
//!   at all, and it is reported as durable ([`StoreEvent::Durable`]) only when it is.
//! * A read that needs something from the disk answers with a [`Miss`]; [`Store::fetch`] gets it into
//!   a [`ReadSet`], with which the read is tried again. So every read is a plain function.
//! * Everything on the disk is under a checksum that is kept elsewhere than the thing itself: what
//!   was lost, torn, misdirected or has rotted is seen when it is read.
//!
//! Who wants to understand it reads in this order: `txn` (what can be asked), `plan` (what it comes
//! to), `wal` (how it becomes durable), `store` (turns, putting in place, checkpoints), `tree` and
//! `alloc` (what a checkpoint makes), `mount`. Byte layouts: `FORMAT.md`.
//!
//! # When the disk fails
//!
//! | what it does | what the store does |
//! |---|---|
//! | a read fails (EIO) or is short | [`StoreError::Io`] names the block, and the object if it was its data; only what asked is affected, the next try may succeed. A superblock: the other copy serves. The log or the tree at mount: the mount is refused and has changed nothing. A checkpoint's or a merge's read: tried again, at last [`StoreEvent::Fatal`], or, for one logged block, that block reads as bad |
//! | a write fails or is short | [`StoreEvent::Fatal`]: nothing is acknowledged after it, nothing more is asked of the disk. At a mount: it is refused; but when only the bad label of the log's device cannot be written again, that is a [`Mount::warnings`] |
//! | a flush fails | the same, at once; never tried again, since the kernel forgets what it could not write |
//! | a discard fails | nothing |
//! | a write is torn by a crash | it was not acknowledged: the log ends before it, the other superblock counts, a node or block that nothing points to is free |
//! | a write is lost | its checksum is kept elsewhere (tree nodes and blocks: by what points to them; log batches: by later ones): seen when read. A block of an object: [`StoreEvent::BadBlock`] and [`StoreError::BadBlock`]. Metadata: [`StoreError::BadMetadata`], or a mount that is refused |
//! | a write goes elsewhere | the same, in both places |
//! | bits rot | the same; one copy of a superblock is repaired by the next mount |
//! | it is slow | at the limits of [`Config`] submits are answered with [`SubmitError::Busy`], and [`StoreEvent::Writable`] follows; reads go on; there are no timeouts here |
//!
//! [`StoreError::object`] says which object another copy must be fetched of. Of a compressed extent
//! each stored block has a checksum, and one that cannot be unpacked though it has them counts as a
//! bad block.
//!
//! # Space
//!
//! [`Store::usage`] says what every block is used for; [`FsckReport::space`], of a store that is not
//! open, also what of the data is padding. A discard ([`Config::discard`], [`Store::set_discard`])
//! frees the blocks of a file in its file system: when that is full, writing them again fails, which
//! is [`StoreEvent::Fatal`]. OSDs therefore discard on block devices only.
//!
//! One window is left: until [`Config::mark_interval_ms`] after the last transaction of a burst, a
//! rotten or lost last batch of the log cannot be told from one that was never finished.
//!
//! # How that is shown
//!
//! The tests run the store on a disk in memory that keeps to the contract of [`io::disk`] and no
//! more. `cargo test -p store` does a bounded part with fixed seeds. The whole, each with
//! `--release` and `-- --nocapture`, prints what it tried:
//!
//! | what | command |
//! |---|---|
//! | crashes, all sequences of up to three operations | `STORE_TEST_ONE_IN=1 STORE_TEST_JOBS=2 cargo test -p store --test it all_sequences` |
//! | crashes, random loads of a thousand operations | `STORE_TEST_TIMES=20 cargo test -p store --test it thousand` |
//! | flips, lost and misdirected writes | `STORE_TEST_FLIPS=100000 cargo test -p store --test it rot::` |
//! | random sequences against [`model`] | `STORE_TEST_SEQUENCES=100000 cargo test -p store --test it many_short` |
//! | real files and devices | `STORE_TEST_PLACES=/mnt/disk:/dev/loop7 cargo test -p store --test it device` |
//! | everything else, on more seeds | `STORE_TEST_TIMES=400 cargo test -p store --test it` |

mod accounts;
mod alloc;
mod blob;
mod codec;
mod compress;
mod config;
mod error;
mod fsck;
mod gaps;
mod keys;
mod memtable;
mod mkfs;
pub mod model;
mod mount;
mod patch;
mod places;
mod plan;
mod rows;
mod store;
mod superblock;
mod tree;
mod txn;
mod view;
mod wal;

pub use compress::{Algorithm, Compress};
pub use config::*;
pub use error::*;
pub use fsck::{Finding, Fsck, FsckReport, MAX_FINDINGS, Severity, SpaceReport};
pub use mkfs::{Content, Mkfs, PROBE_BYTES, PROBE_END_BYTES, what_is_on};
pub use mount::{MAX_PROBLEMS, Mount, MountReadOnly, ReadStore};
pub use store::*;
pub use txn::*;

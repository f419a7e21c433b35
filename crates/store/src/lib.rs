//! The object store of one OSD.
//!
//! A [`Store`] keeps objects (bytes, attributes, an omap with a header, and a small record of the
//! owner's) on a file or block device, optionally with its log on a faster one. It is a state
//! machine: it asks for disk operations through [`io::Effects`] and never touches a disk itself.
//!
//! * [`Mkfs`] makes a store, [`Mount`] opens one, [`Fsck`] checks one that nobody has open.
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

mod alloc;
mod codec;
mod config;
mod error;
mod fsck;
mod keys;
mod memtable;
mod mkfs;
pub mod model;
mod mount;
mod plan;
mod rows;
mod store;
mod superblock;
mod tree;
mod txn;
mod view;
mod wal;

pub use config::*;
pub use error::*;
pub use fsck::{Finding, Fsck, FsckReport, MAX_FINDINGS, Severity};
pub use mkfs::Mkfs;
pub use mount::Mount;
pub use store::*;
pub use txn::*;

//! Whether the log's device is the right one.
//!
//! Its label says so. Where that is bad or gone, the log itself does: every batch names its store, and one of an
//! earlier lap, that nobody needs any more, proves as much as one that is needed. So it is looked for from where the
//! log is needed, all around the ring. Batches of another store alone mean that the device is that one's.

use super::supers::first_needed;
use crate::config::Devices;
use crate::error::MountError;
use crate::store::inflight::Io;
use crate::superblock::{KNOWN, NotSuper, Superblock, WalLabel};
use crate::wal::format::Header;
use bytes::Bytes;
use io::disk::{DevId, DiskError};
use io::{BLOCK_BYTES, Effects};
use types::Uuid;

/// Blocks of the log that are looked through at a time. None of them is known if one cannot be read.
const PIECE_BLOCKS: u64 = 64;

/// What is wrong with the label of a log device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadLabel {
    /// It was one, but whose is not known.
    Damaged(&'static str),
    Unreadable,
    /// There is none, and perhaps never was.
    Gone,
}

impl BadLabel {
    pub fn what(self) -> &'static str {
        match self {
            BadLabel::Damaged(what) => what,
            BadLabel::Unreadable => "it cannot be read",
            BadLabel::Gone => "it is gone, but the log is this store's",
        }
    }
}

/// The label as it must be.
pub(crate) fn label_of(sb: &Superblock) -> Bytes {
    WalLabel { identity: sb.identity, blocks: sb.wal.blocks }.encode()
}

fn log_path(devices: &Devices) -> String {
    devices.wal.as_ref().map_or_else(String::new, |w| w.path.clone())
}

/// The log's device is another store's.
fn of_other(found: Uuid, sb: &Superblock, devices: &Devices) -> MountError {
    MountError::OtherStore { path: log_path(devices), found, wanted: sb.identity.store }
}

/// Checks that the log device belongs to the store, as far as its label says that.
pub(crate) fn check_label(
    block: Result<Bytes, DiskError>,
    sb: &Superblock,
    devices: &Devices,
) -> Result<Option<BadLabel>, MountError> {
    let Ok(block) = block else { return Ok(Some(BadLabel::Unreadable)) };
    match WalLabel::decode(&block) {
        Ok(WalLabel { identity, .. }) if identity.store != sb.identity.store => {
            Err(of_other(identity.store, sb, devices))
        }
        Ok(_) => Ok(None),
        Err(NotSuper::NoMagic) => Ok(Some(BadLabel::Gone)),
        Err(NotSuper::Newer { found, .. }) => {
            Err(MountError::Newer { path: log_path(devices), found, known: KNOWN })
        }
        Err(NotSuper::Damaged(what)) => Ok(Some(BadLabel::Damaged(what))),
    }
}

/// Looks for batches of the store, where the label does not say whose the log is.
pub(crate) struct Search {
    label: BadLabel,
    /// Where the next piece of the ring begins.
    next: u64,
    /// Blocks of the ring from there on that have not been looked at.
    left: u64,
    /// Whose batch was found that is not this store's.
    other: Option<Uuid>,
}

impl Search {
    pub fn new(label: BadLabel, sb: &Superblock) -> Self {
        // After an orderly end nothing is needed: the last batch stands before.
        let near = first_needed(sb).at.saturating_sub(1) % sb.wal.blocks;
        Search { label, next: near - near % PIECE_BLOCKS, left: sb.wal.blocks, other: None }
    }

    pub fn label(&self) -> BadLabel {
        self.label
    }

    fn piece(&self, sb: &Superblock) -> u64 {
        PIECE_BLOCKS.min(sb.wal.blocks - self.next).min(self.left)
    }

    /// Reads the next piece. Every ring has at least one.
    pub fn read<T>(&self, sb: &Superblock, what: T, io: &mut Io<T>, fx: &mut Effects) {
        io.read(fx, DevId(sb.wal.dev), sb.wal.base + self.next, self.piece(sb), what);
    }

    /// Takes in a piece. `Some` when it is known whether the device is the right one.
    pub fn looked(
        &mut self,
        result: Result<Bytes, DiskError>,
        sb: &Superblock,
        devices: &Devices,
    ) -> Option<Result<(), MountError>> {
        let bytes = result.unwrap_or_default();
        for (place, block) in (self.next..).zip(bytes.chunks(BLOCK_BYTES)) {
            let Ok((header, _)) = Header::decode(block) else { continue };
            if header.store != sb.identity.store {
                self.other = Some(header.store);
            } else if header.at % sb.wal.blocks == place {
                return Some(Ok(()));
            }
        }
        let piece = self.piece(sb);
        (self.next, self.left) = ((self.next + piece) % sb.wal.blocks, self.left - piece);
        (self.left == 0).then(|| self.not_found(sb, devices))
    }

    /// None of its batches is there. A damaged label is some store's all the same, and nothing is lost that was in
    /// its log; on any other device may be what is nothing of ours.
    fn not_found(&self, sb: &Superblock, devices: &Devices) -> Result<(), MountError> {
        let what = match (self.other, self.label) {
            (Some(other), _) => return Err(of_other(other, sb, devices)),
            (None, BadLabel::Damaged(_)) => return Ok(()),
            (None, BadLabel::Unreadable) => {
                "its label cannot be read, and it does not hold a log of this store; is it the right device?"
            }
            (None, BadLabel::Gone) => "it does not hold a log of a store; is it the right device?",
        };
        Err(MountError::LogDevice { path: log_path(devices), what: what.into() })
    }
}

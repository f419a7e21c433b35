//! Finding the newest superblock.

use crate::config::{Devices, Expect};
use crate::error::MountError;
use crate::superblock::{
    FEATURES, KNOWN, LogPos, NotSuper, PLACES, Superblock, WalLabel, place, places_of,
};
use crate::wal::format::Header;
use bytes::Bytes;
use io::BLOCK_BYTES;
use io::disk::DiskError;
use types::Uuid;

/// The copies of the superblocks as they were read.
#[derive(Debug, Default)]
pub(crate) struct Supers {
    copies: [Option<Result<Superblock, NotSuper>>; PLACES],
}

impl Supers {
    /// The copy at place `index`.
    pub fn put(&mut self, index: usize, block: &[u8]) {
        self.copies[index] = Some(Superblock::decode(block, index));
    }

    /// The copy at place `index` is this from now on.
    pub fn replace(&mut self, index: usize, sb: &Superblock) {
        self.copies[index] = Some(Ok(sb.clone()));
    }

    /// A copy that could not be read.
    pub fn unreadable(&mut self, index: usize) {
        self.copies[index] = Some(Err(NotSuper::Damaged("it cannot be read")));
    }

    /// A copy, and why it is none.
    pub fn copy(&self, index: usize) -> Result<&Superblock, NotSuper> {
        match &self.copies[index] {
            Some(Ok(sb)) => Ok(sb),
            Some(Err(why)) => Err(*why),
            None => Err(NotSuper::NoMagic),
        }
    }

    /// The newest good copy. Copies of different stores (an old one's at the end of the device)
    /// are told apart by the generation as well: the first places decide.
    ///
    /// # Errors
    /// When there is none, or a newer program has written another copy: the log may hold what this one cannot read.
    pub fn newest(&self, path: &str) -> Result<&Superblock, MountError> {
        let store = self.all().find_map(store_of).ok_or_else(|| self.why_none(path))?;
        let newer = self.all().find_map(|copy| match copy {
            Err(NotSuper::Newer { found, store: of }) if *of == store => Some(*found),
            _ => None,
        });
        if let Some(found) = newer {
            return Err(MountError::Newer { path: path.into(), found, known: KNOWN });
        }
        let newest = self.good_of(store).max_by_key(|sb| sb.generation);
        newest.ok_or_else(|| self.why_none(path))
    }

    fn all(&self) -> impl Iterator<Item = &Result<Superblock, NotSuper>> {
        self.copies.iter().flatten()
    }

    fn good_of(&self, store: Uuid) -> impl Iterator<Item = &Superblock> {
        self.all().flatten().filter(move |sb| sb.identity.store == store)
    }

    /// Whether some copy lacks features: an older program would take it for the newest.
    pub fn lack_features(&self, store: Uuid) -> bool {
        self.good_of(store).any(|sb| sb.features != FEATURES)
    }

    /// Places of the newest superblock whose copy is bad or old.
    pub fn stale_places(&self, newest: &Superblock) -> Vec<usize> {
        let good = |index: &usize| self.copy(*index).is_ok_and(|sb| sb == newest);
        places_of(newest.generation).into_iter().filter(|i| !good(i)).collect()
    }

    /// Why there is no copy of any store.
    fn why_none(&self, path: &str) -> MountError {
        let path = path.to_string();
        let damage = self.all().find_map(|copy| match copy {
            Err(NotSuper::Damaged(what)) => Some(*what),
            _ => None,
        });
        match damage {
            Some(what) => MountError::Damaged {
                path,
                place: "all copies of the superblock".into(),
                what: what.into(),
            },
            None => MountError::NoStore { path },
        }
    }
}

/// Whose copy it is, if that can be told.
fn store_of(copy: &Result<Superblock, NotSuper>) -> Option<Uuid> {
    match copy {
        Ok(sb) => Some(sb.identity.store),
        Err(NotSuper::Newer { store, .. }) => Some(*store),
        Err(NotSuper::NoMagic | NotSuper::Damaged(_)) => None,
    }
}

/// Blocks of a device.
pub(crate) fn device_blocks(bytes: u64) -> u64 {
    bytes / BLOCK_BYTES as u64
}

/// Where the copies at the end are, if the device has `blocks`.
pub(crate) fn tail_places(blocks: u64) -> [(usize, u64); 2] {
    [(2, place(2, blocks)), (3, place(3, blocks))]
}

/// Checks that the store is the wanted one and fits its devices.
pub(crate) fn check_identity(
    sb: &Superblock,
    devices: &Devices,
    expect: &Expect,
) -> Result<(), MountError> {
    let path = devices.data.path.clone();
    let id = &sb.identity;
    if let Some(wanted) = expect.cluster.filter(|c| *c != id.cluster) {
        return Err(MountError::OtherCluster { path, found: id.cluster, wanted });
    }
    if let Some(wanted) = expect.osd.filter(|o| *o != id.osd) {
        return Err(MountError::OtherOsd { path, found: id.osd, wanted });
    }
    if let Some(wanted) = expect.store.filter(|s| *s != id.store) {
        return Err(MountError::OtherStore { path, found: id.store, wanted });
    }
    let min = sb.total_blocks * BLOCK_BYTES as u64;
    if devices.data.bytes < min {
        return Err(MountError::TooSmall { path, bytes: devices.data.bytes, min });
    }
    match (&devices.wal, sb.wal.dev) {
        (None, 0) => Ok(()),
        (Some(wal), 1) => {
            let min = (sb.wal.base + sb.wal.blocks) * BLOCK_BYTES as u64;
            if wal.bytes < min {
                let path = wal.path.clone();
                return Err(MountError::TooSmall { path, bytes: wal.bytes, min });
            }
            Ok(())
        }
        (None, _) => Err(MountError::LogDevice {
            path,
            what: "this store has its log on a device of its own; name it with --wal".into(),
        }),
        (Some(wal), _) => Err(MountError::LogDevice {
            path: wal.path.clone(),
            what: format!("{path} has its log on itself; leave out --wal"),
        }),
    }
}

/// What the label of a log device says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    Good,
    /// Nothing any more. It only guards from the wrong device, and every batch names its store.
    Bad(&'static str),
    /// There is none, and perhaps never was: the device is the right one if the first batch that is needed
    /// stands on it ([`is_first_batch`]).
    Gone,
}

/// Where the log is needed from.
pub(crate) fn first_needed(sb: &Superblock) -> LogPos {
    if sb.rows.seq <= sb.blocks.seq { sb.rows } else { sb.blocks }
}

/// The block of the log's device where the first batch that is needed is.
pub(crate) fn first_batch_block(sb: &Superblock) -> u64 {
    sb.wal.base + first_needed(sb).at % sb.wal.blocks
}

/// Whether the first batch that is needed stands in this block.
pub(crate) fn is_first_batch(block: &[u8], sb: &Superblock) -> bool {
    let first = first_needed(sb);
    Header::decode(block).is_ok_and(|(header, _)| {
        header.store == sb.identity.store && (header.seq, header.at) == (first.seq, first.at)
    })
}

/// The label as it must be.
pub(crate) fn label_of(sb: &Superblock) -> Bytes {
    WalLabel { identity: sb.identity, blocks: sb.wal.blocks }.encode()
}

fn log_path(devices: &Devices) -> String {
    devices.wal.as_ref().map_or_else(String::new, |w| w.path.clone())
}

/// Says that a device has no label, and that nothing else proves that it is the right one.
pub(crate) fn no_label(devices: &Devices) -> MountError {
    let what = "it does not hold a log of a store; is it the right device?".into();
    MountError::LogDevice { path: log_path(devices), what }
}

/// Checks that the log device belongs to the store.
pub(crate) fn check_label(
    block: Result<Bytes, DiskError>,
    sb: &Superblock,
    devices: &Devices,
) -> Result<Label, MountError> {
    let path = log_path(devices);
    let Ok(block) = block else { return Ok(Label::Bad("it cannot be read")) };
    match WalLabel::decode(&block) {
        Ok(label) if label.identity.store != sb.identity.store => Err(MountError::OtherStore {
            path,
            found: label.identity.store,
            wanted: sb.identity.store,
        }),
        Ok(_) => Ok(Label::Good),
        Err(NotSuper::NoMagic) => Ok(Label::Gone),
        Err(NotSuper::Newer { found, .. }) => Err(MountError::Newer { path, found, known: KNOWN }),
        Err(NotSuper::Damaged(what)) => Ok(Label::Bad(what)),
    }
}

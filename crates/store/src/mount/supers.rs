//! Finding the newest superblock.

use crate::config::{Devices, Expect};
use crate::error::MountError;
use crate::superblock::{FEATURES, KNOWN, LogPos, NotSuper, PLACES, Superblock, place, places_of};
use io::BLOCK_BYTES;
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

/// Where the log is needed from.
pub(crate) fn first_needed(sb: &Superblock) -> LogPos {
    if sb.rows.seq <= sb.blocks.seq { sb.rows } else { sb.blocks }
}

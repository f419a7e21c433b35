//! Reading what is stored, through what was fetched for this run.

use super::Stop;
use crate::object::{ObjectMeta, SNAPSET_ATTR, SnapSet};
use bytes::Bytes;
use denc::KnownCrc;
use store::{ReadSet, Store};
use types::{Errno, ObjectKey};
use wire::msg::Pieces;

/// An object as it is stored.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// Bytes.
    pub size: u64,
    /// The OSD's record.
    pub meta: ObjectMeta,
}

/// The store, and what was fetched from it for this run.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// The store.
    pub store: &'a Store,
    /// What was fetched.
    pub set: &'a ReadSet,
}

impl Reader<'_> {
    /// An object with its record.
    ///
    /// # Errors
    /// [`Stop::Miss`], or EIO when the record makes no sense.
    pub fn object(&self, key: &ObjectKey) -> Result<Option<StoredObject>, Stop> {
        let Some(stat) = self.store.stat(key)? else { return Ok(None) };
        let meta = ObjectMeta::decode(&stat.meta).map_err(|_| Errno::EIO)?;
        Ok(Some(StoredObject { size: stat.size, meta }))
    }

    /// The clones of a head that has some.
    ///
    /// # Errors
    /// [`Stop::Miss`], or EIO when the record makes no sense.
    pub fn snapset(&self, head: &ObjectKey) -> Result<SnapSet, Stop> {
        let bytes = self.store.attr(head, SNAPSET_ATTR)?.ok_or(Errno::EIO)?;
        Ok(denc::decode(&bytes).map_err(|_| Errno::EIO)?)
    }

    /// Bytes of an object, holes as zeros, up to its end.
    ///
    /// # Errors
    /// [`Stop::Miss`].
    pub fn read(&self, key: &ObjectKey, offset: u64, len: u64) -> Result<Pieces, Stop> {
        Ok(self.read_summed(key, offset, len)?.0)
    }

    /// The same, with the checksum of it all if it is at hand.
    ///
    /// # Errors
    /// [`Stop::Miss`].
    pub fn read_summed(
        &self,
        key: &ObjectKey,
        offset: u64,
        len: u64,
    ) -> Result<(Pieces, KnownCrc), Stop> {
        let pieces = self.store.read(key, offset, len, self.set)?;
        let crc = match &pieces[..] {
            [one] if one.data.is_some() => one.crc,
            _ => KnownCrc::NONE,
        };
        Ok((contents(pieces).collect(), crc))
    }

    /// The same as one piece.
    ///
    /// # Errors
    /// [`Stop::Miss`].
    pub fn read_whole(&self, key: &ObjectKey, offset: u64, len: u64) -> Result<Bytes, Stop> {
        Ok(joined(&self.read(key, offset, len)?))
    }
}

/// Pieces as one.
pub fn joined(pieces: &[Bytes]) -> Bytes {
    match pieces {
        [] => Bytes::new(),
        [one] => one.clone(),
        many => many.concat().into(),
    }
}

/// A run of zeros that holes are answered from.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The bytes of pieces in order, holes as zeros.
pub fn contents(pieces: Vec<store::Piece>) -> impl Iterator<Item = Bytes> {
    pieces.into_iter().flat_map(|piece| {
        let mut hole = if piece.data.is_some() { 0 } else { piece.len };
        let zeros = std::iter::from_fn(move || {
            let len = hole.min(ZEROS.len() as u64);
            hole -= len;
            (len > 0).then(|| Bytes::from_static(&ZEROS[..len as usize]))
        });
        piece.data.into_iter().chain(zeros)
    })
}

//! What a method can do with its object.

use bytes::Bytes;
use denc::DecodeError;
use types::{EntityAddr, EntityName, Errno, SnapId, UTime};

/// Why a method does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// It fails with this error, and the request with it.
    Fail(Errno),
    /// The host has to do something first; then it runs the request again from its beginning.
    Interrupted,
}

impl From<Errno> for CallError {
    fn from(e: Errno) -> Self {
        CallError::Fail(e)
    }
}

impl From<DecodeError> for CallError {
    /// Input, or something stored, that cannot be decoded.
    fn from(_: DecodeError) -> Self {
        CallError::Fail(Errno::EINVAL)
    }
}

/// What a method, or a step of it, comes to.
pub type CallResult<T> = Result<T, CallError>;

/// `None` for what is not there (ENOENT).
pub(crate) fn if_found<T>(result: CallResult<T>) -> CallResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(CallError::Fail(Errno::ENOENT)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Size and time of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Bytes.
    pub size: u64,
    /// When it was changed last.
    pub mtime: UTime,
}

/// Part of an omap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OmapPage {
    /// Keys and values, in order.
    pub entries: Vec<(Bytes, Bytes)>,
    /// Whether there are more.
    pub more: bool,
}

/// The object that a method is called on.
///
/// Reads see what was there before the request; of an object that is not there, nothing. A request
/// that only reads never gets here without an object. Changes fail with EPERM when the method is none
/// that writes.
pub trait Object {
    /// Size and time; `None` when the object is not there (operations of the same request count).
    fn stat(&mut self) -> CallResult<Option<Stat>>;

    /// Bytes from `offset` on, `len` at most, up to the end.
    fn read(&mut self, offset: u64, len: u64) -> CallResult<Bytes>;

    /// Makes the object if it is not there.
    ///
    /// # Errors
    /// EEXIST when it is there and must not be (`exclusive`).
    fn create(&mut self, exclusive: bool) -> CallResult<()>;

    /// Writes bytes at an offset; makes the object if need be.
    fn write(&mut self, offset: u64, data: Bytes) -> CallResult<()>;

    /// Makes these bytes the whole content.
    fn write_full(&mut self, data: Bytes) -> CallResult<()>;

    /// Makes a range read as zeros and frees its space; never makes the object longer.
    fn zero(&mut self, offset: u64, len: u64) -> CallResult<()>;

    /// Sets the size.
    fn truncate(&mut self, size: u64) -> CallResult<()>;

    /// Removes the object.
    fn remove(&mut self) -> CallResult<()>;

    /// An attribute.
    ///
    /// # Errors
    /// ENODATA without the attribute, ENOENT without an object.
    fn get_xattr(&mut self, name: &[u8]) -> CallResult<Bytes>;

    /// All attributes.
    fn get_xattrs(&mut self) -> CallResult<Vec<(Bytes, Bytes)>>;

    /// Sets an attribute; makes the object if need be.
    fn set_xattr(&mut self, name: &[u8], value: Bytes) -> CallResult<()>;

    /// Removes an attribute.
    fn remove_xattr(&mut self, name: &[u8]) -> CallResult<()>;

    /// The value of an omap key.
    ///
    /// # Errors
    /// ENOENT without the key or the object.
    fn omap_get(&mut self, key: &[u8]) -> CallResult<Bytes>;

    /// Entries after the key `after` (all if it is empty) that begin with `prefix`, at most `max`.
    fn omap_list(&mut self, after: &[u8], prefix: &[u8], max: u64) -> CallResult<OmapPage>;

    /// The omap header; empty when there is none.
    fn omap_header(&mut self) -> CallResult<Bytes>;

    /// Sets entries; makes the object if need be.
    fn omap_set(&mut self, entries: Vec<(Bytes, Bytes)>) -> CallResult<()>;

    /// Removes keys; those that are not there do not matter.
    ///
    /// # Errors
    /// ENOENT without an object.
    fn omap_remove(&mut self, keys: &[Bytes]) -> CallResult<()>;

    /// Removes all entries and the header.
    fn omap_clear(&mut self) -> CallResult<()>;

    /// Sets the omap header.
    fn omap_set_header(&mut self, header: Bytes) -> CallResult<()>;

    /// Who watches the object: names and addresses.
    fn watchers(&mut self) -> CallResult<Vec<(EntityName, EntityAddr)>>;

    /// Who calls: name and address.
    fn caller(&self) -> (EntityName, EntityAddr);

    /// The object's user version before the request.
    fn version(&self) -> u64;

    /// The newest snapshot that the object has been written after; zero for none, or no object.
    fn snap_seq(&self) -> SnapId;

    /// The time.
    fn now(&self) -> UTime;

    /// Random bytes.
    fn random(&mut self, out: &mut [u8]);
}

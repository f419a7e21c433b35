//! Object classes: methods that a client calls on an object and that run inside its OSD, atomically
//! with the other operations of the request (Ceph's `src/cls`, guide §6).
//!
//! A [`Method`] is a function of an [`Object`] and its input. It sees the object as it was before the
//! request, but for existence and size, which follow the request's operations; what it changes
//! becomes part of the request's transaction, and is dropped when the request fails.
//!
//! A method may be run several times before it counts: when the object is not in memory the host
//! answers [`CallError::Interrupted`], fetches what is missing and runs the whole request again. So a
//! method passes errors on at once (`?`) and keeps nothing between calls.

mod cas;
#[cfg(test)]
mod corpus;
mod hello;
#[cfg(test)]
mod hostile;
mod input;
mod journal;
mod lock;
mod numops;
mod object;
mod omap;
mod rbd;
mod refcount;
#[cfg(test)]
mod testing;
mod timeindex;
mod version;

pub use object::{CallError, CallResult, Object, OmapPage, Stat};

use bytes::Bytes;
use types::Errno;

/// What a method's function looks like: the object and the input to the output.
pub type Run = fn(&mut dyn Object, &Bytes) -> CallResult<Bytes>;

/// One method of a class.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Its class.
    pub class: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Whether it may change the object: the request is then a write.
    pub writes: bool,
    /// What it does.
    pub run: Run,
}

impl Method {
    /// One that only reads.
    pub const fn read(class: &'static str, name: &'static str, run: Run) -> Self {
        Method { class, name, writes: false, run }
    }

    /// One that reads and writes.
    pub const fn write(class: &'static str, name: &'static str, run: Run) -> Self {
        Method { class, name, writes: true, run }
    }
}

/// Every class, and its methods.
const CLASSES: &[(&str, &[Method])] = &[
    ("lock", lock::METHODS),
    ("rbd", rbd::METHODS),
    ("journal", journal::METHODS),
    ("refcount", refcount::METHODS),
    ("version", version::METHODS),
    ("numops", numops::METHODS),
    ("cas", cas::METHODS),
    ("timeindex", timeindex::METHODS),
    ("hello", hello::METHODS),
];

/// Finds a method.
///
/// # Errors
/// As Ceph's OSDs: EPERM when there is no such class, EOPNOTSUPP when it has no such method.
pub fn find(class: &[u8], method: &[u8]) -> Result<&'static Method, Errno> {
    let (_, methods) =
        CLASSES.iter().find(|(name, _)| name.as_bytes() == class).ok_or(Errno::EPERM)?;
    methods.iter().find(|m| m.name.as_bytes() == method).ok_or(Errno::EOPNOTSUPP)
}

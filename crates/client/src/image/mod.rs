//! Block images, on their own: what librbd 16.2 does, without it.
//!
//! [`Images`] keeps the open images of one [`Client`]. Like the client it is a state machine without
//! I/O: its owner submits requests, hands it the client's completions ([`Images::take`]) and the
//! time ([`Images::tick`]), and takes completions of its own out ([`Images::poll`]). What it stores
//! and says is what librbd stores and says, so both may have one image open at the same time.
//!
//! ```
//! use bytes::Bytes;
//! use client::image::{ImageOutcome, Images, OpenImage};
//! use client::{Client, ClientConfig};
//! use io::Now;
//! use types::{AddrVec, PoolId};
//!
//! let mon = AddrVec::msgr2("127.0.0.1:3300".parse().unwrap(), 0);
//! let mut client = Client::new(ClientConfig::new(vec![mon]), 1);
//! let mut images = Images::new(2);
//! let now = Now::default();
//! client.start(now);
//! images.open(now, &mut client, OpenImage::new(PoolId(2), "disk"));
//! // Later, after network events, every turn:
//! while let Some(completion) = client.poll() {
//!     let not_ours = images.take(now, &mut client, completion);
//!     assert!(not_ours.is_none());
//! }
//! while let Some(done) = images.poll() {
//!     if let ImageOutcome::Opened(Ok(image)) = done.outcome {
//!         images.write(now, &mut client, image, 0, Bytes::from_static(b"boot")).unwrap();
//!     }
//! }
//! ```
//!
//! **Promises.** A request ends with exactly one completion. A write that ended well is stored as the
//! cluster promises; a flush ends after all writes submitted before it. In which order requests are
//! done that overlap and are in flight together is not said, as with any disk. An image with the feature exclusive-lock
//! is written only under the lock, which is taken before the first write, given up when a peer asks
//! for it, and taken away only from a dead peer that was shut out of the cluster first.
//!
//! **Bounds.** Each image has at most [`ImagesConfig::max_ops`] requests and
//! [`ImagesConfig::max_bytes`] in flight; more are given back ([`ImageBusy`]).
//!
//! **The way of a write.** `io` cuts it at objects, `write` keeps the object map and changes the
//! object, `copyup` fills an object of a clone from the parent. With the map up to date a write within an
//! object is one request to one OSD. Everything longer (opening, the lock, snapshots, resizing) is a
//! `script`.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "sizes and offsets are checked where they come in: layout::MAX_IMAGE_BYTES"
)]

mod cookie;
mod copyup;
mod create;
mod create_types;
mod flatten;
mod flush;
#[allow(missing_docs, reason = "fields are those of Ceph's types, named in the text of each")]
mod format;
mod header;
mod info;
mod invalid;
mod io;
mod journal;
mod layout;
mod lists;
mod lock;
mod maintain;
mod notice;
mod object_map;
mod remove;
mod requests;
mod resize;
mod running;
mod script;
mod snapshot;
#[cfg(test)]
mod stage;
mod state;
mod trash;
mod watch;
mod wishes;
mod write;

pub use create_types::*;
pub use format::{SnapInfo, SnapKind, feature};
pub use info::{ImageInfo, SnapShown};
pub use maintain::Change;
pub use trash::{Trashed, TrashedImage};

use crate::error::ClientError;
use bytes::Bytes;
use script::Task;
use smallvec::SmallVec;
use state::Shared;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// Names an open image. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId {
    slot: usize,
    generation: u64,
}

/// Names a request on images. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageRequest(pub u64);

/// A request ended.
#[derive(Debug)]
pub struct ImageDone {
    /// Which one.
    pub id: ImageRequest,
    /// How.
    pub outcome: ImageOutcome,
}

/// What came of a request.
#[derive(Debug)]
pub enum ImageOutcome {
    /// Of [`Images::open`].
    Opened(Result<ImageId, ClientError>),
    /// Of [`Images::look`].
    Looked(Result<ImageInfo, ClientError>),
    /// Of [`Images::read`].
    Read(Result<ReadData, ClientError>),
    /// Of [`Images::create`] and [`Images::clone_image`]: the new image's id.
    Created(Result<String, ClientError>),
    /// Of [`Images::trashed`].
    Trashed(Result<Trashed, ClientError>),
    /// Of [`Images::list`]: ids by name.
    Listed(Result<BTreeMap<String, String>, ClientError>),
    /// Of [`Images::namespaces`].
    Names(Result<Vec<String>, ClientError>),
    /// Of everything else.
    Done(Result<(), ClientError>),
}

/// What was read: data where there is some, zeros elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadData {
    offset: u64,
    len: u64,
    segments: SmallVec<[(u64, Bytes); 1]>,
}

impl ReadData {
    fn new(offset: u64, len: u64, mut segments: SmallVec<[(u64, Bytes); 1]>) -> Self {
        if segments.len() > 1 {
            segments.sort_unstable_by_key(|(at, _)| *at);
        }
        ReadData { offset, len, segments }
    }

    /// Bytes that were asked for.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The data there is: place in the image, bytes. Between them is nothing but zeros.
    pub fn segments(&self) -> &[(u64, Bytes)] {
        &self.segments
    }

    /// All bytes, zeros included. Copied unless they lie in one piece.
    pub fn into_bytes(self) -> Bytes {
        if let [(at, data)] = self.segments.as_slice()
            && *at == self.offset
            && data.len() as u64 == self.len
        {
            return data.clone();
        }
        let mut all = vec![0; usize::try_from(self.len).unwrap_or(usize::MAX)];
        for (at, data) in &self.segments {
            let from = at.checked_sub(self.offset).and_then(|n| usize::try_from(n).ok());
            let place = from.and_then(|from| all.get_mut(from..from + data.len()));
            place.expect("what is read lies in the range").copy_from_slice(data);
        }
        all.into()
    }
}

/// Too much is in flight on the image: take completions, then submit this again.
#[derive(Debug, PartialEq, Eq)]
pub struct ImageBusy(
    /// What was to be written; empty for other requests.
    pub Bytes,
);

impl fmt::Display for ImageBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as many requests are in flight as an image may have")
    }
}

impl std::error::Error for ImageBusy {}

/// Settings of [`Images`].
#[derive(Clone, Copy, Debug)]
pub struct ImagesConfig {
    /// Requests in flight on one image.
    pub max_ops: usize,
    /// Bytes of those requests, written or asked for.
    pub max_bytes: usize,
    /// A change of an image fails with EBUSY when others keep its lock from it for so long at a time, and do nothing
    /// for it meanwhile. While it has the lock it takes as long as it does. `None`: it waits.
    pub patience: Option<Duration>,
}

impl Default for ImagesConfig {
    fn default() -> Self {
        ImagesConfig { max_ops: 1024, max_bytes: 64 << 20, patience: None }
    }
}

/// All images that are open on one client. See the module's text.
pub struct Images {
    shared: Rc<RefCell<Shared>>,
    tasks: Vec<Task>,
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Images({} open)", self.shared.borrow().images.len())
    }
}

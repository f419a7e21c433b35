//! The cluster store: a small transactional key-value store behind the mon.
//!
//! Keys and values are bytes, keys are ordered. The store has one version number that every commit
//! raises by one. A commit names the version it was made from and is refused when another mon
//! committed meanwhile (compare-and-commit), so that consensus is the store's affair, never ours.
//! A commit that succeeded is durable, and all its changes are seen together.

use bytes::Bytes;

/// Names an operation in flight; chosen by the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KvToken(pub u64);

/// Counts the commits of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KvVersion(pub u64);

/// Changes that happen together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvBatch {
    /// Set (`Some`) or remove (`None`), applied in order.
    pub changes: Vec<(Bytes, Option<Bytes>)>,
}

impl KvBatch {
    /// Sets a key.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.changes.push((key.into(), Some(value.into())));
    }

    /// Removes a key; a missing one is no error.
    pub fn remove(&mut self, key: impl Into<Bytes>) {
        self.changes.push((key.into(), None));
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// What to do.
#[derive(Clone, Debug)]
pub enum KvOp {
    /// All keys from `from` (inclusive) to `to` (exclusive), in order, at most `max`.
    Scan {
        /// First key.
        from: Bytes,
        /// End, not included.
        to: Bytes,
        /// At most so many.
        max: usize,
    },
    /// One key.
    Get {
        /// The key.
        key: Bytes,
    },
    /// How much room there is.
    Space,
    /// Apply `batch` if the store is still at `from`.
    Commit {
        /// The version the batch was made from.
        from: KvVersion,
        /// The changes.
        batch: KvBatch,
    },
}

/// Where the store lies, and how large it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvSpace {
    /// Of the store's files.
    pub store_bytes: u64,
    /// Of the file system that they are in.
    pub disk_bytes: u64,
    /// Of these what is free for us.
    pub available_bytes: u64,
}

/// How an operation ended.
#[derive(Debug)]
pub struct KvDone {
    /// The operation's token.
    pub token: KvToken,
    /// The answer.
    pub result: Result<KvAnswer, KvError>,
}

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvAnswer {
    /// Of a scan: the pairs, and the store's version they are from.
    Pairs(Vec<(Bytes, Bytes)>, KvVersion),
    /// Of a get.
    Value(Option<Bytes>),
    /// Of the room; `None` where that is not known, or not ours to watch.
    Space(Option<KvSpace>),
    /// The commit is durable; the store is now at this version.
    Committed(KvVersion),
    /// Another mon committed first; nothing was changed. The store is at this version.
    Conflict(KvVersion),
}

/// The store failed. A mon cannot go on: it ends, and never guesses whether a commit happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cluster store failed: {why}")]
pub struct KvError {
    /// What the store says.
    pub why: String,
    /// Whether its disk is full.
    pub is_full: bool,
}

/// A cluster store, as a runner drives it.
///
/// `submit` may block for the time of one local commit; a store across the network answers later,
/// through `poll`.
pub trait ClusterStore {
    /// Starts an operation. Operations are carried out in the order they are submitted.
    fn submit(&mut self, token: KvToken, op: KvOp);

    /// The next operation that has ended, if there is one.
    fn poll(&mut self) -> Option<KvDone>;
}

//! How requests end.

use crate::error::ClientError;
use crate::objecter::ListCursor;
use crate::reply::OpReply;
use bytes::Bytes;
use types::{Epoch, PoolId};
use wire::msg::op_data::{ListedObject, WatcherId};
use wire::msg::{MGetPoolStatsReply, MStatfsReply};

/// Names a request of this client. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request ended, or something happened to a watch.
#[derive(Debug)]
pub struct Completion {
    /// Which request.
    pub id: RequestId,
    /// How.
    pub outcome: Outcome,
}

/// What came of a request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is moved twice; a box would cost more")]
pub enum Outcome {
    /// Of [`Client::submit`](crate::Client::submit), and of an unwatch.
    Op(Result<OpReply, ClientError>),
    /// Of [`Client::list`](crate::Client::list).
    Page(Result<Page, ClientError>),
    /// Of a command to the mon or to an OSD. A command that ran and failed is an answer, too.
    Command(Result<CommandReply, ClientError>),
    /// Of a pool operation, once the map that shows it is here; a new snapshot's id for those that
    /// make one.
    PoolOp(Result<Option<u64>, ClientError>),
    /// Of [`Client::lookup_pool`](crate::Client::lookup_pool).
    Pool(Result<PoolId, ClientError>),
    /// Of [`Client::get_version`](crate::Client::get_version).
    Version(Result<MapVersions, ClientError>),
    /// Of [`Client::wait_for_map`](crate::Client::wait_for_map): the map that is here.
    Map(Result<Epoch, ClientError>),
    /// Of [`Client::pool_stats`](crate::Client::pool_stats).
    PoolStats(Result<MGetPoolStatsReply, ClientError>),
    /// Of [`Client::statfs`](crate::Client::statfs).
    Statfs(Result<MStatfsReply, ClientError>),
    /// The watch is registered, or could not be; in that case it is over.
    Watching(Result<(), ClientError>),
    /// Somebody notified the watched object: answer with
    /// [`Client::notify_ack`](crate::Client::notify_ack).
    Notified {
        /// Names the notify.
        notify_id: u64,
        /// The notifier's global id.
        notifier: u64,
        /// What it says.
        payload: Bytes,
    },
    /// The watch was lost (ENOTCONN): notifies may have been missed. It is not registered again by
    /// itself; unwatch it, and watch anew.
    WatchLost(ClientError),
    /// Of [`Client::notify`](crate::Client::notify).
    NotifyDone(Result<NotifyResult, ClientError>),
}

/// Objects of a pool, in the order of listings.
#[derive(Clone, Debug)]
pub struct Page {
    /// May be empty though there are more.
    pub objects: Vec<ListedObject>,
    /// Where to go on.
    pub next: ListCursor,
}

/// What a command gave.
#[derive(Clone, Debug)]
pub struct CommandReply {
    /// 0 or more, or a negative error number.
    pub status: i32,
    /// For people.
    pub outs: String,
    /// Output.
    pub data: Bytes,
}

/// Versions of a map that the mon has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapVersions {
    /// The newest one.
    pub newest: u64,
    /// The oldest one kept.
    pub oldest: u64,
}

/// What watchers answered to a notify.
#[derive(Clone, Debug, Default)]
pub struct NotifyResult {
    /// By watcher (global id, cookie): its answer.
    pub replies: Vec<(WatcherId, Bytes)>,
    /// Watchers that did not answer in time.
    pub missed: Vec<WatcherId>,
}

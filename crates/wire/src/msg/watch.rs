//! Notifications to watchers.

use super::{PRIORITY_DEFAULT, kind, payload};
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};

/// What a [`MWatchNotify`] says (`CEPH_WATCH_EVENT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// To a watcher: somebody notified the object.
    Notify,
    /// To the notifier: all watchers answered, or the time is over.
    NotifyComplete,
    /// To a watcher: the watch is gone.
    Disconnect,
}

impl Encode for WatchEvent {
    fn encode(&self, e: &mut Encoder) {
        let n: u8 = match self {
            WatchEvent::Notify => 1,
            WatchEvent::NotifyComplete => 2,
            WatchEvent::Disconnect => 3,
        };
        e.put(&n);
    }
}

impl Decode for WatchEvent {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match d.get::<u8>()? {
            1 => Ok(WatchEvent::Notify),
            2 => Ok(WatchEvent::NotifyComplete),
            3 => Ok(WatchEvent::Disconnect),
            _ => Err(d.invalid("an unknown watch event")),
        }
    }
}

/// MWatchNotify (44, version 3).
///
/// `u8 1, u8 event, u64 cookie, u64 ver, u64 notify_id, bl payload, i32 return_code,
/// u64 notifier_gid`; the data segment of a NOTIFY_COMPLETE is
/// [`NotifyReplies`](super::op_data::NotifyReplies).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MWatchNotify {
    /// What happened.
    pub event: WatchEvent,
    /// The receiver's: of its watch, or of its notify.
    pub cookie: u64,
    /// The object's user_version.
    pub version: u64,
    /// Names the notify: `epoch << 32 | seq`.
    pub notify_id: u64,
    /// What the notifier sent.
    pub payload: Bytes,
    /// Of a completion: 0 or -110.
    pub return_code: i32,
    /// Global id of the notifier.
    pub notifier_gid: u64,
    /// Of a completion: the replies.
    pub data: Bytes,
}

impl Encode for MWatchNotify {
    fn encode(&self, e: &mut Encoder) {
        e.put(&1u8).put(&self.event).put(&self.cookie);
        e.put(&self.version).put(&self.notify_id).put(&self.payload);
        e.put(&self.return_code).put(&self.notifier_gid);
    }
}

impl Decode for MWatchNotify {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.get::<u8>()?;
        Ok(MWatchNotify {
            event: d.get()?,
            cookie: d.get()?,
            version: d.get()?,
            notify_id: d.get()?,
            payload: d.get()?,
            return_code: d.get()?,
            notifier_gid: d.get()?,
            data: Bytes::new(),
        })
    }
}

payload!(MWatchNotify, kind::WATCH_NOTIFY, 3 / 1, PRIORITY_DEFAULT, data = data);

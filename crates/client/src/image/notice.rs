//! What clients of an image tell each other by notifies on its header
//! (`librbd/WatchNotifyTypes.cc`): `NotifyMessage V(7,1){u32 op, ...}`.

use super::format::SnapKind;
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use types::SnapId;

/// A client that has an image open: its global id and the number of its watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Peer {
    pub gid: u64,
    pub handle: u64,
}

/// Names a request to the lock's holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct AsyncId {
    pub peer: Peer,
    pub request: u64,
}

/// Something a peer asks the lock's holder to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    Flatten,
    Resize {
        size: u64,
        allow_shrink: bool,
    },
    SnapCreate {
        name: String,
        kind: SnapKind,
    },
    SnapRemove {
        name: String,
        kind: SnapKind,
    },
    SnapRename {
        snap: SnapId,
        name: String,
    },
    SnapProtect {
        name: String,
        kind: SnapKind,
    },
    SnapUnprotect {
        name: String,
        kind: SnapKind,
    },
    /// Something that we do not do for others; its number.
    Other(u32),
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    AcquiredLock(Peer),
    ReleasedLock(Peer),
    RequestLock(Peer),
    HeaderUpdate,
    AsyncProgress { id: AsyncId, offset: u64, total: u64 },
    AsyncComplete { id: AsyncId, result: i32 },
    Quiesce(AsyncId),
    Unquiesce(AsyncId),
    Wish(AsyncId, Wish),
}

const VERSION: u8 = 7;

mod op {
    pub const ACQUIRED_LOCK: u32 = 0;
    pub const RELEASED_LOCK: u32 = 1;
    pub const REQUEST_LOCK: u32 = 2;
    pub const HEADER_UPDATE: u32 = 3;
    pub const ASYNC_PROGRESS: u32 = 4;
    pub const ASYNC_COMPLETE: u32 = 5;
    pub const FLATTEN: u32 = 6;
    pub const RESIZE: u32 = 7;
    pub const SNAP_CREATE: u32 = 8;
    pub const SNAP_REMOVE: u32 = 9;
    pub const SNAP_RENAME: u32 = 11;
    pub const SNAP_PROTECT: u32 = 12;
    pub const SNAP_UNPROTECT: u32 = 13;
    pub const QUIESCE: u32 = 18;
    pub const UNQUIESCE: u32 = 19;
}

impl Notice {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut e = Encoder::new();
        e.section(VERSION, 1, |e| match self {
            Notice::AcquiredLock(peer) => drop(e.put(&op::ACQUIRED_LOCK).put(peer)),
            Notice::ReleasedLock(peer) => drop(e.put(&op::RELEASED_LOCK).put(peer)),
            Notice::RequestLock(peer) => drop(e.put(&op::REQUEST_LOCK).put(peer).put(&false)),
            Notice::HeaderUpdate => drop(e.put(&op::HEADER_UPDATE)),
            Notice::AsyncProgress { id, offset, total } => {
                e.put(&op::ASYNC_PROGRESS).put(id).put(offset).put(total);
            }
            Notice::AsyncComplete { id, result } => {
                e.put(&op::ASYNC_COMPLETE).put(id).put(result);
            }
            Notice::Quiesce(id) => drop(e.put(&op::QUIESCE).put(id)),
            Notice::Unquiesce(id) => drop(e.put(&op::UNQUIESCE).put(id)),
            Notice::Wish(id, wish) => wish.encode(*id, e),
        });
        e.into_bytes()
    }

    /// From its bytes; none at all are an old client's news of a changed header.
    ///
    /// # Errors
    /// When they are malformed.
    pub fn decode(bytes: &Bytes) -> Result<Notice, DecodeError> {
        if bytes.is_empty() {
            return Ok(Notice::HeaderUpdate);
        }
        Decoder::new(bytes).section(VERSION, |d, v| {
            let op: u32 = d.get()?;
            Ok(match op {
                op::ACQUIRED_LOCK => Notice::AcquiredLock(d.get()?),
                op::RELEASED_LOCK => Notice::ReleasedLock(d.get()?),
                op::REQUEST_LOCK => Notice::RequestLock(d.get()?),
                op::HEADER_UPDATE => Notice::HeaderUpdate,
                op::ASYNC_PROGRESS => {
                    Notice::AsyncProgress { id: d.get()?, offset: d.get()?, total: d.get()? }
                }
                op::ASYNC_COMPLETE => Notice::AsyncComplete { id: d.get()?, result: d.get()? },
                op::QUIESCE => Notice::Quiesce(d.get()?),
                op::UNQUIESCE => Notice::Unquiesce(d.get()?),
                // Before Pacific, some of the rest looked otherwise.
                op if v < VERSION => Notice::Wish(AsyncId::default(), Wish::Other(op)),
                op => Wish::decode(op, d)?,
            })
        })
    }
}

impl Wish {
    fn encode(&self, id: AsyncId, e: &mut Encoder) {
        let named = |e: &mut Encoder, op: u32, name: &str, kind: &SnapKind| {
            e.put(&op).put(name).put(kind).put(&id);
        };
        match self {
            Wish::Flatten => drop(e.put(&op::FLATTEN).put(&id)),
            Wish::Resize { size, allow_shrink } => {
                e.put(&op::RESIZE).put(size).put(&id).put(allow_shrink);
            }
            Wish::SnapCreate { name, kind } => {
                named(e, op::SNAP_CREATE, name, kind);
                e.put(&0u64);
            }
            Wish::SnapRemove { name, kind } => named(e, op::SNAP_REMOVE, name, kind),
            Wish::SnapRename { snap, name } => {
                e.put(&op::SNAP_RENAME).put(snap).put(name).put(&id);
            }
            Wish::SnapProtect { name, kind } => named(e, op::SNAP_PROTECT, name, kind),
            Wish::SnapUnprotect { name, kind } => named(e, op::SNAP_UNPROTECT, name, kind),
            Wish::Other(op) => drop(e.put(op).put(&id)),
        }
    }

    fn decode(op: u32, d: &mut Decoder<'_>) -> Result<Notice, DecodeError> {
        let wish = match op {
            op::FLATTEN => return Ok(Notice::Wish(d.get()?, Wish::Flatten)),
            op::RESIZE => {
                let (size, id) = (d.get()?, d.get()?);
                let wish = Wish::Resize { size, allow_shrink: d.get()? };
                return Ok(Notice::Wish(id, wish));
            }
            op::SNAP_CREATE => Wish::SnapCreate { name: d.get()?, kind: d.get()? },
            op::SNAP_REMOVE => Wish::SnapRemove { name: d.get()?, kind: d.get()? },
            op::SNAP_RENAME => Wish::SnapRename { snap: d.get()?, name: d.get()? },
            op::SNAP_PROTECT => Wish::SnapProtect { name: d.get()?, kind: d.get()? },
            op::SNAP_UNPROTECT => Wish::SnapUnprotect { name: d.get()?, kind: d.get()? },
            op => return Ok(Notice::Wish(AsyncId::default(), Wish::Other(op))),
        };
        Ok(Notice::Wish(d.get()?, wish))
    }
}

/// Answer to a notify: `ResponseMessage V(1,1){i32}`.
pub fn response(result: i32) -> Bytes {
    let mut e = Encoder::new();
    e.section(1, 1, |e| {
        e.put(&result);
    });
    e.into_bytes()
}

/// What an answer says; `None` of an empty or malformed one.
pub fn result_of(response: &Bytes) -> Option<i32> {
    let read = |bytes| Decoder::new(bytes).section(1, |d, _| d.get());
    read(response).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(hex: &str) -> Bytes {
        let digit = |i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    #[test]
    fn messages_are_those_of_librbd() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../vectors/enc/librbd__watch_notify__NotifyMessage.json"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let samples: Vec<Bytes> =
            text.split("\"hex\"").skip(1).map(|s| unhex(s.split('"').nth(1).unwrap())).collect();
        assert!(samples.len() > 15);
        let id = AsyncId { peer: Peer { gid: 0, handle: 1 }, request: 2 };
        for (i, bytes) in samples.iter().enumerate() {
            let notice = Notice::decode(bytes).unwrap();
            match &notice {
                Notice::Wish(_, Wish::Other(_)) => {}
                // The flags and "force" of the samples are 1, ours 0.
                Notice::RequestLock(_) | Notice::Wish(_, Wish::SnapCreate { .. }) => {
                    assert_eq!(notice.encode().len(), bytes.len(), "sample {i}");
                }
                _ => assert_eq!(notice.encode(), bytes, "sample {i}: {notice:?}"),
            }
            if let Notice::Wish(of, wish) = notice
                && !matches!(wish, Wish::Other(_))
            {
                assert_eq!(of, id);
            }
            for cut in 1..bytes.len() {
                assert!(Notice::decode(&bytes.slice(..cut)).is_err(), "sample {i} cut at {cut}");
            }
        }
        assert_eq!(response(1), unhex("01010400000001000000"));
        assert_eq!((result_of(&response(-95)), result_of(&Bytes::new())), (Some(-95), None));
    }
}

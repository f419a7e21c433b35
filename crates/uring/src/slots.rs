//! Who owns the memory of an operation in flight: its slot.

use crate::pool::PoolBuf;
use bytes::{Bytes, BytesMut};
use io::AlignedBuf;
use io::disk::DiskToken;
use io::net::{ListenAddr, ListenId};
use io_uring::types::Timespec;
use slab::Slab;
use smallvec::SmallVec;
use std::os::fd::OwnedFd;
use types::Mono;

/// Index of a connection or listener in the runner's tables.
pub(crate) type Index = usize;

/// What an entry in the ring is for, and everything the kernel may still touch for it.
pub(crate) enum Slot {
    Accept { listener: Index },
    AcceptPause { listener: Index, _after: Box<Timespec> },
    ListenPause { listen: Box<Listening>, _after: Box<Timespec> },
    Connect { conn: Index, _addr: Box<libc::sockaddr_storage> },
    Recv { conn: Index, buf: BytesMut },
    Fill { conn: Index, buf: AlignedBuf, from: usize },
    Watch { conn: Index },
    Send { conn: Index, msg: Box<SendMsg> },
    DiskRead { token: DiskToken, buf: ReadBuf },
    DiskWrite { token: DiskToken, wanted: usize, _data: WriteData },
    DiskFlush { token: DiskToken },
    DiskDiscard { token: DiskToken },
    Signal { _buf: Box<[u8; 8]> },
    Timeout { deadline: Mono, _after: Box<Timespec> },
    Cancel,
}

/// An address that is to be listened on, and seems to be in use.
pub(crate) struct Listening {
    pub id: ListenId,
    pub addr: ListenAddr,
    /// Until then it is tried again.
    pub until: Mono,
}

/// A gathered send: the header and the vector the kernel reads, and the bytes they point to.
pub(crate) struct SendMsg {
    pub header: libc::msghdr,
    pub pieces: Vec<libc::iovec>,
    pub data: SmallVec<[Bytes; 8]>,
}

/// Where the bytes of a disk read go.
pub(crate) enum ReadBuf {
    Own(AlignedBuf),
    Pool(PoolBuf),
}

impl ReadBuf {
    pub fn len(&self) -> usize {
        match self {
            ReadBuf::Own(buf) => buf.len(),
            ReadBuf::Pool(buf) => buf.len(),
        }
    }

    pub fn freeze(self) -> Bytes {
        match self {
            ReadBuf::Own(buf) => buf.freeze(),
            ReadBuf::Pool(buf) => Bytes::from_owner(buf),
        }
    }
}

/// The bytes of a disk write.
pub(crate) enum WriteData {
    Pieces { _pieces: SmallVec<[Bytes; 4]>, _vec: Vec<libc::iovec> },
    Copied { _buf: AlignedBuf },
}

/// All operations in flight. The ring's `user_data` is the index.
#[derive(Default)]
pub(crate) struct Slots {
    slab: Slab<Slot>,
}

impl Slots {
    pub fn insert(&mut self, slot: Slot) -> u64 {
        self.slab.insert(slot) as u64
    }

    pub fn get_mut(&mut self, key: u64) -> &mut Slot {
        &mut self.slab[key as usize]
    }

    pub fn remove(&mut self, key: u64) -> Slot {
        self.slab.remove(key as usize)
    }

    /// Whether disk operations are in flight.
    pub fn has_disk(&self) -> bool {
        self.slab.iter().any(|(_, s)| {
            matches!(s, Slot::DiskRead { .. } | Slot::DiskWrite { .. } | Slot::DiskFlush { .. })
        })
    }

    /// Their ring is gone. A disk may do yet what it was asked, and a socket send it: the memory of that is
    /// never given back. What a disk reads would else land in what it has become.
    pub fn abandon(&mut self) {
        for slot in self.slab.drain() {
            if matches!(slot, Slot::DiskRead { .. } | Slot::DiskWrite { .. } | Slot::Send { .. }) {
                std::mem::forget(slot);
            }
        }
    }
}

/// Keeps a descriptor until no operation uses it.
pub(crate) struct Socket {
    pub fd: OwnedFd,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    struct Data(Arc<[u8; 4]>);

    impl AsRef<[u8]> for Data {
        fn as_ref(&self) -> &[u8] {
            self.0.as_ref()
        }
    }

    #[test]
    fn what_a_disk_may_touch_yet_is_never_given_back() {
        let mut slots = Slots::default();
        let owner = Arc::new(*b"data");
        let data = Bytes::from_owner(Data(owner.clone()));
        let _data = WriteData::Pieces { _pieces: [data].into_iter().collect(), _vec: Vec::new() };
        slots.insert(Slot::DiskWrite { token: DiskToken(1), wanted: 4, _data });
        slots.insert(Slot::Signal { _buf: Box::new([0; 8]) });
        slots.abandon();
        assert!(slots.slab.is_empty());
        assert_eq!(Arc::strong_count(&owner), 2, "the data of the write");
    }
}

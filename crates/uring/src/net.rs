//! Listeners and connections of a run.

use crate::slots::{SendMsg, Socket};
use bytes::{Buf, Bytes, BytesMut};
use io::AlignedBuf;
use io::net::{ConnId, ListenAddr, ListenId, NetEvent, SendLimit};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

/// Pieces in one gathered send (Linux's UIO_MAXIOV is 1024; more than this brings nothing).
const SEND_PIECES: usize = 256;
/// First size of a connection's receive chunk. It doubles whenever a receive fills it.
const FIRST_CHUNK_BYTES: usize = 8 << 10;
/// Largest receive chunk.
const LARGEST_CHUNK_BYTES: usize = 256 << 10;
/// Connections waiting to be accepted.
const BACKLOG: i32 = 1024;

pub(crate) struct Listener {
    pub id: ListenId,
    pub socket: Socket,
    pub is_unix: bool,
    /// The last connection could not be accepted.
    pub fails: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Connecting,
    Open,
    /// The core closed it; what is queued still leaves, for a while.
    Draining,
    /// Nothing more is received, sent or told; it goes when no operation is in flight.
    Dead,
}

/// A buffer to be filled from the connection ([`io::net::NetOp::Fill`]).
pub(crate) struct Fill {
    pub buf: AlignedBuf,
    pub from: usize,
}

pub(crate) struct Conn {
    pub id: ConnId,
    pub socket: Socket,
    pub stage: Stage,
    pub in_flight: u32,
    pub receiving: bool,
    pub sending: bool,
    /// The socket took no more: the next send waits until it does.
    pub is_full: bool,
    pub paused: bool,
    /// It is waited for the peer to go.
    pub is_watched: bool,
    /// The last receive took all there was: the next one will have to wait.
    pub is_drained: bool,
    pub queue: VecDeque<Bytes>,
    pub queued_bytes: usize,
    pub send_limit: SendLimit,
    pub fill: Option<Fill>,
    pub spare: BytesMut,
    chunk_bytes: usize,
    /// The last send's, for the next one.
    spare_send: Option<Box<SendMsg>>,
}

impl Conn {
    pub fn new(id: ConnId, fd: OwnedFd, stage: Stage) -> Self {
        Conn {
            id,
            socket: Socket { fd },
            stage,
            in_flight: 0,
            receiving: false,
            sending: false,
            is_full: false,
            paused: false,
            is_watched: false,
            is_drained: false,
            queue: VecDeque::new(),
            queued_bytes: 0,
            send_limit: SendLimit::default(),
            fill: None,
            spare: BytesMut::new(),
            chunk_bytes: FIRST_CHUNK_BYTES,
            spare_send: None,
        }
    }

    pub fn raw(&self) -> i32 {
        self.socket.fd.as_raw_fd()
    }

    /// Whether a receive should be under way.
    pub fn wants_recv(&self) -> bool {
        self.stage == Stage::Open && !self.receiving && self.may_receive()
    }

    /// Whether it is to be waited for the peer to go: while nothing is received, nothing else tells.
    pub fn wants_watch(&self) -> bool {
        self.stage == Stage::Open && !self.receiving && !self.may_receive() && !self.is_watched
    }

    /// Whether anything is to be received.
    pub fn may_receive(&self) -> bool {
        !self.paused && !self.send_limit.is_over()
    }

    /// Whether a send should be under way.
    pub fn wants_send(&self) -> bool {
        let alive = matches!(self.stage, Stage::Open | Stage::Draining);
        alive && !self.sending && !self.queue.is_empty()
    }

    pub fn enqueue(&mut self, data: SmallVec<[Bytes; 4]>) {
        for piece in data.into_iter().filter(|p| !p.is_empty()) {
            self.queued_bytes += piece.len();
            self.queue.push_back(piece);
        }
    }

    /// What the core is to be told of what waits to be sent.
    pub fn backlog(&mut self) -> Option<NetEvent> {
        if self.stage != Stage::Open {
            return None;
        }
        let over = self.send_limit.note(self.queued_bytes)?;
        Some(NetEvent::Backlog { conn: self.id, over })
    }

    /// A buffer for the next receive.
    pub fn take_chunk(&mut self) -> BytesMut {
        let mut buf = std::mem::take(&mut self.spare);
        // A quarter left is enough; below that the rest is not worth a system call.
        if buf.capacity() - buf.len() < self.chunk_bytes / 4 {
            buf.reserve(self.chunk_bytes);
        }
        buf
    }

    /// After a receive of `n` bytes into `buf`: the bytes, and what is left for the next one.
    pub fn received(&mut self, mut buf: BytesMut, n: usize) -> Bytes {
        if n == buf.capacity() {
            self.chunk_bytes = (self.chunk_bytes * 2).min(LARGEST_CHUNK_BYTES);
        }
        let data = buf.split_to(n).freeze();
        self.spare = buf;
        data
    }

    /// What the next send takes from the queue. The pieces stay queued until they are sent.
    pub fn gather(&mut self) -> Box<SendMsg> {
        let mut msg = self.spare_send.take().unwrap_or_else(SendMsg::new);
        msg.fill(self.queue.iter().take(SEND_PIECES).cloned());
        msg
    }

    /// A send is over.
    pub fn put_back(&mut self, mut msg: Box<SendMsg>) {
        msg.fill(std::iter::empty());
        self.spare_send = Some(msg);
    }

    /// `n` bytes have left.
    pub fn sent(&mut self, mut n: usize) {
        self.queued_bytes -= n;
        while n > 0 {
            let first = self.queue.front_mut().expect("no more is sent than is queued");
            if first.len() > n {
                first.advance(n);
                return;
            }
            n -= first.len();
            self.queue.pop_front();
        }
    }
}

impl SendMsg {
    fn new() -> Box<Self> {
        // SAFETY: msghdr is plain data for which all zeroes means "nothing".
        let header = unsafe { std::mem::zeroed::<libc::msghdr>() };
        Box::new(SendMsg { header, pieces: Vec::new(), data: SmallVec::new() })
    }

    /// Has it send these instead of what it had.
    fn fill(&mut self, data: impl Iterator<Item = Bytes>) {
        self.data.clear();
        self.data.extend(data);
        let iov =
            |b: &Bytes| libc::iovec { iov_base: b.as_ptr().cast_mut().cast(), iov_len: b.len() };
        self.pieces.clear();
        self.pieces.extend(self.data.iter().map(iov));
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = self.pieces.len();
    }
}

/// A listening socket; the address it got.
pub(crate) fn listen(addr: &ListenAddr) -> rustix::io::Result<(OwnedFd, Option<SocketAddr>)> {
    match addr {
        ListenAddr::Tcp(addr) => {
            let fd = socket(family(addr))?;
            sockopt::set_socket_reuseaddr(&fd, true)?;
            rustix::net::bind(&fd, addr)?;
            rustix::net::listen(&fd, BACKLOG)?;
            let got = rustix::net::getsockname(&fd)?;
            Ok((fd, SocketAddr::try_from(got).ok()))
        }
        ListenAddr::Unix(path) => {
            let at = rustix::net::SocketAddrUnix::new(path)?;
            let fd = socket(AddressFamily::UNIX)?;
            remove_dead_socket(path, &at)?;
            rustix::net::bind(&fd, &at)?;
            rustix::net::listen(&fd, BACKLOG)?;
            Ok((fd, None))
        }
    }
}

/// Removes a socket that a process left behind when it ended. One that somebody serves stays, and what is no
/// socket does.
fn remove_dead_socket(
    path: &std::path::Path,
    at: &rustix::net::SocketAddrUnix,
) -> rustix::io::Result<()> {
    use rustix::io::Errno;
    let found = match rustix::fs::lstat(path) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(e),
    };
    if !rustix::fs::FileType::from_raw_mode(found.st_mode).is_socket() {
        return Err(Errno::ADDRINUSE);
    }
    // Whoever serves it may have no place for one more, which is no reason to wait.
    let probe = socket(AddressFamily::UNIX)?;
    rustix::io::ioctl_fionbio(&probe, true)?;
    match rustix::net::connect(&probe, at) {
        Err(Errno::CONNREFUSED) => rustix::fs::unlink(path),
        Err(Errno::NOENT) => Ok(()),
        Ok(()) | Err(_) => Err(Errno::ADDRINUSE),
    }
}

/// A socket to dial `addr` from.
pub(crate) fn dialler(addr: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let fd = socket(family(addr))?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    Ok(fd)
}

fn family(addr: &SocketAddr) -> AddressFamily {
    if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// The kernel's form of an address, and its length.
pub(crate) fn sockaddr(addr: &SocketAddr) -> (Box<libc::sockaddr_storage>, libc::socklen_t) {
    // SAFETY: sockaddr_storage is plain data for which all zeroes is valid.
    let mut storage = Box::new(unsafe { std::mem::zeroed::<libc::sockaddr_storage>() });
    let at: *mut libc::sockaddr_storage = &mut *storage;
    match addr {
        SocketAddr::V4(a) => {
            // SAFETY: sockaddr_storage is at least as large and as aligned as sockaddr_in.
            unsafe { at.cast::<libc::sockaddr_in>().write(sockaddr_in(a)) };
            (storage, size_of::<libc::sockaddr_in>() as libc::socklen_t)
        }
        SocketAddr::V6(a) => {
            // SAFETY: as above, for sockaddr_in6.
            unsafe { at.cast::<libc::sockaddr_in6>().write(sockaddr_in6(a)) };
            (storage, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
        }
    }
}

fn sockaddr_in(a: &SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: a.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(a.ip().octets()) },
        sin_zero: [0; 8],
    }
}

fn sockaddr_in6(a: &SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: a.port().to_be(),
        sin6_flowinfo: a.flowinfo(),
        sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
        sin6_scope_id: a.scope_id(),
    }
}

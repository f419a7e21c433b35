//! Connections: ordered bytes between two processes, over TCP or a Unix socket.
//!
//! A connection delivers its bytes in order and without gaps until it is closed; what was sent and
//! not yet received when it closes may be lost. [`NetEvent::Closed`] is the last event of a
//! connection that the peer or the network closed; after [`NetOp::Close`] no event follows.

use crate::AlignedBuf;
use bytes::Bytes;
use smallvec::SmallVec;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// One connection; see [`crate::Effects::new_conn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// One listening socket; chosen by the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenId(pub u32);

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddr {
    /// TCP; port 0 takes any free one.
    Tcp(SocketAddr),
    /// A Unix stream socket; a left-over file of that name is replaced.
    Unix(PathBuf),
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddr::Tcp(a) => a.fmt(f),
            ListenAddr::Unix(p) => p.display().fmt(f),
        }
    }
}

/// Pieces that are sent one after the other.
pub type SendBuf = SmallVec<[Bytes; 4]>;

/// What to do.
#[derive(Debug)]
pub enum NetOp {
    /// Accept connections. [`NetEvent::Listening`] or [`NetEvent::ListenFailed`] follows.
    Listen {
        /// Its name from now on.
        listen: ListenId,
        /// Where.
        addr: ListenAddr,
    },
    /// Dial. [`NetEvent::Connected`] or [`NetEvent::Closed`] follows.
    Connect {
        /// Its name from now on.
        conn: ConnId,
        /// To where.
        addr: SocketAddr,
    },
    /// Append to what is to be sent. All sends of one turn leave in one system call where possible.
    Send {
        /// The connection. Sending on a closed one does nothing.
        conn: ConnId,
        /// The bytes.
        data: SendBuf,
    },
    /// The next bytes of the connection go straight into `buf`, from `from` up to its length; then
    /// [`NetEvent::Filled`] hands it back and [`NetEvent::Received`] goes on. At most one is pending
    /// per connection.
    Fill {
        /// The connection.
        conn: ConnId,
        /// Where the bytes go.
        buf: AlignedBuf,
        /// How much of `buf` is filled already; below its length.
        from: usize,
    },
    /// Stop receiving: back-pressure. Bytes already received may still arrive as one event. Should the peer go, that is
    /// told all the same, and what it had sent before is lost.
    PauseRecv {
        /// The connection.
        conn: ConnId,
    },
    /// Receive again.
    ResumeRecv {
        /// The connection.
        conn: ConnId,
    },
    /// When more than `bytes` wait to be sent, receive nothing until half of them have left: a peer that
    /// does not read gets no more service. [`NetEvent::Backlog`] tells of both. Without it there is no
    /// limit (peers whose traffic is bounded otherwise).
    LimitSend {
        /// The connection.
        conn: ConnId,
        /// The bound.
        bytes: usize,
    },
    /// Close after what is queued has been sent, or at once.
    Close {
        /// The connection.
        conn: ConnId,
        /// Send what is queued first, within [`CLOSE_LINGER_MS`].
        drain: bool,
    },
}

/// How long a draining close may take before the rest is thrown away.
pub const CLOSE_LINGER_MS: u64 = 2_000;

/// The far end of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddr {
    /// A TCP peer.
    Tcp(SocketAddr),
    /// A local process on a Unix socket.
    Unix,
}

/// Something that happened on the network.
#[derive(Debug)]
pub enum NetEvent {
    /// A listening socket is ready.
    Listening {
        /// Which.
        listen: ListenId,
        /// The address it got (`None` for Unix sockets).
        addr: Option<SocketAddr>,
    },
    /// It could not be made.
    ListenFailed {
        /// Which.
        listen: ListenId,
        /// Positive error number (EADDRINUSE, ...).
        errno: i32,
    },
    /// A peer connected.
    Accepted {
        /// On which listening socket.
        listen: ListenId,
        /// The new connection.
        conn: ConnId,
        /// Who.
        peer: PeerAddr,
    },
    /// Dialling succeeded.
    Connected {
        /// The connection.
        conn: ConnId,
        /// Our end of it.
        local: SocketAddr,
    },
    /// Bytes came. Slices of them may be kept; they share one allocation with their neighbours.
    Received {
        /// The connection.
        conn: ConnId,
        /// At least one byte.
        data: Bytes,
    },
    /// The buffer of [`NetOp::Fill`] is full.
    Filled {
        /// The connection.
        conn: ConnId,
        /// The buffer.
        buf: AlignedBuf,
    },
    /// More waits to be sent than [`NetOp::LimitSend`] allows, or no longer.
    Backlog {
        /// The connection.
        conn: ConnId,
        /// Whether it does.
        over: bool,
    },
    /// The connection ended.
    Closed {
        /// Which.
        conn: ConnId,
        /// How.
        why: CloseReason,
    },
}

/// What a runner keeps of [`NetOp::LimitSend`] for each connection.
#[derive(Clone, Copy, Debug)]
pub struct SendLimit {
    bytes: usize,
    is_over: bool,
}

impl Default for SendLimit {
    fn default() -> Self {
        SendLimit { bytes: usize::MAX, is_over: false }
    }
}

impl SendLimit {
    /// The bound from now on.
    pub fn set(&mut self, bytes: usize) {
        self.bytes = bytes;
    }

    /// Whether nothing is to be received.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// So many bytes wait to be sent. Gives what [`NetEvent::Backlog`] is to tell, if anything.
    pub fn note(&mut self, queued_bytes: usize) -> Option<bool> {
        let part = if self.is_over { 2 } else { 1 };
        let over = queued_bytes > self.bytes / part;
        let changed = over != self.is_over;
        self.is_over = over;
        changed.then_some(over)
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer closed it.
    Eof,
    /// The kernel reports this (positive) error number: ECONNREFUSED, ECONNRESET, ...
    Os(i32),
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Eof => f.write_str("closed by the peer"),
            CloseReason::Os(e) => std::io::Error::from_raw_os_error(*e).fmt(f),
        }
    }
}

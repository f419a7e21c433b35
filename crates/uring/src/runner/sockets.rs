//! Connections: what the core asks of them, and what comes of it.

use super::{RunError, Runner};
use crate::net::{Conn, Fill, Listener, Stage, dialler, listen, sockaddr};
use crate::ring::Done;
use crate::slots::{Index, Listening, SendMsg, Slot, Socket};
use io::net::{CLOSE_LINGER_MS, CloseReason, ConnId, ListenAddr, NetEvent, NetOp, PeerAddr};
use io::{AlignedBuf, Event, Now};
use io_uring::{opcode, types as ring_types};
use rustix::net::sockopt;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;
use types::Mono;

/// A send of up to so many bytes completes while it is submitted, or not at all: sockets buffer more.
const SHORT_SEND_BYTES: usize = 32 << 10;
/// After a connection could not be accepted, it is tried again after so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// An address may seem to be in use when nobody uses it any more: the kernel keeps the sockets of a process that was
/// killed for some milliseconds, on a busy machine more. It is tried again for so long.
const LISTEN_LIMIT: Duration = Duration::from_secs(2);
const LISTEN_PAUSE: Duration = Duration::from_millis(10);
/// Of a receive: wait until there is something, without looking first (`IORING_RECVSEND_POLL_FIRST` in
/// io_uring.h).
const POLL_FIRST: u16 = 1;

/// Whether an operation ended before it did anything.
pub(super) fn is_to_be_repeated(result: i32) -> bool {
    result == -libc::EINTR || result == -libc::EAGAIN
}

impl Runner {
    pub(super) fn net_op(&mut self, now: Now, op: NetOp) -> Result<(), RunError> {
        match op {
            NetOp::Listen { listen: id, addr } => {
                let until = now.mono.after(LISTEN_LIMIT);
                self.try_to_listen(now.mono, Listening { id, addr, until })
            }
            NetOp::Connect { conn, addr } => self.connect(conn, addr),
            NetOp::Send { conn, data } => {
                let told = self.on_open(conn, |c| {
                    c.enqueue(data);
                    c.backlog()
                });
                self.pending.extend(told.flatten().map(Event::Net));
                Ok(())
            }
            NetOp::Fill { conn, buf, from } => {
                assert!(from < buf.len(), "a fill has something to fill");
                self.on_open(conn, |c| c.fill = Some(Fill { buf, from }));
                Ok(())
            }
            NetOp::PauseRecv { conn } => {
                self.on_open(conn, |c| c.paused = true);
                Ok(())
            }
            NetOp::ResumeRecv { conn } => {
                self.on_open(conn, |c| c.paused = false);
                Ok(())
            }
            NetOp::LimitSend { conn, bytes } => {
                self.on_open(conn, |c| c.send_limit.set(bytes));
                Ok(())
            }
            NetOp::Close { conn, drain } => {
                self.close(now, conn, drain);
                Ok(())
            }
        }
    }

    /// Does something to a connection the core still knows.
    fn on_open<R>(&mut self, id: ConnId, f: impl FnOnce(&mut Conn) -> R) -> Option<R> {
        let &index = self.by_id.get(&id)?;
        self.dirty.push(index);
        Some(f(&mut self.conns[index]))
    }

    pub(super) fn try_to_listen(&mut self, now: Mono, to: Listening) -> Result<(), RunError> {
        match listen(&to.addr) {
            Ok((fd, got)) => {
                let (id, is_unix) = (to.id, matches!(to.addr, ListenAddr::Unix(_)));
                let listener = Listener { id, socket: Socket { fd }, is_unix, fails: false };
                let index = self.listeners.insert(listener);
                self.arm_accept(index)?;
                self.pending.push_back(Event::Net(NetEvent::Listening { listen: id, addr: got }));
            }
            Err(rustix::io::Errno::ADDRINUSE) if now < to.until => {
                let after = Box::new(ring_types::Timespec::from(LISTEN_PAUSE));
                let at: *const ring_types::Timespec = &*after;
                let entry = opcode::Timeout::new(at).build();
                let listen = Box::new(to);
                self.push(entry, Slot::ListenPause { listen, _after: after })?;
            }
            Err(e) => {
                let (listen, errno) = (to.id, e.raw_os_error());
                self.pending.push_back(Event::Net(NetEvent::ListenFailed { listen, errno }));
            }
        }
        Ok(())
    }

    pub(super) fn arm_accept(&mut self, listener: Index) -> Result<(), RunError> {
        let fd = ring_types::Fd(self.listeners[listener].socket.fd.as_raw_fd());
        let entry = opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build();
        self.push(entry, Slot::Accept { listener })
    }

    /// Waits for connections again, after a while.
    fn arm_accept_later(&mut self, listener: Index) -> Result<(), RunError> {
        let after = Box::new(ring_types::Timespec::from(ACCEPT_PAUSE));
        let at: *const ring_types::Timespec = &*after;
        let entry = opcode::Timeout::new(at).build();
        self.push(entry, Slot::AcceptPause { listener, _after: after })
    }

    pub(super) fn accepted(&mut self, listener: Index, d: Done) -> Result<Option<Event>, RunError> {
        let failed = d.result < 0;
        let failed_before = std::mem::replace(&mut self.listeners[listener].fails, failed);
        if failed {
            // Most likely out of descriptors: who connects waits, and those who are connected go on.
            if !failed_before {
                let error = std::io::Error::from_raw_os_error(-d.result);
                tracing::warn!(
                    "a connection could not be accepted, it is tried again: {error}. Lacks the process \
                     file descriptors, it needs a higher limit (`LimitNOFILE` of systemd, `ulimit -n`)"
                );
            }
            if !d.more {
                self.arm_accept_later(listener)?;
            }
            return Ok(None);
        }
        if !d.more {
            self.arm_accept(listener)?;
        }
        // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(d.result) };
        let from = &self.listeners[listener];
        let (listen, is_unix) = (from.id, from.is_unix);
        let peer = if is_unix {
            PeerAddr::Unix
        } else {
            let addr = rustix::net::getpeername(&fd).ok().flatten();
            let Some(addr) = addr.and_then(|a| SocketAddr::try_from(a).ok()) else {
                return Ok(None);
            };
            if let Err(e) = sockopt::set_tcp_nodelay(&fd, true) {
                tracing::debug!("{addr}: TCP_NODELAY: {e}");
            }
            PeerAddr::Tcp(addr)
        };
        let conn = self.fx.new_conn();
        self.add_conn(conn, fd, Stage::Open);
        Ok(Some(Event::Net(NetEvent::Accepted { listen, conn, peer })))
    }

    fn add_conn(&mut self, id: ConnId, fd: OwnedFd, stage: Stage) -> Index {
        let index = self.conns.insert(Conn::new(id, fd, stage));
        self.by_id.insert(id, index);
        self.dirty.push(index);
        index
    }

    fn connect(&mut self, conn: ConnId, addr: SocketAddr) -> Result<(), RunError> {
        let fd = match dialler(&addr) {
            Ok(fd) => fd,
            Err(e) => {
                let why = CloseReason::Os(e.raw_os_error());
                self.pending.push_back(Event::Net(NetEvent::Closed { conn, why }));
                return Ok(());
            }
        };
        let index = self.add_conn(conn, fd, Stage::Connecting);
        let (storage, len) = sockaddr(&addr);
        let at: *const libc::sockaddr_storage = &*storage;
        let fd = ring_types::Fd(self.conns[index].raw());
        let entry = opcode::Connect::new(fd, at.cast(), len).build();
        self.conns[index].in_flight += 1;
        self.push(entry, Slot::Connect { conn: index, _addr: storage })
    }

    pub(super) fn connected(&mut self, index: Index, result: i32) -> Option<Event> {
        let conn = &mut self.conns[index];
        conn.in_flight -= 1;
        if conn.stage == Stage::Dead {
            self.reap(index);
            return None;
        }
        if result < 0 {
            return self.broken(index, CloseReason::Os(-result));
        }
        let local = rustix::net::getsockname(&conn.socket.fd).ok();
        let Some(local) = local.and_then(|a| SocketAddr::try_from(a).ok()) else {
            return self.broken(index, CloseReason::Os(libc::ENOTCONN));
        };
        conn.stage = Stage::Open;
        self.dirty.push(index);
        Some(Event::Net(NetEvent::Connected { conn: self.conns[index].id, local }))
    }

    /// How many bytes a receive brought (none: it is to be repeated), or what the core hears of the
    /// connection instead.
    fn receive_ended(&mut self, index: Index, d: Done) -> Result<usize, Option<Event>> {
        let (conn, result) = (&mut self.conns[index], d.result);
        conn.in_flight -= 1;
        conn.receiving = false;
        conn.is_drained = !d.has_rest;
        if conn.stage != Stage::Open {
            self.reap(index);
            return Err(None);
        }
        match usize::try_from(result) {
            Ok(n) if n > 0 => Ok(n),
            _ if is_to_be_repeated(result) => Ok(0),
            _ => Err(self.ended(index, result)),
        }
    }

    pub(super) fn received(
        &mut self,
        index: Index,
        buf: bytes::BytesMut,
        d: Done,
    ) -> Option<Event> {
        let n = match self.receive_ended(index, d) {
            Ok(n) => n,
            Err(event) => return event,
        };
        let conn = &mut self.conns[index];
        let mut buf = buf;
        // SAFETY: the kernel has filled the first `n` bytes of the spare capacity.
        unsafe { buf.set_len(n) };
        let data = conn.received(buf, n);
        let id = conn.id;
        self.dirty.push(index);
        (n > 0).then_some(Event::Net(NetEvent::Received { conn: id, data }))
    }

    pub(super) fn filled(
        &mut self,
        index: Index,
        buf: AlignedBuf,
        from: usize,
        d: Done,
    ) -> Option<Event> {
        let n = match self.receive_ended(index, d) {
            Ok(n) => n,
            Err(event) => return event,
        };
        let conn = &mut self.conns[index];
        let from = from + n;
        self.dirty.push(index);
        if from < buf.len() {
            conn.fill = Some(Fill { buf, from });
            return None;
        }
        Some(Event::Net(NetEvent::Filled { conn: conn.id, buf }))
    }

    /// The peer of a connection has gone. What it has sent before is of no use to anybody, if it is not to be received.
    pub(super) fn watched(&mut self, index: Index, result: i32) -> Option<Event> {
        let conn = &mut self.conns[index];
        conn.in_flight -= 1;
        conn.is_watched = false;
        if conn.stage != Stage::Open {
            self.reap(index);
            return None;
        }
        if conn.receiving || conn.may_receive() || is_to_be_repeated(result) {
            self.dirty.push(index);
            return None;
        }
        self.ended(index, result.min(0))
    }

    pub(super) fn sent(&mut self, index: Index, msg: Box<SendMsg>, result: i32) -> Option<Event> {
        let conn = &mut self.conns[index];
        conn.put_back(msg);
        conn.in_flight -= 1;
        conn.sending = false;
        if conn.stage == Stage::Dead {
            self.reap(index);
            return None;
        }
        conn.is_full = result == -libc::EAGAIN;
        let result = if is_to_be_repeated(result) { 0 } else { result };
        if result < 0 {
            return match conn.stage {
                Stage::Draining => {
                    self.kill(index);
                    None
                }
                _ => self.broken(index, CloseReason::Os(-result)),
            };
        }
        conn.sent(result as usize);
        if conn.queue.is_empty() && matches!(conn.stage, Stage::Draining) {
            self.kill(index);
            return None;
        }
        self.dirty.push(index);
        conn.backlog().map(Event::Net)
    }

    fn ended(&mut self, index: Index, result: i32) -> Option<Event> {
        let why = if result == 0 { CloseReason::Eof } else { CloseReason::Os(-result) };
        self.broken(index, why)
    }

    /// The connection is over; the core hears of it once.
    fn broken(&mut self, index: Index, why: CloseReason) -> Option<Event> {
        let conn = self.conns[index].id;
        self.kill(index);
        Some(Event::Net(NetEvent::Closed { conn, why }))
    }

    fn close(&mut self, now: Now, id: ConnId, drain: bool) {
        let Some(index) = self.by_id.remove(&id) else { return };
        let conn = &mut self.conns[index];
        if drain && conn.stage == Stage::Open && !conn.queue.is_empty() {
            conn.stage = Stage::Draining;
            let until = now.mono.after(Duration::from_millis(CLOSE_LINGER_MS));
            self.lingering.push((until, index, id));
            self.dirty.push(index);
        } else {
            self.kill(index);
        }
    }

    /// Ends a connection: what is in flight is cut short, and then it goes.
    fn kill(&mut self, index: Index) {
        let conn = &mut self.conns[index];
        self.by_id.remove(&conn.id);
        let connecting = conn.stage == Stage::Connecting;
        conn.stage = Stage::Dead;
        conn.queue.clear();
        conn.queued_bytes = 0;
        conn.fill = None;
        if conn.in_flight > 0 {
            // Receives and sends under way end at once. A dial does not: it must be cancelled.
            let _ = rustix::net::shutdown(&conn.socket.fd, rustix::net::Shutdown::Both);
            if connecting {
                let fd = ring_types::Fd(conn.raw());
                let by = ring_types::CancelBuilder::fd(fd).all();
                let entry = opcode::AsyncCancel2::new(by).build();
                if let Err(e) = self.push(entry, Slot::Cancel) {
                    tracing::warn!("a dial could not be cancelled: {e}");
                }
            }
        }
        self.reap(index);
    }

    fn reap(&mut self, index: Index) {
        let conn = &self.conns[index];
        if conn.stage == Stage::Dead && conn.in_flight == 0 {
            self.conns.remove(index);
        }
    }

    pub(super) fn end_lingering(&mut self, now: Now) {
        let mut lingering = std::mem::take(&mut self.lingering);
        lingering.retain(|&(until, index, id)| {
            let still =
                self.conns.get(index).is_some_and(|c| c.id == id && c.stage == Stage::Draining);
            if still && until <= now.mono {
                self.kill(index);
            }
            still && until > now.mono
        });
        self.lingering = lingering;
    }

    pub(super) fn start_transfers(&mut self) -> Result<(), RunError> {
        let mut dirty = std::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            let Some(conn) = self.conns.get_mut(index) else { continue };
            if conn.wants_send() {
                self.start_send(index)?;
            }
            let conn = &mut self.conns[index];
            if conn.wants_recv() {
                self.start_recv(index)?;
            } else if conn.wants_watch() {
                self.start_watch(index)?;
            }
        }
        self.dirty = dirty;
        Ok(())
    }

    fn start_send(&mut self, index: Index) -> Result<(), RunError> {
        let conn = &mut self.conns[index];
        let msg = conn.gather();
        let short = conn.queued_bytes <= SHORT_SEND_BYTES && !conn.is_full;
        self.short_sends += usize::from(short);
        conn.sending = true;
        conn.in_flight += 1;
        let fd = ring_types::Fd(conn.raw());
        let how = if short { libc::MSG_DONTWAIT } else { libc::MSG_WAITALL };
        let flags = (libc::MSG_NOSIGNAL | how) as u32;
        let entry = match &msg.pieces[..] {
            // The kernel need not look into a header and a vector for it.
            [one] if u32::try_from(one.iov_len).is_ok() => {
                let at = one.iov_base.cast_const().cast();
                opcode::Send::new(fd, at, one.iov_len as u32).flags(flags as i32).build()
            }
            _ => opcode::SendMsg::new(fd, &msg.header).flags(flags).build(),
        };
        self.push(entry, Slot::Send { conn: index, msg })
    }

    fn start_watch(&mut self, index: Index) -> Result<(), RunError> {
        let conn = &mut self.conns[index];
        conn.is_watched = true;
        conn.in_flight += 1;
        let fd = ring_types::Fd(conn.raw());
        // Errors and the end of both directions are told in any case.
        let entry = opcode::PollAdd::new(fd, libc::POLLRDHUP as u32).build();
        self.push(entry, Slot::Watch { conn: index })
    }

    fn start_recv(&mut self, index: Index) -> Result<(), RunError> {
        let conn = &mut self.conns[index];
        conn.receiving = true;
        conn.in_flight += 1;
        let fd = ring_types::Fd(conn.raw());
        let how = if conn.is_drained { POLL_FIRST } else { 0 };
        if let Some(Fill { mut buf, from }) = conn.fill.take() {
            let rest = &mut buf.as_mut_slice()[from..];
            let len = u32::try_from(rest.len()).unwrap_or(u32::MAX);
            let entry = opcode::Recv::new(fd, rest.as_mut_ptr(), len).flags(libc::MSG_WAITALL);
            return self.push(entry.ioprio(how).build(), Slot::Fill { conn: index, buf, from });
        }
        let mut buf = conn.take_chunk();
        let spare = buf.spare_capacity_mut();
        let len = u32::try_from(spare.len()).unwrap_or(u32::MAX);
        let entry = opcode::Recv::new(fd, spare.as_mut_ptr().cast(), len).ioprio(how).build();
        self.push(entry, Slot::Recv { conn: index, buf })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Options;

    /// A receive into a buffer that a signal cuts off, and one of bytes.
    #[test]
    fn a_receive_that_is_cut_off_is_repeated() {
        let mut runner = Runner::new(Vec::new(), None, &Options::default()).expect("a ring");
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let index = runner.add_conn(ConnId(1), ours.into(), Stage::Open);
        for result in [-libc::EINTR, -libc::EAGAIN] {
            let done = Done { key: 0, result, more: false, has_rest: false };
            let conn = &mut runner.conns[index];
            (conn.receiving, conn.in_flight) = (true, 1);
            let event = runner.filled(index, AlignedBuf::zeroed(4096), 7, done);
            assert!(event.is_none());
            let fill = runner.conns[index].fill.take().expect("the buffer is still to be filled");
            assert_eq!((fill.buf.len(), fill.from), (4096, 7));
            let conn = &mut runner.conns[index];
            (conn.receiving, conn.in_flight) = (true, 1);
            let chunk = conn.take_chunk();
            assert!(runner.received(index, chunk, done).is_none());
            assert!(runner.conns[index].wants_recv());
        }
    }

    /// A signal, or a full socket, breaks no connection.
    #[test]
    fn a_send_that_did_nothing_is_done_again() {
        let mut runner = Runner::new(Vec::new(), None, &Options::default()).expect("io_uring");
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let index = runner.add_conn(ConnId(1), ours.into(), Stage::Open);
        let piece = bytes::Bytes::from_static(b"piece");
        runner.conns[index].enqueue([piece].into_iter().collect());
        for result in [-libc::EINTR, -libc::EAGAIN] {
            let conn = &mut runner.conns[index];
            let msg = conn.gather();
            (conn.sending, conn.in_flight) = (true, 1);
            assert!(runner.sent(index, msg, result).is_none());
            let conn = &runner.conns[index];
            assert!(conn.wants_send() && conn.queued_bytes == 5);
            assert_eq!(conn.is_full, result == -libc::EAGAIN);
        }
    }
}

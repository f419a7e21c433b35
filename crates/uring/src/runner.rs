//! The loop.

use crate::device::Device;
use crate::net::{Conn, Fill, Listener, Stage, dialler, listen, sockaddr};
use crate::ring::{Done, Ring};
use crate::slots::{Index, Slot, Slots, Socket, WriteData};
use crate::timer::{Timers, until};
use bytes::Bytes;
use io::disk::{DevId, DiskDone, DiskError, DiskOp, DiskToken};
use io::kv::ClusterStore;
use io::net::{
    CLOSE_LINGER_MS, CloseReason, ConnId, ListenAddr, ListenId, NetEvent, NetOp, PeerAddr,
};
use io::{AlignedBuf, Core, Effects, Event, Exit, Now};
use io_uring::{opcode, squeue, types as ring_types};
use rustix::net::sockopt;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use types::{HashMap, Mono, UTime};

/// A send of up to so many bytes completes while it is submitted, or not at all: sockets buffer more.
const SHORT_SEND_BYTES: usize = 32 << 10;

/// Pieces that the kernel takes in one write.
const MAX_VECTORS: usize = 1024;

/// Settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Entries of the submission queue; a power of two.
    pub ring_entries: u32,
    /// Whether SIGTERM and SIGINT become [`Event::Stop`].
    pub handle_signals: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { ring_entries: 512, handle_signals: true }
    }
}

/// Why a run could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kernel gives us no ring.
    #[error(
        "io_uring is not available: {0}. Linux 6.1 or newer is needed, with \
         /proc/sys/kernel/io_uring_disabled at 0 and no seccomp filter (containers!) against it"
    )]
    NoRing(std::io::Error),
    /// The ring itself failed.
    #[error("io_uring failed: {0}")]
    Ring(#[from] std::io::Error),
}

/// Runs `core` until it asks for the end. `devices` are [`DevId`] 0, 1, ...
///
/// # Errors
/// When there is no ring, or it fails.
pub fn run<C: Core + ?Sized>(
    core: &mut C,
    devices: Vec<Device>,
    kv: Option<Box<dyn ClusterStore>>,
    options: &Options,
) -> Result<Exit, RunError> {
    let ring = Ring::new(options.ring_entries).map_err(RunError::NoRing)?;
    let mut runner = Runner {
        ring: Some(ring),
        slots: Slots::default(),
        clock: start_of_clock(),
        fx: Effects::new(),
        pending: VecDeque::new(),
        listeners: Slab::new(),
        conns: Slab::new(),
        by_id: HashMap::default(),
        dirty: Vec::new(),
        short_sends: 0,
        timers: Timers::default(),
        lingering: Vec::new(),
        devices,
        kv,
        signal: None,
    };
    if options.handle_signals {
        runner.watch_signals()?;
    }
    runner.run(core)
}

struct Runner {
    /// `None` only while the runner is dropped: the ring goes before the memory it may touch.
    ring: Option<Ring>,
    slots: Slots,
    clock: Instant,
    fx: Effects,
    /// Events that did not come through the ring.
    pending: VecDeque<Event>,
    listeners: Slab<Listener>,
    conns: Slab<Conn>,
    by_id: HashMap<ConnId, Index>,
    /// Connections that may want a receive or send started.
    dirty: Vec<Index>,
    /// Short sends of this turn.
    short_sends: usize,
    timers: Timers,
    /// Closed connections that may still send, and until when.
    lingering: Vec<(Mono, Index, ConnId)>,
    devices: Vec<Device>,
    kv: Option<Box<dyn ClusterStore>>,
    signal: Option<UnixStream>,
}

impl Drop for Runner {
    fn drop(&mut self) {
        drop(self.ring.take());
    }
}

impl Runner {
    fn now(&self) -> Now {
        let mono = Mono(self.clock.elapsed().as_nanos() as u64);
        Now { mono, wall: UTime::from_unix(wall_clock()) }
    }

    fn run<C: Core + ?Sized>(&mut self, core: &mut C) -> Result<Exit, RunError> {
        self.pending.push_back(Event::Start);
        let mut done = Vec::new();
        loop {
            let now = self.now();
            let mut told = false;
            while let Some(event) = self.pending.pop_front() {
                core.handle(now, event, &mut self.fx);
                told = true;
            }
            for d in done.drain(..) {
                if let Some(event) = self.complete(d)? {
                    core.handle(now, event, &mut self.fx);
                    told = true;
                }
            }
            if core.next_deadline().is_some_and(|at| at <= now.mono) {
                core.handle(now, Event::Timer, &mut self.fx);
                told = true;
            }
            // The end of a send, say, is none of the core's business.
            if told {
                core.end_turn(now, &mut self.fx);
            }
            self.carry_out(now)?;
            if let Some(exit) = self.fx.exit.take() {
                self.wind_down()?;
                return Ok(exit);
            }
            self.wait(core, now)?;
            self.ring().take(&mut done);
        }
    }

    /// Submits what was started, and waits for something that concerns the core.
    ///
    /// Short sends complete while they are submitted. Being woken for that alone would cost as much
    /// as a request, so they are waited for on top of one other event.
    fn wait<C: Core + ?Sized>(&mut self, core: &C, now: Now) -> Result<(), RunError> {
        let short_sends = std::mem::take(&mut self.short_sends);
        let lingering = self.lingering.iter().map(|(until, ..)| *until);
        let deadline = lingering.chain(core.next_deadline()).min();
        let is_due = deadline.is_some_and(|at| at <= now.mono);
        if is_due || !self.pending.is_empty() {
            return Ok(self.ring().submit_and_wait(0)?);
        }
        if let Some(deadline) = deadline {
            self.wake_at(now, deadline)?;
        }
        Ok(self.ring().submit_and_wait(1 + short_sends)?)
    }

    fn wake_at(&mut self, now: Now, deadline: Mono) -> Result<(), RunError> {
        if !self.timers.lacks(deadline) {
            return Ok(());
        }
        let after = until(now.mono, deadline);
        let at: *const ring_types::Timespec = &*after;
        let entry = opcode::Timeout::new(at).build();
        self.push(entry, Slot::Timeout { deadline, _after: after })
    }

    fn ring(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("the ring lives as long as the run")
    }

    fn watch_signals(&mut self) -> Result<(), RunError> {
        let (ours, theirs) = UnixStream::pair()?;
        for signal in [libc::SIGTERM, libc::SIGINT] {
            signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?;
        }
        self.signal = Some(ours);
        self.arm_signal()
    }

    fn arm_signal(&mut self) -> Result<(), RunError> {
        let Some(stream) = &self.signal else { return Ok(()) };
        let fd = ring_types::Fd(stream.as_raw_fd());
        let mut buf = Box::new([0; 8]);
        let entry = opcode::Recv::new(fd, buf.as_mut_ptr(), 8).build();
        self.push(entry, Slot::Signal { _buf: buf })
    }

    /// Queues an entry whose memory and descriptors are owned by `slot` (or by the table entry that
    /// `slot` names, which is kept while it has operations in flight).
    fn push(&mut self, entry: squeue::Entry, slot: Slot) -> Result<(), RunError> {
        let key = self.slots.insert(slot);
        let entry = entry.user_data(key);
        // SAFETY: `slot` owns what the entry names, and is kept until the last completion.
        unsafe { self.ring().push(&entry)? };
        Ok(())
    }

    /// Turns a completion into an event for the core.
    fn complete(&mut self, d: Done) -> Result<Option<Event>, RunError> {
        if let Slot::Accept { listener } = *self.slots.get_mut(d.key) {
            if !d.more {
                self.slots.remove(d.key);
            }
            return self.accepted(listener, d);
        }
        let event = match self.slots.remove(d.key) {
            Slot::Accept { .. } => None,
            Slot::Connect { conn, .. } => self.connected(conn, d.result),
            Slot::Recv { conn, buf } => self.received(conn, buf, d.result),
            Slot::Fill { conn, buf, from } => self.filled(conn, buf, from, d.result),
            Slot::Send { conn, .. } => self.sent(conn, d.result),
            Slot::DiskRead { token, buf } => {
                let wanted = buf.len();
                let result = transferred(d.result, wanted).map(|()| buf.freeze());
                Some(Event::Disk(DiskDone { token, result }))
            }
            Slot::DiskWrite { token, wanted, .. } => {
                let result = transferred(d.result, wanted).map(|()| Bytes::new());
                Some(Event::Disk(DiskDone { token, result }))
            }
            Slot::DiskFlush { token } => {
                let result = transferred(d.result, 0).map(|()| Bytes::new());
                Some(Event::Disk(DiskDone { token, result }))
            }
            // A hint: its failure is no error.
            Slot::DiskDiscard { token } => {
                Some(Event::Disk(DiskDone { token, result: Ok(Bytes::new()) }))
            }
            Slot::Signal { .. } => {
                self.arm_signal()?;
                Some(Event::Stop)
            }
            Slot::Timeout { deadline, .. } => {
                self.timers.over(deadline);
                None
            }
            Slot::Cancel => None,
        };
        Ok(event)
    }

    fn carry_out(&mut self, now: Now) -> Result<(), RunError> {
        let mut fx = std::mem::take(&mut self.fx);
        for op in fx.net.drain(..) {
            self.net_op(now, op)?;
        }
        for (token, op) in fx.disk.drain(..) {
            self.disk_op(token, op)?;
        }
        for (token, op) in fx.kv.drain(..) {
            let kv = self.kv.as_mut().expect("a core without a cluster store asks nothing of it");
            kv.submit(token, op);
        }
        while let Some(done) = self.kv.as_mut().and_then(|kv| kv.poll()) {
            self.pending.push_back(Event::Kv(done));
        }
        self.fx = fx;
        self.end_lingering(now);
        self.start_transfers()
    }

    fn net_op(&mut self, now: Now, op: NetOp) -> Result<(), RunError> {
        match op {
            NetOp::Listen { listen: id, addr } => self.listen(id, &addr),
            NetOp::Connect { conn, addr } => self.connect(conn, addr),
            NetOp::Send { conn, data } => {
                self.on_open(conn, |c| c.enqueue(data));
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
                self.on_open(conn, |c| c.send_limit_bytes = bytes);
                Ok(())
            }
            NetOp::Close { conn, drain } => {
                self.close(now, conn, drain);
                Ok(())
            }
        }
    }

    /// Does something to a connection the core still knows.
    fn on_open(&mut self, id: ConnId, f: impl FnOnce(&mut Conn)) {
        if let Some(&index) = self.by_id.get(&id) {
            f(&mut self.conns[index]);
            self.dirty.push(index);
        }
    }

    fn listen(&mut self, id: ListenId, addr: &ListenAddr) -> Result<(), RunError> {
        match listen(addr) {
            Ok((fd, got)) => {
                let is_unix = matches!(addr, ListenAddr::Unix(_));
                let listener = Listener { id, socket: Socket { fd }, is_unix };
                let index = self.listeners.insert(listener);
                self.arm_accept(index)?;
                self.pending.push_back(Event::Net(NetEvent::Listening { listen: id, addr: got }));
            }
            Err(e) => {
                let errno = e.raw_os_error();
                self.pending.push_back(Event::Net(NetEvent::ListenFailed { listen: id, errno }));
            }
        }
        Ok(())
    }

    fn arm_accept(&mut self, listener: Index) -> Result<(), RunError> {
        let fd = ring_types::Fd(self.listeners[listener].socket.fd.as_raw_fd());
        let entry = opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build();
        self.push(entry, Slot::Accept { listener })
    }

    fn accepted(&mut self, listener: Index, d: Done) -> Result<Option<Event>, RunError> {
        if !d.more {
            self.arm_accept(listener)?;
        }
        if d.result < 0 {
            // Most likely out of descriptors: the peer is refused, others go on.
            let error = std::io::Error::from_raw_os_error(-d.result);
            tracing::warn!("a connection could not be accepted: {error}");
            return Ok(None);
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

    fn connected(&mut self, index: Index, result: i32) -> Option<Event> {
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

    fn received(&mut self, index: Index, buf: bytes::BytesMut, result: i32) -> Option<Event> {
        let conn = &mut self.conns[index];
        conn.in_flight -= 1;
        conn.receiving = false;
        if conn.stage != Stage::Open {
            self.reap(index);
            return None;
        }
        if result <= 0 {
            return self.ended(index, result);
        }
        let mut buf = buf;
        let n = result as usize;
        // SAFETY: the kernel has filled the first `n` bytes of the spare capacity.
        unsafe { buf.set_len(n) };
        let data = conn.received(buf, n);
        let id = conn.id;
        self.dirty.push(index);
        Some(Event::Net(NetEvent::Received { conn: id, data }))
    }

    fn filled(&mut self, index: Index, buf: AlignedBuf, from: usize, res: i32) -> Option<Event> {
        let conn = &mut self.conns[index];
        conn.in_flight -= 1;
        conn.receiving = false;
        if conn.stage != Stage::Open {
            self.reap(index);
            return None;
        }
        if res <= 0 {
            return self.ended(index, res);
        }
        let from = from + res as usize;
        self.dirty.push(index);
        if from < buf.len() {
            conn.fill = Some(Fill { buf, from });
            return None;
        }
        Some(Event::Net(NetEvent::Filled { conn: conn.id, buf }))
    }

    fn sent(&mut self, index: Index, result: i32) -> Option<Event> {
        let conn = &mut self.conns[index];
        conn.in_flight -= 1;
        conn.sending = false;
        if conn.stage == Stage::Dead {
            self.reap(index);
            return None;
        }
        conn.is_full = result == -libc::EAGAIN;
        let result = if conn.is_full { 0 } else { result };
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
        None
    }

    fn ended(&mut self, index: Index, result: i32) -> Option<Event> {
        if result == -libc::EINTR || result == -libc::EAGAIN {
            self.dirty.push(index);
            return None;
        }
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

    fn end_lingering(&mut self, now: Now) {
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

    fn start_transfers(&mut self) -> Result<(), RunError> {
        let mut dirty = std::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            let Some(conn) = self.conns.get_mut(index) else { continue };
            if conn.wants_send() {
                self.start_send(index)?;
            }
            let conn = &mut self.conns[index];
            if conn.wants_recv() {
                self.start_recv(index)?;
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
        let entry = opcode::SendMsg::new(fd, &msg.header).flags(flags).build();
        self.push(entry, Slot::Send { conn: index, _msg: msg })
    }

    fn start_recv(&mut self, index: Index) -> Result<(), RunError> {
        let conn = &mut self.conns[index];
        conn.receiving = true;
        conn.in_flight += 1;
        let fd = ring_types::Fd(conn.raw());
        if let Some(Fill { mut buf, from }) = conn.fill.take() {
            let rest = &mut buf.as_mut_slice()[from..];
            let len = u32::try_from(rest.len()).unwrap_or(u32::MAX);
            let entry = opcode::Recv::new(fd, rest.as_mut_ptr(), len).flags(libc::MSG_WAITALL);
            return self.push(entry.build(), Slot::Fill { conn: index, buf, from });
        }
        let mut buf = conn.take_chunk();
        let spare = buf.spare_capacity_mut();
        let len = u32::try_from(spare.len()).unwrap_or(u32::MAX);
        let entry = opcode::Recv::new(fd, spare.as_mut_ptr().cast(), len).build();
        self.push(entry, Slot::Recv { conn: index, buf })
    }

    fn disk_op(&mut self, token: DiskToken, op: DiskOp) -> Result<(), RunError> {
        match op {
            DiskOp::Read { dev, offset, len } => {
                let mut buf = AlignedBuf::for_overwrite(len);
                let at = buf.as_mut_slice().as_mut_ptr();
                let entry = opcode::Read::new(self.dev(dev), at, len as u32).offset(offset).build();
                self.push(entry, Slot::DiskRead { token, buf })
            }
            DiskOp::Write { dev, offset, data, durable } => {
                self.disk_write(token, dev, offset, data, durable)
            }
            DiskOp::Flush { dev } => {
                let flags = ring_types::FsyncFlags::DATASYNC;
                let entry = opcode::Fsync::new(self.dev(dev)).flags(flags).build();
                self.push(entry, Slot::DiskFlush { token })
            }
            DiskOp::Discard { dev, offset, len } => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                let entry = opcode::Fallocate::new(self.dev(dev), len).offset(offset).mode(mode);
                self.push(entry.build(), Slot::DiskDiscard { token })
            }
        }
    }

    fn dev(&self, dev: DevId) -> ring_types::Fd {
        let device = self.devices.get(usize::from(dev.0)).expect("a core uses only its devices");
        ring_types::Fd(device.raw())
    }

    fn disk_write(
        &mut self,
        token: DiskToken,
        dev: DevId,
        offset: u64,
        data: SmallVec<[Bytes; 4]>,
        durable: bool,
    ) -> Result<(), RunError> {
        let wanted: usize = data.iter().map(Bytes::len).sum();
        let flags = if durable { libc::RWF_DSYNC } else { 0 };
        let fd = self.dev(dev);
        let vec = vectors(&data);
        if data.iter().all(|p| AlignedBuf::is_aligned(p)) && vec.len() <= MAX_VECTORS {
            let entry = opcode::Writev::new(fd, vec.as_ptr(), vec.len() as u32);
            let entry = entry.offset(offset).rw_flags(flags).build();
            let _data = WriteData::Pieces { _pieces: data, _vec: vec };
            return self.push(entry, Slot::DiskWrite { token, wanted, _data });
        }
        let mut buf = AlignedBuf::for_overwrite(wanted);
        let mut rest = buf.as_mut_slice();
        for piece in &data {
            let (here, there) = rest.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            rest = there;
        }
        let at = buf.as_slice().as_ptr();
        let entry = opcode::Write::new(fd, at, wanted as u32).offset(offset).rw_flags(flags);
        let _data = WriteData::Copied { _buf: buf };
        self.push(entry.build(), Slot::DiskWrite { token, wanted, _data })
    }

    /// The last sends leave and disk operations end, within the linger time.
    fn wind_down(&mut self) -> Result<(), RunError> {
        let until = self.now().mono.after(Duration::from_millis(CLOSE_LINGER_MS));
        let mut done = Vec::new();
        loop {
            let sending = self.conns.iter().any(|(_, c)| c.sending || c.wants_send());
            let now = self.now();
            if (!sending && !self.slots.has_disk()) || now.mono >= until || self.slots.is_empty() {
                return Ok(());
            }
            self.start_transfers()?;
            self.wake_at(now, until)?;
            self.ring().submit_and_wait(1)?;
            self.ring().take(&mut done);
            for d in done.drain(..) {
                self.complete(d)?;
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the clocks")]
fn start_of_clock() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the clocks")]
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// What a vectored write is told of `data`; pieces that are neighbours in memory are one.
fn vectors(data: &[Bytes]) -> Vec<libc::iovec> {
    let mut out: Vec<libc::iovec> = Vec::with_capacity(data.len());
    for piece in data {
        match out.last_mut() {
            Some(last) if last.iov_base.addr() + last.iov_len == piece.as_ptr().addr() => {
                last.iov_len += piece.len();
            }
            _ => out.push(libc::iovec {
                iov_base: piece.as_ptr().cast_mut().cast(),
                iov_len: piece.len(),
            }),
        }
    }
    out
}

fn transferred(result: i32, wanted: usize) -> Result<(), DiskError> {
    match usize::try_from(result) {
        Err(_) => Err(DiskError::Os(-result)),
        Ok(done) if done < wanted => Err(DiskError::Short { done, wanted }),
        Ok(_) => Ok(()),
    }
}

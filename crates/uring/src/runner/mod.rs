//! The loop.

mod clock;
mod disk;
mod late;
mod lone;
mod sockets;

use crate::device::Device;
use crate::memory::resident_bytes;
use crate::net::{Conn, Listener};
use crate::pool::ReadPool;
use crate::ring::{Done, Ring};
use crate::signals::{Signals, is_stop_wanted};
use crate::slots::{Index, Slot, Slots};
use crate::timer::{Timers, until};
use bytes::Bytes;
use clock::Clock;
use disk::{Lazy, transferred};
use io::disk::DiskDone;
use io::kv::ClusterStore;
use io::net::{CLOSE_LINGER_MS, ConnId};
use io::{Core, Effects, Event, Exit, Memory, Now};
use io_uring::{opcode, squeue, types as ring_types};
use late::{Lateness, tell_late};
use lone::Lone;
use slab::Slab;
use sockets::is_to_be_repeated;
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::time::Duration;
use types::{HashMap, Mono};

/// Entries of the submission queue for writes that nobody waits for.
const LAZY_ENTRIES: u32 = 128;

/// Completions that one turn takes up. What they bring about is on its way before the next are looked at:
/// a disk that answers much at once would have nothing to do until all of that is dealt with. A turn costs
/// little, being woken is dear, and for those that are left nobody is woken.
const TURN_COMPLETIONS: usize = 12;

/// How often memory that nobody needed is given back, and the core told how much the process takes, at most.
const GIVE_BACK: Duration = Duration::from_secs(1);
/// A core is told of so much more memory for buffers at once, in bytes.
const MORE_BUFFERS: usize = 4 << 20;

/// Settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Entries of the submission queue; a power of two.
    pub ring_entries: u32,
    /// Whether SIGTERM and SIGINT become [`Event::Stop`], also those that came between two runs.
    pub handle_signals: bool,
    /// Opens the log's file anew ([`Effects::reopen_log`]), if there is a log that goes to a file.
    pub reopen_log: Option<fn()>,
}

impl Default for Options {
    fn default() -> Self {
        Options { ring_entries: 512, handle_signals: true, reopen_log: None }
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
    raise_descriptor_limit();
    let mut runner = Runner::new(devices, kv, options)?;
    if options.handle_signals {
        runner.watch_signals()?;
    }
    runner.run(core)
}

/// Each connection takes a descriptor: as many as the process may have. What a session of a login or systemd
/// gives at first, 1024, is for programs that use `select`.
fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(why) = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit) {
            tracing::warn!("the limit of open files stays as it is: {why}");
        }
    }
}

/// Memory for short reads, if the kernel takes it.
fn read_pool(ring: &mut Ring) -> Option<ReadPool> {
    let pool = ReadPool::new();
    // SAFETY: the runner, which gets both, drops its rings before the pool.
    match unsafe { ring.register(pool.all()) } {
        Ok(()) => Some(pool),
        Err(why) => {
            tracing::debug!("reads cost more than they could: no memory is registered: {why}");
            None
        }
    }
}

struct Rings {
    main: Ring,
    /// Writes that nobody waits for.
    lazy: Ring,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Main,
    Lazy,
}

struct Runner {
    /// `None` only while the runner is dropped: the rings go before the memory they may touch.
    rings: Option<Rings>,
    lazy: Lazy,
    lone: Lone,
    lateness: Lateness,
    /// Memory for short reads, if the kernel takes it.
    pool: Option<ReadPool>,
    slots: Slots,
    clock: Clock,
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
    signals: Option<Signals>,
    reopen_log: Option<fn()>,
    give_back_at: Mono,
    /// Memory of buffers when the core was last told of it, in bytes.
    told_buffers: usize,
}

impl Drop for Runner {
    fn drop(&mut self) {
        // The kernel lets go of a ring some time after it was closed, and keeps the sockets on which it accepts
        // until then. Whoever comes next would find their addresses in use.
        for (_, listener) in &self.listeners {
            let _ = rustix::net::shutdown(&listener.socket.fd, rustix::net::Shutdown::Both);
        }
        drop(self.rings.take());
        self.slots.abandon();
    }
}

impl Runner {
    fn new(
        devices: Vec<Device>,
        kv: Option<Box<dyn ClusterStore>>,
        options: &Options,
    ) -> Result<Self, RunError> {
        let mut main = Ring::new(options.ring_entries).map_err(RunError::NoRing)?;
        let lazy = Ring::new(LAZY_ENTRIES).map_err(RunError::NoRing)?;
        // Who has no disk reads nothing.
        let pool = if devices.is_empty() { None } else { read_pool(&mut main) };
        Ok(Runner {
            pool,
            rings: Some(Rings { main, lazy }),
            lazy: Lazy::default(),
            lone: Lone::default(),
            lateness: Lateness::default(),
            slots: Slots::default(),
            clock: Clock::start(),
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
            signals: None,
            reopen_log: options.reopen_log,
            give_back_at: Mono(0),
            told_buffers: 0,
        })
    }

    fn mono(&self) -> Mono {
        self.clock.mono()
    }

    fn now(&self) -> Now {
        self.clock.now()
    }

    fn run<C: Core + ?Sized>(&mut self, core: &mut C) -> Result<Exit, RunError> {
        self.pending.push_back(Event::Start);
        // It came when nobody was there to be told.
        self.pending.extend((self.signals.is_some() && is_stop_wanted()).then_some(Event::Stop));
        let mut done = Vec::new();
        loop {
            let now = self.now();
            tell_late(self.lateness.wakes(now.mono));
            self.give_back(now.mono);
            self.take_lazy(now, &mut done)?;
            let mut told = false;
            while let Some(event) = self.pending.pop_front() {
                core.handle(now, event, &mut self.fx);
                told = true;
            }
            let taken = done.len().min(TURN_COMPLETIONS);
            for d in done.drain(..taken) {
                if let Some(event) = self.complete(now.mono, d)? {
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
                self.wind_down(done)?;
                return Ok(exit);
            }
            self.submit(core, now, !done.is_empty())?;
            self.rings().main.take(&mut done);
        }
    }

    /// Gives memory back every now and then, and tells the core what the process takes.
    fn give_back(&mut self, now: Mono) {
        let is_time = now >= self.give_back_at;
        if is_time {
            self.give_back_at = now.after(GIVE_BACK);
            io::give_back();
        }
        let buffers = io::buffer_bytes();
        if !is_time && buffers < self.told_buffers + MORE_BUFFERS {
            return;
        }
        self.told_buffers = buffers;
        let buffers = buffers as u64;
        let memory =
            resident_bytes(std::process::id()).map(|resident| Memory { resident, buffers });
        self.pending.extend(memory.map(Event::Memory));
    }

    /// Submits what was started, and waits for something that concerns the core, unless there is already:
    /// `more` completions that were not looked at.
    ///
    /// Short sends complete while they are submitted. Being woken for that alone would cost as much
    /// as a request, so they are waited for on top of one other event.
    fn submit<C: Core + ?Sized>(&mut self, core: &C, now: Now, more: bool) -> Result<(), RunError> {
        self.submit_lazy(now)?;
        let short_sends = std::mem::take(&mut self.short_sends);
        if more {
            return Ok(self.rings().main.submit_and_wait(0)?);
        }
        let lingering = self.lingering.iter().map(|(until, ..)| *until);
        let deadline = lingering.chain(core.next_deadline()).chain(self.lazy.look_at).min();
        let deadline = if self.pending.is_empty() { deadline } else { Some(now.mono) };
        let over = self.mono();
        tell_late(self.lateness.sleeps(now.mono, over, deadline));
        if deadline.is_some_and(|at| at <= now.mono) {
            return Ok(self.rings().main.submit_and_wait(0)?);
        }
        if let Some(deadline) = deadline {
            self.wake_at(now, deadline)?;
        }
        self.look_for_lone_read()?;
        Ok(self.rings().main.submit_and_wait(1 + short_sends)?)
    }

    /// Does not sleep for a moment, if all that is awaited is one read of the disk.
    fn look_for_lone_read(&mut self) -> Result<(), RunError> {
        let Some(until) = self.lone.look_until() else { return Ok(()) };
        self.rings().main.submit_and_wait(0)?;
        while !self.rings().main.has_news() && self.mono() < until {
            std::thread::yield_now();
        }
        Ok(())
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

    fn rings(&mut self) -> &mut Rings {
        self.rings.as_mut().expect("the rings live as long as the run")
    }

    fn watch_signals(&mut self) -> Result<(), RunError> {
        self.signals = Some(Signals::new()?);
        self.arm_signal()
    }

    fn arm_signal(&mut self) -> Result<(), RunError> {
        let Some(signals) = &self.signals else { return Ok(()) };
        let fd = ring_types::Fd(signals.stream.as_raw_fd());
        let mut buf = Box::new([0; 8]);
        let entry = opcode::Recv::new(fd, buf.as_mut_ptr(), 8).build();
        self.push(entry, Slot::Signal { _buf: buf })
    }

    /// Queues an entry whose memory and descriptors are owned by `slot` (or by the table entry that
    /// `slot` names, which is kept while it has operations in flight).
    fn push(&mut self, entry: squeue::Entry, slot: Slot) -> Result<(), RunError> {
        self.push_to(Way::Main, entry, slot)
    }

    /// The same, for one of the rings.
    fn push_to(&mut self, way: Way, entry: squeue::Entry, slot: Slot) -> Result<(), RunError> {
        let key = self.slots.insert(slot);
        let entry = entry.user_data(key);
        let rings = self.rings();
        let ring = if way == Way::Lazy { &mut rings.lazy } else { &mut rings.main };
        // SAFETY: `slot` owns what the entry names, and is kept until the last completion.
        unsafe { ring.push(&entry)? };
        Ok(())
    }

    /// Turns a completion into an event for the core.
    fn complete(&mut self, now: Mono, d: Done) -> Result<Option<Event>, RunError> {
        if let Slot::Accept { listener } = *self.slots.get_mut(d.key) {
            if !d.more {
                self.slots.remove(d.key);
            }
            return self.accepted(listener, d);
        }
        let event = match self.slots.remove(d.key) {
            Slot::Accept { .. } => None,
            Slot::AcceptPause { listener, .. } => {
                self.arm_accept(listener)?;
                None
            }
            Slot::ListenPause { listen, .. } => {
                self.try_to_listen(now, *listen)?;
                None
            }
            Slot::Connect { conn, .. } => self.connected(conn, d.result),
            Slot::Recv { conn, buf } => self.received(conn, buf, d),
            Slot::Fill { conn, buf, from } => self.filled(conn, buf, from, d),
            Slot::Watch { conn } => self.watched(conn, d.result),
            Slot::Send { conn, msg } => self.sent(conn, msg, d.result),
            Slot::DiskRead { token, buf } => {
                self.lone.read_ended(now);
                let wanted = buf.len();
                let result = transferred(d.result, wanted).map(|()| buf.freeze());
                Some(Event::Disk(DiskDone { token, result }))
            }
            Slot::DiskWrite { token, wanted, .. } => {
                self.lone.other_ended();
                let result = transferred(d.result, wanted).map(|()| Bytes::new());
                Some(Event::Disk(DiskDone { token, result }))
            }
            Slot::DiskFlush { token } => {
                self.lone.other_ended();
                let result = transferred(d.result, 0).map(|()| Bytes::new());
                Some(Event::Disk(DiskDone { token, result }))
            }
            // A hint: its failure is no error.
            Slot::DiskDiscard { token } => {
                self.lone.other_ended();
                Some(Event::Disk(DiskDone { token, result: Ok(Bytes::new()) }))
            }
            Slot::Signal { .. } if d.result > 0 => {
                self.arm_signal()?;
                Some(Event::Stop)
            }
            Slot::Signal { .. } if is_to_be_repeated(d.result) => {
                self.arm_signal()?;
                None
            }
            Slot::Signal { .. } => {
                let error = std::io::Error::from_raw_os_error(-d.result);
                tracing::error!("signals are not heard any more: {error}");
                None
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
        // What is sent is on its way longer than what is written here: others write it as well.
        self.end_lingering(now);
        self.start_transfers()?;
        for (token, op) in fx.disk.drain(..) {
            self.lone.begins(&op, now.mono);
            self.disk_op(token, op)?;
        }
        for (token, op) in fx.kv.drain(..) {
            let kv = self.kv.as_mut().expect("a core without a cluster store asks nothing of it");
            kv.submit(token, op);
        }
        while let Some(done) = self.kv.as_mut().and_then(|kv| kv.poll()) {
            self.pending.push_back(Event::Kv(done));
        }
        if std::mem::take(&mut fx.reopen_log)
            && let Some(reopen) = self.reopen_log
        {
            reopen();
        }
        self.fx = fx;
        Ok(())
    }

    /// The last sends leave and disk operations end, within the linger time.
    fn wind_down(&mut self, mut done: Vec<Done>) -> Result<(), RunError> {
        let until = self.now().mono.after(Duration::from_millis(CLOSE_LINGER_MS));
        loop {
            let now = self.now();
            for d in done.drain(..) {
                self.complete(now.mono, d)?;
            }
            let sending = self.conns.iter().any(|(_, c)| c.sending || c.wants_send());
            if (!sending && !self.slots.has_disk()) || now.mono >= until {
                return Ok(());
            }
            self.start_transfers()?;
            self.submit_lazy(now)?;
            self.wake_at(now, self.lazy.look_at.map_or(until, |at| at.min(until)))?;
            self.rings().main.submit_and_wait(1)?;
            self.rings().main.take(&mut done);
            let now = self.now();
            self.take_lazy(now, &mut done)?;
        }
    }
}

//! The seams between the cores and the world.
//!
//! A daemon is a [`Core`]: a state machine that is handed [`Event`]s and the time, and answers with
//! [`Effects`]. It never touches a socket, a file, a clock or a source of randomness. Two runners
//! drive cores: `uring` on a real machine, `sim` on a seed. What each effect promises, above all
//! what is durable when, is said here once, and both runners keep to it:
//!
//! * [`net`]: connections of ordered bytes;
//! * [`disk`]: reads, writes and flushes of a block device or file;
//! * [`kv`]: the small transactional store behind the mon;
//! * [`Timers`]: what a core waits for;
//! * [`Rng`]: seeded, given to a core when it is made.

pub mod disk;
pub mod kv;
pub mod net;

mod buf;
mod timers;

pub use buf::{AlignedBuf, BLOCK_BYTES, buffer_bytes, give_back};
pub use fastrand::Rng;
pub use timers::{TimerId, Timers};

use disk::{DiskDone, DiskOp, DiskToken};
use kv::{KvDone, KvOp, KvToken};
use net::{ConnId, NetEvent, NetOp};
use types::{Mono, UTime};

/// The present: one reading of both clocks, taken by the runner at the start of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// For deadlines and durations.
    pub mono: Mono,
    /// For stamps that are shown or stored. May jump; nothing that must be right depends on it.
    pub wall: UTime,
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All that it takes.
    pub resident: u64,
    /// Of that, buffers for disk and network: in use, and waiting to be used again.
    pub buffers: u64,
}

/// Something that happened to a core.
#[derive(Debug)]
pub enum Event {
    /// The first event, once.
    Start,
    /// From the network.
    Net(NetEvent),
    /// A disk operation ended.
    Disk(DiskDone),
    /// An operation of the cluster store ended.
    Kv(KvDone),
    /// The time of [`Core::next_deadline`] has come.
    Timer,
    /// What the process takes. A real runner says so about once a second, and when buffers have become many
    /// more; a simulated one never.
    Memory(Memory),
    /// The operator asks for an orderly end (SIGTERM, SIGINT). The core says when it is done by
    /// [`Effects::exit`].
    Stop,
}

/// Why a core ends its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// 0 for an orderly end.
    pub code: i32,
    /// One sentence for the operator.
    pub why: String,
}

/// What a core wants done. The runner carries it out after the turn.
///
/// There is no order between effects of one turn: a core that must persist before it sends waits
/// for the [`DiskDone`] or [`KvDone`] and sends in that later turn.
#[derive(Debug, Default)]
pub struct Effects {
    /// Network operations, in order per connection.
    pub net: Vec<NetOp>,
    /// Disk operations; unordered among each other.
    pub disk: Vec<(DiskToken, DiskOp)>,
    /// Cluster store operations, carried out in order.
    pub kv: Vec<(KvToken, KvOp)>,
    /// The log is to go on in a file that is opened anew: the one it goes to was given another name.
    pub reopen_log: bool,
    /// Ends the process, after everything else of this turn is handed over.
    pub exit: Option<Exit>,
    last_conn: u64,
}

impl Effects {
    /// No effects.
    pub fn new() -> Self {
        Self::default()
    }

    /// A connection id never used before in this process. The runner takes ids for accepted
    /// connections from here too.
    pub fn new_conn(&mut self) -> ConnId {
        self.last_conn += 1;
        ConnId(self.last_conn)
    }

    /// Dials `addr`; [`NetEvent::Connected`] or [`NetEvent::Closed`] follows.
    pub fn connect(&mut self, addr: std::net::SocketAddr) -> ConnId {
        let conn = self.new_conn();
        self.net.push(NetOp::Connect { conn, addr });
        conn
    }

    /// Asks the process to end.
    pub fn exit(&mut self, code: i32, why: impl Into<String>) {
        self.exit.get_or_insert(Exit { code, why: why.into() });
    }

    /// Whether there is nothing to carry out.
    pub fn is_empty(&self) -> bool {
        let nothing = self.net.is_empty() && self.disk.is_empty() && self.kv.is_empty();
        nothing && !self.reopen_log && self.exit.is_none()
    }
}

/// A daemon or client as a state machine: events and time in, effects out.
///
/// One turn of the runner's loop is: all events that are there, each through [`Core::handle`], then
/// [`Core::end_turn`] once, then the effects are carried out. What happened together is committed
/// together: group commit and coalesced sends need no timer.
pub trait Core {
    /// Takes in one event.
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects);

    /// All events of this turn are in.
    fn end_turn(&mut self, now: Now, fx: &mut Effects);

    /// When to call back with [`Event::Timer`] if nothing else happens; `None` for never.
    fn next_deadline(&self) -> Option<Mono>;
}

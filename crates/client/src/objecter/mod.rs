//! Requests on objects, from submission to completion (`osdc/Objecter.cc`).
//!
//! **Where a request is.** Each request has a number (tid) and is either on the session of the OSD
//! its [`Target`] names, or homeless: no map, no such pool, or a PG without a primary. On a session
//! it is unsent or sent; unsent ones wait for the link, for a flag of the map, or for the OSD's
//! permission ([`session::Backoffs`]).
//!
//! **Order.** Whenever several requests become sendable at once, they are sent in the order of their
//! tids. So two writes to one object arrive in the order of submission, whatever happens between.
//!
//! **Resending.** When the link is lost, the primary changes, the PG splits, or maps were skipped,
//! what was sent is sent again with the same tid and `retry_attempt` one higher; a reply to an
//! earlier attempt is dropped. Only EAGAIN gives a new tid.

mod flow;
mod linger;
mod list;
mod maps;
mod reply;
mod session;
mod sessions;
mod target;
mod tell;

pub(crate) use linger::Watcher;
pub use list::ListCursor;

use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::mon::MonSession;
use crate::outcome::{Completion, Outcome, RequestId};
use io::{Now, Rng, TimerId, Timers};
use linger::Linger;
use session::Session;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use target::{MapView, Target};
use tell::Tell;
use types::{Epoch, Errno, HashMap, Mono, OsdId, PgId, SnapId, UTime};
use wire::msg::{Ops, SnapContext};
use wire::{LinkId, Messenger};

/// How often watches are pinged and slow requests looked after (`objecter_tick_interval`).
const TICK: Duration = Duration::from_secs(5);
/// A request without an answer for so long makes us ask whether the OSD is there
/// (`objecter_timeout`).
const SLOW: Duration = Duration::from_secs(10);

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The time limit of a request on an object.
    Op(u64),
    /// The time limit of a notify, or of a watch that is not registered yet.
    Linger(u64),
    /// The time limit of a request to the mon.
    Mon(u64),
    /// The time limit of who waits for a map.
    Map(RequestId),
    /// The time limit of who looks for a pool.
    Lookup(RequestId),
    /// See [`TICK`].
    Tick,
}

/// What the objecter works with, lent by the client for one call.
pub(crate) struct Cx<'a> {
    pub now: Now,
    pub msgr: &'a mut Messenger,
    pub mon: &'a mut MonSession,
    pub timers: &'a mut Timers<Due>,
    pub out: &'a mut VecDeque<Completion>,
}

impl Cx<'_> {
    pub fn complete(&mut self, id: RequestId, outcome: Outcome) {
        self.out.push_back(Completion { id, outcome });
    }
}

/// What a request waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The first map.
    FirstMap,
    /// The mon's word whether there is such a pool.
    PoolCheck,
    /// A primary for the PG.
    Primary(PgId),
    /// The end of a flag in the map: full, or paused by the operator.
    Flag,
    /// A connection to the OSD.
    Connection(OsdId),
    /// The PG, whose OSD asked for patience.
    Backoff(PgId, OsdId),
    /// The answer of the OSD.
    Reply(OsdId),
    /// The answer of the mon.
    Mon,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Waiting::FirstMap => f.write_str("for the first map from the mon"),
            Waiting::PoolCheck => f.write_str("for the mon's word whether there is such a pool"),
            Waiting::Primary(pg) => write!(f, "for PG {pg} to have a primary"),
            Waiting::Flag => f.write_str("for the cluster or pool not to be full or paused"),
            Waiting::Connection(osd) => write!(f, "for a connection to osd.{osd}"),
            Waiting::Backoff(pg, osd) => write!(f, "for PG {pg}, which is not ready at osd.{osd}"),
            Waiting::Reply(osd) => write!(f, "for the answer of osd.{osd}"),
            Waiting::Mon => f.write_str("for the answer of the mon"),
        }
    }
}

/// Whose request it is.
#[derive(Clone, Debug)]
enum Purpose {
    /// The user's.
    User(RequestId),
    /// The user's listing, from this cursor.
    List(RequestId, ListCursor),
    /// Registers a watch or notify; sent again by its [`Linger`], not by itself.
    Register(u64),
    /// Keeps a watch alive; not sent again.
    Ping { cookie: u64, generation: u32, sent: Mono },
    /// Nobody waits for its end.
    Quiet,
}

impl Purpose {
    /// Whether it is sent again by itself.
    fn is_resent(&self) -> bool {
        !matches!(self, Purpose::Register(_) | Purpose::Ping { .. })
    }

    /// Whether it counts against the bounds on what is in flight.
    fn is_bounded(&self) -> bool {
        matches!(self, Purpose::User(_) | Purpose::List(..))
    }
}

/// What is sent.
#[derive(Clone, Debug)]
struct Request {
    ops: Ops,
    snap: SnapId,
    snapc: SnapContext,
    mtime: UTime,
}

impl Request {
    fn read(ops: Ops) -> Self {
        let snapc = SnapContext::default();
        Request { ops, snap: SnapId::HEAD, snapc, mtime: UTime::ZERO }
    }
}

#[derive(Debug)]
struct Op {
    purpose: Purpose,
    request: Request,
    target: Target,
    /// On whose session it is.
    session: Option<OsdId>,
    /// Sent, and nothing has happened since that makes sending it again necessary.
    sent: bool,
    /// How often it was sent.
    attempts: i32,
    sent_at: Mono,
    /// Without this pool in a map of this epoch or newer, there is no such pool.
    pool_bound: Option<Epoch>,
    /// How often an OSD said EAGAIN.
    turned_away: u32,
    cost: usize,
    /// Its time limit.
    timer: Option<(Mono, TimerId)>,
}

impl Op {
    /// For errors: what was asked for.
    fn describe(&self) -> String {
        let mut names = String::new();
        for op in &self.request.ops {
            if !names.is_empty() {
                names.push('+');
            }
            names.push_str(&op.code.to_string());
        }
        format!("{names} of {}", self.target.aim)
    }
}

/// Asking the mon whether a pool that is not in the map is not in the newest map either.
#[derive(Debug, Default)]
struct PoolCheck {
    /// Requests (tids) that the question under way is for.
    asked: Option<Vec<u64>>,
    /// Requests that came after it: the answer may be too old for them.
    queued: Vec<u64>,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Objecter {
    max_ops: usize,
    max_bytes: usize,
    default_timeout: Option<Duration>,
    mon_timeout: Option<Duration>,
    rng: Rng,
    view: Option<MapView>,
    /// Boxed: the tree moves its entries about, and they are large.
    ops: BTreeMap<u64, Box<Op>>,
    last_tid: u64,
    /// Commands to OSDs, numbered with the requests.
    tells: BTreeMap<u64, Tell>,
    sessions: BTreeMap<OsdId, Session>,
    links: HashMap<LinkId, OsdId>,
    /// Sessions to be dialled, and when.
    to_dial: BTreeMap<OsdId, Mono>,
    /// Links to be closed at the turn's end.
    to_close: Vec<LinkId>,
    lingers: BTreeMap<u64, Linger>,
    pool_check: PoolCheck,
    /// Completions that wait until this map is here.
    for_epoch: Vec<(Epoch, Completion)>,
    /// Requests and their bytes that count against the bounds.
    in_flight: (usize, usize),
}

// ---- getters ----

impl Objecter {
    pub fn new(config: &ClientConfig, rng: Rng) -> Self {
        Objecter {
            max_ops: config.max_ops,
            max_bytes: config.max_bytes,
            default_timeout: config.op_timeout,
            mon_timeout: config.mon_timeout,
            rng,
            view: None,
            ops: BTreeMap::new(),
            last_tid: 0,
            tells: BTreeMap::new(),
            sessions: BTreeMap::new(),
            links: HashMap::default(),
            to_dial: BTreeMap::new(),
            to_close: Vec::new(),
            lingers: BTreeMap::new(),
            pool_check: PoolCheck::default(),
            for_epoch: Vec::new(),
            in_flight: (0, 0),
        }
    }

    pub fn map(&self) -> Option<&Arc<::maps::OsdMap>> {
        self.view.as_ref().map(|v| &v.map)
    }

    pub fn epoch(&self) -> Epoch {
        self.map().map_or(Epoch::ZERO, |m| m.epoch)
    }

    pub fn in_flight(&self) -> (usize, usize) {
        self.in_flight
    }

    /// Whether a request of this cost may be submitted: always when nothing is in flight.
    pub fn has_room(&self, cost: usize) -> bool {
        let (ops, bytes) = self.in_flight;
        ops == 0 || (ops < self.max_ops && bytes.saturating_add(cost) <= self.max_bytes)
    }

    pub fn owner_of(&self, link: LinkId) -> Option<OsdId> {
        self.links.get(&link).copied()
    }

    pub fn next_deadline(&self) -> Option<Mono> {
        self.to_dial.values().min().copied()
    }

    /// What every request of the user waits for.
    pub fn waiting(&self) -> impl Iterator<Item = (RequestId, Waiting)> {
        self.ops.values().filter_map(|op| match op.purpose {
            Purpose::User(id) | Purpose::List(id, _) => Some((id, self.waits_for(op))),
            Purpose::Register(cookie) => Some((RequestId(cookie), self.waits_for(op))),
            Purpose::Ping { .. } | Purpose::Quiet => None,
        })
    }

    fn waits_for(&self, op: &Op) -> Waiting {
        let pg = op.target.pgid;
        let Some(map) = self.map() else {
            return Waiting::FirstMap;
        };
        if map.pool(op.target.pool()).is_none() {
            return Waiting::PoolCheck;
        }
        let Some((osd, session)) = op.session.and_then(|osd| Some((osd, self.sessions.get(&osd)?)))
        else {
            return Waiting::Primary(pg.pgid);
        };
        if op.target.paused {
            return Waiting::Flag;
        }
        if session.backoffs.holds(pg, &op.target.object(op.request.snap)) {
            return Waiting::Backoff(pg.pgid, osd);
        }
        if op.sent { Waiting::Reply(osd) } else { Waiting::Connection(osd) }
    }
}

// ---- waiting for maps ----

impl Objecter {
    /// The epoch to ask the mon for when a newer map is wanted.
    pub fn next_epoch(&self) -> Epoch {
        if self.view.is_some() { self.epoch().next() } else { Epoch::ZERO }
    }

    /// Completes a request when this map is here; at once if it is.
    pub fn complete_at(&mut self, cx: &mut Cx<'_>, epoch: Epoch, completion: Completion) {
        if epoch <= self.epoch() {
            cx.out.push_back(completion);
            return;
        }
        if let Some(limit) = self.mon_timeout {
            cx.timers.set(cx.now.mono.after(limit), Due::Map(completion.id));
        }
        self.for_epoch.push((epoch, completion));
        cx.mon.want_osdmap(self.next_epoch());
    }

    /// The time limit of who waits for a map has come.
    pub fn time_out_map(&mut self, cx: &mut Cx<'_>, id: RequestId) {
        let Some(at) = self.for_epoch.iter().position(|(_, c)| c.id == id) else {
            return;
        };
        let (epoch, completion) = self.for_epoch.swap_remove(at);
        let (what, have) = (format!("waiting for the map of epoch {epoch}"), self.epoch());
        let why = format!("the mon has not sent it; the newest here is of epoch {have}");
        let error = ClientError::new(Errno::ETIMEDOUT, what, why);
        let outcome = match completion.outcome {
            // It was done; only that it can be seen is not certain.
            Outcome::PoolOp(Ok(_)) => Outcome::PoolOp(Err(error)),
            Outcome::Map(Ok(_)) => Outcome::Map(Err(error)),
            ended => ended,
        };
        cx.complete(id, outcome);
    }
}

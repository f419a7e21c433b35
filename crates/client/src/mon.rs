//! The session with a mon: finding one, subscriptions, and requests that outlive the session.
//!
//! Up to [`HUNT_PARALLEL`] mons are dialled at a time; the first whose session opens is kept. A lost
//! session is replaced at once, and with growing pauses while no mon answers. Requests are kept until
//! answered and sent again, in order, to each new session: a command may therefore run twice, as
//! with Ceph's own clients.

use crate::outcome::RequestId;
use io::{Effects, Now, Rng};
use maps::MonMap;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{AddrVec, EntityType, Epoch, Mono, Uuid};
use wire::msg::{
    MGetPoolStats, MMonCommand, MMonGetVersion, MMonSubscribe, MPoolOp, MStatfs, OutMessage,
    PaxosHeader, Payload, Subscription,
};
use wire::{CloseWhy, Dial, LinkId, Messenger, Policy};

/// Mons dialled at the same time (`mon_client_hunt_parallel`).
const HUNT_PARALLEL: usize = 3;
/// How long a round of dials may take (`mon_client_hunt_interval`).
const HUNT_ROUND: Duration = Duration::from_secs(3);
/// Pause after a round in which every mon refused.
const HUNT_PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest such pause.
const HUNT_PAUSE_MAX: Duration = Duration::from_secs(3);

/// Who wants the answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The user, by this request.
    User(RequestId),
    /// The user looks for a pool; the version says when it is certain that there is none.
    PoolLookup(RequestId),
    /// The objecter wants to know whether its map is the newest.
    MapCheck,
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Command { json: String, input: bytes::Bytes },
    PoolOp(Box<MPoolOp>),
    GetVersion(String),
    PoolStats(Vec<String>),
    Statfs(Option<i64>),
}

#[derive(Clone, Debug)]
pub(crate) struct MonRequest {
    pub asker: Asker,
    pub question: Question,
    /// For errors.
    pub what: String,
}

#[derive(Debug)]
enum State {
    /// Dials under way.
    Hunting(Vec<LinkId>),
    Open(LinkId),
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct MonSession {
    config_mons: Vec<AddrVec>,
    hostname: String,
    rng: Rng,
    state: State,
    /// When to hunt next; while hunting, when to give this round up.
    hunt_at: Option<Mono>,
    pause: Duration,
    monmap: Option<MonMap>,
    /// The first epoch of the OSDMap that is wanted.
    want_osdmap: Option<Epoch>,
    /// Subscriptions are to be sent at the turn's end.
    renew: bool,
    requests: BTreeMap<u64, MonRequest>,
    last_tid: u64,
    /// The newest version a pool operation's answer named.
    seen_version: u64,
    /// Why the last session ended, for people.
    pub last_trouble: Option<String>,
}

impl MonSession {
    pub fn new(mons: Vec<AddrVec>, hostname: String, rng: Rng) -> Self {
        MonSession {
            config_mons: mons,
            hostname,
            rng,
            state: State::Hunting(Vec::new()),
            hunt_at: None,
            pause: HUNT_PAUSE_MIN,
            monmap: None,
            want_osdmap: None,
            renew: false,
            requests: BTreeMap::new(),
            last_tid: 0,
            seen_version: 0,
            last_trouble: None,
        }
    }

    // ---- getters ----

    pub fn monmap(&self) -> Option<&MonMap> {
        self.monmap.as_ref()
    }

    pub fn fsid(&self) -> Option<Uuid> {
        self.monmap.as_ref().map(|m| m.fsid)
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Whether a link is, or may become, the session.
    pub fn owns(&self, link: LinkId) -> bool {
        match &self.state {
            State::Open(open) => *open == link,
            State::Hunting(dials) => dials.contains(&link),
        }
    }

    pub fn next_deadline(&self) -> Option<Mono> {
        self.hunt_at
    }

    pub fn requests(&self) -> impl Iterator<Item = &MonRequest> {
        self.requests.values()
    }

    // ---- hunting ----

    pub fn start(&mut self, now: Now) {
        self.hunt_at.get_or_insert(now.mono);
    }

    fn known_mons(&self) -> Vec<AddrVec> {
        let listed = self.monmap.iter().flat_map(|m| m.mons.values().map(|mon| mon.addrs.clone()));
        let listed: Vec<AddrVec> = listed.filter(|a| a.v2().is_some()).collect();
        if listed.is_empty() { self.config_mons.clone() } else { listed }
    }

    fn hunt(&mut self, now: Now, msgr: &mut Messenger, fx: &mut Effects) {
        if let State::Hunting(dials) = &mut self.state {
            for link in dials.drain(..) {
                msgr.close(link, fx);
            }
        }
        let mut mons = self.known_mons();
        self.rng.shuffle(&mut mons);
        let dial = |addrs: AddrVec| {
            msgr.dial(now, Dial::new(addrs, EntityType::MON, Policy::mon_client()), fx)
        };
        let dials = mons.into_iter().take(HUNT_PARALLEL).map(dial).collect();
        self.state = State::Hunting(dials);
        self.hunt_at = Some(now.mono.after(HUNT_ROUND));
    }

    /// A link opened. Whether it is the session now.
    pub fn on_open(&mut self, link: LinkId, msgr: &mut Messenger, fx: &mut Effects) -> bool {
        let State::Hunting(dials) = &mut self.state else {
            return false;
        };
        let global_id = msgr.peer(link).map_or(0, |p| p.global_id);
        for other in std::mem::take(dials) {
            if other != link {
                msgr.close(other, fx);
            }
        }
        msgr.set_global_id(global_id);
        self.state = State::Open(link);
        self.hunt_at = None;
        self.pause = HUNT_PAUSE_MIN;
        self.renew = true;
        if self.monmap.is_some() {
            self.send_all(msgr);
        }
        true
    }

    /// A link that [`MonSession::owns`] ended.
    pub fn on_closed(&mut self, now: Now, link: LinkId, why: &CloseWhy) {
        self.last_trouble = Some(why.to_string());
        match &mut self.state {
            State::Open(_) => {
                self.state = State::Hunting(Vec::new());
                self.hunt_at = Some(now.mono);
            }
            State::Hunting(dials) => {
                dials.retain(|l| *l != link);
                if dials.is_empty() {
                    let quarter = u64::try_from(self.pause.as_micros()).unwrap_or(0) / 4;
                    let jitter = Duration::from_micros(self.rng.u64(..=quarter));
                    self.hunt_at = Some(now.mono.after(self.pause.saturating_add(jitter)));
                    self.pause = self.pause.saturating_mul(2).min(HUNT_PAUSE_MAX);
                }
            }
        }
    }

    /// The mon said something impossible: look for another.
    pub fn drop_session(&mut self, now: Now, msgr: &mut Messenger, fx: &mut Effects) {
        if let State::Open(link) = self.state {
            msgr.close(link, fx);
            self.state = State::Hunting(Vec::new());
            self.hunt_at = Some(now.mono.after(HUNT_PAUSE_MAX));
        }
    }

    // ---- subscriptions ----

    /// Maps from this epoch on are wanted, once.
    pub fn want_osdmap(&mut self, from: Epoch) {
        if self.want_osdmap != Some(from) {
            self.want_osdmap = Some(from);
            self.renew = true;
        }
    }

    pub fn got_osdmap(&mut self, epoch: Epoch) {
        if self.want_osdmap.is_some_and(|from| from <= epoch) {
            self.want_osdmap = None;
        }
    }

    pub fn got_monmap(&mut self, monmap: MonMap, msgr: &mut Messenger) {
        let first = self.monmap.is_none();
        if self.monmap.as_ref().is_none_or(|have| have.epoch <= monmap.epoch) {
            self.monmap = Some(monmap);
        }
        if first {
            self.send_all(msgr);
        }
    }

    fn subscription(&self) -> MMonSubscribe {
        let from = |start: u32| Subscription { start: u64::from(start), flags: 0 };
        let next = self.monmap.as_ref().map_or(0, |m| m.epoch.0.saturating_add(1));
        let mut what =
            BTreeMap::from([("config".to_owned(), from(0)), ("monmap".to_owned(), from(next))]);
        if let Some(epoch) = self.want_osdmap {
            let once = Subscription { flags: Subscription::ONETIME, ..from(epoch.0) };
            what.insert("osdmap".to_owned(), once);
        }
        MMonSubscribe { what, hostname: self.hostname.clone() }
    }

    // ---- requests ----

    /// Keeps a request until it is answered. Gives its number.
    pub fn ask(&mut self, request: MonRequest, msgr: &mut Messenger) -> u64 {
        self.last_tid = self.last_tid.saturating_add(1);
        let tid = self.last_tid;
        if let (State::Open(link), Some(message)) = (&self.state, self.message(tid, &request)) {
            msgr.send(*link, message);
        }
        self.requests.insert(tid, request);
        tid
    }

    /// The answer has come, or nobody wants it any more.
    pub fn take(&mut self, tid: u64) -> Option<MonRequest> {
        self.requests.remove(&tid)
    }

    pub fn saw_version(&mut self, version: u64) {
        self.seen_version = self.seen_version.max(version);
    }

    /// Requests carry the cluster's id: before it is known there is no message.
    fn message(&self, tid: u64, request: &MonRequest) -> Option<OutMessage> {
        let fsid = self.fsid()?;
        let paxos = PaxosHeader::default();
        let message = match request.question.clone() {
            Question::Command { json, input } => {
                MMonCommand { paxos, fsid, cmd: vec![json], data: input }.encode()
            }
            Question::PoolOp(op) => {
                let paxos = PaxosHeader { version: self.seen_version };
                MPoolOp { paxos, fsid, ..*op }.encode()
            }
            Question::GetVersion(what) => MMonGetVersion { handle: tid, what }.encode(),
            Question::PoolStats(pools) => MGetPoolStats { paxos, fsid, pools }.encode(),
            Question::Statfs(data_pool) => MStatfs { paxos, fsid, data_pool }.encode(),
        };
        Some(message.with_tid(tid))
    }

    fn send_all(&self, msgr: &mut Messenger) {
        let State::Open(link) = self.state else {
            return;
        };
        for (tid, request) in &self.requests {
            if let Some(message) = self.message(*tid, request) {
                msgr.send(link, message);
            }
        }
    }

    // ---- time ----

    pub fn end_turn(&mut self, now: Now, msgr: &mut Messenger, fx: &mut Effects) {
        if self.hunt_at.is_some_and(|at| at <= now.mono) {
            self.hunt(now, msgr, fx);
        }
        if let (State::Open(link), true) = (&self.state, self.renew) {
            self.renew = false;
            msgr.send(*link, self.subscription().encode());
        }
    }
}

//! The client: what comes in goes to the mon session or the objecter, what they made comes out.

use crate::config::ClientConfig;
use crate::error::{Busy, ClientError, errno_of};
use crate::mon::{Asker, MonRequest, MonSession, Question};
use crate::objecter::{Cx, Due, ListCursor, Objecter, Waiting, Watcher};
use crate::op::{Object, ObjectOp};
use crate::outcome::{CommandReply, Completion, MapVersions, Outcome, RequestId};
use bytes::Bytes;
use denc::DecodeError;
use io::net::NetEvent;
use io::{Effects, Now, Rng, Timers};
use maps::{MonMap, OsdMap};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use types::{Epoch, Errno, Mono, OsdId, PoolId, SnapId, Uuid};
use wire::msg::{
    MCommandReply, MConfig, MGetPoolStatsReply, MMonCommandAck, MMonGetVersionReply, MMonMap,
    MOsdBackoff, MOsdMap, MOsdOpReply, MPoolOp, MPoolOpReply, MStatfsReply, MWatchNotify, Message,
    kind, pool_op,
};
use wire::{CloseWhy, Identity, LinkId, Messenger, MsgrEvent};

/// A pool somebody wants the number of, and from which epoch on its absence is certain.
#[derive(Debug)]
struct Lookup {
    id: RequestId,
    name: String,
    bound: Option<Epoch>,
}

/// A client. See the crate's text.
pub struct Client {
    mon_timeout: Option<Duration>,
    msgr: Messenger,
    mon: MonSession,
    objecter: Objecter,
    timers: Timers<Due>,
    out: VecDeque<Completion>,
    lookups: Vec<Lookup>,
    mon_config: BTreeMap<String, String>,
    last_request: u64,
    events: Vec<MsgrEvent>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ops, bytes) = self.objecter.in_flight();
        write!(f, "Client(epoch {}, {ops} requests, {bytes} bytes)", self.objecter.epoch())
    }
}

macro_rules! cx {
    ($self:ident, $now:expr) => {
        &mut Cx {
            now: $now,
            msgr: &mut $self.msgr,
            mon: &mut $self.mon,
            timers: &mut $self.timers,
            out: &mut $self.out,
        }
    };
}

// ---- getters ----

impl Client {
    /// A client that has not begun yet; see [`Client::start`]. The same seed gives the same run.
    pub fn new(config: ClientConfig, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let nonce = if config.nonce == 0 { rng.u32(1..) } else { config.nonce };
        let me = Identity::client(config.name.clone(), nonce);
        let objecter = Objecter::new(&config, rng.fork());
        Client {
            mon_timeout: config.mon_timeout,
            msgr: Messenger::new(me, rng.fork()),
            mon: MonSession::new(config.mons, config.hostname, rng),
            objecter,
            timers: Timers::default(),
            out: VecDeque::new(),
            lookups: Vec::new(),
            mon_config: BTreeMap::new(),
            last_request: 0,
            events: Vec::new(),
        }
    }

    /// The newest OSDMap; `None` before the first.
    pub fn map(&self) -> Option<&Arc<OsdMap>> {
        self.objecter.map()
    }

    /// The monitors' map; `None` before the first.
    pub fn monmap(&self) -> Option<&MonMap> {
        self.mon.monmap()
    }

    /// The cluster; `None` before it is known.
    pub fn fsid(&self) -> Option<Uuid> {
        self.mon.fsid()
    }

    /// The number the mon gave us: we are `client.N` in watches and requests. 0 before.
    pub fn global_id(&self) -> u64 {
        self.msgr.identity().global_id
    }

    /// Whether there is a session with a mon.
    pub fn has_mon(&self) -> bool {
        self.mon.is_open()
    }

    /// Why the last session with a mon ended, or could not be had.
    pub fn mon_trouble(&self) -> Option<&str> {
        self.mon.last_trouble.as_deref()
    }

    /// What the cluster's configuration database has for us.
    pub fn mon_config(&self) -> &BTreeMap<String, String> {
        &self.mon_config
    }

    /// Requests on objects in flight, and their bytes.
    pub fn in_flight(&self) -> (usize, usize) {
        self.objecter.in_flight()
    }

    /// Whether [`Client::submit`] takes this request now.
    pub fn has_room_for(&self, op: &ObjectOp) -> bool {
        self.objecter.has_room(op.cost())
    }

    /// What each request on an object, and how many requests to the mon, wait for.
    pub fn waiting(&self) -> Vec<(RequestId, Waiting)> {
        let of_mon = self.mon.requests().filter_map(|r| match r.asker {
            Asker::User(id) | Asker::PoolLookup(id) => Some((id, Waiting::Mon)),
            Asker::MapCheck => None,
        });
        self.objecter.waiting().chain(of_mon).collect()
    }

    /// How long ago it was certain that a watch is good.
    ///
    /// # Errors
    /// When the watch is lost.
    pub fn watch_age(&self, now: Now, watch: RequestId) -> Result<Duration, Errno> {
        match self.objecter.watcher(watch) {
            Some(Watcher::Alive(since)) => Ok(now.mono.since(since)),
            Some(Watcher::Lost(errno)) => Err(errno),
            None => Err(Errno::ENOENT),
        }
    }

    /// The time of the next [`Client::tick`].
    pub fn next_deadline(&self) -> Option<Mono> {
        if !self.out.is_empty() {
            return Some(Mono::default());
        }
        let own = [self.timers.next(), self.mon.next_deadline(), self.objecter.next_deadline()];
        own.into_iter().flatten().chain(self.msgr.next_deadline()).min()
    }
}

// ---- requests ----

impl Client {
    fn new_id(&mut self) -> RequestId {
        self.last_request = self.last_request.saturating_add(1);
        RequestId(self.last_request)
    }

    /// Takes a request on an object on. [`Outcome::Op`] follows.
    ///
    /// # Errors
    /// When as much is in flight as may be; the request is given back.
    pub fn submit(&mut self, now: Now, op: ObjectOp) -> Result<RequestId, Busy> {
        let id = self.new_id();
        self.objecter.submit(cx!(self, now), id, op)?;
        Ok(id)
    }

    /// Gives a request on an object up: it ends with ECANCELED, though it may have been carried
    /// out. Whether it was in flight.
    pub fn cancel(&mut self, now: Now, id: RequestId) -> bool {
        self.objecter.cancel(cx!(self, now), id)
    }

    /// The next objects of a pool, at most `max` and 1024, and fewer at the end of a PG.
    /// [`Outcome::Page`] follows.
    pub fn list(&mut self, now: Now, from: ListCursor, max: u64) -> RequestId {
        let id = self.new_id();
        self.objecter.list(cx!(self, now), id, from, max);
        id
    }

    /// Watches an object; the OSD drops the watch when it hears nothing of us for `timeout_s` (0:
    /// its default, 30). [`Outcome::Watching`] follows, later [`Outcome::Notified`] and at worst
    /// [`Outcome::WatchLost`].
    pub fn watch(&mut self, now: Now, object: Object, timeout_s: u32) -> RequestId {
        let id = self.new_id();
        self.objecter.watch(cx!(self, now), id, object, timeout_s);
        id
    }

    /// Ends a watch. [`Outcome::Op`] follows; `None` when there is no such watch.
    pub fn unwatch(&mut self, now: Now, watch: RequestId) -> Option<RequestId> {
        let id = self.new_id();
        self.objecter.unwatch(cx!(self, now), id, watch)?;
        Some(id)
    }

    /// Answers a notify that came to a watch.
    pub fn notify_ack(&mut self, now: Now, watch: RequestId, notify_id: u64, reply: Bytes) {
        self.objecter.notify_ack(cx!(self, now), watch, notify_id, reply);
    }

    /// Tells all watchers of an object something and waits for their answers, for `timeout_s` at
    /// most (0: the OSD's default, 30). [`Outcome::NotifyDone`] follows.
    pub fn notify(
        &mut self,
        now: Now,
        object: Object,
        payload: impl Into<Bytes>,
        timeout_s: u32,
    ) -> RequestId {
        let id = self.new_id();
        self.objecter.notify(cx!(self, now), id, object, payload.into(), timeout_s);
        id
    }

    /// Runs a command, as JSON, with input. [`Outcome::Command`] follows.
    pub fn command(
        &mut self,
        now: Now,
        json: impl Into<String>,
        input: impl Into<Bytes>,
    ) -> RequestId {
        let (json, input) = (json.into(), input.into());
        let what = format!("command {json}");
        self.ask_mon(now, Question::Command { json, input }, what)
    }

    /// Runs a command of an OSD (`ceph tell osd.N`), as JSON, with input. [`Outcome::Command`] follows:
    /// ENXIO when the OSD is down. If the connection is lost it is asked again.
    pub fn tell(
        &mut self,
        now: Now,
        osd: OsdId,
        json: impl Into<String>,
        input: impl Into<Bytes>,
    ) -> RequestId {
        let id = self.new_id();
        self.objecter.tell(cx!(self, now), id, osd, (json.into(), input.into()));
        id
    }

    /// A pool operation ([`wire::msg::pool_op`]). [`Outcome::PoolOp`] follows, when the map with
    /// the change is here.
    pub fn pool_op(
        &mut self,
        now: Now,
        pool: PoolId,
        op: u32,
        snapid: SnapId,
        name: &str,
    ) -> RequestId {
        let number = u32::try_from(pool.0).unwrap_or(u32::MAX);
        let (name, crush_rule) = (name.to_owned(), -1);
        let ask = MPoolOp { pool: number, op, snapid, name, crush_rule, ..MPoolOp::default() };
        let what = format!("pool operation {op:#x} on pool {pool}");
        self.ask_mon(now, Question::PoolOp(Box::new(ask)), what)
    }

    /// Makes a snapshot of a pool. [`Outcome::PoolOp`] follows.
    pub fn create_pool_snap(&mut self, now: Now, pool: PoolId, name: &str) -> RequestId {
        self.pool_op(now, pool, pool_op::CREATE_SNAP, SnapId(0), name)
    }

    /// Deletes a snapshot of a pool. [`Outcome::PoolOp`] follows.
    pub fn delete_pool_snap(&mut self, now: Now, pool: PoolId, name: &str) -> RequestId {
        self.pool_op(now, pool, pool_op::DELETE_SNAP, SnapId(0), name)
    }

    /// Allocates a snapshot id for this client's own use. [`Outcome::PoolOp`] brings it.
    pub fn create_own_snap(&mut self, now: Now, pool: PoolId) -> RequestId {
        self.pool_op(now, pool, pool_op::CREATE_UNMANAGED_SNAP, SnapId(0), "")
    }

    /// Removes such a snapshot. [`Outcome::PoolOp`] follows.
    pub fn delete_own_snap(&mut self, now: Now, pool: PoolId, snap: SnapId) -> RequestId {
        self.pool_op(now, pool, pool_op::DELETE_UNMANAGED_SNAP, snap, "")
    }

    /// Asks for the newest version of `osdmap`, `monmap`, ... [`Outcome::Version`] follows.
    pub fn get_version(&mut self, now: Now, what: &str) -> RequestId {
        let text = format!("version of the {what}");
        self.ask_mon(now, Question::GetVersion(what.to_owned()), text)
    }

    /// Statistics of pools. [`Outcome::PoolStats`] follows.
    pub fn pool_stats(&mut self, now: Now, pools: Vec<String>) -> RequestId {
        let what = format!("statistics of pools {}", pools.join(", "));
        self.ask_mon(now, Question::PoolStats(pools), what)
    }

    /// Space of the cluster, or of one pool. [`Outcome::Statfs`] follows.
    pub fn statfs(&mut self, now: Now, pool: Option<PoolId>) -> RequestId {
        self.ask_mon(now, Question::Statfs(pool.map(|p| p.0)), "statfs".to_owned())
    }

    /// Waits for a map of this epoch or a newer one. [`Outcome::Map`] follows.
    pub fn wait_for_map(&mut self, now: Now, epoch: Epoch) -> RequestId {
        let id = self.new_id();
        let at = self.objecter.epoch();
        let completion = Completion { id, outcome: Outcome::Map(Ok(at)) };
        self.objecter.complete_at(cx!(self, now), epoch, completion);
        id
    }

    /// The number of a pool; whether there is none, the newest map says. [`Outcome::Pool`] follows.
    pub fn lookup_pool(&mut self, now: Now, name: &str) -> RequestId {
        let id = self.new_id();
        self.lookups.push(Lookup { id, name: name.to_owned(), bound: None });
        if !self.settle_lookups() {
            if let Some(timeout) = self.mon_timeout {
                self.timers.set(now.mono.after(timeout), Due::Lookup(id));
            }
            let question = Question::GetVersion("osdmap".to_owned());
            let what = format!("looking for pool {name}");
            let request = MonRequest { asker: Asker::PoolLookup(id), question, what };
            self.send_to_mon(now, request);
        }
        id
    }

    fn ask_mon(&mut self, now: Now, question: Question, what: String) -> RequestId {
        let id = self.new_id();
        self.send_to_mon(now, MonRequest { asker: Asker::User(id), question, what });
        id
    }

    fn send_to_mon(&mut self, now: Now, request: MonRequest) {
        let tid = self.mon.ask(request, &mut self.msgr);
        if let Some(timeout) = self.mon_timeout {
            self.timers.set(now.mono.after(timeout), Due::Mon(tid));
        }
    }

    /// Answers lookups that the map can answer. Whether none is left.
    fn settle_lookups(&mut self) -> bool {
        let Some(map) = self.objecter.map().cloned() else {
            return self.lookups.is_empty();
        };
        self.lookups.retain(|l| {
            let result = match (map.pool_by_name(&l.name), l.bound) {
                (Some(pool), _) => Ok(pool),
                (None, Some(bound)) if bound <= map.epoch => {
                    let what = format!("looking for pool {}", l.name);
                    Err(ClientError::new(Errno::ENOENT, what, "there is no pool of that name"))
                }
                _ => return true,
            };
            self.out.push_back(Completion { id: l.id, outcome: Outcome::Pool(result) });
            false
        });
        self.lookups.is_empty()
    }
}

// ---- running ----

impl Client {
    /// Begins to look for a mon.
    pub fn start(&mut self, now: Now) {
        self.mon.start(now);
        self.mon.want_osdmap(Epoch::ZERO);
        self.objecter.tick(cx!(self, now));
    }

    /// Takes in a network event. Gives it back when it is about a connection of somebody else.
    pub fn handle(&mut self, now: Now, event: NetEvent, fx: &mut Effects) -> Option<NetEvent> {
        let mut events = std::mem::take(&mut self.events);
        let not_ours = self.msgr.handle(now, event, fx, &mut events);
        self.take_in(now, &mut events, fx);
        self.events = events;
        not_ours
    }

    /// Deals with every deadline that has come.
    pub fn tick(&mut self, now: Now, fx: &mut Effects) {
        let mut events = std::mem::take(&mut self.events);
        self.msgr.tick(now, fx, &mut events);
        self.take_in(now, &mut events, fx);
        self.events = events;
        while let Some(due) = self.timers.pop(now.mono) {
            match due {
                Due::Op(tid) => self.objecter.time_out(cx!(self, now), tid),
                Due::Linger(cookie) => self.objecter.time_out_linger(cx!(self, now), cookie),
                Due::Mon(tid) => self.time_out_mon(tid),
                Due::Map(id) => self.objecter.time_out_map(cx!(self, now), id),
                Due::Lookup(id) => self.time_out_lookup(id),
                Due::Tick => self.objecter.tick(cx!(self, now)),
            }
        }
    }

    /// The turn's end: everything queued is handed to the network.
    pub fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        self.mon.end_turn(now, &mut self.msgr, fx);
        self.objecter.end_turn(cx!(self, now), fx);
        self.msgr.end_turn(now, fx);
    }

    /// Ends all connections. What is in flight is never answered: the client is of no use any more.
    pub fn close(&mut self, fx: &mut Effects) {
        self.msgr.close_all(fx);
    }

    /// The next completion. Owners take all, every turn.
    pub fn poll(&mut self) -> Option<Completion> {
        self.out.pop_front()
    }

    fn take_in(&mut self, now: Now, events: &mut Vec<MsgrEvent>, fx: &mut Effects) {
        for event in events.drain(..) {
            match event {
                MsgrEvent::Open { link, .. } => {
                    if !self.mon.owns(link) {
                        self.objecter.on_open(cx!(self, now), link);
                    } else if !self.mon.on_open(link, &mut self.msgr, fx) {
                        self.msgr.close(link, fx);
                    }
                }
                MsgrEvent::Closed { link, why } => self.on_closed(now, link, &why),
                MsgrEvent::Message { link, message } => self.on_message(now, link, &message, fx),
                // Neither does a client listen, nor has it lossless links.
                MsgrEvent::Listening { .. }
                | MsgrEvent::ListenFailed { .. }
                | MsgrEvent::WantsGlobalId { .. }
                | MsgrEvent::Backlog { .. }
                | MsgrEvent::Reset { .. } => {}
            }
        }
    }

    fn on_closed(&mut self, now: Now, link: LinkId, why: &CloseWhy) {
        if self.mon.owns(link) {
            self.mon.on_closed(now, link, why);
        } else {
            self.objecter.on_closed(cx!(self, now), link, why);
        }
    }

    fn on_message(&mut self, now: Now, link: LinkId, m: &Message, fx: &mut Effects) {
        let from_mon = self.mon.owns(link);
        let done = match self.objecter.owner_of(link) {
            _ if from_mon => self.on_mon_message(now, m),
            Some(osd) => self.on_osd_message(now, osd, link, m),
            // A link that was closed in this very turn.
            None => return,
        };
        if let Err(error) = done {
            let what = kind::name(m.header.kind).unwrap_or("message");
            tracing::warn!(%error, what, "a malformed message; closing the connection");
            if from_mon {
                self.mon.drop_session(now, &mut self.msgr, fx);
            } else {
                self.msgr.close(link, fx);
                let why = CloseWhy::Timeout("it sent a malformed message");
                self.objecter.on_closed(cx!(self, now), link, &why);
            }
        }
    }
}

// ---- messages of OSDs ----

impl Client {
    fn on_osd_message(
        &mut self,
        now: Now,
        osd: OsdId,
        link: LinkId,
        m: &Message,
    ) -> Result<(), DecodeError> {
        match m.header.kind {
            kind::OSD_OPREPLY => {
                let reply: MOsdOpReply = m.decode()?;
                self.objecter.on_reply(cx!(self, now), osd, m.header.tid, reply);
            }
            kind::OSD_MAP => self.on_osdmap(now, m)?,
            kind::COMMAND_REPLY => {
                let reply: MCommandReply = m.decode()?;
                self.objecter.on_told(cx!(self, now), osd, m.header.tid, reply);
            }
            kind::OSD_BACKOFF => {
                let backoff: MOsdBackoff = m.decode()?;
                if !self.objecter.on_backoff(cx!(self, now), osd, link, backoff) {
                    let kind = denc::DecodeErrorKind::Invalid("more backoffs than are sensible");
                    return Err(DecodeError { kind, at: 0 });
                }
            }
            kind::WATCH_NOTIFY => {
                let notify: MWatchNotify = m.decode()?;
                self.objecter.on_watch_notify(cx!(self, now), notify);
            }
            other => tracing::debug!(%osd, kind = other, "a message that is of no use to a client"),
        }
        Ok(())
    }

    fn on_osdmap(&mut self, now: Now, m: &Message) -> Result<(), DecodeError> {
        let maps: MOsdMap = m.decode()?;
        let fsid = self.mon.fsid();
        self.objecter.on_map(cx!(self, now), fsid, &maps);
        self.settle_lookups();
        Ok(())
    }
}

// ---- messages of the mon ----

impl Client {
    fn on_mon_message(&mut self, now: Now, m: &Message) -> Result<(), DecodeError> {
        match m.header.kind {
            kind::MON_MAP => {
                let monmap: MonMap = denc::decode(&m.decode::<MMonMap>()?.monmap)?;
                self.mon.got_monmap(monmap, &mut self.msgr);
            }
            kind::CONFIG => self.mon_config = m.decode::<MConfig>()?.config,
            kind::OSD_MAP => self.on_osdmap(now, m)?,
            kind::MON_COMMAND_ACK => self.on_command_ack(m)?,
            kind::POOLOP_REPLY => self.on_pool_op_reply(now, m)?,
            kind::MON_GET_VERSION_REPLY => self.on_version(now, m)?,
            kind::GETPOOLSTATSREPLY => {
                let reply: MGetPoolStatsReply = m.decode()?;
                self.answer(m.header.tid, Outcome::PoolStats(Ok(reply)));
            }
            kind::STATFS_REPLY => {
                let reply: MStatfsReply = m.decode()?;
                self.answer(m.header.tid, Outcome::Statfs(Ok(reply)));
            }
            // Maps we have not subscribed to.
            other => tracing::debug!(kind = other, "a message that is of no use to a client"),
        }
        Ok(())
    }

    /// Gives the user the answer to a request to the mon.
    fn answer(&mut self, tid: u64, outcome: Outcome) {
        if let Some(MonRequest { asker: Asker::User(id), .. }) = self.mon.take(tid) {
            self.out.push_back(Completion { id, outcome });
        }
    }

    fn on_command_ack(&mut self, m: &Message) -> Result<(), DecodeError> {
        let ack: MMonCommandAck = m.decode()?;
        let reply = CommandReply { status: ack.result, outs: ack.outs, data: ack.data };
        self.answer(m.header.tid, Outcome::Command(Ok(reply)));
        Ok(())
    }

    fn on_pool_op_reply(&mut self, now: Now, m: &Message) -> Result<(), DecodeError> {
        let reply: MPoolOpReply = m.decode()?;
        self.mon.saw_version(reply.paxos.version);
        let Some(MonRequest { asker: Asker::User(id), what, .. }) = self.mon.take(m.header.tid)
        else {
            return Ok(());
        };
        let result = if reply.code < 0 {
            Err(ClientError::new(errno_of(reply.code), what, ""))
        } else {
            reply.data.map(|data| denc::decode(&data)).transpose().map_err(|e| {
                ClientError::new(Errno::EIO, what, format!("the mon's answer is malformed: {e}"))
            })
        };
        let completion = Completion { id, outcome: Outcome::PoolOp(result) };
        self.objecter.complete_at(cx!(self, now), reply.epoch, completion);
        Ok(())
    }

    fn on_version(&mut self, now: Now, m: &Message) -> Result<(), DecodeError> {
        let reply: MMonGetVersionReply = m.decode()?;
        let Some(request) = self.mon.take(reply.handle) else {
            return Ok(());
        };
        let versions = MapVersions { newest: reply.newest, oldest: reply.oldest };
        let newest = Epoch(u32::try_from(reply.newest).unwrap_or(u32::MAX));
        match request.asker {
            Asker::User(id) => {
                self.out.push_back(Completion { id, outcome: Outcome::Version(Ok(versions)) });
            }
            Asker::MapCheck => self.objecter.on_map_check(cx!(self, now), newest),
            Asker::PoolLookup(id) => {
                if let Some(lookup) = self.lookups.iter_mut().find(|l| l.id == id) {
                    lookup.bound = Some(newest);
                }
                if !self.settle_lookups() {
                    let next = self.objecter.next_epoch();
                    self.mon.want_osdmap(next);
                }
            }
        }
        Ok(())
    }

    /// Why the mon has not done something in time.
    fn why_so_long(&self) -> String {
        match self.mon.last_trouble.as_ref().filter(|_| !self.mon.is_open()) {
            Some(trouble) => format!("no mon could be reached; the last one: {trouble}"),
            None => "the mon did not answer in time".to_owned(),
        }
    }

    /// Whether there is a pool was not known in time: the mon's answer has not come, or the map it speaks of.
    fn time_out_lookup(&mut self, id: RequestId) {
        let Some(at) = self.lookups.iter().position(|l| l.id == id) else {
            return;
        };
        let what = format!("looking for pool {}", self.lookups.swap_remove(at).name);
        let error = ClientError::new(Errno::ETIMEDOUT, what, self.why_so_long());
        self.out.push_back(Completion { id, outcome: Outcome::Pool(Err(error)) });
    }

    fn time_out_mon(&mut self, tid: u64) {
        let Some(request) = self.mon.take(tid) else {
            return;
        };
        let why = self.why_so_long();
        let error = ClientError::new(Errno::ETIMEDOUT, request.what, why);
        match request.asker {
            Asker::User(id) => {
                let outcome = failed(&request.question, error);
                self.out.push_back(Completion { id, outcome });
            }
            Asker::PoolLookup(id) => self.time_out_lookup(id),
            Asker::MapCheck => {}
        }
    }
}

fn failed(question: &Question, error: ClientError) -> Outcome {
    match question {
        Question::Command { .. } => Outcome::Command(Err(error)),
        Question::PoolOp(_) => Outcome::PoolOp(Err(error)),
        Question::GetVersion(_) => Outcome::Version(Err(error)),
        Question::PoolStats(_) => Outcome::PoolStats(Err(error)),
        Question::Statfs(_) => Outcome::Statfs(Err(error)),
    }
}

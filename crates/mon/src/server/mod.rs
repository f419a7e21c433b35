//! The mon that serves: sessions, messages, commits.
//!
//! **Order.** Everything that is to leave goes through the outbox, and the outbox leaves only when
//! nothing is uncommitted. So no answer, no map and no order to an OSD ever tells of a change that a
//! crash could take back. While a commit is under way, what comes in waits ([`Input`]), so that a
//! draft always starts from what is committed. With the embedded store a commit takes one turn.
//!
//! **Bounds.** [`MAX_WAITING`] inputs wait at most; a peer whose message would be one more is
//! disconnected. Peers that do not read are not read from (`wire`'s `send_limit_bytes`), are sent nothing more of
//! what they are subscribed to, and are disconnected after [`SILENCE`].

mod admin_socket;
mod commit;
mod counters;
mod daemons;
mod history;
mod messages;
mod sessions;
mod subscribe;
mod tasks;
mod tick;

use crate::cluster::Cluster;
use crate::commands::{self, Handler, Tell};
use crate::config::MonConfig;
use crate::kv::Kv;
use crate::mon::EXIT_CANNOT_LISTEN;
use crate::store::MapCache;
use crate::tasks::{Worked, Worker};
use admin::{AdminEvent, AdminServer, Answer, CommandError, CommandTable};
use bytes::Bytes;
use commit::Committing;
use counters::Counters;
use history::Reading;
use io::kv::{KvAnswer, KvToken};
use io::net::{ConnId, ListenAddr, ListenId, NetEvent};
use io::{Effects, Now, Rng};
use peer::OsdBoot;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tasks::Waiting;
use types::{AddrVec, EntityType, Mono, OsdId};
use wire::messenger::{GlobalIds, Keepalive, ListenerConfig, Policy};
use wire::msg::{Message, OutMessage};
use wire::{Identity, LinkId, Messenger, MsgrEvent};

/// The socket of the mon.
const MON: ListenId = ListenId(1);
/// The socket of the mgr.
const MGR: ListenId = ListenId(2);
/// The admin socket.
const ADMIN: ListenId = ListenId(3);
/// Inputs that wait for a commit, at most.
const MAX_WAITING: usize = 65_536;

/// A peer from which nothing came for so long has its session closed (Ceph: `mon_session_timeout`). Clients ask
/// every 10 s whether the mon is there, those in kernels too, and OSDs report every 5 s. The mon asks nobody:
/// a kernel's client takes that for an error. What it means for an OSD, `osds::silence` says.
const SILENCE: Keepalive = Keepalive { interval: Duration::MAX, timeout: Duration::from_secs(300) };

/// When nothing happens for so long the mon stood still. There is a tick each second.
const STOOD_STILL: Duration = Duration::from_secs(5);

/// As whom we are spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Mon,
    Mgr,
}

/// Something that came in.
#[derive(Debug)]
enum Input {
    Message(Role, LinkId, Message),
    Closed(LinkId),
    WantsGlobalId(LinkId),
    Admin(ConnId, admin::AdminRequest),
    Worked(Worked),
}

/// Something that leaves when everything before it is committed.
#[derive(Debug)]
enum Output {
    Message(Role, LinkId, OutMessage),
    GlobalId(LinkId, u64),
    Admin(ConnId, Result<Answer, CommandError>),
    ReopenLog,
    Close(Role, LinkId),
}

/// See the module's text.
pub(crate) struct Server {
    pub cluster: Cluster,
    msgr: Messenger,
    mgr: Messenger,
    admin: Option<AdminServer>,
    table: CommandTable<Handler>,
    tell: CommandTable<Tell>,
    outbox: Vec<Output>,
    waiting: VecDeque<Input>,
    committing: Option<Committing>,
    /// OSDs that boot and whose last life has to end first.
    boots: BTreeMap<OsdId, (LinkId, OsdBoot)>,
    /// Ended sessions of OSDs that are being changed.
    closed: BTreeSet<LinkId>,
    /// To be asked of the store at the turn's end.
    to_read: Vec<Reading>,
    reads: BTreeMap<KvToken, Reading>,
    /// Whether the store is to be asked at the turn's end how much room there is.
    asks_for_space: bool,
    maps: MapCache,
    /// The newest map, encoded.
    newest_full: Bytes,
    counters: Counters,
    /// The mon as a client; when there is something to do for it.
    worker: Option<Worker>,
    /// Commands that wait for what it sees.
    questions: BTreeMap<u64, Waiting>,
    last_question: u64,
    /// The newest entry of the log when followers were last served.
    log_served: u64,
    /// Two PGs that are being merged were heard of.
    merge_goes_on: bool,
    next_tick: Mono,
    /// Whether the next tick was put off, see [`Server::waited`].
    tick_put_off: bool,
    /// When something last happened.
    last_turn: Mono,
    stopping: bool,
}

impl Server {
    pub fn new(cfg: &MonConfig, rng: &mut Rng, cluster: Cluster) -> Self {
        let mgr = Identity { id: cfg.name.clone(), ..Identity::daemon(EntityType::MGR, 0, 0) };
        let nonce = rng.u32(1..);
        let path = cfg.admin_socket.clone();
        let newest_full = denc::encode(&*cluster.state.osdmap);
        Server {
            msgr: Messenger::new(Identity::daemon(EntityType::MON, 0, 0), rng.fork()),
            mgr: Messenger::new(Identity { nonce, ..mgr }, rng.fork()),
            admin: path.map(|path| AdminServer::new(ADMIN, path)),
            table: commands::table(),
            tell: commands::tell_table(),
            outbox: Vec::new(),
            waiting: VecDeque::new(),
            committing: None,
            boots: BTreeMap::new(),
            closed: BTreeSet::new(),
            to_read: Vec::new(),
            reads: BTreeMap::new(),
            asks_for_space: false,
            maps: MapCache::default(),
            newest_full,
            counters: Counters::default(),
            worker: None,
            questions: BTreeMap::new(),
            last_question: 0,
            log_served: 0,
            merge_goes_on: false,
            next_tick: Mono::default(),
            tick_put_off: false,
            last_turn: cluster.started.mono,
            stopping: false,
            cluster,
        }
    }

    /// Opens the sockets.
    pub fn start(&mut self, now: Now, cfg: &MonConfig, fx: &mut Effects) {
        let mut config = ListenerConfig::mon(self.cluster.addrs.clone());
        config.policies.iter_mut().for_each(|(_, policy)| policy.keepalive = Some(SILENCE));
        self.msgr.listen(MON, ListenAddr::Tcp(cfg.addr), config, fx);
        let served = [EntityType::CLIENT, EntityType::OSD, EntityType::MON, EntityType::MGR];
        let config = ListenerConfig {
            addrs: AddrVec::default(),
            global_ids: GlobalIds::Echoed,
            policies: served.map(|kind| (kind, Policy::stateless_server())).to_vec(),
        };
        self.mgr.listen(MGR, ListenAddr::Tcp(cfg.mgr_addr()), config, fx);
        if let Some(admin) = &self.admin {
            admin.start(fx);
        }
        self.cluster.begin_life(now);
        // To see old maps again may have taken long.
        self.cluster.woke = now.mono;
        (self.last_turn, self.next_tick) = (now.mono, now.mono);
    }

    /// The operator asks for an orderly end: what is uncommitted is committed first.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    pub fn next_deadline(&self) -> Option<Mono> {
        let admin = self.admin.as_ref().and_then(AdminServer::next_deadline);
        // What goes by the clock waits for a commit under way.
        let tick = self.committing.is_none().then_some(self.next_tick);
        let answer = self.cluster.identities.next_deadline().filter(|_| tick.is_some());
        let task = self.cluster.tasks.next_deadline().filter(|_| tick.is_some());
        let worker = self.worker.as_ref().and_then(Worker::next_deadline);
        let (mon, mgr) = (self.msgr.next_deadline(), self.mgr.next_deadline());
        let all = [mon, mgr, admin, tick, answer, task, worker];
        all.into_iter().flatten().min()
    }

    // ---- inputs ----

    /// Something happens. Who has waited longer than one does for that has missed what happened meanwhile.
    fn begin_turn(&mut self, now: Now) {
        let since = std::mem::replace(&mut self.last_turn, now.mono);
        self.waited(now, since);
    }

    /// Nothing could be done since then.
    fn waited(&mut self, now: Now, since: Mono) {
        let time = now.mono.since(since.max(self.cluster.woke));
        if time < STOOD_STILL {
            return;
        }
        let tick = self.cluster.settings.duration("mon_tick_interval_ms");
        if time >= tick.saturating_mul(2) {
            self.cluster.stood_still(now, time);
            // What is here already is heard first. Once: where each commit takes so long there never would be a tick.
            if !std::mem::replace(&mut self.tick_put_off, true) {
                self.next_tick = now.mono.after(tick);
            }
        }
    }

    pub fn on_net(&mut self, now: Now, event: NetEvent, fx: &mut Effects) {
        self.begin_turn(now);
        let mut events = Vec::new();
        let Some(event) = self.msgr.handle(now, event, fx, &mut events) else {
            return self.on_links(now, Role::Mon, events, fx);
        };
        let Some(event) = self.mgr.handle(now, event, fx, &mut events) else {
            return self.on_links(now, Role::Mgr, events, fx);
        };
        let event = match &mut self.worker {
            Some(worker) => worker.on_net(now, event, fx),
            None => Some(event),
        };
        let (Some(event), Some(admin)) = (event, &mut self.admin) else { return };
        let mut requests = Vec::new();
        admin.handle(now, event, fx, &mut requests);
        for event in requests {
            match event {
                AdminEvent::Request(conn, request) => self.input(now, Input::Admin(conn, request)),
                AdminEvent::Listening => {}
                AdminEvent::Failed(errno) => {
                    let path = admin_path(self.admin.as_ref());
                    let why = admin::strerror(types::Errno(errno));
                    tracing::warn!(
                        "serves without the admin socket {path}, which is tried again: {why}"
                    );
                }
            }
        }
    }

    fn on_links(&mut self, now: Now, role: Role, events: Vec<MsgrEvent>, fx: &mut Effects) {
        for event in events {
            match event {
                MsgrEvent::Listening { .. } => self.listening(now, role),
                MsgrEvent::ListenFailed { errno, .. } => self.listen_failed(role, errno, fx),
                MsgrEvent::WantsGlobalId { link, .. } => {
                    self.input(now, Input::WantsGlobalId(link));
                }
                MsgrEvent::Open { link, peer } if role == Role::Mon => {
                    self.session_opened(now, link, peer);
                }
                MsgrEvent::Message { link, message } => {
                    if role == Role::Mon {
                        self.cluster.heard(now, link);
                    }
                    if self.must_wait() && self.waiting.len() >= MAX_WAITING {
                        tracing::warn!("more than {MAX_WAITING} messages wait; a peer is closed");
                        self.outbox.push(Output::Close(role, link));
                    } else {
                        self.input(now, Input::Message(role, link, message));
                    }
                }
                MsgrEvent::Closed { link, why } if role == Role::Mon => {
                    self.cluster.session_ended(now, link, &why);
                    self.input(now, Input::Closed(link));
                }
                MsgrEvent::Backlog { link, over } if role == Role::Mon => {
                    self.backlog(now, link, over);
                }
                MsgrEvent::Open { .. }
                | MsgrEvent::Backlog { .. }
                | MsgrEvent::Closed { .. }
                | MsgrEvent::Reset { .. } => {}
            }
        }
    }

    fn listening(&mut self, now: Now, role: Role) {
        match role {
            Role::Mon => {
                let (name, addrs) = (&self.cluster.name, &self.cluster.addrs);
                tracing::info!("mon.{name}: serves on {addrs}");
            }
            Role::Mgr => {
                self.cluster.mgr_addrs = self.mgr.listen_addrs(MGR).cloned().unwrap_or_default();
                self.serve_all(now);
            }
        }
    }

    fn listen_failed(&mut self, role: Role, errno: i32, fx: &mut Effects) {
        let name = &self.cluster.name;
        let what = match role {
            Role::Mon => format!("on {}", self.cluster.addrs),
            Role::Mgr => "for clients of the mgr".to_owned(),
        };
        let why = admin::strerror(types::Errno(errno));
        fx.exit(
            EXIT_CANNOT_LISTEN,
            format!(
                "mon.{name}: cannot listen {what}: {why}. Is another daemon using the address? \
                 Stop it, or give the mon another one"
            ),
        );
    }

    /// Whether what comes in waits: for a commit, or for ever.
    fn must_wait(&self) -> bool {
        self.committing.is_some() || self.stopping
    }

    /// Takes something in: now, or when the commit under way is done.
    fn input(&mut self, now: Now, input: Input) {
        if self.must_wait() {
            self.waiting.push_back(input);
        } else {
            self.take_in(now, input);
        }
    }

    fn take_in(&mut self, now: Now, input: Input) {
        match input {
            Input::Message(role, link, message) => self.on_message(now, role, link, &message),
            Input::Closed(link) => self.session_closed(now, link),
            Input::WantsGlobalId(link) => {
                let id = self.cluster.new_global_id();
                self.outbox.push(Output::GlobalId(link, id));
            }
            Input::Admin(conn, request) => self.on_admin(now, conn, request),
            Input::Worked(worked) => self.on_worked(now, worked),
        }
    }

    /// An operation of the store ended.
    ///
    /// # Errors
    /// A sentence, when the mon cannot go on.
    pub fn on_kv(
        &mut self,
        now: Now,
        kv: &mut Kv,
        token: KvToken,
        answer: KvAnswer,
        fx: &mut Effects,
    ) -> Result<(), String> {
        self.begin_turn(now);
        match answer {
            KvAnswer::Committed(_) => self.committed(now, token, fx),
            KvAnswer::Conflict(_) => {
                return Err("another mon changed the cluster store; only one mon may run on it, \
                            stop the other one"
                    .into());
            }
            KvAnswer::Value(value) => self.read(now, token, value),
            KvAnswer::Space(space) => self.cluster.space = space,
            KvAnswer::Pairs(..) => {}
        }
        self.ask_store(kv, fx);
        Ok(())
    }

    /// All events of this turn are in.
    pub fn end_turn(&mut self, now: Now, kv: &mut Kv, fx: &mut Effects) {
        self.begin_turn(now);
        let mut events = Vec::new();
        self.msgr.tick(now, fx, &mut events);
        self.on_links(now, Role::Mon, std::mem::take(&mut events), fx);
        self.mgr.tick(now, fx, &mut events);
        self.on_links(now, Role::Mgr, events, fx);
        if let Some(admin) = &mut self.admin {
            admin.tick(now, fx);
        }
        self.tick_worker(now, fx);
        if self.committing.is_none() {
            if !self.stopping {
                self.do_what_is_due(now);
            }
            self.commit(now, kv, fx);
        }
        if self.committing.is_none() {
            self.flush(now, fx);
            if self.stopping {
                fx.exit(0, format!("mon.{}: stopped", self.cluster.name));
            }
        }
        self.ask_store(kv, fx);
        self.msgr.end_turn(now, fx);
        self.mgr.end_turn(now, fx);
        if let Some(worker) = &mut self.worker {
            worker.end_turn(now, fx);
        }
    }

    /// What is due, whatever came in.
    fn do_what_is_due(&mut self, now: Now) {
        if self.next_tick <= now.mono {
            self.tick(now);
        } else if self.merge_goes_on {
            self.cluster.adjust_pgs(now.mono);
        }
        self.merge_goes_on = false;
        self.look_again(now);
        self.order_scrubs();
        self.ask_for_images(now);
        self.work(now);
        self.serve_log();
    }

    /// Lets everything out. Nothing is uncommitted.
    fn flush(&mut self, now: Now, fx: &mut Effects) {
        for output in std::mem::take(&mut self.outbox) {
            match output {
                Output::Message(Role::Mon, link, message) => self.msgr.send(link, message),
                Output::Message(Role::Mgr, link, message) => self.mgr.send(link, message),
                Output::GlobalId(link, id) => self.msgr.assign_global_id(link, id),
                Output::Close(Role::Mon, link) => {
                    self.msgr.close(link, fx);
                    self.closed.insert(link);
                    self.next_tick = now.mono;
                }
                Output::Close(Role::Mgr, link) => self.mgr.close(link, fx),
                Output::Admin(conn, result) => {
                    if let Some(admin) = &mut self.admin {
                        admin.reply(conn, result, fx);
                    }
                }
                Output::ReopenLog => fx.reopen_log = true,
            }
        }
    }

    /// Sends something when everything so far is committed.
    fn send(&mut self, link: LinkId, message: OutMessage) {
        self.outbox.push(Output::Message(Role::Mon, link, message));
    }
}

fn admin_path(admin: Option<&AdminServer>) -> String {
    admin.map(|a| a.path().display().to_string()).unwrap_or_default()
}

//! A client that finds objects by the map, and sends again what may have got lost.

use io::{Core, Effects, Event, Now, Rng};
use maps::{Incremental, OsdMap};
use std::collections::BTreeMap;
use types::{
    AddrVec, EntityType, Epoch, HObject, Mono, OsdId, PgId, PoolId, ShardId, SnapId, SpgId,
};
use wire::frame::FEATURES_SUPPORTED;
use wire::messenger::{Dial, Policy};
use wire::msg::{
    BackoffOp, MCommand, MCommandReply, MMonSubscribe, MOsdBackoff, MOsdMap, MOsdOp, MOsdOpReply,
    Message, OsdOp, Payload, SnapContext, Subscription, flags,
};
use wire::{Identity, LinkId, Messenger, MsgrEvent};

/// Where a request goes, by the map it was last sent with. Like Ceph's clients, this one sends again
/// only when the primary changes (`Objecter.cc: is_pg_changed`).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    pgid: PgId,
    primary: Option<OsdId>,
}

struct Pending {
    request: MOsdOp,
    /// It goes there, whoever leads.
    to: Option<OsdId>,
    /// `None`: not sent yet.
    target: Option<Target>,
    link: Option<LinkId>,
}

/// A command to an OSD, which is sent again when a connection ends before it is answered.
struct Command {
    osd: OsdId,
    tid: u64,
    text: String,
}

pub struct TestClient {
    msgr: Messenger,
    mon: AddrVec,
    mon_link: Option<LinkId>,
    redial_at: Option<Mono>,
    pub map: OsdMap,
    links: BTreeMap<OsdId, LinkId>,
    pending: BTreeMap<u64, Pending>,
    last_tid: u64,
    pub done: BTreeMap<u64, MOsdOpReply>,
    /// What it knows.
    pub features: u64,
    /// How often it was told to hold requests.
    pub backoffs: u32,
    /// Commands to be sent.
    commands: Vec<Command>,
    /// Commands that are not answered.
    asked: Vec<(LinkId, Command)>,
    /// What OSDs told us to hold, by the number and the link.
    held: BTreeMap<(LinkId, u64), MOsdBackoff>,
    /// Every message that is none of the above.
    pub other: Vec<Message>,
}

/// An object of a pool by its name.
pub fn object(pool: i64, name: &str) -> HObject {
    HObject { pool: PoolId(pool), name: name.into(), snap: SnapId::HEAD, ..HObject::min() }
}

/// Whether an object of a PG is one that is to be held.
fn is_in(m: &MOsdBackoff, pgid: PgId, object: &HObject) -> bool {
    m.pgid.pgid == pgid && m.begin <= *object && *object < m.end
}

impl TestClient {
    pub fn new(mon: AddrVec, nonce: u32, seed: u64) -> Self {
        TestClient {
            msgr: Messenger::new(Identity::client("admin", nonce), Rng::with_seed(seed)),
            mon,
            mon_link: None,
            redial_at: None,
            map: OsdMap::default(),
            links: BTreeMap::new(),
            pending: BTreeMap::new(),
            last_tid: 0,
            done: BTreeMap::new(),
            features: FEATURES_SUPPORTED,
            backoffs: 0,
            commands: Vec::new(),
            asked: Vec::new(),
            held: BTreeMap::new(),
            other: Vec::new(),
        }
    }

    /// Starts a request; its result will be in [`TestClient::done`].
    pub fn request(&mut self, object: HObject, ops: Vec<OsdOp>, write: bool) -> u64 {
        let kind = if write { flags::WRITE } else { flags::READ };
        self.request_with(object, ops, kind, SnapContext::default())
    }

    pub fn request_with(
        &mut self,
        object: HObject,
        ops: Vec<OsdOp>,
        kind: u32,
        snapc: SnapContext,
    ) -> u64 {
        self.last_tid += 1;
        let request = MOsdOp {
            locator_pool: object.pool,
            object,
            flags: kind | flags::ONDISK | flags::KNOWN_IF_REDIRECTED,
            ops: ops.into_iter().collect(),
            snapc,
            ..MOsdOp::default()
        };
        let pending = Pending { request, to: None, target: None, link: None };
        self.pending.insert(self.last_tid, pending);
        self.last_tid
    }

    /// Starts a request to this OSD, whoever leads.
    pub fn request_to(&mut self, osd: OsdId, object: HObject, ops: Vec<OsdOp>, kind: u32) -> u64 {
        let tid = self.request_with(object, ops, kind, SnapContext::default());
        self.pending.get_mut(&tid).expect("it is there").to = Some(osd);
        tid
    }

    /// Starts a request to a PG as such.
    pub fn request_of_pg(&mut self, pgid: PgId, op: OsdOp) -> u64 {
        let object = HObject { hash: pgid.seed, ..object(pgid.pool.0, "") };
        self.request_with(object, vec![op], flags::READ, SnapContext::default())
    }

    /// From now on it connects as a client that cannot be told to hold requests.
    pub fn know_no_backoffs(&mut self) {
        self.features &= !(1 << 21);
        let links: Vec<OsdId> = self.links.keys().copied().collect();
        links.into_iter().for_each(|osd| self.forget_link(osd));
    }

    pub fn outstanding(&self) -> usize {
        self.pending.len()
    }

    /// Sends a command to an OSD; the answer will be in [`TestClient::other`].
    pub fn command(&mut self, osd: OsdId, text: String) -> u64 {
        self.last_tid += 1;
        self.commands.push(Command { osd, tid: self.last_tid, text });
        self.last_tid
    }

    /// Sends an OSD what it did not ask for, on the link that is there.
    pub fn send(&mut self, osd: OsdId, message: wire::msg::OutMessage) {
        self.msgr.send(self.links[&osd], message);
    }

    /// Takes nothing more from an OSD, or again.
    pub fn pause(&mut self, osd: OsdId, paused: bool, fx: &mut Effects) {
        let link = self.links[&osd];
        match paused {
            true => self.msgr.pause(link, fx),
            false => self.msgr.resume(link, fx),
        }
    }

    /// Which PG an object belongs to.
    pub fn pg_of(&self, object: &HObject) -> PgId {
        let request = MOsdOp { object: object.clone(), ..MOsdOp::default() };
        Self::target(&self.map, &request).expect("the pool is there").0.pgid
    }

    /// Which OSD leads the PG of an object.
    pub fn primary_of(&self, object: &HObject) -> OsdId {
        self.map.pg_to_up_acting(self.pg_of(object)).acting_primary.expect("it has a primary")
    }

    fn target(map: &OsdMap, request: &MOsdOp) -> Option<(Target, u32)> {
        let pool = map.pool(request.object.pool)?;
        let o = &request.object;
        let hash =
            if request.is_for_pg() { o.hash } else { pool.hash_key(&o.nspace, &o.key, &o.name) };
        let raw = PgId { pool: o.pool, seed: hash };
        let pgid = pool.raw_pg_to_pg(raw);
        let ua = map.pg_to_up_acting(pgid);
        let target = Target { pgid, primary: ua.acting_primary };
        Some((target, hash))
    }

    fn link_to(&mut self, osd: OsdId, now: Now, fx: &mut Effects) -> Option<LinkId> {
        if let Some(link) = self.links.get(&osd) {
            return Some(*link);
        }
        let addrs = self.map.client_addrs(osd)?.clone();
        let dial = Dial::new(addrs, EntityType::OSD, Policy::lossy_client());
        let link = self.msgr.dial(now, Dial { features: self.features, ..dial }, fx);
        self.links.insert(osd, link);
        Some(link)
    }

    fn send_due(&mut self, now: Now, fx: &mut Effects) {
        if self.map.epoch == Epoch::ZERO {
            return;
        }
        for command in std::mem::take(&mut self.commands) {
            let Some(link) = self.link_to(command.osd, now, fx) else {
                self.commands.push(command);
                continue;
            };
            let text = MCommand { cmd: vec![command.text.clone()], ..MCommand::default() };
            self.msgr.send(link, text.encode().with_tid(command.tid));
            self.asked.push((link, command));
        }
        let tids: Vec<_> = self.pending.keys().copied().collect();
        for tid in tids {
            self.send_one(tid, now, fx);
        }
    }

    fn send_one(&mut self, tid: u64, now: Now, fx: &mut Effects) {
        // What was sent and went elsewhere since has no link any more.
        let Some(p) = self.pending.get(&tid).filter(|p| p.link.is_none()) else { return };
        let named = p.request.object.clone();
        let Some((mut target, hash)) = Self::target(&self.map, &p.request) else { return };
        target.primary = p.to.or(target.primary);
        let link = target.primary.and_then(|osd| self.link_to(osd, now, fx));
        let epoch = self.map.epoch;
        let at = HObject { hash, ..named };
        let held = |(on, m): (&(LinkId, u64), &MOsdBackoff)| {
            Some(on.0) == link && is_in(m, target.pgid, &at)
        };
        if self.held.iter().any(held) {
            return;
        }
        let Some(p) = self.pending.get_mut(&tid) else { return };
        if p.target.is_some() {
            p.request.retry_attempt += 1;
            p.request.flags |= flags::RETRY;
        }
        p.request.object.hash = hash;
        p.request.pgid = SpgId { pgid: target.pgid, shard: ShardId::NONE };
        p.request.epoch = epoch;
        p.target = Some(target);
        p.link = link;
        if let Some(link) = link {
            self.msgr.send(link, p.request.clone().encode().with_tid(tid));
        }
    }

    fn on_maps(&mut self, m: &MOsdMap) {
        if let Some((epoch, full)) = m.fulls.iter().next_back()
            && *epoch > self.map.epoch
        {
            self.map = denc::decode(full).expect("a map");
            self.note_moved();
        }
        while let Some(inc) = m.incrementals.get(&self.map.epoch.next()) {
            let inc: Incremental = denc::decode(inc).expect("an incremental");
            self.map.apply(&inc).expect("it applies");
            self.note_moved();
        }
        let gone = |o: &OsdId| !self.map.is_up(*o);
        let gone: Vec<_> = self.links.keys().copied().filter(gone).collect();
        for osd in gone {
            self.forget_link(osd);
        }
    }

    /// What went elsewhere must be sent again, also when it comes back in the next epoch.
    fn note_moved(&mut self) {
        for p in self.pending.values_mut() {
            let now = Self::target(&self.map, &p.request).map(|(t, _)| t);
            if p.to.is_none() && p.target.is_some() && now != p.target {
                p.link = None;
            }
        }
    }

    fn forget_link(&mut self, osd: OsdId) {
        if let Some(link) = self.links.remove(&osd) {
            for p in self.pending.values_mut().filter(|p| p.link == Some(link)) {
                p.link = None;
            }
            let lost = self.asked.extract_if(.., |(on, _)| *on == link);
            self.commands.extend(lost.map(|(_, command)| command));
            self.held.retain(|(on, _), _| *on != link);
        }
    }

    /// An OSD tells us to hold requests, or to send them.
    fn on_backoff(&mut self, link: LinkId, m: MOsdBackoff) {
        match m.op {
            BackoffOp::Block => {
                let meets =
                    |b: &MOsdBackoff| b.pgid == m.pgid && b.begin < m.end && m.begin < b.end;
                let of_link = self.held.iter().filter(|((on, _), _)| *on == link);
                assert!(!of_link.map(|(_, b)| b).any(meets), "we hold pg {} already", m.pgid.pgid);
                let ack = MOsdBackoff { op: BackoffOp::AckBlock, ..m.clone() };
                self.msgr.send(link, ack.encode());
                self.backoffs += 1;
                self.held.insert((link, m.id), m);
            }
            BackoffOp::Unblock => {
                if self.held.remove(&(link, m.id)).is_none() {
                    return;
                }
                for p in self.pending.values_mut().filter(|p| p.link == Some(link)) {
                    if is_in(&m, p.request.pgid.pgid, &p.request.object) {
                        p.link = None;
                    }
                }
            }
            BackoffOp::AckBlock => panic!("we hold nobody back"),
        }
    }

    fn on_message(&mut self, link: LinkId, message: Message) {
        match message.header.kind {
            MOsdBackoff::TYPE => self.on_backoff(link, message.decode().expect("a backoff")),
            MOsdMap::TYPE => self.on_maps(&message.decode().expect("maps")),
            MOsdOpReply::TYPE => {
                let reply: MOsdOpReply = message.decode().expect("a reply");
                let tid = message.header.tid;
                let current = self
                    .pending
                    .get(&tid)
                    .is_some_and(|p| p.request.retry_attempt == reply.retry_attempt);
                if current {
                    self.pending.remove(&tid);
                    self.done.insert(tid, reply);
                }
            }
            kind => {
                let tid = message.header.tid;
                self.asked.retain(|(_, c)| kind != MCommandReply::TYPE || c.tid != tid);
                self.other.push(message);
            }
        }
    }

    fn on_events(&mut self, now: Now, events: Vec<MsgrEvent>) {
        for event in events {
            match event {
                MsgrEvent::Open { link, peer } if self.mon_link == Some(link) => {
                    self.msgr.set_global_id(peer.global_id);
                    let start = match self.map.epoch {
                        Epoch::ZERO => 0,
                        epoch => u64::from(epoch.0) + 1,
                    };
                    let mut m = MMonSubscribe::default();
                    m.what.insert("osdmap".into(), Subscription { start, flags: 0 });
                    self.msgr.send(link, m.encode());
                }
                MsgrEvent::Message { link, message } => self.on_message(link, message),
                MsgrEvent::Closed { link, .. } if self.mon_link == Some(link) => {
                    self.mon_link = None;
                    self.redial_at = Some(now.mono.after(std::time::Duration::from_millis(100)));
                }
                MsgrEvent::Closed { link, .. } => {
                    let osd = self.links.iter().find(|(_, l)| **l == link).map(|(o, _)| *o);
                    osd.into_iter().for_each(|o| self.forget_link(o));
                    self.redial_at = Some(now.mono.after(std::time::Duration::from_millis(100)));
                }
                _ => {}
            }
        }
    }
}

impl Core for TestClient {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        let mut events = Vec::new();
        if let Event::Net(event) = event {
            drop(self.msgr.handle(now, event, fx, &mut events));
        }
        self.on_events(now, events);
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        let mut events = Vec::new();
        self.msgr.tick(now, fx, &mut events);
        self.on_events(now, events);
        let due = self.redial_at.is_none_or(|at| at <= now.mono);
        if due {
            self.redial_at = None;
            if self.mon_link.is_none() {
                let dial = Dial::new(self.mon.clone(), EntityType::MON, Policy::mon_client());
                self.mon_link = Some(self.msgr.dial(now, dial, fx));
            }
            self.send_due(now, fx);
        }
        self.msgr.end_turn(now, fx);
    }

    fn next_deadline(&self) -> Option<Mono> {
        [self.redial_at, self.msgr.next_deadline()].into_iter().flatten().min()
    }
}

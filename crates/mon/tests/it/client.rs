//! A client of the mon that says what the test wants, and keeps what it hears.

use io::{Core, Effects, Event, Now, Rng};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{AddrVec, EntityType, Mono, Uuid};
use wire::messenger::{Dial, Policy};
use wire::msg::{MMonCommand, MMonCommandAck, Message, OutMessage, Payload};
use wire::{Identity, LinkId, Messenger, MsgrEvent};

/// How soon it dials again.
const REDIAL: Duration = Duration::from_millis(50);

pub struct TestClient {
    msgr: Messenger,
    mon: AddrVec,
    /// What answers there.
    pub kind: EntityType,
    fsid: Uuid,
    link: Option<LinkId>,
    open: bool,
    redial_at: Mono,
    last_tid: u64,
    to_send: Vec<OutMessage>,
    /// Answers to commands.
    pub acks: BTreeMap<u64, MMonCommandAck>,
    /// Everything else that came.
    pub heard: Vec<Message>,
    /// Sessions that were opened.
    pub sessions: u32,
}

impl TestClient {
    pub fn new(mon: AddrVec, fsid: Uuid, identity: Identity, seed: u64) -> Self {
        TestClient {
            msgr: Messenger::new(identity, Rng::with_seed(seed)),
            mon,
            kind: EntityType::MON,
            fsid,
            link: None,
            open: false,
            redial_at: Mono::default(),
            last_tid: 0,
            to_send: Vec::new(),
            acks: BTreeMap::new(),
            heard: Vec::new(),
            sessions: 0,
        }
    }

    /// Asks for a command; the answer will be in [`TestClient::acks`] unless the session ends.
    pub fn command(&mut self, json: &str) -> u64 {
        let cmd = vec![json.to_owned()];
        self.say(MMonCommand { fsid: self.fsid, cmd, ..MMonCommand::default() }.encode())
    }

    /// Says something.
    pub fn say(&mut self, message: OutMessage) -> u64 {
        self.last_tid += 1;
        self.to_send.push(message.with_tid(self.last_tid));
        self.last_tid
    }

    /// Messages of a type that were heard.
    pub fn all<P: Payload>(&self) -> Vec<P> {
        let of = self.heard.iter().filter(|m| m.header.kind == P::TYPE);
        of.map(|m| m.decode().expect("it can be read")).collect()
    }

    fn on_events(&mut self, now: Now, events: Vec<MsgrEvent>) {
        for event in events {
            match event {
                MsgrEvent::Open { .. } => {
                    self.open = true;
                    self.sessions += 1;
                }
                MsgrEvent::Closed { .. } => {
                    self.link = None;
                    self.open = false;
                    self.redial_at = now.mono.after(REDIAL);
                }
                MsgrEvent::Message { message, .. } => match message.header.kind {
                    MMonCommandAck::TYPE => {
                        let ack = message.decode().expect("it can be read");
                        self.acks.insert(message.header.tid, ack);
                    }
                    _ => self.heard.push(message),
                },
                _ => {}
            }
        }
    }
}

impl Core for TestClient {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        let mut events = Vec::new();
        if let Event::Net(event) = event {
            self.msgr.handle(now, event, fx, &mut events);
        }
        self.on_events(now, events);
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        let mut events = Vec::new();
        self.msgr.tick(now, fx, &mut events);
        self.on_events(now, events);
        if self.link.is_none() && self.redial_at <= now.mono {
            let dial = Dial::new(self.mon.clone(), self.kind, Policy::mon_client());
            self.link = Some(self.msgr.dial(now, dial, fx));
        }
        if let Some(link) = self.link.filter(|_| self.open) {
            self.to_send.drain(..).for_each(|m| self.msgr.send(link, m));
        }
        self.msgr.end_turn(now, fx);
    }

    fn next_deadline(&self) -> Option<Mono> {
        let redial = self.link.is_none().then_some(self.redial_at);
        self.msgr.next_deadline().into_iter().chain(redial).min()
    }
}

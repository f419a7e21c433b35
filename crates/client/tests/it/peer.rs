//! A fake daemon: a messenger, an inbox and an outbox, and perhaps something that answers by itself.

use io::net::{ListenAddr, ListenId};
use io::{Core, Effects, Event, Now, Rng};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use types::{AddrVec, EntityType, Mono};
use wire::msg::{Message, OutMessage};
use wire::{Identity, LinkId, ListenerConfig, Messenger, MsgrEvent};

/// Answers messages as they come.
pub type Script = Box<dyn FnMut(&mut PeerState, LinkId, Message)>;

/// What a test sees of a daemon, and what it wants of it.
#[derive(Default)]
pub struct PeerState {
    pub inbox: VecDeque<(LinkId, Message)>,
    pub outbox: Vec<(LinkId, OutMessage)>,
    /// Open links.
    pub links: Vec<LinkId>,
    /// Links to be closed.
    pub close: Vec<LinkId>,
    /// How often a link opened.
    pub opened: usize,
    /// Clients that come back with a global id they had.
    pub known_ids: Vec<u64>,
    last_global_id: u64,
}

pub type Shared = Rc<RefCell<PeerState>>;
pub type SharedScript = Rc<RefCell<Option<Script>>>;

pub struct PeerCore {
    msgr: Messenger,
    addr: SocketAddr,
    nonce: u32,
    state: Shared,
    script: SharedScript,
    is_mon: bool,
}

impl PeerCore {
    pub fn new(
        entity: EntityType,
        id: u32,
        (addr, nonce): (SocketAddr, u32),
        state: Shared,
        script: SharedScript,
        seed: u64,
    ) -> Self {
        let me = Identity::daemon(entity, id, nonce);
        state.borrow_mut().links.clear();
        state.borrow_mut().inbox.clear();
        let is_mon = entity == EntityType::MON;
        let msgr = Messenger::new(me, Rng::with_seed(seed));
        PeerCore { msgr, addr, nonce, state, script, is_mon }
    }

    fn listen(&mut self, fx: &mut Effects) {
        let addrs = AddrVec::msgr2(self.addr, self.nonce);
        let config =
            if self.is_mon { ListenerConfig::mon(addrs) } else { ListenerConfig::osd(addrs) };
        self.msgr.listen(ListenId(0), ListenAddr::Tcp(self.addr), config, fx);
    }

    fn take_in(&mut self, events: Vec<MsgrEvent>) {
        for event in events {
            let mut state = self.state.borrow_mut();
            match event {
                MsgrEvent::WantsGlobalId { link, .. } => {
                    state.last_global_id += 1;
                    let id = 4100 + state.last_global_id;
                    self.msgr.assign_global_id(link, id);
                }
                MsgrEvent::Open { link, peer } => {
                    state.links.push(link);
                    state.opened += 1;
                    state.known_ids.push(peer.global_id);
                }
                MsgrEvent::Closed { link, .. } => state.links.retain(|l| *l != link),
                MsgrEvent::Message { link, message } => {
                    drop(state);
                    self.on_message(link, message);
                }
                _ => {}
            }
        }
    }

    fn on_message(&mut self, link: LinkId, message: Message) {
        match self.script.borrow_mut().as_mut() {
            Some(script) => script(&mut self.state.borrow_mut(), link, message),
            None => self.state.borrow_mut().inbox.push_back((link, message)),
        }
    }
}

impl Core for PeerCore {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        let mut events = Vec::new();
        match event {
            Event::Start => self.listen(fx),
            Event::Net(event) => drop(self.msgr.handle(now, event, fx, &mut events)),
            Event::Timer => self.msgr.tick(now, fx, &mut events),
            _ => {}
        }
        self.take_in(events);
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        let mut state = self.state.borrow_mut();
        for (link, message) in state.outbox.drain(..) {
            self.msgr.send(link, message);
        }
        for link in std::mem::take(&mut state.close) {
            state.links.retain(|l| *l != link);
            self.msgr.close(link, fx);
        }
        self.msgr.end_turn(now, fx);
    }

    fn next_deadline(&self) -> Option<Mono> {
        self.msgr.next_deadline()
    }
}

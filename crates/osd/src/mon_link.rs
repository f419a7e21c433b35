//! The session with a mon: dialled anew when it ends, and everything said again.

use crate::config::ASK_AGAIN_MS;
use crate::daemon::Daemon;
use io::Effects;
use peer::{ImagesAsked, OsdHere, OsdRefusal, OsdWhoIsThere, PgCreates, RecoveryOrder, ScrubOrder};
use std::time::Duration;
use types::{AddrVec, EntityType, Epoch, Mono};
use wire::LinkId;
use wire::messenger::{Dial, Policy};
use wire::msg::{
    MConfig, MMonGetOsdMap, MMonSubscribe, MOsdMap, Message, OutMessage, Payload, Subscription,
};

/// Orders of the mon that are kept until a map comes.
const WAITING_ORDERS: usize = 1024;

/// The session with the mon.
#[derive(Debug)]
pub struct MonLink {
    mons: Vec<AddrVec>,
    next: usize,
    /// The link, open or on its way.
    pub link: Option<LinkId>,
    /// Whether the session is open.
    pub open: bool,
    /// When to dial again.
    pub redial_at: Option<Mono>,
    /// Something newer than the subscription brings is needed at once.
    pub wants_map: bool,
    /// The next map, and those after it, have to be asked for as whole ones.
    pub wants_full: bool,
    /// The newest map that the mon had.
    pub newest: Epoch,
    /// Which was last asked for so, and when.
    pub full_asked: (Epoch, Mono),
    /// Orders for a map that is not here yet.
    pub orders: Vec<Message>,
    /// PGs have new wishes.
    pub wishes_changed: bool,
    /// When the wishes were last sent.
    pub asked_at: Mono,
    /// Why it does not take us into the map.
    pub refused: Option<String>,
}

impl MonLink {
    /// Not connected.
    pub fn new(mons: Vec<AddrVec>) -> Self {
        MonLink {
            mons,
            next: 0,
            link: None,
            open: false,
            redial_at: Some(Mono::default()),
            wants_map: false,
            wants_full: false,
            newest: Epoch::ZERO,
            full_asked: (Epoch::ZERO, Mono::default()),
            orders: Vec::new(),
            wishes_changed: false,
            asked_at: Mono::default(),
            refused: None,
        }
    }
}

impl Daemon {
    /// Whether an order is for a map that is not here yet: by ours somebody else may lead the PGs. It is
    /// kept until the map comes.
    fn must_wait_for(&mut self, epoch: Epoch, message: &Message) -> bool {
        let early = epoch > self.maps.epoch();
        if early {
            self.mon.wants_map = true;
            self.mon.orders.push(message.clone());
            if self.mon.orders.len() > WAITING_ORDERS {
                self.mon.orders.remove(0);
                self.perf.odd_messages += 1;
            }
        }
        early
    }

    /// Dials a mon when it is time to.
    pub(crate) fn dial_mon(&mut self, fx: &mut Effects) {
        let due = self.mon.redial_at.is_some_and(|at| at <= self.now.mono);
        if self.mon.link.is_some() || !due || self.mon.mons.is_empty() {
            return;
        }
        let target = self.mon.mons[self.mon.next % self.mon.mons.len()].clone();
        self.mon.next += 1;
        self.mon.redial_at = None;
        let dial = Dial::new(target, EntityType::MON, Policy::mon_client());
        let link = self.msgr.dial(self.now, dial.from_addrs(self.client_addrs.clone()), fx);
        self.mon.link = Some(link);
    }

    pub(crate) fn mon_closed(&mut self) {
        const REDIAL_MS: u64 = 250;
        self.mon.link = None;
        self.mon.open = false;
        let wait = std::time::Duration::from_millis(REDIAL_MS);
        self.mon.redial_at = Some(self.now.mono.after(wait));
        self.next_tick = self.next_tick.min(self.now.mono.after(wait));
    }

    pub(crate) fn mon_opened(&mut self, fx: &mut Effects) {
        self.mon.open = true;
        self.subscribe();
        self.say_to_mon();
        self.pgs.values_mut().for_each(|h| h.dirty = true);
        self.heartbeats.forget_reports();
        self.report_soon();
        self.ask_again(fx);
    }

    /// Subscribes to every map after ours, and to settings.
    pub(crate) fn subscribe(&mut self) {
        let Some(link) = self.mon.link.filter(|_| self.mon.open) else { return };
        let start = u64::from(self.maps.epoch().0) + 1;
        let start = if self.maps.epoch() == Epoch::ZERO { 0 } else { start };
        let mut m = MMonSubscribe::default();
        m.what.insert("osdmap".into(), Subscription { start, flags: 0 });
        m.what.insert("config".into(), Subscription { start: 0, flags: 0 });
        self.msgr.send(link, m.encode());
        self.mon.wants_map = false;
    }

    /// Asks for the next maps as whole ones, if that is needed, and at once or again.
    pub(crate) fn ask_for_full_map(&mut self) {
        let (now, next) = (self.now.mono, self.maps.epoch().next());
        let (asked, at) = self.mon.full_asked;
        let again = Duration::from_millis(ASK_AGAIN_MS);
        if !self.mon.wants_full || (asked == next && now.since(at) < again) {
            return;
        }
        self.mon.full_asked = (next, now);
        let full_last = self.mon.newest.max(next);
        let m = MMonGetOsdMap { full_first: next, full_last, ..MMonGetOsdMap::default() };
        self.send_mon(m.encode());
    }

    /// Sends a message to the mon, if there is a session; else it is said again later.
    pub(crate) fn send_mon(&mut self, message: OutMessage) {
        if let Some(link) = self.mon.link.filter(|_| self.mon.open) {
            self.msgr.send(link, message);
        }
    }

    pub(crate) fn on_mon_message(&mut self, message: &Message, fx: &mut Effects) {
        match message.header.kind {
            MOsdMap::TYPE => self.on_map_message(true, message, fx),
            PgCreates::TYPE => match message.decode() {
                Ok(m) => self.on_pg_creates(&m, fx),
                Err(why) => tracing::error!("osd.{}: bad PG creates: {why}", self.cfg.id),
            },
            OsdRefusal::TYPE => match message.decode() {
                Ok(m) => self.on_refusal(m),
                Err(why) => tracing::error!("osd.{}: a bad refusal: {why}", self.cfg.id),
            },
            OsdWhoIsThere::TYPE => match message.decode() {
                Ok(OsdWhoIsThere { number }) => {
                    self.send_mon(OsdHere { osd: self.cfg.id, number }.encode());
                }
                Err(why) => tracing::error!("osd.{}: a bad question: {why}", self.cfg.id),
            },
            RecoveryOrder::TYPE => match message.decode::<RecoveryOrder>() {
                Ok(m) if self.must_wait_for(m.epoch, message) => {}
                Ok(m) => self.on_recovery_order(&m, fx),
                Err(why) => tracing::error!("osd.{}: a bad order: {why}", self.cfg.id),
            },
            ScrubOrder::TYPE => match message.decode::<ScrubOrder>() {
                Ok(m) if self.must_wait_for(m.epoch, message) => {}
                Ok(m) => self.on_scrub_order(&m, fx),
                Err(why) => tracing::error!("osd.{}: a bad scrub order: {why}", self.cfg.id),
            },
            ImagesAsked::TYPE => match message.decode::<ImagesAsked>() {
                Ok(m) => self.on_images_asked(m),
                Err(why) => tracing::error!("osd.{}: a bad question: {why}", self.cfg.id),
            },
            MConfig::TYPE => match message.decode::<MConfig>() {
                Ok(m) => self.apply_mon_config(&m),
                Err(why) => tracing::error!("osd.{}: bad settings: {why}", self.cfg.id),
            },
            _ => {}
        }
    }
}

//! What OSDs say.

use super::Server;
use super::tasks::Waiting;
use crate::osds::{BootAnswer, WEIGH_AFTER};
use crate::tasks::Question;
use io::Now;
use peer::{
    OsdAlive, OsdBoot, OsdFailure, OsdGoingDown, OsdHere, OsdPgTemp, OsdRefusal, OsdReport,
    OsdWhoIsThere,
};
use types::OsdId;
use wire::LinkId;
use wire::msg::{Message, Payload};

impl Server {
    /// Carries out a message of one of our own daemons. Whether it is one.
    pub(super) fn on_daemon(
        &mut self,
        now: Now,
        link: LinkId,
        m: &Message,
    ) -> Result<bool, denc::DecodeError> {
        let kind = m.header.kind;
        let ours = [
            OsdBoot::TYPE,
            OsdAlive::TYPE,
            OsdPgTemp::TYPE,
            OsdGoingDown::TYPE,
            OsdFailure::TYPE,
            OsdReport::TYPE,
            OsdHere::TYPE,
        ];
        if !ours.contains(&kind) {
            return Ok(false);
        }
        let Some(sender) = self.osd_of(link) else {
            tracing::warn!("a client sends a message of OSDs ({kind:#x}); it is ignored");
            return Ok(true);
        };
        match kind {
            OsdBoot::TYPE => {
                let boot: OsdBoot = m.decode()?;
                if is_senders(sender, boot.osd) {
                    self.boot(now, link, boot);
                }
            }
            OsdAlive::TYPE => {
                let wish: OsdAlive = m.decode()?;
                if is_senders(sender, wish.osd) {
                    self.cluster.alive(&wish);
                }
            }
            OsdPgTemp::TYPE => self.cluster.pg_temp(sender, &m.decode()?),
            OsdFailure::TYPE => {
                let failure: OsdFailure = m.decode()?;
                if is_senders(sender, failure.reporter) && self.cluster.failure(now, &failure) {
                    self.next_tick = self.next_tick.min(now.mono.after(WEIGH_AFTER));
                }
            }
            OsdGoingDown::TYPE => {
                let going: OsdGoingDown = m.decode()?;
                if is_senders(sender, going.osd) {
                    self.cluster.going_down(now, &going);
                }
            }
            OsdHere::TYPE => self.cluster.here(link, &m.decode()?),
            _ => {
                self.counters.reports += 1;
                let report: OsdReport = m.decode()?;
                if is_senders(sender, report.osd) {
                    let reported = report.pgs.iter().map(|stat| stat.pgid);
                    self.merge_goes_on |= self.cluster.is_of_merge(reported);
                    self.cluster.report(now, link, report);
                }
            }
        }
        Ok(true)
    }

    pub(super) fn boot(&mut self, now: Now, link: LinkId, boot: OsdBoot) {
        let osd = boot.osd;
        match self.cluster.boot(now, link, &boot) {
            BootAnswer::Up => {
                self.order_pgs(|o| o == osd);
            }
            BootAnswer::Held => {}
            BootAnswer::Later => {
                self.boots.insert(osd, (link, boot));
            }
            BootAnswer::Ask(old, number) => {
                self.send(old, OsdWhoIsThere { number }.encode());
                self.boots.insert(osd, (link, boot));
            }
            BootAnswer::Refused(why) => self.send(link, OsdRefusal { why }.encode()),
        }
    }

    /// Tells OSDs which PGs they are to make.
    pub(super) fn order_pgs(&mut self, to: impl Fn(OsdId) -> bool) {
        if self.cluster.newborns.is_empty() {
            return;
        }
        for (osd, order) in self.cluster.orders() {
            let link = self.cluster.osd_links.get(&osd).copied();
            // They are ordered again until they are there.
            if let Some(link) = link.filter(|link| to(osd) && self.takes(*link)) {
                self.send(link, order.encode());
            }
        }
    }

    /// Has OSDs count clients' I/O by image, and say how the images are called, while somebody wants to know.
    pub(super) fn ask_for_images(&mut self, now: Now) {
        let c = &mut self.cluster;
        for (link, asked) in c.images.orders(now.mono, &c.osd_links) {
            if self.takes(link) {
                self.send(link, asked.encode());
            }
        }
        for place in self.cluster.images.names_due() {
            let question = Question::Names(place.0, place.1.clone());
            self.ask_worker(now, Waiting::Names(place), question);
        }
    }

    /// Tells OSDs which PGs they are to scrub, or to recover first.
    pub(super) fn order_scrubs(&mut self) {
        for (osd, order) in self.cluster.scrub_orders() {
            if let Some(link) = self.cluster.osd_links.get(&osd).copied() {
                self.send(link, order.encode());
            }
        }
        for (osd, order) in std::mem::take(&mut self.cluster.recovery_orders) {
            if let Some(link) = self.cluster.osd_links.get(&osd).copied() {
                self.send(link, order.encode());
            }
        }
    }
}

/// Whether an OSD speaks of itself.
fn is_senders(sender: OsdId, of: OsdId) -> bool {
    if sender != of {
        tracing::warn!("osd.{sender} speaks for osd.{of}; that is ignored");
    }
    sender == of
}

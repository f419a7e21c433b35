//! Listings of a PG's objects, by which copies are compared that are being filled ([`pg::BackfillWork`]).
//!
//! One that cannot be made, as the store has lost part of what it knows, is asked for again after a while. Until then
//! that backfill waits; if its PG has no other one, it is `backfill_unfound`, and has no places.

use crate::daemon::{Daemon, Waiter};
use crate::object::key_range;
use crate::part::{PartError, list_objects};
use io::Effects;
use peer::{Scan, ScanReply};
use pg::Listing;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;
use store::{ReadSet, StoreError};
use types::testing::{Probe, hit};
use types::{Eversion, HObject, Mono, OsdId, PgId};
use wire::msg::Payload;

/// Objects that could not be listed are listed again after this.
const LIST_AGAIN_MS: u64 = 60_000;

/// A listing that waits for the disk.
#[derive(Debug)]
pub(crate) struct ListingRequest {
    pub begin: HObject,
    /// Who asked; `None`: our own backfill of this target.
    pub asked_by: Option<OsdId>,
}

/// Those of a PG, in one interval.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    /// By the targets of our backfills; by ourselves where we are one.
    pub requests: BTreeMap<OsdId, ListingRequest>,
    /// When those that could not be made for our backfills are asked for again.
    again_at: Option<Mono>,
}

impl Daemon {
    pub(crate) fn on_scan(&mut self, from: OsdId, m: Scan, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if !host.started || host.interval() != m.interval {
            return;
        }
        let request = ListingRequest { begin: m.begin, asked_by: Some(from) };
        host.transfers.listings.requests.insert(self.cfg.id, request);
        self.list_for(m.pgid, self.cfg.id, fx);
    }

    pub(crate) fn list_for(&mut self, pgid: PgId, target: OsdId, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let Some(request) = host.transfers.listings.requests.get(&target) else { return };
        if !host.is_settled() {
            // What the log says is not all in the store yet: the tick tries again.
            return;
        }
        let (first, end) = key_range(pgid, host.pg.rules().pg_num.max(1));
        let from = if request.begin.is_min() { first } else { request.begin.to_key() };
        match list_objects(&self.store, &from, &end, self.limits.scan_objects) {
            Err(PartError::Miss(miss)) => {
                let waiter = Waiter::Listing(pgid, request.asked_by.is_none().then_some(target));
                self.fetch(miss, waiter, fx);
            }
            Err(PartError::Damaged) => {
                self.cannot_list(pgid, target, &"an object has no name", fx);
            }
            Ok(listed) => self.answer_listing(pgid, target, Some(listed), fx),
        }
    }

    /// Our objects from where they were asked for, up to some end. `None`: they cannot be listed, which an end where it
    /// begins tells others.
    fn answer_listing(
        &mut self,
        pgid: PgId,
        target: OsdId,
        listed: Option<(BTreeMap<HObject, Eversion>, HObject)>,
        fx: &mut Effects,
    ) {
        let epoch = self.maps.epoch();
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let Some(request) = host.transfers.listings.requests.remove(&target) else { return };
        let (begin, interval) = (request.begin, host.interval());
        match (request.asked_by, listed) {
            (None, None) => self.backfill_not_listed(pgid, target, true),
            (None, Some((objects, end))) => {
                host.pg.backfill_listed(target, true, Listing { begin, end, objects });
            }
            (Some(from), listed) => {
                let (objects, end) = listed.unwrap_or_else(|| (BTreeMap::new(), begin.clone()));
                let objects = objects.into_iter().collect();
                let reply = ScanReply { pgid, epoch, interval, begin, end, objects };
                self.send_peer(from, reply.encode(), fx);
            }
        }
    }

    pub(crate) fn listing_fetched(
        &mut self,
        pgid: PgId,
        target: Option<OsdId>,
        result: Result<ReadSet, StoreError>,
        fx: &mut Effects,
    ) {
        let target = target.unwrap_or(self.cfg.id);
        match result {
            Ok(_) => self.list_for(pgid, target, fx),
            Err(why) if self.metadata_is_damaged(pgid, &why, fx) => {}
            Err(why) => self.cannot_list(pgid, target, &why, fx),
        }
    }

    /// Our objects cannot be listed. Whoever asked for that goes on without, and asks again later.
    fn cannot_list(&mut self, pgid: PgId, target: OsdId, why: &dyn Display, fx: &mut Effects) {
        let listings = self.pgs.get(&pgid).map(|host| &host.transfers.listings);
        if listings.is_some_and(|listings| listings.requests.contains_key(&target)) {
            tracing::error!("osd.{}: pg {pgid} cannot be listed: {why}", self.cfg.id);
            self.perf.read_errors += 1;
            self.answer_listing(pgid, target, None, fx);
        }
    }

    /// A backfill cannot go on. If the PG has no other one it gives its places to others, and shows that.
    fn backfill_not_listed(&mut self, pgid: PgId, target: OsdId, here: bool) {
        hit(Probe::NotListed);
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.pg.backfill_not_listed(target, here);
        let soon = self.now.mono.after(Duration::from_millis(LIST_AGAIN_MS));
        host.transfers.listings.again_at.get_or_insert(soon);
        host.dirty = true;
        self.note_recovering(pgid);
        self.report_soon();
    }

    /// Listings that could not be made for backfills of ours are asked for again, where it is time.
    fn list_again(&mut self) {
        let now = self.now.mono;
        let mut listed = Vec::new();
        for (pgid, host) in self.pgs.iter_mut() {
            if host.transfers.listings.again_at.take_if(|at| *at <= now).is_some() {
                host.pg.list_again();
                host.dirty = true;
                listed.push(*pgid);
            }
        }
        listed.into_iter().for_each(|pgid| self.note_recovering(pgid));
    }

    /// Listings that had to wait for the PG's transactions, or could not be made.
    pub(crate) fn retry_listings(&mut self, fx: &mut Effects) {
        self.list_again();
        let waiting: Vec<_> = self
            .pgs
            .iter()
            .filter(|(_, h)| h.is_settled())
            .flat_map(|(p, h)| {
                h.transfers.listings.requests.keys().map(|t| (*p, *t)).collect::<Vec<_>>()
            })
            .collect();
        for (pgid, target) in waiting {
            self.list_for(pgid, target, fx);
        }
    }

    pub(crate) fn on_scan_reply(&mut self, from: OsdId, m: ScanReply) {
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if host.interval() == m.interval {
            let objects = m.objects.into_iter().collect();
            if m.end.is_head() && !m.end.max {
                tracing::error!("osd.{from} listed pg {} up to a head, {}", m.pgid, m.end);
                self.perf.odd_messages += 1;
                return;
            }
            if m.end <= m.begin {
                tracing::warn!("osd.{from} cannot list its objects of pg {}", m.pgid);
                self.backfill_not_listed(m.pgid, from, false);
                return;
            }
            host.pg.backfill_listed(from, false, Listing { begin: m.begin, end: m.end, objects });
        }
    }
}

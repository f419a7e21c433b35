//! What a request asks for beside its answer: watches and notifies.

use crate::daemon::{Daemon, Waiter};
use crate::host::{OpId, Source};
use crate::ops::{self, Finished, Reader, Scene, Sender, Stop, WatchEffect};
use crate::watch::{Expired, NewNotify, WatchOut};
use io::Effects;
use maps::OsdMap;
use std::time::Duration;
use store::{ReadSet, StoreError, SubmitError};
use types::{Errno, HObject, PgId};
use wire::msg::op::{Watch, watch_op};
use wire::msg::{MOsdOp, OpCode, OsdOp};

/// Of the memory for requests, notifies that wait for answers may take one part of so many.
const NOTIFY_PART: usize = 16;

impl Daemon {
    /// Carries out what a request asked for watchers. An error is the request's result.
    pub(crate) fn carry_out_effects(
        &mut self,
        id: OpId,
        pgid: PgId,
        effects: Vec<WatchEffect>,
        version: u64,
        fx: &mut Effects,
    ) -> Option<Errno> {
        if effects.is_empty() {
            return None;
        }
        let now = self.now.mono;
        let op = self.ops.get(&id)?;
        let (link, from, head) = (op.link, op.sender.name, op.head());
        let connected = self.sessions.get(link).is_some().then_some(link);
        let mut out = Vec::new();
        let mut failed = None;
        for effect in effects {
            let notifies = matches!(effect, WatchEffect::Notify { .. });
            let room_bytes = if notifies { self.notify_room() } else { 0 };
            let watches = &mut self.pgs.get_mut(&pgid)?.watches;
            match effect {
                WatchEffect::Load { watches: stored } => {
                    if watches.count(&head) < stored {
                        self.load_watches(pgid, &head);
                    }
                }
                WatchEffect::Connect(w) => {
                    watches.connect(now, &head, &w, connected, &mut out);
                    if self.maps.current().is_blocklisted(&w.addr) {
                        self.shut_watchers_out([pgid]);
                    }
                }
                WatchEffect::Remove { cookie } => watches.remove(&head, (from, cookie), &mut out),
                WatchEffect::Ping { cookie } => {
                    if !watches.ping(now, &head, (from, cookie), link) {
                        failed = Some(Errno::ETIMEDOUT);
                    }
                }
                WatchEffect::DisconnectAll => watches.disconnect_all(&head, &mut out),
                WatchEffect::Notify { id, cookie, timeout_s, payload } => {
                    let timeout = Duration::from_secs(u64::from(timeout_s));
                    let new = NewNotify { id, from, link, cookie, version, timeout, payload };
                    watches.notify(now, &head, new, room_bytes, &mut out);
                }
                WatchEffect::Ack { id, cookie, reply } => {
                    watches.ack(&head, id, (from, cookie), reply, &mut out);
                }
            }
        }
        self.send_watch_out(pgid, out, fx);
        failed
    }

    /// Bytes that more notifies may take.
    fn notify_room(&self) -> usize {
        let held: usize = self.pgs.values().map(|host| host.watches.held_bytes()).sum();
        (self.limits.request_bytes / NOTIFY_PART).saturating_sub(held)
    }

    /// What a write did of watches that was in the log before its interval ended, and is answered as a
    /// duplicate: the watches follow what is stored.
    pub(crate) fn follow_stored_watches(
        &mut self,
        id: OpId,
        pgid: PgId,
        fx: &mut Effects,
    ) -> Result<(), Stop> {
        let Some(op) = self.ops.get(&id) else { return Ok(()) };
        let Some(host) = self.pgs.get_mut(&pgid) else { return Ok(()) };
        let (from, head) = (op.sender.name, op.head());
        let asked = || op.request.ops.iter().filter(|sub| sub.code == OpCode::WATCH);
        if host.watches.count(&head) == 0 && asked().next().is_none() {
            return Ok(());
        }
        let connected = self.sessions.get(op.link).is_some().then_some(op.link);
        let reader = Reader { store: &self.store, set: &op.reads };
        let stored = reader.object(&head.to_key())?.map_or_else(Vec::new, |s| s.meta.watches);
        let mut out = Vec::new();
        for own in asked().map(|sub| sub.args.watch()) {
            let key = (from, own.cookie);
            match stored.iter().find(|w| (w.watcher, w.cookie) == key) {
                Some(w) if own.op != watch_op::UNWATCH => {
                    host.watches.connect(self.now.mono, &head, w, connected, &mut out);
                }
                // Who ended it himself is not told.
                None => host.watches.remove(&head, key, &mut out),
                Some(_) => {}
            }
        }
        // Writes that are not committed do it themselves.
        if host.objects.get(&head).is_none_or(|queue| queue.writing == 0) {
            host.watches.follow(&head, &stored, &mut out);
        }
        self.shut_watchers_out([pgid]);
        self.send_watch_out(pgid, out, fx);
        Ok(())
    }

    /// Ends the watches of clients that are on the blocklist (`check_blocklisted_watchers`).
    pub(crate) fn shut_watchers_out(&mut self, pgids: impl IntoIterator<Item = PgId>) {
        let (map, now) = (self.maps.current(), self.now.mono);
        if map.blocklist.is_empty() {
            return;
        }
        for pgid in pgids {
            if let Some(host) = self.pgs.get_mut(&pgid) {
                host.watches.shut_out(now, |addr| map.is_blocklisted(addr));
            }
        }
    }

    /// The same where a map has another blocklist than the one before.
    pub(crate) fn follow_blocklist(&mut self, old: &OsdMap) {
        if old.blocklist != self.maps.current().blocklist {
            self.shut_watchers_out(self.pgs.keys().copied().collect::<Vec<_>>());
        }
    }

    /// Watches that are stored with an object come to life when it is first used here.
    fn load_watches(&mut self, pgid: PgId, head: &HObject) {
        let reads = ReadSet::new();
        let reader = Reader { store: &self.store, set: &reads };
        // The request has just read the object, so that it is in memory.
        if let Ok(Some(stored)) = reader.object(&head.to_key())
            && let Some(host) = self.pgs.get_mut(&pgid)
        {
            host.watches.load(self.now.mono, head, &stored.meta.watches);
            self.shut_watchers_out([pgid]);
        }
    }

    /// Watches and notifies whose time is over. The next tick comes when the first one of the others ends, if that is
    /// sooner; whatever begins until then has more time.
    pub(crate) fn tick_watches(&mut self, fx: &mut Effects) {
        let now = self.now.mono;
        let due = |w: &crate::watch::Watches| w.next_deadline().is_some_and(|at| at <= now);
        let pgids: Vec<_> =
            self.pgs.iter().filter(|(_, h)| due(&h.watches)).map(|(p, _)| *p).collect();
        for pgid in pgids {
            let mut out = Vec::new();
            if let Some(host) = self.pgs.get_mut(&pgid) {
                host.watches.tick(now, &mut out);
            }
            self.send_watch_out(pgid, out, fx);
        }
        let first = self.pgs.values().filter_map(|h| h.watches.next_deadline()).min();
        self.next_tick = self.next_tick.min(first.unwrap_or(self.next_tick));
    }

    fn send_watch_out(&mut self, pgid: PgId, out: Vec<WatchOut>, fx: &mut Effects) {
        for item in out {
            match item {
                WatchOut::Send(link, message) => self.msgr.send(link, message),
                WatchOut::Expired(expired) => {
                    self.expire_watch(pgid, Box::new(expired), &ReadSet::new(), fx);
                }
            }
        }
    }

    /// Removes a watch by a logged write, as its client would.
    fn expire_watch(
        &mut self,
        pgid: PgId,
        expired: Box<Expired>,
        reads: &ReadSet,
        fx: &mut Effects,
    ) {
        let (snaps, compression) =
            (self.maps.pool_snaps(pgid.pool), self.maps.pool_compression(pgid.pool));
        self.remove_first(pgid, &expired.object, fx);
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let (object, key) = (&expired.object, expired.key);
        // What its client has sent meanwhile stands in line, or is on its way to the other copies.
        let mut requests = self.ops.values().filter(|op| op.pgid() == pgid);
        let is_heard_of = requests.any(|op| op.sender.name == key.0 && op.head() == *object);
        let usable = host.pg.accepts_io()
            && host.pg.readiness(object) == pg::Readiness::Ready
            && host.is_settled_for(object)
            && !host.scrub.holds(object)
            && host.watches.is_expired(&expired)
            && !is_heard_of;
        if !usable {
            // It is asked for again soon.
            return;
        }
        let unwatch = Watch { cookie: key.1, op: watch_op::UNWATCH, ..Watch::default() };
        let request = MOsdOp {
            object: object.clone(),
            ops: [OsdOp::new(OpCode::WATCH, unwatch)].into_iter().collect(),
            ..MOsdOp::default()
        };
        let scene = Scene {
            request: &request,
            head_key: &request.object.head().to_key(),
            writes: true,
            sender: Sender { name: key.0, addr: Default::default() },
            snaps: &snaps,
            compression,
            is_ready: &|_| true,
            copies: &[],
            room_bytes: 0,
            now: self.now.wall,
            next_notify_id: 0,
        };
        let reader = Reader { store: &self.store, set: reads };
        let written = match ops::run(reader, &scene, crate::host::sequencer(pgid)) {
            Ok(Finished { change: None, .. }) => Ok(()),
            Ok(Finished { change: Some(change), .. }) => {
                self.own_write(pgid, *change, object.clone(), reads, Source::Watch, fx)
            }
            Err(Stop::Miss(miss)) => Err(SubmitError::Miss(miss)),
            Err(_) => return,
        };
        match written {
            Ok(()) => {}
            Err(SubmitError::Miss(miss)) => {
                self.fetch(miss, Waiter::Watch(pgid, expired), fx);
                return;
            }
            Err(_) => return,
        }
        let mut out = Vec::new();
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.watches.end(object, key, &mut out);
        }
        self.send_watch_out(pgid, out, fx);
    }

    /// What the removal of a watch lacked is here.
    pub(crate) fn watch_fetched(
        &mut self,
        pgid: PgId,
        expired: Box<Expired>,
        result: Result<ReadSet, StoreError>,
        fx: &mut Effects,
    ) {
        match result {
            Ok(reads) => self.expire_watch(pgid, expired, &reads, fx),
            Err(why) => {
                tracing::error!("osd.{}: {}: {why}", self.cfg.id, expired.object);
                self.perf.read_errors += 1;
                self.metadata_is_damaged(pgid, &why, fx);
            }
        }
    }
}

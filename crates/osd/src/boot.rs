//! From a mounted store to an OSD in the map, and out of it again.
//!
//! Loading reads the range of maps, the records of all PGs, and then every map from the oldest one a
//! PG still needs, so that the PGs' intervals are noted one by one. Then the mon is asked for newer
//! maps, and to mark us up.

use crate::arriving::is_temporary;
use crate::daemon::{Daemon, Life, Waiter};
use crate::disk_bench::bench_object;
use crate::host::{Queued, meta_object, pg_of_meta_object};
use crate::mapstate::{RANGE_KEY, full_key, map_object};
use crate::object::{meta_end, own_object};
use crate::remove::rest_of_object;
use bytes::Bytes;
use io::Effects;
use maps::OsdMap;
use peer::{OsdBoot, OsdGoingDown, OsdRefusal};
use pg::LoadError;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use store::{Miss, OmapRange, ReadSet, StoreError, SubmitError, Transaction};
use types::{Epoch, HObject, PgId};
use wire::msg::{MOsdMap, Message, Payload};

/// Records of a PG read at once.
const RECORDS_AT_ONCE: usize = 4096;
/// How long an orderly end waits for the map that shows us down.
const LEAVE_MS: u64 = 300;

/// How far loading has come.
#[derive(Debug, Default)]
pub struct Loading {
    step: Step,
    /// PGs whose records are to be read.
    pgs: VecDeque<PgId>,
    /// Of the first of them, what was read so far.
    records: Vec<(Bytes, Bytes)>,
    /// The next map to read, and the newest one.
    next: Epoch,
    newest: Epoch,
    leftovers: Vec<HObject>,
    /// PGs whose import was broken off, with the `pg_num` of their pools then.
    broken_off: Vec<(PgId, u32)>,
    /// What is still to be removed of PGs that are not here.
    rests: Vec<(PgId, u32)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Range,
    Names,
    Records,
    Maps,
    Done,
}

/// What loading came upon.
enum LoadStop {
    Miss(Miss),
    Damaged(String),
}

impl From<Miss> for LoadStop {
    fn from(miss: Miss) -> Self {
        LoadStop::Miss(miss)
    }
}

impl Daemon {
    /// Goes on loading until it is done or something must be fetched.
    pub(crate) fn load(&mut self, fx: &mut Effects) {
        let Life::Loading(mut loading) = std::mem::replace(&mut self.life, Life::Joining) else {
            return;
        };
        while loading.step != Step::Done {
            match self.load_step(&mut loading, fx) {
                Ok(()) => {}
                Err(LoadStop::Miss(miss)) => {
                    self.life = Life::Loading(loading);
                    self.fetch(miss, Waiter::Loading, fx);
                    return;
                }
                Err(LoadStop::Damaged(what)) => {
                    let id = self.cfg.id;
                    fx.exit(
                        EXIT_WRONG_STORE,
                        format!(
                            "osd.{id}: its own records are damaged: {what}. `loligo store fsck` \
                             says more; if other copies are complete, make the OSD anew"
                        ),
                    );
                    return;
                }
            }
        }
        self.loaded(loading, fx);
    }

    pub(crate) fn load_fetched(&mut self, result: Result<ReadSet, StoreError>, fx: &mut Effects) {
        match result {
            Ok(_) => self.load(fx),
            Err(why) => fx.exit(1, format!("osd.{}: cannot be loaded: {why}", self.cfg.id)),
        }
    }

    fn load_step(&mut self, l: &mut Loading, fx: &mut Effects) -> Result<(), LoadStop> {
        match l.step {
            Step::Range => self.load_range(l),
            Step::Names => self.load_names(l),
            Step::Records => self.load_records(l),
            Step::Maps => self.load_map(l, fx),
            Step::Done => Ok(()),
        }
    }

    fn load_range(&mut self, l: &mut Loading) -> Result<(), LoadStop> {
        let key = [Bytes::from_static(RANGE_KEY)];
        let found = self.store.omap_get(&map_object().to_key(), &key)?;
        if let Some(value) = found.and_then(|mut v| v.pop().flatten()) {
            let range: Result<(Epoch, Epoch), _> = denc::decode(&value);
            let (oldest, newest) = range.map_err(|e| LoadStop::Damaged(e.to_string()))?;
            (l.next, l.newest) = (oldest, newest);
            self.maps.set_oldest(oldest);
        }
        l.step = Step::Names;
        Ok(())
    }

    /// The OSD's own objects: the PGs it has, and what a broken-off recovery left behind.
    fn load_names(&mut self, l: &mut Loading) -> Result<(), LoadStop> {
        let (from, to) = (own_object("").to_key(), meta_end().to_key());
        for (key, _) in self.store.list(&from, &to, usize::MAX)? {
            let Ok(object) = key.decode() else { continue };
            if let Some(pgid) = pg_of_meta_object(&object) {
                l.pgs.push_back(pgid);
            } else if let Some(rest) = rest_of_object(&object) {
                l.rests.push(rest);
            } else if is_temporary(&object) || object == bench_object() {
                l.leftovers.push(object);
            }
        }
        l.step = Step::Records;
        Ok(())
    }

    fn load_records(&mut self, l: &mut Loading) -> Result<(), LoadStop> {
        let Some(pgid) = l.pgs.front().copied() else {
            return self.choose_maps(l);
        };
        let from = l.records.last().map(|(k, _)| k.clone()).unwrap_or_default();
        let range = OmapRange {
            after: !from.is_empty(),
            from,
            max_entries: RECORDS_AT_ONCE,
            max_bytes: usize::MAX,
            ..OmapRange::default()
        };
        let page = self.store.omap_list(&meta_object(pgid).to_key(), &range)?.unwrap_or_default();
        let copy = |b: Bytes| Bytes::copy_from_slice(&b);
        l.records.extend(page.entries.into_iter().map(|(k, v)| (copy(k), copy(v))));
        if page.more {
            return Ok(());
        }
        let records = std::mem::take(&mut l.records);
        l.pgs.pop_front();
        let loaded = match pg::load(&records, &crate::split::belongs) {
            Ok(loaded) => loaded,
            // Written ahead for a split that was not done.
            Err(LoadError::NoInfo) => {
                l.leftovers.push(meta_object(pgid));
                return Ok(());
            }
            Err(LoadError::BrokenOff { pg_num }) => {
                l.broken_off.push((pgid, pg_num));
                return Ok(());
            }
            Err(e) => return Err(LoadStop::Damaged(format!("pg {pgid}: {e}"))),
        };
        self.ahead.entry(loaded.record.epoch).or_default().push(loaded);
        Ok(())
    }

    /// Which maps are read: from the oldest PG record on. A PG that was imported may be older than all
    /// maps here, and has brought its own: then that is the only one, and the mon is asked for what
    /// comes after, as if this OSD had been away since.
    fn choose_maps(&mut self, l: &mut Loading) -> Result<(), LoadStop> {
        let needed = self.ahead.keys().next().copied().unwrap_or(l.newest);
        if needed < l.next {
            let own = self.store.omap_get(&map_object().to_key(), &[full_key(needed)])?;
            if own.is_some_and(|maps| maps.iter().any(Option::is_some)) {
                (l.next, l.newest) = (needed, needed);
                self.maps.set_oldest(needed);
            }
        }
        // Maps from before are of no use.
        l.next = l.next.max(needed.min(l.newest));
        l.step = if l.newest == Epoch::ZERO { Step::Done } else { Step::Maps };
        Ok(())
    }

    fn load_map(&mut self, l: &mut Loading, fx: &mut Effects) -> Result<(), LoadStop> {
        let key = [full_key(l.next)];
        let found = self.store.omap_get(&map_object().to_key(), &key)?;
        let bytes = found.and_then(|mut v| v.pop().flatten());
        let bytes = bytes
            .ok_or_else(|| LoadStop::Damaged(format!("the map of epoch {} is gone", l.next)))?;
        let map: OsdMap = denc::decode(&bytes).map_err(|e| LoadStop::Damaged(e.to_string()))?;
        let old = self.maps.current().clone();
        self.maps.loaded(map);
        let new = self.maps.current().clone();
        // Nothing is started yet: all this does is to note intervals and to split what a crash kept
        // from being split.
        if self.ahead.keys().next().is_some_and(|oldest| *oldest < new.epoch) {
            self.skip_to(&new, fx);
        } else {
            self.advance(&old, &new, fx);
        }
        if l.next == l.newest {
            l.step = Step::Done;
        } else {
            l.next = l.next.next();
        }
        Ok(())
    }

    fn loaded(&mut self, l: Loading, fx: &mut Effects) {
        let ahead: usize = self.ahead.values().map(Vec::len).sum();
        tracing::info!(
            "osd.{}: {} PGs loaded, newest map {}",
            self.cfg.id,
            self.pgs.len() + ahead,
            self.maps.epoch()
        );
        self.life = Life::Joining;
        self.begin_with_leftovers(l.leftovers, fx);
        for (pgid, pg_num) in l.broken_off {
            self.remove_broken_off(pgid, pg_num, fx);
        }
        self.go_on_with_rests(l.rests, fx);
        self.open_sockets(fx);
    }

    // ---- maps ----

    pub(crate) fn on_map_message(&mut self, from_mon: bool, message: &Message, fx: &mut Effects) {
        let m: MOsdMap = match message.decode() {
            Ok(m) => m,
            Err(why) => {
                tracing::error!("osd.{}: a bad map message: {why}", self.cfg.id);
                return;
            }
        };
        if m.fsid != self.cfg.cluster {
            tracing::error!("osd.{}: a map of another cluster ({})", self.cfg.id, m.fsid);
            return;
        }
        self.take_maps(&m, from_mon, fx);
    }

    fn take_maps(&mut self, m: &MOsdMap, from_mon: bool, fx: &mut Effects) {
        if matches!(self.life, Life::Loading(_)) {
            return;
        }
        let mut old = self.maps.current().clone();
        let mut taken = self.maps.take(m, from_mon);
        if let Some(why) = &taken.damaged {
            tracing::error!(
                "osd.{}: the map after epoch {} cannot be taken in: {why}; the whole one is asked for",
                self.cfg.id,
                self.maps.epoch()
            );
        }
        for txn in std::mem::take(&mut taken.txns) {
            self.submit_maps(txn, fx);
        }
        if from_mon && m.newest > Epoch::ZERO {
            self.mon.newest = m.newest;
        }
        // It does not come out of ours and an incremental: another version of the program may write more into it
        // than this one knows. Then none after it does, and the mon takes those for sent.
        let goes_on = self.mon.wants_full && self.maps.epoch() < self.mon.newest;
        let moved = !taken.maps.is_empty();
        self.mon.wants_full = match taken.damaged {
            Some(_) => true,
            None if moved => goes_on && !m.fulls.is_empty(),
            None => self.mon.wants_full,
        };
        self.ask_for_full_map();
        self.mon.wants_map |= taken.behind;
        if taken.maps.is_empty() {
            return;
        }
        // First, so that what the PGs have to say finds its way.
        self.update_peers(fx);
        let before = old.clone();
        for (i, map) in taken.maps.iter().enumerate() {
            if i == 0 && taken.gap {
                self.skip_to(map, fx);
                self.resend_copies();
            } else {
                self.advance(&old, map, fx);
                self.redirect_copies(map);
            }
            old = map.clone();
            self.after_map(map, fx);
        }
        self.follow_blocklist(&before);
        // Clients may have heard that they are to hold their writes: those are not kept here, then.
        self.retry_blocked |= !self.blocked.is_empty();
        self.release_waiting(fx);
        self.retry_reads(fx);
    }

    /// What a new epoch says of ourselves.
    fn after_map(&mut self, map: &OsdMap, fx: &mut Effects) {
        let me = self.cfg.id;
        let ours = map.client_addrs(me).is_some_and(|a| *a == self.client_addrs);
        let up = map.is_up(me) && ours && !self.client_addrs.is_empty();
        match (&self.life, up) {
            (Life::Joining, true) => {
                self.life = Life::Up;
                self.mon.refused = None;
                self.up_from = map.osd(me).map_or(map.epoch, |o| o.info.up_from);
                tracing::info!("osd.{me}: up since epoch {}", self.up_from);
                self.dial_peers(fx);
                self.start_pgs(fx);
            }
            (Life::Up, false) => {
                // Marked down though we live: everything begins anew, under a new address.
                tracing::warn!("osd.{me}: marked down in epoch {}; joining again", map.epoch);
                self.rejoin(fx);
            }
            (Life::Leaving { .. }, false) => self.close_store(),
            _ => {}
        }
    }

    /// We were marked down wrongly: as if we had just started, with what we have.
    fn rejoin(&mut self, fx: &mut Effects) {
        // The simplest thing that is right is a restart: the store has all that counts.
        let id = self.cfg.id;
        fx.exit(
            EXIT_RESTART,
            format!("osd.{id}: was marked down while running; it ends, to be started again"),
        );
    }

    pub(crate) fn submit_maps(&mut self, txn: Transaction, fx: &mut Effects) {
        self.map_queue.push_back(Queued::of(txn));
        if !self.map_queue_stalled {
            self.pump_maps(fx);
        }
    }

    fn pump_maps(&mut self, fx: &mut Effects) {
        while let Some(first) = self.map_queue.front() {
            match self.store.submit(self.now, &first.txn, &first.reads) {
                Ok(_) => drop(self.map_queue.pop_front()),
                Err(SubmitError::Miss(miss)) => {
                    self.map_queue_stalled = true;
                    self.fetch(miss, Waiter::Maps, fx);
                    return;
                }
                Err(SubmitError::Busy | SubmitError::NoSpace) => {
                    self.map_queue_stalled = true;
                    self.blocked.push(Waiter::Maps);
                    return;
                }
                Err(SubmitError::Invalid(why)) => {
                    fx.exit(1, format!("osd.{}: a map cannot be stored: {why}", self.cfg.id));
                    return;
                }
            }
        }
    }

    pub(crate) fn maps_fetched(&mut self, result: Result<ReadSet, StoreError>, fx: &mut Effects) {
        self.map_queue_stalled = false;
        match (result, self.map_queue.front_mut()) {
            (Ok(reads), Some(first)) => first.reads.merge(reads),
            (Ok(_), None) => {}
            (Err(why), _) => {
                fx.exit(1, format!("osd.{}: a map cannot be stored: {why}", self.cfg.id));
                return;
            }
        }
        self.pump_maps(fx);
    }

    // ---- joining and leaving ----

    /// Says to the mon what it must know: that we are here, or what our PGs wish.
    pub(crate) fn say_to_mon(&mut self) {
        if matches!(self.life, Life::Joining) && self.mon.open && self.listens() {
            let boot = OsdBoot {
                cluster: self.cfg.cluster,
                osd: self.cfg.id,
                uuid: self.store.identity().store,
                client_addrs: self.client_addrs.clone(),
                cluster_addrs: self.cluster_addrs.clone(),
                hb_back_addrs: self.hb_back_addrs.clone(),
                hb_front_addrs: self.hb_front_addrs.clone(),
                was_alive: self.cfg.was_alive,
                newest_map: self.maps.epoch(),
                store_bytes: self.store.usage().total,
                device_class: self.cfg.device_class.clone(),
                location: self.cfg.location.clone(),
                metadata: self.metadata(),
                durable_txn: self.store.durable_txn(),
            };
            self.send_mon(boot.encode());
            self.mon.asked_at = self.now.mono;
        }
    }

    /// Facts for `ceph osd metadata`: those of process and machine, and where it is reached.
    fn metadata(&self) -> BTreeMap<String, String> {
        let addrs = [
            ("front_addr", &self.client_addrs),
            ("back_addr", &self.cluster_addrs),
            ("hb_front_addr", &self.hb_front_addrs),
            ("hb_back_addr", &self.hb_back_addrs),
        ];
        let addrs = addrs.map(|(name, addrs)| (name.to_owned(), addrs.to_string()));
        self.cfg.metadata.clone().into_iter().chain(addrs).collect()
    }

    /// The mon does not take us into the map. We go on asking: the reason may go.
    pub(crate) fn on_refusal(&mut self, m: OsdRefusal) {
        if !matches!(self.life, Life::Joining) {
            return;
        }
        if self.mon.refused.as_ref() != Some(&m.why) {
            tracing::error!("osd.{}: the mon refuses it: {}", self.cfg.id, m.why);
        }
        self.mon.refused = Some(m.why);
    }

    /// Whether all sockets listen.
    pub(crate) fn listens(&self) -> bool {
        let all =
            [&self.client_addrs, &self.cluster_addrs, &self.hb_back_addrs, &self.hb_front_addrs];
        all.iter().all(|addrs| !addrs.is_empty())
    }

    /// The operator asks for an orderly end.
    pub(crate) fn leave(&mut self) {
        match self.life {
            Life::Up if self.mon.open => {
                let until = self.now.mono.after(Duration::from_millis(LEAVE_MS));
                self.life = Life::Leaving { until };
                self.next_tick = self.next_tick.min(until);
                let going = OsdGoingDown { osd: self.cfg.id, up_from: self.up_from };
                self.send_mon(going.encode());
            }
            Life::Leaving { .. } | Life::Closing => {}
            _ => self.close_store(),
        }
    }

    pub(crate) fn close_store(&mut self) {
        if !matches!(self.life, Life::Closing) {
            self.life = Life::Closing;
            self.store.unmount();
        }
    }
}

/// Exit code of an OSD that wants to be started again.
pub const EXIT_RESTART: i32 = 75;
/// Exit code of an OSD that wants to be started again to be given an object that is damaged here.
pub const EXIT_REPAIR: i32 = 76;
/// Exit code of an OSD that cannot listen where it should.
pub const EXIT_CANNOT_LISTEN: i32 = 69;
/// Exit code of an OSD that refuses its store: absent, damaged, or another's. Nothing was changed.
pub const EXIT_WRONG_STORE: i32 = 65;

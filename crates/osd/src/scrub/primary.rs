//! The course of a scrub on the primary.

use super::FAILED_S;
use super::scan::{Scan, range_start};
use crate::daemon::{Daemon, Waiter};
use crate::host::PgHost;
use io::Effects;
use peer::ScrubAsk;
use pg::EntryKind;
use pg::scrub::{Chunk, Phase, Scrub, ScrubObject, Source, Starter, Verdict};
use std::time::Duration;
use store::{Miss, ObjectStat, StoreError};
use types::{Eversion, HObject, ObjectKey, OsdId, PgId, SnapId};
use wire::msg::Payload;

/// The pause between two chunks when clients are at work, at most, in milliseconds.
const MAX_PAUSE_MS: u64 = 1000;

impl Daemon {
    /// Goes on with a scrub that we lead.
    pub(super) fn lead_scrub(&mut self, pgid: PgId, fx: &mut Effects) {
        let now = self.now.mono;
        loop {
            let Some(host) = self.pgs.get_mut(&pgid) else { return };
            let Some(scrub) = &host.scrub.running else { return };
            match scrub.phase() {
                Phase::Reserving(_) | Phase::Scanning(_) => return,
                Phase::Between(at) if *at > now => {
                    self.scrubs.wake_at(*at);
                    return;
                }
                Phase::Between(_) => {
                    if !self.choose_chunk(pgid, fx) {
                        return;
                    }
                }
                Phase::Draining => {
                    if !is_drained(host, scrub) {
                        return;
                    }
                    self.ask_for_lists(pgid, fx);
                }
                Phase::Over => {
                    self.finish_scrub(pgid, fx);
                    return;
                }
            }
        }
    }

    /// Chooses the next chunk. `false`: it must wait.
    fn choose_chunk(&mut self, pgid: PgId, fx: &mut Effects) -> bool {
        let (keys, now, settings) = (self.keys_of(pgid), self.now.mono, self.limits.scrub);
        let Some(host) = self.pgs.get_mut(&pgid) else { return false };
        if host.scrub.choosing.is_some() || !host.is_settled() || !host.pg.is_recovered() {
            return false;
        }
        let Some(scrub) = &mut host.scrub.running else { return false };
        let Some(begin) = scrub.wants_chunk(now).cloned() else { return false };
        let deep = scrub.kind().deep;
        let most = (settings.chunk_objects >> scrub.gave_way()).max(settings.chunk_objects_min);
        let chunk = Chunk { number: 0, begin, end: HObject::max(), deep };
        let from = range_start(&chunk, &keys);
        let most = most.min(settings.chunk_objects);
        match next_end(&self.store, &from, &keys.1, most, deep, settings.chunk_bytes) {
            Ok(Some(end)) => {
                scrub.choose(end);
                host.scrub.chunk_began = now;
                true
            }
            Ok(None) => {
                tracing::error!("osd.{}: pg {pgid} has an object without a name", self.cfg.id);
                self.put_off(pgid, Duration::from_secs(FAILED_S), fx);
                false
            }
            Err(miss) => {
                self.scrubs.last_fetch += 1;
                let id = self.scrubs.last_fetch;
                host.scrub.choosing = Some(id);
                self.fetch(miss, Waiter::Scrub(pgid, id), fx);
                false
            }
        }
    }

    /// Every write of the chunk is committed: all members make their lists.
    fn ask_for_lists(&mut self, pgid: PgId, fx: &mut Effects) {
        let epoch = self.maps.epoch();
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let interval = host.interval();
        let Some(scrub) = &mut host.scrub.running else { return };
        scrub.drained();
        let chunk = scrub.chunk().clone();
        let others: Vec<OsdId> = scrub.others().collect();
        host.scrub.scan = Some(Box::new(Scan::new(chunk.clone(), None)));
        for osd in others {
            let Chunk { number, begin, end, deep } = chunk.clone();
            let ask = ScrubAsk { pgid, epoch, interval, number, begin, end, deep };
            self.send_peer(osd, ask.encode(), fx);
        }
        self.scrubs.wake_at(self.now.mono);
    }

    /// A member's list is here.
    #[expect(clippy::too_many_arguments, reason = "the parts of one message")]
    pub(super) fn chunk_listed(
        &mut self,
        pgid: PgId,
        from: OsdId,
        number: u64,
        end: &HObject,
        failed: bool,
        objects: Vec<ScrubObject>,
        fx: &mut Effects,
    ) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let Some(scrub) = &mut host.scrub.running else { return };
        if failed {
            tracing::error!(
                "osd.{}: pg {pgid} cannot be scrubbed: osd.{from} cannot list its objects",
                self.cfg.id
            );
            self.put_off(pgid, Duration::from_secs(FAILED_S), fx);
            return;
        }
        if scrub.listed(from, number, end, objects) {
            self.compare_chunk(pgid, fx);
        }
    }

    /// All lists are here: they are compared, and what is to be repaired is given to recovery.
    fn compare_chunk(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let (pg, Some(scrub)) = (&host.pg, &mut host.scrub.running) else { return };
        let later_deletion = |object: &HObject, version: Eversion| {
            let newest = pg.log().newest_of(object);
            newest.is_some_and(|e| e.kind == EntryKind::Delete && e.version > version)
        };
        let verdicts = scrub.compare(|o| pg.is_missing_anywhere(o), later_deletion);
        let chunk = scrub.chunk().clone();
        // Until all repairs are begun the chunk takes no writes: versions are those that were compared.
        for verdict in verdicts {
            let repaired = self.settle(pgid, &verdict, fx);
            if let Some(scrub) = self.running_scrub(pgid) {
                scrub.note(verdict, repaired);
            }
        }
        let at = self.now.mono.after(self.pause_after(pgid));
        self.scrubs.wake_at(at);
        if let Some(scrub) = self.running_scrub(pgid) {
            scrub.go_on(at);
        }
        self.release_writes(pgid, &chunk, fx);
    }

    fn running_scrub(&mut self, pgid: PgId) -> Option<&mut Scrub> {
        self.pgs.get_mut(&pgid)?.scrub.running.as_deref_mut()
    }

    /// Says what is wrong with an object, and begins its repair if it may be. Whether it did.
    fn settle(&mut self, pgid: PgId, verdict: &Verdict, fx: &mut Effects) -> bool {
        let running = self.pgs.get(&pgid).and_then(|h| h.scrub.running.as_deref());
        let Some(scrub) = running else { return false };
        self.log_verdict(pgid, scrub, verdict);
        self.may_repair(scrub, verdict) && self.repair_wrong(pgid, verdict, fx)
    }

    /// Clients at work get as much time as the chunk took.
    fn pause_after(&self, pgid: PgId) -> Duration {
        let began = self.pgs.get(&pgid).map_or(self.now.mono, |h| h.scrub.chunk_began);
        let took = self.now.mono.since(began).min(Duration::from_millis(MAX_PAUSE_MS));
        let pause = if self.ops.is_empty() { Duration::ZERO } else { took };
        pause.max(self.limits.scrub.sleep)
    }

    fn may_repair(&self, scrub: &Scrub, verdict: &Verdict) -> bool {
        let settings = &self.limits.scrub;
        let course = scrub.course();
        let few = course.shallow_errors + course.deep_errors <= settings.auto_repair_errors;
        let by_itself = settings.auto_repair
            && scrub.kind().starter == Starter::Schedule
            && verdict.certain
            && (few || verdict.is_proven());
        scrub.kind().repair || by_itself
    }

    /// Begins the repair of an object's bad copies.
    fn repair_wrong(&mut self, pgid: PgId, verdict: &Verdict, fx: &mut Effects) -> bool {
        let me = self.cfg.id;
        let Some(host) = self.pgs.get_mut(&pgid) else { return false };
        let Some(records) = host.pg.repair_copies(verdict) else { return false };
        let mut txn = host.transaction();
        if verdict.source == Source::Deleted && verdict.bad().any(|o| o == me) {
            txn.remove(&verdict.object.to_key());
        }
        host.put_meta(&mut txn, records);
        host.dirty = true;
        self.perf.scrub_repairs += 1;
        self.submit(pgid, txn, Vec::new(), fx);
        self.run_pg(pgid, fx, |pg, _, out| pg.tell_of_bad_copies(&verdict.object, out));
        self.note_recovering(pgid);
        self.report_soon();
        true
    }

    fn log_verdict(&self, pgid: PgId, scrub: &Scrub, verdict: &Verdict) {
        let (id, name, object) = (self.cfg.id, scrub.kind().name(), &verdict.object);
        let bad: Vec<String> = verdict
            .copies
            .iter()
            .filter(|(_, c)| c.bad || c.errors != 0)
            .map(|(osd, c)| format!("osd.{osd} (errors {:#x})", c.errors))
            .collect();
        let bad = bad.join(", ");
        match verdict.source {
            Source::Copy(from, version) => tracing::error!(
                "osd.{id}: pg {pgid} {name}: {object}: {bad} differ{} from osd.{from}'s copy of \
                 version {version} (differences {:#x})",
                if verdict.certain { "" } else { ", it is not certain who is right," },
                verdict.errors
            ),
            Source::Deleted => tracing::error!(
                "osd.{id}: pg {pgid} {name}: {object} was deleted, and is left over somewhere"
            ),
            Source::None => {
                tracing::error!("osd.{id}: pg {pgid} {name}: {object} has no good copy: {bad}")
            }
        }
    }

    /// Writes of a chunk's objects go on.
    pub(super) fn release_writes(&mut self, pgid: PgId, chunk: &Chunk, fx: &mut Effects) {
        let Some(host) = self.pgs.get(&pgid) else { return };
        let inside = |o: &HObject| o.at_snap(SnapId(0)) < chunk.end && *o >= chunk.begin;
        let waiting = host.objects.iter().filter(|(o, q)| !q.waiting.is_empty() && inside(o));
        let mut heads: Vec<HObject> = waiting.map(|(o, _)| o.clone()).collect();
        heads.sort_unstable();
        for head in heads {
            self.pump_object(pgid, &head, fx);
        }
    }

    /// Everything was compared: the result is recorded, and every holder hears of it.
    fn finish_scrub(&mut self, pgid: PgId, fx: &mut Effects) {
        let Some(scrub) = self.end_scrub(pgid, fx) else { return };
        let now = self.now.wall;
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let info = host.pg.info();
        let record = scrub.record(&info.history.scrub, info.last_update, now);
        let course = scrub.course();
        let errors = course.shallow_errors + course.deep_errors;
        let (id, name) = (self.cfg.id, scrub.kind().name());
        if errors == 0 {
            tracing::debug!("osd.{id}: pg {pgid} {name} ok");
        } else {
            let fixed = course.fixed;
            tracing::error!("osd.{id}: pg {pgid} {name} {errors} errors, {fixed} fixed");
        }
        host.scrub.wrong = Some(course.wrong.clone());
        self.perf.scrubs += 1;
        self.perf.scrub_errors += errors;
        self.run_pg(pgid, fx, |pg, _, out| pg.scrubbed(record, out));
        self.report_soon();
        self.begin_scrubs(fx);
    }

    /// The objects of a PG cannot be listed here.
    pub(super) fn cannot_scrub(&mut self, pgid: PgId, why: &StoreError, fx: &mut Effects) {
        if self.metadata_is_damaged(pgid, why, fx) {
            return;
        }
        tracing::error!("osd.{}: pg {pgid} cannot be scrubbed: {why}", self.cfg.id);
        self.put_off(pgid, Duration::from_secs(FAILED_S), fx);
    }
}

/// Whether earlier writes of the chunk's objects are all committed, and applied here.
fn is_drained(host: &PgHost, scrub: &Scrub) -> bool {
    let writing = host.objects.iter().any(|(o, q)| q.writing > 0 && scrub.holds(o));
    !writing && host.is_settled() && host.pg.is_recovered()
}

/// Where a chunk from `from` on ends: behind so many objects or bytes. `None` when a key makes no
/// sense.
fn next_end(
    store: &store::Store,
    from: &ObjectKey,
    end: &ObjectKey,
    most: usize,
    deep: bool,
    bytes: u64,
) -> Result<Option<HObject>, Miss> {
    let listed: Vec<(ObjectKey, ObjectStat)> = store.list(from, end, most + 1)?;
    let mut sum = 0u64;
    for (i, (key, stat)) in listed.iter().enumerate() {
        if i > 0 && (i >= most || (deep && sum >= bytes)) {
            return Ok(key.decode().ok());
        }
        sum = sum.saturating_add(stat.size);
    }
    Ok(Some(HObject::max()))
}

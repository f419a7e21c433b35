//! A member's part of a chunk: its objects, and with a deep scrub everything in them.

use super::GRANT_S;
use crate::daemon::{Daemon, Waiter};
use crate::object::{ObjectMeta, key_range};
use bytes::Bytes;
use io::Effects;
use peer::{ScrubAsk, ScrubList};
use pg::scrub::{Chunk, Digests, ScrubObject, copy_error};
use std::collections::VecDeque;
use std::time::Duration;
use store::{
    Miss, ObjectDigest, ObjectStat, ReadSet, ScrubCursor, ScrubLimits, Scrubbed, Store, StoreError,
};
use types::{ByteString, Eversion, HObject, ObjectKey, OsdId, PgId};
use wire::msg::Payload;

/// Objects that one list names. What a copy has beside is compared with the next chunk.
const MAX_OBJECTS: usize = 2048;
/// Bytes of attributes and records in one list, beyond which no more objects are in it.
const MAX_LIST_BYTES: usize = 4 << 20;
/// Bytes of data and omap that are digested in one turn when nothing must be fetched.
const SLICES_PER_TURN: usize = 2;

/// The list while it is made.
#[derive(Debug)]
pub(super) struct Scan {
    chunk: Chunk,
    /// `None`: our own scrub.
    asked_by: Option<OsdId>,
    /// Objects that are to be read; `None`: not known yet.
    open: Option<VecDeque<(ObjectKey, HObject, ObjectStat)>>,
    /// Everything before this is listed.
    end: HObject,
    cursor: ScrubCursor,
    reads: ReadSet,
    /// What is being fetched.
    fetching: Option<u64>,
    objects: Vec<ScrubObject>,
    /// What they have of attributes and records.
    bytes: usize,
}

/// What a step came to.
enum Step {
    /// There is more to do.
    More,
    /// Something must be fetched.
    Miss(Miss),
    /// All is read.
    Done,
    /// The list cannot be made.
    Failed,
}

impl Scan {
    pub(super) fn new(chunk: Chunk, asked_by: Option<OsdId>) -> Self {
        Scan {
            end: chunk.end.clone(),
            chunk,
            asked_by,
            open: None,
            cursor: ScrubCursor::default(),
            reads: ReadSet::new(),
            fetching: None,
            objects: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds the object at hand. With enough in the list it ends there.
    fn found(&mut self, found: ScrubObject) {
        self.bytes += found.bytes();
        self.objects.push(found);
        let Some(open) = &mut self.open else { return };
        open.pop_front();
        if self.bytes >= MAX_LIST_BYTES
            && let Some((_, next, _)) = open.front()
        {
            self.end = next.clone();
            open.clear();
        }
    }

    /// One slice.
    fn step(
        &mut self,
        store: &Store,
        keys: &(ObjectKey, ObjectKey),
        limits: &ScrubLimits,
    ) -> Result<Step, Miss> {
        let Some(open) = &mut self.open else {
            return self.list(store, keys);
        };
        let Some((key, object, stat)) = open.front() else { return Ok(Step::Done) };
        if !self.chunk.deep {
            let attrs = store.attrs(key)?.unwrap_or_default();
            let found = found(object, stat.size, &stat.meta, attrs);
            self.found(found);
            return Ok(Step::More);
        }
        let reads = std::mem::take(&mut self.reads);
        match store.scrub(key, &mut self.cursor, limits, &reads) {
            Ok(Scrubbed::More | Scrubbed::Changed) => {}
            Ok(Scrubbed::Absent) => {
                open.pop_front();
            }
            Ok(Scrubbed::Done(all)) => {
                let found = digested(object, all);
                self.found(found);
            }
            Err(miss) => {
                // What was fetched for this slice still counts when the rest has come.
                self.reads = reads;
                return Err(miss);
            }
        }
        Ok(Step::More)
    }

    fn list(&mut self, store: &Store, keys: &(ObjectKey, ObjectKey)) -> Result<Step, Miss> {
        let (from, to) = (range_start(&self.chunk, keys), range_end(&self.chunk, keys));
        let mut listed = store.list(&from, &to, MAX_OBJECTS + 1)?;
        let mut open = VecDeque::with_capacity(listed.len());
        if listed.len() > MAX_OBJECTS
            && let Some((key, _)) = listed.pop()
        {
            let Ok(next) = key.decode() else { return Ok(Step::Failed) };
            self.end = next;
        }
        for (key, stat) in listed {
            let Ok(object) = key.decode() else { return Ok(Step::Failed) };
            let meta = Bytes::copy_from_slice(&stat.meta);
            open.push_back((key, object, ObjectStat { meta, ..stat }));
        }
        self.open = Some(open);
        Ok(Step::More)
    }

    /// The object at hand cannot be read.
    fn damaged(&mut self, why: &StoreError) -> bool {
        let open = self.open.as_ref().and_then(VecDeque::front).cloned();
        let Some((key, object, stat)) = open else { return false };
        let error = if why.object() == Some(&key) { copy_error::READ } else { copy_error::STAT };
        let mut found = found(&object, stat.size, &stat.meta, Vec::new());
        found.errors |= error;
        self.found(found);
        self.cursor = ScrubCursor::default();
        self.reads = ReadSet::new();
        true
    }
}

/// The first key of a chunk.
pub(super) fn range_start(chunk: &Chunk, keys: &(ObjectKey, ObjectKey)) -> ObjectKey {
    if chunk.begin.is_min() { keys.0.clone() } else { chunk.begin.to_key() }
}

/// Behind its last.
fn range_end(chunk: &Chunk, keys: &(ObjectKey, ObjectKey)) -> ObjectKey {
    if chunk.end.max { keys.1.clone() } else { chunk.end.to_key() }
}

fn found(object: &HObject, size: u64, meta: &Bytes, attrs: Vec<(Bytes, Bytes)>) -> ScrubObject {
    let decoded = ObjectMeta::decode(meta);
    let errors = match (&decoded, meta.is_empty()) {
        (Ok(_), _) => 0,
        (Err(_), true) => copy_error::INFO_MISSING,
        (Err(_), false) => copy_error::INFO_CORRUPTED,
    };
    let copy = |(name, value): (Bytes, Bytes)| {
        (ByteString::from(&name[..]), Bytes::copy_from_slice(&value))
    };
    ScrubObject {
        object: object.clone(),
        version: decoded.map_or(Eversion::ZERO, |m| m.version),
        size,
        meta: meta.clone(),
        attrs: attrs.into_iter().map(copy).collect(),
        digests: None,
        errors,
    }
}

fn digested(object: &HObject, all: ObjectDigest) -> ScrubObject {
    let digests = Digests {
        data: all.data,
        omap: all.omap,
        omap_entries: all.omap_entries,
        omap_bytes: all.omap_bytes,
    };
    ScrubObject { digests: Some(digests), ..found(object, all.size, &all.meta, all.attrs) }
}

impl Daemon {
    /// The keys of a PG's objects.
    pub(super) fn keys_of(&self, pgid: PgId) -> (ObjectKey, ObjectKey) {
        let pg_num = self.pgs.get(&pgid).map_or(1, |h| h.pg.rules().pg_num.max(1));
        key_range(pgid, pg_num)
    }

    /// A primary asks for our list of a chunk.
    pub(crate) fn on_scrub_ask(&mut self, from: OsdId, m: ScrubAsk) {
        let now = self.now.mono;
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if !host.started || host.interval() != m.interval || host.pg.is_primary() {
            return;
        }
        host.scrub.granted = Some((from, now.after(Duration::from_secs(GRANT_S))));
        let chunk = Chunk { number: m.number, begin: m.begin, end: m.end, deep: m.deep };
        host.scrub.scan = Some(Box::new(Scan::new(chunk, Some(from))));
        self.scrubs.busy.insert(m.pgid);
        self.scrubs.wake_at(now);
    }

    /// Goes on with our part of a chunk.
    pub(super) fn scan_chunk(&mut self, pgid: PgId, fx: &mut Effects) {
        let keys = self.keys_of(pgid);
        let now = self.now.mono;
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        // What the log says is not all in the store while something is in the queue.
        let ready = host.is_settled();
        let Some(scan) = host.scrub.scan.as_mut().filter(|s| s.fetching.is_none() && ready) else {
            return;
        };
        let mut slices = if scan.chunk.deep { SLICES_PER_TURN } else { MAX_OBJECTS };
        let step = loop {
            match scan.step(&self.store, &keys, &self.limits.scrub.slice) {
                Ok(Step::More) if slices > 0 => slices -= 1,
                Ok(step) => break step,
                Err(miss) => break Step::Miss(miss),
            }
        };
        match step {
            Step::More => self.scrubs.wake_at(now),
            Step::Miss(miss) => {
                self.scrubs.last_fetch += 1;
                let id = self.scrubs.last_fetch;
                scan.fetching = Some(id);
                self.fetch(miss, Waiter::Scrub(pgid, id), fx);
            }
            Step::Done => self.end_scan(pgid, false, fx),
            Step::Failed => self.end_scan(pgid, true, fx),
        }
    }

    /// What a scan, or the choice of a chunk, lacked is here.
    pub(crate) fn scrub_fetched(
        &mut self,
        pgid: PgId,
        id: u64,
        result: Result<ReadSet, StoreError>,
        fx: &mut Effects,
    ) {
        let now = self.now.mono;
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        self.scrubs.wake_at(now);
        if host.scrub.choosing == Some(id) {
            host.scrub.choosing = None;
            if let Err(why) = result {
                self.cannot_scrub(pgid, &why, fx);
            }
            return;
        }
        let Some(scan) = host.scrub.scan.as_mut().filter(|s| s.fetching == Some(id)) else {
            return;
        };
        scan.fetching = None;
        match result {
            Ok(reads) => scan.reads.merge(reads),
            Err(why) => {
                self.perf.scrub_read_errors += 1;
                let named = scan.damaged(&why);
                if self.metadata_is_damaged(pgid, &why, fx) {
                    return;
                }
                tracing::error!("osd.{}: pg {pgid}: scrub: {why}", self.cfg.id);
                if !named {
                    self.end_scan(pgid, true, fx);
                }
            }
        }
    }

    /// Our list is made, or cannot be.
    fn end_scan(&mut self, pgid: PgId, failed: bool, fx: &mut Effects) {
        let (epoch, now) = (self.maps.epoch(), self.now.mono);
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let Some(scan) = host.scrub.scan.take() else { return };
        // The primary is heard of again when it has everybody's list.
        if let Some((_, until)) = &mut host.scrub.granted {
            *until = now.after(Duration::from_secs(GRANT_S));
        }
        let interval = host.interval();
        let Scan { chunk, end, objects, asked_by, .. } = *scan;
        self.perf.scrubbed_objects += objects.len() as u64;
        let number = chunk.number;
        match asked_by {
            None => self.chunk_listed(pgid, self.cfg.id, number, &end, failed, objects, fx),
            Some(to) => {
                let list = ScrubList { pgid, epoch, interval, number, end, failed, objects };
                self.send_peer(to, list.encode(), fx);
            }
        }
    }

    pub(crate) fn on_scrub_list(&mut self, from: OsdId, m: ScrubList, fx: &mut Effects) {
        let current = |h: &crate::host::PgHost| h.interval() == m.interval;
        if self.pgs.get(&m.pgid).is_some_and(current) {
            self.chunk_listed(m.pgid, from, m.number, &m.end, m.failed, m.objects, fx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_large_attributes_ends_early() {
        let all = HObject { max: true, ..HObject::min() };
        let chunk = Chunk { number: 1, begin: HObject::min(), end: all.clone(), deep: false };
        let object = |n: u8| HObject { name: vec![n].into(), ..HObject::min() };
        let stat = || ObjectStat { size: 0, meta: Bytes::new(), has_attrs: true, has_omap: false };
        let list = |bytes: usize| {
            let mut scan = Scan::new(chunk.clone(), None);
            let open = (0..9).map(|n| (object(n).to_key(), object(n), stat()));
            scan.open = Some(open.collect());
            while let Some((_, object, stat)) = scan.open.as_ref().and_then(VecDeque::front) {
                let attr = (Bytes::from_static(b"_a"), vec![1; bytes].into());
                let next = found(object, stat.size, &stat.meta, vec![attr]);
                scan.found(next);
            }
            (scan.objects.len(), scan.end)
        };
        assert_eq!(list(MAX_LIST_BYTES / 2), (2, object(2)));
        assert_eq!(list(2 * MAX_LIST_BYTES), (1, object(1)));
        assert_eq!(list(100), (9, all));
    }
}

//! Recovery: moving objects between copies, as the PG's machine says.
//!
//! An object travels as one or more parts ([`peer::Push`]); the receiver makes each part durable and
//! asks for the next. A part that is not the first goes into an object of its own beside the old
//! state, which is replaced when the last part is there.

use crate::daemon::{Daemon, Waiter};
use crate::host::{PgHost, Then};
use crate::object::{META_POOL, ObjectMeta, key_range, own_object};
use crate::ops::{Reader, contents};
use crate::options::Limits;
use bytes::Bytes;
use io::Effects;
use peer::{
    BackfillProgress, BackfillProgressAck, Pull, Push, PushAck, PushCursor, Scan, ScanReply,
};
use pg::{BackfillWork, Fx, Listing, Work};
use std::collections::BTreeMap;
use store::{Miss, OmapRange, ReadSet, StoreError, Transaction};
use types::{Epoch, Errno, Eversion, HObject, ObjectKey, OsdId, PgId, SnapId};
use wire::msg::Payload;

/// The sending side of an object on its way.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// Somebody asked for it.
    pub pulled: bool,
    /// Our copy is damaged: it begins anew when that is repaired.
    pub waits_for_repair: bool,
    pub cursor: PushCursor,
    pub reads: ReadSet,
}

/// A listing that waits for the disk.
#[derive(Debug)]
struct ListingRequest {
    begin: HObject,
    /// Who asked; `None`: our own backfill of this target.
    asked_by: Option<OsdId>,
}

/// Objects on their way, of one PG in one interval.
#[derive(Debug, Default)]
pub struct Transfers {
    pub(crate) sending: BTreeMap<(OsdId, HObject), Sending>,
    listings: BTreeMap<OsdId, ListingRequest>,
}

/// One part of an object, read from the store.
struct Part {
    exists: bool,
    meta: Bytes,
    version: Eversion,
    size: u64,
    attrs: Vec<(types::ByteString, Bytes)>,
    omap_header: Bytes,
    omap: Vec<(Bytes, Bytes)>,
    extents: Vec<(u64, u64)>,
    data: Vec<Bytes>,
    next: PushCursor,
}

impl Daemon {
    /// Gives the PGs work as the limits allow.
    pub(crate) fn recover(&mut self, fx: &mut Effects) {
        self.deliver_copies(fx);
        if !self.is_up() {
            return;
        }
        if self.recovering.is_empty() {
            return;
        }
        let room = self.limits.recovery_objects;
        let recovering: Vec<_> = self.recovering.iter().copied().collect();
        let count = |p| self.pgs.get(p).map_or(0, |h: &PgHost| h.pg.moving_count());
        let mut moving: usize = recovering.iter().map(count).sum();
        for pgid in recovering {
            while moving < room {
                let Some(host) = self.pgs.get_mut(&pgid) else { break };
                if !host.queue.is_empty() {
                    break;
                }
                let Some(work) = host.pg.next_recovery() else { break };
                moving += 1;
                host.dirty = true;
                self.do_work(pgid, work, fx);
            }
            while let Some(host) = self.pgs.get_mut(&pgid)
                && let Some(work) = host.pg.next_backfill(room)
            {
                self.do_backfill(pgid, work, fx);
            }
        }
    }

    /// Keeps the list of PGs that have something to recover.
    pub(crate) fn note_recovering(&mut self, pgid: PgId) {
        let busy = |h: &PgHost| h.started && h.pg.is_primary() && !h.pg.is_recovered();
        if self.pgs.get(&pgid).is_some_and(busy) {
            self.recovering.insert(pgid);
        } else {
            self.recovering.remove(&pgid);
        }
    }

    fn do_work(&mut self, pgid: PgId, work: Work, fx: &mut Effects) {
        match work {
            Work::Pull { object, need, from } => {
                let Some(host) = self.pgs.get(&pgid) else { return };
                let (epoch, interval) = (self.maps.epoch(), host.interval());
                let cursor = PushCursor::default();
                let pull = Pull { pgid, epoch, interval, object, need, cursor };
                self.send_peer(from, pull.encode(), fx);
            }
            Work::Push { object, to, .. } => {
                for osd in to {
                    self.begin_push(pgid, osd, object.clone(), fx);
                }
            }
        }
    }

    fn do_backfill(&mut self, pgid: PgId, work: BackfillWork, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let (epoch, interval) = (self.maps.epoch(), host.interval());
        match work {
            BackfillWork::ListHere { target, begin } => {
                let request = ListingRequest { begin, asked_by: None };
                host.transfers.listings.insert(target, request);
                self.list_for(pgid, target, fx);
            }
            BackfillWork::ListThere { target, begin } => {
                let max = self.limits.scan_objects as u32;
                let scan = Scan { pgid, epoch, interval, begin, max };
                self.send_peer(target, scan.encode(), fx);
            }
            BackfillWork::Push { target, object, .. } | BackfillWork::Remove { target, object } => {
                self.begin_push(pgid, target, object, fx);
            }
            BackfillWork::Progress { target, to } => {
                let progress = BackfillProgress { pgid, epoch, interval, to };
                self.send_peer(target, progress.encode(), fx);
            }
        }
    }

    // ---- sending ----

    fn begin_push(&mut self, pgid: PgId, to: OsdId, object: HObject, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.transfers.sending.insert((to, object.clone()), Sending::default());
        self.push_part(pgid, to, object, fx);
    }

    pub(crate) fn on_pull(&mut self, from: OsdId, m: Pull, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if !host.started || host.interval() != m.interval {
            return;
        }
        if !host.queue.is_empty() {
            // It may be written by what waits there.
            let (pgid, empty) = (m.pgid, host.transaction());
            self.submit(pgid, empty, vec![Then::Pull(from, m)], fx);
            return;
        }
        let sending = Sending { pulled: true, cursor: m.cursor, ..Sending::default() };
        host.transfers.sending.insert((from, m.object.clone()), sending);
        self.push_part(m.pgid, from, m.object, fx);
    }

    pub(crate) fn push_fetched(
        &mut self,
        pgid: PgId,
        to: OsdId,
        object: HObject,
        result: Result<ReadSet, StoreError>,
        fx: &mut Effects,
    ) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let key = (to, object.clone());
        let Some(sending) = host.transfers.sending.get_mut(&key) else { return };
        match result {
            Ok(reads) => {
                sending.reads.merge(reads);
                self.push_part(pgid, to, object, fx);
            }
            Err(why) => {
                tracing::error!("osd.{}: {object} cannot be copied: {why}", self.cfg.id);
                self.perf.read_errors += 1;
                self.cannot_send(pgid, to, object, &why, fx);
            }
        }
    }

    /// Reads the next part of an object and sends it.
    pub(crate) fn push_part(&mut self, pgid: PgId, to: OsdId, object: HObject, fx: &mut Effects) {
        let epoch = self.maps.epoch();
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let interval = host.interval();
        let Some(sending) = host.transfers.sending.get_mut(&(to, object.clone())) else { return };
        let reader = Reader { store: &self.store, set: &sending.reads };
        let limits = &self.limits;
        let part = match read_part(reader, limits, &object, &sending.cursor) {
            Ok(part) => part,
            Err(PartError::Miss(miss)) => {
                self.fetch(miss, Waiter::Push(pgid, to, object), fx);
                return;
            }
            Err(PartError::Damaged) => {
                tracing::error!("osd.{}: {object} has a damaged record", self.cfg.id);
                self.perf.read_errors += 1;
                let why = StoreError::BadBlock { object: object.to_key(), offset: 0, block: 0 };
                self.cannot_send(pgid, to, object, &why, fx);
                return;
            }
        };
        let bytes: usize = part.data.iter().map(Bytes::len).sum();
        host.recovered.1 += bytes as u64;
        let push = Push {
            pgid,
            epoch,
            interval,
            object: object.clone(),
            pulled: sending.pulled,
            exists: part.exists,
            version: part.version,
            size: part.size,
            meta: part.meta,
            attrs: part.attrs,
            omap_header: part.omap_header,
            omap: part.omap,
            extents: part.extents,
            from: sending.cursor.clone(),
            next: part.next.clone(),
            data: Bytes::new(),
        };
        sending.reads = ReadSet::new();
        sending.cursor = part.next;
        if sending.pulled && sending.cursor.done {
            host.transfers.sending.remove(&(to, object));
        }
        let mut message = push.encode();
        message.data = part.data.into_iter().collect();
        self.send_peer(to, message, fx);
    }

    pub(crate) fn on_push_ack(&mut self, from: OsdId, m: PushAck, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if host.interval() != m.interval {
            return;
        }
        if !m.next.done {
            self.push_part(m.pgid, from, m.object, fx);
            return;
        }
        host.transfers.sending.remove(&(from, m.object.clone()));
        host.recovered.0 += 1;
        self.run_pg(m.pgid, fx, |pg, _, out| {
            pg.backfill_moved(from, &m.object);
            pg.pushed(from, &m.object, m.version, out);
        });
        self.release_object(m.pgid, &m.object, fx);
    }

    // ---- receiving ----

    pub(crate) fn on_push(&mut self, from: OsdId, m: Push, fx: &mut Effects) {
        let pgid = m.pgid;
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if !host.started || host.interval() != m.interval {
            return;
        }
        if m.pulled {
            let need = host.pg.missing().get(&m.object).map(|i| i.need);
            if need != Some(m.version) || !m.exists {
                // Not the version that counts: look elsewhere.
                self.source_failed(pgid, from, &m.object, fx);
                return;
            }
        }
        let mut txn = host.transaction();
        let hints = ObjectMeta::decode(&m.meta).map_or(0, |meta| meta.hint.flags);
        txn.compress = self.maps.pool_compression(pgid.pool).for_hints(hints);
        if let Err(why) = apply_part(&mut txn, &m) {
            tracing::error!("osd.{}: a bad push from osd.{from}: {why}", self.cfg.id);
            self.perf.odd_messages += 1;
            return;
        }
        if m.next.done {
            note_arrived_clone(&mut txn, &m);
            let ops = host.pg.arrival_ops(&m.object);
            host.put_meta(&mut txn, ops);
            host.pg.arrived(&m.object, m.version);
        }
        let epoch = self.maps.epoch();
        let then = match (m.pulled, m.next.done) {
            (true, true) => Then::Pulled(pgid, m.interval, m.object),
            (true, false) => {
                // The next part is asked for at once; the store keeps the order.
                let (object, cursor, need) = (m.object, m.next, m.version);
                let pull = Pull { pgid, epoch, interval: m.interval, object, need, cursor };
                self.submit(pgid, txn, Vec::new(), fx);
                self.send_peer(from, pull.encode(), fx);
                return;
            }
            (false, _) => {
                let (object, version, next) = (m.object, m.version, m.next);
                let interval = m.interval;
                Then::PushAck(from, PushAck { pgid, epoch, interval, object, version, next })
            }
        };
        self.submit(pgid, txn, vec![then], fx);
    }

    pub(crate) fn pulled_durable(
        &mut self,
        pgid: PgId,
        interval: Epoch,
        object: HObject,
        fx: &mut Effects,
    ) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if host.interval() != interval {
            return;
        }
        host.recovered.0 += 1;
        self.run_pg(pgid, fx, |pg, _, out| pg.pulled(&object, out));
        self.begin_waiting_pushes(pgid, &object, fx);
        self.release_object(pgid, &object, fx);
    }

    /// An object has arrived, here or on another copy: what waited for it, or for a clone of it, goes
    /// on. What waits for the disk as well is run once more for nothing.
    pub(crate) fn release_object(&mut self, pgid: PgId, object: &HObject, fx: &mut Effects) {
        let head = object.head();
        self.unstall(pgid, &head, false);
        self.pump_object(pgid, &head, fx);
    }

    // ---- backfill ----

    pub(crate) fn on_scan(&mut self, from: OsdId, m: Scan, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if !host.started || host.interval() != m.interval {
            return;
        }
        let request = ListingRequest { begin: m.begin, asked_by: Some(from) };
        host.transfers.listings.insert(self.cfg.id, request);
        self.list_for(m.pgid, self.cfg.id, fx);
    }

    fn list_for(&mut self, pgid: PgId, target: OsdId, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let Some(request) = host.transfers.listings.get(&target) else { return };
        if !host.queue.is_empty() {
            // What the log says is not all in the store yet: the tick tries again.
            return;
        }
        let (first, end) = key_range(pgid, host.pg.rules().pg_num.max(1));
        let from = if request.begin.is_min() { first } else { request.begin.to_key() };
        match list_objects(&self.store, &from, &end, self.limits.scan_objects) {
            Err(PartError::Miss(miss)) => {
                let asked_by = request.asked_by.map(|_| self.cfg.id);
                let waiter = Waiter::Listing(pgid, asked_by.is_none().then_some(target));
                self.fetch(miss, waiter, fx);
            }
            Err(PartError::Damaged) => {
                tracing::error!("osd.{}: pg {pgid} has a damaged object record", self.cfg.id);
                self.perf.read_errors += 1;
            }
            Ok((objects, end)) => self.listed(pgid, target, objects, end, fx),
        }
    }

    fn listed(
        &mut self,
        pgid: PgId,
        target: OsdId,
        objects: BTreeMap<HObject, Eversion>,
        end: HObject,
        fx: &mut Effects,
    ) {
        let epoch = self.maps.epoch();
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let Some(request) = host.transfers.listings.remove(&target) else { return };
        let (begin, interval) = (request.begin, host.interval());
        match request.asked_by {
            None => host.pg.backfill_listed(target, true, Listing { begin, end, objects }),
            Some(from) => {
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
        match result {
            Ok(_) => self.list_for(pgid, target.unwrap_or(self.cfg.id), fx),
            Err(why) => {
                tracing::error!("osd.{}: pg {pgid} cannot be listed: {why}", self.cfg.id);
                self.perf.read_errors += 1;
            }
        }
    }

    /// Listings that had to wait for the PG's transactions.
    pub(crate) fn retry_listings(&mut self, fx: &mut Effects) {
        let waiting: Vec<_> = self
            .pgs
            .iter()
            .filter(|(_, h)| h.queue.is_empty())
            .flat_map(|(p, h)| h.transfers.listings.keys().map(|t| (*p, *t)).collect::<Vec<_>>())
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
            host.pg.backfill_listed(from, false, Listing { begin: m.begin, end: m.end, objects });
        }
    }

    pub(crate) fn on_progress(&mut self, from: OsdId, m: BackfillProgress, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&m.pgid) else { return };
        if !host.started || host.interval() != m.interval {
            return;
        }
        let mut out = Fx::default();
        host.pg.note_backfill_progress(m.to.clone(), &mut out);
        let txn = host.transaction();
        let (pgid, interval, to) = (m.pgid, m.interval, m.to);
        let epoch = self.maps.epoch();
        let ack = Then::ProgressAck(from, BackfillProgressAck { pgid, epoch, interval, to });
        self.carry_out(pgid, out, txn, vec![ack], fx);
    }

    pub(crate) fn on_progress_ack(
        &mut self,
        from: OsdId,
        m: BackfillProgressAck,
        fx: &mut Effects,
    ) {
        let same = |h: &crate::host::PgHost| h.interval() == m.interval;
        if self.pgs.get(&m.pgid).is_some_and(same) {
            self.run_pg(m.pgid, fx, |pg, _, out| pg.backfill_progressed(from, &m.to, out));
        }
    }

    /// A session with another OSD was lost though it goes on: what was on its way is begun anew.
    pub(crate) fn session_lost(&mut self, osd: OsdId, fx: &mut Effects) {
        let shared: Vec<_> = self
            .pgs
            .iter()
            .filter(|(_, h)| h.started && h.pg.mapping().acting.contains(&osd))
            .map(|(p, _)| *p)
            .collect();
        for pgid in shared {
            self.restart_pg(pgid, fx);
        }
        self.resend_copies(fx);
    }
}

enum PartError {
    Miss(Miss),
    Damaged,
}

impl From<Miss> for PartError {
    fn from(miss: Miss) -> Self {
        PartError::Miss(miss)
    }
}

/// Reads what comes next of an object.
fn read_part(
    reader: Reader<'_>,
    limits: &Limits,
    object: &HObject,
    cursor: &PushCursor,
) -> Result<Part, PartError> {
    let (key, store) = (object.to_key(), reader.store);
    let mut next = cursor.clone();
    let Some(stat) = store.stat(&key)? else {
        next.done = true;
        return Ok(Part { next, ..Part::absent() });
    };
    let meta = ObjectMeta::decode(&stat.meta).map_err(|_| PartError::Damaged)?;
    let mut part = Part { exists: true, version: meta.version, size: stat.size, ..Part::absent() };
    part.meta = Bytes::copy_from_slice(&stat.meta);
    if *cursor == PushCursor::default() {
        let attrs = store.attrs(&key)?.unwrap_or_default();
        part.attrs = attrs.into_iter().map(|(k, v)| ((&k[..]).into(), v)).collect();
        part.omap_header = store.omap_header(&key)?.unwrap_or_default();
    }
    if !cursor.data_done {
        let (from, len) = (
            cursor.data_offset,
            limits.push_bytes.min(stat.size.saturating_sub(cursor.data_offset)),
        );
        part.extents = if len == 0 { Vec::new() } else { store.extents(&key, from, len)? };
        for (offset, len) in &part.extents {
            let pieces = store.read(&key, *offset, *len, reader.set)?;
            part.data.extend(contents(pieces));
        }
        next.data_offset = from + len;
        next.data_done = next.data_offset >= stat.size;
    }
    if next.data_done {
        let range = OmapRange {
            from: cursor.omap_after.clone(),
            after: !cursor.omap_after.is_empty(),
            max_entries: limits.push_omap_entries,
            max_bytes: limits.push_omap_bytes,
            ..OmapRange::default()
        };
        let page = store.omap_list(&key, &range)?.unwrap_or_default();
        next.done = !page.more;
        if let Some((last, _)) = page.entries.last() {
            next.omap_after = Bytes::copy_from_slice(last);
        }
        part.omap = page.entries;
    }
    Ok(Part { next, ..part })
}

impl Part {
    fn absent() -> Self {
        Part {
            exists: false,
            meta: Bytes::new(),
            version: Eversion::ZERO,
            size: 0,
            attrs: Vec::new(),
            omap_header: Bytes::new(),
            omap: Vec::new(),
            extents: Vec::new(),
            data: Vec::new(),
            next: PushCursor::default(),
        }
    }
}

/// Where the parts of an object gather until the last one is here.
fn temporary(object: &HObject) -> ObjectKey {
    let key = object.to_key();
    let mut name = b"arriving/".to_vec();
    name.extend_from_slice(key.as_bytes());
    let temporary = own_object(name);
    debug_assert_eq!(temporary.pool, META_POOL);
    temporary.to_key()
}

/// A clone that has arrived comes into the snapshot index.
fn note_arrived_clone(txn: &mut Transaction, m: &Push) {
    if m.exists
        && !m.object.is_head()
        && let Ok(meta) = ObjectMeta::decode(&m.meta)
    {
        crate::trim::put_rows(txn, &m.object, &m.object.to_key(), &meta.snaps);
    }
}

/// Adds a received part to a transaction.
fn apply_part(txn: &mut Transaction, m: &Push) -> Result<(), Errno> {
    let key = m.object.to_key();
    if !m.exists {
        txn.remove(&key);
        return Ok(());
    }
    let first = m.from == PushCursor::default();
    let whole = first && m.next.done;
    let to = if whole { key.clone() } else { temporary(&m.object) };
    if first {
        txn.remove(&to);
        txn.touch(&to);
        txn.truncate(&to, m.size);
        for (name, value) in &m.attrs {
            txn.set_attr(&to, Bytes::copy_from_slice(name), value.clone());
        }
        if !m.omap_header.is_empty() {
            txn.omap_set_header(&to, m.omap_header.clone());
        }
    }
    txn.set_meta(&to, m.meta.clone());
    let mut at = 0usize;
    for (offset, len) in &m.extents {
        let end =
            usize::try_from(*len).ok().and_then(|l| at.checked_add(l)).ok_or(Errno::EINVAL)?;
        let piece = m.data.get(at..end).ok_or(Errno::EINVAL)?;
        txn.write(&to, *offset, m.data.slice_ref(piece));
        at = end;
    }
    if !m.omap.is_empty() {
        txn.omap_set(&to, m.omap.clone());
    }
    if m.next.done && !whole {
        txn.remove(&key);
        txn.rename(&to, &key);
    }
    Ok(())
}

/// Objects of a PG from `from` on, with their versions, and where the listing ends.
fn list_objects(
    store: &store::Store,
    from: &ObjectKey,
    end: &ObjectKey,
    at_once: usize,
) -> Result<(BTreeMap<HObject, Eversion>, HObject), PartError> {
    let listed = store.list(from, end, at_once + 2)?;
    let mut objects = BTreeMap::new();
    for (i, (key, stat)) in listed.iter().enumerate() {
        let object = key.decode().map_err(|_| PartError::Damaged)?;
        // Not between the clones of an object and its head (see `pg::Listing`).
        if i >= at_once && !object.is_head() {
            return Ok((objects, object));
        }
        if i > at_once {
            return Ok((objects, object.at_snap(SnapId(0))));
        }
        let meta = ObjectMeta::decode(&stat.meta).map_err(|_| PartError::Damaged)?;
        objects.insert(object, meta.version);
    }
    Ok((objects, HObject::max()))
}

//! Freeing what removed snapshots alone held (Ceph: `PrimaryLogPG::trim_object`, `SnapMapper`).
//!
//! Each clone has a row for every snapshot it serves, in a *snapshot index*: one of [`INDEXES`] objects
//! of the OSD's own for each pool. Which one depends on the clone's hash alone, so that splits and
//! merges of PGs move no rows; in small pools a PG has several to itself, in large ones several PGs
//! share one, each with its own range of keys. The row is written in the transaction that makes the
//! clone or brings it here, and goes in the one that removes it or takes the snapshot from it, also where recovery
//! does that ([`drop_left_rows`]). So a removed snapshot costs in proportion to what it holds. Older builds kept an
//! index for each PG: those are looked through, too. What is left in there when recovery has removed a clone
//! leads trimming to nothing, and is dropped.
//!
//! The primary of a clean PG goes through the snapshots of its pool that the map says are removed, a
//! few objects at a time, each by a logged write. A snapshot without rows is done; that is told to
//! the mon, which takes it off the map when all PGs have said so. Nothing is stored about progress:
//! after a restart the rows that are left say what is to be done.

use crate::compress::PoolCompression;
use crate::daemon::{Daemon, Waiter};
use crate::host::{PgHost, Source};
use crate::object::{ObjectMeta, key_range, own_object};
use crate::ops::{self, Reader, Scene, Sender};
use bytes::Bytes;
use io::Effects;
use maps::{PgIdExt, SnapSet};
use pg::{Readiness, StateBits};
use std::collections::BTreeMap;
use std::time::Duration;
use store::{Miss, ObjectIx, OmapRange, Op, ReadSet, Store, StoreError, SubmitError, Transaction};
use types::testing::{Probe, hit};
use types::{HObject, Mono, ObjectKey, PgId, PoolId, SnapId};
use wire::msg::MOsdOp;

/// Snapshot indexes of a pool. Transactions of several PGs that change the same object wait for each
/// other, so there are more of them than an OSD usually has PGs of a pool.
const INDEXES: u32 = 256;

/// What could not be read is tried again after so long, in seconds.
const RETRY_S: u64 = 60;

/// The index with the rows of clones of this hash.
pub fn index_of(pool: PoolId, hash: u32) -> ObjectKey {
    own_object(format!("snapindex/{pool}/{:02x}", hash % INDEXES)).to_key()
}

/// The index that older builds kept for a PG.
fn old_index_of(pgid: PgId) -> ObjectKey {
    own_object(format!("snaps/{pgid}")).to_key()
}

/// The indexes that belong to a PG alone, in a pool of so many.
pub fn own_indexes(pgid: PgId, pg_num: u32) -> Vec<ObjectKey> {
    let mut own = vec![old_index_of(pgid)];
    if pgid.split_bits(pg_num) <= INDEXES.ilog2() {
        own.extend(shared_indexes(pgid, pg_num));
    }
    own
}

/// The indexes with the rows of a PG's clones.
fn shared_indexes(pgid: PgId, pg_num: u32) -> impl Iterator<Item = ObjectKey> {
    let bits = pgid.split_bits(pg_num).min(INDEXES.ilog2());
    let (step, first) = (1usize << bits, pgid.seed & ((1 << bits) - 1));
    (first..INDEXES).step_by(step).map(move |hash| index_of(pgid.pool, hash))
}

/// Where rows of a PG's clones may be: in the indexes of today, and in those that older builds kept
/// for it and for the PGs it was split from.
pub fn indexes(pgid: PgId, pg_num: u32) -> Vec<ObjectKey> {
    let mut all: Vec<_> = shared_indexes(pgid, pg_num).collect();
    let mut old = pgid;
    all.push(old_index_of(old));
    while old.seed > 0 {
        old = old.parent();
        all.push(old_index_of(old));
    }
    all
}

/// The rows of a snapshot begin so.
fn row_start(snap: SnapId) -> Bytes {
    Bytes::copy_from_slice(&snap.0.to_be_bytes())
}

/// The row of a clone for one snapshot: the snapshot (8 bytes, big-endian), the clone's key.
pub fn row(snap: SnapId, clone: &ObjectKey) -> Bytes {
    [&snap.0.to_be_bytes(), clone.as_bytes()].concat().into()
}

fn clone_of_row(row: &[u8]) -> Option<HObject> {
    ObjectKey::from_bytes(row.get(8..)?).decode().ok()
}

/// Writes the rows of a clone.
pub fn put_rows(txn: &mut Transaction, clone: &HObject, key: &ObjectKey, snaps: &[SnapId]) {
    if !snaps.is_empty() {
        let rows = snaps.iter().map(|snap| (row(*snap, key), Bytes::new()));
        txn.omap_set(&index_of(clone.pool, clone.hash), rows.collect());
    }
}

/// Removes the rows of a clone.
pub fn remove_rows_of(txn: &mut Transaction, clone: &HObject, key: &ObjectKey, snaps: &[SnapId]) {
    if !snaps.is_empty() {
        let rows = snaps.iter().map(|snap| row(*snap, key));
        txn.omap_remove(&index_of(clone.pool, clone.hash), rows.collect());
    }
}

/// Adds to a transaction what goes from the snapshot indexes with it: rows of clones that it removes, or that serve
/// fewer snapshots afterwards. What a clone serves before is in its stored record only.
///
/// # Errors
/// What must be fetched first.
pub fn drop_left_rows(store: &Store, txn: &mut Transaction) -> Result<(), Miss> {
    if !txn.objects().iter().any(ObjectKey::is_of_clone) {
        return Ok(());
    }
    let snaps_of = |meta: &Bytes| ObjectMeta::decode(meta).map(|m| m.snaps).unwrap_or_default();
    let (mut left, mut lacks) = (Vec::new(), None::<Miss>);
    for (ix, record) in records_after(txn) {
        let Some(key) = txn.objects().get(ix.0 as usize).filter(|key| key.is_of_clone()) else {
            continue;
        };
        match (key.decode(), store.stat(key)) {
            (Ok(clone), Ok(Some(stat))) => {
                let serves = record.map_or(Vec::new(), snaps_of);
                let mut gone = snaps_of(&stat.meta);
                gone.retain(|snap| !serves.contains(snap));
                left.push((clone, key.clone(), gone));
            }
            (_, Err(miss)) => match &mut lacks {
                Some(lacks) => lacks.merge(miss),
                None => lacks = Some(miss),
            },
            _ => {}
        }
    }
    if let Some(miss) = lacks {
        return Err(miss);
    }
    left.iter().for_each(|(clone, key, gone)| remove_rows_of(txn, clone, key, gone));
    Ok(())
}

/// The records of objects that a transaction removes, or of which it sets the record; `None`: it leaves none.
fn records_after(txn: &Transaction) -> BTreeMap<ObjectIx, Option<&Bytes>> {
    let mut records = BTreeMap::new();
    for op in txn.ops() {
        match op {
            Op::Remove(object) => _ = records.insert(*object, None),
            Op::SetMeta { object, meta } => _ = records.insert(*object, Some(meta)),
            Op::Rename { from, to } => {
                if let Some(record) = records.remove(from) {
                    records.insert(*to, record);
                }
            }
            _ => {}
        }
    }
    records
}

/// Where the trimming of a PG stands.
#[derive(Debug, Default)]
pub struct Trimmer {
    /// Removed snapshots that nothing is left of here.
    done: SnapSet,
    /// Writes that are not committed.
    busy: usize,
    /// Something must be fetched first.
    waiting: bool,
    reads: ReadSet,
    /// The snapshot it is at. Another one takes its place when an older one is removed meanwhile.
    current: Option<SnapId>,
    /// Indexes of the PG that have no row left of the current snapshot.
    empty_indexes: usize,
    /// It has something to do, and may.
    pub active: bool,
    /// It does not take a place before: something could not be read.
    not_before: Mono,
}

impl Trimmer {
    /// Removed snapshots that nothing is left of here.
    pub fn done(&self) -> &SnapSet {
        &self.done
    }

    /// Goes through all indexes for another snapshot.
    fn turn_to(&mut self, snap: Option<SnapId>) {
        if self.current != snap {
            (self.current, self.empty_indexes, self.reads) = (snap, 0, ReadSet::new());
        }
    }

    /// Something cannot be read: others have its place until then.
    fn put_off(&mut self, until: Mono) {
        (self.active, self.waiting, self.not_before) = (false, false, until);
        self.turn_to(None);
    }

    /// Its writes are forgotten, with all others of the PG.
    pub fn interrupted(&mut self) {
        *self = Trimmer { done: std::mem::take(&mut self.done), ..Trimmer::default() };
    }
}

impl PgHost {
    /// What trimming adds to the state: at work, or waiting to be.
    pub fn trim_bits(&self, queue: Option<&SnapSet>) -> StateBits {
        let left = || queue.is_some_and(|q| self.next_trim(q).is_some());
        if self.trimmer.active {
            StateBits::SNAPTRIM
        } else if self.pg.is_primary() && left() {
            StateBits::SNAPTRIM_WAIT
        } else {
            StateBits::default()
        }
    }

    fn next_trim(&self, queue: &SnapSet) -> Option<SnapId> {
        queue.iter().find(|snap| !self.trimmer.done.contains(*snap))
    }
}

/// A row of an index.
struct Row {
    index: ObjectKey,
    key: Bytes,
}

/// What a step came to.
enum Step {
    /// There may be more to do at once.
    More,
    /// It waits: for the disk, for commits, for the PG.
    Wait,
    /// Nothing is left of this snapshot.
    Done(SnapId),
    /// No snapshot is left.
    Over,
}

impl Daemon {
    /// Looks whether PGs have something to trim: after a new map, and when one became clean.
    pub(crate) fn note_trimming(&mut self, pgid: PgId) {
        let map = self.maps.current().clone();
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        match map.removed_snaps_queue.get(&pgid.pool) {
            Some(queue) => {
                host.trimmer.done.intersect(queue);
                if host.started && host.pg.is_primary() && host.next_trim(queue).is_some() {
                    self.trimming.insert(pgid);
                }
            }
            None => host.trimmer.done = SnapSet::new(),
        }
    }

    /// Goes on with trimming, as far as the limits allow.
    pub(crate) fn trim(&mut self, fx: &mut Effects) {
        if self.trimming.is_empty() || !self.is_up() {
            return;
        }
        let pgids: Vec<PgId> = self.trimming.iter().copied().collect();
        let is_active = |pgid: &&PgId| self.pgs.get(pgid).is_some_and(|h| h.trimmer.active);
        let mut active = pgids.iter().filter(is_active).count();
        for pgid in pgids {
            let Some(host) = self.pgs.get_mut(&pgid) else {
                self.trimming.remove(&pgid);
                continue;
            };
            let may = host.pg.state().has(StateBits::CLEAN) && host.pg.accepts_io();
            if !may {
                host.trimmer.active = false;
                continue;
            }
            if !host.trimmer.active {
                if active >= self.limits.trim_pgs || host.trimmer.not_before > self.now.mono {
                    continue;
                }
                active += 1;
                host.trimmer.active = true;
                host.dirty = true;
                self.report_soon();
            }
            while let Step::More = self.trim_pg(pgid, fx) {}
        }
    }

    fn trim_pg(&mut self, pgid: PgId, fx: &mut Effects) -> Step {
        let step = self.trim_step(pgid, fx);
        let Some(host) = self.pgs.get_mut(&pgid) else { return Step::Over };
        match step {
            Step::Done(snap) => {
                host.trimmer.done.insert(snap);
                host.trimmer.turn_to(None);
                host.dirty = true;
                self.report_soon();
                Step::More
            }
            Step::Over => {
                host.trimmer.active = false;
                host.dirty = true;
                self.trimming.remove(&pgid);
                self.report_soon();
                Step::Over
            }
            step => step,
        }
    }

    fn trim_step(&mut self, pgid: PgId, fx: &mut Effects) -> Step {
        let map = self.maps.current().clone();
        let Some(host) = self.pgs.get_mut(&pgid) else { return Step::Over };
        let trimmer = &host.trimmer;
        if trimmer.waiting || trimmer.busy >= self.limits.trim_objects || !host.queue.is_empty() {
            return Step::Wait;
        }
        let queue = map.removed_snaps_queue.get(&pgid.pool);
        let Some(snap) = queue.and_then(|q| host.next_trim(q)) else {
            return if trimmer.busy == 0 { Step::Over } else { Step::Wait };
        };
        host.trimmer.turn_to(Some(snap));
        let found = match self.next_row(pgid, snap) {
            Ok(found) => found,
            Err(miss) => {
                if let Some(host) = self.pgs.get_mut(&pgid) {
                    host.trimmer.waiting = true;
                }
                self.fetch(miss, Waiter::Trim(pgid), fx);
                return Step::Wait;
            }
        };
        let busy = self.pgs.get(&pgid).map_or(0, |h| h.trimmer.busy);
        match found {
            None if busy == 0 => Step::Done(snap),
            None => Step::Wait,
            Some(found) => self.trim_row(pgid, found, fx),
        }
    }

    /// The next row of a snapshot for a clone of the PG.
    fn next_row(&mut self, pgid: PgId, snap: SnapId) -> Result<Option<Row>, Miss> {
        let Some(host) = self.pgs.get_mut(&pgid) else { return Ok(None) };
        let pg_num = host.pg.rules().pg_num.max(1);
        let (first, end) = key_range(pgid, pg_num);
        let end = row(snap, &end);
        let range = OmapRange {
            from: row(snap, &first),
            after: false,
            prefix: row_start(snap),
            max_entries: 1,
            max_bytes: usize::MAX,
        };
        for index in indexes(pgid, pg_num).into_iter().skip(host.trimmer.empty_indexes) {
            let page = self.store.omap_list(&index, &range)?.unwrap_or_default();
            let row = page.entries.into_iter().next().map(|(row, _)| row);
            if let Some(row) = row.filter(|row| *row < end) {
                return Ok(Some(Row { index, key: Bytes::copy_from_slice(&row) }));
            }
            host.trimmer.empty_indexes += 1;
        }
        Ok(None)
    }

    /// Trims the clone that a row names.
    fn trim_row(&mut self, pgid: PgId, row: Row, fx: &mut Effects) -> Step {
        let snaps = self.maps.pool_snaps(pgid.pool);
        let Some(host) = self.pgs.get_mut(&pgid) else { return Step::Over };
        let Some(clone) = clone_of_row(&row.key) else {
            tracing::error!(
                "osd.{}: pg {pgid}: a row of its snapshot index is damaged",
                self.cfg.id
            );
            return self.drop_row(pgid, row, fx);
        };
        let head = clone.head();
        if host.scrub.holds(&head)
            || host.pg.readiness(&head) != Readiness::Ready
            || host.pg.readiness(&clone) != Readiness::Ready
        {
            return Step::Wait;
        }
        let request = MOsdOp { object: head.clone(), ..MOsdOp::default() };
        let scene = Scene {
            request: &request,
            head_key: &head.to_key(),
            writes: true,
            sender: Sender::default(),
            snaps: &snaps,
            compression: PoolCompression::default(),
            is_ready: &|_| true,
            copies: &[],
            room_bytes: 0,
            now: self.now.wall,
            next_notify_id: 0,
        };
        let reads = host.trimmer.reads.clone();
        let reader = Reader { store: &self.store, set: &reads };
        let mut change = match ops::trim(reader, &scene, crate::host::sequencer(pgid), clone.snap) {
            Ok(Some(change)) => change,
            Ok(None) => {
                hit(Probe::RowLedNowhere);
                return self.drop_row(pgid, row, fx);
            }
            Err(ops::Stop::Miss(miss)) => {
                host.trimmer.waiting = true;
                self.fetch(miss, Waiter::Trim(pgid), fx);
                return Step::Wait;
            }
            Err(stop) => {
                // The space is not freed, but nothing else depends on it; scrub will name the object.
                tracing::error!("osd.{}: {clone} cannot be trimmed: {stop:?}", self.cfg.id);
                self.perf.read_errors += 1;
                return self.drop_row(pgid, row, fx);
            }
        };
        let (key, removed) = (clone.to_key(), change.trimmed_snaps().to_vec());
        change.drop_rows(&row.index, removed.iter().map(|snap| self::row(*snap, &key)).collect());
        match self.own_write(pgid, change, head, &reads, Source::Trimmer, fx) {
            Ok(()) => {
                if let Some(host) = self.pgs.get_mut(&pgid) {
                    host.trimmer.busy += 1;
                    host.trimmer.reads = ReadSet::new();
                }
                Step::More
            }
            Err(stop) => self.trim_stopped(pgid, stop, fx),
        }
    }

    fn trim_stopped(&mut self, pgid: PgId, stop: SubmitError, fx: &mut Effects) -> Step {
        let Some(host) = self.pgs.get_mut(&pgid) else { return Step::Over };
        host.trimmer.waiting = true;
        match stop {
            SubmitError::Miss(miss) => self.fetch(miss, Waiter::Trim(pgid), fx),
            SubmitError::Busy | SubmitError::NoSpace => self.blocked.push(Waiter::Trim(pgid)),
            SubmitError::Invalid(why) => {
                let id = self.cfg.id;
                fx.exit(1, format!("osd.{id}: pg {pgid}: a clone cannot be trimmed: {why}"));
            }
        }
        Step::Wait
    }

    /// A row that leads nowhere.
    fn drop_row(&mut self, pgid: PgId, row: Row, fx: &mut Effects) -> Step {
        let Some(host) = self.pgs.get_mut(&pgid) else { return Step::Over };
        let mut txn = host.transaction();
        txn.omap_remove(&row.index, vec![row.key]);
        self.submit(pgid, txn, Vec::new(), fx);
        Step::More
    }

    /// What trimming lacked is here.
    pub(crate) fn trim_fetched(&mut self, pgid: PgId, result: Result<ReadSet, StoreError>) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        match result {
            Ok(reads) => {
                host.trimmer.reads.merge(reads);
                host.trimmer.waiting = false;
            }
            Err(why) => {
                tracing::error!("osd.{}: pg {pgid} cannot be trimmed: {why}", self.cfg.id);
                self.perf.read_errors += 1;
                host.trimmer.put_off(self.now.mono.after(Duration::from_secs(RETRY_S)));
                host.dirty = true;
                self.report_soon();
            }
        }
    }

    /// A write of the trimmer is committed.
    pub(crate) fn trim_committed(&mut self, pgid: PgId) {
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.trimmer.busy = host.trimmer.busy.saturating_sub(1);
        }
    }
}

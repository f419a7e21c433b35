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
//! after a restart the rows that are left say what is to be done. Tens of thousands of snapshots may be
//! removed by then, most of which have no rows: each index says which is the next one that has.

use crate::compress::PoolCompression;
use crate::daemon::{Daemon, Waiter};
use crate::host::{PgHost, Source};
use crate::object::{ObjectMeta, key_range, own_object};
use crate::ops::{self, Reader, Scene, Sender};
use bytes::Bytes;
use io::Effects;
use maps::{OsdMapFlags, PgIdExt, SnapSet};
use pg::{Readiness, StateBits};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;
use store::{Miss, ObjectIx, OmapRange, Op, ReadSet, Store, StoreError, SubmitError, Transaction};
use types::testing::{Bug, Probe, hit, planted};
use types::{HObject, Mono, ObjectKey, PgId, PoolId, SnapId};
use wire::msg::MOsdOp;

/// Snapshot indexes of a pool. Transactions of several PGs that change the same object wait for each
/// other, so there are more of them than an OSD usually has PGs of a pool.
const INDEXES: u32 = 256;

/// Looks into indexes in one turn: a few microseconds each.
const LOOKS_PER_TURN: usize = 256;

/// What could not be read, or is not as its head says, is tried again after so long, in seconds.
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

/// The row of a clone for one snapshot: the snapshot (8 bytes, big-endian), the clone's key.
pub fn row(snap: SnapId, clone: &ObjectKey) -> Bytes {
    [&snap.0.to_be_bytes(), clone.as_bytes()].concat().into()
}

fn snap_of_row(row: &[u8]) -> Option<SnapId> {
    row.first_chunk().map(|snap| SnapId(u64::from_be_bytes(*snap)))
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

/// The object that comes with this record has rows in a snapshot index, if it is a clone: by these trimming finds it.
pub fn put_clone_rows(txn: &mut Transaction, key: &ObjectKey, record: &Bytes) {
    if let Some((clone, meta)) = clone_of(key, record) {
        put_rows(txn, &clone, key, &meta.snaps);
    }
}

/// The object with this record is removed, and its rows in a snapshot index with it.
pub fn drop_clone_rows(txn: &mut Transaction, key: &ObjectKey, record: &Bytes) {
    if let Some((clone, meta)) = clone_of(key, record) {
        remove_rows_of(txn, &clone, key, &meta.snaps);
    }
}

/// `None`: it is none, or one of which nothing is known.
fn clone_of(key: &ObjectKey, record: &Bytes) -> Option<(HObject, ObjectMeta)> {
    let clone = key.decode().ok().filter(|object| object.pool.0 >= 0 && !object.is_head())?;
    Some((clone, ObjectMeta::decode(record).ok()?))
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
    /// All before this one are.
    from: SnapId,
    /// Writes that are not committed.
    busy: usize,
    /// Something must be fetched first.
    waiting: bool,
    reads: ReadSet,
    /// The snapshot it is at. Another one takes its place when an older one is removed meanwhile.
    at: Option<At>,
    /// It has something to do, and may.
    pub active: bool,
    /// Something could not be read, or a clone is not as its head says: it takes no place before, and says so until
    /// then. A scrub finds out what is wrong.
    failed_until: Option<Mono>,
}

/// Which PGs have something to trim.
#[derive(Debug, Default)]
pub(crate) struct Trimming {
    /// These are at work: as many as may at once.
    active: BTreeSet<PgId>,
    /// Others may follow them.
    line: BTreeSet<PgId>,
    /// They cannot now, since they are not clean, or something could not be read. From time to time they
    /// come into the line again.
    aside: BTreeSet<PgId>,
}

impl Trimming {
    fn insert(&mut self, pgid: PgId) {
        if !self.active.contains(&pgid) {
            self.aside.remove(&pgid);
            self.line.insert(pgid);
        }
    }

    /// It has nothing to do, or is not here any more.
    pub fn remove(&mut self, pgid: PgId) {
        for pgs in [&mut self.active, &mut self.line, &mut self.aside] {
            pgs.remove(&pgid);
        }
    }

    fn put_aside(&mut self, pgid: PgId) {
        self.remove(pgid);
        self.aside.insert(pgid);
    }

    /// Those that could not go on may again.
    pub fn look_again(&mut self) {
        self.line.append(&mut self.aside);
    }

    /// Whether one is at work, or may be.
    pub fn has_work(&self, at_once: usize) -> bool {
        !self.active.is_empty() || (at_once > 0 && !self.line.is_empty())
    }
}

/// The rows of one snapshot.
#[derive(Debug)]
struct At {
    snap: SnapId,
    /// Where some may be left, the next one last.
    indexes: Vec<ObjectKey>,
    /// Before this row none is left in that one.
    from: Bytes,
    /// In the others this snapshot may be the next one with rows.
    next: SnapId,
}

impl Trimmer {
    /// Removed snapshots that nothing is left of here.
    pub fn done(&self) -> &SnapSet {
        &self.done
    }

    /// The removed snapshot that is next.
    fn next(&self, removed: &SnapSet) -> Option<SnapId> {
        let first = |set: &SnapSet, from| set.within(from, SnapId::HEAD).next();
        let (mut snap, _) = first(removed, self.from)?;
        while let Some((start, len)) = first(&self.done, snap).filter(|(start, _)| *start == snap) {
            (snap, _) = first(removed, SnapId(start.0.saturating_add(len)))?;
        }
        Some(snap)
    }

    /// Others are removed, perhaps before the one it is at, or between that and the next one with rows. Whether
    /// there is one to begin with.
    fn begin_anew(&mut self, removed: &SnapSet) -> bool {
        self.done.intersect(removed);
        (self.from, self.at, self.reads) = (SnapId::default(), None, ReadSet::new());
        let next = self.next(removed);
        self.from = next.unwrap_or(SnapId::HEAD);
        next.is_some()
    }

    /// Nothing is left of the snapshot it is at, nor of those up to the next one with rows.
    fn note_done(&mut self, removed: &SnapSet) {
        let Some(at) = self.at.take() else { return };
        removed.within(at.snap, at.next).for_each(|(snap, len)| self.done.insert_range(snap, len));
        (self.from, self.reads) = (at.next, ReadSet::new());
    }

    /// Something is wrong: others have its place until then.
    fn put_off(&mut self, until: Mono) {
        (self.active, self.waiting, self.failed_until) = (false, false, Some(until));
        (self.at, self.reads) = (None, ReadSet::new());
    }

    /// Its writes are forgotten, with all others of the PG.
    pub fn interrupted(&mut self) {
        *self = Trimmer { done: std::mem::take(&mut self.done), ..Trimmer::default() };
    }
}

impl At {
    fn new(pgid: PgId, pg_num: u32, snap: SnapId) -> Self {
        let (mut indexes, from) = (indexes(pgid, pg_num), Bytes::new());
        indexes.reverse();
        At { snap, indexes, from, next: SnapId::HEAD }
    }

    /// The next row for one of these clones. Each look into an index takes one of `looks`.
    ///
    /// # Errors
    /// What must be fetched first.
    fn next_row(
        &mut self,
        store: &Store,
        (first, end): &(ObjectKey, ObjectKey),
        looks: &mut usize,
    ) -> Result<Found, Miss> {
        let (first, end) = (row(self.snap, first), row(self.snap, end));
        while let Some(index) = self.indexes.last() {
            if *looks == 0 {
                hit(Probe::TrimGoesOn);
                return Ok(Found::NotYet);
            }
            *looks -= 1;
            hit(Probe::SnapIndexLooked);
            // Rows of others, and of other snapshots, may stand behind: of these it says the next one.
            let range = OmapRange {
                from: self.from.clone().max(first.clone()),
                after: false,
                prefix: Bytes::new(),
                max_entries: 1,
                max_bytes: usize::MAX,
            };
            let page = store.omap_list(index, &range)?.unwrap_or_default();
            let found = page.entries.into_iter().next().map(|(row, _)| row);
            if let Some(row) = found.as_ref().filter(|row| **row < end) {
                self.from = Bytes::copy_from_slice(row);
                return Ok(Found::Row(Row { index: index.clone(), key: self.from.clone() }));
            }
            if let Some(snap) = found.as_deref().and_then(snap_of_row) {
                self.next = self.next.min(snap.max(SnapId(self.snap.0 + 1)));
            }
            self.from = Bytes::new();
            self.indexes.pop();
        }
        Ok(Found::None)
    }
}

impl PgHost {
    fn may_trim(&self) -> bool {
        self.pg.is_primary() && self.pg.state().has(StateBits::CLEAN) && self.pg.accepts_io()
    }

    /// What trimming adds to the state: at work, or waiting to be, or not able to.
    pub fn trim_bits(&self, queue: Option<&SnapSet>) -> StateBits {
        let left = || queue.is_some_and(|q| self.trimmer.next(q).is_some());
        if self.trimmer.active {
            StateBits::SNAPTRIM
        } else if self.pg.is_primary() && left() {
            let failed = self.trimmer.failed_until.is_some();
            if failed { StateBits::SNAPTRIM_ERROR } else { StateBits::SNAPTRIM_WAIT }
        } else {
            StateBits::default()
        }
    }
}

/// A row of an index.
struct Row {
    index: ObjectKey,
    key: Bytes,
}

/// What a look for a row came to.
enum Found {
    Row(Row),
    /// There is none.
    None,
    /// That was enough for this turn.
    NotYet,
}

/// What a step came to.
enum Step {
    /// There may be more to do at once.
    More,
    /// It waits: for the disk, for commits, for the PG, for the next turn.
    Wait,
    /// No snapshot is left.
    Over,
}

impl Daemon {
    /// Looks whether PGs have something to trim: after a new map, and when one became clean.
    pub(crate) fn note_trimming(&mut self, pgid: PgId) {
        let map = self.maps.current().clone();
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        hit(Probe::TrimLookedAtPg);
        let none = SnapSet::new();
        let removed = map.removed_snaps_queue.get(&pgid.pool).unwrap_or(&none);
        if host.trimmer.begin_anew(removed) && host.started && host.pg.is_primary() {
            self.trimming.insert(pgid);
        }
    }

    /// Goes on with trimming, as far as the limits and the operator (`nosnaptrim`) allow.
    pub(crate) fn trim(&mut self, fx: &mut Effects) {
        if !self.is_up() {
            return;
        }
        let is_allowed = !self.maps.current().flags.contains(OsdMapFlags::NOSNAPTRIM);
        while is_allowed
            && self.trimming.active.len() < self.limits.trim_pgs
            && let Some(pgid) = self.trimming.line.pop_first()
        {
            hit(Probe::TrimLookedAtPg);
            self.begin_trimming(pgid);
        }
        let mut looks = LOOKS_PER_TURN;
        for pgid in self.trimming.active.clone() {
            hit(Probe::TrimLookedAtPg);
            match self.pgs.get_mut(&pgid) {
                Some(host) if is_allowed && host.trimmer.active && host.may_trim() => {
                    while let Step::More = self.trim_step(pgid, &mut looks, fx) {}
                }
                Some(host) => {
                    host.trimmer.active = false;
                    self.trimming.put_aside(pgid);
                }
                None => self.trimming.remove(pgid),
            }
        }
        self.goes_on |= looks == 0;
    }

    /// One that is its turn, if it may.
    fn begin_trimming(&mut self, pgid: PgId) {
        // Whoever leads it now looks after it.
        let leads = |h: &&mut PgHost| h.pg.is_primary();
        let Some(host) = self.pgs.get_mut(&pgid).filter(leads) else { return };
        if !host.may_trim() || host.trimmer.failed_until.is_some_and(|t| t > self.now.mono) {
            self.trimming.put_aside(pgid);
            return;
        }
        (host.trimmer.active, host.trimmer.failed_until) = (true, None);
        host.dirty = true;
        self.trimming.active.insert(pgid);
        self.report_soon();
    }

    fn trim_step(&mut self, pgid: PgId, looks: &mut usize, fx: &mut Effects) -> Step {
        let map = self.maps.current().clone();
        let Some(host) = self.pgs.get_mut(&pgid) else { return Step::Over };
        let is_settled = host.is_settled();
        let trimmer = &mut host.trimmer;
        if trimmer.waiting || trimmer.busy >= self.limits.trim_objects || !is_settled {
            return Step::Wait;
        }
        let removed = map.removed_snaps_queue.get(&pgid.pool);
        let Some((removed, snap)) = removed.and_then(|r| Some((r, trimmer.next(r)?))) else {
            return if trimmer.busy == 0 { self.trimmed(pgid) } else { Step::Wait };
        };
        trimmer.from = snap;
        trimmer.at.take_if(|at| at.snap != snap);
        let pg_num = host.pg.rules().pg_num.max(1);
        let at = trimmer.at.get_or_insert_with(|| At::new(pgid, pg_num, snap));
        match at.next_row(&self.store, &key_range(pgid, pg_num), looks) {
            Ok(Found::Row(row)) => self.trim_row(pgid, row, fx),
            Ok(Found::None) if trimmer.busy == 0 => {
                trimmer.note_done(removed);
                host.dirty = true;
                self.report_soon();
                Step::More
            }
            Ok(Found::None | Found::NotYet) => Step::Wait,
            Err(miss) => {
                trimmer.waiting = true;
                self.fetch(miss, Waiter::Trim(pgid), fx);
                Step::Wait
            }
        }
    }

    /// Nothing is left of all that was removed.
    fn trimmed(&mut self, pgid: PgId) -> Step {
        if let Some(host) = self.pgs.get_mut(&pgid) {
            (host.trimmer.active, host.dirty) = (false, true);
        }
        self.trimming.remove(pgid);
        self.report_soon();
        Step::Over
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
                self.trim_failed(pgid, format_args!("{clone} cannot be trimmed: {stop:?}"));
                return Step::Over;
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
            Err(why) => self.trim_failed(pgid, format_args!("it cannot be trimmed: {why}")),
        }
    }

    /// The snapshot stays in the queue, and is tried again: what is wrong may have been repaired by then.
    fn trim_failed(&mut self, pgid: PgId, what: fmt::Arguments<'_>) {
        tracing::error!("osd.{}: pg {pgid}: {what}", self.cfg.id);
        self.perf.read_errors += 1;
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        host.trimmer.put_off(self.now.mono.after(Duration::from_secs(RETRY_S)));
        host.dirty = true;
        self.report_soon();
    }

    /// A write of the trimmer is committed.
    pub(crate) fn trim_committed(&mut self, pgid: PgId) {
        if planted(Bug::TrimStops) {
            return;
        }
        if let Some(host) = self.pgs.get_mut(&pgid) {
            host.trimmer.busy = host.trimmer.busy.saturating_sub(1);
        }
    }
}

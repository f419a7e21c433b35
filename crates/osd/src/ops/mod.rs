//! The op interpreter: runs the operations of one request on one object.
//!
//! A run is a pure function of the stored object and the request: it reads the committed object and
//! builds a transaction, and changes nothing itself. When bytes are needed that are not in memory it
//! stops ([`Stop::Miss`]); the host fetches them and runs the request again from the start.
//!
//! Rules of compound requests (guide §5.5; `PrimaryLogPG.cc: do_osd_ops, execute_ctx`): operations
//! run in order; the first that fails without FAILOK ends the request, and nothing is changed. Data,
//! attributes and omap are read as they were before the request; existence, size and user version
//! follow the operations before.

mod attr;
mod call;
mod check;
mod copy;
mod data;
mod finish;
mod list;
mod omap;
mod reader;
mod snaps;
mod watch;
mod write;

pub use attr::stored_name;
use check::extent_of;
pub use check::{MAX_MADE_BYTES, check_request};
pub use copy::{CopiedObject, CopySource, entry_bytes};
use finish::CloneChange;
pub use finish::{Change, Finished, MAX_WRITE_OUTPUT_BYTES, Versioned};
pub use list::{ListRange, list_objects};
pub use omap::MAX_COPY_BYTES;
pub use reader::{Reader, StoredObject, contents};
pub use watch::WatchEffect;

use crate::compress::PoolCompression;
use crate::mapstate::PoolSnaps;
use crate::object::{ObjectMeta, Ranges, SnapPlace, SnapSet};
use bytes::Bytes;
use denc::DecodeError;
use pg::ObjectSums;
use store::{Miss, Transaction};
use types::{EntityAddr, EntityName, Errno, HObject, ObjectKey, SnapId, UTime};
use wire::msg::op::{Extent, op_flags};
use wire::msg::{MOsdOp, OpCode, OsdOp, ReplyOp, ReplyOps, SnapContext};

/// What a request may be answered, all operations together: each alone gives an object (128 MiB) at most,
/// and there may be 65,535.
const MAX_ANSWER_BYTES: usize = 512 << 20;
/// Data that a request may write: it goes to the replicas in one message
/// ([`wire::frame::MAX_MESSAGE_FRAME_BYTES`]), with the rest of the transaction.
const MAX_CHANGE_BYTES: u64 = 144 << 20;

/// Whether an operation writes more than the client has sent: of all others the input is bounded.
fn is_short_for_much(code: OpCode) -> bool {
    matches!(code, OpCode::WRITESAME | OpCode::COPY_FROM | OpCode::COPY_FROM2 | OpCode::CALL)
}

/// Why a run, or one operation of it, does not go on.
#[derive(Debug)]
pub enum Stop {
    /// The operation fails.
    Fail(Errno),
    /// The operation fails with this (negative) number, which is no plain error number.
    Result(i32),
    /// The request fails as a whole, also when its operation may fail.
    Refuse(Errno),
    /// Bytes must be fetched first.
    Miss(Miss),
    /// This clone must be recovered first.
    NotReady(HObject),
    /// Another object must be copied here first. The run has made so many bytes before.
    Copy(CopySource, usize),
    /// There must be room for so many bytes in all that the run makes.
    Room(usize),
}

impl Stop {
    /// The same for a client that will not read again what must be fetched.
    pub fn not_kept(self) -> Stop {
        match self {
            Stop::Miss(miss) => Stop::Miss(miss.not_kept()),
            other => other,
        }
    }
}

impl From<Errno> for Stop {
    fn from(e: Errno) -> Self {
        Stop::Fail(e)
    }
}

impl From<Miss> for Stop {
    fn from(miss: Miss) -> Self {
        Stop::Miss(miss)
    }
}

impl From<DecodeError> for Stop {
    /// Input that cannot be decoded.
    fn from(_: DecodeError) -> Self {
        Stop::Fail(Errno::EINVAL)
    }
}

/// The sender of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sender {
    /// Its name.
    pub name: EntityName,
    /// Its address: part of its identity for watches and locks.
    pub addr: EntityAddr,
}

/// Everything a run depends on beside the store.
pub struct Scene<'a> {
    /// The request.
    pub request: &'a MOsdOp,
    /// The key of its object's head.
    pub head_key: &'a ObjectKey,
    /// It may change something.
    pub writes: bool,
    /// Who sent it.
    pub sender: Sender,
    /// The pool's snapshots.
    pub snaps: &'a PoolSnaps,
    /// What of it is compressed.
    pub compression: PoolCompression,
    /// Whether a clone of the object is complete here.
    pub is_ready: &'a dyn Fn(&HObject) -> bool,
    /// Objects fetched for COPY_FROM.
    pub copies: &'a [(CopySource, Result<CopiedObject, Errno>)],
    /// What it may make beside what came with it.
    pub room_bytes: usize,
    /// The time, for what the client leaves to us.
    pub now: UTime,
    /// Ids of notifies that this run may start.
    pub next_notify_id: u64,
}

/// The object as the operations so far have made it.
#[derive(Clone, Debug, Default)]
struct ObjectNow {
    /// Clients see it.
    exists: bool,
    size: u64,
    meta: ObjectMeta,
}

/// A run in progress.
struct Run<'a> {
    scene: &'a Scene<'a>,
    reader: Reader<'a>,
    head: HObject,
    head_key: ObjectKey,
    /// What reads see: the head, or the clone that serves the wanted snapshot.
    source_key: ObjectKey,
    /// The head as stored (it may be a whiteout), before the request.
    stored: Option<StoredObject>,
    snapset: SnapSet,
    /// The object reads see, before the request.
    before: ObjectNow,
    /// The head after the operations so far.
    now: ObjectNow,
    snapc: SnapContext,
    txn: Transaction,
    /// The clone made by this request.
    cloned: Option<SnapId>,
    /// The clone trimmed by this run, and the snapshots it no longer serves.
    trimmed: Option<(SnapId, CloneChange)>,
    trimmed_snaps: Vec<SnapId>,
    snapset_changed: bool,
    /// Bytes of the head that changed.
    modified: Ranges,
    sums: ObjectSums,
    changes: bool,
    user_change: bool,
    /// What it has made beside what came with the request.
    made_bytes: usize,
    /// What the operation at hand has read to make sums of.
    summed_bytes: usize,
    /// It has become a copy of another object, and is as old as that.
    is_copy: bool,
    effects: Vec<WatchEffect>,
    results: ReplyOps,
}

/// Whether a request reads and writes the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Something depends on what is stored.
    pub reads: bool,
    /// Something may change.
    pub writes: bool,
}

/// What a request does, by its operations.
pub fn classify(request: &MOsdOp) -> Class {
    let mut class = Class::default();
    for op in &request.ops {
        // A watch that is only confirmed changes nothing.
        if op.code == OpCode::WATCH && op.args.watch().op == wire::msg::op::watch_op::PING {
            class.reads = true;
            continue;
        }
        class.reads |=
            op.code.is_read() || matches!(op.code, OpCode::COPY_FROM | OpCode::COPY_FROM2);
        class.writes |= op.code.is_write();
        if op.code == OpCode::CALL {
            class.reads = true;
            class.writes |= call::called(op).is_ok_and(|(method, _)| method.writes);
        }
        // A rollback depends on the clone, an append on nothing but the size, which is in memory.
        class.reads |= op.code == OpCode::ROLLBACK;
    }
    class
}

/// Runs a request.
///
/// # Errors
/// [`Stop::Fail`] when the request as a whole is refused before any operation; the other stops when
/// the host must do something first.
pub fn run(reader: Reader<'_>, scene: &Scene<'_>, sequencer: u64) -> Result<Finished, Stop> {
    for op in scene.request.ops.iter().filter(|op| op.code == OpCode::CALL) {
        call::called(op)?;
    }
    let mut run = Run::begin(reader, scene, sequencer)?;
    if !scene.writes && !run.before.exists && run.needs_object() {
        return Ok(run.finish(Errno::ENOENT.wire()));
    }
    let result = run.run_ops()?;
    Ok(run.finish(result))
}

/// Trims a clone of the request's object: `None` when there is nothing to trim.
///
/// # Errors
/// As of [`run`].
pub fn trim(
    reader: Reader<'_>,
    scene: &Scene<'_>,
    sequencer: u64,
    clone: SnapId,
) -> Result<Option<Change>, Stop> {
    let mut run = Run::begin(reader, scene, sequencer)?;
    Ok(if run.trim_clone(clone)? { Some(run.change_made()) } else { None })
}

impl<'a> Run<'a> {
    fn begin(reader: Reader<'a>, scene: &'a Scene<'a>, sequencer: u64) -> Result<Self, Stop> {
        let request = scene.request;
        let head = request.object.head();
        let head_key = scene.head_key.clone();
        let stored = reader.object(&head_key)?;
        let snapset = match &stored {
            Some(s) if s.meta.has_clones => reader.snapset(&head_key)?,
            _ => SnapSet::default(),
        };
        let visible = |s: &StoredObject| ObjectNow {
            exists: !s.meta.whiteout,
            size: s.size,
            meta: s.meta.clone(),
        };
        let now = stored.as_ref().map(visible).unwrap_or_default();
        let snapc = match &scene.snaps.own {
            Some(own) if !request.has_flag(wire::msg::flags::ENFORCE_SNAPC) => own.clone(),
            _ => without_removed(&request.snapc, scene.snaps),
        };
        let watches = stored.as_ref().map_or(0, |s| s.meta.watches.len());
        let effects = if watches > 0 { vec![WatchEffect::Load { watches }] } else { Vec::new() };
        let mut run = Run {
            scene,
            reader,
            source_key: head_key.clone(),
            head,
            head_key,
            stored,
            snapset,
            before: now.clone(),
            now,
            snapc,
            txn: Transaction::new(sequencer),
            cloned: None,
            trimmed: None,
            trimmed_snaps: Vec::new(),
            snapset_changed: false,
            modified: Ranges::default(),
            sums: ObjectSums::default(),
            changes: false,
            user_change: false,
            made_bytes: 0,
            is_copy: false,
            effects,
            summed_bytes: 0,
            results: request.ops.iter().map(ReplyOp::from).collect(),
        };
        // The writer has not heard of a snapshot that others have.
        let ordered = scene.writes && request.has_flag(wire::msg::flags::ORDERSNAP);
        if ordered && run.snapc.seq < run.now.meta.snap_seq {
            return Err(Errno::EOLDSNAPC.into());
        }
        run.resolve_snap()?;
        Ok(run)
    }

    /// Finds what a read at a snapshot reads.
    fn resolve_snap(&mut self) -> Result<(), Stop> {
        let snap = self.scene.request.object.snap;
        if snap == SnapId::HEAD || snap == SnapId::SNAPDIR {
            return Ok(());
        }
        let unknown = self.scene.snaps.is_unknown(snap);
        match self.snapset.find(snap, self.now.meta.snap_seq) {
            _ if unknown => self.before = ObjectNow::default(),
            SnapPlace::Head => {}
            SnapPlace::Nowhere => self.before = ObjectNow::default(),
            SnapPlace::Clone(id) => {
                let clone = self.head.at_snap(id);
                if !(self.scene.is_ready)(&clone) {
                    return Err(Stop::NotReady(clone));
                }
                self.source_key = clone.to_key();
                let stored = self.reader.object(&self.source_key)?;
                self.before = match stored {
                    Some(s) => ObjectNow { exists: true, size: s.size, meta: s.meta },
                    None => ObjectNow::default(),
                };
            }
        }
        Ok(())
    }

    /// LIST_SNAPS works on whiteouts too: their clones are there.
    fn needs_object(&self) -> bool {
        let lists = |op: &OsdOp| op.code == OpCode::LIST_SNAPS;
        !(self.stored.is_some() && self.scene.request.ops.iter().any(lists))
    }

    fn run_ops(&mut self) -> Result<i32, Stop> {
        let (mut result, mut answer_bytes, mut expands) = (0, 0usize, false);
        let mut lacking: Option<Miss> = None;
        for i in 0..self.scene.request.ops.len() {
            let op = &self.scene.request.ops[i];
            let ran = match self.run_op(i, op) {
                Ok(value) => value,
                Err(Stop::Fail(e)) => e.wire(),
                Err(Stop::Result(n)) => n,
                // Reads do not depend on each other: what all of them lack is fetched together.
                Err(Stop::Miss(miss)) if !self.scene.writes => {
                    answer_bytes = answer_bytes.saturating_add(miss.bytes());
                    match &mut lacking {
                        Some(lacking) => lacking.merge(miss),
                        None => lacking = Some(miss),
                    }
                    if answer_bytes > MAX_ANSWER_BYTES {
                        break;
                    }
                    continue;
                }
                Err(stop) => return Err(stop),
            };
            self.results[i].rval = ran;
            result = ran;
            let looked_at = std::mem::take(&mut self.summed_bytes);
            answer_bytes = answer_bytes.saturating_add(self.results[i].len().max(looked_at));
            if answer_bytes > MAX_ANSWER_BYTES {
                return Err(Stop::Refuse(Errno::E2BIG));
            }
            expands |= is_short_for_much(op.code);
            if expands && self.txn.data_bytes() > MAX_CHANGE_BYTES {
                return Err(Stop::Refuse(Errno::EMSGSIZE));
            }
            if ran < 0 && op.has_flag(op_flags::FAILOK) {
                result = 0;
            }
            if result < 0 {
                break;
            }
            self.user_change |= op.code.is_write() && !does_not_count(op.code);
        }
        lacking.map_or(Ok(result), |miss| Err(Stop::Miss(miss)))
    }

    fn run_op(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        match op.code {
            OpCode::READ | OpCode::SYNC_READ => self.op_read(i, op),
            OpCode::SPARSE_READ => self.op_sparse_read(i, op),
            OpCode::MAPEXT => self.op_mapext(i, op),
            OpCode::STAT => self.op_stat(i),
            OpCode::CHECKSUM => self.op_checksum(i, op),
            OpCode::CMPEXT => self.op_cmpext(op),
            OpCode::ASSERT_VER => self.op_assert_ver(op),
            OpCode::WRITE => self.op_write(op),
            OpCode::WRITEFULL => self.op_writefull(op),
            OpCode::APPEND => self.op_append(op),
            OpCode::WRITESAME => self.op_writesame(i, op),
            OpCode::ZERO => self.op_zero(i, op),
            OpCode::TRUNCATE => self.op_truncate(&extent_of(op)),
            // CephFS: the same, to the size that goes with the truncation's number.
            OpCode::TRIMTRUNC => {
                let e = extent_of(op);
                self.op_truncate(&Extent { offset: e.truncate_size, ..e })
            }
            OpCode::CREATE => self.op_create(op),
            OpCode::DELETE => self.op_delete(),
            OpCode::SETALLOCHINT => self.op_alloc_hint(op),
            OpCode::ROLLBACK => self.op_rollback(op),
            OpCode::STARTSYNC => self.op_startsync(),
            OpCode::LIST_SNAPS => self.op_list_snaps(i),
            OpCode::COPY_FROM | OpCode::COPY_FROM2 => self.op_copy_from(op),
            OpCode::GETXATTR => self.op_getxattr(i, op),
            OpCode::GETXATTRS => self.op_getxattrs(i),
            OpCode::CMPXATTR => self.op_cmpxattr(op),
            OpCode::SETXATTR => self.op_setxattr(op),
            OpCode::RMXATTR => self.op_rmxattr(op),
            OpCode::OMAPGETKEYS => self.op_omap_get_keys(i, op),
            OpCode::OMAPGETVALS => self.op_omap_get_vals(i, op),
            OpCode::OMAPGETHEADER => self.op_omap_get_header(i),
            OpCode::OMAPGETVALSBYKEYS => self.op_omap_get_by_keys(i, op),
            OpCode::OMAP_CMP => self.op_omap_cmp(op),
            OpCode::OMAPSETVALS => self.op_omap_set(op),
            OpCode::OMAPSETHEADER => self.op_omap_set_header(op),
            OpCode::OMAPCLEAR => self.op_omap_clear(),
            OpCode::OMAPRMKEYS => self.op_omap_rm_keys(op),
            OpCode::OMAPRMKEYRANGE => self.op_omap_rm_range(op),
            OpCode::WATCH => self.op_watch(op),
            OpCode::NOTIFY => self.op_notify(i, op),
            OpCode::NOTIFY_ACK => self.op_notify_ack(op),
            OpCode::LIST_WATCHERS => self.op_list_watchers(i),
            OpCode::CALL => self.op_call(i, op),
            code if code.is_cache() => Err(Errno::EINVAL.into()),
            OpCode::ISDIRTY | OpCode::UNDIRTY | OpCode::CACHE_PIN | OpCode::CACHE_UNPIN => {
                Err(Errno::EINVAL.into())
            }
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    /// The object as the operations so far have made it. What it holds, reads see as it was before.
    fn state(&self) -> &ObjectNow {
        if self.changes { &self.now } else { &self.before }
    }

    /// Whether what reads see is stored, though it may be a whiteout.
    fn is_stored(&self) -> bool {
        self.before.exists || (self.source_key == self.head_key && self.stored.is_some())
    }

    /// Bytes of the object that reads see.
    ///
    /// # Errors
    /// ENOENT when there was none before the request, though its operations may have made one.
    fn stored_bytes(&self) -> Result<u64, Errno> {
        if self.is_stored() { Ok(self.before.size) } else { Err(Errno::ENOENT) }
    }

    /// Sets the output of an operation.
    fn put(&mut self, i: usize, out: impl Into<Bytes>) {
        let out = out.into();
        self.results[i].outdata.clear();
        if !out.is_empty() {
            self.results[i].outdata.push(out);
        }
    }

    /// Called before every change of the head: makes the clone that a new snapshot needs.
    fn change(&mut self) {
        if !self.changes {
            self.changes = true;
            self.make_clone();
        }
    }

    /// Called before every change that needs the object to be there.
    fn change_existing(&mut self) {
        self.change();
        if !self.now.exists {
            self.now.exists = true;
            self.now.meta.whiteout = false;
            self.now.size = 0;
            let key = self.head_key.clone();
            self.txn.touch(&key);
        }
    }
}

/// Whether clients see the stored object.
fn stored_is_visible(stored: Option<&StoredObject>) -> bool {
    stored.is_some_and(|s| !s.meta.whiteout)
}

/// Operations that are no change in the eyes of the user.
fn does_not_count(code: OpCode) -> bool {
    matches!(code, OpCode::WATCH | OpCode::COPY_FROM | OpCode::COPY_FROM2)
}

fn without_removed(snapc: &SnapContext, pool: &PoolSnaps) -> SnapContext {
    let mut snapc = snapc.clone();
    if !pool.none_removed() {
        snapc.snaps.retain(|s| !pool.is_removed(*s));
    }
    snapc
}

//! The end of a run: results as the client sees them, and the change as the PG logs it.

use super::{Run, WatchEffect, stored_is_visible};
use crate::object::{ObjectMeta, SNAPSET_ATTR};
use crate::trim::put_rows;
use bytes::Bytes;
use pg::{EntryKind, LogEntry, ObjectSums};
use store::{ObjectIx, Op, Transaction};
use types::testing::{Bug, planted};
use types::{Eversion, HObject, ObjectKey, ReqId, SnapId, UTime};
use wire::msg::{ReplyOps, flags};

/// Longest output of an operation of a write that is answered (`osd_max_write_op_reply_len`).
pub const MAX_WRITE_OUTPUT_BYTES: usize = 32;

/// What a run came to.
#[derive(Debug)]
pub struct Finished {
    /// 0 or more, or a negative error number.
    pub result: i32,
    /// The operations with their results.
    pub ops: ReplyOps,
    /// User version of the object that was read.
    pub user_version: u64,
    /// What to do for watchers.
    pub effects: Vec<WatchEffect>,
    /// What changes; `None` when nothing does.
    pub change: Option<Box<Change>>,
}

/// A change of one object, before it has a version.
#[derive(Debug)]
pub struct Change {
    head: HObject,
    head_key: ObjectKey,
    /// The changes of the objects, without the versions.
    txn: Transaction,
    /// The head's record, unless the head is gone altogether.
    meta: Option<ObjectMeta>,
    clone: Option<(SnapId, CloneChange)>,
    trimmed_snaps: Vec<SnapId>,
    snapset: Option<Bytes>,
    prior_version: Eversion,
    user_change: bool,
    sums: ObjectSums,
}

impl Run<'_> {
    pub(super) fn finish(mut self, result: i32) -> Finished {
        let user_version = self.before.meta.user_version;
        if result < 0 || !self.changes {
            let effects = if result < 0 { Vec::new() } else { std::mem::take(&mut self.effects) };
            return Finished { result, ops: self.results, user_version, effects, change: None };
        }
        let result = self.write_results(result);
        if result < 0 {
            let (ops, effects) = (self.results, Vec::new());
            return Finished { result, ops, user_version, effects, change: None };
        }
        let effects = std::mem::take(&mut self.effects);
        let ops = std::mem::take(&mut self.results);
        Finished { result, ops, user_version, effects, change: Some(Box::new(self.change_made())) }
    }

    /// A write answers no data, unless the client asked for it (RETURNVEC) and it is short. What each
    /// operation came to is answered always.
    fn write_results(&mut self, result: i32) -> i32 {
        if !self.scene.request.has_flag(flags::RETURNVEC) {
            self.results.iter_mut().for_each(|op| op.outdata.clear());
            return 0;
        }
        let mut result = result;
        for op in self.results.iter_mut().filter(|op| op.len() > MAX_WRITE_OUTPUT_BYTES) {
            op.outdata.clear();
            op.rval = types::Errno::EOVERFLOW.wire();
            result = op.rval;
        }
        result
    }

    pub(super) fn change_made(mut self) -> Change {
        self.settle_overlap();
        let clone = match self.trimmed.take() {
            Some(trimmed) => Some(trimmed),
            None => self.cloned.map(|id| (id, CloneChange::Made(self.clone_meta(id)))),
        };
        self.count();
        self.txn.compress = self.scene.compression.for_hints(self.now.meta.hint.flags);
        let whiteout = self.now.meta.whiteout && !self.now.exists;
        let keeps_head = self.now.exists || whiteout;
        let has_clones = !self.snapset.clones.is_empty();
        self.now.meta.has_clones = has_clones;
        // Trimming is no change of the object itself.
        let is_written = clone.as_ref().is_none_or(|(_, c)| matches!(c, CloneChange::Made(_)));
        if is_written && !self.is_copy {
            let time = self.scene.request.mtime;
            // A watch that ends is no change that users made.
            if !time.is_zero() {
                self.now.meta.mtime = time;
            } else if self.user_change {
                self.now.meta.mtime = self.scene.now;
            }
        }
        let write_snapset = keeps_head && has_clones && self.snapset_changed;
        Change {
            snapset: write_snapset.then(|| denc::encode(&self.snapset)),
            head: self.head,
            head_key: self.head_key,
            txn: self.txn,
            meta: keeps_head.then_some(self.now.meta),
            clone,
            trimmed_snaps: self.trimmed_snaps,
            prior_version: self.stored.map(|s| s.meta.version).unwrap_or_default(),
            user_change: self.user_change,
            sums: self.sums,
        }
    }

    /// What the head adds to the PG's sums.
    fn count(&mut self) {
        let before = self.stored.as_ref();
        let (was, was_whiteout) =
            (stored_is_visible(before), before.is_some_and(|s| s.meta.whiteout));
        let old_size = if was { before.map_or(0, |s| s.size) } else { 0 };
        let size = if self.now.exists { self.now.size } else { 0 };
        self.sums.bytes += size as i64 - old_size as i64;
        self.sums.objects += i64::from(self.now.exists) - i64::from(was);
        let whiteout = self.now.meta.whiteout && !self.now.exists;
        self.sums.whiteouts += i64::from(whiteout) - i64::from(was_whiteout);
    }
}

/// A change with its versions: ready for the log, the store and the replicas.
#[derive(Debug)]
pub struct Versioned {
    /// Log entries, the head's last.
    pub entries: Vec<LogEntry>,
    /// The changes of the objects.
    pub txn: Transaction,
    /// User version of the head from now on.
    pub user_version: u64,
    /// What it adds to the PG's sums.
    pub sums: ObjectSums,
}

/// What happens to a clone.
#[derive(Debug)]
pub enum CloneChange {
    /// It is new.
    Made(ObjectMeta),
    /// It serves fewer snapshots.
    Trimmed(ObjectMeta),
    /// It is gone; the version it had.
    Removed(Eversion),
}

impl CloneChange {
    fn prior_version(&self) -> Eversion {
        match self {
            CloneChange::Made(_) => Eversion::ZERO,
            CloneChange::Trimmed(meta) => meta.version,
            CloneChange::Removed(version) => *version,
        }
    }
}

impl Change {
    /// Removes rows of the snapshot index with it. It frees space, so that it may use the reserve.
    pub fn drop_rows(&mut self, index: &ObjectKey, rows: Vec<Bytes>) {
        self.txn.omap_remove(index, rows);
        self.txn.may_use_reserve = true;
    }

    /// The changes of the objects, as far as they do not depend on the version.
    pub fn txn(&self) -> &Transaction {
        &self.txn
    }

    /// Whether what is told of the object's clones is written anew.
    pub fn tells_of_clones(&self) -> bool {
        self.snapset.is_some()
    }

    /// Whether there is more data, or one more object, than before.
    pub fn grows(&self) -> bool {
        self.sums.bytes > 0 || self.sums.objects > 0
    }

    /// Snapshots that a trimmed clone served and serves no more.
    pub fn trimmed_snaps(&self) -> &[SnapId] {
        &self.trimmed_snaps
    }

    /// Gives it its versions, from `first` on.
    pub fn at(mut self, first: Eversion, reqid: ReqId) -> Versioned {
        let mut entries = Vec::with_capacity(2);
        let mut version = first;
        if let Some((id, change)) = self.clone.take() {
            entries.push(self.put_clone(id, change, version));
            version.version += 1;
        }
        let (user_version, mtime) = self.put_head_meta(version);
        let kind = if self.meta.is_some() { EntryKind::Modify } else { EntryKind::Delete };
        let is_new = self.prior_version == Eversion::ZERO;
        let changed = if is_new { None } else { changed_by(&self.txn, &self.head_key) };
        entries.push(LogEntry {
            kind,
            object: self.head,
            version,
            prior_version: self.prior_version,
            reqid,
            user_version,
            mtime,
            result: 0,
            op_returns: Vec::new(),
            changed,
            lost_after: None,
        });
        Versioned { entries, txn: self.txn, user_version, sums: self.sums }
    }

    fn put_clone(&mut self, id: SnapId, change: CloneChange, version: Eversion) -> LogEntry {
        let object = self.head.at_snap(id);
        let key = object.to_key();
        let prior_version = change.prior_version();
        let (kind, meta) = match change {
            CloneChange::Made(meta) => {
                put_rows(&mut self.txn, &object, &key, &meta.snaps);
                (EntryKind::Clone, Some(meta))
            }
            CloneChange::Trimmed(meta) => (EntryKind::Modify, Some(meta)),
            CloneChange::Removed(_) => (EntryKind::Delete, None),
        };
        // What a clone holds never changes.
        let changed = matches!(kind, EntryKind::Modify).then_some((0, 0));
        let (user_version, mtime) =
            meta.as_ref().map_or((0, UTime::ZERO), |m| (m.user_version, m.mtime));
        if let Some(meta) = meta {
            self.txn.set_meta(&key, denc::encode(&ObjectMeta { version, ..meta }));
        }
        LogEntry {
            kind,
            object,
            version,
            prior_version,
            reqid: ReqId::default(),
            user_version,
            mtime,
            result: 0,
            op_returns: Vec::new(),
            changed,
            lost_after: None,
        }
    }

    fn put_head_meta(&mut self, version: Eversion) -> (u64, UTime) {
        let Some(meta) = &mut self.meta else { return (version.version, UTime::ZERO) };
        meta.version = version;
        if self.user_change {
            meta.user_version = version.version.max(meta.user_version + 1);
        }
        self.txn.set_meta(&self.head_key, denc::encode_briefly(meta));
        if let Some(snapset) = self.snapset.take() {
            self.txn.set_attr(&self.head_key, Bytes::from_static(SNAPSET_ATTR), snapset);
        }
        (meta.user_version, meta.mtime)
    }
}

/// Offset and length of what a transaction puts of an object, if it does no more to it, and that is one piece.
fn changed_by(txn: &Transaction, key: &ObjectKey) -> Option<(u32, u32)> {
    let at = txn.objects().iter().position(|o| o == key)?;
    let is_it = |ix: &ObjectIx| ix.0 as usize == at;
    let mut changed = (0u64, 0u64);
    for op in txn.ops() {
        match op {
            Op::Write { object, offset, data, .. } if is_it(object) => match changed {
                (_, 0) => changed = (*offset, data.len() as u64),
                (from, len) if from + len == *offset => changed = (from, len + data.len() as u64),
                _ => return None,
            },
            Op::SetAttr { .. } | Op::SetMeta { .. } | Op::Touch(_) => {}
            Op::Clone { to, .. } if !is_it(to) => {}
            other if !other.objects().iter().flatten().any(is_it) => {}
            _ => return None,
        }
    }
    if planted(Bug::ChangeForgotten) {
        changed = (0, 0);
    }
    Some((changed.0.try_into().ok()?, changed.1.try_into().ok()?))
}

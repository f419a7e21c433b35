//! Snapshots of one object: clones before writes, whiteouts, rollback, listing.
//!
//! Source: Ceph `PrimaryLogPG.cc: make_writeable, _delete_oid, _rollback_to, do_osd_ops
//! (LIST_SNAPS)`; guide §5.7.

use super::finish::CloneChange;
use super::{Run, Stop};
use crate::object::{CloneState, ObjectMeta, Ranges, SNAPSET_ATTR, SnapPlace};
use bytes::Bytes;
use types::testing::{Bug, Probe, hit, planted};
use types::{Errno, SnapId};
use wire::msg::OsdOp;
use wire::msg::op_data::{CloneInfo, ListSnapsOut};

impl Run<'_> {
    /// Before the first change: keeps the head as a clone when a snapshot was taken since.
    pub(super) fn make_clone(&mut self) {
        let seq = self.now.meta.snap_seq;
        let newest = self.snapc.snaps.first().copied();
        let taken = newest.is_some_and(|snap| snap > seq);
        if self.now.exists && taken && !planted(Bug::CloneSkipped) {
            hit(Probe::CloneMade);
            let snaps: Vec<_> = self.snapc.snaps.iter().copied().filter(|s| *s > seq).collect();
            let id = self.snapc.seq;
            let clone = self.head.at_snap(id).to_key();
            let head = self.head_key.clone();
            self.txn.clone_object(&head, &clone);
            self.txn.rm_attr(&clone, Bytes::from_static(SNAPSET_ATTR));
            let size = self.now.size;
            let state = CloneState { snaps, size, overlap: Ranges::whole(size) };
            self.snapset.clones.insert(id, state);
            self.cloned = Some(id);
            self.snapset_changed = true;
            self.sums.clones += 1;
            self.sums.objects += 1;
        }
        self.now.meta.snap_seq = seq.max(self.snapc.seq);
    }

    /// The record of the clone made by this request; its version comes later.
    pub(super) fn clone_meta(&self, id: SnapId) -> ObjectMeta {
        let stored = self.stored.as_ref().map(|s| s.meta.clone()).unwrap_or_default();
        let snaps = self.snapset.clones.get(&id).map(|c| c.snaps.clone()).unwrap_or_default();
        ObjectMeta { snaps, has_clones: false, watches: Vec::new(), ..stored }
    }

    /// Removes the head, or makes it a whiteout when clones need it.
    pub(super) fn remove_head(&mut self) {
        let key = self.head_key.clone();
        self.txn.remove(&key);
        self.modified.insert(0, self.now.size);
        self.now.exists = false;
        self.now.size = 0;
        self.disconnect_watches();
        if !self.snapset.clones.is_empty() {
            hit(Probe::Whiteout);
            self.txn.touch(&key);
            self.now.meta.whiteout = true;
            self.snapset_changed = true;
        }
    }

    pub(super) fn op_rollback(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let snap = SnapId(op.args.snap().snapid);
        // As it was before the request: a clone that this one makes is not there yet.
        let place = match self.snapset.find(snap, self.before.meta.snap_seq) {
            _ if self.scene.snaps.is_unknown(snap) => SnapPlace::Nowhere,
            SnapPlace::Head if !self.before.exists => SnapPlace::Nowhere,
            place => place,
        };
        match place {
            // The object did not exist then.
            SnapPlace::Nowhere => {
                if !self.before.meta.watches.is_empty() {
                    return Err(Errno::EBUSY.into());
                }
                if self.now.exists {
                    self.change();
                    self.remove_head();
                }
                Ok(0)
            }
            SnapPlace::Head => {
                self.change();
                Ok(0)
            }
            SnapPlace::Clone(id) => self.roll_back_to(id),
        }
    }

    fn roll_back_to(&mut self, id: SnapId) -> Result<i32, Stop> {
        let clone = self.head.at_snap(id);
        if !(self.scene.is_ready)(&clone) {
            return Err(Stop::NotReady(clone));
        }
        let clone_key = clone.to_key();
        let stored = self.reader.object(&clone_key)?.ok_or(Errno::EIO)?;
        self.change();
        hit(Probe::RolledBack);
        if planted(Bug::RollbackLost) && self.now.exists {
            return Ok(0);
        }
        let key = self.head_key.clone();
        self.txn.clone_object(&clone_key, &key);
        self.snapset_changed |= !self.snapset.clones.is_empty();
        // What the clone shares with every version since is not changed by this.
        let mut shared: Option<Ranges> = None;
        for (_, newer) in self.snapset.clones.range(id..) {
            shared = Some(match shared {
                None => newer.overlap.clone(),
                Some(s) => s.intersection(&newer.overlap),
            });
        }
        let mut changed = Ranges::whole(self.now.size.max(stored.size));
        for (offset, len) in shared.unwrap_or_default().iter() {
            changed.remove(offset, len);
        }
        changed.iter().for_each(|(offset, len)| self.modified.insert(offset, len));
        self.now.exists = true;
        self.now.size = stored.size;
        self.now.meta.whiteout = false;
        self.now.meta.truncate_seq = stored.meta.truncate_seq;
        self.now.meta.truncate_size = stored.meta.truncate_size;
        Ok(0)
    }

    /// At the end of a changed head: cuts the newest clone's overlap by what changed, and counts.
    pub(super) fn settle_overlap(&mut self) {
        let Some((_, newest)) = self.snapset.newest_mut() else { return };
        let before = newest.overlap.bytes();
        let mut overlap = newest.overlap.clone();
        for (offset, len) in self.modified.iter().filter(|_| !planted(Bug::OverlapTooWide)) {
            overlap.remove(offset, len);
        }
        let after = overlap.bytes();
        if after != before {
            newest.overlap = overlap;
            self.snapset_changed = true;
            // What the clone no longer shares is its own.
            self.sums.bytes += before as i64 - after as i64;
        }
    }

    /// Takes removed snapshots off a clone; a clone that serves none is removed. False when there is
    /// nothing to do.
    pub(super) fn trim_clone(&mut self, id: SnapId) -> Result<bool, Stop> {
        let Some(state) = self.snapset.clones.get(&id) else { return Ok(false) };
        let (gone, left): (Vec<_>, Vec<_>) =
            state.snaps.iter().partition(|snap| self.scene.snaps.is_removed(**snap));
        if gone.is_empty() {
            return Ok(false);
        }
        let key = self.head.at_snap(id).to_key();
        let meta = self.reader.object(&key)?.ok_or(Errno::EIO)?.meta;
        hit(Probe::CloneTrimmed);
        self.trimmed_snaps = gone;
        self.snapset_changed = true;
        if left.is_empty() {
            self.txn.remove(&key);
            self.forget_clone(id);
            self.trimmed = Some((id, CloneChange::Removed(meta.version)));
        } else {
            if let Some(state) = self.snapset.clones.get_mut(&id) {
                state.snaps.clone_from(&left);
            }
            self.trimmed = Some((id, CloneChange::Trimmed(ObjectMeta { snaps: left, ..meta })));
        }
        if self.snapset.clones.is_empty() {
            self.txn.rm_attr(&self.head_key.clone(), Bytes::from_static(SNAPSET_ATTR));
            if !self.now.exists {
                self.txn.remove(&self.head_key.clone());
                self.now.meta.whiteout = false;
            }
        }
        Ok(true)
    }

    /// Takes a clone out of the set. The next older one now shares with the next newer version what
    /// both shared with it.
    fn forget_clone(&mut self, id: SnapId) {
        let Some(removed) = self.snapset.clones.remove(&id) else { return };
        self.sums.clones -= 1;
        self.sums.objects -= 1;
        self.sums.bytes -= removed.size.saturating_sub(removed.overlap.bytes()) as i64;
        if let Some((_, older)) = self.snapset.clones.range_mut(..id).next_back() {
            let before = older.overlap.bytes();
            older.overlap = older.overlap.intersection(&removed.overlap);
            self.sums.bytes += before as i64 - older.overlap.bytes() as i64;
        }
    }

    pub(super) fn op_list_snaps(&mut self, i: usize) -> Result<i32, Stop> {
        let info = |(id, c): (&SnapId, &CloneState)| {
            let mut snaps = c.snaps.clone();
            snaps.reverse();
            CloneInfo { cloneid: *id, snaps, overlap: c.overlap.iter().collect(), size: c.size }
        };
        let mut clones: Vec<_> = self.snapset.clones.iter().map(info).collect();
        if self.now.exists {
            clones.push(CloneInfo {
                cloneid: SnapId::HEAD,
                snaps: Vec::new(),
                overlap: Vec::new(),
                size: self.now.size,
            });
        }
        let out = ListSnapsOut { clones, seq: self.now.meta.snap_seq };
        self.put(i, denc::encode(&out));
        Ok(0)
    }
}

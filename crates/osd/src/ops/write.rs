//! Operations that change data.

use super::check::{MAX_MADE_BYTES, MAX_OBJECT_BYTES, check_range, extent_of};
use super::{Run, Stop};
use crate::object::AllocHint;
use bytes::Bytes;
use denc::KnownCrc;
use types::Errno;
use wire::msg::op::{Extent, op_flags};
use wire::msg::{OpCode, OsdOp};

impl Run<'_> {
    /// CephFS: applies a truncation that the client knows of and the object does not (to make it longer,
    /// too, if it is not new), and cuts a write that does not know of the newest one. Returns the bytes
    /// that are to be written.
    fn heed_truncation(&mut self, e: &Extent, is_new: bool) -> u64 {
        let known = self.now.meta.truncate_seq;
        if e.truncate_seq > known {
            let size = e.truncate_size.min(MAX_OBJECT_BYTES);
            if !is_new && size != self.now.size {
                self.truncate_to(size);
            }
            self.now.meta.truncate_seq = e.truncate_seq;
            self.now.meta.truncate_size = e.truncate_size;
            return e.length;
        }
        let end = e.offset.saturating_add(e.length);
        if e.truncate_seq < known && end > self.now.size {
            // An old write after a trim, or one that knows of none: what is beyond the end stays away.
            return self.now.size.saturating_sub(e.offset);
        }
        e.length
    }

    fn truncate_to(&mut self, size: u64) {
        let key = self.head_key.clone();
        self.txn.truncate(&key, size);
        let old = self.now.size;
        self.modified.insert(size.min(old), size.abs_diff(old));
        self.now.size = size;
    }

    fn write_at(&mut self, offset: u64, data: Bytes, crc: KnownCrc) {
        let len = data.len() as u64;
        if len == 0 {
            return;
        }
        let key = self.head_key.clone();
        self.txn.write_summed(&key, offset, (data, crc));
        self.modified.insert(offset, len);
        self.now.size = self.now.size.max(offset + len);
    }

    pub(super) fn op_write(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let e = extent_of(op);
        if e.length != op.indata.len() as u64 {
            return Err(Errno::EINVAL.into());
        }
        check_range(e.offset, e.length)?;
        self.write_heeding(&e, &op.indata, op.indata_crc);
        Ok(0)
    }

    fn write_heeding(&mut self, e: &Extent, data: &Bytes, crc: KnownCrc) {
        let is_new = !self.now.exists;
        self.change_existing();
        let len = self.heed_truncation(e, is_new) as usize;
        if len > 0 {
            self.write_at(e.offset, data.slice(..len), crc.of_part(len, data.len()));
        } else if e.offset > self.now.size {
            // Nothing to write, or nothing left of it, extends the object all the same.
            self.truncate_to(e.offset);
        }
    }

    pub(super) fn op_writefull(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let e = extent_of(op);
        if e.length != op.indata.len() as u64 {
            return Err(Errno::EINVAL.into());
        }
        check_range(0, e.length)?;
        self.change_existing();
        let old = self.now.size;
        if old > e.length {
            self.truncate_to(e.length);
        }
        self.write_at(0, op.indata.clone(), op.indata_crc);
        self.modified.insert(0, old.max(e.length));
        Ok(0)
    }

    pub(super) fn op_append(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let e = extent_of(op);
        if e.length != op.indata.len() as u64 {
            return Err(Errno::EINVAL.into());
        }
        let offset = if self.now.exists { self.now.size } else { 0 };
        check_range(offset, e.length)?;
        self.change_existing();
        self.write_at(offset, op.indata.clone(), op.indata_crc);
        Ok(0)
    }

    /// Whether there is room for what WRITESAME repeats. All of the request is asked for at once.
    fn make_repeated(&mut self, i: usize, bytes: usize) -> Result<(), Stop> {
        let made = self.made_bytes.saturating_add(bytes);
        if made <= self.scene.room_bytes {
            self.made_bytes = made;
            return Ok(());
        }
        let repeats = |op: &&OsdOp| op.code == OpCode::WRITESAME;
        let rest = self.scene.request.ops.iter().skip(i).filter(repeats);
        let length = |op: &OsdOp| usize::try_from(op.args.writesame().length).unwrap_or(usize::MAX);
        let need = rest.map(length).fold(self.made_bytes, usize::saturating_add);
        if need > MAX_MADE_BYTES { Err(Errno::EFBIG.into()) } else { Err(Stop::Room(need)) }
    }

    pub(super) fn op_writesame(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let w = op.args.writesame();
        if w.length == 0 {
            return Ok(0);
        }
        let pattern = op.indata.len() as u64;
        if pattern == 0 || w.data_length != pattern || !w.length.is_multiple_of(pattern) {
            return Err(Errno::EINVAL.into());
        }
        check_range(w.offset, w.length)?;
        let times = usize::try_from(w.length / pattern).map_err(|_| Errno::EINVAL)?;
        let bytes = usize::try_from(w.length).map_err(|_| Errno::EINVAL)?;
        self.make_repeated(i, bytes)?;
        let e = Extent { offset: w.offset, length: w.length, ..Extent::default() };
        self.write_heeding(&e, &op.indata.repeat(times).into(), KnownCrc::NONE);
        Ok(0)
    }

    /// Never extends the object. Zeroing to the end is a truncation, and the answer shows it as one
    /// (`PrimaryLogPG.cc: do_osd_ops`, "munging ZERO").
    pub(super) fn op_zero(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let e = extent_of(op);
        let end = e.offset.saturating_add(e.length);
        let fits = e.offset < MAX_OBJECT_BYTES && e.length <= MAX_OBJECT_BYTES;
        if self.now.exists && fits && e.length > 0 && end >= self.now.size {
            if e.offset >= self.now.size {
                return Ok(0);
            }
            self.results[i].code = OpCode::TRUNCATE;
            return self.op_truncate(&e);
        }
        check_range(e.offset, e.length)?;
        if !self.now.exists || e.length == 0 {
            return Ok(0);
        }
        self.change_existing();
        let key = self.head_key.clone();
        self.txn.zero(&key, e.offset, e.length);
        self.modified.insert(e.offset, e.length);
        Ok(0)
    }

    pub(super) fn op_truncate(&mut self, e: &Extent) -> Result<i32, Stop> {
        if !self.now.exists {
            return Ok(0);
        }
        check_range(e.offset, e.length)?;
        if e.truncate_seq != 0 {
            if e.truncate_seq <= self.now.meta.truncate_seq {
                // An old truncation, done already.
                return Ok(0);
            }
            self.now.meta.truncate_seq = e.truncate_seq;
            self.now.meta.truncate_size = e.truncate_size;
        }
        self.change_existing();
        if e.offset != self.now.size {
            self.truncate_to(e.offset);
        }
        Ok(0)
    }

    pub(super) fn op_create(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        if self.now.exists && op.has_flag(op_flags::EXCL) {
            return Err(Errno::EEXIST.into());
        }
        self.change_existing();
        Ok(0)
    }

    /// A write that changes nothing, but counts as one.
    pub(super) fn op_startsync(&mut self) -> Result<i32, Stop> {
        if self.now.exists {
            self.change();
        }
        Ok(0)
    }

    pub(super) fn op_delete(&mut self) -> Result<i32, Stop> {
        if !self.now.exists {
            return Err(Errno::ENOENT.into());
        }
        self.change();
        self.remove_head();
        Ok(0)
    }

    pub(super) fn op_alloc_hint(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let hint = op.args.alloc_hint();
        self.change_existing();
        self.now.meta.hint = AllocHint {
            object_size: hint.expected_object_size,
            write_size: hint.expected_write_size,
            flags: hint.flags,
        };
        Ok(0)
    }
}

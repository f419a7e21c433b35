//! Operations that read data.

use super::{Run, Stop};
use bytes::Bytes;
use types::Errno;
use wire::msg::OsdOp;
use wire::msg::op::{Extent, checksum_kind, op_flags};
use wire::msg::op_data::{Extents, SparseReadOut, StatOut, checksum_in, checksum_out};

/// Flags of a client that will not read the same again (`BlueStore::_do_read`).
const READ_ONCE: [u32; 2] = [op_flags::FADVISE_DONTNEED, op_flags::FADVISE_NOCACHE];
/// The largest error number; a mismatch at byte `i` is answered as minus this minus `i`.
const MAX_ERRNO: i64 = 4095;

impl Run<'_> {
    /// The object's size for a reader that knows of a newer truncation (CephFS).
    fn size_for(&self, e: &Extent) -> u64 {
        let size = self.before.size;
        let newer = e.truncate_seq > self.before.meta.truncate_seq;
        let beyond = e.offset.saturating_add(e.length) > e.truncate_size;
        if newer && beyond { size.min(e.truncate_size) } else { size }
    }

    pub(super) fn op_read(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let e = op.args.extent();
        let size = self.size_for(&e);
        let wanted = if e.length == 0 { size } else { e.length };
        let len = wanted.min(size.saturating_sub(e.offset));
        let out = &mut self.results[i];
        out.args = Extent { length: len, ..e }.into();
        if len > 0 {
            let read = self.reader.read_summed(&self.source_key, e.offset, len);
            let read = if READ_ONCE.iter().any(|f| op.has_flag(*f)) {
                read.map_err(Stop::not_kept)
            } else {
                read
            };
            (out.outdata, out.outdata_crc) = read?;
        }
        Ok(0)
    }

    /// Ranges that are stored, of those asked for.
    fn extents(&self, e: &Extent) -> Result<Vec<(u64, u64)>, Stop> {
        let len = e.length.min(self.before.size.saturating_sub(e.offset));
        if len == 0 {
            return Ok(Vec::new());
        }
        Ok(self.reader.store.extents(&self.source_key, e.offset, len)?)
    }

    pub(super) fn op_sparse_read(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let e = op.args.extent();
        if e.truncate_seq != 0 {
            return Err(Errno::EINVAL.into());
        }
        let extents = self.extents(&e)?;
        let mut data: Vec<Bytes> = Vec::new();
        for (offset, len) in &extents {
            data.extend(self.reader.read(&self.source_key, *offset, *len)?);
        }
        let total: u64 = extents.iter().map(|(_, len)| len).sum();
        let map = Extents { map: extents.into_iter().collect() };
        let out = &mut self.results[i];
        out.args = Extent { length: total, ..e }.into();
        out.outdata = SparseReadOut::pieces(&map, data);
        Ok(0)
    }

    pub(super) fn op_mapext(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let e = op.args.extent();
        let map = self.extents(&e)?.into_iter().collect();
        self.put(i, denc::encode(&Extents { map }));
        Ok(0)
    }

    /// Follows the operations before it, as Ceph's does.
    pub(super) fn op_stat(&mut self, i: usize) -> Result<i32, Stop> {
        let state = if self.changes { &self.now } else { &self.before };
        if !state.exists {
            return Err(Errno::ENOENT.into());
        }
        let out = StatOut { size: state.size, mtime: state.meta.mtime };
        self.put(i, denc::encode(&out));
        Ok(0)
    }

    pub(super) fn op_checksum(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let args = op.args.checksum();
        let init = checksum_in(op)?;
        let size = self.before.size;
        let (offset, mut len) = (args.offset, args.length);
        // Zero means to the end, as with reads (`finish_checksum`, `do_checksum`).
        if len == 0 && offset < size {
            len = size - offset;
        }
        let len = len.min(size.saturating_sub(offset));
        let chunk = if args.chunk_size == 0 { len } else { u64::from(args.chunk_size) };
        if args.kind > checksum_kind::CRC32C || (len > 0 && !len.is_multiple_of(chunk)) {
            return Err(Errno::EINVAL.into());
        }
        let data = if len == 0 {
            Bytes::new()
        } else {
            self.reader.read_whole(&self.source_key, offset, len)?
        };
        let chunk = usize::try_from(chunk.max(1)).map_err(|_| Errno::EINVAL)?;
        let values: Vec<u64> = data.chunks(chunk).map(|c| checksum(args.kind, init, c)).collect();
        self.put(i, checksum_out(args.kind, &values));
        Ok(0)
    }

    /// Bytes beyond the end compare as zeros.
    pub(super) fn op_cmpext(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let e = op.args.extent();
        if e.length != op.indata.len() as u64 {
            return Err(Errno::EINVAL.into());
        }
        super::check::check_range(e.offset, e.length)?;
        let stored = if self.before.exists && e.length > 0 {
            let len = e.length.min(self.before.size.saturating_sub(e.offset));
            if len == 0 {
                Bytes::new()
            } else {
                self.reader.read_whole(&self.source_key, e.offset, len)?
            }
        } else {
            Bytes::new()
        };
        let ours = stored.iter().copied().chain(std::iter::repeat(0));
        match op.indata.iter().zip(ours).position(|(given, have)| *given != have) {
            None => Ok(0),
            Some(at) => {
                let code = -MAX_ERRNO - at as i64;
                Err(Stop::Result(i32::try_from(code).unwrap_or(i32::MIN)))
            }
        }
    }

    pub(super) fn op_assert_ver(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let version = op.args.assert_ver().version;
        let have = self.before.meta.user_version;
        match version {
            0 => Err(Errno::EINVAL.into()),
            v if v < have => Err(Errno::ERANGE.into()),
            v if v > have => Err(Errno::EOVERFLOW.into()),
            _ => Ok(0),
        }
    }
}

fn checksum(kind: u8, init: u64, data: &[u8]) -> u64 {
    match kind {
        checksum_kind::XXHASH32 => u64::from(xxhash_rust::xxh32::xxh32(data, init as u32)),
        checksum_kind::XXHASH64 => xxhash_rust::xxh64::xxh64(data, init),
        _ => u64::from(denc::crc32c(init as u32, data)),
    }
}

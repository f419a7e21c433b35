//! Operations that read data.

use super::check::extent_of;
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
/// Sums that one CHECKSUM answers.
const MAX_SUMS: u64 = 1 << 20;

impl Run<'_> {
    /// The object's size for a reader that knows of a newer truncation (CephFS).
    fn size_for(&self, e: &Extent) -> u64 {
        let size = self.state().size;
        let newer = e.truncate_seq > self.before.meta.truncate_seq;
        let beyond = e.offset.saturating_add(e.length) > e.truncate_size;
        if newer && beyond { size.min(e.truncate_size) } else { size }
    }

    pub(super) fn op_read(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let e = extent_of(op);
        let size = self.size_for(&e);
        let wanted = if e.length == 0 { size } else { e.length };
        let len = wanted.min(size.saturating_sub(e.offset));
        let len = self.stored_part(e.offset, len)?;
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

    /// How many of these bytes there are for a reader, up to the end of what was stored before the request.
    ///
    /// # Errors
    /// See [`Run::stored_bytes`]; not when none are asked for.
    fn stored_part(&self, offset: u64, len: u64) -> Result<u64, Errno> {
        if len == 0 { Ok(0) } else { Ok(len.min(self.stored_bytes()?.saturating_sub(offset))) }
    }

    /// Ranges that are stored, of those asked for.
    fn extents(&self, e: &Extent) -> Result<Vec<(u64, u64)>, Stop> {
        let len = e.length.min(self.stored_bytes()?.saturating_sub(e.offset));
        if len == 0 {
            return Ok(Vec::new());
        }
        Ok(self.reader.store.extents(&self.source_key, e.offset, len)?)
    }

    pub(super) fn op_sparse_read(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let e = extent_of(op);
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
        let e = extent_of(op);
        let map = self.extents(&e)?.into_iter().collect();
        self.put(i, denc::encode(&Extents { map }));
        Ok(0)
    }

    /// Follows the operations before it, as Ceph's does.
    pub(super) fn op_stat(&mut self, i: usize) -> Result<i32, Stop> {
        let state = self.state();
        if !state.exists {
            return Err(Errno::ENOENT.into());
        }
        let out = StatOut { size: state.size, mtime: state.meta.mtime };
        self.put(i, denc::encode(&out));
        Ok(0)
    }

    /// `PrimaryLogPG::do_checksum`, `finish_checksum`.
    pub(super) fn op_checksum(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let args = op.args.checksum();
        let chunk = u64::from(args.chunk_size);
        let fits = |len: u64| chunk == 0 || len.is_multiple_of(chunk);
        if !fits(args.length) || (chunk > 0 && args.length == 0) {
            return Err(Errno::EINVAL.into());
        }
        let (size, offset) = (self.state().size, args.offset);
        let len = match args.length {
            0 if offset == 0 => size,
            // Nothing is there: no output, not even a count of none.
            _ if offset >= size => return Ok(0),
            asked => asked.min(size - offset),
        };
        if !fits(len) || args.kind > checksum_kind::CRC32C {
            return Err(Errno::EINVAL.into());
        }
        if len.checked_div(chunk).is_some_and(|sums| sums > MAX_SUMS) {
            return Err(Errno::E2BIG.into());
        }
        let init = checksum_in(op)?;
        let len = self.stored_part(offset, len)?;
        let data = if len == 0 {
            Bytes::new()
        } else {
            self.reader.read_whole(&self.source_key, offset, len)?
        };
        self.summed_bytes = data.len();
        let chunk = if chunk == 0 { data.len().max(1) } else { args.chunk_size as usize };
        let values: Vec<u64> = data.chunks(chunk).map(|c| checksum(args.kind, init, c)).collect();
        self.put(i, checksum_out(args.kind, &values));
        Ok(0)
    }

    /// All that is given is compared, also when the arguments speak of more or less; bytes beyond the
    /// end, or beyond what is spoken of, compare as zeros (`PrimaryLogPG::do_extent_cmp`).
    pub(super) fn op_cmpext(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let e = extent_of(op);
        let given = op.indata.len() as u64;
        let asked = e.length.min(self.size_for(&e).saturating_sub(e.offset));
        let len = self.stored_part(e.offset, asked)?.min(given);
        let stored = if len > 0 {
            self.reader.read_whole(&self.source_key, e.offset, len)?
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

//! Disks. Writes that nobody waits for are in a ring of their own, in which nobody ever waits: so their
//! ends wake nobody, and many of them are looked at together.

use super::{RunError, Runner, Way};
use crate::ring::Done;
use crate::slots::{ReadBuf, Slot, WriteData};
use bytes::Bytes;
use io::disk::{DevId, DiskError, DiskOp, DiskToken, LAZY_MS, WriteMode};
use io::{AlignedBuf, Now};
use io_uring::{opcode, squeue, types as ring_types};
use smallvec::SmallVec;
use std::time::Duration;
use types::Mono;

/// Pieces that the kernel takes in one write.
const MAX_VECTORS: usize = 1024;

/// The pool's number among the memory that the ring knows.
const POOL_BUFFER: u16 = 0;

const LAZY: Duration = Duration::from_millis(LAZY_MS);

/// The writes that nobody waits for.
#[derive(Default)]
pub(super) struct Lazy {
    /// Those that the kernel was not handed yet.
    queued: usize,
    /// The kernel did not take in all that it was handed.
    has_rest: bool,
    in_flight: usize,
    /// When their ends are looked for.
    pub look_at: Option<Mono>,
}

impl Runner {
    pub(super) fn disk_op(&mut self, token: DiskToken, op: DiskOp) -> Result<(), RunError> {
        match op {
            DiskOp::Read { dev, offset, len } => self.disk_read(token, dev, offset, len),
            DiskOp::Write { dev, offset, data, mode } => {
                self.disk_write(token, dev, offset, data, mode)
            }
            DiskOp::Flush { dev } => {
                let flags = ring_types::FsyncFlags::DATASYNC;
                let entry = opcode::Fsync::new(self.dev(dev)).flags(flags).build();
                self.push(entry, Slot::DiskFlush { token })
            }
            DiskOp::Discard { dev, offset, len } => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                let entry = opcode::Fallocate::new(self.dev(dev), len).offset(offset).mode(mode);
                self.push(entry.build(), Slot::DiskDiscard { token })
            }
        }
    }

    fn disk_read(
        &mut self,
        token: DiskToken,
        dev: DevId,
        offset: u64,
        len: usize,
    ) -> Result<(), RunError> {
        let fd = self.dev(dev);
        if let Some(mut buf) = self.pool.as_ref().and_then(|pool| pool.take(len)) {
            let entry = opcode::ReadFixed::new(fd, buf.as_mut_ptr(), len as u32, POOL_BUFFER);
            let slot = Slot::DiskRead { token, buf: ReadBuf::Pool(buf) };
            return self.push(entry.offset(offset).build(), slot);
        }
        let mut buf = AlignedBuf::for_overwrite(len);
        let at = buf.as_mut_slice().as_mut_ptr();
        let entry = opcode::Read::new(fd, at, len as u32).offset(offset).build();
        self.push(entry, Slot::DiskRead { token, buf: ReadBuf::Own(buf) })
    }

    fn dev(&self, dev: DevId) -> ring_types::Fd {
        let device = self.devices.get(usize::from(dev.0)).expect("a core uses only its devices");
        ring_types::Fd(device.raw())
    }

    fn disk_write(
        &mut self,
        token: DiskToken,
        dev: DevId,
        offset: u64,
        data: SmallVec<[Bytes; 4]>,
        mode: WriteMode,
    ) -> Result<(), RunError> {
        let wanted: usize = data.iter().map(Bytes::len).sum();
        let flags = if mode == WriteMode::Durable { libc::RWF_DSYNC } else { 0 };
        let fd = self.dev(dev);
        let is_aligned = data.iter().all(|p| AlignedBuf::is_aligned(p));
        if let ([piece], true) = (&data[..], is_aligned) {
            // Most of what is put in place is a block. The kernel need not look into a vector for it.
            let entry = opcode::Write::new(fd, piece.as_ptr(), wanted as u32).offset(offset);
            let entry = entry.rw_flags(flags).build();
            let _data = WriteData::Pieces { _pieces: data, _vec: Vec::new() };
            return self.push_write(mode, entry, Slot::DiskWrite { token, wanted, _data });
        }
        let vec = vectors(&data);
        if is_aligned && vec.len() <= MAX_VECTORS {
            let entry = opcode::Writev::new(fd, vec.as_ptr(), vec.len() as u32);
            let entry = entry.offset(offset).rw_flags(flags).build();
            let _data = WriteData::Pieces { _pieces: data, _vec: vec };
            return self.push_write(mode, entry, Slot::DiskWrite { token, wanted, _data });
        }
        let mut buf = AlignedBuf::for_overwrite(wanted);
        let mut rest = buf.as_mut_slice();
        for piece in &data {
            let (here, there) = rest.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            rest = there;
        }
        let at = buf.as_slice().as_ptr();
        let entry = opcode::Write::new(fd, at, wanted as u32).offset(offset).rw_flags(flags);
        let _data = WriteData::Copied { _buf: buf };
        self.push_write(mode, entry.build(), Slot::DiskWrite { token, wanted, _data })
    }

    fn push_write(
        &mut self,
        mode: WriteMode,
        entry: squeue::Entry,
        slot: Slot,
    ) -> Result<(), RunError> {
        if mode != WriteMode::Lazy {
            return self.push(entry, slot);
        }
        self.lazy.queued += 1;
        self.push_to(Way::Lazy, entry, slot)
    }

    /// Hands the kernel the writes that nobody waits for, behind all that somebody does.
    pub(super) fn submit_lazy(&mut self, now: Now) -> Result<(), RunError> {
        let queued = std::mem::take(&mut self.lazy.queued);
        if queued == 0 && !self.lazy.has_rest {
            return Ok(());
        }
        self.rings().main.submit_and_wait(0)?;
        self.rings().lazy.submit_and_wait(0)?;
        self.lazy.has_rest = self.rings().lazy.has_rest();
        self.lazy.in_flight += queued;
        self.lazy.look_at = Some(now.mono.after(LAZY));
        Ok(())
    }

    /// Takes the ends of writes that nobody waited for, when it is time to look for them.
    pub(super) fn take_lazy(&mut self, now: Now, done: &mut Vec<Done>) -> Result<(), RunError> {
        if self.lazy.look_at.is_none_or(|at| at > now.mono) {
            return Ok(());
        }
        let before = done.len();
        let ring = &mut self.rings().lazy;
        ring.make_completions()?;
        ring.take(done);
        self.lazy.in_flight -= done.len() - before;
        self.lazy.look_at = (self.lazy.in_flight > 0).then(|| now.mono.after(LAZY));
        Ok(())
    }
}

/// What a vectored write is told of `data`; pieces that are neighbours in memory are one.
fn vectors(data: &[Bytes]) -> Vec<libc::iovec> {
    let mut out: Vec<libc::iovec> = Vec::with_capacity(data.len());
    for piece in data {
        match out.last_mut() {
            Some(last) if last.iov_base.addr() + last.iov_len == piece.as_ptr().addr() => {
                last.iov_len += piece.len();
            }
            _ => out.push(libc::iovec {
                iov_base: piece.as_ptr().cast_mut().cast(),
                iov_len: piece.len(),
            }),
        }
    }
    out
}

pub(super) fn transferred(result: i32, wanted: usize) -> Result<(), DiskError> {
    match usize::try_from(result) {
        Err(_) => Err(DiskError::Os(-result)),
        Ok(done) if done < wanted => Err(DiskError::Short { done, wanted }),
        Ok(_) => Ok(()),
    }
}

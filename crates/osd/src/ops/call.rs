//! CALL: methods of object classes (crate `classes`) on the object of a request.

use super::{Run, Stop};
use bytes::Bytes;
use classes::{CallError, CallResult, Method, Object, OmapPage, Stat};
use io::Rng;
use std::collections::BTreeMap;
use types::{EntityAddr, EntityName, Errno, SnapId, UTime};
use wire::msg::op::{Extent, Xattr, op_flags};
use wire::msg::op_data::{OmapGetValsIn, Values};
use wire::msg::{OpCode, OsdOp};

/// The method that an operation calls, and its input.
///
/// # Errors
/// See [`classes::find`]; EINVAL when the operation's lengths do not fit.
pub fn called(op: &OsdOp) -> Result<(&'static Method, Bytes), Errno> {
    let args = op.args.call();
    let class_len = usize::from(args.class_len);
    let method_end = class_len + usize::from(args.method_len);
    let input_end = method_end.saturating_add(args.input_len as usize);
    let part = |from: usize, to: usize| {
        let fits = to <= op.indata.len();
        fits.then(|| op.indata.slice(from..to)).ok_or(Errno::EINVAL)
    };
    let (class, method) = (part(0, class_len)?, part(class_len, method_end)?);
    Ok((classes::find(&class, &method)?, part(method_end, input_end)?))
}

/// The object of a request, for a method.
struct Callee<'r, 'a> {
    run: &'r mut Run<'a>,
    /// Place of the CALL among the operations.
    index: usize,
    writes: bool,
    rng: Rng,
    /// Why the method was interrupted.
    stop: Option<Stop>,
}

impl Run<'_> {
    pub(super) fn op_call(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let (method, input) = called(op)?;
        let reqid = self.scene.request.reqid;
        let seed = self.scene.now.as_duration().as_nanos() as u64 ^ reqid.tid ^ (i as u64) << 32;
        let rng = Rng::with_seed(seed);
        let mut callee = Callee { run: self, index: i, writes: method.writes, rng, stop: None };
        let called = (method.run)(&mut callee, &input);
        let stop = callee.stop.take();
        self.put(i, Bytes::new());
        match called {
            Ok(out) => {
                self.put(i, out);
                Ok(0)
            }
            Err(CallError::Fail(errno)) => Err(errno.into()),
            Err(CallError::Interrupted) => Err(stop.expect("it says why it interrupts")),
        }
    }
}

impl Callee<'_, '_> {
    /// Runs an operation for the method; gives its output.
    fn sub(&mut self, op: &OsdOp) -> CallResult<Bytes> {
        if op.code.is_write() && !self.writes {
            return Err(Errno::EPERM.into());
        }
        self.run.put(self.index, Bytes::new());
        match self.run.run_op(self.index, op) {
            Ok(_) => {
                self.run.user_change |= op.code.is_write();
                Ok(super::reader::joined(&self.run.results[self.index].outdata))
            }
            Err(Stop::Fail(errno)) => Err(errno.into()),
            Err(Stop::Result(_)) => Err(Errno::EIO.into()),
            Err(stop) => {
                self.stop = Some(stop);
                Err(CallError::Interrupted)
            }
        }
    }

    fn extent(&mut self, code: OpCode, offset: u64, length: u64, data: Bytes) -> CallResult<Bytes> {
        let args = Extent { offset, length, ..Extent::default() };
        self.sub(&OsdOp::new(code, args).with_indata(data))
    }

    fn xattr(&mut self, code: OpCode, name: &[u8], value: &[u8]) -> CallResult<Bytes> {
        let (name_len, value_len) = (length(name)?, length(value)?);
        let args = Xattr { name_len, value_len, ..Xattr::default() };
        self.sub(&OsdOp::new(code, args).with_indata([name, value].concat()))
    }

    fn with_input(&mut self, code: OpCode, input: Bytes) -> CallResult<Bytes> {
        self.sub(&OsdOp::new(code, Extent::default()).with_indata(input))
    }

    fn must_exist(&self) -> CallResult<()> {
        if self.run.now.exists { Ok(()) } else { Err(Errno::ENOENT.into()) }
    }
}

fn length(bytes: &[u8]) -> CallResult<u32> {
    u32::try_from(bytes.len()).map_err(|_| Errno::E2BIG.into())
}

fn decoded<T: denc::Decode>(bytes: &Bytes) -> CallResult<T> {
    denc::decode(bytes).map_err(|_| Errno::EIO.into())
}

impl Object for Callee<'_, '_> {
    fn stat(&mut self) -> CallResult<Option<Stat>> {
        let now = &self.run.now;
        Ok(now.exists.then_some(Stat { size: now.size, mtime: now.meta.mtime }))
    }

    fn read(&mut self, offset: u64, len: u64) -> CallResult<Bytes> {
        if len == 0 || !self.run.now.exists {
            return Ok(Bytes::new());
        }
        self.extent(OpCode::READ, offset, len, Bytes::new())
    }

    fn create(&mut self, exclusive: bool) -> CallResult<()> {
        let flags = if exclusive { op_flags::EXCL } else { 0 };
        self.sub(&OsdOp::new(OpCode::CREATE, Extent::default()).with_flags(flags)).map(drop)
    }

    fn write(&mut self, offset: u64, data: Bytes) -> CallResult<()> {
        self.extent(OpCode::WRITE, offset, data.len() as u64, data).map(drop)
    }

    fn write_full(&mut self, data: Bytes) -> CallResult<()> {
        self.extent(OpCode::WRITEFULL, 0, data.len() as u64, data).map(drop)
    }

    fn zero(&mut self, offset: u64, len: u64) -> CallResult<()> {
        self.extent(OpCode::ZERO, offset, len, Bytes::new()).map(drop)
    }

    fn truncate(&mut self, size: u64) -> CallResult<()> {
        self.extent(OpCode::TRUNCATE, size, 0, Bytes::new()).map(drop)
    }

    fn remove(&mut self) -> CallResult<()> {
        self.sub(&OsdOp::new(OpCode::DELETE, Extent::default())).map(drop)
    }

    fn get_xattr(&mut self, name: &[u8]) -> CallResult<Bytes> {
        self.must_exist()?;
        self.xattr(OpCode::GETXATTR, name, b"")
    }

    fn get_xattrs(&mut self) -> CallResult<Vec<(Bytes, Bytes)>> {
        self.must_exist()?;
        let out = self.sub(&OsdOp::new(OpCode::GETXATTRS, Extent::default()))?;
        Ok(pairs(decoded(&out)?))
    }

    fn set_xattr(&mut self, name: &[u8], value: Bytes) -> CallResult<()> {
        self.xattr(OpCode::SETXATTR, name, &value).map(drop)
    }

    fn remove_xattr(&mut self, name: &[u8]) -> CallResult<()> {
        self.xattr(OpCode::RMXATTR, name, b"").map(drop)
    }

    fn omap_get(&mut self, key: &[u8]) -> CallResult<Bytes> {
        let keys = std::collections::BTreeSet::from([types::ByteString::from(key)]);
        let out = self.with_input(OpCode::OMAPGETVALSBYKEYS, denc::encode(&keys))?;
        let values: Values = decoded(&out)?;
        values.into_values().next().ok_or(Errno::ENOENT.into())
    }

    fn omap_list(&mut self, after: &[u8], prefix: &[u8], max: u64) -> CallResult<OmapPage> {
        let input = OmapGetValsIn { start_after: after.into(), max, prefix: prefix.into() };
        let out = self.with_input(OpCode::OMAPGETVALS, denc::encode(&input))?;
        let out: wire::msg::op_data::OmapGetValsOut = decoded(&out)?;
        Ok(OmapPage { entries: pairs(out.values), more: out.more })
    }

    fn omap_header(&mut self) -> CallResult<Bytes> {
        self.sub(&OsdOp::new(OpCode::OMAPGETHEADER, Extent::default()))
    }

    fn omap_set(&mut self, entries: Vec<(Bytes, Bytes)>) -> CallResult<()> {
        let values: Values = entries.into_iter().map(|(k, v)| ((&k[..]).into(), v)).collect();
        self.with_input(OpCode::OMAPSETVALS, denc::encode(&values)).map(drop)
    }

    fn omap_remove(&mut self, keys: &[Bytes]) -> CallResult<()> {
        let keys: std::collections::BTreeSet<types::ByteString> =
            keys.iter().map(|k| (&k[..]).into()).collect();
        self.with_input(OpCode::OMAPRMKEYS, denc::encode(&keys)).map(drop)
    }

    fn omap_clear(&mut self) -> CallResult<()> {
        self.sub(&OsdOp::new(OpCode::OMAPCLEAR, Extent::default())).map(drop)
    }

    fn omap_set_header(&mut self, header: Bytes) -> CallResult<()> {
        self.with_input(OpCode::OMAPSETHEADER, header).map(drop)
    }

    fn watchers(&mut self) -> CallResult<Vec<(EntityName, EntityAddr)>> {
        let watches = &self.run.before.meta.watches;
        Ok(watches.iter().map(|w| (w.watcher, w.addr)).collect())
    }

    fn caller(&self) -> (EntityName, EntityAddr) {
        (self.run.scene.sender.name, self.run.scene.sender.addr)
    }

    fn version(&self) -> u64 {
        self.run.before.meta.user_version
    }

    fn snap_seq(&self) -> SnapId {
        self.run.now.meta.snap_seq
    }

    fn now(&self) -> UTime {
        self.run.scene.now
    }

    fn random(&mut self, out: &mut [u8]) {
        self.rng.fill(out);
    }
}

fn pairs(values: BTreeMap<types::ByteString, Bytes>) -> Vec<(Bytes, Bytes)> {
    values.into_iter().map(|(k, v)| (Bytes::copy_from_slice(&k), v)).collect()
}

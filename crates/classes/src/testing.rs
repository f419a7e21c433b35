//! An object in memory for tests, with what a request sees of it: reads give what was before the
//! request, existence and size follow it.

use crate::{CallError, CallResult, Object, OmapPage, Stat};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::{ClientId, EntityAddr, EntityName, Errno, SnapId, UTime};

/// Everything kept of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub exists: bool,
    pub data: Vec<u8>,
    pub xattrs: BTreeMap<Bytes, Bytes>,
    pub omap: BTreeMap<Bytes, Bytes>,
    pub omap_header: Bytes,
    pub snap_seq: SnapId,
}

/// An object and who calls.
pub struct MemObject {
    pub state: State,
    pub client: u64,
    /// Calls instead of the client.
    pub inst: Option<(EntityName, EntityAddr)>,
    pub now: UTime,
    pub watchers: Vec<(EntityName, EntityAddr)>,
    rng: u8,
}

/// A call under way.
struct Call<'a> {
    before: State,
    now: &'a mut State,
    writes: bool,
    clock: UTime,
    caller: (EntityName, EntityAddr),
    watchers: Vec<(EntityName, EntityAddr)>,
    rng: &'a mut u8,
}

/// Size of the largest object, as in Ceph.
const MAX_SIZE: u64 = 128 << 20;

impl MemObject {
    /// No object yet; client.1 calls.
    pub fn new() -> Self {
        let now = UTime { sec: 1_800_000_000, nsec: 0 };
        MemObject {
            state: State::default(),
            client: 1,
            inst: None,
            now,
            watchers: Vec::new(),
            rng: 0,
        }
    }

    /// An object without anything.
    pub fn empty() -> Self {
        MemObject::with(State { exists: true, ..State::default() })
    }

    /// An object that is so.
    pub fn with(state: State) -> Self {
        MemObject { state, ..MemObject::new() }
    }

    /// Name and address of a client.
    pub fn client_inst(client: u64) -> (EntityName, EntityAddr) {
        let sock = "127.0.0.1:0".parse().unwrap();
        (EntityName::client(ClientId(client)), EntityAddr::msgr2(sock, client as u32))
    }

    /// Calls `class.method` as a request of its own: its changes count if it succeeds.
    pub fn call(&mut self, method: &str, input: impl AsRef<[u8]>) -> Result<Bytes, Errno> {
        let (class, name) = method.split_once('.').unwrap();
        let method = crate::find(class.as_bytes(), name.as_bytes())?;
        let input = Bytes::copy_from_slice(input.as_ref());
        let mut now = self.state.clone();
        let mut call = Call {
            before: self.state.clone(),
            now: &mut now,
            writes: method.writes,
            clock: self.now,
            caller: self.inst.unwrap_or_else(|| MemObject::client_inst(self.client)),
            watchers: self.watchers.clone(),
            rng: &mut self.rng,
        };
        if !method.writes && !call.now.exists {
            return Err(Errno::ENOENT);
        }
        match (method.run)(&mut call, &input) {
            Ok(out) => {
                self.state = now;
                Ok(out)
            }
            Err(CallError::Fail(errno)) => Err(errno),
            Err(CallError::Interrupted) => panic!("nothing here interrupts"),
        }
    }

    /// The same with input that is encoded first.
    pub fn ask<T: denc::Encode>(&mut self, method: &str, input: T) -> Result<Bytes, Errno> {
        self.call(method, denc::encode(&input))
    }

    /// The same with an answer that is decoded.
    pub fn get<I: denc::Encode, T: denc::Decode>(
        &mut self,
        method: &str,
        input: I,
    ) -> Result<T, Errno> {
        let out = self.ask(method, input)?;
        Ok(denc::decode_all(&out).unwrap_or_else(|e| panic!("{method}: {e}: {out:?}")))
    }

    /// The same with an empty answer.
    pub fn run<T: denc::Encode>(&mut self, method: &str, input: T) -> Result<(), Errno> {
        let out = self.ask(method, input)?;
        assert!(out.is_empty(), "{method}: {out:?}");
        Ok(())
    }
}

impl Call<'_> {
    fn changed(&mut self) -> CallResult<&mut State> {
        if !self.writes {
            return Err(Errno::EPERM.into());
        }
        self.now.exists = true;
        Ok(self.now)
    }

    fn seen(&self) -> CallResult<&State> {
        if self.now.exists { Ok(&self.before) } else { Err(Errno::ENOENT.into()) }
    }
}

impl Object for Call<'_> {
    fn stat(&mut self) -> CallResult<Option<Stat>> {
        let stat = Stat { size: self.now.data.len() as u64, mtime: UTime::ZERO };
        Ok(self.now.exists.then_some(stat))
    }

    fn read(&mut self, offset: u64, len: u64) -> CallResult<Bytes> {
        let data = &self.before.data;
        let from = offset.min(data.len() as u64) as usize;
        let to = offset.saturating_add(len).min(data.len() as u64) as usize;
        Ok(Bytes::copy_from_slice(&data[from..to]))
    }

    fn create(&mut self, exclusive: bool) -> CallResult<()> {
        if exclusive && self.now.exists {
            return Err(Errno::EEXIST.into());
        }
        self.changed().map(drop)
    }

    fn write(&mut self, offset: u64, data: Bytes) -> CallResult<()> {
        let end = offset.saturating_add(data.len() as u64);
        if end > MAX_SIZE {
            return Err(Errno::EFBIG.into());
        }
        let to = &mut self.changed()?.data;
        to.resize(to.len().max(end as usize), 0);
        to[offset as usize..end as usize].copy_from_slice(&data);
        Ok(())
    }

    fn write_full(&mut self, data: Bytes) -> CallResult<()> {
        self.changed()?.data = data.to_vec();
        Ok(())
    }

    fn zero(&mut self, offset: u64, len: u64) -> CallResult<()> {
        let data = &mut self.changed()?.data;
        let from = offset.min(data.len() as u64) as usize;
        let to = offset.saturating_add(len).min(data.len() as u64) as usize;
        data[from..to].fill(0);
        Ok(())
    }

    fn truncate(&mut self, size: u64) -> CallResult<()> {
        if size > MAX_SIZE {
            return Err(Errno::EFBIG.into());
        }
        self.changed()?.data.resize(size as usize, 0);
        Ok(())
    }

    fn remove(&mut self) -> CallResult<()> {
        if !self.now.exists {
            return Err(Errno::ENOENT.into());
        }
        self.changed()?;
        *self.now = State::default();
        Ok(())
    }

    fn get_xattr(&mut self, name: &[u8]) -> CallResult<Bytes> {
        self.seen()?.xattrs.get(name).cloned().ok_or(Errno::ENODATA.into())
    }

    fn get_xattrs(&mut self) -> CallResult<Vec<(Bytes, Bytes)>> {
        Ok(self.seen()?.xattrs.clone().into_iter().collect())
    }

    fn set_xattr(&mut self, name: &[u8], value: Bytes) -> CallResult<()> {
        self.changed()?.xattrs.insert(Bytes::copy_from_slice(name), value);
        Ok(())
    }

    fn remove_xattr(&mut self, name: &[u8]) -> CallResult<()> {
        self.changed()?.xattrs.remove(name).map(drop).ok_or(Errno::ENODATA.into())
    }

    fn omap_get(&mut self, key: &[u8]) -> CallResult<Bytes> {
        self.before.omap.get(key).cloned().ok_or(Errno::ENOENT.into())
    }

    fn omap_list(&mut self, after: &[u8], prefix: &[u8], max: u64) -> CallResult<OmapPage> {
        // Smaller pages than are asked for, so that tests see several.
        let max = max.min(3) as usize;
        let omap = &self.before.omap;
        let mut entries: Vec<_> = omap
            .iter()
            .filter(|(k, _)| &k[..] > after && k.starts_with(prefix))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let more = entries.len() > max;
        entries.truncate(max);
        Ok(OmapPage { entries, more })
    }

    fn omap_header(&mut self) -> CallResult<Bytes> {
        Ok(self.before.omap_header.clone())
    }

    fn omap_set(&mut self, entries: Vec<(Bytes, Bytes)>) -> CallResult<()> {
        self.changed()?.omap.extend(entries);
        Ok(())
    }

    fn omap_remove(&mut self, keys: &[Bytes]) -> CallResult<()> {
        self.seen()?;
        let omap = &mut self.changed()?.omap;
        keys.iter().for_each(|key| drop(omap.remove(key)));
        Ok(())
    }

    fn omap_clear(&mut self) -> CallResult<()> {
        let state = self.changed()?;
        state.omap.clear();
        state.omap_header = Bytes::new();
        Ok(())
    }

    fn omap_set_header(&mut self, header: Bytes) -> CallResult<()> {
        self.changed()?.omap_header = header;
        Ok(())
    }

    fn watchers(&mut self) -> CallResult<Vec<(EntityName, EntityAddr)>> {
        Ok(self.watchers.clone())
    }

    fn caller(&self) -> (EntityName, EntityAddr) {
        self.caller
    }

    fn version(&self) -> u64 {
        1
    }

    fn snap_seq(&self) -> SnapId {
        self.before.snap_seq
    }

    fn now(&self) -> UTime {
        self.clock
    }

    fn random(&mut self, out: &mut [u8]) {
        *self.rng = self.rng.wrapping_add(1);
        out.fill(*self.rng);
    }
}

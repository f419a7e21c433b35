//! What objects must be.

use bytes::Bytes;
use io::Rng;
use std::collections::BTreeMap;
use types::{ByteString, Errno, SnapId};
use wire::msg::op::{Extent, OpArgs, Snap, op_flags};
use wire::msg::op_data::{OmapGetValsOut, Values, xattr_op};
use wire::msg::{OpCode, OsdOp, SnapContext};

/// An object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub data: Vec<u8>,
    pub omap: BTreeMap<ByteString, Bytes>,
    pub xattrs: BTreeMap<ByteString, Bytes>,
}

impl State {
    /// From the outputs of [`Request::Read`].
    pub fn from_outputs(data: &Bytes, omap: &Bytes, xattrs: &Bytes) -> Self {
        let omap: OmapGetValsOut = denc::decode(omap).expect("omap values");
        assert!(!omap.more);
        let xattrs: Values = denc::decode(xattrs).expect("attributes");
        State { data: data.to_vec(), omap: omap.values, xattrs }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub enum Request {
    Read,
    Write(u64, Vec<u8>),
    WriteFull(Vec<u8>),
    Append(Vec<u8>),
    Truncate(u64),
    Zero(u64, u64),
    Remove,
    CreateExclusive,
    OmapSet(String, Vec<u8>),
    OmapRemove(String),
    SetXattr(String, Vec<u8>),
    Rollback(SnapId),
    /// Several in one.
    WriteWithOmap(u64, Vec<u8>, String),
}

fn bytes(rng: &mut Rng, max: usize) -> Vec<u8> {
    let len = match rng.u8(0..4) {
        0 => 4096,
        1 => rng.usize(1..200),
        _ => rng.usize(1..max),
    };
    let first = rng.u8(1..);
    (0..len).map(|i| first.wrapping_add((i / 7) as u8) | 1).collect()
}

fn offset(rng: &mut Rng) -> u64 {
    if rng.bool() { rng.u64(0..40) * 4096 } else { rng.u64(0..160_000) }
}

impl Request {
    pub fn random(rng: &mut Rng, model: &Model, name: &str, snapc: &SnapContext) -> Self {
        let exists = model.objects.contains_key(name);
        let key = format!("key{}", rng.u8(0..20));
        match rng.u8(0..14) {
            0..=2 => Request::Write(offset(rng), bytes(rng, 100_000)),
            3 => Request::WriteFull(bytes(rng, 100_000)),
            4 => Request::Append(bytes(rng, 20_000)),
            5 if exists => Request::Truncate(offset(rng)),
            6 if exists => Request::Zero(offset(rng), rng.u64(1..50_000)),
            7 => Request::Remove,
            8 => Request::CreateExclusive,
            9 => Request::OmapSet(key, bytes(rng, 3000)),
            10 if exists => Request::OmapRemove(key),
            11 => Request::SetXattr(key, bytes(rng, 3000)),
            12 if !snapc.snaps.is_empty() => {
                Request::Rollback(snapc.snaps[rng.usize(0..snapc.snaps.len())])
            }
            _ => Request::WriteWithOmap(offset(rng), bytes(rng, 10_000), key),
        }
    }

    pub fn ops(&self) -> Vec<OsdOp> {
        let extent = |offset: u64, length: u64| Extent { offset, length, ..Extent::default() };
        let data = |code, offset: u64, bytes: &[u8]| {
            OsdOp::new(code, extent(offset, bytes.len() as u64)).with_indata(bytes.to_vec())
        };
        let none = OpArgs::default;
        let omap = |key: &str, value: &[u8]| {
            let values: Values = BTreeMap::from([(key.into(), Bytes::copy_from_slice(value))]);
            OsdOp::new(OpCode::OMAPSETVALS, none()).with_indata(denc::encode(&values))
        };
        match self {
            Request::Read => {
                let range = denc::encode(&(ByteString::default(), 1000u64, ByteString::default()));
                vec![
                    OsdOp::new(OpCode::READ, extent(0, 0)),
                    OsdOp::new(OpCode::OMAPGETVALS, none()).with_indata(range),
                    OsdOp::new(OpCode::GETXATTRS, none()),
                ]
            }
            Request::Write(at, bytes) => vec![data(OpCode::WRITE, *at, bytes)],
            Request::WriteFull(bytes) => vec![data(OpCode::WRITEFULL, 0, bytes)],
            Request::Append(bytes) => vec![data(OpCode::APPEND, 0, bytes)],
            Request::Truncate(size) => vec![OsdOp::new(OpCode::TRUNCATE, extent(*size, 0))],
            Request::Zero(at, len) => vec![OsdOp::new(OpCode::ZERO, extent(*at, *len))],
            Request::Remove => vec![OsdOp::new(OpCode::DELETE, none())],
            Request::CreateExclusive => {
                vec![OsdOp::new(OpCode::CREATE, none()).with_flags(op_flags::EXCL)]
            }
            Request::OmapSet(key, value) => vec![omap(key, value)],
            Request::OmapRemove(key) => {
                let keys = denc::encode(&vec![ByteString::from(key.as_bytes())]);
                vec![OsdOp::new(OpCode::OMAPRMKEYS, none()).with_indata(keys)]
            }
            Request::SetXattr(key, value) => {
                vec![xattr_op(OpCode::SETXATTR, key.as_bytes(), value, 0, 0)]
            }
            Request::Rollback(snap) => {
                vec![OsdOp::new(OpCode::ROLLBACK, Snap { snapid: snap.0 })]
            }
            Request::WriteWithOmap(at, bytes, key) => {
                vec![data(OpCode::WRITE, *at, bytes), omap(key, b"both")]
            }
        }
    }
}

/// All objects, now and at the snapshots.
#[derive(Default)]
pub struct Model {
    objects: BTreeMap<String, State>,
    snaps: BTreeMap<SnapId, BTreeMap<String, State>>,
}

impl Model {
    pub fn snapshot(&mut self, snap: SnapId) {
        self.snaps.insert(snap, self.objects.clone());
    }

    /// A snapshot is removed.
    pub fn forget(&mut self, snap: SnapId) {
        self.snaps.remove(&snap);
    }

    pub fn state(&self, name: &str, snap: Option<SnapId>) -> Option<State> {
        let all = match snap {
            None => &self.objects,
            Some(snap) => &self.snaps[&snap],
        };
        all.get(name).cloned()
    }

    /// Applies a write; what it answers.
    pub fn apply(&mut self, name: &str, request: &Request) -> i32 {
        let enoent = -Errno::ENOENT.0;
        match request {
            Request::Remove => {
                return if self.objects.remove(name).is_some() { 0 } else { enoent };
            }
            Request::CreateExclusive => {
                if self.objects.contains_key(name) {
                    return -Errno::EEXIST.0;
                }
                self.objects.insert(name.to_owned(), State::default());
                return 0;
            }
            Request::Rollback(snap) => {
                match self.state(name, Some(*snap)) {
                    Some(state) => drop(self.objects.insert(name.to_owned(), state)),
                    None => drop(self.objects.remove(name)),
                }
                return 0;
            }
            _ => {}
        }
        let object = self.objects.entry(name.to_owned()).or_default();
        match request {
            Request::Write(at, bytes) => object.write(*at, bytes),
            Request::WriteFull(bytes) => object.data.clone_from(bytes),
            Request::Append(bytes) => object.data.extend(bytes),
            Request::Truncate(size) => object.data.resize(*size as usize, 0),
            Request::Zero(at, len) => {
                // Up to the end or beyond, ZERO becomes TRUNCATE (PrimaryLogPG.cc).
                let (from, to) = (*at as usize, (*at + *len) as usize);
                if to < object.data.len() {
                    object.data[from..to].fill(0);
                } else {
                    object.data.truncate(from);
                }
            }
            Request::OmapSet(key, value) => {
                object.omap.insert(key.as_str().into(), value.clone().into());
            }
            Request::OmapRemove(key) => drop(object.omap.remove(key.as_bytes())),
            Request::SetXattr(key, value) => {
                object.xattrs.insert(key.as_str().into(), value.clone().into());
            }
            Request::WriteWithOmap(at, bytes, key) => {
                object.write(*at, bytes);
                object.omap.insert(key.as_str().into(), Bytes::from_static(b"both"));
            }
            Request::Read | Request::Remove | Request::CreateExclusive | Request::Rollback(_) => {}
        }
        0
    }
}

impl State {
    fn write(&mut self, at: u64, bytes: &[u8]) {
        let end = at as usize + bytes.len();
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[at as usize..end].copy_from_slice(bytes);
    }
}

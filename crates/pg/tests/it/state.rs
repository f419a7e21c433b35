//! What a disk of the small world holds, and how a transaction changes it.

use crate::net::Net;
use bytes::Bytes;
use pg::MetaOp;
use std::collections::{BTreeMap, BTreeSet};
use types::*;

pub type SnapSet = BTreeSet<SnapId>;
pub type Objects = BTreeMap<HObject, State>;

/// A head or a clone, as one copy has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub version: Eversion,
    /// `None`: a head that was deleted, and stands there for its clones.
    pub value: Option<u64>,
    /// Of a head: the newest snapshot that it knows of.
    pub seq: SnapId,
    /// Of a head: its clones, and the snapshots that they serve.
    pub clones: BTreeMap<SnapId, SnapSet>,
    /// Of a clone: the snapshots that it serves.
    pub snaps: SnapSet,
}

/// Where what a snapshot shows stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    Head,
    Clone(SnapId),
    Nowhere,
}

impl State {
    /// As `osd::object` finds it.
    pub fn find(&self, snap: SnapId) -> Place {
        if snap > self.seq {
            return Place::Head;
        }
        match self.clones.range(snap..).next() {
            Some((id, snaps)) if snaps.contains(&snap) => Place::Clone(*id),
            _ => Place::Nowhere,
        }
    }
}

/// One change of a copy's objects.
#[derive(Clone, Debug)]
pub enum Op {
    Put(HObject, State),
    Remove(HObject),
    /// What this copy has of the first one goes into the second one, whose record is this.
    Copy(HObject, HObject, State),
}

impl Op {
    pub fn apply(&self, objects: &mut Objects) {
        match self {
            Op::Put(o, state) => drop(objects.insert(o.clone(), state.clone())),
            Op::Remove(o) => drop(objects.remove(o)),
            Op::Copy(from, to, record) => {
                let source = objects.get(from).unwrap_or_else(|| panic!("{from} is not here"));
                let state = State { value: source.value, ..record.clone() };
                objects.insert(to.clone(), state);
            }
        }
    }

    /// Puts the object in this state, or takes it away.
    pub fn set(o: &HObject, state: Option<State>) -> Self {
        match state {
            Some(state) => Op::Put(o.clone(), state),
            None => Op::Remove(o.clone()),
        }
    }
}

/// A transaction on its way to the disk.
#[derive(Debug, Default)]
pub struct Txn {
    pub meta: Vec<MetaOp>,
    pub ops: Vec<Op>,
    pub then: Vec<Then>,
}

/// What happens when a transaction is durable.
#[derive(Debug)]
pub enum Then {
    Send(OsdId, Net),
    TellPg(Epoch),
    Durable(Eversion),
    Pulled(HObject, Epoch),
}

/// What a disk holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disk {
    pub omap: BTreeMap<Bytes, Bytes>,
    pub objects: Objects,
}

impl Disk {
    pub fn apply(&mut self, txn: &Txn) {
        for op in &txn.meta {
            match op {
                MetaOp::Put(k, v) => drop(self.omap.insert(k.clone(), v.clone())),
                MetaOp::Remove(k) => drop(self.omap.remove(k)),
                MetaOp::RemoveRange(from, to) => self.omap.retain(|k, _| k < from || k >= to),
            }
        }
        txn.ops.iter().for_each(|op| op.apply(&mut self.objects));
    }
}

//! Pool operations and statistics (guide §3.2, §3.4).

use super::{PRIORITY_DEFAULT, PRIORITY_HIGH, PaxosHeader, PoolStat, kind, payload};
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;
use types::{Epoch, SnapId, Uuid};

/// Values of [`MPoolOp::op`] (`include/ceph_fs.h: POOL_OP_*`).
pub mod pool_op {
    /// Create a pool.
    pub const CREATE: u32 = 1;
    /// Delete a pool.
    pub const DELETE: u32 = 2;
    /// Make a snapshot of a pool.
    pub const CREATE_SNAP: u32 = 0x11;
    /// Delete a snapshot of a pool.
    pub const DELETE_SNAP: u32 = 0x12;
    /// Allocate a self-managed snapshot id.
    pub const CREATE_UNMANAGED_SNAP: u32 = 0x21;
    /// Remove a self-managed snapshot id.
    pub const DELETE_UNMANAGED_SNAP: u32 = 0x22;
}

/// MPoolOp (49, version 4).
///
/// `hdr, fsid, u32 pool, u32 op, u64 auid (0), u64 snapid, str name, u8 pad (0), i16 crush_rule`
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MPoolOp {
    /// The map epoch the client has at least.
    pub paxos: PaxosHeader,
    /// The cluster it is meant for.
    pub fsid: Uuid,
    /// The pool's number.
    pub pool: u32,
    /// What to do, see [`pool_op`].
    pub op: u32,
    /// Unused, 0.
    pub auid: u64,
    /// The snapshot.
    pub snapid: SnapId,
    /// A pool's or snapshot's name.
    pub name: String,
    /// Unused, 0.
    pub pad: u8,
    /// For CREATE; -1 for the default.
    pub crush_rule: i16,
}

payload!(MPoolOp, kind::POOLOP, 4 / 2, PRIORITY_DEFAULT);

/// MPoolOpReply (48): `hdr, fsid, i32 code, u32 epoch, bool has_data [, bl]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MPoolOpReply {
    /// The OSDMap's version.
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// 0 or a negative error number.
    pub code: i32,
    /// The epoch in which the change is visible.
    pub epoch: Epoch,
    /// A snapshot id (u64) after CREATE_UNMANAGED_SNAP.
    pub data: Option<Bytes>,
}

payload!(MPoolOpReply, kind::POOLOP_REPLY, 1 / 1, PRIORITY_HIGH);

/// MStatfs (13, version 2): `hdr, fsid, opt<i64> data_pool`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MStatfs {
    /// The map epoch the client has at least.
    pub paxos: PaxosHeader,
    /// The cluster it is meant for.
    pub fsid: Uuid,
    /// Only this pool.
    pub data_pool: Option<i64>,
}

impl Encode for MStatfs {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.paxos).put(&self.fsid).put(&self.data_pool);
    }
}

impl Decode for MStatfs {
    /// Version 1 ends behind the fsid.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(MStatfs {
            paxos: d.get()?,
            fsid: d.get()?,
            data_pool: if d.remaining() > 0 { d.get()? } else { None },
        })
    }
}

payload!(MStatfs, kind::STATFS, 2 / 1, PRIORITY_DEFAULT);

/// MStatfsReply (14): `fsid, u64 version, u64 kb, kb_used, kb_avail, num_objects`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MStatfsReply {
    /// The cluster.
    pub fsid: Uuid,
    /// Of the statistics.
    pub version: u64,
    /// Size, KiB.
    pub kb: u64,
    /// Used, KiB.
    pub kb_used: u64,
    /// Free, KiB.
    pub kb_avail: u64,
    /// Objects.
    pub num_objects: u64,
}

payload!(MStatfsReply, kind::STATFS_REPLY, 1 / 1, PRIORITY_HIGH);

/// MGetPoolStats (58): `hdr, fsid, list<str> pools`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MGetPoolStats {
    /// The map epoch the client has at least.
    pub paxos: PaxosHeader,
    /// The cluster it is meant for.
    pub fsid: Uuid,
    /// Pool names.
    pub pools: Vec<String>,
}

payload!(MGetPoolStats, kind::GETPOOLSTATS, 1 / 1, PRIORITY_DEFAULT);

/// MGetPoolStatsReply (59, version 2): `hdr, fsid, map<str, pool_stat_t>, bool per_pool`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MGetPoolStatsReply {
    /// Of the statistics.
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// By pool name.
    pub stats: BTreeMap<String, PoolStat>,
    /// Whether [`PoolStat::store_stats`] are of the pool alone.
    pub per_pool: bool,
}

payload!(MGetPoolStatsReply, kind::GETPOOLSTATSREPLY, 2 / 1, PRIORITY_HIGH);

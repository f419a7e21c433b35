//! Pool operations and statistics that librados asks for by messages of their own.

use super::NewPool;
use crate::cluster::Cluster;
use admin::CommandError;
use bytes::Bytes;
use io::Now;
use std::collections::BTreeMap;
use types::{Errno, PoolId};
use wire::msg::{
    MGetPoolStats, MGetPoolStatsReply, MPoolOp, MPoolOpReply, MStatfs, MStatfsReply, PaxosHeader,
    PoolStat, pool_op,
};

impl Cluster {
    /// Carries out a pool operation. The reply is to be sent when the draft is committed.
    pub fn pool_op(&mut self, now: Now, m: &MPoolOp) -> MPoolOpReply {
        let result = self.try_pool_op(now, m);
        let epoch = self.map().epoch;
        let (code, data) = match result {
            Ok(data) => (0, data),
            Err(e) => {
                tracing::debug!("pool operation {} on pool {} refused: {e}", m.op, m.pool);
                (e.errno.wire(), None)
            }
        };
        let paxos = PaxosHeader { version: u64::from(epoch.0) };
        MPoolOpReply { paxos, fsid: self.state.fsid, code, epoch, data }
    }

    fn try_pool_op(&mut self, now: Now, m: &MPoolOp) -> Result<Option<Bytes>, CommandError> {
        let id = PoolId(i64::from(m.pool));
        if m.op != pool_op::CREATE && self.map().pool(id).is_none() {
            return Err(CommandError::not_found(format_args!("no pool {id}")));
        }
        match m.op {
            pool_op::CREATE => {
                let rule = u32::try_from(m.crush_rule).ok();
                let new = NewPool { name: m.name.clone(), rule, ..NewPool::default() };
                let made = self.create_pool(now, &new)?;
                let exists = || CommandError::exists(format_args!("pool '{}' exists", m.name));
                made.map(|_| None).ok_or_else(exists)
            }
            pool_op::DELETE => self.delete_pool(id).map(|_| None),
            pool_op::CREATE_SNAP => self.make_pool_snap(now, id, &m.name).map(|_| None),
            pool_op::DELETE_SNAP => self.remove_pool_snap(id, &m.name).map(|_| None),
            pool_op::CREATE_UNMANAGED_SNAP => {
                let snap = self.make_own_snap(id)?;
                Ok(Some(denc::encode(&snap)))
            }
            pool_op::DELETE_UNMANAGED_SNAP => self.remove_own_snap(id, m.snapid).map(|()| None),
            op => Err(CommandError::new(
                Errno::EINVAL,
                format_args!("there is no pool operation {op}"),
            )),
        }
    }

    /// Space of the cluster, or of one pool.
    pub fn statfs(&self, m: &MStatfs) -> MStatfsReply {
        let map = self.map();
        let of_pool = m.data_pool.map(PoolId).and_then(|id| map.pool(id).map(|p| (id, p)));
        let (bytes, used, avail, objects) = match of_pool {
            Some((id, pool)) => {
                let stat = self.pgmap.pool_stat(map, id).unwrap_or_default();
                let size = u64::from(pool.size.max(1));
                let avail = self.pgmap.pool_available_raw(map, pool) / size;
                let used = u64::try_from(stat.stats.sum.num_bytes).unwrap_or(0);
                (used.saturating_add(avail), used, avail, stat.stats.sum.num_objects)
            }
            None => {
                let sum = self.pgmap.osd_sum(map.in_osds());
                let total = self.pgmap.sums(map).total;
                (sum.total, sum.used(), sum.available, total.num_objects)
            }
        };
        MStatfsReply {
            fsid: self.state.fsid,
            version: self.pgmap.version,
            kb: bytes >> 10,
            kb_used: used >> 10,
            kb_avail: avail >> 10,
            num_objects: u64::try_from(objects).unwrap_or(0),
        }
    }

    /// Statistics of pools by name; unknown ones are left out.
    pub fn pool_stats(&self, m: &MGetPoolStats) -> MGetPoolStatsReply {
        let map = self.map();
        let stat = |name: &String| -> Option<(String, PoolStat)> {
            let id = map.pool_by_name(name)?;
            Some((name.clone(), self.pgmap.pool_stat(map, id)?))
        };
        let stats: BTreeMap<String, PoolStat> = m.pools.iter().filter_map(stat).collect();
        MGetPoolStatsReply {
            paxos: PaxosHeader { version: self.pgmap.version },
            fsid: self.state.fsid,
            stats,
            per_pool: true,
        }
    }
}

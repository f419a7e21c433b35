//! A new cluster.

use super::{ClusterRecord, FORMAT, keys};
use crate::config::{MonConfig, NewCluster};
use crate::state::{Pruned, State};
use io::Now;
use io::kv::KvBatch;
use maps::{FreshOsdMap, Incremental, MonMap, OsdMap};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{AddrVec, Epoch};

/// Global ids of a new cluster start here, as Ceph's do.
const FIRST_GLOBAL_ID: u64 = 4100;

/// The state of a new cluster, and what makes the store hold it.
///
/// # Errors
/// A sentence, when the failure domain is none.
pub(crate) fn fresh(
    cfg: &MonConfig,
    new: &NewCluster,
    now: Now,
) -> Result<(State, KvBatch), String> {
    let osdmap = OsdMap::fresh(&FreshOsdMap {
        fsid: new.fsid,
        now: now.wall,
        failure_domain: new.failure_domain.clone(),
    })
    .map_err(|e| format!("the failure domain '{}' cannot be used: {e}", new.failure_domain))?;
    let addrs = AddrVec::msgr2(cfg.addr, 0);
    let monmap = MonMap::fresh(new.fsid, now.wall, [(cfg.name.clone(), addrs)]);
    let (full, crc) = osdmap.encode_with_crc();
    let inc = Incremental {
        modified: now.wall,
        fullmap: full.clone(),
        full_crc: crc,
        ..Incremental::new(new.fsid, Epoch(1))
    };
    let record =
        ClusterRecord { format: FORMAT, fsid: new.fsid, made_by: admin::common::version_line() };
    let mut batch = KvBatch::default();
    batch.put(keys::CLUSTER, denc::encode(&record));
    batch.put(keys::MONMAP, denc::encode(&monmap));
    batch.put(keys::OSDMAP, denc::encode(&(Epoch(1), Epoch(1))));
    batch.put(keys::GLOBAL_ID, denc::encode(&FIRST_GLOBAL_ID));
    batch.put(keys::MGR_EPOCH, denc::encode(&Epoch::ZERO));
    batch.put(keys::full(Epoch(1)), full);
    batch.put(keys::incremental(Epoch(1)), denc::encode(&inc));
    let state = State {
        fsid: new.fsid,
        monmap,
        osdmap: Arc::new(osdmap),
        first_epoch: Epoch(1),
        pruned: Pruned::default(),
        config: BTreeMap::new(),
        config_log: BTreeMap::new(),
        config_key: BTreeMap::new(),
        osd_metadata: BTreeMap::new(),
        osd_numbers: BTreeSet::new(),
        store_marks: BTreeMap::new(),
        gone: BTreeMap::new(),
        creating: BTreeMap::new(),
        global_ids_to: FIRST_GLOBAL_ID,
        mgr_epoch: Epoch::ZERO,
        auth: BTreeMap::new(),
        mutes: BTreeMap::new(),
        fences: BTreeMap::new(),
        tasks: BTreeMap::new(),
        purges: BTreeMap::new(),
    };
    Ok((state, batch))
}

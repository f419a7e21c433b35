//! What stands where in the cluster store.
//!
//! | key | value |
//! |---|---|
//! | `s/cluster` | [`ClusterRecord`](super::ClusterRecord): format, fsid, who made it |
//! | `s/monmap` | MonMap |
//! | `s/osdmap` | first and last epoch kept: u32, u32 |
//! | `s/osdmap-pruned` | [`Pruned`](crate::state::Pruned), if old maps were: which of them are kept whole |
//! | `s/global-id` | u64: ids below this may have been given out |
//! | `s/mgr-epoch` | version of the MgrMap the last life of the mon published: u32 |
//! | `s/config/WHO/NAME` | value of an option, text |
//! | `s/config-log/NUMBER` | [`ConfigChange`](crate::state::ConfigChange) |
//! | `s/key/KEY` | `ceph config-key`: bytes |
//! | `s/osd/ID` | metadata of an OSD: map of text to text |
//! | `s/osd-numbers` | set of i32: numbers that OSDs have had |
//! | `s/store-mark/ID` | [`StoreMark`](crate::osds::StoreMark): how far an OSD's store has come |
//! | `s/gone/UUID` | [`GoneStore`](crate::osds::GoneStore): the store of an OSD that was destroyed or removed |
//! | `s/creating/POOL` | [`Creating`](crate::state::Creating): PGs nobody has reported yet |
//! | `s/auth/ENTITY` | [`AuthEntry`](crate::state::AuthEntry) |
//! | `s/mute/CODE` | [`Mute`](crate::state::Mute) |
//! | `s/fence/ADDRESS` | utime: until when a client is shut out, if longer than its entry in the map says |
//! | `s/task/NUMBER` | [`TaskRecord`](crate::tasks::TaskRecord) |
//! | `s/purge/LEVEL` | set of [`Item`](crate::tasks::Item): when trashes are emptied |
//! | `m/full/EPOCH` | OSDMap, but for pruned ones |
//! | `m/inc/EPOCH` | the Incremental that led to it |
//!
//! Numbers in keys are decimal with leading zeros, so that their order is that of the numbers. All
//! of `s/` is read when a mon starts; it is small.

use types::{Epoch, OsdId, PoolId};

/// The keys that are read at the start: from here ..
pub const STATE_FROM: &str = "s/";
/// .. up to here.
pub const STATE_TO: &str = "s0";
/// See the table.
pub const CLUSTER: &str = "s/cluster";
/// See the table.
pub const MONMAP: &str = "s/monmap";
/// See the table.
pub const OSDMAP: &str = "s/osdmap";
/// See the table.
pub const OSDMAP_PRUNED: &str = "s/osdmap-pruned";
/// See the table.
pub const GLOBAL_ID: &str = "s/global-id";
/// See the table.
pub const MGR_EPOCH: &str = "s/mgr-epoch";
/// See the table.
pub const CONFIG: &str = "s/config/";
/// See the table.
pub const CONFIG_LOG: &str = "s/config-log/";
/// See the table.
pub const CONFIG_KEY: &str = "s/key/";
/// See the table.
pub const OSD: &str = "s/osd/";
/// See the table.
pub const OSD_NUMBERS: &str = "s/osd-numbers";
/// See the table.
pub const STORE_MARK: &str = "s/store-mark/";
/// See the table.
pub const GONE: &str = "s/gone/";
/// See the table.
pub const CREATING: &str = "s/creating/";
/// See the table.
pub const AUTH: &str = "s/auth/";
/// See the table.
pub const MUTE: &str = "s/mute/";
/// See the table.
pub const FENCE: &str = "s/fence/";
/// See the table.
pub const TASK: &str = "s/task/";
/// See the table.
pub const PURGE: &str = "s/purge/";

/// A version of the OSDMap.
pub fn full(epoch: Epoch) -> String {
    format!("m/full/{:010}", epoch.0)
}

/// The change that led to a version of the OSDMap.
pub fn incremental(epoch: Epoch) -> String {
    format!("m/inc/{:010}", epoch.0)
}

/// A value of an option. Names of options have no slash in Ceph's own options; those of modules do
/// (`mgr/NAME/OPTION`), so that WHO is what has none.
pub fn config(who: &str, name: &str) -> String {
    format!("{CONFIG}{}/{name}", who.replace('/', ":mask:"))
}

/// Takes [`config`] apart, without its start.
pub fn parse_config(rest: &str) -> Option<(String, String)> {
    let (who, name) = rest.split_once('/')?;
    Some((who.replace(":mask:", "/"), name.to_owned()))
}

/// An entry of the log of configuration changes.
pub fn config_log(number: u64) -> String {
    format!("{CONFIG_LOG}{number:020}")
}

/// Metadata of an OSD.
pub fn osd(id: OsdId) -> String {
    format!("{OSD}{:010}", id.0)
}

/// How far an OSD's store has come.
pub fn store_mark(id: OsdId) -> String {
    format!("{STORE_MARK}{:010}", id.0)
}

/// The store of an OSD that was destroyed or removed.
pub fn gone(uuid: &str) -> String {
    format!("{GONE}{uuid}")
}

/// PGs to be created.
pub fn creating(pool: PoolId) -> String {
    format!("{CREATING}{:020}", pool.0)
}

/// Work on an image.
pub fn task(number: u64) -> String {
    format!("{TASK}{number:020}")
}

/// When trashes are emptied.
pub fn purge(level: &str) -> String {
    format!("{PURGE}{level}")
}

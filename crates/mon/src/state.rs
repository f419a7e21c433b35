//! What the mon must not forget: everything that is in the cluster store, in memory.
//!
//! [`State`] is changed only together with a [`Draft`](crate::draft::Draft), which takes the same
//! change to the store; nothing that tells of a change leaves before it is committed there.

use crate::osds::{GoneStore, StoreMark};
use crate::tasks::{Item, TaskRecord};
use bytes::Bytes;
use denc::{Decode, Encode};
use maps::{MonMap, OsdMap};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{Epoch, OsdId, PoolId, UTime, Uuid};

/// The cluster store's contents, but for old maps.
#[derive(Clone, Debug)]
pub struct State {
    /// The cluster.
    pub fsid: Uuid,
    /// The monitors.
    pub monmap: MonMap,
    /// The newest committed map.
    pub osdmap: Arc<OsdMap>,
    /// The oldest epoch that is kept.
    pub first_epoch: Epoch,
    /// Which of the old ones are kept whole.
    pub pruned: Pruned,
    /// `ceph config`: who -> option -> value.
    pub config: BTreeMap<String, BTreeMap<String, String>>,
    /// The newest changes of it, by number.
    pub config_log: BTreeMap<u64, ConfigChange>,
    /// `ceph config-key`.
    pub config_key: BTreeMap<String, Bytes>,
    /// What each OSD said of itself when it last booted.
    pub osd_metadata: BTreeMap<OsdId, BTreeMap<String, String>>,
    /// Numbers that OSDs have had, also those that are free again.
    pub osd_numbers: BTreeSet<OsdId>,
    /// How far the stores of OSDs have come.
    pub store_marks: BTreeMap<OsdId, StoreMark>,
    /// Stores of OSDs that were destroyed or removed, by uuid.
    pub gone: BTreeMap<String, GoneStore>,
    /// PGs that were ordered and that nobody has reported yet.
    pub creating: BTreeMap<PoolId, Creating>,
    /// Global ids below this may have been given out.
    pub global_ids_to: u64,
    /// The version of the MgrMap that the last life of the mon published.
    pub mgr_epoch: Epoch,
    /// `ceph auth`: names, their keys and rights.
    pub auth: BTreeMap<String, AuthEntry>,
    /// Health alerts that shall be silent.
    pub mutes: BTreeMap<String, Mute>,
    /// Until when clients are shut out, by address, where that is longer than the map says.
    pub fences: BTreeMap<String, UTime>,
    /// Work on images that is to be done, by number.
    pub tasks: BTreeMap<u64, TaskRecord>,
    /// When trashes are emptied, by [`Level`](crate::tasks::Level).
    pub purges: BTreeMap<String, BTreeSet<Item>>,
}

/// Old maps that are needed for long are many: of most of them only the change that led to them is kept, and whoever
/// wants one gets it made of the last whole one before and the changes since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Pruned {
    /// Of maps before this one only some are kept whole ..
    pub to: Epoch,
    /// .. the oldest one, and those whose epoch is a multiple of this.
    pub every: u32,
}

impl Pruned {
    /// The newest map up to this one that is kept whole; `first` is the oldest map.
    pub fn whole(&self, first: Epoch, epoch: Epoch) -> Epoch {
        if epoch >= self.to {
            return epoch;
        }
        let since = epoch.0.checked_rem(self.every).unwrap_or_default();
        Epoch(epoch.0.saturating_sub(since)).max(first)
    }
}

/// One change of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ConfigChange {
    /// When.
    pub stamp: UTime,
    /// By which command.
    pub name: String,
    /// What changed.
    pub diff: Vec<ConfigDiff>,
}

/// One option in a change of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ConfigDiff {
    /// Whose option.
    pub who: String,
    /// Which.
    pub name: String,
    /// The value before; `None`: not set.
    pub before: Option<String>,
    /// The value after.
    pub after: Option<String>,
}

/// The PGs of a pool that are to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Creating {
    /// The epoch the pool was made in.
    pub created: Epoch,
    /// The seeds of those that nobody has reported.
    pub left: BTreeSet<u32>,
}

/// A name that may use the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct AuthEntry {
    /// Its secret.
    pub key: Vec<u8>,
    /// When the secret was made; a part of how it is shown.
    pub created: UTime,
    /// Its rights: kind of daemon -> what is allowed there.
    pub caps: BTreeMap<String, String>,
}

/// A health alert is silent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Mute {
    /// Until when; zero for no end.
    pub until: UTime,
    /// Also after the alert was gone and came back, or got worse.
    pub sticky: bool,
    /// The summary when it was muted.
    pub summary: String,
    /// How many things were wrong then.
    pub count: i64,
}

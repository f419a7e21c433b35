//! The map of monitors (`MonMap`; guide §3.3).

use crate::flags::Release;
use crate::pool::StringMap;
use denc::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use types::{AddrVec, Epoch, UTime, Uuid};

/// Features that all monitors of a cluster have agreed on (`mon_feature_t`): V(1,1){u64}.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct MonFeatures(pub u64);

impl MonFeatures {
    /// The names of the bits, from the lowest.
    pub const NAMES: [&'static str; 8] = [
        "kraken",
        "luminous",
        "mimic",
        "osdmap-prune",
        "nautilus",
        "octopus",
        "pacific",
        "elector-pinging",
    ];
    /// Those of a new 16.2 cluster.
    pub const FRESH: MonFeatures = MonFeatures(0xff);

    /// The names of those that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.each().map(|(name, _)| name)
    }

    /// Those that are set, by name.
    pub fn each(self) -> impl Iterator<Item = (&'static str, MonFeatures)> {
        let named = Self::NAMES.into_iter().enumerate();
        named
            .map(|(bit, name)| (name, MonFeatures(1 << bit)))
            .filter(move |(_, f)| self.0 & f.0 != 0)
    }
}

/// One monitor (`mon_info_t`): V(5,1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 5, compat = 1)]
pub struct MonInfo {
    /// Its name, without `mon.`.
    pub name: String,
    /// Where it is reached.
    pub addrs: AddrVec,
    /// Clients prefer monitors of lower priority.
    #[denc(since = 2)]
    pub priority: u16,
    /// Weight among monitors of the same priority.
    #[denc(since = 4)]
    pub weight: u16,
    /// Its place in the CRUSH hierarchy.
    #[denc(since = 5)]
    pub crush_loc: StringMap,
}

/// One version of the monitors' map: V(9,6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 9, compat = 6)]
pub struct MonMap {
    /// The cluster.
    pub fsid: Uuid,
    /// The version.
    pub epoch: Epoch,
    /// When this version was made.
    pub last_changed: UTime,
    /// When the cluster was created.
    pub created: UTime,
    /// Features that stay.
    pub persistent_features: MonFeatures,
    /// Features that may go.
    pub optional_features: MonFeatures,
    /// The monitors by name.
    pub mons: BTreeMap<String, MonInfo>,
    /// Their names by rank.
    pub ranks: Vec<String>,
    /// All monitors are of this release or newer.
    #[denc(since = 7)]
    pub min_mon_release: Release,
    /// Ranks that were removed since the last election.
    #[denc(since = 8)]
    pub removed_ranks: BTreeSet<u32>,
    /// How a leader is elected; 1 is "classic".
    #[denc(since = 8)]
    pub strategy: u8,
    /// Monitors that may not lead.
    #[denc(since = 8)]
    pub disallowed_leaders: BTreeSet<String>,
    /// Stretch mode.
    #[denc(since = 9)]
    pub stretch_mode_enabled: bool,
    /// Of stretch mode.
    #[denc(since = 9)]
    pub tiebreaker_mon: String,
    /// Of stretch mode.
    #[denc(since = 9)]
    pub stretch_marked_down_mons: BTreeSet<String>,
}

/// The election strategy "classic".
pub const ELECTION_CLASSIC: u8 = 1;

impl MonMap {
    /// The map of epoch 1 of a new cluster with these monitors. Ranks follow the addresses, as a
    /// new Ceph cluster has them.
    pub fn fresh(
        fsid: Uuid,
        now: UTime,
        mons: impl IntoIterator<Item = (String, AddrVec)>,
    ) -> Self {
        let info = |(name, addrs): (String, AddrVec)| MonInfo { name, addrs, ..MonInfo::default() };
        let mut by_addr: Vec<MonInfo> = mons.into_iter().map(info).collect();
        by_addr.sort_by(|a, b| a.addrs.cmp(&b.addrs));
        let ranks = by_addr.iter().map(|mon| mon.name.clone()).collect();
        let named = by_addr.into_iter().map(|mon| (mon.name.clone(), mon));
        MonMap {
            fsid,
            epoch: Epoch(1),
            last_changed: now,
            created: now,
            persistent_features: MonFeatures::FRESH,
            mons: named.collect(),
            ranks,
            min_mon_release: Release::PACIFIC,
            strategy: ELECTION_CLASSIC,
            ..MonMap::default()
        }
    }

    /// A monitor by its rank.
    pub fn by_rank(&self, rank: usize) -> Option<&MonInfo> {
        self.mons.get(self.ranks.get(rank)?)
    }

    /// A monitor's rank.
    pub fn rank_of(&self, name: &str) -> Option<usize> {
        self.ranks.iter().position(|n| n == name)
    }
}

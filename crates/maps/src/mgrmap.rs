//! The map of managers (`MgrMap`; guide §3.3).
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::{BTreeMap, BTreeSet};
use types::{AddrVec, Epoch, UTime};

/// An option of a manager's module: V(1,1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ModuleOption {
    /// Its name.
    pub name: String,
    /// The type of its value (`Option::type_t`).
    pub kind: u8,
    /// Whom it is for (`Option::level_t`).
    pub level: u8,
    /// Flags (`Option::flag_t`).
    pub flags: u32,
    /// The default.
    pub default_value: String,
    /// The smallest value.
    pub min: String,
    /// The largest value.
    pub max: String,
    /// The values that are allowed; empty for any.
    pub enum_allowed: BTreeSet<String>,
    /// One sentence.
    pub desc: String,
    /// More sentences.
    pub long_desc: String,
    /// Words.
    pub tags: BTreeSet<String>,
    /// Other options.
    pub see_also: BTreeSet<String>,
}

/// A module a manager has: V(2,1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct ModuleInfo {
    /// Its name.
    pub name: String,
    /// Whether it could run.
    pub can_run: bool,
    /// Why it cannot.
    pub error_string: String,
    /// Its options.
    #[denc(since = 2)]
    pub module_options: BTreeMap<String, ModuleOption>,
}

/// A manager that waits: V(4,1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandbyInfo {
    /// Its global id.
    pub gid: u64,
    /// Its name.
    pub name: String,
    /// Its modules.
    pub available_modules: Vec<ModuleInfo>,
    /// Its feature bits.
    pub mgr_features: u64,
}

impl Encode for StandbyInfo {
    fn encode(&self, e: &mut Encoder) {
        e.section(4, 1, |e| {
            let names: BTreeSet<&String> = self.available_modules.iter().map(|m| &m.name).collect();
            e.put(&self.gid).put(&self.name).put(&names);
            e.put(&self.available_modules).put(&self.mgr_features);
        });
    }
}

impl Decode for StandbyInfo {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(4, |d, v| {
            let mut standby =
                StandbyInfo { gid: d.get()?, name: d.get()?, ..StandbyInfo::default() };
            if v >= 2 {
                let _names: BTreeSet<String> = d.get()?;
            }
            if v >= 3 {
                standby.available_modules = d.get()?;
            }
            if v >= 4 {
                standby.mgr_features = d.get()?;
            }
            Ok(standby)
        })
    }
}

/// One version of the managers' map: V(12,6). The default with an epoch is a cluster without
/// managers, which clients accept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 12, compat = 6)]
pub struct MgrMap {
    /// The version.
    pub epoch: Epoch,
    /// Where the active manager is reached.
    pub active_addrs: AddrVec,
    /// Its global id; 0 for none.
    pub active_gid: u64,
    /// Whether it is ready.
    pub available: bool,
    /// Its name.
    pub active_name: String,
    /// The others.
    pub standbys: BTreeMap<u64, StandbyInfo>,
    /// Modules that are enabled.
    pub modules: BTreeSet<String>,
    /// URLs that modules serve.
    pub services: BTreeMap<String, String>,
    /// The modules of the active manager.
    pub available_modules: Vec<ModuleInfo>,
    /// When the active manager last changed.
    #[denc(since = 7)]
    pub active_change: UTime,
    /// Modules that are always enabled, by release.
    #[denc(since = 8)]
    pub always_on_modules: BTreeMap<u32, BTreeSet<String>>,
    /// Feature bits of the active manager.
    #[denc(since = 9)]
    pub active_mgr_features: u64,
    /// The OSDMap epoch in which the last active manager was blocklisted.
    #[denc(since = 10)]
    pub last_failure_osd_epoch: Epoch,
    /// Addresses of the manager's own clients, to blocklist them with it.
    #[denc(since = 11)]
    pub client_addrs: Vec<AddrVec>,
    /// Their names, in the same order.
    #[denc(since = 12)]
    pub client_names: Vec<String>,
}

impl MgrMap {
    /// The map of a cluster without managers.
    pub fn without_managers(epoch: Epoch) -> Self {
        MgrMap { epoch, ..MgrMap::default() }
    }
}

//! What an OSD is told when it starts.

use crate::options::Limits;
use admin::settings::{Settings, Source};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use types::{AddrVec, OsdId, Uuid};

/// What an OSD's process knows from its command line and configuration file.
#[derive(Clone, Debug)]
pub struct OsdConfig {
    /// Its number.
    pub id: OsdId,
    /// The cluster it belongs to; its store must say the same.
    pub cluster: Uuid,
    /// Where the mons are.
    pub mons: Vec<AddrVec>,
    /// Where it listens for clients; port 0 takes a free one.
    pub public: SocketAddr,
    /// Where it listens for other OSDs; port 0 takes a free one.
    pub cluster_net: SocketAddr,
    /// The admin socket, if there is to be one.
    pub admin_socket: Option<PathBuf>,
    /// Options from the configuration file and the command line, see [`known_settings`].
    pub options: BTreeMap<String, String>,
    /// Where it stands, as CRUSH types and names.
    pub location: Vec<(String, String)>,
    /// `hdd`, `ssd`, `nvme`; empty when not known.
    pub device_class: String,
    /// For `ceph osd metadata`.
    pub metadata: BTreeMap<String, String>,
    /// Tells this process from others at the same address.
    pub nonce: u32,
    /// It was marked down in its last life though it lived.
    pub was_alive: bool,
}

impl OsdConfig {
    /// The options with what this configuration says of them. An option that is none of the OSD's is
    /// passed over: the file is shared by everybody.
    pub fn settings(&self) -> Settings {
        let mut settings = known_settings();
        for (name, value) in &self.options {
            if settings.def(name).is_none() {
                continue;
            }
            if let Err(why) = settings.set(Source::File, name, value) {
                tracing::warn!("osd.{}: {name} = {value} is passed over: {why}", self.id);
            }
        }
        settings
    }

    /// Memory for the store's caches and log, until the mon says otherwise.
    pub fn store_bytes(&self) -> usize {
        Limits::of(&self.settings()).store_bytes
    }
}

/// The options that an OSD has.
pub fn known_settings() -> Settings {
    Settings::new([admin::options::OSD])
}

/// How often reports go to the mon when nothing happens, in seconds (`osd_mon_report_interval`).
pub const REPORT_INTERVAL_S: u64 = 5;
/// How soon a changed PG is reported, in milliseconds.
pub const REPORT_DELAY_MS: u64 = 50;
/// How often everything is looked at that has no deadline of its own, in milliseconds.
pub const TICK_MS: u64 = 500;
/// After so long a wish (boot, up_thru, pg_temp) is sent to the mon again, in milliseconds.
pub const ASK_AGAIN_MS: u64 = 2_000;
/// Requests that wait for a PG to go active, at most; whoever sends more holds them from then on
/// ([`crate::backoff`]).
pub const WAITING_OPS_PER_PG: usize = 8192;
/// Reads of an object for copies that wait at it, at most; who asks for more is told to ask again.
pub const WAITING_COPIES_PER_OBJECT: usize = 1024;

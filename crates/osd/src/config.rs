//! What an OSD is told when it starts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use types::{AddrVec, OsdId, Uuid};

/// Settings of an OSD.
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
    /// Memory it may use beside code and the allocator's own: caches, logs, requests in flight.
    pub memory_bytes: usize,
    /// Where it stands, as CRUSH types and names.
    pub location: Vec<(String, String)>,
    /// `hdd`, `ssd`, `nvme`; empty when not known.
    pub device_class: String,
    /// For `ceph osd metadata`.
    pub metadata: BTreeMap<String, String>,
    /// Tells this process from others at the same address.
    pub nonce: u32,
    /// How much at a time.
    pub limits: Limits,
}

impl OsdConfig {
    /// Memory for the store: half of all.
    pub fn store_bytes(&self) -> usize {
        self.memory_bytes / 2
    }

    /// Bytes of client requests in flight, beyond which no more are received: a quarter.
    pub fn request_bytes(&self) -> usize {
        self.memory_bytes / 4
    }
}

/// How often reports go to the mon when nothing happens, in seconds (`osd_mon_report_interval`).
pub const REPORT_INTERVAL_S: u64 = 5;
/// How soon a changed PG is reported, in milliseconds.
pub const REPORT_DELAY_MS: u64 = 50;
/// How often everything is looked at that has no deadline of its own, in milliseconds.
pub const TICK_MS: u64 = 500;
/// After so long a wish (boot, up_thru, pg_temp) is sent to the mon again, in milliseconds.
pub const ASK_AGAIN_MS: u64 = 2_000;
/// Requests that wait for a PG to go active, at most; more are dropped (the client sends again).
pub const WAITING_OPS_PER_PG: usize = 8192;

/// How much at a time. The defaults suit NVMe; tests make them small to meet every boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries of all PGs' logs together (`osd_target_pg_log_entries_per_osd`).
    pub log_entries: usize,
    /// No PG's log is kept shorter than this (`osd_min_pg_log_entries`).
    pub min_log_entries: usize,
    /// Entries of a PG's log that are trimmed at once.
    pub log_trim_entries: usize,
    /// Objects that are pulled or pushed at the same time, of all PGs
    /// (`osd_recovery_max_active` times PGs at work).
    pub recovery_objects: usize,
    /// Bytes of one push message (`osd_recovery_max_chunk`).
    pub push_bytes: u64,
    /// Omap bytes of one push message.
    pub push_omap_bytes: usize,
    /// Omap entries of one push message (`osd_recovery_max_omap_entries_per_chunk`).
    pub push_omap_entries: usize,
    /// Objects compared at once by a backfill (`osd_backfill_scan_max`).
    pub scan_objects: usize,
    /// Objects removed in one transaction when a whole PG goes (`osd_target_transaction_size`).
    pub remove_objects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            log_entries: 200_000,
            min_log_entries: 250,
            log_trim_entries: 64,
            recovery_objects: 16,
            push_bytes: 8 << 20,
            push_omap_bytes: 4 << 20,
            push_omap_entries: 8096,
            scan_objects: 512,
            remove_objects: 64,
        }
    }
}

//! What the map remembers of each OSD.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::flags::OsdState;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use types::{AddrVec, Epoch, UTime, Uuid};

/// Epochs in the life of an OSD (`osd_info_t`): `u8 1`, then six epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OsdInfo {
    /// Start of the last time that it was up and then stopped cleanly.
    pub last_clean_begin: Epoch,
    /// End of it.
    pub last_clean_end: Epoch,
    /// When it last came up.
    pub up_from: Epoch,
    /// While it is up: an epoch until which it has surely been alive.
    pub up_thru: Epoch,
    /// When it last went down.
    pub down_at: Epoch,
    /// When it was declared lost, or zero.
    pub lost_at: Epoch,
}

impl Encode for OsdInfo {
    fn encode(&self, e: &mut Encoder) {
        e.put(&1u8)
            .put(&self.last_clean_begin)
            .put(&self.last_clean_end)
            .put(&self.up_from)
            .put(&self.up_thru)
            .put(&self.down_at)
            .put(&self.lost_at);
    }
}

impl Decode for OsdInfo {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let _version: u8 = d.get()?;
        Ok(OsdInfo {
            last_clean_begin: d.get()?,
            last_clean_end: d.get()?,
            up_from: d.get()?,
            up_thru: d.get()?,
            down_at: d.get()?,
            lost_at: d.get()?,
        })
    }
}

/// More of an OSD (`osd_xinfo_t`): V(4,1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 4, compat = 1)]
pub struct OsdXInfo {
    /// When it last went down.
    pub down_stamp: UTime,
    /// How likely it is slow and not dead, as a fraction of `u32::MAX`.
    pub laggy_probability: u32,
    /// How long it usually stays marked down wrongly, in seconds.
    pub laggy_interval: u32,
    /// The feature bits it booted with.
    #[denc(since = 2)]
    pub features: u64,
    /// The weight it had when it was marked out by time.
    #[denc(since = 3)]
    pub old_weight: u32,
    /// When it last scrubbed its purged snapshots.
    #[denc(since = 4)]
    pub last_purged_snaps_scrub: UTime,
    /// The epoch before which it has surely died.
    #[denc(since = 4)]
    pub dead_epoch: Epoch,
}

impl OsdXInfo {
    /// [`OsdXInfo::laggy_probability`] as a number from 0 to 1.
    pub fn laggy_probability(&self) -> f64 {
        f64::from(self.laggy_probability) / f64::from(u32::MAX)
    }
}

/// Everything of one OSD but its state and weight. On the wire these are separate vectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Osd {
    /// Where clients reach it.
    pub client_addrs: AddrVec,
    /// Where OSDs reach it.
    pub cluster_addrs: AddrVec,
    /// Where OSDs send heartbeats, on the cluster network.
    pub hb_back_addrs: AddrVec,
    /// Where OSDs send heartbeats, on the public network.
    pub hb_front_addrs: AddrVec,
    /// Epochs.
    pub info: OsdInfo,
    /// More.
    pub xinfo: OsdXInfo,
    /// The uuid of its disk.
    pub uuid: Uuid,
}

/// Weight of an OSD that is in, and affinity of one that may be primary: 1.0 as 16.16.
pub const WEIGHT_IN: u32 = crush::WEIGHT_ONE;
/// Weight of an OSD that is out.
pub const WEIGHT_OUT: u32 = 0;
/// What `primary_affinity` is where nothing is said (`CEPH_OSD_DEFAULT_PRIMARY_AFFINITY`).
pub const DEFAULT_PRIMARY_AFFINITY: u32 = WEIGHT_IN;

impl OsdState {
    /// A slot that no OSD has.
    pub const ABSENT: OsdState = OsdState::NONE;
}

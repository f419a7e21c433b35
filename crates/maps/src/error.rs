//! Why a map cannot be made.

use types::{Epoch, Errno, Uuid};

/// An incremental that does not fit its map, or a map that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MapError {
    /// The incremental is not for the next epoch.
    #[error("incremental for epoch {inc} cannot be applied to the map of epoch {map}")]
    WrongEpoch {
        /// The map's epoch.
        map: Epoch,
        /// The incremental's epoch.
        inc: Epoch,
    },
    /// The incremental is of another cluster.
    #[error("incremental of cluster {inc} cannot be applied to the map of cluster {map}")]
    WrongCluster {
        /// The map's cluster.
        map: Uuid,
        /// The incremental's cluster.
        inc: Uuid,
    },
    /// The incremental names an OSD beyond the map.
    #[error("incremental names osd.{id}, but max_osd is {max_osd}")]
    NoSuchOsd {
        /// The OSD.
        id: i32,
        /// Ids are below this.
        max_osd: i32,
    },
    /// The incremental asks for a number of OSDs that cannot be.
    #[error("max_osd cannot be {0}")]
    BadMaxOsd(i32),
    /// The incremental brings an OSD up without its heartbeat addresses.
    #[error("incremental brings osd.{0} up without heartbeat addresses")]
    NoHeartbeatAddrs(i32),
    /// The full map or CRUSH map inside the incremental is damaged.
    #[error("in the incremental: {0}")]
    Decode(#[from] denc::DecodeError),
    /// A full map is not of the epoch or cluster that it should be.
    #[error("the full map is of another epoch or cluster")]
    OtherFullMap,
    /// The map that results has another checksum than the incremental says.
    #[error(
        "the map of epoch {epoch} has checksum {actual:#x}, but the incremental says {wanted:#x}"
    )]
    WrongFullCrc {
        /// The epoch.
        epoch: Epoch,
        /// What the incremental says.
        wanted: u32,
        /// What it is.
        actual: u32,
    },
    /// The fullness ratios are out of order.
    #[error(
        "full ratios are out of order: nearfull {near}, backfillfull {back}, full {full}; \
         each must be at least the one before, and none above 1"
    )]
    BadRatios {
        /// nearfull
        near: f32,
        /// backfillfull
        back: f32,
        /// full
        full: f32,
    },
}

impl MapError {
    /// EINVAL.
    pub fn errno(&self) -> Errno {
        Errno::EINVAL
    }
}

//! What mirroring stores and says, as encoded.

use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use types::{AddrType, EntityAddr, EntityName, UTime};

/// A peer's direction: who sends to whom.
pub mod direction {
    /// The peer sends to us.
    pub const RX: u8 = 0;
    /// We send to the peer.
    pub const TX: u8 = 1;
    pub const RX_TX: u8 = 2;
}

/// Another cluster: MirrorPeer V(2,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct Peer {
    pub uuid: Bytes,
    pub site_name: Bytes,
    pub client_name: Bytes,
    /// Not used any more: -1.
    pub pool: i64,
    #[denc(since = 2)]
    pub direction: u8,
    #[denc(since = 2)]
    pub mirror_uuid: Bytes,
    #[denc(since = 2)]
    pub last_seen: UTime,
}

impl Peer {
    /// Whether it may be stored.
    pub fn is_valid(&self) -> bool {
        let reachable = match self.direction {
            direction::TX => true,
            direction::RX | direction::RX_TX => !self.client_name.is_empty(),
            _ => false,
        };
        reachable && !self.uuid.is_empty() && !self.site_name.is_empty()
    }
}

/// An image that is mirrored: MirrorImage V(2,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct Image {
    pub global_id: Bytes,
    /// 0 disabling, 1 enabled, 2 disabled.
    pub state: u8,
    /// 0 by journal, 1 by snapshots.
    #[denc(since = 2)]
    pub mode: u8,
}

impl Image {
    /// State before it is removed.
    pub const DISABLING: u8 = 0;
    /// State while it is mirrored.
    pub const ENABLED: u8 = 1;
}

/// Which instance of rbd-mirror handles an image: MirrorImageMap V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ImageMap {
    pub instance_id: Bytes,
    pub mapped_time: UTime,
    pub data: Bytes,
}

/// How an image's mirroring goes at one site: MirrorImageSiteStatus, V(1,1) of the own site (with
/// an empty uuid), V(2,2) of another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteStatus {
    pub mirror_uuid: Bytes,
    pub state: u8,
    pub description: Bytes,
    pub last_update: UTime,
    /// Whether who said it still watches.
    pub up: bool,
}

/// States of [`SiteStatus`] that matter here.
pub mod state {
    pub const UNKNOWN: u8 = 0;
    pub const ERROR: u8 = 1;
}

impl SiteStatus {
    /// Whether it is of the own site.
    pub fn is_local(&self) -> bool {
        self.mirror_uuid.is_empty()
    }

    fn encode_body(&self, v: u8, e: &mut Encoder) {
        if v >= 2 {
            e.put(&self.mirror_uuid);
        }
        e.put(&self.state).put(&self.description).put(&self.last_update).put(&self.up);
    }

    fn decode_body(v: u8, d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(SiteStatus {
            mirror_uuid: if v >= 2 { d.get()? } else { Bytes::new() },
            state: d.get()?,
            description: d.get()?,
            last_update: d.get()?,
            up: d.get()?,
        })
    }
}

impl Encode for SiteStatus {
    fn encode(&self, e: &mut Encoder) {
        let v = if self.is_local() { 1 } else { 2 };
        e.section(v, v, |e| self.encode_body(v, e));
    }
}

impl Decode for SiteStatus {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(2, |d, v| Self::decode_body(v, d))
    }
}

/// A client's name and address, of which the protocol does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode)]
pub struct Inst(EntityName, EntityAddr);

impl From<(EntityName, EntityAddr)> for Inst {
    fn from((name, addr): (EntityName, EntityAddr)) -> Self {
        Inst(name, addr.with_kind(AddrType::ANY))
    }
}

impl Decode for Inst {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.get::<(EntityName, EntityAddr)>().map(Inst::from)
    }
}

/// Who said a [`SiteStatus`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Origin {
    pub inst: Inst,
}

/// A [`SiteStatus`] as stored: who said it, then what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct StoredStatus {
    pub origin: Origin,
    pub status: SiteStatus,
}

/// What all sites say about an image: MirrorImageStatus V(2,1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The own site's is the first, if there is one.
    pub sites: Vec<SiteStatus>,
}

impl Status {
    /// What the own site says.
    pub fn local(&self) -> Option<&SiteStatus> {
        self.sites.iter().find(|s| s.is_local())
    }

    /// What the others say.
    pub fn remote(&self) -> impl Iterator<Item = &SiteStatus> {
        self.sites.iter().filter(|s| !s.is_local())
    }
}

impl Encode for Status {
    fn encode(&self, e: &mut Encoder) {
        e.section(2, 1, |e| {
            self.local().unwrap_or(&SiteStatus::default()).encode_body(1, e);
            e.put(&self.local().is_some());
            e.put_count(self.remote().count());
            self.remote().for_each(|s| s.encode_body(2, e));
        });
    }
}

impl Decode for Status {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(2, |d, v| {
            let local = SiteStatus::decode_body(1, d)?;
            let mut sites = Vec::new();
            if v < 2 || d.get()? {
                sites.push(local);
            }
            let remotes = if v >= 2 { d.count()? } else { 0 };
            for _ in 0..remotes {
                sites.push(SiteStatus::decode_body(2, d)?);
            }
            Ok(Status { sites })
        })
    }
}

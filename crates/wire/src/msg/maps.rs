//! Messages that carry maps. The maps themselves are opaque here; crate `maps` knows them.

use super::{Message, OutMessage, PRIORITY_HIGH, Payload, kind, payload};
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;
use types::{Epoch, Uuid};

/// MMonMap (4): `bl MonMap`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MMonMap {
    /// The encoded MonMap.
    pub monmap: Bytes,
}

payload!(MMonMap, kind::MON_MAP, 1 / 1, PRIORITY_HIGH);

/// MOSDMap (41, version 4): full maps and incrementals by epoch.
///
/// `fsid, map<u32, bl> incrementals, map<u32, bl> fulls, u32 oldest, u32 newest, u32 0`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MOsdMap {
    /// The cluster.
    pub fsid: Uuid,
    /// Encoded incrementals.
    pub incrementals: BTreeMap<Epoch, Bytes>,
    /// Encoded full maps.
    pub fulls: BTreeMap<Epoch, Bytes>,
    /// The oldest epoch the sender keeps.
    pub oldest: Epoch,
    /// The newest epoch the sender has.
    pub newest: Epoch,
}

impl MOsdMap {
    /// The newest epoch in this message.
    pub fn last(&self) -> Option<Epoch> {
        let last = |maps: &BTreeMap<Epoch, Bytes>| maps.keys().next_back().copied();
        last(&self.incrementals).max(last(&self.fulls))
    }

    /// The oldest epoch in this message.
    pub fn first(&self) -> Option<Epoch> {
        let first = |maps: &BTreeMap<Epoch, Bytes>| maps.keys().next().copied();
        match (first(&self.incrementals), first(&self.fulls)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

impl Encode for MOsdMap {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.fsid).put(&self.incrementals).put(&self.fulls);
        e.put(&self.oldest).put(&self.newest);
        // gap_removed_snaps: only for clients older than any we serve.
        e.put_count(0);
    }
}

impl Decode for MOsdMap {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let fsid = d.get()?;
        let incrementals = d.get()?;
        Ok(MOsdMap { fsid, incrementals, fulls: d.get()?, oldest: d.get()?, newest: d.get()? })
    }
}

impl Payload for MOsdMap {
    const TYPE: u16 = kind::OSD_MAP;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 3;
    const PRIORITY: u16 = PRIORITY_HIGH;

    fn decode(m: &Message) -> Result<Self, DecodeError> {
        denc::decode(&m.front)
    }

    fn encode(self) -> OutMessage {
        let maps = self.incrementals.values().chain(self.fulls.values());
        let bytes = maps.fold(64, |sum: usize, m| sum.saturating_add(m.len()).saturating_add(8));
        let mut e = Encoder::with_capacity(bytes);
        e.put(&self);
        OutMessage::new::<Self>(e.into_bytes())
    }
}

/// MMgrMap (0x704): the MgrMap itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MMgrMap {
    /// The encoded MgrMap, without a length before it.
    pub mgrmap: Bytes,
}

impl Payload for MMgrMap {
    const TYPE: u16 = kind::MGR_MAP;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = PRIORITY_HIGH;

    fn decode(m: &Message) -> Result<Self, DecodeError> {
        Ok(MMgrMap { mgrmap: m.front.clone() })
    }

    fn encode(self) -> OutMessage {
        OutMessage::new::<Self>(self.mgrmap)
    }
}

/// MMDSMap (21, version 2): `fsid, u32 epoch, bl MDSMap, str fs name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MMdsMap {
    /// The cluster.
    pub fsid: Uuid,
    /// The map's epoch.
    pub epoch: Epoch,
    /// The encoded MDSMap.
    pub mdsmap: Bytes,
    /// The file system's name.
    pub fs_name: String,
}

payload!(MMdsMap, kind::MDS_MAP, 2 / 1, PRIORITY_HIGH);

/// MFSMap (45): `u32 epoch` and the FSMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MFsMap {
    /// The map's epoch.
    pub epoch: Epoch,
    /// The encoded FSMap, without a length before it.
    pub fsmap: Bytes,
}

/// MFSMapUser (103): `u32 epoch` and the FSMapUser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MFsMapUser {
    /// The map's epoch.
    pub epoch: Epoch,
    /// The encoded FSMapUser, without a length before it.
    pub fsmap: Bytes,
}

macro_rules! epoch_and_rest {
    ($name:ident, $kind:expr) => {
        impl Payload for $name {
            const TYPE: u16 = $kind;
            const VERSION: u16 = 1;
            const COMPAT: u16 = 1;
            const PRIORITY: u16 = PRIORITY_HIGH;

            fn decode(m: &Message) -> Result<Self, DecodeError> {
                let mut d = Decoder::new(&m.front);
                let epoch = d.get()?;
                let fsmap = d.take(d.remaining())?;
                Ok($name { epoch, fsmap })
            }

            fn encode(self) -> OutMessage {
                let mut e = Encoder::with_capacity(self.fsmap.len().saturating_add(4));
                e.put(&self.epoch);
                e.put_raw(&self.fsmap);
                OutMessage::new::<Self>(e.into_bytes())
            }
        }
    };
}

epoch_and_rest!(MFsMap, kind::FS_MAP);
epoch_and_rest!(MFsMapUser, kind::FS_MAP_USER);

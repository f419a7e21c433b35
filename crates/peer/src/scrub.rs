//! Scrub: between OSDs, and from the mon.

use crate::payload;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use pg::scrub::ScrubObject;
use types::{Epoch, HObject, PgId};

/// What is said of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Primary to replica: may we scrub?
    Ask,
    /// Replica to primary: yes.
    Grant,
    /// Replica to primary: not now, enough is being scrubbed here.
    Refuse,
    /// Primary to replica: it is over.
    Release,
}

impl Encode for Reserve {
    fn encode(&self, e: &mut Encoder) {
        let number: u8 = match self {
            Reserve::Ask => 0,
            Reserve::Grant => 1,
            Reserve::Refuse => 2,
            Reserve::Release => 3,
        };
        e.put(&number);
    }
}

impl Decode for Reserve {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match d.get::<u8>()? {
            0 => Reserve::Ask,
            1 => Reserve::Grant,
            2 => Reserve::Refuse,
            3 => Reserve::Release,
            _ => return Err(d.invalid("an unknown word about reservations")),
        })
    }
}

/// Between primary and replica: who scrubs when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ScrubReserve {
    /// Which PG.
    pub pgid: PgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// What is said.
    pub what: Reserve,
}
payload!(ScrubReserve, 32);

/// Primary to replica: list your objects of `begin..end`. All writes of them that were sent before
/// are committed, and no other is sent until the chunk is done.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ScrubAsk {
    /// Which PG.
    pub pgid: PgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// Counts the chunks of a scrub.
    pub number: u64,
    /// The first object.
    pub begin: HObject,
    /// Behind the last.
    pub end: HObject,
    /// With digests of everything.
    pub deep: bool,
}
payload!(ScrubAsk, 33);

/// The answer to [`ScrubAsk`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ScrubList {
    /// Which PG.
    pub pgid: PgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// As asked.
    pub number: u64,
    /// Everything before this is listed.
    pub end: HObject,
    /// The objects cannot be listed.
    pub failed: bool,
    /// The objects.
    pub objects: Vec<ScrubObject>,
}
payload!(ScrubList, 34);

/// Mon to the primary: an operator wants these PGs scrubbed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ScrubOrder {
    /// The mon's map: by it the receiver leads them.
    pub epoch: Epoch,
    /// Which PGs.
    pub pgs: Vec<PgId>,
    /// All data is to be read.
    pub deep: bool,
    /// What is wrong is to be repaired.
    pub repair: bool,
}
payload!(ScrubOrder, 9);

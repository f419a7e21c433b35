//! Recovery: whose turn it is, between OSDs; what an operator wants first, from the mon.

use crate::payload;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use types::{Epoch, PgId};

/// What is said of a place for recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Primary to a copy that gets objects: may they come? More urgent is greater.
    Ask {
        /// See `pg::Reserver`.
        priority: u8,
        /// Whether the copy is to be filled.
        backfill: bool,
    },
    /// Copy to primary: yes.
    Grant,
    /// Copy to primary: not any more, something more urgent came.
    Revoke,
    /// Copy to primary: there is no space here.
    TooFull,
    /// Primary to copy: it is over.
    Release,
}

impl Encode for Place {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Place::Ask { priority, backfill } => e.put(&0u8).put(priority).put(backfill),
            Place::Grant => e.put(&1u8),
            Place::Revoke => e.put(&2u8),
            Place::TooFull => e.put(&3u8),
            Place::Release => e.put(&4u8),
        };
    }
}

impl Decode for Place {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match d.get::<u8>()? {
            0 => Place::Ask { priority: d.get()?, backfill: d.get()? },
            1 => Place::Grant,
            2 => Place::Revoke,
            3 => Place::TooFull,
            4 => Place::Release,
            _ => return Err(d.invalid("an unknown word about places")),
        })
    }
}

/// Between a primary and a copy that gets objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct RecoveryPlace {
    /// Which PG.
    pub pgid: PgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// What is said.
    pub what: Place,
}
payload!(RecoveryPlace, 40);

/// Mon to the primary: an operator wants these PGs recovered first, or no longer first.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct RecoveryOrder {
    /// The mon's map: by it the receiver leads them.
    pub epoch: Epoch,
    /// Which PGs.
    pub pgs: Vec<PgId>,
    /// Backfill; else recovery by log.
    pub backfill: bool,
    /// Takes it back.
    pub cancel: bool,
}
payload!(RecoveryOrder, 13);

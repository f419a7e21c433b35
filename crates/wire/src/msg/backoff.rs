//! Asking a client to hold back requests.

use super::{PRIORITY_DEFAULT, kind, payload};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use types::{Epoch, HObject, SpgId};

/// What a backoff message says (`CEPH_OSD_BACKOFF_OP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackoffOp {
    /// OSD to client: hold requests for the range.
    Block,
    /// Client to OSD: held.
    AckBlock,
    /// OSD to client: send them again.
    Unblock,
}

impl Encode for BackoffOp {
    fn encode(&self, e: &mut Encoder) {
        let n: u8 = match self {
            BackoffOp::Block => 1,
            BackoffOp::AckBlock => 2,
            BackoffOp::Unblock => 3,
        };
        e.put(&n);
    }
}

impl Decode for BackoffOp {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match d.get::<u8>()? {
            1 => Ok(BackoffOp::Block),
            2 => Ok(BackoffOp::AckBlock),
            3 => Ok(BackoffOp::Unblock),
            _ => Err(d.invalid("an unknown backoff operation")),
        }
    }
}

/// MOSDBackoff (61): `spg_t, u32 epoch, u8 op, u64 id, hobject begin, hobject end`.
///
/// The range is [begin, end), or the single object when both are the same.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct MOsdBackoff {
    /// The PG.
    pub pgid: SpgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// What to do.
    pub op: BackoffOp,
    /// Names the backoff; chosen by the OSD.
    pub id: u64,
    /// First object.
    pub begin: HObject,
    /// End, not included.
    pub end: HObject,
}

payload!(MOsdBackoff, kind::OSD_BACKOFF, 1 / 1, PRIORITY_DEFAULT);

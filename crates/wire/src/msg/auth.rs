//! Ticket renewal on an open connection to a mon.

use super::{PRIORITY_DEFAULT, PRIORITY_HIGH, PaxosHeader, kind, payload};
use bytes::Bytes;
use denc::{Decode, Encode};

/// MAuth (17): `hdr, u32 protocol, bl payload, u32 monmap epoch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MAuth {
    /// Unused.
    pub paxos: PaxosHeader,
    /// Authentication method.
    pub protocol: u32,
    /// Of the method.
    pub payload: Bytes,
    /// 0.
    pub monmap_epoch: u32,
}

payload!(MAuth, kind::AUTH, 1 / 1, PRIORITY_DEFAULT);

/// MAuthReply (18): `u32 protocol, i32 result, u64 global_id, bl payload, str msg`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MAuthReply {
    /// Authentication method.
    pub protocol: u32,
    /// 0 or a negative error number.
    pub result: i32,
    /// The client's global id.
    pub global_id: u64,
    /// Of the method.
    pub payload: Bytes,
    /// For people.
    pub message: String,
}

payload!(MAuthReply, kind::AUTH_REPLY, 1 / 1, PRIORITY_HIGH);

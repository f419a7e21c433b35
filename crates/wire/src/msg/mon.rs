//! Messages between clients and the mon (guide §3.2).

use super::{PRIORITY_DEFAULT, PRIORITY_HIGH, kind, payload};
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;
use types::{Epoch, Uuid};

/// What a PaxosServiceMessage begins with: `u64 version, i16 -1, u64 0`, 18 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaxosHeader {
    /// In a request: the map epoch the sender has at least.
    pub version: u64,
}

impl Encode for PaxosHeader {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.version).put(&-1i16).put(&0u64);
    }
}

impl Decode for PaxosHeader {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let version = d.get()?;
        // Forwarding between mons: the first mon's rank and its session's tid.
        d.get::<i16>()?;
        d.get::<u64>()?;
        Ok(PaxosHeader { version })
    }
}

/// MMonGetMap (5): no payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MMonGetMap {}

payload!(MMonGetMap, kind::MON_GET_MAP, 1 / 1, PRIORITY_DEFAULT);

/// MConfig (62): `map<str, str>`. A client does not start without one, be it empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MConfig {
    /// Option name to value.
    pub config: BTreeMap<String, String>,
}

payload!(MConfig, kind::CONFIG, 1 / 1, PRIORITY_HIGH);

/// One entry of [`MMonSubscribe`]: `u64 start, u8 flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Subscription {
    /// The first epoch wanted.
    pub start: u64,
    /// See [`Subscription::ONETIME`].
    pub flags: u8,
}

impl Subscription {
    /// Flag: forget the subscription when it was served once.
    pub const ONETIME: u8 = 1;

    /// Whether it ends when served.
    pub fn is_onetime(self) -> bool {
        self.flags & Self::ONETIME != 0
    }
}

/// MMonSubscribe (15, version 3): `map<str, {u64, u8}>, str hostname`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode)]
pub struct MMonSubscribe {
    /// What is wanted: `monmap`, `osdmap`, `config`, ...
    pub what: BTreeMap<String, Subscription>,
    /// The client's host, for people. Empty: not said.
    pub hostname: String,
}

impl Decode for MMonSubscribe {
    /// Version 2, which kernels send (`net/ceph/mon_client.c: __send_subscribe`), ends behind the map.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let what = d.get()?;
        let hostname = if d.remaining() > 0 { d.get()? } else { String::new() };
        Ok(MMonSubscribe { what, hostname })
    }
}

payload!(MMonSubscribe, kind::MON_SUBSCRIBE, 3 / 1, PRIORITY_DEFAULT);

/// MMonGetOSDMap (6): maps by their epochs: `paxos, u32 full_first, u32 full_last, u32 inc_first, u32 inc_last`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MMonGetOsdMap {
    /// Not used.
    pub paxos: PaxosHeader,
    /// The first full map that is wanted.
    pub full_first: Epoch,
    /// And the last one; none if it is less.
    pub full_last: Epoch,
    /// The same of incrementals.
    pub inc_first: Epoch,
    /// The same of incrementals.
    pub inc_last: Epoch,
}

payload!(MMonGetOsdMap, kind::MON_GET_OSDMAP, 1 / 1, PRIORITY_DEFAULT);

/// MMonGetVersion (19): `u64 handle, str what`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MMonGetVersion {
    /// Returned in the answer.
    pub handle: u64,
    /// The map: `osdmap`, `mdsmap`, `fsmap`, `monmap`.
    pub what: String,
}

payload!(MMonGetVersion, kind::MON_GET_VERSION, 1 / 1, PRIORITY_DEFAULT);

/// MMonGetVersionReply (20, version 2): `u64 handle, u64 newest, u64 oldest`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MMonGetVersionReply {
    /// Of the request.
    pub handle: u64,
    /// The newest epoch.
    pub newest: u64,
    /// The oldest epoch kept.
    pub oldest: u64,
}

payload!(MMonGetVersionReply, kind::MON_GET_VERSION_REPLY, 2 / 2, PRIORITY_HIGH);

/// MMonCommand (50): `hdr, fsid, vec<str> cmd`; data = input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MMonCommand {
    /// The map epoch the client has at least.
    pub paxos: PaxosHeader,
    /// The cluster it is meant for.
    pub fsid: Uuid,
    /// One element: the command as JSON.
    pub cmd: Vec<String>,
    /// Input (`-i FILE`).
    #[denc(skip)]
    pub data: Bytes,
}

payload!(MMonCommand, kind::MON_COMMAND, 1 / 1, PRIORITY_DEFAULT, data = data);

/// MMonCommandAck (51): `hdr, i32 r, str outs, vec<str> cmd`; data = output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MMonCommandAck {
    /// The version in which the change is visible.
    pub paxos: PaxosHeader,
    /// 0 or more, or a negative error number.
    pub result: i32,
    /// For people; the CLI prints it to stderr.
    pub outs: String,
    /// The command as it came.
    pub cmd: Vec<String>,
    /// Output; the CLI prints it byte for byte.
    #[denc(skip)]
    pub data: Bytes,
}

payload!(MMonCommandAck, kind::MON_COMMAND_ACK, 1 / 1, PRIORITY_HIGH, data = data);

//! Payloads of control frames (Ceph `msg/async/frames_v2.h`, guide §1.4).
//!
//! Each is the only segment of a frame of the tag of the same name. Addresses are always in the
//! newest form.

use bytes::Bytes;
use denc::{Decode, Encode};
use types::{AddrVec, EntityAddr, EntityType};

/// The banner's first eight bytes.
pub const BANNER_MAGIC: &[u8; 8] = b"ceph v2\n";
/// Bytes of the banner's payload: two u64 of messenger features.
pub const BANNER_PAYLOAD_BYTES: u16 = 16;
/// Messenger feature bit 0: frames of revision 1 (msgr2.1).
pub const MSGR2_REVISION_1: u64 = 1;

/// `flags` bit of idents: on loss of the connection the session is lost.
pub const IDENT_LOSSY: u64 = 1;

/// Feature bits a peer must have: addresses in the newest form (MSG_ADDR2).
pub const FEATURES_REQUIRED: u64 = 1 << 59;
/// Feature bits we state, those of Ceph 16.2.15 (`CEPH_FEATURES_ALL`).
pub const FEATURES_SUPPORTED: u64 = 0x3f01_cfbd_fffd_ffff;

/// HELLO: `u8 entity type, entity_addr`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    /// What the sender is.
    pub entity: EntityType,
    /// Where the sender sees the receiver.
    pub peer_addr: EntityAddr,
}

/// AUTH_REQUEST: `u32 method, vec<u32> modes, bl payload`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct AuthRequest {
    /// Authentication method, see [`crate::connection::auth`].
    pub method: u32,
    /// Connection modes, the preferred one first.
    pub modes: Vec<u32>,
    /// Of the method.
    pub payload: Bytes,
}

/// AUTH_BAD_METHOD: `u32 method, i32 result, vec<u32> methods, vec<u32> modes`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct AuthBadMethod {
    /// The method that was tried.
    pub method: u32,
    /// Negative error number.
    pub result: i32,
    /// Methods that are taken.
    pub allowed_methods: Vec<u32>,
    /// Connection modes that are taken.
    pub allowed_modes: Vec<u32>,
}

/// AUTH_DONE: `u64 global_id, u32 mode, bl payload`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct AuthDone {
    /// The client's global id.
    pub global_id: u64,
    /// The connection mode from now on.
    pub con_mode: u32,
    /// Of the method.
    pub payload: Bytes,
}

/// CLIENT_IDENT.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ClientIdent {
    /// The client's addresses: its identity for blocklists and watches.
    pub addrs: AddrVec,
    /// Whom it wants to reach.
    pub target: EntityAddr,
    /// Its number: global id or OSD id; -1 when it has none yet.
    pub gid: i64,
    /// Counts the connections of the client's messenger.
    pub global_seq: u64,
    /// Feature bits it has.
    pub supported: u64,
    /// Feature bits it insists on.
    pub required: u64,
    /// [`IDENT_LOSSY`].
    pub flags: u64,
    /// Names the client's end of a lossless session; 0 for a lossy one.
    pub cookie: u64,
}

/// SERVER_IDENT.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ServerIdent {
    /// The server's addresses; the client checks that its target is among them.
    pub addrs: AddrVec,
    /// Its number: OSD id or mon rank.
    pub gid: i64,
    /// Counts the connections of the server's messenger.
    pub global_seq: u64,
    /// Feature bits it has.
    pub supported: u64,
    /// Feature bits it insists on.
    pub required: u64,
    /// [`IDENT_LOSSY`]: the server decides.
    pub flags: u64,
    /// Names the server's end of a lossless session; 0 for a lossy one.
    pub cookie: u64,
}

/// SESSION_RECONNECT.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SessionReconnect {
    /// The client's addresses.
    pub addrs: AddrVec,
    /// The session's client cookie.
    pub client_cookie: u64,
    /// The session's server cookie.
    pub server_cookie: u64,
    /// Counts the connections of the client's messenger.
    pub global_seq: u64,
    /// Counts the reconnects of the session.
    pub connect_seq: u64,
    /// The last message the client received.
    pub msg_seq: u64,
}

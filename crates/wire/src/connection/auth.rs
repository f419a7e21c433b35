//! Authentication methods (guide §1.6).
//!
//! Only method none is spoken yet. Cephx joins here: its server and client steps are fed with the
//! payloads of AUTH_REQUEST(_MORE) and AUTH_REPLY_MORE and end with a session key, from which
//! AUTH_SIGNATURE and, in secure mode, the keys of [`crate::frame::FrameMode`] come.

use bytes::Bytes;
use denc::{Decode, Encode};
use types::EntityType;

/// Method: no authentication.
pub const METHOD_NONE: u32 = 1;
/// Method: cephx.
pub const METHOD_CEPHX: u32 = 2;
/// Connection mode: checksums.
pub const MODE_CRC: u32 = 1;
/// Connection mode: encrypted.
pub const MODE_SECURE: u32 = 2;

/// First byte of an AUTH_REQUEST's payload: to a mon.
pub const AUTH_MODE_MON: u8 = 10;
/// First byte of an AUTH_REQUEST's payload: to any other daemon.
pub const AUTH_MODE_AUTHORIZER: u8 = 1;

/// Payload of AUTH_REQUEST with method none:
/// `u8 mode, u32 entity type, str entity id, u64 global_id`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NoneRequest {
    /// [`AUTH_MODE_MON`] or [`AUTH_MODE_AUTHORIZER`].
    pub mode: u8,
    /// As whom, by kind.
    pub entity: u32,
    /// As whom: `admin` of `client.admin`.
    pub id: String,
    /// The client's global id; 0 asks a mon for one.
    pub global_id: u64,
}

impl NoneRequest {
    /// What a dialler presents to a daemon of kind `to`.
    pub fn new(to: EntityType, entity: EntityType, id: &str, global_id: u64) -> Self {
        NoneRequest {
            mode: if to == EntityType::MON { AUTH_MODE_MON } else { AUTH_MODE_AUTHORIZER },
            entity: u32::from(entity.0),
            id: id.to_owned(),
            global_id,
        }
    }
}

/// What a peer authenticated as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthName {
    /// The kind, `client` of `client.admin`. May differ from what HELLO says: a mgr's librados is a
    /// client there.
    pub kind: EntityType,
    /// The name, `admin` of `client.admin`.
    pub id: String,
}

/// The 32 bytes of AUTH_SIGNATURE without a session key.
pub const NO_SIGNATURE: [u8; 32] = [0; 32];

/// Whether a signature is the one of method none.
pub(super) fn is_no_signature(payload: &Bytes) -> bool {
    payload[..] == NO_SIGNATURE
}

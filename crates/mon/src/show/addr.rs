//! Addresses in JSON.

use serde_json::{Value, json};
use types::{AddrType, AddrVec, EntityAddr};

/// What Ceph prints of an address that is none.
const BLANK: &str = "(unrecognized address family 0)";

/// `127.0.0.1:6800`, without type and nonce.
fn sock(addr: &EntityAddr) -> String {
    addr.sock.map_or_else(|| BLANK.to_owned(), |s| s.to_string())
}

/// `{"type": "v2", "addr": "127.0.0.1:6800", "nonce": 1}`
pub(crate) fn addr_json(addr: &EntityAddr) -> Value {
    let kind = if addr.kind == AddrType::NONE { "none" } else { addr.kind.prefix() };
    json!({"type": kind, "addr": sock(addr), "nonce": addr.nonce})
}

/// `{"addrvec": [..]}`
pub(crate) fn addrvec_json(addrs: &AddrVec) -> Value {
    json!({"addrvec": addrs.0.iter().map(addr_json).collect::<Vec<_>>()})
}

/// The one address that old tools look at: `127.0.0.1:6801/1`.
pub(crate) fn legacy(addrs: &AddrVec) -> String {
    match addrs.legacy().or(addrs.0.first()) {
        Some(addr) => format!("{}/{}", sock(addr), addr.nonce),
        None => format!("{BLANK}/0"),
    }
}

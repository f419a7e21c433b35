//! Reading `vectors/`.

use bytes::Bytes;
use maps::{Incremental, OsdMap};
use std::path::PathBuf;

/// Epochs of the sample chain.
pub const EPOCHS: std::ops::RangeInclusive<u32> = 1..=140;

/// The folder of sample files.
pub fn vectors() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors"))
}

pub fn read(path: &str) -> Bytes {
    let path = vectors().join(path);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).into()
}

pub fn text(path: &str) -> String {
    String::from_utf8(read(path).to_vec()).unwrap()
}

pub fn json(path: &str) -> serde_json::Value {
    serde_json::from_slice(&read(path)).unwrap()
}

pub fn full_bytes(epoch: u32) -> Bytes {
    read(&format!("osdmap/chain/full.{epoch}.bin"))
}

pub fn full(epoch: u32) -> OsdMap {
    denc::decode_all(&full_bytes(epoch)).unwrap()
}

pub fn inc_bytes(epoch: u32) -> Bytes {
    read(&format!("osdmap/chain/inc.{epoch}.bin"))
}

pub fn inc(epoch: u32) -> Incremental {
    denc::decode_all(&inc_bytes(epoch)).unwrap()
}

pub fn unhex(s: &str) -> Bytes {
    let digit = |i: usize| u8::from_str_radix(&s[i..i + 2], 16).unwrap();
    (0..s.len()).step_by(2).map(digit).collect::<Vec<_>>().into()
}

//! Samples: what real Ceph made (`vectors/`), and what we make ourselves.

use bytes::Bytes;
use denc::Encode;
use serde_json::Value;
use std::path::{Path, PathBuf};
use types::{AddrVec, Epoch, Eversion, HObject, OsdId, PgId, PoolId, Uuid};

/// Samples longer than this slow the search down more than they help it.
const MAX_BYTES: usize = 128 << 10;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files below a folder whose names match, in a fixed order; not the largest ones.
pub fn files(folder: &str, wanted: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
    let mut all = all_sizes(folder, wanted);
    all.retain(|bytes| bytes.len() <= MAX_BYTES);
    all
}

/// As [`files`], of any size.
pub fn all_sizes(folder: &str, wanted: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
    let mut folders = vec![root().join(folder)];
    let mut paths = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if wanted(&entry.file_name().to_string_lossy()) {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths.iter().filter_map(|p| std::fs::read(p).ok()).collect()
}

/// One file; empty if it is not there.
pub fn one(path: &str) -> Vec<u8> {
    std::fs::read(root().join(path)).unwrap_or_default()
}

/// The built-in instances of a type of Ceph's.
pub fn instances(name: &str) -> Vec<Vec<u8>> {
    let text = one(&format!("vectors/enc/{name}.json"));
    let value: Value = serde_json::from_slice(&text).unwrap_or_default();
    let tests = value["tests"].as_array().cloned().unwrap_or_default();
    tests.iter().filter_map(|t| hex(t["hex"].as_str()?)).collect()
}

/// Captured messages: where the front ends (two bytes), front, data.
pub fn messages() -> Vec<Vec<u8>> {
    let text = one("vectors/enc/live-messages.json");
    let value: Value = serde_json::from_slice(&text).unwrap_or_default();
    let all = value.as_array().cloned().unwrap_or_default();
    let one = |m: &Value| {
        let (front, data) = (hex(m["front"].as_str()?)?, hex(m["data"].as_str()?)?);
        let cut = u16::try_from(front.len()).ok()?.to_le_bytes();
        Some([&cut[..], &front, &data].concat())
    };
    all.iter().filter_map(one).collect()
}

/// Recorded connections, each with a first byte that says how long its pieces are.
pub fn streams() -> Vec<Vec<u8>> {
    let all = files("vectors/wire", |name| name.ends_with(".bin"));
    all.into_iter().map(|s| [&[0xfe][..], &s].concat()).collect()
}

pub fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16);
    let pair = |p: &[u8]| match p {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

/// Encodes a value that is not empty, so that every part of it is there to be damaged.
pub fn own(value: &impl Encode) -> Vec<u8> {
    denc::encode(value).to_vec()
}

/// A name with everything in it.
pub fn object() -> HObject {
    HObject {
        pool: PoolId(3),
        hash: 0x1234_5678,
        nspace: "ns".into(),
        key: "key".into(),
        name: "some\0object".into(),
        ..HObject::min()
    }
}

pub fn pg() -> PgId {
    PgId::new(PoolId(3), 5)
}

pub fn version(n: u64) -> Eversion {
    Eversion { epoch: Epoch(9), version: n }
}

pub fn addrs() -> AddrVec {
    AddrVec::msgr2(std::net::SocketAddr::from(([127, 0, 0, 1], 6800)), 77)
}

pub const OSD: OsdId = OsdId(2);
pub const CLUSTER: Uuid = Uuid([7; 16]);

pub fn blob() -> Bytes {
    Bytes::from_static(b"some bytes that mean nothing")
}

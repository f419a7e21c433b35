//! The decoders, each with its samples.
//!
//! What can be decoded is also encoded and decoded again, and used: a map that places nothing
//! without a panic is not decoded well.

use crate::{classes, corpus, disk, ours};
use bytes::Bytes;
use crush::CrushMap;
use denc::{Decode, Encode};
use maps::{Incremental, MgrMap, MonMap, OsdMap};
use std::sync::OnceLock;
use types::{ObjectKey, PgId};

/// A decoder.
pub struct Target {
    /// For the command line.
    pub name: &'static str,
    /// What is fed.
    pub what: &'static str,
    /// What to begin with.
    pub samples: fn() -> Vec<Vec<u8>>,
    /// Feeds bytes. Whether they were accepted.
    pub feed: fn(&[u8]) -> bool,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "frames",
        what: "a connection's bytes, from the banner on",
        samples: corpus::streams,
        feed: |b| {
            wire::fuzz_frames(b);
            true
        },
    },
    Target {
        name: "messages",
        what: "front and data of every message between client and daemon",
        samples: corpus::messages,
        feed: |b| {
            wire::fuzz_messages(b);
            true
        },
    },
    Target {
        name: "ours",
        what: "messages between daemons, PG records, transactions",
        samples: ours::samples,
        feed: ours::feed,
    },
    Target {
        name: "osdmap",
        what: "a whole OSDMap",
        samples: || corpus::files("vectors/osdmap", |n| n.starts_with("full.") && is_bin(n)),
        feed: osdmap,
    },
    Target {
        name: "inc",
        what: "an incremental OSDMap, and applying it",
        samples: || corpus::files("vectors/osdmap", |n| n.starts_with("inc.") && is_bin(n)),
        feed: incremental,
    },
    Target {
        name: "maps",
        what: "MonMap and MgrMap",
        samples: || corpus::instances("MonMap"),
        feed: |b| again::<MonMap>(b) | again::<MgrMap>(b),
    },
    Target {
        name: "crush",
        what: "a CRUSH map, and placing by it",
        samples: || corpus::files("vectors/crush", is_bin),
        feed: |b| {
            let Some(map) = decoded::<CrushMap>(b) else { return false };
            place(&map);
            let _ = crush::decompile(&map);
            again::<CrushMap>(b)
        },
    },
    Target {
        name: "crushtext",
        what: "the text of a CRUSH map",
        samples: || corpus::files("vectors/crush", |n| n.ends_with(".txt")),
        feed: |b| {
            let Ok(map) = crush::compile(&String::from_utf8_lossy(b)) else { return false };
            place(&map);
            // It need not compile again: weights from 32768 on are written as Ceph writes them,
            // which is negative.
            let _ = crush::compile(&crush::decompile(&map));
            true
        },
    },
    Target {
        name: "keys",
        what: "object keys and names",
        samples: ours::key_samples,
        feed: |b| {
            let Ok(object) = ObjectKey::from_bytes(b).decode() else { return false };
            let back = object.to_key().decode();
            assert!(back.is_ok_and(|o| o == object), "another object comes back");
            true
        },
    },
    Target {
        name: "store",
        what: "the disk of an OSD, checked by fsck",
        samples: disk::samples,
        feed: disk::feed,
    },
    Target {
        name: "classes",
        what: "methods of object classes, on an object full of nonsense",
        samples: classes::samples,
        feed: classes::feed,
    },
    Target {
        name: "commands",
        what: "commands of mon and admin socket",
        samples: ours::command_samples,
        feed: ours::command,
    },
    Target {
        name: "conf",
        what: "ceph.conf, sizes, ids and addresses that people type",
        samples: ours::conf_samples,
        feed: |b| {
            let text = String::from_utf8_lossy(b);
            let _ = text.parse::<loligo::sizes::Bytes>();
            let _ = (text.parse::<PgId>(), text.parse::<types::Uuid>());
            loligo::conf::ClientConf::parse(&text).is_ok()
        },
    },
];

fn is_bin(name: &str) -> bool {
    name.ends_with(".bin")
}

pub fn decoded<T: Decode>(bytes: &[u8]) -> Option<T> {
    denc::decode(&Bytes::copy_from_slice(bytes)).ok()
}

/// What can be decoded must survive being encoded and decoded again.
pub fn again<T: Decode + Encode + PartialEq>(bytes: &[u8]) -> bool {
    let Some(value) = decoded::<T>(bytes) else { return false };
    let back = denc::decode::<T>(&denc::encode(&value));
    assert!(back.is_ok_and(|b| b == value), "decodes differently the second time");
    true
}

/// A few placements. Each is bounded, but a map may demand a third of a second's work.
fn place(map: &CrushMap) {
    let weights = [0x1_0000; 16];
    for rule in 0..3 {
        for x in 0..2 {
            let _ = map.do_rule(rule, x, 3, &weights, None);
        }
    }
}

fn use_map(map: &OsdMap) {
    const PGS: u32 = 2;
    for (id, pool) in map.pools.iter().take(3) {
        for ps in 0..pool.pg_num.min(PGS) {
            let _ = map.pg_to_up_acting(PgId::new(*id, ps));
        }
        let _ = map.object_to_pg(*id, b"ns", b"", b"name");
    }
    for osd in map.osd_ids().take(64) {
        let _ = (map.client_addrs(osd), map.effective_flags(osd), map.primary_affinity(osd));
    }
}

fn osdmap(bytes: &[u8]) -> bool {
    let Some(map) = decoded::<OsdMap>(bytes) else { return false };
    use_map(&map);
    let back = denc::decode::<OsdMap>(&denc::encode(&map));
    assert!(back.is_ok(), "what we encode we can decode: {back:?}");
    true
}

fn incremental(bytes: &[u8]) -> bool {
    // The map before the incremental, if the corpus has it; any other refuses by its epoch.
    static FULLS: OnceLock<Vec<OsdMap>> = OnceLock::new();
    let fulls = FULLS.get_or_init(|| {
        let all = corpus::files("vectors/osdmap", |n| n.starts_with("full.") && is_bin(n));
        all.iter().filter_map(|b| decoded(b)).collect()
    });
    let Some(inc) = decoded::<Incremental>(bytes) else { return false };
    for full in fulls.iter().filter(|m| m.epoch.next() == inc.epoch) {
        let mut map = full.clone();
        if map.apply(&inc).is_ok() {
            use_map(&map);
        }
    }
    true
}

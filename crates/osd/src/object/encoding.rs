//! How the record of an object is stored.
//!
//! There is one of them for each object, beside its name the largest part of its row, so that what most objects
//! do not have takes no bytes. After the head of a section of version 2 or 3 (version, compat, `u32` length):
//!
//! | bytes | content |
//! |---|---|
//! | 1 | what else there is: the flags below |
//! | v, v | version: epoch, number |
//! | v | user version |
//! | 8 | time of the last write |
//! | v, v | `TRUNCATED`: number of the last truncation, the size it left |
//! | v, v, v | `HINTED`: bytes of the object, bytes of a write, flags of the hint |
//! | 4, .. | `WATCHED`: how many watches, each a [`StoredWatch`](super::StoredWatch) in version 2, as below in 3 |
//! | v | `SNAP_SEQ`: newest snapshot that it knows of |
//! | 4, 8 each | `SNAPS`: how many snapshots a clone serves, these |
//! | v, v each | `SNAPS_FALLING`: the same of more than 1024 that get smaller: how many, the first, and by how much each is smaller than the one before |
//!
//! A clone may serve thousands of snapshots, when its object was not written for long, and a record is bounded
//! ([`store::MAX_META_BYTES`]): with as many bytes as numbers need it has room for five to sixteen thousand. Who was
//! there before `SNAPS_FALLING` cannot read that, so that fewer are stored as ever.
//!
//! Records with more than a few watches are of version 3, where each watch takes about 25 bytes instead of 63:
//!
//! | bytes | content |
//! |---|---|
//! | v | cookie |
//! | 1, v | the client: kind, number |
//! | v, v | its address: kind, nonce |
//! | 1 | 0: the address is blank; 4 or 6: IPv4 or IPv6, which follows |
//! | 4 or 16, 2 | ip and port, both as on the wire |
//! | v, v | of IPv6: flow information, scope |
//! | v | seconds until it ends |
//!
//! `v` is a number in groups of seven bits ([`Encoder::put_varint`]). Version 1 had all fields, one after the
//! other, in their full length; it is still read.

use super::{AllocHint, ObjectMeta, StoredWatch};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use types::{AddrType, EntityAddr, EntityName, Epoch, Eversion, SnapId};

const VERSION: u8 = 2;
const MANY_WATCHES_VERSION: u8 = 3;
/// An older program reads records with up to so many watches.
const FEW_WATCHES: usize = 64;

const WHITEOUT: u8 = 1;
const HAS_CLONES: u8 = 2;
const TRUNCATED: u8 = 4;
const HINTED: u8 = 8;
const WATCHED: u8 = 16;
const SNAP_SEQ: u8 = 32;
const SNAPS: u8 = 64;
const SNAPS_FALLING: u8 = 128;

/// So many snapshots have their full length: half of what a record may have.
const MOST_SNAPS_IN_FULL: usize = 1024;
const _: () = assert!(MOST_SNAPS_IN_FULL * 8 <= store::MAX_META_BYTES / 2);

impl ObjectMeta {
    /// What is not as it is with most objects.
    fn flags(&self) -> u8 {
        denc::flags_of([
            (WHITEOUT, self.whiteout),
            (HAS_CLONES, self.has_clones),
            (TRUNCATED, (self.truncate_seq, self.truncate_size) != (0, 0)),
            (HINTED, self.hint != AllocHint::default()),
            (WATCHED, !self.watches.is_empty()),
            (SNAP_SEQ, self.snap_seq != SnapId::default()),
            (SNAPS, !self.snaps.is_empty() && !self.are_snaps_packed()),
            (SNAPS_FALLING, self.are_snaps_packed()),
        ])
    }

    /// Whether they are too many for their full length, and the newest first, as clients give them.
    fn are_snaps_packed(&self) -> bool {
        self.snaps.len() > MOST_SNAPS_IN_FULL && self.snaps.is_sorted_by(|a, b| a > b)
    }

    fn decode_first(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(ObjectMeta {
            version: d.get()?,
            user_version: d.get()?,
            mtime: d.get()?,
            whiteout: d.get()?,
            truncate_seq: d.get()?,
            truncate_size: d.get()?,
            hint: d.get()?,
            watches: d.get()?,
            snap_seq: d.get()?,
            has_clones: d.get()?,
            snaps: d.get()?,
        })
    }

    fn decode_second(d: &mut Decoder<'_>, version: u8) -> Result<Self, DecodeError> {
        let flags: u8 = d.get()?;
        let has = |flag| flags & flag != 0;
        let epoch = Epoch(d.varint_u32()?);
        let mut meta = ObjectMeta {
            version: Eversion { epoch, version: d.varint()? },
            user_version: d.varint()?,
            mtime: d.get()?,
            whiteout: has(WHITEOUT),
            has_clones: has(HAS_CLONES),
            ..ObjectMeta::default()
        };
        if has(TRUNCATED) {
            meta.truncate_seq = d.varint_u32()?;
            meta.truncate_size = d.varint()?;
        }
        if has(HINTED) {
            meta.hint.object_size = d.varint()?;
            meta.hint.write_size = d.varint()?;
            meta.hint.flags = d.varint_u32()?;
        }
        if has(WATCHED) {
            meta.watches = match version {
                2 => d.get()?,
                _ => {
                    let count: u32 = d.get()?;
                    (0..count).map(|_| watch(d)).collect::<Result<_, _>>()?
                }
            };
        }
        if has(SNAP_SEQ) {
            meta.snap_seq = SnapId(d.varint()?);
        }
        if has(SNAPS) {
            meta.snaps = d.get()?;
        }
        if has(SNAPS_FALLING) {
            meta.snaps = falling(d)?;
        }
        Ok(meta)
    }
}

fn watch(d: &mut Decoder<'_>) -> Result<StoredWatch, DecodeError> {
    let cookie = d.varint()?;
    let watcher = EntityName { kind: d.get()?, num: d.varint()? as i64 };
    let (kind, nonce) = (AddrType(d.varint_u32()?), d.varint_u32()?);
    let sock = match d.get::<u8>()? {
        0 => None,
        4 => {
            let ip = Ipv4Addr::from(d.take_array::<4>()?);
            Some(SocketAddr::from((ip, u16::from_be_bytes(d.take_array()?))))
        }
        6 => {
            let ip = Ipv6Addr::from(d.take_array::<16>()?);
            let port = u16::from_be_bytes(d.take_array()?);
            Some(SocketAddrV6::new(ip, port, d.varint_u32()?, d.varint_u32()?).into())
        }
        _ => return Err(d.invalid("an address of an unknown family")),
    };
    let addr = EntityAddr { kind, nonce, sock };
    Ok(StoredWatch { cookie, watcher, addr, timeout_s: d.varint_u32()? })
}

fn put_watch(e: &mut Encoder, w: &StoredWatch) {
    e.put_varint(w.cookie);
    e.put(&w.watcher.kind);
    e.put_varint(w.watcher.num as u64);
    e.put_varint(w.addr.kind.0.into());
    e.put_varint(w.addr.nonce.into());
    match w.addr.sock {
        None => _ = e.put(&0u8),
        Some(SocketAddr::V4(sock)) => {
            e.put(&4u8);
            e.put_raw(&sock.ip().octets());
            e.put_raw(&sock.port().to_be_bytes());
        }
        Some(SocketAddr::V6(sock)) => {
            e.put(&6u8);
            e.put_raw(&sock.ip().octets());
            e.put_raw(&sock.port().to_be_bytes());
            e.put_varint(sock.flowinfo().into());
            e.put_varint(sock.scope_id().into());
        }
    }
    e.put_varint(w.timeout_s.into());
}

fn falling(d: &mut Decoder<'_>) -> Result<Vec<SnapId>, DecodeError> {
    let (count, mut snap) = (d.varint()?, d.varint()?);
    let mut snaps = vec![SnapId(snap)];
    for _ in 1..count {
        let by = d.varint()?;
        snap = snap.checked_sub(by).ok_or_else(|| d.invalid("snapshots fall below zero"))?;
        snaps.push(SnapId(snap));
    }
    Ok(snaps)
}

fn put_falling(e: &mut Encoder, snaps: &[SnapId]) {
    e.put_varint(snaps.len() as u64);
    let mut before = None;
    for SnapId(snap) in snaps {
        e.put_varint(before.map_or(*snap, |before: u64| before - snap));
        before = Some(*snap);
    }
}

impl Encode for ObjectMeta {
    fn encode(&self, e: &mut Encoder) {
        let many = self.watches.len() > FEW_WATCHES;
        let version = if many { MANY_WATCHES_VERSION } else { VERSION };
        e.section(version, version, |e| {
            let flags = self.flags();
            let has = |flag| flags & flag != 0;
            e.put(&flags);
            e.put_varint(self.version.epoch.0.into());
            e.put_varint(self.version.version);
            e.put_varint(self.user_version);
            e.put(&self.mtime);
            if has(TRUNCATED) {
                e.put_varint(self.truncate_seq.into());
                e.put_varint(self.truncate_size);
            }
            if has(HINTED) {
                e.put_varint(self.hint.object_size);
                e.put_varint(self.hint.write_size);
                e.put_varint(self.hint.flags.into());
            }
            if many {
                e.put(&(self.watches.len() as u32));
                self.watches.iter().for_each(|w| put_watch(e, w));
            } else if has(WATCHED) {
                e.put(&self.watches);
            }
            if has(SNAP_SEQ) {
                e.put_varint(self.snap_seq.0);
            }
            if has(SNAPS) {
                e.put(&self.snaps);
            }
            if has(SNAPS_FALLING) {
                put_falling(e, &self.snaps);
            }
        });
    }
}

impl Decode for ObjectMeta {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(MANY_WATCHES_VERSION, |d, version| match version {
            1 => Self::decode_first(d),
            _ => Self::decode_second(d, version),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use types::UTime;

    fn plain() -> ObjectMeta {
        let version = Eversion { epoch: Epoch(300), version: 70_000 };
        let mtime = UTime { sec: 1_700_000_000, nsec: 5 };
        ObjectMeta { version, user_version: 70_000, mtime, ..ObjectMeta::default() }
    }

    fn full() -> ObjectMeta {
        let watcher = EntityName::client(types::ClientId(7));
        let addr = EntityAddr::default();
        ObjectMeta {
            whiteout: true,
            truncate_seq: u32::MAX,
            truncate_size: u64::MAX,
            hint: AllocHint { object_size: 4 << 20, write_size: 4096, flags: u32::MAX },
            watches: vec![StoredWatch { cookie: 1, watcher, addr, timeout_s: 30 }],
            snap_seq: SnapId(u64::MAX),
            has_clones: true,
            snaps: vec![SnapId(9), SnapId(7)],
            ..plain()
        }
    }

    /// So many watches, over IPv4 mostly.
    fn watched(count: usize) -> ObjectMeta {
        let watch = |i: usize| {
            let sock = match i % 10 {
                0 => None,
                1 => Some(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 7, 5, i as u32).into()),
                _ => Some(SocketAddr::from(([10, 0, 0, i as u8], 6800))),
            };
            let nonce = u32::MAX - i as u32;
            let addr = EntityAddr { kind: AddrType(i as u32 % 4), nonce, sock };
            let watcher = EntityName { num: 100_000 + i as i64, ..full().watches[0].watcher };
            StoredWatch { cookie: 94_000_000_000_000 + i as u64, watcher, addr, timeout_s: 30 }
        };
        ObjectMeta { watches: (0..count).map(watch).collect(), ..full() }
    }

    #[test]
    fn many_watches_have_room() {
        for count in [1, FEW_WATCHES, FEW_WATCHES + 1, 600] {
            let (meta, many) = (watched(count), count > FEW_WATCHES);
            let bytes = denc::encode(&meta);
            assert_eq!(bytes[0], if many { MANY_WATCHES_VERSION } else { VERSION });
            assert_eq!(denc::decode_all::<ObjectMeta>(&bytes).unwrap(), meta);
            assert!(bytes.len() < store::MAX_META_BYTES, "{} bytes", bytes.len());
        }
    }

    #[test]
    fn what_is_stored_is_read() {
        let first = ObjectMeta::default();
        let some = [
            first.clone(),
            plain(),
            full(),
            ObjectMeta { whiteout: true, ..first.clone() },
            ObjectMeta { has_clones: true, ..first.clone() },
            ObjectMeta { truncate_size: 1, ..first.clone() },
            ObjectMeta { truncate_seq: 1, ..first.clone() },
            ObjectMeta { hint: AllocHint { flags: 1, ..AllocHint::default() }, ..first.clone() },
            ObjectMeta { watches: full().watches, ..first.clone() },
            ObjectMeta { snap_seq: SnapId(1), ..first.clone() },
            ObjectMeta { snaps: vec![SnapId(0)], ..first.clone() },
            ObjectMeta { snaps: vec![SnapId(7), SnapId(9)], ..first.clone() },
            ObjectMeta { snaps: vec![SnapId(u64::MAX), SnapId(3), SnapId(0)], ..first },
        ];
        for meta in some {
            assert_eq!(denc::decode_all::<ObjectMeta>(&denc::encode(&meta)).unwrap(), meta);
        }
    }

    /// Records stand on disks.
    #[test]
    fn bytes_stay_what_they_are() {
        let bytes = [
            2, 2, 17, 0, 0, 0, 0, 0xac, 2, 0xf0, 0xa2, 4, 0xf0, 0xa2, 4, 0, 0xf1, 0x53, 0x65, 5, 0,
            0, 0,
        ];
        assert_eq!(denc::encode(&plain())[..], bytes);
        let mut few =
            [&bytes[..], &[2, 0, 0, 0], &9u64.to_le_bytes(), &7u64.to_le_bytes()].concat();
        (few[2], few[6]) = (17 + 20, 64);
        let meta = ObjectMeta { snaps: vec![SnapId(9), SnapId(7)], ..plain() };
        assert_eq!(denc::encode(&meta)[..], few);
        // As a newer build stored them for a while.
        let mut packed = [&bytes[..], &[2, 9, 2]].concat();
        (packed[2], packed[6]) = (17 + 3, 128);
        let below = [&packed[..25], &[10]].concat();
        assert_eq!(denc::decode_all::<ObjectMeta>(&packed.into()).unwrap(), meta);
        assert!(denc::decode::<ObjectMeta>(&below.into()).is_err());
    }

    /// What the build before could not read is only there where it could not have been stored.
    #[test]
    fn only_many_snapshots_are_packed() {
        let falling = |n: u64| ObjectMeta { snaps: (1..=n).rev().map(SnapId).collect(), ..plain() };
        for (count, flag) in [(1, SNAPS), (1024, SNAPS), (1025, SNAPS_FALLING)] {
            let (meta, bytes) = (falling(count), denc::encode(&falling(count)));
            assert_eq!(bytes[6], flag, "{count} snapshots");
            assert_eq!(denc::decode_all::<ObjectMeta>(&bytes).unwrap(), meta);
        }
    }

    /// Hourly ones for years, of an object among many images'.
    #[test]
    fn a_clone_of_thousands_of_snapshots_has_a_record() {
        let snaps = (0..8000).rev().map(|i| SnapId(1000 + 100 * i)).collect();
        let bytes = denc::encode(&ObjectMeta { snaps, ..plain() });
        assert!(bytes.len() < store::MAX_META_BYTES / 2, "{} bytes", bytes.len());
    }

    /// As everything was stored at first.
    #[test]
    fn records_of_version_1_are_read() {
        let meta = full();
        let mut e = Encoder::new();
        e.section(1, 1, |e| {
            e.put(&meta.version).put(&meta.user_version).put(&meta.mtime).put(&meta.whiteout);
            e.put(&meta.truncate_seq).put(&meta.truncate_size).put(&meta.hint).put(&meta.watches);
            e.put(&meta.snap_seq).put(&meta.has_clones).put(&meta.snaps);
        });
        assert_eq!(denc::decode_all::<ObjectMeta>(&e.into_bytes()).unwrap(), meta);
        let mut e = Encoder::new();
        e.section(1, 1, |e| {
            e.put_raw(&[0; 78]);
        });
        assert_eq!(denc::decode_all::<ObjectMeta>(&e.into_bytes()).unwrap(), ObjectMeta::default());
    }

    proptest! {
        #[test]
        fn damaged_records_never_panic(damage in proptest::collection::vec((0usize..200, any::<u8>()), 1..8), cut in 0usize..200, many in any::<bool>()) {
            let meta = if many { watched(FEW_WATCHES + 1) } else { full() };
            let mut bytes = denc::encode(&meta).to_vec();
            bytes.truncate(if many { 10 * cut } else { cut });
            for (at, value) in damage {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            if let Ok(meta) = ObjectMeta::decode(&bytes.into()) {
                prop_assert_eq!(denc::decode_all::<ObjectMeta>(&denc::encode(&meta)).unwrap(), meta);
            }
        }
    }
}

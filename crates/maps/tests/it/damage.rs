//! Damaged maps: whatever the bytes are, nothing panics or hangs.

use crate::samples::{full, full_bytes, inc_bytes};
use bytes::Bytes;
use denc::crc32c;
use maps::{Incremental, MonMap, OsdMap, PgIdExt};
use proptest::prelude::*;
use types::{OsdId, PgId};

/// The sample maps with the most in them.
const RICH: [u32; 4] = [41, 72, 98, 112];

/// Changes bytes and makes the checksum right again, so that the damage gets inside.
fn damage(bytes: &Bytes, changes: &[(prop::sample::Index, u8)], crc_at: usize) -> Bytes {
    let mut bytes = bytes.to_vec();
    for (at, value) in changes {
        // Not in the lengths of the sections, which would only cut the map off.
        let at = 12 + at.index(bytes.len() - 12);
        bytes[at] = *value;
    }
    let at = bytes.len() - crc_at;
    let crc = crc32c(crc32c(u32::MAX, &bytes[..at]), &bytes[at + 4..]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    bytes.into()
}

/// Whether a mapping may take long: with very many tries, and little to find. Crate `crush` tests
/// that it ends.
fn is_slow(map: &OsdMap) -> bool {
    const MANY: u32 = 1000;
    let crush = map.crush();
    let t = &crush.tunables;
    let steps = crush.rules().flat_map(|(_, rule)| &rule.steps);
    let args = steps.map(|step| step.arg1.unsigned_abs());
    let tries = [t.choose_total_tries, t.choose_local_tries, t.choose_local_fallback_tries];
    args.chain(tries).any(|n| n > MANY)
}

fn exercise(map: &OsdMap) {
    if is_slow(map) {
        return;
    }
    for (&id, pool) in &map.pools {
        for seed in [0, 1, pool.pg_num / 2, pool.pg_num.wrapping_sub(1), u32::MAX] {
            let pg = PgId::new(id, seed);
            map.pg_to_up_acting(pg);
            pg.end_of_objects(pool.pg_num);
            pg.is_split(pool.pg_num, pool.pg_num.saturating_add(8).min(1 << 16));
        }
        map.object_to_pg(id, b"n", b"", b"name");
        pool.snap_context();
    }
    for id in map.osd_ids().chain([OsdId(-1), OsdId::NONE]) {
        map.is_in(id);
        map.effective_flags(id);
    }
    map.min_compat_client();
    let bytes = denc::encode(map);
    let again: OsdMap = denc::decode_all(&bytes).unwrap();
    assert_eq!(denc::encode(&again), bytes);
}

fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn damaged_maps_are_refused_or_used_without_harm(which in 0..RICH.len(), changes in changes()) {
        let bytes = damage(&full_bytes(RICH[which]), &changes, 4);
        if let Ok(map) = denc::decode::<OsdMap>(&bytes) {
            exercise(&map);
        }
    }

    #[test]
    fn damaged_incrementals_are_refused_or_applied_without_harm(
        which in 0..RICH.len(),
        changes in changes(),
    ) {
        let epoch = RICH[which];
        let bytes = damage(&inc_bytes(epoch), &changes, 8);
        if let Ok(inc) = denc::decode::<Incremental>(&bytes) {
            let mut map = full(epoch - 1);
            let before = map.clone();
            match map.apply(&inc) {
                Ok(()) => exercise(&map),
                Err(_) => prop_assert_eq!(map, before),
            }
        }
    }

    #[test]
    fn cut_off_maps_are_refused(cut: prop::sample::Index) {
        let bytes = full_bytes(72);
        prop_assert!(denc::decode::<OsdMap>(&bytes.slice(..cut.index(bytes.len()))).is_err());
        let _ = denc::decode::<MonMap>(&bytes.slice(cut.index(bytes.len())..));
    }
}

#[test]
fn unknown_tails_of_sections_are_skipped() {
    let bytes = full_bytes(72);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (client_at, outer_len) = (6, word(2));
    let client_end = client_at + 6 + word(client_at + 2) as usize;
    let osd_end = client_end + 6 + word(client_end + 2) as usize;
    // The OSD section of a later release: version 11, and more at its end.
    let mut newer = bytes.to_vec();
    newer.splice(osd_end..osd_end, [7; 20]);
    newer[client_end] = 11;
    newer[client_end + 2..client_end + 6]
        .copy_from_slice(&(word(client_end + 2) + 20).to_le_bytes());
    newer[2..6].copy_from_slice(&(outer_len + 20).to_le_bytes());
    let at = newer.len() - 4;
    let crc = crc32c(u32::MAX, &newer[..at]);
    newer[at..].copy_from_slice(&crc.to_le_bytes());
    let map: OsdMap = denc::decode_all(&newer.into()).unwrap();
    assert_eq!(map, full(72));
}

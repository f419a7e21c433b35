//! Object maps and data objects.

use super::super::bit_vector::BitVector;
use super::*;
use Errno as E;
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use types::SnapId;

fn states(o: &mut MemObject) -> Vec<u8> {
    let map: BitVector = o.get("rbd.object_map_load", ()).unwrap();
    (0..map.len()).map(|i| map.get(i).unwrap()).collect()
}

fn map(states: &[u8]) -> BitVector {
    let mut map = BitVector::new(states.len() as u64);
    states.iter().zip(0..).for_each(|(&state, i)| map.set(i, state));
    map
}

fn update(o: &mut MemObject, at: (u64, u64), new: u8, current: Option<u8>) -> Result<(), E> {
    o.run("rbd.object_map_update", (at, new, current))
}

#[test]
fn a_map_grows_and_shrinks() {
    let mut o = MemObject::new();
    assert_eq!(o.ask("rbd.object_map_load", ()), Err(E::ENOENT));
    assert_eq!(update(&mut o, (0, 1), 1, None), Err(E::ENOENT));
    assert_eq!(o.run("rbd.object_map_resize", (256_000_001u64, 0u8)), Err(E::EINVAL));
    assert_eq!(o.run("rbd.object_map_resize", (3u64, 0u8)), Ok(()));
    assert_eq!(o.run("rbd.object_map_resize", (6u64, 1u8)), Ok(()));
    assert_eq!(states(&mut o), [0, 0, 0, 1, 1, 1]);
    assert_eq!(o.run("rbd.object_map_resize", (2u64, 0u8)), Err(E::ESTALE));
    assert_eq!(o.run("rbd.object_map_resize", (3u64, 1u8)), Ok(()));
    assert_eq!(states(&mut o), [0, 0, 0]);
}

/// Such a map takes seconds, and no image has it.
#[test]
fn a_map_of_more_objects_than_an_image_may_have_is_refused() {
    let mut o = MemObject::new();
    let longer = BitVector::new(256_000_001 + 4 * 4096);
    assert_eq!(o.run("rbd.object_map_save", longer.clone()), Err(E::EINVAL));
    o = MemObject::empty();
    o.state.data = denc::encode(&longer).to_vec();
    assert_eq!(o.ask("rbd.object_map_load", ()), Err(E::EINVAL));
    assert_eq!(o.run("rbd.object_map_snap_add", ()), Err(E::EINVAL));
    assert_eq!(o.run("rbd.object_map_snap_remove", map(&[1])), Err(E::EINVAL));
    assert_eq!(o.run("rbd.object_map_resize", (3u64, 0u8)), Err(E::EINVAL));
    assert_eq!(update(&mut o, (0, 1), 1, None), Err(E::EINVAL));
}

#[test]
fn bits_beyond_the_last_object_are_zero() {
    let mut o = MemObject::new();
    o.run("rbd.object_map_resize", (33u64, 3u8)).unwrap();
    assert_eq!(o.state.data[18..27], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xc0]);
}

#[test]
fn only_objects_in_the_expected_state_change() {
    let mut o = MemObject::new();
    o.run("rbd.object_map_save", map(&[0, 1, 2, 3, 0])).unwrap();
    assert_eq!(update(&mut o, (0, 5), 2, Some(1)), Ok(()));
    assert_eq!(states(&mut o), [0, 2, 2, 2, 0], "clean objects exist too");
    assert_eq!(update(&mut o, (0, 5), 0, Some(2)), Ok(()));
    assert_eq!(update(&mut o, (1, 3), 3, None), Ok(()));
    assert_eq!(states(&mut o), [0, 3, 3, 0, 0]);
    assert_eq!(update(&mut o, (1, 1), 1, None), Err(E::ERANGE));
    assert_eq!(update(&mut o, (4, 6), 1, None), Err(E::ERANGE));
    let size = o.state.data.len();
    o.state.data[size - 1] ^= 1;
    assert_eq!(update(&mut o, (0, 1), 1, None), Err(E::EINVAL), "a wrong checksum");
    assert_eq!(o.ask("rbd.object_map_load", ()), Err(E::EINVAL));
    o.state.data.truncate(19);
    assert_eq!(update(&mut o, (0, 1), 1, None), Err(E::EINVAL), "without checksums");
    o.state.data.truncate(10);
    assert_eq!(update(&mut o, (0, 1), 1, None), Err(E::EINVAL));
}

#[test]
fn snapshots_leave_objects_clean_until_they_are_written() {
    let mut o = MemObject::new();
    o.run("rbd.object_map_save", map(&[0, 1, 2, 1])).unwrap();
    assert_eq!(o.run("rbd.object_map_snap_add", ()), Ok(()));
    assert_eq!(states(&mut o), [0, 3, 2, 3]);
    // What the removed snapshot had written is since then as if written now.
    assert_eq!(o.run("rbd.object_map_snap_remove", map(&[0, 1, 1])), Ok(()));
    assert_eq!(states(&mut o), [0, 1, 2, 1]);
    assert_eq!(o.run("rbd.object_map_snap_remove", Bytes::from_static(b"x")), Err(E::EINVAL));
}

proptest! {
    /// A part that is read and written alone makes the same map as the whole.
    #[test]
    fn updates_in_place_are_as_updates_of_the_whole(
        len in 1u64..40_000,
        updates in prop::collection::vec((any::<u16>(), any::<u16>(), 0u8..4, prop::option::of(0u8..4)), 1..6),
    ) {
        let mut o = MemObject::new();
        o.run("rbd.object_map_resize", (len, 0u8)).unwrap();
        let mut model = vec![0; len as usize];
        for (start, n, new, current) in updates {
            let start = u64::from(start) % len;
            let end = (start + 1 + u64::from(n)).min(len);
            update(&mut o, (start, end), new, current).unwrap();
            for state in &mut model[start as usize..end as usize] {
                let matches = current.is_none_or(|c| c == *state || (c == 1 && *state == 3));
                *state = if matches { new } else { *state };
            }
            prop_assert_eq!(denc::decode_all(&o.state.data.clone().into()), Ok(map(&model)));
        }
    }

    /// Sparsified data reads as before.
    #[test]
    fn sparsify_changes_no_byte(
        blocks in prop::collection::vec((0u8..3, 1usize..13_000), 0..8),
        block in (1u64..4).prop_map(|n| n * 4096),
        remove_empty: bool,
    ) {
        let data: Vec<u8> = blocks.iter().flat_map(|&(byte, n)| vec![byte; n]).collect();
        let mut o = MemObject::empty();
        o.state.data = data.clone();
        o.run("rbd.sparsify", (block, remove_empty)).unwrap();
        prop_assert!(o.state.data.len() <= data.len());
        let mut seen = o.state.data.clone();
        seen.resize(data.len(), 0);
        prop_assert_eq!(seen, &data[..]);
        let all_zero = data.iter().all(|&b| b == 0);
        prop_assert_eq!(o.state.exists, !(all_zero && remove_empty));
        prop_assert!(!all_zero || o.state.data.is_empty());
    }
}

#[test]
fn sparsify_refuses_what_makes_no_sense() {
    assert_eq!(MemObject::new().run("rbd.sparsify", (4096u64, true)), Err(E::ENOENT));
    for block in [0u64, 1, 4095, 4097, 1 << 63 | 1] {
        assert_eq!(MemObject::empty().run("rbd.sparsify", (block, true)), Err(E::EINVAL));
    }
}

#[test]
fn a_copyup_never_overwrites() {
    let mut o = MemObject::new();
    assert_eq!(o.call("rbd.copyup", b"parent"), Ok(Bytes::new()));
    assert_eq!(o.call("rbd.copyup", b"other!"), Ok(Bytes::new()));
    assert_eq!(o.state.data, b"parent");
    let extents = BTreeMap::from([(2u64, 3u64), (8, 1)]);
    let mut o = MemObject::new();
    assert_eq!(o.run("rbd.sparse_copyup", (&extents, "abc")), Err(E::EINVAL));
    assert!(!o.state.exists);
    assert_eq!(o.run("rbd.sparse_copyup", (&extents, "abcd")), Ok(()));
    assert_eq!(o.run("rbd.sparse_copyup", (&extents, "xxxx")), Ok(()));
    assert_eq!(o.state.data, b"\0\0abc\0\0\0d");
}

#[test]
fn snap_contexts_are_compared() {
    let check =
        |o: &mut MemObject, seq: u64, state: u8| o.run("rbd.assert_snapc_seq", (seq, state));
    let mut missing = MemObject::new();
    assert_eq!(check(&mut missing, 0, 0), Ok(()));
    assert_eq!(check(&mut missing, 9, 1), Err(E::ERANGE));
    let mut o = MemObject::empty();
    o.state.snap_seq = SnapId(5);
    assert_eq!((check(&mut o, 6, 0), check(&mut o, 5, 0)), (Ok(()), Err(E::ERANGE)));
    assert_eq!((check(&mut o, 6, 1), check(&mut o, 5, 1)), (Err(E::ERANGE), Ok(())));
    assert_eq!(check(&mut o, 5, 2), Err(E::EOPNOTSUPP));
    // Deleted, but with clones.
    o.state.exists = false;
    assert_eq!((check(&mut o, 5, 0), check(&mut o, 5, 1)), (Err(E::ERANGE), Ok(())));
}

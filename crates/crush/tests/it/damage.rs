//! Damaged maps: whatever the bytes are, nothing panics, hangs or overflows a stack.

use crate::samples::{MAPS, bin};
use bytes::Bytes;
use crush::{CrushMap, Location, Rule, WEIGHT_ONE, compile, decompile};
use proptest::prelude::*;

/// With more tries than this, one mapping may take as long as all others of a test together.
/// `huge_tries_end` is the test for that.
const FEW_TRIES: u32 = 1000;

fn tries(map: &CrushMap, rule: &Rule) -> u32 {
    let t = map.tunables;
    let steps = rule.steps.iter().map(|step| step.arg1.unsigned_abs());
    let tunables = [t.choose_total_tries, t.choose_local_tries, t.choose_local_fallback_tries];
    steps.chain(tunables).max().unwrap_or(0)
}

/// Uses everything of a map that was accepted.
fn exercise(map: &CrushMap) {
    let weights = vec![WEIGHT_ONE; 40];
    let args = map.choose_args_for(0);
    for (number, rule) in map.rules() {
        map.rule_weights(number);
        if tries(map, rule) > FEW_TRIES {
            continue;
        }
        for (x, size) in [(0, 3), (12345, 6), (u32::MAX, 16)] {
            let got = map.do_rule(number, x, size, &weights, args);
            assert!(got.len() <= size);
        }
    }
    let text = decompile(map);
    let _ = compile(&text);
    let bytes = denc::encode(map);
    let again: CrushMap = denc::decode_all(&bytes).unwrap();
    assert_eq!(&again, map);

    let ids: Vec<i32> = map.buckets().map(|b| b.id()).collect();
    for &id in ids.iter().take(8) {
        map.subtree(id);
        map.location(id);
        map.subtree_of_type(id, 1);
    }
    let loc = Location::parse(&["host=h0", "root=default"]).unwrap();
    let edits: [&dyn Fn(&mut CrushMap) -> bool; 8] = [
        &|m| m.insert_item(500, WEIGHT_ONE, "osd.500", &loc).is_ok(),
        &|m| m.create_or_move_item(0, WEIGHT_ONE, "osd.0", &loc).is_ok(),
        &|m| m.remove_item(0, false).is_ok(),
        &|m| m.reweight_item(1, 5).is_ok(),
        &|m| m.reweight_all().is_ok(),
        &|m| m.move_bucket(-2, &loc).is_ok(),
        &|m| m.set_device_class(3, "nvme").is_ok(),
        &|m| m.swap_buckets(-2, -3).is_ok(),
    ];
    for edit in edits {
        let mut map = map.clone();
        if edit(&mut map) {
            let read: Result<CrushMap, _> = denc::decode_all(&denc::encode(&map));
            assert!(read.is_ok(), "{read:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damaged_samples_are_refused_or_used_without_harm(
        which in 0..MAPS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let mut bytes = bin(MAPS[which]).to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(map) = denc::decode::<CrushMap>(&Bytes::from(bytes)) {
            exercise(&map);
        }
    }

    #[test]
    fn small_numbers_anywhere(
        which in 0..MAPS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), -40..40i32), 1..4),
    ) {
        // Whole words, as ids and counts are: these get further than single bytes.
        let mut bytes = bin(MAPS[which]).to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len() - 4);
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        if let Ok(map) = denc::decode::<CrushMap>(&Bytes::from(bytes)) {
            exercise(&map);
        }
    }
}

#[test]
fn a_bucket_in_itself_is_refused() {
    let bytes = bin("m2-racks-straw2").to_vec();
    let map: CrushMap = denc::decode_all(&bytes.clone().into()).unwrap();
    let rack = map.buckets().find(|b| b.kind() == 3).unwrap();
    let child = rack.items()[0];
    // The items of a bucket follow its id, type, algorithm, hash, weight and count.
    let mut head = rack.id().to_le_bytes().to_vec();
    head.extend_from_slice(&rack.kind().to_le_bytes());
    let at = bytes.windows(6).position(|w| w == head).unwrap() + 4 + 2 + 1 + 1 + 4 + 4;
    assert_eq!(bytes[at..at + 4], child.to_le_bytes());
    for wrong in [rack.id(), -1, -100, i32::MAX] {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&wrong.to_le_bytes());
        assert!(denc::decode::<CrushMap>(&bytes.into()).is_err(), "{wrong}");
    }
}

/// Each weight-set is filled up to a weight for each item of its bucket: few bytes would claim very much memory.
#[test]
fn very_many_weight_sets_without_weights_are_refused() {
    let mut text = String::new();
    (0..2000).for_each(|n| text += &format!("device {n} osd.{n}\n"));
    text += "type 0 osd\ntype 1 root\nroot default {\n\talg straw2\n\thash 0\n";
    (0..2000).for_each(|n| text += &format!("\titem osd.{n} weight 1.0\n"));
    let map = compile(&(text + "}\n")).unwrap();
    let slot = !map.item_id("default").unwrap() as u32;
    let with_sets = |sets: u32| {
        let mut bytes = denc::encode(&map).to_vec();
        // No choose_args yet; then those of all pools, for one bucket: that many empty sets, and no ids.
        assert_eq!(bytes.split_off(bytes.len() - 4), [0; 4]);
        bytes.extend_from_slice(&1_u32.to_le_bytes());
        bytes.extend_from_slice(&crush::COMPAT_CHOOSE_ARGS.to_le_bytes());
        [1, slot, sets].iter().for_each(|n| bytes.extend_from_slice(&n.to_le_bytes()));
        bytes.resize(bytes.len() + 4 * (sets as usize + 1), 0);
        denc::decode_all::<CrushMap>(&bytes.into())
    };
    let args = with_sets(3).unwrap().choose_args_for(0).cloned().unwrap();
    let filled: Vec<_> = args.get(!slot as i32).unwrap().weight_sets.iter().map(Vec::len).collect();
    assert_eq!(filled, [2000; 3]);
    let refused = with_sets(100_000).unwrap_err().to_string();
    assert!(refused.contains("too many weights"), "{refused}");
}

#[test]
fn huge_tries_end() {
    let mut map = crate::samples::map("m2-racks-straw2");
    map.tunables.choose_total_tries = u32::MAX - 1;
    map.tunables.choose_local_tries = u32::MAX;
    // All devices are out, so no try can succeed.
    for rule in [0, 2] {
        let got = map.do_rule(rule, 7, 6, &[], None);
        assert!(got.iter().all(|&i| i == crush::ITEM_NONE), "{got:?}");
    }
}

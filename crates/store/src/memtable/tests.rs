//! Tests of the layers of changes.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn key(n: u8) -> Key {
    Key::from_slice(&[n])
}

#[test]
fn a_range_hides_what_is_below_and_before_it() {
    let mut m = Memtable::default();
    m.put(key(5), Some(Bytes::from_static(b"old")), 1);
    m.delete_range(key(3), key(7), 2);
    assert_eq!(m.get(&[5]), Found::Deleted { txn: 2 });
    m.put(key(5), Some(Bytes::from_static(b"new")), 3);
    assert!(matches!(m.get(&[5]), Found::Put { txn: 3, .. }));
    assert_eq!(m.get(&[7]), Found::Below);
    m.delete_range(key(7), key(9), 4);
    assert_eq!(m.ranges().len(), 1);
    assert!(m.covers(&[3], Some(&[9])));
    assert!(!m.covers(&[3], None));
    assert_eq!(m.change_from(&[0]), Some(key(3)));
    assert_eq!(m.change_from(&[8]), Some(key(8)));
    assert_eq!(m.change_from(&[9]), None);
}

#[test]
fn what_is_long_is_counted_as_long_as_it_is_there() {
    let mut m = Memtable::default();
    let value = |len: usize| Some(Bytes::from(vec![1; len]));
    let name = Key::from_slice(&[9; LONG_KEY_BYTES]);
    m.put(key(1), value(LONG_ROW_BYTES), 1);
    m.put(key(2), value(LONG_ROW_BYTES - 2), 1);
    m.put(name.clone(), value(5000), 1);
    let row_bytes = 1 + LONG_ROW_BYTES + LONG_KEY_BYTES + 5000;
    assert_eq!(m.long(), Long { rows: 2, row_bytes, key_bytes: LONG_KEY_BYTES });
    m.put(key(1), value(10), 2);
    m.put(name, None, 2);
    assert_eq!(m.long(), Long { key_bytes: LONG_KEY_BYTES, ..Long::default() });
    m.put(key(3), value(9000), 3);
    m.delete_range(key(2), key(10), 4);
    assert_eq!(m.long(), Long::default());
}

fn patch(slot: u8, crc: u32) -> Patch {
    let mut patch = Patch::default();
    patch.set(slot, crc);
    patch
}

#[test]
fn only_what_may_be_there_is_patched() {
    let mut m = Memtable::default();
    m.put(keys::shard(1, 7), None, 1);
    m.delete_range(keys::rows(2), keys::rows_end(2), 1);
    assert!(m.patch((1, 7), &patch(3, 4), 2).is_err());
    assert!(m.patch((2, 7), &patch(3, 4), 2).is_err());
    assert!(m.patches().is_empty());
    assert!(m.patch((3, 7), &patch(3, 4), 2).is_ok());
    assert_eq!(m.get(&keys::shard(3, 7)), Found::Patched { patch: patch(3, 4), txn: 2 });
    m.put(keys::shard(3, 7), Some(Bytes::from_static(b"whole")), 3);
    assert!(m.patches().is_empty());
    // It is no row of extents.
    assert!(m.patch((3, 7), &patch(3, 4), 4).is_err());
}

#[test]
fn patches_of_a_shard_add_up() {
    let mut m = Memtable::default();
    m.patch((3, 7), &patch(3, 4), 2).unwrap();
    m.patch((3, 7), &patch(0, 5), u64::MAX - 1).unwrap();
    m.patch((3, 7), &patch(3, 6), 3).unwrap();
    m.patch((3, 8), &patch(31, 9), 4).unwrap();
    let mut both = patch(0, 5);
    both.set(3, 6);
    assert_eq!(m.get(&keys::shard(3, 7)), Found::Patched { patch: both, txn: u64::MAX - 1 });
    assert_eq!(m.get(&keys::shard(3, 9)), Found::Below);
    assert_eq!((m.len(), m.bytes()), (3, 3 * patches::PATCHED_BLOCK_BYTES));
    let mut garbage = Garbage::from(m);
    garbage.shrink(2);
    assert!(!garbage.is_empty());
    garbage.shrink(1);
    assert!(garbage.is_empty());
}

/// Keys of all kinds near the shards of two objects, and the last of all shards.
fn some_keys() -> impl Strategy<Value = Key> {
    let id = prop_oneof![Just(0u64), Just(1), Just(2), Just(u64::MAX)];
    let number = prop_oneof![Just(0u32), Just(1), Just(2), Just(u32::MAX)];
    let shard = (id, number).prop_map(|(id, number)| keys::shard(id, number));
    let cut = (shard.clone(), 0usize..14).prop_map(|(mut key, len)| {
        key.truncate(len);
        key
    });
    let other_kind = (shard.clone(), 0u8..4).prop_map(|(mut key, kind)| {
        key[9] = kind;
        key
    });
    let other_space = (shard.clone(), 0u8..4).prop_map(|(mut key, space)| {
        key[0] = space;
        key
    });
    let after = shard.clone().prop_map(|key| keys::after(&key));
    prop_oneof![3 => shard, 1 => cut, 1 => other_kind, 1 => other_space, 1 => after]
}

/// What a layer says of a key, without the transaction.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    Value(Option<Bytes>),
    Patch(Patch),
}

fn said(m: &Memtable, key: &Key) -> Option<Said> {
    match m.get(key) {
        Found::Put { value, .. } => Some(Said::Value(Some(value.clone()))),
        Found::Patched { patch, .. } => Some(Said::Patch(patch)),
        Found::Deleted { .. } => Some(Said::Value(None)),
        Found::Below => None,
    }
}

proptest! {
    #[test]
    fn the_first_shard_is_not_before_a_key(key in some_keys(), other in some_keys()) {
        let first = keys::first_shard(&key);
        if let Some(id) = keys::shard_of(&other) {
            prop_assert_eq!(other >= key, first.is_some_and(|first| id >= first));
        }
    }

    /// Rows and patches of shards, and what else stands among them, against a plain map.
    #[test]
    fn patches_stand_among_the_rows(
        ops in proptest::collection::vec((0u8..4, some_keys(), some_keys(), 0u8..32), 0..40),
        from in some_keys(), all in proptest::collection::vec(some_keys(), 40),
    ) {
        let mut m = Memtable::default();
        let mut plain: BTreeMap<Key, Said> = BTreeMap::new();
        let mut ranges: Vec<(Key, Key)> = Vec::new();
        for (op, key, other, slot) in ops {
            match (op, keys::shard_of(&key)) {
                (0, _) => {
                    m.put(key.clone(), Some(Bytes::from_static(b"row")), 1);
                    plain.insert(key, Said::Value(Some(Bytes::from_static(b"row"))));
                }
                (1, _) if key < other => {
                    plain.retain(|k, _| *k < key || *k >= other);
                    m.delete_range(key.clone(), other.clone(), 1);
                    ranges.push((key, other));
                }
                (2 | 3, Some(id)) => {
                    let known = plain.get(&key).cloned();
                    let deleted = ranges.iter().any(|(from, to)| key >= *from && key < *to);
                    let possible = match known {
                        Some(Said::Patch(_)) => true,
                        Some(Said::Value(_)) => false,
                        None => !deleted,
                    };
                    prop_assert_eq!(m.patch(id, &patch(slot, 9), 1).is_ok(), possible);
                    if possible {
                        let mut now = match known {
                            Some(Said::Patch(earlier)) => earlier,
                            _ => Patch::default(),
                        };
                        now.set(slot, 9);
                        plain.insert(key, Said::Patch(now));
                    }
                }
                _ => {
                    m.put(key.clone(), None, 1);
                    plain.insert(key, Said::Value(None));
                }
            }
        }
        let want_of = |key: &Key| {
            let deleted = ranges.iter().any(|(from, to)| key >= from && key < to);
            plain.get(key).cloned().or_else(|| deleted.then_some(Said::Value(None)))
        };
        for key in all.iter().chain(plain.keys()) {
            prop_assert_eq!(said(&m, key), want_of(key));
        }
        let got: Vec<(Key, Said)> = m.rows_from(&from).map(|changed| {
            let said = match changed.change {
                Change::Put(value) => Said::Value(Some(value.clone())),
                Change::Patch(patch) => Said::Patch(patch),
                Change::Delete => Said::Value(None),
            };
            (changed.key.into_owned(), said)
        }).collect();
        let want: Vec<_> = plain.range(from.clone()..).map(|(k, s)| (k.clone(), s.clone())).collect();
        prop_assert_eq!(&got, &want);
        let next = want.first().map(|(key, _)| key.clone());
        let start = ranges.iter().filter(|(_, to)| *to > from).map(|(f, _)| f.max(&from).clone()).min();
        prop_assert_eq!(m.change_from(&from), [next, start].into_iter().flatten().min());
        // As it comes out of the log, onto an empty layer.
        let mut again = Memtable::default();
        again.absorb(m.clone(), 1).unwrap();
        prop_assert_eq!(again.rows_from(&[]).collect::<Vec<_>>(), m.rows_from(&[]).collect::<Vec<_>>());
        prop_assert_eq!(again.bytes(), m.bytes());
    }

    /// Against a plain map of what each key of 0..40 looks like.
    #[test]
    fn behaves_like_a_map(ops in proptest::collection::vec((0u8..3, 0u8..40, 1u8..9), 0..60)) {
        let mut m = Memtable::default();
        let mut plain: Vec<Option<Option<u8>>> = vec![None; 50];
        for (op, at, n) in ops {
            match op {
                0 => {
                    m.put(key(at), Some(Bytes::from(vec![n])), 1);
                    plain[usize::from(at)] = Some(Some(n));
                }
                1 => {
                    m.put(key(at), None, 1);
                    plain[usize::from(at)] = Some(None);
                }
                _ => {
                    m.delete_range(key(at), key(at + n), 1);
                    plain[usize::from(at)..usize::from(at + n)].fill(Some(None));
                }
            }
        }
        for (i, want) in plain.iter().enumerate() {
            let got = match m.get(&[i as u8]) {
                Found::Put { value, .. } => Some(Some(value[0])),
                Found::Deleted { .. } => Some(None),
                Found::Patched { .. } => unreachable!("nothing was patched"),
                Found::Below => None,
            };
            prop_assert_eq!(got, *want);
        }
        let lens = m.rows().iter().map(|(k, r)| row_lens(k, r.value.as_ref()));
        let mut bytes: usize = lens.map(|(key, value)| key + value + ROW_OVERHEAD_BYTES).sum();
        bytes += m.ranges().iter().map(|(k, r)| k.len() + r.end.len() + ROW_OVERHEAD_BYTES).sum::<usize>();
        prop_assert_eq!(m.bytes(), bytes);
    }
}

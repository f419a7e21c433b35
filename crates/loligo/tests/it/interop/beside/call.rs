//! Random calls of object classes.
//!
//! What a method takes is written as a word, a letter for each value: `b` u8, `c` one below 4, `B` bool, `d` u32
//! (`1` that number), `q` u64, `Q` one that is not 0,
//! `S` a snapshot's id, `F` bits, `p` i64, `s` string, `n` a number as string, `l` bytes, `t` a time, `Z` none, `o`
//! the order of an image; `(...)` and `<...>` sections of version 1 and 2, `[...]` none to three of
//! them behind their count, `?` one that is there or not.

use denc::Encoder;
use io::Rng;
use wire::msg::OsdOp;
use wire::msg::op_data::CallIn;

/// Objects of one kind, and the calls that are made on them: class, method, input.
const KINDS: &[&[(&str, &str, &str)]] = &[
    &[
        ("rbd", "create", "qoFsp"),
        ("rbd", "get_features", "SB"),
        ("rbd", "set_features", "FF"),
        ("rbd", "get_size", "S"),
        ("rbd", "set_size", "q"),
        ("rbd", "get_object_prefix", ""),
        ("rbd", "get_data_pool", ""),
        ("rbd", "get_stripe_unit_count", ""),
        ("rbd", "set_stripe_unit_count", "qq"),
        ("rbd", "get_flags", "S"),
        ("rbd", "set_flags", "FFS"),
        ("rbd", "op_features_get", ""),
        ("rbd", "op_features_set", "FF"),
        ("rbd", "get_snapcontext", ""),
        ("rbd", "get_snapshot_name", "S"),
        ("rbd", "snapshot_get", "S"),
        ("rbd", "snapshot_add", "sS(d)"),
        ("rbd", "snapshot_add", "sS"),
        ("rbd", "snapshot_add", "sS(dps)"),
        ("rbd", "snapshot_rename", "Ss"),
        ("rbd", "snapshot_remove", "S"),
        ("rbd", "snapshot_trash_add", "S"),
        ("rbd", "snapshot_get_limit", ""),
        ("rbd", "snapshot_set_limit", "q"),
        ("rbd", "get_protection_status", "S"),
        ("rbd", "set_protection_status", "Sb"),
        ("rbd", "parent_get", ""),
        ("rbd", "parent_overlap_get", "S"),
        ("rbd", "parent_attach", "(pssS)qB"),
        ("rbd", "parent_detach", ""),
        ("rbd", "get_parent", "S"),
        ("rbd", "set_parent", "psSq"),
        ("rbd", "remove_parent", ""),
        ("rbd", "child_attach", "S<pss>"),
        ("rbd", "child_detach", "S<pss>"),
        ("rbd", "children_list", "S"),
        ("rbd", "image_group_add", "(ps)"),
        ("rbd", "image_group_remove", "(ps)"),
        ("rbd", "image_group_get", ""),
        ("rbd", "migration_get", ""),
        ("rbd", "migration_remove", ""),
        ("rbd", "migration_set_state", "bs"),
        ("rbd", "metadata_set", "1sl"),
        ("rbd", "metadata_get", "s"),
        ("rbd", "metadata_remove", "s"),
        ("rbd", "metadata_list", "sq"),
        ("rbd", "get_all_features", ""),
    ],
    &[
        ("rbd", "set_id", "s"),
        ("rbd", "get_id", ""),
        ("rbd", "dir_get_id", "s"),
        ("rbd", "dir_get_name", "s"),
        ("rbd", "dir_list", "sd"),
        ("rbd", "dir_add_image", "ss"),
        ("rbd", "dir_remove_image", "ss"),
        ("rbd", "dir_rename_image", "sss"),
        ("rbd", "dir_state_assert", "b"),
        ("rbd", "dir_state_set", "b"),
        ("rbd", "group_dir_list", "sq"),
        ("rbd", "group_dir_add", "ss"),
        ("rbd", "group_dir_remove", "ss"),
        ("rbd", "group_dir_rename", "sss"),
        ("rbd", "namespace_add", "s"),
        ("rbd", "namespace_remove", "s"),
        ("rbd", "namespace_list", "sq"),
    ],
    &[
        ("rbd", "add_child", "psSs"),
        ("rbd", "remove_child", "psSs"),
        ("rbd", "get_children", "psS"),
    ],
    &[
        ("rbd", "trash_add", "s<bsttb>"),
        ("rbd", "trash_remove", "s"),
        ("rbd", "trash_get", "s"),
        ("rbd", "trash_list", "sq"),
        ("rbd", "trash_state_set", "sbb"),
    ],
    &[
        ("rbd", "object_map_load", ""),
        ("rbd", "object_map_resize", "qc"),
        ("rbd", "object_map_update", "qqc?c"),
        ("rbd", "object_map_snap_add", ""),
        ("rbd", "object_map_save", "l"),
        ("rbd", "object_map_snap_remove", "l"),
    ],
    &[
        ("rbd", "copyup", "l"),
        ("rbd", "sparsify", "QB"),
        ("rbd", "assert_snapc_seq", "qb"),
        ("refcount", "get", "(sB)"),
        ("refcount", "put", "(sB)"),
        ("refcount", "set", "([s])"),
        ("refcount", "read", "(B)"),
    ],
    &[
        ("rbd", "group_image_set", "((sp)b)"),
        ("rbd", "group_image_remove", "(sp)"),
        ("rbd", "group_image_list", "(sp)q"),
        ("rbd", "group_snap_set", "(((ps)ss)b[(psS)])"),
        ("rbd", "group_snap_set", "(ssb[(psS)])"),
        ("rbd", "group_snap_remove", "s"),
        ("rbd", "group_snap_get_by_id", "s"),
        ("rbd", "group_snap_list", "(ssb[(psS)])q"),
    ],
    &[
        ("rbd", "mirror_uuid_get", ""),
        ("rbd", "mirror_uuid_set", "s"),
        ("rbd", "mirror_mode_get", ""),
        ("rbd", "mirror_mode_set", "d"),
        ("rbd", "mirror_peer_list", ""),
        ("rbd", "mirror_peer_add", "<ssspbst>"),
        ("rbd", "mirror_peer_ping", "ss"),
        ("rbd", "mirror_peer_remove", "s"),
        ("rbd", "mirror_peer_set_client", "ss"),
        ("rbd", "mirror_peer_set_cluster", "ss"),
        ("rbd", "mirror_peer_set_direction", "sb"),
        ("rbd", "mirror_image_list", "sq"),
        ("rbd", "mirror_image_get_image_id", "s"),
        ("rbd", "mirror_image_get", "s"),
        ("rbd", "mirror_image_set", "s<sbb>"),
        ("rbd", "mirror_image_set", "s(sb)"),
        ("rbd", "mirror_image_remove", "s"),
        ("rbd", "mirror_instances_list", ""),
        ("rbd", "mirror_image_map_list", "sq"),
        ("rbd", "mirror_image_map_update", "s(stl)"),
        ("rbd", "mirror_image_map_remove", "s"),
        ("rbd", "mirror_image_instance_get", "s"),
        ("rbd", "mirror_image_instance_list", "sq"),
        ("rbd", "mirror_image_status_get", "s"),
        ("rbd", "mirror_image_status_list", "sq"),
        ("rbd", "mirror_image_status_remove_down", ""),
    ],
    &[
        ("lock", "lock", "(sbsssZb)"),
        ("lock", "unlock", "(ss)"),
        ("lock", "break_lock", "(sbqs)"),
        ("lock", "get_info", "(s)"),
        ("lock", "list_locks", ""),
        ("lock", "assert_locked", "(sbss)"),
        ("lock", "set_cookie", "(sbsss)"),
    ],
    &[
        ("version", "set", "((qs))"),
        ("version", "read", ""),
        ("version", "inc", ""),
        ("version", "inc_conds", "((qs)[((qs)d)])"),
        ("version", "check_conds", "((qs)[((qs)d)])"),
        ("numops", "add", "sn"),
        ("numops", "mul", "sn"),
        ("timeindex", "add", "([(tsl)])"),
        ("timeindex", "list", "(tstd)"),
        ("timeindex", "trim", "(ttss)"),
        ("hello", "say_hello", ""),
        ("hello", "replay", ""),
        ("nosuch", "x", ""),
        ("rbd", "nosuch", ""),
    ],
    &[
        ("journal", "create", "bbp"),
        ("journal", "get_order", ""),
        ("journal", "get_splay_width", ""),
        ("journal", "get_pool_id", ""),
        ("journal", "get_minimum_set", ""),
        ("journal", "set_minimum_set", "q"),
        ("journal", "get_active_set", ""),
        ("journal", "set_active_set", "q"),
        ("journal", "get_client", "s"),
        ("journal", "client_register", "sl"),
        ("journal", "client_update_data", "sl"),
        ("journal", "client_update_state", "sb"),
        ("journal", "client_unregister", "s"),
        ("journal", "client_commit", "s([(qqq)])"),
        ("journal", "client_list", "sq"),
        ("journal", "get_next_tag_tid", ""),
        ("journal", "get_tag", "q"),
        ("journal", "tag_create", "qTl"),
        ("journal", "tag_list", "qqs?q"),
        ("journal", "guard_append", "q"),
    ],
];

/// Answers with a time, an address or something random in them.
const OWN: &[(&str, &str)] = &[("rbd", "snapshot_get"), ("lock", "get_info"), ("version", "read")];

/// A call on an object of the kind that goes with `seed`, and whether its answer is the cluster's own.
pub fn any(r: &mut Rng, seed: u64) -> (OsdOp, bool) {
    let kind = KINDS[seed as usize % KINDS.len()];
    // The first one makes what the others need.
    let at = if r.u8(0..8) == 0 { 0 } else { r.usize(0..kind.len()) };
    let (class, method, shape) = kind[at];
    let mut e = Encoder::new();
    put(r, &mut e, &mut shape.chars());
    let mut input = e.into_vec();
    match r.u8(0..30) {
        0 => input.truncate(r.usize(0..=input.len())),
        1 => input.extend(b"more"),
        _ => {}
    }
    let call = CallIn { class: class.into(), method: method.into(), input: input.into() };
    (call.into_op(), OWN.contains(&(class, method)))
}

fn string(r: &mut Rng) -> Vec<u8> {
    const WORDS: &[&str] = &["a", "a", "a", "b", "b", "c", "d", "", "image", "conf_x", "\u{e9}"];
    WORDS[r.usize(0..WORDS.len())].into()
}

fn number(r: &mut Rng) -> u64 {
    match r.u8(0..16) {
        0 => u64::MAX - r.u64(0..3),
        // More than that Ceph takes for less: it counts in 31 bits, mostly.
        1 => 1 << r.u32(0..31),
        2..6 => r.u64(0..4) << 22,
        6 => 0,
        _ => r.u64(0..9),
    }
}

/// Puts what `shape` says, up to the end of the group it is in.
fn put(r: &mut Rng, e: &mut Encoder, shape: &mut std::str::Chars<'_>) {
    while let Some(letter) = shape.next() {
        match letter {
            'b' => drop(e.put(&r.u8(0..5))),
            'c' => drop(e.put(&r.u8(0..4))),
            'B' => drop(e.put(&r.bool())),
            '1' => drop(e.put(&1u32)),
            'd' => drop(e.put(&r.u32(0..5))),
            'q' => drop(e.put(&number(r))),
            // By zero Ceph divides.
            'Q' => drop(e.put(&number(r).max(1))),
            'S' => drop(e.put(&if r.u8(0..4) == 0 { u64::MAX - 1 } else { r.u64(0..5) })),
            'T' => drop(e.put(&if r.bool() { u64::MAX } else { r.u64(0..4) })),
            'F' => drop(e.put(&(r.u64(0..1 << 13) & r.u64(0..1 << 13)))),
            'p' => drop(e.put(&r.i64(-1..4))),
            'o' => drop(e.put(&if r.u8(0..6) == 0 { r.u8(0..60) } else { r.u8(20..26) })),
            's' => drop(e.put(&bytes::Bytes::from(string(r)))),
            'n' => drop(e.put(&bytes::Bytes::from(r.i64(-3..9).to_string()))),
            'l' => {
                let n = if r.bool() { r.usize(0..5_000) } else { r.usize(0..9) };
                e.put(&bytes::Bytes::from(vec![r.u8(..); n]));
            }
            // A lock that was over at once, of a kind that goes with its object, cannot be looked at in Ceph.
            'Z' => drop(e.put(&0u64)),
            't' => drop(e.put(&r.u32(0..4)).put(&(r.u32(0..3) * 1000))),
            '(' | '<' => {
                let version = if letter == '(' { 1 } else { 2 };
                e.section(version, 1, |e| put(r, e, shape));
            }
            '[' => {
                let n = r.usize(0..4);
                e.put_count(n);
                let rest = shape.clone();
                for _ in 0..n {
                    put(r, e, &mut rest.clone());
                }
                skip(shape);
            }
            '?' => {
                let there = r.bool();
                e.put(&there);
                let next: String = shape.next().into_iter().collect();
                let mut nowhere = Encoder::new();
                put(r, if there { e } else { &mut nowhere }, &mut next.chars());
            }
            ')' | '>' | ']' => return,
            other => panic!("no such letter: {other}"),
        }
    }
}

/// Goes on behind the group.
fn skip(shape: &mut std::str::Chars<'_>) {
    let mut depth = 1;
    while depth > 0 {
        match shape.next() {
            Some('(' | '<' | '[') => depth += 1,
            Some(')' | '>' | ']') => depth -= 1,
            Some(_) => {}
            None => return,
        }
    }
}

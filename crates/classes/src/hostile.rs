//! Any bytes as input, on any object: a method gives an error, and never panics.

use crate::CLASSES;
use crate::testing::MemObject;
use proptest::prelude::*;
use types::Errno;

/// `class.method` of all methods.
fn all() -> Vec<String> {
    let name = |m: &crate::Method| format!("{}.{}", m.class, m.name);
    CLASSES.iter().flat_map(|(_, methods)| methods.iter().map(name)).collect()
}

#[test]
fn the_tables_are_in_order() {
    let mut names = all();
    for (class, methods) in CLASSES {
        assert!(methods.iter().all(|m| m.class == *class), "{class}");
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "a method stands twice");
    assert_eq!(crate::find(b"nosuch", b"x").unwrap_err(), Errno::EPERM);
    assert_eq!(crate::find(b"rbd", b"nosuch").unwrap_err(), Errno::EOPNOTSUPP);
}

/// Pieces that inputs and stored values are made of.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<u64>().prop_map(|n| n.to_le_bytes().to_vec()),
        (0u64..9).prop_map(|n| n.to_le_bytes().to_vec()),
        (0u32..9).prop_map(|n| n.to_le_bytes().to_vec()),
        any::<u8>().prop_map(|b| vec![b]),
        "[a-z0-9_]{0,6}".prop_map(|s| denc::encode(&s).to_vec()),
        prop::collection::vec(any::<u8>(), 0..20),
        (0u8..4, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(v, body)| {
            let mut e = denc::Encoder::new();
            e.section(v, 1, |e| e.put_raw(&body));
            e.into_vec()
        }),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(piece(), 0..8).prop_map(|pieces| pieces.concat())
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "size",
            "order",
            "features",
            "parent",
            "snap_seq",
            "migration",
            "mirror_mode",
            "state",
            "active_set",
            "minimum_set",
            "next_tag_tid",
            "next_tag_class",
            "splay_width",
        ])
        .prop_map(str::to_owned),
        (prop::sample::select(vec!["snapshot_", "snap_children_", "tag_"]), 0u64..9)
            .prop_map(|(prefix, n)| format!("{prefix}{n:016x}")),
        (
            prop::sample::select(vec![
                "name_",
                "id_",
                "client_",
                "image_",
                "global_",
                "mirror_peer_",
                "status_global_",
                "snapshot_",
                "metadata_",
            ]),
            "[a-z0-9_]{0,6}"
        )
            .prop_map(|(prefix, name)| format!("{prefix}{name}")),
    ]
}

proptest! {
    #[test]
    fn no_input_panics(
        input in bytes(),
        data in bytes(),
        omap in prop::collection::btree_map(key(), bytes(), 0..12),
        attribute in bytes(),
        exists: bool,
    ) {
        for method in all() {
            let mut o = MemObject::new();
            o.state.exists = exists;
            o.state.data = data.clone();
            for (key, value) in &omap {
                o.state.omap.insert(key.clone().into(), value.clone().into());
            }
            for name in ["lock.x", "refcount", "ceph.objclass.version"] {
                o.state.xattrs.insert(name.into(), attribute.clone().into());
            }
            let _ = o.call(&method, &input);
        }
    }
}

/// Methods that are asked nothing.
const WITHOUT_INPUT: &str = "
    lock.list_locks rbd.copyup rbd.get_all_features rbd.get_object_prefix rbd.get_data_pool
    rbd.get_stripe_unit_count rbd.get_create_timestamp rbd.get_access_timestamp
    rbd.get_modify_timestamp rbd.set_access_timestamp rbd.set_modify_timestamp
    rbd.op_features_get rbd.get_snapcontext rbd.snapshot_get_limit rbd.parent_get
    rbd.parent_detach rbd.remove_parent rbd.get_id rbd.object_map_load rbd.object_map_snap_add
    rbd.image_group_get rbd.migration_get rbd.migration_remove rbd.snap_list
    rbd.mirror_uuid_get rbd.mirror_mode_get rbd.mirror_peer_list rbd.mirror_instances_list
    rbd.mirror_image_status_get_summary rbd.mirror_image_status_remove_down
    journal.get_order journal.get_splay_width journal.get_pool_id journal.get_minimum_set
    journal.get_active_set journal.get_next_tag_tid version.read
    hello.say_hello hello.record_hello hello.replay hello.turn_it_to_11 hello.writes_dont_return_data";

#[test]
fn input_that_ends_too_early_is_einval() {
    // Objects that have what is looked at before the input.
    let mut image = MemObject::empty();
    image.run("rbd.create", ((1u64 << 20, 22u8, 0x3fu64), "p")).unwrap();
    let mut journal = MemObject::empty();
    journal.run("journal.create", (24u8, 4u8, -1i64)).unwrap();
    let without: Vec<&str> = WITHOUT_INPUT.split_whitespace().collect();
    for method in all().iter().filter(|m| !without.contains(&m.as_str())) {
        let of = if method.starts_with("journal") { &journal } else { &image };
        let mut o = MemObject::with(of.state.clone());
        let answer = o.call(method, b"");
        assert_eq!(answer, Err(Errno::EINVAL), "{method}");
    }
}

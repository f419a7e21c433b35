use super::*;
use Errno as E;

#[test]
fn an_image_is_made_once_and_right() {
    let mut o = MemObject::empty();
    assert_eq!(create(&mut o, 0x1000, -1), Err(E::ENOSYS));
    assert_eq!(create(&mut o, feature::OPERATIONS, -1), Err(E::EINVAL));
    assert_eq!(create(&mut o, feature::DATA_POOL, -1), Err(E::EINVAL));
    assert_eq!(create(&mut o, 0, 5), Err(E::EINVAL));
    assert_eq!(o.run("rbd.create", ((1u64, 22u8, 0u64), "")), Err(E::EINVAL));
    assert_eq!(create(&mut o, DEFAULT | feature::DATA_POOL, 5), Ok(()));
    assert_eq!(create(&mut o, DEFAULT, -1), Err(E::EEXIST));
    assert_eq!(o.get("rbd.get_data_pool", ()), Ok(5i64));
    assert_eq!(o.get("rbd.get_all_features", ()), Ok(0xfffu64));
    // Without the last argument, as older clients call it.
    let mut o = MemObject::new();
    assert_eq!(o.run("rbd.create", ((1u64, 22u8, 0u64), "p")), Ok(()));
}

#[test]
fn what_is_not_there_is_enoent() {
    for mut o in [MemObject::new(), MemObject::empty()] {
        let head = u64::MAX - 1;
        for method in ["get_features", "get_size", "get_object_prefix", "get_snapcontext"] {
            assert_eq!(o.ask(&format!("rbd.{method}"), head), Err(E::ENOENT), "{method}");
        }
        for method in ["set_size", "snapshot_trash_add", "snapshot_remove"] {
            assert_eq!(o.run(&format!("rbd.{method}"), 1u64), Err(E::ENOENT), "{method}");
        }
    }
    let mut o = MemObject::new();
    assert_eq!(o.run("rbd.set_access_timestamp", ()), Err(E::ENOENT));
    assert_eq!(o.ask("rbd.get_stripe_unit_count", ()), Err(E::ENOENT));
    assert_eq!(o.ask("rbd.parent_get", ()), Err(E::ENOENT));
}

#[test]
fn to_a_write_what_is_not_there_is_empty() {
    let mut o = MemObject::new();
    let spec = super::super::types::MigrationSpec { end: 1, ..Default::default() };
    assert_eq!(o.run("rbd.migration_set", spec), Err(E::ENXIO));
    assert_eq!(o.run("rbd.snap_add", ("a", 3u64)), Err(E::EINVAL));
    assert_eq!(o.run("rbd.mirror_image_map_remove", "g"), Ok(()));
    assert_eq!(o.run("rbd.mirror_image_status_remove_down", ()), Ok(()));
    assert_eq!(o.run("rbd.metadata_remove", "k"), Err(E::ENOENT));
    assert!(!o.state.exists);
    assert_eq!(o.run("rbd.snapshot_set_limit", 5u64), Ok(()));
    assert_eq!(o.get("rbd.snapshot_get_limit", ()), Ok(5u64));
}

#[test]
fn features_are_mutable_or_not() {
    let mut o = image(DEFAULT);
    let mut set = |value: u64, mask: u64| o.run("rbd.set_features", (value, mask));
    assert_eq!(set(feature::OPERATIONS, feature::OPERATIONS), Err(E::EINVAL));
    assert_eq!(set(0, feature::MIGRATING), Err(E::EINVAL));
    assert_eq!(set(feature::LAYERING, feature::LAYERING), Err(E::EINVAL));
    assert_eq!(set(0, feature::LAYERING), Err(E::EINVAL));
    assert_eq!(set(feature::DEEP_FLATTEN, feature::DEEP_FLATTEN), Err(E::EINVAL));
    assert_eq!(set(0, feature::DEEP_FLATTEN), Ok(()));
    assert_eq!(set(feature::JOURNALING | 1 << 40, feature::JOURNALING | 1 << 40), Ok(()));
    let now = DEFAULT & !feature::DEEP_FLATTEN | feature::JOURNALING;
    assert_eq!(o.get("rbd.get_features", (1u64, true)), Ok((now, feature::LAYERING)));
    assert_eq!(o.get("rbd.get_features", (1u64, false)), Ok((now, now)));
    assert_eq!(o.get("rbd.get_features", 1u64), Ok((now, now)));
}

#[test]
fn op_features_keep_the_feature_operations_in_step() {
    let mut o = image(DEFAULT);
    assert_eq!(o.run("rbd.op_features_set", (16u64, 16u64)), Err(E::EINVAL));
    assert_eq!(o.run("rbd.op_features_set", (3u64, 3u64)), Ok(()));
    assert_eq!(stored(&o, "features"), Some(DEFAULT | feature::OPERATIONS));
    assert_eq!(o.run("rbd.op_features_set", (0u64, 1u64)), Ok(()));
    assert_eq!(o.get("rbd.op_features_get", ()), Ok(2u64));
    assert_eq!(o.run("rbd.op_features_set", (0u64, 2u64)), Ok(()));
    assert_eq!(stored(&o, "features"), Some(DEFAULT));
    assert_eq!(stored::<u64>(&o, "op_features"), None);
    assert_eq!(MemObject::empty().run("rbd.op_features_set", (3u64, 3u64)), Err(E::ENOENT));
}

#[test]
fn stripes() {
    let mut o = image(DEFAULT);
    assert_eq!(o.ask("rbd.get_stripe_unit_count", ()), Err(E::ENOEXEC));
    assert_eq!(o.run("rbd.set_stripe_unit_count", (65536u64, 4u64)), Err(E::ENOEXEC));
    let mut o = image(DEFAULT | feature::STRIPING);
    assert_eq!(o.get("rbd.get_stripe_unit_count", ()), Ok((4 * MIB, 1u64)));
    for wrong in [(0u64, 4u64), (65536, 0), (65537, 4), (8 * MIB, 4)] {
        assert_eq!(o.run("rbd.set_stripe_unit_count", wrong), Err(E::EINVAL), "{wrong:?}");
    }
    assert_eq!(o.run("rbd.set_stripe_unit_count", (65536u64, 4u64)), Ok(()));
    assert_eq!(o.get("rbd.get_stripe_unit_count", ()), Ok((65536u64, 4u64)));
}

#[test]
fn flags_of_head_and_snapshots() {
    let mut o = image(DEFAULT);
    let head = u64::MAX - 1;
    assert_eq!(o.run("rbd.set_flags", (3u64, 3u64)), Ok(()));
    assert_eq!(o.run("rbd.snapshot_add", ("s", 4u64)), Ok(()));
    assert_eq!(o.run("rbd.set_flags", (0u64, 1u64, head)), Ok(()));
    assert_eq!(o.run("rbd.set_flags", (0u64, 2u64, 4u64)), Ok(()));
    assert_eq!(o.get("rbd.get_flags", head), Ok(2u64));
    assert_eq!(o.get("rbd.get_flags", 4u64), Ok(1u64));
    assert_eq!(o.ask("rbd.get_flags", 5u64), Err(E::ENOENT));
    assert_eq!(o.run("rbd.set_flags", (0u64, 2u64, 5u64)), Err(E::ENOENT));
}

#[test]
fn stored_rubbish_is_eio() {
    let mut o = image(DEFAULT);
    for (key, method) in [("features", "get_features"), ("size", "get_size")] {
        let saved = o.state.omap.insert(key.into(), "x".into()).unwrap();
        assert_eq!(o.ask(&format!("rbd.{method}"), u64::MAX - 1), Err(E::EIO));
        o.state.omap.insert(key.into(), saved);
    }
    o.state.omap.insert("snapshot_0000000000000004".into(), "x".into());
    assert_eq!(o.ask("rbd.snapshot_get", 4u64), Err(E::EIO));
    assert_eq!(o.run("rbd.snapshot_add", ("s", 5u64)), Err(E::EIO));
}

#[test]
fn migration_marks_the_image() {
    use super::super::types::MigrationSpec;
    let spec = |end| MigrationSpec { end, pool: 1, ..MigrationSpec::default() };
    let mut o = image(DEFAULT);
    assert_eq!(o.ask("rbd.migration_get", ()), Err(E::EINVAL));
    assert_eq!(o.run("rbd.migration_set", spec(MigrationSpec::SOURCE)), Ok(()));
    assert_eq!(stored(&o, "features"), Some(DEFAULT | feature::MIGRATING));
    assert_eq!(o.run("rbd.migration_set", spec(MigrationSpec::SOURCE)), Err(E::EEXIST));
    assert_eq!(o.run("rbd.migration_set_state", (2u8, "done")), Ok(()));
    let got: MigrationSpec = o.get("rbd.migration_get", ()).unwrap();
    assert_eq!((got.state, &got.state_description[..]), (2, &b"done"[..]));
    assert_eq!(o.run("rbd.migration_remove", ()), Ok(()));
    assert_eq!(stored(&o, "features"), Some(DEFAULT));
    // The destination is made with the feature.
    let mut o = image(DEFAULT | feature::MIGRATING);
    assert_eq!(o.run("rbd.migration_set", spec(MigrationSpec::SOURCE)), Err(E::EEXIST));
    assert_eq!(o.run("rbd.migration_set", spec(MigrationSpec::DESTINATION)), Ok(()));
    let imported = MigrationSpec { source_spec: "{}".into(), ..spec(2) };
    assert_eq!(denc::encode(&imported)[..2], [3, 3]);
    assert_eq!(denc::decode_all(&denc::encode(&imported)), Ok(imported));
}

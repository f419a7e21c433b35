use super::super::types::{SnapInfo, SnapNamespace, SnapRecord};
use super::*;
use Errno as E;
use types::SnapId;

const HEAD: SnapId = SnapId::HEAD;

#[test]
fn ids_grow_and_names_differ() {
    let mut o = image(DEFAULT);
    assert_eq!(o.run("rbd.snapshot_add", ("a", 7u64)), Ok(()));
    assert_eq!(o.run("rbd.snapshot_add", ("b", 6u64)), Err(E::ESTALE));
    assert_eq!(o.run("rbd.snapshot_add", ("b", 7u64)), Err(E::EEXIST));
    assert_eq!(o.run("rbd.snapshot_add", ("a", 8u64)), Err(E::EEXIST));
    assert_eq!(o.run("rbd.snapshot_add", ("b", SnapId::HEAD)), Err(E::EINVAL));
    let group = SnapNamespace::Group(1, "g".into(), "s".into());
    assert_eq!(o.run("rbd.snapshot_add", ("a", 8u64, &group)), Ok(()), "another namespace");
    assert_eq!(o.run("rbd.snapshot_add", ("x", 9u64, SnapNamespace::Unknown)), Err(E::EINVAL));
    assert_eq!(o.get("rbd.get_snapcontext", ()), Ok((8u64, vec![8u64, 7])));
    let info: SnapInfo = o.get("rbd.snapshot_get", 8u64).unwrap();
    assert_eq!((info.image_size, info.namespace, info.timestamp), (64 * MIB, group, o.now));
    assert_eq!(o.ask("rbd.snapshot_get", HEAD), Err(E::EINVAL));
    assert_eq!(o.get("rbd.get_snapshot_name", 7u64), Ok(bytes::Bytes::from_static(b"a")));
    assert_eq!(o.get("rbd.get_snapshot_timestamp", 7u64), Ok(o.now));
    assert_eq!(o.ask("rbd.get_snapshot_name", HEAD), Err(E::EINVAL));
    assert_eq!(o.ask("rbd.get_snapshot_timestamp", 6u64), Err(E::ENOENT));
}

#[test]
fn a_snapshot_context_of_many_pages() {
    let mut o = image(DEFAULT);
    for id in 1..=20u64 {
        o.run("rbd.snapshot_add", (format!("s{id}"), id)).unwrap();
    }
    let (seq, snaps): (u64, Vec<u64>) = o.get("rbd.get_snapcontext", ()).unwrap();
    assert_eq!((seq, snaps), (20, (1..=20).rev().collect()));
    assert_eq!(o.run("rbd.snapshot_add", ("s7", 21u64)), Err(E::EEXIST));
}

#[test]
fn a_name_is_changed_of_a_users_snapshot_only() {
    let mut o = image(DEFAULT);
    o.run("rbd.snapshot_add", ("a", 1u64)).unwrap();
    o.run("rbd.snapshot_add", ("b", 2u64)).unwrap();
    let group = SnapNamespace::Group(1, "g".into(), "s".into());
    o.run("rbd.snapshot_add", ("c", 3u64, group)).unwrap();
    assert_eq!(o.run("rbd.snapshot_rename", (1u64, "b")), Err(E::EEXIST));
    assert_eq!(o.run("rbd.snapshot_rename", (9u64, "x")), Err(E::ENOENT));
    assert_eq!(o.run("rbd.snapshot_rename", (3u64, "x")), Err(E::EINVAL));
    assert_eq!(o.run("rbd.snapshot_rename", (1u64, "c")), Ok(()), "only users' names count");
}

#[test]
fn limits() {
    let mut o = image(DEFAULT);
    assert_eq!(o.get("rbd.snapshot_get_limit", ()), Ok(u64::MAX));
    assert_eq!(o.run("rbd.snapshot_set_limit", 2u64), Ok(()));
    o.run("rbd.snapshot_add", ("a", 1u64)).unwrap();
    o.run("rbd.snapshot_add", ("b", 2u64)).unwrap();
    assert_eq!(o.run("rbd.snapshot_add", ("c", 3u64)), Err(E::EDQUOT));
    assert_eq!(o.run("rbd.snapshot_set_limit", 1u64), Err(E::ERANGE));
    assert_eq!(o.get("rbd.snapshot_get_limit", ()), Ok(2u64));
    assert_eq!(o.run("rbd.snapshot_add", ("a", 3u64)), Err(E::EDQUOT), "whatever its name");
    assert_eq!(o.run("rbd.snapshot_set_limit", u64::MAX), Ok(()));
    assert_eq!(o.run("rbd.snapshot_add", ("c", 3u64)), Ok(()));
    let mut none = image(DEFAULT);
    assert_eq!(none.run("rbd.snapshot_set_limit", 0u64), Ok(()));
    assert_eq!(none.run("rbd.snapshot_add", ("a", 1u64)), Err(E::EDQUOT));
}

#[test]
fn what_is_protected_is_not_removed() {
    let mut o = image(DEFAULT);
    o.run("rbd.snapshot_add", ("a", 1u64)).unwrap();
    assert_eq!(o.run("rbd.set_protection_status", (1u64, 3u8)), Err(E::EINVAL));
    assert_eq!(o.run("rbd.set_protection_status", (HEAD, 2u8)), Err(E::EINVAL));
    assert_eq!(o.run("rbd.set_protection_status", (2u64, 2u8)), Err(E::ENOENT));
    assert_eq!(o.run("rbd.set_protection_status", (1u64, 2u8)), Ok(()));
    assert_eq!(o.get("rbd.get_protection_status", 1u64), Ok(2u8));
    assert_eq!(o.ask("rbd.get_protection_status", HEAD), Err(E::EINVAL));
    assert_eq!(o.run("rbd.snapshot_remove", 1u64), Err(E::EBUSY));
    assert_eq!(o.run("rbd.snapshot_trash_add", 1u64), Err(E::EBUSY));
    assert_eq!(o.run("rbd.set_protection_status", (1u64, 1u8)), Ok(()));
    assert_eq!(o.run("rbd.snapshot_remove", 1u64), Err(E::EBUSY));
    assert_eq!(o.run("rbd.set_protection_status", (1u64, 0u8)), Ok(()));
    assert_eq!(o.run("rbd.snapshot_remove", 1u64), Ok(()));
    let mut old = image(0);
    old.run("rbd.snapshot_add", ("a", 1u64)).unwrap();
    assert_eq!(old.run("rbd.set_protection_status", (1u64, 2u8)), Err(E::ENOEXEC));
}

#[test]
fn the_trash_of_snapshots() {
    let mut o = image(DEFAULT);
    o.run("rbd.snapshot_add", ("a", 1u64)).unwrap();
    o.run("rbd.snapshot_add", ("b", 2u64)).unwrap();
    assert_eq!(o.run("rbd.snapshot_trash_add", 1u64), Ok(()));
    assert_eq!(o.run("rbd.snapshot_trash_add", 1u64), Err(E::EEXIST));
    assert_eq!(o.run("rbd.snapshot_trash_add", 2u64), Ok(()));
    let record: SnapRecord = stored(&o, "snapshot_0000000000000001").unwrap();
    assert_eq!(record.namespace, SnapNamespace::Trash("a".into(), 0));
    assert!(record.name.len() == 36 && record.name != "a");
    assert_eq!(o.run("rbd.snapshot_remove", 1u64), Ok(()));
    assert_eq!(o.get("rbd.op_features_get", ()), Ok(8u64));
    assert_eq!(o.run("rbd.snapshot_remove", 2u64), Ok(()));
    assert_eq!(o.get("rbd.op_features_get", ()), Ok(0u64));
    let trash = SnapNamespace::Trash("x".into(), 0);
    assert_eq!(o.run("rbd.snapshot_add", ("t", 3u64, trash)), Ok(()));
    assert_eq!(o.get("rbd.op_features_get", ()), Ok(8u64));
}

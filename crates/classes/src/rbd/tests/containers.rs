//! Directories, trash, namespaces, groups, metadata.

use super::super::types::*;
use super::*;
use Errno as E;
use bytes::Bytes;
use std::collections::BTreeMap;
use types::{SnapId, UTime};

type Names = BTreeMap<Bytes, Bytes>;

#[test]
fn names_and_ids_go_together() {
    let mut o = MemObject::new();
    assert_eq!(o.ask("rbd.dir_list", ("", 9u64)), Err(E::ENOENT));
    assert_eq!(o.run("rbd.dir_add_image", ("", "1")), Err(E::EINVAL));
    assert_eq!(o.run("rbd.dir_add_image", ("a", "")), Err(E::EINVAL));
    assert_eq!(o.run("rbd.dir_add_image", ("a", "1/2")), Err(E::EINVAL));
    assert!(!o.state.exists, "what fails leaves nothing");
    assert_eq!(o.run("rbd.dir_add_image", ("a", "1")), Ok(()));
    assert_eq!(o.run("rbd.dir_add_image", ("a", "2")), Err(E::EEXIST));
    assert_eq!(o.run("rbd.dir_add_image", ("b", "1")), Err(E::EBADF));
    assert_eq!(o.run("rbd.dir_add_image", ("b", "2")), Ok(()));
    assert_eq!(o.run("rbd.dir_rename_image", ("a", "b", "1")), Err(E::EEXIST));
    assert_eq!(o.run("rbd.dir_rename_image", ("a", "c", "2")), Err(E::ESTALE));
    assert_eq!(o.run("rbd.dir_rename_image", ("x", "c", "1")), Err(E::ENOENT));
    assert_eq!(o.run("rbd.dir_rename_image", ("a", "c", "1")), Ok(()));
    assert_eq!(o.get("rbd.dir_get_name", "1"), Ok(Bytes::from_static(b"c")));
    assert_eq!(o.get("rbd.dir_get_id", "c"), Ok(Bytes::from_static(b"1")));
    assert_eq!(o.ask("rbd.dir_get_id", "a"), Err(E::ENOENT));
    assert_eq!(o.run("rbd.dir_remove_image", ("b", "1")), Err(E::ESTALE));
    assert_eq!(o.run("rbd.dir_remove_image", ("b", "3")), Err(E::ENOENT));
    assert_eq!(o.run("rbd.dir_remove_image", ("b", "2")), Ok(()));
    assert_eq!(o.get("rbd.dir_list", ("", 9u64)), Ok(Names::from([("c".into(), "1".into())])));
}

#[test]
fn a_directory_is_listed_page_by_page() {
    let mut o = MemObject::new();
    for i in 0..20 {
        o.run("rbd.dir_add_image", (format!("n{i:02}"), format!("{i}"))).unwrap();
    }
    let mut seen = Vec::new();
    let mut after = Bytes::new();
    loop {
        let page: Names = o.get("rbd.dir_list", (after.clone(), 7u64)).unwrap();
        seen.extend(page.keys().cloned());
        match page.into_keys().next_back() {
            Some(last) => after = last,
            None => break,
        }
    }
    assert_eq!(seen, (0..20).map(|i| format!("n{i:02}")).collect::<Vec<_>>());
    assert_eq!(o.get::<_, Names>("rbd.dir_list", ("", u64::MAX)).unwrap().len(), 20);
    assert_eq!(o.get::<_, Names>("rbd.dir_list", ("", 0u64)).unwrap().len(), 0);
}

#[test]
fn a_directory_is_closed_only_when_empty() {
    let mut o = MemObject::new();
    assert_eq!(o.run("rbd.dir_state_assert", 0u8), Err(E::ENOENT));
    assert_eq!(o.run("rbd.dir_state_set", 1u8), Err(E::ENOENT));
    assert_eq!(o.run("rbd.dir_state_set", 2u8), Err(E::EINVAL));
    assert_eq!(o.run("rbd.dir_state_set", 0u8), Ok(()));
    assert_eq!(o.run("rbd.dir_state_assert", 1u8), Err(E::ENOENT));
    o.run("rbd.dir_add_image", ("a", "1")).unwrap();
    assert_eq!(o.run("rbd.dir_state_set", 1u8), Err(E::EBUSY));
    o.run("rbd.dir_remove_image", ("a", "1")).unwrap();
    assert_eq!(o.run("rbd.dir_state_set", 1u8), Ok(()));
    assert_eq!(o.run("rbd.dir_state_assert", 1u8), Ok(()));
}

#[test]
fn an_id_is_set_once() {
    let mut o = MemObject::new();
    assert_eq!(o.run("rbd.set_id", "1"), Err(E::ENOENT));
    o.state.exists = true;
    assert_eq!(o.ask("rbd.get_id", ()), Err(E::ENOENT));
    assert_eq!(o.run("rbd.set_id", "1 2"), Err(E::EINVAL));
    assert_eq!(o.run("rbd.set_id", "12"), Ok(()));
    assert_eq!(o.run("rbd.set_id", "12"), Err(E::EEXIST));
    assert_eq!(o.get("rbd.get_id", ()), Ok(Bytes::from_static(b"12")));
    o.state.data.truncate(3);
    assert_eq!(o.ask("rbd.get_id", ()), Err(E::EIO));
}

#[test]
fn trash() {
    let mut o = MemObject::new();
    let spec = TrashSpec {
        source: 0,
        name: "n".into(),
        deletion_time: UTime { sec: 1, nsec: 2 },
        deferment_end_time: UTime { sec: 3, nsec: 4 },
        state: 1,
    };
    assert_eq!(o.run("rbd.trash_add", ("a b", &spec)), Err(E::EINVAL));
    assert_eq!(o.run("rbd.trash_add", ("1", &spec)), Ok(()));
    assert_eq!(o.run("rbd.trash_add", ("1", &spec)), Err(E::EEXIST));
    assert_eq!(o.get("rbd.trash_get", "1"), Ok(spec.clone()));
    assert_eq!(o.ask("rbd.trash_get", "2"), Err(E::ENOENT));
    assert_eq!(o.run("rbd.trash_state_set", ("1", 2u8, 0u8)), Err(E::ESTALE));
    assert_eq!(o.run("rbd.trash_state_set", ("1", 0u8, 1u8)), Ok(()));
    assert_eq!(o.run("rbd.trash_state_set", ("1", 0u8, 1u8)), Ok(()), "it is so already");
    assert_eq!(o.run("rbd.trash_state_set", ("2", 0u8, 1u8)), Err(E::ENOENT));
    let listed: BTreeMap<Bytes, TrashSpec> = o.get("rbd.trash_list", ("", 5u64)).unwrap();
    assert_eq!(listed, BTreeMap::from([("1".into(), TrashSpec { state: 0, ..spec })]));
    assert_eq!(o.run("rbd.trash_remove", "1"), Ok(()));
    assert_eq!(o.run("rbd.trash_remove", "1"), Err(E::ENOENT));
}

#[test]
fn namespaces() {
    let mut o = MemObject::new();
    for name in ["b", "a", "c"] {
        assert_eq!(o.run("rbd.namespace_add", name), Ok(()));
    }
    assert_eq!(o.run("rbd.namespace_add", "a"), Err(E::EEXIST));
    let mut list = |after, max: u64| o.get::<_, Vec<Bytes>>("rbd.namespace_list", (after, max));
    assert_eq!(list("", 2), Ok(vec!["a".into(), "b".into()]));
    assert_eq!(list("b", 2), Ok(vec!["c".into()]));
    assert_eq!(o.run("rbd.namespace_remove", "b"), Ok(()));
    assert_eq!(o.run("rbd.namespace_remove", "b"), Err(E::ENOENT));
}

#[test]
fn metadata() {
    let mut o = MemObject::new();
    let many: Names = (0..80).map(|i| (format!("k{i:02}").into(), "v".into())).collect();
    assert_eq!(o.run("rbd.metadata_set", &many), Ok(()));
    let mut list = |max: u64| o.get::<_, Names>("rbd.metadata_list", ("k04", max)).unwrap();
    assert_eq!((list(0).len(), list(3).len(), list(1000).len()), (64, 3, 75));
    assert_eq!(o.get("rbd.metadata_get", "k01"), Ok(Bytes::from_static(b"v")));
    assert_eq!(o.run("rbd.metadata_remove", "k01"), Ok(()));
    assert_eq!(o.run("rbd.metadata_remove", "k01"), Ok(()));
    assert_eq!(o.ask("rbd.metadata_get", "k01"), Err(E::ENOENT));
}

#[test]
fn images_of_a_group() {
    let mut o = MemObject::empty();
    let spec = |pool, id: &'static str| GroupImageSpec { image_id: id.into(), pool };
    for (pool, id) in [(2, "b"), (1, "c"), (0x10, "a_b")] {
        let status = GroupImageStatus { spec: spec(pool, id), state: 1 };
        assert_eq!(o.run("rbd.group_image_set", status), Ok(()));
    }
    let attached = GroupImageStatus { spec: spec(2, "b"), state: 0 };
    assert_eq!(o.run("rbd.group_image_set", attached), Ok(()));
    let mut list = |after: GroupImageSpec, max: u64| {
        let images: Vec<GroupImageStatus> = o.get("rbd.group_image_list", (after, max)).unwrap();
        images.into_iter().map(|i| (i.spec, i.state)).collect::<Vec<_>>()
    };
    let all = [(spec(1, "c"), 1), (spec(2, "b"), 0), (spec(0x10, "a_b"), 1)];
    assert_eq!(list(spec(NO_POOL, ""), 9), all);
    assert_eq!(list(spec(1, "c"), 1), all[1..2]);
    assert_eq!(o.run("rbd.group_image_remove", spec(1, "c")), Ok(()));
    o.state.omap.insert("image_x".into(), Bytes::from_static(&[0]));
    assert_eq!(o.ask("rbd.group_image_list", (spec(NO_POOL, ""), 9u64)), Err(E::EIO));
}

#[test]
fn the_group_of_an_image() {
    let mut o = image(DEFAULT);
    let group = |id: &'static str| GroupSpec { pool: 1, group_id: id.into() };
    assert_eq!(o.get("rbd.image_group_get", ()), Ok(GroupSpec::default()));
    assert_eq!(o.run("rbd.image_group_remove", group("g")), Err(E::ENOENT));
    assert_eq!(o.run("rbd.image_group_add", group("g")), Ok(()));
    assert_eq!(o.run("rbd.image_group_add", group("g")), Ok(()));
    assert_eq!(o.run("rbd.image_group_add", group("h")), Err(E::EEXIST));
    assert_eq!(o.get("rbd.op_features_get", ()), Ok(4u64));
    assert_eq!(o.run("rbd.image_group_remove", group("h")), Err(E::EBADF));
    assert_eq!(o.run("rbd.image_group_remove", group("g")), Ok(()));
    assert_eq!(o.get("rbd.op_features_get", ()), Ok(0u64));
}

#[test]
fn snapshots_of_a_group() {
    let mut o = MemObject::new();
    let snap = |id: String, name: &str, state| GroupSnap {
        id: id.into(),
        name: Bytes::copy_from_slice(name.as_bytes()),
        state,
        snaps: vec![ImageSnapSpec { pool: 1, image_id: "i".into(), snap: SnapId(4) }],
    };
    assert_eq!(o.run("rbd.group_snap_set", snap("1".into(), "", 0)), Err(E::EINVAL));
    assert_eq!(o.run("rbd.group_snap_set", snap(String::new(), "a", 0)), Err(E::EINVAL));
    assert_eq!(o.run("rbd.group_snap_set", snap("1".into(), "a", 0)), Ok(()));
    assert_eq!(o.run("rbd.group_snap_set", snap("1".into(), "a", 0)), Err(E::EEXIST));
    assert_eq!(o.run("rbd.group_snap_set", snap("1".into(), "a", 1)), Ok(()));
    assert_eq!(o.run("rbd.group_snap_set", snap("2".into(), "a", 0)), Err(E::EEXIST));
    for i in 2..10 {
        o.run("rbd.group_snap_set", snap(format!("{i}"), &format!("n{i}"), 1)).unwrap();
    }
    let first = snap("1".into(), "a", 1);
    assert_eq!(o.get("rbd.group_snap_get_by_id", "1"), Ok(first.clone()));
    let mut list = |after: GroupSnap, max: u64| {
        o.get::<_, Vec<GroupSnap>>("rbd.group_snap_list", (after, max)).unwrap()
    };
    assert_eq!(list(snap(String::new(), "", 0), 100).len(), 9, "each once");
    assert_eq!(list(first, 2)[0].id, "2");
    assert_eq!(o.run("rbd.group_snap_remove", "1"), Ok(()));
    assert_eq!(o.ask("rbd.group_snap_get_by_id", "1"), Err(E::ENOENT));
}

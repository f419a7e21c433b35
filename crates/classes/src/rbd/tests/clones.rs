use super::super::types::{ChildSpec, Parent, ParentSpec};
use super::*;
use Errno as E;
use bytes::Bytes;
use std::collections::BTreeSet;
use types::SnapId;

const HEAD: SnapId = SnapId::HEAD;

fn spec(snap: u64) -> ParentSpec {
    ParentSpec { pool: 1, pool_namespace: Bytes::new(), image_id: "p".into(), snap: SnapId(snap) }
}

fn child(id: &'static str) -> ChildSpec {
    ChildSpec { pool: 1, image_id: id.into(), pool_namespace: Bytes::new() }
}

fn overlap(o: &mut MemObject, snap: SnapId) -> Option<u64> {
    o.get("rbd.parent_overlap_get", snap).unwrap()
}

#[test]
fn a_clone_shows_its_parent_as_far_as_it_reaches() {
    let mut o = image(DEFAULT);
    assert_eq!(o.run("rbd.parent_attach", (ParentSpec::default(), MIB)), Err(E::EINVAL));
    assert_eq!(o.run("rbd.parent_attach", (spec(4), 0u64)), Err(E::EINVAL));
    assert_eq!(o.run("rbd.parent_attach", (spec(4), 900 * MIB)), Ok(()));
    assert_eq!(overlap(&mut o, HEAD), Some(64 * MIB));
    assert_eq!(o.run("rbd.parent_attach", (spec(4), MIB)), Err(E::EEXIST));
    assert_eq!(o.run("rbd.parent_attach", (spec(5), 50 * MIB, true)), Ok(()));
    assert_eq!(o.get("rbd.parent_get", ()), Ok(spec(5)));
    o.run("rbd.snapshot_add", ("s", 9u64)).unwrap();
    o.run("rbd.set_size", 10 * MIB).unwrap();
    o.run("rbd.set_size", 40 * MIB).unwrap();
    assert_eq!(overlap(&mut o, HEAD), Some(10 * MIB));
    assert_eq!(overlap(&mut o, SnapId(9)), Some(50 * MIB));
    assert_eq!(o.ask("rbd.parent_overlap_get", 8u64), Err(E::ENOENT));
    let mut flat = image(0);
    assert_eq!(flat.run("rbd.parent_attach", (spec(4), MIB)), Err(E::ENOEXEC));
    assert_eq!(flat.run("rbd.parent_detach", ()), Err(E::ENOEXEC));
    assert_eq!(flat.get("rbd.parent_get", ()), Ok(ParentSpec::default()));
    assert_eq!(overlap(&mut flat, HEAD), None);
}

#[test]
fn a_deep_flatten_frees_the_snapshots_too() {
    let mut o = image(DEFAULT);
    assert_eq!(o.run("rbd.parent_detach", ()), Err(E::ENOENT));
    o.run("rbd.parent_attach", (spec(4), MIB)).unwrap();
    o.run("rbd.op_features_set", (2u64, 2u64)).unwrap();
    for id in 5..=12u64 {
        o.run("rbd.snapshot_add", (format!("{id}"), id)).unwrap();
    }
    assert_eq!(o.run("rbd.parent_detach", ()), Ok(()));
    assert_eq!(overlap(&mut o, SnapId(12)), None);
    assert_eq!(stored::<Parent>(&o, "parent"), None);
    assert_eq!(o.get("rbd.op_features_get", ()), Ok(0u64));
}

#[test]
fn a_flat_head_keeps_the_parent_for_its_snapshots() {
    let mut o = image(feature::LAYERING);
    o.run("rbd.parent_attach", (spec(4), MIB)).unwrap();
    o.run("rbd.op_features_set", (2u64, 2u64)).unwrap();
    o.run("rbd.snapshot_add", ("s", 5u64)).unwrap();
    assert_eq!(o.run("rbd.parent_detach", ()), Ok(()));
    assert_eq!(o.run("rbd.parent_detach", ()), Err(E::ENOENT));
    assert_eq!(o.get("rbd.parent_get", ()), Ok(spec(4)));
    assert_eq!((overlap(&mut o, HEAD), overlap(&mut o, SnapId(5))), (None, Some(MIB)));
    o.run("rbd.snapshot_add", ("t", 6u64)).unwrap();
    assert_eq!(overlap(&mut o, SnapId(6)), None, "made of the flat head");
    assert_eq!(o.run("rbd.parent_attach", (spec(4), MIB)), Ok(()), "the same again is welcome");
    assert_eq!(o.run("rbd.parent_detach", ()), Ok(()));
    assert_eq!(o.run("rbd.parent_attach", (spec(3), MIB)), Err(E::EEXIST));
    assert_eq!(o.run("rbd.snapshot_remove", 5u64), Ok(()));
    assert_eq!(stored::<Parent>(&o, "parent"), None);
    assert_eq!(o.get("rbd.op_features_get", ()), Ok(0u64));
}

#[test]
fn the_methods_before_nautilus() {
    let mut o = image(feature::LAYERING);
    let none = ((-1i64, Bytes::new()), HEAD, 0u64);
    assert_eq!(o.get("rbd.get_parent", HEAD), Ok(none.clone()));
    assert_eq!(o.run("rbd.set_parent", ((1i64, "p"), 4u64, MIB)), Ok(()));
    let some = ((1i64, Bytes::from_static(b"p")), SnapId(4), MIB);
    assert_eq!(o.get("rbd.get_parent", HEAD), Ok(some.clone()));
    o.run("rbd.snapshot_add", ("s", 5u64)).unwrap();
    assert_eq!(o.run("rbd.remove_parent", ()), Ok(()));
    assert_eq!(o.get("rbd.get_parent", 5u64), Ok(some));
    assert_eq!(o.get("rbd.get_parent", 6u64), Ok(none));
    let far = ParentSpec { pool_namespace: "ns".into(), ..spec(4) };
    let mut o = image(feature::LAYERING);
    o.run("rbd.parent_attach", (far, MIB)).unwrap();
    assert_eq!(o.ask("rbd.get_parent", HEAD), Err(E::EXDEV));
    assert_eq!(o.run("rbd.remove_parent", ()), Err(E::EXDEV));
}

#[test]
fn children_of_snapshots_are_counted() {
    let mut o = image(DEFAULT);
    o.run("rbd.snapshot_add", ("a", 1u64)).unwrap();
    o.run("rbd.snapshot_add", ("b", 2u64)).unwrap();
    assert_eq!(o.run("rbd.child_attach", (3u64, child("c"))), Err(E::ENOENT));
    assert_eq!(o.run("rbd.child_attach", (1u64, child("c"))), Ok(()));
    assert_eq!(o.run("rbd.child_attach", (1u64, child("c"))), Err(E::EEXIST));
    assert_eq!(o.run("rbd.child_attach", (1u64, child("d"))), Ok(()));
    assert_eq!(o.run("rbd.child_attach", (2u64, child("e"))), Ok(()));
    let children: BTreeSet<ChildSpec> = o.get("rbd.children_list", 1u64).unwrap();
    assert_eq!(children, [child("c"), child("d")].into());
    assert_eq!(o.run("rbd.snapshot_remove", 1u64), Err(E::EBUSY));
    assert_eq!(o.run("rbd.snapshot_trash_add", 1u64), Ok(()), "its clones live on");
    assert_eq!(o.run("rbd.child_attach", (1u64, child("f"))), Err(E::ENOENT));
    assert_eq!(o.run("rbd.child_detach", (1u64, child("x"))), Err(E::ENOENT));
    assert_eq!(o.run("rbd.child_detach", (1u64, child("c"))), Ok(()));
    assert_eq!(o.run("rbd.child_detach", (1u64, child("d"))), Ok(()));
    assert_eq!(o.ask("rbd.children_list", 1u64), Err(E::ENOENT));
    assert_eq!(o.get("rbd.op_features_get", ()), Ok(9u64), "b has a clone yet");
    assert_eq!(o.run("rbd.child_detach", (2u64, child("e"))), Ok(()));
    assert_eq!(o.get("rbd.op_features_get", ()), Ok(8u64));
    assert_eq!(o.run("rbd.child_detach", (2u64, child("e"))), Err(E::ENOENT));
    o.run("rbd.child_attach", (2u64, child("e"))).unwrap();
    o.state.omap.remove(&b"snap_children_0000000000000002"[..]);
    assert_eq!(o.run("rbd.child_detach", (2u64, child("e"))), Err(E::EINVAL));
}

#[test]
fn children_of_format_1() {
    let mut o = MemObject::new();
    let add = |id: &'static str| ((7u64, "p", 4u64), id);
    assert_eq!(o.run("rbd.add_child", add("c")), Ok(()));
    assert_eq!(o.run("rbd.add_child", add("c")), Err(E::EEXIST));
    assert_eq!(o.run("rbd.remove_child", add("d")), Err(E::ENOENT));
    assert_eq!(o.run("rbd.add_child", add("d")), Ok(()));
    assert_eq!(o.run("rbd.remove_child", add("c")), Ok(()));
    let children = o.get::<_, BTreeSet<Bytes>>("rbd.get_children", (7u64, "p", 4u64));
    assert_eq!(children, Ok(["d".into()].into()));
    assert_eq!(o.run("rbd.remove_child", add("d")), Ok(()));
    assert!(o.state.omap.is_empty());
    assert_eq!(o.run("rbd.remove_child", add("d")), Err(E::ENOENT));
    assert_eq!(o.ask("rbd.get_children", (7u64, "p", 4u64)), Err(E::ENOENT));
}

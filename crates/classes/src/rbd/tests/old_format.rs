//! Images of format 1.

use super::super::old::{MIGRATING_TEXT, TEXT};
use super::super::types::MigrationSpec;
use super::*;
use Errno as E;
use bytes::Bytes;

/// A header as librbd writes it for an image of 5 MiB.
fn old_image() -> MemObject {
    let mut o = MemObject::empty();
    let mut data = TEXT.to_vec();
    data.resize(40, 0);
    data.extend_from_slice(b"rb.0.1000.327b23c6\0\0\0\0\0\0");
    data.extend_from_slice(b"RBD\x00001.005\x00\x16\0\0\0");
    data.extend_from_slice(&(5 * MIB).to_le_bytes());
    data.extend_from_slice(&[0; 24]);
    assert_eq!(data.len(), 112);
    o.state.data = data;
    o
}

/// Id, size and name.
type Snap = ((u64, u64), Bytes);

fn list(o: &mut MemObject) -> (u64, Vec<Snap>) {
    o.get("rbd.snap_list", ()).unwrap()
}

#[test]
fn snapshots() {
    let mut o = old_image();
    assert_eq!(list(&mut o), (0, vec![]));
    assert_eq!(o.run("rbd.snap_add", ("a", 3u64)), Ok(()));
    assert_eq!(o.run("rbd.snap_add", ("bcd", 5u64)), Ok(()));
    assert_eq!(o.run("rbd.snap_add", ("x", 4u64)), Err(E::ESTALE));
    assert_eq!(o.run("rbd.snap_add", ("a", 6u64)), Err(E::EEXIST));
    let snap = |id: u64, name: &'static str| ((id, 5 * MIB), Bytes::from_static(name.as_bytes()));
    assert_eq!(list(&mut o), (5, vec![snap(5, "bcd"), snap(3, "a")]));
    assert_eq!(
        o.state.data[112..],
        *b"\x05\0\0\0\0\0\0\0\0\0\x50\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\x50\0\0\0\0\0bcd\0a\0"
    );
    assert_eq!(o.run("rbd.snap_rename", (3u64, "bcd")), Err(E::EEXIST));
    assert_eq!(o.run("rbd.snap_rename", (9u64, "z")), Err(E::ENOENT));
    assert_eq!(o.run("rbd.snap_rename", (3u64, "long name")), Ok(()));
    assert_eq!(o.run("rbd.snap_remove", "a"), Err(E::ENOENT));
    assert_eq!(o.run("rbd.snap_remove", "bcd"), Ok(()));
    assert_eq!(list(&mut o), (5, vec![snap(3, "long name")]));
    assert_eq!(o.run("rbd.snapshot_set_limit", 0u64), Err(E::ERANGE));
    assert_eq!(o.run("rbd.snapshot_set_limit", 1u64), Ok(()));
    assert_eq!(o.run("rbd.snap_add", ("y", 7u64)), Err(E::EDQUOT));
}

#[test]
fn wrong_headers() {
    let mut o = old_image();
    o.state.data.truncate(111);
    assert_eq!(o.ask("rbd.snap_list", ()), Err(E::EINVAL));
    let mut o = old_image();
    o.state.data[96] = 1;
    assert_eq!(o.ask("rbd.snap_list", ()), Err(E::EIO), "a snapshot that is not there");
    o.state.data[96..100].fill(0xff);
    assert_eq!(o.run("rbd.snap_add", ("a", 3u64)), Err(E::EINVAL));
    o.state.data[104..112].fill(0xff);
    assert_eq!(o.ask("rbd.snap_list", ()), Err(E::EINVAL));
}

#[test]
fn migration_changes_the_text() {
    let mut o = old_image();
    let spec = |end| MigrationSpec { end, ..MigrationSpec::default() };
    assert_eq!(o.ask("rbd.migration_get", ()), Err(E::EINVAL));
    assert_eq!(o.run("rbd.migration_set", spec(MigrationSpec::DESTINATION)), Err(E::EINVAL));
    assert_eq!(o.run("rbd.migration_set", spec(MigrationSpec::SOURCE)), Ok(()));
    assert!(o.state.data.starts_with(MIGRATING_TEXT));
    assert_eq!(o.get("rbd.migration_get", ()), Ok(spec(MigrationSpec::SOURCE)));
    assert_eq!(o.run("rbd.migration_remove", ()), Ok(()));
    assert_eq!(o.state, old_image().state);
    assert_eq!(o.run("rbd.migration_remove", ()), Err(E::EINVAL));
    assert_eq!(MemObject::empty().run("rbd.migration_set", spec(1)), Err(E::ENXIO));
}

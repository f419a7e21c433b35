//! What is removed later, and work that takes long.

use super::basic::{pattern, small};
use super::cluster::{Cluster, PATIENCE};
use client::image::{
    Change, CloneFormat, CloneImage, ImageId, ImageInfo, ImageOutcome, OpenImage, SnapKind,
    Trashed, TrashedImage,
};
use client::{ClientError, Object, ObjectOp, Outcome};
use denc::Encoder;
use maps::PoolFlags;
use sim::NodeId;
use std::time::Duration;
use types::{ByteString, Errno, SnapId, UTime};

/// A clone `y`, open, of the snapshot `s` of the image `x`, open, whose objects are all there.
fn clone(c: &mut Cluster) -> (ImageId, ImageId) {
    let x = c.made(0, small(c, "x"));
    c.write(0, x, 0, &pattern(100_000, 3)).unwrap();
    c.change(0, x, Change::SnapCreate("s".into())).unwrap();
    let parent = OpenImage::new(c.pool, "x").at_snap("s");
    let clone = CloneImage { parent, child: small(c, "y"), format: CloneFormat::V2 };
    let id = c.act(0, |now, h| h.images.clone_image(now, &mut h.client, clone));
    let ImageOutcome::Created(Ok(_)) = c.end(0, id) else { panic!() };
    (x, c.open(0, OpenImage::new(c.pool, "y")).unwrap())
}

#[test]
fn long_work_says_how_far_it_is_and_stops_when_it_is_canceled() {
    let mut c = Cluster::new(11, 3, 1);
    let (x, y) = clone(&mut c);
    let flatten = |c: &mut Cluster| {
        c.act(0, |now, h| h.images.change(now, &mut h.client, y, Change::Flatten))
    };
    let id = flatten(&mut c);
    let far = c.wait(PATIENCE, |c| c.hosts[0].borrow().images.progress(id));
    assert!(far > 0.0 && far < 1.0, "{far}");
    c.act(0, |_, h| h.images.cancel(id));
    assert_eq!(c.done(0, id).unwrap_err().errno, Errno::ECANCELED);
    assert_eq!(c.hosts[0].borrow().images.progress(id), None);
    assert_eq!(c.info(0, y).overlap, 100_000, "it is a clone still");
    let id = flatten(&mut c);
    c.done(0, id).unwrap();
    assert_eq!(c.info(0, y).overlap, 0);
    assert_eq!(c.read(0, y, 0, 100_000).unwrap(), pattern(100_000, 3));
    c.close(0, y);
    c.close(0, x);
    let spec = OpenImage::new(c.pool, "y");
    let id = c.act(0, |now, h| h.images.remove(now, &mut h.client, spec));
    c.wait(PATIENCE, |c| c.hosts[0].borrow().images.progress(id));
    c.act(0, |_, h| h.images.cancel(id));
    assert_eq!(c.done(0, id).unwrap_err().errno, Errno::ECANCELED);
    c.remove(0, OpenImage::new(c.pool, "y")).unwrap();
}

/// Nobody else would remove it.
#[test]
fn a_removed_snapshot_goes_with_its_last_clone() {
    let mut c = Cluster::new(12, 3, 1);
    let (x, y) = clone(&mut c);
    c.change(0, x, Change::SnapRemove("s".into(), SnapKind::User)).unwrap();
    assert_eq!(c.info(0, x).snaps.len(), 1, "it is kept for the clone");
    c.close(0, x);
    c.change(0, y, Change::Flatten).unwrap();
    c.close(0, y);
    c.remove(0, OpenImage::new(c.pool, "x")).unwrap();
    c.remove(0, OpenImage::new(c.pool, "y")).unwrap();
    let left = c.objects(c.pool);
    assert!(left.iter().all(|o| ["rbd_directory", "rbd_children"].contains(&&**o)), "{left:?}");
}

/// Moves an image to the trash, until a time, as users do.
fn to_trash(c: &mut Cluster, name: &str, id: &str, until_s: u32) -> Trashed {
    to_trash_from(c, name, id, until_s, 0)
}

/// The same as others do.
fn to_trash_from(c: &mut Cluster, name: &str, id: &str, until_s: u32, source: u8) -> Trashed {
    let trashed = Trashed {
        source,
        name: name.to_owned(),
        deletion_time: UTime::ZERO,
        deferment_end_time: UTime { sec: until_s, nsec: 0 },
        state: 0,
    };
    let pool = c.pool;
    let object = |name: &str| ObjectOp::new(Object::new(pool, name));
    let add = object("rbd_trash").call("rbd", "trash_add", denc::encode(&(id, &trashed)));
    let leave = object("rbd_directory").call("rbd", "dir_remove_image", denc::encode(&(name, id)));
    let unname = object(&format!("rbd_id.{name}")).remove();
    for op in [add.as_write(), leave.as_write(), unname] {
        c.op(0, op).unwrap();
    }
    trashed
}

#[test]
fn an_image_leaves_the_trash_when_its_time_is_over() {
    let mut c = Cluster::new(13, 3, 1);
    let x = c.made(0, small(&c, "x"));
    c.write(0, x, 0, &pattern(100_000, 3)).unwrap();
    let id = c.hosts[0].borrow().images.info(x).unwrap().id.clone();
    c.close(0, x);
    let spec =
        |force| TrashedImage { pool: c.pool, nspace: ByteString::default(), id: id.clone(), force };
    let (now, forced) = (spec(false), spec(true));
    let remove = |c: &mut Cluster, spec: &TrashedImage| {
        let spec = spec.clone();
        let id = c.act(0, |now, h| h.images.remove_from_trash(now, &mut h.client, spec));
        c.done(0, id).map_err(|e| e.errno)
    };
    assert_eq!(remove(&mut c, &now), Err(Errno::ENOENT));
    let trashed = to_trash(&mut c, "x", &id, u32::MAX);
    let pool = c.pool;
    let object = |name: &str| ObjectOp::new(Object::new(pool, name));
    assert_eq!(remove(&mut c, &now), Err(Errno::EPERM));
    // Somebody uses it: it can be restored.
    let by_id = c.open(0, OpenImage::by_id(c.pool, &id)).unwrap();
    assert_eq!(remove(&mut c, &forced), Err(Errno::EBUSY));
    let get = object("rbd_trash").call("rbd", "trash_get", denc::encode(&id));
    let told = c.op(0, get).unwrap().bytes(0).unwrap();
    assert_eq!(denc::decode_all::<Trashed>(&told).unwrap(), trashed);
    c.close(0, by_id);
    assert_eq!(remove(&mut c, &forced), Ok(()));
    assert_eq!(c.objects(c.pool), ["rbd_directory", "rbd_trash"]);
    assert_eq!(remove(&mut c, &forced), Err(Errno::ENOENT));
}

/// A map says that an object exists before it does; whoever changed it may have died in between. One that is
/// marked as invalid says nothing.
#[test]
fn an_object_map_that_is_wrong_loses_nothing() {
    let flag_as_invalid = ("set_flags", denc::encode(&(1u64, 1u64, SnapId::HEAD)));
    // All objects exist.
    let say_they_exist = ("object_map_update", denc::encode(&((0u64, 13u64), 1u8, false)));
    for (method, input) in [flag_as_invalid, say_they_exist] {
        let mut c = Cluster::new(16, 3, 1);
        let (_, y) = clone(&mut c);
        let id = c.info(0, y).id;
        c.close(0, y);
        let object = match method {
            "set_flags" => format!("rbd_header.{id}"),
            _ => format!("rbd_object_map.{id}"),
        };
        let op = ObjectOp::new(Object::new(c.pool, object.as_str())).call("rbd", method, input);
        c.op(0, op.as_write()).unwrap();
        let y = c.open(0, OpenImage::new(c.pool, "y")).unwrap();
        c.change(0, y, Change::Flatten).unwrap();
        assert_eq!(c.read(0, y, 0, 100_000).unwrap(), pattern(100_000, 3), "{method}");
    }
}

/// The mon does it, as a client of its own cluster.
#[test]
fn tasks_are_done_in_the_background() {
    let mut c = Cluster::new(14, 3, 1);
    let (x, y) = clone(&mut c);
    let add = |what: &str, spec: &str, image: &str| {
        format!(r#"{{"prefix":"rbd task add {what}","{spec}":"rbd/{image}"}}"#)
    };
    let list = |c: &mut Cluster| c.command(0, r#"{"prefix":"rbd task list"}"#.to_owned());
    let none = |c: &mut Cluster| (list(c) == "[]\n").then_some(());
    // The holder of the lock does it, and keeps the lock.
    c.write(0, y, 0, &pattern(5000, 8)).unwrap();
    for _ in 0..2 {
        // The second time it is the same task.
        let told = c.command(0, add("flatten", "image_spec", "y"));
        assert!(told.starts_with(br#"{"sequence":1,"#), "{told:?}");
    }
    c.wait(PATIENCE, none);
    assert!(c.info(0, y).overlap == 0 && c.info(0, y).is_locked);
    c.change(0, x, Change::SnapRemove("s".into(), SnapKind::User)).unwrap();
    c.close(0, y);
    // It is open: the task is tried again.
    c.command(0, add("remove", "image_spec", "x"));
    c.wait(PATIENCE, |c| list(c).windows(13).any(|w| w == b"retry_message").then_some(()));
    c.close(0, x);
    c.command(0, add("remove", "image_spec", "y"));
    c.wait(PATIENCE, none);
    assert_eq!(c.objects(c.pool), ["rbd_directory"]);
}

/// Whoever took the last clone off its list did not live to remove what had stayed for it.
fn left_by_a_clone(source: Option<u8>) -> Cluster {
    let mut c = Cluster::new(20, 3, 1);
    let (x, y) = clone(&mut c);
    let (parent, child) = (c.info(0, x).id, c.info(0, y).id);
    let snap = c.info(0, x).snaps[0].id;
    c.change(0, x, Change::SnapRemove("s".into(), SnapKind::User)).unwrap();
    c.close(0, x);
    c.close(0, y);
    if let Some(source) = source {
        to_trash_from(&mut c, "x", &parent, 0, source);
    }
    let object = |id: &str| ObjectOp::new(Object::new(c.pool, format!("rbd_header.{id}")));
    let mut e = Encoder::new();
    e.put(&snap).section(2, 1, |e| {
        e.put(&c.pool).put(&child).put("");
    });
    let detach = object(&parent).call("rbd", "child_detach", e.into_bytes());
    let forget = object(&child).call("rbd", "parent_detach", "");
    for op in [detach, forget] {
        c.op(0, op.as_write()).unwrap();
    }
    c
}

#[test]
fn a_removed_snapshot_that_no_clone_needs_any_more_goes_with_its_image() {
    let mut c = left_by_a_clone(None);
    c.remove(0, OpenImage::new(c.pool, "x")).unwrap();
    assert!(c.objects(c.pool).iter().all(|o| o != "rbd_id.x"));
    let mut c = left_by_a_clone(Some(0));
    let pool = c.pool;
    let purge = c.act(0, |now, h| h.images.purge_trash(now, &mut h.client, pool, "".into()));
    c.done(0, purge).unwrap();
    c.remove(0, OpenImage::new(c.pool, "y")).unwrap();
    let left = c.objects(c.pool);
    let lists = ["rbd_children", "rbd_directory", "rbd_trash"];
    assert!(left.iter().all(|o| lists.contains(&&**o)), "{left:?}");
}

/// With the last clone that needed it (`rbd_move_parent_to_trash_on_remove`).
#[test]
fn an_image_that_stayed_in_the_trash_for_its_clones_goes_with_them() {
    for (source, goes) in [(4, true), (0, false)] {
        let mut c = Cluster::new(21, 3, 1);
        let (x, y) = clone(&mut c);
        let id = c.info(0, x).id;
        c.change(0, x, Change::SnapRemove("s".into(), SnapKind::User)).unwrap();
        c.close(0, x);
        to_trash_from(&mut c, "x", &id, 0, source);
        let parent = OpenImage::by_id(c.pool, &id);
        let needed = c.remove(0, parent.clone()).unwrap_err();
        assert_eq!(needed.errno, Errno::ENOTEMPTY, "{needed}");
        c.change(0, y, Change::Flatten).unwrap();
        assert_eq!(c.read(0, y, 0, 100_000).unwrap(), pattern(100_000, 3));
        c.pass(Duration::from_secs(1));
        assert_eq!(c.open(0, parent).is_err(), goes);
    }
}

/// A client has a lock, as its cookie says, and answers nothing.
fn lock_silently(c: &mut Cluster, id: &str) {
    let header = Object::new(c.pool, format!("rbd_header.{id}"));
    let of = header.clone();
    let watch = c.act(0, |now, h| h.client.watch(now, of, 0));
    assert!(matches!(c.plain(0, watch), Outcome::Watching(Ok(()))));
    let list = ObjectOp::new(header.clone()).list_watchers();
    let watchers = c.op(0, list).unwrap().watchers(0).unwrap();
    let [watcher] = &watchers[..] else { panic!("{watchers:?}") };
    let mut e = Encoder::new();
    e.section(1, 1, |e| {
        let cookie = format!("auto {}", watcher.cookie);
        e.put("rbd_lock").put(&1u8).put(cookie.as_str()).put("internal").put("");
        e.put(&UTime::ZERO).put(&0u8);
    });
    let lock = ObjectOp::new(header).call("lock", "lock", e.into_bytes());
    c.op(0, lock.as_write()).unwrap();
}

#[test]
fn a_task_that_waits_for_a_lock_lets_others_be_done() {
    let mut c = Cluster::new(19, 3, 1);
    let (x, y) = clone(&mut c);
    let id = c.info(0, y).id;
    c.close(0, x);
    c.close(0, y);
    lock_silently(&mut c, &id);
    let z = c.made(0, small(&c, "z"));
    c.close(0, z);
    for (what, image) in [("flatten", "y"), ("remove", "z")] {
        let add = format!(r#"{{"prefix":"rbd task add {what}","image_spec":"rbd/{image}"}}"#);
        c.command(0, add);
    }
    c.wait(PATIENCE, |c| {
        let list = c.command(0, r#"{"prefix":"rbd task list"}"#.to_owned());
        let list = String::from_utf8_lossy(&list).into_owned();
        assert!(list.contains("Flattening"), "{list}");
        (!list.contains("Removing")).then_some(())
    });
}

/// What the mon had begun it does again: its lock is a dead client's then.
#[test]
fn tasks_survive_the_mon() {
    for after_us in [500, 5000, 10_000] {
        let mut c = Cluster::new(15, 3, 1);
        let (x, y) = clone(&mut c);
        c.close(0, x);
        c.close(0, y);
        let add = r#"{"prefix":"rbd task add flatten","image_spec":"rbd/y"}"#;
        c.command(0, add.to_owned());
        c.pass(Duration::from_micros(after_us));
        let mon = NodeId(0);
        c.world.crash(mon);
        c.world.start(mon);
        let list = r#"{"prefix":"rbd task list"}"#;
        c.wait(PATIENCE, |c| (c.command(0, list.to_owned()) == "[]\n").then_some(()));
        let y = c.open(0, OpenImage::new(c.pool, "y")).unwrap();
        assert_eq!(c.info(0, y).overlap, 0, "after {after_us} us");
        let content = c.read(0, y, 0, 100_000).unwrap();
        let wrong = (0..100_000).find(|&at| content[at] != pattern(100_000, 3)[at]);
        assert_eq!(wrong, None, "after {after_us} us");
        // Nobody holds its lock.
        c.write(0, y, 0, b"x").unwrap();
    }
}

/// Runs until a request of host 0 has removed the only snapshot of an image that host 1 has open, and not for long
/// after that.
fn until_snapshot_is_gone(c: &mut Cluster, x: ImageId) {
    for _ in 0..200_000 {
        if c.info(1, x).snaps.is_empty() {
            return;
        }
        c.pass(Duration::from_micros(5));
    }
    panic!("it stays");
}

/// What a clone names must be there: else nobody could open it.
#[test]
fn a_removed_snapshot_stays_until_its_last_clone_has_forgotten_it() {
    for flatten in [true, false] {
        let mut c = Cluster::new(17, 3, 2);
        let (x, y) = clone(&mut c);
        c.change(0, x, Change::SnapRemove("s".into(), SnapKind::User)).unwrap();
        c.close(0, x);
        let x = c.open(1, OpenImage::new(c.pool, "x")).unwrap();
        assert_eq!(c.info(1, x).snaps.len(), 1);
        let spec = OpenImage::new(c.pool, "y");
        if flatten {
            c.act(0, |now, h| h.images.change(now, &mut h.client, y, Change::Flatten));
        } else {
            c.close(0, y);
            c.act(0, |now, h| h.images.remove(now, &mut h.client, spec.clone()));
        }
        until_snapshot_is_gone(&mut c, x);
        c.restart_host(0);
        if flatten {
            let y = c.open(0, spec.clone()).unwrap();
            assert_eq!(c.read(0, y, 0, 100_000).unwrap(), pattern(100_000, 3));
            c.close(0, y);
            c.pass(Duration::from_secs(60));
        }
        c.close(1, x);
        c.remove(0, spec).unwrap();
        c.pass(Duration::from_secs(60));
        c.remove(0, OpenImage::new(c.pool, "x")).unwrap();
        let left = c.objects(c.pool);
        assert!(left.iter().all(|o| ["rbd_directory", "rbd_children"].contains(&&**o)), "{left:?}");
    }
}

fn look(c: &mut Cluster, spec: &OpenImage, alone: bool) -> Result<ImageInfo, ClientError> {
    let looking = c.act(0, |now, h| h.images.look(now, &mut h.client, spec.clone(), alone));
    match c.end(0, looking) {
        ImageOutcome::Looked(seen) => seen,
        other => panic!("{other:?}"),
    }
}

fn remove_without_parent(in_trash: bool) {
    let mut c = Cluster::new(18, 3, 1);
    let (x, y) = clone(&mut c);
    c.write(0, y, 0, &pattern(50_000, 4)).unwrap();
    let (parent, id) = (c.info(0, x).id, c.info(0, y).id);
    c.close(0, x);
    c.close(0, y);
    let header = Object::new(c.pool, format!("rbd_header.{parent}"));
    c.op(0, ObjectOp::new(header).remove()).unwrap();
    let spec = OpenImage::new(c.pool, "y");
    assert_eq!(c.open(0, spec.clone()).unwrap_err().errno, Errno::EIO);
    assert_eq!(look(&mut c, &spec, false).unwrap_err().errno, Errno::EIO);
    let seen = look(&mut c, &spec, true).unwrap();
    assert_eq!((seen.id, seen.parent.map(|p| p.1)), (id.clone(), Some(parent)));
    if in_trash {
        to_trash(&mut c, "y", &id, 0);
        let (pool, nspace) = (c.pool, ByteString::default());
        let trashed = TrashedImage { pool, nspace, id: id.clone(), force: false };
        let removal = c.act(0, |now, h| h.images.remove_from_trash(now, &mut h.client, trashed));
        c.done(0, removal).unwrap();
    } else {
        c.remove(0, spec).unwrap();
    }
    let left = c.objects(c.pool);
    assert!(left.iter().all(|o| !o.contains(&id)), "{left:?}");
}

#[test]
fn a_clone_whose_parent_is_gone_is_there_and_can_be_removed() {
    remove_without_parent(false);
}

#[test]
fn a_clone_whose_parent_is_gone_leaves_the_trash_with_its_data() {
    remove_without_parent(true);
}

#[test]
fn an_image_whose_header_is_gone_is_removed_by_its_id() {
    let mut c = Cluster::new(18, 3, 1);
    let z = c.made(0, small(&c, "z"));
    let id = c.info(0, z).id;
    c.close(0, z);
    let header = Object::new(c.pool, format!("rbd_header.{id}"));
    c.op(0, ObjectOp::new(header).remove()).unwrap();
    c.remove(0, OpenImage::by_id(c.pool, &id)).unwrap();
    let left = c.objects(c.pool);
    assert!(left.iter().all(|o| !o.contains(&id) && o != "rbd_id.z"), "{left:?}");
    assert_eq!(c.remove(0, OpenImage::by_id(c.pool, &id)).unwrap_err().errno, Errno::ENOENT);
}

#[test]
fn images_are_removed_from_a_full_pool() {
    let mut c = Cluster::new(16, 3, 1);
    let pool = c.pool;
    let ids = ["x", "y"].map(|name| {
        let image = c.made(0, small(&c, name));
        c.write(0, image, 0, &pattern(100_000, 3)).unwrap();
        let id = c.hosts[0].borrow().images.info(image).unwrap().id.clone();
        c.close(0, image);
        id
    });
    to_trash(&mut c, "y", &ids[1], 0);
    let quota = r#"{"prefix":"osd pool set-quota","pool":"rbd","field":"max_objects","val":"1"}"#;
    c.command(0, quota.to_owned());
    let is_full = |c: &Cluster| {
        let host = c.hosts[0].borrow();
        host.client.map().unwrap().pool(pool).unwrap().flags.contains(PoolFlags::FULL)
    };
    while !is_full(&c) {
        let next = c.hosts[0].borrow().client.map().unwrap().epoch.next();
        let id = c.act(0, |now, h| h.client.wait_for_map(now, next));
        c.plain(0, id);
    }
    c.remove(0, OpenImage::new(pool, "x")).unwrap();
    let id = c.act(0, |now, h| h.images.purge_trash(now, &mut h.client, pool, "".into()));
    c.done(0, id).unwrap();
    assert!(is_full(&c));
    assert_eq!(c.objects(pool), ["rbd_directory", "rbd_trash"]);
}

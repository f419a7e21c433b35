//! Each thing once.

use super::cluster::Cluster;
use client::image::{
    Change, CloneFormat, CloneImage, CreateImage, ImageOutcome, OpenImage, SnapKind, feature,
};
use client::{Object, ObjectOp};
use types::Errno;

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed) | 1).collect()
}

pub fn small(c: &Cluster, name: &str) -> CreateImage {
    CreateImage { order: 13, ..CreateImage::new(c.pool, name, 100_000) }
}

#[test]
fn an_image_is_made_written_read_and_removed() {
    let mut c = Cluster::new(1, 3, 1);
    let spec = small(&c, "x");
    let x = c.made(0, spec.clone());
    let info = c.info(0, x);
    assert_eq!((info.size, info.order, info.features), (100_000, 13, feature::DEFAULT));
    assert_eq!(c.read(0, x, 0, 100_000).unwrap(), vec![0; 100_000]);
    let data = pattern(20_000, 1);
    c.write(0, x, 5000, &data).unwrap();
    assert!(c.info(0, x).is_locked);
    assert_eq!(c.read(0, x, 5000, 20_000).unwrap(), data);
    c.discard(0, x, 8192, 8192).unwrap();
    let mut all = vec![0; 100_000];
    all[5000..25_000].copy_from_slice(&data);
    all[8192..16_384].fill(0);
    assert_eq!(c.read(0, x, 0, 100_000).unwrap(), all);
    assert_eq!(c.write(0, x, 99_999, b"xy").unwrap_err().errno, Errno::EINVAL);
    assert!(c.objects(c.pool).iter().any(|o| o.starts_with("rbd_data")));
    let busy = c.remove(0, OpenImage::new(c.pool, "x")).unwrap_err();
    assert_eq!(busy.errno, Errno::EBUSY);
    c.close(0, x);
    let again = c.act(0, |now, h| h.images.create(now, &mut h.client, spec));
    let ImageOutcome::Created(Err(error)) = c.end(0, again) else { panic!() };
    assert_eq!(error.errno, Errno::EEXIST);
    c.remove(0, OpenImage::new(c.pool, "x")).unwrap();
    assert_eq!(c.objects(c.pool), ["rbd_directory"]);
    let missing = c.open(0, OpenImage::new(c.pool, "x")).unwrap_err();
    assert_eq!(missing.errno, Errno::ENOENT);
}

#[test]
fn snapshots_and_sizes() {
    let mut c = Cluster::new(2, 3, 1);
    let x = c.made(0, small(&c, "x"));
    let old = pattern(100_000, 2);
    c.write(0, x, 0, &old).unwrap();
    c.change(0, x, Change::SnapCreate("a".into())).unwrap();
    let exists = c.change(0, x, Change::SnapCreate("a".into())).unwrap_err();
    assert_eq!(exists.errno, Errno::EEXIST);
    c.write(0, x, 3000, &[7; 30_000]).unwrap();
    let at_a = c.open(0, OpenImage::new(c.pool, "x").at_snap("a")).unwrap();
    assert_eq!(c.read(0, at_a, 0, 100_000).unwrap(), old);
    assert_eq!(c.write(0, at_a, 0, b"x").unwrap_err().errno, Errno::EROFS);
    c.change(0, x, Change::Resize { size: 20_000, allow_shrink: true }).unwrap();
    assert_eq!(c.info(0, x).size, 20_000);
    let refused = c.change(0, x, Change::Resize { size: 10, allow_shrink: false }).unwrap_err();
    assert_eq!(refused.errno, Errno::EINVAL);
    c.change(0, x, Change::Resize { size: 50_000, allow_shrink: false }).unwrap();
    let mut now = old[..20_000].to_vec();
    now[3000..].fill(7);
    now.resize(50_000, 0);
    assert_eq!(c.read(0, x, 0, 50_000).unwrap(), now);
    assert_eq!(c.read(0, at_a, 0, 100_000).unwrap(), old);
    c.close(0, at_a);
    c.change(0, x, Change::SnapProtect("a".into())).unwrap();
    let busy = c.change(0, x, Change::SnapRemove("a".into(), SnapKind::User)).unwrap_err();
    assert_eq!(busy.errno, Errno::EBUSY);
    c.change(0, x, Change::SnapUnprotect("a".into())).unwrap();
    c.change(0, x, Change::SnapRollback("a".into())).unwrap();
    assert_eq!(c.read(0, x, 0, 100_000).unwrap(), old);
    c.change(0, x, Change::SnapRemove("a".into(), SnapKind::User)).unwrap();
    assert!(c.info(0, x).snaps.is_empty());
    c.close(0, x);
    c.remove(0, OpenImage::new(c.pool, "x")).unwrap();
    assert_eq!(c.objects(c.pool), ["rbd_directory"]);
}

#[test]
fn clones_of_both_formats() {
    for format in [CloneFormat::V1, CloneFormat::V2] {
        let mut c = Cluster::new(3, 3, 1);
        let x = c.made(0, small(&c, "x"));
        let old = pattern(70_000, 3);
        c.write(0, x, 0, &old).unwrap();
        c.change(0, x, Change::SnapCreate("s".into())).unwrap();
        c.change(0, x, Change::SnapProtect("s".into())).unwrap();
        let parent = OpenImage::new(c.pool, "x").at_snap("s");
        let clone = CloneImage { parent, child: small(&c, "y"), format };
        let id = c.act(0, |now, h| h.images.clone_image(now, &mut h.client, clone));
        let ImageOutcome::Created(Ok(_)) = c.end(0, id) else { panic!() };
        let y = c.open(0, OpenImage::new(c.pool, "y")).unwrap();
        assert_eq!(c.info(0, y).overlap, 100_000);
        let mut all = old.clone();
        all.resize(100_000, 0);
        assert_eq!(c.read(0, y, 0, 100_000).unwrap(), all);
        c.write(0, y, 10_000, &[9; 100]).unwrap();
        c.discard(0, y, 16_384, 8192).unwrap();
        c.change(0, y, Change::SnapCreate("t".into())).unwrap();
        let mut at_t = all.clone();
        at_t[10_000..10_100].fill(9);
        at_t[16_384..24_576].fill(0);
        all.copy_from_slice(&at_t);
        c.write(0, y, 30_000, &[8; 100]).unwrap();
        all[30_000..30_100].fill(8);
        assert_eq!(c.read(0, y, 0, 100_000).unwrap(), all);
        c.change(0, y, Change::Flatten).unwrap();
        assert_eq!(c.info(0, y).overlap, 0);
        assert_eq!(c.read(0, y, 0, 100_000).unwrap(), all);
        let t = c.open(0, OpenImage::new(c.pool, "y").at_snap("t")).unwrap();
        assert_eq!(c.read(0, t, 0, 100_000).unwrap(), at_t);
        c.close(0, t);
        c.change(0, x, Change::SnapUnprotect("s".into())).unwrap();
        c.change(0, x, Change::SnapRemove("s".into(), SnapKind::User)).unwrap();
        assert_eq!(c.read(0, y, 0, 100_000).unwrap(), all);
        c.change(0, y, Change::SnapRemove("t".into(), SnapKind::User)).unwrap();
        c.close(0, x);
        c.close(0, y);
        c.remove(0, OpenImage::new(c.pool, "x")).unwrap();
        c.remove(0, OpenImage::new(c.pool, "y")).unwrap();
        let left = c.objects(c.pool);
        assert!(left.iter().all(|o| ["rbd_directory", "rbd_children"].contains(&&**o)), "{left:?}");
    }
}

/// A group would name an image that is not there.
#[test]
fn a_member_of_a_group_and_a_mirrored_image_are_not_removed() {
    let mut c = Cluster::new(9, 3, 1);
    let x = c.made(0, small(&c, "x"));
    c.write(0, x, 0, &pattern(10_000, 3)).unwrap();
    let id = c.info(0, x).id;
    c.close(0, x);
    let pool = c.pool;
    let call = |object: &str, method: &str, input: Vec<u8>| {
        ObjectOp::new(Object::new(pool, object)).call("rbd", method, input).as_write()
    };
    let section = |v: u8, body: &[u8]| {
        let mut bytes = vec![v, 1];
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        bytes
    };
    let text = |s: &str| [&(s.len() as u32).to_le_bytes()[..], s.as_bytes()].concat();
    let header = format!("rbd_header.{id}");
    let group = section(1, &[&pool.0.to_le_bytes()[..], &text("g")].concat());
    let image = section(2, &[text("global"), vec![1, 0]].concat());
    let is_refused = |c: &mut Cluster, errno: Errno| {
        let error = c.remove(0, OpenImage::new(pool, "x")).unwrap_err();
        assert_eq!(error.errno, errno, "{error}");
        let x = c.open(0, OpenImage::new(pool, "x")).unwrap();
        assert_eq!(c.read(0, x, 0, 10_000).unwrap(), pattern(10_000, 3));
        c.close(0, x);
    };
    c.op(0, call(&header, "image_group_add", group.clone())).unwrap();
    is_refused(&mut c, Errno::EMLINK);
    c.op(0, call(&header, "image_group_remove", group)).unwrap();
    c.op(0, call("rbd_mirroring", "mirror_image_set", [text(&id), image].concat())).unwrap();
    is_refused(&mut c, Errno::EBUSY);
    c.op(0, ObjectOp::new(Object::new(pool, "rbd_mirroring")).remove()).unwrap();
    c.remove(0, OpenImage::new(pool, "x")).unwrap();
}

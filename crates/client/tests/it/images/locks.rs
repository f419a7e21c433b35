//! Several clients and one image: the lock goes from hand to hand, and a dead holder is shut out.

use super::cluster::{Cluster, PATIENCE};
use bytes::Bytes;
use client::image::{
    Change, CloneFormat, CloneImage, CreateImage, ImageId, ImageOutcome, ImageRequest, OpenImage,
};
use client::{Object, ObjectOp};
use std::time::Duration;
use types::Errno;

const SIZE: u64 = 64 << 10;

fn image(c: &Cluster) -> CreateImage {
    CreateImage { order: 13, ..CreateImage::new(c.pool, "x", SIZE) }
}

/// An image that both hosts have open.
fn shared(seed: u64) -> (Cluster, [ImageId; 2]) {
    let mut c = Cluster::new(seed, 3, 2);
    let spec = image(&c);
    let a = c.made(0, spec);
    let b = c.open(1, OpenImage::new(c.pool, "x")).unwrap();
    (c, [a, b])
}

#[test]
fn the_lock_goes_from_hand_to_hand() {
    let (mut c, handles) = shared(11);
    let mut model = vec![0; SIZE as usize];
    for round in 0..20u8 {
        let host = usize::from(round % 2);
        let at = usize::from(round) * 3000;
        c.write(host, handles[host], at as u64, &[round + 1; 2000]).unwrap();
        model[at..at + 2000].fill(round + 1);
        assert!(c.info(host, handles[host]).is_locked);
        assert!(!c.info(1 - host, handles[1 - host]).is_locked);
        let other = 1 - host;
        assert_eq!(c.read(other, handles[other], 0, SIZE).unwrap(), model);
    }
}

#[test]
fn a_polite_client_takes_the_lock_from_nobody() {
    let (mut c, [a, b]) = shared(17);
    c.lock(0, a).unwrap();
    assert!(c.info(0, a).is_locked);
    let polite = c.open(1, OpenImage::new(c.pool, "x").only_free_lock()).unwrap();
    let error = c.lock(1, polite).unwrap_err();
    assert_eq!(error.errno, Errno::EBUSY);
    assert!(error.to_string().contains("client."), "{error}");
    assert_eq!(c.write(1, polite, 0, b"never").unwrap_err().errno, Errno::EBUSY);
    assert!(c.info(0, a).is_locked);
    assert_eq!(c.read(1, polite, 0, 5).unwrap(), [0; 5][..]);
    c.close(0, a);
    c.write(1, polite, 0, b"now").unwrap();
    // It lets others have it, as everybody does.
    c.lock(1, b).unwrap();
    assert!(c.info(1, b).is_locked && !c.info(1, polite).is_locked);
    c.close(1, b);
    c.close(1, polite);
}

#[test]
fn both_write_at_once() {
    let (mut c, handles) = shared(12);
    let mut running = Vec::new();
    for i in 0..60u64 {
        let host = (i % 2) as usize;
        let data = Bytes::from(vec![i as u8 + 1; 1000]);
        let handle = handles[host];
        let id = c.act(host, |now, h| h.images.write(now, &mut h.client, handle, i * 1000, data));
        running.push((host, id.unwrap()));
        c.pass(Duration::from_micros(300));
    }
    for (host, id) in running {
        c.done(host, id).unwrap();
    }
    let got = c.read(0, handles[0], 0, 60_000).unwrap();
    assert!((0..60).all(|i| got[i * 1000..(i + 1) * 1000].iter().all(|b| *b == i as u8 + 1)));
    c.close(0, handles[0]);
    c.close(1, handles[1]);
    c.remove(1, OpenImage::new(c.pool, "x")).unwrap();
}

#[test]
fn news_of_size_and_snapshots_reach_the_other() {
    let (mut c, [a, b]) = shared(13);
    c.write(0, a, 0, &[1; 5000]).unwrap();
    c.change(1, b, Change::Resize { size: 100_000, allow_shrink: false }).unwrap();
    c.wait(PATIENCE, |c| (c.info(0, a).size == 100_000).then_some(()));
    c.change(0, a, Change::SnapCreate("s".into())).unwrap();
    c.write(1, b, 0, &[2; 5000]).unwrap();
    assert_eq!(c.info(1, b).snaps[0].name, "s");
    let at = c.open(1, OpenImage::new(c.pool, "x").at_snap("s")).unwrap();
    assert_eq!(c.read(1, at, 0, 5000).unwrap(), [1; 5000][..]);
    assert_eq!(c.read(0, a, 0, 5000).unwrap(), [2; 5000][..]);
}

#[test]
fn a_dead_holder_is_shut_out_and_its_late_writes_never_land() {
    let (mut c, [a, b]) = shared(14);
    c.write(0, a, 0, &[1; 20_000]).unwrap();
    // The holder is cut off from the OSDs, with writes on their way.
    let (holder, osds) = (c.nodes[0], c.osds.clone());
    osds.iter().for_each(|osd| c.world.set_cut(holder, *osd, true));
    let mut late = Vec::new();
    for i in 0..8 {
        let data = Bytes::from(vec![0xee; 3000]);
        late.push(
            c.act(0, |now, h| h.images.write(now, &mut h.client, a, i * 8000, data)).unwrap(),
        );
    }
    // The other one waits until the holder's watch is over.
    c.write(1, b, 0, &[2; 20_000]).unwrap();
    assert!(c.info(1, b).is_locked);
    let listed = c.command(1, r#"{"prefix":"osd blocklist ls","format":"json"}"#.to_owned());
    assert!(String::from_utf8_lossy(&listed).contains("addr"), "{listed:?}");
    osds.iter().for_each(|osd| c.world.set_cut(holder, *osd, false));
    for id in late {
        let error = c.done(0, id).unwrap_err();
        assert_eq!(error.errno, Errno::EBLOCKLISTED, "{error}");
    }
    assert!(c.info(0, a).is_dead);
    assert_eq!(c.write(0, a, 0, b"x").unwrap_err().errno, Errno::EBLOCKLISTED);
    let mut expected = vec![0; SIZE as usize];
    expected[..20_000].fill(2);
    assert_eq!(c.read(1, b, 0, SIZE).unwrap(), expected);
    c.close(0, a);
    c.close(1, b);
}

#[test]
fn a_lock_taken_by_hand_is_respected() {
    let (mut c, [a, _]) = shared(15);
    let id = c.info(0, a).id;
    // As `rbd lock add` does.
    let header = Object::new(c.pool, format!("rbd_header.{id}"));
    let mut input = vec![1, 1];
    let mut body = Vec::new();
    for part in ["rbd_lock", "\u{1}", "mine", "", ""] {
        if part == "\u{1}" {
            body.push(1);
        } else {
            body.extend((part.len() as u32).to_le_bytes());
            body.extend(part.as_bytes());
        }
    }
    body.extend([0; 9]);
    input.extend((body.len() as u32).to_le_bytes());
    input.extend(body);
    c.op(1, ObjectOp::new(header).call("lock", "lock", input).as_write()).unwrap();
    let error = c.write(0, a, 0, b"x").unwrap_err();
    assert_eq!(error.errno, Errno::EBUSY);
    assert!(error.to_string().contains("mine"), "{error}");
    assert_eq!(c.read(0, a, 0, 1).unwrap(), [0][..]);
}

#[test]
fn a_flush_comes_after_the_writes_before_it_and_bounds_hold() {
    let (mut c, [a, _]) = shared(16);
    let mut ids = Vec::new();
    let flush = c.act(0, |now, h| {
        for i in 0..1024 {
            let data = Bytes::from(vec![i as u8; 50]);
            ids.push(h.images.write(now, &mut h.client, a, i * 60, data).unwrap());
        }
        let data = Bytes::from_static(b"one too many");
        let busy = h.images.write(now, &mut h.client, a, 0, data.clone()).unwrap_err();
        assert_eq!(busy.0, data);
        h.images.flush(a)
    });
    c.done(0, flush).unwrap();
    for id in ids {
        let outcome = c.hosts[0].borrow_mut().done.remove(&id);
        assert!(matches!(outcome, Some(ImageOutcome::Done(Ok(())))), "{outcome:?}");
    }
}

/// It goes on writing meanwhile.
#[test]
fn the_holder_of_the_lock_changes_the_image_for_others() {
    let (mut c, [a, b]) = shared(18);
    c.write(0, a, 0, &[1; 5000]).unwrap();
    for change in [
        Change::SnapCreate("s".into()),
        Change::SnapProtect("s".into()),
        Change::Resize { size: 2 * SIZE, allow_shrink: false },
    ] {
        c.change(1, b, change).unwrap();
        assert!(c.info(0, a).is_locked && !c.info(1, b).is_locked);
    }
    assert_eq!((c.info(1, b).size, c.info(1, b).snaps.len()), (2 * SIZE, 1));
    let exists = c.change(1, b, Change::SnapCreate("s".into())).unwrap_err();
    assert_eq!(exists.errno, Errno::EEXIST);
    // What nobody does for others is done after the lock was got.
    c.change(1, b, Change::SnapRollback("s".into())).unwrap();
    assert!(!c.info(0, a).is_locked && c.info(1, b).is_locked);
}

#[test]
fn a_change_is_done_although_the_holder_dies() {
    for after_us in [0, 200, 400, 600, 800, 1000, 1500, 2000, 3000, 5000, 8000] {
        let (mut c, [a, b]) = shared(19);
        c.write(0, a, 0, &[1; 5000]).unwrap();
        let change = Change::SnapCreate("s".into());
        let id = c.act(1, |now, h| h.images.change(now, &mut h.client, b, change));
        c.pass(Duration::from_micros(after_us));
        c.restart_host(0);
        c.done(1, id).unwrap();
        let snaps = c.info(1, b).snaps;
        assert_eq!(snaps.len(), 1, "after {after_us} us");
        c.write(1, b, 0, &[2; 5000]).unwrap();
        let at_s = c.open(1, OpenImage::new(c.pool, "x").at_snap("s")).unwrap();
        assert_eq!(c.read(1, at_s, 0, 5000).unwrap(), [1; 5000][..]);
    }
}

/// What the header of an image says: the cookie of its lock, and the numbers of its watches.
fn lock_and_watches(c: &mut Cluster, id: &str) -> (Option<u64>, Vec<u64>) {
    let header = || ObjectOp::new(Object::new(c.pool, format!("rbd_header.{id}")));
    let mut input = vec![1, 1, 12, 0, 0, 0, 8, 0, 0, 0];
    input.extend(b"rbd_lock");
    let (get, list) = (header().call("lock", "get_info", input), header().list_watchers());
    let info = c.op(1, get).unwrap().bytes(0).unwrap();
    let at = info.windows(5).position(|w| w == b"auto ");
    let digits = |at: usize| info[at + 5..].iter().take_while(|b| b.is_ascii_digit()).copied();
    let cookie = at.map(|at| String::from_utf8(digits(at).collect()).unwrap().parse().unwrap());
    let watchers = c.op(1, list).unwrap().watchers(0).unwrap();
    (cookie, watchers.iter().map(|w| w.cookie).collect())
}

/// Its peers would take it for dead, and shut it out.
#[test]
fn a_client_that_was_cut_off_while_it_took_the_lock_is_known_to_live() {
    let (mut c, [a, b]) = shared(20);
    let id = c.info(0, a).id;
    let (host, osds) = (c.nodes[0], c.osds.clone());
    osds.iter().for_each(|osd| c.world.set_cut(host, *osd, true));
    let data = Bytes::from_static(b"late");
    let late = c.act(0, |now, h| h.images.write(now, &mut h.client, a, 0, data)).unwrap();
    c.pass(Duration::from_secs(60));
    osds.iter().for_each(|osd| c.world.set_cut(host, *osd, false));
    c.done(0, late).unwrap();
    c.pass(Duration::from_secs(2));
    let (cookie, watches) = lock_and_watches(&mut c, &id);
    assert!(watches.contains(&cookie.unwrap()), "{cookie:?} {watches:?}");
    c.write(1, b, 0, b"mine").unwrap();
    assert!(!c.info(0, a).is_dead);
    assert_eq!(c.read(0, a, 0, 4).unwrap(), b"mine"[..]);
}

/// A clone that both hosts have open, of which the first one has the lock and is flattening it, for a while.
fn flattening(seed: u64) -> (Cluster, [ImageId; 2], ImageRequest) {
    let mut c = Cluster::new(seed, 3, 2);
    let x = c.made(0, CreateImage { order: 12, ..CreateImage::new(c.pool, "x", 200 << 12) });
    c.write(0, x, 0, &[3; 200 << 12]).unwrap();
    c.change(0, x, Change::SnapCreate("s".into())).unwrap();
    let clone = CloneImage {
        parent: OpenImage::new(c.pool, "x").at_snap("s"),
        child: CreateImage { order: 12, ..CreateImage::new(c.pool, "y", 0) },
        format: CloneFormat::V2,
    };
    let id = c.act(0, |now, h| h.images.clone_image(now, &mut h.client, clone));
    let ImageOutcome::Created(Ok(_)) = c.end(0, id) else { panic!() };
    let a = c.open(0, OpenImage::new(c.pool, "y")).unwrap();
    let b = c.open(1, OpenImage::new(c.pool, "y")).unwrap();
    c.lock(0, a).unwrap();
    let slow = c.osds[0];
    c.world.set_slow_disks(slow, 50);
    let flatten = c.act(0, |now, h| h.images.change(now, &mut h.client, a, Change::Flatten));
    c.wait(PATIENCE, |c| c.hosts[0].borrow().images.progress(flatten));
    (c, [a, b], flatten)
}

/// It takes minutes with large images.
#[test]
fn the_holder_goes_on_writing_while_it_flattens_though_a_peer_wants_the_lock() {
    let (mut c, [a, b], flatten) = flattening(21);
    let lock = c.act(1, |now, h| h.images.lock(now, &mut h.client, b));
    c.pass(Duration::from_millis(20));
    c.write(0, a, 0, b"meanwhile").unwrap();
    assert!(!c.hosts[0].borrow().done.contains_key(&flatten), "it takes longer than that");
    c.done(0, flatten).unwrap();
    c.done(1, lock).unwrap();
    assert!(c.info(1, b).is_locked && !c.info(0, a).is_locked);
    assert_eq!(c.read(1, b, 0, 10).unwrap(), b"meanwhile\x03"[..]);
}

/// It would wait for hours with large images.
#[test]
fn a_snapshot_is_made_while_the_image_is_flattened() {
    let (mut c, [_, b], flatten) = flattening(22);
    c.change(1, b, Change::SnapCreate("s".into())).unwrap();
    assert!(!c.hosts[0].borrow().done.contains_key(&flatten), "it takes longer than that");
    c.done(0, flatten).unwrap();
    assert_eq!((c.info(1, b).overlap, c.info(1, b).snaps.len()), (0, 1));
    let at_s = c.open(1, OpenImage::new(c.pool, "y").at_snap("s")).unwrap();
    assert_eq!(c.read(1, at_s, 0, 200 << 12).unwrap(), [3; 200 << 12][..]);
}

/// Nobody would find it again.
#[test]
fn nothing_is_written_to_an_image_while_it_is_removed() {
    let mut c = Cluster::new(23, 3, 2);
    let spec = CreateImage { order: 12, ..CreateImage::new(c.pool, "x", 200 << 12) };
    let x = c.made(0, spec);
    c.write(0, x, 0, &[3; 200 << 12]).unwrap();
    c.close(0, x);
    let open = OpenImage::new(c.pool, "x");
    let of = open.clone();
    let removal = c.act(0, |now, h| h.images.remove(now, &mut h.client, of));
    c.wait(PATIENCE, |c| c.hosts[0].borrow().images.progress(removal));
    let b = c.open(1, open).unwrap();
    assert!(!c.hosts[0].borrow().done.contains_key(&removal), "it takes longer than that");
    let error = c.write(1, b, 0, b"lost").unwrap_err();
    assert_eq!(error.errno, Errno::EROFS, "{error}");
    c.done(0, removal).unwrap();
    c.write(1, b, 0, b"lost").unwrap_err();
    c.close(1, b);
    assert_eq!(c.objects(c.pool), ["rbd_directory"]);
}

/// A virtual machine goes on.
#[test]
fn an_image_that_is_in_use_is_not_removed_and_keeps_its_lock() {
    let (mut c, [a, b]) = shared(24);
    c.close(1, b);
    c.write(0, a, 0, b"mine").unwrap();
    let busy = c.remove(1, OpenImage::new(c.pool, "x")).unwrap_err();
    assert_eq!(busy.errno, Errno::EBUSY, "{busy}");
    assert!(c.info(0, a).is_locked);
}

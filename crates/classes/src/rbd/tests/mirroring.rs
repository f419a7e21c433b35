use super::super::mirror::types::*;
use super::super::types::{MirrorNamespace, NO_POOL, SnapNamespace, SnapRecord};
use super::*;
use Errno as E;
use bytes::Bytes;
use std::collections::BTreeMap;
use types::{EntityAddr, EntityName, UTime};

fn enabled() -> MemObject {
    let mut o = MemObject::new();
    o.run("rbd.mirror_uuid_set", "own").unwrap();
    o.run("rbd.mirror_mode_set", 2u32).unwrap();
    o
}

fn peer(uuid: &'static str, site: &'static str) -> Peer {
    Peer {
        uuid: uuid.into(),
        site_name: site.into(),
        client_name: "client.x".into(),
        pool: NO_POOL,
        direction: direction::RX_TX,
        mirror_uuid: Bytes::new(),
        last_seen: UTime::ZERO,
    }
}

fn peers(o: &mut MemObject) -> Vec<Peer> {
    o.get("rbd.mirror_peer_list", ()).unwrap()
}

#[test]
fn modes() {
    let mut o = MemObject::new();
    assert_eq!(o.ask("rbd.mirror_mode_get", ()), Err(E::ENOENT));
    assert_eq!(o.ask("rbd.mirror_uuid_get", ()), Err(E::ENOENT));
    assert_eq!(o.run("rbd.mirror_mode_set", 1u32), Err(E::EINVAL));
    assert_eq!(o.run("rbd.mirror_uuid_set", ""), Err(E::EINVAL));
    assert_eq!(o.run("rbd.mirror_uuid_set", "own"), Ok(()));
    assert_eq!(o.run("rbd.mirror_mode_set", 3u32), Err(E::EINVAL));
    assert_eq!(o.run("rbd.mirror_mode_set", 1u32), Ok(()));
    assert_eq!(o.get("rbd.mirror_mode_get", ()), Ok(1u32));
    assert_eq!(o.get("rbd.mirror_uuid_get", ()), Ok(Bytes::from_static(b"own")));
    assert_eq!(o.run("rbd.mirror_uuid_set", "new"), Err(E::EINVAL));
    o.run("rbd.mirror_peer_add", peer("p", "s")).unwrap();
    assert_eq!(o.run("rbd.mirror_mode_set", 0u32), Err(E::EBUSY));
    o.run("rbd.mirror_peer_remove", "p").unwrap();
    assert_eq!(o.run("rbd.mirror_mode_set", 0u32), Ok(()));
    assert!(o.state.omap.is_empty());
}

#[test]
fn peers_differ() {
    let mut o = MemObject::empty();
    assert_eq!(o.run("rbd.mirror_peer_add", peer("p", "s")), Err(E::EINVAL));
    let mut o = enabled();
    for wrong in [
        peer("own", "s"),
        peer("", "s"),
        peer("p", ""),
        Peer { direction: direction::TX, ..peer("p", "s") },
        Peer { direction: 3, ..peer("p", "s") },
        Peer { client_name: Bytes::new(), ..peer("p", "s") },
    ] {
        assert_eq!(o.run("rbd.mirror_peer_add", &wrong), Err(E::EINVAL), "{wrong:?}");
    }
    let with_uuid = Peer { mirror_uuid: "m".into(), ..peer("p", "s") };
    assert_eq!(o.run("rbd.mirror_peer_add", &with_uuid), Ok(()));
    assert_eq!(o.run("rbd.mirror_peer_add", peer("p", "t")), Err(E::ESTALE));
    assert_eq!(o.run("rbd.mirror_peer_add", peer("q", "s")), Err(E::EEXIST));
    let same = Peer { mirror_uuid: "m".into(), ..peer("q", "t") };
    assert_eq!(o.run("rbd.mirror_peer_add", same), Err(E::EEXIST));
    assert_eq!(o.run("rbd.mirror_peer_add", peer("q", "t")), Ok(()));
    assert_eq!(o.run("rbd.mirror_peer_set_cluster", ("q", "s")), Err(E::EEXIST));
    assert_eq!(o.run("rbd.mirror_peer_set_cluster", ("x", "u")), Err(E::ENOENT));
    assert_eq!(o.run("rbd.mirror_peer_set_cluster", ("q", "u")), Ok(()));
    assert_eq!(o.run("rbd.mirror_peer_set_client", ("q", "client.y")), Ok(()));
    assert_eq!(o.run("rbd.mirror_peer_set_client", ("x", "client.y")), Err(E::ENOENT));
    assert_eq!(o.run("rbd.mirror_peer_set_direction", ("q", direction::RX)), Ok(()));
    let changed =
        Peer { client_name: "client.y".into(), direction: direction::RX, ..peer("q", "u") };
    assert_eq!(peers(&mut o), [with_uuid, changed]);
}

#[test]
fn a_peer_says_that_it_is_there() {
    let mut o = enabled();
    let ping = |o: &mut MemObject, site: &str, uuid: &str, way: u8| {
        o.run("rbd.mirror_peer_ping", (site, uuid, way))
    };
    assert_eq!(ping(&mut o, "s", "m", direction::RX), Err(E::EINVAL));
    assert_eq!(ping(&mut o, "", "m", direction::TX), Err(E::EINVAL));
    assert_eq!(ping(&mut MemObject::empty(), "s", "m", direction::TX), Err(E::EINVAL));
    assert_eq!(ping(&mut o, "s", "m", direction::TX), Ok(()));
    let made = peers(&mut o).remove(0);
    assert_eq!((made.direction, made.uuid.len(), made.last_seen), (direction::TX, 36, o.now));
    o.now.sec += 1;
    assert_eq!(ping(&mut o, "t", "m", direction::TX), Ok(()), "the site has a new name");
    assert_eq!(peers(&mut o), [Peer { site_name: "t".into(), last_seen: o.now, ..made }]);
    let receiver = Peer { direction: direction::RX, ..peer("p", "u") };
    o.run("rbd.mirror_peer_add", &receiver).unwrap();
    assert_eq!(ping(&mut o, "u", "n", direction::TX), Ok(()));
    let now = peers(&mut o).into_iter().find(|p| p.uuid == "p").unwrap();
    assert_eq!((now.direction, &now.mirror_uuid[..]), (direction::RX_TX, &b"n"[..]));
    // Two peers match: the one with the uuid counts, and keeps its name.
    o.now.sec += 1;
    assert_eq!(ping(&mut o, "t", "n", direction::TX), Ok(()));
    let now = peers(&mut o).into_iter().find(|p| p.uuid == "p").unwrap();
    assert_eq!((&now.site_name[..], now.last_seen), (&b"u"[..], o.now));
}

fn image_of(global_id: &'static str, state: u8) -> Image {
    Image { global_id: global_id.into(), state, mode: 1 }
}

#[test]
fn images() {
    let mut o = MemObject::new();
    assert_eq!(o.run("rbd.mirror_image_set", ("1", image_of("g1", 0))), Err(E::ENOENT));
    assert_eq!(o.run("rbd.mirror_image_set", ("1", image_of("g1", 1))), Ok(()));
    assert_eq!(o.run("rbd.mirror_image_set", ("2", image_of("g1", 1))), Err(E::EEXIST));
    assert_eq!(o.run("rbd.mirror_image_set", ("1", image_of("g2", 1))), Err(E::EINVAL));
    assert_eq!(o.get("rbd.mirror_image_get", "1"), Ok(image_of("g1", 1)));
    let id = o.get("rbd.mirror_image_get_image_id", "g1");
    assert_eq!(id, Ok(Bytes::from_static(b"1")));
    let listed = BTreeMap::from([(Bytes::from_static(b"1"), Bytes::from_static(b"g1"))]);
    assert_eq!(o.get("rbd.mirror_image_list", ("", 5u64)), Ok(listed));
    assert_eq!(o.run("rbd.mirror_image_remove", "1"), Err(E::EBUSY));
    said(&mut o, 3, "g1", "", 4).unwrap();
    said(&mut o, 3, "g1", "site", 4).unwrap();
    assert_eq!(o.state.omap.len(), 4);
    assert_eq!(o.run("rbd.mirror_image_set", ("1", image_of("g1", 0))), Ok(()));
    assert_eq!(o.run("rbd.mirror_image_remove", "1"), Ok(()));
    assert!(o.state.omap.is_empty(), "what was said of it is gone too: {:?}", o.state.omap);
    assert_eq!(o.run("rbd.mirror_image_remove", "1"), Err(E::ENOENT));
}

/// A client says how an image does at a site.
fn said(
    o: &mut MemObject,
    client: u64,
    global_id: &'static str,
    site: &'static str,
    state: u8,
) -> Result<(), E> {
    o.client = client;
    let status = SiteStatus { mirror_uuid: site.into(), state, ..SiteStatus::default() };
    o.run("rbd.mirror_image_status_set", (global_id, status))
}

fn up(status: &Status) -> Vec<(&[u8], u8, bool)> {
    status.sites.iter().map(|s| (&s.mirror_uuid[..], s.state, s.up)).collect()
}

#[test]
fn what_is_said_counts_while_who_said_it_watches() {
    let mut o = MemObject::empty();
    assert_eq!(o.ask("rbd.mirror_image_status_get", "g"), Err(E::ENOENT));
    o.run("rbd.mirror_image_set", ("1", image_of("g", 1))).unwrap();
    o.run("rbd.mirror_image_set", ("2", image_of("silent", 1))).unwrap();
    said(&mut o, 3, "g", "", 4).unwrap();
    said(&mut o, 4, "g", "site", 1).unwrap();
    o.watchers = vec![MemObject::client_inst(3)];
    let status: Status = o.get("rbd.mirror_image_status_get", "g").unwrap();
    assert_eq!(up(&status), [(&b""[..], 4, true), (b"site", 1, false)]);
    let (images, statuses): (BTreeMap<Bytes, Image>, BTreeMap<Bytes, Status>) =
        o.get("rbd.mirror_image_status_list", ("", 9u64)).unwrap();
    assert_eq!((images.len(), statuses), (2, BTreeMap::from([("1".into(), status)])));

    type Inst = (EntityName, EntityAddr);
    let inst: Inst = o.get("rbd.mirror_image_instance_get", "g").unwrap();
    assert_eq!(inst.0, MemObject::client_inst(3).0);
    let all: BTreeMap<Bytes, Inst> = o.get("rbd.mirror_image_instance_list", ("", 9u64)).unwrap();
    assert_eq!(all, BTreeMap::from([("1".into(), inst)]));
    assert_eq!(o.ask("rbd.mirror_image_instance_get", "silent"), Err(E::ENOENT));

    assert_eq!(o.run("rbd.mirror_image_status_remove_down", ()), Ok(()));
    let status: Status = o.get("rbd.mirror_image_status_get", "g").unwrap();
    assert_eq!(up(&status), [(&b""[..], 4, true)]);
    o.watchers.clear();
    assert_eq!(o.ask("rbd.mirror_image_instance_get", "g"), Err(E::ESTALE));
    assert_eq!(o.run("rbd.mirror_image_status_remove", "g"), Ok(()));
    assert_eq!(o.ask("rbd.mirror_image_status_get", "g"), Err(E::ENOENT));
}

#[test]
fn of_an_image_that_is_not_mirrored_nothing_is_kept() {
    let mut o = MemObject::new();
    assert_eq!(said(&mut o, 3, "g", "", 4), Ok(()));
    assert!(!o.state.exists);
    o.run("rbd.mirror_image_set", ("1", image_of("g", 1))).unwrap();
    o.run("rbd.mirror_image_set", ("1", image_of("g", Image::DISABLING))).unwrap();
    assert_eq!(said(&mut o, 3, "g", "", 4), Ok(()));
    assert_eq!(o.ask("rbd.mirror_image_status_get", "g"), Err(E::ENOENT));
}

#[test]
fn the_summary_of_a_pool() {
    let mut o = MemObject::empty();
    o.watchers = vec![MemObject::client_inst(3)];
    for (id, global_id) in [("1", "a"), ("2", "b"), ("3", "c")] {
        o.run("rbd.mirror_image_set", (id, image_of(global_id, 1))).unwrap();
    }
    said(&mut o, 3, "a", "", 4).unwrap();
    said(&mut o, 3, "b", "", 4).unwrap();
    said(&mut o, 3, "b", "m", 2).unwrap();
    let mut summary = |peers: Vec<Peer>| {
        o.get::<_, BTreeMap<u8, i32>>("rbd.mirror_image_status_get_summary", peers).unwrap()
    };
    assert_eq!(summary(vec![]), BTreeMap::from([(4, 2), (0, 1)]));
    let both = Peer { mirror_uuid: "m".into(), ..peer("p", "s") };
    assert_eq!(summary(vec![both.clone()]), BTreeMap::from([(2, 1), (0, 2)]));
    let to = Peer { direction: direction::TX, ..both.clone() };
    assert_eq!(summary(vec![to.clone()]), BTreeMap::from([(2, 1), (0, 2)]));
    let from = Peer { direction: direction::RX, ..both };
    assert_eq!(summary(vec![from, to]), BTreeMap::from([(2, 1), (0, 2)]));
    let none = o.get::<_, BTreeMap<u8, i32>>("rbd.mirror_image_status_get_summary", ());
    assert_eq!(none, Ok(BTreeMap::from([(4, 2), (0, 1)])), "older clients name no peers");
}

#[test]
fn snapshots_and_instances() {
    let mut o = image(DEFAULT);
    let mirror = MirrorNamespace {
        state: 2,
        peer_uuids: ["a".into(), "b".into()].into(),
        ..MirrorNamespace::default()
    };
    o.run("rbd.snapshot_add", ("m", 4u64, SnapNamespace::Mirror(mirror))).unwrap();
    o.run("rbd.snapshot_add", ("u", 5u64)).unwrap();
    let unlink = "rbd.mirror_image_snapshot_unlink_peer";
    assert_eq!(o.run(unlink, (5u64, "a")), Err(E::EINVAL));
    assert_eq!(o.run(unlink, (6u64, "a")), Err(E::ENOENT));
    assert_eq!(o.run(unlink, (4u64, "a")), Ok(()));
    assert_eq!(o.run(unlink, (4u64, "a")), Err(E::ENOENT));
    let progress = "rbd.mirror_image_snapshot_set_copy_progress";
    assert_eq!(o.run(progress, (4u64, true, 17u64)), Ok(()));
    let record: SnapRecord = stored(&o, "snapshot_0000000000000004").unwrap();
    let SnapNamespace::Mirror(m) = record.namespace else { panic!("{record:?}") };
    assert_eq!((m.complete, m.last_copied_object, m.peer_uuids.len()), (true, 17, 1));

    let mut leader = MemObject::new();
    leader.run("rbd.mirror_instances_add", "7").unwrap();
    let listed = leader.get("rbd.mirror_instances_list", ());
    assert_eq!(listed, Ok(vec![Bytes::from_static(b"7")]));
    leader.run("rbd.mirror_instances_remove", "7").unwrap();
    let map = ImageMap { instance_id: "7".into(), mapped_time: UTime::ZERO, data: "d".into() };
    leader.run("rbd.mirror_image_map_update", ("g", &map)).unwrap();
    let listed = leader.get("rbd.mirror_image_map_list", ("", 5u64));
    assert_eq!(listed, Ok(BTreeMap::from([(Bytes::from_static(b"g"), map)])));
    leader.run("rbd.mirror_image_map_remove", "g").unwrap();
    assert!(leader.state.omap.is_empty());
}

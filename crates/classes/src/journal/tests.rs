use super::types::*;
use crate::testing::MemObject;
use ::types::Errno as E;
use bytes::Bytes;

fn journal() -> MemObject {
    let mut o = MemObject::new();
    o.run("journal.create", (24u8, 4u8, -1i64)).unwrap();
    o
}

fn at(tag: u64, entry: u64) -> SetPosition {
    SetPosition { positions: vec![Position { object: 0, tag, entry }] }
}

fn clients(o: &mut MemObject, after: &str, max: u64) -> Vec<Client> {
    o.get("journal.client_list", (after, max)).unwrap()
}

fn tags(o: &mut MemObject, after: u64, max: u64, client: &str) -> Vec<u64> {
    let tags: Vec<Tag> = o.get("journal.tag_list", ((after, max), client, None::<u64>)).unwrap();
    tags.into_iter().map(|t| t.tid).collect()
}

#[test]
fn a_header_is_made_once() {
    let mut o = journal();
    assert_eq!(o.run("journal.create", (24u8, 4u8, -1i64)), Err(E::EEXIST));
    assert_eq!(o.get("journal.get_order", ()), Ok(24u8));
    assert_eq!(o.get("journal.get_splay_width", ()), Ok(4u8));
    assert_eq!(o.get("journal.get_pool_id", ()), Ok(-1i64));
    assert_eq!(MemObject::empty().ask("journal.get_order", ()), Err(E::ENOENT));
    o.state.omap.insert("order".into(), Bytes::new());
    assert_eq!(o.ask("journal.get_order", ()), Err(E::EINVAL));
}

#[test]
fn sets_only_grow() {
    let mut o = journal();
    assert_eq!(o.run("journal.set_minimum_set", 1u64), Err(E::EINVAL));
    assert_eq!(o.run("journal.set_active_set", 3u64), Ok(()));
    assert_eq!(o.run("journal.set_active_set", 2u64), Err(E::ESTALE));
    assert_eq!(o.run("journal.set_minimum_set", 2u64), Ok(()));
    assert_eq!(o.run("journal.set_minimum_set", 2u64), Ok(()));
    assert_eq!(o.run("journal.set_minimum_set", 1u64), Err(E::ESTALE));
    assert_eq!(o.run("journal.set_active_set", 1u64), Err(E::EINVAL));
    assert_eq!(o.get("journal.get_minimum_set", ()), Ok(2u64));
    assert_eq!(o.get("journal.get_active_set", ()), Ok(3u64));
}

#[test]
fn clients_say_how_far_they_came() {
    let mut o = journal();
    assert_eq!(MemObject::empty().run("journal.client_register", ("", "")), Err(E::ENOENT));
    // The image itself has the empty id.
    assert_eq!(o.run("journal.client_register", ("", "data")), Ok(()));
    assert_eq!(o.run("journal.client_register", ("", "data")), Err(E::EEXIST));
    assert_eq!(o.run("journal.client_commit", ("", at(1, 7))), Ok(()));
    assert_eq!(o.run("journal.client_commit", ("x", at(1, 7))), Err(E::ENOENT));
    let wide = SetPosition { positions: vec![at(1, 7).positions[0]; 5] };
    assert_eq!(o.run("journal.client_commit", ("", wide)), Err(E::EINVAL));
    assert_eq!(o.run("journal.client_register", ("peer", "d")), Ok(()));
    assert_eq!(clients(&mut o, "", 9).len(), 2, "the empty id is listed");
    let peer: Client = o.get("journal.get_client", "peer").unwrap();
    assert_eq!(peer.committed, at(1, 7), "it begins where the slowest is");
    assert_eq!(o.run("journal.client_update_data", ("peer", "new")), Ok(()));
    assert_eq!(o.run("journal.client_update_state", ("peer", Client::DISCONNECTED)), Ok(()));
    let changed = Client { data: "new".into(), state: Client::DISCONNECTED, ..peer };
    assert_eq!(o.get("journal.get_client", "peer"), Ok(changed.clone()));
    assert_eq!(clients(&mut o, "o", 9), [changed]);
    assert_eq!(clients(&mut o, "", 1).len(), 1);
    for i in 0..9 {
        o.run("journal.client_register", (format!("{i}"), "")).unwrap();
    }
    assert_eq!(clients(&mut o, "", 100).len(), 11);
    assert_eq!(o.run("journal.client_unregister", "peer"), Ok(()));
    assert_eq!(o.run("journal.client_unregister", "peer"), Err(E::ENOENT));
}

#[test]
fn tags_are_dropped_when_nobody_needs_them() {
    let mut o = journal();
    o.run("journal.client_register", ("a", "")).unwrap();
    let new = |tid: u64, class: u64| (tid, class, "d");
    assert_eq!(o.run("journal.tag_create", new(1, u64::MAX)), Err(E::ESTALE));
    assert_eq!(o.run("journal.tag_create", new(0, 0)), Err(E::EINVAL));
    assert_eq!(o.run("journal.tag_create", new(0, u64::MAX)), Ok(()));
    assert_eq!(o.run("journal.tag_create", new(0, 0)), Err(E::EEXIST));
    for tid in 1..6 {
        assert_eq!(o.run("journal.tag_create", new(tid, 0)), Ok(()));
    }
    assert_eq!(o.run("journal.tag_create", new(6, u64::MAX)), Ok(()));
    assert_eq!(o.get("journal.get_next_tag_tid", ()), Ok(7u64));
    let tag: Tag = o.get("journal.get_tag", 6u64).unwrap();
    assert_eq!((tag.tid, tag.class), (6, 1));
    assert_eq!(tags(&mut o, 0, 100, "a"), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(tags(&mut o, 2, 2, "a"), [3, 4]);
    let wrong = o.ask("journal.tag_list", ((0u64, 9u64), "nobody", None::<u64>));
    assert_eq!(wrong, Err(E::ENOENT));
    // The client is at tag 3: 0 to 2 are over for it, and go with the next tag.
    o.run("journal.client_commit", ("a", at(3, 1))).unwrap();
    assert_eq!(tags(&mut o, 0, 100, "a"), [3, 4, 5, 6]);
    let of_class: Vec<Tag> = o.get("journal.tag_list", ((0u64, 9u64), "a", Some(1u64))).unwrap();
    assert_eq!(of_class.len(), 1);
    assert_eq!(o.run("journal.tag_create", new(7, 1)), Ok(()));
    assert_eq!(o.ask("journal.get_tag", 2u64), Err(E::ENOENT));
    assert!(o.ask("journal.get_tag", 3u64).is_ok());
    // Another that has not begun keeps everything; when it leaves, more can go.
    o.run("journal.client_commit", ("a", at(5, 1))).unwrap();
    o.run("journal.client_register", ("b", "")).unwrap();
    o.run("journal.client_commit", ("b", at(3, 1))).unwrap();
    o.run("journal.tag_create", new(8, 1)).unwrap();
    assert!(o.ask("journal.get_tag", 3u64).is_ok());
    o.run("journal.client_unregister", "b").unwrap();
    assert_eq!(o.ask("journal.get_tag", 4u64), Err(E::ENOENT));
    assert!(o.ask("journal.get_tag", 5u64).is_ok());
}

#[test]
fn data_objects_are_filled_up_to_their_size() {
    let mut o = MemObject::new();
    assert_eq!(o.run("journal.guard_append", 5u64), Ok(()));
    assert_eq!(o.run("journal.append", (0u64, "abc")), Err(E::EOVERFLOW));
    assert_eq!(o.run("journal.append", (5u64, "abc")), Ok(()));
    assert_eq!(o.run("journal.append", (5u64, "def")), Ok(()), "the size is a soft limit");
    assert_eq!(o.run("journal.append", (5u64, "g")), Err(E::EOVERFLOW));
    assert_eq!(o.run("journal.guard_append", 6u64), Err(E::EOVERFLOW));
    assert_eq!(o.run("journal.guard_append", 7u64), Ok(()));
    assert_eq!(o.state.data, b"abcdef");
}

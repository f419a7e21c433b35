//! Listing a pool.

use crate::rig::{Asked, PG_NUM, POOL, Rig};
use client::{ListCursor, Outcome};
use maps::PgIdExt;
use types::{HObject, SnapId};
use wire::msg::OpCode;
use wire::msg::op_data::{ListedObject, PgnlsOut};

fn entry(name: &str) -> ListedObject {
    ListedObject { name: name.into(), ..ListedObject::default() }
}

fn answer(rig: &mut Rig, asked: &Asked, handle: HObject, names: &[&str], more: bool) {
    let out = PgnlsOut { handle, entries: names.iter().map(|n| entry(n)).collect() };
    rig.reply(asked, |r| {
        r.result = i32::from(!more);
        r.ops[0].outdata.push(denc::encode(&out));
    });
}

#[test]
fn pgs_are_walked_in_the_order_of_objects_and_a_pg_may_take_several_pages() {
    let mut rig = Rig::new(3);
    let mut cursor = ListCursor::new(POOL, Some(b""));
    let (mut names, mut seeds, mut epochs) = (Vec::new(), Vec::new(), Vec::new());
    let mut second_page_of_pg_4 = false;
    while !cursor.is_end() {
        let from = cursor.clone();
        let id = rig.act(move |now, c| c.list(now, from, 5000));
        let asked = (0..3).find_map(|osd| rig.try_request(osd)).expect("it was sent");
        let seed = asked.op.pgid.pgid.seed;
        let pgls = asked.op.ops[0].args.pgls();
        assert_eq!((asked.op.ops[0].code, asked.op.flags), (OpCode::PGNLS, 0x42_0014));
        assert_eq!((pgls.count, asked.op.locator_hash), (1024, i64::from(asked.op.object.hash)));
        assert!(asked.op.object.name.is_empty());
        epochs.push(pgls.start_epoch);
        let pg = asked.op.pgid.pgid;
        if seed == 4 && !second_page_of_pg_4 {
            second_page_of_pg_4 = true;
            let next = HObject {
                pool: POOL,
                hash: 0x8000_0004,
                name: "b".into(),
                snap: SnapId::HEAD,
                ..HObject::min()
            };
            answer(&mut rig, &asked, next, &["a"], true);
        } else {
            let name = format!("n{seed}");
            answer(&mut rig, &asked, pg.end_of_objects(PG_NUM), &[&name], false);
        }
        seeds.push(seed);
        let Outcome::Page(Ok(page)) = rig.outcome(id) else { panic!() };
        names.extend(page.objects.iter().map(|o| o.name.to_string()));
        cursor = page.next;
    }
    assert_eq!(seeds, [0, 4, 4, 2, 6, 1, 5, 3, 7]);
    assert_eq!(names, ["n0", "a", "n4", "n2", "n6", "n1", "n5", "n3", "n7"]);
    assert!(epochs.iter().all(|e| *e == rig.maps.borrow().now.epoch.0));
}

#[test]
fn all_namespaces_are_asked_for_by_their_sign() {
    let mut rig = Rig::new(3);
    rig.act(|now, c| c.list(now, ListCursor::new(POOL, None), 10));
    let asked = rig.request(0);
    assert_eq!(&asked.op.object.nspace[..], b"\x01");
    rig.act(|now, c| c.list(now, ListCursor::new(POOL, Some(b"ns")), 10));
    assert_eq!(&rig.request(0).op.object.nspace[..], b"ns");
}

#[test]
fn a_listing_that_does_not_advance_is_an_error() {
    let mut rig = Rig::new(3);
    let id = rig.act(|now, c| c.list(now, ListCursor::new(POOL, None), 10));
    let asked = rig.request(0);
    answer(&mut rig, &asked, HObject::min(), &["x"], true);
    let Outcome::Page(Err(error)) = rig.outcome(id) else { panic!() };
    assert!(error.to_string().contains("does not advance"), "{error}");
}

#[test]
fn a_listing_is_sent_again_after_a_lost_connection() {
    let mut rig = Rig::new(3);
    let id = rig.act(|now, c| c.list(now, ListCursor::new(POOL, None), 10));
    let first = rig.request(0);
    rig.hang_up(0);
    rig.run_secs(1);
    let again = rig.request(0);
    assert_eq!((again.tid, again.op.retry_attempt), (first.tid, 1));
    answer(&mut rig, &again, HObject::max(), &["x"], false);
    let Outcome::Page(Ok(page)) = rig.outcome(id) else { panic!() };
    assert!(page.next.is_end());
}

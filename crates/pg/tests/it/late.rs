//! Messages that come late, or never.

use crate::world::{Map, PGID, object};
use pg::{
    Body, Ctx, Fx, History, Lack, LogEntry, Mapping, Notify, ObjectSums, PastIntervals, Pg, PgInfo,
    PgMsg, Readiness, Stage, Work,
};
use types::{Epoch, Eversion, HObject, OsdId, UTime};

const ME: OsdId = OsdId(1);
const OTHER: OsdId = OsdId(2);
/// Of an object that cannot be read.
const VERSION: Eversion = Eversion { epoch: Epoch(5), version: 1 };

fn hear(pg: &mut Pg, map: &Map, body: Body) -> Fx {
    hear_from(OTHER, pg, map, body)
}

fn hear_from(osd: OsdId, pg: &mut Pg, map: &Map, body: Body) -> Fx {
    let mut fx = Fx::default();
    let interval = pg.info().history.same_interval_since;
    let msg = PgMsg { pgid: PGID, epoch: Epoch(map.epoch), interval, body };
    pg.on_msg(osd, msg, &Ctx { map, now: UTime::ZERO }, &mut fx);
    fx
}

fn notify(info: PgInfo) -> Body {
    Body::Notify(Box::new(Notify { info, past: PastIntervals::default(), lack: Lack::default() }))
}

fn absent() -> Body {
    notify(PgInfo::absent(PGID))
}

fn stray() -> Body {
    notify(PgInfo { history: History::created(Epoch(5)), ..PgInfo::absent(PGID) })
}

/// The PG as osd.1 makes it in epoch 5.
fn made_by(map: &Map) -> Pg {
    let (history, past) = (History::created(Epoch(5)), PastIntervals::default());
    Pg::create(ME, PGID, history, past, Epoch(5), map.mapping(), map.rules())
}

/// The PG, active on osd.1 alone; osd.2 is up as well.
fn active_alone(size: u32) -> (Map, Pg) {
    let mut map = Map { epoch: 5, size, min_size: 1, order: vec![1], ..Map::default() };
    map.up = [1, 2].into();
    map.up_thru = [(1, 9)].into();
    let mut pg = made_by(&map);
    let ctx = Ctx { map: &map, now: UTime::ZERO };
    pg.start(&ctx, &mut Fx::default());
    pg.on_durable(Epoch(5), &ctx, &mut Fx::default());
    assert_eq!(*pg.stage(), Stage::Active);
    (map, pg)
}

/// How often the other OSD is told to begin a copy.
fn activations(fx: &Fx) -> usize {
    let is_one = |b: &Body| matches!(b, Body::Activate { backfill: true, .. });
    fx.send_durable.iter().filter(|(to, m)| *to == OTHER && is_one(&m.body)).count()
}

/// An OSD hears of an activation so late that it cannot tell whether the interval is the current one,
/// and says that it has no copy. The primary must not wait for it for ever.
#[test]
fn an_activation_that_came_too_late_comes_again() {
    let mut map = Map { epoch: 5, size: 2, min_size: 1, order: vec![1, 2], ..Map::default() };
    map.up = [1, 2].into();
    map.up_thru = [(1, 9)].into();
    let mut pg = made_by(&map);
    let mut fx = Fx::default();
    pg.start(&Ctx { map: &map, now: UTime::ZERO }, &mut fx);
    let fx = hear(&mut pg, &map, absent());
    assert!(fx.want_pg_temp.is_some(), "it acts alone until the other is filled");
    let old = map.clone();
    map.epoch = 6;
    map.pg_temp = vec![1];
    let (mapping, rules) = (map.mapping(), map.rules());
    pg.on_map(&old, &Ctx { map: &map, now: UTime::ZERO }, mapping, rules, &mut Fx::default());
    assert_eq!(activations(&hear(&mut pg, &map, absent())), 1);
    assert!(matches!(pg.stage(), Stage::Activating { .. }));
    assert_eq!(activations(&hear(&mut pg, &map, absent())), 1);
    let info = pg.info().clone();
    pg.on_durable(Epoch(6), &Ctx { map: &map, now: UTime::ZERO }, &mut Fx::default());
    hear(&mut pg, &map, Body::Activated(Box::new(info)));
    assert_eq!(*pg.stage(), Stage::Active);
    assert_eq!(activations(&hear(&mut pg, &map, absent())), 0, "it is over");
}

/// The session with an OSD that peering asks was lost, and the question with it. That it does not act does
/// not matter: nothing goes on before it answers.
#[test]
fn a_question_that_got_lost_is_asked_again() {
    let mut map = Map { epoch: 5, size: 2, min_size: 1, order: vec![2, 3], ..Map::default() };
    map.up = [1, 2, 3, 4].into();
    map.pg_temp = vec![1];
    let mut pg = made_by(&map);
    let ctx = Ctx { map: &map, now: UTime::ZERO };
    pg.start(&ctx, &mut Fx::default());
    hear(&mut pg, &map, absent());
    assert!(matches!(pg.stage(), Stage::GetInfo { waiting } if *waiting == [OsdId(3)].into()));
    assert!(pg.relies_on(OTHER) && pg.relies_on(OsdId(3)) && !pg.relies_on(OsdId(4)));
    let mut fx = Fx::default();
    pg.restart(&ctx, &mut fx);
    let asked: Vec<_> = fx.send.iter().map(|(to, _)| *to).collect();
    assert_eq!(asked, [OTHER, OsdId(3)]);
}

/// The session with the primary was lost, and what a stray had told it, too. The primary may know of the
/// PG only by that.
#[test]
fn what_a_stray_has_is_told_again() {
    let mut map = Map { epoch: 5, size: 1, min_size: 1, order: vec![2], ..Map::default() };
    map.up = [1, 2, 3].into();
    let mut pg = made_by(&map);
    let ctx = Ctx { map: &map, now: UTime::ZERO };
    let notified = |fx: &Fx| {
        let is_one = |b: &Body| matches!(b, Body::Notify(_));
        fx.send_durable.iter().filter(|(to, m)| *to == OTHER && is_one(&m.body)).count()
    };
    let mut fx = Fx::default();
    pg.start(&ctx, &mut fx);
    assert_eq!(notified(&fx), 1);
    assert!(pg.relies_on(OTHER) && !pg.relies_on(OsdId(3)));
    let mut fx = Fx::default();
    pg.restart(&ctx, &mut fx);
    assert_eq!(notified(&fx), 1);
}

/// An OSD that is many maps behind takes them in one by one. If it asked with each of them to be noted as
/// alive, each answer would be one more map.
#[test]
fn to_be_noted_as_alive_is_asked_once() {
    let mut map = Map { epoch: 5, size: 1, min_size: 1, order: vec![1], ..Map::default() };
    map.up = [1].into();
    let mut pg = made_by(&map);
    let mut fx = Fx::default();
    pg.start(&Ctx { map: &map, now: UTime::ZERO }, &mut fx);
    assert_eq!(fx.want_up_thru, Some(Epoch(5)));
    let next = |pg: &mut Pg, map: &mut Map| {
        let old = map.clone();
        map.epoch += 1;
        let (mapping, rules, mut fx) = (map.mapping(), map.rules(), Fx::default());
        pg.on_map(&old, &Ctx { map, now: UTime::ZERO }, mapping, rules, &mut fx);
        fx.want_up_thru
    };
    assert_eq!([0; 3].map(|_| next(&mut pg, &mut map)), [None; 3]);
    let mut fx = Fx::default();
    pg.ask_again(&mut fx);
    assert_eq!(fx.want_up_thru, Some(Epoch(5)), "the question was lost");
    map.up_thru = [(1, 5)].into();
    next(&mut pg, &mut map);
    assert!(matches!(pg.stage(), Stage::Activating { .. }));
}

/// A copy that nobody needs any more is sent away when the PG is clean, whenever it is heard of, and nothing
/// is asked of it afterwards: it would not answer.
#[test]
fn who_was_sent_away_is_asked_for_nothing() {
    let mut map = Map { epoch: 5, size: 1, min_size: 1, order: vec![1], ..Map::default() };
    map.up = [1, 2].into();
    map.up_thru = [(1, 9)].into();
    let mut pg = made_by(&map);
    let ctx = Ctx { map: &map, now: UTime::ZERO };
    let removals =
        |fx: &Fx| fx.send.iter().filter(|(to, m)| *to == OTHER && m.body == Body::Remove).count();
    pg.start(&ctx, &mut Fx::default());
    assert_eq!(removals(&hear(&mut pg, &map, stray())), 0, "its copy may be needed");
    let mut fx = Fx::default();
    pg.on_durable(Epoch(5), &ctx, &mut fx);
    assert_eq!(*pg.stage(), Stage::Active);
    pg.recovered(&mut fx);
    assert_eq!(removals(&fx), 1);
    assert_eq!(removals(&hear(&mut pg, &map, stray())), 1, "it comes again");
    assert_eq!(removals(&hear(&mut pg, &map, absent())), 0);
    pg.repair(&object(1), VERSION);
    assert_eq!(pg.next_recovery(), None, "nobody has another copy");
}

/// Too few copies act to serve, and a complete one comes that was not heard of before: the PG stayed as it was
/// until others were filled, or for ever when that could not be done (proof, seed 80003253).
#[test]
fn a_holder_that_comes_late_acts_where_copies_are_lacking() {
    let wanted = |size, body: fn(&Pg) -> Body| {
        let (map, mut pg) = active_alone(size);
        let body = body(&pg);
        let want = hear(&mut pg, &map, body).want_pg_temp;
        assert_eq!(*pg.stage(), Stage::Active, "it goes on until the map changes");
        let mut again = Fx::default();
        pg.ask_again(&mut again);
        assert_eq!(again.want_pg_temp, want);
        want
    };
    let complete = |pg: &Pg| notify(pg.info().clone());
    assert_eq!(wanted(2, complete), Some([ME, OTHER].into_iter().collect()));
    assert_eq!(wanted(1, complete), None, "there are enough");
    assert_eq!(wanted(2, |_| absent()), None, "it has nothing");
}

/// Nobody could read an object, and then somebody comes who has another copy.
#[test]
fn what_nobody_could_read_is_asked_of_who_comes_later() {
    let (mut map, mut pg) = active_alone(1);
    assert_eq!(pg.repair(&object(1), VERSION), None);
    hear(&mut pg, &map, absent());
    assert_eq!(pg.next_recovery(), None, "who has nothing is of no use");
    map.up.insert(3);
    let fx = hear_from(OsdId(3), &mut pg, &map, stray());
    assert_eq!(fx.meta.len(), 1, "it is written down that it is missing");
    let pull = Work::Pull { object: object(1), need: VERSION, from: OsdId(3) };
    assert_eq!(pg.next_recovery(), Some(pull));
    assert!(pg.source_failed(&object(1), OsdId(3)).is_some(), "it cannot read it, either");
    assert_eq!((pg.next_recovery(), pg.missing().len()), (None, 0));
}

/// Who had an object goes down when it has come, but is not durable. A write upon it, and an answer to one that was
/// sent again, wait nevertheless.
#[test]
fn what_has_come_from_who_is_down_is_not_durable_at_once() {
    let (mut map, mut pg) = active_alone(1);
    assert_eq!(pg.repair(&object(1), VERSION), None);
    hear(&mut pg, &map, stray());
    let pull = Work::Pull { object: object(1), need: VERSION, from: OTHER };
    assert_eq!(pg.next_recovery(), Some(pull));
    pg.arrived(&object(1), VERSION);
    let old = map.clone();
    (map.epoch, map.up) = (6, [1].into());
    let (mapping, rules, ctx) = (map.mapping(), map.rules(), Ctx { map: &map, now: UTime::ZERO });
    pg.on_map(&old, &ctx, mapping, rules, &mut Fx::default());
    assert_eq!((pg.stage(), pg.readiness(&object(1))), (&Stage::Active, Readiness::Degraded));
    pg.pulled(&object(1), &mut Fx::default());
    assert_eq!(pg.readiness(&object(1)), Readiness::Ready);
}

/// One of three copies lacks an object that is written on. Were it the only one that comes back, and without
/// the log of the write, then the write would not count, and the others throw away what they made upon the
/// version before, which nobody has any more (proof, seed 60001199). It may come to serve alone though it
/// could not when the write was made: when `min_size` is lowered (seed 140016619).
#[test]
fn every_acting_copy_gets_an_object_before_it_is_written() {
    let ready = |min_size| {
        let mut map = Map { epoch: 5, size: 3, min_size, order: vec![1, 2, 3], ..Map::default() };
        map.up = [1, 2, 3].into();
        map.up_thru = [(1, 9)].into();
        let mut pg = made_by(&map);
        let ctx = Ctx { map: &map, now: UTime::ZERO };
        pg.start(&ctx, &mut Fx::default());
        let others = [OTHER, OsdId(3)];
        for osd in others {
            let body = notify(pg.info().clone());
            hear_from(osd, &mut pg, &map, body);
        }
        pg.on_durable(Epoch(5), &ctx, &mut Fx::default());
        for osd in others {
            let body = Body::Activated(Box::new(pg.info().clone()));
            hear_from(osd, &mut pg, &map, body);
        }
        assert_eq!(*pg.stage(), Stage::Active);
        let version = Eversion::new(Epoch(5), 1);
        pg.append(vec![entry(version)], ObjectSums::default(), 1);
        pg.taken_without_data(OTHER, &[version]);
        pg.write_readiness(&object(1))
    };
    assert_eq!(ready(2), Readiness::Degraded);
    assert_eq!(ready(1), Readiness::Degraded);
}

/// A write of object 1.
fn entry(version: Eversion) -> LogEntry {
    LogEntry::of(object(1), version)
}

/// A map whose `primary_temp` names an OSD without a copy.
#[test]
fn who_does_not_act_does_not_serve() {
    let mut map = Map { epoch: 5, size: 1, min_size: 1, order: vec![2], ..Map::default() };
    map.up = [1, 2].into();
    map.up_thru = [(1, 9), (2, 9)].into();
    let mapping = Mapping { acting_primary: Some(ME), ..map.mapping() };
    let (history, past) = (History::created(Epoch(5)), PastIntervals::default());
    let mut pg = Pg::create(ME, PGID, history, past, Epoch(5), mapping, map.rules());
    pg.mark_unfilled();
    pg.start(&Ctx { map: &map, now: UTime::ZERO }, &mut Fx::default());
    let info = PgInfo {
        last_epoch_started: Epoch(5),
        last_backfill: HObject::max(),
        ..PgInfo::new(PGID, History::created(Epoch(5)))
    };
    hear(&mut pg, &map, notify(info));
    assert_eq!(*pg.stage(), Stage::Incomplete);
}

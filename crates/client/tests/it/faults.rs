//! Many requests in a world where connections break and primaries move: each write ends once, and
//! the writes to an object are applied in the order in which they were submitted.

use crate::peer::Script;
use crate::rig::{PG_NUM, POOL, Rig, object};
use client::{ObjectOp, Outcome, RequestId};
use sim::Faults;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{OsdId, PgId};
use wire::msg::{MOsdOp, MOsdOpReply, OpCode, Payload, kind};

/// What the cluster holds, whoever serves it: contents by name, and which tids were applied.
#[derive(Default)]
struct Objects {
    contents: BTreeMap<String, Vec<u8>>,
    applied: BTreeMap<u64, u64>,
    /// Who leads which PG, and from which epoch on.
    primary: BTreeMap<u32, (usize, u32)>,
    version: u64,
}

/// An OSD that serves what it leads, applies each tid once, and drops what is from before its time.
fn osd(me: usize, objects: Rc<RefCell<Objects>>) -> Script {
    Box::new(move |state, link, m| {
        if m.header.kind != kind::OSD_OP {
            return;
        }
        let op: MOsdOp = m.decode().unwrap();
        let mut all = objects.borrow_mut();
        let (primary, since) = all.primary[&op.pgid.pgid.seed];
        if primary != me || op.epoch.0 < since {
            return;
        }
        let mut reply = MOsdOpReply::answer(&op, op.epoch);
        let name = op.object.name.to_string();
        if op.ops[0].code == OpCode::APPEND {
            let tid = m.header.tid;
            if !all.applied.contains_key(&tid) {
                all.version += 1;
                let version = all.version;
                all.applied.insert(tid, version);
                all.contents.entry(name).or_default().extend_from_slice(&op.ops[0].indata);
            }
            reply.user_version = all.applied[&tid];
        } else {
            let data = all.contents.get(&name).cloned().unwrap_or_default();
            reply.ops[0].outdata.push(data.into());
        }
        state.outbox.push((link, reply.encode().with_tid(m.header.tid)));
    })
}

fn run(seed: u64) -> (usize, u64) {
    let objects = Rc::new(RefCell::new(Objects::default()));
    let mut rig = Rig::with_mons(3, 4, seed);
    for i in 0..4 {
        rig.set_script(i, osd(i, objects.clone()));
    }
    for pg in 0..PG_NUM {
        objects.borrow_mut().primary.insert(pg, (pg as usize % 4, 0));
    }
    rig.start();
    rig.world.set_faults(Faults { break_ppm: 30_000, ..Faults::default() });
    let mut expected: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut open: Vec<RequestId> = Vec::new();
    let mut ended = 0;
    for i in 0..300u32 {
        let name = format!("o{}", rig.world.rng().u32(..5));
        let mark = i.to_le_bytes().to_vec();
        let (n, data) = (name.clone(), mark.clone());
        let sent = rig.do_now(move |now, c| c.submit(now, ObjectOp::new(object(&n)).append(data)));
        if let Ok(id) = sent {
            expected.entry(name).or_default().extend(mark);
            open.push(id);
        }
        let pause = rig.world.rng().u64(..3000);
        rig.world.run_for(Duration::from_micros(pause));
        if rig.world.rng().u32(..20) == 0 {
            move_primary(&mut rig, &objects);
        }
        ended += settle(&mut rig, &mut open);
    }
    rig.world.set_faults(Faults::default());
    for _ in 0..60 {
        rig.run_secs(1);
        ended += settle(&mut rig, &mut open);
    }
    let waits = rig.act(|_, c| c.waiting());
    assert!(open.is_empty(), "seed {seed}: these did not end: {waits:?}");
    assert_eq!(objects.borrow().contents, expected, "seed {seed}");
    (ended, rig.world.fingerprint())
}

fn move_primary(rig: &mut Rig, objects: &Rc<RefCell<Objects>>) {
    let (pg, osd) = (rig.world.rng().u32(..PG_NUM), rig.world.rng().u32(..4));
    let epoch = rig.maps.borrow().now.epoch.next();
    if objects.borrow().primary[&pg].0 != osd as usize {
        objects.borrow_mut().primary.insert(pg, (osd as usize, epoch.0));
    }
    rig.change_quietly(|inc, _| {
        let list = (0..3).map(|i| OsdId(((osd + i) % 4) as i32)).collect();
        inc.new_pg_upmap.insert(PgId::new(POOL, pg), list);
    });
}

/// Takes what has ended. Each was open, and ended well.
fn settle(rig: &mut Rig, open: &mut Vec<RequestId>) -> usize {
    let done = rig.done();
    for c in &done {
        let at = open.iter().position(|id| *id == c.id).expect("it ends once");
        open.remove(at);
        assert!(matches!(c.outcome, Outcome::Op(Ok(_))), "{:?}", c.outcome);
    }
    done.len()
}

#[test]
fn every_write_ends_once_and_in_order() {
    let total: usize = (0..30).map(|seed| run(seed).0).sum();
    assert!(total > 5000, "{total} writes");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run(3), run(3));
}

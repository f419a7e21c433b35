//! Objects on their way between copies in the small world: recovery and backfill.

use crate::state::{Op, Then, Txn};
use crate::world::*;
use pg::*;
use types::*;

impl Osd {
    pub fn on_data(&mut self, maps: &[Map], from: OsdId, net: Net) {
        if is_traced() {
            eprintln!("osd.{} <- {from} {net:?}", self.id);
        }
        let (epoch, current) = (self.epoch(), self.interval());
        let Some(pg) = self.pg.as_mut() else { return };
        match net {
            write @ Net::Rep { .. } => self.on_write(from, write),
            Net::Pull { interval, object, .. } if interval == current => {
                self.send_object(from, &object, true);
            }
            Net::Push { interval, object, state, pulled, .. } if interval == current => {
                self.on_push(from, object, state, pulled);
            }
            Net::PushAck { interval, object, version, refused, .. } if interval == current => {
                self.on_push_ack(maps, from, &object, version, refused);
            }
            Net::Scan { interval, begin, .. } if interval == current => {
                let listing = self.list(&begin);
                self.out.push((from, Net::Listed { epoch, interval, listing }));
            }
            Net::Listed { interval, listing, .. } if interval == current => {
                pg.backfill_listed(from, false, listing);
            }
            Net::Progress { interval, to, .. } if interval == current => {
                let mut fx = Fx::default();
                pg.note_backfill_progress(to.clone(), &mut fx);
                let ack = Net::ProgressAck { epoch, interval, to };
                let txn = Txn { then: vec![Then::Send(from, ack)], ..Txn::default() };
                self.carry_out(fx, txn);
            }
            Net::ProgressAck { interval, to, .. } if interval == current => {
                self.run(maps, |pg, _, fx| pg.backfill_progressed(from, &to, fx));
            }
            _ => {}
        }
    }

    fn on_push(&mut self, from: OsdId, object: HObject, state: Option<State>, pulled: bool) {
        let (epoch, interval) = (self.epoch(), self.interval());
        let Some(pg) = self.pg.as_mut() else { return };
        let version = state.as_ref().map_or(Eversion::ZERO, |s| s.version);
        if pulled {
            let need = pg.missing().get(&object).map(|m| m.need);
            if need != Some(version) {
                // What could not be read, and is nowhere else, is here as it was.
                let meta: Vec<_> = pg.source_failed(&object, from).into_iter().collect();
                self.submit(Txn { meta, ..Txn::default() });
                return;
            }
        }
        if pulled && self.full {
            pg.did_not_fit(&object, PullSize { data: 1, all: 1 });
            return;
        }
        let refused = !pulled && state.is_some() && (self.full || self.rng.u8(..16) == 0);
        let ack = Net::PushAck { epoch, interval, object: object.clone(), version, refused };
        if refused {
            self.out.push((from, ack));
            return;
        }
        let mut txn = Txn { ops: vec![Op::set(&object, state)], ..Txn::default() };
        txn.meta = pg.arrival_ops(&object, version);
        pg.arrived(&object, version);
        let then = if pulled { Then::Pulled(object, interval) } else { Then::Send(from, ack) };
        txn.then.push(then);
        self.submit(txn);
    }

    fn on_push_ack(
        &mut self,
        maps: &[Map],
        from: OsdId,
        object: &HObject,
        version: Eversion,
        refused: bool,
    ) {
        if refused {
            self.put_off(object);
            return;
        }
        if self.mem.get(object).map_or(Eversion::ZERO, |s| s.version) != version {
            self.send_object(from, object, false);
            return;
        }
        self.run(maps, |pg, _, fx| {
            pg.backfill_moved(from, object);
            pg.pushed(from, object, version, fx);
        });
        self.commit();
    }

    /// An object that is on its way is brought later.
    pub fn put_off(&mut self, object: &HObject) {
        self.slow.retain(|(_, o, pulled)| o != object || *pulled);
        if let Some(pg) = &mut self.pg {
            pg.put_off(object);
        }
    }

    /// As `osd::part` does it.
    fn list(&self, begin: &HObject) -> Listing {
        const AT_ONCE: usize = 3;
        let begin = begin.clone();
        let mut objects = std::collections::BTreeMap::new();
        for (i, (o, state)) in self.mem.range(begin.clone()..).enumerate() {
            // Not between the clones of an object and its head.
            if i >= AT_ONCE && !o.is_head() {
                return Listing { begin, end: o.clone(), objects };
            }
            if i > AT_ONCE {
                return Listing { begin, end: o.at_snap(SnapId(0)), objects };
            }
            objects.insert(o.clone(), state.version);
        }
        Listing { begin, end: HObject::max(), objects }
    }

    /// One step of background work.
    pub fn recover(&mut self) {
        let (epoch, interval) = (self.epoch(), self.interval());
        if !self.slow.is_empty() && self.rng.bool() {
            let (to, object, pulled) = self.slow.swap_remove(self.rng.usize(..self.slow.len()));
            self.send_now(to, object, pulled);
            return;
        }
        let Some(pg) = self.pg.as_mut().filter(|pg| pg.is_primary()) else {
            return;
        };
        if !self.full {
            let again: Vec<_> = pg.unfitting().map(|(object, _)| object.clone()).collect();
            again.iter().for_each(|object| pg.may_pull_again(object));
        }
        match pg.next_recovery() {
            Some(Work::Pull { object, from, .. }) => {
                self.out.push((from, Net::Pull { epoch, interval, object }));
                return;
            }
            Some(Work::Push { object, to, .. }) => {
                if self.cannot_read(&object, &to) {
                    return;
                }
                to.into_iter().for_each(|osd| self.send_object(osd, &object, false));
                return;
            }
            None => {}
        }
        match self.pg.as_mut().and_then(|pg| pg.next_backfill(2)) {
            Some(BackfillWork::ListHere { target, begin }) => {
                let listing = self.list(&begin);
                self.pg.as_mut().unwrap().backfill_listed(target, true, listing);
            }
            Some(BackfillWork::ListThere { target, begin }) => {
                self.out.push((target, Net::Scan { epoch, interval, begin }));
            }
            Some(BackfillWork::Push { target, object, .. })
            | Some(BackfillWork::Remove { target, object }) => {
                if self.cannot_read(&object, &[target]) {
                    return;
                }
                self.send_object(target, &object, false);
            }
            Some(BackfillWork::Progress { target, to }) => {
                self.out.push((target, Net::Progress { epoch, interval, to }));
            }
            None => {}
        }
    }

    /// Whether an object that is here cannot be read, nor anywhere else.
    fn cannot_read(&mut self, object: &HObject, to: &[OsdId]) -> bool {
        let fails = self.unreadable_one_in > 0 && self.rng.u8(..self.unreadable_one_in) == 0;
        let Some(pg) = self.pg.as_mut().filter(|_| fails && self.mem.contains_key(object)) else {
            return false;
        };
        pg.cannot_read(object);
        pg.pushed_in_vain(object, to);
        true
    }

    /// Sends an object, or begins to read it: what has much to be read overtakes nothing.
    fn send_object(&mut self, to: OsdId, object: &HObject, pulled: bool) {
        if self.rng.u8(..4) == 0 {
            self.slow.push((to, object.clone(), pulled));
        } else {
            self.send_now(to, object.clone(), pulled);
        }
    }

    fn send_now(&mut self, to: OsdId, object: HObject, pulled: bool) {
        let state = self.mem.get(&object).cloned();
        let (epoch, interval) = (self.epoch(), self.interval());
        self.out.push((to, Net::Push { epoch, interval, object, state, pulled }));
    }
}

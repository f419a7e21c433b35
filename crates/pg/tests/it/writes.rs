//! Writes in the small world, as `osd::ops` and `osd::write` do them: with clones, and with what is taken back.

use crate::state::{Op, Place, SnapSet, State, Then, Txn};
use crate::world::*;
use pg::*;
use types::*;

/// What a client knows of snapshots.
#[derive(Clone, Debug, Default)]
pub struct Snaps {
    /// The newest one that was ever taken.
    pub seq: SnapId,
    /// Those that there are.
    pub live: SnapSet,
}

/// What is to be done to an object.
#[derive(Clone, Debug)]
pub enum Wish {
    Put(u64),
    Delete,
    RollBack(SnapId),
    /// Nothing but the snapshots that are removed go from a clone: the OSD's own wish.
    Trim(SnapId),
}

/// A write of the checking client, or of the OSD itself, that is in flight.
#[derive(Clone, Debug)]
pub struct Ack {
    pub object: u32,
    pub head: HObject,
    pub version: Eversion,
    /// No client's write, but the log entry of an object that goes back to this state.
    goes_back: Option<State>,
}

impl Ack {
    pub fn goes_back(&self) -> bool {
        self.goes_back.is_some()
    }
}

/// An object goes back to a state.
pub struct Back {
    pub to: Eversion,
    /// The version in which it does.
    pub version: Eversion,
}

/// What a client is shown.
#[derive(Debug)]
pub struct Shown {
    /// The head's version, if there is one.
    pub version: Option<Eversion>,
    pub value: Option<u64>,
}

/// What becomes of a clone.
enum CloneChange {
    Made,
    Trimmed(State),
    Removed(Eversion),
}

/// A change of an object that has no version yet.
struct Change {
    clone: Option<(SnapId, CloneChange)>,
    /// `None`: it is gone altogether.
    head: Option<State>,
    /// The head gets what this clone has.
    from: Option<SnapId>,
    prior: Eversion,
}

/// A write on its way into the log.
struct Ready {
    entries: Vec<LogEntry>,
    ops: Vec<Op>,
    data: Option<u64>,
    goes_back: Option<State>,
}

impl Change {
    /// The entries, the head's last, and what is done, as `osd::ops::finish` has it.
    fn at(self, head: &HObject, first: Eversion) -> (Vec<LogEntry>, Vec<Op>) {
        let (mut entries, mut ops, mut version) = (Vec::new(), Vec::new(), first);
        if let Some((id, change)) = self.clone {
            let clone = head.at_snap(id);
            let (kind, prior_version) = match change {
                CloneChange::Made => {
                    let snaps = self.head.as_ref().unwrap().clones[&id].clone();
                    let record = State { version, snaps, ..State::default() };
                    ops.push(Op::Copy(head.clone(), clone.clone(), record));
                    (EntryKind::Clone, Eversion::ZERO)
                }
                CloneChange::Trimmed(state) => {
                    let prior = state.version;
                    ops.push(Op::Put(clone.clone(), State { version, ..state }));
                    (EntryKind::Modify, prior)
                }
                CloneChange::Removed(prior) => {
                    ops.push(Op::Remove(clone.clone()));
                    (EntryKind::Delete, prior)
                }
            };
            entries.push(LogEntry { kind, prior_version, ..LogEntry::of(clone, version) });
            version.version += 1;
        }
        entries.push(LogEntry {
            kind: if self.head.is_some() { EntryKind::Modify } else { EntryKind::Delete },
            prior_version: self.prior,
            reqid: ReqId { tid: version.version, ..ReqId::default() },
            ..LogEntry::of(head.clone(), version)
        });
        let state = self.head.map(|state| State { version, ..state });
        ops.push(match (self.from, state) {
            (Some(id), Some(state)) => Op::Copy(head.at_snap(id), head.clone(), state),
            (_, state) => Op::set(head, state),
        });
        (entries, ops)
    }
}

impl Osd {
    /// The checking client writes an object. The version that it is made upon (zero: there is nothing) and the one
    /// that it has, if the write was taken.
    pub fn client_write(
        &mut self,
        n: u32,
        wish: &Wish,
        snaps: &Snaps,
    ) -> Option<(Eversion, Eversion)> {
        let o = object(n);
        let pg = self.pg.as_mut().filter(|pg| pg.is_primary() && pg.accepts_io())?;
        if pg.write_readiness(&o) != Readiness::Ready {
            pg.hurry(&o);
            return None;
        }
        let change = self.change(&o, wish, snaps)?;
        let pg = self.pg.as_mut()?;
        // A write comes with the push that is under way (see `PushAck`), or puts it off.
        let comes_with_push = matches!(wish, Wish::Put(v) if v % 3 != 0) && change.clone.is_none();
        if pg.is_on_its_way(&o) && !comes_with_push {
            if !pg.may_put_off(&o) {
                return None;
            }
            self.put_off(&o);
        }
        let data = if let Wish::Put(value) = wish { Some(*value) } else { None };
        Some(self.write_change(&o, change, data))
    }

    /// Takes removed snapshots from a clone, if there is one to be found. Its object and clone, and the versions as
    /// above.
    pub fn trim(&mut self, snaps: &Snaps) -> Option<(u32, SnapId, Eversion, Eversion)> {
        let pg = self.pg.as_ref().filter(|pg| pg.is_primary() && pg.accepts_io())?;
        if !pg.state().has(StateBits::CLEAN) {
            return None;
        }
        let is_due = |(o, s): &(&HObject, &State)| !o.is_head() && !s.snaps.is_subset(&snaps.live);
        let due: Vec<_> = self.mem.iter().filter(is_due).map(|(o, _)| o.clone()).collect();
        let clone = self.rng.choice(due)?;
        let head = clone.head();
        if [&head, &clone].iter().any(|o| pg.readiness(o) != Readiness::Ready) {
            return None;
        }
        let change = self.change(&head, &Wish::Trim(clone.snap), snaps)?;
        let (base, version) = self.write_change(&head, change, None);
        Some((number_of(&head), clone.snap, base, version))
    }

    fn write_change(
        &mut self,
        head: &HObject,
        change: Change,
        data: Option<u64>,
    ) -> (Eversion, Eversion) {
        let prior = change.prior;
        let first = self.pg.as_ref().expect("it leads").next_version();
        let (entries, ops) = change.at(head, first);
        (prior, self.write(head, Ready { entries, ops, data, goes_back: None }))
    }

    /// What a wish makes of an object, as `osd::ops::snaps` has it.
    fn change(&mut self, o: &HObject, wish: &Wish, snaps: &Snaps) -> Option<Change> {
        let stored = self.mem.get(o).cloned();
        let mut now = stored.clone().unwrap_or_default();
        let prior = now.version;
        let mut change = Change { clone: None, head: None, from: None, prior };
        if let Wish::Trim(id) = wish {
            change.clone = Some((*id, self.trimmed(o, *id, &mut now, snaps)));
            let is_gone = now.clones.is_empty() && now.value.is_none();
            change.head = (!is_gone).then_some(now);
            return Some(change);
        }
        let place = match wish {
            Wish::RollBack(snap) => Some(now.find(*snap)),
            _ => None,
        };
        let removes = matches!(wish, Wish::Delete) || place == Some(Place::Nowhere);
        if (removes && now.value.is_none()) || place == Some(Place::Head) {
            return None;
        }
        let taken: SnapSet = snaps.live.iter().copied().filter(|s| *s > now.seq).collect();
        if now.value.is_some() && !taken.is_empty() {
            now.clones.insert(snaps.seq, taken);
            change.clone = Some((snaps.seq, CloneChange::Made));
        }
        now.seq = now.seq.max(snaps.seq);
        match (wish, place) {
            (Wish::Put(value), _) => now.value = Some(*value),
            (_, Some(Place::Clone(id))) => {
                let clone = o.at_snap(id);
                let pg = self.pg.as_mut()?;
                if pg.readiness(&clone) != Readiness::Ready {
                    pg.hurry(&clone);
                    return None;
                }
                (now.value, change.from) = (self.mem[&clone].value, Some(id));
            }
            _ => now.value = None,
        }
        let is_gone = now.clones.is_empty() && now.value.is_none();
        change.head = (!is_gone).then_some(now);
        Some(change)
    }

    fn trimmed(&self, o: &HObject, id: SnapId, now: &mut State, snaps: &Snaps) -> CloneChange {
        let clone = self.mem[&o.at_snap(id)].clone();
        let served = now.clones.get_mut(&id).unwrap_or_else(|| panic!("{o} has no clone {id}"));
        assert_eq!(*served, clone.snaps, "{o} and its clone {id} do not agree");
        served.retain(|snap| snaps.live.contains(snap));
        if served.is_empty() {
            now.clones.remove(&id);
            return CloneChange::Removed(clone.version);
        }
        CloneChange::Trimmed(State { snaps: served.clone(), ..clone })
    }

    /// An object that is unfound goes back to the state before, if that is here, or is removed. So are those of these
    /// clones that were made since.
    pub fn take_back(&mut self, n: u32, clones: &[(HObject, Eversion)]) -> Option<Back> {
        let o = object(n);
        let pg = self.pg.as_ref().filter(|pg| pg.may_give_up())?;
        let need = pg.missing().get(&o)?.need;
        let (to, goes_back) = match pg.give_up_unfound(&o, true) {
            GiveUp::Delete => (Eversion::ZERO, None),
            GiveUp::Revert { from, to } if from.0 == self.id => {
                let state = self.mem.get(&o).cloned()?;
                if !self.going_back.insert(n) {
                    return None;
                }
                assert_eq!(state.version, to, "what is here is what is said to be here");
                (to, Some(state))
            }
            GiveUp::Revert { .. } => return None,
        };
        let (mut entries, mut ops, mut version) = (Vec::new(), Vec::new(), pg.next_version());
        for (clone, made) in clones.iter().filter(|(_, made)| *made > to) {
            let prior_version = *made;
            let of_clone = LogEntry::of(clone.clone(), version);
            entries.push(LogEntry { kind: EntryKind::Delete, prior_version, ..of_clone });
            ops.push(Op::Remove(clone.clone()));
            version.version += 1;
        }
        let kind = if goes_back.is_some() { EntryKind::Modify } else { EntryKind::Delete };
        let lost_after = Some(to);
        let of_head = LogEntry::of(o.clone(), version);
        entries.push(LogEntry { kind, prior_version: need, lost_after, ..of_head });
        if goes_back.is_none() {
            ops.push(Op::Remove(o.clone()));
        }
        Some(Back { to, version: self.write(&o, Ready { entries, ops, data: None, goes_back }) })
    }

    /// Logs a write and sends it. One that goes back to a state has no data: all copies miss the object then.
    fn write(&mut self, o: &HObject, ready: Ready) -> Eversion {
        let Ready { entries, ops, data, goes_back } = ready;
        let n = number_of(o);
        let pg = self.pg.as_mut().expect("it leads");
        if is_traced() {
            let acting = &pg.mapping().acting;
            eprintln!("osd.{} writes {entries:?}, {ops:?}, acting {acting:?}", self.id);
        }
        let last = entries.last().unwrap().clone();
        let version = last.version;
        let sums = ObjectSums::default();
        let of = |entry: &LogEntry| LogRecord { entry: entry.clone(), sums, last_user_version: 0 };
        let records: Vec<_> = entries.iter().map(of).collect();
        let mut meta = Pg::log_ops(&entries, &sums, 0);
        let targets = pg.targets(o);
        match goes_back {
            Some(_) => {
                entries.iter().for_each(|e| pg.append_without_data(e.clone(), pg.info().sums))
            }
            None => pg.append(entries.clone(), sums, 0),
        }
        if last.lost_after.is_some() {
            meta.extend(pg.missing_ops(&entries));
        }
        let trim = pg.trim_target(&LIMITS, self.in_flight.committed()).unwrap_or_default();
        if trim > Eversion::ZERO {
            meta.extend(pg.trim(trim));
        }
        let (epoch, interval) = (self.epoch(), self.interval());
        for t in targets {
            let ops = (t.with_data && goes_back.is_none()).then(|| ops.clone());
            let records = records.clone();
            self.out.push((t.osd, Net::Rep { epoch, interval, records, ops, data, trim }));
        }
        self.in_flight.push(version, Ack { object: n, head: o.clone(), version, goes_back });
        *self.writing.entry(n).or_default() += 1;
        self.submit(Txn { meta, ops, then: vec![Then::Durable(version)] });
        version
    }

    /// As a replica.
    pub fn on_write(&mut self, from: OsdId, net: Net) {
        let Net::Rep { interval, records, ops, data, trim, .. } = net else { return };
        let Some(pg) = self.pg.as_mut() else { return };
        if !pg.accepts_write(from, interval) {
            return;
        }
        let entries: Vec<_> = records.iter().map(|r| r.entry.clone()).collect();
        let versions: Vec<_> = entries.iter().map(|e| e.version).collect();
        let version = *versions.last().unwrap();
        // One of three has no room now and then, or all but the primary, or not what the write is made upon.
        let full = from.0 != 2 && self.id == 2 && pg.mapping().acting.len() == 3;
        let full = data.is_some_and(|v| {
            v % self.full_one_in == 0 || (full && v % 11 == 5) || (self.full && v % 2 == 0)
        });
        let no_room = full || pg.misses_base_of(&records);
        let taken = match ops {
            None => Taken::LogOnly,
            Some(_) if no_room => Taken::LeftOut,
            Some(_) => Taken::Whole,
        };
        let left_out = taken == Taken::LeftOut;
        let missed = if left_out { versions } else { Vec::new() };
        let mut txn =
            Txn { meta: Pg::log_ops(&entries, &ObjectSums::default(), 0), ..Txn::default() };
        txn.ops = ops.filter(|_| !left_out).unwrap_or_default();
        let behind = pg.append_as_replica(records, taken).unwrap();
        txn.meta.extend(behind.meta);
        txn.ops.extend(behind.remove.into_iter().map(Op::Remove));
        if trim > Eversion::ZERO {
            txn.meta.extend(pg.trim(trim));
        }
        txn.then.push(Then::Send(from, Net::RepAck { interval, version, missed }));
        self.submit(txn);
    }

    pub fn durable(&mut self, osd: OsdId, v: Eversion) {
        self.in_flight.durable(osd, v);
        self.commit();
    }

    pub fn commit(&mut self) {
        if let Some(pg) = &self.pg {
            let is_safe = |ack: &Ack, at, all| pg.is_safe(&ack.head, at, all);
            self.in_flight.release(is_safe);
        }
        while let Some((_, ack)) = self.in_flight.pop_committed(|ack| &ack.head) {
            *self.writing.get_mut(&ack.object).expect("it was counted") -= 1;
            if let Some(state) = &ack.goes_back {
                self.going_back.remove(&ack.object);
                self.stamp(ack.object, State { version: ack.version, ..state.clone() });
            }
            self.acked.push(ack);
        }
    }

    /// The older state of an object that is here gets the version that counts now.
    fn stamp(&mut self, n: u32, state: State) {
        let (o, interval) = (object(n), self.interval());
        let Some(pg) = self.pg.as_mut() else { return };
        let meta = pg.arrival_ops(&o, state.version);
        pg.arrived(&o, state.version);
        let then = vec![Then::Pulled(o.clone(), interval)];
        self.submit(Txn { meta, ops: vec![Op::Put(o, state)], then });
    }

    /// A client sends a write again. Whether it is told that it was done.
    pub fn answers_again(&mut self, n: u32, version: Eversion) -> bool {
        let o = object(n);
        let Some(pg) = self.pg.as_mut().filter(|pg| pg.is_primary() && pg.accepts_io()) else {
            return false;
        };
        let waits = pg.readiness(&o) != Readiness::Ready
            && (pg.write_readiness(&o) != Readiness::Ready || pg.is_on_its_way(&o));
        if waits {
            pg.hurry(&o);
            return false;
        }
        let reqid = ReqId { tid: version.version, ..ReqId::default() };
        let known = pg.log().find_request(&reqid).is_some_and(|dup| dup.version == version);
        known && self.in_flight.get_mut(version).is_none()
    }

    /// What a client would be shown of an object, or of a snapshot of it, or be told that it was written, if it asked.
    pub fn shows(&mut self, n: u32, snap: SnapId) -> Option<Shown> {
        let o = object(n);
        let pg = self.pg.as_mut().filter(|pg| pg.is_primary() && pg.accepts_io())?;
        if pg.readiness(&o) == Readiness::Missing || self.writing.get(&n).is_some_and(|w| *w > 0) {
            return None;
        }
        let Some(head) = self.mem.get(&o) else {
            return Some(Shown { version: None, value: None });
        };
        let version = Some(head.version);
        let place = if snap == SnapId::HEAD { Place::Head } else { head.find(snap) };
        let value = match place {
            Place::Head => head.value,
            Place::Nowhere => None,
            Place::Clone(id) => {
                let clone = o.at_snap(id);
                if pg.readiness(&clone) == Readiness::Missing {
                    pg.hurry(&clone);
                    return None;
                }
                let state = self.mem.get(&clone);
                state.unwrap_or_else(|| panic!("osd.{}: {clone} is nowhere", self.id)).value
            }
        };
        Some(Shown { version, value })
    }
}

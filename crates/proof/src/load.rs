//! The load: clients that ask for things, and the history of what they asked and heard.

mod listing;

use crate::linear::{Record, Verdict, Violation, check};
use crate::object::{
    Action, Answer, Body, Object, Op, Snap, State, Tag, fill, key_name, key_of, tag_of_value,
    tags_of, value_of,
};
use crate::plan::Plan;
use bytes::Bytes;
use client::{ClientError, ObjectOp, OpReply, RequestId};
use io::Rng;
use listing::Listing;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;
use types::{Errno, PoolId, SnapId};
use wire::msg::SnapContext;
use wire::msg::op_data::{CloneInfo, ListSnapsOut, Values};

/// Requests of one client to one object that may be under way at once: what keeps checking cheap.
const MAX_OPEN_PER_OBJECT: usize = 3;
/// Requests to one object that may stay without an answer for ever.
const MAX_UNANSWERED: usize = 3;
/// The client that mostly reads. It may ask for every object at once, so that on an island the
/// answers that do not come do not keep it from asking for what it gets.
pub const READER: usize = 0;
/// Snapshots kept at once.
pub const MAX_SNAPS: usize = 4;

/// A request that is under way.
struct Open {
    object: u64,
    /// Its place in the object's history.
    at: usize,
}

/// What one object went through.
#[derive(Default)]
struct History {
    records: Vec<Record<Op>>,
    /// When each was asked and answered, in simulated time: for people.
    times: Vec<(Duration, Option<Duration>)>,
    unanswered: usize,
}

/// All that is asked and answered.
pub struct Load {
    pool: PoolId,
    slot_bytes: usize,
    slots: u8,
    objects: u64,
    removals: u8,
    histories: BTreeMap<u64, History>,
    open: BTreeMap<(usize, RequestId), Open>,
    listing: Option<Listing>,
    clock: u64,
    /// Whether an object may be unreadable for a while: a disk is bad, and good copies may be away.
    may_be_unreadable: bool,
    next_tag: Tag,
    /// Snapshots that exist, newest first.
    snaps: Rc<Vec<Snap>>,
    /// Of these, what a request of a dead client may yet roll back to: with the snapshot gone it would
    /// remove the object, as Ceph does.
    kept: BTreeSet<Snap>,
    removed: Rc<Vec<Snap>>,
    seq: Snap,
    /// Answers so far.
    pub answered: u64,
    /// Reads that failed because no good copy could be reached.
    pub unreadable: u64,
}

impl Load {
    /// Nothing yet.
    pub fn new(plan: &Plan, pool: PoolId) -> Self {
        Load {
            pool,
            slot_bytes: plan.slot_bytes,
            slots: plan.slots,
            objects: plan.objects,
            removals: plan.removals,
            histories: BTreeMap::new(),
            open: BTreeMap::new(),
            listing: None,
            clock: 0,
            may_be_unreadable: plan.has_bad_blocks(),
            next_tag: 1,
            snaps: Rc::default(),
            kept: BTreeSet::new(),
            removed: Rc::default(),
            seq: 0,
            answered: 0,
            unreadable: 0,
        }
    }

    /// All copies are back: from now on a good one of each object can be read.
    pub fn healed(&mut self) {
        self.may_be_unreadable = false;
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Requests under way.
    pub fn open(&self) -> usize {
        self.open.len() + usize::from(self.is_listing())
    }

    /// Objects with requests under way.
    pub fn open_objects(&self) -> BTreeSet<u64> {
        self.open.values().map(|open| open.object).collect()
    }

    /// Requests of a client that are under way.
    pub fn open_of(&self, client: usize) -> usize {
        self.open.range((client, RequestId(0))..=(client, RequestId(u64::MAX))).count()
    }

    /// Snapshots that exist, newest first.
    pub fn snaps(&self) -> &[Snap] {
        &self.snaps
    }

    /// Asks for the clones of an object.
    pub fn clones_of(&self, object: u64) -> ObjectOp {
        ObjectOp::new(self.name(object)).list_snaps()
    }

    /// Of an object's clones those that should have been trimmed: they serve no snapshot, or one that does not exist.
    pub fn left_over(&self, clones: ListSnapsOut) -> Vec<CloneInfo> {
        let exists = |snap: &SnapId| self.snaps.contains(&snap.0);
        let is_wanted = |c: &CloneInfo| !c.snaps.is_empty() && c.snaps.iter().all(exists);
        let is_left = |c: &CloneInfo| c.cloneid != SnapId::HEAD && !is_wanted(c);
        clones.clones.into_iter().filter(is_left).collect()
    }

    fn name(&self, object: u64) -> client::Object {
        client::Object::new(self.pool, format!("object{object}"))
    }

    /// The requests under way, for people.
    pub fn tell_open(&self) -> String {
        let mut text = String::new();
        for open in self.open.values() {
            let _ = write!(text, "object{}:", open.object);
            self.tell(open.object, &[open.at], &mut text);
        }
        text
    }

    /// Snapshots that may go now: only while nothing but reads of heads is under way.
    pub fn removable_snaps(&self) -> Vec<Snap> {
        let reads_head = |o: &Open| {
            let record = &self.histories[&o.object].records[o.at];
            record.op.action == Action::Read(None)
        };
        if !self.open.values().all(reads_head) {
            return Vec::new();
        }
        self.snaps.iter().copied().filter(|s| !self.kept.contains(s)).collect()
    }

    /// A snapshot was made.
    pub fn snap_made(&mut self, snap: Snap) {
        self.seq = self.seq.max(snap);
        Rc::make_mut(&mut self.snaps).insert(0, snap);
    }

    /// A snapshot is not wanted any more.
    pub fn forget_snap(&mut self, snap: Snap, now: Duration) {
        Rc::make_mut(&mut self.snaps).retain(|s| *s != snap);
        Rc::make_mut(&mut self.removed).push(snap);
        let invoked = self.tick();
        let action = Action::Trim(self.removed.clone());
        let op = Op { client: READER, action, snaps: Rc::default(), seq: 0, answer: None };
        for history in self.histories.values_mut() {
            history.records.push(Record { invoked, answered: None, op: op.clone() });
            history.times.push((now, None));
        }
    }

    fn tag(&mut self) -> Tag {
        self.next_tag += 1;
        self.next_tag
    }

    /// Any request. The first client mostly reads: with writes of its own under way it would see
    /// less of others' mistakes.
    fn draw(&mut self, client: usize, rng: &mut Rng) -> Action {
        if client == READER && rng.u8(..) < 240 {
            return Action::Read(None);
        }
        if rng.u8(..) < self.removals {
            return Action::Remove;
        }
        let slots = self.slots;
        let at = rng.u8(0..slots);
        let n = rng.u8(1..=slots - at);
        let key = rng.u8(0..6);
        let snap = |rng: &mut Rng, snaps: &[Snap]| {
            (!snaps.is_empty()).then(|| snaps[rng.usize(0..snaps.len())])
        };
        match rng.u8(0..23) {
            0..=5 => Action::Read(None),
            6 | 7 => Action::Read(snap(rng, &self.snaps)),
            8..=10 => Action::Write(at, n, self.tag()),
            11 => Action::WriteFull(n, self.tag()),
            12 | 13 => Action::Append(self.tag()),
            14 => Action::Truncate(at),
            15 => Action::Zero(at, n),
            16 => Action::Remove,
            17 => Action::CreateExclusive,
            18 => Action::OmapSet(key, self.tag()),
            19 if rng.bool() => Action::OmapRemove(key),
            19 => Action::SetXattr(key, self.tag()),
            20 => match snap(rng, &self.snaps) {
                Some(snap) => Action::Rollback(snap),
                None => Action::SetXattr(key, self.tag()),
            },
            21 => match snap(rng, &self.snaps) {
                Some(snap) => Action::CopySnap(snap),
                None => Action::SetXattr(key, self.tag()),
            },
            _ => Action::WriteWithOmap(at, n, self.tag(), key),
        }
    }

    /// Draws a request to an object that has room for one.
    pub fn next(&mut self, client: usize, rng: &mut Rng) -> Option<(u64, Op, ObjectOp)> {
        let object = rng.u64(0..self.objects);
        let of_object = self.open.iter().filter(|((c, _), o)| *c == client && o.object == object);
        let open = of_object.count();
        let history = self.histories.entry(object).or_default();
        let most = if client == READER { 1 } else { MAX_OPEN_PER_OBJECT };
        if open >= most || history.unanswered >= MAX_UNANSWERED {
            return None;
        }
        let action = self.draw(client, rng);
        Some(self.request(client, object, action))
    }

    /// This request.
    pub fn request(&self, client: usize, object: u64, action: Action) -> (u64, Op, ObjectOp) {
        let op = Op { client, action, snaps: self.snaps.clone(), seq: self.seq, answer: None };
        let request = self.object_op(object, &op);
        (object, op, request)
    }

    fn bytes(&self, n: u8, tag: Tag) -> Bytes {
        let mut out = Vec::with_capacity(usize::from(n) * self.slot_bytes);
        (0..n).for_each(|_| fill(tag, self.slot_bytes, &mut out));
        out.into()
    }

    fn object_op(&self, object: u64, op: &Op) -> ObjectOp {
        let snapc = SnapContext {
            seq: SnapId(self.seq),
            snaps: self.snaps.iter().map(|s| SnapId(*s)).collect(),
        };
        let name = self.name(object);
        let ask = ObjectOp::new(name.clone());
        let place = |slot: u8| u64::from(slot) * self.slot_bytes as u64;
        let one = |key: u8, tag: Tag| -> Values {
            BTreeMap::from([(key_name(key).as_str().into(), value_of(tag))])
        };
        if let Action::Read(snap) = &op.action {
            let all = ask.read(0, 0).omap_values("", "", 1000).get_xattrs();
            return snap.map_or(all.clone(), |s| all.at_snap(SnapId(s)));
        }
        let ask = match &op.action {
            Action::Read(_) | Action::Trim(_) | Action::List => ask,
            Action::Write(at, n, tag) => ask.write(place(*at), self.bytes(*n, *tag)),
            Action::WriteFull(n, tag) => ask.write_full(self.bytes(*n, *tag)),
            Action::Append(tag) => ask.append(self.bytes(1, *tag)),
            Action::Truncate(n) => ask.truncate(place(*n)),
            Action::Zero(at, n) => ask.zero(place(*at), place(*n)),
            Action::Remove => ask.remove(),
            Action::CreateExclusive => ask.create(true),
            Action::OmapSet(key, tag) => ask.set_omap(&one(*key, *tag)),
            Action::OmapRemove(key) => {
                ask.remove_omap_keys(&[key_name(*key).as_str().into()].into_iter().collect())
            }
            Action::SetXattr(key, tag) => ask.set_xattr(&key_name(*key), &value_of(*tag)),
            Action::Rollback(snap) => ask.rollback(SnapId(*snap)),
            Action::CopySnap(snap) => ask.copy_from(&name, SnapId(*snap), 0),
            Action::WriteWithOmap(at, n, tag, key) => {
                ask.write(place(*at), self.bytes(*n, *tag)).set_omap(&one(*key, *tag))
            }
        };
        ask.with_snaps(snapc)
    }

    /// A request was sent.
    pub fn sent(&mut self, object: u64, op: Op, id: RequestId, now: Duration) {
        let client = op.client;
        let record = Record { invoked: self.tick(), answered: None, op };
        let history = self.histories.entry(object).or_default();
        history.records.push(record);
        history.times.push((now, None));
        self.open.insert((client, id), Open { object, at: history.records.len() - 1 });
    }

    /// A request was answered.
    ///
    /// # Errors
    /// A story, when the answer cannot be right whatever happened.
    pub fn answer(
        &mut self,
        client: usize,
        id: RequestId,
        outcome: Result<OpReply, ClientError>,
        now: Duration,
    ) -> Result<(), String> {
        let Some(Open { object, at }) = self.open.remove(&(client, id)) else { return Ok(()) };
        let answered = self.tick();
        let slot_bytes = self.slot_bytes;
        let history = self.histories.get_mut(&object).expect("it was asked for");
        let record = &mut history.records[at];
        let is_read = matches!(record.op.action, Action::Read(_));
        let is_copy = matches!(record.op.action, Action::CopySnap(_));
        let answer = match outcome {
            Ok(reply) if is_read => body_of(&reply, slot_bytes)
                .map(|b| Answer::Saw(Rc::new(b)))
                .map_err(|why| format!("a read returned what nobody wrote: {why}")),
            Ok(_) => Ok(Answer::Done),
            Err(why)
                if (is_read || is_copy) && why.errno == Errno::EIO && self.may_be_unreadable =>
            {
                // Nothing was seen, or done: the good copies are away. To the checker it is a copy that may
                // come about some time.
                history.unanswered += usize::from(is_copy);
                self.unreadable += 1;
                self.answered += 1;
                return Ok(());
            }
            Err(why) if is_read && why.errno == Errno::EIO => {
                Err(format!("it cannot be read though there must be a good copy: {why}"))
            }
            Err(why) => Ok(Answer::Failed(why.errno)),
        };
        history.times[at].1 = Some(now);
        self.answered += 1;
        match answer {
            Ok(answer) => {
                record.op.answer = Some(answer);
                record.answered = Some(answered);
                Ok(())
            }
            Err(why) => {
                let mut text = format!("object{object}: {why}\n");
                self.tell(object, &[at], &mut text);
                Err(text)
            }
        }
    }

    /// A client died: what it had asked for will never be answered.
    pub fn abandon(&mut self, client: usize) {
        self.listing.take_if(|listing| listing.client == client);
        let gone: Vec<_> = self.open.keys().copied().filter(|(c, _)| *c == client).collect();
        for key in gone {
            let Some(open) = self.open.remove(&key) else { continue };
            let history = self.histories.get_mut(&open.object).expect("it was asked for");
            let action = &history.records[open.at].op.action;
            if let Action::Rollback(snap) | Action::CopySnap(snap) = action {
                self.kept.insert(*snap);
            }
            let is_read = matches!(action, Action::Read(_));
            history.unanswered += usize::from(!is_read);
        }
    }

    /// Objects that were ever asked for.
    pub fn objects(&self) -> Vec<u64> {
        self.histories.keys().copied().collect()
    }

    /// Checks every object's history.
    ///
    /// # Errors
    /// The story of the first one that nothing explains.
    pub fn check(&self) -> Result<(), String> {
        for (object, history) in &self.histories {
            // A read that saw nothing says nothing.
            let says =
                |r: &Record<Op>| r.op.answer.is_some() || !matches!(r.op.action, Action::Read(_));
            let places: Vec<usize> =
                (0..history.records.len()).filter(|i| says(&history.records[*i])).collect();
            let records: Vec<_> = places.iter().map(|i| history.records[*i].clone()).collect();
            match check::<Object>(State::default(), &records) {
                Verdict::Linearizable => {}
                Verdict::TooHard => return Err(format!("object{object}: the check is too hard")),
                Verdict::Violated(v) => {
                    let done = v.done.iter().map(|i| places[*i]).collect();
                    let stuck = places[v.stuck];
                    return Err(self.story(*object, &Violation { done, stuck }));
                }
            }
        }
        Ok(())
    }

    /// What matters of a violation: what was done last, and what was open when the impossible
    /// answer came.
    fn story(&self, object: u64, v: &Violation) -> String {
        const SHOWN: usize = 8;
        let records = &self.histories[&object].records;
        let stuck = &records[v.stuck];
        let mut text = format!(
            "object{object} is not linearizable: no order of its {} requests explains the answer of \
             the last one below\nthe best order ends so:\n",
            records.len()
        );
        let last = &v.done[v.done.len().saturating_sub(SHOWN)..];
        self.tell(object, last, &mut text);
        let open: Vec<usize> = (0..records.len())
            .filter(|i| {
                let r = &records[*i];
                let began = stuck.answered.is_none_or(|a| r.invoked < a);
                *i != v.stuck && began && !v.done.contains(i)
            })
            .collect();
        if !open.is_empty() {
            text.push_str("open at that moment, or never answered:\n");
            self.tell(object, &open, &mut text);
        }
        text.push_str("impossible:\n");
        self.tell(object, &[v.stuck], &mut text);
        text
    }

    fn tell(&self, object: u64, which: &[usize], text: &mut String) {
        let history = &self.histories[&object];
        for i in which {
            let op = &history.records[*i].op;
            let (asked, answered) = history.times[*i];
            let until = answered.map_or("never".to_owned(), |t| format!("{:.6}", t.as_secs_f64()));
            let answer = match &op.answer {
                None => "?".to_owned(),
                Some(Answer::Done) => "done".to_owned(),
                Some(Answer::Failed(why)) => format!("{why}"),
                Some(Answer::Listed(true)) => "it is there".to_owned(),
                Some(Answer::Listed(false)) => "it is not there".to_owned(),
                Some(Answer::Saw(body)) => {
                    format!("{:?} omap {:?} xattrs {:?}", body.slots, body.omap, body.xattrs)
                }
            };
            let _ = writeln!(
                text,
                "  {:.6}..{until} client {} {:?} (snaps {:?}): {answer}",
                asked.as_secs_f64(),
                op.client,
                op.action,
                op.snaps
            );
        }
    }
}

/// What a read saw.
fn body_of(reply: &OpReply, slot_bytes: usize) -> Result<Body, String> {
    let text = |e: ClientError| e.to_string();
    let slots = tags_of(&reply.bytes(0).map_err(text)?, slot_bytes)?;
    let omap = reply.omap_values(1).map_err(text)?;
    let xattrs = reply.values(2).map_err(text)?;
    Ok(Body { slots, omap: tags_by_key(&omap.values)?, xattrs: tags_by_key(&xattrs)? })
}

fn tags_by_key(values: &Values) -> Result<BTreeMap<u8, Tag>, String> {
    let one = |(key, value): (&types::ByteString, &Bytes)| {
        let tag = tag_of_value(value).ok_or_else(|| format!("the value of {key} is nobody's"))?;
        Ok((key_of(key.as_bytes()).ok_or_else(|| format!("{key} is nobody's key"))?, tag))
    };
    values.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Kind;

    const POOL: PoolId = PoolId(1);

    /// What is said to a read of an object that is answered with EIO.
    fn answered_eio(load: &mut Load) -> Result<(), String> {
        let (object, op, _) = load.request(READER, 1, Action::Read(None));
        let id = RequestId(load.tick());
        load.sent(object, op, id, Duration::ZERO);
        let eio =
            ClientError { errno: Errno::EIO, what: String::new(), why: "".into(), reply: None };
        load.answer(READER, id, Err(eio), Duration::ZERO)
    }

    #[test]
    fn an_object_may_be_unreadable_while_a_disk_is_bad_and_not_when_all_is_whole() {
        let mut plan = Plan::new(1);
        plan.kinds = [Kind::Rot].into();
        let mut load = Load::new(&plan, POOL);
        assert_eq!(answered_eio(&mut load), Ok(()));
        assert_eq!(load.unreadable, 1);
        load.healed();
        assert!(answered_eio(&mut load).is_err_and(|why| why.contains("cannot be read")));
        plan.kinds.clear();
        assert!(answered_eio(&mut Load::new(&plan, POOL)).is_err(), "no disk is bad");
    }

    #[test]
    fn clones_of_removed_snapshots_are_left_over() {
        let mut load = Load::new(&Plan::new(1), POOL);
        [3, 4, 6].into_iter().for_each(|snap| load.snap_made(snap));
        load.forget_snap(4, Duration::ZERO);
        let clone = |id, snaps: &[Snap]| CloneInfo {
            cloneid: SnapId(id),
            snaps: snaps.iter().map(|s| SnapId(*s)).collect(),
            ..CloneInfo::default()
        };
        let head = CloneInfo { cloneid: SnapId::HEAD, ..CloneInfo::default() };
        let listed = vec![clone(3, &[3]), clone(4, &[4]), clone(5, &[]), clone(6, &[4, 6]), head];
        let left = load.left_over(ListSnapsOut { clones: listed, seq: SnapId(6) });
        assert_eq!(left.iter().map(|c| c.cloneid.0).collect::<Vec<_>>(), [4, 5, 6]);
    }
}

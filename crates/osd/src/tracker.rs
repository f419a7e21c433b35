//! Where every microsecond of an operation went.
//!
//! Each operation carries a [`Trace`]: what happened to it and when. Operations in flight can be
//! listed (`dump_ops_in_flight`); of those that ended, the newest and the slowest are kept
//! (`dump_historic_ops`, `dump_historic_slow_ops`). Texts are made only when somebody asks.

use crate::ops::Sender;
use crate::options::HistoryLimits;
use io::Now;
use serde_json::{Value, json};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Deref;
use std::time::Duration;
use types::{Epoch, HObject, Mono, OsdId, SnapId, SpgId, UTime};
use wire::msg::{MOsdOp, OpCode, OsdOp};

/// Something that happened to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Its last byte was received.
    Received,
    /// It waits for a newer map.
    WaitingForMap,
    /// It waits for the PG to be active.
    WaitingForActive,
    /// It waits until it is sure that no other OSD serves the PG, or will soon.
    WaitingForReadable,
    /// It waits for earlier operations on the object.
    WaitingForObject,
    /// It waits for the object to be recovered.
    WaitingForRecovery,
    /// It waits for bytes from the disk.
    WaitingForRead,
    /// Much is being read, or its client does not take what it asked for before.
    WaitingForMemory,
    /// The store takes no more writes just now.
    WaitingForStore,
    /// The same request is in flight already.
    WaitingForDuplicate,
    /// Its interpreter ran.
    Started,
    /// Its write was handed to the store.
    Submitted,
    /// Its write was sent to a replica.
    SentTo(OsdId),
    /// Its write is durable here.
    LocalDurable,
    /// Its write is durable on a replica.
    DurableOn(OsdId),
    /// Its write is durable everywhere.
    Committed,
    /// The answer was sent.
    Done,
}

impl Mark {
    /// The event's name; Ceph's where it has one.
    fn text(self) -> String {
        match self {
            Mark::Received => "initiated".into(),
            Mark::WaitingForMap => "waiting for map".into(),
            Mark::WaitingForActive => "waiting for peered".into(),
            Mark::WaitingForReadable => "waiting for readable".into(),
            Mark::WaitingForObject => "waiting for rw locks".into(),
            Mark::WaitingForRecovery => "waiting for missing object".into(),
            Mark::WaitingForRead => "waiting for disk read".into(),
            Mark::WaitingForMemory => "waiting for memory".into(),
            Mark::WaitingForStore => "waiting for store".into(),
            Mark::WaitingForDuplicate => "waiting for ondisk".into(),
            Mark::Started => "started".into(),
            Mark::Submitted => "op_commit queued".into(),
            Mark::SentTo(osd) => format!("sub_op sent to {osd}"),
            Mark::LocalDurable => "op_commit".into(),
            Mark::DurableOn(osd) => format!("sub_op_commit_rec from {osd}"),
            Mark::Committed => "commit_sent".into(),
            Mark::Done => "done".into(),
        }
    }

    /// Whether it only says what is waited for.
    fn is_waiting(self) -> bool {
        matches!(
            self,
            Mark::WaitingForMap
                | Mark::WaitingForActive
                | Mark::WaitingForReadable
                | Mark::WaitingForObject
                | Mark::WaitingForRecovery
                | Mark::WaitingForRead
                | Mark::WaitingForMemory
                | Mark::WaitingForStore
                | Mark::WaitingForDuplicate
        )
    }
}

/// The life of one operation.
#[derive(Clone, Debug)]
pub struct Trace {
    began: Now,
    marks: SmallVec<[(Mono, Mark); 8]>,
}

/// Marks of one operation that are kept; a sparse file of endless waits must not grow for ever.
const MARKS_MAX: usize = 64;

impl Trace {
    /// Of an operation that was received just now.
    pub fn begin(now: Now) -> Self {
        let mut marks = SmallVec::new();
        marks.push((now.mono, Mark::Received));
        Trace { began: now, marks }
    }

    /// Notes what happened. Waiting for the same again is not noted twice.
    pub fn mark(&mut self, now: Mono, mark: Mark) {
        let again = mark.is_waiting() && self.marks.last().is_some_and(|(_, m)| *m == mark);
        if !again && self.marks.len() < MARKS_MAX {
            self.marks.push((now, mark));
        }
    }

    /// How long ago it began.
    pub fn age(&self, now: Mono) -> Duration {
        now.since(self.began.mono)
    }

    /// When it began.
    pub fn began(&self) -> Mono {
        self.began.mono
    }

    /// The newest event.
    pub fn newest(&self) -> Mark {
        self.marks.last().map_or(Mark::Received, |(_, m)| *m)
    }

    fn stamp(&self, at: Mono) -> UTime {
        self.began.wall.plus(at.since(self.began.mono))
    }

    /// The events with their time and how long each lasted (until the next, or until `end`).
    fn events(&self, end: Mono) -> Value {
        let ends = self.marks.iter().skip(1).map(|(at, _)| *at).chain([end]);
        let events = self.marks.iter().zip(ends).map(|((at, mark), until)| {
            json!({
                "event": mark.text(),
                "time": self.stamp(*at).to_string(),
                "duration": until.since(*at).as_secs_f64(),
            })
        });
        Value::Array(events.collect())
    }
}

/// A request in flight, as `dump_ops_in_flight` shows it; `end` is when it ended, or now.
pub fn tracked_json(
    request: &MOsdOp,
    sender: Sender,
    tid: u64,
    trace: &Trace,
    now: Mono,
    end: Mono,
) -> Value {
    Tracked::new(request, sender, tid, trace.clone()).to_json(now, end)
}

/// A request in flight in a line, with what happened to it last.
pub fn tracked_text(request: &MOsdOp, sender: Sender, tid: u64, trace: &Trace) -> String {
    let tracked = Tracked::new(request, sender, tid, trace.clone());
    format!("{}: {}", tracked.description(), trace.newest().text())
}

/// What a request asked for, without its data: nothing of what was received is held by it.
#[derive(Clone, Debug)]
struct Request {
    pgid: SpgId,
    object: HObject,
    ops: First<SmallVec<[OpText; 4]>>,
    snap_seq: SnapId,
    /// Hardly any request has some.
    snaps: First<Vec<SnapId>>,
    flags: u32,
    epoch: Epoch,
}

/// Of operations, or snapshots, of a request so many are kept: it may have tens of thousands.
const KEPT: usize = 16;

/// The first of many.
#[derive(Clone, Debug, Default)]
struct First<C> {
    kept: C,
    more: usize,
}

impl<T, C: FromIterator<T> + Deref<Target = [T]>> First<C> {
    fn of(all: impl ExactSizeIterator<Item = T>) -> Self {
        First { more: all.len().saturating_sub(KEPT), kept: all.take(KEPT).collect() }
    }

    fn text(&self, text: impl Fn(&T) -> String) -> String {
        let kept = self.kept.iter().map(text);
        let more = (self.more > 0).then(|| format!("and {} more", self.more));
        kept.chain(more).collect::<Vec<_>>().join(",")
    }
}

/// One operation of a request: what, and on which bytes, where that has a sense.
#[derive(Clone, Copy, Debug)]
struct OpText {
    code: OpCode,
    range: Option<(u64, u64)>,
}

impl OpText {
    fn of(op: &OsdOp) -> Self {
        let ranged = matches!(
            op.code,
            OpCode::READ
                | OpCode::SPARSE_READ
                | OpCode::WRITE
                | OpCode::WRITEFULL
                | OpCode::APPEND
                | OpCode::ZERO
                | OpCode::CMPEXT
                | OpCode::MAPEXT
        );
        let range = ranged.then(|| {
            let extent = op.args.extent();
            (extent.offset, extent.length)
        });
        OpText { code: op.code, range }
    }
}

impl std::fmt::Display for OpText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.code.to_string().to_lowercase().replace('_', "-"))?;
        match self.range {
            Some((offset, length)) => write!(f, " {offset}~{length}"),
            None => Ok(()),
        }
    }
}

/// An operation that ended.
#[derive(Clone, Debug)]
pub struct Tracked {
    request: Request,
    sender: Sender,
    tid: u64,
    trace: Trace,
}

impl Tracked {
    /// The life of this request.
    pub fn new(request: &MOsdOp, sender: Sender, tid: u64, trace: Trace) -> Self {
        let request = Request {
            pgid: request.pgid,
            object: request.object.clone(),
            ops: First::of(request.ops.iter().map(OpText::of)),
            snap_seq: request.snapc.seq,
            snaps: match request.snapc.snaps.as_slice() {
                [] => First::default(),
                snaps => First::of(snaps.iter().copied()),
            },
            flags: request.flags,
            epoch: request.epoch,
        };
        Tracked { request, sender, tid, trace }
    }

    fn to_json(&self, now: Mono, end: Mono) -> Value {
        json!({
            "description": self.description(),
            "initiated_at": self.trace.began.wall.to_string(),
            "age": self.trace.age(now).as_secs_f64(),
            "duration": end.since(self.trace.began.mono).as_secs_f64(),
            "type_data": {
                "flag_point": flag_point(self.trace.newest()),
                "client_info": {
                    "client": self.sender.name.to_string(),
                    "client_addr": self.sender.addr.to_string().trim_start_matches("v2:"),
                    "tid": self.tid,
                },
                "events": self.trace.events(end),
            },
        })
    }

    /// `osd_op(client.4278.0:1 2.2 2:5d165976:::name:head [stat] snapc 0=[] flags e23)`
    fn description(&self) -> String {
        let r = &self.request;
        format!(
            "osd_op({}.0:{} {} {} [{}] snapc {:x}=[{}] {} e{})",
            self.sender.name,
            self.tid,
            r.pgid,
            r.object,
            r.ops.text(ToString::to_string),
            r.snap_seq.0,
            r.snaps.text(|snap| format!("{:x}", snap.0)),
            flags_text(r.flags),
            r.epoch
        )
    }
}

fn flag_point(newest: Mark) -> String {
    match newest {
        Mark::Done => "started".into(),
        mark if mark.is_waiting() => "delayed".into(),
        mark => mark.text(),
    }
}

fn flags_text(flags: u32) -> String {
    use wire::msg::flags as f;
    let names = [
        (f::ACK, "ack"),
        (f::ONDISK, "ondisk"),
        (f::RETRY, "retry"),
        (f::READ, "read"),
        (f::WRITE, "write"),
        (f::ORDERSNAP, "ordersnap"),
        (f::BALANCE_READS, "balance_reads"),
        (f::PGOP, "pgop"),
        (f::EXEC, "exec"),
        (f::LOCALIZE_READS, "localize_reads"),
        (f::RWORDERED, "rwordered"),
        (f::ENFORCE_SNAPC, "enforce_snapc"),
        (f::KNOWN_IF_REDIRECTED, "known_if_redirected"),
        (f::FULL_TRY, "full_try"),
        (f::FULL_FORCE, "full_force"),
        (f::RETURNVEC, "returnvec"),
    ];
    let set: Vec<_> = names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, n)| *n).collect();
    set.join("+")
}

/// Operations that ended.
#[derive(Debug, Default)]
pub struct History {
    newest: VecDeque<(Mono, Tracked)>,
    slow: VecDeque<(Mono, Tracked)>,
}

impl History {
    /// Takes in an operation that ended.
    pub fn ended(&mut self, now: Mono, limits: &HistoryLimits, op: Tracked) {
        if op.trace.age(now) >= limits.slow {
            push_bounded(&mut self.slow, (now, op.clone()), limits.slow_ops);
        }
        push_bounded(&mut self.newest, (now, op), limits.ops);
    }

    /// `dump_historic_ops`; with `by_duration` the slowest first.
    pub fn dump(&self, now: Mono, limits: &HistoryLimits, by_duration: bool) -> Value {
        let fresh = |(end, _): &&(Mono, Tracked)| now.since(*end) < limits.duration;
        let mut ops: Vec<_> = self.newest.iter().filter(fresh).collect();
        if by_duration {
            ops.sort_by_key(|(end, op)| std::cmp::Reverse(end.since(op.trace.began.mono)));
        }
        let ops: Vec<_> = ops.iter().map(|(end, op)| op.to_json(now, *end)).collect();
        json!({ "size": limits.ops, "duration": limits.duration.as_secs(), "ops": ops })
    }

    /// `dump_historic_slow_ops`
    pub fn dump_slow(&self, now: Mono, limits: &HistoryLimits) -> Value {
        let ops: Vec<_> = self.slow.iter().map(|(end, op)| op.to_json(now, *end)).collect();
        json!({
            "num to keep": limits.slow_ops,
            "threshold to keep": limits.slow.as_secs_f64(),
            "Ops": ops,
        })
    }
}

fn push_bounded<T>(list: &mut VecDeque<T>, item: T, max: usize) {
    list.push_back(item);
    while list.len() > max {
        list.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::EntityName;
    use wire::msg::SnapContext;

    /// The context of an image with 30,000 snapshots has 240 KB.
    #[test]
    fn of_many_snapshots_few_are_kept() {
        let tracked = |snaps: u64| {
            let snaps = (1..=snaps).rev().map(SnapId).collect();
            let snapc = SnapContext { seq: SnapId(255), snaps };
            let request = MOsdOp { snapc, ..MOsdOp::default() };
            let sender = Sender { name: EntityName::osd(OsdId(1)), ..Sender::default() };
            Tracked::new(&request, sender, 7, Trace::begin(Now::default()))
        };
        assert!(tracked(2).description().contains(" snapc ff=[2,1] "));
        let many = tracked(30_000);
        assert!(many.description().contains("[7530,752f,"), "{}", many.description());
        assert!(many.description().contains(",and 29984 more] "), "{}", many.description());
        assert_eq!(many.request.snaps.kept.len(), KEPT);
    }
}

//! Where every microsecond of an operation went.
//!
//! Each operation carries a [`Trace`]: what happened to it and when. Operations in flight can be
//! listed (`dump_ops_in_flight`); of those that ended, the newest and the slowest are kept
//! (`dump_historic_ops`, `dump_historic_slow_ops`). Texts are made only when somebody asks.

use io::Now;
use serde_json::{Value, json};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::time::Duration;
use types::{EntityAddr, EntityName, Mono, OsdId, UTime};
use wire::msg::{MOsdOp, OpCode};

/// Ended operations that are kept (`osd_op_history_size`).
pub const HISTORY_OPS: usize = 20;
/// For how long (`osd_op_history_duration`).
pub const HISTORY_S: u64 = 600;
/// Slow operations that are kept (`osd_op_history_slow_op_size`).
pub const SLOW_HISTORY_OPS: usize = 20;
/// From here on an operation counts as slow (`osd_op_history_slow_op_threshold`).
pub const SLOW: Duration = Duration::from_secs(10);

/// Something that happened to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Its last byte was received.
    Received,
    /// It waits for a newer map.
    WaitingForMap,
    /// It waits for the PG to be active.
    WaitingForActive,
    /// It waits for earlier operations on the object.
    WaitingForObject,
    /// It waits for the object to be recovered.
    WaitingForRecovery,
    /// It waits for bytes from the disk.
    WaitingForRead,
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
            Mark::WaitingForObject => "waiting for rw locks".into(),
            Mark::WaitingForRecovery => "waiting for missing object".into(),
            Mark::WaitingForRead => "waiting for disk read".into(),
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
                | Mark::WaitingForObject
                | Mark::WaitingForRecovery
                | Mark::WaitingForRead
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

/// An operation that ended, or one in flight, for a dump.
#[derive(Clone, Debug)]
pub struct Tracked {
    /// The request.
    pub request: MOsdOp,
    /// Who asked.
    pub client: EntityName,
    /// From where.
    pub addr: EntityAddr,
    /// Its transaction id.
    pub tid: u64,
    /// Its life.
    pub trace: Trace,
}

impl Tracked {
    /// As `dump_historic_ops` shows it; `end` is when it ended, or now.
    pub fn to_json(&self, now: Mono, end: Mono) -> Value {
        json!({
            "description": self.description(),
            "initiated_at": self.trace.began.wall.to_string(),
            "age": self.trace.age(now).as_secs_f64(),
            "duration": end.since(self.trace.began.mono).as_secs_f64(),
            "type_data": {
                "flag_point": flag_point(self.trace.newest()),
                "client_info": {
                    "client": self.client.to_string(),
                    "client_addr": self.addr.to_string().trim_start_matches("v2:"),
                    "tid": self.tid,
                },
                "events": self.trace.events(end),
            },
        })
    }

    /// `osd_op(client.4278.0:1 2.2 2:5d165976:::name:head [stat] snapc 0=[] flags e23)`
    pub fn description(&self) -> String {
        let r = &self.request;
        let ops: Vec<_> = r.ops.iter().map(|op| op_text(op.code)).collect();
        let snaps: Vec<_> = r.snapc.snaps.iter().map(|s| format!("{:x}", s.0)).collect();
        format!(
            "osd_op({}.0:{} {} {} [{}] snapc {:x}=[{}] {} e{})",
            self.client,
            self.tid,
            r.pgid,
            r.object,
            ops.join(","),
            r.snapc.seq.0,
            snaps.join(","),
            flags_text(r.flags),
            r.epoch
        )
    }
}

fn op_text(code: OpCode) -> String {
    code.to_string().to_lowercase().replace('_', "-")
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
    pub fn ended(&mut self, now: Mono, op: Tracked) {
        if op.trace.age(now) >= SLOW {
            push_bounded(&mut self.slow, (now, op.clone()), SLOW_HISTORY_OPS);
        }
        push_bounded(&mut self.newest, (now, op), HISTORY_OPS);
    }

    /// `dump_historic_ops`; with `by_duration` the slowest first.
    pub fn dump(&self, now: Mono, by_duration: bool) -> Value {
        let fresh = |(end, _): &&(Mono, Tracked)| now.since(*end).as_secs() < HISTORY_S;
        let mut ops: Vec<_> = self.newest.iter().filter(fresh).collect();
        if by_duration {
            ops.sort_by_key(|(end, op)| std::cmp::Reverse(op.trace.age(*end)));
        }
        let ops: Vec<_> = ops.iter().map(|(end, op)| op.to_json(now, *end)).collect();
        json!({ "size": HISTORY_OPS, "duration": HISTORY_S, "ops": ops })
    }

    /// `dump_historic_slow_ops`
    pub fn dump_slow(&self, now: Mono) -> Value {
        let ops: Vec<_> = self.slow.iter().map(|(end, op)| op.to_json(now, *end)).collect();
        json!({
            "num to keep": SLOW_HISTORY_OPS,
            "threshold to keep": SLOW.as_secs(),
            "Ops": ops,
        })
    }
}

fn push_bounded<T>(list: &mut VecDeque<T>, item: T, max: usize) {
    if list.len() >= max {
        list.pop_front();
    }
    list.push_back(item);
}

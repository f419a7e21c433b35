//! Requests on an image's bytes: admitted, cut into requests on objects, put together again.

use super::layout::{Piece, Ranges};
use super::script::Ticket;
use super::state::{LockState, Route, Shared};
use super::{ImageOutcome, ImageRequest, ReadData};
use crate::error::ClientError;
use crate::op::ObjectOp;
use crate::outcome::Outcome;
use crate::reply::OpReply;
use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use types::{Errno, SnapId};

/// From so many bytes on a read asks for data without holes (`rbd_sparse_read_threshold_bytes`).
const SPARSE_READ_BYTES: u64 = 64 << 10;

/// Who waits for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    User(ImageRequest),
    Script(Ticket),
    /// A read of a clone's object that does not exist.
    Object(usize),
    /// A copyup that needs what the parent has.
    Copyup(usize),
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Discard,
}

/// A request on a range of an image.
#[derive(Debug)]
pub struct Io {
    pub slot: usize,
    pub kind: Kind,
    pub owner: Owner,
    pub offset: u64,
    pub len: u64,
    /// What is written.
    pub data: Bytes,
    /// Requests on objects that are not ended.
    pub left: usize,
    pub error: Option<ClientError>,
    /// What was read: place in the image, data.
    pub segments: SmallVec<[(u64, Bytes); 1]>,
    /// For flushes.
    pub generation: u64,
}

/// How an object's range is discarded (`ObjectDiscardRequest`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    Remove,
    /// Hides the parent.
    CreateAndTruncate,
    Truncate,
    Zero,
}

/// What is done with an object.
#[derive(Debug)]
pub enum Work {
    Read,
    Write(Bytes),
    Discard(Discard),
    /// Only what the parent has is taken over.
    CopyOnly,
}

/// A request on a range of an object.
#[derive(Debug)]
pub struct ObjReq {
    pub io: usize,
    pub slot: usize,
    pub object: u64,
    pub at: u64,
    pub len: u64,
    pub work: Work,
    /// The object may have to be filled from the parent first.
    pub copyup: bool,
    /// The object map is to be kept.
    pub keep_map: bool,
    /// By the object map, when the request began.
    pub may_exist: bool,
    /// Reads of the parent that are not ended.
    pub left: usize,
}

/// Who goes on when the object map is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The object is written.
    Write(usize),
    /// The request is over.
    End(usize),
    Copyup(usize),
}

/// Whether a request may begin.
enum Gate {
    Go,
    Wait,
    /// Wait, and see to the lock.
    Lock,
    /// Wait, and see to the header.
    Refresh,
    Fail(ClientError),
}

impl Shared {
    fn gate(&self, slot: usize, kind: Kind) -> Gate {
        let image = self.image(slot);
        if let Some(dead) = &image.dead {
            return Gate::Fail(dead.clone());
        }
        if image.refresh_needed || image.refreshing {
            return Gate::Refresh;
        }
        if kind == Kind::Read {
            return Gate::Go;
        }
        // By a header that was read when the lock was taken.
        if let Some((errno, why)) = image.refusal() {
            return Gate::Fail(self.error(slot, errno, "change of", why));
        }
        if image.frozen > 0 {
            return Gate::Wait;
        }
        match image.lock {
            _ if !image.needs_lock() => Gate::Go,
            LockState::Locked => Gate::Go,
            LockState::Unlocked => Gate::Lock,
            LockState::Acquiring | LockState::Releasing => Gate::Wait,
        }
    }

    /// Takes a request on; it begins as soon as it may.
    pub fn enter(&mut self, io: Io) {
        let (slot, kind) = (io.slot, io.kind);
        let waits = kind != Kind::Read && !self.image(slot).queue.is_empty();
        let key = self.ios.insert(io);
        if waits {
            self.image_mut(slot).queue.push_back(key);
        } else {
            self.admit(key, slot, kind);
        }
    }

    fn admit(&mut self, key: usize, slot: usize, kind: Kind) {
        match self.gate(slot, kind) {
            Gate::Go => self.begin(key),
            Gate::Fail(error) => {
                self.note_begun(key);
                self.fail_io(key, error);
                self.finish_io(key);
            }
            gate => {
                self.image_mut(slot).queue.push_back(key);
                match gate {
                    Gate::Lock => self.want_lock(slot),
                    Gate::Refresh => self.want_refresh(slot),
                    _ => {}
                }
            }
        }
    }

    /// What waits may be able to begin.
    pub fn run_queue(&mut self, slot: usize) {
        let waiting = std::mem::take(&mut self.image_mut(slot).queue);
        let mut blocked = false;
        for key in waiting {
            let Some(kind) = self.ios.get(key).map(|io| io.kind) else { continue };
            if blocked && kind != Kind::Read {
                self.image_mut(slot).queue.push_back(key);
                continue;
            }
            self.admit(key, slot, kind);
            blocked |= self.image(slot).queue.back() == Some(&key);
        }
    }

    /// What waits fails, as far as it is `concerned`.
    pub fn fail_queue(
        &mut self,
        slot: usize,
        error: &ClientError,
        concerned: impl Fn(Kind) -> bool,
    ) {
        let waiting = std::mem::take(&mut self.image_mut(slot).queue);
        for key in waiting {
            let Some(kind) = self.ios.get(key).map(|io| io.kind) else { continue };
            if concerned(kind) {
                self.note_begun(key);
                self.fail_io(key, error.clone());
                self.finish_io(key);
            } else {
                self.image_mut(slot).queue.push_back(key);
            }
        }
    }

    fn note_begun(&mut self, key: usize) {
        let Some((slot, kind)) = self.ios.get(key).map(|io| (io.slot, io.kind)) else { return };
        let image = self.image_mut(slot);
        image.ios_running += 1;
        if kind != Kind::Read {
            image.writes_running += 1;
        }
    }

    /// Cuts a request into requests on objects and begins them.
    fn begin(&mut self, key: usize) {
        self.note_begun(key);
        let Some(io) = self.ios.get_mut(key) else { return };
        let (slot, kind, offset, len) = (io.slot, io.kind, io.offset, io.len);
        let data = std::mem::take(&mut io.data);
        // One for this function: no answer may end the request before all are begun.
        io.left = 1;
        if matches!(io.owner, Owner::User(_)) && offset + len > self.image(slot).size() {
            // It was smaller than that by the time.
            let error = self.error(slot, Errno::EINVAL, "size of", super::requests::BEYOND);
            self.fail_io(key, error);
            return self.object_ended(key);
        }
        let layout = self.image(slot).layout;
        if layout.is_plain() {
            for piece in layout.pieces(offset, len) {
                let from = (piece.image_at - offset) as usize;
                let part = || data.slice(from..from + piece.len as usize);
                let work = self.work(slot, kind, &piece, part);
                self.begin_object(key, slot, &piece, work, true);
            }
        } else {
            for run in layout.by_object(offset, len) {
                let Some(first) = run.first() else { continue };
                let whole = Piece { len: run.iter().map(|p| p.len).sum(), ..*first };
                let work = self.work(slot, kind, &whole, || gather(&data, offset, &run));
                self.begin_object(key, slot, &whole, work, true);
            }
        }
        self.object_ended(key);
    }

    fn work(&self, slot: usize, kind: Kind, piece: &Piece, data: impl FnOnce() -> Bytes) -> Work {
        match kind {
            Kind::Read => Work::Read,
            Kind::Write => Work::Write(data()),
            Kind::Discard => Work::Discard(self.discard_of(slot, piece, true)),
        }
    }

    /// Begins a request on an object that belongs to a request on the image. `keep_map`: the object map follows.
    fn begin_object(&mut self, io: usize, slot: usize, piece: &Piece, work: Work, keep_map: bool) {
        if let Some(io) = self.ios.get_mut(io) {
            io.left += 1;
        }
        let reads = matches!(work, Work::Read);
        let obj = self.objs.insert(ObjReq {
            io,
            slot,
            object: piece.object,
            at: piece.at,
            len: piece.len,
            work,
            copyup: false,
            keep_map,
            may_exist: true,
            left: 0,
        });
        if reads { self.read_object(obj) } else { self.change_object(obj) }
    }

    /// Discards a range of an object for a script; the object itself goes, if it is all of it.
    pub fn discard_object(
        &mut self,
        slot: usize,
        object: u64,
        at: u64,
        len: u64,
        keep_map: bool,
    ) -> Ticket {
        let piece = Piece { object, at, len, image_at: 0 };
        let work = Work::Discard(self.discard_of(slot, &piece, false));
        self.internal(slot, &piece, work, keep_map)
    }

    /// Fills an object from the parent for a script.
    pub fn copy_object(&mut self, slot: usize, object: u64) -> Ticket {
        let len = self.image(slot).layout.object_bytes();
        // Not the whole object: that would need no filling.
        let piece = Piece { object, at: 0, len: len - 1, image_at: 0 };
        self.internal(slot, &piece, Work::CopyOnly, true)
    }

    fn internal(&mut self, slot: usize, piece: &Piece, work: Work, keep_map: bool) -> Ticket {
        let ticket = self.new_ticket();
        let owner = Owner::Script(ticket);
        let mut io = Io::new(slot, Kind::Discard, owner, 0, piece.len, Bytes::new());
        io.left = 1;
        let key = self.ios.insert(io);
        self.note_begun(key);
        self.begin_object(key, slot, piece, work, keep_map);
        self.object_ended(key);
        ticket
    }

    pub fn send(&mut self, route: Route, op: ObjectOp) {
        self.outgoing.push_back((route, op));
    }
}

/// The bytes of several pieces, one after the other.
fn gather(data: &Bytes, offset: u64, run: &[Piece]) -> Bytes {
    let part = |p: &Piece| {
        let from = (p.image_at - offset) as usize;
        data.slice(from..from + p.len as usize)
    };
    if let [one] = run {
        return part(one);
    }
    let mut all = BytesMut::with_capacity(run.iter().map(|p| p.len as usize).sum());
    run.iter().for_each(|p| all.extend_from_slice(&part(p)));
    all.freeze()
}

// ---- reading ----

impl Shared {
    fn read_object(&mut self, key: usize) {
        let Some(obj) = self.objs.get(key) else { return };
        let image = self.image(obj.slot);
        if image.snap.is_none() && !image.may_exist(obj.object) {
            return self.read_parent(key);
        }
        let op = ObjectOp::new(image.data(obj.object)).at_snap(image.snap.unwrap_or(SnapId::HEAD));
        let op = if obj.len >= SPARSE_READ_BYTES {
            op.sparse_read(obj.at, obj.len)
        } else {
            op.read(obj.at, obj.len)
        };
        self.send(Route::Object(key), op);
    }

    fn on_read(&mut self, key: usize, answer: Result<OpReply, ClientError>) {
        match answer {
            Err(error) if error.is_no_object() => self.read_parent(key),
            Err(error) => self.end_object(key, Err(error)),
            Ok(reply) => {
                let took = self.take_read(key, &reply);
                self.end_object(key, took);
            }
        }
    }

    /// Notes where the bytes of an answer belong. They are not copied.
    fn take_read(&mut self, key: usize, reply: &OpReply) -> Result<(), ClientError> {
        let Some(obj) = self.objs.get(key) else { return Ok(()) };
        let (object, at, len, slot) = (obj.object, obj.at, obj.len, obj.slot);
        let io = obj.io;
        let mut found: SmallVec<[(u64, Bytes); 2]> = SmallVec::new();
        if len >= SPARSE_READ_BYTES {
            let sparse = reply.sparse(0)?;
            let mut data = sparse.data;
            for (from, bytes) in sparse.extents.map {
                let inside = from >= at && bytes <= len && from - at <= len - bytes;
                if !inside || bytes > data.len() as u64 {
                    return Err(self.malformed(slot, object));
                }
                found.push((from, data.split_to(bytes as usize)));
            }
        } else {
            let mut from = at;
            for piece in reply.ops.first().into_iter().flat_map(|op| &op.outdata) {
                found.push((from, piece.clone()));
                from += piece.len() as u64;
            }
            if from - at > len {
                return Err(self.malformed(slot, object));
            }
        }
        let layout = self.image(slot).layout;
        let Some(io) = self.ios.get_mut(io) else { return Ok(()) };
        for (mut from, mut data) in found {
            while !data.is_empty() {
                let (image_at, run) = layout.in_image(object, from);
                let part = data.split_to((run as usize).min(data.len()));
                from += part.len() as u64;
                io.segments.push((image_at, part));
            }
        }
        Ok(())
    }

    fn malformed(&self, slot: usize, object: u64) -> ClientError {
        let what = format!("read of object {object:x} of {}", self.image(slot).title());
        ClientError::new(Errno::EIO, what, "the OSD answered bytes that were not asked for")
    }

    /// An object does not exist: what the parent has counts, or zeros.
    fn read_parent(&mut self, key: usize) {
        let Some(obj) = self.objs.get(key) else { return };
        let image = self.image(obj.slot);
        let (Some(parent), overlap @ 1..) = (image.parent, image.overlap()) else {
            return self.end_object(key, Ok(()));
        };
        let ranges = image.layout.ranges(obj.object, obj.at, obj.len, overlap);
        self.read_ranges(parent, ranges, Owner::Object(key));
    }

    /// Reads ranges of a parent for its clone.
    pub fn read_ranges(&mut self, parent: usize, ranges: Ranges, owner: Owner) {
        // One for this function, as answers may be there at once.
        self.add_parent_reads(owner, ranges.len() + 1);
        for (offset, len) in ranges {
            self.enter(Io::new(parent, Kind::Read, owner, offset, len, Bytes::new()));
        }
        self.parent_read_ended(owner, SmallVec::new(), None);
    }

    fn add_parent_reads(&mut self, owner: Owner, count: usize) {
        match owner {
            Owner::Object(key) => {
                if let Some(obj) = self.objs.get_mut(key) {
                    obj.left += count;
                }
            }
            Owner::Copyup(key) => {
                if let Some(copyup) = self.copyup_list.get_mut(key) {
                    copyup.left += count;
                }
            }
            Owner::User(_) | Owner::Script(_) => {}
        }
    }

    fn parent_read_ended(
        &mut self,
        owner: Owner,
        segments: SmallVec<[(u64, Bytes); 1]>,
        error: Option<ClientError>,
    ) {
        match owner {
            Owner::Object(key) => {
                let Some(obj) = self.objs.get_mut(key) else { return };
                obj.left -= 1;
                let (left, io) = (obj.left, obj.io);
                if let Some(io) = self.ios.get_mut(io) {
                    io.segments.extend(segments);
                    io.error = io.error.take().or(error);
                }
                if left == 0 {
                    self.end_object(key, Ok(()));
                }
            }
            Owner::Copyup(key) => self.copyup_read_ended(key, segments, error),
            Owner::User(_) | Owner::Script(_) => {}
        }
    }
}

// ---- ending ----

impl Io {
    pub fn new(slot: usize, kind: Kind, owner: Owner, offset: u64, len: u64, data: Bytes) -> Self {
        let segments = SmallVec::new();
        let (left, error, generation) = (0, None, 0);
        Io { slot, kind, owner, offset, len, data, left, error, segments, generation }
    }
}

impl Shared {
    /// The answer to a request on an object.
    pub fn on_object(&mut self, key: usize, answer: Result<OpReply, ClientError>) {
        match self.objs.get(key).map(|obj| &obj.work) {
            None => {}
            Some(Work::Read) => self.on_read(key, answer),
            Some(_) => self.on_written(key, answer),
        }
    }

    pub fn end_object(&mut self, key: usize, result: Result<(), ClientError>) {
        let Some(obj) = self.objs.try_remove(key) else { return };
        if let Err(error) = result {
            if error.errno == Errno::EBLOCKLISTED {
                self.die(obj.slot, &error);
            }
            self.fail_io(obj.io, error);
        }
        self.object_ended(obj.io);
    }

    fn object_ended(&mut self, key: usize) {
        let Some(io) = self.ios.get_mut(key) else { return };
        io.left -= 1;
        if io.left == 0 {
            self.finish_io(key);
        }
    }

    /// Notes why a request fails; the first reason counts.
    fn fail_io(&mut self, key: usize, error: ClientError) {
        if let Some(io) = self.ios.get_mut(key) {
            io.error.get_or_insert(error);
        }
    }

    fn finish_io(&mut self, key: usize) {
        let Some(io) = self.ios.try_remove(key) else { return };
        let slot = io.slot;
        self.touched = true;
        let image = self.image_mut(slot);
        image.ios_running -= 1;
        if io.kind != Kind::Read {
            image.writes_running -= 1;
        }
        match io.owner {
            Owner::User(id) => self.finish_user(id, io),
            Owner::Script(ticket) => {
                let result = io.error.map_or(Ok(OpReply::default()), Err);
                self.answer(ticket, Outcome::Op(result));
            }
            owner => self.parent_read_ended(owner, io.segments, io.error),
        }
    }

    fn finish_user(&mut self, id: ImageRequest, io: Io) {
        let error = io.error.map(|e| self.of_request(io.slot, io.kind, io.offset, io.len, e));
        let image = self.image_mut(io.slot);
        image.user_ops -= 1;
        image.user_bytes -= cost(io.kind, io.len);
        let over = if io.kind == Kind::Read {
            false
        } else {
            image.flushes.ended(io.generation);
            true
        };
        let outcome = match (io.kind, error) {
            (Kind::Read, Some(error)) => ImageOutcome::Read(Err(error)),
            (Kind::Read, None) => {
                ImageOutcome::Read(Ok(ReadData::new(io.offset, io.len, io.segments)))
            }
            (_, Some(error)) => ImageOutcome::Done(Err(error)),
            (_, None) => ImageOutcome::Done(Ok(())),
        };
        self.done(id, outcome);
        while over && let Some(flush) = self.image_mut(io.slot).flushes.next_over() {
            self.done(flush, ImageOutcome::Done(Ok(())));
        }
    }

    /// An error, with what the user wanted.
    fn of_request(
        &self,
        slot: usize,
        kind: Kind,
        offset: u64,
        len: u64,
        error: ClientError,
    ) -> ClientError {
        let verb = match kind {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Discard => "discard",
        };
        let title = self.image(slot).title();
        let what = format!("{verb} of {len} bytes at {offset} of {title}: {}", error.what);
        ClientError { what, ..error }
    }
}

/// Bytes of a request that count against the bound.
pub fn cost(kind: Kind, len: u64) -> usize {
    match kind {
        Kind::Discard => 0,
        Kind::Read | Kind::Write => usize::try_from(len).unwrap_or(usize::MAX),
    }
}

//! Changes of an object: the object map before it, the change, a copyup if the object must be filled
//! from the parent, the object map after it (`AbstractObjectWriteRequest`).

use super::format::{lock_assert, map_update};
use super::io::{Discard, ObjReq, Then, Work};
use super::layout::Piece;
use super::object_map::State;
use super::state::{Image, MapBusy, Route, Shared};
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use crate::reply::OpReply;
use std::collections::VecDeque;
use types::{Errno, SnapId};

impl Image {
    /// Whether the head shows the parent where the object has nothing.
    pub fn shows_parent(&self, object: u64) -> bool {
        // Of all bytes of an object its first one is the first in the image.
        self.parent.is_some() && self.layout.in_image(object, 0).0 < self.head.overlap
    }
}

impl ObjReq {
    /// What the object map must say before.
    pub fn state_before(&self) -> State {
        match self.work {
            Work::Discard(Discard::Remove) => State::Pending,
            _ => State::Exists,
        }
    }

    fn removes(&self) -> bool {
        matches!(self.work, Work::Discard(Discard::Remove))
    }

    /// Appends its operations.
    pub fn operations(&self, op: ObjectOp, object_bytes: u64) -> ObjectOp {
        match &self.work {
            Work::Write(data) if self.len == object_bytes => op.write_full(data.clone()),
            Work::Write(data) => op.write(self.at, data.clone()),
            Work::Discard(Discard::Remove) => op.remove(),
            Work::Discard(Discard::CreateAndTruncate) => op.create(false).truncate(self.at),
            Work::Discard(Discard::Truncate) => op.truncate(self.at),
            Work::Discard(Discard::Zero) => op.zero(self.at, self.len),
            Work::Read | Work::CopyOnly => op,
        }
    }
}

/// A hint that the object will grow to its full size.
pub fn hint(op: ObjectOp, object_bytes: u64) -> ObjectOp {
    op.alloc_hint(object_bytes, object_bytes, 0)
}

impl Shared {
    /// How a discard of a range is done. `keep_parent_hidden`: a whole object is not removed when
    /// the parent would be seen then.
    pub fn discard_of(&self, slot: usize, piece: &Piece, keep_parent_hidden: bool) -> Discard {
        let image = self.image(slot);
        let whole = image.layout.object_bytes();
        let has_parent = image.shows_parent(piece.object);
        if piece.at == 0 && piece.len == whole {
            if !(keep_parent_hidden && has_parent) {
                Discard::Remove
            } else if image.head.snapc.snaps.is_empty() {
                Discard::CreateAndTruncate
            } else {
                Discard::Truncate
            }
        } else if piece.at + piece.len == whole {
            Discard::Truncate
        } else {
            Discard::Zero
        }
    }

    /// Begins a change.
    pub fn change_object(&mut self, key: usize) {
        let Some(obj) = self.objs.get(key) else { return };
        let image = self.image(obj.slot);
        let has_parent = image.shows_parent(obj.object);
        let full = obj.at == 0 && obj.len == image.layout.object_bytes();
        let copyup = has_parent && !(full && image.head.snapc.snaps.is_empty());
        let may_exist = image.may_exist(obj.object);
        let slot = obj.slot;
        if !may_exist && !has_parent && !matches!(obj.work, Work::Write(_)) {
            return self.end_object(key, Ok(()));
        }
        let Some(obj) = self.objs.get_mut(key) else { return };
        obj.copyup = copyup;
        obj.may_exist = may_exist;
        let (object, keep_map, before) = (obj.object, obj.keep_map, obj.state_before());
        if matches!(obj.work, Work::CopyOnly) {
            // Nothing is written: what exists is as it should be. A map that says so may be wrong, as it is
            // changed before the object is: then the object is looked at.
            return match (copyup, may_exist) {
                (false, _) => self.end_object(key, Ok(())),
                (true, false) => self.copyup(key),
                (true, true) => self.write_object(key),
            };
        }
        if self.image(slot).map.is_none() || !keep_map {
            return self.write_object(key);
        }
        if !may_exist && copyup {
            return self.copyup(key);
        }
        self.change_map(slot, object, before, None, Then::Write(key));
    }

    pub fn write_object(&mut self, key: usize) {
        let Some(obj) = self.objs.get(key) else { return };
        let image = self.image(obj.slot);
        let bytes = image.layout.object_bytes();
        let mut op = ObjectOp::new(image.data(obj.object)).with_snaps(image.head.snapc.clone());
        if obj.copyup {
            // It must exist.
            op = op.stat();
        }
        if matches!(obj.work, Work::Write(_)) && (image.map.is_none() || !obj.may_exist) {
            op = hint(op, bytes);
        }
        let op = obj.operations(op, bytes).full_try_if(obj.removes());
        self.send(Route::Object(key), op);
    }

    pub fn on_written(&mut self, key: usize, answer: Result<OpReply, ClientError>) {
        let Some(obj) = self.objs.get(key) else { return };
        match answer {
            Err(error) if error.is_no_object() && obj.copyup => self.copyup(key),
            // What is to be nothing is nothing.
            Err(error) if error.is_no_object() && !matches!(obj.work, Work::Write(_)) => {
                self.written(key);
            }
            Err(error) => self.end_object(key, Err(error)),
            Ok(_) => self.written(key),
        }
    }

    /// The object is as it should be; the object map may have to follow.
    pub fn written(&mut self, key: usize) {
        let Some(obj) = self.objs.get(key) else { return };
        let (slot, object) = (obj.slot, obj.object);
        if !obj.removes() || !obj.keep_map || self.image(slot).map.is_none() {
            return self.end_object(key, Ok(()));
        }
        let pending = Some(State::Pending);
        self.change_map(slot, object, State::Nonexistent, pending, Then::End(key));
    }
}

// ---- the object map ----

impl Shared {
    /// Changes the object map for one object, if need be, and goes on. Changes of one object come
    /// one after the other.
    pub fn change_map(
        &mut self,
        slot: usize,
        object: u64,
        new: State,
        current: Option<State>,
        then: Then,
    ) {
        let image = self.image_mut(slot);
        let needed = image.map.as_ref().is_some_and(|m| m.must_change(object, new));
        if !needed {
            return self.go_on(then, Ok(()));
        }
        if let Some(busy) = image.map_busy.get_mut(&object) {
            busy.queue.push_back((new, current, then));
            return;
        }
        let queue = VecDeque::new();
        image.map_busy.insert(object, MapBusy { new, current, then, queue });
        let op = map_request(image.map_object(SnapId::HEAD), object, object + 1, new, current);
        self.send(Route::Map(slot, object), op);
    }

    pub fn on_map(&mut self, slot: usize, object: u64, answer: Result<OpReply, ClientError>) {
        let image = self.image_mut(slot);
        let Some(busy) = image.map_busy.get(&object) else { return };
        match answer {
            Ok(_) => {
                if let Some(map) = &mut image.map {
                    map.change(object, object + 1, busy.new, busy.current);
                }
                self.map_changed(slot, object, Ok(()));
            }
            Err(error) if error.errno == Errno::EBLOCKLISTED => {
                self.map_changed(slot, object, Err(error));
            }
            Err(error) if error.errno == Errno::EBUSY => {
                self.lock_is_lost(slot, &error);
                self.map_changed(slot, object, Err(error));
            }
            Err(error) => self.map_failed(slot, object, &error),
        }
    }

    /// A change of the object map is over.
    pub fn map_changed(&mut self, slot: usize, object: u64, result: Result<(), ClientError>) {
        let Some(busy) = self.image_mut(slot).map_busy.remove(&object) else { return };
        self.touched = true;
        self.go_on(busy.then, result.clone());
        for (new, current, then) in busy.queue {
            match &result {
                Ok(()) => self.change_map(slot, object, new, current, then),
                // The map may be gone with the lock: no change would seem to be needed.
                Err(error) => self.go_on(then, Err(error.clone())),
            }
        }
    }

    fn go_on(&mut self, then: Then, result: Result<(), ClientError>) {
        match (then, result) {
            (Then::Write(key), Ok(())) => self.write_object(key),
            (Then::End(key), Ok(())) => self.end_object(key, Ok(())),
            (Then::Write(key) | Then::End(key), Err(error)) => self.end_object(key, Err(error)),
            (Then::Copyup(key), result) => self.copyup_mapped(key, result),
        }
    }
}

/// A change of an object map that only the lock's holder may make.
pub fn map_request(
    map: Object,
    start: u64,
    end: u64,
    new: State,
    current: Option<State>,
) -> ObjectOp {
    let input = map_update(start, end, new as u8, current.map(|s| s as u8));
    locked(ObjectOp::new(map)).call("rbd", "object_map_update", input).as_write()
}

/// Fails with EBUSY unless we hold the lock on the object map.
pub fn locked(op: ObjectOp) -> ObjectOp {
    op.call("lock", "assert_locked", lock_assert("", "")).as_write()
}

#[cfg(test)]
mod tests {
    use super::super::io::Kind;
    use super::super::stage::{ORDER, Stage};
    use super::*;

    const LEN: u64 = 1 << ORDER;

    fn opened() -> (Stage, usize) {
        let mut stage = Stage::new();
        stage.map = vec![State::Exists; 4];
        let slot = stage.locked();
        (stage, slot)
    }

    /// What was in it is not zeros, and what is written is nowhere.
    #[test]
    fn without_its_pool_an_image_is_not_served() {
        for kind in [Kind::Read, Kind::Write, Kind::Discard] {
            let (mut stage, slot) = opened();
            let request = stage.submit(slot, kind, 1, LEN);
            let asked = stage.until("data.0000000000000001");
            stage.give_up(asked, Errno::ENOENT);
            stage.serve();
            assert_eq!(stage.end(request), Some(Err(Errno::ENOENT)), "{kind:?}");
        }
    }

    #[test]
    fn an_object_that_does_not_exist_is_zeros() {
        for (kind, end) in [
            (Kind::Read, Ok(())),
            (Kind::Discard, Ok(())),
            // No write needs one: then something else does not exist.
            (Kind::Write, Err(Errno::ENOENT)),
        ] {
            let (mut stage, slot) = opened();
            let request = stage.submit(slot, kind, 1, LEN);
            let asked = stage.until("data.0000000000000001");
            stage.fail(asked, Errno::ENOENT);
            stage.serve();
            assert_eq!(stage.end(request), Some(end), "{kind:?}");
        }
    }
}

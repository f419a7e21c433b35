//! A clone's object that does not exist is filled from the parent before it is changed
//! (`librbd/io/CopyupRequest.cc`).
//!
//! All changes of the object that come while the parent is read are done together with the filling;
//! later ones begin anew afterwards. If the clone has snapshots, they must see what the parent has:
//! then the object is filled with an empty snap context first, and changed by a second request.

use super::format::feature;
use super::invalid::invalidate_snapshot_maps;
use super::io::{Owner, Then, Work};
use super::layout::Layout;
use super::object_map::State;
use super::state::{Image, Route, Shared};
use super::write::hint;
use crate::error::ClientError;
use crate::op::ObjectOp;
use crate::reply::OpReply;
use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use types::Errno;
use wire::msg::SnapContext;

/// A copyup on its way.
#[derive(Debug)]
pub struct Copyup {
    slot: usize,
    object: u64,
    /// Changes that are done with it.
    waiting: Vec<usize>,
    /// Changes that came too late.
    again: Vec<usize>,
    /// Changes may still come.
    open: bool,
    /// Reads, map changes or requests that are not ended, by stage.
    pub left: usize,
    segments: Vec<(u64, Bytes)>,
    /// What the parent has: places in the object, and the bytes.
    extents: BTreeMap<u64, u64>,
    data: Bytes,
    error: Option<ClientError>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reading,
    Mapping,
    Filling,
}

fn is_zero(data: &[u8]) -> bool {
    // Whole words first; most data shows in the first.
    let mut words = data.chunks_exact(8);
    words.all(|w| w == [0; 8]) && words.remainder().iter().all(|b| *b == 0)
}

/// What the parent has, by place in the object, without what is zero.
fn in_object(layout: &Layout, segments: &[(u64, Bytes)]) -> (BTreeMap<u64, u64>, Bytes) {
    let mut parts: BTreeMap<u64, Bytes> = BTreeMap::new();
    for (image_at, data) in segments {
        for piece in layout.pieces(*image_at, data.len() as u64) {
            let from = (piece.image_at - image_at) as usize;
            let part = data.slice(from..from + piece.len as usize);
            if !is_zero(&part) {
                parts.insert(piece.at, part);
            }
        }
    }
    let mut data = BytesMut::with_capacity(parts.values().map(Bytes::len).sum());
    parts.values().for_each(|part| data.extend_from_slice(part));
    let extents = parts.into_iter().map(|(at, part)| (at, part.len() as u64)).collect();
    (extents, data.freeze())
}

impl Image {
    /// What the object map says of an object that was only filled: with snapshots, nothing was written since the last
    /// one, as the oldest has it.
    fn state_when_filled(&self) -> State {
        let has_snaps = !self.head.snapc.snaps.is_empty();
        if has_snaps && self.head.has(feature::FAST_DIFF) { State::Clean } else { State::Exists }
    }
}

impl Shared {
    /// The change needs the object to be there.
    pub fn copyup(&mut self, key: usize) {
        let Some(obj) = self.objs.get(key) else { return };
        let (slot, object) = (obj.slot, obj.object);
        if let Some(running) = self.image(slot).copyups.get(&object).copied()
            && let Some(copyup) = self.copyup_list.get_mut(running)
        {
            let list = if copyup.open { &mut copyup.waiting } else { &mut copyup.again };
            list.push(key);
            return;
        }
        let copyup = self.copyup_list.insert(Copyup {
            slot,
            object,
            waiting: vec![key],
            again: Vec::new(),
            open: true,
            left: 0,
            segments: Vec::new(),
            extents: BTreeMap::new(),
            data: Bytes::new(),
            error: None,
            stage: Stage::Reading,
        });
        let image = self.image_mut(slot);
        image.copyups.insert(object, copyup);
        let whole = image.layout.object_bytes();
        let ranges = image.layout.ranges(object, 0, whole, image.head.overlap);
        match image.parent {
            Some(parent) => self.read_ranges(parent, ranges, Owner::Copyup(copyup)),
            None => self.copyup_read(copyup),
        }
    }

    pub fn copyup_read_ended(
        &mut self,
        key: usize,
        segments: SmallVec<[(u64, Bytes); 1]>,
        error: Option<ClientError>,
    ) {
        let Some(copyup) = self.copyup_list.get_mut(key) else { return };
        copyup.segments.extend(segments);
        copyup.error = copyup.error.take().or(error);
        copyup.left -= 1;
        if copyup.left == 0 {
            self.copyup_read(key);
        }
    }

    /// What the parent has is known.
    fn copyup_read(&mut self, key: usize) {
        let Some(copyup) = self.copyup_list.get_mut(key) else { return };
        copyup.open = false;
        let (slot, object) = (copyup.slot, copyup.object);
        let segments = std::mem::take(&mut copyup.segments);
        if copyup.error.is_some() {
            return self.copyup_over(key);
        }
        let (extents, data) = in_object(&self.image(slot).layout, &segments);
        let last = self.changing(key).last().and_then(|obj| self.objs.get(*obj));
        let needed = !data.is_empty() || last.is_some();
        let (state, keep_map) = match last {
            Some(change) => (change.state_before(), change.keep_map),
            None => (self.image(slot).state_when_filled(), true),
        };
        let Some(copyup) = self.copyup_list.get_mut(key) else { return };
        copyup.extents = extents;
        copyup.data = data;
        if !needed {
            return self.copyup_over(key);
        }
        copyup.stage = Stage::Mapping;
        copyup.left = 1;
        if self.image(slot).map.is_some() {
            self.map_snapshots(key);
            let known = self.image(slot).map.as_ref().and_then(|m| m.get(object));
            // A whole range of the map was changed before, when the change does not keep it.
            if keep_map && known != Some(state) {
                self.add_left(key, 1);
                self.change_map(slot, object, state, None, Then::Copyup(key));
            }
        }
        self.copyup_mapped(key, Ok(()));
    }

    /// Those of the requests that are done with a copyup which change the object.
    fn changing(&self, key: usize) -> Vec<usize> {
        let waiting = self.copyup_list.get(key).map(|c| c.waiting.as_slice()).unwrap_or_default();
        let changes =
            |obj: &usize| self.objs.get(*obj).is_some_and(|o| !matches!(o.work, Work::CopyOnly));
        waiting.iter().copied().filter(changes).collect()
    }

    fn add_left(&mut self, key: usize, more: usize) {
        if let Some(copyup) = self.copyup_list.get_mut(key) {
            copyup.left += more;
        }
    }

    /// The object will be in all snapshots, if it has anything.
    fn map_snapshots(&mut self, key: usize) {
        let Some(copyup) = self.copyup_list.get(key).filter(|c| !c.data.is_empty()) else { return };
        let (slot, object) = (copyup.slot, copyup.object);
        let image = self.image(slot);
        let fast_diff = image.head.has(feature::FAST_DIFF);
        let request = |(i, snap): (usize, &super::state::Snap)| {
            // The first one has the data; to the others nothing has changed.
            let state = if fast_diff && i > 0 { State::Clean } else { State::Exists };
            let input = super::format::map_update(object, object + 1, state as u8, None);
            let map = image.map_object(snap.info.id);
            ObjectOp::new(map).call("rbd", "object_map_update", input).as_write()
        };
        let requests: Vec<_> = image.head.snaps.iter().enumerate().map(request).collect();
        self.add_left(key, requests.len());
        requests.into_iter().for_each(|op| self.send(Route::Copyup(key), op));
    }

    /// One of the object maps is changed.
    pub fn copyup_mapped(&mut self, key: usize, result: Result<(), ClientError>) {
        let Some(copyup) = self.copyup_list.get_mut(key) else { return };
        if let Err(error) = result {
            copyup.error.get_or_insert(error);
        }
        copyup.left -= 1;
        if copyup.left > 0 {
            return;
        }
        if copyup.error.is_some() { self.copyup_over(key) } else { self.fill(key) }
    }

    fn fill(&mut self, key: usize) {
        let Some(copyup) = self.copyup_list.get_mut(key) else { return };
        copyup.stage = Stage::Filling;
        let (slot, object) = (copyup.slot, copyup.object);
        let input = denc::encode(&(&copyup.extents, &copyup.data));
        let has_data = !copyup.data.is_empty();
        let image = self.image(slot);
        let bytes = image.layout.object_bytes();
        let snapc = image.head.snapc.clone();
        let deep = has_data && !snapc.snaps.is_empty();
        let data = image.data(object);
        let start = ObjectOp::new(data.clone()).call("rbd", "sparse_copyup", input).as_write();
        let start = hint(start, bytes);
        let changing = self.changing(key);
        let all = |op| {
            let changes = changing.iter().filter_map(|obj| self.objs.get(*obj));
            changes.fold(op, |op, obj| obj.operations(op, bytes))
        };
        let mut requests: SmallVec<[ObjectOp; 2]> = SmallVec::new();
        if deep {
            requests.push(start.with_snaps(SnapContext::default()));
            if !changing.is_empty() {
                requests.push(all(ObjectOp::new(data)).with_snaps(snapc));
            }
        } else {
            requests.push(all(start).with_snaps(snapc));
        }
        if let Some(copyup) = self.copyup_list.get_mut(key) {
            copyup.left = requests.len();
        }
        requests.into_iter().for_each(|op| self.send(Route::Copyup(key), op));
    }

    /// The answer to one of the requests of a copyup.
    pub fn on_copyup(&mut self, key: usize, answer: Result<OpReply, ClientError>) {
        let Some(copyup) = self.copyup_list.get_mut(key) else { return };
        if copyup.stage == Stage::Mapping {
            let slot = copyup.slot;
            return match answer {
                Err(e) if e.errno == Errno::EBLOCKLISTED => self.copyup_mapped(key, Err(e)),
                // A snapshot without an object map, or that was removed in the meantime.
                Err(e) if e.errno != Errno::ENOENT => {
                    tracing::warn!(error = %e, "the object map of a snapshot cannot be changed");
                    self.spawn_for(slot, move |desk| async move {
                        let marked = invalidate_snapshot_maps(&desk, slot).await;
                        desk.with(|s| s.copyup_mapped(key, marked));
                    });
                }
                _ => self.copyup_mapped(key, Ok(())),
            };
        }
        if let Err(error) = answer
            && !error.is_no_object()
        {
            copyup.error.get_or_insert(error);
        }
        copyup.left -= 1;
        if copyup.left == 0 {
            self.copyup_over(key);
        }
    }

    fn copyup_over(&mut self, key: usize) {
        let Some(copyup) = self.copyup_list.try_remove(key) else { return };
        self.image_mut(copyup.slot).copyups.remove(&copyup.object);
        self.touched = true;
        for obj in copyup.waiting {
            match &copyup.error {
                Some(error) => self.end_object(obj, Err(error.clone())),
                None => self.written(obj),
            }
        }
        for obj in copyup.again {
            match &copyup.error {
                Some(error) => self.end_object(obj, Err(error.clone())),
                None => self.change_object(obj),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::SnapKind;
    use super::super::maintain::{Change, run};
    use super::super::stage::Stage;
    use super::*;

    /// `rbd du` would count all of a flattened image as written since its last snapshot.
    #[test]
    fn an_object_that_was_only_filled_is_as_it_was_at_the_last_snapshot() {
        let mut stage = Stage::new();
        stage.has_snap(SnapKind::User, "s", 0);
        let slot = stage.locked();
        stage.be_clone(slot);
        stage.answers.push(("READ", Bytes::from_static(b"of the parent")));
        stage.script(|desk| async move { run(&desk, slot, Change::Flatten).await });
        for (map, state) in
            [("rbd_object_map.1.", State::Exists), ("rbd_object_map.1: ", State::Clean)]
        {
            let asked = stage.until(map);
            // Of object 0.
            let input = super::super::format::map_update(0, 1, state as u8, None);
            assert!(asked.says(std::str::from_utf8(&input).unwrap()), "{asked:?}");
            stage.ok(asked);
        }
    }

    #[test]
    fn zeros_are_left_out() {
        let layout = Layout::new(12, 4096, 1).unwrap();
        let at = 5 * 4096;
        let segments = [
            (at + 100, Bytes::from_static(&[0; 50])),
            (at + 200, Bytes::from_static(b"xyz")),
            (at, Bytes::from_static(b"abc")),
        ];
        let (extents, data) = in_object(&layout, &segments);
        assert_eq!(extents, BTreeMap::from([(0, 3), (200, 3)]));
        assert_eq!(data, "abcxyz");
        assert!(is_zero(&[0; 17]) && !is_zero(&[0, 0, 0, 0, 0, 0, 0, 0, 1]));
    }
}

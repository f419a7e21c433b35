//! Which objects of an image exist, as its lock's holder knows it (`librbd/ObjectMap.cc`).
//!
//! Two bits an object, four objects a byte, the first in the highest bits. The same bytes lie in
//! object `rbd_object_map.<id>`, which is changed before this copy is.

use denc::{Decode, DecodeError, Decoder};

/// What is known of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It does not exist.
    Nonexistent = 0,
    /// It may exist, and was written since the last snapshot.
    Exists = 1,
    /// It is being removed.
    Pending = 2,
    /// It exists and is as it was at the last snapshot.
    Clean = 3,
}

impl State {
    fn of(bits: u8) -> State {
        match bits & 3 {
            0 => State::Nonexistent,
            1 => State::Exists,
            2 => State::Pending,
            _ => State::Clean,
        }
    }
}

/// States of all objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMap {
    len: u64,
    data: Vec<u8>,
}

fn place(object: u64) -> (usize, u32) {
    (usize::try_from(object / 4).unwrap_or(usize::MAX), (3 - (object % 4) as u32) * 2)
}

impl ObjectMap {
    /// Number of objects.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// What is known of an object; `None` of one beyond the end.
    pub fn get(&self, object: u64) -> Option<State> {
        let (byte, shift) = place(object);
        let byte = self.data.get(byte).filter(|_| object < self.len)?;
        Some(State::of(byte >> shift))
    }

    /// Notes what is known of an object.
    pub fn set(&mut self, object: u64, state: State) {
        let (byte, shift) = place(object);
        if let Some(byte) = self.data.get_mut(byte).filter(|_| object < self.len) {
            *byte = *byte & !(3 << shift) | (state as u8) << shift;
        }
    }

    /// Whether an object may exist; one that the map is too short for may.
    pub fn may_exist(&self, object: u64) -> bool {
        self.get(object) != Some(State::Nonexistent)
    }

    /// Whether the map must be changed before an object becomes `new`
    /// (`ObjectMap::update_required`). What does not exist does not become pending, and only what
    /// is pending becomes nonexistent.
    pub fn must_change(&self, object: u64, new: State) -> bool {
        match (self.get(object), new) {
            (None, _) => false,
            (Some(old), new) if old == new => false,
            (Some(State::Nonexistent), State::Pending) => false,
            (Some(old), State::Nonexistent) => old == State::Pending,
            _ => true,
        }
    }

    /// Changes objects of a range, if they are `current` when that is given; what is clean exists.
    pub fn change(&mut self, start: u64, end: u64, new: State, current: Option<State>) {
        for object in start..end.min(self.len) {
            let matches = match (self.get(object), current) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(State::Clean), Some(State::Exists)) => true,
                (Some(old), Some(current)) => old == current,
            };
            if matches {
                self.set(object, new);
            }
        }
    }

    /// Drops objects at the end, or adds some that do not exist.
    pub fn resize(&mut self, len: u64) {
        let bytes = usize::try_from(len.div_ceil(4)).unwrap_or(usize::MAX);
        for object in len..self.len.min(len.next_multiple_of(4)) {
            self.set(object, State::Nonexistent);
        }
        self.data.resize(bytes, 0);
        self.len = len;
    }

    /// What exists is from now on as it was at the last snapshot.
    pub fn snapshot(&mut self) {
        self.change(0, self.len, State::Clean, Some(State::Exists));
    }

    /// The newest snapshot was removed: what was written before it counts as written since the one
    /// before.
    pub fn forget_snapshot(&mut self, snap: &ObjectMap) {
        for object in 0..self.len {
            let clean = self.get(object) == Some(State::Clean);
            if clean && matches!(snap.get(object), None | Some(State::Exists)) {
                self.set(object, State::Exists);
            }
        }
    }
}

impl Decode for ObjectMap {
    /// What `object_map_load` answers; checksums are verified by the OSD.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let header = d.take_bytes()?;
        let len: u64 = Decoder::new(&header).section(1, |d, _| d.get())?;
        let bytes = usize::try_from(len.div_ceil(4)).unwrap_or(usize::MAX);
        let data = d.take_slice(bytes)?.to_vec();
        Ok(ObjectMap { len, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Clean, Exists, Nonexistent, Pending};

    fn of(states: &[State]) -> ObjectMap {
        let mut map = ObjectMap { len: 0, data: Vec::new() };
        map.resize(states.len() as u64);
        states.iter().enumerate().for_each(|(i, s)| map.set(i as u64, *s));
        map
    }

    #[test]
    fn changes_are_made_only_when_needed() {
        let map = of(&[Nonexistent, Exists, Pending, Clean]);
        let needed = |new| (0..5).map(|o| map.must_change(o, new)).collect::<Vec<_>>();
        assert_eq!(needed(Exists), [true, false, true, true, false]);
        assert_eq!(needed(Pending), [false, true, false, true, false]);
        assert_eq!(needed(Nonexistent), [false, false, true, false, false]);
        assert!(map.may_exist(4) && map.may_exist(2) && !map.may_exist(0));
    }

    #[test]
    fn snapshots_make_clean_and_dirty() {
        let mut map = of(&[Exists, Nonexistent, Exists]);
        let snap = map.clone();
        map.snapshot();
        assert_eq!(map, of(&[Clean, Nonexistent, Clean]));
        map.set(1, Exists);
        map.resize(5);
        map.set(4, Clean);
        map.forget_snapshot(&snap);
        assert_eq!(map, of(&[Exists, Exists, Exists, Nonexistent, Exists]));
        map.change(0, 5, Pending, Some(Exists));
        map.resize(2);
        map.resize(3);
        assert_eq!(map, of(&[Pending, Pending, Nonexistent]));
    }

    #[test]
    fn it_is_read_as_osds_answer() {
        let bytes = [14, 0, 0, 0, 1, 1, 8, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0x1b, 0x10, 0, 0, 0, 0];
        let map: ObjectMap = denc::decode(&bytes.to_vec().into()).unwrap();
        assert_eq!(map, of(&[Nonexistent, Exists, Pending, Clean, Nonexistent, Exists]));
        assert!(denc::decode::<ObjectMap>(&bytes[..19].to_vec().into()).is_err());
    }
}

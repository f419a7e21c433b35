//! What one object is, to the checker: slots with tags instead of bytes.
//!
//! An object's data are *slots* of a fixed length, drawn by the seed. Each write fills whole slots
//! with bytes made from a tag that no other write has, so that what a read returns tells which write
//! each slot is from. Slots need not be aligned to blocks. Attributes and omap values are tags too.

use crate::linear::Spec;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::rc::Rc;
use types::Errno;

/// What a write left in a slot; 0: zeros.
pub type Tag = u32;
/// A snapshot's id.
pub type Snap = u64;

/// A unit of slot content is eight bytes: mark, tag, number, mark.
const UNIT: usize = 8;
const FIRST: u8 = 0xd7;
const LAST: u8 = 0x7d;

/// The bytes of a slot.
pub fn fill(tag: Tag, slot_bytes: usize, out: &mut Vec<u8>) {
    if tag == 0 {
        out.resize(out.len() + slot_bytes, 0);
        return;
    }
    let t = tag.to_le_bytes();
    for unit in 0..slot_bytes / UNIT {
        let n = (unit as u16).to_le_bytes();
        out.extend_from_slice(&[FIRST, t[0], t[1], t[2], t[3], n[0], n[1], LAST]);
    }
}

/// Whether a block of a disk holds slots, as far as one can see: what faults may hit.
pub fn looks_like_slots(block: &[u8]) -> bool {
    block.chunks_exact(UNIT).all(|u| matches!(u, [FIRST, .., LAST] | [0, 0, 0, 0, 0, 0, 0, 0]))
        && block.first() == Some(&FIRST)
}

/// The tags in an object's bytes.
///
/// # Errors
/// What is wrong, when the bytes are not whole slots that somebody wrote.
pub fn tags_of(data: &[u8], slot_bytes: usize) -> Result<Vec<Tag>, String> {
    if !data.len().is_multiple_of(slot_bytes) {
        return Err(format!("{} bytes are no whole slots", data.len()));
    }
    let mut good = Vec::with_capacity(slot_bytes);
    let mut tags = Vec::new();
    for (i, slot) in data.chunks_exact(slot_bytes).enumerate() {
        let tag = match slot {
            [FIRST, a, b, c, d, ..] => Tag::from_le_bytes([*a, *b, *c, *d]),
            _ => 0,
        };
        good.clear();
        fill(tag, slot_bytes, &mut good);
        if let Some(at) = good.iter().zip(slot).position(|(a, b)| a != b) {
            let around: Vec<u8> = slot.iter().skip(at / UNIT * UNIT).take(UNIT).copied().collect();
            return Err(format!("slot {i} of tag {tag} is torn at byte {at}: {around:x?}"));
        }
        tags.push(tag);
    }
    Ok(tags)
}

/// An object's content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Body {
    /// Data.
    pub slots: Vec<Tag>,
    /// Omap values by key.
    pub omap: BTreeMap<u8, Tag>,
    /// Attributes by name.
    pub xattrs: BTreeMap<u8, Tag>,
}

/// Requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Everything, of the head or at a snapshot.
    Read(Option<Snap>),
    /// So many slots from one on.
    Write(u8, u8, Tag),
    /// These are all.
    WriteFull(u8, Tag),
    /// Behind the last.
    Append(Tag),
    /// So many are left.
    Truncate(u8),
    /// So many from one on become zeros.
    Zero(u8, u8),
    /// The object goes.
    Remove,
    /// It is made, unless it is there.
    CreateExclusive,
    /// One omap value.
    OmapSet(u8, Tag),
    /// One less.
    OmapRemove(u8),
    /// One attribute.
    SetXattr(u8, Tag),
    /// It becomes what it was.
    Rollback(Snap),
    /// It becomes what it was, by COPY_FROM: the content goes out and comes back.
    CopySnap(Snap),
    /// Data and omap in one request.
    WriteWithOmap(u8, u8, Tag, u8),
    /// Whether there is one, by a listing of all.
    List,
    /// Nobody's request: these snapshots were removed, and what only they see is trimmed, some time.
    Trim(Rc<Vec<Snap>>),
}

/// Answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of a write that was done.
    Done,
    /// It failed.
    Failed(Errno),
    /// What a read saw.
    Saw(Rc<Body>),
    /// Whether it was listed.
    Listed(bool),
}

/// A request, who sent it with what, and its answer.
#[derive(Clone, Debug)]
pub struct Op {
    /// The client.
    pub client: usize,
    /// What.
    pub action: Action,
    /// The snapshots its client knew, newest first; and the newest there ever was.
    pub snaps: Rc<Vec<Snap>>,
    /// The newest snapshot there ever was.
    pub seq: Snap,
    /// `None`: it was not answered.
    pub answer: Option<Answer>,
}

/// A clone: an older content, and the snapshots that see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CloneOf {
    id: Snap,
    snaps: Vec<Snap>,
    body: Rc<Body>,
}

/// An object with its clones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    head: Option<Rc<Body>>,
    /// The newest snapshot that a write knew of.
    seq: Snap,
    clones: Vec<CloneOf>,
}

impl State {
    /// What a reader sees.
    pub fn at(&self, snap: Option<Snap>) -> Option<Rc<Body>> {
        let Some(snap) = snap.filter(|s| *s <= self.seq) else { return self.head.clone() };
        let clone = self.clones.iter().find(|c| c.id >= snap)?;
        clone.snaps.contains(&snap).then(|| clone.body.clone())
    }

    /// Before a change: keeps the head for the snapshots taken since the last one.
    fn keep_clone(&mut self, op: &Op) {
        let newest = op.snaps.first().copied().unwrap_or(0);
        if let Some(body) = self.head.clone().filter(|_| newest > self.seq) {
            let snaps = op.snaps.iter().copied().filter(|s| *s > self.seq).collect();
            self.clones.push(CloneOf { id: op.seq, snaps, body });
        }
        self.seq = self.seq.max(op.seq);
    }

    /// Does a write, and says how it ends. `None`: nothing changes.
    fn change(&mut self, op: &Op) -> Result<(), Errno> {
        let old = self.head.clone();
        let mut body = old.as_deref().cloned().unwrap_or_default();
        match &op.action {
            Action::Read(_) | Action::Trim(_) | Action::List => return Ok(()),
            Action::Write(at, n, tag) => body.put(*at, *n, *tag),
            Action::WriteFull(n, tag) => body.slots = vec![*tag; usize::from(*n)],
            Action::Append(tag) => body.slots.push(*tag),
            Action::Truncate(_) | Action::Zero(..) if old.is_none() => return Ok(()),
            Action::Truncate(n) => body.slots.resize(usize::from(*n), 0),
            Action::Zero(at, n) => {
                let (from, to) = (usize::from(*at), usize::from(*at) + usize::from(*n));
                if from >= body.slots.len() {
                    return Ok(());
                }
                if to < body.slots.len() {
                    body.put(*at, *n, 0);
                } else {
                    // Up to the end, ZERO becomes TRUNCATE (PrimaryLogPG.cc).
                    body.slots.truncate(from);
                }
            }
            Action::Remove if old.is_none() => return Err(Errno::ENOENT),
            Action::OmapRemove(_) if old.is_none() => return Err(Errno::ENOENT),
            Action::Remove => {}
            Action::CreateExclusive if old.is_some() => return Err(Errno::EEXIST),
            Action::CreateExclusive => {}
            Action::OmapSet(key, tag) => drop(body.omap.insert(*key, *tag)),
            Action::OmapRemove(key) => drop(body.omap.remove(key)),
            Action::SetXattr(key, tag) => drop(body.xattrs.insert(*key, *tag)),
            Action::Rollback(snap) => {
                let then = self.at(Some(*snap));
                if then.is_none() && old.is_none() {
                    return Ok(());
                }
                self.keep_clone(op);
                self.head = then;
                self.forget_if_gone();
                return Ok(());
            }
            Action::CopySnap(snap) => {
                let then = self.at(Some(*snap)).ok_or(Errno::ENOENT)?;
                self.keep_clone(op);
                self.head = Some(then);
                return Ok(());
            }
            Action::WriteWithOmap(at, n, tag, key) => {
                body.put(*at, *n, *tag);
                body.omap.insert(*key, *tag);
            }
        }
        self.keep_clone(op);
        self.head = (op.action != Action::Remove).then(|| Rc::new(body));
        self.forget_if_gone();
        Ok(())
    }

    /// What is left when the clones that only `removed` snapshots see are gone, if that makes a
    /// difference: with the last clone an object without head goes, too.
    fn trimmed(&self, removed: &[Snap]) -> Option<State> {
        let unseen = |c: &CloneOf| c.snaps.iter().all(|s| removed.contains(s));
        let goes = self.head.is_none() && !self.clones.is_empty() && self.clones.iter().all(unseen);
        goes.then(State::default)
    }

    /// An object without head and clones is nothing, and remembers nothing.
    fn forget_if_gone(&mut self) {
        if self.head.is_none() && self.clones.is_empty() {
            self.seq = 0;
        }
    }
}

impl Body {
    fn put(&mut self, at: u8, n: u8, tag: Tag) {
        let (from, to) = (usize::from(at), usize::from(at) + usize::from(n));
        if self.slots.len() < to {
            self.slots.resize(to, 0);
        }
        self.slots[from..to].fill(tag);
    }
}

/// An object's sequential truth.
pub struct Object;

impl Spec for Object {
    type State = State;
    type Op = Op;

    fn step(state: &State, op: &Op) -> Option<State> {
        if let Action::Read(snap) = &op.action {
            let right = match (&op.answer, state.at(*snap)) {
                (None, _) => true,
                (Some(Answer::Saw(saw)), Some(is)) => **saw == *is,
                (Some(Answer::Failed(why)), None) => *why == Errno::ENOENT,
                _ => false,
            };
            return right.then(|| state.clone());
        }
        if op.action == Action::List {
            // One of which there are only clones may be listed.
            let is_there = state.head.is_some();
            let may_be = is_there || !state.clones.is_empty();
            let right = match op.answer {
                Some(Answer::Listed(true)) => may_be,
                Some(Answer::Listed(false)) => !is_there,
                _ => false,
            };
            return right.then(|| state.clone());
        }
        if let Action::Trim(removed) = &op.action {
            return state.trimmed(removed);
        }
        let mut after = state.clone();
        let result = after.change(op);
        let right = match (&op.answer, result) {
            (None, _) | (Some(Answer::Done), Ok(())) => true,
            (Some(Answer::Failed(why)), Err(wanted)) => *why == wanted,
            _ => false,
        };
        right.then_some(after)
    }

    fn only_looks(op: &Op) -> bool {
        matches!(op.action, Action::Read(_) | Action::List)
            || matches!(op.answer, Some(Answer::Failed(_)))
    }
}

/// An omap key or an attribute's name.
pub fn key_name(key: u8) -> String {
    format!("key{key}")
}

/// A key from its name.
pub fn key_of(name: &[u8]) -> Option<u8> {
    std::str::from_utf8(name).ok()?.strip_prefix("key")?.parse().ok()
}

/// A tag as a value: long enough that some values leave the row of their object.
pub fn value_of(tag: Tag) -> Bytes {
    let len = 4 + (tag as usize * 7919) % 2500;
    let mut value = tag.to_le_bytes().to_vec();
    value.resize(len, tag as u8);
    value.into()
}

/// The tag of a value.
pub fn tag_of_value(value: &[u8]) -> Option<Tag> {
    let tag = Tag::from_le_bytes(value.get(..4)?.try_into().ok()?);
    (value_of(tag) == value).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::{Record, Verdict, check};

    fn op(action: Action, snaps: &[Snap], answer: Answer) -> Op {
        let seq = snaps.first().copied().unwrap_or(0);
        Op { client: 0, action, snaps: Rc::new(snaps.to_vec()), seq, answer: Some(answer) }
    }

    fn saw(slots: &[Tag]) -> Answer {
        Answer::Saw(Rc::new(Body { slots: slots.to_vec(), ..Body::default() }))
    }

    fn in_order(ops: Vec<Op>) -> Verdict {
        let record = |(i, op): (usize, Op)| {
            let at = i as u64 * 2;
            let answered = op.answer.is_some().then_some(at + 2);
            Record { invoked: at + 1, answered, op }
        };
        check::<Object>(
            State::default(),
            &ops.into_iter().enumerate().map(record).collect::<Vec<_>>(),
        )
    }

    fn good(ops: Vec<Op>) -> bool {
        in_order(ops) == Verdict::Linearizable
    }

    const ENOENT: Answer = Answer::Failed(Errno::ENOENT);

    #[test]
    fn a_snapshot_shows_what_was_and_a_skipped_clone_is_seen() {
        let write = |tag, snaps: &[Snap]| op(Action::WriteFull(1, tag), snaps, Answer::Done);
        let read = |snap, answer| op(Action::Read(snap), &[], answer);
        let past = [write(1, &[]), write(2, &[5]), write(3, &[5])];
        let with = |more: &[Op]| past.iter().chain(more).cloned().collect::<Vec<_>>();
        assert!(good(with(&[read(Some(5), saw(&[1])), read(None, saw(&[3]))])));
        assert!(!good(with(&[read(Some(5), saw(&[2]))])));
        assert!(!good(with(&[read(Some(5), ENOENT)])));
        assert!(good(with(&[op(Action::Rollback(5), &[5], Answer::Done), read(None, saw(&[1])),])));
        assert!(!good(with(
            &[op(Action::Rollback(5), &[5], Answer::Done), read(None, saw(&[3])),]
        )));
        let copy = |snap, answer| op(Action::CopySnap(snap), &[5], answer);
        assert!(good(with(&[copy(5, Answer::Done), read(None, saw(&[1]))])));
        assert!(!good(with(&[copy(5, Answer::Done), read(None, saw(&[3]))])));
        assert!(!good(with(&[copy(5, ENOENT)])) && good(vec![copy(5, ENOENT)]));
        // Born after the snapshot.
        assert!(good(vec![write(1, &[5]), read(Some(5), ENOENT), read(Some(6), saw(&[1]))]));
    }

    #[test]
    fn an_object_that_was_trimmed_away_knows_no_snapshots() {
        let write = |tag, snaps: &[Snap]| op(Action::WriteFull(1, tag), snaps, Answer::Done);
        let read = |snap, answer| op(Action::Read(snap), &[], answer);
        let trim =
            |snap| Op { answer: None, ..op(Action::Trim(Rc::new(vec![snap])), &[], Answer::Done) };
        let remove = op(Action::Remove, &[5], Answer::Done);
        let story = |trimmed, seen| {
            let past = [write(1, &[]), write(2, &[5]), remove.clone(), trim(trimmed)];
            good(past.into_iter().chain([write(3, &[]), read(Some(5), seen)]).collect())
        };
        assert!(story(5, saw(&[3])), "it is anew, and younger than 5 to those who ask");
        assert!(story(5, saw(&[1])), "it may be trimmed later");
        assert!(!story(4, saw(&[3])) && !story(4, ENOENT), "5 is there");
    }

    #[test]
    fn a_request_done_twice_and_a_removal_undone_are_seen() {
        let append = op(Action::Append(4), &[], Answer::Done);
        let read = |answer| op(Action::Read(None), &[], answer);
        assert!(good(vec![append.clone(), read(saw(&[4]))]));
        assert!(!good(vec![append.clone(), read(saw(&[4, 4]))]));
        let remove = op(Action::Remove, &[], Answer::Done);
        assert!(good(vec![append.clone(), remove.clone(), read(ENOENT)]));
        assert!(!good(vec![append.clone(), remove.clone(), read(saw(&[4]))]));
        assert!(!good(vec![append.clone(), read(ENOENT)]));
        assert!(!good(vec![append, remove.clone(), remove]));
    }

    #[test]
    fn bytes_that_nobody_wrote_are_no_slots() {
        let mut data = Vec::new();
        for tag in [0, 77, 0x1234_5678] {
            fill(tag, 40, &mut data);
        }
        assert_eq!(tags_of(&data, 40).unwrap(), [0, 77, 0x1234_5678]);
        data[45] ^= 1;
        assert!(tags_of(&data, 40).is_err());
        assert!(tags_of(&data[..60], 40).is_err());
        assert_eq!(tag_of_value(&value_of(9)), Some(9));
        assert_eq!(tag_of_value(&[9, 0, 0, 0]), None);
    }
}

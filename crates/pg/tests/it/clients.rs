//! The clients' side of the small world: what they did, what they were told, and so what has to be there.

use crate::state::{Objects, SnapSet};
use crate::world::{OBJECTS, object};
use crate::writes::{Shown, Snaps, Wish};
use std::collections::BTreeMap;
use types::*;

/// A clone, as it has to be.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    value: u64,
    snaps: SnapSet,
}

/// An object with its clones, as it has to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Whole {
    value: Option<u64>,
    seq: SnapId,
    clones: BTreeMap<SnapId, Kept>,
}

impl Whole {
    fn is_nothing(&self) -> bool {
        self.value.is_none() && self.clones.is_empty()
    }

    /// What a snapshot shows.
    fn at(&self, snap: SnapId) -> Option<u64> {
        if snap > self.seq {
            return self.value;
        }
        self.clones.values().find(|c| c.snaps.contains(&snap)).map(|c| c.value)
    }

    /// After a write.
    fn after(&self, wish: &Wish, snaps: &Snaps) -> Self {
        let mut whole = self.clone();
        if let Wish::Trim(id) = wish {
            let clone = whole.clones.get_mut(id).expect("it has the clone");
            clone.snaps.retain(|snap| snaps.live.contains(snap));
            whole.clones.retain(|_, clone| !clone.snaps.is_empty());
        } else {
            let taken: SnapSet = snaps.live.iter().copied().filter(|s| *s > self.seq).collect();
            if let Some(value) = self.value.filter(|_| !taken.is_empty()) {
                whole.clones.insert(snaps.seq, Kept { value, snaps: taken });
            }
            whole.seq = self.seq.max(snaps.seq);
            whole.value = match wish {
                Wish::Put(value) => Some(*value),
                Wish::RollBack(snap) => self.at(*snap),
                Wish::Delete | Wish::Trim(_) => None,
            };
        }
        if whole.is_nothing() { Whole::default() } else { whole }
    }

    /// What a copy has of an object.
    fn of(objects: &Objects, head: &HObject) -> Self {
        let Some(state) = objects.get(head) else { return Whole::default() };
        let kept = |(id, snaps): (&SnapId, &SnapSet)| {
            let clone = objects.get(&head.at_snap(*id));
            let clone = clone.unwrap_or_else(|| panic!("{head} lacks its clone {id}"));
            assert_eq!(*snaps, clone.snaps, "{head} and its clone {id} do not agree");
            (*id, Kept { value: clone.value.expect("a clone has data"), snaps: snaps.clone() })
        };
        let clones = state.clones.iter().map(kept).collect();
        Whole { value: state.value, seq: state.seq, clones }
    }
}

/// All clients.
#[derive(Default)]
pub struct Clients {
    pub snaps: Snaps,
    /// Per object: the last acknowledged state, and every one tried since.
    allowed: BTreeMap<u32, Vec<(Eversion, Whole)>>,
    /// Every state that ever was tried.
    tried: BTreeMap<Eversion, Whole>,
    /// Per object: the newest version that a client has heard of.
    heard: BTreeMap<u32, Eversion>,
    /// Versions that are the same as these.
    backs: BTreeMap<Eversion, Eversion>,
    /// Clones, and the versions of the heads of which they were made.
    made_of: BTreeMap<(u32, SnapId), Eversion>,
    pub acked: u64,
    pub acked_again: u64,
    pub clones: u64,
    pub trims: u64,
    /// How often a client looked at a clone.
    pub looked_at_clones: u64,
}

impl Clients {
    /// A snapshot is taken, or removed.
    pub fn change_snaps(&mut self, rng: &mut fastrand::Rng) {
        const AT_MOST: usize = 4;
        if self.snaps.live.len() < AT_MOST && rng.bool() {
            self.snaps.seq.0 += 1;
            self.snaps.live.insert(self.snaps.seq);
        } else if let Some(snap) = rng.choice(self.snaps.live.iter().copied().collect::<Vec<_>>()) {
            self.snaps.live.remove(&snap);
        }
    }

    fn allowed(&mut self, n: u32) -> &mut Vec<(Eversion, Whole)> {
        self.allowed.entry(n).or_insert_with(|| vec![(Eversion::ZERO, Whole::default())])
    }

    /// What an object was in a version; zero: when it was not there.
    fn whole(&self, version: Eversion) -> Whole {
        self.tried.get(&version).cloned().unwrap_or_default()
    }

    /// A primary took a write, made upon the version `base`.
    pub fn wrote(&mut self, n: u32, wish: &Wish, base: Eversion, version: Eversion) {
        let before = self.whole(base);
        let after = before.after(wish, &self.snaps);
        let made = after.clones.contains_key(&self.snaps.seq);
        if made && !before.clones.contains_key(&self.snaps.seq) {
            self.made_of.insert((n, self.snaps.seq), base);
            self.clones += 1;
        }
        self.trims += u64::from(matches!(wish, Wish::Trim(_)));
        self.tries(n, version, after);
    }

    /// A primary took an object back.
    pub fn went_back(&mut self, n: u32, to: Eversion, version: Eversion) {
        let whole = self.whole(to);
        let is_allowed = self.allowed(n).iter().any(|(_, w)| *w == whole);
        assert!(is_allowed, "o{n} goes back to {to}, {whole:?}: {:?}", self.allowed[&n]);
        self.backs.insert(version, to);
        self.tries(n, version, whole);
    }

    fn tries(&mut self, n: u32, version: Eversion, whole: Whole) {
        self.tried.insert(version, whole.clone());
        self.allowed(n).push((version, whole));
    }

    pub fn acknowledged(&mut self, n: u32, version: Eversion) {
        self.acked += 1;
        self.hear(n, version);
        let allowed = self.allowed(n);
        let at = allowed.iter().position(|(v, _)| *v == version);
        allowed.drain(..at.expect("acks come in order"));
    }

    /// A write of an object that nobody was told of.
    pub fn unanswered(&mut self, n: u32, rng: &mut fastrand::Rng) -> Option<Eversion> {
        let rest = self.allowed(n).iter().skip(1).map(|(v, _)| *v).collect::<Vec<_>>();
        rng.choice(rest)
    }

    fn hear(&mut self, n: u32, mut version: Eversion) {
        while let Some(to) = self.backs.get(&version) {
            version = *to;
        }
        let heard = self.heard.entry(n).or_default();
        *heard = version.max(*heard);
    }

    /// A client looks at an object, or sends its last write again. `fresh`: nobody else may serve it by now.
    pub fn saw(&mut self, n: u32, snap: SnapId, shown: &Shown, fresh: bool) {
        let is_it = |whole: &Whole| match snap {
            SnapId::HEAD => whole.value == shown.value,
            snap => whole.at(snap) == shown.value,
        };
        let whole = self.whole(shown.version.unwrap_or_default());
        assert!(is_it(&whole), "o{n} at {snap} is {shown:?}, and must be {whole:?}");
        if fresh {
            let same = |v: &Eversion| shown.version.is_none_or(|shown| shown == *v);
            let allowed = self.allowed(n);
            let is_new = allowed.iter().any(|(v, whole)| same(v) && is_it(whole));
            assert!(is_new, "o{n} at {snap} is {shown:?}, not of {allowed:?}");
        }
        let Some(version) = shown.version else { return };
        let clone = whole.clones.iter().find(|(_, c)| c.snaps.contains(&snap));
        match clone {
            // That tells no more than what the head was.
            Some((id, _)) => {
                self.looked_at_clones += 1;
                self.hear(n, self.made_of[&(n, *id)]);
            }
            None => self.hear(n, version),
        }
    }

    /// What a client has heard of an object.
    pub fn heard_of(&self, n: u32) -> Eversion {
        self.heard.get(&n).copied().unwrap_or_default()
    }

    /// In the end.
    pub fn check(&self, seed: u64, objects: &Objects) {
        let mut known = 0;
        for n in 0..OBJECTS {
            let whole = Whole::of(objects, &object(n));
            known += whole.clones.len() + usize::from(!whole.is_nothing());
            let nothing = vec![(Eversion::ZERO, Whole::default())];
            let allowed = self.allowed.get(&n).unwrap_or(&nothing);
            let is_allowed = allowed.iter().any(|(_, w)| *w == whole);
            assert!(is_allowed, "seed {seed}: o{n} is {whole:?}, not of {allowed:?}");
        }
        assert_eq!(known, objects.len(), "seed {seed}: clones without a head: {objects:?}");
    }
}

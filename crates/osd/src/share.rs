//! What versions of an object share on its way between copies: a clone with the one before it, the head with
//! the newest clone. Who is brought a version takes that, by reference, from another one that it has, and is
//! sent the rest, so that it neither travels nor takes its space once more.
//!
//! What is shared is known in two ways:
//!
//! * the [`SnapSet`] says what a clone has in common with the next version. It counts only where the blocks in
//!   our own store say nothing else: what is wrong in it would make a copy that has other bytes with the right
//!   checksums;
//! * a copy that misses a clone and the head still has the head as it was before. The log says what was written
//!   since then, until the clone was made. (See `pg::clones`.)
//!
//! The first part names that other version and what is taken from it. It is never the last one, so that it goes
//! into an object of its own: the receiver may have to look on the disk first whether it has that version as
//! it is named, and nothing that replaces an object may come later than in its turn. If it has not, it asks for
//! the whole.
//!
//! A copy that may have been damaged is brought whole: what is shared may be damaged as well.

use crate::daemon::{Daemon, Waiter};
use crate::host::{PgHost, Then};
use crate::object::{CloneState, ObjectMeta, Ranges, SNAPSET_ATTR, SnapSet};
use io::{BLOCK_BYTES, Effects};
use peer::Push;
use pg::{MissingItem, Pg};
use std::collections::BTreeMap;
use store::{Miss, ObjectStat, ReadSet, Store, StoreError};
use types::testing::{Bug, Probe, hit, planted};
use types::{Eversion, HObject, OsdId, PgId, SnapId};

/// Ranges of an object that are taken from another version: what is in more of them is sent.
const MAX_SHARED_RANGES: usize = 4096;

/// Parts that wait until it is known whether what they are made upon is here.
pub(crate) type Waiting = BTreeMap<(OsdId, HObject), Push>;

/// Another version of an object, and what is to be taken from it.
pub(crate) struct Base {
    pub snap: SnapId,
    pub version: Eversion,
    pub shared: Ranges,
}

impl Base {
    fn of(snap: SnapId, version: Eversion, shared: Ranges) -> Option<Self> {
        let shared = shared.inner_blocks(BLOCK_BYTES as u64, MAX_SHARED_RANGES);
        (!shared.is_empty()).then_some(Base { snap, version, shared })
    }
}

/// From which version a copy may take something of `object`. If it lacks the head, too, `head` is the version
/// of that which it has. What is wrong with other versions is no reason not to send this one.
pub(crate) fn base_for(
    store: &Store,
    pg: &Pg,
    to: OsdId,
    object: &HObject,
    head: Eversion,
) -> Result<Option<Base>, Miss> {
    let Some(stat) = store.stat(&object.to_key())? else { return Ok(None) };
    if head > Eversion::ZERO
        && !object.is_head()
        && let Some(changed) = pg.log().changed_before_clone(object, head)
        // Else it has grown perhaps, and what is shared ends where nobody here knows.
        && changed.iter().all(|(offset, len)| offset.saturating_add(*len) < stat.size)
    {
        let mut shared = Ranges::whole(stat.size);
        changed.iter().for_each(|(offset, len)| shared.remove(*offset, *len));
        return Ok(Base::of(SnapId::HEAD, head, shared));
    }
    base_by_snapset(store, pg, to, object)
}

fn base_by_snapset(
    store: &Store,
    pg: &Pg,
    to: OsdId,
    object: &HObject,
) -> Result<Option<Base>, Miss> {
    let Some(set) = store.attr(&object.head().to_key(), SNAPSET_ATTR)? else { return Ok(None) };
    // One that is damaged is named by scrubs.
    let Ok(set) = denc::decode::<SnapSet>(&set) else { return Ok(None) };
    let knows = object.is_head() || set.clones.contains_key(&object.snap);
    let Some((snap, clone)) = set.clones.range(..object.snap).next_back().filter(|_| knows) else {
        return Ok(None);
    };
    let base = object.at_snap(*snap);
    let Some(stat) = store.stat(&base.to_key())? else { return Ok(None) };
    if pg.missing().contains(&base) || pg.is_missed_by(to, &base) {
        return Ok(None);
    }
    let alike = store.alike(&base.to_key(), &object.to_key())?;
    Ok(base_of(*snap, clone, &stat, alike.into_iter().collect()))
}

/// The same of a clone that is here, of whose blocks these are alike.
fn base_of(snap: SnapId, clone: &CloneState, stat: &ObjectStat, alike: Ranges) -> Option<Base> {
    // A record that is damaged is named by scrubs.
    let version = ObjectMeta::decode(&stat.meta).ok()?.version;
    if planted(Bug::SharedTooMuch) {
        return Base::of(snap, version, Ranges::whole(stat.size));
    }
    Base::of(snap, version, clone.overlap.intersection(&alike))
}

impl Daemon {
    /// A part is made upon another version of its object. Gives it back if that is here; if not, the sender is
    /// told, and if it must be looked for, the part waits.
    pub(crate) fn find_base(&mut self, from: OsdId, m: Push, fx: &mut Effects) -> Option<Push> {
        let pgid = m.pgid;
        self.remove_first(pgid, &m.object.head(), fx);
        let host = self.pgs.get(&pgid)?;
        let waits_for = match host.is_settled_for(&m.object.head()) {
            true => match has_base(&self.store, host, &m) {
                Ok(true) => return Some(m),
                Ok(false) => {
                    self.want_whole(from, &m, fx);
                    return None;
                }
                Err(miss) => Some(miss),
            },
            // It may be changed by what waits there.
            false => None,
        };
        hit(Probe::BaseLookedUp);
        let object = m.object.clone();
        let host = self.pgs.get_mut(&pgid)?;
        host.transfers.waiting.insert((from, object.clone()), m);
        match waits_for {
            Some(miss) => self.fetch(miss, Waiter::Base(pgid, from, object), fx),
            None => {
                let empty = host.transaction();
                self.submit(pgid, empty, [Then::Base(pgid, from, object)], fx);
            }
        }
        None
    }

    /// It can be seen now whether that is here which a part is made upon.
    pub(crate) fn go_on_with_base(
        &mut self,
        pgid: PgId,
        from: OsdId,
        object: HObject,
        result: Result<ReadSet, StoreError>,
        fx: &mut Effects,
    ) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let Some(m) = host.transfers.waiting.remove(&(from, object)) else { return };
        match result {
            Ok(_) => self.on_push(from, m, fx),
            Err(why) => {
                tracing::error!("osd.{}: {} is brought whole: {why}", self.cfg.id, m.object);
                self.perf.read_errors += 1;
                self.want_whole(from, &m, fx);
            }
        }
    }
}

/// Whether what a part is made upon is here.
fn has_base(store: &Store, host: &PgHost, m: &Push) -> Result<bool, Miss> {
    let base = m.object.at_snap(m.base_snap);
    let missing = host.pg.missing().get(&base);
    let Some(stat) = store.stat(&base.to_key())? else { return Ok(false) };
    Ok(base != m.object && is_base(m, missing, &stat))
}

/// Whether this is what the part is made upon, with all that it takes from there. It may be an older state of what is
/// missing here, but nothing that is damaged.
fn is_base(m: &Push, missing: Option<&MissingItem>, stat: &ObjectStat) -> bool {
    let counts = missing.is_none_or(|item| item.have == m.base);
    let is_it = ObjectMeta::decode(&stat.meta).is_ok_and(|meta| meta.version == m.base);
    counts && is_it && end_of_shared(&m.shared).is_some_and(|end| end <= stat.size)
}

/// Where ranges end that a sender says are shared, if they are such as it may say.
fn end_of_shared(shared: &[(u64, u64)]) -> Option<u64> {
    let whole = |bytes: &u64| bytes.is_multiple_of(BLOCK_BYTES as u64);
    let of_blocks = shared.iter().all(|(offset, len)| whole(offset) && whole(len));
    let ranges = Ranges::try_from(shared.to_vec()).ok()?;
    (of_blocks && shared.len() <= MAX_SHARED_RANGES).then(|| ranges.end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Epoch;

    #[test]
    fn only_what_is_named_is_built_upon() {
        let at = |n| Eversion::new(Epoch(3), n);
        let object = HObject { snap: SnapId(9), ..HObject::min() };
        let absent = Push::absent(PgId::default(), Epoch(3), Epoch(3), object);
        let part = Push { base: at(5), base_snap: SnapId(4), shared: vec![(0, 8192)], ..absent };
        let stat = |n, size| {
            let meta = ObjectMeta { version: at(n), ..ObjectMeta::default() };
            ObjectStat { size, meta: denc::encode(&meta), has_attrs: false, has_omap: false }
        };
        let is = |missing: Option<MissingItem>, n, size| {
            is_base(&part, missing.as_ref(), &stat(n, size))
        };
        assert!(is(None, 5, 8192));
        assert!(!is(None, 6, 8192), "it is another version");
        assert!(!is(None, 5, 8191), "what is shared is not all there");
        let old = MissingItem::new(at(7), at(5));
        assert!(is(Some(old), 5, 8192), "the head as it was");
        assert!(!is(Some(MissingItem::new(at(5), Eversion::ZERO)), 5, 8192), "it is damaged");
        let odd = [
            vec![(0, 4096), (4096, u64::MAX)],
            vec![(4096, 4096), (0, 4096)],
            vec![(0, 8192), (4096, 4096)],
            vec![(0, 4096), (4097, 4095)],
            vec![(0, 100)],
            (0..=MAX_SHARED_RANGES as u64).map(|i| (i * 8192, 4096)).collect(),
        ];
        for shared in odd {
            let part = Push { shared, ..part.clone() };
            assert!(!is_base(&part, None, &stat(5, u64::MAX)), "{:?}", &part.shared[..1]);
        }
    }

    /// It was taken for one of the version that is sent, which could not be sent then.
    #[test]
    fn upon_a_clone_without_a_record_nothing_is_built() {
        let clone = CloneState { overlap: Ranges::whole(8192), ..CloneState::default() };
        let meta = denc::encode(&ObjectMeta::default());
        let of = |meta| ObjectStat { size: 8192, meta, has_attrs: false, has_omap: false };
        let base = |meta| base_of(SnapId(4), &clone, &of(meta), Ranges::whole(4096));
        assert!(base(meta.clone()).is_some_and(|base| base.shared == Ranges::whole(4096)));
        assert!(base(meta.slice(..meta.len() - 1)).is_none());
    }
}

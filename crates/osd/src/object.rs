//! What the OSD keeps with each object: its version, its watchers, its place among snapshots.

mod encoding;

use denc::{Decode, DecodeError, Encode};
use maps::PgIdExt;
use std::collections::BTreeMap;
use types::{
    AddrVec, ByteString, EntityAddr, EntityName, Eversion, HObject, ObjectKey, PgId, PoolId,
    SnapId, UTime,
};

/// A client's watch, as it is stored with the object so that it survives a change of primary.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct StoredWatch {
    /// The client's name for it.
    pub cookie: u64,
    /// The client.
    pub watcher: EntityName,
    /// Where it watches from.
    pub addr: EntityAddr,
    /// Seconds without a sign of life after which it ends.
    pub timeout_s: u32,
}

/// What the client expects of the object's life (SETALLOCHINT); hints only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct AllocHint {
    /// Bytes it will have.
    pub object_size: u64,
    /// Bytes a write will have.
    pub write_size: u64,
    /// `CEPH_OSD_ALLOC_HINT_FLAG_*`
    pub flags: u32,
}

/// The record kept with every head and clone (Ceph: `object_info_t` and, for heads, what is needed
/// of `SnapSet`). How it is stored: `encoding`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMeta {
    /// The log entry that made this state.
    pub version: Eversion,
    /// The version clients see (`rados_get_last_version`).
    pub user_version: u64,
    /// The client's time of the last write.
    pub mtime: UTime,
    /// The head exists only for its clones; clients see no object.
    pub whiteout: bool,
    /// CephFS: number of the last truncation, and the size it left.
    pub truncate_seq: u32,
    /// See `truncate_seq`.
    pub truncate_size: u64,
    /// Hints.
    pub hint: AllocHint,
    /// Heads: who watches.
    pub watches: Vec<StoredWatch>,
    /// Heads: newest snapshot the object knows of.
    pub snap_seq: SnapId,
    /// Heads: whether there is a [`SnapSet`] beside ([`SNAPSET_ATTR`]).
    pub has_clones: bool,
    /// Clones: the snapshots they serve, newest first.
    pub snaps: Vec<SnapId>,
}

impl ObjectMeta {
    /// Whether the store takes it as a record, with something added later.
    pub fn has_room(&self) -> bool {
        denc::encode(self).len() <= store::MAX_META_BYTES - SPARE_BYTES
    }

    /// Reads the record of an object.
    ///
    /// # Errors
    /// When the bytes are not a record.
    pub fn decode(bytes: &bytes::Bytes) -> Result<Self, DecodeError> {
        denc::decode(bytes)
    }
}

/// What may be added to the record of a head beside watches, at most.
const SPARE_BYTES: usize = 256;

/// Attribute of a head that holds its [`SnapSet`]. Users' attributes begin with `_`.
pub const SNAPSET_ATTR: &[u8] = b"snapset";

/// One clone of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct CloneState {
    /// The snapshots it serves, newest first.
    pub snaps: Vec<SnapId>,
    /// Its size in bytes.
    pub size: u64,
    /// Ranges (offset, length) that are the same in the next newer version.
    pub overlap: Ranges,
}

/// The clones of an object by id, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct SnapSet {
    /// The clones.
    pub clones: BTreeMap<SnapId, CloneState>,
}

/// Where a read at a snapshot finds its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapPlace {
    /// In the head.
    Head,
    /// In this clone.
    Clone(SnapId),
    /// Nowhere: the object did not exist then.
    Nowhere,
}

impl SnapSet {
    /// Which version of the object snapshot `snap` sees; `seq` is the newest snapshot the head knows
    /// of (`PrimaryLogPG.cc: find_object_context`).
    pub fn find(&self, snap: SnapId, seq: SnapId) -> SnapPlace {
        if snap > seq {
            return SnapPlace::Head;
        }
        match self.clones.range(snap..).next() {
            Some((id, clone)) if clone.snaps.contains(&snap) => SnapPlace::Clone(*id),
            _ => SnapPlace::Nowhere,
        }
    }

    /// The newest clone.
    pub fn newest_mut(&mut self) -> Option<(&SnapId, &mut CloneState)> {
        self.clones.iter_mut().next_back()
    }
}

/// The keys of a PG's objects: first, and behind the last.
pub fn key_range(pgid: PgId, pg_num: u32) -> (ObjectKey, ObjectKey) {
    let end = pgid.end_of_objects(pg_num);
    let end = if end.max {
        // The last PG of the pool: up to the next pool, not to the end of everything.
        let next = PoolId(pgid.pool.0.saturating_add(1));
        HObject { pool: next, max: false, ..HObject::min() }
    } else {
        end
    };
    (pgid.first_object().to_key(), end.to_key())
}

/// A set of byte ranges: sorted, not touching, none empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// One range.
    pub fn whole(len: u64) -> Self {
        Ranges(if len == 0 { Vec::new() } else { vec![(0, len)] })
    }

    /// Offset and length of each range.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().copied()
    }

    /// Where the last one ends.
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, |(offset, len)| offset + len)
    }

    /// Bytes in all ranges.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, len)| len).sum()
    }

    /// Adds a range.
    pub fn insert(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (mut from, mut to) = (offset, offset.saturating_add(len));
        self.0.retain(|&(o, l)| {
            let touches = o <= to && o + l >= from;
            if touches {
                from = from.min(o);
                to = to.max(o + l);
            }
            !touches
        });
        let at = self.0.partition_point(|(o, _)| *o < from);
        self.0.insert(at, (from, to - from));
    }

    /// Takes a range out.
    pub fn remove(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        if len == 0 || !self.0.iter().any(|(o, l)| *o < end && o + l > offset) {
            return;
        }
        let mut out = Vec::with_capacity(self.0.len() + 1);
        for &(o, l) in &self.0 {
            if o + l <= offset || o >= end {
                out.push((o, l));
                continue;
            }
            if o < offset {
                out.push((o, offset - o));
            }
            if o + l > end {
                out.push((end, o + l - end));
            }
        }
        self.0 = out;
    }

    /// The first ranges, up to this many bytes.
    #[must_use]
    pub fn first(&self, mut bytes: u64) -> Ranges {
        let mut out = Vec::new();
        for &(offset, len) in &self.0 {
            let len = len.min(bytes);
            bytes -= len;
            out.extend((len > 0).then_some((offset, len)));
        }
        Ranges(out)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps what is in both.
    #[must_use]
    pub fn intersection(&self, other: &Ranges) -> Ranges {
        let mut out = Vec::new();
        let (mut ours, mut theirs) = (self.iter().peekable(), other.iter().peekable());
        while let (Some(&(a, al)), Some(&(b, bl))) = (ours.peek(), theirs.peek()) {
            let (from, to) = (a.max(b), (a + al).min(b + bl));
            if from < to {
                out.push((from, to - from));
            }
            let _ended = if a + al <= b + bl { ours.next() } else { theirs.next() };
        }
        Ranges(out)
    }

    /// What of `from..to` is in none.
    #[must_use]
    pub fn gaps(&self, from: u64, to: u64) -> Ranges {
        let (mut out, mut at) = (Vec::new(), from);
        for &(offset, len) in &self.0 {
            let end = offset.min(to);
            if end > at {
                out.push((at, end - at));
            }
            at = at.max(offset + len);
        }
        if to > at {
            out.push((at, to - at));
        }
        Ranges(out)
    }

    /// The whole blocks within, of as many ranges at most.
    #[must_use]
    pub fn inner_blocks(&self, block: u64, most: usize) -> Ranges {
        let inner = self.0.iter().filter_map(|&(offset, len)| {
            let (from, to) = (offset.div_ceil(block) * block, (offset + len) / block * block);
            (from < to).then(|| (from, to - from))
        });
        Ranges(inner.take(most).collect())
    }
}

/// Of ranges in order, that do not touch.
impl FromIterator<(u64, u64)> for Ranges {
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(iter: T) -> Self {
        let list: Vec<_> = iter.into_iter().collect();
        debug_assert!(list.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0));
        Ranges(list)
    }
}

impl Encode for Ranges {
    fn encode(&self, e: &mut denc::Encoder) {
        self.0.encode(e);
    }
}

impl Decode for Ranges {
    fn decode(d: &mut denc::Decoder<'_>) -> Result<Self, DecodeError> {
        let list: Vec<(u64, u64)> = d.get()?;
        Ranges::try_from(list).map_err(|why| d.invalid(why))
    }
}

impl TryFrom<Vec<(u64, u64)>> for Ranges {
    type Error = &'static str;

    fn try_from(list: Vec<(u64, u64)>) -> Result<Self, Self::Error> {
        let mut end = 0u64;
        for (i, (offset, len)) in list.iter().enumerate() {
            if *len == 0 || (i > 0 && *offset < end) {
                return Err("ranges out of order");
            }
            end = offset.checked_add(*len).ok_or("a range too long")?;
        }
        Ok(Ranges(list))
    }
}

/// The pool number of objects that belong to the OSD itself, as in Ceph's `meta` collection.
pub const META_POOL: PoolId = PoolId(-1);

/// The name of one of the OSD's own objects.
pub fn own_object(name: impl Into<ByteString>) -> HObject {
    HObject {
        pool: META_POOL,
        hash: 0,
        nspace: ByteString::default(),
        key: ByteString::default(),
        name: name.into(),
        snap: SnapId::HEAD,
        max: false,
    }
}

/// Behind all objects of the OSD's own.
pub fn meta_end() -> HObject {
    HObject { hash: u32::MAX, ..own_object("") }
}

/// The address a client is known by: its first one.
pub fn client_addr(addrs: &AddrVec) -> EntityAddr {
    addrs.0.first().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(r: &Ranges) -> Vec<bool> {
        let mut out = vec![false; 64];
        for (o, l) in r.iter() {
            out[o as usize..(o + l) as usize].fill(true);
        }
        out
    }

    proptest! {
        #[test]
        fn ranges_are_sets_of_bytes(steps in proptest::collection::vec((any::<bool>(), 0u64..40, 0u64..20), 0..30)) {
            let mut r = Ranges::default();
            let mut model = vec![false; 64];
            for (add, o, l) in steps {
                if add { r.insert(o, l) } else { r.remove(o, l) }
                model[o as usize..(o + l) as usize].fill(add);
                prop_assert_eq!(bits(&r), model.clone());
                let list: Vec<_> = r.iter().collect();
                prop_assert!(list.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0), "{:?}", list);
                prop_assert_eq!(&denc::decode_all::<Ranges>(&denc::encode(&r)).unwrap(), &r);
                let mut left = 10;
                let ten = model.iter().map(|set| { let take = *set && left > 0; left -= i32::from(take); take });
                prop_assert_eq!(bits(&r.first(10)), ten.collect::<Vec<_>>());
            }
        }

        #[test]
        fn intersections(a in proptest::collection::vec((0u64..40, 1u64..20), 0..6),
                         b in proptest::collection::vec((0u64..40, 1u64..20), 0..6)) {
            let set = |v: &[(u64, u64)]| {
                let mut r = Ranges::default();
                v.iter().for_each(|(o, l)| r.insert(*o, *l));
                r
            };
            let (a, b) = (set(&a), set(&b));
            let both: Vec<_> = bits(&a).iter().zip(bits(&b)).map(|(x, y)| *x && y).collect();
            prop_assert_eq!(bits(&a.intersection(&b)), both);
        }
    }

    #[test]
    fn a_snapshot_finds_its_version() {
        let mut set = SnapSet::default();
        let clone = |snaps: &[u64]| CloneState {
            snaps: snaps.iter().map(|s| SnapId(*s)).collect(),
            ..CloneState::default()
        };
        set.clones.insert(SnapId(4), clone(&[4, 3]));
        set.clones.insert(SnapId(9), clone(&[9, 7]));
        let at = |s| set.find(SnapId(s), SnapId(9));
        assert_eq!(at(3), SnapPlace::Clone(SnapId(4)));
        assert_eq!(at(4), SnapPlace::Clone(SnapId(4)));
        assert_eq!(at(7), SnapPlace::Clone(SnapId(9)));
        // The object did not exist at 2, and snapshot 8 was taken and removed.
        assert_eq!((at(2), at(8)), (SnapPlace::Nowhere, SnapPlace::Nowhere));
        assert_eq!(at(10), SnapPlace::Head);
        assert_eq!(set.find(SnapId::HEAD, SnapId(9)), SnapPlace::Head);
    }
}

//! Objects as they travel: reading a part of one, and putting a part that came into a transaction.
//!
//! A part that is not the first goes into an object of its own beside the old state, which is
//! replaced when the last part is there.

use crate::arriving::Place;
use crate::object::{ObjectMeta, Ranges};
use crate::ops::{Reader, contents};
use crate::options::Limits;
use crate::push::Sending;
use bytes::Bytes;
use io::BLOCK_BYTES;
use peer::{Push, PushCursor};
use pg::Changed;
use std::collections::BTreeMap;
use store::{Miss, OmapRange, Store, Transaction};
use types::testing::{Bug, Probe, hit, planted};
use types::{Errno, Eversion, HObject, ObjectKey, OsdId, SnapId};

/// Pieces of what was written of an object that one part has, together: the receiver's log takes them whole, be
/// it the smallest one.
const PIECES_BYTES: u64 = 2 << 20;

/// Attributes, and the omap header, that travel with data and omap: with more of them nothing else comes in
/// their part, so that any log takes it.
const FEW_VALUE_BYTES: usize = 64 << 10;

fn few_values(limits: &Limits) -> usize {
    limits.push_omap_bytes.min(FEW_VALUE_BYTES)
}

fn most_in_pieces(limits: &Limits) -> u64 {
    limits.push_bytes.min(PIECES_BYTES)
}

/// One part of an object, read from the store.
pub(crate) struct Part {
    pub exists: bool,
    pub meta: Bytes,
    pub version: Eversion,
    pub size: u64,
    pub attrs: Vec<(types::ByteString, Bytes)>,
    pub omap_header: Bytes,
    pub omap: Vec<(Bytes, Bytes)>,
    pub extents: Vec<(u64, u64)>,
    pub data: Vec<Bytes>,
    /// What of `extents` was written beside the push.
    pub beside: Ranges,
    pub next: PushCursor,
    /// It is what was changed since this version. Zero: the whole.
    pub base: Eversion,
    /// If this is the version of another one: which one.
    pub base_snap: SnapId,
}

/// Why a part cannot be read.
pub(crate) enum PartError {
    Miss(Miss),
    Damaged,
}

impl From<Miss> for PartError {
    fn from(miss: Miss) -> Self {
        PartError::Miss(miss)
    }
}

/// Reads what comes next of an object: attributes, data, omap. What was written beside the push comes with the
/// last part; what of it is too much for that comes before, in parts that leave the cursor where it is, or
/// that bring the attributes once more.
pub(crate) fn read_part(
    reader: Reader<'_>,
    limits: &Limits,
    object: &HObject,
    sending: &Sending,
) -> Result<Part, PartError> {
    let (key, store) = (object.to_key(), reader.store);
    let (cursor, beside) = (&sending.cursor, &sending.beside);
    let mut next = cursor.clone();
    let Some(stat) = store.stat(&key)? else {
        next.done = true;
        return Ok(Part { next, ..Part::absent() });
    };
    let meta = ObjectMeta::decode(&stat.meta).map_err(|_| PartError::Damaged)?;
    let mut part = Part { exists: true, version: meta.version, size: stat.size, ..Part::absent() };
    part.meta = Bytes::copy_from_slice(&stat.meta);
    let most = most_in_pieces(limits);
    if beside.ranges.bytes() > most {
        part.add_written(reader, &key, beside.ranges.first(most))?;
        return Ok(Part { next, ..part });
    }
    let mut attrs_after = cursor.attrs_after.clone();
    if *cursor == PushCursor::default() {
        part.omap_header = store.omap_header(&key)?.unwrap_or_default();
        attrs_after = Some(Bytes::new());
    }
    if let Some(after) = attrs_after {
        next.attrs_after = part.add_attrs(store, limits, &key, after, few_values(limits))?;
        if next.attrs_after.is_some() {
            return Ok(Part { next, ..part });
        }
    }
    if !cursor.data_done {
        let from = cursor.data_offset;
        // What the receiver has of another version comes between pieces, and none of it is sent.
        let most = if sending.shared.is_empty() { limits.push_bytes } else { most };
        let left = sending.shared.gaps(from, stat.size);
        let wanted = left.first(most);
        let to = if wanted == left { stat.size.max(from) } else { wanted.end() };
        if from < to {
            let extents: Ranges = store.extents(&key, from, to - from)?.into_iter().collect();
            part.add(reader, &key, &extents.intersection(&wanted))?;
        }
        next.data_offset = to;
        next.data_done = to >= stat.size;
    }
    if next.data_done {
        let range = OmapRange {
            from: cursor.omap_after.clone(),
            after: !cursor.omap_after.is_empty(),
            max_entries: limits.push_omap_entries,
            max_bytes: limits.push_omap_bytes,
            ..OmapRange::default()
        };
        let page = store.omap_list(&key, &range)?.unwrap_or_default();
        next.done = !page.more;
        if let Some((last, _)) = page.entries.last() {
            next.omap_after = Bytes::copy_from_slice(last);
        }
        part.omap = if planted(Bug::OmapNotPushed) { Vec::new() } else { page.entries };
    }
    if next.done {
        part.add_written(reader, &key, beside.ranges.clone())?;
    }
    if next.done && beside.attrs {
        let left = part.add_attrs(store, limits, &key, Bytes::new(), few_values(limits))?;
        if left.is_some() {
            // They are too much for this part: all of them come again.
            part.attrs.clear();
            (next.attrs_after, next.done) = (Some(Bytes::new()), false);
        }
    }
    Ok(Part { next, ..part })
}

/// Reads what was changed of an object since version `base`, which is known up to version `to`. `None`: that
/// is not its version, or its attributes do not fit into one part, or the whole is read and sent as fast: many
/// small reads also stand in the way of clients, more than a long one.
pub(crate) fn read_changes(
    reader: Reader<'_>,
    limits: &Limits,
    object: &HObject,
    base: Eversion,
    (to, changed): (Eversion, Changed),
) -> Result<Option<Part>, PartError> {
    let (key, store) = (object.to_key(), reader.store);
    let Some(stat) = store.stat(&key)? else { return Ok(None) };
    let meta = ObjectMeta::decode(&stat.meta).map_err(|_| PartError::Damaged)?;
    if meta.version != to {
        return Ok(None);
    }
    let Some(ranges) = whole_blocks(&changed, stat.size) else { return Ok(None) };
    let reads = ranges.iter().count() as u64;
    let cost = ranges.bytes() + reads.saturating_mul(limits.read_cost_bytes);
    if cost > stat.size || ranges.bytes() > most_in_pieces(limits) {
        return Ok(None);
    }
    let mut part = Part { exists: true, version: to, size: stat.size, base, ..Part::absent() };
    part.meta = Bytes::copy_from_slice(&stat.meta);
    // There is no omap with them.
    if part.add_attrs(store, limits, &key, Bytes::new(), limits.push_omap_bytes)?.is_some() {
        return Ok(None);
    }
    part.add_written(reader, &key, ranges)?;
    part.beside = Ranges::default();
    part.next = PushCursor { data_done: true, done: true, ..PushCursor::default() };
    Ok(Some(part))
}

/// The blocks that ranges touch: the receiver puts them in place without looking at what it has, which may
/// be damaged. `None` where the last one is a part of a block only, at the end of the object.
fn whole_blocks(ranges: &[(u64, u64)], size: u64) -> Option<Ranges> {
    let block = BLOCK_BYTES as u64;
    let mut out = Ranges::default();
    for (offset, len) in ranges {
        let from = offset / block * block;
        let end = offset.checked_add(*len)?.checked_next_multiple_of(block)?;
        if end > size {
            return None;
        }
        out.insert(from, end - from);
    }
    Some(out)
}

impl Part {
    fn absent() -> Self {
        Part {
            exists: false,
            meta: Bytes::new(),
            version: Eversion::ZERO,
            size: 0,
            attrs: Vec::new(),
            omap_header: Bytes::new(),
            omap: Vec::new(),
            extents: Vec::new(),
            data: Vec::new(),
            beside: Ranges::default(),
            next: PushCursor::default(),
            base: Eversion::ZERO,
            base_snap: SnapId::default(),
        }
    }

    /// Adds attributes behind `after`. Gives where they go on, before anything else; `None`: all are here, and with
    /// the header no more than `few` bytes, so that something else may come with them.
    fn add_attrs(
        &mut self,
        store: &Store,
        limits: &Limits,
        key: &ObjectKey,
        after: Bytes,
        few: usize,
    ) -> Result<Option<Bytes>, PartError> {
        if self.omap_header.len() > few {
            return Ok(Some(after));
        }
        let range = OmapRange {
            from: after.clone(),
            after: !after.is_empty(),
            max_entries: limits.push_omap_entries,
            max_bytes: limits.push_omap_bytes,
            ..OmapRange::default()
        };
        let page = store.attr_list(key, &range)?.unwrap_or_default();
        let bytes = page.entries.iter().map(|(name, value)| name.len() + value.len());
        let bytes = bytes.sum::<usize>() + self.omap_header.len();
        let goes_on = page.more || bytes > few;
        let last = page.entries.last().map_or(after, |(name, _)| name.clone());
        self.attrs = page.entries.into_iter().map(|(k, v)| ((&k[..]).into(), v)).collect();
        if goes_on {
            hit(Probe::AttrsDivided);
        }
        Ok(goes_on.then_some(last))
    }

    /// Adds what was written beside the push. Holes too: where it comes there may be other bytes.
    fn add_written(
        &mut self,
        reader: Reader<'_>,
        key: &ObjectKey,
        ranges: Ranges,
    ) -> Result<(), PartError> {
        self.add(reader, key, &ranges)?;
        self.beside = ranges;
        Ok(())
    }

    fn add(&mut self, reader: Reader<'_>, key: &ObjectKey, ranges: &Ranges) -> Result<(), Miss> {
        // What must be read of the disk is read at once: one block after the other takes as long as all.
        let mut lacks: Option<Miss> = None;
        for (offset, len) in ranges.iter() {
            let len = len.min(self.size.saturating_sub(offset));
            match reader.store.read_once(key, offset, len, reader.set) {
                Ok(pieces) => {
                    self.extents.push((offset, len));
                    self.data.extend(contents(pieces));
                }
                Err(miss) => match &mut lacks {
                    Some(lacks) => lacks.merge(miss),
                    None => lacks = Some(miss),
                },
            }
        }
        lacks.map_or(Ok(()), Err)
    }
}

/// A clone that has arrived comes into the snapshot index. `false`: its record cannot be read, so that nothing is known
/// of its snapshots.
pub(crate) fn note_arrived_clone(txn: &mut Transaction, from: OsdId, m: &Push) -> bool {
    if !m.exists || m.object.is_head() || planted(Bug::CloneUnindexed) {
        return true;
    }
    match ObjectMeta::decode(&m.meta) {
        Ok(meta) => {
            crate::trim::put_rows(txn, &m.object, &m.object.to_key(), &meta.snaps);
            true
        }
        Err(why) => {
            tracing::error!(
                "pg {}: the record of {}, as osd.{from} has sent it, cannot be read ({why}): what the clone \
                 takes is not freed with its snapshots. Let all OSDs run the same release, and scrub the PG",
                m.pgid,
                m.object
            );
            false
        }
    }
}

/// Adds a received part to a transaction, which comes to nothing if those before it are not where they have gathered.
pub(crate) fn apply_part(txn: &mut Transaction, m: &Push, place: Place) -> Result<(), Errno> {
    let key = m.object.to_key();
    if !m.exists {
        txn.remove(&key);
        return Ok(());
    }
    let to = match place {
        Place::Object => key,
        Place::Begins(temporary) => temporary.key(),
        Place::GoesOn(before) => {
            let to = before.with_next().key();
            txn.rename(&before.key(), &to);
            to
        }
        Place::Ends(before) => {
            txn.remove(&key).rename(&before.key(), &key);
            key
        }
    };
    let is_first = matches!(place, Place::Object | Place::Begins(_));
    if is_first && (m.base == Eversion::ZERO || m.takes_from_another()) {
        txn.remove(&to);
        txn.touch(&to);
        let base = m.object.at_snap(m.base_snap).to_key();
        m.shared.iter().for_each(|(at, len)| _ = txn.clone_range(&base, *at, *len, &to, *at));
        if !m.omap_header.is_empty() {
            txn.omap_set_header(&to, m.omap_header.clone());
        }
    }
    // It may have grown since the first part.
    txn.truncate(&to, m.size);
    for (name, value) in &m.attrs {
        txn.set_attr(&to, Bytes::copy_from_slice(name), value.clone());
    }
    txn.set_meta(&to, m.meta.clone());
    let mut at = 0usize;
    for (offset, len) in &m.extents {
        let end =
            usize::try_from(*len).ok().and_then(|l| at.checked_add(l)).ok_or(Errno::EINVAL)?;
        let piece = m.data.get(at..end).ok_or(Errno::EINVAL)?;
        txn.write(&to, *offset, m.data.slice_ref(piece));
        at = end;
    }
    if !m.omap.is_empty() {
        txn.omap_set(&to, m.omap.clone());
    }
    Ok(())
}

/// Objects of a PG from `from` on, with their versions, and where the listing ends.
pub(crate) fn list_objects(
    store: &Store,
    from: &ObjectKey,
    end: &ObjectKey,
    at_once: usize,
) -> Result<(BTreeMap<HObject, Eversion>, HObject), PartError> {
    let listed = store.list(from, end, at_once + 2)?;
    let mut objects = BTreeMap::new();
    for (i, (key, stat)) in listed.iter().enumerate() {
        let object = key.decode().map_err(|_| PartError::Damaged)?;
        // Not between the clones of an object and its head (see `pg::Listing`).
        if i >= at_once && !object.is_head() {
            return Ok((objects, object));
        }
        if i > at_once {
            return Ok((objects, object.at_snap(SnapId(0))));
        }
        // Of no version, if its record cannot be read: it differs from what others have of it, and is brought again.
        let version = ObjectMeta::decode(&stat.meta).map_or(Eversion::ZERO, |meta| meta.version);
        objects.insert(object, version);
    }
    Ok((objects, HObject::max()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arriving::Temporary;
    use crate::recover::Transfers;
    use store::model::{Model, ModelObject};
    use types::{Epoch, PgId};

    const FROM: OsdId = OsdId(1);

    fn part(from: u64, data: &'static [u8], next: u64) -> Push {
        let at = |data_offset| PushCursor { data_offset, ..PushCursor::default() };
        let absent = Push::absent(PgId::default(), Epoch(1), Epoch(1), HObject::min());
        let attrs = if from == 0 { vec![(b"a"[..].into(), "attr".into())] } else { Vec::new() };
        Push {
            exists: true,
            size: 9,
            meta: "meta".into(),
            attrs,
            extents: vec![(from, data.len() as u64)],
            from: at(from),
            next: PushCursor { done: next == 9, ..at(next) },
            data: data.into(),
            ..absent
        }
    }

    /// Its parts come into a store with `old`, which may lose some of what it has before each.
    fn gather(old: &[u8], loses: impl Fn(usize, &mut Model)) -> Result<ModelObject, usize> {
        let key = HObject::min().to_key();
        let mut model = Model::new();
        let mut txn = Transaction::new(1);
        txn.write(&key, 0, Bytes::copy_from_slice(old));
        model.apply(&txn).unwrap();
        let mut transfers = Transfers::default();
        let parts = [part(0, b"one", 3), part(3, b"two", 6), part(6, b"end", 9)];
        for (i, m) in parts.iter().enumerate() {
            loses(i, &mut model);
            let place = transfers.place_of(FROM, m, &mut Temporary::first(7)).unwrap();
            let mut txn = Transaction::new(1);
            apply_part(&mut txn, m, place).unwrap();
            transfers.note_part(&mut txn, FROM, m, place);
            model.apply(&txn).map_err(|_| i)?;
        }
        assert_eq!(model.objects.len(), 1);
        Ok(model.objects.remove(&key).unwrap())
    }

    #[test]
    fn parts_replace_the_object_when_all_are_there() {
        let got = gather(b"an old state that is longer", |_, _| {}).unwrap();
        assert_eq!((got.read(0, 100), &got.meta[..]), (b"onetwoend".to_vec(), &b"meta"[..]));
        assert_eq!(got.attrs[&b"a"[..]], "attr");
    }

    /// Nobody would ever free what it takes: that must be said.
    #[test]
    fn a_clone_without_a_record_is_no_silent_one() {
        let record = denc::encode(&ObjectMeta { snaps: vec![SnapId(4)], ..ObjectMeta::default() });
        let clone = HObject { snap: SnapId(4), ..HObject::min() };
        for (meta, is_known) in [(record, true), ("no record".into(), false)] {
            let (mut txn, m) = (Transaction::new(1), part(0, b"one", 9));
            let m = Push { object: clone.clone(), meta, ..m };
            assert_eq!(note_arrived_clone(&mut txn, FROM, &m), is_known);
            assert_eq!(txn.is_empty(), !is_known);
        }
    }

    /// It was replaced by what came last, with the right version, and nothing of what had come before.
    #[test]
    fn parts_go_on_with_nothing_but_those_before_them() {
        let lose_all = |model: &mut Model| {
            model.objects.retain(|key, _| *key == HObject::min().to_key());
        };
        for lost_before in [1, 2] {
            let lose = |i, model: &mut Model| {
                if i == lost_before {
                    lose_all(model)
                }
            };
            assert_eq!(gather(b"old", lose), Err(lost_before));
        }
    }
}

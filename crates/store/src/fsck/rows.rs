//! Checking rows in key order: what they say of themselves, of each other, and of blocks.

use super::parts::{Part, Record};
use super::report::{FsckReport, MAX_FINDINGS};
use crate::accounts::{AccountSums, Accounts};
use crate::alloc::{Allocator, Bits, Run, push_run};
use crate::blob::Blob;
use crate::config::AccountOf;
use crate::keys::{self, Kind, Parsed, SHARD_BLOCKS};
use crate::rows::{Onode, REFS_BLOCKS, Refs, Shard, Slot, Value};
use bytes::Bytes;
use io::BLOCK_BYTES;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::ObjectKey;

/// A block of an object whose bytes are to be compared with their checksum.
#[derive(Clone, Debug)]
pub(super) struct Extent {
    pub object: Option<ObjectKey>,
    pub offset: u64,
    pub slot: Slot,
    /// The blob that it is part of, and which of its blocks it is.
    pub blob: Option<(Arc<Blob>, usize)>,
}

/// Everything that the rows say.
#[derive(Default)]
pub(super) struct RowCheck {
    pub part: Part,
    /// Whether nothing is wanted but what accounts have.
    pub only_counts: bool,
    /// How many extents refer to each block of a region; only where more than one does, or one says so. A
    /// region's go when the counts of its references come.
    shared: BTreeMap<u64, Box<Uses>>,
    /// Blocks whose references are not counted right.
    miscounted: Vec<Miscounted>,
    /// Of them, those that are only counted.
    more_miscounted: u64,
    /// Blocks that an extent refers to.
    seen: Bits,
    /// Values in pieces of the object whose rows come now: bytes missing.
    pieces: BTreeMap<(u8, Vec<u8>), i64>,
    current: Option<u64>,
    /// Extents to be read.
    pub extents: Vec<Extent>,
    /// Objects and their sizes, when they are asked for.
    pub found: Option<Vec<(ObjectKey, u64)>>,
    seen_blocks: u64,
    shared_blocks: u64,
    account_of: Option<AccountOf>,
    /// What the extents of each account's objects say that it has.
    accounts: BTreeMap<u64, AccountSums>,
    /// Bytes of blocks that nothing stands in.
    padding: u64,
    /// References to blocks beyond the first to each.
    more_uses: u64,
}

/// Counts go so far. More objects than that are hardly clones of one.
type Count = u16;

/// What refers to the blocks of a region: 0.5 GiB for each TiB of which all is shared.
struct Uses {
    counts: [Count; REFS_BLOCKS as usize],
    /// Bit by bit: an extent that does not know that it is shared refers to it.
    unmarked: [u64; REFS_BLOCKS as usize / 64],
}

impl Default for Uses {
    fn default() -> Self {
        Uses { counts: [0; _], unmarked: [0; _] }
    }
}

struct Miscounted {
    block: u64,
    uses: Count,
    /// `None`: none are.
    counted: Option<u32>,
}

fn row_place(key: &[u8]) -> String {
    match keys::parse(key) {
        Ok(Parsed::Object(object)) => format!("record of {object:?}"),
        Ok(parsed) => format!("row {parsed:?}"),
        Err(_) => format!("row {key:02x?}"),
    }
}

/// Whether a row says which blocks are whose.
fn says_blocks(row: &Parsed<'_>) -> bool {
    matches!(row, Parsed::Object(_) | Parsed::Shard { .. })
}

impl RowCheck {
    /// With who knows which account an object is of; without all are of one.
    pub fn new(account_of: Option<AccountOf>) -> Self {
        RowCheck { account_of, ..RowCheck::default() }
    }

    /// Takes in the next row.
    pub fn row(&mut self, key: &[u8], row: &Bytes, report: &mut FsckReport) {
        let problem = match keys::parse(key) {
            Err(why) => Some(why.0),
            Ok(parsed) if self.only_counts && !says_blocks(&parsed) => None,
            Ok(Parsed::Object(object)) => self.object(object, row, report).err(),
            Ok(Parsed::Shard { id, number }) => {
                self.enter(id, report);
                self.shard(id, number, row, report).err()
            }
            Ok(Parsed::Attr { id, name }) => {
                self.enter(id, report);
                self.value(id, Onode::HAS_ATTRS, Kind::Attr, name, row).err()
            }
            Ok(Parsed::Header { id }) => {
                self.enter(id, report);
                self.value(id, Onode::HAS_HEADER, Kind::Header, b"", row).err()
            }
            Ok(Parsed::Omap { id, name }) => {
                self.enter(id, report);
                self.value(id, Onode::HAS_OMAP, Kind::Omap, name, row).err()
            }
            Ok(Parsed::Piece { id, kind }) => {
                self.enter(id, report);
                self.piece(id, kind, key, row).err()
            }
            Ok(Parsed::Refs { region }) => {
                self.leave(report);
                self.refs(region, row).err()
            }
            Ok(Parsed::Bitmap { .. } | Parsed::Account { .. }) => None,
        };
        if let Some(what) = problem
            && !self.part.is_repeated()
        {
            self.bad_row(key, what, report);
            if let Ok(Parsed::Object(object)) = keys::parse(key) {
                let end = ObjectKey::from_bytes(&[object.as_bytes(), &[0]].concat());
                report.lost_names((object, Some(end)));
            }
        }
    }

    /// A row is not what it can be.
    pub fn bad_row(&self, key: &[u8], what: &'static str, report: &mut FsckReport) {
        let object = keys::parse(key).ok().and_then(|parsed| parsed.owner());
        let object = object.and_then(|id| self.record(id)).map(|record| &record.key);
        report.object(object, row_place(key), what);
    }

    fn object(
        &mut self,
        key: ObjectKey,
        row: &Bytes,
        report: &mut FsckReport,
    ) -> Result<(), &'static str> {
        let onode = Onode::decode(row).map_err(|why| why.0)?;
        let account = self.account_of.map_or(0, |of| of.0(&key));
        if !self.part.is_repeated() {
            self.accounts.entry(account).or_default().stored -= onode.padding() as i64;
            report.objects += 1;
            report.object_bytes = report.object_bytes.saturating_add(onode.size);
            if let Some(found) = &mut self.found {
                found.push((key.clone(), onode.size));
            }
        }
        let record = (!self.only_counts).then(|| Record::new(key, &onode));
        self.part.add(onode.id, account, record);
        Ok(())
    }

    fn enter(&mut self, id: u64, report: &mut FsckReport) {
        if self.current != Some(id) {
            self.leave(report);
            self.current = Some(id);
        }
    }

    /// The rows of an object are over.
    pub fn leave(&mut self, report: &mut FsckReport) {
        let pieces = std::mem::take(&mut self.pieces);
        let object = self.current.take().and_then(|id| self.record(id)).map(|record| &record.key);
        for ((_, name), missing) in pieces {
            if missing != 0 {
                let what = format!("the value of {name:02x?} lacks {missing} bytes");
                report.object(object, "rows of values in pieces", what);
            }
        }
    }

    fn record(&self, id: u64) -> Option<&Record> {
        self.part.get(id).and_then(|known| known.record.as_deref())
    }

    /// Whether an object knows that it has rows of a kind.
    fn known(&self, id: u64, flag: u8) -> Result<(), &'static str> {
        let known = self.part.get(id).ok_or("it belongs to no object")?;
        let knows = known.record.as_ref().is_none_or(|record| record.has(flag));
        if knows { Ok(()) } else { Err("its object's record does not know of it") }
    }

    fn shard(
        &mut self,
        id: u64,
        number: u32,
        row: &Bytes,
        report: &mut FsckReport,
    ) -> Result<(), &'static str> {
        let shard = Shard::decode(row).map_err(|why| why.0)?;
        let mut problem = self.known(id, Onode::HAS_DATA).err();
        let known = self.part.get(id).filter(|_| problem.is_none());
        let account = known.map_or(0, |known| known.account);
        let record = known.and_then(|known| known.record.as_ref());
        let size = record.map_or(u64::MAX, |record| record.size);
        let object = record.map(|record| record.key.clone());
        let seen_before = self.seen_blocks;
        let blocks = size.div_ceil(BLOCK_BYTES as u64);
        for (i, slot) in shard.slots.iter().enumerate().filter(|(_, s)| !s.is_hole()) {
            let block = u64::from(number) * SHARD_BLOCKS + i as u64;
            if block >= blocks {
                problem.get_or_insert("it has blocks behind the end of the object");
            }
            if slot.is_packed() {
                continue;
            }
            let seen = self.seen_blocks;
            self.use_block(*slot, report, object.as_ref());
            let offset = block * BLOCK_BYTES as u64;
            if self.seen_blocks > seen && block + 1 == blocks {
                self.padding += (offset + BLOCK_BYTES as u64).saturating_sub(size);
            }
            if !self.only_counts {
                let object = object.clone();
                self.extents.push(Extent { object, offset, slot: *slot, blob: None });
            }
        }
        for blob in &shard.blobs {
            let first = shard.slots.iter().position(|s| s.is_packed() && s.phys == blob.start());
            let block = u64::from(number) * SHARD_BLOCKS + first.unwrap_or(0) as u64;
            self.use_blob(blob, block * BLOCK_BYTES as u64, (object.as_ref(), account), report);
        }
        let sums = self.accounts.entry(account).or_default();
        sums.data += self.seen_blocks - seen_before;
        sums.stored += (shard.content() * BLOCK_BYTES as u64) as i64;
        sums.packed.content += shard.packed();
        problem.map_or(Ok(()), Err)
    }

    fn use_blob(
        &mut self,
        blob: &Blob,
        offset: u64,
        (object, account): (Option<&ObjectKey>, u64),
        report: &mut FsckReport,
    ) {
        let before = self.seen_blocks;
        let shared = Arc::new(blob.clone());
        for (i, slot) in blob.blocks().enumerate() {
            let slot = Slot { shared: blob.shared, ..slot };
            self.use_block(slot, report, object);
            if !self.only_counts {
                let (object, blob) = (object.cloned(), Some((shared.clone(), i)));
                self.extents.push(Extent { object, offset, slot, blob });
            }
        }
        if self.seen_blocks > before {
            let packed = &mut self.accounts.entry(account).or_default().packed;
            packed.blocks += blob.crcs.len() as u64;
            packed.bytes += u64::from(blob.bytes);
            let room = blob.crcs.len() as u64 * BLOCK_BYTES as u64;
            self.padding += room.saturating_sub(u64::from(blob.bytes));
        }
    }

    /// Bytes of blocks that nothing stands in.
    pub fn padding(&self) -> u64 {
        self.padding
    }

    /// References to blocks beyond the first to each.
    pub fn more_uses(&self) -> u64 {
        self.more_uses
    }

    /// What each account has, as the extents say.
    pub fn accounts(&self) -> Accounts {
        let mut accounts = Accounts::default();
        self.accounts.iter().for_each(|(account, sums)| accounts.load(*account, *sums));
        accounts
    }

    fn use_block(&mut self, slot: Slot, report: &mut FsckReport, object: Option<&ObjectKey>) {
        let again = self.mark_seen(slot.phys);
        self.more_uses += u64::from(again);
        if self.only_counts || (!again && !slot.shared) {
            return;
        }
        let (region, at) = (slot.phys / REFS_BLOCKS, (slot.phys % REFS_BLOCKS) as usize);
        let uses = self.shared.entry(region).or_default();
        let (word, bit) = (at / 64, 1 << (at % 64));
        let Uses { counts, unmarked } = &mut **uses;
        let (Some(count), Some(unmarked)) = (counts.get_mut(at), unmarked.get_mut(word)) else {
            return;
        };
        if again && *count == 0 {
            // The first extent did not say that the block may be shared.
            *count = 1;
            *unmarked |= bit;
        }
        *count = count.saturating_add(1);
        *unmarked |= if slot.shared { 0 } else { bit };
        if *unmarked & bit != 0 && *count > 1 {
            let place = format!("block {}", slot.phys);
            let what = "two extents refer to it, and not both know that it is shared";
            report.object(object, place, what);
        }
    }

    /// The device has so many blocks.
    pub fn set_blocks(&mut self, total: u64) {
        self.seen = Bits::new(total);
    }

    /// Notes a block; true when it was noted before. What is behind the device is no block.
    fn mark_seen(&mut self, block: u64) -> bool {
        let word = usize::try_from(block / 64).ok().and_then(|i| self.seen.words_mut().get_mut(i));
        let Some(word) = word else { return false };
        let bit = 1 << (block % 64);
        let again = *word & bit != 0;
        *word |= bit;
        self.seen_blocks += u64::from(!again);
        again
    }

    fn value(
        &mut self,
        id: u64,
        flag: u8,
        kind: Kind,
        name: &[u8],
        row: &Bytes,
    ) -> Result<(), &'static str> {
        if let Value::Pieces(len) = Value::decode(row).map_err(|why| why.0)? {
            self.pieces.insert((kind as u8, name.to_vec()), i64::from(len));
        }
        self.known(id, flag)
    }

    fn piece(&mut self, id: u64, kind: u8, key: &[u8], row: &Bytes) -> Result<(), &'static str> {
        self.known(id, Onode::HAS_BIG)?;
        // Find the value by its key: the escaped name ends before the piece's number.
        let prefix = keys::kind(id, Kind::Big).len() + 1;
        let name = key.get(prefix..key.len().saturating_sub(6)).ok_or("a piece's key is short")?;
        let mut plain = Vec::new();
        let mut bytes = name.iter();
        while let Some(&b) = bytes.next() {
            plain.push(b);
            if b == 0 {
                bytes.next();
            }
        }
        let missing = self.pieces.get_mut(&(kind, plain)).ok_or("a piece of no value")?;
        *missing -= row.len() as i64;
        Ok(())
    }

    fn refs(&mut self, region: u64, row: &Bytes) -> Result<(), &'static str> {
        let refs = Refs::decode(row).map_err(|why| why.0)?;
        let uses = self.shared.remove(&region).unwrap_or_default();
        let counts = refs.counts.iter().map(|count| (*count > 0).then_some(*count));
        self.shared_blocks += counts.clone().flatten().count() as u64;
        self.compare_counts(region, counts.zip(uses.counts));
        Ok(())
    }

    /// Notes where references are not counted right.
    fn compare_counts(&mut self, region: u64, counts: impl Iterator<Item = (Option<u32>, Count)>) {
        let first = region.saturating_mul(REFS_BLOCKS);
        for (block, (counted, uses)) in (first..).zip(counts) {
            let is_right = match (counted, uses) {
                (None, uses) => uses <= 1,
                (Some(counted), uses) => {
                    uses > 0 && u32::from(uses) == counted.min(u32::from(Count::MAX))
                }
            };
            if is_right {
                continue;
            }
            // More would not be told.
            if self.miscounted.len() < MAX_FINDINGS {
                self.miscounted.push(Miscounted { block, uses, counted });
            } else {
                self.more_miscounted += 1;
            }
        }
    }

    /// Number of blocks that several extents share, as the reference counts say.
    pub fn shared_blocks(&self) -> u64 {
        self.shared_blocks
    }

    /// Number of blocks that extents refer to.
    pub fn seen_blocks(&self) -> u64 {
        self.seen_blocks
    }

    /// Compares what extents refer to with the bitmaps and the reference counts.
    pub fn compare(&mut self, alloc: &Allocator, total: u64, report: &mut FsckReport) {
        for (region, uses) in std::mem::take(&mut self.shared) {
            self.compare_counts(region, uses.counts.into_iter().map(|uses| (None, uses)));
        }
        for Miscounted { block, uses, counted } in &self.miscounted {
            let what = match uses {
                0 => "references are counted, but there are none".to_string(),
                _ => {
                    let counted = counted.unwrap_or(1);
                    format!("{uses} extents refer to it, {counted} are counted")
                }
            };
            report.damage(format!("block {block}"), what);
        }
        report.count_damage(self.more_miscounted);
        let (mut leaked, mut free) = (Vec::new(), Vec::new());
        for word in 0..total.div_ceil(64) {
            let seen = self.seen.words().get(word as usize).copied().unwrap_or(0);
            let data = alloc.data_word(word);
            for (wrong, out) in [(data & !seen, &mut leaked), (seen & !data, &mut free)] {
                for bit in (0..64).filter(|bit| wrong & (1 << bit) != 0) {
                    push_run(out, Run { start: word * 64 + bit, len: 1 });
                }
            }
        }
        for run in leaked {
            let place = format!("blocks {} to {}", run.start, run.end() - 1);
            report.note(place, "are marked as data, but no object has them: their space is lost");
        }
        for run in free {
            let place = format!("blocks {} to {}", run.start, run.end() - 1);
            report.damage(place, "hold an object's data, but are marked as free");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_row_is_of_the_object_that_its_key_names() {
        let (mut rows, mut report) = (RowCheck::default(), FsckReport::default());
        let name = |n: u8| ObjectKey::from_bytes(&[n]);
        for id in [1, 2] {
            let onode = Onode { id, size: 0, flags: Onode::HAS_ATTRS, meta: Bytes::new() };
            rows.part.add(id, 0, Some(Record::new(name(id as u8), &onode)));
        }
        rows.enter(1, &mut report);
        rows.bad_row(&keys::shard(2, 0), "it cannot be patched", &mut report);
        rows.bad_row(&keys::account(7), "it is nobody's", &mut report);
        let named: Vec<_> = report.findings.into_iter().map(|f| f.object).collect();
        assert_eq!(named, [Some(name(2)), None]);
    }

    /// Of what is shared everywhere a count takes no more than a bit of each block, and keeps nothing to be read.
    #[test]
    fn what_is_only_counted_is_not_kept() {
        let (mut rows, mut report) = (RowCheck::default(), FsckReport::default());
        (rows.only_counts, rows.account_of) = (true, Some(AccountOf(|_| 7)));
        rows.set_blocks(1000);
        let mut shard = Shard::default();
        for (slot, phys) in shard.slots.iter_mut().zip(20..30) {
            *slot = Slot { shared: true, ..Slot::plain(phys, 1) };
        }
        for id in [1, 2] {
            let onode = Onode { id, size: 40_000, flags: Onode::HAS_DATA, meta: Bytes::new() };
            let mut record = Vec::new();
            onode.encode_to(&mut record);
            let name = ObjectKey::from_bytes(&[id as u8]);
            rows.row(&keys::object(&name), &record.into(), &mut report);
        }
        for id in [1, 2] {
            rows.row(&keys::shard(id, 0), &shard.encode(), &mut report);
            rows.row(
                &keys::named(id, Kind::Attr, b"a"),
                &Bytes::from_static(b"no value"),
                &mut report,
            );
        }
        let sums = AccountSums { data: 10, stored: 2 * 40_000, ..AccountSums::default() };
        assert!(rows.accounts().iter().eq([(7, sums)]) && report.is_good(), "{report:?}");
        assert!(rows.shared.is_empty() && rows.extents.is_empty());
    }
}

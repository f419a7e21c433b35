//! Transactions on the wire (and nowhere on the disk: the log keeps their outcome).
//!
//! V(2,1) { u64 sequencer, u8 flags (1: may use the reserve), list of names, u32 number of ops,
//! each { u8 code, u32 object, ... }; since 2: u64 account, u8 algorithm (0: nothing is compressed),
//! u16 required share in thousandths, u32 smallest, u32 largest blob in bytes }. The data of writes stands apart, as pieces one after the
//! other; a write has its length (4) and offset (8) there. Pieces that are whole blocks come first,
//! so that a receiver that has them in aligned memory can write them without a copy.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use super::{Invalid, ObjectIx, Op, Transaction};
use crate::compress::{Algorithm, Compress};
use bytes::Bytes;
use denc::{Decode, DecodeError, DecodeErrorKind, Decoder, Encoder, KnownCrc};
use io::BLOCK_BYTES;
use smallvec::SmallVec;
use types::ObjectKey;

const VERSION: u8 = 2;
const COMPAT: u8 = 1;
const MAY_USE_RESERVE: u8 = 1;

impl Transaction {
    /// Appends everything but the data to `meta`, and the data, which is not copied, to `data`.
    pub fn encode_to<const N: usize>(&self, meta: &mut Encoder, data: &mut SmallVec<[Bytes; N]>) {
        let offsets = self.place_data(data);
        meta.section(VERSION, COMPAT, |e| {
            e.put(&self.sequencer);
            e.put(&if self.may_use_reserve { MAY_USE_RESERVE } else { 0u8 });
            e.put_count(self.objects.len());
            for key in &self.objects {
                e.put_bytes(key.as_bytes());
            }
            e.put_count(self.ops.len());
            for (op, offset) in self.ops.iter().zip(offsets) {
                encode_op(op, offset, e);
            }
            e.put(&self.account);
            encode_compress(self.compress, e);
        });
    }

    /// Puts the data of all writes into `data`; gives the offset of each op's.
    fn place_data<const N: usize>(&self, data: &mut SmallVec<[Bytes; N]>) -> SmallVec<[u64; 4]> {
        let mut offsets = SmallVec::from_elem(0, self.ops.len());
        let mut next = 0u64;
        for whole in [true, false] {
            for (op, offset) in self.ops.iter().zip(&mut offsets) {
                let Op::Write { data: piece, .. } = op else { continue };
                if piece.len().is_multiple_of(BLOCK_BYTES) != whole || piece.is_empty() {
                    continue;
                }
                *offset = next;
                next = next.saturating_add(piece.len() as u64);
                data.push(piece.clone());
            }
        }
        offsets
    }

    /// Reads a transaction; its data are slices of `data`, of which the checksum may be known, and names
    /// and values slices of `meta`.
    ///
    /// # Errors
    /// When the bytes are malformed or hold a transaction that no store can carry out.
    pub fn decode_from(
        meta: &Bytes,
        (data, crc): (&Bytes, KnownCrc),
    ) -> Result<Transaction, DecodeError> {
        let d = &mut Decoder::new(meta);
        let txn = d.section(VERSION, |d, version| {
            let mut txn = Transaction::new(d.get()?);
            txn.may_use_reserve = d.get::<u8>()? & MAY_USE_RESERVE != 0;
            for _ in 0..d.count()? {
                txn.objects.push(ObjectKey::from_bytes(&d.take_bytes()?));
            }
            for _ in 0..d.count()? {
                txn.ops.push(decode_op(d, (data, crc))?);
            }
            if version >= 2 {
                txn.account = d.get()?;
                txn.compress = decode_compress(d)?;
            }
            Ok(txn)
        })?;
        txn.check().map_err(|why| d.error(DecodeErrorKind::Invalid(reason(&why))))?;
        Ok(txn)
    }
}

fn reason(why: &Invalid) -> &'static str {
    match why {
        Invalid::NoSuchIndex { .. } => "a transaction names an object it does not have",
        Invalid::NamedTwice(_) => "a transaction names an object twice",
        Invalid::TooLong { .. } => "a transaction with something too long",
        _ => "a transaction that cannot be carried out",
    }
}

fn encode_compress(compress: Option<Compress>, e: &mut Encoder) {
    let how = compress.map_or((0u8, 0u16, 0u32, 0u32), |c| {
        (c.algorithm as u8, c.required_per_mille, c.min_blob_bytes, c.max_blob_bytes)
    });
    e.put(&how.0).put(&how.1).put(&how.2).put(&how.3);
}

fn decode_compress(d: &mut Decoder<'_>) -> Result<Option<Compress>, DecodeError> {
    let algorithm: u8 = d.get()?;
    let (required_per_mille, min_blob_bytes, max_blob_bytes) = (d.get()?, d.get()?, d.get()?);
    if algorithm == 0 {
        return Ok(None);
    }
    let algorithm = Algorithm::from_byte(algorithm);
    let algorithm = algorithm.ok_or_else(|| d.invalid("an unknown kind of compression"))?;
    Ok(Some(Compress { algorithm, required_per_mille, min_blob_bytes, max_blob_bytes }))
}

fn encode_op(op: &Op, offset: u64, e: &mut Encoder) {
    let mut head = |code: u8, object: &ObjectIx| {
        e.put(&code).put(&object.0);
    };
    match op {
        Op::Touch(o) => head(1, o),
        Op::Write { object, .. } => head(2, object),
        Op::Zero { object, .. } => head(3, object),
        Op::Truncate { object, .. } => head(4, object),
        Op::Remove(o) => head(5, o),
        Op::SetMeta { object, .. } => head(6, object),
        Op::SetAttr { object, .. } => head(7, object),
        Op::RmAttr { object, .. } => head(8, object),
        Op::RmAttrs(o) => head(9, o),
        Op::Clone { from, .. } => head(10, from),
        Op::CloneRange { from, .. } => head(11, from),
        Op::Rename { from, .. } => head(12, from),
        Op::OmapSet { object, .. } => head(13, object),
        Op::OmapRemove { object, .. } => head(14, object),
        Op::OmapRemoveRange { object, .. } => head(15, object),
        Op::OmapClear(o) => head(16, o),
        Op::OmapSetHeader { object, .. } => head(17, object),
    }
    encode_fields(op, offset, e);
}

fn encode_fields(op: &Op, data_at: u64, e: &mut Encoder) {
    match op {
        Op::Touch(_) | Op::Remove(_) | Op::RmAttrs(_) | Op::OmapClear(_) => {}
        Op::Write { offset, data, .. } => {
            e.put(offset).put_count(data.len());
            e.put(&data_at);
        }
        Op::Zero { offset, len, .. } => drop(e.put(offset).put(len)),
        Op::Truncate { size, .. } => drop(e.put(size)),
        Op::SetMeta { meta: bytes, .. }
        | Op::RmAttr { name: bytes, .. }
        | Op::OmapSetHeader { header: bytes, .. } => e.put_bytes(bytes),
        Op::SetAttr { name, value, .. } => {
            e.put_bytes(name);
            e.put_bytes(value);
        }
        Op::Clone { to, .. } | Op::Rename { to, .. } => drop(e.put(&to.0)),
        Op::CloneRange { to, src_offset, len, dst_offset, .. } => {
            e.put(&to.0).put(src_offset).put(len).put(dst_offset);
        }
        Op::OmapSet { entries, .. } => drop(e.put(entries)),
        Op::OmapRemove { keys, .. } => drop(e.put(keys)),
        Op::OmapRemoveRange { from, to, .. } => {
            e.put_bytes(from);
            e.put_bytes(to);
        }
    }
}

fn index(d: &mut Decoder<'_>) -> Result<ObjectIx, DecodeError> {
    d.get().map(ObjectIx)
}

fn decode_op(d: &mut Decoder<'_>, data: (&Bytes, KnownCrc)) -> Result<Op, DecodeError> {
    let code: u8 = d.get()?;
    let object = index(d)?;
    Ok(match code {
        1 => Op::Touch(object),
        2 => decode_write(object, d, data)?,
        3 => Op::Zero { object, offset: d.get()?, len: d.get()? },
        4 => Op::Truncate { object, size: d.get()? },
        5 => Op::Remove(object),
        6 => Op::SetMeta { object, meta: d.take_bytes()? },
        7 => Op::SetAttr { object, name: d.take_bytes()?, value: d.take_bytes()? },
        8 => Op::RmAttr { object, name: d.take_bytes()? },
        9 => Op::RmAttrs(object),
        10 => Op::Clone { from: object, to: index(d)? },
        11 => Op::CloneRange {
            from: object,
            to: index(d)?,
            src_offset: d.get()?,
            len: d.get()?,
            dst_offset: d.get()?,
        },
        12 => Op::Rename { from: object, to: index(d)? },
        13 => Op::OmapSet { object, entries: Vec::decode(d)? },
        14 => Op::OmapRemove { object, keys: Vec::decode(d)? },
        15 => Op::OmapRemoveRange { object, from: d.take_bytes()?, to: d.take_bytes()? },
        16 => Op::OmapClear(object),
        17 => Op::OmapSetHeader { object, header: d.take_bytes()? },
        _ => return Err(d.invalid("an unknown op in a transaction")),
    })
}

fn decode_write(
    object: ObjectIx,
    d: &mut Decoder<'_>,
    (data, crc): (&Bytes, KnownCrc),
) -> Result<Op, DecodeError> {
    let offset = d.get()?;
    let len = d.count()?;
    let at: u64 = d.get()?;
    let start = usize::try_from(at).ok().filter(|s| *s <= data.len());
    let end = start.and_then(|s| s.checked_add(len)).filter(|e| *e <= data.len());
    match start.zip(end) {
        Some((start, end)) => {
            let crc = crc.of_part(len, data.len());
            Ok(Op::Write { object, offset, data: data.slice(start..end), crc })
        }
        None => Err(d.invalid("a write past the transaction's data")),
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn joined(data: &SmallVec<[Bytes; 4]>) -> Bytes {
        data.iter().flat_map(|b| b.iter().copied()).collect::<Vec<u8>>().into()
    }

    fn sample() -> Transaction {
        let (a, b) = (ObjectKey::from_bytes(b"a"), ObjectKey::from_bytes(b"b"));
        let bytes = |s: &'static str| Bytes::from_static(s.as_bytes());
        let mut t = Transaction::new(7);
        t.may_use_reserve = true;
        t.touch(&a).write(&a, 5, bytes("small")).write(&b, 4096, vec![7u8; 8192].into());
        t.zero(&a, 1, 2).truncate(&a, 99).remove(&b).set_meta(&a, bytes("meta"));
        t.set_attr(&a, bytes("n"), bytes("v")).rm_attr(&a, bytes("m")).rm_attrs(&b);
        t.clone_object(&a, &b).clone_range(&a, 1, 2, &b, 3).rename(&a, &b);
        t.omap_set(&a, vec![(bytes("k"), bytes("v"))]).omap_remove(&a, vec![bytes("k")]);
        t.omap_remove_range(&a, bytes("k"), bytes("l")).omap_clear(&a);
        t.omap_set_header(&a, bytes("h"));
        t
    }

    #[test]
    fn every_op_round_trips_and_whole_blocks_come_first() {
        let t = sample();
        let (mut meta, mut data) = (Encoder::new(), SmallVec::<[Bytes; 4]>::new());
        t.encode_to(&mut meta, &mut data);
        assert_eq!(data[0].len(), 8192);
        let back =
            Transaction::decode_from(&meta.into_bytes(), (&joined(&data), KnownCrc::NONE)).unwrap();
        assert_eq!(back, t);
    }

    proptest! {
        #[test]
        fn damaged_transactions_are_refused_or_read(
            damage in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
            cut in any::<usize>(),
        ) {
            let (mut meta, mut data) = (Encoder::new(), SmallVec::<[Bytes; 4]>::new());
            sample().encode_to(&mut meta, &mut data);
            let mut meta = meta.into_vec();
            for (at, value) in damage {
                let at = at % meta.len();
                meta[at] = value;
            }
            let meta = Bytes::from(meta);
            let data = joined(&data);
            let _ = Transaction::decode_from(&meta, (&data, KnownCrc::NONE));
            let _ = Transaction::decode_from(&meta.slice(..cut % meta.len()), (&data, KnownCrc::NONE));
            let part = data.slice(..cut % data.len());
            let _ = Transaction::decode_from(&meta, (&part, KnownCrc::NONE));
        }
    }
}

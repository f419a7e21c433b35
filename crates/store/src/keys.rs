//! The one ordered key space of the store.
//!
//! | first byte | rest of the key | value |
//! |---|---|---|
//! | 1 | [`ObjectKey`] bytes | [`crate::rows::Onode`] |
//! | 2 | object id (8, big-endian), kind (1), ... | what belongs to one object, see [`Kind`] |
//! | 3 | reference region (8, big-endian) | [`crate::rows::Refs`] |
//! | 4 | space region (4, big-endian) | bitmap of the region |
//! | 5 | account (8, big-endian) | [`crate::accounts::AccountSums`] |
//!
//! All rows of one object stand together, so that removing it is one range deletion, and so that
//! its attributes and extents share tree pages.

use crate::codec::{Decoded, Malformed, Reader};
use smallvec::SmallVec;
use std::cmp::Ordering;
use types::ObjectKey;

/// A key of the ordered space. Extent shards, the PG log, and objects with names of the usual length
/// need no allocation, and a search needs no other memory than the table's own.
pub(crate) type Key = SmallVec<[u8; 80]>;

/// An extent shard: the object's id, and the shard's number.
pub(crate) type ShardId = (u64, u32);

/// Bytes of its key: space, id, kind, number.
const SHARD_KEY_BYTES: usize = 1 + 8 + 1 + 4;

/// Longest object name, attribute name or omap key, in bytes as a key.
pub const MAX_NAME_BYTES: usize = 12 * 1024;

/// Longest key: the piece of a value whose name has only zero bytes.
pub(crate) const MAX_KEY_BYTES: usize = 2 * MAX_NAME_BYTES + 24;

/// Bytes of one object that one extent shard describes.
pub(crate) const SHARD_BLOCKS: u64 = 32;

const SPACE_OBJECT: u8 = 1;
const SPACE_ROWS: u8 = 2;
const SPACE_REFS: u8 = 3;
const SPACE_BITMAP: u8 = 4;
const SPACE_ACCOUNT: u8 = 5;

/// What a row of an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Extents of 128 KiB; the key goes on with the shard's number (4, big-endian).
    Shard = 1,
    /// An attribute; the key goes on with its name.
    Attr = 2,
    /// The omap header; the key ends here.
    Header = 3,
    /// An omap entry; the key goes on with the omap key.
    Omap = 4,
    /// A piece of a value too large for one row; the key goes on with the kind of the row it
    /// belongs to (1), that row's name escaped, and the piece's number (4, big-endian).
    Big = 5,
}

/// The row of an object's record.
pub(crate) fn object(key: &ObjectKey) -> Key {
    let mut out = Key::new();
    out.push(SPACE_OBJECT);
    out.extend_from_slice(key.as_bytes());
    out
}

/// The object whose record has this key.
pub(crate) fn object_of(key: &[u8]) -> Option<ObjectKey> {
    match key.split_first() {
        Some((&SPACE_OBJECT, rest)) => Some(ObjectKey::from_bytes(rest)),
        _ => None,
    }
}

/// Whether it is the key of an object's record.
pub(crate) fn is_object(key: &[u8]) -> bool {
    key.first() == Some(&SPACE_OBJECT)
}

/// After all object records.
pub(crate) fn objects_end() -> Key {
    Key::from_slice(&[SPACE_ROWS])
}

/// Start of everything that belongs to the object `id`.
pub(crate) fn rows(id: u64) -> Key {
    let mut out = Key::new();
    out.push(SPACE_ROWS);
    out.extend_from_slice(&id.to_be_bytes());
    out
}

/// End of everything that belongs to the object `id`.
pub(crate) fn rows_end(id: u64) -> Key {
    rows(id.checked_add(1).expect("object ids do not wrap"))
}

/// Start of the rows of one kind.
pub(crate) fn kind(id: u64, kind: Kind) -> Key {
    let mut out = rows(id);
    out.push(kind as u8);
    out
}

/// End of the rows of one kind.
pub(crate) fn kind_end(id: u64, kind: Kind) -> Key {
    let mut out = rows(id);
    out.push(kind as u8 + 1);
    out
}

/// An extent shard.
pub(crate) fn shard(id: u64, number: u32) -> Key {
    let mut out = kind(id, Kind::Shard);
    out.extend_from_slice(&number.to_be_bytes());
    out
}

/// The object's id and the shard's number, if the key is an extent shard's.
pub(crate) fn shard_of(key: &[u8]) -> Option<ShardId> {
    let (&[SPACE_ROWS, ..], Some((id, rest))) = (key, key.get(1..)?.split_first_chunk()) else {
        return None;
    };
    let (&kind, number) = rest.split_first()?;
    let number = number.try_into().ok().filter(|_| kind == Kind::Shard as u8)?;
    Some((u64::from_be_bytes(*id), u32::from_be_bytes(number)))
}

/// The first shard whose key is not before `key`; `None` when all are.
pub(crate) fn first_shard(key: &[u8]) -> Option<ShardId> {
    // Bytes that are not there are as before all that could be there.
    let mut head = [0; SHARD_KEY_BYTES];
    let known = key.len().min(SHARD_KEY_BYTES);
    head[..known].copy_from_slice(&key[..known]);
    let [space, id @ .., kind, n0, n1, n2, n3] = head;
    let (id, number) = (u64::from_be_bytes(id), u32::from_be_bytes([n0, n1, n2, n3]));
    let next_object = || id.checked_add(1).map(|next| (next, 0));
    match (space.cmp(&SPACE_ROWS), kind.cmp(&(Kind::Shard as u8))) {
        (Ordering::Less, _) => Some((0, 0)),
        (Ordering::Greater, _) => None,
        (Ordering::Equal, Ordering::Less) => Some((id, 0)),
        (Ordering::Equal, Ordering::Greater) => next_object(),
        (Ordering::Equal, Ordering::Equal) if key.len() <= SHARD_KEY_BYTES => Some((id, number)),
        (Ordering::Equal, Ordering::Equal) => {
            number.checked_add(1).map_or_else(next_object, |next| Some((id, next)))
        }
    }
}

/// An attribute or omap entry.
pub(crate) fn named(id: u64, kind_of: Kind, name: &[u8]) -> Key {
    let mut out = kind(id, kind_of);
    out.extend_from_slice(name);
    out
}

/// Start of the pieces of the value of the row `kind_of`, `name`.
pub(crate) fn pieces(id: u64, kind_of: Kind, name: &[u8]) -> Key {
    let mut out = kind(id, Kind::Big);
    out.push(kind_of as u8);
    for &byte in name {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 1]);
    out
}

/// One of them.
pub(crate) fn piece(id: u64, kind_of: Kind, name: &[u8], number: u32) -> Key {
    let mut out = pieces(id, kind_of, name);
    out.extend_from_slice(&number.to_be_bytes());
    out
}

/// After all pieces of the value of the row `kind_of`, `name`.
pub(crate) fn pieces_end(id: u64, kind_of: Kind, name: &[u8]) -> Key {
    let mut out = pieces(id, kind_of, name);
    let last = out.last_mut().expect("a piece key is never empty");
    *last = 2;
    out
}

/// Start of the pieces of all rows of one kind.
pub(crate) fn pieces_of_kind(id: u64, kind_of: Kind) -> Key {
    let mut out = kind(id, Kind::Big);
    out.push(kind_of as u8);
    out
}

/// End of the pieces of all rows of one kind.
pub(crate) fn pieces_of_kind_end(id: u64, kind_of: Kind) -> Key {
    let mut out = kind(id, Kind::Big);
    out.push(kind_of as u8 + 1);
    out
}

/// The reference counts of one region.
pub(crate) fn refs(region: u64) -> Key {
    let mut out = Key::new();
    out.push(SPACE_REFS);
    out.extend_from_slice(&region.to_be_bytes());
    out
}

/// The bitmap of one region.
pub(crate) fn bitmap(region: u32) -> Key {
    let mut out = Key::new();
    out.push(SPACE_BITMAP);
    out.extend_from_slice(&region.to_be_bytes());
    out
}

/// The sums of an account.
pub(crate) fn account(account: u64) -> Key {
    let mut out = Key::new();
    out.push(SPACE_ACCOUNT);
    out.extend_from_slice(&account.to_be_bytes());
    out
}

/// Start of all bitmaps.
pub(crate) fn bitmaps() -> Key {
    Key::from_slice(&[SPACE_BITMAP])
}

/// After all bitmaps and accounts: what a mount reads of the tree.
pub(crate) fn mount_rows_end() -> Key {
    Key::from_slice(&[SPACE_ACCOUNT + 1])
}

/// The smallest key after `key`.
pub(crate) fn after(key: &[u8]) -> Key {
    let mut out = Key::from_slice(key);
    out.push(0);
    out
}

/// The end of all keys that start with `prefix`; `None` when there is no such end.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Key> {
    let keep = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut out = Key::from_slice(prefix.get(..=keep)?);
    let last = out.last_mut()?;
    *last = last.checked_add(1)?;
    Some(out)
}

/// A key taken apart, for tools that read every row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    Object(ObjectKey),
    Shard { id: u64, number: u32 },
    Attr { id: u64, name: &'a [u8] },
    Header { id: u64 },
    Omap { id: u64, name: &'a [u8] },
    Piece { id: u64, kind: u8 },
    Refs { region: u64 },
    Bitmap { region: u32 },
    Account { account: u64 },
}

impl Parsed<'_> {
    /// The id of the object whose row it is, if it is one of those behind an object's record.
    pub fn owner(&self) -> Option<u64> {
        match self {
            Parsed::Shard { id, .. }
            | Parsed::Attr { id, .. }
            | Parsed::Header { id }
            | Parsed::Omap { id, .. }
            | Parsed::Piece { id, .. } => Some(*id),
            Parsed::Object(_) | Parsed::Refs { .. } => None,
            Parsed::Bitmap { .. } | Parsed::Account { .. } => None,
        }
    }
}

/// What a key stands for.
pub(crate) fn parse(key: &[u8]) -> Decoded<Parsed<'_>> {
    let mut r = Reader::new(key);
    match r.u8()? {
        SPACE_OBJECT => Ok(Parsed::Object(ObjectKey::from_bytes(r.rest()))),
        SPACE_ROWS => parse_row(r),
        SPACE_REFS => {
            let region = u64::from_be_bytes(r.array()?);
            r.finish().map(|()| Parsed::Refs { region })
        }
        SPACE_BITMAP => {
            let region = u32::from_be_bytes(r.array()?);
            r.finish().map(|()| Parsed::Bitmap { region })
        }
        SPACE_ACCOUNT => {
            let account = u64::from_be_bytes(r.array()?);
            r.finish().map(|()| Parsed::Account { account })
        }
        _ => Err(Malformed("a key of an unknown space")),
    }
}

fn parse_row(mut r: Reader<'_>) -> Decoded<Parsed<'_>> {
    let id = u64::from_be_bytes(r.array()?);
    match r.u8()? {
        1 => {
            let number = u32::from_be_bytes(r.array()?);
            r.finish().map(|()| Parsed::Shard { id, number })
        }
        2 => Ok(Parsed::Attr { id, name: r.rest() }),
        3 => r.finish().map(|()| Parsed::Header { id }),
        4 => Ok(Parsed::Omap { id, name: r.rest() }),
        5 => Ok(Parsed::Piece { id, kind: r.u8()? }),
        _ => Err(Malformed("a row of an unknown kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_shards_name_shards() {
        assert_eq!(shard_of(&shard(7, 9)), Some((7, 9)));
        let others = [rows(7), kind(7, Kind::Shard), kind_end(7, Kind::Shard), refs(7), bitmap(7)];
        assert!(others.iter().all(|key| shard_of(key).is_none()));
        for kind in [Kind::Attr, Kind::Omap] {
            assert_eq!(shard_of(&named(7, kind, b"four")), None);
        }
    }

    #[test]
    fn keys_come_apart_as_they_were_put_together() {
        assert_eq!(parse(&shard(7, 9)), Ok(Parsed::Shard { id: 7, number: 9 }));
        assert_eq!(parse(&named(7, Kind::Omap, b"k")), Ok(Parsed::Omap { id: 7, name: b"k" }));
        assert_eq!(parse(&bitmap(3)), Ok(Parsed::Bitmap { region: 3 }));
        assert_eq!(parse(&refs(3)), Ok(Parsed::Refs { region: 3 }));
        assert_eq!(parse(&account(3)), Ok(Parsed::Account { account: 3 }));
        assert!(account(u64::MAX) < mount_rows_end() && account(0) > bitmap(u32::MAX));
        let o = ObjectKey::from_bytes(b"name");
        assert_eq!(parse(&object(&o)), Ok(Parsed::Object(o)));
        assert!(parse(b"").is_err());
        assert!(parse(&[9, 9]).is_err());
    }

    #[test]
    fn the_rows_of_an_object_are_one_range() {
        let (from, to) = (rows(5), rows_end(5));
        for key in [
            shard(5, 0),
            shard(5, u32::MAX),
            named(5, Kind::Attr, b""),
            kind(5, Kind::Header),
            named(5, Kind::Omap, &[0xff; 9]),
            piece(5, Kind::Omap, &[0xff; 9], 1),
        ] {
            assert!(from < key && key < to);
        }
        assert!(rows_end(4) <= from && to <= shard(6, 0));
    }

    #[test]
    fn pieces_of_one_value_are_one_range() {
        for (a, b) in [(&b"a"[..], &b"a\0"[..]), (b"", b"\0"), (b"a", b"b"), (b"a", b"a\x01")] {
            let (from, to) = (pieces(1, Kind::Attr, a), pieces_end(1, Kind::Attr, a));
            let mine = piece(1, Kind::Attr, a, u32::MAX);
            let other = piece(1, Kind::Attr, b, 0);
            assert!(from <= mine && mine < to);
            assert!(!(from <= other && other < to));
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_behind_it() {
        assert_eq!(prefix_end(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_end(&[1, 0xff]).as_deref(), Some(&[2][..]));
        assert_eq!(prefix_end(&[0xff, 0xff]), None);
        assert_eq!(prefix_end(b""), None);
    }
}

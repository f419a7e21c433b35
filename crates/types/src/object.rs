//! Names of objects, their order, and the order-preserving key the store keeps them under.

use crate::{PoolId, SnapId};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::{Deref, Range, RangeInclusive};
use std::sync::Arc;

/// Bytes that are usually text: an object's name, an xattr's name, an omap key. Cheap to clone.
///
/// Ceph's strings are bytes and need not be UTF-8. Always a copy, never a slice of a message, so
/// that a cached name does not keep a whole receive buffer alive.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteString(Arc<[u8]>);

impl ByteString {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As text, with replacement characters where it is not UTF-8.
    pub fn to_lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl Deref for ByteString {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for ByteString {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for ByteString {
    fn from(b: &[u8]) -> Self {
        ByteString(b.into())
    }
}

impl From<Vec<u8>> for ByteString {
    fn from(b: Vec<u8>) -> Self {
        ByteString(b.into())
    }
}

impl From<&str> for ByteString {
    fn from(s: &str) -> Self {
        ByteString(s.as_bytes().into())
    }
}

impl From<String> for ByteString {
    fn from(s: String) -> Self {
        ByteString(s.into_bytes().into())
    }
}

impl fmt::Display for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_lossy())
    }
}

impl fmt::Debug for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.to_lossy(), f)
    }
}

/// Full name of one object version in the cluster (`hobject_t`).
///
/// Ordered as Ceph orders them (`common/hobject.cc:cmp`): max last; pool; bit-reversed hash;
/// namespace; effective key; name; snap. Every PG is then one contiguous range, also after a split.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HObject {
    /// The pool; [`HObject::MIN_POOL`] in the smallest object.
    pub pool: PoolId,
    /// 32-bit hash of namespace and effective key.
    pub hash: u32,
    /// Namespace, empty by default.
    pub nspace: ByteString,
    /// Locator key; empty when it is not set or equals the name.
    pub key: ByteString,
    /// The object's name.
    pub name: ByteString,
    /// A clone's id, or [`SnapId::HEAD`].
    pub snap: SnapId,
    /// The object after all others. The other fields are then meaningless.
    pub max: bool,
}

impl HObject {
    /// Pool number of [`HObject::min`].
    pub const MIN_POOL: PoolId = PoolId(i64::MIN);

    /// Before every object: an unset cursor.
    pub fn min() -> Self {
        HObject {
            pool: Self::MIN_POOL,
            hash: 0,
            nspace: ByteString::default(),
            key: ByteString::default(),
            name: ByteString::default(),
            snap: SnapId(0),
            max: false,
        }
    }

    /// After every object.
    pub fn max() -> Self {
        HObject { max: true, ..Self::min() }
    }

    /// Whether this is [`HObject::min`].
    pub fn is_min(&self) -> bool {
        *self == Self::min()
    }

    /// The same object at another snap.
    #[must_use]
    pub fn at_snap(&self, snap: SnapId) -> Self {
        HObject { snap, ..self.clone() }
    }

    /// The head of this object.
    #[must_use]
    pub fn head(&self) -> Self {
        self.at_snap(SnapId::HEAD)
    }

    /// Whether this is a head (and no clone).
    pub fn is_head(&self) -> bool {
        self.snap == SnapId::HEAD
    }

    /// Where the clones of this head stand in the order of objects: directly before it. Of a clone: the older
    /// ones.
    pub fn older(&self) -> Range<HObject> {
        self.at_snap(SnapId(0))..self.clone()
    }

    /// Where this head and its clones stand in the order of objects: oldest first, the head last.
    pub fn versions(&self) -> RangeInclusive<HObject> {
        self.at_snap(SnapId(0))..=self.clone()
    }

    /// What is hashed: the locator key, or the name when there is none.
    pub fn effective_key(&self) -> &ByteString {
        if self.key.is_empty() { &self.name } else { &self.key }
    }

    /// The position in listings: the hash with its bits reversed.
    pub fn reversed_hash(&self) -> u32 {
        self.hash.reverse_bits()
    }

    /// The key of this object in an ordered store.
    pub fn to_key(&self) -> ObjectKey {
        ObjectKey::encode(self)
    }
}

impl Default for HObject {
    fn default() -> Self {
        HObject::min()
    }
}

impl Ord for HObject {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.max || other.max {
            return self.max.cmp(&other.max);
        }
        self.pool
            .cmp(&other.pool)
            .then_with(|| self.reversed_hash().cmp(&other.reversed_hash()))
            .then_with(|| self.nspace.cmp(&other.nspace))
            .then_with(|| self.effective_key().cmp(other.effective_key()))
            .then_with(|| self.name.cmp(&other.name))
            .then_with(|| self.snap.cmp(&other.snap))
    }
}

impl PartialOrd for HObject {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for HObject {
    /// `pool:reversed-hash:namespace:key:name:snap` (`operator<<(hobject_t)`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.max {
            return f.write_str("MAX");
        }
        if self.is_min() {
            return f.write_str("MIN");
        }
        let (pool, hash) = (self.pool, self.reversed_hash());
        write!(f, "{pool}:{hash:08x}:{}:{}:{}:{}", self.nspace, self.key, self.name, self.snap)
    }
}

impl fmt::Debug for HObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An [`HObject`] as bytes whose memcmp order is the order of objects.
///
/// | bytes | content |
/// |---|---|
/// | 8 | pool, big-endian, sign bit flipped |
/// | 4 | reversed hash, big-endian |
/// | n | namespace, escaped |
/// | n | effective key, escaped |
/// | 1 | `=`: the name is the effective key; `<` or `>`: the name follows, smaller or larger |
/// | n | name, escaped (not after `=`) |
/// | 8 | snap, big-endian |
///
/// Escaped: 0x00 becomes 0x00 0xff, and 0x00 0x01 ends the string. [`HObject::max`] is the single
/// byte 0xff, [`HObject::min`] is empty. Pool numbers stay below 2^62, so nothing sorts after max.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Arc<[u8]>);

/// The bytes are not an object key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectKeyError;

impl fmt::Display for ObjectKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed object key")
    }
}

impl std::error::Error for ObjectKeyError {}

const SIGN: u64 = 1 << 63;

impl ObjectKey {
    /// Takes bytes that are used as a key without being decoded.
    pub fn from_bytes(b: &[u8]) -> Self {
        ObjectKey(b.into())
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is, if anything, the key of a clone.
    pub fn is_of_clone(&self) -> bool {
        self.0.last_chunk::<8>().is_some_and(|snap| u64::from_be_bytes(*snap) != SnapId::HEAD.0)
    }

    fn encode(o: &HObject) -> Self {
        if o.max {
            return ObjectKey([0xff].as_slice().into());
        }
        if o.is_min() {
            return ObjectKey([].as_slice().into());
        }
        let mut out = Vec::with_capacity(32 + o.nspace.len() + o.key.len() + o.name.len());
        out.extend_from_slice(&((o.pool.0 as u64) ^ SIGN).to_be_bytes());
        out.extend_from_slice(&o.reversed_hash().to_be_bytes());
        put_escaped(&mut out, &o.nspace);
        put_escaped(&mut out, o.effective_key());
        match o.name.cmp(o.effective_key()) {
            Ordering::Equal => out.push(b'='),
            Ordering::Less => {
                out.push(b'<');
                put_escaped(&mut out, &o.name);
            }
            Ordering::Greater => {
                out.push(b'>');
                put_escaped(&mut out, &o.name);
            }
        }
        out.extend_from_slice(&o.snap.0.to_be_bytes());
        ObjectKey(out.into())
    }

    /// The object this key names.
    ///
    /// # Errors
    /// When the bytes were not made by [`HObject::to_key`].
    pub fn decode(&self) -> Result<HObject, ObjectKeyError> {
        match &*self.0 {
            [] => return Ok(HObject::min()),
            [0xff] => return Ok(HObject::max()),
            _ => {}
        }
        let (pool, rest) = split_array::<8>(&self.0)?;
        let (hash, rest) = split_array::<4>(rest)?;
        let (nspace, rest) = take_escaped(rest)?;
        let (effective, rest) = take_escaped(rest)?;
        let (mark, rest) = rest.split_first().ok_or(ObjectKeyError)?;
        let (key, name, rest) = match mark {
            b'=' => (Vec::new(), effective, rest),
            b'<' | b'>' => {
                let (name, rest) = take_escaped(rest)?;
                let wanted = if *mark == b'<' { Ordering::Less } else { Ordering::Greater };
                if effective.is_empty() || name.cmp(&effective) != wanted {
                    return Err(ObjectKeyError);
                }
                (effective, name, rest)
            }
            _ => return Err(ObjectKeyError),
        };
        let snap: [u8; 8] = rest.try_into().map_err(|_| ObjectKeyError)?;
        let object = HObject {
            pool: PoolId((u64::from_be_bytes(*pool) ^ SIGN) as i64),
            hash: u32::from_be_bytes(*hash).reverse_bits(),
            nspace: nspace.into(),
            key: key.into(),
            name: name.into(),
            snap: SnapId(u64::from_be_bytes(snap)),
            max: false,
        };
        // The least object has a key of its own.
        if object.is_min() { Err(ObjectKeyError) } else { Ok(object) }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decode() {
            Ok(o) => o.fmt(f),
            Err(_) => write!(f, "key {:02x?}", &*self.0),
        }
    }
}

fn split_array<const N: usize>(b: &[u8]) -> Result<(&[u8; N], &[u8]), ObjectKeyError> {
    b.split_first_chunk::<N>().ok_or(ObjectKeyError)
}

fn put_escaped(out: &mut Vec<u8>, s: &[u8]) {
    for &byte in s {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 1]);
}

fn take_escaped(mut b: &[u8]) -> Result<(Vec<u8>, &[u8]), ObjectKeyError> {
    let mut out = Vec::new();
    loop {
        match b {
            [0, 0xff, rest @ ..] => {
                out.push(0);
                b = rest;
            }
            [0, 1, rest @ ..] => return Ok((out, rest)),
            [0, ..] | [] => return Err(ObjectKeyError),
            [byte, rest @ ..] => {
                out.push(*byte);
                b = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(pool: i64, hash: u32, ns: &str, key: &str, name: &[u8], snap: SnapId) -> HObject {
        HObject {
            pool: PoolId(pool),
            hash,
            nspace: ns.into(),
            key: key.into(),
            name: name.into(),
            snap,
            max: false,
        }
    }

    fn samples() -> Vec<HObject> {
        let mut all = vec![HObject::min(), HObject::max()];
        for pool in [-1, 0, 3, 1 << 40] {
            for hash in [0, 1, 0x8000_0000, 0xdead_beef] {
                for (ns, key, name) in [
                    ("", "", &b"a"[..]),
                    ("", "", b"a\0b"),
                    ("", "", b"a\0"),
                    ("", "b", b"a"),
                    ("", "b", b"c"),
                    ("", "", b"b"),
                    ("", "", b"\xff\xfe"),
                    ("n", "", b"a"),
                    ("n\u{1}", "", b"a"),
                ] {
                    for snap in [SnapId(0), SnapId(7), SnapId::HEAD] {
                        all.push(object(pool, hash, ns, key, name, snap));
                    }
                }
            }
        }
        all
    }

    #[test]
    fn keys_sort_as_objects_do_and_decode_back() {
        let all = samples();
        for a in &all {
            assert_eq!(a.to_key().decode().as_ref(), Ok(a));
            for b in &all {
                assert_eq!(a.cmp(b), a.to_key().cmp(&b.to_key()), "{a} against {b}");
            }
        }
    }

    #[test]
    fn damaged_keys_are_refused() {
        let key = object(1, 5, "ns", "k", b"name", SnapId::HEAD).to_key();
        for cut in 1..key.as_bytes().len() {
            assert_eq!(ObjectKey::from_bytes(&key.as_bytes()[..cut]).decode(), Err(ObjectKeyError));
        }
    }

    /// Two keys of one object would be two places for it.
    #[test]
    fn an_object_has_one_key() {
        let key = object(1, 5, "", "k", b"name", SnapId::HEAD).to_key().as_bytes().to_vec();
        let mark = key.iter().position(|b| *b == b'>').unwrap();
        let mut wrong = key.clone();
        wrong[mark] = b'<';
        assert_eq!(ObjectKey::from_bytes(&wrong).decode(), Err(ObjectKeyError));
        // No key (the escape's end alone), and yet a name that differs from it.
        let mut wrong = key.clone();
        wrong.remove(mark - 3);
        assert_eq!(ObjectKey::from_bytes(&wrong).decode(), Err(ObjectKeyError));
        let mut least = HObject::min();
        least.name = "x".into();
        let mut wrong = least.to_key().as_bytes().to_vec();
        let name = wrong.iter().position(|b| *b == b'x').unwrap();
        wrong.remove(name);
        assert_eq!(ObjectKey::from_bytes(&wrong).decode(), Err(ObjectKeyError));
    }
}

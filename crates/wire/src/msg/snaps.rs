//! Snapshot contexts and object locators.

use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use smallvec::SmallVec;
use types::{ByteString, PoolId, SnapId};

/// The snapshots a write knows of: `u64 seq, vec<u64> snaps`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct SnapContext {
    /// The newest snapshot id the writer knows.
    pub seq: SnapId,
    /// Existing snapshots, descending.
    pub snaps: SmallVec<[SnapId; 2]>,
}

impl SnapContext {
    /// Whether the ids are strictly descending and none is newer than `seq`
    /// (`SnapContext::is_valid`).
    pub fn is_valid(&self) -> bool {
        if self.seq > SnapId::MAX {
            return false;
        }
        let descending = self.snaps.is_sorted_by(|a, b| a > b);
        descending && self.snaps.first().is_none_or(|&newest| newest <= self.seq)
    }
}

/// Where an object is, beside its name: object_locator_t V(6,3).
///
/// `i64 pool, i32 -1, str key, str nspace, i64 hash`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectLocator {
    /// The pool.
    pub pool: PoolId,
    /// Hashed instead of the name, unless empty.
    pub key: ByteString,
    /// The namespace.
    pub nspace: ByteString,
    /// An explicit hash, or -1.
    pub hash: i64,
}

impl Default for ObjectLocator {
    fn default() -> Self {
        ObjectLocator {
            pool: PoolId(-1),
            key: ByteString::default(),
            nspace: ByteString::default(),
            hash: -1,
        }
    }
}

impl Encode for ObjectLocator {
    fn encode(&self, e: &mut Encoder) {
        put_locator(e, self.pool, &self.key, &self.nspace, self.hash);
    }
}

/// Writes an object_locator_t from its parts.
pub(super) fn put_locator(e: &mut Encoder, pool: PoolId, key: &[u8], nspace: &[u8], hash: i64) {
    let compat = if hash == -1 { 3 } else { 6 };
    e.section(6, compat, |e| {
        e.put(&pool).put(&-1i32);
        e.put_bytes(key);
        e.put_bytes(nspace);
        e.put(&hash);
    });
}

impl Decode for ObjectLocator {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(6, |d, v| {
            let pool = d.get()?;
            d.get::<i32>()?;
            Ok(ObjectLocator {
                pool,
                key: name(d)?,
                nspace: if v >= 5 { name(d)? } else { ByteString::default() },
                hash: if v >= 6 { d.get()? } else { -1 },
            })
        })
    }
}

/// Reads a name that is often empty, and then costs no allocation.
pub(super) fn name(d: &mut Decoder<'_>) -> Result<ByteString, DecodeError> {
    let n = d.count()?;
    match d.take_slice(n)? {
        [] => Ok(ByteString::default()),
        bytes => Ok(bytes.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snap_contexts_must_descend_from_seq() {
        let snapc = |seq, snaps: &[u64]| SnapContext {
            seq: SnapId(seq),
            snaps: snaps.iter().map(|&s| SnapId(s)).collect(),
        };
        assert!(snapc(0, &[]).is_valid());
        assert!(snapc(9, &[9, 4, 1]).is_valid());
        assert!(!snapc(8, &[9, 4]).is_valid());
        assert!(!snapc(9, &[4, 4]).is_valid());
        assert!(!snapc(9, &[4, 5]).is_valid());
        assert!(!snapc(u64::MAX, &[]).is_valid());
    }
}

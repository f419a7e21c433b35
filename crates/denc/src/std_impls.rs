//! Encodings of numbers, strings and collections (`include/encoding.h`).

use crate::{Decode, DecodeError, Decoder, Encode, Encoder};
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl Encode for $t {
            fn encode(&self, e: &mut Encoder) {
                e.put_raw(&self.to_le_bytes());
            }
        }
        impl Decode for $t {
            fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                Ok(<$t>::from_le_bytes(d.take_array()?))
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

impl Encode for bool {
    fn encode(&self, e: &mut Encoder) {
        u8::from(*self).encode(e);
    }
}

impl Decode for bool {
    /// Any byte but 0 is true, as Ceph reads it.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(d.get::<u8>()? != 0)
    }
}

impl Encode for () {
    fn encode(&self, _: &mut Encoder) {}
}

impl Decode for () {
    fn decode(_: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, e: &mut Encoder) {
        (**self).encode(e);
    }
}

impl<T: Encode + ?Sized> Encode for Box<T> {
    fn encode(&self, e: &mut Encoder) {
        (**self).encode(e);
    }
}

impl<T: Decode> Decode for Box<T> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.get().map(Box::new)
    }
}

impl Encode for str {
    fn encode(&self, e: &mut Encoder) {
        e.put_bytes(self.as_bytes());
    }
}

impl Encode for String {
    fn encode(&self, e: &mut Encoder) {
        e.put_bytes(self.as_bytes());
    }
}

impl Decode for String {
    /// For names that must be text (pools, buckets, options). Object names are `ByteString`.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let bytes = d.take_bytes()?;
        match std::str::from_utf8(&bytes) {
            Ok(s) => Ok(s.to_owned()),
            Err(_) => Err(d.invalid("text that is not UTF-8")),
        }
    }
}

impl Encode for Bytes {
    fn encode(&self, e: &mut Encoder) {
        e.put_bytes(self);
    }
}

impl Decode for Bytes {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.take_bytes()
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, e: &mut Encoder) {
        self.is_some().encode(e);
        if let Some(value) = self {
            value.encode(e);
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        if d.get::<bool>()? { d.get().map(Some) } else { Ok(None) }
    }
}

impl<T: Encode> Encode for [T] {
    fn encode(&self, e: &mut Encoder) {
        e.put_count(self.len());
        for item in self {
            item.encode(e);
        }
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, e: &mut Encoder) {
        self.as_slice().encode(e);
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let n = d.count()?;
        // A count is only a claim: reserve no more than the bytes at hand could hold.
        let mut out = Vec::with_capacity(n.min(d.remaining()).min(4096));
        for _ in 0..n {
            out.push(d.get()?);
        }
        Ok(out)
    }
}

impl<T: Encode, const N: usize> Encode for SmallVec<[T; N]> {
    fn encode(&self, e: &mut Encoder) {
        self.as_slice().encode(e);
    }
}

impl<T: Decode, const N: usize> Decode for SmallVec<[T; N]> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let n = d.count()?;
        let mut out = SmallVec::new();
        for _ in 0..n {
            out.push(d.get()?);
        }
        Ok(out)
    }
}

impl<K: Encode, V: Encode> Encode for BTreeMap<K, V> {
    fn encode(&self, e: &mut Encoder) {
        e.put_count(self.len());
        for (k, v) in self {
            k.encode(e);
            v.encode(e);
        }
    }
}

impl<K: Decode + Ord, V: Decode> Decode for BTreeMap<K, V> {
    /// Any order is read; a key that stands twice keeps its last value.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let n = d.count()?;
        let mut out = BTreeMap::new();
        for _ in 0..n {
            let key = d.get()?;
            out.insert(key, d.get()?);
        }
        Ok(out)
    }
}

impl<K: Encode> Encode for BTreeSet<K> {
    fn encode(&self, e: &mut Encoder) {
        e.put_count(self.len());
        for k in self {
            k.encode(e);
        }
    }
}

impl<K: Decode + Ord> Decode for BTreeSet<K> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let n = d.count()?;
        let mut out = BTreeSet::new();
        for _ in 0..n {
            out.insert(d.get()?);
        }
        Ok(out)
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, e: &mut Encoder) {
        self.0.encode(e);
        self.1.encode(e);
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok((d.get()?, d.get()?))
    }
}

impl<A: Encode, B: Encode, C: Encode> Encode for (A, B, C) {
    fn encode(&self, e: &mut Encoder) {
        self.0.encode(e);
        self.1.encode(e);
        self.2.encode(e);
    }
}

impl<A: Decode, B: Decode, C: Decode> Decode for (A, B, C) {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok((d.get()?, d.get()?, d.get()?))
    }
}

#[cfg(test)]
mod tests {
    use crate::{DecodeErrorKind, decode, decode_all, encode};
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_count_of_four_billion_is_refused_without_allocating() {
        let bytes = Bytes::from_static(&[0xff; 4]);
        assert!(decode::<Vec<u64>>(&bytes).is_err());
        assert!(decode::<BTreeMap<u32, String>>(&bytes).is_err());
        assert!(decode::<Bytes>(&bytes).is_err());
    }

    #[test]
    fn left_over_bytes_are_seen() {
        let err = decode_all::<u16>(&Bytes::from_static(&[1, 2, 3])).unwrap_err();
        assert_eq!(err.kind, DecodeErrorKind::Trailing { bytes: 1 });
    }

    proptest! {
        #[test]
        fn collections_round_trip(m in proptest::collection::btree_map(any::<u32>(), ".*", 0..9),
                                  o in proptest::option::of(any::<i64>())) {
            prop_assert_eq!(&decode_all::<BTreeMap<u32, String>>(&encode(&m)).unwrap(), &m);
            prop_assert_eq!(decode_all::<Option<i64>>(&encode(&o)).unwrap(), o);
        }
    }
}

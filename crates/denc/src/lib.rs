//! Ceph's encoding: little-endian, length-prefixed, with versioned sections.
//!
//! [`Encode`] appends to an [`Encoder`], [`Decode`] reads from a [`Decoder`]. Encoders and decoders
//! for structs are usually derived:
//!
//! ```
//! use denc::{Decode, Encode};
//!
//! /// V(2,1){u32 a; str b (since 2)}
//! #[derive(Debug, PartialEq, Default, Encode, Decode)]
//! #[denc(v = 2, compat = 1)]
//! struct Sample {
//!     a: u32,
//!     #[denc(since = 2)]
//!     b: String,
//! }
//! let s = Sample { a: 7, b: "x".into() };
//! assert_eq!(denc::decode::<Sample>(&denc::encode(&s)).unwrap(), s);
//! ```
//!
//! Without the `denc` attribute a struct is the plain concatenation of its fields. Encodings that
//! depend on the peer's features are written in the newest form only (all 16.2 clients negotiate
//! every feature).
//!
//! Outside bytes never panic here: every read is checked, and a count is never trusted for an
//! allocation. Source of the rules: Ceph `src/include/encoding.h`.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod arena;
mod crc;
mod decoder;
mod encoder;
mod flags;
mod std_impls;
mod types_impls;
mod varint;

pub use arena::{Arena, copy_briefly, encode_briefly, encoded_briefly};
pub use crc::{KnownCrc, crc32c};
pub use decoder::{DecodeError, DecodeErrorKind, Decoder};
pub use denc_derive::{Decode, Encode};
pub use encoder::Encoder;
pub use flags::flags_of;
pub use varint::{put_varint, read_varint, unzigzag, zigzag};

use bytes::Bytes;

/// Can be written in Ceph's encoding.
pub trait Encode {
    /// Appends the value.
    fn encode(&self, e: &mut Encoder);
}

/// Can be read from Ceph's encoding.
pub trait Decode: Sized {
    /// Reads one value.
    ///
    /// # Errors
    /// When the bytes end too early, claim a version we cannot read, or hold an impossible value.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError>;
}

/// The encoding of one value.
pub fn encode<T: Encode + ?Sized>(value: &T) -> Bytes {
    let mut e = Encoder::new();
    value.encode(&mut e);
    e.into_bytes()
}

/// Decodes one value from the start of `bytes`; what follows it is ignored.
///
/// # Errors
/// See [`Decode::decode`].
pub fn decode<T: Decode>(bytes: &Bytes) -> Result<T, DecodeError> {
    T::decode(&mut Decoder::new(bytes))
}

/// Decodes one value that must take up all of `bytes`.
///
/// # Errors
/// See [`Decode::decode`]; also when bytes are left over.
pub fn decode_all<T: Decode>(bytes: &Bytes) -> Result<T, DecodeError> {
    let mut d = Decoder::new(bytes);
    let value = T::decode(&mut d)?;
    d.finish()?;
    Ok(value)
}

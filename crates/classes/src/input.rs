//! Inputs of methods.

use crate::object::CallResult;
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder};

/// A method's input, decoded; EINVAL when it is too short or impossible. More bytes than needed do
/// not matter, as newer clients append arguments.
pub fn args<T: Decode>(input: &Bytes) -> CallResult<T> {
    Ok(denc::decode(input)?)
}

/// A last argument that older clients do not send.
pub struct Tail<T>(pub Option<T>);

impl<T: Decode> Decode for Tail<T> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        if d.remaining() == 0 { Ok(Tail(None)) } else { Ok(Tail(Some(d.get()?))) }
    }
}

/// Arguments of most listings: the name to begin after, and how many are wanted.
pub type ListArgs = (Bytes, u64);

//! Memory for small bytes that are made one after the other and let go about as long after.

use crate::{Encode, Encoder};
use bytes::{Bytes, BytesMut};
use std::cell::RefCell;

/// What is cut into small bytes. All of it stays until the last one of them is let go.
const CHUNK_BYTES: usize = 16 << 10;
/// Larger ones have memory of their own.
const SMALL_BYTES: usize = 1 << 10;

/// Gives out small bytes that share large pieces of memory: an allocation for each would cost more than
/// all the rest of what is done with it, as memory that was let go long ago is in no cache.
#[derive(Debug, Default)]
pub struct Arena {
    chunk: BytesMut,
    scratch: Vec<u8>,
}

impl Arena {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy.
    pub fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() > SMALL_BYTES {
            return Bytes::copy_from_slice(bytes);
        }
        if self.chunk.capacity() < bytes.len() {
            self.chunk = BytesMut::with_capacity(CHUNK_BYTES);
        }
        self.chunk.extend_from_slice(bytes);
        self.chunk.split().freeze()
    }

    /// What `write` writes.
    pub fn written(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        write(&mut scratch);
        if scratch.len() > SMALL_BYTES {
            return scratch.into();
        }
        let bytes = self.copy(&scratch);
        self.scratch = scratch;
        bytes
    }

    /// What `encode` encodes.
    pub fn encoded(&mut self, encode: impl FnOnce(&mut Encoder)) -> Bytes {
        self.written(|out| {
            let mut e = Encoder::append_to(std::mem::take(out));
            encode(&mut e);
            *out = e.into_vec();
        })
    }
}

thread_local! {
    static ARENA: RefCell<Arena> = RefCell::default();
}

/// With this thread's arena, or one for this once: within another such call, or when the thread ends.
fn with_arena<T>(f: impl FnOnce(&mut Arena) -> T) -> T {
    let mut f = Some(f);
    let mut call = |arena: &mut Arena| f.take().map(|f| f(arena));
    let with = |arena: &RefCell<Arena>| arena.try_borrow_mut().ok().and_then(|mut a| call(&mut a));
    match ARENA.try_with(with).ok().flatten() {
        Some(done) => done,
        None => call(&mut Arena::new()).expect("it was not called yet"),
    }
}

/// The encoding of a value that is sent, or copied, soon: what is kept for long would keep much else in
/// memory ([`Arena`]).
pub fn encode_briefly<T: Encode + ?Sized>(value: &T) -> Bytes {
    encoded_briefly(|e| value.encode(e))
}

/// The same, of what `encode` encodes.
pub fn encoded_briefly(encode: impl FnOnce(&mut Encoder)) -> Bytes {
    with_arena(|arena| arena.encoded(encode))
}

/// A copy of a few bytes that live briefly.
pub fn copy_briefly(bytes: &[u8]) -> Bytes {
    with_arena(|arena| arena.copy(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_out_what_was_written() {
        let mut arena = Arena::new();
        let all: Vec<Bytes> = (0..5000u32).map(|n| arena.copy(&n.to_le_bytes())).collect();
        let long = arena.copy(&[7; SMALL_BYTES + 1]);
        assert!(all.iter().enumerate().all(|(n, b)| b[..] == (n as u32).to_le_bytes()));
        assert_eq!((long.len(), arena.copy(&[]).len()), (SMALL_BYTES + 1, 0));
        assert_eq!(arena.written(|out| out.extend([8; 2 * SMALL_BYTES])).len(), 2 * SMALL_BYTES);
        assert_eq!(encode_briefly(&7u64), crate::encode(&7u64));
        let within = encoded_briefly(|e| e.put_raw(&copy_briefly(b"within")));
        assert_eq!(within, copy_briefly(b"within"));
    }
}

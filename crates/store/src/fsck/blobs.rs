//! Compressed extents, put together block by block: whether they can be unpacked.

use crate::blob::Blob;
use crate::compress::Codec;
use bytes::Bytes;
use io::BLOCK_BYTES;
use std::sync::Arc;
use types::HashMap;

/// The blocks of one that have come.
struct Loading {
    packed: Vec<u8>,
    left: usize,
    bad: bool,
}

/// Those of which blocks are being read, each by the row that refers to it.
#[derive(Default)]
pub(super) struct BlobChecks {
    loading: HashMap<usize, Loading>,
    codec: Codec,
}

impl BlobChecks {
    /// A block of a blob was read; `None` when it is damaged, which has been said. False when it was
    /// the last one, all of them are good, and they cannot be unpacked.
    pub fn loaded(&mut self, blob: &Arc<Blob>, at: usize, block: Option<Bytes>) -> bool {
        let name = Arc::as_ptr(blob).addr();
        let count = blob.crcs.len();
        let loading = self.loading.entry(name).or_insert_with(|| {
            let packed = vec![0; count.saturating_mul(BLOCK_BYTES)];
            Loading { packed, left: count, bad: false }
        });
        let from = at.saturating_mul(BLOCK_BYTES);
        let place = loading.packed.get_mut(from..from.saturating_add(BLOCK_BYTES));
        match (block, place) {
            (Some(block), Some(place)) => place.copy_from_slice(&block),
            _ => loading.bad = true,
        }
        loading.left = loading.left.saturating_sub(1);
        if loading.left > 0 {
            return true;
        }
        let Some(loading) = self.loading.remove(&name).filter(|l| !l.bad) else { return true };
        let packed = loading.packed.get(..blob.bytes as usize).unwrap_or_default();
        self.codec.unpack(blob.algorithm, packed, blob.content_bytes()).is_some()
    }
}

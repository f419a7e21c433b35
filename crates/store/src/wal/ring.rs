//! From the endless log to the ring.

/// `len` blocks of the endless log from `at` on, as ranges of a ring of `ring` blocks: first block
/// in the ring, offset from `at`, number of blocks.
pub(crate) fn split_ring(at: u64, len: u64, ring: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    assert!(len <= ring, "the ring holds what is written to it");
    let first = at % ring;
    let head = len.min(ring - first);
    [(first, 0, head), (0, head, len - head)].into_iter().filter(|(_, _, n)| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_around_the_end() {
        assert_eq!(split_ring(13, 2, 10).collect::<Vec<_>>(), [(3, 0, 2)]);
        assert_eq!(split_ring(18, 2, 10).collect::<Vec<_>>(), [(8, 0, 2)]);
        assert_eq!(split_ring(19, 3, 10).collect::<Vec<_>>(), [(9, 0, 1), (0, 1, 2)]);
        assert_eq!(split_ring(0, 10, 10).collect::<Vec<_>>(), [(0, 0, 10)]);
    }
}

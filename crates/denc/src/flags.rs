//! A byte of flags, as records have that leave out what most of them do not have.

/// The flags of what is so.
#[inline]
pub fn flags_of<const N: usize>(facts: [(u8, bool); N]) -> u8 {
    facts.into_iter().filter(|(_, is_so)| *is_so).fold(0, |flags, (flag, _)| flags | flag)
}

//! What versions of a map have in common.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value that its copies share until one of them changes it.
///
/// A map of thousands of pools and OSDs is copied for each change, and most of it stays as it was: with its large
/// parts shared, a copy costs nothing, and a change what it changes. To be written to, a shared value is copied
/// first, so that who only looks should not ask for `&mut`.
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Whether both are one value in memory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Shared(Arc::new(value))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        T::default().into()
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.0 == other.0
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<'a, T> IntoIterator for &'a Shared<T>
where
    &'a T: IntoIterator,
{
    type Item = <&'a T as IntoIterator>::Item;
    type IntoIter = <&'a T as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        (&**self).into_iter()
    }
}

impl<T: Encode> Encode for Shared<T> {
    fn encode(&self, e: &mut Encoder) {
        self.0.encode(e);
    }
}

impl<T: Decode> Decode for Shared<T> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.get().map(|value: T| value.into())
    }
}

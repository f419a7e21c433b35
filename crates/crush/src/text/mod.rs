//! The text form of a map: what `crushtool -d` prints and `crushtool -c` reads.

mod ast;
mod compile;
mod decompile;
mod parse;
mod tokens;

pub use compile::compile;
pub use decompile::decompile;

use std::fmt;

/// A place in a text, both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub line: usize,
    pub col: usize,
}

/// Why a text is not a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// The line, from 1.
    pub line: usize,
    /// The column, in characters from 1.
    pub col: usize,
    /// What is wrong; Ceph's sentence where it has one.
    pub message: String,
}

impl CompileError {
    pub(crate) fn at(place: Place, message: impl Into<String>) -> Self {
        CompileError { line: place.line, col: place.col, message: message.into() }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} error: {}", self.line, self.col, self.message)
    }
}

impl std::error::Error for CompileError {}

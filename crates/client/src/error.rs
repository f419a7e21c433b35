//! Why a request failed.

use crate::op::ObjectOp;
use crate::reply::OpReply;
use std::borrow::Cow;
use std::fmt;
use types::Errno;

/// A request failed: the error number a C program would get, and what happened to what and why.
#[derive(Clone, Debug)]
pub struct ClientError {
    /// The error number. A comparison of bytes that fails at offset `n` has 4095 + `n`.
    pub errno: Errno,
    /// What was asked for: `write_full of object x in pool 2`.
    pub what: String,
    /// Why it failed, as far as the client knows more than the number.
    pub why: Cow<'static, str>,
    /// The answer of the OSD, if it was one: each operation's own result and output.
    pub reply: Option<Box<OpReply>>,
}

impl ClientError {
    pub(crate) fn new(
        errno: Errno,
        what: impl Into<String>,
        why: impl Into<Cow<'static, str>>,
    ) -> Self {
        ClientError { errno, what: what.into(), why: why.into(), reply: None }
    }

    /// Whether an OSD says that there is no such object. That there is no such pool any more is something else: what
    /// is in its objects is not zeros, and what is written to them does not become durable.
    pub(crate) fn is_no_object(&self) -> bool {
        self.errno == Errno::ENOENT && self.reply.is_some()
    }

    /// The number of a CMPEXT's mismatch in the object.
    pub fn mismatch_offset(&self) -> Option<u64> {
        const MAX_ERRNO: i32 = 4095;
        let past = self.errno.0.checked_sub(MAX_ERRNO)?;
        u64::try_from(past).ok()
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mismatch_offset() {
            Some(at) => write!(f, "{}: the bytes differ at offset {at}", self.what)?,
            None => write!(f, "{}: {}", self.what, self.errno)?,
        }
        if self.why.is_empty() { Ok(()) } else { write!(f, " ({})", self.why) }
    }
}

impl std::error::Error for ClientError {}

/// Too much is in flight: take completions, then submit this again. Nothing was lost or sent.
#[derive(Debug)]
pub struct Busy(pub Box<ObjectOp>);

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as many requests are in flight as the client may have")
    }
}

impl std::error::Error for Busy {}

/// An error number from a wire result, which is negative.
pub(crate) fn errno_of(result: i32) -> Errno {
    Errno(result.checked_neg().unwrap_or(i32::MAX))
}

//! Answers to requests, as far as they must be the same.

use client::{ClientError, OpReply};
use std::fmt;
use wire::msg::op_data::{CallIn, SparseReadOut};
use wire::msg::{OpCode, OsdOp, ReplyOp};

/// Bytes of an output that are shown.
const SHOWN_BYTES: usize = 160;
/// EINPROGRESS.
const AT_IT: i32 = -115;

/// What came back.
pub struct Answer {
    pub result: i32,
    ops: Vec<OpAnswer>,
}

struct OpAnswer {
    code: OpCode,
    rval: i32,
    length: u64,
    output: Vec<u8>,
}

impl Answer {
    pub fn of(result: Result<OpReply, ClientError>) -> Self {
        let (result, reply) = match result {
            Ok(reply) => (reply.result, reply),
            Err(e) => (-e.errno.0, e.reply.map(|r| *r).unwrap_or_default()),
        };
        Answer { result, ops: reply.ops.iter().map(OpAnswer::of).collect() }
    }

    /// Where it differs from another one, in a few words.
    ///
    /// `is_own`: outputs need only be as long.
    pub fn difference(&self, other: &Answer, is_own: bool) -> Option<String> {
        let mut words = Vec::new();
        if self.result != other.result {
            words.push(format!("result {} / {}", self.result, other.result));
        }
        if self.ops.len() != other.ops.len() {
            words.push("number of operations".to_owned());
        }
        for (ours, theirs) in self.ops.iter().zip(&other.ops) {
            ours.differences(theirs, self.result >= 0, is_own, &mut words);
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}

impl OpAnswer {
    fn of(op: &ReplyOp) -> Self {
        let length = if op.code == OpCode::READ { op.args.extent().length } else { 0 };
        let output = op.output();
        let output = match op.code {
            // Where a store begins and ends what is stored is its own affair.
            OpCode::SPARSE_READ => denc::decode(&output).map_or_else(|_| output.to_vec(), said),
            OpCode::MAPEXT => Vec::new(),
            _ => output.to_vec(),
        };
        OpAnswer { code: op.code, rval: op.rval, length, output }
    }

    fn differences(
        &self,
        other: &OpAnswer,
        succeeded: bool,
        is_own: bool,
        words: &mut Vec<String>,
    ) {
        let code = self.code;
        // An OSD of Ceph that failed to copy leaves the mark of one that is at it.
        let failed_to_copy = code == OpCode::COPY_FROM && other.rval == AT_IT;
        if self.rval != other.rval && (succeeded || !failed_to_copy) {
            words.push(format!("{code} result {} / {}", self.rval, other.rval));
        }
        if succeeded && self.rval >= 0 && self.length != other.length {
            words.push(format!("{code} length"));
        }
        let is_same = if is_own {
            self.output.len() == other.output.len()
        } else {
            self.output == other.output
        };
        if self.rval >= 0 && !is_same {
            words.push(format!("{code} output"));
        }
    }
}

/// What is not zero, and where.
fn said(read: SparseReadOut) -> Vec<u8> {
    let at = read.extents.map.iter().flat_map(|(from, len)| *from..from + len);
    let bytes = at.zip(read.data.iter()).filter(|(_, byte)| **byte != 0);
    bytes.flat_map(|(at, byte)| at.to_be_bytes().into_iter().chain([*byte])).collect()
}

/// An operation of a request, for people.
pub fn show(op: &OsdOp) -> String {
    let e = op.args.extent();
    let mut text = match op.code {
        OpCode::COPY_FROM => format!("{} {:?}", op.code, op.args.copy_from()),
        OpCode::CALL => {
            let call = CallIn::of(op).unwrap_or_default();
            return format!("{}.{} {}", call.class, call.method, Hex(&call.input));
        }
        _ => format!("{} ({}, {})", op.code, e.offset, e.length),
    };
    if op.flags != 0 {
        text.push_str(&format!(" flags {:#x}", op.flags));
    }
    format!("{text} {}", Hex(&op.indata))
}

/// Bytes, cut after some.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.iter().take(SHOWN_BYTES) {
            write!(f, "{byte:02x}")?;
        }
        if self.0.len() > SHOWN_BYTES { write!(f, "… ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.result)?;
        for op in &self.ops {
            write!(f, " | {} {} {}", op.code, op.rval, Hex(&op.output))?;
        }
        Ok(())
    }
}

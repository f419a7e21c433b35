//! Asking the cluster store: tokens, and the version commits start from.

use io::Effects;
use io::kv::{KvAnswer, KvBatch, KvOp, KvToken, KvVersion};

/// Operations under way.
#[derive(Debug, Default)]
pub(crate) struct Kv {
    version: KvVersion,
    last: u64,
}

impl Kv {
    /// Starts an operation.
    pub fn submit(&mut self, op: KvOp, fx: &mut Effects) -> KvToken {
        self.last += 1;
        let token = KvToken(self.last);
        fx.kv.push((token, op));
        token
    }

    /// Starts a commit.
    pub fn commit(&mut self, batch: KvBatch, fx: &mut Effects) -> KvToken {
        self.submit(KvOp::Commit { from: self.version, batch }, fx)
    }

    /// Notes where the store is.
    pub fn saw(&mut self, answer: &KvAnswer) {
        match answer {
            KvAnswer::Pairs(_, version)
            | KvAnswer::Committed(version)
            | KvAnswer::Conflict(version) => self.version = *version,
            KvAnswer::Value(_) | KvAnswer::Space(_) => {}
        }
    }
}

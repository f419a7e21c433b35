//! A cluster store in memory: the model of the others.

use bytes::Bytes;
use io::kv::{ClusterStore, KvAnswer, KvBatch, KvDone, KvOp, KvSpace, KvToken, KvVersion};
use std::collections::{BTreeMap, VecDeque};

/// Keeps everything in memory. Cloning it is a snapshot: what a crash leaves.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pairs: BTreeMap<Bytes, Bytes>,
    version: KvVersion,
    done: VecDeque<(KvToken, KvAnswer)>,
    space: Option<KvSpace>,
}

impl Memory {
    /// The keys and values.
    pub fn pairs(&self) -> &BTreeMap<Bytes, Bytes> {
        &self.pairs
    }

    /// How much room it says there is.
    pub fn set_space(&mut self, space: Option<KvSpace>) {
        self.space = space;
    }

    /// Forgets answers that nobody has taken: the mon that asked is gone.
    pub fn crash(&mut self) {
        self.done.clear();
    }

    fn apply(&mut self, batch: KvBatch) {
        for (key, value) in batch.changes {
            match value {
                Some(value) => self.pairs.insert(key, value),
                None => self.pairs.remove(&key),
            };
        }
        self.version.0 += 1;
    }

    fn answer(&mut self, op: KvOp) -> KvAnswer {
        match op {
            KvOp::Scan { from, to, max } if from < to => {
                let range = self.pairs.range(from..to).take(max);
                KvAnswer::Pairs(range.map(|(k, v)| (k.clone(), v.clone())).collect(), self.version)
            }
            KvOp::Scan { .. } => KvAnswer::Pairs(Vec::new(), self.version),
            KvOp::Get { key } => KvAnswer::Value(self.pairs.get(&key).cloned()),
            KvOp::Space => KvAnswer::Space(self.space),
            KvOp::Commit { from, .. } if from != self.version => KvAnswer::Conflict(self.version),
            KvOp::Commit { batch, .. } => {
                self.apply(batch);
                KvAnswer::Committed(self.version)
            }
        }
    }
}

impl ClusterStore for Memory {
    fn submit(&mut self, token: KvToken, op: KvOp) {
        let answer = self.answer(op);
        self.done.push_back((token, answer));
    }

    fn poll(&mut self) -> Option<KvDone> {
        let (token, answer) = self.done.pop_front()?;
        Some(KvDone { token, result: Ok(answer) })
    }
}

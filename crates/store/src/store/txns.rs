//! Transactions on their way to being durable.
//!
//! A transaction is decided when its batch is durable, the data it wrote beside the log is, and so
//! are all before it in its sequencer. Only a transaction with data beside the log, or one behind
//! such a one in its sequencer, can be lost while later batches are kept (*droppable*); another
//! sequencer's transaction must not build on it before it is decided.

use smallvec::SmallVec;
use std::collections::VecDeque;
use types::{HashMap, Mono};

#[derive(Debug)]
struct Flight {
    sequencer: u64,
    has_data: bool,
    droppable: bool,
    logged: bool,
    /// Writes beside the log, and the flush they may need, that are not done.
    data_left: u32,
    decided: bool,
    submitted: Mono,
}

#[derive(Debug, Default)]
struct Sequence {
    waiting: SmallVec<[u64; 4]>,
    /// How many of them have data beside the log.
    with_data: usize,
}

/// Something that became decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub txn: u64,
    pub submitted: Mono,
}

/// The table of transactions that are not decided.
#[derive(Debug)]
pub(crate) struct Txns {
    /// The first entry of `flights`.
    first: u64,
    flights: VecDeque<Flight>,
    sequences: HashMap<u64, Sequence>,
}

impl Txns {
    /// Transactions are numbered from `next` on; all before are decided.
    pub fn new(next: u64) -> Self {
        Txns { first: next, flights: VecDeque::new(), sequences: HashMap::default() }
    }

    /// The number of the next transaction.
    pub fn next(&self) -> u64 {
        self.first + self.flights.len() as u64
    }

    /// This one and all before are decided.
    pub fn decided(&self) -> u64 {
        self.first - 1
    }

    /// How many are under way.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    fn flight(&mut self, txn: u64) -> &mut Flight {
        let index = (txn - self.first) as usize;
        &mut self.flights[index]
    }

    /// Whether a transaction of `sequencer` must wait for `txn` before it builds on it.
    pub fn is_foreign(&self, txn: u64, sequencer: u64) -> bool {
        let Some(index) = txn.checked_sub(self.first) else { return false };
        let flight = self.flights.get(index as usize);
        flight.is_some_and(|f| f.droppable && !f.decided && f.sequencer != sequencer)
    }

    /// Starts the next transaction, with `data` writes beside the log.
    pub fn begin(&mut self, sequencer: u64, data: u32, now: Mono) -> u64 {
        let txn = self.next();
        let sequence = self.sequences.entry(sequencer).or_default();
        sequence.waiting.push(txn);
        sequence.with_data += usize::from(data > 0);
        let droppable = sequence.with_data > 0;
        self.flights.push_back(Flight {
            sequencer,
            has_data: data > 0,
            droppable,
            logged: false,
            data_left: data,
            decided: false,
            submitted: now,
        });
        txn
    }

    /// The batch of `txn` is durable.
    pub fn logged(&mut self, txn: u64, out: &mut Vec<Decided>) {
        let flight = self.flight(txn);
        flight.logged = true;
        let sequencer = flight.sequencer;
        self.advance(sequencer, out);
    }

    /// One of its writes beside the log is done.
    pub fn data_done(&mut self, txn: u64, out: &mut Vec<Decided>) {
        let flight = self.flight(txn);
        assert!(flight.data_left > 0, "a write beside the log ends once");
        flight.data_left -= 1;
        let sequencer = flight.sequencer;
        self.advance(sequencer, out);
    }

    fn advance(&mut self, sequencer: u64, out: &mut Vec<Decided>) {
        let Some(sequence) = self.sequences.get_mut(&sequencer) else { return };
        let mut done = 0;
        for &txn in &sequence.waiting {
            let flight = &mut self.flights[(txn - self.first) as usize];
            if !flight.logged || flight.data_left > 0 {
                break;
            }
            flight.decided = true;
            out.push(Decided { txn, submitted: flight.submitted });
            done += 1;
            sequence.with_data -= usize::from(flight.has_data);
        }
        sequence.waiting.drain(..done);
        if sequence.waiting.is_empty() {
            self.sequences.remove(&sequencer);
        }
        while self.flights.front().is_some_and(|f| f.decided) {
            self.flights.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(f: impl FnOnce(&mut Vec<Decided>)) -> Vec<u64> {
        let mut out = Vec::new();
        f(&mut out);
        out.iter().map(|d| d.txn).collect()
    }

    #[test]
    fn each_sequencer_is_decided_in_order() {
        let mut t = Txns::new(10);
        let begin = |t: &mut Txns, s, d| t.begin(s, d, Mono(0));
        assert_eq!(begin(&mut t, 1, 1), 10);
        assert_eq!(begin(&mut t, 1, 0), 11);
        assert_eq!(begin(&mut t, 2, 0), 12);
        assert!(t.is_foreign(11, 2) && !t.is_foreign(11, 1) && !t.is_foreign(12, 1));
        assert_eq!(done(|o| t.logged(10, o)), []);
        assert_eq!(done(|o| t.logged(11, o)), []);
        assert_eq!(done(|o| t.logged(12, o)), [12]);
        assert_eq!((t.decided(), t.in_flight()), (9, 3));
        assert_eq!(done(|o| t.data_done(10, o)), [10, 11]);
        assert_eq!((t.decided(), t.next(), t.in_flight()), (12, 13, 0));
        assert!(!t.is_foreign(11, 2));
        begin(&mut t, 1, 0);
        assert!(!t.is_foreign(13, 2));
    }
}

//! Whether a history of one object is linearizable: whether each request can be given one moment
//! between its invocation and its answer, so that all of them, done at their moments, explain every
//! answer.
//!
//! The search is Wing and Gong's with Lowe's memory (as in Knossos and Porcupine): take any request
//! that was invoked before the first open answer, do it, go on; go back when nothing fits; never
//! look twice at the same set of done requests with the same state. A request without an answer may
//! be done at any later moment, or never.

use std::hash::{DefaultHasher, Hash, Hasher};
use types::HashMap;

/// What one object does: the sequential truth.
pub trait Spec {
    /// What it is at a moment.
    type State: Clone + Eq + Hash;
    /// A request together with its answer, if it got one.
    type Op;
    /// The state after the request, if the answer is the one it gets in this state.
    fn step(state: &Self::State, op: &Self::Op) -> Option<Self::State>;
}

/// One request. Times are places in one order of all events of a run.
#[derive(Clone, Debug)]
pub struct Record<O> {
    /// When it was sent.
    pub invoked: u64,
    /// When its answer came; `None`: it never did.
    pub answered: Option<u64>,
    /// What it was.
    pub op: O,
}

/// Why there is no order of requests that explains all answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The longest order found: indices into the history.
    pub done: Vec<usize>,
    /// The request whose answer nothing explains after it.
    pub stuck: usize,
}

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Linearizable,
    /// There is none.
    Violated(Violation),
    /// The search was given up: too many orders.
    TooHard,
}

/// Steps after which a search is given up.
const MAX_STEPS: u64 = 20_000_000;

/// Invocations and answers in the order of time, as a list from which pairs can be taken out and put
/// back. Node 0 is the head; each request has two nodes.
struct List {
    next: Vec<usize>,
    prev: Vec<usize>,
    /// For each node, its request, and whether it is the answer.
    what: Vec<(usize, bool)>,
    call: Vec<usize>,
    answer: Vec<usize>,
}

impl List {
    fn new<O>(history: &[Record<O>]) -> Self {
        let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(history.len() * 2);
        for (i, r) in history.iter().enumerate() {
            events.push((r.invoked, false, i));
            events.push((r.answered.unwrap_or(u64::MAX), true, i));
        }
        events.sort_unstable();
        let n = events.len() + 1;
        let (mut call, mut answer) = (vec![0; history.len()], vec![0; history.len()]);
        let mut what = vec![(usize::MAX, false)];
        for (node, (_, is_answer, i)) in events.into_iter().enumerate() {
            *(if is_answer { &mut answer } else { &mut call }).get_mut(i).expect("a request") =
                node + 1;
            what.push((i, is_answer));
        }
        let next = (1..=n).map(|i| i % n).collect();
        let prev = (0..n).map(|i| (i + n - 1) % n).collect();
        List { next, prev, what, call, answer }
    }

    fn first(&self) -> usize {
        self.next[0]
    }

    fn unlink(&mut self, node: usize) {
        let (p, n) = (self.prev[node], self.next[node]);
        self.next[p] = n;
        self.prev[n] = p;
    }

    fn relink(&mut self, node: usize) {
        let (p, n) = (self.prev[node], self.next[node]);
        self.next[p] = node;
        self.prev[n] = node;
    }

    fn take_out(&mut self, op: usize) {
        self.unlink(self.call[op]);
        self.unlink(self.answer[op]);
    }

    fn put_back(&mut self, op: usize) {
        self.relink(self.answer[op]);
        self.relink(self.call[op]);
    }
}

/// Which requests are done.
type Set = Vec<u64>;

fn hash_of<S: Hash>(done: &Set, state: &S) -> u64 {
    let mut hasher = DefaultHasher::new();
    (done, state).hash(&mut hasher);
    hasher.finish()
}

/// The sets and states that were looked at, by their hash.
type Seen<S> = HashMap<u64, Vec<(Set, S)>>;

fn is_new<S: Hash + Eq + Clone>(seen: &mut Seen<S>, done: &Set, state: &S) -> bool {
    let alike = seen.entry(hash_of(done, state)).or_default();
    let known = alike.iter().any(|(d, s)| d == done && s == state);
    if !known {
        alike.push((done.clone(), state.clone()));
    }
    !known
}

/// Looks for an order of the requests of `history`, beginning with `state`.
pub fn check<S: Spec>(state: S::State, history: &[Record<S::Op>]) -> Verdict {
    let mut list = List::new(history);
    let mut done: Set = vec![0; history.len().div_ceil(64)];
    let mut stack: Vec<(usize, S::State)> = Vec::new();
    let mut state = state;
    let mut seen = Seen::default();
    let mut open = history.iter().filter(|r| r.answered.is_some()).count();
    let mut best = Violation { done: Vec::new(), stuck: 0 };
    let mut node = list.first();
    let mut steps = 0;
    while open > 0 {
        steps += 1;
        if steps > MAX_STEPS {
            return Verdict::TooHard;
        }
        let (op, is_answer) = list.what[node];
        let record = history.get(op);
        let after = record.filter(|_| !is_answer).and_then(|r| S::step(&state, &r.op));
        if let Some(after) = after {
            done[op / 64] |= 1 << (op % 64);
            if is_new(&mut seen, &done, &after) {
                stack.push((op, std::mem::replace(&mut state, after)));
                list.take_out(op);
                open -= usize::from(history[op].answered.is_some());
                node = list.first();
                continue;
            }
            done[op / 64] &= !(1 << (op % 64));
        }
        if !is_answer && node != 0 {
            node = list.next[node];
            continue;
        }
        // This answer came, and its request could not be done before it.
        if stack.len() >= best.done.len() {
            best = Violation { done: stack.iter().map(|(op, _)| *op).collect(), stuck: op };
        }
        let Some((undone, before)) = stack.pop() else { return Verdict::Violated(best) };
        state = before;
        done[undone / 64] &= !(1 << (undone % 64));
        list.put_back(undone);
        open += usize::from(history[undone].answered.is_some());
        node = list.next[list.call[undone]];
    }
    Verdict::Linearizable
}

#[cfg(test)]
mod tests {
    use super::*;
    use Op::{Read, Write};

    struct Register;

    #[derive(Clone, Copy)]
    enum Op {
        Write(u8),
        Read(u8),
    }

    impl Spec for Register {
        type State = u8;
        type Op = Op;
        fn step(state: &u8, op: &Op) -> Option<u8> {
            match op {
                Write(v) => Some(*v),
                Read(v) => (v == state).then_some(*v),
            }
        }
    }

    fn verdict(history: &[(u64, u64, Op)]) -> Verdict {
        let record = |(from, to, op): &(u64, u64, Op)| Record {
            invoked: *from,
            answered: (*to != 0).then_some(*to),
            op: *op,
        };
        check::<Register>(0, &history.iter().map(record).collect::<Vec<_>>())
    }

    fn is_good(history: &[(u64, u64, Op)]) -> bool {
        match verdict(history) {
            Verdict::Linearizable => true,
            Verdict::Violated(_) => false,
            Verdict::TooHard => panic!("too hard"),
        }
    }

    #[test]
    fn what_happens_one_after_the_other_is_known() {
        assert!(is_good(&[]));
        assert!(is_good(&[(1, 2, Write(1)), (3, 4, Read(1))]));
        // A stale read.
        assert!(!is_good(&[(1, 2, Write(1)), (3, 4, Write(2)), (5, 6, Read(1))]));
        // A lost write.
        assert!(!is_good(&[(1, 2, Write(1)), (3, 4, Read(0))]));
        // A value nobody wrote.
        assert!(!is_good(&[(1, 2, Write(1)), (3, 4, Read(7))]));
    }

    #[test]
    fn what_overlaps_may_have_any_order_but_only_one() {
        assert!(is_good(&[(1, 4, Write(1)), (2, 3, Read(0))]));
        assert!(is_good(&[(1, 4, Write(1)), (2, 3, Read(1))]));
        // New, then old again.
        assert!(!is_good(&[(1, 9, Write(1)), (2, 3, Read(1)), (4, 5, Read(0))]));
        // Two writers, two readers that see different orders.
        let writes = [(1, 4, Write(1)), (2, 5, Write(2))];
        let reads = [(6, 7, Read(1)), (8, 9, Read(2))];
        assert!(!is_good(&[writes[0], writes[1], reads[0], reads[1]]));
        assert!(is_good(&[writes[0], writes[1], reads[0]]));
        assert!(is_good(&[writes[0], writes[1], reads[1]]));
    }

    #[test]
    fn what_was_not_answered_may_happen_late_or_never_but_not_early() {
        assert!(is_good(&[(1, 0, Write(1)), (2, 3, Read(0)), (4, 5, Read(1))]));
        assert!(is_good(&[(1, 0, Write(1)), (2, 3, Read(0))]));
        assert!(!is_good(&[(1, 0, Write(1)), (2, 3, Read(1)), (4, 5, Read(0))]));
        assert!(!is_good(&[(2, 3, Read(1)), (4, 0, Write(1))]));
    }

    #[test]
    fn a_violation_names_the_answer_that_nothing_explains() {
        let history = [(1, 2, Write(1)), (3, 4, Read(1)), (5, 6, Write(2)), (7, 8, Read(1))];
        let Verdict::Violated(v) = verdict(&history) else { panic!("it is one") };
        assert_eq!(v, Violation { done: vec![0, 1, 2], stuck: 3 });
    }

    /// Against every order, for small random histories.
    #[test]
    fn it_says_what_trying_all_orders_says() {
        fn any_order(state: u8, left: &[(u64, u64, Op)]) -> bool {
            let first = left.iter().map(|(_, to, _)| *to).min().unwrap_or(u64::MAX);
            left.is_empty()
                || (0..left.len()).any(|i| {
                    let mut rest = left.to_vec();
                    let (from, _, op) = rest.remove(i);
                    let after = Register::step(&state, &op).filter(|_| from < first);
                    after.is_some_and(|s| any_order(s, &rest))
                })
        }
        let mut rng = io::Rng::with_seed(3);
        let mut bad = 0;
        for _ in 0..4000 {
            let op = |rng: &mut io::Rng| match rng.bool() {
                true => Write(rng.u8(1..4)),
                false => Read(rng.u8(0..4)),
            };
            let mut times: Vec<u64> = (1..=12).collect();
            rng.shuffle(&mut times);
            let history: Vec<_> =
                times.chunks(2).map(|c| (c[0].min(c[1]), c[0].max(c[1]), op(&mut rng))).collect();
            let wanted = any_order(0, &history);
            assert_eq!(is_good(&history), wanted);
            bad += u32::from(!wanted);
        }
        assert!((400..3600).contains(&bad), "{bad} of 4000 were bad");
    }
}

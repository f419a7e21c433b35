//! Whether a history of one object is linearizable: whether each request can be given one moment
//! between its invocation and its answer, so that all of them, done at their moments, explain every
//! answer.
//!
//! The search is Wing and Gong's with Lowe's memory (as in Knossos and Porcupine): take any request
//! that was invoked before the first open answer, do it, go on; go back when nothing fits; never
//! look twice at the same set of done requests with the same state. A request without an answer may
//! be done at any later moment, or never.
//!
//! Three things keep it short. A request that only looks is done as soon as its answer is right, and nothing
//! else is tried in its place. Of two ways to the same state with the same answered requests, the one that
//! needed fewer of the unanswered ones is as good as the other: that one is not followed. And unanswered
//! requests are done only where nothing else leads on, first where most of the answered ones are done.

use std::cmp::Reverse;
use std::collections::BTreeMap;
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
    /// Whether the request changes nothing in any state in which its answer is right.
    fn only_looks(op: &Self::Op) -> bool;
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

/// Requests looked at after which a search is given up.
const MAX_STEPS: u64 = 50_000_000;
/// Places after which a search is given up: each takes some hundred bytes.
const MAX_PLACES: usize = 4_000_000;

/// A set of requests.
type Set = Vec<u64>;

fn insert(set: &mut Set, op: usize) {
    set[op / 64] |= 1 << (op % 64);
}

fn contains(set: &Set, op: usize) -> bool {
    set[op / 64] & (1 << (op % 64)) != 0
}

fn is_within(a: &Set, b: &Set) -> bool {
    a.iter().zip(b).all(|(a, b)| a & !b == 0)
}

/// Where a search can stand: some requests are done.
#[derive(Clone)]
struct Place<S> {
    state: S,
    /// The answered ones that are done.
    answered: Set,
    /// The others that are done.
    unanswered: Set,
    /// So many of the answered ones, in the order of their answers, are done without a gap.
    in_order: usize,
    /// Requests that are done: answered ones, and the others.
    depth: (usize, Reverse<usize>),
    /// The place before, among [`Search::path`], and what was done there.
    from: usize,
}

/// Places that were seen, by hash of state and answered requests: of the sets of unanswered ones none
/// contains another.
struct Seen<S>(HashMap<u64, Vec<(S, Set, Vec<Set>)>>);

impl<S: Hash + Eq + Clone> Seen<S> {
    /// Whether neither this place was seen nor a better one. Then it is from now on.
    fn is_new(&mut self, place: &Place<S>) -> bool {
        let Place { state, answered, unanswered, .. } = place;
        let mut hasher = DefaultHasher::new();
        (answered, state).hash(&mut hasher);
        let alike = self.0.entry(hasher.finish()).or_default();
        let Some((.., sets)) = alike.iter_mut().find(|(s, a, _)| a == answered && s == state)
        else {
            alike.push((state.clone(), answered.clone(), vec![unanswered.clone()]));
            return true;
        };
        if sets.iter().any(|fewer| is_within(fewer, unanswered)) {
            return false;
        }
        sets.retain(|more| !is_within(unanswered, more));
        sets.push(unanswered.clone());
        true
    }
}

struct Search<'a, S: Spec> {
    history: &'a [Record<S::Op>],
    /// Answered requests by the time of their answers.
    by_answer: Vec<usize>,
    /// The same by the time when they were sent.
    by_call: Vec<usize>,
    /// Requests without an answer, by the time when they were sent.
    unanswered: Vec<usize>,
    seen: Seen<S::State>,
    /// How each place was reached: from which one, by which request.
    path: Vec<(usize, usize)>,
    steps: u64,
    /// The deepest place, and the answer that nothing explains there.
    best: usize,
    best_depth: usize,
    best_stuck: usize,
}

impl<'a, S: Spec> Search<'a, S> {
    fn new(history: &'a [Record<S::Op>]) -> Self {
        let mut all: Vec<usize> = (0..history.len()).collect();
        all.sort_by_key(|i| history[*i].invoked);
        let (by_call, unanswered): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|i| history[*i].answered.is_some());
        let mut by_answer = by_call.clone();
        by_answer.sort_by_key(|i| history[*i].answered);
        Search {
            history,
            by_answer,
            by_call,
            unanswered,
            seen: Seen(HashMap::default()),
            path: vec![(0, 0)],
            steps: 0,
            best: 0,
            best_depth: 0,
            best_stuck: 0,
        }
    }

    /// The request that must be done next of all that can still be: its answer came first.
    fn first_open(&self, place: &Place<S::State>) -> Option<usize> {
        self.by_answer.get(place.in_order).copied()
    }

    /// Does a request, whatever the place is worth then.
    fn done(&mut self, place: &mut Place<S::State>, op: usize, after: S::State) {
        if self.history[op].answered.is_some() {
            insert(&mut place.answered, op);
            place.depth.0 += 1;
        } else {
            insert(&mut place.unanswered, op);
            place.depth.1.0 += 1;
        }
        place.state = after;
        self.path.push((place.from, op));
        place.from = self.path.len() - 1;
        while self.first_open(place).is_some_and(|next| contains(&place.answered, next)) {
            place.in_order += 1;
        }
    }

    /// Requests of `list` that are not done and were sent before the first open answer.
    fn open<'b>(
        &'b self,
        list: &'b [usize],
        done: &'b Set,
        until: u64,
    ) -> impl Iterator<Item = usize> + 'b {
        let sent = list.iter().take_while(move |op| self.history[**op].invoked < until);
        sent.filter(|op| !contains(done, **op)).copied()
    }

    fn until(&self, place: &Place<S::State>) -> u64 {
        let first = self.first_open(place).and_then(|op| self.history[op].answered);
        first.unwrap_or(u64::MAX)
    }

    /// Does every request that only looks and can be done here.
    fn look(&mut self, place: &mut Place<S::State>) {
        loop {
            let open = self.open(&self.by_call, &place.answered, self.until(place));
            let mut looks = open.filter(|op| S::only_looks(&self.history[*op].op));
            let fits = |op: &usize| S::step(&place.state, &self.history[*op].op).is_some();
            let Some(op) = looks.find(fits) else { return };
            drop(looks);
            let same = place.state.clone();
            self.done(place, op, same);
        }
    }

    /// The places that one request of `list` leads to, the one sent first last.
    fn next(&mut self, place: &Place<S::State>, unanswered: bool) -> Vec<Place<S::State>> {
        let (list, done) = match unanswered {
            true => (&self.unanswered, &place.unanswered),
            false => (&self.by_call, &place.answered),
        };
        let mut open: Vec<usize> = self.open(list, done, self.until(place)).collect();
        open.reverse();
        self.steps += 1 + open.len() as u64;
        let mut out = Vec::new();
        for op in open {
            let Some(after) = S::step(&place.state, &self.history[op].op) else { continue };
            // What nobody was told of and changes nothing need not have been.
            if unanswered && after == place.state {
                continue;
            }
            let (mut next, len) = (place.clone(), self.path.len());
            self.done(&mut next, op, after);
            self.look(&mut next);
            if self.seen.is_new(&next) {
                out.push(next);
            } else {
                self.path.truncate(len);
            }
        }
        out
    }

    fn note(&mut self, place: &Place<S::State>) {
        if place.depth.0 >= self.best_depth {
            (self.best, self.best_depth) = (place.from, place.depth.0);
            self.best_stuck = self.first_open(place).unwrap_or(0);
        }
    }

    /// The requests that were done on the way to a place.
    fn way_to(&self, mut at: usize) -> Vec<usize> {
        let mut done = Vec::new();
        while at != 0 {
            let (from, op) = self.path[at];
            done.push(op);
            at = from;
        }
        done.reverse();
        done
    }
}

/// Looks for an order of the requests of `history`, beginning with `state`.
pub fn check<S: Spec>(state: S::State, history: &[Record<S::Op>]) -> Verdict {
    let none: Set = vec![0; history.len().div_ceil(64)];
    let (answered, unanswered) = (none.clone(), none);
    let mut search = Search::<S>::new(history);
    let mut start =
        Place { state, answered, unanswered, in_order: 0, depth: (0, Reverse(0)), from: 0 };
    search.look(&mut start);
    // Places to go on from with answered requests; and then with an unanswered one, by depth.
    let (mut now, mut later) = (vec![start], BTreeMap::<_, Vec<Place<S::State>>>::new());
    loop {
        let Some(place) = now.pop() else {
            let Some(mut deepest) = later.last_entry() else { break };
            match deepest.get_mut().pop() {
                Some(place) => now = search.next(&place, true),
                None => drop(deepest.remove()),
            }
            continue;
        };
        if search.first_open(&place).is_none() {
            return Verdict::Linearizable;
        }
        if search.steps > MAX_STEPS || search.path.len() > MAX_PLACES {
            return Verdict::TooHard;
        }
        search.note(&place);
        now.extend(search.next(&place, false));
        later.entry(place.depth).or_default().push(place);
    }
    Verdict::Violated(Violation { done: search.way_to(search.best), stuck: search.best_stuck })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Op::{Read, Write};

    struct Register;

    #[derive(Clone, Copy, Debug)]
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
        fn only_looks(op: &Op) -> bool {
            matches!(op, Read(_))
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

    /// Requests that nobody was answered: any of them may have been done, in any order.
    #[test]
    fn many_that_were_not_answered_are_no_trouble() {
        let open = (1..60).map(|n| (u64::from(n), 0, Write(n)));
        let reads = |values: &[u8]| {
            let at = |i: usize| 100 + 2 * i as u64;
            let read = |(i, v): (usize, &u8)| (at(i), at(i) + 1, Read(*v));
            values.iter().enumerate().map(read).collect::<Vec<_>>()
        };
        let history = |values| open.clone().chain(reads(values)).collect::<Vec<_>>();
        assert!(is_good(&history(&[7, 7, 3, 50, 12])));
        assert!(!is_good(&history(&[7, 3, 50, 12, 7])));
    }

    /// Against every order, for small random histories.
    #[test]
    fn it_says_what_trying_all_orders_says() {
        fn any_order(state: u8, left: &[(u64, u64, Op)]) -> bool {
            let answers = left.iter().map(|(_, to, _)| *to).filter(|to| *to != 0);
            let Some(first) = answers.min() else { return true };
            (0..left.len()).any(|i| {
                let mut rest = left.to_vec();
                let (from, _, op) = rest.remove(i);
                let after = Register::step(&state, &op).filter(|_| from < first);
                after.is_some_and(|s| any_order(s, &rest))
            })
        }
        let mut rng = io::Rng::with_seed(3);
        let mut bad = 0;
        for _ in 0..8000 {
            let op = |rng: &mut io::Rng| match rng.bool() {
                true => Write(rng.u8(1..4)),
                false => Read(rng.u8(0..4)),
            };
            let mut times: Vec<u64> = (1..=14).collect();
            rng.shuffle(&mut times);
            let mut request = |c: &[u64]| {
                let answered = if rng.u8(0..4) == 0 { 0 } else { c[0].max(c[1]) };
                (c[0].min(c[1]), answered, op(&mut rng))
            };
            let history: Vec<_> = times.chunks(2).map(&mut request).collect();
            let wanted = any_order(0, &history);
            assert_eq!(is_good(&history), wanted, "{history:?}");
            bad += u32::from(!wanted);
        }
        assert!((800..7200).contains(&bad), "{bad} of 8000 were bad");
    }
}

//! Which requests a log remembers.
//!
//! Nearly every request is a new one, and an index of those that are remembered would be changed twice for
//! each of them. A client numbers its requests in rising order, and hardly ever one overtakes another on
//! its way here: so it is enough to know each client's newest ones to see that a request is new. Who may
//! have sent one again is looked for in an index, which is made then and dropped when nobody asks any
//! more.

use std::cell::{Cell, OnceCell};
use types::{EntityName, Eversion, HashMap, ReqId};

/// The index is dropped after so many requests that were new.
const INDEX_KEPT: usize = 4096;
/// Clients are not counted up to so many.
const CLIENTS: usize = 64;

/// A client, and its incarnation.
type Client = (EntityName, i32);

fn client(reqid: &ReqId) -> Client {
    (reqid.name, reqid.inc)
}

/// The newest requests of a client.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    newest: u64,
    /// Bit `n`: it sent the request whose number is `newest - n`.
    last: u128,
}

impl Seen {
    fn note(&mut self, tid: u64) {
        if let Some(above) = tid.checked_sub(self.newest) {
            let shift = u32::try_from(above).unwrap_or(u32::MAX);
            self.last = self.last.checked_shl(shift).unwrap_or(0) | 1;
            self.newest = tid;
        } else if let Ok(below) = u32::try_from(self.newest - tid) {
            self.last |= 1_u128.checked_shl(below).unwrap_or(0);
        }
    }

    /// Whether this one may have been among them.
    fn may_know(&self, tid: u64) -> bool {
        let Some(below) = self.newest.checked_sub(tid) else { return false };
        let bit = u32::try_from(below).ok().and_then(|below| 1_u128.checked_shl(below));
        bit.is_none_or(|bit| self.last & bit != 0)
    }
}

/// The requests of a log's entries and dups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    clients: HashMap<Client, Seen>,
    index: OnceCell<HashMap<ReqId, Eversion>>,
    /// New requests since somebody used the index.
    unasked: Cell<usize>,
}

impl Requests {
    /// A request was applied at `version`, above all others.
    pub fn note(&mut self, reqid: ReqId, version: Eversion) {
        self.clients.entry(client(&reqid)).or_default().note(reqid.tid);
        let Some(index) = self.index.get_mut() else { return };
        index.insert(reqid, version);
        *self.unasked.get_mut() += 1;
        if self.unasked.get() > INDEX_KEPT {
            self.index.take();
        }
    }

    /// What is remembered is this, in the order of versions.
    pub fn reset(&mut self, all: impl Iterator<Item = (ReqId, Eversion)>) {
        *self = Requests::default();
        all.for_each(|(reqid, version)| self.note(reqid, version));
    }

    /// So many are remembered now, which are `all`.
    pub fn trimmed(&mut self, len: usize, all: impl Iterator<Item = (ReqId, Eversion)>) {
        // At least half of the clients have nothing here any more.
        if self.clients.len() > 2 * len + CLIENTS {
            self.reset(all);
        }
    }

    /// The request was not applied at `version`, or long ago.
    pub fn forget(&mut self, reqid: &ReqId, version: Eversion) {
        if let Some(index) = self.index.get_mut()
            && index.get(reqid) == Some(&version)
        {
            index.remove(reqid);
        }
    }

    /// Where a request was applied last. `all`: what is remembered, in the order of versions.
    pub fn find<I>(&self, reqid: &ReqId, all: impl FnOnce() -> I) -> Option<Eversion>
    where
        I: Iterator<Item = (ReqId, Eversion)>,
    {
        if !self.clients.get(&client(reqid))?.may_know(reqid.tid) {
            return None;
        }
        self.unasked.set(0);
        self.index.get_or_init(|| all().collect()).get(reqid).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{ClientId, Epoch};

    fn reqid(num: u64, tid: u64) -> ReqId {
        ReqId { name: EntityName::client(ClientId(num)), inc: 0, tid }
    }

    /// Requests in an order in which they may come, some twice, some long after others; forgotten from
    /// the front, and now and then from the back.
    #[test]
    fn finds_what_an_index_of_all_finds() {
        let mut rng = fastrand::Rng::with_seed(4);
        let (mut requests, mut all) = (Requests::default(), Vec::<(ReqId, Eversion)>::new());
        let (mut found, mut made) = (0, 0);
        for n in 1..60_000_u64 {
            let back = [0, 0, 0, 1, 3, 127, 128, 129, 5000][rng.usize(..9)];
            let id = reqid(rng.u64(..3), n.saturating_sub(back));
            let had_index = requests.index.get().is_some();
            let expected = all.iter().rev().find(|(known, _)| *known == id).map(|(_, at)| *at);
            assert_eq!(requests.find(&id, || all.iter().copied()), expected, "{n}");
            made += u32::from(!had_index && requests.index.get().is_some());
            if expected.is_some() {
                found += 1;
                continue;
            }
            let at = Eversion::new(Epoch(1), n);
            requests.note(id, at);
            all.push((id, at));
            match rng.u8(..100) {
                0 => {
                    let (id, at) = all.pop().unwrap();
                    requests.forget(&id, at);
                }
                1..90 if all.len() > 300 => {
                    let (id, at) = all.remove(0);
                    requests.forget(&id, at);
                    requests.trimmed(all.len(), all.iter().copied());
                }
                _ => {}
            }
        }
        assert!(found > 1000 && made > 0, "{found} were found, {made} times an index was made");
    }

    #[test]
    fn no_index_is_made_for_new_requests_and_it_goes_when_nobody_asks() {
        let (mut requests, mut all) = (Requests::default(), Vec::new());
        let mut apply = |requests: &mut Requests, tid: u64| {
            let (id, at) = (reqid(1, tid), Eversion::new(Epoch(1), tid + 1000));
            let known = requests.find(&id, || all.iter().copied()).is_some();
            if !known {
                requests.note(id, at);
                all.push((id, at));
            }
            (known, requests.index.get().is_some())
        };
        // One overtakes the other.
        for tid in (0..2000).map(|n| n ^ 1) {
            assert_eq!(apply(&mut requests, tid), (false, false));
        }
        assert_eq!(apply(&mut requests, 5), (true, true));
        for tid in 2000..2000 + INDEX_KEPT as u64 {
            assert_eq!(apply(&mut requests, tid), (false, true));
        }
        assert_eq!(apply(&mut requests, 10_000), (false, false));
    }

    #[test]
    fn clients_that_have_nothing_here_go() {
        let mut requests = Requests::default();
        for num in 0..10_000 {
            let (id, at) = (reqid(num, 1), Eversion::new(Epoch(1), num + 1));
            requests.note(id, at);
            requests.trimmed(1, [(id, at)].into_iter());
            assert!(requests.clients.len() <= CLIENTS + 2);
        }
    }
}

//! Clients, and when their answers leave.
//!
//! An answer is sent at the end of its turn. Only when a client has many requests in hand, an answer waits
//! for some more of its kind ([`Daemon::send_answer`]): what they are to each other is a fraction of the
//! time each of them takes, and a client that is woken once for several of them spends less on each, as do
//! we, here and with the requests it sends next, which come together, too.

use crate::daemon::Daemon;
use crate::ops::Sender;
use std::time::Duration;
use types::{Epoch, HashMap};
use wire::LinkId;
use wire::msg::OutMessage;

/// A client that has fewer requests in hand has each answer at once.
const PATIENT_FROM: usize = 8;
/// Answers wait until they are this part of what is in hand: what the client could do meanwhile is little.
const HELD_SHARE: usize = 4;
/// The longest that an answer waits.
const HELD_TIME: Duration = Duration::from_micros(500);

/// A client.
#[derive(Clone, Debug)]
pub struct Session {
    /// Who it is.
    pub sender: Sender,
    /// The newest map it was sent.
    pub shared: Epoch,
    /// Its requests without an answer.
    in_hand: usize,
}

impl Session {
    /// Of a client that has just come.
    pub fn new(sender: Sender) -> Self {
        Session { sender, shared: Epoch::ZERO, in_hand: 0 }
    }
}

/// All clients.
#[derive(Debug, Default)]
pub struct Sessions {
    all: HashMap<LinkId, Session>,
}

impl Sessions {
    /// A client.
    pub fn get(&self, link: LinkId) -> Option<&Session> {
        self.all.get(&link)
    }

    /// A client, to be changed.
    pub fn get_mut(&mut self, link: LinkId) -> Option<&mut Session> {
        self.all.get_mut(&link)
    }

    /// A client has come.
    pub fn insert(&mut self, link: LinkId, session: Session) {
        self.all.insert(link, session);
    }

    /// A client is gone. Gives whether it was there.
    pub fn remove(&mut self, link: LinkId) -> bool {
        self.all.remove(&link).is_some()
    }

    /// All links, in order.
    pub fn links(&self) -> Vec<LinkId> {
        let mut links: Vec<_> = self.all.keys().copied().collect();
        links.sort_unstable();
        links
    }

    /// A request came. Gives who sent it.
    pub fn request_came(&mut self, link: LinkId) -> Option<Sender> {
        let session = self.all.get_mut(&link)?;
        session.in_hand += 1;
        Some(session.sender)
    }

    /// A request was answered or forgotten.
    pub fn request_ended(&mut self, link: LinkId) {
        // The client may be gone.
        if let Some(session) = self.all.get_mut(&link) {
            session.in_hand -= 1;
        }
    }

    /// Whether the next answer may wait, beside those that wait.
    fn is_patient(&self, link: LinkId, held: usize) -> bool {
        let in_hand = self.get(link).map_or(0, |session| session.in_hand);
        in_hand >= PATIENT_FROM && (held + 1) * HELD_SHARE < in_hand
    }
}

impl Daemon {
    /// Sends a client the answer to a request, which is no longer in hand: at once, or with others.
    pub(crate) fn send_answer(&mut self, link: LinkId, answer: OutMessage) {
        if self.sessions.is_patient(link, self.msgr.held(link)) {
            self.msgr.send_by(link, answer, self.now.mono.after(HELD_TIME));
        } else {
            self.msgr.send(link, answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_wait_for_one_another_where_many_are_in_hand() {
        const LINK: LinkId = LinkId(1);
        let mut sessions = Sessions::default();
        assert!(!sessions.is_patient(LINK, 0), "it is gone");
        sessions.insert(LINK, Session::new(Sender::default()));
        let mut held_of = [0; 65];
        for in_hand in 0..=64 {
            held_of[in_hand] = (0..64).take_while(|held| sessions.is_patient(LINK, *held)).count();
            assert!(sessions.request_came(LINK).is_some());
        }
        assert!(held_of[..PATIENT_FROM].iter().all(|held| *held == 0), "{held_of:?}");
        assert_eq!([held_of[8], held_of[9], held_of[32], held_of[64]], [1, 2, 7, 15]);
        (0..=64).for_each(|_| sessions.request_ended(LINK));
        assert!(!sessions.is_patient(LINK, 0));
    }
}

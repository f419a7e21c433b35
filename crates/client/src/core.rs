//! A client as a daemon of its own.

use crate::client::Client;
use io::{Core, Effects, Event, Now};
use types::Mono;

/// A [`Client`] and its user as one [`Core`].
///
/// The user is called once a turn, after all events: it takes completions, submits requests, and
/// says when it wants to be called again at the latest.
pub struct ClientCore<F> {
    client: Client,
    user: F,
    deadline: Option<Mono>,
}

impl<F> ClientCore<F>
where
    F: FnMut(Now, &mut Client, &mut Effects) -> Option<Mono>,
{
    /// A core of both.
    pub fn new(client: Client, user: F) -> Self {
        ClientCore { client, user, deadline: None }
    }
}

impl<F> Core for ClientCore<F>
where
    F: FnMut(Now, &mut Client, &mut Effects) -> Option<Mono>,
{
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => self.client.start(now),
            // An event of a connection that ended here in the meantime is nobody's.
            Event::Net(event) => drop(self.client.handle(now, event, fx)),
            Event::Timer => self.client.tick(now, fx),
            Event::Stop => fx.exit(0, "stopped"),
            Event::Disk(_) | Event::Kv(_) | Event::Memory(_) => {}
        }
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        self.deadline = (self.user)(now, &mut self.client, fx);
        self.client.end_turn(now, fx);
    }

    fn next_deadline(&self) -> Option<Mono> {
        let both = self.client.next_deadline().into_iter().chain(self.deadline);
        both.min()
    }
}

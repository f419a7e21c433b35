//! How requests go on: completions of the client come in, requests to it go out, scripts are polled.

use super::script::{self, Ask};
use super::state::{Route, Shared};
use super::{ImageDone, Images};
use crate::client::Client;
use crate::outcome::{Completion, Outcome, RequestId};
use ::io::Now;
use std::task::{Context, Waker};
use types::Mono;

impl Images {
    /// Takes in a completion of the client. Gives it back when it is somebody else's.
    pub fn take(
        &mut self,
        now: Now,
        client: &mut Client,
        completion: Completion,
    ) -> Option<Completion> {
        let (not_ours, waits_for_room) = {
            let mut s = self.shared.borrow_mut();
            s.now = now;
            s.gid = client.global_id();
            let not_ours = s.on_completion(completion);
            (not_ours, !s.outgoing.is_empty() || !s.asks.is_empty())
        };
        if not_ours.is_none() || waits_for_room {
            self.pump(now, client);
        }
        not_ours
    }

    /// Deals with every deadline that has come.
    pub fn tick(&mut self, now: Now, client: &mut Client) {
        {
            let mut s = self.shared.borrow_mut();
            s.now = now;
            s.begin_turn();
        }
        self.pump(now, client);
    }

    /// The time of the next [`Images::tick`].
    pub fn next_deadline(&self) -> Option<Mono> {
        let s = self.shared.borrow();
        if !s.out.is_empty() {
            return Some(Mono::default());
        }
        s.alarms.first().copied()
    }

    /// The next completion. Owners take all, every turn.
    pub fn poll(&mut self) -> Option<ImageDone> {
        self.shared.borrow_mut().out.pop_front()
    }

    /// Lets scripts go on, and gives the client what there is for it.
    pub(super) fn pump(&mut self, now: Now, client: &mut Client) {
        loop {
            {
                let mut s = self.shared.borrow_mut();
                s.now = now;
                s.hand_out(now, client);
                if !std::mem::take(&mut s.touched) {
                    return;
                }
                let new = std::mem::take(&mut s.new_tasks);
                self.tasks.extend(new);
                if self.tasks.is_empty() {
                    return;
                }
                s.gid = client.global_id();
                s.pools =
                    client.map().map(|m| m.pools.keys().copied().collect()).unwrap_or_default();
            }
            let mut cx = Context::from_waker(Waker::noop());
            self.tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
        }
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        // Scripts hold the state, which holds new scripts.
        let new = std::mem::take(&mut self.shared.borrow_mut().new_tasks);
        drop(new);
    }
}

impl Shared {
    pub(super) fn on_completion(&mut self, completion: Completion) -> Option<Completion> {
        let Completion { id, outcome } = completion;
        let route = match self.routes.get(&id).copied() {
            None => return Some(Completion { id, outcome }),
            Some(route) => route,
        };
        if let Route::Watch(slot, ticket) = route {
            match outcome {
                Outcome::Watching(result) => {
                    match &result {
                        Ok(()) => self.image_mut(slot).watching = true,
                        Err(_) => drop(self.watch_ends(slot)),
                    }
                    self.answer(ticket, Outcome::Watching(result));
                }
                outcome => self.on_watch(slot, id, outcome),
            }
            return None;
        }
        self.routes.remove(&id);
        match (route, outcome) {
            (Route::Script(ticket), outcome) => self.answer(ticket, outcome),
            (Route::Object(key), Outcome::Op(answer)) => self.on_object(key, answer),
            (Route::Copyup(key), Outcome::Op(answer)) => self.on_copyup(key, answer),
            (Route::Map(slot, object), Outcome::Op(answer)) => self.on_map(slot, object, answer),
            (route, outcome) => {
                tracing::warn!(?route, ?outcome, "a request ended as something else");
            }
        }
        None
    }

    /// Gives the client what there is for it, in order.
    fn hand_out(&mut self, now: Now, client: &mut Client) {
        for (watch, notify, answer) in self.acks.drain(..) {
            client.notify_ack(now, watch, notify, answer);
        }
        while let Some((route, op)) = self.outgoing.pop_front() {
            match client.submit(now, op) {
                Ok(id) => drop(self.routes.insert(id, route)),
                Err(busy) => {
                    self.outgoing.push_front((route, *busy.0));
                    break;
                }
            }
        }
        while let Some((ticket, ask)) = self.asks.pop_front() {
            if let Err(ask) = self.ask_client(now, client, ticket, ask) {
                self.asks.push_front((ticket, ask));
                break;
            }
        }
    }

    /// Asks the client for something; gives it back when the client has no room.
    fn ask_client(
        &mut self,
        now: Now,
        client: &mut Client,
        ticket: script::Ticket,
        ask: Ask,
    ) -> Result<(), Ask> {
        let id: RequestId = match ask {
            Ask::Op(op) => client.submit(now, *op).map_err(|busy| Ask::Op(busy.0))?,
            Ask::Notify { object, payload, timeout_s } => {
                client.notify(now, object, payload, timeout_s)
            }
            Ask::Command(json) => client.command(now, json, ""),
            Ask::CreateSnap(pool) => client.create_own_snap(now, pool),
            Ask::DeleteSnap(pool, snap) => client.delete_own_snap(now, pool, snap),
            Ask::MapVersion => client.get_version(now, "osdmap"),
            Ask::WaitForMap(epoch) => client.wait_for_map(now, epoch),
            Ask::Watch(slot) => {
                let id = client.watch(now, self.image(slot).header(), 0);
                self.watch_begins(slot, id, ticket);
                return Ok(());
            }
            Ask::Unwatch(slot) => {
                match self.watch_ends(slot).and_then(|watch| client.unwatch(now, watch)) {
                    Some(id) => id,
                    None => {
                        self.answer(ticket, Outcome::Op(Ok(crate::reply::OpReply::default())));
                        return Ok(());
                    }
                }
            }
        };
        self.routes.insert(id, Route::Script(ticket));
        Ok(())
    }
}

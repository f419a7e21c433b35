//! Tests: a turn of a core ends before its next one begins.

use crate::World;
use crate::callers::{add_caller, listen, send};
use io::net::{ConnId, NetEvent, NetOp};
use io::{Core, Effects, Event, Now};
use std::time::Duration;
use types::Mono;

const PATIENCE: Duration = Duration::from_secs(1);

/// Receives nothing for a while, and then says so before it answers.
#[derive(Default)]
struct Hesitant {
    waits: Option<(Mono, ConnId)>,
}

impl Core for Hesitant {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => listen(fx),
            Event::Net(NetEvent::Accepted { conn, .. }) => {
                fx.net.push(NetOp::PauseRecv { conn });
                self.waits = Some((now.mono.after(PATIENCE), conn));
            }
            Event::Net(NetEvent::Received { conn, .. }) => {
                fx.net.push(send(conn, "answered".into()))
            }
            Event::Timer => {
                if let Some((_, conn)) = self.waits.take() {
                    fx.net.push(NetOp::ResumeRecv { conn });
                    fx.net.push(send(conn, "listening, ".into()));
                }
            }
            _ => {}
        }
    }
    fn end_turn(&mut self, _: Now, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Mono> {
        self.waits.map(|(at, _)| at)
    }
}

#[test]
fn what_a_turn_sends_goes_before_what_the_next_one_sends() {
    let mut world = World::new(1);
    let whom = world.add_node(&[], false, Box::new(|_, _| Box::new(Hesitant::default())));
    let (asker, heard) = add_caller(&mut world, whom, "?");
    world.start(whom);
    world.run_for(PATIENCE);
    world.start(asker);
    world.run_for(PATIENCE * 3);
    assert_eq!(heard.borrow().concat(), b"listening, answered");
}

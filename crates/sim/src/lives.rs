//! Tests: what one life of a machine sent is not taken for what the next one sends.

use crate::World;
use crate::callers::{add_caller, listen, send};
use io::net::{NetEvent, NetOp};
use io::{Core, Effects, Event, Now};
use std::time::Duration;
use types::Mono;

const SOON: Duration = Duration::from_secs(1);

/// Sends back what it receives; hangs up on connections that bring nothing when the next one comes.
#[derive(Default)]
struct Echo {
    mute: Option<io::net::ConnId>,
}

impl Core for Echo {
    fn handle(&mut self, _: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => listen(fx),
            Event::Net(NetEvent::Accepted { conn, .. }) => {
                if let Some(mute) = self.mute.replace(conn) {
                    fx.net.push(NetOp::Close { conn: mute, drain: false });
                }
            }
            Event::Net(NetEvent::Received { conn, data }) => {
                self.mute = None;
                fx.net.push(send(conn, data));
            }
            _ => {}
        }
    }
    fn end_turn(&mut self, _: Now, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

#[test]
fn a_dial_of_the_last_life_connects_nobody() {
    let mut world = World::new(1);
    let echo = world.add_node(&[], false, Box::new(|_, _| Box::new(Echo::default())));
    let (caller, answers) = add_caller(&mut world, echo, "there?");
    world.start(echo);
    world.run_for(SOON);
    // Its dials are on their way for long.
    world.set_silent(caller, echo, true);
    for _ in 0..2 {
        world.start(caller);
        world.run_for(SOON);
        world.crash(caller);
    }
    world.start(caller);
    world.run_for(SOON);
    world.set_silent(caller, echo, false);
    world.run_for(SOON);
    assert!(!answers.borrow().is_empty(), "the connection goes to nobody");
}

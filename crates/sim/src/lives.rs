//! Tests: what one life of a machine sent is not taken for what the next one sends.

use crate::{NodeId, World};
use io::net::{ListenAddr, ListenId, NetEvent, NetOp};
use io::{Core, Effects, Event, Now};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use types::Mono;

const PORT: u16 = 7000;
const SOON: Duration = Duration::from_secs(1);

/// Sends back what it receives; hangs up on connections that bring nothing when the next one comes.
#[derive(Default)]
struct Echo {
    mute: Option<io::net::ConnId>,
}

impl Core for Echo {
    fn handle(&mut self, _: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => {
                let addr = ListenAddr::Tcp(SocketAddr::new([0, 0, 0, 0].into(), PORT));
                fx.net.push(NetOp::Listen { listen: ListenId(1), addr });
            }
            Event::Net(NetEvent::Accepted { conn, .. }) => {
                if let Some(mute) = self.mute.replace(conn) {
                    fx.net.push(NetOp::Close { conn: mute, drain: false });
                }
            }
            Event::Net(NetEvent::Received { conn, data }) => {
                self.mute = None;
                fx.net.push(NetOp::Send { conn, data: std::iter::once(data).collect() });
            }
            _ => {}
        }
    }
    fn end_turn(&mut self, _: Now, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

/// Dials, says something, and counts answers.
struct Caller {
    echo: NodeId,
    answers: Rc<Cell<u32>>,
}

impl Core for Caller {
    fn handle(&mut self, _: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => {
                fx.connect(SocketAddr::new(World::ip(self.echo), PORT));
            }
            Event::Net(NetEvent::Connected { conn, .. }) => {
                let data = std::iter::once(bytes::Bytes::from_static(b"there?")).collect();
                fx.net.push(NetOp::Send { conn, data });
            }
            Event::Net(NetEvent::Received { .. }) => self.answers.set(self.answers.get() + 1),
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
    let answers = Rc::new(Cell::new(0));
    let heard = answers.clone();
    let caller = move |_: &[io::disk::DeviceInfo], _: u64| {
        Box::new(Caller { echo, answers: heard.clone() }) as Box<dyn Core>
    };
    let caller = world.add_node(&[], false, Box::new(caller));
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
    assert!(answers.get() > 0, "the connection goes to nobody");
}

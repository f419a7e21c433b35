//! Tests: a turn of a core ends before its next one begins.

use crate::{NodeId, World};
use bytes::Bytes;
use io::net::{ConnId, ListenAddr, ListenId, NetEvent, NetOp};
use io::{Core, Effects, Event, Now};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use types::Mono;

const PORT: u16 = 7000;
const PATIENCE: Duration = Duration::from_secs(1);

fn send(conn: ConnId, text: &'static str) -> NetOp {
    NetOp::Send { conn, data: std::iter::once(Bytes::from_static(text.as_bytes())).collect() }
}

/// Receives nothing for a while, and then says so before it answers.
#[derive(Default)]
struct Hesitant {
    waits: Option<(Mono, ConnId)>,
}

impl Core for Hesitant {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => {
                let addr = ListenAddr::Tcp(SocketAddr::new([0, 0, 0, 0].into(), PORT));
                fx.net.push(NetOp::Listen { listen: ListenId(1), addr });
            }
            Event::Net(NetEvent::Accepted { conn, .. }) => {
                fx.net.push(NetOp::PauseRecv { conn });
                self.waits = Some((now.mono.after(PATIENCE), conn));
            }
            Event::Net(NetEvent::Received { conn, .. }) => fx.net.push(send(conn, "answered")),
            Event::Timer => {
                if let Some((_, conn)) = self.waits.take() {
                    fx.net.push(NetOp::ResumeRecv { conn });
                    fx.net.push(send(conn, "listening, "));
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

/// Dials, asks, and keeps what it hears.
struct Asker {
    whom: NodeId,
    heard: Rc<RefCell<Vec<u8>>>,
}

impl Core for Asker {
    fn handle(&mut self, _: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => {
                fx.connect(SocketAddr::new(World::ip(self.whom), PORT));
            }
            Event::Net(NetEvent::Connected { conn, .. }) => fx.net.push(send(conn, "?")),
            Event::Net(NetEvent::Received { data, .. }) => {
                self.heard.borrow_mut().extend_from_slice(&data);
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
fn what_a_turn_sends_goes_before_what_the_next_one_sends() {
    let mut world = World::new(1);
    let whom = world.add_node(&[], false, Box::new(|_, _| Box::new(Hesitant::default())));
    let heard = Rc::new(RefCell::new(Vec::new()));
    let hears = heard.clone();
    let asker = move |_: &[io::disk::DeviceInfo], _: u64| {
        Box::new(Asker { whom, heard: hears.clone() }) as Box<dyn Core>
    };
    let asker = world.add_node(&[], false, Box::new(asker));
    world.start(whom);
    world.run_for(PATIENCE);
    world.start(asker);
    world.run_for(PATIENCE * 3);
    assert_eq!(heard.borrow().as_slice(), b"listening, answered");
}

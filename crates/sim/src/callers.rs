//! For tests: a core that dials another one, says something, and keeps what it hears.

use crate::{NodeId, World};
use bytes::Bytes;
use io::net::{ConnId, ListenAddr, ListenId, NetEvent, NetOp};
use io::{Core, Effects, Event, Now};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use types::Mono;

const PORT: u16 = 7000;

/// What a caller heard, receive by receive.
pub type Heard = Rc<RefCell<Vec<Bytes>>>;

pub fn send(conn: ConnId, data: Bytes) -> NetOp {
    NetOp::Send { conn, data: std::iter::once(data).collect() }
}

/// Has a core wait for callers.
pub fn listen(fx: &mut Effects) {
    let addr = ListenAddr::Tcp(SocketAddr::new([0, 0, 0, 0].into(), PORT));
    fx.net.push(NetOp::Listen { listen: ListenId(1), addr });
}

struct Caller {
    whom: NodeId,
    says: &'static str,
    heard: Heard,
}

impl Core for Caller {
    fn handle(&mut self, _: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => {
                fx.connect(SocketAddr::new(World::ip(self.whom), PORT));
            }
            Event::Net(NetEvent::Connected { conn, .. }) => {
                fx.net.push(send(conn, self.says.into()));
            }
            Event::Net(NetEvent::Received { data, .. }) => self.heard.borrow_mut().push(data),
            _ => {}
        }
    }
    fn end_turn(&mut self, _: Now, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

/// A machine that calls another one each time it is started.
pub fn add_caller(world: &mut World, whom: NodeId, says: &'static str) -> (NodeId, Heard) {
    let heard = Heard::default();
    let hears = heard.clone();
    let boot = move |_: &[io::disk::DeviceInfo], _: u64| {
        Box::new(Caller { whom, says, heard: hears.clone() }) as Box<dyn Core>
    };
    (world.add_node(&[], false, Box::new(boot)), heard)
}

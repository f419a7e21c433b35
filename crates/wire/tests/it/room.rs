//! Clients in the middle of long messages, and the memory that these may take.

use crate::scripted::{Stage, lossless_ident, write};
use crate::virtual_net::{is_note, note};
use bytes::Bytes;
use io::AlignedBuf;
use io::net::{ConnId, NetEvent, NetOp};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{AddrVec, EntityAddr, EntityType};
use wire::frame::FrameWriter;
use wire::{LinkId, MsgrEvent};

const BYTES: usize = 4 << 20;
/// Of two messages; a header stands before each.
const LIMIT_BYTES: usize = 2 * BYTES + 1000;

/// A daemon with clients that have sent the beginning of a long message.
struct Clients {
    stage: Stage,
    all: Vec<Client>,
    /// What is being received into.
    fills: BTreeMap<ConnId, (AlignedBuf, usize)>,
}

struct Client {
    conn: ConnId,
    link: LinkId,
    rest: Bytes,
}

impl Clients {
    fn new(count: usize) -> Self {
        let mut stage = Stage::new();
        stage.daemon.msgr.limit_receiving(LIMIT_BYTES);
        let mut clients = Clients { stage, all: Vec::new(), fills: BTreeMap::new() };
        (0..count).for_each(|i| clients.add(i));
        clients
    }

    fn add(&mut self, i: usize) {
        let mut end = self.stage.peer(EntityType::CLIENT);
        let addr = EntityAddr::msgr2("127.0.0.1:6801".parse().unwrap(), 100 + i as u32);
        let ident = wire::frame::ClientIdent {
            addrs: AddrVec(vec![addr]),
            ..lossless_ident(2 + i as u64, 5)
        };
        self.stage.ident(&mut end, &ident);
        let daemon = &mut self.stage.daemon;
        let link = daemon.out.drain(..).find_map(|event| match event {
            MsgrEvent::Open { link, .. } => Some(link),
            _ => None,
        });
        let mut w = FrameWriter::new();
        write(&mut w, &note(i as u64, BYTES), 1, 0);
        let mut rest = Bytes::from(w.take().concat());
        let (conn, data) = (daemon.conn, rest.split_to(10_000));
        daemon.handle(NetEvent::Received { conn, data });
        self.all.push(Client { conn, link: link.expect("it is open"), rest });
        self.note_fills();
    }

    fn note_fills(&mut self) {
        let ops = std::mem::take(&mut self.stage.daemon.fx.net);
        for op in ops {
            match op {
                NetOp::Fill { conn, buf, from } => _ = self.fills.insert(conn, (buf, from)),
                NetOp::Close { conn, .. } => _ = self.fills.remove(&conn),
                _ => self.stage.daemon.fx.net.push(op),
            }
        }
    }

    /// Time passes.
    fn pass(&mut self, time: Duration) {
        let daemon = &mut self.stage.daemon;
        daemon.now.mono = daemon.now.mono.after(time);
        while daemon.msgr.next_deadline().is_some_and(|at| at <= daemon.now.mono) {
            daemon.msgr.tick(daemon.now, &mut daemon.fx, &mut daemon.out);
        }
        daemon.msgr.end_turn(daemon.now, &mut daemon.fx);
        self.note_fills();
    }

    /// Clients that messages are being received from.
    fn filling(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|i| self.fills.contains_key(&self.all[*i].conn)).collect()
    }

    /// Whether the network is to receive from a client.
    fn is_heard(&self, i: usize) -> bool {
        let said = |op: &NetOp| match op {
            NetOp::PauseRecv { conn } if *conn == self.all[i].conn => Some(false),
            NetOp::ResumeRecv { conn } if *conn == self.all[i].conn => Some(true),
            _ => None,
        };
        self.stage.daemon.fx.net.iter().rev().find_map(said).unwrap_or(true)
    }

    /// A client is not to be heard any more.
    fn pause(&mut self, i: usize) {
        let daemon = &mut self.stage.daemon;
        daemon.msgr.pause(self.all[i].link, &mut daemon.fx);
    }

    /// A client sends the rest of its message.
    fn finish(&mut self, i: usize) {
        self.bring(i);
        self.pass(Duration::ZERO);
    }

    /// The same, and the turn goes on.
    fn bring(&mut self, i: usize) {
        let conn = self.all[i].conn;
        let daemon = &mut self.stage.daemon;
        let (mut buf, from) = self.fills.remove(&conn).expect("it is being received");
        buf.as_mut_slice()[from..].copy_from_slice(&self.all[i].rest);
        daemon.handle(NetEvent::Filled { conn, buf });
        let [MsgrEvent::Message { link, message }] = &daemon.out[..] else {
            panic!("{:?}", daemon.out)
        };
        assert!(*link == self.all[i].link && is_note(message, i as u64, BYTES));
        daemon.out.clear();
    }
}

#[test]
fn what_clients_are_in_the_middle_of_sending_is_bounded() {
    let mut c = Clients::new(10);
    assert_eq!(c.filling(), [0, 1]);
    assert!((0..10).all(|i| c.is_heard(i) == (i < 2)));
    // Some bytes were on their way already.
    let (conn, data) = (c.all[2].conn, c.all[2].rest.split_to(3000));
    c.stage.daemon.handle(NetEvent::Received { conn, data });
    for i in 0..10 {
        assert!(c.stage.daemon.msgr.receiving_bytes() <= LIMIT_BYTES);
        c.finish(i);
        let next: Vec<usize> = (i + 1..10).take(2).collect();
        assert_eq!(c.filling(), next, "in the order they came");
        assert!(c.is_heard(i) && next.iter().all(|i| c.is_heard(*i)));
    }
    assert_eq!(c.stage.daemon.msgr.receiving_bytes(), 0);
}

/// One that is longer than all there may be is received alone.
#[test]
fn a_message_that_is_longer_than_all_goes_alone() {
    let mut c = Clients::new(2);
    c.stage.daemon.msgr.limit_receiving(1000);
    c.add(2);
    c.finish(0);
    assert_eq!(c.filling(), [1]);
    c.finish(1);
    assert_eq!(c.filling(), [2]);
    c.finish(2);
    assert_eq!(c.stage.daemon.msgr.receiving_bytes(), 0);
}

#[test]
fn a_client_that_does_not_send_the_rest_keeps_others_waiting_for_a_while_only() {
    let mut c = Clients::new(2);
    c.pass(Duration::from_secs(600));
    assert_eq!((c.filling(), c.stage.story()), (vec![0, 1], vec![]), "nobody waits");
    (0..2).for_each(|i| c.finish(i));
    (2..5).for_each(|i| c.add(i));
    c.pass(Duration::from_secs(33));
    assert!(c.stage.story().is_empty());
    c.finish(2);
    assert_eq!(c.filling(), [3, 4]);
    c.add(5);
    c.pass(Duration::from_secs(2));
    let [said] = &c.stage.story()[..] else { panic!("nobody is closed") };
    assert!(said.contains("others waited"), "{said}");
    assert_eq!(c.filling(), [4, 5]);
    assert!(c.is_heard(5));
    (4..6).for_each(|i| c.finish(i));
    assert_eq!(c.stage.daemon.msgr.receiving_bytes(), 0);
}

/// It would keep its room, and others waiting, for as long as we do not hear it.
#[test]
fn a_client_that_is_paused_sends_the_rest_of_its_message_first() {
    let mut c = Clients::new(3);
    c.pause(0);
    c.pass(Duration::from_secs(29));
    assert!(c.is_heard(0));
    c.finish(0);
    assert_eq!((c.filling(), c.stage.story()), (vec![1, 2], vec![]));
    assert!(!c.is_heard(0));
    // One that waits gets no room while it is paused.
    c.add(3);
    c.pause(3);
    (1..3).for_each(|i| c.finish(i));
    assert!(!c.is_heard(3) && c.filling().is_empty());
    let daemon = &mut c.stage.daemon;
    daemon.msgr.resume(c.all[3].link, &mut daemon.fx);
    c.pass(Duration::ZERO);
    c.finish(3);
    assert_eq!(c.stage.daemon.msgr.receiving_bytes(), 0);
}

/// What was on its way to one that has just got room takes nothing of that.
#[test]
fn room_that_was_given_is_kept_until_the_message_is_read() {
    let mut c = Clients::new(3);
    let two = c.stage.daemon.msgr.receiving_bytes();
    c.bring(0);
    let (conn, data) = (c.all[2].conn, c.all[2].rest.split_to(3000));
    c.stage.daemon.handle(NetEvent::Received { conn, data });
    c.pass(Duration::ZERO);
    assert_eq!((c.filling(), c.stage.daemon.msgr.receiving_bytes()), (vec![1, 2], two));
    (1..3).for_each(|i| c.finish(i));
    assert_eq!(c.stage.daemon.msgr.receiving_bytes(), 0);
}

/// Nor does one that goes, or waits itself and goes.
#[test]
fn who_goes_keeps_nothing() {
    let mut c = Clients::new(5);
    for i in [2, 0] {
        let (conn, why) = (c.all[i].conn, io::net::CloseReason::Eof);
        c.stage.daemon.handle(NetEvent::Closed { conn, why });
        c.stage.story();
        c.fills.remove(&conn);
        c.pass(Duration::ZERO);
    }
    // One that is not heard gives its turn to the others.
    let paused = c.all[3].link;
    let daemon = &mut c.stage.daemon;
    daemon.msgr.close(c.all[1].link, &mut daemon.fx);
    c.pass(Duration::ZERO);
    assert_eq!(c.filling(), [3, 4]);
    c.stage.daemon.msgr.pause(paused, &mut c.stage.daemon.fx);
    c.add(5);
    let paused = c.all[5].link;
    c.stage.daemon.msgr.pause(paused, &mut c.stage.daemon.fx);
    c.add(6);
    c.finish(4);
    assert_eq!(c.filling(), [3, 6]);
    c.stage.daemon.msgr.resume(paused, &mut c.stage.daemon.fx);
    c.finish(6);
    assert_eq!(c.filling(), [3, 5]);
    assert!(c.is_heard(5));
}

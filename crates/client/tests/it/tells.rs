//! Commands to OSDs.

use crate::rig::Rig;
use client::{Outcome, RequestId};
use std::time::Duration;
use types::{Errno, OsdId};
use wire::LinkId;
use wire::msg::{MCommand, MCommandReply, Payload};

fn tell(rig: &mut Rig, osd: i32) -> RequestId {
    rig.act(move |now, c| c.tell(now, OsdId(osd), r#"{"prefix":"version"}"#, ""))
}

/// The command that an OSD received: on which link, its tid, and what it says.
fn told(rig: &mut Rig, osd: usize) -> Option<(LinkId, u64, String)> {
    let (link, m) = rig.other_message(osd)?;
    let command: MCommand = m.decode().unwrap();
    Some((link, m.header.tid, command.cmd.concat()))
}

#[test]
fn a_command_is_asked_again_when_the_connection_is_lost_and_is_answered_once() {
    let mut rig = Rig::new(3);
    let id = tell(&mut rig, 1);
    let (_, tid, text) = told(&mut rig, 1).unwrap();
    assert_eq!(text, r#"{"prefix":"version"}"#);
    rig.hang_up(1);
    rig.run_secs(1);
    let (link, again, _) = told(&mut rig, 1).unwrap();
    assert_eq!(again, tid);
    let reply = || {
        let reply = MCommandReply { result: -2, outs: "no".into(), data: "out".into() };
        reply.encode().with_tid(tid)
    };
    rig.osd_says(1, link, reply());
    match rig.outcome(id) {
        Outcome::Command(Ok(r)) => {
            assert_eq!((r.status, &*r.outs, &r.data[..]), (-2, "no", &b"out"[..]));
        }
        other => panic!("{other:?}"),
    }
    rig.osd_says(1, link, reply());
    assert!(rig.done().is_empty(), "it ended once");
}

#[test]
fn an_osd_that_is_down_cannot_be_asked() {
    let mut rig = Rig::new(3);
    let fails = |rig: &mut Rig, id| match rig.outcome(id) {
        Outcome::Command(Err(why)) => {
            assert_eq!(why.errno, Errno::ENXIO);
            assert!(why.to_string().contains("is not up"), "{why}");
        }
        other => panic!("{other:?}"),
    };
    let id = tell(&mut rig, 1);
    assert!(told(&mut rig, 1).is_some());
    rig.mark_down(1);
    rig.run_secs(20);
    fails(&mut rig, id);
    for osd in [1, 77] {
        let id = tell(&mut rig, osd);
        rig.run_secs(1);
        fails(&mut rig, id);
    }
}

#[test]
fn a_command_that_is_not_answered_ends_when_its_time_is_over() {
    let mut rig = Rig::with_op_timeout(Duration::from_secs(10));
    let id = tell(&mut rig, 1);
    let (link, tid, _) = told(&mut rig, 1).unwrap();
    rig.run_secs(9);
    assert!(rig.is_pending(id));
    rig.run_secs(1);
    let Outcome::Command(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, Errno::ETIMEDOUT);
    rig.osd_says(1, link, MCommandReply::default().encode().with_tid(tid));
    assert!(rig.done().is_empty(), "it ended once");
}

//! Sessions with mons: finding one, losing it, commands.

use crate::rig::{Rig, fsid};
use client::Outcome;
use std::time::Duration;

#[test]
fn a_client_gets_its_number_and_the_maps() {
    let mut rig = Rig::new(3);
    let (id, cluster) = rig.act(|_, c| (c.global_id(), c.fsid()));
    assert_eq!((id, cluster), (4101, Some(fsid())));
    assert!(rig.act(|_, c| c.has_mon() && c.monmap().unwrap().mons.len() == 1));
}

#[test]
fn commands_give_status_text_and_data() {
    let mut rig = Rig::new(1);
    let id = rig.act(|now, c| c.command(now, r#"{"prefix":"status"}"#, "input"));
    let Outcome::Command(Ok(reply)) = rig.outcome(id) else { panic!() };
    assert_eq!(reply.outs, r#"did {"prefix":"status"}"#);
    assert_eq!((reply.status, &reply.data[..]), (0, &b"input"[..]));
    let id = rig.act(|now, c| c.get_version(now, "osdmap"));
    let newest = u64::from(rig.maps.borrow().now.epoch.0);
    let Outcome::Version(Ok(v)) = rig.outcome(id) else { panic!() };
    assert_eq!((v.newest, v.oldest), (newest, 1));
}

#[test]
fn of_several_mons_one_that_is_up_is_found() {
    for seed in 0..10 {
        let mut rig = Rig::with_mons(5, 1, seed);
        rig.start_client();
        rig.world.start(rig.mons[2].0);
        rig.run_secs(20);
        assert!(rig.act(|_, c| c.has_mon()), "seed {seed}");
        // Exactly one session is kept.
        let links: usize = rig.mons.iter().map(|(_, s)| s.borrow().links.len()).sum();
        assert_eq!(links, 1);
    }
}

#[test]
fn only_one_of_several_sessions_is_kept() {
    for seed in 0..10 {
        let mut rig = Rig::with_mons(3, 1, seed);
        rig.start();
        rig.run_secs(1);
        let links: usize = rig.mons.iter().map(|(_, s)| s.borrow().links.len()).sum();
        assert_eq!(links, 1, "seed {seed}");
    }
}

#[test]
fn a_lost_mon_is_replaced_and_unanswered_commands_are_sent_again() {
    let mut rig = Rig::with_mons(2, 1, 3);
    rig.start();
    rig.maps.borrow_mut().answers_commands = false;
    let id = rig.act(|now, c| c.command(now, r#"{"prefix":"a"}"#, ""));
    let first = rig.mons.iter().position(|(_, s)| !s.borrow().links.is_empty()).unwrap();
    rig.maps.borrow_mut().answers_commands = true;
    let node = rig.mons[first].0;
    rig.world.crash(node);
    rig.run_secs(10);
    assert!(matches!(rig.outcome(id), Outcome::Command(Ok(_))));
    let seen = rig.maps.borrow().commands_seen.clone();
    assert_eq!(seen, [r#"{"prefix":"a"}"#, r#"{"prefix":"a"}"#]);
    // It is still the same client.
    let ids = rig.mons[1 - first].1.borrow().known_ids.clone();
    assert_eq!(ids.last(), rig.mons[first].1.borrow().known_ids.last());
}

#[test]
fn while_no_mon_answers_it_is_tried_again_and_again_but_not_in_a_hurry() {
    let mut rig = Rig::with_mons(1, 1, 3);
    rig.start_client();
    rig.run_secs(60);
    let before = rig.world.events();
    rig.run_secs(60);
    let tries = rig.world.events() - before;
    assert!((20..200).contains(&tries), "{tries} events in a minute");
    assert!(rig.act(|_, c| c.mon_trouble().unwrap().contains("refused")));
    rig.world.start(rig.mons[0].0);
    rig.run_secs(6);
    assert!(rig.act(|_, c| c.has_mon()));
}

#[test]
fn requests_to_the_mon_can_have_a_limit() {
    let mut rig = Rig::with_mons(1, 1, 3);
    rig.mon_timeout(Duration::from_secs(5));
    rig.start_client();
    let id = rig.act(|now, c| c.command(now, "{}", ""));
    let pool = rig.act(|now, c| c.lookup_pool(now, "rbd"));
    rig.run_secs(6);
    let Outcome::Command(Err(error)) = rig.outcome(id) else { panic!() };
    assert_eq!(error.errno, types::Errno::ETIMEDOUT);
    assert!(error.to_string().contains("no mon could be reached"), "{error}");
    assert!(matches!(rig.outcome(pool), Outcome::Pool(Err(_))));
}

#[test]
fn waiting_for_a_map_that_does_not_come_can_have_a_limit() {
    let mut rig = Rig::with_mons(1, 1, 3);
    rig.mon_timeout(Duration::from_secs(5));
    rig.start();
    // The mon names an epoch, and does not send it.
    let far = rig.maps.borrow().now.epoch.next().next();
    let wait = rig.act(move |now, c| c.wait_for_map(now, far));
    let snap = rig.act(|now, c| c.create_own_snap(now, crate::rig::POOL));
    rig.maps.borrow_mut().change(|_, _| ());
    let pool = rig.act(|now, c| c.lookup_pool(now, "no such pool"));
    rig.run_secs(4);
    assert!([wait, snap, pool].into_iter().all(|id| rig.is_pending(id)));
    rig.run_secs(2);
    let errors = [wait, snap, pool].map(|id| match rig.outcome(id) {
        Outcome::Map(Err(error)) | Outcome::PoolOp(Err(error)) | Outcome::Pool(Err(error)) => {
            error.errno
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(errors, [types::Errno::ETIMEDOUT; 3]);
    rig.change(|_, _| ());
    assert!(rig.done().is_empty(), "once");
}

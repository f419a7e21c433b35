//! Sessions between OSDs that end, with all that was on its way.

use crate::admin::{ask, tell};
use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, output};
use serde_json::json;
use std::time::Duration;
use types::{Errno, OsdId};

const PATIENCE: Duration = Duration::from_secs(30);
const OBJECTS: usize = 60;

fn data(i: usize, round: u8) -> Vec<u8> {
    vec![i as u8 ^ round; 3000 + i * 17]
}

fn write_all(c: &mut Cluster, round: u8) {
    for i in 0..OBJECTS {
        let ops = vec![write_full(&data(i, round))];
        c.on_client(|cl| cl.request(object(1, &format!("o{i}")), ops, true));
    }
}

fn assert_all(c: &mut Cluster, round: u8) {
    for i in 0..OBJECTS {
        let got = c.call(object(1, &format!("o{i}")), vec![read(0, 0)], false);
        assert!(output(&got, 0) == data(i, round), "object {i} of round {round}");
    }
}

fn break_session(c: &mut Cluster, osd: i32, other: i32) -> i32 {
    tell(c, osd, &json!({ "prefix": "break_session", "osd": other })).0
}

/// Copies of writes, their answers and whole objects are lost with a session, and nobody starts again for it.
#[test]
fn what_was_on_its_way_in_a_lost_session_is_done_again() {
    for seed in 0..20 {
        let mut c = Cluster::new(seed, 3, &Default::default());
        c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 8));
        c.wait_clean();
        assert_eq!(break_session(&mut c, 0, 0), -Errno::ENOTCONN.0, "there is none with itself");
        assert_eq!(break_session(&mut c, 0, 77), -Errno::ENOTCONN.0);
        for round in 0..4 {
            write_all(&mut c, round);
            c.pass(Duration::from_micros(u64::from(round) * 700 + seed * 100));
            let (osd, other) = [(0, 1), (1, 2), (2, 0), (1, 0)][usize::from(round)];
            assert_eq!(break_session(&mut c, osd, other), 0);
            c.run_until(PATIENCE, |c| c.client.borrow().outstanding() == 0);
            c.wait_clean();
            assert_all(&mut c, round);
        }
        let lost: u64 = (0..3)
            .map(|osd| ask(&mut c, osd, "perf dump")["osd"]["lost_sessions"].as_u64().unwrap_or(0))
            .sum();
        assert!(lost >= 8, "both ends of four sessions: {lost}");
    }
}

/// The same while an OSD that was away is brought what it missed.
#[test]
fn recovery_goes_on_after_a_lost_session() {
    for seed in 0..10 {
        let mut c = Cluster::new(seed, 3, &Default::default());
        c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 8));
        c.wait_clean();
        write_all(&mut c, 0);
        c.run_until(PATIENCE, |c| c.client.borrow().outstanding() == 0);
        c.off[2] = true;
        c.crash(2);
        c.run_until(PATIENCE, |c| c.mon.borrow().map.is_down(OsdId(2)));
        write_all(&mut c, 1);
        c.run_until(PATIENCE, |c| c.client.borrow().outstanding() == 0);
        c.start(2);
        c.run_until(PATIENCE, |c| !c.mon.borrow().map.is_down(OsdId(2)));
        for i in 0..6 {
            c.pass(Duration::from_millis(1 + seed));
            // Whoever shares nothing with it yet says so.
            break_session(&mut c, 2, i % 2);
        }
        c.wait_clean();
        assert_all(&mut c, 1);
    }
}

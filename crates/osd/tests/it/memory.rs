//! What OSDs have in hand, against the memory that they may use.

use crate::admin::ask;
use crate::basic::write_full;
use crate::client::object;
use crate::cluster::Cluster;
use serde_json::json;
use std::time::Duration;
use types::OsdId;
use wire::msg::{MCommandReply, Payload};

const MIB: u64 = 1 << 20;

/// Bytes that came with requests.
fn in_hand(c: &mut Cluster, osd: i32) -> u64 {
    let pools = ask(c, osd, "dump_mempools");
    pools["mempool"]["by_pool"]["osd"]["bytes"].as_u64().expect("bytes")
}

/// Starts writes of 1 MiB to objects that an OSD leads, or that it does not lead.
fn start_writes(c: &mut Cluster, count: usize, osd: OsdId, leads: bool) {
    let mut objects = Vec::new();
    for i in 0.. {
        let target = object(1, &format!("o{i}"));
        if (c.client.borrow().primary_of(&target) == osd) == leads {
            objects.push(target);
        }
        if objects.len() == count {
            break;
        }
    }
    let data = vec![7; MIB as usize];
    for target in objects {
        c.on_client(|c| c.request(target, vec![write_full(&data)], true));
    }
}

#[test]
fn clients_wait_while_writes_that_others_lead_fill_the_memory() {
    // A quarter of it is for requests, and a quarter of that is left to clients in any case.
    let options = [("osd_memory_target".to_owned(), "32M".to_owned())].into();
    let mut c = Cluster::with_disks(3, &[512 * MIB; 3], &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 8));
    c.wait_clean();
    let slow = c.osds[0];
    c.world.set_slow_disks(slow, 10_000);
    start_writes(&mut c, 12, OsdId(0), false);
    c.run_until(Duration::from_secs(1), |c| in_hand(c, 0) >= 12 * MIB);

    start_writes(&mut c, 1, OsdId(0), true);
    c.run_until(Duration::from_secs(1), |c| in_hand(c, 0) >= 13 * MIB);
    start_writes(&mut c, 3, OsdId(0), true);
    let tid = c.on_client(|c| c.command(OsdId(0), json!({ "prefix": "version" }).to_string()));
    let is_answered = |c: &Cluster| {
        let client = c.client.borrow();
        let mut all = client.other.iter();
        all.any(|m| m.header.kind == MCommandReply::TYPE && m.header.tid == tid)
    };
    c.pass(Duration::from_millis(500));
    assert!(!is_answered(&c), "it came after more than there should be in hand");

    c.world.set_slow_disks(slow, 1);
    c.run_until(Duration::from_secs(60), |c| is_answered(c));
    c.run_until(Duration::from_secs(60), |c| c.client.borrow().outstanding() == 0);
    for osd in 0..3 {
        assert_eq!(in_hand(&mut c, osd), 0, "osd.{osd}");
    }
}

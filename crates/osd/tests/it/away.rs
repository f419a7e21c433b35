//! What an OSD takes over when it comes back, in transactions that its store can take.

use crate::basic::write_full;
use crate::client::object;
use crate::cluster::{Cluster, Options};
use std::time::Duration;
use types::testing::{Probe, hits_of, take_hits};
use types::{OsdId, PgId, PoolId};
use wire::msg::OsdOp;
use wire::msg::op::{Extent, OpCode};

const MINUTE: Duration = Duration::from_secs(60);
/// Their logs are large enough for what is to come in one piece.
const DISK_BYTES: u64 = 256 << 20;
const AWAY: usize = 2;
const ONLY_PG: PgId = PgId { pool: PoolId(1), seed: 0 };

/// Three OSDs with one PG. The third has a copy, and does not lead.
fn cluster(seed: u64, options: &[(&str, &str)]) -> Cluster {
    let options: Options =
        options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let mut c = Cluster::with_disks(seed, &[DISK_BYTES; 3], &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 1));
    c.on_mon(|m| m.set_affinity(OsdId(AWAY as i32), 0));
    c.wait_clean();
    c
}

fn change_all(c: &mut Cluster, names: impl Iterator<Item = String>, op: impl Fn() -> OsdOp) {
    for name in names {
        c.on_client(|cl| cl.request(object(1, &name), vec![op()], true));
    }
    c.run_until(MINUTE, |c| c.client.borrow().outstanding() == 0);
}

fn leave(c: &mut Cluster) {
    c.off[AWAY] = true;
    c.crash(AWAY);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(AWAY as i32)));
}

fn delete() -> OsdOp {
    OsdOp::new(OpCode::DELETE, Extent::default())
}

/// They are removed a few at a time, and what a crash leaves of them is removed at the next start.
#[test]
fn what_was_deleted_meanwhile_is_removed_in_parts() {
    take_hits();
    for seed in 1..9 {
        let mut c = cluster(seed, &[("osd_target_transaction_size", "1")]);
        let names = |n: std::ops::Range<u32>| n.map(|i| format!("{i}{}", "x".repeat(100)));
        change_all(&mut c, names(0..1000), || write_full(b"before"));
        c.off[AWAY] = true;
        let node = c.osds[AWAY];
        // What it has is in its places, so that it must be read before it can be removed.
        c.world.stop(node);
        c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(AWAY as i32)));
        change_all(&mut c, names(0..1000), delete);
        change_all(&mut c, names(0..20), || write_full(b"anew"));
        let before = hits_of(Probe::DeleteRecovered);
        c.start(AWAY);
        c.run_until(MINUTE, |_| hits_of(Probe::DeleteRecovered) > before);
        c.world.run_for(Duration::from_micros(100 * seed));
        leave(&mut c);
        c.start(AWAY);
        c.pass(Duration::from_secs(1));
        c.wait_clean();
        crate::scrub::scrub(&mut c, ONLY_PG, true, false);
        // A scrub that finds what the log has deleted removes it.
        assert_eq!(hits_of(Probe::ScrubFoundError), 0);
    }
    assert!(hits_of(Probe::DeletesLeft) > 0, "a crash came between two parts");
}

/// However long names and logs are: a copy that comes back, or is new, takes the log over.
#[test]
fn a_log_of_long_names_fits_into_a_transaction() {
    let mut c = cluster(1, &[("osd_min_pg_log_entries", "100000")]);
    let names = |n: std::ops::Range<u32>| n.map(|i| format!("{i}{}", "x".repeat(1000)));
    change_all(&mut c, names(0..200), || write_full(b"before"));
    leave(&mut c);
    change_all(&mut c, names(0..3000), || write_full(b"after"));
    c.start(AWAY);
    c.pass(Duration::from_secs(1));
    c.wait_clean();
    let record = crate::scrub::scrub(&mut c, ONLY_PG, true, false);
    assert_eq!(record.errors(), 0, "{record:?}");
}

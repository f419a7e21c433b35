//! What a request may cost: `docs/latency.md` in numbers.

use crate::basic::{read, with_pool, write_full};
use crate::client::object;
use crate::cluster::Cluster;
use sim::Work;
use std::time::Duration;
use wire::msg::OsdOp;
use wire::msg::op::op_flags;

/// What the OSDs do for a request when nothing else goes on: the least of many. Heartbeats and
/// reports come beside some of them, and many messages arrive in pieces: one write in a hundred is not disturbed.
fn least(c: &mut Cluster, mut op: impl FnMut() -> OsdOp, write: bool) -> Work {
    let all = |c: &Cluster| {
        let each = c.osds.iter().map(|node| c.world.work(*node));
        each.fold(Work::default(), |sum, work| sum + work)
    };
    let mut costs: Vec<Work> = (0..512)
        .map(|_| {
            let before = all(c);
            assert_eq!(c.call(object(1, "a"), vec![op()], write).result, 0);
            all(c) - before
        })
        .collect();
    costs.sort_by_key(|w| (w.sends + w.durable_writes + w.writes + w.reads, w.turns));
    costs[0]
}

#[test]
fn a_small_write_costs_two_round_trips_and_one_durable_write_on_each_copy() {
    let mut c = with_pool(1, 3, 3);
    let data = vec![7; 4096];
    assert_eq!(c.call(object(1, "a"), vec![write_full(&data)], true).result, 0);
    let cost = least(&mut c, || write_full(&data), true);
    // The answers of two replicas and one to the client, two copies of the write.
    assert_eq!(cost.sends, 5, "{cost:?}");
    assert_eq!(cost.durable_writes, 3, "{cost:?}");
    assert_eq!((cost.reads, cost.writes, cost.flushes), (0, 0, 0), "{cost:?}");
    // The request, this disk, two answers; on each replica the write and its disk.
    assert!(cost.turns <= 8, "{cost:?}");
}

#[test]
fn a_small_read_costs_one_round_trip_and_at_most_one_disk_read() {
    let mut c = with_pool(1, 3, 3);
    assert_eq!(c.call(object(1, "a"), vec![write_full(&[7; 4096])], true).result, 0);
    let cost = least(&mut c, || read(0, 4096), false);
    assert_eq!(cost.sends, 1, "{cost:?}");
    assert!(cost.reads <= 1 && cost.turns <= 2, "{cost:?}");
    assert_eq!((cost.durable_writes, cost.writes, cost.flushes), (0, 0, 0), "{cost:?}");
}

/// Reads of the disk of all OSDs for a request.
fn disk_reads(c: &mut Cluster, op: OsdOp) -> u64 {
    let all = |c: &Cluster| c.osds.iter().map(|node| c.world.work(*node).reads).sum::<u64>();
    let before = all(c);
    assert_eq!(c.call(object(1, "a"), vec![op], false).result, 0);
    all(c) - before
}

#[test]
fn what_a_client_reads_again_is_in_memory_if_it_does_not_say_that_it_will_not() {
    let mut c = with_pool(1, 3, 3);
    assert_eq!(c.call(object(1, "a"), vec![write_full(&[7; 256 << 10])], true).result, 0);
    c.pass(Duration::from_secs(90));
    let once = |at| OsdOp { flags: op_flags::FADVISE_NOCACHE, ..read(at, 4096) };
    // The first one may have to read records, too.
    assert!(disk_reads(&mut c, read(0, 4096)) >= 1);
    assert_eq!(disk_reads(&mut c, read(0, 4096)), 0);
    assert_eq!(disk_reads(&mut c, once(0)), 0);
    for at in [8192, 8192] {
        assert_eq!(disk_reads(&mut c, once(at)), 1);
    }
    assert_eq!(disk_reads(&mut c, read(8192, 4096)), 1);
    assert_eq!(disk_reads(&mut c, once(8192)), 0);
}

//! Messages of OSDs that are ahead of another one.

use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, output};
use std::time::Duration;
use types::OsdId;
use types::testing::{Probe, hits_of, take_hits};

const MIB: usize = 1 << 20;

/// The oldest of them was forgotten without a word, and its sender waited for an answer for ever.
#[test]
fn when_too_much_waits_for_a_map_the_session_ends_and_all_is_done_again() {
    let options = [("osd_memory_target", "32M"), ("osd_heartbeat_interval", "10")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let mut c = Cluster::with_disks(3, &[512 << 20; 3], &options);
    c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 8));
    c.wait_clean();
    let leads = |c: &Cluster, i: usize, osd| {
        c.client.borrow().primary_of(&object(1, &format!("o{i}"))) == OsdId(osd)
    };
    let of = |osd| (0..100).filter(|i| leads(&c, *i, osd)).take(3).collect::<Vec<_>>();
    let all = [of(0), of(1)].concat();
    let (mon, late) = (c.mon_node, c.osds[2]);
    c.world.set_silent(mon, late, true);
    c.on_mon(|m| m.set_pool_options(1, &[("recovery_priority", "1")]));
    c.pass(Duration::from_millis(100));
    take_hits();
    for i in &all {
        let data = vec![*i as u8; MIB];
        c.on_client(|cl| cl.request(object(1, &format!("o{i}")), vec![write_full(&data)], true));
    }
    c.run_until(Duration::from_secs(1), |_| hits_of(Probe::EarlyTooMuch) > 0);
    c.world.set_silent(mon, late, false);
    c.run_until(Duration::from_secs(30), |c| c.client.borrow().outstanding() == 0);
    c.wait_clean();
    for i in &all {
        let got = c.call(object(1, &format!("o{i}")), vec![read(0, 0)], false);
        assert!(output(&got, 0) == vec![*i as u8; MIB]);
    }
}

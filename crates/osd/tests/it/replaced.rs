//! OSDs that begin anew with an empty disk.

use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, output};
use std::time::Duration;
use types::OsdId;

const PATIENCE: Duration = Duration::from_secs(60);
const OBJECTS: usize = 20;

fn write_all(c: &mut Cluster, byte: u8) {
    for i in 0..OBJECTS {
        let reply = c.call(object(1, &format!("o{i}")), vec![write_full(&[byte; 500])], true);
        assert_eq!(reply.result, 0);
    }
}

fn take_down(c: &mut Cluster, osd: usize) {
    c.off[osd] = true;
    c.crash(osd);
    c.run_until(PATIENCE, |c| c.mon.borrow().map.is_down(OsdId(osd as i32)));
}

/// Of the two that took the newest writes one is away, and the other's disk is gone: the third, which missed them,
/// must not serve with the new one, which knows nothing. With Ceph it does, and the writes are lost.
#[test]
fn a_new_disk_does_not_vouch_for_what_the_old_one_had() {
    for lost in [0, 1] {
        let mut c = Cluster::new(7, 3, &Default::default());
        c.on_mon(|m| m.create_pool(1, "rbd", 3, 2, 8));
        c.wait_clean();
        write_all(&mut c, 1);
        take_down(&mut c, 2);
        write_all(&mut c, 2);
        take_down(&mut c, 1 - lost);
        take_down(&mut c, lost);
        c.replace_disk(lost);
        c.start(lost);
        c.start(2);
        c.run_until(PATIENCE, |c| {
            let map = &c.mon.borrow().map;
            !map.is_down(OsdId(2)) && !map.is_down(OsdId(lost as i32))
        });
        let asked: Vec<u64> = (0..OBJECTS)
            .map(|i| {
                let target = object(1, &format!("o{i}"));
                c.on_client(|client| client.request(target, vec![read(0, 0)], false))
            })
            .collect();
        c.pass(Duration::from_secs(10));
        let done = asked.iter().filter(|tid| c.client.borrow().done.contains_key(tid)).count();
        assert_eq!(done, 0, "osd.{lost}: nothing is served");
        c.start(1 - lost);
        for tid in asked {
            let reply = c.wait_for(tid);
            assert!(*output(&reply, 0) == [2; 500], "osd.{lost}: the newest write");
        }
        c.wait_clean();
    }
}

//! A PG that `loligo store import` was bringing into a store when it broke off.

use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, FSID, Options, output};
use bytes::Bytes;
use io::disk::DeviceInfo;
use io::{Core, Effects, Event, Now};
use std::time::Duration;
use store::{Config, Devices, Expect, Mount, ReadSet, Store, StoreEvent, SubmitError, Transaction};
use types::testing::{Probe, hits_of, take_hits};
use types::{Mono, OsdId, PgId, PoolId};

const MINUTE: Duration = Duration::from_secs(60);
const PG: PgId = PgId { pool: PoolId(1), seed: 0 };
const AWAY: usize = 1;

/// Changes the store of an OSD that does not run.
struct Tool {
    mount: Mount,
    store: Option<Store>,
    change: Transaction,
    reads: ReadSet,
}

impl Tool {
    fn new(devices: &[DeviceInfo], change: Transaction) -> Self {
        let devices = Devices { data: devices[0].clone(), wal: None };
        let expect = Expect { cluster: Some(FSID), ..Expect::default() };
        let mount = Mount::new(devices, expect, Config::for_memory(64 << 20));
        Tool { mount, store: None, change, reads: ReadSet::new() }
    }

    fn submit(&mut self, now: Now, fx: &mut Effects) {
        let store = self.store.as_mut().expect("it is mounted");
        match store.submit(now, &self.change, &self.reads) {
            Ok(_) => store.unmount(),
            Err(SubmitError::Miss(miss)) => store.fetch(now, miss, 0, fx),
            Err(why) => panic!("{why:?}"),
        }
    }
}

impl Core for Tool {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        match (event, &mut self.store) {
            (Event::Start, _) => self.mount.start(fx),
            (Event::Disk(done), Some(store)) => _ = store.handle(now, done, fx),
            (Event::Disk(done), None) => {
                if let Some(store) = self.mount.handle(done, fx) {
                    self.store = Some(store.expect("it can be mounted"));
                    self.submit(now, fx);
                }
            }
            _ => {}
        }
        while let Some(event) = self.store.as_mut().and_then(Store::poll_event) {
            match event {
                StoreEvent::Fetched { result, .. } => {
                    self.reads.merge(result.expect("it can be read"));
                    self.submit(now, fx);
                }
                StoreEvent::Unmounted => fx.exit(0, "done"),
                _ => {}
            }
        }
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        if let Some(store) = &mut self.store {
            store.end_turn(now, fx);
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        self.store.as_ref()?.next_deadline()
    }
}

/// The store of an OSD that is off changes.
fn change(c: &mut Cluster, osd: usize, change: Transaction) {
    let node = c.osds[osd];
    let tool = move |devices: &[DeviceInfo], _| {
        Box::new(Tool::new(devices, change.clone())) as Box<dyn Core>
    };
    let boot = c.world.set_boot(node, Box::new(tool));
    c.world.start(node);
    assert!(c.world.run(MINUTE, |w| w.exit_of(node).is_some()), "the tool ends");
    drop(c.world.set_boot(node, boot));
}

/// An object has the version that it must have, and other content: it was half there. Whoever compares versions
/// cannot know. The OSD does not take it for a copy, whether it belongs to the PG or not.
#[test]
fn what_came_of_an_import_that_was_broken_off_is_removed() {
    take_hits();
    let mut c = Cluster::new(5, 2, &Options::new());
    c.on_mon(|m| m.create_pool(1, "rbd", 2, 1, 1));
    c.on_mon(|m| m.set_affinity(OsdId(AWAY as i32), 0));
    c.wait_clean();
    let whole = vec![b'w'; 20_000];
    for name in ["half", "other"] {
        assert_eq!(c.call(object(1, name), vec![write_full(&whole)], true).result, 0);
    }
    c.off[AWAY] = true;
    let node = c.osds[AWAY];
    c.world.stop(node);
    c.run_until(MINUTE, |c| c.mon.borrow().map.is_down(OsdId(AWAY as i32)));

    let mut import = Transaction::new(0);
    let own = osd::offline::meta_object(PG);
    import.remove(&own).omap_set(&own, vec![osd::offline::import_row(1)]);
    let mut half = object(1, "half");
    half.hash = c.mon.borrow().map.pool(PG.pool).expect("the pool").hash_key(b"", b"", b"half");
    import.write(&half.to_key(), 8192, Bytes::from(vec![0; 4096]));
    change(&mut c, AWAY, import);

    c.start(AWAY);
    c.run_until(MINUTE, |c| !c.mon.borrow().map.is_down(OsdId(AWAY as i32)));
    c.wait_clean();
    crate::scrub::scrub(&mut c, PG, true, false);
    assert_eq!(hits_of(Probe::ScrubFoundError), 0);
    c.off[0] = true;
    c.crash(0);
    let read = c.call(object(1, "half"), vec![read(0, 0)], false);
    assert!(output(&read, 0) == whole, "another content");
}

//! `loligo store count`: counts anew what each pool takes, where no start of an OSD does that.

use crate::cli::StorePath;
use crate::disks::Disks;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use crate::sizes::Bytes;
use crate::store_read::exit_of;
use crate::store_tool::disks_of;
use io::disk::DiskDone;
use io::{Core, Effects, Event, Now};
use serde_json::json;
use store::{AccountUsage, COUNT_ALL, Config, Expect, Mount, Store, StoreEvent};
use types::Mono;
use uring::Open;

/// Memory for the store.
const COUNT_BYTES: usize = 256 << 20;

/// Mounts the store, which counts, and closes it.
struct Count {
    mount: Mount,
    store: Option<Store>,
    counted: Vec<AccountUsage>,
    progress: Progress,
    began: Mono,
    percent: u64,
    /// How the command ends when it is broken off.
    exit: Exit,
}

impl Count {
    fn disk(&mut self, now: Now, done: DiskDone, fx: &mut Effects) {
        if let Some(store) = &mut self.store {
            store.handle(now, done, fx);
            return;
        }
        match self.mount.handle(done, fx) {
            Some(Ok(mut store)) => {
                self.progress.clear();
                self.counted = store.by_account().unwrap_or_default();
                store.unmount();
                self.store = Some(store);
            }
            Some(Err(why)) => {
                self.exit = exit_of(&why);
                fx.exit(1, why.to_string());
            }
            None => self.show(now),
        }
    }

    fn show(&mut self, now: Now) {
        let Some((read, of)) = self.mount.counted_nodes() else { return };
        let percent = read.saturating_mul(100) / of.max(1);
        if percent != self.percent {
            self.percent = percent;
            let what = format!("counting: {percent} % of the metadata read");
            self.progress.waiting(&what, now.mono.since(self.began));
        }
    }
}

impl Core for Count {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => {
                self.began = now.mono;
                self.mount.start(fx);
            }
            Event::Disk(done) => self.disk(now, done, fx),
            Event::Net(_) | Event::Kv(_) | Event::Timer | Event::Memory(_) | Event::Stop => {}
        }
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        let Some(store) = &mut self.store else { return };
        store.end_turn(now, fx);
        while let Some(event) = store.poll_event() {
            match event {
                StoreEvent::Unmounted => fx.exit(0, "done"),
                StoreEvent::Fatal(why) => fx.exit(1, why.to_string()),
                _ => {}
            }
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        self.store.as_ref()?.next_deadline()
    }
}

/// Carries out `loligo store count`.
///
/// # Errors
/// When the store cannot be mounted or written, or is damaged.
pub(crate) fn run(place: &StorePath) -> Result<Exit, Failure> {
    let (path, wal) = disks_of(place)?;
    let disks = Disks::open(&path, wal.as_deref(), Open::Existing)?;
    let account_of = Some(osd::offline::store_accounts());
    let config =
        Config { account_of, recount_blocks: COUNT_ALL, ..Config::for_memory(COUNT_BYTES) };
    let mut count = Count {
        mount: Mount::new(disks.devices.clone(), Expect::default(), config),
        store: None,
        counted: Vec::new(),
        progress: Progress::new(),
        began: Mono(0),
        percent: 0,
        exit: Exit::Failed,
    };
    let what = "cannot count what each pool takes";
    // Nothing is written before all is counted: an operator may interrupt it.
    let options = uring::Options { handle_signals: false, ..uring::Options::default() };
    let exit = uring::run(&mut count, disks.open, None, &options)
        .map_err(|e| Failure::new(what, e).exit(Exit::Machine))?;
    if exit.code != 0 {
        return Err(Failure::new(what, exit.why).exit(count.exit));
    }
    count.mount.warnings().iter().for_each(|what| tracing::warn!("{what}"));
    print(&count.counted, place.json);
    Ok(Exit::Done)
}

/// Pools have positive numbers; what is the OSD's own is counted under none.
fn print(counted: &[AccountUsage], as_json: bool) {
    if as_json {
        let pools = counted.iter().map(|a| {
            json!({"pool": a.account, "allocated_bytes": a.allocated, "stored_bytes": a.stored})
        });
        println!("{:#}", pools.collect::<serde_json::Value>());
        return;
    }
    for AccountUsage { account, allocated, stored } in counted {
        let (stored, allocated) = (Bytes(*stored), Bytes(*allocated));
        match *account {
            osd::offline::OWN_ACCOUNT => println!("the OSD's own: {stored} in {allocated}"),
            pool => println!("pool {pool}: {stored} in {allocated}"),
        }
    }
}

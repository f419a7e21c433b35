//! The check of the OSD's own records: maps, logs of PGs, indexes of snapshots.
//!
//! Scrubs of PGs read objects. What the OSD has written down for itself it reads at a start, or when it
//! is needed, perhaps after months; this reads all of it as often as deep scrubs are due, and when an
//! operator orders one. There is no other copy of it: what is damaged is reported, and shown in the
//! cluster's health until the OSD is made anew. Its objects are served meanwhile.

use crate::daemon::{Daemon, Waiter};
use crate::object::{meta_end, own_object};
use io::Effects;
use maps::OsdMapFlags;
use std::time::Duration;
use store::{Miss, ReadSet, ScrubCursor, Scrubbed, StoreError};
use types::{Mono, ObjectKey};

/// The first check is due so long after the OSD came up, in seconds.
const FIRST_S: u64 = 60;
/// Between two slices when clients are at work, in milliseconds.
const PAUSE_MS: u64 = 10;
/// Slices that are read in one turn when nothing must be fetched.
const SLICES_PER_TURN: usize = 2;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct OwnCheck {
    running: Option<Running>,
    /// When the next one begins. `None`: that is not chosen yet.
    due: Option<Mono>,
    asked: bool,
    /// What the last check found to be damaged first. Empty: nothing.
    damage: String,
}

#[derive(Debug)]
struct Running {
    /// The object at hand is the first one from here on.
    from: ObjectKey,
    /// Not that one itself: it is done.
    behind: bool,
    cursor: ScrubCursor,
    reads: ReadSet,
    /// What is being fetched.
    fetching: Option<u64>,
    not_before: Mono,
    objects: u64,
    damaged: u64,
    first: String,
}

impl Running {
    fn new() -> Self {
        Running {
            from: own_object("").to_key(),
            behind: false,
            cursor: ScrubCursor::default(),
            reads: ReadSet::new(),
            fetching: None,
            not_before: Mono::default(),
            objects: 0,
            damaged: 0,
            first: String::new(),
        }
    }

    fn go_behind(&mut self, key: ObjectKey) {
        self.objects += 1;
        (self.from, self.behind) = (key, true);
        self.cursor = ScrubCursor::default();
        self.reads = ReadSet::new();
    }
}

impl Daemon {
    /// An operator wants it.
    pub(super) fn ask_for_own_check(&mut self) {
        self.scrubs.own.asked = true;
    }

    /// What is damaged of the OSD's own records, by the last check. Empty: nothing.
    pub(crate) fn own_damage(&self) -> &str {
        &self.scrubs.own.damage
    }

    /// Begins a check when one is due.
    pub(super) fn begin_own_check(&mut self) {
        let now = self.now.mono;
        let stopped = self.maps.current().flags.contains(OsdMapFlags::NODEEP_SCRUB);
        let own = &mut self.scrubs.own;
        let due = *own.due.get_or_insert(now.after(Duration::from_secs(FIRST_S)));
        if own.running.is_none() && (own.asked || (due <= now && !stopped)) {
            own.asked = false;
            own.running = Some(Running::new());
            self.scrubs.wake_at(now);
        }
    }

    /// Goes on with it.
    pub(super) fn check_own(&mut self, fx: &mut Effects) {
        let now = self.now.mono;
        for _ in 0..SLICES_PER_TURN {
            let Some(run) = &self.scrubs.own.running else { return };
            if run.fetching.is_some() {
                return;
            }
            if run.not_before > now {
                let at = run.not_before;
                self.scrubs.wake_at(at);
                return;
            }
            match self.own_slice() {
                Ok(true) => {}
                Ok(false) => {
                    self.end_own_check();
                    return;
                }
                Err(miss) => {
                    self.scrubs.last_fetch += 1;
                    let id = self.scrubs.last_fetch;
                    self.fetch(miss, Waiter::OwnRecords(id), fx);
                    if let Some(run) = &mut self.scrubs.own.running {
                        run.fetching = Some(id);
                    }
                    return;
                }
            }
        }
        let pause = if self.ops.is_empty() { 0 } else { PAUSE_MS };
        let at = now.after(Duration::from_millis(pause));
        if let Some(run) = &mut self.scrubs.own.running {
            run.not_before = at;
        }
        self.scrubs.wake_at(at);
    }

    /// One slice. `false`: all is read.
    fn own_slice(&mut self) -> Result<bool, Miss> {
        let Some(run) = &mut self.scrubs.own.running else { return Ok(false) };
        let listed = self.store.list(&run.from, &meta_end().to_key(), 2)?;
        let mut keys = listed.into_iter().map(|(key, _)| key);
        let Some(key) = keys.find(|key| !run.behind || *key != run.from) else {
            return Ok(false);
        };
        let reads = std::mem::take(&mut run.reads);
        match self.store.scrub(&key, &mut run.cursor, &self.limits.scrub.slice, &reads) {
            Ok(Scrubbed::More | Scrubbed::Changed) => {}
            Ok(Scrubbed::Absent | Scrubbed::Done(_)) => run.go_behind(key),
            Err(miss) => {
                run.reads = reads;
                return Err(miss);
            }
        }
        Ok(true)
    }

    /// What a slice lacked is here, or cannot be read.
    pub(crate) fn own_records_fetched(&mut self, id: u64, result: Result<ReadSet, StoreError>) {
        let now = self.now.mono;
        let key = self.own_key();
        let Some(run) = self.scrubs.own.running.as_mut().filter(|r| r.fetching == Some(id)) else {
            return;
        };
        run.fetching = None;
        match result {
            Ok(reads) => run.reads.merge(reads),
            Err(why) => {
                run.damaged += 1;
                if run.first.is_empty() {
                    run.first = why.to_string();
                }
                match key {
                    Some(key) => run.go_behind(key),
                    // Not even the names can be read: what is behind stays unknown.
                    None => run.go_behind(meta_end().to_key()),
                }
            }
        }
        self.scrubs.wake_at(now);
    }

    /// The object at hand, if its name can be read.
    fn own_key(&self) -> Option<ObjectKey> {
        let run = self.scrubs.own.running.as_ref()?;
        let listed = self.store.list(&run.from, &meta_end().to_key(), 2).ok()?;
        let mut keys = listed.into_iter().map(|(key, _)| key);
        keys.find(|key| !run.behind || *key != run.from)
    }

    fn end_own_check(&mut self) {
        let Some(run) = self.scrubs.own.running.take() else { return };
        let (id, objects) = (self.cfg.id, run.objects);
        self.scrubs.own.due = Some(self.now.mono.after(self.limits.scrub.intervals.deep));
        self.perf.own_checks += 1;
        self.perf.own_damaged = run.damaged;
        if run.damaged == 0 {
            tracing::debug!("osd.{id}: its own records are whole: {objects} objects");
        } else {
            tracing::error!(
                "osd.{id}: {} of the {objects} objects with its own records are damaged: {}. Its data \
                 is served; make it anew with `loligo osd replace`, since it may not start again",
                run.damaged,
                run.first
            );
        }
        if self.scrubs.own.damage != run.first {
            self.scrubs.own.damage = run.first;
            self.report_soon();
        }
    }
}

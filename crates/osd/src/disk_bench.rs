//! `ceph tell osd.N bench`: how fast this OSD's store takes durable writes, without network and without
//! other OSDs. Arguments, bounds and answer are Ceph's (`osd/OSD.cc`, the command `bench`).
//!
//! It writes to one object of the OSD's own, which goes when it is done, or when the OSD starts again.

use crate::admin::Asker;
use crate::daemon::{Daemon, Waiter};
use crate::host::Then;
use crate::object::own_object;
use admin::{Answer, Args, CommandError};
use bytes::Bytes;
use io::{AlignedBuf, Effects, Rng};
use serde_json::json;
use store::{ReadSet, StoreError, SubmitError, Transaction};
use types::{Errno, HObject, Mono};

/// Writes under way at a time.
const DEPTH: usize = 16;
/// Its transactions are ordered among themselves only.
const SEQUENCER: u64 = u64::MAX - 1;
/// What is written when nothing is said, and in which pieces.
const COUNT_BYTES: u64 = 1 << 30;
const SIZE_BYTES: u64 = 4 << 20;
/// Writes smaller than this are bounded by their number, larger ones by their bytes.
const SMALL_BYTES: u64 = 1 << 20;

/// The object it writes to.
pub(crate) fn bench_object() -> HObject {
    own_object("disk_bench")
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Bytes of all writes, and of one.
    count: u64,
    size: u64,
    /// Writes go to random places of so many bytes, which are written over first; 0: one behind the other.
    region: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Writing what will be written over.
    Fill,
    Write,
    /// What was begun ends; then the object goes.
    Remove,
    /// Its removal is submitted.
    Gone,
}

/// One that runs.
#[derive(Debug)]
pub(crate) struct DiskBench {
    asker: Asker,
    load: Load,
    phase: Phase,
    /// Bytes of this phase that are yet to be submitted.
    left: u64,
    in_flight: usize,
    payload: Bytes,
    rng: Rng,
    began: Mono,
    /// What there is to say when the object is gone.
    outcome: Result<Answer, CommandError>,
    /// What was fetched for the transaction that is next.
    reads: ReadSet,
    /// It waits for what is being fetched, or for room.
    waits: bool,
}

impl DiskBench {
    fn new(asker: Asker, load: Load, now: Mono) -> Self {
        let mut payload = AlignedBuf::zeroed(usize::try_from(load.size).unwrap_or(usize::MAX));
        payload.as_mut_slice().fill(0x6c);
        let phase = if load.region > 0 { Phase::Fill } else { Phase::Write };
        DiskBench {
            asker,
            load,
            phase,
            left: if load.region > 0 { load.region } else { load.count },
            in_flight: 0,
            payload: payload.freeze(),
            rng: Rng::with_seed(now.0),
            began: now,
            outcome: Ok(Answer::ok()),
            reads: ReadSet::new(),
            waits: false,
        }
    }

    /// What is to be submitted now, if anything is.
    fn next(&mut self) -> Option<Transaction> {
        let key = bench_object().to_key();
        let mut txn = Transaction::new(SEQUENCER);
        let Load { count, size, region } = self.load;
        let at = match self.phase {
            Phase::Remove if self.in_flight == 0 => {
                txn.may_use_reserve = true;
                txn.remove(&key);
                return Some(txn);
            }
            Phase::Remove | Phase::Gone => return None,
            _ if self.left == 0 || self.in_flight >= DEPTH => return None,
            Phase::Fill => region - self.left,
            Phase::Write if region > 0 => self.rng.u64(0..region / size) * size,
            Phase::Write => count - self.left,
        };
        txn.write(&key, at, self.payload.clone());
        Some(txn)
    }

    fn submitted(&mut self) {
        self.reads = ReadSet::new();
        self.in_flight += 1;
        match self.phase {
            Phase::Fill | Phase::Write => self.left -= self.load.size,
            Phase::Remove | Phase::Gone => self.phase = Phase::Gone,
        }
    }

    /// Everything that was submitted is durable.
    fn end_phase(&mut self, now: Mono) {
        match self.phase {
            Phase::Fill => {
                (self.phase, self.left, self.began) = (Phase::Write, self.load.count, now)
            }
            Phase::Write => {
                let seconds = now.since(self.began).as_secs_f64().max(1e-9);
                let per_second = self.load.count as f64 / seconds;
                self.outcome = Ok(Answer::json(json!({
                    "bytes_written": self.load.count,
                    "blocksize": self.load.size,
                    "elapsed_sec": seconds,
                    "bytes_per_sec": per_second,
                    "iops": per_second / self.load.size as f64,
                })));
                self.phase = Phase::Remove;
            }
            Phase::Remove | Phase::Gone => {}
        }
    }

    /// It breaks off. Whether there is nothing left to be done: not even the object can be removed.
    fn fail(&mut self, why: CommandError) -> bool {
        self.outcome = Err(why);
        std::mem::replace(&mut self.phase, Phase::Remove) == Phase::Remove
    }
}

impl Daemon {
    /// Begins one. The answer comes when it is over.
    ///
    /// # Errors
    /// EINVAL for what Ceph refuses, EBUSY when one runs, ENOSPC when it would not fit.
    pub(crate) fn start_bench(
        &mut self,
        args: &Args,
        asker: Asker,
        fx: &mut Effects,
    ) -> Result<(), CommandError> {
        let load = self.bench_load(args)?;
        if self.disk_bench.is_some() {
            return Err(CommandError::busy("a bench is under way"));
        }
        let (needed, free) = (load.region.max(load.count), self.store.usage().available);
        if needed > free {
            return Err(CommandError::new(
                Errno::ENOSPC,
                format_args!("the bench would take {needed} bytes, and {free} are free"),
            ));
        }
        self.disk_bench = Some(Box::new(DiskBench::new(asker, load, self.now.mono)));
        self.go_on_with_bench(fx);
        Ok(())
    }

    fn bench_load(&self, args: &Args) -> Result<Load, CommandError> {
        let number = |name: &str, default: u64| match args.int(name) {
            None => Ok(default),
            Some(n) => u64::try_from(n)
                .map_err(|_| CommandError::invalid(format_args!("'{name}' cannot be {n}"))),
        };
        let count = number("count", COUNT_BYTES)?;
        let object_bytes = number("object_size", 0)?;
        let mut size = number("size", SIZE_BYTES)?;
        if object_bytes > 0 {
            size = size.min(object_bytes);
        }
        let region = object_bytes.saturating_mul(number("object_num", 0)?);
        if size == 0 || count == 0 {
            return Err(CommandError::invalid("'count' and 'size' cannot be 0"));
        }
        let settings = &self.admin.settings;
        let most = settings.uint("osd_bench_max_block_size");
        if size > most {
            return Err(CommandError::invalid(format_args!(
                "block 'size' values are capped at {most} bytes. If you wish to use a higher value, \
                 please adjust 'osd_bench_max_block_size'"
            )));
        }
        let seconds = settings.uint("osd_bench_duration");
        let (per_second, option, rate) = if size < SMALL_BYTES {
            let iops = settings.uint("osd_bench_small_size_max_iops");
            (size.saturating_mul(iops), "osd_bench_small_size_max_iops", format!("{iops} IOPS"))
        } else {
            let bytes = settings.uint("osd_bench_large_size_max_throughput");
            (bytes, "osd_bench_large_size_max_throughput", format!("{bytes} bytes per second"))
        };
        let most = per_second.saturating_mul(seconds);
        if count > most {
            return Err(CommandError::invalid(format_args!(
                "'count' values greater than {most} for a block size of {size} bytes, assuming {rate}, \
                 for {seconds} seconds, can cause ill effects on osd. Please adjust '{option}' with a \
                 higher value if you wish to use a higher 'count'."
            )));
        }
        // Whole writes only: a last one that is shorter would be no measure.
        let most = u64::MAX / size * size;
        let round = |bytes: u64| bytes.checked_next_multiple_of(size).unwrap_or(most);
        Ok(Load { count: round(count), size, region: if region > 0 { round(region) } else { 0 } })
    }

    fn go_on_with_bench(&mut self, fx: &mut Effects) {
        while let Some(bench) = &mut self.disk_bench
            && !bench.waits
        {
            if bench.left == 0 && bench.in_flight == 0 {
                bench.end_phase(self.now.mono);
            }
            let Some(txn) = bench.next() else { return };
            let why = match self.store.submit(self.now, &txn, &bench.reads) {
                Ok(id) => {
                    bench.submitted();
                    self.durable.insert(id, [Then::Bench].into());
                    continue;
                }
                Err(SubmitError::Miss(miss)) => {
                    bench.waits = true;
                    self.fetch(miss, Waiter::Bench, fx);
                    return;
                }
                Err(SubmitError::Busy) => {
                    bench.waits = true;
                    self.blocked.push(Waiter::Bench);
                    return;
                }
                Err(SubmitError::NoSpace) => CommandError::new(Errno::ENOSPC, "the store is full"),
                Err(SubmitError::Invalid(why)) => CommandError::invalid(why),
            };
            if bench.fail(why) {
                self.end_bench(fx);
            }
        }
    }

    pub(crate) fn bench_fetched(&mut self, result: Result<ReadSet, StoreError>, fx: &mut Effects) {
        let Some(bench) = &mut self.disk_bench else { return };
        bench.waits = false;
        match result {
            Ok(reads) => bench.reads.merge(reads),
            Err(why) => {
                if bench.fail(CommandError::new(Errno::EIO, why)) {
                    self.end_bench(fx);
                }
            }
        }
        self.go_on_with_bench(fx);
    }

    /// One of its transactions is durable.
    pub(crate) fn bench_durable(&mut self, fx: &mut Effects) {
        let Some(bench) = &mut self.disk_bench else { return };
        bench.in_flight -= 1;
        match bench.phase {
            Phase::Gone => self.end_bench(fx),
            _ => self.go_on_with_bench(fx),
        }
    }

    fn end_bench(&mut self, fx: &mut Effects) {
        if let Some(bench) = self.disk_bench.take() {
            self.answer_command(bench.asker, bench.outcome, fx);
        }
    }
}

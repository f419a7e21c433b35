//! One client under load: a core that keeps so many operations going.
//!
//! It goes through stages ([`Stage`]), each of which is over when nothing of it is under way any more.
//! Whatever fails, objects are removed and the lock of an image is given back, as far as that can be
//! done. The measured stage begins when all jobs are ready.

use super::blocks::{Act, Blocks};
use super::content::Content;
use super::figures::Measured;
use super::options::{Plan, What};
use super::target::{Ended, ReadBack, Target};
use crate::failure::{Exit, Failure};
use crate::machine::{cpu_time, hostname};
use crate::sizes::Bytes;
use crate::sync_client::entropy;
use client::{Client, ClientConfig, ClientError, Outcome};
use io::{Core, Effects, Event, Now, Rng};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use types::{Errno, HashMap, Mono};

/// When nothing at all is answered for so long, it is over. An outage in the middle of a run that has
/// time left may take longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often a job that is ready looks whether the others are.
const READY_EVERY: Duration = Duration::from_millis(1);
/// Bytes under way while objects are filled.
const FILL_BYTES: u64 = 32 << 20;
/// Objects that are filled or removed at a time.
const MAX_FILLING: u64 = 64;

/// What the jobs share.
#[derive(Default)]
pub(super) struct Arena {
    ready: AtomicU64,
    /// One has failed, or the user wants an end: nothing more is begun.
    over: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

impl Arena {
    /// The first failure of any job.
    pub fn first_failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fail(&self, why: Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.over.store(true, Ordering::Relaxed);
    }

    fn has_failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// What a job is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The pool is looked up.
    Pool,
    /// The image is opened.
    Opening,
    /// Its lock is taken.
    Locking,
    /// Objects are written that will be read.
    Filling,
    /// The others are waited for.
    Ready,
    /// It is measured.
    Running,
    /// What was written is read back.
    Verifying,
    /// Objects are removed.
    CleaningUp,
    /// The image is closed.
    Closing,
    Over,
}

/// An operation under way.
struct Flying {
    act: Act,
    block: u64,
    since: Mono,
}

/// The core.
pub(super) struct Job {
    plan: Arc<Plan>,
    arena: Arc<Arena>,
    number: u64,
    client: Client,
    target: Target,
    stage: Stage,
    flying: HashMap<u64, Flying>,
    /// How many of them there may be now.
    depth: usize,
    content: Content,
    blocks: Blocks,
    /// Of this job, in the image or in all objects.
    first_block: u64,
    /// Operations begun, or where the stage has got to.
    next: u64,
    /// One bit for each object: it was written.
    made: Vec<u64>,
    rng: Rng,
    began: Mono,
    /// When the last operation ended.
    ended: Mono,
    /// When to look whether anything moves.
    look_at: Mono,
    /// When to look whether the others are ready, or the run's end.
    wake_at: Option<Mono>,
    stops: u32,
    measured: Measured,
}

impl Job {
    /// Runs a job to its end. Its failure is told to all.
    pub fn run(plan: Arc<Plan>, number: u64, arena: Arc<Arena>) -> Result<Measured, Failure> {
        let mut job = Job::new(plan, number, arena.clone());
        let run = uring::run(&mut job, Vec::new(), None, &uring::Options::default());
        if let Err(e) = run {
            let why = Failure::new("cannot run a client", e).exit(Exit::Machine);
            arena.fail(why.clone());
            return Err(why);
        }
        Ok(job.measured)
    }

    fn new(plan: Arc<Plan>, number: u64, arena: Arc<Arena>) -> Self {
        let mut rng = Rng::with_seed(entropy());
        // What is under way is bounded by the depth alone.
        let config = ClientConfig {
            hostname: hostname(),
            mon_timeout: Some(PATIENCE),
            max_ops: usize::MAX,
            max_bytes: usize::MAX,
            ..ClientConfig::new(plan.mons.clone())
        };
        let bytes = usize::try_from(plan.unit_bytes()).unwrap_or(usize::MAX);
        Job {
            client: Client::new(config, rng.u64(..)),
            target: Target::new(&plan, number, rng.u64(..)),
            content: Content::new(&mut rng, bytes, plan.run),
            blocks: Blocks::new(plan.rw, 0, 1, false, rng.fork()),
            plan,
            arena,
            number,
            stage: Stage::Pool,
            flying: HashMap::default(),
            depth: 0,
            first_block: 0,
            next: 0,
            made: Vec::new(),
            rng,
            began: Mono::default(),
            ended: Mono::default(),
            look_at: Mono::default(),
            wake_at: None,
            stops: 0,
            measured: Measured::default(),
        }
    }

    fn fail(&self, what: impl Into<String>, why: impl std::fmt::Display) {
        self.arena.fail(Failure::new(what, why));
    }

    /// The image cannot be had.
    fn fail_image(&self, error: &ClientError) {
        let is_held = matches!(error.errno, Errno::EBUSY | Errno::EROFS);
        let why = Failure::new("cannot load the image", error);
        let advice = "It is used by somebody else (`rbd status`, `rbd lock ls`): it is left alone. The \
                      lock of a client that is dead goes with `rbd lock rm`.";
        self.arena.fail(if is_held { why.advise(advice).exit(Exit::Refused) } else { why });
    }
}

// ---- stages ----

impl Job {
    fn enter(&mut self, now: Now, stage: Stage) {
        self.stage = stage;
        self.next = 0;
        self.ended = now.mono;
        let units = FILL_BYTES / self.plan.unit_bytes();
        self.depth = match stage {
            Stage::Filling | Stage::CleaningUp => units.clamp(1, MAX_FILLING) as usize,
            _ => self.plan.depth,
        };
        match stage {
            Stage::Ready => drop(self.arena.ready.fetch_add(1, Ordering::Relaxed)),
            Stage::Running => {
                self.began = now.mono;
                let cpu = cpu_time();
                self.measured.cpu = Some((cpu, cpu));
            }
            Stage::Closing => self.target.close(now, &mut self.client),
            _ => {}
        }
    }

    /// The bytes of all jobs are known.
    fn share_out(&mut self, size: u64) -> bool {
        match self.plan.blocks_of_job(size) {
            Ok(count) => {
                let (rw, mix) = (self.plan.rw, self.plan.mix_read_percent);
                self.first_block = count * self.number;
                self.measured.size_bytes = count * self.plan.block_bytes;
                self.blocks = Blocks::new(rw, mix, count, self.plan.verify, self.rng.fork());
                true
            }
            Err(why) => {
                self.arena.fail(why);
                false
            }
        }
    }

    fn blocks_per_object(&self) -> u64 {
        self.plan.unit_bytes() / self.plan.block_bytes
    }

    fn objects(&self) -> u64 {
        self.blocks.count() / self.blocks_per_object()
    }

    /// The pool is known.
    fn begin_target(&mut self, now: Now) {
        match &self.plan.what {
            What::Image { .. } => {
                self.target.open(now, &mut self.client, self.plan.rw.writes());
                self.enter(now, Stage::Opening);
            }
            What::Objects { fill, .. } => {
                let fill = *fill && self.plan.rw.reads();
                if self.share_out(self.plan.size.unwrap_or(0)) {
                    let written = if self.plan.rw.reads() { u64::MAX } else { 0 };
                    self.made = vec![written; self.objects().div_ceil(64) as usize];
                }
                self.enter(now, if fill { Stage::Filling } else { Stage::Ready });
            }
        }
    }

    /// The image is open.
    fn begin_image(&mut self, now: Now) {
        let Some(info) = self.target.info() else {
            return self.fail("cannot load the image", "it was closed");
        };
        let writes = self.plan.rw.writes();
        if writes
            && self.plan.jobs > 1
            && info.features & client::image::feature::EXCLUSIVE_LOCK != 0
        {
            let why = "it has the feature exclusive-lock, under which only one client writes";
            self.arena.fail(Failure::new("cannot load the image with several jobs", why).advise(
                "Raise --iodepth instead of --numjobs, or take an image without that feature.",
            ));
        }
        let size = self.plan.size.unwrap_or(info.size);
        if size > info.size {
            let why = format!("it has {}, not {}", Bytes(info.size), Bytes(size));
            self.fail("cannot load the image", why);
        }
        self.share_out(size);
        if writes && !self.arena.is_over() {
            self.target.lock(now, &mut self.client);
            self.enter(now, Stage::Locking);
        } else {
            self.enter(now, Stage::Ready);
        }
    }

    /// Goes on to the next stage if this one is over.
    fn advance(&mut self, now: Now) {
        if !self.flying.is_empty() {
            return;
        }
        let over = self.arena.is_over();
        let cleanup = matches!(self.plan.what, What::Objects { cleanup: true, .. });
        match self.stage {
            Stage::Filling if over || self.is_filled() => self.enter(now, Stage::Ready),
            Stage::Ready if over => self.enter(now, Stage::CleaningUp),
            Stage::Ready if self.arena.ready.load(Ordering::Relaxed) >= self.plan.jobs => {
                self.enter(now, Stage::Running);
            }
            Stage::Running if self.is_run(now) => {
                self.measured.time = self.ended.since(self.began);
                if let Some((_, end)) = &mut self.measured.cpu {
                    *end = cpu_time();
                }
                let verify = self.plan.verify && !self.arena.has_failed();
                self.enter(now, if verify { Stage::Verifying } else { Stage::CleaningUp });
            }
            Stage::Verifying if self.is_verified() => self.enter(now, Stage::CleaningUp),
            Stage::CleaningUp if !cleanup || self.next_made().is_none() => {
                self.enter(now, Stage::Closing);
            }
            Stage::Closing if !self.target.is_busy() => self.enter(now, Stage::Over),
            _ => {}
        }
    }

    fn is_filled(&self) -> bool {
        self.next >= self.objects()
    }

    fn is_verified(&self) -> bool {
        self.blocks.next_written(self.next).is_none() || self.arena.has_failed()
    }

    /// Whether nothing more is begun.
    fn is_run(&self, now: Now) -> bool {
        let done = match self.plan.runtime {
            Some(time) => now.mono.since(self.began) >= time,
            None => self.next >= self.blocks.count(),
        };
        done || self.arena.is_over()
    }

    /// The next object that is to be removed.
    fn next_made(&self) -> Option<u64> {
        let is_made =
            |n: &u64| self.made.get((*n / 64) as usize).is_some_and(|w| w >> (n % 64) & 1 > 0);
        (self.next..self.objects()).find(is_made)
    }
}

// ---- operations ----

impl Job {
    /// Begins operations until there are as many as may be.
    fn fill_up(&mut self, now: Now) {
        while self.flying.len() < self.depth
            && let Some((act, block)) = self.next_operation(now)
        {
            self.begin(now, act, block);
        }
    }

    fn next_operation(&mut self, now: Now) -> Option<(Act, u64)> {
        let next = match self.stage {
            Stage::Filling if !self.is_filled() && !self.arena.is_over() => (Act::Fill, self.next),
            Stage::Running if !self.is_run(now) => {
                self.next += 1;
                return Some(self.blocks.next());
            }
            Stage::Verifying if !self.arena.has_failed() => {
                (Act::Read, self.blocks.next_written(self.next)?)
            }
            Stage::CleaningUp => match self.plan.what {
                What::Objects { cleanup: true, .. } => (Act::Remove, self.next_made()?),
                _ => return None,
            },
            _ => return None,
        };
        self.next = next.1 + 1;
        Some(next)
    }

    /// Of a block of this job: its place among those of all jobs.
    fn place(&self, block: u64) -> u64 {
        (self.first_block + block) * self.plan.block_bytes
    }

    fn begin(&mut self, now: Now, act: Act, block: u64) {
        let bytes = self.plan.block_bytes;
        let at = self.place(block);
        let per_object = self.blocks_per_object();
        let object = block / per_object;
        let in_object = (object, block % per_object * bytes);
        let client = &mut self.client;
        let id = match act {
            Act::Read => self.target.read(now, client, in_object, at, bytes),
            Act::Write => {
                if let Some(word) = self.made.get_mut((object / 64) as usize) {
                    *word |= 1 << (object % 64);
                }
                let data = match self.blocks.write_begins(block) {
                    Some(number) => self.content.stamped(bytes as usize, at, number),
                    None => self.content.plain(bytes as usize),
                };
                self.target.write(now, client, in_object, at, data)
            }
            Act::Fill => {
                let data = self.content.plain(self.plan.unit_bytes() as usize);
                self.target.fill(now, client, block, data)
            }
            Act::Remove => self.target.remove(now, client, block),
        };
        match id {
            Some(id) => drop(self.flying.insert(id, Flying { act, block, since: now.mono })),
            None => self.fail("cannot submit an operation", "too much is under way"),
        }
    }

    fn ended(&mut self, now: Now, ended: Ended) {
        match ended {
            Ended::Opened(Ok(())) => self.begin_image(now),
            Ended::Opened(Err(error)) => {
                self.fail_image(&error);
                self.enter(now, Stage::Closing);
            }
            Ended::Locked(result) => {
                if let Err(error) = result {
                    self.fail_image(&error);
                }
                self.enter(now, Stage::Ready);
            }
            Ended::Closed(Ok(())) => {}
            Ended::Closed(Err(error)) => self.fail("cannot close the image", error),
            Ended::Operation(id, result) => {
                if let Some(flying) = self.flying.remove(&id) {
                    self.operation_ended(now, &flying, result);
                }
            }
        }
    }

    fn operation_ended(
        &mut self,
        now: Now,
        flying: &Flying,
        result: Result<ReadBack, ClientError>,
    ) {
        let gap = now.mono.since(self.ended);
        self.ended = now.mono;
        if flying.act == Act::Write {
            self.blocks.write_ends(flying.block);
        }
        let read = match result {
            Ok(read) => read,
            Err(e) if flying.act == Act::Remove && e.errno == Errno::ENOENT => return,
            Err(error) => return self.fail("an operation failed", error),
        };
        match self.stage {
            Stage::Running => self.count(now, flying, gap, &read),
            Stage::Verifying => self.compare(flying.block, read),
            _ => {}
        }
    }

    fn count(&mut self, now: Now, flying: &Flying, gap: Duration, read: &ReadBack) {
        let m = &mut self.measured;
        m.longest_gap = m.longest_gap.max(gap);
        let latency = now.mono.since(flying.since);
        if flying.act == Act::Read {
            m.reads.add(latency);
            m.hole_bytes += self.plan.block_bytes.saturating_sub(read.bytes());
        } else {
            m.writes.add(latency);
        }
        let second = now.mono.since(self.began).as_secs() as usize;
        if m.by_second.len() <= second {
            m.by_second.resize(second + 1, 0);
        }
        m.by_second[second] += 1;
    }

    /// Whether a block is what was written last.
    fn compare(&mut self, block: u64, read: ReadBack) {
        let place = self.place(block);
        let number = self.blocks.written(block);
        self.measured.verified += 1;
        if let Err(why) = self.content.check(&read.into_bytes(), place, number) {
            self.measured.damaged += 1;
            let what =
                format!("the {} at {place} are not what was written", Bytes(self.plan.block_bytes));
            self.fail(what, why);
        }
    }
}

// ---- running ----

impl Job {
    fn take_completions(&mut self, now: Now) {
        while let Some(completion) = self.client.poll() {
            let Some(completion) = self.target.take(now, &mut self.client, completion) else {
                continue;
            };
            match completion.outcome {
                Outcome::Op(result) => {
                    let result = result.and_then(|reply| reply.bytes(0)).map(ReadBack::Object);
                    self.ended(now, Ended::Operation(completion.id.0, result));
                }
                Outcome::Pool(Ok(pool)) => {
                    self.target.set_pool(pool);
                    self.begin_target(now);
                }
                Outcome::Pool(Err(error)) => {
                    self.fail("cannot find the pool", error);
                    self.enter(now, Stage::Closing);
                }
                other => tracing::debug!(?other, "a completion that nobody waits for"),
            }
        }
        while let Some(ended) = self.target.poll() {
            self.ended(now, ended);
        }
    }

    /// The end of patience, if nothing is answered any more.
    fn look(&mut self, now: Now, fx: &mut Effects) {
        if now.mono < self.look_at {
            return;
        }
        self.look_at = now.mono.after(LOOK_EVERY);
        let runs_until = match (self.stage, self.plan.runtime) {
            (Stage::Running, Some(time)) => self.began.after(time),
            // Others may be filling.
            (Stage::Ready, _) => now.mono,
            _ => Mono::default(),
        };
        if now.mono.since(self.ended.max(runs_until)) >= PATIENCE {
            let waits = self.client.waiting();
            let on = waits.first().map_or_else(
                || self.client.mon_trouble().unwrap_or("the mon").to_owned(),
                |(_, waiting)| waiting.to_string(),
            );
            let why = format!("nothing was answered for {} s; it waits {on}", PATIENCE.as_secs());
            self.fail("the cluster does not answer", why);
            fx.exit(1, "nothing is answered");
        }
    }

    fn stop(&mut self, fx: &mut Effects) {
        self.stops += 1;
        if !matches!(self.stage, Stage::Running | Stage::Verifying) {
            self.fail("interrupted", "nothing was measured");
        }
        self.arena.over.store(true, Ordering::Relaxed);
        // Who asks twice does not want to wait for the rest.
        if self.stops > 1 {
            fx.exit(1, "interrupted");
        }
    }
}

impl Core for Job {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => {
                self.ended = now.mono;
                self.client.start(now);
                self.client.lookup_pool(now, &self.plan.pool);
            }
            Event::Net(event) => drop(self.client.handle(now, event, fx)),
            Event::Timer => {
                self.client.tick(now, fx);
                self.target.tick(now, &mut self.client);
            }
            Event::Stop => self.stop(fx),
            Event::Disk(_) | Event::Kv(_) | Event::Memory(_) => {}
        }
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        self.take_completions(now);
        loop {
            let stage = self.stage;
            self.fill_up(now);
            self.advance(now);
            if self.stage == stage {
                break;
            }
        }
        self.look(now, fx);
        self.wake_at = match (self.stage, self.plan.runtime) {
            (Stage::Ready, _) => Some(now.mono.after(READY_EVERY)),
            (Stage::Running, Some(time)) => {
                Some(self.began.after(time)).filter(|end| *end > now.mono)
            }
            _ => None,
        };
        if self.stage == Stage::Over {
            fx.exit(0, "done");
        }
        self.client.end_turn(now, fx);
    }

    fn next_deadline(&self) -> Option<Mono> {
        let others = [self.client.next_deadline(), self.target.next_deadline(), self.wake_at];
        others.into_iter().flatten().chain([self.look_at]).min()
    }
}

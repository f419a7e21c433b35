//! Work on images in the background, as Ceph's mgr does it: what it is told to do by `ceph rbd task`
//! (`pybind/mgr/rbd_support/task.py`), and trashes that are emptied by a schedule ([`purge`]).
//!
//! A task is stored when it is taken on, and done when its turn comes, one at a time, by the [`Worker`]: the mon as
//! a client of its own cluster. What fails for now is tried again, after a time that grows; after a restart the mon
//! begins again where a task was, as all of them can be done twice.

mod purge;
mod worker;

pub(crate) use purge::{Item, Level, Purges, parse_interval, parse_start};
pub(crate) use worker::{Answer, Found, Job, Lane, Question, Worked, Worker};

use crate::cluster::Cluster;
use crate::log::Level as Severity;
use crate::state::State;
use crate::store::keys;
use client::ClientError;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use io::Now;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{Errno, Mono, UTime, Uuid};

/// Before a task is tried again; each time so much longer, .. (`TASK_RETRY_INTERVAL`)
const RETRY: Duration = Duration::from_secs(30);
/// .. up to this (`TASK_MAX_RETRY_INTERVAL`).
const MAX_RETRY: Duration = Duration::from_secs(300);
/// Tasks that are remembered after they are done: asked for again, they are told of (`MAX_COMPLETED_TASKS`).
const MAX_DONE: usize = 50;
/// Tasks that wait, at most; more are refused.
const MAX_TASKS: usize = 100_000;

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Action {
    /// Makes a clone independent of its parent.
    Flatten = 1,
    /// Removes an image.
    Remove = 2,
    /// Removes an image that is in the trash.
    TrashRemove = 3,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Flatten => "flatten",
            Action::Remove => "remove",
            Action::TrashRemove => "trash remove",
        }
    }
}

impl Encode for Action {
    fn encode(&self, e: &mut Encoder) {
        (*self as u8).encode(e);
    }
}

impl Decode for Action {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match d.get::<u8>()? {
            1 => Ok(Action::Flatten),
            2 => Ok(Action::Remove),
            3 => Ok(Action::TrashRemove),
            _ => Err(d.invalid("a task of an unknown kind")),
        }
    }
}

/// Which image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageSpec {
    /// Name of its pool.
    pub pool: String,
    /// Its namespace; mostly the empty one.
    pub nspace: String,
    /// Its name, or its id when it is in the trash.
    pub image: String,
}

impl std::fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.nspace.as_str() {
            "" => write!(f, "{}/{}", self.pool, self.image),
            nspace => write!(f, "{}/{nspace}/{}", self.pool, self.image),
        }
    }
}

/// A task as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub(crate) struct TaskRecord {
    /// Its id, a UUID.
    pub id: String,
    /// What it does.
    pub action: Action,
    /// Name of the image's pool.
    pub pool: String,
    /// The image's namespace.
    pub nspace: String,
    /// The image's name; empty of one in the trash.
    pub image_name: String,
    /// The image's id when the task was taken on.
    pub image_id: String,
    /// For people.
    pub message: String,
}

impl TaskRecord {
    /// What it is about.
    pub fn refs(&self) -> Value {
        let mut refs = json!({
            "action": self.action.name(), "pool_name": self.pool, "pool_namespace": self.nspace,
            "image_id": self.image_id,
        });
        if self.action != Action::TrashRemove {
            refs["image_name"] = self.image_name.as_str().into();
        }
        refs
    }

    fn is_of(&self, action: Action, spec: &ImageSpec, id: Option<&str>) -> bool {
        let (image, any) = match action {
            Action::TrashRemove => (&self.image_id, true),
            Action::Flatten | Action::Remove => (&self.image_name, id.is_none()),
        };
        self.action == action
            && (&self.pool, &self.nspace, image) == (&spec.pool, &spec.nspace, &spec.image)
            && (any || id == Some(&self.image_id))
    }
}

/// A task, and how it is.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub record: TaskRecord,
    /// How often it was tried.
    attempts: u32,
    /// When it is tried again.
    retry_at: Option<(Mono, UTime)>,
    /// Why it failed the last time.
    retry_message: Option<String>,
    /// Since when it is being done, and how far that is.
    pub running: Option<(UTime, f64)>,
    /// Nobody wants it any more.
    is_canceled: bool,
}

impl Task {
    fn new(record: TaskRecord) -> Self {
        let (retry_at, retry_message, running) = (None, None, None);
        Task { record, attempts: 0, retry_at, retry_message, running, is_canceled: false }
    }

    /// As `rbd task list` shows it.
    fn json(&self, number: u64) -> Value {
        let mut shown = Map::from_iter([
            ("sequence".to_owned(), json!(number)),
            ("id".to_owned(), json!(self.record.id)),
            ("message".to_owned(), json!(self.record.message)),
            ("refs".to_owned(), self.record.refs()),
        ]);
        let mut more = |name: &str, value: Value| drop(shown.insert(name.to_owned(), value));
        if let Some(why) = &self.retry_message {
            more("retry_message", json!(why));
        }
        if self.attempts > 0 {
            more("retry_attempts", json!(self.attempts));
        }
        if let Some((_, at)) = self.retry_at {
            more("retry_time", json!(at.to_string().trim_end_matches("+0000")));
        }
        if let Some((_, progress)) = self.running {
            more("in_progress", json!(true));
            more("progress", json!(progress));
        }
        if self.is_canceled {
            more("canceled", json!(true));
        }
        Value::Object(shown)
    }
}

/// All tasks, by number, and those that were done lately.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    list: BTreeMap<u64, Task>,
    done: VecDeque<(u64, Task)>,
    last: u64,
}

impl Tasks {
    /// As they were stored.
    pub fn load(state: &State) -> Self {
        let list: BTreeMap<u64, Task> =
            state.tasks.iter().map(|(n, record)| (*n, Task::new(record.clone()))).collect();
        let last = list.keys().next_back().copied().unwrap_or(0);
        Tasks { list, done: VecDeque::new(), last }
    }

    /// All of them, as `rbd task list` shows them.
    pub fn json(&self) -> Value {
        self.list.iter().map(|(n, task)| task.json(*n)).collect()
    }

    /// One of them.
    pub fn json_of(&self, id: &str) -> Option<Value> {
        self.number_of(id).and_then(|n| Some(self.list.get(&n)?.json(n)))
    }

    fn number_of(&self, id: &str) -> Option<u64> {
        self.list.iter().find(|(_, task)| task.record.id == id).map(|(n, _)| *n)
    }

    /// The same task, if it waits, runs, or was done lately. `id`: the image's, if there is such an image.
    pub fn find(&self, action: Action, spec: &ImageSpec, id: Option<&str>) -> Option<Value> {
        let waiting = self.list.iter().rev();
        let all = waiting.chain(self.done.iter().rev().map(|(n, task)| (n, task)));
        let mut same = all.filter(|(_, task)| task.record.is_of(action, spec, id));
        same.next().map(|(n, task)| task.json(*n))
    }

    /// The task that is being done.
    pub fn running(&self) -> Option<&Task> {
        self.list.values().find(|task| task.running.is_some())
    }

    /// What is to be done next, if nothing is being done: what was not tried yet, else what waits for the longest time.
    /// So those that fail again and again, and take long for it, keep no other from being tried.
    pub fn due(&self, now: Now) -> Option<(u64, &TaskRecord)> {
        if self.running().is_some() {
            return None;
        }
        let since = |task: &Task| task.retry_at.map(|(at, _)| at);
        let due = self.list.iter().filter(|(_, task)| since(task).is_none_or(|at| at <= now.mono));
        due.min_by_key(|(n, task)| (since(task), **n)).map(|(n, task)| (*n, &task.record))
    }

    /// When something is due, at the earliest.
    pub fn next_deadline(&self) -> Option<Mono> {
        if self.running().is_some() {
            return None;
        }
        let at = |task: &Task| task.retry_at.map_or(Mono::default(), |(at, _)| at);
        self.list.values().map(at).min()
    }

    /// It is being done from now on.
    pub fn begin(&mut self, now: Now, number: u64) {
        if let Some(task) = self.list.get_mut(&number) {
            task.running = Some((now.wall, 0.0));
        }
    }

    /// How far the task is that is being done.
    pub fn set_progress(&mut self, far: f64) {
        if let Some(task) = self.list.values_mut().find(|task| task.running.is_some()) {
            task.running = task.running.map(|(since, _)| (since, far));
        }
    }
}

/// How a task ended that is not tried again.
fn final_failure(action: Action, errno: Errno) -> Option<&'static str> {
    match (action, errno) {
        (_, Errno::ENOENT) => Some("Image does not exist"),
        (Action::Flatten, Errno::EINVAL) => Some("Image does not have parent"),
        _ => None,
    }
}

impl Cluster {
    /// Takes a task on. What it is like then.
    pub fn add_task(
        &mut self,
        action: Action,
        spec: &ImageSpec,
        image_id: &str,
        message: String,
    ) -> Result<Value, admin::CommandError> {
        if self.tasks.list.len() >= MAX_TASKS {
            let text = format_args!("{MAX_TASKS} tasks wait already; cancel some, or wait");
            return Err(admin::CommandError::new(Errno::EAGAIN, text));
        }
        let image_name = match action {
            Action::TrashRemove => String::new(),
            Action::Flatten | Action::Remove => spec.image.clone(),
        };
        let record = TaskRecord {
            id: Uuid::from_random(self.rng.u128(..)).to_string(),
            action,
            pool: spec.pool.clone(),
            nspace: spec.nspace.clone(),
            image_name,
            image_id: image_id.to_owned(),
            message,
        };
        self.tasks.last += 1;
        let number = self.tasks.last;
        self.draft.put(keys::task(number), denc::encode(&record));
        self.state.tasks.insert(number, record.clone());
        let task = Task::new(record);
        let shown = task.json(number);
        self.tasks.list.insert(number, task);
        Ok(shown)
    }

    fn forget_task(&mut self, number: u64) -> Option<Task> {
        self.state.tasks.remove(&number);
        self.draft.remove(keys::task(number));
        self.tasks.list.remove(&number)
    }

    /// A task is not wanted any more. Whether there is one; one that is being done stays until it has stopped.
    pub fn cancel_task(&mut self, id: &str) -> bool {
        let Some(number) = self.tasks.number_of(id) else { return false };
        match self.tasks.list.get_mut(&number) {
            Some(task) if task.running.is_some() => {
                task.is_canceled = true;
                // After a restart it is not begun again.
                self.state.tasks.remove(&number);
                self.draft.remove(keys::task(number));
            }
            _ => drop(self.forget_task(number)),
        }
        true
    }

    /// Whether the task that is being done is to stop.
    pub fn must_stop_task(&self) -> bool {
        self.tasks.running().is_some_and(|task| task.is_canceled)
    }

    /// The task that was being done has ended.
    pub fn task_ended(&mut self, now: Now, result: Result<(), ClientError>) {
        let number = self.tasks.list.iter().find(|(_, task)| task.running.is_some());
        let Some(number) = number.map(|(n, _)| *n) else { return };
        let Some(task) = self.tasks.list.get_mut(&number) else { return };
        task.running = None;
        let failed = match &result {
            Ok(()) => None,
            Err(error) => Some(final_failure(task.record.action, error.errno)),
        };
        if let (Some(None), Err(error), false) = (failed, &result, task.is_canceled) {
            task.attempts += 1;
            let wait = RETRY.saturating_mul(task.attempts).min(MAX_RETRY);
            task.retry_at = Some((now.mono.after(wait), now.wall.plus(wait)));
            let why = error.to_string();
            let text = format!("{} failed, it is tried again: {why}", task.record.message);
            let before = task.retry_message.replace(why);
            if before != task.retry_message {
                self.say(now, Severity::Warn, text);
            }
            return;
        }
        self.end_task(now, number, failed.flatten());
    }

    /// The pool of a task is gone, and its image with it.
    pub fn drop_task(&mut self, now: Now, number: u64) {
        self.end_task(now, number, Some("Pool does not exist"));
    }

    fn end_task(&mut self, now: Now, number: u64, failure: Option<&str>) {
        let Some(task) = self.forget_task(number) else { return };
        let message = &task.record.message;
        let end = match failure {
            _ if task.is_canceled => "canceled".to_owned(),
            Some(why) => format!("failed: {why}"),
            None => "done".to_owned(),
        };
        self.say(now, Severity::Info, format!("{message}: {end}"));
        if failure.is_none() && !task.is_canceled {
            if self.tasks.done.len() >= MAX_DONE {
                self.tasks.done.pop_front();
            }
            self.tasks.done.push_back((number, task));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;

    /// How long it takes to fail where a PG is inactive.
    const TRY: Duration = Duration::from_secs(60);

    fn add(bench: &mut Bench, image: &str) {
        let (pool, nspace, image) = ("rbd".to_owned(), String::new(), image.to_owned());
        let message = format!("Removing image rbd/{image}");
        let spec = ImageSpec { pool, nspace, image };
        bench.c.add_task(Action::Remove, &spec, "1", message).unwrap();
    }

    /// Tries what is due, in vain, for so long; how often each was tried.
    fn fail_for(bench: &mut Bench, time: Duration) -> BTreeMap<u64, u32> {
        let mut tried = BTreeMap::new();
        let end = bench.now().mono.after(time);
        while bench.now().mono < end {
            match bench.c.tasks.due(bench.now()).map(|(n, _)| n) {
                Some(number) => {
                    bench.c.tasks.begin(bench.now(), number);
                    *tried.entry(number).or_default() += 1;
                    bench.pass(TRY);
                    let (errno, what) = (Errno::ETIMEDOUT, "work".to_owned());
                    let error = ClientError { errno, what, why: "".into(), reply: None };
                    bench.c.task_ended(bench.now(), Err(error));
                }
                None => bench.pass(Duration::from_secs(1)),
            }
        }
        tried
    }

    #[test]
    fn tasks_that_fail_again_and_again_keep_no_other_from_being_tried() {
        let mut bench = Bench::new();
        (0..6).for_each(|n| add(&mut bench, &format!("bad{n}")));
        fail_for(&mut bench, 30 * TRY);
        add(&mut bench, "good");
        let tried = fail_for(&mut bench, 15 * TRY);
        assert!(tried.len() == 7 && tried.values().all(|n| *n >= 2), "{tried:?}");
    }

    #[test]
    fn why_a_task_fails_is_said_once() {
        let mut bench = Bench::new();
        add(&mut bench, "bad");
        assert!(fail_for(&mut bench, 10 * TRY)[&1] > 2);
        let said = bench.c.log.last(10, Severity::Warn);
        assert_eq!(said.iter().filter(|entry| entry.text.contains("rbd/bad")).count(), 1);
    }
}

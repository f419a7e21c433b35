//! The mon as a client of its own cluster: it looks at images, and works on them.

use crate::images::MAX_NAMES;
use client::image::{
    Change, ImageDone, ImageId, ImageInfo, ImageOutcome, ImageRequest, Images, ImagesConfig,
    OpenImage, TrashedImage, feature,
};
use client::{Client, ClientConfig, ClientError};
use io::net::NetEvent;
use io::{Effects, Now, Rng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use types::{AddrVec, ByteString, Errno, Mono, PoolId};

/// A request that is not answered after so long fails, and what it belongs to: PGs may be inactive.
const OP_TIMEOUT: Duration = Duration::from_secs(60);
/// So long a job waits for others who have the lock of its image, and do nothing for us: then others have their turn.
const PATIENCE: Duration = Duration::from_secs(180);
/// Questions at a time, at most.
const MAX_QUESTIONS: usize = 256;
/// Who is shut out again this soon is shut out with the whole host.
const RENEW_AGAIN: Duration = Duration::from_secs(10);

/// Something to be known before a command is carried out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    /// What an image is like: pool, namespace, name.
    Image(PoolId, String, String),
    /// The same of one that is to be removed: the image that it is a clone of may be gone.
    Removable(PoolId, String, String),
    /// Whether an image is in the trash: pool, namespace, id.
    Trashed(PoolId, String, String),
    /// Which images there are: pool, namespace.
    Names(PoolId, String),
    /// Which namespaces a pool has.
    Namespaces(PoolId),
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Of an image.
    pub id: String,
    pub has_parent: bool,
    pub has_snaps: bool,
    pub has_journal: bool,
    /// Of images: their ids, by name.
    pub names: BTreeMap<String, String>,
    /// Of a pool, but for the one that has no name.
    pub namespaces: Vec<String>,
}

/// What is done at the same time: one job of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    Task,
    Purge,
}

/// The answer to a [`Question`]; ENOENT: there is none.
pub(crate) type Answer = Result<Found, ClientError>;

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Flatten(OpenImage),
    Remove(OpenImage),
    TrashRemove(PoolId, String, String),
    /// Removes all whose time in the trash is over: pool, namespace.
    Purge(PoolId, String),
}

/// What the worker has to say.
#[derive(Debug)]
pub(crate) enum Worked {
    /// The answer to the question of this number.
    Answered(u64, Answer),
    /// The job is over.
    Ended(Lane, Result<(), ClientError>),
}

/// What follows when a request on images ends.
#[derive(Debug)]
enum Next {
    /// It is the answer.
    AnswerThis(u64),
    /// Whether the image of this id is in the trash.
    AnswerOf(u64, String),
    /// The clone is open that is to be flattened.
    Flatten(Lane),
    /// It is flattened, or cannot be.
    CloseAfter(Lane, ImageId),
    /// The job is over.
    End(Lane, Result<(), ClientError>),
    /// The request is the job.
    EndAsThis(Lane),
}

/// See the module's text.
pub(crate) struct Worker {
    client: Client,
    images: Images,
    requests: BTreeMap<ImageRequest, Next>,
    /// The parts of jobs that may take long.
    long: BTreeMap<Lane, ImageRequest>,
    busy: BTreeSet<Lane>,
    out: VecDeque<Worked>,
    mon: AddrVec,
    rng: Rng,
    /// Questions that are not answered.
    asked: BTreeMap<u64, Question>,
    /// A request failed since we are on the blocklist.
    is_shut_out: bool,
    /// When that was last made good.
    renewed_at: Option<Mono>,
    now: Mono,
}

fn error(errno: Errno, why: &'static str) -> ClientError {
    let (what, reply) = ("a question about an image".to_owned(), None);
    ClientError { errno, what, why: why.into(), reply }
}

fn image(pool: PoolId, nspace: &str, name: &str) -> OpenImage {
    OpenImage::new(pool, name).in_namespace(ByteString::from(nspace))
}

fn trashed(pool: PoolId, nspace: &str, id: String) -> TrashedImage {
    TrashedImage { pool, nspace: ByteString::from(nspace), id, force: false }
}

fn new_client(now: Now, mon: &AddrVec, rng: &mut Rng) -> Client {
    let config = ClientConfig {
        name: "rbd_support".to_owned(),
        op_timeout: Some(OP_TIMEOUT),
        mon_timeout: Some(OP_TIMEOUT),
        ..ClientConfig::new(vec![mon.clone()])
    };
    let mut client = Client::new(config, rng.u64(..));
    client.start(now);
    client
}

fn new_images(rng: &mut Rng) -> Images {
    let config = ImagesConfig { patience: Some(PATIENCE), ..ImagesConfig::default() };
    Images::with_config(rng.u64(..), config)
}

fn is_shut_out(error: &ClientError) -> bool {
    error.errno == Errno::EBLOCKLISTED
}

fn found_of(info: ImageInfo) -> Found {
    Found {
        id: info.id,
        has_parent: info.parent.is_some(),
        has_snaps: !info.snaps.is_empty(),
        has_journal: info.features & feature::JOURNALING != 0,
        ..Found::default()
    }
}

impl Worker {
    /// Looks for the mon at once.
    pub fn new(now: Now, mon: AddrVec, rng: &mut Rng) -> Self {
        let mut rng = rng.fork();
        Worker {
            client: new_client(now, &mon, &mut rng),
            images: new_images(&mut rng),
            mon,
            rng,
            asked: BTreeMap::new(),
            is_shut_out: false,
            renewed_at: None,
            now: now.mono,
            requests: BTreeMap::new(),
            long: BTreeMap::new(),
            busy: BTreeSet::new(),
            out: VecDeque::new(),
        }
    }

    /// Asks something; [`Worked::Answered`] follows.
    pub fn ask(&mut self, now: Now, number: u64, question: Question) {
        if self.requests.len() >= MAX_QUESTIONS {
            let many = error(Errno::EAGAIN, "too many others are being answered; try again");
            return self.answer(number, Err(many));
        }
        self.asked.insert(number, question.clone());
        match question {
            Question::Image(pool, nspace, name) => {
                self.look(now, number, image(pool, &nspace, &name), false);
            }
            Question::Removable(pool, nspace, name) => {
                self.look(now, number, image(pool, &nspace, &name), true);
            }
            Question::Namespaces(pool) => {
                let id = self.images.namespaces(now, &mut self.client, pool);
                self.requests.insert(id, Next::AnswerThis(number));
            }
            Question::Names(pool, nspace) => {
                let place = (pool, ByteString::from(nspace.as_str()));
                let id = self.images.list(now, &mut self.client, place, MAX_NAMES);
                self.requests.insert(id, Next::AnswerThis(number));
            }
            Question::Trashed(pool, nspace, id) => {
                let spec = trashed(pool, &nspace, id);
                let id = self.images.trashed(now, &mut self.client, spec.clone());
                self.requests.insert(id, Next::AnswerOf(number, spec.id));
            }
        }
    }

    fn look(&mut self, now: Now, number: u64, image: OpenImage, alone: bool) {
        let id = self.images.look(now, &mut self.client, image, alone);
        self.requests.insert(id, Next::AnswerThis(number));
    }

    /// Begins a job; [`Worked::Ended`] follows.
    pub fn begin(&mut self, now: Now, lane: Lane, job: Job) {
        assert!(self.busy.insert(lane), "one job of each kind at a time");
        let (images, client) = (&mut self.images, &mut self.client);
        let id = match job {
            Job::Flatten(image) => {
                let id = images.open(now, client, image);
                return self.long_work(lane, id, Next::Flatten(lane));
            }
            Job::Remove(image) => images.remove(now, client, image),
            Job::TrashRemove(pool, nspace, id) => {
                images.remove_from_trash(now, client, trashed(pool, &nspace, id))
            }
            Job::Purge(pool, nspace) => {
                images.purge_trash(now, client, pool, ByteString::from(nspace.as_str()))
            }
        };
        self.long_work(lane, id, Next::EndAsThis(lane));
    }

    fn long_work(&mut self, lane: Lane, id: ImageRequest, next: Next) {
        self.long.insert(lane, id);
        self.requests.insert(id, next);
    }

    /// The job is not wanted any more: it ends soon.
    pub fn cancel(&mut self, lane: Lane) {
        if let Some(id) = self.long.get(&lane) {
            self.images.cancel(*id);
        }
    }

    /// How far the job is, if it says.
    pub fn progress(&self, lane: Lane) -> Option<f64> {
        self.images.progress(*self.long.get(&lane)?)
    }

    /// What there is to say. Owners take all, every turn.
    pub fn poll(&mut self) -> Option<Worked> {
        self.out.pop_front()
    }

    fn on_done(&mut self, now: Now, done: ImageDone) {
        self.long.retain(|_, id| *id != done.id);
        match (self.requests.remove(&done.id), done.outcome) {
            (Some(Next::AnswerThis(number)), ImageOutcome::Looked(info)) => {
                self.answer(number, info.map(found_of));
            }
            (Some(Next::AnswerThis(number)), ImageOutcome::Listed(names)) => {
                let found = names.map(|names| Found { names, ..Found::default() });
                self.answer(number, found);
            }
            (Some(Next::AnswerThis(number)), ImageOutcome::Names(names)) => {
                let found = names.map(|namespaces| Found { namespaces, ..Found::default() });
                self.answer(number, found);
            }
            (Some(Next::AnswerOf(number, id)), ImageOutcome::Trashed(trashed)) => {
                self.answer(number, trashed.map(|_| Found { id, ..Found::default() }));
            }
            (Some(Next::Flatten(lane)), ImageOutcome::Opened(Ok(image))) => {
                let id = self.images.change(now, &mut self.client, image, Change::Flatten);
                self.long_work(lane, id, Next::CloseAfter(lane, image));
            }
            (Some(Next::Flatten(lane)), ImageOutcome::Opened(Err(error))) => {
                self.end(lane, Err(error));
            }
            (Some(Next::CloseAfter(lane, image)), ImageOutcome::Done(result)) => {
                let id = self.images.close(now, &mut self.client, image);
                self.requests.insert(id, Next::End(lane, result));
            }
            (Some(Next::End(lane, result)), _) => self.end(lane, result),
            (Some(Next::EndAsThis(lane)), ImageOutcome::Done(result)) => self.end(lane, result),
            (next, outcome) => tracing::error!(?next, ?outcome, "a request ended as another one"),
        }
    }

    fn answer(&mut self, number: u64, answer: Answer) {
        // It is asked again, as somebody else.
        if answer.as_ref().is_err_and(is_shut_out) && self.may_renew() {
            self.is_shut_out = true;
            return;
        }
        self.asked.remove(&number);
        self.out.push_back(Worked::Answered(number, answer));
    }

    fn end(&mut self, lane: Lane, result: Result<(), ClientError>) {
        self.busy.remove(&lane);
        self.is_shut_out |= result.as_ref().is_err_and(is_shut_out);
        self.out.push_back(Worked::Ended(lane, result));
    }

    // ---- running ----

    /// Takes in a network event. Gives it back when it is about a connection of somebody else.
    pub fn on_net(&mut self, now: Now, event: NetEvent, fx: &mut Effects) -> Option<NetEvent> {
        self.client.handle(now, event, fx)
    }

    /// Deals with what has come, and with every deadline.
    pub fn tick(&mut self, now: Now, fx: &mut Effects) {
        self.now = now.mono;
        self.take_what_came(now, fx);
        if std::mem::take(&mut self.is_shut_out) && self.may_renew() {
            self.renew(now, fx);
        }
    }

    fn take_what_came(&mut self, now: Now, fx: &mut Effects) {
        self.client.tick(now, fx);
        self.images.tick(now, &mut self.client);
        loop {
            if let Some(completion) = self.client.poll() {
                // All that the client is asked for is about images.
                drop(self.images.take(now, &mut self.client, completion));
            } else if let Some(done) = self.images.poll() {
                self.on_done(now, done);
            } else {
                return;
            }
        }
    }

    fn may_renew(&self) -> bool {
        self.renewed_at.is_none_or(|at| self.now.since(at) >= RENEW_AGAIN)
    }

    /// We were shut out: an operator did it, or somebody who took us for dead and took a lock of ours. As another
    /// client we are let in. What was begun as the old one has ended or never will.
    fn renew(&mut self, now: Now, fx: &mut Effects) {
        tracing::warn!("shut out by the blocklist; connecting again as another client");
        self.renewed_at = Some(now.mono);
        self.client.close(fx);
        self.client = new_client(now, &self.mon, &mut self.rng);
        self.images = new_images(&mut self.rng);
        self.requests.clear();
        self.long.clear();
        for lane in self.busy.clone() {
            let lost = error(Errno::EBLOCKLISTED, "the client was put on the blocklist");
            self.end(lane, Err(lost));
        }
        self.is_shut_out = false;
        for (number, question) in std::mem::take(&mut self.asked) {
            self.ask(now, number, question);
        }
    }

    /// The turn's end: everything queued is handed to the network.
    pub fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        self.client.end_turn(now, fx);
    }

    /// The time of the next [`Worker::tick`].
    pub fn next_deadline(&self) -> Option<Mono> {
        if !self.out.is_empty() {
            return Some(Mono::default());
        }
        let both = [self.client.next_deadline(), self.images.next_deadline()];
        both.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can be canceled may wait for a PG without OSDs, or for whoever has the image locked.
    #[test]
    fn every_job_can_be_canceled_from_its_beginning() {
        let (pool, nothing) = (PoolId(1), String::new);
        for job in [
            Job::Flatten(OpenImage::new(pool, "x")),
            Job::Remove(OpenImage::new(pool, "x")),
            Job::TrashRemove(pool, nothing(), "1".to_owned()),
            Job::Purge(pool, nothing()),
        ] {
            let now = Now::default();
            let mut worker = Worker::new(now, AddrVec::default(), &mut Rng::with_seed(1));
            worker.begin(now, Lane::Task, job.clone());
            let request = worker.long.get(&Lane::Task);
            assert!(request.is_some_and(|id| worker.requests.contains_key(id)), "{job:?}");
        }
    }
}

//! The mon as a client of its own cluster: it looks at images, and works on them.

use client::image::{
    Change, ImageDone, ImageId, ImageOutcome, ImageRequest, Images, OpenImage, TrashedImage,
};
use client::{Client, ClientConfig, ClientError, Completion, Object, ObjectOp, Outcome, RequestId};
use io::net::NetEvent;
use io::{Effects, Now, Rng};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{AddrVec, ByteString, Errno, Mono, PoolId};

/// A request that is not answered after so long fails, and what it belongs to: PGs may be inactive.
const OP_TIMEOUT: Duration = Duration::from_secs(60);
/// Questions at a time, at most.
const MAX_QUESTIONS: usize = 256;

/// Something to be known before a command is carried out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    /// What an image is like: pool, namespace, name.
    Image(PoolId, String, String),
    /// Whether an image is in the trash: pool, namespace, id.
    Trashed(PoolId, String, String),
}

/// What an image is like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub id: String,
    pub has_parent: bool,
    pub has_snaps: bool,
}

/// The answer to a [`Question`]; ENOENT: there is none.
pub(crate) type Answer = Result<Found, ClientError>;

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Flatten(PoolId, String, String),
    Remove(PoolId, String, String),
    TrashRemove(PoolId, String, String),
}

/// What the worker has to say.
#[derive(Debug)]
pub(crate) enum Worked {
    /// The answer to the question of this number.
    Answered(u64, Answer),
    /// The job is over.
    Ended(Result<(), ClientError>),
}

/// What follows when a request on images ends.
#[derive(Debug)]
enum Next {
    /// The image is open that somebody asks for.
    Look(u64),
    /// It is closed again.
    Answer(u64, Found),
    /// The clone is open that is to be flattened.
    Flatten,
    /// It is flattened, or cannot be.
    CloseAfter(ImageId),
    /// The job is over.
    End(Result<(), ClientError>),
    /// The request is the job.
    EndAsThis,
}

/// See the module's text.
pub(crate) struct Worker {
    client: Client,
    images: Images,
    requests: BTreeMap<ImageRequest, Next>,
    /// Questions about the trash.
    plain: BTreeMap<RequestId, (u64, String)>,
    /// The part of the job that may take long.
    long: Option<ImageRequest>,
    is_busy: bool,
    out: VecDeque<Worked>,
}

fn error(errno: Errno, why: &'static str) -> ClientError {
    let (what, reply) = ("a question about an image".to_owned(), None);
    ClientError { errno, what, why: why.into(), reply }
}

fn image(pool: PoolId, nspace: &str, name: &str) -> OpenImage {
    OpenImage::new(pool, name).in_namespace(ByteString::from(nspace))
}

impl Worker {
    /// Looks for the mon at once.
    pub fn new(now: Now, mon: AddrVec, rng: &mut Rng) -> Self {
        let config = ClientConfig {
            name: "rbd_support".to_owned(),
            op_timeout: Some(OP_TIMEOUT),
            mon_timeout: Some(OP_TIMEOUT),
            ..ClientConfig::new(vec![mon])
        };
        let mut client = Client::new(config, rng.u64(..));
        client.start(now);
        Worker {
            client,
            images: Images::new(rng.u64(..)),
            requests: BTreeMap::new(),
            plain: BTreeMap::new(),
            long: None,
            is_busy: false,
            out: VecDeque::new(),
        }
    }

    /// Asks something; [`Worked::Answered`] follows.
    pub fn ask(&mut self, now: Now, number: u64, question: Question) {
        if self.requests.len() + self.plain.len() >= MAX_QUESTIONS {
            let many = error(Errno::EAGAIN, "too many others are being answered; try again");
            return self.out.push_back(Worked::Answered(number, Err(many)));
        }
        match question {
            Question::Image(pool, nspace, name) => {
                let spec = OpenImage { read_only: true, ..image(pool, &nspace, &name) };
                let id = self.images.open(now, &mut self.client, spec);
                self.requests.insert(id, Next::Look(number));
            }
            Question::Trashed(pool, nspace, id) => {
                let trash = Object::new(pool, "rbd_trash").in_namespace(nspace.as_str());
                let get = ObjectOp::new(trash).call("rbd", "trash_get", denc::encode(id.as_str()));
                match self.client.submit(now, get) {
                    Ok(request) => drop(self.plain.insert(request, (number, id))),
                    Err(_) => {
                        let busy = error(Errno::EAGAIN, "the mon's own client is busy; try again");
                        self.out.push_back(Worked::Answered(number, Err(busy)));
                    }
                }
            }
        }
    }

    /// Begins a job; [`Worked::Ended`] follows. There is one at a time.
    pub fn begin(&mut self, now: Now, job: Job) {
        assert!(!self.is_busy, "one job at a time");
        self.is_busy = true;
        match job {
            Job::Flatten(pool, nspace, name) => {
                let spec = image(pool, &nspace, &name);
                let id = self.images.open(now, &mut self.client, spec);
                self.requests.insert(id, Next::Flatten);
            }
            Job::Remove(pool, nspace, name) => {
                let spec = image(pool, &nspace, &name);
                let id = self.images.remove(now, &mut self.client, spec);
                self.long_work(id, Next::EndAsThis);
            }
            Job::TrashRemove(pool, nspace, id) => {
                let nspace = ByteString::from(nspace.as_str());
                let spec = TrashedImage { pool, nspace, id, force: false };
                let id = self.images.remove_from_trash(now, &mut self.client, spec);
                self.long_work(id, Next::EndAsThis);
            }
        }
    }

    fn long_work(&mut self, id: ImageRequest, next: Next) {
        self.long = Some(id);
        self.requests.insert(id, next);
    }

    /// The job is not wanted any more: it ends soon.
    pub fn cancel(&mut self) {
        if let Some(id) = self.long {
            self.images.cancel(id);
        }
    }

    /// How far the job is, if it says.
    pub fn progress(&self) -> Option<f64> {
        self.images.progress(self.long?)
    }

    /// What there is to say. Owners take all, every turn.
    pub fn poll(&mut self) -> Option<Worked> {
        self.out.pop_front()
    }

    fn on_done(&mut self, now: Now, done: ImageDone) {
        self.long.take_if(|id| *id == done.id);
        match (self.requests.remove(&done.id), done.outcome) {
            (Some(Next::Look(number)), ImageOutcome::Opened(Ok(image))) => {
                self.look(now, number, image);
            }
            (Some(Next::Look(number)), ImageOutcome::Opened(Err(error))) => {
                self.out.push_back(Worked::Answered(number, Err(error)));
            }
            (Some(Next::Answer(number, found)), _) => {
                self.out.push_back(Worked::Answered(number, Ok(found)));
            }
            (Some(Next::Flatten), ImageOutcome::Opened(Ok(image))) => {
                let id = self.images.change(now, &mut self.client, image, Change::Flatten);
                self.long_work(id, Next::CloseAfter(image));
            }
            (Some(Next::CloseAfter(image)), ImageOutcome::Done(result)) => {
                let id = self.images.close(now, &mut self.client, image);
                self.requests.insert(id, Next::End(result));
            }
            (Some(Next::End(result)), _) => self.end(result),
            (Some(Next::Flatten), ImageOutcome::Opened(Err(error))) => self.end(Err(error)),
            (Some(Next::EndAsThis), ImageOutcome::Done(result)) => self.end(result),
            (next, outcome) => tracing::error!(?next, ?outcome, "a request ended as another one"),
        }
    }

    fn end(&mut self, result: Result<(), ClientError>) {
        self.is_busy = false;
        self.out.push_back(Worked::Ended(result));
    }

    fn look(&mut self, now: Now, number: u64, image: ImageId) {
        let found = self.images.info(image).map(|info| Found {
            id: info.id,
            has_parent: info.parent.is_some(),
            has_snaps: !info.snaps.is_empty(),
        });
        let id = self.images.close(now, &mut self.client, image);
        self.requests.insert(id, Next::Answer(number, found.unwrap_or_default()));
    }

    fn on_plain(&mut self, id: RequestId, outcome: Outcome) {
        let Some((number, image_id)) = self.plain.remove(&id) else { return };
        if let Outcome::Op(result) = outcome {
            let found = result.map(|_| Found { id: image_id, ..Found::default() });
            self.out.push_back(Worked::Answered(number, found));
        }
    }

    // ---- running ----

    /// Takes in a network event. Gives it back when it is about a connection of somebody else.
    pub fn on_net(&mut self, now: Now, event: NetEvent, fx: &mut Effects) -> Option<NetEvent> {
        self.client.handle(now, event, fx)
    }

    /// Deals with what has come, and with every deadline.
    pub fn tick(&mut self, now: Now, fx: &mut Effects) {
        self.client.tick(now, fx);
        self.images.tick(now, &mut self.client);
        loop {
            if let Some(completion) = self.client.poll() {
                let not_images = self.images.take(now, &mut self.client, completion);
                if let Some(Completion { id, outcome }) = not_images {
                    self.on_plain(id, outcome);
                }
            } else if let Some(done) = self.images.poll() {
                self.on_done(now, done);
            } else {
                return;
            }
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

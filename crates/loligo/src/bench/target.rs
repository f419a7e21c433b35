//! What is loaded: objects of a pool, or an image.

use super::options::{Plan, What};
use bytes::Bytes;
use client::image::{
    ImageDone, ImageId, ImageInfo, ImageOutcome, ImageRequest, Images, ImagesConfig, OpenImage,
    ReadData,
};
use client::{Client, ClientError, Completion, Object, ObjectOp};
use io::Now;
use std::fmt::Write as _;
use types::{Mono, PoolId};

/// What an operation brought.
#[derive(Debug)]
pub(super) enum ReadBack {
    /// Of an object.
    Object(Bytes),
    /// Of an image.
    Image(ReadData),
    /// Nothing: it wrote.
    Nothing,
}

impl ReadBack {
    /// Bytes that there are.
    pub fn bytes(&self) -> u64 {
        let len = |data: &Bytes| data.len() as u64;
        match self {
            ReadBack::Object(data) => len(data),
            ReadBack::Image(data) => data.segments().iter().map(|(_, data)| len(data)).sum(),
            ReadBack::Nothing => 0,
        }
    }

    pub fn into_bytes(self) -> Bytes {
        match self {
            ReadBack::Object(data) => data,
            ReadBack::Image(data) => data.into_bytes(),
            ReadBack::Nothing => Bytes::new(),
        }
    }
}

/// Something ended.
pub(super) enum Ended {
    Opened(Result<(), ClientError>),
    Locked(Result<(), ClientError>),
    Closed(Result<(), ClientError>),
    /// An operation, by its number.
    Operation(u64, Result<ReadBack, ClientError>),
}

/// What a job loads.
pub(super) enum Target {
    Objects(Objects),
    Image(Image),
}

pub(super) struct Objects {
    pool: PoolId,
    /// What the names begin with.
    prefix: String,
    /// Used again for each name.
    name: String,
}

pub(super) struct Image {
    pool: PoolId,
    name: String,
    images: Images,
    open: Option<ImageId>,
    /// What is asked of the image as a whole.
    asked: Option<(Asked, ImageRequest)>,
}

#[derive(Clone, Copy)]
enum Asked {
    Open,
    Lock,
    Close,
}

impl Objects {
    fn object(&mut self, number: u64) -> Object {
        self.name.clear();
        // Into a String: it cannot fail.
        let _ = write!(self.name, "{}{number:016x}", self.prefix);
        Object::new(self.pool, self.name.as_str())
    }
}

// ---- operations: their numbers, unless too much is under way ----

fn submit(now: Now, client: &mut Client, op: ObjectOp) -> Option<u64> {
    client.submit(now, op).ok().map(|id| id.0)
}

impl Target {
    pub fn read(
        &mut self,
        now: Now,
        client: &mut Client,
        (object, offset): (u64, u64),
        place: u64,
        len: u64,
    ) -> Option<u64> {
        match self {
            Target::Objects(o) => {
                submit(now, client, ObjectOp::new(o.object(object)).read(offset, len))
            }
            Target::Image(i) => i.images.read(now, client, i.open?, place, len).ok().map(|id| id.0),
        }
    }

    pub fn write(
        &mut self,
        now: Now,
        client: &mut Client,
        (object, offset): (u64, u64),
        place: u64,
        data: Bytes,
    ) -> Option<u64> {
        match self {
            Target::Objects(o) => {
                submit(now, client, ObjectOp::new(o.object(object)).write(offset, data))
            }
            Target::Image(i) => {
                i.images.write(now, client, i.open?, place, data).ok().map(|id| id.0)
            }
        }
    }

    /// Writes an object as a whole.
    pub fn fill(&mut self, now: Now, client: &mut Client, object: u64, data: Bytes) -> Option<u64> {
        let Target::Objects(o) = self else { return None };
        submit(now, client, ObjectOp::new(o.object(object)).write_full(data))
    }

    pub fn remove(&mut self, now: Now, client: &mut Client, object: u64) -> Option<u64> {
        let Target::Objects(o) = self else { return None };
        submit(now, client, ObjectOp::new(o.object(object)).remove().full_try())
    }
}

// ---- the image as a whole ----

impl Target {
    pub fn new(plan: &Plan, job: u64, seed: u64) -> Self {
        let pool = PoolId(0);
        match &plan.what {
            What::Objects { prefix, .. } => {
                let prefix = format!("{prefix}.{job}.");
                Target::Objects(Objects { pool, prefix, name: String::new() })
            }
            What::Image { name } => {
                let config = ImagesConfig {
                    max_ops: usize::MAX,
                    max_bytes: usize::MAX,
                    ..ImagesConfig::default()
                };
                let images = Images::with_config(seed, config);
                Target::Image(Image { pool, name: name.clone(), images, open: None, asked: None })
            }
        }
    }

    pub fn set_pool(&mut self, id: PoolId) {
        match self {
            Target::Objects(o) => o.pool = id,
            Target::Image(i) => i.pool = id,
        }
    }

    /// Opens the image. [`Ended::Opened`] follows.
    pub fn open(&mut self, now: Now, client: &mut Client, to_write: bool) {
        let Target::Image(i) = self else { return };
        let spec = OpenImage::new(i.pool, &i.name);
        let spec = if to_write { spec.only_free_lock() } else { spec.read_only() };
        i.asked = Some((Asked::Open, i.images.open(now, client, spec)));
    }

    /// Takes its lock. [`Ended::Locked`] follows.
    pub fn lock(&mut self, now: Now, client: &mut Client) {
        let Target::Image(i) = self else { return };
        i.asked = i.open.map(|id| (Asked::Lock, i.images.lock(now, client, id)));
    }

    /// Closes it if it is open. [`Ended::Closed`] follows then.
    pub fn close(&mut self, now: Now, client: &mut Client) {
        let Target::Image(i) = self else { return };
        i.asked = i.open.take().map(|id| (Asked::Close, i.images.close(now, client, id)));
    }

    /// Whether something is asked of the image as a whole.
    pub fn is_busy(&self) -> bool {
        matches!(self, Target::Image(Image { asked: Some(_), .. }))
    }

    /// What the image is like, if it is open.
    pub fn info(&self) -> Option<ImageInfo> {
        match self {
            Target::Image(i) => i.images.info(i.open?),
            Target::Objects(_) => None,
        }
    }
}

// ---- running ----

impl Target {
    /// Takes in a completion of the client; gives it back when it is not one of an image's.
    pub fn take(
        &mut self,
        now: Now,
        client: &mut Client,
        completion: Completion,
    ) -> Option<Completion> {
        match self {
            Target::Image(i) => i.images.take(now, client, completion),
            Target::Objects(_) => Some(completion),
        }
    }

    pub fn tick(&mut self, now: Now, client: &mut Client) {
        if let Target::Image(i) = self {
            i.images.tick(now, client);
        }
    }

    pub fn next_deadline(&self) -> Option<Mono> {
        match self {
            Target::Image(i) => i.images.next_deadline(),
            Target::Objects(_) => None,
        }
    }

    /// What ended on the image.
    pub fn poll(&mut self) -> Option<Ended> {
        let Target::Image(i) = self else { return None };
        let ImageDone { id, outcome } = i.images.poll()?;
        let asked = i.asked.take_if(|(_, asked)| *asked == id).map(|(asked, _)| asked);
        Some(match (asked, outcome) {
            (_, ImageOutcome::Opened(result)) => Ended::Opened(result.map(|id| i.open = Some(id))),
            (Some(Asked::Lock), ImageOutcome::Done(result)) => Ended::Locked(result),
            (Some(Asked::Close), ImageOutcome::Done(result)) => Ended::Closed(result),
            (_, ImageOutcome::Read(result)) => Ended::Operation(id.0, result.map(ReadBack::Image)),
            (_, ImageOutcome::Done(result)) => {
                Ended::Operation(id.0, result.map(|()| ReadBack::Nothing))
            }
            (_, ImageOutcome::Created(result)) => {
                Ended::Operation(id.0, result.map(|_| ReadBack::Nothing))
            }
            (_, ImageOutcome::Trashed(result)) => {
                Ended::Operation(id.0, result.map(|_| ReadBack::Nothing))
            }
            (_, ImageOutcome::Looked(result)) => {
                Ended::Operation(id.0, result.map(|_| ReadBack::Nothing))
            }
            (_, ImageOutcome::Listed(result)) => {
                Ended::Operation(id.0, result.map(|_| ReadBack::Nothing))
            }
            (_, ImageOutcome::Names(result)) => {
                Ended::Operation(id.0, result.map(|_| ReadBack::Nothing))
            }
        })
    }
}

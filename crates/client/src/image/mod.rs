//! Block images, on their own: what librbd 16.2 does, without it.
//!
//! [`Images`] keeps the open images of one [`Client`]. Like the client it is a state machine without
//! I/O: its owner submits requests, hands it the client's completions ([`Images::take`]) and the
//! time ([`Images::tick`]), and takes completions of its own out ([`Images::poll`]). What it stores
//! and says is what librbd stores and says, so both may have one image open at the same time.
//!
//! ```
//! use bytes::Bytes;
//! use client::image::{ImageOutcome, Images, OpenImage};
//! use client::{Client, ClientConfig};
//! use io::Now;
//! use types::{AddrVec, PoolId};
//!
//! let mon = AddrVec::msgr2("127.0.0.1:3300".parse().unwrap(), 0);
//! let mut client = Client::new(ClientConfig::new(vec![mon]), 1);
//! let mut images = Images::new(2);
//! let now = Now::default();
//! client.start(now);
//! images.open(now, &mut client, OpenImage::new(PoolId(2), "disk"));
//! // Later, after network events, every turn:
//! while let Some(completion) = client.poll() {
//!     let not_ours = images.take(now, &mut client, completion);
//!     assert!(not_ours.is_none());
//! }
//! while let Some(done) = images.poll() {
//!     if let ImageOutcome::Opened(Ok(image)) = done.outcome {
//!         images.write(now, &mut client, image, 0, Bytes::from_static(b"boot")).unwrap();
//!     }
//! }
//! ```
//!
//! **Promises.** A request ends with exactly one completion. A write that ended well is stored as the
//! cluster promises; a flush ends after all writes submitted before it. In which order requests are
//! done that overlap and are in flight together is not said, as with any disk. An image with the feature exclusive-lock
//! is written only under the lock, which is taken before the first write, given up when a peer asks
//! for it, and taken away only from a dead peer that was shut out of the cluster first.
//!
//! **Bounds.** Each image has at most [`ImagesConfig::max_ops`] requests and
//! [`ImagesConfig::max_bytes`] in flight; more are given back ([`ImageBusy`]).
//!
//! **The way of a write.** `io` cuts it at objects, `write` keeps the object map and changes the
//! object, `copyup` fills an object of a clone from the parent. With the map up to date a write within an
//! object is one request to one OSD. Everything longer (opening, the lock, snapshots, resizing) is a
//! `script`.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "sizes and offsets are checked where they come in: layout::MAX_IMAGE_BYTES"
)]

mod copyup;
mod create;
mod flatten;
mod flush;
#[allow(missing_docs, reason = "fields are those of Ceph's types, named in the text of each")]
mod format;
mod header;
mod io;
mod layout;
mod lists;
mod lock;
mod maintain;
mod notice;
mod object_map;
mod remove;
mod resize;
mod script;
mod snapshot;
mod state;
mod trash;
mod watch;
mod wishes;
mod write;

pub use create_types::*;
pub use format::{SnapInfo, SnapKind, feature};
pub use info::{ImageInfo, SnapShown};
pub use maintain::Change;
pub use trash::{Trashed, TrashedImage};

mod create_types;
mod info;

use self::io::{Io, Kind, Owner, cost};
use crate::client::Client;
use crate::error::ClientError;
use crate::outcome::{Completion, Outcome, RequestId};
use ::io::Now;
use bytes::Bytes;
use header::At;
use script::{Ask, Desk, Task};
use smallvec::SmallVec;
use state::{Route, Shared, Work};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Waker};
use types::{ByteString, Errno, Mono, PoolId};

/// Names an open image. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId {
    slot: usize,
    generation: u64,
}

/// Names a request on images. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageRequest(pub u64);

/// A request ended.
#[derive(Debug)]
pub struct ImageDone {
    /// Which one.
    pub id: ImageRequest,
    /// How.
    pub outcome: ImageOutcome,
}

/// What came of a request.
#[derive(Debug)]
pub enum ImageOutcome {
    /// Of [`Images::open`].
    Opened(Result<ImageId, ClientError>),
    /// Of [`Images::read`].
    Read(Result<ReadData, ClientError>),
    /// Of [`Images::create`] and [`Images::clone_image`]: the new image's id.
    Created(Result<String, ClientError>),
    /// Of [`Images::list`]: ids by name.
    Listed(Result<BTreeMap<String, String>, ClientError>),
    /// Of [`Images::namespaces`].
    Names(Result<Vec<String>, ClientError>),
    /// Of everything else.
    Done(Result<(), ClientError>),
}

/// What was read: data where there is some, zeros elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadData {
    offset: u64,
    len: u64,
    segments: SmallVec<[(u64, Bytes); 1]>,
}

impl ReadData {
    fn new(offset: u64, len: u64, mut segments: SmallVec<[(u64, Bytes); 1]>) -> Self {
        if segments.len() > 1 {
            segments.sort_unstable_by_key(|(at, _)| *at);
        }
        ReadData { offset, len, segments }
    }

    /// Bytes that were asked for.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The data there is: place in the image, bytes. Between them is nothing but zeros.
    pub fn segments(&self) -> &[(u64, Bytes)] {
        &self.segments
    }

    /// All bytes, zeros included. Copied unless they lie in one piece.
    pub fn into_bytes(self) -> Bytes {
        if let [(at, data)] = self.segments.as_slice()
            && *at == self.offset
            && data.len() as u64 == self.len
        {
            return data.clone();
        }
        let mut all = vec![0; usize::try_from(self.len).unwrap_or(usize::MAX)];
        for (at, data) in &self.segments {
            let from = at.checked_sub(self.offset).and_then(|n| usize::try_from(n).ok());
            let place = from.and_then(|from| all.get_mut(from..from + data.len()));
            place.expect("what is read lies in the range").copy_from_slice(data);
        }
        all.into()
    }
}

/// Too much is in flight on the image: take completions, then submit this again.
#[derive(Debug, PartialEq, Eq)]
pub struct ImageBusy(
    /// What was to be written; empty for other requests.
    pub Bytes,
);

impl fmt::Display for ImageBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as many requests are in flight as an image may have")
    }
}

impl std::error::Error for ImageBusy {}

/// Settings of [`Images`].
#[derive(Clone, Copy, Debug)]
pub struct ImagesConfig {
    /// Requests in flight on one image.
    pub max_ops: usize,
    /// Bytes of those requests, written or asked for.
    pub max_bytes: usize,
}

impl Default for ImagesConfig {
    fn default() -> Self {
        ImagesConfig { max_ops: 1024, max_bytes: 64 << 20 }
    }
}

/// All images that are open on one client. See the module's text.
pub struct Images {
    shared: Rc<RefCell<Shared>>,
    tasks: Vec<Task>,
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Images({} open)", self.shared.borrow().images.len())
    }
}

// ---- requests ----

impl Images {
    /// None open yet. The same seed gives the same run.
    pub fn new(seed: u64) -> Self {
        Self::with_config(seed, ImagesConfig::default())
    }

    /// The same with settings.
    pub fn with_config(seed: u64, config: ImagesConfig) -> Self {
        let make = |me: &std::rc::Weak<RefCell<Shared>>| {
            RefCell::new(Shared::new(me.clone(), seed, config.max_ops, config.max_bytes))
        };
        Images { shared: Rc::new_cyclic(make), tasks: Vec::new() }
    }

    /// Starts a script that ends a request.
    fn start<F>(
        &mut self,
        now: Now,
        client: &mut Client,
        make: impl FnOnce(Desk) -> F,
    ) -> ImageRequest
    where
        F: Future<Output = ImageOutcome> + 'static,
    {
        let id = {
            let mut s = self.shared.borrow_mut();
            let id = s.new_request();
            s.works.insert(id, Work::default());
            id
        };
        let desk = Desk::new(self.shared.clone(), Some(id));
        let script = make(desk.clone());
        self.shared.borrow_mut().spawn(async move {
            let outcome = script.await;
            desk.with(|s| s.done(id, outcome));
        });
        self.pump(now, client);
        id
    }

    /// Opens an image. [`ImageOutcome::Opened`] follows.
    pub fn open(&mut self, now: Now, client: &mut Client, spec: OpenImage) -> ImageRequest {
        self.start(now, client, |desk| async move {
            let at = spec.snap.clone().map_or(At::Head, At::Name);
            let opened = header::open(&desk, spec, at, 0).await;
            ImageOutcome::Opened(opened.map(|slot| {
                let generation = desk.with(|s| s.image(slot).generation);
                ImageId { slot, generation }
            }))
        })
    }

    /// Makes an image. [`ImageOutcome::Created`] follows.
    pub fn create(&mut self, now: Now, client: &mut Client, spec: CreateImage) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Created(create::create(&desk, &spec).await)
        })
    }

    /// Makes a clone of a snapshot. [`ImageOutcome::Created`] follows.
    pub fn clone_image(&mut self, now: Now, client: &mut Client, spec: CloneImage) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Created(create::clone(&desk, &spec).await)
        })
    }

    /// Removes an image that has no snapshots and is open nowhere. [`ImageOutcome::Done`] follows.
    pub fn remove(&mut self, now: Now, client: &mut Client, spec: OpenImage) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Done(remove::remove(&desk, spec).await)
        })
    }

    /// Removes an image from the trash, if its time there is over. [`ImageOutcome::Done`] follows.
    pub fn remove_from_trash(
        &mut self,
        now: Now,
        client: &mut Client,
        spec: TrashedImage,
    ) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Done(trash::remove(&desk, spec).await)
        })
    }

    /// Removes every image from the trash of a pool's namespace whose time there is over.
    /// [`ImageOutcome::Done`] follows, with what kept one from being removed.
    pub fn purge_trash(
        &mut self,
        now: Now,
        client: &mut Client,
        pool: PoolId,
        nspace: ByteString,
    ) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Done(trash::purge(&desk, pool, nspace).await)
        })
    }

    /// The images of a pool's namespace; not many more than `max`. [`ImageOutcome::Listed`] follows.
    pub fn list(
        &mut self,
        now: Now,
        client: &mut Client,
        (pool, nspace): (PoolId, ByteString),
        max: usize,
    ) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Listed(lists::images(&desk, pool, nspace, max).await)
        })
    }

    /// Names of the namespaces of a pool, but for the one that has none. [`ImageOutcome::Names`] follows.
    pub fn namespaces(&mut self, now: Now, client: &mut Client, pool: PoolId) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Names(lists::namespaces(&desk, pool).await)
        })
    }

    /// How far a request is: what is done of what is to be done. `None`: it has ended, or does not say.
    pub fn progress(&self, id: ImageRequest) -> Option<f64> {
        let s = self.shared.borrow();
        let work = s.works.get(&id).filter(|work| work.steps > 0)?;
        Some(work.done as f64 / work.steps as f64)
    }

    /// A request is not wanted any more: one that says how far it is stops, with ECANCELED, when it says so
    /// next. What it has done stays done.
    pub fn cancel(&mut self, id: ImageRequest) {
        if let Some(work) = self.shared.borrow_mut().works.get_mut(&id) {
            work.canceled = true;
        }
    }

    /// Changes an image as a whole: its size, its snapshots. [`ImageOutcome::Done`] follows.
    pub fn change(
        &mut self,
        now: Now,
        client: &mut Client,
        image: ImageId,
        change: Change,
    ) -> ImageRequest {
        let slot = match self.slot_of(image) {
            Ok(slot) => slot,
            Err(error) => return self.fail(ImageOutcome::Done(Err(error))),
        };
        self.shared.borrow_mut().image_mut(slot).scripts += 1;
        self.start(now, client, |desk| async move {
            let result = maintain::run(&desk, slot, change).await;
            desk.with(|s| s.image_mut(slot).scripts -= 1);
            ImageOutcome::Done(result)
        })
    }

    /// Takes the exclusive lock before the first write does, if the image has one.
    /// [`ImageOutcome::Done`] follows.
    pub fn lock(&mut self, now: Now, client: &mut Client, image: ImageId) -> ImageRequest {
        let slot = match self.slot_of(image) {
            Ok(slot) => slot,
            Err(error) => return self.fail(ImageOutcome::Done(Err(error))),
        };
        self.shared.borrow_mut().image_mut(slot).scripts += 1;
        self.start(now, client, |desk| async move {
            let result = maintain::lock(&desk, slot).await;
            desk.with(|s| s.image_mut(slot).scripts -= 1);
            ImageOutcome::Done(result)
        })
    }

    /// Closes an image after everything under way. [`ImageOutcome::Done`] follows; from now on the
    /// image takes no requests.
    pub fn close(&mut self, now: Now, client: &mut Client, image: ImageId) -> ImageRequest {
        let slot = match self.slot_of(image) {
            Ok(slot) => slot,
            Err(error) => return self.fail(ImageOutcome::Done(Err(error))),
        };
        self.shared.borrow_mut().image_mut(slot).closing = true;
        self.start(now, client, |desk| async move {
            header::close(&desk, slot).await;
            ImageOutcome::Done(Ok(()))
        })
    }

    /// Reads. [`ImageOutcome::Read`] follows.
    ///
    /// # Errors
    /// When as much is in flight on the image as may be.
    pub fn read(
        &mut self,
        now: Now,
        client: &mut Client,
        image: ImageId,
        offset: u64,
        len: u64,
    ) -> Result<ImageRequest, ImageBusy> {
        self.submit(now, client, image, Kind::Read, offset, len, Bytes::new())
    }

    /// Writes. [`ImageOutcome::Done`] follows.
    ///
    /// # Errors
    /// When as much is in flight on the image as may be; the data is given back.
    pub fn write(
        &mut self,
        now: Now,
        client: &mut Client,
        image: ImageId,
        offset: u64,
        data: Bytes,
    ) -> Result<ImageRequest, ImageBusy> {
        self.submit(now, client, image, Kind::Write, offset, data.len() as u64, data)
    }

    /// Discards a range to the byte: it reads as zeros then, and takes no space as far as possible.
    /// So it is both librbd's discard without a granularity and its write-zeroes.
    /// [`ImageOutcome::Done`] follows.
    ///
    /// # Errors
    /// When as much is in flight on the image as may be.
    pub fn discard(
        &mut self,
        now: Now,
        client: &mut Client,
        image: ImageId,
        offset: u64,
        len: u64,
    ) -> Result<ImageRequest, ImageBusy> {
        self.submit(now, client, image, Kind::Discard, offset, len, Bytes::new())
    }

    /// Waits for all writes submitted so far. [`ImageOutcome::Done`] follows.
    pub fn flush(&mut self, _: Now, image: ImageId) -> ImageRequest {
        let slot = match self.slot_of(image) {
            Ok(slot) => slot,
            Err(error) => return self.fail(ImageOutcome::Done(Err(error))),
        };
        let mut s = self.shared.borrow_mut();
        let id = s.new_request();
        if s.image_mut(slot).flushes.flush(id) {
            s.done(id, ImageOutcome::Done(Ok(())));
        }
        id
    }

    #[expect(clippy::too_many_arguments, reason = "the one place where all kinds meet")]
    fn submit(
        &mut self,
        now: Now,
        client: &mut Client,
        image: ImageId,
        kind: Kind,
        offset: u64,
        len: u64,
        data: Bytes,
    ) -> Result<ImageRequest, ImageBusy> {
        let slot = match self.slot_of(image) {
            Ok(slot) => slot,
            Err(error) => return Ok(self.fail(ended(kind, error))),
        };
        let id = {
            let mut s = self.shared.borrow_mut();
            s.now = now;
            s.gid = client.global_id();
            if let Some(error) = s.refusal(slot, kind, offset, len) {
                drop(s);
                return Ok(self.fail(ended(kind, error)));
            }
            let (max_ops, max_bytes) = (s.max_ops, s.max_bytes);
            let bytes = cost(kind, len);
            let image = s.image_mut(slot);
            // One of any size may go when nothing else does.
            let room = image.user_bytes == 0 || image.user_bytes.saturating_add(bytes) <= max_bytes;
            if image.user_ops >= max_ops || !room {
                return Err(ImageBusy(data));
            }
            image.user_ops += 1;
            image.user_bytes += bytes;
            let generation = if kind == Kind::Read { 0 } else { image.flushes.write() };
            let id = s.new_request();
            let mut io = Io::new(slot, kind, Owner::User(id), offset, len, data);
            io.generation = generation;
            s.enter(io);
            id
        };
        self.pump(now, client);
        Ok(id)
    }

    fn slot_of(&self, image: ImageId) -> Result<usize, ClientError> {
        let s = self.shared.borrow();
        match s.images.get(image.slot) {
            Some(i) if i.generation == image.generation && !i.closing => Ok(image.slot),
            _ => Err(ClientError::new(Errno::EBADF, "request on an image", "it is closed")),
        }
    }

    fn fail(&mut self, outcome: ImageOutcome) -> ImageRequest {
        let mut s = self.shared.borrow_mut();
        let id = s.new_request();
        s.done(id, outcome);
        id
    }
}

/// Why a request is refused.
const BEYOND: &str = "it goes beyond the end of the image";

fn ended(kind: Kind, error: ClientError) -> ImageOutcome {
    match kind {
        Kind::Read => ImageOutcome::Read(Err(error)),
        Kind::Write | Kind::Discard => ImageOutcome::Done(Err(error)),
    }
}

impl Shared {
    /// Why a request is not even begun.
    fn refusal(&self, slot: usize, kind: Kind, offset: u64, len: u64) -> Option<ClientError> {
        let image = self.image(slot);
        // While the header is read again the size is not known; it is compared once more when the
        // request begins.
        let known = !image.refresh_needed && !image.refreshing;
        let end = offset.checked_add(len).filter(|end| *end <= layout::MAX_IMAGE_BYTES);
        let (errno, why) = if end.is_none_or(|end| known && end > image.size()) {
            (Errno::EINVAL, BEYOND)
        } else if kind == Kind::Read {
            return None;
        } else if image.read_only {
            (Errno::EROFS, "it is opened for reading")
        } else if image.head.has(feature::JOURNALING) {
            (Errno::EOPNOTSUPP, maintain::JOURNALING)
        } else {
            return None;
        };
        let verb = if kind == Kind::Read { "read of" } else { "write to" };
        let what = format!("{verb} {len} bytes at {offset} of {}", image.title());
        Some(ClientError::new(errno, what, why))
    }
}

// ---- running ----

impl Images {
    /// Takes in a completion of the client. Gives it back when it is somebody else's.
    pub fn take(
        &mut self,
        now: Now,
        client: &mut Client,
        completion: Completion,
    ) -> Option<Completion> {
        let (not_ours, waits_for_room) = {
            let mut s = self.shared.borrow_mut();
            s.now = now;
            s.gid = client.global_id();
            let not_ours = s.on_completion(completion);
            (not_ours, !s.outgoing.is_empty() || !s.asks.is_empty())
        };
        if not_ours.is_none() || waits_for_room {
            self.pump(now, client);
        }
        not_ours
    }

    /// Deals with every deadline that has come.
    pub fn tick(&mut self, now: Now, client: &mut Client) {
        {
            let mut s = self.shared.borrow_mut();
            s.now = now;
            while s.alarms.first().is_some_and(|at| *at <= now.mono) {
                s.alarms.pop_first();
                s.touched = true;
            }
        }
        self.pump(now, client);
    }

    /// The time of the next [`Images::tick`].
    pub fn next_deadline(&self) -> Option<Mono> {
        let s = self.shared.borrow();
        if !s.out.is_empty() {
            return Some(Mono::default());
        }
        s.alarms.first().copied()
    }

    /// The next completion. Owners take all, every turn.
    pub fn poll(&mut self) -> Option<ImageDone> {
        self.shared.borrow_mut().out.pop_front()
    }

    /// Lets scripts go on, and gives the client what there is for it.
    fn pump(&mut self, now: Now, client: &mut Client) {
        loop {
            {
                let mut s = self.shared.borrow_mut();
                s.now = now;
                s.hand_out(now, client);
                if !std::mem::take(&mut s.touched) {
                    return;
                }
                let new = std::mem::take(&mut s.new_tasks);
                self.tasks.extend(new);
                if self.tasks.is_empty() {
                    return;
                }
                s.gid = client.global_id();
                s.pools =
                    client.map().map(|m| m.pools.keys().copied().collect()).unwrap_or_default();
            }
            let mut cx = Context::from_waker(Waker::noop());
            self.tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
        }
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        // Scripts hold the state, which holds new scripts.
        let new = std::mem::take(&mut self.shared.borrow_mut().new_tasks);
        drop(new);
    }
}

impl Shared {
    fn on_completion(&mut self, completion: Completion) -> Option<Completion> {
        let Completion { id, outcome } = completion;
        let route = match self.routes.get(&id).copied() {
            None => return Some(Completion { id, outcome }),
            Some(route) => route,
        };
        if let Route::Watch(slot, ticket) = route {
            match outcome {
                Outcome::Watching(result) => {
                    if result.is_err() {
                        self.routes.remove(&id);
                        self.image_mut(slot).watch = None;
                    }
                    self.answer(ticket, Outcome::Watching(result));
                }
                outcome => self.on_watch(slot, id, outcome),
            }
            return None;
        }
        self.routes.remove(&id);
        match (route, outcome) {
            (Route::Script(ticket), outcome) => self.answer(ticket, outcome),
            (Route::Object(key), Outcome::Op(answer)) => self.on_object(key, answer),
            (Route::Copyup(key), Outcome::Op(answer)) => self.on_copyup(key, answer),
            (Route::Map(slot, object), Outcome::Op(answer)) => self.on_map(slot, object, answer),
            (route, outcome) => {
                tracing::warn!(?route, ?outcome, "a request ended as something else");
            }
        }
        None
    }

    /// Gives the client what there is for it, in order.
    fn hand_out(&mut self, now: Now, client: &mut Client) {
        for (watch, notify, answer) in self.acks.drain(..) {
            client.notify_ack(now, watch, notify, answer);
        }
        while let Some((route, op)) = self.outgoing.pop_front() {
            match client.submit(now, op) {
                Ok(id) => drop(self.routes.insert(id, route)),
                Err(busy) => {
                    self.outgoing.push_front((route, *busy.0));
                    break;
                }
            }
        }
        while let Some((ticket, ask)) = self.asks.pop_front() {
            if let Err(ask) = self.ask_client(now, client, ticket, ask) {
                self.asks.push_front((ticket, ask));
                break;
            }
        }
    }

    /// Asks the client for something; gives it back when the client has no room.
    fn ask_client(
        &mut self,
        now: Now,
        client: &mut Client,
        ticket: script::Ticket,
        ask: Ask,
    ) -> Result<(), Ask> {
        let id: RequestId = match ask {
            Ask::Op(op) => client.submit(now, *op).map_err(|busy| Ask::Op(busy.0))?,
            Ask::Notify { object, payload, timeout_s } => {
                client.notify(now, object, payload, timeout_s)
            }
            Ask::Command(json) => client.command(now, json, ""),
            Ask::CreateSnap(pool) => client.create_own_snap(now, pool),
            Ask::DeleteSnap(pool, snap) => client.delete_own_snap(now, pool, snap),
            Ask::MapVersion => client.get_version(now, "osdmap"),
            Ask::WaitForMap(epoch) => client.wait_for_map(now, epoch),
            Ask::Watch(slot) => {
                let id = client.watch(now, self.image(slot).header(), 0);
                self.image_mut(slot).watch = Some(id);
                self.routes.insert(id, Route::Watch(slot, ticket));
                return Ok(());
            }
            Ask::Unwatch(slot) => {
                let unwatched = self.image_mut(slot).watch.take().and_then(|watch| {
                    self.routes.remove(&watch);
                    client.unwatch(now, watch)
                });
                match unwatched {
                    Some(id) => id,
                    None => {
                        self.answer(ticket, Outcome::Op(Ok(crate::reply::OpReply::default())));
                        return Ok(());
                    }
                }
            }
        };
        self.routes.insert(id, Route::Script(ticket));
        Ok(())
    }
}

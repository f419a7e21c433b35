//! Everything that images, their requests and scripts share.

use super::copyup::Copyup;
use super::format::{ParentSpec, SnapInfo, feature};
use super::io::{Io, ObjReq, Then};
use super::layout::Layout;
use super::object_map::{ObjectMap, State};
use super::script::{Ask, Desk, Task, Ticket};
use super::{ImageDone, ImageOutcome, ImageRequest, ImagesConfig};
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use crate::outcome::{Outcome, RequestId};
use bytes::Bytes;
use io::{Now, Rng};
use slab::Slab;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::rc::Weak;
use std::time::Duration;
use types::{ByteString, Errno, HashMap, Mono, PoolId, SnapId};
use wire::msg::SnapContext;

/// Whom the completion of a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Script(Ticket),
    /// A request on a data object.
    Object(usize),
    /// One of the requests of a copyup.
    Copyup(usize),
    /// A change of the object map of the image in this slot.
    Map(usize, u64),
    /// The watch of the image in this slot, whose registration this ticket waits for.
    Watch(usize, Ticket),
}

/// A snapshot of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snap {
    pub info: SnapInfo,
    pub flags: u64,
    pub protection: u8,
    /// How much of the image's parent it shows.
    pub overlap: u64,
}

/// What the header says and may change.
#[derive(Clone, Debug, Default)]
pub struct Header {
    pub size: u64,
    pub features: u64,
    pub flags: u64,
    pub snapc: SnapContext,
    /// Oldest first.
    pub snaps: Vec<Snap>,
    pub parent: Option<ParentSpec>,
    /// How much of the parent the head shows.
    pub overlap: u64,
}

impl Header {
    pub fn has(&self, features: u64) -> bool {
        self.features & features == features
    }

    pub fn snap(&self, id: SnapId) -> Option<&Snap> {
        self.snaps.iter().find(|s| s.info.id == id)
    }
}

/// Where the exclusive lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// Not ours.
    Unlocked,
    /// We are about to take it.
    Acquiring,
    /// Ours.
    Locked,
    /// We are about to let it go.
    Releasing,
}

/// A change of the object map on its way, and those that wait for it.
#[derive(Debug)]
pub struct MapBusy {
    pub new: State,
    pub current: Option<State>,
    pub then: Then,
    pub queue: VecDeque<(State, Option<State>, Then)>,
}

/// An open image.
pub struct Image {
    /// Tells it from earlier images in its slot.
    pub generation: u64,
    pub name: String,
    pub id: String,
    pub pool: PoolId,
    pub nspace: ByteString,
    pub data_pool: PoolId,
    /// How names of data objects begin.
    pub prefix: String,
    pub order: u8,
    pub layout: Layout,
    /// Which snapshot is seen; the head else.
    pub snap: Option<SnapId>,
    pub read_only: bool,
    /// The lock is taken from nobody.
    pub only_free_lock: bool,
    pub head: Header,
    /// Slot of the image that this one is a clone of.
    pub parent: Option<usize>,
    /// Its parent is not opened.
    pub alone: bool,
    /// It is opened by who frees space: see [`Desk::full_try_if`].
    pub full_try: bool,
    pub watch: Option<RequestId>,
    /// The watch is registered, for all that is known.
    pub watching: bool,
    pub lock: LockState,
    /// Under which the lock is held, or was asked for; empty: the header has no lock of ours.
    pub cookie: String,
    /// The lock is given another cookie, or back: one at a time.
    pub cookie_busy: bool,
    /// Only under the lock.
    pub map: Option<ObjectMap>,
    pub map_busy: HashMap<u64, MapBusy>,
    /// Object maps that are not trusted although the header does not say so yet.
    pub unmarked: BTreeSet<SnapId>,
    pub copyups: HashMap<u64, usize>,
    /// Requests that wait for the lock, a refresh, or the end of what froze writes.
    pub queue: VecDeque<usize>,
    /// How many procedures keep writes from being begun.
    pub frozen: u32,
    pub refresh_needed: bool,
    pub refreshing: bool,
    /// How often the header could not be read, and why the last time.
    pub refresh_failures: (u64, Option<ClientError>),
    /// A procedure that changes the image runs.
    pub maintaining: bool,
    /// From then on it can be stopped and begun again, and is when a peer wants the lock.
    pub can_stop: Option<Mono>,
    /// How far that is: steps that are done, of so many.
    pub progress: (u64, u64),
    /// It does not name this parent any more, which may go without it.
    pub left_parent: Option<ParentSpec>,
    /// It is being removed: nobody else gets the lock any more.
    pub removing: bool,
    /// Requests begun and not ended: those that write, and all.
    pub writes_running: usize,
    pub ios_running: usize,
    /// Of users: requests and their bytes, also those that wait.
    pub user_ops: usize,
    pub user_bytes: usize,
    pub flushes: super::flush::Flushes,
    /// A peer is to have the lock when the procedure is over that changes the image.
    pub lock_is_wanted: bool,
    /// Counts what peers said about the lock.
    pub lock_news: u64,
    /// Nothing goes any more, and why.
    pub dead: Option<ClientError>,
    pub closing: bool,
    /// Counts changes of `head` that were made here, for a refresh that began before.
    pub head_changes: u64,
    /// Why the lock could not be had the last time.
    pub lock_error: Option<ClientError>,
    /// Scripts that wait until they may change the image as a whole, and for the lock.
    pub holding: usize,
    /// Scripts that work on it.
    pub scripts: usize,
    /// Requests of peers that were answered lately, and how they ended.
    pub wishes: VecDeque<(super::notice::AsyncId, Option<i32>)>,
    /// What the lock's holder is asked to do.
    pub asked: BTreeMap<super::notice::AsyncId, super::wishes::Asked>,
}

impl Image {
    /// Size of what is seen.
    pub fn size(&self) -> u64 {
        match self.snap {
            None => self.head.size,
            Some(id) => self.head.snap(id).map_or(0, |s| s.info.size),
        }
    }

    /// How much of the parent is seen.
    pub fn overlap(&self) -> u64 {
        match self.snap {
            None => self.head.overlap,
            Some(id) => self.head.snap(id).map_or(0, |s| s.overlap),
        }
    }

    pub fn header(&self) -> Object {
        self.meta(super::format::header_name(&self.id))
    }

    /// An object beside the header.
    pub fn meta(&self, name: String) -> Object {
        Object::new(self.pool, name).in_namespace(self.nspace.clone())
    }

    pub fn map_object(&self, snap: SnapId) -> Object {
        self.meta(super::format::map_name(&self.id, snap))
    }

    /// A data object.
    pub fn data(&self, object: u64) -> Object {
        const DIGITS: usize = 17;
        let mut name = Vec::with_capacity(self.prefix.len() + DIGITS);
        name.extend_from_slice(self.prefix.as_bytes());
        name.push(b'.');
        for i in (0..16).rev() {
            let digit = (object >> (4 * i) & 0xf) as u8;
            name.push(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
        }
        Object::new(self.data_pool, name).in_namespace(self.nspace.clone())
    }

    /// Why it is not written here, as far as the header is known.
    pub fn refusal(&self) -> Option<(Errno, &'static str)> {
        if self.read_only {
            Some((Errno::EROFS, "it is opened for reading"))
        } else if self.head.has(feature::NON_PRIMARY) {
            Some((Errno::EROFS, "it mirrors another cluster's image, and is not primary"))
        } else if self.head.has(feature::JOURNALING) {
            let why = "it has the feature journaling, which is not supported: disable it";
            Some((Errno::EOPNOTSUPP, why))
        } else {
            None
        }
    }

    pub fn needs_lock(&self) -> bool {
        self.head.has(feature::EXCLUSIVE_LOCK)
    }

    /// Whether the object map says what exists.
    pub fn map_is_valid(&self) -> bool {
        self.head.flags & super::format::MAP_INVALID == 0
    }

    pub fn may_exist(&self, object: u64) -> bool {
        match &self.map {
            Some(map) if self.map_is_valid() => map.may_exist(object),
            _ => true,
        }
    }

    /// Whether a lost watch is replaced: who closes the image has no use for one when the lock is gone.
    pub fn needs_watch(&self) -> bool {
        !self.closing || self.lock != LockState::Unlocked || !self.queue.is_empty()
    }

    /// Whether somebody waits for the lock.
    pub fn is_lock_wanted(&self) -> bool {
        self.holding > 0 || !self.queue.is_empty()
    }

    /// Whether no change is on its way.
    pub fn is_drained(&self) -> bool {
        self.writes_running == 0 && self.copyups.is_empty() && self.map_busy.is_empty()
    }

    /// `image pool/name@snap`, for errors.
    pub fn title(&self) -> String {
        let name = if self.name.is_empty() { &self.id } else { &self.name };
        let nspace = if self.nspace.is_empty() { "" } else { "/" };
        match self.snap.and_then(|id| self.head.snap(id)) {
            Some(s) => format!("image {}{nspace}{name}@{}", self.nspace, s.info.name),
            None => format!("image {}{nspace}{name}", self.nspace),
        }
    }
}

/// How far a request is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Steps that are done.
    pub done: u64,
    /// Of so many; 0: it has not said yet.
    pub steps: u64,
    /// It is not wanted any more.
    pub canceled: bool,
}

/// See the module's text.
pub struct Shared {
    me: Weak<RefCell<Shared>>,
    pub now: Now,
    /// The client's global id.
    pub gid: u64,
    pub rng: Rng,
    /// All pools of the cluster.
    pub pools: Vec<PoolId>,
    pub config: ImagesConfig,
    pub images: Slab<Image>,
    pub ios: Slab<Io>,
    pub objs: Slab<ObjReq>,
    pub copyup_list: Slab<Copyup>,
    pub routes: HashMap<RequestId, Route>,
    /// What is to be given to the client, in order.
    pub outgoing: VecDeque<(Route, ObjectOp)>,
    pub asks: VecDeque<(Ticket, Ask)>,
    pub answers: HashMap<Ticket, Outcome>,
    /// Answers to notifies: watch, notify, answer.
    pub acks: Vec<(RequestId, u64, Bytes)>,
    pub new_tasks: Vec<Task>,
    pub out: VecDeque<ImageDone>,
    /// How far images were flattened lately, when that was stopped.
    pub flattened: super::flatten::Flattened,
    /// How far requests are that say so.
    pub works: HashMap<ImageRequest, Work>,
    pub alarms: BTreeSet<Mono>,
    /// Counts the turns of the core.
    pub turn: u64,
    /// Something has happened that a script may wait for.
    pub touched: bool,
    last_ticket: u64,
    pub last_request: u64,
    last_generation: u64,
}

impl Shared {
    pub fn new(me: Weak<RefCell<Shared>>, seed: u64, config: ImagesConfig) -> Self {
        Shared {
            me,
            now: Now::default(),
            gid: 0,
            rng: Rng::with_seed(seed),
            pools: Vec::new(),
            config,
            images: Slab::new(),
            ios: Slab::new(),
            objs: Slab::new(),
            copyup_list: Slab::new(),
            routes: HashMap::default(),
            outgoing: VecDeque::new(),
            asks: VecDeque::new(),
            answers: HashMap::default(),
            acks: Vec::new(),
            new_tasks: Vec::new(),
            out: VecDeque::new(),
            flattened: super::flatten::Flattened::default(),
            works: HashMap::default(),
            alarms: BTreeSet::new(),
            turn: 0,
            touched: false,
            last_ticket: 0,
            last_request: 0,
            last_generation: 0,
        }
    }

    pub fn new_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    pub fn new_request(&mut self) -> ImageRequest {
        self.last_request += 1;
        ImageRequest(self.last_request)
    }

    pub fn new_generation(&mut self) -> u64 {
        self.last_generation += 1;
        self.last_generation
    }

    pub fn ask(&mut self, ask: Ask) -> Ticket {
        let ticket = self.new_ticket();
        self.asks.push_back((ticket, ask));
        self.touched = true;
        ticket
    }

    pub fn answer(&mut self, ticket: Ticket, outcome: Outcome) {
        self.answers.insert(ticket, outcome);
        self.touched = true;
    }

    pub fn spawn(&mut self, task: impl Future<Output = ()> + 'static) {
        self.new_tasks.push(Box::pin(task));
        self.touched = true;
    }

    pub fn desk(&self) -> Desk {
        let shared = self.me.upgrade().expect("it is not dropped while it is used");
        Desk::new(shared, None)
    }

    /// Starts a script that works on an image, which stays open until the script ends.
    pub fn spawn_for<F: Future<Output = ()> + 'static>(
        &mut self,
        slot: usize,
        make: impl FnOnce(Desk) -> F,
    ) {
        let image = self.image_mut(slot);
        image.scripts += 1;
        let full_try = image.full_try;
        let desk = self.desk().full_try_if(full_try);
        let script = make(desk.clone());
        self.spawn(async move {
            script.await;
            desk.with(|s| {
                s.image_mut(slot).scripts -= 1;
                s.touched = true;
            });
        });
    }

    /// A request is not wanted any more.
    pub fn cancel(&mut self, id: ImageRequest) {
        if let Some(work) = self.works.get_mut(&id) {
            work.canceled = true;
            self.touched = true;
            // It may wait for something else than an answer.
            self.set_alarm(Duration::ZERO);
        }
    }

    pub fn is_canceled(&self, request: Option<ImageRequest>) -> bool {
        request.and_then(|id| self.works.get(&id)).is_some_and(|work| work.canceled)
    }

    /// Deals with every deadline that has come, once a turn.
    pub fn begin_turn(&mut self) {
        self.turn += 1;
        while self.alarms.first().is_some_and(|at| *at <= self.now.mono) {
            self.alarms.pop_first();
            self.touched = true;
        }
    }

    pub fn set_alarm(&mut self, after: Duration) -> Mono {
        let at = self.now.mono.after(after);
        self.alarms.insert(at);
        at
    }

    pub fn done(&mut self, id: ImageRequest, outcome: ImageOutcome) {
        self.works.remove(&id);
        self.out.push_back(ImageDone { id, outcome });
    }

    /// An image that is certainly open: its users see to that.
    pub fn image(&self, slot: usize) -> &Image {
        self.images.get(slot).expect("the image is open")
    }

    pub fn image_mut(&mut self, slot: usize) -> &mut Image {
        self.images.get_mut(slot).expect("the image is open")
    }

    /// The header of an image is about to be watched.
    pub fn watch_begins(&mut self, slot: usize, watch: RequestId, ticket: Ticket) {
        let image = self.image_mut(slot);
        (image.watch, image.watching) = (Some(watch), false);
        self.routes.insert(watch, Route::Watch(slot, ticket));
    }

    /// The watch of an image, which is about to end.
    pub fn watch_ends(&mut self, slot: usize) -> Option<RequestId> {
        let image = self.image_mut(slot);
        image.watching = false;
        let watch = image.watch.take()?;
        self.routes.remove(&watch);
        Some(watch)
    }

    /// An error about an image.
    pub fn error(&self, slot: usize, errno: Errno, doing: &str, why: &'static str) -> ClientError {
        ClientError::new(errno, format!("{doing} {}", self.image(slot).title()), why)
    }

    /// The image is of no use any more; whatever waits fails.
    pub fn die(&mut self, slot: usize, error: &ClientError) {
        self.touched = true;
        let image = self.image_mut(slot);
        if image.dead.is_none() {
            tracing::warn!(image = image.title(), %error, "the image cannot be used any more");
            image.dead = Some(error.clone());
        }
        self.fail_queue(slot, error, |_| true);
    }
}

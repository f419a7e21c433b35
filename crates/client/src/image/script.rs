//! Long procedures (opening, the lock, snapshots, ...) as async functions.
//!
//! There is no runtime, thread or waker: a script is polled by its [`Desk`]'s owner after something
//! has happened, and each of its awaits is one request to the cluster, a condition on the state, or
//! a time. So a procedure of twelve requests reads as twelve lines, and runs the same from the same
//! seed. Nothing of the state is borrowed over an await.

use super::ImageRequest;
use super::state::Shared;
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use crate::outcome::{CommandReply, NotifyResult, Outcome};
use crate::reply::OpReply;
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use types::{Epoch, Errno, Mono, PoolId, SnapId};

/// Names something a script has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Something a script asks for.
#[derive(Debug)]
pub enum Ask {
    Op(Box<ObjectOp>),
    Notify {
        object: Object,
        payload: Bytes,
        timeout_s: u32,
    },
    Command(String),
    CreateSnap(PoolId),
    DeleteSnap(PoolId, SnapId),
    MapVersion,
    WaitForMap(Epoch),
    /// Watches the header of the image in this slot.
    Watch(usize),
    /// Ends the watch of the image in this slot.
    Unwatch(usize),
}

/// A running script.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What a script works with.
#[derive(Clone)]
pub struct Desk {
    shared: Rc<RefCell<Shared>>,
    /// The request that it ends.
    request: Option<ImageRequest>,
    /// Its requests on objects go also to a pool that is full, and fail if they need space.
    full_try: bool,
}

/// The answer to an [`Ask`].
struct Answer {
    desk: Desk,
    ticket: Ticket,
}

impl Future for Answer {
    type Output = Outcome;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Outcome> {
        let answer = self.desk.shared.borrow_mut().answers.remove(&self.ticket);
        answer.map_or(Poll::Pending, Poll::Ready)
    }
}

/// A condition on the state.
struct Until<F> {
    desk: Desk,
    condition: F,
}

impl<T, F: FnMut(&mut Shared) -> Option<T> + Unpin> Future for Until<F> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let met = (this.condition)(&mut this.desk.shared.borrow_mut());
        met.map_or(Poll::Pending, Poll::Ready)
    }
}

fn canceled() -> ClientError {
    ClientError::new(Errno::ECANCELED, "a request on an image", "")
}

impl Shared {
    fn wait_on(
        &self,
        request: Option<ImageRequest>,
        slot: usize,
        since: Option<Mono>,
    ) -> Result<(), ClientError> {
        if self.is_canceled(request) {
            return Err(canceled());
        }
        let waited = since.map(|since| self.now.mono.since(since));
        if waited.zip(self.config.patience).is_some_and(|(waited, limit)| waited >= limit) {
            let why = "others hold its lock (see rbd lock ls)";
            return Err(self.error(slot, Errno::EBUSY, "change of", why));
        }
        Ok(())
    }
}

fn unexpected(outcome: &Outcome) -> ClientError {
    ClientError::new(Errno::EIO, "a request", format!("it ended as something else: {outcome:?}"))
}

impl Desk {
    /// For a script that ends a request, or for one that nobody waits for.
    pub fn new(shared: Rc<RefCell<Shared>>, request: Option<ImageRequest>) -> Self {
        Desk { shared, request, full_try: false }
    }

    /// The same for who frees space: it goes on where the pool is full. So do the images that it opens.
    #[must_use]
    pub fn full_try_if(&self, yes: bool) -> Self {
        Desk { full_try: self.full_try || yes, ..self.clone() }
    }

    /// The same for what is done whether or not the request's owner still wants it, and is no part of its progress.
    #[must_use]
    pub fn for_nobody(&self) -> Self {
        Desk { request: None, ..self.clone() }
    }

    pub fn is_full_try(&self) -> bool {
        self.full_try
    }

    /// Does something with the state, at once.
    pub fn with<R>(&self, f: impl FnOnce(&mut Shared) -> R) -> R {
        f(&mut self.shared.borrow_mut())
    }

    /// Says how far the request is: steps that are done, of so many.
    ///
    /// # Errors
    /// ECANCELED when its owner does not want it any more.
    pub fn progress(&self, done: u64, steps: u64) -> Result<(), ClientError> {
        let Some(id) = self.request else { return Ok(()) };
        self.with(|s| {
            let work = s.works.entry(id).or_default();
            (work.done, work.steps) = (done, steps);
        });
        self.is_wanted()
    }

    /// Whether the request's owner still wants it.
    ///
    /// # Errors
    /// ECANCELED when not.
    pub fn is_wanted(&self) -> Result<(), ClientError> {
        if self.with(|s| s.is_canceled(self.request)) { Err(canceled()) } else { Ok(()) }
    }

    fn ask(&self, ask: Ask) -> Answer {
        let ticket = self.with(|s| s.ask(ask));
        Answer { desk: self.clone(), ticket }
    }

    /// Starts another script.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.with(|s| s.spawn(task));
    }

    fn ask_op(&self, op: ObjectOp) -> Answer {
        self.ask(Ask::Op(Box::new(op.full_try_if(self.full_try))))
    }

    /// A request on an object.
    pub async fn op(&self, op: ObjectOp) -> Result<OpReply, ClientError> {
        match self.ask_op(op).await {
            Outcome::Op(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// Tells all watchers of an object something.
    pub async fn notify(
        &self,
        object: Object,
        payload: Bytes,
        timeout_s: u32,
    ) -> Result<NotifyResult, ClientError> {
        match self.ask(Ask::Notify { object, payload, timeout_s }).await {
            Outcome::NotifyDone(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// A command to the mon.
    pub async fn command(&self, json: String) -> Result<CommandReply, ClientError> {
        match self.ask(Ask::Command(json)).await {
            Outcome::Command(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// A new snapshot's id.
    pub async fn create_snap(&self, pool: PoolId) -> Result<SnapId, ClientError> {
        match self.ask(Ask::CreateSnap(pool)).await {
            Outcome::PoolOp(Ok(Some(id))) => Ok(SnapId(id)),
            Outcome::PoolOp(Err(error)) => Err(error),
            other => Err(unexpected(&other)),
        }
    }

    /// Gives a snapshot's id back.
    pub async fn delete_snap(&self, pool: PoolId, snap: SnapId) -> Result<(), ClientError> {
        match self.ask(Ask::DeleteSnap(pool, snap)).await {
            Outcome::PoolOp(result) => result.map(drop),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until the map that is newest now is here.
    pub async fn newest_map(&self) -> Result<(), ClientError> {
        let newest = match self.ask(Ask::MapVersion).await {
            Outcome::Version(versions) => versions?.newest,
            other => return Err(unexpected(&other)),
        };
        let epoch = Epoch(u32::try_from(newest).unwrap_or(u32::MAX));
        match self.ask(Ask::WaitForMap(epoch)).await {
            Outcome::Map(result) => result.map(drop),
            other => Err(unexpected(&other)),
        }
    }

    /// Watches the header of an image.
    pub async fn watch(&self, slot: usize) -> Result<(), ClientError> {
        match self.ask(Ask::Watch(slot)).await {
            Outcome::Watching(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the watch of an image, if there is one.
    pub async fn unwatch(&self, slot: usize) -> Result<(), ClientError> {
        match self.ask(Ask::Unwatch(slot)).await {
            Outcome::Op(result) => result.map(drop),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until the condition gives something.
    pub fn until<T>(
        &self,
        condition: impl FnMut(&mut Shared) -> Option<T> + Unpin,
    ) -> impl Future<Output = T> {
        Until { desk: self.clone(), condition }
    }

    /// The same, as long as others are waited for, who have kept the image's lock from us since then. `None`: it is
    /// nobody else's fault, and takes as long as it does.
    ///
    /// # Errors
    /// Those of [`Desk::wait_on`].
    pub async fn until_wanted<T>(
        &self,
        slot: usize,
        since: Option<Mono>,
        mut condition: impl FnMut(&mut Shared) -> Option<T> + Unpin,
    ) -> Result<T, ClientError> {
        let request = self.request;
        self.with(|s| {
            let waited = since.map(|since| s.now.mono.since(since));
            let left = waited.zip(s.config.patience).map(|(w, limit)| limit.saturating_sub(w));
            left.map(|left| s.set_alarm(left))
        });
        self.until(move |s| match condition(s) {
            Some(met) => Some(Ok(met)),
            None => s.wait_on(request, slot, since).err().map(Err),
        })
        .await
    }

    /// Whether others, who have kept an image's lock from us since then, are waited for any longer.
    ///
    /// # Errors
    /// ECANCELED when the request's owner does not want it any more, EBUSY when there is no more patience.
    pub fn wait_on(&self, slot: usize, since: Mono) -> Result<(), ClientError> {
        self.with(|s| s.wait_on(self.request, slot, Some(since)))
    }

    /// Waits until the condition gives something, or for so long.
    pub async fn until_or<T>(
        &self,
        limit: Duration,
        mut condition: impl FnMut(&mut Shared) -> Option<T> + Unpin,
    ) -> Option<T> {
        let at = self.with(|s| s.set_alarm(limit));
        self.until(move |s| match condition(s) {
            Some(met) => Some(Some(met)),
            None => (s.now.mono >= at).then_some(None),
        })
        .await
    }

    /// Lets everything else of the process have a turn, and then goes on.
    pub async fn give_way(&self) {
        let turn = self.with(|s| {
            s.set_alarm(Duration::ZERO);
            s.turn
        });
        self.until(move |s| (s.turn != turn).then_some(())).await;
    }

    /// Lets time pass.
    pub async fn sleep(&self, time: Duration) {
        self.until_or(time, |_| None::<()>).await;
    }

    /// Runs requests on objects, so many at a time, until all are done or one failed in a way that
    /// `judge` does not forgive.
    pub async fn many(
        &self,
        at_a_time: usize,
        ops: impl Iterator<Item = ObjectOp>,
        judge: impl Fn(Result<OpReply, ClientError>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let asked = ops.map(|op| self.ask_op(op).ticket);
        self.all_of(at_a_time, asked, judge).await
    }

    /// The same with whatever answers as a request on an object does. Each begins when its ticket is taken.
    pub async fn all_of(
        &self,
        at_a_time: usize,
        tickets: impl Iterator<Item = Ticket>,
        judge: impl Fn(Result<OpReply, ClientError>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let mut running: VecDeque<Answer> = VecDeque::new();
        let mut result = Ok(());
        let mut tickets = tickets.fuse();
        loop {
            while result.is_ok()
                && running.len() < at_a_time
                && let Some(ticket) = tickets.next()
            {
                running.push_back(Answer { desk: self.clone(), ticket });
            }
            let Some(first) = running.pop_front() else {
                return result;
            };
            let judged = match first.await {
                Outcome::Op(answer) => judge(answer),
                other => Err(unexpected(&other)),
            };
            result = result.and(judged);
        }
    }
}

/// An error that is forgiven: what was to be removed is not there.
pub fn unless_missing<T: Default>(result: Result<T, ClientError>) -> Result<T, ClientError> {
    match result {
        Err(error) if error.errno == Errno::ENOENT => Ok(T::default()),
        result => result,
    }
}

/// Removes an object, if it is there, also from a full pool.
pub async fn remove_object(desk: &Desk, object: Object) -> Result<(), ClientError> {
    unless_missing(desk.op(ObjectOp::new(object).remove().full_try()).await).map(drop)
}

// ---- requests on data objects, as users' are done ----

impl Desk {
    /// Discards a range of an object. `keep_map`: the object map follows.
    pub async fn discard(
        &self,
        slot: usize,
        object: u64,
        at: u64,
        len: u64,
        keep_map: bool,
    ) -> Result<(), ClientError> {
        let ticket = self.with(|s| s.discard_object(slot, object, at, len, keep_map));
        self.internal(ticket).await
    }

    async fn internal(&self, ticket: Ticket) -> Result<(), ClientError> {
        match (Answer { desk: self.clone(), ticket }).await {
            Outcome::Op(result) => result.map(drop),
            other => Err(unexpected(&other)),
        }
    }
}

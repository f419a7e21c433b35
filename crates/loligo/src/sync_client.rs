//! A client behind calls that block, for tools and tests.
//!
//! The client's core runs on a thread of its own, on `uring::run`. Requests go to it through a
//! channel; a byte on a loopback connection, which the core itself dials, wakes it. Completions come
//! back through another channel.

use crate::conf::ClientConf;
use crate::failure::{Context, Failure};
use bytes::Bytes;
use client::image::{ImageDone, ImageOutcome, ImageRequest, Images};
use client::{
    Client, ClientConfig, ClientError, CommandReply, Completion, ListCursor, Object, ObjectOp,
    OpReply, Outcome, RequestId,
};
use io::net::{ConnId, NetEvent};
use io::{Core, Effects, Event, Now};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use types::{Errno, Mono, PoolId};
use wire::msg::op_data::ListedObject;

/// Something to be done on the client's thread.
type Job = Box<dyn FnOnce(Now, &mut Client, &mut Images) + Send>;

/// A request that found no room, and who waits for its number.
type Refused = (Box<ObjectOp>, Sender<RequestId>);

/// What the core thread works with.
struct Driver {
    client: Client,
    images: Images,
    jobs: Receiver<Job>,
    done: Sender<Completion>,
    image_done: Sender<ImageDone>,
    refused: Receiver<Refused>,
    backlog: VecDeque<Refused>,
    wake_addr: SocketAddr,
    wake: Option<ConnId>,
}

impl Driver {
    fn try_again(&mut self, now: Now) {
        self.backlog.extend(self.refused.try_iter());
        while let Some((op, who)) = self.backlog.pop_front() {
            match self.client.submit(now, *op) {
                Ok(id) => drop(who.send(id)),
                Err(busy) => {
                    self.backlog.push_front((busy.0, who));
                    return;
                }
            }
        }
    }
}

impl Core for Driver {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => {
                self.wake = Some(fx.connect(self.wake_addr));
                self.client.start(now);
            }
            Event::Net(NetEvent::Closed { conn, .. }) if Some(conn) == self.wake => {
                fx.exit(0, "its user is done");
            }
            Event::Net(event) => drop(self.client.handle(now, event, fx)),
            Event::Timer => {
                self.client.tick(now, fx);
                self.images.tick(now, &mut self.client);
            }
            Event::Stop => fx.exit(0, "stopped"),
            Event::Disk(_) | Event::Kv(_) | Event::Memory(_) => {}
        }
    }

    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        for job in self.jobs.try_iter() {
            job(now, &mut self.client, &mut self.images);
        }
        self.try_again(now);
        // When nobody listens any more, the thread is about to end.
        while let Some(completion) = self.client.poll() {
            if let Some(completion) = self.images.take(now, &mut self.client, completion) {
                let _ = self.done.send(completion);
            }
        }
        while let Some(done) = self.images.poll() {
            let _ = self.image_done.send(done);
        }
        self.client.end_turn(now, fx);
    }

    fn next_deadline(&self) -> Option<Mono> {
        let both = [self.client.next_deadline(), self.images.next_deadline()];
        both.into_iter().flatten().min()
    }
}

/// A client whose calls block.
pub struct SyncClient {
    jobs: Sender<Job>,
    refused: Sender<Refused>,
    done: Receiver<Completion>,
    /// Completions that nobody has waited for yet.
    early: BTreeMap<RequestId, VecDeque<Outcome>>,
    /// Completions of requests on images.
    pub(crate) image_done: Receiver<ImageDone>,
    /// Those of them that nobody has waited for yet.
    pub(crate) image_early: BTreeMap<ImageRequest, ImageOutcome>,
    wake: TcpStream,
    thread: Option<JoinHandle<Result<(), Failure>>>,
    /// A call gives up after so long.
    pub(crate) patience: Duration,
}

impl fmt::Debug for SyncClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SyncClient")
    }
}

/// Runs `f` with a client of the cluster that `conf` names, and ends the client afterwards.
///
/// # Errors
/// When there is no client to be had: no io_uring, above all. Whether the cluster answers, the
/// first call tells.
pub fn with_client<R>(
    conf: &ClientConf,
    patience: Duration,
    f: impl FnOnce(&mut SyncClient) -> R,
) -> Result<R, Failure> {
    let mut client = SyncClient::connect(conf, patience)?;
    let result = f(&mut client);
    client.close()?;
    Ok(result)
}

/// A seed from the kernel.
///
/// # Panics
/// When there is none to be had, which no kernel that has io_uring knows.
pub(crate) fn entropy() -> u64 {
    let mut bytes = [0; 8];
    let mut got = 0;
    while let Some(rest @ [_, ..]) = bytes.get_mut(got..) {
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => got += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => panic!("the kernel gives no random numbers: {e}"),
        }
    }
    u64::from_le_bytes(bytes)
}

impl SyncClient {
    /// Starts a client. It looks for its cluster by itself.
    ///
    /// # Errors
    /// See [`with_client`].
    pub fn connect(conf: &ClientConf, patience: Duration) -> Result<Self, Failure> {
        let fail = |e: std::io::Error| Failure::new("cannot start a client", e);
        let listener = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
        let wake_addr = listener.local_addr().map_err(fail)?;
        let (jobs, jobs_in) = channel();
        let (refused, refused_in) = channel();
        let (done_out, done) = channel();
        let (image_out, image_done) = channel();
        let config = ClientConfig {
            hostname: std::fs::read_to_string("/proc/sys/kernel/hostname")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            op_timeout: Some(patience),
            mon_timeout: Some(patience),
            ..ClientConfig::new(conf.mons.clone())
        };
        let run = move || {
            let mut core = Driver {
                client: Client::new(config, entropy()),
                images: Images::new(entropy()),
                jobs: jobs_in,
                done: done_out,
                image_done: image_out,
                refused: refused_in,
                backlog: VecDeque::new(),
                wake_addr,
                wake: None,
            };
            let options = uring::Options { handle_signals: false, ..uring::Options::default() };
            let run = uring::run(&mut core, Vec::new(), None, &options);
            // Whatever happened: nobody may wait for the connection for ever.
            let _ = TcpStream::connect(wake_addr);
            match run {
                Ok(_) => Ok(()),
                Err(e) => Err(Failure::new("cannot run a client", e).exit(crate::Exit::Machine)),
            }
        };
        let thread = std::thread::Builder::new().name("client".into()).spawn(run).map_err(fail)?;
        let (wake, _) = listener.accept().map_err(fail)?;
        wake.set_nodelay(true).map_err(fail)?;
        let mut client = SyncClient {
            jobs,
            refused,
            done,
            early: BTreeMap::new(),
            image_done,
            image_early: BTreeMap::new(),
            wake,
            thread: Some(thread),
            patience,
        };
        // If the thread has ended already, this says why.
        client.call(|_, _| ())?;
        Ok(client)
    }

    /// Ends the client.
    ///
    /// # Errors
    /// When its thread failed.
    pub fn close(mut self) -> Result<(), Failure> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Failure> {
        let _ = self.wake.shutdown(std::net::Shutdown::Both);
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Failure::new("the client's thread", "it panicked")),
        }
    }

    fn wake(&mut self) {
        // A thread that has ended is noticed by whoever waits for its answer.
        let _ = self.wake.write_all(&[1]);
    }

    pub(crate) fn gone(&mut self) -> Failure {
        match self.end() {
            Err(failure) => failure,
            Ok(()) => Failure::new("the client's thread", "it has ended"),
        }
    }

    /// Does something with the client on its thread.
    ///
    /// # Errors
    /// When the thread has ended.
    pub fn call<R: Send + 'static>(
        &mut self,
        f: impl FnOnce(Now, &mut Client) -> R + Send + 'static,
    ) -> Result<R, Failure> {
        self.call_images(move |now, client, _| f(now, client))
    }

    /// Does something with the client and its images on their thread.
    ///
    /// # Errors
    /// When the thread has ended.
    pub fn call_images<R: Send + 'static>(
        &mut self,
        f: impl FnOnce(Now, &mut Client, &mut Images) -> R + Send + 'static,
    ) -> Result<R, Failure> {
        let (answer, answered) = channel();
        let job: Job = Box::new(move |now, c, images| drop(answer.send(f(now, c, images))));
        if self.jobs.send(job).is_err() {
            return Err(self.gone());
        }
        self.wake();
        answered.recv().map_err(|_| self.gone())
    }

    /// Submits a request on an object; waits while too much is in flight.
    ///
    /// # Errors
    /// When the thread has ended.
    pub fn submit(&mut self, op: ObjectOp) -> Result<RequestId, Failure> {
        let submitted = self.call(move |now, client| client.submit(now, op))?;
        let busy = match submitted {
            Ok(id) => return Ok(id),
            Err(busy) => busy,
        };
        let (answer, answered) = channel();
        if self.refused.send((busy.0, answer)).is_err() {
            return Err(self.gone());
        }
        self.wake();
        answered.recv().map_err(|_| self.gone())
    }

    /// The next completion of any request, within `limit`.
    ///
    /// # Errors
    /// When the thread has ended.
    pub fn next(&mut self, limit: Duration) -> Result<Option<Completion>, Failure> {
        if let Some((id, outcome)) = self.take_early() {
            return Ok(Some(Completion { id, outcome }));
        }
        match self.done.recv_timeout(limit) {
            Ok(completion) => Ok(Some(completion)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
        }
    }

    fn take_early(&mut self) -> Option<(RequestId, Outcome)> {
        let mut first = self.early.first_entry()?;
        let (id, outcome) = (*first.key(), first.get_mut().pop_front()?);
        if first.get().is_empty() {
            first.remove();
        }
        Some((id, outcome))
    }

    /// Waits for the next completion of one request.
    ///
    /// # Errors
    /// When the thread has ended, or the completion does not come in twice the client's patience.
    pub fn wait(&mut self, id: RequestId) -> Result<Outcome, Failure> {
        if let Some(queue) = self.early.get_mut(&id) {
            let outcome = queue.pop_front();
            if queue.is_empty() {
                self.early.remove(&id);
            }
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
        let deadline = crate::wait::Deadline::after(self.patience.saturating_mul(2));
        loop {
            match self.done.recv_timeout(deadline.left()) {
                Ok(c) if c.id == id => return Ok(c.outcome),
                Ok(c) => self.early.entry(c.id).or_default().push_back(c.outcome),
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
                Err(RecvTimeoutError::Timeout) => {
                    let waits = self.call(|_, client| client.waiting())?;
                    let on = waits.into_iter().find(|(w, _)| *w == id);
                    let why = on.map_or("the time is over".to_owned(), |(_, w)| {
                        format!("the time is over; it waits {w}")
                    });
                    return Err(Failure::new("a request to the cluster", why));
                }
            }
        }
    }

    /// A request on an object, from submission to answer.
    ///
    /// # Errors
    /// When it failed.
    pub fn op(&mut self, op: ObjectOp) -> Result<OpReply, ClientError> {
        let id = self.submit(op).map_err(lost)?;
        match self.wait(id).map_err(lost)? {
            Outcome::Op(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// The number of a pool.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn pool(&mut self, name: &str) -> Result<PoolId, ClientError> {
        let name = name.to_owned();
        let id = self.call(move |now, c| c.lookup_pool(now, &name)).map_err(lost)?;
        match self.wait(id).map_err(lost)? {
            Outcome::Pool(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// Replaces an object.
    ///
    /// # Errors
    /// When it failed.
    pub fn put(&mut self, object: Object, data: impl Into<Bytes>) -> Result<(), ClientError> {
        self.op(ObjectOp::new(object).write_full(data)).map(|_| ())
    }

    /// Reads a whole object.
    ///
    /// # Errors
    /// When it failed.
    pub fn get(&mut self, object: Object) -> Result<Bytes, ClientError> {
        self.op(ObjectOp::new(object).read(0, 0))?.bytes(0)
    }

    /// All objects of a pool, of one namespace or (`None`) of all.
    ///
    /// # Errors
    /// When it failed.
    pub fn list(
        &mut self,
        pool: PoolId,
        nspace: Option<&[u8]>,
    ) -> Result<Vec<ListedObject>, ClientError> {
        const PAGE: u64 = 1024;
        let mut all = Vec::new();
        let mut cursor = ListCursor::new(pool, nspace);
        while !cursor.is_end() {
            let id = self.call(move |now, c| c.list(now, cursor, PAGE)).map_err(lost)?;
            match self.wait(id).map_err(lost)? {
                Outcome::Page(page) => {
                    let page = page?;
                    all.extend(page.objects);
                    cursor = page.next;
                }
                other => return Err(unexpected(&other)),
            }
        }
        Ok(all)
    }

    /// Runs a command on the mon.
    ///
    /// # Errors
    /// When no answer came; an answer that says no is an answer.
    pub fn command(&mut self, json: &serde_json::Value) -> Result<CommandReply, ClientError> {
        self.command_with(json, Bytes::new())
    }

    /// The same with input, as `ceph ... -i FILE` gives it.
    ///
    /// # Errors
    /// See [`SyncClient::command`].
    pub fn command_with(
        &mut self,
        json: &serde_json::Value,
        input: impl Into<Bytes>,
    ) -> Result<CommandReply, ClientError> {
        let (json, input) = (json.to_string(), input.into());
        let id = self.call(move |now, c| c.command(now, json, input)).map_err(lost)?;
        match self.wait(id).map_err(lost)? {
            Outcome::Command(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// Runs a command on the mon that must succeed. Gives its output, if that is JSON.
    ///
    /// # Errors
    /// When no answer came, or one that says no.
    pub fn must(&mut self, command: &serde_json::Value) -> Result<serde_json::Value, Failure> {
        let mut command = command.clone();
        command["format"] = "json".into();
        let what =
            || format!("the mon did not carry out `{}`", command["prefix"].as_str().unwrap_or(""));
        let reply = self.command(&command).context(what)?;
        if reply.status < 0 {
            let errno = Errno(reply.status.saturating_neg());
            return Err(Failure::new(what(), format!("{errno}: {}", reply.outs)));
        }
        Ok(serde_json::from_slice(&reply.data).unwrap_or_default())
    }
}

impl Drop for SyncClient {
    fn drop(&mut self) {
        if let Err(failure) = self.end() {
            tracing::warn!("{failure}");
        }
    }
}

pub(crate) fn client_error(
    errno: Errno,
    what: impl Into<String>,
    why: impl fmt::Display,
) -> ClientError {
    ClientError { errno, what: what.into(), why: why.to_string().into(), reply: None }
}

pub(crate) fn lost(failure: Failure) -> ClientError {
    client_error(Errno::EIO, failure.what, failure.why)
}

fn unexpected(outcome: &Outcome) -> ClientError {
    client_error(Errno::EIO, "a request", format!("it ended as something else: {outcome:?}"))
}

//! Images without a cluster, for tests: what they ask for is listed, and answered as a test likes.

use super::format::{
    COOKIE_PREFIX, LOCK_EXCLUSIVE, LOCK_TAG, LockInfo, Locker, LockerId, ParentSpec, SnapInfo,
    SnapKind,
};
use super::header::{At, open};
use super::io::{Io, Kind, Owner};
use super::notice::{Notice, response};
use super::object_map::State;
use super::script::{Ask, Desk, Task, Ticket};
use super::state::{Header, Route, Shared, Work};
use super::{ImageOutcome, ImageRequest, ImagesConfig, OpenImage, feature};
use crate::error::ClientError;
use crate::op::ObjectOp;
use crate::outcome::{Completion, NotifyResult, Outcome, RequestId};
use crate::reply::OpReply;
use bytes::Bytes;
use denc::Encoder;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;
use types::{EntityAddr, EntityName, EntityType, Errno, PoolId, SnapId, UTime};
use wire::msg::op_data::{CallIn, ListWatchersOut, WatchItem};
use wire::msg::{OpCode, ReplyOp, SnapContext, flags};

/// Bits of an object's number in the image.
pub const ORDER: u8 = 12;

/// A request that waits for its answer.
#[derive(Debug)]
pub struct Asked {
    /// `object: operation+class.method`, or another request's name.
    pub text: String,
    id: RequestId,
    kind: AskedKind,
}

#[derive(Debug)]
enum AskedKind {
    Op(Box<ObjectOp>),
    Notify,
    Watch,
    Other,
}

/// What a script ends with.
pub type End<T> = Rc<RefCell<Option<T>>>;

pub struct Stage {
    shared: Rc<RefCell<Shared>>,
    tasks: Vec<Task>,
    pub asked: VecDeque<Asked>,
    last: u64,
    /// What the image's header says.
    pub header: Header,
    /// What is in the object map.
    pub map: Vec<State>,
    /// What single parts of requests are answered, instead of the usual.
    pub answers: Vec<(&'static str, Bytes)>,
    /// What peers were told.
    pub told: Vec<Bytes>,
}

fn part(op: &wire::msg::OsdOp) -> String {
    match op.code {
        OpCode::CALL => {
            let call = CallIn::of(op).unwrap();
            format!("{}.{}", call.class, call.method)
        }
        code => code.to_string(),
    }
}

fn parts(op: &ObjectOp) -> Vec<String> {
    op.ops.iter().map(part).collect()
}

pub fn error(errno: Errno) -> ClientError {
    ClientError::new(errno, "a test's request", "")
}

impl Asked {
    /// Whether these bytes are in the input of what is called.
    pub fn says(&self, bytes: &str) -> bool {
        let AskedKind::Op(op) = &self.kind else { return false };
        let has = |data: &Bytes| data.windows(bytes.len()).any(|w| w == bytes.as_bytes());
        op.ops.iter().any(|op| has(&op.indata))
    }

    /// Whether it is held back where the pool is full.
    pub fn heeds_full(&self) -> bool {
        let AskedKind::Op(op) = &self.kind else { return false };
        op.is_write() && op.wire_flags() & flags::FULL_TRY == 0
    }
}

impl Stage {
    /// An image of four objects with the default features will be found.
    pub fn new() -> Self {
        let config = ImagesConfig { max_ops: 100, max_bytes: 1 << 20, patience: None };
        let make =
            |me: &std::rc::Weak<RefCell<Shared>>| RefCell::new(Shared::new(me.clone(), 1, config));
        let shared = Rc::new_cyclic(make);
        shared.borrow_mut().gid = 4100;
        let (size, features) = (4 << ORDER, feature::DEFAULT);
        Stage {
            shared,
            tasks: Vec::new(),
            asked: VecDeque::new(),
            last: 0,
            header: Header { size, features, ..Header::default() },
            map: vec![State::Nonexistent; 4],
            answers: Vec::new(),
            told: Vec::new(),
        }
    }

    pub fn with<R>(&self, f: impl FnOnce(&mut Shared) -> R) -> R {
        f(&mut self.shared.borrow_mut())
    }

    /// Begins a script.
    pub fn script<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        make: impl FnOnce(Desk) -> F,
    ) -> End<T> {
        self.script_of(None, make)
    }

    /// Begins a script that a request waits for, and that can be canceled.
    pub fn request<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        make: impl FnOnce(Desk) -> F,
    ) -> (ImageRequest, End<T>) {
        let id = self.with(|s| {
            let id = s.new_request();
            s.works.insert(id, Work::default());
            id
        });
        (id, self.script_of(Some(id), make))
    }

    pub fn cancel(&mut self, id: ImageRequest) {
        self.with(|s| s.cancel(id));
        self.run();
    }

    fn script_of<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        request: Option<ImageRequest>,
        make: impl FnOnce(Desk) -> F,
    ) -> End<T> {
        let end: End<T> = Rc::default();
        let script = make(Desk::new(self.shared.clone(), request));
        let own = end.clone();
        self.with(|s| s.spawn(async move { *own.borrow_mut() = Some(script.await) }));
        self.run();
        end
    }

    /// Lets everything go on as far as it does without answers.
    pub fn run(&mut self) {
        loop {
            self.list();
            if !self.with(|s| std::mem::take(&mut s.touched)) {
                return;
            }
            let new = self.with(|s| std::mem::take(&mut s.new_tasks));
            self.tasks.extend(new);
            let mut cx = Context::from_waker(Waker::noop());
            self.tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        self.with(|s| {
            s.now.mono = s.now.mono.after(time);
            s.begin_turn();
            s.touched = true;
        });
        self.run();
    }

    fn new_id(&mut self) -> RequestId {
        self.last += 1;
        RequestId(self.last)
    }

    fn list(&mut self) {
        while let Some((route, op)) = self.with(|s| s.outgoing.pop_front()) {
            self.list_op(route, op);
        }
        while let Some((ticket, ask)) = self.with(|s| s.asks.pop_front()) {
            self.list_ask(ticket, ask);
        }
    }

    fn list_op(&mut self, route: Route, op: ObjectOp) {
        let id = self.new_id();
        self.with(|s| s.routes.insert(id, route));
        let text = format!("{}: {}", op.object.name, parts(&op).join("+"));
        self.asked.push_back(Asked { text, id, kind: AskedKind::Op(Box::new(op)) });
    }

    fn list_ask(&mut self, ticket: Ticket, ask: Ask) {
        let (text, kind) = match ask {
            Ask::Op(op) => return self.list_op(Route::Script(ticket), *op),
            Ask::Notify { payload, .. } => {
                self.told.push(payload);
                ("notify".to_owned(), AskedKind::Notify)
            }
            Ask::Watch(slot) => {
                let id = self.new_id();
                self.with(|s| s.watch_begins(slot, id, ticket));
                let asked = Asked { text: "watch".to_owned(), id, kind: AskedKind::Watch };
                return self.asked.push_back(asked);
            }
            Ask::Unwatch(slot) => {
                self.with(|s| s.watch_ends(slot));
                (
                    "unwatch".to_owned(),
                    AskedKind::Op(Box::new(ObjectOp::new(self.with(|s| s.image(slot).header())))),
                )
            }
            other => (format!("{other:?}"), AskedKind::Other),
        };
        let id = self.new_id();
        self.with(|s| s.routes.insert(id, Route::Script(ticket)));
        self.asked.push_back(Asked { text, id, kind });
    }

    /// The usual output of one operation.
    fn output(&self, part: &str) -> Bytes {
        if let Some((_, bytes)) = self.answers.iter().find(|(of, _)| *of == part) {
            return bytes.clone();
        }
        let h = &self.header;
        match part {
            "rbd.get_id" => denc::encode("1"),
            "rbd.get_size" => denc::encode(&(ORDER, h.size)),
            "rbd.get_object_prefix" => denc::encode("data"),
            "rbd.get_features" => denc::encode(&(h.features, 0u64)),
            "rbd.get_data_pool" => denc::encode(&-1i64),
            "rbd.get_flags" => denc::encode(&h.flags),
            "rbd.get_snapcontext" => denc::encode(&h.snapc),
            "rbd.parent_get" => denc::encode(&super::format::ParentSpec {
                pool: PoolId(-1),
                nspace: Default::default(),
                image_id: String::new(),
                snap: types::SnapId::HEAD,
            }),
            "rbd.parent_overlap_get" => denc::encode(&None::<u64>),
            "lock.get_info" => denc::encode(&super::format::LockInfo::default()),
            "rbd.object_map_load" => self.loaded_map(),
            "LIST_WATCHERS" => denc::encode(&ListWatchersOut::default()),
            _ => Bytes::new(),
        }
    }

    fn loaded_map(&self) -> Bytes {
        let mut header = Encoder::new();
        header.section(1, 1, |e| {
            e.put(&(self.map.len() as u64));
        });
        let mut e = Encoder::new();
        e.put(&header.into_bytes());
        for four in self.map.chunks(4) {
            e.put(&four.iter().enumerate().fold(0u8, |b, (i, s)| b | (*s as u8) << (6 - 2 * i)));
        }
        e.into_bytes()
    }

    /// Answers a request as a cluster does where all is well.
    pub fn ok(&mut self, asked: Asked) {
        let outcome = match &asked.kind {
            AskedKind::Op(op) => {
                let reply = |part: &String| ReplyOp {
                    outdata: [self.output(part)].into_iter().collect(),
                    ..ReplyOp::default()
                };
                let ops = parts(op).iter().map(reply).collect();
                Outcome::Op(Ok(OpReply { ops, ..OpReply::default() }))
            }
            AskedKind::Notify => {
                Outcome::NotifyDone(Ok(NotifyResult { replies: Vec::new(), missed: Vec::new() }))
            }
            AskedKind::Watch => Outcome::Watching(Ok(())),
            AskedKind::Other => panic!("no answer is known to {asked:?}"),
        };
        self.complete(asked.id, outcome);
    }

    /// A watcher answers a notify with this result.
    pub fn answer_notify(&mut self, asked: Asked, result: i32) {
        let replies = vec![((4200, 1), response(result))];
        self.complete(
            asked.id,
            Outcome::NotifyDone(Ok(NotifyResult { replies, missed: Vec::new() })),
        );
    }

    /// A watcher does not answer a notify in time.
    pub fn miss_notify(&mut self, asked: Asked) {
        let missed = vec![(4200, 1)];
        let result = NotifyResult { replies: Vec::new(), missed };
        self.complete(asked.id, Outcome::NotifyDone(Ok(result)));
    }

    /// The image found has this snapshot, number 1, of all of it.
    pub fn has_snap(&mut self, kind: SnapKind, name: &str, child_count: u32) {
        let (id, size, timestamp) = (SnapId(1), self.header.size, UTime::ZERO);
        let info = SnapInfo { id, kind, name: name.to_owned(), size, timestamp, child_count };
        self.answers.push(("rbd.snapshot_get", denc::encode(&info)));
        self.header.snapc = SnapContext { seq: id, snaps: [id].into_iter().collect() };
    }

    /// An open image shows all of a parent, which is open as well.
    pub fn be_clone(&mut self, slot: usize) {
        let parent = self.open();
        let (pool, nspace) = (PoolId(1), Default::default());
        let spec = ParentSpec { pool, nspace, image_id: "2".to_owned(), snap: SnapId(1) };
        self.answers.push(("rbd.parent_get", denc::encode(&spec)));
        self.answers.push(("rbd.parent_overlap_get", denc::encode(&Some(self.header.size))));
        self.with(|s| {
            let image = s.image_mut(slot);
            image.head.overlap = image.head.size;
            (image.parent, image.head.parent) = (Some(parent), Some(spec));
        });
    }

    /// Another client, which lives, has the lock.
    pub fn lock_by_another(&mut self) {
        let name = EntityName { kind: EntityType::CLIENT, num: 4200 };
        let addr = EntityAddr::default();
        let id = LockerId { name, cookie: format!("{COOKIE_PREFIX}1") };
        let (expiration, description) = (UTime::ZERO, String::new());
        let locker = Locker { expiration, addr, description };
        let info = LockInfo {
            lockers: [(id, locker)].into_iter().collect(),
            kind: LOCK_EXCLUSIVE,
            tag: LOCK_TAG.to_owned(),
        };
        let watch = WatchItem { watcher: name, cookie: 1, timeout_s: 30, addr };
        let watchers = ListWatchersOut { watchers: vec![watch] };
        self.answers.push(("lock.get_info", denc::encode(&info)));
        self.answers.push(("LIST_WATCHERS", denc::encode(&watchers)));
    }

    /// That one gives it back.
    pub fn unlock_by_another(&mut self) {
        self.answers.retain(|(part, _)| !["lock.get_info", "LIST_WATCHERS"].contains(part));
    }

    /// An OSD refuses it.
    pub fn fail(&mut self, asked: Asked, errno: Errno) {
        let reply = matches!(asked.kind, AskedKind::Op(_)).then(Box::default);
        self.fail_with(asked, ClientError { reply, ..error(errno) });
    }

    /// It fails, and no OSD has said anything.
    pub fn give_up(&mut self, asked: Asked, errno: Errno) {
        self.fail_with(asked, error(errno));
    }

    fn fail_with(&mut self, asked: Asked, error: ClientError) {
        let outcome = match asked.kind {
            AskedKind::Watch => Outcome::Watching(Err(error)),
            AskedKind::Notify => Outcome::NotifyDone(Err(error)),
            AskedKind::Op(_) | AskedKind::Other => Outcome::Op(Err(error)),
        };
        self.complete(asked.id, outcome);
    }

    /// Answers it so.
    pub fn answer(&mut self, asked: Asked, outcome: Outcome) {
        self.complete(asked.id, outcome);
    }

    pub fn complete(&mut self, id: RequestId, outcome: Outcome) {
        let not_ours = self.with(|s| s.on_completion(Completion { id, outcome }));
        assert!(not_ours.is_none());
        self.run();
    }

    pub fn is_asked(&self, what: &str) -> bool {
        self.asked.iter().any(|a| a.text.contains(what))
    }

    /// The first request that waits and is called so; the others wait on.
    #[track_caller]
    pub fn take(&mut self, what: &str) -> Asked {
        let at = self.asked.iter().position(|a| a.text.contains(what));
        let Some(at) = at else { panic!("no {what} in {:#?}", self.asked) };
        self.asked.remove(at).unwrap()
    }

    /// Answers everything well that comes before a request that is called so.
    #[track_caller]
    pub fn until(&mut self, what: &str) -> Asked {
        while let Some(asked) = self.asked.pop_front() {
            if asked.text.contains(what) {
                return asked;
            }
            self.ok(asked);
        }
        panic!("{what} is not asked for");
    }

    /// Answers everything well.
    pub fn serve(&mut self) {
        while let Some(asked) = self.asked.pop_front() {
            self.ok(asked);
        }
    }

    /// Answers everything well but requests that are called so.
    pub fn serve_but(&mut self, what: &str) {
        while let Some(at) = self.asked.iter().position(|a| !a.text.contains(what)) {
            let asked = self.asked.remove(at).expect("it is there");
            self.ok(asked);
        }
    }

    /// Answers as to who removes an image that has no journal, and that no group and no mirror knows.
    pub fn ok_unless_connected(&mut self, asked: Asked) {
        let others = ["image_group_get", "mirror_image_get", "journal.get"];
        match others.iter().any(|other| asked.text.contains(other)) {
            true => self.fail(asked, Errno::ENOENT),
            false => self.ok(asked),
        }
    }

    /// Opens the image; its slot.
    pub fn open(&mut self) -> usize {
        let spec = OpenImage::new(PoolId(1), "x");
        let opened = self.script(|desk| async move { open(&desk, spec, At::Head, 0).await });
        self.serve();
        opened.take().unwrap().unwrap()
    }

    /// Opens the image, and takes its lock.
    pub fn locked(&mut self) -> usize {
        let slot = self.open();
        let lock = self.script(|desk| async move { super::maintain::lock(&desk, slot).await });
        self.serve();
        lock.take().unwrap().unwrap();
        slot
    }

    /// The same of a clone that shows all of its parent, and has nothing of its own.
    pub fn locked_clone(objects: u64) -> (Self, usize) {
        let mut stage = Stage::new();
        stage.header.size = objects << ORDER;
        stage.map = vec![State::Nonexistent; objects as usize];
        let slot = stage.locked();
        stage.be_clone(slot);
        (stage, slot)
    }

    /// No image is a clone any more.
    pub fn be_no_clone(&mut self) {
        self.answers.retain(|(part, _)| !part.contains("parent"));
    }

    /// A peer says something to those that watch an image.
    pub fn hear(&mut self, slot: usize, notice: Notice) {
        self.with(|s| {
            let watch = s.image(slot).watch.expect("it is watched");
            let (notify_id, notifier) = (1, 4200);
            let payload = notice.encode();
            s.on_watch(slot, watch, Outcome::Notified { notify_id, notifier, payload });
        });
        self.run();
    }

    pub fn submit(&mut self, slot: usize, kind: Kind, object: u64, len: u64) -> ImageRequest {
        let id = self.with(|s| {
            let id = s.new_request();
            let image = s.image_mut(slot);
            image.user_ops += 1;
            image.user_bytes += super::io::cost(kind, len);
            let generation = if kind == Kind::Read { 0 } else { image.flushes.write() };
            let data = Bytes::from(vec![7; if kind == Kind::Write { len as usize } else { 0 }]);
            let mut io = Io::new(slot, kind, Owner::User(id), object << ORDER, len, data);
            io.generation = generation;
            s.enter(io);
            id
        });
        self.run();
        id
    }

    /// How a request on the image ended, if it did.
    pub fn end(&mut self, id: ImageRequest) -> Option<Result<(), Errno>> {
        self.with(|s| {
            let at = s.out.iter().position(|done| done.id == id)?;
            Some(match s.out.remove(at)?.outcome {
                ImageOutcome::Done(result) => result.map_err(|e| e.errno),
                ImageOutcome::Read(result) => result.map(drop).map_err(|e| e.errno),
                other => panic!("{other:?}"),
            })
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let new = self.with(|s| std::mem::take(&mut s.new_tasks));
        drop(new);
    }
}

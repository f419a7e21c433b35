//! One client's requests, and what each must answer, to the byte.
//!
//! Every request is sent until it is answered, so the model knows the answer beforehand: a lost
//! write, one applied twice, and a stale read all show.

use crate::client::object;
use crate::cluster::{Cluster, output};
use crate::model::{Model, Request, State};
use io::Rng;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{OsdId, PoolId, SnapId};
use wire::msg::{MOsdOpReply, SnapContext, flags};

pub const POOL: i64 = 1;
/// Requests under way at most.
const WINDOW: usize = 64;

#[derive(Debug)]
pub enum Expected {
    Result(i32),
    State(Option<State>),
}

/// A request that is under way.
#[derive(Debug)]
struct Asked {
    name: String,
    request: Request,
    snap: Option<SnapId>,
    expected: Expected,
}

impl Asked {
    fn reads_head(&self) -> bool {
        self.snap.is_none() && matches!(self.request, Request::Read)
    }

    #[track_caller]
    fn check(&self, reply: &MOsdOpReply) {
        let Asked { name, request, snap, expected } = self;
        let state = match expected {
            Expected::Result(result) => {
                assert_eq!(reply.result, *result, "{name}: {request:?}");
                return;
            }
            Expected::State(None) => {
                assert_eq!(reply.result, -types::Errno::ENOENT.0, "{name} at {snap:?}");
                return;
            }
            Expected::State(Some(state)) => state,
        };
        assert_eq!(reply.result, 0, "{name} at {snap:?} exists");
        let got = State::from_outputs(&output(reply, 0), &output(reply, 1), &output(reply, 2));
        if got != *state {
            let at = got.data.iter().zip(&state.data).position(|(a, b)| a != b);
            panic!(
                "{name} at {snap:?}: {} bytes instead of {}, different at {at:?}; omap equal: {}, \
                 xattrs equal: {}",
                got.data.len(),
                state.data.len(),
                got.omap == state.omap,
                got.xattrs == state.xattrs
            );
        }
    }
}

/// A cluster, its client, and what it must find.
pub struct Load {
    pub c: Cluster,
    pub rng: Rng,
    pub model: Model,
    pub snapc: SnapContext,
    objects: u64,
    /// Requests by their tid.
    asked: BTreeMap<u64, Asked>,
    /// Says what it does.
    loud: bool,
}

impl Load {
    /// Of so many objects.
    pub fn new(c: Cluster, rng: Rng, objects: u64) -> Self {
        let (model, snapc, asked) = Default::default();
        let loud = std::env::var_os("OSD_SAY").is_some();
        Load { c, rng, model, snapc, objects, asked, loud }
    }

    pub fn say(&self, what: std::fmt::Arguments<'_>) {
        if self.loud {
            let text: String = what.to_string().chars().take(300).collect();
            eprintln!("{:?} {text}", self.c.world.now());
        }
    }

    /// The name of one of the objects.
    pub fn name(&mut self) -> String {
        format!("object{}", self.rng.u64(0..self.objects))
    }

    /// Sends a request about an object, unless too many are under way: of 256 so many read.
    pub fn issue(&mut self, name: String, reads: u8) {
        // A read whose answer gets lost is done again, and then may see a write that was sent after
        // it: what it must answer is known only if there is none.
        let is_read = |a: &Asked| a.name == name && a.reads_head();
        if self.rng.u8(..) < reads || self.asked.values().any(is_read) {
            let snaps = &self.snapc.snaps;
            let old = !snaps.is_empty() && self.rng.bool();
            let snap = old.then(|| snaps[self.rng.usize(0..snaps.len())]);
            self.read(name, snap);
            return;
        }
        let request = Request::random(&mut self.rng, &self.model, &name, &self.snapc);
        let expected = Expected::Result(self.model.apply(&name, &request));
        let (target, ops, snapc) = (object(POOL, &name), request.ops(), self.snapc.clone());
        let tid = self.c.on_client(|c| c.request_with(target, ops, flags::WRITE, snapc));
        self.sent(tid, Asked { name, request, snap: None, expected });
    }

    fn read(&mut self, name: String, snap: Option<SnapId>) {
        let mut target = object(POOL, &name);
        target.snap = snap.unwrap_or(SnapId::HEAD);
        let expected = Expected::State(self.model.state(&name, snap));
        let tid = self.c.on_client(|c| c.request(target, Request::Read.ops(), false));
        self.sent(tid, Asked { name, request: Request::Read, snap, expected });
    }

    fn sent(&mut self, tid: u64, asked: Asked) {
        self.say(format_args!("{tid} {asked:?}"));
        self.asked.insert(tid, asked);
    }

    /// Whether another request may be sent.
    pub fn has_room(&self) -> bool {
        self.asked.len() < WINDOW
    }

    pub fn take_snap(&mut self) {
        let snap = SnapId(self.snapc.seq.0 + 1);
        self.model.snapshot(snap);
        self.snapc.seq = snap;
        self.snapc.snaps.insert(0, snap);
    }

    /// A snapshot is not wanted any more. Not while a write is on its way that knows of it: a client
    /// that writes with a snapshot it has removed gets what it asks for.
    pub fn remove_snap(&mut self) {
        if self.snapc.snaps.is_empty() || !self.asked.values().all(Asked::reads_head) {
            return;
        }
        let at = self.rng.usize(0..self.snapc.snaps.len());
        let snap = self.snapc.snaps.remove(at);
        self.model.forget(snap);
        self.c.on_mon(|m| m.remove_snap(POOL, snap));
        self.say(format_args!("snapshot {snap} is removed"));
    }

    #[track_caller]
    pub fn check_answers(&mut self) {
        let done = std::mem::take(&mut self.c.client.borrow_mut().done);
        for (tid, reply) in done {
            let asked = self.asked.remove(&tid).expect("it was asked for");
            self.say(format_args!("{tid}: {} at {}", reply.result, reply.replay_version));
            asked.check(&reply);
        }
    }

    /// All requests are answered.
    #[track_caller]
    pub fn settle(&mut self) {
        let left = |c: &mut Cluster| c.client.borrow().outstanding() == 0;
        self.c.run_until(Duration::from_secs(300), left);
        self.check_answers();
        assert!(self.asked.is_empty());
    }

    /// All OSDs are in and run.
    #[track_caller]
    pub fn start_all(&mut self) {
        let n = self.c.osds.len();
        self.c.on_mon(|m| (0..n).for_each(|i| m.set_weight(OsdId(i as i32), 0x10000)));
        self.c.run_until(Duration::from_secs(20), |c| {
            (0..n).for_each(|i| c.start(i));
            (0..n).all(|i| c.world.is_up(c.osds[i]))
        });
    }

    /// Every object is what it should be, at every snapshot.
    #[track_caller]
    pub fn read_everything(&mut self) {
        for i in 0..self.objects {
            let name = format!("object{i}");
            let snaps = self.snapc.snaps.iter().map(|s| Some(*s)).chain([None]);
            for snap in snaps.collect::<Vec<_>>() {
                let mut target = object(POOL, &name);
                target.snap = snap.unwrap_or(SnapId::HEAD);
                let expected = Expected::State(self.model.state(&name, snap));
                let reply = self.c.call(target, Request::Read.ops(), false);
                Asked { name: name.clone(), request: Request::Read, snap, expected }.check(&reply);
            }
        }
    }

    /// Of removed snapshots nothing is left to trim.
    #[track_caller]
    pub fn wait_trimmed(&mut self) {
        self.c.wait_trimmed(PoolId(POOL));
    }
}

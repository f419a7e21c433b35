//! Watchers of the objects of one PG, and notifies under way (guide §5.10).
//!
//! A pure state machine: who watches is stored with the object ([`StoredWatch`]); here is who is
//! connected, whose time is running out, and which notify waits for whom. The host sends what
//! [`WatchOut`] says, and removes a watch that timed out by a logged write.

use crate::object::StoredWatch;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{EntityAddr, EntityName, HObject, Mono};
use wire::LinkId;
use wire::msg::op_data::NotifyReplies;
use wire::msg::{MWatchNotify, OutMessage, Payload, WatchEvent};

/// Names a watch of an object: the client and its cookie.
pub type WatchKey = (EntityName, u64);

/// A watch and where its client is.
#[derive(Clone, Debug)]
struct Watch {
    addr: EntityAddr,
    timeout: Duration,
    link: Option<LinkId>,
    /// Without a sign of life by then it ends.
    deadline: Mono,
    /// It did not come: since when the watch is to be removed.
    ended: Option<Mono>,
    /// Its client is on the blocklist: it ends at once.
    shut_out: bool,
}

impl Watch {
    /// One that was heard of now.
    fn new(now: Mono, w: &StoredWatch, link: Option<LinkId>) -> Self {
        let timeout = Duration::from_secs(u64::from(w.timeout_s));
        let deadline = now.after(timeout);
        Watch { addr: w.addr, timeout, link, deadline, ended: None, shut_out: false }
    }

    fn heard_of(&mut self, now: Mono) {
        (self.deadline, self.ended) = (now.after(self.timeout), None);
    }
}

/// A notify that waits for answers.
#[derive(Clone, Debug)]
struct Notify {
    /// Who started it, and its name for it.
    link: LinkId,
    from: EntityName,
    cookie: u64,
    version: u64,
    payload: Bytes,
    deadline: Mono,
    waiting: BTreeSet<WatchKey>,
    replies: NotifyReplies,
    /// What it takes of memory, with what its watchers are sent.
    held_bytes: usize,
}

impl Notify {
    /// What it holds.
    fn bytes(&self) -> usize {
        self.payload.len() + self.replies.replies.values().map(Bytes::len).sum::<usize>()
    }

    /// What a watcher is told.
    fn tell(&self, id: u64, watch_cookie: u64, link: LinkId) -> WatchOut {
        let mut m = message(WatchEvent::Notify, watch_cookie, id, self.version);
        m.payload = self.payload.clone();
        m.notifier_gid = self.from.num as u64;
        WatchOut::Send(link, m.encode())
    }
}

/// The watches and notifies of one object.
#[derive(Clone, Debug, Default)]
struct Object {
    watches: BTreeMap<WatchKey, Watch>,
    notifies: BTreeMap<u64, Notify>,
}

impl Object {
    /// Whether so many notifies wait, with so much, that no more begin.
    fn is_full(&self) -> bool {
        self.notifies.len() >= MAX_NOTIFIES
            || self.notifies.values().map(Notify::bytes).sum::<usize>() >= MAX_NOTIFY_BYTES
    }
}

/// What the host has to do.
#[derive(Debug, PartialEq, Eq)]
pub enum WatchOut {
    /// Send a message to a client.
    Send(LinkId, OutMessage),
    /// Remove a watch from the object: it timed out.
    Expired(Expired),
}

/// A watch that timed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Of this object.
    pub object: HObject,
    /// This one.
    pub key: WatchKey,
    /// Since when; that is over once its client has come back.
    ended: Mono,
}

/// All watches and notifies of a PG.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    objects: BTreeMap<HObject, Object>,
    held_bytes: usize,
}

/// A notify to start.
#[derive(Clone, Debug)]
pub struct NewNotify {
    /// Names it.
    pub id: u64,
    /// Who starts it.
    pub from: EntityName,
    /// On this connection.
    pub link: LinkId,
    /// Its name for it.
    pub cookie: u64,
    /// The object's user version.
    pub version: u64,
    /// How long to wait.
    pub timeout: Duration,
    /// What to tell.
    pub payload: Bytes,
}

/// A watcher's connection broke: it has at least this long to come back.
const RECONNECT_GRACE: Duration = Duration::from_secs(5);
/// A watch that timed out and could not be removed is tried again after this.
const REMOVE_AGAIN: Duration = Duration::from_millis(500);
/// Notifies of one object that wait for answers, at most.
const MAX_NOTIFIES: usize = 256;
/// What they hold, payloads and answers, beyond which no more begin, in bytes.
const MAX_NOTIFY_BYTES: usize = 4 << 20;
/// What a notify takes beside its payload, and each watcher that it waits for, about, in bytes.
const NOTIFY_BYTES: usize = 256;
/// A notify, or a watcher, was not answered in time.
const ETIMEDOUT: i32 = -110;

impl Watches {
    /// How many watches of an object are known.
    pub fn count(&self, object: &HObject) -> usize {
        self.objects.get(object).map_or(0, |o| o.watches.len())
    }

    /// Takes in the watches stored with an object that is used for the first time: nobody is
    /// connected, everybody's time runs.
    pub fn load(&mut self, now: Mono, object: &HObject, stored: &[StoredWatch]) {
        if stored.is_empty() {
            return;
        }
        let state = self.objects.entry(object.clone()).or_default();
        for w in stored {
            let known = state.watches.entry((w.watcher, w.cookie));
            known.or_insert_with(|| Watch::new(now, w, None));
        }
    }

    /// Ends the watches of clients that may do nothing any more. Their connections count for nothing.
    pub fn shut_out(&mut self, now: Mono, is_out: impl Fn(&EntityAddr) -> bool) {
        let all = self.objects.values_mut().flat_map(|o| o.watches.values_mut());
        for watch in all.filter(|w| !w.shut_out && is_out(&w.addr)) {
            (watch.shut_out, watch.deadline) = (true, now);
        }
    }

    /// The PG takes requests again: nobody could give a sign of life meanwhile.
    pub fn begin_anew(&mut self, now: Mono) {
        let all = self.objects.values_mut().flat_map(|o| o.watches.values_mut());
        all.filter(|w| !w.shut_out).for_each(|w| w.heard_of(now));
    }

    /// What is stored with an object has changed, and it is not known here how: watches that are not there
    /// any more end, and their clients are told.
    pub fn follow(&mut self, object: &HObject, stored: &[StoredWatch], out: &mut Vec<WatchOut>) {
        let Some(state) = self.objects.get(object) else { return };
        let is_stored = |k: &WatchKey| stored.iter().any(|w| (w.watcher, w.cookie) == *k);
        let gone: Vec<_> = state.watches.keys().copied().filter(|k| !is_stored(k)).collect();
        gone.into_iter().for_each(|key| self.end(object, key, out));
    }

    /// A watch ended without its client's doing: that is told.
    pub fn end(&mut self, object: &HObject, key: WatchKey, out: &mut Vec<WatchOut>) {
        let watch = self.objects.get(object).and_then(|o| o.watches.get(&key));
        out.extend(watch.and_then(|w| disconnect(w, key.1)));
        self.remove(object, key, out);
    }

    /// Forgets all objects but those.
    pub fn retain(&mut self, keep: impl Fn(&HObject) -> bool) {
        let gone = self.objects.extract_if(.., |object, _| !keep(object));
        let notifies = gone.flat_map(|(_, state)| state.notifies.into_values());
        self.held_bytes -= notifies.map(|n| n.held_bytes).sum::<usize>();
    }

    /// Bytes that all notifies take which wait for answers, with what is sent for them.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// A client watches (again), on this connection; `None`: it has left meanwhile. Notifies that wait for
    /// it are told again: what the last connection took along may not have arrived (`Watch::connect`).
    pub fn connect(
        &mut self,
        now: Mono,
        object: &HObject,
        w: &StoredWatch,
        link: Option<LinkId>,
        out: &mut Vec<WatchOut>,
    ) {
        let state = self.objects.entry(object.clone()).or_default();
        let key = (w.watcher, w.cookie);
        let before = state.watches.insert(key, Watch::new(now, w, link));
        if let Some(link) = link
            && before.is_none_or(|w| w.link != Some(link))
        {
            let waiting = state.notifies.iter().filter(|(_, n)| n.waiting.contains(&key));
            out.extend(waiting.map(|(id, n)| n.tell(*id, w.cookie, link)));
        }
    }

    /// A watcher gave a sign of life. Whether it is connected here.
    pub fn ping(&mut self, now: Mono, object: &HObject, key: WatchKey, link: LinkId) -> bool {
        let watch = self.objects.get_mut(object).and_then(|o| o.watches.get_mut(&key));
        let Some(watch) = watch.filter(|w| w.link == Some(link)) else { return false };
        watch.heard_of(now);
        watch.shut_out = false;
        true
    }

    /// A watch ended, as its client knows.
    pub fn remove(&mut self, object: &HObject, key: WatchKey, out: &mut Vec<WatchOut>) {
        let Some(state) = self.objects.get_mut(object) else { return };
        state.watches.remove(&key);
        // Nobody waits for its answers any more.
        for id in state.notifies.keys().copied().collect::<Vec<_>>() {
            if let Some(n) = state.notifies.get_mut(&id) {
                n.waiting.remove(&key);
            }
            self.held_bytes -= finish_if_done(state, id, 0, out);
        }
        self.forget_if_idle(object);
    }

    /// The object is gone: its watchers are told.
    pub fn disconnect_all(&mut self, object: &HObject, out: &mut Vec<WatchOut>) {
        let Some(state) = self.objects.remove(object) else { return };
        for ((_, cookie), watch) in &state.watches {
            out.extend(disconnect(watch, *cookie));
        }
        for (id, n) in state.notifies {
            self.held_bytes -= n.held_bytes;
            out.push(WatchOut::Send(n.link, complete(id, &n, 0)));
        }
    }

    /// Tells all connected watchers, and the notifier at once when there is none, or when too many wait already,
    /// or it would take more than `room_bytes`: then as if nobody had answered, so that it asks again.
    pub fn notify(
        &mut self,
        now: Mono,
        object: &HObject,
        new: NewNotify,
        room_bytes: usize,
        out: &mut Vec<WatchOut>,
    ) {
        let state = self.objects.entry(object.clone()).or_default();
        // Each watcher is sent the payload.
        let each = NOTIFY_BYTES + new.payload.len();
        let held_bytes = each.saturating_mul(1 + state.watches.len());
        let notify = Notify {
            link: new.link,
            from: new.from,
            cookie: new.cookie,
            version: new.version,
            payload: new.payload,
            deadline: now.after(new.timeout),
            waiting: state.watches.keys().copied().collect(),
            replies: NotifyReplies::default(),
            held_bytes,
        };
        if !notify.waiting.is_empty() && (held_bytes > room_bytes || state.is_full()) {
            let missed = notify.waiting.iter().map(|(name, cookie)| (name.num as u64, *cookie));
            let replies = NotifyReplies { missed: missed.collect(), ..NotifyReplies::default() };
            let refused = Notify { replies, ..notify };
            out.push(WatchOut::Send(refused.link, complete(new.id, &refused, ETIMEDOUT)));
            return;
        }
        for ((_, cookie), watch) in &state.watches {
            if let Some(link) = watch.link {
                out.push(notify.tell(new.id, *cookie, link));
            }
        }
        state.notifies.insert(new.id, notify);
        self.held_bytes += held_bytes;
        self.held_bytes -= finish_if_done(state, new.id, 0, out);
        self.forget_if_idle(object);
    }

    /// A watcher answers.
    pub fn ack(
        &mut self,
        object: &HObject,
        id: u64,
        key: WatchKey,
        reply: Bytes,
        out: &mut Vec<WatchOut>,
    ) {
        let Some(state) = self.objects.get_mut(object) else { return };
        if let Some(n) = state.notifies.get_mut(&id)
            && n.waiting.remove(&key)
        {
            n.held_bytes += reply.len();
            self.held_bytes += reply.len();
            n.replies.replies.insert((key.0.num as u64, key.1), reply);
        }
        self.held_bytes -= finish_if_done(state, id, 0, out);
        self.forget_if_idle(object);
    }

    /// A client's connection is gone. Its watches stay until their time is over; a notify it started
    /// goes on for the others.
    pub fn link_closed(&mut self, now: Mono, link: LinkId) {
        for state in self.objects.values_mut() {
            for watch in state.watches.values_mut().filter(|w| w.link == Some(link)) {
                watch.link = None;
                if !watch.shut_out {
                    let grace = watch.timeout.max(RECONNECT_GRACE);
                    (watch.deadline, watch.ended) = (now.after(grace), None);
                }
            }
        }
    }

    /// Who is connected: object, client, and where it is.
    pub fn connected<A>(
        &self,
        addr_of: impl Fn(LinkId) -> Option<A>,
    ) -> Vec<(&HObject, EntityName, A)> {
        let all = self.objects.iter().flat_map(|(o, object)| {
            object.watches.iter().map(move |((client, _), watch)| (o, *client, watch.link))
        });
        all.filter_map(|(o, client, link)| Some((o, client, addr_of(link?)?))).collect()
    }

    /// When [`Watches::tick`] is to be called.
    pub fn next_deadline(&self) -> Option<Mono> {
        let of = |o: &Object| {
            let watches = o.watches.values().map(|w| w.deadline);
            watches.chain(o.notifies.values().map(|n| n.deadline)).min()
        };
        self.objects.values().filter_map(of).min()
    }

    /// Ends what has run out of time.
    pub fn tick(&mut self, now: Mono, out: &mut Vec<WatchOut>) {
        let objects: Vec<_> = self.objects.keys().cloned().collect();
        for object in objects {
            let Some(state) = self.objects.get_mut(&object) else { continue };
            let late = state.notifies.iter().filter(|(_, n)| n.deadline <= now);
            for id in late.map(|(id, _)| *id).collect::<Vec<_>>() {
                if let Some(n) = state.notifies.get_mut(&id) {
                    let missed = std::mem::take(&mut n.waiting);
                    let missed = missed.iter().map(|(name, cookie)| (name.num as u64, *cookie));
                    n.replies.missed.extend(missed);
                }
                self.held_bytes -= finish_if_done(state, id, ETIMEDOUT, out);
            }
            for (key, watch) in &mut state.watches {
                if watch.deadline <= now {
                    // The removal itself comes back through `remove`. It may be in no state for one: the object
                    // is scrubbed or missed, say.
                    watch.deadline = now.after(REMOVE_AGAIN);
                    let ended = *watch.ended.get_or_insert(now);
                    let expired = Expired { object: object.clone(), key: *key, ended };
                    out.push(WatchOut::Expired(expired));
                }
            }
            self.forget_if_idle(&object);
        }
    }

    /// Whether a watch that timed out is still there, and nothing was heard of its client since.
    pub fn is_expired(&self, expired: &Expired) -> bool {
        let watch = self.objects.get(&expired.object).and_then(|o| o.watches.get(&expired.key));
        watch.is_some_and(|w| w.ended == Some(expired.ended))
    }

    fn forget_if_idle(&mut self, object: &HObject) {
        let idle = |o: &Object| o.watches.is_empty() && o.notifies.is_empty();
        if self.objects.get(object).is_some_and(idle) {
            self.objects.remove(object);
        }
    }
}

/// Ends a notify that waits for nobody any more. Gives the bytes that it has held.
fn finish_if_done(state: &mut Object, id: u64, code: i32, out: &mut Vec<WatchOut>) -> usize {
    if state.notifies.get(&id).is_none_or(|n| !n.waiting.is_empty()) {
        return 0;
    }
    let Some(n) = state.notifies.remove(&id) else { return 0 };
    let code = if n.replies.missed.is_empty() { 0 } else { code };
    out.push(WatchOut::Send(n.link, complete(id, &n, code)));
    n.held_bytes
}

/// Tells a watcher, if it is connected, that its watch is over.
fn disconnect(watch: &Watch, cookie: u64) -> Option<WatchOut> {
    let gone = |link| WatchOut::Send(link, message(WatchEvent::Disconnect, cookie, 0, 0).encode());
    watch.link.map(gone)
}

fn message(event: WatchEvent, cookie: u64, notify_id: u64, version: u64) -> MWatchNotify {
    MWatchNotify {
        event,
        cookie,
        version,
        notify_id,
        payload: Bytes::new(),
        return_code: 0,
        notifier_gid: 0,
        data: Bytes::new(),
    }
}

fn complete(id: u64, n: &Notify, code: i32) -> OutMessage {
    let mut m = message(WatchEvent::NotifyComplete, n.cookie, id, n.version);
    m.return_code = code;
    m.data = denc::encode(&n.replies);
    m.encode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{ClientId, EntityAddr};

    const A: LinkId = LinkId(1);
    const B: LinkId = LinkId(2);

    fn object() -> HObject {
        crate::object::own_object("o")
    }

    fn stored(client: u64, cookie: u64) -> StoredWatch {
        let watcher = EntityName::client(ClientId(client));
        StoredWatch { cookie, watcher, addr: EntityAddr::default(), timeout_s: 30 }
    }

    fn key(client: u64, cookie: u64) -> WatchKey {
        (EntityName::client(ClientId(client)), cookie)
    }

    fn notify(id: u64) -> NewNotify {
        NewNotify {
            id,
            from: EntityName::client(ClientId(1)),
            link: A,
            cookie: 77,
            version: 5,
            timeout: Duration::from_secs(10),
            payload: Bytes::from_static(b"hello"),
        }
    }

    fn events(out: &[WatchOut]) -> Vec<(LinkId, WatchEvent, i32)> {
        let read = |o: &WatchOut| match o {
            WatchOut::Send(link, m) => {
                let m: MWatchNotify = m.clone().into_message().decode().unwrap();
                Some((*link, m.event, m.return_code))
            }
            WatchOut::Expired(..) => None,
        };
        out.iter().filter_map(read).collect()
    }

    #[test]
    fn a_notify_completes_when_all_watchers_answered() {
        let (mut w, mut out) = (Watches::default(), Vec::new());
        w.connect(Mono(0), &object(), &stored(1, 10), Some(A), &mut out);
        w.connect(Mono(0), &object(), &stored(2, 20), Some(B), &mut out);
        w.notify(Mono(0), &object(), notify(9), usize::MAX, &mut out);
        assert_eq!(events(&out), [(A, WatchEvent::Notify, 0), (B, WatchEvent::Notify, 0)]);
        out.clear();
        w.ack(&object(), 9, key(2, 20), Bytes::from_static(b"r"), &mut out);
        assert!(out.is_empty());
        w.ack(&object(), 9, key(1, 10), Bytes::new(), &mut out);
        assert_eq!(events(&out), [(A, WatchEvent::NotifyComplete, 0)]);
    }

    #[test]
    fn a_notify_without_watchers_completes_at_once_with_empty_lists() {
        let (mut w, mut out) = (Watches::default(), Vec::new());
        w.notify(Mono(0), &object(), notify(9), usize::MAX, &mut out);
        let [WatchOut::Send(A, m)] = out.as_slice() else { panic!("{out:?}") };
        assert_eq!(m.data.concat(), [0; 8]);
        assert_eq!(w.next_deadline(), None);
    }

    #[test]
    fn watchers_that_do_not_answer_are_named_and_expire() {
        let (mut w, mut out) = (Watches::default(), Vec::new());
        w.connect(Mono(0), &object(), &stored(2, 20), Some(B), &mut out);
        w.notify(Mono(0), &object(), notify(9), usize::MAX, &mut out);
        w.link_closed(Mono(0), B);
        assert!(!w.ping(Mono(0), &object(), key(2, 20), B));
        out.clear();
        w.tick(Mono(0).after(Duration::from_secs(10)), &mut out);
        assert_eq!(events(&out), [(A, WatchEvent::NotifyComplete, -110)]);
        out.clear();
        w.tick(Mono(0).after(Duration::from_secs(30)), &mut out);
        let [WatchOut::Expired(expired)] = &out[..] else { panic!("{out:?}") };
        assert_eq!((&expired.object, expired.key), (&object(), key(2, 20)));
        let expired = expired.clone();
        assert!(w.is_expired(&expired));
        w.remove(&object(), key(2, 20), &mut out);
        assert!(!w.is_expired(&expired));
        assert_eq!(w.next_deadline(), None);
    }

    #[test]
    fn a_watch_that_cannot_be_removed_now_is_tried_again_soon() {
        let (mut w, mut out) = (Watches::default(), Vec::new());
        let slow = StoredWatch { timeout_s: 3600, ..stored(2, 20) };
        w.connect(Mono(0), &object(), &slow, Some(B), &mut out);
        let end = Mono(0).after(Duration::from_secs(3600));
        w.tick(end, &mut out);
        w.tick(end, &mut out);
        let [WatchOut::Expired(first)] = &out[..] else { panic!("{out:?}") };
        let first = first.clone();
        let soon = w.next_deadline().expect("it is there");
        assert!(soon > end && soon <= end.after(Duration::from_secs(1)), "{soon:?}");
        out.clear();
        w.tick(soon, &mut out);
        assert_eq!(out, [WatchOut::Expired(first.clone())]);
        assert!(w.is_expired(&first), "what the first attempt waits for still counts");
        assert!(w.ping(soon, &object(), key(2, 20), B));
        assert!(!w.is_expired(&first));
        assert_eq!(w.next_deadline(), Some(soon.after(Duration::from_secs(3600))));
    }

    #[test]
    fn notifies_that_wait_are_bounded() {
        for (payload, most) in [(0, MAX_NOTIFIES), (MAX_NOTIFY_BYTES / 4, 4)] {
            let (mut w, mut out) = (Watches::default(), Vec::new());
            w.connect(Mono(0), &object(), &stored(2, 20), Some(B), &mut out);
            let payload = Bytes::from(vec![0; payload]);
            let begin = |w: &mut Watches, id: usize| {
                let mut out = Vec::new();
                let new = NewNotify { payload: payload.clone(), ..notify(id as u64) };
                w.notify(Mono(0), &object(), new, usize::MAX, &mut out);
                events(&out)
            };
            for id in 0..most {
                assert_eq!(begin(&mut w, id), [(B, WatchEvent::Notify, 0)]);
            }
            assert_eq!(begin(&mut w, most), [(A, WatchEvent::NotifyComplete, ETIMEDOUT)]);
            w.ack(&object(), 0, key(2, 20), Bytes::new(), &mut out);
            assert_eq!(begin(&mut w, most), [(B, WatchEvent::Notify, 0)], "there is room again");
        }
    }

    /// Each of three watchers is sent the payload.
    #[test]
    fn what_notifies_hold_is_counted_and_bounded() {
        let (mut w, mut out) = (Watches::default(), Vec::new());
        for client in 2..5 {
            w.connect(Mono(0), &object(), &stored(client, 20), Some(B), &mut out);
        }
        let payload = Bytes::from(vec![0; 1000]);
        let cost = 4 * (1000 + NOTIFY_BYTES);
        let mut begin = |w: &mut Watches, id, object: &HObject, room| {
            let new = NewNotify { payload: payload.clone(), ..notify(id) };
            w.notify(Mono(0), object, new, room, &mut out);
            events(&std::mem::take(&mut out)).len()
        };
        assert_eq!((begin(&mut w, 1, &object(), cost - 1), w.held_bytes()), (1, 0), "refused");
        assert_eq!((begin(&mut w, 1, &object(), cost), w.held_bytes()), (3, cost));
        let other = crate::object::own_object("other");
        assert_eq!((begin(&mut w, 2, &other, 0), w.held_bytes()), (1, cost), "nobody is told");
        assert_eq!((begin(&mut w, 3, &object(), cost), w.held_bytes()), (3, 2 * cost));
        let mut out = Vec::new();
        w.ack(&object(), 1, key(2, 20), vec![0; 50].into(), &mut out);
        assert_eq!(w.held_bytes(), 2 * cost + 50);
        w.remove(&object(), key(3, 20), &mut out);
        w.ack(&object(), 1, key(4, 20), Bytes::new(), &mut out);
        assert_eq!(w.held_bytes(), cost);
        w.tick(Mono(0).after(Duration::from_secs(10)), &mut out);
        assert_eq!(w.held_bytes(), 0);
        for (id, forget) in [(4, false), (5, true)] {
            let again = NewNotify { payload: payload.clone(), ..notify(id) };
            w.notify(Mono(0), &object(), again, usize::MAX, &mut out);
            assert!(w.held_bytes() > 0);
            match forget {
                true => w.retain(|_| false),
                false => {
                    w.disconnect_all(&object(), &mut out);
                    assert_eq!(w.held_bytes(), 0);
                    w.connect(Mono(0), &object(), &stored(2, 20), Some(B), &mut out);
                }
            }
        }
        assert_eq!(w.held_bytes(), 0);
    }

    #[test]
    fn a_watcher_that_left_before_its_watch_was_committed_expires() {
        let (mut w, mut out) = (Watches::default(), Vec::new());
        w.connect(Mono(0), &object(), &stored(1, 10), Some(A), &mut out);
        w.connect(Mono(0), &object(), &stored(2, 20), None, &mut out);
        w.notify(Mono(0), &object(), notify(9), usize::MAX, &mut out);
        assert_eq!(events(&out), [(A, WatchEvent::Notify, 0)]);
        out.clear();
        let end = Mono(0).after(Duration::from_secs(30));
        assert!(w.ping(Mono(1), &object(), key(1, 10), A));
        w.tick(end, &mut out);
        let expired: Vec<_> = out
            .iter()
            .filter_map(|o| if let WatchOut::Expired(e) = o { Some(e) } else { None })
            .collect();
        assert_eq!(expired.iter().map(|e| e.key).collect::<Vec<_>>(), [key(2, 20)]);
        // It comes back while it is being removed.
        let expired = expired[0].clone();
        w.connect(end, &object(), &stored(2, 20), Some(B), &mut out);
        assert!(w.ping(end.after(Duration::from_secs(1)), &object(), key(2, 20), B));
        assert!(!w.is_expired(&expired));
    }

    #[test]
    fn a_watcher_that_comes_back_is_told_what_waits_for_it() {
        let (mut w, mut out) = (Watches::default(), Vec::new());
        w.connect(Mono(0), &object(), &stored(2, 20), Some(B), &mut out);
        w.notify(Mono(0), &object(), notify(9), usize::MAX, &mut out);
        w.link_closed(Mono(0), B);
        out.clear();
        const AGAIN: LinkId = LinkId(3);
        w.connect(Mono(0), &object(), &stored(2, 20), Some(AGAIN), &mut out);
        // Once for each connection.
        w.connect(Mono(0), &object(), &stored(2, 20), Some(AGAIN), &mut out);
        assert_eq!(events(&out), [(AGAIN, WatchEvent::Notify, 0)]);
        out.clear();
        w.ack(&object(), 9, key(2, 20), Bytes::new(), &mut out);
        assert_eq!(events(&out), [(A, WatchEvent::NotifyComplete, 0)]);
    }

    #[test]
    fn removing_the_object_tells_watchers_and_notifiers() {
        let (mut w, mut out) = (Watches::default(), Vec::new());
        w.connect(Mono(0), &object(), &stored(2, 20), Some(B), &mut out);
        w.notify(Mono(0), &object(), notify(9), usize::MAX, &mut out);
        out.clear();
        w.disconnect_all(&object(), &mut out);
        assert_eq!(
            events(&out),
            [(B, WatchEvent::Disconnect, 0), (A, WatchEvent::NotifyComplete, 0)]
        );
    }
}

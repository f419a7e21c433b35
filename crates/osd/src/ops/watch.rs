//! Watch and notify: what a request asks for. The host carries it out when the request is done.

use super::{Run, Stop};
use crate::object::StoredWatch;
use bytes::Bytes;
use types::Errno;
use wire::msg::OsdOp;
use wire::msg::op::watch_op;
use wire::msg::op_data::{ListWatchersOut, NotifyAckIn, NotifyIn, WatchItem, input};

/// `osd_client_watch_timeout`
pub const WATCH_TIMEOUT_S: u32 = 30;
/// `osd_default_notify_timeout`
pub const NOTIFY_TIMEOUT_S: u32 = 30;
/// The longest timeouts that are taken.
const MAX_TIMEOUT_S: u32 = 3600;

/// Something to do for watchers when a request is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEffect {
    /// So many watches are stored with the object: they come to life, unless they have.
    Load {
        /// How many.
        watches: usize,
    },
    /// The sender watches, on its connection.
    Connect(StoredWatch),
    /// The sender watches no more.
    Remove {
        /// Its name for the watch.
        cookie: u64,
    },
    /// The sender's watch lives: ENOTCONN if there is none here.
    Ping {
        /// Its name for the watch.
        cookie: u64,
    },
    /// The object is gone: its watchers are told.
    DisconnectAll,
    /// Tell all watchers.
    Notify {
        /// Names the notify.
        id: u64,
        /// The notifier's name for it.
        cookie: u64,
        /// How long to wait for answers.
        timeout_s: u32,
        /// What to tell.
        payload: Bytes,
    },
    /// A watcher answers a notify.
    Ack {
        /// The notify.
        id: u64,
        /// The watcher's name for its watch.
        cookie: u64,
        /// Its answer.
        reply: Bytes,
    },
}

fn timeout(wanted_s: u32, default_s: u32) -> u32 {
    if wanted_s == 0 { default_s } else { wanted_s.min(MAX_TIMEOUT_S) }
}

impl Run<'_> {
    pub(super) fn op_watch(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let w = op.args.watch();
        let sender = self.scene.sender;
        if !self.now.exists {
            return Err(Errno::ENOENT.into());
        }
        let mine = |s: &StoredWatch| s.watcher == sender.name && s.cookie == w.cookie;
        let known = self.now.meta.watches.iter().any(mine);
        match w.op {
            watch_op::WATCH | watch_op::LEGACY_WATCH | watch_op::RECONNECT => {
                if w.op == watch_op::RECONNECT && !known {
                    return Err(Errno::ENOTCONN.into());
                }
                let watch = StoredWatch {
                    cookie: w.cookie,
                    watcher: sender.name,
                    addr: sender.addr,
                    timeout_s: timeout(w.timeout_s, WATCH_TIMEOUT_S),
                };
                if !self.now.meta.watches.contains(&watch) {
                    self.change_existing();
                    let meta = &mut self.now.meta;
                    meta.watches.retain(|s| !mine(s));
                    meta.watches.push(watch.clone());
                    if !meta.has_room() {
                        return Err(Stop::Refuse(Errno::EUSERS));
                    }
                }
                self.effects.push(WatchEffect::Connect(watch));
                Ok(0)
            }
            watch_op::UNWATCH => {
                if known {
                    self.change_existing();
                    self.now.meta.watches.retain(|s| !mine(s));
                    self.effects.push(WatchEffect::Remove { cookie: w.cookie });
                }
                Ok(0)
            }
            watch_op::PING => {
                if !known {
                    return Err(Errno::ENOTCONN.into());
                }
                self.effects.push(WatchEffect::Ping { cookie: w.cookie });
                Ok(0)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    pub(super) fn disconnect_watches(&mut self) {
        if !self.now.meta.watches.is_empty() {
            self.now.meta.watches.clear();
            self.effects.push(WatchEffect::DisconnectAll);
        }
    }

    pub(super) fn op_notify(&mut self, i: usize, op: &OsdOp) -> Result<i32, Stop> {
        let NotifyIn { timeout_s, payload } = input(op)?;
        let id = self.scene.next_notify_id + self.effects.len() as u64;
        self.effects.push(WatchEffect::Notify {
            id,
            cookie: op.args.notify().cookie,
            timeout_s: timeout(timeout_s, NOTIFY_TIMEOUT_S),
            payload,
        });
        self.put(i, denc::encode(&id));
        Ok(0)
    }

    /// Very old clients give the ids in the arguments and no input.
    pub(super) fn op_notify_ack(&mut self, op: &OsdOp) -> Result<i32, Stop> {
        let ack = if op.indata.is_empty() {
            let w = op.args.watch();
            NotifyAckIn { notify_id: w.cookie, cookie: w.version, reply: Bytes::new() }
        } else {
            input(op)?
        };
        let NotifyAckIn { notify_id: id, cookie, reply } = ack;
        self.effects.push(WatchEffect::Ack { id, cookie, reply });
        Ok(0)
    }

    pub(super) fn op_list_watchers(&mut self, i: usize) -> Result<i32, Stop> {
        let item = |w: &StoredWatch| WatchItem {
            watcher: w.watcher,
            cookie: w.cookie,
            timeout_s: w.timeout_s,
            addr: w.addr,
        };
        let watchers = self.before.meta.watches.iter().map(item).collect();
        self.put(i, denc::encode(&ListWatchersOut { watchers }));
        Ok(0)
    }
}

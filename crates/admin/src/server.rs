//! The admin socket of a daemon, without I/O (`common/admin_socket.cc`, guide §9.1).
//!
//! A client connects to a Unix socket and sends one request, ended by a zero byte or a newline: a
//! command in JSON, or just its words. The reply is its length as a big-endian u32, then its
//! bytes; then the connection is closed.
//!
//! Bounds: [`MAX_REQUEST_BYTES`] of a request, [`REQUEST_TIMEOUT`] until it is complete,
//! [`MAX_CONNECTIONS`] at a time. Whoever breaks them is closed with one line in the log.

use crate::answer::{Answer, CommandError, strerror};
use crate::json::Format;
use bytes::{BufMut, Bytes, BytesMut};
use io::net::{ConnId, ListenAddr, ListenId, NetEvent, NetOp};
use io::{Effects, Now, TimerId, Timers};
use serde_json::{Map, Value};
use smallvec::smallvec;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::{HashMap, Mono};

/// Longest request.
pub const MAX_REQUEST_BYTES: usize = 64 << 10;
/// Time from the connection to the end of the request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// A socket that cannot be made is tried again after so long: what is in its way may be gone then.
pub const LISTEN_AGAIN: Duration = Duration::from_secs(10);
/// Connections at a time.
pub const MAX_CONNECTIONS: usize = 64;

/// Names that older programs, collectd among them, have for commands. Source: Ceph
/// `common/ceph_context.cc: CephContext::CephContext`.
const OLD_NAMES: [(&str, &str); 4] = [
    ("1", "perf dump"),
    ("perfcounters_dump", "perf dump"),
    ("2", "perf schema"),
    ("perfcounters_schema", "perf schema"),
];
/// Asks for the version of the socket's protocol. Source: Ceph `common/admin_socket.cc: VersionHook`.
const PROTOCOL: &str = "0";
const PROTOCOL_VERSION: &str = "2";

/// A request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdminRequest {
    /// The command's words.
    pub prefix: String,
    /// How the answer is wanted.
    pub format: Format,
    /// All of the JSON, `prefix` and `format` too; look the command up in a
    /// [`CommandTable`](crate::CommandTable) with it.
    pub args: Map<String, Value>,
}

impl AdminRequest {
    fn parse(text: &[u8]) -> Result<Self, CommandError> {
        let text = std::str::from_utf8(text).map_err(|_| CommandError::invalid("not text"))?.trim();
        let mut args = if text.starts_with('{') {
            serde_json::from_str::<Map<String, Value>>(text)
                .map_err(|e| CommandError::invalid(format_args!("bad JSON in command: {e}")))?
        } else {
            Map::from_iter([("prefix".to_owned(), Value::from(text))])
        };
        let word = |name| args.get(name).and_then(Value::as_str).map(str::to_owned);
        let mut prefix = word("prefix").unwrap_or_default();
        // Without a word the socket answers in JSON for people.
        let format = match Format::from_name(&word("format").unwrap_or_default()) {
            Format::Plain => Format::JsonPretty,
            format => format,
        };
        if let Some((_, today)) = OLD_NAMES.iter().find(|(old, _)| *old == prefix) {
            prefix = (*today).to_owned();
        }
        args.insert("prefix".to_owned(), prefix.as_str().into());
        Ok(AdminRequest { prefix, format, args })
    }
}

/// What the socket brings.
#[derive(Debug, PartialEq)]
pub enum AdminEvent {
    /// It is ready.
    Listening,
    /// It could not be made; positive error number. It is tried again, and no other failure told.
    Failed(i32),
    /// A request; [`AdminServer::reply`] answers it, also in a later turn.
    Request(ConnId, AdminRequest),
}

#[derive(Debug)]
struct Conn {
    read: BytesMut,
    timer: Option<TimerId>,
    format: Format,
}

/// The socket and its connections.
#[derive(Debug)]
pub struct AdminServer {
    listen: ListenId,
    path: PathBuf,
    conns: HashMap<ConnId, Conn>,
    /// Who is closed then; `None`: the socket is made then.
    timers: Timers<Option<ConnId>>,
    has_failed: bool,
}

impl AdminServer {
    /// A socket to be made at `path`.
    pub fn new(listen: ListenId, path: PathBuf) -> Self {
        let (conns, timers) = (HashMap::default(), Timers::default());
        AdminServer { listen, path, conns, timers, has_failed: false }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// When [`AdminServer::tick`] is to be called.
    pub fn next_deadline(&self) -> Option<Mono> {
        self.timers.next()
    }

    /// Makes it; [`AdminEvent::Listening`] or [`AdminEvent::Failed`] follows.
    pub fn start(&self, fx: &mut Effects) {
        let addr = ListenAddr::Unix(self.path.clone());
        fx.net.push(NetOp::Listen { listen: self.listen, addr });
    }

    /// Takes in a network event. Gives it back when it is about somebody else's connection.
    pub fn handle(
        &mut self,
        now: Now,
        event: NetEvent,
        fx: &mut Effects,
        out: &mut Vec<AdminEvent>,
    ) -> Option<NetEvent> {
        match event {
            NetEvent::Listening { listen, .. } if listen == self.listen => {
                out.push(AdminEvent::Listening);
            }
            NetEvent::ListenFailed { listen, errno } if listen == self.listen => {
                self.timers.set(now.mono.after(LISTEN_AGAIN), None);
                if !std::mem::replace(&mut self.has_failed, true) {
                    out.push(AdminEvent::Failed(errno));
                }
            }
            NetEvent::Accepted { listen, conn, .. } if listen == self.listen => {
                self.accept(now, conn, fx);
            }
            NetEvent::Received { conn, data } if self.conns.contains_key(&conn) => {
                self.receive(conn, &data, fx, out);
            }
            NetEvent::Closed { conn, .. } if self.conns.contains_key(&conn) => {
                self.forget(conn);
            }
            other => return Some(other),
        }
        None
    }

    fn accept(&mut self, now: Now, conn: ConnId, fx: &mut Effects) {
        if self.conns.len() >= MAX_CONNECTIONS {
            tracing::warn!("admin socket: too many connections, one is closed");
            fx.net.push(NetOp::Close { conn, drain: false });
            return;
        }
        let timer = Some(self.timers.set(now.mono.after(REQUEST_TIMEOUT), Some(conn)));
        let read = BytesMut::new();
        self.conns.insert(conn, Conn { read, timer, format: Format::JsonPretty });
    }

    fn receive(&mut self, conn: ConnId, data: &[u8], fx: &mut Effects, out: &mut Vec<AdminEvent>) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if c.timer.is_none() {
            return; // The request is complete; nothing more is listened to.
        }
        let end = data.iter().position(|&b| b == 0 || b == b'\n');
        c.read.extend_from_slice(data.get(..end.unwrap_or(data.len())).unwrap_or_default());
        if c.read.len() > MAX_REQUEST_BYTES {
            tracing::warn!("admin socket: a request over {MAX_REQUEST_BYTES} bytes, closed");
            self.close(conn, false, fx);
            return;
        }
        if end.is_none() {
            return;
        }
        if let Some(timer) = c.timer.take() {
            self.timers.cancel(timer);
        }
        match AdminRequest::parse(&c.read) {
            Ok(request) if request.prefix == PROTOCOL => {
                self.reply(conn, Ok(Answer::message(PROTOCOL_VERSION)), fx);
            }
            Ok(request) => {
                c.format = request.format;
                out.push(AdminEvent::Request(conn, request));
            }
            Err(e) => self.reply(conn, Err(e), fx),
        }
    }

    /// Answers a request. Does nothing when its connection is gone.
    pub fn reply(&mut self, conn: ConnId, result: Result<Answer, CommandError>, fx: &mut Effects) {
        let Some(c) = self.conns.get(&conn) else { return };
        let answer = result.unwrap_or_else(Answer::from);
        let errno = answer.errno;
        let (_, outs, data) = answer.into_reply(c.format);
        let body = match errno {
            Some(errno) => {
                let error = format!("ERROR: {}\n{outs}\n", strerror(errno));
                [error.as_bytes(), &data].concat().into()
            }
            None if data.is_empty() => Bytes::from(outs),
            None => data,
        };
        let mut length = BytesMut::with_capacity(4);
        length.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
        fx.net.push(NetOp::Send { conn, data: smallvec![length.freeze(), body] });
        self.close(conn, true, fx);
    }

    /// Closes whoever took too long, and makes the socket if that failed before.
    pub fn tick(&mut self, now: Now, fx: &mut Effects) {
        while let Some(due) = self.timers.pop(now.mono) {
            let Some(conn) = due else {
                self.start(fx);
                continue;
            };
            tracing::warn!("admin socket: no request within {REQUEST_TIMEOUT:?}, closed");
            self.close(conn, false, fx);
        }
    }

    fn close(&mut self, conn: ConnId, drain: bool, fx: &mut Effects) {
        self.forget(conn);
        fx.net.push(NetOp::Close { conn, drain });
    }

    fn forget(&mut self, conn: ConnId) {
        if let Some(timer) = self.conns.remove(&conn).and_then(|c| c.timer) {
            self.timers.cancel(timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::net::{CloseReason, PeerAddr};
    use serde_json::json;
    use types::Errno;

    const CONN: ConnId = ConnId(5);

    struct Rig {
        server: AdminServer,
        fx: Effects,
        out: Vec<AdminEvent>,
    }

    impl Rig {
        fn new() -> Self {
            let server = AdminServer::new(ListenId(3), "/run/x.asok".into());
            let mut rig = Rig { server, fx: Effects::new(), out: Vec::new() };
            rig.give(NetEvent::Accepted { listen: ListenId(3), conn: CONN, peer: PeerAddr::Unix });
            rig
        }

        fn give(&mut self, event: NetEvent) {
            let given = self.server.handle(Now::default(), event, &mut self.fx, &mut self.out);
            assert!(given.is_none());
        }

        fn send(&mut self, data: &'static [u8]) {
            self.give(NetEvent::Received { conn: CONN, data: Bytes::from_static(data) });
        }

        fn sent(&mut self) -> Vec<u8> {
            let mut bytes = Vec::new();
            for op in self.fx.net.drain(..) {
                if let NetOp::Send { data, .. } = op {
                    bytes.extend(data.concat());
                }
            }
            bytes
        }
    }

    #[test]
    fn a_request_in_pieces_is_answered() {
        let mut rig = Rig::new();
        rig.send(br#"{"prefix":"perf "#);
        assert!(rig.out.is_empty());
        rig.send(b"dump\",\"format\":\"json\"}\0trailing");
        let Some(AdminEvent::Request(conn, request)) = rig.out.pop() else { panic!() };
        assert_eq!(
            (conn, request.prefix.as_str(), request.format),
            (CONN, "perf dump", Format::Json)
        );
        rig.server.reply(conn, Ok(Answer::json(json!({"a": 1}))), &mut rig.fx);
        assert!(matches!(rig.fx.net.last(), Some(NetOp::Close { drain: true, .. })));
        assert_eq!(rig.sent(), b"\0\0\0\x07{\"a\":1}");
        assert_eq!(rig.server.next_deadline(), None);
    }

    #[test]
    fn plain_words_and_errors() {
        let mut rig = Rig::new();
        rig.send(b"version\n");
        let Some(AdminEvent::Request(conn, request)) = rig.out.pop() else { panic!() };
        assert_eq!(request.args, Map::from_iter([("prefix".to_owned(), json!("version"))]));
        let error = CommandError::new(Errno::EINVAL, "command not known");
        rig.server.reply(conn, Err(error), &mut rig.fx);
        let sent = rig.sent();
        assert_eq!(&sent[4..], b"ERROR: (22) Invalid argument\ncommand not known\n");
        let mut rig = Rig::new();
        rig.send(b"{\"prefix\":\0");
        assert!(rig.out.is_empty() && rig.sent().starts_with(b"\0\0\0"));
    }

    /// As collectd asks: which protocol is spoken, then for the counters, and what they are.
    #[test]
    fn commands_by_their_old_names() {
        let mut rig = Rig::new();
        rig.send(b"{ \"prefix\": \"0\" }\n");
        assert_eq!((rig.sent(), rig.out.len()), (b"\0\0\0\x012".to_vec(), 0));
        let asked: [(&'static [u8], _); 2] = [
            (b"{ \"prefix\": \"1\" }\n", "perf dump"),
            (b"{ \"prefix\": \"2\" }\n", "perf schema"),
        ];
        for (old, today) in asked {
            let mut rig = Rig::new();
            rig.send(old);
            let Some(AdminEvent::Request(_, request)) = rig.out.pop() else { panic!() };
            assert_eq!((&*request.prefix, &request.args["prefix"]), (today, &json!(today)));
        }
    }

    #[test]
    fn a_socket_that_cannot_be_made_is_tried_again() {
        let mut rig = Rig::new();
        let failed = || NetEvent::ListenFailed { listen: ListenId(3), errno: 98 };
        rig.give(failed());
        rig.give(NetEvent::Closed { conn: CONN, why: CloseReason::Eof });
        let again = rig.server.next_deadline().expect("it is tried again");
        rig.server.tick(Now { mono: again, ..Now::default() }, &mut rig.fx);
        assert!(matches!(rig.fx.net.as_slice(), [NetOp::Listen { .. }]));
        rig.give(failed());
        assert!(rig.server.next_deadline().is_some());
        rig.give(NetEvent::Listening { listen: ListenId(3), addr: None });
        assert_eq!(rig.out, [AdminEvent::Failed(98), AdminEvent::Listening]);
    }

    #[test]
    fn bounds_are_kept() {
        let mut rig = Rig::new();
        rig.send(&[b'x'; MAX_REQUEST_BYTES + 1]);
        assert!(matches!(rig.fx.net.as_slice(), [NetOp::Close { drain: false, .. }]));
        let mut rig = Rig::new();
        let late = Now { mono: Mono(6_000_000_000), ..Now::default() };
        rig.server.tick(late, &mut rig.fx);
        assert!(matches!(rig.fx.net.as_slice(), [NetOp::Close { drain: false, .. }]));
        let mut rig = Rig::new();
        for n in 0..MAX_CONNECTIONS as u64 {
            let accepted = (ListenId(3), ConnId(100 + n), PeerAddr::Unix);
            rig.give(NetEvent::Accepted { listen: accepted.0, conn: accepted.1, peer: accepted.2 });
        }
        assert_eq!(rig.fx.net.len(), 1, "one too many");
        rig.give(NetEvent::Closed { conn: CONN, why: CloseReason::Eof });
        rig.server.reply(CONN, Ok(Answer::ok()), &mut rig.fx);
        assert_eq!(rig.fx.net.len(), 1, "nobody is there to be answered");
    }
}

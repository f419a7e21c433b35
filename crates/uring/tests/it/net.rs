use crate::run;
use bytes::Bytes;
use io::net::{CloseReason, ConnId, ListenAddr, ListenId, NetEvent, NetOp, PeerAddr};
use io::{AlignedBuf, Effects, Event};
use smallvec::smallvec;

const LISTEN: ListenId = ListenId(1);

fn listen(fx: &mut Effects) {
    let addr = ListenAddr::Tcp("127.0.0.1:0".parse().unwrap());
    fx.net.push(NetOp::Listen { listen: LISTEN, addr });
}

fn send(fx: &mut Effects, conn: ConnId, data: impl Into<Bytes>) {
    fx.net.push(NetOp::Send { conn, data: smallvec![data.into()] });
}

fn pattern(len: usize) -> Bytes {
    (0..len).map(|i| (i * 7 % 251) as u8).collect::<Vec<_>>().into()
}

#[test]
fn bytes_arrive_in_order_both_ways_and_the_end_is_seen() {
    let sent = pattern(3_000_000);
    let (mut client, mut server) = (None, None);
    let (mut there, mut back) = (Vec::new(), Vec::new());
    run(Vec::new(), |_, event, fx| match event {
        Event::Start => listen(fx),
        Event::Net(NetEvent::Listening { addr, .. }) => client = Some(fx.connect(addr.unwrap())),
        Event::Net(NetEvent::Accepted { listen, conn, peer }) => {
            assert_eq!(listen, LISTEN);
            assert!(matches!(peer, PeerAddr::Tcp(_)));
            server = Some(conn);
        }
        Event::Net(NetEvent::Connected { conn, .. }) => {
            for piece in sent.chunks(1000) {
                send(fx, conn, sent.slice_ref(piece));
            }
        }
        Event::Net(NetEvent::Received { conn, data }) if Some(conn) == server => {
            there.extend_from_slice(&data);
            send(fx, conn, data);
            if there.len() == sent.len() {
                fx.net.push(NetOp::Close { conn, drain: true });
            }
        }
        Event::Net(NetEvent::Received { data, .. }) => back.extend_from_slice(&data),
        Event::Net(NetEvent::Closed { conn, why }) => {
            assert_eq!((Some(conn), why), (client, CloseReason::Eof));
            fx.exit(0, "done");
        }
        _ => {}
    });
    assert!(there == sent && back == sent);
}

#[test]
fn a_fill_takes_exactly_its_bytes() {
    let sent = pattern(1_000_100);
    let mut got = Vec::new();
    run(Vec::new(), |_, event, fx| match event {
        Event::Start => listen(fx),
        Event::Net(NetEvent::Listening { addr, .. }) => drop(fx.connect(addr.unwrap())),
        Event::Net(NetEvent::Connected { conn, .. }) => send(fx, conn, sent.slice(..100)),
        Event::Net(NetEvent::Received { conn, data }) if got.is_empty() => {
            got.extend_from_slice(&data);
            let mut buf = AlignedBuf::zeroed(999_990);
            buf.as_mut_slice()[..3].copy_from_slice(b"abc");
            fx.net.push(NetOp::Fill { conn, buf, from: 3 });
            // The other end of this process is the connection made first.
            send(fx, ConnId(1), sent.slice(100..));
        }
        Event::Net(NetEvent::Filled { buf, .. }) => {
            assert_eq!(&buf.as_slice()[..3], b"abc");
            got.extend_from_slice(&buf.as_slice()[3..]);
        }
        Event::Net(NetEvent::Received { data, .. }) => {
            got.extend_from_slice(&data);
            if got.len() == sent.len() {
                fx.exit(0, "done");
            }
        }
        _ => {}
    });
    assert!(got == sent);
}

#[test]
fn a_refused_dial_is_told_and_a_taken_port_too() {
    let mut refused = false;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    run(Vec::new(), |_, event, fx| match event {
        Event::Start => {
            fx.connect("127.0.0.1:1".parse().unwrap());
        }
        Event::Net(NetEvent::Closed { why, .. }) => {
            refused = why == CloseReason::Os(libc_econnrefused());
            fx.net.push(NetOp::Listen { listen: LISTEN, addr: ListenAddr::Tcp(addr) });
        }
        Event::Net(NetEvent::ListenFailed { errno, .. }) => {
            assert_eq!(
                std::io::Error::from_raw_os_error(errno).kind(),
                std::io::ErrorKind::AddrInUse
            );
            fx.exit(0, "done");
        }
        _ => {}
    });
    assert!(refused);
}

fn libc_econnrefused() -> i32 {
    111
}

/// Who is not heard may go all the same, with bytes on the way or without.
#[test]
fn the_end_of_a_paused_connection_is_seen() {
    for bytes in [0, 10_000] {
        let mut server = None;
        run(Vec::new(), |_, event, fx| match event {
            Event::Start => listen(fx),
            Event::Net(NetEvent::Listening { addr, .. }) => drop(fx.connect(addr.unwrap())),
            Event::Net(NetEvent::Accepted { conn, .. }) => {
                server = Some(conn);
                fx.net.push(NetOp::PauseRecv { conn });
                // Heard again, and not.
                fx.net.push(NetOp::ResumeRecv { conn });
                fx.net.push(NetOp::PauseRecv { conn });
            }
            Event::Net(NetEvent::Connected { conn, .. }) => {
                send(fx, conn, pattern(bytes));
                fx.net.push(NetOp::Close { conn, drain: true });
            }
            Event::Net(NetEvent::Closed { conn, why }) => {
                assert_eq!((Some(conn), why), (server, CloseReason::Eof));
                fx.exit(0, "done");
            }
            Event::Net(NetEvent::Received { .. }) => panic!("it is not heard"),
            _ => {}
        });
    }
}

#[test]
fn a_paused_connection_receives_nothing_until_it_is_resumed() {
    let mut server = None;
    let mut paused_bytes = 0;
    let mut resumed = false;
    let mut total = 0;
    run(Vec::new(), |_, event, fx| match event {
        Event::Start => listen(fx),
        Event::Net(NetEvent::Listening { addr, .. }) => drop(fx.connect(addr.unwrap())),
        Event::Net(NetEvent::Accepted { conn, .. }) => {
            server = Some(conn);
            fx.net.push(NetOp::PauseRecv { conn });
        }
        Event::Net(NetEvent::Connected { conn, .. }) => {
            send(fx, conn, pattern(10_000));
            // A round trip through a second connection: time for the bytes to arrive.
            fx.connect("127.0.0.1:1".parse().unwrap());
        }
        Event::Net(NetEvent::Closed { .. }) => {
            resumed = true;
            fx.net.push(NetOp::ResumeRecv { conn: server.unwrap() });
        }
        Event::Net(NetEvent::Received { data, .. }) => {
            if !resumed {
                paused_bytes += data.len();
            }
            total += data.len();
            if total == 10_000 {
                fx.exit(0, "done");
            }
        }
        _ => {}
    });
    assert_eq!(paused_bytes, 0);
}

#[test]
fn a_unix_socket_that_is_served_and_what_is_no_socket_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (served, file) = (dir.path().join("a.sock"), dir.path().join("file"));
    let other = std::os::unix::net::UnixListener::bind(&served).unwrap();
    std::fs::write(&file, "something").unwrap();
    for path in [&served, &file] {
        let at = path.clone();
        run(Vec::new(), |_, event, fx| match event {
            Event::Start => {
                fx.net.push(NetOp::Listen { listen: LISTEN, addr: ListenAddr::Unix(at.clone()) });
            }
            Event::Net(NetEvent::ListenFailed { errno, .. }) => {
                assert_eq!(errno, 98, "EADDRINUSE");
                fx.exit(0, "done");
            }
            other => assert!(!matches!(other, Event::Net(_)), "{other:?}"),
        });
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"something");
    let _asked = std::os::unix::net::UnixStream::connect(&served).expect("it is there");
    other.accept().expect("and served");
}

#[test]
fn a_unix_socket_serves_and_replaces_a_left_over_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let mut asker = None;
    let asker_slot = &mut asker;
    let at = path.clone();
    run(Vec::new(), |_, event, fx| match event {
        Event::Start => {
            fx.net.push(NetOp::Listen { listen: LISTEN, addr: ListenAddr::Unix(at.clone()) });
        }
        Event::Net(NetEvent::Listening { addr: None, .. }) => {
            let at = at.clone();
            *asker_slot = Some(std::thread::spawn(move || {
                use std::io::{Read, Write};
                let mut s = std::os::unix::net::UnixStream::connect(at).unwrap();
                s.write_all(b"hello").unwrap();
                let mut answer = String::new();
                s.read_to_string(&mut answer).unwrap();
                answer
            }));
        }
        Event::Net(NetEvent::Received { conn, data }) => {
            assert_eq!(&data[..], b"hello");
            send(fx, conn, "world");
            fx.net.push(NetOp::Close { conn, drain: true });
            fx.exit(0, "done");
        }
        _ => {}
    });
    assert_eq!(asker.unwrap().join().unwrap(), "world");
}

/// The kernel lets go of a ring, and of the sockets it accepts on, only some time after the run that had it.
#[test]
fn a_run_listens_where_the_one_before_it_did() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let mut port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    for _ in 0..50 {
        let mut open = 0;
        run(Vec::new(), |_, event, fx| match event {
            Event::Start => {
                fx.net.push(NetOp::Listen { listen: LISTEN, addr: ListenAddr::Unix(path.clone()) });
                fx.net.push(NetOp::Listen { listen: ListenId(2), addr: ListenAddr::Tcp(port) });
            }
            Event::Net(NetEvent::Listening { addr, .. }) => {
                port = addr.unwrap_or(port);
                open += 1;
                if open == 2 {
                    fx.exit(0, "both");
                }
            }
            other => assert!(!matches!(other, Event::Net(_)), "{other:?}"),
        });
        let refused = std::os::unix::net::UnixStream::connect(&path).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}

/// It is somebody else's, who was killed a moment ago.
#[test]
fn an_address_that_becomes_free_is_had() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let mut other = Some(std::os::unix::net::UnixListener::bind(&path).unwrap());
    run(Vec::new(), |now, event, fx| match event {
        Event::Start => {
            fx.net.push(NetOp::Listen { listen: LISTEN, addr: ListenAddr::Unix(path.clone()) });
            // Its failure comes when that of the other has come.
            fx.connect("127.0.0.1:1".parse().unwrap());
        }
        Event::Net(NetEvent::Closed { .. }) => drop(other.take()),
        Event::Net(NetEvent::Listening { .. }) => {
            assert!(other.is_none());
            fx.exit(0, "it has it");
        }
        other => assert!(!matches!(other, Event::Net(_)), "{other:?} at {now:?}"),
    });
}

#[test]
fn a_thousand_connections_are_served() {
    const MANY: usize = 1000;
    let mut echoed = 0;
    let mut clients = types::HashSet::default();
    run(Vec::new(), |_, event, fx| match event {
        Event::Start => listen(fx),
        Event::Net(NetEvent::Listening { addr, .. }) => {
            clients.extend((0..MANY).map(|_| fx.connect(addr.unwrap())));
        }
        Event::Net(NetEvent::Connected { conn, .. }) => send(fx, conn, "x"),
        Event::Net(NetEvent::Received { conn, data }) => {
            if clients.contains(&conn) {
                echoed += 1;
                fx.net.push(NetOp::Close { conn, drain: false });
                if echoed == MANY {
                    fx.exit(0, "done");
                }
            } else {
                send(fx, conn, data);
            }
        }
        _ => {}
    });
    assert_eq!(echoed, MANY);
}

/// Short sends do not wait for their socket. One that is full loses nothing, and keeps the runner
/// from nothing else.
#[test]
fn short_sends_to_a_peer_that_does_not_read_wait_without_holding_others_up() {
    const ROUNDS: usize = 600;
    let piece = pattern(16_000);
    let mut conns = Vec::new();
    let mut ends = Vec::new();
    let (mut rounds, mut got) = (0, Vec::new());
    run(Vec::new(), |_, event, fx| match event {
        Event::Start => listen(fx),
        Event::Net(NetEvent::Listening { addr, .. }) => {
            for _ in 0..2 {
                fx.connect(addr.unwrap());
            }
        }
        Event::Net(NetEvent::Accepted { conn, .. }) => {
            ends.push(conn);
            fx.net.push(NetOp::PauseRecv { conn });
        }
        Event::Net(NetEvent::Connected { conn, .. }) => {
            conns.push(conn);
            if conns.len() == 2 {
                send(fx, conns[0], piece.clone());
                send(fx, conns[1], piece.clone());
                // Which end belongs to which does not matter: the second one to be accepted reads.
                fx.net.push(NetOp::ResumeRecv { conn: *ends.last().unwrap() });
            }
        }
        // Each round is set off by what the other connection brought.
        Event::Net(NetEvent::Received { conn, data }) if rounds < ROUNDS => {
            assert_eq!(Some(&conn), ends.last());
            rounds += data.len().div_ceil(piece.len());
            for conn in &conns {
                send(fx, *conn, piece.clone());
            }
            if rounds >= ROUNDS {
                fx.net.push(NetOp::PauseRecv { conn });
                fx.net.push(NetOp::ResumeRecv { conn: ends[0] });
            }
        }
        Event::Net(NetEvent::Received { conn, data }) if conn == ends[0] => {
            got.extend_from_slice(&data);
            if got.len() >= piece.len() * 100 {
                fx.exit(0, "done");
            }
        }
        _ => {}
    });
    let all = got.chunks(piece.len()).all(|chunk| chunk == &piece[..chunk.len()]);
    assert!(all && got.len() >= piece.len() * 100);
}

#[test]
fn who_does_not_take_what_is_sent_is_not_received_from_until_he_does() {
    const LIMIT: usize = 1 << 20;
    // More than the kernel buffers for them.
    const SENT: usize = 64 << 20;
    let (mut client, mut server) = (None, None);
    let (mut told, mut heard) = (Vec::new(), Vec::new());
    run(Vec::new(), |_, event, fx| match event {
        Event::Start => listen(fx),
        Event::Net(NetEvent::Listening { addr, .. }) => client = Some(fx.connect(addr.unwrap())),
        Event::Net(NetEvent::Accepted { conn, .. }) => server = Some(conn),
        Event::Net(NetEvent::Connected { conn, .. }) => {
            fx.net.push(NetOp::PauseRecv { conn });
            send(fx, conn, Bytes::from_static(b"more!"));
        }
        Event::Net(NetEvent::Received { conn, data }) if Some(conn) == server => {
            heard.push((data, told.len()));
            if heard.len() == 2 {
                fx.exit(0, "done");
                return;
            }
            fx.net.push(NetOp::LimitSend { conn, bytes: LIMIT });
            send(fx, conn, pattern(SENT));
            // It is not heard before its end has taken what it is sent.
            send(fx, client.unwrap(), Bytes::from_static(b"again!"));
        }
        Event::Net(NetEvent::Backlog { conn, over }) => {
            assert_eq!(Some(conn), server);
            told.push(over);
            if over {
                fx.net.push(NetOp::ResumeRecv { conn: client.unwrap() });
            }
        }
        _ => {}
    });
    assert_eq!(told, [true, false]);
    let heard: Vec<_> = heard.iter().map(|(data, told)| (&data[..], *told)).collect();
    assert_eq!(heard, [(&b"more!"[..], 0), (&b"again!"[..], 2)]);
}

/// Counts what is said in the log.
#[derive(Clone, Default)]
struct Said(std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl tracing::Subscriber for Said {
    fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
        *of.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// Uses up all descriptors, lets somebody connect, and gives some back a moment later.
struct OutOfFiles {
    files: Vec<std::fs::File>,
    caller: Option<std::net::TcpStream>,
    give_back_at: Option<types::Mono>,
}

impl io::Core for OutOfFiles {
    fn handle(&mut self, now: io::Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => listen(fx),
            Event::Net(NetEvent::Listening { addr, .. }) => {
                self.files.extend(std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()));
                self.files.pop();
                self.caller = Some(std::net::TcpStream::connect(addr.unwrap()).unwrap());
                self.give_back_at = Some(now.mono.after(std::time::Duration::from_millis(350)));
            }
            Event::Timer => {
                self.files.clear();
                self.give_back_at = None;
            }
            Event::Net(NetEvent::Accepted { .. }) => {
                assert!(self.files.is_empty(), "there was no descriptor for it");
                fx.exit(0, "accepted");
            }
            _ => {}
        }
    }

    fn end_turn(&mut self, _: io::Now, _: &mut Effects) {}

    fn next_deadline(&self) -> Option<types::Mono> {
        self.give_back_at
    }
}

/// In a process of its own, as the limit is the process's.
#[test]
fn without_descriptors_connections_wait_and_the_log_has_one_line() {
    let name = "net::without_descriptors_connections_wait_and_the_log_has_one_line";
    if !crate::is_own_process(name) {
        return;
    }
    let some = rustix::process::Rlimit { current: Some(64), maximum: Some(256) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, some).unwrap();
    let said = Said::default();
    let mut core = OutOfFiles { files: Vec::new(), caller: None, give_back_at: None };
    let options = uring::Options { handle_signals: false, ..uring::Options::default() };
    let run = || uring::run(&mut core, Vec::new(), None, &options);
    let exit = tracing::subscriber::with_default(said.clone(), run).unwrap();
    assert_eq!(exit.code, 0, "{}", exit.why);
    assert_eq!(said.0.load(std::sync::atomic::Ordering::Relaxed), 1);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    assert_eq!(limit.current, Some(256), "as many as there may be");
}

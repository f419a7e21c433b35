//! Bytes that no client sends, on every port: the connection ends, the daemon lives.

use super::cluster::{BINARY, Cluster, is_foreign};
use super::tool::Tool;
use loligo::wait::Deadline;
use rustix::process::Pid;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connection that sends nonsense is closed within this.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// Each connection may leave one line in the log; and so many may be about something else.
const OTHER_LINES: usize = 5;
/// `ceph v2`, then the length of the features, and the features.
const BANNER: &[u8] = b"ceph v2\n\x10\x00\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// Addresses at which a process listens, as the kernel tells.
fn listening(pid: Pid) -> Vec<SocketAddr> {
    let mut inodes = Vec::new();
    for fd in std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().flatten() {
        let target = std::fs::read_link(fd.path()).unwrap_or_default();
        let target = target.to_string_lossy().into_owned();
        let inode = target.strip_prefix("socket:[").and_then(|t| t.strip_suffix(']'));
        inodes.extend(inode.map(str::to_owned));
    }
    let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", pid.as_raw_nonzero())).unwrap();
    let mut found = Vec::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        const LISTEN: &str = "0A";
        if fields[3] == LISTEN && inodes.iter().any(|i| i == fields[9]) {
            let (_, port) = fields[1].split_once(':').unwrap();
            let port = u16::from_str_radix(port, 16).unwrap();
            found.push(SocketAddr::from(([127, 0, 0, 1], port)));
        }
    }
    found
}

/// A frame's preamble of this tag with one segment of a length, with a checksum that fits or not.
fn preamble(tag: u8, len: u32, good_crc: bool) -> Vec<u8> {
    let mut bytes = vec![tag, 1];
    bytes.extend(len.to_le_bytes());
    bytes.extend(8u16.to_le_bytes());
    bytes.resize(28, 0);
    let crc = denc::crc32c(0, &bytes);
    bytes.extend(if good_crc { crc } else { !crc }.to_le_bytes());
    bytes
}

/// What is sent, and whether the daemon can know that it is wrong before the connection ends.
fn nonsense() -> Vec<(&'static str, Vec<u8>, bool)> {
    const HELLO: u8 = 1;
    const MESSAGE: u8 = 17;
    let after_banner = |more: &[u8]| [BANNER, more].concat();
    let noise = super::cluster::pattern(100_000, 7);
    vec![
        ("noise", noise.clone(), true),
        ("a web request", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), true),
        ("the old protocol", b"ceph v027".to_vec(), true),
        ("another magic", b"ceph v3\n\x10\0".to_vec(), true),
        ("a banner that is too long", b"ceph v2\n\xff\xff".to_vec(), true),
        ("nothing", Vec::new(), false),
        ("half a banner", BANNER[..5].to_vec(), false),
        ("half a preamble", after_banner(&preamble(HELLO, 9, true)[..11]), false),
        ("half a frame", after_banner(&preamble(HELLO, 900, true)), false),
        ("noise after the banner", after_banner(&noise), true),
        ("a bad checksum", after_banner(&preamble(HELLO, 9, false)), true),
        ("4 GiB", after_banner(&preamble(HELLO, u32::MAX, true)), true),
        ("an unknown frame", after_banner(&preamble(99, 9, true)), true),
        ("a message before the handshake", after_banner(&preamble(MESSAGE, 41, true)), true),
    ]
}

/// Reads until the other side closes. Whether it did.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(CLOSE_LIMIT)).unwrap();
    let mut sink = [0; 4096];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) => return !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

fn log_lines(cluster: &Cluster, daemon: &str) -> usize {
    let log = cluster.dir().join(format!("{daemon}.log"));
    std::fs::read_to_string(log).unwrap().lines().count()
}

#[test]
fn nonsense_on_every_port_ends_only_its_connection() {
    if is_foreign() {
        return;
    }
    let cluster = Cluster::start(3, "256M");
    cluster.rados().args(["-p", "rbd", "put", "x", "-"]).stdin("before").ok();
    let daemons = ["mon.a", "osd.0", "osd.1", "osd.2"];
    let pids = daemons.map(|d| cluster.pid(d));
    for (daemon, pid) in daemons.iter().zip(pids) {
        let ports = listening(pid);
        // The mon is a mgr too; an OSD speaks with clients and with other OSDs, and has a port for
        // heartbeats on the network of each.
        let wanted = if daemon.starts_with("osd") { 4 } else { 2 };
        assert_eq!(ports.len(), wanted, "{daemon} listens at {ports:?}");
        let lines = log_lines(&cluster, daemon);
        let mut connections = 0;
        for addr in ports {
            let mut open = Vec::new();
            for (what, bytes, is_wrong) in nonsense() {
                let mut stream = TcpStream::connect(addr).unwrap();
                connections += 1;
                // It may be closed while we still send.
                let _ = stream.write_all(&bytes);
                if is_wrong {
                    assert!(is_closed(&mut stream), "{daemon} at {addr} after {what}");
                } else {
                    open.push(stream);
                }
            }
        }
        let more = log_lines(&cluster, daemon) - lines;
        assert!(more <= connections + OTHER_LINES, "{more} lines in the log of {daemon}");
        let socket = cluster.dir().join(format!("{daemon}.asok"));
        for bytes in [&b"\0"[..], b"{\0", b"nonsense\n", &[0xff; 70_000], b"half a line"] {
            let mut stream = UnixStream::connect(&socket).unwrap();
            let _ = stream.write_all(bytes);
        }
    }
    // All live, and serve.
    assert_eq!(daemons.map(|d| cluster.pid(d)), pids);
    let got = cluster.rados().args(["-p", "rbd", "get", "x", "-"]).text();
    assert_eq!(got, "before");
    for daemon in daemons {
        cluster.ceph().args(["daemon", daemon, "version"]).ok();
    }
    cluster.dev("stop").ok();
}

#[test]
fn a_thousand_silent_connections_keep_nobody_out() {
    if is_foreign() {
        return;
    }
    let cluster = Cluster::start(1, "256M");
    let mut silent = Vec::new();
    for daemon in ["mon.a", "osd.0"] {
        for addr in listening(cluster.pid(daemon)) {
            silent.extend((0..250).map(|_| TcpStream::connect(addr).unwrap()));
        }
    }
    let put = cluster.rados().args(["-p", "rbd", "put", "x", "-"]).stdin("served");
    put.limit(Duration::from_secs(30)).ok();
    // Whoever says nothing is not waited for for ever.
    let mut first = silent.swap_remove(0);
    let gone = Deadline::after(Duration::from_secs(90))
        .until(Duration::from_millis(100), || is_closed(&mut first));
    assert!(gone, "a silent connection stays open");
    drop(silent);
    cluster.dev("stop").ok();
}

/// CPU time of a process, in ticks of 10 ms.
fn cpu_ticks(pid: Pid) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// A daemon without file descriptors to spare does nothing in vain, and goes on when there are some.
#[test]
fn descriptors_that_run_out_are_waited_for() {
    const MON: &str = "mon.a";
    /// What it has open by itself is less.
    const FEW: usize = 48;
    if is_foreign() {
        return;
    }
    let c = Cluster::start(1, "256M");
    let pid = c.pid(MON);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).unwrap();
    let files = limits.lines().find(|l| l.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(words[3], words[4], "as many as may be");

    // It starts again with few.
    c.kill(MON);
    let few = format!("--nofile={FEW}:{FEW}");
    Tool::new("prlimit").args([&few, BINARY, "dev", "start", "--dir"]).arg(c.dir()).ok();
    let pid = c.pid(MON);
    let log = c.dir().join("mon.a.log");
    let told = || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.lines().filter(|l| l.contains("could not be accepted")).count()
    };
    let dialled: Vec<TcpStream> =
        (0..FEW).map(|_| TcpStream::connect(("127.0.0.1", c.mon_port())).unwrap()).collect();
    let deadline = Deadline::after(CLOSE_LIMIT);
    assert!(deadline.until(Duration::from_millis(10), || told() > 0));
    let ticks = cpu_ticks(pid);
    // Two seconds of it, which is what is measured.
    let two = Deadline::after(Duration::from_secs(2));
    two.until(Duration::from_millis(100), || false);
    let used = cpu_ticks(pid) - ticks;
    // Once each time that they run out: who started it may have left meanwhile.
    assert!((1..=3).contains(&told()), "{} lines", told());
    assert!(used < 40, "{used} ticks of CPU");
    drop(dialled);
    assert_eq!(c.ask("mon stat")["epoch"], 1);
}

//! The cluster that the tests share, and clusters of a test's own.

use super::tool::Tool;
use loligo::SyncClient;
use loligo::conf::ClientConf;
use loligo::wait::Deadline;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Names a running cluster to use instead of one of our own.
const CONF_ENV: &str = "LOLIGO_IT_CONF";
/// The built binary.
pub const BINARY: &str = env!("CARGO_BIN_EXE_loligo");
/// Enough for everything the tests store; the files are given their blocks at once, so not more.
const OSD_SIZE: &str = "2G";
/// The same when benchmarks run for more than a moment.
const LONG_OSD_SIZE: &str = "8G";

/// A running cluster.
pub struct Cluster {
    conf: PathBuf,
    /// Its folder, if it is a development cluster.
    dir: Option<PathBuf>,
}

static SHARED: OnceLock<Cluster> = OnceLock::new();

/// The cluster that the tests share.
pub fn shared() -> &'static Cluster {
    SHARED.get_or_init(|| match std::env::var_os(CONF_ENV) {
        Some(conf) => Cluster { conf: conf.into(), dir: None },
        None if super::bulk::seconds() > 2 => Cluster::start(3, LONG_OSD_SIZE),
        None => Cluster::start(3, OSD_SIZE),
    })
}

/// Whether the tests use a cluster that is not ours, and must not start any.
pub fn is_foreign() -> bool {
    std::env::var_os(CONF_ENV).is_some()
}

/// A port of 127.0.0.1 that nobody uses now. Not one that the kernel gives away by itself: a client
/// that dials such a port while nobody listens may be connected with itself, and hold the port.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    let start = std::process::id().wrapping_mul(97);
    loop {
        let n = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = (FIRST + n) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Ends the cluster in the folder `$1`, whatever is left of it, with the binary `$2`, and removes it.
const REMOVE: &str = r#""$2" dev stop --dir "$1"; umount -l "$1"/osd.*; rm -rf "$1""#;
/// How the folders of runs begin, in the temporary folder.
const ROOT_PREFIX: &str = "loligo-it-";

/// A shell that runs a script with a folder, and says nothing.
fn shell(script: &str, folder: &Path) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, "interop"]).arg(folder).arg(BINARY);
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell
}

/// What removes a run's folder and all clusters in it.
fn remove_all() -> String {
    format!("for d in \"$1\"/*; do (set -- \"$d\" \"$2\"; {REMOVE}); done; rm -rf \"$1\"")
}

/// The lock of a run's folder, unless somebody else has it.
fn lock(root: &Path) -> Option<std::fs::File> {
    let folder = std::fs::File::open(root).ok()?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(folder)
}

/// Removes what runs have left that could not remove it: the machine was switched off.
fn remove_stale_runs() {
    let folders = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for root in folders.map(|entry| entry.path()) {
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(ROOT_PREFIX)
            && let Some(_lock) = lock(&root)
        {
            let _ = shell(&remove_all(), &root).status();
        }
    }
}

/// A folder for a cluster. What is left of all of them is removed when the tests are over, however
/// they end: a shell waits for the end of a pipe whose other end is in this process.
fn guarded_dir() -> PathBuf {
    static GUARD: OnceLock<(PathBuf, std::fs::File, std::process::ChildStdin)> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    #[expect(clippy::zombie_processes, reason = "it outlives us: that is what it is for")]
    let (root, ..) = GUARD.get_or_init(|| {
        remove_stale_runs();
        let root = tempfile::Builder::new().prefix(ROOT_PREFIX).tempdir().unwrap().keep();
        let lock = lock(&root).expect("nobody else knows it");
        // The lock is the guard's, too: else the next run would remove what it is at.
        let script = format!("exec 3<&1 >/dev/null; cat; {}", remove_all());
        let mut guard = shell(&script, &root);
        guard.stdin(Stdio::piped()).stdout(lock.try_clone().unwrap());
        let mut guard = guard.spawn().unwrap();
        (root, lock, guard.stdin.take().unwrap())
    });
    root.join(format!("c{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

impl Cluster {
    /// A new cluster of a test's own.
    pub fn start(osds: u32, osd_size: &str) -> Self {
        Cluster::start_with(osds, osd_size, &[])
    }

    /// One whose OSDs are in the network namespaces `prefix` and their numbers.
    pub fn of_machines(osds: u32, osd_size: &str, prefix: &str) -> Self {
        Cluster::start_with(osds, osd_size, &["--namespaces", prefix])
    }

    fn start_with(osds: u32, osd_size: &str, more: &[&str]) -> Self {
        let cluster = Cluster::unborn();
        let port = free_port().to_string();
        let made = ["--osds", &osds.to_string(), "--port", &port, "--osd-size", osd_size];
        cluster.dev("start").args(made).args(more).ok();
        cluster.ceph().args(["config", "set", "mon", "mon_allow_pool_delete", "true"]).ok();
        cluster
    }

    /// One that is not there yet.
    pub fn unborn() -> Self {
        assert!(!is_foreign(), "this test needs a cluster of its own");
        let dir = guarded_dir();
        Cluster { conf: dir.join("ceph.conf"), dir: Some(dir) }
    }

    /// Its folder; only of development clusters.
    pub fn dir(&self) -> &Path {
        self.dir.as_deref().expect("a development cluster")
    }

    /// `loligo dev COMMAND`
    pub fn dev(&self, command: &str) -> Tool {
        Tool::new(BINARY).args(["dev", command]).arg("--dir").arg(self.dir())
    }

    /// The mon's port.
    pub fn mon_port(&self) -> u16 {
        let state = std::fs::read(self.dir().join("loligo-dev.json")).unwrap();
        let state: Value = serde_json::from_slice(&state).unwrap();
        state["port"].as_u64().unwrap() as u16
    }

    /// Resident bytes of each OSD; none of a cluster that is somebody else's.
    pub fn osd_memory(&self) -> Vec<(String, u64)> {
        if self.dir.is_none() {
            return Vec::new();
        }
        let status = self.dev("status").arg("--json").json();
        let daemons = status["daemons"].as_object().unwrap().iter();
        let osds = daemons.filter(|(name, _)| name.starts_with("osd"));
        osds.map(|(name, d)| (name.clone(), d["resident_bytes"].as_u64().unwrap())).collect()
    }

    /// The process of a daemon that runs.
    pub fn pid(&self, daemon: &str) -> Pid {
        self.pid_of(daemon).unwrap_or_else(|| panic!("{daemon} does not run"))
    }

    /// The process of a daemon, if it runs.
    pub fn pid_of(&self, daemon: &str) -> Option<Pid> {
        let status = self.dev("status").arg("--json").run();
        let status: Value = serde_json::from_slice(&status.out).unwrap_or_default();
        let pid = status["daemons"][daemon]["pid"].as_i64()?;
        Pid::from_raw(i32::try_from(pid).ok()?)
    }

    /// Sends a daemon a signal, if it runs.
    pub fn signal(&self, daemon: &str, signal: Signal) {
        if let Some(pid) = self.pid_of(daemon) {
            kill_process(pid, signal).unwrap();
        }
    }

    /// `kill -9` of a daemon that runs.
    pub fn kill(&self, daemon: &str) {
        kill_process(self.pid(daemon), Signal::KILL).unwrap();
    }

    /// An orderly end; the stores are whole.
    pub fn stop_and_check_stores(&self) {
        self.dev("stop").ok();
        let folders = std::fs::read_dir(self.dir()).unwrap().map(|entry| entry.unwrap().path());
        let is_store = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("osd.") && path.is_dir()
        };
        let stores: Vec<_> = folders.filter(is_store).collect();
        assert!(!stores.is_empty(), "{} has no stores", self.dir().display());
        for store in stores {
            Tool::new(BINARY).args(["store", "fsck"]).arg(store).ok();
        }
    }

    /// `kill -9` of all daemons at once.
    pub fn kill_all(&self) {
        let status = self.dev("status").arg("--json").json();
        let daemons = status["daemons"].as_object().unwrap().values();
        for pid in daemons.map(|d| d["pid"].as_i64().unwrap()) {
            kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
        }
    }

    /// What clients are given as CEPH_CONF.
    pub fn conf(&self) -> &Path {
        &self.conf
    }

    pub fn rados(&self) -> Tool {
        Tool::new("rados").env("CEPH_CONF", &self.conf)
    }

    pub fn ceph(&self) -> Tool {
        // The CLI would wait for ever.
        Tool::new("ceph").env("CEPH_CONF", &self.conf).args(["--connect-timeout", "30"])
    }

    /// Debian's Python, which has the `rados` module.
    pub fn python(&self, script: &Path) -> Tool {
        Tool::new("/usr/bin/python3").env("CEPH_CONF", &self.conf).arg(script)
    }

    /// Output of a `ceph` command as JSON.
    pub fn ask(&self, command: &str) -> Value {
        self.ceph().args(command.split(' ')).args(["-f", "json"]).json()
    }

    pub fn client(&self) -> SyncClient {
        let conf = ClientConf::load(&self.conf).unwrap();
        SyncClient::connect(&conf, Duration::from_secs(30)).unwrap()
    }

    /// A pool of a test's own, ready for use.
    pub fn pool(&'static self, name: &str) -> Pool {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("it-{}-{n}-{name}", std::process::id());
        self.ceph().args(["osd", "pool", "create", &name, "8", "8"]).ok();
        self.ceph().args(["osd", "pool", "application", "enable", &name, "it"]).ok();
        self.wait_until_clean(Duration::from_secs(60));
        Pool { cluster: self, name }
    }

    pub fn wait_until_clean(&self, limit: Duration) {
        let mut last = Value::Null;
        let clean = Deadline::after(limit).until(Duration::from_millis(100), || {
            last = self.ask("status")["pgmap"].clone();
            let states = last["pgs_by_state"].as_array().cloned().unwrap_or_default();
            let is_clean = |s: &&Value| s["state_name"] == "active+clean";
            let count = |s: &Value| s["count"].as_u64().unwrap();
            states.iter().filter(is_clean).map(count).sum::<u64>() == last["num_pgs"]
        });
        assert!(clean, "not clean after {limit:?}: {last}\n{}", self.troubles());
    }

    /// What is wrong, what OSDs are at, and the end of each daemon's log. It never fails.
    pub fn troubles(&self) -> String {
        const LINES: usize = 12;
        let mut text = self.told(&["health", "detail"]);
        text.push_str(&self.told(&["osd", "tree"]));
        for entry in std::fs::read_dir(self.dir()).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|e| e != "log") {
                continue;
            }
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(LINES)..].join("\n");
            text.push_str(&format!("-- {}\n{end}\n", path.display()));
            let daemon = path.file_stem().unwrap_or_default().to_string_lossy();
            if daemon.starts_with("osd.") {
                text.push_str(&self.oldest_requests(&daemon));
            }
        }
        text
    }

    /// What an OSD's oldest requests wait for.
    fn oldest_requests(&self, osd: &str) -> String {
        const REQUESTS: usize = 5;
        let told = self.told(&["tell", osd, "dump_ops_in_flight"]);
        let told: Value = serde_json::from_str(&told).unwrap_or_default();
        let ops = told["ops"].as_array().cloned().unwrap_or_default();
        let line = |op: &Value| {
            let last = op["type_data"]["events"].as_array().and_then(|e| e.last()).cloned();
            let event = &last.unwrap_or_default()["event"];
            format!("   for {} s: {}: {event}\n", op["age"], op["description"])
        };
        let lines: String = ops.iter().take(REQUESTS).map(line).collect();
        format!("-- {osd}: {} requests\n{lines}", ops.len())
    }

    /// What `ceph` says, whatever it is.
    fn told(&self, args: &[&str]) -> String {
        let limited = ["10", "ceph", "--connect-timeout", "5"];
        let mut ceph = Command::new("timeout");
        let ran = ceph.args(limited).args(args).env("CEPH_CONF", &self.conf).output();
        ran.map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned()).unwrap_or_default()
    }
}

/// Whoever reads that a test failed wants to know what its cluster was at; the next test wants its
/// space.
impl Drop for Cluster {
    fn drop(&mut self) {
        let Some(dir) = self.dir.as_deref().filter(|dir| dir.exists()) else { return };
        if std::thread::panicking() {
            eprintln!("{}", self.troubles());
        }
        let _ = shell(REMOVE, dir).status();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Room for the pools of other tests. When it fails, those will say so.
        let name = &self.name;
        let sure = "--yes-i-really-really-mean-it";
        self.cluster.ceph().args(["osd", "pool", "delete", name, name, sure]).run();
    }
}

/// A pool of a test's own.
pub struct Pool {
    pub cluster: &'static Cluster,
    pub name: String,
}

impl Pool {
    /// `rados -p POOL ...`
    pub fn rados(&self) -> Tool {
        self.cluster.rados().args(["-p", &self.name])
    }

    /// Runs a line of `rados` that must succeed.
    pub fn ok(&self, line: &str) -> String {
        self.rados().args(line.split(' ')).text()
    }

    pub fn put(&self, name: &str, data: &[u8]) {
        self.rados().args(["put", name, "-"]).stdin(data).ok();
    }

    pub fn get(&self, name: &str) -> Vec<u8> {
        self.rados().args(["get", name, "-"]).ok()
    }

    /// The names in the default namespace, sorted.
    pub fn ls(&self) -> Vec<String> {
        let mut names: Vec<String> = self.ok("ls").lines().map(str::to_owned).collect();
        names.sort();
        names
    }
}

/// Bytes that tell one place from another.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed) | 1 << 40;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

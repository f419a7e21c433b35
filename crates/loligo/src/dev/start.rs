//! `loligo dev start`: from an empty folder, or one of a cluster in whatever state, to a cluster that
//! is up and clean.

use super::health::{self, Health};
use super::layout::{DaemonId, Layout};
use super::process::{self, Started};
use super::state::{Lock, Osd, State};
use super::{layout, status};
use crate::cli::DevStart;
use crate::conf::{ClientConf, DEFAULT_MON_PORT, dev_conf};
use crate::failure::{Context, Exit, Failure};
use crate::files::{free_bytes, quoted, write_atomically};
use crate::progress::Progress;
use crate::sizes::Bytes;
use crate::store_tool::{self, MIN_DISK_BYTES, NewStore};
use crate::sync_client::SyncClient;
use crate::wait::Deadline;
use client::{ClientError, Completion, Object, ObjectOp, Outcome, RequestId};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use types::{Errno, OsdId};

const DEFAULT_OSDS: u32 = 3;
const DEFAULT_OSD_BYTES: u64 = 10 << 30;
/// When the size is ours to choose, all disks together take this part of what is free at most.
const SHARE_OF_FREE: u64 = 2;
const POOL: &str = "rbd";
const POOL_PGS: u32 = 32;
/// Time for everything that is waited for, from the first process to the last PG.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a port is waited for.
const PORT_LIMIT: Duration = Duration::from_secs(2);
/// Patience of one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// Carries out `loligo dev start`.
///
/// # Errors
/// When there is no healthy cluster at the end; what runs then goes on.
pub fn run(args: &DevStart) -> Result<Exit, Failure> {
    let layout = layout(&args.place)?;
    // Before the lock, which makes a file: a folder of others is not touched.
    if State::load(&layout)?.is_none()
        && let Some(why) = layout.unsuited()
    {
        let what = format!("cannot make a cluster in {}", layout.dir().display());
        return Err(Failure::new(what, why).advise("Name another folder by --dir."));
    }
    let _lock = Lock::take(&layout)?;
    let mut state = match State::load(&layout)? {
        Some(state) => state,
        None => State::new(args.port.unwrap_or(DEFAULT_MON_PORT)),
    };
    check_machine(&state, &layout)?;
    shape(&mut state, args, &layout)?;
    state.save(&layout)?;
    write_atomically(&layout.conf(), &dev_conf(layout.dir(), state.fsid()?, state.mon_addr()))?;
    format_new_osds(&mut state, &layout)?;
    let mut bring_up = BringUp {
        layout: &layout,
        state: &state,
        deadline: Deadline::after(START_LIMIT),
        progress: Progress::new(),
        started: Vec::new(),
    };
    let took = bring_up.all()?;
    drop(bring_up);
    state.has_run = true;
    state.save(&layout)?;
    status::show(&layout, &state, &args.place, Some(took))
}

/// What the command line adds to a cluster, or must not change.
fn shape(state: &mut State, args: &DevStart, layout: &Layout) -> Result<(), Failure> {
    let refuse = |why: String, advice: &str| {
        let what = format!("cannot change the cluster in {}", layout.dir().display());
        Err(Failure::new(what, why).advise(advice).exit(Exit::Refused))
    };
    if let Some(port) = args.port.filter(|p| *p != state.port) {
        let why = format!("its monitor is known by port {}, not {port}", state.port);
        return refuse(why, "Leave out --port, or make another cluster in another folder.");
    }
    if args.namespaces.is_some() && state.osds.is_empty() {
        state.namespaces.clone_from(&args.namespaces);
    }
    let wish = state.forget_unmade();
    let have = state.osds.len() as u32;
    let want = args.osds.unwrap_or(match (have, wish) {
        // A first start that was cut short goes on as it began.
        (_, Some(wish)) if !state.has_run => have + wish.osds,
        (0, _) => DEFAULT_OSDS,
        _ => have,
    });
    if want < have {
        let why = format!("it has {have} OSDs; with {want} some data would be gone");
        return refuse(why, "Leave out --osds, or make another cluster in another folder.");
    }
    if want > have {
        let wished = wish.filter(|_| !state.has_run).map(|wish| wish.bytes);
        let size = args.osd_size.map(|size| size.0).or(wished);
        let bytes = osd_bytes(size, want - have, layout)?;
        state.osds.extend((have..want).map(|id| Osd { id, bytes, formatted: false }));
    } else if let Some(size) = args.osd_size
        && state.osds.iter().any(|osd| osd.bytes != size.0)
    {
        eprintln!("--osd-size counts for new OSDs only: those that are there stay as they are");
    }
    Ok(())
}

/// The size of each of `n` new disks.
fn osd_bytes(size: Option<u64>, n: u32, layout: &Layout) -> Result<u64, Failure> {
    let free = free_bytes(layout.dir())?;
    let n = u64::from(n);
    let fit = free / SHARE_OF_FREE / n;
    let bytes = size.unwrap_or(DEFAULT_OSD_BYTES.min(fit));
    let dir = layout.dir().display();
    if bytes < MIN_DISK_BYTES {
        let least = Bytes(MIN_DISK_BYTES);
        if size.is_some() {
            let why = format!("an OSD needs {least} at least");
            return Err(Failure::new(format!("disks of {} are too small", Bytes(bytes)), why));
        }
        let why = format!(
            "{} are free, and half of it is left to others; {n} OSDs need {least} each",
            Bytes(free)
        );
        return Err(Failure::new(format!("no space for a cluster in {dir}"), why)
            .advise("Free some, ask for fewer --osds, or name a folder on another disk by --dir.")
            .exit(Exit::Machine));
    }
    if bytes.saturating_mul(n) > free {
        let why = format!("{n} times {} are wanted, {} are free", Bytes(bytes), Bytes(free));
        return Err(Failure::new(format!("no space for a cluster in {dir}"), why)
            .advise("Ask for less by --osd-size, or name a folder on another disk by --dir.")
            .exit(Exit::Machine));
    }
    Ok(bytes)
}

/// Whether this machine can run it: before anything is made.
fn check_machine(state: &State, layout: &Layout) -> Result<(), Failure> {
    struct Nothing;
    impl io::Core for Nothing {
        fn handle(&mut self, _: io::Now, _: io::Event, fx: &mut io::Effects) {
            fx.exit(0, "it works");
        }
        fn end_turn(&mut self, _: io::Now, _: &mut io::Effects) {}
        fn next_deadline(&self) -> Option<types::Mono> {
            None
        }
    }
    let options = uring::Options { handle_signals: false, ..uring::Options::default() };
    uring::run(&mut Nothing, Vec::new(), None, &options)
        .context(|| "cannot run a cluster on this machine".into())
        .map_err(|f| f.exit(Exit::Machine))?;
    check_mon_store(state, layout)?;
    check_port(state.mon_addr(), layout)
}

/// Whether somebody listens there.
fn is_taken(addr: SocketAddr) -> bool {
    TcpListener::bind(addr).is_err_and(|e| e.kind() == std::io::ErrorKind::AddrInUse)
}

/// Whether the monitor can listen, or does. The port of one that was killed is free only some time
/// after its end, when the last operations of its ring are over.
fn check_port(addr: SocketAddr, layout: &Layout) -> Result<(), Failure> {
    let mut failure = None;
    let free = Deadline::after(PORT_LIMIT).until(LOOK_EVERY, || {
        let runs = process::running(layout, DaemonId::Mon).is_some();
        failure = TcpListener::bind(addr).err().filter(|_| !runs);
        failure.as_ref().is_none_or(|e| e.kind() != std::io::ErrorKind::AddrInUse)
    });
    let Some(e) = failure else {
        return Ok(());
    };
    let (why, advice) = if free {
        (e.to_string(), "Choose another port by --port.".to_owned())
    } else {
        let port = addr.port();
        let advice = format!(
            "Choose another port by --port, or end that process (`ss -ltnp sport = :{port}` shows \
             it)."
        );
        ("the port is taken by another process".to_owned(), advice)
    };
    let what = format!("cannot start the monitor at {addr}");
    Err(Failure::new(what, why).advise(advice).exit(Exit::Machine))
}

/// A monitor without its store would make a new, empty cluster, in which the OSDs' data are nobody's.
fn check_mon_store(state: &State, layout: &Layout) -> Result<(), Failure> {
    let store = layout.mon_store();
    if !state.has_run || store.exists() {
        return Ok(());
    }
    let why = format!("{} is gone; without its maps nobody knows what is where", store.display());
    Err(Failure::new("cannot start the monitor", why)
        .advise("Put it back from a copy, or make another cluster in another folder.")
        .exit(Exit::Refused))
}

/// Makes the stores of OSDs that have none. A try that was cut short is begun anew: no OSD ever ran
/// on it.
fn format_new_osds(state: &mut State, layout: &Layout) -> Result<(), Failure> {
    let fsid = state.fsid()?;
    std::fs::create_dir_all(layout.data(DaemonId::Mon))
        .context(|| "cannot make the monitor's folder".into())?;
    for i in 0..state.osds.len() {
        let osd = state.osds[i].clone();
        if osd.formatted {
            continue;
        }
        let what = || format!("cannot make the folder of osd.{}", osd.id);
        std::fs::create_dir_all(layout.data(DaemonId::Osd(osd.id))).context(what)?;
        let block = layout.block(osd.id);
        if block.exists() {
            std::fs::remove_file(&block).context(what)?;
        }
        store_tool::mkfs(&NewStore {
            path: &block,
            wal: None,
            cluster: fsid,
            osd: OsdId(osd.id.cast_signed()),
            bytes: Some(osd.bytes),
            force: false,
        })?;
        state.osds[i].formatted = true;
        state.save(layout)?;
    }
    Ok(())
}

/// Starting the processes, and waiting for what comes of them.
struct BringUp<'a> {
    layout: &'a Layout,
    state: &'a State,
    deadline: Deadline,
    progress: Progress,
    started: Vec<Started>,
}

impl BringUp<'_> {
    /// Everything. How long it took.
    fn all(&mut self) -> Result<Duration, Failure> {
        self.start_missing()?;
        let conf = ClientConf::load(&self.layout.conf())?;
        let mut client = SyncClient::connect(&conf, REQUEST_LIMIT)?;
        self.wait_for_mon(&mut client)?;
        self.wait_for_osds(&mut client)?;
        self.make_pool(&mut client)?;
        self.wait_for_clean(&mut client)?;
        self.try_an_object(&mut client)?;
        self.progress.clear();
        client.close()?;
        Ok(self.deadline.elapsed())
    }

    /// Starts what neither runs nor was started. A process that was killed may seem to run until the
    /// kernel is done with it, so this is looked at again and again.
    fn start_missing(&mut self) -> Result<(), Failure> {
        for daemon in self.state.daemons() {
            let was_started = self.started.iter().any(|s| s.daemon == daemon);
            // The port of a monitor that was just killed is not free at once.
            let is_early = || daemon == DaemonId::Mon && is_taken(self.state.mon_addr());
            if !was_started && process::running(self.layout, daemon).is_none() && !is_early() {
                self.started.push(process::start(self.layout, self.state, daemon)?);
            }
        }
        Ok(())
    }

    /// Looks until there is something. Fails as soon as a daemon has ended, and when the time is
    /// over; `look` says what it waits for.
    fn wait<T>(
        &mut self,
        mut look: impl FnMut() -> Result<Result<T, String>, Failure>,
    ) -> Result<T, Failure> {
        let mut waits_for = String::new();
        let (deadline, layout) = (self.deadline, self.layout);
        let found = deadline.poll(LOOK_EVERY, || {
            let ended = self.started.iter_mut().find_map(|s| s.failure(layout));
            if let Some(failure) = ended.or_else(|| self.start_missing().err()) {
                return Some(Err(failure));
            }
            match look() {
                Err(failure) => Some(Err(failure)),
                Ok(Ok(found)) => Some(Ok(found)),
                Ok(Err(what)) => {
                    self.progress.waiting(&what, deadline.elapsed());
                    waits_for = what;
                    None
                }
            }
        });
        found.unwrap_or_else(|| {
            let limit = self.deadline.limit().as_secs();
            let dir = quoted(self.layout.dir());
            let what = format!("the cluster in {dir} is not ready after {limit} s");
            Err(Failure::new(what, format!("still {waits_for}")).advise(format!(
                "What runs goes on: look at it with `loligo dev status --dir {dir}` and at the logs \
                 in {dir}, and stop it with `loligo dev stop --dir {dir}`."
            )))
        })
    }

    fn wait_for_mon(&mut self, client: &mut SyncClient) -> Result<(), Failure> {
        let fsid = self.state.fsid()?;
        let addr = self.state.mon_addr();
        self.wait(|| {
            let (cluster, map) = client.call(|_, c| (c.fsid(), c.map().is_some()))?;
            match cluster {
                Some(other) if other != fsid => {
                    let what = format!("the monitor at {addr} is not ours");
                    let why = format!("it is of cluster {other}; ours is {fsid}");
                    Err(Failure::new(what, why).exit(Exit::Refused))
                }
                Some(_) if map => Ok(Ok(())),
                _ => Ok(Err(format!("waiting for the monitor at {addr}"))),
            }
        })
    }

    /// Until each OSD that the map has as up has answered. A process that was killed may seem to run
    /// for a while, and the map still has it as up: it never answers.
    fn wait_for_osds(&mut self, client: &mut SyncClient) -> Result<(), Failure> {
        let ids = self.state.osds.iter().map(|o| OsdId(o.id.cast_signed()));
        let mut silent: BTreeMap<OsdId, Option<RequestId>> = ids.map(|id| (id, None)).collect();
        self.wait(|| {
            // Also completions of waits for a map, for which nobody asked.
            while let Some(Completion { id, outcome }) = client.next(Duration::ZERO)? {
                let asked = silent.iter().find(|(_, asked)| **asked == Some(id));
                match (asked.map(|(osd, _)| *osd), outcome) {
                    (Some(osd), Outcome::Command(Ok(_))) => drop(silent.remove(&osd)),
                    (Some(osd), _) => drop(silent.insert(osd, None)),
                    (None, _) => {}
                }
            }
            let mut asked = std::mem::take(&mut silent);
            let down: Vec<OsdId>;
            (silent, down) = client.call(move |now, c| {
                let Some(map) = c.map().cloned() else { return (asked, Vec::new()) };
                for (osd, id) in asked.iter_mut().filter(|(osd, _)| map.is_up(**osd)) {
                    id.get_or_insert_with(|| c.tell(now, *osd, r#"{"prefix": "version"}"#, ""));
                }
                let down: Vec<OsdId> = asked.keys().copied().filter(|o| map.is_down(*o)).collect();
                if !down.is_empty() {
                    c.wait_for_map(now, map.epoch.next());
                }
                (asked, down)
            })?;
            if silent.is_empty() {
                return Ok(Ok(()));
            }
            let (osds, what) = match down.is_empty() {
                true => (silent.keys().copied().collect(), "answer"),
                false => (down, "be up"),
            };
            let osds: Vec<String> = osds.iter().map(|osd| format!("osd.{osd}")).collect();
            Ok(Err(format!("waiting for {} to {what}", osds.join(", "))))
        })
    }

    /// Makes the pool `rbd` if there is none.
    fn make_pool(&mut self, client: &mut SyncClient) -> Result<(), Failure> {
        let failed = |e: ClientError| Failure::new(format!("cannot look for pool `{POOL}`"), e);
        match client.pool(POOL) {
            Ok(_) => return Ok(()),
            Err(e) if e.errno == Errno::ENOENT => {}
            Err(e) => return Err(failed(e)),
        }
        client.must(&json!({"prefix": "osd pool create", "pool": POOL, "pg_num": POOL_PGS,
                    "pgp_num": POOL_PGS, "pool_type": "replicated", "size": self.state.copies()}))?;
        client
            .must(&json!({"prefix": "osd pool application enable", "pool": POOL, "app": "rbd"}))?;
        Ok(())
    }

    /// Until all PGs are clean that can be. Says which pools cannot.
    fn wait_for_clean(&mut self, client: &mut SyncClient) -> Result<(), Failure> {
        let osds = self.state.osds.len();
        let beyond = self.wait(|| {
            let health = Health::ask(client)
                .map_err(|e| Failure::new("cannot ask the cluster how it is", e))?;
            if health.is_clean() {
                return Ok(Ok(Vec::new()));
            }
            let beyond = health::beyond_osds(client, osds)?;
            if !beyond.is_empty() && health::others_are_clean(client, &beyond)? {
                return Ok(Ok(beyond));
            }
            Ok(Err(format!("waiting for PGs to be active+clean: {}", health.pg_summary())))
        })?;
        let force = if osds == 1 { " --yes-i-really-mean-it" } else { "" };
        for health::Beyond { name, size, .. } in beyond {
            self.progress.clear();
            eprintln!(
                "Pool `{name}` wants {size} copies, which the {osds} OSDs cannot have: its PGs will not be clean. \
                 Start more (--osds {size}), or say that fewer do: ceph osd pool set {name} size {osds}{force}"
            );
        }
        Ok(())
    }

    /// The proof: an object is stored, read and removed.
    fn try_an_object(&mut self, client: &mut SyncClient) -> Result<(), Failure> {
        self.progress.waiting("storing and reading an object", self.deadline.elapsed());
        let failed = |what: &str, e: &dyn std::fmt::Display| {
            Failure::new(format!("the cluster is up, but {what}"), e)
        };
        let pool = client.pool(POOL).map_err(|e| failed("its pool cannot be found", &e))?;
        let object = Object::new(pool, ".loligo-dev-start");
        let data = format!("stored by loligo dev start, process {}", std::process::id());
        client
            .put(object.clone(), data.clone())
            .map_err(|e| failed("an object cannot be stored", &e))?;
        let got = client.get(object.clone()).map_err(|e| failed("it cannot be read", &e))?;
        if got != data {
            return Err(failed("an object came back changed", &"this must never happen"));
        }
        let removed = client.op(ObjectOp::new(object).remove());
        removed.map(drop).map_err(|e| failed("an object cannot be removed", &e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::DevWhere;

    struct Case {
        layout: Layout,
        state: State,
        _dir: tempfile::TempDir,
    }

    impl Case {
        /// A cluster of OSDs of so many bytes; the last ones were not made.
        fn new(has_run: bool, osds: &[(u64, bool)]) -> Case {
            let dir = tempfile::tempdir().unwrap();
            let layout = Layout::new(dir.path().to_owned());
            let osds = (0..).zip(osds);
            let osds = osds.map(|(id, &(bytes, formatted))| Osd { id, bytes, formatted });
            let mut state = State::new(3300);
            (state.has_run, state.osds) = (has_run, osds.collect());
            Case { layout, state, _dir: dir }
        }

        /// The sizes of its OSDs after a start.
        fn start(&mut self, osds: Option<u32>, size: Option<u64>) -> Result<Vec<u64>, Exit> {
            let place = DevWhere { dir: None, json: false };
            let osd_size = size.map(Bytes);
            let args = DevStart { place, osds, port: None, namespaces: None, osd_size };
            shape(&mut self.state, &args, &self.layout).map_err(|f| f.exit)?;
            Ok(self.state.osds.iter().map(|osd| osd.bytes).collect())
        }
    }

    const SMALL: u64 = 64 << 20;
    const LESS: u64 = 65 << 20;
    const BEYOND: u64 = 1 << 60;

    /// There was no space for one more: the cluster is what it was.
    #[test]
    fn an_osd_that_could_not_be_added_is_not_there() {
        let failed = || Case::new(true, &[(SMALL, true), (BEYOND, false)]);
        assert_eq!(failed().start(None, None), Ok(vec![SMALL]));
        assert_eq!(failed().start(Some(1), None), Ok(vec![SMALL]));
        assert_eq!(failed().start(Some(2), Some(LESS)), Ok(vec![SMALL, LESS]));
        assert_eq!(failed().start(None, Some(LESS)), Ok(vec![SMALL]));
        assert_eq!(failed().start(Some(2), Some(BEYOND)), Err(Exit::Machine));
        let mut whole = Case::new(true, &[(SMALL, true), (SMALL, true)]);
        assert_eq!(whole.start(Some(1), None), Err(Exit::Refused), "it has data");
    }

    /// It is begun again as it was asked for, or with less.
    #[test]
    fn a_first_start_that_was_cut_short_goes_on() {
        let cut = |bytes| Case::new(false, &[(SMALL, true), (bytes, false), (bytes, false)]);
        assert_eq!(cut(LESS).start(None, None), Ok(vec![SMALL, LESS, LESS]));
        assert_eq!(cut(BEYOND).start(None, Some(SMALL)), Ok(vec![SMALL; 3]));
        assert_eq!(cut(BEYOND).start(Some(1), None), Ok(vec![SMALL]));
        assert_eq!(cut(LESS).start(Some(2), None), Ok(vec![SMALL, LESS]));
    }
}

//! The command line.

use crate::bench::BenchArgs;
use crate::logging::Logging;
use crate::sizes::Bytes;
use clap::{ArgMatches, Args, FromArgMatches, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use tracing_subscriber::filter::LevelFilter;
use types::{PgId, Uuid};

const ABOUT: &str = "A storage cluster that speaks Ceph's protocol";
const LONG_ABOUT: &str = "\
Loligo is a storage cluster. Its daemons, a monitor and one OSD a disk, speak Ceph's protocol: \
rados, librados, ceph and everything on top of them work against it unchanged.

Begin with `loligo dev start`: a whole cluster on this machine, in a folder of its own.";
const AFTER: &str = "\
Exit codes:
  0  done
  1  failed
  2  the command line makes no sense
  3  it does not run, or not all of it
  4  this machine cannot: port taken, disk full, no io_uring
  5  refused for the sake of data: another cluster's, damaged, or in use
  6  a store was read, and is damaged";

/// Everything on the command line.
#[derive(Debug, Parser)]
#[command(name = "loligo", version, about = ABOUT, long_about = LONG_ABOUT, after_long_help = AFTER)]
#[command(propagate_version = true, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,

    /// Options about the log
    #[command(flatten)]
    pub logging: Logging,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// A cluster on this machine: start, stop, status
    Dev(DevArgs),
    /// Run a monitor
    Mon(MonArgs),
    /// Run an OSD
    Osd(OsdArgs),
    /// Make, check and show the store of an OSD that does not run
    Store(StoreArgs),
    /// Load a cluster with our own client, and measure
    Bench(BenchArgs),
}

impl Command {
    /// Whether it runs until it is stopped.
    pub fn is_daemon(&self) -> bool {
        matches!(self, Command::Mon(_) | Command::Osd(OsdArgs::Run(_)))
    }

    /// How much is logged unless the command line says otherwise.
    pub fn default_level(&self) -> LevelFilter {
        if self.is_daemon() { LevelFilter::INFO } else { LevelFilter::WARN }
    }
}

/// `loligo dev`
#[derive(Debug, Args)]
pub struct DevArgs {
    /// What to do with it
    #[command(subcommand)]
    pub command: DevCommand,
}

/// What to do with a development cluster.
#[derive(Debug, Subcommand)]
pub enum DevCommand {
    /// Start a cluster, making it if there is none; also after a crash
    #[command(after_help = "\
Everything is in DIR: data, logs, admin sockets, and ceph.conf for clients. Starting again \
brings the same data up. Options that shape a cluster count when it is made; more OSDs can be \
added later.")]
    Start(DevStart),
    /// Stop a cluster in good order
    Stop(DevWhere),
    /// Show what runs, and how it is
    Status(DevWhere),
}

/// Which development cluster.
#[derive(Clone, Debug, Args)]
pub struct DevWhere {
    /// The cluster's folder [default: loligo/dev in the user's state folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `loligo dev start`
#[derive(Clone, Debug, Args)]
pub struct DevStart {
    /// Which cluster
    #[command(flatten)]
    pub place: DevWhere,

    /// Number of OSDs [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub osds: Option<u32>,

    /// The monitor's port on 127.0.0.1 [default: 3300]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// Each OSD is a machine of its own: it runs in the network namespace PREFIX and its number, and
    /// has the address 10.77.0.10 plus its number; the monitor has 10.77.0.1
    #[arg(long, value_name = "PREFIX", hide = true)]
    pub namespaces: Option<String>,

    /// Bytes of each new OSD's disk: 10G, 512M [default: 10G, or what the disk has room for]
    #[arg(long, value_name = "SIZE")]
    pub osd_size: Option<Bytes>,
}

/// What both daemons need to know about their process.
#[derive(Clone, Debug, Args)]
pub struct DaemonArgs {
    /// Admin socket, for `ceph daemon PATH ...`
    #[arg(long, value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,

    /// Write the process's number here, and hold a lock on it
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,

    /// What a crash leaves goes here, and is posted to the mon from here (`ceph crash ls`)
    #[arg(long, value_name = "DIR")]
    pub crash_dir: Option<PathBuf>,

    /// Leave the terminal's session
    #[arg(long, hide = true)]
    pub detached: bool,
}

/// `loligo mon`
#[derive(Clone, Debug, Args)]
pub struct MonArgs {
    /// Folder of the monitor's data
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,

    /// Its name
    #[arg(long, value_name = "NAME", default_value = "a")]
    pub name: String,

    /// The address it listens at, and is known by
    #[arg(long, value_name = "IP:PORT", value_parser = reachable)]
    pub addr: SocketAddr,

    /// The cluster's id; needed when the folder is empty
    #[arg(long, value_name = "UUID")]
    pub fsid: Option<Uuid>,

    /// An option of the configuration, NAME=VALUE
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub settings: Vec<(String, String)>,

    /// About the process
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// `loligo osd`: runs one, unless a subcommand says otherwise.
#[derive(Clone, Debug)]
pub enum OsdArgs {
    /// Run it.
    Run(Box<OsdRun>),
    /// Give an OSD whose disk goes a new, empty one.
    Replace(OsdReplace),
}

const REPLACE: &str = "replace";

impl Args for OsdArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let replace = OsdReplace::augment_args(clap::Command::new(REPLACE))
            .about("Give an OSD whose disk goes a new, empty one; refused if data would be lost")
            .after_help(
                "The OSD must not run. It keeps its number and its place; what belongs on it is copied \
                 to it when it is started again. Without --yes it is only said what would be done.",
            );
        OsdRun::augment_args(command)
            .about("Run an OSD")
            .subcommand(replace)
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OsdArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        match matches.subcommand_matches(REPLACE) {
            Some(replace) => OsdReplace::from_arg_matches(replace).map(OsdArgs::Replace),
            None => OsdRun::from_arg_matches(matches).map(|run| OsdArgs::Run(Box::new(run))),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// `loligo osd replace`
#[derive(Clone, Debug, Args)]
pub struct OsdReplace {
    /// Its number
    #[arg(long, value_name = "N", value_parser = osd_number())]
    pub id: u32,

    /// Folder of the OSD's data; its disk is `block` in it
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,

    /// The new disk, a block device or file; `block` becomes a link to it, and if it was a file, that
    /// is kept as `block.old` [default: the disk it has]
    #[arg(long, value_name = "PATH")]
    pub disk: Option<PathBuf>,

    /// Size of a file that is to be made
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,

    /// Of the cluster [default: $CEPH_CONF, or /etc/ceph/ceph.conf]
    #[arg(long, value_name = "FILE")]
    pub conf: Option<PathBuf>,

    /// Also while PGs have fewer copies than they should
    #[arg(long)]
    pub accept_fewer_copies: bool,

    /// Also if the new disk is another one, and the log has a disk of its own: it is made anew, and without it
    /// what the old disk holds cannot be read
    #[arg(long)]
    pub reuse_log: bool,

    /// Only say what would be done
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,

    /// Do it: what is on the disk is destroyed
    #[arg(long)]
    pub yes: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Running an OSD.
#[derive(Clone, Debug, Args)]
pub struct OsdRun {
    /// Folder of the OSD's data; its disk is `block` in it, a file or a link to a device
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,

    /// Its number
    #[arg(long, value_name = "N", value_parser = osd_number())]
    pub id: u32,

    /// Monitors, separated by commas
    #[arg(long, value_name = "IP:PORT,...", value_delimiter = ',', required = true)]
    #[arg(value_parser = reachable)]
    pub mon: Vec<SocketAddr>,

    /// The cluster's id; a store of another cluster is refused
    #[arg(long, value_name = "UUID")]
    pub fsid: Uuid,

    /// Where clients reach it; port 0 takes any
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0", value_parser = reachable)]
    pub addr: SocketAddr,

    /// Where other OSDs reach it [default: the same IP, any port]
    #[arg(long, value_name = "IP:PORT", value_parser = reachable)]
    pub cluster_addr: Option<SocketAddr>,

    /// Memory for everything it keeps, unless `ceph config set osd osd_memory_target` says otherwise
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub memory: Bytes,

    /// The host it stands in, for CRUSH [default: the machine's name]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,

    /// An option of the configuration, NAME=VALUE
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub settings: Vec<(String, String)>,

    /// hdd, ssd or nvme [default: what the kernel says of the disk]
    #[arg(long, value_name = "CLASS")]
    pub device_class: Option<String>,

    /// About the process
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// `loligo store`
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// What to do with it
    #[command(subcommand)]
    pub command: StoreCommand,
}

/// What to do with a store.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Make an empty store; what is there is never overwritten unless you say so
    Mkfs(StoreMkfs),
    /// Read everything, and say what is wrong; nothing is changed
    Fsck(StorePath),
    /// Show whose it is, and how full
    Info(StorePath),
    /// Count anew what each pool takes, where a start of the OSD would take too long for it
    #[command(after_help = "\
The store's metadata are read; large stores take minutes. It can be interrupted: nothing is written \
before all is counted. Until then the cluster estimates what the pools take on this OSD.")]
    Count(StorePath),
    /// List the objects, with their bytes; also of a damaged store
    Ls(StoreLs),
    /// Show one object: attributes, omap, extents, and its data into a file
    Dump(StoreDump),
    /// Write a PG's objects into a file; also of a damaged store, as far as they can be read
    Export(StoreExport),
    /// Bring an exported PG into the store of an OSD that does not run
    Import(StoreImport),
    /// Make a store and measure it: reads and durable writes, 4 KiB and 4 MiB
    #[command(after_help = "\
Half of the device, at most 8 GiB, is filled with objects of 4 MiB; then each test runs for the \
given time. What is read is not kept in memory: it is the device that is measured. A file that was \
made for it is removed in the end. bench/store-against-fio compares with fio.")]
    Bench(StoreBench),
}

/// `loligo store ls`
#[derive(Clone, Debug, Args)]
pub struct StoreLs {
    /// Which store
    #[command(flatten)]
    pub place: StorePath,

    /// Only objects of this pool; -1 has the OSD's own ones
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub pool: Option<i64>,
}

/// `loligo store dump`
#[derive(Clone, Debug, Args)]
pub struct StoreDump {
    /// Which store
    #[command(flatten)]
    pub place: StorePath,

    /// The object, as `loligo store ls` shows it
    #[arg(value_name = "OBJECT")]
    pub object: String,

    /// A new file for its data; what is damaged or a hole is zeros in it
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
}

/// `loligo store export`
#[derive(Clone, Debug, Args)]
pub struct StoreExport {
    /// Which store
    #[command(flatten)]
    pub place: StorePath,

    /// The PG: 2.1f
    #[arg(long, value_name = "PGID", value_parser = pgid)]
    pub pgid: PgId,

    /// A new file
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,

    /// PGs of its pool [default: what the PG's record says, or the newest map in the store]
    #[arg(long, value_name = "N")]
    pub pg_num: Option<u32>,
}

/// `loligo store import`
#[derive(Clone, Debug, Args)]
pub struct StoreImport {
    /// Which store
    #[command(flatten)]
    pub place: StorePath,

    /// What `loligo store export` wrote
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,

    /// Remove what the store has of the PG first
    #[arg(long)]
    pub force: bool,

    /// Import the PG though objects may be missing altogether: the list of objects was damaged in the
    /// store that it was exported from. Whoever reads one of these is told that it does not exist
    #[arg(long)]
    pub accept_incomplete: bool,
}

/// `loligo store bench`
#[derive(Clone, Debug, Args)]
pub struct StoreBench {
    /// A file or block device; what it holds is lost
    #[arg(value_name = "PATH")]
    pub path: PathBuf,

    /// A device for the log alone, faster than PATH
    #[arg(long, value_name = "PATH")]
    pub wal: Option<PathBuf>,

    /// Size of a file that is to be made; not needed for one that is there
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,

    /// Bytes of the objects [default: half of the device, at most 8G]
    #[arg(long, value_name = "SIZE")]
    pub span: Option<Bytes>,

    /// Bytes of each object [default: 4M]
    #[arg(long, value_name = "SIZE")]
    pub object_size: Option<Bytes>,

    /// Only these tests: read4m, read4k-q1, read4k-q32, write4k-q1, write4k-q32, write4m; or fill, for
    /// none of them
    #[arg(long, value_name = "TEST,...", value_delimiter = ',')]
    pub tests: Vec<String>,

    /// Then write so many times the bytes of all objects over them, in sizes from 4k to 1M, and test
    /// once more
    #[arg(long, value_name = "TIMES")]
    pub age: Option<u64>,

    /// At the end, end as a crash would while the log is nearly full, and measure the next mount
    #[arg(long)]
    pub crash: bool,

    /// Seconds of each test
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub seconds: u64,

    /// Memory for the store
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub memory: Bytes,

    /// Destroy what is there
    #[arg(long)]
    pub force: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `loligo store mkfs`
#[derive(Clone, Debug, Args)]
pub struct StoreMkfs {
    /// A file or block device
    #[arg(value_name = "PATH")]
    pub path: PathBuf,

    /// A device for the log alone, faster than PATH
    #[arg(long, value_name = "PATH")]
    pub wal: Option<PathBuf>,

    /// The cluster it is for
    #[arg(long, value_name = "UUID")]
    pub fsid: Uuid,

    /// The OSD it is for
    #[arg(long, value_name = "N", value_parser = osd_number())]
    pub id: u32,

    /// Size of a file that is to be made; not needed for one that is there
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,

    /// Destroy what is there
    #[arg(long)]
    pub force: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which store to read.
#[derive(Clone, Debug, Args)]
pub struct StorePath {
    /// A file or block device, or an OSD's folder
    #[arg(value_name = "PATH")]
    pub path: PathBuf,

    /// The device of its log, if it has one of its own
    #[arg(long, value_name = "PATH")]
    pub wal: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn pgid(text: &str) -> Result<PgId, String> {
    text.parse().map_err(|()| "a PG is a pool's number, a dot, and a hexadecimal number".into())
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is expected")?;
    Ok((name.trim().replace([' ', '-'], "_"), value.trim().to_owned()))
}

/// An address that is told to others.
fn reachable(text: &str) -> Result<SocketAddr, String> {
    let addr: SocketAddr = text.parse().map_err(|_| "IP:PORT is expected")?;
    if addr.ip().is_unspecified() {
        return Err("others must be able to reach it there: name one address".into());
    }
    Ok(addr)
}

/// OSDs are numbered from 0, and Ceph counts them in 31 bits.
fn osd_number() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=i64::from(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn bad_values_are_refused() {
        let bad = [
            "loligo dev start --osds 0",
            "loligo dev start --port 70000",
            "loligo dev start --osd-size much",
            "loligo osd --data x --id 1",
            "loligo osd --data x --id -1 --mon 127.0.0.1:3300",
            "loligo mon --data x --addr here",
            "loligo mon --data x --addr 0.0.0.0:3300",
            "loligo osd --data x --id 1 --mon 127.0.0.1:3300 --fsid FSID --addr [::]:0",
            "loligo osd --data x --id 1 --mon 0.0.0.0:3300 --fsid FSID",
            "loligo mon --data x --addr 127.0.0.1:3300 --set nothing",
        ];
        let parse = |line: &str| {
            let line = line.replace("FSID", "11111111-2222-4333-8444-555555555555");
            Cli::try_parse_from(line.split(' '))
        };
        for line in bad {
            assert!(parse(line).is_err(), "{line}");
        }
        let good = "loligo osd --data x --id 1 --mon 127.0.0.1:3300 --fsid FSID --addr [::1]:0";
        assert!(parse(good).is_ok());
    }
}

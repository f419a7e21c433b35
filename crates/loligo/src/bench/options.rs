//! The command line, with fio's words, and what is made of it.

use crate::conf::ClientConf;
use crate::failure::Failure;
use crate::sizes::Bytes;
use clap::{Args, Subcommand, ValueEnum};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use types::AddrVec;

/// Bytes of the objects of `bench rados`, unless asked for otherwise.
const DEFAULT_SIZE_BYTES: u64 = 256 << 20;
/// The least that one operation reads or writes.
const MIN_BLOCK_BYTES: u64 = 512;
/// The most that one operation reads or writes: OSDs refuse writes of more than 90 MiB.
const MAX_BLOCK_BYTES: u64 = 64 << 20;

/// `loligo bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What is loaded
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// What is loaded.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Load a pool with requests on objects, and measure
    #[command(after_help = "\
Objects are named PREFIX.JOB.NUMBER. What is to be read is written first, unless --no-fill says \
that an earlier run with --no-cleanup did so; then they are left, too, unless --cleanup asks for the \
contrary. Otherwise they are removed at the end. With objects of the \
size of an operation, `--rw write` does what `rados bench write` does.")]
    Rados(BenchRados),
    /// Load an image with reads and writes, and measure
    #[command(after_help = "\
Writing overwrites the image. Fill a new one first, with `--rw write --bs 4M --iodepth 16` and no \
--runtime: what was never written is not read from any disk. An image that somebody else has \
locked is left alone. It does what `fio --ioengine=rbd` does, without librbd.")]
    Rbd(BenchRbd),
}

/// `loligo bench rados`
#[derive(Clone, Debug, Args)]
pub struct BenchRados {
    /// Which cluster, which load
    #[command(flatten)]
    pub load: LoadArgs,

    /// How the names of its objects begin; those that exist are overwritten [default: a new one]
    #[arg(long, value_name = "NAME")]
    pub object_prefix: Option<String>,

    /// Bytes of each object [default: --bs]
    #[arg(long, value_name = "SIZE")]
    pub object_size: Option<Bytes>,

    /// Do not write the objects before reading them: they are there
    #[arg(long, requires = "object_prefix")]
    pub no_fill: bool,

    /// Leave the objects behind; `rados cleanup --prefix benchmark_data_loligo` removes those that have
    /// names of their own
    #[arg(long)]
    pub no_cleanup: bool,

    /// Remove the objects at the end, also those that were there
    #[arg(long, conflicts_with = "no_cleanup")]
    pub cleanup: bool,
}

/// `loligo bench rbd`
#[derive(Clone, Debug, Args)]
pub struct BenchRbd {
    /// Which cluster, which load
    #[command(flatten)]
    pub load: LoadArgs,

    /// The image, which must exist; to write is to overwrite what it holds
    #[arg(long, value_name = "NAME")]
    pub image: String,
}

/// What both have in common.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Of the cluster [default: $CEPH_CONF, or /etc/ceph/ceph.conf]
    #[arg(long, value_name = "FILE")]
    pub conf: Option<PathBuf>,

    /// Its monitors, separated by commas, in place of a file
    #[arg(long, value_name = "IP:PORT,...", value_delimiter = ',', conflicts_with = "conf")]
    pub mon: Vec<SocketAddr>,

    /// The pool
    #[arg(short, long, value_name = "NAME")]
    pub pool: String,

    /// What is done
    #[arg(long, value_name = "LOAD", value_enum)]
    pub rw: Rw,

    /// Of 100 operations of a mixed load, so many read
    #[arg(long, value_name = "PERCENT", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(0..=100))]
    pub rwmixread: u32,

    /// Bytes of one operation
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    pub bs: Bytes,

    /// Operations at a time, of each job
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub iodepth: u32,

    /// Clients at a time, each a thread with connections of its own; they share --size among them
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=256))]
    pub numjobs: u32,

    /// Go on for so long, beginning anew at the end [default: until --size bytes are done]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub runtime: Option<u32>,

    /// Bytes that are worked on [default: the whole image; objects of 256M]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,

    /// Give every block a checksum, and read back at the end what was written; costs CPU
    #[arg(long)]
    pub verify: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What is done, in fio's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rw {
    /// Read, one behind the other
    Read,
    /// Write, one behind the other
    Write,
    /// Read at random places
    Randread,
    /// Write at random places
    Randwrite,
    /// Both, each one behind the other
    #[value(name = "rw", alias = "readwrite")]
    Mixed,
    /// Both at random places
    #[value(name = "randrw")]
    Randmixed,
}

impl Rw {
    pub(super) fn reads(self) -> bool {
        !matches!(self, Rw::Write | Rw::Randwrite)
    }

    pub(super) fn writes(self) -> bool {
        !matches!(self, Rw::Read | Rw::Randread)
    }

    pub(super) fn is_random(self) -> bool {
        matches!(self, Rw::Randread | Rw::Randwrite | Rw::Randmixed)
    }
}

impl fmt::Display for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |v| v.get_name()))
    }
}

/// What is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Objects { prefix: String, object_bytes: u64, fill: bool, cleanup: bool },
    Image { name: String },
}

/// What is to be done.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub mons: Vec<AddrVec>,
    pub pool: String,
    pub what: What,
    pub rw: Rw,
    pub mix_read_percent: u32,
    pub block_bytes: u64,
    pub depth: usize,
    pub jobs: u64,
    pub runtime: Option<Duration>,
    /// `None`: all of the image.
    pub size: Option<u64>,
    pub verify: bool,
    /// Tells what this run writes from what was there.
    pub run: u32,
}

impl BenchCommand {
    pub(super) fn load(&self) -> &LoadArgs {
        match self {
            BenchCommand::Rados(args) => &args.load,
            BenchCommand::Rbd(args) => &args.load,
        }
    }
}

fn nonsense(why: String) -> Failure {
    Failure::new("cannot measure", why)
}

impl Plan {
    pub fn of(command: &BenchCommand, seed: u64) -> Result<Self, Failure> {
        let load = command.load();
        let block_bytes = load.bs.0;
        if !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&block_bytes) {
            return Err(nonsense(format!("--bs {block_bytes} is not from 512 to 64M")));
        }
        if load.verify && !load.rw.writes() {
            let why = format!("--rw {} writes nothing that --verify could read back", load.rw);
            return Err(nonsense(why));
        }
        let what = match command {
            BenchCommand::Rados(args) => objects(args, seed)?,
            BenchCommand::Rbd(args) => What::Image { name: args.image.clone() },
        };
        let is_image = matches!(what, What::Image { .. });
        let size = load.size.map(|b| b.0).or((!is_image).then_some(DEFAULT_SIZE_BYTES));
        let mons = if load.mon.is_empty() {
            ClientConf::find(load.conf.as_deref())?.mons
        } else {
            load.mon.iter().map(|addr| AddrVec::msgr2(*addr, 0)).collect()
        };
        let plan = Plan {
            mons,
            pool: load.pool.clone(),
            what,
            rw: load.rw,
            mix_read_percent: load.rwmixread,
            block_bytes,
            depth: load.iodepth as usize,
            jobs: u64::from(load.numjobs),
            runtime: load.runtime.map(|s| Duration::from_secs(s.into())),
            size,
            verify: load.verify,
            run: seed as u32,
        };
        size.map_or(Ok(()), |size| plan.blocks_of_job(size).map(drop))?;
        Ok(plan)
    }

    /// Bytes that must not be divided among jobs.
    pub fn unit_bytes(&self) -> u64 {
        match &self.what {
            What::Objects { object_bytes, .. } => *object_bytes,
            What::Image { .. } => self.block_bytes,
        }
    }

    /// Blocks of each job, of `size` bytes of all of them.
    pub fn blocks_of_job(&self, size: u64) -> Result<u64, Failure> {
        let unit = self.unit_bytes();
        let blocks = size / unit / self.jobs * (unit / self.block_bytes);
        let least = if self.verify { self.depth as u64 } else { 1 };
        if blocks < least {
            let why = format!(
                "{} are too few for {} jobs of {least} operations of {}",
                Bytes(size),
                self.jobs,
                Bytes(self.block_bytes)
            );
            return Err(nonsense(why).advise("Name a larger --size, or fewer at a time."));
        }
        Ok(blocks)
    }
}

fn objects(args: &BenchRados, seed: u64) -> Result<What, Failure> {
    let bs = args.load.bs.0;
    let object_bytes = args.object_size.map_or(bs, |b| b.0);
    if object_bytes < bs || !object_bytes.is_multiple_of(bs) {
        let why = format!("--object-size {object_bytes} is not a multiple of --bs {bs}");
        return Err(nonsense(why));
    }
    let prefix =
        args.object_prefix.clone().unwrap_or_else(|| format!("benchmark_data_loligo_{seed:016x}"));
    let (fill, ours) = (!args.no_fill, !args.no_fill && !args.no_cleanup);
    Ok(What::Objects { prefix, object_bytes, fill, cleanup: args.cleanup || ours })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn plan(line: &str) -> Result<Plan, String> {
        let line = format!("loligo bench {line} --mon 127.0.0.1:3300 -p p");
        let cli = Cli::try_parse_from(line.split(' ')).map_err(|e| e.to_string())?;
        let Command::Bench(args) = cli.command else { panic!("{line}") };
        Plan::of(&args.command, 7).map_err(|e| e.to_string())
    }

    #[test]
    fn lines_are_read_as_fio_reads_them() {
        let p = plan("rbd --image i --bs 16k --iodepth 32 --rw randrw --rwmixread 70 --runtime 10");
        let p = p.unwrap();
        assert_eq!((p.block_bytes, p.depth, p.jobs), (16 << 10, 32, 1));
        assert_eq!((p.rw, p.mix_read_percent), (Rw::Randmixed, 70));
        assert_eq!((p.runtime, p.size), (Some(Duration::from_secs(10)), None));
        assert_eq!(p.what, What::Image { name: "i".into() });
        assert_eq!(p.mons.len(), 1);
        assert_eq!(plan("rbd --image i --rw readwrite").unwrap().rw, Rw::Mixed);

        let p = plan("rados --rw write --size 1M --numjobs 2").unwrap();
        let What::Objects { prefix, object_bytes: 4096, fill: true, cleanup: true } = &p.what
        else {
            panic!("{p:?}")
        };
        assert_eq!(prefix, "benchmark_data_loligo_0000000000000007");
        assert_eq!(p.blocks_of_job(1 << 20).unwrap(), 128);
        let p = plan("rados --rw read --object-size 4M --bs 64k --size 9M").unwrap();
        assert_eq!(p.blocks_of_job(9 << 20).unwrap(), 128);
        // What was there stays.
        let cleanup = |line: &str| match plan(line).unwrap().what {
            What::Objects { cleanup, .. } => cleanup,
            other @ What::Image { .. } => panic!("{other:?}"),
        };
        let there = "rados --rw randread --object-prefix x --no-fill";
        assert!(!cleanup(there) && cleanup(&format!("{there} --cleanup")));
        assert!(!cleanup("rados --rw write --no-cleanup") && cleanup("rados --rw write"));
        for rw in ["read", "write", "randread", "randwrite", "rw", "randrw"] {
            assert_eq!(plan(&format!("rados --rw {rw}")).unwrap().rw.to_string(), rw);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "rbd --rw write",
            "rbd --image i",
            "rbd --image i --rw trim",
            "rbd --image i --rw write --iodepth 0",
            "rbd --image i --rw write --bs 100",
            "rbd --image i --rw write --bs 1G",
            "rbd --image i --rw randread --verify",
            "rbd --image i --rw randrw --rwmixread 101",
            "rados --rw write --numjobs 0",
            "rados --rw write --conf /x",
            "rados --rw write --object-size 6k",
            "rados --rw write --object-size 2k",
            "rados --rw write --size 4k --numjobs 2",
            "rados --rw write --size 64k --iodepth 17 --verify",
            "rados --rw read --no-fill",
            "rados --rw write --cleanup --no-cleanup",
        ] {
            assert!(plan(bad).is_err(), "{bad}");
        }
    }
}

//! `loligo osd`: wires an OSD's core to its disk and the runner.

use super::{check_settings, prepare, run_core};
use crate::cli::{OsdRun, StorePath};
use crate::disks::Disks;
use crate::failure::{Exit, Failure};
use crate::machine;
use crate::store_tool::disks_of;
use crate::sync_client::entropy;
use crate::wait::Deadline;
use io::disk::DeviceInfo;
use osd::{EXIT_CANNOT_LISTEN, EXIT_REPAIR, EXIT_RESTART, EXIT_WRONG_STORE, Osd, OsdConfig};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use types::{AddrVec, OsdId};
use uring::Open;

/// An OSD that others mark down more often than this within [`RESTART_WINDOW`], while it runs, has
/// something wrong with it or its network, and does more harm than good
/// (`osd_max_markdown_count`).
const MAX_RESTARTS: usize = 5;
/// See [`MAX_RESTARTS`] (`osd_max_markdown_period`).
const RESTART_WINDOW: Duration = Duration::from_secs(600);
/// How long the disk is waited for that an OSD had which was killed.
const START_LOCK_LIMIT: Duration = Duration::from_secs(5);
/// And where it is our own last operations that the disk is not done with: it may be a slow disk that
/// made us end.
const OWN_LOCK_LIMIT: Duration = Duration::from_secs(300);
/// Less memory than this leaves no room for a large request.
const MIN_MEMORY_BYTES: u64 = 64 << 20;

/// Runs an OSD to its end.
///
/// # Errors
/// When it cannot start, or stopped for a reason.
pub fn run(args: &OsdRun) -> Result<Exit, Failure> {
    let name = format!("osd.{}", args.id);
    let _pid_file = prepare(&args.daemon, &name, mons(args))?;
    let mut restarts = VecDeque::new();
    let mut was_alive = false;
    let mut lock_limit = START_LOCK_LIMIT;
    loop {
        // Everything begins anew: the store is mounted again, and the OSD is known under a new nonce
        // and at new ports, so that nobody takes it for what it was.
        let place = StorePath { path: args.data.clone(), wal: None, json: false };
        let opened = disks_of(&place).and_then(|(data, wal)| {
            Disks::open_within(&data, wal.as_deref(), Open::Existing, lock_limit)
        });
        // Somebody may want its end while it is not there to be told.
        if uring::is_stop_wanted() {
            return Ok(Exit::Done);
        }
        let disks = opened.map_err(|f| Failure { what: format!("cannot start {name}"), ..f })?;
        let mut core = Osd::new(config(args, &disks, was_alive)?, disks.devices, entropy());
        let exit = run_core(&name, &mut core, disks.open, None)?;
        match exit.code {
            0 => return Ok(Exit::Done),
            EXIT_RESTART | EXIT_REPAIR => tracing::warn!("{}", exit.why),
            EXIT_WRONG_STORE => {
                return Err(
                    Failure::new(format!("cannot start {name}"), exit.why).exit(Exit::Refused)
                );
            }
            EXIT_CANNOT_LISTEN => {
                return Err(
                    Failure::new(format!("cannot start {name}"), exit.why).exit(Exit::Machine)
                );
            }
            _ => return Err(Failure::new(format!("{name} has stopped"), exit.why)),
        }
        was_alive = exit.code == EXIT_RESTART;
        lock_limit = OWN_LOCK_LIMIT;
        if was_alive && is_too_often(&mut restarts) {
            let minutes = RESTART_WINDOW.as_secs() / 60;
            let why = format!("it had to start again {MAX_RESTARTS} times in {minutes} minutes");
            return Err(Failure::new(format!("{name} has stopped"), why)
                .advise("Look at its disk, its network, and the mon's log; then start it again."));
        }
    }
}

/// Notes a restart. Whether there were too many.
fn is_too_often(restarts: &mut VecDeque<Deadline>) -> bool {
    restarts.retain(|r| !r.is_over());
    restarts.push_back(Deadline::after(RESTART_WINDOW));
    restarts.len() > MAX_RESTARTS
}

fn mons(args: &OsdRun) -> Vec<AddrVec> {
    args.mon.iter().map(|addr| AddrVec::msgr2(*addr, 0)).collect()
}

fn config(args: &OsdRun, disks: &Disks, was_alive: bool) -> Result<OsdConfig, Failure> {
    let memory = args.memory.0.max(MIN_MEMORY_BYTES);
    let memory = ("osd_memory_target".to_owned(), memory.to_string());
    let options = std::iter::once(memory).chain(args.settings.iter().cloned()).collect();
    let class = || machine::device_class(disks.devices.data.path.as_ref());
    let device_class = args.device_class.clone().unwrap_or_else(class);
    let mut metadata = machine::facts();
    let own = [
        ("osd_data", args.data.display().to_string()),
        ("osd_objectstore", "loligo".to_owned()),
        ("bluestore_min_alloc_size", io::BLOCK_BYTES.to_string()),
        ("default_device_class", device_class.clone()),
        ("rotational", u8::from(device_class == "hdd").to_string()),
        ("journal_rotational", u8::from(device_class == "hdd").to_string()),
    ];
    metadata.extend(own.map(|(k, v)| (k.to_owned(), v)));
    metadata.extend(disk_metadata(&disks.devices));
    let host = args.host.clone().unwrap_or_else(machine::hostname);
    let config = OsdConfig {
        id: OsdId(args.id.cast_signed()),
        cluster: args.fsid,
        mons: mons(args),
        public: args.addr,
        cluster_net: args.cluster_addr.unwrap_or(SocketAddr::new(args.addr.ip(), 0)),
        admin_socket: args.daemon.admin_socket.clone(),
        options,
        location: vec![("host".to_owned(), host), ("root".to_owned(), "default".to_owned())],
        device_class,
        metadata,
        nonce: super::nonce(),
        was_alive,
    };
    check_settings("an OSD", &args.settings, config.settings())?;
    Ok(config)
}

/// What tools want to know of its disks, under the names they know.
fn disk_metadata(devices: &store::Devices) -> BTreeMap<String, String> {
    let facts_of =
        |prefix, disk: &DeviceInfo| machine::disk_facts(prefix, disk.path.as_ref(), disk.bytes);
    let mut facts = facts_of("bluestore_bdev", &devices.data);
    if let Some(log) = &devices.wal {
        facts.extend(facts_of("bluefs_wal", log));
    }
    let has_log = devices.wal.is_some();
    let layout = [
        ("bluefs_dedicated_db", false),
        ("bluefs_dedicated_wal", has_log),
        ("bluefs_single_shared_device", !has_log),
    ];
    facts.extend(layout.map(|(name, is)| (name.to_owned(), u8::from(is).to_string())));
    let all = std::iter::once(&devices.data).chain(&devices.wal);
    facts.extend(machine::devices(all.map(|disk| disk.path.as_ref())));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_osd_that_is_marked_down_again_and_again_gives_up() {
        let mut restarts = VecDeque::new();
        let noted: Vec<bool> = (0..=MAX_RESTARTS).map(|_| is_too_often(&mut restarts)).collect();
        assert_eq!(noted.iter().filter(|too_often| **too_often).count(), 1);
        assert!(noted[MAX_RESTARTS]);
    }
}

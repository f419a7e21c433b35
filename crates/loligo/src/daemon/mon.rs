//! `loligo mon`: wires the monitor's core to its cluster store and the runner.

use super::{check_settings, prepare, run_core};
use crate::cli::MonArgs;
use crate::failure::{Context, Exit, Failure};
use crate::machine;
use crate::sync_client::entropy;
use mon::{EXIT_CANNOT_LISTEN, EXIT_NO_SPACE, EXIT_WRONG_STORE, Mon, MonConfig, NewCluster};
use types::AddrVec;

/// The monitor's data folder holds its cluster store under this name.
pub const STORE: &str = "store.redb";

/// Runs a monitor to its end.
///
/// # Errors
/// When it cannot start, or stopped for a reason.
pub fn run(args: &MonArgs) -> Result<Exit, Failure> {
    let name = format!("mon.{}", args.name);
    check_settings("a mon", &args.settings, mon::known_settings())?;
    let own = vec![AddrVec::msgr2(args.addr, 0)];
    let _pid_file = prepare(&args.daemon, &name, own)?;
    let what = || format!("cannot start {name}");
    let path = args.data.join(STORE);
    if !path.exists() {
        if args.fsid.is_none() {
            let why = format!("there is no cluster in {}", args.data.display());
            return Err(Failure::new(what(), why)
                .advise("Is it the right folder? To make a new cluster, name its id by --fsid.")
                .exit(Exit::Refused));
        }
        std::fs::create_dir_all(&args.data).context(what)?;
    }
    let store = kv::Embedded::open(&path).map_err(|e| {
        let exit = match e.kind {
            kv::Unusable::InUse | kv::Unusable::Damaged => Exit::Refused,
            kv::Unusable::NoSpace => Exit::Machine,
            kv::Unusable::Other => Exit::Failed,
        };
        Failure::new(what(), e).exit(exit)
    })?;
    let mut core = Mon::new(config(args), entropy());
    let exit = run_core(&name, &mut core, Vec::new(), Some(Box::new(store)))?;
    match exit.code {
        0 => Ok(Exit::Done),
        EXIT_WRONG_STORE => Err(Failure::new(what(), exit.why).exit(Exit::Refused)),
        EXIT_CANNOT_LISTEN => Err(Failure::new(what(), exit.why).exit(Exit::Machine)),
        EXIT_NO_SPACE => {
            let what = format!("{name} has stopped");
            let advice = "Make space on its disk, and start it again.";
            Err(Failure::new(what, exit.why).advise(advice).exit(Exit::Machine))
        }
        _ => Err(Failure::new(format!("{name} has stopped"), exit.why)),
    }
}

fn config(args: &MonArgs) -> MonConfig {
    let mut config = MonConfig::new(&args.name, args.addr);
    config.admin_socket.clone_from(&args.daemon.admin_socket);
    config.new_cluster = args.fsid.map(NewCluster::new);
    config.options = args.settings.iter().cloned().collect();
    config.metadata = machine::facts();
    config.metadata.insert("mon_data".to_owned(), args.data.display().to_string());
    config
}

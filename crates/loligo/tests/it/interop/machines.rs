//! OSDs that are machines of their own, as far as the network goes: each in a network namespace, with a
//! cable to a switch that can be pulled, and filters. The mon and the clients are in one more.
//!
//! All of it is private to a process that [`inside`] starts, and gone with the last daemon.

use super::tool::Tool;
use std::process::Command;

const INSIDE_ENV: &str = "LOLIGO_IT_INSIDE";
/// Namespaces are called so and have a number.
pub const PREFIX: &str = "osd";
/// The other end of a machine's cable, at the switch.
const CABLE: &str = "cable";
const SWITCH: &str = "switch";

/// Whether this process has networks of its own. If not, the test `name` is run again in one that
/// has; `None` when this user or machine cannot have them.
pub fn inside(name: &str) -> Option<bool> {
    if std::env::var_os(INSIDE_ENV).is_some() {
        return Some(true);
    }
    let able =
        Command::new("unshare").args(["--net", "--mount", "nft", "list", "ruleset"]).output();
    if !able.is_ok_and(|ran| ran.status.success()) {
        eprintln!("no network namespaces here (root, iproute2 and nftables are needed)");
        return None;
    }
    // The names of namespaces are files: these are nobody else's. What is unmounted here is gone for those
    // on the machines, too.
    let script = "mount --make-rshared / && mkdir -p /run/netns && \
                  mount -t tmpfs netns /run/netns && exec \"$@\"";
    let mut again = Command::new("unshare");
    again
        .args(["--net", "--mount", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap());
    again.args([name, "--exact", "--nocapture"]).env(INSIDE_ENV, "1");
    let status = again.status().unwrap();
    assert!(status.success(), "{name} in namespaces: {status}");
    Some(false)
}

fn ip(line: &str) {
    Tool::new("ip").args(line.split(' ')).ok();
}

/// In the namespace of an OSD.
fn on(osd: usize, line: &str) -> Tool {
    Tool::new("ip").args(["netns", "exec", &format!("{PREFIX}{osd}")]).args(line.split(' '))
}

/// Makes the machines of so many OSDs, and the switch between them. Clients and mons are at it.
pub fn make(osds: usize) {
    ip("link set lo up");
    ip(&format!("link add {SWITCH} type bridge"));
    ip(&format!("addr add 10.77.0.1/24 dev {SWITCH}"));
    ip(&format!("link set {SWITCH} up"));
    for osd in 0..osds {
        let (name, cable) = (format!("{PREFIX}{osd}"), format!("{CABLE}{osd}"));
        ip(&format!("netns add {name}"));
        ip(&format!("link add {cable} type veth peer name eth0 netns {name}"));
        ip(&format!("link set {cable} master {SWITCH} up"));
        ip(&format!("-n {name} addr add 10.77.0.{}/24 dev eth0", 10 + osd));
        ip(&format!("-n {name} link set eth0 up"));
        ip(&format!("-n {name} link set lo up"));
        on(osd, "nft add table inet cut").ok();
        for way in ["input", "output"] {
            let hook = format!("{{ type filter hook {way} priority 0 ; }}");
            on(osd, &format!("nft add chain inet cut {way}")).arg(hook).ok();
        }
    }
}

/// What is wrong with the network of an OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// Its cable is pulled.
    Cable,
    /// Nothing reaches it; what it sends arrives.
    Deaf,
    /// Nothing that it sends arrives.
    Mute,
    /// It and the next OSD do not reach each other.
    Pair,
    /// The mon and other OSDs do not reach it; clients do.
    Island,
    /// A fifth of what comes is lost.
    Loss,
}

pub const CUTS: [Cut; 6] = [Cut::Cable, Cut::Deaf, Cut::Mute, Cut::Pair, Cut::Island, Cut::Loss];

/// Cuts an OSD off, one of so many. The mon has the port `mon`.
pub fn cut(osd: usize, osds: usize, cut: Cut, mon: u16) {
    let rule = |rule: &str| drop(on(osd, &format!("nft add rule inet cut {rule}")).ok());
    let from_and_to = |other: usize| {
        rule(&format!("input ip saddr 10.77.0.{} drop", 10 + other));
        rule(&format!("output ip daddr 10.77.0.{} drop", 10 + other));
    };
    match cut {
        Cut::Cable => ip(&format!("link set {CABLE}{osd} down")),
        Cut::Deaf => rule("input iif eth0 drop"),
        Cut::Mute => rule("output oif eth0 drop"),
        Cut::Pair => from_and_to((osd + 1) % osds),
        Cut::Island => {
            (0..osds).filter(|other| *other != osd).for_each(from_and_to);
            rule(&format!("input ip saddr 10.77.0.1 tcp sport {mon} drop"));
            rule(&format!("output ip daddr 10.77.0.1 tcp dport {mon} drop"));
        }
        Cut::Loss => rule("input iif eth0 numgen random mod 5 == 0 drop"),
    }
}

/// Makes an OSD's network whole again.
pub fn mend(osd: usize) {
    ip(&format!("link set {CABLE}{osd} up"));
    on(osd, "nft flush table inet cut").ok();
}
